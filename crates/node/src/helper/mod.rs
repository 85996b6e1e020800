//! `lyceum helper`: the one process that stays root. It reads a handful of fixed verbs from
//! the socket pair that `start` made, checks every one again against the host's own name
//! service and its own files, and answers. It is single-threaded and synchronous, has no
//! shell and no environment, and never looks into what it hands to an agent.
//!
//! A portal that is not root calls the same verbs in-process (see [`client::Launcher`]); they
//! then change no user. What a workload is told, and what a session means, is not its affair.

pub mod batch;
pub mod cgroup;
pub mod client;
pub mod command;
pub mod errand;
pub mod files;
pub mod frame;
pub mod identity;
pub mod placement;
pub mod privilege_mode;
pub mod process;
pub mod trampoline;
pub mod verbs;

pub mod account;
mod launch;
mod remove;

use std::{
    ffi::OsString,
    io,
    ops::RangeInclusive,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use self::{cgroup::Hierarchy, frame::Frame, verbs::Verbs};
use lyceum_wire::protocol::HelperAnswer;

use crate::inherited;

/// What the verbs work with: decided once at the start, by root, and never by a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Holds one run directory a workload; written by nobody but whom the helper runs as.
    pub run: PathBuf,
    /// Holds one placement file a workload.
    pub placements: PathBuf,
    pub hierarchy: Hierarchy,
    /// The user `serve` runs as; nobody's workload ever runs as that one.
    pub service_uid: u32,
    /// The group of every run directory.
    pub service_gid: u32,
    /// Program and arguments of an agent; its input arrives on standard input.
    pub agent_command: Vec<OsString>,
    /// Our own binary, for the trampoline. `/proc/self/exe` cannot be exchanged by anybody.
    pub own_binary: PathBuf,
    /// Where `ly-NAME` accounts get their uids and gids.
    pub account_uids: RangeInclusive<u32>,
    /// The commands of the batch system, where one starts the workloads.
    pub batch: Option<batch::Tools>,
    /// Our program as a rule of sudo's names it, where that makes an ordinary portal's children users.
    pub sudo: Option<PathBuf>,
}

/// The uids of accounts that Lyceum makes, unless the configuration says otherwise.
pub const ACCOUNT_UIDS: RangeInclusive<u32> = 200_000..=265_535;

/// Serves the socket pair on file descriptor 0 until the portal closes its end.
/// `config` is a [`Config`] as JSON, the command's only argument.
pub fn run(config: &str) -> Result<()> {
    inherited::begin();
    // A session of its own: Ctrl-C on a terminal is for the portal, which then closes the
    // socket, and no end of a terminal or of the portal interrupts a verb.
    let _ = rustix::process::setsid();
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Refused(
            "`lyceum helper` is an internal command that `lyceum serve` starts as root".to_owned(),
        ));
    }
    let config: Config = serde_json::from_str(config)
        .map_err(|err| Error::Refused(format!("invalid configuration of the helper: {err}")))?;
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(doing("opening the portal's socket"))?;
    let socket = UnixStream::from(socket);
    // The pair bears the mark of who made it. Anything else on descriptor 0 is a mistake.
    let maker = rustix::net::sockopt::socket_peercred(&socket).map_err(|err| Error::Io {
        doing: "reading the owner of the socket on standard input".to_owned(),
        source: err.into(),
    })?;
    if !maker.uid.is_root() {
        return Err(Error::Refused("the socket on standard input was not created by root".to_owned()));
    }
    socket.set_read_timeout(Some(FRAME_TIMEOUT)).map_err(doing("setting the socket's timeout"))?;
    socket.set_write_timeout(Some(FRAME_TIMEOUT)).map_err(doing("setting the socket's timeout"))?;
    serve(&socket, &mut Verbs::root(config))
}

/// How long a frame that has begun may take; the portal sends each in one piece.
const FRAME_TIMEOUT: Duration = Duration::from_secs(30);

fn serve(mut socket: &UnixStream, verbs: &mut Verbs) -> Result<()> {
    loop {
        verbs.reap();
        if !is_readable(socket, Duration::from_secs(1))? {
            continue;
        }
        let answered = match frame::read(&mut socket).map_err(doing("reading a request"))? {
            Frame::End => return Ok(()),
            Frame::Message(message) => match serde_json::from_slice(&message) {
                Ok(request) => verbs.answer(request),
                Err(err) => failed(&Error::Refused(format!("invalid request: {err}"))).into(),
            },
            // What follows cannot be told from a frame any more, so this is the last answer.
            Frame::TooLong(length) => {
                let refusal = Error::Refused(format!("a request of {length} bytes is too long"));
                frame::write(&mut socket, &failed(&refusal)).map_err(doing("sending a response"))?;
                return Err(refusal);
            }
        };
        frame::write_with(socket, &answered.answer, answered.socket.as_ref()).map_err(doing("sending a response"))?;
    }
}

/// Waits for something to read, or the end.
fn is_readable(socket: &UnixStream, within: Duration) -> Result<bool> {
    let end = Instant::now() + within;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a short time fits");
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(err) => return Err(Error::Io { doing: "waiting on the socket".to_owned(), source: err.into() }),
        }
    }
}

/// An answer, and the socket that goes with that of the verb `files`.
#[derive(Debug)]
struct VerbAnswer {
    answer: HelperAnswer,
    socket: Option<OwnedFd>,
}

impl From<HelperAnswer> for VerbAnswer {
    fn from(answer: HelperAnswer) -> Self {
        Self { answer, socket: None }
    }
}

fn failed(err: &Error) -> HelperAnswer {
    HelperAnswer::Failed { message: err.sentence(), retry: !matches!(err, Error::Refused(_)) }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Will never work as it was asked for.
    #[error("{0}")]
    Refused(String),
    /// Does not work now and may later.
    #[error("{0}")]
    Busy(String),
    #[error("{doing}")]
    Io {
        doing: String,
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// The error with its cause, for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::Io { doing, source } => format!("{doing}: {source}"),
            other => other.to_string(),
        }
    }
}

/// Names what was being done when an I/O error came.
pub fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { doing: what.into(), source }
}
