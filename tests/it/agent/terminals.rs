//! Terminals through the agent's socket: what a shell shows, sizes, several viewers, and
//! what somebody sees who comes back.

use futures_util::StreamExt;
use lyceum::protocol::{AgentStatus, ExitCause, Phase};
use rustix::process::Signal;
use tokio::{net::UnixStream, time::Instant};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use super::{Agent, Given, PATIENCE, StatusCode, eventually};

pub(super) struct Viewer {
    socket: WebSocketStream<UnixStream>,
    seen: String,
}

impl Agent {
    pub(super) async fn view(&self, terminal: u32) -> Viewer {
        eventually("ready", async || (self.status().await.phase == Phase::Ready).then_some(())).await;
        let url = format!("ws://localhost{}pty?terminal={terminal}", self.base());
        let (socket, _) = tokio_tungstenite::client_async(url, self.connect().await).await.unwrap();
        Viewer { socket, seen: String::new() }
    }

    async fn listed(&self) -> serde_json::Value {
        let (status, body) = self.ask("GET", &format!("{}ptys", self.base())).await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_slice(&body).unwrap()
    }
}

impl Viewer {
    pub(super) async fn enter(&mut self, text: &str) {
        self.send(Message::binary(text.as_bytes().to_vec())).await;
    }

    async fn send(&mut self, message: Message) {
        futures_util::SinkExt::send(&mut self.socket, message).await.unwrap();
    }

    async fn next(&mut self, until: Instant) -> Option<Message> {
        tokio::time::timeout_at(until, self.socket.next())
            .await
            .unwrap_or_else(|_| panic!("nothing more came after {:?}", self.seen))
            .and_then(Result::ok)
    }

    /// Reads until `text` was shown.
    pub(super) async fn sees(&mut self, text: &str) {
        // Signs of life alone would go on for ever.
        let end = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            match self.next(end).await {
                Some(Message::Binary(bytes)) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Some(Message::Ping(_) | Message::Text(_)) => {}
                other => panic!("{other:?} came instead of {text:?} after {:?}", self.seen),
            }
        }
    }

    /// Reads to the close frame: its code and reason.
    async fn closed(&mut self) -> (u16, String) {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.next(end).await {
                Some(Message::Close(Some(frame))) => return (frame.code.into(), frame.reason.to_string()),
                Some(Message::Binary(bytes)) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Some(_) => {}
                None => panic!("no close frame after {:?}", self.seen),
            }
        }
    }
}

#[tokio::test]
async fn a_login_shell_with_a_size() {
    let mut agent = Given::terminal().start();
    let mut viewer = agent.view(1).await;
    viewer.enter("id; shopt -q login_shell && echo lo''gin; pwd; echo $TERM\r").await;
    viewer.sees("uid=").await;
    viewer.sees("\nlogin").await;
    viewer.sees(&format!("\n{}\r\n", agent.given.home.path().display())).await;
    viewer.sees("xterm-256color").await;
    viewer.send(Message::text(r#"{"resize":{"cols":121,"rows":41}}"#)).await;
    viewer.enter("stty size\r").await;
    viewer.sees("41 121").await;

    let status = agent.status().await;
    assert_eq!((status.phase, status.terminals), (Phase::Ready, 1));
    assert!(status.terminal_activity.is_some());

    // Interactive shells ignore SIGTERM, and still a stop does not take the grace time.
    let before = std::time::Instant::now();
    agent.terminate();
    let record = agent.exited().await;
    assert_eq!((record.cause, record.detail.as_str()), (ExitCause::Asked, "ended on request"));
    assert!(before.elapsed().as_secs() < 4, "{:?}", before.elapsed());
}

#[tokio::test]
async fn who_comes_back_sees_what_was_shown_without_its_questions() {
    let agent = Given::terminal().start();
    let mut viewer = agent.view(1).await;
    viewer
        .enter("PS1=; printf 'first \\033[6n\\033]11;?\\007\\033[31mred\\033[0m last\\n' | tr a-z a-z; echo do''ne\r")
        .await;
    viewer.sees("\ndone").await;
    assert!(
        viewer.seen.contains("first \u{1b}[6n\u{1b}]11;?\u{7}\u{1b}[31mred"),
        "the one viewer answers: {:?}",
        viewer.seen
    );
    drop(viewer);

    let mut again = agent.view(1).await;
    again.sees("\ndone").await;
    assert!(again.seen.contains("first \u{1b}[31mred\u{1b}[0m last"), "{:?}", again.seen);
    assert!(!again.seen.contains("\u{1b}[6n"), "{:?}", again.seen);
    again.enter("echo still $((40 + 2))\r").await;
    again.sees("still 42").await;
}

#[tokio::test]
async fn two_viewers_see_the_same_and_one_is_asked() {
    let agent = Given::terminal().start();
    let (mut one, mut two) = (agent.view(1).await, agent.view(1).await);
    two.enter("PS1=; printf 'x\\033[6ny\\n'; echo from t''wo\r").await;
    one.sees("from two\r\n").await;
    two.sees("from two\r\n").await;
    assert!(one.seen.contains("x\u{1b}[6ny"), "{:?}", one.seen);
    assert!(two.seen.contains("xy"), "{:?}", two.seen);
    one.enter("echo from o''ne\r").await;
    two.sees("from one").await;
    assert_eq!(agent.listed().await["items"], serde_json::json!([{"terminal": 1, "viewers": 2}]));

    // With the first gone, the second is asked.
    drop(one);
    eventually("one viewer", async || (agent.listed().await["items"][0]["viewers"] == 1).then_some(())).await;
    two.enter("printf 'v\\033[6nw\\n'; echo alo''ne\r").await;
    two.sees("alone").await;
    assert!(two.seen.contains("v\u{1b}[6nw"), "{:?}", two.seen);
}

#[tokio::test]
async fn terminals_open_and_close_by_number() {
    let agent = Given::terminal().start();
    let (mut one, mut three) = (agent.view(1).await, agent.view(3).await);
    one.enter("A=1; echo one$A\r").await;
    one.sees("one1").await;
    three.enter("echo three$A.\r").await;
    three.sees("three.").await;
    assert_eq!(agent.status().await.terminals, 2);

    one.enter("exit 3\r").await;
    assert_eq!(one.closed().await, (1000, "the shell has ended with code 3".to_owned()));
    assert!(one.seen.contains("[the shell has ended with code 3]"));

    let path = format!("{}ptys/3", agent.base());
    assert_eq!(agent.ask("DELETE", &path).await.0, StatusCode::NO_CONTENT);
    assert_eq!(three.closed().await.0, 1000);
    eventually("no terminal", async || agent.listed().await["items"].as_array().unwrap().is_empty().then_some(()))
        .await;
    assert_eq!(agent.ask("DELETE", &path).await.0, StatusCode::NOT_FOUND);
    assert_eq!(agent.status().await.phase, Phase::Ready, "the session goes on");

    for nonsense in ["{}", "ls", r#"{"resize":{"cols":-1,"rows":1}}"#] {
        let mut viewer = agent.view(1).await;
        viewer.send(Message::text(nonsense)).await;
        assert_eq!(viewer.closed().await.0, 1003, "{nonsense}");
    }
    let mut anew = agent.view(1).await;
    anew.enter("echo anew$A.\r").await;
    anew.sees("anew.").await;
    for number in ["0", "9", "-1", "x"] {
        let url = format!("ws://localhost{}pty?terminal={number}", agent.base());
        assert!(tokio_tungstenite::client_async(url, agent.connect().await).await.is_err(), "{number}");
    }
}

#[tokio::test]
async fn a_viewer_that_reads_nothing_does_not_hold_up_the_shell() {
    let agent = Given::terminal().start();
    let mut stuck = agent.view(1).await;
    stuck.enter("head -c 20000000 /dev/zero | tr '\\0' 'x'; touch ~/written\r").await;
    eventually("the shell's way past the stuck viewer", async || agent.home("written").exists().then_some(())).await;
    assert_eq!(agent.listed().await["items"][0]["viewers"], 0, "it was dropped");
    let mut fresh = agent.view(1).await;
    fresh.enter("echo fr''esh\r").await;
    fresh.sees("fresh").await;
}

#[tokio::test]
async fn events_tell_of_phases_and_samples() {
    let agent = Given::terminal().start();
    let mut events = agent.open("GET", "/v1/events").await.into_body();
    let mut text = String::new();
    let mut last = None;
    let has_sample = |status: &Option<AgentStatus>| status.as_ref().is_some_and(|status| status.sample.is_some());
    while !(has_sample(&last) && last.as_ref().is_some_and(|status| status.phase == Phase::Ready)) {
        let frame = tokio::time::timeout(PATIENCE, http_body_util::BodyExt::frame(&mut events)).await.unwrap();
        text.push_str(std::str::from_utf8(frame.unwrap().unwrap().data_ref().unwrap()).unwrap());
        last = text.lines().last().map(|line| serde_json::from_str(line).unwrap());
    }
    let frozen = agent.view(1).await;
    rustix::process::kill_process(agent.pid(), Signal::TERM).unwrap();
    let mut phases = Vec::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(PATIENCE, http_body_util::BodyExt::frame(&mut events)).await {
        for line in std::str::from_utf8(frame.data_ref().unwrap()).unwrap().lines() {
            phases.push(serde_json::from_str::<AgentStatus>(line).unwrap().phase);
        }
    }
    assert_eq!(phases.last(), Some(&Phase::Ending), "the stream ends with the agent");
    drop(frozen);
}
