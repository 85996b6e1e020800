//! Those that waited for their turn: released when they are not opened, kept by any visit of
//! their owner's, also one by a program, and by a restart of the portal in between.

use lyceum::model::{Clock, Timestamp};
use serde_json::{Value, json};

use super::{runs, stopped_because};
use crate::{life::House, wait::eventually};

#[tokio::test]
async fn what_waited_is_released_unless_it_is_opened() {
    let Some(mut house) = House::open(&[("LYCEUM_SESSIONS__OPEN_WITHIN", "20s")]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "light": 3, "idle_timeout_seconds": -1 })).await;
    let mut first = Vec::new();
    for _ in 0..3 {
        first.push(person.run(&house, "terminal").await);
    }
    let mut waits = Vec::new();
    for _ in 0..2 {
        waits.push(person.start(&house, json!({ "app": "terminal" })).await);
    }
    // Longer than a moment, by the clock that the portal counts with.
    let created: Timestamp =
        serde_json::from_value(person.session(&house, waits[1]).await["created_at"].clone()).unwrap();
    eventually("they have waited for longer than a moment", async || {
        (16 < Clock::System.now().seconds_since(created)).then_some(())
    })
    .await;
    for id in &first[..2] {
        person.end(&house, *id).await;
    }
    let (opened, ignored) = (waits[0], waits[1]);
    for id in [opened, ignored] {
        let session = person.state(&house, id, "running").await;
        assert_eq!(session["idle_reason"]["code"], "idle.unopened", "{session}");
        assert!(session["idle_stops_at"].is_string(), "{session}");
    }
    // A program of its owner's comes, with a token.
    person.visit(&house, opened, "/").await;
    let noted = async |house: &House| {
        eventually("the visit is noted", async || {
            let session = person.session(house, opened).await;
            session["opened_at"].is_string().then_some(session)
        })
        .await
    };
    assert_eq!(noted(&house).await["idle_stops_at"], Value::Null);
    house.restart().await;
    assert_eq!(noted(&house).await["idle_stops_at"], Value::Null, "it is remembered");
    stopped_because(&house, &person, ignored, "It left the queue at ", async || {
        runs(&house, &person, opened, "its owner came").await;
        runs(&house, &person, first[2], "it did not wait").await;
    })
    .await;
    let ended = person.session(&house, ignored).await;
    assert!(ended["detail"].as_str().unwrap().ends_with(" UTC and was not opened within 20 s"), "{ended}");
    runs(&house, &person, opened, "its owner came").await;
}
