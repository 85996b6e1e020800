//! The way out of a file: whole or in part, asked again with its tag, and a folder as a tar
//! stream. Whatever a file holds, a browser is told to keep it and never to show it: it
//! comes from the portal's own origin. `/files/download` is the same for people.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    response::{AppendHeaders, IntoResponse, Response},
};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::{
    files::{self, Content, RootedPath},
    model::{
        files::{Entry, Kind},
        time::http_date,
    },
    protocol::files_agent::Fault,
    web::{
        Portal,
        http::{
            error::{Error, NotModified, Partial, Result},
            extract::{CurrentUser, PathParameter, Query},
        },
    },
};

/// A file or folder to download.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ContentQuery {
    path: String,
    /// `tar` returns a folder with everything in it.
    #[param(required = false, inline)]
    archive: Option<Archive>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Archive {
    Tar,
}

/// Returns the content of a file, whole or in part (`Range`), or a folder as a tar stream.
#[utoipa::path(
    get, path = "/files/content", tag = "files",
    params(ContentQuery, ("Range" = Option<String>, Header, description = "`bytes=0-1023`; a single range")),
    responses(
        (status = 200, description = "The content, of a folder as tar",
            content((Vec<u8> = "application/octet-stream"), (Vec<u8> = "application/x-tar"))),
        (status = 206, description = "A part of the content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "Not modified"),
        (status = 403, description = "Your account has no access to the file"),
        (status = 404, description = "File not found"),
        (status = 409, description = "Not a regular file, or a folder requested without `archive`"),
        (status = 416, description = "The range is outside the file"),
        (status = 503, description = "The file system does not respond"),
    )
)]
pub async fn content(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    method: Method,
    headers: HeaderMap,
    PathParameter(path): PathParameter,
    asked: Query<ContentQuery>,
) -> Result<Response> {
    let (rooted, entry) = portal.files.look(&user.user, &path).await?;
    if entry.kind == Kind::Folder && asked.0.archive == Some(Archive::Tar) {
        return archive(&portal, &user, &method, &rooted).await;
    }
    if entry.kind == Kind::Folder {
        return Err(Error::conflict("This is a folder. Download it with `archive=tar`, or download one of its files."));
    }
    match answer(&portal, &user, &method, &headers, &rooted, &entry).await {
        // It was changed between the two looks: once more, with what it is now.
        Err(files::Error::Fault { fault: Fault::Changed, .. }) => {
            let (rooted, entry) = portal.files.look(&user.user, &path).await?;
            Ok(answer(&portal, &user, &method, &headers, &rooted, &entry).await?)
        }
        other => Ok(other?),
    }
}

/// The largest picture that a page shows (bytes).
const MAX_PICTURE: u64 = 32 << 20;

/// How many bytes tell the type of a picture.
const SIGNATURE: u64 = 16;

/// `/files/picture`: a picture for the page that shows it. Only what browsers draw without running anything.
pub async fn picture(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    PathParameter(path): PathParameter,
    _known: Query<super::PathQuery>,
) -> Result<Response> {
    let (rooted, entry) = portal.files.look(&user.user, &path).await?;
    let size = entry.size_bytes;
    if entry.kind != Kind::File || MAX_PICTURE < size {
        return Err(Error::conflict("This is not an image of at most 32 MiB. Download it instead."));
    }
    let head = portal.files.read_part(&user.user, &rooted, &entry, 0, size.min(SIGNATURE)).await?;
    let Some(kind) = super::preview::picture_type(&head) else {
        return Err(Error::conflict("This file is not a PNG, JPEG, GIF, WebP or BMP image. Download it instead."));
    };
    let body = stream(portal.files.read(&user.user, &rooted, &entry, 0, size).await?);
    let about = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_LENGTH, HeaderValue::from(size)),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("inline")),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
    ];
    Ok((SANDBOX, AppendHeaders(about), body).into_response())
}

/// A folder with everything in it, as a tar stream.
pub async fn archive(portal: &Portal, user: &CurrentUser, method: &Method, rooted: &RootedPath) -> Result<Response> {
    let body = match *method {
        Method::HEAD => Body::empty(),
        _ => stream(portal.files.archive(&user.user, rooted).await?),
    };
    let about = [(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar")), saved_as(rooted, ".tar")];
    Ok((SANDBOX, about, body).into_response())
}

async fn answer(
    portal: &Portal,
    user: &CurrentUser,
    method: &Method,
    headers: &HeaderMap,
    rooted: &RootedPath,
    entry: &Entry,
) -> Result<Response, files::Error> {
    let tag = format!("\"{}\"", entry.tag);
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let tag_value = HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\""));
    let about = [
        (header::ETAG, tag_value),
        (header::LAST_MODIFIED, http_date(entry.modified_ms).parse().unwrap_or(HeaderValue::from_static(""))),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
    ];
    let known = text(header::IF_NONE_MATCH).unwrap_or_default();
    if known.split(',').any(|known| matches!(known.trim(), "*") || known.trim().trim_start_matches("W/") == tag) {
        return Ok((AppendHeaders(about), NotModified).into_response());
    }
    let size = entry.size_bytes;
    let same = text(header::IF_RANGE).is_none_or(|known| known == tag);
    let range = text(header::RANGE).filter(|_| same).map_or(Part::Whole, |range| part(range, size));
    let (from, length) = match range {
        Part::Whole => (0, size),
        Part::Of { from, length } => (from, length),
        Part::None => {
            let size = HeaderValue::from_str(&format!("bytes */{size}")).expect("digits");
            let error = Error::unsatisfiable("The range starts beyond the end of the file.");
            return Ok(([(header::CONTENT_RANGE, size)], error).into_response());
        }
    };
    let body = match *method {
        Method::HEAD => Body::empty(),
        _ => stream(portal.files.read(&user.user, rooted, entry, from, length).await?),
    };
    let described = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(length)),
        saved_as(rooted, ""),
    ];
    let whole = (SANDBOX, AppendHeaders(about), described, body);
    Ok(if range == Part::Whole {
        whole.into_response()
    } else {
        let last = from + length - 1;
        let part = HeaderValue::from_str(&format!("bytes {from}-{last}/{size}")).expect("digits");
        Partial(([(header::CONTENT_RANGE, part)], whole)).into_response()
    })
}

/// Should a browser show it all the same, nothing in it runs.
const SANDBOX: [(HeaderName, HeaderValue); 1] =
    [(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"))];

fn stream(content: Content) -> Body {
    Body::from_stream(content.into_stream())
}

/// `Content-Disposition` with the file's own name.
fn saved_as(rooted: &RootedPath, suffix: &str) -> (HeaderName, HeaderValue) {
    let mut name = rooted.name().0;
    name.extend_from_slice(suffix.as_bytes());
    let plain: String = name
        .iter()
        .map(|byte| if byte.is_ascii_alphanumeric() || b"._- ".contains(byte) { char::from(*byte) } else { '_' })
        .collect();
    let encoded = percent_encode(&name, NON_ALPHANUMERIC);
    let value = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}");
    (header::CONTENT_DISPOSITION, value.parse().unwrap_or(HeaderValue::from_static("attachment")))
}

/// Which part of a file of some size a `Range` header means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Also where the header is none that we know: it may be ignored.
    Whole,
    /// `length` is above zero.
    Of { from: u64, length: u64 },
    /// There is no such part.
    None,
}

fn part(range: &str, size: u64) -> Part {
    let Some((from, to)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Part::Whole;
    };
    let number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let (from, to) = match (from.trim(), to.trim()) {
        ("", last) => match number(last) {
            Some(last) => (size.saturating_sub(last), size.saturating_sub(1)),
            None => return Part::Whole,
        },
        (from, "") => match number(from) {
            Some(from) => (from, size.saturating_sub(1)),
            None => return Part::Whole,
        },
        (from, to) => match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => (from, to.min(size.saturating_sub(1))),
            _ => return Part::Whole,
        },
    };
    if size <= from { Part::None } else { Part::Of { from, length: to - from + 1 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file() {
        let of = |from, length| Part::Of { from, length };
        for (range, size, expected) in [
            ("bytes=0-0", 10, of(0, 1)),
            ("bytes=2-4", 10, of(2, 3)),
            ("bytes=2-", 10, of(2, 8)),
            ("bytes=2-99", 10, of(2, 8)),
            ("bytes=-3", 10, of(7, 3)),
            ("bytes=-99", 10, of(0, 10)),
            ("bytes=10-", 10, Part::None),
            ("bytes=-0", 10, Part::None),
            ("bytes=0-", 0, Part::None),
            ("bytes=0-18446744073709551615", 10, of(0, 10)),
            ("bytes=4-2", 10, Part::Whole),
            ("bytes=0-1,4-5", 10, Part::Whole),
            ("bytes=a-b", 10, Part::Whole),
            ("bytes=-", 10, Part::Whole),
            ("lines=0-1", 10, Part::Whole),
            ("bytes=99999999999999999999-", 10, Part::Whole),
        ] {
            assert_eq!(part(range, size), expected, "{range} of {size}");
        }
    }
}
