//! What keeps silent connections alive behind a reverse proxy, and shows each end that the
//! other is still there: an nginx that nobody has configured for us in front of the event
//! stream, and one of little patience in front of a terminal. Everything waits at once,
//! because these tests wait for real time to pass.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::{
    terminal::{Program, types, until_state},
    world::{DEADLINE, Socket, socket},
};
use crate::portal;

/// The event stream's period is 15 s, the terminals' 20 s; the rest is this machine's slowness.
const LATE: Duration = Duration::from_secs(24);

/// Shorter than the minute that proxies usually wait.
const IMPATIENCE: &str = "30s";

/// For how long nobody does anything.
const SILENCE: Duration = Duration::from_secs(50);

/// An nginx that ends with the value: everything as it comes, and, for sockets, the three
/// lines without which it passes on none.
struct Nginx {
    child: Child,
    _directory: TempDir,
    plain: String,
    sockets: String,
}

impl Nginx {
    fn before(portal: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().display();
        let ports: Vec<_> = (0..2).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let [plain, sockets] = [0, 1].map(|n| ports[n].local_addr().unwrap());
        drop(ports);
        let temporary =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|what| format!("{what}_temp_path {at}/{what};"));
        let configuration = format!(
            "daemon off; pid {at}/pid; worker_processes 1; events {{}}
             http {{
                 access_log off; {}
                 server {{ listen {plain}; location / {{ proxy_pass {portal}; }} }}
                 server {{
                     listen {sockets};
                     location / {{
                         proxy_pass {portal};
                         proxy_http_version 1.1;
                         proxy_set_header Upgrade $http_upgrade;
                         proxy_set_header Connection upgrade;
                         proxy_read_timeout {IMPATIENCE};
                         proxy_send_timeout {IMPATIENCE};
                     }}
                 }}
             }}",
            temporary.join(" ")
        );
        std::fs::write(directory.path().join("nginx.conf"), configuration).unwrap();
        let file = directory.path().join("nginx.conf");
        let mut nginx = Command::new("/usr/sbin/nginx");
        nginx.args(["-e", "stderr", "-c"]).arg(file).stdout(Stdio::null());
        let child = nginx.spawn().unwrap();
        Self { child, _directory: directory, plain: format!("http://{plain}"), sockets: format!("http://{sockets}") }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its worker ends with it; a plain kill would leave that behind.
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn silent_connections_live_behind_a_reverse_proxy() {
    if !Path::new("/usr/sbin/nginx").exists() {
        eprintln!("skipped: needs nginx");
        return;
    }
    let mut program = Program::start();
    program.admin(&["user", "add", "ann", "--password-stdin"], "ann-has-a-password\n");
    let token = program.admin(&["token", "create", "--user", "ann"], "");
    let nginx = Nginx::before(&program.url);
    let client = portal::client();
    let sessions = format!("{}/api/v1/sessions", program.url);
    let asked = client.post(&sessions).bearer_auth(&token).json(&json!({ "app": "terminal" })).send().await.unwrap();
    let id = asked.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned();
    program.session = Some(id.parse().unwrap());
    let session = format!("{sessions}/{id}");
    until_state(&client, &session, &token, "running").await;

    let stream = event_stream(&client, &nginx.plain, &session, &token);
    let terminal = terminal(&nginx.sockets, &id, &token);
    let ghost = ghost(&client, &program.url, &id, &token);
    tokio::join!(stream, terminal, ghost);
    assert_eq!(client.delete(&session).bearer_auth(&token).send().await.unwrap().status(), 202);
    until_state(&client, &session, &token, "ended").await;
}

/// Chunks as they come, each with how long it took.
async fn chunk(stream: &mut Response) -> (String, Duration) {
    let begin = Instant::now();
    let chunk = timeout(LATE, stream.chunk()).await.expect("a sign of life in time").unwrap().expect("it goes on");
    (String::from_utf8(chunk.to_vec()).unwrap(), begin.elapsed())
}

async fn event_stream(client: &Client, nginx: &str, session: &str, token: &str) {
    let asking = async {
        loop {
            // nginx may still be starting.
            if let Ok(answer) = client.get(format!("{nginx}/events")).bearer_auth(token).send().await {
                return answer;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let mut stream = timeout(DEADLINE, asking).await.unwrap();
    assert_eq!(stream.status(), 200);
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let (hello, took) = chunk(&mut stream).await;
    assert!(hello.contains(r#""type":"open""#) && hello.contains(r#""user":"ann""#), "{hello}");
    assert!(took < Duration::from_secs(10), "held back for {took:?}");

    // A change comes now, and not when nginx has gathered some kilobytes.
    let rename = client.patch(session).bearer_auth(token).json(&json!({ "name": "renamed" })).send();
    assert_eq!(rename.await.unwrap().status(), 200);
    let begin = Instant::now();
    loop {
        let (text, _) = chunk(&mut stream).await;
        if text.contains(r#""type":"session""#) {
            break;
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());

    let (begin, mut heartbeats) = (Instant::now(), 0);
    while begin.elapsed() < SILENCE {
        let (text, _) = chunk(&mut stream).await;
        heartbeats += text.lines().filter(|line| line.starts_with(':')).count();
    }
    assert!(heartbeats >= 2, "{heartbeats} heartbeats in {SILENCE:?}");
}

/// Reads what comes for a while, and so answers pings; says how many there were, and how many
/// words for the page.
async fn attend(socket: &mut Socket, period: Duration) -> (usize, usize) {
    let (mut pings, mut words) = (0, 0);
    let reading = async {
        loop {
            match socket.next().await {
                // Reading answers it.
                Some(Ok(Message::Ping(_))) => pings += 1,
                Some(Ok(Message::Text(text))) if text.as_str() == r#"{"alive":true}"# => words += 1,
                Some(Ok(_)) => {}
                over => panic!("{over:?}"),
            }
        }
    };
    let _ = timeout(period, reading).await;
    (pings, words)
}

async fn terminal(nginx: &str, id: &str, token: &str) {
    let bearer = format!("Bearer {token}");
    let mut socket = socket(&format!("{nginx}/s/{id}/pty"), &[("authorization", &bearer)]).await.unwrap();
    types(&mut socket, "echo before-$((20+3))", "before-23").await;
    let (pings, words) = attend(&mut socket, SILENCE).await;
    assert!(pings >= 2 && words >= 2, "{pings} pings and {words} words in {SILENCE:?}");
    types(&mut socket, "echo after-$((20+3))", "after-23").await;
    socket.close(None).await.unwrap();
}

/// A viewer whose machine was closed: the connection stands, and nobody answers.
async fn ghost(client: &Client, url: &str, id: &str, token: &str) {
    let viewers = async || {
        let listed = client.get(format!("{url}/s/{id}/ptys")).bearer_auth(token).send().await.unwrap();
        let listed: Value = listed.json().await.unwrap();
        let terminals = listed["items"].as_array().unwrap().clone();
        terminals.iter().find(|row| row["terminal"] == 2).map_or(0, |row| row["viewers"].as_u64().unwrap())
    };
    let bearer = format!("Bearer {token}");
    let ghost = socket(&format!("{url}/s/{id}/pty?terminal=2"), &[("authorization", &bearer)]).await.unwrap();
    assert_eq!(viewers().await, 1);
    let gone = async {
        while viewers().await != 0 {
            sleep(Duration::from_millis(500)).await;
        }
    };
    timeout(2 * SILENCE, gone).await.expect("who answers nothing is let go");
    drop(ghost);
}
