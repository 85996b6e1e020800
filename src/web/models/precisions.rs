//! A model in fewer bits, over REST and by the form on its page: a job of its owner measures
//! latency, throughput and metrics; whoever may read the model's files reads what it found.

use std::sync::Arc;

use axum::{extract::State, response::Redirect};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    model::{JobId, Model, ModelId},
    models::{Measured, NewPrecisions, Precisions, Progress},
    web::{
        Portal,
        error::{Created, Problem, Result},
        extract::{CurrentUser, Form, Id, Json},
    },
};

/// A model in 32, 16 and 8 bits.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelPrecisions)]
pub struct PrecisionsView {
    /// `none` before it is asked for, `waiting`, `measured` or `failed`.
    pub state: &'static str,
    /// What measures, or did last; it may be gone.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    /// Why the last measurement failed.
    pub detail: String,
    /// How many precisions of how many are measured.
    pub progress: Option<Progress>,
    /// By the last measurement that came to its end.
    pub measured: Option<Measured>,
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

/// What its best snapshot takes and says in float32, float16 and int8, as far as it is measured.
#[utoipa::path(get, path = "/models/{id}/precisions", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = PrecisionsView), (status = 404, description = "There is none that you may see", body = Problem),
        (status = 503, description = "Its files cannot be reached", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<PrecisionsView>> {
    let model = portal.models.find(user.actor(), id).await?;
    let found = portal.models.precisions(user.actor(), &model).await?;
    Ok(axum::Json(PrecisionsView::new(model.precisions_job, found)))
}

/// Have a job measure the best snapshot of one's own model in float32, float16 and int8: latency, throughput, metrics.
#[utoipa::path(post, path = "/models/{id}/precisions", tag = "models", params(("id" = String, Path)), request_body = NewPrecisions,
    responses((status = 201, body = PrecisionsView), (status = 404, description = "There is none of yours", body = Problem),
        (status = 409, description = "It has no snapshot yet, is being measured, or the quota does not allow the job", body = Problem),
        (status = 422, description = "There is no such environment", body = Problem)))]
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
