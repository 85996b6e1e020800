//! Processes that are killed one by one while the portal looks on, and a machine that was
//! rebooted: what died is told, what belonged to it is gone, and nobody else is touched.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

use lyceum::{
    helper::{
        identity::Identity,
        process::{self, Stat},
    },
    model::{Clock, SessionId},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use super::all_agree;
use crate::{
    db::{execute, number, whole::assert_consistent},
    life::{House, Person, processes},
    wait::{PATIENCE, eventually},
};

/// A dying process leaves its control groups a moment before it is gone.
pub async fn are_gone(pids: impl IntoIterator<Item = i32>) {
    for pid in pids {
        eventually(&format!("process {pid} goes with its session"), async || {
            process::stat(pid).unwrap().is_none_or(Stat::is_zombie).then_some(())
        })
        .await;
    }
}

/// A session whose app has a child that ignores SIGTERM and one that hid: all three.
async fn stubborn(house: &House, person: &Person) -> (SessionId, [i32; 3]) {
    let id = person.run(house, "web").await;
    let home = format!("/home/ly-{}", person.name);
    let app = person.visit(house, id, "/facts").await.1["pid"].as_i64().unwrap();
    person.visit(house, id, "/stubborn").await;
    let [child, orphan] = eventually("its children run", async || {
        let read = |name: &str| fs::read_to_string(Path::new(&home).join(name)).ok()?.parse::<i32>().ok();
        Some([read("pid-child")?, read("pid-orphan")?])
    })
    .await;
    (id, [i32::try_from(app).unwrap(), child, orphan])
}

#[tokio::test]
async fn a_killed_agent_or_app_takes_its_tree_along() {
    let Some(house) = House::open(&[("LYCEUM_SCHEDULER__LOCAL__GRACE", "1s")]).await else { return };
    let (one, other) = (house.person(), house.person());
    let ((first, tree), (second, others_tree)) = tokio::join!(stubborn(&house, &one), stubborn(&house, &other));

    let record = house.record(first).unwrap();
    kill(Pid::from_raw(record.placement.pid), Signal::SIGKILL).unwrap();
    let ended = one.ended(&house, first, "signal").await;
    assert!(ended["detail"].as_str().unwrap().contains("killed before it could report why"), "{ended}");
    house.nothing_left(&record).await;
    are_gone(tree).await;

    let record = house.record(second).unwrap();
    assert!(others_tree.iter().all(|pid| processes(&record).contains(pid)), "the other session lives on");
    kill(Pid::from_raw(others_tree[0]), Signal::SIGKILL).unwrap();
    let ended = other.ended(&house, second, "signal").await;
    assert!(ended["detail"].as_str().unwrap().contains("signal 9, SIGKILL"), "{ended}");
    house.nothing_left(&record).await;
    are_gone(others_tree).await;
    let db = house.db().await;
    all_agree(&house, &db).await;
    assert_consistent(&db).await;
    db.close().await;
}

/// Everything dies, what lies in memory is empty, and the boot has another id: as placements
/// of the boot before look to the portal that comes up.
#[tokio::test]
async fn after_a_reboot_everything_is_told_and_the_queue_goes_on() {
    let Some(mut house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "gpus": 1, "light": -1, "sessions": -1 })).await;
    let request = |app: &str, gpus: i64| json!({ "app": app, "resources": { "gpus": gpus } });
    let running = person.start(&house, request("web", 1)).await;
    let stopping = person.start(&house, request("deaf", 0)).await;
    person.state(&house, running, "running").await;
    person.state(&house, stopping, "running").await;
    let starting = person.start(&house, request("slow", 0)).await;
    eventually("it is launched", async || house.record(starting)).await;
    let waiting = person.start(&house, request("web", 1)).await;
    person.stop(&house, stopping).await;

    // It was off for a while, and seen at work before for the last time.
    let seen = Clock::System.now();
    house.kill();
    let account = Identity::look_up(&format!("ly-{}", person.name)).unwrap();
    let mut bystander = Command::new("/bin/sleep");
    let mut bystander = bystander.arg("600").uid(account.uid).gid(account.gid).stdin(Stdio::null()).spawn().unwrap();
    let bystanders = i32::try_from(bystander.id()).unwrap();
    let paths = house.paths();
    let db = house.db().await;
    for record in house.records() {
        assert!(process::kill_all(|| Ok(processes(&record)), PATIENCE).unwrap());
        for group in &record.cgroups {
            eventually("the group is empty", async || fs::remove_dir(group).ok()).await;
        }
        fs::remove_dir_all(&record.placement.run_directory).unwrap();
        // Its number belongs to somebody else now, who began at the same tick.
        let mut before = record.clone();
        before.placement.boot_id = "00000000-0000-0000-0000-000000000000".to_owned();
        before.placement.pid = bystanders;
        before.placement.start_ticks = process::stat(bystanders).unwrap().unwrap().start_ticks;
        let file = paths.placements.join(format!("{}.json", record.session.short()));
        fs::write(file, serde_json::to_string(&before).unwrap()).unwrap();
        let placement = serde_json::to_string(&before.placement).unwrap();
        let sql = format!(
            "UPDATE sessions SET placement = '{placement}' WHERE id = '{}' AND placement IS NOT NULL",
            record.session
        );
        execute(&db, &sql).await;
    }
    eventually("a moment has passed", async || (seen < Clock::System.now()).then_some(())).await;
    execute(&db, &format!("UPDATE settings SET value = 'another-boot {}' WHERE name = 'observed'", seen.0)).await;
    db.close().await;
    house.start().await;

    let node = process::node().unwrap();
    for id in [running, starting] {
        let ended = person.ended(&house, id, "host_rebooted").await;
        assert_eq!(ended["detail"], format!("{node} was rebooted"));
    }
    person.ended(&house, stopping, "stopped_by_owner").await;
    person.state(&house, waiting, "running").await;
    assert!(bystander.try_wait().unwrap().is_none(), "somebody else's process was ended");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    let db = house.db().await;
    // What went with the machine was held until then, and not until the portal came back.
    let of_both = format!("session_id IN ('{running}', '{starting}')");
    let so = format!("SELECT COUNT(*) FROM intervals WHERE ended_at = {} AND {of_both}", seen.0);
    assert_eq!(number(&db, &so).await, 2);
    all_agree(&house, &db).await;
    assert_consistent(&db).await;
    db.close().await;
}
