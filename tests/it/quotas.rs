//! Quotas as administrators set them and people meet them, over the API: groups that pay,
//! totals, hours, what a change would mean, and the sentences that say why something waits.
//! Races and crashes are tested with the database, numbers that mean nothing with the corpora.

use lyceum::{
    db::sessions::Ending,
    model::{EndReason, GroupName, Role, UserId},
};
use serde_json::{Value, json};

use crate::{
    pages::markup::one_line,
    portal::{Caller, TestPortal},
};

/// A portal with an administrator and two people of the groups `vision` and `speech`.
struct Lab {
    portal: TestPortal,
    boss: Caller,
    ada: Caller,
    bob: Caller,
}

async fn lab() -> Lab {
    let portal = TestPortal::start().await;
    portal.add_user("boss", Role::Admin).await;
    let (ada, bob) = (portal.add_user("ada", Role::User).await, portal.add_user("bob", Role::User).await);
    add_group(&portal, "vision", &[ada, bob]).await;
    add_group(&portal, "speech", &[ada]).await;
    let (boss, ada, bob) = (portal.sign_in("boss").await, portal.sign_in("ada").await, portal.sign_in("bob").await);
    Lab { portal, boss, ada, bob }
}

async fn add_group(portal: &TestPortal, name: &str, members: &[UserId]) {
    let group = portal.db().add_group(&GroupName::parse(name).unwrap(), None, portal.by()).await.unwrap();
    for member in members {
        portal.db().set_member(group, *member, true, portal.by()).await.unwrap();
    }
}

async fn patch(caller: &Caller, path: &str, body: &Value) -> Value {
    let answer = caller.request("PATCH", &format!("/api/v1/quotas/{path}")).json(body).send().await.unwrap();
    let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
    assert_eq!(status, 200, "{path} {body}: {text}");
    serde_json::from_str(&text).unwrap()
}

async fn get(caller: &Caller, path: &str) -> Value {
    caller.get(&format!("/api/v1/{path}")).await.json().await.unwrap()
}

/// Status and body of a start of the smallest terminal, with more said about it.
async fn start(caller: &Caller, more: Value) -> (u16, Value) {
    let mut asked = json!({ "app": "terminal", "resources": { "cpus": 1, "memory_bytes": 64 << 20 } });
    asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = caller.post("/api/v1/sessions", &asked).await;
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn a_group_is_chosen_once_and_remembered() {
    let Lab { portal: _portal, boss, ada, bob } = lab().await;
    // No group can be charged: none is, and none can be named.
    let (status, session) = start(&ada, json!({})).await;
    assert_eq!((status, &session["group"]), (201, &Value::Null));
    assert_eq!(start(&ada, json!({ "group": "vision" })).await.1["errors"][0]["code"], "unknown_group");

    for group in ["vision", "speech"] {
        let said = patch(&boss, &format!("groups/{group}"), &json!({ "chargeable": true })).await;
        assert_eq!((&said["chargeable"], &said["restrictive"]), (&json!(true), &json!(false)));
    }
    let (status, problem) = start(&ada, json!({})).await;
    assert_eq!((status, &problem["errors"][0]["code"]), (422, &json!("required")), "{problem}");
    assert_eq!(problem["errors"][0]["field"], "group");
    assert!(problem["errors"][0]["message"].as_str().unwrap().contains("speech, vision"), "{problem}");
    assert_eq!(start(&ada, json!({ "group": "chemistry" })).await.0, 422);
    assert_eq!(start(&ada, json!({ "group": "speech" })).await.1["group"], "speech");
    assert_eq!(start(&ada, json!({})).await.1["group"], "speech", "as chosen last");
    // Whoever is in one alone is charged there.
    assert_eq!(start(&bob, json!({})).await.1["group"], "vision");
    assert_eq!(start(&bob, json!({ "group": "speech" })).await.0, 422, "a group of others");

    let all = get(&boss, "quotas").await;
    let used: Vec<_> =
        all["groups"].as_array().unwrap().iter().map(|one| (&one["group"], &one["usage"]["light"])).collect();
    assert_eq!(used, [(&json!("speech"), &json!(2)), (&json!("vision"), &json!(1))]);
}

#[tokio::test]
async fn totals_bind_whatever_one_may() {
    let Lab { portal: _portal, boss, ada, bob } = lab().await;
    patch(&boss, "groups/vision", &json!({ "chargeable": true, "total": { "cpus": 2 } })).await;
    patch(&boss, "users/ada", &json!({ "cpus": -1, "light": -1 })).await;
    for person in [&ada, &bob] {
        assert_eq!(start(person, json!({})).await.1["reasons"], json!([]));
    }
    let (status, waiting) = start(&ada, json!({})).await;
    assert_eq!(status, 201);
    let reason = &waiting["reasons"][0];
    assert_eq!((&reason["code"], &reason["scope"]), (&json!("quota.cpus.group"), &json!("group vision")));
    assert_eq!((&reason["used"], &reason["limit"], &reason["over_by"]), (&json!(2), &json!(2), &json!(1)));
    assert_eq!(
        reason["hint"],
        "Group ‘vision’ may use 2 cores together and 2 are in use. This starts when one of its sessions ends."
    );
    let (status, refused) = start(&bob, json!({ "resources": { "cpus": 3 } })).await;
    assert_eq!((status, &refused["reasons"][0]["code"]), (409, &json!("quota.cpus.group")), "{refused}");

    patch(&boss, "cluster", &json!({ "memory_bytes": 0 })).await;
    assert_eq!(start(&bob, json!({})).await.1["reasons"][0]["code"], "quota.memory.cluster");
    let said = get(&boss, "quotas/cluster").await;
    assert_eq!((&said["fields"]["memory_bytes"]["value"], &said["usage"]["cpus"]), (&json!(0), &json!(2)));
    assert_eq!(said["fields"]["memory_bytes"]["updated_by"], "boss");
}

/// In a group that nothing is charged to, the total is of all that its members hold.
#[tokio::test]
async fn totals_bind_members_where_nothing_is_charged() {
    let Lab { portal: _portal, boss, ada, bob } = lab().await;
    patch(&boss, "default", &json!({ "sessions": 9, "light": 0 })).await;
    patch(&boss, "groups/vision", &json!({ "total": { "sessions": 1 }, "each": { "sessions": 1 } })).await;
    let size = json!({ "resources": { "cpus": 2, "memory_bytes": 64 << 20 } });
    let (code, first) = start(&ada, size.clone()).await;
    assert_eq!(code, 201);
    assert!(first["reasons"].as_array().is_none_or(Vec::is_empty), "{first}");
    let (code, second) = start(&bob, size).await;
    let reason = &second["reasons"][0];
    assert_eq!(
        (code, &reason["code"], &reason["scope"]),
        (201, &json!("quota.sessions.group"), &json!("group vision"))
    );
    let hint = reason["hint"].as_str().unwrap();
    assert!(hint.contains("1 session") && hint.contains("a workload of its members ends"), "{hint}");
    let quota = get(&boss, "quotas/groups/vision").await;
    assert_eq!(
        (&quota["usage"]["sessions"], &quota["usage"]["pending"]),
        (&json!(1), &json!(0)),
        "as the page shows it"
    );
    let page = one_line(&boss.visit("/admin/quotas/groups").await.text().await.unwrap());
    assert!(page.contains("<b>1</b> <span class=\"muted\">/ 1</span>"), "{page}");
}

#[tokio::test]
async fn hours_are_counted_to_the_end_of_what_runs() {
    let Lab { portal, boss, ada, .. } = lab().await;
    patch(&boss, "users/ada", &json!({ "cpu_hours": 3 })).await;
    assert_eq!(start(&ada, json!({ "duration_seconds": 7200 })).await.0, 201);
    let (status, refused) = start(&ada, json!({ "duration_seconds": 3660 })).await;
    assert_eq!((status, &refused["reasons"][0]["code"]), (409, &json!("quota.cpu_hours.user")));
    assert_eq!(
        refused["reasons"][0]["hint"],
        "This could use 1 h 1 min of core time; of your 3 core-hours for 30 days (override) 1 h are left, counting \
         running workloads to their end. Ask for less time or fewer cores."
    );
    assert_eq!(start(&ada, json!({ "duration_seconds": 3600 })).await.0, 201);
    // What was given back before its end can be used again.
    portal.clock.advance(600);
    let ending = Ending {
        reason: EndReason::Exited,
        exit_code: Some(0),
        signal: None,
        at: portal.clock.now(),
        detail: String::new(),
    };
    for session in portal.db().live_sessions().await.unwrap() {
        assert!(portal.db().end_session(session.id, &ending).await.unwrap());
    }
    let me = get(&ada, "me").await;
    assert_eq!(me["usage"]["cpu_seconds"], 2 * 600, "{me:#}");
    assert_eq!(start(&ada, json!({ "duration_seconds": 7200 })).await.0, 201);
}

#[tokio::test]
async fn a_change_can_be_looked_at_before_it_is_made() {
    let Lab { portal: _portal, boss, ada, bob } = lab().await;
    for _ in 0..3 {
        assert_eq!(start(&ada, json!({})).await.0, 201);
    }
    assert_eq!(start(&bob, json!({})).await.0, 201);
    let preview = async |body: Value| {
        let answer = boss.post("/api/v1/quotas/preview", &body).await;
        assert_eq!(answer.status(), 200, "{body}");
        answer.json::<Value>().await.unwrap()["over"].clone()
    };
    let before = get(&boss, "quotas").await;
    assert_eq!(
        preview(json!({ "default": { "light": 2 } })).await,
        json!([{ "user": "ada", "scope": "default", "field": "light", "used": 3, "limit": 2 }])
    );
    assert_eq!(preview(json!({ "default": { "light": 3, "sessions": 0 } })).await, json!([]));
    assert_eq!(preview(json!({ "user": { "name": "bob", "change": { "cpus": 0 } } })).await[0]["user"], "bob");
    let group = json!({ "group": { "name": "vision", "change": { "each": { "light": 1 }, "restrictive": true } } });
    let over = preview(group).await;
    assert_eq!((over.as_array().unwrap().len(), &over[0]["scope"]), (1, &json!("group vision")), "{over}");
    // An override stands above what a group restricts.
    patch(&boss, "users/ada", &json!({ "light": 5 })).await;
    let group = json!({ "group": { "name": "vision", "change": { "each": { "light": 1 }, "restrictive": true } } });
    assert_eq!(preview(group).await, json!([]));
    let over = preview(json!({ "cluster": { "cpus": 3 } })).await;
    assert_eq!(over, json!([{ "user": null, "scope": "cluster", "field": "cpus", "used": 4, "limit": 3 }]));
    assert_eq!(get(&boss, "quotas").await, before, "nothing of it was written");
    for body in [json!({}), json!({ "default": {}, "cluster": {} }), json!({ "default": { "cpus": -2 } })] {
        assert_eq!(boss.post("/api/v1/quotas/preview", &body).await.status(), 422, "{body}");
    }
}

#[tokio::test]
async fn whose_requests_and_hours_a_change_would_end_is_told() {
    let Lab { portal, boss, ada, .. } = lab().await;
    let preview = async |body: Value| {
        let answer = boss.post("/api/v1/quotas/preview", &body).await;
        assert_eq!(answer.status(), 200, "{body}");
        answer.json::<Value>().await.unwrap()
    };
    patch(&boss, "users/ada", &json!({ "sessions": 1, "cpus": 8, "light": 0 })).await;
    let runs = json!({ "resources": { "cpus": 2, "memory_bytes": 64 << 20 }, "duration_seconds": 4 * 3600 });
    let (status, running) = start(&ada, runs).await;
    assert_eq!(status, 201, "{running}");
    let waits =
        json!({ "name": "waits", "resources": { "cpus": 4, "memory_bytes": 64 << 20 }, "duration_seconds": 7200 });
    let (status, waiting) = start(&ada, waits).await;
    assert_eq!((status, &waiting["state"]), (201, &json!("queued")), "{waiting}");
    // Of what runs nothing is ended; what waits and never fits any more is.
    let told = preview(json!({ "user": { "name": "ada", "change": { "cpus": 3 } } })).await;
    let refused = &told["refused"];
    assert_eq!((refused.as_array().unwrap().len(), &told["over"]), (1, &json!([])), "{told}");
    assert_eq!((&refused[0]["user"], &refused[0]["name"]), (&json!("ada"), &json!("waits")));
    assert_eq!(refused[0]["reason"]["code"], "quota.cpus.user", "{told}");
    for (change, code) in [
        (json!({ "default": { "cpus": 3 } }), None),
        (json!({ "user": { "name": "ada", "change": { "cpus": 4 } } }), None),
        (json!({ "user": { "name": "ada", "change": { "max_session_seconds": 3600 } } }), Some("quota.duration.user")),
        (json!({ "cluster": { "cpus": 3 } }), Some("quota.cpus.cluster")),
        (json!({ "cluster": { "cpu_hours": 7 } }), Some("quota.cpu_hours.cluster")),
        (json!({ "cluster": { "cpus": 4 } }), None),
    ] {
        let told = preview(change.clone()).await;
        assert_eq!(told["refused"][0]["reason"]["code"].as_str(), code, "{change}: {told}");
    }
    // It has had two cores for three hours, and has a fourth before it: as a decision does, the preview
    // counts what runs to its end.
    for passed in [0, 3 * 3600] {
        portal.clock.advance(passed);
        let told = preview(json!({ "default": { "cpu_hours": 7 } })).await;
        let over = json!([{ "user": "ada", "scope": "default", "field": "cpu_hours", "used": 8, "limit": 7 }]);
        assert_eq!(told["over"], over, "{told}");
        assert_eq!(preview(json!({ "default": { "cpu_hours": 8 } })).await["over"], json!([]));
        let over = json!([{ "user": null, "scope": "cluster", "field": "cpu_hours", "used": 8, "limit": 7 }]);
        assert_eq!(preview(json!({ "cluster": { "cpu_hours": 7 } })).await["over"], over);
    }
}

#[tokio::test]
async fn of_two_administrators_the_second_is_told() {
    let Lab { portal: _portal, boss, .. } = lab().await;
    for path in ["groups/vision", "cluster", "default", "users/ada"] {
        let path = format!("/api/v1/quotas/{path}");
        let seen = boss.get(&path).await.headers()["etag"].clone();
        let body = if path.contains("groups") { json!({ "total": { "cpus": 2 } }) } else { json!({ "cpus": 2 }) };
        let send = async || {
            let request = boss.request("PATCH", &path).header("if-match", seen.clone()).json(&body);
            request.send().await.unwrap().status().as_u16()
        };
        assert_eq!((send().await, send().await), (200, 412), "{path}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_change_is_said_with_its_field() {
    let Lab { portal: _portal, boss, .. } = lab().await;
    let before = get(&boss, "quotas").await;
    for (path, body, field, code) in [
        ("groups/vision", json!({ "total": { "pending": 1 } }), "total.pending", "not_a_total"),
        ("groups/vision", json!({ "each": { "gpu": 1 }, "total": { "gpus": 1 } }), "each.gpu", "unknown_field"),
        ("cluster", json!({ "max_session_seconds": 1 }), "max_session_seconds", "not_a_total"),
        ("cluster", json!({ "gpus:": 1 }), "gpus:", "unknown_field"),
        ("default", json!({ "memory_bytes": "48 GB" }), "memory_bytes", "invalid_value"),
        ("users/ada", json!({ "gpus": 1, "expires_at": "2001-01-01T00:00:00Z" }), "expires_at", "in_the_past"),
    ] {
        let answer = boss.request("PATCH", &format!("/api/v1/quotas/{path}")).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{path} {body}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!((&problem["errors"][0]["field"], &problem["errors"][0]["code"]), (&json!(field), &json!(code)));
    }
    assert_eq!(get(&boss, "quotas").await, before, "nothing was half applied");
    assert_eq!(boss.get("/api/v1/quotas/groups/nobodys").await.status(), 404);
    let unknown =
        boss.request("PATCH", "/api/v1/quotas/groups/vision").json(&json!({ "gpus": 1 })).send().await.unwrap();
    assert_eq!(unknown.status(), 422, "a group's limits are each or total");
}

#[tokio::test]
async fn everybody_sees_what_they_used_and_operators_all() {
    let Lab { portal, boss, ada, bob } = lab().await;
    for person in [&ada, &bob] {
        assert_eq!(start(person, json!({})).await.0, 201);
    }
    portal.clock.advance(90);
    let usage = get(&ada, "usage").await;
    let row = |name: &str| json!({ "name": name, "gpu_seconds": 0, "cpu_seconds": 90, "sessions": 1 });
    assert_eq!((&usage["by"], &usage["items"]), (&json!("user"), &json!([row("ada")])));
    assert_eq!(get(&boss, "usage").await["items"], json!([row("ada"), row("bob")]));
    assert_eq!(get(&boss, "usage?by=group").await["items"][0]["cpu_seconds"], 180);
    assert_eq!(get(&boss, "usage?by=gpu_model").await["items"], json!([]));
    let table = boss.request("GET", "/api/v1/usage").header("accept", "text/csv").send().await.unwrap();
    assert_eq!(table.headers()["content-disposition"], "attachment; filename=\"usage.csv\"");
    let text = table.text().await.unwrap();
    assert_eq!(text.lines().nth(1), Some(r#""ada","0","90","1""#), "{text}");
    for wrong in [
        "by=year",
        "whose=bobs",
        "by=day&from=1900-01-01T00:00:00Z",
        "from=2027-01-02T00:00:00Z&to=2027-01-01T00:00:00Z",
        "of=bob",
    ] {
        assert!(matches!(boss.get(&format!("/api/v1/usage?{wrong}")).await.status().as_u16(), 400 | 422), "{wrong}");
    }
}
