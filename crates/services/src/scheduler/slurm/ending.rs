//! How a job ended, told from three witnesses: the controller, which is true and says little;
//! the accounts, where there are any; and the agent's exit record, which its user may have
//! written and which decides what is shown and nothing else.

use super::{
    super::{Exit, local::exit::judge},
    state::{Ended, JobPhase, why_it_ended},
};
use lyceum_model::{EndReason, Timestamp};
use lyceum_wire::protocol::ExitRecord;

/// What is known of a job that is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// Why Slurm calls it over; `None` where it has forgotten the job.
    pub ended: Option<Ended>,
    /// As `wait` has it.
    pub status: i32,
    pub host: String,
    pub ended_at: Option<Timestamp>,
    pub record: Option<ExitRecord>,
    /// Whether the agent has begun; if not, `said` is what the script has written.
    pub begun: bool,
    pub said: String,
    /// Whether the portal has asked for its end.
    pub asked: bool,
    /// Whom the job ran as, and who cancelled it.
    pub uid: u32,
    pub cancelled_by: Option<u32>,
    /// Why Slurm says that its start failed, in Slurm's words: a Prolog, or the node's daemon.
    pub failed_start: Option<String>,
}

/// What a state of the accounts says, as a witness of a job's end.
pub(super) fn ended_of(standing: &JobPhase) -> Option<Ended> {
    match standing {
        JobPhase::Ended(ended) => Some(*ended),
        _ => None,
    }
}

pub(super) fn judge_job(evidence: Evidence, now: Timestamp) -> Exit {
    // Slurm's clock is not ours: nothing has ended in the future.
    let at = evidence.ended_at.map_or(now, |at| at.min(now));
    let exit = |reason, detail: String| Exit { reason, exit_code: None, signal: None, ended_at: at, detail };
    match evidence.ended {
        Some(Ended::By(EndReason::OutOfMemory)) if evidence.record.is_some() => judge(true, evidence.record, at),
        // Slurm itself cancels what it could not start.
        Some(Ended::Cancelled) if !evidence.asked && !evidence.begun && evidence.failed_start.is_some() => {
            let (node, why) = (&evidence.host, evidence.failed_start.unwrap_or_default());
            let node = if node.is_empty() { "its node" } else { node };
            exit(Some(EndReason::NodeFailure), format!("Slurm could not start it on {node}: {why}"))
        }
        Some(Ended::By(reason)) => exit(Some(reason), why_it_ended(reason, &evidence.host)),
        Some(Ended::Cancelled) if evidence.asked => exit(None, "cancelled in Slurm on request".to_owned()),
        Some(Ended::Cancelled) => match evidence.cancelled_by {
            Some(uid) if uid == evidence.uid => {
                exit(Some(EndReason::StoppedByOwner), "cancelled in Slurm by its owner".to_owned())
            }
            Some(uid) => exit(Some(EndReason::StoppedByAdmin), format!("cancelled in Slurm by uid {uid}")),
            None => {
                exit(Some(EndReason::StoppedByAdmin), "cancelled in Slurm; Slurm does not report by whom".to_owned())
            }
        },
        Some(Ended::Itself) | None if evidence.record.is_some() => judge(false, evidence.record, at),
        None => exit(
            Some(EndReason::Lost),
            "Slurm no longer has its job, and the session’s own record is missing".to_owned(),
        ),
        Some(Ended::Itself) if !evidence.begun => {
            let why = if evidence.said.is_empty() { String::new() } else { format!(": {}", evidence.said) };
            exit(Some(EndReason::LaunchFailed), format!("its program could not be started on {}{why}", evidence.host))
        }
        Some(Ended::Itself) => {
            let signal = evidence.status & 0x7f;
            if signal == 0 {
                let code = i64::from(evidence.status >> 8);
                Exit {
                    exit_code: Some(code),
                    ..exit(Some(EndReason::Exited), format!("its job ended (exit code {code})"))
                }
            } else {
                let detail = "the session's supervisor was killed before it could report why".to_owned();
                Exit { signal: Some(signal.into()), ..exit(Some(EndReason::Signal), detail) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_wire::protocol::ExitCause;

    #[test]
    fn table() {
        use EndReason::{
            Exited, LaunchFailed, Lost, NodeFailure, OutOfMemory, Preempted, Signal, StoppedByAdmin, StoppedByOwner,
            TimeLimit,
        };
        let record = |cause, exit_code| {
            Some(ExitRecord { cause, exit_code, signal: None, ended_at_ms: 0, detail: "d".to_owned() })
        };
        let failed = || Some("Prolog error".to_owned());
        let by = |reason| Evidence { ended: Some(Ended::By(reason)), begun: true, ..Evidence::default() };
        let itself = Evidence { ended: Some(Ended::Itself), begun: true, ..Evidence::default() };
        let cancelled = Evidence { ended: Some(Ended::Cancelled), uid: 7, ..Evidence::default() };
        for (evidence, reason, code) in [
            (by(TimeLimit), Some(TimeLimit), None),
            (by(NodeFailure), Some(NodeFailure), None),
            (by(Preempted), Some(Preempted), None),
            (by(OutOfMemory), Some(OutOfMemory), None),
            (Evidence { record: record(ExitCause::Asked, None), ..by(TimeLimit) }, Some(TimeLimit), None),
            (Evidence { record: record(ExitCause::App, Some(1)), ..by(OutOfMemory) }, Some(OutOfMemory), Some(1)),
            (Evidence { record: record(ExitCause::App, Some(3)), ..itself.clone() }, Some(Exited), Some(3)),
            (Evidence { record: record(ExitCause::Asked, None), ..itself.clone() }, None, None),
            (Evidence { status: 5 * 256, ..itself.clone() }, Some(Exited), Some(5)),
            (Evidence { status: 9, ..itself.clone() }, Some(Signal), None),
            (Evidence { begun: false, status: 127 * 256, ..itself }, Some(LaunchFailed), None),
            (Evidence { asked: true, ..cancelled.clone() }, None, None),
            (Evidence { cancelled_by: Some(7), ..cancelled.clone() }, Some(StoppedByOwner), None),
            (Evidence { cancelled_by: Some(0), ..cancelled.clone() }, Some(StoppedByAdmin), None),
            (cancelled.clone(), Some(StoppedByAdmin), None),
            (Evidence { failed_start: failed(), ..cancelled.clone() }, Some(NodeFailure), None),
            (Evidence { failed_start: failed(), cancelled_by: Some(0), ..cancelled.clone() }, Some(NodeFailure), None),
            (Evidence { failed_start: failed(), asked: true, ..cancelled.clone() }, None, None),
            (Evidence { failed_start: failed(), begun: true, ..cancelled }, Some(StoppedByAdmin), None),
            (Evidence { record: record(ExitCause::App, Some(0)), ..Evidence::default() }, Some(Exited), Some(0)),
            (Evidence::default(), Some(Lost), None),
        ] {
            let exit = judge_job(evidence.clone(), Timestamp(50));
            assert_eq!((exit.reason, exit.exit_code), (reason, code), "{evidence:?}");
        }
        let early = Evidence { ended_at: Some(Timestamp(9)), ..by(TimeLimit) };
        assert_eq!(judge_job(early, Timestamp(50)).ended_at, Timestamp(9));
        let future = Evidence { ended_at: Some(Timestamp(99)), ..by(TimeLimit) };
        assert_eq!(judge_job(future, Timestamp(50)).ended_at, Timestamp(50), "a clock that is ahead");
    }
}
