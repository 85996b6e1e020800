//! Presets over the API and on the pages: saved, shared, used in requests, changed by versions, and honest about what
//! no longer exists.

use lyceum::model::{GroupName, Role};
use serde_json::{Value, json};

use crate::portal::{Caller, TestPortal};

/// A portal with an administrator, a manager of the group `vision`, a member of it, and somebody else.
async fn house() -> (TestPortal, [Caller; 4]) {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    let (ada, bob) = (portal.add_user("ada", Role::User).await, portal.add_user("bob", Role::User).await);
    portal.add_user("eve", Role::User).await;
    let group = portal.db().add_group(&GroupName::parse("vision").unwrap(), None, portal.by()).await.unwrap();
    portal.db().set_manager(group, ada, true, portal.by()).await.unwrap();
    portal.db().set_member(group, bob, true, portal.by()).await.unwrap();
    let callers = [
        portal.sign_in("chief").await,
        portal.sign_in("ada").await,
        portal.sign_in("bob").await,
        portal.sign_in("eve").await,
    ];
    (portal, callers)
}

async fn post(caller: &Caller, path: &str, body: Value) -> (u16, Value) {
    let answer = caller.post(path, &body).await;
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn save(caller: &Caller, body: Value) -> Value {
    let (status, made) = post(caller, "/api/v1/presets", body).await;
    assert_eq!(status, 201, "{made}");
    made
}

/// The fields of a rejected request, with their codes.
fn faults(problem: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    problem["errors"].as_array().unwrap().iter().map(|one| (text(&one["field"]), text(&one["code"]))).collect()
}

fn one(field: &str, code: &str) -> Vec<(String, String)> {
    vec![(field.to_owned(), code.to_owned())]
}

async fn names(caller: &Caller) -> Vec<String> {
    let list: Value = caller.get("/api/v1/presets").await.json().await.unwrap();
    list["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

const SMALL: &str = r#"{"gpus": 0, "cpus": 1, "memory_bytes": 1073741824}"#;

fn small() -> Value {
    serde_json::from_str(SMALL).unwrap()
}

#[tokio::test]
async fn a_request_takes_from_its_preset_what_it_does_not_say() {
    let (_portal, [_, ada, _, eve]) = house().await;
    let request =
        json!({ "app": "terminal", "name": "from the preset", "resources": small(), "duration_seconds": 600 });
    save(&ada, json!({ "name": "shell", "session": request })).await;
    let (status, made) = post(&ada, "/api/v1/sessions", json!({ "preset": "shell", "duration_seconds": 300 })).await;
    assert_eq!((status, &made["name"], &made["app"]), (201, &json!("from the preset"), &json!("terminal")), "{made}");
    let (status, made) = post(&ada, "/api/v1/sessions", json!({ "preset": "shell", "name": "mine" })).await;
    assert_eq!((status, &made["name"]), (201, &json!("mine")), "explicit fields win");
    let (status, problem) = post(&eve, "/api/v1/sessions", json!({ "preset": "shell" })).await;
    assert_eq!((status, faults(&problem)), (422, one("preset", "unknown_preset")));
    let (status, problem) = post(&eve, "/api/v1/sessions", json!({})).await;
    assert_eq!((status, faults(&problem)), (422, one("app", "required")));

    let job = json!({ "command": ["true"], "resources": small(), "variables": { "SEED": "7" }, "tags": ["nightly"] });
    save(&ada, json!({ "name": "shell", "job": job })).await;
    let (status, made) = post(&ada, "/api/v1/jobs", json!({ "preset": "shell", "name": "x" })).await;
    assert_eq!((status, &made["name"], &made["tags"]), (201, &json!("x"), &json!(["nightly"])), "{made}");
    let many = json!({ "job": { "preset": "shell", "command": ["true"] }, "parameters": { "lr": [1, 2] } });
    let (status, problem) = post(&ada, "/api/v1/sweeps", many).await;
    assert_eq!(status, 422, "a sweep does not silently ignore a preset: {problem}");
}

#[tokio::test]
async fn what_no_longer_exists_is_named_at_its_field() {
    let (_portal, [_, ada, ..]) = house().await;
    for (field, code, request) in [
        ("app", "unknown_app", json!({ "app": "gone" })),
        ("environment", "unknown_environment", json!({ "app": "jupyter", "environment": "gone" })),
        ("profile", "unknown_profile", json!({ "app": "terminal", "profile": "gone" })),
    ] {
        let preset = save(&ada, json!({ "name": field, "session": request })).await;
        let (status, problem) = post(&ada, "/api/v1/sessions", json!({ "preset": field })).await;
        assert_eq!(status, 422);
        assert!(faults(&problem).contains(&(field.to_owned(), code.to_owned())), "{problem}");
        let id = preset["id"].as_str().unwrap();
        let page = ada.visit(&format!("/sessions/new?preset={id}")).await.text().await.unwrap();
        assert!(page.contains(&format!("id=\"{field}-error\"")), "{field}: {page}");
        let start = ada.post_form(&format!("/presets/{id}/start"), &[("a", "b")]).await;
        assert_eq!(start.headers()["location"], format!("/sessions/new?preset={id}"), "the form says what is wrong");
    }
    let live: Value = ada.get("/api/v1/sessions").await.json().await.unwrap();
    assert_eq!(live["items"], json!([]), "nothing was started instead");
}

#[tokio::test]
async fn a_group_shares_its_presets_and_its_managers_keep_them() {
    let (_portal, [chief, ada, bob, eve]) = house().await;
    let request = json!({ "app": "terminal", "resources": small() });
    let shared = save(&ada, json!({ "name": "<b>’ & team", "group": "vision", "session": request })).await;
    assert_eq!((names(&bob).await.len(), names(&eve).await.len(), names(&chief).await.len()), (1, 0, 1));
    for caller in [&bob, &eve] {
        let (status, problem) =
            post(caller, "/api/v1/presets", json!({ "name": "x", "group": "vision", "session": request })).await;
        assert_eq!((status, faults(&problem)), (422, one("group", "unknown_group")));
    }
    let path = format!("/api/v1/presets/{}", shared["id"].as_str().unwrap());
    assert_eq!(bob.delete(&path).await.status(), 403);
    assert_eq!(eve.delete(&path).await.status(), 404);
    let version = ada.get(&path).await.headers()["etag"].to_str().unwrap().to_owned();
    let change = async |caller: &Caller, body: Value| {
        let sent = caller.request("PATCH", &path).header("if-match", &version).json(&body).send().await.unwrap();
        sent.status().as_u16()
    };
    assert_eq!(change(&bob, json!({ "name": "y" })).await, 403);
    assert_eq!(change(&ada, json!({ "name": "team" })).await, 200);
    assert_eq!(change(&chief, json!({ "name": "z" })).await, 412, "another version");
    let (status, made) = post(&bob, "/api/v1/sessions", json!({ "preset": "team" })).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(chief.delete(&path).await.status(), 204);
}

#[tokio::test]
async fn a_preset_stores_no_secrets_and_is_bounded() {
    let (_portal, [_, ada, ..]) = house().await;
    let job = json!({ "command": ["true"], "variables": { "HF_TOKEN": "x" } });
    let (status, problem) = post(&ada, "/api/v1/presets", json!({ "name": "x", "job": job })).await;
    assert_eq!((status, faults(&problem)), (422, one("job.variables", "secret")));
    let nested = json!({ "preset": "y", "app": "terminal" });
    let (_, problem) = post(&ada, "/api/v1/presets", json!({ "name": "x", "session": nested })).await;
    assert_eq!(faults(&problem), one("session.preset", "not_available"));
    let (_, problem) = post(&ada, "/api/v1/presets", json!({ "name": "x" })).await;
    assert_eq!(faults(&problem), one("session", "required"));
    for number in 0..50 {
        save(&ada, json!({ "name": format!("preset {number}"), "session": { "app": "terminal" } })).await;
    }
    let (_, problem) = post(&ada, "/api/v1/presets", json!({ "name": "x", "session": { "app": "terminal" } })).await;
    assert_eq!(faults(&problem), one("name", "too_many"));
}

#[tokio::test]
async fn the_forms_save_and_fill_and_the_settings_page_keeps() {
    let (_portal, [_, ada, ..]) = house().await;
    let fields = [
        ("app", "terminal"),
        ("profile", "custom"),
        ("gpus", "0"),
        ("cpus", "1"),
        ("memory", "1 GiB"),
        ("name", "’shell’"),
        ("preset_name", "my <shell>"),
    ];
    let saved = ada.post_form("/sessions/presets", &fields).await;
    assert_eq!(saved.status(), 303);
    let place = saved.headers()["location"].to_str().unwrap().to_owned();
    let page = ada.visit(&place).await.text().await.unwrap();
    assert!(page.contains("’shell’") && page.contains("my &#60;shell&#62;"), "{page}");
    let again = ada.post_form("/sessions/presets", &fields).await;
    assert_eq!(again.status(), 422, "the name is in use");
    let job = [
        ("work", "command"),
        ("command", "python train.py"),
        ("profile", "custom"),
        ("gpus", "0"),
        ("cpus", "1"),
        ("memory", "1 GiB"),
        ("preset_name", "nightly"),
    ];
    let saved = ada.post_form("/jobs/presets", &job).await;
    assert_eq!(saved.status(), 303);
    let filled = ada.visit(saved.headers()["location"].to_str().unwrap()).await.text().await.unwrap();
    assert!(filled.contains("value=\"python train.py\""), "{filled}");

    let home = ada.visit("/").await.text().await.unwrap();
    let id = place.split('=').nth(1).unwrap();
    assert!(home.contains(&format!("/presets/{id}/start")) && !home.contains("nightly"), "{home}");
    let key = [("idempotency_key", "0190a1b2")];
    let first = ada.post_form(&format!("/presets/{id}/start"), &key).await;
    let second = ada.post_form(&format!("/presets/{id}/start"), &key).await;
    assert_eq!(
        (first.status(), first.headers()["location"].clone()),
        (second.status(), second.headers()["location"].clone())
    );

    let renamed = [("preset_name", "shell"), ("preset_group", "")];
    let answer = ada.post_form(&format!("/settings/presets/{id}"), &renamed).await;
    assert_eq!(answer.headers()["location"], "/settings?done=preset#presets");
    let shared = [("preset_name", "shell"), ("preset_group", "vision")];
    assert_eq!(ada.post_form(&format!("/settings/presets/{id}"), &shared).await.status(), 303);
    assert_eq!(ada.post_form(&format!("/settings/presets/{id}/remove"), &[("a", "b")]).await.status(), 303);
    assert_eq!(names(&ada).await, ["nightly"]);
}
