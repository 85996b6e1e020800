//! Webhooks of the site: addresses that administrators set, which get the events that they select. An event that the
//! receiver confirms or refuses is passed; otherwise it is tried again with growing pauses, and the next ones wait.

use lyceum_db::{
    audit::{ACTIONS, ChangedBy},
    webhooks::{Progress, Webhook},
};
use lyceum_model::{
    FieldError, Timestamp, WebhookId,
    event::{PortalEvent, selects, types_of_states},
    notification::pause_after,
};

use super::{Error, Events, Result};
use crate::notifications::{
    DELIVERY_TIMEOUT, DeliveryFailure, url_fault,
    webhook::{self, Post},
};

/// How many webhooks there may be.
pub const MOST_WEBHOOKS: i64 = 20;

/// How many patterns one has at most.
const MOST_TYPES: usize = 50;

/// The longest pause between two attempts, in seconds.
const LONGEST_PAUSE: i64 = 3600;

/// So many events are read at once.
const STEP: i64 = 100;

/// What an administrator sets of a webhook.
#[derive(Clone, Debug)]
pub struct WebhookRequest {
    pub url: String,
    /// Types of events, or patterns of them.
    pub types: Vec<String>,
    pub active: bool,
}

impl Events {
    /// Returns all webhooks, oldest first.
    pub async fn webhooks(&self) -> Result<Vec<Webhook>> {
        Ok(self.db.webhooks().await?)
    }

    pub async fn find_webhook(&self, id: WebhookId) -> Result<Webhook> {
        self.db.webhooks().await?.into_iter().find(|hook| hook.id == id).ok_or(Error::NotFound)
    }

    /// Returns the hosts that webhooks may call. Empty: the portal calls none.
    pub fn hosts(&self) -> &[String] {
        &self.config.webhook_hosts
    }

    /// Computes what the receiver checks bodies with. It is kept nowhere.
    pub fn secret(&self, hook: &Webhook) -> String {
        webhook::secret(&self.key, hook.id, &hook.salt)
    }

    /// Adds a webhook, which gets what happens from now on.
    ///
    /// # Errors
    ///
    /// A field is wrong, or there are [`MOST_WEBHOOKS`].
    pub async fn add_webhook(&self, request: WebhookRequest, by: ChangedBy<'_>) -> Result<Webhook> {
        let WebhookRequest { url, types, active } = self.check(&request)?;
        let new = Webhook {
            id: WebhookId::new(),
            url,
            types,
            salt: salt(),
            active,
            created_by: by.actor.to_owned(),
            created_at: by.at,
            changed_at: by.at,
            progress: Progress::default(),
        };
        let (id, detail) = (new.id.to_string(), describe(&new));
        if !self.db.add_webhook(&new, MOST_WEBHOOKS, &by.did("webhook.add", &id, &detail)).await? {
            return Err(Error::Conflict(format!("there are already {MOST_WEBHOOKS} webhooks, which is the maximum")));
        }
        self.find_webhook(new.id).await
    }

    /// Changes a webhook. It keeps its secret unless the address is another.
    ///
    /// # Errors
    ///
    /// There is none of this id, or a field is wrong.
    pub async fn change_webhook(&self, id: WebhookId, request: WebhookRequest, by: ChangedBy<'_>) -> Result<Webhook> {
        let before = self.find_webhook(id).await?;
        let WebhookRequest { url, types, active } = self.check(&request)?;
        let salt = if url == before.url { before.salt.clone() } else { salt() };
        let new = Webhook { url, types, active, salt, changed_at: by.at, ..before };
        let (subject, detail) = (id.to_string(), describe(&new));
        if !self.db.change_webhook(&new, &by.did("webhook.change", &subject, &detail)).await? {
            return Err(Error::NotFound);
        }
        self.wake.notify_one();
        self.find_webhook(id).await
    }

    /// Removes a webhook; a delivery that is under way is its last.
    ///
    /// # Errors
    ///
    /// There is none of this id.
    pub async fn remove_webhook(&self, id: WebhookId, by: ChangedBy<'_>) -> Result<()> {
        let hook = self.find_webhook(id).await?;
        let removed = self.db.remove_webhook(id, &by.did("webhook.remove", &id.to_string(), &hook.url)).await?;
        if removed { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Sends an event to try a webhook, at once and once, also to one that is not active. Returns why it did not arrive.
    ///
    /// # Errors
    ///
    /// There is none of this id.
    pub async fn try_webhook(&self, id: WebhookId, actor: &str) -> Result<Option<String>> {
        let hook = self.find_webhook(id).await?;
        let event = PortalEvent::test(self.clock.now(), actor);
        Ok(self.post(&hook, &event).await.err().map(|failure| failure.to_string()))
    }

    fn check(&self, request: &WebhookRequest) -> Result<WebhookRequest> {
        let mut faults = Vec::new();
        let url = request.url.trim().to_owned();
        if let Some((code, message)) = url_fault(&url, &self.config) {
            faults.push(FieldError::new("url", code, format!("The address {message}.")));
        }
        let mut types: Vec<String> = Vec::new();
        for pattern in request.types.iter().map(|pattern| pattern.trim()).filter(|pattern| !pattern.is_empty()) {
            if !is_known_type(pattern) {
                let shown: String = pattern.chars().take(80).collect();
                faults.push(FieldError::new("types", "unknown", format!("No event has the type `{shown}`.")));
            } else if !types.iter().any(|known| known == pattern) {
                types.push(pattern.to_owned());
            }
        }
        if types.is_empty() && faults.is_empty() {
            faults.push(FieldError::new("types", "required", "Select at least one type of event, or `*` for all."));
        }
        if types.len() > MOST_TYPES {
            faults.push(FieldError::new("types", "too_long", format!("Select at most {MOST_TYPES} types.")));
        }
        if faults.is_empty() {
            Ok(WebhookRequest { url, types, active: request.active })
        } else {
            Err(Error::Invalid(faults))
        }
    }

    /// Delivers one event after the other until a webhook has them all, an attempt fails, or it was changed.
    pub(super) async fn deliver(&self, mut hook: Webhook) -> Result<()> {
        loop {
            let events = self.db.events_after(hook.progress.position, STEP).await?;
            if events.is_empty() {
                return Ok(());
            }
            let mut is_stored = true;
            for event in events {
                if !hook.types.iter().any(|pattern| selects(pattern, &event.kind)) {
                    (hook.progress.position, is_stored) = (event.number, false);
                    continue;
                }
                let outcome = self.post(&hook, &event).await;
                let has_failed = matches!(outcome, Err(DeliveryFailure::Later(_)));
                hook.progress = after_attempt(&hook.progress, event.number, outcome, self.clock.now());
                if let Some(error) = &hook.progress.error {
                    tracing::info!(webhook.id = %hook.id, event = event.number, error, "event not delivered");
                }
                if !self.db.settle_webhook(&hook).await? || has_failed {
                    return Ok(());
                }
                is_stored = true;
            }
            if !is_stored && !self.db.settle_webhook(&hook).await? {
                return Ok(());
            }
        }
    }

    async fn post(&self, hook: &Webhook, event: &PortalEvent) -> Result<(), DeliveryFailure> {
        let body = serde_json::to_vec(event).expect("plain data");
        let post = Post { id: event.number.to_string(), event: event.kind.clone(), body };
        let secret = self.secret(hook);
        let sending = webhook::send(&self.config, &hook.url, &secret, post, self.clock.now());
        // The client has limits of its own, the lookup of the host has none.
        tokio::time::timeout(DELIVERY_TIMEOUT, sending).await.unwrap_or_else(|_late| {
            Err(DeliveryFailure::Later(format!("No response within {} s.", DELIVERY_TIMEOUT.as_secs())))
        })
    }
}

/// What becomes of a webhook's progress after an attempt to deliver an event.
fn after_attempt(before: &Progress, number: i64, outcome: Result<(), DeliveryFailure>, now: Timestamp) -> Progress {
    let passed = Progress { position: number, attempts: 0, due_at: None, ..before.clone() };
    match outcome {
        Ok(()) => Progress { delivered_at: Some(now), error: None, ..passed },
        Err(DeliveryFailure::Never(why)) => Progress { refused: before.refused + 1, error: Some(why), ..passed },
        Err(DeliveryFailure::Later(why)) => {
            let attempts = before.attempts + 1;
            let pause = pause_after(attempts).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
            Progress { attempts, due_at: Some(now.plus_seconds(pause)), error: Some(why), ..before.clone() }
        }
    }
}

/// Whether a pattern selects a type of events that exists.
pub fn is_known_type(pattern: &str) -> bool {
    ACTIONS.iter().any(|action| selects(pattern, action)) || types_of_states().any(|kind| selects(pattern, &kind))
}

fn salt() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}

/// For the audit log.
fn describe(hook: &Webhook) -> String {
    let state = if hook.active { "" } else { ", not active" };
    format!("{}: {}{state}", hook.url, hook.types.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_the_progress() {
        let now = Timestamp(1_000_000);
        let before = Progress { position: 4, attempts: 2, error: Some("away".to_owned()), ..Progress::default() };
        let after = |outcome| after_attempt(&before, 7, outcome, now);
        let arrived = after(Ok(()));
        assert_eq!((arrived.position, arrived.attempts, arrived.error), (7, 0, None));
        assert_eq!(arrived.delivered_at, Some(now));
        let refused = after(Err(DeliveryFailure::Never("status 400".to_owned())));
        assert_eq!((refused.position, refused.refused, refused.delivered_at), (7, 1, None));
        let away = after(Err(DeliveryFailure::Later("away".to_owned())));
        assert_eq!((away.position, away.attempts), (4, 3), "the next ones wait for it");
        assert!(away.due_at.is_some_and(|due| due > now));
        let long = Progress { attempts: 1000, ..before };
        let away = after_attempt(&long, 7, Err(DeliveryFailure::Later("away".to_owned())), now);
        assert_eq!(away.due_at, Some(now.plus_seconds(LONGEST_PAUSE)), "it is never given up");
    }

    #[test]
    fn patterns_select_something() {
        for pattern in ["*", "job.*", "job.ended", "quota.*", "user.add", "sign_in", "webhook.*"] {
            assert!(is_known_type(pattern), "{pattern}");
        }
        for pattern in ["jobs.*", "job.", "job.failed", "**", "quota.change.*", ""] {
            assert!(!is_known_type(pattern), "{pattern}");
        }
    }
}
