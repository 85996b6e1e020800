//! Waiting requests: each round decides again about all of them, in order. A request is admitted, goes on waiting with a
//! reason, or ends because it can never fit. The decision itself is admission's. One outlook serves until a request is
//! admitted or refused; changed reasons are written in one transaction, so a round costs a few statements and one pass,
//! and no pass where nothing has changed.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Result, Sessions, launch::NOT_READABLE};
use lyceum_db::{admit::Verdict, outlook::digest, sessions::Ending};
use lyceum_model::{
    EndReason, Session, SessionId, Timestamp,
    hold::Hold,
    loops::Round,
    quota::{Reason, codes, waits_for_room},
};

use crate::admission::{DryRun, Outlook};

/// How long a round decides or retries before it leaves the rest to the next round, which first starts and ends sessions.
pub(super) const MAX_DECIDING: Duration = Duration::from_millis(300);

/// For so long a pass stands if all that is read stays the same (seconds). Time alone rarely changes a decision, as when a
/// limit expires.
const MAX_PASS_AGE: i64 = 15;

/// A pass in which every request went on waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuietPass {
    at: Timestamp,
    /// Of all that was read for it.
    digest: u64,
}

impl QuietPass {
    /// Whether another pass, over what was read now, would decide the same.
    fn stands(self, digest: u64, now: Timestamp) -> bool {
        self.digest == digest && (0..MAX_PASS_AGE).contains(&now.seconds_since(self.at))
    }
}

/// Reports what the outlook predicts for a waiting request.
enum WaitingOutcome {
    /// It goes on waiting, for these reasons.
    Wait { reasons: Vec<Reason>, estimated_start: Option<Timestamp> },
    /// It is admitted or refused: to be decided under the write lock.
    Decide(Option<Reason>),
    /// What it waits for will never happen.
    Never(Reason),
    /// Its row cannot be read.
    GiveUp,
}

impl Sessions {
    /// Decides again about those who wait, in this order. Most of them go on waiting for what they waited for.
    pub(super) async fn decide_again(self: &Arc<Self>, waiting: Vec<Session>, round: &Round) -> Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        let obstacles = self.db.obstacles_of_waiting().await?;
        let mut seen = self.admission.outlook().await?;
        let now = self.clock.now();
        let hold_of = |id| obstacles.get(id).map_or(Hold::Free, |obstacles| Hold::of(obstacles, now));
        let holds: Vec<(SessionId, Hold)> = waiting.iter().map(|session| (session.id, hold_of(&session.id))).collect();
        let pass = QuietPass { at: now, digest: digest((seen.digest, format!("{holds:?}"))) };
        if self.quiet_pass.lock().is_some_and(|before| before.stands(pass.digest, now)) {
            return Ok(());
        }
        *self.quiet_pass.lock() = None;
        let (mut changed, mut progressed, mut is_quiet) = (HashMap::new(), false, true);
        for (session, (_, hold)) in waiting.iter().zip(holds) {
            let foreseen = self.foresee(session, hold, &seen);
            let next = round.unless_failed(format_args!("session {}", session.id), foreseen);
            is_quiet &= matches!(next, Some(WaitingOutcome::Wait { .. }));
            let Some(next) = next else { continue };
            if let WaitingOutcome::Wait { reasons, estimated_start } = next {
                self.note_estimate(session.id, estimated_start);
                if reasons != session.reasons {
                    changed.insert(session.id, (session, reasons));
                }
                continue;
            }
            // Written first: a request that waits for room from now on holds its place before this one.
            self.note_reasons(std::mem::take(&mut changed)).await?;
            let is_about_room = matches!(next, WaitingOutcome::Decide(_));
            let outcome = match next {
                WaitingOutcome::Decide(hold) => self.reconsider(session, hold).await,
                WaitingOutcome::Never(reason) => self.refuse(session, reason).await.map(|()| true),
                WaitingOutcome::GiveUp | WaitingOutcome::Wait { .. } => self.give_up(session).await.map(|()| true),
            };
            let is_settled = round.unless_failed(format_args!("session {}", session.id), outcome) == Some(true);
            progressed |= is_settled;
            if began.elapsed() > MAX_DECIDING {
                // If nothing could be written, as on a full disk, the regular next round is soon enough.
                if progressed {
                    self.wake();
                }
                return Ok(());
            }
            // A request that could never start has taken no room from the others.
            if is_about_room {
                seen = self.admission.outlook().await?;
            }
        }
        self.note_reasons(changed).await?;
        *self.quiet_pass.lock() = is_quiet.then_some(pass);
        Ok(())
    }

    /// Decides about one request from the outlook.
    fn foresee(&self, session: &Session, hold: Hold, seen: &Outlook) -> Result<WaitingOutcome> {
        if !session.spec_is_whole {
            return Ok(WaitingOutcome::GiveUp);
        }
        let hold = match hold {
            Hold::Free => None,
            Hold::Waits(reason) => Some(reason),
            Hold::Never(reason) => return Ok(WaitingOutcome::Never(reason)),
        };
        Ok(match self.admission.foresee(seen, session, hold.clone())? {
            Some(DryRun { verdict: Verdict::Wait(reasons), estimated_start }) => {
                WaitingOutcome::Wait { reasons, estimated_start }
            }
            _ => WaitingOutcome::Decide(hold),
        })
    }

    fn note_estimate(&self, id: SessionId, start: Option<Timestamp>) {
        if let Some(live) = self.live.write().get_mut(&id) {
            live.estimated_start = start;
        }
    }

    /// Writes the new reasons of these requests and notifies their owners' pages.
    async fn note_reasons(&self, changed: HashMap<SessionId, (&Session, Vec<Reason>)>) -> Result<()> {
        if changed.is_empty() {
            return Ok(());
        }
        let reasons: Vec<_> = changed.iter().map(|(id, (_, reasons))| (*id, reasons.clone())).collect();
        let noted = self.db.note_reasons(&reasons).await?;
        let mut moves_others = false;
        for (session, reasons) in noted.iter().filter_map(|id| changed.get(id)) {
            self.notify(session, false);
            moves_others |= waits_for_room(reasons) != waits_for_room(&session.reasons);
        }
        // A request that waits for room holds a place before later ones: decide about those again.
        if moves_others {
            self.wake();
        }
        Ok(())
    }

    /// Decides about one request under the write lock; false where it goes on waiting.
    async fn reconsider(self: &Arc<Self>, session: &Session, hold: Option<Reason>) -> Result<bool> {
        let class = session.class();
        let DryRun { verdict, estimated_start } =
            self.admission.reconsider(session.owner, session.id, &session.spec, class, hold).await?;
        self.note_estimate(session.id, estimated_start.filter(|_| matches!(verdict, Verdict::Wait(_))));
        let waits = matches!(verdict, Verdict::Wait(_));
        match verdict {
            Verdict::Admit { .. } => {
                let waited = self.clock.now().seconds_since(session.created_at);
                tracing::info!(session.id = %session.id, user.name = %session.owner_name, waited, "session admitted");
                self.notify(session, false);
                self.spawn_step(session.id);
            }
            Verdict::Refuse(reasons) => {
                log_refused(session, &reasons);
                self.forget(session.id);
                self.notify(session, true);
            }
            Verdict::Wait(reasons) if reasons != session.reasons => self.notify(session, false),
            Verdict::Wait(_) => {}
        }
        Ok(!waits)
    }

    /// Ends one that waits, and of which nobody can say what it would need: it must not wait for
    /// ever, nor hold up others. No scheduler knows it yet.
    async fn give_up(&self, session: &Session) -> Result<()> {
        let at = self.clock.now().max(session.created_at);
        let (reason, detail) = (EndReason::LaunchFailed, NOT_READABLE.to_owned());
        let ended =
            self.db.end_session(session.id, &Ending { reason, exit_code: None, signal: None, at, detail }).await?;
        self.forget(session.id);
        if ended {
            tracing::warn!(session.id = %session.id, user.name = %session.owner_name, "stored request of a pending \
                                                                                       session cannot be read; \
                                                                                       session ended");
            self.notify(session, true);
        }
        Ok(())
    }

    /// Ends a job whose turn will never come.
    async fn refuse(&self, session: &Session, reason: Reason) -> Result<()> {
        let (now, why, reasons) = (self.clock.now(), reason.hint.clone(), [reason]);
        if self.db.end_waiting(session.id, EndReason::Refused, &reasons, now, &why, None).await? {
            log_refused(session, &reasons);
            self.forget(session.id);
            self.notify(session, true);
        }
        Ok(())
    }
}

fn log_refused(session: &Session, reasons: &[Reason]) {
    let (user, reasons) = (&session.owner_name, codes(reasons));
    tracing::info!(session.id = %session.id, user.name = %user, app = session.app, reasons, "pending request refused");
}
