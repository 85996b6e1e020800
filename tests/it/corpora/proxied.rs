//! The way into apps through the running portal, both listeners: which session a path names,
//! what an app sees of a request and a browser of its answer, and when that ends.

use lyceum::{
    db::sessions::Ending,
    model::{EndReason, SessionId},
};

use super::{say, secret, statuses};
use crate::{
    gateway::world::{MODES, Mode, World, socket},
    proxy::app::App,
};

/// A way in: where, with which lines.
async fn ways(world: &World, id: SessionId) -> Vec<(String, String)> {
    let bearer = secret(&world.portal.sign_in("alice").await).await;
    let (_, cookie) = world.opened("alice", id).await;
    vec![
        (world.portal.url.clone(), format!("Authorization: Bearer {bearer}\r\n")),
        (world.app_of(id), format!("Cookie: {cookie}; city=Z\u{fc}rich\r\n")),
    ]
}

#[tokio::test]
async fn proxy_paths_of_the_running_portal() {
    for mode in MODES {
        paths_name_one_session(mode).await;
    }
}

async fn paths_name_one_session(mode: Mode) {
    let (world, app) = (World::in_mode(mode).await, App::start());
    let alice = world.user("alice").await;
    let (id, other) = (world.session(alice, &app).await, world.session(world.user("bob").await, &app).await);
    for (listener, lines) in ways(&world, id).await {
        let host = listener.trim_start_matches("http://");
        for (path, expected, reaches) in [
            (format!("/s/{id}/a"), &[200][..], true),
            (format!("/s/{id}//a;b=c/%2Fd%3Fe/caf%C3%A9"), &[200], true),
            (format!("/s/{id}/%ff%00%0d%0aX:y"), &[200], true),
            (format!("http://{host}/s/{id}/a"), &[200], true),
            (format!("http://evil.example/s/{id}/a"), &[400], false),
            (format!("/s/{id}/../{other}/a"), &[400, 404], false),
            (format!("/s/{id}/%2e%2e/{other}/a"), &[400, 404], false),
            (format!("/s/{id}/%252e%252e/{other}/a"), &[200], true),
            (format!("/s/{id}/..%2f{other}/a"), &[400, 404], false),
            (format!("/s/{id}/..%5c{other}/a"), &[400, 404], false),
            (format!("/s/{id}/..\\{other}\\a"), &[400, 404], false),
            (format!("/s/{id}/..;/{other}/a"), &[400, 404], false),
            (format!("/s/{id}/%2E/a"), &[400, 404], false),
            (format!("/s/{other}/a"), &[401, 404], false),
            (format!("/s/{id}%2f..%2f{other}/a"), &[401, 404], false),
            (format!("/s/{}/a", id.to_string().to_uppercase()), &[401, 404], false),
            (format!("/s/{}/a", id.to_string().replace('-', "")), &[401, 404], false),
            (format!("/s/{id};x/a"), &[401, 404], false),
            (format!("/s//{id}/a"), &[401, 404], false),
            (format!("//s/{id}/a"), &[401, 404], false),
            (format!("/S/{id}/a"), &[401, 404], false),
            (format!("/%73/{id}/a"), &[401, 404], false),
            (format!("/s%2f{id}/a"), &[401, 404], false),
            (format!("/static/../s/{id}/a"), &[401, 404], false),
            (format!("/s/{id}/{}", "x".repeat(20_000)), &[200], true),
        ] {
            let before = app.requests();
            let ask = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close\r\n\r\n");
            let answer = say(&listener, ask.as_bytes()).await;
            let found = statuses(&answer);
            assert!(found.len() == 1 && expected.contains(&found[0]), "{listener} {path:.200}: {answer:.400}");
            assert_eq!(app.requests() - before, usize::from(reaches), "{listener} {path:.200}");
            if reaches && !path.starts_with("http") {
                assert!(answer.contains(&format!("\r\n\r\nGET {path}\n")), "byte for byte: {answer:.400}");
            }
        }
        for raw in [format!("/s/{id}/\u{fc}"), format!("/s/{id}/a\0b")] {
            let before = app.requests();
            let ask = format!("GET {raw} HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close\r\n\r\n");
            let found = statuses(&say(&listener, ask.as_bytes()).await);
            assert!(found.len() <= 1, "{raw:?}: {found:?}");
            // Letters that are none in an address are passed on as they are, or refused.
            assert!(found.iter().all(|status| matches!(status, 200 | 400)), "{raw:?}: {found:?}");
            assert!(!raw.contains('\0') || app.requests() == before, "{raw:?}");
        }
    }
}

#[tokio::test]
async fn upstream_hygiene_of_the_running_portal() {
    for mode in MODES {
        let path_mode = mode == Mode::Path;
        let world = World::in_mode(mode).await;
        let app = App::start();
        let id = world.session(world.user("alice").await, &app).await;
        let (browser, cookie) = world.opened("alice", id).await;
        let (apps, portal) = (world.app_of(id), &world.portal.url);
        let login = browser.cookie("lyceum_login").unwrap();
        let bearer = secret(&world.portal.sign_in("alice").await).await;
        let mut ways = vec![(portal, format!("Authorization: Bearer {bearer}\r\nCookie: {login}\r\n"))];
        if path_mode {
            ways.push((portal, format!("Cookie: {login}\r\n")));
        } else {
            let hand = browser.cookie("lyceum_hand").unwrap();
            ways.push((&apps, format!("Cookie: a=1; {cookie}; {hand}\r\nCookie: {login}; b=2\r\n")));
        }
        for (listener, lines) in ways {
            let host = listener.trim_start_matches("http://");
            let ask = format!(
                "GET /s/{id}/x?a=1&token={bearer}&Token=x&b=2 HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close, X-Odd\r\n\
                 X-Odd: 1\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\n\
                 X-Forwarded-User: root\r\nX-Forwarded-Prefix: /evil\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\
                 Proxy-Authorization: Basic x\r\nProxy-Connection: close\r\nTE: trailers\r\nX-CSRF-Token: none\r\n\r\n"
            );
            let answer = say(listener, ask.as_bytes()).await;
            let seen = answer.split_once("\r\n\r\n").unwrap().1;
            assert!(seen.starts_with(&format!("GET /s/{id}/x?a=1&b=2\n")), "{seen}");
            for secret in
                [bearer.as_str(), login.split_once('=').unwrap().1, "lyceum_", "6.6.6.6", "evil.example", "root"]
            {
                assert!(!seen.contains(secret), "{secret} in {seen}");
            }
            for line in ["x-odd", "te:", "proxy-", "forwarded: ", "x-real-ip", "x-forwarded-prefix"] {
                assert!(!seen.lines().any(|seen| seen.starts_with(line)), "{line} in {seen}");
            }
            assert!(
                seen.contains("x-forwarded-for: 127.0.0.1\n") && seen.contains("x-forwarded-proto: http\n"),
                "{seen}"
            );

            let ask = format!("GET /s/{id}/evil HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close\r\n\r\n");
            let evil = say(listener, ask.as_bytes()).await.to_ascii_lowercase();
            for name in [
                "access-control-",
                "service-worker-allowed",
                "clear-site-data",
                "strict-transport",
                "public-key",
                "alt-svc",
                "lyceum_",
            ] {
                assert!(!evil.contains(name), "{name} in {evil}");
            }
            assert!(
                evil.contains(&format!("set-cookie: wide=1; path=/s/{id}/\r\n")) && evil.contains("x-kept: yes"),
                "{evil}"
            );

            let ask = format!(
                "GET /s/{id}/sw.js HTTP/1.1\r\nHost: {host}\r\n{lines}Service-Worker: script\r\nConnection: close\r\n\r\n"
            );
            let worker = statuses(&say(listener, ask.as_bytes()).await);
            assert_eq!(worker, [if path_mode { 403 } else { 200 }], "a service worker would stand before the portal");
        }
    }
}

#[tokio::test]
async fn stale_endpoint_of_the_running_portal() {
    let (world, app) = (World::new().await, App::start());
    let alice = world.user("alice").await;
    let id = world.session(alice, &app).await;
    let bearer = format!("Bearer {}", secret(&world.portal.sign_in("alice").await).await);
    let address = format!("{}/s/{id}/ws", world.portal.url);
    assert_eq!(socket(&address, &[("authorization", &bearer)]).await.map(drop), Ok(()));
    let ways = ways(&world, id).await;
    let ending = Ending {
        reason: EndReason::Exited,
        exit_code: Some(0),
        signal: None,
        at: world.portal.clock.now(),
        detail: String::new(),
    };
    assert!(world.portal.db().end_session(id, &ending).await.unwrap());
    world.portal.portal.sessions.reconcile().await;
    let requests = app.requests();
    for (listener, lines) in ways {
        let ask = format!("GET /s/{id}/a HTTP/1.1\r\nHost: a\r\n{lines}Connection: close\r\n\r\n");
        let found = statuses(&say(&listener, ask.as_bytes()).await);
        assert!(matches!(found[..], [410 | 401]), "{listener}: {found:?}");
    }
    assert_eq!(socket(&address, &[("authorization", &bearer)]).await.map(drop), Err(410));
    assert_eq!(app.requests(), requests, "the socket may be somebody else's by now");
}
