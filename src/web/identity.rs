//! Who a request says it comes from: the login cookie, the bearer token. It reads headers and
//! asks `auth`; what somebody may do is judged elsewhere, and where they are by `forwarded`. The
//! session layer, which sets the login cookie, reads what is found here.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, HeaderValue, header, request::Parts},
    middleware::Next,
    response::Response,
};
use tower_sessions::{
    Expiry, SessionManagerLayer,
    cookie::{SameSite, time::Duration},
    session::Id,
};

use super::{
    Portal, WebConfig,
    claim::Claimed,
    http::error::{Error, Result},
};
use crate::{
    auth::{Logins, Principal, access::ABSOLUTE_SECONDS},
    model::Timestamp,
};

/// Who is asking; found once a request and kept in its extensions.
#[derive(Clone, Debug)]
pub enum Identity {
    Nobody,
    Somebody(Arc<Principal>),
    /// A token that is unknown, revoked or expired, or whose owner is disabled.
    BadToken,
    /// A token whose owner's account expired at this moment.
    ExpiredOwner(Timestamp),
    /// Two cookies of our name: somebody else may have put one there.
    TwoCookies,
    /// It could not be looked up.
    Unknown(Error),
}

/// What to do about [`Identity::TwoCookies`].
pub(super) const TWO_COOKIES: &str = "Your browser sent two sign-in cookies, and one of them is not from this portal. \
                                      Delete the cookies for this address in your browser, then sign in.";

impl Identity {
    /// Nobody is `None`; a token that is no good is refused even where nobody is welcome.
    pub fn principal(&self) -> Result<Option<Arc<Principal>>> {
        match self {
            Self::Nobody | Self::TwoCookies => Ok(None),
            Self::Somebody(principal) => Ok(Some(principal.clone())),
            Self::BadToken => Err(Error::unauthenticated_because(
                "This token is unknown, revoked or expired. Create a new one on the settings page.",
            )),
            Self::ExpiredOwner(end) => Err(Error::unauthenticated_because(format!(
                "The account of this token expired at {end}. Ask an administrator to set a later end and to enable the \
                 account."
            ))),
            Self::Unknown(error) => Err(error.clone()),
        }
    }

    pub fn somebody(&self) -> Option<&Arc<Principal>> {
        match self {
            Self::Somebody(principal) => Some(principal),
            _ => None,
        }
    }

    /// For the log.
    pub(super) fn user_id_for_log(&self) -> Option<tracing::field::DisplayValue<crate::model::UserId>> {
        self.somebody().map(|principal| tracing::field::display(principal.id()))
    }

    /// Finds out who sends these headers. A bearer token counts alone: a cookie beside it is
    /// not looked at, so that such a request needs no proof of origin. A login that is not of
    /// whom a trusted proxy names is nobody's.
    pub async fn of(portal: &Portal, headers: &HeaderMap, claimed: &Claimed) -> Self {
        let found = match (bearer(headers), login_cookie(headers, &portal.config)) {
            (Bearer::Bad, _) => return Self::BadToken,
            (Bearer::Token(secret), _) => match portal.access.by_token(secret).await {
                Ok(None) => {
                    return match portal.access.expiry_of_owner(secret).await {
                        Ok(Some(end)) => Self::ExpiredOwner(end),
                        Ok(None) => Self::BadToken,
                        Err(err) => Self::Unknown(Error::from(err)),
                    };
                }
                found => found,
            },
            (Bearer::None, Cookie::Two) => return Self::TwoCookies,
            (Bearer::None, Cookie::None) => return Self::Nobody,
            (Bearer::None, Cookie::One(secret)) => portal.access.by_cookie(secret).await,
        };
        match found {
            Ok(Some(principal)) if claimed.contradicts(&principal) => Self::Nobody,
            Ok(Some(principal)) => Self::Somebody(principal),
            Ok(None) => Self::Nobody,
            Err(err) => Self::Unknown(Error::from(err)),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Identity {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or(Self::Nobody))
    }
}

/// The session layer of the portal's pages and API. Its cookie lives as long as a login may; when a
/// login ends is decided by the store.
pub(super) fn sessions(portal: &Portal) -> SessionManagerLayer<Logins> {
    SessionManagerLayer::new(Logins::new(portal.access.clone()))
        .with_name(portal.config.cookie_name())
        .with_secure(portal.config.is_https())
        .with_same_site(SameSite::Lax)
        .with_expiry(Expiry::OnInactivity(Duration::seconds(ABSOLUTE_SECONDS)))
}

/// Leaves, of a request's cookies, those of ours that count. The session layer would decode names and
/// take the last of two cookies: so it finds the session that [`Identity`] was found by, or none.
pub(super) async fn cookies_that_count(
    State(portal): State<Arc<Portal>>,
    mut request: Request,
    next: Next,
) -> Response {
    let (headers, config) = (request.headers_mut(), &portal.config);
    let one = |name: &str, counts: fn(&str) -> bool| match cookie(headers, name) {
        Cookie::One(value) if counts(value) => HeaderValue::try_from(format!("{name}={value}")).ok(),
        _ => None,
    };
    let ours =
        [one(config.cookie_name(), |value| value.parse::<Id>().is_ok()), one(config.form_cookie_name(), |_| true)];
    headers.remove(header::COOKIE);
    for cookie in ours.into_iter().flatten() {
        headers.append(header::COOKIE, cookie);
    }
    next.run(request).await
}

/// What the `Authorization` header holds; schemes that are not ours are not looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bearer<'a> {
    None,
    Token(&'a str),
    Bad,
}

pub(super) fn bearer(headers: &HeaderMap) -> Bearer<'_> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), more) = (values.next(), values.next()) else { return Bearer::None };
    let Ok(text) = value.to_str() else { return Bearer::Bad };
    let (scheme, secret) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let ours = ["bearer", "token"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    match secret.trim() {
        _ if more.is_some() => Bearer::Bad,
        _ if !ours => Bearer::None,
        "" => Bearer::Bad,
        secret => Bearer::Token(secret),
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cookie<'a> {
    None,
    One(&'a str),
    Two,
}

/// The login cookie's value. A second cookie of the name could have been set by an app on
/// another port or by a neighbouring host, and nothing tells which one is ours.
pub(super) fn login_cookie<'a>(headers: &'a HeaderMap, config: &WebConfig) -> Cookie<'a> {
    cookie(headers, config.cookie_name())
}

pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Cookie<'a> {
    // Read as bytes: an app may have put a cookie of any characters beside ours.
    let pairs = headers.get_all(header::COOKIE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        (pair[..equals].trim_ascii() == name.as_bytes()).then(|| pair[equals + 1..].trim_ascii())
    });
    match (values.next(), values.next()) {
        (None, _) => Cookie::None,
        // What is not text is no value of ours.
        (Some(value), None) => Cookie::One(str::from_utf8(value).unwrap_or_default()),
        (Some(_), Some(_)) => Cookie::Two,
    }
}

/// `Set-Cookie` that removes the login cookie. The session layer's own lacks `Secure`, without which
/// browsers ignore a name that begins with `__Host-`.
pub(super) fn drop_login_cookie(config: &WebConfig) -> HeaderValue {
    set_cookie(config, config.cookie_name(), "", "; Path=/; SameSite=Lax; Max-Age=0")
}

/// The cookie that binds the sign-in form's proof to this browser, before there is a login.
pub(super) fn set_form_cookie(config: &WebConfig, value: &str) -> HeaderValue {
    let path = if config.is_https() { "/" } else { "/login" };
    set_cookie(config, config.form_cookie_name(), value, &format!("; Path={path}; SameSite=Strict"))
}

fn set_cookie(config: &WebConfig, name: &str, value: &str, attributes: &str) -> HeaderValue {
    let secure = if config.is_https() { "; Secure" } else { "" };
    HeaderValue::from_str(&format!("{name}={value}{attributes}; HttpOnly{secure}"))
        .expect("our cookies are visible ASCII")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn bearers() {
        for (value, expected) in [
            ("Bearer lyc_x", Bearer::Token("lyc_x")),
            ("bearer  lyc_x ", Bearer::Token("lyc_x")),
            ("token lyc_x", Bearer::Token("lyc_x")),
            ("Bearer", Bearer::Bad),
            ("Bearer ", Bearer::Bad),
            ("Basic YTpi", Bearer::None),
        ] {
            assert_eq!(bearer(&headers(&[("authorization", value)])), expected, "{value}");
        }
        assert_eq!(bearer(&headers(&[("authorization", "Bearer a"), ("authorization", "Bearer b")])), Bearer::Bad);
        assert_eq!(bearer(&headers(&[])), Bearer::None);
    }

    #[test]
    fn a_second_cookie_is_no_cookie() {
        let config = WebConfig::default();
        for (value, expected) in [
            ("lyceum_login=a", Cookie::One("a")),
            ("x=1; lyceum_login=a; y=2", Cookie::One("a")),
            ("lyceum_login=a; lyceum_login=b", Cookie::Two),
            ("lyceum_login=a; lyceum_login=a", Cookie::Two),
            ("xlyceum_login=a", Cookie::None),
            ("__Host-lyceum_login=a", Cookie::None),
            ("", Cookie::None),
        ] {
            assert_eq!(login_cookie(&headers(&[("cookie", value)]), &config), expected, "{value}");
        }
        let two = headers(&[("cookie", "lyceum_login=a"), ("cookie", "lyceum_login=b")]);
        assert_eq!(login_cookie(&two, &config), Cookie::Two);
        let mut beside = HeaderMap::new();
        beside.insert("cookie", HeaderValue::from_bytes(b"city=Z\xc3\xbcrich; lyceum_login=a; \xff=\xff").unwrap());
        assert_eq!(login_cookie(&beside, &config), Cookie::One("a"), "an app's own letters hide nothing");
    }

    proptest! {
        /// Of any bytes, one cookie of our name is found exactly where one stands.
        #[test]
        fn any_cookies_are_read_as_they_stand(
            lines in proptest::collection::vec("(lyceum_login=[a-z]{0,3}|lyceum_login|Lyceum_login=x|a=b|;|; |[ \
                                                -~]|\u{e9}){0,8}", 0..4),
        ) {
            let mut sent = HeaderMap::new();
            let values = lines.iter().filter_map(|line| HeaderValue::from_bytes(line.as_bytes()).ok());
            for value in values {
                sent.append("cookie", value);
            }
            let pairs: Vec<String> = lines
                .iter()
                .flat_map(|line| line.split(';'))
                .filter_map(|pair| pair.split_once('='))
                .filter(|(name, _)| name.trim() == "lyceum_login")
                .map(|(_, value)| value.trim().to_owned())
                .collect();
            match (cookie(&sent, "lyceum_login"), pairs.as_slice()) {
                (Cookie::None, []) | (Cookie::Two, [_, _, ..]) => {}
                (Cookie::One(found), [only]) => prop_assert_eq!(found, only),
                (found, expected) => prop_assert!(false, "{found:?} {expected:?}"),
            }
        }

        /// A header of any letters is no panic, and never a token with blanks around it.
        #[test]
        fn any_authorization_is_read(value in "(bearer|Token|BASIC|[ \t]|lyc_[a-z]{0,4}|[!-~]|\u{e9}){0,6}") {
            let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else { return Ok(()) };
            let sent = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
            if let Bearer::Token(secret) = bearer(&sent) {
                prop_assert!(!secret.is_empty() && secret.trim() == secret);
            }
        }
    }
}
