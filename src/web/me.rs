//! `/me`: who one is to the portal, what one may use and uses now; and one's own password.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json as Answer,
    extract::State,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Portal,
    http::{
        error::{Problem, Result},
        extract::{CurrentUser, Json},
    },
    login::ClientAddress,
    quotas::{self, Effective},
};
use crate::{
    auth::Credential,
    db::tokens::Token,
    model::{Timestamp, quota::Usage},
};

/// The user who sends the request.
#[derive(Serialize, ToSchema)]
pub(super) struct Me {
    #[schema(format = "uuid")]
    id: String,
    name: String,
    display_name: String,
    /// `user`, `operator` or `admin`.
    role: &'static str,
    groups: Vec<String>,
    /// The groups that the user manages.
    manages: Vec<String>,
    /// Where the account comes from: `local` or `ldap`.
    source: String,
    /// The scopes of the token that was used: null for a login, empty for a token without restrictions.
    scopes: Option<Vec<String>>,
    /// The token that was used: null for a login.
    token: Option<UsedToken>,
    /// The effective limits, by field.
    quota: BTreeMap<String, Effective>,
    /// The current usage.
    usage: Usage,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When the account expires: it is disabled then. Null: it does not expire.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_seen_at: Option<Timestamp>,
}

/// The token that a request was sent with.
#[derive(Serialize, ToSchema)]
pub(super) struct UsedToken {
    #[schema(format = "uuid")]
    id: String,
    name: String,
    /// Programs can warn before this moment, or rotate the token.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

impl From<Token> for UsedToken {
    fn from(token: Token) -> Self {
        Self { id: token.id.to_string(), name: token.name, expires_at: token.expires_at }
    }
}

/// Returns the user who sends the request, with quota and usage.
#[utoipa::path(
    get, path = "/me", tag = "me",
    responses((status = 200, body = Me), (status = 401, description = "Not signed in", body = Problem))
)]
pub(super) async fn me(State(portal): State<Arc<Portal>>, user: CurrentUser) -> Result<Answer<Me>> {
    let standing = portal.sessions.standing(user.id()).await?;
    let who = user.user.clone();
    let token = match &user.credential {
        Credential::Token { id, .. } => portal.db.find_token_by_id(*id).await?.map(UsedToken::from),
        Credential::Login { .. } => None,
    };
    Ok(Answer(Me {
        id: who.id.to_string(),
        name: who.name.to_string(),
        display_name: who.display_name,
        role: who.role.as_str(),
        groups: who.groups,
        manages: who.manages,
        source: who.source,
        scopes: user.scopes().map(<[String]>::to_vec),
        token,
        quota: quotas::effective(&standing),
        usage: standing.usage,
        created_at: who.created_at,
        expires_at: who.expires_at,
        last_seen_at: who.last_seen_at,
    }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PasswordRequest {
    current_password: String,
    /// At least 10 characters. There is no other rule.
    #[schema(min_length = 10, max_length = 1024)]
    new_password: String,
}

/// Changes your password and ends all your other logins.
#[utoipa::path(
    post, path = "/me/password", tag = "me", request_body = PasswordRequest,
    responses(
        (status = 204, description = "Changed; all other logins have ended"),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "No proof of origin, or a token with scopes", body = Problem),
        (status = 409, description = "The password is managed by the site's directory", body = Problem),
        (status = 422, description = "The current password is wrong, or the new one is too short", body = Problem),
        (status = 429, description = "Too many failed attempts", body = Problem),
    )
)]
pub(super) async fn change_password(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    ClientAddress(from): ClientAddress,
    Json(request): Json<PasswordRequest>,
) -> Result<Response> {
    portal.access.change_password(&user, &request.current_password, &request.new_password, from).await?;
    Ok(NoContent.into_response())
}
