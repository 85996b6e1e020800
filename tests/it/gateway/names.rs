//! Each session on a name of its own: which requests such a name takes, how a person is handed
//! over to it, and what a neighbouring name can do, by plain HTTP on this machine and by HTTPS.

use lyceum::{model::SessionId, web::AppsOrigin};
use reqwest::Response;

use super::world::{Mode, World};
use crate::{
    portal::{Caller, DOMAIN, TestPortal},
    proxy::app::App,
};

#[tokio::test]
async fn a_person_is_handed_over_to_a_sessions_own_name() {
    let (world, app) = (World::in_mode(Mode::Names).await, App::start());
    let alice = world.user("alice").await;
    let (id, second) = (world.session(alice, &app).await, world.session(alice, &app).await);
    let origin = world.app_of(id);
    for start in [&world.portal.url, &origin] {
        let mut browser = world.browser("alice").await;
        let journey = browser.visit(&format!("{start}/s/{id}/lab?path=a%2Fb&x=1")).await;
        assert_eq!(journey.status, 200, "{:#?}", journey.hops);
        assert!(journey.hops.len() <= 5, "{:#?}", journey.hops);
        assert_eq!(journey.url, format!("{origin}/s/{id}/lab?path=a%2Fb&x=1"));
        let journey = browser.visit(&format!("{origin}/s/{id}/again")).await;
        assert_eq!((journey.status, journey.hops.len()), (200, 1), "known from now on");
        assert!(!journey.text.contains("lyceum_"), "its cookies are nothing to the app: {}", journey.text);
        assert_eq!(browser.cookies(&format!("{}/s/{second}/", world.app_of(second))), "", "nor to a neighbour");
        assert_eq!(browser.cookies(&format!("http://{DOMAIN}/s/{id}/")), "");
        // The bare name leads there too.
        let journey = browser.visit(&format!("{origin}/")).await;
        assert_eq!((journey.status, journey.url), (200, format!("{origin}/s/{id}/")));
    }
    // Programs are told of both ways, and use the portal's.
    let caller = world.portal.sign_in("alice").await;
    let session: serde_json::Value = caller.get(&format!("/api/v1/sessions/{id}")).await.json().await.unwrap();
    assert_eq!(
        (session["url"].as_str(), session["open_url"].as_str()),
        (Some(format!("/s/{id}/").as_str()), Some(format!("{origin}/s/{id}/").as_str()))
    );
    let token = world.portal.token(&caller, &["sessions:connect"]).await;
    assert_eq!(token.get(&format!("/s/{id}/a")).await.status(), 200);
    assert_eq!(token.at(&origin).get(&format!("/s/{id}/a")).await.status(), 401, "the apps' names know no tokens");
}

#[tokio::test]
async fn a_name_takes_its_own_session_and_nothing_else() {
    let (world, app) = (World::in_mode(Mode::Names).await, App::start());
    let alice = world.user("alice").await;
    let (id, second) = (world.session(alice, &app).await, world.session(alice, &app).await);
    let bobs = world.session(world.user("bob").await, &app).await;
    let (_, cookie) = world.opened("alice", id).await;
    let (_, other) = world.opened("alice", second).await;
    let login = format!("lyceum_login={}", world.portal.new_login(alice).await);
    let all = format!("{cookie}; {other}; {login}");
    let requests = app.requests();
    let port = world.portal.url.rsplit_once(':').unwrap().1.to_owned();
    let name = |id: SessionId| format!("{id}.{DOMAIN}:{port}");
    for (host, path) in [
        (name(id), format!("/s/{second}/")),
        (name(second), format!("/s/{id}/")),
        (name(bobs), format!("/s/{id}/")),
        (name(id), format!("/s/{bobs}/")),
        (format!("{id}.{DOMAIN}.:{port}"), format!("/s/{id}/")),
        (format!("x.{id}.{DOMAIN}:{port}"), format!("/s/{id}/")),
        (format!("{id}x.{DOMAIN}"), format!("/s/{id}/")),
        (format!("check.{DOMAIN}"), format!("/s/{id}/")),
        (DOMAIN.to_owned(), format!("/s/{id}/")),
        (name(SessionId::new()), format!("/s/{id}/")),
        // The portal is on none of these names.
        (name(id), "/".to_owned() + "settings"),
        (name(id), "/login".to_owned()),
        (name(id), "/api/v1/me".to_owned()),
        (name(id), "/events".to_owned()),
        (format!("{id}.{DOMAIN}."), "/settings".to_owned()),
        (DOMAIN.to_uppercase(), "/settings".to_owned()),
        (format!("portal.{DOMAIN}"), "/".to_owned()),
    ] {
        for method in ["GET", "HEAD", "POST"] {
            let caller = world.portal.anybody().with("host", &host).with("cookie", &all);
            let caller = caller.with("sec-fetch-site", "same-origin");
            let answer = caller.request(method, &path).send().await.unwrap();
            let expected = if (method, path.as_str()) == ("POST", "/") { 405 } else { 404 };
            assert_eq!(answer.status(), expected, "{method} {host}{path}");
            assert!(!answer.text().await.unwrap().contains("alice"), "{method} {host}{path}");
        }
    }
    // By a name that is not the apps' at all it is the portal that is asked, where a cookie of an app's opens nothing.
    for host in [format!("{id}.apps.evil.example"), format!("{id}.x{DOMAIN}"), "127.0.0.1".to_owned()] {
        let caller = world.portal.anybody().with("host", &host).with("cookie", &format!("{cookie}; {other}"));
        assert_eq!(caller.get(&format!("/s/{id}/")).await.status(), 401, "{host}");
    }
    // The login cookie opens nothing on an app's name.
    assert_eq!(world.on_app(id, &login).get(&format!("/s/{id}/")).await.status(), 401);
    assert_eq!(world.on_app(id, &other).get(&format!("/s/{id}/")).await.status(), 401);
    assert_eq!(app.requests(), requests);
    assert_eq!(world.on_app(id, &cookie).get(&format!("/s/{id}/")).await.status(), 200);
    assert_eq!(world.on_app(id, &cookie).get("/static/none.css").await.status(), 404);
}

/// What scripts of a neighbouring name can do by plain HTTP on this machine: put cookies there.
#[tokio::test]
async fn a_neighbours_cookie_never_wins() {
    let (world, app) = (World::in_mode(Mode::Names).await, App::start());
    let (alice, mallory) = (world.user("alice").await, world.user("mallory").await);
    let (id, bad) = (world.session(alice, &app).await, world.session(mallory, &app).await);
    let below = format!(".{DOMAIN}");
    let (mallorys, planted) = world.opened("mallory", bad).await;

    // Beside the good one: a page, and no circles.
    let (mut browser, good) = world.opened("alice", id).await;
    browser.put_at(&below, good.split_once('=').unwrap().0, "/", "tossed");
    let shown = browser.visit(&format!("{}/s/{id}/", world.app_of(id))).await;
    assert_eq!((shown.status, shown.hops.len()), (403, 1));
    assert!(crate::pages::markup::one_line(&shown.text).contains("Try again"));

    // Alone, and of another person's making: it is nobody's, and she comes in as herself.
    for value in ["tossed", planted.split_once('=').unwrap().1] {
        let mut browser = world.browser("alice").await;
        browser.put_at(&below, good.split_once('=').unwrap().0, "/s/", value);
        let shown = browser.visit(&format!("{}/s/{id}/", world.app_of(id))).await;
        assert_eq!(shown.status, 403, "hers lies beside it now: {:#?}", shown.hops);
        assert!(shown.text.contains("must accept one cookie"), "{}", shown.text);
    }

    // A login cookie means nothing there, whoever's it is.
    for value in ["tossed", mallorys.cookie("lyceum_login").unwrap().split_once('=').unwrap().1] {
        let mut browser = world.browser("alice").await;
        browser.put_at(&below, "lyceum_login", "/", value);
        let shown = browser.visit(&format!("{}/s/{id}/", world.app_of(id))).await;
        assert_eq!(shown.status, 200, "{:#?}", shown.hops);
        assert!(!shown.text.contains("lyceum_"), "{}", shown.text);
    }
    // A hand that is not hers alone brings no ticket back.
    let mut browser = world.browser("alice").await;
    browser.put_at(&below, "lyceum_hand", "/s/", &"x".repeat(43));
    let shown = browser.visit(&format!("{}/s/{id}/", world.app_of(id))).await;
    assert_eq!(shown.status, 200, "the hand is a browser's, whoever put it there: {:#?}", shown.hops);
    browser.put_at(&below, "lyceum_hand", "/", &"y".repeat(43));
    browser.forget("lyceum_app_");
    let shown = browser.visit(&format!("{}/s/{id}/", world.app_of(id))).await;
    assert_eq!(shown.status, 403, "{:#?}", shown.hops);
}

/// By HTTPS a prefix keeps neighbours' cookies out altogether.
#[tokio::test]
async fn names_by_https() {
    let portal = TestPortal::start_with(|config| {
        config.apps = AppsOrigin::Subdomain("apps.example.org".to_owned());
        config.public_url = Some("https://portal.example.org:8443".parse().unwrap());
        config.hsts = 86_400;
    })
    .await;
    let (world, app) = (World::of(portal, None), App::start());
    let alice = world.user("alice").await;
    let id = world.session(alice, &app).await;
    let login = format!("__Host-lyceum_login={}", world.portal.new_login(alice).await);
    let at = |host: &str| world.portal.anybody().with("host", host);
    let location = |answer: &Response| answer.headers()["location"].to_str().unwrap().to_owned();
    let set = |answer: &Response| answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    let (name, origin) = (format!("{id}.apps.example.org:8443"), format!("https://{id}.apps.example.org:8443"));

    let portal = at("portal.example.org:8443").with("cookie", &login);
    let first = portal.visit(&format!("/s/{id}/lab")).await;
    assert_eq!(location(&first), format!("{origin}/s/{id}/lab"));
    assert_eq!(first.headers()["strict-transport-security"], "max-age=86400", "for this name alone");
    let home = portal.visit("/").await;
    let policy = home.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.ends_with("form-action 'self' https://*.apps.example.org:8443"), "{policy}");

    let asks = at(&name).visit(&format!("/s/{id}/lab")).await;
    assert_eq!(asks.headers()["strict-transport-security"], "max-age=86400");
    let hand = set(&asks);
    assert!(
        hand.starts_with("__Host-lyceum_hand=") && hand.contains("; Path=/; ") && hand.ends_with("; Secure"),
        "{hand}"
    );
    let hand = hand.split(';').next().unwrap().to_owned();
    let back = location(&asks);
    let path = back.strip_prefix("https://portal.example.org:8443").expect("to the portal");
    let ticket = location(&portal.visit(path).await);
    let path = ticket.strip_prefix(&origin).expect("to the session's name");
    // Of a cookie without the prefix nobody takes notice: a neighbour may have put it there.
    let tossed = format!("lyceum_hand={}; {hand}; lyceum_app_{}=x", "x".repeat(43), id.short());
    let redeemed = at(&name).with("cookie", &tossed).visit(path).await;
    assert_eq!(location(&redeemed), format!("/s/{id}/lab"));
    let cookie = set(&redeemed);
    let whole = cookie.starts_with(&format!("__Host-lyceum_app_{}=", id.short()));
    assert!(whole && cookie.contains("; Path=/; HttpOnly; ") && cookie.ends_with("; Secure"), "{cookie}");
    assert!(!cookie.contains("Domain"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();

    let ask = async |cookies: &str| at(&name).with("cookie", cookies).get(&format!("/s/{id}/lab")).await;
    let bare = cookie.strip_prefix("__Host-").unwrap();
    for (cookies, status) in [
        (cookie.clone(), 200),
        (format!("{bare}; {cookie}; lyceum_app_{}=tossed", id.short()), 200),
        (bare.to_owned(), 401),
        (format!("{cookie}; {cookie}"), 401),
        (login.clone(), 401),
    ] {
        assert_eq!(ask(&cookies).await.status(), status, "{cookies}");
    }
    let seen = ask(&format!("{bare}; a=1; {cookie}; {login}")).await.text().await.unwrap();
    assert!(seen.contains("cookie: a=1\n") && !seen.contains("lyceum_"), "{seen}");
    assert!(seen.contains("x-forwarded-proto: https") && seen.contains(&format!("x-forwarded-host: {name}")), "{seen}");
    let evil = at(&name).with("cookie", &cookie).get(&format!("/s/{id}/evil")).await;
    let set: Vec<_> = evil.headers().get_all("set-cookie").iter().collect();
    assert_eq!(set, [&format!("wide=1; Path=/s/{id}/")], "no Domain, none of our names");
    assert_eq!(evil.headers().get("strict-transport-security"), None, "and what an app says is its own");
}

/// Words of a request about its own way change no address and no cookie.
#[tokio::test]
async fn addresses_are_settings_and_no_requests_word() {
    for mode in [Mode::Port, Mode::Names] {
        let (world, app) = (World::in_mode(mode).await, App::start());
        let id = world.session(world.user("alice").await, &app).await;
        let (mut browser, _) = world.opened("alice", id).await;
        browser.forget("lyceum_app_");
        let lying = |caller: Caller| {
            let caller = caller.with("x-forwarded-host", "evil.example").with("x-forwarded-proto", "https");
            let caller = caller.with("forwarded", "host=evil.example;proto=https;for=6.6.6.6");
            caller.with("x-original-host", "evil.example").with("x-forwarded-port", "1")
        };
        let login = browser.cookie("lyceum_login").unwrap();
        let portal = lying(world.portal.anybody().with("cookie", &login));
        let to = portal.visit(&format!("/s/{id}/")).await.headers()["location"].to_str().unwrap().to_owned();
        assert_eq!(to, format!("{}/s/{id}/", world.app_of(id)));
        let asks = lying(world.portal.anybody().at(&world.app_of(id))).visit(&format!("/s/{id}/")).await;
        let back = asks.headers()["location"].to_str().unwrap();
        assert!(back.starts_with(&format!("{}/s/{id}/?", world.portal.url)), "{back}");
        assert!(!asks.headers()["set-cookie"].to_str().unwrap().contains("Secure"));
        let session: serde_json::Value = portal.get(&format!("/api/v1/sessions/{id}")).await.json().await.unwrap();
        assert_eq!(session["open_url"], format!("{}/s/{id}/", world.app_of(id)));
    }
}
