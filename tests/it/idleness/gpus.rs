//! What GPUs do counts as use, by the processes of the session alone.

use std::fs;

use serde_json::json;

use super::{open_directory, runs, stopped};
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
