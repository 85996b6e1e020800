//! Programs in Python from the package index, each in a virtual environment that everybody
//! can read: HTTP and a WebSocket on a Unix socket (Starlette under uvicorn), and one that
//! needs its base URL and only knows ports (Streamlit). Left out where no index is reached.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest},
};

use super::{
    examples,
    world::{Somebody, World},
};
use crate::{needs, wait::eventually};

const BOARD: &str = r#"
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Route, WebSocketRoute

async def show(request):
    return JSONResponse({"url": str(request.url_for("show")), "path": request.url.path})

async def echo(socket):
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text(f"{text} at {socket.url.path}")

app = Starlette(routes=[
    Route("/health", lambda request: PlainTextResponse("ok")),
    Route("/there", show, name="show"),
    Route("/", lambda request: RedirectResponse(request.url_for("show"))),
    WebSocketRoute("/echo", echo),
])
"#;

/// A virtual environment with these packages; `None` where the index is not reached.
fn environment(packages: &[&str]) -> Option<TempDir> {
    let directory = tempfile::Builder::new().prefix("ly-venv-").tempdir_in("/tmp").unwrap();
    let run = |program: &Path, words: &[&str]| {
        let output = Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::null()).output();
        output.is_ok_and(|output| {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            output.status.success()
        })
    };
    let place = directory.path().to_str().unwrap();
    let pip = directory.path().join("bin/pip");
    let made = run(Path::new("/usr/bin/python3"), &["-m", "venv", place])
        && run(&pip, &[&["install", "--quiet", "--no-input"], packages].concat())
        && run(Path::new("/usr/bin/chmod"), &["-R", "go+rX", place]);
    let need = format!("{} from the package index", packages.join(" "));
    needs::met(&need, made).then_some(directory)
}

/// The page's example that names this program.
fn example(program: &str) -> String {
    examples().into_iter().find(|example| example.contains(program)).expect("the page has one")
}

async fn websocket(somebody: &Somebody, world: &World, path: &str) -> tungstenite::Result<WebSocketStream<TcpStream>> {
    let address = world.url.trim_start_matches("http://");
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    let authorization = format!("Bearer {}", somebody.token).parse().unwrap();
    request.headers_mut().insert("authorization", authorization);
    Ok(client_async(request, TcpStream::connect(address).await.unwrap()).await?.0)
}

#[tokio::test]
async fn a_python_program_on_a_socket() {
    if !needs::root() {
        return;
    }
    let Some(python) = environment(&["starlette==1.10.0", "uvicorn==0.54.0", "websockets==17.4"]) else {
        return;
    };
    // The page's own example, with our uvicorn and a program at home.
    let example = example("uvicorn");
    let configuration = example
        .replace("/opt/board/bin", &format!("{}/bin", python.path().display()))
        .replace("/opt/board/lib", "{home}");
    let mut world = World::start(&configuration);
    let ada = world.add("ada", &[]);
    let bob = world.add("bob", &[]);
    ada.write("board.py", BOARD);
    let session = ada.start("board").await;
    let base = format!("/s/{}", session["id"].as_str().unwrap());
    let moved = ada.get(&format!("{base}/")).await;
    assert_eq!(moved.headers()["location"], format!("{base}/there"));
    let told: Value = ada.json(&format!("{base}/there")).await;
    assert_eq!(told["url"], format!("{}{base}/there", world.url));

    let mut socket = websocket(&ada, &world, &format!("{base}/echo")).await.unwrap();
    socket.send(Message::text("hello")).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    assert!(answer.to_text().unwrap().starts_with("hello at "), "{answer:?}");
    // An app's end is the end of its sockets, and nobody else ever gets one.
    assert!(websocket(&bob, &world, &format!("{base}/echo")).await.is_err());
    ada.request("DELETE", &format!("/api/v1/sessions/{}", &base[3..])).send().await.unwrap();
    while let Some(Ok(_)) = socket.next().await {}
}

#[tokio::test]
async fn streamlit_on_a_port() {
    if !needs::root() {
        return;
    }
    let Some(python) = environment(&["streamlit==1.67.0"]) else { return };
    // The page's own example, with our Streamlit.
    let example = example("streamlit").replace("/opt/streamlit", python.path().to_str().unwrap());
    let mut world = World::start(&example);
    let ada = world.add("ada", &[]);
    ada.write("app.py", "import streamlit as st\nst.write('the answer is', 6 * 7)\n");
    let session = ada.start("streamlit").await;
    let base = format!("/s/{}", session["id"].as_str().unwrap());
    assert!(ada.get(&format!("{base}/")).await.text().await.unwrap().contains("Streamlit"));
    assert_eq!(ada.get(&format!("{base}/_stcore/health")).await.text().await.unwrap(), "ok");
    // A tab asks for a run of the script by a message; the answer is a stream of pieces.
    let mut socket = websocket(&ada, &world, &format!("{base}/_stcore/stream")).await.unwrap();
    let rerun = b"\x5a\x00".to_vec(); // BackMsg { rerun_script: {} }
    let mut seen = Vec::new();
    eventually("the page is drawn", async || {
        socket.send(Message::binary(rerun.clone())).await.unwrap();
        while let Ok(Some(Ok(message))) =
            tokio::time::timeout(std::time::Duration::from_millis(500), socket.next()).await
        {
            seen.extend(message.into_data());
        }
        String::from_utf8_lossy(&seen).contains("the answer is").then_some(())
    })
    .await;
}
