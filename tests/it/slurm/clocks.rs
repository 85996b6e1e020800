//! Nodes whose clock is off by many minutes: the agent runs there with a clock of its own, which the
//! real library for that purpose moves. What is told of use, start and end is by the portal's.

use std::{fs, os::unix::fs::PermissionsExt};

use futures_util::SinkExt;
use lyceum::model::{Clock, Timestamp};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{cluster::Cluster, whole};
use crate::{
    idleness::{runs, stopped, terminals::tab},
    needs::met,
};

/// The library that moves clocks, where the machine has it.
fn library() -> Option<String> {
    let found = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path().join("faketime/libfaketime.so.1"));
    let found = found.filter(|path| path.exists()).map(|path| path.display().to_string()).next();
    met("libfaketime", found.is_some()).then_some(found)?
}

fn time(value: &Value) -> Timestamp {
    serde_json::from_value(value.clone()).unwrap()
}

async fn off_by(offset: &str) {
    let (Some(library), Some(cluster)) = (library(), Cluster::start()) else { return };
    if !crate::needs::root() {
        return;
    }
    // The way to the program on nodes leads past the library.
    let folder = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("lyceum");
    fs::copy(env!("CARGO_BIN_EXE_lyceum"), folder.path().join("itself")).unwrap();
    let script = format!(
        "#!/bin/sh\nexport LD_PRELOAD={library} FAKETIME={offset} FAKETIME_DONT_FAKE_MONOTONIC=1\nexec '{}/itself' \"$@\"\n",
        folder.path().display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let more = [("LYCEUM_SCHEDULER__SLURM__PROGRAM", program.to_str().unwrap())];
    let Some((house, person, _cluster)) = whole::on_with(cluster, &more).await else { return };
    house.admin().allow(&house, &person, json!({ "idle_timeout_seconds": 8, "light": -1 })).await;

    let began = Clock::System.now();
    let (waits, prints) = (person.run(&house, "terminal").await, person.run(&house, "terminal").await);
    let open = tab(&house, &person, waits).await;
    let mut loud = tab(&house, &person, prints).await;
    loud.send(Message::binary(b"while sleep 1; do date; done\n".as_slice())).await.unwrap();
    drop(loud);
    stopped(&house, &person, waits, async || runs(&house, &person, prints, "its program prints").await).await;
    drop(open);
    let told = house.log().contains("clock of the node differs from the portal's");
    assert!(told, "an administrator should know");
    person.end(&house, prints).await;
    let session = person.session(&house, prints).await;
    let times: Vec<Timestamp> = ["created_at", "ready_at", "ended_at"].iter().map(|at| time(&session[*at])).collect();
    assert!(times.is_sorted() && began <= times[0] && times[2] <= Clock::System.now(), "{session}");
}

#[tokio::test]
async fn many_minutes_behind() {
    off_by("-20m").await;
}

#[tokio::test]
async fn many_minutes_ahead() {
    off_by("+20m").await;
}
