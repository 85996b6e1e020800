//! Whatever can last: everything that somebody still sends or is still being sent ends within
//! seconds of their access. What can last is found by asking every route, and by what the
//! OpenAPI document says; a new kind without a row fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use lyceum::{
    model::{JobId, Role, SessionId, TokenId, UserId},
    web::all_routes,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, tcp::OwnedWriteHalf},
    task::JoinHandle,
    time::timeout,
};

use super::world::{DEADLINE, World};
use crate::{
    portal::{Caller, FORM},
    proxy::app::App,
    wait::eventually,
};

/// How long after its access something may live.
const WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

/// Answers that can last, by route, and what a request for one adds to its head. Files are
/// `files::live`'s; bundles and archives come the same way.
const LASTING: &[(&str, &str)] = &[
    ("/events", ""),
    ("/api/v1/sessions/{id}/events", ""),
    ("/api/v1/sessions/{id}/log", "Accept: text/event-stream\r\n"),
    ("/api/v1/jobs/{id}/events", ""),
    ("/api/v1/jobs/{id}/log", "Accept: text/event-stream\r\n"),
    ("/api/v1/runs/{id}/events", ""),
];
/// Answers that last as long as a file is long, or a table.
const FILES: &[&str] = &[
    "/api/v1/files/content",
    "/api/v1/audit",
    // A stream for administrators alone: `a_role_that_is_lost_cuts_what_it_opened`.
    "/api/v1/events",
    "/api/v1/models/{id}/bundle",
    "/api/v1/models/{id}/masks/{split}/{number}",
    "/api/v1/datasets/{id}/items/{row}/picture",
    "/api/v1/datasets/{id}/items/{row}/mask",
    "/api/v1/datasets/{id}/mean",
    "/api/v1/dataset-example",
    "/api/v1/models/{id}/tests/{test}/{drawing}",
    "/api/v1/models/previews/{id}/{drawing}",
];

/// A token of somebody's.
struct Token {
    id: TokenId,
    bearer: String,
}

async fn token(world: &World, login: &Caller) -> Token {
    let made: Value = login.post("/api/v1/tokens", &json!({ "name": "live" })).await.json().await.unwrap();
    let bearer = format!("Bearer {}", made["secret"].as_str().unwrap());
    assert_eq!(world.portal.anybody().with("authorization", &bearer).get("/api/v1/me").await.status(), 200);
    Token { id: made["id"].as_str().unwrap().parse().unwrap(), bearer }
}

/// A request under way: what is read of its answer, until the end.
struct Open {
    what: String,
    writing: OwnedWriteHalf,
    read: JoinHandle<Vec<u8>>,
}

impl Open {
    /// What came, when it has ended in time.
    async fn ends(self, began: Instant) -> String {
        let read = timeout(WITHIN.saturating_sub(began.elapsed()), self.read).await;
        String::from_utf8_lossy(&read.unwrap_or_else(|_| panic!("{} lives on", self.what)).unwrap()).into_owned()
    }
}

/// Sends a head.
async fn open(world: &World, method: &str, path: &str, more: &str, by: &str) -> Open {
    let address = world.portal.url.strip_prefix("http://").unwrap();
    let (mut reading, mut writing) = TcpStream::connect(address).await.unwrap().into_split();
    // An answer that is complete ends the connection too.
    let more = format!("Connection: close\r\n{more}");
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {by}\r\n{more}\r\n");
    writing.write_all(head.as_bytes()).await.unwrap();
    let read = tokio::spawn(async move {
        let mut read = Vec::new();
        let _ = reading.read_to_end(&mut read).await;
        read
    });
    Open { what: format!("{method} {path}"), writing, read }
}

const ENDLESS_BODY: &str = "Transfer-Encoding: chunked\r\n";

/// Somebody sends to every route that takes something, and never comes to an end.
#[tokio::test]
async fn what_is_still_being_sent_is_cut() {
    let (world, app) = (World::new().await, App::start());
    let alice = world.user("alice").await;
    let session = world.session(alice, &app).await;
    let login = world.portal.sign_in("alice").await;
    let by = token(&world, &login).await;
    let id = SessionId::new().to_string();
    let mut lasting = Vec::new();
    for route in all_routes() {
        let method = match route.method.as_str() {
            "GET" => continue,
            "ANY" => "POST",
            method => method,
        };
        let path = ["{id}", "{name}", "{group}", "{row}", "{test}", "{kind}", "{tag}", "{uuid}", "{drawing}"]
            .iter()
            .fold(route.path.clone(), |path, part| path.replace(part, &id))
            .replace("{*rest}", &format!("{session}/up"));
        let kind = if path.starts_with("/api/") { "application/json" } else { FORM };
        let more =
            format!("{ENDLESS_BODY}Content-Type: {kind}\r\nOrigin: {}\r\nUpload-Offset: 0\r\n", world.portal.url);
        let mut open = open(&world, method, &path, &more, &by.bearer).await;
        // Some are refused before they are read.
        let _ = open.writing.write_all(b"1\r\n{\r\n").await;
        lasting.push(open);
    }
    // Each is answered, or being read.
    let live = &world.portal.portal.live_requests;
    let waiting = eventually("everything has arrived", async || {
        let over = lasting.iter().filter(|open| open.read.is_finished()).count();
        let waiting = live.count(|_| true) + world.portal.portal.gateway.proxy.tunnels().count(|_| true);
        (over + waiting == lasting.len() && app.requests() == 1).then_some(waiting)
    })
    .await;
    assert!(waiting > 40, "few of {} read what they are sent: {waiting}", lasting.len());
    // One of the routes signs out everywhere.
    let login = world.portal.sign_in("alice").await;
    let began = Instant::now();
    assert_eq!(login.delete(&format!("/api/v1/tokens/{}", by.id)).await.status(), 204);
    for open in lasting {
        let what = open.what.clone();
        let answer = open.ends(began).await;
        assert!(!answer.starts_with("HTTP/1.1 500"), "{what}: {answer}");
    }
    assert_eq!(live.count(|_| true), 0);
    eventually("the app hears of the end", async || (app.closed() == app.connections()).then_some(())).await;
}

struct Things {
    session: SessionId,
    job: JobId,
    run: String,
}

async fn things(world: &World, owner: UserId, login: &Caller) -> Things {
    let made: Value = login.post("/api/v1/jobs", &json!({ "command": ["true"] })).await.json().await.unwrap();
    Things {
        session: world.queued("terminal", owner).await,
        job: made["id"].as_str().unwrap_or_else(|| panic!("{made}")).parse().unwrap(),
        run: crate::runs::external(&world.portal, owner, "thing").await.to_string(),
    }
}

impl Things {
    fn path(&self, template: &str) -> String {
        let id = match template.split('/').nth(3) {
            Some("jobs") => self.job.to_string(),
            Some("runs") => self.run.clone(),
            _ => self.session.to_string(),
        };
        template.replace("{id}", &id)
    }
}

/// Asks for everything that lasts, and has it begin.
async fn everything(world: &World, things: &Things, running: SessionId, by: &str) -> Vec<Open> {
    let mut lasting = Vec::new();
    for (template, more) in LASTING {
        lasting.push(open(world, "GET", &things.path(template), more, by).await);
    }
    for path in ["endless", "hold", "down?8000000000"] {
        lasting.push(open(world, "GET", &format!("/s/{running}/{path}"), "", by).await);
    }
    lasting
}

#[tokio::test]
async fn what_is_still_being_answered_is_cut() {
    let (world, app) = (World::new().await, App::start());
    world.portal.add_user("chief", Role::Admin).await;
    let chief = world.portal.sign_in("chief").await;
    // The OpenAPI document says which answers are no documents.
    let document: Value = chief.get("/api/v1/openapi.json").await.json().await.unwrap();
    let mut known: BTreeSet<&str> = LASTING.iter().map(|(path, _)| *path).collect();
    known.extend(FILES);
    for (path, methods) in document["paths"].as_object().unwrap() {
        let methods: BTreeMap<String, Value> = serde_json::from_value(methods.clone()).unwrap();
        let kinds = methods.values().flat_map(|method| method["responses"].as_object().unwrap().values());
        let kinds = kinds.filter_map(|response| response["content"].as_object()).flat_map(|content| content.keys());
        let lasts = kinds.into_iter().any(|kind| {
            !["application/json", "application/problem+json", "text/plain", "text/csv"].contains(&kind.as_str())
        });
        assert!(!lasts || known.contains(path.as_str()), "{path} can last: give it a row");
    }

    // Each way of losing access, and somebody whose access stands.
    let ways = ["revoked", "signed out", "disabled", "expired"];
    let bob = world.user("bob").await;
    let his = world.portal.sign_in("bob").await;
    let his_things = things(&world, bob, &his).await;
    let his_token = token(&world, &his).await;
    let his_live = everything(&world, &his_things, world.session(bob, &app).await, &his_token.bearer).await;
    for (number, way) in ways.into_iter().enumerate() {
        let name = format!("u{number}");
        let user = world.user(&name).await;
        let login = world.portal.sign_in(&name).await;
        let (things, running) = (things(&world, user, &login).await, world.session(user, &app).await);
        let by = token(&world, &login).await;
        let mut lasting = everything(&world, &things, running, &by.bearer).await;
        if way == "signed out" {
            lasting.clear();
            let mut events = login.get("/events").await;
            assert!(events.chunk().await.unwrap().is_some());
            assert_eq!(login.post("/api/v1/logout", &Value::Null).await.status(), 204);
            let rest = async { while matches!(events.chunk().await, Ok(Some(_))) {} };
            timeout(WITHIN, rest).await.expect("the stream of a login ends with it");
            world.portal.db().set_disabled(user, true, world.portal.by()).await.unwrap();
            continue;
        }
        let of_user = async || {
            let live = world.portal.portal.live_requests.count(|principal| principal.id() == user);
            let apps = world.portal.portal.gateway.proxy.tunnels().count(|tunnel| tunnel.holder.user == user);
            (live == LASTING.len() && apps == 3).then_some(())
        };
        eventually("everything has begun", of_user).await;
        let began = Instant::now();
        match way {
            "revoked" => assert_eq!(login.delete(&format!("/api/v1/tokens/{}", by.id)).await.status(), 204),
            "disabled" => {
                let path = format!("/api/v1/users/{name}");
                let answer = chief.request("PATCH", &path).json(&json!({ "disabled": true })).send().await.unwrap();
                assert_eq!(answer.status(), 200);
            }
            _ => world.portal.clock.advance(400 * 86_400),
        }
        for open in lasting {
            let what = open.what.clone();
            let answer = open.ends(began).await;
            // A stream of events has no whole: whoever listens asks again, and is refused.
            let is_events = answer.contains("text/event-stream");
            assert!(is_events || !answer.ends_with("\r\n0\r\n\r\n"), "{what} was {way} and looks whole: {answer}");
        }
        if way != "expired" {
            for open in &his_live {
                assert!(!open.read.is_finished(), "{} of somebody else's", open.what);
            }
        }
    }
    // The clock has ended his as well.
    let began = Instant::now();
    for open in his_live {
        open.ends(began).await;
    }
}

/// Who is no operator any more sees nothing more of other people's.
#[tokio::test]
async fn a_role_that_is_lost_cuts_what_it_opened() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    world.portal.add_user("chief", Role::Admin).await;
    world.portal.add_user("other", Role::Admin).await;
    let other = world.portal.sign_in("other").await;
    let hers = world.queued("terminal", alice).await;
    let watching = world.portal.sign_in("chief").await;
    let mut events = watching.get(&format!("/api/v1/sessions/{hers}/events")).await;
    assert_eq!(events.status(), 200);
    let site = watching.request("GET", "/api/v1/events").header("accept", "text/event-stream");
    let mut site = site.send().await.unwrap();
    assert_eq!((site.status().as_u16(), &site.headers()["content-type"]), (200, &"text/event-stream".parse().unwrap()));
    let demoted = other.request("PATCH", "/api/v1/users/chief").json(&json!({ "role": "user" })).send().await.unwrap();
    assert_eq!(demoted.status(), 200);
    let rest = async { while matches!(events.chunk().await, Ok(Some(_))) {} };
    timeout(WITHIN, rest).await.expect("cut with the role");
    let mut told = Vec::new();
    let rest = async {
        while let Ok(Some(chunk)) = site.chunk().await {
            told.extend(chunk);
        }
    };
    timeout(WITHIN, rest).await.expect("the events of all are cut too");
    let told = String::from_utf8(told).unwrap();
    assert!(!told.contains("sign_in"), "only what happened since: {told}");
    assert_eq!(watching.get("/api/v1/events").await.status(), 403);
    assert_eq!(watching.get("/api/v1/me").await.status(), 200, "the login itself stands");
    assert_eq!(watching.get(&format!("/api/v1/sessions/{hers}/events")).await.status(), 404);
}

/// A client that does not read fills every buffer on the way: its connection is closed.
#[tokio::test]
async fn a_client_that_does_not_read_is_cut() {
    let (world, app) = (World::new().await, App::start());
    let alice = world.user("alice").await;
    let session = world.session(alice, &app).await;
    let login = world.portal.sign_in("alice").await;
    let by = token(&world, &login).await;
    let address = world.portal.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let size = 1_000_000_000_usize;
    let head =
        format!("GET /s/{session}/down?{size} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {}\r\n\r\n", by.bearer);
    stream.write_all(head.as_bytes()).await.unwrap();
    let tunnels = world.portal.portal.gateway.proxy.tunnels();
    stream.read_exact(&mut [0; 64]).await.unwrap();
    assert_eq!(login.delete(&format!("/api/v1/tokens/{}", by.id)).await.status(), 204);
    let gone = eventually("it is live no longer", async || (tunnels.count(|_| true) == 0).then_some(()));
    timeout(WITHIN, gone).await.expect("cut in time");
    let mut left = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut left)).await.expect("the connection is closed");
    assert!(left.len() < size / 4, "{} bytes came all the same", left.len());
}
