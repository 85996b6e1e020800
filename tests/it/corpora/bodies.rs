//! Bodies: every route of the API that takes one, from the router's own list, against JSON
//! that is too large, too deep, no JSON, or says something twice.

use lyceum::{
    model::Role,
    web::{self, BODY_LIMIT},
};
use serde_json::Value;

use super::{belongings, say, secret, statuses};
use crate::portal::TestPortal;

/// A request with a body, by token.
fn request(method: &str, path: &str, bearer: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {bearer}\r\n{kind}Content-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

const JSON: &str = "Content-Type: application/json\r\n";

#[tokio::test]
async fn bodies_that_are_no_requests() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::Admin).await;
    let alice = portal.sign_in("alice").await;
    let bearer = secret(&alice).await;
    let before = (belongings(&alice).await, alice.get("/api/v1/quotas/default").await.text().await.unwrap());
    let deep = |open: &str| open.repeat(100_000).into_bytes();
    let large = |size: usize| format!(r#"{{"name": "{}"}}"#, "x".repeat(size)).into_bytes();
    let plain = br#"{"name": "x"}"#;
    let bodies: Vec<(&str, &str, Vec<u8>, &[u16])> = vec![
        ("nothing", JSON, Vec::new(), &[400]),
        ("half", JSON, br#"{"name": "x""#.to_vec(), &[400, 422]),
        ("two values", JSON, br#"{"name": "x"} {"name": "y"}"#.to_vec(), &[400, 422]),
        ("an array", JSON, br#"["x"]"#.to_vec(), &[422]),
        ("null", JSON, b"null".to_vec(), &[422]),
        ("a text", JSON, br#""name""#.to_vec(), &[422]),
        ("arrays in arrays", JSON, deep("["), &[400, 422]),
        ("objects in objects", JSON, deep(r#"{"a":"#), &[400, 422]),
        ("deep below a field", JSON, [br#"{"name":"#.as_slice(), &deep("[")].concat(), &[400, 422]),
        ("NaN", JSON, br#"{"gpus": NaN}"#.to_vec(), &[400, 422]),
        ("Infinity", JSON, br#"{"gpus": -Infinity}"#.to_vec(), &[400, 422]),
        ("a number without end", JSON, br#"{"gpus": 1e999}"#.to_vec(), &[400, 422]),
        (
            "a number of a million digits",
            JSON,
            format!(r#"{{"gpus": {}}}"#, "9".repeat(900_000)).into_bytes(),
            &[400, 422],
        ),
        ("a field that nobody knows", JSON, br#"{"__proto__": {"role": "admin"}}"#.to_vec(), &[422]),
        ("no UTF-8", JSON, b"{\"name\": \"\xff\xfe\"}".to_vec(), &[400, 422]),
        ("half a pair", JSON, br#"{"name": "\ud800"}"#.to_vec(), &[400, 422]),
        ("a byte order mark", JSON, [b"\xef\xbb\xbf".as_slice(), plain].concat(), &[400]),
        ("UTF-16", JSON, b"{\0\"\0n\0\"\0:\x001\0}\0".to_vec(), &[400]),
        ("a comment", JSON, br#"{"name": "x" /* y */}"#.to_vec(), &[400, 422]),
        ("one byte too many", JSON, large(BODY_LIMIT), &[413]),
        ("plain text", "Content-Type: text/plain\r\n", plain.to_vec(), &[400]),
        ("a form's letters", "Content-Type: application/x-www-form-urlencoded\r\n", plain.to_vec(), &[400]),
        ("a form's parts", "Content-Type: multipart/form-data; boundary=x\r\n", plain.to_vec(), &[400]),
        ("two types", "Content-Type: text/plain\r\nContent-Type: application/json\r\n", plain.to_vec(), &[400]),
        ("no type", "", plain.to_vec(), &[400]),
        (
            "packed",
            "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
            b"\x1f\x8b\x08\0\0\0".to_vec(),
            &[400],
        ),
    ];
    let mut faults = Vec::new();
    let takes_a_body = |path: &str, method: &str| {
        path.starts_with("/api/")
            && matches!(method, "POST" | "PATCH" | "PUT")
            // These are asked for without one.
            && !matches!(path, "/api/v1/logout" | "/api/v1/me/notifications/test")
            && !path.ends_with("/sign-out")
    };
    for route in web::all_routes().iter().filter(|route| takes_a_body(&route.path, &route.method)) {
        let path = route.path.replace("{name}", "alice").replace("{id}", &lyceum::model::SessionId::new().to_string());
        for (what, kind, body, expected) in &bodies {
            let answer = say(&portal.url, &request(&route.method, &path, &bearer, kind, body)).await;
            let found = statuses(&answer);
            // The file of a site may be larger, and is read.
            let expected: &[u16] =
                if path == "/api/v1/site/apply" && *what == "one byte too many" { &[422] } else { expected };
            // A token may not sign in, and a session that is not there is found out first or last.
            let elsewhere = [401, 403, 404];
            let told = found.len() == 1 && (expected.contains(&found[0]) || elsewhere.contains(&found[0]));
            if !told || !answer.contains("application/problem+json") {
                faults.push(format!("{} {path}: {what}: {:.300}", route.method, answer));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    let after = (belongings(&alice).await, alice.get("/api/v1/quotas/default").await.text().await.unwrap());
    assert_eq!(after, before, "nothing was made or changed");
    // The limit is not lower than it says either.
    let answer = say(&portal.url, &request("POST", "/api/v1/tokens", &bearer, JSON, &large(BODY_LIMIT - 12))).await;
    assert_eq!(statuses(&answer), [422], "{answer:.300}");
}

/// Two values for one name have two readers: the first and the last.
#[tokio::test]
async fn a_field_that_stands_twice_is_refused() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::Admin).await;
    let alice = portal.sign_in("alice").await;
    let bearer = secret(&alice).await;
    for (method, path, body, field) in [
        ("POST", "/api/v1/tokens", r#"{"name": "a", "name": "b"}"#, "name"),
        ("POST", "/api/v1/tokens", r#"{"name": "a", "scopes": ["read"], "scopes": []}"#, "scopes"),
        ("POST", "/api/v1/sessions", r#"{"app": "terminal", "app": "terminal"}"#, "app"),
        ("POST", "/api/v1/sessions", r#"{"app": "terminal", "resources": {"cpus": 1, "cpus": 1}}"#, "resources.cpus"),
        ("POST", "/api/v1/admission", r#"{"app": "terminal", "\u0061pp": "jupyter"}"#, "app"),
        ("PATCH", "/api/v1/quotas/default", r#"{"gpus": 1, "gpus": -1}"#, "gpus"),
        ("PATCH", "/api/v1/quotas/users/alice", r#"{"gpus": 1, "gp\u0075s": 100}"#, "gpus"),
        ("PATCH", "/api/v1/quotas/users/alice", r#"{"note": "a", "note": "b"}"#, "note"),
    ] {
        let answer = say(&portal.url, &request(method, path, &bearer, JSON, body.as_bytes())).await;
        assert_eq!(statuses(&answer), [422], "{path} {body}: {answer}");
        let problem: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        let told = (problem["errors"][0]["field"].as_str(), problem["errors"][0]["code"].as_str());
        assert_eq!(told, (Some(field), Some("duplicate_field")), "{path} {body}: {problem}");
    }
}
