//! For machines and readers of manuals: is it up, is it ready, numbers, the OpenAPI document
//! and the pages that explain it and the problems.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{RawPathParams, State},
    http::{HeaderMap, header, request::Parts},
    response::{IntoResponse, Response},
};

use super::{
    Identity, Portal,
    error::{Error, Result},
    extract::CurrentUser,
    forwarded,
    page::{Nav, Page},
    views::{self, ApiDocs},
};
use crate::model::health::NoScheduler;

/// The process is up.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// The loop of sessions goes round every few seconds; after so many it hangs.
const LATE: i64 = 60;

/// Our own changes take milliseconds. A probe gives up after some seconds itself.
pub(super) const LOCKED: Duration = Duration::from_secs(2);

/// What everything stands on answers: the database, the scheduler, the loop of sessions.
pub(super) async fn ready(State(portal): State<Arc<Portal>>) -> Result<String> {
    portal.db.ping().await?;
    let unready = |what: &str| Err(Error::unavailable(what, 5));
    if !portal.db.can_write(LOCKED).await? {
        return unready("The database answers, but nothing can be written: another process holds its lock.");
    }
    match portal.sessions.scheduler.trouble() {
        Some(NoScheduler::HelperEnded) => {
            return unready("The portal's helper has ended: no session can be started or ended.");
        }
        Some(NoScheduler::Silent { .. }) => {
            return unready("The cluster's controller does not answer: no session can be started or ended.");
        }
        Some(NoScheduler::Hidden(_)) => {
            return unready("The cluster hides its jobs from the portal: no session can be started or ended.");
        }
        None => {}
    }
    let last = portal.sessions.last_run();
    let Some(at) = last.at else { return unready("The portal has just begun and has not looked at its sessions yet.") };
    let age = portal.clock.now().seconds_since(at);
    if last.failed {
        return unready("The last look at the sessions failed; the log has the cause.");
    }
    if LATE < age {
        return unready(&format!("Nobody has looked at the sessions for {age} s; the log may have the cause."));
    }
    let strangers = match last.strangers.len() {
        0 => String::new(),
        number => format!("strangers: {number} run that the database does not know; the log names them\n"),
    };
    Ok(format!("ready\ndatabase: answers\nscheduler: answers\nsessions: looked at {age} s ago\n{strangers}"))
}

/// Numbers for Prometheus: to this machine, and to administrators' tokens.
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
        Some(_) => return Err(Error::forbidden("This is for administrators.")),
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], portal.metrics.text()).into_response())
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "openapi", security(()),
    responses((status = 200, description = "The OpenAPI 3.1 document", body = Object))
)]
pub(super) async fn document(State(portal): State<Arc<Portal>>) -> Response {
    let document = portal.document.get().cloned().unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
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
