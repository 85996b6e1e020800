//! Jobs: the service that pages, API and command line call. A job is what outlives its
//! attempts, and each attempt is a workload of `sessions`, which launches and ends it; here are
//! the rules about the whole: who sees one, a new attempt, a copy, notes and tags, its end.

mod lines;
mod request;
mod sbatch;

use std::sync::Arc;

use lyceum_db::{
    self as db, Db,
    admit::{Cause, NewAttempt, Verdict},
    audit::{ChangedBy, Entry},
    jobs::{DeleteOutcome, JobChange, JobFilter},
    sessions::Event,
};
use lyceum_model::{
    FieldError, Job, JobId, Role, Session, SlurmOptions, User, UserId,
    hold::{Dependency, Hold, Obstacles, Pause, Prerequisite},
    job::{Attempt, Shape, Task, Visibility},
    quota::Reason,
    session::SessionSpec,
};

use crate::{
    admission::DryRun,
    sessions::{self, Actor, AttemptOutcome, Sessions},
};

pub use request::{Changes, JobRequest};

/// How long a job may take where nothing is said, if quotas and the partition allow it.
const DEFAULT_SECONDS: i64 = 48 * 3600;

/// What the service is made of.
pub struct Jobs {
    pub db: Db,
    pub sessions: Arc<Sessions>,
}

/// Holds a validated request with its dry-run decision.
pub struct PreparedJob {
    pub name: String,
    pub task: Task,
    pub spec: SessionSpec,
    pub dry_run: DryRun,
}

/// Describes one event in a job's history, with its attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    pub attempt: i64,
    pub event: Event,
}

/// Why a queue is paused, in characters.
const MAX_NOTE_LENGTH: usize = 200;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("job not found")]
    NotFound,
    #[error("invalid job request")]
    Invalid(Vec<FieldError>),
    #[error("{0}")]
    Forbidden(&'static str),
    /// The job is not in a state that allows this; the sentence says why.
    #[error("{0}")]
    Conflict(&'static str),
    #[error("failed to submit or end a workload")]
    Sessions(#[from] sessions::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Jobs {
    #[must_use]
    pub fn new(sessions: Arc<Sessions>) -> Arc<Self> {
        Arc::new(Self { db: sessions.db.clone(), sessions })
    }

    /// Asks for a job. It is written before anything happens; asked twice with one idempotency
    /// key it is the same job.
    pub async fn submit(&self, actor: Actor<'_>, request: JobRequest, key: Option<&str>) -> Result<Job> {
        let idempotency = key.map(|key| (key.to_owned(), request.hash()));
        let id = JobId::new();
        let (task, batch) = self.check(actor, id, request).await?;
        let hold = self.hold(actor, &task).await?;
        let attempt = NewAttempt {
            attempt: Attempt { job: id, number: 1 },
            cause: Cause::Submitted(task.into()),
            hold,
            place: None,
            model: None,
        };
        let id = match self.sessions.begin_attempt(actor, batch, attempt, idempotency).await? {
            AttemptOutcome::Repeated(earlier) => earlier,
            AttemptOutcome::Written | AttemptOutcome::Overtaken => id,
        };
        self.find(actor, id).await
    }

    /// What would be decided about a job, with nothing written.
    pub async fn rehearse(&self, actor: Actor<'_>, request: JobRequest) -> Result<DryRun> {
        let (task, batch) = self.check(actor, JobId::new(), request).await?;
        let hold = self.hold(actor, &task).await?;
        let dry_run = self.sessions.rehearse_batch(actor, &batch, &task.shape).await?;
        Ok(match (hold, &dry_run.verdict) {
            (Some(reason), Verdict::Admit { .. } | Verdict::Wait(_)) => {
                DryRun { verdict: Verdict::Wait(vec![reason]), estimated_start: None }
            }
            _ => dry_run,
        })
    }

    /// What the jobs that it is to follow mean for it; one that can never come to its turn is a fault.
    async fn hold(&self, actor: Actor<'_>, task: &Task) -> Result<Option<Reason>> {
        let mut waits = None;
        for (index, Prerequisite { job, needs }) in task.after.iter().enumerate() {
            let fault = |code: &str, message: &str| {
                Error::Invalid(vec![FieldError::new(format!("after[{index}].job"), code, message)])
            };
            let job = match self.own(actor, *job).await {
                Err(Error::NotFound) => return Err(fault("not_found", "is not one of your jobs")),
                found => found?,
            };
            let dependency = Dependency { job: job.id, needs: *needs, found: Some((job.name.clone(), job.outcome())) };
            let obstacles = Obstacles { dependencies: vec![dependency], ..Obstacles::default() };
            match Hold::of(&obstacles, self.sessions.clock.now()) {
                Hold::Free => {}
                Hold::Waits(reason) => waits = Some(reason),
                Hold::Never(reason) => return Err(fault("never", &reason.hint)),
            }
        }
        Ok(waits)
    }

    /// Checks a request that others make jobs of, with nothing written.
    pub async fn prepare(&self, actor: Actor<'_>, id: JobId, request: JobRequest) -> Result<PreparedJob> {
        let (task, batch) = self.check(actor, id, request).await?;
        let dry_run = self.sessions.rehearse_batch(actor, &batch, &task.shape).await?;
        Ok(PreparedJob { name: batch.name, task, spec: batch.spec, dry_run })
    }

    /// Who holds this person's waiting jobs.
    pub async fn pauses(&self, user: UserId) -> Result<Vec<Pause>> {
        Ok(self.db.queue_pauses(Some(user)).await?)
    }

    /// Holds one's waiting jobs, or everybody's, with a note for those who wait; `None` lets them go on.
    pub async fn pause_queue(&self, actor: Actor<'_>, everybody: bool, note: Option<&str>) -> Result<()> {
        if everybody && actor.user.role < Role::Admin {
            return Err(Error::Forbidden("only administrators can pause the jobs of all users"));
        }
        let note = note.map(str::trim);
        if note.is_some_and(|note| note.chars().count() > MAX_NOTE_LENGTH || note.contains(char::is_control)) {
            let message = "must be one line of at most 200 characters";
            return Err(Error::Invalid(vec![FieldError::new("note", "malformed", message)]));
        }
        let (at, by) = (self.sessions.clock.now(), actor.user.name.as_str());
        let pause = note.map(|note| Pause { of_everybody: everybody, by: by.to_owned(), note: note.to_owned(), at });
        let action = if pause.is_some() { "queue.pause" } else { "queue.resume" };
        let subject = if everybody { "everybody" } else { by };
        let noted = Entry { at, actor: by, action, subject, detail: note.unwrap_or_default() };
        let user = Some(actor.user.id).filter(|_| !everybody);
        if self.db.pause_queue(user, pause.as_ref(), &noted).await? {
            self.sessions.wake();
        }
        Ok(())
    }

    async fn check(&self, actor: Actor<'_>, id: JobId, request: JobRequest) -> Result<(Task, sessions::Batch)> {
        let scheduler = &self.sessions.scheduler;
        let node = |shape: &Shape| scheduler.largest_for(shape);
        let (task, mut like) = request.check(scheduler.has_queue().then_some(&node as _)).map_err(Error::Invalid)?;
        let each = like.resources.clone().unwrap_or_default();
        if let Some(longest) = scheduler.longest_for(&each, &task.shape.with(&like.slurm)) {
            // Where nothing is said, no longer than its own partition lets it run.
            like.usual_seconds = Some(like.usual_seconds.unwrap_or(DEFAULT_SECONDS).min(longest));
        }
        let mut batch = self.sessions.check_batch(actor, like, &task.shape).await.map_err(in_our_words)?;
        if batch.spec.log_directory.is_none() {
            batch.spec.log_directory = Some(Job::usual_log_directory(id, &batch.name));
        }
        Ok((task, batch))
    }

    /// A job that this person may look at.
    pub async fn find(&self, actor: Actor<'_>, id: JobId) -> Result<Job> {
        let job = self.db.find_job(id).await?.ok_or(Error::NotFound)?;
        if self.sees(actor.user, &job).await? { Ok(job) } else { Err(Error::NotFound) }
    }

    async fn sees(&self, user: &User, job: &Job) -> Result<bool> {
        if job.owner == user.id || Role::Operator <= user.role {
            return Ok(true);
        }
        Ok(match job.visibility {
            Visibility::Private => false,
            Visibility::Everybody => true,
            Visibility::Group => self.db.share_a_group(job.owner, user.id).await?,
        })
    }

    /// One's own job; that it can be seen is not enough.
    pub async fn own(&self, actor: Actor<'_>, id: JobId) -> Result<Job> {
        let job = self.find(actor, id).await?;
        if job.owner == actor.user.id { Ok(job) } else { Err(Error::NotFound) }
    }

    pub async fn list(&self, filter: JobFilter<'_>) -> Result<Vec<Job>> {
        Ok(self.db.list_jobs(filter).await?)
    }

    /// Lists jobs, each with the value that the list is sorted by.
    pub async fn list_sorted(&self, filter: JobFilter<'_>) -> Result<Vec<(Job, String)>> {
        Ok(self.db.list_jobs_sorted(filter).await?)
    }

    /// What a job runs, for whoever may look at it.
    pub async fn task(&self, job: &Job) -> Result<Task> {
        self.db.job_task(job.id).await?.ok_or(Error::NotFound)
    }

    /// Those that a job is to follow, and how they stand.
    pub async fn dependencies(&self, job: &Job) -> Result<Vec<Dependency>> {
        Ok(self.db.job_dependencies(job.id).await?)
    }

    /// All attempts, the latest first.
    pub async fn attempts(&self, job: &Job) -> Result<Vec<Session>> {
        Ok(self.db.job_attempts(job.id).await?)
    }

    /// Asks for the end of a job; one that has ended already is fine. Operators may end others'.
    pub async fn cancel(&self, actor: Actor<'_>, id: JobId) -> Result<Job> {
        let job = self.find(actor, id).await?;
        if job.owner != actor.user.id && actor.user.role < Role::Operator {
            return Err(Error::NotFound);
        }
        self.sessions.stop_workload(actor, job.latest.id).await?;
        if job.retries_left > 0 {
            self.db.settle_job(id).await?;
        }
        self.find(actor, id).await
    }

    /// Runs an ended job again as its next attempt: the same command and the same folder of logs.
    pub async fn resume(&self, actor: Actor<'_>, id: JobId) -> Result<Job> {
        let job = self.own(actor, id).await?;
        if job.latest.state.is_live() {
            return Err(Error::Conflict("it has not ended yet: cancel it first, or wait until it ends"));
        }
        let shape = self.task(&job).await?.shape;
        let like = Sessions::request_like(&job.latest);
        let resources = like.resources.clone().map(|whole| shape.share(whole));
        let like = sessions::StartRequest { name: Some(job.name.clone()), resources, ..like };
        // The folder of logs was checked when it was new, or is made by the program itself.
        let logs = like.options.log_directory.clone();
        let like = sessions::StartRequest { options: sessions::Options::default(), ..like };
        let mut batch = self.sessions.check_batch(actor, like, &shape).await.map_err(in_our_words)?;
        batch.spec.log_directory = logs;
        let attempt = Attempt { job: id, number: job.attempt.saturating_add(1) };
        let attempt = NewAttempt { attempt, cause: Cause::Resumed, hold: None, place: None, model: None };
        match self.sessions.begin_attempt(actor, batch, attempt, None).await? {
            AttemptOutcome::Written => self.find(actor, id).await,
            AttemptOutcome::Repeated(_) | AttemptOutcome::Overtaken => {
                Err(Error::Conflict("it was resumed or deleted by another request at the same time: reload it"))
            }
        }
    }

    /// A new job like this one, with what `changes` names instead.
    pub async fn copy(&self, actor: Actor<'_>, id: JobId, changes: JobRequest, key: Option<&str>) -> Result<Job> {
        let job = self.find(actor, id).await?;
        let request = self.request_like(actor, &job).await?.with(changes);
        self.submit(actor, request, key).await
    }

    /// What a job asked for, as a request for another one. Its variables and its group are its
    /// owner's own business.
    pub async fn request_like(&self, actor: Actor<'_>, job: &Job) -> Result<JobRequest> {
        let is_own = job.owner == actor.user.id;
        let task = self.task(job).await?;
        let mut request = JobRequest::like(job, task);
        if !is_own {
            request.variables = None;
            request.group = None;
            request.slurm = SlurmOptions { account: None, qos: None, reservation: None, ..request.slurm };
        }
        Ok(request)
    }

    /// Changes what its owner says of it.
    pub async fn change(&self, actor: Actor<'_>, id: JobId, changes: Changes) -> Result<Job> {
        let job = self.own(actor, id).await?;
        let change: JobChange = changes.check().map_err(Error::Invalid)?;
        if !self.db.change_job(id, &change).await? {
            return Err(Error::NotFound);
        }
        self.sessions.announce_job(job.latest.id, id, job.owner);
        self.find(actor, id).await
    }

    /// Moves a job that has ended into the trash, where it can be restored for a day. What it used stays in the history of
    /// use.
    pub async fn delete(&self, actor: Actor<'_>, id: JobId) -> Result<()> {
        let job = self.own(actor, id).await?;
        let by = ChangedBy { actor: actor.user.name.as_str(), at: self.sessions.clock.now() };
        match self.db.delete_job(id, by).await? {
            DeleteOutcome::Done => {}
            DeleteOutcome::Live => return Err(Error::Conflict("it has not ended yet: cancel it first")),
            DeleteOutcome::Missing => return Err(Error::NotFound),
        }
        self.sessions.announce_job(job.latest.id, id, job.owner);
        Ok(())
    }

    /// Brings a deleted job of one's own back, with its logs and its run.
    pub async fn restore(&self, actor: Actor<'_>, id: JobId) -> Result<Job> {
        let by = ChangedBy { actor: actor.user.name.as_str(), at: self.sessions.clock.now() };
        if !self.db.restore_job(id, actor.user.id, by).await? {
            self.own(actor, id).await?;
            return Err(Error::Conflict("it has not been deleted"));
        }
        let job = self.find(actor, id).await?;
        self.sessions.announce_job(job.latest.id, id, job.owner);
        Ok(job)
    }

    /// One of its attempts, by its number.
    pub async fn attempt(&self, job: &Job, number: i64) -> Result<Session> {
        if number == job.attempt {
            return Ok(job.latest.clone());
        }
        let attempts = self.attempts(job).await?;
        let found = attempts.into_iter().find(|one| one.job.is_some_and(|attempt| attempt.number == number));
        found.ok_or(Error::NotFound)
    }

    /// The end of the log of an attempt (the latest where none is named), at most `bytes`.
    pub async fn log_tail(&self, job: &Job, attempt: Option<i64>, bytes: u64) -> Result<Vec<u8>> {
        let attempt = self.attempt(job, attempt.unwrap_or(job.attempt)).await?;
        Ok(self.sessions.log_of(&attempt, bytes).await?)
    }

    /// What happened to all its attempts after this one's line, in order.
    pub async fn events(&self, job: &Job, (attempt, number): (i64, i64)) -> Result<Vec<JobEvent>> {
        let mut happened = Vec::new();
        let attempts = self.attempts(job).await?;
        for (session, at) in attempts.iter().rev().filter_map(|one| Some((one, one.job?.number))) {
            if at < attempt {
                continue;
            }
            let after = if at == attempt { number } else { 0 };
            let events = self.db.session_events(session.id, after).await?;
            happened.extend(events.into_iter().map(|event| JobEvent { attempt: at, event }));
        }
        Ok(happened)
    }
}

/// Faults name the fields of a job's request.
fn in_our_words(error: sessions::Error) -> Error {
    let sessions::Error::Invalid(faults) = error else { return Error::Sessions(error) };
    let renamed = faults.into_iter().map(|fault| {
        let field = match fault.field.as_str() {
            "duration_seconds" => "time_limit_seconds".to_owned(),
            "options.log_directory" => "log_directory".to_owned(),
            _ => fault.field,
        };
        FieldError { field, ..fault }
    });
    Error::Invalid(renamed.collect())
}
