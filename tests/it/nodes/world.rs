//! What these tests stand on: a portal, and agents of another user's that it can reach by TLS
//! alone. Everything goes away at the end of each test.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    net::SocketAddr,
    os::unix::{
        fs::{OpenOptionsExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use lyceum::{
    apps,
    dial::{Endpoint, dial},
    model::{
        SessionId,
        session::{Link, Placement, Transport},
    },
    nodes::{self, Nodes},
    protocol::{
        AgentLaunch, AppLaunch, HomeSetup, Limits, NodeSetup, PROTOCOL, Program, ReadyProbe, Shell, files, node::Door,
    },
    web::gateway,
};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    gateway::world::World,
    wait::{eventually, until},
};

/// Whose sessions these are, and who else is on the node.
pub const OWNER: u32 = 64_991;
pub const NEIGHBOUR: u32 = 64_992;

/// The node's address.
pub const NODE: &str = "127.0.0.5";

pub const TRANSPORTS: [Transport; 3] = [Transport::EndpointFile, Transport::Listen, Transport::DialBack];

/// A portal, and where agents call it.
pub struct Stage {
    pub world: World,
    /// As a portal with this transport starts agents.
    pub nodes: Arc<Nodes>,
    pub calls: SocketAddr,
    serving: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Stage {
    pub async fn new(transport: Transport) -> Self {
        let world = World::new().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let calls = listener.local_addr().unwrap();
        let nodes = Nodes::new(config(transport, calls), b"nodes");
        let mut stage = Self { world, nodes, calls, serving: None };
        stage.serve(listener);
        stage
    }

    fn serve(&mut self, listener: TcpListener) {
        let portal = self.world.portal.portal.clone();
        let stopping = CancellationToken::new();
        let serving = portal.gateway.nodes.clone().serve(listener, gateway::expected(portal), stopping.clone());
        self.serving = Some((stopping, tokio::spawn(serving)));
    }

    /// The portal goes and comes back; of agents it has forgotten everything.
    pub async fn restart_calls(&mut self, session: SessionId) {
        let (stopping, served) = self.serving.take().unwrap();
        stopping.cancel();
        served.await.unwrap();
        self.world.portal.portal.gateway.forget(session);
        let listener = TcpListener::bind(self.calls).await.unwrap();
        self.serve(listener);
    }

    /// A running session of `name`'s with an app of this kind, its agent ready.
    pub async fn session(&self, name: &str, kind: &str) -> Agent {
        let owner = self.world.user(name).await;
        let session = self.world.queued(kind, owner).await;
        let agent = Agent::start(session, kind, &self.nodes);
        self.world.run_at(session, &agent.placement).await;
        let endpoint = self.endpoint(&agent, if kind == "terminal" { Door::Agent } else { Door::App });
        // A session runs when its agent has said so over this very way.
        eventually("the agent is reached", async || dial(&endpoint, OWNER).await.ok()).await;
        agent
    }

    /// The same door that the portal's proxy goes through.
    pub fn endpoint(&self, agent: &Agent, door: Door) -> Endpoint {
        Endpoint::of(&self.world.portal.portal.gateway.nodes, agent.session, &agent.placement, door)
    }
}

pub fn config(transport: Transport, calls: SocketAddr) -> nodes::Config {
    nodes::Config {
        transport,
        agent_listen: NODE.parse().unwrap(),
        portal_address: calls.to_string(),
        ..nodes::Config::default()
    }
}

/// A real agent of another user's; ended, with all it started, with the value.
pub struct Agent {
    pub process: Child,
    pub session: SessionId,
    pub placement: Placement,
    pub run: PathBuf,
    _base: TempDir,
}

impl Agent {
    /// One of the portal's.
    pub fn start(session: SessionId, kind: &str, nodes: &Nodes) -> Self {
        Self::with(session, kind, nodes.setup(session, 1), nodes.link(1, NODE))
    }

    /// Starts one as a batch script would, and waits until its app listens.
    pub fn with(session: SessionId, kind: &str, setup: NodeSetup, link: Link) -> Self {
        let base = tempfile::Builder::new().prefix("ly-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o711)).unwrap();
        fs::write(base.path().join("app.py"), include_str!("app.py")).unwrap();
        let run = base.path().join(session.short());
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&run, Some(OWNER), Some(OWNER)).unwrap();
        let launch = AgentLaunch {
            protocol: PROTOCOL,
            session,
            run_directory: run.clone(),
            portal_uid: 0,
            app: app(session, kind, &base, &run.join(files::APP_SOCKET)),
            limits: Limits { cpus: 1, memory_bytes: 1 << 30, processes: 500 },
            sampled: false,
            cgroups: Vec::new(),
            grace_seconds: 5,
            home: HomeSetup { home: run.clone(), ..HomeSetup::default() },
            node: Some(setup),
            inherits: Vec::new(),
            surroundings: None,
            gpus: None,
        };
        let file = run.join(files::LAUNCH);
        write_own(&file, &serde_json::to_vec(&launch).unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(["agent".as_ref(), "--launch".as_ref(), file.as_os_str()]).env_clear().current_dir("/");
        let process = command.uid(OWNER).gid(OWNER).stdin(Stdio::null()).spawn().unwrap();
        let placement = Placement {
            // Of a machine that nobody can ask.
            node: "elsewhere".to_owned(),
            pid: 1,
            start_ticks: 1,
            boot_id: "another".to_owned(),
            uid: OWNER,
            unix_name: "somebody".to_owned(),
            run_directory: run.to_str().unwrap().to_owned(),
            limits: "sampled".to_owned(),
            link: Some(link),
        };
        let socket = run.join(if kind == "terminal" { files::AGENT_SOCKET } else { files::APP_SOCKET });
        until("the app listens", || socket.exists());
        assert!(!file.exists(), "what holds secrets is gone");
        Self { process, session, placement, run, _base: base }
    }

    /// What its app was asked so far.
    pub fn requests(&self) -> String {
        fs::read_to_string(self.run.join("requests")).unwrap_or_default()
    }

    /// A file of its user's in the run directory.
    pub fn write(&self, name: &str, content: &str) {
        let path = self.run.join(name);
        let _ = fs::remove_file(&path);
        write_own(&path, content.as_bytes());
    }

    /// The port on which it says that it listens.
    pub async fn port(&self) -> u16 {
        let file = self.run.join(files::ENDPOINT);
        let text = eventually("the endpoint file", async || fs::read(&file).ok()).await;
        u16::try_from(serde_json::from_slice::<serde_json::Value>(&text).unwrap()["port"].as_u64().unwrap()).unwrap()
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The app dies with its agent.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn app(session: SessionId, kind: &str, base: &TempDir, socket: &std::path::Path) -> AppLaunch {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let script = base.path().join("app.py");
    let (program, ready) = if kind == "terminal" {
        (Program::Terminal(Shell { path: "/bin/sh".to_owned(), arguments: Vec::new() }), None)
    } else {
        let argv = words(&["/usr/bin/python3", script.to_str().unwrap(), socket.to_str().unwrap()]);
        let path = apps::base_url(session);
        (
            Program::Exec { argv },
            Some(ReadyProbe { path, authorization: None, port: None, timeout_seconds: 120, statuses: Vec::new() }),
        )
    };
    let environment = BTreeMap::from(
        [("PATH", "/usr/bin:/bin"), ("PS1", "node$ ")].map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    AppLaunch {
        program,
        environment,
        working_directory: "/tmp".into(),
        ready,
        beside: None,
        start: lyceum::protocol::ProgramStart::default(),
        container: None,
        kernels: Vec::new(),
    }
}

/// A file of the owner's that nobody else can read.
fn write_own(path: &std::path::Path, content: &[u8]) {
    let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path).unwrap();
    file.write_all(content).unwrap();
    chown(path, Some(OWNER), Some(OWNER)).unwrap();
}
