//! Tests of GPUs and of storage: a run is a job of the user who requests it, with the quotas and the queue of any job. Inside it
//! `lyceum diagnose` queries the driver and the Python program `diagnostics` measures; when it has ended, the first one
//! who looks has the results read as their owner, judged and written down. Results come from a user's files and are
//! shown, nothing else. Storage has a module of its own.

mod storage;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use lyceum_db::{
    self as db, Db,
    audit::Entry,
    diagnostics::{DiagnosticsFilter, Outcome},
};
use lyceum_model::{
    Clock, DiagnosticsId, EndReason, FieldError, Gpu, Job, Resources, Role, User,
    diagnostics::{
        Baseline, Diagnostics, DriverReport, Evidence, Installed, Level, Measured, Measurement, RunState, Subject,
        judge,
    },
    files::RawPath,
    size::human_size,
};

pub use storage::{NewStorageTest, PastStorage};

use crate::{
    datasets::{self, Datasets},
    files::{self, Files},
    jobs::{self, Changes, JobRequest, Jobs},
    sessions::Actor,
};

/// More GPUs than one machine has.
const MAX_GPUS: i64 = 64;
/// The largest file of results that is read (bytes).
const MAX_RESULT_LENGTH: u64 = 1 << 20;
/// How many runs of a list have their results read at once.
const SETTLED_AT_ONCE: usize = 8;
/// How many earlier runs of a GPU are looked at.
const MAX_PAST_RUNS: i64 = 50;
/// Between the row and its job is a moment; where it lasts, the portal was killed in it (seconds).
const SUBMIT_TIMEOUT: i64 = 120;
/// The tag that tells these jobs from others.
const TAG: &str = "diagnostics";
/// What the job's program is called in its environment, and the driver library of its node.
const PROGRAM: &str = "DIAGNOSE_PROGRAM";

const SCRIPT: &str = "#!/bin/sh
# Tests the GPUs of this job (docs/gpus.md).
mkdir -p \"$LYCEUM_LOG_DIRECTORY\" && cd \"$LYCEUM_LOG_DIRECTORY\" || exit 4
export CUDA_DEVICE_ORDER=PCI_BUS_ID
\"$DIAGNOSE_PROGRAM\" diagnose > before.new && mv before.new before.json
python -m diagnostics --level \"$LEVEL\" --output measured.json
status=$?
if [ \"$LEVEL\" = long ]; then
  python -m diagnostics.installed --report before.json --output installed.json || status=$?
fi
\"$DIAGNOSE_PROGRAM\" diagnose > after.new && mv after.new after.json
exit $status
";

/// A request for a run.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NewDiagnostics)]
pub struct NewDiagnostics {
    /// Default: `medium`.
    pub level: Option<Level>,
    /// Number of GPUs. Default: 1.
    pub gpus: Option<i64>,
    /// Model of the GPUs. Default: any.
    pub gpu_model: Option<String>,
    /// A software environment with JAX. Default: the default environment.
    pub environment: Option<String>,
    /// The group to charge, one of your groups.
    pub group: Option<String>,
}

/// What the service is made of.
pub struct HardwareTests {
    db: Db,
    clock: Clock,
    jobs: Arc<Jobs>,
    files: Arc<Files>,
    datasets: Arc<Datasets>,
    /// The folder that holds the Python package, where every node can read it.
    package: PathBuf,
    /// Our own program, where workloads may run it.
    program: PathBuf,
    /// Another driver library than the one that the node's linker finds.
    library: Option<PathBuf>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("diagnostics run not found")]
    NotFound,
    #[error("invalid diagnostics request")]
    Invalid(Vec<FieldError>),
    #[error("the files of the diagnostics run cannot be reached")]
    Files(#[from] files::Error),
    #[error("the dataset cannot be used")]
    Dataset(#[from] datasets::Error),
    #[error("the job could not be submitted")]
    Jobs(#[from] jobs::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

/// What a GPU did in earlier runs, the latest first.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = DiagnosticsPastRun)]
pub struct PastRun {
    #[schema(value_type = String, format = "uuid")]
    pub id: DiagnosticsId,
    #[schema(value_type = String, format = "date-time")]
    pub ended_at: lyceum_model::Timestamp,
    pub measurement: Measurement,
}

impl HardwareTests {
    #[must_use]
    pub fn new(
        jobs: &Arc<Jobs>,
        files: &Arc<Files>,
        datasets: &Arc<Datasets>,
        program: &Path,
        library: Option<PathBuf>,
    ) -> Arc<Self> {
        Arc::new(Self {
            db: jobs.db.clone(),
            clock: jobs.sessions.clock.clone(),
            jobs: jobs.clone(),
            files: files.clone(),
            datasets: datasets.clone(),
            package: jobs.sessions.config.installed.trainer.clone(),
            program: program.to_owned(),
            library,
        })
    }

    /// Tests GPUs: writes a run down and submits its job.
    pub async fn start(&self, actor: Actor<'_>, new: NewDiagnostics) -> Result<Diagnostics> {
        let level = new.level.unwrap_or(Level::Medium);
        let gpus = new.gpus.unwrap_or(1);
        if !(1..=MAX_GPUS).contains(&gpus) {
            let message = format!("Must be from 1 to {MAX_GPUS}.");
            return Err(Error::Invalid(vec![FieldError::new("gpus", "out_of_range", message)]));
        }
        let request = self.request(level, gpus, new);
        self.submit(actor, Subject::Gpus { level, gpus }, request, &format!("{level}, {gpus} GPUs")).await
    }

    /// Writes a run down and submits its job. `detail` is for the audit log.
    async fn submit(
        &self,
        actor: Actor<'_>,
        subject: Subject,
        request: JobRequest,
        detail: &str,
    ) -> Result<Diagnostics> {
        // What cannot be is told before anything is written.
        self.jobs.rehearse(actor, request.clone()).await.map_err(in_our_words)?;
        let user = actor.user;
        let roots = self.files.roots(user).await?;
        let home = roots.first().map(|root| root.path.clone()).unwrap_or_default();
        let now = self.clock.now();
        let run = Diagnostics {
            id: DiagnosticsId::new(),
            owner: user.id,
            owner_name: user.name.to_string(),
            job: None,
            subject,
            state: RunState::Running,
            detail: String::new(),
            node: String::new(),
            driver: String::new(),
            judgement: None,
            created_at: now,
            ended_at: None,
        };
        let subject = run.id.to_string();
        let noted =
            Entry { at: now, actor: user.name.as_str(), action: "diagnostics.start", subject: &subject, detail };
        self.db.add_diagnostics(&run, &noted).await?;
        match self.jobs.submit(actor, request, Some(&format!("diagnostics {}", run.id))).await {
            Ok(job) => {
                self.db.set_diagnostics_job(run.id, job.id, &log_directory(&home, &job)).await?;
                let mark = Changes { tags: Some(vec![TAG.to_owned()]), ..Changes::default() };
                self.jobs.change(actor, job.id, mark).await?;
            }
            Err(error) => {
                let refused = failed("The job was rejected.");
                self.db.settle_diagnostics(run.id, &refused, self.clock.now()).await?;
                return Err(in_our_words(error));
            }
        }
        self.db.find_diagnostics(run.id).await?.ok_or(Error::NotFound)
    }

    fn request(&self, level: Level, gpus: i64, new: NewDiagnostics) -> JobRequest {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut variables: BTreeMap<String, String> = [
            ("PYTHONPATH".to_owned(), text(&self.package)),
            ("PYTHONSAFEPATH".to_owned(), "1".to_owned()),
            ("LEVEL".to_owned(), level.to_string()),
            (PROGRAM.to_owned(), text(&self.program)),
        ]
        .into();
        variables.extend(self.library.as_deref().map(|path| (LIBRARY.to_owned(), text(path))));
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        JobRequest {
            name: Some(format!("diagnose {gpus} {}", if gpus == 1 { "GPU" } else { "GPUs" })),
            script: Some(SCRIPT.to_owned()),
            variables: Some(variables),
            environment: given(new.environment),
            group: given(new.group),
            resources: Some(Resources {
                gpus,
                gpu_model: given(new.gpu_model),
                cpus: 2,
                memory_bytes: memory_bytes(level, gpus),
            }),
            time_limit_seconds: Some(time_limit_seconds(level)),
            is_helper: true,
            ..JobRequest::default()
        }
    }

    /// A run that this person may look at, with its state as it is by now.
    pub async fn find(&self, actor: Actor<'_>, id: DiagnosticsId) -> Result<Diagnostics> {
        let found = self.db.find_diagnostics(id).await?.ok_or(Error::NotFound)?;
        if found.owner != actor.user.id && actor.user.role < Role::Operator {
            return Err(Error::NotFound);
        }
        self.settled(found).await
    }

    /// One's own runs, or for operators those of everybody; the latest first.
    pub async fn list(&self, actor: Actor<'_>, before: Option<DiagnosticsId>, limit: i64) -> Result<Vec<Diagnostics>> {
        let owner = Some(actor.user.id).filter(|_| actor.user.role < Role::Operator);
        let found = self.db.list_diagnostics(DiagnosticsFilter { owner, tested: None, before, limit }).await?;
        // The files of one owner may be slow or broken, which must not keep the other runs from the list.
        let settle = |run: Diagnostics| async move {
            let as_it_was = run.clone();
            self.settled(run).await.unwrap_or_else(|error| {
                let (id, error) = (as_it_was.id, &error as &dyn std::error::Error);
                tracing::warn!(run = %id, error, "the results of a diagnostics run could not be read; it stays running");
                as_it_was
            })
        };
        Ok(stream::iter(found).map(settle).buffered(SETTLED_AT_ONCE).collect().await)
    }

    /// Asks for the end of a run's job; one that has ended already is fine. Operators may end others'.
    pub async fn cancel(&self, actor: Actor<'_>, id: DiagnosticsId) -> Result<Diagnostics> {
        let run = self.find(actor, id).await?;
        if let Some(job) = run.job.filter(|_| run.state == RunState::Running) {
            self.jobs.cancel(actor, job).await?;
        }
        self.find(actor, id).await
    }

    /// What a run measured.
    pub async fn results(&self, actor: Actor<'_>, run: &Diagnostics) -> Result<Option<Value>> {
        if run.owner != actor.user.id && actor.user.role < Role::Operator {
            return Err(Error::NotFound);
        }
        let text = self.db.diagnostics_results(run.id).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// How far the job of a run is: its last line of progress, as (part, done, of).
    pub async fn progress(&self, run: &Diagnostics) -> Result<Option<(String, u64, u64)>> {
        let Some(id) = run.job.filter(|_| run.state == RunState::Running) else { return Ok(None) };
        let Some(job) = self.db.find_job(id).await? else { return Ok(None) };
        Ok(last_progress(&self.jobs.log_tail(&job, None, 16 * 1024).await?))
    }

    /// Earlier runs of each GPU before a run, or before now.
    pub async fn past(&self, gpus: &[Gpu], before: Option<DiagnosticsId>) -> Result<BTreeMap<String, Vec<PastRun>>> {
        let mut past = BTreeMap::new();
        for gpu in gpus.iter().filter(|gpu| is_known(gpu)) {
            let filter = DiagnosticsFilter { owner: None, tested: Some(&gpu.uuid), before, limit: MAX_PAST_RUNS };
            let own = |run: Diagnostics| {
                let judged = run.judgement?.gpus.into_iter().find(|one| one.gpu.uuid == gpu.uuid)?;
                Some(PastRun { id: run.id, ended_at: run.ended_at?, measurement: judged.measurement? })
            };
            let runs = self.db.list_diagnostics(filter).await?.into_iter().filter_map(own).collect();
            past.insert(gpu.uuid.clone(), runs);
        }
        Ok(past)
    }

    /// Looks what came of a run whose job has ended. Nobody needs to know before somebody asks.
    async fn settled(&self, run: Diagnostics) -> Result<Diagnostics> {
        if run.state != RunState::Running {
            return Ok(run);
        }
        let now = self.clock.now();
        let outcome = match run.job {
            None if now < run.created_at.plus_seconds(SUBMIT_TIMEOUT) => return Ok(run),
            None => failed("The portal stopped before the job was submitted. Start the test again."),
            Some(id) => match self.db.find_job(id).await? {
                Some(job) if job.latest.state.is_live() => return Ok(run),
                None => failed("The job was deleted before its results were read."),
                Some(job) => match self.outcome(&run, &job).await {
                    Ok(outcome) => outcome,
                    // Its files cannot be reached now; the next one who asks will see.
                    Err(Error::Files(error)) => {
                        tracing::info!(
                            error = &error as &dyn std::error::Error,
                            "files of a diagnostics run unreachable; its state stays running"
                        );
                        return Ok(run);
                    }
                    Err(error) => return Err(error),
                },
            },
        };
        self.db.settle_diagnostics(run.id, &outcome, now).await?;
        self.db.find_diagnostics(run.id).await?.ok_or(Error::NotFound)
    }

    async fn outcome(&self, run: &Diagnostics, job: &Job) -> Result<Outcome> {
        if let Some(EndReason::StoppedByOwner | EndReason::StoppedByAdmin) = job.latest.end_reason {
            return Ok(Outcome { state: RunState::Stopped, ..failed("") });
        }
        let owner = self.db.find_user(run.owner).await?.ok_or(Error::NotFound)?.user;
        let folder = self.db.diagnostics_directory(run.id).await?.unwrap_or_default();
        match &run.subject {
            Subject::Gpus { level, .. } => self.outcome_of_gpus(run, *level, job, &owner, &folder).await,
            Subject::Storage(storage) => self.outcome_of_storage(run, storage, job, &owner, &folder).await,
        }
    }

    async fn outcome_of_gpus(
        &self,
        run: &Diagnostics,
        level: Level,
        job: &Job,
        owner: &User,
        folder: &str,
    ) -> Result<Outcome> {
        let before = self.read(owner, folder, "before.json").await?;
        let measured = self.read(owner, folder, "measured.json").await?;
        let installed = self.read(owner, folder, "installed.json").await?;
        let after = self.read(owner, folder, "after.json").await?;
        let is_whole = measured.is_some() && (level != Level::Long || installed.is_some());
        let failure = if is_whole { String::new() } else { self.failure(job).await? };
        if before.is_none() && measured.is_none() {
            let detail = if failure.is_empty() { "See the log of the job.".to_owned() } else { failure };
            return Ok(failed(&detail));
        }
        let [report, last] = [&before, &after].map(|found| read_as::<DriverReport>(found.as_ref()));
        let document = read_as::<Measured>(measured.as_ref());
        let found = read_as::<Installed>(installed.as_ref());
        let node = report.as_ref().map(|report| report.node.clone()).unwrap_or_default();
        let known = held_gpus(&job.latest.gpus, report.as_ref());
        let past = self.past(&known, Some(run.id)).await?;
        let baseline = |runs: &Vec<PastRun>| Baseline::of(&runs.iter().map(|one| one.measurement).collect::<Vec<_>>());
        let past = past.iter().map(|(uuid, runs)| (uuid.clone(), baseline(runs))).collect();
        let judgement = judge(&Evidence {
            level,
            held: &known,
            before: report.as_ref(),
            after: last.as_ref(),
            measured: document.as_ref(),
            installed: found.as_ref(),
            failure: &failure,
            past: &past,
        });
        let results = json!({ "version": 1, "before": before, "measured": measured, "installed": installed,
            "after": after });
        Ok(Outcome {
            state: RunState::Finished,
            detail: String::new(),
            node: node.chars().take(255).collect(),
            driver: report.map(|report| report.driver.chars().take(64).collect()).unwrap_or_default(),
            judgement: Some(judgement),
            results: Some(results.to_string()),
        })
    }

    /// Why a job wrote no result.
    async fn failure(&self, job: &Job) -> Result<String> {
        let log = self.jobs.log_tail(job, None, 16 * 1024).await?;
        Ok(match job.latest.end_reason {
            Some(EndReason::TimeLimit) => "it did not end within the time limit of the job".to_owned(),
            _ if last_words(&log).as_deref() == Some("Killed") => {
                let memory = human_size(job.latest.spec.resources.memory_bytes);
                format!("it was killed, probably because it needed more than the {memory} of memory of its job")
            }
            _ => last_words(&log).or_else(|| job.latest.detail.clone()).unwrap_or_default(),
        })
    }

    async fn read(&self, owner: &User, folder: &str, name: &str) -> Result<Option<Value>> {
        if folder.is_empty() {
            return Ok(None);
        }
        let path = RawPath::from(Path::new(folder).join(name).as_path());
        let found = self.files.read_json(owner, &path, MAX_RESULT_LENGTH).await?;
        Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

/// The memory of the host that a run needs: JAX with CUDA alone takes 2 GiB, and more to compare what comes back from
/// a GPU. A run of one H200 was killed with 3 GiB.
const fn memory_bytes(level: Level, gpus: i64) -> i64 {
    match level {
        Level::Quick => (2 + gpus) << 30,
        Level::Medium | Level::Long => (6 + 2 * gpus) << 30,
    }
}

/// The installed programs of the level `long` have an hour together (`diagnostics/installed.py`).
const fn time_limit_seconds(level: Level) -> i64 {
    match level {
        Level::Quick => 600,
        Level::Medium => 1800,
        Level::Long => 1800 + 3600 + 300,
    }
}

/// The variable that names another driver library (`lyceum diagnose`).
pub const LIBRARY: &str = "DIAGNOSE_NVML";

/// The GPUs that a run is about: those that the portal gave it. Where the portal only counts GPUs, or a cluster chooses
/// by itself, it has no UUIDs of the driver's, and the report names them.
fn held_gpus(given: &[Gpu], report: Option<&DriverReport>) -> Vec<Gpu> {
    match report.filter(|report| !report.gpus.is_empty()) {
        Some(report) if given.is_empty() || !given.iter().all(is_known) => {
            report.gpus.iter().map(|one| one.gpu.clone()).collect()
        }
        _ => given.to_vec(),
    }
}

/// Whether it has a UUID of the driver's: GPUs that are only counted have no past of their own.
fn is_known(gpu: &Gpu) -> bool {
    ["GPU-", "MIG-"].iter().any(|start| gpu.uuid.starts_with(start))
}

fn read_as<T: serde::de::DeserializeOwned>(found: Option<&Value>) -> Option<T> {
    found.and_then(|value| T::deserialize(value).ok())
}

fn failed(detail: &str) -> Outcome {
    Outcome {
        state: RunState::Failed,
        detail: detail.to_owned(),
        node: String::new(),
        driver: String::new(),
        judgement: None,
        results: None,
    }
}

/// The form of a run names fewer fields than that of a job.
fn in_our_words(error: jobs::Error) -> Error {
    let jobs::Error::Invalid(faults) = error else { return Error::Jobs(error) };
    let renamed = faults.into_iter().map(|fault| {
        let field = match fault.field.as_str() {
            "resources.gpus" => "gpus".to_owned(),
            "resources.gpu_model" => "gpu_model".to_owned(),
            "resources.cpus" => "cpus".to_owned(),
            _ => fault.field,
        };
        FieldError { field, ..fault }
    });
    Error::Invalid(renamed.collect())
}

/// A job's directory of logs from the top of the file system on.
fn log_directory(home: &Path, job: &Job) -> String {
    let below = job.latest.spec.log_directory.as_deref().unwrap_or_default();
    home.join(below.strip_prefix("~/").unwrap_or(below)).to_string_lossy().into_owned()
}

/// The last line of a log that is not one of the program's own.
fn last_words(log: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(log);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('{'))?;
    Some(last.chars().filter(|c| !c.is_control()).take(300).collect())
}

fn last_progress(log: &[u8]) -> Option<(String, u64, u64)> {
    let text = String::from_utf8_lossy(log);
    text.lines().rev().find_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let part: String = line["part"].as_str()?.chars().take(32).collect();
        (line["event"] == "progress").then_some((part, line["done"].as_u64()?, line["of"].as_u64()?))
    })
}

#[cfg(test)]
mod tests {
    use lyceum_model::diagnostics::DriverGpu;

    use super::*;

    #[test]
    fn what_a_log_says() {
        let log = b"{\"event\": \"progress\", \"part\": \"host\", \"done\": 0, \"of\": 6}\nKilled\n\
            {\"event\": \"progress\", \"part\": \"links\", \"done\": 1, \"of\": 6}\n{\"event\": \"measured\"}\n";
        assert_eq!(last_progress(log), Some(("links".to_owned(), 1, 6)));
        assert_eq!(last_words(log).as_deref(), Some("Killed"));
        assert_eq!((last_progress(b"x\n{}"), last_words(b"{}\n \n")), (None, None));
    }

    #[test]
    fn a_cluster_names_its_gpus_in_the_report() {
        let gpu = |uuid: &str| Gpu { uuid: uuid.to_owned(), ..Gpu::default() };
        let one = |uuid: &str| DriverGpu { gpu: gpu(uuid), ..DriverGpu::default() };
        let report = DriverReport { gpus: vec![one("GPU-a")], ..DriverReport::default() };
        let uuids = |given: &[&str], report: Option<&DriverReport>| -> Vec<String> {
            let given: Vec<Gpu> = given.iter().map(|uuid| gpu(uuid)).collect();
            held_gpus(&given, report).into_iter().map(|gpu| gpu.uuid).collect()
        };
        assert_eq!(uuids(&["GPU-b", "GPU-c"], Some(&report)), ["GPU-b", "GPU-c"], "a report may lie");
        assert_eq!(uuids(&["slurm-0"], Some(&report)), ["GPU-a"]);
        assert_eq!(uuids(&[], Some(&report)), ["GPU-a"]);
        assert_eq!(uuids(&["counted-0"], Some(&DriverReport::default())), ["counted-0"]);
        assert_eq!(uuids(&["counted-0"], None), ["counted-0"]);
    }

    #[test]
    fn the_script_is_one_of_sh() {
        let checked = std::process::Command::new("sh").args(["-n", "-c", SCRIPT]).status();
        assert!(checked.unwrap().success());
        assert!(SCRIPT.contains(&format!("${PROGRAM}")));
    }
}
