//! The life of the process: signals, background tasks, an orderly end. The first signal
//! stops taking requests and waits for what is under way; a second one, or too long a wait,
//! ends at once. Sessions are other processes and go on.

use std::{future::Future, time::Duration};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use lyceum_model::Loops;

/// How long an orderly end may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// The tasks of the process and the token that ends them.
#[derive(Clone, Debug, Default)]
pub struct Lifecycle {
    pub stopping: CancellationToken,
    pub tracker: TaskTracker,
    /// Where the loops say how they go.
    pub loops: Loops,
}

impl Lifecycle {
    /// Runs a task until it ends or the process does. A task that ends by itself while the
    /// process goes on is a fault, so it ends the process, which a supervisor restarts.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.stopping.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                () = task => {
                    if !stopping.is_cancelled() {
                        tracing::error!(task = name, "background task ended unexpectedly; stopping");
                        stopping.cancel();
                    }
                }
                () = stopping.cancelled() => {}
            }
        });
    }

    /// Calls `work` every `every` until the process ends; an error is a sentence for the health
    /// page, the log is told by `work` itself.
    pub fn periodic<F>(&self, name: &'static str, every: Duration, work: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let loops = self.loops.clone();
        self.spawn(name, async move {
            loop {
                tokio::time::sleep(every).await;
                let round = loops.begin(name, Some(every));
                round.end(&work().await);
            }
        });
    }

    /// Waits for the first signal (or for a task that failed), then for the end of the tasks.
    /// A task that failed is an error at the end, so that a supervisor starts the process anew.
    pub async fn wait(&self) -> std::io::Result<()> {
        let mut outcome = Ok(());
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = self.stopping.cancelled() => {
                outcome = Err(std::io::Error::other("a background task of the portal ended; the log names it"));
            }
        }
        tracing::info!("stopping; running sessions are not affected");
        self.stopping.cancel();
        self.tracker.close();
        tokio::select! {
            () = self.tracker.wait() => {}
            () = tokio::time::sleep(SHUTDOWN_TIMEOUT) => tracing::warn!("some requests did not end in time"),
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        outcome
    }
}
