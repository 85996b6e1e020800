//! Versions of what is read and changed over REST: `ETag` with an answer, `If-Match` with a
//! change. A version is of what somebody set; what changes by itself is left out.

use axum::{
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::error::{Error, Result};

/// Answers with a body and its version; the fields of `passing` are no part of that.
pub(in crate::web) fn tagged<T: Serialize>(body: &T, passing: &[&str]) -> Response {
    ([(header::ETAG, etag(body, passing))], axum::Json(body)).into_response()
}

/// Refuses a change of another version than the one that is there.
pub(in crate::web) fn check_version<T: Serialize>(headers: &HeaderMap, body: &T, passing: &[&str]) -> Result<()> {
    match headers.get(header::IF_MATCH) {
        Some(version) if version != "*" && version.as_bytes() != etag(body, passing).as_bytes() => Err(Error::stale()),
        _ => Ok(()),
    }
}

fn etag<T: Serialize>(body: &T, passing: &[&str]) -> String {
    let mut value = serde_json::to_value(body).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        for field in passing {
            object.remove(*field);
        }
    }
    let digest = Sha256::digest(value.to_string().as_bytes());
    format!("\"{}\"", hex::encode(&digest[..8]))
}
