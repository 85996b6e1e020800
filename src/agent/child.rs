//! Starting processes and hearing of their end. A child is started through a hidden
//! subcommand of this very program, `lyceum exec`, which does between fork and exec what
//! safe Rust cannot do there: it closes what leaked in, asks for a signal should the agent
//! die, takes the controlling terminal, and becomes the program.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs, io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Command, ExitCode, Stdio},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitOptions};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use crate::{inherited, protocol::AppLaunch};

/// How a process ended: one of the two is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

/// A started process.
pub(super) struct Child {
    pub pid: Pid,
    pub exit: oneshot::Receiver<Exit>,
}

/// What a child's standard streams are connected to.
pub(super) enum Streams {
    /// Standard input is empty; output and errors go into this pipe. Own process group.
    Pipe(OwnedFd),
    /// Standard input from a file, if there is one; output and errors each into a pipe. Own process group.
    Split { input: Option<fs::File>, output: OwnedFd, error: OwnedFd },
    /// The slave side of a terminal, which becomes the controlling one of a new session.
    Terminal(OwnedFd),
}

/// Reaps every child, our own and the orphans that come to us, and tells who waits for it.
#[derive(Clone)]
pub(super) struct Reaper(Arc<Mutex<HashMap<Pid, oneshot::Sender<Exit>>>>);

impl Reaper {
    pub fn start() -> io::Result<Self> {
        let reaper = Self(Arc::default());
        let mut children = signal(SignalKind::child())?;
        let reaping = reaper.clone();
        tokio::spawn(async move {
            while children.recv().await.is_some() {
                reaping.reap();
            }
        });
        Ok(reaper)
    }

    /// Starts `argv` in the app's environment and directory. `name` becomes its zeroth
    /// argument (a shell whose name starts with `-` is a login shell).
    pub fn spawn(
        &self,
        launch: &AppLaunch,
        argv: &[String],
        name: Option<&str>,
        streams: Streams,
    ) -> io::Result<Child> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("exec").arg("--parent").arg(rustix::process::getpid().to_string());
        match streams {
            Streams::Pipe(pipe) => {
                command.process_group(0).stdin(Stdio::null()).stdout(pipe.try_clone()?).stderr(pipe);
            }
            Streams::Split { input, output, error } => {
                let input = input.map_or_else(Stdio::null, Stdio::from);
                command.process_group(0).stdin(input).stdout(output).stderr(error);
            }
            Streams::Terminal(slave) => {
                command.arg("--terminal").stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
            }
        }
        if let Some(name) = name {
            command.arg("--name").arg(name);
        }
        command.arg("--").args(argv);
        command.env_clear().envs(&launch.environment).current_dir(&launch.working_directory);
        // No other task runs between fork and registration: there is one thread only.
        let pid = Pid::from_child(&command.spawn()?);
        let (ended, exit) = oneshot::channel();
        self.0.lock().insert(pid, ended);
        Ok(Child { pid, exit })
    }

    /// Collects whoever has ended.
    pub fn reap(&self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let exit = Exit { code: status.exit_status(), signal: status.terminating_signal() };
            if let Some(waiting) = self.0.lock().remove(&pid) {
                // Nobody waits any more: that is their business.
                let _ = waiting.send(exit);
            }
        }
    }
}

/// The hidden subcommand `lyceum exec --parent PID [--terminal] [--name NAME] -- ARGV…`.
/// Returns only when the program could not be started: 127, as shells do.
pub fn exec(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    inherited::begin();
    let Some(asked) = Asked::parse(arguments) else {
        eprintln!("lyceum exec: this is how the agent starts programs; it is not meant for people");
        return ExitCode::from(2);
    };
    if let Err(source) = settle(&asked) {
        eprintln!("lyceum: cannot prepare the start of {}: {source}", asked.program.display());
        return ExitCode::from(126);
    }
    let mut command = Command::new(&asked.program);
    command.args(&asked.arguments);
    if let Some(name) = &asked.name {
        command.arg0(name);
    }
    let source = command.exec();
    eprintln!("lyceum: cannot start {}: {source}", asked.program.display());
    ExitCode::from(127)
}

struct Asked {
    parent: String,
    terminal: bool,
    name: Option<OsString>,
    program: OsString,
    arguments: Vec<OsString>,
}

impl Asked {
    fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut arguments = arguments.into_iter();
        let (mut parent, mut terminal, mut name) = (None, false, None);
        loop {
            match arguments.next()?.to_str()? {
                "--parent" => parent = Some(arguments.next()?.into_string().ok()?),
                "--terminal" => terminal = true,
                "--name" => name = Some(arguments.next()?),
                "--" => break,
                _ => return None,
            }
        }
        Some(Self { parent: parent?, terminal, name, program: arguments.next()?, arguments: arguments.collect() })
    }
}

fn settle(asked: &Asked) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The agent may have died before the signal was asked for.
    if rustix::process::getppid().map(|parent| parent.to_string()).as_deref() != Some(&asked.parent) {
        return Err(io::Error::other("the agent has ended"));
    }
    if asked.terminal {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(io::stdin())?;
    }
    // Short of memory the kernel should rather take the app than the agent, which has to
    // tell what happened. Where this cannot be said, the kernel chooses by itself.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Asked> {
        Asked::parse(text.split_whitespace().map(OsString::from))
    }

    #[test]
    fn arguments_of_exec() {
        let asked = parse("--parent 7 --terminal --name -bash -- /bin/bash -- -x").expect("well formed");
        assert!(asked.terminal);
        assert_eq!(asked.name.as_deref(), Some("-bash".as_ref()));
        assert_eq!(asked.program, "/bin/bash");
        assert_eq!(asked.arguments, ["--", "-x"]);
        for text in ["", "--parent 7", "--parent 7 --", "-- /bin/true", "--other -- /bin/true"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
