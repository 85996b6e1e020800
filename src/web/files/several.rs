//! Several files at once: deleting, moving and copying, by REST and by the form of a folder. Each is tried by itself;
//! what was refused is named with the sentence that says why, and the others are done.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::FileEntry;
use crate::{
    files::{self, RootedPath},
    model::files::{Entry, RawPath},
    web::{
        Portal,
        http::{
            error::{Error, FieldError, Result},
            extract::{CurrentUser, Form, Json},
            href::href,
        },
        page::{Nav, Page},
        views::{SelectedFiles, SelectedItem},
    },
};

/// So many are accepted at once.
const MAX_ITEMS: usize = 500;

/// What is done with each of the selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Move,
    Copy,
    Delete,
}

/// Files and folders to move or copy.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Their paths as `encoded_path` has them, at most 500.
    paths: Vec<RawPathText>,
    /// The folder that they are moved or copied into, as `encoded_path` has it.
    to: RawPathText,
    /// Whether files of the same name are replaced. Folders are never replaced.
    #[serde(default)]
    replace: bool,
}

/// Files and folders to delete.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Deletion {
    /// Their paths as `encoded_path` has them, at most 500.
    paths: Vec<RawPathText>,
    /// Also delete folders that are not empty, with everything in them.
    #[serde(default)]
    recursive: bool,
}

/// A percent-encoded path.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct RawPathText(String);

impl RawPathText {
    fn path(&self) -> RawPath {
        RawPath::decode(&self.0)
    }
}

/// What became of each file or folder.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileResults {
    /// In the order of the request.
    items: Vec<FileResult>,
    /// How many of them were not done.
    failed: usize,
}

/// What became of a file or folder.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileResult {
    /// The path of the request, percent-encoded.
    path: String,
    /// The file or folder at its new place; null if it was deleted or not done.
    entry: Option<FileEntry>,
    /// Why it was not done; null if it was.
    error: Option<String>,
}

impl FileResult {
    fn of((path, done): (RawPath, Result<Option<(RootedPath, Entry)>, files::Error>)) -> Self {
        match done {
            Ok(entry) => Self { path: path.encoded(), entry: entry.map(FileEntry::of), error: None },
            Err(error) => {
                Self { path: path.encoded(), entry: None, error: Some(Error::from(error).detail().to_owned()) }
            }
        }
    }
}

/// Moves files and folders into a folder.
///
/// Each is tried by itself: `error` says why one was not moved.
#[utoipa::path(post, path = "/files/move", tag = "files", request_body = Transfer,
    responses((status = 200, body = FileResults), (status = 422, description = "Validation failed")))]
pub async fn move_all(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(asked): Json<Transfer>,
) -> Result<axum::Json<FileResults>> {
    transfer(&portal, &user, Deed::Move, asked).await
}

/// Copies files and folders into a folder.
///
/// Links are copied as links. Each is tried by itself: `error` says why one was not copied.
#[utoipa::path(post, path = "/files/copy", tag = "files", request_body = Transfer,
    responses((status = 200, body = FileResults), (status = 422, description = "Validation failed")))]
pub async fn copy_all(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(asked): Json<Transfer>,
) -> Result<axum::Json<FileResults>> {
    transfer(&portal, &user, Deed::Copy, asked).await
}

/// Deletes files and folders.
///
/// Each is tried by itself: `error` says why one was not deleted.
#[utoipa::path(post, path = "/files/delete", tag = "files", request_body = Deletion,
    responses((status = 200, body = FileResults), (status = 422, description = "Validation failed")))]
pub async fn delete_all(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(asked): Json<Deletion>,
) -> Result<axum::Json<FileResults>> {
    let paths = checked(&asked.paths)?;
    Ok(results(each(&portal, &user, Deed::Delete, paths, &RawPath::default(), asked.recursive).await))
}

async fn transfer(portal: &Portal, user: &CurrentUser, deed: Deed, asked: Transfer) -> Result<axum::Json<FileResults>> {
    let paths = checked(&asked.paths)?;
    let to = asked.to.path();
    check_folder(portal, user, &to).await?;
    Ok(results(each(portal, user, deed, paths, &to, asked.replace).await))
}

fn results(done: Vec<Done>) -> axum::Json<FileResults> {
    let items: Vec<FileResult> = done.into_iter().map(FileResult::of).collect();
    let failed = items.iter().filter(|item| item.error.is_some()).count();
    axum::Json(FileResults { items, failed })
}

fn checked(paths: &[RawPathText]) -> Result<Vec<RawPath>> {
    if paths.is_empty() || MAX_ITEMS < paths.len() {
        return Err(Error::field("paths", "out_of_range", "Give between 1 and 500 paths."));
    }
    Ok(paths.iter().map(RawPathText::path).collect())
}

/// One that is no folder is a fault of its field, not of every item.
async fn check_folder(portal: &Portal, user: &CurrentUser, to: &RawPath) -> Result<()> {
    let wrong = |message: String| Error::invalid(vec![FieldError::new("to", "not_a_folder", &*message)]);
    match portal.files.look(&user.user, to).await {
        Ok((_, entry)) if entry.kind == crate::model::files::Kind::Folder => Ok(()),
        Ok((rooted, _)) => Err(wrong(format!("{} is not a folder.", rooted.path.shown()))),
        Err(error @ (files::Error::Fault { .. } | files::Error::Invalid(_))) => {
            let error = Error::from(error);
            let message = error.field_errors().first().map_or(error.detail(), |fault| &fault.message);
            Err(wrong(message.to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

type Done = (RawPath, Result<Option<(RootedPath, Entry)>, files::Error>);

/// `is_bold`: files are replaced, or folders deleted with what is in them.
async fn each(
    portal: &Portal,
    user: &CurrentUser,
    deed: Deed,
    paths: Vec<RawPath>,
    to: &RawPath,
    is_bold: bool,
) -> Vec<Done> {
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        let name = path.split().1;
        let target = to.join(&name);
        let files = &portal.files;
        let done = match deed {
            Deed::Move => files.move_to(&user.user, &path, &target, is_bold).await.map(Some),
            Deed::Copy => files.copy(&user.user, &path, &target, is_bold).await.map(Some),
            Deed::Delete => files.delete(&user.user, &path, is_bold).await.map(|_| None),
        };
        all.push((path, done));
    }
    all
}

/// `POST /files/selected`: asks what is to become of what was ticked; nothing is changed yet.
pub async fn selected(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let folder = RawPath::decode(form.get("in"));
    let Some(deed) = deed(form.get("action")) else { return Err(Error::not_found()) };
    let chosen: Vec<RawPath> = form.all("path").map(RawPath::decode).take(MAX_ITEMS).collect();
    if chosen.is_empty() {
        return Ok(Redirect::to(&href(&address(&folder), [("done", "nothing")])).into_response());
    }
    let items = chosen.into_iter().map(|path| (path, None)).collect();
    let to = if deed == Deed::Delete { String::new() } else { folder.shown() };
    Ok(Page(view(&portal, &user, deed, &folder, items, to, None)).into_response())
}

/// `POST /files/transfer`: does it. What was refused comes back with the reason beside it.
pub async fn apply(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let folder = RawPath::decode(form.get("in"));
    let Some(deed) = deed(form.get("action")) else { return Err(Error::not_found()) };
    let chosen: Vec<RawPath> = form.all("path").map(RawPath::decode).take(MAX_ITEMS).collect();
    let (typed, is_bold) = (form.get("to").trim().to_owned(), form.get("all") == "yes");
    let to = RawPath::from(typed.as_str());
    if deed != Deed::Delete
        && let Err(error) = check_folder(&portal, &user, &to).await
    {
        let Some(fault) = error.field_errors().first().map(|fault| fault.message.clone()) else { return Err(error) };
        let items = chosen.into_iter().map(|path| (path, None)).collect();
        let mut page = view(&portal, &user, deed, &folder, items, typed, Some(fault));
        page.is_bold = is_bold;
        return Ok(error.with_page(Page(page)));
    }
    let done = each(&portal, &user, deed, chosen, &to, is_bold).await;
    let count = done.len();
    let failed: Vec<(RawPath, Option<Error>)> =
        done.into_iter().filter_map(|(path, done)| Some((path, Some(Error::from(done.err()?))))).collect();
    let Some(first) = failed.iter().find_map(|(_, error)| error.clone()) else {
        let word = match deed {
            Deed::Move => "moved",
            Deed::Copy => "copied",
            Deed::Delete => "deleted",
        };
        let shown = if deed == Deed::Copy { to } else { folder };
        return Ok(Redirect::to(&href(&address(&shown), [("done", word)])).into_response());
    };
    let sentence = match failed.len() {
        all if all == count => None,
        some => Some(format!("Done: {} of {count}. The others are listed here.", count - some)),
    };
    let mut page = view(&portal, &user, deed, &folder, failed, typed, None);
    (page.notice, page.is_bold) = (sentence, is_bold);
    Ok(first.with_page(Page(page)))
}

fn deed(word: &str) -> Option<Deed> {
    Some(match word {
        "move" => Deed::Move,
        "copy" => Deed::Copy,
        "delete" => Deed::Delete,
        _ => return None,
    })
}

fn address(folder: &RawPath) -> String {
    format!("/files?path={}", folder.encoded())
}

fn view(
    portal: &Portal,
    user: &CurrentUser,
    deed: Deed,
    folder: &RawPath,
    items: Vec<(RawPath, Option<Error>)>,
    to: String,
    wrong: Option<String>,
) -> SelectedFiles {
    let (action, verb) = match deed {
        Deed::Move => ("move", "Move"),
        Deed::Copy => ("copy", "Copy"),
        Deed::Delete => ("delete", "Delete"),
    };
    let item = |(path, error): (RawPath, Option<Error>)| SelectedItem {
        name: path.split().1.shown(),
        encoded_path: path.encoded(),
        error: error.map(|error| error.detail().to_owned()),
    };
    SelectedFiles {
        layout: portal.layout_of(&user.0, Nav::Files),
        action,
        verb,
        folder: folder.shown(),
        encoded_folder: folder.encoded(),
        back: address(folder),
        items: items.into_iter().map(item).collect(),
        to,
        wrong,
        notice: None,
        is_bold: false,
    }
}
