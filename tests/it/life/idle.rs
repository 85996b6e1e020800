//! Sessions that nobody uses: stopped after the time that the quota says, unless somebody
//! uses them, they compute, or their owner said "keep".

use std::time::{Duration, Instant};

use lyceum::model::{Clock, Timestamp};
use serde_json::json;

use super::{House, eventually};

#[tokio::test]
async fn only_what_nobody_uses_is_stopped() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "idle_timeout_seconds": 8, "light": -1 })).await;
    let unused = person.run(&house, "web").await;
    let used = person.run(&house, "web").await;
    let kept = person.run(&house, "web").await;
    let busy = json!({ "app": "worker", "resources": { "cpus": 4 } });
    let busy = person.start(&house, busy).await;
    person.state(&house, busy, "running").await;
    let lazy = person.run(&house, "worker").await;
    person.visit(&house, busy, "/spin").await;
    let (status, _) = person.ask(&house, "POST", &format!("/sessions/{kept}/keep"), &json!({ "seconds": 600 })).await;
    assert_eq!(status, 200);

    let begin = Instant::now();
    eventually("what nobody uses is stopped", async || {
        assert_eq!(person.visit(&house, used, "/").await.0, 200);
        let both = [person.session(&house, unused).await, person.session(&house, lazy).await];
        both.iter().all(|session| session["state"] == "ended").then_some(())
    })
    .await;
    for id in [unused, lazy] {
        let ended = person.ended(&house, id, "idle").await;
        assert_eq!(ended["detail"], "Not used for 8 s (override)");
    }
    // The others were looked at as often and are as old.
    assert!(Duration::from_secs(8) < begin.elapsed());
    for (id, why) in [(used, "it is used"), (kept, "its owner keeps it"), (busy, "it computes")] {
        assert_eq!(person.session(&house, id).await["state"], "running", "{why}");
    }
    let until: Timestamp = serde_json::from_value(person.session(&house, kept).await["idle_stops_at"].clone()).unwrap();
    assert!(until.seconds_since(Clock::System.now()) > 500, "the card shows when");
    // Nobody comes any more.
    person.ended(&house, used, "idle").await;
    assert_eq!(person.session(&house, busy).await["state"], "running", "it still computes");
}
