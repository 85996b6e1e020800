//! What handlers ask of a request: who is asking, and its body, query and path as types.
//! Every rejection is an [`Error`] of ours that names the field; nothing else may be used in
//! a handler's arguments to read these.

use std::{collections::HashSet, convert::Infallible, str::FromStr, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{FromRequest, FromRequestParts, OptionalFromRequestParts, RawPathParams, Request},
    http::{HeaderMap, header, request::Parts},
};
use bytes::BytesMut;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use super::{
    error::{Error, Result},
    json,
    routes::RouteScopes,
};
use crate::{
    auth::Principal,
    model::files::RawPath,
    sessions::Actor,
    web::{BODY_LIMIT, identity::Identity},
};

/// For a body of that size, over the slowest line.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Whoever is signed in, by cookie or token, with a token's scopes checked for this route.
/// `Option<CurrentUser>` is `None` for nobody; a token that is no good is refused even then.
#[derive(Clone, Debug)]
pub struct CurrentUser(pub Arc<Principal>);

impl CurrentUser {
    /// As the sessions' service asks for whoever acts.
    pub fn actor(&self) -> Actor<'_> {
        Actor { user: &self.user }
    }
}

impl std::ops::Deref for CurrentUser {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.0
    }
}

impl<S: Send + Sync> FromRequestParts<S> for CurrentUser {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        <Self as OptionalFromRequestParts<S>>::from_request_parts(parts, state)
            .await?
            .ok_or_else(Error::unauthenticated)
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for CurrentUser {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>> {
        let identity = parts.extensions.get::<Identity>();
        let Some(principal) = identity.map_or(Ok(None), Identity::principal)? else { return Ok(None) };
        // A route that declares nothing is closed to tokens with scopes.
        let needed =
            parts.extensions.get::<RouteScopes>().map_or(&[][..], |declared| declared.0.of(parts.method.as_str()));
        if principal.scopes_allow(needed) {
            Ok(Some(Self(principal)))
        } else {
            Err(Error::forbidden(
                "This token's scopes do not allow this. Create a token with the required scope on the settings page.",
            ))
        }
    }
}

/// An administrator.
#[derive(Clone, Debug)]
pub struct Admin(pub Arc<Principal>);

impl<S: Send + Sync> FromRequestParts<S> for Admin {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let user = <CurrentUser as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        if user.is_admin() { Ok(Self(user.0)) } else { Err(Error::forbidden("Only administrators can do this.")) }
    }
}

/// An operator or administrator.
#[derive(Clone, Debug)]
pub struct Operator(pub Arc<Principal>);

impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let user = <CurrentUser as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        if user.is_operator() {
            Ok(Self(user.0))
        } else {
            Err(Error::forbidden("Only administrators and operators can do this."))
        }
    }
}

/// Somebody who sees groups: an operator or administrator, or whoever manages one.
#[derive(Clone, Debug)]
pub struct GroupReader(pub Arc<Principal>);

impl GroupReader {
    /// This person, if they see groups.
    pub fn of(user: CurrentUser) -> Result<Self> {
        if user.is_operator() || !user.user.manages.is_empty() {
            Ok(Self(user.0))
        } else {
            Err(Error::forbidden("Only administrators, operators and managers of groups can do this."))
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for GroupReader {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        Self::of(<CurrentUser as FromRequestParts<S>>::from_request_parts(parts, state).await?)
    }
}

/// A JSON body. Fields that `T` does not know are refused where `T` says
/// `#[serde(deny_unknown_fields)]`, which every request type does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let body = json_body(request, BODY_LIMIT).await?;
        json::parse(&body).map(Self)
    }
}

/// A JSON body together with a hash of its bytes, for requests with an Idempotency-Key.
#[derive(Clone, Debug)]
pub struct HashedJson<T> {
    pub value: T,
    pub hash: String,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for HashedJson<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        use sha2::{Digest, Sha256};
        let body = json_body(request, BODY_LIMIT).await?;
        let hash = hex::encode(Sha256::digest(&body));
        Ok(Self { value: json::parse(&body)?, hash })
    }
}

/// The parameters after the `?`, under the same rules as a JSON body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let query = parts.uri.query().unwrap_or_default();
        let mut seen = HashSet::new();
        if let Some((twice, _)) =
            url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| !seen.insert(name.clone()))
        {
            return Err(Error::field(json::short(&twice), "duplicate_field", "Duplicate query parameter."));
        }
        match axum::extract::Query::<T>::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => {
                // The framework's text is "Failed to deserialize query string: PATH: MESSAGE".
                let text = rejection.body_text();
                let text = text.split_once(": ").map_or(text.as_str(), |(_, rest)| rest);
                let (path, message) = match text.split_once(": ") {
                    Some((path, message)) if !path.contains(' ') => (path, message),
                    _ => ("", text),
                };
                Err(Error::invalid(vec![json::field_error(path, message)]))
            }
        }
    }
}

/// The parameter `path`, byte for byte, because a file's name need not be text; empty where
/// it is missing.
#[derive(Clone, Debug)]
pub struct PathParameter(pub RawPath);

impl<S: Send + Sync> FromRequestParts<S> for PathParameter {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let pairs = parts.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.filter(|(name, _)| *name == "path").map(|(_, value)| value.replace('+', " ")).next();
        Ok(Self(RawPath::decode(&value.unwrap_or_default())))
    }
}

/// The route's one id (`{id}`); what cannot be one names nothing: 404.
#[derive(Clone, Copy, Debug)]
pub struct Id<T>(pub T);

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_rejection| Error::not_found())?;
        let id = params.iter().find(|(name, _)| *name == "id").or_else(|| params.iter().next());
        id.and_then(|(_, text)| text.parse().ok()).map(Self).ok_or_else(Error::not_found)
    }
}

/// A page's form: its fields in order, names may repeat.
#[derive(Clone, Debug, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// The first value of a field; empty where it is missing.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }

    /// All values of a field.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub(in crate::web) fn parse(body: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(body).into_owned().collect())
    }
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        if !is_form(request.headers()) {
            return Err(Error::malformed(
                "Send the fields as a form, with `Content-Type: application/x-www-form-urlencoded`.",
            ));
        }
        Ok(Self::parse(&whole_body(request).await?))
    }
}

/// The `Idempotency-Key` header: a repeated request with the same key makes nothing new.
#[derive(Clone, Debug)]
pub struct IdempotencyKey(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let mut keys = parts.headers.get_all("idempotency-key").iter();
        let key = match (keys.next(), keys.next()) {
            (None, _) => return Ok(Self(None)),
            (Some(key), None) => key.to_str().ok().filter(|key| (1..=255).contains(&key.len())),
            _ => None,
        };
        let message = "Send one key of 1 to 255 visible ASCII characters.";
        key.map(|key| Self(Some(key.to_owned())))
            .ok_or_else(|| Error::field("Idempotency-Key", "invalid_value", message))
    }
}

/// Whether a browser is to read the answer. `*/*` is what programs say.
pub fn wants_html(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.to_ascii_lowercase().contains("text/html"))
}

pub(in crate::web) fn is_form(headers: &HeaderMap) -> bool {
    content_type(headers) == "application/x-www-form-urlencoded"
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = content_type(headers);
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a body of at most [`BODY_LIMIT`] bytes.
pub(in crate::web) async fn whole_body(request: Request) -> Result<Bytes> {
    body_within(request, BODY_LIMIT).await
}

/// Reads a JSON body of at most so many bytes.
pub(in crate::web) async fn json_body(request: Request, limit: usize) -> Result<Bytes> {
    if !is_json(request.headers()) {
        return Err(Error::malformed("Send the body as JSON, with `Content-Type: application/json`."));
    }
    body_within(request, limit).await
}

async fn body_within(request: Request, limit: usize) -> Result<Bytes> {
    let waits_for_leave = request.headers().contains_key(header::EXPECT);
    let body = request.into_body();
    // A client that asks before it sends is told at once.
    if waits_for_leave && (limit as u64) < body.size_hint().lower() {
        return Err(Error::too_large(limit));
    }
    read_within(body, limit).await
}

/// Reads at most [`BODY_LIMIT`] bytes.
pub(in crate::web) async fn read(body: Body) -> Result<Bytes> {
    read_within(body, BODY_LIMIT).await
}

/// Keeps the first bytes. Of a larger body some more is read and thrown away, because many clients
/// only look at the answer when they have sent everything.
async fn read_within(mut body: Body, limit: usize) -> Result<Bytes> {
    let mut kept = BytesMut::new();
    let mut length = 0;
    let all = async {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            length += data.len();
            if length <= limit {
                kept.extend_from_slice(&data);
            } else if limit.max(16 * BODY_LIMIT) < length {
                break;
            }
        }
        Ok::<(), axum::Error>(())
    };
    let outcome = tokio::time::timeout(UPLOAD_TIMEOUT, all).await;
    match outcome {
        _ if length > limit => Err(Error::too_large(limit)),
        Ok(Ok(())) => Ok(kept.freeze()),
        Ok(Err(_)) => Err(Error::malformed("The request body ended before it was complete.")),
        Err(_elapsed) => Err(Error::malformed("The request body took too long to arrive.")),
    }
}
