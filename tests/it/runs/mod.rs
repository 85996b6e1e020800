//! Runs through the whole portal: directories of logs that a real agent reads as their user, what
//! the API says of their curves, and what becomes of it when somebody dies. What is written comes
//! from `lyceum demo-train` and from writers of others.

mod answers;
mod reading;
mod results;

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use lyceum::{
    curves::{
        Item, Store,
        log::{Decoder, Encoder, Entry},
    },
    db::audit,
    model::{Run, RunId, UserId},
};
use serde_json::{Value, json};

use crate::{
    files::World,
    life::{Person, eventually},
    portal::TestPortal,
};

/// A run of somebody's in the database of a portal without a helper, which nobody reads.
pub async fn external(portal: &TestPortal, owner: UserId, name: &str) -> RunId {
    let run = Run { name: name.to_owned(), ..crate::db::runs::run(owner, "thing") };
    let at = portal.clock.now();
    let noted = audit::Entry { at, actor: "test", action: "test", subject: "test", detail: "" };
    portal.db().add_run(&run, None, &noted).await.unwrap();
    run.id
}

/// Puts points into its file: directory, tag, step and value.
pub fn store(portal: &TestPortal, id: RunId, points: &[(&str, &str, i64, f64)]) {
    let path = portal.directory.path().join("curves").join(format!("{id}.points"));
    let mut encoder = Encoder::default();
    for (run, tag, step, value) in points {
        let item = Item::Scalar {
            tag: tag.as_bytes(),
            step: *step,
            wall_time: f64::from(i32::try_from(*step).unwrap()),
            value: *value,
        };
        encoder.entry(&Entry::Item { run, item });
    }
    let mut store = Store::open(&path, u64::MAX).unwrap();
    store.add(&mut Decoder::default(), &encoder.take(), &mut |_| {}).unwrap();
}

/// The demonstration, begun.
pub fn train(directory: &Path, words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
    command.arg("demo-train").arg("--log-directory").arg(directory).args(words.split_whitespace()).env_clear();
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The same to its end.
pub fn trained(directory: &Path, words: &str) {
    assert!(train(directory, words).wait().unwrap().success(), "{words}");
}

/// Registers a directory; it must be accepted.
pub async fn register(world: &World, person: &Person, request: Value) -> String {
    let (status, body) = person.ask(&world.house, "POST", "/runs", &request).await;
    assert_eq!(status, 201, "{request}: {body}");
    body["id"].as_str().unwrap().to_owned()
}

/// Every point of a curve, as the table has it: step and value.
pub async fn points(world: &World, person: &Person, run: &str, tag: &str) -> Vec<(i64, f64)> {
    let path = format!("/api/v1/runs/{run}/metrics/{tag}?format=csv");
    let answer = person.request(&world.house, "GET", &path).send().await.unwrap();
    if answer.status() == 404 {
        return Vec::new();
    }
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("step,wall_time,value,attempt"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            (cells[0].parse().unwrap(), cells[2].parse().unwrap_or(f64::NAN))
        })
        .collect()
}

/// Waits until a run is as it should be.
pub async fn until(world: &World, person: &Person, run: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let found = person.get(&world.house, &format!("/runs/{run}")).await;
        is(&found).then_some(found)
    })
    .await
}

/// Registers the directory of a home and waits until it has so many points.
pub async fn read(world: &World, directory: &str, points: u64) -> String {
    let id = register(world, &world.person, json!({ "directory": directory })).await;
    until(world, &world.person, &id, "the run is read", |run| run["points"].as_u64() >= Some(points)).await;
    id
}
