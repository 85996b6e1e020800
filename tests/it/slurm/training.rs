//! A network that several nodes train together: begun from the portal as any other, faster as more
//! devices are, and ended at one step with a snapshot when somebody cancels it. The trainer's own
//! tests say that its curve is the one that a single machine would have had.

use serde_json::{Value, json};

use super::{cluster::Cluster, whole};
use crate::{
    life::{
        House, Person,
        jobs::log,
        models::{shapes, train, trained},
    },
    needs::{met, variable},
    pages::markup::one_line,
    wait::eventually,
};

async fn open() -> Option<(House, Person, Cluster)> {
    let python = variable("LYCEUM_TEST_PYTHON");
    if !met("a Python with Keras (LYCEUM_TEST_PYTHON)", python.is_some()) {
        return None;
    }
    let environment = format!("[[environments.list]]\nname = 'default'\npython = '{}'\n", python?);
    whole::configured(Cluster::start()?, &[], &environment).await
}

/// With as many pictures a device, however many there are.
fn request(dataset: &str, nodes: i64, epochs: i64) -> Value {
    json!({ "name": format!("on {nodes}"), "dataset": dataset, "nodes": nodes,
        "resources": { "cpus": 1, "memory_bytes": 2_i64 << 30 }, "time_limit_seconds": 1800,
        "config": { "network": { "name": "lenet" }, "epochs": epochs, "batch_size": 16 * nodes, "seed": 1,
            "optimizer": { "name": "adam" } } })
}

#[tokio::test]
async fn two_nodes_train_one_network() {
    let Some((house, person, _cluster)) = open().await else { return };
    let dataset = shapes(&house, &person).await;

    let uneven = json!({ "name": "x", "dataset": dataset, "nodes": 3, "config": { "batch_size": 16 } });
    let (status, said) = person.ask(&house, "POST", "/models", &uneven).await;
    assert_eq!((status, &said["errors"][0]["field"]), (422, &json!("config.batch_size")), "{said}");

    let two = train(&house, &person, request(&dataset, 2, 3)).await;
    let model = trained(&house, &person, &two).await;
    assert_eq!((&model["speed"]["devices"], &model["speed"]["batch_size"]), (&json!(2), &json!(32)), "{model}");
    let job = person.get(&house, &format!("/jobs/{}", model["job"].as_str().unwrap())).await;
    assert_eq!((&job["nodes"], &job["resources"]["cpus"]), (&json!(2), &json!(2)), "all nodes are charged: {job}");
    // Another one like it asks for the same on each node.
    let again = person.request(&house, "GET", &format!("/models/new?dataset={dataset}&like={}", &two[8..]));
    let form = one_line(&again.send().await.unwrap().text().await.unwrap());
    for wanted in [r#"name="nodes" value="2""#, r#"name="cpus" value="1""#, r#"name="memory" value="2""#] {
        assert!(form.contains(wanted), "{wanted}: {form}");
    }

    // Beside a training on one node it says what the second one brings.
    let one = train(&house, &person, request(&dataset, 1, 3)).await;
    trained(&house, &person, &one).await;
    let scaling = person.get(&house, &format!("{two}/scaling")).await;
    let devices: Vec<_> = scaling["rows"].as_array().unwrap().iter().map(|row| row["devices"].clone()).collect();
    assert_eq!((devices, &scaling["batch_per_device"]), (vec![json!(1), json!(2)], &json!(16)), "{scaling}");
}

/// All nodes stop at one step, with a snapshot of it, and go on there.
#[tokio::test]
async fn cancelled_and_resumed() {
    let Some((house, person, cluster)) = open().await else { return };
    let dataset = shapes(&house, &person).await;
    let path = train(&house, &person, request(&dataset, 2, 2000)).await;
    let snapshots = format!("{path}/snapshots");
    let newest = async || {
        let found = person.get(&house, &snapshots).await;
        found["snapshots"].as_array().and_then(|all| all.last().cloned())
    };
    eventually("the first snapshot", newest).await;
    let job = format!("/jobs/{}", person.get(&house, &path).await["job"].as_str().unwrap());
    let (status, said) = person.ask(&house, "POST", &format!("{job}/cancel"), &Value::Null).await;
    assert_eq!(status, 202, "{said}");
    eventually("it is stopped", async || (person.get(&house, &path).await["state"] == "stopped").then_some(())).await;
    eventually("no job is left", async || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())).await;
    // A stop at the end of an epoch finds its snapshot made: the name does not say which it was.
    let last = newest().await.unwrap();
    let said = log(&house, &person, &format!("{}/log", &job[6..])).await;
    let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let end = lines.rfind(|line| line["event"] == "terminated").unwrap_or_else(|| panic!("{said}"));
    assert_eq!((&last["step"], &last["epoch"]), (&end["step"], &end["epoch"]), "the last thing it did: {last}");

    let (status, said) = person.ask(&house, "POST", &format!("{job}/resume"), &Value::Null).await;
    assert!((200..300).contains(&status), "{status} {said}");
    let step = |entry: &Value| entry["step"].as_i64().unwrap();
    eventually("it goes on there", async || newest().await.filter(|found| step(&last) < step(found))).await;
    let (status, said) = person.ask(&house, "POST", &format!("{job}/cancel"), &Value::Null).await;
    assert_eq!(status, 202, "{said}");
    eventually("no job is left", async || cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())).await;
}
