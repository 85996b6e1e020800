//! Sessions over REST: what `/api/v1/sessions` and `/api/v1/admission` take and answer.
//! The pages of sessions are in `home`, `start_form` and `show`; both call the same service.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    error::{Accepted, Created, Error, Result},
    extract::{CurrentUser, Id, IdempotencyKey, Json, Listed, Paging, Query},
};
use crate::{
    db::{admit::Verdict, sessions::Filter},
    model::{EndReason, Gpu, Resources, Role, Session, SessionId, SessionState, Timestamp, quota::Reason},
    sessions::{Actor, Error as SessionError, StartRequest},
};

/// A session, as the API shows it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub struct SessionView {
    #[schema(value_type = String, format = "uuid")]
    pub id: SessionId,
    /// The owner's name.
    pub owner: String,
    pub app: String,
    pub name: String,
    pub state: SessionState,
    /// Why it waits, or why it was refused.
    pub reasons: Vec<Reason>,
    pub end_reason: Option<EndReason>,
    /// Since when nobody can be asked about it.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub unknown_since: Option<Timestamp>,
    pub resources: Resources,
    pub gpus: Vec<Gpu>,
    pub profile: Option<String>,
    pub environment: Option<String>,
    pub working_directory: Option<String>,
    pub cluster: String,
    pub node: Option<String>,
    pub backend: String,
    /// Its app listens on a port, which everybody on its node can reach.
    pub visible_on_node: bool,
    /// For programs with a token: below the portal's own address.
    pub url: String,
    /// For a person's browser.
    pub open_url: String,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub started_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub ready_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub idle_stops_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub last_activity_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub ended_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    /// A sentence for people.
    pub detail: Option<String>,
}

impl SessionView {
    pub fn new(portal: &Portal, headers: &HeaderMap, session: Session) -> Self {
        let idle_stops_at = portal.sessions.live(session.id).idle_stops_at;
        Self {
            visible_on_node: portal.sessions.port(&session).is_some(),
            url: format!("/s/{}/", session.id),
            open_url: portal.open_url(headers, session.id),
            id: session.id,
            owner: session.owner_name,
            app: session.app,
            name: session.name,
            state: session.state,
            reasons: session.reasons,
            end_reason: session.end_reason,
            unknown_since: session.unknown_since,
            resources: session.spec.resources,
            gpus: session.gpus,
            profile: session.spec.profile,
            environment: session.spec.environment,
            working_directory: session.spec.working_directory,
            backend: portal.sessions.scheduler.cluster().to_owned(),
            node: session.placement.map(|placement| placement.node),
            cluster: session.cluster,
            created_at: session.created_at,
            started_at: session.started_at,
            ready_at: session.ready_at,
            expires_at: session.expires_at,
            idle_stops_at: idle_stops_at.filter(|_| session.state == SessionState::Running),
            last_activity_at: session.last_activity_at,
            ended_at: session.ended_at,
            exit_code: session.exit_code,
            detail: session.detail,
        }
    }
}

/// `?state=&owner=` of the list, with paging.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParameters {
    #[param(value_type = Option<String>)]
    state: Option<String>,
    /// Operators: somebody's name, or `*` for everybody.
    owner: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

/// One's own sessions, newest first, ended ones included.
#[utoipa::path(get, path = "/sessions", tag = "sessions", params(ListParameters),
    responses((status = 200, body = Listed<SessionView>)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Query(parameters): Query<ListParameters>,
) -> Result<axum::Json<Listed<SessionView>>> {
    let paging = Paging::new(parameters.limit, parameters.cursor);
    let limit = paging.limit()?;
    let state = match parameters.state.as_deref() {
        None | Some("") => None,
        Some(word) => {
            let expected = "One of queued, starting, running, stopping, ended.";
            Some(word.parse().map_err(|_err| Error::field("state", "invalid_value", expected))?)
        }
    };
    let owner = match parameters.owner.as_deref() {
        None | Some("") => Some(user.id()),
        Some(name) if name == user.user.name.as_str() => Some(user.id()),
        Some(_) if user.user.role < Role::Operator => {
            return Err(Error::forbidden("Only operators see other people's sessions."));
        }
        Some("*") => None,
        Some(name) => Some(portal.db.find_user_by_name(name).await?.ok_or_else(Error::not_found)?.user.id),
    };
    let filter = Filter { owner, state, live_only: false, before: paging.after()?, limit: limit + 1 };
    let found = portal.sessions.list(filter).await?;
    let views = found.into_iter().map(|session| SessionView::new(&portal, &headers, session)).collect();
    Ok(axum::Json(Listed::new(views, limit, |view: &SessionView| view.id)))
}

/// Asks for a session. It starts as soon as the quota and the machine allow.
#[utoipa::path(post, path = "/sessions", tag = "sessions", request_body = StartRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked twice with one key, it is made once.")),
    responses((status = 201, body = SessionView)))]
pub async fn start(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    IdempotencyKey(key): IdempotencyKey,
    Json(request): Json<StartRequest>,
) -> Result<Created<SessionView>> {
    let session = portal.sessions.start(Actor { user: &user.user }, request, key.as_deref()).await?;
    let address = format!("/api/v1/sessions/{}", session.id);
    Ok(Created(address, SessionView::new(&portal, &headers, session)))
}

#[utoipa::path(get, path = "/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionView)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<axum::Json<SessionView>> {
    let session = portal.sessions.find(Actor { user: &user.user }, id).await?;
    Ok(axum::Json(SessionView::new(&portal, &headers, session)))
}

/// What can be changed of a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    name: String,
}

#[utoipa::path(patch, path = "/sessions/{id}", tag = "sessions", params(("id" = String, Path)), request_body = Rename,
    responses((status = 200, body = SessionView)))]
pub async fn rename(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
    Json(change): Json<Rename>,
) -> Result<axum::Json<SessionView>> {
    let session = portal.sessions.rename(Actor { user: &user.user }, id, &change.name).await?;
    Ok(axum::Json(SessionView::new(&portal, &headers, session)))
}

/// Asks for its end; fine when it has ended already.
#[utoipa::path(delete, path = "/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses((status = 202, body = SessionView)))]
pub async fn stop(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<Accepted<SessionView>> {
    let session = portal.sessions.stop(Actor { user: &user.user }, id).await?;
    Ok(Accepted(SessionView::new(&portal, &headers, session)))
}

/// For how long.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Seconds {
    seconds: Option<i64>,
}

#[utoipa::path(post, path = "/sessions/{id}/extend", tag = "sessions", params(("id" = String, Path)),
    request_body = Seconds, responses((status = 200, body = SessionView)))]
pub async fn extend(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
    Json(Seconds { seconds }): Json<Seconds>,
) -> Result<axum::Json<SessionView>> {
    let session = portal.sessions.extend(Actor { user: &user.user }, id, seconds).await?;
    Ok(axum::Json(SessionView::new(&portal, &headers, session)))
}

/// Does not stop it for idleness for so long.
#[utoipa::path(post, path = "/sessions/{id}/keep", tag = "sessions", params(("id" = String, Path)),
    request_body = Seconds, responses((status = 200, body = SessionView)))]
pub async fn keep(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
    Json(Seconds { seconds }): Json<Seconds>,
) -> Result<axum::Json<SessionView>> {
    let session = portal.sessions.keep(Actor { user: &user.user }, id, seconds).await?;
    Ok(axum::Json(SessionView::new(&portal, &headers, session)))
}

/// `?tail=` lines of the log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogParameters {
    /// At most so many lines, the last ones.
    #[param(minimum = 1, maximum = 10_000, default = 200)]
    tail: Option<i64>,
}

/// The most that is read of a log (bytes).
const LOG_WINDOW: u64 = 1024 * 1024;

/// The end of the log as plain text, or, for `Accept: text/event-stream`, followed as it grows.
#[utoipa::path(get, path = "/sessions/{id}/log", tag = "sessions", params(("id" = String, Path), LogParameters),
    responses((status = 200, content_type = "text/plain", body = String)))]
pub async fn log(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
    Query(parameters): Query<LogParameters>,
) -> Result<Response> {
    let lines = match parameters.tail.unwrap_or(200) {
        lines @ 1..=10_000 => usize::try_from(lines).unwrap_or(usize::MAX),
        _ => return Err(Error::field("tail", "out_of_range", "Between 1 and 10000.")),
    };
    let text = portal.sessions.log_tail(Actor { user: &user.user }, id, LOG_WINDOW).await?;
    let tail = last_lines(&text, lines).to_vec();
    if !wants_events(&headers) {
        return Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], tail).into_response());
    }
    Ok(sse(portal.stopping.clone(), follow_log(portal, user, id, tail)).into_response())
}

/// What happened to a session, as server-sent events with ids; `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/sessions/{id}/events", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, content_type = "text/event-stream", body = String)))]
pub async fn events(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<Response> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0);
    portal.sessions.find(Actor { user: &user.user }, id).await?;
    Ok(sse(portal.stopping.clone(), follow_events(portal, user, id, last)).into_response())
}

/// What would be decided about a request.
#[derive(Debug, Serialize, ToSchema)]
pub struct AdmissionAnswer {
    /// `admit`, `wait` or `refuse`.
    pub outcome: &'static str,
    pub reasons: Vec<Reason>,
    /// Where it can be told; null while nobody knows.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub estimated_start: Option<Timestamp>,
}

/// A dry run: nothing is written.
#[utoipa::path(post, path = "/admission", tag = "sessions", request_body = StartRequest,
    responses((status = 200, body = AdmissionAnswer)))]
pub async fn admission(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(request): Json<StartRequest>,
) -> Result<axum::Json<AdmissionAnswer>> {
    let now = portal.clock.now();
    Ok(axum::Json(match portal.sessions.rehearse(Actor { user: &user.user }, request).await? {
        Verdict::Admit { .. } => AdmissionAnswer { outcome: "admit", reasons: Vec::new(), estimated_start: Some(now) },
        Verdict::Wait(reasons) => AdmissionAnswer { outcome: "wait", reasons, estimated_start: None },
        Verdict::Refuse(reasons) => AdmissionAnswer { outcome: "refuse", reasons, estimated_start: None },
    }))
}

impl From<SessionError> for Error {
    fn from(err: SessionError) -> Self {
        match err {
            SessionError::NotFound => Self::not_found(),
            SessionError::Invalid(faults) => Self::invalid(faults),
            SessionError::Refused(reasons) => Self::over_quota(reasons),
            SessionError::Conflict(sentence) => Self::conflict(capital(&sentence)),
            SessionError::Scheduler(err) => err.into(),
            SessionError::Db(err) => err.into(),
        }
    }
}

impl From<crate::scheduler::Error> for Error {
    fn from(err: crate::scheduler::Error) -> Self {
        use crate::scheduler::Error as Scheduler;
        match err {
            Scheduler::Refused(sentence) => Self::conflict(capital(&sentence)),
            Scheduler::Unavailable(_) => {
                Self::outage("The scheduler does not answer right now. Try again in a moment.", 5, err)
            }
            Scheduler::Io { .. } => Self::internal(err),
        }
    }
}

/// A sentence of a service, as a client reads it.
pub(super) fn capital(sentence: &str) -> String {
    let mut characters = sentence.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let end = if sentence.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{end}", characters.as_str())
}

fn wants_events(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

/// A stream of events; it ends with the portal, which does not wait for those who listen.
pub(super) fn sse<S>(stopping: CancellationToken, stream: S) -> Sse<impl Stream<Item = Result<Event, Infallible>>>
where
    S: Stream<Item = Event> + Send + 'static,
{
    // Reverse proxies close what is silent for a minute or less.
    let stream = stream.take_until(stopping.cancelled_owned());
    Sse::new(stream.map(Ok)).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}

/// The last `lines` lines.
fn last_lines(text: &[u8], lines: usize) -> &[u8] {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let start = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').nth(lines.saturating_sub(1));
    start.map_or(text, |(at, _)| &text[at + 1..])
}

/// How often a followed log is looked at; files on network mounts do not tell by themselves.
const LOG_PERIOD: Duration = Duration::from_secs(1);

fn follow_log(portal: Arc<Portal>, user: CurrentUser, id: SessionId, tail: Vec<u8>) -> impl Stream<Item = Event> {
    let first = futures_util::stream::once({
        let tail = tail.clone();
        async move { log_event(&tail) }
    });
    let rest = futures_util::stream::unfold((tail, false), move |(seen, over)| {
        let (portal, user) = (Arc::clone(&portal), user.clone());
        async move {
            if over {
                return None;
            }
            loop {
                tokio::time::sleep(LOG_PERIOD).await;
                let actor = Actor { user: &user.user };
                // Access may have ended meanwhile.
                if !matches!(portal.access.still(&user).await, Ok(Some(_))) {
                    return None;
                }
                let session = portal.sessions.find(actor, id).await.ok()?;
                let text = portal.sessions.log_tail(actor, id, LOG_WINDOW).await.ok()?;
                let news = grown(&seen, &text).to_vec();
                let ended = !session.state.is_live();
                if !news.is_empty() {
                    return Some((log_event(&news), (text, ended)));
                }
                if ended {
                    return Some((Event::default().event("end").data("ended"), (text, true)));
                }
            }
        }
    });
    first.chain(rest)
}

fn log_event(bytes: &[u8]) -> Event {
    // A bare carriage return ends a field of the stream; progress bars are full of them.
    Event::default().event("log").json_data(String::from_utf8_lossy(bytes)).unwrap_or_default()
}

/// What of `now` comes after `seen`: a log grows at its end and may lose its beginning.
fn grown<'a>(seen: &[u8], now: &'a [u8]) -> &'a [u8] {
    let mark = &seen[seen.len().saturating_sub(256)..];
    if mark.is_empty() {
        return now;
    }
    let found = now.windows(mark.len()).rposition(|window| window == mark);
    found.map_or(now, |at| &now[at + mark.len()..])
}

fn follow_events(portal: Arc<Portal>, user: CurrentUser, id: SessionId, last: i64) -> impl Stream<Item = Event> {
    let changes = portal.sessions.subscribe();
    let state = (changes, last, Vec::new().into_iter(), false);
    futures_util::stream::unfold(state, move |(mut changes, mut last, mut ready, mut over)| {
        let (portal, user) = (Arc::clone(&portal), user.clone());
        async move {
            loop {
                if let Some(happened) = ready.next() {
                    let happened: crate::db::sessions::Event = happened;
                    last = happened.number;
                    let event =
                        Event::default().id(last.to_string()).event("state").json_data(EventView::new(&happened));
                    return Some((event.unwrap_or_default(), (changes, last, ready, over)));
                }
                if over || !matches!(portal.access.still(&user).await, Ok(Some(_))) {
                    return None;
                }
                let actor = Actor { user: &user.user };
                let news = portal.sessions.events(actor, id, last).await.ok()?;
                over = news.last().is_some_and(|event| event.state == SessionState::Ended);
                if news.is_empty() {
                    let ended = portal.sessions.find(actor, id).await.ok()?.state == SessionState::Ended;
                    if ended {
                        return None;
                    }
                    // A missed change is caught up with at the next one or after a while.
                    let wait = async {
                        while let Ok(change) = changes.recv().await {
                            if change.session == id {
                                break;
                            }
                        }
                    };
                    let _ = tokio::time::timeout(Duration::from_secs(15), wait).await;
                }
                ready = news.into_iter();
            }
        }
    })
}

/// One line of history, as the stream tells it.
#[derive(Serialize)]
struct EventView<'a> {
    number: i64,
    at: Timestamp,
    state: SessionState,
    message: &'a str,
}

impl<'a> EventView<'a> {
    fn new(event: &'a crate::db::sessions::Event) -> Self {
        Self { number: event.number, at: event.at, state: event.state, message: &event.message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails() {
        for (text, lines, tail) in
            [("a\nb\nc\n", 2, "b\nc\n"), ("a\nb", 1, "b"), ("a", 5, "a"), ("", 5, ""), ("a\n\n", 1, "\n")]
        {
            assert_eq!(last_lines(text.as_bytes(), lines), tail.as_bytes(), "{text:?}");
        }
        for (seen, now, news) in [("", "ab", "ab"), ("ab", "abcd", "cd"), ("ab", "ab", ""), ("xy", "new", "new")] {
            assert_eq!(grown(seen.as_bytes(), now.as_bytes()), news.as_bytes());
        }
    }
}
