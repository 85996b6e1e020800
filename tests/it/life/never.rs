//! Thousands of jobs that wait for one whose failure means that they can never start: all of them end, each with the reason,
//! while other requests start as quickly as before, and no user gets two thousand messages.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{House, eventually, jobs};
use crate::db::{
    copies::{ID, copy},
    number,
};

const JOBS: usize = 2_000;

#[tokio::test]
async fn dependencies_that_cannot_be_met_end_without_a_storm() {
    let Some(mut house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    let first = jobs::submit(&house, &person, json!({ "command": ["sleep", "600"], "time_limit_seconds": 900 })).await;
    let after = json!({ "command": ["true"], "after": [{ "job": first }] });
    let second = jobs::submit(&house, &person, after).await;
    jobs::state(&house, &person, &first, "running").await;

    house.kill();
    let db = house.db().await;
    let attempt = format!("id = (SELECT session_id FROM jobs WHERE id = '{second}')");
    copy(&db, "sessions", &attempt, JOBS - 1, &[("id", ID), ("job_id", ID)]).await;
    copy(&db, "jobs", &format!("id = '{second}'"), JOBS - 1, &[("id", ID), ("session_id", ID)]).await;
    copy(&db, "job_dependencies", &format!("job_id = '{second}'"), JOBS - 1, &[("job_id", ID)]).await;
    db.close().await;
    house.start().await;

    let db = house.db().await;
    let refused =
        "SELECT COUNT(*) FROM sessions WHERE job_id IS NOT NULL AND state = 'ended' AND end_reason = 'refused'";
    person.ask(&house, "POST", &format!("/jobs/{first}/cancel"), &serde_json::Value::Null).await;
    jobs::ended(&house, &person, &first, "stopped_by_owner").await;
    let began = Instant::now();
    let terminal = person.run(&house, "terminal").await;
    let started = began.elapsed();
    eventually("all of them have ended", async || {
        (number(&db, refused).await == i64::try_from(JOBS).unwrap()).then_some(())
    })
    .await;
    let over = began.elapsed();
    eprintln!("{JOBS} jobs have ended after {over:?}; meanwhile a terminal ran after {started:?}");
    // How long all of them take depends on the machine; what matters is that others need not wait for them.
    assert!(started < Duration::from_secs(10), "{started:?}");
    let job = jobs::job(&house, &person, &second).await;
    assert!(job["detail"].as_str().is_some_and(|why| why.contains("sleep")), "it says which one: {job}");
    let written = number(&db, "SELECT COUNT(*) FROM notifications").await;
    assert!(written < 200, "{written} messages");
    db.close().await;
    person.end(&house, terminal).await;
}
