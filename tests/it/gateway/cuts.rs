//! `logout_cuts_sockets`: whatever lives by somebody's access ends with it, within seconds.

use std::time::Instant;

use futures_util::StreamExt;
use lyceum::model::SessionId;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::world::{DEADLINE, Socket, World, socket};
use crate::{portal::Caller, proxy::app::App};

/// How long after its access something may live.
const WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

/// What lives by one person's access: a socket and a stream by the app's cookie, the same by token.
struct Live {
    by_cookie: Socket,
    by_token: Socket,
    stream_by_cookie: reqwest::Response,
    stream_by_token: reqwest::Response,
    login: Caller,
    token_id: String,
}

async fn live(world: &World, name: &str, id: SessionId) -> Live {
    let mut browser = world.browser(name).await;
    assert_eq!(browser.visit(&format!("{}/s/{id}/", world.apps)).await.status, 200);
    let (cookie, login) = (browser.cookie("lyceum_app_").unwrap(), browser.cookie("lyceum_login").unwrap());
    let login = world.portal.anybody().with("cookie", &login).with("origin", &world.portal.url);
    let made: Value = login.post("/api/v1/tokens", &json!({ "name": "live" })).await.json().await.unwrap();
    let bearer = format!("Bearer {}", made["secret"].as_str().unwrap());
    let headers = [("cookie", cookie.as_str()), ("origin", &world.apps)];
    let mut stream_by_cookie = world.on_apps(&cookie).get(&format!("/s/{id}/endless")).await;
    let mut stream_by_token =
        world.portal.anybody().with("authorization", &bearer).get(&format!("/s/{id}/endless")).await;
    for stream in [&mut stream_by_cookie, &mut stream_by_token] {
        assert_eq!(stream.chunk().await.unwrap().unwrap(), "first\n");
    }
    Live {
        by_cookie: socket(&format!("{}/s/{id}/ws", world.apps), &headers).await.unwrap(),
        by_token: socket(&format!("{}/s/{id}/ws", world.portal.url), &[("authorization", &bearer)]).await.unwrap(),
        stream_by_cookie,
        stream_by_token,
        login,
        token_id: made["id"].as_str().unwrap().to_owned(),
    }
}

async fn is_cut(socket: &mut Socket) {
    let ended = timeout(WITHIN, socket.next()).await.expect("cut in time");
    assert!(!matches!(ended, Some(Ok(_))), "{ended:?}");
}

async fn is_broken(stream: &mut reqwest::Response) {
    let ended = timeout(WITHIN, stream.chunk()).await.expect("cut in time");
    assert!(ended.is_err(), "an answer that was cut must not look whole: {ended:?}");
}

async fn still_lives(socket: &mut Socket) {
    use futures_util::SinkExt;
    use tokio_tungstenite::tungstenite::Message;
    socket.send(Message::text("still here")).await.unwrap();
    let echo = timeout(DEADLINE, socket.next()).await.unwrap();
    assert_eq!(echo.unwrap().unwrap(), Message::text("still here"));
}

#[tokio::test]
async fn logout_cuts_sockets() {
    let (world, app) = (World::new().await, App::start());
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    let (hers, his) = (world.session(alice, &app).await, world.session(bob, &app).await);
    let mut his_live = live(&world, "bob", his).await;

    // Signing out ends what lives by that login; her token, and another login, live on.
    let (mut first, mut second) = (live(&world, "alice", hers).await, live(&world, "alice", hers).await);
    let began = Instant::now();
    assert_eq!(first.login.post("/api/v1/logout", &Value::Null).await.status(), 204);
    is_cut(&mut first.by_cookie).await;
    is_broken(&mut first.stream_by_cookie).await;
    assert!(began.elapsed() < WITHIN);
    still_lives(&mut first.by_token).await;
    still_lives(&mut second.by_cookie).await;

    // A token that is revoked ends what lives by it.
    let answer = second.login.delete(&format!("/api/v1/tokens/{}", second.token_id)).await;
    assert_eq!(answer.status(), 204);
    is_cut(&mut second.by_token).await;
    is_broken(&mut second.stream_by_token).await;
    still_lives(&mut second.by_cookie).await;

    // Everywhere is everywhere.
    let mut third = live(&world, "alice", hers).await;
    let everywhere = third.login.clone().with("sec-fetch-site", "same-origin");
    let answer = everywhere.post_form("/settings/sign-out-everywhere", &[]).await;
    assert!(answer.status().is_redirection(), "{}", answer.status());
    is_cut(&mut second.by_cookie).await;
    is_broken(&mut second.stream_by_cookie).await;
    is_cut(&mut third.by_cookie).await;
    is_broken(&mut third.stream_by_cookie).await;
    still_lives(&mut third.by_token).await;

    // A disabled person has nothing left at all.
    let mut fourth = live(&world, "alice", hers).await;
    world.portal.db().set_disabled(alice, true, world.portal.by()).await.unwrap();
    is_cut(&mut fourth.by_cookie).await;
    is_cut(&mut fourth.by_token).await;
    is_broken(&mut fourth.stream_by_cookie).await;
    is_broken(&mut fourth.stream_by_token).await;
    is_cut(&mut third.by_token).await;

    still_lives(&mut his_live.by_cookie).await;
    still_lives(&mut his_live.by_token).await;
    let tunnels = world.portal.portal.gateway.proxy.tunnels();
    // The portal's tasks run on this very thread, so they are given way to.
    let gone = async {
        while tunnels.count(|tunnel| tunnel.holder.user == alice) != 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, gone).await.expect("nothing of hers is left");
}

/// The app thinks while the access ends: what it answers then must not come through, and
/// must not live on either.
#[tokio::test]
async fn an_answer_that_comes_too_late_is_kept_back() {
    let (world, app) = (World::new().await, App::start());
    let alice = world.user("alice").await;
    let id = world.session(alice, &app).await;
    let browser = world.portal.sign_in("alice").await;
    let token = world.portal.token(&browser, &[]).await;
    let (asking, path) = (token.clone(), format!("/s/{id}/hold"));
    let answer = tokio::spawn(async move { asking.get(&path).await });
    timeout(DEADLINE, app.seen.holding.notified()).await.unwrap();
    world.portal.db().set_disabled(alice, true, world.portal.by()).await.unwrap();
    world.portal.portal.access.poll().await.unwrap();
    app.seen.release.notify_one();
    let answer = timeout(DEADLINE, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), 401);
    assert_eq!(token.get(&format!("/s/{id}/")).await.status(), 401);
}

/// A login also ends by its age, which nobody announces: the next look finds it.
#[tokio::test]
async fn a_login_ends_by_its_age() {
    let (world, app) = (World::new().await, App::start());
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    let mut live = live(&world, "alice", world.session(alice, &app).await).await;
    world.portal.clock.advance(8 * 86_400);
    world.portal.db().set_disabled(bob, true, world.portal.by()).await.unwrap();
    is_cut(&mut live.by_cookie).await;
    is_broken(&mut live.stream_by_cookie).await;
    still_lives(&mut live.by_token).await;
}
