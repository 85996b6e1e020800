//! The built portal as one ordinary person starts it: a terminal end to end, through the real
//! agent and its shell, by token and by a browser's cookies, until the command line disables
//! the account.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::{SinkExt, StreamExt};
use lyceum::{
    helper::{
        identity::{self, Identity},
        process,
    },
    model::SessionId,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use super::world::{Browser, DEADLINE, socket};
use crate::{
    helper::house::{House, People},
    portal,
    wait::{PATIENCE, eventually},
};

/// A portal that ends with the value, sessions first.
pub struct Program {
    child: Child,
    pub person: Identity,
    data: TempDir,
    pub url: String,
    pub apps: String,
    /// What to end if the test does not.
    pub session: Option<SessionId>,
    _people: Option<(House, std::sync::Arc<People>)>,
}

impl Program {
    pub fn start() -> Self {
        // Root has accounts made; anybody else is the person.
        let people = nix::unistd::geteuid().is_root().then(|| {
            let house = House::new();
            let people = house.people();
            (house, people)
        });
        let person = people.as_ref().map_or_else(|| identity::own().unwrap(), |(_, people)| people.a.clone());
        let data = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
        std::os::unix::fs::chown(data.path(), Some(person.uid), Some(person.gid)).unwrap();
        let serve = ["serve", "--listen", "127.0.0.1:0"];
        let mut child = lyceum(&person, data.path()).args(serve).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("from_elsewhere") {
            assert_ne!(log.read_line(&mut said).unwrap(), 0, "it ended before it was ready:\n{said}");
        }
        // Nothing waits for a pipe that nobody reads.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let port = |after: &str| {
            let digits = said.rsplit_once(after).unwrap().1;
            format!("http://127.0.0.1:{}", digits.split(|c: char| !c.is_ascii_digit()).next().unwrap())
        };
        let (url, apps) = (port("ssh -L "), port(" -L "));
        Self { child, person, url, apps, data, session: None, _people: people }
    }

    pub fn admin(&self, words: &[&str], input: &str) -> String {
        let mut command = lyceum(&self.person, self.data.path());
        command.arg("admin").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM);
        let _ = self.child.wait();
        // Sessions outlive their portal.
        if let Some(session) = self.session {
            let _ = process::kill_all(|| process::of_session(session, None), DEADLINE);
        }
    }
}

fn lyceum(person: &Identity, data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
    let home = person.home.to_str().unwrap();
    command
        .env_clear()
        .envs([("HOME", home), ("PATH", "/usr/bin:/bin"), ("XDG_RUNTIME_DIR", data.to_str().unwrap())])
        .envs([("LYCEUM_DATA", data.join("d").to_str().unwrap()), ("LYCEUM_ENVIRONMENTS__BUILD", "never")])
        .env("LYCEUM_SCHEDULER__LOCAL__GRACE", "1s")
        .current_dir("/");
    if nix::unistd::geteuid().is_root() {
        command.uid(person.uid).gid(person.gid);
    }
    command
}

/// Types a line and waits for what the shell makes of it.
pub async fn types<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>, line: &str, expected: &str) {
    socket.send(Message::binary(format!("{line}\r").into_bytes())).await.unwrap();
    let mut seen = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&seen).contains(expected) {
            match socket.next().await {
                Some(Ok(Message::Binary(bytes))) => seen.extend_from_slice(&bytes),
                Some(Ok(_)) => {}
                over => panic!("{over:?} after {}", String::from_utf8_lossy(&seen)),
            }
        }
    };
    let waited = timeout(DEADLINE, reading).await;
    assert!(waited.is_ok(), "{line}: {}", String::from_utf8_lossy(&seen));
}

/// Follows a session's history until it comes to a state; the session as it is then.
pub async fn until_state(client: &Client, url: &str, bearer: &str, state: &str) -> Value {
    let mut history = String::new();
    let following = async {
        let mut events = client.get(format!("{url}/events")).bearer_auth(bearer).send().await.unwrap();
        let sought = format!(r#""state":"{state}""#);
        while !history.contains(&sought) {
            let more = events.chunk().await.unwrap().unwrap_or_else(|| panic!("it ended before that:\n{history}"));
            history.push_str(&String::from_utf8_lossy(&more));
        }
    };
    timeout(PATIENCE, following).await.unwrap_or_else(|_| panic!("never {state}:\n{history}"));
    client.get(url).bearer_auth(bearer).send().await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn a_terminal_from_end_to_end() {
    let mut program = tokio::task::spawn_blocking(Program::start).await.unwrap();
    let password = portal::password("ann");
    program.admin(&["user", "add", "ann", "--password-stdin"], &format!("{password}\n"));
    let token = program.admin(&["token", "create", "--user", "ann"], "");
    let connect = program.admin(&["token", "create", "--user", "ann", "--scopes", "sessions:connect"], "");
    let client = portal::client();
    let sessions = format!("{}/api/v1/sessions", program.url);
    let asked = client.post(&sessions).bearer_auth(&token).json(&json!({ "app": "terminal" })).send().await.unwrap();
    assert_eq!(asked.status(), 201);
    let asked: Value = asked.json().await.unwrap();
    let id = asked["id"].as_str().unwrap();
    program.session = Some(id.parse().unwrap());
    let session = until_state(&client, &format!("{sessions}/{id}"), &token, "running").await;
    assert_eq!(session["open_url"], format!("{}/s/{id}/", program.apps));

    // A program: no Origin, a token with this one scope.
    let bearer = format!("token {connect}");
    let path = format!("/s/{id}/pty");
    let mut by_token = socket(&format!("{}{path}", program.url), &[("authorization", &bearer)]).await.unwrap();
    by_token.send(Message::text(r#"{"resize": {"cols": 91, "rows": 33}}"#)).await.unwrap();
    types(&mut by_token, "echo $((6*7))-$(id -u)", &format!("42-{}", program.person.uid)).await;
    types(&mut by_token, "stty size", "33 91").await;
    // The shell was told none of our secrets.
    types(&mut by_token, "echo secrets-$(env | grep -ci lyc_)-end", "secrets-0-end").await;

    // A person: signs in, opens it, and the page opens a second terminal.
    let mut browser = Browser::default();
    let signed_in = client
        .post(format!("{}/api/v1/login", program.url))
        .header("origin", &program.url)
        .json(&json!({ "username": "ann", "password": password }))
        .send()
        .await
        .unwrap();
    browser.keep(&program.url, &signed_in);
    let page = browser.visit(&format!("{}/s/{id}/", program.url)).await;
    assert_eq!((page.status, page.url), (200, format!("{}/s/{id}/", program.apps)), "{:#?}", page.hops);
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("style-src 'self' 'unsafe-inline'") && !policy.contains("script-src"), "{policy}");
    assert!(
        page.text.contains("terminal.js") && page.text.contains(&format!("href=\"{}/sessions/{id}\"", program.url))
    );
    let cookies = browser.cookies(&format!("{}{path}", program.apps));
    let second = format!("{}{path}?terminal=2", program.apps);
    let other_page = [("cookie", cookies.as_str()), ("origin", program.url.as_str())];
    assert_eq!(socket(&second, &other_page).await.map(drop), Err(403));
    let own_page = [("cookie", cookies.as_str()), ("origin", program.apps.as_str())];
    let mut by_cookie = socket(&second, &own_page).await.unwrap();
    types(&mut by_cookie, "echo by-$((20+3))", "by-23").await;
    let listed = client.get(format!("{}/s/{id}/ptys", program.url)).bearer_auth(&connect).send().await.unwrap();
    assert_eq!(listed.json::<Value>().await.unwrap()["items"].as_array().unwrap().len(), 2);

    // The agent's own business is not for the way into apps.
    for path in ["/v1/status", "/v1/events"] {
        let answer = client.get(format!("{}/s/{id}{path}", program.url)).bearer_auth(&token).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }

    // Disabled by the command line: both are cut within five seconds.
    program.admin(&["user", "disable", "ann"], "");
    let began = Instant::now();
    for socket in [&mut by_token, &mut by_cookie] {
        let cut = async { while let Some(Ok(_)) = socket.next().await {} };
        timeout(Duration::from_secs(5), cut).await.expect("cut in time");
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(socket(&format!("{}{path}", program.url), &[("authorization", &bearer)]).await.map(drop), Err(401));
    program.admin(&["user", "enable", "ann"], "");
    // Another process let her in again; the portal looks for that once a second.
    eventually("she may stop it", async || {
        let stopped = client.delete(format!("{sessions}/{id}")).bearer_auth(&token).send().await.unwrap();
        (stopped.status() == 202).then_some(())
    })
    .await;
    let ended = until_state(&client, &format!("{sessions}/{id}"), &token, "ended").await;
    assert_eq!(ended["end_reason"], "stopped_by_owner");
    let page = client.get(format!("{}/s/{id}/", program.url)).bearer_auth(&token).header("accept", "text/html");
    let page = page.send().await.unwrap();
    assert_eq!(page.status(), 410);
    assert!(page.text().await.unwrap().contains("Start again"));
}
