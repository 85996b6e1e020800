//! What the driver says of a GPU, and what that means for those who want one. Values that a
//! driver does not know for this GPU stay empty; an answer that grows old is no answer.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::super::Timestamp;

/// The driver, and what it said last of each GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuWatch {
    pub driver: Driver,
    /// By UUID.
    pub seen: HashMap<String, LastReading>,
    /// The UUID of the GPU that the driver is being asked about, and since when.
    pub asking: Option<(String, Timestamp)>,
}

/// Whether a driver stands behind the GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// None was found; the library that was looked for, and what came of that.
    Absent {
        library: String,
        why: String,
    },
    Present {
        version: String,
    },
}

impl Default for Driver {
    fn default() -> Self {
        Self::Absent { library: String::new(), why: String::new() }
    }
}

/// The last answer about a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct LastReading {
    pub at: Timestamp,
    /// Or why it cannot be used: it fell off the bus, it wants a reset.
    pub answer: Result<Reading, String>,
}

/// What the driver tells of one GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// In how much of the last moments it computed (percent).
    pub utilisation: Option<i64>,
    pub memory_used_bytes: Option<i64>,
    pub memory_total_bytes: Option<i64>,
    pub temperature_celsius: Option<i64>,
    pub power_milliwatts: Option<i64>,
    pub power_limit_milliwatts: Option<i64>,
    /// Energy since the driver was loaded.
    pub energy_millijoules: Option<i64>,
    /// Those that compute on it; `None` where the driver does not list them.
    pub processes: Option<Vec<GpuProcess>>,
    pub health: Health,
}

/// A process that computes on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    pub pid: u32,
    /// Whose it is, where it can be seen from here.
    pub uid: Option<u32>,
    pub memory_bytes: Option<i64>,
}

/// Health of a GPU, as far as it reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct Health {
    /// Corrected memory (ECC) errors since the driver was loaded.
    pub ecc_corrected: Option<i64>,
    /// Uncorrected memory (ECC) errors since the driver was loaded.
    pub ecc_uncorrected: Option<i64>,
    /// Retired memory pages.
    pub retired_pages: Option<i64>,
    /// True if more pages will be retired at the next reset.
    pub retirement_pending: Option<bool>,
    /// Code of the last critical error (XID) since Lyceum or the workload started.
    pub xid: Option<i64>,
    /// Reasons for current throttling.
    pub slowed_by: Vec<Slowdown>,
}

impl Health {
    /// Whether somebody should look at it.
    #[must_use]
    pub fn worries(&self) -> bool {
        self.ecc_uncorrected.is_some_and(|errors| errors > 0)
            || self.retirement_pending == Some(true)
            || self.xid.is_some()
            || self.slowed_by.iter().any(|reason| *reason != Slowdown::PowerCap)
    }
}

/// Reason for throttling of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Slowdown {
    /// The power limit; normal under load.
    PowerCap,
    Heat,
    /// The power supply of the machine.
    PowerBrake,
    /// The hardware, for an unreported reason.
    Hardware,
}

impl Slowdown {
    pub fn words(self) -> &'static str {
        match self {
            Self::PowerCap => "at its power limit",
            Self::Heat => "thermal throttling",
            Self::PowerBrake => "throttled by the power supply",
            Self::Hardware => "throttled by the hardware",
        }
    }
}

/// What a GPU is like now.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one for each GPU of a machine, and most are up")]
pub enum Condition {
    /// No driver stands behind it, or it has not been asked yet.
    Unmeasured,
    Up(Reading),
    /// It cannot be used; why.
    Down(String),
}

impl Condition {
    pub fn reading(&self) -> Option<&Reading> {
        match self {
            Self::Up(reading) => Some(reading),
            Self::Unmeasured | Self::Down(_) => None,
        }
    }
}

/// Why a free GPU is not given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Programs that no session started compute on it.
    Outside,
    /// It cannot be used.
    Down,
    /// An operator keeps it from new work.
    Withheld,
}

impl GpuWatch {
    /// What a GPU is like, by the last answer, if that is not older than `patience` (seconds).
    #[must_use]
    pub fn condition(&self, uuid: &str, now: Timestamp, patience: i64) -> Condition {
        if let Driver::Absent { .. } = self.driver {
            return Condition::Unmeasured;
        }
        let silent = self.asking.as_ref().filter(|(_, since)| patience < now.seconds_since(*since));
        let hanging = silent.map(|(asked, _)| {
            if asked == uuid {
                "The driver does not respond when queried about it"
            } else {
                "The driver does not respond"
            }
        });
        match (self.seen.get(uuid), hanging) {
            (Some(LastReading { answer: Err(why), .. }), _) => Condition::Down(why.clone()),
            (Some(LastReading { at, answer: Ok(reading) }), None) if now.seconds_since(*at) <= patience => {
                Condition::Up(reading.clone())
            }
            (_, Some(why)) => Condition::Down(why.to_owned()),
            (Some(_), None) => Condition::Down("The driver has not responded for a long time".to_owned()),
            (None, None) => Condition::Unmeasured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_answers_are_none() {
        let now = Timestamp(1_000_000);
        let reading = Reading { utilisation: Some(7), ..Reading::default() };
        let mut watch = GpuWatch { driver: Driver::Present { version: "1".to_owned() }, ..GpuWatch::default() };
        assert_eq!(watch.condition("a", now, 15), Condition::Unmeasured, "not asked yet");
        let mut seen = |age: i64, answer| {
            watch.seen.insert("a".to_owned(), LastReading { at: now.plus_seconds(-age), answer });
            watch.condition("a", now, 15)
        };
        assert_eq!(seen(15, Ok(reading.clone())), Condition::Up(reading.clone()));
        assert!(matches!(seen(16, Ok(reading.clone())), Condition::Down(why) if why.contains("for a long time")));
        assert_eq!(seen(16, Err("lost".to_owned())), Condition::Down("lost".to_owned()));

        watch.seen.insert("a".to_owned(), LastReading { at: now.plus_seconds(-20), answer: Ok(reading.clone()) });
        watch.seen.insert("b".to_owned(), LastReading { at: now.plus_seconds(-20), answer: Ok(reading) });
        watch.asking = Some(("b".to_owned(), now.plus_seconds(-20)));
        let why = |uuid: &str| match watch.condition(uuid, now, 15) {
            Condition::Down(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why("a"), "The driver does not respond");
        assert_eq!(why("b"), "The driver does not respond when queried about it");
        let none = GpuWatch::default();
        assert_eq!(none.condition("a", now, 15), Condition::Unmeasured);
    }

    #[test]
    fn what_somebody_should_look_at() {
        let health = |health: Health| health.worries();
        assert!(!health(Health::default()));
        assert!(!health(Health { ecc_corrected: Some(9), retired_pages: Some(1), ..Health::default() }));
        assert!(!health(Health { slowed_by: vec![Slowdown::PowerCap], ..Health::default() }));
        assert!(health(Health { ecc_uncorrected: Some(1), ..Health::default() }));
        assert!(health(Health { xid: Some(79), ..Health::default() }));
        assert!(health(Health { slowed_by: vec![Slowdown::PowerCap, Slowdown::Heat], ..Health::default() }));
    }
}
