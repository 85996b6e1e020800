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

use lyceum_wire::protocol::ReadyProbe;

/// A program that accepts and then says nothing is asked again after this long.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Before the next look whether somebody listens. One costs next to nothing, but fifty programs
/// that start at once take a minute: who has waited long is late by a fiftieth of it at most.
fn pause_after(waited: Duration) -> Duration {
    (waited / 50).clamp(Duration::from_millis(20), Duration::from_millis(500))
}

/// A server that has its settings and does not accept the portal's own secret never will. So
/// long it may be that it is still putting them together.
const REFUSING: Duration = Duration::from_secs(5);

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ready,
    /// The time is up; the status of the last answer, if there was one.
    Late(Option<u16>),
    /// It answers, but not to who shows the secret that it was started with.
    Refused(u16),
}

/// Asks until the app answers as it must, refuses its own secret, or the time is up.
pub(super) async fn until_ready(probe: &ReadyProbe, socket: &Path) -> Answer {
    let began = Instant::now();
    let deadline = began + Duration::from_secs(probe.timeout_seconds);
    let mut patience = Duration::from_millis(50);
    let (mut last, mut refusing) = (None, None);
    loop {
        let asked = timeout(ATTEMPT, ask(probe, socket)).await;
        if let Ok(Ok(Some(status))) = asked {
            last = Some(status);
            if is_ready(probe, status) {
                return Answer::Ready;
            }
            refusing = is_refusal(probe, status).then(|| refusing.unwrap_or_else(Instant::now));
            if refusing.is_some_and(|since| since.elapsed() >= REFUSING) {
                return Answer::Refused(status);
            }
        }
        let pause = if let Ok(Err(_)) = asked {
            pause_after(began.elapsed())
        } else {
            // It listens and is not ready: each question costs it time.
            let pause = patience;
            patience = (patience * 3 / 2).min(Duration::from_millis(500));
            pause
        };
        if deadline < Instant::now() + pause {
            return match last {
                Some(status) if is_refusal(probe, status) => Answer::Refused(status),
                last => Answer::Late(last),
            };
        }
        sleep(pause).await;
    }
}

fn is_ready(probe: &ReadyProbe, status: u16) -> bool {
    if probe.statuses.is_empty() {
        status < 500 && !is_refusal(probe, status)
    } else {
        probe.statuses.contains(&status)
    }
}

/// Not who we are for it, or sent away to sign in.
fn is_refusal(probe: &ReadyProbe, status: u16) -> bool {
    probe.authorization.is_some() && matches!(status, 300..=399 | 401 | 403)
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
    fn an_error_page_is_not_what_was_asked_for() {
        let probe = |statuses: &[u16], authorization: Option<&str>| ReadyProbe {
            path: "/".to_owned(),
            authorization: authorization.map(str::to_owned),
            port: None,
            timeout_seconds: 1,
            statuses: statuses.to_owned(),
        };
        for (statuses, authorization, ready, not) in [
            (vec![], None, vec![200, 302, 401, 404], vec![500, 503]),
            (vec![], Some("token x"), vec![200, 404], vec![302, 401, 403, 502]),
            (vec![200, 204], None, vec![200, 204], vec![201, 302, 404, 500]),
            (vec![200], Some("token x"), vec![200], vec![302, 401, 403, 404]),
        ] {
            let probe = probe(&statuses, authorization);
            for (list, wanted) in [(ready, true), (not, false)] {
                assert!(list.iter().all(|status| is_ready(&probe, *status) == wanted), "{probe:?} {list:?}");
            }
        }
    }

    #[test]
    fn who_has_waited_long_looks_less_often() {
        for (waited, pause) in [(0, 20), (1_000, 20), (2_000, 40), (10_000, 200), (60_000, 500)] {
            assert_eq!(pause_after(Duration::from_millis(waited)), Duration::from_millis(pause), "{waited} ms");
        }
    }
}
