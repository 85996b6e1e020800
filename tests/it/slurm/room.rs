//! Limits of Slurm's on how many jobs are submitted at once, while the portal keeps the quotas itself: what is
//! too much waits here with Slurm's word for it, and goes on when one ends. None of it is lost.

use serde_json::json;

use super::mirror::{Scene, scene};
use crate::{life::person::id, wait::eventually};

#[tokio::test]
async fn what_slurm_takes_no_more_of_waits() {
    let Some(scene) = scene("portal").await else { return };
    let Scene { house, person, cluster, unix, .. } = &scene;
    // Whatever account its jobs are charged to.
    for account in ["account=lab", "account=other"] {
        scene.by_hand(&["user", "where", &format!("name={unix}"), account, "set", "MaxSubmitJobs=1"]);
    }
    let asked =
        json!({ "app": "web", "resources": { "cpus": 1, "memory_bytes": 256 << 20 }, "duration_seconds": 1800 });
    let first = person.start(house, asked.clone()).await;
    person.state(house, first, "running").await;
    let mut others = Vec::new();
    for _ in 0..2 {
        let (status, answer) = person.ask(house, "POST", "/sessions", &asked).await;
        assert_eq!(status, 201, "{answer}");
        others.push(id(&answer));
    }
    for other in &others {
        eventually("it waits, and says why", async || {
            let session = person.session(house, *other).await;
            assert_eq!(session["state"], "queued", "{session}");
            session["detail"].as_str()?.contains("AssocMaxSubmitJobLimit").then_some(())
        })
        .await;
    }
    assert_eq!(cluster.ask("squeue", &["--noheader"]).lines().count(), 1);
    // One that waits can be stopped, and another goes on.
    person.end(house, others[1]).await;
    person.end(house, first).await;
    person.state(house, others[0], "running").await;
    person.end(house, others[0]).await;
}

#[tokio::test]
async fn the_end_is_the_one_that_the_site_gives() {
    let Some(scene) = scene("portal").await else { return };
    let Scene { house, person, cluster, .. } = &scene;
    // Nothing starts, so that there is time to rewrite one as a plug-in of the site's would.
    cluster.ask("scontrol", &["update", "PartitionName=debug", "State=DOWN"]);
    let asked =
        json!({ "app": "web", "resources": { "cpus": 1, "memory_bytes": 256 << 20 }, "duration_seconds": 3000 });
    let session = person.start(house, asked).await;
    let job = eventually("it is in Slurm's queue", async || {
        let queue = cluster.ask("squeue", &["--noheader", "--format=%i"]);
        queue.lines().next().map(|line| line.trim().to_owned())
    })
    .await;
    cluster.ask("scontrol", &["update", &format!("JobId={job}"), "TimeLimit=20"]);
    cluster.ask("scontrol", &["update", "PartitionName=debug", "State=UP"]);
    let running = person.state(house, session, "running").await;
    let at = |field: &str| running[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
    let left = at("expires_at") - at("ready_at");
    assert!((1100..=1200).contains(&left), "twenty minutes from its start: {left} s, {running}");
    person.end(house, session).await;
}
