//! The one loop that launches and ends. It takes no input: it compares what the database
//! wants with what the scheduler says and closes the gap. It is idempotent, runs when woken
//! and every few seconds besides, and may be killed at any line.

use std::{
    collections::{HashSet, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use super::{Change, Error, LastRun, Result, Sessions};
use lyceum_db::{self as db, sessions::Ending};
use lyceum_model::{
    EndReason, Role, Session, SessionId, SessionState, Timestamp,
    ending::Deadline,
    loops::Round,
    session::{Accounting, Placement},
};

use crate::scheduler::{self, Exit, Observation};

/// The safety net; wake-ups do the work.
const INTERVAL: Duration = Duration::from_secs(5);

/// A stopping session's agent ends its tree within its grace time; so many seconds later the
/// scheduler is told to kill.
const KILL_MARGIN: i64 = 10;

/// A start whose agent says nothing for so long beyond its own time-out has failed (seconds).
const START_MARGIN: i64 = 60;

/// Slurm's daemons tell the accounts of a start's end within seconds; nobody waits longer for it
/// (seconds).
const ACCOUNTS_DELAY: i64 = 60;

/// Describes the remains of a session that is not live.
#[derive(PartialEq, Eq)]
enum Leftover {
    None,
    /// It runs, and the database does not know it.
    Orphan,
}

impl Sessions {
    /// Runs until the portal stops. Tasks in flight are left to the tracker.
    pub async fn run(self: Arc<Self>) {
        loop {
            self.reconcile().await;
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(INTERVAL) => {}
                () = self.stopping.cancelled() => return,
            }
        }
    }

    /// One round. Errors are left to the next one; the health page shows the last.
    pub async fn reconcile(self: &Arc<Self>) {
        let round = self.config.loops.begin("sessions", Some(INTERVAL));
        let outcome = self.round(&round).await;
        round.end(&outcome);
        let (orphans, failed) = match outcome {
            Ok(orphans) => (orphans, false),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "reconcile run failed");
                (self.last_run().orphans, true)
            }
        };
        *self.last.write() = LastRun { at: Some(self.clock.now()), failed, orphans };
    }

    /// What is everybody's fails the round; what is one session's is that session's alone.
    async fn round(self: &Arc<Self>, round: &Round) -> Result<HashSet<SessionId>> {
        self.apply_clock_jump().await?;
        self.note_observation().await?;
        *self.maintenance.write() = self.db.maintenance().await?;
        let sessions = self.db.live_sessions().await?;
        // One may have ended between the last round's look and its note.
        let live: HashSet<SessionId> = sessions.iter().map(|session| session.id).collect();
        self.routes.retain(&live);
        self.live.write().retain(|id, _| live.contains(id));
        self.failing.lock().retain(|id, _| live.contains(id));
        for session in &sessions {
            self.add_route(session);
            self.live.write().entry(session.id).or_default();
            if !session.spec_is_whole {
                round.skip(format_args!("session {}", session.id), &db::Error::Stored("session"));
            }
        }
        for (id, error) in self.failing.lock().iter() {
            round.skip(format_args!("session {id}"), error);
        }
        let (admitted, waiting): (Vec<_>, Vec<_>) = sessions.into_iter().partition(Session::is_admitted);
        // Before anything is decided anew, however many wait: somebody may have asked to stop.
        for session in admitted {
            self.spawn_step(session.id);
        }
        self.decide_again(self.admission.in_order(waiting).await?, round).await?;
        self.retry_jobs(round).await?;
        self.sweep(&live, round).await
    }

    /// Ends what the scheduler holds of sessions that have ended: leftovers of a crash.
    /// Answers the strangers, which run and have no row. A row comes before anything is
    /// started and is never removed, so the database is older than they are: somebody put a
    /// backup back, and somebody else's work is not ended for that.
    async fn sweep(&self, live: &HashSet<SessionId>, round: &Round) -> Result<HashSet<SessionId>> {
        let mut orphans = HashSet::new();
        let listed = self.scheduler.list().await?;
        for (record, error) in &listed.unreadable {
            round.skip(record, error);
        }
        for id in listed.sessions {
            if live.contains(&id) || self.busy.lock().contains_key(&id) {
                continue;
            }
            let outcome = self.end_leftover(id).await;
            if round.unless_failed(format_args!("session {id}"), outcome) == Some(Leftover::Orphan) {
                orphans.insert(id);
            }
        }
        Ok(orphans)
    }

    /// Ends what the scheduler holds of one session that is not live.
    async fn end_leftover(&self, id: SessionId) -> Result<Leftover> {
        match self.db.find_session(id).await? {
            Some(session) if session.state.is_live() => return Ok(Leftover::None),
            None if self.is_live_orphan(id).await? => return Ok(Leftover::Orphan),
            _ => {}
        }
        self.scheduler.kill(id, None).await?;
        self.scheduler.clean(id).await?;
        Ok(Leftover::None)
    }

    /// Whether a workload without a row may still run; the first time it is told.
    async fn is_live_orphan(&self, id: SessionId) -> Result<bool> {
        let Some(placement) = self.scheduler.find(id).await? else { return Ok(false) };
        if let Observation::Ended(_) = self.scheduler.observe(id, &placement).await {
            return Ok(false);
        }
        if !self.last.read().orphans.contains(&id) {
            tracing::warn!(
                session.id = %id,
                unix_name = placement.unix_name,
                pid = placement.pid,
                "orphaned workload: it runs but is not in the database, as after restoring an older backup; left \
                 running until its process ends"
            );
        }
        Ok(true)
    }

    /// Takes the next step with a session; where one is under way, another follows it.
    pub(super) fn spawn_step(self: &Arc<Self>, id: SessionId) {
        match self.busy.lock().entry(id) {
            Entry::Occupied(mut again) => {
                again.insert(true);
                return;
            }
            Entry::Vacant(free) => free.insert(false),
        };
        let this = Arc::clone(self);
        self.tracker.spawn(async move {
            match this.step(id).await {
                Ok(()) => drop(this.failing.lock().remove(&id)),
                // The next round names it, in the log and in the health report.
                Err(error) => drop(this.failing.lock().insert(id, Arc::new(error))),
            }
            // What came meanwhile (a click on "stop" during a launch) is looked at now.
            if this.busy.lock().remove(&id) == Some(true) {
                this.wake();
            }
        });
    }

    async fn step(self: &Arc<Self>, id: SessionId) -> Result<()> {
        let Some(session) = self.db.find_session(id).await?.filter(|session| session.state.is_live()) else {
            return Ok(());
        };
        if session.job.is_none() {
            self.note_opened(&session).await?;
            self.notify_owner(&session).await?;
        }
        match session.state {
            SessionState::Queued if session.placement.is_some() => self.await_turn(&session).await,
            SessionState::Queued => self.begin(&session).await,
            SessionState::Starting if session.placement.is_none() => self.launch(session).await,
            SessionState::Starting | SessionState::Running => self.look(&session).await,
            SessionState::Stopping => self.end(&session).await,
            SessionState::Ended => Ok(()),
        }
    }

    /// An admitted session starts as soon as its environment or its image is ready, and maintenance is over.
    async fn begin(self: &Arc<Self>, session: &Session) -> Result<()> {
        let for_software = match self.waits_for_software(session) {
            Ok(waits) => waits,
            Err(sentence) => return self.finish(session, EndReason::LaunchFailed, None, sentence).await,
        };
        let waits = match for_software {
            None => self.waits_for_maintenance(session).await?,
            waits => waits,
        };
        if let Some(sentence) = waits {
            if session.detail.as_deref() != Some(&sentence) {
                self.db.set_detail(session.id, &sentence).await?;
                self.notify(session, false);
            }
            return Ok(());
        }
        if self.scheduler.has_queue() {
            // Until its turn comes there it waits, whoever's queue it is in.
            return self.launch(session.clone()).await;
        }
        if self.db.begin_start(session.id, self.clock.now()).await? {
            self.notify(session, false);
        }
        match self.db.find_session(session.id).await? {
            Some(session) if session.state == SessionState::Starting => self.launch(session).await,
            _ => Ok(()),
        }
    }

    /// It was handed in, and waits in the scheduler's own queue until it has its node.
    async fn await_turn(self: &Arc<Self>, session: &Session) -> Result<()> {
        let Some(placement) = &session.placement else { return Ok(()) };
        let observed = self.scheduler.observe(session.id, placement).await;
        if session.unknown_since.is_some() && !matches!(observed, Observation::Unknown(_)) {
            self.db.set_unknown(session.id, None).await?;
            self.notify(session, false);
        }
        match observed {
            Observation::Waiting(why) => {
                if session.detail.as_deref() != Some(&why) {
                    self.db.set_detail(session.id, &why).await?;
                    self.notify(session, false);
                }
                self.note_starts(session, placement).await?;
                self.watch(session);
            }
            Observation::Alive => {
                let Some(placement) = self.find_place(session).await? else { return Ok(()) };
                // First, so that nothing starts of which nobody knows since when it holds what.
                self.note_begin(session, &placement).await?;
                if self.db.begin_start(session.id, self.clock.now()).await? {
                    self.notify(session, false);
                }
                if let Some(placed) = self.db.find_session(session.id).await?.filter(|now| now.state.is_live()) {
                    let placed = self.count_time(placed).await?;
                    self.add_route(&placed);
                    self.watch(&placed);
                }
            }
            Observation::Ended(exit) => {
                let session = self.note_run(session, placement).await?;
                return self.ended(&session, exit).await;
            }
            Observation::Unknown(why) => return self.note_unknown(session, &why).await,
        }
        Ok(())
    }

    /// Asks the scheduler where a session is whose row does not say, or not on which node, and notes it.
    pub(super) async fn find_place(&self, session: &Session) -> Result<Option<Placement>> {
        let found = self.scheduler.find(session.id).await?;
        if let Some(placement) = &found {
            self.db.set_placement(session.id, placement).await?;
        }
        Ok(found)
    }

    /// The sentence for a session that was admitted before maintenance began.
    async fn waits_for_maintenance(&self, session: &Session) -> Result<Option<String>> {
        let Some(maintenance) = self.maintenance.read().clone() else { return Ok(None) };
        let owner = self.db.find_user(session.owner).await?;
        let is_admin = owner.is_some_and(|owner| owner.user.role == Role::Admin);
        Ok(maintenance.objection(is_admin, self.clock.now()).map(|reason| reason.hint))
    }

    async fn launch(self: &Arc<Self>, session: Session) -> Result<()> {
        let Some(account) = self.db.find_user(session.owner).await? else { return Err(Error::NotFound) };
        let launched = match self.plan(&session, &account.user).await {
            Ok(launch) => {
                let kernels = launch.app.kernels.iter().map(|kernel| &kernel.container);
                if let Some(container) = launch.app.container.as_ref().or_else(|| kernels.into_iter().next()) {
                    // Before anything runs, so that nothing removes what it runs with.
                    self.db.set_session_image(session.id, &container.digest).await?;
                }
                self.scheduler.launch(launch).await.map_err(Error::Scheduler)
            }
            Err(error) => Err(error),
        };
        let sentence = match launched {
            Ok(placement) => {
                self.db.set_placement(session.id, &placement).await?;
                if session.unknown_since.is_some() {
                    self.db.set_unknown(session.id, None).await?;
                }
                if let Some(words) = self.scheduler.words(session.id) {
                    let message = format!("Slurm's message at submission: {words}");
                    self.db.add_session_event(session.id, self.clock.now(), session.state, &message).await?;
                }
                let placed = Session { placement: Some(placement), ..session };
                self.add_route(&placed);
                self.notify(&placed, false);
                self.watch(&placed);
                return Ok(());
            }
            Err(Error::Scheduler(scheduler::Error::Full(why))) => return self.waits_for_room(&session, &why).await,
            // Nobody knows whether it was started: it is tried again, and found if it was.
            Err(Error::Scheduler(error)) if !matches!(error, scheduler::Error::Refused(_)) => {
                let why = error.sentence();
                if !self.is_overdue(&session) || self.scheduler.find(session.id).await?.is_some() {
                    return self.note_unknown(&session, &why).await;
                }
                format!("gave up after repeated attempts to start it: {why}")
            }
            Err(Error::Db(error)) => return Err(Error::Db(error)),
            Err(Error::Scheduler(scheduler::Error::Refused(sentence)) | Error::Conflict(sentence)) => sentence,
            Err(error) => {
                tracing::error!(session.id = %session.id, error = &error as &dyn std::error::Error, "launch failed");
                "The portal could not start it. Ask an administrator: the cause is in the portal's log.".to_owned()
            }
        };
        self.finish(&session, EndReason::LaunchFailed, None, sentence).await
    }

    /// The batch system takes no more for now: it is asked again in a later round.
    async fn waits_for_room(&self, session: &Session, why: &str) -> Result<()> {
        if session.unknown_since.is_some() {
            self.db.set_unknown(session.id, None).await?;
        }
        if session.unknown_since.is_some() || session.detail.as_deref() != Some(why) {
            self.db.set_detail(session.id, why).await?;
            self.notify(session, false);
        }
        Ok(())
    }

    /// Is it still there, and is its time up?
    async fn look(self: &Arc<Self>, session: &Session) -> Result<()> {
        let known = match &session.placement {
            Some(placement) => Some(placement.clone()),
            None => self.find_place(session).await?,
        };
        let Some(mut placement) = known else { return Ok(()) };
        let observed = self.scheduler.observe(session.id, &placement).await;
        // Its batch system has put it back into the queue, where no time is counted.
        let waits_again = matches!(observed, Observation::Waiting(_));
        match observed {
            Observation::Ended(exit) => {
                let session = self.note_run(session, &placement).await?;
                return self.ended(&session, exit).await;
            }
            Observation::Unknown(why) => return self.note_unknown(session, &why).await,
            Observation::Alive => {
                if placement.node.is_empty() {
                    placement = self.find_place(session).await?.unwrap_or(placement);
                }
            }
            Observation::Waiting(_) => {}
        }
        let session = &self.count_time(Session { placement: Some(placement.clone()), ..session.clone() }).await?;
        if session.unknown_since.is_some() {
            self.db.set_unknown(session.id, None).await?;
            self.notify(session, false);
        }
        self.watch(session);
        if self.scheduler.has_queue() {
            self.note_starts(session, &placement).await?;
        }
        let now = self.clock.now();
        let stands_still = session.suspended_since.is_some() || waits_again;
        if let Some(end) = Deadline::time_limit(session).filter(|end| end.at <= now && !stands_still) {
            return self.begin_stop(session, EndReason::TimeLimit, &end.struck()).await;
        }
        let ending = self.maintenance.read().as_ref().and_then(|set| {
            session.admitted_at.filter(|admitted_at| set.ends(*admitted_at, now)).map(|_| set.ending())
        });
        if let Some(ending) = ending {
            return self.begin_stop(session, EndReason::StoppedByAdmin, &ending).await;
        }
        let is_over = |idle: &Deadline| idle.at <= now;
        if self.idle_deadline(session).is_some_and(|idle| is_over(&idle)) {
            // Asked once more, because the last look may be older than a click.
            self.look_at_use(session).await?;
            if let Some(idle) = self.idle_deadline(session).filter(is_over) {
                return self.begin_stop(session, EndReason::Idle, &idle.struck()).await;
            }
        }
        if session.state == SessionState::Starting && !stands_still && self.is_overdue(session) {
            return self.without_answer(session, &placement).await;
        }
        Ok(())
    }

    /// What becomes of a start that has not answered for longer than any that succeeds. On this machine it has
    /// failed. What a batch system calls alive goes on to its time limit: only the way to its node may be closed.
    async fn without_answer(self: &Arc<Self>, session: &Session, placement: &Placement) -> Result<()> {
        if !self.scheduler.has_queue() {
            return self.begin_stop(session, EndReason::LaunchFailed, "It did not respond").await;
        }
        let node = &placement.node;
        let sentence = format!(
            "It runs on {node} but does not respond to the portal. Its time limit applies. If this persists, ask an \
             administrator to check the network between the portal and {node}."
        );
        if session.detail.as_deref() != Some(&sentence) {
            tracing::warn!(session.id = %session.id, node, "running workload does not respond");
            self.db.set_detail(session.id, &sentence).await?;
            self.notify(session, false);
        }
        Ok(())
    }

    /// Whether a start takes longer than any that succeeds.
    fn is_overdue(&self, session: &Session) -> bool {
        let patience =
            i64::try_from(self.config.start_timeout_seconds).unwrap_or(i64::MAX).saturating_add(START_MARGIN);
        session.started_at.is_some_and(|start| patience < self.clock.now().seconds_since(start))
    }

    async fn begin_stop(self: &Arc<Self>, session: &Session, reason: EndReason, message: &str) -> Result<()> {
        // Of what the loop ends, that alone is an administrator's doing.
        let by = (reason == EndReason::StoppedByAdmin).then_some("maintenance");
        if self.db.begin_stop(session.id, reason, self.clock.now(), message, by).await? {
            self.notify(session, false);
        }
        match self.db.find_session(session.id).await? {
            Some(session) if session.state == SessionState::Stopping => self.end(&session).await,
            _ => Ok(()),
        }
    }

    /// A stopping session: ask its agent, and kill what does not listen.
    async fn end(self: &Arc<Self>, session: &Session) -> Result<()> {
        let reason = session.stop_reason.unwrap_or(EndReason::StoppedByOwner);
        let known = match &session.placement {
            Some(placement) => Ok(Some(placement.clone())),
            // A crash may have come between the launch and its note.
            None => self.find_place(session).await,
        };
        let placement = match known {
            Ok(Some(placement)) => placement,
            Ok(None) => return self.finish(session, reason, None, session.detail.clone().unwrap_or_default()).await,
            // Nobody knows any more where its processes are: all that bear its name are ended.
            Err(Error::Scheduler(scheduler::Error::Io { .. })) => {
                self.scheduler.kill(session.id, None).await?;
                return self.finish(session, reason, None, session.detail.clone().unwrap_or_default()).await;
            }
            Err(error) => return Err(error),
        };
        match self.scheduler.observe(session.id, &placement).await {
            Observation::Ended(exit) => self.ended(session, exit).await,
            Observation::Unknown(why) => self.note_unknown(session, &why).await,
            Observation::Alive | Observation::Waiting(_) => {
                // One that has just got its node ends by itself there; nothing of it is listened to.
                if !placement.node.is_empty() {
                    self.watch(&Session { placement: Some(placement.clone()), ..session.clone() });
                }
                let since = session.stopping_at.unwrap_or_default();
                let patience = self.scheduler.grace_seconds().saturating_add(KILL_MARGIN);
                if self.clock.now().seconds_since(since) < patience {
                    self.scheduler.terminate(session.id, &placement).await?;
                } else {
                    self.scheduler.kill(session.id, Some(&placement)).await?;
                }
                Ok(())
            }
        }
    }

    /// It is gone: by its own doing, or because it was asked.
    async fn ended(self: &Arc<Self>, session: &Session, exit: Exit) -> Result<()> {
        let reason = match (exit.reason, session.stop_reason) {
            (Some(EndReason::OutOfMemory), _) => EndReason::OutOfMemory,
            (_, Some(asked)) => asked,
            (Some(seen), None) => seen,
            (None, None) => EndReason::Lost,
        };
        let detail = match session.stop_reason {
            Some(asked) if asked == reason && asked != EndReason::LaunchFailed => {
                session.detail.clone().unwrap_or(exit.detail.clone())
            }
            _ => exit.detail.clone(),
        };
        self.finish(session, reason, Some(&exit), detail).await
    }

    /// The last act: keep the log, end what is left, close the row, clean the node. What was
    /// never placed leaves nothing behind that would be found later, so it is cleaned first.
    async fn finish(
        self: &Arc<Self>,
        session: &Session,
        reason: EndReason,
        exit: Option<&Exit>,
        detail: String,
    ) -> Result<()> {
        if let Some(placement) = &session.placement {
            self.keep_log(session, placement).await;
            self.scheduler.kill(session.id, Some(placement)).await?;
        } else {
            self.scheduler.clean(session.id).await?;
        }
        let at = self.ended_at(session, exit);
        if let Some(placement) = &session.placement
            && let Some(starts) = self.scheduler.starts(session.id, placement).await
        {
            // The last word, with all that was suspended; also of one that was never seen to run.
            self.db.set_starts(session.id, &starts, at).await?;
            // Of one that has ended nobody asks again, so the accounts get the time that they need.
            if starts.accounting == Accounting::Pending && self.clock.now().seconds_since(at) < ACCOUNTS_DELAY {
                return Ok(());
            }
        }
        let ending = Ending {
            reason,
            exit_code: exit.and_then(|exit| exit.exit_code),
            signal: exit.and_then(|exit| exit.signal),
            at,
            detail,
        };
        let ended = self.db.end_session(session.id, &ending).await?;
        self.forget(session.id);
        if ended {
            tracing::info!(session.id = %session.id, user.name = %session.owner_name, app = session.app, reason = %reason, detail = ending.detail, "session ended");
            self.notify(session, true);
        }
        Ok(self.scheduler.clean(session.id).await?)
    }

    /// When it ended: what went with its machine was held until that was seen last.
    fn ended_at(&self, session: &Session, exit: Option<&Exit>) -> Timestamp {
        let now = self.clock.now();
        let went_with_machine = exit.is_some_and(|exit| exit.reason == Some(EndReason::HostRebooted));
        let seen = self.last_seen_before().filter(|_| went_with_machine);
        let at = seen.or(exit.map(|exit| exit.ended_at)).unwrap_or(now);
        let known = [Some(session.created_at), session.admitted_at, session.started_at, session.ready_at];
        known.into_iter().flatten().fold(at.min(now), Timestamp::max)
    }

    async fn note_unknown(&self, session: &Session, why: &str) -> Result<()> {
        if session.unknown_since.is_none() {
            tracing::warn!(session.id = %session.id, why, "scheduler unreachable; session state unknown");
            self.db.set_unknown(session.id, Some(self.clock.now())).await?;
            self.notify(session, false);
        }
        Ok(())
    }

    /// An ended session answers no more, from this moment on.
    pub(super) fn forget(&self, id: SessionId) {
        self.routes.remove(id);
        self.live.write().remove(&id);
        self.failing.lock().remove(&id);
        self.unwatch(id);
    }

    /// Tells whoever shows it; an end makes room, so it is also a reason for another round.
    /// Something around it is otherwise than before.
    pub fn notify_unchanged(&self, session: &Session) {
        self.send(Change::of(session, false));
    }

    pub(super) fn notify(&self, session: &Session, ended: bool) {
        self.send(Change::of(session, ended));
        if ended {
            self.wake();
        }
    }
}
