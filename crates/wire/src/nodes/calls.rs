//! Agents call: to say on which port they listen, or to wait until the portal has a use for
//! the connection. A caller is judged by its key, which must be that of the very start of a
//! workload that it names, and that one must be expected. What waits is bounded, and
//! forgotten when the workload ends.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Nodes, tls};
use lyceum_model::SessionId;

use crate::protocol::node::Call;

/// Says whether a start of a workload is one that the portal waits for.
pub type Expects = Arc<dyn Fn(SessionId, u32) -> bool + Send + Sync>;

/// How long a caller may take to say who it is.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many callers may be about to say it; others wait.
const MAX_UNKNOWN_CALLERS: usize = 256;

/// How many connections of one workload wait at most; the oldest go.
const MAX_WAITING: usize = 8;

/// How long an error of `accept` is waited out.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Who has called.
#[derive(Debug, Default)]
pub(super) struct Calls {
    callers: Mutex<HashMap<SessionId, Caller>>,
    /// Somebody has called.
    news: Notify,
}

#[derive(Debug, Default)]
struct Caller {
    attempt: u32,
    /// The port that was told, and by which call: an older one's end says nothing.
    port: Option<(u16, u64)>,
    told: u64,
    waiting: VecDeque<tls::Stream>,
}

impl Calls {
    /// The port that an agent has told.
    pub fn port(&self, session: SessionId, attempt: u32) -> Option<u16> {
        let callers = self.callers.lock();
        let caller = callers.get(&session).filter(|caller| caller.attempt == attempt)?;
        caller.port.map(|(port, _)| port)
    }

    /// A connection that waits, as soon as there is one.
    pub async fn take(&self, session: SessionId, attempt: u32) -> tls::Stream {
        loop {
            let called = self.news.notified();
            if let Some(stream) = self.take_now(session, attempt) {
                return stream;
            }
            called.await;
        }
    }

    /// The latest: it is the least likely to be dead.
    fn take_now(&self, session: SessionId, attempt: u32) -> Option<tls::Stream> {
        let mut callers = self.callers.lock();
        callers.get_mut(&session).filter(|caller| caller.attempt == attempt)?.waiting.pop_back()
    }

    pub fn forget(&self, session: SessionId) {
        let forgotten = self.callers.lock().remove(&session);
        drop(forgotten);
    }

    fn wait(&self, call: Call, stream: tls::Stream) {
        let oldest = {
            let mut callers = self.callers.lock();
            let caller = caller(&mut callers, call);
            caller.waiting.push_back(stream);
            if caller.waiting.len() > MAX_WAITING { caller.waiting.pop_front() } else { None }
        };
        self.news.notify_waiters();
        drop(oldest);
    }

    /// Notes a port; what comes back names the note.
    fn record_port(&self, call: Call, port: u16) -> u64 {
        let mut callers = self.callers.lock();
        let caller = caller(&mut callers, call);
        caller.told += 1;
        caller.port = Some((port, caller.told));
        caller.told
    }

    fn ended(&self, call: Call, told: u64) {
        let mut callers = self.callers.lock();
        if let Some(caller) = callers.get_mut(&call.session)
            && caller.attempt == call.attempt
            && caller.port.is_some_and(|(_, note)| note == told)
        {
            caller.port = None;
        }
    }
}

/// The entry of a start; one of another start of the same workload gives way.
fn caller(callers: &mut HashMap<SessionId, Caller>, call: Call) -> &mut Caller {
    let caller = callers.entry(call.session).or_default();
    if caller.attempt != call.attempt {
        *caller = Caller { attempt: call.attempt, ..Caller::default() };
    }
    caller
}

/// Takes calls until `stopping`.
pub(super) async fn serve(nodes: Arc<Nodes>, listener: TcpListener, expects: Expects, stopping: CancellationToken) {
    let acceptor = tls::acceptor(&nodes.own, None);
    let callers = Arc::new(Semaphore::new(MAX_UNKNOWN_CALLERS));
    let tracker = TaskTracker::new();
    let taking = async {
        loop {
            let permit = callers.clone().acquire_owned().await.expect("it is never closed");
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept an agent's connection");
                    sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            };
            let answered = answer(nodes.clone(), acceptor.clone(), stream, expects.clone(), permit);
            tracker.spawn(stopping.clone().run_until_cancelled_owned(async move {
                if let Err(error) = answered.await {
                    tracing::debug!(%error, "agent connection failed");
                }
            }));
        }
    };
    stopping.run_until_cancelled(taking).await;
    tracker.close();
    tracker.wait().await;
}

/// Hears a caller out, and keeps what it brings.
async fn answer(
    nodes: Arc<Nodes>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    expects: Expects,
    permit: OwnedSemaphorePermit,
) -> io::Result<()> {
    let introduced = timeout(HANDSHAKE_TIMEOUT, async {
        let mut stream = tls::accept(&acceptor, stream).await?;
        let line = tls::read_line(&mut stream).await?;
        Ok::<_, io::Error>((stream, line))
    });
    let (mut stream, line) = introduced.await??;
    let call = Call::parse(&line).ok_or(io::ErrorKind::InvalidData)?;
    if !nodes.agent_key(call.session, call.attempt).is(tls::shown_key(&stream)) {
        return Err(io::Error::other("its key does not match the workload that it names"));
    }
    if !expects(call.session, call.attempt) {
        return Err(io::Error::other("the connection is not expected"));
    }
    drop(permit);
    let Some(port) = call.port else {
        nodes.calls.wait(call, stream);
        return Ok(());
    };
    let told = nodes.calls.record_port(call, port);
    // It has no more to say; its end is all that is waited for.
    let _ = stream.read_u8().await;
    nodes.calls.ended(call, told);
    Ok(())
}
