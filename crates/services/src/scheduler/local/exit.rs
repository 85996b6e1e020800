//! How a workload ended, told from two witnesses: the kernel's count of processes that it
//! ended for lack of memory, which is true, and the agent's exit record, which its user may
//! have written. The record decides what is shown and nothing else.

use super::Exit;
use lyceum_model::{EndReason, Timestamp, line::abridged};
use lyceum_wire::protocol::{ExitCause, ExitRecord};

/// The longest sentence that is taken over from a record, in characters: what happened, and the
/// last lines of a log.
const MAX_DETAIL: usize = 800;

/// `oom_killed`: the kernel ended something in the workload's groups for lack of memory.
pub(in crate::scheduler) fn judge(oom_killed: bool, record: Option<ExitRecord>, now: Timestamp) -> Exit {
    let exit = |reason, exit_code: Option<i32>, signal: Option<i32>, detail: String| Exit {
        reason,
        exit_code: exit_code.map(i64::from),
        signal: signal.map(i64::from),
        ended_at: now,
        detail,
    };
    let Some(record) = record else {
        return if oom_killed {
            exit(
                Some(EndReason::OutOfMemory),
                None,
                None,
                "out of memory: it used all memory that it requested".to_owned(),
            )
        } else {
            let detail = "the session's supervisor was killed before it could report why";
            exit(Some(EndReason::Signal), None, Some(9), detail.to_owned())
        };
    };
    let ExitRecord { cause, exit_code, signal, detail, .. } = record;
    let reason = match cause {
        ExitCause::Asked => None,
        // A kernel that was lost to memory at noon is not why the app ended well at night.
        ExitCause::App if exit_code == Some(0) => Some(EndReason::Exited),
        _ if oom_killed => Some(EndReason::OutOfMemory),
        ExitCause::App if signal.is_some() => Some(EndReason::Signal),
        ExitCause::App => Some(EndReason::Exited),
        ExitCause::OutOfMemory => Some(EndReason::OutOfMemory),
        ExitCause::LaunchFailed => Some(EndReason::LaunchFailed),
    };
    exit(reason, exit_code, signal.filter(|signal| (1..=64).contains(signal)), abridged(&detail, MAX_DETAIL))
}

/// The end of a workload whose run directory somebody removed under it.
pub(in crate::scheduler) fn directory_gone(directory: &str, now: Timestamp) -> Exit {
    let lingering = if directory.starts_with("/run/user/") {
        ", which happens when its user signs out of the machine: run `loginctl enable-linger`, and start it again"
    } else {
        ": start it again"
    };
    Exit {
        reason: Some(EndReason::Lost),
        exit_code: None,
        signal: None,
        ended_at: now,
        detail: format!("its directory {directory} was removed while it ran{lingering}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(cause: ExitCause, exit_code: Option<i32>, signal: Option<i32>) -> ExitRecord {
        ExitRecord { cause, exit_code, signal, ended_at_ms: i64::MIN, detail: "a\u{1b}[31m\nb".to_owned() }
    }

    #[test]
    fn table() {
        use EndReason::{Exited, LaunchFailed, OutOfMemory, Signal};
        let now = Timestamp(5);
        for (oom, record, reason) in [
            (true, None, Some(OutOfMemory)),
            (false, None, Some(Signal)),
            (true, Some(record(ExitCause::App, None, Some(9))), Some(OutOfMemory)),
            (true, Some(record(ExitCause::App, Some(137), None)), Some(OutOfMemory)),
            (true, Some(record(ExitCause::App, Some(0), None)), Some(Exited)),
            (true, Some(record(ExitCause::Asked, None, Some(15))), None),
            (false, Some(record(ExitCause::Asked, Some(0), None)), None),
            (false, Some(record(ExitCause::App, Some(1), None)), Some(Exited)),
            (false, Some(record(ExitCause::App, None, Some(11))), Some(Signal)),
            (false, Some(record(ExitCause::OutOfMemory, None, None)), Some(OutOfMemory)),
            (false, Some(record(ExitCause::LaunchFailed, None, None)), Some(LaunchFailed)),
        ] {
            let exit = judge(oom, record.clone(), now);
            assert_eq!(exit.reason, reason, "{oom} {record:?}");
            assert_eq!(exit.ended_at, now, "the record's time is its user's word");
        }
    }

    #[test]
    fn what_is_shown_is_one_plain_line() {
        let exit = judge(false, Some(record(ExitCause::App, Some(1), Some(4000))), Timestamp(0));
        assert_eq!((exit.detail.as_str(), exit.signal), ("a [31m b", None));
        let long = ExitRecord {
            detail: format!("it ended: {}the cause", "é ".repeat(9999)),
            ..record(ExitCause::App, Some(1), None)
        };
        let detail = judge(false, Some(long), Timestamp(0)).detail;
        assert!(detail.starts_with("it ended: ") && detail.ends_with("the cause"), "{detail}");
        assert!(detail.chars().count() <= MAX_DETAIL);
    }
}
