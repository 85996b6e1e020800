//! The pause of the queue of jobs: an administrator holds everybody's waiting jobs, anybody their
//! own. What runs goes on, and sessions are not held. Over REST and from the page of jobs.

use std::sync::Arc;

use axum::{extract::State, response::Redirect};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    jobs::Error as JobError,
    model::{Timestamp, hold::Pause},
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form, Json},
        },
    },
};

/// The pauses that hold your pending jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = JobQueue)]
pub struct QueueView {
    /// The pause of all users' jobs. `own` is the pause of your own jobs.
    pub everybody: Option<PauseView>,
    pub own: Option<PauseView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueuePause)]
pub struct PauseView {
    pub by: String,
    pub note: String,
    #[schema(value_type = String, format = "date-time")]
    pub at: Timestamp,
}

/// A pause of the job queue, or its end.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = QueueRequest)]
pub struct QueueRequest {
    /// For administrators: pause or resume the jobs of all users.
    everybody: bool,
    /// The reason, shown to the owners of the jobs.
    note: String,
}

async fn view(portal: &Portal, user: &CurrentUser) -> Result<QueueView> {
    let mut view = QueueView { everybody: None, own: None };
    for Pause { of_everybody, by, note, at } in portal.jobs.pauses(user.id()).await? {
        let shown = Some(PauseView { by, note, at });
        if of_everybody { view.everybody = shown } else { view.own = shown }
    }
    Ok(view)
}

/// Returns the pauses that hold your pending jobs.
#[utoipa::path(get, path = "/jobs/queue", tag = "jobs", responses((status = 200, body = QueueView)))]
pub async fn find(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<axum::Json<QueueView>> {
    Ok(axum::Json(view(&portal, &user).await?))
}

/// Pauses the job queue: holds your pending jobs until it is resumed.
///
/// Administrators can hold the jobs of all users.
#[utoipa::path(post, path = "/jobs/queue/pause", tag = "jobs", request_body = QueueRequest,
    responses((status = 200, body = QueueView)))]
pub async fn pause(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(request): Json<QueueRequest>,
) -> Result<axum::Json<QueueView>> {
    portal.jobs.pause_queue(user.actor(), request.everybody, Some(&request.note)).await?;
    Ok(axum::Json(view(&portal, &user).await?))
}

/// Resumes the job queue.
#[utoipa::path(post, path = "/jobs/queue/resume", tag = "jobs", request_body = QueueRequest,
    responses((status = 200, body = QueueView)))]
pub async fn resume(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(request): Json<QueueRequest>,
) -> Result<axum::Json<QueueView>> {
    portal.jobs.pause_queue(user.actor(), request.everybody, None).await?;
    Ok(axum::Json(view(&portal, &user).await?))
}

/// `POST /jobs/queue`: the buttons of the page.
pub async fn change(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Redirect> {
    let everybody = form.get("whose") == "everybody";
    let note = match form.get("do") {
        "pause" => Some(form.get("note")),
        "resume" => None,
        _ => return Err(Error::field("do", "invalid_value", "Must be pause or resume.")),
    };
    match portal.jobs.pause_queue(user.actor(), everybody, note).await {
        Ok(()) => Ok(Redirect::to("/jobs")),
        Err(JobError::Invalid(faults)) => Err(Error::invalid(faults)),
        Err(error) => Err(error.into()),
    }
}
