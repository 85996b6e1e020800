//! How long a session lives, and what its owner hears of that: more time, "keep", the rule for
//! those that waited and are not opened, warnings. What is due when is `model::ending`'s rule,
//! whether more time fits `model::quota`'s; here the answers are looked up, written and told.

use std::{mem::replace, sync::atomic::Ordering};

use super::{Actor, Change, Error, Result, Sessions, request::MAX_DURATION};
use lyceum_db::extend::ExtensionOutcome;
use lyceum_model::{
    FieldError, Role, Session, SessionId, SessionState, Timestamp,
    ending::{Cause, Deadline, Notice},
    quota::{Reason, Rule, Source},
};
use lyceum_node::apps::Idle;

use crate::scheduler;

/// Seconds that `keep` may reach at most, and where nobody says how long.
const MAX_KEEP: i64 = 24 * 3600;
const DEFAULT_KEEP: i64 = 2 * 3600;

/// What an extension would meet with is true for so long (seconds).
const REHEARSED: i64 = 30;

/// Records the last notice to a session's owner.
#[derive(Clone, Debug, Default)]
pub struct OwnerNotice {
    pub notice: Option<Notice>,
    /// What would keep it from being extended, while its end is near.
    pub no_extension: Vec<Reason>,
    /// When that was found out.
    rehearsed_at: Timestamp,
}

impl Sessions {
    /// Moves the time limit by `seconds` (or by as much as one extension adds), where quotas
    /// and those who wait allow it. An administrator may do it for somebody, within what that person may.
    pub async fn extend(&self, actor: Actor<'_>, id: SessionId, seconds: Option<i64>) -> Result<Session> {
        let session = self.find(actor, id).await?;
        if !actor.owns(&session) && actor.user.role != Role::Admin {
            return Err(Error::NotFound);
        }
        let fault = |code, message| Err(Error::Invalid(vec![FieldError::new("seconds", code, message)]));
        match seconds {
            Some(..=0) => return fault("too_small", "must be at least 1"),
            Some(seconds) if seconds > MAX_DURATION => return fault("too_large", "must be at most ten years"),
            _ => {}
        }
        if let Some(reason) = self.maintenance_comes_first(&session) {
            return Err(Error::Refused(vec![reason]));
        }
        if let Some(why) = self.scheduler.time_is_fixed() {
            return Err(Error::Conflict(why.to_owned()));
        }
        self.grant(&session, seconds).await?;
        match self.admission.extend(id, seconds, actor.user.name.as_str()).await? {
            ExtensionOutcome::By(_) => {}
            ExtensionOutcome::Refused(reasons) => {
                let why: Vec<&str> = reasons.iter().map(|reason| reason.hint.as_str()).collect();
                tracing::info!(session.id = %id, user.name = %actor.user.name, ?why, "session extension rejected");
                return Err(Error::Refused(reasons));
            }
            ExtensionOutcome::NotRunning => {
                let state = session.state;
                return Err(Error::Conflict(format!("only a running session can be extended; this one is {state}")));
            }
        }
        self.changed(id, session.owner, false);
        self.find(actor, id).await
    }

    /// Has the scheduler grant what an extension would add. That comes first: more than is used
    /// in the end does no harm, for the portal ends the session itself, and less would.
    async fn grant(&self, session: &Session, seconds: Option<i64>) -> Result<()> {
        let (Some(end), Some(placement)) = (session.expires_at, &session.placement) else { return Ok(()) };
        // What is in the way is told by whoever decides.
        let Some(Ok(more)) = self.admission.rehearse_extension(session.id, seconds).await? else { return Ok(()) };
        match self.scheduler.grant_until(session.id, placement, end.plus_seconds(more)).await {
            Err(scheduler::Error::Refused(why)) => Err(Error::Conflict(why)),
            other => {
                self.note_grant(session);
                Ok(other?)
            }
        }
    }

    /// Does not stop the session for idleness for so long (two hours when nothing is said).
    pub async fn keep(&self, actor: Actor<'_>, id: SessionId, seconds: Option<i64>) -> Result<Session> {
        let session = self.own(actor, id).await?;
        let seconds = seconds.unwrap_or(DEFAULT_KEEP);
        if !(1..=MAX_KEEP).contains(&seconds) {
            let message = format!("must be between 1 and {MAX_KEEP}");
            return Err(Error::Invalid(vec![FieldError::new("seconds", "out_of_range", &message)]));
        }
        if !self.db.keep_session(id, self.clock.now().plus_seconds(seconds)).await? {
            return Err(Error::Conflict(format!("only a running session can be kept; this one is {}", session.state)));
        }
        self.changed(id, session.owner, false);
        self.find(actor, id).await
    }

    /// What will stop a running session first if nobody, or nothing, uses it; `None` where
    /// nothing will, or nobody knows.
    pub fn idle_deadline(&self, session: &Session) -> Option<Deadline> {
        let is_seen = session.unknown_since.is_none() && session.suspended_since.is_none();
        if session.state != SessionState::Running || !is_seen {
            return None;
        }
        let (live, opened) = (self.live(session.id), self.came_at(session.id).is_some());
        let unopened = Deadline::unopened(session, self.config.open_within_seconds, self.since);
        let unopened = unopened.filter(|_| !opened && self.is_to_be_opened(session));
        let all = live.idle.into_iter().chain(unopened);
        all.map(|deadline| deadline.not_before(session.keep_until)).min_by_key(|deadline| deadline.at)
    }

    /// When maintenance will end this session, if that is before its own end.
    pub fn drained_at(&self, session: &Session) -> Option<Timestamp> {
        self.maintenance.read().as_ref()?.drains(session, self.clock.now())
    }

    /// Why more time would be none.
    fn maintenance_comes_first(&self, session: &Session) -> Option<Reason> {
        let maintenance = self.maintenance.read();
        let set = maintenance.as_ref()?;
        set.drains(session, self.clock.now()).map(|at| set.no_extension(at))
    }

    /// What its owner should know of a session now.
    pub fn notice(&self, session: &Session) -> Option<Notice> {
        let drain = self.drained_at(session).and_then(|at| Deadline::maintenance(session, at));
        let ends = self.idle_deadline(session).into_iter().chain(drain);
        let notice = Notice::of(session, ends, self.clock.now());
        let is_open = self.came_at(session.id).is_some() || !self.is_to_be_opened(session);
        notice.filter(|notice| !(is_open && matches!(notice, Notice::Turn { .. })))
    }

    /// Tells the owner what is new for them, and writes each warning down once: however many
    /// pages are open, and however often the portal begins anew.
    pub(super) async fn notify_owner(&self, session: &Session) -> Result<()> {
        let (notice, known) = (self.notice(session), self.live(session.id).told);
        let told = OwnerNotice { rehearsed_at: known.rehearsed_at, no_extension: Vec::new(), notice };
        let told = self.with_rehearsal(session.id, told, known).await?;
        let notice = told.notice.clone();
        {
            let mut live = self.live.write();
            let Some(live) = live.get_mut(&session.id) else { return Ok(()) };
            let before = replace(&mut live.told, told);
            if (&before.notice, &before.no_extension) == (&notice, &live.told.no_extension) {
                return Ok(());
            }
        }
        if let Some(Notice::Ending { deadline, lead }) = &notice {
            let warning = deadline.warning(*lead);
            if self.db.add_session_event_once(session.id, self.clock.now(), session.state, &warning).await? {
                tracing::info!(session.id = %session.id, user.name = %session.owner_name, reason = %deadline.rule(),
                    at = %deadline.at, warning, "session will end soon");
            }
        }
        self.send(Change { told: true, ..Change::of(session, false) });
        Ok(())
    }

    /// With what would keep it from being extended, where its end is near. That depends on what
    /// everybody holds, so it is looked at now and then only.
    async fn with_rehearsal(&self, id: SessionId, told: OwnerNotice, known: OwnerNotice) -> Result<OwnerNotice> {
        let now = self.clock.now();
        if !matches!(&told.notice, Some(Notice::Ending { deadline, .. }) if deadline.cause == Cause::TimeLimit) {
            return Ok(told);
        }
        if let Some(why) = self.scheduler.time_is_fixed() {
            let reason = Reason::of_rule(Rule::FixedTimeLimit, Source::Cluster, why.to_owned());
            return Ok(OwnerNotice { no_extension: vec![reason], ..told });
        }
        if told.notice == known.notice && (0..REHEARSED).contains(&now.seconds_since(known.rehearsed_at)) {
            return Ok(OwnerNotice { no_extension: known.no_extension, ..told });
        }
        let dry_run = self.admission.rehearse_extension(id, None).await?;
        let no_extension = dry_run.and_then(Result::err).unwrap_or_default();
        Ok(OwnerNotice { no_extension, rehearsed_at: now, ..told })
    }

    /// Notes for good that its owner has come to a session that waited for its turn.
    pub(super) async fn note_opened(&self, session: &Session) -> Result<()> {
        if session.opened_at.is_none()
            && let Some(at) = self.came_at(session.id)
        {
            self.db.mark_opened(session.id, at).await?;
        }
        Ok(())
    }

    /// When its owner was last there, since this portal began to watch.
    fn came_at(&self, id: SessionId) -> Option<Timestamp> {
        let at = self.live.read().get(&id).map_or(0, |live| live.activity.load(Ordering::Relaxed));
        (at != 0).then_some(Timestamp(at))
    }

    /// Whether its app is one that people come to, and not one that works for itself.
    fn is_to_be_opened(&self, session: &Session) -> bool {
        let rule = self.apps.find(&session.app).map(|app| app.idle);
        matches!(rule, Some(Idle::Http | Idle::Terminals | Idle::Kernels))
    }
}
