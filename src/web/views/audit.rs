//! `/admin/audit`: who did what, for administrators.

use askama::Template;

use super::{FieldError, Moment};
use crate::{
    db::audit::ACTIONS,
    web::page::{Layout, filters},
};

/// The audit log, one page of it.
#[derive(Debug, Template)]
#[template(path = "admin/audit.html")]
pub struct AuditPage {
    pub layout: Layout,
    /// What the form asked for, as it was typed.
    pub asked: AuditFilter,
    /// Fields: `from`, `to`.
    pub errors: Vec<FieldError>,
    /// The latest first.
    pub lines: Vec<AuditLine>,
    /// All rows of the filter as a table.
    pub csv_href: String,
    pub next_href: Option<String>,
}

/// The form's fields; empty asks for nothing.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub address: String,
    /// A day in UTC, `2030-01-31`; it and those after it.
    pub from: String,
    /// The last day.
    pub to: String,
}

#[derive(Clone, Debug)]
pub struct AuditLine {
    pub number: i64,
    pub at: Moment,
    pub actor: String,
    pub action: String,
    pub subject: String,
    /// Where the subject has a page.
    pub subject_href: Option<String>,
    pub detail: String,
    pub address: String,
    pub request_id: String,
}

impl AuditPage {
    fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }

    /// What the form proposes; others can be typed.
    fn actions() -> &'static [&'static str] {
        ACTIONS
    }
}

impl AuditFilter {
    fn fields(&self) -> [(&'static str, &str); 6] {
        [
            ("actor", &self.actor),
            ("action", &self.action),
            ("subject", &self.subject),
            ("address", &self.address),
            ("from", &self.from),
            ("to", &self.to),
        ]
    }

    pub fn is_empty(&self) -> bool {
        self.fields().iter().all(|(_, value)| value.is_empty())
    }

    /// As the part of an address behind the `?`.
    pub fn query(&self) -> String {
        let asked = self.fields().into_iter().filter(|(_, value)| !value.is_empty());
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(asked).finish()
    }
}
