//! Each way to agents on nodes, with a whole portal and a real cluster: a session from its start
//! over a restart of the portal to its end, and a job with a terminal inside it, whose log and curve
//! come from its node.
//! That is what `nodes.transport` chooses between; nothing else may differ.

use std::net::TcpListener;

use serde_json::json;

use super::{
    cluster::Cluster,
    whole::{jobs, on_with},
};
use crate::{
    gateway::terminal::types,
    idleness::terminals::tab,
    life::jobs::{attempt, ended, log, state, submit},
    wait::eventually,
};

const MIB: i64 = 1 << 20;

#[tokio::test]
async fn listen() {
    the_same("listen").await;
}

#[tokio::test]
async fn dial_back() {
    the_same("dial_back").await;
}

async fn the_same(transport: &str) {
    let Some(cluster) = Cluster::start() else { return };
    // Nobody else gets it before the portal: such ports are not given out again at once.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let variables = [
        ("LYCEUM_NODES__TRANSPORT", transport),
        ("LYCEUM_NODES__PORTAL_ADDRESS", address.as_str()),
        ("LYCEUM_NODES__PORTAL_LISTEN", address.as_str()),
    ];
    let Some((mut house, person, cluster)) = on_with(cluster, &variables).await else { return };
    let id = person
        .start(
            &house,
            json!({ "app": "web", "resources": { "cpus": 1, "memory_bytes": 256 * MIB }, "duration_seconds": 1800 }),
        )
        .await;
    person.state(&house, id, "running").await;
    let (status, facts) = person.visit(&house, id, "/facts").await;
    assert!(status == 200 && facts["environment"]["SLURM_JOB_ID"].is_string(), "{status} {facts}");
    let directory = house.paths().run.join(id.short());
    assert!(!directory.join("endpoint.json").exists(), "no file says where it is: it has called");
    // Agents call again.
    house.restart().await;
    eventually("it is reached again", async || (person.visit(&house, id, "/facts").await.0 == 200).then_some(())).await;
    person.end(&house, id).await;

    let bin = house.paths().shared.join("bin");
    let program = std::fs::read_dir(bin).unwrap().next().unwrap().unwrap().path().join("lyceum");
    let script = format!(
        "echo on $SLURMD_NODENAME\nuntil [ -e let-it ]; do sleep 0.1; done\nexec {} demo-train --rate 0 --steps 200\n",
        program.display()
    );
    let size = json!({ "cpus": 1, "memory_bytes": 256 * MIB });
    let job = submit(&house, &person, json!({ "script": script, "resources": size })).await;
    let runs = state(&house, &person, &job, "running").await;
    let mut shell = tab(&house, &person, attempt(&runs)).await;
    types(&mut shell, "echo \"at-$SLURMD_NODENAME\"", "at-node").await;
    types(&mut shell, "touch let-it; echo $((3*7))", "21").await;
    ended(&house, &person, &job, "exited").await;
    assert!(log(&house, &person, &format!("{job}/log")).await.contains("on node"));
    eventually("its curve is whole", async || {
        let path = format!("/jobs/{job}/metrics/train%2Floss?points=10");
        let (status, curve) = person.ask(&house, "GET", &path, &serde_json::Value::Null).await;
        (status == 200 && curve["count"] == 200).then_some(())
    })
    .await;
    assert_eq!(jobs(&cluster), 2, "each was handed in once");
}
