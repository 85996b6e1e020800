//! The GPUs of a node of a cluster, as the agents of jobs and sessions read them there: now, over time, and while they
//! rest. The driver is the tests' own; which devices a job has, the real Slurm decides.

use serde_json::{Value, json};

use super::{cluster::Cluster, whole};
use crate::{
    gpus::driver,
    idleness::open_directory,
    life::{House, Person},
    pages::markup::one_line,
    wait::eventually,
};

const MIB: i64 = 1 << 20;

/// A portal in front of a cluster, each node of which has two GPUs and this driver.
async fn open(folder: &std::path::Path, name: &str, state: &str) -> Option<(House, Person, Cluster)> {
    let file = folder.join("state");
    std::fs::write(&file, state).unwrap();
    let library = driver(folder, name, &format!("-DGPUS=2 -DSTATE=\"{}\"", file.display()));
    let more = [("LYCEUM_SCHEDULER__SLURM__NVML", library.to_str().unwrap()), ("LYCEUM_GPUS__INTERVAL", "1s")];
    whole::on_with(Cluster::start()?, &more).await
}

async fn hardware(house: &House, person: &Person, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
    eventually("it was measured", async || {
        let found = person.get(house, &format!("{path}/hardware")).await;
        let one = if found["attempts"].is_array() { found["attempts"][0].clone() } else { found };
        fits(&one).then_some(one)
    })
    .await
}

#[tokio::test]
async fn gpus_of_jobs_are_measured_on_their_node() {
    let folder = open_directory();
    let state = "gpu 0 87 1024 61 250\ngpu 1 35 512 50 200\nprocess 0 4242 900\nslow 1 64\nxid 1 48\n";
    let Some((house, person, _cluster)) = open(folder.path(), "slurm-jobs", state).await else { return };
    house.admin().allow(&house, &person, json!({ "gpus": -1, "jobs": -1 })).await;
    let resources = json!({ "gpus": 2, "cpus": 1, "memory_bytes": 256 * MIB });
    let request = json!({ "name": "measured", "command": ["sleep", "1000"], "resources": resources,
        "time_limit_seconds": 1800 });
    let (status, job) = person.ask(&house, "POST", "/jobs", &request).await;
    assert_eq!(status, 201, "{job}");
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    let measured = |one: &Value| {
        let stretches = one["stretches"].as_array();
        one["now"].as_array().is_some_and(|now| now.len() == 2)
            && stretches
                .is_some_and(|all| all.iter().any(|one| one["gpus"].as_array().is_some_and(|gpus| gpus.len() == 2)))
    };
    let found = hardware(&house, &person, &path, measured).await;
    let (first, second) = (&found["now"][0], &found["now"][1]);
    assert_eq!((&first["utilisation"], &first["watts"], &first["celsius"]), (&json!(87), &json!(250.0), &json!(61)));
    assert_eq!(first["processes"][0], json!({ "pid": 4242, "memory_bytes": 900 * MIB }));
    assert_eq!((&second["health"]["slowed_by"], &second["health"]["xid"]), (&json!(["heat"]), &json!(48)));
    assert_eq!(found["gpus"][1]["uuid"], "GPU-00000000-0000-0000-0000-000000000001", "{found}");
    let stretch = found["stretches"].as_array().unwrap().iter().find(|one| one["gpus"].is_array()).unwrap();
    assert_eq!(stretch["gpus"][0]["utilisation"], 87.0, "{stretch}");
    assert_eq!(found["idle_gpus"], Value::Null, "they compute");

    let (status, _) = person.ask(&house, "POST", &format!("{path}/cancel"), &Value::Null).await;
    assert_eq!(status, 202);
    let kept = hardware(&house, &person, &path, |one| one["ended_at"].is_string()).await;
    assert_eq!(kept["now"], json!([]));
    let used = &kept["efficiency"];
    assert!(used["gpu_utilisation"].as_f64().is_some_and(|percent| (60.0..62.0).contains(&percent)), "{used}");
    assert_eq!(used["gpus_used"], 2);
    let page = person.request(&house, "GET", &format!("{path}?tab=system")).send().await.unwrap().text().await.unwrap();
    assert!(one_line(&page).contains("GPUs 61 % busy on average"), "{page}");
}

/// A GPU that is held and rests is reported where its owner looks, with what it costs.
#[tokio::test]
async fn resting_gpus_of_a_session_are_reported() {
    let folder = open_directory();
    let state = "gpu 0 2 100 40 60\ngpu 1 0 100 40 60\n";
    let Some((house, person, _cluster)) = open(folder.path(), "slurm-rest", state).await else { return };
    let resources = json!({ "gpus": 1, "cpus": 1, "memory_bytes": 256 * MIB });
    let id = person.start(&house, json!({ "app": "web", "resources": resources })).await;
    person.state(&house, id, "running").await;
    let path = format!("/sessions/{id}");
    let found = hardware(&house, &person, &path, |one| one["now"].as_array().is_some_and(|now| now.len() == 1)).await;
    assert_eq!((&found["attempt"], &found["idle_gpus"]), (&json!(1), &Value::Null), "{found}");
    // A whole minute has to be over, which takes one to two.
    let begin = std::time::Instant::now();
    let idle = eventually("its GPU rests", async || {
        let session = person.session(&house, id).await;
        Some(session["idle_gpus"].clone()).filter(Value::is_object)
    })
    .await;
    assert!(begin.elapsed() < std::time::Duration::from_secs(130), "{:?}", begin.elapsed());
    assert!(idle["gpu_hours"].as_f64().is_some_and(|hours| (0.01..0.1).contains(&hours)), "{idle}");
    assert_eq!(idle["gpus"].as_array().unwrap().len(), 1);
    let card = person.request(&house, "GET", &format!("{path}/card")).send().await.unwrap().text().await.unwrap();
    let card = one_line(&card);
    let told = card.contains("1 GPU has been idle for") && card.contains("GPU hours.");
    assert!(told && !card.contains("check that its environment"), "advice comes after gpus.idle_after: {card}");

    // It computes again: nothing is left to say once a minute of work is over.
    std::fs::write(folder.path().join("state"), "gpu 0 90 100 40 60\ngpu 1 90 100 40 60\n").unwrap();
    eventually("it computes", async || person.session(&house, id).await["idle_gpus"].is_null().then_some(())).await;
}
