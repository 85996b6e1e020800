//! What is over before anybody looks: jobs of a second, which ran on a node all the same, and what Slurm itself shows of
//! a job. And arrays, which are one line of Slurm's queue and many jobs.

use serde_json::json;

use super::{cluster::Cluster, whole};
use crate::{
    life::jobs::{ended, submit},
    wait::eventually,
};

#[tokio::test]
async fn a_job_of_a_second_has_a_node_and_a_start() {
    let Some(cluster) = Cluster::start() else { return };
    // Nothing looks before they are over.
    let more = [("LYCEUM_SCHEDULER__SLURM__INTERVAL", "30s")];
    let Some((house, person, cluster)) = whole::on_with(cluster, &more).await else { return };
    let asked = json!({ "command": ["true"], "resources": { "cpus": 1, "memory_bytes": 64 << 20 } });
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(submit(&house, &person, asked.clone()).await);
    }
    for id in &jobs {
        let job = ended(&house, &person, id, "exited").await;
        assert!(job["node"].as_str().is_some_and(|node| node.starts_with("node")), "{job}");
        let at = |field: &str| job[field].as_str().map(|at| at.parse::<jiff::Timestamp>().unwrap());
        let (asked, began, over) = (at("created_at").unwrap(), at("started_at"), at("ended_at").unwrap());
        assert!(began.is_some_and(|began| asked <= began && began <= over), "{job}");
    }
    let shown = cluster.ask("scontrol", &["show", "job"]);
    let account = house.admin().get(&house, &format!("/users/{}", person.name)).await;
    let home = format!("/home/{}", account["unix_name"].as_str().unwrap());
    for field in [format!("WorkDir={home}"), "Command=/".to_owned()] {
        assert_eq!(shown.matches(&field).count(), jobs.len(), "{field} in {shown}");
    }
}

#[tokio::test]
async fn an_array_counts_as_its_tasks() {
    let Some((house, person, cluster)) = whole::open().await else { return };
    cluster.submit(60_001, &["--array=0-17", "--hold"]);
    // Too long a list to be one that Slurm shows as a whole by itself.
    let odd: Vec<String> = (0..200).filter(|task| task % 3 != 0).map(|task| task.to_string()).collect();
    cluster.submit(60_001, &[&format!("--array={}", odd.join(",")), "--hold"]);
    eventually("all tasks are counted", async || {
        let partitions = person.get(&house, "/partitions").await;
        let debug = partitions["items"].as_array()?.iter().find(|one| one["name"] == "debug")?.clone();
        (debug["waiting"] == 18 + odd.len()).then_some(())
    })
    .await;
    let queue = house.admin().get(&house, "/queue?owner=*").await;
    assert_eq!(queue["items"].as_array().unwrap().len(), 2, "each array is one line: {queue}");
}
