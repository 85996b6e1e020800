//! `/users/{name}/tokens` over REST and as forms on a user's page: administrators list and revoke anybody's tokens, and
//! create and rotate those of service accounts. The rules are in `auth::tokens`; one's own tokens are in `web::tokens`.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, NoContent, Response},
};

use super::{
    named,
    pages::{PageParams, again, back, view},
};
use crate::{
    db::tokens::Token,
    model::{TokenId, User},
    web::{
        Portal,
        http::{
            error::{Created, Error, Problem, Result},
            extract::{Admin, Form, HashedJson, Id, IdempotencyKey, Query},
            paging::{Listed, Paging},
        },
        page::Page,
        settings,
        tokens::{MadeToken, TokenInfo, TokenRequest},
        views,
    },
};

/// Lists a user's tokens, newest first, without their secrets.
#[utoipa::path(get, path = "/users/{name}/tokens", tag = "users", params(("name" = String, Path), Paging),
    responses((status = 200, body = Listed<TokenInfo>)))]
pub async fn list(
    _: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Listed<TokenInfo>>> {
    let user = named(&portal, &name).await?;
    let limit = paging.limit()?;
    let tokens = portal.db.list_tokens(user.id, paging.after::<TokenId>()?, limit + 1).await?;
    let tokens = tokens.into_iter().map(TokenInfo::from).collect();
    Ok(axum::Json(Listed::new(tokens, limit, |token| token.id.clone())))
}

/// Creates a token of a service account.
///
/// Only this response contains its secret. Other users create their own tokens.
#[utoipa::path(post, path = "/users/{name}/tokens", tag = "users", params(("name" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Requests that repeat a key return the first result.")),
    request_body = TokenRequest,
    responses((status = 201, description = "Created", body = MadeToken),
        (status = 403, description = "Not an administrator, or a token with scopes", body = Problem),
        (status = 409, description = "Not a service account, or the token that was created with this key has been revoked",
            body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn create(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value: request, hash }: HashedJson<TokenRequest>,
) -> Result<Created<MadeToken>> {
    let owner = named(&portal, &name).await?;
    let once = key.as_deref().map(|key| (key, hash.as_str()));
    let (token, secret) = portal.access.make_token(&admin.0, &owner, request.into(), once).await?;
    let address = format!("/api/v1/users/{}/tokens/{}", owner.name, token.id);
    Ok(Created(address, MadeToken::new(token, secret)))
}

/// Replaces the secret of a token of a service account.
///
/// The token keeps its id, name and scopes, and expires after the same time as before, counted from now. The old secret is
/// rejected from now on. Only this response contains the new one.
#[utoipa::path(post, path = "/users/{name}/tokens/{id}/rotate", tag = "users",
    params(("name" = String, Path), ("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Requests that repeat a key return the first result.")),
    responses((status = 200, description = "Rotated", body = MadeToken),
        (status = 403, description = "Not an administrator, or a token with scopes", body = Problem),
        (status = 404, description = "The account has no token with this id", body = Problem),
        (status = 409, description = "Not a service account", body = Problem)))]
pub async fn rotate(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(path): Path<(String, String)>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<axum::Json<MadeToken>> {
    let owner = named(&portal, &path.0).await?;
    let id: TokenId = path.1.parse().map_err(|_err| Error::not_found())?;
    let rotated = portal.access.rotate_token(&admin.0, &owner, id, key.as_deref()).await?;
    let (token, secret) = rotated.ok_or_else(Error::not_found)?;
    Ok(axum::Json(MadeToken::new(token, secret)))
}

/// Revokes a user's token, with immediate effect.
#[utoipa::path(delete, path = "/users/{name}/tokens/{id}", tag = "users",
    params(("name" = String, Path), ("id" = String, Path)),
    responses((status = 204, description = "Revoked"),
        (status = 404, description = "The user has no token with this id", body = Problem)))]
pub async fn revoke(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(path): Path<(String, String)>,
) -> Result<Response> {
    let user = named(&portal, &path.0).await?;
    let id: TokenId = path.1.parse().map_err(|_err| Error::not_found())?;
    if portal.access.revoke_token_of(&admin.0, &user, id).await? {
        Ok(NoContent.into_response())
    } else {
        Err(Error::not_found())
    }
}

/// `POST /admin/users/{name}/tokens`
pub async fn create_by_form(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let owner = named(&portal, &name).await?;
    let made = match settings::token_of_form(&form) {
        Ok(new) => portal.access.make_token(&admin.0, &owner, new, None).await.map_err(Error::from),
        Err(error) => Err(error),
    };
    let error = match made {
        Ok((token, secret)) => return with_secret(&portal, &admin, &headers, &owner, token, secret).await,
        Err(error) if error.field_errors().is_empty() => return again(&portal, &admin, &headers, &owner, error).await,
        Err(error) => error,
    };
    let mut page = view(&portal, &admin.0, &headers, &owner, &PageParams::default()).await?;
    if let Some(shown) = &mut page.token_form {
        shown.name = form.get("name").chars().take(200).collect();
        for scope in &mut shown.scopes {
            scope.chosen = form.all("scopes").any(|chosen| chosen == scope.name);
        }
        shown.errors = error.field_errors().iter().map(settings::shown).collect();
    }
    Ok(error.with_page(Page(page)))
}

/// `POST /admin/users/{name}/tokens/{id}/rotate`
pub async fn rotate_by_form(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path((name, _)): Path<(String, String)>,
    Id(id): Id<TokenId>,
    headers: HeaderMap,
) -> Result<Response> {
    let owner = named(&portal, &name).await?;
    match portal.access.rotate_token(&admin.0, &owner, id, None).await {
        Ok(Some((token, secret))) => with_secret(&portal, &admin, &headers, &owner, token, secret).await,
        Ok(None) => Err(Error::not_found()),
        Err(err) => again(&portal, &admin, &headers, &owner, err.into()).await,
    }
}

/// `POST /admin/users/{name}/tokens/{id}/revoke`
pub async fn revoke_by_form(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path((name, _)): Path<(String, String)>,
    Id(id): Id<TokenId>,
) -> Result<Response> {
    let user = named(&portal, &name).await?;
    if portal.access.revoke_token_of(&admin.0, &user, id).await? {
        Ok(back(&user, "revoked"))
    } else {
        Err(Error::not_found())
    }
}

/// Shows the secret of a token. No redirect: it is in no address and in no memory of ours.
async fn with_secret(
    portal: &Portal,
    admin: &Admin,
    headers: &HeaderMap,
    owner: &User,
    token: Token,
    secret: String,
) -> Result<Response> {
    let mut page = view(portal, &admin.0, headers, owner, &PageParams::default()).await?;
    page.new_token = Some(views::NewToken { name: token.name, secret });
    Ok(Page(page).into_response())
}
