//! From a moment on, and until another one where that is known: what announcements and
//! maintenance last. Whether it is coming, active or past follows from the time alone.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    FieldError, Timestamp,
    session::{UnknownWord, words},
};

/// The end is no longer part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub from: Timestamp,
    /// `None`: until somebody ends it.
    pub to: Option<Timestamp>,
}

words!(
    /// Whether a period is in the future, current or over.
    Phase { Coming = "coming", Active = "active", Past = "past" }
);

impl Window {
    /// A window that is not over yet, or what is wrong with its end.
    pub fn parse(from: Timestamp, to: Option<Timestamp>, now: Timestamp) -> Result<Self, FieldError> {
        match to {
            Some(to) if to <= from => {
                Err(FieldError::new("to", "before_from", "The end is before the start. Enter a later end."))
            }
            Some(to) if to <= now => {
                Err(FieldError::new("to", "in_the_past", "The end is in the past. Enter an end in the future."))
            }
            _ => Ok(Self { from, to }),
        }
    }

    #[must_use]
    pub fn phase(&self, now: Timestamp) -> Phase {
        match self.to {
            Some(to) if to <= now => Phase::Past,
            _ if now < self.from => Phase::Coming,
            _ => Phase::Active,
        }
    }

    #[must_use]
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.phase(now) == Phase::Active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    #[test]
    fn windows_end_after_they_begin_and_in_the_future() {
        let code = |from, to| Window::parse(Timestamp(from), Some(Timestamp(to)), NOW).unwrap_err().code;
        assert_eq!(code(2_000_000, 2_000_000), "before_from");
        assert_eq!(code(2_000_000, 1_500_000), "before_from");
        assert_eq!(code(500, 1_000_000), "in_the_past");
        assert_eq!(code(i64::MAX, i64::MIN), "before_from");
        assert!(Window::parse(Timestamp(500), Some(Timestamp(1_000_001)), NOW).is_ok());
        assert!(Window::parse(Timestamp(i64::MAX), None, NOW).is_ok());
    }

    #[test]
    fn the_end_is_no_part_of_it() {
        let window = Window { from: NOW, to: Some(Timestamp(2_000_000)) };
        let phases = [999_999, 1_000_000, 1_999_999, 2_000_000].map(|at| window.phase(Timestamp(at)));
        assert_eq!(phases, [Phase::Coming, Phase::Active, Phase::Active, Phase::Past]);
        assert!(Window { from: NOW, to: None }.is_active(Timestamp(i64::MAX)));
    }
}
