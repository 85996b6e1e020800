//! Quotas: what one person and what all together may use, and the pure decision about a
//! request: the types here, [`decide`] in `decide`, more time in `extend`, which row binds in
//! `limits`, a change of one in `change`, what people type in `amount`, hours in `period`, the
//! order among those that wait in `order`, why in `reason`, and where a limit comes from in
//! `source`. Reading the numbers, and reserving in the same transaction, is `admission`'s business.

mod amount;
mod change;
mod decide;
mod extend;
mod field;
mod limits;
mod order;
mod period;
mod reason;
mod sentence;
mod source;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use change::{Change, Kind, Terms, beyond_manager};
pub use decide::{decide, wait};
pub use extend::{Extension, extend, usual_extension};
pub use field::{Field, Unit};
pub use limits::{Limits, SlurmLimits};
pub use order::{Availability, GroupShare, HeldResources, Queue, WaitingRequest};
pub use period::{BadPeriod, ConsumedTime, Interval, Period, Window, zone_of};
pub use reason::{Code, Holder, Reason, Rule, codes, waits_for_room};
pub use source::{SlurmScope, SlurmSource, Source};

use super::{Capacity, Gpu, GroupId, Resources, Timestamp};

/// A limit as it binds, from less to more generous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    AtMost(i64),
    Unlimited,
}

/// One row of the table of limits: what each person may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRow {
    pub scope: Scope,
    pub field: Field,
    /// -1 is unlimited.
    pub value: i64,
    pub expires_at: Option<Timestamp>,
    pub note: Option<String>,
}

/// At which level a limit for each person is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Default,
    /// What each member gets; a restrictive group also lets nobody have more.
    Group {
        name: String,
        restrictive: bool,
    },
    /// What a manager raises each member of a group to: it counts where the group is chargeable, for what
    /// is charged to it.
    Raised {
        group: GroupId,
        name: String,
        chargeable: bool,
    },
    User,
}

/// A limit with where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    pub limit: Limit,
    pub source: Source,
}

impl Effective {
    /// Nobody limits it.
    pub const NONE: Self = Self { limit: Limit::Unlimited, source: Source::Default };

    /// Whether nobody set it: it is only as much as the machine has.
    pub fn is_the_machines(&self) -> bool {
        self.source == Source::Machine
    }
}

/// The resources that the live, admitted workloads of a user, a group or all users hold, and the number of queued ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Usage {
    pub gpus: i64,
    pub gpus_by_model: BTreeMap<String, i64>,
    pub cpus: i64,
    /// The part of `cpus` that light sessions hold.
    pub light_cpus: i64,
    pub memory_bytes: i64,
    pub sessions: i64,
    pub light: i64,
    pub jobs: i64,
    pub pending: i64,
    /// GPUs × seconds in the current period, counting running workloads to their end. 0 if they are not counted.
    pub gpu_seconds: i64,
    /// Cores × seconds in the current period, counted in the same way.
    pub cpu_seconds: i64,
    /// The size of the home folder when it was last measured. 0 if it is not measured.
    pub storage_bytes: i64,
}

impl Usage {
    /// Adds one admitted workload.
    pub fn add(&mut self, resources: &Resources, class: Class) {
        self.gpus += resources.gpus;
        self.cpus += resources.cpus;
        self.light_cpus += if class == Class::Light { resources.cpus } else { 0 };
        self.memory_bytes += resources.memory_bytes;
        self.light += i64::from(class == Class::Light);
        self.jobs += i64::from(class == Class::Job);
        self.sessions += i64::from(class == Class::Session);
    }

    /// Adds what is held now beside it: no hours, nothing that waits.
    pub fn add_held(&mut self, more: &Self) {
        self.gpus += more.gpus;
        self.cpus += more.cpus;
        self.memory_bytes += more.memory_bytes;
        self.jobs += more.jobs;
        for (model, gpus) in &more.gpus_by_model {
            *self.gpus_by_model.entry(model.clone()).or_default() += gpus;
        }
    }

    /// Counts the GPUs that a session was given, by their model.
    pub fn hold(&mut self, gpus: &[Gpu]) {
        for gpu in gpus {
            *self.gpus_by_model.entry(gpu.model.clone()).or_default() += 1;
        }
    }

    /// How much of a field is in use; 0 of those that are no amounts. Hours in whole ones, rounded up.
    #[must_use]
    pub fn of(&self, field: &Field) -> i64 {
        match field {
            Field::Gpus => self.gpus,
            Field::GpusOf(model) => self.gpus_by_model.get(model).copied().unwrap_or(0),
            Field::Cpus => self.cpus,
            Field::MemoryBytes => self.memory_bytes,
            Field::Sessions => self.sessions,
            Field::Light => self.light,
            Field::Jobs => self.jobs,
            Field::Pending => self.pending,
            Field::GpuHours => hours(self.gpu_seconds),
            Field::CpuHours => hours(self.cpu_seconds),
            Field::StorageBytes => self.storage_bytes,
            _ => 0,
        }
    }
}

/// Whole hours, rounded up.
fn hours(seconds: i64) -> i64 {
    seconds.saturating_add(3599) / 3600
}

/// What somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub resources: Resources,
    pub duration_seconds: i64,
    pub class: Class,
}

/// As what a workload counts, besides what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    #[default]
    Session,
    /// A session that is so small that it shares the cores that others leave idle.
    Light,
    Job,
}

impl Class {
    /// Of which a person may have so many at once.
    #[must_use]
    pub fn count(self) -> Field {
        match self {
            Self::Session => Field::Sessions,
            Self::Light => Field::Light,
            Self::Job => Field::Jobs,
        }
    }

    /// The limit of how long one may take.
    #[must_use]
    pub fn longest(self) -> Field {
        match self {
            Self::Session | Self::Light => Field::MaxSessionSeconds,
            Self::Job => Field::MaxJobSeconds,
        }
    }

    /// As it is stored.
    #[must_use]
    pub fn of(is_light: bool, is_job: bool) -> Self {
        match (is_job, is_light) {
            (true, _) => Self::Job,
            (false, true) => Self::Light,
            (false, false) => Self::Session,
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Admit,
    Wait(Vec<Reason>),
    Refuse(Vec<Reason>),
}

/// Names the scope of a total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TotalScope {
    Cluster,
    Group {
        id: GroupId,
        name: String,
        /// It counts because it is charged to the group, not because its owner is a member.
        is_charged: bool,
    },
}

/// What all together may use: it always binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Total {
    pub whose: TotalScope,
    /// The fields that somebody limited.
    pub limits: Vec<(Field, Limit)>,
    pub usage: Usage,
}

/// What `decide` looks at besides the request.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    pub limits: &'a Limits,
    /// The person's own.
    pub usage: &'a Usage,
    /// Those that bear on this request: of the groups in which it counts, and the cluster's.
    pub totals: &'a [Total],
    /// What everybody's admitted workloads hold on the machine.
    pub in_use: &'a Usage,
    pub capacity: Capacity,
    /// What hours are counted in, and how much of it is left (seconds), where it ends.
    pub period: &'a Period,
    pub period_left: Option<i64>,
    /// Names and GPUs of the person's live sessions: what could be stopped.
    pub own: &'a [(String, i64)],
    /// What would fit later goes to Slurm, which keeps such limits itself and holds it in its queue.
    pub goes_to_slurm: bool,
    /// True when this request already waits, so that it does not count against `pending` again.
    pub already_waiting: bool,
}

impl Situation<'_> {
    fn leaves_to_slurm(&self, field: &Field) -> bool {
        self.goes_to_slurm && field.is_slurms()
    }
}
