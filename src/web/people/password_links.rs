//! `/users/{name}/password-link` over REST and as a button on a user's page: an administrator creates a link by which the
//! owner of a local account sets a new password, which nobody else learns.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use super::{
    named,
    pages::{PageParams, again, view},
};
use crate::web::{
    Portal,
    http::{
        error::{Error, Problem, Result},
        extract::Admin,
    },
    page::Page,
    site::InvitationLink,
    views::{Moment, PasswordLink},
};

/// Creates a link by which the user sets a new password.
///
/// It works once, for three days. An earlier link becomes invalid. The current password stays valid until the link is
/// used. Only this response contains the link.
#[utoipa::path(post, path = "/users/{name}/password-link", tag = "users", params(("name" = String, Path)),
    responses((status = 200, body = InvitationLink),
        (status = 403, description = "Not an administrator, or a token with scopes", body = Problem),
        (status = 404, description = "Not found", body = Problem),
        (status = 409, description = "Not a local account, or not an active one", body = Problem)))]
pub async fn create(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<InvitationLink>> {
    let user = named(&portal, &name).await?;
    let (secret, expires_at) = portal.access.create_password_link(&admin.0, &user).await?;
    Ok(Json(InvitationLink::new(&portal.config.origin(&headers), user.name.to_string(), &secret, expires_at)))
}

/// `POST /admin/users/{name}/password-link`. No redirect: the secret is in no address and in no memory of ours.
pub async fn create_by_form(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let user = named(&portal, &name).await?;
    let (secret, expires_at) = match portal.access.create_password_link(&admin.0, &user).await {
        Ok(made) => made,
        Err(err) => return again(&portal, &admin, &headers, &user, Error::from(err)).await,
    };
    let link = InvitationLink::new(&portal.config.origin(&headers), user.name.to_string(), &secret, expires_at);
    let mut page = view(&portal, &admin.0, &headers, &user, &PageParams::default()).await?;
    let expires = Moment::clock(expires_at, portal.clock.now());
    page.password_link = Some(PasswordLink { url: link.url, expires });
    Ok(Page(page).into_response())
}
