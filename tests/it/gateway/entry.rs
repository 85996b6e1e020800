//! Who may enter, and what stands where an app is not: fine print 1 and 4 of the API.

use lyceum::{model::Role, web::AppsOrigin};
use reqwest::Response;
use serde_json::Value;

use super::{
    jupyter_origin::secret_of,
    world::{MODES, Mode, World, raw, socket},
};
use crate::proxy::app::App;

#[tokio::test]
async fn other_peoples_sessions_are_not_there() {
    for mode in MODES {
        let world = World::in_mode(mode).await;
        let app = App::start();
        let bob = world.user("bob").await;
        let theirs = [world.session(bob, &app).await, world.queued("terminal", bob).await, world.ended(bob).await];
        let none = lyceum::model::SessionId::new();
        world.portal.add_user("boss", Role::Admin).await;
        world.user("alice").await;
        for name in ["alice", "boss"] {
            let browser = world.portal.sign_in(name).await;
            let secret = secret_of(&browser).await;
            let token = world.portal.bearer(&secret);
            let login = browser.clone().with("sec-fetch-site", "same-origin");
            let cookie = world.browser(name).await.cookie("lyceum_login").unwrap();
            for id in theirs.iter().chain([&none]) {
                for (who, caller) in [("token", &token), ("login", &login)] {
                    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
                        for path in ["", "/", "/lab?a=b", "/a%2Fb/%C3%A9", "/pty"] {
                            let told = format!("{name} by {who}: {method} {path}, {mode:?}");
                            let answer = caller.request(method, &format!("/s/{id}{path}")).send().await.unwrap();
                            assert_eq!(answer.status(), 404, "{told}");
                        }
                    }
                    assert_eq!(caller.visit(&format!("/s/{id}/")).await.status(), 404);
                }
                let url = format!("{}/s/{id}/ws", world.portal.url);
                let bearer = format!("Bearer {secret}");
                assert_eq!(socket(&url, &[("authorization", &bearer)]).await.map(drop), Err(404));
                let headers = [("cookie", cookie.as_str()), ("origin", &world.portal.url)];
                assert_eq!(socket(&url, &headers).await.map(drop), Err(404));
                if mode == Mode::Path {
                    continue;
                }
                // The apps' origin knows nobody, and tells nothing by that.
                let (on_app, origin) = (world.on_app(*id, &cookie), world.app_of(*id));
                assert_eq!(on_app.request("DELETE", &format!("/s/{id}/")).send().await.unwrap().status(), 401);
                assert_eq!(on_app.request("HEAD", &format!("/s/{id}/")).send().await.unwrap().status(), 401);
                let url = format!("{origin}/s/{id}/ws");
                assert_eq!(socket(&url, &[("cookie", &cookie), ("origin", &origin)]).await.map(drop), Err(401));
            }
            // No spelling of a path leads there either.
            let id = theirs[0];
            for path in [
                format!("/s/{id}/%2e%2e/{id}/"),
                format!("/s/{none}/..%2f{id}/"),
                format!("/s/%{:02x}{}/", id.to_string().as_bytes()[0], &id.to_string()[1..]),
                format!("/s/{}/", id.to_string().to_uppercase()),
                format!("//s/{id}/"),
                format!("/S/{id}/"),
                format!("/s//{id}/"),
                format!("/static/../s/{id}/"),
                format!("/s/{id};x/"),
                format!("/s%2f{id}/"),
                format!("http://127.0.0.1/s/{id}/"),
            ] {
                let ask = format!(
                    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\nConnection: close\r\n\r\n"
                );
                let (status, text) = raw(&world.portal.url, &ask).await;
                assert!(matches!(status, 400 | 404), "{path}: {text}");
            }
        }
        assert_eq!(app.requests(), 0);
    }
}

#[tokio::test]
async fn tokens_reach_as_far_as_their_scopes() {
    let (world, app) = (World::new().await, App::start());
    let id = world.session(world.user("alice").await, &app).await;
    let browser = world.portal.sign_in("alice").await;
    for (scopes, status) in [
        (&["read"][..], 403),
        (&["sessions"], 403),
        (&["read", "sessions", "jobs"], 403),
        (&["sessions:connect"], 200),
        (&["read", "sessions:connect"], 200),
        (&[], 200),
    ] {
        let token = world.portal.token(&browser, scopes).await;
        for method in ["GET", "HEAD", "POST"] {
            let answer = token.request(method, &format!("/s/{id}/api")).send().await.unwrap();
            assert_eq!(answer.status(), status, "{method} {scopes:?}");
        }
        let made: Value = browser
            .post("/api/v1/tokens", &serde_json::json!({ "name": "x", "scopes": scopes }))
            .await
            .json()
            .await
            .unwrap();
        let bearer = format!("token {}", made["secret"].as_str().unwrap());
        let opened = socket(&format!("{}/s/{id}/ws", world.portal.url), &[("authorization", &bearer)]).await;
        assert_eq!(opened.map(drop), if status == 200 { Ok(()) } else { Err(status) }, "{scopes:?}");
    }
    // A token that is no good is refused, whatever cookie comes with it; one in the address is none.
    let mixed = browser.clone().with("authorization", "Bearer lyc_nothing");
    assert_eq!(mixed.get(&format!("/s/{id}/")).await.status(), 401);
    let secret = secret_of(&browser).await;
    assert_eq!(world.portal.anybody().get(&format!("/s/{id}/?token={secret}")).await.status(), 401);
    let answer = world.portal.bearer(&secret).get(&format!("/s/{id}/x?a=1&token={secret}&b=2")).await;
    let text = answer.text().await.unwrap();
    assert!(text.starts_with(&format!("GET /s/{id}/x?a=1&b=2\n")), "{text}");
    assert!(!text.contains(&secret), "{text}");
    assert!(text.contains("authorization: token "), "its own: {text}");
}

#[tokio::test]
async fn the_signed_out_are_led_to_the_sign_in() {
    let (world, app) = (World::new().await, App::start());
    let id = world.session(world.user("alice").await, &app).await;
    let anybody = world.portal.anybody();
    let visit = anybody.visit(&format!("/s/{id}/lab?a=%2F&b")).await;
    assert_eq!(visit.status(), 303);
    let next = format!("/login?next=%2Fs%2F{id}%2Flab%3Fa%3D%252F%26b");
    assert_eq!(visit.headers()["location"], next);
    let head = anybody.request("HEAD", &format!("/s/{id}/")).header("accept", "text/html").send().await.unwrap();
    assert_eq!(head.status(), 303);
    for answer in [
        anybody.get(&format!("/s/{id}/")).await,
        anybody.request("POST", &format!("/s/{id}/")).header("accept", "text/html").send().await.unwrap(),
        anybody.clone().with("authorization", "Bearer x").visit(&format!("/s/{id}/")).await,
        anybody.clone().at(&world.apps).get(&format!("/s/{id}/")).await,
    ] {
        assert_eq!(answer.status(), 401);
        assert!(answer.headers().contains_key("www-authenticate"));
    }
    assert_eq!(socket(&format!("{}/s/{id}/ws", world.portal.url), &[]).await.map(drop), Err(401));
    // From the apps' origin the way to the sign-in leads over the portal's, HEAD included.
    let on_apps = anybody.at(&world.apps);
    let head = on_apps.request("HEAD", &format!("/s/{id}/")).header("accept", "text/html").send().await.unwrap();
    for answer in [head, on_apps.visit(&format!("/s/{id}/")).await] {
        assert!(answer.headers()["location"].to_str().unwrap().starts_with(&format!("{}/s/{id}/", world.portal.url)));
    }
}

#[tokio::test]
async fn what_is_not_running_says_so() {
    for mode in MODES {
        let world = World::in_mode(mode).await;
        let alice = world.user("alice").await;
        let (waits, over) = (world.queued("terminal", alice).await, world.ended(alice).await);
        let browser = world.portal.sign_in("alice").await;
        let token = world.portal.token(&browser, &[]).await;
        for caller in [&browser, &token] {
            let page = caller.visit(&format!("/s/{waits}/")).await;
            assert_eq!(page.status(), 200);
            assert_eq!(page.headers()["cache-control"], "no-store");
            assert!(page.text().await.unwrap().contains("data-waiting"));
            let refused = caller.get(&format!("/s/{waits}/api")).await;
            assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"2".parse().unwrap()));
            assert_eq!(caller.post(&format!("/s/{waits}/api"), &Value::Null).await.status(), 503);

            let page = caller.visit(&format!("/s/{over}/")).await;
            assert_eq!(page.status(), 410);
            let text = page.text().await.unwrap();
            assert!(text.contains("Start again") && text.contains("memory"), "{text}");
            let answer = caller.get(&format!("/s/{over}/api")).await;
            assert_eq!(answer.status(), 410);
            assert_eq!(answer.headers()["content-type"], "application/problem+json");
            assert_eq!(caller.request("HEAD", &format!("/s/{over}/")).send().await.unwrap().status(), 410);
        }
        let origin = [("origin", world.portal.url.as_str())];
        let cookie = world.browser("alice").await.cookie("lyceum_login").unwrap();
        for (id, status) in [(waits, 503), (over, 410)] {
            let headers = [origin[0], ("cookie", cookie.as_str())];
            let opened = socket(&format!("{}/s/{id}/ws", world.portal.url), &headers).await;
            assert_eq!(opened.map(drop), Err(status));
        }
        if mode != Mode::Path {
            // From the apps' origin, a browser is led to the portal's page.
            for (id, status) in [(waits, 200), (over, 410)] {
                let journey = world.browser("alice").await.visit(&format!("{}/s/{id}/", world.app_of(id))).await;
                assert_eq!((journey.status, journey.url), (status, format!("{}/s/{id}/", world.portal.url)));
            }
        }
    }
}

/// Scripts of apps can read all that the apps' origin answers.
#[tokio::test]
async fn the_apps_origin_tells_nothing_of_the_portals() {
    let (world, app) = (World::new().await, App::start());
    let alice = world.user("alice").await;
    let id = world.session(alice, &app).await;
    let terminal = world.session_of("terminal", alice, &app).await;
    let mut visitor = world.browser("alice").await;
    for id in [id, terminal] {
        assert_eq!(visitor.visit(&format!("{}/s/{id}/", world.apps)).await.status, 200);
    }
    let login = visitor.cookie("lyceum_login").unwrap();
    let csrf = world.portal.portal.access.by_cookie(login.split_once('=').unwrap().1).await.unwrap().unwrap();
    let csrf = csrf.csrf_token().to_owned();
    assert_eq!(csrf.len(), 64);
    for path in [
        "/".to_owned(),
        "/settings".to_owned(),
        "/login".to_owned(),
        "/s/".to_owned(),
        "/s/nonsense/".to_owned(),
        format!("/s/{}/", lyceum::model::SessionId::new()),
        format!("/s/{id}/%2e%2e/"),
        format!("/s/{terminal}/"),
        "/static/none.js".to_owned(),
        "/api/v1/me".to_owned(),
    ] {
        let cookies = visitor.cookies(&format!("{}{path}", world.apps));
        let answer = world.on_apps(&cookies).visit(&path).await;
        let told = format!("{path}: {answer:?}");
        let text = answer.text().await.unwrap();
        assert!(!text.contains(&csrf) && !text.contains("csrf_token") && !text.contains("/logout"), "{told}{text}");
        assert!(!text.contains("\"alice"), "{told}{text}");
    }
    // A page of ours there leads back to the portal.
    let page = world.on_apps(&login).visit("/nothing").await;
    assert_eq!(page.status(), 404);
    assert!(page.text().await.unwrap().contains(&format!("href=\"{}/\"", world.portal.url)));

    let page = world.on_apps(&visitor.cookies(&format!("{}/s/{terminal}/", world.apps)));
    let page = page.visit(&format!("/s/{terminal}/")).await;
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.contains("style-src 'self' 'unsafe-inline'") && policy.contains("default-src 'self'"), "{policy}");
    assert!(!policy.contains("script-src"), "{policy}");
}

/// What an app answers goes out as it is, but for what would hold for the whole origin.
#[tokio::test]
async fn an_apps_answer_is_its_own() {
    let (world, app) = (World::new().await, App::start());
    let id = world.session(world.user("alice").await, &app).await;
    let token = world.portal.token(&world.portal.sign_in("alice").await, &[]).await;
    let answer = token.get(&format!("/s/{id}/evil")).await;
    let mut names: Vec<_> = answer.headers().keys().map(|name| name.as_str().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["content-length", "date", "set-cookie", "x-kept"], "nothing of ours is added");
    let metrics = token.without("authorization").get("/metrics").await.text().await.unwrap();
    assert!(
        metrics.contains("lyceum_http_requests_total{method=\"GET\",route=\"/s/{*rest}\",status=\"200\"} 1"),
        "{metrics}"
    );
    // Ours has our id; the app's own id, and the client's, are theirs.
    let answer = world.portal.anybody().with("x-request-id", "mine").get(&format!("/s/{id}/")).await;
    assert_ne!(answer.headers()["x-request-id"], "mine");
}

#[tokio::test]
async fn path_mode_has_one_origin() {
    let world = World::with(|config| config.apps = AppsOrigin::Path).await;
    let app = App::start();
    let id = world.session(world.user("alice").await, &app).await;
    let browser = world.portal.sign_in("alice").await;
    let shown = browser.visit(&format!("/s/{id}/lab")).await;
    assert_eq!(shown.status(), 200);
    let text = shown.text().await.unwrap();
    assert!(text.starts_with(&format!("GET /s/{id}/lab\n")) && !text.contains("lyceum_"), "{text}");
    let worker = browser.clone().with("service-worker", "script").get(&format!("/s/{id}/sw.js")).await;
    assert_eq!(worker.status(), 403);
    let session: Value = browser.get(&format!("/api/v1/sessions/{id}")).await.json().await.unwrap();
    assert_eq!(session["url"], format!("/s/{id}/"));
    assert_eq!(session["open_url"], format!("{}/s/{id}/", world.portal.url));
    let journey = world.browser("alice").await.visit(session["open_url"].as_str().unwrap()).await;
    assert_eq!((journey.status, journey.hops.len()), (200, 1));
}

async fn open_url(world: &World, id: lyceum::model::SessionId, token: &str, host: &str) -> String {
    let caller = world.portal.bearer(token).with("host", host);
    let session: Value = caller.get(&format!("/api/v1/sessions/{id}")).await.json().await.unwrap();
    session["open_url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn addresses_are_made_of_names_that_are_ours() {
    let world = World::with(|config| config.host_names = vec!["node7.example.org".to_owned()]).await;
    let app = App::start();
    let alice = world.user("alice").await;
    let id = world.session(alice, &app).await;
    let token = secret_of(&world.portal.sign_in("alice").await).await;
    let port = world.portal.url.rsplit_once(':').unwrap().1;
    let apps = world.apps.rsplit_once(':').unwrap().1;
    for host in ["127.0.0.1", "localhost", "[::1]", "192.0.2.7", "node7", "node7.example.org"] {
        let expected = format!("http://{host}:{apps}/s/{id}/");
        assert_eq!(open_url(&world, id, &token, &format!("{host}:{port}")).await, expected);
    }
    assert_eq!(open_url(&world, id, &token, "evil.example").await, format!("/s/{id}/"), "a path, to nowhere else");

    // A browser that calls us by another name is not sent to that name, with or without a ticket.
    let login = format!("lyceum_login={}", world.portal.new_login(alice).await);
    let palm = "?lyceum_hand=x";
    for (url, cookie) in [(&world.portal.url, login.as_str()), (&world.apps, "")] {
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000"] {
            let caller = world.portal.anybody().at(url).with("host", host).with("cookie", cookie);
            let answer = caller.visit(&format!("/s/{id}/{palm}")).await;
            assert_eq!((answer.status().as_u16(), answer.headers().get("location")), (400, None), "{url} {host}");
            let text = answer.text().await.unwrap();
            assert!(text.contains("server.public_url") && !text.contains("evil.example"), "{text}");
        }
    }
    let known = world.portal.anybody().with("host", &format!("node7:{port}")).with("cookie", &login);
    let location = known.visit(&format!("/s/{id}/{palm}")).await.headers()["location"].to_str().unwrap().to_owned();
    assert!(location.starts_with(&format!("http://node7:{apps}/s/{id}/?lyceum_ticket=")), "{location}");
    // A forwarded port that is not ours must not lead back to the apps' origin for ever.
    let forwarded = world.portal.anybody().at(&world.apps).with("host", "localhost:9999");
    let location = forwarded.visit(&format!("/s/{id}/")).await.headers()["location"].to_str().unwrap().to_owned();
    assert!(location.starts_with(&format!("http://localhost:{port}/s/{id}/?")), "{location}");
}

#[tokio::test]
async fn a_public_address_goes_before_the_host() {
    let world = World::with(|config| config.public_url = Some("https://portal.example.org".parse().unwrap())).await;
    let app = App::start();
    let alice = world.user("alice").await;
    let id = world.session(alice, &app).await;
    let apps = format!("https://portal.example.org:{}", world.apps.rsplit_once(':').unwrap().1);
    let login = format!("__Host-lyceum_login={}", world.portal.new_login(alice).await);
    for host in ["portal.example.org", "127.0.0.1:8000", "evil.example"] {
        let caller = world.portal.anybody().with("host", host).with("cookie", &login);
        let session: Value = caller.get(&format!("/api/v1/sessions/{id}")).await.json().await.unwrap();
        assert_eq!(session["open_url"], format!("{apps}/s/{id}/"));
        let location = |answer: &Response| answer.headers()["location"].to_str().unwrap().to_owned();
        assert_eq!(location(&caller.visit(&format!("/s/{id}/a")).await), format!("{apps}/s/{id}/a"));
        let back = caller.at(&world.apps).visit(&format!("/s/{id}/a")).await;
        assert!(location(&back).starts_with(&format!("https://portal.example.org/s/{id}/a?")));
    }
}
