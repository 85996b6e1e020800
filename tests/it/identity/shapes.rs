//! The shapes of answers: problem documents and error pages, security headers on everything,
//! limits, the embedded files, the OpenAPI document.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Router, routing::get};
use lyceum::{
    model::Role,
    web::{self, AppsOrigin, Portal},
};
use reqwest::Response;
use serde_json::{Value, json};

use crate::portal::{TestPortal, client};

#[tokio::test]
async fn errors_are_problem_documents() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let big = format!(r#"{{"name": "{}"}}"#, "x".repeat(1 << 20));
    for (method, path, kind, body, status, slug) in [
        ("GET", "/api/v1/nothing", "", "", 404, "not-found"),
        ("GET", "/api", "", "", 404, "not-found"),
        ("GET", "/nothing", "", "", 404, "not-found"),
        ("DELETE", "/api/v1/tokens/not-an-id", "", "", 404, "not-found"),
        ("DELETE", "/api/v1/tokens/%2e%2e%2fme", "", "", 404, "not-found"),
        ("PUT", "/api/v1/me", "", "", 405, "method-not-allowed"),
        ("DELETE", "/login", "", "", 405, "method-not-allowed"),
        ("POST", "/api/v1/tokens", "application/json", "{", 400, "malformed"),
        ("POST", "/api/v1/tokens", "application/json", "\u{0}", 400, "malformed"),
        ("POST", "/api/v1/tokens", "text/plain", "{}", 400, "malformed"),
        ("POST", "/api/v1/tokens", "", "{}", 400, "malformed"),
        ("POST", "/api/v1/tokens", "application/json", r#"{"name": "x", "nome": 1}"#, 422, "invalid-fields"),
        ("POST", "/api/v1/tokens", "application/json", &big, 413, "too-large"),
        ("POST", "/settings/theme", "application/x-www-form-urlencoded", &big, 413, "too-large"),
    ] {
        let mut request = alice.request(method, path).body(body.to_owned());
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), status, "{method} {path}");
        problem(answer, slug).await;
    }
    let answer = alice.request("PUT", "/api/v1/tokens").send().await.unwrap();
    let allow = answer.headers()["allow"].to_str().unwrap();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
}

#[tokio::test]
async fn a_browser_gets_a_page() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let page = alice.visit("/nothing<script>").await;
    assert_eq!(page.status(), 404);
    assert!(page.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
    let id = page.headers()["x-request-id"].to_str().unwrap().to_owned();
    let text = page.text().await.unwrap();
    assert!(text.contains("Not found") && text.contains(&id) && text.contains("/problems/not-found"), "{text}");
    assert!(!text.contains("<script>"), "{text}");
    problem(alice.visit("/api/v1/nothing").await, "not-found").await;
    let posted = portal.anybody().with("accept", "text/html").post_form("/settings/theme", &[("theme", "dark")]).await;
    assert_eq!(posted.status(), 401);
    assert!(posted.text().await.unwrap().contains("href=\"/login\""));
    assert_eq!(portal.anybody().get("/settings").await.status(), 303, "a page visit without an Accept header");
    let json = portal.anybody().with("accept", "application/json").get("/settings").await;
    assert_eq!(json.status(), 401, "a program that wants JSON");
}

#[tokio::test]
async fn faults_keep_their_causes() {
    let routes = |portal: Arc<Portal>| {
        let routes: Router<Arc<Portal>> = Router::new()
            .route("/panic", get(async || -> String { panic!("the secret cause") }))
            .route("/fault", get(async || web::Error::internal("the secret cause")))
            .route("/foreign", get(async || (reqwest::StatusCode::BAD_GATEWAY, "the secret cause")));
        web::finished(routes, portal)
    };
    let portal = TestPortal::serve(|_| {}, routes).await;
    for path in ["/panic", "/fault", "/foreign"] {
        let page = portal.anybody().visit(path).await;
        assert_eq!(page.status(), 500, "{path}");
        assert!(!page.text().await.unwrap().contains("secret"), "{path}");
        let text = problem(portal.anybody().get(path).await, "internal").await;
        assert!(!text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn without_a_database_the_answer_is_503() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    assert_eq!(portal.anybody().get("/readyz").await.status(), 200);
    portal.db().close().await;
    for answer in [
        alice.get("/api/v1/tokens").await,
        portal.bearer("lyc_x").get("/api/v1/me").await,
        portal.try_sign_in("alice", "x").await,
        portal.anybody().get("/readyz").await,
    ] {
        assert_eq!(answer.status(), 503);
        assert!(answer.headers().contains_key("retry-after"));
        problem(answer, "unavailable").await;
    }
    assert_eq!(portal.anybody().get("/healthz").await.status(), 200);
    assert_eq!(alice.visit("/docs/api").await.status(), 200, "who is in goes on working");
}

#[tokio::test]
async fn ready_is_who_looked_at_the_sessions_lately() {
    let portal = TestPortal::start().await;
    let asked = async || {
        let answer = portal.anybody().get("/readyz").await;
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, text) = asked().await;
    assert_eq!((status, text.as_str()), (200, "ready\ndatabase: ok\nscheduler: ok\nsessions: checked 0 s ago\n"));
    portal.clock.advance(61);
    let (status, text) = asked().await;
    assert!(status == 503 && text.contains("last checked 61 s ago"), "{text}");
    portal.portal.sessions.reconcile().await;
    assert_eq!(asked().await.0, 200);

    // The helper of this portal has gone; the first who asks it for something finds out.
    let session = lyceum::model::SessionId::new();
    assert!(portal.portal.sessions.scheduler.clean(session).await.is_err());
    let (status, text) = asked().await;
    assert!(status == 503 && text.contains("helper"), "{text}");

    let portal = TestPortal::start().await;
    std::fs::remove_dir(portal.directory.path().join("placements")).unwrap();
    portal.portal.sessions.reconcile().await;
    let answer = portal.anybody().get("/readyz").await;
    assert_eq!(answer.status(), 503);
    assert!(answer.text().await.unwrap().contains("The log has the cause"));
}

#[tokio::test]
async fn every_answer_has_its_headers() {
    let portal = TestPortal::start_with(|config| config.apps = AppsOrigin::Port(8001)).await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    for path in [
        "/login",
        "/settings",
        "/docs/api",
        "/problems/conflict",
        "/nothing",
        "/api/v1/me",
        "/api/v1/nothing",
        "/healthz",
    ] {
        let answer = if path == "/login" { portal.anybody().visit(path).await } else { alice.visit(path).await };
        let header = |name: &str| answer.headers().get(name).map_or("", |value| value.to_str().unwrap());
        let policy = header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'self';") && policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert!(policy.contains("form-action 'self' http://127.0.0.1:8001"), "a form may lead on to an app: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "same-origin", "{path}");
        assert_eq!(header("cache-control"), "no-store", "{path}");
        assert_eq!(header("x-request-id").len(), 36, "{path}");
        assert!(!answer.headers().contains_key("server"), "{path}");
    }
}

#[tokio::test]
async fn embedded_files() {
    let portal = TestPortal::start().await;
    let page = portal.anybody().visit("/login").await.text().await.unwrap();
    let hashed = page.split('"').find(|part| part.starts_with("/static/app.css?v=")).unwrap();
    let answer = portal.anybody().get(hashed).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/css; charset=utf-8");
    assert_eq!(answer.headers()["cache-control"], "public, max-age=31536000, immutable");
    let tag = answer.headers()["etag"].to_str().unwrap().to_owned();
    let plain = answer.bytes().await.unwrap();
    let answer = portal.anybody().with("if-none-match", &tag).get("/static/app.css").await;
    assert_eq!((answer.status().as_u16(), answer.headers()["cache-control"].to_str().unwrap()), (304, "no-cache"));
    let packed = portal.anybody().with("accept-encoding", "gzip").get("/static/app.css?v=old").await;
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    assert_eq!(packed.headers()["cache-control"], "no-cache");
    assert!(packed.bytes().await.unwrap().len() < plain.len());
    for path in [
        "/static/nothing.css",
        "/static/../Cargo.toml",
        "/static/%2e%2e/Cargo.toml",
        "/static/",
        "/static/%2fetc/passwd",
    ] {
        assert_eq!(client().get(format!("{}{path}", portal.url)).send().await.unwrap().status(), 404, "{path}");
    }
}

#[tokio::test]
async fn the_document_describes_the_routes() {
    let portal = TestPortal::start().await;
    let document: Value = portal.anybody().get("/api/v1/openapi.json").await.json().await.unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    assert!(document["components"]["schemas"]["Problem"].is_object());
    assert_eq!(web::document_faults(), Vec::<String>::new());
    let mut ids = BTreeSet::new();
    for route in web::all_routes().iter().filter(|route| route.path.starts_with("/api/")) {
        let operation = &document["paths"][&route.path][route.method.to_lowercase()];
        let id = operation["operationId"].as_str().unwrap();
        assert!(ids.insert(id.to_owned()), "{id} stands twice");
        let is_word = |word: &str| !word.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase());
        assert!(id.contains('_') && id.split('_').all(is_word), "{id} is not a verb and nouns");
        let scopes = operation["x-scopes"].is_array() || operation["security"].is_array();
        assert!(scopes && operation["description"].as_str().unwrap().contains("oken"), "{id} has no scopes");
        for status in ["400", "401", "403"].iter().take(if operation["x-scopes"].is_array() { 3 } else { 1 }) {
            assert!(operation["responses"][status].is_object(), "{id} lacks {status}");
        }
        let error = &operation["responses"]["default"]["content"]["application/problem+json"]["schema"]["$ref"];
        assert_eq!(error, "#/components/schemas/Problem", "{route:?}");
        // A part of a file stands beside the whole.
        let is_success = |code: &&String| code.starts_with('2') && *code != "206";
        let successes = operation["responses"].as_object().unwrap().keys().filter(is_success);
        assert_eq!(successes.count(), 1, "{route:?}");
    }
}

#[tokio::test]
async fn lists_refer_to_their_items_and_answers_name_what_they_always_contain() {
    let portal = TestPortal::start().await;
    let document: Value = portal.anybody().get("/api/v1/openapi.json").await.json().await.unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert_eq!(
        schemas["SessionList"]["properties"]["items"]["items"],
        json!({ "$ref": "#/components/schemas/Session" })
    );
    assert!(
        schemas.keys().all(|name| name.chars().all(|letter| letter.is_ascii_alphanumeric())),
        "{:?}",
        schemas.keys()
    );
    let (session, job) = (&schemas["Session"], &schemas["Job"]);
    assert_eq!(session["required"].as_array().unwrap().len(), session["properties"].as_object().unwrap().len());
    assert!(!job["required"].as_array().unwrap().contains(&json!("sweep")), "it is omitted for other jobs");
    assert_eq!(job["properties"]["sweep"]["type"], "string", "{}", job["properties"]["sweep"]);
    assert_eq!(schemas["QuotaChange"]["properties"]["gpus"]["type"], json!(["integer", "null"]));
    assert_eq!(schemas["StoppedItem"]["properties"]["kind"]["enum"], json!(["session", "job", "sweep"]));
    let content = &document["paths"]["/api/v1/files/content"]["get"]["responses"]["200"]["content"];
    assert_eq!(content["application/octet-stream"]["schema"], json!({ "type": "string", "format": "binary" }));
}

#[tokio::test]
async fn the_document_is_compressed_and_not_sent_twice() {
    let portal = TestPortal::start().await;
    let plain = portal.anybody().get("/api/v1/openapi.json").await;
    assert_eq!(plain.headers()["cache-control"], "no-cache");
    let tag = plain.headers()["etag"].to_str().unwrap().to_owned();
    let plain = plain.bytes().await.unwrap();
    let known = portal.anybody().with("if-none-match", &tag).get("/api/v1/openapi.json").await;
    assert_eq!((known.status().as_u16(), known.bytes().await.unwrap().len()), (304, 0));
    let packed = portal.anybody().with("accept-encoding", "gzip").get("/api/v1/openapi.json").await;
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    assert!(packed.bytes().await.unwrap().len() < plain.len() / 4);
}

#[tokio::test]
async fn numbers_without_names() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    portal.sign_in("alice").await.visit("/nothing?secret=x").await;
    portal.try_sign_in("alice", "wrong-password").await;
    let text = portal.anybody().get("/metrics").await.text().await.unwrap();
    assert!(text.contains("lyceum_sign_ins_total{outcome=\"ok\"} 1"), "{text}");
    assert!(text.contains("lyceum_sign_ins_total{outcome=\"failed\"} 1"), "{text}");
    assert!(text.contains("route=\"/api/v1/login\""), "{text}");
    assert!(!text.contains("alice") && !text.contains("nothing") && text.ends_with("# EOF\n"), "{text}");
}

/// Checks that an answer is a problem document of a kind, and returns its text.
async fn problem(answer: Response, slug: &str) -> String {
    assert_eq!(answer.headers()["content-type"], "application/problem+json", "{slug}");
    let (status, id) = (answer.status().as_u16(), answer.headers()["x-request-id"].to_str().unwrap().to_owned());
    let text = answer.text().await.unwrap();
    let problem: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(problem["type"], json!(format!("/problems/{slug}")), "{text}");
    assert_eq!((&problem["status"], &problem["instance"]), (&json!(status), &json!(id)), "{text}");
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{text}");
    text
}
