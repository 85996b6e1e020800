//! From a request's JSON to a type, and from serde's refusals to ours: each names the field
//! with a code and a sentence, and repeats nothing of what was sent. And long answers, which are
//! written at one go; short ones are `axum::Json`'s.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};

use super::error::{Error, FieldError, Result};

/// A body that may be long. `axum::Json` writes piece by piece into a buffer that grows in small
/// steps, which ten thousand rows notice.
#[derive(Clone, Copy, Debug)]
pub(in crate::web) struct Long<T>(pub T);

impl<T: Serialize> IntoResponse for Long<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(document) => ([(header::CONTENT_TYPE, "application/json")], document).into_response(),
            Err(error) => Error::internal(error).into_response(),
        }
    }
}

pub(in crate::web) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
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
            Err(_) => Err(Error::malformed("The request body has additional text after the JSON value.")),
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
            Err(Error::malformed(format!("The request body is not valid JSON (line {line}, column {column}).")))
        }
    }
}

/// Tells serde's message as a field, a code and a sentence, without the value that was sent.
pub(in crate::web) fn field_error(path: &str, message: &str) -> FieldError {
    let path = if path == "." { "" } else { path };
    let quoted = || message.split('`').nth(1).unwrap_or_default();
    let below = |name: &str| match path.rsplit_once('.') {
        // The reader may or may not have stepped into the field that it refuses.
        _ if path == name || path.is_empty() => name.to_owned(),
        Some((_, last)) if last == name => path.to_owned(),
        _ => format!("{path}.{name}"),
    };
    let expected = message.split_once("expected ").map_or("a different value", |(_, expected)| expected);
    let expected = match expected {
        "i64" | "u64" | "i32" | "u32" | "u16" | "u8" | "usize" => "a whole number in range",
        other => other,
    };
    if message.starts_with("unknown field") {
        return FieldError::new(short(&below(quoted())), "unknown_field", "Unknown field.");
    }
    if message.starts_with("missing field") {
        return FieldError::new(below(quoted()), "missing_field", "This field is required.");
    }
    if message.starts_with("duplicate field") {
        return FieldError::new(below(quoted()), "duplicate_field", "Duplicate field.");
    }
    let field = if path.is_empty() { "body".to_owned() } else { short(path) };
    let code = if message.starts_with("invalid type") { "invalid_type" } else { "invalid_value" };
    if message.starts_with("invalid type")
        || message.starts_with("invalid value")
        || message.starts_with("unknown variant")
    {
        return FieldError::new(field, code, format!("This must be {expected}."));
    }
    FieldError::new(field, code, format!("Invalid value: {}.", short(message)))
}

/// At most 200 characters, for answers that repeat what a client sent.
pub(in crate::web) fn short(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

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
            let error = parse::<Outer>(body.as_bytes()).expect_err(body);
            assert_eq!(error.status().as_u16(), status, "{body}");
            let found = error.field_errors().first().map(|error| (error.field.as_str(), error.code.as_str()));
            assert_eq!(found.unwrap_or(("", "")), (field, code), "{body}: {:?}", error.field_errors());
        }
        let deep = "[".repeat(100_000);
        assert_eq!(parse::<Outer>(br#"["x", null]"#).unwrap_err().status().as_u16(), 422);
        assert_eq!(parse::<serde_json::Value>(deep.as_bytes()).unwrap_err().status().as_u16(), 400);
    }

    #[test]
    fn messages_do_not_repeat_values() {
        let error = parse::<Outer>(br#"{"name": 123456}"#).unwrap_err();
        assert!(!error.detail().contains("123456"), "{}", error.detail());
    }
}
