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
    error::{Accepted, Created, Error, Problem, Result},
    extract::{CurrentUser, Id, IdempotencyKey, Json, Query},
    paging::{Listed, Paging, id_asked},
    sessions::AdmissionAnswer,
};
use crate::{
    model::{
        JobId, Role, Sweep, SweepId, Timestamp,
        sweep::{Metric, Settings, SweepKind, SweepState},
    },
    sweeps::{Preview, Standing, SweepRequest, best},
};

/// A sweep, as the API shows it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Sweep)]
pub struct SweepView {
    #[schema(value_type = String, format = "uuid")]
    pub id: SweepId,
    /// The owner's name.
    pub owner: String,
    pub name: String,
    pub kind: SweepKind,
    pub state: SweepState,
    /// Why it is paused, where the portal did that.
    pub detail: Option<String>,
    /// How many tasks it has, and how many of them have become jobs.
    pub tasks: i64,
    pub released: i64,
    /// At most so many run or wait at once.
    pub parallel: i64,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    /// What the tasks are compared by; lists leave this and the rest out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub metric: Option<Metric>,
    /// The best task so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub best: Option<TaskView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub items: Option<Vec<TaskView>>,
}

/// One task of a sweep.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SweepTask)]
pub struct TaskView {
    pub index: i64,
    /// Which time the same values are tried: 0, 1, 2 …
    pub repeat: i64,
    pub parameters: BTreeMap<String, String>,
    /// The job that it has become.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    /// `planned`, the state of its job, or how that ended: `succeeded`, `failed`, `cancelled`.
    pub state: &'static str,
    pub exit_code: Option<i64>,
    pub detail: Option<String>,
    /// Its best value so far, and the step that it has come to.
    pub best: Option<f64>,
    pub last_step: Option<i64>,
}

/// What would come of a sweep.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SweepPreview)]
pub struct PreviewView {
    pub tasks: i64,
    pub parallel: i64,
    /// What the first ones are told.
    pub first: Vec<TaskSettings>,
    /// What all take if each uses its whole time, and what one's quota leaves; null is no limit.
    pub gpu_hours: f64,
    pub cpu_hours: f64,
    pub gpu_hours_left: Option<f64>,
    pub cpu_hours_left: Option<f64>,
    /// Whether all of them can use their whole time within one's hours.
    pub fits_hours: bool,
    /// What would be decided about one of them now.
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
            items: None,
        }
    }
}

impl From<&Standing> for TaskView {
    fn from(standing: &Standing) -> Self {
        let latest = standing.job.as_ref().map(|job| &job.latest);
        Self {
            index: standing.settings.index,
            repeat: standing.settings.repeat,
            parameters: standing.settings.values.clone(),
            job: standing.job.as_ref().map(|job| job.id),
            state: standing.word(),
            exit_code: latest.and_then(|latest| latest.exit_code),
            detail: latest.and_then(|latest| latest.detail.clone()),
            best: standing.best.map(|(_, value)| value),
            last_step: standing.best.map(|(step, _)| step),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "hours are told to a few digits")]
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
            admission: AdmissionAnswer::new(preview.rehearsal, now),
        }
    }
}

/// A sweep with its tasks.
async fn whole(portal: &Portal, sweep: Sweep) -> Result<SweepView> {
    let (metric, standings) = portal.sweeps.standings(&sweep).await?;
    let best = metric.as_ref().and_then(|metric| best(metric, &standings)).map(TaskView::from);
    let items = Some(standings.iter().map(TaskView::from).collect());
    Ok(SweepView { metric, best, items, ..SweepView::from(sweep) })
}

/// `?owner=*` and paging.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SweepParameters {
    /// Operators: `*` for everybody's.
    owner: Option<String>,
    /// What the id begins or ends with.
    id: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

/// One's own sweeps, newest first, ended ones included.
#[utoipa::path(get, path = "/sweeps", tag = "sweeps", params(SweepParameters),
    responses((status = 200, body = Listed<SweepView>)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<SweepParameters>,
) -> Result<Listed<SweepView>> {
    let paging = Paging::new(parameters.limit, parameters.cursor);
    let limit = paging.limit()?;
    let all = match parameters.owner.as_deref() {
        None | Some("") => false,
        Some("*") if Role::Operator <= user.user.role => true,
        Some("*") => return Err(Error::forbidden("Only operators see other people's sweeps.")),
        Some(_) => return Err(Error::field("owner", "invalid_value", "Only * stands here.")),
    };
    let id = id_asked(parameters.id.as_deref())?;
    let found = portal.sweeps.list(user.actor(), all, id.as_ref(), paging.after()?, limit + 1).await?;
    Ok(Listed::new(found.into_iter().map(SweepView::from).collect(), limit, |view: &SweepView| view.id))
}

/// Asks for many jobs at once: an array, every combination of some values, or trials with drawn
/// ones. All are checked before anything is written; they become jobs as room allows.
#[utoipa::path(post, path = "/sweeps", tag = "sweeps", request_body = SweepRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked twice with one key, it is made once.")),
    responses((status = 201, body = SweepView)))]
pub async fn submit(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    Json(request): Json<SweepRequest>,
) -> Result<Created<SweepView>> {
    let sweep = portal.sweeps.submit(user.actor(), request, key.as_deref()).await?;
    Ok(Created(format!("/api/v1/sweeps/{}", sweep.id), whole(&portal, sweep).await?))
}

/// What would come of a sweep: how many tasks, what they take of one's quota. Nothing is written.
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

/// A sweep with each of its tasks.
#[utoipa::path(get, path = "/sweeps/{id}", tag = "sweeps", params(("id" = String, Path)),
    responses((status = 200, body = SweepView)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SweepId>,
) -> Result<axum::Json<SweepView>> {
    let sweep = portal.sweeps.find(user.actor(), id).await?;
    Ok(axum::Json(whole(&portal, sweep).await?))
}

/// Forgets a sweep that has ended; its jobs stay.
#[utoipa::path(delete, path = "/sweeps/{id}", tag = "sweeps", params(("id" = String, Path)),
    responses((status = 204), (status = 409, description = "It has not ended", body = Problem)))]
pub async fn delete(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<SweepId>) -> Result<StatusCode> {
    portal.sweeps.delete(user.actor(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// No more tasks become jobs, and those that wait go on waiting; what runs goes on.
#[utoipa::path(post, path = "/sweeps/{id}/pause", tag = "sweeps", params(("id" = String, Path)),
    responses((status = 202, body = SweepView), (status = 409, description = "It has ended", body = Problem)))]
pub async fn pause(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SweepId>,
) -> Result<Accepted<SweepView>> {
    Ok(Accepted(portal.sweeps.pause(user.actor(), id).await?.into()))
}

/// Goes on with a paused sweep.
#[utoipa::path(post, path = "/sweeps/{id}/resume", tag = "sweeps", params(("id" = String, Path)),
    responses((status = 202, body = SweepView), (status = 409, description = "It has ended", body = Problem)))]
pub async fn resume(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SweepId>,
) -> Result<Accepted<SweepView>> {
    Ok(Accepted(portal.sweeps.go_on(user.actor(), id).await?.into()))
}

/// Ends what runs and waits of it, and makes no more jobs; fine when it has ended already.
#[utoipa::path(post, path = "/sweeps/{id}/stop", tag = "sweeps", params(("id" = String, Path)),
    responses((status = 202, body = SweepView)))]
pub async fn stop(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SweepId>,
) -> Result<Accepted<SweepView>> {
    Ok(Accepted(portal.sweeps.stop(user.actor(), id).await?.into()))
}
