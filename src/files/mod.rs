//! People's files: what pages and API may do with them. This module decides who may come,
//! where a path leads and how long anybody waits; the files themselves are touched by files
//! agents alone, which run as their user (`desk` keeps them at hand, `line` speaks to one).
//! A file server that hangs costs the request that met it, and nothing else.

mod curves;
mod desk;
mod line;
mod storage;
mod transfer;
mod whole;

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;

use self::{
    desk::Desk,
    line::{Broken, Line},
};
use crate::{
    admission,
    db::{self, Db},
    helper::client::Launcher,
    model::{
        FieldError, User, UserId,
        files::{Entry, RawPath, Root, Wanted, place},
    },
    protocol::files_agent::{Fault, FilesAnswer, FilesRequest, Page, Place},
    scheduler::{self, PortalUser, Scheduler},
};

pub use self::curves::{Curves, Met, Part};
pub use self::transfer::{Content, NewUpload, UploadId, Uploaded};
pub use self::whole::Whole;

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
    pub one_person: bool,
    /// True where several people share the portal's own account, as configured.
    pub shared_uid: bool,
}

/// The service.
pub struct Files {
    db: Db,
    scheduler: Arc<dyn Scheduler>,
    launcher: Arc<Launcher>,
    pub config: Config,
    desks: Mutex<HashMap<UserId, Arc<Desk>>>,
    reading: whole::Reading,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a field cannot be so")]
    Invalid(FieldError),
    /// The agent says why; the path is the one that was asked for, for people.
    #[error("{path}: {fault:?}")]
    Fault { path: String, fault: Fault },
    /// The file system did not answer in time.
    #[error("{path} does not answer")]
    Silent { path: String },
    #[error("too much is under way with this user's files")]
    Busy,
    #[error("a file of {size_bytes} bytes is larger than {limit_bytes}")]
    TooLarge { size_bytes: u64, limit_bytes: u64 },
    #[error("{path} has {size_bytes} bytes, of which {limit_bytes} are read at most")]
    TooLong { path: String, size_bytes: u64, limit_bytes: u64 },
    #[error("{path} has more than {most} values")]
    TooMany { path: String, most: usize },
    /// Who this person is to the machine cannot be said, or they may not come.
    #[error(transparent)]
    Scheduler(#[from] scheduler::Error),
    /// The client broke off while it sent.
    #[error("the content did not arrive whole")]
    BrokenOff,
    #[error("the files agent: {0}")]
    Agent(String),
    #[error("the database failed")]
    Db(#[from] db::Error),
}

/// A path with its place: what was asked for, and the same as it is called everywhere.
#[derive(Clone, Debug)]
pub struct Spot {
    /// From the top of the file system on.
    pub path: RawPath,
    pub root: Root,
    /// Below the root; empty for the root itself.
    pub below: RawPath,
    place: Place,
}

impl Spot {
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
    pub spot: Spot,
    pub page: Page,
}

impl Files {
    #[must_use]
    pub fn new(db: Db, scheduler: Arc<dyn Scheduler>, launcher: Arc<Launcher>, config: Config) -> Arc<Self> {
        Arc::new(Self { db, scheduler, launcher, config, desks: Mutex::default(), reading: whole::Reading::default() })
    }

    /// The folders that somebody may reach, the home first.
    pub async fn roots(&self, user: &User) -> Result<Vec<Root>> {
        Ok(self.desk(user).await?.roots.clone())
    }

    pub async fn list(&self, user: &User, path: &RawPath, wanted: Wanted) -> Result<Folder> {
        let (desk, spot) = self.find(user, path).await?;
        let request = FilesRequest::List { place: spot.place.clone(), wanted };
        match self.once(&desk, &spot, &request).await? {
            FilesAnswer::Folder(page) => Ok(Folder { spot, page }),
            other => Err(unexpected(&other)),
        }
    }

    pub async fn look(&self, user: &User, path: &RawPath) -> Result<(Spot, Entry)> {
        let (desk, spot) = self.find(user, path).await?;
        let entry = self.entry(&desk, &spot, FilesRequest::Look { place: spot.place.clone() }).await?;
        Ok((spot, entry))
    }

    pub async fn make_folder(&self, user: &User, path: &RawPath) -> Result<(Spot, Entry)> {
        let (desk, spot) = self.find(user, path).await?;
        let entry = self.entry(&desk, &spot, FilesRequest::MakeFolder { place: spot.place.clone() }).await?;
        Ok((spot, entry))
    }

    /// Gives something another path, which must be free.
    pub async fn rename(&self, user: &User, path: &RawPath, to: &RawPath) -> Result<(Spot, Entry)> {
        let (desk, spot) = self.find(user, path).await?;
        let target = desk.spot(to)?;
        let request = FilesRequest::Rename { place: spot.place.clone(), to: target.place.clone() };
        let entry = match self.entry(&desk, &spot, request).await {
            Err(Error::Fault { fault: fault @ (Fault::Exists | Fault::BadName), .. }) => {
                return Err(Error::Fault { path: target.path.shown(), fault });
            }
            other => other?,
        };
        Ok((target, entry))
    }

    /// Deletes a file, or a folder; one that holds something only with `all`.
    pub async fn delete(&self, user: &User, path: &RawPath, all: bool) -> Result<Spot> {
        let (desk, spot) = self.find(user, path).await?;
        match self.once(&desk, &spot, &FilesRequest::Delete { place: spot.place.clone(), all }).await? {
            FilesAnswer::Done => Ok(spot),
            other => Err(unexpected(&other)),
        }
    }

    /// Closes what nobody has used for a while. Run it now and then.
    pub fn sweep(&self) {
        self.desks.lock().retain(|_, desk| desk.sweep());
    }

    async fn find(&self, user: &User, path: &RawPath) -> Result<(Arc<Desk>, Spot)> {
        let desk = self.desk(user).await?;
        let spot = desk.spot(path)?;
        Ok((desk, spot))
    }

    async fn entry(&self, desk: &Arc<Desk>, spot: &Spot, request: FilesRequest) -> Result<Entry> {
        match self.once(desk, spot, &request).await? {
            FilesAnswer::Entry { entry } => Ok(entry),
            other => Err(unexpected(&other)),
        }
    }

    /// One question and its answer.
    async fn once(&self, desk: &Arc<Desk>, spot: &Spot, request: &FilesRequest) -> Result<FilesAnswer> {
        let mut line = self.line(desk).await?;
        let answer = line.ask(request).await;
        if matches!(answer, Ok(_) | Err(Broken::Fault(_))) {
            line.hang_up_well();
        }
        answer.map_err(|err| err.about(spot))
    }

    async fn line(&self, desk: &Arc<Desk>) -> Result<Line> {
        desk.line(&self.launcher, self.config.patience).await
    }

    /// Somebody's agents and folders.
    async fn desk(&self, user: &User) -> Result<Arc<Desk>> {
        if self.config.one_person && !self.config.shared_uid && !admission::is_the_one_person(&self.db, user.id).await?
        {
            return Err(Error::Scheduler(scheduler::Error::Refused(
                "this portal does not run as root, so it serves one person only: the one who came first".to_owned(),
            )));
        }
        if let Some(desk) = self.desks.lock().get(&user.id).filter(|desk| desk.is_fresh(user)) {
            return Ok(desk.clone());
        }
        let portal_user = PortalUser::from(user);
        let person = self.scheduler.person(&portal_user).await?;
        let mut desks = self.desks.lock();
        // Of two who came at once, the second takes the first one's.
        if let Some(desk) = desks.get(&user.id)
            && desk.renew(user, &person)
        {
            return Ok(desk.clone());
        }
        let desk = Arc::new(Desk::new(user, person, &self.config.storage));
        desks.insert(user.id, desk.clone());
        Ok(desk)
    }
}

fn unexpected(answer: &FilesAnswer) -> Error {
    Error::Agent(format!("it answered something else: {answer:.200?}"))
}

/// Where a path leads below these roots.
fn spot(path: &RawPath, roots: &[Root]) -> Result<Spot> {
    let (index, below) = place(path, roots).map_err(Error::Invalid)?;
    let root = roots[index].clone();
    let whole = RawPath::from(root.path.as_path()).join(&below);
    let path = if below.0.is_empty() { root.path.as_path().into() } else { whole };
    Ok(Spot { path, root, place: Place { root: index, path: below.clone() }, below })
}
