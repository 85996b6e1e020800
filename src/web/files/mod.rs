//! `/api/v1/files`: folders, entries, renaming, deleting, and what the files service's errors
//! mean to a client. `content` is the way out, `uploads` the way in, `pages` are the same
//! things for people.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub(super) mod content;
pub(super) mod pages;
pub(super) mod uploads;

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
    error::{Created, Error, FieldError, Result},
    extract::{CurrentUser, Json, PathParameter, Query},
    paging::Listed,
};
use crate::{
    files::{self, Spot},
    model::{
        Timestamp,
        files::{By, Entry, Kind, Mark, Order, RawPath, Root, Wanted},
        size::human_size,
    },
    protocol::files_agent::Fault,
};

/// A file, a folder, or something else that lies in one.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileEntry {
    /// As text; what is no text in it is shown as `�`.
    name: String,
    /// From the top of the file system on, as text.
    path: String,
    /// The path percent-encoded, byte by byte: use this in `?path=`.
    encoded_path: String,
    kind: Kind,
    /// It is a link; `kind` is what it leads to.
    is_link: bool,
    /// Where a link leads that cannot be followed here.
    target: Option<String>,
    size_bytes: u64,
    #[schema(value_type = String, format = DateTime)]
    modified_at: Timestamp,
    /// Changes with the content.
    etag: String,
    /// How much a folder holds, where it was asked for by itself; at most 10 000 are counted.
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

    fn of((spot, entry): (Spot, Entry)) -> Self {
        Self::new(&entry, &spot.path)
    }
}

/// A part of a folder.
#[derive(Debug, Serialize, ToSchema)]
pub struct FolderView {
    path: String,
    encoded_path: String,
    items: Vec<FileEntry>,
    /// For the next part; null on the last one.
    next_cursor: Option<String>,
    /// How many entries were asked for in all.
    total: u64,
    /// The folder holds more than 100 000 entries; the rest is not looked at.
    truncated: bool,
    /// What may still be written on this file system.
    free_bytes: u64,
    writable: bool,
}

/// A folder that may be reached with all below it.
#[derive(Debug, Serialize, ToSchema)]
pub struct RootView {
    name: String,
    path: String,
    encoded_path: String,
}

/// Which entries of a folder, in which order.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// The folder: absolute, `~/x`, or from the home on. Left out: the home.
    #[param(required = false)]
    path: String,
    /// Folders come first always.
    #[param(required = false)]
    sort: By,
    #[param(required = false)]
    descending: bool,
    /// A part of the name, in any case.
    #[param(required = false)]
    find: String,
    /// Also entries that begin with a dot.
    #[param(required = false)]
    hidden: bool,
    /// Folders alone.
    #[param(required = false)]
    folders: bool,
    /// At most so many items, 1 to 500.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    /// `next_cursor` of the part before.
    cursor: Option<String>,
}

impl ListQuery {
    fn wanted(&self, default_limit: usize) -> Result<Wanted> {
        let limit = match self.limit.map(usize::try_from) {
            None => default_limit,
            Some(Ok(limit @ 1..=500)) => limit,
            Some(_) => return Err(Error::field("limit", "out_of_range", "Between 1 and 500.")),
        };
        let after = match &self.cursor {
            None => None,
            Some(cursor) => Some(
                mark(cursor)
                    .ok_or_else(|| Error::field("cursor", "invalid_value", "This is no cursor of this list."))?,
            ),
        };
        Ok(Wanted {
            order: Order { by: self.sort, descending: self.descending },
            find: self.find.chars().take(255).collect(),
            only_folders: self.folders,
            hidden: self.hidden,
            after,
            limit,
        })
    }
}

fn cursor(mark: &Mark) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(mark).expect("plain data"))
}

fn mark(cursor: &str) -> Option<Mark> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()
}

/// Which file or folder.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PathQuery {
    /// Absolute, `~/x`, or from the home on; percent-encoded, also where it is no text.
    path: String,
}

/// What is in a folder of yours.
#[utoipa::path(
    get, path = "/files", tag = "files", params(ListQuery),
    responses(
        (status = 200, body = FolderView),
        (status = 403, description = "The folder is not open to your account"),
        (status = 404, description = "There is no such folder"),
        (status = 409, description = "It is no folder, or a link on the way leads out of what may be reached"),
        (status = 422, description = "A parameter cannot be accepted"),
        (status = 429, description = "Too many of your requests for files are under way"),
        (status = 503, description = "Its file system does not answer"),
    )
)]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    PathParameter(path): PathParameter,
    asked: Query<ListQuery>,
) -> Result<axum::Json<FolderView>> {
    let folder = portal.files.list(&user.user, &path, asked.0.wanted(50)?).await?;
    let items = folder.page.entries.iter().map(|entry| FileEntry::new(entry, &folder.spot.child(&entry.name)));
    Ok(axum::Json(FolderView {
        items: items.collect(),
        path: folder.spot.path.shown(),
        encoded_path: folder.spot.path.encoded(),
        next_cursor: folder.page.next.as_ref().map(cursor),
        total: folder.page.total,
        truncated: folder.page.truncated,
        free_bytes: folder.page.free_bytes,
        writable: folder.page.writable,
    }))
}

/// The folders that you reach here: your home first, then what the site shares.
#[utoipa::path(get, path = "/files/roots", tag = "files", responses((status = 200, body = Listed<RootView>)))]
pub async fn roots(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<axum::Json<Listed<RootView>>> {
    let view = |root: Root| {
        let path = RawPath::from(root.path.as_path());
        RootView { name: root.name, path: path.shown(), encoded_path: path.encoded() }
    };
    let items = portal.files.roots(&user.user).await?.into_iter().map(view).collect();
    Ok(axum::Json(Listed { items, next_cursor: None }))
}

/// One file or folder.
#[utoipa::path(
    get, path = "/files/info", tag = "files", params(PathQuery),
    responses((status = 200, body = FileEntry), (status = 404, description = "It is not there"))
)]
pub async fn info(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    PathParameter(path): PathParameter,
    _known: Query<PathQuery>,
) -> Result<axum::Json<FileEntry>> {
    Ok(axum::Json(FileEntry::of(portal.files.look(&user.user, &path).await?)))
}

/// A path to make or to move to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPath {
    /// Absolute, `~/x`, or from the home on.
    path: String,
}

/// Make a folder; the one above it must be there.
#[utoipa::path(
    post, path = "/files/folders", tag = "files", request_body = NewPath,
    responses(
        (status = 201, description = "Made", body = FileEntry),
        (status = 409, description = "There is something of that name, or no room"),
        (status = 422, description = "A field cannot be accepted"),
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

/// Give a file or folder another name or place; nothing is ever replaced.
#[utoipa::path(
    patch, path = "/files", tag = "files", params(PathQuery), request_body = NewPath,
    responses(
        (status = 200, body = FileEntry),
        (status = 404, description = "It is not there"),
        (status = 409, description = "There is something of that name, or it lies on another file system"),
        (status = 422, description = "A field cannot be accepted"),
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

/// Which file or folder, and how much of it.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    path: String,
    /// A folder with everything in it.
    #[param(required = false)]
    recursive: bool,
}

/// Delete a file, an empty folder, or with `recursive` a folder with everything in it.
#[utoipa::path(
    delete, path = "/files", tag = "files", params(DeleteQuery),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "It is not there"),
        (status = 409, description = "The folder holds something"),
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
            Files::Fault { path, fault } => told(&path, fault),
            Files::Silent { path } => Self::unavailable(
                format!("{path} does not answer: its file server may be down or busy. Try again in a while."),
                15,
            ),
            Files::Busy => Self::throttled(
                "Too many of your requests for files are under way: wait until one of them has ended.",
                5,
            ),
            Files::TooLarge { size_bytes, limit_bytes } => Self::too_large_because(format!(
                "A file of {} is larger than {}, the most that may be uploaded here.",
                human(size_bytes),
                human(limit_bytes)
            )),
            Files::TooLong { path, size_bytes, limit_bytes } => Self::conflict(format!(
                "{path} has {}, and the portal reads at most {} of one file. Was it written by another program?",
                human(size_bytes),
                human(limit_bytes)
            )),
            Files::TooMany { path, most } => Self::conflict(format!(
                "{path} has more than {most} values, the most that the portal reads of one file. Was it written by another program?"
            )),
            Files::BrokenOff => {
                Self::malformed("The content broke off. What came before is kept: ask for the offset and go on.")
            }
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
fn told(path: &str, fault: Fault) -> Error {
    match fault {
        Fault::NotFound => Error::not_found_because(format!("There is no {path}.")),
        Fault::NoUpload => Error::not_found_because(format!(
            "There is no such upload of {path}: it was finished or cancelled. Begin it anew."
        )),
        Fault::Forbidden => {
            Error::forbidden(format!("{path} is not open to your account: ask its owner, or choose another."))
        }
        Fault::NotAFolder => Error::conflict(format!("{path} is not a folder, or something on the way to it is not.")),
        Fault::NotAFile => Error::conflict(format!("{path} is not a file that could be read.")),
        Fault::Exists => Error::conflict(format!("{path} is there already: choose another name, or delete it first.")),
        Fault::NotEmpty => Error::conflict(format!(
            "The folder {path} is not empty: say that it is to be deleted with everything in it."
        )),
        Fault::OutOfReach => Error::conflict(format!(
            "A link on the way to {path} leads out of the folders that you reach here. Open where it leads by that path."
        )),
        Fault::BadName => Error::invalid(vec![FieldError::new("path", "bad_name", "This cannot be a name there.")]),
        Fault::Full { free_bytes: 0 } => {
            Error::conflict(format!("The file system of {path} is full: delete something there, then go on."))
        }
        Fault::Full { free_bytes } => Error::conflict(format!(
            "There is not enough room for {path}: {} are free there. Delete something, then try again.",
            human(free_bytes)
        )),
        Fault::OverQuota => Error::conflict(format!(
            "Your quota on the file system of {path} is used up: delete something there, then go on."
        )),
        Fault::ReadOnly => Error::conflict(format!("The file system of {path} can only be read.")),
        Fault::TooDeep => {
            Error::conflict(format!("{path} holds folders inside folders too deep: do it in a terminal."))
        }
        Fault::OtherFileSystem => {
            Error::conflict(format!("{path} lies on another file system, or holds one: copy it in a terminal instead."))
        }
        Fault::Changed => Error::conflict(format!("{path} was changed just now: try again.")),
        Fault::WrongOffset { offset } => {
            Error::conflict(format!("Of {path} there are {offset} bytes now: go on from there."))
        }
        Fault::TooLong => Error::conflict(format!("More came for {path} than its upload said it would hold.")),
        Fault::InUse => {
            Error::unavailable(format!("Another request writes to {path} just now: try again in a moment."), 1)
        }
        Fault::Checksum => Error::conflict(format!(
            "What came for {path} is not what was sent (its SHA-256 differs), and was removed: upload it again."
        )),
        Fault::Failed { words } => Error::conflict(format!(
            "The file system of {path} says: {}. Ask your administrator if it stays.",
            words.chars().filter(|letter| !letter.is_control()).take(200).collect::<String>()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors() {
        let there = Mark { folder: true, value: -7, name: RawPath(b"x\xff".to_vec()) };
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
            let error = told("/home/ada/x", fault);
            assert!(error.status().is_client_error());
            assert!(error.detail().contains("/home/ada/x") && !error.detail().contains('\n'), "{}", error.detail());
        }
        assert!(told("/x", Fault::Full { free_bytes: 1 << 30 }).detail().contains("1 GB"));
    }
}
