//! The portal's side of agents on other nodes: what an agent is told at its launch, and how
//! a connection to it is opened. The host comes from the scheduler, the key from our own
//! secret; from the agent comes a port number, and whoever answers there without the key gets
//! nothing. Whether a workload lives is the scheduler's to say, never this module's.

mod calls;
mod config;
mod keys;
pub mod tls;

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{net::TcpStream, time::timeout};
use tokio_util::sync::CancellationToken;

use self::calls::Calls;
pub use self::{
    calls::Expects,
    config::{Config, Ports},
    keys::{Identity, PublicKey, Seed},
};
use lyceum_model::{
    SessionId,
    session::{Link, Transport},
};

use crate::{
    protocol::{
        NodeSetup, files,
        node::{APP_UNAVAILABLE, CallDirection, Door, Listening, OPEN},
    },
    run_directory,
};

/// The most that is read of an endpoint file (bytes).
const MAX_ENDPOINT_FILE: u64 = 4096;

/// How long a shared file system may take to give an endpoint file.
const FILE_TIMEOUT: Duration = Duration::from_secs(4);

/// All agents on other nodes, as the portal sees them.
#[derive(Debug)]
pub struct Nodes {
    config: Config,
    key: Vec<u8>,
    own: Identity,
    /// Where agents listened when they were last reached.
    ports: Mutex<HashMap<SessionId, (u32, u16)>>,
    calls: Calls,
}

/// One door of one workload on another node.
#[derive(Clone, Debug)]
pub struct NodeEndpoint {
    nodes: Arc<Nodes>,
    session: SessionId,
    link: Link,
    run_directory: PathBuf,
    uid: u32,
    door: Door,
}

impl Nodes {
    /// `key` is this purpose's own.
    pub fn new(config: Config, key: &[u8]) -> Arc<Self> {
        Arc::new(Self {
            config,
            key: key.to_vec(),
            own: Identity::of(&keys::portal(key)),
            ports: Mutex::default(),
            calls: Calls::default(),
        })
    }

    /// What the agent of this start of a workload is told. It holds the agent's secret.
    pub fn setup(&self, session: SessionId, attempt: u32) -> NodeSetup {
        let Config { transport, agent_listen, ports, portal_address, .. } = &self.config;
        let portal = portal_address.clone();
        let way = match transport {
            Transport::EndpointFile => {
                CallDirection::Listen { address: *agent_listen, ports: ports.bounds(), tell: None }
            }
            Transport::Listen => {
                CallDirection::Listen { address: *agent_listen, ports: ports.bounds(), tell: Some(portal) }
            }
            Transport::DialBack => CallDirection::DialBack { portal },
        };
        let key = hex::encode(keys::agent(&self.key, session, attempt));
        NodeSetup { attempt, key, portal: self.own.public().to_hex(), way }
    }

    /// How such a start is reached: `host` is the scheduler's word, empty until it has one.
    pub fn link(&self, attempt: u32, host: impl Into<String>) -> Link {
        Link { attempt, host: host.into(), transport: self.config.transport }
    }

    /// A door of a workload whose agent runs as `uid` and whose files lie in `run_directory`.
    pub fn endpoint(
        self: &Arc<Self>,
        session: SessionId,
        link: &Link,
        run_directory: &Path,
        uid: u32,
        door: Door,
    ) -> NodeEndpoint {
        let run_directory = run_directory.to_owned();
        NodeEndpoint { nodes: self.clone(), session, link: link.clone(), run_directory, uid, door }
    }

    /// A workload has ended: nothing of it may be reached any more.
    pub fn forget(&self, session: SessionId) {
        self.ports.lock().remove(&session);
        self.calls.forget(session);
    }

    /// Where agents call, if they are to.
    pub fn portal_listen(&self) -> Option<std::net::SocketAddr> {
        self.config.portal_listen()
    }

    /// Takes the calls of agents until `stopping`; `expects` says whose are wanted.
    pub async fn serve(
        self: Arc<Self>,
        listener: tokio::net::TcpListener,
        expects: Expects,
        stopping: CancellationToken,
    ) {
        calls::serve(self, listener, expects, stopping).await;
    }

    fn agent_key(&self, session: SessionId, attempt: u32) -> PublicKey {
        Identity::of(&keys::agent(&self.key, session, attempt)).public().clone()
    }
}

impl NodeEndpoint {
    /// A connection to this door. Give it a time limit.
    pub async fn open(&self) -> Result<tls::Stream> {
        if self.link.transport == Transport::DialBack {
            return self.open_waiting().await;
        }
        if self.link.host.is_empty() {
            return Err(Error::NotPlaced);
        }
        let port = self.port().await?;
        let opened = self.connect(port).await;
        match &opened {
            Ok(_) | Err(Error::Away) => {
                self.nodes.ports.lock().insert(self.session, (self.link.attempt, port));
            }
            // It may listen elsewhere by now.
            Err(_) => _ = self.nodes.ports.lock().remove(&self.session),
        }
        opened
    }

    async fn connect(&self, port: u16) -> Result<tls::Stream> {
        let stream = TcpStream::connect((self.link.host.as_str(), port)).await.map_err(Error::Connect)?;
        let connector = tls::connector(&self.nodes.own, self.nodes.agent_key(self.session, self.link.attempt));
        let stream = tls::connect(&connector, stream).await.map_err(|error| self.judged(error))?;
        self.enter(stream).await
    }

    /// Says what the connection is for, and hears whether the app is there.
    async fn enter(&self, mut stream: tls::Stream) -> Result<tls::Stream> {
        let asked = async {
            tls::write_line(&mut stream, self.door.name()).await?;
            tls::read_line(&mut stream).await
        };
        match asked.await {
            Ok(answer) if answer == OPEN => Ok(stream),
            Ok(answer) if answer == APP_UNAVAILABLE => Err(Error::Away),
            Ok(_) => Err(Error::Connect(io::ErrorKind::InvalidData.into())),
            Err(error) => Err(self.judged(error)),
        }
    }

    fn judged(&self, error: io::Error) -> Error {
        if tls::is_wrong_key(&error) { Error::WrongKey { host: self.link.host.clone() } } else { Error::Connect(error) }
    }

    /// One of the connections that the agent keeps waiting. Some may be dead without our
    /// knowing: the next one is tried then.
    async fn open_waiting(&self) -> Result<tls::Stream> {
        loop {
            let stream = self.nodes.calls.take(self.session, self.link.attempt).await;
            match self.enter(stream).await {
                Err(Error::Connect(error)) => {
                    tracing::debug!(session.id = %self.session, %error, "idle connection was closed");
                }
                other => return other,
            }
        }
    }

    /// Where the agent listens, as it says.
    async fn port(&self) -> Result<u16> {
        let known = self.nodes.ports.lock().get(&self.session).copied();
        if let Some((_, port)) = known.filter(|(attempt, _)| *attempt == self.link.attempt) {
            return Ok(port);
        }
        let port = match self.link.transport {
            Transport::EndpointFile => self.port_of_file().await?,
            _ => self.nodes.calls.port(self.session, self.link.attempt).ok_or(Error::NotTold)?,
        };
        if self.nodes.config.ports.may_be(port) { Ok(port) } else { Err(Error::Port(port)) }
    }

    async fn port_of_file(&self) -> Result<u16> {
        let (directory, uid) = (self.run_directory.clone(), self.uid);
        let read = tokio::task::spawn_blocking(move || read_endpoint(&directory, uid));
        match timeout(FILE_TIMEOUT, read).await {
            Ok(Ok(Ok(Some(listening)))) => Ok(listening.port),
            Ok(Ok(Ok(None))) => Err(Error::NotTold),
            Ok(Ok(Err(error))) => Err(Error::EndpointFile(error)),
            Ok(Err(_)) | Err(_) => Err(Error::EndpointFile(io::ErrorKind::TimedOut.into())),
        }
    }

    /// How the workload is reached.
    pub fn link(&self) -> &Link {
        &self.link
    }

    fn key(&self) -> (SessionId, &Link, &Path, u32, Door) {
        (self.session, &self.link, &self.run_directory, self.uid, self.door)
    }
}

/// An endpoint file is the workload's user's own, or it is none.
fn read_endpoint(directory: &Path, uid: u32) -> io::Result<Option<Listening>> {
    let Some(file) = run_directory::open(directory, files::ENDPOINT)? else { return Ok(None) };
    let found = file.metadata()?.uid();
    if found != uid {
        return Err(io::Error::other(format!("it belongs to uid {found}, not to uid {uid}")));
    }
    let text = run_directory::read_whole(file, MAX_ENDPOINT_FILE)?;
    serde_json::from_slice(&text).map(Some).map_err(io::Error::other)
}

impl PartialEq for NodeEndpoint {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for NodeEndpoint {}

impl Hash for NodeEndpoint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an agent on another node is not reached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the workload has no node yet")]
    NotPlaced,
    #[error("the agent has not reported yet where it listens")]
    NotTold,
    #[error("the file with the agent's address cannot be used")]
    EndpointFile(#[source] io::Error),
    #[error("the agent reports port {0}, which agents may not use")]
    Port(u16),
    #[error("the agent's node does not accept the connection")]
    Connect(#[source] io::Error),
    /// Somebody else listens there.
    #[error("peer check failed: the process that answers on {host} does not have the agent's key")]
    WrongKey { host: String },
    /// The agent is there, its app is not.
    #[error("the app does not accept connections")]
    Away,
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn an_endpoint_file_is_the_users_own() {
        let base = tempfile::tempdir().unwrap();
        let run = base.path().join("0123456789abcdef");
        fs::create_dir(&run).unwrap();
        let own = rustix::process::getuid().as_raw();
        assert_eq!(read_endpoint(&run, own).unwrap(), None);
        let file = run.join(files::ENDPOINT);
        fs::write(&file, r#"{"port": 40000, "host": "192.0.2.1", "key": "mine"}"#).unwrap();
        assert_eq!(read_endpoint(&run, own).unwrap(), Some(Listening { port: 40_000 }));
        assert!(read_endpoint(&run, own + 1).is_err(), "somebody else's");
        for bad in ["", "{", "[]", r#"{"port": 70000}"#, r#"{"port": -1}"#, r#"{"host": "x"}"#, &" ".repeat(5000)] {
            fs::write(&file, bad).unwrap();
            assert!(read_endpoint(&run, own).is_err(), "{bad}");
        }
        fs::remove_file(&file).unwrap();
        let elsewhere = base.path().join("theirs");
        fs::write(&elsewhere, r#"{"port": 40000}"#).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert!(read_endpoint(&run, own).is_err(), "a link");
    }

    #[test]
    fn the_setup_says_who_connects_to_whom() {
        let session = SessionId::new();
        let setup = |transport| {
            let config = Config { transport, portal_address: "head:8003".to_owned(), ..Config::default() };
            Nodes::new(config, b"key").setup(session, 1)
        };
        assert!(matches!(setup(Transport::EndpointFile).way, CallDirection::Listen { tell: None, .. }));
        assert!(
            matches!(setup(Transport::Listen).way, CallDirection::Listen { tell: Some(portal), .. } if portal == "head:8003")
        );
        let dial_back = setup(Transport::DialBack);
        assert_eq!(dial_back.way, CallDirection::DialBack { portal: "head:8003".to_owned() });
        assert!(!format!("{dial_back:?}").contains(&dial_back.key));
    }
}
