//! Those who wait: decided about again in each round, in order, and let in, or told why not, or ended
//! where they can never fit. The decision itself is admission's.

use super::{Result, Sessions, holds::Turn, launch::NOT_READABLE};
use crate::{
    admission::{Outlook, Rehearsal},
    db::{admit::Verdict, sessions::Ending},
    model::{
        EndReason, Session, SessionId, Timestamp,
        loops::Round,
        quota::{Reason, codes},
    },
};

impl Sessions {
    /// Decides again about those who wait, in this order. Most of them go on waiting for what they waited
    /// for: one look at all tells.
    pub(super) async fn decide_again(&self, waiting: Vec<Session>, round: &Round) -> Result<()> {
        let mut outlook = None;
        for session in waiting {
            let seen = match outlook.take() {
                Some(seen) => seen,
                None => self.admission.outlook().await?,
            };
            let outcome = self.decide_about(&session, &seen).await;
            let is_as_before = round.unless_failed(format_args!("session {}", session.id), outcome);
            // What changes one changes the others.
            outlook = is_as_before.unwrap_or(true).then_some(seen);
        }
        Ok(())
    }

    /// Decides again about one; true where it goes on waiting for what it waited for.
    async fn decide_about(&self, session: &Session, seen: &Outlook) -> Result<bool> {
        if !session.spec_is_whole {
            self.give_up(session).await?;
            return Ok(false);
        }
        let hold = match self.turn_of(session).await? {
            Turn::Decide(hold) => hold,
            Turn::Never(reason) => {
                self.refuse(session, reason).await?;
                return Ok(false);
            }
        };
        match self.admission.foresee(seen, session, hold.clone())? {
            Some(Rehearsal { verdict: Verdict::Wait(reasons), estimated_start }) if reasons == session.reasons => {
                self.note_estimate(session.id, estimated_start);
                Ok(true)
            }
            _ => self.reconsider(session, hold).await.map(|()| false),
        }
    }

    fn note_estimate(&self, id: SessionId, start: Option<Timestamp>) {
        if let Some(live) = self.live.write().get_mut(&id) {
            live.estimated_start = start;
        }
    }

    /// Decides again about a session that waits.
    async fn reconsider(&self, session: &Session, hold: Option<Reason>) -> Result<()> {
        let class = session.class();
        let Rehearsal { verdict, estimated_start } =
            self.admission.reconsider(session.owner, session.id, &session.spec, class, hold).await?;
        self.note_estimate(session.id, estimated_start.filter(|_| matches!(verdict, Verdict::Wait(_))));
        match verdict {
            Verdict::Admit { .. } => {
                let waited = self.clock.now().seconds_since(session.created_at);
                tracing::info!(session.id = %session.id, user.name = %session.owner_name, waited, "a session's turn has come");
                self.tell(session, false);
            }
            Verdict::Refuse(reasons) => {
                log_refused(session, &reasons);
                self.forget(session.id);
                self.tell(session, true);
            }
            Verdict::Wait(reasons) if reasons != session.reasons => self.tell(session, false),
            Verdict::Wait(_) => {}
        }
        Ok(())
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
