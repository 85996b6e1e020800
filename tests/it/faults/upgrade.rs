//! An upgrade of the portal while sessions run: their agents are of the program before, which
//! may be gone from its place, or speak the protocol before. Each is taken over, shown and
//! ended as one's own.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use lyceum::{
    helper::{placement::Record, process},
    model::SessionId,
    protocol::PROTOCOL,
};
use serde_json::json;

use super::all_agree;
use crate::{
    db::execute,
    life::{House, processes},
    wait::{PATIENCE, eventually},
};

#[tokio::test]
async fn agents_of_a_program_that_is_gone_are_taken_over() {
    if !crate::needs::root() {
        return;
    }
    let mut house = House::new(&[]);
    let (before, after) = (house.file("lyceum-before"), house.file("lyceum-after"));
    for copy in [&before, &after] {
        fs::copy(env!("CARGO_BIN_EXE_lyceum"), copy).unwrap();
    }
    house.program.clone_from(&before);
    house.start().await;
    let person = house.person();
    let old = person.run(&house, "web").await;
    let record = house.record(old).unwrap();
    house.terminate().await;
    fs::remove_file(&before).unwrap();

    house.program = after;
    house.start().await;
    assert_eq!(person.session(&house, old).await["state"], "running");
    assert_eq!(house.record(old).unwrap(), record);
    person.is_reached(&house, old).await;
    let new = person.run(&house, "web").await;
    let program = |id| fs::read_link(format!("/proc/{}/exe", house.record(id).unwrap().placement.pid)).unwrap();
    assert_ne!(program(old), program(new), "each has the program that it was started with");
    person.end(&house, old).await;
    person.end(&house, new).await;
    house.nothing_left(&record).await;
}

/// An agent of protocol N−1, as far as there could have been one (`old_agent.py`): one starts
/// while the portal is exchanged, the other one runs.
#[tokio::test]
async fn agents_of_the_protocol_before_are_taken_over() {
    assert_eq!(
        PROTOCOL,
        1,
        "old_agent.py speaks for agents of protocol {}: let it say what those of the last release say",
        PROTOCOL - 1
    );
    let Some(mut house) = House::open(&[]).await else { return };
    let person = house.person();
    let running = person.run(&house, "web").await;
    let starting = person.start(&house, json!({ "app": "slow" })).await;
    eventually("it is launched", async || house.record(starting)).await;
    person.state(&house, starting, "starting").await;

    house.kill();
    let mut old: Vec<Child> = Vec::new();
    for id in [running, starting] {
        old.push(exchange_agent(&house, id).await);
    }
    house.start().await;
    person.state(&house, starting, "running").await;
    for id in [running, starting] {
        assert_eq!(person.session(&house, id).await["state"], "running");
        assert_eq!(person.is_reached(&house, id).await, json!("old"));
        let card = person.request(&house, "GET", &format!("/sessions/{id}/card")).send().await.unwrap();
        assert!(card.status() == 200 && card.text().await.unwrap().contains("Running"));
    }
    let db = house.db().await;
    let records = [running, starting].map(|id| house.record(id).unwrap());
    person.stop(&house, running).await;
    person.stop(&house, starting).await;
    for agent in &mut old {
        // It is our child and stays until we look.
        eventually("it ends when it is asked to", async || agent.try_wait().unwrap()).await;
    }
    for (id, record) in [running, starting].into_iter().zip(&records) {
        person.ended(&house, id, "stopped_by_owner").await;
        house.nothing_left(record).await;
    }
    all_agree(&house, &db).await;
    db.close().await;
}

/// Puts an agent of the protocol before in the place of a session's own.
async fn exchange_agent(house: &House, id: SessionId) -> Child {
    let record = house.record(id).unwrap();
    assert!(process::kill_all(|| Ok(processes(&record)), PATIENCE).unwrap());
    let run = Path::new(&record.placement.run_directory);
    for socket in ["agent.sock", "app.sock"] {
        let _ = fs::remove_file(run.join(socket));
    }
    let script = house.file("old_agent.py");
    fs::write(&script, include_str!("old_agent.py")).unwrap();
    let join = "for group in $GROUPS_OF_IT; do echo $$ > $group/cgroup.procs || exit 1; done; exec \"$@\"";
    let groups: Vec<&str> = record.cgroups.iter().map(|group| group.to_str().unwrap()).collect();
    let (uid, gid) = (format!("--reuid={}", record.placement.uid), format!("--regid={}", record.placement.uid));
    let mut command = Command::new("sh");
    command.args(["-c", join, "sh", "setpriv", &uid, &gid, "--clear-groups", "--", "/usr/bin/python3"]);
    command.arg(script).arg(run).env_clear().env("GROUPS_OF_IT", groups.join(" ")).stdin(Stdio::null());
    let agent = command.spawn().unwrap();
    eventually("the old agent listens", async || run.join("app.sock").exists().then_some(())).await;

    let mut placed: Record = record.clone();
    placed.placement.pid = i32::try_from(agent.id()).unwrap();
    placed.placement.start_ticks = process::stat(placed.placement.pid).unwrap().unwrap().start_ticks;
    let file = house.paths().placements.join(format!("{}.json", id.short()));
    fs::write(file, serde_json::to_string(&placed).unwrap()).unwrap();
    let placement = serde_json::to_string(&placed.placement).unwrap();
    let db = house.db().await;
    execute(&db, &format!("UPDATE sessions SET placement = '{placement}' WHERE id = '{id}'")).await;
    db.close().await;
    agent
}
