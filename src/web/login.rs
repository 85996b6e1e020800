//! Signing in and out: the page and the API over the same service.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Json as Answer,
    extract::{FromRequestParts, State},
    http::{HeaderMap, header, request::Parts},
    response::{AppendHeaders, IntoResponse, NoContent, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Identity, Portal,
    error::{Error, Kind, Problem, Result},
    extract::{CurrentUser, Form, Json, Query},
    forwarded,
    guard::safe_next,
    identity::{self, Cookie},
    page::{Nav, Page},
    views::Login,
};
use crate::auth::{self, signin::SignedIn};

/// Where the request comes from, as far as that can be believed.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub IpAddr);

impl FromRequestParts<Arc<Portal>> for ClientAddress {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self, Self::Rejection> {
        Ok(Self(forwarded::client_address(&portal.config, &parts.headers, &parts.extensions)))
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginRequest {
    username: String,
    password: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct LoginAnswer {
    /// To be sent as `X-CSRF-Token` with changes by cookie.
    csrf_token: String,
}

/// Sign in: sets the login cookie. Needs proof of origin, as every change by cookie.
#[utoipa::path(
    post, path = "/login", tag = "login", request_body = LoginRequest, security(()),
    responses(
        (status = 200, description = "Signed in; the cookie is set", body = LoginAnswer),
        (status = 401, description = "The name or the password is wrong", body = Problem),
        (status = 403, description = "No proof of origin", body = Problem),
        (status = 422, description = "A field cannot be accepted", body = Problem),
        (status = 429, description = "Too many failed attempts", body = Problem),
    )
)]
pub(super) async fn api_log_in(
    State(portal): State<Arc<Portal>>,
    identity: Identity,
    ClientAddress(from): ClientAddress,
    Json(request): Json<LoginRequest>,
) -> Result<Response> {
    let signed_in = sign_in(&portal, &identity, &request.username, &request.password, from).await?;
    let cookie = identity::set_login_cookie(&portal.config, &signed_in.secret);
    let csrf_token = signed_in.principal.csrf_token().to_owned();
    Ok(([(header::SET_COOKIE, cookie)], Answer(LoginAnswer { csrf_token })).into_response())
}

/// Sign out: ends the login on the server.
#[utoipa::path(
    post, path = "/logout", tag = "login",
    responses(
        (status = 204, description = "Signed out; the cookie is removed"),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "No proof of origin, or a token", body = Problem),
    )
)]
pub(super) async fn api_log_out(State(portal): State<Arc<Portal>>, user: CurrentUser) -> Result<Response> {
    if user.login().is_none() {
        return Err(Error::forbidden("A token cannot sign out: revoke it instead."));
    }
    portal.access.log_out(&user).await?;
    Ok(([(header::SET_COOKIE, identity::drop_login_cookie(&portal.config))], NoContent).into_response())
}

#[derive(Deserialize)]
pub(super) struct Visit {
    #[serde(default)]
    next: String,
    signed_out: Option<String>,
}

pub(super) async fn page(
    State(portal): State<Arc<Portal>>,
    identity: Identity,
    Query(visit): Query<Visit>,
    request: Parts,
) -> Result<Response> {
    if identity.somebody().is_some_and(|principal| principal.login().is_some()) {
        return Ok(Redirect::to(&safe_next(&visit.next)).into_response());
    }
    let form = LoginForm {
        error: matches!(identity, Identity::TwoCookies).then(|| identity::TWO_COOKIES.to_owned()),
        notice: visit.signed_out.map(|_| "You are signed out.".to_owned()),
        next: visit.next,
        username: String::new(),
    };
    Ok(form.draw(&portal, &request))
}

pub(super) async fn log_in(
    State(portal): State<Arc<Portal>>,
    identity: Identity,
    ClientAddress(from): ClientAddress,
    request: Parts,
    form: Form,
) -> Result<Response> {
    match sign_in(&portal, &identity, form.get("username"), form.get("password"), from).await {
        Ok(signed_in) => {
            let cookie = identity::set_login_cookie(&portal.config, &signed_in.secret);
            Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&safe_next(form.get("next")))).into_response())
        }
        Err(error) if matches!(error.kind(), Kind::NotSignedIn | Kind::TooManyRequests | Kind::Unavailable) => {
            let again = LoginForm {
                error: Some(error.detail().to_owned()),
                notice: None,
                next: form.get("next").to_owned(),
                username: form.get("username").chars().take(64).collect(),
            };
            Ok(error.with_page(again.draw(&portal, &request)))
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn log_out(
    State(portal): State<Arc<Portal>>,
    identity: Identity,
    headers: HeaderMap,
) -> Result<Response> {
    if let Some(principal) = identity.principal()? {
        portal.access.log_out(&principal).await?;
    }
    // A form of another site's comes without the cookie, and must not take it away either.
    let shown = identity::login_cookie(&headers, &portal.config) != Cookie::None;
    let drop = shown.then(|| (header::SET_COOKIE, identity::drop_login_cookie(&portal.config)));
    Ok((AppendHeaders(drop), Redirect::to("/login?signed_out=1")).into_response())
}

async fn sign_in(
    portal: &Portal,
    identity: &Identity,
    username: &str,
    password: &str,
    from: IpAddr,
) -> Result<SignedIn> {
    let previous = identity.somebody().and_then(|principal| principal.login());
    let outcome = portal.access.log_in(username, password, from, previous).await;
    portal.metrics.signed_in(match &outcome {
        Ok(_) => "ok",
        Err(auth::Error::BadCredentials { .. }) => "failed",
        Err(auth::Error::Throttled { .. }) => "throttled",
        Err(_) => "error",
    });
    Ok(outcome?)
}

/// The page's form, fresh or after a failure.
struct LoginForm {
    error: Option<String>,
    notice: Option<String>,
    next: String,
    username: String,
}

impl LoginForm {
    fn draw(self, portal: &Portal, request: &Parts) -> Response {
        let is_local = forwarded::is_local(&request.headers, &request.extensions);
        let (cookie, is_new) = form_cookie(portal, &request.headers);
        let mut layout = portal.layout(&Identity::Nobody, Nav::None);
        layout.csrf_token = portal.access.form_token(&cookie);
        let first_password = auth::first::password_file(&portal.config.private).filter(|_| is_local);
        let view = Login {
            plain_http: !portal.config.is_https() && !is_local && !layout.insecure_http,
            layout,
            username: self.username,
            error: self.error,
            notice: self.notice,
            next: if self.next.is_empty() { String::new() } else { safe_next(&self.next) },
            first_password_file: first_password.map(|path| path.display().to_string()),
        };
        let set_cookie = is_new.then(|| (header::SET_COOKIE, identity::set_form_cookie(&portal.config, &cookie)));
        (AppendHeaders(set_cookie), Page(view)).into_response()
    }
}

/// The cookie that the form's proof is bound to: the one that the browser has, or a new one.
fn form_cookie(portal: &Portal, headers: &HeaderMap) -> (String, bool) {
    match identity::cookie(headers, portal.config.form_cookie_name()) {
        Cookie::One(cookie) if cookie.len() == 43 => (cookie.to_owned(), false),
        _ => (portal.access.new_form_cookie(), true),
    }
}
