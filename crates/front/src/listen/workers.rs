//! One thread a core, each with a runtime of its own, for connections and nothing else: what
//! comes on a connection wakes the thread that it lives on, and no other. Whoever has longer
//! work than passing bytes on does it elsewhere.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tokio::{
    net::TcpStream,
    runtime::{self, Handle},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// Threads that connections are dealt out to; they end with the last copy of this.
#[derive(Clone)]
pub struct Workers(Arc<Inner>);

struct Inner {
    handles: Vec<Handle>,
    next: AtomicUsize,
    _end: DropGuard,
}

impl Workers {
    /// Starts as many threads.
    pub fn start(count: usize) -> io::Result<Self> {
        let end = CancellationToken::new();
        let mut handles = Vec::with_capacity(count);
        for number in 0..count {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            handles.push(runtime.handle().clone());
            let ended = end.clone();
            thread::Builder::new()
                .name(format!("connections-{number}"))
                .spawn(move || runtime.block_on(ended.cancelled_owned()))?;
        }
        Ok(Self(Arc::new(Inner { handles, next: AtomicUsize::new(0), _end: end.drop_guard() })))
    }

    /// Hands a connection to the next thread.
    pub(super) fn deal<F>(
        &self,
        connections: &TaskTracker,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Nothing was read of it: its registration with our own runtime is all that it has.
        let stream = stream.into_std()?;
        let next = self.0.next.fetch_add(1, Ordering::Relaxed) % self.0.handles.len();
        let serving = async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => serve(stream).await,
                Err(error) => tracing::warn!(%error, "worker failed to take over a connection"),
            }
        };
        connections.spawn_on(serving, &self.0.handles[next]);
        Ok(())
    }
}
