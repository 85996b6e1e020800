//! Where workloads run. Traits, because there are several real schedulers: this machine
//! (`local`) and Slurm clusters (`slurm`), later containers. They speak of sessions by id, of processes
//! by placement, and never of quotas, people's rights or the database.

pub mod link;
pub mod local;
mod parts;
pub mod run_space;
pub mod slurm;

use std::time::Instant;

use lyceum_model::{EndReason, Gpu, Resources, SessionId, Timestamp, User, job::Shape, session::CountedTime};
use lyceum_wire::protocol::{AppLaunch, HomeSetup};

pub use self::parts::{Accounts, BatchQueue, ClusterInfo, LifeCycle, Metering, Transport};
pub use lyceum_model::user::Person;

/// A whole scheduler: all parts of one. Take a part where that is enough.
pub trait Scheduler: ClusterInfo + Accounts + LifeCycle + BatchQueue + Transport + Metering {}

impl<T: ClusterInfo + Accounts + LifeCycle + BatchQueue + Transport + Metering> Scheduler for T {}

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
pub struct ListedWorkloads {
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

/// What a batch system said of a running workload's time.
#[derive(Clone, Copy, Debug)]
pub struct ReportedTime {
    pub time: CountedTime,
    /// Its time stands still.
    pub is_suspended: bool,
    /// When the batch system was asked.
    pub asked: Instant,
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
