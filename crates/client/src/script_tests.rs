//! What scripts rely on, against a small portal that speaks real HTTP: exit statuses, waiting and its limit, contexts,
//! requests as they are, and results in each format.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Mutex};

use clap::Parser;
use serde_json::{Value, json};

use super::{
    tests::{ONE, Portal, TWO},
    *,
};

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

/// As the program has them.
#[derive(Subcommand)]
enum Verb {
    #[command(flatten)]
    Client(Command),
    Dataset {
        #[command(subcommand)]
        command: DatasetCommand,
    },
}

/// Runs `lyceum ARGUMENTS`; the exit status, and what was printed or the error.
pub(super) async fn lyceum(connection: &Connection, arguments: &[&str], input: &str) -> (u8, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let line = match Line::try_parse_from([&["lyceum"], arguments].concat()) {
        Ok(line) => line,
        Err(error) => return (2, error.to_string()),
    };
    let mut out = Vec::new();
    let command = match line.verb {
        Verb::Client(command) => command,
        Verb::Dataset { command } => Command::Dataset(command),
    };
    let result = execute(command, connection, &mut input.as_bytes(), &mut out).await;
    let printed = String::from_utf8(out).unwrap();
    match result {
        Ok(()) => (0, printed),
        Err(error) => (error.exit_code(), format!("{printed}{error}")),
    }
}

pub(super) fn at(portal: &Portal) -> Connection {
    Connection { url: Some(portal.url.clone()), token: Some("secret".to_owned()), contexts: None }
}

fn job(state: &str, code: Option<i64>, signal: Option<i64>) -> Value {
    json!({ "id": ONE, "owner": "ada", "name": "train", "state": state, "exit_code": code, "signal": signal,
        "reasons": [], "end_reason": null, "resources": { "gpus": 0, "cpus": 1, "memory_bytes": 1 } })
}

#[tokio::test]
async fn each_failure_has_its_status() {
    for (status, expected) in [(401, 77), (403, 77), (404, 66), (409, 65), (422, 65), (429, 69), (503, 69)] {
        let portal = Portal::start(move |_| (status, json!({ "title": "No", "detail": "No." })));
        assert_eq!(lyceum(&at(&portal), &["quota"], "").await.0, expected, "{status}");
    }
    let gone = Connection { url: Some("http://127.0.0.1:1".into()), token: Some("t".into()), contexts: None };
    assert_eq!(lyceum(&gone, &["quota"], "").await.0, 69);
    assert_eq!(lyceum(&Connection::default(), &["quota"], "").await.0, 2, "no token");
    let empty = Portal::start(|_| (200, json!({ "items": [], "next_cursor": null })));
    assert_eq!(lyceum(&at(&empty), &["job", "show", "abcdef"], "").await.0, 66);
}

#[tokio::test]
async fn a_job_passes_its_exit_code_on() {
    for (code, signal, expected) in [(Some(0), None, 0), (Some(7), None, 7), (None, Some(9), 137), (None, None, 1)] {
        let portal = Portal::start(move |line| {
            if line.starts_with("POST") { (201, job("queued", None, None)) } else { (200, job("ended", code, signal)) }
        });
        let (status, printed) = lyceum(&at(&portal), &["job", "submit", "--wait", "--json", "--", "x"], "").await;
        assert_eq!(status, expected);
        let printed: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
        assert_eq!((&printed["id"], &printed["state"]), (&json!(ONE), &json!("ended")), "JSON is always printed");
        assert_eq!(lyceum(&at(&portal), &["job", "wait", ONE], "").await.0, expected);
    }
}

#[tokio::test]
async fn waiting_has_a_limit_and_starts_nothing_again() {
    let portal = Portal::start(|_| (200, job("running", None, None)));
    let (status, printed) = lyceum(&at(&portal), &["job", "wait", ONE, "--timeout", "1s"], "").await;
    assert_eq!(status, 124, "{printed}");
    assert!(
        printed.contains("started continues") && portal.requests().iter().all(|request| request.starts_with("GET"))
    );

    let asked = Mutex::new(0);
    let portal = Portal::start(move |_| {
        *asked.lock().unwrap() += 1;
        let state = if *asked.lock().unwrap() < 3 { "running" } else { "ended" };
        (200, json!({ "id": ONE, "state": state, "app": "jupyter" }))
    });
    let (status, printed) = lyceum(&at(&portal), &["session", "wait", ONE, "--ended", "-o", "name"], "").await;
    assert_eq!((status, printed), (0, format!("{ONE}\n")));
}

#[tokio::test]
async fn what_has_no_program_is_waited_for_too() {
    let sweep = |state: &str, failed| {
        let states = json!({ "succeeded": 3, "failed": failed });
        json!({ "id": ONE, "name": "lr", "state": state, "tasks": 4, "released": 4, "states": states, "items": [] })
    };
    for (failed, expected) in [(0, 0), (1, 1)] {
        let asked = Mutex::new(0);
        let portal = Portal::start(move |_| {
            *asked.lock().unwrap() += 1;
            (200, sweep(if *asked.lock().unwrap() < 3 { "running" } else { "ended" }, failed))
        });
        let submit = ["sweep", "submit", "--wait", "--param", "lr=1,2", "--", "x"];
        for arguments in [&["sweep", "wait", ONE][..], &submit] {
            let (status, printed) = lyceum(&at(&portal), arguments, "").await;
            assert_eq!(status, expected, "{printed}");
            assert_eq!(printed.contains("is ended (1 failed, 3 succeeded)"), failed > 0, "{printed}");
        }
    }
    let running = Portal::start(move |_| (200, sweep("running", 0)));
    assert_eq!(lyceum(&at(&running), &["sweep", "wait", ONE, "--timeout", "1s"], "").await.0, 124);

    for (kind, state, expected) in
        [("dataset", "ready", 0), ("dataset", "failed", 1), ("model", "trained", 0), ("model", "stopped", 1)]
    {
        let one = json!({ "id": ONE, "name": "flowers", "state": state, "detail": "why", "job": TWO });
        let portal = Portal::start(move |_| (200, one.clone()));
        let (status, printed) = lyceum(&at(&portal), &[kind, "wait", ONE, "--json"], "").await;
        assert_eq!(status, expected, "{printed}");
        assert!(printed.starts_with('{'), "JSON is always printed: {printed}");
    }
}

/// The first lines of the requests since the last look, without their protocol.
fn asked(portal: &Portal, from: usize) -> Vec<String> {
    let line = |request: &String| request.lines().next().unwrap().replace(" HTTP/1.1", "").replace("/api/v1", "");
    portal.requests()[from..].iter().map(line).collect()
}

#[tokio::test]
async fn options_select_what_is_acted_on() {
    let portal = Portal::start(|line| match line.split(' ').next().unwrap() {
        "GET" if line.contains("state=queued") => {
            (200, json!({ "items": [{ "id": ONE, "name": "a", "state": "queued" }], "next_cursor": null }))
        }
        "GET" if line.contains("state=ended") || line.contains("/sweeps") => {
            let ended = |id: &str| json!({ "id": id, "name": "b", "state": "ended", "tasks": 1, "released": 1 });
            (200, json!({ "items": [ended(ONE), ended(TWO)], "next_cursor": null }))
        }
        "GET" => (200, json!({ "items": [], "next_cursor": null })),
        "DELETE" if line.contains(TWO) => (409, json!({ "title": "It has not ended" })),
        _ => (200, job("stopping", None, None)),
    });
    // A preview changes nothing, and says what a list says.
    let (status, printed) = lyceum(&at(&portal), &["job", "cancel", "--tag", "x", "--dry-run", "-o", "name"], "").await;
    assert_eq!((status, printed), (0, format!("{ONE}\n")));
    let filters = ["queued", "starting", "running"].map(|state| format!("GET /jobs?tag=x&state={state}&limit=500"));
    assert_eq!(asked(&portal, 0), filters);
    // Without it, the same are acted on.
    assert_eq!(lyceum(&at(&portal), &["job", "cancel", "--tag", "x"], "").await.0, 0);
    assert_eq!(asked(&portal, 3)[3..], [format!("POST /jobs/{ONE}/cancel")]);
    // One that fails does not keep the others from it.
    let (status, printed) = lyceum(&at(&portal), &["job", "delete", "--owner", "*", "--group", "g"], "").await;
    assert_eq!((status, printed), (1, format!("{ONE} was deleted\n1 of 2 failed")));
    assert_eq!(asked(&portal, 7)[0], "GET /jobs?owner=*&group=g&state=ended&limit=500");
    // The portal has no filter for the states of sweeps: none of these can be stopped.
    let before = portal.requests().len();
    assert_eq!(lyceum(&at(&portal), &["sweep", "stop", "--owner", "ada"], "").await.0, 0);
    assert_eq!(asked(&portal, before), ["GET /sweeps?owner=ada&limit=500"]);
    for wrong in [
        &["job", "cancel"][..],
        &["job", "cancel", ONE, "--tag", "x"],
        &["session", "stop", "--group", "g", "--owner", "ada"],
        &["sweep", "stop", "--state", "asleep"],
        &["job", "list", "--columns", "id", "-o", "yaml"],
    ] {
        assert_eq!(lyceum(&at(&portal), wrong, "").await.0, 2, "{wrong:?}");
    }
    assert_eq!(asked(&portal, before).len(), 1, "none of this was asked for");
    let columns = ["job", "list", "--state", "ended", "--columns", "name,id"];
    assert_eq!(lyceum(&at(&portal), &columns, "").await.1, format!("NAME  ID\nb     {ONE}\nb     {TWO}\n"));
    let (status, printed) =
        lyceum(&at(&portal), &["job", "list", "--all", "--state", "ended", "--columns", "x"], "").await;
    assert!(status == 2 && printed.ends_with("the columns are id, name, state, released, tasks"), "{printed}");
}

#[tokio::test]
async fn a_name_will_do_where_it_is_one() {
    let portal = Portal::start(|line| {
        let item =
            |id: &str, name: &str, state: &str| json!({ "id": id, "name": name, "state": state, "app": "jupyter" });
        let (old, new) = (item(ONE, "resnet", "ended"), item(TWO, "resnet", "running"));
        let items = match line {
            line if line.contains("search=resnet") && line.contains("/sessions") => vec![new, old],
            line if line.contains("search=resnet") => vec![item(ONE, "resnet", "ready"), item(TWO, "resnet", "failed")],
            line if line.contains("search=") => vec![item(ONE, "resnet-2", "ended")],
            _ => return (200, new),
        };
        (200, json!({ "items": items, "next_cursor": null }))
    });
    // The one that runs is meant, not those before it.
    assert_eq!(lyceum(&at(&portal), &["session", "stop", "resnet"], "").await.0, 0);
    assert_eq!(asked(&portal, 1)[0], format!("DELETE /sessions/{TWO}"));
    let (status, printed) = lyceum(&at(&portal), &["dataset", "delete", "resnet"], "").await;
    assert!(status == 65 && printed.contains(ONE) && printed.contains(TWO), "{printed}");
    assert_eq!(lyceum(&at(&portal), &["session", "stop", "resnet-"], "").await.0, 66, "a part of a name is not one");
}

#[tokio::test]
async fn a_context_keeps_the_token_from_others() {
    let portal = Portal::start(|_| (200, json!({ "name": "ada", "quota": {}, "usage": {} })));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lyceum/contexts.toml");
    let here = Connection { contexts: Some(file.clone()), ..Connection::default() };
    let (status, printed) = lyceum(&here, &["login", &portal.url, "--name", "lab"], "lyc_secret\n").await;
    assert_eq!(status, 0, "{printed}");
    assert!(printed.contains("as ada") && !printed.contains("lyc_secret"), "{printed}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert_eq!(lyceum(&here, &["api", "GET", "/me"], "").await.0, 0);
    assert!(portal.requests().iter().all(|request| request.to_lowercase().contains("bearer lyc_secret")));

    // A second one is used from then on; the first one by its name.
    let other = Portal::start(|_| (200, json!({ "name": "eve" })));
    assert_eq!(lyceum(&here, &["login", &other.url, "--name", "site"], "t2").await.0, 0);
    let (_, list) = lyceum(&here, &["context", "list"], "").await;
    assert!(list.contains("  lab  ") && list.contains("* site  ") && !list.contains("secret"), "{list}");
    let before = portal.requests().len();
    assert_eq!(lyceum(&here, &["api", "GET", "/me", "--context", "lab"], "").await.0, 0);
    assert_eq!(portal.requests().len(), before + 1);
    assert_eq!(lyceum(&here, &["context", "use", "nosuch"], "").await.0, 66);
    assert_eq!(lyceum(&here, &["context", "use", "lab"], "").await.0, 0);
    assert_eq!(lyceum(&here, &["context", "remove", "lab"], "").await.0, 0);
    assert_eq!(lyceum(&here, &["quota"], "").await.0, 2, "none is in use any more");

    // The variables win, and a file that others can read is not used.
    let both = Connection { contexts: Some(file.clone()), ..at(&other) };
    assert_eq!(lyceum(&both, &["api", "GET", "/me"], "").await.0, 0);
    assert!(other.requests().last().unwrap().to_lowercase().contains("bearer secret"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (status, printed) = lyceum(&here, &["context", "list"], "").await;
    assert!(status == 2 && printed.contains("chmod 600"), "{printed}");

    // A token that the portal rejects is not kept.
    let strict = Portal::start(|_| (401, json!({ "title": "Not signed in" })));
    let new = Connection { contexts: Some(folder.path().join("new/contexts.toml")), ..Connection::default() };
    assert_eq!(lyceum(&new, &["login", &strict.url], "wrong").await.0, 77);
    assert_eq!(lyceum(&new, &["login", &strict.url], "").await.0, 2);
    assert!(!folder.path().join("new").exists());
}

#[tokio::test]
async fn a_request_is_sent_as_it_is() {
    let portal = Portal::start(|_| (200, json!({ "items": [{ "id": "a", "name": "x" }] })));
    let address = Connection { url: Some(format!("{}/api/v1/", portal.url)), ..at(&portal) };
    for path in ["/jobs?state=running", "/api/v1/jobs?state=running", "jobs?state=running"] {
        let (status, printed) = lyceum(&address, &["api", "get", path, "-o", "csv"], "").await;
        assert_eq!((status, printed.as_str()), (0, "id,name\na,x\n"));
    }
    assert!(portal.requests().iter().all(|one| one.starts_with("GET /api/v1/jobs?state=running HTTP/1.1")));
    let arguments = ["api", "PATCH", "/users/ada", "--body", "@-", "-H", "If-Match: \"3f\""];
    assert_eq!(lyceum(&at(&portal), &arguments, "{\"disabled\": true}").await.0, 0);
    let request = portal.requests().pop().unwrap();
    let head = request.to_lowercase();
    assert!(head.contains("if-match: \"3f\"") && head.contains("content-type: application/json"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"disabled\": true}"), "{request}");
    for wrong in
        [&["api", "BREW", "/me"][..], &["api", "GET", "/me", "-H", "nothing"], &["api", "GET", "/me", "-b", "@/no"]]
    {
        assert_eq!(lyceum(&at(&portal), wrong, "").await.0, 2, "{wrong:?}");
    }
}

#[tokio::test]
async fn the_audit_log_is_read_forwards() {
    let entry = |number: i64| {
        json!({ "number": number, "at": "2030-01-31T08:00:00Z", "actor": "bo\u{1b}[31mss\nx", "action": "a",
        "subject": "s", "detail": "d" })
    };
    let portal = Portal::start(move |line| {
        let (items, next) = if line.contains("cursor=more") {
            (vec![entry(9)], None)
        } else {
            (vec![entry(7), entry(8)], Some("more"))
        };
        (200, json!({ "items": items, "next_cursor": next }))
    });
    let (status, printed) = lyceum(&at(&portal), &["audit", "--from", "7", "--json"], "").await;
    let numbers = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["number"].clone());
    assert_eq!((status, numbers.collect::<Vec<_>>()), (0, vec![json!(7), json!(8), json!(9)]));
    assert!(portal.requests()[0].starts_with("GET /api/v1/audit?after=6&limit=500 "), "{}", portal.requests()[0]);
    let (_, table) = lyceum(&at(&portal), &["audit", "--from", "1"], "").await;
    assert_eq!(table.lines().next().unwrap(), "7  2030-01-31T08:00:00Z  bo[31mss x  a  s  d");
    let (_, latest) = lyceum(&at(&portal), &["audit"], "").await;
    assert!(latest.starts_with("8  ") && latest.lines().count() == 2, "the oldest first: {latest}");
    assert_eq!(lyceum(&at(&portal), &["audit", "--from", "0"], "").await.0, 2);
}

#[tokio::test]
async fn events_are_read_and_followed() {
    let event = |number: i64, kind: &str| {
        json!({ "number": number, "at": "2030-01-31T08:00:00Z", "type": kind, "actor": "", "subject": "j", "detail": "d\nd",
        "owner": "bo\u{1b}[31mss" })
    };
    let portal = Portal::start(move |line| {
        let items = [event(7, "job.queued"), event(8, "job.ended")];
        let next = (!line.contains("cursor=more")).then_some("more");
        (200, json!({ "items": items, "next_cursor": next }))
    });
    let (status, printed) = lyceum(&at(&portal), &["events", "--from", "7", "--type", "job.*,quota.*"], "").await;
    assert_eq!((status, printed.lines().count()), (0, 4));
    assert_eq!(printed.lines().next().unwrap(), "7  2030-01-31T08:00:00Z  job.queued  bo[31mss  j  d d");
    let request = &portal.requests()[0];
    assert!(request.starts_with("GET /api/v1/events?type=job.*%2Cquota.*&after=6&limit=500 "), "{request}");
    let (_, json) = lyceum(&at(&portal), &["events", "-o", "json"], "").await;
    assert_eq!(serde_json::from_str::<Value>(json.lines().nth(1).unwrap()).unwrap()["type"], "job.ended");
    assert_eq!(lyceum(&at(&portal), &["events", "--from", "0"], "").await.0, 2);
}

#[tokio::test]
async fn columns_of_results_have_the_names_that_people_use() {
    let column = |key: &str, shown| json!({ "key": key, "label": &key[2..], "shown": shown });
    let columns = [("p:lr", true), ("m:val/loss", true), ("m:lr", true), ("p:name", true), ("m:acc", false)];
    let columns: Vec<Value> = columns.into_iter().map(|(key, shown)| column(key, shown)).collect();
    let cells = json!({ "p:lr": { "value": 0.1 }, "m:val/loss": { "value": 0.5, "step": 3, "best": true }, "m:lr": { "value": 0 },
        "p:name": { "value": "x" } });
    let run = json!({ "id": ONE, "name": "one", "owner": "ada", "directory": "/a", "complete": true, "points": 3,
        "created_at": "2030-01-01T00:00:00Z", "cells": cells });
    let portal = Portal::start(move |_| (200, json!({ "columns": columns, "items": [run] })));
    let at = at(&portal);
    let (status, printed) = lyceum(&at, &["run", "results", "--sort", "-val/loss", "-o", "csv"], "").await;
    let expected = format!(
        "id,name,owner,complete,created_at,directory,m:lr,p:lr,p:name,points,val/loss\n\
         {ONE},one,ada,true,2030-01-01T00:00:00Z,/a,0,0.1,x,3,0.5\n"
    );
    assert_eq!((status, printed), (0, expected));
    assert!(portal.requests()[0].contains("sort=-val%2Floss"), "{:?}", portal.requests());
    let (_, table) = lyceum(&at, &["run", "results"], "").await;
    assert!(table.starts_with("ID") && table.contains("val/loss") && !table.contains("m:val/loss"), "{table}");
    let (_, chosen) = lyceum(&at, &["run", "results", "--columns", "name,val/loss"], "").await;
    assert_eq!(chosen, "NAME  VAL/LOSS\none   0.5\n");
    let (_, whole) = lyceum(&at, &["run", "results", "--json"], "").await;
    assert!(whole.contains("m:val/loss"), "the response of the API");
}

#[tokio::test]
async fn usage_as_csv_says_what_a_row_is_of() {
    let row = json!({ "group": "vision", "name": "2030-01", "gpu_seconds": 1, "cpu_seconds": 2, "sessions": 3 });
    let portal = Portal::start(move |_| (200, json!({ "items": [row], "next_cursor": null })));
    for (by, head) in [
        ("group,month", "group,month,cpu_seconds,gpu_seconds,sessions"),
        ("user", "user,group,cpu_seconds,gpu_seconds,sessions"),
    ] {
        let (status, printed) = lyceum(&at(&portal), &["usage", "--by", by, "-o", "csv"], "").await;
        assert_eq!((status, printed.lines().next()), (0, Some(head)), "{by}");
    }
    let (_, json) = lyceum(&at(&portal), &["usage", "--json"], "").await;
    assert!(json.contains("\"name\":\"2030-01\""), "{json}");
}

#[tokio::test]
async fn a_failure_names_the_older_version() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let portal = Portal::start(|_| (200, json!({ "version": "0.0.9", "oldest_client": "0.0.1" })));
    let unknown = Error::Strange("no JSON".to_owned());
    let advice = version::advice(&at(&portal), None, &unknown).await.unwrap();
    assert!(advice.starts_with("the portal (version 0.0.9) is older than this command"), "{advice}");
    assert_eq!(version::advice(&at(&portal), None, &Error::Usage("a wrong flag".to_owned())).await, None);
    assert_eq!(portal.requests().len(), 1, "the portal cannot be why");

    let older = Portal::start(|_| (404, json!({ "status": 404, "title": "Not found" })));
    assert_eq!(version::advice(&at(&older), None, &unknown).await, None, "a portal that does not say its version");
}
