//! From the portal's origin to the apps': tickets, hands and cookies, and who is stopped.

use lyceum::web::AppsOrigin;

use super::world::{Browser, Mode, World};
use crate::{portal::cookie, proxy::app::App};

#[tokio::test]
async fn a_person_comes_in_from_either_side() {
    let (world, app) = (World::new().await, App::start());
    let id = world.session(world.user("alice").await, &app).await;
    for start in [&world.portal.url, &world.apps] {
        let mut browser = world.browser("alice").await;
        let journey = browser.visit(&format!("{start}/s/{id}/lab?path=a%2Fb&x=1")).await;
        assert_eq!(journey.status, 200, "{:#?}", journey.hops);
        assert!(journey.hops.len() <= 5, "{:#?}", journey.hops);
        assert_eq!(journey.url, format!("{}/s/{id}/lab?path=a%2Fb&x=1", world.apps));
        assert!(journey.text.starts_with(&format!("GET /s/{id}/lab?path=a%2Fb&x=1\n")), "{}", journey.text);
        let journey = browser.visit(&format!("{}/s/{id}/again", world.apps)).await;
        assert_eq!((journey.status, journey.hops.len()), (200, 1), "known from now on");
        assert!(!journey.text.contains("lyceum_"), "its cookies are nothing to the app: {}", journey.text);
    }
    let mut browser = world.browser("alice").await;
    browser.method = reqwest::Method::HEAD;
    assert_eq!(browser.visit(&format!("{}/s/{id}/", world.apps)).await.status, 200);
    // Without the last slash the app's cookie is not sent: that must not go round in circles.
    for start in [&world.portal.url, &world.apps] {
        let mut browser = world.browser("alice").await;
        for _ in 0..2 {
            let journey = browser.visit(&format!("{start}/s/{id}?x=1")).await;
            assert_eq!((journey.status, journey.url), (200, format!("{}/s/{id}/?x=1", world.apps)));
        }
    }
}

/// The row of a session says that it is running before the route table does.
#[tokio::test]
async fn who_comes_in_the_moment_it_runs_is_let_in() {
    let (world, app) = (World::new().await, App::start());
    let alice = world.user("alice").await;
    for start in [&world.portal.url, &world.apps] {
        let id = world.just_running(alice, &app).await;
        let journey = world.browser("alice").await.visit(&format!("{start}/s/{id}/")).await;
        assert_eq!((journey.status, &journey.url), (200, &format!("{}/s/{id}/", world.apps)), "{:#?}", journey.hops);
    }
}

#[tokio::test]
async fn the_cookies_say_no_more_than_they_must() {
    let (world, app) = (World::new().await, App::start());
    let id = world.session(world.user("alice").await, &app).await;
    let mut browser = world.browser("alice").await;
    let to_portal = browser.get(&format!("{}/s/{id}/", world.apps)).await;
    let hand = to_portal.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(hand.starts_with("lyceum_hand=") && hand.ends_with("; Path=/s/; HttpOnly; SameSite=Lax"), "{hand}");
    let address = to_portal.headers()["location"].to_str().unwrap().to_owned();
    let secret = cookie(&to_portal, "lyceum_hand").unwrap();
    assert!(!address.contains(&secret), "the address names the hand only: {address}");
    let to_apps = browser.get(&address).await;
    assert_eq!(to_apps.headers()["cache-control"], "no-store");
    let ticket = to_apps.headers()["location"].to_str().unwrap().to_owned();
    let redeemed = browser.get(&ticket).await;
    let app_cookie = redeemed.headers()["set-cookie"].to_str().unwrap();
    assert!(app_cookie.ends_with(&format!("; Path=/s/{id}/; HttpOnly; SameSite=Lax")), "{app_cookie}");

    // The cookie opens this one session alone.
    let sent = browser.cookie("lyceum_app_").unwrap();
    let other = world.session(world.user("bob").await, &app).await;
    let renamed = sent.replace(&id.short(), &other.short());
    assert_eq!(world.on_apps(&sent).get(&format!("/s/{id}/")).await.status(), 200);
    for (cookie, path) in [
        (sent.as_str(), format!("/s/{other}/")),
        (&renamed, format!("/s/{other}/")),
        (&format!("{sent}x"), format!("/s/{id}/")),
    ] {
        assert_eq!(world.on_apps(cookie).get(&path).await.status(), 401, "{cookie}");
    }
    assert_eq!(world.portal.anybody().with("cookie", &sent).get(&format!("/s/{id}/")).await.status(), 401);
}

#[tokio::test]
async fn the_login_cookie_opens_nothing_on_the_apps_origin() {
    let (world, app) = (World::new().await, App::start());
    let alice = world.user("alice").await;
    let id = world.session(alice, &app).await;
    let login = world.portal.new_login(alice).await;
    let caller = world.on_apps(&format!("lyceum_login={login}"));
    assert_eq!(caller.get(&format!("/s/{id}/")).await.status(), 401);
    assert_eq!(caller.post(&format!("/s/{id}/"), &serde_json::Value::Null).await.status(), 401);
    let visit = caller.visit(&format!("/s/{id}/")).await;
    assert!(visit.headers()["location"].to_str().unwrap().starts_with(&format!("{}/s/{id}/?", world.portal.url)));
    // So do tokens: the main listener is theirs.
    let token = world.portal.token(&world.portal.sign_in("alice").await, &[]).await.at(&world.apps);
    assert_eq!(token.get(&format!("/s/{id}/")).await.status(), 401);
    assert_eq!(app.requests(), 0);
}

#[tokio::test]
async fn a_ticket_is_for_one_browser_once_and_not_for_long() {
    let (world, app) = (World::new().await, App::start());
    let id = world.session(world.user("alice").await, &app).await;
    world.user("mallory").await;
    let ticket = async |browser: &mut Browser| {
        let asks = browser.get(&format!("{}/s/{id}/lab", world.apps)).await;
        let answer = browser.get(asks.headers()["location"].to_str().unwrap()).await;
        answer.headers()["location"].to_str().unwrap().to_owned()
    };
    let mut alice = world.browser("alice").await;

    // A page loaded again with its used ticket, with and without the cookie that came of it.
    let link = ticket(&mut alice).await;
    assert_eq!(alice.visit(&link).await.status, 200);
    let again = alice.visit(&link).await;
    assert_eq!((again.status, again.hops.len()), (200, 2));
    alice.forget("lyceum_app_");
    assert_eq!(alice.visit(&link).await.status, 200);

    // Too late: another one is asked for, and nobody notices.
    alice.forget("lyceum_app_");
    let link = ticket(&mut alice).await;
    world.portal.clock.advance(31);
    let late = alice.visit(&link).await;
    assert_eq!(late.status, 200);
    assert!(late.hops.len() >= 4, "{:#?}", late.hops);

    // Somebody else's ticket, used or not, never shows their session.
    alice.forget("lyceum_app_");
    let link = ticket(&mut alice).await;
    let mut bob = world.browser("mallory").await;
    let shown = bob.visit(&link).await;
    assert_eq!(shown.status, 403, "no hand: {:#?}", shown.hops);
    assert!(shown.text.contains("must accept one cookie") && !shown.text.contains("GET /s/"));
    let asks = bob.get(&format!("{}/s/{id}/", world.apps)).await;
    assert_eq!(asks.status(), 303, "now it has one");
    let link = ticket(&mut alice).await;
    let shown = bob.visit(&link).await;
    assert_eq!(shown.status, 404, "{:#?}", shown.hops);
    let shown = Browser::default().visit(&link).await;
    assert_eq!(shown.status, 403);

    // Nor for a browser of nobody's that has a hand already.
    let mut nobody = Browser::default();
    nobody.get(&format!("{}/s/{id}/", world.apps)).await;
    let shown = nobody.visit(&ticket(&mut alice).await).await;
    assert!(shown.status == 200 && shown.url.contains("/login?next="), "{:#?}", shown.hops);
    assert_eq!(nobody.cookie("lyceum_app_"), None);
}

/// A hostile user sends a link, or plants cookies from a port of their own, so that another
/// person sees the hostile session: its scripts would run beside that person's sessions.
#[tokio::test]
async fn nobody_is_led_into_another_persons_session() {
    let (world, app) = (World::new().await, App::start());
    let id = world.session(world.user("mallory").await, &app).await;
    world.user("alice").await;
    let mut mallory = world.browser("mallory").await;
    assert_eq!(mallory.visit(&format!("{}/s/{id}/", world.apps)).await.status, 200);
    let planted = mallory.cookie("lyceum_app_").unwrap();
    let (name, value) = planted.split_once('=').unwrap();
    let hand = mallory.cookie("lyceum_hand").unwrap();

    let mut alice = world.browser("alice").await;
    alice.put(name, "/s/", value);
    let shown = alice.visit(&format!("{}/s/{id}/", world.apps)).await;
    assert_eq!(shown.status, 404, "{:#?}", shown.hops);

    let mut alice = world.browser("alice").await;
    alice.put("lyceum_hand", "/s/", hand.split_once('=').unwrap().1);
    mallory.forget("lyceum_app_");
    let asks = mallory.get(&format!("{}/s/{id}/", world.apps)).await;
    let ticket = mallory.get(asks.headers()["location"].to_str().unwrap()).await;
    let shown = alice.visit(ticket.headers()["location"].to_str().unwrap()).await;
    assert_eq!(shown.status, 404, "{:#?}", shown.hops);
    assert_eq!(alice.cookie("lyceum_app_"), None);

    // Nor by a second login cookie beside her own.
    let mut alice = world.browser("alice").await;
    alice.put(name, "/s/", value);
    alice.put("lyceum_login", "/s/", mallory.cookie("lyceum_login").unwrap().split_once('=').unwrap().1);
    let shown = alice.visit(&format!("{}/s/{id}/", world.apps)).await;
    assert!(shown.status == 401 && shown.text.contains("two sign-in cookies"), "{:#?}", shown.hops);
}

#[tokio::test]
async fn cookie_tossing() {
    for mode in [Mode::Port, Mode::Names] {
        no_tossed_cookie_wins(mode).await;
    }
}

async fn no_tossed_cookie_wins(mode: Mode) {
    let (world, app) = (World::in_mode(mode).await, App::start());
    let alice = world.user("alice").await;
    let id = world.session(alice, &app).await;
    let (mut browser, good) = world.opened("alice", id).await;
    let origin = world.app_of(id);

    // Two are nobody's, even where they are alike.
    let requests = app.requests();
    for two in [format!("{good}; {good}"), format!("{good}; lyceum_app_{}=x", id.short())] {
        assert_eq!(world.on_app(id, &two).get(&format!("/s/{id}/")).await.status(), 401, "{two}");
    }
    assert_eq!(app.requests(), requests);
    browser.put(good.split_once('=').unwrap().0, &format!("/s/{id}/lab"), "tossed");
    let shown = browser.visit(&format!("{origin}/s/{id}/lab")).await;
    assert_eq!((shown.status, shown.hops.len()), (403, 1), "a page, and no circles");
    assert!(crate::pages::markup::one_line(&shown.text).contains("Try again"));

    // What an app sets never has one of our names.
    let evil = world.on_app(id, &good).get(&format!("/s/{id}/evil")).await;
    let set: Vec<_> = evil.headers().get_all("set-cookie").iter().collect();
    assert_eq!(set, [&format!("wide=1; Path=/s/{id}/")]);

    // An app's letters beside ours hide nothing.
    let login = world.portal.new_login(alice).await;
    let beside = world.portal.anybody().with("cookie", &format!("city=Zürich; lyceum_login={login}"));
    assert_eq!(beside.get("/api/v1/me").await.status(), 200);
}

#[tokio::test]
async fn a_browser_that_keeps_no_cookies_is_told_so() {
    let (world, app) = (World::new().await, App::start());
    let id = world.session(world.user("alice").await, &app).await;
    let mut browser = world.browser("alice").await;
    browser.refuses.push(world.apps.clone());
    let shown = browser.visit(&format!("{}/s/{id}/lab", world.portal.url)).await;
    assert_eq!(shown.status, 403, "{:#?}", shown.hops);
    assert!(shown.text.contains("must accept one cookie") && shown.text.contains(&format!("{}/s/{id}/", world.apps)));
    browser.refuses.clear();
    assert_eq!(browser.visit(&format!("{}/s/{id}/", world.apps)).await.status, 200, "and it works once it does");
}

#[tokio::test]
async fn a_login_that_has_ended_opens_nothing() {
    let (world, app) = (World::new().await, App::start());
    let id = world.session(world.user("alice").await, &app).await;
    let mut browser = world.browser("alice").await;
    assert_eq!(browser.visit(&format!("{}/s/{id}/", world.apps)).await.status, 200);
    let (app_cookie, login) = (browser.cookie("lyceum_app_").unwrap(), browser.cookie("lyceum_login").unwrap());
    let caller = world.portal.anybody().with("cookie", &login).with("origin", &world.portal.url);
    assert_eq!(caller.post("/api/v1/logout", &serde_json::Value::Null).await.status(), 204);
    world.portal.portal.access.poll().await.unwrap();
    let requests = app.requests();
    assert_eq!(world.on_apps(&app_cookie).get(&format!("/s/{id}/")).await.status(), 401);
    let shown = browser.visit(&format!("{}/s/{id}/lab", world.apps)).await;
    assert!(shown.status == 200 && shown.url.contains("/login?next=%2Fs%2F"), "{:#?}", shown.hops);
    assert_eq!(app.requests(), requests);
}

/// Behind a reverse proxy with names of their own nothing is shared but what is handed over.
#[tokio::test]
async fn two_hosts() {
    let world = World::with(|config| {
        config.public_url = Some("https://portal.example.org".parse().unwrap());
        config.apps = AppsOrigin::Url("https://apps.example.org".to_owned());
    })
    .await;
    let app = App::start();
    let alice = world.user("alice").await;
    let id = world.session(alice, &app).await;
    let login = format!("__Host-lyceum_login={}", world.portal.new_login(alice).await);
    let at = |caller: crate::portal::Caller, host: &str| caller.with("host", host);
    let location = |answer: &reqwest::Response| answer.headers()["location"].to_str().unwrap().to_owned();

    let portal = at(world.portal.anybody(), "portal.example.org").with("cookie", &login);
    let first = portal.visit(&format!("/s/{id}/lab")).await;
    assert_eq!(location(&first), format!("https://apps.example.org/s/{id}/lab"));
    let apps = at(world.portal.anybody().at(&world.apps), "apps.example.org");
    let asks = apps.visit(&format!("/s/{id}/lab")).await;
    let hand = asks.headers()["set-cookie"].to_str().unwrap();
    assert!(hand.ends_with("; Secure"), "{hand}");
    let hand = hand.split(';').next().unwrap().to_owned();
    let back = location(&asks);
    let path = back.strip_prefix("https://portal.example.org").expect("to the portal");
    let ticket = location(&portal.visit(path).await);
    let path = ticket.strip_prefix("https://apps.example.org").expect("to the apps");
    let redeemed = apps.clone().with("cookie", &hand).visit(path).await;
    assert_eq!(location(&redeemed), format!("/s/{id}/lab"));
    let cookie = redeemed.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let shown = apps.clone().with("cookie", &cookie).visit(&format!("/s/{id}/lab")).await;
    assert_eq!(shown.status(), 200);
    let text = shown.text().await.unwrap();
    assert!(text.contains("x-forwarded-proto: https") && text.contains("x-forwarded-host: apps.example.org"), "{text}");
}
