//! Bodies: large ones, endless ones, broken ones.

use std::{process::Command, time::Duration};

use futures_util::{SinkExt, StreamExt};
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    app::App,
    front::{DEADLINE, Front, Setup, until},
};

/// What passes in each way where memory is measured; elsewhere a little must do.
const LARGE: usize = 1024 * 1024 * 1024;
const LITTLE: usize = LARGE / 16;
const MEASURED: &str = "STREAM_FLAT_MEASURED";
const FLAT_KIB: u64 = 16 * 1024;

/// The peak memory of a process that does nothing but [`large_bodies_pass`], since other
/// tests would blur this one's.
#[test]
fn stream_flat() {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "proxy::streams::large_bodies_pass", "--nocapture", "--test-threads=1"];
    let child = Command::new(program).args(args).env(MEASURED, "1").output().unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{output}");
    let growth =
        output.lines().find_map(|line| line.split_once("peak growth: ")?.1.strip_suffix(" KiB")?.parse::<u64>().ok());
    let growth = growth.unwrap_or_else(|| panic!("no figure in {output}"));
    assert!(growth <= FLAT_KIB, "memory grew by {growth} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass() {
    #[expect(clippy::disallowed_methods, reason = "how its parent tells it apart from the same test by itself")]
    let large = if std::env::var_os(MEASURED).is_some() { LARGE } else { LITTLE };
    let app = App::start();
    let front = Setup::of(&app).start().await;
    front.get("/down?1000000", "").await;
    let before = memory("VmRSS:");
    assert_eq!(download(&front, "down", large).await, large);
    assert_eq!(download(&front, "down-chunked", large).await, large);
    assert_eq!(upload(&front, large).await, large.to_string());
    assert_eq!(through_a_socket(&front, large).await, large);
    println!("\npeak growth: {} KiB", memory("VmHWM:").saturating_sub(before));
    let (up, down) = front.activity.bytes();
    assert!(large as u64 <= up && 2 * large as u64 <= down);
}

async fn download(front: &Front, verb: &str, large: usize) -> usize {
    let mut stream = front.connect().await;
    let ask = format!("GET /s/{}/{verb}?{large} HTTP/1.0\r\nHost: a\r\n\r\n", front.session);
    stream.write_all(ask.as_bytes()).await.unwrap();
    let (mut total, mut piece, mut head) = (0, vec![0; 64 * 1024], None);
    loop {
        let read = timeout(DEADLINE, stream.read(&mut piece)).await.unwrap().unwrap();
        if head.is_none() {
            head = Some(piece.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4);
        }
        if read == 0 {
            return total - head.unwrap();
        }
        total += read;
    }
}

async fn upload(front: &Front, large: usize) -> String {
    let mut stream = front.connect().await;
    let ask = format!(
        "PUT /s/{}/up HTTP/1.1\r\nHost: a\r\nContent-Length: {large}\r\nConnection: close\r\n\r\n",
        front.session
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let piece = vec![0; 64 * 1024];
    for _ in 0..large / piece.len() {
        timeout(DEADLINE, stream.write_all(&piece)).await.unwrap().unwrap();
    }
    let mut answer = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer.rsplit("\r\n\r\n").next().unwrap().to_owned()
}

/// So many bytes of a WebSocket's messages up, and their echo down.
async fn through_a_socket(front: &Front, large: usize) -> usize {
    const PIECE: usize = 1024 * 1024;
    let request = format!("ws://{}/s/{}/ws", front.address, front.session);
    let (socket, _) = tokio_tungstenite::client_async(request, front.connect().await).await.unwrap();
    let (mut up, mut down) = socket.split();
    let sending = async {
        let piece = Message::binary(vec![7; PIECE]);
        for _ in 0..large / PIECE {
            timeout(DEADLINE, up.send(piece.clone())).await.unwrap().unwrap();
        }
    };
    let receiving = async {
        let mut bytes = 0;
        while bytes < large {
            bytes += timeout(DEADLINE, down.next()).await.unwrap().unwrap().unwrap().len();
        }
        bytes
    };
    tokio::join!(sending, receiving).1
}

fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_broken_for_the_client_too() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let answer = front.get("/broken", "").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("content-length: 1000"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nten bytes."), "{answer}");
    let answer = front.get("/broken-chunked", "").await;
    assert!(answer.contains("ten bytes.") && !answer.ends_with("0\r\n\r\n"), "{answer}");
    assert_eq!(front.proxy.open_connections(front.session), 0, "a broken connection is not kept");
}

#[tokio::test]
async fn an_app_that_breaks_off_before_its_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let app = App::start();
    let mut setup = Setup::of(&app);
    setup.endpoint = lyceum::proxy::Endpoint::Socket(path.as_path().into());
    let front = setup.start().await;
    for (said, expected) in [("", "Closed"), ("HTTP/1.1 200 OK\r\nContent-Le", "Closed"), ("what?\r\n\r\n", "Exchange")]
    {
        let crash = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(said.as_bytes()).await.unwrap();
        };
        let (answer, ()) = tokio::join!(front.get("/a", ""), crash);
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(expected), "{said:?}: {answer}");
    }
}

/// What the app says is said to the browser in one way only, or not at all.
#[tokio::test]
async fn answers_that_could_be_read_in_two_ways() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let app = App::start();
    let mut setup = Setup::of(&app);
    setup.endpoint = lyceum::proxy::Endpoint::Socket(path.as_path().into());
    let front = setup.start().await;
    let talk = async |said: &str| {
        let answers = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(said.as_bytes()).await.unwrap();
            // Held open until the proxy hangs up, so that no answer is judged by its end.
            let _ = timeout(DEADLINE, stream.read(&mut [0; 16])).await.expect("the proxy hangs up");
        };
        tokio::join!(front.get("/a", ""), answers).0
    };
    for head in
        ["Content-Length: 2\r\nContent-Length: 3", "Content-Length: 2, 2", "Content-Length: -1", "Content-Length: "]
    {
        let answer = talk(&format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nabc")).await;
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("Exchange"), "{head}: {answer}");
    }
    let answer = talk("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n").await;
    assert!(answer.contains("abc") && !answer.ends_with("0\r\n\r\n"), "{answer}");
    let answer = talk("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").await;
    let head = answer.split("\r\n\r\n").next().unwrap().to_lowercase();
    assert!(
        head.starts_with("http/1.1 200 ") && !head.contains("content-length") && !head.contains("link"),
        "{answer}"
    );
    assert!(answer.ends_with("3\r\nabc\r\n0\r\n\r\n"), "{answer}");
}

/// An app that never says so, but closes after each answer: nobody sees an error of it.
#[tokio::test]
async fn an_app_that_closes_its_idle_connections() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let rude = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if stream.read(&mut [0; 4096]).await.unwrap() > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            }
        }
    });
    let app = App::start();
    let mut setup = Setup::of(&app);
    setup.endpoint = lyceum::proxy::Endpoint::Socket(path.as_path().into());
    let front = setup.start().await;
    for _ in 0..100 {
        let answer = front.get("/a", "").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    rude.abort();
}

#[tokio::test]
async fn an_early_refusal_reaches_the_client() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let mut stream = front.connect().await;
    let ask = format!("POST /s/{}/early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\nabc", front.session);
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    timeout(DEADLINE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

/// Server-sent events live by somebody's access like a socket does.
#[tokio::test]
async fn an_endless_answer_is_cut() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let stream = front.connect().await;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = hyper::Request::get(format!("/s/{}/endless", front.session)).header("host", "a");
    let mut body = sender.send_request(request.body(axum::body::Body::empty()).unwrap()).await.unwrap().into_body();
    let first = timeout(DEADLINE, body.frame()).await.unwrap().unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "first\n");
    let user = front.user;
    assert_eq!(front.proxy.tunnels().count(|tunnel| tunnel.holder.user == user), 1);
    assert_eq!(front.proxy.tunnels().cut(|tunnel| tunnel.holder.user == user), 1);
    let rest = timeout(Duration::from_secs(1), body.frame()).await.expect("cut at once").unwrap();
    assert!(rest.is_err(), "{rest:?}");
    until("the entry is gone", || front.proxy.tunnels().count(|_| true) == 0).await;
    until("the app sees the end", || app.closed() == 1).await;
    connection.abort();
}
