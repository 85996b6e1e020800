//! Maintenance: for a while nothing new is started, and, if wanted, what runs is ended at a
//! given time. The decisions are pure functions of the time; the database and the loop of
//! sessions ask them, so that pages, API and command line cannot differ.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    FieldError, Phase, Session, SessionState, Timestamp, Window, line,
    quota::{Reason, Rule, Source},
    session::{UnknownWord, words},
};

/// The longest message, in characters.
pub const MAX_LENGTH: usize = 500;

/// How the detail of a session begins that maintenance ended.
pub const ENDING: &str = "Ended for maintenance";

/// A time that somebody has just read off a clock may lie so far back (seconds).
const TYPING: i64 = 60;

/// Without an end, those who were refused may ask again after so long (seconds).
const UNKNOWN_END: i64 = 600;

words!(
    /// The effect of maintenance.
    Mode as "MaintenanceMode" {
        Off = "off",
        /// No sessions start; running sessions continue.
        NoNewSessions = "no_new_sessions",
        /// No sessions start, and running sessions are ended at `drain_at`.
        Drain = "drain",
    }
);

/// Maintenance that somebody has ordered: coming, active, or past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    /// What people read besides the times; one line, may be empty.
    pub message: String,
    pub window: Window,
    /// When what runs is ended; `None`: it goes on.
    pub drain_at: Option<Timestamp>,
    /// Administrators try things out meanwhile.
    pub admins_may_start: bool,
}

/// Maintenance as somebody writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub mode: Mode,
    pub message: String,
    /// `None`: from now on.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    pub drain_at: Option<Timestamp>,
    pub admins_may_start: bool,
}

impl Maintenance {
    #[must_use]
    pub fn mode(&self) -> Mode {
        if self.drain_at.is_some() { Mode::Drain } else { Mode::NoNewSessions }
    }

    /// Why nothing of this person's starts now, if so.
    #[must_use]
    pub fn objection(&self, is_admin: bool, now: Timestamp) -> Option<Reason> {
        let holds = self.window.is_active(now) && !(is_admin && self.admins_may_start);
        holds.then(|| reason(self.sentence()))
    }

    /// When it will end a session that starts or runs, if that is before the session's own end.
    #[must_use]
    pub fn drains(&self, session: &Session, now: Timestamp) -> Option<Timestamp> {
        let drain_at = self.drain_at.filter(|_| self.window.phase(now) != Phase::Past)?;
        let runs = matches!(session.state, SessionState::Starting | SessionState::Running);
        let is_before = session.expires_at.is_none_or(|end| drain_at <= end);
        (runs && is_before && session.admitted_at.is_some_and(|at| at < drain_at)).then_some(drain_at)
    }

    /// Why a session that it ends at this moment gets no more time.
    #[must_use]
    pub fn no_extension(&self, drain_at: Timestamp) -> Reason {
        reason(self.with_message(format!(
            "Maintenance ends all sessions at {}, so no more time can be granted.",
            drain_at.minute()
        )))
    }

    /// For how long whoever is refused should wait before they ask again (seconds).
    #[must_use]
    pub fn retry_after(&self, now: Timestamp) -> i64 {
        self.window.to.map_or(UNKNOWN_END, |to| to.seconds_since(now).max(1))
    }

    /// Whether it ends a session of this admission now. What an administrator started after
    /// the others were ended stays.
    #[must_use]
    pub fn ends(&self, admitted_at: Timestamp, now: Timestamp) -> bool {
        self.window.is_active(now) && self.drain_at.is_some_and(|drain_at| drain_at <= now && admitted_at < drain_at)
    }

    /// Why nothing starts, as plain text with UTC times.
    #[must_use]
    pub fn sentence(&self) -> String {
        let until = self.window.to.map_or_else(|| "for now".to_owned(), |to| format!("until {}", to.minute()));
        self.with_message(format!("No session starts during maintenance, {until}."))
    }

    /// Why it ended a session.
    #[must_use]
    pub fn ending(&self) -> String {
        self.with_message(format!("{ENDING}."))
    }

    fn with_message(&self, sentence: String) -> String {
        if self.message.is_empty() { sentence } else { format!("{sentence} {}", self.message) }
    }
}

fn reason(hint: String) -> Reason {
    Reason::of_rule(Rule::Maintenance, Source::Portal, hint)
}

impl Draft {
    /// What is in force or planned, as a draft of its next change.
    #[must_use]
    pub fn of(maintenance: Option<&Maintenance>) -> Self {
        let off = Self {
            mode: Mode::Off,
            message: String::new(),
            from: None,
            to: None,
            drain_at: None,
            admins_may_start: true,
        };
        maintenance.map_or(off, |set| Self {
            mode: set.mode(),
            message: set.message.clone(),
            from: Some(set.window.from),
            to: set.window.to,
            drain_at: set.drain_at,
            admins_may_start: set.admins_may_start,
        })
    }

    /// The maintenance that this becomes, `None` for none, or every fault of it. `before` is
    /// what was in force: times of it that stay need no longer lie in the future.
    pub fn check(self, before: Option<&Maintenance>, now: Timestamp) -> Result<Option<Maintenance>, Vec<FieldError>> {
        if self.mode == Mode::Off {
            return Ok(None);
        }
        let mut faults = Vec::new();
        let message = line::parse("message", &self.message, MAX_LENGTH).map_err(|fault| faults.push(fault));
        let from = self.from.unwrap_or(now);
        let window = Window::parse(from, self.to, now).map_err(|fault| faults.push(fault));
        if let Some((code, message)) = self.fault_of_drain(before, from, now) {
            faults.push(FieldError::new("drain_at", code, message));
        }
        match (message, window) {
            (Ok(message), Ok(window)) if faults.is_empty() => Ok(Some(Maintenance {
                message,
                window,
                drain_at: self.drain_at,
                admins_may_start: self.admins_may_start,
            })),
            _ => Err(faults),
        }
    }

    fn fault_of_drain(
        &self,
        before: Option<&Maintenance>,
        from: Timestamp,
        now: Timestamp,
    ) -> Option<(&'static str, &'static str)> {
        let stays = before.is_some_and(|before| before.drain_at == self.drain_at);
        match (self.mode, self.drain_at) {
            (Mode::Drain, None) => Some(("missing_field", "Enter the time when running sessions are ended.")),
            (Mode::Drain, Some(at)) if at < from.plus_seconds(-TYPING) => {
                Some(("before_from", "Sessions cannot be ended before maintenance starts."))
            }
            (Mode::Drain, Some(at)) if self.to.is_some_and(|to| to <= at) => {
                Some(("after_to", "This is after the end of maintenance. Enter an earlier time."))
            }
            (Mode::Drain, Some(at)) if !stays && at < now.plus_seconds(-TYPING) => {
                Some(("in_the_past", "This time is in the past. Enter a time in the future."))
            }
            (Mode::NoNewSessions, Some(_)) => Some(("needs_drain", "Sessions are only ended in the mode “drain”.")),
            _ => None,
        }
    }
}

/// What somebody reads who looks whether there is any.
#[must_use]
pub fn phase(maintenance: Option<&Maintenance>, now: Timestamp) -> Option<Phase> {
    maintenance.map(|set| set.window.phase(now)).filter(|phase| *phase != Phase::Past)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn at(seconds: i64) -> Timestamp {
        NOW.plus_seconds(seconds)
    }

    fn draft(mode: Mode, from: i64, to: Option<i64>, drain_at: Option<i64>) -> Draft {
        Draft {
            mode,
            message: "New disks.".to_owned(),
            from: Some(at(from)),
            to: to.map(at),
            drain_at: drain_at.map(at),
            admins_may_start: true,
        }
    }

    #[test]
    fn drafts() {
        // Mode, from, to, the time of the drain, and the faults.
        type Case = (Mode, i64, Option<i64>, Option<i64>, &'static [(&'static str, &'static str)]);
        let table: [Case; 12] = [
            (Mode::Off, 0, Some(-5), Some(-5), &[]),
            (Mode::NoNewSessions, 0, None, None, &[]),
            (Mode::NoNewSessions, -600, Some(60), None, &[]),
            (Mode::NoNewSessions, 60, Some(60), None, &[("to", "before_from")]),
            (Mode::NoNewSessions, -60, Some(-5), None, &[("to", "in_the_past")]),
            (Mode::NoNewSessions, 0, None, Some(60), &[("drain_at", "needs_drain")]),
            (Mode::Drain, 0, None, None, &[("drain_at", "missing_field")]),
            (Mode::Drain, 0, None, Some(0), &[]),
            (Mode::Drain, 600, None, Some(60), &[("drain_at", "before_from")]),
            (Mode::Drain, 0, Some(600), Some(600), &[("drain_at", "after_to")]),
            (Mode::Drain, -7200, None, Some(-3600), &[("drain_at", "in_the_past")]),
            (Mode::Drain, 600, Some(60), Some(60), &[("to", "before_from"), ("drain_at", "before_from")]),
        ];
        for (mode, from, to, drain_at, faults) in table {
            let checked = draft(mode, from, to, drain_at).check(None, NOW);
            let found: Vec<_> = checked.as_ref().err().into_iter().flatten().collect();
            let found: Vec<_> = found.iter().map(|fault| (fault.field.as_str(), fault.code.as_str())).collect();
            assert_eq!(found, faults, "{mode} {from} {to:?} {drain_at:?}");
            assert_eq!(checked.is_ok_and(|set| set.is_none()), mode == Mode::Off, "{mode}");
        }
        let set = draft(Mode::Drain, -7200, None, Some(-7000)).check(None, at(-7000)).unwrap().unwrap();
        let again = Draft { message: "Later than thought.".to_owned(), ..Draft::of(Some(&set)) };
        assert!(again.check(Some(&set), NOW).is_ok(), "what stays need not lie in the future");
    }

    #[test]
    fn nobody_starts_meanwhile_but_administrators_who_may() {
        let set = draft(Mode::NoNewSessions, 60, Some(3600), None).check(None, NOW).unwrap().unwrap();
        let holds = |is_admin, seconds| set.objection(is_admin, at(seconds)).is_some();
        assert_eq!([59, 60, 3599, 3600].map(|seconds| holds(false, seconds)), [false, true, true, false]);
        assert!(!holds(true, 60));
        let strict = Maintenance { admins_may_start: false, ..set.clone() };
        assert!(strict.objection(true, at(60)).is_some());
        let reason = set.objection(false, at(60)).unwrap();
        assert_eq!(reason.hint, "No session starts during maintenance, until Fri 15 Jan, 09:00 UTC. New disks.");
        assert_eq!(
            (set.retry_after(at(600)), Maintenance { window: Window { from: NOW, to: None }, ..set }.retry_after(NOW)),
            (3000, 600)
        );
    }

    #[test]
    fn what_ran_is_ended_at_its_time_and_what_came_later_stays() {
        let set = draft(Mode::Drain, 0, Some(3600), Some(600)).check(None, NOW).unwrap().unwrap();
        assert_eq!(set.mode(), Mode::Drain);
        assert_eq!([599, 600, 3599, 3600].map(|seconds| set.ends(at(-60), at(seconds))), [false, true, true, false]);
        assert!(!set.ends(at(600), at(900)), "an administrator's, after the others were ended");
        let calm = Maintenance { drain_at: None, ..set };
        assert!(!calm.ends(at(-60), at(3000)));
    }
}
