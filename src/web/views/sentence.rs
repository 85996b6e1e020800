//! The one sentence that a session's card says: why it waits, what it does, when it ends,
//! why it ended and what would help. A pure function of the session, what surrounds it and
//! the time; pages draw its pieces, the API and the command line read it as plain text.

use std::fmt;

use super::moment::{Moment, Show};
use crate::model::{
    EndReason, Session, SessionState, Timestamp,
    quota::Reason,
    size::{MIB, human_size},
    time::human_duration,
};

/// What the sentence needs to know besides the session itself.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    pub now: Timestamp,
    /// When it will be stopped for idleness, if nobody uses it until then.
    pub idle_stops_at: Option<Timestamp>,
    /// What the agent says it is doing while it starts; shown, never trusted.
    pub step: Option<String>,
    /// The most memory its owner may ask for, in bytes; bounds “start again with …”.
    pub most_memory_bytes: Option<i64>,
    /// Whether the reader is its owner: “you stopped it”.
    pub is_own: bool,
}

/// A part of a sentence: words, words that matter, or a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Strong(String),
    At(Moment),
}

/// A sentence in pieces. As `Display` it is plain text with UTC times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sentence(pub Vec<Piece>);

/// Idle for so long, and the card begins to speak of it (seconds).
const IDLE_IS_WORTH_SAYING: i64 = 10 * 60;
/// Starting for so long is longer than usual (seconds).
const SLOW_START: i64 = 3 * 60;

/// What a session's card says.
#[must_use]
pub fn sentence(session: &Session, around: &Circumstances) -> Sentence {
    if session.state.is_live()
        && let Some(since) = session.unknown_since
    {
        return Sentence::default()
            .text("No word of it since ")
            .at(since, Show::Clock, around)
            .text(". It keeps its place until somebody can be asked.");
    }
    match session.state {
        SessionState::Queued => queued(session),
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

fn queued(session: &Session) -> Sentence {
    match (hints(&session.reasons), &session.detail) {
        (Some(hints), _) => Sentence::default().text(hints),
        (None, Some(detail)) => Sentence::default().text(as_sentence(detail)),
        (None, None) if session.is_admitted() => {
            Sentence::default().text("Counted in your quota; it starts in a moment.")
        }
        (None, None) => Sentence::default().text("Waiting for its turn."),
    }
}

fn starting(session: &Session, around: &Circumstances) -> Sentence {
    let since = session.started_at.or(session.admitted_at).unwrap_or(session.created_at);
    let step = around.step.as_deref().filter(|step| !step.trim().is_empty()).unwrap_or("waiting for its first answer");
    let sentence = Sentence::default()
        .text(if session.placement.is_some() { "Placed ✓ · program started ✓ · " } else { "Placed ✓ · " })
        .text(if session.placement.is_some() { step } else { "starting its program" })
        .text(", ")
        .at(since, Show::Since, around);
    if around.now.seconds_since(since) < SLOW_START {
        return sentence;
    }
    sentence.text(". Longer than usual: its log may say why.")
}

fn running(session: &Session, around: &Circumstances) -> Sentence {
    let sentence = match session.expires_at {
        Some(end) => Sentence::default()
            .text("Ends ")
            .at(end, Show::Clock, around)
            .text(", ")
            .at(end, Show::Left, around)
            .text(" left."),
        None => Sentence::default()
            .text("Running for ")
            .at(session.ready_at.unwrap_or(session.created_at), Show::Since, around)
            .text("."),
    };
    if let Some((idle_since, stops_at)) = idle(session, around) {
        return sentence
            .text(" ")
            .strong("Idle ")
            .at(idle_since, Show::Since, around)
            .text(", stops at ")
            .at(stops_at, Show::Clock, around)
            .text(" unless it is used.");
    }
    match session.keep_until.filter(|until| around.now < *until) {
        Some(until) => sentence.text(" Kept, also when idle, until ").at(until, Show::Clock, around).text("."),
        None => sentence,
    }
}

/// Since when it is idle and when it stops for that, where that is worth saying.
pub(super) fn idle(session: &Session, around: &Circumstances) -> Option<(Timestamp, Timestamp)> {
    let stops_at = around.idle_stops_at?;
    let since = session.last_activity_at.or(session.ready_at)?;
    let ends_first = session.expires_at.is_some_and(|end| end <= stops_at);
    let long_enough = IDLE_IS_WORTH_SAYING <= around.now.seconds_since(since);
    (session.state == SessionState::Running && long_enough && !ends_first).then_some((since, stops_at))
}

fn stopping(session: &Session, around: &Circumstances) -> Sentence {
    let why = match session.stop_reason {
        Some(EndReason::StoppedByOwner) if around.is_own => "Stopping, as you asked",
        Some(EndReason::StoppedByOwner) => "Stopping, as its owner asked",
        Some(EndReason::StoppedByAdmin) => "Stopping, as an administrator asked",
        Some(EndReason::Idle) => "Stopping, because nobody used it",
        Some(EndReason::TimeLimit) => "Stopping, because its time is over",
        Some(EndReason::OutOfMemory) => "Stopping, because its memory is used up",
        _ => "Stopping",
    };
    match session.stopping_at {
        Some(since) => Sentence::default()
            .text(why)
            .text(", for ")
            .at(since, Show::Since, around)
            .text(". After 30 s it is ended by force."),
        None => Sentence::default().text(why).text("."),
    }
}

fn ended(session: &Session, around: &Circumstances) -> Sentence {
    let at = session.ended_at.unwrap_or(around.now);
    let say = Sentence::default();
    let told = match session.end_reason {
        Some(EndReason::StoppedByOwner) if around.is_own => say.text("You stopped it ").ago(at, around).text("."),
        Some(EndReason::StoppedByOwner) => say.text("Its owner stopped it ").ago(at, around).text("."),
        Some(EndReason::StoppedByAdmin) => say.text("An administrator stopped it ").ago(at, around).text("."),
        Some(EndReason::Idle) => match session.last_activity_at.filter(|last| *last < at) {
            Some(last) => say
                .text("Stopped ")
                .ago(at, around)
                .text(format!(", after {} without use.", human_duration(at.seconds_since(last)))),
            None => say.text("Stopped ").ago(at, around).text(", because nobody used it."),
        },
        Some(EndReason::TimeLimit) => say
            .text("Its time of ")
            .strong(human_duration(session.spec.duration_seconds.max(lived(session).unwrap_or(0))))
            .text(" was over ")
            .ago(at, around)
            .text("."),
        Some(EndReason::OutOfMemory) => return out_of_memory(session, around),
        Some(EndReason::Exited) => match session.exit_code {
            Some(code) if code != 0 => say
                .text("Its program ended ")
                .ago(at, around)
                .text(" with exit code ")
                .strong(code.to_string())
                .text("; its log says more."),
            _ => say.text("Its program ended by itself ").ago(at, around).text("."),
        },
        Some(EndReason::Signal) => say
            .text("Its program was ended ")
            .ago(at, around)
            .text(" by ")
            .strong(signal_name(session.signal))
            .text(", which did not come from the portal."),
        Some(EndReason::NodeFailure) => say
            .text(node(session))
            .text(" failed ")
            .ago(at, around)
            .text(". What is saved in files is still there; start it again."),
        Some(EndReason::HostRebooted) => say
            .text(node(session))
            .text(" was restarted ")
            .ago(at, around)
            .text(". What is saved in files is still there; start it again."),
        Some(EndReason::Preempted) => say.text("It gave way to more urgent work ").ago(at, around).text("."),
        Some(EndReason::LaunchFailed) => {
            let why = session.detail.as_deref().unwrap_or("its log may say why");
            return say.text("It could not be started: ").text(closed(why));
        }
        Some(EndReason::Refused) => {
            let why = hints(&session.reasons).or_else(|| session.detail.clone());
            return say.text(match why {
                Some(why) => format!("Refused: {}", closed(&why)),
                None => "Refused: it no longer fits within what you may use.".to_owned(),
            });
        }
        Some(EndReason::Lost) => {
            say.text("Declared lost ").ago(at, around).text(": nobody could find out what became of it.")
        }
        None => say.text("Ended ").ago(at, around).text("."),
    };
    match &session.detail {
        Some(detail) if !detail.trim().is_empty() => told.text(format!(" {}", as_sentence(detail))),
        _ => told,
    }
}

fn out_of_memory(session: &Session, around: &Circumstances) -> Sentence {
    let told = Sentence::default()
        .text("Out of memory: it asked for ")
        .strong(human_size(session.spec.resources.memory_bytes))
        .text(" and used all of them. ");
    match again_with_memory(session, around.most_memory_bytes) {
        Some(more) => told.text("Start again with ").strong(human_size(more)).text("."),
        None => told.text("That is the most you may have: load less at a time."),
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

/// All hints as sentences, or `None` where there is nothing to say.
fn hints(reasons: &[Reason]) -> Option<String> {
    let told: Vec<String> =
        reasons.iter().map(|reason| as_sentence(&reason.hint)).filter(|hint| !hint.is_empty()).collect();
    (!told.is_empty()).then(|| told.join(" "))
}

/// The words with a capital first and a full stop last.
fn as_sentence(words: &str) -> String {
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
    fn text(mut self, words: impl Into<String>) -> Self {
        self.0.push(Piece::Text(words.into()));
        self
    }

    fn strong(mut self, words: impl Into<String>) -> Self {
        self.0.push(Piece::Strong(words.into()));
        self
    }

    fn at(mut self, at: Timestamp, show: Show, around: &Circumstances) -> Self {
        self.0.push(Piece::At(Moment { at, show, now: around.now }));
        self
    }

    fn ago(self, at: Timestamp, around: &Circumstances) -> Self {
        self.at(at, Show::Ago, around)
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(words) | Piece::Strong(words) => f.write_str(words),
            Piece::At(moment) => f.write_str(&moment.plain()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Resources, SessionId, UserId,
        session::{Placement, SessionSpec},
        size::GIB,
    };

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn session(state: SessionState) -> Session {
        Session {
            id: SessionId::new(),
            owner: UserId::new(),
            owner_name: "alice".to_owned(),
            app: "jupyter".to_owned(),
            name: "nb".to_owned(),
            state,
            spec: SessionSpec {
                resources: Resources { memory_bytes: 2 * GIB, ..Resources::default() },
                profile: None,
                environment: None,
                working_directory: None,
                duration_seconds: 28_800,
                log_directory: None,
            },
            reasons: Vec::new(),
            gpus: Vec::new(),
            cluster: "local".to_owned(),
            placement: None,
            extensions: 0,
            created_at: NOW.plus_seconds(-7200),
            admitted_at: None,
            started_at: None,
            ready_at: None,
            expires_at: None,
            last_activity_at: None,
            keep_until: None,
            unknown_since: None,
            stop_reason: None,
            stopping_at: None,
            ended_at: None,
            end_reason: None,
            exit_code: None,
            signal: None,
            detail: None,
        }
    }

    fn reason(hint: &str) -> Reason {
        let (code, scope) = ("quota.gpus.user".to_owned(), "default".to_owned());
        Reason { code, scope, used: 2, requested: 1, limit: 2, over_by: 1, hint: hint.to_owned() }
    }

    fn placement() -> Placement {
        Placement {
            node: "node003".to_owned(),
            pid: 1,
            start_ticks: 1,
            boot_id: String::new(),
            uid: 1000,
            unix_name: "alice".to_owned(),
            run_directory: String::new(),
            limits: String::new(),
        }
    }

    #[track_caller]
    fn says(state: SessionState, change: impl FnOnce(&mut Session, &mut Circumstances), expected: &str) {
        let mut session = session(state);
        let mut around = Circumstances { now: NOW, is_own: true, ..Circumstances::default() };
        change(&mut session, &mut around);
        assert_eq!(sentence(&session, &around).to_string(), expected);
    }

    #[test]
    fn waiting_says_why() {
        use SessionState::Queued;
        says(Queued, |_, _| {}, "Waiting for its turn.");
        says(Queued, |s, _| s.admitted_at = Some(NOW), "Counted in your quota; it starts in a moment.");
        says(Queued, |s, _| s.detail = Some("the software is being built".to_owned()), "The software is being built.");
        says(
            Queued,
            |s, _| s.reasons = vec![reason("your limit is 2 GPUs"), reason(" "), reason("The machine is full!")],
            "Your limit is 2 GPUs. The machine is full!",
        );
    }

    #[test]
    fn starting_says_how_far() {
        use SessionState::Starting;
        says(Starting, |s, _| s.started_at = Some(NOW.plus_seconds(-2)), "Placed ✓ · starting its program, 2 s");
        let placed = |s: &mut Session, seconds: i64| {
            s.placement = Some(placement());
            s.started_at = Some(NOW.plus_seconds(-seconds));
        };
        says(
            Starting,
            |s, a| {
                placed(s, 3);
                a.step = Some("copying templates".to_owned());
            },
            "Placed ✓ · program started ✓ · copying templates, 3 s",
        );
        says(
            Starting,
            |s, _| placed(s, 240),
            "Placed ✓ · program started ✓ · waiting for its first answer, 4 min. Longer than usual: its log may say why.",
        );
    }

    #[test]
    fn running_says_when_it_ends() {
        use SessionState::Running;
        let ends = |s: &mut Session, seconds| s.expires_at = Some(NOW.plus_seconds(seconds));
        let idle = |s: &mut Session, a: &mut Circumstances| {
            s.last_activity_at = Some(NOW.plus_seconds(-2400));
            a.idle_stops_at = Some(NOW.plus_seconds(4800));
        };
        says(Running, |s, _| ends(s, 4320), "Ends 23:25 UTC, 1 h 12 min left.");
        says(Running, |s, _| s.ready_at = Some(NOW.plus_seconds(-3600)), "Running for 1 h.");
        says(
            Running,
            |s, a| {
                ends(s, 28_800);
                idle(s, a);
            },
            "Ends Wed 15 Nov 06:13 UTC, 8 h left. Idle 40 min, stops at 23:33 UTC unless it is used.",
        );
        says(
            Running,
            |s, a| {
                ends(s, 1800);
                idle(s, a);
            },
            "Ends 22:43 UTC, 30 min left.",
        );
        says(
            Running,
            |s, _| {
                ends(s, 4320);
                s.keep_until = Some(NOW.plus_seconds(3600));
            },
            "Ends 23:25 UTC, 1 h 12 min left. Kept, also when idle, until 23:13 UTC.",
        );
        says(
            Running,
            |s, _| s.unknown_since = Some(NOW.plus_seconds(-60)),
            "No word of it since 22:12 UTC. It keeps its place until somebody can be asked.",
        );
    }

    #[test]
    fn stopping_says_for_whom() {
        use SessionState::Stopping;
        says(Stopping, |_, _| {}, "Stopping.");
        says(
            Stopping,
            |s, _| {
                s.stop_reason = Some(EndReason::StoppedByOwner);
                s.stopping_at = Some(NOW.plus_seconds(-4));
            },
            "Stopping, as you asked, for 4 s. After 30 s it is ended by force.",
        );
        says(Stopping, |s, _| s.stop_reason = Some(EndReason::TimeLimit), "Stopping, because its time is over.");
    }

    #[test]
    fn every_end_has_its_sentence() {
        for &reason in EndReason::ALL {
            let expected = match reason {
                EndReason::StoppedByOwner => "You stopped it 4 min ago.",
                EndReason::StoppedByAdmin => "An administrator stopped it 4 min ago.",
                EndReason::Idle => "Stopped 4 min ago, after 2 h without use.",
                EndReason::TimeLimit => "Its time of 8 h was over 4 min ago.",
                EndReason::OutOfMemory => {
                    "Out of memory: it asked for 2 GB and used all of them. Start again with 4 GB."
                }
                EndReason::Exited => "Its program ended 4 min ago with exit code 3; its log says more.",
                EndReason::Signal => "Its program was ended 4 min ago by SIGSEGV, which did not come from the portal.",
                EndReason::NodeFailure => {
                    "Its node node003 failed 4 min ago. What is saved in files is still there; start it again."
                }
                EndReason::HostRebooted => {
                    "Its node node003 was restarted 4 min ago. What is saved in files is still there; start it again."
                }
                EndReason::Preempted => "It gave way to more urgent work 4 min ago.",
                EndReason::LaunchFailed => "It could not be started: its log may say why.",
                EndReason::Refused => "Refused: it no longer fits within what you may use.",
                EndReason::Lost => "Declared lost 4 min ago: nobody could find out what became of it.",
            };
            says(
                SessionState::Ended,
                |s, _| {
                    s.end_reason = Some(reason);
                    s.ended_at = Some(NOW.plus_seconds(-240));
                    s.last_activity_at = Some(NOW.plus_seconds(-7440));
                    s.placement = Some(placement());
                    s.exit_code = Some(3);
                    s.signal = Some(11);
                },
                expected,
            );
        }
        let with_detail = |reason| {
            move |s: &mut Session, a: &mut Circumstances| {
                s.end_reason = Some(reason);
                s.ended_at = Some(NOW);
                s.detail = Some("no such directory: /nope".to_owned());
                a.is_own = false;
            }
        };
        says(
            SessionState::Ended,
            with_detail(EndReason::LaunchFailed),
            "It could not be started: no such directory: /nope.",
        );
        says(
            SessionState::Ended,
            with_detail(EndReason::Exited),
            "Its program ended by itself just now. No such directory: /nope.",
        );
        says(
            SessionState::Ended,
            with_detail(EndReason::StoppedByOwner),
            "Its owner stopped it just now. No such directory: /nope.",
        );
    }

    #[test]
    fn more_memory_is_offered_as_far_as_there_is_more() {
        let mut session = session(SessionState::Ended);
        assert_eq!(again_with_memory(&session, None), None, "it did not run out");
        session.end_reason = Some(EndReason::OutOfMemory);
        assert_eq!(again_with_memory(&session, None), Some(4 * GIB));
        assert_eq!(again_with_memory(&session, Some(3 * GIB)), Some(3 * GIB));
        assert_eq!(again_with_memory(&session, Some(2 * GIB)), None);
        session.spec.resources.memory_bytes = i64::MAX;
        assert_eq!(again_with_memory(&session, None), None, "no overflow");
        says(
            SessionState::Ended,
            |s, a| {
                s.end_reason = Some(EndReason::OutOfMemory);
                a.most_memory_bytes = Some(2 * GIB);
            },
            "Out of memory: it asked for 2 GB and used all of them. That is the most you may have: load less at a time.",
        );
    }
}
