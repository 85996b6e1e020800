//! The verb `files`: an agent that reads and writes a user's files, at one end of a socket
//! pair whose other end goes to the portal. The agent lives no longer than the portal's end:
//! it hears of the end itself, and where it cannot (stopped, or stuck in a file system) it is
//! killed. The step between, `lyceum files-agent`, becomes the user and turns into the agent.

use std::{
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream, unix::process::CommandExt},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::Mode,
    process::{Pid, Signal, getppid, set_parent_process_death_signal},
};
use serde::{Deserialize, Serialize};

use super::{Config, Error, Result, doing, identity::Identity, privilege_mode::PrivilegeMode, trampoline};
use crate::inherited;

/// How many may live for one account, and in all. One whose file system hangs stays until
/// the kernel lets go of it.
const MAX_PER_ACCOUNT: usize = 12;
const MAX_AGENTS: usize = 256;

/// How long an agent may live that the portal has let go of.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The agents that may still live.
#[derive(Debug, Default)]
pub(super) struct FilesAgents(Vec<FilesAgent>);

#[derive(Debug)]
struct FilesAgent {
    uid: u32,
    child: Child,
    /// The agent's own end once more: it tells when the portal has closed the other.
    end: OwnedFd,
    let_go: Option<Instant>,
}

/// What the step between is told.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// `None`: stay who we are.
    identity: Option<Identity>,
    /// The agent's.
    command: Vec<OsString>,
    launch: serde_json::Value,
    /// The process that waits for us; without it there is nothing to do.
    parent: i32,
}

impl FilesAgents {
    /// Starts one as `identity`; answers the portal's end.
    pub fn start(
        &mut self,
        config: &Config,
        way: &PrivilegeMode,
        identity: &Identity,
        launch: serde_json::Value,
    ) -> Result<OwnedFd> {
        self.reap();
        if self.0.iter().filter(|agent| agent.uid == identity.uid).count() >= MAX_PER_ACCOUNT
            || self.0.len() >= MAX_AGENTS
        {
            return Err(Error::Busy(format!(
                "too many operations are in progress on the files of `{}`",
                identity.name
            )));
        }
        let (ours, theirs) = UnixStream::pair().map_err(doing("creating a socket pair"))?;
        let end = OwnedFd::from(theirs.try_clone().map_err(doing("duplicating a socket"))?);
        let spec = Spec {
            identity: way.target_identity(identity),
            command: config.agent_command.iter().cloned().chain([OsString::from("files")]).collect(),
            launch,
            parent: i32::try_from(std::process::id()).expect("process ids fit 31 bits"),
        };
        let spec = serde_json::to_vec(&spec)
            .map_err(|err| Error::Refused(format!("invalid specification of a files agent: {err}")))?;
        let child = way
            .command(&config.own_binary, "files-agent", identity)
            .stdin(trampoline::memory_file("files-input", &[&spec])?)
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::null())
            .spawn()
            .map_err(doing("starting a files agent"))?;
        self.0.push(FilesAgent { uid: identity.uid, child, end, let_go: None });
        Ok(ours.into())
    }

    /// Forgets those that have ended, and ends those that nobody speaks to any more.
    pub fn reap(&mut self) {
        let now = Instant::now();
        self.0.retain_mut(|agent| {
            if !matches!(agent.child.try_wait(), Ok(None)) {
                return false;
            }
            if agent.let_go.is_none() && is_let_go(&agent.end) {
                agent.let_go = Some(now);
            }
            if agent.let_go.is_some_and(|since| now - since >= KILL_TIMEOUT) {
                // In a system call that hangs it ends when the kernel lets it.
                let _ = agent.child.kill();
                return matches!(agent.child.try_wait(), Ok(None));
            }
            true
        });
    }
}

/// Whether the other end of this socket pair is closed.
fn is_let_go(end: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(end, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok_and(|ready| ready > 0) && asked[0].revents().contains(PollFlags::HUP)
}

/// The step between; comes back only when it failed. The portal hears of that by the end of
/// its socket.
pub fn run() -> ExitCode {
    inherited::begin();
    drop(turn_into_agent());
    ExitCode::FAILURE
}

/// The error is why this process is not the agent.
fn turn_into_agent() -> Result<io::Error> {
    let spec: Spec = serde_json::from_reader(io::stdin().lock())
        .map_err(|err| Error::Refused(format!("invalid start specification: {err}")))?;
    let launch = serde_json::to_vec(&spec.launch).expect("JSON stays JSON");
    let input = trampoline::memory_file("files-launch", &[&launch])?;
    inherited::restore(0);
    if let Some(identity) = &spec.identity {
        identity.become_for_good()?;
        // A change of user clears it, so it comes after. In a portal without a helper the
        // parent is a thread that comes and goes, and the socket's end has to do.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|err| doing("watching the helper")(err.into()))?;
        if getppid().map(Pid::as_raw_pid) != Some(spec.parent) {
            return Err(Error::Busy("the helper has exited".to_owned()));
        }
    }
    rustix::process::umask(Mode::RWXO | Mode::WGRP);
    // Not the portal's terminal; a leader of its own already needs no new session.
    let _ = rustix::process::setsid();
    let Some((program, arguments)) = spec.command.split_first() else {
        return Err(Error::Refused("no agent to start".to_owned()));
    };
    Ok(Command::new(Path::new(program))
        .args(arguments)
        .env_clear()
        .env("PATH", trampoline::PATH)
        .current_dir("/")
        .stdin(input)
        .stderr(Stdio::null())
        .exec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_let_go_when_the_other_closes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        assert!(!is_let_go(&theirs));
        drop(ours);
        assert!(is_let_go(&theirs));
    }
}
