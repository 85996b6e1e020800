//! Datasets over REST: what `/api/v1/datasets` takes and answers. What is in one is in `items`,
//! the pages are in `pages`; all call the same service.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub mod items;
pub mod pages;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        error::{Accepted, Created, Error, Problem, Result},
        extract::{CurrentUser, HashedJson, Id, IdempotencyKey, Json, Query},
        paging::{Listed, Paging},
        sorting::Sorting,
    },
};
use crate::{
    datasets::{
        self, NewDataset,
        build::inspect::{ClassCount, Inspection},
    },
    db::datasets::{DatasetFilter, SORT_COLUMNS},
    model::{Dataset, DatasetId, DatasetState, DescriptionChanges, JobId, Timestamp, job::Visibility},
};

/// A dataset of images.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Dataset)]
pub struct DatasetView {
    #[schema(value_type = String, format = "uuid")]
    pub id: DatasetId,
    /// Name of the owner.
    pub owner: String,
    pub name: String,
    /// `classification`, `detection` or `segmentation`.
    pub kind: String,
    pub source: String,
    pub directory: String,
    pub state: DatasetState,
    /// Reason of the failure; empty otherwise.
    pub detail: String,
    /// The job that builds the dataset, if it still exists.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    pub visibility: Visibility,
    pub notes: String,
    /// SHA-256 of the manifest. The same seed and files give the same value. Null until the dataset is ready.
    pub manifest_sha256: Option<String>,
    /// Number of images in all splits.
    pub pictures: i64,
    /// Number of files that are in no split.
    pub broken: i64,
    pub classes: i64,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = "date-time")]
    pub changed_at: Timestamp,
    /// The specification. Not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub spec: Option<Value>,
    /// Progress of the build. Not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub progress: Option<Value>,
    /// The content of `dataset.json` (docs/datasets.md), if your account may read it. Not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub contents: Option<Value>,
}

impl From<Dataset> for DatasetView {
    fn from(one: Dataset) -> Self {
        Self {
            id: one.id,
            owner: one.owner_name,
            name: one.name,
            kind: one.kind,
            source: one.source,
            directory: one.directory,
            state: one.state,
            detail: one.detail,
            job: one.job,
            visibility: one.visibility,
            notes: one.notes,
            manifest_sha256: Some(one.manifest_sha256).filter(|hash| !hash.is_empty()),
            pictures: one.pictures,
            broken: one.broken,
            classes: one.classes,
            created_at: one.created_at,
            changed_at: one.changed_at,
            spec: None,
            progress: None,
            contents: None,
        }
    }
}

/// A dataset with what its directory says. Where that cannot be reached, the rest is told.
async fn whole(portal: &Portal, user: &CurrentUser, dataset: Dataset) -> Result<DatasetView> {
    let spec = portal.datasets.spec(&dataset).await?;
    let mut view = DatasetView { spec: serde_json::to_value(&spec).ok(), ..DatasetView::from(dataset.clone()) };
    match dataset.state {
        DatasetState::Ready => {
            let document = portal.datasets.document(&user.user, &dataset).await;
            view.contents = reached(document)?.and_then(|document| serde_json::to_value(document).ok());
        }
        DatasetState::Building => {
            let progress = portal.datasets.progress(&user.user, &dataset).await;
            view.progress = reached(progress)?.and_then(|progress| serde_json::to_value(progress).ok());
        }
        DatasetState::Failed | DatasetState::Cancelled => {}
    }
    Ok(view)
}

/// What a directory says; nothing where this person may not look or it does not answer.
fn reached<T>(found: datasets::Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(datasets::Error::Files(_) | datasets::Error::Wrong(_)) => Ok(None),
        other => Ok(other?),
    }
}

/// Filters and paging of the list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DatasetParameters {
    #[param(value_type = Option<String>)]
    state: Option<String>,
    /// Only your own datasets, without those that other users share.
    own: Option<bool>,
    /// Part of the name.
    search: Option<String>,
    /// `created`, `name`, `images` or `classes`, with a minus in front for the opposite order; by default `-created`.
    #[param(example = "-created")]
    sort: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

/// Lists your datasets and those that other users share with you, newest first.
#[utoipa::path(get, path = "/datasets", tag = "datasets", params(DatasetParameters),
    responses((status = 200, body = Listed<DatasetView>)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<DatasetParameters>,
) -> Result<Listed<DatasetView>> {
    let paging = Paging::new(parameters.limit, parameters.cursor);
    let limit = paging.limit()?;
    let expected = "Must be one of building, ready, failed, cancelled.";
    let state = match parameters.state.as_deref() {
        None | Some("") => None,
        Some(word) => Some(word.parse().map_err(|_err| Error::field("state", "invalid_value", expected))?),
    };
    let sorting = Sorting::asked(&SORT_COLUMNS, parameters.sort.as_deref())?;
    let position = sorting.position(&paging)?;
    let filter = DatasetFilter {
        viewer: user.id(),
        own: parameters.own == Some(true),
        state,
        find: parameters.search.as_deref().unwrap_or_default(),
        sort: sorting.sort(&position),
        before: position.before,
        limit: limit + 1,
    };
    let found = portal.datasets.list(filter).await?;
    let found = found.into_iter().map(|(one, value)| (DatasetView::from(one), value));
    Ok(sorting.listed(found.collect(), limit, |view: &DatasetView| view.id))
}

/// Creates a dataset. A job of yours builds it.
#[utoipa::path(post, path = "/datasets", tag = "datasets", request_body = NewDataset,
    params(("Idempotency-Key" = Option<String>, Header, description = "Requests that repeat a key return the first result.")),
    responses((status = 201, body = DatasetView),
        (status = 409, description = "The quota does not allow the build job", body = Problem),
        (status = 422, description = "Validation failed", body = Problem),
        (status = 503, description = "Your files cannot be reached", body = Problem)))]
pub async fn create(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value, hash }: HashedJson<NewDataset>,
) -> Result<Created<DatasetView>> {
    let once = key.as_deref().map(|key| (key, hash.as_str()));
    let made = portal.datasets.make(user.actor(), value, once).await?;
    Ok(Created(format!("/api/v1/datasets/{}", made.id), made.into()))
}

/// What a source would be read as.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DatasetPreview)]
pub struct PreviewView {
    pub kind: String,
    pub source: String,
    /// How images, classes and splits are laid out, in words.
    pub layout: String,
    pub images: u64,
    /// Images of each split that the source states; `undivided` where it states none.
    pub splits: BTreeMap<String, u64>,
    pub class_count: u64,
    /// The first fifty classes.
    pub classes: Vec<PreviewClass>,
    /// Images that cannot be used, as far as that is known without opening them.
    pub broken: u64,
    pub left_out: u64,
    pub boxes_dropped: u64,
    pub note_count: u64,
    /// The first fifty notes and reasons.
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DatasetPreviewClass)]
pub struct PreviewClass {
    pub name: String,
    /// Images, boxes or regions.
    pub count: u64,
}

impl From<Inspection> for PreviewView {
    fn from(found: Inspection) -> Self {
        let class = |class: ClassCount| PreviewClass { name: class.name, count: class.count };
        Self {
            kind: found.kind,
            source: found.source,
            layout: found.layout,
            images: found.images,
            splits: found.splits,
            class_count: found.class_count,
            classes: found.classes.into_iter().map(class).collect(),
            broken: found.broken,
            left_out: found.left_out,
            boxes_dropped: found.boxes_dropped,
            note_count: found.note_count,
            notes: found.notes,
        }
    }
}

/// Shows what a source would be read as: layout, splits, classes and notes. Nothing is built. Only `spec` is used.
#[utoipa::path(post, path = "/dataset-preview", tag = "datasets", request_body = NewDataset,
    responses((status = 200, body = PreviewView),
        (status = 422, description = "Validation failed, or the source cannot be read", body = Problem),
        (status = 503, description = "Your files cannot be reached", body = Problem)))]
pub async fn preview(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(new): Json<NewDataset>,
) -> Result<axum::Json<PreviewView>> {
    Ok(axum::Json(portal.datasets.inspect(&user.user, new).await?.into()))
}

/// Returns a dataset with its specification, progress and contents.
#[utoipa::path(get, path = "/datasets/{id}", tag = "datasets", params(("id" = String, Path)),
    responses((status = 200, body = DatasetView), (status = 404, description = "Not found, or not visible to you", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
) -> Result<axum::Json<DatasetView>> {
    let found = portal.datasets.find(user.actor(), id).await?;
    Ok(axum::Json(whole(&portal, &user, found).await?))
}

/// Changes name, notes or visibility of your dataset.
#[utoipa::path(patch, path = "/datasets/{id}", tag = "datasets", params(("id" = String, Path)), request_body = DescriptionChanges,
    responses((status = 200, body = DatasetView), (status = 404, description = "Not found, or not yours", body = Problem),
        (status = 422, description = "Validation failed", body = Problem)))]
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
    Json(changes): Json<DescriptionChanges>,
) -> Result<axum::Json<DatasetView>> {
    Ok(axum::Json(portal.datasets.change(user.actor(), id, changes).await?.into()))
}

/// Options for removal.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveParameters {
    /// Also delete the directory of the dataset.
    files: Option<bool>,
}

/// Removes your dataset from the list, and with `files=true` its directory.
#[utoipa::path(delete, path = "/datasets/{id}", tag = "datasets", params(("id" = String, Path), RemoveParameters),
    responses((status = 204, description = "Removed"), (status = 404, description = "Not found, or not yours", body = Problem),
        (status = 409, description = "The dataset is being built", body = Problem)))]
pub async fn remove(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
    Query(parameters): Query<RemoveParameters>,
) -> Result<Response> {
    portal.datasets.remove(user.actor(), id, parameters.files == Some(true)).await?;
    Ok(NoContent.into_response())
}

/// Cancels the build. Finished work is kept.
#[utoipa::path(post, path = "/datasets/{id}/cancel", tag = "datasets", params(("id" = String, Path)),
    responses((status = 202, body = DatasetView), (status = 404, description = "Not found, or not yours", body = Problem)))]
pub async fn cancel(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
) -> Result<Accepted<DatasetView>> {
    Ok(Accepted(portal.datasets.cancel(user.actor(), id).await?.into()))
}

/// Resumes a build that failed or was cancelled.
#[utoipa::path(post, path = "/datasets/{id}/build", tag = "datasets", params(("id" = String, Path)),
    responses((status = 202, body = DatasetView), (status = 404, description = "Not found, or not yours", body = Problem),
        (status = 409, description = "The dataset is already complete or is being built", body = Problem)))]
pub async fn build(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
) -> Result<Accepted<DatasetView>> {
    Ok(Accepted(portal.datasets.build_again(user.actor(), id).await?.into()))
}
