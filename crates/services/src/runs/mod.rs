//! Runs: directories of logs whose curves are kept and shown. This file says whose they are and
//! who may change what; `feed` reads them, `cache` keeps the points, `answer` says what curves come
//! to, `delta` what has come to them, `results` what many runs come to. Files of people are read by agents as their user; points are
//! written by nobody but the portal.

mod answer;
mod checkpoints;
mod delta;
mod feed;
mod results;
mod series_cache;

use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, broadcast};

use self::{
    results::{Digests, GivenValues},
    series_cache::SeriesCache,
};
use lyceum_db::{
    self as db, Db,
    audit::{ChangedBy, Entry},
    idempotency::{EarlierResult, IdempotentRequest},
};
use lyceum_model::{
    Clock, FieldError, GroupId, IdPart, JobId, Run, RunId, SessionId, User, UserId,
    run::{self, ReadProgress, Source, Visibility},
};
use lyceum_wire::protocol::{Directory, Errand, ErrandOutcome};

use crate::{
    files::{self, Files},
    scheduler::{self, Accounts, PortalUser, Scheduler, Transport},
};

pub(crate) use self::series_cache::points_file;
pub use self::{
    answer::{Axis, Curve, Metrics, NotThere, Question, Selection, Tag, Tags, all, csv, curve, metrics, revision},
    delta::{CurveGrowth, Delta, DeltaKind},
    results::{
        Band, BetterDirection, Cell, Column, Extent, Extremes, Group, Item, JobProgress, Kind, LONGEST_FILTER,
        LoggedMetric, MAX_RUNS, MetricValue, Order, RunSelection, SmallLine, Spread, Table, TableQuery,
    },
};

/// What the composition root decides.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the points are kept.
    pub directory: PathBuf,
    /// More points of one run are counted and not kept.
    pub most_points: u64,
    /// So much of all runs is kept in memory (bytes, roughly).
    pub memory: u64,
}

/// The service.
pub struct Runs {
    db: Db,
    clock: Clock,
    accounts: Arc<dyn Accounts>,
    transport: Arc<dyn Transport>,
    files: Arc<Files>,
    cache: Arc<SeriesCache>,
    /// Wakes the loop.
    wake: Notify,
    /// Attempts of jobs up to here are known.
    attempts: Mutex<SessionId>,
    /// Who is being read.
    busy: Mutex<HashSet<RunId>>,
    /// Whose runs are looked at, one after another.
    looking: Mutex<HashSet<UserId>>,
    /// Before then there is no use in trying again.
    resting: Mutex<HashMap<RunId, Instant>>,
    /// When somebody looked at a directory of nobody's.
    viewed: Mutex<HashMap<RunId, Instant>>,
    /// How many files agents read at once.
    looks: Arc<Semaphore>,
    /// Tells whoever follows a run that its state has changed.
    changed: broadcast::Sender<RunId>,
    /// What runs come to, as the table of results read it last.
    digests: Digests,
    given: GivenValues,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("run not found")]
    NotFound,
    /// One sees it, and may not change it.
    #[error("this run belongs to another user")]
    NotYours,
    #[error("invalid run request")]
    Invalid(Vec<FieldError>),
    /// The sentence says why.
    #[error("{0}")]
    Conflict(&'static str),
    /// Who this person is to the machine cannot be said.
    #[error(transparent)]
    Scheduler(#[from] scheduler::Error),
    #[error(transparent)]
    Files(#[from] files::Error),
    /// Whoever reads the files does not keep to the rules.
    #[error("agent: {0}")]
    Agent(String),
    #[error("cannot access the points in {}", path.display())]
    Points {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("a task failed: {0}")]
    Thread(String),
    #[error("database error")]
    Db(#[from] db::Error),
}

/// A run as somebody registers it.
#[derive(Clone, Debug)]
pub struct Draft {
    pub directory: String,
    pub name: Option<String>,
    /// One's own live session, whose agent reads while it lives.
    pub session: Option<SessionId>,
    pub visibility: Visibility,
    /// The name of one's own group, with [`Visibility::Group`].
    pub group: Option<String>,
}

/// What may be changed of a run; what is not named stays.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub name: Option<String>,
    pub visibility: Option<Visibility>,
    pub group: Option<String>,
}

/// How many files agents read at once, for all people.
const MAX_READERS: usize = 4;

impl Runs {
    #[must_use]
    pub fn new(db: Db, clock: Clock, scheduler: Arc<dyn Scheduler>, files: Arc<Files>, config: Config) -> Arc<Self> {
        Arc::new(Self {
            db,
            clock,
            accounts: scheduler.clone(),
            transport: scheduler,
            files,
            cache: SeriesCache::new(config.directory, config.most_points, config.memory),
            wake: Notify::new(),
            attempts: Mutex::new(SessionId::first()),
            busy: Mutex::default(),
            looking: Mutex::default(),
            resting: Mutex::default(),
            viewed: Mutex::default(),
            looks: Arc::new(Semaphore::new(MAX_READERS)),
            changed: broadcast::Sender::new(256),
            digests: Digests::default(),
            given: GivenValues::default(),
        })
    }

    /// A run that this person may see: their own, or one that is shared with them. Operators see all.
    pub async fn find(&self, user: &User, id: RunId) -> Result<Run> {
        let run = self.db.find_run(id, sees(user)).await?.ok_or(Error::NotFound)?;
        if run.source == Source::External {
            // Whoever looks at it wants it as it is now.
            self.viewed.lock().insert(id, Instant::now());
        }
        Ok(run)
    }

    /// The run of a job, if its logs have been read. Who may look at the job is `jobs`'s to say.
    pub async fn of_job(&self, job: JobId) -> Result<Option<Run>> {
        Ok(self.db.run_of_job(job).await?)
    }

    /// Lists runs, newest first; those of helper jobs where they are asked for, or where `id` names them.
    pub async fn list(
        &self,
        user: &User,
        owner: Option<&str>,
        id: Option<&IdPart>,
        with_helpers: bool,
        before: Option<RunId>,
        limit: i64,
    ) -> Result<Vec<Run>> {
        // Without a word of whose, operators too see what concerns them alone.
        let reader = if owner.is_some() { sees(user) } else { Some(user.id) };
        let owner = owner.filter(|owner| *owner != "*");
        let filter = db::runs::Filter { reader, owner, find: "", with_helpers, before, limit };
        Ok(self.db.list_runs_like(&filter, id).await?)
    }

    /// Registers a directory; asked twice with one key it is the same run.
    pub async fn add(&self, user: &User, draft: Draft, once: Option<IdempotentRequest<'_>>) -> Result<Run> {
        if let Some(earlier) = self.made_earlier(user, once).await? {
            return Ok(earlier);
        }
        let person = self.accounts.person(&PortalUser::from(user)).await?;
        let directory = run::directory(&draft.directory, &person.home.to_string_lossy()).map_err(invalid)?;
        let name = run::name(draft.name.as_deref(), &directory).map_err(invalid)?;
        let group = self.group(user, draft.visibility, draft.group.as_deref(), None).await?;
        let source = if let Some(id) = draft.session {
            self.source(user, id).await?
        } else {
            let errand = Errand::Directory { path: directory.clone().into() };
            if let Some(fault) = fault(&self.accounts.errand(&person, errand).await?) {
                return Err(invalid(fault));
            }
            Source::External
        };
        let new = Run {
            id: RunId::new(),
            owner: user.id,
            owner_name: user.name.to_string(),
            name,
            directory,
            source,
            visibility: draft.visibility,
            group,
            reading: ReadProgress::default(),
            created_at: self.clock.now(),
            is_helper: false,
        };
        let subject = new.id.to_string();
        let (at, actor) = (new.created_at, user.name.as_str());
        let noted = Entry { at, actor, action: "run.add", subject: &subject, detail: &new.directory };
        match self.db.add_run(&new, once, &noted).await {
            Ok(()) => {}
            Err(db::Error::Unique) => {
                let conflict = Error::Conflict("another request added this run at the same time; try again");
                return self.made_earlier(user, once).await?.ok_or(conflict);
            }
            Err(err) => return Err(err.into()),
        }
        self.wake.notify_one();
        Ok(new)
    }

    async fn made_earlier(&self, user: &User, once: Option<IdempotentRequest<'_>>) -> Result<Option<Run>> {
        let Some(IdempotentRequest { key, request_hash, .. }) = once else { return Ok(None) };
        match self.db.find_idempotent(user.id, key).await? {
            None => Ok(None),
            Some(EarlierResult { request_hash: hash, created_id }) if hash == request_hash => {
                let id = created_id.parse().map_err(|_err| db::Error::Stored("run id"))?;
                self.db.find_run(id, Some(user.id)).await?.map(Some).ok_or(Error::NotFound)
            }
            Some(_) => Err(Error::Conflict("this idempotency key was used for a different request; use a new key")),
        }
    }

    async fn source(&self, user: &User, id: SessionId) -> Result<Source> {
        let found = self.db.find_session(id).await?.filter(|session| session.owner == user.id);
        let Some(session) = found.filter(|session| session.state.is_live()) else {
            let message =
                "This is not one of your live sessions. Leave it out to read the directory without a session.";
            return Err(invalid(FieldError::new("session", "invalid_value", message)));
        };
        Ok(Source::Session { id, job: None, state: session.state, placement: session.placement.map(Box::new) })
    }

    /// The group that goes with a visibility.
    async fn group(
        &self,
        user: &User,
        visibility: Visibility,
        name: Option<&str>,
        before: Option<(GroupId, Option<String>)>,
    ) -> Result<Option<(GroupId, Option<String>)>> {
        let fault = |code, message| Err(invalid(FieldError::new("group", code, message)));
        match (visibility, name.map(str::trim).filter(|name| !name.is_empty())) {
            (Visibility::Group, Some(name)) => match self.db.group_of_member(user.id, name).await? {
                Some(group) => Ok(Some((group, Some(name.to_owned())))),
                None => fault("unknown_group", "You are not a member of this group."),
            },
            (Visibility::Group, None) if before.is_some() => Ok(before),
            (Visibility::Group, None) => fault("missing_field", "Required with the visibility `group`."),
            (Visibility::Private | Visibility::Everybody, Some(_)) => {
                fault("invalid_value", "Only allowed with the visibility `group`.")
            }
            (Visibility::Private | Visibility::Everybody, None) => Ok(None),
        }
    }

    /// Changes a run of one's own.
    pub async fn change(&self, user: &User, id: RunId, change: Change) -> Result<Run> {
        let mut run = self.own(user, id).await?;
        if run.source.job().is_some() {
            return Err(Error::Conflict("this run belongs to a job; change the job instead"));
        }
        if let Some(name) = change.name {
            run.name = run::name(Some(&name), &run.directory).map_err(invalid)?;
        }
        let visibility = change.visibility.unwrap_or(run.visibility);
        run.group = self.group(user, visibility, change.group.as_deref(), run.group.take()).await?;
        run.visibility = visibility;
        let group = run.group.as_ref().and_then(|(_, name)| name.as_deref()).unwrap_or_default();
        let (subject, detail) = (id.to_string(), format!("{} {group}: {}", run.visibility, run.name));
        let (at, actor) = (self.clock.now(), user.name.as_str());
        let noted = Entry { at, actor, action: "run.change", subject: &subject, detail: &detail };
        if self.db.change_run(&run, &noted).await? { Ok(run) } else { Err(Error::NotFound) }
    }

    /// Moves a run of one's own into the trash, where it can be restored for a day. The files it was read from stay.
    pub async fn remove(&self, user: &User, id: RunId) -> Result<()> {
        let run = self.own(user, id).await?;
        if run.source.job().is_some() {
            return Err(Error::Conflict("this run belongs to a job and is removed with it"));
        }
        let (subject, at) = (id.to_string(), self.clock.now());
        let actor = user.name.as_str();
        let noted = Entry { at, actor, action: "run.remove", subject: &subject, detail: &run.directory };
        if self.db.remove_run(id, &noted).await? { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Brings a removed run of one's own back, with its points.
    pub async fn restore(&self, user: &User, id: RunId) -> Result<Run> {
        let by = ChangedBy { actor: user.name.as_str(), at: self.clock.now() };
        if !self.db.restore_run(id, user.id, by).await? {
            self.own(user, id).await?;
            return Err(Error::Conflict("it has not been removed"));
        }
        self.wake.notify_one();
        self.own(user, id).await
    }

    /// One of this person's own.
    async fn own(&self, user: &User, id: RunId) -> Result<Run> {
        let run = self.db.find_run(id, sees(user)).await?.ok_or(Error::NotFound)?;
        if run.owner == user.id { Ok(run) } else { Err(Error::NotYours) }
    }

    /// What there is of a run's points.
    pub async fn look<T: Send + 'static>(
        &self,
        run: RunId,
        look: impl FnOnce(&lyceum_curves::Store) -> T + Send + 'static,
    ) -> Result<T> {
        self.cache.look(run, look).await
    }

    /// See [`SeriesCache::follow`].
    pub async fn follow(&self, id: RunId, since: Option<u64>) -> Result<(Delta, broadcast::Receiver<Arc<Delta>>)> {
        self.cache.follow(id, since).await
    }

    /// Tells of runs whose state has changed.
    pub fn subscribe(&self) -> broadcast::Receiver<RunId> {
        self.changed.subscribe()
    }
}

fn sees(user: &User) -> Option<UserId> {
    (user.role < lyceum_model::Role::Operator).then_some(user.id)
}

fn invalid(fault: FieldError) -> Error {
    Error::Invalid(vec![fault])
}

/// Why a directory cannot be registered.
fn fault(found: &ErrandOutcome) -> Option<FieldError> {
    let (code, message) = match found {
        ErrandOutcome::Directory { directory: Directory::Enterable { readable: true } } => return None,
        ErrandOutcome::Directory { directory: Directory::Missing { .. } } => ("not_found", "Directory not found."),
        ErrandOutcome::Directory { directory: Directory::NotADirectory } => ("not_a_directory", "Not a directory."),
        ErrandOutcome::Directory { directory: Directory::Forbidden | Directory::Enterable { readable: false } } => {
            ("forbidden", "You may not read this directory.")
        }
        ErrandOutcome::Directory { directory: Directory::Silent } | ErrandOutcome::Silent => {
            ("silent", "The file system does not respond. Try again later.")
        }
        ErrandOutcome::Failed { message } => return Some(FieldError::new("directory", "failed", message.clone())),
        ErrandOutcome::Environment { .. }
        | ErrandOutcome::Overlays { .. }
        | ErrandOutcome::Done
        | ErrandOutcome::Nothing => ("failed", "The directory could not be checked."),
    };
    Some(FieldError::new("directory", code, message))
}
