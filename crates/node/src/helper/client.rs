//! The portal's side of the verbs: over the socket to a helper that is root, or in-process
//! where the portal is an ordinary user. Requests go one after the other. All calls block;
//! a caller in async code hands them to a thread that may wait.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    Config, Error, Result, doing,
    frame::{self, Frame, Receiver},
    is_readable,
    verbs::Verbs,
};
use lyceum_wire::protocol::{HelperAnswer, HelperRequest, files_agent::FilesLaunch};

/// Whoever carries out the verbs.
#[derive(Debug)]
pub enum Launcher {
    /// The root helper; `None` once it has gone, which only a restart of the portal mends.
    Helper(Mutex<Option<HelperConnection>>),
    /// This process.
    Direct { verbs: Box<Mutex<Verbs>>, changes_user: bool },
}

/// The socket to the helper, and where the conversation stands.
#[derive(Debug)]
pub struct HelperConnection {
    socket: UnixStream,
    /// An answer that nobody waits for any more is still to come, before any other.
    owes_answer: bool,
    patience: Duration,
}

/// Longer than any verb takes on a machine that is well. A name service that hangs may take
/// longer; the verbs may all be repeated, so that an answer that comes too late is no loss.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

impl Launcher {
    /// Speaks to the helper at the other end of `socket`.
    pub fn helper(socket: UnixStream) -> Result<Self> {
        Self::helper_with_patience(socket, ANSWER_TIMEOUT)
    }

    fn helper_with_patience(socket: UnixStream, patience: Duration) -> Result<Self> {
        socket.set_nonblocking(false).map_err(doing("preparing the helper's socket"))?;
        socket.set_read_timeout(Some(patience)).map_err(doing("preparing the helper's socket"))?;
        socket.set_write_timeout(Some(patience)).map_err(doing("preparing the helper's socket"))?;
        Ok(Self::Helper(Mutex::new(Some(HelperConnection { socket, owes_answer: false, patience }))))
    }

    /// Does everything itself, as the user it is or by sudo; refused for root, as whom nothing is ever started.
    pub fn direct(config: Config) -> Result<Self> {
        let verbs = Verbs::ordinary(config)?;
        let changes_user = verbs.changes_user();
        Ok(Self::Direct { verbs: Box::new(Mutex::new(verbs)), changes_user })
    }

    /// Whether workloads can run as other users than the portal.
    pub fn changes_user(&self) -> bool {
        match self {
            Self::Helper(_) => true,
            Self::Direct { changes_user, .. } => *changes_user,
        }
    }

    /// Whether anybody answers, as far as the last request showed.
    pub fn is_there(&self) -> bool {
        match self {
            Self::Helper(socket) => socket.lock().is_some(),
            Self::Direct { .. } => true,
        }
    }

    /// Asks, and waits for the answer. A refusal comes as [`Error::Refused`], what may work
    /// later as [`Error::Busy`].
    pub fn ask(&self, request: HelperRequest) -> Result<HelperAnswer> {
        self.exchange(request).map(|(answer, _)| answer)
    }

    /// Starts a files agent; it lives no longer than this socket.
    pub fn files_agent(&self, unix_name: &str, launch: &FilesLaunch) -> Result<UnixStream> {
        let launch = serde_json::to_value(launch)
            .map_err(|err| Error::Refused(format!("the folders are invalid for a files agent: {err}")))?;
        match self.exchange(HelperRequest::Files { unix_name: unix_name.to_owned(), launch })? {
            (HelperAnswer::Done, Some(socket)) => Ok(socket.into()),
            (answer, _) => Err(Error::Busy(format!("unexpected response from the helper: {answer:?}"))),
        }
    }

    fn exchange(&self, request: HelperRequest) -> Result<(HelperAnswer, Option<OwnedFd>)> {
        let (answer, socket) = match self {
            Self::Direct { verbs, .. } => {
                let mut verbs = verbs.lock();
                verbs.reap();
                let answered = verbs.answer(request);
                (answered.answer, answered.socket)
            }
            Self::Helper(line) => {
                let mut line = line.lock();
                let answer = line.as_mut().ok_or_else(gone)?.exchange(&request);
                // After a failure in the middle, answers would be taken for others'.
                if matches!(answer, Err(Error::Io { .. })) {
                    *line = None;
                }
                answer?
            }
        };
        match answer {
            HelperAnswer::Failed { message, retry: false } => Err(Error::Refused(message)),
            HelperAnswer::Failed { message, retry: true } => Err(Error::Busy(message)),
            answer => Ok((answer, socket)),
        }
    }

    /// Takes note of ended agents that are this process's own children.
    pub fn reap(&self) {
        if let Self::Direct { verbs, .. } = self
            && let Some(mut verbs) = verbs.try_lock()
        {
            verbs.reap();
        }
    }
}

impl HelperConnection {
    /// One request and its answer. `Io` means that the line is of no use any more.
    fn exchange(&mut self, request: &HelperRequest) -> Result<(HelperAnswer, Option<OwnedFd>)> {
        if self.owes_answer {
            self.read()?;
        }
        frame::write(&mut self.socket, request).map_err(|err| match err.kind() {
            // Refused before a byte was written.
            std::io::ErrorKind::InvalidInput => Error::Refused(err.to_string()),
            _ => doing("sending a request to the helper")(err),
        })?;
        self.owes_answer = true;
        let (answer, socket) = self.read()?;
        let answer = serde_json::from_slice(&answer)
            .map_err(|err| Error::Busy(format!("invalid response from the helper: {err}")))?;
        Ok((answer, socket))
    }

    fn read(&mut self) -> Result<(Vec<u8>, Option<OwnedFd>)> {
        if !is_readable(&self.socket, self.patience)? {
            return Err(Error::Busy("the helper is busy with an earlier request".to_owned()));
        }
        let mut receiver = Receiver { socket: &self.socket, descriptor: None };
        match frame::read(&mut receiver).map_err(doing("reading the helper's response"))? {
            Frame::Message(message) => {
                let socket = receiver.descriptor;
                self.owes_answer = false;
                Ok((message, socket))
            }
            Frame::TooLong(_) | Frame::End => Err(doing(GONE)(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

const GONE: &str = "the helper has exited; restart Lyceum (running sessions are not affected)";

fn gone() -> Error {
    Error::Busy(GONE.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::SessionId;

    /// The helper's end: takes a request and answers it.
    fn answer(socket: &mut UnixStream, answer: &HelperAnswer) {
        assert!(matches!(frame::read(socket).unwrap(), Frame::Message(_)));
        frame::write(socket, answer).unwrap();
    }

    #[test]
    fn a_late_answer_is_nobodys() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let launcher = Launcher::helper_with_patience(ours, Duration::from_millis(500)).unwrap();
        let kill = || HelperRequest::Kill { session: SessionId::new() };
        assert!(matches!(launcher.ask(kill()), Err(Error::Busy(_))));
        assert!(matches!(launcher.ask(kill()), Err(Error::Busy(_))), "nothing more is sent meanwhile");
        answer(&mut theirs, &HelperAnswer::Failed { message: "late".to_owned(), retry: false });
        std::thread::scope(|scope| {
            scope.spawn(|| answer(&mut theirs, &HelperAnswer::Done));
            assert!(matches!(launcher.ask(kill()), Ok(HelperAnswer::Done)));
        });
        assert!(launcher.is_there());
        drop(theirs);
        assert!(launcher.ask(kill()).is_err());
        assert!(!launcher.is_there());
    }
}
