//! `csrf_matrix`: every route that changes something, from the router's own list, against
//! every kind of proof that a request may carry.

use lyceum::{model::Role, web};
use reqwest::Response;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::portal::{FORM, TestPortal, form};

/// What a request with the login cookie carries besides, and whether that is proof enough.
/// `OURS` and `TOKEN` stand for our origin and the login's own CSRF token.
const PROOFS: [(&[(&str, &str)], bool); 19] = [
    (&[], false),
    (&[("sec-fetch-site", "same-origin")], true),
    (&[("sec-fetch-site", "same-origin"), ("origin", "OURS")], true),
    (&[("sec-fetch-site", "same-site"), ("origin", "OURS")], false),
    (&[("sec-fetch-site", "cross-site"), ("origin", "OURS")], false),
    (&[("sec-fetch-site", "none")], false),
    (&[("origin", "OURS")], true),
    (&[("origin", "null")], false),
    (&[("origin", "https://evil.example")], false),
    (&[("origin", "http://127.0.0.1:1")], false),
    (&[("origin", "OURS.evil.example")], false),
    (&[("origin", "http://0190a5f0-7b1c-7def-8a2b-3c4d5e6f7a8b.apps.localhost")], false),
    (&[("sec-fetch-site", "same-site"), ("origin", "null"), ("x-csrf-token", "0000")], false),
    (&[("referer", "OURS/settings")], false),
    (&[("x-csrf-token", "TOKEN")], true),
    (&[("x-csrf-token", "0000")], false),
    (&[("x-csrf-token", "")], false),
    (&[("origin", "null"), ("x-csrf-token", "TOKEN")], true),
    (&[("x-requested-with", "XMLHttpRequest")], false),
];

#[tokio::test]
async fn csrf_matrix() {
    for portal in [TestPortal::start().await, TestPortal::start_with_names(|_| {}).await] {
        no_change_without_proof(portal).await;
    }
}

async fn no_change_without_proof(portal: TestPortal) {
    let alice = portal.add_user("alice", Role::User).await;
    let bob = portal.sign_in_freshly("bob").await;
    let mut faults = Vec::new();
    for route in web::all_routes().iter().filter(|route| route.method != "GET") {
        let method = if route.method == "ANY" { "POST" } else { &route.method };
        let path = filled(&route.path);
        let is_sign_in = route.path.ends_with("/login");
        // On the way to an app our own token counts for nothing: no page of ours posts there,
        // and a body on that way is never read.
        let is_app = route.path.starts_with("/s/");
        let body = if route.path.starts_with("/api/") {
            ("application/json", "{}".to_owned())
        } else {
            (FORM, form(&[("a", "b")]))
        };
        for (headers, enough) in PROOFS {
            let secret = portal.new_login(alice).await;
            let token = portal.csrf_token(&secret).await;
            let mut caller = portal.anybody().with("cookie", &format!("lyceum_login={secret}"));
            for (name, value) in headers {
                caller = caller.with(name, &value.replace("OURS", &portal.url).replace("TOKEN", &token));
            }
            let answer =
                caller.request(method, &path).header("content-type", body.0).body(body.1.clone()).send().await.unwrap();
            let enough = enough && !(is_app && headers.iter().any(|(name, _)| *name == "x-csrf-token"));
            check(&mut faults, &format!("{method} {path} {headers:?}"), enough, answer).await;
        }
        for (token, enough) in [("TOKEN", true), ("0000", false), ("", false)] {
            let secret = portal.new_login(alice).await;
            let token = token.replace("TOKEN", &portal.csrf_token(&secret).await);
            let caller = portal.anybody().with("cookie", &format!("lyceum_login={secret}"));
            let fields = form(&[("a", "b"), ("csrf_token", &token)]);
            let answer = caller.request(method, &path).header("content-type", FORM).body(fields).send().await.unwrap();
            check(&mut faults, &format!("{method} {path} form token {token:?}"), enough && !is_app, answer).await;
        }
        // A bearer token is sent by no browser by itself: no proof is needed, sign-in excepted.
        let answer =
            bob.request(method, &path).header("content-type", body.0).body(body.1.clone()).send().await.unwrap();
        check(&mut faults, &format!("{method} {path} by token"), !is_sign_in, answer).await;
        // Without any credential there is nothing to protect, sign-in excepted.
        let answer =
            portal.anybody().request(method, &path).header("content-type", body.0).body(body.1).send().await.unwrap();
        check(&mut faults, &format!("{method} {path} by nobody"), !is_sign_in, answer).await;
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn another_logins_token_is_no_proof() {
    let portal = TestPortal::start().await;
    let alice = portal.add_user("alice", Role::User).await;
    let (mine, other) = (portal.new_login(alice).await, portal.new_login(alice).await);
    let token = portal.csrf_token(&other).await;
    let caller = portal.anybody().with("cookie", &format!("lyceum_login={mine}")).with("x-csrf-token", &token);
    assert_eq!(caller.post("/api/v1/logout", &Value::Null).await.status(), 403);
}

#[tokio::test]
async fn a_sign_in_form_of_somebody_else_is_no_proof() {
    let portal = TestPortal::start().await;
    let page = portal.anybody().visit("/login").await;
    let cookie = crate::portal::cookie(&page, "lyceum_form").unwrap();
    let token = portal.portal.access.form_token(&cookie);
    let sign_in = async |headers: &[(&str, &str)], token: &str| {
        let caller = headers.iter().fold(portal.anybody(), |caller, (name, value)| caller.with(name, value));
        let fields = [("username", "alice"), ("password", "x"), ("csrf_token", token)];
        caller.post_form("/login", &fields).await.status().as_u16()
    };
    let with_cookie = format!("lyceum_form={cookie}");
    assert_eq!(sign_in(&[("cookie", &with_cookie)], &token).await, 401, "the form's own token counts");
    assert_eq!(sign_in(&[], &token).await, 403, "but not without its cookie");
    assert_eq!(sign_in(&[("cookie", "lyceum_form=other")], &token).await, 403);
    assert_eq!(sign_in(&[("cookie", &with_cookie), ("origin", "null")], &token).await, 401, "a browser that hides it");
    let app = portal.url.rsplit_once(':').unwrap().0.to_owned() + ":1";
    assert_eq!(sign_in(&[("cookie", &with_cookie), ("origin", &app)], &token).await, 403, "an app tossed the cookie");
    assert_eq!(sign_in(&[("cookie", &with_cookie), ("sec-fetch-site", "same-site")], &token).await, 403);
}

#[tokio::test]
async fn nothing_is_shared_across_origins() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await.without("origin").with("origin", "https://evil.example");
    for (method, path) in
        [("GET", "/api/v1/me"), ("GET", "/login"), ("OPTIONS", "/api/v1/me"), ("OPTIONS", "/api/v1/tokens")]
    {
        let request = alice.request(method, path).header("access-control-request-method", "POST");
        let answer = request.send().await.unwrap();
        let cors = answer.headers().keys().find(|name| name.as_str().starts_with("access-control-"));
        assert_eq!(cors, None, "{method} {path}");
    }
}

/// Whether an answer is the refusal for want of proof, as it should be.
async fn check(faults: &mut Vec<String>, what: &str, enough: bool, answer: Response) {
    let status = answer.status();
    let refused = status == 403 && answer.text().await.unwrap().contains("/problems/not-same-origin");
    if refused == enough {
        faults.push(format!("{what}: {status}, refused: {refused}"));
    }
}

fn filled(path: &str) -> String {
    let id = Uuid::now_v7().to_string();
    path.split('/').map(|part| if part.starts_with('{') { id.as_str() } else { part }).collect::<Vec<_>>().join("/")
}

impl TestPortal {
    async fn csrf_token(&self, secret: &str) -> String {
        self.portal.access.by_cookie(secret).await.unwrap().unwrap().csrf_token().to_owned()
    }

    /// A new user who comes with a token.
    async fn sign_in_freshly(&self, name: &str) -> crate::portal::Caller {
        self.add_user(name, Role::User).await;
        let browser = self.sign_in(name).await;
        self.token(&browser, &[]).await
    }
}

/// No state change by GET: every route that can be asked so leaves every table as it was,
/// whoever asks, also with parameters that a change by POST would take.
#[tokio::test]
async fn reading_changes_nothing() {
    let portal = TestPortal::start().await;
    let chief = portal.add_user("chief", Role::Admin).await;
    let browser = portal.sign_in("chief").await;
    let token: Value = browser.post("/api/v1/tokens", &json!({ "name": "x" })).await.json().await.unwrap();
    let session: Value = browser.post("/api/v1/sessions", &json!({ "app": "terminal" })).await.json().await.unwrap();
    let tables = async || {
        let db = portal.db();
        let all = lyceum::db::sessions::Filter { limit: 100, ..Default::default() };
        let mut users = db.list_users().await.unwrap();
        for user in &mut users {
            user.last_seen_at = None;
        }
        let mut tokens = db.list_tokens(chief, None, 100).await.unwrap();
        for token in &mut tokens {
            token.last_used_at = None;
        }
        format!(
            "{:#?}",
            (
                users,
                tokens,
                db.list_logins(chief).await.unwrap(),
                db.list_sessions(all).await.unwrap(),
                db.limits_of(chief).await.unwrap(),
                db.list_audit(100).await.unwrap(),
                db.access_generation().await.unwrap(),
            )
        )
    };
    let before = tables().await;
    let parameters = "action=stop&name=x&csrf_token=x&password=x&seconds=60&role=admin&gpus=9";
    for route in web::all_routes().iter().filter(|route| matches!(route.method.as_str(), "GET" | "ANY")) {
        let id = if route.path.contains("tokens") { &token } else { &session }["id"].as_str().unwrap();
        let path = route.path.replace("{id}", id).replace("{*rest}", &format!("{id}/")).replace("{name}", "chief");
        // A stream has no end.
        if path.ends_with("/events") {
            continue;
        }
        for path in [path.clone(), format!("{path}?{parameters}")] {
            for method in ["GET", "HEAD"] {
                let answer = browser.request(method, &path).send().await.unwrap();
                assert!(answer.status() != 500, "{method} {path}");
            }
            assert_eq!(tables().await, before, "{path}");
        }
    }
}
