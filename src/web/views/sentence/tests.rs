//! What the card says, as a table: every state, every way to end, every bound of the offer.

use super::*;
use crate::model::{
    quota::{Code, Field, Holder, Source},
    session::{Placement, example},
    size::GIB,
};

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn session(state: SessionState) -> Session {
    let mut session = example(state);
    session.created_at = NOW.plus_seconds(-7200);
    session.spec.resources.memory_bytes = 2 * GIB;
    session
}

fn reason(hint: &str) -> Reason {
    let (code, source) = (Code::limit(&Field::Gpus, Holder::User), Source::Default);
    Reason { code, source, used: 2, requested: 1, limit: 2, over_by: 1, hint: hint.to_owned() }
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
        link: None,
    }
}

#[track_caller]
fn says(state: SessionState, change: impl FnOnce(&mut Session, &mut SentenceContext), expected: &str) {
    let mut session = session(state);
    let mut around = SentenceContext { now: NOW, is_own: true, ..SentenceContext::default() };
    change(&mut session, &mut around);
    assert_eq!(sentence(&session, &around).to_string(), expected);
}

#[test]
fn waiting_says_why() {
    use SessionState::Queued;
    says(Queued, |_, _| {}, "Pending for 2 h.");
    says(Queued, |s, _| s.admitted_at = Some(NOW), "Counted in your quota. It starts in a moment.");
    says(
        Queued,
        |s, _| s.detail = Some("the software is being built".to_owned()),
        "Pending for 2 h. The software is being built.",
    );
    let waits = |s: &mut Session, hint: &str| {
        s.created_at = NOW.plus_seconds(-240);
        s.reasons = vec![reason(hint), reason(" "), reason("The machine is full!")];
    };
    says(
        Queued,
        |s, _| waits(s, "Your limit is 2 GPUs and 2 are in use by ‘resnet’"),
        "Pending for 4 min. Your limit is 2 GPUs and 2 are in use by ‘resnet’. The machine is full!",
    );
    says(
        Queued,
        |s, a| {
            waits(s, "GPU 3 does not respond");
            a.estimated_start = Some(NOW.plus_seconds(3600));
        },
        "Pending for 4 min. GPU 3 does not respond. The machine is full! Estimated start: 23:13 UTC at the latest.",
    );
    says(
        Queued,
        |s, a| {
            waits(s, "A100s are rare");
            a.estimated_start = Some(NOW);
        },
        "Pending for 4 min. A100s are rare. The machine is full!",
    );
}

#[test]
fn starting_says_how_far() {
    use SessionState::Starting;
    says(
        Starting,
        |s, _| s.started_at = Some(NOW.plus_seconds(-2)),
        "Resources allocated ✓ · starting the program, 2 s",
    );
    let placed = |s: &mut Session, seconds: i64| {
        s.placement = Some(placement());
        s.started_at = Some(NOW.plus_seconds(-seconds));
    };
    says(
        Starting,
        |s, a| {
            placed(s, 3);
            a.step = Some("copying\u{202e}\u{1b} templates".to_owned());
        },
        "Resources allocated ✓ · program started ✓ · copying templates, 3 s",
    );
    says(
        Starting,
        |s, _| placed(s, 240),
        "Resources allocated ✓ · program started ✓ · waiting for a response, 4 min. This takes longer than usual. See \
         its log.",
    );
}

#[test]
fn running_says_when_it_ends() {
    use SessionState::Running;
    let ends = |s: &mut Session, seconds| s.expires_at = Some(NOW.plus_seconds(seconds));
    let unused = |idle: i64, after: i64| Deadline::new(Cause::Unused, NOW.plus_seconds(-idle), after, Source::Default);
    let idle = |_: &mut Session, a: &mut SentenceContext| a.idle = Some(unused(2400, 7200));
    says(Running, |s, _| ends(s, 4320), "Ends 23:25 UTC, 1 h 12 min left.");
    says(Running, |s, _| s.ready_at = Some(NOW.plus_seconds(-3600)), "Running for 1 h.");
    says(
        Running,
        |s, a| {
            ends(s, 28_800);
            idle(s, a);
        },
        "Ends Wed 15 Nov 06:13 UTC, 8 h left. Idle for 40 min, stops at 23:33 UTC unless it is used (idle timeout 2 h, \
         default).",
    );
    // Stopped after five minutes: halfway there it says so.
    let five_minutes = |a: &mut SentenceContext, idle: i64| a.idle = Some(unused(idle, 300));
    says(
        Running,
        |s, a| {
            ends(s, 4320);
            five_minutes(a, 149);
        },
        "Ends 23:25 UTC, 1 h 12 min left.",
    );
    says(
        Running,
        |s, a| {
            ends(s, 4320);
            five_minutes(a, 180);
        },
        "Ends 23:25 UTC, 1 h 12 min left. Idle for 3 min, stops at 22:15 UTC unless it is used (idle timeout 5 min, \
         default).",
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
        "Ends 23:25 UTC, 1 h 12 min left. Kept until 23:13 UTC, even if idle.",
    );
    says(
        Running,
        |s, _| s.unknown_since = Some(NOW.plus_seconds(-60)),
        "No contact since 22:12 UTC. Its resources stay allocated until the scheduler responds.",
    );
    says(
        Running,
        |s, _| s.suspended_since = Some(NOW.plus_seconds(-60)),
        "Suspended by Slurm since 22:12 UTC. Its program and its time limit are paused.",
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
        "Stopping at your request, for 4 s. It is killed after 30 s.",
    );
    says(Stopping, |s, _| s.stop_reason = Some(EndReason::TimeLimit), "Stopping because it reached its time limit.");
}

#[test]
fn what_a_program_wrote_last_is_told_without_saying_twice_how_it_ended() {
    let ended = |detail: &str, expected: &str| {
        says(
            SessionState::Ended,
            |s, _| {
                s.end_reason = Some(EndReason::Exited);
                s.exit_code = Some(3);
                s.ended_at = Some(NOW.plus_seconds(-240));
                s.detail = Some(detail.to_owned());
            },
            expected,
        );
    };
    let told = "Failed 4 min ago with exit code 3. See its log for details.";
    ended("the program ended (exit code 3)", told);
    ended("the program ended (exit code 3): one · it is broken", &format!("{told} Last output: one · it is broken."));
    ended("node003: no such directory", &format!("{told} Node003: no such directory."));
}

#[test]
fn every_end_has_its_sentence() {
    for &reason in EndReason::ALL {
        let expected = match reason {
            EndReason::StoppedByOwner => "You stopped it 4 min ago.",
            EndReason::StoppedByAdmin => "An administrator stopped it 4 min ago.",
            EndReason::Idle => "Stopped 4 min ago because it was not used.",
            EndReason::TimeLimit => "Reached its time limit (8 h) 4 min ago.",
            EndReason::OutOfMemory => "Out of memory: it requested 2 GiB and used all of it. Start again with 4 GiB.",
            EndReason::Exited => "Failed 4 min ago with exit code 3. See its log for details.",
            EndReason::Signal => "Its program was killed 4 min ago by SIGSEGV. The portal did not send this signal.",
            EndReason::NodeFailure => "Its node node003 failed 4 min ago. Saved files are still there. Start it again.",
            EndReason::HostRebooted => {
                "Its node node003 was rebooted 4 min ago. Saved files are still there. Start it again."
            }
            EndReason::Preempted => "Preempted 4 min ago by work with a higher priority.",
            EndReason::LaunchFailed => "Could not start: see its log.",
            EndReason::Refused => "Refused: it no longer fits within your limits.",
            EndReason::Lost => "Declared lost 4 min ago: its final state is unknown.",
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
        move |s: &mut Session, a: &mut SentenceContext| {
            s.end_reason = Some(reason);
            s.ended_at = Some(NOW);
            s.detail = Some("no such directory: /nope".to_owned());
            a.is_own = false;
        }
    };
    says(SessionState::Ended, with_detail(EndReason::LaunchFailed), "Could not start: no such directory: /nope.");
    says(SessionState::Ended, with_detail(EndReason::Exited), "Its program ended just now. No such directory: /nope.");
    says(SessionState::Ended, with_detail(EndReason::Idle), "Stopped just now. No such directory: /nope.");
    says(SessionState::Ended, with_detail(EndReason::StoppedByOwner), "Its owner stopped it just now.");
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
        "Out of memory: it requested 2 GiB and used all of it. This is the most you can request: load less data at a \
         time.",
    );
}
