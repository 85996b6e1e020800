//! People's files: what pages and API may do with them. This module decides who may come,
//! where a path leads and how long anybody waits; the files themselves are touched by files
//! agents alone, which run as their user (`pool` keeps them at hand, `line` speaks to one).
//! A file server that hangs costs the request that met it, and nothing else.

mod agent_connection;
mod agent_pool;
mod curves;
mod inspect;
mod space;
mod storage;
mod transfer;
mod whole_files;

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;

use self::{
    agent_connection::{AgentConnection, ConnectionError},
    agent_pool::AgentPool,
};
use lyceum_db::{self as db, Db};
use lyceum_model::{
    FieldError, User, UserId,
    files::{Entry, ListingQuery, RawPath, Root, place},
};
use lyceum_node::helper::client::Launcher;
use lyceum_wire::protocol::files_agent::{Fault, FileLocation, FilesAnswer, FilesRequest, Page};

use crate::{
    admission,
    scheduler::{self, Accounts, PortalUser},
};

pub use self::curves::{Curves, Part, SkippedFiles};
pub use self::space::{RootSpace, SpaceState};
pub use self::transfer::{Content, NewUpload, UploadId, Uploaded};
pub use self::whole_files::FileContent;

/// What the composition root decides.
#[derive(Clone, Debug)]
pub struct Config {
    /// Named folders of the site that everybody finds beside their home.
    pub storage: Vec<(String, PathBuf)>,
    /// The largest file that may be uploaded (bytes).
    pub max_upload_bytes: u64,
    /// How long a file system may take to answer.
    pub patience: Duration,
    /// True where the portal is not root and so serves one person only.
    pub single_user_mode: bool,
    /// True where several people share the portal's own account, as configured.
    pub shared_uid: bool,
}

/// The service.
pub struct Files {
    db: Db,
    accounts: Arc<dyn Accounts>,
    launcher: Arc<Launcher>,
    pub config: Config,
    desks: Mutex<HashMap<UserId, Arc<AgentPool>>>,
    reading: whole_files::ReadLimits,
    spaces: space::Spaces,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid request")]
    Invalid(FieldError),
    /// The agent says why; the path is the one that was asked for, for people.
    #[error("{path}: {fault:?}")]
    Fault { path: String, fault: Fault },
    /// The file system did not answer in time.
    #[error("{path} does not respond")]
    Silent { path: String },
    #[error("too many file operations of this user are running")]
    Busy,
    #[error("the file has {size_bytes} bytes, the limit is {limit_bytes}")]
    TooLarge { size_bytes: u64, limit_bytes: u64 },
    #[error("{path} has {size_bytes} bytes, the limit is {limit_bytes}")]
    TooLong { path: String, size_bytes: u64, limit_bytes: u64 },
    #[error("{path} has more than {most} values")]
    TooMany { path: String, most: usize },
    /// Who this person is to the machine cannot be said, or they may not come.
    #[error(transparent)]
    Scheduler(#[from] scheduler::Error),
    /// The client broke off while it sent.
    #[error("the content is incomplete")]
    BrokenOff,
    #[error("the files agent: {0}")]
    Agent(String),
    #[error("database error")]
    Db(#[from] db::Error),
}

/// Pairs a requested path with its root and the path below it.
#[derive(Clone, Debug)]
pub struct RootedPath {
    /// From the top of the file system on.
    pub path: RawPath,
    pub root: Root,
    /// Below the root; empty for the root itself.
    pub below: RawPath,
    place: FileLocation,
}

impl RootedPath {
    pub fn name(&self) -> RawPath {
        self.path.split().1
    }

    /// The path of something in this folder.
    pub fn child(&self, name: &RawPath) -> RawPath {
        self.path.join(name)
    }
}

/// A part of a folder, and where it is.
#[derive(Debug)]
pub struct Folder {
    pub rooted: RootedPath,
    pub page: Page,
}

impl Files {
    #[must_use]
    pub fn new(db: Db, accounts: Arc<dyn Accounts>, launcher: Arc<Launcher>, config: Config) -> Arc<Self> {
        Arc::new(Self {
            db,
            accounts,
            launcher,
            config,
            desks: Mutex::default(),
            reading: whole_files::ReadLimits::default(),
            spaces: space::Spaces::default(),
        })
    }

    /// The folders that somebody may reach, the home first.
    pub async fn roots(&self, user: &User) -> Result<Vec<Root>> {
        Ok(self.pool(user).await?.roots.clone())
    }

    pub async fn list(&self, user: &User, path: &RawPath, wanted: ListingQuery) -> Result<Folder> {
        let (pool, rooted) = self.find(user, path).await?;
        let request = FilesRequest::List { place: rooted.place.clone(), wanted };
        match self.once(&pool, &rooted, &request).await? {
            FilesAnswer::Folder(page) => Ok(Folder { rooted, page }),
            other => Err(unexpected(&other)),
        }
    }

    pub async fn look(&self, user: &User, path: &RawPath) -> Result<(RootedPath, Entry)> {
        let (pool, rooted) = self.find(user, path).await?;
        let entry = self.entry(&pool, &rooted, FilesRequest::Look { place: rooted.place.clone() }).await?;
        Ok((rooted, entry))
    }

    pub async fn make_folder(&self, user: &User, path: &RawPath) -> Result<(RootedPath, Entry)> {
        let (pool, rooted) = self.find(user, path).await?;
        let entry = self.entry(&pool, &rooted, FilesRequest::MakeFolder { place: rooted.place.clone() }).await?;
        Ok((rooted, entry))
    }

    /// Gives something another path, which must be free.
    pub async fn rename(&self, user: &User, path: &RawPath, to: &RawPath) -> Result<(RootedPath, Entry)> {
        let (pool, rooted) = self.find(user, path).await?;
        let target = pool.rooted(to)?;
        let request = FilesRequest::Rename { place: rooted.place.clone(), to: target.place.clone(), replace: false };
        let entry = self.entry(&pool, &rooted, request).await.map_err(|error| of_target(error, &target))?;
        Ok((target, entry))
    }

    /// Moves something, also to another file system; over a file that is there only with `replace`.
    pub async fn move_to(
        &self,
        user: &User,
        path: &RawPath,
        to: &RawPath,
        replace: bool,
    ) -> Result<(RootedPath, Entry)> {
        let (pool, rooted) = self.find(user, path).await?;
        let target = pool.rooted(to)?;
        let request = FilesRequest::Rename { place: rooted.place.clone(), to: target.place.clone(), replace };
        match self.entry(&pool, &rooted, request).await {
            Ok(entry) => Ok((target, entry)),
            Err(Error::Fault { fault: Fault::OtherFileSystem, .. }) => {
                let copied = self.copy(user, path, to, replace).await?;
                self.delete(user, path, true).await?;
                Ok(copied)
            }
            Err(error) => Err(of_target(error, &target)),
        }
    }

    /// Copies a file, or a folder with everything in it; over a file that is there only with `replace`.
    pub async fn copy(&self, user: &User, path: &RawPath, to: &RawPath, replace: bool) -> Result<(RootedPath, Entry)> {
        let (pool, rooted) = self.find(user, path).await?;
        let target = pool.rooted(to)?;
        let inside = [&rooted.path.0[..], b"/"].concat();
        if target.path.0.starts_with(&inside) {
            return Err(Error::Fault { path: target.path.shown(), fault: Fault::BadName });
        }
        let request = FilesRequest::Copy { place: rooted.place.clone(), to: target.place.clone(), replace };
        let entry = self.entry(&pool, &rooted, request).await.map_err(|error| of_target(error, &target))?;
        Ok((target, entry))
    }

    /// Deletes a file, or a folder; one that holds something only with `all`.
    pub async fn delete(&self, user: &User, path: &RawPath, all: bool) -> Result<RootedPath> {
        let (pool, rooted) = self.find(user, path).await?;
        match self.once(&pool, &rooted, &FilesRequest::Delete { place: rooted.place.clone(), all }).await? {
            FilesAnswer::Done => Ok(rooted),
            other => Err(unexpected(&other)),
        }
    }

    /// Closes what nobody has used for a while. Run it now and then.
    pub fn sweep(&self) {
        self.desks.lock().retain(|_, pool| pool.sweep());
    }

    async fn find(&self, user: &User, path: &RawPath) -> Result<(Arc<AgentPool>, RootedPath)> {
        let pool = self.pool(user).await?;
        let rooted = pool.rooted(path)?;
        Ok((pool, rooted))
    }

    async fn entry(&self, pool: &Arc<AgentPool>, rooted: &RootedPath, request: FilesRequest) -> Result<Entry> {
        match self.once(pool, rooted, &request).await? {
            FilesAnswer::Entry { entry } => Ok(entry),
            other => Err(unexpected(&other)),
        }
    }

    /// One question and its answer.
    async fn once(&self, pool: &Arc<AgentPool>, rooted: &RootedPath, request: &FilesRequest) -> Result<FilesAnswer> {
        let mut line = self.line(pool).await?;
        let answer = line.ask(request).await;
        if matches!(answer, Ok(_) | Err(ConnectionError::Fault(_))) {
            line.hang_up_well();
        }
        answer.map_err(|err| err.about(rooted))
    }

    async fn line(&self, pool: &Arc<AgentPool>) -> Result<AgentConnection> {
        pool.line(&self.launcher, self.config.patience).await
    }

    /// Somebody's agents and folders.
    async fn pool(&self, user: &User) -> Result<Arc<AgentPool>> {
        if self.config.single_user_mode
            && !self.config.shared_uid
            && !admission::is_single_user(&self.db, user.id).await?
        {
            return Err(Error::Scheduler(scheduler::Error::Refused(
                "this portal does not run as root and serves only one user: the one who signed in first".to_owned(),
            )));
        }
        if let Some(pool) = self.desks.lock().get(&user.id).filter(|pool| pool.is_fresh(user)) {
            return Ok(pool.clone());
        }
        let portal_user = PortalUser::from(user);
        let person = self.accounts.person(&portal_user).await?;
        let mut desks = self.desks.lock();
        // Of two who came at once, the second takes the first one's.
        if let Some(pool) = desks.get(&user.id)
            && pool.renew(user, &person)
        {
            return Ok(pool.clone());
        }
        let pool = Arc::new(AgentPool::new(user, person, &self.config.storage));
        desks.insert(user.id, pool.clone());
        Ok(pool)
    }
}

/// What is wrong with the new name is told of it.
fn of_target(error: Error, target: &RootedPath) -> Error {
    match error {
        Error::Fault { fault: fault @ (Fault::Exists | Fault::BadName), .. } => {
            Error::Fault { path: target.path.shown(), fault }
        }
        other => other,
    }
}

fn unexpected(answer: &FilesAnswer) -> Error {
    Error::Agent(format!("unexpected response: {answer:.200?}"))
}

/// Where a path leads below these roots.
fn resolve(path: &RawPath, roots: &[Root]) -> Result<RootedPath> {
    let (index, below) = place(path, roots).map_err(Error::Invalid)?;
    let root = roots[index].clone();
    let whole = RawPath::from(root.path.as_path()).join(&below);
    let path = if below.0.is_empty() { root.path.as_path().into() } else { whole };
    Ok(RootedPath { path, root, place: FileLocation { root: index, path: below.clone() }, below })
}
