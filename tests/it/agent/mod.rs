//! `lyceum agent`, the real program, with real apps: shells, Python, `/bin/sh` scripts.

mod containers;
mod ending;
mod modules;
mod starting;
mod terminals;

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use http_body_util::{BodyExt, Empty};
use hyper::{Request, StatusCode, body::Bytes};
use hyper_util::rt::TokioIo;
use lyceum::{
    apps::{self, App, Catalogue, Context},
    model::{Resources, SessionId},
    protocol::{
        AgentLaunch, AgentStatus, AppLaunch, Container, ExitRecord, HomeSetup, ImageKernel, Limits, PROTOCOL, Program,
        Shell, files,
    },
    scheduler::Person,
};
use tokio::net::UnixStream;

use crate::wait::{PATIENCE, eventually};

/// A run directory, a home, and what is to be started in them.
struct Given {
    run: tempfile::TempDir,
    home: tempfile::TempDir,
    launch: AgentLaunch,
}

impl Given {
    /// A terminal with a plain shell.
    fn terminal() -> Self {
        let mut given = Self::new(Catalogue::default().find("terminal").expect("built in"));
        // The file that bash would read instead of its own is not there.
        if let Program::Terminal(Shell { arguments, .. }) = &mut given.launch.app.program {
            arguments.clear();
        }
        given
    }

    /// An app of the configuration that is not asked whether it answers.
    fn app(command: &[&str]) -> Self {
        let mut given = Self::new(&site_app(command));
        given.launch.app.ready = None;
        given
    }

    fn script(script: &str) -> Self {
        Self::app(&["/bin/sh", "-c", script])
    }

    fn new(app: &App) -> Self {
        Self::with(app, Known::default())
    }

    /// An app of which more is known.
    fn with(app: &App, known: Known<'_>) -> Self {
        let run = tempfile::Builder::new().prefix("ly-run-").tempdir().unwrap();
        let home = tempfile::Builder::new().prefix("ly-home-").tempdir().unwrap();
        let session = SessionId::new();
        let app = launch(app, session, run.path(), home.path(), known);
        let launch = AgentLaunch {
            protocol: PROTOCOL,
            session,
            run_directory: run.path().to_owned(),
            portal_uid: rustix::process::getuid().as_raw(),
            app,
            limits: Limits { cpus: 2, memory_bytes: 4 << 30, processes: 500 },
            sampled: false,
            cgroups: Vec::new(),
            grace_seconds: 5,
            home: HomeSetup { home: home.path().to_owned(), ..HomeSetup::default() },
            node: None,
            inherits: Vec::new(),
            surroundings: None,
            gpus: None,
        };
        Self { run, home, launch }
    }

    fn start(self) -> Agent {
        let program = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        self.start_as(program)
    }

    /// Starts the agent through `program`, which ends with the agent's own path.
    fn start_as(self, mut program: Command) -> Agent {
        let mut process = program.arg("agent").stdin(Stdio::piped()).spawn().unwrap();
        let mut input = process.stdin.take().expect("it is piped");
        input.write_all(&serde_json::to_vec(&self.launch).unwrap()).unwrap();
        Agent { process, given: self }
    }
}

fn site_app(command: &[&str]) -> App {
    let text = format!("name = \"test\"\ncommand = {}", serde_json::to_string(command).unwrap());
    App::from(toml::from_str::<apps::SiteApp>(&text).unwrap())
}

/// What an app may be started with besides.
#[derive(Clone, Copy, Default)]
struct Known<'a> {
    python: Option<&'a apps::Python>,
    /// Where the portal has put its files for apps.
    wrapper: Option<&'a Path>,
    container: Option<&'a Container>,
    kernels: &'a [ImageKernel],
    token: &'a str,
}

fn launch(app: &App, session: SessionId, run: &Path, home: &Path, known: Known<'_>) -> AppLaunch {
    let person = Person {
        unix_name: "ada".to_owned(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        home: home.to_owned(),
        shell: "/bin/bash".to_owned(),
    };
    let context = Context {
        session,
        base_url: &apps::base_url(session),
        person: &person,
        run_directory: run,
        python: known.python,
        working_directory: home,
        log_directory: None,
        log_directories: &BTreeMap::new(),
        tensorboard_wrapper: known.wrapper.unwrap_or(Path::new("/nowhere")),
        trainer: Path::new("/nowhere"),
        resources: &Resources::default(),
        gpus: &[],
        gpu_driver: false,
        token: known.token,
        port: None,
        batch: None,
        container: known.container,
        kernels: known.kernels,
        extra: &BTreeMap::new(),
    };
    apps::launch(app, &context).unwrap()
}

/// A running agent; ended, with all it started, when the test is over.
struct Agent {
    process: Child,
    given: Given,
}

impl Agent {
    fn file(&self, name: &str) -> PathBuf {
        self.given.run.path().join(name)
    }

    fn home(&self, name: &str) -> PathBuf {
        self.given.home.path().join(name)
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.file(files::LOG)).unwrap_or_default()).into_owned()
    }

    fn base(&self) -> String {
        apps::base_url(self.given.launch.session)
    }

    fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.process)
    }

    fn terminate(&self) {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM).unwrap();
    }

    async fn exited(&mut self) -> ExitRecord {
        let exit = eventually("the agent's end", async || self.process.try_wait().unwrap()).await;
        assert!(exit.success(), "{exit}");
        serde_json::from_slice(&fs::read(self.file(files::EXIT)).unwrap()).unwrap()
    }

    async fn connect(&self) -> UnixStream {
        let path = self.file(files::AGENT_SOCKET);
        eventually("the agent's socket", async || UnixStream::connect(&path).await.ok()).await
    }

    async fn ask(&self, method: &str, path: &str) -> (StatusCode, Bytes) {
        let answer = self.open(method, path).await;
        (answer.status(), answer.into_body().collect().await.unwrap().to_bytes())
    }

    async fn open(&self, method: &str, path: &str) -> hyper::Response<hyper::body::Incoming> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(self.connect().await)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
    }

    async fn status(&self) -> AgentStatus {
        serde_json::from_slice(&self.ask("GET", "/v1/status").await.1).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The app dies with the agent; what escaped it carries the session's id.
        let _ = self.process.kill();
        let _ = self.process.wait();
        for pid in carriers(self.given.launch.session) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Living processes that were started with this session's id.
fn carriers(session: SessionId) -> Vec<rustix::process::Pid> {
    let tag = format!("LYCEUM_SESSION={session}");
    let carries = |directory: &Path| {
        fs::read(directory.join("environ")).is_ok_and(|text| text.split(|byte| *byte == 0).any(|v| v == tag.as_bytes()))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter(|directory| carries(directory))
        .filter_map(|directory| rustix::process::Pid::from_raw(directory.file_name()?.to_str()?.parse().ok()?))
        .collect()
}

/// Whether a process is there and no zombie.
fn lives(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
}

fn numbers(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}
