//! What people and machines get wrong: bad requests name their field and create nothing, and
//! a portal that cannot serve says why and what to do.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
};

use lyceum::helper::identity::Identity;
use serde_json::{Value, json};

use super::House;

#[tokio::test]
async fn bad_requests_name_their_field_and_create_nothing() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let long = "x".repeat(10_240);
    let sized = |name: &str, value: Value| json!({ "app": "terminal", "resources": { name: value } });
    let with = |name: &str, value: Value| json!({ "app": "terminal", name: value });
    let invalid = [
        (json!({ "app": "vscode" }), "app"),
        (json!({ "app": "" }), "app"),
        (json!({}), "app"),
        (with("app", json!(7)), "app"),
        (with("colour", json!("blue")), "colour"),
        (sized("tpus", json!(1)), "resources.tpus"),
        (sized("gpus", json!(-1)), "resources.gpus"),
        (sized("gpus", json!(1.5)), "resources.gpus"),
        (sized("gpus", json!(1e30)), "resources.gpus"),
        (sized("gpus", json!("1")), "resources.gpus"),
        (sized("gpu_model", json!(long)), "resources.gpu_model"),
        (sized("cpus", json!(0)), "resources.cpus"),
        (sized("cpus", json!(i64::MIN)), "resources.cpus"),
        (sized("memory_bytes", json!(-5)), "resources.memory_bytes"),
        (sized("memory_bytes", json!(1024)), "resources.memory_bytes"),
        (with("name", json!("a\nb")), "name"),
        (with("name", json!(long)), "name"),
        (with("name", json!("\u{202e}gnp")), "name"),
        (with("duration_seconds", json!(-1)), "duration_seconds"),
        (with("duration_seconds", json!(59)), "duration_seconds"),
        (with("duration_seconds", json!(i64::MAX)), "duration_seconds"),
        (with("profile", json!("../etc")), "profile"),
        (with("group", json!("root")), "group"),
        (with("modules", json!(["cuda"])), "modules"),
        (with("working_directory", json!("../../etc")), "working_directory"),
        (with("working_directory", json!("a\nb")), "working_directory"),
        (with("working_directory", json!(long)), "working_directory"),
        (with("options", json!({ "log_directory": "runs" })), "options.log_directory"),
        (json!({ "app": "tensorboard", "environment": "../x" }), "environment"),
    ];
    for path in ["/sessions", "/admission"] {
        for (request, field) in &invalid {
            let (status, body) = person.ask(&house, "POST", path, request).await;
            assert_eq!((status, &body["errors"][0]["field"]), (422, &json!(field)), "{request}: {body}");
            assert!(!body["errors"][0]["message"].as_str().unwrap().is_empty());
        }
    }
    for (name, value) in [("gpus", 5), ("cpus", 65), ("cpus", i64::MAX), ("memory_bytes", i64::MAX)] {
        let (status, body) = person.ask(&house, "POST", "/sessions", &sized(name, json!(value))).await;
        let reason = body["reasons"][0]["code"].as_str().unwrap_or_default();
        assert!(status == 409 && reason.contains(name.trim_end_matches("_bytes")), "{name} {value}: {body}");
    }
    let (status, body) = person.ask(&house, "POST", "/sessions", &with("duration_seconds", json!(86_400))).await;
    assert_eq!((status, &body["reasons"][0]["code"]), (409, &json!("quota.duration.user")), "{body}");
    for text in ["{\"app\": NaN}", "{", "[]", "", "{\"app\":\"terminal\",\"resources\":{\"gpus\":NaN}}"] {
        let request = person.request(&house, "POST", "/api/v1/sessions").header("content-type", "application/json");
        let status = request.body(text).send().await.unwrap().status().as_u16();
        assert!(status == 400 || status == 422, "{text}: {status}");
    }
    assert_eq!(person.get(&house, "/sessions").await["items"], json!([]), "nothing was created");
    assert_eq!(house.intervals().await.len(), 0);

    // What looks hostile and is only a name stays a name.
    let odd = "<img src=x onerror=alert(1)> $(id); #SBATCH '\"";
    let id = person.start(&house, with("name", json!(odd))).await;
    assert_eq!(person.state(&house, id, "running").await["name"], odd);
    let page = person.request(&house, "GET", &format!("/sessions/{id}/card")).send().await.unwrap();
    assert!(!page.text().await.unwrap().contains("<img src=x"));
}

#[tokio::test]
async fn a_directory_must_be_there_and_open_to_its_user() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, other) = (house.person(), house.person());
    // The first session makes the home.
    for who in [&person, &other] {
        let id = who.run(&house, "terminal").await;
        who.end(&house, id).await;
    }
    let account = Identity::look_up(&format!("ly-{}", person.name)).unwrap();
    let home = account.home.clone();
    for (name, mode) in [("work", 0o755), ("closed", 0o000), ("logs", 0o755)] {
        fs::create_dir(home.join(name)).unwrap();
        fs::set_permissions(home.join(name), fs::Permissions::from_mode(mode)).unwrap();
        chown(home.join(name), Some(account.uid), Some(account.gid)).unwrap();
    }
    fs::write(home.join("file"), "").unwrap();
    symlink("/root", home.join("link")).unwrap();
    let absolute = home.join("work").to_string_lossy().into_owned();
    let others = format!("/home/ly-{}", other.name);

    let ask = async |path: &str, request: Value| person.ask(&house, "POST", path, &request).await;
    for (directory, code) in [
        ("nowhere", "not_found"),
        ("/nowhere/at/all", "not_found"),
        ("file", "not_a_directory"),
        ("file/below", "not_a_directory"),
        ("closed", "not_allowed"),
        ("closed/below", "not_allowed"),
        ("link", "not_allowed"),
        ("/root", "not_allowed"),
        (others.as_str(), "not_allowed"),
        (house.paths().private.to_str().unwrap(), "not_allowed"),
    ] {
        for path in ["/admission", "/sessions"] {
            let (status, body) = ask(path, json!({ "app": "web", "working_directory": directory })).await;
            let error = &body["errors"][0];
            assert_eq!((status, &error["field"]), (422, &json!("working_directory")), "{directory}: {body}");
            assert_eq!(error["code"], code, "{directory}: {body}");
        }
    }
    let board = |logs: &str| json!({ "app": "tensorboard", "options": { "log_directory": logs } });
    let (status, body) = ask("/sessions", board("closed")).await;
    assert_eq!((status, &body["errors"][0]["field"]), (422, &json!("options.log_directory")), "{body}");
    assert_eq!(ask("/sessions", board("/usr/not-yet")).await.0, 422, "nobody could ever write there");
    assert_eq!(ask("/admission", board("logs")).await.0, 200);
    assert_eq!(ask("/admission", board("logs/run-1")).await.0, 200, "a training may still make it");
    assert_eq!(person.get(&house, "/sessions").await["items"].as_array().unwrap().len(), 1, "nothing was created");

    for directory in ["work", "~/work", absolute.as_str()] {
        let id = person.start(&house, json!({ "app": "web", "working_directory": directory })).await;
        person.state(&house, id, "running").await;
        assert_eq!(person.visit(&house, id, "/facts").await.1["cwd"], json!(absolute), "{directory}");
        person.end(&house, id).await;
    }
}

#[tokio::test]
async fn a_portal_that_cannot_serve_says_what_to_do() {
    let Some(mut house) = House::open(&[]).await else { return };
    let address = house.url.trim_start_matches("http://").to_owned();
    let refused = |house: &House, arguments: &[&str]| {
        let (served, said) = house.run(arguments);
        assert!(!served, "{said}");
        said
    };
    let said = refused(&house, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(said.contains("another `lyceum serve` uses this data directory") && said.contains("--data"), "{said}");
    let second = House::new(&[]);
    let said = refused(&second, &["serve", "--listen", &address]);
    assert!(said.contains(&format!("listening on {address}")) && said.contains("--listen"), "{said}");
    drop(second);
    assert_eq!(house.admin().get(&house, "/me").await["name"], "admin", "the first one was not disturbed");

    house.terminate().await;
    let private = house.paths().private;
    let mode = |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&private, 0o755);
    let said = refused(&house, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(said.contains(&format!("chmod 700 {}", private.display())), "{said}");
    mode(&private, 0o700);
    let key = private.join("keys/portal");
    mode(&key, 0o644);
    let said = refused(&house, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(said.contains(&format!("chmod 600 {}", key.display())), "{said}");
    mode(&key, 0o600);
    house.start().await;
}
