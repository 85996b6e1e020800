//! Keep-alive connections to the apps, by session. A connection is driven by whoever uses it,
//! in that request's own task: no task of its own, no hop between threads for an answer. The
//! bounds here hold for HTTP and tunnels alike; whose peer it is was settled by `dial`.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    thread::{self, ThreadId},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use hyper::http::{request, response};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Error, Upstream,
    exchange::{Connection, ExchangeError},
};
use lyceum_model::SessionId;
use lyceum_wire::dial::{Endpoint, Stream, dial};

/// How many connections one session may have, tunnels included.
pub const MAX_OPEN: usize = 512;
/// How many of them may wait for the next request.
const MAX_IDLE: usize = 256;
/// The same over all sessions.
const MAX_IDLE_IN_ALL: usize = 2048;
/// How long one may wait for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

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
    /// Where it was opened: its wakes come from that thread, and reach it fastest.
    home: ThreadId,
}

impl Pool {
    /// Sends a request over an idle connection or a new one and awaits the answer's head.
    pub(super) async fn send(
        self: &Arc<Self>,
        head: &request::Parts,
        mut body: Body,
        upstream: &Upstream,
    ) -> Result<(response::Parts, Lease), Error> {
        while let Some(mut lease) = self.take_idle(upstream) {
            if !lease.is_usable().await {
                continue;
            }
            match lease.exchange(head, &mut body).await {
                Ok(answer) => return Ok((answer, lease)),
                // The app closed it at the very moment when we chose it.
                Err(ExchangeError { again: true, .. }) => {}
                Err(failed) => return Err(failed.error),
            }
        }
        let mut lease = Box::pin(self.connect(upstream)).await?;
        let answer = lease.exchange(head, &mut body).await.map_err(|failed| failed.error)?;
        Ok((answer, lease))
    }

    /// A new connection, counted as open until its lease is dropped.
    pub(super) async fn connect(self: &Arc<Self>, upstream: &Upstream) -> Result<Lease, Error> {
        let mut lease = self.reserve(upstream)?;
        let stream = dial(&upstream.endpoint, upstream.uid).await?;
        lease.connection = Some(Box::new(Connection::new(stream)));
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
            old.extend(slot.idle.extract_if(.., |idle| idle.since.elapsed() >= IDLE_TIMEOUT));
            slot.open -= old.len() - before;
            slot.open > 0
        });
        slots.idle -= old.len();
        drop(slots);
    }

    pub(super) fn open(&self, session: SessionId) -> usize {
        self.0.lock().sessions.get(&session).map_or(0, |slot| slot.open)
    }

    /// One that was opened on this thread; another thread's only where there are many already.
    fn take_idle(self: &Arc<Self>, upstream: &Upstream) -> Option<Lease> {
        let here = thread::current().id();
        let mut slots = self.0.lock();
        let slot = slots.sessions.get_mut(&upstream.session)?;
        let any = slot.open >= MAX_IDLE;
        let fits = |idle: &Idle| (any || idle.home == here) && idle.endpoint == upstream.endpoint;
        let at = slot.idle.iter().rposition(fits)?;
        let Idle { endpoint, connection, home, .. } = slot.idle.remove(at);
        let epoch = slot.epoch;
        slots.idle -= 1;
        let connection = Some(connection);
        Some(Lease { pool: self.clone(), session: upstream.session, epoch, endpoint, connection, home })
    }

    fn reserve(self: &Arc<Self>, upstream: &Upstream) -> Result<Lease, Error> {
        let mut slots = self.0.lock();
        let next = slots.last_epoch + 1;
        let slot = slots.sessions.entry(upstream.session).or_insert(Slot { epoch: next, open: 0, idle: Vec::new() });
        if slot.open >= MAX_OPEN {
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
            home: thread::current().id(),
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
                let (endpoint, since) = (lease.endpoint.clone(), Instant::now());
                slot.idle.push(Idle { endpoint, since, connection, home: lease.home });
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
    home: ThreadId,
}

impl Lease {
    /// Sends a request and awaits the answer's head; see [`Connection::exchange`].
    pub(super) async fn exchange(
        &mut self,
        head: &request::Parts,
        body: &mut Body,
    ) -> Result<response::Parts, ExchangeError> {
        let Some(connection) = &mut self.connection else { return Err(Error::Closed.into()) };
        let answer = connection.exchange(head, body).await;
        if answer.is_err() {
            self.close();
        }
        answer
    }

    /// The next piece of the answer's body.
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        match &mut self.connection {
            Some(connection) => connection.poll_body(cx),
            None => Poll::Ready(None),
        }
    }

    pub(super) fn whole_body(&mut self) -> Option<Bytes> {
        self.connection.as_mut().and_then(|connection| connection.whole_body())
    }

    /// Bytes still to come of the answer's body, where that is known.
    pub(super) fn left(&self) -> Option<u64> {
        self.connection.as_ref().map_or(Some(0), |connection| connection.left())
    }

    /// Whether the answer's body is over.
    pub(super) fn is_over(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.is_over())
    }

    /// Makes sure that the connection is closed rather than used again.
    pub(super) fn close(&mut self) {
        self.connection = None;
    }

    /// After a 101: the bare connection, and what was read of it already.
    pub(super) fn into_tunnel(mut self) -> Option<(Stream, Bytes, Self)> {
        let (stream, read) = self.connection.take()?.into_parts();
        Some((stream, read, self))
    }

    /// Looks whether the app has closed the connection, or spoken out of turn, meanwhile.
    async fn is_usable(&mut self) -> bool {
        let usable =
            poll_fn(|cx| Poll::Ready(self.connection.as_mut().is_some_and(|connection| connection.is_quiet(cx))));
        let usable = usable.await;
        if !usable {
            self.close();
        }
        usable
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let pool = self.pool.clone();
        pool.give_back(self);
    }
}
