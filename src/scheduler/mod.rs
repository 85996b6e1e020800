//! Where workloads run. One trait, because there are several real schedulers: this machine
//! (`local`) and Slurm clusters (`slurm`), later containers. The trait speaks of sessions by id, of processes
//! by placement, and never of quotas, people's rights or the database.

pub mod link;
pub mod local;
pub mod room;
pub mod slurm;

use std::collections::BTreeSet;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

use crate::{
    model::{
        Capacity, EndReason, Gpu, GpuWatch, Machines, Queue, QueueId, Resources, SessionId, Stock, Timestamp, User,
        health::NoScheduler,
        job::Shape,
        queue::ShellJob,
        session::{Placement, Starts},
    },
    protocol::{AgentStatus, AppLaunch, Errand, Found, HomeSetup, Sample, log::Log},
};

pub use crate::model::user::Person;

/// Starts, watches and ends workloads. Every call is safe to repeat.
#[async_trait]
pub trait Scheduler: Send + Sync {
    /// The cluster's name: `local` here.
    fn cluster(&self) -> &str;

    /// What there is in all; a cluster's may change.
    fn stock(&self) -> &Stock;

    /// The most of each that one workload can have: where there are several machines, less than
    /// there is in all.
    fn largest(&self) -> Capacity {
        self.stock().capacity()
    }

    /// The same for a job of this shape, whose own options may name other machines.
    fn largest_for(&self, _shape: &Shape) -> Capacity {
        self.largest()
    }

    /// How long one that asks for this may run at most (seconds), where the scheduler itself limits it.
    fn longest_seconds(&self, _resources: &Resources) -> Option<i64> {
        None
    }

    /// The same for a job of this shape, whose own options may name other machines; the resources are those of
    /// each node.
    fn longest_for(&self, resources: &Resources, _shape: &Shape) -> Option<i64> {
        self.longest_seconds(resources)
    }

    /// The machines and their partitions, where there are several; `None` for one machine,
    /// which [`Scheduler::node`] tells of.
    async fn machines(&self) -> Option<Machines> {
        None
    }

    /// Whether it has a queue of its own: a workload that was launched may wait there for long,
    /// and has not begun before it is alive.
    fn has_queue(&self) -> bool {
        false
    }

    /// What waits and runs in that queue, also what the portal knows nothing of; `None` where
    /// there is none.
    async fn queue(&self) -> Option<Queue> {
        None
    }

    /// What the batch system's jobs hold, and what those held that ended lately, whoever handed them in;
    /// `None` where there is none, or nobody answers.
    async fn shell_jobs(&self) -> Option<Vec<ShellJob>> {
        None
    }

    /// The same of those that ended since a moment, as the accounts tell; `None` where there are none.
    async fn shell_jobs_since(&self, _since: Timestamp) -> Option<Vec<ShellJob>> {
        None
    }

    /// Ends a job of the queue, as the person: whose it is, the batch system judges.
    async fn cancel_queued(&self, _person: &Person, _id: QueueId) -> Result<()> {
        Err(Error::Refused("there is no queue of a batch system here".to_owned()))
    }

    /// Why this could never run here, as a sentence with the numbers; `None` where it can, or
    /// where admission knows as well. The resources are those of each node.
    fn objection(&self, _resources: &Resources, _seconds: i64, _shape: &Shape) -> Option<String> {
        None
    }

    /// Why nothing can be started or ended now, as far as the last request showed.
    fn trouble(&self) -> Option<NoScheduler>;

    /// Who a user's workloads run as: name service facts, an account made on first need.
    async fn person(&self, user: &PortalUser) -> Result<Person>;

    /// Does something small with a person's files, as that person.
    async fn errand(&self, person: &Person, errand: Errand) -> Result<Found>;

    /// Where this session's sockets and log will be: known before the launch.
    fn run_directory(&self, session: SessionId) -> std::path::PathBuf;

    /// Starts the workload, or finds it already started: never starts it twice.
    async fn launch(&self, launch: Launch) -> Result<Placement>;

    /// The placement of a session that was launched, also when the portal forgot it.
    async fn find(&self, session: SessionId) -> Result<Option<Placement>>;

    /// Every session this portal's scheduler holds anything of: processes or leftovers.
    async fn list(&self) -> Result<Listed>;

    async fn observe(&self, session: SessionId, placement: &Placement) -> Observation;

    /// What a workload really holds, or held, and since when, in each of its starts; `None` where that
    /// is what was asked for, or nobody knows any more.
    async fn starts(&self, _session: SessionId, _placement: &Placement) -> Option<Starts> {
        None
    }

    /// What the scheduler counts of the workload's time. `None` where its limit counts from the first answer, or
    /// nobody can be asked.
    async fn counted_time(&self, _session: SessionId, _placement: &Placement) -> Option<CountedTime> {
        None
    }

    /// Comes back when the workload's agent has ended, or when it has got a node that its placement does not
    /// name yet; at once where that is so already. Only a hint to [`Scheduler::observe`] soon: it may also
    /// come back early.
    async fn wait_end(&self, session: SessionId, placement: &Placement);

    /// How long a workload that was asked to end may take (seconds).
    fn grace_seconds(&self) -> i64;

    /// Why the time of a workload that runs cannot be moved, as a sentence for its owner; `None`
    /// where it can.
    fn time_is_fixed(&self) -> Option<&'static str> {
        None
    }

    /// Sees to it that the scheduler leaves a workload alone until then, and a while longer, so
    /// that the portal ends it; what it is granted never becomes less.
    async fn grant_until(&self, _session: SessionId, _placement: &Placement, _until: Timestamp) -> Result<()> {
        Ok(())
    }

    /// Asks the workload to end within its grace time.
    async fn terminate(&self, session: SessionId, placement: &Placement) -> Result<()>;

    /// Ends everything that belongs to the session, now.
    async fn kill(&self, session: SessionId, placement: Option<&Placement>) -> Result<()>;

    /// Removes what an ended session left on the node.
    async fn clean(&self, session: SessionId) -> Result<()>;

    /// What the agent tells, from its present state on; ends when the connection does. The
    /// agent belongs to the user and may lie.
    async fn events(&self, session: SessionId, placement: &Placement) -> Result<BoxStream<'static, AgentStatus>>;

    /// One GET on a socket of the workload's run directory; the body of a 2xx answer, `None`
    /// where the app has nothing at that path (404), or refuses us (401, 403, a redirection).
    async fn ask(
        &self,
        session: SessionId,
        placement: &Placement,
        socket: &str,
        path: &str,
        authorization: Option<&str>,
    ) -> Result<Option<Vec<u8>>>;

    /// What the workload's agent tells of curves below a directory, from `places` on, as frames cut
    /// anywhere; ends when the connection does. The agent belongs to the user and may lie.
    async fn curves(
        &self,
        session: SessionId,
        placement: &Placement,
        directory: &str,
        places: Bytes,
    ) -> Result<BoxStream<'static, Bytes>>;

    /// For which part of the time (0 to 1) the most eager of the workload's threads has run or
    /// waited for a core, since this was asked before (a second, at first); `None` where nobody
    /// tells.
    async fn eagerness(&self, session: SessionId, placement: &Placement) -> Option<f64>;

    /// How busy the workload has kept its GPUs since this was asked before.
    async fn gpu_use(&self, session: SessionId, placement: &Placement, gpus: &[Gpu]) -> GpuUse;

    /// What the driver said last of every GPU, from memory.
    fn gpu_watch(&self) -> GpuWatch;

    /// Whether a workload is kept from the GPUs of others by more than its good will.
    fn closes_gpus(&self) -> bool;

    /// The pids of a workload's processes; `None` where nobody can tell.
    async fn processes(&self, session: SessionId, placement: &Placement) -> Option<BTreeSet<u32>>;

    /// What an account is called; `None` where no name is known.
    async fn unix_name(&self, uid: u32) -> Option<String>;

    /// What the machine is and does now.
    async fn node(&self) -> NodeReading;

    /// What the workload uses, from a source its user cannot forge; `None` where there is none.
    async fn sample(&self, session: SessionId, placement: &Placement) -> Option<Sample>;

    /// The workload's log, opened for reading; `None` where there is none yet, or none any more. The file is
    /// the user's.
    async fn log(&self, session: SessionId, placement: &Placement) -> Result<Option<Log>>;

    /// The last `bytes` of the workload's log.
    async fn log_tail(&self, session: SessionId, placement: &Placement, bytes: u64) -> Result<Vec<u8>> {
        let Some(log) = self.log(session, placement).await? else { return Ok(Vec::new()) };
        let read = tokio::task::spawn_blocking(move || log.tail(bytes)).await;
        read.map_err(|error| Error::Unavailable(format!("a task failed: {error}")))?
            .map_err(|source| Error::Io { doing: "reading the log".to_owned(), source })
    }
}

/// What a scheduler needs to know of somebody.
#[derive(Clone, Debug)]
pub struct PortalUser {
    pub name: String,
    pub account: Account,
}

/// Which Unix account somebody's workloads run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// An administrator named it.
    Named(String),
    /// One is made on first need, where this machine allows it.
    Made,
    /// The one that the host knows by the name as the directory spells it, or else by the name
    /// here; where the directory gives a uid, it is this one.
    Hosts { uid: Option<u32>, spelled: Option<String> },
}

impl From<&User> for PortalUser {
    fn from(user: &User) -> Self {
        let account = match &user.unix_name {
            Some(name) => Account::Named(name.clone()),
            None if user.is_local() => Account::Made,
            None => Account::Hosts { uid: user.uid_number, spelled: user.directory_unix_name.clone() },
        };
        Self { name: user.name.to_string(), account }
    }
}

/// A workload to start.
#[derive(Clone, Debug)]
pub struct Launch {
    pub session: SessionId,
    /// What its owner calls it.
    pub name: String,
    /// The name of the group that is charged.
    pub group: Option<String>,
    /// How long it may run; who ends it then is the portal, where it can.
    pub seconds: i64,
    pub person: Person,
    /// Of all its nodes together.
    pub resources: Resources,
    pub shape: Shape,
    pub gpus: Vec<Gpu>,
    pub app: AppLaunch,
    pub home: HomeSetup,
}

/// Alive, dead or unknown. Unknown never ends a session and never frees quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// In the scheduler's own queue; why, as a sentence.
    Waiting(String),
    Alive,
    Ended(Exit),
    /// Why nobody could be asked.
    Unknown(String),
}

/// What a scheduler holds.
#[derive(Debug, Default)]
pub struct Listed {
    pub sessions: Vec<SessionId>,
    /// Records that cannot be read, by their paths: what they are of is unknown, and the others are listed.
    pub unreadable: Vec<(String, std::io::Error)>,
}

/// How busy a workload keeps its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuUse {
    /// It has none, or no driver stands behind them: nothing can be measured, now or later.
    Unmeasured,
    /// The busiest of them, with its own processes, in percent.
    Percent(u32),
    /// The driver did not answer.
    Unknown,
}

/// A machine at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeReading {
    pub name: String,
    /// Processes that run or want to, on average over the last minute.
    pub load: Option<f64>,
    pub memory_available_bytes: Option<i64>,
}

/// How a workload ended, as the scheduler saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// `None` where it ended because it was asked to: the portal knows by whom.
    pub reason: Option<EndReason>,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub ended_at: Timestamp,
    pub detail: String,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a scheduler of its own counts of a workload's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedTime {
    /// Since when it has run, later by as long as it was suspended.
    pub since: Timestamp,
    /// For how long it may run (seconds): what was asked for and more, unless the site or somebody has set less.
    /// `None`: for ever.
    pub limit_seconds: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request can never work as it is; the sentence is for the user.
    #[error("{0}")]
    Refused(String),
    /// There is no room for it now, and it was not started; the sentence is for the user.
    #[error("{0}")]
    Full(String),
    /// Nobody could be asked; trying again later may help.
    #[error("the scheduler cannot be reached: {0}")]
    Unavailable(String),
    #[error("{doing}")]
    Io {
        doing: String,
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// The error with its cause, for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::Io { doing, source } => format!("{doing}: {source}"),
            other => other.to_string(),
        }
    }
}
