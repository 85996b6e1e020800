//! `/search`: what a text was found in, and one line of it. The same lines go to the command palette as JSON.

use askama::Template;
use serde::Serialize;

use crate::web::page::{Layout, filters};

/// The page of results.
#[derive(Debug, Template)]
#[template(path = "search.html")]
pub struct SearchPage {
    pub layout: Layout,
    /// What was searched for.
    pub find: String,
    pub items: Vec<FoundItem>,
}

/// One result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundItem {
    /// `Job`, `Page`, `Action` …
    pub kind: &'static str,
    pub label: String,
    /// A state, a directory or a display name beside the label.
    pub detail: String,
    pub href: String,
}

impl FoundItem {
    /// Describes an object.
    #[must_use]
    pub fn new(kind: &'static str, label: String, detail: &str, href: String) -> Self {
        Self { kind, label, detail: detail.to_owned(), href }
    }

    /// Describes a page of the navigation.
    #[must_use]
    pub fn page(label: &str, href: &str) -> Self {
        Self::new("Page", label.to_owned(), "", href.to_owned())
    }

    /// Describes something that can be started.
    #[must_use]
    pub fn action(label: &str, href: &str) -> Self {
        Self::new("Action", label.to_owned(), "", href.to_owned())
    }
}
