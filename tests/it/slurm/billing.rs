//! What is billed in front of a cluster: what Slurm gave, from when it gave it, without the wait in
//! its queue and without what was suspended.

use serde_json::json;

use super::{
    cluster::Cluster,
    whole::{jobs, on_with},
};
use crate::{db::number, wait::eventually};

const MIB: i64 = 1 << 20;

/// What Slurm says of its only job, in seconds.
fn said(cluster: &Cluster, field: &str) -> i64 {
    let format = format!("{field}:|");
    let mut command = cluster.command("squeue", &["--noheader", "--states=all", "--Format", &format]);
    let output = command.env("SLURM_TIME_FORMAT", "%s").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text.trim().trim_end_matches('|');
    // Moments are whole seconds; lengths are `minutes:seconds`.
    text.split(':')
        .try_fold(0, |sum, part| Some(sum * 60 + part.parse::<i64>().ok()?))
        .unwrap_or_else(|| panic!("{text}"))
}

#[tokio::test]
async fn neither_the_queue_nor_suspensions_are_billed() {
    // Each job gets its nodes whole: more than it asked for.
    let whole = "PartitionName=whole Nodes=node[1-4] OverSubscribe=EXCLUSIVE MaxTime=1:00:00 State=UP";
    let Some(cluster) = Cluster::with(whole) else { return };
    let partition = [("LYCEUM_SCHEDULER__SLURM__PARTITION", "whole")];
    let Some((house, person, cluster)) = on_with(cluster, &partition).await else { return };
    let usage = async || person.get(&house, "/me").await["usage"].clone();
    cluster.set_nodes("drain");
    let request = json!({
        "app": "web", "resources": { "cpus": 1, "memory_bytes": 256 * MIB }, "duration_seconds": 1800,
    });
    let id = person.start(&house, request).await;
    eventually("it waits in Slurm's queue", async || {
        person.session(&house, id).await["detail"].as_str().is_some_and(|why| why.contains("drained")).then_some(())
    })
    .await;
    assert!(house.intervals().await.is_empty(), "nothing is held yet");
    // It is promised all the same, and however long it waits, no more than that.
    let promised = usage().await;
    assert_eq!((&promised["light"], &promised["cpu_seconds"]), (&json!(1), &json!(1800)), "{promised}");
    let (asked, clock) = (said(&cluster, "submittime"), || lyceum::model::Clock::System.now().0 / 1000);
    eventually("it has waited for a while", async || (asked + 3 < clock()).then_some(())).await;
    assert_eq!(usage().await["cpu_seconds"], 1800, "the wait is no use");
    cluster.set_nodes("resume");
    person.state(&house, id, "running").await;
    let begun = said(&cluster, "starttime");
    assert!(asked + 3 < begun);
    let db = house.db().await;
    let of_interval = async |column: &str| number(&db, &format!("SELECT {column} FROM intervals")).await;
    assert_eq!(of_interval("COUNT(*)").await, 1);
    let (from, cpus) = (of_interval("started_at").await, of_interval("cpus").await);
    let whole: i64 = cluster.ask("sinfo", &["--noheader", "--partition=debug", "--format=%c"]).trim().parse().unwrap();
    assert_eq!((from, cpus), (begun * 1000, whole), "since Slurm gave it, and all that Slurm gave");
    assert!(cpus > 1);

    // Three seconds in which it does nothing.
    let job = cluster.ask("squeue", &["--noheader", "--format=%i"]).trim().to_owned();
    cluster.tell("scontrol", &["suspend", &job]);
    let suspended = clock();
    eventually("it was suspended for a while", async || (suspended + 3 < clock()).then_some(())).await;
    cluster.tell("scontrol", &["resume", &job]);
    person.end(&house, id).await;
    let ran = said(&cluster, "timeused");
    let (from, to) = (of_interval("started_at").await, of_interval("ended_at").await);
    let ended = said(&cluster, "endtime");
    assert_eq!((to, to - from), (ended * 1000, ran * 1000), "{begun} to {ended}");
    assert!(ran + 3 <= ended - begun, "{ran} of {begun} to {ended}");
    assert_eq!(usage().await["cpu_seconds"], ran * cpus);
    assert_eq!(jobs(&cluster), 1);
    db.close().await;
}

#[tokio::test]
async fn what_never_left_the_queue_was_never_held() {
    let Some((house, person, cluster)) = super::whole::open().await else { return };
    cluster.set_nodes("drain");
    let request = json!({ "app": "web", "resources": { "cpus": 1, "memory_bytes": 256 * MIB } });
    let id = person.start(&house, request).await;
    eventually("it waits in Slurm's queue", async || {
        person.session(&house, id).await["detail"].as_str().is_some_and(|why| why.contains("drained")).then_some(())
    })
    .await;
    person.end(&house, id).await;
    assert!(house.intervals().await.is_empty());
    let usage = person.get(&house, "/me").await["usage"].clone();
    assert_eq!((&usage["cpu_seconds"], &usage["light"]), (&json!(0), &json!(0)), "{usage}");
    let db = house.db().await;
    crate::db::whole::assert_consistent(&db).await;
    db.close().await;
}

#[tokio::test]
async fn slurm_charges_the_account_of_the_group() {
    let Some(cluster) = Cluster::start() else { return };
    let accounts = ("LYCEUM_SCHEDULER__SLURM__ACCOUNTS__VISION", "lab-vision");
    let usual = ("LYCEUM_SCHEDULER__SLURM__ACCOUNT", "everybody");
    let Some((house, person, cluster)) = on_with(cluster, &[accounts, usual]).await else { return };
    for group in ["vision", "speech"] {
        for words in [
            &["admin", "group", "add", group][..],
            &["admin", "group", "member", "add", group, &person.name],
            &["admin", "quota", "set", "group", group, "chargeable=yes"],
        ] {
            let (is_done, said) = house.run(words);
            assert!(is_done, "{words:?}: {said}");
        }
    }
    for (group, account) in [("vision", "lab-vision"), ("speech", "everybody")] {
        let request = json!({ "app": "web", "resources": { "cpus": 1, "memory_bytes": 256 * MIB }, "group": group });
        let id = person.start(&house, request).await;
        person.state(&house, id, "running").await;
        let told = cluster.ask("squeue", &["--noheader", "--states=running", "--Format", "account"]);
        assert_eq!(told.trim(), account, "what is charged to {group}");
        person.end(&house, id).await;
        eventually("it is gone", async || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())).await;
    }
}
