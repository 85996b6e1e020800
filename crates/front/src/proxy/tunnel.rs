//! Requests on their way to an app and all that outlasts them: upgraded sockets and streams.
//! Each is registered with whose access it lives by, so that it can be counted, and cut at
//! once when that access ends. Tunnels copy bytes and never look into them.

use std::{
    collections::HashSet,
    future::poll_fn,
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};
use tokio_util::task::TaskTracker;

use super::{
    activity::Activity,
    registry::{Registration, Registry},
};
use lyceum_model::{Clock, LoginId, SessionId, TokenId, UserId};

/// What one copies at once; on the stack, so that an idle tunnel holds no buffer.
const PIECE: usize = 16 * 1024;
/// How long a tunnel may be silent after one side has ended.
const HALF_CLOSED: Duration = Duration::from_mins(5);

/// By what somebody was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    Login(LoginId),
    Token(TokenId),
}

/// Who a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub user: UserId,
    pub access: Access,
}

/// One live connection or request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    pub session: SessionId,
    pub holder: Holder,
}

/// All live connections through the proxy.
#[derive(Clone, Default)]
pub struct Tunnels(Arc<Inner>);

#[derive(Default)]
struct Inner {
    live: Registry<Tunnel>,
    tasks: TaskTracker,
}

impl Tunnels {
    /// Closes every connection that `doomed` is true of, at once; says how many.
    pub fn cut(&self, doomed: impl Fn(&Tunnel) -> bool) -> usize {
        self.0.live.cut(doomed)
    }

    /// Everybody who holds a connection, each once.
    pub fn holders(&self) -> HashSet<Holder> {
        self.0.live.collect(|tunnel| tunnel.holder)
    }

    /// How many connections `wanted` is true of: all, a user's, a session's.
    pub fn count(&self, wanted: impl Fn(&Tunnel) -> bool) -> usize {
        self.0.live.count(wanted)
    }

    /// Cuts everything and waits until the last socket is closed.
    pub async fn shut_down(&self) {
        self.0.tasks.close();
        self.cut(|_| true);
        self.0.tasks.wait().await;
    }

    /// Enters a connection; it is live until the registration is dropped.
    pub(super) fn register(&self, tunnel: Tunnel) -> Registration<Tunnel> {
        self.0.live.register(tunnel)
    }

    pub(super) fn spawn(&self, tunnel: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(tunnel);
    }
}

/// Copies both ways until both sides have ended, one fails, or nothing comes for a while
/// after one has ended. What the client sends is noted as activity unless it is a bare ping.
pub(super) async fn join<C, U>(mut client: C, mut upstream: U, activity: &Activity, clock: &Clock) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let (mut up, mut down) = (Direction::default(), Direction::default());
    let mut silence: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        let mut moved = false;
        let up_ended = up.poll(cx, &mut client, &mut upstream, |bytes| {
            moved = true;
            activity.sent_up(bytes);
            if Activity::counts(bytes) {
                activity.note(clock.now());
            }
        })?;
        let down_ended = down.poll(cx, &mut upstream, &mut client, |bytes| {
            moved = true;
            activity.sent_down(bytes);
        })?;
        match (up_ended, down_ended) {
            (Poll::Ready(()), Poll::Ready(())) => return Poll::Ready(Ok(())),
            (Poll::Pending, Poll::Pending) => return Poll::Pending,
            _ => {}
        }
        let silence = silence.get_or_insert_with(|| Box::pin(sleep(HALF_CLOSED)));
        if moved {
            silence.as_mut().reset(Instant::now() + HALF_CLOSED);
        }
        silence.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    })
    .await
}

/// One way through a tunnel.
#[derive(Default)]
struct Direction {
    /// Read, but not yet taken by the writer.
    left: Vec<u8>,
    written: usize,
    read_all: bool,
    ended: bool,
    unflushed: bool,
}

impl Direction {
    /// Ready once the reader has ended, everything is written, and the writer is shut down.
    fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
        mut passed: impl FnMut(usize),
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut storage = [const { MaybeUninit::<u8>::uninit() }; PIECE];
        while !self.ended {
            while self.written < self.left.len() {
                match ready!(Pin::new(&mut *writer).poll_write(cx, &self.left[self.written..]))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    taken => self.written += taken,
                }
            }
            // Frees the memory too: a tunnel that was busy once is mostly idle later.
            (self.left, self.written) = (Vec::new(), 0);
            if self.read_all {
                ready!(Pin::new(&mut *writer).poll_shutdown(cx))?;
                self.ended = true;
                break;
            }
            let mut piece = ReadBuf::uninit(&mut storage);
            if Pin::new(&mut *reader).poll_read(cx, &mut piece)?.is_pending() {
                if self.unflushed {
                    ready!(Pin::new(&mut *writer).poll_flush(cx))?;
                    self.unflushed = false;
                }
                return Poll::Pending;
            }
            let piece = piece.filled();
            if piece.is_empty() {
                self.read_all = true;
                continue;
            }
            passed(piece.len());
            self.unflushed = true;
            let taken = match Pin::new(&mut *writer).poll_write(cx, piece)? {
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(taken) => taken,
                Poll::Pending => 0,
            };
            self.left = piece[taken..].to_vec();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use lyceum_model::Timestamp;

    #[tokio::test]
    async fn bytes_pass_both_ways_and_a_half_close_ends_one_way_only() {
        // Pipes smaller than a piece, so that writers are pending often.
        let (mut client, near) = duplex(1000);
        let (far, mut app) = duplex(700);
        let activity = Arc::new(Activity::default());
        let seen = activity.clone();
        let clock = Clock::manual(Timestamp(5));
        let tunnel = tokio::spawn(async move { join(near, far, &seen, &clock).await });
        let sent: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let copy = sent.clone();
        let request = tokio::spawn(async move {
            client.write_all(&copy).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        });
        let mut received = Vec::new();
        app.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, sent);
        app.write_all(b"after the half-close").await.unwrap();
        drop(app);
        assert_eq!(request.await.unwrap(), b"after the half-close");
        tunnel.await.unwrap().unwrap();
        assert_eq!(activity.bytes(), (100_000, 20));
        assert_eq!(activity.last(), Some(Timestamp(5)));
    }

    #[tokio::test]
    async fn a_ping_is_not_activity() {
        let (mut client, near) = duplex(1000);
        let (far, mut app) = duplex(1000);
        let activity = Activity::default();
        let clock = Clock::manual(Timestamp(5));
        let tunnel = join(near, far, &activity, &clock);
        let talk = async {
            for ping in [&[0x89, 0x84, 1, 2, 3, 4, 5, 6, 7, 8][..], &[0x8a, 0x80, 1, 2, 3, 4]] {
                client.write_all(ping).await.unwrap();
                app.read_exact(&mut vec![0; ping.len()]).await.unwrap();
            }
            app.write_all(&[1; 500]).await.unwrap();
            client.read_exact(&mut [0; 500]).await.unwrap();
            drop((client, app));
        };
        let (_, ()) = tokio::join!(tunnel, talk);
        assert_eq!(activity.last(), None);
        assert_eq!(activity.bytes(), (16, 500));
    }
}
