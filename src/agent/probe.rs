//! Readiness: asks the app over its socket, or on its port, until it answers.

use std::{io, path::Path, pin::pin, time::Duration};

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

/// Before the next look whether somebody listens. One costs next to nothing, but fifty programs
/// that start at once take a minute: who has waited long is late by a fiftieth of it at most.
fn pause_after(waited: Duration) -> Duration {
    (waited / 50).clamp(Duration::from_millis(20), Duration::from_millis(500))
}

/// Returns `true` as soon as the app answers with a status below 500, `false` when the time
/// is up.
pub(super) async fn until_ready(probe: &ReadyProbe, socket: &Path) -> bool {
    let began = Instant::now();
    let deadline = began + Duration::from_secs(probe.timeout_seconds);
    let mut patience = Duration::from_millis(50);
    loop {
        let pause = match timeout(ATTEMPT, ask(probe, socket)).await {
            Ok(Ok(Some(status))) if status < 500 => return true,
            Ok(Err(_)) => pause_after(began.elapsed()),
            // It listens and is not ready: each question costs it time.
            Ok(Ok(_)) | Err(_) => {
                let pause = patience;
                patience = (patience * 3 / 2).min(Duration::from_millis(500));
                pause
            }
        };
        if deadline < Instant::now() + pause {
            return false;
        }
        sleep(pause).await;
    }
}

/// The status of the app's answer, if it gives one; an error where nobody listens yet.
async fn ask(probe: &ReadyProbe, socket: &Path) -> io::Result<Option<u16>> {
    Ok(match probe.port {
        Some(port) => status(probe, TcpStream::connect(("127.0.0.1", port)).await?).await,
        None => status(probe, UnixStream::connect(socket).await?).await,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_waited_long_looks_less_often() {
        for (waited, pause) in [(0, 20), (1_000, 20), (2_000, 40), (10_000, 200), (60_000, 500)] {
            assert_eq!(pause_after(Duration::from_millis(waited)), Duration::from_millis(pause), "{waited} ms");
        }
    }
}
