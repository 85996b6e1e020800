//! Uploads that go on after an interruption: begin, send pieces at an offset, ask for the
//! offset, finish or cancel. A body is passed on as it comes; nothing of it is held here.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue},
    response::{IntoResponse, NoContent, Response},
};
use futures_util::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::FileEntry;
use crate::{
    files::{self, NewUpload, UploadId, Uploaded},
    protocol::files_agent::Fault,
    web::{
        Portal,
        http::{
            error::{Created, Error, Result},
            extract::{CurrentUser, Id, IdempotencyKey, Json},
        },
    },
};

/// State of an upload.
#[derive(Debug, Serialize, ToSchema)]
pub struct UploadView {
    id: String,
    /// Path of the file once the upload is finished.
    path: String,
    size_bytes: u64,
    /// Number of bytes received. The next piece starts here.
    offset_bytes: u64,
}

impl From<Uploaded> for UploadView {
    fn from(uploaded: Uploaded) -> Self {
        let Uploaded { id, path, size_bytes, offset_bytes } = uploaded;
        Self { id, path: path.shown(), size_bytes, offset_bytes }
    }
}

/// A file to upload.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadRequest {
    /// Path of the file with its name: absolute, `~/x`, or relative to your home directory.
    path: String,
    #[schema(minimum = 0)]
    size_bytes: u64,
    /// Replace an existing file with this name.
    #[serde(default)]
    replace: bool,
    /// SHA-256 of the file (64 hexadecimal digits). It is checked before the file gets its name.
    #[serde(default)]
    sha256: Option<String>,
    /// Make the file executable for those who may read it.
    #[serde(default)]
    executable: bool,
}

/// Starts an upload. The file appears under its name only when it is complete.
#[utoipa::path(
    post, path = "/files/uploads", tag = "files", request_body = UploadRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Requests that repeat a key for the same file return the same upload")),
    responses(
        (status = 201, description = "Started", body = UploadView),
        (status = 404, description = "Folder not found"),
        (status = 409, description = "The name already exists, or there is not enough space"),
        (status = 413, description = "The file is larger than the limit for uploads"),
        (status = 422, description = "Validation failed"),
    )
)]
pub async fn begin(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    Json(request): Json<UploadRequest>,
) -> Result<Created<UploadView>> {
    let UploadRequest { path, size_bytes, replace, sha256, executable } = request;
    let new = NewUpload { path: path.as_str().into(), size_bytes, replace, sha256, executable, key };
    let begun = UploadView::from(portal.files.begin_upload(&user.user, new).await?);
    Ok(Created(format!("/api/v1/files/uploads/{}", begun.id), begun))
}

static UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");

/// Returns the state of an upload. `HEAD` returns the number of received bytes in `Upload-Offset`.
#[utoipa::path(
    get, path = "/files/uploads/{id}", tag = "files", params(("id" = String, Path, description = "Id of the upload")),
    responses((status = 200, body = UploadView), (status = 404, description = "The upload was finished or cancelled"))
)]
pub async fn find(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<UploadId>) -> Result<Response> {
    Ok(stands(portal.files.upload(&user.user, &id).await?))
}

/// Appends a piece to an upload.
#[utoipa::path(
    patch, path = "/files/uploads/{id}", tag = "files",
    params(
        ("id" = String, Path, description = "Id of the upload"),
        ("Upload-Offset" = u64, Header, description = "Start of the piece: the number of bytes received so far"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The piece is stored", body = UploadView),
        (status = 404, description = "The upload was finished or cancelled"),
        (status = 409, description = "Wrong offset (`Upload-Offset` has the correct one), or no space is left"),
        (status = 422, description = "`Upload-Offset` is missing or not a number"),
    )
)]
pub async fn write(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<UploadId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let offset = headers.get(&UPLOAD_OFFSET).and_then(|value| value.to_str().ok()?.parse().ok());
    let Some(offset) = offset else {
        return Err(Error::field("Upload-Offset", "missing_field", "Required: the number of bytes received so far."));
    };
    let mut body = body.into_data_stream();
    match portal.files.write(&user.user, &id, offset, &mut body).await {
        Ok(uploaded) => Ok(stands(uploaded)),
        Err(err) => {
            drain(&mut body).await;
            let right = match &err {
                files::Error::Fault { fault: Fault::WrongOffset { offset }, .. } => Some(*offset),
                _ => None,
            };
            let error = Error::from(err);
            Ok(match right {
                Some(offset) => ([(UPLOAD_OFFSET.clone(), HeaderValue::from(offset))], error).into_response(),
                None => error.into_response(),
            })
        }
    }
}

/// How much of a refused body is still taken (bytes), and how long.
const DRAINED: usize = 64 * 1024 * 1024;
const DRAINING: Duration = Duration::from_secs(30);

/// Takes the rest and throws it away: many clients look at the answer only when they have
/// sent everything.
async fn drain<E>(body: &mut (impl Stream<Item = Result<bytes::Bytes, E>> + Unpin)) {
    let mut left = DRAINED;
    let all = async {
        while let Some(Ok(piece)) = body.next().await {
            left = left.saturating_sub(piece.len());
            if left == 0 {
                break;
            }
        }
    };
    // Who takes longer hears of it by the connection's end.
    let _ = tokio::time::timeout(DRAINING, all).await;
}

/// Finishes an upload: checks the file and gives it its name.
#[utoipa::path(
    post, path = "/files/uploads/{id}/finish", tag = "files",
    params(("id" = String, Path, description = "Id of the upload")),
    responses(
        (status = 200, body = FileEntry),
        (status = 404, description = "The upload was finished or cancelled"),
        (status = 409, description = "The file is incomplete, its hash differs, or the name already exists"),
    )
)]
pub async fn finish(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<UploadId>,
) -> Result<axum::Json<FileEntry>> {
    Ok(axum::Json(FileEntry::of(portal.files.finish_upload(&user.user, &id).await?)))
}

/// Cancels an upload and removes the received data.
#[utoipa::path(
    delete, path = "/files/uploads/{id}", tag = "files", params(("id" = String, Path, description = "Id of the upload")),
    responses((status = 204, description = "Removed, or not found"))
)]
pub async fn cancel(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<UploadId>) -> Result<Response> {
    portal.files.cancel_upload(&user.user, &id).await?;
    Ok(NoContent.into_response())
}

fn stands(uploaded: Uploaded) -> Response {
    let offset = HeaderValue::from(uploaded.offset_bytes);
    ([(UPLOAD_OFFSET.clone(), offset)], axum::Json(UploadView::from(uploaded))).into_response()
}
