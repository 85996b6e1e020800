//! Many that are posted at once to a portal in front of Slurm: all of them run, each with its time limit from
//! the start that Slurm counts from; and what Slurm calls alive is ended by its time limit alone.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;

use super::whole::{on_with, open};
use crate::{
    life::{jobs, together},
    slurm::cluster::Cluster,
    wait::eventually,
};

#[tokio::test]
async fn all_that_is_posted_at_once_runs() {
    let Some((house, person, cluster)) = open().await else { return };
    let terminals = together::post(&house, &person).await;
    // Each of them has a node, and its time counts from when Slurm gave it one.
    let begun = cluster.ask("squeue", &["--noheader", "--states=RUNNING", "--Format=timeused:|,comment:|"]);
    assert!(begun.lines().count() == terminals.len(), "{begun}");
    for id in terminals {
        person.end(&house, id).await;
    }
    eventually("no job is left", async || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())).await;
}

/// The node's part of the way is closed: nothing that runs there ever answers.
#[tokio::test]
async fn what_slurm_calls_alive_is_not_ended_for_want_of_an_answer() {
    let Some(cluster) = Cluster::start() else { return };
    let Some((house, person, cluster)) = on_with(cluster, &[("LYCEUM_SESSIONS__START_TIMEOUT", "6s")]).await else {
        return;
    };
    for version in fs::read_dir(house.paths().bin).unwrap() {
        let program = version.unwrap().path().join("lyceum");
        let silent = program.with_extension("silent");
        fs::write(&silent, "#!/bin/sh\nexec sleep 600\n").unwrap();
        fs::set_permissions(&silent, PermissionsExt::from_mode(0o755)).unwrap();
        fs::rename(&silent, &program).unwrap();
    }
    let size = json!({ "cpus": 1, "memory_bytes": 256 << 20 });
    let asked = json!({ "command": ["sleep", "600"], "resources": size, "time_limit_seconds": 85 });
    let id = jobs::submit(&house, &person, asked).await;
    let job = eventually("its owner reads that nothing answers", async || {
        let job = jobs::job(&house, &person, &id).await;
        assert_ne!(job["state"], "ended", "{job}");
        job["detail"].as_str().is_some_and(|why| why.contains("does not respond to the portal")).then_some(job)
    })
    .await;
    assert_eq!(job["state"], "starting", "{job}");
    assert_eq!(cluster.ask("squeue", &["--noheader", "--states=RUNNING"]).lines().count(), 1);
    let job = jobs::ended(&house, &person, &id, "time_limit").await;
    // It ran for as long as was asked for by Slurm's own count; a busy machine may take a while to end it.
    let ran = cluster.ask("squeue", &["--noheader", "--states=all", "--Format=timeused:|"]);
    let (minutes, seconds) = ran.trim().trim_end_matches('|').split_once(':').unwrap();
    let seconds = minutes.parse::<i64>().unwrap() * 60 + seconds.parse::<i64>().unwrap();
    assert!((85..=180).contains(&seconds), "{ran} {job}");
}
