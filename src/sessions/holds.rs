//! Jobs that wait for others, and jobs that are tried again: what the loop does about them in
//! each round. Both follow from rows alone, so that a portal that was killed goes on with them.

use super::{Result, Sessions};
use crate::{
    apps::JOB,
    db::admit::{Admitted, Cause, NewAttempt, NewSession, Verdict},
    model::{
        Job, Session, SessionId, Timestamp,
        hold::{Hold, Obstacles},
        job::{Attempt, Task},
        quota::Reason,
    },
};

/// A waiting attempt may be decided about, unless something holds it, for now or for ever.
pub(super) enum Turn {
    Decide(Option<Reason>),
    Never(Reason),
}

impl Sessions {
    pub(super) async fn turn_of(&self, session: &Session) -> Result<Turn> {
        let Some(attempt) = session.job else { return Ok(Turn::Decide(None)) };
        let obstacles = self.db.obstacles(session.id, attempt).await?;
        Ok(match Hold::of(&obstacles, self.clock.now()) {
            Hold::Free => Turn::Decide(None),
            Hold::Waits(reason) => Turn::Decide(Some(reason)),
            Hold::Never(reason) => Turn::Never(reason),
        })
    }

    /// Tries jobs again that failed and have retries left.
    pub(super) async fn retry_jobs(&self) -> Result<()> {
        for job in self.db.jobs_to_retry().await? {
            if !job.is_to_be_retried() || !job.latest.spec_is_whole || !self.retry(&job).await? {
                self.db.settle_job(job.id).await?;
            }
        }
        Ok(())
    }

    /// Asks for the next attempt as the one before was asked for; false where it can never fit.
    async fn retry(&self, job: &Job) -> Result<bool> {
        let Some(Task { retry_wait_seconds, .. }) = self.db.job_task(job.id).await? else { return Ok(true) };
        let purse = self.admission.standing(job.owner).await?.purse;
        let group = job.latest.spec.group.as_ref().and_then(|name| purse.groups.iter().find(|one| one.name == *name));
        let attempt = Attempt { job: job.id, number: job.attempt.saturating_add(1) };
        let then = job.latest.ended_at.unwrap_or_else(|| self.clock.now()).plus_seconds(retry_wait_seconds);
        let new = NewSession {
            id: SessionId::new(),
            owner: job.owner,
            charged_group: group.map(|group| group.id),
            app: JOB.to_owned(),
            name: job.name.clone(),
            spec: job.latest.spec.clone(),
            light: false,
            cluster: self.scheduler.cluster().to_owned(),
            idempotency: None,
            job: Some(NewAttempt { attempt, cause: Cause::Retried(then), hold: self.pause_before(then) }),
        };
        let answer = self.admission.insert(&new).await?;
        if matches!(answer, Admitted::Judged(Verdict::Admit { .. } | Verdict::Wait(_))) {
            tracing::info!(job.id = %job.id, user.name = %job.owner_name, attempt = attempt.number, "a job is tried again");
            self.announce_job(new.id, job.id, job.owner);
        }
        Ok(!matches!(answer, Admitted::Judged(Verdict::Refuse(_))))
    }

    fn pause_before(&self, then: Timestamp) -> Option<Reason> {
        let obstacles = Obstacles { not_before: Some(then), dependencies: Vec::new() };
        match Hold::of(&obstacles, self.clock.now()) {
            Hold::Waits(reason) => Some(reason),
            Hold::Free | Hold::Never(_) => None,
        }
    }
}
