//! What `lyceum check` asks of a running portal, over the way that browsers come: what of a
//! request arrives here, an upgraded connection that echoes, and a stream whose first event is
//! sent at once. It answers nobody who does not know the portal's key.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{
        FromRequestParts, State, WebSocketUpgrade,
        ws::{Message, WebSocket},
    },
    http::{HeaderMap, header, request::Parts},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use futures_util::{Stream, StreamExt};
use serde::{Deserialize, Serialize};

use super::{
    Portal,
    http::{
        error::{Error, Result},
        forwarded,
        streams::sse,
    },
};
use crate::auth::keys::KeyProof;

/// Below this path; the same on both listeners.
pub const FACTS: &str = "/check";
pub const ECHO: &str = "/check/echo";
pub const EVENTS: &str = "/check/events";

/// Between the stream's two events. Who sees both at once sees them late.
pub const EVENT_DELAY: Duration = Duration::from_millis(1500);

/// The longest that an echo is kept open.
const ECHO_TIMEOUT: Duration = Duration::from_secs(10);

/// Reports the parts of a request that arrived.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReceivedRequest {
    pub host: String,
    pub forwarded_proto: Option<String>,
    /// Of the header in which proxies are believed to name the client.
    pub forwarded_for: Option<String>,
    /// Whom the portal takes the client for.
    pub client: String,
    /// Whether the portal believes that browsers come by HTTPS.
    pub https: bool,
}

/// Somebody who knows the key.
pub(super) struct Checker;

impl FromRequestParts<Arc<Portal>> for Checker {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self> {
        let shown = parts.headers.get(KeyProof::HEADER).and_then(|pass| pass.to_str().ok()).unwrap_or_default();
        let good = KeyProof::is_good(shown, &portal.gateway.key, portal.clock.now());
        if good { Ok(Self) } else { Err(Error::not_found()) }
    }
}

/// What arrives of a request.
pub(super) async fn facts(_: Checker, State(portal): State<Arc<Portal>>, asked: Parts) -> Json<ReceivedRequest> {
    let header = |name: &str| text(&asked.headers, name);
    Json(ReceivedRequest {
        host: header(header::HOST.as_str()).unwrap_or_default(),
        forwarded_proto: header("x-forwarded-proto"),
        forwarded_for: header(portal.config.client_header.name()),
        client: forwarded::client_address(&portal.config, &asked.headers, &asked.extensions).to_string(),
        https: portal.config.is_https(),
    })
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Says what it hears, once.
pub(super) async fn echo(_: Checker, State(portal): State<Arc<Portal>>, mut asked: Parts) -> Result<Response> {
    let upgrade = WebSocketUpgrade::from_request_parts(&mut asked, &portal).await;
    let upgrade = upgrade.map_err(|_err| Error::malformed("No WebSocket upgrade arrived."))?;
    let answer = |socket| async move {
        // Whoever says nothing for so long is gone.
        let _ = tokio::time::timeout(ECHO_TIMEOUT, say_again(socket)).await;
    };
    Ok(upgrade.max_message_size(1024).on_upgrade(answer))
}

async fn say_again(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Message::Text(_) | Message::Binary(_)) {
            let _ = socket.send(message).await;
            return;
        }
    }
}

/// Two events, as the portal's own pages get theirs.
pub(super) async fn portals_events(_: Checker, State(portal): State<Arc<Portal>>) -> Response {
    sse(portal.stopping.clone(), events()).into_response()
}

/// The same, as an app sends them: without any word to a proxy.
pub(super) async fn apps_events(_: Checker) -> Response {
    Sse::new(events().map(Ok::<_, Infallible>)).into_response()
}

fn events() -> impl Stream<Item = Event> {
    let first = futures_util::stream::once(async { Event::default().data("at once") });
    first.chain(futures_util::stream::once(async {
        tokio::time::sleep(EVENT_DELAY).await;
        Event::default().data("later")
    }))
}
