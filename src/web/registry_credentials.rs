//! Your own credentials for registries of container images: `/me/registry-credentials`, and the form under Settings.
//! They can be replaced and removed, and are never returned. What they are used for is the service's to decide.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::{Path, State},
    response::{IntoResponse, NoContent, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Portal,
    http::{
        error::{Error, Problem, Result},
        extract::{CurrentUser, Form, Json},
        paging::Listed,
    },
    settings,
    views::{Moment, RegistriesForm, RegistryRow},
};
use crate::{images::NewCredentials, model::Timestamp};

/// A registry that you have saved credentials for. The password is never returned.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RegistryCredentials)]
pub struct CredentialsView {
    /// The host, with a port where it has one.
    registry: String,
    /// The user name at the registry.
    user: String,
    /// When it was saved.
    #[schema(value_type = String, format = DateTime)]
    saved_at: Timestamp,
}

/// Lists the registries that you have saved credentials for.
#[utoipa::path(get, path = "/me/registry-credentials", tag = "me",
    responses((status = 200, body = Listed<CredentialsView>)))]
pub(super) async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
) -> Result<Answer<Listed<CredentialsView>>> {
    let saved = portal.sessions.images.credentials_of(user.id()).await?;
    let view = |one: crate::db::registry_credentials::RegistryCredentials| CredentialsView {
        registry: one.registry,
        user: one.user_name,
        saved_at: one.saved_at,
    };
    Ok(Answer(Listed { items: saved.into_iter().map(view).collect(), next_cursor: None }))
}

/// Credentials for a registry.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRegistryCredentials)]
pub(super) struct CredentialsRequest {
    /// The user name at the registry. For nvcr.io it is `$oauthtoken`.
    user: String,
    /// A password, token or API key. It is stored encrypted and never returned.
    #[schema(write_only)]
    password: String,
}

/// Saves your credentials for a registry.
///
/// They replace those that you saved before. The portal uses them only to pull images that you add with `private`.
#[utoipa::path(put, path = "/me/registry-credentials/{registry}", tag = "me", params(("registry" = String, Path)),
    request_body = CredentialsRequest,
    responses((status = 204, description = "Saved"),
        (status = 403, description = "You may not add images", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub(super) async fn save(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(registry): Path<String>,
    Json(CredentialsRequest { user: name, password }): Json<CredentialsRequest>,
) -> Result<Response> {
    let new = NewCredentials { registry, user: name, password };
    portal.sessions.images.set_credentials(&user.user, &new).await?;
    Ok(NoContent.into_response())
}

/// Removes your credentials for a registry.
///
/// What was pulled with them stays.
#[utoipa::path(delete, path = "/me/registry-credentials/{registry}", tag = "me",
    params(("registry" = String, Path)),
    responses((status = 204, description = "Removed"),
        (status = 404, description = "You have saved none for this registry", body = Problem)))]
pub(super) async fn remove(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(registry): Path<String>,
) -> Result<Response> {
    portal.sessions.images.remove_credentials(&user.user, &registry).await?;
    Ok(NoContent.into_response())
}

/// `POST /settings/registry-credentials`
pub(super) async fn save_by_form(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let text = |name: &str| form.get(name).trim().to_owned();
    let new =
        NewCredentials { registry: text("registry"), user: text("registry_user"), password: text("registry_password") };
    match portal.sessions.images.set_credentials(&user.user, &new).await.map_err(Error::from) {
        Ok(()) => Ok(Redirect::to("/settings?done=registry#registries").into_response()),
        Err(error) => {
            settings::again(&portal, &user, error, |view| {
                for fault in &mut view.errors {
                    if ["user", "password"].contains(&fault.field.as_str()) {
                        fault.field = format!("registry_{}", fault.field);
                    }
                }
                if let Some(registries) = &mut view.registries {
                    registries.registry = new.registry.chars().take(300).collect();
                    registries.user = new.user.chars().take(300).collect();
                }
            })
            .await
        }
    }
}

/// `POST /settings/registry-credentials/{registry}/remove`
pub(super) async fn remove_by_form(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(registry): Path<String>,
) -> Result<Redirect> {
    portal.sessions.images.remove_credentials(&user.user, &registry).await?;
    Ok(Redirect::to("/settings?done=registry_removed#registries"))
}

/// What the settings page shows of them; nothing for users who may not add images and have saved none.
pub(super) async fn section(portal: &Portal, user: &CurrentUser, now: Timestamp) -> Result<Option<RegistriesForm>> {
    let images = &portal.sessions.images;
    let saved = images.credentials_of(user.id()).await?;
    let may_add = images.may_add(&user.user) && portal.sessions.can_use_images();
    if saved.is_empty() && !may_add {
        return Ok(None);
    }
    let row = |one: crate::db::registry_credentials::RegistryCredentials| RegistryRow {
        registry: one.registry,
        user: one.user_name,
        saved: Moment::ago(one.saved_at, now),
    };
    let rows = saved.into_iter().map(row).collect();
    Ok(Some(RegistriesForm { rows, may_add, registry: String::new(), user: String::new() }))
}
