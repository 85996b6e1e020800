//! Numbers that would overflow, turn negative or mean nothing, wherever a size may be given,
//! and a thousand who ask at once.

use futures_util::{StreamExt, stream};
use lyceum::model::Role;
use serde_json::{Value, json};

use super::belongings;
use crate::portal::TestPortal;

const NUMBERS: [&str; 22] = [
    "-1",
    "-0.5",
    "-9223372036854775808",
    "-9223372036854775809",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e9",
    "1e18",
    "1e999",
    "-1e999",
    "1.5",
    "1000000000000",
    "NaN",
    "Infinity",
    "\"1\"",
    "\"1e9\"",
    "true",
    "[]",
    "{}",
    "null",
];

#[tokio::test]
async fn quota_values() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    portal.add_user("boss", Role::Admin).await;
    let (alice, boss) = (portal.sign_in("alice").await, portal.sign_in("boss").await);
    let send = async |caller: &crate::portal::Caller, method: &str, path: &str, body: String| {
        let request = caller.request(method, path).header("content-type", "application/json").body(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let before = belongings(&alice).await;
    for field in ["resources.gpus", "resources.cpus", "resources.memory_bytes", "duration_seconds"] {
        for number in NUMBERS {
            let body = match field.split_once('.') {
                Some((_, name)) => format!(r#"{{"app": "terminal", "resources": {{"{name}": {number}}}}}"#),
                None => format!(r#"{{"app": "terminal", "{field}": {number}}}"#),
            };
            // Nothing said is the usual size.
            let is_nothing = number == "null" && field == "duration_seconds";
            for path in ["/api/v1/sessions", "/api/v1/admission"] {
                if is_nothing && path == "/api/v1/sessions" {
                    continue;
                }
                let (status, text) = send(&alice, "POST", path, body.clone()).await;
                let refused = matches!(status, 400 | 409 | 422)
                    || (path.ends_with("admission") && status == 200 && text.contains(r#""outcome":"refuse""#));
                assert!(refused || is_nothing, "{path} {body}: {status} {text}");
            }
        }
    }
    assert_eq!(belongings(&alice).await, before, "nothing was made");

    let limits = async || boss.get("/api/v1/quotas/users/alice").await.json::<Value>().await.unwrap();
    let before = limits().await;
    for field in ["gpus", "cpus", "memory_bytes", "sessions", "light", "pending", "max_session_seconds"] {
        for number in NUMBERS {
            let (status, text) =
                send(&boss, "PATCH", "/api/v1/quotas/users/alice", format!(r#"{{"{field}": {number}}}"#)).await;
            // Without limit, no limit of one's own, and large numbers are fine here.
            if matches!(number, "-1" | "null" | "9223372036854775807" | "1000000000000") {
                assert_eq!(status, 200, "{field} {number}: {text}");
                let (status, text) =
                    send(&boss, "PATCH", "/api/v1/quotas/users/alice", format!(r#"{{"{field}": null}}"#)).await;
                assert_eq!(status, 200, "{text}");
            } else {
                assert!(matches!(status, 400 | 422), "{field} {number}: {status} {text}");
            }
        }
    }
    assert_eq!(limits().await, before);

    // The largest limits there are still add up.
    let largest = json!({ "gpus": i64::MAX, "cpus": i64::MAX, "memory_bytes": i64::MAX, "light": i64::MAX, "sessions": i64::MAX });
    assert_eq!(send(&boss, "PATCH", "/api/v1/quotas/users/alice", largest.to_string()).await.0, 200);
    for _ in 0..2 {
        assert_eq!(alice.post("/api/v1/sessions", &json!({ "app": "terminal" })).await.status(), 201);
    }
    let body =
        r#"{"app": "terminal", "resources": {"cpus": 9223372036854775807, "memory_bytes": 9223372036854775807}}"#;
    assert_eq!(send(&alice, "POST", "/api/v1/sessions", body.to_owned()).await.0, 409);
    assert_eq!(alice.visit("/").await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_race() {
    let portal = TestPortal::start().await;
    portal.add_user("boss", Role::Admin).await;
    let boss = portal.sign_in("boss").await;
    let mut people = Vec::new();
    for name in ["alice", "bob"] {
        portal.add_user(name, Role::User).await;
        let limits = json!({ "light": 3, "cpus": 2, "pending": 2 });
        let set = boss.request("PATCH", &format!("/api/v1/quotas/users/{name}")).json(&limits).send().await.unwrap();
        assert_eq!(set.status(), 200);
        people.push(portal.sign_in(name).await);
    }
    let tiny = json!({ "app": "terminal", "resources": { "cpus": 1, "memory_bytes": 64 << 20 } });
    let asked = stream::iter(0..1000).map(|n| people[n % 2].post("/api/v1/sessions", &tiny)).buffer_unordered(200);
    let statuses: Vec<u16> = asked.map(|answer| answer.status().as_u16()).collect().await;
    let made = statuses.iter().filter(|status| **status == 201).count();
    assert!(statuses.iter().all(|status| matches!(status, 201 | 409)), "{statuses:?}");
    let mut live = 0;
    for person in &people {
        let me: Value = person.get("/api/v1/me").await.json().await.unwrap();
        let sessions: Value = person.get("/api/v1/sessions?limit=500").await.json().await.unwrap();
        let sessions = sessions["items"].as_array().unwrap();
        live += sessions.len();
        let waiting =
            sessions.iter().filter(|session| session["reasons"].as_array().is_some_and(|all| !all.is_empty()));
        let held = sessions.len() - waiting.clone().count();
        assert!(held <= 3 && waiting.count() <= 2, "{held} held: {me:#}");
        assert!(me["usage"]["light"].as_i64().unwrap() <= 3, "{me:#}");
    }
    assert_eq!(live, made, "each that was promised is there, and no other");
}
