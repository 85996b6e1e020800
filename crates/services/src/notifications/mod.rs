//! Notifications: people are told of their jobs by e-mail, at an address of theirs, and on every page of the
//! portal until they have seen it. A loop notices what happened from rows alone, writes down what is to be told, and
//! delivers what is written
//! down: claimed before it leaves, tried again with growing pauses, given up in the end. So nothing
//! is lost while a server is away, and nothing is told twice.

mod mail;
mod request;
mod settings;
pub(crate) mod webhook;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use tokio::sync::{
    Notify,
    broadcast::{self, error::RecvError},
};

pub use request::WishesRequest;
pub(crate) use request::url_fault;
pub use settings::{Config, Tls};

use lyceum_db::{self as db, Db, audit};
use lyceum_model::{
    Clock, FieldError, JobId, Loops, Role, RunId, SessionId, Timestamp, User, UserId,
    alert::AlertNews,
    loops::Round,
    notification::{
        Delivery, Event, Message, Notification, NotificationSettings, UnseenJob, WatchedJob, Way, Webhook, end_of,
        pause_after,
    },
};

use crate::{
    runs::{self, Runs},
    sessions::Sessions,
};

/// The safety net: ends of jobs wake the loop.
const INTERVAL: Duration = Duration::from_secs(5);

/// Many ends in a moment make one round.
const BATCH_DELAY: Duration = Duration::from_millis(250);

/// Ends that are older are no news, and neither are values of what ended longer ago (seconds).
const LATEST_END: i64 = 86_400;
const LATEST_VALUE: i64 = 600;

/// So many are taken up in one round, and delivered at once.
const MAX_PER_ROUND: i64 = 200;
const MAX_DELIVERING: usize = 8;

/// A server that takes longer for one message is away.
pub(crate) const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long what was told is kept (seconds), and how often that is looked at.
const RETENTION_SECONDS: i64 = 30 * 86_400;
const CLEANUP_INTERVAL: Duration = Duration::from_hours(1);

/// Of somebody's latest ones the settings show so many.
const MAX_SHOWN: i64 = 10;

/// A listener may be so far behind before it asks for everything.
const CHANNEL_CAPACITY: usize = 256;

/// Browsers show so many at once, and nothing that is older (seconds).
const NOTICES: usize = 5;
const LATEST_NOTICE: i64 = 12 * 3600;

/// The service.
pub struct Notifications {
    db: Db,
    clock: Clock,
    sessions: Arc<Sessions>,
    runs: Arc<Runs>,
    config: Config,
    /// Signs what goes to webhooks, together with their salts.
    key: [u8; 32],
    /// The portal as people reach it, without a slash at the end; empty where nobody said.
    portal: String,
    /// Wakes the loop.
    wake: Notify,
    /// Whose browsers have something else to show than before.
    news: broadcast::Sender<UserId>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("validation failed")]
    Invalid(Vec<FieldError>),
    /// The sentence says why.
    #[error("{0}")]
    Conflict(&'static str),
    #[error("failed to read the curves")]
    Runs(#[from] runs::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

/// Why one was not delivered, in a sentence for the person who it was meant for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeliveryFailure {
    /// It may go better later.
    #[error("{0}")]
    Later(String),
    #[error("{0}")]
    Never(String),
}

/// What somebody chose, what they could choose, and what they were told.
#[derive(Clone, Debug)]
pub struct Overview {
    pub wishes: NotificationSettings,
    /// Whether the site sends e-mail, and to which hosts webhooks go.
    pub mail_offered: bool,
    pub hosts: Vec<String>,
    /// The address that is known of them.
    pub known_mail: Option<String>,
    /// What signs the bodies that go to their webhook.
    pub secret: Option<String>,
    pub latest: Vec<Notification>,
    /// What their browsers show of their jobs.
    pub unseen: Vec<UnseenJob>,
}

impl Notifications {
    #[must_use]
    pub fn new(sessions: Arc<Sessions>, runs: Arc<Runs>, config: Config, key: [u8; 32], portal: String) -> Arc<Self> {
        let (db, clock) = (sessions.db.clone(), sessions.clock.clone());
        let (wake, news) = (Notify::new(), broadcast::Sender::new(CHANNEL_CAPACITY));
        Arc::new(Self { db, clock, sessions, runs, config, key, portal, wake, news })
    }

    pub async fn overview(&self, user: &User) -> Result<Overview> {
        let wishes = self.db.notification_wishes(user.id).await?;
        let known_mail =
            self.db.mail_of(user.id).await?.filter(|mail| request::mail_fault(mail, &self.config).is_none());
        let secret = wishes.as_ref().and_then(|wishes| wishes.webhook.as_ref()).map(|hook| self.secret(user.id, hook));
        Ok(Overview {
            wishes: wishes.unwrap_or_default(),
            mail_offered: self.config.sends_mail(),
            hosts: self.config.webhook_hosts.clone(),
            known_mail,
            secret,
            latest: self.db.latest_notifications(user.id, MAX_SHOWN).await?,
            unseen: self.unseen(user.id).await?.0,
        })
    }

    /// Takes what somebody wants to be told from now on.
    pub async fn change(&self, user: &User, request: WishesRequest) -> Result<Overview> {
        let before = self.db.notification_wishes(user.id).await?;
        let hook = before.and_then(|wishes| wishes.webhook);
        let wishes = request.check(&self.config, user.role, hook).map_err(Error::Invalid)?;
        let subject = user.name.to_string();
        let detail = audit_detail(&wishes);
        let at = self.clock.now();
        let noted =
            audit::Entry { at, actor: &subject, action: "notifications.change", subject: &subject, detail: &detail };
        self.db.set_notification_wishes(user.id, &wishes, &noted).await?;
        self.wake.notify_one();
        self.overview(user).await
    }

    /// Stores a change of an alert, and sends it to the administrators who chose that.
    pub async fn alert(&self, news: &AlertNews) -> Result<()> {
        let now = self.clock.now();
        let mut recipients = Vec::new();
        for (id, wishes) in self.db.everybodys_notification_wishes().await? {
            if wishes.events.contains(&Event::Health)
                && let Some(known) = self.db.find_user(id).await?
                && known.user.role == Role::Admin
                && !known.user.disabled
            {
                recipients.push((id, wishes.ways()));
            }
        }
        if self.db.settle_alert(news, &recipients, &news.message(now), now).await? {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Sends a message by every way that somebody chose.
    pub async fn try_out(&self, user: &User) -> Result<()> {
        let ways = self.db.notification_wishes(user.id).await?.map(|wishes| wishes.ways()).unwrap_or_default();
        if ways.is_empty() {
            return Err(Error::Conflict("save an e-mail address or webhook first"));
        }
        self.db.add_notifications(user.id, &ways, &Message::test(), self.clock.now()).await?;
        self.wake.notify_one();
        Ok(())
    }

    /// What browsers show somebody of their jobs, newest first, and how much more there is.
    pub async fn unseen(&self, user: UserId) -> Result<(Vec<UnseenJob>, usize)> {
        let since = self.clock.now().plus_seconds(-LATEST_NOTICE);
        let mut unseen = self.db.unseen_events(user, since, MAX_PER_ROUND).await?;
        if let Some(wishes) = self.db.notification_wishes(user).await?.filter(|_| !unseen.is_empty()) {
            unseen.retain(|one| wishes.events.contains(&one.message.event));
        }
        let more = unseen.len().saturating_sub(NOTICES);
        unseen.truncate(NOTICES);
        Ok((unseen, more))
    }

    /// Somebody has seen what happened to one of their jobs, or to all.
    pub async fn see(&self, user: UserId, job: Option<JobId>) -> Result<()> {
        if self.db.see_events(user, job, self.clock.now()).await? > 0 {
            self.notify(user);
        }
        Ok(())
    }

    /// Hears for whom there is something else to show than before.
    pub fn subscribe(&self) -> broadcast::Receiver<UserId> {
        self.news.subscribe()
    }

    fn notify(&self, user: UserId) {
        // Nobody may be listening; that is fine.
        let _ = self.news.send(user);
    }

    /// Runs until the portal stops.
    pub async fn run(self: Arc<Self>, loops: Loops) {
        if let Err(error) = self.db.give_up_sending().await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to close deliveries that were interrupted by a restart"
            );
        }
        let mut changes = self.sessions.subscribe();
        let mut forgotten: Option<Instant> = None;
        let mut well = true;
        loop {
            let round = loops.begin("notifications", Some(INTERVAL));
            let mut outcome = self.round(&round).await;
            if outcome.is_ok() && forgotten.is_none_or(|at| at.elapsed() > CLEANUP_INTERVAL) {
                forgotten = Some(Instant::now());
                let before = self.clock.now().plus_seconds(-RETENTION_SECONDS);
                outcome = self.db.forget_notifications(before).await.map_err(Error::from);
            }
            round.end(&outcome);
            match &outcome {
                Err(error) if well => {
                    tracing::error!(error = error as &dyn std::error::Error, "notification loop failed");
                }
                _ => {}
            }
            well = outcome.is_ok();
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = self.wake.notified() => {}
                heard = changes.recv() => {
                    if matches!(heard, Err(RecvError::Closed)) {
                        return;
                    }
                    tokio::time::sleep(BATCH_DELAY).await;
                    changes = changes.resubscribe();
                }
            }
        }
    }

    /// Notices what has happened, and delivers what is due.
    /// What fails with one job or one message holds up no other.
    pub async fn round(&self, round: &Round) -> Result<()> {
        let mut wishes = HashMap::new();
        self.notice_ends(&mut wishes, round).await?;
        self.notice_values(&mut wishes, round).await?;
        self.deliver(round).await
    }

    async fn notice_ends(
        &self,
        wishes: &mut HashMap<UserId, Option<NotificationSettings>>,
        round: &Round,
    ) -> Result<()> {
        for job in self.db.unnoticed_ends(self.clock.now().plus_seconds(-LATEST_END), MAX_PER_ROUND).await? {
            let Some(event) = end_of(&job) else { continue };
            let noticed = self.notice(wishes, job.owner, job.latest.id, event, || Message::ended(&job, event)).await;
            round.unless_failed(format_args!("job {}", job.id), noticed);
        }
        Ok(())
    }

    async fn notice_values(
        &self,
        wishes: &mut HashMap<UserId, Option<NotificationSettings>>,
        round: &Round,
    ) -> Result<()> {
        let now = self.clock.now();
        let watched = self.db.watched_jobs(now.plus_seconds(-LATEST_VALUE)).await?;
        let open: Vec<RunId> = watched.iter().filter(|one| !one.was_not_finite).map(|one| one.run).collect();
        let found = self.runs.not_finite(&open).await?;
        for one in &watched {
            let noticed = self.notice_values_of(wishes, one, found.get(&one.run), now).await;
            round.unless_failed(format_args!("job {}", one.job), noticed);
        }
        Ok(())
    }

    async fn notice_values_of(
        &self,
        wishes: &mut HashMap<UserId, Option<NotificationSettings>>,
        one: &WatchedJob,
        not_finite: Option<&(String, i64)>,
        now: Timestamp,
    ) -> Result<()> {
        let WatchedJob { owner, session, .. } = *one;
        if let Some((metric, step)) = not_finite {
            self.notice(wishes, owner, session, Event::NotFinite, || Message::not_finite(one, metric, *step)).await?;
        }
        let usual = || NotificationSettings::default().stalled_after;
        let after = self.wishes_of(wishes, owner).await?.map_or_else(usual, |wishes| wishes.stalled_after);
        if let Some(quiet) = one.stalled_for(after, now).filter(|_| !one.was_stalled) {
            self.notice(wishes, owner, session, Event::Stalled, || Message::stalled(one, quiet)).await?;
        }
        Ok(())
    }

    /// Writes down that something happened, and whom it is to be told and how.
    async fn notice(
        &self,
        known: &mut HashMap<UserId, Option<NotificationSettings>>,
        owner: UserId,
        session: SessionId,
        event: Event,
        message: impl FnOnce() -> Message,
    ) -> Result<()> {
        let wishes = self.wishes_of(known, owner).await?;
        let ways = wishes.filter(|wishes| wishes.events.contains(&event)).map(NotificationSettings::ways);
        let ways = ways.unwrap_or_default();
        if self.db.notice_event(session, event, (owner, &ways, &message()), self.clock.now()).await? {
            self.notify(owner);
        }
        Ok(())
    }

    async fn wishes_of<'a>(
        &self,
        known: &'a mut HashMap<UserId, Option<NotificationSettings>>,
        user: UserId,
    ) -> Result<Option<&'a NotificationSettings>> {
        let wishes = match known.entry(user) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(self.db.notification_wishes(user).await?),
        };
        Ok(wishes.as_ref())
    }

    async fn deliver(&self, round: &Round) -> Result<()> {
        let due = self.db.due_notifications(self.clock.now(), MAX_PER_ROUND).await?;
        let deliver = async |one: Notification| (one.id, self.deliver_one(one).await);
        let mut under_way = stream::iter(due).map(deliver).buffer_unordered(MAX_DELIVERING);
        while let Some((id, outcome)) = under_way.next().await {
            round.unless_failed(format_args!("notification {id}"), outcome);
        }
        Ok(())
    }

    async fn deliver_one(&self, one: Notification) -> Result<()> {
        let Some(user) = self.db.find_user(one.user).await? else { return Ok(()) };
        let wishes = self.db.notification_wishes(one.user).await?.unwrap_or_default();
        if !self.db.claim_notification(one.id).await? {
            return Ok(());
        }
        let sending = async {
            match (one.way, &wishes.mail, &wishes.webhook) {
                _ if user.user.disabled => Err(DeliveryFailure::Never("Your account is disabled.".to_owned())),
                (Way::Mail, Some(address), _) => {
                    mail::send(&self.config, address, &one, &self.address_of(&one.message)).await
                }
                (Way::Webhook, _, Some(hook)) => {
                    let secret = self.secret(one.user, hook);
                    let job = self.address_of(&one.message);
                    let post = webhook::notification(&one, &job);
                    webhook::send(&self.config, &hook.url, &secret, post, self.clock.now()).await
                }
                _ => Err(DeliveryFailure::Never("You have removed the address in the meantime.".to_owned())),
            }
        };
        let outcome = tokio::time::timeout(DELIVERY_TIMEOUT, sending).await;
        let outcome = outcome.unwrap_or_else(|_late| {
            Err(DeliveryFailure::Later(format!("No response within {} s.", DELIVERY_TIMEOUT.as_secs())))
        });
        let now = self.clock.now();
        let (state, due, error) = settled(outcome, one.attempts + 1, now);
        if let Some(error) = &error {
            let (way, state) = (one.way, &state);
            tracing::info!(notification.id = %one.id, %way, error, %state, "notification not delivered");
        }
        self.db.settle_notification(one.id, state, due, error.as_deref()).await?;
        Ok(())
    }

    /// Where a message leads; empty where that is not known.
    fn address_of(&self, message: &Message) -> String {
        match (&message.job, message.event) {
            _ if self.portal.is_empty() => String::new(),
            (Some((job, _)), _) => format!("{}/jobs/{job}", self.portal),
            (None, Event::Health) => format!("{}/admin/health", self.portal),
            (None, _) => format!("{}/settings", self.portal),
        }
    }

    /// What signs the bodies that go to somebody's webhook. It is made anew each time, and kept nowhere.
    fn secret(&self, user: UserId, hook: &Webhook) -> String {
        webhook::secret(&self.key, user, &hook.salt)
    }
}

/// What becomes of one after this attempt.
fn settled(
    outcome: Result<(), DeliveryFailure>,
    attempt: i64,
    now: Timestamp,
) -> (Delivery, Timestamp, Option<String>) {
    match outcome {
        Ok(()) => (Delivery::Sent, now, None),
        Err(DeliveryFailure::Never(why)) => (Delivery::Failed, now, Some(why)),
        Err(DeliveryFailure::Later(why)) => match pause_after(attempt) {
            Some(pause) => (Delivery::Waiting, now.plus_seconds(pause), Some(why)),
            None => (Delivery::Failed, now, Some(why)),
        },
    }
}

/// For the audit log: which events, and where they go.
fn audit_detail(wishes: &NotificationSettings) -> String {
    let events: Vec<&str> = wishes.events.iter().map(|event| event.as_str()).collect();
    let mail = wishes.mail.as_deref().unwrap_or("no e-mail");
    let hook = wishes.webhook.as_ref().map_or("no webhook", |hook| hook.url.as_str());
    format!("{}: {mail}, {hook}", events.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_one() {
        let now = Timestamp(0);
        assert_eq!(settled(Ok(()), 1, now), (Delivery::Sent, now, None));
        let later = |attempt| settled(Err(DeliveryFailure::Later("away".to_owned())), attempt, now);
        assert_eq!(later(1), (Delivery::Waiting, Timestamp(15_000), Some("away".to_owned())));
        assert_eq!(later(8).0, Delivery::Failed, "for eight attempts");
        let never = settled(Err(DeliveryFailure::Never("no such mailbox".to_owned())), 1, now);
        assert_eq!(never.0, Delivery::Failed);
    }
}
