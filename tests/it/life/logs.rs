//! Logs as people follow them, over REST and from a shell: lines that repeat themselves, many at once, characters and
//! streams that are cut anywhere, a log that loses its oldest half meanwhile, a portal that is killed. What a
//! follower was shown is compared with what is kept, byte by byte.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::{
    House, Person, eventually,
    jobs::{ended, log, state, submit},
};

/// An event of a followed log.
#[derive(Debug)]
struct Event {
    kind: String,
    id: String,
    data: Value,
}

/// Follows a log to its end, from behind this event on.
async fn follow(house: &House, person: &Person, path: &str, last: Option<&str>) -> Vec<Event> {
    let mut request = person.request(house, "GET", &format!("/api/v1/{path}")).header("accept", "text/event-stream");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let answer = request.send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let events = events(&answer.text().await.unwrap());
    assert_eq!(events.last().map(|event| event.kind.as_str()), Some("end"), "{path}");
    events
}

fn events(stream: &str) -> Vec<Event> {
    let field = |event: &str, name: &str| {
        event.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim_start().to_owned())
    };
    let read = |event: &str| {
        let kind = field(event, "event:")?;
        let data = field(event, "data:").unwrap_or_default();
        let data = serde_json::from_str(&data).unwrap_or(Value::String(data));
        Some(Event { kind, id: field(event, "id:").unwrap_or_default(), data })
    };
    stream.split("\n\n").filter_map(read).collect()
}

/// What a follower was shown of the log itself.
fn text(events: &[Event]) -> String {
    events.iter().filter(|event| event.kind == "log").map(|event| event.data.as_str().unwrap()).collect()
}

fn shell(house: &House, person: &Person, arguments: &[&str]) -> Command {
    let mut command = Command::new(&house.program);
    let token = person.authorization().replacen("Bearer ", "", 1);
    command.args(arguments).env("LYCEUM_URL", &house.url).env("LYCEUM_TOKEN", token);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a command prints; it must succeed.
fn printed(command: &mut Command) -> String {
    said(command.spawn().unwrap())
}

fn said(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn whoever_follows_is_shown_every_byte() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    let go = format!("/home/ly-{}/go", person.name);
    let begin = format!("while [ ! -e {go} ]; do sleep 0.05; done\n");
    let scripts = [
        // Equal lines in portions that are longer than what two looks overlap by.
        ("for i in 1 2 3 4 5 6; do yes 'loss: nan' | head -400; sleep 0.4; done", "loss: nan\n".repeat(2400)),
        (
            "for i in $(seq 100); do echo 'waiting for the lock ...'; sleep 0.03; done",
            "waiting for the lock ...\n".repeat(100),
        ),
        ("seq 1 60000", (1..=60_000).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat()),
        // Characters whose bytes come apart, at the very end too.
        (
            "printf 'a\\342'; sleep 1.5; printf '\\202\\254 and \\360\\237'; sleep 1.5; printf '\\230\\200'",
            "a€ and 😀".to_owned(),
        ),
        ("printf '10 %%\\r50 %%\\r100 %%\\n\\033[31mred\\n'", "10 %\r50 %\r100 %\n\u{1b}[31mred\n".to_owned()),
    ];
    let mut jobs = Vec::new();
    for (script, expected) in scripts {
        let id = submit(&house, &person, json!({ "script": format!("#!/bin/bash\n{begin}{script}\n") })).await;
        let shell = shell(&house, &person, &["job", "log", "-f", &id]).spawn().unwrap();
        jobs.push((id, expected, shell));
    }
    let following = futures_util::future::join_all(jobs.iter().map(async |(id, ..)| {
        let path = format!("jobs/{id}/log");
        follow(&house, &person, &path, None).await
    }));
    let begin = async {
        for (id, ..) in &jobs {
            state(&house, &person, id, "running").await;
        }
        fs::write(&go, "").unwrap();
    };
    let (followed, ()) = tokio::join!(following, begin);
    for ((id, expected, shell), events) in jobs.into_iter().zip(followed) {
        ended(&house, &person, &id, "exited").await;
        assert!(text(&events) == expected, "{} of {} bytes: {id}", text(&events).len(), expected.len());
        assert!(events.iter().all(|event| ["log", "end"].contains(&event.kind.as_str())), "{events:?}");
        // All of it is kept, and can be had without following.
        let kept = log(&house, &person, &format!("{id}/log")).await;
        assert!(kept == expected, "{} of {} bytes are kept", kept.len(), expected.len());
        let plain = expected.replace('\u{1b}', "");
        assert!(said(shell) == plain, "what -f printed: {id}");
        assert!(
            printed(&mut self::shell(&house, &person, &["job", "log", &id])) == plain,
            "what is printed of it: {id}"
        );
        // Whoever comes back behind any event misses nothing and sees nothing twice.
        let logs: Vec<&Event> = events.iter().filter(|event| event.kind == "log").collect();
        for (at, event) in [0, logs.len() / 2, logs.len() - 1].map(|at| (at, logs[at])) {
            let before: String = logs[..=at].iter().map(|event| event.data.as_str().unwrap()).collect();
            assert_eq!(event.id, format!("1.{}", before.len()), "an id is the attempt and the offset");
            let rest = follow(&house, &person, &format!("jobs/{id}/log?tail=1"), Some(&event.id)).await;
            assert!(before + &text(&rest) == expected, "resumed behind {}", event.id);
        }
    }
}

#[tokio::test]
async fn attempts_offsets_and_bad_questions() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let script =
        "#!/bin/bash\necho attempt $LYCEUM_ATTEMPT\necho 'last line'\n[ -e again ] || { touch again; exit 1; }\n";
    let asked = json!({ "script": script, "retries": 1, "working_directory": format!("/home/ly-{}", person.name) });
    let id = submit(&house, &person, asked).await;
    let path = format!("jobs/{id}/log");
    let events = follow(&house, &person, &path, None).await;
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == "attempt").count(),
        1,
        "the next attempt is another log: {kinds:?}"
    );
    ended(&house, &person, &id, "exited").await;
    let first = log(&house, &person, &format!("{id}/log?attempt=1")).await;
    let second = log(&house, &person, &format!("{id}/log")).await;
    assert!(first.ends_with("last line\n") && second.ends_with("last line\n"), "{first} {second}");
    assert_eq!(text(&events), format!("{first}{second}"));
    let behind = events.iter().position(|event| event.kind == "attempt").unwrap();
    assert_eq!((events[behind].id.as_str(), &events[behind].data), ("2.0", &json!({ "attempt": 2 })));
    // From the middle of the first attempt to the end of the second.
    let rest = follow(&house, &person, &path, Some("1.3")).await;
    assert_eq!(text(&rest), format!("{}{second}", &first[3..]));
    let only = follow(&house, &person, &format!("{path}?attempt=1"), None).await;
    assert_eq!(text(&only), first, "an attempt that is named ends the stream");
    for strange in ["7.3", "x", "-1", "2.99999999999999999999"] {
        assert_eq!(text(&follow(&house, &person, &path, Some(strange)).await), second, "{strange}");
    }
    let beyond = follow(&house, &person, &path, Some("2.4000")).await;
    assert_eq!((beyond[0].kind.as_str(), text(&beyond)), ("restart", second.clone()));
    assert_eq!(printed(&mut shell(&house, &person, &["job", "log", "--attempt", "1", &id])), first);
    assert_eq!(printed(&mut shell(&house, &person, &["job", "log", "--tail", "1", &id])), "last line\n");
    let lines = printed(&mut shell(&house, &person, &["job", "log", "-f", "--json", &id]));
    assert_eq!(serde_json::from_str::<Value>(lines.lines().next().unwrap()).unwrap()["data"], second);

    let request = person.request(&house, "GET", &format!("/api/v1/{path}?offset=3"));
    let answer = request.send().await.unwrap();
    let said = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!([said("log-offset"), said("log-end"), said("log-attempt")], ["3", &second.len().to_string(), "2"]);
    assert_eq!(answer.text().await.unwrap(), second[3..]);
    for (query, status) in [("tail=0", 422), ("tail=10001", 422), ("offset=-1", 422), ("tail=1&offset=1", 422)] {
        assert_eq!(person.ask(&house, "GET", &format!("/{path}?{query}"), &json!({})).await.0, status, "{query}");
    }
    assert_eq!(person.ask(&house, "GET", &format!("/{path}?attempt=9"), &json!({})).await.0, 404);
    assert_eq!(log(&house, &person, &format!("{id}/log?offset=4000")).await, "");
}

#[tokio::test]
async fn what_is_dropped_is_said_and_a_portal_that_is_killed_costs_nothing() {
    let Some(mut house) = House::open(&[]).await else { return };
    let person = house.person();
    let home = format!("/home/ly-{}", person.name);
    let wait = |file: &str| format!("while [ ! -e {home}/{file} ]; do sleep 0.05; done\n");
    // More than the log may measure, in lines of eight bytes, then a few words.
    let script = format!("#!/bin/bash\n{}seq 1000001 2500000\n{}echo the end\n", wait("flood"), wait("go"));
    let id = submit(&house, &person, json!({ "script": script })).await;
    state(&house, &person, &id, "running").await;
    let total = 8 * 1_500_000 + "the end\n".len();
    // The shell asks at the same address when the portal is back.
    let port = house.url.rsplit(':').next().unwrap().parse().unwrap();
    house.listen_on(port);
    let shell = shell(&house, &person, &["job", "log", "-f", &id]).spawn().unwrap();
    let output = tokio::task::spawn_blocking(move || said(shell));

    let path = format!("jobs/{id}/log");
    let end = async |house: &House| {
        let answer = person.request(house, "GET", &format!("/api/v1/{path}?tail=1")).send().await.unwrap();
        let offset = |name: &str| answer.headers()[name].to_str().unwrap().parse::<usize>().unwrap();
        (offset("log-offset"), offset("log-end"))
    };
    let begin = async {
        fs::write(format!("{home}/flood"), "").unwrap();
        eventually("all of it was written", async || (end(&house).await.1 == 8 * 1_500_000).then_some(())).await;
    };
    let request = person.request(&house, "GET", &format!("/api/v1/{path}")).header("accept", "text/event-stream");
    let mut stream = request.send().await.unwrap();
    let mut seen = String::new();
    let reading = async {
        let mut from = 0;
        while !seen[from..].contains("2500000\\n") {
            from = seen.len().saturating_sub(16);
            seen.push_str(std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap());
        }
    };
    tokio::join!(begin, reading);
    house.kill();
    house.start().await;
    fs::write(format!("{home}/go"), "").unwrap();

    // What was shown and what was dropped is all that there was.
    let mut events = events(seen.rsplit_once("\n\n").unwrap().0);
    let last = events.last().unwrap().id.clone();
    events.extend(follow(&house, &person, &path, Some(&last)).await);
    let mut at = 0;
    for event in &events {
        match event.kind.as_str() {
            "dropped" => at += usize::try_from(event.data["bytes"].as_u64().unwrap()).unwrap(),
            "log" => {
                let text = event.data.as_str().unwrap();
                let line = 1_000_001 + at / 8;
                let right = at % 8 != 0 || at == total - 8 || text.starts_with(&line.to_string());
                assert!(right, "at {at}: {}", &text[..text.len().min(20)]);
                at += text.len();
            }
            other => assert_eq!(other, "end"),
        }
        assert!(event.kind == "end" || event.id == format!("1.{at}"), "{} at {at}", event.id);
    }
    assert_eq!(at, total);

    // Whoever comes late is told how much they missed; what is kept goes on by the same offsets.
    ended(&house, &person, &id, "exited").await;
    let kept = log(&house, &person, &format!("{id}/log")).await;
    let late = follow(&house, &person, &path, Some("1.8")).await;
    assert_eq!((late[0].kind.as_str(), &late[0].data), ("dropped", &json!({ "bytes": total - kept.len() - 8 })));
    assert!(text(&late) == kept, "the rest of it");
    assert!((4 << 20..=8 << 20).contains(&kept.len()) && kept.ends_with("2500000\nthe end\n"), "{}", kept.len());
    assert_eq!(end(&house).await, (total - 8, total));

    // The shell was not ended by the portal's death, and printed each line once, or how much it missed.
    let printed = output.await.unwrap();
    let mut at = 0;
    for line in printed.lines() {
        let dropped =
            line.strip_prefix("lyceum: ").and_then(|words| words.strip_suffix(" bytes of the log were dropped here"));
        if let Some(bytes) = dropped {
            at += bytes.parse::<usize>().unwrap();
        } else {
            assert!(at == total - 8 || line == (1_000_001 + at / 8).to_string(), "at {at}: {line}");
            at += line.len() + 1;
        }
    }
    assert_eq!(at, total);
}

#[tokio::test]
async fn the_log_of_a_session_is_followed_to_its_end() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let id = person.run(&house, "web").await;
    let path = format!("sessions/{id}/log");
    let shell = shell(&house, &person, &["session", "log", "-f", &id.to_string()[28..]]).spawn().unwrap();
    let (events, ()) = tokio::join!(follow(&house, &person, &path, None), async {
        person.visit(&house, id, "/flood-100").await;
        let log = async || person.request(&house, "GET", &format!("/api/v1/{path}")).send().await.unwrap().text().await;
        eventually("it writes", async || log().await.unwrap().contains("flood ").then_some(())).await;
        person.end(&house, id).await;
    });
    let kept = person.request(&house, "GET", &format!("/api/v1/{path}")).send().await.unwrap().text().await.unwrap();
    let shown = text(&events);
    assert!(shown.ends_with(&kept) && kept.contains("flood "), "{} and {} bytes", shown.len(), kept.len());
    assert_eq!(events.iter().rfind(|event| event.kind == "log").unwrap().id, shown.len().to_string());
    assert_eq!(said(shell), shown);
}
