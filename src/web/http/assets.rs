//! The embedded files of `static/`: an address with the file's hash may be kept for ever,
//! any other is asked for again and mostly answered with "unchanged".

use axum::{
    extract::RawPathParams,
    http::{HeaderMap, HeaderValue, Uri, header},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use tower_http::compression::CompressionLayer;

use super::error::{Error, NotModified, Result};
use crate::web::page::static_file;

/// `GET /static/{*path}`, compressed where the browser takes it.
pub(in crate::web) fn files<S: Clone + Send + Sync + 'static>() -> MethodRouter<S> {
    get(file).layer(CompressionLayer::new())
}

/// `GET /favicon.ico`, which browsers ask for by themselves on pages without a link to an icon.
pub(in crate::web) fn icon<S: Clone + Send + Sync + 'static>() -> MethodRouter<S> {
    get(async |uri: Uri, headers: HeaderMap| answer("favicon.svg", &uri, &headers))
}

async fn file(params: RawPathParams, uri: Uri, headers: HeaderMap) -> Result<Response> {
    answer(params.iter().next().map_or("", |(_, path)| path), &uri, &headers)
}

fn answer(path: &str, uri: &Uri, headers: &HeaderMap) -> Result<Response> {
    let file = static_file(path).ok_or_else(Error::not_found)?;
    let named_by_hash = uri.query() == Some(format!("v={}", file.hash).as_str());
    // Weak: the compressed answer and the plain one are the same file.
    let tag = format!("W/\"{}\"", file.hash);
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known.flat_map(|value| value.split(',')).any(|known| known.trim() == tag);
    let keep = if named_by_hash { "public, max-age=31536000, immutable" } else { "no-cache" };
    let tag = HeaderValue::from_str(&tag).expect("a hash in hexadecimal");
    let about = [(header::ETAG, tag), (header::CACHE_CONTROL, HeaderValue::from_static(keep))];
    if is_known {
        return Ok((about, NotModified).into_response());
    }
    Ok((about, [(header::CONTENT_TYPE, file.content_type)], file.bytes).into_response())
}
