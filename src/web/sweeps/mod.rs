//! Sweeps over REST: what `/api/v1/sweeps` takes and answers, and the pause of the queue of jobs.
//! The pages are in `pages`; both call the same service.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub(super) mod pages;
pub(super) mod queue;

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        error::{Accepted, Created, Problem, Result},
        extract::{CurrentUser, Id, IdempotencyKey, Json, Query},
        paging::{Listed, Paging, id_asked, owner_asked},
        sorting::Sorting,
    },
    sessions::AdmissionAnswer,
};
use crate::{
    db::sweeps::{SORT_COLUMNS, SweepFilter},
    model::{
        JobId, ModelId, Sweep, SweepId, Timestamp,
        sweep::{Metric, Settings, SweepKind, SweepState},
    },
    sweeps::{Preview, SweepRequest, TaskProgress, best},
};

/// A sweep: many jobs from one plan.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Sweep)]
pub struct SweepView {
    #[schema(value_type = String, format = "uuid")]
    pub id: SweepId,
    /// The user name of the owner.
    pub owner: String,
    pub name: String,
    pub kind: SweepKind,
    pub state: SweepState,
    /// Why the portal paused it.
    pub detail: Option<String>,
    /// Number of tasks. `released` of them have become jobs.
    pub tasks: i64,
    pub released: i64,
    /// Maximum number of tasks that are running or pending at the same time.
    pub parallel: i64,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    /// The metric that the tasks are compared by. This field and the following ones are not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub metric: Option<Metric>,
    /// The best task so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub best: Option<TaskView>,
    /// The number of tasks in each state, of those states that there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub states: Option<BTreeMap<&'static str, usize>>,
    /// A page of the tasks, in their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub items: Option<Vec<TaskView>>,
    /// The cursor of the next page of tasks; null or omitted on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub next_cursor: Option<String>,
}

/// One task of a sweep.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SweepTask)]
pub struct TaskView {
    pub index: i64,
    /// Number of the repetition with the same values, from 0.
    pub repeat: i64,
    pub parameters: BTreeMap<String, String>,
    /// The job of the task; null while it is planned.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    /// The model that it trains, where the sweep is one of trainings.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub model: Option<ModelId>,
    /// `planned`, the state of its job, or how the job ended: `succeeded`, `failed` or `cancelled`.
    pub state: &'static str,
    pub exit_code: Option<i64>,
    pub detail: Option<String>,
    /// Its best value so far. `last_step` is the last step with a value.
    pub best: Option<f64>,
    pub last_step: Option<i64>,
}

/// A preview of a sweep.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SweepPreview)]
pub struct PreviewView {
    pub tasks: i64,
    pub parallel: i64,
    /// The parameters of the first tasks.
    pub first: Vec<TaskSettings>,
    /// Hours that all tasks use if each runs until its time limit, and the hours that your quota leaves. Null: no
    /// limit.
    pub gpu_hours: f64,
    pub cpu_hours: f64,
    pub gpu_hours_left: Option<f64>,
    pub cpu_hours_left: Option<f64>,
    /// Whether all tasks can run until their time limit within your remaining hours.
    pub fits_hours: bool,
    /// The decision that one of the tasks would get now.
    pub admission: AdmissionAnswer,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SweepTaskSettings)]
pub struct TaskSettings {
    pub index: i64,
    pub repeat: i64,
    pub parameters: BTreeMap<String, String>,
}

impl From<Settings> for TaskSettings {
    fn from(settings: Settings) -> Self {
        Self { index: settings.index, repeat: settings.repeat, parameters: settings.values }
    }
}

impl From<Sweep> for SweepView {
    fn from(sweep: Sweep) -> Self {
        Self {
            id: sweep.id,
            owner: sweep.owner_name,
            name: sweep.name,
            kind: sweep.kind,
            state: sweep.state,
            detail: Some(sweep.note).filter(|note| !note.is_empty()),
            tasks: sweep.tasks,
            released: sweep.released,
            parallel: sweep.parallel,
            created_at: sweep.created_at,
            metric: None,
            best: None,
            states: None,
            items: None,
            next_cursor: None,
        }
    }
}

impl From<&TaskProgress> for TaskView {
    fn from(standing: &TaskProgress) -> Self {
        let latest = standing.job.as_ref().map(|job| &job.latest);
        Self {
            index: standing.settings.index,
            repeat: standing.settings.repeat,
            parameters: standing.settings.values.clone(),
            job: standing.job.as_ref().map(|job| job.id),
            model: standing.model,
            state: standing.word(),
            exit_code: latest.and_then(|latest| latest.exit_code),
            detail: latest.and_then(|latest| latest.detail.clone()),
            best: standing.best.map(|(_, value)| value),
            last_step: standing.best.map(|(step, _)| step),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "hours are shown to a few digits")]
fn hours(seconds: i64) -> f64 {
    seconds as f64 / 3600.0
}

impl PreviewView {
    fn new(preview: Preview, now: Timestamp) -> Self {
        Self {
            tasks: preview.tasks,
            parallel: preview.parallel,
            gpu_hours: hours(preview.gpu_seconds),
            cpu_hours: hours(preview.cpu_seconds),
            gpu_hours_left: preview.gpu_seconds_left.map(hours),
            cpu_hours_left: preview.cpu_seconds_left.map(hours),
            fits_hours: preview.fits_hours(),
            first: preview.first.into_iter().map(TaskSettings::from).collect(),
            admission: AdmissionAnswer::new(preview.dry_run, now),
        }
    }
}

/// A sweep with a page of its tasks.
async fn whole(portal: &Portal, sweep: Sweep, paging: &Paging) -> Result<SweepView> {
    let (limit, after) = (paging.limit()?, paging.after::<usize>()?);
    let (metric, standings) = portal.sweeps.standings(&sweep).await?;
    let best = metric.as_ref().and_then(|metric| best(metric, &standings)).map(TaskView::from);
    let mut states = BTreeMap::new();
    for standing in &standings {
        *states.entry(standing.word()).or_insert(0) += 1;
    }
    let begin = after.map_or(0, |place| place.saturating_add(1));
    let size = usize::try_from(limit).unwrap_or(0).saturating_add(1);
    let page = Listed::new(standings.iter().enumerate().skip(begin).take(size).collect(), limit, |(place, _)| *place);
    let items = Some(page.items.into_iter().map(|(_, standing)| TaskView::from(standing)).collect());
    let next_cursor = page.next_cursor;
    Ok(SweepView { metric, best, states: Some(states), items, next_cursor, ..SweepView::from(sweep) })
}

/// Filters and paging of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SweepParameters {
    /// For operators: a user name, or `*` for all users. By default, your own sweeps are listed.
    owner: Option<String>,
    /// The beginning or the end of the id.
    id: Option<String>,
    /// Part of the name.
    search: Option<String>,
    /// `created`, `name` or `tasks`, with a minus in front for the opposite order; by default `-created`.
    #[param(example = "-created")]
    sort: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

/// Lists sweeps, newest first, including ended ones.
///
/// By default, only your own sweeps are listed.
#[utoipa::path(get, path = "/sweeps", tag = "sweeps", params(SweepParameters),
    responses((status = 200, body = Listed<SweepView>)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<SweepParameters>,
) -> Result<Listed<SweepView>> {
    let paging = Paging::new(parameters.limit, parameters.cursor);
    let limit = paging.limit()?;
    let owner = owner_asked(&portal, &user, parameters.owner.as_deref(), "sweeps").await?;
    let id = id_asked(parameters.id.as_deref())?;
    let sorting = Sorting::asked(&SORT_COLUMNS, parameters.sort.as_deref())?;
    let position = sorting.position(&paging)?;
    let filter = SweepFilter {
        owner,
        id: id.as_ref(),
        find: parameters.search.as_deref().unwrap_or_default(),
        sort: sorting.sort(&position),
        before: position.before,
        limit: limit + 1,
    };
    let found = portal.sweeps.list(user.actor(), filter).await?;
    let found = found.into_iter().map(|(sweep, value)| (SweepView::from(sweep), value));
    Ok(sorting.listed(found.collect(), limit, |view: &SweepView| view.id))
}

/// Submits an array or a hyperparameter sweep: many jobs from one plan.
///
/// The tasks are the indices of an array, every combination of parameter values, or random trials. All are checked
/// before anything is stored. They become jobs as resources become free.
#[utoipa::path(post, path = "/sweeps", tag = "sweeps", request_body = SweepRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Requests that repeat a key return the first \
                                                                       result.")),
    responses((status = 201, body = SweepView)))]
pub async fn submit(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    Json(request): Json<SweepRequest>,
) -> Result<Created<SweepView>> {
    let sweep = portal.sweeps.submit(user.actor(), request, key.as_deref()).await?;
    Ok(Created(format!("/api/v1/sweeps/{}", sweep.id), whole(&portal, sweep, &Paging::default()).await?))
}

/// Returns the number of tasks of a sweep and how much of your quota they would use.
///
/// A dry run: nothing is stored.
#[utoipa::path(post, path = "/sweeps/preview", tag = "sweeps", request_body = SweepRequest,
    responses((status = 200, body = PreviewView)))]
pub async fn preview(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(request): Json<SweepRequest>,
) -> Result<axum::Json<PreviewView>> {
    let preview = portal.sweeps.preview(user.actor(), request).await?;
    Ok(axum::Json(PreviewView::new(preview, portal.clock.now())))
}

/// Returns a sweep with its tasks, in pages.
#[utoipa::path(get, path = "/sweeps/{id}", tag = "sweeps", params(("id" = String, Path), Paging),
    responses((status = 200, body = SweepView)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SweepId>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<SweepView>> {
    let sweep = portal.sweeps.find(user.actor(), id).await?;
    Ok(axum::Json(whole(&portal, sweep, &paging).await?))
}

/// Deletes an ended sweep. Its jobs are kept.
#[utoipa::path(delete, path = "/sweeps/{id}", tag = "sweeps", params(("id" = String, Path)),
    responses((status = 204), (status = 409, description = "It has not ended", body = Problem)))]
pub async fn delete(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<SweepId>) -> Result<StatusCode> {
    portal.sweeps.delete(user.actor(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pauses a sweep.
///
/// No more tasks become jobs, and pending ones do not start. Running tasks continue.
#[utoipa::path(post, path = "/sweeps/{id}/pause", tag = "sweeps", params(("id" = String, Path)),
    responses((status = 202, body = SweepView), (status = 409, description = "It has ended", body = Problem)))]
pub async fn pause(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SweepId>,
) -> Result<Accepted<SweepView>> {
    Ok(Accepted(portal.sweeps.pause(user.actor(), id).await?.into()))
}

/// Resumes a paused sweep.
#[utoipa::path(post, path = "/sweeps/{id}/resume", tag = "sweeps", params(("id" = String, Path)),
    responses((status = 202, body = SweepView), (status = 409, description = "It has ended", body = Problem)))]
pub async fn resume(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SweepId>,
) -> Result<Accepted<SweepView>> {
    Ok(Accepted(portal.sweeps.go_on(user.actor(), id).await?.into()))
}

/// Stops a sweep: cancels its running and pending tasks.
///
/// No more tasks become jobs. Succeeds if it has already ended.
#[utoipa::path(post, path = "/sweeps/{id}/stop", tag = "sweeps", params(("id" = String, Path)),
    responses((status = 202, body = SweepView)))]
pub async fn stop(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SweepId>,
) -> Result<Accepted<SweepView>> {
    Ok(Accepted(portal.sweeps.stop(user.actor(), id).await?.into()))
}
