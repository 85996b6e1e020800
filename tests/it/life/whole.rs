//! From the request to the history: states, events, who the workload is, what binds it, what
//! its owner may do with it, and that nothing is left of it.

use std::{fs, path::Path, time::Instant};

use lyceum::helper::{identity::Identity, process};
use serde_json::{Value, json};

use super::{House, eventually, processes};

const MIB: i64 = 1 << 20;

#[tokio::test]
async fn from_request_to_history_with_nothing_left() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let resources = json!({ "gpus": 1, "cpus": 2, "memory_bytes": 512 * MIB });
    let id = person.start(&house, json!({ "app": "web", "name": "naïve <b>", "resources": resources })).await;
    let session = person.state(&house, id, "running").await;
    assert_eq!((&session["name"], &session["cluster"]), (&json!("naïve <b>"), &json!("local")), "{session}");
    assert_eq!(session["gpus"][0]["index"], 0);
    for moment in ["created_at", "started_at", "ready_at", "expires_at"] {
        assert!(session[moment].is_string(), "{moment}: {session}");
    }

    let account = Identity::look_up(&format!("ly-{}", person.name)).unwrap();
    let (status, facts) = person.visit(&house, id, "/facts").await;
    assert_eq!(status, 200);
    assert_eq!((&facts["uid"], &facts["gid"]), (&json!(account.uid), &json!(account.gid)));
    assert_eq!(facts["groups"], json!(account.groups));
    assert_eq!(facts["cwd"], json!(account.home));
    let environment = &facts["environment"];
    assert_eq!(environment["CUDA_VISIBLE_DEVICES"], "0");
    assert_eq!(environment["OMP_NUM_THREADS"], "2");
    let names = environment.as_object().unwrap().keys();
    let foreign: Vec<_> = names.filter(|name| name.contains("__") || name.contains("CARGO")).collect();
    assert!(foreign.is_empty(), "from the portal's own environment: {foreign:?}");

    let record = house.record(id).unwrap();
    assert_limits(&record.cgroups, 512 * MIB, 2);
    let app = i32::try_from(facts["pid"].as_i64().unwrap()).unwrap();
    let all = processes(&record);
    assert!(all.contains(&app) && all.contains(&record.placement.pid), "{all:?}");

    // A child that ignores SIGTERM, and one that left its parent, its session and its marks.
    person.visit(&house, id, "/stubborn").await;
    let stubborn = eventually("they run", async || {
        let read = |name: &str| fs::read_to_string(account.home.join(name)).ok()?.parse::<i32>().ok();
        Some([read("pid-child")?, read("pid-orphan")?])
    })
    .await;
    let (status, stopping) = person.ask(&house, "DELETE", &format!("/sessions/{id}"), &Value::Null).await;
    assert_eq!((status, &stopping["state"]), (202, &json!("stopping")), "{stopping}");
    let ended = person.ended(&house, id, "stopped_by_owner").await;
    assert!(ended["ended_at"].is_string() && ended["idle_stops_at"].is_null(), "{ended}");
    house.nothing_left(&record).await;
    for pid in stubborn.into_iter().chain([app]) {
        assert!(process::stat(pid).unwrap().is_none_or(process::Stat::is_zombie), "process {pid} still runs");
    }
    assert_eq!(person.visit(&house, id, "/").await.0, 410, "its address is gone for good");
    person.stop(&house, id).await;

    let history = person.history(&house, id, 0).await;
    let words: Vec<&str> = history.iter().map(|(_, line)| line.split(':').next().unwrap()).collect();
    assert_eq!(words, ["queued", "starting", "running", "stopping", "ended"], "{history:?}");
    assert!(history.iter().map(|(number, _)| *number).eq(1..=5));
    assert_eq!(person.history(&house, id, 3).await, history[3..], "resumed where somebody left off");
    let log = person.request(&house, "GET", &format!("/api/v1/sessions/{id}/log")).send().await.unwrap();
    assert!(log.text().await.unwrap().contains("a line of the log"), "what an ended session wrote is kept");
    let intervals = house.intervals().await;
    assert!(intervals.len() == 1 && intervals[0].to < i64::MAX, "{intervals:?}");
}

/// The kernel's own files say what was asked for.
fn assert_limits(groups: &[impl AsRef<Path>], memory: i64, cpus: i64) {
    let read = |name: &str| {
        groups.iter().find_map(|group| fs::read_to_string(group.as_ref().join(name)).ok()).map(|s| s.trim().to_owned())
    };
    if groups.is_empty() {
        eprintln!("no cgroups on this machine: limits are sampled");
        return;
    }
    let bound = read("memory.max").or_else(|| read("memory.limit_in_bytes")).unwrap();
    assert_eq!(bound, memory.to_string());
    let quota = read("cpu.max").or_else(|| read("cpu.cfs_quota_us")).unwrap();
    assert_eq!(quota.split(' ').next().unwrap(), (cpus * 100_000).to_string());
    assert_eq!(read("pids.max").unwrap(), "4096");
}

#[tokio::test]
async fn what_an_owner_may_do() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, other, admin) = (house.person(), house.person(), house.admin());
    let gpu = json!({ "app": "terminal", "resources": { "gpus": 1 }, "duration_seconds": 3600 });
    let id = person.start(&house, gpu.clone()).await;
    let running = person.state(&house, id, "running").await;
    let path = format!("/sessions/{id}");

    let post = async |verb: &str, body: Value| person.ask(&house, "POST", &format!("{path}/{verb}"), &body).await;
    let seconds = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
    let expires = seconds(&running["expires_at"]);
    assert_eq!(expires - seconds(&running["ready_at"]), 3600);
    for bad in [json!({ "seconds": 0 }), json!({ "seconds": -5 }), json!({ "seconds": 999_999_999 })] {
        let (status, body) = post("extend", bad.clone()).await;
        assert_eq!((status, &body["errors"][0]["field"]), (422, &json!("seconds")), "{bad}: {body}");
    }
    for times in 1..=3 {
        let (status, extended) = post("extend", json!({ "seconds": 60 })).await;
        assert_eq!((status, seconds(&extended["expires_at"])), (200, expires + 60 * times), "{extended}");
    }
    let (status, body) = post("extend", json!({ "seconds": 60 })).await;
    assert!(status == 409 && body["detail"].as_str().unwrap().contains("3 times"), "{body}");
    let (status, body) = post("keep", json!({ "seconds": 86_401 })).await;
    assert_eq!((status, &body["errors"][0]["field"]), (422, &json!("seconds")), "{body}");
    assert_eq!(post("keep", json!({})).await.0, 200);

    let (status, renamed) = person.ask(&house, "PATCH", &path, &json!({ "name": "  resnet 50 " })).await;
    assert_eq!((status, &renamed["name"]), (200, &json!("resnet 50")));
    for bad in ["", "a\nb", "\u{202e}x", &"x".repeat(10_240)] {
        let (status, body) = person.ask(&house, "PATCH", &path, &json!({ "name": bad })).await;
        assert_eq!((status, &body["errors"][0]["field"]), (422, &json!("name")), "{body}");
    }

    // Others do not even learn that it exists; an administrator sees and stops it.
    for (method, path) in [("GET", path.clone()), ("DELETE", path.clone()), ("GET", format!("{path}/log"))] {
        assert_eq!(other.ask(&house, method, &path, &Value::Null).await.0, 404, "{method} {path}");
    }
    assert_eq!(admin.ask(&house, "PATCH", &path, &json!({ "name": "mine" })).await.0, 404);
    admin.stop(&house, id).await;
    let ended = person.ended(&house, id, "stopped_by_admin").await;
    assert_eq!(ended["detail"], "Stopped by admin");
    let (status, body) = post("extend", json!({})).await;
    assert_eq!(status, 409, "{body}");

    // One that waits is cancelled without ever having been anything.
    let first = person.start(&house, gpu.clone()).await;
    let waiting = person.start(&house, gpu).await;
    let session = person.session(&house, waiting).await;
    assert_eq!((&session["state"], &session["reasons"][0]["code"]), (&json!("queued"), &json!("quota.gpus.user")));
    assert_eq!(person.visit(&house, waiting, "/").await.0, 503, "not there yet");
    person.stop(&house, waiting).await;
    assert_eq!(person.session(&house, waiting).await["state"], "ended");
    assert_eq!(person.visit(&house, waiting, "/").await.0, 410, "an address of nothing");
    assert_eq!(person.history(&house, waiting, 0).await.len(), 2);
    person.end(&house, first).await;
}

/// "Stop" comes while a session is being launched, at whatever step that is.
#[tokio::test]
async fn stopped_before_it_ran() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    // The first one makes the account, which takes a moment of its own.
    let mut took = Vec::new();
    for _ in 0..6 {
        let begin = Instant::now();
        let id = person.start(&house, json!({ "app": "web" })).await;
        person.stop(&house, id).await;
        person.ended(&house, id, "stopped_by_owner").await;
        if let Some(record) = house.record(id) {
            house.nothing_left(&record).await;
        }
        took.push(begin.elapsed());
    }
    // Between two looks are five seconds. Whatever waits for one comes back just after it, and waits that long again.
    took.sort();
    assert!(took[3].as_secs_f64() < 4.0, "they ended at once, not at the next look: {took:?}");
    let open = house.intervals().await.into_iter().filter(|interval| interval.to == i64::MAX).count();
    assert_eq!(open, 0);
    assert_eq!(fs::read_dir(house.paths().run).unwrap().count(), 0);
}
