//! A model in fewer bits, over REST and by the form on its page: a job of its owner measures
//! latency, throughput and metrics; whoever may read the model's files reads what it found.

use std::sync::Arc;

use axum::{extract::State, response::Redirect};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    model::{JobId, Model, ModelId},
    models::{NewPrecisions, PrecisionMeasurement, Precisions, Progress},
    web::{
        Portal,
        http::{
            error::{Created, Problem, Result},
            extract::{CurrentUser, Form, Id, Json},
        },
    },
};

/// A measurement of a model in FP32, FP16 and INT8.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelPrecisions)]
pub struct PrecisionsView {
    /// `none` if no measurement was requested, `waiting`, `measured` or `failed`.
    pub state: &'static str,
    /// The job of the last measurement, if it still exists.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    /// Reason why the last measurement failed.
    pub detail: String,
    /// Progress of the measurement in precisions.
    pub progress: Option<Progress>,
    /// Result of the last completed measurement.
    pub measured: Option<PrecisionMeasurement>,
}

impl PrecisionsView {
    pub fn new(job: Option<JobId>, found: Precisions) -> Self {
        let state = match &found.measured {
            _ if found.is_live => "waiting",
            _ if !found.detail.is_empty() => "failed",
            Some(_) => "measured",
            None => "none",
        };
        Self { state, job, detail: found.detail, progress: found.progress, measured: found.measured }
    }
}

/// Returns latency, throughput and metrics of the best checkpoint in float32, float16 and int8.
#[utoipa::path(get, path = "/models/{id}/precisions", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = PrecisionsView), (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 503, description = "The files of the model cannot be reached", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<PrecisionsView>> {
    let model = portal.models.find(user.actor(), id).await?;
    let found = portal.models.precisions(user.actor(), &model).await?;
    Ok(axum::Json(PrecisionsView::new(model.precisions_job, found)))
}

/// Submits a job that measures the best checkpoint of your model in float32, float16 and int8.
#[utoipa::path(post, path = "/models/{id}/precisions", tag = "models", params(("id" = String, Path)), request_body = NewPrecisions,
    responses((status = 201, body = PrecisionsView), (status = 404, description = "Not found, or not yours", body = Problem),
        (status = 409, description = "The model has no checkpoint yet, a measurement is running, or the quota does not allow the job", body = Problem),
        (status = 422, description = "The environment does not exist", body = Problem)))]
pub async fn measure(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Json(new): Json<NewPrecisions>,
) -> Result<Created<PrecisionsView>> {
    let (_, job) = begin(&portal, &user, id, new).await?;
    let found = Precisions { is_live: true, ..Precisions::default() };
    Ok(Created(format!("/api/v1/models/{id}/precisions"), PrecisionsView::new(Some(job), found)))
}

async fn begin(portal: &Portal, user: &CurrentUser, id: ModelId, new: NewPrecisions) -> Result<(Model, JobId)> {
    let model = portal.models.own(user.actor(), id).await?;
    let job = portal.models.measure_precisions(user.actor(), &model, new).await?;
    Ok((model, job.id))
}

/// `POST /models/{id}/precisions`
pub async fn measure_by_form(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    form: Form,
) -> Result<Redirect> {
    let environment = Some(form.get("environment").to_owned());
    begin(&portal, &user, id, NewPrecisions { environment }).await?;
    Ok(Redirect::to(&format!("/models/{id}#precisions")))
}
