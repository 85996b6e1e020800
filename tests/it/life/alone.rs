//! A portal that an ordinary user started: it serves one person, says so, and everything
//! runs as that one account.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use super::House;

#[tokio::test]
async fn an_ordinary_users_portal_serves_one_person() {
    if !crate::needs::root() {
        return;
    }
    let mut house = House::of_somebody(&[("LYCEUM_SESSIONS__START_TIMEOUT", "6s")]);
    house.start().await;
    let (person, other) = (house.person(), house.person());
    let id = person.run(&house, "web").await;
    let record = house.record(id).unwrap();
    let (_, facts) = person.visit(&house, id, "/facts").await;
    assert_eq!(facts["uid"], json!(record.placement.uid));
    assert_eq!(
        facts["uid"],
        json!(std::fs::metadata(house.data()).map(|data| std::os::unix::fs::MetadataExt::uid(&data)).unwrap())
    );

    let (status, refused) = other.ask(&house, "POST", "/sessions", &json!({ "app": "web" })).await;
    let detail = refused["detail"].as_str().unwrap_or_default();
    assert!(
        status == 409 && detail.contains("serves only one user") && detail.contains("accounts.shared_uid"),
        "{refused}"
    );

    let (status, body) =
        person.ask(&house, "POST", "/sessions", &json!({ "app": "web", "working_directory": "/root" })).await;
    assert_eq!((status, &body["errors"][0]["code"]), (422, &json!("not_allowed")), "{body}");

    // Where no cgroup binds, the agent watches its tree.
    let hungry = json!({ "app": "web", "resources": { "memory_bytes": 128 << 20 } });
    let hungry = person.start(&house, hungry).await;
    person.state(&house, hungry, "running").await;
    let page =
        person.request(&house, "GET", &format!("/sessions/{hungry}")).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("limits of this session are monitored, not enforced"), "{page}");
    person.visit(&house, hungry, "/eat").await;
    person.ended(&house, hungry, "out_of_memory").await;

    house.restart().await;
    assert_eq!(house.record(id).unwrap().placement, record.placement, "the very same agent");
    assert_eq!(person.visit(&house, id, "/stubborn").await.0, 200);
    person.end(&house, id).await;
    house.nothing_left(&record).await;

    let second = person.run(&house, "web").await;
    let record = house.record(second).unwrap();
    kill(Pid::from_raw(record.placement.pid), Signal::SIGKILL).unwrap();
    person.ended(&house, second, "signal").await;
    house.nothing_left(&record).await;
}
