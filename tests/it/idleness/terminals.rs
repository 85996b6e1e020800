//! The agent's terminals: typing is use, and so is what a program prints; a shell that waits
//! in an open tab is not.

use futures_util::{FutureExt, SinkExt, StreamExt};
use lyceum::model::SessionId;
use serde_json::json;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use super::{runs, stopped};
use crate::life::{House, Person};

pub type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

#[tokio::test]
async fn a_shell_that_waits_is_idle() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "idle_timeout_seconds": 8, "light": -1 })).await;
    let (waits, typed, prints) = (
        person.run(&house, "terminal").await,
        person.run(&house, "terminal").await,
        person.run(&house, "terminal").await,
    );
    let mut open = tab(&house, &person, waits).await;
    let mut busy = tab(&house, &person, typed).await;
    let mut loud = tab(&house, &person, prints).await;
    loud.send(Message::binary(b"while sleep 1; do date; done\n".as_slice())).await.unwrap();
    drop(loud);
    stopped(&house, &person, waits, async || {
        while open.next().now_or_never().flatten().is_some_and(|message| message.is_ok()) {}
        while busy.next().now_or_never().flatten().is_some_and(|message| message.is_ok()) {}
        busy.send(Message::binary(b"#".as_slice())).await.unwrap();
        runs(&house, &person, typed, "somebody types").await;
        runs(&house, &person, prints, "its program prints, though nobody looks").await;
    })
    .await;
    drop(busy);
    stopped(&house, &person, typed, async || runs(&house, &person, prints, "its program prints").await).await;
}

pub async fn tab(house: &House, person: &Person, id: SessionId) -> Socket {
    let url = format!("{}/s/{id}/pty", house.url).replace("http://", "ws://");
    let mut upgrade = url.into_client_request().unwrap();
    upgrade.headers_mut().insert("authorization", person.authorization().parse().unwrap());
    upgrade.headers_mut().insert("sec-fetch-mode", "websocket".parse().unwrap());
    connect_async(upgrade).await.unwrap().0
}
