//! Models over REST: what `/api/v1/models` takes and answers. What they are asked about is in
//! `ask`, the pages are in `pages`; all call the same service.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub mod ask;
pub mod form;
pub mod judged;
pub mod pages;
pub mod precisions;
pub mod preview;
pub mod routes;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    error::{Created, Error, Problem, Result},
    extract::{CurrentUser, HashedJson, Id, IdempotencyKey, Json, Query},
    paging::{Listed, Paging},
};
use crate::{
    db::models::ModelFilter,
    model::{
        Dataset, DatasetId, DescriptionChanges, FieldError, JobId, Model, ModelId, Timestamp,
        files::RawPath,
        job::Visibility,
        trained::{ModelState, Speed},
    },
    models::{self, Evaluation, NewModel, Predictions, Snapshots, Wanted, policy::Curve, schema},
};

/// A model: what a training job trains.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Model)]
pub struct ModelView {
    #[schema(value_type = String, format = "uuid")]
    pub id: ModelId,
    /// The owner's name.
    pub owner: String,
    pub name: String,
    /// `classification`, `detection` or `segmentation`.
    pub kind: String,
    pub network: String,
    /// Where its snapshots, curves and measures lie; empty before its job is known.
    pub directory: String,
    /// What it learns from; it may be gone.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub dataset: Option<DatasetId>,
    /// What it went on from, and which snapshot of that; it may be gone.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub parent: Option<ModelId>,
    pub parent_snapshot: Option<String>,
    /// What trains it; it may be gone. Cancel and resume that.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    pub state: ModelState,
    /// Why it failed.
    pub detail: String,
    /// What decides which snapshot is the best, and its value; null before the end.
    pub metric: Option<String>,
    pub best: Option<f64>,
    /// How many snapshots are kept, as of the end of its training.
    pub snapshots: i64,
    /// How fast its training was, and on what; null before the end.
    pub speed: Option<Speed>,
    /// Where to download its bundle, as a tar archive, once it is trained.
    pub bundle: Option<String>,
    pub visibility: Visibility,
    pub notes: String,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = "date-time")]
    pub changed_at: Timestamp,
    /// The trainer's configuration; lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub config: Option<Value>,
    /// Its network in Python, where it is one of its owner's own that you may read; lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

impl From<Model> for ModelView {
    fn from(one: Model) -> Self {
        let bundle = (one.state == ModelState::Trained).then(|| format!("/api/v1/models/{}/bundle", one.id));
        let (parent, parent_snapshot) = one.parent.unzip();
        Self {
            id: one.id,
            owner: one.owner_name,
            name: one.name,
            kind: one.kind,
            network: one.network,
            directory: one.directory,
            dataset: one.dataset,
            parent,
            parent_snapshot,
            job: one.job,
            state: one.state,
            detail: one.detail,
            metric: Some(one.metric).filter(|metric| !metric.is_empty()),
            best: one.best,
            snapshots: one.snapshots,
            speed: one.speed,
            bundle,
            visibility: one.visibility,
            notes: one.notes,
            created_at: one.created_at,
            changed_at: one.changed_at,
            config: None,
            program: None,
        }
    }
}

/// The folder of its bundle.
pub fn bundle_of(model: &Model) -> RawPath {
    RawPath::from(format!("{}/bundle", model.directory).as_str())
}

/// `?search=&dataset=&own=` of the list, with paging.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ModelParameters {
    /// Only those that learnt from this one.
    #[param(value_type = Option<String>)]
    dataset: Option<String>,
    /// One's own alone, without those that others show.
    own: Option<bool>,
    /// A part of the name.
    search: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

/// One's own models and those that others show, newest first.
#[utoipa::path(get, path = "/models", tag = "models", params(ModelParameters),
    responses((status = 200, body = Listed<ModelView>)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<ModelParameters>,
) -> Result<Listed<ModelView>> {
    let paging = Paging::new(parameters.limit, parameters.cursor);
    let limit = paging.limit()?;
    let dataset = match parameters.dataset.as_deref() {
        None | Some("") => None,
        Some(id) => {
            Some(id.parse().map_err(|_err| Error::field("dataset", "invalid_value", "This is no dataset's id."))?)
        }
    };
    let filter = ModelFilter {
        viewer: user.id(),
        own: parameters.own == Some(true),
        dataset,
        parent: None,
        find: parameters.search.as_deref().unwrap_or_default(),
        before: paging.after()?,
        limit: limit + 1,
    };
    let found = portal.models.list(filter).await?;
    Ok(Listed::new(found.into_iter().map(ModelView::from).collect(), limit, |view: &ModelView| view.id))
}

/// Train a model: a job trains it as you.
#[utoipa::path(post, path = "/models", tag = "models", request_body = NewModel,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked twice with one key, it is trained once.")),
    responses((status = 201, body = ModelView),
        (status = 409, description = "The dataset is not there yet, or the quota does not allow the job", body = Problem),
        (status = 422, description = "Fields cannot be so", body = Problem)))]
pub async fn create(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value, hash }: HashedJson<NewModel>,
) -> Result<Created<ModelView>> {
    let made = train(&portal, &user, value, key.as_deref().map(|key| (key, hash.as_str()))).await?;
    Ok(Created(format!("/api/v1/models/{}", made.id), made.into()))
}

/// For the API and the form: a dataset that this person does not see is a fault of the field.
async fn train(portal: &Portal, user: &CurrentUser, new: NewModel, once: Option<(&str, &str)>) -> Result<Model> {
    let dataset = dataset_of(portal, user, &new).await?;
    Ok(portal.models.train(user.actor(), &dataset, new, once).await?)
}

async fn dataset_of(portal: &Portal, user: &CurrentUser, new: &NewModel) -> Result<Dataset> {
    match portal.datasets.find(user.actor(), new.dataset).await {
        Ok(dataset) => Ok(dataset),
        Err(crate::datasets::Error::NotFound) => Err(Error::field("dataset", "not_found", "There is no such dataset.")),
        Err(error) => Err(error.into()),
    }
}

#[utoipa::path(get, path = "/models/{id}", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = ModelView), (status = 404, description = "There is none that you may see", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<ModelView>> {
    let found = portal.models.find(user.actor(), id).await?;
    let config = portal.models.config(&found).await?;
    // Who may not read its files sees the rest.
    let program = portal.models.program(&user.user, &found, &config).await.unwrap_or_default();
    Ok(axum::Json(ModelView { config: Some(config), program, ..found.into() }))
}

/// Change name, notes or visibility of one's own.
#[utoipa::path(patch, path = "/models/{id}", tag = "models", params(("id" = String, Path)), request_body = DescriptionChanges,
    responses((status = 200, body = ModelView), (status = 404, description = "There is none of yours", body = Problem),
        (status = 422, description = "Fields cannot be so", body = Problem)))]
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Json(changes): Json<DescriptionChanges>,
) -> Result<axum::Json<ModelView>> {
    Ok(axum::Json(portal.models.change(user.actor(), id, changes).await?.into()))
}

/// Whether the directory goes too.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ModelRemoval {
    /// Delete its directory as well: snapshots, curves, bundle.
    files: Option<bool>,
}

/// Forget one's own model; its job stays.
#[utoipa::path(delete, path = "/models/{id}", tag = "models", params(("id" = String, Path), ModelRemoval),
    responses((status = 204, description = "Forgotten"), (status = 404, description = "There is none of yours", body = Problem),
        (status = 409, description = "It is being trained", body = Problem)))]
pub async fn remove(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(parameters): Query<ModelRemoval>,
) -> Result<Response> {
    portal.models.remove(user.actor(), id, parameters.files == Some(true)).await?;
    Ok(NoContent.into_response())
}

/// Its snapshots, with what they measured on validation.
#[utoipa::path(get, path = "/models/{id}/snapshots", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = Snapshots), (status = 404, description = "There is none that you may see", body = Problem),
        (status = 503, description = "Its files cannot be reached", body = Problem)))]
pub async fn snapshots(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<Snapshots>> {
    let model = portal.models.find(user.actor(), id).await?;
    Ok(axum::Json(portal.models.snapshots(&user.user, &model).await?.unwrap_or_default()))
}

/// Which pictures.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PredictionParameters {
    /// `val`, which is usual, or `test`.
    #[param(required = false)]
    pub split: String,
    /// Only pictures of this class.
    #[param(required = false)]
    pub label: String,
    /// Only those that were taken for this one.
    #[param(required = false)]
    pub predicted: String,
    /// Only those that were taken for another class.
    #[param(required = false)]
    pub wrong: bool,
    #[param(minimum = 1, maximum = 500, default = 50)]
    pub limit: Option<usize>,
}

impl PredictionParameters {
    pub fn split(&self) -> Result<&str> {
        measured(&self.split)
    }

    pub fn wanted(&self, usual: usize) -> Result<Wanted> {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let limit = self.limit.unwrap_or(usual);
        if !(1..=500).contains(&limit) {
            return Err(Error::field("limit", "out_of_range", "Between 1 and 500."));
        }
        Ok(Wanted { label: text(&self.label), predicted: text(&self.predicted), wrong: self.wrong, limit })
    }
}

/// A split that is measured.
fn measured(split: &str) -> Result<&str> {
    match split {
        "" => Ok("val"),
        split @ ("val" | "test") => Ok(split),
        _ => Err(Error::field("split", "invalid_value", "One of val, test.")),
    }
}

/// `?split=` of an evaluation.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EvaluationParameters {
    /// `val`, which is usual, or `test`.
    #[param(required = false)]
    split: String,
}

impl EvaluationParameters {
    fn split(&self) -> Result<&str> {
        measured(&self.split)
    }
}

const NOT_MEASURED: &str =
    "This has not been measured: the training has not come to its end, or its data have no such split.";

/// What the best snapshot says of pictures that it was not trained on.
#[utoipa::path(get, path = "/models/{id}/evaluation", tag = "models", params(("id" = String, Path), EvaluationParameters),
    responses((status = 200, body = Evaluation), (status = 404, description = "There is none that you may see", body = Problem),
        (status = 409, description = "It has not been measured", body = Problem),
        (status = 503, description = "Its files cannot be reached", body = Problem)))]
pub async fn evaluation(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(asked): Query<EvaluationParameters>,
) -> Result<axum::Json<Evaluation>> {
    let model = portal.models.find(user.actor(), id).await?;
    let found = portal.models.evaluation(&user.user, &model, asked.split()?).await?;
    found.map(axum::Json).ok_or_else(|| Error::conflict(NOT_MEASURED))
}

/// Pictures that it was not trained on with its answers, what it judged worst first.
#[utoipa::path(get, path = "/models/{id}/predictions", tag = "models", params(("id" = String, Path), PredictionParameters),
    responses((status = 200, body = Predictions), (status = 404, description = "There is none that you may see", body = Problem),
        (status = 409, description = "It has not been measured", body = Problem),
        (status = 503, description = "Its files cannot be reached", body = Problem)))]
pub async fn predictions(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(asked): Query<PredictionParameters>,
) -> Result<axum::Json<Predictions>> {
    let model = portal.models.find(user.actor(), id).await?;
    let found = portal.models.predictions(&user.user, &model, asked.split()?, asked.wanted(50)?).await?;
    found.map(axum::Json).ok_or_else(|| Error::conflict(NOT_MEASURED))
}

/// The learning rate over a training, from `learning_rate` of its configuration.
#[utoipa::path(post, path = "/models/learning-rate", tag = "models", request_body = Object,
    responses((status = 200, body = Curve), (status = 422, description = "Fields cannot be so", body = Problem)))]
pub async fn learning_rate(_user: CurrentUser, Json(rate): Json<Value>) -> Result<axum::Json<Curve>> {
    let whole = serde_json::json!({"output": ".", "data": {"kind": "dataset"}, "learning_rate": rate});
    let faults = schema::faults(&whole, "");
    if !faults.is_empty() {
        return Err(Error::invalid(faults.into_iter().map(below_rate).collect()));
    }
    Ok(axum::Json(models::policy::curve(&rate)))
}

fn below_rate(fault: FieldError) -> FieldError {
    let field = fault.field.strip_prefix("learning_rate.").unwrap_or("learning_rate").to_owned();
    FieldError { field, ..fault }
}
