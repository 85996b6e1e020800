//! Those who wait: decided about again in each round, in order, and let in, or told why not, or ended where they can
//! never fit. The decision itself is admission's. One look at all serves as long as nobody is let in or refused; what
//! merely waits for something else is written at once for all, so that a round costs a few statements and one pass.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Result, Sessions, launch::NOT_READABLE};
use crate::{
    admission::{Outlook, Rehearsal},
    db::{admit::Verdict, sessions::Ending},
    model::{
        EndReason, Session, SessionId, Timestamp,
        hold::{Hold, Obstacles},
        loops::Round,
        quota::{Reason, codes, waits_for_room},
    },
};

/// For how long a round goes on deciding after it has let somebody in or refused: what is to be started or ended
/// meanwhile waits for the next one.
pub(super) const MAX_DECIDING: Duration = Duration::from_millis(300);

/// What becomes of one that waits.
enum Next {
    /// It goes on waiting for this.
    Wait {
        reasons: Vec<Reason>,
        estimated_start: Option<Timestamp>,
    },
    /// It is let in or refused: decided again under the lock.
    Decide(Option<Reason>),
    /// What it waits for will never happen.
    Never(Reason),
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
        let (mut changed, mut progressed) = (HashMap::new(), false);
        for session in &waiting {
            let foreseen = self.foresee(session, obstacles.get(&session.id), &seen);
            let Some(next) = round.unless_failed(format_args!("session {}", session.id), foreseen) else { continue };
            if let Next::Wait { reasons, estimated_start } = next {
                self.note_estimate(session.id, estimated_start);
                if reasons != session.reasons {
                    changed.insert(session.id, (session, reasons));
                }
                continue;
            }
            // Whoever is let in may not take the room of one who has come to wait for room.
            self.note_reasons(std::mem::take(&mut changed)).await?;
            let is_about_room = matches!(next, Next::Decide(_));
            let outcome = match next {
                Next::Decide(hold) => self.reconsider(session, hold).await,
                Next::Never(reason) => self.refuse(session, reason).await.map(|()| true),
                Next::GiveUp | Next::Wait { .. } => self.give_up(session).await.map(|()| true),
            };
            let is_settled = round.unless_failed(format_args!("session {}", session.id), outcome) == Some(true);
            progressed |= is_settled;
            if MAX_DECIDING < began.elapsed() {
                // Where nothing could be settled, as on a full disk, the next round comes soon enough.
                if progressed {
                    self.wake();
                }
                return Ok(());
            }
            // What could never start has taken nothing from the others.
            if is_about_room {
                seen = self.admission.outlook().await?;
            }
        }
        self.note_reasons(changed).await
    }

    /// What becomes of one, if nothing has happened since the look.
    fn foresee(&self, session: &Session, obstacles: Option<&Obstacles>, seen: &Outlook) -> Result<Next> {
        if !session.spec_is_whole {
            return Ok(Next::GiveUp);
        }
        let hold = match obstacles.map_or(Hold::Free, |obstacles| Hold::of(obstacles, self.clock.now())) {
            Hold::Free => None,
            Hold::Waits(reason) => Some(reason),
            Hold::Never(reason) => return Ok(Next::Never(reason)),
        };
        Ok(match self.admission.foresee(seen, session, hold.clone())? {
            Some(Rehearsal { verdict: Verdict::Wait(reasons), estimated_start }) => {
                Next::Wait { reasons, estimated_start }
            }
            _ => Next::Decide(hold),
        })
    }

    fn note_estimate(&self, id: SessionId, start: Option<Timestamp>) {
        if let Some(live) = self.live.write().get_mut(&id) {
            live.estimated_start = start;
        }
    }

    /// Writes what these wait for from now on, and tells of it.
    async fn note_reasons(&self, changed: HashMap<SessionId, (&Session, Vec<Reason>)>) -> Result<()> {
        if changed.is_empty() {
            return Ok(());
        }
        let reasons: Vec<_> = changed.iter().map(|(id, (_, reasons))| (*id, reasons.clone())).collect();
        let noted = self.db.note_reasons(&reasons).await?;
        let mut moves_others = false;
        for (session, reasons) in noted.iter().filter_map(|id| changed.get(id)) {
            self.tell(session, false);
            moves_others |= waits_for_room(reasons) != waits_for_room(&session.reasons);
        }
        // Who waits for room holds a place before others: they are decided about with that.
        if moves_others {
            self.wake();
        }
        Ok(())
    }

    /// Decides about one under the lock; false where it goes on waiting.
    async fn reconsider(self: &Arc<Self>, session: &Session, hold: Option<Reason>) -> Result<bool> {
        let class = session.class();
        let Rehearsal { verdict, estimated_start } =
            self.admission.reconsider(session.owner, session.id, &session.spec, class, hold).await?;
        self.note_estimate(session.id, estimated_start.filter(|_| matches!(verdict, Verdict::Wait(_))));
        let waits = matches!(verdict, Verdict::Wait(_));
        match verdict {
            Verdict::Admit { .. } => {
                let waited = self.clock.now().seconds_since(session.created_at);
                tracing::info!(session.id = %session.id, user.name = %session.owner_name, waited, "a session's turn has come");
                self.tell(session, false);
                self.spawn_step(session.id);
            }
            Verdict::Refuse(reasons) => {
                log_refused(session, &reasons);
                self.forget(session.id);
                self.tell(session, true);
            }
            Verdict::Wait(reasons) if reasons != session.reasons => self.tell(session, false),
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
            tracing::warn!(session.id = %session.id, user.name = %session.owner_name, "what a waiting session asked for cannot be read");
            self.tell(session, true);
        }
        Ok(())
    }

    /// Ends a job whose turn will never come.
    async fn refuse(&self, session: &Session, reason: Reason) -> Result<()> {
        let (now, why, reasons) = (self.clock.now(), reason.hint.clone(), [reason]);
        if self.db.end_waiting(session.id, EndReason::Refused, &reasons, now, &why, None).await? {
            log_refused(session, &reasons);
            self.forget(session.id);
            self.tell(session, true);
        }
        Ok(())
    }
}

fn log_refused(session: &Session, reasons: &[Reason]) {
    let (user, reasons) = (&session.owner_name, codes(reasons));
    tracing::info!(session.id = %session.id, user.name = %user, app = session.app, reasons, "a waiting request ended as refused");
}
