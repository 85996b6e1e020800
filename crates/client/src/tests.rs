//! The client against a small portal that speaks real HTTP on the loopback: what is asked,
//! how answers and problems are told, and that ids may be cut short.

use std::{
    io::{Read, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use clap::Parser;
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct JobLine {
    #[command(flatten)]
    job: JobArguments,
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    session: SessionArguments,
}

pub(super) const ONE: &str = "0190a1b2-0000-7000-8000-000000000001";
pub(super) const TWO: &str = "0190a1b2-0000-7000-8000-000000000002";

fn session(id: &str, state: &str) -> Value {
    json!({"id": id, "owner": "ada", "app": "jupyter", "name": "resnet", "state": state, "reasons": [],
        "resources": {"gpus": 1, "cpus": 8, "memory_bytes": 51_539_607_552_i64}, "gpus": [], "node": "here",
        "open_url": format!("http://127.0.0.1:8001/s/{id}/lab"), "expires_at": null, "end_reason": null, "detail": null})
}

/// A portal whose answers are a function of the request's first line; it remembers requests.
pub(super) struct Portal {
    pub(super) url: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Portal {
    pub(super) fn start(answer: impl Fn(&str) -> (u16, Value) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let remember = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read_request(&mut stream);
                let (status, body) = answer(request.lines().next().unwrap());
                remember.lock().unwrap().push(request);
                let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
                let head =
                    format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        });
        Self { url, seen }
    }

    /// Runs `lyceum session ARGUMENTS`; what it printed, or the error as it would be told.
    async fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let line = Line::try_parse_from([&["session"], arguments].concat()).map_err(|error| error.to_string())?;
        let api = Api::new(Some(&self.url), Some("secret")).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        run_session(&api, line.session, &mut out).await.map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn read_request(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut buffer).unwrap();
        text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let expected = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned))
                .map_or(0, |length| length.parse().unwrap());
            if length == 0 || body.len() >= expected {
                return text;
            }
        }
    }
}

#[tokio::test]
async fn start_says_only_what_was_said() {
    let portal = Portal::start(|_| (201, session(ONE, "queued")));
    let told = portal.run(&["start", "jupyter", "--gpus", "1", "--memory", "4GiB", "--duration", "2h"]).await.unwrap();
    assert_eq!(told, format!("{ONE} resnet is queued\n"));
    let request = portal.requests().remove(0);
    assert!(request.starts_with("POST /api/v1/sessions HTTP/1.1"), "{request}");
    assert!(request.to_ascii_lowercase().contains("authorization: bearer secret"), "{request}");
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    let resources = json!({"gpus": 1, "memory_bytes": 4_294_967_296_i64});
    assert_eq!(body, json!({"app": "jupyter", "resources": resources, "duration_seconds": 7200}));
}

#[tokio::test]
async fn start_names_a_place_on_the_cluster() {
    let portal = Portal::start(|_| (201, session(ONE, "queued")));
    portal
        .run(&["start", "terminal", "--partition", "gpu", "--qos", "long", "--constraint", "a100&nvlink"])
        .await
        .unwrap();
    let body: Value = serde_json::from_str(portal.requests().remove(0).split_once("\r\n\r\n").unwrap().1).unwrap();
    let slurm = json!({"partition": "gpu", "qos": "long", "constraint": "a100&nvlink"});
    assert_eq!(body, json!({"app": "terminal", "slurm": slurm}));
}

#[tokio::test]
async fn what_waits_says_for_how_long_and_why() {
    let portal = Portal::start(|_| {
        let mut waits = session(ONE, "queued");
        waits["waiting_since"] = json!(Clock::System.now().plus_seconds(-245));
        waits["estimated_start"] = json!("2099-01-01T00:00:00Z");
        waits["reasons"] = json!([{ "hint": "Your limit is 1 GPU and 1 is in use by ‘a’." }]);
        (201, waits)
    });
    let told = portal.run(&["start", "jupyter", "--group", "vision"]).await.unwrap();
    let (why, start) = ("Your limit is 1 GPU and 1 is in use by ‘a’.", "(expected to start by 2099-01-01T00:00:00Z)");
    assert_eq!(told, format!("{ONE} resnet is queued for 4 min: {why} {start}\n"));
    let request = portal.requests().remove(0);
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body, json!({ "app": "jupyter", "group": "vision" }));
}

#[tokio::test]
async fn more_time_and_keeping_are_asked_for_in_seconds() {
    let portal = Portal::start(|_| (200, session(ONE, "running")));
    for arguments in [&["extend", ONE, "2h"][..], &["extend", ONE], &["keep", ONE, "90m"]] {
        assert!(portal.run(arguments).await.unwrap().contains("resnet is running"));
    }
    let asked: Vec<(String, Value)> = portal
        .requests()
        .iter()
        .map(|request| {
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").replace(ONE, "ID");
            (line, serde_json::from_str(body).unwrap())
        })
        .collect();
    let line = |verb: &str| format!("POST /api/v1/sessions/ID/{verb}");
    assert_eq!(
        asked,
        [
            (line("extend"), json!({ "seconds": 7200 })),
            (line("extend"), json!({})),
            (line("keep"), json!({ "seconds": 5400 }))
        ]
    );
}

#[tokio::test]
async fn wait_follows_until_it_runs_and_fails_when_it_ends() {
    let asked = Mutex::new(0);
    let portal = Portal::start(move |line| {
        *asked.lock().unwrap() += 1;
        match (*asked.lock().unwrap(), line.starts_with("POST")) {
            (_, true) => (201, session(ONE, "queued")),
            (2, _) => (503, json!({"title": "Away", "detail": "the database is away"})),
            (3, _) => (200, session(ONE, "starting")),
            _ => (200, session(ONE, "running")),
        }
    });
    let told = portal.run(&["start", "jupyter", "--wait"]).await.unwrap();
    assert!(told.contains("resnet is running on here"), "{told}");

    let portal = Portal::start(|line| {
        let mut ended = session(ONE, "ended");
        ended["end_reason"] = json!("launch_failed");
        ended["detail"] = json!("no such program");
        if line.starts_with("POST") { (201, session(ONE, "starting")) } else { (200, ended) }
    });
    let error = portal.run(&["start", "jupyter", "--wait"]).await.unwrap_err();
    assert!(error.ends_with("could not be started: no such program"), "{error}");
}

#[tokio::test]
async fn lists_in_tables_and_in_json() {
    let portal = Portal::start(|line| {
        let items = if line.contains("state=running") {
            vec![session(ONE, "running"), session(TWO, "running")]
        } else {
            vec![]
        };
        (200, json!({"items": items, "next_cursor": null}))
    });
    let table = portal.run(&["list"]).await.unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(
        lines[1].starts_with("00000002 ") && lines[2].starts_with("00000001 "),
        "newest first, ids told apart: {table}"
    );
    assert!(lines[1].contains("resnet  jupyter  running  1 GPU, 8 cores, 48 GiB"), "{table}");
    let listed: Value = serde_json::from_str(&portal.run(&["list", "--json"]).await.unwrap()).unwrap();
    assert_eq!(listed["items"][1]["id"], ONE);
    let empty = Portal::start(|_| (200, json!({"items": []})));
    assert!(empty.run(&["list"]).await.unwrap().contains("no sessions"));
}

#[tokio::test]
async fn lists_of_jobs_are_narrowed_by_the_portal() {
    let portal = Portal::start(|_| (200, json!({"items": [], "next_cursor": null})));
    let _ = rustls::crypto::ring::default_provider().install_default();
    let api = Api::new(Some(&portal.url), Some("secret")).unwrap();
    let ask = async |arguments: &[&str]| {
        let line =
            JobLine::try_parse_from([&["job", "list"], arguments].concat()).map_err(|error| error.to_string())?;
        jobs::run(&api, line.job, &mut Vec::new()).await.map_err(|error| error.to_string())
    };
    ask(&["--all", "--tag", "a paper", "--star", "--search", "res"]).await.unwrap();
    ask(&["--state", "ended", "--group", "vision", "--owner", "*"]).await.unwrap();
    ask(&["--tag", "x"]).await.unwrap();
    let asked = portal.requests();
    assert!(asked[0].starts_with("GET /api/v1/jobs?limit=500&tag=a+paper&starred=true&search=res "), "{}", asked[0]);
    assert!(asked[1].starts_with("GET /api/v1/jobs?limit=500&owner=*&group=vision&state=ended "), "{}", asked[1]);
    assert!(asked[2..].iter().all(|line| line.contains("tag=x&state=")), "live ones, state by state: {asked:?}");
    assert!(ask(&["--state", "asleep"]).await.unwrap_err().contains("possible values: queued"));
}

#[tokio::test]
async fn ids_may_be_cut_short_while_they_are_one() {
    let portal = Portal::start(|line| match line {
        line if line.contains("/log?tail=5") => (200, json!("one\n\u{1b}[31mtwo\n")),
        line if line.contains("/sessions?") => {
            (200, json!({"items": [session(TWO, "running"), session(ONE, "running")], "next_cursor": null}))
        }
        _ => (200, session(TWO, "stopping")),
    });
    let stopped = portal.run(&["stop", TWO]).await.unwrap();
    assert_eq!(stopped, format!("{TWO} resnet is stopping\n"));
    assert!(portal.requests()[0].starts_with(&format!("DELETE /api/v1/sessions/{TWO} ")));
    assert_eq!(portal.run(&["log", &ONE[..36].to_uppercase(), "--tail", "5"]).await.unwrap(), "one\n[31mtwo\n");
    let opened = portal.run(&["open", TWO]).await.unwrap();
    assert_eq!(opened, format!("http://127.0.0.1:8001/s/{TWO}/lab\n"));
    assert!(portal.run(&["stop", "0190"]).await.unwrap_err().contains("several sessions"));
    assert!(portal.run(&["stop", "ffff"]).await.unwrap_err().contains("no session of yours"));
    let opened = portal.run(&["open", "00000002"]).await.unwrap();
    assert_eq!(opened, format!("http://127.0.0.1:8001/s/{TWO}/lab\n"), "its end will do");
    assert!(portal.run(&["stop", "../me"]).await.unwrap_err().contains("is not an id"));
}

#[tokio::test]
async fn problems_are_told_with_their_fields() {
    let problem = json!({"type": "/problems/invalid", "title": "Invalid fields", "status": 422,
        "detail": "Two fields are wrong", "errors": [{"field": "resources.cpus", "code": "range", "message": "at least 1"}]});
    let portal = Portal::start(move |_| (422, problem.clone()));
    let error = portal.run(&["start", "jupyter"]).await.unwrap_err();
    assert_eq!(error, "Invalid fields: Two fields are wrong\n  resources.cpus: at least 1");

    let other = Portal::start(|_| (502, json!("<html>gateway</html>")));
    assert!(other.run(&["list"]).await.unwrap_err().contains("unexpected response from the portal (status 502"));

    let gone = Portal { url: "http://127.0.0.1:1".to_owned(), seen: Arc::default() };
    assert!(gone.run(&["list"]).await.unwrap_err().starts_with("cannot reach the portal at http://127.0.0.1:1"));
}

#[tokio::test]
async fn bad_arguments_never_reach_the_portal() {
    let portal = Portal::start(|_| (500, json!({})));
    for arguments in [
        &["start"][..],
        &["start", "jupyter", "--gpus", "-1"],
        &["start", "jupyter", "--memory", "lots"],
        &["start", "jupyter", "--duration", "0s"],
        &["start", "jupyter", "--profile", "small", "--cpus", "2"],
        &["extend", ONE, "0s"],
        &["keep", ONE, "a while"],
        &["log", "x", "--tail", "0"],
    ] {
        assert!(portal.run(arguments).await.is_err(), "{arguments:?}");
    }
    assert!(portal.requests().is_empty());
}

#[derive(Parser)]
struct UsageLine {
    #[command(flatten)]
    usage: UsageArguments,
}

#[tokio::test]
async fn usage_is_asked_for_in_moments_and_told_in_hours() {
    let portal = Portal::start(|_| {
        let row =
            |name: &str, gpus, cpus| json!({"name": name, "gpu_seconds": gpus, "cpu_seconds": cpus, "sessions": 3});
        let from_shell = json!({"jobs": 2, "gpu_seconds": 3600, "cpu_seconds": 7200});
        let items = [row("vis\u{1b}[31mion", 5400, 7_200_000), row("", 0, 60)];
        (200, json!({"by": "group", "items": items, "from_shell": from_shell}))
    });
    let _ = rustls::crypto::ring::default_provider().install_default();
    let api = Api::new(Some(&portal.url), Some("secret")).unwrap();
    let told = async |arguments: &[&str]| {
        let line = UsageLine::try_parse_from([&["usage"], arguments].concat()).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        usage::run(&api, &line.usage, &mut out).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(String::from_utf8(out).unwrap())
    };
    let table =
        told(&["--by", "group", "--from", "2030-01-01", "--to", "2030-01-31", "--whose", "managed"]).await.unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "GROUP       GPU-HOURS  CORE-HOURS  SESSIONS");
    assert_eq!(lines[1], "vis[31mion  1.5        2\u{202f}000       3");
    assert_eq!(lines[2], "-           0          <\u{a0}0.1       3");
    assert_eq!(lines[3], "including 1.0 GPU-hours and 2.0 core-hours from a shell, in 2 jobs");
    let asked = portal.requests().remove(0);
    let query = "/usage?from=2030-01-01T00%3A00%3A00Z&to=2030-02-01T00%3A00%3A00Z&by=group&whose=managed&limit=500";
    assert!(asked.starts_with(&format!("GET /api/v1{query} HTTP/1.1")), "{asked}");
    let json: Value =
        serde_json::from_str(&told(&["--json", "--to", "2030-01-31T08:00:00+01:00"]).await.unwrap()).unwrap();
    assert_eq!(json["items"][0]["gpu_seconds"], 5400);
    assert!(portal.requests()[1].contains("?to=2030-01-31T07%3A00%3A00Z&by=user&limit=500 HTTP"));
    told(&["--by", "group,month"]).await.unwrap();
    assert!(portal.requests().remove(2).contains("by=group%2Cmonth&"));
    for wrong in [&["--by", "cpu"][..], &["--from", "yesterday"], &["--to", "2030-02-30"], &["--whose", "bob"]] {
        assert!(told(wrong).await.is_err(), "{wrong:?}");
    }
    assert_eq!(portal.requests().len(), 3);
}

#[tokio::test]
async fn gpus_are_listed_with_what_is_known_of_them() {
    let portal = Portal::start(|request| {
        let measured = json!({"index": 0, "slice": null, "uuid": "GPU-a", "model": "A100", "state": "held",
            "utilisation_percent": 87, "memory_used_bytes": 3_i64 << 30, "memory_total_bytes": 80_i64 << 30,
            "temperature_celsius": 61, "owner": "a\u{1b}[31mda"});
        let slice = json!({"index": 1, "slice": 2, "uuid": "MIG-b", "model": "A100 1g.10gb", "state": "busy_outside"});
        let is_second = request.contains("cursor=more");
        let (item, next) = if is_second { (slice, Value::Null) } else { (measured, json!("more")) };
        (200, json!({ "items": [item], "next_cursor": next }))
    });
    let _ = rustls::crypto::ring::default_provider().install_default();
    let api = Api::new(Some(&portal.url), Some("secret")).unwrap();
    let told = async |json| {
        let output = Output { json, ..Output::default() };
        let (mut out, arguments) =
            (Vec::new(), GpuArguments { output, command: gpus::GpuCommand::List(Columns::default()) });
        gpus::run(&api, &arguments, &mut out).await.unwrap();
        String::from_utf8(out).unwrap()
    };
    let table = told(false).await;
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect()).collect();
    let trimmed = |line: &Vec<&str>| line.iter().map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(trimmed(&lines[1]), ["0", "A100", "held", "87 %", "3 GiB of 80 GiB", "61 °C", "a[31mda", "GPU-a"]);
    assert_eq!(trimmed(&lines[2]), ["1:2", "A100 1g.10gb", "busy outside", "-", "-", "-", "-", "MIG-b"]);
    assert!(portal.requests()[0].starts_with("GET /api/v1/gpus?limit=500 HTTP/1.1"));
    let json: Value = serde_json::from_str(&told(true).await).unwrap();
    assert_eq!(json["items"][1]["state"], "busy_outside");
}

#[test]
fn the_portal_and_the_token_must_be_said() {
    let refused = |url, token| match Api::new(url, token) {
        Err(Error::Usage(why)) => why,
        other => panic!("{:?}", other.err()),
    };
    assert!(refused(Some("portal"), Some("t")).contains("LYCEUM_URL"));
    assert!(refused(Some("ftp://portal"), Some("t")).contains("LYCEUM_URL"));
    assert!(refused(Some("https://ada:pw@portal"), Some("t")).contains("LYCEUM_URL"));
    assert!(refused(None, None).contains("LYCEUM_TOKEN is not set"));
    assert!(refused(None, Some("a b")).contains("LYCEUM_TOKEN"));
}
