//! What a look at one thing found: how well it is, in which words, and what mends it. `lyceum
//! check` and the health page say the same about the same things; what both look at is judged
//! here, from plain numbers.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{
    Timestamp,
    size::{GIB, human_size},
};

/// The result of a check, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = FindingLevel)]
pub enum Level {
    Ok,
    /// Works; for information.
    Note,
    /// Works, but only in part or not for long.
    Warning,
    /// The portal or workloads cannot start.
    Fault,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Finding {
    /// What was checked, in a word or two.
    #[schema(value_type = String)]
    pub name: Cow<'static, str>,
    pub level: Level,
    /// What was found, and what follows from it.
    pub what: String,
    /// The command or setting that fixes it; empty if nothing needs to be fixed.
    pub fix: String,
}

impl Finding {
    pub fn new(name: impl Into<Cow<'static, str>>, level: Level, what: impl Into<String>) -> Self {
        Self { name: name.into(), level, what: what.into(), fix: String::new() }
    }

    #[must_use]
    pub fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix = command.into();
        self
    }
}

impl Level {
    /// A sign and a word.
    #[must_use]
    pub fn sign(self) -> (char, &'static str) {
        match self {
            Self::Ok => ('✓', "ok"),
            Self::Note => ('·', "note"),
            Self::Warning => ('!', "warning"),
            Self::Fault => ('✗', "fault"),
        }
    }
}

/// The room on the data directory's disk; `free` is in bytes.
pub fn free_space(free: i64, place: &str) -> Finding {
    let name = "free space";
    let what = format!("{} free at {place}", human_size(free));
    let fix = "lyceum serve --data /PATH/ON/A/LARGER/DISK";
    match free {
        free if free < GIB / 4 => Finding::new(name, Level::Fault, what).fix(fix),
        free if free < 3 * GIB => {
            Finding::new(name, Level::Warning, format!("{what}; the default environment needs about 2 GiB")).fix(fix)
        }
        _ => Finding::new(name, Level::Ok, what),
    }
}

/// What fits where run directories lie; `shared` is whose file system that is too.
pub fn run_directory(place: &str, bytes: i64, files: u64, shared: Option<&str>) -> Finding {
    let name = "run directory";
    let room = format!("{} and {files} files", human_size(bytes));
    match shared {
        None => {
            Finding::new(name, Level::Ok, format!("{place} holds up to {room} and is not shared with other services"))
        }
        Some(other) => {
            let what = format!(
                "{place} is part of {other} ({room} in total): one user can fill the space that system services need \
                 there"
            );
            Finding::new(name, Level::Warning, what)
                .fix("install contrib/run-lyceum.mount, which creates a separate file system for it (docs/install.md)")
        }
    }
}

/// So many days before its end somebody should look why a certificate was not renewed.
const CERTIFICATE_WARNING_DAYS: i64 = 14;

/// How long the certificate in use is good; `None` where that cannot be read.
pub fn certificate_until(until: Option<Timestamp>, now: Timestamp) -> Finding {
    let name = "certificate";
    let Some(until) = until else {
        return Finding::new(name, Level::Warning, "the expiry date of the certificate cannot be read");
    };
    let days = until.seconds_since(now) / 86_400;
    if until <= now {
        Finding::new(name, Level::Fault, format!("it expired at {until}: browsers reject it")).fix("renew it")
    } else if days < CERTIFICATE_WARNING_DAYS {
        Finding::new(name, Level::Warning, format!("it expires in {days} days, at {until}")).fix("renew it")
    } else {
        Finding::new(name, Level::Ok, format!("valid until {until}; a renewed certificate is loaded automatically"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_run_directories_lie() {
        let own = run_directory("/run/lyceum/x", 2 * GIB, 100_000, None);
        assert_eq!(
            (own.level, &*own.what),
            (Level::Ok, "/run/lyceum/x holds up to 2 GiB and 100000 files and is not shared with other services")
        );
        let shared = run_directory("/run/lyceum/x", GIB, 5, Some("/run"));
        assert!(
            shared.level == Level::Warning && shared.what.contains("is part of /run (1 GiB and 5 files"),
            "{shared:?}"
        );
    }

    #[test]
    fn room() {
        let level = |free| free_space(free, "/data").level;
        assert_eq!([GIB / 5, 2 * GIB, 4 * GIB].map(level), [Level::Fault, Level::Warning, Level::Ok]);
    }

    #[test]
    fn certificates_end() {
        let now = Timestamp(1_800_000_000_000);
        let level = |days: i64| certificate_until(Some(now.plus_seconds(days * 86_400)), now).level;
        assert_eq!([-1, 0, 13, 15].map(level), [Level::Fault, Level::Fault, Level::Warning, Level::Ok]);
        assert_eq!(certificate_until(None, now).level, Level::Warning);
    }
}
