//! An older backup put back while sessions run: what was started before it goes on as if
//! nothing had been; what was started since has no row any more. It is left alone, the
//! administrator is told, and its end is cleaned up after as any other.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use serde_json::Value;

use super::{House, eventually, processes};

#[tokio::test]
async fn what_an_older_backup_does_not_know_goes_on() {
    let Some(mut house) = House::open(&[]).await else { return };
    let person = house.person();
    let known = person.run(&house, "web").await;
    let copy = house.data().join("private/earlier.db");
    let copy = copy.to_str().unwrap();
    let (done, said) = house.run(&["admin", "backup", copy]);
    assert!(done, "{said}");
    let id = person.run(&house, "web").await;
    let record = house.record(id).unwrap();
    house.terminate().await;
    let (done, said) = house.run(&["admin", "restore", copy]);
    assert!(done, "{said}");

    house.start().await;
    let ready = format!("{}/readyz", house.url);
    let told = eventually("the portal is ready", async || {
        let answer = reqwest::get(&ready).await.ok()?;
        if answer.status() == 200 { answer.text().await.ok() } else { None }
    });
    assert!(told.await.contains("orphans: 1 running but not in the database"));
    let pid = record.placement.pid;
    assert!(house.log().contains(&format!("\"pid\":{pid}")), "{}", house.log());
    assert!(processes(&record).contains(&pid), "it goes on");

    // What the copy knows is as it was, and its owner goes on with it.
    assert_eq!(person.session(&house, known).await["state"], "running");
    assert_eq!(person.visit(&house, known, "/").await.0, 200);
    let (status, _) = person.ask(&house, "GET", &format!("/sessions/{id}"), &Value::Null).await;
    assert_eq!(status, 404);

    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    house.nothing_left(&record).await;
    let record = house.record(known).unwrap();
    person.end(&house, known).await;
    house.nothing_left(&record).await;
}
