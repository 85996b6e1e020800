//! The Slurm scheduler: each workload is a batch job of its user's, whose script turns into the
//! agent. The portal asks for jobs as the user, through the helper, and learns of them from one
//! look at the whole queue. It remembers nothing that a restart would lose: a job bears a mark
//! by which it is found again, and what nobody can say is unknown. What has to do with this
//! machine and not with nodes (who people are, small errands) is the local scheduler's.

pub mod accounting;
mod accounts;
pub mod assoc_mgr;
mod choices;
mod controller;
mod ending;
mod job;
mod listing;
mod machines;
mod mark;
mod offer;
pub mod qos;
mod queue;
mod reservations;
mod settings;
mod shell;
mod sinfo;
mod size;
mod starts;
mod state;
mod submit;
mod transport;
mod update;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use self::{
    controller::try_out,
    settings::{Quotas, Settings},
};
use self::{
    controller::{Controller, View},
    mark::JobMarks,
    queue::Row,
    state::{JobPhase, why_it_waits},
    submit::Answer,
};
use super::{
    Account, Accounts, Error, Exit, GpuUse, Launch, LifeCycle, ListedWorkloads, Metering, NodeReading, Observation,
    Person, PortalUser, ReportedTime, Result,
    local::{Local, blocking},
};
use lyceum_model::{
    Capacity, Clock, EndReason, Gpu, GpuInventory, GpuWatch, Inventory, SessionId, Timestamp,
    health::NoScheduler,
    session::{Allocation, CountedTime, Placement, WorkloadStarts},
};
use lyceum_node::helper::{client::Launcher, identity};
use lyceum_wire::nodes::Nodes;
use lyceum_wire::protocol::{BatchOrder, Errand, ErrandOutcome, Program, Sample};

/// What the Slurm scheduler works with.
pub struct Config {
    pub settings: Settings,
    pub launcher: Arc<Launcher>,
    /// What is done on this machine.
    pub local: Local,
    /// How agents on nodes are reached.
    pub nodes: Arc<Nodes>,
    /// What marks are made with; the installation's own.
    pub key: Vec<u8>,
    /// Where run directories are, as every node sees them.
    pub run: PathBuf,
    /// `lyceum`, as every node finds it.
    pub program: PathBuf,
    pub service_uid: u32,
    /// How often agents query each GPU of their workload (seconds).
    pub gpu_interval: u32,
    pub clock: Clock,
}

/// What Slurm grants beyond a workload's own time: the app's start before it and its end after
/// it, so that the portal's limit is the one that is felt.
const MARGIN: i64 = 10 * 60;

/// Why a session cannot have more time; Slurm lets nobody else raise a limit.
const FIXED: &str = "The cluster ends it at the time limit that it was submitted with. Only operators of the cluster \
                     can change this limit: start another one before then.";

/// Workloads on a Slurm cluster. A copy is another handle on the same scheduler.
#[derive(Clone)]
pub struct Slurm {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    marks: JobMarks,
    controller: Arc<Controller>,
    /// Sessions whose job this process has handed in, and when; or whose handing in went wrong.
    handed_in: Mutex<HashMap<SessionId, SubmittedJob>>,
    /// When a session's job was told to end, and whether gently.
    told: Mutex<HashMap<SessionId, (Instant, bool)>>,
    /// What jobs held before they were put back into the queue, and how often they were.
    past_starts: Mutex<HashMap<SessionId, (i64, Vec<Allocation>)>>,
    /// Whose turn it is to submit (`true`) or cancel.
    turns: Mutex<HashMap<(String, bool), Arc<Semaphore>>>,
    /// Limits on the number of submitted jobs that were reached, and the sessions that wait for them.
    full: Mutex<HashMap<String, job::JobLimitReached>>,
    turned_away: Mutex<HashSet<SessionId>>,
    /// What sbatch said of jobs that it accepted.
    words: Mutex<HashMap<SessionId, String>>,
    /// What users may choose.
    lister: Arc<choices::Lister>,
}

#[derive(Clone, Copy)]
struct SubmittedJob {
    at: Instant,
    is_sure: bool,
}

impl Slurm {
    /// Asks the controller how large the cluster is. One that does not answer now is no
    /// reason not to start: sessions wait, and `otherwise` says what is offered meanwhile.
    pub async fn open(config: Config, otherwise: Capacity) -> Self {
        let marks = JobMarks::new(&config.key);
        let uid = config.service_uid;
        let account = blocking(move || Ok(identity::name_of(uid))).await.ok().flatten().unwrap_or_default();
        let stock = Inventory::new(otherwise, GpuInventory::default());
        let controller = Controller::start(config.settings.clone(), account, marks.clone(), stock);
        let (_jobs, view) = tokio::join!(controller.refresh(), controller.look_at_nodes());
        if !view.is_ok_and(|view| !size::eligible(&view.nodes, &config.settings.partition).is_empty()) {
            tracing::warn!("size of the cluster unknown until Slurm responds");
        }
        let (handed_in, told, past_starts, turns) = Default::default();
        let (full, turned_away, words, lister) = Default::default();
        let shared =
            Shared { config, marks, controller, handed_in, told, past_starts, turns, full, turned_away, words, lister };
        Self { shared: Arc::new(shared) }
    }

    /// How many commands have gone to the controller since the start.
    pub fn controller_calls(&self) -> u64 {
        self.shared.controller.calls()
    }
}

/// Where a workload's job stands, and on which node; `None` where the controller does not know it.
fn standing(view: &View, session: SessionId, placement: &Placement) -> Option<(JobPhase, String)> {
    let row = view.job(session, u32::try_from(placement.pid).ok())?;
    Some((row.standing.clone(), row.host.clone()))
}

#[async_trait]
impl LifeCycle for Slurm {
    fn trouble(&self) -> Option<NoScheduler> {
        if !self.shared.config.launcher.is_there() {
            return Some(NoScheduler::HelperEnded);
        }
        let view = self.shared.controller.view();
        let why = view.objection()?;
        if view.is_blind {
            return Some(NoScheduler::Hidden(why));
        }
        let seconds = |age: Duration| i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        let now = self.shared.config.clock.now();
        let answered_at = view.answered.map(|at| now.plus_seconds(-seconds(at.elapsed())));
        Some(NoScheduler::Silent { why: view.trouble.clone().unwrap_or(why), answered_at })
    }

    fn run_directory(&self, session: SessionId) -> PathBuf {
        self.shared.run_directory(session)
    }

    async fn launch(&self, launch: Launch) -> Result<Placement> {
        let (this, session) = (&self.shared, launch.session);
        let view = this.controller.refresh().await?;
        if let Some(placement) = this.earlier(&view, &launch).await? {
            return Ok(placement);
        }
        if let Some(why) = this.is_full(&view, &launch) {
            return Err(Error::Full(why));
        }
        let (shape, each) = (&launch.shape, launch.shape.share(launch.resources.clone()));
        let nodes = this.eligible_for(&view, shape);
        if let Some(objection) = size::objection_to(&nodes, &each, launch.seconds, shape) {
            return Err(Error::Refused(objection));
        }
        let granted = launch.seconds.saturating_add(MARGIN);
        let longest = size::longest(&nodes, &size::of_one_node(&each, shape)).unwrap_or(granted);
        let run_directory = this.run_directory(session);
        // They were counted among all nodes of the cluster; a model that its own nodes do not have is not asked for.
        let is_there = |gpu: &Gpu| nodes.iter().any(|node| node.gpus.iter().any(|(model, _)| *model == gpu.model));
        let gpus = if launch.gpus.iter().all(is_there) { &launch.gpus[..] } else { &[] };
        let submission = submit::options(&submit::Job {
            settings: &this.config.settings,
            name: &launch.name,
            group: launch.group.as_deref(),
            mark: &this.marks.of(session, launch.person.uid),
            resources: &each,
            shape,
            gpus,
            has_models: 1 < size::models(&nodes),
            is_command: matches!(launch.app.program, Program::Exec { .. }),
            seconds: granted.min(longest),
            limit: launch.seconds,
            run_directory: &run_directory,
            working_directory: &launch.app.working_directory,
        });
        let script = submit::script(&this.config.program, &run_directory);
        let options = submission.options;
        let agent = serde_json::to_value(this.agent(&launch, submission.hidden))
            .map_err(|err| Error::Refused(format!("failed to write the app's settings: {err}")))?;
        // Whatever comes of it: from here on there may be a job.
        this.handed_in.lock().insert(session, SubmittedJob { at: Instant::now(), is_sure: false });
        this.turned_away.lock().remove(&session);
        let name = &launch.person.unix_name;
        let ran = this.order(session, name, BatchOrder::Submit { options, script, agent }).await?;
        match submit::read(&ran) {
            Answer::Accepted(job) => {
                this.handed_in.lock().insert(session, SubmittedJob { at: Instant::now(), is_sure: true });
                this.controller.nudge();
                let said = submit::complaint(&ran.complaints);
                if !said.is_empty() {
                    this.words.lock().insert(session, said);
                }
                Ok(this.placement(session, launch.person.uid, name.clone(), job, ""))
            }
            Answer::Refused(sentence) => {
                this.handed_in.lock().remove(&session);
                Err(Error::Refused(sentence))
            }
            Answer::Full(said) => {
                this.handed_in.lock().remove(&session);
                Err(Error::Full(this.note_full(&view, &launch, &said)))
            }
            Answer::Unclear(why) => Err(Error::Unavailable(why)),
        }
    }

    fn words(&self, session: SessionId) -> Option<String> {
        self.shared.words.lock().remove(&session)
    }

    async fn find(&self, session: SessionId) -> Result<Option<Placement>> {
        let view = self.shared.controller.refresh().await?;
        match view.job(session, None) {
            Some(row) => self.shared.placement_of(session, row).await.map(Some),
            None => Ok(None),
        }
    }

    async fn list(&self) -> Result<ListedWorkloads> {
        let view = self.shared.view().await.map_err(Error::Unavailable)?;
        let this = Arc::clone(&self.shared);
        blocking(move || {
            let lives = |rows: &Vec<Row>| rows.iter().any(|row| !matches!(row.standing, JobPhase::Ended(_)));
            let leaves = |session: SessionId| this.run_directory(session).exists();
            let held = view.jobs.iter().filter(|(session, rows)| lives(rows) || leaves(**session));
            Ok(ListedWorkloads { sessions: held.map(|(session, _)| *session).collect(), unreadable: Vec::new() })
        })
        .await
    }

    async fn observe(&self, session: SessionId, placement: &Placement) -> Observation {
        let view = match self.shared.view().await {
            Ok(view) => view,
            Err(why) => return Observation::Unknown(why),
        };
        if self.shared.is_before(&view, session) {
            return Observation::Waiting(why_it_waits(""));
        }
        let row = view.job(session, u32::try_from(placement.pid).ok()).cloned();
        match row.as_ref().map(|row| &row.standing) {
            // Slurm holds it for good; a retry of the portal's starts another one.
            Some(JobPhase::Waiting) if row.as_ref().is_some_and(|row| state::is_failed_start(&row.reason)) => {
                let (node, why) = row.map(|row| (row.host, row.reason.replace('_', " "))).unwrap_or_default();
                let node = if node.is_empty() { "its node" } else { &node };
                Observation::Ended(Exit {
                    reason: Some(EndReason::NodeFailure),
                    exit_code: None,
                    signal: None,
                    ended_at: self.shared.config.clock.now(),
                    detail: format!("Slurm could not start it on {node} and holds it: {why}"),
                })
            }
            Some(JobPhase::Waiting) => {
                Observation::Waiting(why_it_waits(&row.map(|row| row.reason).unwrap_or_default()))
            }
            Some(JobPhase::Alive) => Observation::Alive,
            Some(JobPhase::Unknown(word)) => Observation::Unknown(format!(
                "Slurm reports the job state {word}, which this version of Lyceum does not support"
            )),
            Some(JobPhase::Ended(_)) | None => Observation::Ended(self.shared.exit(session, placement, row).await),
        }
    }

    async fn starts(&self, session: SessionId, placement: &Placement) -> Option<WorkloadStarts> {
        self.shared.starts(session, placement).await
    }

    async fn counted_time(&self, session: SessionId, placement: &Placement) -> Option<ReportedTime> {
        let view = self.shared.controller.view();
        let row = view.job(session, u32::try_from(placement.pid).ok())?;
        let ran = row.ran_seconds.filter(|_| row.standing == JobPhase::Alive && !row.host.is_empty())?;
        // What Slurm counts, not when it says that it began: its clock may be another one.
        let age = i64::try_from(view.answered?.elapsed().as_secs()).unwrap_or(i64::MAX);
        let since = self.shared.config.clock.now().plus_seconds(-ran.saturating_add(age));
        let time = CountedTime { since, limit_seconds: row.of_queue.limit_seconds };
        Some(ReportedTime { time, is_suspended: row.is_suspended, asked: view.asked? })
    }

    async fn wait_end(&self, session: SessionId, placement: &Placement) {
        let mut views = self.shared.controller.subscribe();
        let before = standing(&views.borrow(), session, placement);
        loop {
            // First a look: what has happened already changes nothing any more.
            let is_news = {
                let view = views.borrow_and_update();
                let now = standing(&view, session, placement);
                now != before || self.shared.is_ahead(&view, session, placement)
            };
            if is_news || views.changed().await.is_err() {
                return;
            }
        }
    }

    fn grace_seconds(&self) -> i64 {
        self.shared.config.local.grace_seconds()
    }

    fn time_is_fixed(&self) -> Option<&'static str> {
        (self.shared.controller.view().rights < controller::Rights::Operator).then_some(FIXED)
    }

    async fn grant_until(&self, session: SessionId, _placement: &Placement, until: Timestamp) -> Result<()> {
        let Some(row) = self.shared.living(session).await? else {
            return Err(Error::Refused("Its job has ended.".to_owned()));
        };
        // Both are of one look at the queue, or of one soon before: the margin is far longer.
        let more = until.seconds_since(self.shared.config.clock.now()).saturating_add(MARGIN);
        let wanted = row.ran_seconds.unwrap_or_default().saturating_add(more);
        match row.of_queue.limit_seconds {
            Some(limit) if limit < wanted => self.shared.controller.set_limit(row.job, submit::minutes(wanted)).await,
            _ => Ok(()),
        }
    }

    async fn terminate(&self, session: SessionId, _placement: &Placement) -> Result<()> {
        self.shared.cancel(session, true).await
    }

    async fn kill(&self, session: SessionId, _placement: Option<&Placement>) -> Result<()> {
        self.shared.cancel(session, false).await
    }

    async fn clean(&self, session: SessionId) -> Result<()> {
        // What its job still writes to must stay; it is looked at again.
        if self.shared.living(session).await?.is_some() {
            return Ok(());
        }
        self.shared.config.local.clean(session).await?;
        self.shared.handed_in.lock().remove(&session);
        self.shared.told.lock().remove(&session);
        self.shared.past_starts.lock().remove(&session);
        self.shared.turned_away.lock().remove(&session);
        self.shared.words.lock().remove(&session);
        Ok(())
    }
}

#[async_trait]
impl Accounts for Slurm {
    async fn person(&self, user: &PortalUser) -> Result<Person> {
        // Nodes know nothing of an account that was made here.
        let account = match &user.account {
            Account::Made => Account::Hosts { uid: None, spelled: None },
            other => other.clone(),
        };
        self.shared.config.local.person(&PortalUser { account, ..user.clone() }).await
    }

    async fn errand(&self, person: &Person, errand: Errand) -> Result<ErrandOutcome> {
        self.shared.config.local.errand(person, errand).await
    }

    async fn unix_name(&self, uid: u32) -> Option<String> {
        self.shared.config.local.unix_name(uid).await
    }
}

#[async_trait]
impl Metering for Slurm {
    async fn sample(&self, _session: SessionId, _placement: &Placement) -> Option<Sample> {
        None
    }

    async fn processes(&self, _session: SessionId, _placement: &Placement) -> Option<BTreeSet<u32>> {
        None
    }

    async fn eagerness(&self, _session: SessionId, _placement: &Placement) -> Option<f64> {
        None
    }

    async fn gpu_use(&self, _session: SessionId, _placement: &Placement, _gpus: &[Gpu]) -> GpuUse {
        GpuUse::Unmeasured
    }

    fn gpu_watch(&self) -> GpuWatch {
        GpuWatch::default()
    }

    fn closes_gpus(&self) -> bool {
        false
    }

    async fn node(&self) -> NodeReading {
        self.shared.config.local.node().await
    }
}
