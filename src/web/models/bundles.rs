//! Exports of checkpoints and imports of bundles, over REST and from pages. Jobs do both.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{ModelView, pages};
use crate::{
    model::{JobId, ModelId},
    models::{NewExport, NewImport},
    web::{
        Portal,
        http::{
            error::{Created, Error, Problem, Result},
            extract::{CurrentUser, Form, Id, Json},
            href::href,
        },
        page::Page,
        views::{self, ImportForm},
    },
};

/// A job that exports a checkpoint.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelExportJob)]
pub struct ExportJobView {
    pub snapshot: String,
    #[schema(value_type = String, format = "uuid")]
    pub job: JobId,
    /// Address of the bundle as a tar archive, once the job has ended.
    pub bundle: String,
}

/// The checkpoints that were exported.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelExports)]
pub struct ExportsView {
    pub items: Vec<ExportView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelExport)]
pub struct ExportView {
    pub snapshot: String,
    /// Address of the bundle as a tar archive.
    pub bundle: String,
}

fn bundle_href(id: ModelId, snapshot: &str) -> String {
    href(&format!("/api/v1/models/{id}/bundle"), [("snapshot", snapshot)])
}

/// Exports a checkpoint of your model. A job of yours writes the bundle.
#[utoipa::path(post, path = "/models/{id}/exports", tag = "models", params(("id" = String, Path)), request_body = NewExport,
    responses((status = 201, body = ExportJobView), (status = 404, description = "Not found, or not yours", body = Problem),
        (status = 409, description = "The quota does not allow the job", body = Problem),
        (status = 422, description = "The checkpoint or the environment does not exist", body = Problem)))]
pub async fn export(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Json(new): Json<NewExport>,
) -> Result<Created<ExportJobView>> {
    let model = portal.models.own(user.actor(), id).await?;
    let snapshot = new.snapshot.clone();
    let job = portal.models.export(user.actor(), &model, new).await?.id;
    let bundle = bundle_href(id, &snapshot);
    Ok(Created(format!("/api/v1/models/{id}/exports"), ExportJobView { snapshot, job, bundle }))
}

/// Lists the exported checkpoints. The best checkpoint of a completed training is always at `/models/{id}/bundle`.
#[utoipa::path(get, path = "/models/{id}/exports", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = ExportsView), (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 503, description = "The files of the model cannot be reached", body = Problem)))]
pub async fn exports(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<axum::Json<ExportsView>> {
    let model = portal.models.find(user.actor(), id).await?;
    let found = portal.models.exported(&user.user, &model).await?;
    let view = |snapshot: String| ExportView { bundle: bundle_href(id, &snapshot), snapshot };
    Ok(axum::Json(ExportsView { items: found.into_iter().map(view).collect() }))
}

/// Imports a bundle as a model. A job of yours reads it.
#[utoipa::path(post, path = "/models/imports", tag = "models", request_body = NewImport,
    responses((status = 201, body = ModelView), (status = 409, description = "The quota does not allow the job", body = Problem),
        (status = 422, description = "The path is not a bundle", body = Problem),
        (status = 503, description = "Your files cannot be reached", body = Problem)))]
pub async fn import(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(new): Json<NewImport>,
) -> Result<Created<ModelView>> {
    let made = portal.models.import(user.actor(), new).await?;
    Ok(Created(format!("/api/v1/models/{}", made.id), made.into()))
}

/// `POST /models/{id}/exports`
pub async fn export_by_form(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    form: Form,
) -> Result<Redirect> {
    let model = portal.models.own(user.actor(), id).await?;
    let new = NewExport { snapshot: form.get("snapshot").to_owned(), environment: None };
    let job = portal.models.export(user.actor(), &model, new).await?;
    Ok(Redirect::to(&format!("/jobs/{}", job.id)))
}

/// `POST /models/imports`
pub async fn import_by_form(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let (name, path) = (form.get("name").to_owned(), form.get("path").to_owned());
    let new = NewImport { name: name.clone(), path: path.clone(), environment: None };
    let error = match portal.models.import(user.actor(), new).await {
        Ok(made) => return Ok(Redirect::to(&format!("/models/{}", made.id)).into_response()),
        Err(error) => Error::from(error),
    };
    if error.field_errors().is_empty() {
        return Err(error);
    }
    let errors = error.field_errors().iter().map(views::FieldError::from).collect();
    let import = ImportForm { name, path, errors };
    let view = pages::list_view(&portal, &user, pages::PageParams::default(), import).await?;
    Ok(error.with_page(Page(view)))
}
