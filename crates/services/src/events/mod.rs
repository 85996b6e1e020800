//! Events of the portal for operators: read from a number on, followed as they come, and delivered to webhooks. The events
//! are rows that other transactions write; a loop looks for new ones every second and wakes all who wait. Each webhook
//! gets its events in their order, one at a time, and a receiver that is away holds up no other.

mod webhooks;

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

pub use webhooks::{MOST_WEBHOOKS, WebhookRequest, is_known_type};

use lyceum_db::{self as db, Db, webhooks::Webhook};
use lyceum_model::{Clock, FieldError, Loops, WebhookId, event::PortalEvent};

use crate::notifications::Config;

/// How often the loop looks for new events.
const INTERVAL: Duration = Duration::from_secs(1);

/// The service.
pub struct Events {
    db: Db,
    clock: Clock,
    config: Config,
    /// Signs what goes to webhooks, together with their salts.
    key: [u8; 32],
    /// The number of the latest event.
    latest: watch::Sender<i64>,
    /// Wakes the loop.
    wake: Notify,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no webhook of this id")]
    NotFound,
    #[error("validation failed")]
    Invalid(Vec<FieldError>),
    /// The sentence says why.
    #[error("{0}")]
    Conflict(String),
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Events {
    #[must_use]
    pub fn new(db: Db, clock: Clock, config: Config, key: [u8; 32]) -> Arc<Self> {
        Arc::new(Self { db, clock, config, key, latest: watch::Sender::new(0), wake: Notify::new() })
    }

    /// Returns events in the order of their numbers, from behind `number` on.
    pub async fn after(&self, number: i64, limit: i64) -> Result<Vec<PortalEvent>> {
        Ok(self.db.events_after(number, limit).await?)
    }

    /// Returns the number of the latest event, 0 before the first.
    pub async fn last(&self) -> Result<i64> {
        Ok(self.db.last_event().await?)
    }

    /// Sees the number of the latest event grow.
    pub fn subscribe(&self) -> watch::Receiver<i64> {
        self.latest.subscribe()
    }

    /// Runs until the portal stops. Dropping the future stops the deliveries; what was not confirmed is delivered again.
    pub async fn run(self: Arc<Self>, loops: Loops) {
        let mut deliveries = JoinSet::new();
        let mut busy = HashSet::new();
        loop {
            let round = loops.begin("events", Some(INTERVAL));
            let outcome = self.begin_deliveries(&mut deliveries, &mut busy).await;
            round.end(&outcome);
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = self.wake.notified() => {}
                Some(ended) = deliveries.join_next() => match ended {
                    Ok(id) => _ = busy.remove(&id),
                    // It is not known which one it was: none of them is under way any more.
                    Err(error) => {
                        tracing::error!(error = &error as &dyn std::error::Error, "a delivery to a webhook failed");
                        deliveries.shutdown().await;
                        busy.clear();
                    }
                },
            }
        }
    }

    /// Looks for new events, and begins to deliver to each webhook that has some and is not at it. A failed delivery is
    /// the webhook's state, and not the loop's.
    async fn begin_deliveries(
        self: &Arc<Self>,
        deliveries: &mut JoinSet<WebhookId>,
        busy: &mut HashSet<WebhookId>,
    ) -> Result<()> {
        let last = self.last().await?;
        self.latest.send_if_modified(|latest| std::mem::replace(latest, last) != last);
        let now = self.clock.now();
        let is_due = |hook: &Webhook| {
            let progress = &hook.progress;
            hook.active && progress.position < last && progress.due_at.is_none_or(|due| due <= now)
        };
        for hook in self.db.webhooks().await?.into_iter().filter(is_due) {
            if busy.insert(hook.id) {
                let (this, id) = (Arc::clone(self), hook.id);
                deliveries.spawn(async move {
                    if let Err(error) = this.deliver(hook).await {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(webhook.id = %id, error, "failed to store what was delivered to a webhook");
                    }
                    id
                });
            }
        }
        Ok(())
    }
}
