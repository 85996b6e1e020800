//! Reservations of a batch system: nodes that are kept for some users, or for maintenance, for a while. What they mean
//! for a job that names none of them is decided here: when the nodes that it fits on are free for as long as it takes.

use super::{
    Timestamp,
    quota::{Reason, Rule, Source},
    time::human_duration,
};

/// Nodes that a job gets only if it names this reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub name: String,
    pub from: Timestamp,
    pub to: Timestamp,
    pub nodes: Vec<String>,
    /// The partition, where it is of one.
    pub partition: Option<String>,
    /// Who may use it; nobody of these where both are empty.
    pub users: Vec<String>,
    pub accounts: Vec<String>,
    pub is_maintenance: bool,
    /// What the portal starts goes into it.
    pub is_ours: bool,
}

impl Reservation {
    pub fn holds(&self, node: &str) -> bool {
        self.nodes.iter().any(|name| name == node)
    }

    fn overlaps(&self, from: Timestamp, seconds: i64) -> bool {
        self.from < from.plus_seconds(seconds) && from < self.to
    }
}

/// Returns when a node is free of reservations for so many seconds, from `now` on.
fn free_at(held: &[&Reservation], seconds: i64, now: Timestamp) -> Timestamp {
    let mut at = now;
    // Each step passes the end of one of them, so there are at most as many.
    while let Some(next) = held.iter().find(|one| one.overlaps(at, seconds)) {
        at = next.to;
    }
    at
}

/// A job that asks for nodes.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// How many nodes it needs at once.
    pub nodes: usize,
    /// Its time limit (seconds), and how much more of it the batch system is asked for.
    pub seconds: i64,
    pub margin: i64,
}

/// Returns why a job does not start now on the nodes that it fits on, and when it could; `None` where no reservation is
/// in the way.
pub fn in_the_way(
    reservations: &[Reservation],
    fitting: &[&str],
    Request { nodes: count, seconds: asked, margin }: Request,
    now: Timestamp,
) -> Option<(Reason, Timestamp)> {
    let seconds = asked.saturating_add(margin);
    let coming: Vec<&Reservation> = reservations.iter().filter(|one| now < one.to && !one.is_ours).collect();
    if coming.is_empty() || fitting.is_empty() {
        return None;
    }
    let held = |node: &str| coming.iter().copied().filter(|one| one.holds(node)).collect::<Vec<_>>();
    let mut free: Vec<(Timestamp, &str)> =
        fitting.iter().map(|node| (free_at(&held(node), seconds, now), *node)).collect();
    free.sort_unstable();
    let &(at, node) = free.get(count.max(1) - 1)?;
    if at <= now {
        return None;
    }
    let first = held(node).into_iter().filter(|one| one.overlaps(now, seconds)).min_by_key(|one| one.from)?;
    // The time that is left on as many nodes before their next reservation begins.
    let left = |node: &&str| held(node).iter().map(|one| one.from.seconds_since(now)).min().unwrap_or(i64::MAX);
    let mut lefts: Vec<i64> = fitting.iter().map(left).collect();
    lefts.sort_unstable_by(|one, other| other.cmp(one));
    let left = lefts.get(count.max(1) - 1).map(|left| left.saturating_sub(margin));
    let short = left.filter(|left| (120..asked).contains(left));
    let what = if first.is_maintenance { "maintenance" } else { "other users" };
    let hint = format!(
        "Slurm’s reservation ‘{}’ holds the nodes that this would fit on for {what}, from {} to {}.{}",
        first.name,
        first.from.minute(),
        first.to.minute(),
        short.map_or_else(String::new, |left| {
            format!(" With a time limit of {} or less it could start earlier.", human_duration(left / 60 * 60))
        })
    );
    let reason = Reason::of_rule(Rule::Reservation, Source::Cluster, hint);
    Some((Reason { requested: asked, ..reason }, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn reservation(name: &str, from: i64, to: i64, nodes: &[&str]) -> Reservation {
        Reservation {
            name: name.to_owned(),
            from: NOW.plus_seconds(from),
            to: NOW.plus_seconds(to),
            nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
            partition: None,
            users: Vec::new(),
            accounts: Vec::new(),
            is_maintenance: true,
            is_ours: false,
        }
    }

    fn wait(all: &[Reservation], count: usize, seconds: i64) -> Option<i64> {
        let request = Request { nodes: count, seconds, margin: 0 };
        in_the_way(all, &["a", "b", "c"], request, NOW).map(|(_, at)| at.seconds_since(NOW))
    }

    #[test]
    fn a_job_waits_for_what_is_reserved() {
        assert_eq!(wait(&[], 1, 3600), None);
        let all = [reservation("maint", 600, 7200, &["a", "b", "c"])];
        assert_eq!(wait(&all, 1, 500), None, "it ends before");
        assert_eq!(wait(&all, 1, 3600), Some(7200));
        assert_eq!(wait(&[reservation("maint", 600, 7200, &["a", "b"])], 1, 3600), None, "one node is free");
        assert_eq!(wait(&[reservation("maint", 600, 7200, &["a", "b"])], 2, 3600), Some(7200));
        let chain = [reservation("x", -10, 100, &["a", "b", "c"]), reservation("y", 200, 300, &["a", "b", "c"])];
        assert_eq!(wait(&chain, 1, 60), Some(100), "between the two");
        assert_eq!(wait(&chain, 1, 3600), Some(300), "behind both");
        assert_eq!(wait(&[reservation("past", -20, -10, &["a", "b", "c"])], 1, 3600), None);
        let request = Request { nodes: 1, seconds: 3600, margin: 0 };
        assert_eq!(in_the_way(&all, &[], request, NOW), None, "the nodes are not known");
    }

    #[test]
    fn the_reason_names_it() {
        let all = [reservation("maint", 600, 7200, &["a", "b", "c"])];
        let hour = Request { nodes: 1, seconds: 3600, margin: 0 };
        let (reason, _) = in_the_way(&all, &["a"], hour, NOW).unwrap();
        assert_eq!(
            reason.hint,
            "Slurm’s reservation ‘maint’ holds the nodes that this would fit on for maintenance, from Fri 15 Jan, 08:10 UTC to \
             Fri 15 Jan, 10:00 UTC. With a time limit of 10 min or less it could start earlier."
        );
        // The batch system is asked for five minutes more than the job's limit.
        let margin = |seconds| in_the_way(&all, &["a"], Request { nodes: 1, seconds, margin: 300 }, NOW);
        assert_eq!(margin(300), None);
        let (reason, _) = margin(400).unwrap();
        assert!(reason.hint.ends_with("With a time limit of 5 min or less it could start earlier."), "{}", reason.hint);
    }
}
