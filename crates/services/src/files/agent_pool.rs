//! What the portal keeps for one person: which folders are theirs, how many requests of
//! theirs may be under way, and agents that wait for the next question. Agents are started by
//! the helper; one that was spoken to half-way is never used again.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    net::UnixStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{Error, Result, RootedPath, agent_connection::AgentConnection, resolve};
use lyceum_model::{
    User,
    files::{RawPath, Root},
    user::Person,
};
use lyceum_node::helper::{self, client::Launcher};
use lyceum_wire::protocol::{PROTOCOL, files_agent::FilesLaunch};

use crate::scheduler;

/// How many requests of one person may be under way at once.
pub const MAX_REQUESTS: usize = 6;

/// How long a request waits for one of them to end.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an agent waits for the next question.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How many agents wait.
const MAX_IDLE: usize = 2;

/// How long the name service's word holds.
const IDENTITY_MAX_AGE: Duration = Duration::from_mins(1);

pub struct AgentPool {
    pub roots: Vec<Root>,
    person: Person,
    unix_name: Option<String>,
    asked: Mutex<Instant>,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<(UnixStream, Instant)>>,
}

impl AgentPool {
    pub fn new(user: &User, person: Person, storage: &[(String, PathBuf)]) -> Self {
        let home = Root { name: "Home".to_owned(), path: person.home.clone() };
        let shared = storage.iter().map(|(name, path)| Root { name: name.clone(), path: path.clone() });
        Self {
            roots: [home].into_iter().chain(shared).collect(),
            person,
            unix_name: user.unix_name.clone(),
            asked: Mutex::new(Instant::now()),
            permits: Arc::new(Semaphore::new(MAX_REQUESTS)),
            idle: Mutex::default(),
        }
    }

    /// Whether the name service need not be asked again.
    pub fn is_fresh(&self, user: &User) -> bool {
        self.unix_name == user.unix_name && self.asked.lock().elapsed() < IDENTITY_MAX_AGE
    }

    /// Whether the name service still says the same.
    pub fn renew(&self, user: &User, person: &Person) -> bool {
        let same = self.unix_name == user.unix_name && self.person == *person;
        if same {
            *self.asked.lock() = Instant::now();
        }
        same
    }

    pub fn rooted(&self, path: &RawPath) -> Result<RootedPath> {
        resolve(path, &self.roots)
    }

    /// An agent to speak to, one that waits or a new one.
    pub async fn line(self: &Arc<Self>, launcher: &Arc<Launcher>, patience: Duration) -> Result<AgentConnection> {
        let permit = timeout(QUEUE_TIMEOUT, self.permits.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(Error::Busy) };
        while let Some(stream) = self.take_idle() {
            // One that has ended meanwhile has something to read: its end.
            let silent = matches!(stream.try_read(&mut [0]), Err(err) if err.kind() == std::io::ErrorKind::WouldBlock);
            if silent {
                return Ok(self.line_of(stream, permit, patience));
            }
        }
        let stream = self.start(launcher, patience).await?;
        Ok(self.line_of(stream, permit, patience))
    }

    fn line_of(
        self: &Arc<Self>,
        stream: UnixStream,
        permit: OwnedSemaphorePermit,
        patience: Duration,
    ) -> AgentConnection {
        AgentConnection::new(stream, patience, self.clone(), permit)
    }

    fn take_idle(&self) -> Option<UnixStream> {
        self.idle.lock().pop().map(|(stream, _)| stream)
    }

    /// Takes an agent back that has nothing more to say.
    pub fn give_back(&self, stream: UnixStream) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push((stream, Instant::now()));
        }
    }

    async fn start(&self, launcher: &Arc<Launcher>, patience: Duration) -> Result<UnixStream> {
        let launch =
            FilesLaunch { protocol: PROTOCOL, roots: self.roots.iter().map(|root| root.path.clone()).collect() };
        let (launcher, unix_name) = (launcher.clone(), self.person.unix_name.clone());
        let asked = tokio::task::spawn_blocking(move || launcher.files_agent(&unix_name, &launch));
        let socket = match timeout(patience, asked).await {
            Ok(Ok(answer)) => answer.map_err(|err| match err {
                helper::Error::Refused(sentence) => Error::Scheduler(scheduler::Error::Refused(sentence)),
                helper::Error::Busy(sentence) => Error::Scheduler(scheduler::Error::Unavailable(sentence)),
                helper::Error::Io { .. } => Error::Agent(err.sentence()),
            })?,
            Ok(Err(err)) => return Err(Error::Agent(format!("a task failed: {err}"))),
            Err(_elapsed) => {
                return Err(Error::Scheduler(scheduler::Error::Unavailable("the helper does not respond".to_owned())));
            }
        };
        let ready = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
        ready.map_err(|err| Error::Agent(format!("socket: {err}")))
    }

    /// Closes agents that have waited too long; false where nothing is worth keeping.
    pub fn sweep(&self) -> bool {
        let mut idle = self.idle.lock();
        idle.retain(|(_, since)| since.elapsed() < IDLE_TIMEOUT);
        !idle.is_empty()
            || self.permits.available_permits() < MAX_REQUESTS
            || self.asked.lock().elapsed() < IDENTITY_MAX_AGE
    }
}
