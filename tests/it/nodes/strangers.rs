//! Who gets nothing: whoever else is on the node or on the cluster's network, without a key,
//! with one of their own, with a recording, or in the agent's place; and what an agent's
//! word is worth about where it is.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream as Blocking,
    os::unix::{
        fs::{chown, symlink},
        process::CommandExt,
    },
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use lyceum::{
    dial::{self, Endpoint, dial},
    model::{SessionId, session::Transport},
    nodes::{self, Identity, Nodes, PublicKey, tls},
    protocol::{
        NodeSetup, files,
        node::{APP_UNAVAILABLE, Call, Door, OPEN},
    },
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::world::{Agent, NEIGHBOUR, NODE, OWNER, Stage, config};
use crate::{
    needs,
    wait::{PATIENCE, eventually},
};

fn public(setup: &NodeSetup) -> PublicKey {
    of_agent(setup).public().clone()
}

fn of_agent(setup: &NodeSetup) -> Identity {
    Identity::of(&hex::decode(&setup.key).unwrap().try_into().unwrap())
}

/// Connects to an agent as somebody and asks for its app; what it answers.
async fn ask(port: u16, own: &Identity, theirs: PublicKey, line: &str) -> std::io::Result<(String, tls::Stream)> {
    let stream = TcpStream::connect((NODE, port)).await?;
    let mut stream = tls::connect(&tls::connector(own, theirs), stream).await?;
    tls::write_line(&mut stream, line).await?;
    let answer = timeout(PATIENCE, tls::read_line(&mut stream)).await.expect("it answers or hangs up")?;
    Ok((answer, stream))
}

#[tokio::test]
async fn agent_pin() {
    if !needs::root() {
        return;
    }
    let stage = Stage::new(Transport::EndpointFile).await;
    let (agent, other) = (stage.session("ada", "jupyter").await, stage.session("bob", "jupyter").await);
    let port = agent.port().await;
    let setup = stage.nodes.setup(agent.session, 1);

    // The key that the agent proves, and which everybody may know, opens nothing.
    let strangers = [
        Identity::of(&[7; 32]),
        of_agent(&setup),
        of_agent(&stage.nodes.setup(other.session, 1)),
        of_agent(&stage.nodes.setup(agent.session, 2)),
    ];
    for stranger in strangers {
        let met = ask(port, &stranger, public(&setup), "app.sock").await;
        assert!(met.is_err(), "{stranger:?} was let in");
    }
    // Another portal's key.
    let another = Nodes::new(config(Transport::EndpointFile, stage.calls), b"another");
    let endpoint = Endpoint::of(&another, agent.session, &agent.placement, Door::App);
    assert!(dial(&endpoint, OWNER).await.is_err());
    // Another attempt's agent is not this one.
    let mut later = agent.placement.clone();
    later.link = Some(stage.nodes.link(2, NODE));
    let endpoint = Endpoint::of(&stage.nodes, agent.session, &later, Door::App);
    assert!(dial(&endpoint, OWNER).await.unwrap_err().is_impostor());

    for words in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "app.sock\n", "\x16\x03\x01", "\n\n\n\n"] {
        let mut stream = Blocking::connect((NODE, port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(words.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // It hangs up, in whatever way.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(!answer.contains("HTTP") && !answer.contains(OPEN), "{words:?}: {answer:?}");
    }
    assert_eq!(agent.requests().lines().filter(|line| !line.ends_with('/')).count(), 0, "{}", agent.requests());
    let endpoint = stage.endpoint(&agent, Door::App);
    dial(&endpoint, OWNER).await.expect("the portal itself is let in all the while");
}

/// Another user of the node finds no other way either.
#[tokio::test]
async fn a_neighbour_reaches_no_socket() {
    if !needs::root() {
        return;
    }
    let stage = Stage::new(Transport::EndpointFile).await;
    let agent = stage.session("ada", "jupyter").await;
    agent.port().await;
    for name in [files::AGENT_SOCKET, files::APP_SOCKET, files::ENDPOINT, files::LOG] {
        let script = format!(
            "import socket\ntry:\n  s=socket.socket(socket.AF_UNIX); s.connect({path:?})\nexcept PermissionError: pass\n\
             else: raise SystemExit('connected')\ntry: open({path:?})\nexcept PermissionError: pass\n\
             else: raise SystemExit('opened')",
            path = agent.run.join(name).to_str().unwrap()
        );
        let mut python = Command::new("/usr/bin/python3");
        let output = python.args(["-c", &script]).uid(NEIGHBOUR).gid(NEIGHBOUR).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Nor does the argument list of the agent hold anything but a path.
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", agent.process.id())).unwrap();
    assert!(!arguments.contains(&stage.nodes.setup(agent.session, 1).key), "{arguments}");
}

/// With the portal's very key there is nothing but the doors.
#[tokio::test]
async fn there_are_no_other_doors() {
    if !needs::root() {
        return;
    }
    let portal = Identity::of(&[3; 32]);
    let stage = Stage::new(Transport::EndpointFile).await;
    let session = SessionId::new();
    let setup = NodeSetup { portal: portal.public().to_hex(), ..stage.nodes.setup(session, 1) };
    let agent = Agent::with(session, "jupyter", setup.clone(), stage.nodes.link(1, NODE));
    let port = agent.port().await;
    assert_eq!(ask(port, &portal, public(&setup), "agent.sock").await.unwrap().0, OPEN);
    assert_eq!(ask(port, &portal, public(&setup), "port").await.unwrap().0, APP_UNAVAILABLE, "it has none");
    let long = "a".repeat(10_000);
    for name in ["", "/etc/passwd", "../x", "log", "app.sock ", "22", "127.0.0.1:22", "app.sock\0", &long] {
        assert!(ask(port, &portal, public(&setup), name).await.is_err(), "{name:?}");
    }
    // An app's socket that is somebody else's: a link to one of another user's.
    let (elsewhere, own) = (tempfile::tempdir().unwrap(), agent.run.join(files::APP_SOCKET));
    let _theirs = std::os::unix::net::UnixListener::bind(elsewhere.path().join("x")).unwrap();
    std::fs::remove_file(&own).unwrap();
    symlink(elsewhere.path().join("x"), &own).unwrap();
    assert_eq!(ask(port, &portal, public(&setup), "app.sock").await.unwrap().0, APP_UNAVAILABLE);
}

/// Passes bytes on to an agent and keeps what the portal sent.
async fn recorder(agent: u16) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind((NODE, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let tape = kept.clone();
    tokio::spawn(async move {
        while let Ok((portal, _)) = listener.accept().await {
            let onwards = TcpStream::connect((NODE, agent)).await.unwrap();
            let ((mut from_portal, mut to_portal), (mut from_agent, mut to_agent)) =
                (portal.into_split(), onwards.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_agent, &mut to_portal).await });
            let tape = tape.clone();
            tokio::spawn(async move {
                let mut piece = [0; 4096];
                while let Ok(length @ 1..) = from_portal.read(&mut piece).await {
                    tape.lock().extend_from_slice(&piece[..length]);
                    if to_agent.write_all(&piece[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, kept)
}

#[tokio::test]
async fn a_recording_is_worth_nothing() {
    if !needs::root() {
        return;
    }
    let stage = Stage::new(Transport::EndpointFile).await;
    let agent = stage.session("ada", "jupyter").await;
    let port = agent.port().await;
    let (relay, tape) = recorder(port).await;
    // The agent's user lies about the port; whoever is there sees what the network sees.
    agent.write(files::ENDPOINT, &format!(r#"{{"port": {relay}}}"#));
    stage.world.portal.portal.gateway.forget(agent.session);
    let (_, cookie) = stage.world.opened("ada", agent.session).await;
    let ada = stage.world.on_app(agent.session, &cookie);
    assert_eq!(ada.get(&format!("/s/{}/recorded", agent.session)).await.status(), 200);
    let tape = tape.lock().clone();
    let text = String::from_utf8_lossy(&tape).into_owned();
    assert!(!tape.is_empty() && !text.contains("recorded") && !text.contains("HTTP"), "it is all encrypted");
    assert_eq!(agent.requests().matches("/recorded").count(), 1);
    for _ in 0..3 {
        let mut stream = Blocking::connect((NODE, port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The agent may hang up in the middle.
        let _ = stream.write_all(&tape);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(agent.requests().matches("/recorded").count(), 1, "{}", agent.requests());
}

/// Says what it heard to whoever asks for its end, and answers everybody like an app.
const SQUATTER: &str = "
import socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(8)
print(s.getsockname()[1], flush=True)
c = s.accept()[0]; c.settimeout(60)
heard = c.recv(65536)
c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 8\\r\\n\\r\\nsquatted')
sys.stdout.buffer.write(heard); sys.stdout.flush()
";

#[tokio::test]
async fn whoever_takes_the_port_is_not_the_agent() {
    if !needs::root() {
        return;
    }
    let stage = Stage::new(Transport::EndpointFile).await;
    let mut agent = stage.session("ada", "jupyter").await;
    let id = agent.session;
    let (_, cookie) = stage.world.opened("ada", id).await;
    let port = agent.port().await;
    agent.kill();
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", SQUATTER, NODE, &port.to_string()]).uid(NEIGHBOUR).gid(NEIGHBOUR).stdout(Stdio::piped());
    let mut squatter = python.spawn().unwrap();
    let mut output = BufReader::new(squatter.stdout.take().unwrap());
    assert_ne!(output.read_line(&mut String::new()).unwrap(), 0, "it listens");
    let answer = stage.world.on_app(id, &cookie).get(&format!("/s/{id}/secret-path")).await;
    assert_eq!(answer.status(), 503);
    assert!(!answer.text().await.unwrap().contains("squatted"));
    let mut heard = Vec::new();
    output.read_to_end(&mut heard).unwrap();
    squatter.wait().unwrap();
    let heard = String::from_utf8_lossy(&heard).into_owned();
    for secret in ["secret-path", "token", "HTTP", "lyceum_"] {
        assert!(!heard.contains(secret), "{heard:?}");
    }

    // One that speaks TLS, with a key of its own.
    let listener = TcpListener::bind((NODE, 0)).await.unwrap();
    let theirs = listener.local_addr().unwrap().port();
    let heard = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = tls::accept(&tls::acceptor(&Identity::of(&[8; 32]), None), stream).await?;
        tls::read_line(&mut stream).await
    });
    agent.write(files::ENDPOINT, &format!(r#"{{"port": {theirs}}}"#));
    let error = dial(&stage.endpoint(&agent, Door::App), OWNER).await.unwrap_err();
    assert!(error.is_impostor(), "{error:?}");
    assert!(heard.await.unwrap().is_err(), "it hears not even what is asked for");
}

#[tokio::test]
async fn lying_agent() {
    if !needs::root() {
        return;
    }
    let stage = Stage::new(Transport::EndpointFile).await;
    let agent = stage.session("ada", "jupyter").await;
    let port = agent.port().await;
    let gateway = &stage.world.portal.portal.gateway;
    let reached = async || {
        gateway.nodes.forget(agent.session);
        dial(&stage.endpoint(&agent, Door::App), OWNER).await
    };
    // It may name any host: that is the scheduler's to say.
    agent.write(files::ENDPOINT, &format!(r#"{{"port": {port}, "host": "192.0.2.1", "address": "127.0.0.6"}}"#));
    reached().await.unwrap();
    let refused = async |what: &str| match reached().await {
        Err(dial::Error::Node(nodes::Error::EndpointFile(_) | nodes::Error::Port(_))) => {}
        other => panic!("{what}: {other:?}"),
    };
    for bad in ["{}", "[]", "", r#"{"port": 22}"#, r#"{"port": 0}"#, r#"{"port": 99999}"#, &"x".repeat(100_000)] {
        agent.write(files::ENDPOINT, bad);
        refused(bad).await;
    }
    // Whoever else's file it is, it is not the agent's word.
    agent.write(files::ENDPOINT, &format!(r#"{{"port": {port}}}"#));
    reached().await.unwrap();
    let file = agent.run.join(files::ENDPOINT);
    chown(&file, Some(NEIGHBOUR), Some(NEIGHBOUR)).unwrap();
    refused("another user's file").await;
    let elsewhere = agent.run.with_file_name("elsewhere.json");
    std::fs::rename(&file, &elsewhere).unwrap();
    chown(&elsewhere, Some(OWNER), Some(OWNER)).unwrap();
    symlink(&elsewhere, &file).unwrap();
    refused("a symbolic link").await;
    std::fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    refused("a pipe, and nobody waits for its writer").await;
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(reached().await, Err(dial::Error::Node(nodes::Error::NotTold))));
    // A scheduler that has not placed it yet.
    agent.write(files::ENDPOINT, &format!(r#"{{"port": {port}}}"#));
    let mut waiting = agent.placement.clone();
    waiting.link = Some(stage.nodes.link(1, ""));
    let endpoint = Endpoint::of(&stage.nodes, agent.session, &waiting, Door::App);
    assert!(matches!(dial(&endpoint, OWNER).await, Err(dial::Error::Node(nodes::Error::NotPlaced))));
}

/// Calls the portal as somebody; the connection, and whether it is kept.
async fn call(stage: &Stage, own: &Identity, line: &str) -> (tls::Stream, bool) {
    let portal = PublicKey::from_hex(&stage.nodes.setup(SessionId::new(), 1).portal).unwrap();
    let stream = TcpStream::connect(stage.calls).await.unwrap();
    let mut stream = tls::connect(&tls::connector(own, portal), stream).await.unwrap();
    tls::write_line(&mut stream, line).await.unwrap();
    // Whom it does not want it tells at once; that it wants somebody it does not say.
    let kept = timeout(Duration::from_millis(500), stream.read_u8()).await.is_err();
    (stream, kept)
}

#[tokio::test]
async fn only_agents_may_call_and_only_for_themselves() {
    if !needs::root() {
        return;
    }
    let stage = Stage::new(Transport::DialBack).await;
    let placement = stage.session("bob", "terminal").await.placement.clone();
    let owner = stage.world.user("ada").await;
    let session = stage.world.queued("jupyter", owner).await;
    stage.world.run_at(session, &placement).await;
    let setup = |session, attempt| of_agent(&stage.nodes.setup(session, attempt));
    let line = |session, attempt| Call { session, attempt, port: None }.to_string();
    let unknown = SessionId::new();
    for (own, line, who) in [
        (Identity::of(&[7; 32]), line(session, 1), "a key of one's own"),
        (setup(unknown, 1), line(session, 1), "another agent's key"),
        (setup(session, 2), line(session, 1), "another start's key"),
        (setup(session, 2), line(session, 2), "a start that nobody made"),
        (setup(unknown, 1), line(unknown, 1), "a session that nobody has"),
        (setup(session, 1), "x".repeat(5000), "a long line"),
        (setup(session, 1), "GET / HTTP/1.1".to_owned(), "another protocol"),
        (setup(session, 1), format!("{session} 1 port 99999"), "no port"),
    ] {
        assert!(!call(&stage, &own, &line).await.1, "{who}");
    }
    // What waits is bounded; the latest is used first.
    let own = setup(session, 1);
    let mut calls = Vec::new();
    for _ in 0..12 {
        calls.push(call(&stage, &own, &line(session, 1)).await.0);
    }
    for old in &mut calls[..4] {
        let ended = timeout(PATIENCE, old.read_u8()).await.expect("the oldest are let go");
        assert!(ended.is_err());
    }
    let endpoint = Endpoint::of(&stage.world.portal.portal.gateway.nodes, session, &placement, Door::App);
    let answered = async {
        let last = calls.last_mut().unwrap();
        assert_eq!(tls::read_line(last).await.unwrap(), "app.sock");
        tls::write_line(last, OPEN).await.unwrap();
    };
    let (dialled, ()) = tokio::join!(dial(&endpoint, OWNER), answered);
    dialled.unwrap();
    // Without a word of TLS nothing comes at all.
    let mut plain = TcpStream::connect(stage.calls).await.unwrap();
    plain.write_all(format!("{}\n", line(session, 1)).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, plain.read_to_end(&mut answer)).await.expect("it hangs up");
    assert!(answer.len() < 100, "an alert and no more");
}

/// Nobody can be the portal to an agent that calls.
#[tokio::test]
async fn an_agent_calls_nobody_but_its_portal() {
    if !needs::root() {
        return;
    }
    let impostor = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nodes = Nodes::new(config(Transport::DialBack, impostor.local_addr().unwrap()), b"nodes");
    let _agent = Agent::start(SessionId::new(), "jupyter", &nodes);
    let acceptor = tls::acceptor(&Identity::of(&[8; 32]), None);
    for _ in 0..3 {
        let (stream, _) = timeout(PATIENCE, impostor.accept()).await.expect("it calls").unwrap();
        let met = async {
            let mut stream = tls::accept(&acceptor, stream).await?;
            tls::read_line(&mut stream).await
        };
        assert!(timeout(PATIENCE, met).await.unwrap().is_err(), "it does not say its name");
    }
}

/// One that listens and never calls is found by its file alone; one that calls is not.
#[tokio::test]
async fn what_is_told_by_a_call_is_forgotten_with_it() {
    if !needs::root() {
        return;
    }
    let stage = Stage::new(Transport::Listen).await;
    let agent = stage.session("ada", "jupyter").await;
    let endpoint = stage.endpoint(&agent, Door::App);
    eventually("it has called", async || dial(&endpoint, OWNER).await.ok()).await;
    assert!(!agent.run.join(files::ENDPOINT).exists());
    drop(agent);
    stage.world.portal.portal.gateway.nodes.forget(SessionId::new());
    assert!(eventually("it is gone", async || dial(&endpoint, OWNER).await.err()).await.to_string().len() > 1);
}
