//! Announcements, maintenance and the health report of a running portal: who sees what, what
//! is refused and why, and what waits meanwhile.

use lyceum::{
    db::sessions::Ending,
    model::{EndReason, Role, SessionId},
};
use serde_json::{Value, json};

use crate::portal::{Caller, START, TestPortal};

/// A portal with an administrator and two people.
async fn house() -> (TestPortal, Caller, Caller, Caller) {
    let portal = TestPortal::start().await;
    portal.add_user("chief", Role::Admin).await;
    for name in ["alice", "bob"] {
        portal.add_user(name, Role::User).await;
    }
    let (chief, alice, bob) =
        (portal.sign_in("chief").await, portal.sign_in("alice").await, portal.sign_in("bob").await);
    (portal, chief, alice, bob)
}

async fn patch(caller: &Caller, path: &str, body: &Value) -> (u16, Value) {
    let answer = caller.request("PATCH", path).json(body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn announce(caller: &Caller, body: Value) -> Value {
    let answer = caller.post("/api/v1/announcements", &body).await;
    assert_eq!(answer.status(), 201, "{body}");
    answer.json().await.unwrap()
}

async fn texts(caller: &Caller, query: &str) -> Vec<String> {
    let list: Value = caller.get(&format!("/api/v1/announcements{query}")).await.json().await.unwrap();
    list["items"].as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap().to_owned()).collect()
}

async fn page(caller: &Caller, path: &str) -> String {
    crate::pages::markup::one_line(&caller.visit(path).await.text().await.unwrap())
}

fn at(seconds: i64) -> String {
    START.plus_seconds(seconds).to_string()
}

#[tokio::test]
async fn everybody_reads_what_is_active_and_administrators_all() {
    let (portal, chief, alice, _) = house().await;
    announce(&chief, json!({ "text": "now", "on_login": true })).await;
    announce(&chief, json!({ "text": "later", "from": at(600), "to": at(1200), "level": "critical" })).await;
    announce(&chief, json!({ "text": "inside", "to": at(300), "level": "warning" })).await;
    assert_eq!(texts(&chief, "").await, ["inside", "later", "now"]);
    assert_eq!(texts(&chief, "?phase=coming").await, ["later"]);
    assert_eq!(texts(&alice, "").await, ["inside", "now"]);
    assert_eq!(texts(&alice, "?phase=active").await, ["inside", "now"]);
    assert_eq!(alice.get("/api/v1/announcements?phase=past").await.status(), 403);
    assert_eq!(chief.get("/api/v1/announcements?phase=x").await.status(), 422);
    assert_eq!(chief.get("/api/v1/announcements?limit=0").await.status(), 422);

    let strip = page(&alice, "/announcements/strip").await;
    let order = [strip.find("inside"), strip.find("now")];
    assert!(order[0] < order[1] && order[0].is_some() && !strip.contains("later"), "what matters more first: {strip}");
    assert!(strip.contains("<b>Warning:</b>"), "a word, not the colour alone");
    let login = page(&portal.anybody(), "/login").await;
    assert!(login.contains("now") && !login.contains("inside"), "only what is meant for it");
    for path in ["/", "/settings", "/sessions/new", "/admin/users", "/nothing/here"] {
        assert!(page(&chief, path).await.contains("inside"), "{path}");
    }
    // Time alone brings it and takes it away.
    portal.clock.advance(600);
    let strip = page(&alice, "/announcements/strip").await;
    assert!(strip.contains("later") && strip.contains("role=\"alert\"") && !strip.contains("inside"), "{strip}");
    portal.clock.advance(600);
    assert!(!page(&alice, "/announcements/strip").await.contains("later"));
    assert_eq!(texts(&chief, "?phase=past").await, ["inside", "later"]);
}

#[tokio::test]
async fn what_is_put_aside_stays_aside_for_one_person_until_it_says_something_else() {
    let (portal, chief, alice, bob) = house().await;
    let news = announce(&chief, json!({ "text": "the news" })).await;
    let grave = announce(&chief, json!({ "text": "the grave", "level": "critical" })).await;
    let dismiss = async |caller: &Caller, id: &Value| {
        caller
            .request("POST", &format!("/api/v1/announcements/{}/dismiss", id.as_str().unwrap()))
            .send()
            .await
            .unwrap()
            .status()
    };
    assert_eq!(dismiss(&alice, &news["id"]).await, 204);
    assert_eq!(dismiss(&alice, &news["id"]).await, 204, "again is fine");
    assert_eq!(dismiss(&alice, &grave["id"]).await, 409);
    assert_eq!(dismiss(&alice, &json!(SessionId::new().to_string())).await, 404);
    assert!(!page(&alice, "/").await.contains("the news") && page(&alice, "/").await.contains("the grave"));
    assert!(page(&bob, "/").await.contains("the news"), "bob has not read it");
    // By the form that needs no script.
    let id = news["id"].as_str().unwrap();
    let answer = bob.post_form(&format!("/announcements/{id}/dismiss"), &[("csrf_token", &bob.csrf_token)]).await;
    assert_eq!(answer.status(), 303);
    assert!(!page(&bob, "/").await.contains("the news"));
    // As another process of the same portal would know it.
    let other = lyceum::announcements::Announcements::new(portal.db().clone(), portal.clock.clone());
    other.refresh().await.unwrap();
    let alice_id = portal.db().find_user_by_name("alice").await.unwrap().unwrap().user.id;
    assert_eq!(other.seen_by(Some(alice_id)).len(), 1, "it lasts");

    let path = format!("/api/v1/announcements/{id}");
    assert_eq!(patch(&chief, &path, &json!({ "to": at(9000) })).await.0, 200);
    assert!(!page(&alice, "/").await.contains("the news"), "the same words for longer");
    assert_eq!(patch(&chief, &path, &json!({ "text": "the news, corrected" })).await.0, 200);
    assert!(page(&alice, "/").await.contains("the news, corrected"));
}

#[tokio::test]
async fn announcements_are_changed_as_they_were_seen_and_written_down() {
    let (portal, chief, alice, _) = house().await;
    let keyed = chief.clone().with("idempotency-key", "one");
    let body = json!({ "text": "once" });
    let made = announce(&keyed, body.clone()).await;
    assert_eq!(announce(&keyed, body).await["id"], made["id"]);
    assert_eq!(keyed.post("/api/v1/announcements", &json!({ "text": "twice" })).await.status(), 409);
    let path = format!("/api/v1/announcements/{}", made["id"].as_str().unwrap());
    let version = chief.get(&path).await.headers()["etag"].to_str().unwrap().to_owned();
    let guarded = chief.clone().with("if-match", &version);
    assert_eq!(patch(&guarded, &path, &json!({ "level": "warning" })).await.0, 200);
    assert_eq!(patch(&guarded, &path, &json!({ "level": "info" })).await.0, 412);
    let version = async || chief.get(&path).await.headers()["etag"].to_str().unwrap().to_owned();
    let before = version().await;
    assert_eq!(patch(&chief, &path, &json!({ "to": at(600) })).await.1["to"], json!(at(600)));
    let changed = version().await;
    assert_ne!(changed, before);
    portal.clock.advance(600);
    assert_eq!(version().await, changed, "a version is of what somebody set, not of the time");
    assert_eq!(patch(&chief, &path, &json!({ "to": null })).await.1["to"], json!(null));
    for (caller, method) in [(&alice, "PATCH"), (&alice, "DELETE")] {
        let request = caller.request(method, &path).json(&json!({}));
        assert_eq!(request.send().await.unwrap().status(), 403);
    }
    assert_eq!(chief.delete(&path).await.status(), 204);
    assert_eq!(chief.delete(&path).await.status(), 404);
    let rows = portal.db().list_audit(20).await.unwrap();
    let told: Vec<&str> =
        rows.iter().rev().map(|row| row.action.as_str()).filter(|a| a.starts_with("announcement")).collect();
    let change = "announcement.change";
    assert_eq!(told, ["announcement.make", change, change, change, "announcement.remove"]);
    let made = rows.iter().find(|row| row.action == "announcement.make").unwrap();
    assert_eq!((made.actor.as_str(), made.detail.as_str()), ("chief", "info from 2027-01-15T08:00:00Z: once"));
    assert!(!made.address.is_empty() && !made.request_id.is_empty());
}

/// What is wrong is named, and nothing is half-written.
#[tokio::test]
async fn bad_announcements_and_bad_maintenance_are_refused_by_field() {
    let (portal, chief, _, _) = house().await;
    let faults = |body: &Value| -> Vec<String> {
        let errors = body["errors"].as_array().cloned().unwrap_or_default();
        errors
            .iter()
            .map(|one| format!("{} {}", one["field"].as_str().unwrap(), one["code"].as_str().unwrap()))
            .collect()
    };
    let long = "x".repeat(501);
    for (body, expected) in [
        (json!({}), vec!["text missing_field"]),
        (json!({ "text": "  " }), vec!["text missing_field"]),
        (json!({ "text": long }), vec!["text too_long"]),
        (json!({ "text": "a\u{202e}b" }), vec!["text characters"]),
        (json!({ "text": "a\nb" }), vec!["text characters"]),
        (json!({ "text": "a", "from": at(60), "to": at(60) }), vec!["to before_from"]),
        (json!({ "text": "a", "from": at(-60), "to": at(-1) }), vec!["to in_the_past"]),
        (json!({ "text": "\u{0}", "to": at(-1) }), vec!["text characters", "to before_from"]),
        (json!({ "text": "a", "to": "tomorrow" }), vec!["to invalid_value"]),
        (json!({ "text": "a", "level": "fatal" }), vec!["level invalid_value"]),
        (json!({ "text": "a", "on_login": "yes" }), vec!["on_login invalid_type"]),
        (json!({ "text": "a", "colour": "red" }), vec!["colour unknown_field"]),
    ] {
        let answer = chief.post("/api/v1/announcements", &body).await;
        assert_eq!(answer.status(), 422, "{body}");
        assert_eq!(faults(&answer.json().await.unwrap()), expected, "{body}");
    }
    assert_eq!(texts(&chief, "").await, Vec::<String>::new());
    for (body, expected) in [
        (json!({ "mode": "no_new_sessions", "to": at(-1) }), vec!["to before_from"]),
        (json!({ "mode": "no_new_sessions", "from": at(-60), "to": at(-1) }), vec!["to in_the_past"]),
        (json!({ "mode": "drain" }), vec!["drain_at missing_field"]),
        (json!({ "mode": "drain", "drain_at": at(-600), "from": at(-6000) }), vec!["drain_at in_the_past"]),
        (json!({ "mode": "drain", "drain_at": at(600), "to": at(60) }), vec!["drain_at after_to"]),
        (json!({ "mode": "no_new_sessions", "drain_at": at(600) }), vec!["drain_at needs_drain"]),
        (json!({ "mode": "no_new_sessions", "message": long }), vec!["message too_long"]),
        (json!({ "mode": "no_new_sessions", "message": "\u{2066}" }), vec!["message characters"]),
        (json!({ "mode": "on" }), vec!["mode invalid_value"]),
        (json!({ "message": "soon" }), vec!["mode missing_field"]),
        (json!({ "mode": "off", "until": 1 }), vec!["until unknown_field"]),
    ] {
        let (status, answer) = patch(&chief, "/api/v1/maintenance", &body).await;
        assert_eq!((status, faults(&answer)), (422, expected.iter().map(ToString::to_string).collect()), "{body}");
    }
    assert_eq!(portal.db().maintenance().await.unwrap(), None);
    for (path, fields, said) in [
        ("/admin/announcements", vec![("text", ""), ("level", "info")], "Enter a text."),
        ("/admin/announcements", vec![("text", "a"), ("to", "2030-13-01T00:00")], "Enter a date and time in UTC"),
        ("/admin/announcements", vec![("text", "a"), ("to", "2020-01-01T00:00")], "The end is before the start"),
        ("/admin/maintenance", vec![("mode", "drain")], "Enter the time when running sessions are ended."),
        ("/admin/maintenance", vec![("mode", "no_new_sessions"), ("to", "x")], "Enter a date and time in UTC"),
    ] {
        let mut fields = fields;
        fields.push(("csrf_token", &chief.csrf_token));
        let answer = chief.clone().with("accept", "text/html").post_form(path, &fields).await;
        assert_eq!(answer.status(), 422, "{path} {fields:?}");
        let text = answer.text().await.unwrap();
        assert!(text.contains(said), "{path} {fields:?}: {text}");
    }
    let rows = portal.db().list_audit(50).await.unwrap();
    assert!(rows.iter().all(|row| !row.action.starts_with("announcement") && !row.action.starts_with("maintenance")));
}

async fn start(caller: &Caller, name: &str, cpus: i64) -> reqwest::Response {
    caller.post("/api/v1/sessions", &json!({ "app": "terminal", "name": name, "resources": { "cpus": cpus } })).await
}

async fn session(caller: &Caller, id: &str) -> Value {
    caller.get(&format!("/api/v1/sessions/{id}")).await.json().await.unwrap()
}

#[tokio::test]
async fn maintenance_refuses_starts_and_keeps_waiters_waiting() {
    let (portal, chief, alice, bob) = house().await;
    let first: Value = start(&alice, "first", 4).await.json().await.unwrap();
    let waiter: Value = start(&bob, "second", 4).await.json().await.unwrap();
    let waiter = waiter["id"].as_str().unwrap();
    assert_eq!(session(&bob, waiter).await["reasons"][0]["code"], "capacity.cpus");

    let order = json!({ "mode": "no_new_sessions", "to": at(3600), "message": "New disks." });
    let (status, set) = patch(&chief, "/api/v1/maintenance", &order).await;
    assert_eq!((status, &set["phase"], &set["administrators_may_start"]), (200, &json!("active"), &json!(true)));
    // Whatever tab or program asks: in the form it is a sentence, and what was typed stays.
    let answer = start(&alice, "third", 1).await;
    assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].to_str().unwrap()), (503, "3600"));
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["type"], "/problems/maintenance");
    let sentence = "No session starts during maintenance, until Fri 15 Jan, 09:00 UTC. New disks.";
    assert_eq!(problem["detail"], sentence);
    let form = [("app", "terminal"), ("profile", "custom"), ("cpus", "1"), ("memory", "1G"), ("name", "typed here")];
    let form: Vec<_> = form.into_iter().chain([("csrf_token", alice.csrf_token.as_str())]).collect();
    let answer = alice.clone().with("accept", "text/html").post_form("/sessions", &form).await;
    assert_eq!(answer.status(), 503);
    let text = answer.text().await.unwrap();
    assert!(text.contains(sentence) && text.contains("typed here"), "{text}");
    let dry = json!({ "app": "terminal", "resources": { "cpus": 1 } });
    let dry: Value = alice.post("/api/v1/admission", &dry).await.json().await.unwrap();
    assert_eq!((&dry["outcome"], &dry["reasons"][0]["hint"]), (&json!("refuse"), &json!(sentence)));
    let wrong = alice.post("/api/v1/sessions", &json!({ "app": "nothing" })).await;
    assert_eq!(wrong.status(), 422, "what is wrong is said all the same");
    for caller in [&alice, &portal.anybody()] {
        assert!(
            page(caller, "/login").await.contains("Maintenance") || page(caller, "/").await.contains("Maintenance")
        );
    }

    // Room comes, and nobody is let in.
    let ending = Ending {
        reason: EndReason::Exited,
        exit_code: Some(0),
        signal: None,
        at: portal.clock.now(),
        detail: String::new(),
    };
    assert!(portal.db().end_session(first["id"].as_str().unwrap().parse().unwrap(), &ending).await.unwrap());
    portal.portal.sessions.reconcile().await;
    let waits = session(&bob, waiter).await;
    assert_eq!((&waits["state"], &waits["reasons"][0]["code"]), (&json!("queued"), &json!("maintenance")));
    assert_eq!(waits["reasons"][0]["hint"], sentence);
    // Administrators try things out.
    assert_eq!(start(&chief, "trial", 1).await.status(), 201);
    let strict = json!({ "administrators_may_start": false });
    assert_eq!(patch(&chief, "/api/v1/maintenance", &strict).await.0, 200);
    assert_eq!(start(&chief, "trial", 1).await.status(), 503);

    assert_eq!(patch(&chief, "/api/v1/maintenance", &json!({ "mode": "off" })).await.1["mode"], "off");
    let trial: Value = chief.get("/api/v1/sessions").await.json().await.unwrap();
    let trial = trial["items"][0]["id"].as_str().unwrap().parse().unwrap();
    portal.db().end_session(trial, &ending).await.unwrap();
    portal.portal.sessions.reconcile().await;
    let admitted = session(&bob, waiter).await;
    assert_eq!(admitted["reasons"], json!([]), "it was the first in the order: {admitted}");
    let rows = portal.db().list_audit(20).await.unwrap();
    let told: Vec<&str> =
        rows.iter().rev().map(|row| row.action.as_str()).filter(|a| a.starts_with("maintenance")).collect();
    assert_eq!(told, ["maintenance.on", "maintenance.change", "maintenance.off"]);
}

/// Orders that come from another process, and those that begin and end by themselves.
#[tokio::test]
async fn maintenance_begins_and_ends_by_the_clock_whoever_ordered_it() {
    let (portal, _, alice, _) = house().await;
    let other = lyceum::announcements::Announcements::new(portal.db().clone(), portal.clock.clone());
    let draft = lyceum::model::maintenance::Draft {
        from: Some(START.plus_seconds(60)),
        to: Some(START.plus_seconds(120)),
        mode: lyceum::model::maintenance::Mode::NoNewSessions,
        ..lyceum::model::maintenance::Draft::of(None)
    };
    other.set_maintenance("unix:root", None, draft).await.unwrap();
    let mut news = portal.portal.announcements.subscribe();
    portal.portal.announcements.refresh().await.unwrap();
    assert!(news.has_changed().unwrap());
    news.mark_unchanged();
    assert!(page(&alice, "/").await.contains("no sessions start during this time"), "it is told before");
    assert_eq!(start(&alice, "before", 1).await.status(), 201);
    portal.clock.advance(60);
    portal.portal.announcements.refresh().await.unwrap();
    assert!(news.has_changed().unwrap(), "open pages hear that it begins");
    assert_eq!(start(&alice, "meanwhile", 1).await.status(), 503);
    portal.clock.advance(60);
    assert_eq!(start(&alice, "after", 1).await.status(), 201);
    let now: Value = alice.get("/api/v1/maintenance").await.json().await.unwrap();
    assert_eq!((&now["mode"], &now["phase"]), (&json!("off"), &json!(null)), "what is over is off");
    assert!(!page(&alice, "/").await.contains("<b>Maintenance</b>"));
}

/// A change of mind reaches those who follow the stream, and a page's strip.
#[tokio::test]
async fn open_pages_hear_of_it_at_once() {
    use futures_util::StreamExt;
    let (_portal, chief, alice, _) = house().await;
    let mut events = alice.get("/events").await.bytes_stream();
    let mut heard = String::new();
    let wait_for =
        async |events: &mut (dyn futures_util::Stream<Item = _> + Unpin + Send), heard: &mut String, what: &str| {
            while !heard.contains(what) {
                let chunk: Result<bytes::Bytes, reqwest::Error> = events.next().await.expect("the stream goes on");
                heard.push_str(str::from_utf8(&chunk.unwrap()).unwrap());
            }
            heard.clear();
        };
    wait_for(&mut events, &mut heard, "\"open\"").await;
    announce(&chief, json!({ "text": "now" })).await;
    wait_for(&mut events, &mut heard, "{\"type\":\"announcements\"}").await;
    patch(&chief, "/api/v1/maintenance", &json!({ "mode": "no_new_sessions" })).await;
    wait_for(&mut events, &mut heard, "{\"type\":\"announcements\"}").await;
}

#[tokio::test]
async fn the_health_report_says_what_is_so_and_no_secret() {
    let (portal, chief, alice, _) = house().await;
    let report: Value = chief.get("/api/v1/health").await.json().await.unwrap();
    let finding = |name: &str| {
        let mut all = report["findings"].as_array().unwrap().iter().chain(report["loops"].as_array().unwrap());
        all.find(|one| one["name"] == name).cloned().unwrap_or_else(|| panic!("{name} in {report:#}"))
    };
    assert_eq!(finding("database")["level"], "ok");
    assert!(finding("database")["what"].as_str().unwrap().starts_with("SQLite, "));
    assert_eq!(finding("backup")["level"], "note");
    // Nobody has asked the helper yet, and no environment is to be there.
    assert_eq!((&finding("scheduler")["level"], &report["level"]), (&json!("ok"), &json!("note")));
    assert!(finding("backup")["fix"].as_str().unwrap().starts_with("lyceum admin backup"));
    assert!(finding("free space")["what"].as_str().unwrap().contains("free at"));
    assert_eq!(finding("access")["level"], "ok", "its loop runs here");
    assert!(finding("sessions")["last_at"].is_string());
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    portal.clock.advance(120);
    portal.portal.sessions.reconcile().await;
    let late: Value = chief.get("/api/v1/health").await.json().await.unwrap();
    assert_eq!(late["uptime_seconds"], 120);

    assert_eq!(alice.get("/api/v1/health").await.status(), 403);
    let text = page(&chief, "/admin/health").await;
    for word in ["Note", "OK", "Parts", "Background tasks", "scheduler", "To fix it:"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let key = std::fs::read_dir(portal.directory.path()).unwrap();
    for file in
        key.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok()).filter(|file| file.len() > 8)
    {
        assert!(!text.contains(file.trim()), "no file of the private directory is told");
    }
}

/// Those for groups are seen by their members alone, and by nobody before they have any.
#[tokio::test]
async fn some_are_for_groups() {
    let (portal, chief, alice, bob) = house().await;
    let members = "/api/v1/groups/course/members";
    assert_eq!(chief.post("/api/v1/groups", &json!({ "name": "course" })).await.status(), 201);
    let made = announce(&chief, json!({ "text": "the exam", "groups": [" course ", "elsewhere", "course"] })).await;
    assert_eq!(made["groups"], json!(["course", "elsewhere"]));
    let own = format!("/api/v1/announcements/{}", made["id"].as_str().unwrap());
    let dismiss = format!("{own}/dismiss");
    for caller in [&alice, &bob] {
        assert_eq!(texts(caller, "").await, Vec::<String>::new());
        assert_eq!(caller.get(&own).await.status(), 404);
        assert_eq!(caller.post(&dismiss, &json!({})).await.status(), 404);
    }
    assert!(!page(&portal.anybody(), "/login").await.contains("the exam"));

    let joined = chief.request("PUT", &format!("{members}/alice")).send().await.unwrap();
    assert!(joined.status().is_success(), "{}", joined.status());
    // As the loop does every second.
    portal.portal.announcements.refresh().await.unwrap();
    assert!(page(&alice, "/announcements/strip").await.contains("the exam"));
    assert_eq!((texts(&alice, "").await.len(), texts(&bob, "").await.len()), (1, 0));
    assert!(!page(&bob, "/").await.contains("the exam"));
    assert_eq!(alice.get(&own).await.status(), 200);
    let list = page(&chief, "/admin/announcements").await;
    assert!(list.contains("<bdi>elsewhere</bdi> <span class=\"muted\">(no such group)</span>"), "{list}");
    assert_eq!(alice.post(&dismiss, &json!({})).await.status(), 204);
    assert!(!page(&alice, "/announcements/strip").await.contains("the exam"));

    // For everybody again, and never for some of those who are not signed in.
    let (status, said) = patch(&chief, &own, &json!({ "on_login": true })).await;
    assert_eq!((status, &said["errors"][0]["code"]), (422, &json!("not_on_login")), "{said}");
    let (status, said) = patch(&chief, &own, &json!({ "groups": [], "on_login": true })).await;
    assert_eq!((status, &said["groups"]), (200, &json!([])), "{said}");
    assert_eq!(texts(&bob, "").await, ["the exam"]);
}
