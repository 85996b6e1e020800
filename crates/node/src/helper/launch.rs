//! The verb `launch`: run directory, cgroups, trampoline. Each step may be repeated after a
//! crash at any point, and only the trampoline's placement file decides that a session has
//! been started.

use std::{
    fs::{self, DirBuilder},
    io::{self, Read, Seek},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags, fchmod, fchown, open},
    process::{geteuid, umask},
};

use super::{
    Config, Error, Result, cgroup, doing,
    identity::Identity,
    placement::{self, Record},
    process,
    trampoline::{EXISTS, Spec, memory_file},
};
use lyceum_model::{line::abridged, session::Placement};
use lyceum_wire::protocol::{LaunchRequest, Limits};

/// What came of a launch.
pub(super) struct Launched {
    pub placement: Placement,
    /// The agent, to be reaped; `None` where it was running before.
    pub child: Option<Child>,
}

/// How long the trampoline may take; it does nothing that waits for others.
const TRAMPOLINE_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts `request` as `identity`; `target_identity` is left out where that is who we are.
pub(super) fn launch(
    config: &Config,
    request: &LaunchRequest,
    identity: &Identity,
    target_identity: Option<Identity>,
) -> Result<Launched> {
    let session = request.session;
    let short = session.short();
    if let Some(placement) = existing(config, request, identity)? {
        return Ok(Launched { placement, child: None });
    }
    check_limits(&request.limits)?;
    let run_directory = config.run.join(&short);
    make_run_directory(&run_directory, identity.uid, config.service_gid)?;
    let groups = config.hierarchy.groups(&short);
    if !cgroup::processes(&groups).map_err(doing("reading the cgroups"))?.is_empty() {
        return Err(Error::Busy(format!("processes of session {session} are already running; kill it first")));
    }
    config.hierarchy.create(&short, &request.limits, &request.devices).map_err(doing("creating the cgroups"))?;
    let starter = config.hierarchy.starter(&short, &request.limits, &request.devices);
    let starter = starter.map_err(doing("listing the devices"))?;

    let record = Record {
        session,
        placement: Placement {
            node: process::node().map_err(doing("reading this machine's name"))?,
            pid: 0,
            start_ticks: 0,
            boot_id: process::boot_id().map_err(doing("reading the boot id"))?,
            uid: identity.uid,
            unix_name: identity.name.clone(),
            run_directory: run_directory.to_string_lossy().into_owned(),
            limits: config.hierarchy.kind().to_owned(),
            link: None,
        },
        cgroups: groups,
    };
    let spec = Spec {
        record,
        placements: config.placements.clone(),
        identity: target_identity,
        command: config.agent_command.clone(),
        parent: i32::try_from(std::process::id()).expect("process ids fit 31 bits"),
    };
    let (mut child, message, complaints) = run_trampoline(config, starter, &spec, &request.agent)?;
    let child_pid = i32::try_from(child.id()).expect("process ids fit 31 bits");
    match (message.as_str(), existing(config, request, identity)?) {
        ("", Some(placement)) if placement.pid == child_pid => Ok(Launched { placement, child: Some(child) }),
        (EXISTS, Some(placement)) => {
            let _ = child.wait();
            Ok(Launched { placement, child: None })
        }
        (_, placement) => {
            // It has not become the agent, and its placement stands for nothing.
            let _ = child.kill();
            let _ = child.wait();
            if placement.is_some_and(|placement| placement.pid == child_pid) {
                placement::remove(&config.placements, session).map_err(doing("removing the placement"))?;
            }
            Err(match message.as_str() {
                "" => Error::Busy(format!("the start was interrupted{}", read_complaints(complaints))),
                message => Error::Refused(format!("the agent could not be started: {message}")),
            })
        }
    }
}

/// The placement a session has already, if it is this person's.
fn existing(config: &Config, request: &LaunchRequest, identity: &Identity) -> Result<Option<Placement>> {
    let record = placement::read(&config.placements, request.session).map_err(doing("reading the placement"))?;
    match record {
        Some(record) if record.placement.uid != identity.uid => Err(Error::Refused(format!(
            "session {} was started as `{}`, not as `{}`",
            request.session, record.placement.unix_name, identity.name
        ))),
        record => Ok(record.map(|record| record.placement)),
    }
}

/// Runs the trampoline until it is the agent or has said why not. `starter` is a program
/// that turns into it.
fn run_trampoline(
    config: &Config,
    starter: Option<Command>,
    spec: &Spec,
    agent: &serde_json::Value,
) -> Result<(Child, String, fs::File)> {
    let mut line = serde_json::to_vec(spec).expect("plain data");
    line.push(b'\n');
    let agent = serde_json::to_vec(agent).expect("JSON stays JSON");
    let input = memory_file("trampoline-input", &[&line, &agent])?;
    let complaints = memory_file("complaints", &[])?;
    let mut command = match starter {
        None => {
            let mut command = Command::new(&config.own_binary);
            command.env_clear().current_dir("/");
            command
        }
        Some(mut command) => {
            // `self` would be the starter by then.
            let own = match config.own_binary.strip_prefix("/proc/self") {
                Ok(rest) => Path::new("/proc").join(std::process::id().to_string()).join(rest),
                Err(_) => config.own_binary.clone(),
            };
            command.arg(own);
            command
        }
    };
    let mut child = command
        .arg("become")
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(complaints.try_clone().map_err(doing("creating a file in memory"))?)
        .spawn()
        .map_err(doing("starting the trampoline"))?;
    let output: OwnedFd = child.stdout.take().expect("it was asked for").into();
    let mut message = String::new();
    if process::wait(&[&output], TRAMPOLINE_TIMEOUT) {
        // One short write or the end: the trampoline never writes twice.
        fs::File::from(output)
            .take(4096)
            .read_to_string(&mut message)
            .map_err(doing("reading the trampoline's response"))?;
    } else {
        let _ = child.kill();
        let _ = child.wait();
        message.push_str("timed out");
    }
    Ok((child, message, complaints))
}

/// What the starter has complained of, as the end of a sentence.
fn read_complaints(mut complaints: fs::File) -> String {
    let mut text = Vec::new();
    // What cannot be read is not told.
    let _ = complaints.rewind().and_then(|()| complaints.take(64 * 1024).read_to_end(&mut text));
    match abridged(&String::from_utf8_lossy(&text), 300) {
        told if told.is_empty() => told,
        told => format!(": {told}"),
    }
}

/// Makes the directory that keeps everybody else out: the user's, the service's group, 2750.
pub(super) fn make_run_directory(path: &Path, uid: u32, gid: u32) -> Result<()> {
    let what = || format!("creating the run directory {}", path.display());
    let make = || -> io::Result<bool> {
        if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
            // Below /run/user it goes when its user's last login ends.
            let mode = if geteuid().is_root() { 0o711 } else { 0o700 };
            DirBuilder::new().recursive(true).mode(mode).create(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = fs::File::from(open(path, flags, Mode::empty())?);
        let owner = directory.metadata()?.uid();
        // Ours is one that a crash left before it was handed over.
        if owner != uid && owner != geteuid().as_raw() {
            return Ok(false);
        }
        let (uid, gid) = (rustix::process::Uid::from_raw(uid), rustix::process::Gid::from_raw(gid));
        fchown(&directory, Some(uid), Some(gid))?;
        fchmod(&directory, Mode::from_raw_mode(0o2750))?;
        Ok(true)
    };
    match make() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Refused(format!("{} belongs to another user", path.display()))),
        Err(err) => Err(doing(what())(err)),
    }
}

/// The same by the user whose it will be. Directories below the parent have its group without being told (its mode
/// has 2000), and nobody removes another's there (1000).
pub(super) fn make_own_run_directory(path: &Path) -> Result<()> {
    let what = || format!("creating the run directory {}", path.display());
    let make = || -> io::Result<bool> {
        let before = umask(Mode::RWXO | Mode::WGRP);
        let made = DirBuilder::new().mode(0o750).create(path);
        umask(before);
        match made {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
            _ => {}
        }
        let facts = fs::symlink_metadata(path)?;
        let parent = fs::metadata(path.parent().unwrap_or(path))?;
        let is_own = facts.is_dir() && facts.uid() == geteuid().as_raw();
        Ok(is_own && facts.gid() == parent.gid() && facts.mode() & 0o7777 == 0o2750)
    };
    match make() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Refused(format!(
            "{} must belong to the user and to the portal's group, with mode 2750",
            path.display()
        ))),
        Err(err) => Err(doing(what())(err)),
    }
}

fn check_limits(limits: &Limits) -> Result<()> {
    let Limits { cpus, memory_bytes, processes } = *limits;
    let good = (1..=65_536).contains(&cpus)
        && (1 << 20..=1 << 50).contains(&memory_bytes)
        && (1..=4_194_304).contains(&processes);
    if good { Ok(()) } else { Err(Error::Refused(format!("invalid limits: {limits:?}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let good = Limits { cpus: 1, memory_bytes: 1 << 30, processes: 4096 };
        assert!(check_limits(&good).is_ok());
        for bad in [
            Limits { cpus: 0, ..good.clone() },
            Limits { cpus: i64::MAX, ..good.clone() },
            Limits { memory_bytes: -1, ..good.clone() },
            Limits { memory_bytes: i64::MAX, ..good.clone() },
            Limits { processes: 0, ..good },
        ] {
            assert!(check_limits(&bad).is_err(), "{bad:?}");
        }
    }
}
