//! A database that is locked by somebody else, on a full disk, or away: requests wait or are
//! told so, people who are in go on working, and when it is back nothing is missing.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use lyceum::{
    db::{Config, Db},
    model::SessionId,
};
use reqwest::Response;
use serde_json::{Value, json};
use sqlx::{ConnectOptions, Executor, sqlite::SqliteConnectOptions};
use tokio::time::Instant;
use url::Url;

use super::{all_agree, start_once};
use crate::{
    db::{on_postgres, opening, whole::assert_consistent},
    life::{House, Person, person},
    wait::eventually,
};

const SAID: &str = "The database does not respond. Try again in a moment.";
const FULL: &str = "The disk is full, so nothing can be started, stopped or changed";

/// The answer to an outage says when to come again, and what happened, to programs and people.
async fn assert_outage(answer: Response) {
    assert_says(answer, SAID).await;
}

async fn assert_says(answer: Response, said: &str) {
    let status = answer.status();
    let retry = answer.headers().get("retry-after").cloned();
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    let text = answer.text().await.unwrap();
    assert!(status == 503 && retry.is_some() && text.contains(said), "{status} {retry:?}: {text}");
    assert!(!text.contains("sqlite") && !text.contains("pool"), "the cause is for the log: {text}");
    let is_page = text.contains("<h1");
    assert_eq!(is_page, kind.starts_with("text/html"), "{kind}: {text}");
}

/// Stops a session as a browser's form does.
async fn press_stop(person: &Person, house: &House, id: SessionId) -> Response {
    let form = person.request(house, "POST", &format!("/sessions/{id}/stop")).header("accept", "text/html");
    form.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap()
}

/// What the health report says of one part.
fn finding(report: &Value, name: &str) -> Value {
    let found = report["findings"].as_array().unwrap().iter().find(|one| one["name"] == name);
    found.cloned().unwrap_or_else(|| panic!("{name} in {report:#}"))
}

async fn within<T>(seconds: u64, what: &str, asked: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(seconds), asked).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// Terminals that were asked for with this name.
async fn count(person: &Person, house: &House, name: &str) -> usize {
    let sessions = person.get(house, "/sessions?limit=500").await;
    sessions["items"].as_array().unwrap().iter().filter(|session| session["name"] == name).count()
}

#[tokio::test]
async fn while_somebody_else_holds_the_lock() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let admin = house.admin();
    let running = person.run(&house, "web").await;
    let gone = person.run(&house, "web").await;
    let database = SqliteConnectOptions::new().filename(house.paths().private.join("lyceum.db"));
    let mut other = database.connect().await.unwrap();
    let named = |name: &str| json!({ "app": "terminal", "name": name });

    // For a short while: whoever writes waits.
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let waits = tokio::spawn({
        let (person, url) = (person.clone(), house.url.clone());
        async move {
            let body = json!({ "app": "terminal", "name": "waits" });
            person::answer(person.request_at(&url, "POST", "/api/v1/sessions").json(&body).send().await.unwrap()).await
        }
    });
    for _ in 0..5 {
        within(3, "reading", person.get(&house, "/sessions")).await;
        assert_eq!(within(3, "an app", person.visit(&house, running, "/")).await.0, 200);
    }
    assert!(!waits.is_finished());
    other.execute("COMMIT").await.unwrap();
    let (status, session) = waits.await.unwrap();
    assert_eq!(status, 201, "{session}");

    // For longer than anybody waits: they are told, and may try again.
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let begin = Instant::now();
    person.visit(&house, gone, "/exit-3").await;
    let insists = tokio::spawn({
        let (person, url, body) = (person.clone(), house.url.clone(), named("insists"));
        async move { start_once(&person, &url, "one key", &body).await.unwrap() }
    });
    assert_outage(within(45, "the page", press_stop(&person, &house, running)).await).await;
    let ready = person.request(&house, "GET", "/readyz").send().await.unwrap();
    assert_eq!(ready.status(), 503);
    let said = ready.text().await.unwrap();
    assert!(said.contains("cannot be written to"), "{said}");
    let report = within(10, "the health report", admin.get(&house, "/health")).await;
    assert!(finding(&report, "database")["what"].as_str().unwrap().contains("holds its lock"), "{report:#}");
    let held = begin.elapsed();
    assert!(Duration::from_secs(5) < held, "it waited first: {held:?}");
    eprintln!("told after {held:?}");
    assert_eq!(within(3, "an app", person.visit(&house, running, "/")).await.0, 200);
    assert_eq!(within(3, "reading", person.session(&house, running)).await["state"], "running");
    other.execute("COMMIT").await.unwrap();
    let id = insists.await.unwrap();
    person.state(&house, id, "running").await;
    person.ended(&house, gone, "exited").await;
    assert_eq!((count(&person, &house, "waits").await, count(&person, &house, "insists").await), (1, 1));
    person.end(&house, running).await;
    let db = house.db().await;
    all_agree(&house, &db).await;
    assert_consistent(&db).await;
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_postgresql_is_away() {
    if !crate::needs::root() {
        return;
    }
    on_postgres(async |database| {
        let server = Url::parse(&database.config.url).unwrap();
        let target = (server.host_str().unwrap().to_owned(), server.port().unwrap());
        let address = ([127, 0, 0, 1], super::fixed_port()).into();
        let gate = opening::gate(address, target.clone()).await;
        let mut url = server.clone();
        url.set_port(Some(address.port())).unwrap();
        let mut house = House::new(&[("LYCEUM_DATABASE__URL", url.as_str())]);
        house.start().await;
        let (person, admin) = (house.person(), house.admin());
        // Who is known goes on being known while the database is away.
        assert_eq!(finding(&admin.get(&house, "/health").await, "database")["level"], "ok");
        let running = person.run(&house, "web").await;
        let gone = person.run(&house, "web").await;
        let later = person.run(&house, "web").await;

        // Away and back under a portal that goes on.
        gate.abort();
        assert!(gate.await.unwrap_err().is_cancelled());
        person.visit(&house, gone, "/exit-3").await;
        let (status, body) = within(25, "an answer", person.ask(&house, "GET", "/sessions", &Value::Null)).await;
        assert_eq!((status, &body["detail"]), (503, &json!(SAID)), "{body}");
        assert_outage(within(25, "the page", press_stop(&person, &house, running)).await).await;
        assert_eq!(within(3, "an app", person.visit(&house, running, "/")).await.0, 200, "who is in goes on");
        let ready = person.request(&house, "GET", "/readyz").send().await.unwrap();
        assert_eq!(ready.status(), 503);
        let report = within(25, "the health report", admin.get(&house, "/health")).await;
        let found = finding(&report, "database");
        assert_eq!((&report["level"], &found["level"]), (&json!("fault"), &json!("fault")), "{report:#}");
        assert!(found["what"].as_str().unwrap().contains("does not respond"), "{found}");
        assert_eq!(finding(&report, "scheduler")["level"], "ok", "nothing else is blamed");
        let gate = opening::gate(address, target.clone()).await;
        person.ended(&house, gone, "exited").await;
        assert_eq!(person.session(&house, running).await["state"], "running");

        // Away while the portal dies: the next one says why it does not start.
        gate.abort();
        assert!(gate.await.unwrap_err().is_cancelled());
        house.kill();
        let (succeeded, said) = house.run(&["serve", "--listen", "127.0.0.1:0"]);
        assert!(!succeeded && said.contains("no response; check that PostgreSQL is running"), "{said}");
        let _gate = opening::gate(address, target).await;
        house.start().await;
        for id in [running, later] {
            assert_eq!(person.session(&house, id).await["state"], "running");
            person.is_reached(&house, id).await;
        }
        person.end(&house, running).await;
        all_agree(&house, &database.db).await;
        assert_consistent(&database.db).await;
    })
    .await;
}

/// A small disk in a mount namespace of its own; it goes with the process that holds it.
struct Disk {
    holder: Child,
    place: PathBuf,
}

impl Disk {
    fn of(house: &House) -> Self {
        let place = house.file("disk");
        fs::create_dir(&place).unwrap();
        let mount = "mount -t tmpfs -o size=5m,mode=1777 small \"$1\" && touch \"$1/mounted\" && exec sleep 600";
        let mut holder = Command::new("unshare");
        holder.args(["--mount", "sh", "-c", mount, "sh"]).arg(&place).stdin(Stdio::null());
        Self { holder: holder.spawn().unwrap(), place }
    }

    /// A file on it as we reach it from outside.
    fn file(&self, name: &str) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.holder.id())).join(self.place.strip_prefix("/").unwrap()).join(name)
    }

    fn fill(&self) {
        let full = fs::write(self.file("ballast"), vec![7; 8 << 20]).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[tokio::test]
async fn while_the_disk_is_full() {
    if !crate::needs::root() {
        return;
    }
    let mut house = House::new(&[]);
    let disk = Disk::of(&house);
    eventually("the disk is mounted", async || disk.file("mounted").exists().then_some(())).await;
    house.inside = ["nsenter", &format!("--mount=/proc/{}/ns/mnt", disk.holder.id()), "--"].map(str::to_owned).into();
    let url = format!("sqlite://{}", disk.place.join("lyceum.db").display());
    house.set("LYCEUM_DATABASE__URL", &url);
    house.start().await;
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "light": -1, "pending": -1, "sessions": -1 })).await;
    let running = person.run(&house, "web").await;
    let gone = person.run(&house, "web").await;

    disk.fill();
    let mut written = Vec::new();
    let refused = loop {
        let key = written.len().to_string();
        let ask = person.request(&house, "POST", "/api/v1/sessions").header("idempotency-key", key);
        // They need a GPU more than there are to spare, so they are rows and nothing else.
        let body = json!({ "app": "terminal", "name": "x".repeat(64), "resources": { "gpus": 1 } });
        let answer = ask.json(&body).send().await.unwrap();
        if answer.status() != 201 {
            break answer;
        }
        written.push(person::id(&answer.json().await.unwrap()));
        assert!(written.len() < 2000, "the disk has no end");
    };
    eprintln!("full after {} sessions", written.len());
    assert_says(refused, FULL).await;
    assert_says(press_stop(&person, &house, running).await, FULL).await;
    let password = fs::read_to_string(house.paths().private.join("first-password")).unwrap();
    let sign_in = reqwest::Client::new().post(format!("{}/login", house.url)).header("accept", "text/html");
    let sign_in = sign_in.header("origin", &house.url).header("content-type", "application/x-www-form-urlencoded");
    let sign_in = sign_in.body(format!("username=admin&password={}", password.trim()));
    assert_says(sign_in.send().await.unwrap(), FULL).await;
    assert_eq!(person.visit(&house, running, "/").await.0, 200);
    assert_eq!(person.session(&house, running).await["state"], "running");
    person.visit(&house, gone, "/exit-3").await;

    // It dies, and the next one either serves or says what to do.
    house.kill();
    let before = house.spawn();
    let served = eventually("it serves or ends", async || {
        let ready = house.ready_since(before);
        (ready.is_some() || house.has_ended()).then_some(ready)
    })
    .await;
    match served {
        Some(url) => {
            house.url = url;
            assert_says(press_stop(&person, &house, running).await, FULL).await;
            house.kill();
        }
        None => assert!(house.log()[before..].contains("the disk is full; free space on it"), "{}", house.log()),
    }
    fs::remove_file(disk.file("ballast")).unwrap();
    house.restart().await;

    person.ended(&house, gone, "exited").await;
    assert_eq!(person.visit(&house, running, "/").await.0, 200);
    let all = person.get(&house, "/sessions?limit=500").await["items"].as_array().unwrap().len();
    assert_eq!(all, 2 + written.len(), "what was accepted, and nothing else");
    for id in &written {
        person.stop(&house, *id).await;
    }
    person.end(&house, running).await;
    house.terminate().await;
    let copy = house.file("copy.db");
    fs::copy(disk.file("lyceum.db"), &copy).unwrap();
    let config = Config { url: format!("sqlite://{}", copy.display()), ..Config::default() };
    let db = Db::open(&config, &house.paths().private).await.unwrap();
    all_agree(&house, &db).await;
    assert_consistent(&db).await;
    db.close().await;
}
