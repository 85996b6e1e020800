//! What passes between browser and app, seen from both ends.

use std::sync::Arc;

use super::{
    app::App,
    front::{Setup, until},
};

#[tokio::test]
async fn upstream_hygiene() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let seen = front
        .get(
            "/a%2Fb/%c3%a9?x=%20&token=secret&y",
            "Authorization: Bearer portal-token\r\nCookie: lyceum_login=secret; _xsrf=2|a|\"b\r\nCookie: lyceum_app_7=secret\r\n\
             X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-User: root\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\
             Proxy-Authorization: Basic x\r\nTE: trailers\r\nX-Own: kept\r\n",
        )
        .await;
    let (head, seen) = seen.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut lines: Vec<_> = seen.trim_end().lines().collect();
    lines[1..].sort_unstable();
    let target = format!("GET /s/{}/a%2Fb/%c3%a9?x=%20&y", front.session);
    let expected = [
        target.as_str(),
        "authorization: token of-the-app",
        "cookie: _xsrf=2|a|\"b",
        "host: a",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: a",
        "x-forwarded-proto: http",
        "x-own: kept",
    ];
    assert_eq!(lines, expected);

    let answer = front.get("/evil", "").await.to_lowercase();
    let cookie = format!("set-cookie: wide=1; path=/s/{}/", front.session);
    let mut lines: Vec<_> = answer.split("\r\n\r\n").next().unwrap().lines().collect();
    lines.retain(|line| !line.starts_with("date:"));
    lines.sort_unstable();
    assert_eq!(lines, ["connection: close", "content-length: 4", "http/1.1 200 ok", &cookie, "x-kept: yes"]);
}

#[tokio::test]
async fn proxy_paths() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let id = front.session.to_string();
    for (path, status) in [
        (format!("/s/{id}/a"), 200),
        (format!("/s/{id}//a"), 200),
        (format!("http://a/s/{id}/a"), 200),
        (format!("http://b/s/{id}/a"), 400),
        (format!("/s/{}/a", id.to_uppercase()), 404),
        (format!("/s//{id}/a"), 404),
        (format!("//s/{id}/a"), 404),
        (format!("/s/{id};x/a"), 404),
        (format!("/s/{id}%2fa"), 404),
        (format!("/s/%2e%2e/s/{id}/a"), 404),
        (format!("/s/{id}/../{id}/a"), 400),
        (format!("/s/{id}/%2e%2E/a"), 400),
        (format!("/s/{id}/..;/a"), 400),
        (format!("/s/{id}/..%2fa"), 400),
        ("*".to_owned(), 404),
    ] {
        let before = app.requests();
        let answer = front.say(&format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        assert_eq!(app.requests() - before, usize::from(status == 200), "{path}");
    }
}

#[tokio::test]
async fn service_worker() {
    let app = App::start();
    let mut setup = Setup::of(&app);
    setup.path_mode = true;
    let front = setup.clone().start().await;
    assert!(front.get("/sw.js", "Service-Worker: script\r\n").await.starts_with("HTTP/1.1 403 "));
    assert!(front.get("/sw.js", "").await.starts_with("HTTP/1.1 200 "));
    assert_eq!(app.requests(), 1);
    setup.path_mode = false;
    let front = setup.start().await;
    assert!(front.get("/sw.js", "Service-Worker: script\r\n").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_prefix_is_stripped_where_the_app_wants_that() {
    let app = App::start();
    let mut setup = Setup::of(&app);
    setup.strip_prefix = true;
    let front = setup.start().await;
    let seen = front.get("/x/y?z", "").await;
    assert!(seen.contains("\nGET /x/y?z\n") || seen.contains("GET /x/y?z\n"), "{seen}");
    assert!(seen.contains(&format!("x-forwarded-prefix: /s/{}", front.session)), "{seen}");
}

#[tokio::test]
async fn one_connection_serves_request_after_request() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    for path in ["/a", "/nothing", "/down?100000", "/down-chunked?100000", "/down?0", "/a", "/down?5"] {
        for method in ["GET", "HEAD", "POST"] {
            let ask = format!(
                "{method} {{s}}{path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
            );
            let answer = front.say(&ask).await;
            assert!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
        }
    }
    assert_eq!((app.requests(), app.connections()), (21, 1));
    let head = front.say("HEAD {s}/down?100000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(head.contains("content-length: 100000") && head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(front.proxy.open_connections(front.session), 1);
}

#[tokio::test]
async fn a_request_counts_as_activity() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    assert_eq!(front.activity.last(), None);
    front.get("/a", "").await;
    let first = front.activity.last().unwrap();
    front.clock.advance(7);
    front.say("POST {s}/up HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc").await;
    assert_eq!(front.activity.last().unwrap().seconds_since(first), 7);
    assert_eq!(front.activity.bytes().0, 3);
}

#[tokio::test]
async fn a_client_that_goes_away_frees_the_apps_connection() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let mut client = front.connect().await;
    let ask = format!("GET /s/{}/hold HTTP/1.1\r\nHost: a\r\n\r\n", front.session);
    tokio::io::AsyncWriteExt::write_all(&mut client, ask.as_bytes()).await.unwrap();
    let seen: Arc<_> = app.seen.clone();
    seen.holding.notified().await;
    assert_eq!(front.proxy.open_connections(front.session), 1);
    drop(client);
    until("the app sees its client go", || app.closed() == 1).await;
    until("the connection is no longer counted", || front.proxy.open_connections(front.session) == 0).await;
}
