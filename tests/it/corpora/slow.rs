//! Clients that take for ever. What a request may take is bounded, and whoever drips holds
//! nobody else up. Everything waits at once, because these tests wait for real time to pass.

use std::time::{Duration, Instant};

use lyceum::model::Role;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{interval, timeout},
};

use super::{belongings, secret, statuses};
use crate::portal::TestPortal;

/// A head has 15 s and may live twice as long, a body 30 s; the rest is a busy machine.
const BOUND: Duration = Duration::from_mins(1);

/// Says a beginning and then a byte of the rest each quarter of a second, until the portal
/// has had enough; what it answered, and after how long.
async fn drip(url: &str, beginning: &str, byte: u8) -> (String, Duration) {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
    let begin = Instant::now();
    stream.write_all(beginning.as_bytes()).await.unwrap();
    let (mut read, mut write) = stream.split();
    let mut answer = Vec::new();
    let mut pace = interval(Duration::from_millis(250));
    let dripping = async {
        while write.write_all(&[byte]).await.is_ok() {
            pace.tick().await;
        }
    };
    let reading = async {
        read.read_to_end(&mut answer).await.ok();
    };
    let talk = async {
        tokio::select! {
            () = reading => {}
            () = dripping => {}
        }
    };
    timeout(BOUND, talk).await.unwrap_or_else(|_| panic!("still open after {BOUND:?}: {beginning}"));
    (String::from_utf8_lossy(&answer).into_owned(), begin.elapsed())
}

#[tokio::test]
async fn slow_loris() {
    let portal = TestPortal::start().await;
    portal.add_user("alice", Role::User).await;
    let alice = portal.sign_in("alice").await;
    let bearer = secret(&alice).await;
    let before = belongings(&alice).await;
    let head = format!("POST /api/v1/tokens HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {bearer}\r\n");
    let with_length = format!("{head}Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{{\"name\": \"");
    let chunked =
        format!("{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n{{\"name\": \"");
    let sign_in = "POST /login HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100000\r\n\r\n";
    let many = format!("{head}X: ");
    let slow = async {
        let heads = futures_util::future::join_all((0..50).map(|_| drip(&portal.url, &many, b'x')));
        let (nothing, heads, body, chunks, form) = tokio::join!(
            drip(&portal.url, "", b'\n'),
            heads,
            drip(&portal.url, &with_length, b'x'),
            drip(&portal.url, &chunked, b'x'),
            drip(&portal.url, sign_in, b'x'),
        );
        for (answer, _) in heads.iter().chain([&nothing]) {
            assert!(statuses(answer).iter().all(|status| matches!(status, 400 | 408)), "{answer}");
        }
        for (answer, took) in [body, chunks, form] {
            assert!(statuses(&answer).iter().all(|status| matches!(status, 400 | 403 | 408)), "{answer}");
            assert!(took < BOUND);
        }
    };
    // Others are served meanwhile as if nothing were.
    let others = async {
        let mut pace = interval(Duration::from_millis(100));
        for _ in 0..50 {
            pace.tick().await;
            let begin = Instant::now();
            assert_eq!(alice.get("/api/v1/me").await.status(), 200);
            assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        }
    };
    tokio::join!(slow, others);
    assert_eq!(belongings(&alice).await, before);
}
