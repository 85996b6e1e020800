//! What is told of a model beyond its metrics: where it comes from, what it would answer if it
//! only spoke when it is sure, what it is made of, and where its bundle is.

use std::sync::Arc;

use axum::{extract::State, http::Method, response::Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::{EvaluationParameters, NOT_MEASURED, bundle_of};
use crate::{
    model::{Model, ModelId},
    models::{Layers, Lineage, Scaling, Thresholds},
    web::{
        Portal,
        error::{Error, Problem, Result},
        extract::{CurrentUser, Id, Query},
        files::content,
    },
};

/// A model of the lineage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelRelative)]
pub struct RelativeView {
    #[schema(value_type = String, format = "uuid")]
    pub id: ModelId,
    pub name: String,
    /// The snapshot that was gone on from.
    pub snapshot: String,
}

/// Where a model comes from and what became of it, as far as that is shown to you.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelLineage)]
pub struct LineageView {
    /// What it went on from, the first of all first.
    pub ancestors: Vec<RelativeView>,
    /// What went on from it, the latest first.
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

/// Which models it went on from, and which went on from it.
#[utoipa::path(get, path = "/models/{id}/lineage", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = LineageView), (status = 404, description = "There is none that you may see", body = Problem)))]
pub async fn lineage(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<LineageView>> {
    let model = portal.models.find(user.actor(), id).await?;
    Ok(axum::Json(portal.models.lineage(user.actor(), &model).await?.into()))
}

/// Of a classifier: how many pictures it would answer, and how many rightly, from which confidence on.
#[utoipa::path(get, path = "/models/{id}/thresholds", tag = "models", params(("id" = String, Path), EvaluationParameters),
    responses((status = 200, body = Thresholds), (status = 404, description = "There is none that you may see", body = Problem),
        (status = 409, description = "It has not been measured", body = Problem),
        (status = 503, description = "Its files cannot be reached", body = Problem)))]
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

/// The layers of its network, with parameters, multiply-accumulates, and the memory that a step takes.
#[utoipa::path(get, path = "/models/{id}/layers", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = Layers), (status = 404, description = "There is none that you may see", body = Problem),
        (status = 409, description = "Its training has not built it yet", body = Problem),
        (status = 503, description = "Its files cannot be reached", body = Problem)))]
pub async fn layers(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<Layers>> {
    let model = portal.models.find(user.actor(), id).await?;
    let found = portal.models.layers(&user.user, &model).await?;
    found.map(axum::Json).ok_or_else(|| Error::conflict("Its training has not built it yet."))
}

/// How trainings of the same network on the same dataset went on other numbers of devices.
#[utoipa::path(get, path = "/models/{id}/scaling", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = Scaling), (status = 404, description = "There is none that you may see", body = Problem)))]
pub async fn scaling(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<Scaling>> {
    let model = portal.models.find(user.actor(), id).await?;
    Ok(axum::Json(portal.models.scaling(user.actor(), &model).await?))
}

/// Its bundle as a tar archive: the model, its labels, preprocessing, card and checksums.
#[utoipa::path(get, path = "/models/{id}/bundle", tag = "models", params(("id" = String, Path)),
    responses((status = 200, description = "The archive", body = Vec<u8>, content_type = "application/x-tar"),
        (status = 404, description = "There is none that you may see", body = Problem),
        (status = 409, description = "Its training has not come to its end", body = Problem),
        (status = 503, description = "Its files cannot be reached", body = Problem)))]
pub async fn bundle(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    method: Method,
    Id(id): Id<ModelId>,
) -> Result<Response> {
    let model = portal.models.find(user.actor(), id).await?;
    if !portal.models.has_bundle(&user.user, &model).await? {
        return Err(Error::conflict("There is no bundle: its training has not come to its end."));
    }
    let (spot, _) = portal.files.look(&user.user, &bundle_of(&model)).await?;
    content::archive(&portal, &user, &method, &spot).await
}
