//! Limits of Slurm's on how many jobs are submitted at once, while the portal keeps the quotas itself: what is
//! too much waits here with Slurm's word for it, and goes on when one ends. None of it is lost.

use serde_json::json;

use super::{
    cluster::Cluster,
    mirror::{Scene, scene},
    whole::on,
};
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

    // The site changes the limit of what runs, in either direction.
    for minutes in [10, 45] {
        cluster.ask("scontrol", &["update", &format!("JobId={job}"), &format!("TimeLimit={minutes}")]);
        let end = at("ready_at") + minutes * 60;
        eventually(&format!("its end is that of {minutes} minutes"), async || {
            let expires =
                person.session(house, session).await["expires_at"].as_str()?.parse::<jiff::Timestamp>().ok()?;
            ((end - 60..=end + 10).contains(&expires.as_second())).then_some(())
        })
        .await;
    }
    // What the portal's own extension changes there is no news of the site's.
    let extended = eventually("the portal has found that it may move limits", async || {
        // A look at the nodes has the portal ask anew for what it may do.
        person.get(house, "/nodes").await;
        let path = format!("/sessions/{session}/extend");
        let (status, answer) = person.ask(house, "POST", &path, &json!({ "seconds": 1800 })).await;
        (status == 200).then_some(answer)
    })
    .await;
    let until = |answer: &serde_json::Value| {
        answer["expires_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second()
    };
    let limit = || cluster.ask("squeue", &["--noheader", "--format=%l", &format!("--jobs={job}")]);
    eventually("Slurm grants it", async || limit().trim().starts_with("1:2").then_some(())).await;
    cluster.ask("scontrol", &["suspend", &job]);
    eventually("it is suspended", async || {
        let now = person.session(house, session).await;
        (!now["suspended_since"].is_null()).then_some(())
    })
    .await;
    let suspended = std::time::Instant::now();
    eventually("some time goes by", async || (suspended.elapsed().as_secs() > 8).then_some(())).await;
    cluster.ask("scontrol", &["resume", &job]);
    let after = eventually("it goes on", async || {
        let now = person.session(house, session).await;
        now["suspended_since"].is_null().then_some(now)
    })
    .await;
    let moved = until(&after) - until(&extended);
    assert!((8..=40).contains(&moved), "moved by as long as it was suspended: {moved} s");
    person.end(house, session).await;
}

/// A site's plug-in shortens the limit, moves the job and says so: the end is the smaller one, and its words are kept.
const PLUGIN: &str = r#"
function slurm_job_submit(job, partitions, uid)
   if job.time_limit ~= nil and job.time_limit > 15 then
      job.time_limit = 15
      job.partition = "course"
      slurm.log_user("Jobs of the course last 15 minutes, in the partition course.")
   end
   return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end
"#;

#[tokio::test]
async fn twenty_jobs_that_a_plugin_rewrites() {
    let Some(cluster) = Cluster::with("PartitionName=course Nodes=ALL MaxTime=15 State=UP\n") else { return };
    std::fs::write(cluster.path("etc/job_submit.lua"), PLUGIN).unwrap();
    let text = std::fs::read_to_string(cluster.conf()).unwrap();
    std::fs::write(cluster.conf(), text + "JobSubmitPlugins=lua\n").unwrap();
    cluster.tell("scontrol", &["reconfigure"]);
    let Some((house, person, cluster)) = on(cluster).await else { return };
    let asked = json!({ "command": ["sleep", "600"], "time_limit_seconds": 3600, "resources": { "cpus": 1, "memory_bytes": 64 << 20 } });
    let posted = (0..20).map(|_| person.ask(&house, "POST", "/jobs", &asked));
    let mut jobs = Vec::new();
    for (status, answer) in futures_util::future::join_all(posted).await {
        assert_eq!(status, 201, "{answer}");
        jobs.push(answer["id"].as_str().unwrap().to_owned());
    }
    let running = eventually("one runs", async || {
        let list = person.get(&house, "/jobs?state=running").await;
        list["items"].as_array()?.iter().find(|job| !job["expires_at"].is_null()).cloned()
    })
    .await;
    let at = |field: &str| running[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
    let left = at("expires_at") - at("started_at");
    assert!((850..=905).contains(&left), "fifteen minutes: {left} s, {running}");
    assert_eq!(
        cluster.ask("squeue", &["--noheader", "--format=%P", "--states=RUNNING"]).lines().next(),
        Some("course")
    );
    for job in jobs {
        person.ask(&house, "POST", &format!("/jobs/{job}/cancel"), &serde_json::Value::Null).await;
    }
    // The stream ends with the job.
    let path = format!("/api/v1/jobs/{}/events", running["id"].as_str().unwrap());
    let events = person.request(&house, "GET", &path).send().await.unwrap().text().await.unwrap();
    assert!(events.contains("Jobs of the course last 15 minutes"), "{events}");
}
