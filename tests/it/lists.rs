//! Lists over HTTP without scripts: column heads that sort, pages that follow one another in that order, columns that stay
//! chosen, several rows changed at once, and the parts of the page of a job at addresses of their own.

use lyceum::{
    db::Db,
    model::{JobId, Role, UserId},
};
use serde_json::{Value, json};

use crate::{
    db::{begun, ended_job, execute, new_attempt, new_session, waiting},
    portal::{Caller, TestPortal},
};

async fn page(caller: &Caller, path: &str) -> String {
    let answer = caller.visit(path).await;
    assert_eq!(answer.status(), 200, "{path}");
    answer.text().await.unwrap()
}

/// The names of the rows, from the top.
fn names(page: &str) -> Vec<&str> {
    let rows = page.split("class=\"name\"").skip(1);
    rows.map(|row| row.split("<bdi>").nth(1).unwrap().split("</bdi>").next().unwrap()).collect()
}

/// The address behind the head of a column, and what it says of the order.
fn head<'a>(page: &'a str, label: &str) -> (&'a str, &'a str) {
    let mut heads = page.split("<th ").skip(1).map(|head| head.split("</th>").next().unwrap());
    let head = heads.find(|head| head.ends_with(&format!(">{label}</a>"))).unwrap();
    let between = |begin: &str| head.split(begin).nth(1).map_or("", |rest| rest.split('"').next().unwrap());
    (between("href=\""), between("aria-sort=\""))
}

async fn job(db: &Db, owner: UserId, name: &str, gpus: i64) -> JobId {
    let mut new = new_attempt(owner, name, None);
    new.spec.resources.gpus = gpus;
    begun(db, &new).await.job
}

#[tokio::test]
async fn jobs_are_sorted_by_the_links_of_their_heads() {
    let portal = TestPortal::start().await;
    let ada = portal.add_user("ada", Role::User).await;
    let browser = portal.sign_in("ada").await;
    let db = portal.db();
    for (name, gpus) in [("beta", 1), ("Alpha", 4), ("gamma", 2)] {
        job(db, ada, name, gpus).await;
    }
    let newest = page(&browser, "/jobs").await;
    assert_eq!(names(&newest), ["gamma", "Alpha", "beta"]);
    let (by_name, way) = head(&newest, "Name");
    assert_eq!((by_name, way), ("/jobs?sort=name", ""));
    let up = page(&browser, by_name).await;
    assert_eq!(names(&up), ["Alpha", "beta", "gamma"]);
    let (down, way) = head(&up, "Name");
    assert_eq!((down, way), ("/jobs?sort=-name", "ascending"));
    let down = page(&browser, down).await;
    assert_eq!((names(&down), head(&down, "Name").1), (vec!["gamma", "beta", "Alpha"], "descending"));
    // The largest number first; what the list is narrowed to stays.
    let (by_gpus, _) = head(&up, "GPUs");
    assert_eq!(names(&page(&browser, by_gpus).await), ["Alpha", "gamma", "beta"]);
    let narrowed = page(&browser, "/jobs?find=a&state=live").await;
    assert_eq!(head(&narrowed, "Name").0, "/jobs?find=a&amp;state=live&amp;sort=name".replace("&amp;", "&#38;"));
    assert_eq!(names(&page(&browser, "/jobs?sort=nothing").await), ["gamma", "Alpha", "beta"]);
    assert_eq!(browser.visit("/jobs?sort=name&cursor=x").await.status(), 422);

    // The API sorts in the same way, and a cursor is one of its order alone.
    let answer: Value = browser.get("/api/v1/jobs?sort=-gpus&limit=2").await.json().await.unwrap();
    let listed: Vec<&str> =
        answer["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(listed, ["Alpha", "gamma"]);
    let cursor = answer["next_cursor"].as_str().unwrap();
    let rest: Value =
        browser.get(&format!("/api/v1/jobs?sort=-gpus&limit=2&cursor={cursor}")).await.json().await.unwrap();
    assert_eq!((&rest["items"][0]["name"], &rest["next_cursor"]), (&json!("beta"), &Value::Null));
    assert_eq!(browser.get(&format!("/api/v1/jobs?cursor={cursor}")).await.status(), 422);
    let refused: Value = browser.get("/api/v1/jobs?sort=size").await.json().await.unwrap();
    assert_eq!(refused["errors"][0]["field"], "sort", "{refused}");
    assert_eq!(browser.get("/api/v1/jobs?owner=*&sort=gpus").await.status(), 422, "others' jobs are not sorted by it");
    // By their progress there are the running ones alone, which the page says.
    let ids = "SELECT id FROM jobs WHERE name IN ('beta', 'gamma')";
    execute(db, &format!("UPDATE sessions SET state = 'running', ready_at = 1 WHERE job_id IN ({ids})")).await;
    let by_progress = page(&browser, head(&newest, "Progress").0).await;
    assert_eq!(names(&by_progress), ["gamma", "beta"]);
    assert!(by_progress.contains("Only running jobs can be sorted by progress"), "{by_progress}");
    assert_eq!(names(&page(&browser, "/jobs?sort=-state").await), ["gamma", "beta", "Alpha"]);
    let one: Value = browser.get("/api/v1/jobs?sort=progress&limit=1").await.json().await.unwrap();
    let next = format!("/api/v1/jobs?sort=progress&limit=1&cursor={}", one["next_cursor"].as_str().unwrap());
    let other: Value = browser.get(&next).await.json().await.unwrap();
    assert_eq!((&one["items"][0]["name"], &other["items"][0]["name"]), (&json!("beta"), &json!("gamma")));
    assert_eq!(other["next_cursor"], Value::Null);
    let ended: Value = browser.get("/api/v1/jobs?sort=progress&state=ended").await.json().await.unwrap();
    assert_eq!(ended["items"], json!([]));
    // What the portal submitted for her is listed where she asks for it, and marked.
    execute(db, "UPDATE jobs SET helper = TRUE WHERE name = 'beta'").await;
    assert_eq!(names(&page(&browser, "/jobs").await), ["gamma", "Alpha"]);
    let all = page(&browser, "/jobs?helpers=yes").await;
    assert_eq!((names(&all).len(), all.matches(">helper job<").count()), (3, 1), "{all}");
    let found: Value = browser.get("/api/v1/jobs?helpers=true&search=beta").await.json().await.unwrap();
    assert_eq!(found["items"][0]["helper"], json!(true), "{found}");
    assert_eq!(names(&page(&browser, "/search?find=beta").await), Vec::<&str>::new());
    assert!(!page(&browser, "/").await.contains("beta</bdi>"));
    for list in ["sessions", "sweeps", "datasets", "models"] {
        assert_eq!(browser.get(&format!("/api/v1/{list}?sort=name")).await.status(), 200, "{list}");
        assert_eq!(browser.get(&format!("/api/v1/{list}?sort=x")).await.status(), 422, "{list}");
        page(&browser, &format!("/{list}?sort=-name")).await;
    }
}

#[tokio::test]
async fn columns_stay_as_they_were_chosen() {
    let portal = TestPortal::start().await;
    let ada = portal.add_user("ada", Role::User).await;
    portal.add_user("bob", Role::User).await;
    let browser = portal.sign_in("ada").await;
    job(portal.db(), ada, "train", 1).await;
    let shows =
        async |caller: &Caller, label: &str| page(caller, "/jobs").await.contains(&format!("data-label=\"{label}\""));
    assert!(shows(&browser, "Progress").await && !shows(&browser, "Size").await, "the usual columns");
    let chosen = [("list", "jobs"), ("back", "/jobs?sort=name"), ("column", "size"), ("column", "x"), ("do", "save")];
    let answer = browser.post_form("/settings/columns", &chosen).await;
    assert_eq!((answer.status().as_u16(), answer.headers()["location"].to_str().unwrap()), (303, "/jobs?sort=name"));
    assert!(shows(&browser, "Size").await && !shows(&browser, "Progress").await);
    let elsewhere = portal.sign_in("ada").await;
    assert!(shows(&elsewhere, "Size").await, "in every browser");
    let away = [("list", "jobs"), ("back", "https://elsewhere.org/"), ("do", "reset")];
    let answer = browser.post_form("/settings/columns", &away).await;
    assert_eq!(answer.headers()["location"], "/jobs");
    assert!(shows(&browser, "Progress").await && !shows(&browser, "Size").await);
    assert_eq!(browser.post_form("/settings/columns", &[("list", "users")]).await.status(), 422);
}

#[tokio::test]
async fn several_rows_are_changed_at_once() {
    let portal = TestPortal::start().await;
    let ada = portal.add_user("ada", Role::User).await;
    let browser = portal.sign_in("ada").await;
    let db = portal.db();
    let (one, other) = (new_session(ada, 0), new_session(ada, 0));
    waiting(db, &one).await;
    waiting(db, &other).await;
    let (one, other) = (one.id.to_string(), other.id.to_string());
    let asked =
        [("do", "stop"), ("item", one.as_str()), ("item", &other), ("item", "x"), ("back", "/sessions?sort=name")];
    let answer = browser.post_form("/sessions/selection", &asked).await;
    assert_eq!(answer.headers()["location"], "/sessions?sort=name&done=stop-2");
    let told = page(&browser, "/sessions?sort=name&done=stop-2").await;
    assert!(told.contains("Stopping 2 sessions."), "{told}");
    assert!(page(&browser, "/sessions?state=ended").await.contains("Stopped"));

    let (live, ended) = (job(db, ada, "live", 0).await, ended_job(db, ada, "ended").await.job);
    let (live, ended) = (live.to_string(), ended.to_string());
    let asked = [("do", "delete"), ("item", live.as_str()), ("item", &ended), ("back", "/jobs")];
    let answer = browser.post_form("/jobs/selection", &asked).await;
    let location = answer.headers()["location"].to_str().unwrap();
    assert!(location.starts_with("/jobs?done=delete-1&failed=yes&deleted="), "{location}");
    let told = page(&browser, location).await;
    assert!(told.contains("1 job deleted.") && told.contains("Some jobs were not changed"), "{told}");
    let undo = format!("<input type=\"hidden\" name=\"item\" value=\"{ended}\">");
    assert!(told.contains("Undo") && told.contains(&undo) && told.contains("Trash: 1 job"), "{told}");
    assert_eq!(browser.get(&format!("/api/v1/jobs/{ended}")).await.status(), 404);
    let asked = [("do", "restore"), ("item", ended.as_str()), ("back", "/jobs")];
    let answer = browser.post_form("/jobs/selection", &asked).await;
    assert_eq!(answer.headers()["location"], "/jobs?done=restore-1");
    let told = page(&browser, "/jobs?done=restore-1").await;
    assert!(told.contains("1 job restored.") && !told.contains("Trash:"), "{told}");
    // Nothing that was selected is not a success.
    let told = page(&browser, "/jobs?done=delete-0").await;
    assert!(told.contains("Nothing was selected.") && !told.contains("0 jobs"), "{told}");
    for list in ["sweeps", "datasets", "models"] {
        assert_eq!(browser.post_form(&format!("/{list}/selection"), &[("do", "burn")]).await.status(), 422, "{list}");
    }
}

#[tokio::test]
async fn what_is_deleted_is_restored_over_rest() {
    let portal = TestPortal::start().await;
    let ada = portal.add_user("ada", Role::User).await;
    portal.add_user("bob", Role::User).await;
    let (browser, bob) = (portal.sign_in("ada").await, portal.sign_in("bob").await);
    let job = ended_job(portal.db(), ada, "train").await.job;
    let path = format!("/api/v1/jobs/{job}");
    assert_eq!(browser.delete(&path).await.status(), 204);
    assert_eq!(
        (browser.delete(&path).await.status(), browser.get(&path).await.status()),
        (404.try_into().unwrap(), 404.try_into().unwrap())
    );
    let trash: Value = browser.get("/api/v1/trash").await.json().await.unwrap();
    assert_eq!((&trash["jobs"], &trash["items"][0]["id"]), (&json!(1), &json!(job.to_string())), "{trash}");
    let restore = format!("{path}/restore");
    let restored = async |caller: &Caller| caller.request("POST", &restore).send().await.unwrap();
    assert_eq!(restored(&bob).await.status(), 404);
    let answer = restored(&browser).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.json::<Value>().await.unwrap()["name"], "train");
    let again = restored(&browser).await;
    assert_eq!(again.status(), 409);
    assert!(again.text().await.unwrap().contains("It has not been deleted."));

    assert_eq!(browser.delete(&path).await.status(), 204);
    assert_eq!(bob.delete("/api/v1/trash").await.status(), 204);
    assert_eq!(browser.post_form("/trash/empty", &[("back", "/runs")]).await.headers()["location"], "/runs");
    assert_eq!(restored(&browser).await.status(), 404, "it is gone for good");
}

#[tokio::test]
async fn the_parts_of_a_job_have_addresses() {
    let portal = TestPortal::start().await;
    let ada = portal.add_user("ada", Role::User).await;
    let browser = portal.sign_in("ada").await;
    let id = ended_job(portal.db(), ada, "train").await.job;
    execute(portal.db(), &format!("UPDATE jobs SET notes = 'a note' WHERE id = '{id}'")).await;
    let all = ["", "?tab=metrics", "?tab=log", "?tab=system", "?tab=config"];
    for (tab, texts) in [
        ("", &["Timeline", "a note", "Last lines of the log", "Edit name, notes, tags and visibility"][..]),
        ("?tab=metrics", &["data-charts", "<noscript>"]),
        ("?tab=log", &["Find in the log", "final"]),
        ("?tab=system", &["data-part=\"hardware\"", "Size"]),
        ("?tab=config", &["Command", "<code>A</code>", "Copy the ID", "Details"]),
    ] {
        let page = page(&browser, &format!("/jobs/{id}{tab}")).await;
        // What one looks for first is on each of them.
        for text in texts.iter().chain(&["Succeeded", "Resume as attempt 2", "Delete", "Clone"]) {
            assert!(page.contains(text), "{tab} lacks {text}:\n{page}");
        }
        let current = page
            .split("aria-current=\"page\"")
            .filter(|before| before.ends_with(&format!("href=\"/jobs/{id}{tab}\" ")));
        assert_eq!(current.count(), 1, "{tab} is marked");
        for other in all {
            assert!(page.contains(&format!("href=\"/jobs/{id}{other}\"")), "{tab} leads to {other}");
        }
    }
    assert!(page(&browser, &format!("/jobs/{id}?tab=nothing")).await.contains("Timeline"));
}
