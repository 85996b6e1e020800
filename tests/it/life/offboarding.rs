//! Offboarding on the real program, as real users: access and work end together, what somebody made goes to somebody else
//! where that one can read it, and the hours of the past stay where they were used.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use serde_json::{Value, json};

use super::{
    House, Person, eventually,
    jobs::{ended, state, submit},
    operators::shell,
};

const LOGS: &str = "mkdir -p $LYCEUM_LOG_DIRECTORY\nfor step in 0 1 2 3; do\n\
    echo \"{\\\"step\\\": $step, \\\"loss\\\": $step}\" >> $LYCEUM_LOG_DIRECTORY/metrics.jsonl\ndone\n";

async fn dataset(house: &House, person: &Person, name: &str) -> String {
    let spec =
        json!({ "kind": "classification", "source": { "kind": "generated", "count": 12 }, "width": 16, "height": 16 });
    let request = json!({ "name": name, "spec": spec, "resources": { "cpus": 1, "memory_bytes": 1 << 30 } });
    let (status, made) = person.ask(house, "POST", "/datasets", &request).await;
    assert_eq!(status, 201, "{made}");
    let id = made["id"].as_str().unwrap().to_owned();
    eventually("the dataset is ready", async || {
        let found = person.get(house, &format!("/datasets/{id}")).await;
        (found["state"] == "ready").then_some(())
    })
    .await;
    id
}

/// As an administrator copies files: with the new owner.
fn copy(from: &Path, to: &Path, owner: &Path) {
    let meta = fs::metadata(owner).unwrap();
    for (program, arguments) in [
        ("cp", vec!["-r".to_owned(), from.display().to_string(), to.display().to_string()]),
        ("chown", vec!["-R".to_owned(), format!("{}:{}", meta.uid(), meta.gid()), to.display().to_string()]),
    ] {
        assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program}");
    }
}

#[tokio::test]
async fn access_and_work_end_and_the_rest_goes_to_somebody_else() {
    let Some(house) = House::open(&[]).await else { return };
    let (ada, bo, admin) = (house.person(), house.person(), house.admin());
    admin.allow(&house, &ada, json!({ "jobs": -1, "pending": -1, "sessions": -1 })).await;
    let user = format!("/users/{}", ada.name);
    for group in ["vision", "course"] {
        assert_eq!(admin.ask(&house, "POST", "/groups", &json!({ "name": group })).await.0, 201);
    }
    assert_eq!(admin.ask(&house, "PUT", &format!("/groups/vision/members/{}", ada.name), &json!({})).await.0, 204);
    assert_eq!(admin.ask(&house, "PUT", &format!("/groups/course/managers/{}", ada.name), &json!({})).await.0, 204);

    let set = dataset(&house, &ada, "signs").await;
    let logged = submit(&house, &ada, json!({ "name": "logged", "script": LOGS, "tags": ["paper"] })).await;
    ended(&house, &ada, &logged, "exited").await;
    let run = eventually("the curve is read", async || {
        let (status, run) = ada.ask(&house, "GET", &format!("/jobs/{logged}/run"), &Value::Null).await;
        (status == 200 && run["points"] == 4).then(|| run["id"].as_str().unwrap().to_owned())
    })
    .await;
    let lasting = json!({ "command": ["sleep", "600"] });
    let session = ada.run(&house, "web").await;
    let runs = submit(&house, &ada, lasting.clone()).await;
    state(&house, &ada, &runs, "running").await;
    let (status, sweep) =
        ada.ask(&house, "POST", "/sweeps", &json!({ "array": "0-5", "parallel": 1, "job": lasting })).await;
    assert_eq!(status, 201, "{sweep}");

    // Who may, and in which order.
    assert_eq!(ada.ask(&house, "POST", &format!("{user}/offboard"), &Value::Null).await.0, 403);
    let own = format!("/users/{}/offboard", admin.name);
    assert_eq!(admin.ask(&house, "POST", &own, &Value::Null).await.0, 403, "nobody offboards themselves");
    let hand_over = format!("{user}/hand-over");
    let to = json!({ "to": bo.name });
    let (status, said) = admin.ask(&house, "POST", &hand_over, &to).await;
    assert!(status == 409 && said["detail"].as_str().unwrap().contains("not disabled"), "{said}");
    let contents = admin.get(&house, &format!("{user}/contents")).await;
    assert_eq!(contents["live_sessions"], 1, "{contents}");
    assert_eq!((&contents["datasets"], &contents["groups"]), (&json!(1), &json!(["course", "vision"])), "{contents}");

    // A dry run changes nothing.
    let (code, said, errors) = shell(&house, &admin, &["offboard", &ada.name, "--to", &bo.name, "--dry-run"]);
    assert_eq!(code, Some(0), "{said} {errors}");
    for line in
        [format!("disable account {}: would be done", ada.name), "remove from group vision: would be done".into()]
    {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    assert_eq!(ada.get(&house, "/me").await["name"], ada.name.as_str());

    // Everything ends; the dataset stays, because its files are not readable for the new owner.
    let (code, said, errors) = shell(&house, &admin, &["offboard", &ada.name, "--to", &bo.name]);
    assert_eq!(code, Some(1), "{said} {errors}");
    for line in ["revoke token ", "stop sweep ", "cancel job ", "stop session ", "remove as manager of group course"] {
        assert!(said.lines().any(|said| said.starts_with(line) && said.ends_with(": done")), "{line}: {said}");
    }
    assert!(said.lines().any(|line| line.starts_with("dataset ") && line.contains("signs: failed: ")), "{said}");
    assert_eq!(ada.ask(&house, "GET", "/me", &Value::Null).await.0, 401, "the account is disabled");
    admin.ended(&house, session, "stopped_by_admin").await;
    let contents = admin.get(&house, &format!("{user}/contents")).await;
    for (field, left) in [("live_jobs", 0), ("live_sweeps", 0), ("jobs", 0), ("sweeps", 0), ("runs", 0), ("tokens", 0)]
    {
        assert_eq!(contents[field], left, "{field}: {contents}");
    }
    assert_eq!((&contents["groups"], &contents["datasets"]), (&json!([]), &json!(1)), "{contents}");

    // Jobs, their logs and curves are the other's now; the hours are not.
    let job = bo.get(&house, &format!("/jobs/{logged}")).await;
    assert_eq!((&job["owner"], &job["tags"]), (&json!(bo.name), &json!(["paper"])), "{job}");
    let found = bo.get(&house, &format!("/runs/{run}")).await;
    assert_eq!((&found["owner"], &found["points"]), (&json!(bo.name), &json!(4)), "{found}");
    assert_eq!(bo.get(&house, &format!("/runs/{run}/metrics/loss")).await["count"], 4);
    let text = bo.request(&house, "GET", &format!("/api/v1/jobs/{runs}/log")).send().await.unwrap();
    assert_eq!(text.status(), 200);
    let usage = admin.get(&house, "/usage?by=user").await;
    let names: Vec<&str> = usage["items"].as_array().unwrap().iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(names.contains(&ada.name.as_str()) && !names.contains(&bo.name.as_str()), "{usage}");

    // Copied, the dataset goes as well: tried first, then by three at once.
    let (from, home) = (format!("/home/ly-{}", ada.name), format!("/home/ly-{}", bo.name));
    let copied = format!("{home}/ada");
    copy(Path::new(&from), Path::new(&copied), Path::new(&home));
    let request = json!({ "to": bo.name, "directories": [{ "from": from, "to": copied }] });
    let (status, tried) = admin.ask(&house, "POST", &format!("{hand_over}?dry_run=true"), &request).await;
    assert_eq!((status, &tried["failed"], &tried["items"][0]["done"]), (200, &json!(0), &json!(false)), "{tried}");
    let hand = || admin.ask(&house, "POST", &hand_over, &request);
    let (one, two, three) = tokio::join!(hand(), hand(), hand());
    let done: usize = [&one, &two, &three]
        .iter()
        .inspect(|(status, told)| assert_eq!(*status, 200, "{told}"))
        .map(|(_, told)| told["items"].as_array().unwrap().iter().filter(|item| item["done"] == true).count())
        .sum();
    assert_eq!(done, 1, "{one:?} {two:?} {three:?}");
    let theirs = bo.get(&house, &format!("/datasets/{set}")).await;
    assert_eq!((&theirs["owner"], &theirs["directory"]), (&json!(bo.name), &json!(format!("{copied}/datasets/signs"))));
    let items = bo.get(&house, &format!("/datasets/{set}/items?limit=1")).await;
    assert_eq!(items["items"].as_array().unwrap().len(), 1, "{items}");
    let audit = admin.get(&house, "/audit?limit=200").await;
    let actions: Vec<&str> =
        audit["items"].as_array().unwrap().iter().filter_map(|row| row["action"].as_str()).collect();
    for action in ["user.hand_over", "dataset.hand_over"] {
        assert_eq!(actions.iter().filter(|one| **one == action).count(), 1, "{action}");
    }

    // Again there is nothing to do.
    let (code, said, errors) = shell(&house, &admin, &["offboard", &ada.name, "--to", &bo.name, "-o", "json"]);
    assert_eq!(code, Some(0), "{said} {errors}");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["offboarding"]["steps"], &said["hand_over"]["items"]), (&json!([]), &json!([])), "{said}");

    // Somebody else's name is checked.
    for (to, why) in [("nobody", "no such user"), (ada.name.as_str(), "another user")] {
        let (status, said) = admin.ask(&house, "POST", &hand_over, &json!({ "to": to })).await;
        let fault = &said["errors"][0];
        assert!(status == 422 && fault["field"] == "to" && fault["message"].as_str().unwrap().contains(why), "{said}");
    }
}
