//! Reading: a directory of nobody's, a live session's agent, and both with everybody dying in
//! between: the curve is whole and has no point twice.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{points, read, register, train, trained, until};
use crate::{files::World, life::eventually};

/// The steps of a curve in the order in which they were written.
async fn steps(world: &World, run: &str, tag: &str) -> Vec<i64> {
    points(world, &world.person, run, tag).await.into_iter().map(|(step, _)| step).collect()
}

#[tokio::test]
async fn a_directory_of_nobodys_is_read_as_it_grows() {
    let Some(world) = World::open(&[]).await else { return };
    let logs = world.home().join("logs");
    trained(&logs, "--rate 0 --steps 50");
    let run = read(&world, "~/logs", 150).await;
    assert_eq!(steps(&world, &run, "train%2Floss").await, (0..50).collect::<Vec<_>>());
    let found = world.person.get(&world.house, &format!("/runs/{run}")).await;
    assert_eq!((&found["complete"], &found["error"], &found["name"]), (&json!(false), &Value::Null, &json!("logs")));
    assert_eq!(found["directory"], logs.to_str().unwrap());
    // It grows by another writer's file while somebody looks.
    trained(&logs, "--rate 0 --steps 80 --resume");
    until(&world, &world.person, &run, "more was read", |run| run["points"].as_u64() >= Some(240)).await;
    assert_eq!(steps(&world, &run, "train%2Floss").await, (0..80).collect::<Vec<_>>());

    // What only its owner may read stays unread by others.
    let (stranger, _) = world.neighbour().await;
    fs::set_permissions(world.home(), fs::Permissions::from_mode(0o700)).unwrap();
    let request = json!({ "directory": logs.to_str().unwrap() });
    let (status, body) = stranger.ask(&world.house, "POST", "/runs", &request).await;
    assert_eq!((status, &body["errors"][0]["field"]), (422, &json!("directory")), "{body}");
    for method in ["GET", "PATCH", "DELETE"] {
        let (status, _) = stranger.ask(&world.house, method, &format!("/runs/{run}"), &json!({})).await;
        assert_eq!(status, 404, "{method}");
    }
    let (status, body) = world.person.ask(&world.house, "DELETE", &format!("/runs/{run}"), &Value::Null).await;
    assert_eq!(status, 204, "{body}");
    let file = world.house.paths().private.join("curves").join(format!("{run}.points"));
    assert!(file.exists(), "it can be restored for a day");
    let (status, body) = world.person.ask(&world.house, "DELETE", "/trash", &Value::Null).await;
    assert_eq!(status, 204, "{body}");
    assert!(!file.exists() && logs.join("checkpoint.json").exists());
}

#[tokio::test]
async fn a_live_sessions_agent_reads_and_the_portal_may_die() {
    let Some(mut world) = World::open(&[]).await else { return };
    let session = world.person.run(&world.house, "web").await;
    let logs = world.home().join("live");
    let request = json!({ "directory": "~/live", "session": session, "name": "alive" });
    let run = register(&world, &world.person, request).await;
    let mut trainer = train(&logs, "--rate 100 --steps 1500 --steps-per-epoch 10");
    for half in [100, 500, 900] {
        until(&world, &world.person, &run, "points come", |run| run["points"].as_u64() >= Some(half)).await;
        world.house.restart().await;
    }
    assert!(trainer.wait().unwrap().success());
    let expected: Vec<i64> = (0..1500).collect();
    eventually("all has come", async || (steps(&world, &run, "train%2Floss").await.len() >= 1500).then_some(())).await;
    assert_eq!(steps(&world, &run, "train%2Floss").await, expected, "no point twice, none lost");
    let found = world.person.get(&world.house, &format!("/runs/{run}")).await;
    assert_eq!(found["complete"], false, "its session lives");

    // What is written last, and the end.
    trained(&logs, "--rate 0 --steps 1600 --resume");
    world.person.stop(&world.house, session).await;
    world.person.state(&world.house, session, "ended").await;
    let ended = Instant::now();
    until(&world, &world.person, &run, "everything is read", |run| run["complete"] == true).await;
    eprintln!("complete {:?} after the end", ended.elapsed());
    assert!(ended.elapsed() < Duration::from_mins(1), "{:?}", ended.elapsed());
    assert_eq!(steps(&world, &run, "train%2Floss").await, (0..1600).collect::<Vec<_>>());
    // Nothing is read any more, and what was read stays.
    fs::remove_dir_all(&logs).unwrap();
    world.house.restart().await;
    assert_eq!(steps(&world, &run, "train%2Floss").await.len(), 1600);
}

#[tokio::test]
async fn strange_directories_do_no_harm_and_are_told_of() {
    let Some(world) = World::open(&[]).await else { return };
    let logs = world.home().join("logs");
    trained(&logs, "--rate 0 --steps 20");
    let mut files = fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().path());
    let whole = fs::read(files.find(|path| path.to_string_lossy().contains("tfevents")).unwrap()).unwrap();
    let damaged = logs.join("damaged");
    fs::create_dir(&damaged).unwrap();
    let mut wrong = whole.clone();
    let place = wrong.len() / 2;
    wrong[place] ^= 0x10;
    fs::write(damaged.join("events.out.tfevents.1.host"), &wrong).unwrap();
    // A length of 2 GB, with the checksum that belongs to it.
    let length = (2_u64 << 30).to_le_bytes();
    let sum = crc32c::crc32c(&length).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    fs::create_dir(logs.join("large")).unwrap();
    fs::write(logs.join("large/events.out.tfevents.1.host"), [&whole[..], &length, &sum, &[0; 100]].concat()).unwrap();
    symlink(&logs, logs.join("loop")).unwrap();
    symlink("nowhere", logs.join("events.out.tfevents.gone")).unwrap();
    fs::create_dir(logs.join("secret")).unwrap();
    fs::set_permissions(logs.join("secret"), fs::Permissions::from_mode(0o0)).unwrap();
    let (name, long) = ("<script>alert(1)</script>\\n", "x".repeat(10_000));
    let line = |step| format!("{{\"step\": {step}, \"{name}\": {step}, \"{long}\": 1}}\n");
    let lines = (0..1000).map(line).collect::<Vec<_>>().concat();
    fs::create_dir(logs.join("names")).unwrap();
    fs::write(logs.join("names/metrics.jsonl"), lines).unwrap();
    let run = read(&world, "~/logs", 64 + 64 + 2000).await;
    let found = until(&world, &world.person, &run, "it is read whole", |run| {
        !run["skipped"]["unreadable"].as_array().unwrap().is_empty()
    })
    .await;
    let skipped = &found["skipped"];
    assert!(skipped["damaged"].as_u64() >= Some(1) || skipped["lost"] == true, "{found}");
    assert_eq!(skipped["oversized"], 1, "{found}");
    assert!(skipped["unreadable"][0].as_str().unwrap().contains("secret: "), "{found}");
    let metrics = world.person.get(&world.house, &format!("/runs/{run}/metrics")).await;
    let names: Vec<&str> = metrics["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).collect();
    assert_eq!(names, [".", "damaged", "large", "names"]);
    assert_eq!(metrics["runs"][3]["tags"].as_array().unwrap().len(), 2);

    // The directory goes: what was read stays, and the trouble is named.
    fs::set_permissions(logs.join("secret"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(&logs, world.home().join("elsewhere")).unwrap();
    let found = until(&world, &world.person, &run, "it is missed", |run| !run["error"].is_null()).await;
    assert!(found["error"].as_str().unwrap().ends_with("/logs does not exist."), "{found}");
    assert_eq!(steps(&world, &run, "train%2Floss").await.len(), 20);
    fs::rename(world.home().join("elsewhere"), &logs).unwrap();
    until(&world, &world.person, &run, "it is back", |run| run["error"].is_null()).await;
    assert_eq!(steps(&world, &run, "train%2Floss").await.len(), 20, "and nothing is read twice");
}

#[tokio::test]
async fn more_than_is_kept_is_counted() {
    let Some(world) = World::configured(&[("LYCEUM_CURVES__MAX_POINTS", "120000")], "").await else { return };
    let logs = world.home().join("logs");
    // 100 000 tags, and one more point of each that is too much.
    trained(&logs, "--rate 0 --steps 2 --extra-tags 100000");
    let run = read(&world, "~/logs", 120_000).await;
    let found = until(&world, &world.person, &run, "the rest is counted", |run| run["skipped"]["surplus"] != 0).await;
    assert_eq!((&found["points"], &found["skipped"]["surplus"]), (&json!(120_000), &json!(80_006)), "{found}");
    let metrics = world.person.get(&world.house, &format!("/runs/{run}/metrics?limit=100")).await;
    assert_eq!(metrics["truncated"], true);
    assert_eq!(metrics["runs"][0]["tags"].as_array().unwrap().len(), 100);
    let one = world.person.get(&world.house, &format!("/runs/{run}/metrics?search=extra/099999")).await;
    assert_eq!(one["runs"][0]["tags"][0]["count"], 1);
}

#[tokio::test]
async fn a_job_that_wrote_nothing_has_no_curves_and_no_error() {
    let Some(world) = World::open(&[]).await else { return };
    let job = json!({ "name": "quiet", "script": "true\n" });
    let (status, job) = world.person.ask(&world.house, "POST", "/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    let run = eventually("its run was read", async || {
        let runs = world.person.get(&world.house, "/runs").await;
        runs["items"].as_array().unwrap().iter().find(|run| run["complete"] == true).cloned()
    })
    .await;
    assert_eq!((&run["source"]["job"], &run["error"], &run["points"]), (&job["id"], &Value::Null, &json!(0)), "{run}");
    assert_eq!(run["skipped"]["unreadable"], json!([]), "{run}");
    let page = world.person.request(&world.house, "GET", &format!("/runs/{}", run["id"].as_str().unwrap()));
    let page = page.send().await.unwrap().text().await.unwrap();
    assert!(page.contains("No curves.") && !page.contains("unreadable"), "{page}");
}

#[tokio::test]
async fn a_jobs_attempts_are_one_curve() {
    let Some(world) = World::open(&[]).await else { return };
    let bin = world.house.paths().shared.join("bin");
    let program = fs::read_dir(bin).unwrap().next().unwrap().unwrap().path().join("lyceum");
    let script = format!(
        "if [ \"$LYCEUM_ATTEMPT\" = 1 ]\nthen exec {0} demo-train --rate 0 --steps 500 --crash-at 350 --crash-by kill\n\
         else exec {0} demo-train --rate 0 --steps 500 --resume\nfi\n",
        program.display()
    );
    let ask = async |method: &str, path: &str, body: Value| world.person.ask(&world.house, method, path, &body).await;
    let (status, job) = ask("POST", "/jobs", json!({ "name": "train", "script": script })).await;
    assert_eq!(status, 201, "{job}");
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let ended = async |what: &str| {
        eventually(what, async || {
            let job = world.person.get(&world.house, &path).await;
            (job["state"] == "ended").then_some(job)
        })
        .await
    };
    let complete = async |what: &str| {
        eventually(what, async || {
            let metrics = world.person.get(&world.house, &format!("{path}/metrics")).await;
            (metrics["complete"] == true).then_some(metrics)
        })
        .await
    };
    assert_eq!(ended("the first attempt ends").await["signal"], 9);
    let since = Instant::now();
    let metrics = complete("its curve is whole").await;
    eprintln!("complete {:?} after the end", since.elapsed());
    assert_eq!(metrics["runs"][0]["run"], ".");
    let count = |metrics: &Value| {
        let tags = metrics["runs"][0]["tags"].as_array().unwrap();
        tags.iter().find(|tag| tag["tag"] == "train/loss").unwrap()["count"].clone()
    };
    assert_eq!(count(&metrics), 350);

    let (status, body) = ask("POST", &format!("{path}/resume"), Value::Null).await;
    assert_eq!(status, 202, "{body}");
    eventually("the second attempt ends", async || {
        let job = world.person.get(&world.house, &path).await;
        (job["attempt"] == 2 && job["state"] == "ended").then_some(())
    })
    .await;
    eventually("both attempts are one curve", async || {
        let metrics = world.person.get(&world.house, &format!("{path}/metrics")).await;
        (metrics["complete"] == true && count(&metrics) == 500).then_some(())
    })
    .await;
    let curve = world.person.get(&world.house, &format!("{path}/metrics/train%2Floss?points=10")).await;
    assert_eq!((&curve["count"], &curve["attempts"][1]["first_step"]), (&json!(500), &json!(300)), "{curve}");
    let run = world.person.get(&world.house, &format!("{path}/run")).await;
    assert_eq!((&run["source"]["job"], &run["name"]), (&job["id"], &json!("train")));
    let table = world.person.request(&world.house, "GET", &format!("/api/v1{path}/metrics/train%2Floss?format=csv"));
    assert_eq!(table.send().await.unwrap().text().await.unwrap().lines().count(), 1 + 350 + 200);
    let body = json!({ "jobs": [job["id"]], "tags": ["train/loss"], "points": 5 });
    let (status, many) = ask("POST", "/curves", body).await;
    assert_eq!((status, &many["items"][0]["id"]), (200, &job["id"]), "{many}");
    // What is a job's is changed with the job.
    let of_run = format!("/runs/{}", run["id"].as_str().unwrap());
    assert_eq!(ask("PATCH", &of_run, json!({"name": "x"})).await.0, 409);
    assert_eq!(ask("DELETE", &of_run, Value::Null).await.0, 409);
}
