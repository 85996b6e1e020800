//! `kill -9` of the portal in every state of a session: afterwards each is found again as it
//! was, nothing was started twice and nothing is lost.

use std::fs;

use lyceum::{helper::placement::Record, model::SessionId};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use super::{House, Person, eventually, processes};

/// How often a session's app was started.
fn starts(person: &Person, id: SessionId) -> usize {
    let file = format!("/home/ly-{}/starts-{id}", person.name);
    fs::read_to_string(file).map_or(0, |lines| lines.lines().count())
}

async fn placed(house: &House, id: SessionId) -> Record {
    eventually("it is launched", async || house.record(id)).await
}

#[tokio::test]
async fn a_killed_portal_finds_every_session_as_it_was() {
    let Some(mut house) = House::open(&[("LYCEUM_SCHEDULER__LOCAL__GRACE", "5s")]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "gpus": 1, "light": -1, "sessions": -1 })).await;

    let request = |app: &str, gpus: i64| json!({ "app": app, "resources": { "gpus": gpus } });
    let running = person.start(&house, request("web", 1)).await;
    let deaf = person.start(&house, request("deaf", 0)).await;
    person.state(&house, running, "running").await;
    person.state(&house, deaf, "running").await;
    let waiting = person.start(&house, request("web", 1)).await;
    let starting = person.start(&house, request("slow", 0)).await;
    let before = [placed(&house, running).await, placed(&house, deaf).await, placed(&house, starting).await];
    eventually("the slow app is started", async || (starts(&person, starting) == 1).then_some(())).await;
    person.stop(&house, deaf).await;
    assert_eq!(person.session(&house, deaf).await["state"], "stopping");

    house.restart().await;
    for (id, state) in [(running, "running"), (waiting, "queued"), (starting, "starting"), (deaf, "stopping")] {
        assert_eq!(person.session(&house, id).await["state"], state);
    }
    person.ended(&house, deaf, "stopped_by_owner").await;
    house.nothing_left(&before[1]).await;
    fs::write(format!("/home/ly-{}/go", person.name), "").unwrap();
    person.state(&house, starting, "running").await;
    assert_eq!(person.visit(&house, running, "/facts").await.0, 200);
    for (id, record) in [(running, &before[0]), (starting, &before[2])] {
        assert_eq!(house.record(id).unwrap().placement, record.placement, "the very same agent");
        assert_eq!(starts(&person, id), 1);
    }
    assert_eq!(person.session(&house, waiting).await["reasons"][0]["code"], "quota.gpus.user");

    // What waited starts when there is room, also when the portal is killed in between.
    person.stop(&house, running).await;
    house.restart().await;
    person.ended(&house, running, "stopped_by_owner").await;
    person.state(&house, waiting, "running").await;
    assert_eq!(starts(&person, waiting), 1);
    house.nothing_left(&before[0]).await;
}

/// Without its helper a portal can neither launch nor end anything, so it ends itself.
#[tokio::test]
async fn a_portal_whose_helper_is_killed_makes_room_for_a_new_one() {
    let Some(mut house) = House::open(&[]).await else { return };
    let person = house.person();
    let id = person.run(&house, "web").await;
    let record = house.record(id).unwrap();
    kill(Pid::from_raw(house.helper_pid()), Signal::SIGKILL).unwrap();
    assert!(house.ended().await.as_secs() < 10);
    let said = house.log();
    assert!(said.contains("helper exited; sessions cannot be started or ended"), "{said}");
    assert!(said.contains("stopping; running sessions are not affected"), "{said}");
    assert!(processes(&record).contains(&record.placement.pid), "sessions go on");
    house.start().await;
    assert_eq!(person.visit(&house, id, "/").await.0, 200);
    person.end(&house, id).await;
    house.nothing_left(&record).await;
}

/// Killed right after it said yes: between the row and the launch, or in the midst of it.
#[tokio::test]
async fn a_portal_killed_in_the_midst_of_launches_starts_each_once() {
    let Some(mut house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "light": -1, "pending": -1 })).await;
    let mut all = Vec::new();
    for round in 0..4 {
        let mut asked = Vec::new();
        for _ in 0..3 {
            asked.push(person.start(&house, json!({ "app": "web" })).await);
        }
        // Each round a step further: at the row, at the launch, at the first answer.
        match round {
            1 => drop(placed(&house, asked[0]).await),
            2 => drop(person.state(&house, asked[0], "running").await),
            _ => {}
        }
        if round == 3 {
            person.stop(&house, asked[0]).await;
        }
        house.restart().await;
        if round == 3 {
            person.ended(&house, asked[0], "stopped_by_owner").await;
            assert!(starts(&person, asked.remove(0)) <= 1);
        }
        all.extend(asked);
    }
    for id in &all {
        person.state(&house, *id, "running").await;
        assert_eq!(person.visit(&house, *id, "/").await.0, 200);
        assert_eq!(starts(&person, *id), 1, "session {id}");
    }
    let open = house.intervals().await.into_iter().filter(|interval| interval.to == i64::MAX).count();
    assert_eq!(open, all.len());
    let records: Vec<Record> = all.iter().map(|id| house.record(*id).unwrap()).collect();
    for id in all {
        person.stop(&house, id).await;
    }
    for record in &records {
        house.nothing_left(record).await;
    }
    let left = fs::read_dir(house.paths().run).unwrap().count();
    assert_eq!(left, 0, "run directories of starts that were cut short");
}
