//! One damaged record costs one session: a placement file that a bad disk cut, a row that cannot be read, a run
//! directory that went with its user's login. Everybody else's sessions start and end as ever, the portal stays
//! ready, and its health report names what is damaged.

use std::{fs, path::Path, process::Command};

use lyceum::model::SessionId;
use serde_json::json;

use super::{House, Person, eventually};

/// What `/readyz` answers, and what the health report says of the loop of sessions.
async fn health(house: &House, admin: &Person) -> (u16, String) {
    let ready = admin.request(house, "GET", "/readyz").send().await.unwrap().status().as_u16();
    let report = admin.get(house, "/health").await;
    let of_sessions = report["loops"].as_array().unwrap().iter().find(|one| one["name"] == "sessions").unwrap();
    (ready, of_sessions["what"].as_str().unwrap().to_owned())
}

/// Somebody else starts a session, uses it and stops it; meanwhile the portal is ready and names the damage.
async fn others_go_on(house: &House, named: &str) {
    let (admin, other) = (house.admin(), house.person());
    eventually("the health report names it", async || health(house, &admin).await.1.contains(named).then_some(()))
        .await;
    let id = other.run(house, "web").await;
    other.end(house, id).await;
    let (ready, said) = health(house, &admin).await;
    assert!(ready == 200 && said.contains(named), "{ready} {said}");
    let page = admin.request(house, "GET", "/admin/health").send().await.unwrap().text().await.unwrap();
    assert!(page.contains(named), "the page names it too: {page}");
    let log = house.log();
    let told = log.lines().filter(|line| line.contains("loop item failed") && line.contains(named)).count();
    assert_eq!(told, 1, "it is logged once, not every round: {log}");
}

#[tokio::test]
async fn a_damaged_placement_file_costs_one_session() {
    let Some(mut house) = House::open(&[]).await else { return };
    for cut in ["half", "empty"] {
        let person = house.person();
        let id = person.run(&house, "web").await;
        let record = house.record(id).unwrap();
        let file = house.paths().placements.join(format!("{}.json", id.short()));
        let text = fs::read(&file).unwrap();
        fs::write(&file, if cut == "half" { &text[..text.len() / 2] } else { &[] }).unwrap();
        others_go_on(&house, &file.display().to_string()).await;
        if cut == "empty" {
            house.restart().await;
        }
        assert_eq!(person.session(&house, id).await["state"], "running", "it is unknown, and so it is left alone");
        person.end(&house, id).await;
        house.nothing_left(&record).await;
        let admin = house.admin();
        eventually("nothing is damaged any more", async || {
            (!health(&house, &admin).await.1.contains("placements")).then_some(())
        })
        .await;
    }
}

/// A value of the row of a live session, written by what had no right to.
fn damage(house: &House, id: SessionId, column: &str) {
    let code = "import sqlite3, sys\n\
                db = sqlite3.connect(sys.argv[1], timeout=60)\n\
                db.execute(f\"UPDATE sessions SET {sys.argv[2]} = '{{' WHERE id = ?\", (sys.argv[3],))\n\
                db.commit()";
    let file = house.paths().private.join("lyceum.db");
    let done = Command::new("/usr/bin/python3").args(["-c", code]).arg(file).args([column, &id.to_string()]).status();
    assert!(done.unwrap().success());
}

#[tokio::test]
async fn a_damaged_row_costs_one_session() {
    let Some(house) = House::open(&[]).await else { return };
    for column in ["spec", "gpu_list", "placement", "reasons"] {
        let person = house.person();
        let id = person.run(&house, "web").await;
        let record = house.record(id).unwrap();
        damage(&house, id, column);
        let other = house.person();
        let theirs = other.run(&house, "web").await;
        other.end(&house, theirs).await;
        let (ready, said) = health(&house, &house.admin()).await;
        assert_eq!(ready, 200, "{column}: {said}");
        if ["spec", "gpu_list"].contains(&column) {
            assert!(said.contains(&id.to_string()), "{column}: {said}");
        }
        assert_eq!(person.get(&house, "/sessions").await["items"][0]["id"], json!(id.to_string()), "{column}");
        person.end(&house, id).await;
        house.nothing_left(&record).await;
    }
}

/// As a login manager does when somebody signs out of the machine.
#[tokio::test]
async fn a_run_directory_that_is_gone_ends_its_sessions_with_that_reason() {
    if !crate::needs::root() {
        return;
    }
    let mut house = House::of_somebody(&[]);
    house.start().await;
    let person = house.person();
    let (idle, busy) = (person.run(&house, "web").await, person.run(&house, "terminal").await);
    let records = [house.record(idle).unwrap(), house.record(busy).unwrap()];
    let run = Path::new(&records[0].placement.run_directory).parent().unwrap().to_owned();
    fs::remove_dir_all(run.parent().unwrap()).unwrap();
    for id in [idle, busy] {
        let ended = person.ended(&house, id, "lost").await;
        let why = ended["detail"].as_str().unwrap();
        assert!(why.contains("was removed while it ran") && why.contains(&id.short()), "{ended}");
    }
    for record in &records {
        house.nothing_left(record).await;
    }
    // What starts now has its directory made again, and needs no restart.
    let id = person.run(&house, "web").await;
    assert_eq!(person.visit(&house, id, "/facts").await.0, 200);
    person.end(&house, id).await;
    assert_eq!(health(&house, &house.admin()).await.0, 200);
}
