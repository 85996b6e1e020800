//! For machines and readers of manuals: is it up, is it ready, numbers, the OpenAPI document
//! and the pages that explain it and the problems.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{RawPathParams, State},
    http::{HeaderMap, HeaderValue, header, request::Parts},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tower_http::compression::CompressionLayer;
use utoipa::{ToSchema, openapi::OpenApi};
use utoipa_axum::router::UtoipaMethodRouter;

use super::{
    Identity, Portal,
    http::{
        error::{Error, NotModified, Result},
        extract::CurrentUser,
        forwarded,
    },
    openapi,
    page::{Nav, Page},
    views::{self, ApiDocs},
};
use crate::model::{health::NoScheduler, quota::Field};

/// The process is up.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// The loop of sessions goes round every few seconds; after so many it hangs.
const MAX_LOOP_DELAY: i64 = 60;

/// Our own changes take milliseconds. A probe gives up after some seconds itself.
pub(super) const LOCKED: Duration = Duration::from_secs(2);

/// What everything stands on answers: the database, the scheduler, the loop of sessions.
pub(super) async fn ready(State(portal): State<Arc<Portal>>) -> Result<String> {
    portal.db.ping().await?;
    let unready = |what: &str| Err(Error::unavailable(what, 5));
    if !portal.db.can_write(LOCKED).await? {
        return unready("The database responds but cannot be written to: another process holds its lock.");
    }
    match portal.sessions.scheduler.trouble() {
        Some(NoScheduler::HelperEnded) => {
            return unready("The portal's helper has exited: sessions cannot be started or ended.");
        }
        Some(NoScheduler::Silent { .. }) => {
            return unready("The cluster's controller does not respond: sessions cannot be started or ended.");
        }
        Some(NoScheduler::Hidden(_)) => {
            return unready("The cluster hides its jobs from the portal: sessions cannot be started or ended.");
        }
        None => {}
    }
    let last = portal.sessions.last_run();
    let Some(at) = last.at else { return unready("The portal has just started and has not checked its sessions yet.") };
    let age = portal.clock.now().seconds_since(at);
    if last.failed {
        return unready("The last check of the sessions failed. The log has the cause.");
    }
    if age > MAX_LOOP_DELAY {
        return unready(&format!("The sessions were last checked {age} s ago. The log may have the cause."));
    }
    let orphans = match last.orphans.len() {
        0 => String::new(),
        number => format!("orphans: {number} running but not in the database; the log lists them\n"),
    };
    Ok(format!("ready\ndatabase: ok\nscheduler: ok\nsessions: checked {age} s ago\n{orphans}"))
}

/// Numbers for Prometheus: to this machine, and to administrators' tokens, also those with the scope `metrics` alone.
pub(super) async fn metrics(
    State(portal): State<Arc<Portal>>,
    user: Option<CurrentUser>,
    request: Parts,
) -> Result<Response> {
    let is_local = forwarded::is_local(&request.headers, &request.extensions);
    match user {
        _ if is_local => {}
        None => return Err(Error::unauthenticated()),
        Some(user) if user.is_admin() => {}
        Some(_) => return Err(Error::forbidden("Only administrators can do this.")),
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], portal.metrics.text(&portal).await?).into_response())
}

/// The OpenAPI document as it is sent, and its version.
pub(super) struct Document {
    text: String,
    tag: HeaderValue,
}

impl Document {
    pub(super) fn new(document: &OpenApi) -> Self {
        let text = complete(document).0.to_string();
        let digest = hex::encode(&Sha256::digest(&text)[..8]);
        // Weak: the compressed answer and the plain one are the same document.
        Self { text, tag: HeaderValue::from_str(&format!("W/\"{digest}\"")).expect("a hash in hexadecimal") }
    }
}

/// Completes the document that was made from the routes, and returns with it what it lacks.
pub(super) fn complete(document: &OpenApi) -> (Value, Vec<String>) {
    let mut value = serde_json::to_value(document).expect("the document is plain data");
    let fields: Vec<String> = Field::ALL.iter().map(|field| field.name().into_owned()).collect();
    let faults = openapi::complete(&mut value, env!("CARGO_PKG_VERSION"), &fields);
    (value, faults)
}

/// Returns what the OpenAPI document lacks: descriptions, schemas, or entries of `words.toml` that nothing uses.
pub fn document_faults() -> Vec<String> {
    complete(&super::api().split().1).1
}

/// Compresses the answers of a route for clients that accept it.
pub(super) fn compressed(
    (schemas, paths, handler): UtoipaMethodRouter<Arc<Portal>>,
) -> UtoipaMethodRouter<Arc<Portal>> {
    (schemas, paths, handler.layer(CompressionLayer::new()))
}

/// The oldest version of the `lyceum` command whose requests this portal understands. It is raised with the first
/// change that an older command cannot follow.
const OLDEST_CLIENT: &str = "0.1.0";

/// The version of a portal, and what it understands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Version)]
pub(super) struct VersionView {
    /// The portal's version.
    version: &'static str,
    /// The oldest version of the `lyceum` command whose requests the portal understands.
    oldest_client: &'static str,
}

/// Returns the portal's version, and that of the oldest `lyceum` command that it understands.
#[utoipa::path(get, path = "/version", tag = "health", security(()), responses((status = 200, body = VersionView)))]
pub(super) async fn version() -> Json<VersionView> {
    Json(VersionView { version: env!("CARGO_PKG_VERSION"), oldest_client: OLDEST_CLIENT })
}

/// Returns this document.
///
/// With `If-None-Match` and its `ETag`: 304 if it has not changed.
#[utoipa::path(
    get, path = "/openapi.json", tag = "openapi", security(()),
    responses((status = 200, description = "The OpenAPI 3.1 document", body = Object), (status = 304))
)]
pub(super) async fn document(State(portal): State<Arc<Portal>>, headers: HeaderMap) -> Response {
    let Some(document) = portal.document.get() else { return Error::not_found().into_response() };
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known.flat_map(|value| value.split(',')).any(|known| known.trim() == document.tag);
    let about = [(header::ETAG, document.tag.clone()), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    if is_known {
        return (about, NotModified).into_response();
    }
    (about, [(header::CONTENT_TYPE, "application/json")], document.text.clone()).into_response()
}

/// The document, to browse.
pub(super) async fn api_page(State(portal): State<Arc<Portal>>, user: CurrentUser, headers: HeaderMap) -> Response {
    Page(ApiDocs {
        layout: portal.layout_of(&user.0, Nav::ApiDocs),
        document: "/api/v1/openapi.json".to_owned(),
        base_url: portal.config.origin(&headers),
    })
    .into_response()
}

/// What a kind of problem means.
pub(super) async fn problem(
    State(portal): State<Arc<Portal>>,
    identity: Identity,
    params: RawPathParams,
) -> Result<Response> {
    let kind = params.iter().next().map_or("", |(_, kind)| kind);
    let explanation = views::explain(kind).ok_or_else(Error::not_found)?;
    let layout = portal.layout(&identity, Nav::None);
    Ok(Page(views::Problem { layout, kind: kind.to_owned(), explanation }).into_response())
}
