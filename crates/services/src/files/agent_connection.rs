//! A conversation with one files agent: questions, answers, content. Every wait for the agent
//! has a deadline. The agent is its user's and may lie, so that what it sends is bounded; a
//! line that is dropped before its end takes its agent with it.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout, timeout_at},
};

use super::{Error, RootedPath, agent_pool::AgentPool};
use lyceum_wire::protocol::files_agent::{Fault, FilesAnswer, FilesRequest, MAX_CHUNK, MAX_FRAME, frame, frame_head};

/// How long an agent may work on one question that says it goes on.
const WORK_TIMEOUT: Duration = Duration::from_mins(10);

pub struct AgentConnection {
    stream: UnixStream,
    patience: Duration,
    pool: Arc<AgentPool>,
    _permit: OwnedSemaphorePermit,
}

/// Names the reason for a missing answer.
#[derive(Debug)]
pub enum ConnectionError {
    Silent,
    Fault(Fault),
    Io(String),
}

impl ConnectionError {
    pub fn about(self, rooted: &RootedPath) -> Error {
        let path = rooted.path.shown();
        match self {
            Self::Silent => Error::Silent { path },
            Self::Fault(fault) => Error::Fault { path, fault },
            Self::Io(words) => Error::Agent(words),
        }
    }
}

impl From<io::Error> for ConnectionError {
    fn from(err: io::Error) -> Self {
        Self::Io(err.to_string())
    }
}

impl AgentConnection {
    pub fn new(stream: UnixStream, patience: Duration, pool: Arc<AgentPool>, permit: OwnedSemaphorePermit) -> Self {
        Self { stream, patience, pool, _permit: permit }
    }

    /// The agent is between two questions: it may be asked by somebody else.
    pub fn hang_up_well(self) {
        let Self { stream, pool, _permit, .. } = self;
        pool.give_back(stream);
    }

    /// A question and its answer. After a fault the agent waits for the next question.
    pub async fn ask(&mut self, request: &FilesRequest) -> Result<FilesAnswer, ConnectionError> {
        let question = frame(request);
        timeout(self.patience, self.stream.write_all(&question))
            .await
            .map_err(|_elapsed| ConnectionError::Silent)??;
        self.answer().await
    }

    pub async fn answer(&mut self) -> Result<FilesAnswer, ConnectionError> {
        let end = Instant::now() + WORK_TIMEOUT;
        loop {
            let deadline = end.min(Instant::now() + self.patience);
            let answer = timeout_at(deadline, read_frame(&mut self.stream, MAX_FRAME)).await;
            let answer = answer.map_err(|_elapsed| ConnectionError::Silent)??;
            match serde_json::from_slice(&answer) {
                Ok(FilesAnswer::Working) => {}
                Ok(FilesAnswer::Failed { fault }) => return Err(ConnectionError::Fault(fault)),
                Ok(answer) => return Ok(answer),
                Err(err) => return Err(ConnectionError::Io(format!("cannot parse a response: {err}"))),
            }
        }
    }

    /// A piece of content; `None` at its proper end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ConnectionError> {
        let chunk = timeout(self.patience, read_frame(&mut self.stream, MAX_CHUNK)).await;
        let chunk = chunk.map_err(|_elapsed| ConnectionError::Silent)??;
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }

    /// The same, of pieces that may be so large; the first may take a while.
    pub async fn batch(&mut self, most: usize, patience: Duration) -> Result<Option<Bytes>, ConnectionError> {
        let batch = timeout(patience.max(self.patience), read_frame(&mut self.stream, most)).await;
        let batch = batch.map_err(|_elapsed| ConnectionError::Silent)??;
        Ok(Some(batch).filter(|batch| !batch.is_empty()))
    }

    /// Sends a piece of content, or its end (an empty piece). An agent that has had enough
    /// says so while we send: then its answer is the error.
    pub async fn send(&mut self, mut content: Bytes) -> Result<(), ConnectionError> {
        loop {
            let piece = content.split_to(content.len().min(MAX_CHUNK));
            let sent = async {
                self.stream.write_all(&frame_head(piece.len())).await?;
                self.stream.write_all(&piece).await
            };
            match timeout(self.patience, sent).await {
                Err(_elapsed) => return Err(self.last_word().await.unwrap_or(ConnectionError::Silent)),
                Ok(Err(err)) => return Err(self.last_word().await.unwrap_or(err.into())),
                Ok(Ok(())) => {}
            }
            if content.is_empty() {
                return Ok(());
            }
        }
    }

    /// What the agent has said already.
    async fn last_word(&mut self) -> Option<ConnectionError> {
        let said = timeout(Duration::from_millis(100), self.answer()).await.ok()?;
        match said {
            Err(fault @ ConnectionError::Fault(_)) => Some(fault),
            _ => None,
        }
    }
}

async fn read_frame(stream: &mut UnixStream, most: usize) -> io::Result<Bytes> {
    let length = stream.read_u32().await? as usize;
    if most < length {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long"));
    }
    let mut frame = BytesMut::zeroed(length);
    stream.read_exact(&mut frame).await?;
    Ok(frame.freeze())
}
