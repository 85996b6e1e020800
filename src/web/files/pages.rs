//! `/files`: a folder as a page, one entry as a page, and the forms of both. The same service
//! as the API's; what was refused is drawn again with the sentence that says why.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{ListQuery, cursor, preview};
use crate::{
    db::{models::ModelFilter, sessions::Filter},
    files::{self, Folder, RootedPath},
    model::{
        Model, SessionState, Timestamp,
        files::{Entry, Kind, RawPath, Root, SortKey, is_name},
    },
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form, PathParameter, Query},
            href::href,
        },
        page::{Nav, Page},
        views::{Column, Crumb, FileItem, FileRow, FilesPage, Meter, Moment, Preview, RootTab, Unit},
    },
};

/// How many entries one page shows.
const ON_PAGE: usize = 100;

/// `/files`
pub async fn folder(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    PathParameter(path): PathParameter,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let mut view = folder_view(&portal, &user, &headers, &path, &visit).await?;
    view.notice = visit.done.as_deref().and_then(notice).map(str::to_owned);
    view.is_without_choice = visit.done.as_deref() == Some("nothing");
    Ok(Page(view).into_response())
}

/// What stands in a folder's address: a list's parameters, and what a form did.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageParams {
    path: String,
    sort: SortKey,
    descending: bool,
    find: String,
    hidden: bool,
    cursor: Option<String>,
    done: Option<String>,
}

impl PageParams {
    fn list(&self) -> ListQuery {
        let Self { sort, descending, hidden, .. } = *self;
        ListQuery {
            sort,
            descending,
            hidden,
            find: self.find.clone(),
            cursor: self.cursor.clone(),
            ..ListQuery::default()
        }
    }

    /// The address of a folder's list in this order and with this choice of entries.
    fn address(&self, path: &RawPath) -> String {
        let sort = match self.sort {
            SortKey::Name => "",
            SortKey::Size => "size",
            SortKey::Modified => "modified",
        };
        let flag = |on: bool| if on { "true" } else { "" };
        let words = [
            ("sort", sort),
            ("descending", flag(self.descending)),
            ("hidden", flag(self.hidden)),
            ("find", &self.find),
            ("cursor", self.cursor.as_deref().unwrap_or_default()),
        ];
        href(&address("/files", path), words)
    }
}

/// What a form did, after the redirect.
fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "folder" => "The folder was created.",
        "renamed" => "Renamed.",
        "deleted" => "Deleted.",
        "moved" => "Moved.",
        "copied" => "Copied.",
        _ => return None,
    })
}

fn address(page: &str, path: &RawPath) -> String {
    format!("{page}?path={}", path.encoded())
}

async fn folder_view(
    portal: &Portal,
    user: &CurrentUser,
    headers: &HeaderMap,
    path: &RawPath,
    visit: &PageParams,
) -> Result<FilesPage> {
    let Folder { rooted, page } = portal.files.list(&user.user, path, visit.list().wanted(ON_PAGE)?).await?;
    let roots = portal.files.roots(&user.user).await?;
    let plain = PageParams { cursor: None, ..visit.clone() };
    let jupyter = jupyter(portal, user, headers, &rooted).await?;
    let now = portal.clock.now();
    let rows = page.entries.iter().map(|entry| row(entry, &rooted, &plain, now)).collect();
    let column = |by, label: &'static str| {
        let descending = if plain.sort == by { !plain.descending } else { by != SortKey::Name };
        Column {
            label,
            href: PageParams { sort: by, descending, ..plain.clone() }.address(&rooted.path),
            sorted: (plain.sort == by).then_some(if plain.descending { "descending" } else { "ascending" }),
        }
    };
    let bare = PageParams { find: String::new(), ..plain.clone() };
    Ok(FilesPage {
        layout: portal.layout_of(&user.0, Nav::Files),
        notice: None,
        is_without_choice: false,
        error: None,
        roots: tabs(&roots, &rooted),
        crumbs: crumbs(&rooted, &bare),
        encoded_path: rooted.path.encoded(),
        shown_path: rooted.path.shown(),
        rows,
        columns: [column(SortKey::Name, "Name"), column(SortKey::Size, "Size"), column(SortKey::Modified, "Changed")],
        total: page.total,
        truncated: page.truncated,
        space: space_meter("", page.total_bytes, page.used_bytes),
        free_bytes: i64::try_from(page.free_bytes).unwrap_or(i64::MAX),
        writable: page.writable,
        find: plain.find.clone(),
        sort: match plain.sort {
            SortKey::Name => "name",
            SortKey::Size => "size",
            SortKey::Modified => "modified",
        },
        descending: plain.descending,
        hidden: plain.hidden,
        hidden_href: PageParams { hidden: !plain.hidden, ..plain.clone() }.address(&rooted.path),
        all_href: bare.address(&rooted.path),
        first_href: visit.cursor.is_some().then(|| plain.address(&rooted.path)),
        next_href: page
            .next
            .as_ref()
            .map(|next| PageParams { cursor: Some(cursor(next)), ..plain.clone() }.address(&rooted.path)),
        archive_href: format!("{}&archive=tar", address("/files/download", &rooted.path)),
        jupyter_href: jupyter,
        new_folder: String::new(),
        max_upload_bytes: i64::try_from(portal.files.config.max_upload_bytes).unwrap_or(i64::MAX),
    })
}

/// A bar of how full a file system is.
pub(in crate::web) fn space_meter(label: &str, total: u64, used: u64) -> Meter {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    Meter {
        field: "space",
        label: label.to_owned(),
        used: bytes(used),
        limit: Some(bytes(total)),
        unit: Unit::Bytes,
        ..Meter::default()
    }
}

fn tabs(roots: &[Root], rooted: &RootedPath) -> Vec<RootTab> {
    let tab = |root: &Root| RootTab {
        name: root.name.clone(),
        href: address("/files", &root.path.as_path().into()),
        is_current: *root == rooted.root,
    };
    roots.iter().map(tab).collect()
}

/// From the root to the folder itself.
fn crumbs(rooted: &RootedPath, visit: &PageParams) -> Vec<Crumb> {
    let mut path = RawPath::from(rooted.root.path.as_path());
    let mut crumbs = vec![Crumb { name: rooted.root.name.clone(), href: visit.address(&path) }];
    for part in rooted.below.0.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let name = RawPath(part.to_vec());
        path = path.join(&name);
        crumbs.push(Crumb { name: name.shown(), href: visit.address(&path) });
    }
    crumbs
}

fn row(entry: &Entry, rooted: &RootedPath, visit: &PageParams, now: Timestamp) -> FileRow {
    let path = rooted.child(&entry.name);
    let folder = PageParams { find: String::new(), ..visit.clone() };
    FileRow {
        name: entry.name.shown(),
        icon: match entry.kind {
            Kind::Folder => "folder",
            Kind::File => "file",
            Kind::Link | Kind::Other => "link",
        },
        href: match entry.kind {
            Kind::Folder => Some(folder.address(&path)),
            Kind::File => Some(address("/files/item", &path)),
            Kind::Link | Kind::Other => None,
        },
        what: what(entry),
        size: (entry.kind == Kind::File).then(|| i64::try_from(entry.size_bytes).unwrap_or(i64::MAX)),
        changed: Moment::clock(Timestamp(entry.modified_ms), now),
        item_href: address("/files/item", &path),
        encoded_path: path.encoded(),
    }
}

/// What an entry is, where its name and drawing do not tell.
fn what(entry: &Entry) -> Option<String> {
    match (entry.kind, &entry.target) {
        (Kind::Link, Some(target)) => Some(format!("link to {}, which is outside your folders", target.shown())),
        (Kind::Link, None) => Some("broken link".to_owned()),
        (Kind::Other, _) => Some("not a file or folder".to_owned()),
        _ if entry.is_link => Some("link".to_owned()),
        _ => None,
    }
}

/// Where a running JupyterLab of theirs shows a folder of the home.
async fn jupyter(
    portal: &Portal,
    user: &CurrentUser,
    headers: &HeaderMap,
    rooted: &RootedPath,
) -> Result<Option<String>> {
    let roots = portal.files.roots(&user.user).await?;
    if roots.first() != Some(&rooted.root) {
        return Ok(None);
    }
    let own = Filter { owner: Some(user.id()), live_only: true, sessions_only: true, limit: 200, ..Filter::default() };
    let live = portal.sessions.list(own).await?;
    // One that works outside the home shows that place alone.
    let shows_home = |directory: &Option<String>| {
        directory
            .as_deref()
            .is_none_or(|path| !path.starts_with('/') || std::path::Path::new(path).starts_with(&rooted.root.path))
    };
    let session = live.iter().find(|session| {
        session.app == "jupyter"
            && session.state == SessionState::Running
            && shows_home(&session.spec.working_directory)
    });
    Ok(session.map(|session| format!("{}lab/tree/{}", portal.open_url(headers, session.id), rooted.below.encoded())))
}

/// `/files/item`
pub async fn item(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    PathParameter(path): PathParameter,
    Query(_): Query<super::PathQuery>,
) -> Result<Response> {
    Ok(Page(item_view(&portal, &user, &headers, &path).await?).into_response())
}

async fn item_view(portal: &Portal, user: &CurrentUser, headers: &HeaderMap, path: &RawPath) -> Result<FileItem> {
    let (rooted, entry) = portal.files.look(&user.user, path).await?;
    let now = portal.clock.now();
    let mut crumbs = crumbs(&rooted, &PageParams::default());
    crumbs.pop();
    let download = match entry.kind {
        Kind::File => Some(address("/files/download", &rooted.path)),
        Kind::Folder => Some(format!("{}&archive=tar", address("/files/download", &rooted.path))),
        Kind::Link | Kind::Other => None,
    };
    let is_file = entry.kind == Kind::File;
    let jupyter = if is_file { jupyter(portal, user, headers, &rooted).await? } else { None };
    let is_notebook = is_file && rooted.below.0.ends_with(b".ipynb");
    let (preview, unreadable) = match preview(portal, user, &rooted, &entry).await {
        Ok(preview) => (preview, None),
        Err(error) => (None, Some(Error::from(error).detail().to_owned())),
    };
    let models = match preview {
        Some(Preview::Picture { .. }) => models(portal, user, &rooted).await?,
        _ => Vec::new(),
    };
    let folder = rooted.path.split().0;
    let has_curves = is_file && preview::has_curves(&rooted);
    let run_href = if has_curves { run_of(portal, user, &folder).await? } else { None };
    Ok(FileItem {
        preview,
        unreadable,
        models,
        has_curves: has_curves && run_href.is_none(),
        run_href,
        notebook_href: (is_notebook && jupyter.is_none()).then(|| "/sessions/new?app=jupyter".to_owned()),
        encoded_folder: folder.encoded(),
        folder: folder.shown(),
        layout: portal.layout_of(&user.0, Nav::Files),
        error: None,
        crumbs,
        name: rooted.name().shown(),
        is_root: rooted.below.0.is_empty(),
        encoded_path: rooted.path.encoded(),
        shown_path: rooted.path.shown(),
        is_folder: entry.kind == Kind::Folder,
        // A link is deleted by itself, wherever it leads.
        holds: entry.holds.filter(|_| !entry.is_link).unwrap_or(0),
        what: what(&entry),
        size: (entry.kind == Kind::File).then(|| i64::try_from(entry.size_bytes).unwrap_or(i64::MAX)),
        changed: Moment::clock(Timestamp(entry.modified_ms), now),
        open_href: (entry.kind == Kind::Folder).then(|| address("/files", &rooted.path)),
        download_href: download,
        jupyter_href: jupyter,
        new_name: rooted.name().shown(),
    })
}

/// What is shown of a file's content; nothing of what is no file.
async fn preview(
    portal: &Portal,
    user: &CurrentUser,
    rooted: &RootedPath,
    entry: &Entry,
) -> Result<Option<Preview>, files::Error> {
    if entry.kind != Kind::File {
        return Ok(None);
    }
    let (name, size) = (rooted.name().shown(), entry.size_bytes);
    let part = portal.files.read_part(&user.user, rooted, entry, 0, preview::length(&name, size)).await?;
    let href = address("/files/picture", &rooted.path);
    portal.files.parse(part, move |bytes| preview::of(&name, bytes, size, &href)).await.map(Some)
}

/// How many of somebody's latest runs are looked through.
const RUNS: i64 = 200;

/// The page of one's own run of a folder, where there is one.
async fn run_of(portal: &Portal, user: &CurrentUser, folder: &RawPath) -> Result<Option<String>> {
    let own = portal.runs.list(&user.user, Some(user.user.name.as_str()), None, false, None, RUNS).await?;
    let found = own.into_iter().find(|run| run.directory.as_bytes() == folder.0);
    Ok(found.map(|run| format!("/runs/{}", run.id)))
}

/// How many models a picture's page offers.
const MODELS: i64 = 8;

/// The latest models that this person could ask about a picture.
async fn models(portal: &Portal, user: &CurrentUser, rooted: &RootedPath) -> Result<Vec<(String, String)>> {
    // The form takes text.
    let Ok(path) = std::str::from_utf8(&rooted.path.0) else { return Ok(Vec::new()) };
    let filter = ModelFilter {
        viewer: user.id(),
        own: false,
        dataset: None,
        parent: None,
        find: "",
        sort: None,
        before: None,
        limit: MODELS,
    };
    let link = |(model, _): (Model, String)| {
        let page = format!("/models/{}", model.id);
        (model.name, format!("{}#try", href(&page, [("picture", path)])))
    };
    Ok(portal.models.list(filter).await?.into_iter().map(link).collect())
}

/// `POST /files/folder`: `in` is a folder, percent-encoded, `name` the new one's name.
pub async fn make_folder(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let folder = RawPath::decode(form.get("in"));
    let name = form.get("name").trim();
    let made = match plain_name(name) {
        Ok(name) => portal.files.make_folder(&user.user, &folder.join(&name)).await.map_err(Error::from),
        Err(error) => Err(error),
    };
    let Err(error) = made else {
        return Ok(Redirect::to(&format!("{}&done=folder", address("/files", &folder))).into_response());
    };
    let mut view = folder_view(&portal, &user, &headers, &folder, &PageParams::default()).await?;
    view.error = Some(error.detail().to_owned());
    name.clone_into(&mut view.new_folder);
    Ok(error.with_page(Page(view)))
}

/// `POST /files/rename`: `path` percent-encoded, `name` the new name in the same folder.
pub async fn rename(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let path = RawPath::decode(form.get("path"));
    let folder = path.split().0;
    let renamed = match plain_name(form.get("name")) {
        Ok(name) => portal.files.rename(&user.user, &path, &folder.join(&name)).await.map_err(Error::from),
        Err(error) => Err(error),
    };
    match renamed {
        Ok(_) => Ok(Redirect::to(&format!("{}&done=renamed", address("/files", &folder))).into_response()),
        Err(error) => item_again(&portal, &user, &headers, &path, &error, form.get("name")).await,
    }
}

/// `POST /files/delete`: `path` percent-encoded; `all` for a folder that holds something.
pub async fn delete(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let path = RawPath::decode(form.get("path"));
    match portal.files.delete(&user.user, &path, form.get("all") == "yes").await {
        Ok(_) => Ok(Redirect::to(&format!("{}&done=deleted", address("/files", &path.split().0))).into_response()),
        Err(err) => {
            let name = path.split().1.shown();
            item_again(&portal, &user, &headers, &path, &err.into(), &name).await
        }
    }
}

async fn item_again(
    portal: &Portal,
    user: &CurrentUser,
    headers: &HeaderMap,
    path: &RawPath,
    error: &Error,
    name: &str,
) -> Result<Response> {
    // What is not there any more has no page of its own.
    let Ok(mut view) = item_view(portal, user, headers, path).await else { return Err(error.clone()) };
    view.error = Some(error.detail().to_owned());
    name.clone_into(&mut view.new_name);
    Ok(error.with_page(Page(view)))
}

/// A name that somebody typed.
fn plain_name(name: &str) -> Result<RawPath> {
    let name = RawPath::from(name);
    if is_name(&name) {
        Ok(name)
    } else {
        Err(Error::field(
            "name",
            "bad_name",
            "Must have 1 to 255 bytes, must not contain `/`, and must not be `.` or `..`.",
        ))
    }
}
