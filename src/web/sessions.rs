//! Sessions over REST: what `/api/v1/sessions` and `/api/v1/admission` take and answer.
//! The pages of sessions are in `home`, `start_form` and `show`; both call the same service.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    error::{Accepted, Created, Error, Problem, Result},
    extract::{CurrentUser, Id, IdempotencyKey, Json, Query},
    log,
    paging::{Listed, Paging, id_asked},
    streams::{Mark, Subject, follow_events, sse_for},
};
use crate::{
    admission::Rehearsal,
    db::{admit::Verdict, sessions::Filter},
    model::{EndReason, Gpu, Resources, Role, Session, SessionId, SessionState, Timestamp, quota::Reason},
    sessions::StartRequest,
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
    /// Environment modules that are loaded before it starts.
    pub modules: Vec<String>,
    pub working_directory: Option<String>,
    /// The group that it is charged to, as it was called then.
    pub group: Option<String>,
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
    /// Since when it waits, while it does.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub waiting_since: Option<Timestamp>,
    /// When it begins at the latest, where it waits for room and that can be told.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub estimated_start: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub started_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub ready_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub opened_at: Option<Timestamp>,
    /// When it will be stopped if nobody, or nothing, uses it until then.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub idle_stops_at: Option<Timestamp>,
    /// Why it would be: `idle.unused`, `idle.gpus` or `idle.unopened`, with the seconds that have passed and those
    /// that may, and whose rule it is.
    pub idle_reason: Option<Reason>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub last_activity_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub ended_at: Option<Timestamp>,
    /// An operator waits to hear since then whether its GPUs are still needed.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub asked_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    /// A sentence for people.
    pub detail: Option<String>,
}

impl SessionView {
    pub fn new(portal: &Portal, headers: &HeaderMap, session: Session) -> Self {
        let idle = portal.sessions.idle_deadline(&session);
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
            modules: session.spec.modules,
            working_directory: session.spec.working_directory,
            group: session.spec.group,
            backend: portal.sessions.scheduler.cluster().to_owned(),
            node: session.placement.map(|placement| placement.node),
            cluster: session.cluster,
            waiting_since: waiting_since(session.state, session.created_at),
            estimated_start: estimated_start(portal, session.id, session.state),
            created_at: session.created_at,
            started_at: session.started_at,
            ready_at: session.ready_at,
            expires_at: session.expires_at,
            opened_at: session.opened_at,
            idle_stops_at: idle.as_ref().map(|idle| idle.at),
            idle_reason: idle.and_then(|idle| idle.reason(portal.clock.now())),
            last_activity_at: session.last_activity_at,
            ended_at: session.ended_at,
            asked_at: session.asked.map(|asked| asked.at),
            exit_code: session.exit_code,
            detail: session.detail,
        }
    }
}

/// Since when something waits, while it does.
pub(super) fn waiting_since(state: SessionState, asked_at: Timestamp) -> Option<Timestamp> {
    (state == SessionState::Queued).then_some(asked_at)
}

/// When it begins at the latest, as the last look at those who wait found.
pub(super) fn estimated_start(portal: &Portal, id: SessionId, state: SessionState) -> Option<Timestamp> {
    let found = portal.sessions.live(id).estimated_start?;
    (state == SessionState::Queued && portal.clock.now() < found).then_some(found)
}

/// `?state=&owner=` and more of the list, with paging.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParameters {
    #[param(value_type = Option<String>)]
    state: Option<String>,
    /// Operators: somebody's name, or `*` for everybody.
    owner: Option<String>,
    /// The app's name.
    app: Option<String>,
    /// What the id begins or ends with.
    id: Option<String>,
    /// `idle`, `time_limit`, `out_of_memory` …
    #[param(value_type = Option<String>)]
    end_reason: Option<String>,
    /// Those that ended from this moment on.
    #[param(value_type = Option<String>, format = DateTime)]
    ended_from: Option<Timestamp>,
    /// Those that ended before this moment.
    #[param(value_type = Option<String>, format = DateTime)]
    ended_before: Option<Timestamp>,
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
) -> Result<Listed<SessionView>> {
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
    let end_reason = match parameters.end_reason.as_deref() {
        None | Some("") => None,
        Some(word) => {
            let unknown = |_err| Error::field("end_reason", "invalid_value", "This is no reason of an end.");
            Some(word.parse().map_err(unknown)?)
        }
    };
    let id = id_asked(parameters.id.as_deref())?;
    let filter = Filter {
        owner,
        id: id.as_ref(),
        state,
        app: parameters.app.as_deref().filter(|app| !app.is_empty()),
        end_reason,
        ended_from: parameters.ended_from,
        ended_before: parameters.ended_before,
        before: paging.after()?,
        limit: limit + 1,
        live_only: false,
        sessions_only: true,
    };
    let found = portal.sessions.list(filter).await?;
    let views = found.into_iter().map(|session| SessionView::new(&portal, &headers, session)).collect();
    Ok(Listed::new(views, limit, |view: &SessionView| view.id))
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
    let session = portal.sessions.start(user.actor(), request, key.as_deref()).await?;
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
    let session = portal.sessions.find(user.actor(), id).await?;
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
    let session = portal.sessions.rename(user.actor(), id, &change.name).await?;
    Ok(axum::Json(SessionView::new(&portal, &headers, session)))
}

/// Asks for its end; fine when it has ended already. An attempt of a job ends with its job, which is cancelled.
#[utoipa::path(delete, path = "/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses((status = 202, body = SessionView)))]
pub async fn stop(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<Accepted<SessionView>> {
    let actor = user.actor();
    let session = portal.sessions.find_workload(actor, id).await?;
    let session = match session.job {
        None => portal.sessions.stop(actor, id).await?,
        Some(attempt) => {
            let scopes = user.scopes().unwrap_or_default();
            if !scopes.is_empty() && scopes.iter().all(|scope| scope != "jobs") {
                return Err(Error::forbidden("This is an attempt of a job: cancelling it needs the scope `jobs`."));
            }
            // An earlier attempt than the latest has ended already.
            if portal.jobs.find(actor, attempt.job).await?.latest.id == id {
                portal.jobs.cancel(actor, attempt.job).await?;
            }
            portal.sessions.find_workload(actor, id).await?
        }
    };
    Ok(Accepted(SessionView::new(&portal, &headers, session)))
}

/// For how long.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Seconds {
    seconds: Option<i64>,
}

/// Asks for more time: `seconds`, or as much as one extension adds. Hours of the period and, where the site has it
/// so, others who wait count.
#[utoipa::path(post, path = "/sessions/{id}/extend", tag = "sessions", params(("id" = String, Path)),
    request_body = Seconds, responses((status = 200, body = SessionView),
        (status = 409, description = "It does not run, or more time is over a limit: the reasons say which", body = Problem)))]
pub async fn extend(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
    Json(Seconds { seconds }): Json<Seconds>,
) -> Result<axum::Json<SessionView>> {
    let session = portal.sessions.extend(user.actor(), id, seconds).await?;
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
    let session = portal.sessions.keep(user.actor(), id, seconds).await?;
    Ok(axum::Json(SessionView::new(&portal, &headers, session)))
}

/// Which part of the log: all that is kept where nothing is said.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogParameters {
    /// At most so many lines, the last ones.
    #[param(minimum = 1, maximum = 10_000)]
    tail: Option<i64>,
    /// What comes behind so many bytes, counted from the first that was ever written: the header `Log-End` of the
    /// answer before.
    offset: Option<u64>,
}

/// The log as plain text, or, for `Accept: text/event-stream`, followed as it grows; `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/sessions/{id}/log", tag = "sessions", params(("id" = String, Path), LogParameters),
    responses((status = 200, content_type = "text/plain", body = String),
        (status = 429, description = "Too many of your event streams are open", body = Problem)))]
pub async fn log(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
    Query(LogParameters { tail, offset }): Query<LogParameters>,
) -> Result<Response> {
    log::answer(portal, user, &headers, log::Whose::Session(id), log::Part { tail, offset, attempt: None }).await
}

/// What happened to a session, as server-sent events with ids; `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/sessions/{id}/events", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = 429, description = "Too many of your event streams are open", body = Problem)))]
pub async fn events(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<Response> {
    portal.sessions.find(user.actor(), id).await?;
    let reader = user.id();
    sse_for(&portal, reader, follow_events(portal.clone(), user, Subject::Session(id), Mark::resumed(&headers)))
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
    let rehearsal = portal.sessions.rehearse(user.actor(), request).await?;
    Ok(axum::Json(AdmissionAnswer::new(rehearsal, portal.clock.now())))
}

impl AdmissionAnswer {
    pub fn new(Rehearsal { verdict, estimated_start }: Rehearsal, now: Timestamp) -> Self {
        match verdict {
            Verdict::Admit { .. } => Self { outcome: "admit", reasons: Vec::new(), estimated_start: Some(now) },
            Verdict::Wait(reasons) => Self { outcome: "wait", reasons, estimated_start },
            Verdict::Refuse(reasons) => Self { outcome: "refuse", reasons, estimated_start: None },
        }
    }
}
