//! What workloads on nodes say: over connections to their agents, and in logs that every node writes to one place.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};

use super::Slurm;
use crate::scheduler::{Error, Result, Transport, link, local::blocking};
use lyceum_model::{SessionId, session::Placement};
use lyceum_wire::{
    dial::Endpoint,
    protocol::{AgentStatus, files, log::Log, node::Door},
    run_directory,
};

/// Returns whether a workload has a node yet; before that, there is no agent.
fn placed(placement: &Placement) -> Result<()> {
    if placement.node.is_empty() {
        return Err(Error::Unavailable("it is pending in Slurm’s queue".to_owned()));
    }
    Ok(())
}

#[async_trait]
impl Transport for Slurm {
    async fn events(&self, session: SessionId, placement: &Placement) -> Result<BoxStream<'static, AgentStatus>> {
        placed(placement)?;
        let agent = Endpoint::of(&self.shared.config.nodes, session, placement, Door::Agent);
        let events = link::events(&agent, placement.uid).await?;
        // An agent that hangs up has probably ended; the queue will report it soon.
        let controller = Arc::clone(&self.shared.controller);
        let end = stream::once(async move { controller.nudge() }).filter_map(|()| std::future::ready(None));
        Ok(events.chain(end).boxed())
    }

    async fn ask(
        &self,
        session: SessionId,
        placement: &Placement,
        socket: &str,
        path: &str,
        authorization: Option<&str>,
    ) -> Result<Option<Vec<u8>>> {
        placed(placement)?;
        let door = Door::parse(socket).ok_or_else(|| Error::Unavailable(format!("unknown socket {socket}")))?;
        let endpoint = Endpoint::of(&self.shared.config.nodes, session, placement, door);
        link::ask(&endpoint, placement.uid, path, authorization).await
    }

    async fn curves(
        &self,
        session: SessionId,
        placement: &Placement,
        directory: &str,
        places: Bytes,
    ) -> Result<BoxStream<'static, Bytes>> {
        placed(placement)?;
        let agent = Endpoint::of(&self.shared.config.nodes, session, placement, Door::Agent);
        link::curves(&agent, placement.uid, directory, places).await
    }

    async fn log(&self, session: SessionId, _placement: &Placement) -> Result<Option<Log>> {
        let directory = self.shared.run_directory(session);
        blocking(move || {
            let open = |name| run_directory::open(&directory, name);
            let log = match open(files::LOG) {
                // The program never was; the script may have said why.
                Ok(None) => open(files::BATCH).and_then(|file| file.map(Log::substitute).transpose()),
                file => file.and_then(|file| file.map(Log::new).transpose()),
            };
            log.map_err(|source| Error::Io { doing: "failed to read the log".to_owned(), source })
        })
        .await
    }
}
