//! Models over REST: what `/api/v1/models` takes and answers. What they are asked about is in
//! `ask`, the pages are in `pages`; all call the same service.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub mod bundles;
pub mod details;
pub mod form;
pub mod pages;
pub mod precisions;
pub mod prediction;
pub mod preview;
pub mod routes;

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        error::{Created, Error, Problem, Result},
        extract::{CurrentUser, HashedJson, Id, IdempotencyKey, Json, Query},
        paging::{Listed, Paging},
        sorting::Sorting,
    },
};
use crate::{
    db::models::{ModelFilter, SORT_COLUMNS},
    model::{
        Dataset, DatasetId, DescriptionChanges, FieldError, JobId, Model, ModelId, Timestamp,
        files::RawPath,
        job::Visibility,
        trained::{ModelState, Speed},
    },
    models::{
        self, Evaluation, NewModel, Prediction, PredictionQuery, Predictions, Snapshots, TrainingProgress,
        network_code, policy::Curve, schema,
    },
};

/// A model that a job trains.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Model)]
pub struct ModelView {
    #[schema(value_type = String, format = "uuid")]
    pub id: ModelId,
    /// Name of the owner.
    pub owner: String,
    pub name: String,
    /// `classification`, `detection`, `segmentation`, `regression` or `reconstruction`.
    pub kind: String,
    pub network: String,
    /// Directory of the checkpoints, curves and evaluation; empty until the job is submitted.
    pub directory: String,
    /// The dataset, if it still exists.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub dataset: Option<DatasetId>,
    /// The model that it was fine-tuned from, if it still exists. `parent_snapshot` is the checkpoint.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub parent: Option<ModelId>,
    pub parent_snapshot: Option<String>,
    /// The training job, if it still exists. To cancel or resume the training, cancel or resume this job.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    pub state: ModelState,
    /// Reason of the failure; empty otherwise.
    pub detail: String,
    /// The metric that selects the best checkpoint. `best` is its value. Null until the training ends.
    pub metric: Option<String>,
    pub best: Option<f64>,
    /// Number of checkpoints that were kept at the end of the training.
    pub snapshots: i64,
    /// Throughput and devices of the training; null until it ends.
    pub speed: Option<Speed>,
    /// Address of the bundle as a tar archive; null until the model is trained.
    pub bundle: Option<String>,
    pub visibility: Visibility,
    pub notes: String,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = "date-time")]
    pub changed_at: Timestamp,
    /// The trainer's configuration. Not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub config: Option<Value>,
    /// Progress of your training while its job runs. Not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub progress: Option<TrainingProgress>,
    /// The custom network in Python, if the model has one and you may read it. Not included in lists.
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
            progress: None,
            program: None,
        }
    }
}

/// Returns the folder of its bundle, or of the export of a checkpoint.
pub fn bundle_of(model: &Model, snapshot: Option<&str>) -> RawPath {
    let folder = snapshot.map_or_else(|| "bundle".to_owned(), models::export_folder);
    RawPath::from(format!("{}/{folder}", model.directory).as_str())
}

/// Filters and paging of the list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ModelParameters {
    /// Only models that were trained on this dataset.
    #[param(value_type = Option<String>)]
    dataset: Option<String>,
    /// Only your own models, without those that other users share.
    own: Option<bool>,
    /// Part of the name.
    search: Option<String>,
    /// `created`, `name`, `network` or `checkpoints`, with a minus in front for the opposite order; by default `-created`.
    #[param(example = "-created")]
    sort: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

/// Lists your models and those that other users share with you, newest first.
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
        Some(id) => Some(
            id.parse().map_err(|_err| Error::field("dataset", "invalid_value", "This is not the id of a dataset."))?,
        ),
    };
    let sorting = Sorting::asked(&SORT_COLUMNS, parameters.sort.as_deref())?;
    let position = sorting.position(&paging)?;
    let filter = ModelFilter {
        viewer: user.id(),
        own: parameters.own == Some(true),
        dataset,
        parent: None,
        find: parameters.search.as_deref().unwrap_or_default(),
        sort: sorting.sort(&position),
        before: position.before,
        limit: limit + 1,
    };
    let found = portal.models.list(filter).await?;
    let found = found.into_iter().map(|(one, value)| (ModelView::from(one), value));
    Ok(sorting.listed(found.collect(), limit, |view: &ModelView| view.id))
}

/// Starts a training. A job of yours trains the model.
#[utoipa::path(post, path = "/models", tag = "models", request_body = NewModel,
    params(("Idempotency-Key" = Option<String>, Header, description = "Requests that repeat a key return the first result.")),
    responses((status = 201, body = ModelView),
        (status = 409, description = "The dataset is not ready, or the quota does not allow the job", body = Problem),
        (status = 422, description = "Validation failed", body = Problem)))]
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
        Err(crate::datasets::Error::NotFound) => Err(Error::field("dataset", "not_found", "Dataset not found.")),
        Err(error) => Err(error.into()),
    }
}

/// Returns a model with its configuration.
#[utoipa::path(get, path = "/models/{id}", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = ModelView), (status = 404, description = "Not found, or not visible to you", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<ModelView>> {
    let found = portal.models.find(user.actor(), id).await?;
    let config = portal.models.config(&found).await?;
    // Who may not read its files sees the rest.
    let program = portal.models.program(&user.user, &found, &config).await.unwrap_or_default();
    let progress = portal.models.training_progress(user.actor(), &found).await?;
    Ok(axum::Json(ModelView { config: Some(config), progress, program, ..found.into() }))
}

/// Changes name, notes or visibility of your model.
#[utoipa::path(patch, path = "/models/{id}", tag = "models", params(("id" = String, Path)), request_body = DescriptionChanges,
    responses((status = 200, body = ModelView), (status = 404, description = "Not found, or not yours", body = Problem),
        (status = 422, description = "Validation failed", body = Problem)))]
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Json(changes): Json<DescriptionChanges>,
) -> Result<axum::Json<ModelView>> {
    Ok(axum::Json(portal.models.change(user.actor(), id, changes).await?.into()))
}

/// Options for removal.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ModelRemoval {
    /// Also delete the directory of the model with its checkpoints, curves and bundle.
    files: Option<bool>,
}

/// Removes your model from the list, and with `files=true` its directory. The training job is kept.
#[utoipa::path(delete, path = "/models/{id}", tag = "models", params(("id" = String, Path), ModelRemoval),
    responses((status = 204, description = "Removed"), (status = 404, description = "Not found, or not yours", body = Problem),
        (status = 409, description = "The model is being trained", body = Problem)))]
pub async fn remove(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(parameters): Query<ModelRemoval>,
) -> Result<Response> {
    portal.models.remove(user.actor(), id, parameters.files == Some(true)).await?;
    Ok(NoContent.into_response())
}

/// Lists the checkpoints with their metrics on the validation split.
#[utoipa::path(get, path = "/models/{id}/snapshots", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = Snapshots), (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 503, description = "The files of the model cannot be reached", body = Problem)))]
pub async fn snapshots(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<Snapshots>> {
    let model = portal.models.find(user.actor(), id).await?;
    Ok(axum::Json(portal.models.snapshots(&user.user, &model).await?.unwrap_or_default()))
}

/// Filter of the predictions. For detection and segmentation a class counts for an image in which it is or was found.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PredictionParameters {
    /// `val` (default) or `test`.
    #[param(required = false)]
    pub split: String,
    /// Only images of this class.
    #[param(required = false)]
    pub label: String,
    /// Only images that were predicted as this class.
    #[param(required = false)]
    pub predicted: String,
    /// Only images with errors: misclassified, with missed or extra boxes, or with a mean `IoU` below 0.5.
    #[param(required = false)]
    pub wrong: bool,
    #[param(minimum = 1, maximum = 500, default = 50)]
    pub limit: Option<usize>,
}

impl PredictionParameters {
    pub fn split(&self) -> Result<&str> {
        measured(&self.split)
    }

    pub fn wanted(&self, usual: usize) -> Result<PredictionQuery> {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let limit = self.limit.unwrap_or(usual);
        if !(1..=500).contains(&limit) {
            return Err(Error::field("limit", "out_of_range", "Must be between 1 and 500."));
        }
        Ok(PredictionQuery { label: text(&self.label), predicted: text(&self.predicted), wrong: self.wrong, limit })
    }
}

/// A split that is measured.
fn measured(split: &str) -> Result<&str> {
    match split {
        "" => Ok("val"),
        split @ ("val" | "test") => Ok(split),
        _ => Err(Error::field("split", "invalid_value", "Must be one of val, test.")),
    }
}

/// Split of an evaluation.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EvaluationParameters {
    /// `val` (default) or `test`.
    #[param(required = false)]
    split: String,
}

impl EvaluationParameters {
    fn split(&self) -> Result<&str> {
        measured(&self.split)
    }
}

const NOT_MEASURED: &str =
    "There is no evaluation: the training has not ended, or the dataset does not have this split.";

/// Returns the evaluation of the best checkpoint on images that it was not trained on.
#[utoipa::path(get, path = "/models/{id}/evaluation", tag = "models", params(("id" = String, Path), EvaluationParameters),
    responses((status = 200, body = Evaluation), (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 409, description = "The model has not been evaluated on this split", body = Problem),
        (status = 503, description = "The files of the model cannot be reached", body = Problem)))]
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

/// Lists predictions of the best checkpoint on images that it was not trained on, the worst first.
///
/// The fields of an item depend on its `kind`: classes with scores, boxes beside the true ones, or the
/// share of each class with a mask.
#[utoipa::path(get, path = "/models/{id}/predictions", tag = "models", params(("id" = String, Path), PredictionParameters),
    responses((status = 200, body = Predictions), (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 409, description = "The model has not been evaluated on this split", body = Problem),
        (status = 503, description = "The files of the model cannot be reached", body = Problem)))]
pub async fn predictions(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(asked): Query<PredictionParameters>,
) -> Result<axum::Json<Predictions>> {
    let model = portal.models.find(user.actor(), id).await?;
    let split = asked.split()?;
    let found = portal.models.predictions(&user.user, &model, split, asked.wanted(50)?).await?;
    let mut found = found.ok_or_else(|| Error::conflict(NOT_MEASURED))?;
    for one in &mut found.items {
        address_mask(one, id, split);
    }
    Ok(axum::Json(found))
}

/// Replaces the file of a mask or an output by its address.
fn address_mask(one: &mut Prediction, model: ModelId, split: &str) {
    let file = match one {
        Prediction::Segmentation(one) => &mut one.mask,
        Prediction::Reconstruction(one) => &mut one.image,
        _ => return,
    };
    let number = file.as_deref().and_then(|file| file.strip_prefix("masks/")?.strip_suffix(".png")?.parse().ok());
    *file = number.map(|number: u16| format!("/api/v1/models/{model}/masks/{split}/{number}"));
}

/// A built-in network.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Network)]
pub struct NetworkView {
    pub name: String,
    /// The tasks that it is for.
    pub tasks: Vec<String>,
    /// The Python that builds it: complete as `program` of a new model.
    pub program: String,
}

/// Returns a built-in network as a program that can be changed and trained as a custom network.
#[utoipa::path(get, path = "/models/networks/{name}", tag = "models", params(("name" = String, Path)),
    responses((status = 200, body = NetworkView), (status = 404, description = "There is no such network", body = Problem)))]
pub async fn network(_user: CurrentUser, Path(name): Path<String>) -> Result<axum::Json<NetworkView>> {
    let program = network_code::of(&name).ok_or_else(Error::not_found)?;
    let mut tasks: Vec<String> = Vec::new();
    for task in ["classification", "segmentation", "detection"].iter().flat_map(|kind| models::tasks(kind)) {
        if models::networks(task).contains(&name.as_str()) && !tasks.iter().any(|known| known == task) {
            tasks.push((*task).to_owned());
        }
    }
    Ok(axum::Json(NetworkView { name, tasks, program }))
}

/// Returns the learning rate over a training for the `learning_rate` part of a configuration.
#[utoipa::path(post, path = "/models/learning-rate", tag = "models", request_body = Object,
    responses((status = 200, body = Curve), (status = 422, description = "Validation failed", body = Problem)))]
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
