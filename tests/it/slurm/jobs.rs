//! Batch jobs in front of a cluster: the same service as on one machine, each attempt a job of
//! Slurm's. How each ends, its log, cancelled in the queue and while it runs, resumed, its
//! curve, hostile scripts, and a portal that is killed meanwhile.

use serde_json::{Value, json};

use super::whole::{jobs, open};
use crate::{
    gateway::terminal::types,
    idleness::terminals::tab,
    life::{
        House, Person,
        jobs::{attempt, ended, log, state, submit},
    },
    wait::eventually,
};

const MIB: i64 = 1 << 20;

/// A request of a size that fits beside others.
fn small(request: Value) -> Value {
    let mut request = request;
    request["resources"] = json!({ "cpus": 1, "memory_bytes": 256 * MIB });
    request
}

async fn post(house: &House, person: &Person, path: &str) -> (u16, Value) {
    person.ask(house, "POST", path, &Value::Null).await
}

#[tokio::test]
async fn every_end_has_its_reason() {
    let Some((house, person, cluster)) = open().await else { return };
    let admin = house.admin();
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;

    // The portal's own limit goes before Slurm's, which is later. It takes its minute.
    let mut long = small(json!({ "command": ["sleep", "6000"] }));
    long["time_limit_seconds"] = json!(60);
    let long = submit(&house, &person, long).await;

    let script =
        "#!/bin/bash\r\necho \"$(id -un) with $SEED in job $SLURM_JOB_ID\"\r\necho to errors >&2\r\nexit 3\r\n";
    let id = submit(&house, &person, small(json!({ "script": script, "variables": { "SEED": "7" } }))).await;
    let three = ended(&house, &person, &id, "exited").await;
    assert_eq!((&three["exit_code"], &three["cluster"]), (&json!(3), &json!("slurm")), "{three}");
    let text = log(&house, &person, &format!("{id}/log")).await;
    assert!(text.contains(" with 7 in job ") && text.ends_with("to errors\n"), "{text}");

    let id = submit(&house, &person, small(json!({ "command": ["/nowhere/at-all"] }))).await;
    let missing = ended(&house, &person, &id, "exited").await;
    assert_eq!(missing["exit_code"], 127, "{missing}");

    let id = submit(&house, &person, small(json!({ "script": "#!/bin/sh\nkill -9 $$\n" }))).await;
    let killed = ended(&house, &person, &id, "signal").await;
    assert_eq!(killed["signal"], 9, "{killed}");

    let hungry = "hoard = []\nwhile True: hoard.append(bytearray(1 << 20))";
    let id = submit(&house, &person, small(json!({ "command": ["/usr/bin/python3", "-c", hungry] }))).await;
    ended(&house, &person, &id, "out_of_memory").await;

    // Nobody said how long: as long as the cluster allows.
    let id = submit(&house, &person, small(json!({ "command": ["sleep", "600"] }))).await;
    let runs = state(&house, &person, &id, "running").await;
    assert_eq!(runs["time_limit_seconds"], 3600);
    // Its owner looks inside, on its node.
    let number = cluster.ask("squeue", &["--noheader", "--name=sleep 600", "--format=%i"]);
    let mut shell = tab(&house, &person, attempt(&runs)).await;
    types(&mut shell, "echo \"in-$SLURM_JOB_ID.$CPU_LIMIT\"", &format!("in-{}.1", number.trim())).await;
    cluster.tell("scancel", &["--name=sleep 600"]);
    let cancelled = ended(&house, &person, &id, "stopped_by_admin").await;
    assert!(cancelled["detail"].as_str().unwrap().contains("cancelled in Slurm"), "{cancelled}");
    ended(&house, &person, &long, "time_limit").await;
    assert_eq!(jobs(&cluster), 6, "each attempt is one job");
    assert_eq!(house.intervals().await.iter().filter(|one| one.to == i64::MAX).count(), 0, "nothing is held");
}

#[tokio::test]
async fn cancelled_and_resumed() {
    let Some((mut house, person, cluster)) = open().await else { return };
    // In the queue.
    cluster.set_nodes("drain");
    let id = submit(&house, &person, small(json!({ "command": ["sleep", "600"] }))).await;
    let waiting = eventually("it waits, and says why", async || {
        let job = crate::life::jobs::job(&house, &person, &id).await;
        job["detail"].as_str().is_some_and(|detail| detail.contains("drained")).then_some(job)
    })
    .await;
    assert_eq!(waiting["state"], "queued", "{waiting}");
    assert_eq!(post(&house, &person, &format!("/jobs/{id}/cancel")).await.0, 202);
    ended(&house, &person, &id, "stopped_by_owner").await;
    cluster.set_nodes("resume");
    // Again, and over the end of the portal.
    let (status, resumed) = post(&house, &person, &format!("/jobs/{id}/resume")).await;
    assert_eq!((status, &resumed["attempt"]), (202, &json!(2)), "{resumed}");
    state(&house, &person, &id, "running").await;
    house.kill();
    house.start().await;
    state(&house, &person, &id, "running").await;
    assert_eq!(post(&house, &person, &format!("/jobs/{id}/cancel")).await.0, 202);
    ended(&house, &person, &id, "stopped_by_owner").await;
    eventually("no job is left", async || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())).await;
    assert_eq!(jobs(&cluster), 2);
}

/// What the program writes on its node is one curve over both attempts.
#[tokio::test]
async fn its_curve_comes_from_the_node() {
    let Some((house, person, _cluster)) = open().await else { return };
    let bin = house.paths().shared.join("bin");
    let program = std::fs::read_dir(bin).unwrap().next().unwrap().unwrap().path().join("lyceum");
    let script = format!(
        "if [ \"$LYCEUM_ATTEMPT\" = 1 ]\nthen exec {0} demo-train --rate 0 --steps 500 --crash-at 350 --crash-by kill\n\
         else exec {0} demo-train --rate 0 --steps 500 --resume\nfi\n",
        program.display()
    );
    let id = submit(&house, &person, small(json!({ "name": "train", "script": script }))).await;
    assert_eq!(ended(&house, &person, &id, "signal").await["signal"], 9);
    let (status, body) = post(&house, &person, &format!("/jobs/{id}/resume")).await;
    assert_eq!(status, 202, "{body}");
    eventually("the second attempt ends", async || {
        let job = crate::life::jobs::job(&house, &person, &id).await;
        (job["attempt"] == 2 && job["state"] == "ended").then_some(())
    })
    .await;
    eventually("both attempts are one curve", async || {
        let curve =
            person.ask(&house, "GET", &format!("/jobs/{id}/metrics/train%2Floss?points=10"), &Value::Null).await;
        (curve.0 == 200 && curve.1["count"] == 500).then_some(())
    })
    .await;
}

/// Each gets the controller's sentence, ours, or runs; and none leaves a job behind.
#[tokio::test]
async fn hostile_scripts() {
    let Some((house, person, cluster)) = open().await else { return };
    let admin = house.admin();
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    // A line for Slurm in it is obeyed or refused, or a comment of the shell's and nothing else.
    let script = "#!/bin/sh\n#SBATCH --uid=0\n#SBATCH --partition=nowhere\n#SBATCH --comment=x\nid -u\n";
    let (status, answer) = person.ask(&house, "POST", "/jobs", &small(json!({ "script": script }))).await;
    assert!(status == 422 && answer["detail"].as_str().is_some_and(|said| said.contains("`--uid`")), "{answer}");
    let comments = json!({ "name": "x #SBATCH --nice", "script": script, "sbatch": false });
    let id = submit(&house, &person, small(comments)).await;
    ended(&house, &person, &id, "exited").await;
    let told = log(&house, &person, &format!("{id}/log")).await;
    assert_ne!(told, "0\n", "it ran as its owner");
    assert!(!told.trim().is_empty());
    // A mark of byte order, five megabytes, and what is no script.
    for script in ["\u{feff}#!/bin/sh\necho fine\n".to_owned(), format!("#!/bin/sh\n# {}\n", "x".repeat(5 << 20))] {
        let (status, answer) = person.ask(&house, "POST", "/jobs", &small(json!({ "script": script }))).await;
        if status == 201 {
            let id = answer["id"].as_str().unwrap().to_owned();
            state(&house, &person, &id, "ended").await;
        } else {
            assert!((400..500).contains(&status) && answer["detail"].is_string(), "{status} {answer}");
        }
    }
    // A folder that is not there is refused before anything is handed in.
    let before = jobs(&cluster);
    let (status, answer) = person
        .ask(&house, "POST", "/jobs", &small(json!({ "command": ["true"], "working_directory": "/no/such/place" })))
        .await;
    assert_eq!((status, &answer["errors"][0]["field"]), (422, &json!("working_directory")), "{answer}");
    assert_eq!(jobs(&cluster), before);
    eventually("no job is left", async || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())).await;
}
