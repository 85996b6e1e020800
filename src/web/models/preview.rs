//! What can be looked at before a training: asked for with the request of the training itself,
//! over REST or by another button of the same form. Drawings leave as PNGs that the portal drew itself.

use std::sync::Arc;

use axum::{
    extract::{RawPathParams, State},
    response::{IntoResponse, Redirect, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{form, pages::refused};
use crate::{
    datasets::preview::redrawn,
    model::{Job, JobId},
    models::{Layers, NewModel, Preview, Sample, Side},
    web::{
        Portal,
        datasets::items::png,
        http::{
            error::{Created, Error, Problem, Result},
            extract::{CurrentUser, Form, Id, Json},
        },
        page::{Nav, Page},
        views::{LayerTable, ModelForm, PreviewPage, PreviewPair},
    },
};

/// A preview of a training.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelPreview)]
pub struct PreviewView {
    /// Id of the job that creates the preview.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// `waiting`, `ready` or `failed`.
    pub state: &'static str,
    /// Reason why a part of the preview is missing.
    pub detail: String,
    /// Eight images. `GET …/original-0` and `…/augmented-0` return the first.
    pub samples: Vec<Sample>,
    /// Layers of the network. They follow after the samples.
    pub layers: Option<Layers>,
}

fn state(found: &Preview) -> &'static str {
    match found.layers {
        Some(_) => "ready",
        None if found.is_live => "waiting",
        None => "failed",
    }
}

fn view(id: JobId, found: Preview) -> PreviewView {
    PreviewView { id, state: state(&found), detail: found.detail, samples: found.samples, layers: found.layers }
}

/// Previews a training: eight augmented images and the layers of the network. A job of yours creates the preview.
#[utoipa::path(post, path = "/models/previews", tag = "models", request_body = NewModel,
    responses((status = 201, body = PreviewView),
        (status = 409, description = "The dataset is not ready, or the quota does not allow the job", body = Problem),
        (status = 422, description = "Validation failed", body = Problem)))]
pub async fn ask(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(new): Json<NewModel>,
) -> Result<Created<PreviewView>> {
    let job = begin(&portal, &user, new).await?;
    let found = Preview { is_live: true, ..Preview::default() };
    Ok(Created(format!("/api/v1/models/previews/{}", job.id), view(job.id, found)))
}

async fn begin(portal: &Portal, user: &CurrentUser, new: NewModel) -> Result<Job> {
    let dataset = super::dataset_of(portal, user, &new).await?;
    Ok(portal.models.preview(user.actor(), &dataset, new).await?)
}

/// Returns a preview of yours, as far as it is complete.
#[utoipa::path(get, path = "/models/previews/{id}", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = PreviewView), (status = 404, description = "Not found, or not yours", body = Problem),
        (status = 503, description = "Your files cannot be reached", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
) -> Result<axum::Json<PreviewView>> {
    Ok(axum::Json(view(id, portal.models.previewed(user.actor(), id).await?)))
}

/// Returns an image of a preview as PNG: `original-0` to `original-7`, `augmented-0` to `augmented-7`.
#[utoipa::path(get, path = "/models/previews/{id}/{drawing}", tag = "models",
    params(("id" = String, Path), ("drawing" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "image/png"),
        (status = 404, description = "Not found", body = Problem)))]
pub async fn drawing(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
    parameters: RawPathParams,
) -> Result<Response> {
    let word = parameters.iter().find(|(name, _)| *name == "drawing").map(|(_, word)| word);
    let side = word.and_then(Side::parse).ok_or_else(Error::not_found)?;
    let bytes = portal.models.preview_drawing(user.actor(), id, side).await?;
    let drawn = tokio::task::spawn_blocking(move || redrawn(&bytes)).await.ok().flatten();
    Ok(png(drawn.ok_or_else(Error::not_found)?))
}

/// `POST /models/preview`: the form of a training, looked at before it is sent.
pub async fn ask_by_form(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let id = form.get("dataset").parse().map_err(|_err| Error::not_found())?;
    let typed = ModelForm::read(|name| form.get(name).to_owned());
    match begin(&portal, &user, form::request(&typed, id)).await {
        Ok(job) => Ok(Redirect::to(&format!("/models/previews/{}", job.id)).into_response()),
        Err(error) => refused(&portal, &user, id, typed, error).await,
    }
}

/// `/models/previews/{id}`
pub async fn show(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<JobId>) -> Result<Response> {
    let found = portal.models.previewed(user.actor(), id).await?;
    let api = format!("/api/v1/models/previews/{id}");
    let state = state(&found);
    let pair = |(number, sample): (usize, Sample)| PreviewPair {
        name: sample.label.unwrap_or(sample.path),
        original: format!("{api}/original-{number}"),
        augmented: format!("{api}/augmented-{number}"),
    };
    let view = PreviewPage {
        layout: portal.layout_of(&user.0, Nav::Models),
        job: id.to_string(),
        state,
        detail: found.detail,
        pairs: found.samples.into_iter().enumerate().map(pair).collect(),
        layers: found.layers.as_ref().map(LayerTable::new),
        api,
    };
    Ok(Page(view).into_response())
}
