//! Nodes that operators drain and resume through the portal: Slurm decides whether the portal's account may, all users
//! see why a node accepts no work, and what runs there goes on.

use serde_json::{Value, json};

use super::{cluster::Cluster, whole};
use crate::{life::House, wait::eventually};

/// Slurm's own word for a node, and the reason.
fn state(cluster: &Cluster, node: &str) -> (String, String) {
    let said = cluster.ask("sinfo", &["--noheader", "--nodes", node, "--format", "%T|%E", "--partition", "debug"]);
    let (state, reason) = said.trim().split_once('|').unwrap();
    (state.to_owned(), reason.to_owned())
}

async fn audited(house: &House, action: &str) -> usize {
    let found = house.admin().get(house, &format!("/audit?action={action}")).await;
    found["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn an_operator_drains_a_node_and_resumes_it() {
    let Some(cluster) = Cluster::with_accounts("") else { return };
    cluster.tell("sacctmgr", &["--immediate", "add", "account", "lab", "cluster=test"]);
    let Some((house, person, cluster)) = whole::on(cluster).await else { return };
    let (_, house_id) = person.name.split_once('-').unwrap();
    let admin = house.admin();
    let drain = "/nodes/node4/drain";
    let reason = json!({ "reason": "the fan 'is' \"broken\"" });

    // Until its account is an administrator in Slurm, the portal says so, and offers nothing.
    let (status, said) = admin.ask(&house, "PUT", drain, &reason).await;
    let detail = said["detail"].as_str().unwrap_or_default();
    assert!(status == 409 && detail.starts_with("Slurm did not drain the node: "), "{said}");
    assert!(detail.contains("adminlevel=admin"), "{said}");
    let page = async || {
        let answer = admin.request(&house, "GET", "/nodes/node4").send().await.unwrap();
        crate::pages::markup::one_line(&answer.text().await.unwrap())
    };
    assert!(!page().await.contains("/nodes/node4/drain"));
    assert_eq!((state(&cluster, "node4").0.as_str(), audited(&house, "node.drain").await), ("idle", 0));

    let portal = format!("ly-s-{house_id}");
    cluster.tell("sacctmgr", &["--immediate", "add", "user", &portal, "account=lab", "adminlevel=admin"]);
    eventually("the page offers it", async || page().await.contains("action=\"/nodes/node4/drain\"").then_some(()))
        .await;

    // Work that runs there goes on.
    let asked = json!({ "script": "#!/bin/sh\n#SBATCH --nodelist=node4\nsleep 600\n" });
    let (status, job) = person.ask(&house, "POST", "/jobs", &asked).await;
    assert_eq!(status, 201, "{job}");
    let job = format!("/jobs/{}", job["id"].as_str().unwrap());
    eventually("it runs", async || (person.get(&house, &job).await["state"] == "running").then_some(())).await;
    let (status, node) = admin.ask(&house, "PUT", drain, &reason).await;
    assert_eq!((status, &node["state"]), (200, &json!("draining")), "{node}");
    let seen = format!("the fan 'is' \"broken\" ({})", admin.name);
    assert_eq!(node["detail"], json!(seen));
    assert_eq!(state(&cluster, "node4"), ("draining".to_owned(), seen));
    assert_eq!(person.get(&house, &job).await["state"], "running");
    assert!(page().await.contains("action=\"/nodes/node4/resume\""));
    let (status, _) = person.ask(&house, "POST", &format!("{job}/cancel"), &Value::Null).await;
    assert!(status < 300, "{status}");
    eventually("it is empty", async || (state(&cluster, "node4").0 == "drained").then_some(())).await;

    // Only operators, and only nodes that there are.
    assert_eq!(person.ask(&house, "DELETE", drain, &Value::Null).await.0, 403);
    assert_eq!(admin.ask(&house, "PUT", "/nodes/node[1-4]/drain", &reason).await.0, 404);
    let (status, said) = admin.ask(&house, "PUT", drain, &json!({ "reason": "two\nlines" })).await;
    assert_eq!((status, &said["errors"][0]["field"]), (422, &json!("reason")), "{said}");

    let (status, node) = admin.ask(&house, "DELETE", drain, &Value::Null).await;
    assert_eq!((status, &node["detail"]), (200, &Value::Null), "{node}");
    // Slurm first asks the node whether it responds.
    eventually("it is idle", async || {
        let node = admin.get(&house, "/nodes/node4").await["node"].take();
        (node["state"] == "idle").then_some(())
    })
    .await;
    assert_eq!(admin.ask(&house, "DELETE", drain, &Value::Null).await.0, 200);
    assert_eq!(
        (audited(&house, "node.drain").await, audited(&house, "node.resume").await),
        (1, 1),
        "a no-op is no change"
    );

    // Nobody drains anything while the controller is silent, and nothing is noted.
    cluster.stop_controller();
    let (status, said) = admin.ask(&house, "PUT", drain, &reason).await;
    assert_eq!(status, 503, "{said}");
    cluster.resume_controller();
    assert_eq!(audited(&house, "node.drain").await, 1);
}
