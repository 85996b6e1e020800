//! Tests of GPUs over REST, and the routes of their pages. A run is a job of its owner; operators see the runs of all
//! users. What a run measures and how it is judged is the service's and the model's business.

mod pages;

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{
    Portal,
    http::{
        error::{Accepted, Created, Problem, Result},
        extract::{CurrentUser, Id, Json, Query},
        paging::{Listed, Paging},
        routes::{Api, Pages},
    },
};
use crate::{
    auth::scopes,
    diagnostics::NewDiagnostics,
    model::{
        DiagnosticsId, JobId, Timestamp,
        diagnostics::{Diagnostics, Finding, GpuVerdict, Level, RunState, Verdict},
    },
};

/// The routes of the API.
pub fn api() -> Api {
    Api::within(&scopes::JOBS)
        .routes(routes!(list, start))
        .routes(routes!(find))
        .routes(routes!(cancel))
        .merge(super::cluster::hold_api())
}

/// The routes of the pages.
pub fn pages(others: Pages) -> Pages {
    super::cluster::hold_pages(others)
        .and(&scopes::ACCOUNT)
        .get("/diagnostics", pages::list)
        .post("/diagnostics", pages::start)
        .get("/diagnostics/{id}", pages::show)
        .post("/diagnostics/{id}/cancel", pages::cancel)
}

/// A run of the GPUs' tests.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Diagnostics)]
pub struct DiagnosticsView {
    #[schema(value_type = String, format = "uuid")]
    pub id: DiagnosticsId,
    pub owner: String,
    /// The job that measures, if it still exists.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    pub level: Level,
    /// Number of GPUs that were requested.
    pub gpus: i64,
    pub state: RunState,
    /// Why there is no verdict; empty otherwise.
    pub detail: String,
    /// Name of the node; null before the end.
    pub node: Option<String>,
    /// Version of the driver; null before the end, or if no driver was found.
    pub driver: Option<String>,
    /// The most urgent verdict; null before the end.
    pub verdict: Option<Verdict>,
    /// Findings about all GPUs together. Empty before the end.
    pub general: Vec<Finding>,
    /// The verdict on each GPU. Empty before the end.
    pub verdicts: Vec<GpuVerdict>,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = "date-time")]
    pub ended_at: Option<Timestamp>,
    /// What was measured (docs/gpus.md). Not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub results: Option<Value>,
}

impl From<Diagnostics> for DiagnosticsView {
    fn from(run: Diagnostics) -> Self {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let verdict = run.judgement.as_ref().map(|judged| judged.verdict);
        let (general, verdicts) = run.judgement.map(|judged| (judged.general, judged.gpus)).unwrap_or_default();
        Self {
            id: run.id,
            owner: run.owner_name,
            job: run.job,
            level: run.level,
            gpus: run.gpus,
            state: run.state,
            detail: run.detail,
            node: given(run.node),
            driver: given(run.driver),
            verdict,
            general,
            verdicts,
            created_at: run.created_at,
            ended_at: run.ended_at,
            results: None,
        }
    }
}

/// Lists your tests of GPUs, newest first. Operators see those of all users.
#[utoipa::path(get, path = "/diagnostics", tag = "diagnostics", params(Paging),
    responses((status = 200, body = Listed<DiagnosticsView>),
        (status = 422, description = "Invalid parameter", body = Problem)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(paging): Query<Paging>,
) -> Result<Listed<DiagnosticsView>> {
    let limit = paging.limit()?;
    let found = portal.diagnostics.list(user.actor(), paging.after()?, limit + 1).await?;
    Ok(Listed::new(found.into_iter().map(DiagnosticsView::from).collect(), limit, |view: &DiagnosticsView| view.id))
}

/// Tests GPUs. A job of yours holds them and measures, with your quota and in your queue.
///
/// `quick` reads the driver only; `medium` also puts load on the GPUs for a minute or two. `long` also runs what the
/// node has installed: DCGM, nvbandwidth and nccl-tests. The verdict is there when the job has ended.
#[utoipa::path(post, path = "/diagnostics", tag = "diagnostics", request_body = NewDiagnostics,
    responses((status = 201, body = DiagnosticsView),
        (status = 409, description = "The quota does not allow the job", body = Problem),
        (status = 422, description = "Validation failed", body = Problem),
        (status = 503, description = "Your files cannot be reached", body = Problem)))]
pub async fn start(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(new): Json<NewDiagnostics>,
) -> Result<Created<DiagnosticsView>> {
    let run = portal.diagnostics.start(user.actor(), new).await?;
    Ok(Created(format!("/api/v1/diagnostics/{}", run.id), run.into()))
}

/// Returns a test of GPUs with its verdicts and measurements.
#[utoipa::path(get, path = "/diagnostics/{id}", tag = "diagnostics", params(("id" = String, Path)),
    responses((status = 200, body = DiagnosticsView),
        (status = 404, description = "Not found, or not yours", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DiagnosticsId>,
) -> Result<axum::Json<DiagnosticsView>> {
    let run = portal.diagnostics.find(user.actor(), id).await?;
    let results = portal.diagnostics.results(user.actor(), &run).await?;
    Ok(axum::Json(DiagnosticsView { results, ..DiagnosticsView::from(run) }))
}

/// Cancels a test of GPUs. What was measured until then is not judged.
#[utoipa::path(post, path = "/diagnostics/{id}/cancel", tag = "diagnostics", params(("id" = String, Path)),
    responses((status = 202, body = DiagnosticsView),
        (status = 404, description = "Not found, or not yours", body = Problem)))]
pub async fn cancel(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DiagnosticsId>,
) -> Result<Accepted<DiagnosticsView>> {
    Ok(Accepted(portal.diagnostics.cancel(user.actor(), id).await?.into()))
}
