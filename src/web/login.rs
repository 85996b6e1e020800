//! Signing in and out: the page and the API over the same service.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Json as Answer,
    extract::{FromRequestParts, State},
    http::{HeaderMap, header, request::Parts},
    response::{AppendHeaders, IntoResponse, NoContent, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use tower_sessions::Session;
use utoipa::ToSchema;

use super::{
    Identity, Portal,
    claim::{self, Claimed},
    http::{
        error::{Error, Kind, Problem, Result},
        extract::{CurrentUser, Form, Json, Query},
        forwarded,
        guard::safe_next,
    },
    identity::{self, Cookie},
    page::{Nav, Page},
    views::Login,
};
use crate::auth::{self, Claim, Principal};

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
    /// Send it in the header `X-CSRF-Token` with each change that is authenticated by cookie.
    csrf_token: String,
}

/// Signs in and sets the login cookie.
///
/// Requires proof of origin, as each change by cookie does.
#[utoipa::path(
    post, path = "/login", tag = "login", request_body = LoginRequest, security(()),
    responses(
        (status = 200, description = "Signed in; the cookie is set", body = LoginAnswer),
        (status = 401, description = "The user name or password is wrong", body = Problem),
        (status = 403, description = "No proof of origin", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem),
        (status = 429, description = "Too many failed attempts", body = Problem),
    )
)]
pub(super) async fn api_log_in(
    State(portal): State<Arc<Portal>>,
    session: Session,
    claimed: Claimed,
    ClientAddress(from): ClientAddress,
    Json(request): Json<LoginRequest>,
) -> Result<Answer<LoginAnswer>> {
    no_password(&claimed)?;
    let principal = sign_in(&portal, &session, &request.username, &request.password, from).await?;
    Ok(Answer(LoginAnswer { csrf_token: principal.csrf_token().to_owned() }))
}

/// Signs out.
///
/// Ends the login on the server.
#[utoipa::path(
    post, path = "/logout", tag = "login",
    responses(
        (status = 204, description = "Signed out; the cookie is removed"),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "No proof of origin, or a token", body = Problem),
    )
)]
pub(super) async fn api_log_out(
    State(portal): State<Arc<Portal>>,
    session: Session,
    user: CurrentUser,
) -> Result<Response> {
    if user.login().is_none() {
        return Err(Error::forbidden("You cannot sign out with a token. Revoke the token instead."));
    }
    portal.access.log_out(&session).await?;
    Ok(([(header::SET_COOKIE, identity::drop_login_cookie(&portal.config))], NoContent).into_response())
}

#[derive(Deserialize)]
pub(super) struct PageParams {
    #[serde(default)]
    next: String,
    signed_out: Option<String>,
    welcome: Option<String>,
}

pub(super) async fn page(
    State(portal): State<Arc<Portal>>,
    session: Session,
    identity: Identity,
    claimed: Claimed,
    ClientAddress(from): ClientAddress,
    Query(visit): Query<PageParams>,
    request: Parts,
) -> Result<Response> {
    if identity.somebody().is_some_and(|principal| principal.login().is_some()) {
        return Ok(Redirect::to(&safe_next(&visit.next)).into_response());
    }
    let mut form = LoginForm {
        error: matches!(identity, Identity::TwoCookies).then(|| identity::TWO_COOKIES.to_owned()),
        notice: match (&visit.signed_out, &visit.welcome) {
            (Some(_), _) => Some("You have signed out.".to_owned()),
            (None, Some(_)) => Some("Your password is set. Sign in with it.".to_owned()),
            (None, None) => None,
        },
        next: visit.next,
        username: String::new(),
        leaves: visit.signed_out.as_deref() == Some("proxy"),
    };
    match &claimed {
        Claimed::Person(claim) if visit.signed_out.is_none() && form.error.is_none() => {
            match sign_in_by_header(&portal, &session, claim, from).await {
                Ok(_) => Ok(Redirect::to(&safe_next(&form.next)).into_response()),
                Err(error) if matches!(error.kind(), Kind::Forbidden | Kind::Unavailable) => {
                    form.error = Some(error.detail().to_owned());
                    Ok(error.with_page(form.draw(&portal, &request)))
                }
                Err(error) => Err(error),
            }
        }
        Claimed::Unusable(_) => {
            let error = Error::forbidden(UNUSABLE);
            form.error = Some(UNUSABLE.to_owned());
            Ok(error.with_page(form.draw(&portal, &request)))
        }
        Claimed::Person(_) | Claimed::Nothing => Ok(form.draw(&portal, &request)),
    }
}

const UNUSABLE: &str = "Your organisation's sign-in did not identify you clearly. Contact an administrator. The \
                        portal's log has the cause.";

/// The way in for whom a trusted proxy names. It is a GET, because it is where a browser comes
/// that nobody knows; it can only make somebody who they are.
async fn sign_in_by_header(portal: &Portal, session: &Session, claim: &Claim, from: IpAddr) -> Result<Arc<Principal>> {
    let outcome = portal.access.log_in_by_header(session, claim, from).await;
    count(portal, &outcome);
    outcome.map_err(|err| match err {
        auth::Error::BadCredentials { .. } => Error::forbidden(format!(
            "You are signed in to your organisation as {}. This account is not allowed to use this portal. Ask an \
             administrator.",
            claim.name
        )),
        err => err.into(),
    })
}

/// Whom a proxy names has one name: a password of another would be forgotten at the next request.
fn no_password(claimed: &Claimed) -> Result<()> {
    match claimed {
        Claimed::Nothing => Ok(()),
        Claimed::Person(claim) => Err(Error::conflict(format!(
            "You are signed in to your organisation as {}. To use another account, sign out there.",
            claim.name
        ))),
        Claimed::Unusable(_) => Err(Error::forbidden(UNUSABLE)),
    }
}

pub(super) async fn log_in(
    State(portal): State<Arc<Portal>>,
    session: Session,
    claimed: Claimed,
    ClientAddress(from): ClientAddress,
    request: Parts,
    form: Form,
) -> Result<Response> {
    no_password(&claimed)?;
    match sign_in(&portal, &session, form.get("username"), form.get("password"), from).await {
        Ok(_) => Ok(Redirect::to(&safe_next(form.get("next"))).into_response()),
        Err(error) if matches!(error.kind(), Kind::NotSignedIn | Kind::TooManyRequests | Kind::Unavailable) => {
            let again = LoginForm {
                error: Some(error.detail().to_owned()),
                notice: None,
                next: form.get("next").to_owned(),
                username: form.get("username").chars().take(64).collect(),
                leaves: false,
            };
            Ok(error.with_page(again.draw(&portal, &request)))
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn log_out(
    State(portal): State<Arc<Portal>>,
    session: Session,
    identity: Identity,
    claimed: Claimed,
) -> Result<Response> {
    if identity.principal()?.is_some_and(|principal| principal.login().is_some()) {
        portal.access.log_out(&session).await?;
    }
    // A form of another site's comes without the cookie, and must not take it away either.
    let shown = session.id().is_some() || matches!(identity, Identity::TwoCookies);
    let drop = shown.then(|| (header::SET_COOKIE, identity::drop_login_cookie(&portal.config)));
    Ok((AppendHeaders(drop), Redirect::to(claimed.after_sign_out(&portal))).into_response())
}

async fn sign_in(
    portal: &Portal,
    session: &Session,
    username: &str,
    password: &str,
    from: IpAddr,
) -> Result<Arc<Principal>> {
    let outcome = portal.access.log_in(session, username, password, from).await;
    count(portal, &outcome);
    Ok(outcome?)
}

fn count(portal: &Portal, outcome: &auth::Result<Arc<Principal>>) {
    portal.metrics.signed_in(match outcome {
        Ok(_) => "ok",
        Err(auth::Error::BadCredentials { .. }) => "failed",
        Err(auth::Error::Throttled { .. }) => "throttled",
        Err(_) => "error",
    });
}

/// The page's form, fresh or after a failure.
struct LoginForm {
    error: Option<String>,
    notice: Option<String>,
    next: String,
    username: String,
    /// The page goes on to where the proxy signs people out.
    leaves: bool,
}

impl LoginForm {
    fn draw(self, portal: &Portal, request: &Parts) -> Response {
        let claimed = request.extensions.get::<Claimed>().cloned().unwrap_or_default();
        let leave = claim::sign_out_url(portal).filter(|_| claimed != Claimed::Nothing).map(str::to_owned);
        let refresh = leave.as_ref().filter(|_| self.leaves).map(|url| (header::REFRESH, format!("0; url={url}")));
        let by_proxy = match claimed {
            Claimed::Nothing => None,
            Claimed::Person(claim) => Some(claim.name.to_string()),
            Claimed::Unusable(_) => Some(String::new()),
        };
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
            by_proxy,
            leave,
        };
        let set_cookie = is_new.then(|| (header::SET_COOKIE, identity::set_form_cookie(&portal.config, &cookie)));
        (AppendHeaders(set_cookie), AppendHeaders(refresh), Page(view)).into_response()
    }
}

/// The cookie that the form's proof is bound to: the one that the browser has, or a new one.
pub(super) fn form_cookie(portal: &Portal, headers: &HeaderMap) -> (String, bool) {
    match identity::cookie(headers, portal.config.form_cookie_name()) {
        Cookie::One(cookie) if cookie.len() == 43 => (cookie.to_owned(), false),
        _ => (portal.access.new_form_cookie(), true),
    }
}
