//! Hours of jobs that people hand in on a shell: they are Slurm's own, to the second, whether the
//! portal runs meanwhile or not, nothing of them is counted twice after a restart, and a group
//! whose account is charged there is charged here.

use std::collections::BTreeSet;

use lyceum::helper::identity::Identity;
use serde_json::json;

use super::{cluster::Cluster, whole};
use crate::{
    life::{House, Person},
    wait::{eventually, until},
};

/// What jobs were held for, in milliseconds.
type Spans = BTreeSet<(i64, i64)>;

fn uid(name: &str) -> u32 {
    Identity::facts(name).unwrap().uid
}

/// Whom somebody's work runs as.
fn account(person: &Person) -> String {
    let (_, house) = person.name.split_once('-').unwrap();
    format!("ly-n-{house}")
}

/// When these jobs began and ended, once the accounts know it of all.
fn told(cluster: &Cluster, jobs: &[i32]) -> Spans {
    let numbers = jobs.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let jobs_option = format!("--jobs={numbers}");
    let words = ["--allocations", "--duplicates", "--noheader", "--parsable2", "--format=Start,End", &jobs_option];
    let mut found = Spans::new();
    until("the accounts know each start and its end", || {
        let output = cluster.command("sacct", &words).env("SLURM_TIME_FORMAT", "%s").output().unwrap();
        let read = |line: &str| {
            let (start, end) = line.split_once('|')?;
            Some((start.parse::<i64>().ok()? * 1000, end.parse::<i64>().ok()? * 1000))
        };
        found = String::from_utf8(output.stdout).unwrap().lines().filter_map(read).collect();
        found.len() == jobs.len()
    });
    found
}

async fn held(house: &House) -> Vec<(i64, i64)> {
    let mut all: Vec<(i64, i64)> = house.intervals().await.iter().map(|one| (one.from, one.to)).collect();
    all.sort_unstable();
    all
}

async fn are_held(house: &House, what: &str, wanted: &Spans) {
    eventually(what, async || held(house).await.iter().eq(wanted).then_some(())).await;
}

/// Waits until one more is held, which the portal has looked at after all that was before.
async fn is_seen(house: &House, count: usize) {
    eventually("it is held", async || {
        let all = held(house).await;
        (all.len() == count && all.iter().any(|(_, to)| *to == i64::MAX)).then_some(())
    })
    .await;
}

fn lasts(seconds: i64) {
    let clock = || lyceum::model::Clock::System.now().0;
    let begun = clock();
    until("time goes by", || begun + seconds * 1000 <= clock());
}

/// GPU-seconds, core-seconds and how many, as `/usage` tells them of the person.
async fn used(house: &House, person: &Person) -> (i64, i64, i64) {
    let usage = person.get(house, "/usage?by=user").await;
    let number = |field: &str| usage["items"][0][field].as_i64().unwrap_or(0);
    (number("gpu_seconds"), number("cpu_seconds"), number("sessions"))
}

/// All of it is what the accounts say, of one GPU and two cores each.
async fn agrees(house: &House, person: &Person, wanted: &Spans) {
    let seconds: i64 = wanted.iter().map(|(from, to)| (to - from) / 1000).sum();
    let count = i64::try_from(wanted.len()).unwrap();
    assert_eq!(used(house, person).await, (seconds, 2 * seconds, count));
    let of_it = json!({ "jobs": count, "gpu_seconds": seconds, "cpu_seconds": 2 * seconds });
    assert_eq!(person.get(house, "/usage").await["from_shell"], of_it);
    assert_eq!(house.admin().get(house, "/usage?by=day").await["from_shell"], of_it);
    let page = person.request(house, "GET", "/usage").send().await.unwrap().text().await.unwrap();
    let which = if count == 1 {
        "Includes one job from a shell".to_owned()
    } else {
        format!("Includes {count} jobs from a shell")
    };
    assert!(page.contains(&which), "{page}");
    let usage = person.get(house, "/me").await["usage"].clone();
    assert_eq!((&usage["gpu_seconds"], &usage["cpu_seconds"]), (&json!(seconds), &json!(2 * seconds)), "{usage}");
    let db = house.db().await;
    crate::db::whole::assert_consistent(&db).await;
    db.close().await;
}

const ASKED: [&str; 3] = ["--cpus-per-task=2", "--gres=gpu:a100:1", "--time=20"];

/// The controller knows what has ended lately.
#[tokio::test]
async fn what_ends_is_counted_as_slurm_counts_it() {
    let Some(cluster) = Cluster::with_accounts("") else { return };
    let Some((mut house, person, cluster)) = whole::on(cluster).await else { return };
    let mine = uid(&account(&person));
    house.admin().allow(&house, &person, json!({ "gpu_hours": 1, "gpus": 4, "cpus": 8 })).await;
    // A stranger to the portal is nobody's.
    cluster.submit(uid(&house.unix_account("m")), &["--job-name=theirs"]);
    let one = cluster.submit(mine, &ASKED);
    is_seen(&house, 1).await;
    // It is in the budget up to its time limit, and what would go beyond it is not admitted.
    eventually("all that it may use counts", async || {
        let usage = person.get(&house, "/me").await["usage"].clone();
        (usage["gpu_seconds"] == 1200 && usage["cpu_seconds"] == 2400).then_some(())
    })
    .await;
    let admins = house.admin().get(&house, &format!("/quotas/users?find={}", person.name)).await;
    let line = &admins["items"][0]["usage"];
    assert_eq!((&line["gpu_seconds"], &line["gpus"], &line["jobs"]), (&json!(1200), &json!(1), &json!(1)), "{line}");
    let asked = json!({ "app": "web", "resources": { "cpus": 1, "gpus": 1 }, "duration_seconds": 3000 });
    let (status, refused) = person.ask(&house, "POST", "/sessions", &asked).await;
    assert!(status == 409 && refused.to_string().contains("quota.gpu_hours.user"), "{status} {refused}");
    lasts(2);
    cluster.as_user(mine, "scancel", &[&one.to_string()]);
    let first = told(&cluster, &[one]);
    are_held(&house, "what ended is noted", &first).await;
    agrees(&house, &person, &first).await;

    // One ends while no portal looks, and one begins and ends.
    let two = cluster.submit(mine, &ASKED);
    is_seen(&house, 2).await;
    house.kill();
    lasts(2);
    cluster.as_user(mine, "scancel", &[&two.to_string()]);
    let three = cluster.submit_script(mine, &ASKED, "#!/bin/sh\nsleep 2\n");
    let wanted = told(&cluster, &[one, two, three]);
    house.start().await;
    are_held(&house, "what ended meanwhile is noted", &wanted).await;
    agrees(&house, &person, &wanted).await;

    // Whoever looks again, and asks the accounts again, finds nothing new.
    house.kill();
    house.start().await;
    let four = cluster.submit(mine, &ASKED);
    is_seen(&house, 4).await;
    cluster.as_user(mine, "scancel", &[&four.to_string()]);
    let wanted = told(&cluster, &[one, two, three, four]);
    are_held(&house, "nothing is there twice", &wanted).await;
    agrees(&house, &person, &wanted).await;
}

/// The controller has forgotten it: only the accounts know.
#[tokio::test]
async fn what_the_controller_has_forgotten_is_told_by_the_accounts() {
    let Some(cluster) = Cluster::with_accounts("MinJobAge=2") else { return };
    cluster.tell("sacctmgr", &["--immediate", "add", "account", "lab-vision", "cluster=test"]);
    let variables = [("LYCEUM_SCHEDULER__SLURM__ACCOUNTS__VISION", "lab-vision")];
    let Some((mut house, person, cluster)) = whole::on_with(cluster, &variables).await else { return };
    let (name, mine) = (account(&person), uid(&account(&person)));
    cluster.tell("sacctmgr", &["--immediate", "add", "user", &name, "account=lab-vision"]);
    let (done, said) = house.run(&["admin", "group", "add", "vision"]);
    assert!(done, "{said}");
    let charged = [&ASKED[..], &["--account=lab-vision"]].concat();
    let one = cluster.submit(mine, &charged);
    is_seen(&house, 1).await;
    let group = house.admin().get(&house, "/quotas/groups/vision").await;
    assert_eq!((&group["usage"]["gpus"], &group["usage"]["jobs"]), (&json!(1), &json!(1)), "the group pays: {group}");
    house.kill();
    lasts(2);
    cluster.as_user(mine, "scancel", &[&one.to_string()]);
    let two = cluster.submit_script(mine, &charged, "#!/bin/sh\nsleep 2\n");
    let wanted = told(&cluster, &[one, two]);
    until("the controller forgets them", || whole::jobs(&cluster) == 0);
    house.start().await;
    are_held(&house, "both are noted", &wanted).await;
    agrees(&house, &person, &wanted).await;
    let groups = house.admin().get(&house, "/usage?by=group").await;
    let (row, seconds) = (&groups["items"][0], wanted.iter().map(|(from, to)| (to - from) / 1000).sum::<i64>());
    assert_eq!((&row["name"], &row["gpu_seconds"]), (&json!("vision"), &json!(seconds)), "{groups}");
    assert_eq!(groups["items"].as_array().unwrap().len(), 1, "{groups}");
    house.kill();
    house.start().await;
    let three = cluster.submit_script(mine, &charged, "#!/bin/sh\nsleep 5\n");
    let wanted = told(&cluster, &[one, two, three]);
    are_held(&house, "nothing is there twice", &wanted).await;
    agrees(&house, &person, &wanted).await;
}
