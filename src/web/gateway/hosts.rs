//! Names below the domain of the apps, as a `Host` says them. Every request of every notebook
//! is looked at here twice, so nothing is copied and nothing is parsed.

use axum::{
    http::{HeaderMap, header},
    response::Redirect,
};

use crate::{
    model::SessionId,
    web::http::error::{Error, Result},
};

/// Whether a request was sent to a name below `domain`, or to the domain itself: none of the
/// portal's pages is ever shown there, however the name is spelled.
pub(in crate::web) fn is_below(headers: &HeaderMap, domain: &str) -> bool {
    let name = name(headers);
    let name = name.strip_suffix(b".").unwrap_or(name);
    let Some(at) = name.len().checked_sub(domain.len()) else { return false };
    let (before, end) = name.split_at(at);
    let alike = end == domain.as_bytes() || end.eq_ignore_ascii_case(domain.as_bytes());
    alike && (before.is_empty() || before.ends_with(b"."))
}

/// Whether a request was sent to exactly this session's name, in the one spelling of browsers.
pub(super) fn names(headers: &HeaderMap, session: &str, domain: &str) -> bool {
    label(name(headers), domain) == Some(session.as_bytes())
}

/// The way in from a session's bare name. There is nothing at any other.
pub(super) fn front_door(headers: &HeaderMap, domain: &str) -> Result<Redirect> {
    let label = label(name(headers), domain).and_then(|label| str::from_utf8(label).ok());
    let session: Option<SessionId> = label.and_then(|label| label.parse().ok());
    session.map(|session| Redirect::to(&format!("/s/{session}/"))).ok_or_else(Error::not_found)
}

/// What stands before `.domain`.
fn label<'a>(name: &'a [u8], domain: &str) -> Option<&'a [u8]> {
    name.strip_suffix(domain.as_bytes())?.strip_suffix(b".")
}

/// The host without its port, however many digits that has.
fn name(headers: &HeaderMap) -> &[u8] {
    let host = headers.get(header::HOST).map_or(&b""[..], |host| host.as_bytes());
    let digits = host.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    host[..host.len() - digits].strip_suffix(b":").unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const ID: &str = "0190a5f0-7b1c-7def-8a2b-3c4d5e6f7a8b";
    const DOMAIN: &str = "apps.example.org";

    fn host(host: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::HOST, HeaderValue::from_str(host).unwrap())])
    }

    #[test]
    fn a_host_names_one_session() {
        let other = ID.replace('0', "1");
        for (sent, below, names_it) in [
            (format!("{ID}.{DOMAIN}"), true, true),
            (format!("{ID}.{DOMAIN}:8443"), true, true),
            (format!("{}.{DOMAIN}", ID.to_uppercase()), true, false),
            (format!("{ID}.Apps.Example.ORG:8443"), true, false),
            (format!("{ID}.{DOMAIN}:65535"), true, true),
            (format!("{ID}.{DOMAIN}:1"), true, true),
            (format!("{ID}.{DOMAIN}:"), true, true),
            (format!("{ID}.{DOMAIN}:0008443"), true, true),
            (format!("{other}.{DOMAIN}"), true, false),
            (format!("{ID}.{DOMAIN}."), true, false),
            (format!("{ID}.{DOMAIN}.:8443"), true, false),
            (format!("x.{ID}.{DOMAIN}"), true, false),
            (format!("{ID}x.{DOMAIN}"), true, false),
            (format!("x{ID}.{DOMAIN}"), true, false),
            (format!(".{DOMAIN}"), true, false),
            (DOMAIN.to_owned(), true, false),
            (format!("{DOMAIN}."), true, false),
            (format!("{ID}{DOMAIN}"), false, false),
            (format!("{ID}.xapps.example.org"), false, false),
            (format!("{ID}.{DOMAIN}.evil.example"), false, false),
            (format!("{ID}.example.org"), false, false),
            ("portal.example.org".to_owned(), false, false),
            ("[::1]:8000".to_owned(), false, false),
            (String::new(), false, false),
        ] {
            assert_eq!(is_below(&host(&sent), DOMAIN), below, "{sent}");
            assert_eq!(names(&host(&sent), ID, DOMAIN), names_it, "{sent}");
        }
        assert!(!is_below(&HeaderMap::new(), DOMAIN));
        assert!(front_door(&host(&format!("{ID}.{DOMAIN}:8443")), DOMAIN).is_ok());
        for nobody in [DOMAIN.to_owned(), format!("check.{DOMAIN}"), format!("x.{ID}.{DOMAIN}"), ID.to_owned()] {
            assert!(front_door(&host(&nobody), DOMAIN).is_err(), "{nobody}");
        }
    }
}
