//! The agent's own socket: its status, the stream of events, and for terminals everything
//! below the app's base URL. Nobody is answered but the workload's own user and the portal;
//! who that is the kernel says.

use std::{convert::Infallible, fs, io, os::unix::fs::PermissionsExt, path::PathBuf};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Path, Query, State, ws::WebSocketUpgrade},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::Listener,
};
use serde::Deserialize;
use tokio::{
    net::{UnixListener, UnixStream, unix::SocketAddr},
    sync::mpsc,
};
use tokio_stream::{
    StreamExt,
    wrappers::{ReceiverStream, WatchStream},
};

use super::{
    curves::{self, WatchedDirectory},
    log::Log,
    status::Status,
    terminals::{self, OpenTerminal, Terminals},
};
use lyceum_model::Clock;
use lyceum_wire::protocol::{AgentLaunch, AgentStatus, MAX_MESSAGE, files};

use crate::apps::base_url;

/// The most that one message from a viewer may measure: a large paste.
const MAX_INPUT: usize = 4 * 1024 * 1024;

/// The most that the places of all files may measure (bytes).
const MAX_PLACES: usize = 32 * 1024 * 1024;

/// How many batches of curves wait for the portal.
const AHEAD: usize = 2;

/// Listens in the run directory and answers until the agent ends.
pub(super) fn start(launch: &AgentLaunch, status: &Status, terminals: Option<Terminals>, log: &Log) -> io::Result<()> {
    let path = launch.run_directory.join(files::AGENT_SOCKET);
    let listener = UnixListener::bind(&path)?;
    // The run directory's group is the portal's, and the socket inherits it.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o660))?;
    let own = rustix::process::getuid().as_raw();
    // On another node the portal is nobody; what comes from it is led in by ourselves.
    let portal = if launch.node.is_some() { own } else { launch.portal_uid };
    let listener = KnownPeers { listener, allowed: [own, portal] };
    let router = router(&base_url(launch.session), status.clone(), terminals, log.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(())
}

fn router(base: &str, status: Status, terminals: Option<Terminals>, log: Log) -> Router {
    let about = Router::new()
        .route("/v1/log", get(move |Query(asked): Query<Tail>| std::future::ready(tail(&log, asked))))
        .route("/v1/status", get(|State(status): State<Status>| async move { Json(status.snapshot()) }))
        .route("/v1/events", get(events))
        .route("/v1/curves", post(follow_curves).layer(DefaultBodyLimit::max(MAX_PLACES)))
        .with_state(status);
    let Some(terminals) = terminals else { return about };
    let terminals = Router::new()
        .route(&format!("{base}ptys"), get(list))
        .route(&format!("{base}ptys/{{terminal}}"), axum::routing::delete(close))
        .route(&format!("{base}pty"), get(view))
        .with_state(terminals);
    about.merge(terminals)
}

/// Accepts connections of these users and hangs up on all others.
struct KnownPeers {
    listener: UnixListener,
    allowed: [u32; 2],
}

impl Listener for KnownPeers {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            // `Listener` for Unix sockets waits out what a failing accept needs waiting for.
            let (stream, address) = Listener::accept(&mut self.listener).await;
            if stream.peer_cred().is_ok_and(|peer| self.allowed.contains(&peer.uid())) {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The status now, then again whenever it changes: one JSON object a line.
async fn events(State(status): State<Status>) -> Response {
    let lines = WatchStream::new(status.subscribe()).map(|mut status| {
        status.sent_at = Some(Clock::System.now().0);
        Ok::<_, Infallible>(line(&status))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

/// How much of the log's end is asked for (bytes).
#[derive(Deserialize)]
struct Tail {
    bytes: u64,
}

/// For a portal that cannot read the run directory.
fn tail(log: &Log, Tail { bytes }: Tail) -> Response {
    match log.tail(bytes.min(MAX_MESSAGE as u64)) {
        Ok(tail) => ([(header::CONTENT_TYPE, "application/octet-stream")], tail).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn line(status: &AgentStatus) -> Bytes {
    let mut line = serde_json::to_vec(status).expect("a status is plain data");
    line.push(b'\n');
    line.into()
}

#[derive(Deserialize)]
struct Followed {
    directory: PathBuf,
}

/// What programs write of their training below a directory, from these places on, until the
/// listener goes.
async fn follow_curves(Query(Followed { directory }): Query<Followed>, places: Bytes) -> Response {
    let Some(reading) = WatchedDirectory::begin(directory, &places) else {
        return (StatusCode::BAD_REQUEST, "invalid positions").into_response();
    };
    let (batches, told) = mpsc::channel(AHEAD);
    // Files may hang with their server: not on the thread that everything else needs.
    std::thread::spawn(move || curves::follow(reading, &batches));
    let frames = ReceiverStream::new(told).map(Ok::<_, Infallible>);
    ([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(frames)).into_response()
}

async fn list(State(terminals): State<Terminals>) -> Json<Listed> {
    Json(Listed { items: terminals.list() })
}

#[derive(serde::Serialize)]
struct Listed {
    items: Vec<OpenTerminal>,
}

async fn close(State(terminals): State<Terminals>, Path(terminal): Path<u32>) -> StatusCode {
    if terminals.close(terminal) { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }
}

#[derive(Deserialize)]
struct Which {
    #[serde(default = "first")]
    terminal: u32,
}

fn first() -> u32 {
    1
}

async fn view(
    State(terminals): State<Terminals>,
    Query(Which { terminal }): Query<Which>,
    upgrade: WebSocketUpgrade,
) -> Response {
    match terminals.join(terminal) {
        Ok(viewer) => upgrade
            .max_message_size(MAX_INPUT)
            .max_frame_size(MAX_INPUT)
            .on_upgrade(move |socket| terminals::attend(socket, viewer)),
        Err(error) => {
            let status = match error {
                terminals::Error::Number => StatusCode::NOT_FOUND,
                terminals::Error::NotNow | terminals::Error::Open(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, error.to_string()).into_response()
        }
    }
}
