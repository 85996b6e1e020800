//! The pages of usage and what the API says beside them: one's own days, what is left, what has
//! ended and why; and who may see whose. The arithmetic is tested with the database.

use lyceum::{
    db::sessions::Ending,
    model::{EndReason, GroupName, Role},
};
use serde_json::{Value, json};

use crate::portal::{Caller, TestPortal};

/// A portal on which ada worked twice and bob once, an hour each, charged to nobody.
struct Room {
    portal: TestPortal,
    boss: Caller,
    ada: Caller,
    bob: Caller,
}

impl Room {
    async fn open() -> Self {
        let portal = TestPortal::start().await;
        for (name, role) in [("boss", Role::Admin), ("ada", Role::User), ("bob", Role::User)] {
            portal.add_user(name, role).await;
        }
        let (boss, ada, bob) = (portal.sign_in("boss").await, portal.sign_in("ada").await, portal.sign_in("bob").await);
        let room = Self { portal, boss, ada, bob };
        room.work(&room.ada, "first", EndReason::Idle).await;
        room.work(&room.ada, "second", EndReason::OutOfMemory).await;
        room.work(&room.bob, "his", EndReason::Exited).await;
        room
    }

    /// Somebody's terminal of one core, which ends after an hour.
    async fn work(&self, who: &Caller, name: &str, reason: EndReason) {
        let asked = json!({ "app": "terminal", "name": name, "resources": { "cpus": 1, "memory_bytes": 64 << 20 } });
        assert_eq!(who.post("/api/v1/sessions", &asked).await.status(), 201);
        self.portal.clock.advance(3600);
        let at = self.portal.clock.now();
        for session in self.portal.db().live_sessions().await.unwrap() {
            let ending = Ending { reason, exit_code: None, signal: None, at, detail: String::new() };
            assert!(self.portal.db().end_session(session.id, &ending).await.unwrap());
        }
        self.portal.clock.advance(1);
    }
}

async fn get(caller: &Caller, path: &str) -> Value {
    let answer = caller.get(&format!("/api/v1/{path}")).await;
    assert_eq!(answer.status(), 200, "{path}");
    answer.json().await.unwrap()
}

async fn page(caller: &Caller, path: &str) -> String {
    crate::pages::markup::one_line(&download(caller, path).await)
}

async fn download(caller: &Caller, path: &str) -> String {
    let answer = caller.visit(path).await;
    assert_eq!(answer.status(), 200, "{path}");
    answer.text().await.unwrap()
}

#[tokio::test]
async fn days_come_to_the_same_as_people() {
    let room = Room::open().await;
    for by in ["day", "week"] {
        let days = get(&room.ada, &format!("usage?by={by}")).await;
        let sum =
            |field: &str| days["items"].as_array().unwrap().iter().map(|day| day[field].as_i64().unwrap()).sum::<i64>();
        assert_eq!((sum("cpu_seconds"), sum("gpu_seconds"), sum("sessions")), (7200, 0, 2), "{days:#}");
        assert_eq!((&days["by"], &days["whose"]), (&json!(by), &json!("own")));
    }
    assert_eq!(get(&room.boss, "usage?whose=own").await["items"], json!([]));
    assert_eq!(get(&room.boss, "usage").await["items"].as_array().unwrap().len(), 2);
    for whose in ["managed", "everybody"] {
        assert_eq!(room.ada.get(&format!("/api/v1/usage?whose={whose}")).await.status(), 403);
    }
    // What an administrator gave to a dashboard tells nothing of others.
    let dashboard = room.portal.token(&room.boss, &["read"]).await;
    assert_eq!(get(&dashboard, "usage").await["items"], json!([]));
    assert_eq!(dashboard.get("/api/v1/usage?whose=everybody").await.status(), 403);
    let steward = room.portal.token(&room.boss, &["read", "admin:quotas"]).await;
    assert_eq!(get(&steward, "usage").await["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_manager_sees_what_is_charged_to_their_groups() {
    let room = Room::open().await;
    let db = room.portal.db();
    let id = async |name: &str| db.find_user_by_name(name).await.unwrap().unwrap().user.id;
    assert_eq!(room.bob.visit("/usage/compare").await.status(), 403);
    let group = db.add_group(&GroupName::parse("vision").unwrap(), None, room.portal.by()).await.unwrap();
    db.set_member(group, id("ada").await, true, room.portal.by()).await.unwrap();
    db.set_manager(group, id("bob").await, true, room.portal.by()).await.unwrap();
    let body = json!({ "chargeable": true });
    let changed = room.boss.request("PATCH", "/api/v1/quotas/groups/vision").json(&body).send().await.unwrap();
    assert_eq!(changed.status(), 200);
    room.portal.portal.access.poll().await.unwrap();
    room.work(&room.ada, "charged", EndReason::Exited).await;

    let seen = get(&room.bob, "usage?whose=managed&by=user").await;
    assert_eq!(seen["items"], json!([{ "name": "ada", "gpu_seconds": 0, "cpu_seconds": 3600, "sessions": 1 }]));
    // Both of ada's earlier hours were charged to nobody, though she is in the group now.
    let pairs = get(&room.boss, "usage?by=group,user").await;
    let told = |answer: &Value| -> Vec<(Value, Value, Value)> {
        let rows = answer["items"].as_array().unwrap().iter();
        rows.map(|row| (row["group"].clone(), row["name"].clone(), row["cpu_seconds"].clone())).collect()
    };
    let row = |group: &str, name: &str, seconds| (json!(group), json!(name), json!(seconds));
    assert_eq!(told(&pairs), [row("", "ada", 7200), row("", "bob", 3600), row("vision", "ada", 3600)]);
    let first = get(&room.boss, "usage?by=group,user&limit=2").await;
    let rest = get(&room.boss, &format!("usage?by=group,user&cursor={}", first["next_cursor"].as_str().unwrap())).await;
    assert_eq!((told(&rest), &rest["by"]), (vec![row("vision", "ada", 3600)], &json!("group,user")));
    let months = get(&room.boss, "usage?by=group,month").await;
    let month = months["items"][0]["name"].as_str().unwrap();
    assert_eq!(told(&months), [row("", month, 10_800), row("vision", month, 3600)]);
    assert_eq!(get(&room.bob, "usage?by=group,month&whose=managed").await["items"].as_array().unwrap().len(), 1);
    assert_eq!(room.boss.get("/api/v1/usage?by=user,group").await.status(), 422);
    // A month without usage is listed too, as a day is.
    let all = get(&room.boss, "usage?by=month").await;
    assert_eq!(all["items"].as_array().unwrap().last().unwrap()["name"], month);
    let table = download(&room.bob, "/usage/compare/table?by=group%2Cuser").await;
    let head = "\"group\",\"user\",\"gpu_seconds\",\"cpu_seconds\",\"sessions\"\r\n";
    assert_eq!(table, format!("{head}\"vision\",\"ada\",\"0\",\"3600\",\"1\"\r\n"));
    assert_eq!(room.bob.get("/api/v1/usage?whose=everybody").await.status(), 403);
    assert_eq!(get(&room.bob, "usage").await["items"][0]["name"], "bob", "without a word one's own");
    let shown = page(&room.bob, "/usage/compare").await;
    assert!(shown.contains("My groups") && shown.contains("<bdi>ada</bdi>") && !shown.contains("<bdi>bob</bdi></b>"));
    assert!(!shown.contains("/admin/users/ada"), "a manager has no such page");
    assert!(page(&room.boss, "/usage/compare?by=group").await.contains("<bdi>vision</bdi>"));
    assert!(page(&room.boss, "/usage/compare").await.contains("/admin/users/ada"));
}

#[tokio::test]
async fn what_ended_is_listed_filtered_and_exported() {
    let room = Room::open().await;
    let shown = page(&room.ada, "/usage").await;
    assert!(
        shown.contains("<bdi>first</bdi>") && shown.contains("<bdi>second</bdi>") && !shown.contains("<bdi>his</bdi>")
    );
    assert!(shown.contains("Out of memory") && shown.contains("1 h </td>"), "{shown}");
    let filtered = page(&room.ada, "/usage?reason=idle&range=7d").await;
    assert!(filtered.contains("<bdi>first</bdi>") && !filtered.contains("<bdi>second</bdi>"));
    assert!(page(&room.ada, "/usage?app=jupyter").await.contains("No matching sessions."));
    assert!(page(&room.ada, "/usage?reason=nonsense&range=nonsense&sort=x").await.contains("<bdi>second</bdi>"));

    let listed = get(&room.ada, "sessions?state=ended&end_reason=idle&app=terminal").await;
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["name"]), (1, &json!("first")));
    let ended = listed["items"][0]["ended_at"].as_str().unwrap();
    let later = get(&room.ada, &format!("sessions?ended_from={ended}")).await;
    assert_eq!(later["items"].as_array().unwrap().len(), 2);
    assert_eq!(get(&room.ada, &format!("sessions?ended_before={ended}")).await["items"], json!([]));
    assert_eq!(room.ada.get("/api/v1/sessions?end_reason=boredom").await.status(), 422);

    let table = download(&room.ada, "/usage/table?reason=out_of_memory").await;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines[0].starts_with(r#""id","name","app""#));
    assert!(
        lines[1].contains(r#","second","terminal","out_of_memory","","#) && lines[1].contains(r#""3600","0","","1""#)
    );
    let others = download(&room.boss, "/usage/compare/table?sort=cpus").await;
    assert_eq!(
        others,
        "\"user\",\"gpu_seconds\",\"cpu_seconds\",\"sessions\"\r\n\"ada\",\"0\",\"7200\",\"2\"\r\n\"bob\",\"0\",\"3600\",\"1\"\r\n"
    );
}

#[tokio::test]
async fn a_day_that_is_none_is_said_beside_its_field() {
    let room = Room::open().await;
    for path in ["/usage", "/usage/compare"] {
        let answer = room.boss.visit(&format!("{path}?from=yesterday&to=2030-02-30")).await;
        assert_eq!(answer.status(), 422);
        let text = answer.text().await.unwrap();
        assert!(text.contains("id=\"from-error\"") && text.contains("id=\"to-error\""), "{text}");
        assert!(text.contains("value=\"yesterday\""), "what was typed is kept");
        assert_eq!(room.boss.visit(&format!("{path}/table?from=yesterday")).await.status(), 422);
        assert_eq!(room.boss.visit(&format!("{path}?cursor=x")).await.status(), 422);
    }
}

#[tokio::test]
async fn hours_that_are_limited_are_shown_with_what_is_left() {
    let room = Room::open().await;
    assert!(!page(&room.ada, "/usage").await.contains("Remaining hours"));
    let limit = json!({ "cpu_hours": 10 });
    let changed = room.boss.request("PATCH", "/api/v1/quotas/users/ada").json(&limit).send().await.unwrap();
    assert_eq!(changed.status(), 200);
    // Another one runs, and may for two hours more.
    let asked =
        json!({ "app": "terminal", "duration_seconds": 9000, "resources": { "cpus": 1, "memory_bytes": 64 << 20 } });
    assert_eq!(room.ada.post("/api/v1/sessions", &asked).await.status(), 201);
    room.portal.clock.advance(1800);
    let shown = page(&room.ada, "/usage").await;
    assert!(shown.contains("<b>5.5</b> <span>of 10 core-hours left for 30 days</span>"), "{shown}");
    assert!(shown.contains("2.5 used, 2 more reserved for running workloads; <bdi>your limit</bdi>"), "{shown}");
    let total = json!({ "cpu_hours": 100 });
    let changed = room.boss.request("PATCH", "/api/v1/quotas/cluster").json(&total).send().await.unwrap();
    assert_eq!(changed.status(), 200);
    assert!(page(&room.ada, "/usage").await.contains("5.5 used; <bdi>total of all users</bdi>"));
}
