//! Lists as long as they get on a large site: every page and every answer stays small, says how much it leaves out, and
//! the pages after it show all of the rest.

use std::{collections::BTreeSet, time::Instant};

use lyceum::model::{GroupName, Role};
use serde_json::{Value, json};

use crate::{
    db::{
        copies::{ID, copy},
        ended_job, execute, new_session, waiting,
    },
    portal::{Caller, TestPortal},
};

/// The longest answer (bytes).
const MAX_ANSWER: usize = 100_000;

async fn text(caller: &Caller, path: &str) -> String {
    let begun = Instant::now();
    let answer = caller.visit(path).await;
    assert_eq!(answer.status(), 200, "{path}");
    let text = answer.text().await.unwrap();
    eprintln!("{path}: {} bytes, {:?}", text.len(), begun.elapsed());
    assert!(text.len() <= MAX_ANSWER, "{path}: {} bytes", text.len());
    text
}

/// What stands behind `marker` on a page, up to the next quotation mark or slash.
fn found(page: &str, marker: &str) -> Vec<String> {
    page.split(marker).skip(1).map(|rest| rest.split(['"', '/']).next().unwrap().to_owned()).collect()
}

/// Follows the pages of a list; answers what stands behind `marker`, and the number of items that the first page
/// says are left.
async fn follow(caller: &Caller, path: &str, list: &str, marker: &str) -> (BTreeSet<String>, usize) {
    let (mut all, mut next, mut left) = (BTreeSet::new(), Some(path.to_owned()), None);
    while let Some(path) = next {
        let page = text(caller, &path).await;
        let before = all.len();
        all.extend(found(&page, marker));
        assert!(before < all.len(), "{path} shows something new");
        let links = page.split("<a ").map(|link| link.split('>').next().unwrap());
        let link = links
            .filter(|link| link.contains("href="))
            .find(|link| link.contains("rel=\"next\"") && link.contains(&format!("?{list}=")));
        next = link.and_then(|link| link.split("href=\"").nth(1)?.split('"').next().map(str::to_owned));
        left = left.or_else(|| page.split(" more</span>").next()?.rsplit('>').next()?.parse().ok());
    }
    (all, left.unwrap_or(0))
}

#[tokio::test]
async fn pages_show_a_part_and_lead_to_the_rest() {
    let portal = TestPortal::start().await;
    portal.add_user("boss", Role::Admin).await;
    let ada = portal.add_user("ada", Role::User).await;
    let (boss, browser) = (portal.sign_in("boss").await, portal.sign_in("ada").await);
    let db = portal.db();

    portal.token(&browser, &["read"]).await;
    let mine = format!("user_id = '{ada}'");
    copy(db, "tokens", &mine, 999, &[("id", ID), ("secret_hash", "'hash' || i")]).await;
    let group = db.add_group(&GroupName::parse("vision").unwrap(), None, portal.by()).await.unwrap();
    copy(
        db,
        "groups",
        &format!("id = '{group}'"),
        499,
        &[("id", ID), ("name", "'lab' || i"), ("subject", "'lab' || i")],
    )
    .await;
    execute(db, &format!("INSERT INTO group_members (group_id, user_id) SELECT id, '{ada}' FROM groups")).await;
    let session = new_session(ada, 0);
    waiting(db, &session).await;
    copy(db, "sessions", &format!("id = '{}'", session.id), 99, &[("id", ID), ("name", "'work ' || i")]).await;

    let (tokens, left) = follow(&browser, "/settings", "tokens", "/settings/tokens/").await;
    assert_eq!((tokens.len(), left), (1000, 950));
    let page = text(&browser, "/settings").await;
    assert!(page.contains("<span>450 more</span>"), "groups are counted");
    let (groups, _) = follow(&browser, "/settings", "groups", "/settings/groups/").await;
    assert_eq!(groups.len(), 500);
    let (sessions, left) = follow(&browser, "/", "sessions", "data-card=\"").await;
    assert_eq!((sessions.len(), left), (100, 80));
    let gone = text(&browser, "/settings?tokens=gone&groups=x").await;
    assert_eq!(found(&gone, "Revoke: ").len(), 50, "it begins anew");

    let path = "/admin/users/ada";
    let (tokens, _) = follow(&boss, path, "tokens", "/admin/users/ada/tokens/").await;
    assert_eq!(tokens.len(), 1000);
    let (groups, _) = follow(&boss, path, "groups", "/admin/groups/").await;
    assert_eq!(groups.len(), 500);
    let (sessions, left) = follow(&boss, path, "sessions", "data-card=\"").await;
    assert_eq!((sessions.len(), left), (100, 80));
    text(&boss, "/admin/quotas").await;
    assert!(text(&boss, "/api/v1/users/ada").await.contains("lab499"));
}

#[tokio::test]
async fn a_sweep_of_a_thousand_tasks() {
    let portal = TestPortal::start().await;
    let owner = portal.add_user("ada", Role::User).await;
    let ada = portal.sign_in("ada").await;
    let asked = json!({ "job": { "command": ["true"], "time_limit_seconds": 60 }, "array": "0-999", "parallel": 1 });
    let made: Value = ada.post("/api/v1/sweeps", &asked).await.json().await.unwrap();
    assert_eq!(made["items"].as_array().unwrap().len(), 50, "{made}");
    let id = made["id"].as_str().unwrap();
    let db = portal.db();
    execute(db, &format!("UPDATE jobs SET sweep_id = NULL, sweep_index = NULL WHERE sweep_id = '{id}'")).await;
    let job = ended_job(db, owner, "task").await.job;
    let attempt = format!("id = (SELECT session_id FROM jobs WHERE id = '{job}')");
    copy(db, "sessions", &attempt, 1000, &[("id", ID), ("job_id", ID)]).await;
    let of_sweep = format!("'{id}'");
    let changes = [("id", ID), ("session_id", ID), ("sweep_id", &*of_sweep), ("sweep_index", "i - 1")];
    copy(db, "jobs", &format!("id = '{job}'"), 1000, &changes).await;

    let (jobs, left) = follow(&ada, &format!("/sweeps/{id}"), "tasks", "href=\"/jobs/").await;
    assert_eq!((jobs.len(), left), (1000, 900));
    let page = text(&ada, &format!("/sweeps/{id}")).await;
    assert!(page.contains("1000 succeeded"), "all of them are counted");

    let (mut indices, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let more = cursor.as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let answer = text(&ada, &format!("/api/v1/sweeps/{id}?limit=300{more}")).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["states"], json!({ "succeeded": 1000 }));
        indices.extend(answer["items"].as_array().unwrap().iter().map(|task| task["index"].as_i64().unwrap()));
        cursor = answer["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(indices, (0..1000).collect::<Vec<i64>>());
    for wrong in ["limit=0", "cursor=x"] {
        assert_eq!(ada.get(&format!("/api/v1/sweeps/{id}?{wrong}")).await.status(), 422, "{wrong}");
    }
}

#[tokio::test]
async fn usage_of_many_people_comes_in_pages() {
    let portal = TestPortal::start().await;
    portal.add_user("boss", Role::Admin).await;
    let ada = portal.add_user("ada", Role::User).await;
    let boss = portal.sign_in("boss").await;
    let db = portal.db();
    copy(db, "users", &format!("id = '{ada}'"), 1199, &[("id", ID), ("name", "'u' || i"), ("subject", "'u' || i")])
        .await;
    let attempt = ended_job(db, ada, "task").await.job;
    let of_attempt = format!("session_id = (SELECT session_id FROM jobs WHERE id = '{attempt}')");
    let session = format!("id = (SELECT session_id FROM jobs WHERE id = '{attempt}')");
    copy(db, "sessions", &session, 1199, &[("id", ID), ("owner", ID), ("job_id", "NULL")]).await;
    let changes = [("session_id", ID), ("owner", ID), ("number", "1000 + i"), ("ended_at", "started_at + 3600000")];
    copy(db, "intervals", &of_attempt, 1199, &changes).await;
    portal.clock.advance(7200);

    let (mut names, mut seconds, mut cursor, mut pages) = (BTreeSet::new(), 0, Value::Null, 0);
    loop {
        let more = cursor.as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let answer = text(&boss, &format!("/api/v1/usage?whose=everybody&limit=500{more}")).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        for item in answer["items"].as_array().unwrap() {
            assert!(names.insert(item["name"].as_str().unwrap().to_owned()), "{item}");
            seconds += item["cpu_seconds"].as_i64().unwrap();
        }
        pages += 1;
        cursor = answer["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert!((1199..=1200).contains(&names.len()) && pages == 3, "{} in {pages} pages", names.len());
    assert_eq!(seconds, 1199 * 3600);
    let short: Value = boss.get("/api/v1/usage?whose=everybody").await.json().await.unwrap();
    assert_eq!((short["items"].as_array().unwrap().len(), short["next_cursor"].is_string()), (50, true));
    let table = boss.request("GET", "/api/v1/usage?whose=everybody").header("accept", "text/csv").send().await.unwrap();
    let table = table.text().await.unwrap();
    assert!(1200 <= table.lines().count(), "a table has all of them");
}
