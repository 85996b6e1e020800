//! `squeue`: which words ask for all jobs at once, and reading the answer. Fields end in a
//! separator that is drawn anew for each call, because a comment is whatever its author likes,
//! line breaks and a forged row included.

use std::{
    collections::{BTreeMap, HashMap},
    iter,
};

use super::{
    mark::JobMarks,
    sinfo::{self, ANY_GPU},
    state::{JobPhase, standing},
};
use lyceum_model::{Resources, SessionId, Timestamp, session::Allocation, size::parse_size};

/// A job, as the controller tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub job: u32,
    pub standing: JobPhase,
    /// It is over but for its tidying up.
    pub is_ending: bool,
    /// It has its nodes, and its time stands still.
    pub is_suspended: bool,
    /// Slurm's own word for why it waits, or for why it ended.
    pub reason: String,
    pub uid: u32,
    /// Where it runs or waits; several while it waits for any of them.
    pub partitions: Vec<String>,
    /// The node of its first process; empty while it waits.
    pub host: String,
    /// As `wait` has it: the exit code times 256, or the number of a signal.
    pub status: i32,
    /// When it began; of one that waits, when Slurm thinks that it will.
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// How long it has run, without what it was suspended.
    pub ran_seconds: Option<i64>,
    /// How often it was put back into the queue after it had begun.
    pub restarts: i64,
    pub of_queue: QueueDetails,
    /// Whatever its author likes.
    pub comment: String,
    /// What of the portal's it is, by its mark.
    pub session: Option<SessionId>,
}

/// What is told of a job to people who look at the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueDetails {
    /// `12`, `12_3` or `12_[4-9]`
    pub label: String,
    /// How many jobs this row is of: the tasks of an array that wait are one row.
    pub tasks: i64,
    /// The account's name.
    pub user: String,
    /// What Slurm charges; empty where it keeps no accounts.
    pub account: String,
    /// The higher comes first.
    pub priority: i64,
    pub submitted_at: Option<Timestamp>,
    /// `None`: for ever.
    pub limit_seconds: Option<i64>,
    pub nodes: i64,
    pub node_names: String,
    pub resources: Resources,
    /// Whatever its author likes, in one line.
    pub name: String,
}

impl Row {
    /// Which start of it this is, or will be.
    pub fn start(&self) -> i64 {
        self.restarts + 1
    }

    /// What it holds, or held, and since when, as it was told at this moment: its beginning, later
    /// by as long as it was suspended.
    pub fn allocation(&self, told_at: Timestamp) -> Option<Allocation> {
        // Of one that has not begun, Slurm says when it might; of one that leaves its node to wait again, too.
        let waits = self.standing == JobPhase::Waiting || self.is_ending && self.ran_seconds == Some(0);
        let (started_at, begun) = (self.started_at?, !waits && !self.host.is_empty());
        let end = match self.standing {
            JobPhase::Ended(_) => self.ended_at?,
            _ => told_at,
        };
        let suspended = end.seconds_since(started_at).saturating_sub(self.ran_seconds?);
        // While it runs, two clocks are compared.
        let is_sure = matches!(self.standing, JobPhase::Ended(_)) || suspended > CLOCKS;
        let from = started_at.plus_seconds(if is_sure { suspended.max(0) } else { 0 });
        let Resources { gpus, cpus, memory_bytes, .. } = self.of_queue.resources;
        begun.then_some(Allocation { start: self.start(), from, to: None, gpus, cpus, memory_bytes })
    }
}

pub(super) type Jobs = HashMap<SessionId, Vec<Row>>;
pub(super) type Tally = BTreeMap<String, (i64, i64)>;

/// What one answer of `squeue` says.
#[derive(Default)]
pub(super) struct SeenQueue {
    pub jobs: Jobs,
    pub tally: Tally,
    /// In the order of their numbers.
    pub queue: Vec<Row>,
    pub ended: Vec<Row>,
}

impl SeenQueue {
    /// Reads the answer and sorts its jobs; whose they are, their marks say.
    pub fn read(text: &str, separator: &str, marks: &JobMarks) -> Result<Self, String> {
        let mut seen = Self { queue: parse(text, separator)?, ..Self::default() };
        for row in &mut seen.queue {
            for partition in &row.partitions {
                let counts = seen.tally.entry(partition.clone()).or_default();
                match row.standing {
                    JobPhase::Alive => counts.0 += 1,
                    JobPhase::Waiting => counts.1 = counts.1.saturating_add(row.of_queue.tasks),
                    JobPhase::Ended(_) | JobPhase::Unknown(_) => {}
                }
            }
            row.session = marks.read(&row.comment, row.uid);
            if let Some(session) = row.session {
                seen.jobs.entry(session).or_default().push(row.clone());
            }
        }
        seen.ended = seen.queue.extract_if(.., |row| matches!(row.standing, JobPhase::Ended(_))).collect();
        seen.queue.sort_by_key(|row| row.job);
        for rows in seen.jobs.values_mut() {
            rows.sort_by_key(|row| row.job);
        }
        Ok(seen)
    }
}

/// So far apart may our clock and Slurm's be (seconds).
const CLOCKS: i64 = 20;

const FIELDS: [&str; 24] = [
    "jobid",
    "state",
    "reason",
    "userid",
    "partition",
    "batchhost",
    "exit_code",
    "starttime",
    "endtime",
    "timeused",
    "restartcnt",
    "jobarrayid",
    "username",
    "account",
    "prioritylong",
    "submittime",
    "timelimit",
    "numnodes",
    "nodelist",
    "tres-alloc",
    "tres-per-job",
    "tres-per-node",
    "name",
    "comment",
];

/// The words for all jobs of everybody, those that have ended a short while ago included.
pub(super) fn arguments(separator: &str) -> Vec<String> {
    let fields = FIELDS.map(|field| format!("{field}:{separator}")).join(",");
    let mut arguments: Vec<String> =
        ["--noheader", "--all", "--states=all", "--noconvert", "--Format"].map(str::to_owned).into();
    arguments.push(fields);
    arguments
}

/// Reads the jobs; what is none is an error, for then nothing can be said of any job.
pub(super) fn parse(output: &str, separator: &str) -> Result<Vec<Row>, String> {
    rows(output, separator, "squeue")?.map(|row| read(&row?)).collect()
}

/// Takes the answer of a tool apart into rows of so many fields, each of which ends in the separator.
pub(super) fn rows<'a, const FIELDS: usize>(
    output: &'a str,
    separator: &'a str,
    tool: &'static str,
) -> Result<impl Iterator<Item = Result<[&'a str; FIELDS], String>> + 'a, String> {
    let (body, rest) = output.rsplit_once(separator).map_or((None, output), |(body, rest)| (Some(body), rest));
    // A job whose mark breaks off would look like one of somebody else's.
    if !rest.trim().is_empty() {
        return Err(unreadable(tool, rest));
    }
    let mut fields = body.into_iter().flat_map(move |body| body.split(separator));
    Ok(iter::from_fn(move || {
        let first = fields.next()?;
        let mut row = [first.trim_start_matches(['\n', ' ']); FIELDS];
        for field in &mut row[1..] {
            match fields.next() {
                Some(next) => *field = next,
                None => return Some(Err(unreadable(tool, first))),
            }
        }
        Some(Ok(row))
    }))
}

fn read(row: &[&str; FIELDS.len()]) -> Result<Row, String> {
    let comment = row[FIELDS.len() - 1];
    let [
        job,
        state,
        reason,
        uid,
        partitions,
        host,
        status,
        started,
        ended,
        ran,
        restarts,
        label,
        user,
        account,
        rest @ ..,
    ] = row.map(str::trim);
    let [priority, submitted, limit, nodes, node_names, tres, per_job, per_node, name, _] = rest;
    let nodes = nodes.parse().unwrap_or(1);
    Ok(Row {
        job: job.parse().map_err(|_err| unreadable("squeue", job))?,
        standing: standing(state),
        is_ending: state == "COMPLETING",
        is_suspended: state == "SUSPENDED",
        reason: reason_text(reason, moment(started)),
        uid: uid.parse().map_err(|_err| unreadable("squeue", uid))?,
        partitions: partitions.split(',').map(str::to_owned).collect(),
        host: if host == "n/a" { String::new() } else { host.to_owned() },
        status: status.parse().unwrap_or(0),
        started_at: moment(started),
        ended_at: moment(ended),
        ran_seconds: sinfo::seconds(ran),
        restarts: restarts.parse().unwrap_or(0),
        of_queue: QueueDetails {
            label: one_line(label),
            tasks: tasks(label),
            user: one_line(user),
            account: one_line(account),
            priority: priority.parse().unwrap_or(0),
            submitted_at: moment(submitted),
            limit_seconds: sinfo::seconds(limit),
            nodes,
            node_names: one_line(node_names),
            resources: resources(tres, per_job, per_node, nodes),
            name: one_line(name),
        },
        comment: comment.to_owned(),
        session: None,
    })
}

/// Counts the tasks of `12_[1,4-9,20-30:2%2]`, as far as Slurm lists them; 1 of any other job.
fn tasks(label: &str) -> i64 {
    let Some((_, list)) = label.split_once("_[") else { return 1 };
    let list = list.split(['%', ']']).next().unwrap_or_default();
    let count = |part: &str| {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to, step): (i64, i64, i64) = (from.parse().ok()?, to.parse().ok()?, step.parse().ok()?);
        Some(to.checked_sub(from)?.max(0) / step.max(1) + 1)
    };
    list.split(',').filter_map(count).fold(0, i64::saturating_add).max(1)
}

/// Slurm calls a node unavailable that is down, and at times also one that it has promised to a
/// job that goes before. Of the latter alone it knows when the job begins.
fn reason_text(reason: &str, start: Option<Timestamp>) -> String {
    let is_promised = start.is_some() && reason.starts_with("ReqNodeNotAvail, UnavailableNodes");
    if is_promised { "ReqNodeNotAvail, May be reserved for other job" } else { reason }.to_owned()
}

/// `cpu=2,mem=512M,node=1,gres/gpu=1,gres/gpu:a100=1`. Where the site does not count GPUs
/// there, they stand in what the job asked for in all, or for each of its nodes.
pub(super) fn resources(tres: &str, per_job: &str, per_node: &str, nodes: i64) -> Resources {
    let mut found = Resources { gpus: 0, gpu_model: None, cpus: 0, memory_bytes: 0 };
    for (name, value) in tres.split(',').filter_map(|one| one.split_once('=')) {
        let count = || value.parse().unwrap_or(0);
        match name {
            "cpu" => found.cpus = count(),
            "mem" => found.memory_bytes = parse_size(value).unwrap_or(0),
            "gres/gpu" => found.gpus = count(),
            _ => {
                if let Some(model) = name.strip_prefix("gres/gpu:") {
                    found.gpu_model = Some(model.to_owned());
                }
            }
        }
    }
    for (asked, times) in [(per_job, 1), (per_node, nodes)] {
        if found.gpus == 0 && asked.contains("gpu") {
            let bare: Vec<&str> = asked.split(',').map(|one| one.trim_start_matches("gres:")).collect();
            let gpus = sinfo::gpus(&bare.join(","));
            found.gpus = gpus.iter().map(|(_, count)| count).sum::<i64>().saturating_mul(times);
            found.gpu_model = gpus.into_iter().map(|(model, _)| model).find(|model| model != ANY_GPU);
        }
    }
    found
}

/// Somebody's words as one line that is not too long.
pub(super) fn one_line(text: &str) -> String {
    // As nearly all are of the hundred thousand that a long queue has.
    if text.len() <= MAX_LENGTH && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return text.to_owned();
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_LENGTH).collect::<String>().trim().to_owned()
}

/// The longest name that is kept (characters).
const MAX_LENGTH: usize = 200;

/// Seconds since 1970; anything else is no moment.
pub(super) fn moment(text: &str) -> Option<Timestamp> {
    text.parse::<i64>().ok().filter(|seconds| *seconds > 0)?.checked_mul(1000).map(Timestamp)
}

pub(super) fn unreadable(tool: &str, what: &str) -> String {
    let what: String = what.chars().filter(|c| !c.is_control()).take(60).collect();
    format!("unexpected output of {tool}: {what}")
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;
    use lyceum_model::size::MIB;

    /// Rows of Slurm 22.05.8, the second with a comment of several lines that tries to be a row.
    pub const RECORDED: &str = "\
        2<S>PENDING<S>PartitionTimeLimit<S>1002<S>debug,long<S>n/a<S>0<S>N/A<S>N/A<S>0:00<S>0<S>2_[1-4]<S>bob<S>vision<S>4294901759<S>\
        1795337990<S>2:00:00<S>2<S><S>cpu=4,mem=512M,node=2,billing=4<S><S>gres:gpu:a100:2<S>a\nb \u{1b}[31m<S><S>\n\
        1<S>FAILED<S>NonZeroExitCode<S>1001<S>debug<S>node1<S>768<S>1795337994<S>1795337998<S>0:04<S>0<S>1<S>alice<S>(null)<S>1<S>1795337990\
        <S>UNLIMITED<S>1<S>node1<S>cpu=1,mem=1G,node=1,gres/gpu=1,gres/gpu:a100=1<S><S>gres:gpu:1<S>x<S>ly:x\n1 RUNNING<S>\n";

    #[test]
    fn rows_as_they_were_recorded() {
        let rows = parse(RECORDED, "<S>").unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].job, &rows[0].standing, rows[0].host.as_str()), (2, &JobPhase::Waiting, ""));
        assert_eq!((rows[0].started_at, rows[0].comment.as_str()), (None, ""));
        assert_eq!(rows[0].partitions, ["debug", "long"]);
        let queued = &rows[0].of_queue;
        assert_eq!(
            (queued.label.as_str(), queued.user.as_str(), queued.name.as_str()),
            ("2_[1-4]", "bob", "a b  [31m")
        );
        assert_eq!((queued.priority, queued.limit_seconds, queued.nodes), (4_294_901_759, Some(7200), 2));
        let asked = Resources { gpus: 4, gpu_model: Some("a100".to_owned()), cpus: 4, memory_bytes: 512 * MIB };
        assert_eq!(queued.resources, asked, "of both nodes");
        assert_eq!((rows[1].uid, rows[1].status, rows[1].comment.as_str()), (1001, 768, "ly:x\n1 RUNNING"));
        assert_eq!(rows[1].ended_at, Some(Timestamp(1_795_337_998_000)));
        assert_eq!((rows[1].of_queue.resources.gpus, rows[1].of_queue.limit_seconds), (1, None));
        assert_eq!(parse("", "<S>").unwrap(), []);
    }

    #[test]
    fn tasks_of_arrays_are_counted() {
        for (label, count) in [
            ("12", 1),
            ("12_3", 1),
            ("12_[0-17]", 18),
            ("12_[0-17%4]", 18),
            ("12_[1,3,5-9,20-30:5]", 10),
            ("12_[1-3,7,...]", 4),
            ("12_[]", 1),
            ("12_[9-1]", 1),
            ("12_[x-y,99999999999999999999]", 1),
        ] {
            assert_eq!(tasks(label), count, "{label}");
        }
        assert_eq!(parse(RECORDED, "<S>").unwrap()[0].of_queue.tasks, 4);
    }

    #[test]
    fn a_node_that_is_promised_is_not_down() {
        let (unavailable, start) = ("ReqNodeNotAvail, UnavailableNodes:node1", Some(Timestamp(1)));
        assert!(reason_text(unavailable, start).contains("reserved for other job"));
        assert_eq!(reason_text(unavailable, None), unavailable);
        assert_eq!(reason_text("Resources", start), "Resources");
    }

    #[test]
    fn what_was_suspended_is_not_held() {
        let rows = parse(RECORDED, "<S>").unwrap();
        let (begin, end) = (Timestamp(1_795_337_994_000), Timestamp(1_795_337_998_000));
        assert_eq!(rows[0].allocation(end), None, "it waits");
        let whole = rows[1].allocation(end.plus_seconds(99)).unwrap();
        assert_eq!(whole, Allocation { start: 1, from: begin, to: None, gpus: 1, cpus: 1, memory_bytes: 1024 * MIB });
        let from = |row: &Row, at| row.allocation(at).unwrap().from;
        let suspended = Row { ran_seconds: Some(1), ..rows[1].clone() };
        assert_eq!(from(&suspended, end), begin.plus_seconds(3));
        // While it runs, a clock that is a little ahead is no suspension.
        let running = Row { standing: JobPhase::Alive, ..suspended };
        assert_eq!(from(&running, end), begin);
        assert_eq!(from(&running, begin.plus_seconds(61)), begin.plus_seconds(60));
        let leaving = Row { standing: JobPhase::Alive, is_ending: true, ran_seconds: Some(0), ..rows[1].clone() };
        assert_eq!(leaving.allocation(end), None, "it goes back into the queue");
        let cancelled = Row { host: String::new(), ..rows[1].clone() };
        assert_eq!(cancelled.allocation(end), None, "in the queue");
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let broken = RECORDED.replacen("1002", "bob", 1);
        for bad in ["slurm_load_jobs error", "x<S>RUNNING<S>", "1<S>RUNNING<S>None<S>", broken.as_str()] {
            assert!(parse(bad, "<S>").is_err(), "{bad}");
        }
    }

    /// So many rows, of jobs that run and of those that wait.
    fn long(count: usize) -> String {
        RECORDED.replace("2_[1-4]", "2").repeat(count / 2)
    }

    #[test]
    fn long_queues_are_read_in_linear_time() {
        let (short, long) = (long(2_000), long(20_000));
        assert_eq!(parse(&long, "<S>").unwrap().len(), 20_000);
        is_linear("squeue", || parse(&short, "<S>").unwrap().len(), || parse(&long, "<S>").unwrap().len());
    }

    /// Fails if ten times as many rows take far more than ten times as much of the processor, by the better of two each.
    pub fn is_linear(tool: &str, short: impl Fn() -> usize, long: impl Fn() -> usize) {
        let measure = |read: &dyn Fn() -> usize| {
            let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
            let spend = |_| {
                let began = now();
                std::hint::black_box(read());
                now().saturating_sub(began)
            };
            (0..2).map(spend).min().unwrap()
        };
        let (short, long) = (measure(&short), measure(&long));
        eprintln!("{tool}: {short:?}, and {long:?} for ten times as many rows");
        assert!(long < short * 30, "{tool}: {short:?}, then {long:?}");
    }

    /// The rows without the column of this number, or with it twice.
    pub fn other_columns(recorded: &str, count: usize, column: usize, is_twice: bool) -> String {
        let fields: Vec<&str> = recorded.trim_end().split_terminator("<S>").collect();
        let kept = fields.iter().enumerate().filter(|(place, _)| place % count != column || is_twice);
        let field = |(place, field): (usize, &&str)| {
            let times = 1 + usize::from(is_twice && place % count == column);
            format!("{field}<S>").repeat(times)
        };
        kept.map(field).collect()
    }

    #[test]
    fn columns_of_another_version_are_an_error() {
        let recorded = RECORDED.repeat(FIELDS.len() / 2);
        for column in 0..FIELDS.len() {
            for is_twice in [false, true] {
                let other = other_columns(&recorded, FIELDS.len(), column, is_twice);
                assert!(parse(&other, "<S>").is_err(), "column {column}, twice: {is_twice}");
            }
        }
    }

    #[test]
    fn half_an_answer_is_an_error() {
        // Wherever it breaks off but between two rows, and behind the last.
        let whole = [RECORDED.find("\n1<S>").unwrap(), RECORDED.len() - 1];
        for end in (1..RECORDED.len()).filter(|end| RECORDED.is_char_boundary(*end)) {
            let is_whole = whole.iter().any(|whole| (*whole..=whole + 1).contains(&end));
            assert_eq!(parse(&RECORDED[..end], "<S>").is_ok(), is_whole, "{:?}", &RECORDED[..end]);
        }
    }

    #[test]
    fn the_words_are_words() {
        let arguments = arguments("\u{1f}ab\u{1f}");
        assert_eq!(arguments.last().unwrap().matches("\u{1f}ab\u{1f}").count(), FIELDS.len());
        assert!(arguments.last().unwrap().ends_with("comment:\u{1f}ab\u{1f}"), "whose author could write anything");
    }
}
