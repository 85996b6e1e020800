//! What workloads say: over the sockets of their run directories, and in their logs.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::{Local, blocking, doing};
use crate::scheduler::{Result, Transport, link};
use lyceum_model::{SessionId, session::Placement};
use lyceum_wire::{
    dial::Endpoint,
    protocol::{AgentStatus, files, log::Log},
    run_directory,
};

#[async_trait]
impl Transport for Local {
    async fn events(&self, _session: SessionId, placement: &Placement) -> Result<BoxStream<'static, AgentStatus>> {
        link::events(&socket(placement, files::AGENT_SOCKET), placement.uid).await
    }

    async fn ask(
        &self,
        _session: SessionId,
        placement: &Placement,
        socket: &str,
        path: &str,
        authorization: Option<&str>,
    ) -> Result<Option<Vec<u8>>> {
        link::ask(&self::socket(placement, socket), placement.uid, path, authorization).await
    }

    async fn curves(
        &self,
        _session: SessionId,
        placement: &Placement,
        directory: &str,
        places: Bytes,
    ) -> Result<BoxStream<'static, Bytes>> {
        link::curves(&socket(placement, files::AGENT_SOCKET), placement.uid, directory, places).await
    }

    async fn log(&self, _session: SessionId, placement: &Placement) -> Result<Option<Log>> {
        let (this, placement) = (Arc::clone(&self.shared), placement.clone());
        blocking(move || {
            let Some(directory) = this.own_run_directory(&placement) else { return Ok(None) };
            let file = run_directory::open(directory, files::LOG).map_err(doing("failed to read the log"))?;
            file.map(Log::new).transpose().map_err(doing("failed to read the log"))
        })
        .await
    }
}

/// A socket of the workload's.
fn socket(placement: &Placement, name: &str) -> Endpoint {
    Endpoint::Socket(Path::new(&placement.run_directory).join(name).into())
}
