//! What the accept loop bears, and how it ends.

use std::{process::Command, sync::Arc, time::Duration};

use lyceum::listen::{self, Certificate};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    app::App,
    front::{DEADLINE, Setup, until},
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
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-out".as_ref(), certificate.as_os_str(), "-keyout".as_ref(), key.as_os_str()])
        .output()
        .expect("openssl makes this test's certificate");
    assert!(made.status.success(), "{made:?}");
    assert!(Certificate::open(&key, &certificate, None).is_err());

    let mut setup = Setup::of(&app);
    setup.options.tls = Some(Certificate::open(&certificate, &key, None).unwrap().server().unwrap());
    setup.options.handshake_timeout = Duration::from_millis(300);
    let front = setup.start().await;

    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    // Somebody who never shakes hands holds nobody up, and is dropped.
    let mut silent = front.connect().await;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, front.connect().await).await.unwrap();
    let ask = format!("GET /s/{}/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", front.session);
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(timeout(DEADLINE, silent.read(&mut [0])).await.unwrap().unwrap(), 0);
    assert!(!front.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.starts_with("HTTP/1.1 2"));
}
