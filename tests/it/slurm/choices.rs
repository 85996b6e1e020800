//! What users choose of the cluster for a session or a job: offered as the controller allows it or as the site lists it,
//! passed to `sbatch`, shown, kept when something is started again, and refused with its field where it is not allowed.

use serde_json::{Value, json};

use super::{
    cluster::Cluster,
    whole::{on_with, open},
};
use crate::{
    life::{
        House, Person,
        jobs::{ended, state, submit},
    },
    wait::eventually,
};

const MIB: i64 = 1 << 20;

fn size() -> Value {
    json!({ "cpus": 1, "memory_bytes": 128 * MIB })
}

async fn page(house: &House, person: &Person, path: &str) -> String {
    let text = person.request(house, "GET", path).send().await.unwrap().text().await.unwrap();
    crate::pages::markup::one_line(&text)
}

/// The field and the code of everything that is wrong with a request.
async fn faults(house: &House, person: &Person, path: &str, request: Value) -> Vec<String> {
    let (status, answer) = person.ask(house, "POST", path, &request).await;
    assert_eq!(status, 422, "{request}: {answer}");
    let told = |fault: &Value| format!("{} {}", fault["field"].as_str().unwrap(), fault["code"].as_str().unwrap());
    answer["errors"].as_array().unwrap().iter().map(told).collect()
}

/// A job's number in Slurm's queue.
async fn number(house: &House, person: &Person) -> i32 {
    eventually("it is in the queue", async || {
        let queue = person.get(house, "/queue").await;
        queue["items"].as_array().unwrap().first()?["id"].as_str()?.parse().ok()
    })
    .await
}

#[tokio::test]
async fn what_is_chosen_reaches_slurm() {
    let closed =
        "AccountingStorageEnforce=associations,qos\nPartitionName=closed Nodes=node2 AllowGroups=root State=UP\n";
    let Some(cluster) = Cluster::with_accounts(closed) else { return };
    cluster.tell("sacctmgr", &["--immediate", "add", "qos", "long"]);
    cluster.tell("sacctmgr", &["--immediate", "add", "account", "lab", "cluster=test"]);
    let Some((house, person, cluster)) = on_with(cluster, &[]).await else { return };
    let unix = format!("ly-n-{}", person.name.split_once('-').unwrap().1);
    let words =
        ["--immediate", "add", "user", &unix, "account=lab", "cluster=test", "qos=normal,long", "defaultqos=normal"];
    cluster.tell("sacctmgr", &words);
    cluster.tell("scontrol", &["update", "nodename=node3", "AvailableFeatures=fast", "ActiveFeatures=fast"]);
    let users = format!("users={unix}");
    let reservation = ["create", "reservation=course", "starttime=now", "duration=60", "nodes=node3"];
    cluster.tell("scontrol", &[&reservation[..], &[&users]].concat());
    let choices = eventually("all of it is offered", async || {
        let choices = person.get(&house, "/slurm/choices").await;
        (choices["reservation"]["values"] == json!(["course"]) && choices["account"]["values"] == json!(["lab"]))
            .then_some(choices)
    })
    .await;
    let values = |option: &str| choices[option]["values"].clone();
    assert_eq!((values("partition"), values("qos")), (json!(["debug", "small"]), json!(["long", "normal"])));
    assert_eq!(values("constraint"), json!(["fast"]));

    // A session, and the form that starts it again.
    let chosen = json!({ "partition": "small", "account": "lab", "qos": "long" });
    let asked = json!({ "app": "web", "resources": size(), "duration_seconds": 120, "slurm": chosen });
    let id = person.start(&house, asked).await;
    let session = person.state(&house, id, "running").await;
    let shown =
        json!({ "partition": "small", "account": "lab", "qos": "long", "reservation": null, "constraint": null });
    assert_eq!((&session["slurm"], &session["node"]), (&shown, &json!("node1")), "{session}");
    let job = number(&house, &person).await;
    let field = |name: &str| cluster.field(job, name);
    assert_eq!((field("partition"), field("account"), field("qos")), ("small".into(), "lab".into(), "long".into()));
    let text = page(&house, &person, &format!("/sessions/{id}")).await;
    assert!(text.contains("<dt>Partition</dt> <dd>small</dd>") || text.contains(">small<"), "{text}");
    person.end(&house, id).await;
    let text = page(&house, &person, &format!("/sessions/new?from={id}")).await;
    for selected in ["small", "lab", "long"] {
        assert!(text.contains(&format!("<option value=\"{selected}\" selected>")), "{selected}: {text}");
    }
    let text = page(&house, &person, "/cluster").await;
    assert!(text.contains("href=\"/sessions/new?partition=debug&#38;"), "{text}");

    // A job, and its next attempt.
    let chosen = json!({ "reservation": "course", "constraint": "fast" });
    let asked = json!({ "command": ["sleep", "600"], "resources": size(), "time_limit_seconds": 600, "slurm": chosen });
    let id = submit(&house, &person, asked).await;
    for attempt in 1..=2 {
        let job = state(&house, &person, &id, "running").await;
        assert_eq!((&job["slurm"]["reservation"], &job["node"]), (&json!("course"), &json!("node3")), "{job}");
        let number = eventually("it is in the queue", async || {
            let queue = person.get(&house, "/queue").await;
            let row = queue["items"].as_array().unwrap().iter().find(|row| row["job"] == json!(id)).cloned()?;
            row["id"].as_str()?.parse::<i32>().ok()
        })
        .await;
        assert_eq!(cluster.field(number, "feature"), "fast", "attempt {attempt}");
        person.ask(&house, "POST", &format!("/jobs/{id}/cancel"), &Value::Null).await;
        ended(&house, &person, &id, "stopped_by_owner").await;
        if attempt == 1 {
            let (status, again) = person.ask(&house, "POST", &format!("/jobs/{id}/resume"), &Value::Null).await;
            assert_eq!(status, 202, "{again}");
        }
    }
    let text = page(&house, &person, &format!("/jobs/new?from={id}")).await;
    assert!(text.contains("<option value=\"course\" selected>") && text.contains("value=\"fast\""), "{text}");

    // What is not allowed or not known is refused with its field.
    let wrong = json!({ "partition": "closed", "account": "root", "qos": "short", "reservation": "x", "constraint": "fast&a b" });
    let fields = [
        "slurm.partition not_allowed",
        "slurm.account not_allowed",
        "slurm.qos not_allowed",
        "slurm.reservation not_allowed",
        "slurm.constraint characters",
    ];
    let asked = json!({ "app": "web", "resources": size(), "slurm": wrong });
    assert_eq!(faults(&house, &person, "/sessions", asked).await, fields);
    let asked = json!({ "command": ["true"], "resources": size(), "slurm": wrong });
    assert_eq!(faults(&house, &person, "/jobs", asked).await, fields);
    let script = "#!/bin/sh\n#SBATCH --partition=debug\ntrue\n";
    let asked = json!({ "script": script, "sbatch": true, "slurm": { "partition": "small" } });
    assert_eq!(faults(&house, &person, "/jobs", asked).await, ["slurm.partition ambiguous"]);
}

#[tokio::test]
async fn a_site_lists_what_can_be_chosen() {
    let Some(cluster) = Cluster::start() else { return };
    let more = [
        ("LYCEUM_SCHEDULER__SLURM__CHOICES__PARTITIONS", "small"),
        ("LYCEUM_SCHEDULER__SLURM__CHOICES__CONSTRAINTS", ""),
    ];
    let Some((house, person, cluster)) = on_with(cluster, &more).await else { return };
    let choices = eventually("Slurm has listed its partitions", async || {
        let choices = person.get(&house, "/slurm/choices").await;
        choices["account"]["reason"]
            .as_str()
            .is_some_and(|why| why.contains("keeps no Slurm accounts"))
            .then_some(choices)
    })
    .await;
    assert_eq!(choices["partition"], json!({ "values": ["small"], "reason": null }));
    assert!(choices["constraint"]["reason"].as_str().unwrap().contains("does not let users choose"), "{choices}");
    let asked = |option: &str, value: &str| json!({ "app": "web", "resources": size(), "duration_seconds": 120, "slurm": { option: value } });
    for (option, value, fault) in [
        ("partition", "debug", "slurm.partition not_allowed"),
        ("account", "lab", "slurm.account not_available"),
        ("constraint", "fast", "slurm.constraint not_available"),
    ] {
        assert_eq!(faults(&house, &person, "/sessions", asked(option, value)).await, [fault]);
    }
    // A script's own lines are held to it too.
    let script = |line: &str| json!({ "script": format!("#!/bin/sh\n#SBATCH {line}\ntrue\n"), "sbatch": true });
    assert_eq!(faults(&house, &person, "/jobs", script("-p debug")).await, ["script not_allowed"]);
    let id = submit(&house, &person, script("-p small -t 2")).await;
    ended(&house, &person, &id, "exited").await;
    assert!(cluster.ask("squeue", &["--noheader", "--states=all", "--Format", "partition"]).contains("small"));
    let text = page(&house, &person, "/jobs/new?partition=small&gpus=1&gpu_model=a100&cpus=2&memory=512%20MiB").await;
    assert!(text.contains("<option value=\"small\" selected>") && text.contains("value=\"512 MiB\""), "{text}");
    assert!(!text.contains("name=\"account\"") && !text.contains("name=\"constraint\""), "{text}");
    // In the sixth minute the partition would have ended it.
    let (status, refused) = person
        .ask(
            &house,
            "POST",
            "/sessions",
            &json!({ "app": "web", "resources": size(),
        "duration_seconds": 3600, "slurm": { "partition": "small" } }),
        )
        .await;
    assert!(status == 409 && refused.to_string().contains("partition small allows at most 5"), "{status} {refused}");
}

#[tokio::test]
async fn without_slurm_there_is_nothing_to_choose() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let asked = json!({ "app": "web", "resources": size(), "slurm": { "partition": "debug" } });
    assert_eq!(faults(&house, &person, "/sessions", asked).await, ["slurm.partition not_available"]);
    let asked = json!({ "command": ["true"], "resources": size(), "slurm": { "qos": "long" } });
    let (status, answer) = person.ask(&house, "POST", "/jobs", &asked).await;
    assert!(status == 422 && answer.to_string().contains("does not use Slurm"), "{status} {answer}");
    let choices = person.get(&house, "/slurm/choices").await;
    assert_eq!(choices["partition"], json!({ "values": [], "reason": "this portal does not use Slurm" }));
    assert!(!page(&house, &person, "/jobs/new").await.contains("name=\"partition\""));
}

/// The controller is away: nothing can be listed, and nobody waits for it.
#[tokio::test]
async fn the_form_does_not_wait_for_the_controller() {
    let Some((house, person, cluster)) = open().await else { return };
    cluster.stop_controller();
    let began = std::time::Instant::now();
    let text = page(&house, &person, "/sessions/new").await;
    assert!(began.elapsed() < std::time::Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(text.contains("New session"), "{text}");
    cluster.resume_controller();
}
