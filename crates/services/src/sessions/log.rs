//! The logs of workloads: of one that lives in its run directory, where its scheduler opens it, of one that has
//! ended in a file of ours, which goes on by the same offsets. `protocol::log` knows what stands in both.

use std::path::{Path, PathBuf};

use super::{Actor, Error, Result, Sessions};
use lyceum_model::{Session, SessionId, session::Placement};
use lyceum_wire::protocol::log::{Log, MAX_LOG};

/// What is kept of an ended session's log (bytes). Of a job's it is as much as the agent keeps:
/// what it printed is often its result.
const KEPT_LOG: u64 = 256 * 1024;

impl Sessions {
    /// The log of a workload that was found already; `None` where there is none, yet or any more.
    pub async fn open_log(&self, session: &Session) -> Result<Option<Log>> {
        if session.state.is_live() {
            let Some(placement) = &session.placement else { return Ok(None) };
            return Ok(self.scheduler.log(session.id, placement).await?);
        }
        let path = self.kept_log(session.id);
        let opened = reading(move || match std::fs::File::open(&path) {
            Ok(file) => Log::new(file).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        });
        opened.await.map_err(Error::Log)
    }

    /// The end of the log, at most `bytes`: of the running app, or what was kept of an ended one.
    pub async fn log_tail(&self, actor: Actor<'_>, id: SessionId, bytes: u64) -> Result<Vec<u8>> {
        let session = self.find(actor, id).await?;
        self.log_of(&session, bytes).await
    }

    /// The same of a workload that was found already; nothing where it cannot be read.
    pub async fn log_of(&self, session: &Session, bytes: u64) -> Result<Vec<u8>> {
        let Ok(Some(log)) = self.open_log(session).await else { return Ok(Vec::new()) };
        Ok(reading(move || log.tail(bytes)).await.unwrap_or_default())
    }

    /// Keeps the log of a workload that has ended, before its run directory goes.
    pub(super) async fn keep_log(&self, session: &Session, placement: &Placement) {
        let Ok(Some(log)) = self.scheduler.log(session.id, placement).await else { return };
        let limit = if session.job.is_some() { MAX_LOG } else { KEPT_LOG };
        let path = self.kept_log(session.id);
        if let Err(error) = reading(move || keep(&path, &log.shortened(limit)?)).await {
            tracing::warn!(session.id = %session.id, %error, "failed to store the log of an ended session");
        }
    }

    fn kept_log(&self, id: SessionId) -> PathBuf {
        log_file(&self.config.logs, id)
    }
}

/// Returns where the end of a session's log is kept.
pub(crate) fn log_file(logs: &Path, id: SessionId) -> PathBuf {
    logs.join(format!("{id}.log"))
}

fn keep(path: &Path, log: &[u8]) -> std::io::Result<()> {
    if log.is_empty() {
        return Ok(());
    }
    let part = path.with_extension("part");
    std::fs::write(&part, log)?;
    std::fs::rename(&part, path)
}

/// A file system may keep who asks it waiting.
async fn reading<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
