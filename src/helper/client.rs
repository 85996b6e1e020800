//! The portal's side of the verbs: over the socket to a helper that is root, or in-process
//! where the portal is an ordinary user. Requests go one after the other. All calls block;
//! a caller in async code hands them to a thread that may wait.

use std::{os::unix::net::UnixStream, time::Duration};

use parking_lot::Mutex;

use super::{
    Config, Error, Result, doing,
    frame::{self, Frame},
    verbs::Verbs,
};
use crate::protocol::{HelperAnswer, HelperRequest};

/// Whoever carries out the verbs.
#[derive(Debug)]
pub enum Launcher {
    /// The root helper; `None` once it has gone, which only a restart of the portal mends.
    Helper(Mutex<Option<UnixStream>>),
    /// This process, as the user it is.
    Direct(Box<Mutex<Verbs>>),
}

/// Longer than any verb takes; a helper that is silent for so long is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

impl Launcher {
    /// Speaks to the helper at the other end of `socket`.
    pub fn helper(socket: UnixStream) -> Result<Self> {
        socket.set_nonblocking(false).map_err(doing("preparing the helper's socket"))?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(doing("preparing the helper's socket"))?;
        socket.set_write_timeout(Some(ANSWER_TIMEOUT)).map_err(doing("preparing the helper's socket"))?;
        Ok(Self::Helper(Mutex::new(Some(socket))))
    }

    /// Does everything itself; refused for root, as whom nothing is ever started.
    pub fn direct(config: Config) -> Result<Self> {
        Verbs::own_user(config).map(|verbs| Self::Direct(Box::new(Mutex::new(verbs))))
    }

    /// Whether workloads can run as other users than the portal.
    pub fn is_root(&self) -> bool {
        matches!(self, Self::Helper(_))
    }

    /// Whether anybody answers, as far as the last request showed.
    pub fn is_there(&self) -> bool {
        match self {
            Self::Helper(socket) => socket.lock().is_some(),
            Self::Direct(_) => true,
        }
    }

    /// Asks, and waits for the answer. A refusal comes as [`Error::Refused`], what may work
    /// later as [`Error::Busy`].
    pub fn ask(&self, request: HelperRequest) -> Result<HelperAnswer> {
        let answer = match self {
            Self::Direct(verbs) => {
                let mut verbs = verbs.lock();
                verbs.reap();
                verbs.answer(request)
            }
            Self::Helper(socket) => {
                let mut socket = socket.lock();
                let open = socket.as_mut().ok_or_else(gone)?;
                // After a failure in the middle, answers would be taken for others'.
                match exchange(open, &request) {
                    Ok(answer) => answer,
                    Err(err) => {
                        if !matches!(err, Error::Refused(_)) {
                            *socket = None;
                        }
                        return Err(err);
                    }
                }
            }
        };
        match answer {
            HelperAnswer::Failed { message, retry: false } => Err(Error::Refused(message)),
            HelperAnswer::Failed { message, retry: true } => Err(Error::Busy(message)),
            answer => Ok(answer),
        }
    }

    /// Takes note of ended agents that are this process's own children.
    pub fn reap(&self) {
        if let Self::Direct(verbs) = self
            && let Some(mut verbs) = verbs.try_lock()
        {
            verbs.reap();
        }
    }
}

fn exchange(socket: &mut UnixStream, request: &HelperRequest) -> Result<HelperAnswer> {
    frame::write(socket, request).map_err(|err| match err.kind() {
        // Refused before a byte was written.
        std::io::ErrorKind::InvalidInput => Error::Refused(err.to_string()),
        _ => doing("asking the helper")(err),
    })?;
    match frame::read(socket).map_err(doing("hearing the helper"))? {
        Frame::Message(message) => serde_json::from_slice(&message)
            .map_err(|err| Error::Busy(format!("the helper's answer is not understood: {err}"))),
        Frame::TooLong(_) | Frame::End => Err(gone()),
    }
}

fn gone() -> Error {
    Error::Busy("the helper has ended; restart Lyceum (running sessions go on)".to_owned())
}
