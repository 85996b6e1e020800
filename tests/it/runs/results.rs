//! The table of results: what the API answers to filters, orders, groups and a baseline, whom it shows what,
//! how quick it is with many runs, and that a run that is read by a real agent comes into it.

use std::{path::Path, process::Command, time::Instant};

use lyceum::model::{Role, RunId, UserId};
use serde_json::{Value, json};

use super::{external, read, store, trained};
use crate::{
    db::sweeps::tasks_of_a_sweep,
    files::World,
    life::eventually,
    portal::{Caller, TestPortal},
};

/// A run with what it comes to, as reading would have kept it: a metric is its last, least and greatest value.
async fn result(
    portal: &TestPortal,
    owner: UserId,
    name: &str,
    params: Value,
    metrics: &[(&str, f64, f64, f64)],
) -> RunId {
    let id = external(portal, owner, name).await;
    let told = |(tag, last, min, max): &(&str, f64, f64, f64)| {
        let line = json!({"from": 0, "to": 99, "values": [max, min, last]});
        let metric =
            json!({"run": ".", "tag": tag, "last": [last, 99], "min": [min, 40], "max": [max, 0], "line": line});
        ((*tag).to_owned(), metric)
    };
    let metrics: serde_json::Map<String, Value> = metrics.iter().map(told).collect();
    let digest = json!({"params": params, "metrics": metrics}).to_string();
    portal.db().keep_digest(id, 1, &digest).await.unwrap();
    id
}

async fn ask(caller: &Caller, query: &[(&str, &str)]) -> (u16, Value) {
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    let answer = caller.get(&format!("/api/v1/results?{query}")).await;
    (answer.status().as_u16(), answer.json().await.unwrap())
}

fn names(found: &Value) -> Vec<&str> {
    found["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

async fn filled() -> (TestPortal, Caller, [RunId; 4]) {
    let portal = TestPortal::start().await;
    let owner = portal.add_user("ada", Role::User).await;
    let ada = portal.sign_in("ada").await;
    let one = json!({"lr": 0.01, "optimizer": "adam", "seed": 1, "amp": true});
    let two = json!({"lr": 0.1, "optimizer": "sgd", "seed": 1});
    let three = json!({"lr": 0.01, "optimizer": "sgd", "seed": 1});
    let metrics = [("val/loss", 0.6, 0.5, 2.0), ("val/acc", 0.8, 0.1, 0.9), ("lr", 0.0, 0.0, 0.01)];
    let ids = [
        result(&portal, owner, "one", one, &metrics).await,
        result(&portal, owner, "two", two, &[("val/loss", 0.45, 0.4, 3.0), ("val/acc", 0.7, 0.1, 0.7)]).await,
        result(&portal, owner, "three", three, &[("val/loss", 0.7, 0.3, 1.0)]).await,
        external(&portal, owner, "nothing yet").await,
    ];
    (portal, ada, ids)
}

#[tokio::test]
async fn rows_are_picked_ordered_and_compared() {
    let (portal, ada, ids) = filled().await;
    let (status, all) = ask(&ada, &[]).await;
    assert_eq!((status, &all["total"], &all["matched"], &all["truncated"]), (200, &json!(4), &json!(4), &json!(false)));
    assert_eq!(names(&all), ["nothing yet", "three", "two", "one"], "the newest first");
    let columns = all["columns"].as_array().unwrap();
    let keys: Vec<&str> = columns.iter().map(|column| column["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["p:amp", "p:lr", "p:optimizer", "p:seed", "m:val/loss", "m:val/acc", "m:lr"]);
    let one = &all["items"][3]["cells"];
    assert_eq!(one["m:val/loss"]["value"], 0.5, "the least of a loss is its best");
    assert_eq!((&one["m:val/acc"]["value"], &one["m:val/acc"]["step"]), (&json!(0.9), &json!(0)));
    assert_eq!((&one["m:val/acc"]["best"], &one["p:lr"]["value"]), (&json!(true), &json!(0.01)));
    assert_eq!(one["m:val/loss"]["line"]["values"], json!([2.0, 0.5, 0.6]));
    assert_eq!(all["items"][0]["cells"], json!({}));

    for (filter, expected) in [
        ("lr < 0.05", vec!["three", "one"]),
        ("param(lr) < 0.05 and optimizer = SGD", vec!["three"]),
        ("metric(lr) = 0", vec!["one"]),
        ("loss <= 0.4", vec!["three", "two"]),
        ("last(val/loss) <= 0.6 and not name ~ two", vec!["one"]),
        ("max(val/loss) >= 2 or name ~ yet", vec!["nothing yet", "two", "one"]),
        ("amp = true", vec!["one"]),
        ("val/acc = none", vec!["nothing yet", "three"]),
        ("owner = ada and points = 0", vec!["nothing yet", "three", "two", "one"]),
        ("thre", vec!["three"]),
    ] {
        let (status, found) = ask(&ada, &[("where", filter)]).await;
        assert_eq!((status, names(&found)), (200, expected), "{filter}");
    }
    for (sort, expected) in [
        (&["m:val/loss"][..], ["three", "two", "one", "nothing yet"]),
        (&["-m:val/loss"], ["one", "two", "three", "nothing yet"]),
        (&["val/loss"], ["three", "two", "one", "nothing yet"]),
        (&["-loss"], ["one", "two", "three", "nothing yet"]),
        (&["lr", "-name"], ["three", "one", "two", "nothing yet"]),
        (&["p:lr", "-name"], ["three", "one", "two", "nothing yet"]),
        (&["p:optimizer", "-p:lr"], ["one", "two", "three", "nothing yet"]),
        (&["-name"], ["two", "three", "one", "nothing yet"]),
    ] {
        let query: Vec<_> = sort.iter().map(|key| ("sort", *key)).collect();
        assert_eq!(names(&ask(&ada, &query).await.1), expected, "{sort:?}");
    }
    let (_, last) = ask(&ada, &[("value", "last"), ("base", &ids[1].to_string()), ("where", "not two")]).await;
    let delta = last["items"][1]["cells"]["m:val/loss"]["delta"].as_f64().unwrap();
    assert!((delta - 0.25).abs() < 1e-9, "a baseline that is not in the table is one all the same");
    assert!(last["items"][2]["cells"]["m:val/loss"]["value"] == 0.6);

    let (_, chosen) = ask(&ada, &[("column", "p:seed"), ("column", "m:lr"), ("run", &ids[0].to_string())]).await;
    assert_eq!(chosen["items"][0]["cells"].as_object().unwrap().keys().collect::<Vec<_>>(), ["m:lr", "p:seed"]);
    let (_, named) = ask(&ada, &[("column", "seed"), ("column", "val/acc"), ("run", &ids[0].to_string())]).await;
    assert_eq!(named["items"][0]["cells"].as_object().unwrap().keys().collect::<Vec<_>>(), ["m:val/acc", "p:seed"]);
    let (_, first) = ask(&ada, &[("limit", "3"), ("sort", "name")]).await;
    assert_eq!(names(&first), ["nothing yet", "one", "three"]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let (_, second) = ask(&ada, &[("limit", "3"), ("sort", "name"), ("cursor", cursor)]).await;
    assert_eq!((names(&second), &second["next_cursor"]), (vec!["two"], &Value::Null));
    drop(portal);
}

#[tokio::test]
async fn parameters_of_a_sweep_are_hyperparameters() {
    let portal = TestPortal::start().await;
    let owner = portal.add_user("ada", Role::User).await;
    let ada = portal.sign_in("ada").await;
    let given = [("lr", "0.1"), ("optimizer", "sgd"), ("amp", "true")];
    // The program of the first task logs what it really used, and another hyperparameter.
    let logged = json!({"params": {"lr": 0.05, "depth": 3}, "metrics": {}}).to_string();
    let runs = tasks_of_a_sweep(portal.db(), owner, &given).await;
    portal.db().keep_digest(runs[0], 1, &logged).await.unwrap();
    external(&portal, owner, "alone").await;
    for _ in 0..2 {
        let (_, all) = ask(&ada, &[("sort", "name"), ("same", "true")]).await;
        let keys: Vec<&str> =
            all["columns"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
        assert_eq!(keys, ["p:amp", "p:depth", "p:lr", "p:optimizer"]);
        let cells = |at: usize, key: &str| all["items"][at]["cells"][key]["value"].clone();
        assert_eq!((cells(0, "p:lr"), names(&all)[2]), (json!(0.05), "alone"));
        assert_eq!(
            (cells(1, "p:lr"), cells(1, "p:optimizer"), cells(1, "p:amp")),
            (json!(0.1), json!("sgd"), json!(true))
        );
    }
    let (_, found) = ask(&ada, &[("where", "lr >= 0.1 and optimizer = sgd"), ("group", "lr")]).await;
    assert_eq!((names(&found), &found["groups"][0]["value"]), (vec!["#1"], &json!(0.1)));
}

#[tokio::test]
async fn groups_have_a_mean_and_a_band() {
    let (_portal, ada, ids) = filled().await;
    let (_, found) = ask(&ada, &[("group", "p:optimizer"), ("where", "optimizer != none")]).await;
    let groups = found["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2);
    assert_eq!((&groups[0]["value"], &groups[0]["count"]), (&json!("adam"), &json!(1)));
    assert_eq!(groups[1]["runs"], json!([ids[2], ids[1]]));
    let loss = &groups[1]["metrics"]["m:val/loss"];
    assert_eq!((loss["count"].as_u64(), loss["min"].as_f64(), loss["max"].as_f64()), (Some(2), Some(0.3), Some(0.4)));
    assert!((loss["mean"].as_f64().unwrap() - 0.35).abs() < 1e-12);
    assert_eq!((&loss["band"]["low"][0], &loss["band"]["high"][0]), (&json!(1.0), &json!(3.0)));
    let (_, with_none) = ask(&ada, &[("group", "optimizer")]).await;
    assert_eq!(with_none["groups"][2]["value"], Value::Null);
}

#[tokio::test]
async fn values_at_a_step_are_looked_up() {
    let (portal, ada, ids) = filled().await;
    for (id, scale) in [(ids[0], 1.0), (ids[1], 2.0)] {
        let points: Vec<_> =
            (0..10_i32).map(|step| (".", "val/loss", i64::from(step) * 10, scale * f64::from(10 - step))).collect();
        store(&portal, id, &points);
    }
    let (status, found) =
        ask(&ada, &[("value", "at"), ("step", "37"), ("sort", "m:val/loss"), ("where", "loss > 0")]).await;
    assert_eq!((status, names(&found)), (200, vec!["one", "two"]), "{found}");
    let cell = &found["items"][0]["cells"]["m:val/loss"];
    assert_eq!((&cell["value"], &cell["step"]), (&json!(7.0), &json!(30)));
    let (_, before) = ask(&ada, &[("value", "at"), ("step", "-1"), ("where", "one")]).await;
    assert_eq!(before["items"][0]["cells"].get("m:val/loss"), None);
}

#[tokio::test]
async fn faults_are_named_with_their_place() {
    let (portal, ada, _) = filled().await;
    for (query, field, message) in [
        (("where", "lr < "), "where", "A value is missing after “<”. (character 6)"),
        (("where", "lr < 1 and depth > 3"), "where", "Unknown column “depth”. (character 12)"),
        (("sort", "p:depth"), "sort", "Unknown column “p:depth”."),
        (("sort", "-depth"), "sort", "Unknown column “depth”."),
        (("group", "m:val/loss"), "group", "Runs can be grouped by hyperparameters only."),
        (("value", "at"), "step", "A step is required."),
        (("colour", "red"), "colour", "Unknown parameter."),
    ] {
        let (status, problem) = ask(&ada, &[query]).await;
        assert_eq!(status, 422, "{query:?}");
        assert_eq!(
            (&problem["errors"][0]["field"], &problem["errors"][0]["message"]),
            (&json!(field), &json!(message))
        );
        // The page says it beside the tool, and shows the runs nevertheless.
        let text = url::form_urlencoded::Serializer::new(String::new()).extend_pairs([query]).finish();
        let page = ada.visit(&format!("/runs?{text}")).await;
        assert_eq!(page.status(), 422);
        let text = page.text().await.unwrap();
        assert!(text.contains(&message.replace('<', "&#60;")) && text.contains(">nothing yet<"), "{query:?}");
    }
    // What a name holds is text and nothing else.
    let hostile = "<script>alert(1)</script>";
    let owner = portal.add_user("eve", Role::User).await;
    let eve = portal.sign_in("eve").await;
    result(&portal, owner, hostile, json!({hostile: hostile, "x": 1}), &[(hostile, 1.0, 1.0, 1.0)]).await;
    result(&portal, owner, "b", json!({}), &[]).await;
    let page = eve.visit("/runs?same=true").await.text().await.unwrap();
    assert!(!page.contains("<script>alert") && page.contains("&#60;script&#62;alert"), "{page}");
    // Others do not see it, whatever they name.
    let theirs = ask(&eve, &[]).await.1["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(ask(&ada, &[("run", &theirs)]).await.0, 404);
    assert_eq!(ask(&ada, &[("base", &theirs), ("owner", "*")]).await.1["matched"], 4);
    assert_eq!(ask(&ada, &[("owner", "eve")]).await.1["matched"], 0);
}

#[tokio::test]
async fn a_hundred_runs_with_ten_metrics_are_quick() {
    let portal = TestPortal::start().await;
    let owner = portal.add_user("ada", Role::User).await;
    let ada = portal.sign_in("ada").await;
    let tags: Vec<String> = (0..10).map(|number| format!("val/loss{number}")).collect();
    for number in 0..100 {
        let number = f64::from(number);
        let metrics: Vec<_> = tags.iter().map(|tag| (tag.as_str(), number, number / 2.0, number * 2.0)).collect();
        result(&portal, owner, &format!("run {number}"), json!({"lr": number, "seed": number}), &metrics).await;
    }
    ask(&ada, &[]).await;
    let begun = Instant::now();
    let (_, found) = ask(&ada, &[("sort", "-m:val/loss3"), ("where", "lr >= 50"), ("group", "p:seed")]).await;
    let took = begun.elapsed();
    assert_eq!((&found["matched"], &found["items"][0]["name"]), (&json!(50), &json!("run 99")));
    // Some ten milliseconds where nothing else runs; far from what reading points would take.
    assert!(took.as_secs() < 2, "{took:?}");
    let page = ada.visit("/runs").await.text().await.unwrap();
    assert_eq!(page.matches("class=\"small-line\"").count(), 500);
}

#[tokio::test]
async fn what_an_agent_read_is_in_the_table() {
    let Some(world) = World::open(&[]).await else { return };
    let home = world.home();
    trained(&home.join("logs/first"), "--steps 40 --rate 0 --seed 7");
    let id = read(&world, "~/logs/first", 1).await;
    let found = eventually("the run is in the table", async || {
        let found = world.person.get(&world.house, "/results").await;
        (!found["items"][0]["cells"].as_object()?.is_empty()).then_some(found)
    })
    .await;
    assert_eq!(found["items"][0]["id"], json!(id));
    let metrics = world.person.get(&world.house, &format!("/runs/{id}/metrics")).await;
    let all: Vec<&Value> =
        metrics["runs"].as_array().unwrap().iter().flat_map(|run| run["tags"].as_array().unwrap()).collect();
    let loss = all.iter().find(|tag| tag["tag"] == "train/loss").unwrap();
    let cell = &found["items"][0]["cells"]["m:train/loss"];
    assert_eq!((&cell["value"], &cell["step"]), (&loss["min"], &loss["min_step"]));
}

#[tokio::test]
async fn what_other_writers_leave_is_in_the_table() {
    let Some(world) = World::open(&[]).await else { return };
    let layouts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/curves/layouts");
    for (name, logs, cells) in [
        ("keras", "keras", &["m:train: epoch_loss", "m:validation: epoch_accuracy"][..]),
        ("pytorch", "pytorch", &["m:Loss/train", "p:lr", "p:optimizer"]),
        ("lightning", "lightning/lightning_logs/version_0", &["p:learning_rate", "m:train_loss"]),
        ("hugging face", "hugging_face/events", &[]),
    ] {
        let target = world.home().join(name);
        let copied = Command::new("cp").arg("-r").arg(layouts.join(logs)).arg(&target).status().unwrap();
        assert!(copied.success());
        let id = read(&world, target.to_str().unwrap(), 1).await;
        let found = eventually(name, async || {
            let found = world.person.get(&world.house, &format!("/results?run={id}&same=true")).await;
            (!found["items"][0]["cells"].as_object()?.is_empty()).then_some(found)
        })
        .await;
        for key in cells {
            assert!(found["items"][0]["cells"].get(key).is_some(), "{name} has no {key}: {found}");
        }
        assert!(
            found["columns"].as_array().unwrap().iter().any(|column| column["kind"] == "metric"),
            "{name}: {found}"
        );
    }
}

#[tokio::test]
async fn a_job_shows_what_it_makes_of_the_machine() {
    let Some(world) = World::open(&[]).await else { return };
    let script = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done; sleep 600";
    let request = json!({"name": "busy", "script": script, "resources": {"cpus": 1, "memory_bytes": 1_u64 << 30}});
    let (status, job) = world.person.ask(&world.house, "POST", "/jobs", &request).await;
    assert_eq!(status, 201, "{job}");
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let found = eventually("it was measured at work", async || {
        let found = world.person.get(&world.house, &format!("{path}/hardware")).await;
        let stretches = found["attempts"][0]["stretches"].as_array()?.clone();
        stretches.iter().any(|one| one["most_cpus"].as_f64() > Some(0.05)).then_some(found)
    })
    .await;
    let attempt = &found["attempts"][0];
    assert_eq!(
        (&attempt["attempt"], &attempt["cpus"], &attempt["memory_bytes"]),
        (&json!(1), &json!(1), &json!(1_u64 << 30))
    );
    let first = &attempt["stretches"][0];
    assert!(
        first["memory_bytes"].as_i64() > Some(0) && first["cpus"].as_f64() <= first["most_cpus"].as_f64(),
        "{first}"
    );
    let (status, _) = world.person.ask(&world.house, "POST", &format!("{path}/cancel"), &Value::Null).await;
    assert_eq!(status, 202);
    let kept = eventually("it has ended and is kept", async || {
        let found = world.person.get(&world.house, &format!("{path}/hardware")).await;
        found["attempts"][0]["ended_at"].is_string().then_some(found)
    })
    .await;
    assert!(!kept["attempts"][0]["stretches"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn ticked_runs_are_a_board_of_tensorboard() {
    let portal = TestPortal::start().await;
    let owner = portal.add_user("ada", Role::User).await;
    let ada = portal.sign_in("ada").await;
    let id = external(&portal, owner, "first").await.to_string();
    let answer = ada.post_form("/runs/selection", &[("do", "compare"), ("id", &id), ("id", &id)]).await;
    assert_eq!(answer.headers()["location"], format!("/runs/compare?id={id}").as_str());
    for (fields, status) in [
        (&[("do", "tensorboard")][..], 422),
        (&[("do", "paint"), ("id", &id)], 422),
        (&[("do", "tensorboard"), ("id", "x")], 404),
        (&[("do", "tensorboard"), ("id", "0199a0b2-0000-7000-8000-000000000001")], 404),
    ] {
        assert_eq!(ada.post_form("/runs/selection", fields).await.status(), status, "{fields:?}");
    }
    for (folders, code) in [
        (json!({"a/b": "/tmp"}), "invalid_name"),
        (json!({"a": "../x"}), "dot_dot"),
        (json!({"a": " "}), "missing_field"),
        (
            (0..51).map(|number| (number.to_string(), json!("/tmp"))).collect::<serde_json::Map<_, _>>().into(),
            "too_many",
        ),
    ] {
        let request = json!({"app": "tensorboard", "options": {"log_directories": folders}});
        let answer = ada.post("/api/v1/sessions", &request).await;
        assert_eq!(answer.status(), 422);
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["errors"][0]["code"], code, "{problem}");
    }
}
