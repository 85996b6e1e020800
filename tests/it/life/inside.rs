//! A terminal inside a job that runs: its owner's alone, with what the job has; it outlives the
//! portal and not the job, whose end, log and exit code are the program's.

use lyceum::model::SessionId;
use reqwest::redirect::Policy;
use serde_json::{Value, json};

use super::{
    House, Person,
    jobs::{attempt, ended, job, log, state, submit},
    processes,
};
use crate::{accounts, gateway::terminal::types, idleness::terminals::tab};

/// Runs until somebody lets it go on.
const WAITS: &str = "#!/bin/sh\necho begun\nwhile [ ! -e \"$GO\" ]; do sleep 0.1; done\nexit $HOW\n";

/// A job that ends with this exit code, once it runs; and the attempt's id.
async fn begin(house: &House, person: &Person, go: &str, how: i64) -> (String, SessionId) {
    let asked = json!({ "script": WAITS, "resources": { "memory_bytes": 128 << 20 },
        "variables": { "GO": go, "HOW": how.to_string() } });
    let id = submit(house, person, asked).await;
    let runs = state(house, person, &id, "running").await;
    (id, attempt(&runs))
}

#[tokio::test]
async fn somebody_looks_inside_a_running_job() {
    let Some(mut house) = House::open(&[]).await else { return };
    let (person, other) = (house.person(), house.person());
    let (id, attempt) = begin(&house, &person, "go-on", 3).await;
    let record = house.record(attempt).unwrap();

    let mut shell = tab(&house, &person, attempt).await;
    types(
        &mut shell,
        "echo \"$HOW-$LYCEUM_ATTEMPT-$(id -un)-$TERM\"",
        &format!("3-1-ly-{}-xterm-256color", person.name),
    )
    .await;
    types(&mut shell, "echo \"job-$LYCEUM_JOB.\"", &format!("job-{id}.")).await;
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", record.placement.pid)).unwrap();
    let memory = groups.lines().find(|line| line.contains("memory") || line.starts_with("0::")).unwrap();
    types(&mut shell, &format!("grep -cx '{memory}' /proc/self/cgroup | sed 's/^/same-/'"), "same-1").await;

    // Whose job it is not finds nothing, whoever that is; a list tells nobody where it is.
    for stranger in [&other, &house.admin()] {
        let answer = stranger.request(&house, "GET", &format!("/s/{attempt}/")).send().await.unwrap();
        assert_eq!(answer.status(), 404);
    }
    let list = person.get(&house, "/jobs").await;
    assert_eq!(list["items"][0]["terminal_url"], Value::Null);
    let page = person.request(&house, "GET", &format!("/jobs/{id}")).send().await.unwrap().text().await.unwrap();
    assert!(page.contains(&format!("href=\"/s/{attempt}/\"")), "{page}");
    let page = person.request(&house, "GET", &format!("/s/{attempt}/")).header("accept", "text/html");
    let page = page.send().await.unwrap().text().await.unwrap();
    assert!(
        page.contains("terminal.js") && page.contains(&format!("/jobs/{id}\" title=\"Back to the job\"")),
        "{page}"
    );

    // The shell is the agent's: it is there when the portal is there again.
    types(&mut shell, "KEPT=through; echo it-$KEPT", "it-through").await;
    house.restart().await;
    let mut shell = tab(&house, &person, attempt).await;
    types(&mut shell, "echo still-$KEPT", "still-through").await;

    // It is left open, with something that runs, and keeps nothing alive.
    types(&mut shell, "sleep 1000 & touch go-on; echo $((1+1))-left", "2-left").await;
    let over = ended(&house, &person, &id, "exited").await;
    assert_eq!((&over["exit_code"], &over["terminal_url"]), (&json!(3), &Value::Null), "{over}");
    assert_eq!(log(&house, &person, &format!("{id}/log")).await, "begun\n", "what was typed is nobody's output");
    house.nothing_left(&record).await;
    assert!(processes(&record).is_empty());
    leads_to_the_job(&house, &person, &id, attempt).await;
}

/// Over: a program is told so, and a person is led to the page of the job.
async fn leads_to_the_job(house: &House, person: &Person, id: &str, attempt: SessionId) {
    let client = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
    let asked = || {
        let asked = client.get(format!("{}/s/{attempt}/", house.url));
        asked.header("authorization", person.authorization())
    };
    let answer = asked().header("accept", "text/html").send().await.unwrap();
    assert_eq!(answer.status(), 303);
    assert_eq!(answer.headers()["location"], format!("/jobs/{id}"));
    assert_eq!(asked().send().await.unwrap().status(), 410);
}

#[tokio::test]
async fn a_plain_shell_has_what_the_job_has() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    // The account is made by the first job.
    let (first, _) = begin(&house, &person, "first", 0).await;
    accounts::change(&["usermod", "--shell", "/bin/sh", &format!("ly-{}", person.name)]);
    let (_, attempt) = begin(&house, &person, "second", 0).await;
    let mut shell = tab(&house, &person, attempt).await;
    types(&mut shell, "echo \"is-$0.\"", "is--sh.").await;
    types(&mut shell, "command -v lyceum >/dev/null && echo ours-$((1+1))", "ours-2").await;
    types(&mut shell, "touch first second", "touch").await;
    ended(&house, &person, &first, "exited").await;
}

#[tokio::test]
async fn what_dies_in_the_terminal_is_not_the_job() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let hungry = "python3 -c 'bytearray(1 << 30)'; echo over-$((100+$?))";
    // The program was well to its end.
    let (well, attempt) = begin(&house, &person, "well", 0).await;
    let mut shell = tab(&house, &person, attempt).await;
    types(&mut shell, hungry, "over-237").await;
    assert_eq!(job(&house, &person, &well).await["state"], "running");
    types(&mut shell, "touch well; exit", "exit").await;
    assert_eq!(ended(&house, &person, &well, "exited").await["exit_code"], 0);
    // Of one that was not nobody can tell what it died of.
    let (ill, attempt) = begin(&house, &person, "ill", 1).await;
    let mut shell = tab(&house, &person, attempt).await;
    types(&mut shell, hungry, "over-237").await;
    types(&mut shell, "touch ill", "ill").await;
    ended(&house, &person, &ill, "out_of_memory").await;
}
