//! What is told of a model beyond its metrics: where it comes from, what it would answer if it
//! only spoke when it is sure, what it is made of, and where its bundle is.

use std::sync::Arc;

use axum::{
    extract::{RawPathParams, State},
    http::Method,
    response::Response,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{EvaluationParameters, NOT_MEASURED, bundle_of};
use crate::{
    datasets::preview,
    model::{Model, ModelId},
    models::{Curves, Layers, Lineage, SPLITS, Scaling, Thresholds},
    web::{
        Portal,
        datasets::items::png,
        files::content,
        http::{
            error::{Error, Problem, Result},
            extract::{CurrentUser, Id, Query},
        },
    },
};

/// A model in a lineage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelRelative)]
pub struct RelativeView {
    #[schema(value_type = String, format = "uuid")]
    pub id: ModelId,
    pub name: String,
    /// The checkpoint that was fine-tuned.
    pub snapshot: String,
}

/// The models that a model was fine-tuned from and the models fine-tuned from it, as far as they are visible to you.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelLineage)]
pub struct LineageView {
    /// Models that it was fine-tuned from, the oldest first.
    pub ancestors: Vec<RelativeView>,
    /// Models that were fine-tuned from it, the newest first.
    pub children: Vec<RelativeView>,
}

impl From<Lineage> for LineageView {
    fn from(found: Lineage) -> Self {
        let view = |(one, snapshot): (Model, String)| RelativeView { id: one.id, name: one.name, snapshot };
        let child = |one: Model| {
            let snapshot = one.parent.clone().map(|(_, file)| file).unwrap_or_default();
            view((one, snapshot))
        };
        Self {
            children: found.children.into_iter().map(child).collect(),
            ancestors: found.ancestors.into_iter().map(view).collect(),
        }
    }
}

/// Returns the models that it was fine-tuned from, and those fine-tuned from it.
#[utoipa::path(get, path = "/models/{id}/lineage", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = LineageView), (status = 404, description = "Not found, or not visible to you", body = Problem)))]
pub async fn lineage(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<LineageView>> {
    let model = portal.models.find(user.actor(), id).await?;
    Ok(axum::Json(portal.models.lineage(user.actor(), &model).await?.into()))
}

/// Returns the predictions of a classifier at each confidence threshold.
#[utoipa::path(get, path = "/models/{id}/thresholds", tag = "models", params(("id" = String, Path), EvaluationParameters),
    responses((status = 200, body = Thresholds), (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 409, description = "The model has not been evaluated on this split", body = Problem),
        (status = 503, description = "The files of the model cannot be reached", body = Problem)))]
pub async fn thresholds(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(asked): Query<EvaluationParameters>,
) -> Result<axum::Json<Thresholds>> {
    let model = portal.models.find(user.actor(), id).await?;
    let found = portal.models.thresholds(&user.user, &model, asked.split()?).await?;
    found.map(axum::Json).ok_or_else(|| Error::conflict(NOT_MEASURED))
}

/// Returns the curves of the best checkpoint: ROC, precision-recall, calibration.
#[utoipa::path(get, path = "/models/{id}/curves", tag = "models", params(("id" = String, Path), EvaluationParameters),
    responses((status = 200, body = Curves), (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 409, description = "The model has not been evaluated on this split, or its task has no curves", body = Problem),
        (status = 503, description = "The files of the model cannot be reached", body = Problem)))]
pub async fn curves(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(asked): Query<EvaluationParameters>,
) -> Result<axum::Json<Curves>> {
    let model = portal.models.find(user.actor(), id).await?;
    let found = portal.models.curves(&user.user, &model, asked.split()?).await?;
    found.map(axum::Json).ok_or_else(|| Error::conflict(NOT_MEASURED))
}

/// Returns a predicted mask as PNG in the colours of the classes, or the output of a reconstruction. Its address is
/// `mask` or `image` of a prediction.
#[utoipa::path(get, path = "/models/{id}/masks/{split}/{number}", tag = "models",
    params(("id" = String, Path), ("split" = String, Path), ("number" = u16, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "image/png"),
        (status = 404, description = "Not found", body = Problem)))]
pub async fn mask(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    parameters: RawPathParams,
) -> Result<Response> {
    let word = |wanted: &str| parameters.iter().find(|(name, _)| *name == wanted).map(|(_, word)| word);
    let split = word("split").filter(|split| SPLITS.contains(split)).ok_or_else(Error::not_found)?;
    let number = word("number").and_then(|word| word.parse().ok()).ok_or_else(Error::not_found)?;
    let model = portal.models.find(user.actor(), id).await?;
    let bytes = portal.models.mask(&user.user, &model, split, number).await?.ok_or_else(Error::not_found)?;
    let is_image = model.kind == "reconstruction";
    let draw = move || if is_image { preview::redrawn(&bytes) } else { preview::coloured(&bytes) };
    let drawn = tokio::task::spawn_blocking(draw).await.ok().flatten();
    Ok(png(drawn.ok_or_else(Error::not_found)?))
}

/// Returns the layers of the network with parameters, multiply-accumulates and the memory of a training step.
#[utoipa::path(get, path = "/models/{id}/layers", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = Layers), (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 409, description = "The training has not built the network yet", body = Problem),
        (status = 503, description = "The files of the model cannot be reached", body = Problem)))]
pub async fn layers(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<Layers>> {
    let model = portal.models.find(user.actor(), id).await?;
    let found = portal.models.layers(&user.user, &model).await?;
    found.map(axum::Json).ok_or_else(|| Error::conflict("The training has not built the network yet."))
}

/// Returns the throughput of the same training on other numbers of devices.
#[utoipa::path(get, path = "/models/{id}/scaling", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = Scaling), (status = 404, description = "Not found, or not visible to you", body = Problem)))]
pub async fn scaling(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<Scaling>> {
    let model = portal.models.find(user.actor(), id).await?;
    Ok(axum::Json(portal.models.scaling(user.actor(), &model).await?))
}

/// The bundle of which checkpoint.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct BundleParameters {
    /// A checkpoint from `GET /models/{id}/exports`. Default: the best, exported at the end of the training.
    #[param(required = false)]
    snapshot: String,
}

/// Returns a bundle as a tar archive: model, labels, preprocessing, model card and checksums.
#[utoipa::path(get, path = "/models/{id}/bundle", tag = "models", params(("id" = String, Path), BundleParameters),
    responses((status = 200, description = "The archive", body = Vec<u8>, content_type = "application/x-tar"),
        (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 409, description = "The training has not completed, or the checkpoint was not exported", body = Problem),
        (status = 503, description = "The files of the model cannot be reached", body = Problem)))]
pub async fn bundle(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    method: Method,
    Id(id): Id<ModelId>,
    Query(asked): Query<BundleParameters>,
) -> Result<Response> {
    let model = portal.models.find(user.actor(), id).await?;
    let snapshot = Some(asked.snapshot.as_str()).filter(|snapshot| !snapshot.is_empty());
    match snapshot {
        None if !portal.models.has_bundle(&user.user, &model).await? => {
            return Err(Error::conflict("There is no bundle because the training has not completed."));
        }
        Some(snapshot) if !portal.models.is_exported(&user.user, &model, snapshot).await? => {
            return Err(Error::conflict("This checkpoint has not been exported yet. Export it first."));
        }
        _ => {}
    }
    let (spot, _) = portal.files.look(&user.user, &bundle_of(&model, snapshot)).await?;
    content::archive(&portal, &user, &method, &spot).await
}
