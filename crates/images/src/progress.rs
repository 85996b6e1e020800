//! How far a pull or an import is, as a value that many can watch. Bytes are those of the layers as they
//! are downloaded, and count once more while they are unpacked.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    error::{Error, Result},
    store::Image,
};

/// Describes a pull at one moment.
#[derive(Debug, Clone)]
pub struct Progress {
    pub state: State,
    /// Bytes of layers that are downloaded, or unpacked in the state [`State::Unpacking`].
    pub bytes: u64,
    /// Bytes of all layers; `None` until the manifest was read.
    pub total: Option<u64>,
}

/// Names the phase of a pull.
#[derive(Debug, Clone)]
pub enum State {
    /// Nothing was received yet.
    Missing,
    Pulling,
    Unpacking,
    Ready(Arc<Image>),
    Failed(Arc<Error>),
}

impl State {
    pub(crate) fn of(outcome: Result<Image>) -> Self {
        match outcome {
            Ok(image) => Self::Ready(Arc::new(image)),
            Err(error) => Self::Failed(Arc::new(error)),
        }
    }
}

/// Reports the progress of one pull to its watchers.
#[derive(Debug, Clone)]
pub(crate) struct Meter(Arc<watch::Sender<Progress>>);

impl Meter {
    pub fn new() -> (Self, watch::Receiver<Progress>) {
        let (sender, receiver) = watch::channel(Progress { state: State::Missing, bytes: 0, total: None });
        (Self(Arc::new(sender)), receiver)
    }

    /// Begins a phase at its first byte.
    pub fn begin(&self, state: State, total: Option<u64>) {
        self.0.send_modify(|progress| *progress = Progress { state, bytes: 0, total });
    }

    pub fn add(&self, bytes: u64) {
        self.0.send_modify(|progress| progress.bytes += bytes);
    }

    /// Takes back bytes that have to be received again.
    pub fn subtract(&self, bytes: u64) {
        self.0.send_modify(|progress| progress.bytes = progress.bytes.saturating_sub(bytes));
    }

    pub fn end(&self, state: State) {
        self.0.send_modify(|progress| progress.state = state);
    }
}
