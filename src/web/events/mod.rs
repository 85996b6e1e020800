//! Events of the portal over REST, for administrators: a page of them from a number on, or as a stream that goes on with
//! what happens. The addresses that the portal calls for events are in `webhooks`, their page in `pages`.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub mod pages;
pub mod webhooks;

use std::{sync::Arc, time::Duration};

use axum::{
    Json as Answer,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response, sse::Event},
};
use futures_util::{Stream, stream};
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::{
    Portal,
    audit::wants,
    http::{
        error::{Error, FieldError, Problem, Result},
        extract::{Admin, CurrentUser, Query},
        paging::{Listed, Paging},
        streams::sse_for,
    },
};
use crate::{
    events::is_known_type,
    model::{
        Role,
        event::{PortalEvent, selects},
    },
};

/// So many events are read at once.
const STEP: i64 = 500;

/// How often a stream checks whether its reader still may read.
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Maximum number of events to return, 1 to 500. Not with an event stream.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Only events with a higher number: a collector sends the number of the last event that it has, or 0. An event stream
    /// also takes the header `Last-Event-ID`; without both, it begins with what happens next.
    #[param(minimum = 0)]
    after: Option<i64>,
    /// Only events of these types, separated by commas: `job.ended`, `quota.*`. Default: all.
    #[serde(rename = "type")]
    #[param(required = false)]
    kind: String,
}

impl EventQuery {
    fn patterns(&self) -> Vec<String> {
        self.kind.split(',').map(str::trim).filter(|pattern| !pattern.is_empty()).map(str::to_owned).collect()
    }
}

/// Returns the events of the portal, oldest first: entries of the audit log, and the states that sessions and jobs enter.
///
/// Events are kept for 30 days. With `Accept: text/event-stream`, the response is an event stream that goes on with new
/// events; the id of each is its number.
#[utoipa::path(
    get, path = "/events", tag = "events", params(EventQuery),
    responses(
        (status = 200, content((Listed<PortalEvent> = "application/json"), (String = "text/event-stream"))),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "Not an administrator", body = Problem),
        (status = 422, description = "A parameter is invalid", body = Problem),
    )
)]
pub async fn list(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<EventQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let (patterns, is_stream) = (parameters.patterns(), wants(&headers, "text/event-stream"));
    check(&parameters, &patterns, is_stream)?;
    if is_stream {
        let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
        let after = match last.or(parameters.after) {
            Some(after) => after,
            None => portal.events.last().await?,
        };
        let (user, events) = (admin.0.id(), follow(portal.clone(), CurrentUser(admin.0), after, patterns));
        return sse_for(&portal, user, events);
    }
    let paging = Paging::new(parameters.limit, parameters.cursor);
    let limit = paging.limit()?;
    let after = paging.after::<i64>()?.or(parameters.after).unwrap_or(0);
    Ok(Answer(page(&portal, after, limit, &patterns).await?).into_response())
}

/// A type that no event has would wait for ever, and pages belong to lists.
fn check(parameters: &EventQuery, patterns: &[String], is_stream: bool) -> Result<()> {
    let mut faults = Vec::new();
    if parameters.after.is_some_and(|after| after < 0) {
        faults.push(FieldError::new("after", "out_of_range", "Must be 0 or higher."));
    }
    if let Some(unknown) = patterns.iter().find(|pattern| !is_known_type(pattern)) {
        let shown: String = unknown.chars().take(80).collect();
        faults.push(FieldError::new("type", "unknown", format!("No event has the type `{shown}`.")));
    }
    let of_pages = [("limit", parameters.limit.is_some()), ("cursor", parameters.cursor.is_some())];
    for (name, _) in of_pages.into_iter().filter(|(_, is_given)| is_stream && *is_given) {
        faults.push(FieldError::new(name, "ambiguous", "Cannot be combined with an event stream."));
    }
    if faults.is_empty() { Ok(()) } else { Err(Error::invalid(faults)) }
}

/// Reads on until there are enough events of the types, or no more.
async fn page(portal: &Portal, mut after: i64, limit: i64, patterns: &[String]) -> Result<Listed<PortalEvent>> {
    let mut items = Vec::new();
    // One more, which shows whether there are more.
    let enough = usize::try_from(limit).unwrap_or(0) + 1;
    while items.len() < enough {
        let events = portal.events.after(after, STEP).await?;
        let Some(last) = events.last() else { break };
        after = last.number;
        items.extend(events.into_iter().filter(|event| is_wanted(event, patterns)));
    }
    items.truncate(enough);
    Ok(Listed::new(items, limit, |event| event.number))
}

fn is_wanted(event: &PortalEvent, patterns: &[String]) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| selects(pattern, &event.kind))
}

/// A stream of the events behind a number, which ends when its reader is no administrator any more.
fn follow(portal: Arc<Portal>, user: CurrentUser, after: i64, patterns: Vec<String>) -> impl Stream<Item = Event> {
    let latest = portal.events.subscribe();
    let state = (latest, after, Vec::new().into_iter());
    stream::unfold(state, move |(mut latest, mut after, mut ready)| {
        let (portal, user, patterns) = (Arc::clone(&portal), user.clone(), patterns.clone());
        async move {
            loop {
                for event in ready.by_ref() {
                    let event: PortalEvent = event;
                    if is_wanted(&event, &patterns) {
                        let message = Event::default().id(event.number.to_string()).event("event").json_data(&event);
                        return Some((message.ok()?, (latest, after, ready)));
                    }
                }
                let reader = portal.access.still(&user).await.ok()??;
                if reader.user.role < Role::Admin {
                    return None;
                }
                let events = portal.events.after(after, STEP).await.ok()?;
                match events.last() {
                    Some(last) => after = last.number,
                    None => wait(&mut latest, after).await?,
                }
                ready = events.into_iter();
            }
        }
    })
}

/// Waits for a newer event, but not longer than until the reader is checked again.
async fn wait(latest: &mut watch::Receiver<i64>, after: i64) -> Option<()> {
    match tokio::time::timeout(ACCESS_CHECK_INTERVAL, latest.wait_for(|latest| after < *latest)).await {
        Ok(Err(_)) => None,
        Ok(Ok(_)) | Err(_) => Some(()),
    }
}
