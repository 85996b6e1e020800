//! The list of webhooks in each state, its forms, and the page of a portal that calls no other hosts.

use lyceum::web::{page::Nav, views::*};

use super::gallery::{NOW, Word, layout};

pub fn webhooks(word: &Word) -> WebhooksPage {
    let row = |id: &str, path: &str| WebhookRow {
        url: format!("https://hooks.example.org/{}", word(path)),
        types: vec!["job.*".to_owned(), "quota.change".to_owned(), "user.*".to_owned()],
        class: "running",
        word: "Active",
        error: None,
        retry: None,
        delivered: Some(Moment::ago(NOW.plus_seconds(-240), NOW)),
        refused: 0,
        created_by: word("chief"),
        secret: "0f3a5c77e1b2d49860f3a5c77e1b2d49860f3a5c77e1b2d49860f3a5c77e1b2d".to_owned(),
        form: WebhookForm {
            id: id.to_owned(),
            url: format!("https://hooks.example.org/{}", word(path)),
            types: "job.* quota.change user.*".to_owned(),
            active: true,
            errors: Vec::new(),
        },
    };
    WebhooksPage {
        layout: layout(word).at(Nav::Administration),
        notice: Some("The webhook was added. It gets events from now on.".to_owned()),
        error: None,
        hosts: vec!["hooks.example.org".to_owned(), word("*.chat.example.org")],
        rows: vec![
            row("one", "lyceum"),
            WebhookRow {
                class: "failed",
                word: "Failing",
                error: Some(word("The webhook returned status 503.")),
                retry: Some(Moment::clock(NOW.plus_seconds(600), NOW)),
                refused: 1204,
                ..row("two", "accounting")
            },
            WebhookRow { class: "ended", word: "Not active", delivered: None, ..row("three", "old") },
        ],
        form: WebhookForm::default(),
    }
}

/// A form for a new webhook that was refused, and a test that did not arrive.
pub fn webhooks_wrong(word: &Word) -> WebhooksPage {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    WebhooksPage {
        notice: None,
        error: Some(word("The test event did not arrive. The webhook's host cannot be reached.")),
        form: WebhookForm {
            url: "https://elsewhere.example.org/".to_owned(),
            types: word("jobs.*"),
            active: true,
            errors: vec![
                error("url", "The address must use a host that this portal may call: hooks.example.org."),
                error("types", "No event has the type `jobs.*`."),
            ],
            ..WebhookForm::default()
        },
        ..webhooks(word)
    }
}

/// The configuration names no hosts.
pub fn webhooks_none(word: &Word) -> WebhooksPage {
    WebhooksPage { notice: None, hosts: Vec::new(), rows: Vec::new(), ..webhooks(word) }
}
