//! Slurm's words in ours: where each documented state of a job stands in a workload's life, why
//! one waits, and why one ended. A word that nobody knows yet is unknown, which ends nothing.

use lyceum_model::EndReason;

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobPhase {
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
pub(super) fn standing(state: &str) -> JobPhase {
    // sacct adds by whom; newer versions join flags to the state by `+`.
    let word = state.split([' ', '+']).next().unwrap_or_default();
    match word {
        "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => JobPhase::Waiting,
        "CONFIGURING" | "POWER_UP_NODE" | "RUNNING" | "RESIZING" | "SIGNALING" | "STAGE_OUT" | "STOPPED"
        | "SUSPENDED" | "COMPLETING" | "UPDATE_DB" | "EXPEDITING" => JobPhase::Alive,
        "COMPLETED" | "FAILED" => JobPhase::Ended(Ended::Itself),
        "CANCELLED" | "REVOKED" => JobPhase::Ended(Ended::Cancelled),
        "TIMEOUT" | "DEADLINE" => JobPhase::Ended(Ended::By(EndReason::TimeLimit)),
        "OUT_OF_MEMORY" => JobPhase::Ended(Ended::By(EndReason::OutOfMemory)),
        "NODE_FAIL" | "BOOT_FAIL" => JobPhase::Ended(Ended::By(EndReason::NodeFailure)),
        "PREEMPTED" => JobPhase::Ended(Ended::By(EndReason::Preempted)),
        "LAUNCH_FAILED" | "RECONFIG_FAIL" => JobPhase::Ended(Ended::By(EndReason::LaunchFailed)),
        _ => JobPhase::Unknown(word.chars().filter(char::is_ascii_graphic).take(40).collect()),
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
        return format!("Nodes that it needs are reserved for {what} (Slurm: {word}).");
    }
    let told = match word {
        "ReqNodeNotAvail" if reason.replace('_', " ").contains("reserved for other job") => {
            "The node that it requests is planned for another job first"
        }
        "" | "None" => return "Submitted to Slurm, which has not considered it yet.".to_owned(),
        // `Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions`,
        // in older versions with underscores.
        word if word.starts_with("Nodes") => {
            return "Nodes that it needs are drained, down or reserved.".to_owned();
        }
        "Priority" => "Jobs with a higher priority start first",
        "Resources" => "The requested resources are not free yet",
        "BeginTime" => "Slurm starts it a little later",
        "Dependency" => "It depends on another job",
        "DependencyNeverSatisfied" => "It depends on a job that did not end as required: stop it",
        "JobHeldUser" => "It is held: release it with `scontrol release`",
        "JobHeldAdmin" => "It is held by an administrator of the cluster",
        "PartitionDown" => "Its partition is down",
        "PartitionInactive" => "Its partition does not accept jobs now",
        "PartitionTimeLimit" => "It requests more time than its partition allows: stop it and request less",
        "PartitionNodeLimit" => "It requests more nodes than its partition allows: stop it and request fewer",
        "NodeDown" => "A node that it needs is down",
        "ReqNodeNotAvail" => "Nodes that it needs are drained, down or reserved",
        "BadConstraints" => "No node has what it requests: stop it and request less",
        "Licenses" => "A licence that it needs is in use",
        "Reservation" => "Its reservation has not started, or is full",
        "ReservationDeleted" => "Its reservation was deleted: stop it",
        "InvalidAccount" => "Its account is not allowed: ask an administrator of the cluster",
        "InvalidQOS" => "Its QOS is not allowed: ask an administrator of the cluster",
        "Cleaning" => "It is being cleaned up after an earlier attempt",
        "SchedDefer" => "Slurm has deferred scheduling it",
        "launch_failed_requeued_held" | "JobLaunchFailure" => "It failed to start on the node, and Slurm holds it",
        word if word.starts_with("QOS") => "A limit of its QOS is reached",
        word if word.starts_with("Assoc") => "A limit of its account is reached",
        word if word.starts_with("Max") || word.starts_with("Grp") => "A limit of the cluster is reached",
        _ => "Slurm does not report more",
    };
    let word: String = word.chars().filter(char::is_ascii_graphic).take(40).collect();
    format!("{told} (Slurm: {word}).")
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
        EndReason::OutOfMemory => "out of memory: it used all memory that it requested".to_owned(),
        EndReason::NodeFailure => format!("Slurm reports a failure of {node}"),
        EndReason::Preempted => "Slurm ended it to make room for a job with a higher priority".to_owned(),
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
            ("BOOT_FAIL", JobPhase::Ended(Ended::By(NodeFailure))),
            ("CANCELLED", JobPhase::Ended(Ended::Cancelled)),
            ("CANCELLED by 1001", JobPhase::Ended(Ended::Cancelled)),
            ("COMPLETED", JobPhase::Ended(Ended::Itself)),
            ("CONFIGURING", JobPhase::Alive),
            ("COMPLETING", JobPhase::Alive),
            ("DEADLINE", JobPhase::Ended(Ended::By(TimeLimit))),
            ("EXPEDITING", JobPhase::Alive),
            ("FAILED", JobPhase::Ended(Ended::Itself)),
            ("LAUNCH_FAILED", JobPhase::Ended(Ended::By(LaunchFailed))),
            ("NODE_FAIL", JobPhase::Ended(Ended::By(NodeFailure))),
            ("OUT_OF_MEMORY", JobPhase::Ended(Ended::By(OutOfMemory))),
            ("PENDING", JobPhase::Waiting),
            ("POWER_UP_NODE", JobPhase::Alive),
            ("PREEMPTED", JobPhase::Ended(Ended::By(Preempted))),
            ("RECONFIG_FAIL", JobPhase::Ended(Ended::By(LaunchFailed))),
            ("REQUEUED", JobPhase::Waiting),
            ("REQUEUE_FED", JobPhase::Waiting),
            ("REQUEUE_HOLD", JobPhase::Waiting),
            ("RESIZING", JobPhase::Alive),
            ("RESV_DEL_HOLD", JobPhase::Waiting),
            ("REVOKED", JobPhase::Ended(Ended::Cancelled)),
            ("RUNNING", JobPhase::Alive),
            ("SIGNALING", JobPhase::Alive),
            ("SPECIAL_EXIT", JobPhase::Waiting),
            ("STAGE_OUT", JobPhase::Alive),
            ("STOPPED", JobPhase::Alive),
            ("SUSPENDED", JobPhase::Alive),
            ("TIMEOUT", JobPhase::Ended(Ended::By(TimeLimit))),
            ("UPDATE_DB", JobPhase::Alive),
        ] {
            assert_eq!(standing(state), wanted, "{state}");
        }
        assert_eq!(standing("HIBERNATING"), JobPhase::Unknown("HIBERNATING".to_owned()));
        assert_eq!(standing(""), JobPhase::Unknown(String::new()));
    }

    #[test]
    fn reasons_are_sentences_with_slurms_word() {
        for (reason, part) in [
            ("None", "has not considered"),
            ("Priority", "higher priority"),
            ("ReqNodeNotAvail, UnavailableNodes:node2", "drained"),
            ("ReqNodeNotAvail, May be reserved for other job", "planned for another job"),
            ("ReqNodeNotAvail, Reserved for maintenance", "reserved for maintenance (Slurm: ReqNodeNotAvail)"),
            ("(ReqNodeNotAvail,_Reserved_for_maintenance)", "reserved for "),
            ("QOSMaxGRESPerUser", "limit of its QOS"),
            ("AssocGrpCpuLimit", "limit of its account"),
            ("(Resources)", "not free yet"),
            ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher", "are drained, down"),
            ("(Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved)", "are drained, down"),
            ("SomethingNew\u{1b}[31m", "(Slurm: SomethingNew[31m)"),
        ] {
            let sentence = why_it_waits(reason);
            assert!(sentence.contains(part) && sentence.ends_with('.') && !sentence.contains('\u{1b}'), "{sentence}");
        }
    }
}
