//! Jobs that wait for others, and jobs that are tried again: what the loop does about them in
//! each round. Both follow from rows alone, so that a portal that was killed goes on with them.

use std::time::Instant;

use super::{Result, Sessions, waiting::MAX_DECIDING};
use lyceum_db::admit::{AdmissionOutcome, Cause, NewAttempt, NewSession, Verdict};
use lyceum_model::{
    EndReason, Job, Session, SessionId, Timestamp, UserId,
    hold::{Hold, Obstacles},
    job::{Attempt, Task},
    loops::Round,
    quota::Reason,
    session::SessionSpec,
};
use lyceum_node::apps::JOB;

impl Sessions {
    /// Tries jobs again that failed and have retries left; one that cannot be tried holds up no other.
    pub(super) async fn retry_jobs(&self, round: &Round) -> Result<()> {
        let began = Instant::now();
        for job in self.db.jobs_to_retry().await? {
            let outcome = self.retry_or_settle(&job).await;
            let is_done = round.unless_failed(format_args!("job {}", job.id), outcome).is_some();
            // A node that fails may leave hundreds: others do not wait for all of them.
            if is_done && began.elapsed() > MAX_DECIDING {
                self.wake();
                break;
            }
        }
        Ok(())
    }

    async fn retry_or_settle(&self, job: &Job) -> Result<()> {
        let is_possible = job.is_to_be_retried() && job.latest.spec_is_whole;
        let task = if is_possible { self.db.job_task(job.id).await? } else { None };
        // As Slurm requeues a job: when its node is taken away, not when it fails.
        let is_meant = |task: &Task| !task.requeue || job.latest.end_reason.is_some_and(EndReason::is_of_the_node);
        match task.filter(is_meant) {
            Some(task) if self.retry(job, &task).await? => Ok(()),
            _ => Ok(self.db.settle_job(job.id).await?),
        }
    }

    /// Asks for the next attempt as the one before was asked for; false where it can never fit.
    async fn retry(&self, job: &Job, task: &Task) -> Result<bool> {
        let attempt = Attempt { job: job.id, number: job.attempt.saturating_add(1) };
        let then = job.latest.ended_at.unwrap_or_else(|| self.clock.now()).plus_seconds(task.retry_wait_seconds);
        let new = NewAttempt { attempt, cause: Cause::Retried(then), hold: None, place: None, model: None };
        let answer = self.begin_by_itself(job.owner, job.name.clone(), job.latest.spec.clone(), new).await?;
        if matches!(answer, AdmissionOutcome::Judged(Verdict::Admit { .. } | Verdict::Wait(_))) {
            tracing::info!(job.id = %job.id, user.name = %job.owner_name, attempt = attempt.number, "job retried");
        }
        Ok(!matches!(answer, AdmissionOutcome::Judged(Verdict::Refuse(_))))
    }

    /// Asks for an attempt that nobody waits for: what it asks for was checked when somebody did.
    pub async fn begin_by_itself(
        &self,
        owner: UserId,
        name: String,
        spec: SessionSpec,
        attempt: NewAttempt,
    ) -> Result<AdmissionOutcome> {
        let billing_groups = self.admission.standing(owner).await?.billing_groups;
        let group = spec.group.as_ref().and_then(|name| billing_groups.groups.iter().find(|one| one.name == *name));
        let not_before = match attempt.cause {
            Cause::Retried(then) => Some(then),
            Cause::Submitted(_) | Cause::Resumed => None,
        };
        let (job, hold) = (attempt.attempt.job, self.hold_of(owner, not_before).await?);
        let new = NewSession {
            id: SessionId::new(),
            owner,
            charged_group: group.map(|group| group.id),
            app: JOB.to_owned(),
            name,
            spec,
            light: false,
            cluster: self.scheduler.cluster().to_owned(),
            idempotency: None,
            job: Some(NewAttempt { hold, ..attempt }),
        };
        let answer = self.admission.insert(&new).await?;
        if matches!(answer, AdmissionOutcome::Judged(Verdict::Admit { .. } | Verdict::Wait(_))) {
            self.announce_job(new.id, job, owner);
        }
        Ok(answer)
    }

    /// What holds a new attempt of this person's, besides quotas and room.
    pub(super) async fn hold_of(&self, owner: UserId, not_before: Option<Timestamp>) -> Result<Option<Reason>> {
        let pauses = self.db.queue_pauses(Some(owner)).await?;
        let obstacles = Obstacles { not_before, pauses, ..Obstacles::default() };
        Ok(match Hold::of(&obstacles, self.clock.now()) {
            Hold::Waits(reason) => Some(reason),
            Hold::Free | Hold::Never(_) => None,
        })
    }

    /// Ends an attempt in its owner's name, as something that they ordered says.
    pub async fn end_by_itself(&self, session: &Session, why: &str) -> Result<()> {
        self.end_because(session, EndReason::StoppedByOwner, why).await
    }

    /// Asks for the end of a session or an attempt that no user stopped; `why` is for its owner.
    pub async fn end_because(&self, session: &Session, reason: EndReason, why: &str) -> Result<()> {
        let now = self.clock.now();
        let waited = self.db.end_waiting(session.id, reason, &[], now, why, None).await?;
        if waited {
            self.forget(session.id);
        }
        if waited || self.db.begin_stop(session.id, reason, now, why, None).await? {
            self.notify(session, waited);
            self.wake();
        }
        Ok(())
    }
}
