//! How a running session will end if nothing happens, and what its owner is told before. Pure:
//! times are values. A deadline says what strikes, when and by whose rule; a notice is what is
//! worth telling now. Looking at use is `sessions`' business, drawing is `web`'s.

use super::{
    Session, SessionId, SessionState, Timestamp, maintenance,
    quota::{Code, Reason, Rule, Source},
    time::human_duration,
};

/// What will end a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its time is over.
    TimeLimit,
    /// Nobody uses it.
    Unused,
    /// It holds GPUs that do nothing.
    GpusUnused,
    /// It waited for its turn, which came at this moment, and nobody has come.
    Unopened { turn: Timestamp },
    /// Maintenance ends all that runs.
    Maintenance,
}

/// An end that comes unless something happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub cause: Cause,
    /// From when on it is counted.
    pub since: Timestamp,
    /// How long it may take (seconds).
    pub after_seconds: i64,
    /// When it strikes: after that time, or later where somebody said “keep”.
    pub at: Timestamp,
    /// Whose rule it is; the portal's where it is the session's own time.
    pub source: Source,
}

/// What its owner should know of a session now, wherever they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It had to wait, its turn has come, and it is not open yet.
    Turn {
        /// When it is released, once it runs and where there is such a rule.
        released_at: Option<Timestamp>,
    },
    /// It ends in less than `lead` seconds.
    Ending { deadline: Deadline, lead: i64 },
}

/// How long before an end its owner is warned (seconds): earlier ones first. Where that would
/// be from the beginning on, only later; in any case when half of the time is over.
pub const WARNINGS: [i64; 2] = [30 * 60, 5 * 60];

/// Nobody goes away for a shorter wait than this (seconds).
const MIN_NOTICE_SECONDS: i64 = 15;

impl Session {
    /// When its turn came, where it had to wait for that longer than a moment.
    #[must_use]
    pub fn turn_came_at(&self) -> Option<Timestamp> {
        self.admitted_at.filter(|at| at.seconds_since(self.created_at) >= MIN_NOTICE_SECONDS)
    }
}

impl Deadline {
    #[must_use]
    pub fn new(cause: Cause, since: Timestamp, after_seconds: i64, source: Source) -> Self {
        Self { cause, since, after_seconds, at: since.plus_seconds(after_seconds), source }
    }

    /// The end of a session's time.
    #[must_use]
    pub fn time_limit(session: &Session) -> Option<Self> {
        let (since, end) = (session.ready_at.or(session.started_at)?, session.expires_at?);
        Some(Self { at: end, ..Self::new(Cause::TimeLimit, since, end.seconds_since(since), Source::Portal) })
    }

    /// The release of a session that waited, where it is to be opened within so many seconds (0
    /// is never) of coming to run, or of `watched_since`: nobody could come before.
    #[must_use]
    pub fn unopened(session: &Session, within_seconds: i64, watched_since: Timestamp) -> Option<Self> {
        let turn = session.turn_came_at().filter(|_| within_seconds > 0 && session.opened_at.is_none())?;
        let since = session.ready_at?.max(watched_since);
        Some(Self::new(Cause::Unopened { turn }, since, within_seconds, Source::Portal))
    }

    /// The end that maintenance makes of a running session at this moment.
    #[must_use]
    pub fn maintenance(session: &Session, drain_at: Timestamp) -> Option<Self> {
        let ready = session.ready_at?;
        Some(Self {
            at: drain_at,
            ..Self::new(Cause::Maintenance, ready, drain_at.seconds_since(ready), Source::Portal)
        })
    }

    /// The same, not before this moment.
    #[must_use]
    pub fn not_before(self, until: Option<Timestamp>) -> Self {
        Self { at: self.at.max(until.unwrap_or(self.at)), ..self }
    }

    /// When the system's clock was set by so many milliseconds.
    #[must_use]
    pub fn moved(self, by: i64) -> Self {
        let moved = |at: Timestamp| Timestamp(at.0.saturating_add(by));
        Self { since: moved(self.since), at: moved(self.at), ..self }
    }

    /// The warning that is due: the shortest of those whose time has come.
    #[must_use]
    pub fn lead(&self, now: Timestamp) -> Option<i64> {
        let half = self.at.seconds_since(self.since) / 2;
        let usual = WARNINGS.into_iter().filter(|lead| *lead <= half);
        let last = (half < WARNINGS[WARNINGS.len() - 1]).then_some(half);
        usual.chain(last).filter(|lead| self.at.plus_seconds(-lead) <= now).min()
    }

    /// Returns the rule that ends it, as in reasons and in what browsers remember.
    #[must_use]
    pub fn rule(&self) -> Rule {
        match self.cause {
            Cause::TimeLimit => Rule::TimeLimit,
            Cause::Unused => Rule::Unused,
            Cause::GpusUnused => Rule::GpusUnused,
            Cause::Unopened { .. } => Rule::Unopened,
            Cause::Maintenance => Rule::Maintenance,
        }
    }

    /// Why it was stopped, once it was.
    #[must_use]
    pub fn struck(&self) -> String {
        let after = human_duration(self.after_seconds);
        match self.cause {
            Cause::TimeLimit => format!("Reached its time limit of {after}"),
            Cause::Unused => format!("Not used for {after} ({})", self.source),
            Cause::GpusUnused => format!("Its GPU utilisation stayed below 5 % for {after} ({})", self.source),
            Cause::Unopened { turn } => {
                format!("It left the queue at {} and was not opened within {after}", turn.clock())
            }
            Cause::Maintenance => maintenance::ENDING.to_owned(),
        }
    }

    /// What will happen, for its history and the log: the same words however often it is said.
    #[must_use]
    pub fn warning(&self, lead: i64) -> String {
        // Whole seconds are enough for people.
        let (left, at) = (human_duration(lead), Timestamp(self.at.0 - self.at.0.rem_euclid(1000)));
        match self.cause {
            Cause::TimeLimit => format!("{left} left: it reaches its time limit at {at}"),
            Cause::Unused => {
                format!("{left} left: it is not used and will be stopped at {at} ({})", self.source)
            }
            Cause::GpusUnused => {
                format!("{left} left: its GPUs are idle and it will be stopped at {at} ({})", self.source)
            }
            Cause::Unopened { .. } => {
                format!("{left} left: it is ready but has not been opened, and will be stopped at {at}")
            }
            Cause::Maintenance => format!("{left} left: maintenance ends it at {at}"),
        }
    }

    /// Why it will be stopped, as data; `None` where that is its own time, or maintenance's.
    #[must_use]
    pub fn reason(&self, now: Timestamp) -> Option<Reason> {
        let passed = now.seconds_since(self.since).max(0);
        let (so_far, after) = (human_duration(passed), human_duration(self.after_seconds));
        let hint = match self.cause {
            Cause::TimeLimit | Cause::Maintenance => return None,
            Cause::Unused => {
                format!("Not used for {so_far}. It is stopped after {after} ({}) unless it is used.", self.source)
            }
            Cause::GpusUnused => format!(
                "Its GPU utilisation has been below 5 % for {so_far}. It is stopped after {after} ({}) unless the GPUs \
                 are used.",
                self.source
            ),
            Cause::Unopened { turn } => format!(
                "It left the queue at {} and has not been opened. It is stopped {after} after it started running.",
                turn.clock()
            ),
        };
        Some(Reason {
            code: Code::Rule(self.rule()),
            source: self.source.clone(),
            used: passed,
            requested: 0,
            limit: self.after_seconds,
            over_by: 0,
            hint,
        })
    }
}

impl Notice {
    /// What is worth telling of a session that, besides its own time, has these ends before it.
    #[must_use]
    pub fn of(session: &Session, ends: impl IntoIterator<Item = Deadline>, now: Timestamp) -> Option<Self> {
        if session.unknown_since.is_some() {
            return None;
        }
        let is_running = session.state == SessionState::Running;
        let stands_still = session.suspended_since.is_some();
        let ends: Vec<Deadline> =
            Deadline::time_limit(session).into_iter().chain(ends).filter(|_| is_running && !stands_still).collect();
        let released = ends.iter().find(|end| matches!(end.cause, Cause::Unopened { .. }));
        let released_at = released.map(|end| end.at);
        let first = ends.into_iter().min_by_key(|deadline| deadline.at);
        if let Some((deadline, lead)) = first.and_then(|first| first.lead(now).map(|lead| (first, lead))) {
            return Some(Self::Ending { deadline, lead });
        }
        let begins = matches!(session.state, SessionState::Queued | SessionState::Starting) || is_running;
        let waits_for_its_owner = begins && session.turn_came_at().is_some() && session.opened_at.is_none();
        waits_for_its_owner.then_some(Self::Turn { released_at })
    }

    /// Tells this one from all others: whoever has told it need not tell it again.
    #[must_use]
    pub fn key(&self, session: SessionId) -> String {
        match self {
            Self::Turn { .. } => format!("{session} turn"),
            Self::Ending { deadline, lead } => {
                format!("{session} {} {lead} {}", deadline.rule(), deadline.at.0 / 1000)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::example;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const MINUTE: i64 = 60;

    fn at(minutes: i64) -> Timestamp {
        NOW.plus_seconds(minutes * MINUTE)
    }

    /// It waited for ten minutes and runs since now, for eight hours.
    fn waited() -> Session {
        Session {
            created_at: at(-10),
            admitted_at: Some(NOW),
            ready_at: Some(NOW),
            expires_at: Some(at(480)),
            ..example(SessionState::Running)
        }
    }

    #[test]
    fn warnings_come_half_an_hour_and_five_minutes_before() {
        let lead =
            |minutes, now: Timestamp| Deadline::new(Cause::Unused, NOW, minutes * MINUTE, Source::Default).lead(now);
        let cases = [
            (120, 89, None),
            (120, 90, Some(1800)),
            (120, 114, Some(1800)),
            (120, 115, Some(300)),
            (120, 121, Some(300)),
            // Half an hour before would be nearly at once.
            (40, 11, None),
            (40, 35, Some(300)),
            (6, 2, None),
            (6, 3, Some(180)),
        ];
        for (span, now, due) in cases {
            assert_eq!(lead(span, at(now)), due, "{span} min, after {now}");
        }
        let kept = Deadline::new(Cause::Unused, NOW, 120 * MINUTE, Source::Portal).not_before(Some(at(240)));
        assert_eq!((kept.lead(at(119)), kept.lead(at(211)), kept.at), (None, Some(1800), at(240)));
    }

    #[test]
    fn only_what_waited_longer_than_a_moment_had_a_turn() {
        assert_eq!(waited().turn_came_at(), Some(NOW));
        let at_once = Session { created_at: NOW.plus_seconds(-14), ..waited() };
        assert_eq!((at_once.turn_came_at(), Notice::of(&at_once, None, NOW)), (None, None));
        assert_eq!(Session { admitted_at: None, ..waited() }.turn_came_at(), None, "it still waits");
    }

    #[test]
    fn a_turn_is_told_until_it_is_opened() {
        let released = |session: &Session| Deadline::unopened(session, 30 * MINUTE, Timestamp(0));
        let session = waited();
        let end = released(&session).unwrap();
        assert_eq!(end.at, at(30));
        assert_eq!(end.struck(), "It left the queue at 08:00 UTC and was not opened within 30 min");
        let told = |session: &Session, now| Notice::of(session, released(session), now);
        assert_eq!(told(&session, at(1)), Some(Notice::Turn { released_at: Some(at(30)) }));
        let Some(Notice::Ending { deadline, lead }) = told(&session, at(25)) else { panic!("warned") };
        assert_eq!((deadline, lead), (end, 300));
        let opened = Session { opened_at: Some(at(2)), ..waited() };
        assert_eq!((released(&opened), told(&opened, at(25))), (None, None));
        // Before it runs nobody can be late; a portal that was away begins anew; 0 is never.
        let starts = Session { state: SessionState::Starting, ready_at: None, expires_at: None, ..waited() };
        assert_eq!((released(&starts), told(&starts, at(25))), (None, Some(Notice::Turn { released_at: None })));
        assert_eq!(Deadline::unopened(&session, 30 * MINUTE, at(20)).unwrap().at, at(50));
        assert_eq!(Deadline::unopened(&session, 0, NOW), None);
        for state in [SessionState::Stopping, SessionState::Ended] {
            assert_eq!(told(&Session { state, ..waited() }, at(25)), None, "{state}");
        }
    }

    #[test]
    fn what_comes_first_is_told() {
        let idle =
            |minutes| Some(Deadline::new(Cause::Unused, NOW, minutes * MINUTE, Source::Group("vision".to_owned())));
        let session = Session { opened_at: Some(NOW), ..waited() };
        let cause = |idle, now| match Notice::of(&session, idle, now) {
            Some(Notice::Ending { deadline, .. }) => Some(deadline.cause),
            _ => None,
        };
        assert_eq!(cause(idle(460), at(440)), Some(Cause::Unused));
        assert_eq!(cause(idle(490), at(455)), Some(Cause::TimeLimit));
        assert_eq!(cause(idle(460), at(420)), None);
        let unknown = Session { unknown_since: Some(NOW), ..session.clone() };
        assert_eq!(Notice::of(&unknown, idle(460), at(440)), None, "unknown ends nothing");
    }

    #[test]
    fn maintenance_is_told_like_other_ends() {
        let session = Session { opened_at: Some(NOW), ..waited() };
        let told = |drain, now| Notice::of(&session, Deadline::maintenance(&session, at(drain)), now);
        let Some(Notice::Ending { deadline, lead }) = told(240, at(211)) else { panic!("warned") };
        assert_eq!((deadline.cause, deadline.rule(), lead), (Cause::Maintenance, Rule::Maintenance, 1800));
        assert_eq!(deadline.warning(lead), "30 min left: maintenance ends it at 2027-01-15T12:00:00Z");
        assert_eq!(told(240, at(209)), None);
        assert_eq!(Deadline::maintenance(&Session { ready_at: None, ..session.clone() }, at(240)), None);
    }

    #[test]
    fn reasons_say_what_whose_and_how_long() {
        let reason =
            |cause, now| Deadline::new(cause, NOW, 120 * MINUTE, Source::Group("vision".to_owned())).reason(now);
        let unused = reason(Cause::Unused, at(100)).unwrap();
        assert_eq!((&*unused.code.to_string(), &*unused.source.to_string()), ("idle.unused", "group vision"));
        assert_eq!((unused.used, unused.limit), (6000, 7200));
        assert_eq!(unused.hint, "Not used for 1 h 40 min. It is stopped after 2 h (group vision) unless it is used.");
        assert!(
            reason(Cause::GpusUnused, at(1))
                .unwrap()
                .hint
                .starts_with("Its GPU utilisation has been below 5 % for 1 min.")
        );
        assert_eq!(reason(Cause::TimeLimit, at(1)), None);
    }

    proptest! {
        /// Whatever the time that is allowed: somebody is warned before the end, never earlier than
        /// when half of it is over, each warning once and later ones after earlier ones.
        #[test]
        fn everybody_is_warned_in_time(seconds in 2..100_000i64, kept in prop::option::of(0..100_000i64)) {
            let deadline = Deadline::new(Cause::Unused, NOW, seconds, Source::Portal)
                .not_before(kept.map(|kept| NOW.plus_seconds(kept)));
            let whole = deadline.at.seconds_since(NOW);
            prop_assert!(deadline.lead(deadline.at.plus_seconds(-1)).is_some());
            prop_assert_eq!(deadline.lead(NOW.plus_seconds(whole / 2 - 1)), None);
            let mut before = i64::MAX;
            for now in [whole - 1800, whole - 1799, whole - 301, whole - 300, whole - 1, whole] {
                if let Some(lead) = deadline.lead(NOW.plus_seconds(now)) {
                    prop_assert!(whole - now <= lead && lead <= before && 2 * lead <= whole);
                    before = lead;
                }
            }
        }

        /// A clock that is set changes nothing of what is due.
        #[test]
        fn a_clock_that_is_set_moves_all(seconds in 2..100_000i64, passed in 0..100_000i64, jump in -1_000_000_000..1_000_000_000i64) {
            let deadline = Deadline::new(Cause::GpusUnused, NOW, seconds, Source::Portal);
            let now = NOW.plus_seconds(passed);
            prop_assert_eq!(deadline.clone().moved(jump).lead(Timestamp(now.0 + jump)), deadline.lead(now));
        }
    }
}
