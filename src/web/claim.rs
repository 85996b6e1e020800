//! Sign-in by a header of a trusted reverse proxy: what a request's headers say of who sent it,
//! and whether that is believed. The headers are taken off every request, from whomever it
//! comes, so that neither a page nor an app ever sees them; what is left is a [`Claimed`].

use std::{convert::Infallible, net::IpAddr};

use axum::{
    extract::{FromRequestParts, Request},
    http::{HeaderMap, HeaderName, request::Parts},
};

use super::{Portal, http::forwarded};
use crate::{
    auth::{Claim, Credential, Principal, header::Settings},
    model::{Username, user::canonical_name},
};

/// Groups in one header, and letters of one's name or of what is shown of somebody.
const MAX_GROUPS: usize = 1000;
const MAX_LENGTH: usize = 256;

/// What a request's headers say of who sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Claimed {
    /// Nothing that could be believed.
    #[default]
    Nothing,
    Person(Claim),
    /// A trusted proxy says what cannot be; why, in a few words.
    Unusable(String),
}

impl Claimed {
    /// Whether a login is somebody else's than whom the proxy names: a browser has changed
    /// hands, and the cookie is a leftover. A token is its own proof.
    pub fn contradicts(&self, principal: &Principal) -> bool {
        match (self, &principal.credential) {
            (_, Credential::Token { .. }) | (Self::Nothing, _) => false,
            (Self::Person(claim), _) => claim.name != principal.user.name,
            (Self::Unusable(_), _) => true,
        }
    }
}

impl Claimed {
    /// Where signing out leads: for whom a proxy has named, by a page that goes on to the proxy's own.
    pub(super) fn after_sign_out(&self, portal: &Portal) -> &'static str {
        match sign_out_url(portal) {
            Some(_) if *self != Self::Nothing => "/login?signed_out=proxy",
            _ => "/login?signed_out=1",
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Claimed {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// Where people end what the proxy remembers of them.
pub(super) fn sign_out_url(portal: &Portal) -> Option<&str> {
    portal.access.header().map(|header| header.settings.sign_out_url.as_str()).filter(|url| !url.is_empty())
}

/// Takes the headers off a request and judges them; the log tells of those that lie.
pub(super) fn take(portal: &Portal, request: &mut Request) -> Claimed {
    let Some(header) = portal.access.header() else { return Claimed::Nothing };
    let peer = forwarded::peer(request.extensions());
    let sent = Sent::take(&header.settings, request.headers_mut());
    match sent.judge(&header.settings, peer) {
        Ok(claimed) => {
            if let Claimed::Unusable(because) = &claimed {
                tracing::warn!(%peer, because, "invalid sign-in headers from the reverse proxy");
            }
            claimed
        }
        Err(because) => {
            tracing::warn!(%peer, because, "sign-in headers dropped: sender is not a trusted proxy");
            Claimed::Nothing
        }
    }
}

/// The headers that mean something, as they came.
#[derive(Debug, Default)]
struct Sent {
    values: Vec<(&'static str, Vec<u8>)>,
    /// One came twice, or in two spellings that many programs take for one.
    doubtful: Option<String>,
}

impl Sent {
    /// CGI and its heirs turn `-` into `_`, and some servers pass either on as the same name:
    /// whatever could be read as one of ours is.
    fn take(settings: &Settings, headers: &mut HeaderMap) -> Self {
        let mut sent = Self::default();
        for (key, name) in settings.headers() {
            let alike: Vec<HeaderName> =
                headers.keys().filter(|found| is_alike(found.as_str(), name)).cloned().collect();
            let mut count = 0;
            for spelling in alike {
                for value in headers.get_all(&spelling) {
                    count += 1;
                    if !spelling.as_str().eq_ignore_ascii_case(name) {
                        sent.doubtful = Some(format!("`{spelling}` is not `{name}`"));
                    }
                    sent.values.push((key, value.as_bytes().to_vec()));
                }
                headers.remove(&spelling);
            }
            if count > 1 {
                sent.doubtful = Some(format!("`{name}` was sent {count} times"));
            }
        }
        sent
    }

    fn value(&self, key: &str) -> Option<&[u8]> {
        self.values.iter().find(|(found, _)| *found == key).map(|(_, value)| value.as_slice())
    }

    /// `Err`: whoever sent this may not say who people are, and why.
    fn judge(self, settings: &Settings, peer: IpAddr) -> Result<Claimed, &'static str> {
        if self.values.is_empty() {
            return Ok(Claimed::Nothing);
        }
        if !settings.trusts(peer) {
            return Err("the address is not in auth.header.proxies");
        }
        if let Some(doubtful) = self.doubtful {
            return Ok(Claimed::Unusable(doubtful));
        }
        match self.value("secret_header").map(str::from_utf8) {
            Some(Ok(secret)) if settings.is_secret(secret) => {}
            Some(_) => return Err("the secret does not match"),
            None => return Err("the secret is missing"),
        }
        // A proxy that lets strangers in for some paths names nobody.
        let Some(name) = self.value("user") else { return Ok(Claimed::Nothing) };
        Ok(match self.claim(settings, name) {
            Ok(claim) => Claimed::Person(claim),
            Err(because) => Claimed::Unusable(because),
        })
    }

    fn claim(&self, settings: &Settings, name: &[u8]) -> Result<Claim, String> {
        let told = |value: &[u8]| String::from_utf8_lossy(value).chars().take(64).collect::<String>();
        let name = text(name).ok_or_else(|| format!("`{}` is not a valid user name", told(name).escape_debug()))?;
        let bare = match name.rsplit_once('@') {
            Some((bare, domain)) if !settings.domain.is_empty() && domain.eq_ignore_ascii_case(&settings.domain) => {
                bare
            }
            _ => name,
        };
        // The proxy's people may differ by what is one letter to us: only its own case is folded.
        let canonical = if bare.is_ascii() { canonical_name(bare) } else { bare.to_owned() };
        let name =
            Username::parse(&canonical).map_err(|err| format!("`{}`: {err}", told(name.as_bytes()).escape_debug()))?;
        let shown = |key| self.value(key).and_then(text).map(str::trim).unwrap_or_default().to_owned();
        let groups = match self.value("groups") {
            None => Vec::new(),
            Some(list) => groups(list).ok_or_else(|| "the list of groups is not valid".to_owned())?,
        };
        Ok(Claim {
            name,
            display_name: shown("display_name"),
            mail: Some(shown("mail")).filter(|mail| !mail.is_empty()),
            groups,
        })
    }
}

/// Short text without control characters.
fn text(value: &[u8]) -> Option<&str> {
    let text = str::from_utf8(value).ok()?;
    (text.chars().count() <= MAX_LENGTH && !text.contains(char::is_control)).then_some(text)
}

/// Names between commas or semicolons.
fn groups(list: &[u8]) -> Option<Vec<String>> {
    let names = str::from_utf8(list).ok()?.split([',', ';']).map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(str::to_owned).collect();
    (names.len() <= MAX_GROUPS && names.iter().all(|name| text(name.as_bytes()).is_some())).then_some(names)
}

/// Whether two names are one but for case and for `-` and `_`.
fn is_alike(one: &str, other: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.len() == other.len() && one.bytes().map(plain).eq(other.bytes().map(plain))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const SECRET: &str = "0123456789abcdef";

    fn settings() -> Settings {
        Settings {
            user: "X-Remote-User".to_owned(),
            groups: "X-Remote-Groups".to_owned(),
            display_name: "X-Remote-Name".to_owned(),
            domain: "example.org".to_owned(),
            proxies: vec![PROXY.to_string()],
            secret_header: "X-Lyceum-Proxy".to_owned(),
            secret: SECRET.to_owned(),
            ..Settings::default()
        }
    }

    fn judged(peer: IpAddr, pairs: &[(&'static str, &[u8])]) -> (Result<Claimed, &'static str>, HeaderMap) {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        (Sent::take(&settings(), &mut headers).judge(&settings(), peer), headers)
    }

    fn of_proxy(pairs: &[(&'static str, &[u8])]) -> Claimed {
        let pairs: Vec<_> = pairs.iter().copied().chain([("x-lyceum-proxy", SECRET.as_bytes())]).collect();
        judged(PROXY, &pairs).0.unwrap()
    }

    #[test]
    fn a_claim_and_nothing_left_of_it() {
        let sent: [(&str, &[u8]); 6] = [
            ("x-remote-user", b"Alice@EXAMPLE.org"),
            ("x-remote-groups", "lab, admins;Forschung & Café,".as_bytes()),
            ("x-remote-name", "Alice Åström".as_bytes()),
            ("x-lyceum-proxy", SECRET.as_bytes()),
            ("x_lyceum-proxy2", b"another"),
            ("cookie", b"a=b"),
        ];
        let (claimed, left) = judged(PROXY, &sent);
        let Ok(Claimed::Person(claim)) = claimed else { panic!("{claimed:?}") };
        assert_eq!((claim.name.as_str(), claim.display_name.as_str(), claim.mail), ("alice", "Alice Åström", None));
        assert_eq!(claim.groups, ["lab", "admins", "Forschung & Café"]);
        let mut left: Vec<&str> = left.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["cookie", "x_lyceum-proxy2"]);
        assert_eq!(of_proxy(&[]), Claimed::Nothing, "a path that the proxy leaves open");
    }

    #[test]
    fn only_a_proxy_is_believed() {
        let alice: (&str, &[u8]) = ("x-remote-user", b"alice");
        let elsewhere = "192.0.2.2".parse().unwrap();
        for (peer, secret) in [
            (elsewhere, Some(SECRET)),
            (PROXY, None),
            (PROXY, Some("")),
            (PROXY, Some("0123456789abcdeF")),
            (PROXY, Some("0123456789abcdef0")),
        ] {
            let secret = secret.map(|secret| ("x-lyceum-proxy", secret.as_bytes()));
            let pairs: Vec<_> = [alice].into_iter().chain(secret).collect();
            let (claimed, left) = judged(peer, &pairs);
            assert!(claimed.is_err() && left.is_empty(), "{peer} {secret:?}: {claimed:?}");
        }
        assert_eq!(judged(elsewhere, &[("accept", b"*/*")]).0, Ok(Claimed::Nothing), "who says nothing lies not");
    }

    #[test]
    fn odd_headers_are_unusable() {
        for pairs in [
            &[("x-remote-user", b"alice" as &[u8]), ("x-remote-user", b"alice")] as &[(&'static str, &[u8])],
            &[("x-remote-user", b"alice"), ("x_remote_user", b"bob")],
            &[("x-remote-user", b"alice"), ("x-remote_user", b"alice")],
            &[("x_remote_user", b"alice")],
            &[("x-remote-user", b"alice"), ("x-remote-groups", b"a"), ("x-remote-groups", b"admins")],
            &[("x-remote-user", b"alice"), ("x_lyceum_proxy", b"0123456789abcdef")],
        ] {
            assert!(matches!(of_proxy(pairs), Claimed::Unusable(_)), "{pairs:?}");
        }
        for name in [
            b"" as &[u8],
            b" ",
            b"root",
            b"-rf",
            b"a/b",
            b"../x",
            b"alice bob",
            b"alice,bob",
            b"alice\tx",
            b"alice@evil.example",
            b"alice@example.org@evil.example",
            b"alice@evil.example@example.org",
            b"@example.org",
            b"AD\\alice",
            b"(null)",
            b"\"alice\"",
            b"*",
            b"1234",
            b"alic\xe9",
            "аlice".as_bytes(),
            "ａｌｉｃｅ".as_bytes(),
            "K\u{212a}".as_bytes(),
            &[b'x'; 33],
            &[b'x'; 5000],
        ] {
            let claimed = of_proxy(&[("x-remote-user", name)]);
            assert!(matches!(claimed, Claimed::Unusable(_)), "{}: {claimed:?}", name.escape_ascii());
        }
        let groups: (&str, &[u8]) = ("x-remote-groups", b"a\xff");
        assert!(matches!(of_proxy(&[("x-remote-user", b"alice"), groups]), Claimed::Unusable(_)));
    }
}
