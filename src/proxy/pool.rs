//! Keep-alive connections to the apps, by session. A connection is driven by whoever uses it,
//! in that request's own task: no task of its own, no hop between threads for an answer. The
//! bounds here hold for HTTP and tunnels alike; whose peer it is was settled by `dial`.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use hyper::{Method, Request, Response, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Error, Upstream, quiet::Quiet};
use crate::{
    dial::{Endpoint, Stream, dial},
    model::SessionId,
};

/// How many connections one session may have, tunnels included.
pub const MAX_OPEN: usize = 512;
/// How many of them may wait for the next request.
const MAX_IDLE: usize = 64;
/// The same over all sessions.
const MAX_IDLE_IN_ALL: usize = 2048;
/// How long one may wait for the next request.
const IDLE: Duration = Duration::from_mins(1);
/// What hyper may hold of an answer at once.
const READ_BUFFER: usize = 64 * 1024;

#[derive(Default)]
pub(super) struct Pool(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    sessions: HashMap<SessionId, Slot>,
    idle: usize,
    last_epoch: u64,
}

struct Slot {
    /// Tells a lease whether this is still the slot it was taken from.
    epoch: u64,
    open: usize,
    idle: Vec<Idle>,
}

struct Idle {
    endpoint: Endpoint,
    since: Instant,
    connection: Box<Connection>,
}

impl Pool {
    /// Sends a request over an idle connection or a new one and awaits the answer's head.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<Body>,
        upstream: &Upstream,
    ) -> Result<(Response<Incoming>, Lease), Error> {
        while let Some(mut lease) = self.take_idle(upstream) {
            if !lease.is_usable().await {
                continue;
            }
            // An app may close an idle connection at the very moment we choose it.
            let spare = copy_of(&request);
            match (lease.exchange(request).await, spare) {
                (Ok(response), _) => return Ok((response, lease)),
                // It died while it waited, and nobody has seen the request.
                (Err(Failed { unsent: Some(unsent), .. }), _) => request = *unsent,
                (Err(_), Some(spare)) => request = spare,
                (Err(Failed { error, .. }), None) => return Err(error),
            }
        }
        let mut lease = Box::pin(self.connect(upstream)).await?;
        let response = lease.exchange(request).await.map_err(|failed| failed.error)?;
        Ok((response, lease))
    }

    /// A new connection, counted as open until its lease is dropped.
    pub(super) async fn connect(self: &Arc<Self>, upstream: &Upstream) -> Result<Lease, Error> {
        let mut lease = self.reserve(upstream)?;
        let stream = dial(&upstream.endpoint, upstream.uid).await?;
        let (sender, http) = http1::Builder::new()
            .max_buf_size(READ_BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(Error::Exchange)?;
        lease.connection =
            Some(Box::new(Connection { sender, driver: Driver { http, done: false }, quiet: Quiet::new() }));
        Ok(lease)
    }

    /// Closes a session's idle connections; those in use are closed after their answer.
    pub(super) fn drop_session(&self, session: SessionId) {
        let mut slots = self.0.lock();
        let slot = slots.sessions.remove(&session);
        slots.idle -= slot.as_ref().map_or(0, |slot| slot.idle.len());
        drop(slots);
        drop(slot);
    }

    /// Closes connections that have been idle for too long. Run it now and then.
    pub(super) fn sweep(&self) {
        // Closed after the lock is given back.
        let mut old = Vec::new();
        let mut slots = self.0.lock();
        slots.sessions.retain(|_, slot| {
            let before = old.len();
            old.extend(slot.idle.extract_if(.., |idle| IDLE <= idle.since.elapsed()));
            slot.open -= old.len() - before;
            0 < slot.open
        });
        slots.idle -= old.len();
        drop(slots);
    }

    pub(super) fn open(&self, session: SessionId) -> usize {
        self.0.lock().sessions.get(&session).map_or(0, |slot| slot.open)
    }

    fn take_idle(self: &Arc<Self>, upstream: &Upstream) -> Option<Lease> {
        let mut slots = self.0.lock();
        let slot = slots.sessions.get_mut(&upstream.session)?;
        let at = slot.idle.iter().rposition(|idle| idle.endpoint == upstream.endpoint)?;
        let Idle { endpoint, connection, .. } = slot.idle.remove(at);
        let epoch = slot.epoch;
        slots.idle -= 1;
        Some(Lease { pool: self.clone(), session: upstream.session, epoch, endpoint, connection: Some(connection) })
    }

    fn reserve(self: &Arc<Self>, upstream: &Upstream) -> Result<Lease, Error> {
        let mut slots = self.0.lock();
        let next = slots.last_epoch + 1;
        let slot = slots.sessions.entry(upstream.session).or_insert(Slot { epoch: next, open: 0, idle: Vec::new() });
        if MAX_OPEN <= slot.open {
            return Err(Error::TooManyConnections);
        }
        slot.open += 1;
        let epoch = slot.epoch;
        slots.last_epoch = next;
        Ok(Lease {
            pool: self.clone(),
            session: upstream.session,
            epoch,
            endpoint: upstream.endpoint.clone(),
            connection: None,
        })
    }

    /// Takes a lease back: its connection is kept for the next request or closed.
    fn give_back(&self, lease: &mut Lease) {
        let connection = lease.connection.take();
        let mut slots = self.0.lock();
        let room = slots.idle < MAX_IDLE_IN_ALL;
        let Some(slot) = slots.sessions.get_mut(&lease.session).filter(|slot| slot.epoch == lease.epoch) else {
            return;
        };
        match connection {
            Some(connection) if connection.is_ready() && room && slot.idle.len() < MAX_IDLE => {
                slot.idle.push(Idle { endpoint: lease.endpoint.clone(), since: Instant::now(), connection });
                slots.idle += 1;
            }
            _ => {
                slot.open -= 1;
                if slot.open == 0 {
                    slots.sessions.remove(&lease.session);
                }
            }
        }
    }
}

/// A connection in use. Dropped, it goes back to the pool if it can carry another request.
pub(super) struct Lease {
    pool: Arc<Pool>,
    session: SessionId,
    epoch: u64,
    endpoint: Endpoint,
    connection: Option<Box<Connection>>,
}

/// An exchange without an answer, with the request where it surely was not sent.
pub(super) struct Failed {
    pub(super) error: Error,
    unsent: Option<Box<Request<Body>>>,
}

impl Lease {
    /// Sends a request and drives the connection until the answer's head is there.
    pub(super) async fn exchange(&mut self, request: Request<Body>) -> Result<Response<Incoming>, Failed> {
        let Some(connection) = &mut self.connection else { return Err(Failed { error: Error::Closed, unsent: None }) };
        let Connection { sender, driver, quiet } = &mut **connection;
        let mut answer = pin!(quiet.hush(|| sender.try_send_request(request)));
        let answer = poll_fn(|cx| {
            quiet.poll(cx, |cx| {
                driver.drive(cx);
                match answer.as_mut().poll(cx) {
                    Poll::Pending if driver.done => Poll::Ready(None),
                    answer => answer.map(Some),
                }
            })
        });
        let failed = match answer.await {
            Some(Ok(response)) => return Ok(response),
            Some(Err(mut failed)) => {
                let unsent = failed.take_message().map(Box::new);
                Failed { error: Error::from_exchange(failed.into_error()), unsent }
            }
            None => Failed { error: Error::Closed, unsent: None },
        };
        self.close();
        Err(failed)
    }

    /// Polls something that depends on this connection, such as an answer's body, and lets
    /// the connection read and write for it.
    pub(super) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Some(connection) = &mut self.connection else { return poll(cx) };
        let Connection { driver, quiet, .. } = &mut **connection;
        quiet.poll(cx, |cx| {
            let polled = poll(cx);
            if polled.is_ready() {
                return polled;
            }
            driver.drive(cx);
            poll(cx)
        })
    }

    /// Lets the connection notice that its answer is over, which makes it ready for another.
    pub(super) fn settle(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection {
            let Connection { driver, quiet, .. } = &mut **connection;
            let _ = quiet.poll(cx, |cx| {
                driver.drive(cx);
                Poll::<()>::Pending
            });
        }
    }

    /// Makes sure that the connection is closed rather than used again.
    pub(super) fn close(&mut self) {
        self.connection = None;
    }

    /// After a 101: the bare connection, and what was read of it already.
    pub(super) async fn into_tunnel(mut self) -> Option<(Stream, Bytes, Self)> {
        let mut connection = self.connection.take()?;
        poll_fn(|cx| {
            connection.driver.drive(cx);
            if connection.driver.done { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let parts = connection.driver.http.into_parts();
        Some((parts.io.into_inner(), parts.read_buf, self))
    }

    /// Looks whether the app has closed the connection, or spoken out of turn, meanwhile.
    async fn is_usable(&mut self) -> bool {
        poll_fn(|cx| {
            self.settle(cx);
            Poll::Ready(self.connection.as_ref().is_some_and(|connection| connection.is_ready()))
        })
        .await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let pool = self.pool.clone();
        pool.give_back(self);
    }
}

struct Connection {
    sender: http1::SendRequest<Body>,
    driver: Driver,
    quiet: Quiet,
}

impl Connection {
    fn is_ready(&self) -> bool {
        !self.driver.done && self.sender.is_ready()
    }
}

struct Driver {
    http: http1::Connection<TokioIo<Stream>, Body>,
    done: bool,
}

impl Driver {
    fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.done && Pin::new(&mut self.http).poll(cx).is_ready() {
            self.done = true;
        }
    }
}

/// A copy of a request that may be sent twice: it changes nothing and has no body.
fn copy_of(request: &Request<Body>) -> Option<Request<Body>> {
    let repeatable = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let empty = hyper::body::Body::is_end_stream(request.body());
    (repeatable && empty).then(|| {
        let mut copy = Request::new(Body::empty());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        copy
    })
}
