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
    error::{Created, Error, Problem, Result},
    extract::{CurrentUser, HashedJson, Id, IdempotencyKey, Query},
    paging::{Listed, Paging},
};
use crate::{
    auth::tokens::NewToken,
    db::tokens::Token,
    model::{Timestamp, TokenId},
};

#[derive(Debug, Serialize, ToSchema)]
pub struct TokenInfo {
    #[schema(format = "uuid")]
    pub(super) id: String,
    name: String,
    /// Empty: everything that its owner may do.
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

#[derive(Serialize, ToSchema)]
pub(super) struct MadeToken {
    #[serde(flatten)]
    token: TokenInfo,
    /// To be sent as `Authorization: Bearer …`; it is shown this once and kept nowhere.
    secret: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenRequest {
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// `read`, `sessions`, `sessions:connect`, `jobs`, `files:read`, `files`, `admin:quotas`, `admin:users`,
    /// `admin:audit`, `admin:site`; left out or empty: everything that its owner may do.
    #[serde(default)]
    scopes: Vec<String>,
    /// 30 days when left out, at most 366 days.
    #[schema(minimum = 1, maximum = 31_622_400)]
    expires_in_seconds: Option<i64>,
}

/// One's own tokens, newest first, expired ones included.
#[utoipa::path(
    get, path = "/tokens", tag = "tokens", params(Paging),
    responses(
        (status = 200, body = Listed<TokenInfo>),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "The token's scopes do not include this", body = Problem),
        (status = 422, description = "A parameter cannot be accepted", body = Problem),
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

/// Make a token; its secret is in this answer alone.
#[utoipa::path(
    post, path = "/tokens", tag = "tokens", request_body = TokenRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the same token")),
    responses(
        (status = 201, description = "Made", body = MadeToken),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "No proof of origin, or a token with scopes", body = Problem),
        (status = 409, description = "The token that this key made has been revoked", body = Problem),
        (status = 422, description = "A field cannot be accepted", body = Problem),
    )
)]
pub(super) async fn create(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value: request, hash }: HashedJson<TokenRequest>,
) -> Result<Created<MadeToken>> {
    let TokenRequest { name, scopes, expires_in_seconds } = request;
    let once = key.as_deref().map(|key| (key, hash.as_str()));
    let (token, secret) = portal.access.make_token(&user, NewToken { name, scopes, expires_in_seconds }, once).await?;
    Ok(Created(format!("/api/v1/tokens/{}", token.id), MadeToken { token: token.into(), secret }))
}

/// Revoke a token; it ends at once.
#[utoipa::path(
    delete, path = "/tokens/{id}", tag = "tokens", params(("id" = String, Path, description = "The token's id")),
    responses(
        (status = 204, description = "Revoked"),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "No proof of origin, or a token with scopes", body = Problem),
        (status = 404, description = "There is no such token of yours", body = Problem),
    )
)]
pub(super) async fn revoke(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    Id(id): Id<TokenId>,
) -> Result<Response> {
    if portal.access.revoke_token(&user, id).await? { Ok(NoContent.into_response()) } else { Err(Error::not_found()) }
}
