//! What the portal, its root helper and the agents say to one another: plain data, JSON on
//! a socket, versioned. A portal speaks `PROTOCOL` and the one before it, because an agent
//! outlives an upgrade of the portal. The sizes of all messages are bounded by their readers.

pub mod container;
pub mod files_agent;
pub mod log;
pub mod node;

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use container::{Container, ImageKernel};
pub use node::NodeSetup;

use lyceum_model::{DeviceAccess, SessionId, Timestamp, gpus::GpuReport, job::Streams, session::Placement};

/// The version this build speaks.
pub const PROTOCOL: u32 = 1;

/// The most a frame between portal and helper, or an agent's answer, may measure (bytes).
pub const MAX_MESSAGE: usize = 256 * 1024;

/// The signal by which a batch system tells an agent to send its program SIGTERM: that one itself asks the agent
/// to end everything.
pub const SIGTERM_FOR_PROGRAM: i32 = 44;

/// Names inside a workload's run directory.
pub mod files {
    /// The agent's own socket: status, events, and the terminal's WebSocket.
    pub const AGENT_SOCKET: &str = "agent.sock";
    /// The app's socket, made by the app.
    pub const APP_SOCKET: &str = "app.sock";
    /// What the app wrote to standard output and error; bounded, the oldest half is dropped: see [`super::log`].
    pub const LOG: &str = "log";
    /// A job's script.
    pub const SCRIPT: &str = "script";
    /// The [`super::AgentLaunch`] of a workload that a batch system starts: the user's, read by
    /// nobody else, and gone once the agent has it.
    pub const LAUNCH: &str = "launch.json";
    /// What a batch system's script wrote before it was the agent.
    pub const BATCH: &str = "batch.log";
    /// What Jupyter finds before all else: `kernels/python3/kernel.json`, by the agent.
    pub const JUPYTER: &str = "jupyter";
    /// The [`super::ExitRecord`], written last, by fsync and rename.
    pub const EXIT: &str = "exit.json";
    /// What a program writes for its owner: a sentence a line. `LYCEUM_NOTES` names it.
    pub const NOTES: &str = "notes";
    /// Where an agent on another node listens: a [`super::node::Listening`].
    pub const ENDPOINT: &str = "endpoint.json";
}

/// A request to the helper. Each verb is checked again on the helper's side.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum HelperRequest {
    /// Starts an agent as a user; answers `Placed`. Asked twice for one session it starts
    /// nothing the second time and answers with the first placement.
    Launch(LaunchRequest),
    /// SIGTERM to the agent, which ends its tree gracefully within `AgentLaunch::grace_seconds`.
    Terminate { session: SessionId },
    /// SIGKILL to everything that belongs to the session.
    Kill { session: SessionId },
    /// Removes the run directory, the cgroups and the placement of a session whose processes
    /// are gone; refuses while any lives.
    Clean { session: SessionId },
    /// Makes (or adopts) the Unix account `ly-NAME`; answers `Account`.
    Account { name: String },
    /// Starts a files agent as a user. Answers `Done`, and with it comes one end of a socket
    /// pair: the agent lives no longer than that end. `launch` is a
    /// [`files_agent::FilesLaunch`], passed on without being looked into.
    Files { unix_name: String, launch: serde_json::Value },
    /// Does something small with a user's files, as the user. Answers `ErrandOutcome`, or `Looking`
    /// while the file system has not answered: ask the same again soon.
    Errand { unix_name: String, errand: Errand },
    /// Gives the batch system an order as a user. Answers `CommandOutput`, or `Looking` while it has not
    /// answered: ask the same again soon, and it is not given a second time.
    Batch { session: SessionId, unix_name: String, order: BatchOrder },
}

/// What a batch system is told, by its own commands run as the user: it is asked for nothing
/// that the user could not ask for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum BatchOrder {
    /// Makes the run directory, leaves `agent` (an [`AgentLaunch`], not looked into) in it as
    /// the user, and hands in `script` with these options, each of which begins with `--`.
    Submit {
        options: Vec<String>,
        script: String,
        agent: serde_json::Value,
    },
    Cancel {
        job: u32,
        end: BatchEnd,
    },
}

/// How a job is told to end, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchEnd {
    /// By SIGTERM to its first process.
    Gently,
    /// As the batch system ends jobs.
    Whole,
    /// One task of an array.
    Task(u32),
    /// What of it has not begun.
    Waiting,
}

/// A command that was run to its end, or to its deadline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutput {
    /// Its exit status; `None` where it was killed, by us because it took too long.
    pub status: Option<i32>,
    /// What it wrote to standard output and to standard error, as far as it is text.
    pub output: String,
    pub complaints: String,
}

/// What is done with somebody's files, as they, between sessions. It reads and removes files
/// and never runs a program: what runs is in a session, where its limits hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "errand", rename_all = "snake_case", deny_unknown_fields)]
pub enum Errand {
    /// What is at a path: answers `ErrandOutcome::Directory`.
    Directory { path: PathBuf },
    /// Whether the folder is a Python environment that holds these packages: answers
    /// `ErrandOutcome::Environment`.
    Environment { path: PathBuf, needs: Vec<String> },
    /// The overlays below the home: answers `ErrandOutcome::Overlays`.
    Overlays,
    /// Empties an overlay: answers `ErrandOutcome::Done`, or `ErrandOutcome::Nothing` where there is none.
    ResetOverlay { name: String },
    /// Removes a run directory that is the user's own: answers `ErrandOutcome::Done`, or `ErrandOutcome::Nothing` while there is more
    /// to do. Only where no root is there to do it.
    RemoveRunDirectory { session: SessionId },
}

/// The outcome of an [`Errand`]. It comes from a process of the user's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum ErrandOutcome {
    Directory {
        directory: Directory,
    },
    Environment {
        environment: OwnEnvironment,
    },
    Overlays {
        overlays: Vec<Overlay>,
    },
    Done,
    Nothing,
    /// It did not succeed; a sentence for the user.
    Failed {
        message: String,
    },
    /// The file system did not answer in time.
    Silent,
}

/// What there is to say of a folder that somebody calls an environment of theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum OwnEnvironment {
    /// As far as its files tell.
    Fine,
    Missing,
    NotADirectory,
    Forbidden,
    /// There is no `bin/python` in it.
    NoPython,
    /// `bin/python` leads to a program that is not there, or may not be run.
    PythonGone {
        leads_to: PathBuf,
    },
    TooOld {
        version: String,
    },
    /// `installer` would bring the package.
    Lacks {
        package: String,
        installer: Installer,
    },
    Silent,
}

/// What installs packages into an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Installer {
    Pip,
    Conda,
    /// It has no pip: whatever made it.
    Uv,
}

/// Somebody's own packages over a shared environment, as they lie at home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// The name of its folder.
    pub name: String,
    /// The environment that it lies over.
    pub environment: String,
    pub python_version: String,
    /// What it takes on the disk; more where `counted` is false and the time was over.
    pub bytes: u64,
    pub counted: bool,
    /// How many packages there are in all.
    pub count: usize,
    /// In alphabetical order; the first hundred.
    pub packages: Vec<Package>,
}

/// An installed package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// The version of the shared environment that it hides.
    pub instead_of: Option<String>,
}

/// What somebody finds at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directory {
    /// It can be entered, and its names can be read where `readable` says so.
    Enterable {
        readable: bool,
    },
    /// There is nothing; `can_be_made` where the directory above lets this user make it.
    Missing {
        can_be_made: bool,
    },
    NotADirectory,
    Forbidden,
    /// The file system did not answer in time, or with an error of its own.
    Silent,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum HelperAnswer {
    Done,
    Placed {
        placement: Placement,
    },
    Account {
        unix_name: String,
    },
    Found {
        found: ErrandOutcome,
    },
    Looking,
    Ran {
        ran: CommandOutput,
    },
    /// `message` is a sentence for people and holds no secrets. `retry` is true where the
    /// same request may work later, false where it never will.
    Failed {
        message: String,
        retry: bool,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchRequest {
    pub session: SessionId,
    pub unix_name: String,
    pub limits: Limits,
    /// Device files that are others', where the machine can close them.
    pub devices: DeviceAccess,
    /// An [`AgentLaunch`], passed to the agent's standard input without being looked into.
    pub agent: serde_json::Value,
}

/// What binds a workload on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub cpus: i64,
    pub memory_bytes: i64,
    pub processes: i64,
}

/// Everything an agent needs to know, as one JSON document. It holds secrets: on this machine
/// it arrives on standard input; on another node in a file that only its user can read, and
/// that the agent removes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentLaunch {
    pub protocol: u32,
    pub session: SessionId,
    pub run_directory: PathBuf,
    /// The only other user whose connections the agent's socket accepts.
    pub portal_uid: u32,
    pub app: AppLaunch,
    pub limits: Limits,
    /// True where no cgroup holds the limits and the agent has to watch and end the tree.
    pub sampled: bool,
    /// The cgroup directories the workload is in, for reading (memory events, usage).
    pub cgroups: Vec<PathBuf>,
    /// From SIGTERM to SIGKILL.
    pub grace_seconds: u64,
    pub home: HomeSetup,
    /// How it is reached, where that is not this machine.
    #[serde(default)]
    pub node: Option<NodeSetup>,
    /// Variables of the agent's own that go to the app: names, and beginnings of names where
    /// they end in `*`. A batch system tells by them what it has given out.
    #[serde(default)]
    pub inherits: Vec<String>,
    /// Where a batch system starts the agent: all that it adds to the environment goes to the app.
    #[serde(default)]
    pub surroundings: Option<SubmitEnvironment>,
    /// How the agent reads the workload's GPUs; `None` where the portal reads them itself.
    #[serde(default)]
    pub gpus: Option<GpuQuery>,
}

/// How an agent reads the GPUs of its workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuQuery {
    /// Seconds between two queries of each GPU.
    pub seconds: u32,
    /// Another driver library than the one that the node's linker finds.
    #[serde(default)]
    pub library: Option<PathBuf>,
}

/// The environment that a batch job was submitted with; what its processes find besides was added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitEnvironment {
    /// The environment of its own command.
    pub given: BTreeMap<String, String>,
    /// Variables that exist only because of the portal's own options: the app does not see them.
    pub hidden: Vec<String>,
}

/// What to run and how to know that it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppLaunch {
    pub program: Program,
    pub environment: BTreeMap<String, String>,
    pub working_directory: PathBuf,
    /// What to ask on the app's socket until it answers as it must; `None` where the agent itself
    /// is the app.
    pub ready: Option<ReadyProbe>,
    /// What terminals run that are opened beside the program, in what it has; `None` where none are.
    #[serde(default)]
    pub beside: Option<Shell>,
    /// How a job's program is started besides.
    #[serde(default)]
    pub start: ProgramStart,
    /// The image that the program and its terminals run in; `None`: they run on the host.
    #[serde(default)]
    pub container: Option<Container>,
    /// Images that a JupyterLab on the host offers as kernels.
    #[serde(default)]
    pub kernels: Vec<ImageKernel>,
}

/// How a job's program is started, beyond its arguments and environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramStart {
    /// Behind a script.
    pub arguments: Vec<String>,
    /// In what the user's login shell makes of the environment.
    pub login_shell: bool,
    pub streams: Streams,
}

/// What a terminal runs. Without arguments it is a login shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shell {
    #[serde(rename = "shell")]
    pub path: String,
    #[serde(default)]
    pub arguments: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A program that listens on [`files::APP_SOCKET`] (or on a port of the loopback).
    Exec { argv: Vec<String> },
    /// A job's script: written as [`files::SCRIPT`], and run by the program that its first line names.
    Script { text: String },
    /// Terminals served by the agent itself: a shell for each.
    Terminal(Shell),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadyProbe {
    pub path: String,
    /// Sent as `Authorization`, where the app wants one.
    pub authorization: Option<String>,
    /// Asked on 127.0.0.1 at this port instead of the socket.
    pub port: Option<u16>,
    pub timeout_seconds: u64,
    /// The answers that mean ready; empty: any status below 500.
    #[serde(default)]
    pub statuses: Vec<u16>,
}

/// What a new user finds at home; what exists already is never touched.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HomeSetup {
    pub home: PathBuf,
    /// A directory whose files are copied to `~/templates` when that does not exist.
    pub templates: Option<PathBuf>,
    /// Storage mounts to link in the home: name of the link, target.
    pub links: Vec<(String, PathBuf)>,
    /// What the person's own code runs in, where that is not the shared environment itself.
    #[serde(default)]
    pub software: Option<Software>,
    /// What is loaded before the app starts.
    #[serde(default)]
    pub modules: Option<Modules>,
}

/// Environment modules to load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modules {
    /// The file that makes `module` known to bash.
    pub init: PathBuf,
    /// In this order.
    pub names: Vec<String>,
}

/// Python that is the person's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Software {
    /// Their packages over a shared environment: laid out on first need.
    Overlay(OverlaySetup),
    /// An environment of theirs, used as it is; these modules must import.
    Own { folder: PathBuf, needs: Vec<String> },
}

/// Where an overlay lies, and over what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlaySetup {
    pub folder: PathBuf,
    /// The environment's name.
    pub environment: String,
    /// `3.11.2`
    pub python_version: String,
    /// The interpreter that the environment stands on.
    pub base: PathBuf,
    /// Where the environment's packages lie, in the order of the search.
    pub libraries: Vec<PathBuf>,
}

/// Where an agent stands; shown, never trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Preparing,
    Starting,
    Ready,
    Ending,
}

/// One line of the agent's event stream (`GET /v1/events`, a JSON object a line): sent at
/// once when the phase changes, and every few seconds with a fresh sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    pub protocol: u32,
    /// Milliseconds since 1970 when this was sent, by the clock of the agent's machine, which may be wrong.
    #[serde(default)]
    pub sent_at: Option<i64>,
    pub phase: Phase,
    /// What it is doing, for the card: “preparing the home directory”, “waiting for the app to respond”.
    #[serde(default)]
    pub step: String,
    #[serde(default)]
    pub sample: Option<Sample>,
    /// The workload's GPUs, where the agent reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuReport>,
    /// Milliseconds since 1970 of the last input or output of a terminal, by the same clock.
    #[serde(default)]
    pub terminal_activity: Option<i64>,
    /// How many terminals are open.
    #[serde(default)]
    pub terminals: u32,
    /// What its owner should know: sentences.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What its program wrote into [`files::NOTES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program_notes: Vec<String>,
}

/// What the workload uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub memory_bytes: i64,
    /// Cores busy on average since the sample before.
    pub cpus: f64,
    pub processes: i64,
}

/// Written by the agent as its last act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    pub cause: ExitCause,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub ended_at_ms: i64,
    /// A sentence for people.
    #[serde(default)]
    pub detail: String,
}

impl ExitRecord {
    pub fn ended_at(&self) -> Timestamp {
        Timestamp(self.ended_at_ms)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    /// The app ended by itself, with `exit_code` or `signal`.
    App,
    /// The agent was asked to end (SIGTERM).
    Asked,
    /// The tree used more memory than it may.
    OutOfMemory,
    /// The app could not be started, or never answered.
    LaunchFailed,
}
