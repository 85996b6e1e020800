//! `/api/v1/files`: folders, entries, renaming, deleting, and what the files service's errors
//! mean to a client. `content` is the way out, `uploads` the way in, `pages` are the same
//! things for people.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub(super) mod content;
pub(super) mod pages;
mod preview;
pub(super) mod routes;
mod several;
mod uploads;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, NoContent, Response},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        error::{Created, Error, FieldError, Result},
        extract::{CurrentUser, Json, PathParameter, Query},
        paging::Listed,
    },
};
use crate::{
    files::{self, RootSpace, RootedPath, SpaceState},
    model::{
        Timestamp,
        files::{Entry, Kind, ListingQuery, Order, RawPath, Root, SortKey, SortPosition},
        size::human_size,
    },
    protocol::files_agent::Fault,
};

/// A file, a folder, or another entry of a folder.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileEntry {
    /// Name as text. Bytes that are not text are shown as `�`.
    name: String,
    /// Absolute path as text.
    path: String,
    /// The path, percent-encoded byte by byte. Use this in `?path=`.
    encoded_path: String,
    kind: Kind,
    /// Whether it is a link. `kind` is the kind of its target.
    is_link: bool,
    /// Target of a link that is not followed.
    target: Option<String>,
    size_bytes: u64,
    #[schema(value_type = String, format = DateTime)]
    modified_at: Timestamp,
    /// Changes with the content.
    etag: String,
    /// Number of entries of a folder, only if the folder itself was requested. At most 10 000 are counted.
    holds: Option<u64>,
}

impl FileEntry {
    fn new(entry: &Entry, path: &RawPath) -> Self {
        Self {
            name: if entry.name.0.is_empty() { path.split().1 } else { entry.name.clone() }.shown(),
            path: path.shown(),
            encoded_path: path.encoded(),
            kind: entry.kind,
            is_link: entry.is_link,
            target: entry.target.as_ref().map(RawPath::shown),
            size_bytes: entry.size_bytes,
            modified_at: Timestamp(entry.modified_ms),
            etag: format!("\"{}\"", entry.tag),
            holds: entry.holds,
        }
    }

    fn of((rooted, entry): (RootedPath, Entry)) -> Self {
        Self::new(&entry, &rooted.path)
    }
}

/// A page of a folder's entries.
#[derive(Debug, Serialize, ToSchema)]
pub struct FolderView {
    path: String,
    encoded_path: String,
    items: Vec<FileEntry>,
    /// Cursor of the next page; null on the last page.
    next_cursor: Option<String>,
    /// Number of entries that match.
    total: u64,
    /// True if the folder has more than 100 000 entries. The rest is not listed.
    truncated: bool,
    /// Free space on the file system in bytes.
    free_bytes: u64,
    /// Size of the file system in bytes.
    total_bytes: u64,
    /// Bytes in use on the file system, by all users.
    used_bytes: u64,
    writable: bool,
}

/// A folder that you can reach with everything below it.
#[derive(Debug, Serialize, ToSchema)]
pub struct RootView {
    name: String,
    path: String,
    encoded_path: String,
}

/// Filter, sort order and paging of a folder's entries.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Path of the folder: absolute, `~/x`, or relative to your home directory. Default: your home directory.
    #[param(required = false)]
    path: String,
    /// Sort key. Folders always come first.
    #[param(required = false, inline)]
    sort: SortKey,
    #[param(required = false)]
    descending: bool,
    /// Part of the name, case-insensitive.
    #[param(required = false)]
    find: String,
    /// Include entries that start with a dot.
    #[param(required = false)]
    hidden: bool,
    /// Only folders.
    #[param(required = false)]
    folders: bool,
    /// Maximum number of entries, 1 to 500.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl ListQuery {
    fn wanted(&self, default_limit: usize) -> Result<ListingQuery> {
        let limit = match self.limit.map(usize::try_from) {
            None => default_limit,
            Some(Ok(limit @ 1..=500)) => limit,
            Some(_) => return Err(Error::field("limit", "out_of_range", "Must be between 1 and 500.")),
        };
        let after = match &self.cursor {
            None => None,
            Some(cursor) => {
                Some(mark(cursor).ok_or_else(|| Error::field("cursor", "invalid_value", "Invalid cursor."))?)
            }
        };
        Ok(ListingQuery {
            order: Order { by: self.sort, descending: self.descending },
            find: self.find.chars().take(255).collect(),
            only_folders: self.folders,
            hidden: self.hidden,
            after,
            limit,
        })
    }
}

fn cursor(mark: &SortPosition) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(mark).expect("plain data"))
}

fn mark(cursor: &str) -> Option<SortPosition> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()
}

/// Path of a file or folder.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PathQuery {
    /// Absolute path, `~/x`, or a path relative to your home directory. Percent-encoded, also if it is not text.
    path: String,
}

/// Lists a folder.
#[utoipa::path(
    get, path = "/files", tag = "files", params(ListQuery),
    responses(
        (status = 200, body = FolderView),
        (status = 403, description = "Your account has no access to the folder"),
        (status = 404, description = "Folder not found"),
        (status = 409, description = "Not a folder, or a link in the path points outside the folders that you can reach"),
        (status = 422, description = "Invalid parameter"),
        (status = 429, description = "Too many of your file requests are running"),
        (status = 503, description = "The file system does not respond"),
    )
)]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    PathParameter(path): PathParameter,
    asked: Query<ListQuery>,
) -> Result<axum::Json<FolderView>> {
    let folder = portal.files.list(&user.user, &path, asked.0.wanted(50)?).await?;
    let items = folder.page.entries.iter().map(|entry| FileEntry::new(entry, &folder.rooted.child(&entry.name)));
    Ok(axum::Json(FolderView {
        items: items.collect(),
        path: folder.rooted.path.shown(),
        encoded_path: folder.rooted.path.encoded(),
        next_cursor: folder.page.next.as_ref().map(cursor),
        total: folder.page.total,
        truncated: folder.page.truncated,
        free_bytes: folder.page.free_bytes,
        total_bytes: folder.page.total_bytes,
        used_bytes: folder.page.used_bytes,
        writable: folder.page.writable,
    }))
}

/// Lists the folders that you can reach: your home directory first, then the shared folders of the site.
#[utoipa::path(get, path = "/files/roots", tag = "files", responses((status = 200, body = Listed<RootView>)))]
pub async fn roots(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<axum::Json<Listed<RootView>>> {
    let view = |root: Root| {
        let path = RawPath::from(root.path.as_path());
        RootView { name: root.name, path: path.shown(), encoded_path: path.encoded() }
    };
    let items = portal.files.roots(&user.user).await?.into_iter().map(view).collect();
    Ok(axum::Json(Listed { items, next_cursor: None }))
}

/// How full the file system of a folder is.
#[derive(Debug, Serialize, ToSchema)]
pub struct StorageView {
    /// Name of the folder, as in `GET /files/roots`.
    name: String,
    path: String,
    /// Size of the file system in bytes; null if it is not known.
    total_bytes: Option<u64>,
    /// Used space in bytes, by all users.
    used_bytes: Option<u64>,
    /// Space in bytes that you may still use.
    free_bytes: Option<u64>,
    /// False if the file system did not respond in time.
    responds: bool,
}

/// Returns how full the file systems of your folders are.
///
/// A file system that does not respond is not waited for. Values are at most a minute old.
#[utoipa::path(get, path = "/files/storage", tag = "files", responses((status = 200, body = Listed<StorageView>)))]
pub async fn storage(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<axum::Json<Listed<StorageView>>> {
    let view = |one: RootSpace| {
        let space = match one.state {
            SpaceState::Known(space) => Some(space),
            SpaceState::Unknown | SpaceState::Silent => None,
        };
        StorageView {
            path: RawPath::from(one.root.path.as_path()).shown(),
            name: one.root.name,
            total_bytes: space.map(|space| space.total_bytes),
            used_bytes: space.map(|space| space.used_bytes),
            free_bytes: space.map(|space| space.free_bytes),
            responds: one.state != SpaceState::Silent,
        }
    };
    let items = portal.files.spaces(&user.user).await?.into_iter().map(view).collect();
    Ok(axum::Json(Listed { items, next_cursor: None }))
}

/// Returns one file or folder.
#[utoipa::path(
    get, path = "/files/info", tag = "files", params(PathQuery),
    responses((status = 200, body = FileEntry), (status = 404, description = "Not found"))
)]
pub async fn info(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    PathParameter(path): PathParameter,
    _known: Query<PathQuery>,
) -> Result<axum::Json<FileEntry>> {
    Ok(axum::Json(FileEntry::of(portal.files.look(&user.user, &path).await?)))
}

/// Path of a new folder, or the new path of a renamed entry.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPath {
    /// Absolute path, `~/x`, or a path relative to your home directory.
    path: String,
}

/// Creates a folder. Its parent folder must exist.
#[utoipa::path(
    post, path = "/files/folders", tag = "files", request_body = NewPath,
    responses(
        (status = 201, description = "Created", body = FileEntry),
        (status = 409, description = "The name already exists, or the file system is full"),
        (status = 422, description = "Validation failed"),
    )
)]
pub async fn make_folder(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(new): Json<NewPath>,
) -> Result<Created<FileEntry>> {
    let made = FileEntry::of(portal.files.make_folder(&user.user, &new.path.as_str().into()).await?);
    Ok(Created(format!("/api/v1/files?path={}", made.encoded_path), made))
}

/// Renames or moves a file or folder. Existing entries are never replaced.
#[utoipa::path(
    patch, path = "/files", tag = "files", params(PathQuery), request_body = NewPath,
    responses(
        (status = 200, body = FileEntry),
        (status = 404, description = "Not found"),
        (status = 409, description = "The name already exists, or the target is on another file system"),
        (status = 422, description = "Validation failed"),
    )
)]
pub async fn rename(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    PathParameter(path): PathParameter,
    _known: Query<PathQuery>,
    Json(new): Json<NewPath>,
) -> Result<axum::Json<FileEntry>> {
    Ok(axum::Json(FileEntry::of(portal.files.rename(&user.user, &path, &new.path.as_str().into()).await?)))
}

/// A file or folder to delete.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    path: String,
    /// Apply to a folder with everything in it.
    #[param(required = false)]
    recursive: bool,
}

/// Deletes a file or an empty folder; with `recursive` also a folder with everything in it.
#[utoipa::path(
    delete, path = "/files", tag = "files", params(DeleteQuery),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "Not found"),
        (status = 409, description = "The folder is not empty"),
    )
)]
pub async fn delete(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    PathParameter(path): PathParameter,
    asked: Query<DeleteQuery>,
) -> Result<Response> {
    portal.files.delete(&user.user, &path, asked.0.recursive).await?;
    Ok(NoContent.into_response())
}

impl From<files::Error> for Error {
    fn from(err: files::Error) -> Self {
        use files::Error as Files;
        match err {
            Files::Invalid(fault) => Self::invalid(vec![fault]),
            Files::Fault { path, fault } => file_error(&path, fault),
            Files::Silent { path } => Self::unavailable(
                format!("{path} does not respond. Its file server may be down or busy. Try again later."),
                15,
            ),
            Files::Busy => {
                Self::throttled("Too many of your file requests are running. Wait until one of them has finished.", 5)
            }
            Files::TooLarge { size_bytes, limit_bytes } => Self::too_large_because(format!(
                "The file has {}. The largest upload allowed here is {}.",
                human(size_bytes),
                human(limit_bytes)
            )),
            Files::TooLong { path, size_bytes, limit_bytes } => Self::conflict(format!(
                "{path} has {}, but the portal reads files of at most {}. It may have been written by another program.",
                human(size_bytes),
                human(limit_bytes)
            )),
            Files::TooMany { path, most } => Self::conflict(format!(
                "{path} has more than {most} values, the maximum that the portal reads. It may have been written by another program."
            )),
            Files::BrokenOff => Self::malformed(
                "The upload was interrupted. The data received so far is kept. Get the offset and resume from there.",
            ),
            Files::Scheduler(refused @ crate::scheduler::Error::Refused(_)) => refused.into(),
            Files::Scheduler(_) | Files::Agent(_) => {
                Self::outage("Your files cannot be reached right now. Try again in a moment.", 5, err)
            }
            Files::Db(err) => err.into(),
        }
    }
}

fn human(bytes: u64) -> String {
    human_size(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// What happened, why, and what to do.
fn file_error(path: &str, fault: Fault) -> Error {
    match fault {
        Fault::NotFound => Error::not_found_because(format!("{path} does not exist.")),
        Fault::NoUpload => {
            Error::not_found_because(format!("The upload of {path} was finished or cancelled. Start it again."))
        }
        Fault::Forbidden => {
            Error::forbidden(format!("Your account has no access to {path}. Ask its owner, or choose another path."))
        }
        Fault::NotAFolder => Error::conflict(format!("{path} is not a folder, or a part of the path is not a folder.")),
        Fault::NotAFile => Error::conflict(format!("{path} is not a regular file.")),
        Fault::Exists => Error::conflict(format!("{path} already exists. Choose another name, or delete it first.")),
        Fault::NotEmpty => Error::conflict(format!(
            "The folder {path} is not empty. Confirm that it is deleted with everything in it."
        )),
        Fault::OutOfReach => Error::conflict(format!(
            "A link in the path {path} points outside the folders that you can reach here. Open the target by its own path."
        )),
        Fault::BadName => Error::invalid(vec![FieldError::new("path", "bad_name", "This is not a valid name.")]),
        Fault::Full { free_bytes: 0 } => {
            Error::conflict(format!("The file system of {path} is full. Delete something there, then continue."))
        }
        Fault::Full { free_bytes } => Error::conflict(format!(
            "There is not enough space for {path}: {} are free. Delete something, then try again.",
            human(free_bytes)
        )),
        Fault::OverQuota => Error::conflict(format!(
            "Your quota on the file system of {path} is used up. Delete something there, then continue."
        )),
        Fault::ReadOnly => Error::conflict(format!("The file system of {path} is read-only.")),
        Fault::TooDeep => Error::conflict(format!("The folders in {path} are nested too deeply. Use a terminal.")),
        Fault::OtherFileSystem => Error::conflict(format!(
            "{path} is on another file system, or contains a mounted one. Copy it in a terminal instead."
        )),
        Fault::Changed => Error::conflict(format!("{path} changed in the meantime. Try again.")),
        Fault::WrongOffset { offset } => {
            Error::conflict(format!("{offset} bytes of {path} have been received. Resume from there."))
        }
        Fault::TooLong => Error::conflict(format!("More data was sent for {path} than announced.")),
        Fault::InUse => Error::unavailable(format!("Another request is writing to {path}. Try again in a moment."), 1),
        Fault::Checksum => Error::conflict(format!(
            "The SHA-256 of {path} does not match. The received data was removed. Upload the file again."
        )),
        Fault::Failed { words } => Error::conflict(format!(
            "The file system of {path} reports: {}. If this persists, ask your administrator.",
            words.chars().filter(|letter| !letter.is_control()).take(200).collect::<String>()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors() {
        let there = SortPosition { folder: true, value: -7, name: RawPath(b"x\xff".to_vec()) };
        assert_eq!(mark(&cursor(&there)), Some(there));
        for text in ["", "x", "!!", "e30"] {
            assert_eq!(mark(text), None, "{text}");
        }
    }

    #[test]
    fn every_fault_is_a_client_s_error_that_names_the_path() {
        for fault in [
            Fault::NotFound,
            Fault::Forbidden,
            Fault::Full { free_bytes: 0 },
            Fault::Full { free_bytes: 1 << 30 },
            Fault::OverQuota,
            Fault::OutOfReach,
            Fault::Failed { words: "Input/output\nerror".to_owned() },
        ] {
            let error = file_error("/home/ada/x", fault);
            assert!(error.status().is_client_error());
            assert!(error.detail().contains("/home/ada/x") && !error.detail().contains('\n'), "{}", error.detail());
        }
        assert!(file_error("/x", Fault::Full { free_bytes: 1 << 30 }).detail().contains("1 GiB"));
    }
}
