//! Watching a launched session: its agent pushes readiness and samples, its process's end
//! wakes the loop at once, and now and then somebody looks whether it is still used. A
//! watcher only notes and wakes; ending a session is `reconcile`'s business.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use super::{Route, Sessions, idle, start_waits};
use lyceum_model::{Session, SessionId, SessionState, gpus::GpuReport, session::Placement};
use lyceum_wire::protocol::{AgentStatus, Phase};

/// How often somebody looks whether a running session is used.
const POLL_INTERVAL: Duration = Duration::from_secs(15);

/// Before an agent that does not answer is called again: at first it is only just starting.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(10);
const RETRY: Duration = Duration::from_millis(500);

/// How many sentences of a program are kept, and how long each may be (characters).
const MAX_NOTES: usize = 8;
const MAX_NOTE: usize = 300;

/// A machine whose clock differs by more is told of (milliseconds).
const CLOCK_OFF: i64 = 60_000;

/// Identifies a watcher of a session and the placement at its start.
pub(super) struct Watcher {
    placement: Placement,
    cancel: CancellationToken,
}

/// Returns what a program wrote for its owner, with limited sizes: an agent is its user's.
#[must_use]
pub fn program_notes(status: &AgentStatus) -> Vec<String> {
    let plain = |note: &String| note.chars().filter(|c| !c.is_control()).take(MAX_NOTE).collect();
    status.program_notes.iter().take(MAX_NOTES).map(plain).collect()
}

impl Sessions {
    /// Watches a session until it ends. A second call does nothing, unless the session has got a node since,
    /// or another one: then it is watched there.
    pub(super) fn watch(self: &Arc<Self>, session: &Session) {
        let Some(placement) = session.placement.clone() else { return };
        let cancel = self.stopping.child_token();
        {
            let mut watched = self.watched.lock();
            match watched.get(&session.id) {
                Some(known) if known.placement == placement => return,
                Some(elsewhere) => elsewhere.cancel.cancel(),
                None => {}
            }
            watched.insert(session.id, Watcher { placement: placement.clone(), cancel: cancel.clone() });
        }
        let (this, session) = (Arc::clone(self), session.clone());
        self.tracker.spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = this.scheduler.wait_end(session.id, &placement) => {
                    this.end_watch(session.id, &placement);
                    this.wake();
                }
                // Without a node there is nobody to listen to.
                () = this.follow(&session, &placement), if !placement.node.is_empty() => {}
                () = this.look_now_and_then(&session) => {}
            }
            this.end_measuring(session.id).await;
        });
    }

    /// Forgets the watcher of this placement; one of a newer placement stays.
    fn end_watch(&self, id: SessionId, placement: &Placement) {
        let mut watched = self.watched.lock();
        if watched.get(&id).is_some_and(|known| known.placement == *placement) {
            watched.remove(&id);
        }
    }

    /// Ends the watching of a session.
    pub(super) fn unwatch(&self, id: SessionId) {
        if let Some(watcher) = self.watched.lock().remove(&id) {
            watcher.cancel.cancel();
        }
    }

    /// Listens to the agent, for as long as it takes.
    async fn follow(self: &Arc<Self>, session: &Session, placement: &Placement) {
        let mut retry = MIN_RETRY_DELAY;
        loop {
            match self.scheduler.events(session.id, placement).await {
                Ok(mut events) => {
                    retry = RETRY;
                    while let Some(status) = events.next().await {
                        self.note(session, placement, status).await;
                    }
                }
                Err(error) => tracing::debug!(session.id = %session.id, %error, "agent does not respond yet"),
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY);
        }
    }

    /// By how much the clock of a session's machine is ahead of ours (milliseconds); told once.
    fn ahead(&self, session: &Session, placement: &Placement, status: &AgentStatus, before: i64) -> i64 {
        let Some(sent_at) = status.sent_at else { return 0 };
        let ahead = sent_at.saturating_sub(self.clock.now().0);
        if ahead.saturating_abs() > CLOCK_OFF && before.saturating_abs() <= CLOCK_OFF {
            let (node, seconds) = (&placement.node, ahead / 1000);
            tracing::warn!(session.id = %session.id, node, seconds, "clock of the node differs from the portal's");
        }
        ahead
    }

    async fn note(self: &Arc<Self>, session: &Session, placement: &Placement, mut status: AgentStatus) {
        let gpus = GpuReport::limited(std::mem::take(&mut status.gpus));
        let ready = status.phase == Phase::Ready;
        let sample = self.scheduler.sample(session.id, placement).await.or(status.sample);
        self.note_words(session, &status).await;
        let news = {
            let mut live = self.live.write();
            let Some(live) = live.get_mut(&session.id) else { return };
            let known = live.status.as_ref();
            let news = known.is_none_or(|known| {
                let words = known.program_notes != status.program_notes;
                known.phase != status.phase || known.step != status.step || words
            });
            live.ahead = self.ahead(session, placement, &status, live.ahead);
            live.status = Some(status);
            live.sample = sample;
            if !gpus.is_empty() {
                live.gpus_at = Some(self.clock.now());
                if gpus.iter().any(idle::computes) {
                    live.gpus_worked_at = live.gpus_at;
                }
            }
            live.gpus = gpus;
            if let Some(sample) = sample {
                live.sampled_at = Some(self.clock.now());
                // Between two looks at its use it may rest; every sample counts.
                if sample.cpus > idle::WORKING_CORES {
                    live.worked_at = live.sampled_at;
                }
            }
            news
        };
        if let Some(sample) = sample {
            self.measure(session, sample).await;
        }
        // Agents repeat themselves; only the first time is anything to write.
        let route = self.routes.find(session.id);
        if ready && route.is_none_or(|route| matches!(route.state, SessionState::Starting)) {
            let now = self.clock.now();
            let expires_at = now.plus_seconds(session.spec.duration_seconds);
            match self.db.mark_running(session.id, now, expires_at).await {
                Ok(true) => {
                    #[expect(clippy::cast_precision_loss, reason = "a wait is shorter than centuries")]
                    let waited = now.0.saturating_sub(session.created_at.0) as f64 / 1000.0;
                    start_waits::observe(&self.start_waits, session.job.is_some(), waited);
                    // Whoever reads that it runs may come at once.
                    if let Some(route) = self.routes.find(session.id) {
                        self.routes.set(Route { state: SessionState::Running, ..(*route).clone() });
                    }
                    self.reroute(session).await;
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(session.id = %session.id, %error, "failed to mark a session as running");
                    // What it says next is news again.
                    if let Some(live) = self.live.write().get_mut(&session.id) {
                        live.status = None;
                    }
                }
            }
        }
        if news {
            self.notify(session, false);
        }
    }

    /// Writes what a program said to its owner into the history, each sentence once.
    async fn note_words(&self, session: &Session, status: &AgentStatus) {
        let known = self.live.read().get(&session.id).and_then(|live| live.status.clone());
        if status.program_notes.is_empty() || known.is_some_and(|known| known.program_notes == status.program_notes) {
            return;
        }
        for note in program_notes(status) {
            let now = self.clock.now();
            if let Err(error) = self.db.add_session_event_once(session.id, now, SessionState::Running, &note).await {
                tracing::debug!(session.id = %session.id, %error, "failed to store a note of a program");
            }
        }
    }

    /// Reads the row anew for the route table, and tells.
    async fn reroute(&self, session: &Session) {
        if let Ok(Some(session)) = self.db.find_session(session.id).await
            && session.state.is_live()
        {
            self.add_route(&session);
            self.notify(&session, false);
        }
    }

    async fn look_now_and_then(self: &Arc<Self>, session: &Session) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let Ok(Some(session)) = self.db.find_session(session.id).await else { continue };
            if session.state != SessionState::Running {
                continue;
            }
            let round = self.config.loops.begin("use of sessions", None);
            let looked = self.look_at_use(&session).await;
            round.end(&looked);
            match looked {
                // Somebody may look at its meters.
                Ok(()) => self.notify(&session, false),
                Err(error) => tracing::debug!(session.id = %session.id, %error, "failed to determine the use of a \
                                                                                 session"),
            }
        }
    }
}
