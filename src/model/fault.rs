//! What is wrong with one field of a request: the same in pages, API and command line.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FieldError {
    /// With dots for what lies inside: `resources.cpus`.
    pub field: String,
    /// Stable, for programs.
    pub code: String,
    /// For people: what would be right.
    pub message: String,
}

impl FieldError {
    #[must_use]
    pub fn new(field: impl Into<String>, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), code: code.into(), message: message.into() }
    }
}
