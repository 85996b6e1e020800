//! `lyceum become`: the step between the helper and an agent, in a process of its own. It
//! joins the cgroups, writes the placement that makes the start unrepeatable, becomes the
//! user for good and turns into the agent by `exec`. Nothing of the user's runs before.
//!
//! Standard input holds the [`Spec`] as one line of JSON and the agent's own input after it.
//! Standard output tells the helper how it went: nothing and its end means that the agent is
//! running, `exists` that somebody else was first, anything else is the error.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{fd::AsFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    fs::{MemfdFlags, Mode, SeekFrom, memfd_create, seek},
    io::fcntl_dupfd_cloexec,
    process::{Pid, Signal, getppid, set_parent_process_death_signal},
};
use serde::{Deserialize, Serialize};

use super::{
    Error, Result, cgroup, doing,
    identity::Identity,
    placement::{self, Record},
    process,
};
use lyceum_wire::protocol::MAX_MESSAGE;

use crate::inherited;

/// What the helper asks of the trampoline.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    /// The process id and start time are filled in here.
    pub record: Record,
    pub placements: PathBuf,
    /// `None`: stay who we are.
    pub identity: Option<Identity>,
    pub command: Vec<OsString>,
    /// The process that waits for us; without it there is nothing to do.
    pub parent: i32,
}

/// Says on standard output that the session has a placement already.
pub(super) const EXISTS: &str = "exists";

/// Where an agent looks for programs until it knows better.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The kernel takes a workload before it takes the portal or the machine's own services.
const OOM_SCORE: i32 = 300;

/// Becomes the agent; comes back only with the process's exit status when it did not.
pub fn run() -> std::process::ExitCode {
    inherited::begin();
    // The copy closes itself when the agent starts; that is how the helper knows.
    let Ok(status) = fcntl_dupfd_cloexec(io::stdout().as_fd(), 3) else { return std::process::ExitCode::FAILURE };
    let message = match start() {
        Ok(Outcome::Exists) => EXISTS.to_owned(),
        Err(err) => err.sentence(),
    };
    // Nobody is left to tell when this fails.
    let _ = File::from(status).write_all(message.as_bytes());
    std::process::ExitCode::FAILURE
}

enum Outcome {
    Exists,
}

fn start() -> Result<Outcome> {
    let (mut spec, input) = read_input()?;
    let Some((program, arguments)) = spec.command.split_first() else {
        return Err(Error::Refused("no agent to start".to_owned()));
    };
    // Until the placement is there, a start that nobody waits for must come to nothing.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|err| doing("watching the helper")(err.into()))?;
    if getppid().map(Pid::as_raw_pid) != Some(spec.parent) {
        return Err(Error::Busy("the helper has exited".to_owned()));
    }
    cgroup::join(&spec.record.cgroups).map_err(doing("joining the cgroups"))?;
    inherited::restore(OOM_SCORE);
    set_parent_process_death_signal(None).map_err(|err| doing("ceasing to watch the helper")(err.into()))?;

    let pid = i32::try_from(std::process::id()).expect("process ids fit 31 bits");
    let stat = process::stat(pid).map_err(doing("reading the process start time"))?;
    spec.record.placement.pid = pid;
    spec.record.placement.start_ticks = stat.map(|stat| stat.start_ticks).unwrap_or_default();
    if !placement::create(&spec.placements, &spec.record).map_err(doing("writing the placement"))? {
        return Ok(Outcome::Exists);
    }
    if let Some(identity) = &spec.identity {
        identity.become_for_good()?;
    }
    rustix::process::umask(Mode::RWXO | Mode::WGRP);
    let failure = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/")
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .exec();
    Err(doing(format!("starting {}", Path::new(program).display()))(failure))
}

/// The specification, and the agent's input as a file of its own in memory, so that neither
/// a pipe's size nor a reader that is late can hold up the helper.
fn read_input() -> Result<(Spec, File)> {
    let mut text = Vec::new();
    let limit = 2 * MAX_MESSAGE as u64;
    io::stdin().lock().take(limit).read_to_end(&mut text).map_err(doing("reading the start specification"))?;
    let line = text.iter().position(|&b| b == b'\n').ok_or_else(|| Error::Refused("nothing to start".to_owned()))?;
    let spec = serde_json::from_slice(&text[..line])
        .map_err(|err| Error::Refused(format!("invalid start specification: {err}")))?;
    let input = memory_file("agent-input", &[&text[line + 1..]])?;
    Ok((spec, input))
}

/// A file in memory that is positioned at its start.
pub(super) fn memory_file(name: &str, parts: &[&[u8]]) -> Result<File> {
    let failed = doing("creating a file in memory");
    let make = || -> io::Result<File> {
        let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
        for part in parts {
            file.write_all(part)?;
        }
        seek(&file, SeekFrom::Start(0))?;
        Ok(file)
    };
    make().map_err(failed)
}
