//! Maintenance with the real program: ordered on the command line while the portal runs, told,
//! kept over a restart, and what runs ended at its time, with the reason.

use serde_json::json;

use super::{House, eventually};

#[tokio::test]
async fn maintenance_of_the_command_line_drains_a_running_portal() {
    let Some(mut house) = House::open(&[]).await else { return };
    let person = house.person();
    let running = person.run(&house, "web").await;
    let order = |house: &House, arguments: &[&str], fine: bool| {
        let (success, said) = house.run(&[&["admin", "maintenance"], arguments].concat());
        assert_eq!(success, fine, "{arguments:?}: {said}");
        said
    };
    assert_eq!(order(&house, &["status"], true), "off\n");
    let said = order(&house, &["on", "--until", "tomorrow"], false);
    assert!(said.contains("--until: `tomorrow` is not a time"), "{said}");
    let said = order(&house, &["on", "--drain-at", "2h", "--until", "1h"], false);
    assert!(said.contains("--drain-at: This is after the end of maintenance"), "{said}");
    assert_eq!(order(&house, &["status"], true), "off\n", "nothing half-written");

    let said = order(&house, &["on", "--until", "3h", "--message", "New disks."], true);
    assert!(said.starts_with("active: no_new_sessions, from "), "{said}");
    let refused = async |house: &House| {
        let body = json!({ "app": "web", "resources": { "cpus": 1 } });
        let (status, problem) = person.ask(house, "POST", "/sessions", &body).await;
        assert_eq!(status, 503, "{problem}");
        assert!(problem["detail"].as_str().unwrap().ends_with("New disks."), "{problem}");
        let sweep = json!({ "job": { "command": ["true"] }, "array": "0-3" });
        let (status, problem) = person.ask(house, "POST", "/sweeps", &sweep).await;
        assert_eq!(status, 503, "{problem}");
        assert_eq!(person.get(house, "/sweeps").await["items"], json!([]), "nothing was written");
    };
    refused(&house).await;
    house.restart().await;
    refused(&house).await;
    assert_eq!(person.session(&house, running).await["state"], "running", "what runs goes on");

    order(&house, &["on", "--drain-at", "now"], true);
    let ended = person.ended(&house, running, "stopped_by_admin").await;
    assert_eq!(ended["detail"], "Ended for maintenance. New disks.");
    assert_eq!(order(&house, &["off"], true), "off\n");
    let body = json!({ "app": "web", "resources": { "cpus": 1 } });
    eventually("sessions start again", async || {
        let (status, _) = person.ask(&house, "POST", "/sessions", &body).await;
        (status == 201).then_some(())
    })
    .await;
    let rows = house.db().await.list_audit(50).await.unwrap();
    let told: Vec<_> = rows.iter().rev().map(|row| (row.actor.as_str(), row.action.as_str())).collect();
    let by_command: Vec<_> =
        told.iter().filter(|(actor, _)| actor.starts_with("unix:")).map(|(_, action)| *action).collect();
    assert!(by_command.ends_with(&["maintenance.on", "maintenance.change", "maintenance.off"]), "{told:?}");
    assert!(told.contains(&("maintenance", "session.admin_stop")), "{told:?}");
}
