//! Curves on their way: what is new below a directory of logs, read by a files agent as its user.
//! What the batches say is not looked into here, only how large they are.

use std::time::Duration;

use bytes::Bytes;

use super::{AgentConnection, Error, Files, Result, agent_connection::ConnectionError, unexpected};
use lyceum_model::{User, files::RawPath};
use lyceum_wire::protocol::files_agent::{FilesAnswer, FilesRequest};

/// Walking a large directory on a file server takes its time before anything is told.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A look at a directory that is under way.
pub struct Curves {
    line: AgentConnection,
    directory: String,
    largest: usize,
}

/// What was met besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedFiles {
    pub unreadable: Vec<String>,
    pub left_out: u64,
}

/// A part of what there is.
#[derive(Debug)]
pub enum Part {
    Batch(Bytes),
    End(SkippedFiles),
}

impl Files {
    /// Begins to read what is new behind `places`; no batch may be larger than `largest` (bytes).
    pub async fn read_curves(&self, user: &User, directory: &str, places: Vec<u8>, largest: usize) -> Result<Curves> {
        let pool = self.pool(user).await?;
        let mut line = self.line(&pool).await?;
        let about = |err: ConnectionError| broken(err, directory);
        let request = FilesRequest::Curves { directory: RawPath(directory.as_bytes().to_vec()) };
        match line.ask(&request).await.map_err(about)? {
            FilesAnswer::Content => {}
            other => return Err(unexpected(&other)),
        }
        if !places.is_empty() {
            line.send(places.into()).await.map_err(about)?;
        }
        line.send(Bytes::new()).await.map_err(about)?;
        Ok(Curves { line, directory: directory.to_owned(), largest })
    }
}

impl Curves {
    /// The next batch, or the end with what was met on the way.
    pub async fn next(mut self) -> Result<(Part, Option<Self>)> {
        match self.line.batch(self.largest, TIMEOUT).await {
            Ok(Some(batch)) => Ok((Part::Batch(batch), Some(self))),
            Ok(None) => match self.line.answer().await.map_err(|err| broken(err, &self.directory))? {
                FilesAnswer::CurvesRead { unreadable, left_out } => {
                    self.line.hang_up_well();
                    Ok((Part::End(SkippedFiles { unreadable, left_out }), None))
                }
                other => Err(unexpected(&other)),
            },
            Err(err) => Err(broken(err, &self.directory)),
        }
    }
}

pub(super) fn broken(err: ConnectionError, directory: &str) -> Error {
    let path = directory.to_owned();
    match err {
        ConnectionError::Silent => Error::Silent { path },
        ConnectionError::Fault(fault) => Error::Fault { path, fault },
        ConnectionError::Io(words) => Error::Agent(words),
    }
}
