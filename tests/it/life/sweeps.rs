//! Arrays and sweeps on the real local scheduler: each task is told its number and its values, as
//! many run as may, the best is known from their curves, those behind are ended, and a portal that
//! is killed starts none twice and forgets none.

use std::fs;

use serde_json::{Value, json};

use super::{House, Person, eventually};

fn home(person: &Person) -> String {
    format!("/home/ly-{}", person.name)
}

async fn submit(house: &House, person: &Person, request: Value) -> Value {
    let (status, body) = person.ask(house, "POST", "/sweeps", &request).await;
    assert_eq!(status, 201, "{request}: {body}");
    body
}

async fn find(house: &House, person: &Person, id: &str) -> Value {
    person.get(house, &format!("/sweeps/{id}")).await
}

async fn ended(house: &House, person: &Person, id: &str) -> Value {
    eventually("the sweep has ended", async || {
        let sweep = find(house, person, id).await;
        (sweep["state"] == "ended").then_some(sweep)
    })
    .await
}

fn words(sweep: &Value) -> Vec<&str> {
    sweep["items"].as_array().unwrap().iter().map(|task| task["state"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_array_runs_so_many_at_once_through_the_death_of_the_portal() {
    let Some(mut house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    let (starts, go) = (format!("{}/starts", home(&person)), format!("{}/go", home(&person)));
    let script = format!(
        "echo $LYCEUM_ARRAY_INDEX >> {starts}\nwhile [ ! -e {go} ]; do sleep 0.1; done\n[ $LYCEUM_ARRAY_INDEX != 6 ]\n"
    );
    let (status, first) =
        person.ask(&house, "POST", "/jobs", &json!({ "name": "parts", "script": script, "array": "0-8:2%2" })).await;
    assert_eq!((status, &first["index"], &first["name"]), (201, &json!(0), &json!("parts #0")), "{first}");
    let id = first["sweep"].as_str().unwrap().to_owned();
    let lines = || fs::read_to_string(&starts).unwrap_or_default().lines().count();
    eventually("two of them run", async || (lines() == 2).then_some(())).await;
    let sweep = find(&house, &person, &id).await;
    assert_eq!(
        (&sweep["kind"], &sweep["tasks"], &sweep["released"]),
        (&json!("array"), &json!(5), &json!(2)),
        "{sweep}"
    );
    assert_eq!(words(&sweep)[2..], ["planned", "planned", "planned"], "{sweep}");

    house.kill();
    fs::write(&go, "").unwrap();
    house.start().await;
    let over = ended(&house, &person, &id).await;
    assert_eq!(words(&over), ["succeeded", "succeeded", "succeeded", "failed", "succeeded"], "{over}");
    let mut told: Vec<String> = fs::read_to_string(&starts).unwrap().lines().map(str::to_owned).collect();
    told.sort();
    assert_eq!(told, ["0", "2", "4", "6", "8"], "each began once");
    let numbers: Vec<&Value> = over["items"].as_array().unwrap().iter().map(|task| &task["index"]).collect();
    assert_eq!(json!(numbers), json!([0, 2, 4, 6, 8]));
}

#[tokio::test]
async fn a_sweep_is_paused_and_stopped_and_the_queue_is_held() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, other, admin) = (house.person(), house.person(), house.admin());
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    let preview = json!({ "job": { "command": ["sleep", "{seconds}"], "time_limit_seconds": 3600 },
        "parameters": { "seconds": [600, 601, 602] }, "repeat": 2, "parallel": 2 });
    let (status, told) = person.ask(&house, "POST", "/sweeps/preview", &preview).await;
    assert_eq!((status, &told["tasks"], &told["cpu_hours"]), (200, &json!(6), &json!(6.0)), "{told}");
    assert_eq!(told["admission"]["outcome"], "admit", "{told}");
    let sweep = submit(&house, &person, preview).await;
    let id = sweep["id"].as_str().unwrap().to_owned();
    let count =
        async |state: &str| words(&find(&house, &person, &id).await).iter().filter(|word| **word == state).count();
    eventually("two run", async || (count("running").await == 2).then_some(())).await;
    let first = sweep["items"][0]["job"].as_str().unwrap();
    let job = person.get(&house, &format!("/jobs/{first}")).await;
    assert_eq!((&job["command"], &job["variables"]["seconds"]), (&json!(["sleep", "600"]), &json!("600")), "{job}");

    let (status, paused) = person.ask(&house, "POST", &format!("/sweeps/{id}/pause"), &Value::Null).await;
    assert_eq!((status, &paused["state"]), (202, &json!("paused")), "{paused}");
    let (status, _) = person.ask(&house, "POST", &format!("/jobs/{first}/cancel"), &Value::Null).await;
    assert_eq!(status, 202);
    eventually("it is cancelled", async || (count("cancelled").await == 1).then_some(())).await;
    assert_eq!(find(&house, &person, &id).await["released"], 2, "no other took its place");
    for (method, path) in [("GET", ""), ("POST", "/pause"), ("POST", "/stop"), ("DELETE", "")] {
        let (status, _) = other.ask(&house, method, &format!("/sweeps/{id}{path}"), &Value::Null).await;
        assert_eq!(status, 404, "{method} {path}");
    }

    // Held by themselves, then by an administrator: what is released waits, and says why.
    let (status, held) = person.ask(&house, "POST", "/jobs/queue/pause", &json!({})).await;
    assert!(status == 200 && held["own"]["by"] == person.name.as_str(), "{held}");
    person.ask(&house, "POST", &format!("/sweeps/{id}/resume"), &Value::Null).await;
    let waiting = eventually("the next one waits", async || {
        let sweep = find(&house, &person, &id).await;
        sweep["items"][2]["job"].as_str().map(str::to_owned)
    })
    .await;
    let job = person.get(&house, &format!("/jobs/{waiting}")).await;
    assert_eq!(job["reasons"][0]["hint"], "The owner paused their pending jobs.", "{job}");
    let (status, _) = person.ask(&house, "POST", "/jobs/queue/pause", &json!({ "everybody": true })).await;
    assert_eq!(status, 403);
    admin.ask(&house, "POST", "/jobs/queue/pause", &json!({ "everybody": true, "note": "a new disk" })).await;
    person.ask(&house, "POST", "/jobs/queue/resume", &json!({})).await;
    eventually("an administrator holds it", async || {
        let job = person.get(&house, &format!("/jobs/{waiting}")).await;
        job["reasons"][0]["hint"].as_str()?.ends_with("paused the job queue: a new disk").then_some(())
    })
    .await;
    admin.ask(&house, "POST", "/jobs/queue/resume", &json!({ "everybody": true })).await;
    eventually("it runs", async || {
        let job = person.get(&house, &format!("/jobs/{waiting}")).await;
        (job["state"] == "running").then_some(())
    })
    .await;

    let (status, _) = person.ask(&house, "POST", &format!("/sweeps/{id}/stop"), &Value::Null).await;
    assert_eq!(status, 202);
    let over = ended(&house, &person, &id).await;
    assert_eq!(over["released"], 3, "{over}");
    assert_eq!(words(&over)[3..], ["planned", "planned", "planned"], "{over}");
    let job = person.get(&house, &format!("/jobs/{waiting}")).await;
    assert_eq!(job["detail"], "Its sweep was stopped", "{job}");
    let (status, _) = person.ask(&house, "DELETE", &format!("/sweeps/{id}"), &Value::Null).await;
    assert_eq!(status, 204);
    assert_eq!(person.get(&house, &format!("/jobs/{first}")).await["name"], "sleep {seconds} #0");
}

#[tokio::test]
async fn the_best_is_known_and_who_is_behind_is_ended() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    // Its loss is the parameter; the last one would go on for ever.
    let script = "mkdir -p $LYCEUM_LOG_DIRECTORY\nstep=0\nwhile [ $step -le 20 ] || [ $level = 9 ]; do\n\
        echo \"{\\\"step\\\": $step, \\\"loss\\\": $level}\" >> $LYCEUM_LOG_DIRECTORY/metrics.jsonl\n\
        step=$((step + 1))\nsleep 0.05\ndone\nsleep 3\n";
    let request = json!({ "job": { "name": "levels", "script": script }, "parameters": { "level": "3, 1, 2, 9" },
        "parallel": 4, "metric": { "tag": "loss", "goal": "min", "stop_after_step": 10 } });
    let sweep = submit(&house, &person, request).await;
    let over = ended(&house, &person, sweep["id"].as_str().unwrap()).await;
    assert_eq!((&over["best"]["index"], &over["best"]["best"]), (&json!(1), &json!(1.0)), "{over}");
    assert_eq!(over["best"]["parameters"]["level"], "1", "{over}");
    let last = &over["items"][3];
    assert_eq!(last["state"], "cancelled", "{last}");
    assert!(last["detail"].as_str().unwrap().starts_with("Stopped early: its best loss at step "), "{last}");
    assert_eq!(words(&over)[..3], ["succeeded", "succeeded", "succeeded"], "{over}");
}

#[tokio::test]
async fn a_sweep_is_checked_as_a_whole() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let job = json!({ "command": ["true"] });
    for (request, status, field) in [
        (json!({ "job": job }), 422, "parameters"),
        (json!({ "job": {}, "array": "0-3" }), 422, "command"),
        (json!({ "job": job, "array": "3-0" }), 422, "array"),
        (json!({ "job": job, "array": "0-9999" }), 422, "array"),
        (json!({ "job": job, "parameters": { "1a": [1] } }), 422, "parameters.1a"),
        (json!({ "job": job, "parameters": { "HOME": ["/x"] } }), 422, "parameters.HOME"),
        (json!({ "job": job, "parameters": { "a": ["x", "b\u{0}"] } }), 422, "parameters.a"),
        (json!({ "job": job, "array": "0-3", "parallel": 0 }), 422, "parallel"),
        (json!({ "job": job, "array": "0-3", "metric": { "tag": "", "goal": "min" } }), 422, "metric.tag"),
        (json!({ "job": { "command": ["true"], "array": "0-1" }, "array": "0-3" }), 422, "job.array"),
        (json!({ "job": job, "array": "0-3", "colour": 1 }), 422, "colour"),
    ] {
        let (told, body) = person.ask(&house, "POST", "/sweeps", &request).await;
        assert_eq!((told, body["errors"][0]["field"].as_str()), (status, Some(field)), "{request}: {body}");
    }
    let huge = json!({ "job": { "command": ["true"], "resources": { "cpus": 100_000 } }, "array": "0-3" });
    let (status, body) = person.ask(&house, "POST", "/sweeps", &huge).await;
    assert_eq!(status, 409, "{body}");
    assert_eq!(person.get(&house, "/sweeps").await["items"], json!([]), "nothing was written");
    assert_eq!(person.get(&house, "/jobs").await["items"], json!([]));
}
