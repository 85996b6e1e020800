//! What people hear of their sessions' ends, and what they can do about it, over the API and
//! on pages: a turn that has come, warnings that are told once, more time or why there is none.
//! The clock is the test's; what strikes in the end is seen on the real program (`idleness`).

use lyceum::{
    db::{admit::Verdict, sessions::Ending},
    model::{EndReason, Role, SessionId, UserId},
};
use serde_json::{Value, json};

use crate::{
    portal::{Caller, TestPortal},
    wait::eventually,
};

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;

/// A portal with an administrator, and Ada, who may have one terminal at a time.
struct Lab {
    portal: TestPortal,
    boss: Caller,
    ada: Caller,
    id_of_ada: UserId,
}

impl Lab {
    async fn new(limits: Value) -> Self {
        let portal = TestPortal::start().await;
        portal.add_user("boss", Role::Admin).await;
        let id_of_ada = portal.add_user("ada", Role::User).await;
        let (boss, ada) = (portal.sign_in("boss").await, portal.sign_in("ada").await);
        let answer = boss.request("PATCH", "/api/v1/quotas/users/ada").json(&limits).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        Self { portal, boss, ada, id_of_ada }
    }

    async fn start(&self, name: &str) -> SessionId {
        let asked = json!({ "app": "terminal", "name": name, "resources": { "cpus": 1, "memory_bytes": 64 << 20 } });
        let session: Value = self.ada.post("/api/v1/sessions", &asked).await.json().await.unwrap();
        session["id"].as_str().unwrap_or_else(|| panic!("{session}")).parse().unwrap()
    }

    /// As if its agent had answered: it runs since now, for eight hours.
    async fn runs(&self, id: SessionId) {
        let (db, now) = (self.portal.db(), self.portal.clock.now());
        assert!(db.begin_start(id, now).await.unwrap());
        assert!(db.mark_running(id, now, now.plus_seconds(8 * HOUR)).await.unwrap());
        self.portal.portal.sessions.reconcile().await;
    }

    /// One that waited for a minute, and runs since now.
    async fn waited(&self) -> SessionId {
        let (first, second) = (self.start("first").await, self.start("second").await);
        self.portal.clock.advance(MINUTE);
        let db = self.portal.db();
        let waits = db.find_session(second).await.unwrap().unwrap();
        assert!(!waits.is_admitted(), "one at a time");
        let (reason, at) = (EndReason::StoppedByOwner, self.portal.clock.now());
        let ending = Ending { reason, exit_code: None, signal: None, at, detail: String::new() };
        assert!(db.end_session(first, &ending).await.unwrap());
        let admission = &self.portal.portal.sessions.admission;
        let asked = admission.reconsider(self.id_of_ada, second, &waits.spec, waits.class(), None);
        let verdict = asked.await.unwrap().verdict;
        assert!(matches!(verdict, Verdict::Admit { .. }), "{verdict:?}");
        self.runs(second).await;
        second
    }

    async fn session(&self, id: SessionId) -> Value {
        self.ada.get(&format!("/api/v1/sessions/{id}")).await.json().await.unwrap()
    }

    async fn strip(&self) -> String {
        let answer = self.ada.visit("/notices").await;
        assert_eq!(answer.status(), 200);
        answer.text().await.unwrap()
    }

    /// The lines of the history that warn, once the loop has looked.
    async fn warnings(&self, id: SessionId, count: usize) -> Vec<String> {
        self.portal.portal.sessions.reconcile().await;
        eventually(&format!("{count} warnings"), async || {
            let events = self.portal.db().session_events(id, 0).await.unwrap();
            let lines: Vec<String> = events.into_iter().map(|event| event.message).collect();
            let lines: Vec<String> = lines.into_iter().filter(|line| line.contains(" left: ")).collect();
            (lines.len() == count).then_some(lines)
        })
        .await
    }
}

#[tokio::test]
async fn a_turn_is_told_until_somebody_comes() {
    let lab = Lab::new(json!({ "light": 1 })).await;
    let at_once = lab.start("at-once").await;
    lab.runs(at_once).await;
    assert_eq!(lab.strip().await, "", "whoever did not wait is told nothing");
    assert_eq!(lab.session(at_once).await["idle_stops_at"], Value::Null);
    lab.ada.delete(&format!("/api/v1/sessions/{at_once}")).await;
    let at = lab.portal.clock.now();
    let ending = Ending { reason: EndReason::StoppedByOwner, exit_code: None, signal: None, at, detail: String::new() };
    lab.portal.db().end_session(at_once, &ending).await.unwrap();

    let id = lab.waited().await;
    let strip = lab.strip().await;
    assert!(strip.contains(&format!("data-notice=\"{id} turn\"")) && strip.contains("‘second’ is ready"), "{strip}");
    assert!(strip.contains("It is stopped at") && strip.contains(">Open<svg"), "{strip}");
    let session = lab.session(id).await;
    let released = lab.portal.clock.now().plus_seconds(30 * MINUTE);
    assert_eq!(session["idle_stops_at"], json!(released), "{session}");
    let reason = &session["idle_reason"];
    assert_eq!((&reason["code"], &reason["limit"]), (&json!("idle.unopened"), &json!(1800)), "{reason}");
    let card = lab.ada.visit(&format!("/sessions/{id}/card")).await.text().await.unwrap();
    assert!(card.contains("has not been opened") && card.contains("/keep"), "{card}");

    // Five minutes before, and once, however often somebody looks.
    lab.portal.clock.advance(25 * MINUTE);
    let told = lab.warnings(id, 1).await;
    assert!(
        told[0].starts_with(
            "5 min left: it is ready but has not been opened, and will be stopped at 2027-01-15T08:31:00Z"
        ),
        "{told:?}"
    );
    lab.portal.clock.advance(1);
    assert_eq!(lab.warnings(id, 1).await, told);
    let strip = lab.strip().await;
    assert!(strip.contains("idle.unopened 300") && strip.contains("will be stopped unless opened"), "{strip}");

    // "Keep" puts it off.
    let kept = lab.ada.post(&format!("/api/v1/sessions/{id}/keep"), &json!({})).await;
    assert_eq!(kept.status(), 200);
    assert_eq!(lab.session(id).await["idle_stops_at"], json!(lab.portal.clock.now().plus_seconds(2 * HOUR)));
    assert!(lab.strip().await.contains("‘second’ is ready"));

    // Its owner comes.
    lab.portal.portal.sessions.touch(id, lab.portal.clock.now());
    assert_eq!(lab.strip().await, "");
    let opened = eventually("the visit is noted", async || {
        lab.portal.portal.sessions.reconcile().await;
        let session = lab.session(id).await;
        session["opened_at"].is_string().then_some(session)
    });
    assert_eq!(opened.await["idle_stops_at"], Value::Null);
    lab.portal.clock.advance(3 * HOUR);
    assert_eq!(lab.warnings(id, 1).await, told);
}

#[tokio::test]
async fn more_time_is_refused_in_the_same_words_everywhere() {
    let lab = Lab::new(json!({ "light": 1, "cpu_hours": 9 })).await;
    let id = lab.start("long").await;
    lab.runs(id).await;
    let hint = "This could use 8 h of core time; of your 9 core-hours for 30 days (override) 1 h are left, counting \
                running workloads to their end. Ask for less time.";
    let extend = format!("/api/v1/sessions/{id}/extend");
    let answer = lab.ada.post(&extend, &json!({})).await;
    assert_eq!(answer.status(), 409);
    let problem: Value = answer.json().await.unwrap();
    let reason = &problem["reasons"][0];
    assert_eq!((&reason["code"], &reason["scope"]), (&json!("quota.cpu_hours.user"), &json!("override")), "{problem}");
    assert_eq!((&problem["detail"], &reason["hint"]), (&json!(hint), &json!(hint)));
    let page = lab.ada.post_form(&format!("/sessions/{id}/extend"), &[("csrf_token", &lab.ada.csrf_token)]).await;
    assert!(page.status() == 409 && page.text().await.unwrap().contains(hint));
    for (seconds, status) in [(0, 422), (-1, 422), (i64::MAX, 422), (9 * HOUR, 409)] {
        let answer = lab.ada.post(&extend, &json!({ "seconds": seconds })).await;
        assert_eq!(answer.status(), status, "{seconds}");
    }
    // An administrator may extend it, by what its owner may; others, operators too, may not.
    let answer = lab.boss.post(&extend, &json!({})).await;
    assert_eq!(answer.status(), 409);
    assert_eq!(answer.json::<Value>().await.unwrap()["detail"], json!(hint));
    for (name, role) in [("watch", Role::Operator), ("bob", Role::User)] {
        lab.portal.add_user(name, role).await;
        assert_eq!(lab.portal.sign_in(name).await.post(&extend, &json!({})).await.status(), 404, "{name}");
    }

    // Near its end the card and the strip say it too, in place of the button.
    let card = async || lab.ada.visit(&format!("/sessions/{id}/card")).await.text().await.unwrap();
    assert!(card().await.contains("/extend"));
    lab.portal.clock.advance(8 * HOUR - 20 * MINUTE);
    assert_eq!(lab.warnings(id, 1).await.len(), 1);
    for drawn in [card().await, lab.strip().await] {
        assert!(drawn.contains(hint) && !drawn.contains("/extend"), "{drawn}");
    }

    // Less is granted; the warning is over, and comes again before the new end.
    let drawer = lab.boss.visit("/admin/quotas/users/ada").await.text().await.unwrap();
    assert!(!drawer.contains("/extend"), "no button for what would be refused: {drawer}");
    let answer = lab.boss.post(&extend, &json!({ "seconds": HOUR })).await;
    assert_eq!(answer.status(), 200);
    let last = lab.portal.db().session_events(id, 0).await.unwrap().pop().unwrap();
    assert_eq!(last.message, "Extended by 1 h, by an administrator");
    let rows = lab.portal.db().audit_after(0, 100).await.unwrap();
    let told = rows.iter().find(|row| row.action == "session.extend").unwrap();
    assert_eq!((told.actor.as_str(), told.subject.as_str()), ("boss", id.to_string().as_str()));
    eventually("what was refused is forgotten", async || {
        lab.portal.portal.sessions.reconcile().await;
        (lab.strip().await.is_empty() && card().await.contains("/extend")).then_some(())
    })
    .await;
    let drawer = lab.boss.visit("/admin/quotas/users/ada").await.text().await.unwrap();
    assert!(drawer.contains(&format!("/sessions/{id}/extend")), "{drawer}");
    lab.portal.clock.advance(HOUR);
    let told = lab.warnings(id, 2).await;
    assert!(told.iter().all(|line| line.starts_with("30 min left: it reaches its time limit at ")), "{told:?}");
}

#[tokio::test]
async fn an_end_for_maintenance_is_told_in_time_and_no_more_time_is_given() {
    let lab = Lab::new(json!({ "light": 1 })).await;
    let id = lab.start("long").await;
    lab.runs(id).await;
    let drain_at = lab.portal.clock.now().plus_seconds(2 * HOUR);
    let order = json!({ "mode": "drain", "drain_at": drain_at, "message": "New disks." });
    assert_eq!(lab.boss.request("PATCH", "/api/v1/maintenance").json(&order).send().await.unwrap().status(), 200);
    lab.portal.portal.sessions.reconcile().await;
    assert_eq!((lab.warnings(id, 0).await.len(), lab.strip().await), (0, String::new()));
    let card = async || lab.ada.visit(&format!("/sessions/{id}/card")).await.text().await.unwrap();
    let drawn = card().await;
    assert!(drawn.contains("Ends for maintenance") && !drawn.contains("/extend"), "{drawn}");
    let answer = lab.ada.post(&format!("/api/v1/sessions/{id}/extend"), &json!({})).await;
    assert_eq!(answer.status(), 409);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["reasons"][0]["code"], "maintenance");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("Maintenance ends all sessions at ") && detail.ends_with("New disks."), "{detail}");

    lab.portal.clock.advance(2 * HOUR - 20 * MINUTE);
    let told = lab.warnings(id, 1).await;
    assert!(told[0].starts_with("30 min left: maintenance ends it at "), "{told:?}");
    let strip = lab.strip().await;
    assert!(strip.contains("ends for maintenance at") && strip.contains("Save your work"), "{strip}");

    // Called off, it has its own time again.
    let off = lab.boss.request("PATCH", "/api/v1/maintenance").json(&json!({ "mode": "off" })).send().await.unwrap();
    assert_eq!(off.status(), 200);
    eventually("the warning is taken back", async || {
        lab.portal.portal.sessions.reconcile().await;
        (lab.strip().await.is_empty() && card().await.contains("/extend")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_stream_says_when_there_is_something_to_know() {
    let lab = Lab::new(json!({ "light": 1 })).await;
    let (mut mine, mut of_boss) = (lab.ada.get("/events").await, lab.boss.get("/events").await);
    let id = lab.waited().await;
    let told = format!(r#"{{"id":"{id}","notices":true,"type":"session"}}"#);
    let hear = async |stream: &mut reqwest::Response, words: &str| {
        let mut heard = String::new();
        while !heard.contains(words) {
            heard += &String::from_utf8_lossy(&stream.chunk().await.unwrap().expect("the stream goes on"));
        }
        heard
    };
    hear(&mut mine, &told).await;
    // Operators hear of everybody's sessions, but what is to be told is the owner's.
    let heard = hear(&mut of_boss, &format!(r#"{{"id":"{id}","notices":false,"type":"session"}}"#)).await;
    assert!(!heard.contains(&told), "{heard}");
    let strip = lab.boss.visit("/notices").await.text().await.unwrap();
    assert_eq!(strip, "");
}

#[tokio::test]
async fn idle_rules_of_groups_and_people_bind_with_their_source() {
    let lab = Lab::new(json!({})).await;
    let quota = async || -> Value { lab.ada.get("/api/v1/me").await.json::<Value>().await.unwrap()["quota"].clone() };
    let fresh = quota().await;
    assert_eq!(fresh["idle_timeout_seconds"], json!({ "limit": 7200, "source": "default" }), "{fresh}");
    assert_eq!(fresh["gpu_idle_timeout_seconds"], json!({ "limit": -1, "source": "default" }), "off");
    let db = lab.portal.db();
    let name = lyceum::model::GroupName::parse("vision").unwrap();
    let group = db.add_group(&name, None, lab.portal.by()).await.unwrap();
    db.set_member(group, lab.id_of_ada, true, lab.portal.by()).await.unwrap();
    let change = async |path: &str, body: Value| {
        let answer = lab.boss.request("PATCH", &format!("/api/v1/quotas/{path}")).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path} {body}");
    };
    let each = json!({ "idle_timeout_seconds": 600, "gpu_idle_timeout_seconds": 1200 });
    change("groups/vision", json!({ "each": each })).await;
    change("users/ada", json!({ "gpu_idle_timeout_seconds": 900 })).await;
    let now = quota().await;
    assert_eq!(now["idle_timeout_seconds"], json!({ "limit": 600, "source": "group vision" }));
    assert_eq!(now["gpu_idle_timeout_seconds"], json!({ "limit": 900, "source": "override" }));
}
