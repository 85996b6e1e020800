//! What must hold of the tables at every moment, whatever died in between: nothing is half
//! written, and no limit was ever exceeded.

use lyceum::db::{Db, chain::ChainCheck};
use sqlx::query_as;

use super::number;

/// Each counts rows that may not be.
const NEVER: [(&str, &str); 12] = [
    (
        "an admitted session without an interval",
        "SELECT COUNT(*) FROM sessions WHERE admitted_at IS NOT NULL AND (cluster = 'local' OR started_at IS NOT NULL)
         AND id NOT IN (SELECT session_id FROM intervals WHERE session_id IS NOT NULL)",
    ),
    (
        "an interval of a session that was not admitted",
        "SELECT COUNT(*) FROM intervals i JOIN sessions s ON s.id = i.session_id WHERE s.admitted_at IS NULL",
    ),
    (
        "an interval that is open for an ended session, or closed for a live one that was started once",
        "SELECT COUNT(*) FROM intervals i JOIN sessions s ON s.id = i.session_id
         WHERE (i.ended_at IS NULL) <> (s.state <> 'ended') AND NOT (s.state <> 'ended' AND i.of_several)",
    ),
    (
        "a session that is not in the audit once, or a start in the audit of no session",
        "SELECT (SELECT COUNT(*) FROM sessions WHERE job_id IS NULL AND (SELECT COUNT(*) FROM audit
             WHERE action = 'session.start' AND subject = sessions.id) <> 1)
         + (SELECT COUNT(*) FROM audit WHERE action = 'session.start' AND subject NOT IN (SELECT id FROM sessions))",
    ),
    (
        "an attempt that is not in the audit, or a submission of none",
        "SELECT COUNT(*) FROM (SELECT DISTINCT job_id FROM sessions WHERE job_id IS NOT NULL) AS tried
         WHERE (SELECT COUNT(*) FROM sessions WHERE job_id = tried.job_id)
             <> (SELECT COUNT(*) FROM audit WHERE action IN ('job.submit', 'job.resume', 'job.retry') AND subject = tried.job_id)",
    ),
    (
        "a job whose latest attempt is not its own, or not the latest",
        "SELECT COUNT(*) FROM jobs WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = jobs.session_id
             AND job_id = jobs.id AND sessions.attempt = jobs.attempt AND sessions.owner = jobs.owner)
             OR attempt <> (SELECT MAX(sessions.attempt) FROM sessions WHERE job_id = jobs.id)",
    ),
    ("an interval that ends before it begins", "SELECT COUNT(*) FROM intervals WHERE ended_at < started_at"),
    (
        "an interval that is over and that sums of use would never hear of, or that they heard of too early",
        "SELECT COUNT(*) FROM intervals WHERE (ended_at IS NULL) <> (number IS NULL)",
    ),
    (
        "an interval that holds other GPUs than its session",
        "SELECT COUNT(*) FROM intervals i JOIN sessions s ON s.id = i.session_id WHERE i.gpu_list <> s.gpu_list",
    ),
    (
        "a session without history",
        "SELECT COUNT(*) FROM sessions WHERE id NOT IN (SELECT session_id FROM session_events)",
    ),
    (
        "a history with a gap",
        "SELECT COUNT(*) FROM (SELECT session_id FROM session_events GROUP BY session_id
         HAVING COUNT(*) <> MAX(number) OR MIN(number) <> 1) gaps",
    ),
    (
        "a session whose last line of history is of another state",
        "SELECT COUNT(*) FROM sessions s WHERE s.state <> (SELECT e.state FROM session_events e
         WHERE e.session_id = s.id ORDER BY e.number DESC LIMIT 1)",
    ),
];

/// How many sessions are without their Idempotency-Key, and keys without what they made.
const KEYLESS: &str = "SELECT (SELECT COUNT(*) FROM sessions WHERE job_id IS NULL AND id NOT IN (SELECT created_id FROM idempotency))
     + (SELECT COUNT(*) FROM idempotency WHERE created_id NOT IN (SELECT id FROM sessions UNION SELECT id FROM tokens UNION SELECT id FROM jobs))";

/// Fails when anything is half written. Every session was asked for with a key.
pub async fn assert_whole(db: &Db) {
    assert_consistent(db).await;
    assert_eq!(number(db, KEYLESS).await, 0, "a session without its key, or a key without what it made");
}

/// The same where sessions were asked for without keys.
pub async fn assert_consistent(db: &Db) {
    for (what, sql) in NEVER {
        assert_eq!(number(db, sql).await, 0, "{what}");
    }
    let walk = db.verify_audit().await.unwrap();
    assert!(matches!(walk, ChainCheck::Whole { .. }), "{walk:?}");
}

/// One allocation: the owner, the GPUs, its beginning and its end.
pub type Interval = (String, i64, String, i64, Option<i64>);

pub async fn intervals(db: &Db) -> Vec<Interval> {
    intervals_of(db, "").await
}

/// Those that are charged to a group; with an empty id all of them.
pub async fn intervals_of(db: &Db, group: &str) -> Vec<Interval> {
    let sql = "SELECT owner, gpus, gpu_list, started_at, ended_at FROM intervals WHERE $1 = '' OR charged_group = $1";
    match db {
        Db::Sqlite { read, .. } => query_as(sql).bind(group).fetch_all(read).await.unwrap(),
        Db::Postgres { read, .. } => query_as(sql).bind(group).fetch_all(read).await.unwrap(),
    }
}

/// The most GPUs that the chosen intervals held at one instant. What ends at an instant has
/// freed them for what begins there.
pub fn peak(intervals: &[Interval], chosen: impl Fn(&Interval) -> bool) -> i64 {
    let mut steps: Vec<(i64, i64)> = Vec::new();
    for interval in intervals.iter().filter(|interval| chosen(interval)) {
        let (_, gpus, _, start, end) = interval;
        assert!(end.is_none_or(|end| *start <= end), "it ends before it begins: {interval:?}");
        // One that took no time at all held its GPUs at no instant.
        if *end != Some(*start) {
            steps.push((*start, *gpus));
            steps.extend(end.map(|end| (end, -gpus)));
        }
    }
    steps.sort_unstable();
    steps
        .iter()
        .scan(0, |held, (_, step)| {
            *held += step;
            Some(*held)
        })
        .max()
        .unwrap_or(0)
}

#[test]
fn the_sweep_sees_an_excess() {
    let of = |start, end| (String::new(), 1, String::new(), start, end);
    let intervals = [of(0, Some(10)), of(10, None), of(9, Some(12)), of(12, Some(12))];
    assert_eq!(peak(&intervals, |_| true), 2);
    assert_eq!(peak(&intervals[..2], |_| true), 1);
    assert_eq!(peak(&[], |_| true), 0);
}
