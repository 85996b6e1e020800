//! What everybody is told: announcements and maintenance. Changes are written here with their
//! row of the audit log, and what is not over is kept in memory, so that no page asks the
//! database for it. Other processes (the command line) change the same rows: a loop looks
//! every second and tells whoever listens when what is to be shown has become another.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use tokio::sync::watch;

use lyceum_db::{
    self as db, Db,
    audit::Entry,
    idempotency::{EarlierResult, IdempotentRequest},
};
use lyceum_model::{
    Announcement, AnnouncementId, Clock, FieldError, Loops, Maintenance, Phase, Timestamp, UserId,
    announcement::{self, Level},
    maintenance,
};

/// How often the rows are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// The service.
#[derive(Debug)]
pub struct Announcements {
    db: Db,
    clock: Clock,
    board: watch::Sender<Arc<Board>>,
    dismissed: RwLock<HashSet<(AnnouncementId, UserId)>>,
}

/// What is not over, and what of it was to be shown at the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    announcements: Vec<Announcement>,
    maintenance: Option<Maintenance>,
    active: Vec<AnnouncementId>,
    /// The members of groups that announcements are for, by the groups' names.
    members: BTreeMap<String, HashSet<UserId>>,
    phase: Option<Phase>,
}

impl Board {
    fn is_for(&self, one: &Announcement, reader: UserId) -> bool {
        let has = |name: &String| self.members.get(name).is_some_and(|members| members.contains(&reader));
        one.groups.is_empty() || one.groups.iter().any(has)
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("announcement not found")]
    NotFound,
    #[error("validation failed")]
    Invalid(Vec<FieldError>),
    /// The sentence says why.
    #[error("{0}")]
    Conflict(&'static str),
    #[error("changed by another request")]
    Stale,
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Announcements {
    /// Nothing is known before the first [`Announcements::refresh`].
    #[must_use]
    pub fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock, board: watch::Sender::new(Arc::default()), dismissed: RwLock::default() }
    }

    /// Looks every second, for ever; trouble is logged when it begins.
    pub async fn follow(&self, loops: &Loops) {
        let mut well = true;
        loop {
            let round = loops.begin("announcements", Some(INTERVAL));
            let outcome = self.refresh().await;
            round.end(&outcome);
            match outcome {
                Ok(()) => well = true,
                Err(err) if well => {
                    well = false;
                    tracing::error!(
                        error = &err as &dyn std::error::Error,
                        "failed to read announcements and maintenance"
                    );
                }
                Err(_) => {}
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Reads what is not over, and tells if what is to be shown has changed.
    pub async fn refresh(&self) -> db::Result<()> {
        let now = self.clock.now();
        let announcements = self.db.current_announcements(now).await?;
        let maintenance = self.db.maintenance().await?;
        if announcements != self.board.borrow().announcements {
            // Before the new board is seen: a text that was put aside must not flash up.
            *self.dismissed.write() = self.db.announcement_dismissals(now).await?.into_iter().collect();
        }
        let active = announcements.iter().filter(|one| one.window.is_active(now)).map(|one| one.id).collect();
        let phase = maintenance::phase(maintenance.as_ref(), now);
        let mut members = BTreeMap::new();
        for name in announcements.iter().flat_map(|one| &one.groups) {
            if !members.contains_key(name) {
                members.insert(name.clone(), self.db.members_by_group_name(name).await?.into_iter().collect());
            }
        }
        let board = Board { announcements, maintenance, active, members, phase };
        self.board.send_if_modified(|known| {
            let is_news = **known != board;
            if is_news {
                *known = Arc::new(board);
            }
            is_news
        });
        Ok(())
    }

    /// Wakes at every change of what is to be shown.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Board>> {
        self.board.subscribe()
    }

    /// What this reader sees now, what matters most first. Nobody signed in sees what is meant
    /// for the sign-in page too, and nobody escapes what is critical.
    pub fn seen_by(&self, reader: Option<UserId>) -> Vec<Announcement> {
        let now = self.clock.now();
        let (dismissed, board) = (self.dismissed.read(), self.board.borrow());
        let is_seen = |one: &&Announcement| {
            let is_wanted = match reader {
                Some(reader) => {
                    board.is_for(one, reader)
                        && (one.level == Level::Critical || !dismissed.contains(&(one.id, reader)))
                }
                None => one.on_login,
            };
            is_wanted && one.window.is_active(now)
        };
        let mut seen: Vec<_> = board.announcements.iter().filter(is_seen).cloned().collect();
        seen.sort_by(|one, other| other.level.cmp(&one.level).then(other.id.cmp(&one.id)));
        seen
    }

    /// Lists the active announcements for this reader, with those that they dismissed, the newest first.
    pub fn active_for(&self, reader: UserId) -> Vec<Announcement> {
        let (now, board) = (self.clock.now(), self.board.borrow());
        let is_theirs = |one: &&Announcement| one.window.is_active(now) && board.is_for(one, reader);
        let mut active: Vec<_> = board.announcements.iter().filter(is_theirs).cloned().collect();
        active.sort_by_key(|one| std::cmp::Reverse(one.id));
        active
    }

    /// Maintenance that is coming or active.
    pub fn maintenance(&self) -> Option<Maintenance> {
        let board = self.board.borrow();
        board.maintenance.clone().filter(|set| set.window.phase(self.clock.now()) != Phase::Past)
    }

    /// Makes an announcement; asked twice with one key it is the same one.
    pub async fn make(
        &self,
        by: &str,
        draft: announcement::Draft,
        once: Option<IdempotentRequest<'_>>,
    ) -> Result<Announcement> {
        if let Some(earlier) = self.made_earlier(once).await? {
            return Ok(earlier);
        }
        let now = self.clock.now();
        let new = draft.check(AnnouncementId::new(), by, now).map_err(Error::Invalid)?;
        let subject = new.id.to_string();
        let detail = audit_detail(&new);
        let noted = Entry { at: now, actor: by, action: "announcement.make", subject: &subject, detail: &detail };
        match self.db.add_announcement(&new, once, &noted).await {
            Ok(()) => {}
            Err(db::Error::Unique) => return self.made_earlier(once).await?.ok_or(Error::Stale),
            Err(err) => return Err(err.into()),
        }
        self.refresh().await?;
        Ok(new)
    }

    async fn made_earlier(&self, once: Option<IdempotentRequest<'_>>) -> Result<Option<Announcement>> {
        let Some(IdempotentRequest { user, key, request_hash }) = once else { return Ok(None) };
        match self.db.find_idempotent(user, key).await? {
            None => Ok(None),
            Some(EarlierResult { request_hash: hash, created_id }) if hash == request_hash => {
                let id = created_id.parse().map_err(|_err| db::Error::Stored("announcement id"))?;
                self.db.find_announcement(id).await?.map(Some).ok_or(Error::NotFound)
            }
            Some(_) => Err(Error::Conflict("this idempotency key was used for another request; use a new key")),
        }
    }

    /// Changes an announcement that still is as `before`.
    pub async fn change(&self, by: &str, before: &Announcement, draft: announcement::Draft) -> Result<Announcement> {
        let now = self.clock.now();
        let after = draft.check(before.id, by, now).map_err(Error::Invalid)?;
        self.put(before, after, "announcement.change").await
    }

    /// Nobody sees it from now on; one that is over already stays as it is.
    pub async fn end(&self, by: &str, before: &Announcement) -> Result<Announcement> {
        let now = self.clock.now();
        let mut after = Announcement { changed_by: by.to_owned(), changed_at: now, ..before.clone() };
        match before.window.phase(now) {
            Phase::Past => return Ok(after),
            // It is over before it began.
            Phase::Coming => (after.window.from, after.window.to) = (now.plus_seconds(-1), Some(now)),
            Phase::Active => after.window.to = Some(now),
        }
        self.put(before, after, "announcement.change").await
    }

    async fn put(&self, before: &Announcement, after: Announcement, action: &str) -> Result<Announcement> {
        let (subject, detail) = (after.id.to_string(), audit_detail(&after));
        let noted =
            Entry { at: after.changed_at, actor: &after.changed_by, action, subject: &subject, detail: &detail };
        if !self.db.change_announcement(before, &after, &noted).await? {
            return Err(Error::Stale);
        }
        self.refresh().await?;
        Ok(after)
    }

    pub async fn remove(&self, by: &str, id: AnnouncementId) -> Result<()> {
        let subject = id.to_string();
        let (at, action) = (self.clock.now(), "announcement.remove");
        let noted = Entry { at, actor: by, action, subject: &subject, detail: "" };
        if !self.db.remove_announcement(id, &noted).await? {
            return Err(Error::NotFound);
        }
        Ok(self.refresh().await?)
    }

    /// One of those that this reader sees, put aside for good.
    pub async fn dismiss(&self, reader: UserId, id: AnnouncementId) -> Result<()> {
        let now = self.clock.now();
        let found = self.db.find_announcement(id).await?.filter(|one| one.window.is_active(now));
        let found = found.filter(|one| self.board.borrow().is_for(one, reader));
        match found {
            None => return Err(Error::NotFound),
            Some(found) if found.level == Level::Critical => {
                return Err(Error::Conflict("critical announcements cannot be dismissed"));
            }
            Some(_) => {}
        }
        if !self.db.dismiss_announcement(id, reader).await? {
            return Err(Error::NotFound);
        }
        self.dismissed.write().insert((id, reader));
        Ok(())
    }

    /// Orders, changes or ends maintenance that still is as `before`.
    pub async fn set_maintenance(
        &self,
        by: &str,
        before: Option<&Maintenance>,
        draft: maintenance::Draft,
    ) -> Result<Option<Maintenance>> {
        let now = self.clock.now();
        let after = draft.check(before, now).map_err(Error::Invalid)?;
        if after.as_ref() == before {
            return Ok(after);
        }
        let action = match (maintenance::phase(before, now), &after) {
            (_, None) => "maintenance.off",
            (None, Some(_)) => "maintenance.on",
            (Some(_), Some(_)) => "maintenance.change",
        };
        let detail = after.as_ref().map(terms).unwrap_or_default();
        let noted = Entry { at: now, actor: by, action, subject: "portal", detail: &detail };
        if !self.db.set_maintenance(before, after.as_ref(), &noted).await? {
            return Err(Error::Stale);
        }
        self.refresh().await?;
        Ok(after)
    }
}

/// An announcement, for the audit log.
pub(crate) fn audit_detail(one: &Announcement) -> String {
    let login = if one.on_login { ", on the sign-in page too" } else { "" };
    let groups = if one.groups.is_empty() { String::new() } else { format!(", for {}", one.groups.join(", ")) };
    format!("{} {}{login}{groups}: {}", one.level, span(one.window.from, one.window.to), one.text)
}

/// Maintenance, for the audit log.
fn terms(set: &Maintenance) -> String {
    let drain = set.drain_at.map(|at| format!(", sessions end at {at}")).unwrap_or_default();
    let admins = if set.admins_may_start { ", administrators may start" } else { "" };
    let message = if set.message.is_empty() { String::new() } else { format!(": {}", set.message) };
    format!("{} {}{drain}{admins}{message}", set.mode(), span(set.window.from, set.window.to))
}

fn span(from: Timestamp, to: Option<Timestamp>) -> String {
    match to {
        Some(to) => format!("from {from} to {to}"),
        None => format!("from {from}"),
    }
}
