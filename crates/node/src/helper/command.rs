//! A program run to its end within a time, with a cleared environment and nothing but its own
//! words to show for it. What it writes goes to files in memory, so that neither a full pipe
//! nor a child of its own that outlives it can hold up whoever waits. What is run, and what
//! its words mean, is the caller's affair.

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{Error, Result, doing, process, trampoline::memory_file};
use lyceum_wire::protocol::CommandOutput;

/// Where commands of a batch system look for programs.
const PATH: &str = "/usr/bin:/bin";

/// What a command is run with, beside its arguments.
#[derive(Clone, Debug, Default)]
pub struct CommandContext {
    /// Slurm's configuration, where it is not in its usual place.
    pub conf: Option<PathBuf>,
}

/// How many characters Slurm spends on the list of an array's tasks.
const TASKS: &str = "1024";

impl CommandContext {
    /// Everything that a command of Slurm's finds in its environment: no preference of
    /// anybody's, no language, and moments as seconds since 1970.
    pub fn environment(&self) -> Vec<(&'static str, std::ffi::OsString)> {
        let mut environment: Vec<(_, std::ffi::OsString)> = vec![
            ("PATH", PATH.into()),
            ("LC_ALL", "C".into()),
            ("SLURM_TIME_FORMAT", "%s".into()),
            ("SLURM_BITSTR_LEN", TASKS.into()),
        ];
        environment.extend(self.conf.iter().map(|conf| ("SLURM_CONF", conf.clone().into_os_string())));
        environment
    }
}

/// A command that is under way.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    handle: Option<OwnedFd>,
    output: File,
    complaints: File,
}

/// Runs `program`; of each of its outputs at most `limit` bytes are read.
pub fn run(
    program: &Path,
    arguments: &[String],
    surroundings: &CommandContext,
    within: Duration,
    limit: u64,
) -> Result<CommandOutput> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(surroundings.environment()).current_dir("/").stdin(Stdio::null());
    let mut running = start(command).map_err(doing(format!("running {}", program.display())))?;
    let end = Instant::now() + within;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        // What it writes lies in memory: a flood is ended and not waited for.
        if running.wait(left.min(POLL_INTERVAL)) || limit < running.written() {
            break;
        }
    }
    running.finish(limit)
}

/// How often a running command is asked how much it has written.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Starts `command` with outputs in memory.
pub(super) fn start(mut command: Command) -> io::Result<Running> {
    let file = |name| memory_file(name, &[]).map_err(io::Error::other);
    let (output, complaints) = (file("output")?, file("complaints")?);
    let child = command.stdout(output.try_clone()?).stderr(complaints.try_clone()?).spawn()?;
    let pid = i32::try_from(child.id()).expect("process ids fit 31 bits");
    Ok(Running { child, handle: process::open(pid)?, output, complaints })
}

impl Running {
    /// Whether it has ended when `within` is over.
    pub fn wait(&mut self, within: Duration) -> bool {
        match &self.handle {
            Some(handle) => process::wait(&[handle], within),
            None => true,
        }
    }

    /// The length of the longer of its outputs (bytes).
    fn written(&self) -> u64 {
        let length = |file: &File| file.metadata().map_or(0, |facts| facts.len());
        length(&self.output).max(length(&self.complaints))
    }

    /// Ends it, if that is allowed: what sudo has made somebody else's is not.
    pub fn kill(&mut self) -> bool {
        self.child.kill().is_ok()
    }

    /// What came of it; one that still runs is ended, and has no exit status then.
    pub fn finish(&mut self, limit: u64) -> Result<CommandOutput> {
        let status = if let Ok(Some(status)) = self.child.try_wait() {
            status
        } else {
            let _ = self.child.kill();
            self.child.wait().map_err(doing("ending a command"))?
        };
        let status = if status.signal().is_some() { None } else { status.code() };
        Ok(CommandOutput {
            status,
            output: text(&mut self.output, limit)?,
            complaints: text(&mut self.complaints, limit)?,
        })
    }
}

/// A file in memory from its beginning, as text; bytes that are none become signs of that.
fn text(file: &mut File, limit: u64) -> Result<String> {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.take(limit + 1).read_to_end(&mut bytes));
    read.map_err(doing("reading the output of a command"))?;
    if limit < bytes.len() as u64 {
        return Err(Error::Busy(format!("a command wrote more than {limit} bytes")));
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|err| String::from_utf8_lossy(err.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, within: Duration) -> Result<CommandOutput> {
        run(Path::new("/bin/sh"), &["-c".to_owned(), script.to_owned()], &CommandContext::default(), within, 1000)
    }

    #[test]
    fn what_it_says_and_how_it_ended() {
        let ran = shell("echo $LC_ALL $HOME; echo no >&2; exit 3", Duration::from_mins(1)).unwrap();
        assert_eq!((ran.status, ran.output.as_str(), ran.complaints.as_str()), (Some(3), "C\n", "no\n"));
        let ran = shell("printf '\\377x'; kill -9 $$", Duration::from_mins(1)).unwrap();
        assert_eq!((ran.status, ran.output.as_str()), (None, "\u{fffd}x"));
        assert!(shell("head -c 2000 /dev/zero", Duration::from_mins(1)).is_err(), "a flood");
        let begun = Instant::now();
        assert!(shell("exec yes", Duration::from_mins(1)).is_err(), "a flood without an end");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn one_that_hangs_is_ended_also_with_a_child_that_stays() {
        let begun = Instant::now();
        let ran = shell("echo begun; (exec sleep 30) & sleep 600", Duration::from_millis(300)).unwrap();
        assert_eq!((ran.status, ran.output.as_str()), (None, "begun\n"));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
