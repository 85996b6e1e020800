//! Runs over REST: which there are, whose they are and who sees them. Their curves are in
//! `metrics`, what comes to them in `events`, many of them as a table in `results`, the pages in `pages`; the rules
//! are `runs`'s.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub mod address;
pub mod events;
pub mod jobs;
pub mod metrics;
pub mod pages;
pub mod results;
mod table;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        error::{Created, Problem, Result},
        extract::{CurrentUser, HashedJson, Id, IdempotencyKey, Json, Query},
        paging::{Listed, Paging, id_asked},
    },
};
use crate::{
    db::idempotency::IdempotentRequest,
    model::{
        JobId, Run, RunId, SessionId, Timestamp, User,
        run::{SkippedData, Source, Visibility},
    },
    runs::{Change, Draft},
};

/// A run: a directory of logs whose curves are stored.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Run)]
pub struct RunView {
    #[schema(value_type = String, format = "uuid")]
    id: RunId,
    owner: String,
    name: String,
    directory: String,
    source: SourceView,
    visibility: Visibility,
    /// The group, with the visibility `group`; null if the group no longer exists.
    group: Option<String>,
    /// Whether the run is yours.
    is_owner: bool,
    /// True if the job or session has ended and everything was read. An external directory is never complete.
    complete: bool,
    /// Number of points in all curves and attempts.
    points: u64,
    curves: u64,
    /// Time of the last completed read.
    #[schema(value_type = Option<String>, format = "date-time")]
    read_at: Option<Timestamp>,
    /// Time at which the last points were added.
    #[schema(value_type = Option<String>, format = "date-time")]
    grown_at: Option<Timestamp>,
    /// Reason why the last read failed.
    error: Option<String>,
    skipped: SkippedData,
    #[schema(value_type = String, format = "date-time")]
    created_at: Timestamp,
    /// Whether it is the run of a helper job, which the portal submitted for its owner.
    helper: bool,
}

/// The writer of a run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[schema(as = RunSource)]
pub enum SourceView {
    /// A program outside the portal.
    External,
    Session {
        #[schema(value_type = String, format = "uuid")]
        session: SessionId,
    },
    Job {
        #[schema(value_type = String, format = "uuid")]
        job: JobId,
        /// The latest attempt of the job.
        #[schema(value_type = String, format = "uuid")]
        session: SessionId,
    },
}

impl RunView {
    fn new(run: Run, reader: &User) -> Self {
        let source = match run.source {
            Source::External => SourceView::External,
            Source::Session { id, job: Some(job), .. } => SourceView::Job { job, session: id },
            Source::Session { id, job: None, .. } => SourceView::Session { session: id },
        };
        let reading = run.reading;
        Self {
            id: run.id,
            is_owner: run.owner == reader.id,
            owner: run.owner_name,
            name: run.name,
            directory: run.directory,
            source,
            visibility: run.visibility,
            group: run.group.and_then(|(_, name)| name),
            complete: reading.complete,
            points: reading.points,
            curves: reading.curves,
            read_at: reading.read_at,
            grown_at: reading.grown_at,
            error: reading.error,
            skipped: reading.skipped,
            created_at: run.created_at,
            helper: run.is_helper,
        }
    }
}

/// Filters and paging of the list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParameters {
    /// Only runs of this user. Operators can pass `*` for all users.
    owner: Option<String>,
    /// Beginning or end of the id.
    id: Option<String>,
    /// Also runs of helper jobs, which the portal submits for their owners, such as predictions. By default, they are
    /// listed only with `id`.
    helpers: Option<bool>,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    cursor: Option<String>,
}

/// Lists your runs and those that other users share with you, newest first.
#[utoipa::path(get, path = "/runs", tag = "runs", params(ListParameters),
    responses((status = 200, body = Listed<RunView>)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<ListParameters>,
) -> Result<Listed<RunView>> {
    let paging = Paging::new(parameters.limit, parameters.cursor);
    let limit = paging.limit()?;
    let owner = parameters.owner.as_deref().filter(|owner| !owner.is_empty());
    let id = id_asked(parameters.id.as_deref())?;
    let found = portal
        .runs
        .list(&user.user, owner, id.as_ref(), parameters.helpers == Some(true), paging.after()?, limit + 1)
        .await?;
    let views = found.into_iter().map(|run| RunView::new(run, &user.user)).collect();
    Ok(Listed::new(views, limit, |view: &RunView| view.id))
}

/// A directory to add as a run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    /// Absolute path, or a path below your home directory (`~/logs/first`).
    directory: String,
    /// Default: the name of the directory.
    #[serde(default)]
    #[schema(max_length = 200)]
    name: Option<String>,
    /// Your live session that writes there. Its agent reads the directory while the session runs.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "uuid")]
    session: Option<SessionId>,
    #[serde(default = "usual")]
    #[schema(default = "private")]
    visibility: Visibility,
    /// One of your groups, with the visibility `group`.
    #[serde(default)]
    group: Option<String>,
}

fn usual() -> Visibility {
    Visibility::Private
}

/// Adds a directory of event files or JSON lines as a run. It is read now and as it grows.
#[utoipa::path(post, path = "/runs", tag = "runs", request_body = NewRun,
    params(("Idempotency-Key" = Option<String>, Header, description = "Requests that repeat a key return the first result.")),
    responses((status = 201, body = RunView),
        (status = 422, description = "The directory does not exist, or validation failed", body = Problem)))]
pub async fn create(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value: new, hash }: HashedJson<NewRun>,
) -> Result<Created<RunView>> {
    let NewRun { directory, name, session, visibility, group } = new;
    let once = key.as_deref().map(|key| IdempotentRequest { user: user.id(), key, request_hash: &hash });
    let draft = Draft { directory, name, session, visibility, group };
    let made = portal.runs.add(&user.user, draft, once).await?;
    let address = format!("/api/v1/runs/{}", made.id);
    Ok(Created(address, RunView::new(made, &user.user)))
}

/// Returns a run.
#[utoipa::path(get, path = "/runs/{id}", tag = "runs", params(("id" = String, Path)),
    responses((status = 200, body = RunView), (status = 404, description = "Not found, or not visible to you", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<RunId>,
) -> Result<axum::Json<RunView>> {
    let run = portal.runs.find(&user.user, id).await?;
    Ok(axum::Json(RunView::new(run, &user.user)))
}

/// Changes to a run. Fields that are left out do not change.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunChange {
    #[serde(default)]
    #[schema(max_length = 200)]
    name: Option<String>,
    #[serde(default)]
    visibility: Option<Visibility>,
    #[serde(default)]
    group: Option<String>,
}

/// Changes name and visibility of your run.
#[utoipa::path(patch, path = "/runs/{id}", tag = "runs", params(("id" = String, Path)), request_body = RunChange,
    responses((status = 200, body = RunView), (status = 403, description = "The run belongs to another user", body = Problem),
        (status = 422, description = "Validation failed", body = Problem)))]
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<RunId>,
    Json(change): Json<RunChange>,
) -> Result<axum::Json<RunView>> {
    let RunChange { name, visibility, group } = change;
    let run = portal.runs.change(&user.user, id, Change { name, visibility, group }).await?;
    Ok(axum::Json(RunView::new(run, &user.user)))
}

/// Removes your run and its stored points. The log files are kept.
///
/// It can be restored for a day.
#[utoipa::path(delete, path = "/runs/{id}", tag = "runs", params(("id" = String, Path)),
    responses((status = 204, description = "Removed"), (status = 403, description = "The run belongs to another user", body = Problem)))]
pub async fn remove(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<RunId>) -> Result<Response> {
    portal.runs.remove(&user.user, id).await?;
    Ok(NoContent.into_response())
}

/// Restores a run that you removed, with its points.
#[utoipa::path(post, path = "/runs/{id}/restore", tag = "runs", params(("id" = String, Path)),
    responses((status = 200, body = RunView), (status = 403, description = "The run belongs to another user", body = Problem),
        (status = 409, description = "It has not been removed", body = Problem)))]
pub async fn restore(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<RunId>,
) -> Result<axum::Json<RunView>> {
    let run = portal.runs.restore(&user.user, id).await?;
    Ok(axum::Json(RunView::new(run, &user.user)))
}
