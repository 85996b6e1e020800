//! Sweeps: many jobs from one plan, checked as a whole or not at all. A loop makes jobs of the
//! tasks as room allows, ends those that are behind, and says when all is over; it goes on from
//! rows alone, so that a portal that was killed neither forgets a task nor starts one twice.

mod request;

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::sync::broadcast::error::RecvError;

pub use request::{Preview, SweepRequest, Values};

use lyceum_curves::{Bucket, Store};
use lyceum_db::{
    self as db, Db,
    admit::{AdmissionOutcome, Cause, NewAttempt, Verdict},
    audit::Entry,
    idempotency::{EarlierResult, IdempotentRequest},
    sweeps::SweepFilter,
};
use lyceum_model::{
    DatasetState, FieldError, Job, JobId, Loops, Model, ModelId, Role, RunId, SessionState, Sweep, SweepId, UserId,
    hold::Outcome,
    job::{Attempt, JobProgram},
    loops::Round,
    quota::{Code, Field, Reason, Rule},
    sweep::{Course, Goal, Metric, Plan, Settings, SweepState, behind},
};

use crate::{
    datasets::{self, Datasets},
    jobs::{self, Jobs},
    models::{self, Models, NewModel},
    runs::{self, Extremes, Runs},
    sessions::{self, Actor, Sessions},
};

/// The safety net; ends of jobs wake the loop.
const INTERVAL: Duration = Duration::from_secs(5);

/// Many ends in a moment make one round.
const BATCH_DELAY: Duration = Duration::from_millis(250);

/// Into so many stretches a task's curve is cut for the comparison with others.
const STRETCHES: usize = 256;

/// The service.
pub struct Sweeps {
    db: Db,
    jobs: Arc<Jobs>,
    sessions: Arc<Sessions>,
    runs: Arc<Runs>,
    datasets: Arc<Datasets>,
    models: Arc<Models>,
}

/// One task of a sweep, and how far it is.
#[derive(Clone, Debug)]
pub struct TaskProgress {
    pub settings: Settings,
    /// The job that it has become.
    pub job: Option<Job>,
    /// The model that it trains, if it still exists.
    pub model: Option<ModelId>,
    /// The last step and the best value up to it of what the tasks are compared by.
    pub best: Option<(i64, f64)>,
}

/// The courses of tasks that are over, by the sweeps that are open: so nobody's points are read
/// again in each round.
type Courses = HashMap<SweepId, HashMap<JobId, Arc<Course>>>;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("sweep not found")]
    NotFound,
    #[error("invalid sweep request")]
    Invalid(Vec<FieldError>),
    /// The sentence says why.
    #[error("{0}")]
    Conflict(&'static str),
    #[error("invalid job request")]
    Jobs(#[from] jobs::Error),
    #[error("failed to submit or end a task")]
    Sessions(#[from] sessions::Error),
    #[error("failed to find the dataset")]
    Datasets(#[from] datasets::Error),
    #[error("failed to prepare a training")]
    Models(#[from] models::Error),
    #[error("failed to read curves")]
    Runs(#[from] runs::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

/// What became of a task that was to be a job.
enum ReleaseOutcome {
    Done,
    /// There is no room for it to wait in.
    Later,
    /// It can never fit: the sentence says why.
    Never(String),
}

impl Sweeps {
    #[must_use]
    pub fn new(
        jobs: Arc<Jobs>,
        sessions: Arc<Sessions>,
        runs: Arc<Runs>,
        datasets: Arc<Datasets>,
        models: Arc<Models>,
    ) -> Arc<Self> {
        Arc::new(Self { db: sessions.db.clone(), jobs, sessions, runs, datasets, models })
    }

    /// What would come of a request, with nothing written.
    pub async fn preview(&self, actor: Actor<'_>, request: SweepRequest) -> Result<Preview> {
        let (_, _, preview) = self.check(actor, request).await?;
        Ok(preview)
    }

    /// Writes a sweep with all its tasks, unless one of them could never run; the first ones
    /// become jobs at once. Asked twice with one idempotency key it is the same sweep.
    pub async fn submit(&self, actor: Actor<'_>, request: SweepRequest, key: Option<&str>) -> Result<Sweep> {
        let hash = request.hash();
        if let Some(earlier) = self.made_earlier(actor, key, &hash).await? {
            return Ok(earlier);
        }
        let (sweep, plan, preview) = self.check(actor, request).await?;
        if let Verdict::Refuse(reasons) = preview.dry_run.verdict {
            return Err(self.sessions.refusal(reasons).await?.into());
        }
        let once = key.map(|key| IdempotentRequest { user: actor.user.id, key, request_hash: &hash });
        let (subject, detail) = (sweep.id.to_string(), format!("{} of {}: {}", sweep.kind, sweep.tasks, sweep.name));
        let noted = Entry {
            at: sweep.created_at,
            actor: actor.user.name.as_str(),
            action: "sweep.submit",
            subject: &subject,
            detail: &detail,
        };
        match self.db.add_sweep(&sweep, &plan, once, &noted).await {
            Err(db::Error::Unique) => {
                let conflict =
                    Error::Conflict("another request with this key was processed at the same time; try again");
                return self.made_earlier(actor, key, &hash).await?.ok_or(conflict);
            }
            written => written?,
        }
        self.release(&sweep).await?;
        self.find(actor, sweep.id).await
    }

    async fn made_earlier(&self, actor: Actor<'_>, key: Option<&str>, hash: &str) -> Result<Option<Sweep>> {
        let Some(key) = key else { return Ok(None) };
        match self.db.find_idempotent(actor.user.id, key).await? {
            None => Ok(None),
            Some(EarlierResult { request_hash, created_id }) if request_hash == hash => {
                let id = created_id.parse().map_err(|_err| db::Error::Stored("sweep id"))?;
                self.find(actor, id).await.map(Some)
            }
            Some(_) => {
                Err(Error::Conflict("this idempotency key was already used for a different request; use a new key"))
            }
        }
    }

    /// One's own; operators see all.
    pub async fn find(&self, actor: Actor<'_>, id: SweepId) -> Result<Sweep> {
        let sweep = self.db.find_sweep(id).await?.ok_or(Error::NotFound)?;
        let sees = sweep.owner == actor.user.id || Role::Operator <= actor.user.role;
        if sees { Ok(sweep) } else { Err(Error::NotFound) }
    }

    /// Lists one's own sweeps, or for operators those of the filter's owner, each with the value that the list is sorted
    /// by.
    pub async fn list(&self, actor: Actor<'_>, filter: SweepFilter<'_>) -> Result<Vec<(Sweep, String)>> {
        let owner = if Role::Operator <= actor.user.role { filter.owner } else { Some(actor.user.id) };
        Ok(self.db.list_sweeps(SweepFilter { owner, ..filter }).await?)
    }

    /// Each task in its order, and what they are compared by.
    pub async fn standings(&self, sweep: &Sweep) -> Result<(Option<Metric>, Vec<TaskProgress>)> {
        let plan = self.db.sweep_plan(sweep.id).await?.ok_or(Error::NotFound)?;
        let mut bests = match &plan.metric {
            Some(metric) => self.bests(sweep.id, metric).await?,
            None => HashMap::new(),
        };
        let mut models = match &plan.training {
            Some(_) => self.db.sweep_models(sweep.id).await?,
            None => HashMap::new(),
        };
        let mut jobs = self.db.sweep_jobs(sweep.id).await?.into_iter().peekable();
        let mut standings = Vec::with_capacity(plan.tasks.len());
        for (place, settings) in (0_i64..).zip(plan.tasks) {
            let job = jobs.next_if(|(of, _)| *of == place).map(|(_, job)| job);
            let best = job.as_ref().and_then(|job| bests.remove(&job.id));
            let model = job.as_ref().and_then(|job| models.remove(&job.id));
            standings.push(TaskProgress { settings, job, model, best });
        }
        Ok((plan.metric, standings))
    }

    /// How far each job has come, and its best value so far.
    async fn bests(&self, sweep: SweepId, metric: &Metric) -> Result<HashMap<JobId, (i64, f64)>> {
        let of_jobs = self.db.sweep_runs(sweep).await?;
        let runs: Vec<(RunId, bool)> = of_jobs.iter().map(|(_, run, over)| (*run, *over)).collect();
        let extremes = self.runs.extremes(&runs, &metric.tag).await?;
        let best = |run: &RunId| {
            let Extremes { last_step, min, max } = *extremes.get(run)?;
            Some(match metric.goal {
                Goal::Minimum => (last_step, min),
                Goal::Maximum => (last_step, max),
            })
        };
        Ok(of_jobs.iter().filter_map(|(job, run, _)| Some((*job, best(run)?))).collect())
    }

    /// The job that the task at this place has become.
    pub async fn job_at(&self, sweep: &Sweep, place: i64) -> Result<Option<Job>> {
        Ok(self.db.sweep_job(sweep.id, place).await?)
    }

    /// The sweep that a job is a task of.
    pub async fn of_job(&self, id: JobId) -> Result<Option<(Sweep, i64)>> {
        let Some((sweep, place)) = self.db.sweep_of_job(id).await? else { return Ok(None) };
        Ok(self.db.find_sweep(sweep).await?.map(|sweep| (sweep, place)))
    }

    /// No more tasks become jobs, and those that wait go on waiting.
    pub async fn pause(&self, actor: Actor<'_>, id: SweepId) -> Result<Sweep> {
        let from = [SweepState::Running, SweepState::Paused];
        self.change(actor, id, &from, SweepState::Paused, "sweep.pause").await
    }

    pub async fn go_on(&self, actor: Actor<'_>, id: SweepId) -> Result<Sweep> {
        let from = [SweepState::Running, SweepState::Paused];
        self.change(actor, id, &from, SweepState::Running, "sweep.resume").await
    }

    /// Ends what runs, and makes no more jobs; one that has ended already is fine.
    pub async fn stop(&self, actor: Actor<'_>, id: SweepId) -> Result<Sweep> {
        let sweep = self.find(actor, id).await?;
        if matches!(sweep.state, SweepState::Stopping | SweepState::Ended) {
            return Ok(sweep);
        }
        let from = [SweepState::Running, SweepState::Paused];
        self.change(actor, id, &from, SweepState::Stopping, "sweep.stop").await?;
        self.end_tasks(id).await?;
        self.find(actor, id).await
    }

    async fn change(
        &self,
        actor: Actor<'_>,
        id: SweepId,
        from: &[SweepState],
        to: SweepState,
        action: &str,
    ) -> Result<Sweep> {
        let sweep = self.find(actor, id).await?;
        let subject = id.to_string();
        let (at, by) = (self.sessions.clock.now(), actor.user.name.as_str());
        let noted = Entry { at, actor: by, action, subject: &subject, detail: &sweep.name };
        if !self.db.set_sweep_state(id, from, (to, ""), Some(&noted)).await? {
            return Err(Error::Conflict("it has ended or is being stopped"));
        }
        self.sessions.wake();
        self.release(&self.find(actor, id).await?).await?;
        self.find(actor, id).await
    }

    /// Forgets a sweep of one's own that has ended; its jobs stay.
    pub async fn delete(&self, actor: Actor<'_>, id: SweepId) -> Result<()> {
        let sweep = self.find(actor, id).await?;
        if sweep.owner != actor.user.id {
            return Err(Error::NotFound);
        }
        let subject = id.to_string();
        let (at, by) = (self.sessions.clock.now(), actor.user.name.as_str());
        let noted = Entry { at, actor: by, action: "sweep.delete", subject: &subject, detail: &sweep.name };
        if self.db.remove_sweep(id, &noted).await? {
            Ok(())
        } else {
            Err(Error::Conflict("it has not ended yet: stop it first"))
        }
    }

    /// Runs until the portal stops.
    pub async fn run(self: Arc<Self>, loops: Loops) {
        let mut changes = self.sessions.subscribe();
        let mut courses = Courses::default();
        loop {
            let round = loops.begin("sweeps", Some(INTERVAL));
            let outcome = self.round(&mut courses, &round).await;
            round.end(&outcome);
            if let Err(error) = outcome {
                tracing::warn!(error = &error as &dyn std::error::Error, "sweeps run failed");
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                heard = changes.recv() => {
                    if matches!(heard, Err(RecvError::Closed)) {
                        return;
                    }
                    tokio::time::sleep(BATCH_DELAY).await;
                    changes = changes.resubscribe();
                }
            }
        }
    }

    async fn round(&self, courses: &mut Courses, round: &Round) -> Result<()> {
        let open = self.db.open_sweeps().await?;
        courses.retain(|of, _| open.iter().any(|sweep| sweep.id == *of));
        for sweep in open {
            let outcome = self.step(&sweep, courses.entry(sweep.id).or_default()).await;
            round.unless_failed(format_args!("sweep {}", sweep.id), outcome);
        }
        Ok(())
    }

    /// Takes the next step with one sweep.
    async fn step(&self, sweep: &Sweep, courses: &mut HashMap<JobId, Arc<Course>>) -> Result<()> {
        match sweep.state {
            SweepState::Running => {
                self.end_those_behind(sweep, courses).await?;
                self.release(sweep).await?;
            }
            SweepState::Stopping => self.end_tasks(sweep.id).await?,
            SweepState::Paused | SweepState::Ended => {}
        }
        let Some(sweep) = self.db.find_sweep(sweep.id).await? else { return Ok(()) };
        let none_left = sweep.state == SweepState::Stopping || sweep.released == sweep.tasks;
        if none_left && self.db.live_in_sweep(sweep.id).await? == 0 {
            self.db.set_sweep_state(sweep.id, &[sweep.state], (SweepState::Ended, ""), None).await?;
            self.notify(sweep.id).await?;
        }
        Ok(())
    }

    /// Whoever looks at a sweep hears of its jobs, the last of which has told already that it ended.
    async fn notify(&self, sweep: SweepId) -> Result<()> {
        if let Some(job) = self.db.sweep_job(sweep, 0).await? {
            self.sessions.notify_unchanged(&job.latest);
        }
        Ok(())
    }

    /// Makes jobs of as many tasks as may run or wait at once.
    async fn release(&self, sweep: &Sweep) -> Result<()> {
        if sweep.state != SweepState::Running || sweep.tasks <= sweep.released {
            return Ok(());
        }
        let Some(plan) = self.db.sweep_plan(sweep.id).await? else { return Ok(()) };
        let room = sweep.parallel.saturating_sub(self.db.live_in_sweep(sweep.id).await?);
        for place in (sweep.released..sweep.tasks).take(usize::try_from(room).unwrap_or(0)) {
            match self.begin(sweep, &plan, place).await? {
                ReleaseOutcome::Done => {}
                ReleaseOutcome::Later => break,
                ReleaseOutcome::Never(why) => {
                    let paused = (SweepState::Paused, why.as_str());
                    self.db.set_sweep_state(sweep.id, &[SweepState::Running], paused, None).await?;
                    self.notify(sweep.id).await?;
                    break;
                }
            }
        }
        Ok(())
    }

    async fn begin(&self, sweep: &Sweep, plan: &Plan, place: i64) -> Result<ReleaseOutcome> {
        let settings = usize::try_from(place).ok().and_then(|place| plan.tasks.get(place));
        let Some(settings) = settings else { return Ok(ReleaseOutcome::Later) };
        let id = JobId::new();
        let name = name_of(&sweep.name, settings);
        let spec = plan.spec(id, &sweep.name, settings);
        let mut task = plan.task(sweep.id, settings);
        let mut model = None;
        if let Some(training) = &plan.training {
            let directory = spec.log_directory.as_deref().unwrap_or_default();
            // Boxed: the homes of people are found over a long way.
            let trained = Box::pin(self.training(sweep.owner, training, name.clone(), settings, (id, directory)));
            match trained.await? {
                Ok((program, trained)) => (task.work, model) = (program, Some(Box::new(trained))),
                Err(outcome) => return Ok(outcome),
            }
        }
        let attempt = NewAttempt {
            attempt: Attempt { job: id, number: 1 },
            cause: Cause::Submitted(task.into()),
            hold: None,
            place: Some((sweep.id, place)),
            model,
        };
        Ok(match self.sessions.begin_by_itself(sweep.owner, name, spec, attempt).await? {
            AdmissionOutcome::Judged(Verdict::Admit { .. } | Verdict::Wait(_)) => ReleaseOutcome::Done,
            AdmissionOutcome::Judged(Verdict::Refuse(reasons)) => match reasons.into_iter().next() {
                Some(reason) if !is_for_now(&reason) => ReleaseOutcome::Never(reason.hint),
                _ => ReleaseOutcome::Later,
            },
            // Another round was faster.
            AdmissionOutcome::Repeated(_) | AdmissionOutcome::Overtaken => ReleaseOutcome::Later,
        })
    }

    /// What a task's job runs that trains a model, and that model; or why it is not to be trained now.
    async fn training(
        &self,
        owner: UserId,
        training: &serde_json::Value,
        name: String,
        settings: &Settings,
        (job, directory): (JobId, &str),
    ) -> Result<Result<(JobProgram, (Model, String)), ReleaseOutcome>> {
        let never = |why: &str| Ok(Err(ReleaseOutcome::Never(why.to_owned())));
        let new: NewModel =
            serde_json::from_value(training.clone()).map_err(|_err| db::Error::Stored("sweep's training"))?;
        let Some(owner) = self.db.find_user(owner).await? else { return never("The user was deleted.") };
        // Much may have happened since the sweep was checked.
        let dataset = match self.datasets.find(Actor { user: &owner.user }, new.dataset).await {
            Err(datasets::Error::NotFound) => {
                return never("The dataset was deleted, or is no longer shared with you.");
            }
            found => found?,
        };
        match dataset.state {
            DatasetState::Ready => {}
            DatasetState::Building => return Ok(Err(ReleaseOutcome::Later)),
            DatasetState::Failed | DatasetState::Cancelled => return never("The dataset is no longer complete."),
        }
        let trial = match self.models.trial(&dataset, &new, name, settings) {
            Ok(trial) => trial,
            Err(faults) => {
                let faults: Vec<String> =
                    faults.iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect();
                return never(&faults.join(" "));
            }
        };
        let program = trial.program();
        let model = self.models.trial_model(&owner.user, &dataset, trial, job, directory).await?;
        Ok(Ok((program, model)))
    }

    /// Ends the tasks that run and are worse than half of the others were at their step.
    async fn end_those_behind(&self, sweep: &Sweep, known: &mut HashMap<JobId, Arc<Course>>) -> Result<()> {
        let Some(plan) = self.db.sweep_plan(sweep.id).await? else { return Ok(()) };
        let Some(metric) = plan.metric.filter(|metric| metric.stop_after_step.is_some()) else { return Ok(()) };
        let jobs = self.db.sweep_jobs(sweep.id).await?;
        if !jobs.iter().any(|(_, job)| job.latest.state == SessionState::Running) {
            return Ok(());
        }
        let mut courses: HashMap<JobId, Arc<Course>> = HashMap::with_capacity(jobs.len());
        for (job, run, is_over) in self.db.sweep_runs(sweep.id).await? {
            if !is_over {
                known.remove(&job);
            }
            let course = match known.get(&job) {
                Some(course) => Arc::clone(course),
                None => self.course(&metric, run).await?,
            };
            if is_over {
                known.insert(job, Arc::clone(&course));
            }
            courses.insert(job, course);
        }
        for (_, job) in jobs.iter().filter(|(_, job)| job.latest.state == SessionState::Running) {
            let Some(own) = courses.get(&job.id) else { continue };
            let others: Vec<&Course> =
                courses.iter().filter(|(other, _)| **other != job.id).map(|(_, of)| &**of).collect();
            if let Some((step, best, median)) = behind(&metric, own, &others) {
                let why = format!(
                    "Stopped early: its best {} at step {step} is {best}, the median of the others is {median}",
                    metric.tag
                );
                self.sessions.end_by_itself(&job.latest, &why).await?;
            }
        }
        Ok(())
    }

    /// Ends every task; one that cannot be ended keeps no other from it, and is the round's error.
    async fn end_tasks(&self, id: SweepId) -> Result<()> {
        let mut outcome = Ok(());
        for (_, job) in self.db.sweep_jobs(id).await? {
            outcome = outcome.and(self.end_task(&job).await);
        }
        outcome
    }

    async fn end_task(&self, job: &Job) -> Result<()> {
        if job.retries_left > 0 {
            self.db.settle_job(job.id).await?;
        }
        if job.latest.state.is_live() {
            self.sessions.end_by_itself(&job.latest, "Its sweep was stopped").await?;
        }
        Ok(())
    }

    /// How far a task has come in what they are compared by.
    async fn course(&self, metric: &Metric, run: RunId) -> Result<Arc<Course>> {
        let Metric { tag, goal, .. } = metric.clone();
        let course = move |store: &Store| {
            let series = store.runs.curve(&tag);
            let stretches = series.map(|series| series.by_step(i64::MIN..=i64::MAX, STRETCHES)).unwrap_or_default();
            let range = |stretch: &Bucket| stretch.range.map(|range| (range.min.value, range.max.value));
            Course::new(goal, stretches.iter().map(|stretch| (stretch.last.step, range(stretch))))
        };
        Ok(Arc::new(self.runs.look(run, course).await?))
    }
}

impl TaskProgress {
    /// One word: `waits` for its place in the sweep, or where its job is.
    #[must_use]
    pub fn word(&self) -> &'static str {
        let Some(job) = &self.job else { return "planned" };
        match (job.latest.state, job.outcome()) {
            (SessionState::Ended, Outcome::Succeeded) => "succeeded",
            (SessionState::Ended, Outcome::Cancelled) => "cancelled",
            (SessionState::Ended, Outcome::Failed) => "failed",
            (SessionState::Ended, Outcome::Open) => "queued",
            (state, _) => state.as_str(),
        }
    }
}

/// The task with the best value; the earlier one where two are alike.
#[must_use]
pub fn best<'a>(metric: &Metric, standings: &'a [TaskProgress]) -> Option<&'a TaskProgress> {
    let known = standings.iter().filter_map(|standing| Some((standing, standing.best?.1)));
    let found = match metric.goal {
        Goal::Minimum => known.min_by(|one, other| one.1.total_cmp(&other.1)),
        Goal::Maximum => known.rev().max_by(|one, other| one.1.total_cmp(&other.1)),
    };
    found.map(|(standing, _)| standing)
}

/// Whether a refusal passes by itself.
fn is_for_now(reason: &Reason) -> bool {
    matches!(reason.code, Code::Rule(Rule::Maintenance) | Code::Limit { field: Field::Pending, .. })
}

/// What a task's job is called: the sweep's name and its number, at most 64 characters.
fn name_of(sweep: &str, settings: &Settings) -> String {
    let end = match settings.repeat {
        0 => format!(" #{}", settings.index),
        repeat => format!(" #{}.{repeat}", settings.index),
    };
    let name: String = sweep.chars().take(64 - end.chars().count()).collect();
    format!("{}{end}", name.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tasks_are_short() {
        let settings = |index, repeat| Settings { index, repeat, ..Settings::default() };
        assert_eq!(name_of("lr", &settings(3, 0)), "lr #3");
        assert_eq!(name_of(&"é".repeat(64), &settings(12, 1)).chars().count(), 64);
    }

    #[test]
    fn the_best_of_all() {
        let metric = |goal| Metric { tag: "loss".to_owned(), goal, stop_after_step: None };
        let of = |index: i64, value: Option<f64>| TaskProgress {
            settings: Settings { index, ..Settings::default() },
            job: None,
            model: None,
            best: value.map(|value| (1, value)),
        };
        let all = [of(0, None), of(1, Some(0.5)), of(2, Some(0.2)), of(3, Some(0.5)), of(4, Some(0.2))];
        let index = |goal| best(&metric(goal), &all).map(|standing| standing.settings.index);
        assert_eq!((index(Goal::Minimum), index(Goal::Maximum)), (Some(2), Some(1)));
        assert!(best(&metric(Goal::Minimum), &all[..1]).is_none());
    }
}
