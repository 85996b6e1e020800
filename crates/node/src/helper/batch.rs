//! The verb `batch`: an order to the site's batch system, given as a user. A child becomes the
//! user for good and only then turns into plain `sbatch` or `scancel`, which ask for nothing
//! but what the user may have. A controller can take long to answer, and the helper waits for
//! nobody: whoever asks again hears how the first order went, and none is given twice.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use nix::unistd::alarm;
use rustix::{
    fs::OFlags,
    process::{Pid, Signal, getppid, set_parent_process_death_signal},
};
use serde::{Deserialize, Serialize};

use super::{
    Config, Error, Result,
    command::{self, CommandContext, Running},
    doing,
    identity::Identity,
    launch::{make_own_run_directory, make_run_directory},
    privilege_mode::PrivilegeMode,
    trampoline::memory_file,
};
use lyceum_model::SessionId;
use lyceum_wire::protocol::{BatchEnd, BatchOrder, CommandOutput, MAX_MESSAGE, files};

use crate::inherited;

/// The batch system's commands, decided at the start and never by a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tools {
    pub sbatch: PathBuf,
    pub scancel: PathBuf,
    /// Slurm's configuration, where it is not in its usual place.
    pub conf: Option<PathBuf>,
}

/// How long a command may take: longer than Slurm's own patience with its controller.
const TIMEOUT: Duration = Duration::from_secs(TIMEOUT_SECONDS as u64);
const TIMEOUT_SECONDS: u32 = 25;

/// How long the helper waits for it; others wait meanwhile.
const INITIAL_WAIT: Duration = Duration::from_millis(50);

/// How many may be under way for one account, and in all.
const MAX_PER_ACCOUNT: usize = 16;
const MAX_RUNNING: usize = 64;

/// The most that is taken of what a command says (bytes).
const MAX_OUTPUT: u64 = 16 * 1024;

/// Options and script of a submission are ours and short.
const MAX_OPTIONS: usize = 64;
const MAX_OPTION: usize = 4096;

/// The orders that are under way.
#[derive(Debug, Default)]
pub(super) struct Orders(Vec<RunningCommand>);

#[derive(Debug)]
struct RunningCommand {
    session: SessionId,
    uid: u32,
    /// `None`: a submission.
    cancels: Option<(u32, BatchEnd)>,
    running: Running,
    deadline: Instant,
}

/// What the child is told.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// `None`: stay who we are.
    identity: Option<Identity>,
    /// What to leave before the command runs.
    leave: Option<Leave>,
    program: PathBuf,
    arguments: Vec<String>,
    conf: Option<PathBuf>,
    script: String,
    /// The process that waits for us; without it there is nothing to do.
    parent: i32,
}

/// The launch that the agent will read, in the run directory.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Leave {
    run_directory: PathBuf,
    /// The directory is the child's to make.
    make: bool,
    agent: serde_json::Value,
}

impl Orders {
    /// What came of an order; `None` while nobody knows.
    pub fn run(
        &mut self,
        config: &Config,
        way: &PrivilegeMode,
        identity: &Identity,
        session: SessionId,
        order: BatchOrder,
    ) -> Result<Option<CommandOutput>> {
        let tools = config
            .batch
            .as_ref()
            .ok_or_else(|| Error::Refused("this portal was not started with a batch system".to_owned()))?;
        let cancels = match &order {
            BatchOrder::Submit { .. } => None,
            BatchOrder::Cancel { job, end } => Some((*job, *end)),
        };
        let is_it =
            |known: &RunningCommand| known.session == session && known.uid == identity.uid && known.cancels == cancels;
        let at = if let Some(at) = self.0.iter().position(is_it) {
            at
        } else {
            let own = self.0.iter().filter(|known| known.uid == identity.uid).count();
            if own >= MAX_PER_ACCOUNT || self.0.len() >= MAX_RUNNING {
                return Err(Error::Busy("too many commands are already waiting for the batch system".to_owned()));
            }
            let running = start(config, tools, (way, identity), session, order)?;
            let (uid, deadline) = (identity.uid, Instant::now() + TIMEOUT);
            self.0.push(RunningCommand { session, uid, cancels, running, deadline });
            self.0.len() - 1
        };
        let known = &mut self.0[at];
        let is_over = known.deadline <= Instant::now();
        if known.running.wait(INITIAL_WAIT) || is_over && known.running.kill() {
            return self.0.swap_remove(at).running.finish(MAX_OUTPUT).map(Some);
        }
        // One that sudo keeps stays known until it has ended, so that it is not given twice.
        Ok(is_over.then(CommandOutput::default))
    }

    /// Ends what takes too long and nobody has asked about since.
    pub fn reap(&mut self) {
        let long_ago = Instant::now().checked_sub(TIMEOUT);
        self.0.retain_mut(|known| {
            let forgotten = long_ago.is_some_and(|long_ago| known.deadline < long_ago);
            let ended = forgotten && (known.running.wait(Duration::ZERO) || known.running.kill());
            if ended {
                // What it says is for nobody.
                let _ = known.running.finish(MAX_OUTPUT);
            }
            !ended
        });
    }
}

fn start(
    config: &Config,
    tools: &Tools,
    (way, identity): (&PrivilegeMode, &Identity),
    session: SessionId,
    order: BatchOrder,
) -> Result<Running> {
    let (program, arguments, script, leave) = match order {
        BatchOrder::Submit { options, script, agent } => {
            let is_option = |option: &String| {
                option.starts_with("--") && option.len() <= MAX_OPTION && !option.contains(['\0', '\n'])
            };
            if options.len() > MAX_OPTIONS || !options.iter().all(is_option) {
                return Err(Error::Refused("these are not valid submission options".to_owned()));
            }
            let run_directory = config.run.join(session.short());
            if !way.is_sudo() {
                make_run_directory(&run_directory, identity.uid, config.service_gid)?;
            }
            (&tools.sbatch, options, script, Some(Leave { run_directory, make: way.is_sudo(), agent }))
        }
        BatchOrder::Cancel { job, end } => (&tools.scancel, cancel(job, end), String::new(), None),
    };
    let spec = Spec {
        identity: way.target_identity(identity),
        leave,
        program: program.clone(),
        arguments,
        conf: tools.conf.clone(),
        script,
        parent: i32::try_from(std::process::id()).expect("process ids fit 31 bits"),
    };
    let spec =
        serde_json::to_vec(&spec).map_err(|err| Error::Refused(format!("invalid words in a batch command: {err}")))?;
    let mut command = way.command(&config.own_binary, "batch", identity);
    command.stdin(memory_file("batch-input", &[&spec])?);
    command::start(command).map_err(doing("starting a command of the batch system"))
}

/// The words of `scancel`.
fn cancel(job: u32, end: BatchEnd) -> Vec<String> {
    let (options, job): (&[&str], String) = match end {
        // The first process alone, which is the agent: it ends its own tree.
        BatchEnd::Gently => (&["--batch", "--signal=TERM"], job.to_string()),
        BatchEnd::Whole => (&[], job.to_string()),
        BatchEnd::Task(task) => (&[], format!("{job}_{task}")),
        BatchEnd::Waiting => (&["--state=PENDING"], job.to_string()),
    };
    options.iter().map(|option| (*option).to_owned()).chain([job]).collect()
}

/// The child: becomes the user, leaves the launch, and turns into the command. Comes back only
/// when it could not; its status then is one that the commands do not use.
pub fn run() -> ExitCode {
    inherited::begin();
    let failure = match turn_into_command() {
        Ok(failure) => failure.to_string(),
        Err(err) => err.sentence(),
    };
    let _ = io::stderr().write_all(failure.as_bytes());
    ExitCode::from(NOT_RUN)
}

/// The exit status of an order that was not given at all.
pub const NOT_RUN: u8 = 121;

fn turn_into_command() -> Result<io::Error> {
    let spec: Spec = serde_json::from_reader(io::Read::take(io::stdin().lock(), 2 * MAX_MESSAGE as u64))
        .map_err(|err| Error::Refused(format!("invalid batch command: {err}")))?;
    // Slurm gives a job the limits and the niceness of its `sbatch`.
    inherited::restore(0);
    if let Some(identity) = &spec.identity {
        identity.become_for_good()?;
        // A change of user clears it, so it comes after. In a portal without a helper the
        // parent is a thread that comes and goes.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|err| doing("watching the helper")(err.into()))?;
        if getppid().map(Pid::as_raw_pid) != Some(spec.parent) {
            return Err(Error::Busy("the helper has exited".to_owned()));
        }
    }
    let mut script = None;
    if let Some(Leave { run_directory, make, agent }) = &spec.leave {
        if *make {
            make_own_run_directory(run_directory)?;
        }
        let path = run_directory.join(files::LAUNCH);
        leave(&path, agent.to_string().as_bytes()).map_err(doing(format!("writing {}", path.display())))?;
        // Slurm tells of it as the job's command; the agent lays the user's own script out there.
        let path = run_directory.join(files::SCRIPT);
        leave(&path, spec.script.as_bytes()).map_err(doing(format!("writing {}", path.display())))?;
        script = Some(path);
    }
    // It outlives the change into the command. Whoever waits may be gone, or may not be allowed to end us.
    alarm::set(TIMEOUT_SECONDS + 5);
    let surroundings = CommandContext { conf: spec.conf };
    let mut command = Command::new(&spec.program);
    command.args(&spec.arguments).args(script).env_clear().envs(surroundings.environment());
    command.current_dir("/").stdin(Stdio::null());
    let failure = command.exec();
    Ok(io::Error::new(failure.kind(), format!("{} cannot be run: {failure}", spec.program.display())))
}

/// A file of the user's own that nobody else can read; one of an earlier try is exchanged.
fn leave(path: &Path, content: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).expect("flags are small");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(no_follow).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
