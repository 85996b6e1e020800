//! What handlers ask of a request: who is asking, and its body, query and path as types.
//! Every rejection is an [`Error`] of ours that names the field; nothing else may be used in
//! a handler's arguments to read these.

use std::{collections::HashSet, convert::Infallible, fmt::Display, str::FromStr, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{FromRequest, FromRequestParts, MatchedPath, OptionalFromRequestParts, RawPathParams, Request},
    http::{HeaderMap, header, request::Parts},
};
use bytes::BytesMut;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    BODY_LIMIT,
    error::{Error, FieldError, Result},
    identity::Identity,
};
use crate::auth::Principal;

/// For a body of that size, over the slowest line.
const LONGEST_UPLOAD: Duration = Duration::from_secs(30);

/// Whoever is signed in, by cookie or token, with a token's scopes checked for this route.
/// `Option<CurrentUser>` is `None` for nobody; a token that is no good is refused even then.
#[derive(Clone, Debug)]
pub struct CurrentUser(pub Arc<Principal>);

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
        let route = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        if principal.scopes_allow(parts.method.as_str(), route) {
            Ok(Some(Self(principal)))
        } else {
            Err(Error::forbidden("This token's scopes do not include this: make one that does, on the settings page."))
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
        if user.is_admin() { Ok(Self(user.0)) } else { Err(Error::forbidden("This is for administrators.")) }
    }
}

/// A JSON body. Fields that `T` does not know are refused where `T` says
/// `#[serde(deny_unknown_fields)]`, which every request type does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        if !is_json(request.headers()) {
            return Err(Error::malformed("Send the body as JSON, with `Content-Type: application/json`."));
        }
        let body = whole_body(request).await?;
        parse_json(&body).map(Self)
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
        if !is_json(request.headers()) {
            return Err(Error::malformed("Send the body as JSON, with `Content-Type: application/json`."));
        }
        let body = whole_body(request).await?;
        let hash = Sha256::digest(&body).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        Ok(Self { value: parse_json(&body)?, hash })
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
            return Err(Error::field(short(&twice), "duplicate_field", "This parameter stands twice."));
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
                Err(Error::invalid(vec![field_error(path, message)]))
            }
        }
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

    pub(super) fn parse(body: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(body).into_owned().collect())
    }
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        if !is_form(request.headers()) {
            return Err(Error::malformed("Send the fields as a form does: `application/x-www-form-urlencoded`."));
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
        let message = "One key of 1 to 255 visible ASCII characters.";
        key.map(|key| Self(Some(key.to_owned())))
            .ok_or_else(|| Error::field("Idempotency-Key", "invalid_value", message))
    }
}

/// `?limit=` and `?cursor=` of a list.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// At most so many items, 1 to 500.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

impl Paging {
    pub fn new(limit: Option<i64>, cursor: Option<String>) -> Self {
        Self { limit, cursor }
    }

    pub fn limit(&self) -> Result<i64> {
        match self.limit.unwrap_or(50) {
            limit @ 1..=500 => Ok(limit),
            _ => Err(Error::field("limit", "out_of_range", "Between 1 and 500.")),
        }
    }

    /// The id after which to go on.
    pub fn after<I: FromStr>(&self) -> Result<Option<I>> {
        use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let id = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let id = id.and_then(|id| id.parse().ok());
        id.map(Some).ok_or_else(|| Error::field("cursor", "invalid_value", "This is no cursor of this list."))
    }
}

/// One page of a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Listed<T> {
    pub items: Vec<T>,
    /// For the next page; null on the last one.
    pub next_cursor: Option<String>,
}

impl<T> Listed<T> {
    /// `items` were asked for with a limit one higher than `limit`: one too many means that
    /// there are more. `id` tells an item's place in the order.
    pub fn new<I: Display>(mut items: Vec<T>, limit: i64, id: impl Fn(&T) -> I) -> Self {
        use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
        let limit = usize::try_from(limit).unwrap_or(0);
        let more = limit < items.len();
        items.truncate(limit);
        let last = items.last().filter(|_| more);
        let next_cursor = last.map(|item| BASE64_URL_SAFE_NO_PAD.encode(id(item).to_string()));
        Self { items, next_cursor }
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

pub(super) fn is_form(headers: &HeaderMap) -> bool {
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
pub(super) async fn whole_body(request: Request) -> Result<Bytes> {
    let waits_for_leave = request.headers().contains_key(header::EXPECT);
    let body = request.into_body();
    // A client that asks before it sends is told at once.
    if waits_for_leave && (BODY_LIMIT as u64) < body.size_hint().lower() {
        return Err(Error::too_large(BODY_LIMIT));
    }
    read(body).await
}

/// Keeps the first [`BODY_LIMIT`] bytes. Of a larger body some more is read and thrown away,
/// because many clients only look at the answer when they have sent everything.
pub(super) async fn read(mut body: Body) -> Result<Bytes> {
    let mut kept = BytesMut::new();
    let mut length = 0;
    let all = async {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            length += data.len();
            if length <= BODY_LIMIT {
                kept.extend_from_slice(&data);
            } else if 16 * BODY_LIMIT < length {
                break;
            }
        }
        Ok::<(), axum::Error>(())
    };
    let outcome = tokio::time::timeout(LONGEST_UPLOAD, all).await;
    match outcome {
        _ if BODY_LIMIT < length => Err(Error::too_large(BODY_LIMIT)),
        Ok(Ok(())) => Ok(kept.freeze()),
        Ok(Err(_)) => Err(Error::malformed("The body ended before it was complete.")),
        Err(_elapsed) => Err(Error::malformed("The body took too long to arrive.")),
    }
}

fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    // Every request is an object; serde would also take an array of its fields in order.
    let is_object = body.iter().find(|byte| !byte.is_ascii_whitespace()).is_none_or(|byte| *byte == b'{');
    if !is_object && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
        return Err(Error::field("body", "invalid_type", "This must be an object."));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value: Result<T, _> = serde_path_to_error::deserialize(&mut reader);
    match value {
        Ok(value) => match reader.end() {
            Ok(()) => Ok(value),
            Err(_) => Err(Error::malformed("There is something after the JSON value.")),
        },
        Err(err) if err.inner().is_data() => {
            let path = err.path().to_string();
            let text = err.inner().to_string();
            // serde_json ends its messages with the place.
            let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
            Err(Error::invalid(vec![field_error(&path, message)]))
        }
        Err(err) => {
            let (line, column) = (err.inner().line(), err.inner().column());
            Err(Error::malformed(format!("The body is no valid JSON: see line {line}, column {column}.")))
        }
    }
}

/// Tells serde's message as a field, a code and a sentence, without the value that was sent.
fn field_error(path: &str, message: &str) -> FieldError {
    let path = if path == "." { "" } else { path };
    let quoted = || message.split('`').nth(1).unwrap_or_default();
    let below = |name: &str| match path.rsplit_once('.') {
        // The reader may or may not have stepped into the field that it refuses.
        _ if path == name || path.is_empty() => name.to_owned(),
        Some((_, last)) if last == name => path.to_owned(),
        _ => format!("{path}.{name}"),
    };
    let expected = message.split_once("expected ").map_or("something else", |(_, expected)| expected);
    let expected = match expected {
        "i64" | "u64" | "i32" | "u32" | "u16" | "u8" | "usize" => "a whole number in range",
        other => other,
    };
    if message.starts_with("unknown field") {
        return FieldError::new(short(&below(quoted())), "unknown_field", "There is no such field.");
    }
    if message.starts_with("missing field") {
        return FieldError::new(below(quoted()), "missing_field", "This field is needed.");
    }
    if message.starts_with("duplicate field") {
        return FieldError::new(below(quoted()), "duplicate_field", "This field stands twice.");
    }
    let field = if path.is_empty() { "body".to_owned() } else { short(path) };
    let code = if message.starts_with("invalid type") { "invalid_type" } else { "invalid_value" };
    if message.starts_with("invalid type")
        || message.starts_with("invalid value")
        || message.starts_with("unknown variant")
    {
        return FieldError::new(field, code, format!("This must be {expected}."));
    }
    FieldError::new(field, code, format!("This cannot be read: {}.", short(message)))
}

/// At most 200 characters, for answers that repeat what a client sent.
fn short(text: &str) -> String {
    text.chars().take(200).collect()
}

/// A request's id, in the extensions of every request and the header `X-Request-Id`.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

impl<S: Send + Sync> FromRequestParts<S> for RequestId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or(Self(String::new())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Outer {
        name: String,
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Inner {
        gpus: Option<u32>,
    }

    #[test]
    fn refusals_name_the_field() {
        let table = [
            (r#"{"name": "x", "inner": {"gpus": 1, "gpu": 2}}"#, 422, "inner.gpu", "unknown_field"),
            (r#"{"name": "x", "nome": 2}"#, 422, "nome", "unknown_field"),
            ("{}", 422, "name", "missing_field"),
            (r#"{"name": "x", "inner": {"gpus": -1}}"#, 422, "inner.gpus", "invalid_value"),
            (r#"{"name": "x", "inner": {"gpus": 1e9}}"#, 422, "inner.gpus", "invalid_type"),
            (r#"{"name": "x", "inner": {"gpus": 99999999999999999999}}"#, 422, "inner.gpus", "invalid_type"),
            (r#"{"name": "x", "inner": {"gpus": "2"}}"#, 422, "inner.gpus", "invalid_type"),
            (r#"{"name": "x", "name": "y"}"#, 422, "name", "duplicate_field"),
            (r#"{"name": 7}"#, 422, "name", "invalid_type"),
            ("[]", 422, "body", "invalid_type"),
            ("null", 422, "body", "invalid_type"),
            (r#"{"name": NaN}"#, 400, "", ""),
            (r#"{"name": "x"} {}"#, 400, "", ""),
            (r#"{"name": "x""#, 400, "", ""),
            ("", 400, "", ""),
        ];
        for (body, status, field, code) in table {
            let error = parse_json::<Outer>(body.as_bytes()).expect_err(body);
            assert_eq!(error.status().as_u16(), status, "{body}");
            let found = error.field_errors().first().map(|error| (error.field.as_str(), error.code.as_str()));
            assert_eq!(found.unwrap_or(("", "")), (field, code), "{body}: {:?}", error.field_errors());
        }
        let deep = "[".repeat(100_000);
        assert_eq!(parse_json::<Outer>(br#"["x", null]"#).unwrap_err().status().as_u16(), 422);
        assert_eq!(parse_json::<serde_json::Value>(deep.as_bytes()).unwrap_err().status().as_u16(), 400);
    }

    #[test]
    fn messages_do_not_repeat_values() {
        let error = parse_json::<Outer>(br#"{"name": 123456}"#).unwrap_err();
        assert!(!error.detail().contains("123456"), "{}", error.detail());
    }

    #[test]
    fn pages_follow_one_another() {
        let ids: Vec<i64> = (0..5).collect();
        let page = Listed::new(ids[..3].to_vec(), 2, |id| *id);
        assert_eq!(page.items, [0, 1]);
        let paging = Paging::new(Some(2), page.next_cursor);
        assert_eq!(paging.after::<i64>().unwrap(), Some(1));
        assert_eq!(Listed::new(ids[2..4].to_vec(), 2, |id| *id).next_cursor, None);
        for limit in [0, -1, 501, i64::MAX] {
            assert!(Paging::new(Some(limit), None).limit().is_err());
        }
        for cursor in ["", "x", "!!", "AAAA"] {
            assert!(Paging::new(None, Some(cursor.to_owned())).after::<i64>().is_err(), "{cursor}");
        }
    }
}
