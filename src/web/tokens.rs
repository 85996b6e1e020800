//! `/tokens`: one's own API tokens.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Portal,
    http::{
        error::{Created, Error, Problem, Result},
        extract::{CurrentUser, HashedJson, Id, IdempotencyKey, Query},
        paging::{Listed, Paging},
    },
};
use crate::{
    auth::tokens::NewToken,
    db::tokens::Token,
    model::{Timestamp, TokenId},
};

/// An API token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenInfo {
    #[schema(format = "uuid")]
    pub(super) id: String,
    name: String,
    /// If empty, the token may do everything that its owner may do.
    scopes: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Timestamp>,
}

impl From<Token> for TokenInfo {
    fn from(token: Token) -> Self {
        Self {
            id: token.id.to_string(),
            name: token.name,
            scopes: token.scopes,
            created_at: token.created_at,
            expires_at: token.expires_at,
            last_used_at: token.last_used_at,
        }
    }
}

/// A new token with its secret.
#[derive(Serialize, ToSchema)]
pub(super) struct MadeToken {
    #[serde(flatten)]
    token: TokenInfo,
    /// Send it as `Authorization: Bearer …`. It is shown only once and is not stored.
    secret: String,
}

impl MadeToken {
    pub(super) fn new(token: Token, secret: String) -> Self {
        Self { token: token.into(), secret }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenRequest {
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// `read`, `sessions`, `sessions:connect`, `jobs`, `files:read`, `files`, `admin:quotas`, `admin:users`,
    /// `admin:audit`, `admin:site`, `metrics`, `token:rotate`. If omitted or empty, the token may do everything that its owner may do.
    #[serde(default)]
    scopes: Vec<String>,
    /// Defaults to 30 days. The maximum is 366 days.
    #[schema(minimum = 1, maximum = 31_622_400)]
    expires_in_seconds: Option<i64>,
}

impl From<TokenRequest> for NewToken {
    fn from(TokenRequest { name, scopes, expires_in_seconds }: TokenRequest) -> Self {
        Self { name, scopes, expires_in_seconds }
    }
}

/// Lists your tokens, newest first, including expired ones.
#[utoipa::path(
    get, path = "/tokens", tag = "tokens", params(Paging),
    responses(
        (status = 200, body = Listed<TokenInfo>),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "The token's scopes do not allow this", body = Problem),
        (status = 422, description = "A parameter is invalid", body = Problem),
    )
)]
pub(super) async fn list(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Listed<TokenInfo>>> {
    let limit = paging.limit()?;
    let tokens = portal.db.list_tokens(user.id(), paging.after::<TokenId>()?, limit + 1).await?;
    let tokens = tokens.into_iter().map(TokenInfo::from).collect();
    Ok(axum::Json(Listed::new(tokens, limit, |token| token.id.clone())))
}

/// Creates a token.
///
/// Only this response contains its secret.
#[utoipa::path(
    post, path = "/tokens", tag = "tokens", request_body = TokenRequest,
    params(("Idempotency-Key" = Option<String>, Header,
        description = "Requests that repeat a key return the first result.")),
    responses(
        (status = 201, description = "Created", body = MadeToken),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "No proof of origin, or a token with scopes", body = Problem),
        (status = 409, description = "The token that was created with this key has been revoked", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem),
    )
)]
pub(super) async fn create(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value: request, hash }: HashedJson<TokenRequest>,
) -> Result<Created<MadeToken>> {
    let once = key.as_deref().map(|key| (key, hash.as_str()));
    let (token, secret) = portal.access.make_token(&user, &user.user, request.into(), once).await?;
    Ok(Created(format!("/api/v1/tokens/{}", token.id), MadeToken::new(token, secret)))
}

/// Revokes a token, with immediate effect.
#[utoipa::path(
    delete, path = "/tokens/{id}", tag = "tokens", params(("id" = String, Path, description = "The id of the token")),
    responses(
        (status = 204, description = "Revoked"),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "No proof of origin, or a token with scopes", body = Problem),
        (status = 404, description = "You have no token with this id", body = Problem),
    )
)]
pub(super) async fn revoke(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    Id(id): Id<TokenId>,
) -> Result<Response> {
    if portal.access.revoke_token(&user, id).await? { Ok(NoContent.into_response()) } else { Err(Error::not_found()) }
}

/// Replaces the secret of a token.
///
/// The token keeps its id, name and scopes, and expires after the same time as before, counted from now. The old secret is
/// rejected from now on. Only this response contains the new one. A token with scopes can rotate only itself, with the scope
/// `token:rotate`; its id is in `GET /me`.
#[utoipa::path(
    post, path = "/tokens/{id}/rotate", tag = "tokens",
    params(("id" = String, Path, description = "The id of the token"),
        ("Idempotency-Key" = Option<String>, Header, description = "Requests that repeat a key return the first result.")),
    responses(
        (status = 200, description = "Rotated", body = MadeToken),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "No proof of origin, or another token with scopes", body = Problem),
        (status = 404, description = "You have no token with this id", body = Problem),
    )
)]
pub(super) async fn rotate(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    Id(id): Id<TokenId>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<axum::Json<MadeToken>> {
    let rotated = portal.access.rotate_token(&user, &user.user, id, key.as_deref()).await?;
    let (token, secret) = rotated.ok_or_else(Error::not_found)?;
    Ok(axum::Json(MadeToken::new(token, secret)))
}
