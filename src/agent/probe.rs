//! Readiness: asks the app over its socket, or on its port, until it answers.

use std::{path::Path, pin::pin, time::Duration};

use http_body_util::Empty;
use hyper::{Request, body::Bytes, header};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::{Instant, sleep, timeout},
};

use crate::protocol::ReadyProbe;

/// A program that accepts and then says nothing is asked again after this long.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Returns `true` as soon as the app answers with a status below 500, `false` when the time
/// is up.
pub(super) async fn until_ready(probe: &ReadyProbe, socket: &Path) -> bool {
    let deadline = Instant::now() + Duration::from_secs(probe.timeout_seconds);
    let mut pause = Duration::from_millis(50);
    loop {
        if let Ok(Some(status)) = timeout(ATTEMPT, ask(probe, socket)).await
            && status < 500
        {
            return true;
        }
        if deadline < Instant::now() + pause {
            return false;
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(Duration::from_millis(500));
    }
}

async fn ask(probe: &ReadyProbe, socket: &Path) -> Option<u16> {
    match probe.port {
        Some(port) => status(probe, TcpStream::connect(("127.0.0.1", port)).await.ok()?).await,
        None => status(probe, UnixStream::connect(socket).await.ok()?).await,
    }
}

async fn status<S>(probe: &ReadyProbe, stream: S) -> Option<u16>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let mut request = Request::get(&probe.path).header(header::HOST, "localhost");
    if let Some(authorization) = &probe.authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new()).ok()?;
    let mut answer = pin!(sender.send_request(request));
    let answer = tokio::select! {
        answer = &mut answer => answer,
        // Many servers close after their answer, which then has arrived all the same.
        _ = connection => answer.await,
    };
    Some(answer.ok()?.status().as_u16())
}
