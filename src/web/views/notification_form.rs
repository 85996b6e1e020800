//! The part of the settings about notifications: what is chosen, what can be, and what was told.

use super::Moment;
use crate::{
    model::{
        Role, Timestamp,
        notification::{Delivery, Event, Notification, Way, offered},
    },
    notifications::{Overview, WishesRequest},
};

/// The form, and the latest ones below it.
#[derive(Clone, Debug, Default)]
pub struct NotificationForm {
    /// Word, label and explanation of each event, and whether it is chosen.
    pub events: Vec<(&'static str, &'static str, &'static str, bool)>,
    pub mail_offered: bool,
    pub mail: String,
    pub hosts: Vec<String>,
    pub webhook: String,
    pub secret: Option<String>,
    pub stalled_minutes: String,
    /// Whether there is somewhere to send a test to.
    pub is_reachable: bool,
    pub latest: Vec<NotificationRow>,
}

/// One line of what was told.
#[derive(Clone, Debug)]
pub struct NotificationRow {
    pub at: Moment,
    pub title: String,
    /// The job's page.
    pub href: Option<String>,
    pub way: &'static str,
    pub class: &'static str,
    pub word: &'static str,
    pub error: String,
}

impl NotificationForm {
    #[must_use]
    pub fn new(overview: Overview, role: Role, now: Timestamp) -> Self {
        let wishes = overview.wishes;
        let is_reachable = wishes.is_reachable();
        let known = overview.known_mail.filter(|_| !is_reachable);
        Self {
            events: events(&wishes.events, role),
            mail_offered: overview.mail_offered,
            mail: wishes.mail.or(known).unwrap_or_default(),
            hosts: overview.hosts,
            webhook: wishes.webhook.map(|hook| hook.url).unwrap_or_default(),
            secret: overview.secret,
            stalled_minutes: (wishes.stalled_after / 60).to_string(),
            is_reachable,
            latest: overview.latest.into_iter().map(|one| NotificationRow::new(one, now)).collect(),
        }
    }

    /// Keeps what was typed.
    pub fn keep(&mut self, typed: &WishesRequest, role: Role, minutes: &str) {
        self.events = events(&typed.events, role);
        self.mail = typed.mail.clone().unwrap_or_default();
        self.webhook = typed.webhook.clone().unwrap_or_default();
        minutes.trim().clone_into(&mut self.stalled_minutes);
    }

    /// Whether there is any way at all.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        self.mail_offered || !self.hosts.is_empty()
    }
}

fn events(chosen: &[Event], role: Role) -> Vec<(&'static str, &'static str, &'static str, bool)> {
    let words = |event: Event| match event {
        Event::Finished => ("Finished", "a job ended with exit code 0"),
        Event::Failed => ("Failed", "a job ended in another way, unless you cancelled it"),
        Event::NotFinite => ("NaN", "a curve has a value that is not a finite number"),
        Event::Health => ("Health", "a warning or fault of the portal, a node or a GPU, and its end"),
        Event::Stalled | Event::Test => ("Stuck", "a job runs, but its curves no longer grow"),
    };
    let one = |event: Event| {
        let (label, hint) = words(event);
        (event.as_str(), label, hint, chosen.contains(&event))
    };
    offered(role).into_iter().map(one).collect()
}

impl NotificationRow {
    fn new(one: Notification, now: Timestamp) -> Self {
        let (class, word) = match one.state {
            Delivery::Waiting if one.attempts == 0 => ("queued", "pending"),
            Delivery::Waiting => ("queued", "will be retried"),
            Delivery::Sending => ("starting", "sending"),
            Delivery::Sent => ("ended", "delivered"),
            Delivery::Failed => ("failed", "not delivered"),
            Delivery::Unknown => ("stopping", "unknown"),
            Delivery::Dropped => ("failed", "dropped"),
        };
        Self {
            at: Moment::ago(one.at, now),
            href: one.message.job.map(|(job, _)| format!("/jobs/{job}")),
            title: one.message.title,
            way: match one.way {
                Way::Mail => "e-mail",
                Way::Webhook => "webhook",
            },
            class,
            word,
            error: one.error.unwrap_or_default(),
        }
    }
}
