//! Jobs on the real local scheduler, as real users: every end with its reason, a tree that does
//! not want to end, a portal that is killed meanwhile, waiting for room, and what people may
//! not do with others' jobs.

use std::{fs, path::Path, process::Command, time::Instant};

use lyceum::{
    helper::placement::Record,
    model::{SessionId, Timestamp},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{House, Person, eventually, processes};

const MIB: i64 = 1 << 20;

/// Submits a job; it must be accepted.
pub async fn submit(house: &House, person: &Person, request: Value) -> String {
    let (status, body) = person.ask(house, "POST", "/jobs", &request).await;
    assert_eq!(status, 201, "{request}: {body}");
    body["id"].as_str().unwrap().to_owned()
}

pub async fn job(house: &House, person: &Person, id: &str) -> Value {
    person.get(house, &format!("/jobs/{id}")).await
}

pub async fn state(house: &House, person: &Person, id: &str, state: &str) -> Value {
    eventually(&format!("job {id} is {state}"), async || {
        let job = job(house, person, id).await;
        assert!(state == "ended" || job["state"] != "ended", "it ended: {job}");
        (job["state"] == state).then_some(job)
    })
    .await
}

/// The attempt whose terminals a running job's owner comes to.
pub fn attempt(job: &Value) -> SessionId {
    let path = job["terminal_url"].as_str().unwrap_or_else(|| panic!("a way inside: {job}"));
    path.trim_start_matches("/s/").trim_end_matches('/').parse().unwrap()
}

pub async fn ended(house: &House, person: &Person, id: &str, reason: &str) -> Value {
    let job = state(house, person, id, "ended").await;
    assert_eq!(job["end_reason"], reason, "{job}");
    job
}

pub async fn log(house: &House, person: &Person, path: &str) -> String {
    let answer = person.request(house, "GET", &format!("/api/v1/jobs/{path}")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap()
}

/// The one workload of this house that runs.
/// What an ended session has left goes away a moment after its end.
async fn only_record(house: &House) -> Record {
    let only = |[record]: [Record; 1]| record;
    eventually("it alone is launched", async || house.records().try_into().ok().map(only)).await
}

fn home(person: &Person) -> String {
    format!("/home/ly-{}", person.name)
}

#[tokio::test]
async fn every_end_of_a_job_has_its_reason() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;

    // What it prints, where it runs, as whom, and what it is told.
    let script = "#!/bin/bash\r\necho \"$(id -un) in $(pwd) with $SEED, $0\"\r\necho to errors >&2\r\n\
                  echo 0.1 >$LYCEUM_LOG_DIRECTORY/loss\r\nexit 3\r\n";
    let id = submit(&house, &person, json!({ "name": "three", "script": script, "variables": { "SEED": "7" } })).await;
    let three = ended(&house, &person, &id, "exited").await;
    assert_eq!((&three["exit_code"], &three["signal"]), (&json!(3), &json!(null)), "{three}");
    assert!(three["detail"].as_str().unwrap().starts_with("the program ended (exit code 3): "), "{three}");
    let text = log(&house, &person, &format!("{id}/log")).await;
    let home = home(&person);
    assert!(text.starts_with(&format!("ly-{} in {home} with 7, /", person.name)), "{text}");
    assert!(text.ends_with("to errors\n"), "{text}");
    assert_eq!(log(&house, &person, &format!("{id}/log?tail=1")).await, "to errors\n");
    assert_eq!(three["attempt"], 1);
    assert!(three["started_at"].is_string() && three["ended_at"].is_string(), "{three}");

    let id = submit(&house, &person, json!({ "command": ["/usr/bin/python3", "-c", "print('done')"] })).await;
    let done = ended(&house, &person, &id, "exited").await;
    assert_eq!((&done["exit_code"], &done["name"]), (&json!(0), &json!("python3 -c print('done')")));
    assert_eq!(log(&house, &person, &format!("{id}/log")).await, "done\n");

    let id = submit(&house, &person, json!({ "command": ["/nowhere/at-all"] })).await;
    let missing = ended(&house, &person, &id, "exited").await;
    assert_eq!(missing["exit_code"], 127, "{missing}");
    assert!(missing["detail"].as_str().unwrap().contains("cannot start /nowhere/at-all"), "{missing}");

    // Somebody kills the trainer: it is told within five seconds.
    let id = submit(&house, &person, json!({ "command": ["sleep", "600"] })).await;
    state(&house, &person, &id, "running").await;
    let record = only_record(&house).await;
    let sleeper = processes(&record).into_iter().find(|pid| *pid != record.placement.pid).unwrap();
    let begin = Instant::now();
    kill(Pid::from_raw(sleeper), Signal::SIGKILL).unwrap();
    let killed = ended(&house, &person, &id, "signal").await;
    assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
    assert_eq!(killed["signal"], 9, "{killed}");
    house.nothing_left(&record).await;

    let hungry = "hoard = []\nwhile True: hoard.append(bytearray(1 << 20))";
    let request = json!({ "command": ["/usr/bin/python3", "-c", hungry], "resources": { "memory_bytes": 128 * MIB } });
    let id = submit(&house, &person, request).await;
    ended(&house, &person, &id, "out_of_memory").await;

    assert_eq!(house.intervals().await.iter().filter(|one| one.to == i64::MAX).count(), 0, "nothing is held");
    let me = person.get(&house, "/me").await;
    assert_eq!((&me["usage"]["jobs"], &me["usage"]["sessions"]), (&json!(0), &json!(0)), "{me}");
    assert_eq!(person.get(&house, "/sessions").await["items"], json!([]), "jobs are no sessions");
    let folders: Vec<_> = fs::read_dir(format!("{home}/runs")).unwrap().map(|one| one.unwrap().path()).collect();
    assert_eq!(folders.len(), 1, "what stays empty goes: {folders:?}");
    assert_eq!(fs::read_to_string(folders[0].join("loss")).unwrap(), "0.1\n");
}

#[tokio::test]
async fn a_cancelled_job_leaves_no_process_behind() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let file = format!("{}/pid", home(&person));
    // Its grandchild leads a session of its own, has another parent, and ignores SIGTERM.
    let script = format!(
        "#!/bin/sh\n(setsid sh -c 'trap \"\" TERM; echo $$ > {file}.new; mv {file}.new {file}; while :; do sleep 1; \
         done' &) &\nwait\nsleep 600\n"
    );
    let id = submit(&house, &person, json!({ "script": script })).await;
    let pid: i32 =
        eventually("its grandchild runs", async || fs::read_to_string(&file).ok()?.trim().parse().ok()).await;
    let record = only_record(&house).await;
    assert!(processes(&record).contains(&pid));

    let (status, deleted) = person.ask(&house, "DELETE", &format!("/jobs/{id}"), &Value::Null).await;
    assert_eq!((status, deleted["detail"].as_str()), (409, Some("It has not ended yet: cancel it first.")));
    for _ in ["once", "and again"] {
        let (status, body) = person.ask(&house, "POST", &format!("/jobs/{id}/cancel"), &Value::Null).await;
        assert_eq!(status, 202, "{body}");
    }
    let cancelled = ended(&house, &person, &id, "stopped_by_owner").await;
    assert_eq!(cancelled["detail"], "Stopped by its owner", "{cancelled}");
    house.nothing_left(&record).await;
    assert!(!Path::new(&format!("/proc/{pid}/exe")).exists() || !processes(&record).contains(&pid));

    // Its history over all attempts, resumed where it was left.
    let (status, resumed) = person.ask(&house, "POST", &format!("/jobs/{id}/resume"), &Value::Null).await;
    assert_eq!((status, &resumed["attempt"]), (202, &json!(2)), "{resumed}");
    state(&house, &person, &id, "running").await;
    let (status, _) = person.ask(&house, "POST", &format!("/jobs/{id}/resume"), &Value::Null).await;
    assert_eq!(status, 409, "one attempt at a time");
    person.ask(&house, "POST", &format!("/jobs/{id}/cancel"), &Value::Null).await;
    ended(&house, &person, &id, "stopped_by_owner").await;
    let events = person.request(&house, "GET", &format!("/api/v1/jobs/{id}/events")).header("last-event-id", "1.2");
    let events = events.send().await.unwrap().text().await.unwrap();
    let ids: Vec<&str> = events.lines().filter_map(|line| line.strip_prefix("id:")).map(str::trim).collect();
    assert_eq!((ids[0], ids.last().unwrap().split('.').next()), ("1.3", Some("2")), "{events}");
    assert!(events.contains("Program started"), "{events}");

    let (status, _) = person.ask(&house, "DELETE", &format!("/jobs/{id}"), &Value::Null).await;
    assert_eq!(status, 204);
    let (status, _) = person.ask(&house, "GET", &format!("/jobs/{id}"), &Value::Null).await;
    assert_eq!(status, 404);
    let kept = house.data().join("private/logs");
    assert_eq!(fs::read_dir(&kept).map_or(0, Iterator::count), 0, "its logs went with it: {}", kept.display());
}

#[tokio::test]
async fn a_job_goes_on_without_the_portal_and_is_started_once() {
    let Some(mut house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "jobs": 1 })).await;
    let (starts, go) = (format!("{}/starts", home(&person)), format!("{}/go", home(&person)));
    let script = format!("echo $$ >> {starts}\nwhile [ ! -e {go} ]; do sleep 0.1; done\necho went on\nexit 4\n");
    let id = submit(&house, &person, json!({ "script": script })).await;
    let second = submit(&house, &person, json!({ "command": ["true"], "name": "second" })).await;
    let waiting = job(&house, &person, &second).await;
    assert_eq!((&waiting["state"], &waiting["reasons"][0]["code"]), (&json!("queued"), &json!("quota.jobs.user")));
    let admission = json!({ "command": ["true"] });
    let (_, rehearsed) = person.ask(&house, "POST", "/jobs/admission", &admission).await;
    assert_eq!((&rehearsed["outcome"], &rehearsed["reasons"][0]["limit"]), (&json!("wait"), &json!(1)), "{rehearsed}");
    // A session is another thing: it starts beside it.
    let session: SessionId = person.run(&house, "terminal").await;
    person.end(&house, session).await;
    state(&house, &person, &id, "running").await;
    let record = only_record(&house).await;

    house.restart().await;
    assert_eq!(job(&house, &person, &id).await["state"], "running");
    assert_eq!(house.record(record.session).unwrap().placement, record.placement, "the very same agent");
    house.kill();
    fs::write(&go, "").unwrap();
    eventually("it ends without the portal", async || processes(&record).is_empty().then_some(())).await;
    house.start().await;
    let ended_job = ended(&house, &person, &id, "exited").await;
    assert_eq!(ended_job["exit_code"], 4, "{ended_job}");
    assert_eq!(log(&house, &person, &format!("{id}/log")).await, "went on\n");
    assert_eq!(fs::read_to_string(&starts).unwrap().lines().count(), 1);
    ended(&house, &person, &second, "exited").await;
    house.nothing_left(&record).await;
}

#[tokio::test]
async fn jobs_are_tried_again_and_follow_one_another() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, stranger, admin) = (house.person(), house.person(), house.admin());
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    let tries = format!("{}/tries", home(&person));
    // It succeeds at the third attempt.
    let script = format!("echo $LYCEUM_ATTEMPT >> {tries}\n[ $LYCEUM_ATTEMPT = 3 ] || exit 5\n");
    let prep = submit(&house, &person, json!({ "name": "prep", "script": script, "retries": 2 })).await;
    let after = |needs: &str, job: &str| json!({ "command": ["true"], "after": [{ "job": job, "needs": needs }] });
    let train = submit(&house, &person, after("ok", &prep)).await;
    let done = ended(&house, &person, &train, "exited").await;
    let prep_now = job(&house, &person, &prep).await;
    assert_eq!((&prep_now["attempt"], &prep_now["exit_code"]), (&json!(3), &json!(0)), "{prep_now}");
    assert_eq!(fs::read_to_string(&tries).unwrap(), "1\n2\n3\n");
    let at = |job: &Value, what: &str| serde_json::from_value::<Timestamp>(job[what].clone()).unwrap();
    assert!(at(&prep_now, "ended_at") <= at(&done, "started_at"), "{done} after {prep_now}");
    assert_eq!(prep_now["retries_left"], 0, "{prep_now}");

    let go = format!("{}/fail", home(&person));
    let script = format!("while [ ! -e {go} ]; do sleep 0.1; done\nexit 1\n");
    let failing = submit(&house, &person, json!({ "name": "failing", "script": script, "retries": 1 })).await;
    let never = submit(&house, &person, after("ok", &failing)).await;
    let [anyway, rescue] = [
        submit(&house, &person, after("any", &failing)).await,
        submit(&house, &person, after("failed", &failing)).await,
    ];
    let chained = submit(&house, &person, after("ok", &never)).await;
    for (id, words) in [(&never, "succeed"), (&anyway, "end"), (&rescue, "fail")] {
        let waits = job(&house, &person, id).await;
        assert_eq!(waits["reasons"][0]["hint"], format!("Waiting for ‘failing’ to {words}."), "{waits}");
    }
    fs::write(&go, "").unwrap();
    let refused = ended(&house, &person, &never, "refused").await;
    assert_eq!(refused["detail"], "‘failing’, which it depends on, did not succeed.", "{refused}");
    ended(&house, &person, &chained, "refused").await;
    ended(&house, &person, &anyway, "exited").await;
    ended(&house, &person, &rescue, "exited").await;
    assert_eq!(job(&house, &person, &failing).await["attempt"], 2);

    // What is cancelled is not tried again, and whoever waited for it is told.
    let endless =
        submit(&house, &person, json!({ "name": "endless", "command": ["sleep", "600"], "retries": 3 })).await;
    let waits = submit(&house, &person, after("ok", &endless)).await;
    person.ask(&house, "POST", &format!("/jobs/{endless}/cancel"), &Value::Null).await;
    ended(&house, &person, &endless, "stopped_by_owner").await;
    let told = ended(&house, &person, &waits, "refused").await;
    assert_eq!(told["detail"], "‘endless’, which it depends on, was cancelled.", "{told}");

    for (who, request, field) in [
        (&stranger, after("any", &prep), "after[0].job"),
        (&person, after("ok", &failing), "after[0].job"),
        (&person, json!({ "command": ["true"], "retries": 11 }), "retries"),
        (&person, json!({ "command": ["true"], "retry_wait_seconds": -1 }), "retry_wait_seconds"),
    ] {
        let (status, body) = who.ask(&house, "POST", "/jobs", &request).await;
        assert_eq!((status, body["errors"][0]["field"].as_str()), (422, Some(field)), "{body}");
    }
}

#[tokio::test]
async fn a_portal_that_is_killed_goes_on_with_retries_and_with_those_who_wait() {
    let Some(mut house) = House::open(&[]).await else { return };
    let person = house.person();
    let (tries, go) = (format!("{}/tries", home(&person)), format!("{}/go", home(&person)));
    let script = format!(
        "echo $LYCEUM_ATTEMPT >> {tries}\nwhile [ ! -e {go}$LYCEUM_ATTEMPT ]; do sleep 0.1; done\n[ $LYCEUM_ATTEMPT = \
         3 ]\n"
    );
    let request = json!({ "name": "prep", "script": script, "retries": 2, "retry_wait_seconds": 3 });
    let prep = submit(&house, &person, request).await;
    let request = json!({ "command": ["true"], "after": [{ "job": prep }] });
    let train = submit(&house, &person, request).await;
    state(&house, &person, &prep, "running").await;
    let record = only_record(&house).await;
    // It fails while nobody is there, ...
    house.kill();
    fs::write(format!("{go}1"), "").unwrap();
    eventually("it ends without the portal", async || processes(&record).is_empty().then_some(())).await;
    house.start().await;
    // ... and the portal dies again while it waits to be tried again.
    let waiting = eventually("its next attempt waits", async || {
        let found = job(&house, &person, &prep).await;
        (found["attempt"] == 2).then_some(found)
    })
    .await;
    assert_eq!(waiting["retries_left"], 1, "{waiting}");
    house.kill();
    house.start().await;
    eventually("it runs again", async || (fs::read_to_string(&tries).unwrap() == "1\n2\n").then_some(())).await;
    fs::write(format!("{go}2"), "").unwrap();
    fs::write(format!("{go}3"), "").unwrap();
    ended(&house, &person, &train, "exited").await;
    assert_eq!(fs::read_to_string(&tries).unwrap(), "1\n2\n3\n", "each attempt began once");
    assert_eq!(job(&house, &person, &prep).await["exit_code"], 0);
}

#[tokio::test]
async fn a_job_ends_at_its_time_limit() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let (status, refused) =
        person.ask(&house, "POST", "/jobs", &json!({ "command": ["true"], "time_limit_seconds": 100 * 86_400 })).await;
    assert_eq!((status, &refused["reasons"][0]["code"]), (409, &json!("quota.max_job_seconds.user")), "{refused}");
    let id = submit(&house, &person, json!({ "command": ["sleep", "600"], "time_limit_seconds": 60 })).await;
    let running = state(&house, &person, &id, "running").await;
    assert!(running["expires_at"].is_string(), "{running}");
    let record = only_record(&house).await;
    let over = ended(&house, &person, &id, "time_limit").await;
    assert_eq!(over["detail"], "Reached its time limit of 1 min", "{over}");
    house.nothing_left(&record).await;
}

#[tokio::test]
async fn our_own_program_is_known_to_jobs() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let command = json!(["lyceum", "demo-train", "--steps", "20", "--rate", "0"]);
    let id = submit(&house, &person, json!({ "command": command })).await;
    let over = ended(&house, &person, &id, "exited").await;
    assert_eq!(
        (&over["exit_code"], &over["name"]),
        (&json!(0), &json!("lyceum demo-train --steps 20 --rate 0")),
        "{over}"
    );
    // Profile files may set `PATH` anew, and what a site or a person installs goes before ours.
    let script = "#!/bin/bash\nPATH=/usr/bin:/bin\n. /etc/profile\ncase :$PATH: in *:$LYCEUM_BIN:*) exit 3;; esac\n\
        PATH=$PATH:$LYCEUM_BIN lyceum --version\n";
    let id = submit(&house, &person, json!({ "script": script })).await;
    assert_eq!(ended(&house, &person, &id, "exited").await["exit_code"], 0);
    assert!(log(&house, &person, &format!("{id}/log")).await.starts_with("lyceum "));
}

/// A script that prints a line, and leaves two files.
const WRITES: &str =
    "echo $A; mkdir -p $LYCEUM_LOG_DIRECTORY/best; cd $LYCEUM_LOG_DIRECTORY; echo $A | tee a > best/model";

#[tokio::test]
async fn jobs_from_a_shell() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let token = person.authorization().replacen("Bearer ", "", 1);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&house.program);
        command.arg("job").args(arguments).env("LYCEUM_URL", &house.url).env("LYCEUM_TOKEN", &token);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, said, errors) = run(&[
        "submit", "--wait", "--name", "good", "--env", "A=b", "--tag", "x/1", "--tag", "y", "--", "sh", "-c", WRITES,
    ]);
    assert!(code == Some(0) && said.contains(" good ended: exit code 0"), "{said} {errors}");
    let id = said.split(' ').next().unwrap().to_owned();
    assert_eq!(run(&["list", "--all", "--tag", "x/1", "-o", "name"]).1.trim(), id);
    let (code, _, errors) = run(&["submit", "--tag", "a,b", "--", "true"]);
    assert!(code == Some(65) && errors.contains("tags: "), "{errors}");
    let (code, said, errors) = run(&["cancel", "--tag", "x/1", "--dry-run"]);
    assert_eq!((code, said.as_str(), errors.as_str()), (Some(0), "", "nothing matches\n"));

    // What it has written into its log directory.
    let (_, listed, errors) = run(&["artifacts", &id]);
    let names: Vec<&str> = listed.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert_eq!(names, ["NAME", "a", "best/model"], "{errors}");
    let to = house.file("artifacts");
    let (code, said, errors) = run(&["artifacts", &id, "--to", to.to_str().unwrap()]);
    assert!(code == Some(0) && said == "copied 2 files, 4 B\n", "{said} {errors}");
    assert_eq!(
        (fs::read(to.join("a")).unwrap(), fs::read(to.join("best/model")).unwrap()),
        (b"b\n".into(), b"b\n".into())
    );
    let (code, _, errors) = run(&["submit", "--wait", "--", "sh", "-c", "exit 3"]);
    assert!(code == Some(3) && errors.contains("ended: exit code 3"), "{errors}");
    let (code, said, errors) =
        run(&["submit", "--wait", "--after", &format!("any:{id}"), "--retries", "1", "--", "true"]);
    assert_eq!(code, Some(0), "{said} {errors}");
    assert_eq!(run(&["submit", "--after", &format!("maybe:{id}"), "--", "true"]).0, Some(2));
    for follow in [&["log", &id][..], &["log", "-f", &id[..23]]] {
        assert_eq!(run(follow).1, "b\n", "{follow:?}");
    }
    assert!(run(&["ls"]).1.starts_with("no jobs"));
    let (code, _, errors) = run(&["open", &id]);
    assert!(code == Some(1) && errors.contains("can only be opened in a running job"), "{errors}");
    let (_, all, _) = run(&["list", "--all"]);
    assert!(all.contains("good") && all.contains("ended: exit code 3"), "{all}");

    let script = house.file("job.sh");
    fs::write(&script, "#!/bin/bash\nsleep 600\n").unwrap();
    let (_, said, errors) = run(&["submit", "--json", "--script", script.to_str().unwrap()]);
    let job: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said} {errors}"));
    let id = job["id"].as_str().unwrap();
    let runs = state(&house, &person, id, "running").await;
    let inside = format!("{}{}\n", house.url, runs["terminal_url"].as_str().unwrap());
    assert_eq!(run(&["open", id]).1, inside);
    assert!(run(&["cancel", id]).1.contains(id));
    ended(&house, &person, id, "stopped_by_owner").await;
    assert_eq!(run(&["submit"]).0, Some(2), "nothing to run");

    // What there is can be changed, run again, copied and taken away.
    let (code, said, errors) =
        run(&["change", id, "--name", "renamed", "--tag", "a", "--tag", "b", "--star", "--notes", "*so*"]);
    assert!(code == Some(0) && said.contains(" renamed "), "{said} {errors}");
    let (_, shown, errors) = run(&["show", id]);
    for line in ["  tags: a b\n", "  notes: *so*\n", "  starred: yes\n", "  visibility: private\n"] {
        assert!(shown.contains(line), "{line}: {shown} {errors}");
    }
    assert_eq!(run(&["change", id]).0, Some(2), "nothing was said");
    let (code, _, errors) = run(&["change", id, "--visibility", "nobody"]);
    assert!(code == Some(65) && errors.contains("visibility"), "{errors}");
    let (code, said, differs) = run(&["clone", id, "--name", "other", "--wait", "--env", "SEED=7", "--", "true"]);
    assert!(code == Some(0) && said.contains(" other ended: exit code 0"), "{said} {differs}");
    assert!(differs.contains("name: other instead of renamed\n") && differs.contains("variables.SEED: 7"), "{differs}");
    assert!(
        differs.contains("command: true instead of nothing") || differs.contains("[\"true\"] instead of nothing"),
        "{differs}"
    );
    let copied = said.split(' ').next().unwrap().to_owned();
    let (code, said, errors) = run(&["resume", &copied]);
    assert!(code == Some(0) && said.starts_with(&copied), "{said} {errors}");
    ended(&house, &person, &copied, "exited").await;
    assert_eq!(person.get(&house, &format!("/jobs/{copied}")).await["attempt"], 2);
    let (code, said, errors) = run(&["delete", id, &copied]);
    assert!(code == Some(0) && said.lines().count() == 2, "{said} {errors}");
    assert_eq!(run(&["show", &copied]).0, Some(66));
    assert_eq!(run(&["submit", "--env", "A", "--", "true"]).0, Some(2));
}

#[tokio::test]
async fn bad_input_and_other_peoples_jobs() {
    let Some(house) = House::open(&[]).await else { return };
    let (ada, bob) = (house.person(), house.person());
    let first = submit(&house, &ada, json!({ "command": ["true"], "name": "first" })).await;
    ended(&house, &ada, &first, "exited").await;
    let secret = format!("{}/secret", home(&ada));
    fs::create_dir(&secret).unwrap();
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();

    let long = "x".repeat(10 * 1024);
    let script = |text: &str| json!({ "script": text });
    for (request, status, field) in [
        (json!({}), 422, "command"),
        (json!({ "command": [] }), 422, "command"),
        (json!({ "command": ["a"], "script": "b" }), 422, "script"),
        (script("a\0b"), 422, "script"),
        (script(&"x".repeat(100 * 1024)), 422, "script"),
        (json!({ "command": ["true"], "name": "a\nb" }), 422, "name"),
        (json!({ "command": ["true"], "name": "a\u{7}" }), 422, "name"),
        (json!({ "command": ["true"], "name": long }), 422, "name"),
        (json!({ "command": ["true"], "working_directory": "/nowhere" }), 422, "working_directory"),
        (json!({ "command": ["true"], "working_directory": secret }), 422, "working_directory"),
        (json!({ "command": ["true"], "working_directory": "/etc/passwd" }), 422, "working_directory"),
        (json!({ "command": ["true"], "log_directory": "/nowhere/x" }), 422, "log_directory"),
        (json!({ "command": ["true"], "time_limit_seconds": 1 }), 422, "time_limit_seconds"),
        (json!({ "command": ["true"], "nodes": 2 }), 422, "nodes"),
        (json!({ "command": ["true"], "variables": { "LYCEUM_JOB": "x" } }), 422, "variables.LYCEUM_JOB"),
        (json!({ "command": ["true"], "colour": "red" }), 422, "colour"),
    ] {
        let (told, body) = bob.ask(&house, "POST", "/jobs", &request).await;
        assert_eq!((told, body["errors"][0]["field"].as_str()), (status, Some(field)), "{request}: {body}");
    }
    let (status, body) = bob.ask(&house, "POST", "/jobs", &script(&"x".repeat(5 << 20))).await;
    assert_eq!(status, 413, "{body}");
    assert_eq!(bob.get(&house, "/jobs").await["items"], json!([]), "nothing was written");

    // What is private is not there for others; what is shown to everybody may be looked at and copied.
    for (method, path) in [("GET", ""), ("GET", "/log"), ("POST", "/cancel"), ("POST", "/resume"), ("DELETE", "")] {
        let (status, _) = bob.ask(&house, method, &format!("/jobs/{first}{path}"), &Value::Null).await;
        assert_eq!(status, 404, "{method} {path}");
    }
    let change = json!({ "visibility": "everybody", "tags": ["mnist"], "starred": true, "notes": "# <b>it</b>" });
    let (status, changed) = ada.ask(&house, "PATCH", &format!("/jobs/{first}"), &change).await;
    assert_eq!((status, &changed["starred"], &changed["tags"]), (200, &json!(true), &json!(["mnist"])), "{changed}");
    assert_eq!(job(&house, &bob, &first).await["variables"], json!(null));
    let (status, _) = bob.ask(&house, "POST", &format!("/jobs/{first}/cancel"), &Value::Null).await;
    assert_eq!(status, 404, "looking is all that he may");
    let (status, copy) = bob.ask(&house, "POST", &format!("/jobs/{first}/clone"), &json!({ "name": "copy" })).await;
    assert_eq!((status, &copy["owner"], &copy["visibility"]), (202, &json!(bob.name), &json!("private")), "{copy}");
    assert_eq!(copy["tags"], json!(["mnist"]), "tags go with it");
    assert_ne!(copy["log_directory"], changed["log_directory"], "each has a folder of its own");
    ended(&house, &bob, copy["id"].as_str().unwrap(), "exited").await;

    let listed =
        async |query: &str| ada.get(&house, &format!("/jobs?{query}")).await["items"].as_array().unwrap().len();
    for (query, count) in [
        ("", 1),
        ("tag=mnist", 1),
        ("tag=x", 0),
        ("group=x", 0),
        ("starred=true", 1),
        ("search=IRS", 1),
        ("state=queued", 0),
    ] {
        assert_eq!(listed(query).await, count, "{query}");
    }
    // Others' lists hold what they show to one.
    let seen = async |query: &str| bob.get(&house, &format!("/jobs?owner={query}")).await["items"].clone();
    assert_eq!(seen(&ada.name).await[0]["id"], json!(first));
    assert_eq!(seen("*").await.as_array().unwrap().len(), 2, "his own, and hers");
    assert_eq!(seen("nobody-of-that-name").await, json!([]));
    ada.ask(&house, "PATCH", &format!("/jobs/{first}"), &json!({ "visibility": "private" })).await;
    assert_eq!(seen(&ada.name).await, json!([]));
    let everybodys = house.admin().get(&house, "/jobs?owner=*").await;
    assert_eq!(everybodys["items"].as_array().unwrap().len(), 2);
}
