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

    /// Returns the rank of the label for a search text, best first: equal, begins with it, has a word that begins with
    /// it, contains it.
    #[must_use]
    pub fn distance(&self, find: &str) -> u8 {
        let (label, find) = (self.label.to_lowercase(), find.to_lowercase());
        if label.starts_with(&find) {
            u8::from(label != find)
        } else if label.split(|c: char| !c.is_alphanumeric()).any(|word| word.starts_with(&find)) {
            2
        } else {
            3
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_so_comes_first() {
        let job = |label: &str| FoundItem::new("Job", label.to_owned(), "", String::new());
        let mut found = [
            FoundItem::action("Train a model", "/models/new"),
            FoundItem::action("New training", "/jobs/new"),
            job("pretraining"),
            job("Training 2"),
            job("training"),
            job("resnet-training"),
        ];
        found.sort_by_key(|item| item.distance("Training"));
        let labels: Vec<&str> = found.iter().map(|item| item.label.as_str()).collect();
        let rest = ["New training", "resnet-training", "Train a model", "pretraining"];
        assert_eq!((&labels[..2], &labels[2..]), (&["training", "Training 2"][..], &rest[..]));
    }
}
