//! The queue's page and API on a real cluster: jobs of a shell beside the portal's, whose each
//! reader sees, why and in which place they wait, and their end through the portal.

use lyceum::helper::identity::Identity;
use serde_json::{Value, json};

use super::{cluster::Cluster, whole};
use crate::{
    life::{House, Person},
    wait::{eventually, until},
};

async fn queue(house: &House, person: &Person, path: &str) -> Vec<Value> {
    person.get(house, path).await["items"].as_array().unwrap().clone()
}

/// The rows, once this is true of them.
async fn once(house: &House, person: &Person, path: &str, what: &str, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let mut before = Vec::new();
    eventually(what, async || {
        let rows = queue(house, person, path).await;
        if rows != before {
            eprintln!("{what}: {rows:?}");
            before.clone_from(&rows);
        }
        is_so(&rows).then_some(rows)
    })
    .await
}

async fn page(house: &House, person: &Person, path: &str) -> String {
    crate::pages::markup::one_line(&person.request(house, "GET", path).send().await.unwrap().text().await.unwrap())
}

/// Whom somebody's work runs as.
fn uid(person: &Person) -> u32 {
    Identity::facts(&account(person)).unwrap().uid
}

fn account(person: &Person) -> String {
    let (_, house) = person.name.split_once('-').unwrap();
    format!("ly-n-{house}")
}

fn stranger(house: &House) -> u32 {
    Identity::facts(&house.unix_account("m")).unwrap().uid
}

fn of<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {rows:?}"))
}

#[tokio::test]
async fn jobs_of_a_shell_are_there() {
    let Some(cluster) = Cluster::start() else { return };
    let Some((house, person, cluster)) = whole::on(cluster).await else { return };
    let (mine, theirs) = (uid(&person), stranger(&house));
    // One fills a node; two of others' wait for it, and one of ours behind them.
    let on_one = ["--nodelist=node1", "--exclusive"];
    let running = cluster.submit(mine, &[&on_one[..], &["--job-name=fills", "--gres=gpu:a100:2"]].concat());
    until("it runs", || cluster.field(running, "state") == "RUNNING");
    cluster.submit(theirs, &[&on_one[..], &["--job-name=before"]].concat());
    cluster.submit(mine, &[&on_one[..], &["--job-name=turn\n<b>x</b>"]].concat());
    cluster.submit(mine, &["--job-name=held", "--hold"]);
    let array = cluster.submit(mine, &["--job-name=tasks", "--array=1-3", "--begin=now+1hour"]);
    let id = person.start(&house, json!({ "app": "web", "duration_seconds": 1800 })).await;
    person.state(&house, id, "running").await;

    let rows = once(&house, &person, "/queue", "all are seen", |rows| {
        rows.len() == 5 && rows.iter().any(|row| row["name"] == "turn <b>x</b>" && row["place"] == 2)
    })
    .await;
    let fills = of(&rows, "fills");
    assert_eq!((&fills["state"], &fills["node"]), (&json!("running"), &json!("node1")), "{fills}");
    assert_eq!((&fills["resources"]["gpus"], &fills["resources"]["cpus"]), (&json!(2), &json!(4)), "{fills}");
    assert_eq!(fills["resources"]["gpu_model"], "a100");
    assert!(fills["detail"].is_null() && fills["place"].is_null() && fills["session"].is_null(), "{fills}");
    assert_eq!(fills["time_limit_seconds"], 600);
    let turn = of(&rows, "turn <b>x</b>");
    assert_eq!((&turn["state"], &turn["partitions"]), (&json!("waiting"), &json!(["debug"])), "{turn}");
    let held = of(&rows, "held");
    assert!(held["detail"].as_str().unwrap().contains("held"), "{held}");
    assert!(held["place"].is_null() && held["estimated_start"].is_null(), "{held}");
    let tasks = of(&rows, "tasks");
    assert_eq!((&tasks["id"], &tasks["label"]), (&json!(format!("{array}_waiting")), &json!(format!("{array}_[1-3]"))));
    assert!(rows.iter().any(|row| row["session"] == json!(id.to_string())), "the portal's own is among them");
    // The scheduler looks ahead: what comes next has a time, the same in Slurm's own words.
    let turn = once(&house, &person, "/queue", "a start is told", |rows| {
        rows.iter().any(|row| row["place"] == 2 && row["estimated_start"].is_string())
    })
    .await;
    assert!(of(&turn, "turn <b>x</b>")["estimated_start"].is_string());

    // In pages, newest first.
    let first = person.get(&house, "/queue?limit=2").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = queue(&house, &person, &format!("/queue?limit=2&cursor={cursor}")).await;
    let ids = |rows: &[Value]| rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let both = [ids(first["items"].as_array().unwrap()), ids(&second)].concat();
    assert_eq!(both, ids(&rows)[..4]);

    // Nobody sees somebody else's, but operators do.
    let (status, _) = person.ask(&house, "GET", "/queue?owner=*", &Value::Null).await;
    assert_eq!(status, 403);
    let admin = house.admin();
    let all = queue(&house, &admin, "/queue?owner=*").await;
    assert_eq!(all.len(), 6, "{all:?}");
    let name = account(&person);
    assert_eq!(queue(&house, &admin, &format!("/queue?owner={name}")).await.len(), 5);

    let text = page(&house, &person, "/queue").await;
    for wanted in ["fills", "turn &#60;b&#62;x&#60;/b&#62;", "position 2 in its partition", "It is held", "[1-3]"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("before"), "{text}");
    assert!(text.contains(&format!("/sessions/{id}")), "what has a page is led to: {text}");
    assert!(page(&house, &admin, "/queue?owner=*").await.contains("before"));
    person.end(&house, id).await;
}

#[tokio::test]
async fn ended_through_the_portal() {
    let Some(cluster) = Cluster::start() else { return };
    let Some((house, person, cluster)) = whole::on(cluster).await else { return };
    let (mine, theirs) = (uid(&person), stranger(&house));
    let running = cluster.submit(mine, &["--job-name=mine"]);
    let foreign = cluster.submit(theirs, &["--job-name=theirs"]);
    let array = cluster.submit(mine, &["--job-name=tasks", "--array=1-4%2"]);
    let id = person.start(&house, json!({ "app": "web", "duration_seconds": 1800 })).await;
    let rows = once(&house, &person, "/queue", "two tasks run and two wait", |rows| {
        let is_waiting = |row: &Value| row["id"] == json!(format!("{array}_waiting"));
        let is_task = |row: &Value| row["name"] == "tasks" && row["state"] == "running";
        rows.iter().any(is_waiting) && rows.iter().filter(|row| is_task(row)).count() == 2
    })
    .await;
    let cancel = async |id: &str| person.ask(&house, "DELETE", &format!("/queue/{id}"), &Value::Null).await.0;
    // Somebody else's is none, and so is what never was.
    for id in [foreign.to_string(), "99999".to_owned(), format!("{running}_1"), "x".to_owned(), "1;2".to_owned()] {
        assert_eq!(cancel(&id).await, 404, "{id}");
    }
    // The portal's own is ended as what it is.
    let own = rows.iter().find(|row| row["session"] == json!(id.to_string()));
    let own = match own {
        Some(own) => own.clone(),
        None => once(&house, &person, "/queue", "it is seen", |rows| rows.iter().any(|row| !row["session"].is_null()))
            .await
            .into_iter()
            .find(|row| !row["session"].is_null())
            .unwrap(),
    };
    assert_eq!(cancel(own["id"].as_str().unwrap()).await, 409);

    // A job, one task, and what has not begun of an array.
    let task = rows.iter().find(|row| row["name"] == "tasks" && row["state"] == "running").unwrap();
    let task = task["id"].as_str().unwrap().to_owned();
    for id in [running.to_string(), format!("{array}_waiting"), task.clone()] {
        assert_eq!(cancel(&id).await, 202, "{id}");
    }
    let gone = [running.to_string(), format!("{array}_waiting"), task];
    let rows = once(&house, &person, "/queue", "they are gone", |rows| {
        rows.iter().all(|row| !gone.iter().any(|id| row["id"] == json!(id)))
    })
    .await;
    assert!(rows.iter().any(|row| row["name"] == "tasks"), "the other task goes on: {rows:?}");
    assert!(["RUNNING", "PENDING"].contains(&cluster.field(foreign, "state").as_str()), "nobody else's is touched");
    // Who did it is written down.
    let audit = house.admin().get(&house, "/audit?action=queue.cancel").await;
    assert_eq!(audit["items"].as_array().unwrap().len(), 3, "{audit}");
    person.end(&house, id).await;
}

/// What the site hides is told to nobody: one's own, without a place, which would tell of others.
#[tokio::test]
async fn where_jobs_are_hidden() {
    let Some(cluster) = Cluster::with("PrivateData=jobs") else { return };
    let Some((house, person, cluster)) = whole::on(cluster).await else { return };
    cluster.submit(uid(&person), &["--job-name=mine"]);
    // The portal's own account is not an operator there, so that it sees nothing, and says so.
    let (status, problem) = person.ask(&house, "GET", "/queue", &Value::Null).await;
    assert_eq!(status, 503, "{problem}");
    let text = page(&house, &person, "/queue").await;
    assert!(text.contains("hides jobs (PrivateData)"), "{text}");
}

/// What was handed in on a shell counts against its owner's limits, and what waits for it says so.
#[tokio::test]
async fn jobs_of_a_shell_count() {
    let Some(cluster) = Cluster::start() else { return };
    let Some((house, person, cluster)) = whole::on(cluster).await else { return };
    house.admin().allow(&house, &person, json!({ "cpus": 3, "gpus": 1 })).await;
    let job = cluster.submit(uid(&person), &["--job-name=by-hand", "--cpus-per-task=2", "--gres=gpu:a100:1"]);
    cluster.submit(stranger(&house), &["--job-name=theirs"]);
    let held = |quota: &Value| (quota["usage"]["cpus"].as_i64(), quota["usage"]["gpus"].as_i64());
    eventually("it is counted", async || {
        let quota = person.get(&house, "/me").await;
        (held(&quota) == (Some(2), Some(1))).then_some(())
    })
    .await;
    let home = page(&house, &person, "/").await;
    assert!(home.contains("Includes one job submitted in a shell: 1 GPU, 2 cores"), "{home}");
    let of_all = house.admin().get(&house, &format!("/quotas/users?find={}", person.name)).await;
    assert_eq!(of_all["items"][0]["usage"]["gpus"], 1, "{of_all}");

    let asked = json!({ "app": "web", "resources": { "cpus": 1, "gpus": 1 }, "duration_seconds": 1800 });
    let waits = person.start(&house, asked).await;
    let session = person.session(&house, waits).await;
    let why = session["reasons"].to_string();
    assert!(why.contains("quota.gpus.user") && why.contains("by-hand"), "{session}");
    cluster.tell("scancel", &[&job.to_string()]);
    person.state(&house, waits, "running").await;
    person.end(&house, waits).await;
}
