//! The queue of a batch system at one moment, as far as the portal's account is shown it: also
//! what nobody handed in through the portal. Who somebody is, and whose jobs they may see, is
//! decided by whoever asks.

use std::{fmt, str::FromStr, sync::Arc};

use super::{Resources, SessionId, Timestamp, machines::HiddenDetails, session::Allocation};

/// Jobs that wait or run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// When this was true; `None` before the first answer.
    pub at: Option<Timestamp>,
    /// Why nothing newer is known.
    pub trouble: Option<String>,
    pub hides: HiddenDetails,
    /// In the order of their numbers.
    pub jobs: Vec<Arc<QueuedJob>>,
}

/// Which job, as one word without signs that mean something in an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId {
    pub job: u32,
    pub part: Part,
}

/// Which part of a job that is an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// It is none.
    Whole,
    Task(u32),
    /// All tasks that have not begun: they stand in the queue as one.
    Waiting,
}

/// The word for all tasks that have not begun.
const WAITING: &str = "waiting";

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Part::Whole => write!(f, "{}", self.job),
            Part::Task(task) => write!(f, "{}_{task}", self.job),
            Part::Waiting => write!(f, "{}_{WAITING}", self.job),
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a job ID is a number such as 12, 12_3 or 12_waiting")]
pub struct NoQueueId;

impl FromStr for QueueId {
    type Err = NoQueueId;

    fn from_str(text: &str) -> Result<Self, NoQueueId> {
        let number = |digits: &str| {
            let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_plain).ok_or(NoQueueId)
        };
        let (job, part) = match text.split_once('_') {
            None => (text, Part::Whole),
            Some((job, WAITING)) => (job, Part::Waiting),
            Some((job, task)) => (job, Part::Task(number(task)?)),
        };
        Ok(Self { job: number(job)?, part })
    }
}

/// A job that waits or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedJob {
    pub id: QueueId,
    /// As the batch system writes it: `12_[1-4]`.
    pub label: String,
    /// Whatever its author likes, in one line.
    pub name: String,
    pub uid: u32,
    /// The account's name.
    pub user: String,
    /// Where it runs; several while it waits for any of them.
    pub partitions: Vec<String>,
    pub runs: bool,
    /// It has its nodes, and its time stands still.
    pub is_suspended: bool,
    /// Why it waits, as a sentence; empty while it runs.
    pub why: String,
    /// How many come before it, and itself; only where it waits for its turn and nothing else.
    pub place: Option<i64>,
    /// When it begins as things are; only where that means something.
    pub estimated_start: Option<Timestamp>,
    pub submitted_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    /// How long it may run (seconds); `None`: for ever.
    pub limit_seconds: Option<i64>,
    /// What it has, or asks for, on all of its nodes together.
    pub resources: Resources,
    pub nodes: i64,
    /// Where it runs, as `node[1-2]`; empty while it waits.
    pub node_names: String,
    /// What of the portal's it is.
    pub session: Option<SessionId>,
}

impl QueuedJob {
    /// How many jobs it is: each task of an array that has not begun is one. Of a list that is cut short (`1,3,...`)
    /// those count that are named.
    #[must_use]
    pub fn count(&self) -> usize {
        tasks(&self.label)
    }
}

/// How many tasks `12_[1-4]` is.
fn tasks(label: &str) -> usize {
    let Some((_, list)) = label.split_once("_[") else { return 1 };
    let list = list.split([']', '%']).next().unwrap_or_default();
    let of_part = |part: &str| {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (from.parse::<usize>().ok()?, to.parse::<usize>().ok()?);
        Some(to.checked_sub(from)? / step.parse::<usize>().ok().filter(|step| *step > 0)? + 1)
    };
    list.split(',').filter_map(of_part).sum::<usize>().max(1)
}

/// What one start of a job holds, or held, as far as the batch system tells. Whether it is one of
/// the portal's own is decided by whoever asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellJob {
    pub job: u32,
    /// The account's name.
    pub user: String,
    /// `train (12_3)`
    pub label: String,
    /// Its start is the moment of it, in milliseconds.
    pub held: Allocation,
    pub gpu_model: Option<String>,
    /// The name of the group whose account the batch system charges, where it is one group's.
    pub group: Option<String>,
    /// By when it ends at the latest; `None`: never, or it is over.
    pub ends_by: Option<Timestamp>,
    /// Whose mark it bears, though somebody may have copied that.
    pub session: Option<SessionId>,
}

impl ShellJob {
    #[must_use]
    pub fn resources(&self) -> Resources {
        let Allocation { gpus, cpus, memory_bytes, .. } = self.held;
        Resources { gpus, gpu_model: self.gpu_model.clone(), cpus, memory_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_wait_are_counted() {
        for (label, count) in [
            ("12", 1),
            ("12_3", 1),
            ("12_[0-17]", 18),
            ("12_[4-9%2]", 6),
            ("7_[1,3,8-12:2%4]", 5),
            ("7_[1,3,...]", 2),
            ("7_[]", 1),
        ] {
            assert_eq!(tasks(label), count, "{label}");
        }
    }

    #[test]
    fn ids_are_plain_words() {
        for (text, job, part) in [("12", 12, Part::Whole), ("12_0", 12, Part::Task(0)), ("7_waiting", 7, Part::Waiting)]
        {
            let id: QueueId = text.parse().unwrap();
            assert_eq!((id, id.to_string().as_str()), (QueueId { job, part }, text));
        }
        for bad in
            ["", "x", "-1", "+1", "1_", "_1", "1_[2-3]", "1_-2", "1_2_3", "99999999999", "1;2", "1 2", "1_Waiting"]
        {
            assert_eq!(bad.parse::<QueueId>(), Err(NoQueueId), "{bad}");
        }
    }
}
