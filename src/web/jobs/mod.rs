//! Jobs over REST: what `/api/v1/jobs` takes and answers. The pages of jobs are in `pages`; both
//! call the same service.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub(super) mod form;
pub(super) mod hardware;
mod list;
mod order;
pub(super) mod pages;
pub(super) mod routes;
pub(in crate::web) mod several;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        error::{Accepted, Created, Error, Problem, Result},
        extract::{CurrentUser, Id, IdempotencyKey, Json, Query},
        paging::{Listed, Paging, id_asked},
        sorting::Sorting,
        streams::{EventId, Subject, follow_events, sse_for},
    },
    sessions::{AdmissionAnswer, estimated_start, waiting_since},
};
use crate::{
    apps::base_url,
    db::jobs::{JobFilter, SHARED_SORT_COLUMNS},
    jobs::{Changes, JobRequest},
    model::{
        EndReason, Gpu, Job, JobId, Outcome, Resources, Role, SessionState, SlurmOptions, SweepId, Timestamp, UserId,
        hold::Prerequisite,
        job::{JobProgram, Visibility},
        quota::Reason,
    },
    sweeps::SweepRequest,
};

/// A job. Its state and its end are those of the latest attempt.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub struct JobView {
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// The user name of the owner.
    pub owner: String,
    pub name: String,
    pub state: SessionState,
    /// Why it is pending, or why it was rejected.
    pub reasons: Vec<Reason>,
    pub end_reason: Option<EndReason>,
    /// How it turned out; null before the end.
    pub outcome: Option<Outcome>,
    pub exit_code: Option<i64>,
    /// The number of the signal that ended it.
    pub signal: Option<i64>,
    /// Since when the scheduler has not reported its state; null if the state is known.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub unknown_since: Option<Timestamp>,
    /// Since when its batch system has it suspended. Its time limit is paused meanwhile.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub suspended_since: Option<Timestamp>,
    pub resources: Resources,
    pub gpus: Vec<Gpu>,
    pub profile: Option<String>,
    pub environment: Option<String>,
    /// The container image that it runs in, instead of an environment.
    pub image: Option<String>,
    /// The digest of that image for the latest attempt; null before its start.
    pub image_digest: Option<String>,
    /// Environment modules that are loaded before it starts.
    pub modules: Vec<String>,
    /// The group that it is charged to, with the group's name at that time.
    pub group: Option<String>,
    /// What was chosen of the Slurm cluster; null if nothing was.
    pub slurm: Option<SlurmOptions>,
    pub cluster: String,
    pub node: Option<String>,
    /// Number of the latest attempt, from 1.
    pub attempt: i64,
    /// Number of automatic retries that are left.
    pub retries_left: i64,
    /// Whether it is a helper job: the portal submitted it for its owner, to build a dataset, predict, preview a
    /// training, measure, export or import a model, or test GPUs.
    pub helper: bool,
    pub working_directory: Option<String>,
    pub log_directory: Option<String>,
    pub time_limit_seconds: i64,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    /// Since when its attempt has been pending; null in other states.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub waiting_since: Option<Timestamp>,
    /// When its program started.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub started_at: Option<Timestamp>,
    /// When it reaches its time limit.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub ended_at: Option<Timestamp>,
    /// Markdown.
    pub notes: String,
    pub tags: Vec<String>,
    pub starred: bool,
    pub visibility: Visibility,
    /// More about the current state or the end, in one sentence.
    pub detail: Option<String>,
    /// The sweep or array that it is a task of. This field and the following ones are not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<String>, format = "uuid")]
    pub sweep: Option<SweepId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub index: Option<i64>,
    /// The latest time that it is expected to start. Null if it is not pending or if the time is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<String>, format = "date-time")]
    pub estimated_start: Option<Timestamp>,
    /// The address of a terminal inside the running job, for its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub terminal_url: Option<String>,
    /// The command that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub command: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub script: Option<String>,
    /// The arguments of its script.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub arguments: Option<Vec<String>>,
    /// Whether it starts in the environment of its owner's login shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub login_shell: Option<bool>,
    /// Number of nodes. `resources` are those of all nodes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub nodes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub tasks_per_node: Option<i64>,
    /// Retry delay after a failure in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub retry_wait_seconds: Option<i64>,
    /// The jobs that it depends on. Only its owner sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub after: Option<Vec<Prerequisite>>,
    /// The environment variables. Only its owner sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub variables: Option<BTreeMap<String, String>>,
}

impl From<Job> for JobView {
    fn from(job: Job) -> Self {
        let outcome = job.latest.outcome();
        let latest = job.latest;
        let spec = latest.spec;
        Self {
            id: job.id,
            owner: job.owner_name,
            name: job.name,
            state: latest.state,
            reasons: latest.reasons,
            end_reason: latest.end_reason,
            outcome,
            exit_code: latest.exit_code,
            signal: latest.signal,
            unknown_since: latest.unknown_since,
            suspended_since: latest.suspended_since,
            resources: spec.resources,
            gpus: latest.gpus,
            profile: spec.profile,
            environment: spec.environment,
            image: spec.image,
            image_digest: latest.image_digest,
            modules: spec.modules,
            group: spec.group,
            slurm: Some(spec.slurm).filter(|slurm| !slurm.is_empty()),
            cluster: latest.cluster,
            node: latest.placement.map(|placement| placement.node),
            attempt: job.attempt,
            retries_left: job.retries_left,
            helper: job.is_helper,
            working_directory: spec.working_directory,
            log_directory: spec.log_directory,
            time_limit_seconds: spec.duration_seconds,
            created_at: job.created_at,
            waiting_since: waiting_since(latest.state, latest.created_at),
            started_at: latest.ready_at.or(latest.started_at),
            expires_at: latest.expires_at,
            ended_at: latest.ended_at,
            notes: job.notes,
            tags: job.tags,
            starred: job.starred,
            visibility: job.visibility,
            detail: latest.detail,
            sweep: None,
            index: None,
            estimated_start: None,
            terminal_url: None,
            command: None,
            script: None,
            arguments: None,
            login_shell: None,
            nodes: None,
            tasks_per_node: None,
            retry_wait_seconds: None,
            after: None,
            variables: None,
        }
    }
}

/// Where the owner of a job that runs opens a terminal inside it.
pub(super) fn terminal_url(job: &Job, reader: UserId) -> Option<String> {
    let runs = job.owner == reader && job.latest.state == SessionState::Running;
    runs.then(|| base_url(job.latest.id))
}

/// A job with what it runs.
async fn whole(portal: &Portal, reader: UserId, job: Job) -> Result<JobView> {
    let sweep = portal.sweeps.of_job(job.id).await?.map(|(sweep, _)| sweep.id);
    let task = portal.jobs.task(&job).await?;
    let index = task.part.map(|part| part.index);
    let (nodes, tasks_per_node) = (Some(task.shape.nodes), Some(task.shape.tasks_per_node));
    let is_own = job.owner == reader;
    let variables = is_own.then_some(task.variables);
    let after = is_own.then_some(task.after);
    let retry_wait_seconds = Some(task.retry_wait_seconds);
    let (command, script) = match task.work {
        JobProgram::Command(argv) => (Some(argv), None),
        JobProgram::Script(text) => (None, Some(text)),
    };
    Ok(JobView {
        sweep,
        index,
        estimated_start: estimated_start(portal, job.latest.id, job.latest.state),
        terminal_url: terminal_url(&job, reader),
        command,
        script,
        arguments: is_own.then_some(task.start.arguments).filter(|arguments| !arguments.is_empty()),
        login_shell: Some(task.start.login_shell).filter(|is_login| *is_login),
        nodes,
        tasks_per_node,
        retry_wait_seconds,
        after,
        variables,
        ..JobView::from(job)
    })
}

/// Filters and paging of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobParameters {
    #[param(value_type = Option<String>)]
    state: Option<String>,
    /// A user name, or `*` for all users. Only jobs that are visible to you are listed. By default, your own jobs are
    /// listed.
    owner: Option<String>,
    tag: Option<String>,
    /// The name of the group that the job is charged to.
    group: Option<String>,
    /// Only starred jobs.
    starred: Option<bool>,
    /// Part of the name.
    search: Option<String>,
    /// The beginning or the end of the id.
    id: Option<String>,
    /// Also helper jobs, which the portal submits for their owners, such as the builds of datasets. By default, they are
    /// listed only with `id` or `tag`.
    helpers: Option<bool>,
    /// `created`, `name`, `state`, `progress`, `started`, `duration` or `gpus`, with a minus in front for the opposite order;
    /// by default `-created`. `progress` lists running jobs only, at most the newest 500. In the order of `duration`, jobs that
    /// run are longer than all that have ended. Jobs of other users are sorted by `created` and `name` alone, except for
    /// operators.
    #[param(example = "-created")]
    sort: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

/// Lists jobs, newest first, including ended ones.
///
/// By default, only your own jobs are listed.
#[utoipa::path(get, path = "/jobs", tag = "jobs", params(JobParameters),
    responses((status = 200, body = Listed<JobView>)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<JobParameters>,
) -> Result<Listed<JobView>> {
    let paging = Paging::new(parameters.limit, parameters.cursor);
    let limit = paging.limit()?;
    let state = match parameters.state.as_deref() {
        None | Some("") => None,
        Some(word) => {
            let expected = "Must be queued, starting, running, stopping or ended.";
            Some(word.parse().map_err(|_err| Error::field("state", "invalid_value", expected))?)
        }
    };
    let id = id_asked(parameters.id.as_deref())?;
    let (reader, owner) = (reader(&user), owner_asked(&portal, &user, parameters.owner.as_deref()).await?);
    let columns: &[_] = if reader.is_some() && owner != reader { &SHARED_SORT_COLUMNS } else { &order::COLUMNS };
    let sorting = Sorting::asked(columns, parameters.sort.as_deref())?;
    let position = sorting.position(&paging)?;
    let filter = JobFilter {
        id: id.as_ref(),
        with_helpers: parameters.helpers == Some(true),
        reader,
        owner,
        state,
        live_only: false,
        tag: parameters.tag.as_deref().filter(|tag| !tag.is_empty()),
        group: parameters.group.as_deref().filter(|group| !group.is_empty()),
        starred: parameters.starred == Some(true),
        find: parameters.search.as_deref().unwrap_or_default(),
        limit: limit + 1,
        ..JobFilter::default()
    };
    let found = order::listed(&portal, filter, &sorting, &position).await?;
    let found = found.into_iter().map(|(job, value)| (JobView::from(job), value));
    Ok(sorting.listed(found.collect(), limit, |view: &JobView| view.id))
}

/// Who sees what is shared with them alone; operators see all.
fn reader(user: &CurrentUser) -> Option<UserId> {
    (user.user.role < Role::Operator).then(|| user.id())
}

/// Whose jobs are listed; `None` for everybody's.
async fn owner_asked(portal: &Portal, user: &CurrentUser, asked: Option<&str>) -> Result<Option<UserId>> {
    match asked {
        None | Some("") => Ok(Some(user.id())),
        Some(name) if name == user.user.name.as_str() => Ok(Some(user.id())),
        Some("*") => Ok(None),
        Some(name) => match portal.db.find_user_by_name(name).await? {
            Some(found) => Ok(Some(found.user.id)),
            None if Role::Operator <= user.user.role => Err(Error::not_found()),
            // Who there is is not told: nobody of that name shows anything.
            None => Ok(Some(UserId::new())),
        },
    }
}

/// Submits a job.
///
/// It starts as soon as the quota and the free resources allow.
#[utoipa::path(post, path = "/jobs", tag = "jobs", request_body = JobRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Requests that repeat a key return the first \
                                                                       result.")),
    responses((status = 201, body = JobView)))]
pub async fn submit(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    Json(request): Json<JobRequest>,
) -> Result<Created<JobView>> {
    let mut request = portal.presets.complete_job(&user.user, request).await?;
    let job = match request.take_array(portal.sessions.scheduler.has_queue()) {
        None => portal.jobs.submit(user.actor(), request, key.as_deref()).await?,
        Some(array) => {
            let many = SweepRequest { job: request, array: Some(array), ..SweepRequest::default() };
            let sweep = portal.sweeps.submit(user.actor(), many, key.as_deref()).await?;
            let first = portal.sweeps.job_at(&sweep, 0).await?;
            // Where nothing may wait now, the first task is not a job yet.
            first.ok_or_else(|| {
                Error::conflict("The array was created. Its tasks start as soon as there are free resources.")
            })?
        }
    };
    Ok(Created(format!("/api/v1/jobs/{}", job.id), whole(&portal, user.id(), job).await?))
}

/// Returns whether a job would start now, wait or be rejected.
///
/// A dry run: nothing is stored.
#[utoipa::path(post, path = "/jobs/admission", tag = "jobs", request_body = JobRequest,
    responses((status = 200, body = AdmissionAnswer)))]
pub async fn admission(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(request): Json<JobRequest>,
) -> Result<axum::Json<AdmissionAnswer>> {
    let request = portal.presets.complete_job(&user.user, request).await?;
    let dry_run = portal.jobs.rehearse(user.actor(), request).await?;
    Ok(axum::Json(AdmissionAnswer::new(dry_run, portal.clock.now())))
}

/// Returns a job.
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobView)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
) -> Result<axum::Json<JobView>> {
    let job = portal.jobs.find(user.actor(), id).await?;
    Ok(axum::Json(whole(&portal, user.id(), job).await?))
}

/// Changes name, notes, tags, star or visibility of your job.
#[utoipa::path(patch, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path)), request_body = Changes,
    responses((status = 200, body = JobView)))]
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
    Json(changes): Json<Changes>,
) -> Result<axum::Json<JobView>> {
    let job = portal.jobs.change(user.actor(), id, changes).await?;
    Ok(axum::Json(whole(&portal, user.id(), job).await?))
}

/// Deletes your ended job, its logs and its run.
///
/// It can be restored for a day. Its usage stays in the usage history.
#[utoipa::path(delete, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path)),
    responses((status = 204), (status = 409, description = "It has not ended", body = Problem)))]
pub async fn delete(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<JobId>) -> Result<StatusCode> {
    portal.jobs.delete(user.actor(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restores your deleted job, with its logs and its run.
#[utoipa::path(post, path = "/jobs/{id}/restore", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobView), (status = 409, description = "It has not been deleted", body = Problem)))]
pub async fn restore(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
) -> Result<axum::Json<JobView>> {
    let job = portal.jobs.restore(user.actor(), id).await?;
    Ok(axum::Json(whole(&portal, user.id(), job).await?))
}

/// Cancels a job.
///
/// Succeeds if it has already ended.
#[utoipa::path(post, path = "/jobs/{id}/cancel", tag = "jobs", params(("id" = String, Path)),
    responses((status = 202, body = JobView)))]
pub async fn cancel(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
) -> Result<Accepted<JobView>> {
    let job = portal.jobs.cancel(user.actor(), id).await?;
    Ok(Accepted(whole(&portal, user.id(), job).await?))
}

/// Runs an ended job again as its next attempt.
#[utoipa::path(post, path = "/jobs/{id}/resume", tag = "jobs", params(("id" = String, Path)),
    responses((status = 202, body = JobView), (status = 409, description = "It has not ended", body = Problem)))]
pub async fn resume(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
) -> Result<Accepted<JobView>> {
    let job = portal.jobs.resume(user.actor(), id).await?;
    Ok(Accepted(whole(&portal, user.id(), job).await?))
}

/// Submits a copy of a job.
///
/// Fields of the request replace those of the original; `{}` changes nothing. The copy is yours, whoever owns the
/// original.
#[utoipa::path(post, path = "/jobs/{id}/clone", tag = "jobs", request_body = JobRequest,
    params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Requests that repeat a key return the first \
                                                                    result.")),
    responses((status = 202, body = JobView)))]
pub async fn copy(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
    IdempotencyKey(key): IdempotencyKey,
    Json(changes): Json<JobRequest>,
) -> Result<Accepted<JobView>> {
    let job = portal.jobs.copy(user.actor(), id, changes, key.as_deref()).await?;
    Ok(Accepted(whole(&portal, user.id(), job).await?))
}

/// Selects a part of the log. By default, everything that is kept of the latest attempt.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobLogParameters {
    /// Maximum number of lines to return, counted from the end.
    #[param(minimum = 1, maximum = 10_000)]
    tail: Option<i64>,
    /// Only what follows this offset in bytes, counted from the first byte that the attempt ever wrote: the header
    /// `Log-End` of the previous response.
    offset: Option<u64>,
    /// Number of the attempt. By default the latest; a followed log then continues with later attempts.
    #[param(minimum = 1)]
    attempt: Option<i64>,
}

/// Returns the log as plain text.
///
/// With `Accept: text/event-stream`, follows it as it grows; `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/jobs/{id}/log", tag = "jobs", params(("id" = String, Path), JobLogParameters),
    responses((status = 200, content_type = "text/plain", body = String),
        (status = 429, description = "You have too many event streams open", body = Problem)))]
pub async fn log(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<JobId>,
    Query(JobLogParameters { tail, offset, attempt }): Query<JobLogParameters>,
) -> Result<Response> {
    let part = super::log::LogPart { tail, offset, attempt };
    super::log::answer(portal, user, &headers, super::log::LogSource::Job(id), part).await
}

/// Streams the events of all attempts of a job as server-sent events with ids.
///
/// `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/jobs/{id}/events", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = 429, description = "You have too many event streams open", body = Problem)))]
pub async fn events(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<JobId>,
) -> Result<Response> {
    portal.jobs.find(user.actor(), id).await?;
    let reader = user.id();
    sse_for(&portal, reader, follow_events(portal.clone(), user, Subject::Job(id), EventId::resumed(&headers)))
}

/// Returns what a job that has not started waits for, in the words of its card.
pub(super) async fn why_it_waits(portal: &Portal, user: &CurrentUser, job: Option<JobId>) -> Option<String> {
    let latest = portal.jobs.find(user.actor(), job?).await.ok()?.latest;
    latest.reasons.into_iter().next().map(|reason| reason.hint)
}
