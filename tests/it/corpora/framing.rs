//! Where one request ends and the next begins. Each of these hides a second request behind a
//! first one; were the two ever read differently, the second would make a token, or reach the
//! app of a session.

use lyceum::model::Role;

use super::{belongings, say, secret, statuses};
use crate::{
    gateway::world::World,
    portal::TestPortal,
    proxy::{
        app::App,
        smuggling::{ambiguous, assert_refused},
    },
};

const TOKEN: &str = r#"{"name": "smuggled"}"#;

fn make_a_token(lines: &str) -> String {
    format!(
        "POST /api/v1/tokens HTTP/1.1\r\nHost: a\r\n{lines}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{TOKEN}",
        TOKEN.len()
    )
}

#[tokio::test]
async fn smuggling_past_the_portals_own_routes() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let lines = format!("Authorization: Bearer {}\r\n", secret(&alice).await);
    let hidden = make_a_token(&lines);
    let before = belongings(&alice).await;
    for (what, request) in ambiguous("/api/v1/tokens", "/api/v1/me", &lines) {
        assert_refused(what, &say(&portal.url, format!("{request}{hidden}").as_bytes()).await);
    }
    // Before the sign-in and on the pages the rules are the same.
    for (what, request) in ambiguous("/login", "/login", "") {
        assert_refused(what, &say(&portal.url, format!("{request}{hidden}").as_bytes()).await);
    }
    assert_eq!(belongings(&alice).await, before, "nothing was made");
    assert_eq!(
        statuses(&say(&portal.url, hidden.replace("Host: a", "Connection: close\r\nHost: a").as_bytes()).await),
        [201]
    );
    assert_ne!(belongings(&alice).await, before, "the hidden request is one that makes something");
}

#[tokio::test]
async fn smuggling_into_an_app() {
    let (world, app) = (World::new().await, App::start());
    let id = world.session(world.user("alice").await, &app).await;
    let bearer = format!("Authorization: Bearer {}\r\n", secret(&world.portal.sign_in("alice").await).await);
    let mut browser = world.browser("alice").await;
    assert_eq!(browser.visit(&format!("{}/s/{id}/", world.apps)).await.status, 200);
    let cookie = browser.cookie("lyceum_app_").unwrap();
    let cookie = format!("Cookie: {cookie}\r\nOrigin: {}\r\n", world.apps);
    let before = app.requests();
    for (listener, lines) in [(&world.portal.url, &bearer), (&world.apps, &cookie)] {
        let hidden = format!("GET /s/{id}/hidden HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        for (what, request) in ambiguous(&format!("/s/{id}/up"), &format!("/s/{id}/a"), lines) {
            assert_refused(what, &say(listener, format!("{request}{hidden}").as_bytes()).await);
        }
    }
    assert_eq!(app.requests(), before, "none reached the app");
}

/// What is unusual and yet has one meaning: it is read as that, and nothing is left over.
#[tokio::test]
async fn smuggling_by_what_is_allowed() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let lines = format!("Authorization: Bearer {}\r\n", secret(&alice).await);
    let hidden = make_a_token(&lines);
    let post = format!("POST /api/v1/tokens HTTP/1.1\r\nHost: a\r\n{lines}Content-Type: application/json\r\n");
    let get = format!("GET /api/v1/me HTTP/1.1\r\nHost: a\r\n{lines}");
    let chunked = format!("{post}Transfer-Encoding: chunked\r\n\r\n");
    let (size, body) = (format!("{:x}", TOKEN.len()), TOKEN);
    let behind = format!("Content-Length: {}\r\n\r\n{hidden}", hidden.len());
    for (what, request, answers, made) in [
        ("a chunked body", format!("{chunked}{size}\r\n{body}\r\n0\r\n\r\n{hidden}"), &[201][..], 1),
        ("chunk extensions", format!("{chunked}{size};a=b;c=\"d\"\r\n{body}\r\n0;x\r\n\r\n{hidden}"), &[201], 1),
        (
            "trailers, which count for nothing",
            format!("{chunked}{size}\r\n{body}\r\n0\r\nContent-Length: 3\r\nAuthorization: none\r\n\r\n{hidden}"),
            &[201],
            1,
        ),
        ("pipelined, each whole", format!("{hidden}{get}Connection: close\r\n\r\n"), &[201, 200], 1),
        (
            "behind an upgrade that nobody offers",
            format!("{get}Connection: upgrade\r\nUpgrade: x\r\n\r\n{hidden}"),
            &[200],
            0,
        ),
        ("an upgrade with a body", format!("{get}Connection: upgrade\r\nUpgrade: x\r\n{behind}"), &[200], 0),
        ("a read with a body", format!("{get}Connection: close\r\n{behind}"), &[200], 0),
        (
            "HTTP/1.0 with a second request",
            format!("{}{hidden}", get.replace("HTTP/1.1", "HTTP/1.0") + "\r\n"),
            &[200],
            0,
        ),
        ("empty lines before", format!("\r\n\r\n{get}Connection: close\r\n\r\n"), &[200], 0),
    ] {
        let before = belongings(&alice).await[0]["items"].as_array().unwrap().len();
        let answer = say(&portal.url, request.as_bytes()).await;
        assert_eq!(statuses(&answer), answers, "{what}: {answer}");
        let after = belongings(&alice).await[0]["items"].as_array().unwrap().len();
        assert_eq!(after - before, made, "{what}: {answer}");
    }
    // What never ends where it says it does is refused, and half of it makes nothing.
    let before = belongings(&alice).await;
    let flood = "a".repeat(1 << 20);
    for (what, body) in [
        ("extensions without end", format!("{size};{flood}\r\n{body}\r\n0\r\n\r\n")),
        ("trailers without end", format!("{size}\r\n{body}\r\n0\r\nX: {flood}\r\n\r\n")),
        ("a size that overflows", format!("fffffffffffffffff\r\n{body}\r\n0\r\n\r\n")),
        ("a size that is none", format!("zz\r\n{body}\r\n0\r\n\r\n")),
        ("less than it says", format!("ff\r\n{body}\r\n0\r\n\r\n")),
        ("more than it says", format!("2\r\n{body}\r\n0\r\n\r\n")),
        ("a bare LF after the size", format!("{size}\n{body}\r\n0\r\n\r\n")),
    ] {
        let mut request = format!("{chunked}{body}").into_bytes();
        request.extend_from_slice(hidden.as_bytes());
        let answer = if what == "less than it says" {
            // The rest never comes.
            crate::corpora::say_and_leave(&portal.url, &request).await
        } else {
            say(&portal.url, &request).await
        };
        assert!(statuses(&answer).len() <= 1, "{what}: {answer}");
        assert!(statuses(&answer).iter().all(|status| (400..500).contains(status)), "{what}: {answer}");
    }
    assert_eq!(belongings(&alice).await, before, "nothing was made");
}
