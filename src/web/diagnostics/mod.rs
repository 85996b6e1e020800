//! Tests of GPUs and of storage over REST, and the routes of their pages. A run is a job of its owner; operators see the
//! runs of all users. What a run measures and how it is judged is the service's and the model's business.

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
    diagnostics::{NewDiagnostics, NewStorageTest, PastStorage},
    model::{
        DatasetId, DiagnosticsId, JobId, Timestamp,
        diagnostics::{
            Diagnostics, FileSystem, Finding, GpuVerdict, Kind, Level, RunState, StorageMeasurement, Subject,
            TrainingRate, Verdict,
        },
    },
};

/// The routes of the API.
pub fn api() -> Api {
    Api::within(&scopes::JOBS)
        .routes(routes!(list, start))
        .routes(routes!(start_storage))
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
        .post("/diagnostics/storage", pages::start_storage)
        .get("/diagnostics/{id}", pages::show)
        .post("/diagnostics/{id}/cancel", pages::cancel)
}

/// A test of GPUs or of storage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Diagnostics)]
pub struct DiagnosticsView {
    #[schema(value_type = String, format = "uuid")]
    pub id: DiagnosticsId,
    pub owner: String,
    /// The job that measures, if it still exists.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    pub kind: Kind,
    /// How much is tested; null if storage is tested.
    pub level: Option<Level>,
    /// Number of GPUs that were requested; 0 if storage is tested.
    pub gpus: i64,
    /// The storage that is tested; null if GPUs are tested.
    pub storage: Option<StorageView>,
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

/// The storage that is tested, and what was measured of it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DiagnosticsStorage)]
pub struct StorageView {
    /// The folder that is written into; null if only a dataset is read.
    pub directory: Option<String>,
    /// The dataset that is read; null if none is read.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub dataset: Option<DatasetId>,
    /// Name of the dataset; null if none is read.
    pub dataset_name: Option<String>,
    /// The file system; null before the end.
    pub file_system: Option<FileSystem>,
    /// What was measured; null before the end.
    pub measurement: Option<StorageMeasurement>,
    /// The training that the reading of the dataset was compared with; null if none is known.
    pub training: Option<TrainingRate>,
    /// Earlier tests of the same file system, newest first. Not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub past: Option<Vec<PastStorage>>,
}

impl From<Diagnostics> for DiagnosticsView {
    fn from(run: Diagnostics) -> Self {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let verdict = run.judgement.as_ref().map(|judged| judged.verdict);
        let kind = run.subject.kind();
        let (general, verdicts, judged) =
            run.judgement.map(|judged| (judged.general, judged.gpus, judged.storage)).unwrap_or_default();
        let (level, gpus, storage) = match run.subject {
            Subject::Gpus { level, gpus } => (Some(level), gpus, None),
            Subject::Storage(subject) => {
                let (file_system, measurement, training) = match judged {
                    Some(judged) => (Some(judged.file_system), Some(judged.measurement), judged.training),
                    None => (None, None, None),
                };
                let storage = StorageView {
                    directory: given(subject.directory),
                    dataset: subject.dataset,
                    dataset_name: given(subject.dataset_name),
                    file_system,
                    measurement,
                    training,
                    past: None,
                };
                (None, 0, Some(storage))
            }
        };
        Self {
            id: run.id,
            owner: run.owner_name,
            job: run.job,
            kind,
            level,
            gpus,
            storage,
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

/// Lists your tests of GPUs and storage, newest first. Operators see those of all users.
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

/// Tests storage: how fast a folder is, and whether a dataset is read fast enough for training. A job of yours measures,
/// without a GPU.
///
/// It writes a large file and many small ones into the folder, at most a tenth of its free space, and removes them. With
/// `dataset` it also reads the dataset as a training does, and compares with trainings on it.
#[utoipa::path(post, path = "/diagnostics/storage", tag = "diagnostics", request_body = NewStorageTest,
    responses((status = 201, body = DiagnosticsView),
        (status = 409, description = "The quota does not allow the job", body = Problem),
        (status = 422, description = "Validation failed", body = Problem),
        (status = 503, description = "Your files cannot be reached", body = Problem)))]
pub async fn start_storage(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(new): Json<NewStorageTest>,
) -> Result<Created<DiagnosticsView>> {
    let run = portal.diagnostics.start_storage(user.actor(), new).await?;
    Ok(Created(format!("/api/v1/diagnostics/{}", run.id), run.into()))
}

/// Returns a test with its verdicts and measurements.
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
    let mut view = DiagnosticsView { results, ..DiagnosticsView::from(run) };
    if let Some(storage) = &mut view.storage {
        storage.past = match &storage.file_system {
            Some(file_system) => Some(portal.diagnostics.past_storage(&file_system.id, Some(id)).await?),
            None => Some(Vec::new()),
        };
    }
    Ok(axum::Json(view))
}

/// Cancels a test. What was measured until then is not judged.
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
