//! Attempts of jobs, for the service of jobs: the same checks, the same decision and the same
//! row as a session's, so that everything that is true of a session's life is true of theirs.
//! What a job is besides is `jobs`' business.

use super::{Actor, Error, Result, Sessions, StartRequest, request::Checked};
use lyceum_db::admit::{AdmissionOutcome, NewAttempt, NewSession, Verdict};
use lyceum_model::{GroupId, JobId, Session, SessionId, UserId, job::Shape, quota, session::SessionSpec};
use lyceum_node::apps::JOB;

use crate::admission::DryRun;

/// What a job asks for, checked and filled in.
pub struct Batch {
    pub name: String,
    pub spec: SessionSpec,
    charged_group: Option<GroupId>,
    /// The group was named and is remembered.
    is_choice: bool,
}

/// What became of an attempt that was asked for.
#[derive(Debug)]
pub enum AttemptOutcome {
    /// It is written, and starts or waits.
    Written,
    /// The idempotency key was used before, for this job.
    Repeated(JobId),
    /// There is another attempt, or the latest one has not ended.
    Overtaken,
}

impl Sessions {
    /// Checks what a job asks for on each of its nodes; `request.app` does not count. Nothing is written.
    pub async fn check_batch(&self, actor: Actor<'_>, request: StartRequest, shape: &Shape) -> Result<Batch> {
        let standing = self.admission.standing(actor.user.id).await?;
        let app = self.apps.find(JOB).ok_or(Error::NotFound)?;
        let checked = self.check(actor, Ok(app), StartRequest { app: JOB.to_owned(), ..request }, &standing)?;
        self.check_slurm(actor.user, &checked.spec.slurm, shape).await?;
        self.check_fit(&checked.spec, &shape.with(&checked.spec.slurm))?;
        self.check_person(actor.user).await?;
        self.check_places(actor.user, &checked).await?;
        let Checked { name, mut spec, charged_group, .. } = checked;
        spec.resources = shape.whole(spec.resources);
        let is_choice = charged_group.is_some_and(|group| standing.billing_groups.chosen != Some(group));
        Ok(Batch { name, spec, charged_group, is_choice })
    }

    /// What would be decided about it, with nothing written.
    pub async fn rehearse_batch(&self, actor: Actor<'_>, batch: &Batch, shape: &Shape) -> Result<DryRun> {
        let request = quota::Request {
            duration_seconds: batch.spec.duration_seconds,
            resources: batch.spec.resources.clone(),
            class: quota::Class::Job,
        };
        let dry_run = self.admission.rehearse(actor.user.id, batch.charged_group, &request).await?;
        let shape = shape.with(&batch.spec.slurm);
        Ok(self.behind_reservations(dry_run, &shape.share(request.resources), request.duration_seconds, &shape))
    }

    /// Decides about an attempt and writes it, unless it is refused.
    pub async fn begin_attempt(
        &self,
        actor: Actor<'_>,
        batch: Batch,
        attempt: NewAttempt,
        idempotency: Option<(String, String)>,
    ) -> Result<AttemptOutcome> {
        let Batch { name, spec, charged_group, is_choice } = batch;
        let (job, owner) = (attempt.attempt.job, actor.user.id);
        let hash = idempotency.as_ref().map(|(_, hash)| hash.clone());
        let hold = match &attempt.hold {
            Some(reason) => Some(reason.clone()),
            None => self.hold_of(owner, None).await?,
        };
        let new = NewSession {
            id: SessionId::new(),
            owner,
            charged_group,
            app: JOB.to_owned(),
            name,
            spec,
            light: false,
            cluster: self.scheduler.cluster().to_owned(),
            idempotency,
            job: Some(NewAttempt { hold, ..attempt }),
        };
        match self.admission.insert(&new).await? {
            AdmissionOutcome::Judged(Verdict::Refuse(reasons)) => return Err(self.refusal(reasons).await?),
            AdmissionOutcome::Judged(_) => {}
            AdmissionOutcome::Overtaken => return Ok(AttemptOutcome::Overtaken),
            AdmissionOutcome::Repeated(earlier) => {
                let same = hash.is_some_and(|hash| hash == earlier.request_hash);
                let job = earlier.created_id.parse().ok().filter(|_| same);
                return job.map(AttemptOutcome::Repeated).ok_or_else(Error::key_in_use);
            }
        }
        if let Some(group) = charged_group.filter(|_| is_choice) {
            self.db.choose_charged_group(owner, group).await?;
        }
        self.announce_job(new.id, job, owner);
        Ok(AttemptOutcome::Written)
    }

    /// Something about a job changed that its pages show.
    pub fn announce_job(&self, session: SessionId, job: JobId, owner: UserId) {
        self.send(super::Change { session, job: Some(job), owner, ended: false, told: false });
        self.wake();
    }

    /// What an attempt asked for, as a request for another one.
    #[must_use]
    pub fn request_like(attempt: &Session) -> StartRequest {
        let SessionSpec {
            resources,
            profile: _,
            environment,
            working_directory,
            duration_seconds,
            log_directory,
            log_directories: _,
            group,
            modules,
            image,
            slurm,
        } = attempt.spec.clone();
        StartRequest {
            app: attempt.app.clone(),
            preset: None,
            name: Some(attempt.name.clone()),
            // What a profile means may have changed since; these sizes are what was run.
            resources: Some(resources),
            profile: None,
            environment,
            image,
            modules,
            working_directory,
            group,
            duration_seconds: Some(duration_seconds),
            usual_seconds: None,
            slurm,
            options: super::Options { log_directory, ..super::Options::default() },
        }
    }
}
