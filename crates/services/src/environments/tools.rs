//! Runs the programs that build an environment: with a cleared environment, under a umask
//! that lets everybody read the result, their lines into the log, and never for longer than
//! the builder lives.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use super::failure::redact;

/// A tool that says nothing for so long is ended.
const SILENCE_TIMEOUT: Duration = Duration::from_hours(1);

/// How many of a tool's last lines are kept to explain a failure.
const KEPT_LINES: usize = 200;

/// One umask and one stream for all tools, and no part in what keeps the portal from being ended
/// when memory is short; the arguments stay a vector.
const WRAPPER: &str = "umask 022; { echo 0 >/proc/self/oom_score_adj; } 2>/dev/null; exec \"$@\" 2>&1";

/// How the tools are run.
pub struct Tools {
    /// The variables that tools see, beside those of a single call.
    pub environment: Vec<(OsString, OsString)>,
    pub working_directory: PathBuf,
    log: File,
    /// Standard input of every tool: an empty file by which the next builder knows them.
    leash: PathBuf,
}

/// A tool that ended otherwise than with status 0.
#[derive(Debug)]
pub enum ToolFailure {
    /// It could not be started or listened to.
    Io(io::Error),
    /// Its last lines, without passwords, and how it ended.
    Ended(Vec<String>, ExitStatus),
    /// Nothing was heard for an hour.
    Silent,
}

impl Tools {
    /// Starts a new log.
    pub fn new(log: &Path, leash: &Path, working_directory: &Path) -> io::Result<Self> {
        let open = |path: &Path| {
            fs::OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(true)
                .mode(0o640)
                .custom_flags(NO_FOLLOW)
                .open(path)
        };
        open(leash)?;
        Ok(Self {
            environment: Vec::new(),
            working_directory: working_directory.to_owned(),
            log: open(log)?,
            leash: leash.to_owned(),
        })
    }

    /// Runs a tool to its end. Dropping the future ends the tool with all it started.
    pub async fn run<S: AsRef<OsStr>>(
        &self,
        arguments: &[S],
        environment: &[(&str, &OsStr)],
        mut on_line: impl FnMut(&str) + Send,
    ) -> Result<Vec<String>, ToolFailure> {
        let shown: Vec<_> = arguments.iter().map(|argument| argument.as_ref().to_string_lossy()).collect();
        self.note(&format!("$ {}", shown.join(" ")));
        let mut child = self
            .command(arguments)
            .map_err(ToolFailure::Io)?
            .envs(environment.iter().copied())
            .spawn()
            .map_err(ToolFailure::Io)?;
        let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
        let output = child.stdout.take().expect("standard output is piped");
        let mut lines = BufReader::new(output).split(b'\n');
        let mut last = VecDeque::new();
        loop {
            let line = match tokio::time::timeout(SILENCE_TIMEOUT, lines.next_segment()).await {
                Err(_) => return Err(ToolFailure::Silent),
                Ok(line) => line.map_err(ToolFailure::Io)?,
            };
            let Some(line) = line else { break };
            let line = redact(String::from_utf8_lossy(&line).trim_end());
            // One line for each of ten thousand files would bury what matters.
            if !line.starts_with("Compiling '") && !line.starts_with("Listing '") {
                self.note(&line);
            }
            on_line(&line);
            if last.len() == KEPT_LINES {
                last.pop_front();
            }
            last.push_back(line);
        }
        let status = child.wait().await.map_err(ToolFailure::Io)?;
        group.ended();
        let last = last.into();
        if status.success() { Ok(last) } else { Err(ToolFailure::Ended(last, status)) }
    }

    /// Runs a tool whose answer may hold a password: it goes neither into the log nor
    /// through [`redact`]. Empty where the tool has nothing to say or fails.
    pub async fn ask<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Vec<String> {
        let Ok(mut command) = self.command(arguments) else { return Vec::new() };
        let output = tokio::time::timeout(Duration::from_secs(30), command.kill_on_drop(true).output()).await;
        match output {
            Ok(Ok(output)) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> io::Result<Command> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", WRAPPER, "sh"])
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.working_directory)
            .stdin(File::open(&self.leash)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        Ok(command)
    }

    /// Adds a line to the log. A full disk is told by the tool itself, not by its log.
    pub fn note(&self, line: &str) {
        _ = writeln!(&self.log, "{line}");
    }
}

/// Ends what a builder that is gone left running: every process of ours whose standard input
/// is `leash`. Only the holder of the builders' lock may call this.
pub async fn end_leftovers(leash: &Path) -> io::Result<()> {
    let Ok(leash) = leash.canonicalize() else { return Ok(()) };
    for _ in 0..100 {
        let held: Vec<Pid> = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|id| fs::read_link(format!("/proc/{id}/fd/0")).is_ok_and(|input| input == leash))
            .filter_map(Pid::from_raw)
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        for pid in held {
            // It may have ended meanwhile.
            _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(io::Error::other("the tools of an earlier build do not end"))
}

/// Kills a process group when it is dropped before the tool ended.
struct Group(Option<Pid>);

impl Group {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

/// A service that several users can write beside must not be led elsewhere by a link.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
