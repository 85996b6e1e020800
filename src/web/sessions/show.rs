//! One session as a page and as a card, and the buttons of both: stop, extend, keep, start
//! again. Buttons post forms and lead back to where they were pressed.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Redirect, Response},
};

use super::super::{
    Portal,
    http::{
        error::{Error, Result},
        extract::{CurrentUser, Form, Id},
    },
    page::{Nav, Page},
    sessions::{cards, hardware},
    views::{self, HistoryEntry, Moment, ShowSession},
};
use crate::{
    model::{SessionId, Username, job::Shape, size::parse_size},
    sessions::program_notes,
};

/// How much of the log the page shows (bytes).
const LOG_WINDOW: u64 = 32 * 1024;

/// `/sessions/{id}`
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<Response> {
    let actor = user.actor();
    // Lists of what was used lead here.
    let session = portal.sessions.find_workload(actor, id).await?;
    if let Some(attempt) = session.job {
        return Ok(Redirect::to(&format!("/jobs/{}", attempt.job)).into_response());
    }
    let standing = portal.sessions.standing(session.owner).await?;
    let now = portal.clock.now();
    let history = portal.sessions.events(actor, id, 0).await?;
    let log = portal.sessions.log_tail(actor, id, LOG_WINDOW).await?;
    let status = portal.sessions.live(id).status;
    let mut notes = status.as_ref().map(|status| views::notes(&status.notes)).unwrap_or_default();
    notes.extend(status.iter().flat_map(program_notes));
    let doing = status.map(|status| status.step);
    let title = portal.sessions.apps.find(&session.app).map_or(session.app.as_str(), |app| app.title.as_str());
    let mut facts = ShowSession::facts(&session, title);
    if let Some(port) = portal.sessions.port(&session).filter(|_| session.state.is_live()) {
        facts.push(("Visible on this node", format!("port {port}: all users of the node can connect to it")));
    }
    let requested = &session.spec.resources;
    let measured = portal.sessions.hardware_of(id).await?;
    let efficiency = measured.and_then(|measured| hardware::efficiency(&session, &measured, &Shape::default()));
    if let Some(efficiency) = &efficiency {
        facts.push(("Used", efficiency.summary(requested)));
    }
    let view = ShowSession {
        layout: portal.layout_of(&user.0, Nav::Sessions),
        notice: None,
        card: cards::card(&portal, &user, &headers, &session, &standing.limits),
        steps: ShowSession::steps(&session, doing.as_deref()),
        notes,
        facts,
        moments: ShowSession::moments(&session, now),
        history: history
            .into_iter()
            .map(|event| HistoryEntry { at: Moment::clock(event.at, now), text: event.message })
            .collect(),
        log: (!log.is_empty()).then(|| views::plain_log(&String::from_utf8_lossy(&log))),
        caveats: ShowSession::caveats(&session, &portal.sessions.scheduler.stock().inventory()),
        advice: efficiency.and_then(|efficiency| efficiency.advice(requested)),
        is_live: session.state.is_live(),
        is_own: session.owner == user.id(),
    };
    Ok(Page(view).into_response())
}

/// `/sessions/{id}/card`: the card alone, for a page that keeps itself fresh.
pub async fn fragment(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<Response> {
    let session = portal.sessions.find(user.actor(), id).await?;
    let standing = portal.sessions.standing(session.owner).await?;
    Ok(Page(cards::card(&portal, &user, &headers, &session, &standing.limits)).into_response())
}

pub async fn stop(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<Redirect> {
    // Also a job's attempt, beside the GPUs that it holds.
    portal.sessions.stop_workload(user.actor(), id).await?;
    Ok(back(&headers, id))
}

pub async fn extend(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
    form: Form,
) -> Result<Redirect> {
    let seconds = match form.get("seconds") {
        "" => None,
        text => Some(text.parse().map_err(|_err| Error::field("seconds", "invalid_value", "Must be a whole number."))?),
    };
    portal.sessions.extend(user.actor(), id, seconds).await?;
    Ok(back(&headers, id))
}

pub async fn keep(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<Redirect> {
    portal.sessions.keep(user.actor(), id, None).await?;
    Ok(back(&headers, id))
}

/// Starts the same again, with more memory where the form says so.
pub async fn start_again(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SessionId>,
    form: Form,
) -> Result<Redirect> {
    let actor = user.actor();
    let session = portal.sessions.find(actor, id).await?;
    if session.owner != user.id() {
        return Err(Error::not_found());
    }
    let mut request = super::form::same_again(&session);
    if let Some(memory) = Some(form.get("memory")).filter(|memory| !memory.is_empty()) {
        let bytes = parse_size(memory)
            .ok_or_else(|| Error::field("memory", "invalid_value", "Must be a size such as 4 GiB."))?;
        let resources = request.resources.get_or_insert_default();
        resources.memory_bytes = bytes;
    }
    // A double click starts one. When that one has ended as well, the next one follows it.
    let mut last = id;
    loop {
        let key = format!("again-{last}-{}", form.get("memory"));
        let Some(earlier) = portal.db.find_idempotent(user.id(), &key).await? else {
            portal.sessions.start(actor, request, Some(&key)).await?;
            break;
        };
        last = earlier.created_id.parse().map_err(|_err| Error::not_found())?;
        if portal.sessions.find(actor, last).await?.state.is_live() {
            break;
        }
    }
    Ok(Redirect::to("/"))
}

/// To the page that the button was on: the session's own, the cluster's, somebody's among people, else home.
fn back(headers: &HeaderMap, id: SessionId) -> Redirect {
    let page = format!("/sessions/{id}");
    let referer = headers.get(header::REFERER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if referer.ends_with(&page) {
        return Redirect::to(&page);
    }
    let path = url::Url::parse(referer).map(|url| url.path().to_owned()).unwrap_or_default();
    if path == "/cluster" {
        return Redirect::to("/cluster");
    }
    let person = |page: &str| {
        let name = Username::parse(path.strip_prefix(page)?).ok()?;
        Some(format!("{page}{name}"))
    };
    let person = person("/admin/users/").or_else(|| person("/admin/quotas/users/"));
    Redirect::to(person.as_deref().unwrap_or("/"))
}
