//! A session: an interactive app that somebody asked for, from request to history.
//! States and end reasons are spelled as in the API; which state may follow which is one
//! table here, and the SQL that changes a state always names the state it expects.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    Gpu, Resources, SessionId, SlurmOptions, Timestamp, UserId,
    job::Attempt,
    quota::{Class, Reason},
};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident $(as $shown:literal)? { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        $(#[$doc])*
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        // Derived, it would name the variants: it does not see words that a macro hands on.
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                let words = utoipa::openapi::ObjectBuilder::new().schema_type(utoipa::openapi::schema::Type::String);
                words.enum_values(Some([$($word),+])).into()
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                [$($shown,)? stringify!($name)][0].into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or(UnknownWord)
            }
        }
    };
}

pub(super) use words;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown value")]
pub struct UnknownWord;

words!(
    /// Where a workload is in its life.
    SessionState {
        /// Waiting for its quota, or admitted and waiting for the scheduler.
        Queued = "queued",
        /// Handed to the scheduler; its app has not answered yet.
        Starting = "starting",
        /// Its app answers.
        Running = "running",
        /// Asked to end; its processes may still be there.
        Stopping = "stopping",
        Ended = "ended",
    }
);

impl SessionState {
    /// Whether a workload in this state may go to `next`.
    #[must_use]
    pub fn can_become(self, next: Self) -> bool {
        use SessionState::{Ended, Queued, Running, Starting, Stopping};
        matches!(
            (self, next),
            (Queued, Starting | Stopping | Ended)
                | (Starting, Running | Stopping | Ended)
                | (Running, Stopping | Ended)
                | (Stopping, Ended)
        )
    }

    pub fn is_live(self) -> bool {
        self != Self::Ended
    }
}

words!(
    /// Why a workload ended.
    EndReason {
        StoppedByOwner = "stopped_by_owner",
        StoppedByAdmin = "stopped_by_admin",
        Idle = "idle",
        TimeLimit = "time_limit",
        OutOfMemory = "out_of_memory",
        Exited = "exited",
        Signal = "signal",
        NodeFailure = "node_failure",
        HostRebooted = "host_rebooted",
        Preempted = "preempted",
        LaunchFailed = "launch_failed",
        Refused = "refused",
        Lost = "lost",
    }
);

impl EndReason {
    /// Whether the person would call this a failure: the card is then drawn in red.
    #[must_use]
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::StoppedByOwner | Self::StoppedByAdmin | Self::Idle | Self::TimeLimit | Self::Exited)
    }

    /// Whether its node was taken away from it, whatever the program did.
    #[must_use]
    pub fn is_of_the_node(self) -> bool {
        matches!(self, Self::NodeFailure | Self::HostRebooted | Self::Preempted)
    }
}

words!(
    /// How a workload that has ended turned out.
    Outcome {
        /// Its program ended by itself, with exit code 0.
        Succeeded = "succeeded",
        /// Its program or its node failed, or it never ran.
        Failed = "failed",
        /// Its owner or an administrator stopped it.
        Cancelled = "cancelled",
        /// It reached its time limit, or was idle for too long.
        TimedOut = "timed_out",
        OutOfMemory = "out_of_memory",
    }
);

/// What a session is to run, as it was decided at its start. It never changes afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpec {
    pub resources: Resources,
    pub profile: Option<String>,
    /// The environment's name; absent for apps that use none.
    pub environment: Option<String>,
    /// Absolute, inside what the user may read; absent means the home directory.
    pub working_directory: Option<String>,
    pub duration_seconds: i64,
    /// The folder of event files that `TensorBoard` reads, or a job writes.
    pub log_directory: Option<String>,
    /// Or several, by the names under which it shows them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub log_directories: BTreeMap<String, String>,
    /// The name of the group that it is charged to, as it was called then.
    #[serde(default)]
    pub group: Option<String>,
    /// Environment modules that are loaded before the app starts, in this order.
    #[serde(default)]
    pub modules: Vec<String>,
    /// The container image that it runs in, by its name in the catalogue; absent means the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Where on a Slurm cluster it runs.
    #[serde(default, skip_serializing_if = "SlurmOptions::is_empty")]
    pub slurm: SlurmOptions,
}

impl SessionSpec {
    /// What can be told of a stored specification that is no whole one: each field that can be
    /// read, and nothing where none can.
    #[must_use]
    pub fn salvaged(stored: &str) -> Self {
        fn field<T: DeserializeOwned>(stored: &Value, name: &str) -> Option<T> {
            T::deserialize(stored.get(name)?).ok()
        }
        let stored = serde_json::from_str(stored).unwrap_or(Value::Null);
        Self {
            resources: field(&stored, "resources").unwrap_or_default(),
            profile: field(&stored, "profile"),
            environment: field(&stored, "environment"),
            working_directory: field(&stored, "working_directory"),
            duration_seconds: field(&stored, "duration_seconds").unwrap_or_default(),
            log_directory: field(&stored, "log_directory"),
            log_directories: field(&stored, "log_directories").unwrap_or_default(),
            group: field(&stored, "group"),
            modules: field(&stored, "modules").unwrap_or_default(),
            image: field(&stored, "image"),
            slurm: field(&stored, "slurm").unwrap_or_default(),
        }
    }
}

/// What a workload really holds, or held, of one start, as its scheduler counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Which start of it: a batch system may put back into its queue what runs, and start it again.
    pub start: i64,
    /// Its beginning, moved by as long as it was suspended.
    pub from: Timestamp,
    /// `None` while it is held.
    pub to: Option<Timestamp>,
    pub gpus: i64,
    pub cpus: i64,
    pub memory_bytes: i64,
}

/// What a batch system counts of a running workload's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedTime {
    /// Its start, moved by as long as it was suspended.
    pub since: Timestamp,
    /// How long it may run (seconds): what was asked for and more, unless the site has set less. `None`: without limit.
    pub limit_seconds: Option<i64>,
}

/// Lists what a workload held in all its starts, as reported by the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadStarts {
    /// Which start it is at, or waits for: those before are over.
    pub latest: i64,
    /// In the order of the starts; none of one that has not begun.
    pub allocations: Vec<Allocation>,
    /// Whether the list is complete.
    pub accounting: Accounting,
    /// The number of its job, in a batch system.
    pub job: Option<u32>,
}

/// States whether the reported starts of a workload are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounting {
    /// All starts are reported.
    Complete,
    /// Some starts have not reached the accounting yet.
    Pending,
    /// Earlier starts are unknown to the scheduler.
    Unknown,
}

impl WorkloadStarts {
    /// What is to be noted where this much is known already: none begins before it was admitted or
    /// ends before it begins, and all but the latest are over, now at the latest.
    #[must_use]
    pub fn noted(&self, known: &[Allocation], admitted_at: Timestamp, now: Timestamp) -> Vec<Allocation> {
        let is_told = |one: &&Allocation| self.allocations.iter().any(|told| told.start == one.start);
        let kept = known.iter().filter(|one| self.accounting != Accounting::Complete && !is_told(one));
        let mut all: Vec<Allocation> = kept.chain(&self.allocations).copied().collect();
        all.sort_by_key(|one| one.start);
        // Of what was not seen to end it is known alone that it was over when the next one began.
        let mut next = now;
        for one in all.iter_mut().rev() {
            one.from = one.from.min(now).max(admitted_at);
            let is_over = one.to.is_some() || one.start < self.latest;
            one.to = is_over.then(|| one.to.unwrap_or(next).max(one.from));
            next = next.min(one.from);
        }
        all
    }
}

/// Where a launched workload runs: what is needed to find it again after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Empty while a job waits for one.
    pub node: String,
    /// The agent's process on that node; under Slurm the job.
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat` (clock ticks since boot): with the boot id it makes the
    /// pid unmistakable.
    pub start_ticks: u64,
    pub boot_id: String,
    /// The user the workload runs as; every connection to it checks this.
    pub uid: u32,
    pub unix_name: String,
    pub run_directory: String,
    /// How its limits are held: `systemd`, `cgroup-v2`, `cgroup-v1`, `cgroup-v1-without-devices`,
    /// `sampled`, `slurm`.
    pub limits: String,
    /// How it is reached on another node; `None` on this machine.
    #[serde(default)]
    pub link: Option<Link>,
}

impl Placement {
    /// What stands in [`Placement::limits`] where a cluster holds them.
    pub const SLURM: &str = "slurm";

    /// Whether a cluster has chosen its node and its GPUs, and holds its limits.
    #[must_use]
    pub fn is_of_a_cluster(&self) -> bool {
        self.limits == Self::SLURM
    }
}

/// How a workload on another node is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Link {
    /// Which start of the workload it is, counted from 1: each has a key of its own.
    pub attempt: u32,
    /// The node's address as the scheduler gives it, never as the agent does; empty until
    /// the workload has a node.
    pub host: String,
    pub transport: Transport,
}

/// Who connects to whom, and how the portal learns of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// The agent listens, and a file in the run directory says on which port.
    #[default]
    EndpointFile,
    /// The agent listens, and calls the portal to say on which port.
    Listen,
    /// The agent calls the portal, and nothing listens on the node.
    DialBack,
}

/// Records an operator's question whether idle GPUs are still needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleQuestion {
    pub at: Timestamp,
    /// Who asked.
    pub by: String,
}

/// One session, as the database keeps it and services hand it round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub owner: UserId,
    /// The owner's name at the time of reading; an attribute, not a key.
    pub owner_name: String,
    /// Set where this is no interactive session but an attempt of a job.
    pub job: Option<Attempt>,
    pub app: String,
    pub name: String,
    pub state: SessionState,
    pub spec: SessionSpec,
    /// False where the stored specification could not be read: then `spec` holds what could be,
    /// which is to be shown and never to be launched.
    pub spec_is_whole: bool,
    /// Why it waits, or why it was refused.
    pub reasons: Vec<Reason>,
    pub gpus: Vec<Gpu>,
    /// The digest of the image that it was started with; absent before that.
    pub image_digest: Option<String>,
    pub cluster: String,
    pub placement: Option<Placement>,
    pub extensions: i64,
    pub created_at: Timestamp,
    /// When it was counted against quotas; before that it waits.
    pub admitted_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub ready_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// When its owner first came to it.
    pub opened_at: Option<Timestamp>,
    pub last_activity_at: Option<Timestamp>,
    /// Not stopped for idleness before this moment.
    pub keep_until: Option<Timestamp>,
    /// Somebody waits to hear whether its GPUs are still needed.
    pub asked: Option<IdleQuestion>,
    pub unknown_since: Option<Timestamp>,
    /// Since when its batch system has it suspended: its program stands still, and so does its time limit.
    pub suspended_since: Option<Timestamp>,
    /// Why `stopping` was asked for; it becomes the end reason.
    pub stop_reason: Option<EndReason>,
    pub stopping_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub end_reason: Option<EndReason>,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    /// A sentence for people: what is happening, or what went wrong and what to do.
    pub detail: Option<String>,
}

impl Session {
    /// As what it counts against quotas.
    pub fn class(&self) -> Class {
        Class::of(self.spec.resources.is_light(), self.job.is_some())
    }

    pub fn is_admitted(&self) -> bool {
        self.admitted_at.is_some()
    }

    /// Returns how it turned out; `None` before its end.
    pub fn outcome(&self) -> Option<Outcome> {
        let reason = self.end_reason.filter(|_| self.state == SessionState::Ended)?;
        Some(match reason {
            EndReason::Exited if self.exit_code.is_none_or(|code| code == 0) => Outcome::Succeeded,
            EndReason::StoppedByOwner | EndReason::StoppedByAdmin => Outcome::Cancelled,
            EndReason::TimeLimit | EndReason::Idle => Outcome::TimedOut,
            EndReason::OutOfMemory => Outcome::OutOfMemory,
            _ => Outcome::Failed,
        })
    }
}

/// Returns a session that was just requested, to be changed by tests.
#[cfg(any(test, feature = "fixtures"))]
pub fn example(state: SessionState) -> Session {
    let at = Timestamp(1_800_000_000_000);
    Session {
        id: SessionId::new(),
        owner: UserId::new(),
        owner_name: "alice".to_owned(),
        job: None,
        app: "jupyter".to_owned(),
        name: "nb".to_owned(),
        state,
        spec: SessionSpec {
            resources: Resources::default(),
            profile: None,
            environment: None,
            working_directory: None,
            duration_seconds: 28_800,
            log_directory: None,
            log_directories: BTreeMap::new(),
            group: None,
            modules: Vec::new(),
            image: None,
            slurm: SlurmOptions::default(),
        },
        reasons: Vec::new(),
        gpus: Vec::new(),
        image_digest: None,
        cluster: "local".to_owned(),
        placement: None,
        spec_is_whole: true,
        extensions: 0,
        created_at: at,
        admitted_at: None,
        started_at: None,
        ready_at: None,
        expires_at: None,
        opened_at: None,
        last_activity_at: None,
        keep_until: None,
        asked: None,
        unknown_since: None,
        suspended_since: None,
        stop_reason: None,
        stopping_at: None,
        ended_at: None,
        end_reason: None,
        exit_code: None,
        signal: None,
        detail: None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        Accounting::{Complete, Pending, Unknown},
        *,
    };

    fn held(start: i64, from: i64, to: Option<i64>) -> Allocation {
        let (from, to) = (Timestamp(from), to.map(Timestamp));
        Allocation { start, from, to, gpus: 1, cpus: 1, memory_bytes: 1 }
    }

    fn noted(latest: i64, told: &[Allocation], accounting: Accounting, known: &[Allocation]) -> Vec<Allocation> {
        let starts = WorkloadStarts { latest, allocations: told.to_vec(), accounting, job: None };
        starts.noted(known, Timestamp(10), Timestamp(100))
    }

    #[test]
    fn what_is_put_back_into_the_queue_is_over() {
        let first = [held(1, 20, None)];
        assert_eq!(noted(1, &first, Unknown, &[]), first);
        // Nobody says until when: it is no longer there, or the next one began.
        assert_eq!(noted(2, &[], Unknown, &first), [held(1, 20, Some(100))]);
        let both = [held(1, 20, Some(60)), held(2, 60, None)];
        assert_eq!(noted(2, &[held(2, 60, None)], Unknown, &first), both);
        // What was seen to end stays so until the scheduler says it better.
        assert_eq!(noted(2, &[held(2, 60, None)], Unknown, &[held(1, 20, Some(50))])[0], held(1, 20, Some(50)));
        let exact = [held(1, 20, Some(40)), held(2, 60, None)];
        assert_eq!(noted(2, &exact, Complete, &both), exact);
        // Another number for the same is no second one.
        assert_eq!(noted(3, &[held(2, 20, Some(40)), held(3, 60, None)], Complete, &both).len(), 2);
        assert_eq!(noted(1, &[held(1, 5, Some(8))], Complete, &[]), [held(1, 10, Some(10))], "before it was admitted");
        assert_eq!(noted(1, &[held(1, 500, None)], Complete, &[]), [held(1, 100, None)], "a clock that is ahead");
    }

    proptest! {
        /// Whatever a scheduler says, one thing at most is held at a time, and nothing ends before it begins.
        #[test]
        fn one_at_most_is_held(
            latest in 1..5i64,
            told in prop::collection::btree_map(1..5i64, (0..200i64, prop::option::of(0..200i64)), 0..4),
            known in prop::collection::btree_map(1..5i64, (0..200i64, prop::option::of(0..200i64)), 0..4),
            accounting in prop::sample::select(vec![Complete, Pending, Unknown]),
        ) {
            let all = |of: &BTreeMap<i64, (i64, Option<i64>)>| {
                of.iter().filter(|(start, _)| **start <= latest).map(|(start, (from, to))| held(*start, *from, *to)).collect::<Vec<_>>()
            };
            let (told, known) = (all(&told), all(&known));
            let noted = noted(latest, &told, accounting, &known);
            prop_assert!(noted.iter().filter(|one| one.to.is_none()).count() <= 1);
            for one in &noted {
                prop_assert!(one.to.is_none_or(|to| one.from <= to) && one.from <= Timestamp(100).max(Timestamp(10)));
                prop_assert!(one.to.is_some() || one.start == latest);
            }
            prop_assert!(told.iter().all(|told| noted.iter().any(|one| one.start == told.start)));
            // Said again, nothing changes.
            let starts = WorkloadStarts { latest, allocations: told, accounting, job: None };
            let again = starts.noted(&noted, Timestamp(10), Timestamp(100));
            prop_assert_eq!(again, noted);
        }
    }

    #[test]
    fn what_can_be_read_of_a_specification_is() {
        let torn = r#"{"resources": {"gpus": "two"}, "profile": "small", "duration_seconds": 60, "environment": 7}"#;
        let spec = SessionSpec::salvaged(torn);
        assert_eq!((spec.profile.as_deref(), spec.environment, spec.duration_seconds), (Some("small"), None, 60));
        for nothing in ["", "{", "[]", "null", "7"] {
            assert_eq!(SessionSpec::salvaged(nothing), SessionSpec::salvaged("{}"), "{nothing}");
        }
    }

    #[test]
    fn ended_is_final_and_words_round_trip() {
        for &state in SessionState::ALL {
            assert!(!SessionState::Ended.can_become(state));
            assert!(!state.can_become(SessionState::Queued), "sessions are never requeued");
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        for &reason in EndReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
    }
}
