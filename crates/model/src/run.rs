//! A run: a directory of logs whose curves are kept. The words of who may see it and of how far
//! reading has come, and the checks of what somebody writes of one.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    FieldError, GroupId, JobId, RunId, SessionId, SessionState, Timestamp, UserId, line,
    session::{Placement, UnknownWord, words},
};

/// The longest name (characters), and the longest directory (bytes, as the kernel has it).
pub const MAX_NAME_LENGTH: usize = 200;
pub const MAX_DIRECTORY_LENGTH: usize = 4095;

words!(
    /// Users who can see a run.
    Visibility as "RunVisibility" {
        /// Only the owner.
        Private = "private",
        /// Members of a group of the owner.
        Group = "group",
        /// All users.
        Everybody = "everybody",
    }
);

/// A run, as the database keeps it and services hand it round.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: RunId,
    pub owner: UserId,
    /// The owner's name at the time of reading.
    pub owner_name: String,
    pub name: String,
    /// Absolute, as its owner named it.
    pub directory: String,
    pub source: Source,
    pub visibility: Visibility,
    /// With [`Visibility::Group`]; its name at the time of reading, if it is still there.
    pub group: Option<(GroupId, Option<String>)>,
    pub reading: ReadProgress,
    pub created_at: Timestamp,
    /// It is a helper job's.
    pub is_helper: bool,
}

/// Who writes what is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Nobody that we know of: it is looked at again and again.
    External,
    /// A workload, and where it is while it lives. With a job it is the latest attempt of that.
    Session { id: SessionId, job: Option<JobId>, state: SessionState, placement: Option<Box<Placement>> },
}

impl Source {
    /// The job whose attempts write.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Session { job, .. } => *job,
            Self::External => None,
        }
    }

    /// Whether its workload has not ended.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Session { state, .. } if state.is_live())
    }

    /// Whether nobody writes any more.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Session { state: SessionState::Ended, .. })
    }
}

/// An attempt of a job whose logs are to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadAttempt {
    pub job: JobId,
    pub owner: UserId,
    pub session: SessionId,
    /// As it was asked for: perhaps below the home.
    pub directory: String,
}

/// Reports how far a run's files are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadProgress {
    /// Everything has been read, and nobody writes any more.
    pub complete: bool,
    pub points: u64,
    pub curves: u64,
    /// The end of the last look that came to its end.
    pub read_at: Option<Timestamp>,
    /// When points came last.
    pub grown_at: Option<Timestamp>,
    /// A sentence: why the last look failed.
    pub error: Option<String>,
    pub skipped: SkippedData,
}

/// Data in the files of a run that was skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
#[schema(as = SkippedInRun)]
pub struct SkippedData {
    /// Records and lines with a wrong checksum or format.
    pub damaged: u64,
    /// Records, lines and names that are too large.
    pub oversized: u64,
    /// Values above the limits of a run for tags, names or points.
    pub surplus: u64,
    /// True if the rest of a file could not be read.
    pub lost: bool,
    /// Some of the files and folders that could not be read, with the reason.
    pub unreadable: Vec<String>,
    /// Number of files above the limit that are not read.
    pub left_out: u64,
}

impl SkippedData {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Checks a run's name; without one it is called like its directory.
pub fn name(text: Option<&str>, directory: &str) -> Result<String, FieldError> {
    if let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) {
        return line::parse("name", text, MAX_NAME_LENGTH);
    }
    let last = directory.trim_end_matches('/').rsplit('/').next().filter(|last| !last.is_empty());
    let shown = last.unwrap_or(directory).chars().take(MAX_NAME_LENGTH);
    Ok(shown.map(|c| if line::is_misleading(c) { '\u{fffd}' } else { c }).collect())
}

/// Checks a directory and makes it absolute: `~` is `home`, and what does not begin with a slash
/// lies there.
pub fn directory(text: &str, home: &str) -> Result<String, FieldError> {
    let fault = |code, message: &str| Err(FieldError::new("directory", code, message));
    let text = text.trim();
    if text.is_empty() {
        return fault("missing_field", "Give a directory, for example ~/logs/first.");
    }
    if text.contains('\0') {
        return fault("characters", "A path must not contain NUL characters.");
    }
    let below = text.strip_prefix("~/").or_else(|| text.strip_prefix('~').filter(|rest| rest.is_empty()));
    let whole = match below {
        Some(below) => format!("{home}/{below}"),
        None if text.starts_with('/') => text.to_owned(),
        None => format!("{home}/{text}"),
    };
    let mut parts = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => return fault("invalid_value", "The path must not contain `..`."),
            part => parts.push(part),
        }
    }
    let whole = format!("/{}", parts.join("/"));
    if whole.len() > MAX_DIRECTORY_LENGTH {
        return fault("too_long", "The path is longer than 4095 bytes.");
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_absolute() {
        let home = "/home/ada";
        for (text, expected) in [
            ("~/logs", "/home/ada/logs"),
            ("~", "/home/ada"),
            ("logs//a/./b/", "/home/ada/logs/a/b"),
            ("/scratch/ada/", "/scratch/ada"),
            ("/", "/"),
            ("~bob/x", "/home/ada/~bob/x"),
        ] {
            assert_eq!(directory(text, home).as_deref(), Ok(expected), "{text}");
        }
        for (text, code) in [(" ", "missing_field"), ("a/../b", "invalid_value"), ("a\0b", "characters")] {
            assert_eq!(directory(text, home).unwrap_err().code, code, "{text:?}");
        }
        assert_eq!(directory(&"x/".repeat(3000), home).unwrap_err().code, "too_long");
    }

    #[test]
    fn without_a_name_it_is_called_like_its_directory() {
        assert_eq!(name(None, "/a/first").unwrap(), "first");
        assert_eq!(name(Some(" "), "/").unwrap(), "/");
        assert_eq!(name(Some(" x "), "/a").unwrap(), "x");
        assert_eq!(name(None, "/a/b\u{202e}c\n").unwrap(), "b\u{fffd}c\u{fffd}");
        assert_eq!(name(Some("a\nb"), "/a").unwrap_err().code, "characters");
        assert_eq!(name(None, &format!("/{}", "y".repeat(999))).unwrap().len(), MAX_NAME_LENGTH);
    }
}
