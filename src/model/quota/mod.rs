//! Quotas: what one person may use, and the pure decision about a request: the types here,
//! [`decide`] in `decide`, which row of the table binds in `limits`. Reading the numbers, and
//! reserving in the same transaction, is `admission`'s business.

mod decide;
mod limits;

use serde::{Deserialize, Serialize};

pub use decide::decide;
pub use limits::Limits;

use super::{Capacity, Resources, Timestamp};

/// Why something waits or is refused, as data: the same in page, API and log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Reason {
    /// Stable: `quota.gpus.user`, `quota.duration.user`, `capacity.memory`, `environment.building` …
    pub code: String,
    /// Whose limit: `default`, `override`, `machine` …
    pub scope: String,
    pub used: i64,
    pub requested: i64,
    pub limit: i64,
    pub over_by: i64,
    /// One sentence: what happened and what would change it.
    pub hint: String,
}

/// What may be limited for each person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    Gpus,
    Cpus,
    MemoryBytes,
    Sessions,
    Jobs,
    Pending,
    Light,
    MaxSessionSeconds,
    MaxJobSeconds,
    MaxExtensions,
    ExtensionSeconds,
    IdleTimeoutSeconds,
}

impl Field {
    pub const ALL: [Self; 12] = [
        Self::Gpus,
        Self::Cpus,
        Self::MemoryBytes,
        Self::Sessions,
        Self::Jobs,
        Self::Pending,
        Self::Light,
        Self::MaxSessionSeconds,
        Self::MaxJobSeconds,
        Self::MaxExtensions,
        Self::ExtensionSeconds,
        Self::IdleTimeoutSeconds,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gpus => "gpus",
            Self::Cpus => "cpus",
            Self::MemoryBytes => "memory_bytes",
            Self::Sessions => "sessions",
            Self::Jobs => "jobs",
            Self::Pending => "pending",
            Self::Light => "light",
            Self::MaxSessionSeconds => "max_session_seconds",
            Self::MaxJobSeconds => "max_job_seconds",
            Self::MaxExtensions => "max_extensions",
            Self::ExtensionSeconds => "extension_seconds",
            Self::IdleTimeoutSeconds => "idle_timeout_seconds",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.as_str() == text)
    }
}

/// A limit as it binds: no limit at all, or at most so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Unlimited,
    AtMost(i64),
}

/// One row of the table of limits: at the default, or for one person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRow {
    pub scope: Scope,
    pub field: Field,
    /// -1 is unlimited.
    pub value: i64,
    pub expires_at: Option<Timestamp>,
    pub note: Option<String>,
}

/// At which level a limit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    Default,
    User,
}

impl std::str::FromStr for Scope {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "default" => Ok(Self::Default),
            "user" => Ok(Self::User),
            _ => Err(()),
        }
    }
}

/// A limit with where it comes from: `override`, `override until …`, `default`, `machine`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    pub limit: Limit,
    pub source: String,
}

impl Effective {
    /// Whether nobody set it: it is only as much as the machine has.
    pub fn is_the_machines(&self) -> bool {
        self.source == MACHINE
    }
}

/// What somebody's live, admitted workloads hold, and how many wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Usage {
    pub gpus: i64,
    pub cpus: i64,
    /// The part of `cpus` that light sessions hold.
    pub light_cpus: i64,
    pub memory_bytes: i64,
    pub sessions: i64,
    pub light: i64,
    pub jobs: i64,
    pub pending: i64,
}

/// What somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub resources: Resources,
    pub duration_seconds: i64,
    /// Counts as `light` rather than as a session.
    pub light: bool,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Admit,
    Wait(Vec<Reason>),
    Refuse(Vec<Reason>),
}

/// What `decide` looks at besides the request.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    pub limits: &'a Limits,
    /// The person's own.
    pub usage: Usage,
    /// What everybody's admitted workloads hold on the machine.
    pub in_use: Usage,
    pub capacity: Capacity,
    /// Names and GPUs of the person's live sessions: what could be stopped.
    pub own: &'a [(String, i64)],
    /// True when this request already waits, so that it does not count against `pending` again.
    pub already_waiting: bool,
}

/// Where a limit comes from that is nobody's but the machine's.
const MACHINE: &str = "machine";
