//! Slurm's words in ours: where each documented state of a job stands in a workload's life, why
//! one waits, and why one ended. A word that nobody knows yet is unknown, which ends nothing.

use crate::model::EndReason;

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// In Slurm's queue, or held there.
    Waiting,
    /// It has its nodes, or is about to give them back.
    Alive,
    Ended(Ended),
    /// A state that this version does not know.
    Unknown(String),
}

/// Why Slurm calls it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its first process ended by itself, well or not: the agent knows more.
    Itself,
    /// Somebody cancelled it, perhaps the portal.
    Cancelled,
    /// Slurm or the machine ended it.
    By(EndReason),
}

/// The states of `squeue(1)`, "JOB STATE CODES", of Slurm 20.11 to 25.11.
pub(super) fn standing(state: &str) -> Standing {
    // sacct adds by whom; newer versions join flags to the state by `+`.
    let word = state.split([' ', '+']).next().unwrap_or_default();
    match word {
        "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => Standing::Waiting,
        "CONFIGURING" | "POWER_UP_NODE" | "RUNNING" | "RESIZING" | "SIGNALING" | "STAGE_OUT" | "STOPPED"
        | "SUSPENDED" | "COMPLETING" | "UPDATE_DB" | "EXPEDITING" => Standing::Alive,
        "COMPLETED" | "FAILED" => Standing::Ended(Ended::Itself),
        "CANCELLED" | "REVOKED" => Standing::Ended(Ended::Cancelled),
        "TIMEOUT" | "DEADLINE" => Standing::Ended(Ended::By(EndReason::TimeLimit)),
        "OUT_OF_MEMORY" => Standing::Ended(Ended::By(EndReason::OutOfMemory)),
        "NODE_FAIL" | "BOOT_FAIL" => Standing::Ended(Ended::By(EndReason::NodeFailure)),
        "PREEMPTED" => Standing::Ended(Ended::By(EndReason::Preempted)),
        "LAUNCH_FAILED" | "RECONFIG_FAIL" => Standing::Ended(Ended::By(EndReason::LaunchFailed)),
        _ => Standing::Unknown(word.chars().filter(char::is_ascii_graphic).take(40).collect()),
    }
}

/// Why a job waits, as a whole sentence.
pub(super) fn why_it_waits(reason: &str) -> String {
    // `ReqNodeNotAvail, UnavailableNodes:node2` and the like: the first word says what it is.
    let word = reason.trim_start_matches('(').split([',', ' ', '(', ')']).next().unwrap_or_default();
    // `ReqNodeNotAvail, Reserved for maintenance`, in older versions with underscores.
    let words = reason.replace('_', " ");
    if let Some(what) = words.split(", ").find_map(|part| part.strip_prefix("Reserved for ")) {
        let what: String = what.chars().filter(|c| !c.is_control() && *c != ')').take(60).collect();
        return format!("Waits in Slurm’s queue: nodes that it needs are reserved for {what} ({word}).");
    }
    let told = match word {
        "ReqNodeNotAvail" if reason.replace('_', " ").contains("reserved for other job") => {
            "the node that it asks for is promised to another job first"
        }
        "" | "None" => return "Handed to Slurm, which has not looked at it yet.".to_owned(),
        // `Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions`,
        // in older versions with underscores.
        word if word.starts_with("Nodes") => {
            return "Waits in Slurm’s queue: nodes that it needs are drained, down or reserved.".to_owned();
        }
        "Priority" => "others with a higher priority come first",
        "Resources" => "what it asked for is not free yet",
        "BeginTime" => "Slurm starts it a little later",
        "Dependency" => "it depends on another job",
        "DependencyNeverSatisfied" => "it depends on a job that never ended well: stop it",
        "JobHeldUser" => "it is held: `scontrol release` lets it go on",
        "JobHeldAdmin" => "an administrator of the cluster holds it",
        "PartitionDown" => "its partition is down",
        "PartitionInactive" => "its partition takes no jobs now",
        "PartitionTimeLimit" => "it asks for more time than its partition allows: stop it and ask for less",
        "PartitionNodeLimit" => "it asks for more nodes than its partition allows: stop it and ask for less",
        "NodeDown" => "a node that it needs is down",
        "ReqNodeNotAvail" => "nodes that it needs are drained, down or reserved",
        "BadConstraints" => "no node can give what it asks for: stop it and ask for less",
        "Licenses" => "a licence that it needs is in use",
        "Reservation" => "its reservation has not begun, or is full",
        "ReservationDeleted" => "its reservation is gone: stop it",
        "InvalidAccount" => "its account is not allowed here: ask an administrator of the cluster",
        "InvalidQOS" => "its QOS is not allowed here: ask an administrator of the cluster",
        "Cleaning" => "it is being cleaned up after an earlier try",
        "SchedDefer" => "Slurm puts off looking at it",
        "launch_failed_requeued_held" | "JobLaunchFailure" => "its start failed on the node, and Slurm holds it",
        word if word.starts_with("QOS") => "a limit of its QOS is reached",
        word if word.starts_with("Assoc") => "a limit of its account is reached",
        word if word.starts_with("Max") || word.starts_with("Grp") => "a limit of the cluster is reached",
        _ => "Slurm says no more",
    };
    let word: String = word.chars().filter(char::is_ascii_graphic).take(40).collect();
    format!("Waits in Slurm’s queue: {told} ({word}).")
}

/// Whether Slurm's reason of a job or a node is that a start failed there: `launch failed requeued held`,
/// `JobLaunchFailure`, `Prolog error`, `batch job complete failure`.
pub(super) fn is_failed_start(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase().replace('_', " ");
    ["prolog", "launch fail", "launchfail", "batch job complete failure"].iter().any(|part| reason.contains(part))
}

/// What Slurm's end of a job means, as a sentence.
pub(super) fn why_it_ended(reason: EndReason, host: &str) -> String {
    let node = if host.is_empty() { "its node" } else { host };
    match reason {
        EndReason::TimeLimit => "Slurm ended it at its time limit".to_owned(),
        EndReason::OutOfMemory => "out of memory: it used all that it asked for".to_owned(),
        EndReason::NodeFailure => format!("Slurm reports a failure of {node}"),
        EndReason::Preempted => "Slurm ended it to make room for a job that goes before".to_owned(),
        EndReason::LaunchFailed => format!("Slurm could not start it on {node}"),
        _ => "Slurm ended it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each state that the manual pages of Slurm 22.05 and 25.05 name.
    #[test]
    fn every_documented_state() {
        use EndReason::{LaunchFailed, NodeFailure, OutOfMemory, Preempted, TimeLimit};
        for (state, wanted) in [
            ("BOOT_FAIL", Standing::Ended(Ended::By(NodeFailure))),
            ("CANCELLED", Standing::Ended(Ended::Cancelled)),
            ("CANCELLED by 1001", Standing::Ended(Ended::Cancelled)),
            ("COMPLETED", Standing::Ended(Ended::Itself)),
            ("CONFIGURING", Standing::Alive),
            ("COMPLETING", Standing::Alive),
            ("DEADLINE", Standing::Ended(Ended::By(TimeLimit))),
            ("EXPEDITING", Standing::Alive),
            ("FAILED", Standing::Ended(Ended::Itself)),
            ("LAUNCH_FAILED", Standing::Ended(Ended::By(LaunchFailed))),
            ("NODE_FAIL", Standing::Ended(Ended::By(NodeFailure))),
            ("OUT_OF_MEMORY", Standing::Ended(Ended::By(OutOfMemory))),
            ("PENDING", Standing::Waiting),
            ("POWER_UP_NODE", Standing::Alive),
            ("PREEMPTED", Standing::Ended(Ended::By(Preempted))),
            ("RECONFIG_FAIL", Standing::Ended(Ended::By(LaunchFailed))),
            ("REQUEUED", Standing::Waiting),
            ("REQUEUE_FED", Standing::Waiting),
            ("REQUEUE_HOLD", Standing::Waiting),
            ("RESIZING", Standing::Alive),
            ("RESV_DEL_HOLD", Standing::Waiting),
            ("REVOKED", Standing::Ended(Ended::Cancelled)),
            ("RUNNING", Standing::Alive),
            ("SIGNALING", Standing::Alive),
            ("SPECIAL_EXIT", Standing::Waiting),
            ("STAGE_OUT", Standing::Alive),
            ("STOPPED", Standing::Alive),
            ("SUSPENDED", Standing::Alive),
            ("TIMEOUT", Standing::Ended(Ended::By(TimeLimit))),
            ("UPDATE_DB", Standing::Alive),
        ] {
            assert_eq!(standing(state), wanted, "{state}");
        }
        assert_eq!(standing("HIBERNATING"), Standing::Unknown("HIBERNATING".to_owned()));
        assert_eq!(standing(""), Standing::Unknown(String::new()));
    }

    #[test]
    fn reasons_are_sentences_with_slurms_word() {
        for (reason, part) in [
            ("None", "has not looked"),
            ("Priority", "higher priority"),
            ("ReqNodeNotAvail, UnavailableNodes:node2", "drained"),
            ("ReqNodeNotAvail, May be reserved for other job", "promised to another job"),
            ("ReqNodeNotAvail, Reserved for maintenance", "reserved for maintenance (ReqNodeNotAvail)"),
            ("(ReqNodeNotAvail,_Reserved_for_maintenance)", "reserved for "),
            ("QOSMaxGRESPerUser", "limit of its QOS"),
            ("AssocGrpCpuLimit", "limit of its account"),
            ("(Resources)", "not free yet"),
            ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher", "are drained, down"),
            ("(Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved)", "are drained, down"),
            ("SomethingNew\u{1b}[31m", "(SomethingNew[31m)"),
        ] {
            let sentence = why_it_waits(reason);
            assert!(sentence.contains(part) && sentence.ends_with('.') && !sentence.contains('\u{1b}'), "{sentence}");
        }
    }
}
