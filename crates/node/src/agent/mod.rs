//! `lyceum agent`: runs inside a workload, as its user, for as long as it lives. It reads one
//! [`AgentLaunch`] from standard input or a file, lets go of whoever started it, starts the app,
//! watches it, answers on `agent.sock`, and writes the [`ExitRecord`] as its last act.
//! Start reading at `life`, which is the whole story; every other file is one chapter.
//!
//! Everything runs on one thread, because the kernel sends a parent-death signal when the
//! *thread* that forked ends: so the app lives exactly as long as the agent.

mod child;
mod curves;
pub mod files;
mod gpus;
mod home;
mod inherit;
mod inside;
mod life;
mod limits;
mod log;
mod log_directory;
mod login_environment;
mod login_shell;
mod modules;
mod node;
mod notes;
mod own_program;
mod probe;
mod record;
mod replay;
mod script;
mod server;
mod signals;
mod software;
mod status;
mod steps;
mod streams;
mod terminal;
mod terminals;
mod tree;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
    process::ExitCode,
};

pub use child::exec;
pub use gpus::{GpuReader, OpenGpuReader};
pub use home::try_home;

use rustix::fs::{Mode, OFlags};

use lyceum_wire::protocol::{AgentLaunch, ExitCause, ExitRecord, PROTOCOL};

use crate::inherited;

/// The most that a launch may measure, in bytes.
const MAX_LAUNCH: u64 = 1024 * 1024;

/// Lives the whole life of a workload; `arguments` are none, or `--launch FILE`, and `variables`
/// what this process was started with; `gpus` opens the GPUs. The exit status says only whether the exit record could
/// be written: 0 if so, else 1; 2 where the launch could not even be understood.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    gpus: OpenGpuReader,
) -> ExitCode {
    inherited::begin();
    let launch = match find_launch(arguments) {
        Ok(mut launch) => {
            inherit::hand_on(&mut launch, variables);
            launch
        }
        Err(message) => {
            eprintln!("lyceum agent: {message}");
            return ExitCode::from(2);
        }
    };
    let record = match detach() {
        Ok(runtime) => {
            let record = runtime.block_on(life::live(&launch, gpus));
            // A thread may hang on a home directory for ever: nobody waits for it.
            runtime.shutdown_background();
            record
        }
        Err(source) => record::now(ExitCause::LaunchFailed, format!("the agent could not detach itself: {source}")),
    };
    finish(&launch.run_directory, &record)
}

fn finish(run_directory: &Path, record: &ExitRecord) -> ExitCode {
    match record::write(run_directory, record) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn find_launch(arguments: impl IntoIterator<Item = OsString>) -> Result<AgentLaunch, String> {
    let mut arguments = arguments.into_iter();
    match (arguments.next(), arguments.next(), arguments.next()) {
        (None, ..) => read_launch(io::stdin().lock(), "standard input"),
        (Some(word), Some(file), None) if word == "--launch" => {
            let path = Path::new(&file);
            let opened = open_launch(path);
            // Whatever it is: what is in it is for nobody else.
            let _ = std::fs::remove_file(path);
            let opened = opened.map_err(|source| format!("{} cannot be used: {source}", path.display()))?;
            read_launch(opened, &path.display().to_string())
        }
        _ => Err("the only argument is `--launch FILE`".to_owned()),
    }
}

/// A launch holds secrets: it must be our own file, and nobody else may have read it.
fn open_launch(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    let own = rustix::process::getuid().as_raw();
    if found.is_file() && found.uid() == own && (found.mode() | 0o700) & 0o777 == 0o700 {
        Ok(file)
    } else {
        Err(io::Error::other("it must be a file that belongs to the user and that no other user can open"))
    }
}

fn read_launch(from: impl Read, name: &str) -> Result<AgentLaunch, String> {
    let mut text = Vec::new();
    from.take(MAX_LAUNCH + 1).read_to_end(&mut text).map_err(|source| format!("{name} cannot be read: {source}"))?;
    if text.len() as u64 > MAX_LAUNCH {
        return Err(format!("the launch is larger than {MAX_LAUNCH} bytes"));
    }
    let launch: AgentLaunch =
        serde_json::from_slice(&text).map_err(|source| format!("{name} does not contain a valid launch: {source}"))?;
    if ![PROTOCOL, PROTOCOL - 1].contains(&launch.protocol) {
        return Err(format!("the portal uses protocol {}, this agent {PROTOCOL}", launch.protocol));
    }
    if !launch.run_directory.is_absolute() || !launch.run_directory.is_dir() {
        return Err(format!("the run directory {} does not exist", launch.run_directory.display()));
    }
    Ok(launch)
}

/// A session of its own, no descriptor that leads to the portal, and every orphan below
/// becomes our child instead of init's.
fn detach() -> io::Result<tokio::runtime::Runtime> {
    // Fails for the leader of a process group, which whoever starts us may have made us; a
    // session leader needs no new session.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
