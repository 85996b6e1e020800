//! The configurations in `contrib/` as they are handed out, each read by the real server with
//! ports and certificates of this test put in: nginx, Apache, `HAProxy` and Caddy
//! with TLS before a real portal. Sign-in, terminals, events and uploads have to get through.

use std::{fs, io::Write, path::Path, process::Stdio};

use futures_util::stream;
use reqwest::{Body, Client, Response, redirect};
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::mpsc};
use tokio_tungstenite::{client_async, tungstenite::client::IntoClientRequest};

use super::{
    Found,
    front::{APPS, Front, PORTAL},
    proxies::free_ports,
};
use crate::{
    gateway::{terminal, world::Browser},
    life::{House, Person, eventually},
    needs,
};

#[tokio::test]
async fn behind_nginx() {
    behind("nginx").await;
}

#[tokio::test]
async fn behind_apache() {
    behind("apache").await;
}

#[tokio::test]
async fn behind_haproxy() {
    behind("haproxy").await;
}

#[tokio::test]
async fn behind_caddy() {
    behind("caddy").await;
}

async fn behind(server: &str) {
    if !needs::root() {
        return;
    }
    if !needs::met(Front::program(server), Path::new(Front::program(server)).exists()) {
        return;
    }
    let [https, http, listen, apps_listen] = free_ports();
    let (portal, apps) = (format!("https://{PORTAL}:{https}"), format!("https://{APPS}:{https}"));
    let mut house = House::new(&[
        ("LYCEUM_SERVER__PUBLIC_URL", &portal),
        ("LYCEUM_SERVER__APPS_URL", &apps),
        ("LYCEUM_SERVER__APPS_LISTEN", &format!("127.0.0.1:{apps_listen}")),
        ("LYCEUM_SERVER__TRUSTED_PROXIES", "127.0.0.1"),
    ]);
    house.listen_on(listen);
    let front = Front::start(server, https, http, [listen, apps_listen]).await;
    house.set("SSL_CERT_FILE", front.authority().to_str().unwrap());
    house.start().await;
    house.wrap(front.where_names_lead_here());

    let found = Found::of(&house, &[]);
    for name in ["public address", "apps' address"] {
        found.says(name, "ok", "leads to this portal");
        found.says(name, "ok", "a WebSocket echoed");
        found.says(name, "ok", "an event arrived after");
        assert_eq!(found.about(name).len(), 3, "{server}: {:#?}", found.about(name));
    }
    let client = client(&front);
    if let Some(answer) = front.plain(&client, http).await {
        assert!([301, 308].contains(&answer.status().as_u16()), "{server}: {}", answer.status());
        assert!(answer.headers()["location"].to_str().unwrap().starts_with("https://portal.example.org/sessions"));
    }

    let person = house.person();
    sign_in_and_type(&house, &front, &client, &person, [&portal, &apps]).await;
    // What somebody says of their own address is not believed.
    let wrong = json!({ "username": person.name, "password": "wrong" });
    let request = client.post(format!("{portal}/api/v1/login")).header("origin", &portal).json(&wrong);
    let refused = request.header("x-forwarded-for", "203.0.113.9").send().await.unwrap();
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.headers()["strict-transport-security"], "max-age=2592000", "{server}");
    assert!(house.log().contains("sign-in failed") && !house.log().contains("203.0.113.9"), "{server}");
    upload(&house, &client, &person, &portal).await;
}

/// Trusts the front's authority.
fn client(front: &Front) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let authority = reqwest::Certificate::from_pem(&fs::read(front.authority()).unwrap()).unwrap();
    let here = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let client = Client::builder().tls_certs_only([authority]).resolve(PORTAL, here).resolve(APPS, here);
    client.redirect(redirect::Policy::none()).no_proxy().build().unwrap()
}

/// With a password and cookies, as a browser does it.
async fn sign_in_and_type(house: &House, front: &Front, client: &Client, person: &Person, origins: [&str; 2]) {
    let [portal, apps] = origins;
    let password = "correct horse battery";
    let set = ["admin", "user", "password", &person.name, "--password-stdin"];
    let mut command = house.command(&set).stdin(Stdio::piped()).spawn().unwrap();
    command.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
    assert!(command.wait().unwrap().success());

    let body = json!({ "username": person.name, "password": password });
    let request = client.post(format!("{portal}/api/v1/login")).header("origin", portal).json(&body);
    let signed_in = request.send().await.unwrap();
    assert_eq!(signed_in.status(), 200);
    let mut browser = Browser::with(client.clone());
    browser.keep(portal, &signed_in);
    let asked = client.post(format!("{portal}/api/v1/sessions")).header("origin", portal);
    let asked = asked.header("cookie", browser.cookies(portal)).json(&json!({ "app": "terminal" }));
    let asked = asked.send().await.unwrap();
    assert_eq!(asked.status(), 201);
    let id = crate::life::person::id(&asked.json::<Value>().await.unwrap());
    person.state(house, id, "running").await;
    let page = browser.visit(&format!("{portal}/s/{id}/")).await;
    assert_eq!((page.status, &page.url), (200, &format!("{apps}/s/{id}/")), "{:#?}", page.hops);

    let path = format!("{apps}/s/{id}/pty");
    let mut request = path.replacen("https", "wss", 1).into_client_request().unwrap();
    request.headers_mut().insert("origin", apps.parse().unwrap());
    request.headers_mut().insert("cookie", browser.cookies(&path).parse().unwrap());
    let (_, port) = apps.rsplit_once(':').unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).await.unwrap();
    let stream = front.tls().connect(APPS.try_into().unwrap(), stream).await.unwrap();
    let (mut socket, _) = client_async(request, stream).await.unwrap();
    terminal::types(&mut socket, "echo $((6*7))-$(id -un)", &format!("42-ly-{}", person.name)).await;
    person.end(house, id).await;
}

/// Larger than servers allow by themselves, and on its way before its end is sent.
async fn upload(house: &House, client: &Client, person: &Person, portal: &str) {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 40;
    let size = PIECE * PIECES;
    let ask = |method: &str, path: &str| {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        client
            .request(method, format!("{portal}/api/v1/files/uploads{path}"))
            .header("authorization", person.authorization())
    };
    let begun = ask("POST", "").json(&json!({ "path": "large.bin", "size_bytes": size })).send().await.unwrap();
    assert_eq!(begun.status(), 201);
    let id = begun.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned();

    let (pieces, sent) = mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    let body = Body::wrap_stream(stream::unfold(sent, async |mut sent| sent.recv().await.map(|piece| (piece, sent))));
    let request = ask("PATCH", &format!("/{id}")).header("upload-offset", "0").header("content-length", size);
    let request = request.header("content-type", "application/octet-stream").body(body);
    let sending = tokio::spawn(request.send());
    for number in 0..PIECES {
        if number == PIECES / 2 {
            let path = format!("/api/v1/files/uploads/{id}");
            eventually("the first half has arrived", async || {
                let stands = person.get(house, path.trim_start_matches("/api/v1")).await;
                (stands["offset_bytes"].as_u64().unwrap() > (size / 4) as u64).then_some(())
            })
            .await;
        }
        pieces.send(Ok(vec![u8::try_from(number).unwrap(); PIECE])).await.unwrap();
    }
    drop(pieces);
    let answer: Response = sending.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    assert_eq!(ask("POST", &format!("/{id}/finish")).send().await.unwrap().status(), 200);
}
