//! What every request must satisfy before any route sees it, beyond what hyper's parser
//! refuses: one Host, plain chunked framing or none, a method and a target that a server of
//! pages can mean. Pure; the accept loop answers for it.

use std::net::Ipv6Addr;

use hyper::{
    HeaderMap, Method, Request, StatusCode, Uri, Version,
    header::{HOST, TRANSFER_ENCODING, UPGRADE},
};

/// Refuses what is malformed and brings the target into origin form (`/path?query`).
pub fn admit<B>(request: &mut Request<B>) -> Result<(), StatusCode> {
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let host = host(request.headers(), request.version())?;
    if let Some(authority) = request.uri().authority() {
        // A target in absolute form must name the host that the Host header names, because
        // checks of origin read the one and a proxy in front of us may read the other.
        let web = matches!(request.uri().scheme_str(), Some("http" | "https"));
        if !web || host.is_some_and(|host| !host.eq_ignore_ascii_case(authority.as_str())) {
            return Err(StatusCode::BAD_REQUEST);
        }
        let target = request.uri().path_and_query().cloned().ok_or(StatusCode::BAD_REQUEST)?;
        *request.uri_mut() = Uri::from(target);
    }
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(StatusCode::BAD_REQUEST),
    }
}

/// True where the guard cannot follow what comes after this request (see `guard`).
pub fn ends_the_connection(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) || headers.contains_key(UPGRADE)
}

fn host(headers: &HeaderMap, version: Version) -> Result<Option<&str>, StatusCode> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::HTTP_10 => Ok(None),
        (Some(host), None) => match host.to_str() {
            Ok(host) if is_authority(host) => Ok(Some(host)),
            _ => Err(StatusCode::BAD_REQUEST),
        },
        _ => Err(StatusCode::BAD_REQUEST),
    }
}

/// A name or address with an optional port, without user, path or blanks. A port has one
/// spelling, so that whoever looks for it finds the same name before it.
fn is_authority(host: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'[' | b']');
    if host.is_empty() || host.len() > 255 || !host.bytes().all(allowed) {
        return false;
    }
    let (is_name, port) = if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        (address.parse::<Ipv6Addr>().is_ok(), port)
    } else {
        let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
        (!name.is_empty() && !name.contains(['[', ']']), port)
    };
    is_name && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port != 0)
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && !text.starts_with('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(method: &str, target: &str, headers: &[(&'static str, &str)]) -> Result<String, u16> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        admit(&mut request).map(|()| request.uri().to_string()).map_err(|status| status.as_u16())
    }

    #[test]
    fn targets_and_hosts() {
        let host = [("host", "portal.example:8000")];
        assert_eq!(verdict("GET", "/a?b", &host), Ok("/a?b".to_owned()));
        assert_eq!(verdict("GET", "http://portal.example:8000/a%2Fb?c", &host), Ok("/a%2Fb?c".to_owned()));
        assert_eq!(verdict("GET", "http://other.example/a", &host), Err(400));
        assert_eq!(verdict("GET", "ftp://portal.example:8000/a", &host), Err(400));
        assert_eq!(verdict("CONNECT", "portal.example:8000", &host), Err(405));
        assert_eq!(verdict("TRACE", "/", &host), Err(405));
        assert_eq!(verdict("GET", "/", &[]), Err(400));
        assert_eq!(verdict("GET", "/", &[("host", "a"), ("host", "a")]), Err(400));
        for bad in ["", "a b", "a/b", "user@a", "a,b", "a\u{e9}"] {
            assert_eq!(verdict("GET", "/", &[("host", bad)]), Err(400), "{bad:?}");
        }
        for good in ["[::1]:8000", "[::1]", "a:1", "a:65535", "127.0.0.1:80", "a_b-c.d."] {
            assert_eq!(verdict("GET", "/", &[("host", good)]), Ok("/".to_owned()), "{good}");
        }
        // A port that could be read in two ways, or is none.
        for bad in [
            "a:",
            "a:0",
            "a:00",
            "a:08000",
            "a:023162",
            "a:65536",
            "a:123456",
            "a:+80",
            "a:8000:",
            "a:80:80",
            "::1",
            "[::1",
            "::1]",
            "[::1]x",
            "[::1]:",
            "[::1]:0",
            "[::1]:080",
            "[a]:80",
            "[]:80",
            ":80",
            "a[::1]:80",
            "a:8000.",
            "a:-1",
        ] {
            assert_eq!(verdict("GET", "/", &[("host", bad)]), Err(400), "{bad}");
        }
    }

    #[test]
    fn codings() {
        let host = ("host", "a");
        assert!(verdict("POST", "/", &[host, ("transfer-encoding", "Chunked")]).is_ok());
        for bad in ["gzip, chunked", "chunked, chunked", "identity", "chunked;a=b", "\u{b}chunked"] {
            let Ok(value) = hyper::header::HeaderValue::from_str(bad) else { continue };
            assert_eq!(verdict("POST", "/", &[host, ("transfer-encoding", value.to_str().unwrap())]), Err(400));
        }
        assert_eq!(
            verdict("POST", "/", &[host, ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]),
            Err(400)
        );
    }
}
