//! What people see of the cluster: partitions, nodes with what is taken and why one takes no
//! work, what would start now; the same on the page and over REST, and less where the site
//! hides it.

use serde_json::{Value, json};

use super::{cluster::Cluster, whole};
use crate::{
    life::{House, Person},
    wait::eventually,
};

const GIB: i64 = 1 << 30;

async fn items(house: &House, person: &Person, path: &str) -> Vec<Value> {
    person.get(house, path).await["items"].as_array().unwrap().clone()
}

async fn page(house: &House, person: &Person) -> String {
    crate::pages::markup::one_line(
        &person.request(house, "GET", "/cluster").send().await.unwrap().text().await.unwrap(),
    )
}

#[tokio::test]
async fn nodes_partitions_and_offers() {
    let Some(cluster) = Cluster::with("MessageTimeout=3") else { return };
    let Some((house, person, cluster)) = whole::on(cluster).await else { return };
    let uid = lyceum::helper::identity::Identity::facts(&house.unix_account("m")).unwrap().uid;
    cluster.tell("scontrol", &["update", "nodename=node4", "state=drain", "reason=the fan\nis <b>broken</b>"]);
    cluster.submit(uid, &["--nodelist=node1", "--gres=gpu:a100:1", "--cpus-per-task=3", "--mem=1G"]);
    cluster.submit(uid, &["--partition=small", "--exclusive", "--begin=now+1hour"]);
    // An answer is a quarter of a minute old at most.
    let nodes = eventually("the job and the drained node are seen", async || {
        let nodes = items(&house, &person, "/nodes").await;
        (nodes[0]["gpus_held"] == 1 && nodes[3]["state"] == "drained").then_some(nodes)
    })
    .await;
    assert_eq!(nodes.len(), 4);
    let one = &nodes[0];
    assert_eq!(
        (&one["name"], &one["state"], &one["cpus_held"]),
        (&json!("node1"), &json!("mixed"), &json!(3)),
        "{one}"
    );
    assert_eq!(one["memory_held_bytes"], json!(GIB), "{one}");
    assert_eq!(one["gpu_models"], json!([{ "model": "a100", "gpus": 2, "gpus_held": 1 }]));
    assert_eq!(one["partitions"], json!(["debug", "small"]));
    assert_eq!(nodes[3]["detail"], "the fan is <b>broken</b>");
    assert_eq!(nodes[1]["state"], "idle");

    let partitions = items(&house, &person, "/partitions").await;
    let debug = &partitions[0];
    assert_eq!((&debug["name"], &debug["is_ours"], &debug["nodes"]), (&json!("debug"), &json!(true), &json!(4)));
    assert_eq!((&debug["gpus"], &debug["gpus_held"], &debug["longest_seconds"]), (&json!(8), &json!(1), &json!(3600)));
    assert_eq!((&debug["running"], &debug["waiting"]), (&json!(1), &json!(0)), "{debug}");
    assert_eq!((&partitions[1]["name"], &partitions[1]["waiting"]), (&json!("small"), &json!(1)));

    // A person gets one GPU by default; on an idle node, not on one of which less is left.
    let offers = items(&house, &person, "/offers").await;
    assert_eq!(offers.len(), 2, "{offers:?}");
    assert_eq!((&offers[0]["resources"]["gpus"], &offers[0]["node"]), (&json!(1), &json!("node2")), "{offers:?}");
    assert_eq!((&offers[1]["resources"]["gpus"], &offers[1]["resources"]["cpus"]), (&json!(0), &json!(4)));

    let text = page(&house, &person).await;
    for wanted in ["Available now", "1 × a100", "node2", "the fan is &#60;b&#62;broken&#60;/b&#62;", "Drained"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // A node has a page of its own, and what leads there.
    assert!(text.contains("href=\"/nodes/node2\""), "{text}");
    let node = person.get(&house, "/nodes/node1").await;
    assert_eq!(
        (&node["node"]["cpus_held"], &node["gpus"][0]["state"], &node["gpus"][1]["state"]),
        (&json!(3), &json!("In use"), &json!("Free")),
        "{node}"
    );
    assert_eq!(node["workloads"], json!([]), "others' work is not listed");
    let of_node = async |who: &Person, name: &str| {
        let answer = who.request(&house, "GET", &format!("/nodes/{name}")).send().await.unwrap();
        crate::pages::markup::one_line(&answer.text().await.unwrap())
    };
    let text = of_node(&person, "node1").await;
    for part in ["partition <bdi>debug</bdi>", "jobs use 1\u{a0}GPU", "Mixed", "a100"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = of_node(&person, "node4").await;
    assert!(
        text.contains("the fan is &#60;b&#62;broken&#60;/b&#62;") && text.contains("Nothing runs on this node"),
        "{text}"
    );
    let admin = house.admin();
    let all = admin.get(&house, "/nodes/node1").await["workloads"].clone();
    assert_eq!((all.as_array().unwrap().len(), &all[0]["session"]), (1, &Value::Null), "{all}");
    assert_eq!(all[0]["resources"]["gpus"], json!(1), "{all}");
    let answer = person.request(&house, "GET", "/api/v1/nodes/nowhere").send().await.unwrap();
    assert_eq!(answer.status(), 404);

    // What is offered is had at once.
    let resources = offers[0]["resources"].clone();
    let id = person.start(&house, json!({ "app": "web", "resources": resources })).await;
    let session = person.state(&house, id, "running").await;
    let name = session["node"].as_str().unwrap();
    assert!(["node2", "node3"].contains(&name), "{session}");
    let own = eventually("it is listed on its node", async || {
        let node = person.get(&house, &format!("/nodes/{name}")).await;
        node["workloads"].as_array().unwrap().first().cloned()
    })
    .await;
    assert_eq!((&own["session"], &own["name"]), (&session["id"], &session["name"]), "{own}");
    let text = of_node(&person, name).await;
    assert!(text.contains(&format!("href=\"/sessions/{id}\"")), "{text}");
    person.end(&house, id).await;

    // A silent controller: what was known, and since when.
    cluster.stop_controller();
    eventually("the page says so", async || {
        let text = page(&house, &person).await;
        (text.contains("does not respond") && text.contains("node2")).then_some(())
    })
    .await;
    assert_eq!(items(&house, &person, "/offers").await, Vec::<Value>::new(), "nobody knows what is free");
    cluster.resume_controller();
}

/// What a site keeps from its users, the portal keeps from them too.
#[tokio::test]
async fn what_the_site_hides() {
    let Some(cluster) = Cluster::with("PrivateData=jobs") else { return };
    let Some((house, person, cluster)) = whole::on(cluster).await else { return };
    let admin = house.admin();
    let partitions = items(&house, &admin, "/partitions").await;
    assert_eq!((&partitions[0]["nodes"], &partitions[0]["running"]), (&json!(4), &json!(0)), "{partitions:?}");
    let partitions = items(&house, &person, "/partitions").await;
    assert_eq!((&partitions[0]["nodes"], &partitions[0]["running"]), (&json!(4), &Value::Null), "{partitions:?}");
    let text = page(&house, &person).await;
    assert!(text.contains("hidden by the site") && text.contains("hides jobs (PrivateData)"), "{text}");
    // The portal's account is no operator and would see nothing of what it had started.
    let id = person.start(&house, json!({ "app": "web" })).await;
    eventually("the reason is told", async || {
        let session = person.session(&house, id).await;
        session["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("PrivateData"))
            .then_some(())
            .or_else(|| (!session["unknown_since"].is_null()).then_some(()))
    })
    .await;
    assert_eq!(whole::jobs(&cluster), 0);
    let (fine, said) = house.run(&["check"]);
    assert!(!fine && said.contains("adminlevel=operator"), "{said}");
}

/// A reservation is shown, offers end with its beginning, and a rehearsal says what waits for it.
#[tokio::test]
async fn reservations_are_shown_and_kept() {
    let Some(cluster) = Cluster::start() else { return };
    let Some((house, person, cluster)) = whole::on(cluster).await else { return };
    let words = ["create", "reservation=maint", "starttime=now+30minutes", "duration=60", "nodes=ALL", "users=root"];
    cluster.tell("scontrol", &[&words[..], &["flags=maint,ignore_jobs"]].concat());
    let found = eventually("it is listed", async || {
        let found = items(&house, &person, "/reservations").await;
        (!found.is_empty()).then_some(found)
    })
    .await;
    assert_eq!((&found[0]["name"], &found[0]["is_maintenance"]), (&json!("maint"), &json!(true)), "{found:?}");
    assert_eq!(found[0]["nodes"].as_array().unwrap().len(), 4, "{found:?}");
    for offer in items(&house, &person, "/offers").await {
        let longest = offer["longest_seconds"].as_i64().unwrap();
        // Slurm is asked for ten minutes more.
        assert!((900..=1200).contains(&longest), "{offer}");
    }
    let text = page(&house, &person).await;
    assert!(text.contains("Reservations and maintenance") && text.contains("maint"), "{text}");
    assert!(text.contains("Calendar of two weeks") && text.contains("<rect class=\"maintenance\""), "{text}");
    let node = person.get(&house, "/nodes/node2").await;
    assert_eq!(node["reservations"][0]["name"], "maint", "{node}");

    let ask = async |path: &str, body: Value| person.ask(&house, "POST", path, &body).await.1;
    let short = ask("/admission", json!({ "app": "web", "duration_seconds": 600 })).await;
    assert_eq!(short["outcome"], "admit", "{short}");
    let nearly = ask("/admission", json!({ "app": "web", "duration_seconds": 1500 })).await;
    assert_eq!(nearly["outcome"], "wait", "with what Slurm is asked for besides it does not fit: {nearly}");
    let long = ask("/admission", json!({ "app": "web", "duration_seconds": 3600 })).await;
    assert_eq!(long["outcome"], "wait", "{long}");
    let hint = long["reasons"][0]["hint"].as_str().unwrap();
    assert!(hint.contains("‘maint’") && hint.contains("With a time limit of"), "{hint}");
    assert!(long["estimated_start"].as_str() >= found[0]["ends_at"].as_str(), "{long}");
    let job = |seconds| json!({ "command": ["true"], "time_limit_seconds": seconds });
    assert_eq!(ask("/jobs/admission", job(3600)).await["outcome"], "wait");
    assert_eq!(ask("/jobs/admission", job(600)).await["outcome"], "admit");
    // Neither form promises what is free only until then.
    for path in ["/sessions/new", "/jobs/new"] {
        let text = person.request(&house, "GET", path).send().await.unwrap().text().await.unwrap();
        assert!(text.contains("reservation ‘maint’") && !text.contains("free now"), "{path}: {text}");
    }
    // What is submitted all the same waits, in Slurm's own words.
    let id = person.start(&house, json!({ "app": "web", "duration_seconds": 3600 })).await;
    eventually("it says what it waits for", async || {
        let session = person.session(&house, id).await;
        let detail = session["detail"].as_str().unwrap_or_default();
        (detail.contains("reserved") || detail.contains("maintenance")).then_some(())
    })
    .await;
    person.end(&house, id).await;
}
