//! What GPUs do counts as use, by the processes of the session alone.

use std::fs;

use serde_json::json;

use super::{open_directory, runs, stopped, stopped_because};
use crate::{
    gpus::driver,
    life::{House, Person},
    needs,
};

#[tokio::test]
async fn a_busy_gpu_is_use() {
    if !needs::root() {
        return;
    }
    let folder = open_directory();
    let uses = folder.path().join("uses");
    fs::write(&uses, "").unwrap();
    let library = driver(folder.path(), "idleness", &format!("-DGPUS=4 -DUSE=\"{}\"", uses.display()));
    let mut house = House::new(&[
        ("LYCEUM_SCHEDULER__LOCAL__NVML", library.to_str().unwrap()),
        ("LYCEUM_SCHEDULER__LOCAL__GPUS", "auto"),
    ]);
    house.start().await;
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "idle_timeout_seconds": 8, "gpus": 4, "sessions": -1, "light": -1 })).await;

    let start = async |app: &str| {
        let id = person.start(&house, json!({ "app": app, "resources": { "gpus": 1 } })).await;
        let session = person.state(&house, id, "running").await;
        let record = house.record(id).unwrap();
        (id, session["gpus"][0]["index"].as_i64().unwrap(), record.placement.pid)
    };
    let (trains, its_gpu, its_agent) = start("trainer").await;
    let (robbed, robbed_gpu, _) = start("trainer").await;
    let (asked, asked_gpu, asked_agent) = start("web").await;
    let (dozes, dozing_gpu, dozing_agent) = start("web").await;
    let tell = |percent: u32| {
        let stranger = std::process::id();
        let text = format!(
            "{its_gpu} {its_agent} {percent}\n{robbed_gpu} {stranger} 99\n{asked_gpu} {asked_agent} 40\n\
             {dozing_gpu} {dozing_agent} 2\n"
        );
        fs::write(&uses, text).unwrap();
    };
    tell(60);
    let busy = async |person: &Person| {
        runs(&house, person, trains, "its GPU computes").await;
        runs(&house, person, asked, "a GPU that computes is use for every app").await;
    };
    stopped(&house, &person, robbed, async || busy(&person).await).await;
    stopped(&house, &person, dozes, async || busy(&person).await).await;
    assert!(person.session(&house, trains).await["idle_stops_at"].is_string(), "the card shows when");

    // Requests are no use for `gpu`; and a driver that does not answer proves nothing.
    tell(0);
    stopped(&house, &person, trains, async || {
        person.visit(&house, trains, "/").await;
        runs(&house, &person, asked, "it computes").await;
    })
    .await;
    fs::remove_file(&uses).unwrap();
    let (silent, ..) = start("trainer").await;
    let unused = person.run(&house, "worker").await;
    stopped(&house, &person, unused, async || runs(&house, &person, silent, "nobody can tell").await).await;
    runs(&house, &person, silent, "nobody can tell").await;
}

/// A rule of its own: whoever holds GPUs that do nothing is stopped, also while somebody uses
/// the rest; nobody else is, and what cannot be measured is never idle.
#[tokio::test]
async fn gpus_that_do_nothing_are_a_reason_to_stop() {
    if !needs::root() {
        return;
    }
    let folder = open_directory();
    let uses = folder.path().join("uses");
    fs::write(&uses, "").unwrap();
    let library = driver(folder.path(), "gpu-idleness", &format!("-DGPUS=4 -DUSE=\"{}\"", uses.display()));
    let mut house = House::new(&[
        ("LYCEUM_SCHEDULER__LOCAL__NVML", library.to_str().unwrap()),
        ("LYCEUM_SCHEDULER__LOCAL__GPUS", "auto"),
    ]);
    house.start().await;
    let (person, admin) = (house.person(), house.admin());
    let limits = json!({ "gpu_idle_timeout_seconds": 8, "idle_timeout_seconds": -1, "gpus": 4, "sessions": -1 });
    admin.allow(&house, &person, limits).await;
    let start = async |gpus: i64| {
        let id = person.start(&house, json!({ "app": "web", "resources": { "gpus": gpus } })).await;
        let session = person.state(&house, id, "running").await;
        (id, session["gpus"][0]["index"].as_i64(), house.record(id).unwrap().placement.pid)
    };
    let (busy, its_gpu, its_agent) = start(1).await;
    let (lazy, lazy_gpu, lazy_agent) = start(1).await;
    let (plain, ..) = start(0).await;
    fs::write(&uses, format!("{} {its_agent} 60\n{} {lazy_agent} 3\n", its_gpu.unwrap(), lazy_gpu.unwrap())).unwrap();
    let mut reasons = Vec::new();
    stopped_because(&house, &person, lazy, "Its GPU utilisation stayed below 5 % for 8 s (override)", async || {
        // Requests are use, but not of its GPUs.
        person.visit(&house, lazy, "/").await;
        let session = person.session(&house, lazy).await;
        if session["idle_stops_at"].is_string() {
            reasons.push((session["idle_reason"]["code"].clone(), session["idle_reason"]["scope"].clone()));
        }
        runs(&house, &person, busy, "its GPU computes").await;
    })
    .await;
    assert!(!reasons.is_empty() && reasons.iter().all(|told| *told == (json!("idle.gpus"), json!("override"))));
    let warned: Vec<_> = person.history(&house, lazy, 0).await.into_iter().map(|(_, line)| line).collect();
    let warned: Vec<_> = warned.iter().filter(|line| line.contains("4 s left: its GPUs are idle")).collect();
    assert_eq!(warned.len(), 1, "warned before, and once");
    assert!(house.log().contains("idle.gpus"), "and the log has it");

    // A driver that does not answer proves nothing.
    fs::remove_file(&uses).unwrap();
    let (silent, ..) = start(1).await;
    fs::write(&uses, format!("{} {its_agent} 1\n", its_gpu.unwrap())).unwrap();
    fs::remove_file(&uses).unwrap();
    let unused = person.run(&house, "worker").await;
    admin.allow(&house, &person, json!({ "idle_timeout_seconds": 8 })).await;
    stopped(&house, &person, unused, async || {
        for id in [busy, silent, plain] {
            person.visit(&house, id, "/").await;
            runs(&house, &person, id, "nobody can tell, or it has none").await;
        }
    })
    .await;
}
