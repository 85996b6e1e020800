//! Datasets over REST: what `/api/v1/datasets` takes and answers. What is in one is in `items`,
//! the pages are in `pages`; all call the same service.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub mod items;
pub mod pages;

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
    error::{Accepted, Created, Error, Problem, Result},
    extract::{CurrentUser, HashedJson, Id, IdempotencyKey, Json, Query},
    paging::{Listed, Paging},
};
use crate::{
    datasets::{self, NewDataset},
    db::datasets::DatasetFilter,
    model::{Dataset, DatasetId, DatasetState, DescriptionChanges, JobId, Timestamp, job::Visibility},
};

/// A dataset of pictures.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Dataset)]
pub struct DatasetView {
    #[schema(value_type = String, format = "uuid")]
    pub id: DatasetId,
    /// The owner's name.
    pub owner: String,
    pub name: String,
    /// `classification`, `detection` or `segmentation`.
    pub kind: String,
    pub source: String,
    pub directory: String,
    pub state: DatasetState,
    /// Why it failed.
    pub detail: String,
    /// The job that builds it, while it is known.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    pub visibility: Visibility,
    pub notes: String,
    /// The same for the same seed and files; null before it is there.
    pub manifest_sha256: Option<String>,
    /// In all splits.
    pub pictures: i64,
    /// In none of them.
    pub broken: i64,
    pub classes: i64,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = "date-time")]
    pub changed_at: Timestamp,
    /// What was asked for; lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub spec: Option<Value>,
    /// How far the build is, as it says itself; lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub progress: Option<Value>,
    /// Its `dataset.json` (docs/datasets.md), where your account may read it; lists leave it out.
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

/// `?search=&state=&own=` of the list, with paging.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DatasetParameters {
    #[param(value_type = Option<String>)]
    state: Option<String>,
    /// One's own alone, without those that others show.
    own: Option<bool>,
    /// A part of the name.
    search: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

/// One's own datasets and those that others show, newest first.
#[utoipa::path(get, path = "/datasets", tag = "datasets", params(DatasetParameters),
    responses((status = 200, body = Listed<DatasetView>)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<DatasetParameters>,
) -> Result<Listed<DatasetView>> {
    let paging = Paging::new(parameters.limit, parameters.cursor);
    let limit = paging.limit()?;
    let expected = "One of building, ready, failed, cancelled.";
    let state = match parameters.state.as_deref() {
        None | Some("") => None,
        Some(word) => Some(word.parse().map_err(|_err| Error::field("state", "invalid_value", expected))?),
    };
    let filter = DatasetFilter {
        viewer: user.id(),
        own: parameters.own == Some(true),
        state,
        find: parameters.search.as_deref().unwrap_or_default(),
        before: paging.after()?,
        limit: limit + 1,
    };
    let found = portal.datasets.list(filter).await?;
    Ok(Listed::new(found.into_iter().map(DatasetView::from).collect(), limit, |view: &DatasetView| view.id))
}

/// Make a dataset: a job builds it as you.
#[utoipa::path(post, path = "/datasets", tag = "datasets", request_body = NewDataset,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked twice with one key, it is made once.")),
    responses((status = 201, body = DatasetView),
        (status = 409, description = "The quota does not allow the job", body = Problem),
        (status = 422, description = "Fields cannot be so", body = Problem),
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

#[utoipa::path(get, path = "/datasets/{id}", tag = "datasets", params(("id" = String, Path)),
    responses((status = 200, body = DatasetView), (status = 404, description = "There is none that you may see", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
) -> Result<axum::Json<DatasetView>> {
    let found = portal.datasets.find(user.actor(), id).await?;
    Ok(axum::Json(whole(&portal, &user, found).await?))
}

/// Change name, notes or visibility of one's own.
#[utoipa::path(patch, path = "/datasets/{id}", tag = "datasets", params(("id" = String, Path)), request_body = DescriptionChanges,
    responses((status = 200, body = DatasetView), (status = 404, description = "There is none of yours", body = Problem),
        (status = 422, description = "Fields cannot be so", body = Problem)))]
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
    Json(changes): Json<DescriptionChanges>,
) -> Result<axum::Json<DatasetView>> {
    Ok(axum::Json(portal.datasets.change(user.actor(), id, changes).await?.into()))
}

/// Whether the directory goes too.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveParameters {
    /// Delete its directory as well.
    files: Option<bool>,
}

/// Forget one's own dataset.
#[utoipa::path(delete, path = "/datasets/{id}", tag = "datasets", params(("id" = String, Path), RemoveParameters),
    responses((status = 204, description = "Forgotten"), (status = 404, description = "There is none of yours", body = Problem),
        (status = 409, description = "It is being built", body = Problem)))]
pub async fn remove(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
    Query(parameters): Query<RemoveParameters>,
) -> Result<Response> {
    portal.datasets.remove(user.actor(), id, parameters.files == Some(true)).await?;
    Ok(NoContent.into_response())
}

/// End the build; what was done is kept.
#[utoipa::path(post, path = "/datasets/{id}/cancel", tag = "datasets", params(("id" = String, Path)),
    responses((status = 202, body = DatasetView), (status = 404, description = "There is none of yours", body = Problem)))]
pub async fn cancel(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
) -> Result<Accepted<DatasetView>> {
    Ok(Accepted(portal.datasets.cancel(user.actor(), id).await?.into()))
}

/// Build once more what failed or was cancelled; it goes on where it was.
#[utoipa::path(post, path = "/datasets/{id}/build", tag = "datasets", params(("id" = String, Path)),
    responses((status = 202, body = DatasetView), (status = 404, description = "There is none of yours", body = Problem),
        (status = 409, description = "It is there already, or is being built", body = Problem)))]
pub async fn build(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
) -> Result<Accepted<DatasetView>> {
    Ok(Accepted(portal.datasets.build_again(user.actor(), id).await?.into()))
}
