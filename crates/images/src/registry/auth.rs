//! How a request proves who pulls: the challenge of a registry (`Basic` or `Bearer`) is answered with
//! credentials, or without them by a token for anonymous pulls. Tokens belong to one pull alone, so that
//! the token of one user never serves another.

use http_auth::{ChallengeParser, ChallengeRef};
use reqwest::{
    Response,
    header::{HeaderValue, WWW_AUTHENTICATE},
};
use serde::Deserialize;
use url::Url;

use super::{Failure, Session, endpoint};
use crate::error::Error;

const MAX_TOKEN_BYTES: usize = 1 << 20;

/// Describes how the registry wants to be asked.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: Url, service: Option<String>, scope: Option<String> },
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Session {
    /// Answers the challenge of a 401, and returns the header for the next request.
    pub(super) async fn answer(&self, response: &Response) -> Result<HeaderValue, Failure> {
        let host = &self.endpoint.host;
        let unsupported = |reason: &str| Error::Challenge { host: host.clone(), reason: reason.to_owned() };
        let header = response.headers().get_all(WWW_AUTHENTICATE).iter().find_map(|value| parse(value.to_str().ok()?));
        let (realm, service, scope) = match header.ok_or_else(|| unsupported("it names neither Basic nor Bearer"))? {
            Challenge::Basic => {
                let credentials = self.credentials.as_ref().ok_or_else(|| self.credentials_missing())?;
                return Ok(basic(&credentials.user, &credentials.password));
            }
            Challenge::Bearer { realm, service, scope } => (realm, service, scope),
        };
        if realm.scheme() != "https" && !(self.endpoint.is_loopback() && endpoint::is_loopback(&realm)) {
            return Err(unsupported("its token service does not use HTTPS").into());
        }
        let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.repository));
        let query = [("service", service), ("scope", Some(scope))];
        let mut request = self.http().get(realm).query(&query.map(|(name, value)| (name, value.unwrap_or_default())));
        if let Some(credentials) = &self.credentials {
            request = request.basic_auth(&credentials.user, Some(&credentials.password));
        }
        let response = request.send().await.map_err(|err| self.failure(&err))?;
        match response.status().as_u16() {
            200 => {}
            401 | 403 => return Err(self.unauthorized().into()),
            _ => return Err(self.status(&response, "a token")),
        }
        let bytes = self.read(response, MAX_TOKEN_BYTES as u64, "the token").await?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|_err| unsupported("its token is not valid JSON"))?;
        let token = token.token.or(token.access_token).ok_or_else(|| unsupported("its answer contains no token"))?;
        secret(&format!("Bearer {token}")).ok_or_else(|| unsupported("its token contains invalid characters").into())
    }

    pub(super) fn unauthorized(&self) -> Error {
        if self.credentials.is_none() {
            return self.credentials_missing();
        }
        Error::CredentialsRejected { host: self.endpoint.host.clone(), repository: self.repository.clone() }
    }

    fn credentials_missing(&self) -> Error {
        Error::CredentialsMissing { host: self.endpoint.host.clone(), repository: self.repository.clone() }
    }
}

fn basic(user: &str, password: &str) -> HeaderValue {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
    secret(&format!("Basic {encoded}")).unwrap_or_else(|| HeaderValue::from_static("Basic"))
}

/// Makes a header that is hidden in debug output.
fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Reads a challenge; Bearer is preferred where a registry offers both.
fn parse(header: &str) -> Option<Challenge> {
    let challenges: Vec<ChallengeRef<'_>> = ChallengeParser::new(header).collect::<Result<_, _>>().ok()?;
    let bearer = challenges.iter().find(|challenge| challenge.scheme.eq_ignore_ascii_case("bearer"));
    if let Some(bearer) = bearer {
        let param = |name: &str| {
            let found = bearer.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_unescaped())
        };
        let realm = Url::parse(&param("realm")?).ok()?;
        return Some(Challenge::Bearer { realm, service: param("service"), scope: param("scope") });
    }
    challenges.iter().any(|challenge| challenge.scheme.eq_ignore_ascii_case("basic")).then_some(Challenge::Basic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let header = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        let realm = Url::parse("https://auth.docker.io/token").unwrap();
        let expected = Challenge::Bearer {
            realm,
            service: Some("registry.docker.io".into()),
            scope: Some("repository:a/b:pull,push".into()),
        };
        assert_eq!(parse(header), Some(expected));
        assert_eq!(parse("basic realm=\"x\""), Some(Challenge::Basic));
        for header in ["", "Negotiate", "Bearer service=\"x\"", "Bearer realm=\"not an address\"", "\u{1}"] {
            assert_eq!(parse(header), None, "{header}");
        }
        assert!(!format!("{:?}", basic("me", "geheim")).contains(&basic("me", "geheim").to_str().unwrap()[6..]));
    }
}
