//! `sacct`: what the accounts say of jobs, of each of their starts by itself: a job that was put
//! back into the queue has a row for what it was before. They know what the controller has
//! forgotten, and are asked for that alone.

use super::{
    queue::{moment, one_line, resources, rows, unreadable},
    sinfo,
    state::{JobPhase, standing},
};
use lyceum_model::{Resources, Timestamp, session::Allocation};

/// One start of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub job: u32,
    pub uid: u32,
    pub standing: JobPhase,
    /// Who cancelled it, where somebody did.
    pub cancelled_by: Option<u32>,
    /// As `wait` has it.
    pub status: i32,
    pub submitted_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub suspended_seconds: i64,
    pub resources: Resources,
    /// The account's name.
    pub user: String,
    /// What Slurm charges.
    pub account: String,
    /// `12` or `12_3`
    pub label: String,
    /// Whatever its author likes, in one line.
    pub name: String,
}

const FIELDS: [&str; 13] = [
    "JobIDRaw",
    "UID",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "Suspended",
    "AllocTRES",
    "User",
    "Account",
    "JobID",
    "JobName",
];

/// Which starts are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum StartQuery {
    /// All of one job.
    Job(u32),
    /// Everybody's that ran in the last so many seconds.
    Lately(i64),
}

pub(super) fn arguments(separator: &str, which: StartQuery) -> Vec<String> {
    let words = ["--allocations", "--duplicates", "--noheader", "--noconvert", "--parsable"];
    let mut arguments: Vec<String> = words.map(str::to_owned).into();
    arguments.extend([format!("--delimiter={separator}"), format!("--format={}", FIELDS.join(","))]);
    match which {
        StartQuery::Job(job) => arguments.push(format!("--jobs={job}")),
        StartQuery::Lately(seconds) => {
            arguments.extend(["--allusers".to_owned(), format!("--starttime=now-{seconds}")]);
        }
    }
    arguments
}

/// Reads the rows, in the order in which they were handed in.
pub(super) fn parse(output: &str, separator: &str) -> Result<Vec<Record>, String> {
    let mut records: Vec<Record> = rows(output, separator, "sacct")?.map(|row| read(row?)).collect::<Result<_, _>>()?;
    records.sort_by_key(|record| record.submitted_at);
    Ok(records)
}

fn read(row: [&str; FIELDS.len()]) -> Result<Record, String> {
    let [job, uid, state, status, submitted, started, ended, suspended, tres, user, account, label, name] =
        row.map(str::trim);
    let unreadable = |what: &str| unreadable("sacct", what);
    let (code, signal) = status.split_once(':').ok_or_else(|| unreadable(status))?;
    let number = |text: &str| text.parse::<i32>().map_err(|_err| unreadable(status));
    Ok(Record {
        job: job.parse().map_err(|_err| unreadable(job))?,
        uid: uid.parse().map_err(|_err| unreadable(uid))?,
        standing: standing(state),
        cancelled_by: state.split_once(" by ").and_then(|(_, uid)| uid.trim().parse().ok()),
        status: number(code)? * 256 + number(signal)?,
        submitted_at: moment(submitted),
        started_at: moment(started),
        ended_at: moment(ended),
        suspended_seconds: sinfo::seconds(suspended).unwrap_or(0),
        resources: resources(tres, "", "", 1),
        user: one_line(user),
        account: one_line(account),
        label: one_line(label),
        name: one_line(name),
    })
}

impl Record {
    /// What it held; `None` of one that never began.
    pub fn allocation(&self, start: i64) -> Option<Allocation> {
        let (started_at, to) = (self.started_at?, self.ended_at);
        let Resources { gpus, cpus, memory_bytes, .. } = self.resources;
        let from = started_at.plus_seconds(self.suspended_seconds);
        (cpus > 0 && to.is_none_or(|to| started_at < to)).then_some(Allocation {
            start,
            from,
            to,
            gpus,
            cpus,
            memory_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::EndReason;

    use crate::scheduler::slurm::state::Ended;

    fn record(state: &str, status: &str) -> Result<Record, String> {
        let text =
            format!("7|1001|{state}|{status}|10|20|30|1-00:00:05|cpu=2,mem=1G,gres/gpu=1|bob|vision|7_1|a\nb|\n");
        parse(&text, "|").map(|mut records| records.remove(0))
    }

    #[test]
    fn records() {
        let cancelled = record("CANCELLED by 1001", "0:15").unwrap();
        assert_eq!((&cancelled.standing, cancelled.cancelled_by), (&JobPhase::Ended(Ended::Cancelled), Some(1001)));
        assert_eq!((cancelled.status, cancelled.suspended_seconds), (15, 86_405));
        assert_eq!((&*cancelled.user, &*cancelled.account), ("bob", "vision"));
        assert_eq!((&*cancelled.label, &*cancelled.name), ("7_1", "a b"));
        let timed_out = record("TIMEOUT", "3:0").unwrap();
        assert_eq!((timed_out.standing, timed_out.status), (JobPhase::Ended(Ended::By(EndReason::TimeLimit)), 768));
        assert!(record("COMPLETED", "x:y").is_err() && record("COMPLETED", "").is_err());
        assert!(parse("", "|").unwrap().is_empty());
        assert!(parse("sacct: error", "|").is_err());
    }

    #[test]
    fn what_never_began_held_nothing() {
        let begun = record("COMPLETED", "0:0").unwrap();
        assert!(begun.allocation(1).is_some());
        assert_eq!(Record { started_at: None, ..begun.clone() }.allocation(1), None);
        assert_eq!(Record { resources: resources("", "", "", 1), ..begun.clone() }.allocation(1), None);
        assert_eq!(Record { ended_at: begun.started_at, ..begun }.allocation(1), None, "no time at all");
    }
}
