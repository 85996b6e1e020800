//! How sessions end that nobody stopped: each with the honest reason and a sentence that
//! helps, and none takes another one with it.

use std::time::Instant;

use lyceum::{
    db::{Config, Db, extend::ExtensionOutcome},
    model::{Clock, SessionId},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use super::{House, Person, person::id as id_of, processes};
use crate::db::extended;

const MIB: i64 = 1 << 20;

#[tokio::test]
async fn every_end_has_its_reason() {
    let Some(house) = House::open(&[("LYCEUM_SESSIONS__START_TIMEOUT", "6s")]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "light": -1 })).await;
    let silent = person.start(&house, json!({ "app": "silent" })).await;
    let bystander = person.run(&house, "web").await;
    tokio::join!(
        ends_by_itself(&house, &person),
        cannot_start(&house, &person),
        out_of_memory(&house, &person),
        supervisor_is_killed(&house, &person),
    );
    let failed = person.ended(&house, silent, "launch_failed").await;
    let detail = failed["detail"].as_str().unwrap();
    assert!(detail.contains("did not respond within 6 seconds") && detail.contains("a licence that never comes"));
    assert_eq!(person.session(&house, bystander).await["state"], "running", "the others' ends were not its own");
    let still_open = house.intervals().await.into_iter().filter(|interval| interval.to == i64::MAX).count();
    assert_eq!(still_open, 1, "what has ended holds nothing any more");
}

async fn ends_by_itself(house: &House, person: &Person) {
    for (visit, reason, code, words) in [
        ("/exit-0", "exited", json!(0), "ended (exit code 0)"),
        ("/exit-3", "exited", json!(3), "exit code 3"),
        ("/signal-11", "signal", json!(null), "SIGSEGV"),
    ] {
        let id = person.run(house, "web").await;
        let record = house.record(id).unwrap();
        person.visit(house, id, visit).await;
        let ended = person.ended(house, id, reason).await;
        assert_eq!(ended["exit_code"], code, "{visit}: {ended}");
        assert!(ended["detail"].as_str().unwrap().contains(words), "{visit}: {ended}");
        house.nothing_left(&record).await;
    }
}

async fn cannot_start(house: &House, person: &Person) {
    let crash = person.start(house, json!({ "app": "crash" })).await;
    let missing = person.start(house, json!({ "app": "missing" })).await;
    let ended = person.ended(house, crash, "launch_failed").await;
    assert_eq!(ended["exit_code"], 7, "{ended}");
    assert!(ended["detail"].as_str().unwrap().contains("no such model: resnet-51"), "{ended}");
    let ended = person.ended(house, missing, "launch_failed").await;
    assert!(ended["detail"].as_str().unwrap().contains("/nowhere/to/be-found"), "{ended}");
    let states: Vec<_> = person.history(house, missing, 0).await.into_iter().map(|(_, line)| line).collect();
    assert!(!states.iter().any(|line| line.starts_with("running")), "{states:?}");
}

async fn out_of_memory(house: &House, person: &Person) {
    let request = json!({ "app": "web", "name": "hungry", "resources": { "memory_bytes": 128 * MIB } });
    let id = person.start(house, request).await;
    person.state(house, id, "running").await;
    let record = house.record(id).unwrap();
    person.visit(house, id, "/eat").await;
    let ended = person.ended(house, id, "out_of_memory").await;
    let sentence = "out of memory: it requested 128 MiB and used all of it: start again with 256 MiB";
    assert_eq!(ended["detail"], sentence, "{ended}");
    house.nothing_left(&record).await;
    let card = person.request(house, "GET", &format!("/sessions/{id}/card")).send().await.unwrap();
    let card = card.text().await.unwrap();
    assert!(card.contains("Start again with 256 MiB") && card.contains("value=\"256M\""), "{card}");
    for _ in ["click", "double click"] {
        let again = person.request(house, "POST", &format!("/sessions/{id}/start-again")).body("memory=256M");
        let again = again.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
        assert_eq!(again.status(), 303);
    }
    let sessions = person.get(house, "/sessions").await;
    let sessions = sessions["items"].as_array().unwrap();
    let [next] = sessions.iter().filter(|one| one["resources"]["memory_bytes"] == 256 * MIB).collect::<Vec<_>>()[..]
    else {
        panic!("one that starts again: {sessions:?}")
    };
    assert_eq!(next["name"], "hungry");
    let next = id_of(next);
    person.state(house, next, "running").await;
    person.end(house, next).await;
}

async fn supervisor_is_killed(house: &House, person: &Person) {
    let id = person.run(house, "web").await;
    let record = house.record(id).unwrap();
    let begin = Instant::now();
    kill(Pid::from_raw(record.placement.pid), Signal::SIGKILL).unwrap();
    let ended = person.ended(house, id, "signal").await;
    // Nobody asks every few seconds: the process's end itself is the news.
    assert!(begin.elapsed().as_secs() < 4, "{:?}", begin.elapsed());
    assert!(ended["detail"].as_str().unwrap().contains("killed before it could report why"), "{ended}");
    house.nothing_left(&record).await;
}

#[tokio::test]
async fn the_time_limit_ends_a_session_while_the_portal_was_away() {
    let Some(mut house) = House::open(&[]).await else { return };
    let person = house.person();
    let over = person.start(&house, json!({ "app": "web", "duration_seconds": 60 })).await;
    let goes_on = person.run(&house, "web").await;
    person.state(&house, over, "running").await;
    let (ends, stays) = (house.record(over).unwrap(), house.record(goes_on).unwrap());

    // Somebody follows a history and a log; the end does not wait for them.
    let events = person.request(&house, "GET", &format!("/api/v1/sessions/{over}/events")).send().await.unwrap();
    let log = person.request(&house, "GET", &format!("/api/v1/sessions/{goes_on}/log"));
    let log = log.header("accept", "text/event-stream").send().await.unwrap();
    let took = house.terminate().await;
    drop((events, log));
    assert!(took.as_secs() < 10, "an orderly end took {took:?}");
    for record in [&ends, &stays] {
        assert!(processes(record).contains(&record.placement.pid), "sessions go on without the portal");
    }
    let_time_pass(&house, over).await;
    house.start().await;

    let ended = person.ended(&house, over, "time_limit").await;
    assert!(ended["detail"].as_str().unwrap().starts_with("Reached its time limit of "), "{ended}");
    house.nothing_left(&ends).await;
    assert_eq!(person.session(&house, goes_on).await["state"], "running");
    assert_eq!(house.record(goes_on).unwrap().placement, stays.placement, "the very same process");
    assert_eq!(person.visit(&house, goes_on, "/").await.0, 200, "and it can be used again");
}

/// Moves a session's end into the past, in the database of a portal that does not run.
async fn let_time_pass(house: &House, id: SessionId) {
    let db = Db::open(&Config::default(), &house.paths().private).await.unwrap();
    let session = db.find_session(id).await.unwrap().unwrap();
    let now = Clock::System.now();
    let from = session.expires_at.unwrap();
    let seconds = now.seconds_since(from) - 1;
    assert_eq!(extended(&db, id, seconds, now).await, ExtensionOutcome::By(seconds));
    db.close().await;
}
