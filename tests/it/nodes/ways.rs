//! What works on this machine works on another node: pages, uploads, downloads, sockets,
//! terminals, the agent's status, events and log; by each transport, and with little memory.

use futures_util::{SinkExt, StreamExt};
use lyceum::{
    protocol::{Phase, node::Door},
    scheduler::link,
};
use tokio_tungstenite::tungstenite::Message;

use super::world::{Agent, OWNER, Stage, TRANSPORTS};
use crate::{
    gateway::world::{Socket, socket},
    needs, portal,
    wait::eventually,
};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn an_app_through_the_proxy() {
    if !needs::root() {
        return;
    }
    for transport in TRANSPORTS {
        let stage = Stage::new(transport).await;
        let agent = stage.session("ada", "jupyter").await;
        let (world, id) = (&stage.world, agent.session);
        let (_, cookie) = world.opened("ada", id).await;
        let ada = world.on_app(id, &cookie);

        let answer: serde_json::Value = ada.get(&format!("/s/{id}/api?x=1")).await.json().await.unwrap();
        assert_eq!((&answer["path"], &answer["uid"]), (&format!("/s/{id}/api?x=1").into(), &OWNER.into()));
        // The attempt's secret is in no argument and no environment of what the agent started.
        let setup = stage.nodes.setup(id, 1);
        assert!(!answer.to_string().contains(&setup.key), "{answer}");

        let body: Vec<u8> = (0..3 * MIB).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let url = format!("/s/{id}/upload");
        let upload = ada.request("POST", &url).header("origin", world.app_of(id)).body(body.clone());
        assert_eq!(upload.send().await.unwrap().text().await.unwrap(), portal::sha256(&body), "{transport:?}");
        let zeros = ada.get(&format!("/s/{id}/zeros/{}", 20 * MIB)).await.bytes().await.unwrap();
        assert!(zeros.len() == 20 * MIB && zeros.iter().all(|byte| *byte == 0), "{transport:?}");
        let many = (0..40).map(|at| {
            let ada = ada.clone();
            async move { ada.get(&format!("/s/{id}/many/{at}")).await }
        });
        for answer in futures_util::future::join_all(many).await {
            assert_eq!(answer.status(), 200, "{transport:?}");
        }

        let mut echo = enter(&stage, &agent, "api/kernels/channels", &cookie).await;
        for text in ["hello".to_owned(), "x".repeat(60_000)] {
            echo.send(Message::text(text.clone())).await.unwrap();
            assert_eq!(echo.next().await.unwrap().unwrap(), Message::text(text));
        }

        let control = stage.endpoint(&agent, Door::Agent);
        let mut events = link::events(&control, OWNER).await.unwrap();
        eventually("it says that it is ready", async || {
            events.next().await.filter(|status| status.phase == Phase::Ready).map(drop)
        })
        .await;
        let log = link::log_tail(&control, OWNER, 10_000).await.unwrap();
        assert!(String::from_utf8_lossy(&log).contains("the app listens"));
        let app = stage.endpoint(&agent, Door::App);
        let asked = link::ask(&app, OWNER, &format!("/s/{id}/asked"), Some("token x")).await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&asked).contains("token x"));

        agent_memory(&agent, transport);
    }
}

async fn enter(stage: &Stage, agent: &Agent, path: &str, cookie: &str) -> Socket {
    let origin = stage.world.app_of(agent.session);
    let url = format!("{origin}/s/{}/{path}", agent.session);
    socket(&url, &[("cookie", cookie), ("origin", &origin)]).await.unwrap()
}

/// After all that, and with a WebSocket open.
fn agent_memory(agent: &Agent, transport: impl std::fmt::Debug) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.process.id())).unwrap();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let (own, peak) = (kib("RssAnon:"), kib("VmHWM:"));
    eprintln!("an agent ({transport:?}): {own} KiB of its own, {peak} KiB with its program at most");
    // What is the program's own file is larger in a build for tests, and shared by all agents.
    assert!(own <= 10 * 1024, "{own} KiB");
}

#[tokio::test]
async fn a_terminal_through_the_proxy() {
    if !needs::root() {
        return;
    }
    for transport in TRANSPORTS {
        let stage = Stage::new(transport).await;
        let agent = stage.session("ada", "terminal").await;
        let (_, cookie) = stage.world.opened("ada", agent.session).await;
        let mut terminal = enter(&stage, &agent, "pty?terminal=1", &cookie).await;
        terminal.send(Message::binary(b"echo I am $(id -u)\n".to_vec())).await.unwrap();
        let mut seen = String::new();
        while !seen.contains(&format!("I am {OWNER}")) {
            match terminal.next().await.unwrap().unwrap() {
                Message::Binary(bytes) => seen.push_str(&String::from_utf8_lossy(&bytes)),
                Message::Text(_) | Message::Ping(_) => {}
                other => panic!("{other:?} after {seen}"),
            }
        }
    }
}
