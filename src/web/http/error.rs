//! The one place with status codes. Handlers answer with [`Error`]; which one a failure of a
//! module becomes is decided in `causes`. The answer is a problem document (RFC 9457), or for a
//! browser a page; `finish` writes either, because only it knows who asks and under which
//! request id. What a client reads never holds the cause of a fault: that is for the log.

use std::{fmt, sync::Arc};

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::model::quota::Reason;

/// What is said to a client whose request did not succeed.
#[derive(Clone, Debug)]
pub struct Error(pub(in crate::web) Arc<Fault>);

#[derive(Debug)]
pub(in crate::web) struct Fault {
    pub(in crate::web) kind: Kind,
    /// One or two sentences for a person: what happened and the way out.
    pub(in crate::web) detail: String,
    pub(in crate::web) errors: Vec<FieldError>,
    pub(in crate::web) reasons: Vec<Reason>,
    pub(in crate::web) retry_after: Option<i64>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

pub use crate::model::FieldError;

/// What may go wrong. `/problems/{slug}` explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Malformed,
    NotSignedIn,
    Forbidden,
    NotSameOrigin,
    NotFound,
    MethodNotAllowed,
    Conflict,
    OverQuota,
    Ended,
    Stale,
    TooLarge,
    Unsatisfiable,
    InvalidFields,
    TooManyRequests,
    Internal,
    Unavailable,
    Maintenance,
}

impl Kind {
    const fn facts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Malformed => (StatusCode::BAD_REQUEST, "malformed", "Malformed request"),
            Self::NotSignedIn => (StatusCode::UNAUTHORIZED, "not-signed-in", "Not signed in"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "forbidden", "Not allowed"),
            Self::NotSameOrigin => {
                (StatusCode::FORBIDDEN, "not-same-origin", "The request did not come from the portal's own pages")
            }
            Self::NotFound => (StatusCode::NOT_FOUND, "not-found", "Not found"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed"),
            Self::Conflict => (StatusCode::CONFLICT, "conflict", "Conflict with the current state"),
            Self::OverQuota => (StatusCode::CONFLICT, "over-quota", "Over your quota"),
            Self::Ended => (StatusCode::GONE, "ended", "The session has ended"),
            Self::Stale => (StatusCode::PRECONDITION_FAILED, "stale", "Changed by another request"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The request is too large"),
            Self::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, "unsatisfiable", "Range not satisfiable"),
            Self::InvalidFields => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-fields", "Some fields are invalid"),
            Self::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Temporarily unavailable"),
            Self::Maintenance => (StatusCode::SERVICE_UNAVAILABLE, "maintenance", "No starts during maintenance"),
        }
    }

    pub fn status(self) -> StatusCode {
        self.facts().0
    }

    pub fn slug(self) -> &'static str {
        self.facts().1
    }

    pub fn title(self) -> &'static str {
        self.facts().2
    }
}

/// A problem document (RFC 9457): the body of each response that reports an error.
#[derive(Debug, Serialize, ToSchema)]
pub struct Problem {
    /// `/problems/{kind}`, the address of a page that explains this kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of this kind of problem.
    pub title: String,
    /// The HTTP status code.
    pub status: u16,
    /// What happened and what to do, in one or two sentences.
    pub detail: String,
    /// The request id, as in the log.
    pub instance: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<FieldError>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub reasons: Vec<Reason>,
}

impl Error {
    fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self::with(kind, detail, |_| {})
    }

    fn with(kind: Kind, detail: impl Into<String>, fill: impl FnOnce(&mut Fault)) -> Self {
        let detail = detail.into();
        let mut fault =
            Fault { kind, detail, errors: Vec::new(), reasons: Vec::new(), retry_after: None, source: None };
        fill(&mut fault);
        Self(Arc::new(fault))
    }

    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(Kind::Malformed, detail)
    }

    pub fn unauthenticated() -> Self {
        Self::new(Kind::NotSignedIn, "Sign in, or send a token as `Authorization: Bearer …`.")
    }

    /// As [`Error::unauthenticated`], where it is known why.
    pub fn unauthenticated_because(detail: impl Into<String>) -> Self {
        Self::new(Kind::NotSignedIn, detail)
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(Kind::Forbidden, detail)
    }

    pub fn not_same_origin() -> Self {
        let detail = "A change must come from one of the portal's own pages, and the proof of that is missing. Reload \
                      the page and try again. Programs can use a token, which needs no such proof.";
        Self::new(Kind::NotSameOrigin, detail)
    }

    /// As [`Error::not_found`], where it can be said what.
    pub fn not_found_because(detail: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, detail)
    }

    pub fn unsatisfiable(detail: impl Into<String>) -> Self {
        Self::new(Kind::Unsatisfiable, detail)
    }

    /// As [`Error::too_large`], where another limit counts.
    pub fn too_large_because(detail: impl Into<String>) -> Self {
        Self::new(Kind::TooLarge, detail)
    }

    /// There is no such thing, or it is not theirs: nobody can tell which.
    pub fn not_found() -> Self {
        Self::new(Kind::NotFound, "This does not exist, or it is not yours.")
    }

    pub fn method_not_allowed() -> Self {
        Self::new(Kind::MethodNotAllowed, "This address exists, but it does not support this method.")
    }

    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, detail)
    }

    pub fn over_quota(reasons: Vec<Reason>) -> Self {
        let detail = reasons.first().map_or_else(|| "Over your quota.".to_owned(), |reason| reason.hint.clone());
        Self::with(Kind::OverQuota, detail, |fault| fault.reasons = reasons)
    }

    pub fn ended(detail: impl Into<String>) -> Self {
        Self::new(Kind::Ended, detail)
    }

    pub fn stale() -> Self {
        Self::new(Kind::Stale, "Another request changed this in the meantime. Reload it and repeat your change.")
    }

    pub fn too_large(limit: usize) -> Self {
        Self::new(
            Kind::TooLarge,
            format!("The request body is larger than {limit} bytes, the maximum for this address."),
        )
    }

    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [] => "A field is invalid.".to_owned(),
            [one] => format!("{}: {}", one.field, one.message),
            [first, rest @ ..] => format!("{}: {} (and {} more)", first.field, first.message, rest.len()),
        };
        Self::with(Kind::InvalidFields, detail, |fault| fault.errors = errors)
    }

    /// One field that cannot be accepted.
    pub fn field(field: impl Into<String>, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::new(field, code, message)])
    }

    pub fn throttled(detail: impl Into<String>, retry_after_seconds: i64) -> Self {
        Self::with(Kind::TooManyRequests, detail, |fault| fault.retry_after = Some(retry_after_seconds))
    }

    /// Something that we need is away; `detail` says what, for anybody to read.
    pub fn unavailable(detail: impl Into<String>, retry_after_seconds: i64) -> Self {
        Self::with(Kind::Unavailable, detail, |fault| fault.retry_after = Some(retry_after_seconds))
    }

    /// Nothing starts for so long; `detail` says why.
    pub fn maintenance(detail: impl Into<String>, retry_after_seconds: i64) -> Self {
        Self::with(Kind::Maintenance, detail, |fault| fault.retry_after = Some(retry_after_seconds))
    }

    /// A fault of ours: the source goes to the log and nowhere else.
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let detail = "An internal error occurred and was logged. Try again. If it persists, give an administrator the \
                      request id.";
        Self::with(Kind::Internal, detail, |fault| fault.source = Some(source.into()))
    }

    /// As [`Error::unavailable`], with the cause for the log.
    pub fn outage(
        detail: impl Into<String>,
        retry_after_seconds: i64,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::with(Kind::Unavailable, detail, |fault| {
            fault.retry_after = Some(retry_after_seconds);
            fault.source = Some(source.into());
        })
    }

    /// Gives an answer of the framework's own the shape of ours; `None` where it is no error.
    pub(in crate::web) fn of_status(status: StatusCode) -> Option<Self> {
        Some(match status {
            StatusCode::UNAUTHORIZED => Self::unauthenticated(),
            StatusCode::FORBIDDEN => Self::forbidden("You are not allowed to do this."),
            StatusCode::NOT_FOUND => Self::not_found(),
            StatusCode::METHOD_NOT_ALLOWED => Self::method_not_allowed(),
            StatusCode::PAYLOAD_TOO_LARGE => Self::too_large(crate::web::BODY_LIMIT),
            status if status.is_client_error() => Self::malformed("The request is malformed."),
            status if status.is_server_error() => Self::internal(format!("a response with status {status}")),
            _ => return None,
        })
    }

    /// This error as a page of its own, with everything else that belongs to the answer.
    pub fn with_page(&self, page: impl IntoResponse) -> Response {
        let mut response = page.into_response();
        *response.status_mut() = self.status();
        self.decorate(&mut response);
        response
    }

    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether users can fix it in the form that they sent, which is shown again with the error.
    pub fn is_for_the_form(&self) -> bool {
        matches!(self.0.kind, Kind::InvalidFields | Kind::OverQuota | Kind::Conflict | Kind::Maintenance)
    }

    /// Returns whether something is not there, or is not in a state that allows what was asked.
    pub fn is_about_state(&self) -> bool {
        matches!(self.0.kind, Kind::NotFound | Kind::Conflict)
    }

    pub fn status(&self) -> StatusCode {
        self.0.kind.status()
    }

    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// What is wrong with which field, for a form that is shown again.
    pub fn field_errors(&self) -> &[FieldError] {
        &self.0.errors
    }

    pub fn reasons(&self) -> &[Reason] {
        &self.0.reasons
    }

    pub(in crate::web) fn problem(&self, request_id: &str) -> Problem {
        let fault = &*self.0;
        Problem {
            kind: format!("/problems/{}", fault.kind.slug()),
            title: fault.kind.title().to_owned(),
            status: fault.kind.status().as_u16(),
            detail: fault.detail.clone(),
            instance: request_id.to_owned(),
            errors: fault.errors.clone(),
            reasons: fault.reasons.clone(),
        }
    }

    /// Once a request: at `error` with all causes where it is a fault of ours, else at
    /// `debug` without what the client sent. That something is not ready yet is no fault.
    pub(in crate::web) fn log(&self, request_id: &str) {
        let kind = self.0.kind.slug();
        if self.0.kind == Kind::Internal || self.0.source.is_some() {
            tracing::error!(request_id, kind, cause = %self, "request failed");
        } else {
            // The name of a field that we do not know is the client's own words too.
            let name =
                |error: &FieldError| if error.code == "unknown_field" { String::new() } else { error.field.clone() };
            let fields: Vec<String> =
                self.0.errors.iter().map(|error| format!("{} {}", name(error), error.code)).collect();
            tracing::debug!(request_id, kind, ?fields, "request rejected");
        }
    }

    /// Headers that belong to the answer, whatever its body.
    pub(in crate::web) fn decorate(&self, response: &mut Response) {
        let headers = response.headers_mut();
        if let Some(seconds) = self.0.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.0.kind == Kind::NotSignedIn {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"lyceum\""));
        }
    }
}

/// The chain of causes, for the log.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.kind.title())?;
        let mut cause: Option<&dyn std::error::Error> = self.0.source.as_deref().map(|cause| cause as _);
        while let Some(err) = cause {
            write!(f, ": {err}")?;
            cause = err.source();
        }
        Ok(())
    }
}

/// A problem document; `finish` finds the error in the extensions and completes it.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = document(&self, "");
        response.extensions_mut().insert(self);
        response
    }
}

pub(in crate::web) fn document(error: &Error, request_id: &str) -> Response {
    let mut response = (error.status(), Json(error.problem(request_id))).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    error.decorate(&mut response);
    response
}

/// Something was made: 201 with its address and itself.
#[derive(Debug)]
pub struct Created<T>(pub String, pub T);

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, [(header::LOCATION, self.0)], Json(self.1)).into_response()
    }
}

/// It is under way: 202.
#[derive(Debug)]
pub struct Accepted<T>(pub T);

impl<T: Serialize> IntoResponse for Accepted<T> {
    fn into_response(self) -> Response {
        (StatusCode::ACCEPTED, Json(self.0)).into_response()
    }
}

/// The client has it already: 304.
#[derive(Clone, Copy, Debug)]
pub struct NotModified;

impl IntoResponse for NotModified {
    fn into_response(self) -> Response {
        StatusCode::NOT_MODIFIED.into_response()
    }
}

/// A part of what was asked for: 206.
#[derive(Debug)]
pub struct Partial<T>(pub T);

impl<T: IntoResponse> IntoResponse for Partial<T> {
    fn into_response(self) -> Response {
        let mut response = self.0.into_response();
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_stay_inside() {
        let error = Error::internal("the secret cause");
        assert!(error.to_string().contains("the secret cause"), "the log has it");
        assert!(!serde_json::to_string(&error.problem("1")).unwrap().contains("secret"));
        let error = Error::outage("The database is away.", 5, "password=hunter2");
        assert!(!serde_json::to_string(&error.problem("1")).unwrap().contains("hunter2"));
        assert_eq!(error.clone().into_response().headers()["retry-after"], "5");
    }

    #[test]
    fn every_kind_is_explained() {
        for kind in [
            Kind::Malformed,
            Kind::NotSignedIn,
            Kind::Forbidden,
            Kind::NotSameOrigin,
            Kind::NotFound,
            Kind::MethodNotAllowed,
            Kind::Conflict,
            Kind::OverQuota,
            Kind::Ended,
            Kind::Stale,
            Kind::TooLarge,
            Kind::Unsatisfiable,
            Kind::InvalidFields,
            Kind::TooManyRequests,
            Kind::Internal,
            Kind::Unavailable,
            Kind::Maintenance,
        ] {
            let explanation = crate::web::views::explain(kind.slug()).unwrap_or_else(|| panic!("{kind:?}"));
            assert_eq!(explanation.status, kind.status().as_u16(), "{kind:?}");
        }
    }
}
