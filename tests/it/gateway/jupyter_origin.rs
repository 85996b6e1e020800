//! `jupyter_origin` and `ws_cross_origin`: a token injected by us switches off the app's own
//! checks of origin, so ours must make both.

use futures_util::{SinkExt, StreamExt};
use lyceum::model::SessionId;
use reqwest::Response;
use tokio_tungstenite::tungstenite::Message;

use super::world::{MODES, Mode, World, raw, socket};
use crate::{
    portal::{Caller, DOMAIN},
    proxy::app::App,
};

type Proof = (&'static [(&'static str, &'static str)], [bool; 3]);

/// What a request brings besides its cookie, and whether it may change something, read, or
/// upgrade. `OURS` is the app's origin, `PORTAL` the portal's where that is another one, and
/// `SIBLING` that of another session of the same person's.
const PROOFS: [Proof; 18] = [
    (&[], [false, true, false]),
    (&[("origin", "OURS")], [true, true, true]),
    (&[("sec-fetch-site", "same-origin")], [true, true, false]),
    (&[("sec-fetch-site", "same-origin"), ("origin", "OURS")], [true, true, true]),
    (&[("sec-fetch-site", "none")], [false, true, false]),
    (&[("sec-fetch-site", "same-site"), ("origin", "PORTAL")], [false, false, false]),
    (&[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")], [false; 3]),
    (&[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")], [false; 3]),
    (
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")],
        [false, true, false],
    ),
    (&[("origin", "PORTAL")], [false, true, false]),
    (&[("origin", "SIBLING")], [false, true, false]),
    (&[("sec-fetch-site", "same-site"), ("origin", "SIBLING")], [false, false, false]),
    (&[("origin", "null")], [false, true, false]),
    (&[("origin", "https://evil.example")], [false, true, false]),
    (&[("origin", "OURS.evil.example")], [false, true, false]),
    (&[("origin", "OURS"), ("origin", "OURS")], [false, true, false]),
    (&[("origin", "http://127.0.0.1:1"), ("x-csrf-token", "TOKEN")], [false, true, false]),
    (&[("referer", "OURS/s/")], [false, true, false]),
];

#[tokio::test]
async fn jupyter_origin() {
    for mode in MODES {
        let world = World::in_mode(mode).await;
        let app = App::start();
        let alice = world.user("alice").await;
        let (id, other) = (world.session(alice, &app).await, world.session(alice, &app).await);
        let (_, cookie) = world.opened("alice", id).await;
        let ours = world.app_of(id);
        let elsewhere = "http://127.0.0.1:1".to_owned();
        let portal = if mode == Mode::Path { elsewhere.clone() } else { world.portal.url.clone() };
        let sibling = if mode == Mode::Names { world.app_of(other) } else { elsewhere };
        let csrf = world.portal.sign_in("alice").await.csrf_token;
        let caller = world.portal.anybody().at(&ours).with("cookie", &cookie);
        for (headers, expected) in PROOFS {
            let fill = |value: &str| {
                let value = value.replace("OURS", &ours).replace("PORTAL", &portal);
                value.replace("SIBLING", &sibling).replace("TOKEN", &csrf)
            };
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, fill(value))).collect();
            let caller = headers.iter().fold(caller.clone(), |caller, (name, value)| caller.with(name, value));
            let [changes, reads, upgrades] = expected;
            let told = format!("{mode:?}, {headers:?}");
            for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "REPORT"] {
                let before = app.requests();
                let answer = caller.request(method, &format!("/s/{id}/api/contents")).body("x").send().await.unwrap();
                check(answer, changes, &format!("{method} {told}")).await;
                assert_eq!(app.requests() - before, usize::from(changes), "{method} {told}");
            }
            for method in ["GET", "HEAD"] {
                let answer = caller.request(method, &format!("/s/{id}/api/contents")).send().await.unwrap();
                assert_eq!(answer.status(), if reads { 200 } else { 403 }, "{method} {told}");
            }
            let mut all: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            all.push(("cookie", &cookie));
            let opened = socket(&format!("{ours}/s/{id}/ws"), &all).await;
            assert_eq!(opened.map(drop), if upgrades { Ok(()) } else { Err(403) }, "{told}");
        }
        with_a_token(&world, id, &portal).await;
    }
}

/// No browser sends a token by itself: nothing needs to be proved with one.
async fn with_a_token(world: &World, id: SessionId, elsewhere: &str) {
    let browser = world.portal.sign_in("alice").await;
    let token = world.portal.token(&browser, &["sessions:connect"]).await.with("origin", elsewhere);
    let answer = token.request("POST", &format!("/s/{id}/api/contents")).body("x").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(!answer.text().await.unwrap().contains("lyc_"), "it is nothing to the app");
    let secret = secret_of(&browser).await;
    for scheme in ["Bearer", "token", "bearer", "Token"] {
        let sent = format!("{scheme} {secret}");
        let headers = [("authorization", sent.as_str()), ("origin", elsewhere)];
        let mut socket = socket(&format!("{}/s/{id}/ws", world.portal.url), &headers).await.unwrap();
        socket.send(Message::text(scheme)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(scheme));
    }
}

pub async fn secret_of(browser: &Caller) -> String {
    let made: serde_json::Value =
        browser.post("/api/v1/tokens", &serde_json::json!({ "name": "test" })).await.json().await.unwrap();
    made["secret"].as_str().unwrap().to_owned()
}

async fn check(answer: Response, passes: bool, told: &str) {
    let status = answer.status();
    if passes {
        assert_eq!(status, 200, "{told}");
    } else {
        assert_eq!(status, 403, "{told}");
        assert!(answer.text().await.unwrap().contains("/problems/not-same-origin"), "{told}");
    }
}

/// An upgrade is an upgrade however it is spelled, and a GET that asks for one reads nothing.
#[tokio::test]
async fn ws_cross_origin() {
    for mode in [Mode::Port, Mode::Names] {
        no_upgrade_from_elsewhere(mode).await;
    }
}

async fn no_upgrade_from_elsewhere(mode: Mode) {
    let (world, app) = (World::in_mode(mode).await, App::start());
    let alice = world.user("alice").await;
    let (id, other) = (world.session(alice, &app).await, world.session(alice, &app).await);
    let (browser, cookie) = world.opened("alice", id).await;
    let login = browser.cookie("lyceum_login").unwrap();
    let apps = world.app_of(id);
    let host = apps.trim_start_matches("http://").to_owned();
    let before = app.requests();
    for upgrade in [
        "Connection: Upgrade\r\nUpgrade: websocket",
        "Connection: keep-alive, upgrade\r\nUpgrade: WebSocket",
        "Connection: upgrade\r\nUpgrade: anything",
        "Upgrade: websocket",
        "Connection: upgrade\r\nUpgrade: h2c",
    ] {
        for origin in ["Origin: https://evil.example\r\n", "Origin: null\r\n", "", "Sec-Fetch-Site: same-origin\r\n"] {
            let ask = format!(
                "GET /s/{id}/ws HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n{upgrade}\r\n{origin}\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            let (status, text) = raw(&apps, &ask).await;
            assert_eq!(status, 403, "{ask}{text}");
        }
    }
    // On the portal's own listener a cookie upgrades nothing in this mode, whatever it proves.
    let portal = world.portal.url.clone();
    for (cookie, origin) in [(&login, &portal), (&login, &apps), (&cookie, &portal)] {
        let opened = socket(&format!("{portal}/s/{id}/ws"), &[("cookie", cookie), ("origin", origin)]).await;
        assert!(matches!(opened, Err(401 | 403)), "{cookie} {origin}");
    }
    assert_eq!(app.requests(), before);
    // A name that is not ours proves nothing by agreeing with itself, nor does a neighbour's.
    let port = host.rsplit_once(':').unwrap().1;
    let ask = |name: &str, origin: &str| {
        format!(
            "GET /s/{id}/ws HTTP/1.1\r\nHost: {name}:{port}\r\nOrigin: {origin}\r\nCookie: {cookie}\r\n\
             Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
    };
    // As the portal's own, such a name has no cookie of an app's.
    let status = if mode == Mode::Names { 401 } else { 403 };
    assert_eq!(raw(&apps, &ask("evil.example", &format!("http://evil.example:{port}"))).await.0, status);
    if mode == Mode::Names {
        let name = |url: &str| url.trim_start_matches("http://").rsplit_once(':').unwrap().0.to_owned();
        let (own, sibling) = (name(&apps), name(&world.app_of(other)));
        for (host, origin, status) in [
            (sibling.as_str(), apps.as_str(), 404),
            (&sibling, &world.app_of(other), 404),
            (&own, &world.app_of(other), 403),
            (&own, &portal, 403),
            (&format!("{own}."), &apps, 404),
            (DOMAIN, &apps, 404),
        ] {
            assert_eq!(raw(&apps, &ask(host, origin)).await.0, status, "{host} {origin}");
        }
    }
    assert_eq!(app.requests(), before);
}
