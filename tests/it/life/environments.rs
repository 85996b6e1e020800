//! Environments that an administrator adds while the portal runs: built from a list of packages, used by jobs that were
//! submitted before they were ready, changed, and removed with their files. Packages come from a folder of wheels.

use serde_json::{Value, json};

use super::{House, Person, eventually, jobs};
use crate::{environments::world::World, needs};

/// A portal that builds from wheels of ours, whose default environment is the machine's Python.
async fn house(world: &World) -> Option<House> {
    if !needs::root() {
        return None;
    }
    let wheels = world.wheels(&["ly_one", "ly_two", "jupyterlab==4.1", "ipykernel", "tensorboard"], 0);
    let mut house = House::new(&[]);
    house.configure("[[environments.list]]\nname = 'default'\npython = '/usr/bin/python3'\n");
    house.set("LYCEUM_ENVIRONMENTS__BUILD", "auto");
    house.set("LYCEUM_ENVIRONMENTS__WHEELS", &wheels);
    house.start().await;
    Some(house)
}

async fn reaches(house: &House, admin: &Person, name: &str, state: &str) -> Value {
    eventually(&format!("{name} is {state}"), async || {
        let found = admin.get(house, &format!("/environments/{name}")).await;
        (found["state"] == state).then_some(found)
    })
    .await
}

fn import(module: &str, environment: &str) -> Value {
    let code = format!("import {module}; print({module}.NAME)");
    json!({ "command": ["python", "-c", code], "environment": environment, "resources": { "cpus": 1, "memory_bytes": 1 << 28 } })
}

#[tokio::test]
async fn added_used_at_once_changed_and_removed() {
    let world = World::new();
    let Some(mut house) = house(&world).await else { return };
    let (admin, ada) = (house.admin(), house.person());
    let new = json!({ "name": "demo", "title": "Demo", "packages": ["ly-one"] });
    // Twenty administrators at once: one adds it.
    let asked = futures_util::future::join_all((0..20).map(|_| admin.ask(&house, "POST", "/environments", &new))).await;
    let mut statuses: Vec<u16> = asked.iter().map(|(status, _)| *status).collect();
    statuses.sort_unstable();
    assert_eq!((statuses[0], statuses[1], statuses[19]), (201, 422, 422), "{asked:?}");

    // It is asked for before it is there.
    let early = jobs::submit(&house, &ada, import("ly_one", "demo")).await;
    let (status, _) = ada.ask(&house, "DELETE", "/environments/demo", &Value::Null).await;
    assert_eq!(status, 403);
    let job = jobs::ended(&house, &ada, &early, "exited").await;
    assert_eq!(job["exit_code"], 0);
    assert_eq!(jobs::log(&house, &ada, &format!("{early}/log")).await, "ly_one\n");
    let demo = reaches(&house, &admin, "demo", "ready").await;
    assert_eq!((&demo["origin"], &demo["packages"]), (&json!("added"), &json!(["ly-one"])), "{demo}");

    // What runs keeps its packages, and the environment.
    let mut long = import("ly_one", "demo");
    long["command"][2] = json!("import ly_one, time, sys; print('up', flush=True); sys.stdin.read(); time.sleep(600)");
    let long = jobs::submit(&house, &ada, long).await;
    jobs::state(&house, &ada, &long, "running").await;
    let (status, refused) = admin.ask(&house, "DELETE", "/environments/demo", &Value::Null).await;
    assert!(status == 409 && refused["detail"].as_str().unwrap().contains("have not ended use"), "{refused}");
    let change = json!({ "title": "Demo", "packages": ["ly-one", "ly-two"] });
    let (status, changed) = admin.ask(&house, "PUT", "/environments/demo", &change).await;
    assert_eq!((status, &changed["state"]), (200, &json!("building")), "{changed}");
    let second = jobs::submit(&house, &ada, import("ly_two", "demo")).await;
    jobs::ended(&house, &ada, &second, "exited").await;
    assert_eq!(jobs::log(&house, &ada, &format!("{second}/log")).await, "ly_two\n");
    assert_eq!(jobs::job(&house, &ada, &long).await["state"], "running");
    let (_, job) = ada.ask(&house, "POST", &format!("/jobs/{long}/cancel"), &Value::Null).await;
    assert!(job["id"].is_string(), "{job}");
    jobs::ended(&house, &ada, &long, "stopped_by_owner").await;

    // For some groups only: nobody else sees it or starts in it, and nothing is built again.
    let theirs = json!({ "title": "Demo", "packages": ["ly-one", "ly-two"], "groups": ["vision"], "position": 5 });
    let (status, changed) = admin.ask(&house, "PUT", "/environments/demo", &theirs).await;
    assert_eq!(
        (status, &changed["state"], &changed["groups"]),
        (200, &json!("ready"), &json!(["vision"])),
        "{changed}"
    );
    assert_eq!(ada.get(&house, "/environments").await["items"].as_array().unwrap().len(), 1);
    assert_eq!(ada.ask(&house, "GET", "/environments/demo", &Value::Null).await.0, 404);
    let (status, refused) = ada.ask(&house, "POST", "/jobs", &import("ly_one", "demo")).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("environment")), "{refused}");
    let listed = admin.get(&house, "/environments").await;
    let names: Vec<_> = listed["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["demo", "default"], "those of the file have 10, 20 and so on");

    // A portal that is killed knows it again.
    house.kill();
    house.start().await;
    reaches(&house, &admin, "demo", "ready").await;
    let environments = house.paths().shared.join("environments");
    let folders = || {
        let entries = std::fs::read_dir(&environments).unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("demo-")).count()
    };
    assert_eq!(folders(), 2, "that of each list of packages");
    assert_eq!(admin.ask(&house, "DELETE", "/environments/demo", &Value::Null).await.0, 204);
    assert_eq!(folders(), 0);
    let (status, refused) = ada.ask(&house, "POST", "/jobs", &import("ly_one", "demo")).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("environment")), "{refused}");
    assert_eq!(admin.get(&house, "/environments").await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn one_that_cannot_be_built_says_why_and_is_mended() {
    let world = World::new();
    let Some(house) = house(&world).await else { return };
    let admin = house.admin();
    let new = json!({ "name": "wrong", "packages": ["ly-absent", "ly-one"] });
    assert_eq!(admin.ask(&house, "POST", "/environments", &new).await.0, 201);
    let good = json!({ "name": "good", "packages": ["ly-two"] });
    assert_eq!(admin.ask(&house, "POST", "/environments", &good).await.0, 201);
    let failed = reaches(&house, &admin, "wrong", "failed").await;
    assert!(failed["detail"].as_str().unwrap().contains("ly-absent"), "{failed}");
    reaches(&house, &admin, "good", "ready").await;
    // Their home page is no place for what administrators try.
    let home = async |person: &Person| person.request(&house, "GET", "/").send().await.unwrap().text().await.unwrap();
    assert!(!home(&house.person()).await.contains("ly-absent"));
    assert!(home(&admin).await.contains("ly-absent"));
    let log = admin.request(&house, "GET", "/api/v1/environments/wrong/log").send().await.unwrap();
    let kind = log.headers()["content-type"].to_str().unwrap().to_owned();
    let log = log.text().await.unwrap();
    assert!(kind.starts_with("text/plain"), "{kind}: {log}");
    assert!(log.contains("ly-absent") && log.contains("to fix it"), "{log}");
    assert_eq!(admin.ask(&house, "POST", "/environments/good/retry", &Value::Null).await.0, 409);
    // The site puts the wheel there, and builds again.
    world.wheels(&["ly_absent"], 0);
    assert_eq!(admin.ask(&house, "POST", "/environments/wrong/retry", &Value::Null).await.0, 202);
    reaches(&house, &admin, "wrong", "ready").await;
}
