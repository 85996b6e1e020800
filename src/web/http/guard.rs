//! What stands before every route: proof that a change was asked for by one of our own pages,
//! and `safe_next`, which keeps a sign-in from leading away. The rules are pure; the layer
//! reads a form's body only where the headers prove nothing.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Method, header},
    middleware::Next,
    response::Response,
};
use url::{Origin, Url};

use super::{
    error::{Error, Result},
    extract::{self, Form},
};
use crate::web::{
    Portal, WebConfig,
    identity::{self, Bearer, Cookie, Identity},
};

/// Refuses changes by cookie, and sign-ins, that do not prove where they come from.
pub(in crate::web) async fn same_origin(
    State(portal): State<Arc<Portal>>,
    request: Request,
    next: Next,
) -> Result<Response> {
    let request = check(&portal, request).await?;
    Ok(next.run(request).await)
}

async fn check(portal: &Portal, request: Request) -> Result<Request> {
    // A token that is no good is told so wherever it is shown, sign-in included.
    if let Some(identity @ (Identity::BadToken | Identity::ExpiredOwner(_))) = request.extensions().get::<Identity>() {
        identity.principal()?;
    }
    let headers = request.headers();
    let path = request.uri().path();
    let is_sign_in = matches!(path, "/login" | "/api/v1/login");
    let by_token = identity::bearer(headers) != Bearer::None;
    let has_cookie = identity::login_cookie(headers, &portal.config) != Cookie::None;
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if reads || (!is_sign_in && (by_token || !has_cookie)) || came_from_us(headers, &portal.config) {
        return Ok(request);
    }
    let proof = Proof::of(portal, &request, is_sign_in);
    if let Some(token) = headers.get("x-csrf-token").and_then(|token| token.to_str().ok())
        && proof.matches(portal, token)
    {
        return Ok(request);
    }
    if !extract::is_form(headers) {
        return Err(Error::not_same_origin());
    }
    let (parts, body) = request.into_parts();
    let body = extract::read(body).await?;
    let form = Form::parse(&body);
    if form.all("csrf_token").any(|token| proof.matches(portal, token)) {
        Ok(Request::from_parts(parts, Body::from(body)))
    } else {
        Err(Error::not_same_origin())
    }
}

/// Whether the browser itself says that one of our pages sent this.
pub fn came_from_us(headers: &HeaderMap, config: &WebConfig) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    match (sites.next(), sites.next()) {
        (Some(site), None) => site.as_bytes() == b"same-origin",
        (Some(_), Some(_)) => false,
        (None, _) => origin_is_ours(headers, config),
    }
}

/// Whether the client wants to speak another protocol on this connection.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
}

/// The terminal's page alone: xterm.js writes its colours as a style sheet.
pub const TERMINAL_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; \
     base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

/// Whether there is exactly one `Origin` and it is ours; upgrades with a cookie need it.
pub fn origin_is_ours(headers: &HeaderMap, config: &WebConfig) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else { return false };
    let Some(origin) = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok()) else { return false };
    ours(headers, config).is_some_and(|ours| origin.origin() == ours)
}

/// The origin that this request was sent to, if it is one that we answer to. A Host that is
/// some other name could be anybody's who points it at our address.
pub fn ours(headers: &HeaderMap, config: &WebConfig) -> Option<Origin> {
    if let Some(public) = &config.public_url {
        return Some(public.origin());
    }
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let url = Url::parse(&format!("{}://{host}/", config.scheme())).ok()?;
    let known = match url.host()? {
        url::Host::Ipv4(_) | url::Host::Ipv6(_) => true,
        url::Host::Domain(name) => {
            name == "localhost"
                || name.ends_with(".localhost")
                || name.parse::<IpAddr>().is_ok()
                || config.host_names.iter().any(|host| is_same_host(host, name))
        }
    };
    known.then(|| url.origin())
}

/// Whether two names are of the same host: alike, or one of them without its domain.
fn is_same_host(known: &str, asked: &str) -> bool {
    let bare = |name: &str| !name.contains('.');
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    known.eq_ignore_ascii_case(asked) || ((bare(known) || bare(asked)) && first(known) == first(asked))
}

/// What a token in the request must match.
enum Proof {
    /// The token of the login's own pages.
    Login(Arc<crate::auth::Principal>),
    /// The token of the sign-in form, by the form's own cookie.
    Form(String),
    Nothing,
}

impl Proof {
    fn of(portal: &Portal, request: &Request, is_sign_in: bool) -> Self {
        let headers = request.headers();
        let identity = request.extensions().get::<Identity>();
        if let Some(principal) = identity.and_then(Identity::somebody)
            && principal.login().is_some()
        {
            return Self::Login(principal.clone());
        }
        // An app on another port can put its own form's cookie into somebody's browser, so
        // that it signs in as the app's owner. The form counts only where the browser does
        // not itself say that another page sent it.
        match identity::cookie(headers, portal.config.form_cookie_name()) {
            Cookie::One(cookie) if is_sign_in && !names_another_page(headers) => Self::Form(cookie.to_owned()),
            _ => Self::Nothing,
        }
    }

    fn matches(&self, portal: &Portal, given: &str) -> bool {
        match self {
            Self::Login(principal) => principal.csrf_matches(given),
            Self::Form(cookie) => portal.access.form_token_matches(cookie, given),
            Self::Nothing => false,
        }
    }
}

/// Whether the browser says that a page of another origin sent this: by whatever name the
/// portal was asked, that page was not loaded from here.
fn names_another_page(headers: &HeaderMap) -> bool {
    let site =
        headers.get_all("sec-fetch-site").iter().any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_foreign = |origin: &str| match origin.split_once("://") {
        Some((_, authority)) => !authority.eq_ignore_ascii_case(host),
        None => origin != "null",
    };
    site || headers.get_all(header::ORIGIN).iter().any(|origin| origin.to_str().map_or(true, is_foreign))
}

/// Where to go after signing in: `next` when it is a page of ours, else the home page.
pub fn safe_next(next: &str) -> String {
    inner_path(next).unwrap_or_else(|| "/".to_owned())
}

fn inner_path(next: &str) -> Option<String> {
    let plain = next.starts_with('/') && next.len() <= 2000 && !next.contains('\\') && !next.contains(char::is_control);
    if !plain || next.starts_with("//") {
        return None;
    }
    let base = Url::parse("http://portal.invalid/").expect("a constant");
    let url = base.join(next).ok()?;
    // Judged as a browser reads it: `/.//host` becomes `//host` on the way.
    let leads_away = url.origin() != base.origin() || url.path().starts_with("//");
    let goes_nowhere = matches!(url.path(), "/login" | "/logout") || url.path().starts_with("/api/");
    (!leads_away && !goes_nowhere).then(|| url[url::Position::BeforePath..].to_owned())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn open_redirect() {
        for (next, expected) in [
            ("/", "/"),
            ("/settings", "/settings"),
            ("/s/0190/lab?x=1&y=%2F#cell", "/s/0190/lab?x=1&y=%2F#cell"),
            ("/sessions/new?app=jupyter", "/sessions/new?app=jupyter"),
            ("/é", "/%C3%A9"),
            ("/a?next=//evil.example", "/a?next=//evil.example"),
            ("/@evil.example", "/@evil.example"),
            ("", "/"),
            ("settings", "/"),
            ("https://evil.example/", "/"),
            ("HTTPS://evil.example/", "/"),
            ("//evil.example", "/"),
            ("///evil.example", "/"),
            ("/\\evil.example", "/"),
            ("\\\\evil.example", "/"),
            ("\\/evil.example", "/"),
            ("/\t/evil.example", "/"),
            ("/\n/evil.example", "/"),
            ("\t//evil.example", "/"),
            (" //evil.example", "/"),
            ("/.//evil.example", "/"),
            ("/..//evil.example", "/"),
            ("/a/..//evil.example", "/"),
            ("/%2e%2e//evil.example", "/"),
            ("javascript:alert(1)", "/"),
            ("data:text/html,x", "/"),
            ("http:evil.example", "/"),
            ("?next=x", "/"),
            ("#x", "/"),
            ("/login?next=/login", "/"),
            ("/logout", "/"),
            ("/api/v1/me", "/"),
            ("/a\r\nSet-Cookie: x=1", "/"),
        ] {
            assert_eq!(safe_next(next), expected, "{next:?}");
        }
        assert_eq!(safe_next(&format!("/{}", "x".repeat(3000))), "/");
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn ours_is_the_public_address_or_a_host_that_is_us() {
        let mut config = WebConfig { host_names: vec!["node7.example.org".to_owned()], ..WebConfig::default() };
        for (host, origin, expected) in [
            ("127.0.0.1:8000", "http://127.0.0.1:8000", true),
            ("localhost:8000", "http://localhost:8000", true),
            ("LOCALHOST:8000", "http://localhost:8000", true),
            ("[::1]:8000", "http://[::1]:8000", true),
            ("192.0.2.1", "http://192.0.2.1:80", true),
            ("node7.example.org:8000", "http://node7.example.org:8000", true),
            ("Node7.Example.Org:8000", "http://node7.example.org:8000", true),
            ("node7:8000", "http://node7:8000", true),
            ("node7.evil.example:8000", "http://node7.evil.example:8000", false),
            ("node8:8000", "http://node8:8000", false),
            ("127.0.0.1:8000", "http://127.0.0.1:8001", false),
            ("127.0.0.1:8000", "https://127.0.0.1:8000", false),
            ("127.0.0.1:8000", "http://localhost:8000", false),
            ("evil.example:8000", "http://evil.example:8000", false),
            ("127.0.0.1:8000", "null", false),
            ("127.0.0.1:8000", "", false),
            ("127.0.0.1:8000", "http://127.0.0.1:8000.evil.example", false),
        ] {
            let sent = HeaderMap::from_iter([
                (header::HOST, HeaderValue::from_static(host)),
                (header::ORIGIN, HeaderValue::from_static(origin)),
            ]);
            assert_eq!(origin_is_ours(&sent, &config), expected, "{host} {origin}");
        }
        config.public_url = Some("https://portal.example.org".parse().unwrap());
        let sent = headers(&[("host", "127.0.0.1:8000"), ("origin", "https://portal.example.org")]);
        assert!(origin_is_ours(&sent, &config));
        let sent = headers(&[("host", "127.0.0.1:8000"), ("origin", "http://127.0.0.1:8000")]);
        assert!(!origin_is_ours(&sent, &config));
    }

    #[test]
    fn the_browsers_word_goes_before_the_origin() {
        let config = WebConfig::default();
        let host = ("host", "127.0.0.1:8000");
        let good = ("origin", "http://127.0.0.1:8000");
        for (sent, expected) in [
            (headers(&[host, ("sec-fetch-site", "same-origin")]), true),
            (headers(&[host, good]), true),
            (headers(&[host, good, ("sec-fetch-site", "cross-site")]), false),
            (headers(&[host, good, ("sec-fetch-site", "same-site")]), false),
            (headers(&[host, good, ("sec-fetch-site", "none")]), false),
            (headers(&[host, ("origin", "null")]), false),
            (headers(&[host]), false),
        ] {
            assert_eq!(came_from_us(&sent, &config), expected, "{sent:?}");
        }
    }

    proptest! {
        /// `open_redirect`, at length: wherever it leads, a browser stays on our origin, and
        /// reading it twice changes nothing.
        #[test]
        fn no_next_leads_away(
            next in "(/|//|\\\\|\\.|\\.\\.|%2[eEfF]|%5[cC]|@|:|;|\\?|#|https?:|evil\\.example|javascript:|[\t\r\n]|\u{2044}|\u{ff0f}|[ -~]|\\PC){0,14}",
        ) {
            let to = safe_next(&next);
            prop_assert!(to.starts_with('/') && !to.starts_with("//") && to.is_ascii(), "{next:?} {to:?}");
            prop_assert!(!to.contains(['\\', '\r', '\n', '\t']), "{next:?} {to:?}");
            for scheme in ["http", "https"] {
                let us = Url::parse(&format!("{scheme}://us.example/login?next=x")).unwrap();
                let read = us.join(&to).unwrap();
                prop_assert_eq!(read.origin(), us.origin(), "{:?} {:?}", next, to);
            }
            prop_assert_eq!(safe_next(&to), to);
        }
    }
}
