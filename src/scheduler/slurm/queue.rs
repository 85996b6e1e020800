//! `squeue`: which words ask for all jobs at once, and reading the answer. Fields end in a
//! separator that is drawn anew for each call, because a comment is whatever its author likes,
//! line breaks and a forged row included.

use super::state::{Standing, standing};
use crate::model::Timestamp;

/// A job, as the controller tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub job: u32,
    pub standing: Standing,
    /// Slurm's own word for why it waits, or for why it ended.
    pub reason: String,
    pub uid: u32,
    /// Where it runs or waits; several while it waits for any of them.
    pub partitions: Vec<String>,
    /// The node of its first process; empty while it waits.
    pub host: String,
    /// As `wait` has it: the exit code times 256, or the number of a signal.
    pub status: i32,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Whatever its author likes.
    pub comment: String,
}

const FIELDS: [&str; 10] =
    ["jobid", "state", "reason", "userid", "partition", "batchhost", "exit_code", "starttime", "endtime", "comment"];

/// The words for all jobs of everybody, those that have ended a short while ago included.
pub(super) fn arguments(separator: &str) -> Vec<String> {
    let fields = FIELDS.map(|field| format!("{field}:{separator}")).join(",");
    let mut arguments: Vec<String> =
        ["--noheader", "--all", "--states=all", "--noconvert", "--Format"].map(str::to_owned).into();
    arguments.push(fields);
    arguments
}

/// Reads the rows; those that are none are an error, for then nothing can be said of any job.
pub(super) fn parse(output: &str, separator: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let mut fields = output.split(separator);
    loop {
        let Some(first) = fields.next() else { return Ok(rows) };
        let job = first.trim_start_matches(['\n', ' ']);
        if job.is_empty() {
            return if fields.next().is_none() { Ok(rows) } else { Err(unreadable(first)) };
        }
        let mut next = || fields.next().ok_or_else(|| unreadable(first));
        let state = next()?;
        let (reason, uid, partitions, host, status, started, ended, comment) =
            (next()?, next()?, next()?, next()?, next()?, next()?, next()?, next()?);
        rows.push(Row {
            job: job.trim().parse().map_err(|_err| unreadable(job))?,
            standing: standing(state.trim()),
            reason: reason.trim().to_owned(),
            uid: uid.trim().parse().map_err(|_err| unreadable(uid))?,
            partitions: partitions.trim().split(',').map(str::to_owned).collect(),
            host: Some(host.trim()).filter(|host| *host != "n/a").unwrap_or_default().to_owned(),
            status: status.trim().parse().unwrap_or(0),
            started_at: moment(started),
            ended_at: moment(ended),
            comment: comment.to_owned(),
        });
    }
}

/// Seconds since 1970; anything else is no moment.
fn moment(text: &str) -> Option<Timestamp> {
    text.trim().parse::<i64>().ok().filter(|seconds| 0 < *seconds)?.checked_mul(1000).map(Timestamp)
}

fn unreadable(what: &str) -> String {
    let what: String = what.chars().filter(|c| !c.is_control()).take(60).collect();
    format!("squeue answered something else: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_as_they_were_recorded() {
        let separator = "<S>";
        // Of Slurm 22.05.8, with a comment of several lines that tries to be a row.
        let output = "2<S>PENDING<S>PartitionTimeLimit<S>1002<S>debug,long<S>n/a<S>0<S>N/A<S>N/A<S><S>\n\
                      1<S>FAILED<S>NonZeroExitCode<S>1001<S>debug<S>node1<S>768<S>1795337994<S>1795337998<S>ly:x\n1 RUNNING<S>\n";
        let rows = parse(output, separator).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].job, &rows[0].standing, rows[0].host.as_str()), (2, &Standing::Waiting, ""));
        assert_eq!((rows[0].started_at, rows[0].comment.as_str()), (None, ""));
        assert_eq!(rows[0].partitions, ["debug", "long"]);
        assert_eq!((rows[1].uid, rows[1].status, rows[1].comment.as_str()), (1001, 768, "ly:x\n1 RUNNING"));
        assert_eq!(rows[1].ended_at, Some(Timestamp(1_795_337_998_000)));
        assert_eq!(parse("", separator).unwrap(), []);
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for bad in [
            "slurm_load_jobs error",
            "x<S>RUNNING<S>",
            "1<S>RUNNING<S>None<S>",
            "a<S>b<S>c<S>d<S>e<S>f<S>g<S>h<S>i<S>j<S>\n",
        ] {
            assert!(parse(bad, "<S>").is_err(), "{bad}");
        }
    }

    #[test]
    fn the_words_are_words() {
        let arguments = arguments("\u{1f}ab\u{1f}");
        assert_eq!(arguments.last().unwrap().matches("\u{1f}ab\u{1f}").count(), FIELDS.len());
        assert!(arguments.last().unwrap().ends_with("comment:\u{1f}ab\u{1f}"), "whose author could write anything");
    }
}
