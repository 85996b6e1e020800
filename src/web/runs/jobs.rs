//! Curves of jobs: the same answers as of runs, by the job whose attempts write them. Who may look at a
//! job is `jobs`'s to say; one whose logs nobody has read yet has no curves.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use super::{
    RunView,
    metrics::{CurveParameters, MetricsParameters, no_such_curve, one, tags},
};
use crate::{
    model::{JobId, Run},
    runs::{Curve, Metrics},
    web::{
        Portal,
        http::{
            error::{Error, Problem, Result},
            extract::{CurrentUser, Id, Query},
        },
    },
};

async fn run_of(portal: &Portal, user: &CurrentUser, id: JobId) -> Result<Option<Run>> {
    let job = portal.jobs.find(user.actor(), id).await?;
    Ok(portal.runs.of_job(job.id).await?)
}

/// Returns the run of a job. Its event stream reports new points.
#[utoipa::path(get, path = "/jobs/{id}/run", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = RunView),
        (status = 404, description = "No logs have been read yet, or the job is not visible to you", body = Problem)))]
pub async fn run(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
) -> Result<axum::Json<RunView>> {
    let run = run_of(&portal, &user, id).await?.ok_or_else(Error::not_found)?;
    Ok(axum::Json(RunView::new(run, &user.user)))
}

/// Lists the curves of a job with a summary of each.
#[utoipa::path(get, path = "/jobs/{id}/metrics", tag = "jobs", params(("id" = String, Path), MetricsParameters),
    responses((status = 200, body = Metrics), (status = 304, description = "Not modified"),
        (status = 404, description = "Not found, or not visible to you", body = Problem)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
    headers: HeaderMap,
    Query(parameters): Query<MetricsParameters>,
) -> Result<Response> {
    match run_of(&portal, &user, id).await? {
        Some(run) => tags(&portal, &run, &headers, parameters).await,
        None => Ok(axum::Json(Metrics::default()).into_response()),
    }
}

/// Returns one curve of a job over all its attempts in buckets, or every point as `text/csv`.
#[utoipa::path(get, path = "/jobs/{id}/metrics/{tag}", tag = "jobs",
    params(("id" = String, Path), ("tag" = String, Path, description = "Percent-encoded"), CurveParameters),
    responses((status = 200, content((Curve = "application/json"), (String = "text/csv"))),
        (status = 304, description = "Not modified"),
        (status = 404, description = "The curve was not found, or is not visible to you", body = Problem),
        (status = 422, description = "Invalid parameter", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path((id, tag)): Path<(String, String)>,
    headers: HeaderMap,
    Query(parameters): Query<CurveParameters>,
) -> Result<Response> {
    let id: JobId = id.parse().map_err(|_err| Error::not_found())?;
    let run = run_of(&portal, &user, id).await?.ok_or_else(no_such_curve)?;
    one(portal, run, tag, &headers, parameters).await
}
