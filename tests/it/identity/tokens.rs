//! API tokens: shown once, kept as a hash, bound by scopes and dates, gone at once.

use std::fs;

use lyceum::model::Role;
use serde_json::{Value, json};

use crate::portal::{TestPortal, sha256};

const DAY: i64 = 86_400;

#[tokio::test]
async fn a_token_is_shown_once_and_kept_as_a_hash() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let answer = alice.post("/api/v1/tokens", &json!({ "name": "nightly" })).await;
    assert_eq!(answer.status(), 201);
    let location = answer.headers()["location"].to_str().unwrap().to_owned();
    let made: Value = answer.json().await.unwrap();
    let secret = made["secret"].as_str().unwrap();
    assert_eq!(location, format!("/api/v1/tokens/{}", made["id"].as_str().unwrap()));
    assert!(secret.starts_with("lyc_") && secret.len() == 47, "{secret}");
    assert_eq!(made["scopes"], json!([]));
    let expires: lyceum::model::Timestamp = serde_json::from_value(made["expires_at"].clone()).unwrap();
    assert_eq!(expires.seconds_since(portal.clock.now()), 30 * DAY);

    let list = alice.get("/api/v1/tokens").await.text().await.unwrap();
    assert!(list.contains("nightly") && !list.contains(secret));
    assert!(!alice.visit("/settings").await.text().await.unwrap().contains(secret));
    assert!(portal.db().find_token(&sha256(secret)).await.unwrap().is_some());
    for file in ["lyceum.db", "lyceum.db-wal"] {
        let bytes = fs::read(portal.directory.path().join(file)).unwrap();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "the secret is on disk");
    }

    for authorization in [format!("Bearer {secret}"), format!("bearer {secret}"), format!("token {secret}")] {
        let me = portal.anybody().with("authorization", &authorization).get("/api/v1/me").await;
        assert_eq!(me.status(), 200, "{authorization}");
        assert_eq!(me.json::<Value>().await.unwrap()["name"], "alice");
    }
    assert_eq!(portal.anybody().get(&format!("/api/v1/me?token={secret}")).await.status(), 401, "never in a URL");
    let as_cookie = portal.anybody().with("cookie", &format!("lyceum_login={secret}"));
    assert_eq!(as_cookie.get("/api/v1/me").await.status(), 401, "a token is no cookie");

    assert_eq!(alice.delete(&location).await.status(), 204);
    let answer = portal.bearer(secret).get("/api/v1/me").await;
    assert_eq!(answer.status(), 401, "revoked at once");
    assert!(answer.headers().contains_key("www-authenticate"));
    assert_eq!(alice.delete(&location).await.status(), 404);
}

#[tokio::test]
async fn tokens_of_the_settings_page() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let fields = [("name", "ci"), ("expires", "604800"), ("scopes", "read"), ("scopes", "sessions")];
    let page = alice.post_form("/settings/tokens", &fields).await;
    assert_eq!(page.status(), 200);
    let page = page.text().await.unwrap();
    let secret = page.split("id=\"token-secret\">").nth(1).unwrap().split('<').next().unwrap();
    assert_eq!(portal.bearer(secret).get("/api/v1/me").await.status(), 200);
    assert_eq!(portal.bearer(secret).post("/api/v1/tokens", &json!({ "name": "x" })).await.status(), 403);
    let bad = alice.post_form("/settings/tokens", &[("name", ""), ("expires", "604800")]).await;
    assert_eq!(bad.status(), 422);
    assert!(bad.text().await.unwrap().contains("token_name-error"));
    let list: Value = alice.get("/api/v1/tokens").await.json().await.unwrap();
    let id = list["items"][0]["id"].as_str().unwrap();
    assert_eq!(
        alice.post_form(&format!("/settings/tokens/{id}/revoke"), &[]).await.headers()["location"],
        "/settings?done=revoked"
    );
    assert_eq!(portal.bearer(secret).get("/api/v1/me").await.status(), 401);
}

#[tokio::test]
async fn what_cannot_be_a_token_is_refused_by_field() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    for (body, field, code) in [
        (json!({}), "name", "missing_field"),
        (json!({ "name": "" }), "name", "invalid_value"),
        (json!({ "name": "a\nb" }), "name", "invalid_value"),
        (json!({ "name": "x".repeat(65) }), "name", "invalid_value"),
        (json!({ "name": "x", "scopes": ["everything"] }), "scopes", "unknown_scope"),
        (json!({ "name": "x", "scopes": ["admin:*"] }), "scopes", "unknown_scope"),
        (json!({ "name": "x", "expires_in_seconds": 0 }), "expires_in_seconds", "out_of_range"),
        (json!({ "name": "x", "expires_in_seconds": -1 }), "expires_in_seconds", "out_of_range"),
        (json!({ "name": "x", "expires_in_seconds": 367 * DAY }), "expires_in_seconds", "out_of_range"),
        (json!({ "name": "x", "expires_in_seconds": 1e30 }), "expires_in_seconds", "invalid_type"),
        (json!({ "name": "x", "role": "admin" }), "role", "unknown_field"),
    ] {
        let answer = alice.post("/api/v1/tokens", &body).await;
        assert_eq!(answer.status(), 422, "{body}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(
            (problem["errors"][0]["field"].as_str(), problem["errors"][0]["code"].as_str()),
            (Some(field), Some(code)),
            "{body}"
        );
    }
    let list: Value = alice.get("/api/v1/tokens").await.json().await.unwrap();
    assert_eq!(list, json!({ "items": [], "next_cursor": null }), "nothing was made");
}

#[tokio::test]
async fn tokens_end_by_date_and_never_exceed_their_owner() {
    let portal = TestPortal::start().await;
    let id = portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let made = alice.post("/api/v1/tokens", &json!({ "name": "short", "expires_in_seconds": 60 })).await;
    let token = portal.bearer(made.json::<Value>().await.unwrap()["secret"].as_str().unwrap());
    portal.clock.advance(59);
    assert_eq!(token.get("/api/v1/me").await.status(), 200);
    portal.clock.advance(1);
    assert_eq!(token.get("/api/v1/me").await.status(), 401);
    assert_eq!(token.visit("/settings").await.status(), 401, "a token that is no good is told so on pages too");

    let token = portal.token(&alice, &[]).await;
    portal.db().set_disabled(id, true, portal.by()).await.unwrap();
    portal.portal.access.poll().await.unwrap();
    assert_eq!(token.get("/api/v1/me").await.status(), 401);
}

#[tokio::test]
async fn scopes_take_away() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let read = portal.token(&alice, &["read"]).await;
    let connect = portal.token(&alice, &["sessions:connect"]).await;
    let everything = portal.token(&alice, &[]).await;
    let body = json!({ "name": "x" });
    assert_eq!(read.get("/api/v1/tokens").await.status(), 200);
    assert_eq!(read.post("/api/v1/tokens", &body).await.status(), 403);
    assert_eq!(connect.get("/api/v1/tokens").await.status(), 403);
    assert_eq!(everything.post("/api/v1/tokens", &body).await.status(), 201);
    assert_eq!(everything.post("/api/v1/logout", &body).await.status(), 403, "a token has no login to end");
}

#[tokio::test]
async fn a_token_with_another_secret_lives_as_long_as_before() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let token = async |scopes: &[&str]| -> Value {
        let request = json!({ "name": "ci", "scopes": scopes, "expires_in_seconds": 100 });
        alice.post("/api/v1/tokens", &request).await.json().await.unwrap()
    };
    let (made, other, plain) = (token(&["jobs", "token:rotate"]).await, token(&[]).await, token(&["jobs"]).await);
    let address = |token: &Value| format!("/api/v1/tokens/{}/rotate", token["id"].as_str().unwrap());
    let ci = portal.bearer(made["secret"].as_str().unwrap());
    portal.clock.advance(90);
    let me: Value = ci.get("/api/v1/me").await.json().await.unwrap();
    assert_eq!(me["token"], json!({ "id": made["id"], "name": "ci", "expires_at": made["expires_at"] }));
    assert_eq!(alice.get("/api/v1/me").await.json::<Value>().await.unwrap()["token"], Value::Null);

    let nothing = json!({});
    assert_eq!(ci.post(&address(&other), &nothing).await.status(), 403, "it can rotate only itself");
    let jobs_alone = portal.bearer(plain["secret"].as_str().unwrap());
    assert_eq!(jobs_alone.post(&address(&plain), &nothing).await.status(), 403, "its scopes do not allow it");
    let rotated: Value = ci.post(&address(&made), &nothing).await.json().await.unwrap();
    assert_eq!((&rotated["id"], &rotated["scopes"]), (&made["id"], &made["scopes"]));
    assert_eq!(ci.get("/api/v1/me").await.status(), 401, "the old secret is worth nothing");
    let again = portal.bearer(rotated["secret"].as_str().unwrap());
    portal.clock.advance(99);
    assert_eq!(again.get("/api/v1/me").await.status(), 200);
    portal.clock.advance(1);
    assert_eq!(again.get("/api/v1/me").await.status(), 401, "for as long as it was made for");

    // Its owner may rotate any of theirs, and nobody else's.
    portal.add_user("bob", Role::User).await;
    let bob = portal.sign_in("bob").await;
    assert_eq!(bob.post(&address(&made), &nothing).await.status(), 404);
    let page = alice.post_form(&format!("/settings/tokens/{}/rotate", made["id"].as_str().unwrap()), &[]).await;
    let page = page.text().await.unwrap();
    let secret = page.split("id=\"token-secret\">").nth(1).unwrap().split('<').next().unwrap();
    assert_eq!(portal.bearer(secret).get("/api/v1/me").await.status(), 200);
}

#[tokio::test]
async fn a_repeated_request_makes_one_token() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    portal.add_user("bob", Role::User).await;
    let (alice, bob) = (
        portal.sign_in("alice").await.with("idempotency-key", "k1"),
        portal.sign_in("bob").await.with("idempotency-key", "k1"),
    );
    let body = json!({ "name": "once" });
    let make = async |caller: &crate::portal::Caller, body: &Value| {
        let answer = caller.post("/api/v1/tokens", body).await;
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let answers = futures_util::future::join_all((0..10).map(|_| make(&alice, &body))).await;
    assert!(answers.iter().all(|answer| *answer == answers[0] && answer.0 == 201), "{answers:?}");
    let list: Value = alice.get("/api/v1/tokens").await.json().await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let (status, theirs) = make(&bob, &body).await;
    assert_eq!(status, 201);
    assert_ne!(theirs["secret"], answers[0].1["secret"], "keys are one's own");
    assert_eq!(make(&alice, &json!({ "name": "other" })).await.0, 422);
    let id = answers[0].1["id"].as_str().unwrap();
    assert_eq!(alice.delete(&format!("/api/v1/tokens/{id}")).await.status(), 204);
    assert_eq!(make(&alice, &body).await.0, 409, "it is not made again");
    assert_eq!(
        make(&alice.clone().without("idempotency-key").with("idempotency-key", &"k".repeat(256)), &body).await.0,
        422
    );
}

#[tokio::test]
async fn lists_come_in_pages() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    for n in 0..5 {
        alice.post("/api/v1/tokens", &json!({ "name": format!("t{n}") })).await;
    }
    let mut names = Vec::new();
    let mut path = "/api/v1/tokens?limit=2".to_owned();
    loop {
        let page: Value = alice.get(&path).await.json().await.unwrap();
        names.extend(page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/api/v1/tokens?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(names, ["t4", "t3", "t2", "t1", "t0"]);
    for (query, field, code) in [
        ("limit=0", "limit", "out_of_range"),
        ("limit=501", "limit", "out_of_range"),
        ("limit=-1", "limit", "out_of_range"),
        ("limit=x", "limit", "invalid_value"),
        ("limit=99999999999999999999", "limit", "invalid_value"),
        ("cursor=zzz", "cursor", "invalid_value"),
        ("offset=2", "offset", "unknown_field"),
        ("limit=1&limit=2", "limit", "duplicate_field"),
    ] {
        let answer = alice.get(&format!("/api/v1/tokens?{query}")).await;
        assert_eq!(answer.status(), 422, "{query}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(
            (problem["errors"][0]["field"].as_str(), problem["errors"][0]["code"].as_str()),
            (Some(field), Some(code)),
            "{query}"
        );
    }
}
