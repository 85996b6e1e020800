//! People who want more than they have, on the real program with real accounts: a session
//! that reaches for its neighbour's, one that leads the portal to somebody else's socket, one
//! whose agent lies, and what of the portal's own environment its children see. The names
//! are those of the threats in SECURITY.md's tests.

use std::{fs, path::Path};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{House, eventually};

#[tokio::test]
async fn neighbour_of_a_session() {
    let Some(house) = House::open(&[]).await else { return };
    let (ada, bob) = (house.person(), house.person());
    let (hers, his) = (ada.run(&house, "web").await, bob.run(&house, "web").await);
    let record = house.record(hers).unwrap();
    let (pid, directory) = (record.placement.pid, &record.placement.run_directory);
    let (status, found) = bob.visit(&house, his, &format!("/reach-{pid}{directory}")).await;
    assert_eq!(status, 200, "{found}");
    for what in ["list", "connect", "read", "write", "environment"] {
        assert_eq!(found[what], Errno::EACCES as i64, "{what}: {found}");
    }
    assert_eq!(found["signal"], Errno::EPERM as i64, "{found}");
    // Her own process may, so that it is not merely the question that is wrong.
    let (_, found) = ada.visit(&house, hers, &format!("/reach-{pid}{directory}")).await;
    for what in ["list", "connect", "read", "environment", "signal"] {
        assert_eq!(found[what], 0, "{what}: {found}");
    }
    // Asked by its own user to end, which is nobody's fault.
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    ada.state(&house, hers, "ended").await;
    assert_eq!(bob.visit(&house, his, "/").await.0, 200);
    bob.end(&house, his).await;
}

#[tokio::test]
async fn socket_symlink_to_a_neighbours_app() {
    let Some(house) = House::open(&[]).await else { return };
    let (ada, bob) = (house.person(), house.person());
    let (hers, his) = (ada.run(&house, "web").await, bob.run(&house, "web").await);
    let target = house.record(hers).unwrap().placement.run_directory + "/app.sock";
    assert!(Path::new(&target).exists());
    assert_eq!(bob.visit(&house, his, &format!("/link-{target}")).await.0, 200);
    let (status, body) = bob.visit(&house, his, "/facts").await;
    assert_eq!(status, 503, "the portal may open her socket, and does not follow his link: {body}");
    assert!(body["uid"].is_null(), "{body}");
    assert_eq!(ada.visit(&house, hers, "/facts").await.0, 200);
    bob.end(&house, his).await;
    ada.end(&house, hers).await;
}

#[tokio::test]
async fn lying_agent() {
    let Some(mut house) = House::open(&[]).await else { return };
    let person = house.person();
    let request = json!({ "app": "web", "resources": { "gpus": 1, "memory_bytes": 512 << 20 } });
    let id = person.start(&house, request).await;
    person.state(&house, id, "running").await;
    let record = house.record(id).unwrap();
    let held = person.get(&house, "/me").await["usage"].clone();
    assert!(held.is_object(), "{held}");
    assert_eq!(person.visit(&house, id, "/lie").await.0, 200);
    // The portal listens to the true agent still; a new one can only ask whoever is there.
    house.restart().await;
    let told = format!("/home/ly-{}/told", person.name);
    eventually("it has lied more than once", async || {
        (fs::read_to_string(&told).ok()?.lines().count() > 2).then_some(())
    })
    .await;

    let session = person.session(&house, id).await;
    assert_eq!((&session["state"], &session["end_reason"]), (&json!("running"), &Value::Null), "{session}");
    assert_eq!(person.get(&house, "/me").await["usage"], held, "what it says counts for nothing");
    for page in ["/".to_owned(), format!("/sessions/{id}"), format!("/sessions/{id}/card")] {
        let answer = person.request(&house, "GET", &page).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 200, "{page}: {text}");
        assert!(!text.contains("<script>alert"), "{page}: {text}");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", house.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(resident < 300 * 1024, "an endless line is not kept: {resident} kB");
    // It runs, so the record of its end is not believed; and it is ended by its process.
    person.end(&house, id).await;
    house.nothing_left(&record).await;
    assert_eq!(person.get(&house, "/me").await["usage"]["gpus"], 0);
}

#[tokio::test]
async fn child_env_clean() {
    let secrets =
        [("AWS_SECRET_ACCESS_KEY", "hush-hush"), ("LD_LIBRARY_PATH", "/nowhere"), ("PYTHONSTARTUP", "/nowhere/x")];
    let Some(house) = House::open(&secrets).await else { return };
    let person = house.person();
    let id = person.run(&house, "web").await;
    let (_, facts) = person.visit(&house, id, "/facts").await;
    let environment = facts["environment"].as_object().unwrap();
    for (name, value) in environment {
        assert!(!secrets.iter().any(|(secret, _)| secret == name), "{name}");
        assert!(!value.as_str().unwrap().contains("hush"), "{name}");
    }
    // The agent and the app, as the kernel tells it: neither secrets nor the portal's descriptors.
    for pid in super::processes(&house.record(id).unwrap()) {
        let own = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let own = String::from_utf8_lossy(&own).into_owned();
        assert!(!own.contains("hush") && !own.contains("LYCEUM_SERVER"), "{pid}: {own}");
        let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!arguments.contains("hush"), "{pid}: {arguments}");
        for descriptor in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let target = target.display().to_string();
            assert!(!target.contains("private") && !target.contains("lyceum.db"), "{pid}: {target}");
        }
    }
    person.end(&house, id).await;
}
