//! `/admin/webhooks`: the addresses that the portal calls for events.

use askama::Template;

use super::{FieldError, Moment};
use crate::{
    db::webhooks::Webhook,
    model::Timestamp,
    web::page::{Layout, filters},
};

/// The list of webhooks.
#[derive(Debug, Template)]
#[template(path = "admin/webhooks.html")]
pub struct WebhooksPage {
    pub layout: Layout,
    /// What a form did.
    pub notice: Option<String>,
    /// Why a form was refused, where no field is wrong.
    pub error: Option<String>,
    /// The hosts that may be called; empty: none, and there is no form.
    pub hosts: Vec<String>,
    pub rows: Vec<WebhookRow>,
    pub form: WebhookForm,
}

/// A form with what was typed, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct WebhookForm {
    /// Empty for a new one.
    pub id: String,
    pub url: String,
    /// Patterns, separated by spaces.
    pub types: String,
    pub active: bool,
    pub errors: Vec<FieldError>,
}

impl WebhookForm {
    /// Returns what is wrong with an input.
    pub fn error(&self, name: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == name).map(|error| error.message.as_str())
    }
}

/// One webhook.
#[derive(Clone, Debug)]
pub struct WebhookRow {
    pub url: String,
    pub types: Vec<String>,
    /// The class of the badge, and its word.
    pub class: &'static str,
    pub word: &'static str,
    /// Why the last attempt failed, and when the next one begins.
    pub error: Option<String>,
    pub retry: Option<Moment>,
    pub delivered: Option<Moment>,
    pub refused: i64,
    pub created_by: String,
    pub secret: String,
    pub form: WebhookForm,
}

impl WebhookRow {
    pub fn new(secret: String, hook: Webhook, now: Timestamp) -> Self {
        let Webhook { id, url, types, active, created_by, progress, .. } = hook;
        let (class, word) = match (active, progress.attempts) {
            (false, _) => ("ended", "Not active"),
            (true, 0) => ("running", "Active"),
            (true, _) => ("failed", "Failing"),
        };
        let form =
            WebhookForm { id: id.to_string(), url: url.clone(), types: types.join(" "), active, errors: Vec::new() };
        Self {
            url,
            types,
            class,
            word,
            error: progress.error,
            retry: progress.due_at.map(|at| Moment::clock(at, now)),
            delivered: progress.delivered_at.map(|at| Moment::ago(at, now)),
            refused: progress.refused,
            created_by,
            secret,
            form,
        }
    }
}
