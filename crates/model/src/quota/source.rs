//! Where a limit comes from: the level at which it is set, the machine's size, or Slurm. Code matches on the variant;
//! the text is for people, the API and stored reasons. A text of another version is kept as it is.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::TotalScope;
use crate::Timestamp;

/// The source of a limit, or of another rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    #[default]
    Default,
    /// Set for one user, for good or until a moment.
    Override {
        until: Option<Timestamp>,
    },
    Group(String),
    /// A limit of all members of a group together, named on the group's own pages.
    Total,
    Cluster,
    /// Set by no one: the amount that the machine has.
    Machine,
    Slurm(SlurmSource),
    /// A setting of the portal, or the workload's own time.
    Portal,
    Queue,
    Job,
    /// A text of another version.
    Other(String),
}

/// Where Slurm keeps a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlurmSource {
    /// Slurm has not been asked about this user yet.
    Unknown,
    /// The user has no account.
    NoAccount,
    /// The user is not in the account that would be charged.
    NotInAccount(String),
    Account(String, SlurmScope),
    Qos(String, SlurmScope),
}

/// What a limit of an account or a QOS in Slurm counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlurmScope {
    /// All that one user holds at once.
    User,
    OneJob,
    Total,
}

impl SlurmScope {
    fn suffix(self) -> &'static str {
        match self {
            Self::User => "",
            Self::OneJob => ", one job",
            Self::Total => ", total",
        }
    }

    /// Splits the name of an account or a QOS from what is counted.
    fn split(text: &str) -> (String, Self) {
        let ending = |scope: Self| text.strip_suffix(scope.suffix()).map(|name| (name.to_owned(), scope));
        ending(Self::OneJob).or_else(|| ending(Self::Total)).unwrap_or_else(|| (text.to_owned(), Self::User))
    }
}

impl Source {
    /// Returns the source of a limit for all together.
    #[must_use]
    pub fn of_total(whose: &TotalScope) -> Self {
        match whose {
            TotalScope::Cluster => Self::Cluster,
            TotalScope::Group { name, .. } => Self::Group(name.clone()),
        }
    }

    /// Returns the source of what one user may hold of a Slurm account.
    #[must_use]
    pub fn account(name: &str) -> Self {
        Self::Slurm(SlurmSource::Account(name.to_owned(), SlurmScope::User))
    }

    /// Reads a source as it was written; what would be written differently becomes [`Source::Other`].
    #[must_use]
    pub fn read(text: &str) -> Self {
        Self::guess(text).filter(|source| source.to_string() == text).unwrap_or_else(|| Self::Other(text.to_owned()))
    }

    fn guess(text: &str) -> Option<Self> {
        let plain =
            [Self::Default, Self::Override { until: None }, Self::Total, Self::Cluster, Self::Machine, Self::Portal]
                .into_iter()
                .chain([
                    Self::Queue,
                    Self::Job,
                    Self::Slurm(SlurmSource::Unknown),
                    Self::Slurm(SlurmSource::NoAccount),
                ]);
        let after = |prefix| text.strip_prefix(prefix);
        plain
            .into_iter()
            .find(|source| source.to_string() == text)
            .or_else(|| after("group ").map(|name| Self::Group(name.to_owned())))
            .or_else(|| {
                let until = after("override until ")?.parse::<jiff::Timestamp>().ok()?;
                Some(Self::Override { until: Some(Timestamp(until.as_millisecond())) })
            })
            .or_else(|| {
                let slurms = after("Slurm: ")?;
                let split = |prefix| slurms.strip_prefix(prefix).map(SlurmScope::split);
                let not_in =
                    slurms.strip_prefix("not in account ").map(|name| SlurmSource::NotInAccount(name.to_owned()));
                let account = || split("account ").map(|(name, scope)| SlurmSource::Account(name, scope));
                let qos = || split("QOS ").map(|(name, scope)| SlurmSource::Qos(name, scope));
                not_in.or_else(account).or_else(qos).map(Self::Slurm)
            })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Override { until: Some(end) } => return write!(f, "override until {end}"),
            Self::Group(name) => return write!(f, "group {name}"),
            Self::Slurm(source) => return source.fmt(f),
            Self::Default => "default",
            Self::Override { until: None } => "override",
            Self::Total => "total",
            Self::Cluster => "cluster",
            Self::Machine => "machine",
            Self::Portal => "portal",
            Self::Queue => "queue",
            Self::Job => "job",
            Self::Other(text) => text,
        })
    }
}

impl fmt::Display for SlurmSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("Slurm"),
            Self::NoAccount => f.write_str("Slurm: no account"),
            Self::NotInAccount(name) => write!(f, "Slurm: not in account {name}"),
            Self::Account(name, scope) => write!(f, "Slurm: account {name}{}", scope.suffix()),
            Self::Qos(name, scope) => write!(f, "Slurm: QOS {name}{}", scope.suffix()),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::read(&text))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sources_are_read_as_they_are_written() {
        let lab = || "lab".to_owned();
        let slurm = Source::Slurm;
        for (source, text) in [
            (Source::Default, "default"),
            (Source::Override { until: None }, "override"),
            (Source::Override { until: Some(Timestamp(1_000_001)) }, "override until 1970-01-01T00:16:40.001Z"),
            (Source::Group(lab()), "group lab"),
            (Source::Total, "total"),
            (Source::Cluster, "cluster"),
            (Source::Machine, "machine"),
            (Source::Portal, "portal"),
            (Source::Queue, "queue"),
            (Source::Job, "job"),
            (slurm(SlurmSource::Unknown), "Slurm"),
            (slurm(SlurmSource::NoAccount), "Slurm: no account"),
            (slurm(SlurmSource::NotInAccount(lab())), "Slurm: not in account lab"),
            (Source::account("lab"), "Slurm: account lab"),
            (slurm(SlurmSource::Account(lab(), SlurmScope::OneJob)), "Slurm: account lab, one job"),
            (slurm(SlurmSource::Account(lab(), SlurmScope::Total)), "Slurm: account lab, total"),
            (slurm(SlurmSource::Qos(lab(), SlurmScope::User)), "Slurm: QOS lab"),
            (slurm(SlurmSource::Qos(lab(), SlurmScope::Total)), "Slurm: QOS lab, total"),
            (Source::Other("a later source".to_owned()), "a later source"),
            (Source::Other("override until 1 Dec".to_owned()), "override until 1 Dec"),
            // The same moment, written differently.
            (
                Source::Other("override until 1970-01-01T01:00:00+01:00".to_owned()),
                "override until 1970-01-01T01:00:00+01:00",
            ),
            (Source::Other(String::new()), ""),
        ] {
            assert_eq!((source.to_string().as_str(), Source::read(text)), (text, source));
        }
    }

    proptest! {
        #[test]
        fn no_text_is_changed(text in "(group |override until |Slurm: |Slurm: account |Slurm: QOS )?.{0,24}(, total|, one job)?") {
            prop_assert_eq!(Source::read(&text).to_string(), text);
        }
    }
}
