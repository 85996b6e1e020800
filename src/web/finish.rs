//! Around every request: its id, who asks, the answer's headers, errors as documents or
//! pages, and one log line. Query strings, bodies and secrets are never logged.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};

use super::{
    Portal,
    error::{self, Error, Kind},
    extract::{RequestId, wants_html},
    identity::{self, Bearer, Identity},
    page::{Nav, Page},
    views::{ErrorPage, Way},
};

/// Put into an answer's extensions, it says that the answer is an app's: its headers are left alone.
#[derive(Clone, Copy, Debug)]
pub struct FromApp;

pub(super) async fn finish(State(portal): State<Arc<Portal>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = uuid::Uuid::now_v7().to_string();
    let asked = Asked::of(&request);
    let identity = match asked.path.as_str() {
        path if path.starts_with("/static/") || matches!(path, "/healthz" | "/readyz") => Identity::Nobody,
        _ => Identity::of(&portal, request.headers()).await,
    };
    request.extensions_mut().insert(RequestId(id.clone()));
    request.extensions_mut().insert(identity.clone());

    let mut response = next.run(request).await;

    if response.extensions().get::<FromApp>().is_none() {
        response = with_error(&portal, &asked, &identity, &id, response);
        headers(&portal, &asked, &id, &mut response);
    }
    let status = response.status().as_u16();
    let elapsed = started.elapsed();
    portal.metrics.answered(asked.method.as_str(), &asked.route, status, elapsed);
    let user = identity.somebody().map(|principal| principal.id().to_string());
    let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let (method, route) = (asked.method.as_str(), asked.route.as_str());
    // A notebook asks several times a second: its traffic is told on demand only.
    if response.extensions().get::<FromApp>().is_some() {
        tracing::debug!(request_id = id, method, route, status, milliseconds, user, "passed on");
    } else {
        tracing::info!(request_id = id, method, route, status, milliseconds, user, "answered");
    }
    response
}

/// What of a request its answer depends on.
struct Asked {
    method: Method,
    path: String,
    /// For `next=`: the path with its query.
    target: String,
    /// The router's template: bounded, and without what a user typed.
    route: String,
    wants_html: bool,
    accepts_pages: bool,
    by_token: bool,
    request_headers: HeaderMap,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let headers = request.headers();
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let mut host = HeaderMap::new();
        if let Some(value) = headers.get(header::HOST) {
            host.insert(header::HOST, value.clone());
        }
        Self {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            target: request.uri().path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            route: request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned(),
            wants_html: wants_html(headers),
            accepts_pages: accept.is_none_or(|accept| accept.contains("*/*")) || wants_html(headers),
            by_token: identity::bearer(headers) != Bearer::None,
            request_headers: host,
        }
    }

    fn is_api(&self) -> bool {
        self.path == "/api" || self.path.starts_with("/api/")
    }

    /// Whether a person's browser came to see a page. Below `/s/` programs come too.
    fn is_page_visit(&self) -> bool {
        let reads = matches!(self.method, Method::GET | Method::HEAD);
        let is_page = if self.path.starts_with("/s/") { self.wants_html } else { self.accepts_pages };
        reads && is_page && !self.is_api() && !self.by_token && !matches!(self.path.as_str(), "/metrics" | "/login")
    }
}

/// Gives an error its final shape: a way to sign in, a page, or a problem document.
fn with_error(portal: &Portal, asked: &Asked, identity: &Identity, id: &str, response: Response) -> Response {
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
    let mut answer = if error.kind() == Kind::NotSignedIn && asked.is_page_visit() {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("next", &asked.target);
        Redirect::to(&format!("/login?{}", query.finish())).into_response()
    } else if asked.wants_html && !asked.is_api() {
        page(portal, identity, id, &error)
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

fn page(portal: &Portal, identity: &Identity, id: &str, error: &Error) -> Response {
    let kind = error.kind();
    let ways = match kind {
        Kind::NotSignedIn => vec![Way { href: "/login".to_owned(), label: "Sign in".to_owned() }],
        _ => Vec::new(),
    };
    let view = ErrorPage {
        layout: portal.layout(identity, Nav::None),
        status: kind.status().as_u16(),
        title: kind.title().to_owned(),
        detail: error.detail().to_owned(),
        kind: kind.slug().to_owned(),
        request_id: id.to_owned(),
        ways,
    };
    let mut response = (kind.status(), Page(view)).into_response();
    error.decorate(&mut response);
    response
}

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What every answer of ours says to a browser; a handler that has said otherwise is heard.
fn headers(portal: &Portal, asked: &Asked, id: &str, response: &mut Response) {
    let form_targets = portal.config.apps_origin(&asked.request_headers).unwrap_or_default();
    let policy = format!(
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; \
         form-action 'self' {form_targets}"
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
    set(header::CACHE_CONTROL, "no-store");
    set(REQUEST_ID.clone(), id);
}
