//! An agent that does not answer, as when its file server hangs: the request that met it
//! fails with a sentence after its deadline, everything else goes on, and the agent is ended.

use std::time::{Duration, Instant};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use super::World;
use crate::life::eventually;

#[tokio::test]
async fn a_hanging_agent_costs_one_request() {
    let Some(world) = World::open(&[("LYCEUM_FILES__TIMEOUT", "2s")]).await else { return };
    let (other, _) = world.neighbour().await;
    world.put("file", b"x");
    world.get("").await;
    let stopped = world.agents();
    assert_eq!(stopped.len(), 1);
    kill(Pid::from_raw(stopped[0]), Signal::SIGSTOP).unwrap();

    let begin = Instant::now();
    let others = async {
        // Long before the deadline others have their answers.
        let answer = other.request(&world.house, "GET", "/api/v1/files").send().await.unwrap();
        let health = other.request(&world.house, "GET", "/healthz").send().await.unwrap();
        (answer.status().as_u16(), health.status().as_u16(), begin.elapsed())
    };
    let ((status, said), (files, health, others_took)) = tokio::join!(world.ask("GET", "", Value::Null), others);
    assert_eq!(status, 503, "{said}");
    assert!(said["detail"].as_str().unwrap().contains("does not respond"), "{said}");
    assert!(Duration::from_secs(2) <= begin.elapsed() && begin.elapsed() < Duration::from_secs(15));
    assert_eq!((files, health), (200, 200));
    assert!(others_took < begin.elapsed() || others_took < Duration::from_secs(2), "{others_took:?}");
    assert_eq!(world.ask("GET", "", Value::Null).await.0, 200, "the next request meets another agent");
    eventually("the agent that hangs is ended", async || (!world.agents().contains(&stopped[0])).then_some(())).await;
}

/// Of storage that hangs the home page says so, and does not wait for it.
#[tokio::test]
async fn storage_that_hangs_is_named_and_not_waited_for() {
    let Some(world) = World::open(&[("LYCEUM_FILES__TIMEOUT", "5s")]).await else { return };
    let storage = async || world.get("/storage").await["items"][0].clone();
    let home = eventually("the space is known", async || {
        let home = storage().await;
        home["total_bytes"].is_u64().then_some(home)
    })
    .await;
    assert_eq!((&home["name"], &home["responds"]), (&serde_json::json!("Home"), &Value::Bool(true)), "{home}");
    let bytes = |field: &str| home[field].as_u64().unwrap();
    assert!(bytes("used_bytes") + bytes("free_bytes") <= bytes("total_bytes") && bytes("free_bytes") > 0, "{home}");
    assert_eq!(world.get("").await["total_bytes"], home["total_bytes"]);
    let page = async |who: &crate::life::Person| {
        let begin = Instant::now();
        let text = who.request(&world.house, "GET", "/").header("accept", "text/html").send().await.unwrap();
        let text = crate::pages::markup::one_line(&text.text().await.unwrap());
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        text
    };
    assert!(page(&world.person).await.contains("<ul class=\"panel meters\" aria-label=\"Storage\">"));

    // Another person's agent hangs before it could say anything.
    let (other, account) = world.neighbour().await;
    other.request(&world.house, "GET", "/api/v1/files").send().await.unwrap();
    for pid in World::agents_of(account.uid) {
        kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    }
    eventually("the page names it", async || page(&other).await.contains("does not respond").then_some(())).await;
    assert!(page(&world.person).await.contains("aria-label=\"Storage\""), "nobody else is kept");
}

/// What a files agent is: its user completely, with nothing of the helper's or the portal's.
#[tokio::test]
async fn an_agent_is_its_user_and_nothing_more() {
    let Some(world) = World::open(&[]).await else { return };
    world.get("").await;
    let agent = world.agents()[0];
    let status = std::fs::read_to_string(format!("/proc/{agent}/status")).unwrap();
    let line = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (uid, gid) = (world.account.uid, world.account.gid);
    assert_eq!((line("Uid"), line("Gid")), (format!("{uid} {uid} {uid} {uid}"), format!("{gid} {gid} {gid} {gid}")));
    for capabilities in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(line(capabilities), "0000000000000000");
    }
    let environment = std::fs::read_to_string(format!("/proc/{agent}/environ")).unwrap();
    assert_eq!(environment, "PATH=/usr/local/bin:/usr/bin:/bin\0");
    let open: Vec<String> = std::fs::read_dir(format!("/proc/{agent}/fd"))
        .unwrap()
        .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap().display().to_string())
        .collect();
    let sockets = open.iter().filter(|target| target.starts_with("socket:")).count();
    let known = |target: &&String| {
        ["socket:", "/dev/null", "/memfd:files-launch"].iter().any(|start| target.starts_with(start))
    };
    assert_eq!(open.iter().filter(|target| !known(target)).count(), 0, "{open:?}");
    // Where whoever started the tests ignores a signal, a pair of its own wakes it for that one.
    assert!(matches!(sockets, 2 | 4), "{open:?}");
}

/// A portal that is not root: files as its own account, for the one person it serves.
#[tokio::test]
async fn a_portal_of_somebody_reaches_their_own_files() {
    if !crate::needs::root() {
        return;
    }
    let mut house = crate::life::House::of_somebody(&[]);
    house.start().await;
    let (first, second) = (house.person(), house.person());
    let listed = first.get(&house, "/files").await;
    let home = std::path::PathBuf::from(listed["path"].as_str().unwrap());
    let (status, begun) =
        first.ask(&house, "POST", "/files/uploads", &serde_json::json!({ "path": "x", "size_bytes": 1 })).await;
    assert_eq!(status, 201, "{begun}");
    let upload = format!("/api/v1/files/uploads/{}", begun["id"].as_str().unwrap());
    let piece = first.request(&house, "PATCH", &upload).header("upload-offset", "0").body("x").send().await.unwrap();
    assert_eq!(piece.status(), 200);
    let finished = first.request(&house, "POST", &format!("{upload}/finish")).send().await.unwrap();
    assert_eq!(finished.status(), 200);
    assert_eq!(std::fs::read(home.join("x")).unwrap(), b"x");
    let (status, said) = second.ask(&house, "GET", "/files", &Value::Null).await;
    assert_eq!(status, 409, "{said}");
    assert!(said["detail"].as_str().unwrap().contains("only one user"), "{said}");
}

/// More requests than one person may have at once wait, and are told so in the end; others'
/// are not touched.
#[tokio::test]
async fn one_person_cannot_take_all() {
    let Some(world) = World::open(&[("LYCEUM_FILES__TIMEOUT", "20s")]).await else { return };
    let (other, _) = world.neighbour().await;
    let sparse = world.put("sparse", b"");
    std::fs::OpenOptions::new().write(true).open(sparse).unwrap().set_len(1 << 30).unwrap();
    // Downloads that nobody reads to their end.
    let mut held = Vec::new();
    for _ in 0..6 {
        let answer = world.send("GET", "/content?path=sparse").await;
        assert_eq!(answer.status(), 200);
        held.push(answer);
    }
    let (status, said) = world.ask("GET", "", Value::Null).await;
    assert_eq!(status, 429, "{said}");
    let answer = other.request(&world.house, "GET", "/api/v1/files").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    drop(held);
    eventually("there is room again", async || (world.ask("GET", "", Value::Null).await.0 == 200).then_some(())).await;
}
