//! Around every request: its id, who asks, the answer's headers, errors as documents or
//! pages, and one log line. Query strings, bodies and secrets are never logged.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};

use super::{
    error::{self, Error, Kind},
    extract::wants_html,
    forwarded, live_requests,
};
use crate::{
    db::audit::Origin,
    web::{
        Portal, claim,
        identity::{self, Bearer, Identity},
        page::{Nav, Page},
        views::{ErrorLink, ErrorPage},
    },
};

/// Names the listener, or the host name, that a request was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The portal.
    Portal,
    /// The apps: scripts of apps read what it answers, so none of the portal's secrets may
    /// be in it, and the login cookie means nothing.
    Apps,
}

pub(in crate::web) async fn finish(
    State((portal, side)): State<(Arc<Portal>, Listener)>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = request_id();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let claimed = claim::take(&portal, &mut request);
    let asked = RequestFacts::of(side, request.method(), request.uri(), request.headers());
    let generation = portal.access.generation();
    let identity = match request.uri().path() {
        _ if side == Listener::Apps => Identity::Nobody,
        path if path.starts_with("/static/") || matches!(path, "/favicon.ico" | "/healthz" | "/readyz") => {
            Identity::Nobody
        }
        _ => Identity::of(&portal, request.headers(), &claimed).await,
    };
    request.extensions_mut().insert(claimed);
    request.extensions_mut().insert(identity.clone());
    let address = forwarded::client_address(&portal.config, request.headers(), request.extensions());
    let origin = Origin { address: address.to_string(), request_id: id.clone() };

    let answer = origin.scope(live_requests::run(&portal, &identity, generation, request, next)).await;
    let response = complete(&portal, &asked, &identity, &id, answer);
    // The router's template: bounded, and without what a user typed.
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let (status, elapsed) = (response.status().as_u16(), started.elapsed());
    portal.metrics.answered(asked.method.as_str(), route.to_owned(), status, elapsed);
    let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        request_id = id,
        method = asked.method.as_str(),
        route,
        status,
        milliseconds,
        user = identity.user_id_for_log(),
        "answered"
    );
    response
}

pub(in crate::web) fn request_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Gives an answer of ours its final shape and its headers.
pub(in crate::web) fn complete(
    portal: &Portal,
    asked: &RequestFacts,
    identity: &Identity,
    id: &str,
    response: Response,
) -> Response {
    let mut response = with_error(portal, asked, identity, id, response);
    headers(portal, asked, id, &mut response);
    response
}

/// Holds the parts of a request that its response depends on.
pub(in crate::web) struct RequestFacts {
    pub(in crate::web) side: Listener,
    pub(in crate::web) method: Method,
    uri: Uri,
    wants_html: bool,
    accepts_pages: bool,
    by_token: bool,
    host: Option<HeaderValue>,
}

impl RequestFacts {
    pub(in crate::web) fn of(side: Listener, method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let wants_html = wants_html(headers);
        Self {
            side,
            method: method.clone(),
            uri: uri.clone(),
            wants_html,
            accepts_pages: accept.is_none_or(|accept| accept.contains("*/*")) || wants_html,
            by_token: identity::bearer(headers) != Bearer::None,
            host: headers.get(header::HOST).cloned(),
        }
    }

    /// `Host` alone.
    fn host(&self) -> HeaderMap {
        self.host.iter().map(|host| (header::HOST, host.clone())).collect()
    }

    fn is_api(&self) -> bool {
        self.uri.path() == "/api" || self.uri.path().starts_with("/api/")
    }

    /// Whether a person's browser came to see a page. Below `/s/` programs come too.
    fn is_page_visit(&self) -> bool {
        let reads = matches!(self.method, Method::GET | Method::HEAD);
        let path = self.uri.path();
        let is_page = if path.starts_with("/s/") { self.wants_html } else { self.accepts_pages };
        reads && is_page && !self.is_api() && !self.by_token && !matches!(path, "/metrics" | "/login")
    }
}

/// Gives an error its final shape: a way to sign in, a page, or a problem document.
fn with_error(portal: &Portal, asked: &RequestFacts, identity: &Identity, id: &str, response: Response) -> Response {
    let ready_made =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    let error = match response.extensions().get::<Error>().cloned() {
        Some(error) => error,
        None if ready_made => return response,
        None => match Error::of_status(response.status()) {
            Some(error) => error,
            None => return response,
        },
    };
    error.log(id);
    // A second cookie may be there below some path alone: the sign-in, which sees one, would
    // lead back here for ever.
    let two_cookies = error.kind() == Kind::NotSignedIn && matches!(identity, Identity::TwoCookies);
    let error = if two_cookies { Error::unauthenticated_because(identity::TWO_COOKIES) } else { error };
    let mut answer = if error.kind() == Kind::NotSignedIn && asked.is_page_visit() && !two_cookies {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        // For `next=`: the path with its query.
        query.append_pair("next", asked.uri.path_and_query().map_or("/", |target| target.as_str()));
        Redirect::to(&format!("{}/login?{}", portal.portal_seen_from(asked.side, &asked.host()), query.finish()))
            .into_response()
    } else if asked.wants_html && !asked.is_api() {
        page(portal, asked, identity, id, &error)
    } else {
        error::document(&error, id)
    };
    // Headers that the first answer set on purpose stay: Allow, Set-Cookie, Retry-After.
    for (name, value) in response.headers() {
        if !matches!(*name, header::CONTENT_TYPE | header::CONTENT_LENGTH) && !answer.headers().contains_key(name) {
            answer.headers_mut().append(name, value.clone());
        }
    }
    answer
}

fn page(portal: &Portal, asked: &RequestFacts, identity: &Identity, id: &str, error: &Error) -> Response {
    let kind = error.kind();
    let layout = match asked.side {
        Listener::Portal => portal.layout(identity, Nav::None),
        Listener::Apps => portal.bare_layout(&asked.host()),
    };
    let ways = match kind {
        Kind::NotSignedIn => vec![ErrorLink { href: format!("{}/login", layout.portal), label: "Sign in".to_owned() }],
        _ => Vec::new(),
    };
    let view = ErrorPage {
        layout,
        status: kind.status().as_u16(),
        title: kind.title().to_owned(),
        detail: error.detail().to_owned(),
        kind: kind.slug().to_owned(),
        request_id: id.to_owned(),
        ways,
    };
    error.with_page(Page(view))
}

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What every answer of ours says to a browser; a handler that has said otherwise is heard.
fn headers(portal: &Portal, asked: &RequestFacts, id: &str, response: &mut Response) {
    let form_targets = portal.config.apps_origin(&asked.host(), "*").unwrap_or_default();
    let policy = format!(
        "default-src 'self'; img-src 'self' data:; worker-src 'self'; object-src 'none'; base-uri 'none'; \
         frame-ancestors 'none'; form-action 'self' {form_targets}"
    );
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &str| {
        if !headers.contains_key(&name)
            && let Ok(value) = HeaderValue::from_str(value.trim_end())
        {
            headers.insert(name, value);
        }
    };
    set(header::CONTENT_SECURITY_POLICY, &policy);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    // Who opened this page in a window of theirs has no hold on it.
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    if portal.config.is_https() {
        // For this name alone: what else the domain serves is not ours to speak for.
        set(header::STRICT_TRANSPORT_SECURITY, &format!("max-age={}", portal.config.hsts));
    }
    set(header::CACHE_CONTROL, "no-store");
    set(REQUEST_ID.clone(), id);
}

/// Answers 500 for a handler that panicked, with the panic in the log.
#[expect(clippy::needless_pass_by_value, reason = "the layer hands it over by value")]
pub(in crate::web) fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let message = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    Error::internal(format!("a panic: {}", message.unwrap_or("of unknown kind"))).into_response()
}
