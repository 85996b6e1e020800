//! A system clock that somebody sets, forwards and backwards, while the portal runs and while
//! it is away: nobody is stopped for it, time that was given is time that passes, and nobody
//! used less than nothing. The clock is the real one behind a library that shifts it, for the
//! portal alone.

use std::{fs, path::Path, process::Command, time::Duration};

use lyceum::{
    db::Db,
    model::{Clock, Session, SessionId, SessionState},
};
use serde_json::json;
use tokio::time::Instant;

use super::all_agree;
use crate::{
    db::whole::{assert_consistent, intervals},
    life::House,
    wait::eventually,
};

const HOUR: i64 = 3600;

/// A portal whose clock [`set`] sets.
fn house() -> House {
    let mut house = House::new(&[("LYCEUM_SCHEDULER__LOCAL__GRACE", "2s")]);
    let (library, clock) = (house.file("clock.so"), house.file("clock"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/faults/clock.c");
    let compiler = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).output().unwrap();
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    fs::write(&clock, "0").unwrap();
    house.set("LD_PRELOAD", library.to_str().unwrap());
    house.set("LYCEUM_TEST_CLOCK", clock.to_str().unwrap());
    house
}

/// From now on the portal's clock is so many seconds ahead of ours.
fn set(house: &House, seconds: i64) {
    let (draft, file) = (house.file("clock.new"), house.file("clock"));
    fs::write(&draft, (seconds * 1000).to_string()).unwrap();
    fs::rename(draft, file).unwrap();
}

async fn row(db: &Db, id: SessionId) -> Session {
    db.find_session(id).await.unwrap().unwrap()
}

/// Waits until the portal has followed its clock to so many seconds ahead of ours.
async fn followed(db: &Db, id: SessionId, ahead: i64, limit: i64) {
    eventually("the portal follows its clock", async || {
        let session = row(db, id).await;
        let (end, ready) = (session.expires_at.unwrap(), session.ready_at.unwrap());
        assert_eq!(end.seconds_since(ready), limit, "it was given this long: {session:?}");
        let since = Clock::System.now().plus_seconds(ahead).seconds_since(ready);
        (0..120).contains(&since).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_clock_that_is_set_stops_nobody() {
    if !crate::needs::root() {
        return;
    }
    let mut house = house();
    house.start().await;
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "light": -1, "gpus": 2 })).await;
    let db = house.db().await;
    let terminal = |seconds: i64| json!({ "app": "terminal", "duration_seconds": seconds });
    let stays = person.start(&house, terminal(HOUR)).await;
    let short = person.start(&house, terminal(60)).await;
    let deaf = person.start(&house, json!({ "app": "deaf" })).await;
    for id in [stays, short, deaf] {
        person.state(&house, id, "running").await;
    }
    let began = Instant::now();

    // Two hours forwards: longer than any of them has, and longer than idleness takes.
    set(&house, 2 * HOUR);
    followed(&db, stays, 2 * HOUR, HOUR).await;
    let fresh = person.start(&house, json!({ "app": "terminal", "resources": { "gpus": 1 } })).await;
    person.state(&house, fresh, "running").await;
    for id in [stays, short, deaf] {
        assert_eq!(person.session(&house, id).await["state"], "running");
    }

    // Three hours back, with one that ends within the hour that came twice, and one that has
    // to be killed.
    set(&house, -HOUR);
    followed(&db, stays, -HOUR, HOUR).await;
    person.end(&house, fresh).await;
    let stopped = Instant::now();
    person.end(&house, deaf).await;
    assert!(stopped.elapsed() < Duration::from_secs(25), "{:?}", stopped.elapsed());
    let again = person.start(&house, json!({ "app": "terminal", "resources": { "gpus": 1 } })).await;
    person.state(&house, again, "running").await;

    // While no portal runs: five hours forwards, later a day back.
    house.kill();
    set(&house, 5 * HOUR);
    house.start().await;
    followed(&db, stays, 5 * HOUR, HOUR).await;
    assert_eq!(person.session(&house, again).await["state"], "running");
    person.end(&house, again).await;
    house.terminate().await;
    set(&house, -20 * HOUR);
    house.start().await;
    followed(&db, stays, -20 * HOUR, HOUR).await;

    // Its minute was a minute, whatever the clock said.
    eventually("it reaches its time limit", async || {
        (row(&db, short).await.state == SessionState::Ended).then_some(())
    })
    .await;
    person.ended(&house, short, "time_limit").await;
    let lasted = began.elapsed();
    assert!((Duration::from_secs(55)..Duration::from_secs(100)).contains(&lasted), "{lasted:?}");
    assert_eq!(person.session(&house, stays).await["state"], "running");
    person.end(&house, stays).await;
    all_agree(&house, &db).await;
    assert_consistent(&db).await;
    for (.., start, end) in intervals(&db).await {
        let used = end.unwrap() - start;
        assert!((0..120_000).contains(&used), "nobody used {used} ms");
    }
    db.close().await;
}
