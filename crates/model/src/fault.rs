//! What is wrong with one field of a request: the same in pages, API and command line.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FieldError {
    /// Name of the field. Nested fields have dots: `resources.cpus`.
    pub field: String,
    /// Stable code for programs.
    pub code: String,
    /// Message for people: what is wrong and what is allowed.
    pub message: String,
}

impl FieldError {
    #[must_use]
    pub fn new(field: impl Into<String>, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), code: code.into(), message: message.into() }
    }
}
