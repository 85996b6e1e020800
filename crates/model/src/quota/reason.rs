//! Why a request waits, is rejected or will end: a closed set of codes, with the limit's source, the numbers and a
//! sentence for people. Code that judges reasons matches on [`Code`] and [`Source`]; their texts exist only in JSON
//! and in the database, where those of another version are kept as they are.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Field, Source, TotalScope};
use crate::session::{UnknownWord, words};

/// The reason why a request waits or is rejected: the same in pages, API and log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Reason {
    /// A stable code: `quota.gpus.user`, `quota.gpu_hours.group`, `capacity.memory`, `queue.order` …
    #[schema(value_type = String)]
    pub code: Code,
    /// The source of the limit: `default`, `override`, `group vision`, `cluster`, `machine` …
    #[serde(rename = "scope")]
    #[schema(value_type = String)]
    pub source: Source,
    pub used: i64,
    pub requested: i64,
    pub limit: i64,
    pub over_by: i64,
    /// A sentence for people: what happened, and what to do.
    pub hint: String,
}

/// What a reason is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// A limit that somebody set: `quota.gpus.user`.
    Limit {
        field: Field,
        holder: Holder,
    },
    /// What the machine has: `capacity.memory`.
    Capacity(Field),
    Rule(Rule),
    /// A code of another version, as it was stored.
    Other(String),
}

words!(
    /// Whose use a limit counts.
    Holder {
        User = "user",
        Group = "group",
        Cluster = "cluster",
    }
);

words!(
    /// What keeps a workload waiting, or ends it, besides limits on amounts.
    Rule {
        /// Earlier requests would start later.
        Order = "queue.order",
        /// Other users wait for what the session holds.
        OthersWait = "queue.others",
        QueuePaused = "queue.paused",
        SweepPaused = "sweep.paused",
        /// Another job has to end first.
        Dependency = "job.after",
        RetryDelay = "job.retry",
        Maintenance = "maintenance",
        /// A reservation of the batch system holds the nodes.
        Reservation = "scheduler.reservation",
        /// The batch system does not let the portal change a time limit.
        FixedTimeLimit = "scheduler.time_limit",
        TimeLimit = "time_limit",
        Unused = "idle.unused",
        GpusUnused = "idle.gpus",
        Unopened = "idle.unopened",
    }
);

impl Reason {
    /// Returns a reason without numbers.
    #[must_use]
    pub fn of_rule(rule: Rule, source: Source, hint: String) -> Self {
        Self { code: Code::Rule(rule), source, used: 0, requested: 0, limit: 0, over_by: 0, hint }
    }

    /// Returns whether it is about what is shared: the machine, what a group or all may use together, the order, or
    /// maintenance. A user's own limits are not.
    #[must_use]
    pub fn is_about_room(&self) -> bool {
        match &self.code {
            Code::Limit { holder, .. } => *holder != Holder::User,
            Code::Capacity(_) => true,
            Code::Rule(rule) => matches!(rule, Rule::Order | Rule::Maintenance),
            Code::Other(_) => false,
        }
    }
}

/// Returns whether a user's own limits would let the request in: it waits for shared room alone.
#[must_use]
pub fn waits_for_room(reasons: &[Reason]) -> bool {
    !reasons.is_empty() && reasons.iter().all(Reason::is_about_room)
}

/// Returns the codes of reasons in one line, for the log.
#[must_use]
pub fn codes(reasons: &[Reason]) -> String {
    reasons.iter().map(|reason| reason.code.to_string()).collect::<Vec<_>>().join(" ")
}

impl Code {
    /// Returns the code of a limit. One on GPUs of a model has the code of GPUs.
    #[must_use]
    pub fn limit(field: &Field, holder: Holder) -> Self {
        let field = if let Field::GpusOf(_) = field { Field::Gpus } else { field.clone() };
        Self::Limit { field, holder }
    }

    /// Reads a code as it was written; one of another version becomes [`Code::Other`].
    fn read(text: String) -> Self {
        let known = match text.split_once('.') {
            Some(("quota", limit)) => limit.rsplit_once('.').and_then(|(field, holder)| {
                Some(Self::Limit { field: Field::of_code_word(field)?, holder: holder.parse().ok()? })
            }),
            Some(("capacity", field)) => Field::of_code_word(field).map(Self::Capacity),
            _ => text.parse().ok().map(Self::Rule),
        };
        known.unwrap_or(Self::Other(text))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { field, holder } => write!(f, "quota.{}.{holder}", field.code_word()),
            Self::Capacity(field) => write!(f, "capacity.{}", field.code_word()),
            Self::Rule(rule) => rule.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::read)
    }
}

impl From<&TotalScope> for Holder {
    fn from(whose: &TotalScope) -> Self {
        match whose {
            TotalScope::Cluster => Self::Cluster,
            TotalScope::Group { .. } => Self::Group,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(code: &str, scope: &str) -> String {
        format!(
            r#"{{"code":"{code}","scope":"{scope}","used":2,"requested":1,"limit":2,"over_by":1,"hint":"Your limit is 2 GPUs."}}"#
        )
    }

    #[test]
    fn stored_reasons_are_read_into_variants_and_written_alike() {
        use Field::{CpuHours, Gpus, Jobs, MaxJobSeconds, MaxSessionSeconds, MemoryBytes};
        let limit = |field, holder| Code::Limit { field, holder };
        for (text, code) in [
            ("quota.gpus.user", limit(Gpus, Holder::User)),
            ("quota.memory.group", limit(MemoryBytes, Holder::Group)),
            ("quota.cpu_hours.cluster", limit(CpuHours, Holder::Cluster)),
            ("quota.duration.user", limit(MaxSessionSeconds, Holder::User)),
            ("quota.max_job_seconds.user", limit(MaxJobSeconds, Holder::User)),
            ("quota.jobs.user", limit(Jobs, Holder::User)),
            ("capacity.memory", Code::Capacity(MemoryBytes)),
            ("queue.order", Code::Rule(Rule::Order)),
            ("maintenance", Code::Rule(Rule::Maintenance)),
            ("scheduler.time_limit", Code::Rule(Rule::FixedTimeLimit)),
            ("quota.tpus.user", Code::Other("quota.tpus.user".to_owned())),
            ("quota.gpus.team", Code::Other("quota.gpus.team".to_owned())),
            ("capacity", Code::Other("capacity".to_owned())),
        ] {
            let json = stored(text, "group vision");
            let reason: Reason = serde_json::from_str(&json).unwrap();
            assert_eq!((&reason.code, &reason.source), (&code, &Source::Group("vision".to_owned())));
            assert_eq!(serde_json::to_string(&reason).unwrap(), json);
        }
    }

    #[test]
    fn every_code_is_read_as_it_is_written() {
        let fields = || Field::ALL.into_iter();
        let limits = Holder::ALL.iter().flat_map(|holder| fields().map(|field| Code::limit(&field, *holder)));
        let rules = Rule::ALL.iter().copied().map(Code::Rule);
        for code in limits.chain(fields().map(Code::Capacity)).chain(rules) {
            assert_eq!(Code::read(code.to_string()), code);
        }
        let of_model = Code::limit(&Field::GpusOf("A100".to_owned()), Holder::User);
        assert_eq!(of_model.to_string(), "quota.gpus.user");
        assert_eq!(Code::read(of_model.to_string()), of_model);
    }

    #[test]
    fn shared_room_is_not_a_users_own_limit() {
        let reason = |code: &str| serde_json::from_str::<Reason>(&stored(code, "default")).unwrap();
        for (code, is_about_room) in [
            ("capacity.gpus", true),
            ("quota.gpus.group", true),
            ("quota.jobs.cluster", true),
            ("queue.order", true),
            ("maintenance", true),
            ("quota.gpus.user", false),
            ("queue.others", false),
            ("job.after", false),
            ("something.new", false),
        ] {
            assert_eq!(reason(code).is_about_room(), is_about_room, "{code}");
        }
        assert!(!waits_for_room(&[]) && !waits_for_room(&[reason("queue.order"), reason("job.after")]));
        assert_eq!(codes(&[reason("queue.order"), reason("capacity.gpus")]), "queue.order capacity.gpus");
    }
}
