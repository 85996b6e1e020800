//! Upgraded connections.

use std::time::Instant;

use futures_util::{SinkExt, StreamExt, future::join_all};
use lyceum::model::UserId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use super::{
    app::App,
    front::{DEADLINE, Front, Setup, until},
};

async fn websocket(front: &Front, protocols: Option<&str>) -> (WebSocketStream<TcpStream>, Option<String>) {
    let mut request = format!("ws://{}/s/{}/ws", front.address, front.session).into_client_request().unwrap();
    if let Some(protocols) = protocols {
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
    }
    let (socket, answer) = client_async(request, front.connect().await).await.unwrap();
    let protocol = answer.headers().get("sec-websocket-protocol").map(|value| value.to_str().unwrap().to_owned());
    (socket, protocol)
}

#[tokio::test]
async fn a_websocket_echoes_with_its_sub_protocol() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let (mut socket, protocol) = websocket(&front, Some("legacy, v1.kernel.websocket.jupyter.org")).await;
    assert_eq!(protocol.as_deref(), Some("v1.kernel.websocket.jupyter.org"));
    let large = Message::binary(vec![7; 3 * 1024 * 1024]);
    for message in [Message::text("hello"), Message::binary(vec![0, 1, 2]), large] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(timeout(DEADLINE, socket.next()).await.unwrap().unwrap().unwrap(), message);
    }
    let session = front.session;
    assert_eq!(front.proxy.tunnels().count(|tunnel| tunnel.session == session), 1);
    assert_eq!(front.proxy.open_connections(session), 1);

    front.clock.advance(60);
    let before = front.activity.last();
    socket.send(Message::Ping(b"ping".to_vec().into())).await.unwrap();
    assert!(timeout(DEADLINE, socket.next()).await.unwrap().unwrap().unwrap().is_pong());
    assert_eq!(front.activity.last(), before, "a ping is not activity");
    socket.send(Message::text("a command")).await.unwrap();
    socket.next().await.unwrap().unwrap();
    assert_eq!(front.activity.last(), Some(front.clock.now()));

    socket.close(None).await.unwrap();
    while let Some(Ok(_)) = socket.next().await {}
    drop(socket);
    until("the tunnel ends with its socket", || front.proxy.tunnels().count(|_| true) == 0).await;
    until("so does its connection", || front.proxy.open_connections(session) == 0).await;
}

#[tokio::test]
async fn any_protocol_passes_and_a_half_close_too() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let mut stream = front.connect().await;
    // The first bytes of the new protocol come with the request, before the answer.
    let ask = format!(
        "GET /s/{}/raw HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nearly ",
        front.session
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello\n") {
        let read = timeout(DEADLINE, stream.read_buf(&mut answer)).await.unwrap().unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&answer));
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
    stream.write_all(b"and late").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut rest)).await.unwrap().unwrap();
    assert_eq!(rest, "read: early and late");
}

#[tokio::test]
async fn an_upgrade_that_the_app_declines_is_an_ordinary_answer() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let answer = front.say("GET {s}/a HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("upgrade: websocket"), "{answer}");
    let answer = front.say("GET {s}/switch HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("UnaskedUpgrade"), "{answer}");
    let answer =
        front.say("GET {s}/a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n");
    let answer = answer.await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("h2c"), "{answer}");
    until("nothing is left registered", || front.proxy.tunnels().count(|_| true) == 0).await;
}

/// A thousand idle sockets of one user, and a few of another, who notices nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tunnels_are_cut_within_five_seconds() {
    let app = App::start();
    let mut fronts = Vec::new();
    for _ in 0..4 {
        fronts.push(Setup::of(&app).start().await);
    }
    let sockets = fronts.iter().flat_map(|front| (0..250).map(move |_| websocket(front, None)));
    let mut sockets: Vec<_> = join_all(sockets).await.into_iter().map(|(socket, _)| socket).collect();
    let live = || fronts.iter().map(|front| front.proxy.tunnels().count(|_| true)).sum::<usize>();
    assert_eq!(live(), 1000);

    let nobody = UserId::new();
    for front in &fronts {
        assert_eq!(front.proxy.tunnels().cut(|tunnel| tunnel.holder.user == nobody), 0);
    }
    let spared = fronts[3].user;
    let start = Instant::now();
    let cut: usize = fronts.iter().map(|front| front.proxy.tunnels().cut(|tunnel| tunnel.holder.user != spared)).sum();
    assert_eq!(cut, 750);
    for socket in &mut sockets[..750] {
        assert!(!matches!(timeout(DEADLINE, socket.next()).await.unwrap(), Some(Ok(_))));
    }
    let took = start.elapsed();
    assert!(took.as_secs() < 5, "{took:?}");
    until("the cut ones are gone", || live() == 250).await;
    for socket in &mut sockets[750..] {
        socket.send(Message::text("still here")).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("still here"));
    }
    fronts[3].proxy.tunnels().shut_down().await;
    assert_eq!(live(), 0);
}
