//! The trash: the jobs and runs that somebody deleted and can restore for a day. Over REST as a list and its end; on pages a
//! part of the lists of jobs and of runs. What is restored is the business of `jobs` and `runs`.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, NoContent, Redirect, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Portal,
    columns::way_back,
    http::{
        error::Result,
        extract::{CurrentUser, Form},
    },
    views::TrashPanel,
};
use crate::{
    db::trash::{Trashed, TrashedId},
    model::Timestamp,
    trash::TRASH_SECONDS,
};

/// What you deleted and can restore.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Trash)]
pub struct TrashView {
    /// The deleted jobs and runs, the latest first, at most 500.
    items: Vec<TrashedView>,
    /// Number of deleted jobs.
    jobs: i64,
    /// Number of deleted runs. The run of a job is restored with the job and is not counted.
    runs: i64,
}

/// A job or run that you deleted.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TrashedItem)]
pub struct TrashedView {
    /// `job` or `run`.
    kind: &'static str,
    #[schema(value_type = String, format = "uuid")]
    id: String,
    name: String,
    /// When it was deleted.
    #[schema(value_type = String, format = "date-time")]
    deleted_at: Timestamp,
    /// When it is removed for good.
    #[schema(value_type = String, format = "date-time")]
    removed_at: Timestamp,
}

impl From<Trashed> for TrashedView {
    fn from(one: Trashed) -> Self {
        let (kind, id) = match one.what {
            TrashedId::Job(id) => ("job", id.to_string()),
            TrashedId::Run(id) => ("run", id.to_string()),
        };
        let removed_at = one.deleted_at.plus_seconds(TRASH_SECONDS);
        Self { kind, id, name: one.name, deleted_at: one.deleted_at, removed_at }
    }
}

/// Lists the jobs and runs that you deleted and can restore.
///
/// They are removed for good a day after they were deleted.
#[utoipa::path(get, path = "/trash", tag = "jobs", responses((status = 200, body = TrashView)))]
pub async fn find(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<axum::Json<TrashView>> {
    let (items, size) = portal.trash.list(&user.user).await?;
    let items = items.into_iter().map(TrashedView::from).collect();
    Ok(axum::Json(TrashView { items, jobs: size.jobs, runs: size.runs }))
}

/// Removes the jobs and runs that you deleted for good.
#[utoipa::path(delete, path = "/trash", tag = "jobs", responses((status = 204, description = "The trash is empty")))]
pub async fn empty(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<Response> {
    portal.trash.empty(&user.user).await?;
    Ok(NoContent.into_response())
}

/// `POST /trash/empty`
pub async fn empty_by_form(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Redirect> {
    portal.trash.empty(&user.user).await?;
    let list = if form.get("back").starts_with("/runs") { "/runs" } else { "/jobs" };
    Ok(Redirect::to(&way_back(form.get("back"), list)))
}

/// What the lists show of a user's trash. `just`: the moments between which an action deleted what *Undo* restores.
pub(super) async fn panel(portal: &Portal, user: &CurrentUser, just: Option<(i64, i64)>) -> Result<TrashPanel> {
    let (items, size) = portal.trash.list(&user.user).await?;
    Ok(TrashPanel::new(&items, size, just, portal.clock.now()))
}
