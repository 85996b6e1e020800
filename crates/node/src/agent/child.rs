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
    time::Duration,
};

use nix::sched::{CloneFlags, setns, unshare};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitOptions};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    time::sleep,
};

use lyceum_wire::protocol::AppLaunch;

use super::tree;

use crate::inherited;

/// The name of the runner whose program becomes our own child.
const RUNNER: &str = "bwrap";

/// Between two looks at whether the runner has started its program.
const LOOK: Duration = Duration::from_millis(5);

/// Between two looks at whether the runner has stopped, which takes the kernel less than this.
const BRIEF_LOOK: Duration = Duration::from_millis(1);

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

    /// Waits until a runner has started its program, makes that our own child, and ends the runner.
    /// From then on signals reach the program, and its exit status is its own: a runner would report
    /// a signal as an exit code.
    pub async fn let_go(&self, runner: Child) -> Child {
        let Child { pid, mut exit } = runner;
        let program = loop {
            match exit.try_recv() {
                Ok(ended) => return ended_as(pid, ended),
                Err(oneshot::error::TryRecvError::Closed) => return Child { pid, exit },
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            match tree::started_by(pid, RUNNER) {
                Some(program) => break program,
                None => sleep(LOOK).await,
            }
        };
        self.take_over(Child { pid, exit }, program).await
    }

    /// Makes the program of a runner our own child and ends the runner. Returns the runner itself where it has collected
    /// the program's exit status already, since it alone knows that then.
    async fn take_over(&self, runner: Child, program: Pid) -> Child {
        let Child { pid, mut exit } = runner;
        // A stopped runner collects nothing between the look at its children and its end.
        if rustix::process::kill_process(pid, Signal::STOP).is_err() {
            return Child { pid, exit };
        }
        while !tree::is_stopped(pid) {
            sleep(BRIEF_LOOK).await;
        }
        if let Ok(ended) = exit.try_recv() {
            return ended_as(pid, ended);
        }
        if ![pid, rustix::process::getpid()].iter().any(|parent| tree::is_child(*parent, program)) {
            let _ = rustix::process::kill_process(pid, Signal::CONT);
            return Child { pid, exit };
        }
        let (ended, of_program) = oneshot::channel();
        self.0.lock().insert(program, ended);
        // Its child comes to us, who reap for everything below.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        let (ended, result) = oneshot::channel();
        let reaper = self.clone();
        tokio::spawn(async move {
            let of_runner = exit.await;
            let was_killed = of_runner.as_ref().is_ok_and(|exit| exit.signal == Some(Signal::KILL.as_raw()));
            let exit = if was_killed { of_program.await } else { of_runner };
            reaper.0.lock().remove(&program);
            if let Ok(exit) = exit {
                let _ = ended.send(exit);
            }
        });
        Child { pid: program, exit: result }
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

fn ended_as(pid: Pid, exit: Exit) -> Child {
    let (ended, result) = oneshot::channel();
    let _ = ended.send(exit);
    Child { pid, exit: result }
}

/// The hidden subcommand `lyceum exec [--parent PID] [--terminal] [--name NAME] [--name-space | --enter PID] -- ARGV…`.
/// Returns only when the program could not be started: 127, as shells do.
pub fn exec(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    inherited::begin();
    let Some(asked) = StopRequest::parse(arguments) else {
        eprintln!("lyceum exec: this is an internal command of the agent");
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

struct StopRequest {
    parent: Option<String>,
    terminal: bool,
    space: Option<Space>,
    name: Option<OsString>,
    program: OsString,
    arguments: Vec<OsString>,
}

impl StopRequest {
    fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut arguments = arguments.into_iter();
        let (mut parent, mut terminal, mut name, mut space) = (None, false, None, None);
        loop {
            match arguments.next()?.to_str()? {
                "--parent" => parent = Some(arguments.next()?.into_string().ok()?),
                "--terminal" => terminal = true,
                "--name" => name = Some(arguments.next()?),
                "--name-space" => space = Some(Space::New),
                "--enter" => space = Some(Space::Of(arguments.next()?.to_str()?.parse().ok()?)),
                "--" => break,
                _ => return None,
            }
        }
        if parent.is_none() && space.is_none() {
            return None;
        }
        Some(Self { parent, terminal, space, name, program: arguments.next()?, arguments: arguments.collect() })
    }
}

fn settle(asked: &StopRequest) -> io::Result<()> {
    if let Some(space) = &asked.space {
        space.enter()?;
    }
    // After a change of rights the kernel forgets it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The agent may have died before the signal was asked for.
    let parent = rustix::process::getppid().map(|parent| parent.to_string());
    if asked.parent.is_some() && parent != asked.parent {
        return Err(io::Error::other("the agent has ended"));
    }
    if asked.terminal {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(io::stdin())?;
    }
    // When memory runs out, the kernel should kill the app and not the agent, which has to report
    // the end, nor the process that serves the app's files. If this cannot be set, the kernel
    // chooses by itself.
    let score = if asked.parent.is_some() { "500" } else { "0" };
    if asked.parent.is_some() || asked.space == Some(Space::New) {
        let _ = fs::write("/proc/self/oom_score_adj", score);
    }
    Ok(())
}

/// The name spaces for users and mounts that a program starts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    /// New ones, in which the user is root and may mount.
    New,
    /// Those of this process.
    Of(i32),
}

impl Space {
    fn enter(self) -> io::Result<()> {
        let both = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS;
        match self {
            Self::New => {
                let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
                unshare(both).map_err(|error| {
                    io::Error::other(format!("the kernel does not allow user name spaces to this user ({error})"))
                })?;
                fs::write("/proc/self/setgroups", "deny")?;
                fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
                fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
            }
            Self::Of(pid) => {
                let open = |name: &str| fs::File::open(format!("/proc/{pid}/ns/{name}"));
                let (user, mount) = (open("user")?, open("mnt")?);
                setns(user, CloneFlags::CLONE_NEWUSER)?;
                setns(mount, CloneFlags::CLONE_NEWNS)?;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        os::unix::process::ExitStatusExt,
    };

    use super::*;

    /// A shell as a runner: itself, its pid, the lines that it writes, and the first of them.
    fn runner(script: &str) -> (std::process::Child, Pid, impl Iterator<Item = String>, Pid) {
        let mut shell = Command::new("/bin/sh");
        let mut shell =
            shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell starts");
        let output = shell.stdout.take().expect("it was asked for");
        let mut lines = BufReader::new(output).lines().map(|line| line.expect("a line"));
        let program = lines.next().and_then(|line| Pid::from_raw(line.parse().ok()?)).expect("it tells its program");
        let pid = Pid::from_child(&shell);
        (shell, pid, lines, program)
    }

    #[tokio::test]
    async fn a_runner_that_has_collected_its_program_reports_its_end() {
        let (mut shell, pid, mut lines, program) = runner("true & echo $!; wait $!; echo over; read line; exit 3");
        assert_eq!(lines.next().as_deref(), Some("over"));
        let (_reaper, exit) = oneshot::channel();
        let taken = Reaper(Arc::default()).take_over(Child { pid, exit }, program).await;
        assert_eq!(taken.pid, pid);
        shell.stdin.take().expect("it was asked for").write_all(b"go\n").expect("it reads");
        assert_eq!(shell.wait().expect("it ends").code(), Some(3));
    }

    #[tokio::test]
    async fn a_runner_leaves_the_program_that_lives() {
        let (mut shell, pid, _lines, program) = runner("sleep 600 & echo $!; wait");
        let (_reaper, exit) = oneshot::channel();
        let taken = Reaper(Arc::default()).take_over(Child { pid, exit }, program).await;
        assert_eq!(taken.pid, program);
        assert_eq!(shell.wait().expect("it ends").signal(), Some(9));
        rustix::process::kill_process(program, Signal::KILL).expect("it lives");
    }

    fn parse(text: &str) -> Option<StopRequest> {
        StopRequest::parse(text.split_whitespace().map(OsString::from))
    }

    #[test]
    fn arguments_of_exec() {
        let asked = parse("--parent 7 --terminal --name -bash -- /bin/bash -- -x").expect("well formed");
        assert!(asked.terminal);
        assert_eq!(asked.name.as_deref(), Some("-bash".as_ref()));
        assert_eq!(asked.program, "/bin/bash");
        assert_eq!(asked.arguments, ["--", "-x"]);
        let asked = parse("--enter 12 -- /bin/true").expect("well formed");
        assert_eq!((asked.space, asked.parent), (Some(Space::Of(12)), None));
        assert_eq!(parse("--parent 7 --name-space -- x").expect("well formed").space, Some(Space::New));
        for text in
            ["", "--enter x -- /bin/true", "--parent 7", "--parent 7 --", "-- /bin/true", "--other -- /bin/true"]
        {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
