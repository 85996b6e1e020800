//! The one sentence that a session's card says: why it waits, what it does, when it ends,
//! why it ended and what would help. A pure function of the session, what surrounds it and
//! the time; pages draw its pieces, the API and the command line read it as plain text.

#[cfg(test)]
mod tests;

use std::fmt;

use super::moment::{Moment, Show};
use crate::model::{
    EndReason, Session, SessionState, Timestamp,
    ending::{Cause, Deadline},
    maintenance::ENDING,
    quota::Reason,
    size::{MIB, human_size},
    time::human_duration,
};

/// Holds the inputs of a sentence besides the session.
#[derive(Clone, Debug, Default)]
pub struct SentenceContext {
    pub now: Timestamp,
    /// What will stop it if nobody, or nothing, uses it until then.
    pub idle: Option<Deadline>,
    /// Why it cannot be extended now, where its end is near.
    pub no_extension: Option<String>,
    /// What the agent says it is doing while it starts; shown, never trusted.
    pub step: Option<String>,
    /// The most memory its owner may ask for, in bytes; bounds “start again with …”.
    pub most_memory_bytes: Option<i64>,
    /// Whether the reader is its owner: “you stopped it”.
    pub is_own: bool,
    /// When maintenance will end it.
    pub drained_at: Option<Timestamp>,
    /// When it begins at the latest, where it waits for room and that can be told.
    pub estimated_start: Option<Timestamp>,
}

/// A part of a sentence: words, words that matter, or a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Strong(String),
    At(Moment),
    /// An address of the web, which it also shows.
    Link(String),
}

/// A sentence in pieces. As `Display` it is plain text with UTC times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sentence(pub Vec<Piece>);

/// Idle for so long, and the card begins to speak of it (seconds); sooner where that is more
/// than half of the time after which it is stopped.
const MIN_IDLE_SHOWN: i64 = 10 * 60;
/// Starting for so long is longer than usual (seconds).
const SLOW_START: i64 = 3 * 60;

/// What a session's card says.
#[must_use]
pub fn sentence(session: &Session, around: &SentenceContext) -> Sentence {
    if session.state.is_live()
        && let Some(since) = session.unknown_since
    {
        return Sentence::default()
            .text("No contact since ")
            .at(since, Show::Clock, around)
            .text(". Its resources stay allocated until the scheduler responds.");
    }
    if let (SessionState::Starting | SessionState::Running, Some(since)) = (session.state, session.suspended_since) {
        return Sentence::default()
            .text("Suspended by Slurm since ")
            .at(since, Show::Clock, around)
            .text(". Its program and its time limit are paused.");
    }
    match session.state {
        SessionState::Queued => queued(session, around),
        SessionState::Starting => starting(session, around),
        SessionState::Running => running(session, around),
        SessionState::Stopping => stopping(session, around),
        SessionState::Ended => ended(session, around),
    }
}

/// The memory to offer after it ran out: twice as much, as far as its owner may ask for it.
/// `None` where it did not run out, or had all that there is to have.
#[must_use]
pub fn again_with_memory(session: &Session, most: Option<i64>) -> Option<i64> {
    let had = session.spec.resources.memory_bytes;
    let offer = had.saturating_mul(2).min(most.unwrap_or(i64::MAX)) / MIB * MIB;
    (session.end_reason == Some(EndReason::OutOfMemory) && had < offer).then_some(offer)
}

fn queued(session: &Session, around: &SentenceContext) -> Sentence {
    let why = hints(&session.reasons).or_else(|| session.detail.as_deref().map(as_sentence));
    if why.is_none() && session.is_admitted() {
        return Sentence::default().text("Counted in your quota. It starts in a moment.");
    }
    let pending = Sentence::default().text("Pending for ").at(session.created_at, Show::Since, around).text(".");
    let pending = match why {
        Some(why) => pending.text(format!(" {why}")),
        None => pending,
    };
    match around.estimated_start.filter(|start| around.now < *start) {
        Some(start) => pending.text(" Estimated start: ").at(start, Show::Clock, around).text(" at the latest."),
        None => pending,
    }
}

fn starting(session: &Session, around: &SentenceContext) -> Sentence {
    let since = session.started_at.or(session.admitted_at).unwrap_or(session.created_at);
    let step = around.step.as_deref().filter(|step| !step.trim().is_empty()).unwrap_or("waiting for a response");
    let sentence = Sentence::default()
        .text(if session.placement.is_some() {
            "Resources allocated ✓ · program started ✓ · "
        } else {
            "Resources allocated ✓ · "
        })
        .text(if session.placement.is_some() { step } else { "starting the program" })
        .text(", ")
        .at(since, Show::Since, around);
    if around.now.seconds_since(since) < SLOW_START {
        return sentence;
    }
    sentence.text(". This takes longer than usual. See its log.")
}

fn running(session: &Session, around: &SentenceContext) -> Sentence {
    if let Some(end) = around.drained_at {
        return Sentence::default()
            .strong("Ends for maintenance ")
            .at(end, Show::Clock, around)
            .text(", ")
            .at(end, Show::Left, around)
            .text(" left. Save your work before then.");
    }
    let sentence = match session.expires_at {
        Some(end) => Sentence::default()
            .text("Ends ")
            .at(end, Show::Clock, around)
            .text(", ")
            .at(end, Show::Left, around)
            .text(" left.")
            .also(around.no_extension.as_deref()),
        None => Sentence::default()
            .text("Running for ")
            .at(session.ready_at.unwrap_or(session.created_at), Show::Since, around)
            .text("."),
    };
    if let Some(deadline) = idle(session, around) {
        return sentence.text(" ").idle(deadline, around);
    }
    match session.keep_until.filter(|until| around.now < *until) {
        Some(until) => sentence.text(" Kept until ").at(until, Show::Clock, around).text(", even if idle."),
        None => sentence,
    }
}

/// What stops it for idleness, where that is worth saying.
pub(super) fn idle<'a>(session: &Session, around: &'a SentenceContext) -> Option<&'a Deadline> {
    let deadline = around.idle.as_ref()?;
    let ends_first = session.expires_at.is_some_and(|end| end <= deadline.at);
    let half = deadline.at.seconds_since(deadline.since) / 2;
    let is_waited_for = matches!(deadline.cause, Cause::Unopened { .. });
    let long_enough = is_waited_for || half.min(MIN_IDLE_SHOWN) <= around.now.seconds_since(deadline.since);
    (session.state == SessionState::Running && long_enough && !ends_first).then_some(deadline)
}

fn stopping(session: &Session, around: &SentenceContext) -> Sentence {
    let why = match session.stop_reason {
        Some(EndReason::StoppedByOwner) if around.is_own => "Stopping at your request",
        Some(EndReason::StoppedByOwner) => "Stopping at its owner's request",
        Some(EndReason::StoppedByAdmin) if is_maintenance(session) => "Stopping for maintenance",
        Some(EndReason::StoppedByAdmin) => "Stopping at an administrator's request",
        Some(EndReason::Idle) => "Stopping because it was not used",
        Some(EndReason::TimeLimit) => "Stopping because it reached its time limit",
        Some(EndReason::OutOfMemory) => "Stopping because it ran out of memory",
        _ => "Stopping",
    };
    match session.stopping_at {
        Some(since) => Sentence::default()
            .text(why)
            .text(", for ")
            .at(since, Show::Since, around)
            .text(". It is killed after 30 s."),
        None => Sentence::default().text(why).text("."),
    }
}

fn ended(session: &Session, around: &SentenceContext) -> Sentence {
    let at = session.ended_at.unwrap_or(around.now);
    let say = Sentence::default();
    let told = match session.end_reason {
        Some(EndReason::StoppedByOwner) if around.is_own => say.text("You stopped it ").ago(at, around).text("."),
        Some(EndReason::StoppedByOwner) => say.text("Its owner stopped it ").ago(at, around).text("."),
        Some(EndReason::StoppedByAdmin) if is_maintenance(session) => {
            let why = session.detail.as_deref().unwrap_or(ENDING);
            say.text(as_sentence(why)).text(" That was ").ago(at, around).text(".")
        }
        // Who that was, the cluster says or does not.
        Some(EndReason::StoppedByAdmin) if is_cancelled_outside(session) => {
            let how = session.detail.as_deref().unwrap_or_default();
            say.text(as_sentence(how)).text(" That was ").ago(at, around).text(".")
        }
        Some(EndReason::StoppedByAdmin) => say.text("An administrator stopped it ").ago(at, around).text("."),
        Some(EndReason::Idle) => say.text("Stopped ").ago(at, around).text(if session.detail.is_some() {
            "."
        } else {
            " because it was not used."
        }),
        Some(EndReason::TimeLimit) => say
            .text("Reached its time limit (")
            .strong(human_duration(session.spec.duration_seconds.max(lived(session).unwrap_or(0))))
            .text(") ")
            .ago(at, around)
            .text("."),
        Some(EndReason::OutOfMemory) => return out_of_memory(session, around),
        Some(EndReason::Exited) => match session.exit_code {
            Some(code) if code != 0 => say
                .text("Failed ")
                .ago(at, around)
                .text(" with exit code ")
                .strong(code.to_string())
                .text(". See its log for details."),
            Some(_) => say.text("Completed ").ago(at, around).text(" (exit code 0)."),
            None => say.text("Its program ended ").ago(at, around).text("."),
        },
        Some(EndReason::Signal) => say
            .text("Its program was killed ")
            .ago(at, around)
            .text(" by ")
            .strong(signal_name(session.signal))
            .text(". The portal did not send this signal."),
        Some(EndReason::NodeFailure) => say
            .text(node(session))
            .text(" failed ")
            .ago(at, around)
            .text(". Saved files are still there. Start it again."),
        Some(EndReason::HostRebooted) => say
            .text(node(session))
            .text(" was rebooted ")
            .ago(at, around)
            .text(". Saved files are still there. Start it again."),
        Some(EndReason::Preempted) => say.text("Preempted ").ago(at, around).text(" by work with a higher priority."),
        Some(EndReason::LaunchFailed) => {
            let why = session.detail.as_deref().unwrap_or("see its log");
            return say.text("Could not start: ").text(closed(why));
        }
        Some(EndReason::Refused) => {
            let why = hints(&session.reasons).or_else(|| session.detail.clone());
            return say.text(match why {
                Some(why) => format!("Refused: {}", closed(&why)),
                None => "Refused: it no longer fits within your limits.".to_owned(),
            });
        }
        Some(EndReason::Lost) => say.text("Declared lost ").ago(at, around).text(": its final state is unknown."),
        None => say.text("Ended ").ago(at, around).text("."),
    };
    // These sentences have said everything already.
    let said = matches!(
        session.end_reason,
        Some(EndReason::StoppedByOwner | EndReason::StoppedByAdmin | EndReason::TimeLimit)
    );
    match session.detail.as_deref().filter(|_| !said) {
        Some(detail) => match detail.strip_prefix("the program ended").or_else(|| detail.strip_prefix("the app ended"))
        {
            // How it ended is said; what follows are its last lines.
            Some(more) => match more.split_once("): ") {
                Some((_, lines)) => told.text(format!(" Last output: {}", closed(lines))),
                None => told,
            },
            None if detail.trim().is_empty() => told,
            None => told.text(format!(" {}", as_sentence(detail))),
        },
        None => told,
    }
}

/// Whether somebody ended its job without the portal, on a shell of the cluster's.
fn is_cancelled_outside(session: &Session) -> bool {
    session.detail.as_deref().is_some_and(|detail| detail.starts_with("cancelled in Slurm"))
}

fn is_maintenance(session: &Session) -> bool {
    session.detail.as_deref().is_some_and(|detail| detail.starts_with(ENDING))
}

fn out_of_memory(session: &Session, around: &SentenceContext) -> Sentence {
    let told = Sentence::default()
        .text("Out of memory: it requested ")
        .strong(human_size(session.spec.resources.memory_bytes))
        .text(" and used all of it. ");
    match again_with_memory(session, around.most_memory_bytes) {
        Some(more) => told.text("Start again with ").strong(human_size(more)).text("."),
        None => told.text("This is the most you can request: load less data at a time."),
    }
}

/// How long it ran, in seconds.
pub(super) fn lived(session: &Session) -> Option<i64> {
    Some(session.ended_at?.seconds_since(session.ready_at.or(session.started_at)?))
}

fn node(session: &Session) -> String {
    match &session.placement {
        Some(placement) => format!("Its node {}", placement.node),
        None => "Its node".to_owned(),
    }
}

fn signal_name(signal: Option<i64>) -> String {
    let name = match signal {
        Some(1) => "SIGHUP",
        Some(2) => "SIGINT",
        Some(6) => "SIGABRT",
        Some(7) => "SIGBUS",
        Some(9) => "SIGKILL",
        Some(11) => "SIGSEGV",
        Some(15) => "SIGTERM",
        Some(other) => return format!("signal {other}"),
        None => return "a signal".to_owned(),
    };
    name.to_owned()
}

/// The words without control characters and without those that turn the direction of what
/// follows: a step or a detail may come from a program that wants to mislead.
fn tame(words: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    words.chars().filter(|c| !c.is_control() && !turns(*c)).collect()
}

/// All hints as sentences, or `None` where there is nothing to say.
fn hints(reasons: &[Reason]) -> Option<String> {
    let told: Vec<String> = reasons.iter().map(|reason| closed(&reason.hint)).filter(|hint| !hint.is_empty()).collect();
    (!told.is_empty()).then(|| told.join(" "))
}

/// The words with a capital first and a full stop last.
pub fn as_sentence(words: &str) -> String {
    capitalised(&closed(words))
}

pub(super) fn capitalised(words: &str) -> String {
    let mut characters = words.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

fn closed(words: &str) -> String {
    let words = words.trim();
    let stop = if words.is_empty() || words.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    format!("{words}{stop}")
}

impl Sentence {
    pub(super) fn text(mut self, words: impl Into<String>) -> Self {
        self.0.push(Piece::Text(tame(&words.into())));
        self
    }

    pub(super) fn strong(mut self, words: impl Into<String>) -> Self {
        self.0.push(Piece::Strong(words.into()));
        self
    }

    pub(super) fn at(mut self, at: Timestamp, show: Show, around: &SentenceContext) -> Self {
        self.0.push(Piece::At(Moment { at, show, now: around.now }));
        self
    }

    /// What stops a session that is not used, when, and by whose rule.
    pub(super) fn idle(self, deadline: &Deadline, around: &SentenceContext) -> Self {
        let whose = format!(" (idle timeout {}, {})", human_duration(deadline.after_seconds), deadline.source);
        let (begun, unless) = match deadline.cause {
            Cause::Unopened { turn } => {
                let begun =
                    self.text("It left the queue at ").at(turn, Show::Clock, around).text(" and has not been opened");
                let stops = begun.text(": it is ").strong("stopped at ").at(deadline.at, Show::Clock, around);
                return stops.text(" unless it is opened.");
            }
            Cause::GpusUnused => (self.strong("GPUs idle for "), " unless they are used"),
            Cause::Unused | Cause::TimeLimit | Cause::Maintenance => (self.strong("Idle for "), " unless it is used"),
        };
        begun
            .at(deadline.since, Show::Since, around)
            .text(", stops at ")
            .at(deadline.at, Show::Clock, around)
            .text(format!("{unless}{whose}."))
    }

    /// Another sentence, where there is one.
    pub(super) fn also(self, more: Option<&str>) -> Self {
        match more {
            Some(more) => self.text(format!(" {}", as_sentence(more))),
            None => self,
        }
    }

    fn ago(self, at: Timestamp, around: &SentenceContext) -> Self {
        self.at(at, Show::Ago, around)
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(words) | Piece::Strong(words) | Piece::Link(words) => f.write_str(words),
            Piece::At(moment) => f.write_str(&moment.plain()),
        })
    }
}
