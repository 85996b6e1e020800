//! `kill -9` of the portal with sessions in every state, and what befalls them while it is
//! away: for no time, for twenty seconds, for a minute. The helper is held still at the last
//! moment, so that a launch is under way when the portal dies, and goes on with it before the
//! next portal comes, beside it, or never.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use lyceum::{
    helper::{
        placement::Record,
        process::{self, Life},
    },
    model::{Clock, SessionId, Timestamp},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tokio::time::Instant;

use super::{all_agree, crowd, processes::are_gone};
use crate::{
    db::whole::assert_consistent,
    life::{House, processes},
    wait::eventually,
};

/// Who uses nothing for so long is stopped (seconds).
const IDLE: i64 = 300;

/// Where a stubborn app's children leave their numbers.
const CHILDREN: [&str; 2] = ["pid-child", "pid-orphan"];

/// When the helper goes on that had a launch to do.
#[derive(Clone, Copy, PartialEq)]
enum Late {
    /// Before the next portal comes: what it launches is found.
    Before,
    /// Beside the next portal and its helper.
    Beside,
    Never,
}

#[tokio::test]
async fn killed_and_back_at_once() {
    killed_in_every_state(Duration::ZERO, Late::Beside).await;
}

#[tokio::test]
async fn killed_and_back_after_twenty_seconds() {
    killed_in_every_state(Duration::from_secs(20), Late::Before).await;
}

/// A minute is also the shortest time that a session may have.
#[tokio::test]
async fn killed_and_back_after_a_minute() {
    killed_in_every_state(Duration::from_mins(1), Late::Never).await;
}

#[expect(clippy::too_many_lines, reason = "one story: ten sessions before, while and after the portal is away")]
async fn killed_in_every_state(downtime: Duration, late: Late) {
    let Some(mut house) = House::open(&[("LYCEUM_SCHEDULER__LOCAL__GRACE", "3s")]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    let named = crowd(&house, 1).await.remove(0);
    admin.allow(&house, &person, json!({ "gpus": 1, "light": -1, "sessions": -1 })).await;
    admin.allow(&house, &named, json!({ "light": -1, "idle_timeout_seconds": IDLE })).await;
    let request = |app: &str, gpus: i64| json!({ "app": app, "resources": { "gpus": gpus } });

    let unused = named.run(&house, "terminal").await;
    let running = person.start(&house, request("web", 1)).await;
    let is_long = Duration::from_mins(1) <= downtime;
    let duration = if is_long { 60 } else { 3600 };
    let over = person.start(&house, json!({ "app": "web", "duration_seconds": duration })).await;
    let exits = person.start(&house, request("web", 0)).await;
    let crashes = person.start(&house, request("web", 0)).await;
    let small = json!({ "app": "web", "resources": { "memory_bytes": 128 << 20 } });
    let eats = person.start(&house, small).await;
    let orphaned = person.start(&house, request("web", 0)).await;
    let stopping = person.start(&house, request("deaf", 0)).await;
    for id in [running, over, exits, crashes, eats, orphaned, stopping] {
        person.state(&house, id, "running").await;
    }
    let waiting = person.start(&house, request("web", 1)).await;
    let starting = person.start(&house, request("slow", 0)).await;
    eventually("the slow app is started", async || (starts(&person.name, starting) == 1).then_some(())).await;
    let record = |id| house.record(id).unwrap();
    let records = [over, exits, crashes, eats, orphaned, stopping, starting, running].map(record);
    let [over_at, exits_at, crashes_at, eats_at, orphaned_at, stopping_at, starting_at, running_at] = &records;
    person.stop(&house, stopping).await;

    // The helper stands still with a launch in its hands, and another waits behind that.
    let helper = Pid::from_raw(house.helper_pid());
    kill(helper, Signal::SIGSTOP).unwrap();
    let launching = named.start(&house, json!({ "app": "web" })).await;
    named.state(&house, launching, "starting").await;
    let unwanted = named.start(&house, json!({ "app": "web" })).await;
    named.state(&house, unwanted, "starting").await;
    named.stop(&house, unwanted).await;

    house.kill();
    let away = Instant::now();
    let home = format!("/home/ly-{}", person.name);
    befall(exits_at, crashes_at, eats_at, orphaned_at, &home).await;
    match late {
        Late::Before => kill(helper, Signal::SIGCONT).unwrap(),
        Late::Never => kill(helper, Signal::SIGKILL).unwrap(),
        Late::Beside => {}
    }
    if !downtime.is_zero() {
        for record in [exits_at, crashes_at, eats_at, orphaned_at] {
            eventually("it ends while nobody looks", async || {
                matches!(process::life(&record.placement), Life::Dead).then_some(())
            })
            .await;
        }
        tokio::time::sleep_until(away + downtime).await;
    }
    for record in [running_at, starting_at] {
        assert!(processes(record).contains(&record.placement.pid), "sessions go on without the portal");
    }
    let back = Clock::System.now();
    house.start().await;
    if late == Late::Beside {
        kill(helper, Signal::SIGCONT).unwrap();
    }

    // Each as it was, or ended for the reason that it had.
    for (id, reason, words) in [
        (stopping, "stopped_by_owner", "Stopped by its owner"),
        (exits, "exited", "exit code 3"),
        (crashes, "signal", "SIGSEGV"),
        // In its own words, or in the kernel's alone where the agent went with it.
        (eats, "out_of_memory", "out of memory: it "),
        (orphaned, "signal", "killed before it could report why"),
    ] {
        let ended = person.ended(&house, id, reason).await;
        assert!(ended["detail"].as_str().unwrap().contains(words), "{ended}");
    }
    if is_long {
        person.ended(&house, over, "time_limit").await;
        house.nothing_left(over_at).await;
    } else {
        assert_eq!(person.session(&house, over).await["state"], "running", "it has time left");
    }
    for record in [stopping_at, exits_at, crashes_at, eats_at, orphaned_at] {
        house.nothing_left(record).await;
    }
    assert_eq!(person.session(&house, starting).await["state"], "starting");
    fs::write(format!("{home}/go"), "").unwrap();
    person.state(&house, starting, "running").await;
    named.ended(&house, unwanted, "stopped_by_owner").await;
    named.state(&house, launching, "running").await;
    assert_eq!(named.visit(&house, launching, "/").await.0, 200);
    let waits = person.session(&house, waiting).await;
    assert_eq!((&waits["state"], &waits["reasons"][0]["code"]), (&json!("queued"), &json!("quota.gpus.user")));
    let idle = eventually("somebody looked whether it is used", async || {
        serde_json::from_value::<Timestamp>(named.session(&house, unused).await["idle_stops_at"].clone()).ok()
    })
    .await;
    assert!(idle.seconds_since(back) >= IDLE, "while the portal was away nobody could use it: {idle}");
    let db = house.db().await;
    all_agree(&house, &db).await;

    for (id, record) in [(running, running_at), (starting, starting_at)] {
        assert_eq!(house.record(id).unwrap().placement, record.placement, "the very same agent");
    }
    person.end(&house, running).await;
    person.state(&house, waiting, "running").await;
    let account = house.record(launching).unwrap().placement.unix_name;
    let account = account.trim_start_matches("ly-");
    let once = [running, starting, waiting].map(|id| starts(&person.name, id));
    assert_eq!((once, starts(account, launching)), ([1, 1, 1], 1), "each was started once");
    assert!(starts(account, unwanted) <= 1);
    are_gone(CHILDREN.map(|name| fs::read_to_string(format!("{home}/{name}")).unwrap().parse().unwrap())).await;
    all_agree(&house, &db).await;
    assert_consistent(&db).await;
    db.close().await;
}

/// What happens to four of them while no portal looks.
async fn befall(exits: &Record, crashes: &Record, eats: &Record, orphaned: &Record, home: &str) {
    tell_app(exits, "exit-3");
    tell_app(crashes, "signal-11");
    tell_app(eats, "eat");
    tell_app(orphaned, "stubborn");
    eventually("its children run", async || {
        CHILDREN.iter().all(|name| Path::new(home).join(name).exists()).then_some(())
    })
    .await;
    kill(Pid::from_raw(orphaned.placement.pid), Signal::SIGKILL).unwrap();
}

/// How often a session's app was started.
fn starts(name: &str, id: SessionId) -> usize {
    fs::read_to_string(format!("/home/ly-{name}/starts-{id}")).map_or(0, |lines| lines.lines().count())
}

/// A request to the app itself, with no portal between.
fn tell_app(record: &Record, verb: &str) {
    let mut app = UnixStream::connect(Path::new(&record.placement.run_directory).join("app.sock")).unwrap();
    app.write_all(format!("GET /{verb} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    app.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
}
