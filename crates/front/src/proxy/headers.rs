//! What of a message's head passes between browser and app, and what is ours to say. The
//! rules change a head in place and look at each name once, because every request of every
//! notebook runs through here. Bodies and connections are left to others.

use std::{borrow::Cow, net::IpAddr};

use hyper::{
    HeaderMap, Request, StatusCode, Uri, Version,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_LOCATION, COOKIE, HOST, HeaderName, HeaderValue, LOCATION,
        REFRESH, SET_COOKIE, TRANSFER_ENCODING, UPGRADE,
    },
    http::{response, uri::PathAndQuery},
};

use super::{
    Error, Rules,
    cookies::{self, SetCookie},
    names::{is_cookie, is_hop_by_hop, is_not_for_browsers, is_not_from_clients},
    paths::{session_path, without_tokens},
};
use lyceum_model::{SessionId, token::holds_token};

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// Whether the browser fetches a service worker's script: in path mode one could answer for
/// the portal's own pages.
pub(super) fn fetches_service_worker(headers: &HeaderMap) -> bool {
    headers.contains_key("service-worker")
}

/// The protocol a request asks to change to. HTTP/2 is not one: it would carry requests past
/// every rule here.
pub(super) fn upgrade<B>(request: &Request<B>) -> Option<HeaderValue> {
    let protocol = request.headers().get(UPGRADE)?;
    let asked = request.version() == Version::HTTP_11 && tokens(request.headers()).any(|token| token == "upgrade");
    let plain = !protocol.as_bytes().is_empty()
        && !tokens_of(protocol)
            .any(|token| token.starts_with("h2") || token.starts_with("tls") || token.starts_with("http"));
    (asked && plain).then(|| protocol.clone())
}

/// Makes a browser's request one that the app may see.
pub(super) fn to_upstream<B>(
    request: &mut Request<B>,
    session: SessionId,
    rules: &Rules,
    upgrade: Option<HeaderValue>,
) -> Result<(), Error> {
    let target = target(request.uri(), session, rules)?;
    if let Some(target) = target {
        *request.uri_mut() = Uri::from(target);
    }
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    let chunked = headers.contains_key(TRANSFER_ENCODING);
    remove_nominated(headers);
    // Where the portal answers for the app, nobody else does; elsewhere an app may want a secret
    // of its own, which is anything but a token of ours.
    let answers = rules.authorization.is_some();
    remove_where(headers, |name, value| is_not_from_clients(name) || (!is_cookie(name) && holds_token(value)));
    if answers {
        headers.remove(AUTHORIZATION);
    }
    strip_cookies(headers);
    if chunked || upgrade.is_some() {
        // An upgrade has no body, and chunks have no length.
        headers.remove(CONTENT_LENGTH);
    }
    if chunked && upgrade.is_none() {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    if let Some(authorization) = &rules.authorization {
        headers.insert(AUTHORIZATION, authorization.clone());
    }
    headers.insert(FORWARDED_FOR.clone(), address(rules.client));
    headers.insert(FORWARDED_PROTO.clone(), HeaderValue::from_static(rules.scheme));
    if let Some(host) = headers.get(HOST).cloned() {
        headers.insert(FORWARDED_HOST.clone(), host);
    }
    if rules.strip_prefix {
        headers.insert(FORWARDED_PREFIX.clone(), text(format!("/s/{session}"))?);
    }
    Ok(())
}

/// Makes an app's answer one that the browser may see. `host` is the request's.
pub(super) fn from_upstream(
    head: &mut response::Parts,
    session: SessionId,
    rules: &Rules,
    host: Option<&HeaderValue>,
) -> Result<(), Error> {
    let switching = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let protocol = head.headers.get(UPGRADE).filter(|_| switching).cloned();
    head.version = Version::HTTP_11;
    let headers = &mut head.headers;
    if headers.contains_key(TRANSFER_ENCODING) {
        // Both at once: the length was not what framed the body.
        headers.remove(CONTENT_LENGTH);
    }
    remove_nominated(headers);
    remove_where(headers, |name, _| is_hop_by_hop(name) || is_not_for_browsers(name));
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    if headers.contains_key(SET_COOKIE) {
        bind_cookies(headers, &format!("/s/{session}/"), rules.strip_prefix);
    }
    let own = OwnAddresses { base: &format!("/s/{session}"), strip_prefix: rules.strip_prefix, host };
    for name in [LOCATION, CONTENT_LOCATION] {
        if let Some(placed) = headers.get(&name).and_then(|value| own.place(value.to_str().ok()?)) {
            headers.insert(name, text(placed)?);
        }
    }
    if let Some(placed) = headers.get(REFRESH).and_then(|value| own.refresh(value.to_str().ok()?)) {
        headers.insert(REFRESH, text(placed)?);
    }
    Ok(())
}

/// The target to ask the app for, where it differs from the one we were asked for.
fn target(uri: &Uri, session: SessionId, rules: &Rules) -> Result<Option<PathAndQuery>, Error> {
    let strip_prefix = rules.strip_prefix;
    let query = uri.query().map(|query| (query, without_tokens(query, rules.authorization.is_some())));
    let cut = matches!(query, Some((_, Some(_))));
    if !strip_prefix && !cut && uri.authority().is_none() {
        return Ok(None);
    }
    let mut path = uri.path();
    if strip_prefix {
        match session_path(path)? {
            (named, rest) if named == session => path = if rest.is_empty() { "/" } else { rest },
            _ => return Err(Error::Path(super::PathFault::NoSession)),
        }
    }
    let target = match query {
        Some((_, Some(left))) if left.is_empty() => path.to_owned(),
        Some((_, Some(left))) => format!("{path}?{left}"),
        Some((whole, None)) => format!("{path}?{whole}"),
        None => path.to_owned(),
    };
    PathAndQuery::try_from(target).map(Some).map_err(Error::Target)
}

/// Removes the headers of which `condition` is true, without allocating.
fn remove_where(headers: &mut HeaderMap, condition: impl Fn(&str, &[u8]) -> bool) {
    const AT_ONCE: usize = 8;
    loop {
        let mut doomed = [const { None::<HeaderName> }; AT_ONCE];
        let found = headers.iter().filter(|(name, value)| condition(name.as_str(), value.as_bytes())).take(AT_ONCE);
        let mut count = 0;
        for (place, (name, _)) in doomed.iter_mut().zip(found) {
            *place = Some(name.clone());
            count += 1;
        }
        for name in doomed.into_iter().flatten() {
            headers.remove(name);
        }
        if count < AT_ONCE {
            return;
        }
    }
}

/// Removes the headers that `Connection` names as meant for one connection.
fn remove_nominated(headers: &mut HeaderMap) {
    // Host and length say what the message is; nobody may have them dropped on the way.
    let nominates = |token: &str| !matches!(token, "close" | "keep-alive" | "upgrade" | "host" | "content-length");
    if !tokens(headers).any(|token| nominates(&token)) {
        return;
    }
    let names: Vec<_> = tokens(headers).filter(|token| nominates(token)).map(Cow::into_owned).collect();
    for name in names {
        headers.remove(name);
    }
}

/// The tokens of all `Connection` headers, in lower case.
fn tokens(headers: &HeaderMap) -> impl Iterator<Item = Cow<'_, str>> {
    headers.get_all(CONNECTION).iter().flat_map(tokens_of)
}

fn tokens_of(value: &HeaderValue) -> impl Iterator<Item = Cow<'_, str>> {
    value.to_str().unwrap_or_default().split(',').map(|token| {
        let token = token.trim();
        if token.bytes().any(|byte| byte.is_ascii_uppercase()) {
            token.to_ascii_lowercase().into()
        } else {
            token.into()
        }
    })
}

fn strip_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().all(|value| cookies::without_ours(value.as_bytes()).is_none()) {
        return;
    }
    let kept = headers.get_all(COOKIE).iter().filter_map(|value| match cookies::without_ours(value.as_bytes()) {
        None => Some(value.clone()),
        Some(kept) if kept.is_empty() => None,
        Some(kept) => HeaderValue::from_bytes(&kept).ok(),
    });
    let kept: Vec<_> = kept.collect();
    headers.remove(COOKIE);
    for value in kept {
        headers.append(COOKIE, value);
    }
}

fn bind_cookies(headers: &mut HeaderMap, base: &str, strip_prefix: bool) {
    let bound = headers.get_all(SET_COOKIE).iter().filter_map(|value| {
        match cookies::set_cookie(value.as_bytes(), base, strip_prefix) {
            SetCookie::Keep => Some(value.clone()),
            SetCookie::Replace(new) => HeaderValue::from_bytes(&new).ok(),
            SetCookie::Drop => None,
        }
    });
    let bound: Vec<_> = bound.collect();
    headers.remove(SET_COOKIE);
    for value in bound {
        headers.append(SET_COOKIE, value);
    }
}

/// What an app's own addresses become.
struct OwnAddresses<'a> {
    /// `/s/{id}`
    base: &'a str,
    strip_prefix: bool,
    /// The request's.
    host: Option<&'a HeaderValue>,
}

impl OwnAddresses<'_> {
    /// An address of the app's below our own path; `None` where it stays as it is.
    fn place(&self, address: &str) -> Option<String> {
        let path = self.path(address)?;
        // An app that was told its path names it by itself; it may not know our scheme and port.
        let knows = path
            .strip_prefix(self.base)
            .is_some_and(|rest| matches!(rest.chars().next(), None | Some('/' | '?' | '#')));
        if knows { Some(path.into_owned()) } else { self.strip_prefix.then(|| format!("{}{path}", self.base)) }
    }

    /// `Refresh: 5; url=/x`, with or without its `url=` and quotes.
    fn refresh(&self, value: &str) -> Option<String> {
        let (seconds, rest) = value.split_once([';', ','])?;
        let rest = rest.trim();
        let named = rest.split_at_checked(3).filter(|(name, _)| name.eq_ignore_ascii_case("url"));
        let address = named.and_then(|(_, after)| after.trim_start().strip_prefix('=')).unwrap_or(rest).trim();
        let bare = ['"', '\''].iter().find_map(|quote| address.strip_prefix(*quote)?.strip_suffix(*quote));
        Some(format!("{seconds}; url={}", self.place(bare.unwrap_or(address))?))
    }

    /// The path of an address of the app itself. A server on a Unix socket, nginx for one, leaves
    /// the port away when it makes an address of a path.
    fn path<'a>(&self, address: &'a str) -> Option<Cow<'a, str>> {
        if address.starts_with('/') && !address.starts_with("//") {
            return Some(address.into());
        }
        let scheme = |scheme: &str| address.get(..scheme.len()).filter(|found| found.eq_ignore_ascii_case(scheme));
        let scheme = ["http:", "https:", ""].into_iter().find_map(scheme)?;
        let rest = address[scheme.len()..].strip_prefix("//")?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let host = self.host?.to_str().ok()?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let own = authority.eq_ignore_ascii_case(host) || authority.eq_ignore_ascii_case(name);
        own.then(|| if path.starts_with('/') { path.into() } else { format!("/{path}").into() })
    }
}

fn address(address: IpAddr) -> HeaderValue {
    text(address.to_canonical().to_string()).expect("an address is written in plain characters")
}

fn text(text: String) -> Result<HeaderValue, Error> {
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).map_err(Error::Value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::{Access, Holder};
    use lyceum_model::{LoginId, UserId};

    fn rules(strip_prefix: bool) -> Rules {
        Rules {
            strip_prefix,
            path_mode: false,
            authorization: Some(HeaderValue::from_static("token app")),
            client: "::ffff:10.1.2.3".parse().unwrap(),
            scheme: "https",
            active: true,
            holder: Holder { user: UserId::new(), access: Access::Login(LoginId::new()) },
        }
    }

    fn sent(
        session: SessionId,
        uri: &str,
        strip_prefix: bool,
        headers: &[(&'static str, &'static str)],
    ) -> Request<()> {
        let mut request = Request::builder().uri(uri).header("host", "apps.example:8001");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        let upgrade = upgrade(&request);
        to_upstream(&mut request, session, &rules(strip_prefix), upgrade).unwrap();
        request
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn an_app_sees_its_own_headers_and_ours() {
        let session = SessionId::new();
        let request = sent(
            session,
            &format!("/s/{session}/a%2Fb?x=%20&token=t"),
            false,
            &[
                ("connection", "Keep-Alive, X-Odd, Host"),
                ("x-odd", "1"),
                ("keep-alive", "1"),
                ("proxy-authorization", "p"),
                ("proxy-connection", "close"),
                ("te", "trailers"),
                ("trailer", "x"),
                ("upgrade", "websocket"),
                ("authorization", "Bearer portal"),
                ("expect", "100-continue"),
                ("x-forwarded-for", "6.6.6.6"),
                ("x-forwarded-user", "root"),
                ("x-forwarded-prefix", "/evil"),
                ("forwarded", "for=6.6.6.6"),
                ("x-real-ip", "6.6.6.6"),
                ("cookie", "lyceum_login=s"),
                ("cookie", "a=1; lyceum_app_x=s"),
                ("cookie", "b=\"2;"),
                ("accept", "*/*"),
            ],
        );
        assert_eq!(request.uri().to_string(), format!("/s/{session}/a%2Fb?x=%20"));
        let expected = [
            "accept: */*",
            "authorization: token app",
            "cookie: a=1",
            "cookie: b=\"2;",
            "host: apps.example:8001",
            "x-forwarded-for: 10.1.2.3",
            "x-forwarded-host: apps.example:8001",
            "x-forwarded-proto: https",
        ];
        assert_eq!(lines(request.headers()), expected);
    }

    #[test]
    fn upgrades_keep_their_protocol() {
        let session = SessionId::new();
        let request = sent(session, "/", false, &[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")]);
        assert_eq!(request.headers()["upgrade"], "WebSocket");
        assert_eq!(request.headers()["connection"], "upgrade");
        for protocol in ["h2c", "H2C", "websocket, h2c", "TLS/1.0", ""] {
            let request = sent(session, "/", false, &[("connection", "upgrade"), ("upgrade", protocol)]);
            assert!(!request.headers().contains_key("upgrade"), "{protocol}");
        }
    }

    #[test]
    fn a_stripped_prefix_goes_and_comes_back() {
        let session = SessionId::new();
        let path = |uri: String| sent(session, &uri, true, &[]).uri().to_string();
        assert_eq!(path(format!("/s/{session}/a%2Fb?q")), "/a%2Fb?q");
        assert_eq!(path(format!("/s/{session}")), "/");
        assert_eq!(path(format!("/s/{session}?token=x")), "/");
        let mut other = Request::builder().uri(format!("/s/{}/", SessionId::new())).body(()).unwrap();
        assert!(to_upstream(&mut other, session, &rules(true), None).is_err());

        for (location, expected) in [
            ("/login?next=%2F", format!("/s/{session}/login?next=%2F")),
            ("http://apps.example:8001/x", format!("/s/{session}/x")),
            ("https://apps.example:8001", format!("/s/{session}/")),
            (&format!("http://apps.example:8001/s/{session}/x"), format!("/s/{session}/x")),
            ("http://apps.example/x/", format!("/s/{session}/x/")),
            ("http://apps.example.org/x", "http://apps.example.org/x".to_owned()),
            ("https://apps.example:80011/x", "https://apps.example:80011/x".to_owned()),
            ("//elsewhere.example/x", "//elsewhere.example/x".to_owned()),
            ("relative", "relative".to_owned()),
        ] {
            let mut head =
                hyper::Response::builder().status(302).header("location", location).body(()).unwrap().into_parts().0;
            let host = HeaderValue::from_static("apps.example:8001");
            from_upstream(&mut head, session, &rules(true), Some(&host)).unwrap();
            assert_eq!(head.headers["location"], expected);
        }
    }

    #[test]
    fn a_redirect_below_its_own_path_keeps_our_address() {
        let session = SessionId::new();
        let own = format!("/s/{session}/dir/");
        for (location, expected) in [
            (format!("http://apps.example{own}"), own.clone()),
            (format!("http://apps.example:8001{own}"), own.clone()),
            (own.clone(), own.clone()),
            (format!("http://apps.example/s/{session}x/"), format!("http://apps.example/s/{session}x/")),
            ("http://apps.example/wiki".to_owned(), "http://apps.example/wiki".to_owned()),
            (format!("http://elsewhere.example{own}"), format!("http://elsewhere.example{own}")),
        ] {
            let mut head =
                hyper::Response::builder().status(301).header("location", &location).body(()).unwrap().into_parts().0;
            let host = HeaderValue::from_static("apps.example:8001");
            from_upstream(&mut head, session, &rules(false), Some(&host)).unwrap();
            assert_eq!(head.headers["location"], expected);
        }
    }

    #[test]
    fn an_app_that_knows_its_path_is_not_put_below_it_twice() {
        let session = SessionId::new();
        let base = format!("/s/{session}");
        let host = HeaderValue::from_static("apps.example:8001");
        let answered = |name: &'static str, value: &str, strip_prefix: bool| {
            let head = hyper::Response::builder().status(302).header(name, value).body(()).unwrap();
            let mut head = head.into_parts().0;
            from_upstream(&mut head, session, &rules(strip_prefix), Some(&host)).unwrap();
            head.headers[name].to_str().unwrap().to_owned()
        };
        for (address, expected) in [
            (base.clone(), base.clone()),
            (format!("{base}?a=/"), format!("{base}?a=/")),
            (format!("{base}#x"), format!("{base}#x")),
            (format!("{base}/x"), format!("{base}/x")),
            (format!("{base}x"), format!("{base}{base}x")),
            (format!("{base}%2fx"), format!("{base}{base}%2fx")),
            (format!("http://apps.example:8001{base}"), base.clone()),
            (format!("HTTPS://Apps.Example{base}"), base.clone()),
            (format!("//apps.example:8001{base}/x"), format!("{base}/x")),
            ("//apps.example:8001/x".to_owned(), format!("{base}/x")),
            ("http://apps.example:8001?a".to_owned(), format!("{base}/?a")),
            ("//elsewhere.example/x".to_owned(), "//elsewhere.example/x".to_owned()),
            ("?a".to_owned(), "?a".to_owned()),
            ("mailto:x".to_owned(), "mailto:x".to_owned()),
        ] {
            assert_eq!(answered("location", &address, true), expected);
            assert_eq!(answered("content-location", &address, true), expected);
            let moves = expected.starts_with(&base);
            for (refresh, read) in [
                (format!("5; url={address}"), format!("5; url={expected}")),
                (format!("0;URL='{address}'"), format!("0; url={expected}")),
                (format!("0, \"{address}\""), format!("0; url={expected}")),
            ] {
                assert_eq!(answered("refresh", &refresh, true), if moves { read } else { refresh });
            }
        }
        assert_eq!(answered("refresh", "5", true), "5");
        assert_eq!(answered("location", &base, false), base);
        assert_eq!(answered("location", "/x", false), "/x");
    }

    /// However proxies spell what they tell of a client, and whatever an app's server makes of it.
    #[test]
    fn nobody_tells_an_app_who_they_are() {
        for name in [
            "x_forwarded_for",
            "X-Forwarded_User",
            "x-forwarded",
            "x_real_ip",
            "x.real.ip",
            "remote-user",
            "Remote_User",
            "remote-addr",
            "x-remote-user",
            "x_remote_groups",
            "client-ip",
            "x-client-ip",
            "x_client_ip",
            "true-client-ip",
            "cf-connecting-ip",
            "cf_connecting_ipv6",
            "proxy",
            "x-original-url",
            "x_original_host",
            "x-rewrite-url",
            "x-accel-redirect",
            "x_accel_mapping",
            "x-sendfile-type",
            "ssl-client-verify",
            "x-auth-request-email",
            "x-webauth-user",
            "forwarded",
            "content_length",
            "content_type",
            "transfer_encoding",
            "keep_alive",
            "proxy_authorization",
            "x-forwarded~for",
        ] {
            for upgrades in [false, true] {
                let mut headers = vec![(name, "root"), ("x-own", "kept"), ("x_own", "kept")];
                if upgrades {
                    headers.extend([("connection", "upgrade"), ("upgrade", "websocket")]);
                }
                let seen = sent(SessionId::new(), "/", false, &headers);
                let seen = lines(seen.headers());
                assert!(!seen.iter().any(|line| line.ends_with(": root")), "{name}: {seen:?}");
                assert_eq!(seen.iter().filter(|line| line.ends_with(": kept")).count(), 2, "{name}");
            }
        }
    }

    #[test]
    fn an_apps_own_secret_passes_and_a_token_of_ours_does_not() {
        let session = SessionId::new();
        let ours = format!("lyc_{}", "Aa0_-".repeat(9));
        let seen = |path: &str, name: &str, value: &str| {
            let mut request =
                Request::builder().uri(format!("/s/{session}/{path}")).header(name, value).body(()).unwrap();
            let rules = Rules { authorization: None, ..rules(false) };
            to_upstream(&mut request, session, &rules, None).unwrap();
            let value = request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            (request.uri().query().map(str::to_owned), value)
        };
        for own in
            ["Basic YTpi", "Bearer of-the-app", "token eyJhbGciOi.x.y", "Digest username=\"a\"", "Bearer lyc_short"]
        {
            let expected = (Some("token=of-the-app&a".to_owned()), Some(own.to_owned()));
            assert_eq!(seen("?token=of-the-app&a", "authorization", own), expected);
        }
        for (name, value) in [
            ("authorization", format!("Bearer {ours}")),
            ("authorization", format!("token {ours}")),
            (
                "authorization",
                "Basic YWxpY2U6bHljX0FhMF8tQWEwXy1BYTBfLUFhMF8tQWEwXy1BYTBfLUFhMF8tQWEwXy1BYTBfLQ==".to_owned(),
            ),
            ("x-api-key", ours.clone()),
            ("referer", format!("https://apps.example/?token={ours}")),
        ] {
            assert_eq!(seen(&format!("?a&token={ours}"), name, &value), (Some("a".to_owned()), None), "{name}");
        }
    }

    #[test]
    fn an_app_cannot_speak_for_the_origin() {
        let session = SessionId::new();
        let mut head = hyper::Response::builder();
        for (name, value) in [
            ("access-control-allow-origin", "*"),
            ("access-control-allow-credentials", "true"),
            ("access-control-max-age", "1"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"*\""),
            ("strict-transport-security", "max-age=1"),
            ("public-key-pins", "x"),
            ("alt-svc", "h2=\":1\""),
            ("nel", "{}"),
            ("x-accel-redirect", "/private"),
            ("x-sendfile", "/etc/passwd"),
            ("report-to", "{}"),
            ("connection", "close, x-odd"),
            ("x-odd", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("upgrade", "h2c"),
            ("set-cookie", "a=1; Path=/; Domain=x"),
            ("set-cookie", "lyceum_login=evil"),
            ("set-cookie", "b=2"),
            ("etag", "\"1\""),
        ] {
            head = head.header(name, value);
        }
        let mut head = head.body(()).unwrap().into_parts().0;
        from_upstream(&mut head, session, &rules(false), None).unwrap();
        let expected =
            ["etag: \"1\"".to_owned(), format!("set-cookie: a=1; Path=/s/{session}/"), "set-cookie: b=2".to_owned()];
        assert_eq!(lines(&head.headers), expected);
    }
}
