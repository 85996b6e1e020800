//! An app as users run them: HTTP and WebSocket over a Unix socket, and a few bad manners.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream};
use http_body_util::BodyExt;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::{net::UnixListener, sync::Notify, task::JoinHandle};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::derive_accept_key, protocol::Role},
};

/// An app that runs until it is dropped.
pub struct App {
    pub directory: TempDir,
    pub seen: Arc<Seen>,
    task: JoinHandle<()>,
}

#[derive(Default)]
pub struct Seen {
    pub connections: AtomicUsize,
    pub closed: AtomicUsize,
    pub requests: AtomicUsize,
    /// Holds back the answer of `/hold`.
    pub release: Notify,
    pub holding: Notify,
}

impl App {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("app.sock")).unwrap();
        let seen = Arc::new(Seen::default());
        let task = tokio::spawn(serve(listener, seen.clone()));
        Self { directory, seen, task }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("app.sock")
    }

    pub fn socket_directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }

    pub fn closed(&self) -> usize {
        self.seen.closed.load(Ordering::SeqCst)
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: UnixListener, seen: Arc<Seen>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        seen.connections.fetch_add(1, Ordering::SeqCst);
        let seen = seen.clone();
        tokio::spawn(async move {
            let counted = seen.clone();
            let service = service_fn(move |request| answer(request, counted.clone()));
            let connection =
                http1::Builder::new().preserve_header_case(true).serve_connection(TokioIo::new(stream), service);
            // Clients that go away are part of these tests.
            let _ = connection.with_upgrades().await;
            seen.closed.fetch_add(1, Ordering::SeqCst);
        });
    }
}

async fn answer(request: Request<Incoming>, seen: Arc<Seen>) -> Result<Response<Body>, Infallible> {
    seen.requests.fetch_add(1, Ordering::SeqCst);
    let verb = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let number = || request.uri().query().and_then(|query| query.parse::<usize>().ok()).unwrap_or_default();
    Ok(match verb.as_str() {
        "down" => Response::builder().header("content-length", number()).body(zeros(number())).unwrap(),
        "down-chunked" => Response::new(zeros(number())),
        "up" => Response::new(Body::from(count(request.into_body()).await.to_string())),
        "early" => Response::builder().status(413).body(Body::from("too large")).unwrap(),
        "broken" => Response::builder().header("content-length", 1000).body(broken()).unwrap(),
        "broken-chunked" => Response::new(broken()),
        "nothing" => Response::builder().status(204).body(Body::empty()).unwrap(),
        "hold" => {
            seen.holding.notify_one();
            seen.release.notified().await;
            Response::new(Body::from("released"))
        }
        "endless" => Response::new(Body::from_stream(
            stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b"first\n")) }).chain(stream::pending()),
        )),
        "evil" => evil(),
        "switch" => Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "whatever")
            .body(Body::empty())
            .unwrap(),
        "ws" => websocket(request),
        "raw" => raw(request),
        _ => Response::new(Body::from(describe(request).await)),
    })
}

/// What arrived, line by line.
async fn describe(request: Request<Incoming>) -> String {
    let mut lines = vec![format!("{} {}", request.method(), request.uri())];
    let headers = request.headers().iter();
    lines.extend(headers.map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))));
    lines.push(String::new());
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    lines.push(String::from_utf8_lossy(&body).into_owned());
    lines.join("\n")
}

fn zeros(bytes: usize) -> Body {
    const PIECE: usize = 256 * 1024;
    let piece = Bytes::from(vec![0; PIECE]);
    let sizes = (0..bytes.div_ceil(PIECE)).map(move |n| PIECE.min(bytes - n * PIECE));
    Body::from_stream(stream::iter(sizes.map(move |size| Ok::<_, Infallible>(piece.slice(..size)))))
}

async fn count(mut body: Incoming) -> usize {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    bytes
}

/// Ten bytes, and then the app crashes.
fn broken() -> Body {
    let first = stream::once(async { Ok(Bytes::from_static(b"ten bytes.")) });
    let crash = stream::once(async {
        // Lets the first piece leave before the crash.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("crashed"))
    });
    Body::from_stream(first.chain(crash))
}

fn evil() -> Response<Body> {
    let mut response = Response::builder();
    for (name, value) in [
        ("Access-Control-Allow-Origin", "https://evil.example"),
        ("Access-Control-Allow-Credentials", "true"),
        ("Service-Worker-Allowed", "/"),
        ("Clear-Site-Data", "\"cookies\""),
        ("Strict-Transport-Security", "max-age=1"),
        ("Public-Key-Pins", "pin"),
        ("Alt-Svc", "h3=\":443\""),
        ("Set-Cookie", "lyceum_login=evil; Path=/"),
        ("Set-Cookie", "__Host-lyceum_login=evil; Path=/; Secure"),
        ("Set-Cookie", "lyceum_app_1=evil"),
        ("Set-Cookie", "wide=1; Domain=example.org; Path=/"),
        ("X-Kept", "yes"),
    ] {
        response = response.header(name, value);
    }
    response.body(Body::from("evil")).unwrap()
}

/// Echoes messages, by the last of the sub-protocols offered.
fn websocket(mut request: Request<Incoming>) -> Response<Body> {
    let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let key = header("sec-websocket-key").unwrap();
    let protocol =
        header("sec-websocket-protocol").and_then(|all| all.rsplit(',').next().map(|last| last.trim().to_owned()));
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let stream = TokioIo::new(upgraded.await.unwrap());
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
                break;
            }
        }
    });
    let mut response = Response::builder()
        .status(101)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Accept", derive_accept_key(key.as_bytes()));
    if let Some(protocol) = protocol {
        response = response.header("Sec-WebSocket-Protocol", protocol);
    }
    response.body(Body::empty()).unwrap()
}

/// Any other protocol: greets, reads to the end, then says what it read.
fn raw(mut request: Request<Incoming>) -> Response<Body> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        stream.write_all(b"hello\n").await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        stream.write_all(&[b"read: ", &all[..]].concat()).await.unwrap();
    });
    Response::builder()
        .status(101)
        .header("connection", "upgrade")
        .header("upgrade", "raw")
        .body(Body::empty())
        .unwrap()
}
