//! From what the controller says of jobs to what people see of its queue: which part of an
//! array a row is, why it waits, and how many come before it. What is no more than a guess of
//! Slurm's is left out.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use super::{
    controller::View,
    queue::Row,
    state::{JobPhase, why_it_waits},
};
use lyceum_model::{
    Queue, QueueId, Timestamp,
    queue::{Part, QueuedJob},
};

/// Lists the jobs of a view: the first call for it reads all of them, the others share what it read.
pub(super) fn queue(view: &View, trouble: Option<String>, now: Timestamp) -> Queue {
    let mut jobs = view.listing.get_or_init(|| jobs(&view.queue)).clone();
    // A guess that is over came to nothing.
    for job in jobs.iter_mut().filter(|job| job.estimated_start.is_some_and(|at| at <= now)) {
        Arc::make_mut(job).estimated_start = None;
    }
    let at = view.answered.map(|at| now.plus_seconds(-i64::try_from(at.elapsed().as_secs()).unwrap_or(0)));
    Queue { at, trouble, hides: view.hides, jobs }
}

fn jobs(rows: &[Row]) -> Vec<Arc<QueuedJob>> {
    let places = places(rows);
    rows.iter()
        .map(|row| {
            let place = places.get(row.of_queue.label.as_str()).copied();
            let runs = row.standing != JobPhase::Waiting;
            let queued = &row.of_queue;
            Arc::new(QueuedJob {
                id: id(row),
                label: queued.label.clone(),
                name: queued.name.clone(),
                uid: row.uid,
                user: queued.user.clone(),
                partitions: row.partitions.clone(),
                runs,
                is_suspended: row.is_suspended,
                why: if runs { String::new() } else { why_it_waits(&row.reason) },
                estimated_start: row.started_at.filter(|_| place.is_some()),
                place,
                submitted_at: queued.submitted_at,
                started_at: row.started_at.filter(|_| runs),
                limit_seconds: queued.limit_seconds,
                resources: queued.resources.clone(),
                nodes: queued.nodes,
                node_names: if runs { queued.node_names.clone() } else { String::new() },
                session: row.session,
            })
        })
        .collect()
}

/// The end of Slurm's reason where a node that a job names is promised to one that goes before.
const PROMISED: &str = "reserved for other job";

/// What is held, or against a limit, or after another one, has no place: others pass it.
fn waits_for_its_turn(row: &Row) -> bool {
    let reason = row.reason.replace('_', " ");
    row.standing == JobPhase::Waiting
        && (matches!(reason.as_str(), "" | "None" | "Priority" | "Resources") || reason.contains(PROMISED))
}

/// The places of those who wait for their turn, by their labels: in the partition in which the
/// fewest come before them.
fn places(rows: &[Row]) -> HashMap<&str, i64> {
    let mut turns: Vec<&Row> = rows.iter().filter(|row| waits_for_its_turn(row)).collect();
    turns.sort_by_key(|row| (Reverse(row.of_queue.priority), row.job));
    let mut before: HashMap<&str, i64> = HashMap::new();
    let mut places = HashMap::new();
    for row in turns {
        let fewest = row.partitions.iter().map(|name| before.get(name.as_str()).copied().unwrap_or(0)).min();
        for name in &row.partitions {
            let before = before.entry(name).or_default();
            *before = before.saturating_add(row.of_queue.tasks);
        }
        places.insert(row.of_queue.label.as_str(), fewest.unwrap_or(0) + 1);
    }
    places
}

/// `12`, `12_3` or `12_[4-9%2]`
fn id(row: &Row) -> QueueId {
    let (job, part) = match row.of_queue.label.split_once('_') {
        Some((job, task)) => (job, task.parse().map_or(Part::Waiting, Part::Task)),
        None => (row.of_queue.label.as_str(), Part::Whole),
    };
    QueueId { job: job.parse().unwrap_or(row.job), part }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::slurm::queue::{parse, tests::RECORDED};

    /// A job that waits: its number, its priority, why, and where.
    fn waiting(job: u32, priority: i64, reason: &str, partitions: &[&str]) -> Row {
        let mut row = parse(RECORDED, "<S>").unwrap().remove(0);
        (row.job, row.of_queue.label) = (job, job.to_string());
        row.of_queue.tasks = if job == 7 || job == 3 { 4 } else { 1 };
        (row.of_queue.priority, row.reason) = (priority, reason.to_owned());
        row.partitions = partitions.iter().map(|name| (*name).to_owned()).collect();
        row.started_at = Some(Timestamp(1000));
        row
    }

    #[test]
    fn places_are_of_those_who_wait_for_their_turn() {
        let mut running = waiting(1, 9, "None", &["a"]);
        running.standing = JobPhase::Alive;
        let rows = [
            running,
            waiting(2, 5, "Priority", &["a"]),
            waiting(3, 7, "Resources", &["a"]),
            waiting(4, 9, "Dependency", &["a"]),
            waiting(5, 5, "Priority", &["a", "b"]),
            waiting(6, 9, "ReqNodeNotAvail, May be reserved for other job", &["b"]),
            waiting(7, 4, "Priority", &["c"]),
            waiting(8, 3, "Priority", &["c"]),
        ];
        let view = View { queue: rows.to_vec().into(), ..View::default() };
        let jobs = queue(&view, None, Timestamp(500)).jobs;
        let places: Vec<_> = jobs.iter().map(|job| job.place).collect();
        // The third and the seventh are arrays of four tasks each.
        assert_eq!(places, [None, Some(5), Some(1), None, Some(2), Some(1), Some(1), Some(5)]);
        let starts: Vec<_> = jobs.iter().map(|job| job.estimated_start.is_some()).collect();
        assert_eq!(starts, [false, true, true, false, true, true, true, true]);
        assert_eq!((jobs[0].started_at, jobs[1].started_at), (Some(Timestamp(1000)), None));
        assert!(jobs[0].why.is_empty() && jobs[3].why.contains("depends"), "{}", jobs[3].why);
        let later = queue(&view, None, Timestamp(2000)).jobs;
        assert!(later.iter().all(|job| job.estimated_start.is_none()), "it is over");
        assert!(Arc::ptr_eq(&later[0], &jobs[0]) && later[1].place == jobs[1].place, "what is the same is shared");
    }

    #[test]
    fn arrays_and_their_tasks() {
        let of = |label: &str| {
            let mut row = waiting(99, 1, "None", &["a"]);
            label.clone_into(&mut row.of_queue.label);
            id(&row).to_string()
        };
        for (label, wanted) in
            [("12", "12"), ("12_3", "12_3"), ("12_[4-9%2]", "12_waiting"), ("12_[1,3,...]", "12_waiting"), ("", "99")]
        {
            assert_eq!(of(label), wanted, "{label}");
        }
    }
}
