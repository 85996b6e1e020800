//! What the accept loop bears, and how it ends.

use std::{fs, io, sync::Arc, time::Duration};

use lyceum::listen::{self, Certificate, CertificateChange, TlsError};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use super::{
    app::App,
    front::{DEADLINE, Front, Setup, until},
};

#[tokio::test]
async fn a_slow_head_is_closed() {
    let app = App::start();
    let mut setup = Setup::of(&app);
    setup.options.head_timeout = Duration::from_millis(200);
    let front = setup.start().await;
    // `say` reads until the server closes; it never would if it waited for the rest.
    front.say("GET {s}/a HTTP/1.1\r\nHost: a\r\nX-Slow: ").await;
    front.say("").await;
    assert_eq!(app.requests(), 0);
}

#[tokio::test]
async fn a_large_head_is_refused() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let fits = "x".repeat(listen::MAX_HEAD - 500);
    assert!(front.get("/a", &format!("X: {fits}\r\n")).await.starts_with("HTTP/1.1 200 "));
    let large = "x".repeat(listen::MAX_HEAD);
    assert!(front.get("/a", &format!("X: {large}\r\n")).await.starts_with("HTTP/1.1 431 "));
    let huge = "x".repeat(8 * listen::MAX_HEAD);
    let answer = front.get("/a", &format!("X: {huge}\r\n")).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = "X: y\r\n".repeat(200);
    assert!(front.get("/a", &many).await.starts_with("HTTP/1.1 431 "));
    assert_eq!(app.requests(), 1);
}

#[tokio::test]
async fn too_many_connections_are_turned_away() {
    let app = App::start();
    let mut setup = Setup::of(&app);
    (setup.options.connections_per_address, setup.options.exempt) = (2, Arc::new(|_| false));
    let front = setup.start().await;
    let (first, second) = (front.connect().await, front.connect().await);
    assert!(front.say("").await.starts_with("HTTP/1.1 503 "));
    drop((first, second));
    let mut answered = false;
    for _ in 0..1000 {
        answered = front.get("/a", "").await.starts_with("HTTP/1.1 200 ");
        if answered {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(answered, "a place that was left is given again");
}

#[tokio::test]
async fn a_shutdown_waits_for_the_requests_under_way() {
    let app = App::start();
    let mut front = Setup::of(&app).start().await;
    let idle = front.connect().await;
    let mut busy = front.connect().await;
    let ask = format!("GET /s/{}/hold HTTP/1.1\r\nHost: a\r\n\r\n", front.session);
    busy.write_all(ask.as_bytes()).await.unwrap();
    app.seen.holding.notified().await;
    front.shutdown.cancel();
    until("new connections are refused", || std::net::TcpStream::connect(front.address).is_err()).await;
    app.seen.release.notify_one();
    let mut answer = String::new();
    timeout(DEADLINE, busy.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.ends_with("released"), "{answer}");
    timeout(DEADLINE, front.serving.take().unwrap()).await.unwrap().unwrap();
    drop(idle);
}

#[tokio::test]
async fn connections_live_on_threads_of_their_own() {
    let app = App::start();
    let mut setup = Setup::of(&app);
    setup.options.workers = Some(listen::Workers::start(2).unwrap());
    let mut front = setup.start().await;
    for _ in 0..3 {
        assert!(front.get("/down?100000", "").await.starts_with("HTTP/1.1 200 "));
        let up = "POST {s}/up HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
        assert!(front.say(up).await.ends_with('3'));
    }
    assert_eq!((app.requests(), app.connections()), (6, 2), "each thread keeps its own connection");
    front.shutdown.cancel();
    timeout(DEADLINE, front.serving.take().unwrap()).await.unwrap().unwrap();
}

#[tokio::test]
async fn https() {
    let app = App::start();
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    let (first, first_key) = pair(&["localhost"]);
    fs::write(&certificate, &first).unwrap();
    fs::write(&key, &first_key).unwrap();
    assert!(Certificate::open(&key, &certificate, None).is_err());
    let elsewhere = ServerName::try_from("x.apps.example.org").unwrap();
    assert!(matches!(Certificate::open(&certificate, &key, Some(elsewhere)), Err(TlsError::Name(_))));

    let opened = Certificate::open(&certificate, &key, None).unwrap();
    let mut setup = Setup::of(&app);
    setup.options.tls = Some(opened.server().unwrap());
    setup.options.handshake_timeout = Duration::from_millis(300);
    let front = setup.start().await;

    // Somebody who never shakes hands holds nobody up, and is dropped.
    let mut silent = front.connect().await;
    let mut stream = shake_hands(&front, &first).await.unwrap();
    let ask = format!("GET /s/{}/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", front.session);
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(timeout(DEADLINE, silent.read(&mut [0])).await.unwrap().unwrap(), 0);
    assert!(!front.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.starts_with("HTTP/1.1 2"));
}

/// Certificates are renewed under a running portal, now one file, now the other, now wrongly.
#[tokio::test]
async fn a_renewed_certificate_is_taken_up() {
    let app = App::start();
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    let names = ["localhost", "*.apps.example.org"];
    let ((first, first_key), (second, second_key)) = (pair(&names), pair(&names));
    fs::write(&certificate, &first).unwrap();
    fs::write(&key, &first_key).unwrap();
    let name = ServerName::try_from("x.apps.example.org").unwrap();
    let opened = Certificate::open(&certificate, &key, Some(name.clone())).unwrap();
    assert!(opened.covers(&name) && !opened.covers(&ServerName::try_from("apps.example.org").unwrap()));
    let mut setup = Setup::of(&app);
    setup.options.tls = Some(opened.server().unwrap());
    let front = setup.start().await;
    assert!(shake_hands(&front, &first).await.is_ok());
    assert!(shake_hands(&front, &second).await.is_err());
    assert!(matches!((opened.look(), opened.look()), (CertificateChange::None, CertificateChange::None)));

    // What is no good, is told of once and changes nothing: half a pair, nonsense, nothing at
    // all, and a pair that is not good for the apps' names.
    let (narrow, narrow_key) = pair(&["localhost"]);
    let nonsense = String::from("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    for (wrong, wrong_key) in [
        (Some(&second), Some(&first_key)),
        (Some(&nonsense), Some(&second_key)),
        (Some(&second), Some(&nonsense)),
        (None, Some(&second_key)),
        (Some(&second), None),
        (Some(&narrow), Some(&narrow_key)),
    ] {
        for (file, text) in [(&certificate, wrong), (&key, wrong_key)] {
            match text {
                Some(text) => fs::write(file, text).unwrap(),
                None => fs::remove_file(file).unwrap(),
            }
        }
        assert!(matches!(opened.look(), CertificateChange::None), "it may be half written");
        assert!(matches!(opened.look(), CertificateChange::Kept(_)), "{wrong:?}");
        assert!(
            matches!((opened.look(), opened.look()), (CertificateChange::None, CertificateChange::None)),
            "told of once"
        );
        assert!(shake_hands(&front, &first).await.is_ok(), "{wrong:?}");
    }

    // By a link, as renewals do it.
    let new = directory.path().join("new.pem");
    fs::write(&new, &second).unwrap();
    fs::remove_file(&certificate).unwrap();
    std::os::unix::fs::symlink(&new, &certificate).unwrap();
    fs::write(&key, &second_key).unwrap();
    assert!(matches!(opened.look(), CertificateChange::None));
    let CertificateChange::Renewed(ends) = opened.look() else { panic!("not taken up") };
    assert_eq!(Some(ends), opened.ends());
    assert!(shake_hands(&front, &second).await.is_ok());
    assert!(shake_hands(&front, &first).await.is_err());
}

/// A certificate that signs itself, and its key, as PEM.
fn pair(names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// A handshake for `localhost` with somebody who trusts this certificate alone.
async fn shake_hands(front: &Front, trusted: &str) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    connector.connect(ServerName::try_from("localhost").unwrap(), front.connect().await).await
}
