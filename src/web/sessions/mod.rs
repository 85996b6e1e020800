//! Sessions over REST: what `/api/v1/sessions` and `/api/v1/admission` take and answer.
//! Their pages are `list`, `show` and the form in `form`, drawn with `cards`; all call the same service.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub(super) mod board;
pub(super) mod cards;
mod faults;
pub(super) mod form;
pub(super) mod hardware;
pub(super) mod list;
pub(super) mod show;

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        error::{Accepted, Created, Error, Problem, Result},
        extract::{CurrentUser, Id, IdempotencyKey, Json, Query},
        paging::{Listed, Paging, id_asked, owner_asked},
        sorting::Sorting,
        streams::{EventId, Subject, follow_events, sse_for},
    },
    log,
};
use crate::{
    admission::DryRun,
    db::{
        admit::Verdict,
        sessions::{Filter, SORT_COLUMNS},
    },
    model::{
        EndReason, Gpu, Outcome, Resources, Session, SessionId, SessionState, SlurmOptions, Timestamp, quota::Reason,
    },
    sessions::StartRequest,
};

/// A session, as the API shows it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub struct SessionView {
    /// The id of the session.
    #[schema(value_type = String, format = "uuid")]
    pub id: SessionId,
    /// The user name of the owner.
    pub owner: String,
    /// The name of the app.
    pub app: String,
    /// The name of the session.
    pub name: String,
    pub state: SessionState,
    /// Why it is pending, or why it was rejected.
    pub reasons: Vec<Reason>,
    /// How it ended; null before the end.
    pub end_reason: Option<EndReason>,
    /// How it turned out; null before the end.
    pub outcome: Option<Outcome>,
    /// Since when the scheduler has not reported its state; null if the state is known.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub unknown_since: Option<Timestamp>,
    /// Since when its batch system has it suspended. Its time limit is paused meanwhile.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub suspended_since: Option<Timestamp>,
    pub resources: Resources,
    /// The allocated GPUs.
    pub gpus: Vec<Gpu>,
    /// The named size, if it was requested by name.
    pub profile: Option<String>,
    /// The software environment.
    pub environment: Option<String>,
    /// The container image that it runs in, instead of an environment.
    pub image: Option<String>,
    /// The digest of that image; null before the start.
    pub image_digest: Option<String>,
    /// Environment modules that are loaded before it starts.
    pub modules: Vec<String>,
    pub working_directory: Option<String>,
    /// The group that it is charged to, with the group's name at that time.
    pub group: Option<String>,
    /// What was chosen of the Slurm cluster; null if nothing was.
    pub slurm: Option<SlurmOptions>,
    pub cluster: String,
    /// The node that it runs on.
    pub node: Option<String>,
    /// The cluster that the portal uses now.
    pub backend: String,
    /// Whether its app listens on a port that other users of the node can reach.
    pub visible_on_node: bool,
    /// The path of the app for programs with a token, below the portal's own address.
    pub url: String,
    /// The address of the app for a browser.
    pub open_url: String,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    /// Since when it has been pending; null in other states.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub waiting_since: Option<Timestamp>,
    /// The latest time that it is expected to start. Null if it is not pending or if the time is unknown.
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
    /// When it will be stopped if it is not used until then.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub idle_stops_at: Option<Timestamp>,
    /// Why it would be stopped: `idle.unused`, `idle.gpus` or `idle.unopened`, with the elapsed and the permitted
    /// seconds, and where the rule comes from.
    pub idle_reason: Option<Reason>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub last_activity_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub ended_at: Option<Timestamp>,
    /// Its GPUs that have been idle for a minute or longer. Null if there are none.
    pub idle_gpus: Option<hardware::IdleGpus>,
    /// When an operator asked whether its GPUs are still needed. Null if there is no open question.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub asked_at: Option<Timestamp>,
    pub exit_code: Option<i64>,
    /// More about the current state or the end, in one sentence.
    pub detail: Option<String>,
}

impl SessionView {
    pub fn new(portal: &Portal, headers: &HeaderMap, session: Session) -> Self {
        let idle = portal.sessions.idle_deadline(&session);
        let idle_gpus = hardware::IdleGpus::of(portal, &session);
        let outcome = session.outcome();
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
            outcome,
            unknown_since: session.unknown_since,
            suspended_since: session.suspended_since,
            resources: session.spec.resources,
            gpus: session.gpus,
            profile: session.spec.profile,
            environment: session.spec.environment,
            image: session.spec.image,
            image_digest: session.image_digest,
            modules: session.spec.modules,
            working_directory: session.spec.working_directory,
            group: session.spec.group,
            slurm: Some(session.spec.slurm).filter(|slurm| !slurm.is_empty()),
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
            idle_gpus,
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
    /// `queued`, `starting`, `running`, `stopping` or `ended`.
    #[param(value_type = Option<String>)]
    state: Option<String>,
    /// For operators: a user name, or `*` for all users. By default, your own sessions are listed.
    owner: Option<String>,
    /// The name of an app.
    app: Option<String>,
    /// The beginning or the end of the id.
    id: Option<String>,
    /// A part of the name.
    search: Option<String>,
    /// `idle`, `time_limit`, `out_of_memory` …
    #[param(value_type = Option<String>)]
    end_reason: Option<String>,
    /// Only sessions that ended at or after this time.
    #[param(value_type = Option<String>, format = DateTime)]
    ended_from: Option<Timestamp>,
    /// Only sessions that ended before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    ended_before: Option<Timestamp>,
    /// `created`, `name`, `program`, `started` or `gpus`, with a minus in front for the opposite order; by default
    /// `-created`.
    #[param(example = "-created")]
    sort: Option<String>,
    /// Maximum number of items to return, 1 to 500. The default is 50.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Lists sessions, newest first, including ended ones.
///
/// By default, only your own sessions are listed.
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
            let expected = "Must be queued, starting, running, stopping or ended.";
            Some(word.parse().map_err(|_err| Error::field("state", "invalid_value", expected))?)
        }
    };
    let owner = owner_asked(&portal, &user, parameters.owner.as_deref(), "sessions").await?;
    let end_reason = match parameters.end_reason.as_deref() {
        None | Some("") => None,
        Some(word) => {
            let unknown = |_err| Error::field("end_reason", "invalid_value", "This is not a valid end reason.");
            Some(word.parse().map_err(unknown)?)
        }
    };
    let id = id_asked(parameters.id.as_deref())?;
    let sorting = Sorting::asked(&SORT_COLUMNS, parameters.sort.as_deref())?;
    let position = sorting.position(&paging)?;
    let filter = Filter {
        owner,
        id: id.as_ref(),
        find: parameters.search.as_deref().unwrap_or_default(),
        state,
        app: parameters.app.as_deref().filter(|app| !app.is_empty()),
        end_reason,
        ended_from: parameters.ended_from,
        ended_before: parameters.ended_before,
        sort: sorting.sort(&position),
        before: position.before,
        limit: limit + 1,
        live_only: false,
        sessions_only: true,
    };
    let found = portal.sessions.list_sorted(filter).await?;
    let views = found.into_iter().map(|(session, value)| (SessionView::new(&portal, &headers, session), value));
    Ok(sorting.listed(views.collect(), limit, |view: &SessionView| view.id))
}

/// Requests a session.
///
/// It starts as soon as the quota and the free resources allow.
#[utoipa::path(post, path = "/sessions", tag = "sessions", request_body = StartRequest,
    params(("Idempotency-Key" = Option<String>, Header,
        description = "Requests that repeat a key return the first result.")),
    responses((status = 201, body = SessionView)))]
pub async fn start(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    IdempotencyKey(key): IdempotencyKey,
    Json(request): Json<StartRequest>,
) -> Result<Created<SessionView>> {
    let request = portal.presets.complete_session(&user.user, request).await?;
    let session = portal.sessions.start(user.actor(), request, key.as_deref()).await?;
    let address = format!("/api/v1/sessions/{}", session.id);
    Ok(Created(address, SessionView::new(&portal, &headers, session)))
}

/// Returns a session.
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

/// A change of a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The new name.
    name: String,
}

/// Renames a session.
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

/// Stops a session.
///
/// Succeeds if it has already ended. If the id is an attempt of a job, cancels the job.
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
                return Err(Error::forbidden(
                    "This is an attempt of a job. A token needs the scope `jobs` to cancel it.",
                ));
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

/// A duration.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Seconds {
    /// The duration in seconds.
    seconds: Option<i64>,
}

/// Extends a session by `seconds`, or by the length of one extension.
///
/// The limits on hours per period apply and, if the site is configured that way, pending requests of other users.
#[utoipa::path(post, path = "/sessions/{id}/extend", tag = "sessions", params(("id" = String, Path)),
    request_body = Seconds, responses((status = 200, body = SessionView),
        (status = 409, description = "It is not running, or more time would exceed a limit; the reasons name \
                                      it", body = Problem)))]
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

/// Exempts a session from the idle timeout for a time.
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

/// Selects a part of the log. By default, everything that is kept.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogParameters {
    /// Maximum number of lines to return, counted from the end.
    #[param(minimum = 1, maximum = 10_000)]
    tail: Option<i64>,
    /// Only what follows this offset in bytes, counted from the first byte ever written: the header `Log-End` of the
    /// previous response.
    offset: Option<u64>,
}

/// Returns the log as plain text.
///
/// With `Accept: text/event-stream`, follows it as it grows; `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/sessions/{id}/log", tag = "sessions", params(("id" = String, Path), LogParameters),
    responses((status = 200, content_type = "text/plain", body = String),
        (status = 429, description = "You have too many event streams open", body = Problem)))]
pub async fn log(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
    Query(LogParameters { tail, offset }): Query<LogParameters>,
) -> Result<Response> {
    log::answer(portal, user, &headers, log::LogSource::Session(id), log::LogPart { tail, offset, attempt: None }).await
}

/// Streams the events of a session as server-sent events with ids.
///
/// `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/sessions/{id}/events", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = 429, description = "You have too many event streams open", body = Problem)))]
pub async fn events(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<Response> {
    portal.sessions.find(user.actor(), id).await?;
    let reader = user.id();
    sse_for(&portal, reader, follow_events(portal.clone(), user, Subject::Session(id), EventId::resumed(&headers)))
}

/// The decision that a request would get.
#[derive(Debug, Serialize, ToSchema)]
pub struct AdmissionAnswer {
    /// `admit`, `wait` or `refuse`.
    pub outcome: &'static str,
    /// Why it would wait or be rejected.
    pub reasons: Vec<Reason>,
    /// The latest time that it is expected to start; null if unknown.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub estimated_start: Option<Timestamp>,
}

/// Returns whether a request would start now, wait or be rejected.
///
/// A dry run: nothing is stored.
#[utoipa::path(post, path = "/admission", tag = "sessions", request_body = StartRequest,
    responses((status = 200, body = AdmissionAnswer)))]
pub async fn admission(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(request): Json<StartRequest>,
) -> Result<axum::Json<AdmissionAnswer>> {
    let request = portal.presets.complete_session(&user.user, request).await?;
    let dry_run = portal.sessions.rehearse(user.actor(), request).await?;
    Ok(axum::Json(AdmissionAnswer::new(dry_run, portal.clock.now())))
}

impl AdmissionAnswer {
    pub fn new(DryRun { verdict, estimated_start }: DryRun, now: Timestamp) -> Self {
        match verdict {
            Verdict::Admit { .. } => Self { outcome: "admit", reasons: Vec::new(), estimated_start: Some(now) },
            Verdict::Wait(reasons) => Self { outcome: "wait", reasons, estimated_start },
            Verdict::Refuse(reasons) => Self { outcome: "refuse", reasons, estimated_start: None },
        }
    }
}
