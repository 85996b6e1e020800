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
    error::{Created, Problem, Result},
    extract::{CurrentUser, HashedJson, Id, IdempotencyKey, Json, Query},
    paging::{Listed, Paging, id_asked},
};
use crate::{
    db::idempotency::Once,
    model::{
        JobId, Run, RunId, SessionId, Timestamp, User,
        run::{Skipped, Source, Visibility},
    },
    runs::{Change, Draft},
};

/// A directory of logs whose curves are kept.
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
    /// With the visibility `group`; null where the group is gone.
    group: Option<String>,
    /// Whether it is the reader's own.
    is_owner: bool,
    /// Everything has been read, and nobody writes any more. What nobody is known to write is never complete.
    complete: bool,
    /// Of all curves and attempts.
    points: u64,
    curves: u64,
    /// The end of the last look that came to its end.
    #[schema(value_type = Option<String>, format = "date-time")]
    read_at: Option<Timestamp>,
    /// When points came last.
    #[schema(value_type = Option<String>, format = "date-time")]
    grown_at: Option<Timestamp>,
    /// A sentence: why the last look failed.
    error: Option<String>,
    skipped: Skipped,
    #[schema(value_type = String, format = "date-time")]
    created_at: Timestamp,
}

/// Who writes what is read.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[schema(as = RunSource)]
pub enum SourceView {
    /// Nobody that the portal knows.
    External,
    Session {
        #[schema(value_type = String, format = "uuid")]
        session: SessionId,
    },
    Job {
        #[schema(value_type = String, format = "uuid")]
        job: JobId,
        /// Its latest attempt.
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
        }
    }
}

/// `?owner=` of the list, with paging.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParameters {
    /// Only the runs of this person; operators may say `*` for everybody's.
    owner: Option<String>,
    /// What the id begins or ends with.
    id: Option<String>,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    cursor: Option<String>,
}

/// One's own runs and those that are shared with one, the newest first.
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
    let found = portal.runs.list(&user.user, owner, id.as_ref(), paging.after()?, limit + 1).await?;
    let views = found.into_iter().map(|run| RunView::new(run, &user.user)).collect();
    Ok(Listed::new(views, limit, |view: &RunView| view.id))
}

/// A directory to be read.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    /// Absolute, or below the home (`~/logs/first`).
    directory: String,
    /// Without it: the directory's name.
    #[serde(default)]
    #[schema(max_length = 200)]
    name: Option<String>,
    /// One's own live session that writes there: its agent reads while it lives.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "uuid")]
    session: Option<SessionId>,
    #[serde(default = "usual")]
    #[schema(default = "private")]
    visibility: Visibility,
    /// The name of one of one's groups, with the visibility `group`.
    #[serde(default)]
    group: Option<String>,
}

fn usual() -> Visibility {
    Visibility::Private
}

/// Have a directory of event files or lines of JSON read, now and as it grows.
#[utoipa::path(post, path = "/runs", tag = "runs", request_body = NewRun,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked twice with one key, it is made once.")),
    responses((status = 201, body = RunView),
        (status = 422, description = "The directory is not there, or a field cannot be so", body = Problem)))]
pub async fn create(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value: new, hash }: HashedJson<NewRun>,
) -> Result<Created<RunView>> {
    let NewRun { directory, name, session, visibility, group } = new;
    let once = key.as_deref().map(|key| Once { user: user.id(), key, request_hash: &hash });
    let draft = Draft { directory, name, session, visibility, group };
    let made = portal.runs.add(&user.user, draft, once).await?;
    let address = format!("/api/v1/runs/{}", made.id);
    Ok(Created(address, RunView::new(made, &user.user)))
}

#[utoipa::path(get, path = "/runs/{id}", tag = "runs", params(("id" = String, Path)),
    responses((status = 200, body = RunView), (status = 404, description = "Not there, or not to be seen", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<RunId>,
) -> Result<axum::Json<RunView>> {
    let run = portal.runs.find(&user.user, id).await?;
    Ok(axum::Json(RunView::new(run, &user.user)))
}

/// What can be changed of a run; what is not named stays.
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

/// Change the name of a run of one's own, and who sees it.
#[utoipa::path(patch, path = "/runs/{id}", tag = "runs", params(("id" = String, Path)), request_body = RunChange,
    responses((status = 200, body = RunView), (status = 403, description = "It is somebody else's", body = Problem),
        (status = 422, description = "A field cannot be so", body = Problem)))]
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

/// Forget a run of one's own with its points. The files it was read from stay.
#[utoipa::path(delete, path = "/runs/{id}", tag = "runs", params(("id" = String, Path)),
    responses((status = 204, description = "Forgotten"), (status = 403, description = "It is somebody else's", body = Problem)))]
pub async fn remove(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<RunId>) -> Result<Response> {
    portal.runs.remove(&user.user, id).await?;
    Ok(NoContent.into_response())
}
