//! A sweep of trainings on the real program: every combination is checked before anything is written, and each task
//! trains a model of its own, which is written together with its job.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{House, Person, eventually, models};

#[tokio::test]
async fn each_combination_becomes_a_model() {
    let Some(house) = models::house().await else { return };
    let person = house.person();
    let dataset = models::shapes(&house, &person).await;
    let config = json!({ "network": { "name": "small-cnn" }, "epochs": 1, "batch_size": 48 });
    let training = json!({ "name": "shapes", "dataset": dataset, "config": config });
    let elsewhere = json!({ "name": "shapes", "dataset": uuid::Uuid::now_v7() });
    for (asked, field) in [
        (
            json!({ "training": training, "parameters": { "learning_rate.base": "0.01, -1" } }),
            "parameters.learning_rate.base",
        ),
        (json!({ "training": training, "parameters": { "rate": [0.1, 0.2] } }), "parameters.rate"),
        (json!({ "training": training, "parameters": { "network.name": "lenet, net" } }), "parameters.network.name"),
        (json!({ "training": training, "parameters": { "data": ["x"] } }), "parameters.data"),
        (json!({ "training": training, "array": "0-3" }), "array"),
        (json!({ "training": training, "job": { "command": ["true"] }, "repeat": 2 }), "training"),
        (json!({ "training": elsewhere, "repeat": 2 }), "dataset"),
    ] {
        let (status, said) = person.ask(&house, "POST", "/sweeps", &asked).await;
        assert_eq!((status, &said["errors"][0]["field"]), (422, &json!(field)), "{said}");
    }
    assert_eq!(person.get(&house, "/sweeps").await["items"], json!([]));
    assert_eq!(person.get(&house, "/models").await["items"], json!([]));

    let asked = json!({ "training": training, "parameters": { "learning_rate.base": [0.003, 0.0001] }, "parallel": 1 });
    let (status, preview) = person.ask(&house, "POST", "/sweeps/preview", &asked).await;
    assert_eq!((status, &preview["tasks"]), (200, &json!(2)), "{preview}");
    let (status, sweep) = person.ask(&house, "POST", "/sweeps", &asked).await;
    assert_eq!((status, &sweep["name"]), (201, &json!("shapes")), "{sweep}");
    let id = sweep["id"].as_str().unwrap();
    let path = format!("/sweeps/{id}");
    let over = async || Some(person.get(&house, &path).await).filter(|found| found["state"] == "ended");
    let found = eventually("both are trained", over).await;
    assert_eq!(found["metric"]["tag"], "events/validation: accuracy");
    let tasks = found["items"].as_array().unwrap();
    assert_eq!(tasks.len(), 2);
    for (task, (name, rate)) in tasks.iter().zip([("shapes #0", 0.003), ("shapes #1", 0.0001)]) {
        assert_eq!(task["state"], "succeeded", "{task}");
        let model = models::trained(&house, &person, &format!("/models/{}", task["model"].as_str().unwrap())).await;
        assert_eq!((&model["name"], &model["job"]), (&json!(name), &task["job"]), "{model}");
        assert_eq!(model["config"]["learning_rate"]["base"], json!(rate));
        assert_eq!((&model["config"]["batch_size"], &model["dataset"]), (&json!(48), &json!(dataset)));
        // Compared by the curve of the validation, which the training's own has the same tag as.
        let best = |of: &Value| of["best"].as_f64().unwrap();
        assert!((best(task) - best(&model)).abs() < 1e-6, "{task} {model}");
    }
    let removed =
        person.ask(&house, "DELETE", &format!("/models/{}", tasks[0]["model"].as_str().unwrap()), &Value::Null).await;
    assert_eq!(removed.0, 204);
    assert_eq!(person.get(&house, &path).await["items"][0]["model"], Value::Null);

    twenty_at_once(&house, &person, &training).await;
    without_its_dataset(&house, &person, &training).await;
}

/// Twenty are asked for at once: what is released has its model, what is not has none, and all end together.
async fn twenty_at_once(house: &House, person: &Person, training: &Value) {
    let models = async || person.get(house, "/models").await["items"].as_array().unwrap().len();
    let before = models().await;
    let asked = json!({ "training": training, "repeat": 20, "parallel": 20 });
    let (status, sweep) = person.ask(house, "POST", "/sweeps", &asked).await;
    assert_eq!((status, &sweep["tasks"]), (201, &json!(20)), "{sweep}");
    let path = format!("/sweeps/{}", sweep["id"].as_str().unwrap());
    assert_eq!(person.ask(house, "POST", &format!("{path}/stop"), &Value::Null).await.0, 202);
    let over = async || Some(person.get(house, &path).await).filter(|found| found["state"] == "ended");
    let found = eventually("all are stopped", over).await;
    let tasks = found["items"].as_array().unwrap();
    assert!(tasks.iter().all(|task| task["job"].is_null() == task["model"].is_null()), "{found}");
    let trained: BTreeSet<&str> = tasks.iter().filter_map(|task| task["model"].as_str()).collect();
    assert!(!trained.is_empty() && found["released"] == trained.len(), "{found}");
    assert_eq!(models().await, before + trained.len());
    for model in trained {
        let model = person.get(house, &format!("/models/{model}")).await;
        assert_eq!(model["state"], "stopped", "{model}");
    }
}

/// What is left to train has nothing to learn from: the sweep says so, and stops there.
async fn without_its_dataset(house: &House, person: &Person, training: &Value) {
    let asked = json!({ "training": training, "repeat": 2, "parallel": 1 });
    let (_, sweep) = person.ask(house, "POST", "/sweeps", &asked).await;
    let path = format!("/sweeps/{}", sweep["id"].as_str().unwrap());
    let dataset = format!("/datasets/{}", training["dataset"].as_str().unwrap());
    assert_eq!(person.ask(house, "DELETE", &dataset, &Value::Null).await.0, 204);
    let first = person.get(house, &path).await["items"][0]["job"].clone();
    person.ask(house, "POST", &format!("/jobs/{}/cancel", first.as_str().unwrap()), &Value::Null).await;
    let paused = async || Some(person.get(house, &path).await).filter(|found| found["state"] == "paused");
    let found = eventually("it is paused", paused).await;
    assert!(found["detail"].as_str().unwrap().starts_with("The dataset was deleted"), "{found}");
    assert_eq!((&found["released"], &found["items"][1]["job"]), (&json!(1), &Value::Null));
}
