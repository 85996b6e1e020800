//! Talking to what runs in a workload: its agent's streams of events and of curves, and one GET at its
//! app.
//! Both belong to the user: the peer's uid is checked before a byte is sent, every answer is
//! bounded in size and time, and what comes is shown or weighed, never trusted.

use std::{future::ready, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream::BoxStream};
use http_body_util::{BodyExt, BodyStream, Full, Limited};
use hyper::{Method, Request, Response, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;

use super::{Error, Result};
use lyceum_wire::dial::{Endpoint, dial};
use lyceum_wire::protocol::{AgentStatus, MAX_MESSAGE};

/// How long an answer's head may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest line of an agent's events (bytes).
const MAX_LINE: usize = 16 * 1024;

/// What the agent of `uid` tells at its own socket, from now on.
pub async fn events(agent: &Endpoint, uid: u32) -> Result<BoxStream<'static, AgentStatus>> {
    let answer = request(agent, uid, "/v1/events", None, None).await?;
    let body = BodyStream::new(answer.into_body());
    let lines = futures_util::stream::unfold((body, Vec::new()), |(mut body, mut held)| async move {
        loop {
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = held.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(status) => return Some((status, (body, held))),
                    // A line of a newer agent that we do not know is passed over.
                    Err(_) => continue,
                }
            }
            if held.len() > MAX_LINE {
                return None;
            }
            let frame = body.next().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                held.extend_from_slice(&data);
            }
        }
    });
    Ok(lines.boxed())
}

/// What the agent of `uid` reads of curves below a directory behind `places`, as frames cut anywhere.
pub async fn curves(agent: &Endpoint, uid: u32, directory: &str, places: Bytes) -> Result<BoxStream<'static, Bytes>> {
    let query: String =
        url::form_urlencoded::Serializer::new(String::new()).append_pair("directory", directory).finish();
    let answer = request(agent, uid, &format!("/v1/curves?{query}"), None, Some(places)).await?;
    if !answer.status().is_success() {
        return Err(Error::Unavailable(format!("the agent returned status {}", answer.status())));
    }
    let frames = BodyStream::new(answer.into_body()).take_while(|frame| ready(frame.is_ok()));
    Ok(frames.filter_map(|frame| ready(frame.ok().and_then(|frame| frame.into_data().ok()))).boxed())
}

/// One GET; the body of a 2xx answer, `None` where there is nothing at that path (404), or nothing
/// for us: an app that does not know its own secret answers nobody who shows it.
pub async fn ask(endpoint: &Endpoint, uid: u32, path: &str, authorization: Option<&str>) -> Result<Option<Vec<u8>>> {
    let answer = request(endpoint, uid, path, authorization, None).await?;
    if answer.status().is_redirection() || matches!(answer.status().as_u16(), 401 | 403 | 404) {
        return Ok(None);
    }
    if !answer.status().is_success() {
        return Err(Error::Unavailable(format!("the app returned status {}", answer.status())));
    }
    let body = Limited::new(answer.into_body(), MAX_MESSAGE).collect();
    let body = tokio::time::timeout(TIMEOUT, body).await.map_err(|_err| silent())?;
    let body = body.map_err(|err| Error::Unavailable(format!("the app's response was incomplete: {err}")))?;
    Ok(Some(body.to_bytes().to_vec()))
}

/// The last `bytes` of the workload's log, from the agent, where its directory cannot be read.
pub async fn log_tail(agent: &Endpoint, uid: u32, bytes: u64) -> Result<Vec<u8>> {
    let bytes = bytes.min(MAX_MESSAGE as u64);
    Ok(ask(agent, uid, &format!("/v1/log?bytes={bytes}"), None).await?.unwrap_or_default())
}

/// A GET, or with a body a POST.
async fn request(
    endpoint: &Endpoint,
    uid: u32,
    path: &str,
    authorization: Option<&str>,
    body: Option<Bytes>,
) -> Result<Response<Incoming>> {
    let stream = dial(endpoint, uid).await.map_err(|err| Error::Unavailable(err.to_string()))?;
    let exchange = async {
        let (mut sender, connection) = http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await?;
        // It ends with the answer's body, or when that is dropped.
        tokio::spawn(connection);
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let request = request
            .body(Full::new(body.unwrap_or_default()))
            .expect("paths and secrets of ours are valid in a request");
        sender.send_request(request).await
    };
    let answer: hyper::Result<_> = tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_err| silent())?;
    answer.map_err(|err| Error::Unavailable(format!("the workload does not respond: {err}")))
}

fn silent() -> Error {
    Error::Unavailable("the workload did not respond in time".to_owned())
}
