//! How long twenty jobs that are submitted at once take to start, beside plain `sbatch` on the same cluster in the
//! same test.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::whole::open;
use crate::wait::eventually;

const JOBS: usize = 20;

/// The portal may take so much longer.
const MORE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn twenty_jobs_start_as_soon_as_by_sbatch() {
    let Some((house, person, cluster)) = open().await else { return };
    house.admin().allow(&house, &person, json!({ "jobs": -1, "pending": -1, "cpus": -1 })).await;
    let account = house.admin().get(&house, &format!("/users/{}", person.name)).await;
    let uid = nix::unistd::User::from_name(account["unix_name"].as_str().unwrap()).unwrap().unwrap().uid.as_raw();
    let waiting = || cluster.ask("squeue", &["--noheader", "--array", "--states=PENDING,CONFIGURING"]).lines().count();
    let began = Instant::now();
    for _ in 0..JOBS {
        cluster.submit_script(uid, &["--cpus-per-task=1", "--mem=64M"], "#!/bin/sh\nexec sleep 3\n");
    }
    eventually("Slurm has started all of them", async || (waiting() == 0).then_some(())).await;
    let plain = began.elapsed();
    eventually("they are over", async || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())).await;

    let size = json!({ "cpus": 1, "memory_bytes": 64 << 20 });
    let asked = json!({ "command": ["sleep", "3"], "resources": size, "time_limit_seconds": 600 });
    let began = Instant::now();
    let posted = (0..JOBS).map(|_| person.ask(&house, "POST", "/jobs", &asked));
    for (status, answer) in futures_util::future::join_all(posted).await {
        assert_eq!(status, 201, "{answer}");
    }
    eventually("the portal has started all of them", async || {
        let all = person.get(&house, "/jobs?limit=100").await;
        let has_run = |job: &&Value| !job["started_at"].is_null();
        (all["items"].as_array()?.iter().filter(has_run).count() == JOBS).then_some(())
    })
    .await;
    let ours = began.elapsed();
    eprintln!("{JOBS} jobs: the last starts after {plain:?} by sbatch, {ours:?} by the portal");
    assert!(ours <= plain + MORE, "{ours:?} and by sbatch {plain:?}");
}
