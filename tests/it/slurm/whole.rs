//! A whole portal in front of a cluster: from the request to the history over REST, and killed
//! in every state of a session's life.

use std::{
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use lyceum::{helper::identity::Identity, model::SessionId};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::{
    life::{House, Person},
    wait::eventually,
};

const MIB: i64 = 1 << 20;

/// A portal that serves, somebody in it, and the cluster.
pub async fn open() -> Option<(House, Person, Cluster)> {
    on(Cluster::start()?).await
}

pub async fn on(cluster: Cluster) -> Option<(House, Person, Cluster)> {
    on_with(cluster, &[]).await
}

pub async fn on_with(cluster: Cluster, more: &[(&str, &str)]) -> Option<(House, Person, Cluster)> {
    configured(cluster, more, "").await
}

/// With further variables and lines of the configuration.
pub async fn configured(cluster: Cluster, more: &[(&str, &str)], toml: &str) -> Option<(House, Person, Cluster)> {
    if !crate::needs::root() {
        return None;
    }
    let conf = cluster.conf();
    let variables = [
        ("LYCEUM_SCHEDULER__KIND", "slurm"),
        ("LYCEUM_SCHEDULER__SLURM__CONF", conf.to_str().unwrap()),
        ("LYCEUM_SCHEDULER__SLURM__INTERVAL", "2s"),
        // What somebody likes in their own shell is nothing to the portal.
        ("SQUEUE_FORMAT", "%i"),
        ("SQUEUE_STATES", "PENDING"),
        ("SBATCH_PARTITION", "nowhere"),
        ("SLURM_TIME_FORMAT", "relative"),
    ];
    let mut house = House::new(&[&variables[..], more].concat());
    house.configure(toml);
    house.start().await;
    let person = house.person_as(&house.unix_account("n"));
    Some((house, person, cluster))
}

fn asked(app: &str) -> Value {
    json!({ "app": app, "resources": { "cpus": 1, "memory_bytes": 256 * MIB }, "duration_seconds": 1800 })
}

/// How many jobs there ever were.
pub fn jobs(cluster: &Cluster) -> usize {
    cluster.ask("squeue", &["--noheader", "--states=all", "--Format", "jobid"]).lines().count()
}

/// Takes everything of a session away, and shows that nothing is left.
async fn close(house: &House, person: &Person, cluster: &Cluster, id: SessionId) {
    person.end(house, id).await;
    eventually("no job is left", async || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())).await;
    eventually("nor its directory", async || (!house.paths().run.join(id.short()).exists()).then_some(())).await;
    assert_eq!(jobs(cluster), 1, "there was one job and no other");
}

#[tokio::test]
async fn from_request_to_history() {
    let Some((house, person, cluster)) = open().await else { return };
    let id = person.start(&house, asked("web")).await;
    let session = person.state(&house, id, "running").await;
    assert_eq!(session["cluster"], "slurm", "{session}");
    assert!(session["node"].as_str().is_some_and(|node| node.starts_with("node")), "{session}");
    let (status, facts) = person.visit(&house, id, "/facts").await;
    assert_eq!(status, 200, "{facts}");
    assert!(facts["environment"]["SLURM_JOB_ID"].is_string(), "{facts}");
    let (status, answer) =
        person.ask(&house, "POST", &format!("/sessions/{id}/extend"), &json!({ "seconds": 60 })).await;
    let why = answer.to_string();
    assert!(status == 409 && why.contains("Only operators of the cluster can change"), "{status} {why}");
    close(&house, &person, &cluster, id).await;
    let history = person.history(&house, id, 0).await;
    let words: Vec<&str> = history.iter().map(|(_, line)| line.split(':').next().unwrap()).collect();
    assert_eq!(words, ["queued", "starting", "running", "stopping", "ended"], "{history:?}");
    let log = person.request(&house, "GET", &format!("/api/v1/sessions/{id}/log")).send().await.unwrap();
    assert!(log.text().await.unwrap().contains("a line of the log"), "what an ended session wrote is kept");
}

/// In Slurm's queue it is queued, and the card says why.
#[tokio::test]
async fn the_queue_is_told() {
    let Some((house, person, cluster)) = open().await else { return };
    cluster.set_nodes("drain");
    let id = person.start(&house, asked("web")).await;
    eventually("the reason is told", async || {
        let session = person.session(&house, id).await;
        assert_eq!(session["state"], "queued", "{session}");
        session["detail"].as_str().is_some_and(|detail| detail.contains("drained")).then_some(())
    })
    .await;
    let stuck = person.start(&house, asked("web")).await;
    person.end(&house, stuck).await;
    cluster.set_nodes("resume");
    person.state(&house, id, "running").await;
    person.end(&house, id).await;
    let (status, refused) = person
        .ask(&house, "POST", "/sessions", &json!({ "app": "web", "resources": { "cpus": 5 }, "duration_seconds": 60 }))
        .await;
    if status == 201 {
        let ended = person.ended(&house, crate::life::person::id(&refused), "launch_failed").await;
        assert!(ended["detail"].as_str().unwrap().contains("the largest node has 4"), "{ended}");
    } else {
        assert!(refused.to_string().contains('4'), "{status} {refused}");
    }
}

#[tokio::test]
async fn killed_in_the_queue() {
    let Some((mut house, person, cluster)) = open().await else { return };
    cluster.set_nodes("drain");
    let id = person.start(&house, asked("web")).await;
    eventually("it is handed in", async || (jobs(&cluster) == 1).then_some(())).await;
    house.kill();
    cluster.set_nodes("resume");
    house.start().await;
    person.state(&house, id, "running").await;
    close(&house, &person, &cluster, id).await;
}

#[tokio::test]
async fn killed_while_it_is_handed_in() {
    let Some((mut house, person, cluster)) = open().await else { return };
    let id = person.start(&house, asked("web")).await;
    // Before, while or after the job is made: whichever it is, there is one.
    house.kill();
    house.start().await;
    person.state(&house, id, "running").await;
    house.restart().await;
    let session = person.session(&house, id).await;
    assert_eq!(session["state"], "running", "{session}");
    eventually("it is known again", async || (person.visit(&house, id, "/facts").await.0 == 200).then_some(())).await;
    close(&house, &person, &cluster, id).await;
}

#[tokio::test]
async fn killed_while_it_stops() {
    let Some((mut house, person, cluster)) = open().await else { return };
    let id = person.run(&house, "web").await;
    person.stop(&house, id).await;
    house.kill();
    house.start().await;
    close(&house, &person, &cluster, id).await;
}

/// What ended while the portal was away is told as it was.
#[tokio::test]
async fn ended_while_nobody_looked() {
    let Some((mut house, person, cluster)) = open().await else { return };
    let id = person.run(&house, "web").await;
    house.kill();
    let node = cluster.ask("squeue", &["--noheader", "--Format", "batchhost:|"]);
    let number: usize = node.trim().trim_matches('|').trim_start_matches("node").parse().unwrap();
    cluster.set_node(number, "down");
    house.start().await;
    person.ended(&house, id, "node_failure").await;
}

#[test]
fn check_tells_of_the_cluster() {
    let Some(cluster) = Cluster::start() else { return };
    let conf = cluster.conf();
    let house = House::new(&[
        ("LYCEUM_SCHEDULER__KIND", "slurm"),
        ("LYCEUM_SCHEDULER__SLURM__CONF", conf.to_str().unwrap()),
        ("LYCEUM_SCHEDULER__SLURM__PARTITION", "debug"),
    ]);
    let (_, said) = house.run(&["check"]);
    for wanted in [
        "slurm-wlm",
        "it responds, 4 nodes",
        "Slurm partition",
        "can see all jobs",
        "Slurm quotas",
        "not prevented",
        "sbatch",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    cluster.kill_controller();
    let (fine, said) = house.run(&["check"]);
    assert!(!fine && said.contains("scontrol ping"), "{said}");
    cluster.start_controller();
}

/// The machines were switched on together, and the portal was first.
#[tokio::test]
async fn how_large_the_cluster_is_can_be_learnt_later() {
    let Some((mut house, person, cluster)) = open().await else { return };
    house.kill();
    cluster.kill_controller();
    house.start().await;
    let gpus = async || {
        let profiles = person.get(&house, "/profiles").await;
        let most = profiles["items"].as_array().unwrap().iter().map(|profile| profile["resources"]["gpus"].as_i64());
        (house.admin().get(&house, "/quotas").await["strip"]["gpus"].as_i64(), most.max().flatten())
    };
    assert_eq!(gpus().await, (Some(0), Some(0)));
    cluster.start_controller();
    eventually("it is known", async || (gpus().await == (Some(8), Some(2))).then_some(())).await;
    let one = json!({ "app": "web", "resources": { "gpus": 1, "cpus": 1, "memory_bytes": 256 * MIB } });
    let id = person.start(&house, one).await;
    person.state(&house, id, "running").await;
}

/// A controller that is away is the controller's fault, and is told as that.
#[tokio::test]
async fn the_health_report_names_the_controller_that_is_silent() {
    let Some(cluster) = Cluster::with("MessageTimeout=3") else { return };
    let Some((house, _, cluster)) = on(cluster).await else { return };
    let admin = house.admin();
    let scheduler = async |level: &str| {
        eventually(&format!("the scheduler is told as {level}"), async || {
            let report = admin.get(&house, "/health").await;
            let found = report["findings"].as_array()?.iter().find(|one| one["name"] == "scheduler").cloned()?;
            (found["level"] == level).then_some((report, found))
        })
        .await
    };
    let (_, well) = scheduler("ok").await;
    assert!(well["what"].as_str().unwrap().contains("its controller responds"), "{well}");
    cluster.stop_controller();
    let (report, found) = scheduler("fault").await;
    let (what, fix) = (found["what"].as_str().unwrap(), found["fix"].as_str().unwrap());
    assert!(what.contains("its controller has not responded for ") && !what.contains("helper has exited"), "{found}");
    assert!(fix.contains("scontrol ping") && !fix.contains("restart lyceum"), "{found}");
    assert_eq!(report["level"], "fault");
    let ready = admin.request(&house, "GET", "/readyz").send().await.unwrap();
    assert_eq!(ready.status(), 503);
    assert!(ready.text().await.unwrap().contains("controller does not respond"));
    cluster.resume_controller();
    scheduler("ok").await;
}

/// From the request to the app's first answer, beside plain `sbatch` to its script's first line.
#[tokio::test]
async fn how_long_a_start_takes() {
    const TIMES: u32 = 3;
    let Some((house, person, cluster)) = open().await else { return };
    let (mut plain, mut ours) = (Duration::ZERO, Duration::ZERO);
    let uid = Identity::facts(&house.unix_account("m")).unwrap().uid;
    let mark = cluster.path("open/mark");
    std::fs::create_dir(cluster.path("open")).unwrap();
    std::fs::set_permissions(cluster.path("open"), PermissionsExt::from_mode(0o777)).unwrap();
    for _ in 0..TIMES {
        let begin = Instant::now();
        cluster.submit_script(uid, &["--time=1"], &format!("#!/bin/sh\n: >{}\n", mark.display()));
        eventually("it has begun", async || mark.exists().then_some(())).await;
        plain += begin.elapsed();
        std::fs::remove_file(&mark).unwrap();
        let begin = Instant::now();
        let id = person.run(&house, "web").await;
        ours += begin.elapsed();
        person.end(&house, id).await;
    }
    eprintln!(
        "plain sbatch to its first line: {:?}; request to the app's first answer: {:?}",
        plain / TIMES,
        ours / TIMES
    );
    assert!(ours / TIMES < plain / TIMES + Duration::from_secs(30));
}
