//! Sessions: the service that pages, API and command line call, and the one loop that
//! launches and ends. A call writes a row and wakes the loop; everything that touches a
//! process happens in `reconcile`, which needs no input and may run at any time.

mod attempts;
mod clock;
mod counted_time;
mod hardware;
mod held_resources;
mod holds;
mod idle;
mod last_observed;
mod launch;
mod lifetime;
mod log;
mod packages;
pub mod profiles;
mod reconcile;
mod request;
mod routes;
mod software;
mod start_waits;
mod waiting;
mod watch;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, broadcast};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use lyceum_db::{
    self as db, Db,
    admit::{AdmissionOutcome, NewSession, Verdict},
    sessions::{Event, Filter},
};
use lyceum_model::{
    Clock, EndReason, FieldError, JobId, Loops, Maintenance, Resources, Role, Session, SessionId, Timestamp, User,
    UserId,
    description::parse_name,
    ending::Deadline,
    gpus::GpuReport,
    job::Shape,
    quota::{Class, Code, Reason, Rule},
    session::{SessionSpec, WorkloadStarts},
};
use lyceum_node::apps::Catalogue;
use lyceum_wire::protocol::AgentStatus;

use crate::{
    admission::{self, Admission, DryRun, QuotaStatus},
    environments::{Environments, Installed},
    images::Images,
    scheduler::{self, Scheduler},
};

pub(crate) use self::log::log_file;
pub use attempts::{AttemptOutcome, Batch};
pub use launch::is_path as is_own_environment;
pub use lifetime::OwnerNotice;
pub use packages::OwnPackages;
pub use profiles::Profile;
use profiles::Profiles;
pub use request::{MAX_LOG_DIRECTORIES, Options, StartRequest};
pub use routes::{Route, Routes};
pub use watch::program_notes;

/// What the service is made of.
pub struct Sessions {
    pub db: Db,
    pub clock: Clock,
    pub admission: Admission,
    pub scheduler: Arc<dyn Scheduler>,
    pub apps: Catalogue,
    pub environments: Environments,
    pub profiles: Profiles,
    pub images: Images,
    pub config: Config,
    pub routes: Routes,
    /// When this portal began to watch.
    since: Timestamp,
    live: RwLock<HashMap<SessionId, LiveState>>,
    /// Who has a step under way, and whether another was asked for meanwhile.
    busy: Mutex<HashMap<SessionId, bool>>,
    watched: Mutex<HashMap<SessionId, watch::Watcher>>,
    /// What went wrong with the last step of a session, until one succeeds.
    failing: Mutex<HashMap<SessionId, Arc<Error>>>,
    /// The last pass over those that wait, if it changed nothing.
    quiet_pass: Mutex<Option<waiting::QuietPass>>,
    measuring: hardware::Measuring,
    /// How long sessions and jobs waited until they ran.
    pub start_waits: start_waits::StartWaits,
    changes: broadcast::Sender<Change>,
    wake: Notify,
    last: RwLock<LastRun>,
    /// As the loop read it last: what may start and what is ended.
    maintenance: RwLock<Option<Maintenance>>,
    observed: Mutex<last_observed::Observed>,
    pub tracker: TaskTracker,
    pub stopping: CancellationToken,
}

/// What the composition root decides.
#[derive(Clone, Debug)]
pub struct Config {
    pub profiles: Vec<Profile>,
    /// Makes each session's upstream secret; never stored with the session.
    pub key: [u8; 32],
    /// Where the logs of ended sessions are kept.
    pub logs: PathBuf,
    /// Tells this boot of the machine from others.
    pub boot_id: String,
    /// What travels in the binary and was laid out for workloads.
    pub installed: Installed,
    /// Named storage mounts that are linked in every home.
    pub storage: Vec<(String, PathBuf)>,
    /// From the launch to the first answer, before the start counts as failed (seconds).
    pub start_timeout_seconds: u64,
    /// How soon one that waited for its turn is to be opened when it runs (seconds); 0: it may take for ever.
    pub open_within_seconds: i64,
    /// Not from which user the service runs, but whom its agents let in.
    pub portal_uid: u32,
    /// True where workloads of different people run under one Unix account, as configured.
    pub shared_uid: bool,
    /// True where the portal is not root and so serves one person only.
    pub single_user_mode: bool,
    /// Where the service's loops say how they go.
    pub loops: Loops,
}

/// Holds what is known of a running session besides its row: shown, never trusted.
#[derive(Clone, Debug, Default)]
pub struct LiveState {
    pub status: Option<AgentStatus>,
    /// By how much the clock of its machine is ahead of ours (milliseconds).
    pub ahead: i64,
    pub sample: Option<lyceum_wire::protocol::Sample>,
    /// What its agent reported last of its GPUs, where the scheduler cannot read them itself.
    pub gpus: Vec<GpuReport>,
    /// When that report came.
    pub gpus_at: Option<Timestamp>,
    /// When one of these GPUs last computed.
    pub gpus_worked_at: Option<Timestamp>,
    /// Milliseconds; raised by the proxy and the agent without a lock.
    pub activity: Arc<AtomicI64>,
    /// When its use was last measured.
    pub sampled_at: Option<Timestamp>,
    /// What was noted last of what it holds.
    pub starts: Option<WorkloadStarts>,
    /// When it last kept more cores busy than idling takes.
    pub worked_at: Option<Timestamp>,
    /// Since when nobody can see whether it is used.
    pub unobservable_since: Option<Timestamp>,
    /// Since when its GPUs have done nothing, as far as anybody could see.
    pub gpus_idle_since: Option<Timestamp>,
    /// When it will be stopped because nobody, or nothing, uses it; of the last look.
    pub idle: Option<Deadline>,
    pub told: OwnerNotice,
    /// What its batch system counted of its time at the last look.
    pub counted: counted_time::LastReport,
    /// When it begins at the latest, while it waits for room and that can be told; of the last look.
    pub estimated_start: Option<Timestamp>,
}

/// Something happened to a session; whoever shows it should read it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub session: SessionId,
    /// The job that it is an attempt of, if it is one.
    pub job: Option<JobId>,
    pub owner: UserId,
    /// It has ended: its endpoint is invalid and its connections are to be cut.
    pub ended: bool,
    /// There is something else to tell its owner than before, wherever they are.
    pub told: bool,
}

impl Change {
    fn of(session: &Session, ended: bool) -> Self {
        let job = session.job.map(|attempt| attempt.job);
        Self { session: session.id, job, owner: session.owner, ended, told: ended }
    }
}

/// The loop's last round, for the health page.
#[derive(Clone, Debug, Default)]
pub struct LastRun {
    /// `None` before the first one.
    pub at: Option<Timestamp>,
    /// Whether it could not be finished; the log has the cause.
    pub failed: bool,
    /// What runs and has no row: it is left alone.
    pub orphans: HashSet<SessionId>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("session not found")]
    NotFound,
    #[error("invalid session request")]
    Invalid(Vec<FieldError>),
    #[error("the request exceeds a limit")]
    Refused(Vec<Reason>),
    /// Nothing starts for so many seconds; the sentence says why.
    #[error("{sentence}")]
    Maintenance { sentence: String, retry_after_seconds: i64 },
    /// The thing is not in a state that allows this; the sentence says why.
    #[error("{0}")]
    Conflict(String),
    #[error("scheduler error")]
    Scheduler(#[from] scheduler::Error),
    #[error("failed to read the stored log of an ended session")]
    Log(#[source] std::io::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Error {
    fn key_in_use() -> Self {
        Self::Conflict("this idempotency key was already used for a different request; use a new key".to_owned())
    }
}

/// Who asks: what they own, and what their role adds.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    pub user: &'a User,
}

impl Actor<'_> {
    fn owns(self, session: &Session) -> bool {
        session.owner == self.user.id
    }

    /// Operators may see and stop everything.
    fn sees(self, session: &Session) -> bool {
        self.owns(session) || Role::Operator <= self.user.role
    }
}

impl Sessions {
    #[must_use]
    pub fn new(
        admission: Admission,
        scheduler: Arc<dyn Scheduler>,
        apps: Catalogue,
        environments: Environments,
        images: Images,
        config: Config,
    ) -> Arc<Self> {
        let profiles = Profiles::new(config.profiles.clone());
        Arc::new(Self {
            db: admission.db.clone(),
            since: admission.clock.now(),
            clock: admission.clock.clone(),
            admission,
            scheduler,
            apps,
            environments,
            profiles,
            images,
            config,
            routes: Routes::default(),
            live: RwLock::default(),
            busy: Mutex::default(),
            watched: Mutex::default(),
            failing: Mutex::default(),
            quiet_pass: Mutex::default(),
            measuring: hardware::Measuring::default(),
            start_waits: start_waits::start_waits(),
            changes: broadcast::channel(1024).0,
            wake: Notify::new(),
            last: RwLock::default(),
            maintenance: RwLock::default(),
            observed: Mutex::default(),
            tracker: TaskTracker::new(),
            stopping: CancellationToken::new(),
        })
    }

    /// Asks for a session. It is written before anything happens; asked twice with one
    /// idempotency key it is the same session.
    pub async fn start(&self, actor: Actor<'_>, request: StartRequest, key: Option<&str>) -> Result<Session> {
        let hash = request.hash();
        let standing = self.admission.standing(actor.user.id).await?;
        let app = self.chosen_app(actor, &request.app);
        let checked = self.check(actor, app, request, &standing)?;
        self.check_slurm(actor.user, &checked.spec.slurm, &Shape::default()).await?;
        self.check_fit(&checked.spec, &Shape::default().with(&checked.spec.slurm))?;
        self.check_person(actor.user).await?;
        self.check_places(actor.user, &checked).await?;
        let new = NewSession {
            id: self.new_id(&checked.app),
            owner: actor.user.id,
            charged_group: checked.charged_group,
            app: checked.app,
            name: checked.name,
            spec: checked.spec,
            light: checked.light,
            cluster: self.scheduler.cluster().to_owned(),
            idempotency: key.map(|key| (key.to_owned(), hash.clone())),
            job: None,
        };
        let id = match self.admission.insert(&new).await? {
            AdmissionOutcome::Judged(Verdict::Refuse(reasons)) => return Err(self.refusal(reasons).await?),
            AdmissionOutcome::Judged(_) => new.id,
            AdmissionOutcome::Repeated(earlier) if earlier.request_hash == hash => {
                let id = earlier.created_id.parse().map_err(|_err| db::Error::Stored("session id"))?;
                return self.db.find_session(id).await?.ok_or(Error::NotFound);
            }
            AdmissionOutcome::Repeated(_) | AdmissionOutcome::Overtaken => return Err(Error::key_in_use()),
        };
        if let Some(group) = checked.charged_group.filter(|group| standing.billing_groups.chosen != Some(*group)) {
            self.db.choose_charged_group(actor.user.id, group).await?;
        }
        self.changed(id, actor.user.id, false);
        self.db.find_session(id).await?.ok_or(Error::NotFound)
    }

    /// Whether the scheduler could ever run it.
    fn check_fit(&self, spec: &SessionSpec, shape: &Shape) -> Result<()> {
        let objection = self.scheduler.objection(&spec.resources, spec.duration_seconds, shape);
        objection.map_or(Ok(()), |sentence| Err(Error::Conflict(sentence)))
    }

    /// What a refusal means to whoever asked: maintenance refuses for a while, limits for good.
    pub async fn refusal(&self, reasons: Vec<Reason>) -> Result<Error> {
        match reasons.first() {
            Some(reason) if reason.code == Code::Rule(Rule::Maintenance) => {
                let now = self.clock.now();
                let retry_after_seconds = self.db.maintenance().await?.map_or(1, |set| set.retry_after(now));
                Ok(Error::Maintenance { sentence: reason.hint.clone(), retry_after_seconds })
            }
            _ => Ok(Error::Refused(reasons)),
        }
    }

    /// What would be decided about a request, with nothing written.
    pub async fn rehearse(&self, actor: Actor<'_>, request: StartRequest) -> Result<DryRun> {
        let standing = self.admission.standing(actor.user.id).await?;
        let app = self.chosen_app(actor, &request.app);
        let checked = self.check(actor, app, request, &standing)?;
        self.check_slurm(actor.user, &checked.spec.slurm, &Shape::default()).await?;
        self.check_places(actor.user, &checked).await?;
        let shape = Shape::default().with(&checked.spec.slurm);
        let request = lyceum_model::quota::Request {
            duration_seconds: checked.spec.duration_seconds,
            resources: checked.spec.resources,
            class: Class::of(checked.light, false),
        };
        let dry_run = self.admission.rehearse(actor.user.id, checked.charged_group, &request).await?;
        Ok(self.behind_reservations(dry_run, &request.resources, request.duration_seconds, &shape))
    }

    /// Adds to what would be decided that a reservation is in the way. The resources are those of each node.
    pub fn behind_reservations(&self, found: DryRun, each: &Resources, seconds: i64, shape: &Shape) -> DryRun {
        match (&found.verdict, self.scheduler.reserved(each, seconds, shape)) {
            (Verdict::Admit { .. }, Some((reason, at))) => {
                DryRun { verdict: Verdict::Wait(vec![reason]), estimated_start: Some(at) }
            }
            _ => found,
        }
    }

    pub async fn find(&self, actor: Actor<'_>, id: SessionId) -> Result<Session> {
        self.find_workload(actor, id).await.and_then(|found| match found.job {
            None => Ok(found),
            Some(_) => Err(Error::NotFound),
        })
    }

    /// A session, or an attempt of a job.
    pub async fn find_workload(&self, actor: Actor<'_>, id: SessionId) -> Result<Session> {
        match self.db.find_session(id).await? {
            Some(session) if actor.sees(&session) => Ok(session),
            _ => Err(Error::NotFound),
        }
    }

    pub async fn list(&self, filter: Filter<'_>) -> Result<Vec<Session>> {
        Ok(self.db.list_sessions(filter).await?)
    }

    /// Lists sessions, each with the value that the list is sorted by.
    pub async fn list_sorted(&self, filter: Filter<'_>) -> Result<Vec<(Session, String)>> {
        Ok(self.db.list_sessions_sorted(filter).await?)
    }

    pub async fn events(&self, actor: Actor<'_>, id: SessionId, after: i64) -> Result<Vec<Event>> {
        self.find(actor, id).await?;
        Ok(self.db.session_events(id, after).await?)
    }

    /// Asks for the end of a session; one that has ended already is fine.
    pub async fn stop(&self, actor: Actor<'_>, id: SessionId) -> Result<Session> {
        self.find(actor, id).await?;
        self.stop_workload(actor, id).await
    }

    /// Asks for the end of a session, or of an attempt of a job.
    pub async fn stop_workload(&self, actor: Actor<'_>, id: SessionId) -> Result<Session> {
        let session = self.find_workload(actor, id).await?;
        let now = self.clock.now();
        let (reason, message) = if actor.owns(&session) {
            (EndReason::StoppedByOwner, "Stopped by its owner".to_owned())
        } else {
            (EndReason::StoppedByAdmin, format!("Stopped by {}", actor.user.name))
        };
        if session.state.is_live() {
            let by = Some(actor.user.name.as_str());
            let waiting = self.db.end_waiting(id, reason, &[], now, &message, by).await?;
            let changed = waiting || self.db.begin_stop(id, reason, now, &message, by).await?;
            if waiting {
                self.forget(id);
            }
            if changed {
                self.notify(&session, waiting);
                self.wake();
            }
        }
        self.find_workload(actor, id).await
    }

    /// Asks the owner, in the name of an operator, whether they still need GPUs that rest;
    /// `about` says which, and since when. The answer is "keep", "stop", or work.
    pub async fn ask(&self, actor: Actor<'_>, id: SessionId, about: &str) -> Result<Session> {
        let session = self.find_workload(actor, id).await?;
        let now = self.clock.now();
        if !self.db.ask_owner(id, actor.user.name.as_str(), about, now).await? {
            return Err(Error::Conflict(format!(
                "only the owner of a running session can be asked; this one is {}",
                session.state
            )));
        }
        self.notify(&session, false);
        self.find_workload(actor, id).await
    }

    pub async fn rename(&self, actor: Actor<'_>, id: SessionId, name: &str) -> Result<Session> {
        let session = self.own(actor, id).await?;
        let name = parse_name(name).map_err(|fault| Error::Invalid(vec![fault]))?;
        self.db.rename_session(id, &name).await?;
        self.changed(id, session.owner, false);
        self.find(actor, id).await
    }

    pub async fn standing(&self, owner: UserId) -> Result<QuotaStatus> {
        Ok(self.admission.standing(owner).await?)
    }

    /// What is known of a live session besides its row.
    pub fn live(&self, id: SessionId) -> LiveState {
        self.live.read().get(&id).cloned().unwrap_or_default()
    }

    /// Notes that somebody uses it; called for every request that passes the proxy.
    pub fn touch(&self, id: SessionId, at: Timestamp) {
        let before = self.live.read().get(&id).map(|live| live.activity.fetch_max(at.0, Ordering::Relaxed));
        if before == Some(0) {
            // Its owner has come, perhaps for the first time.
            self.wake();
        }
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    pub fn last_run(&self) -> LastRun {
        self.last.read().clone()
    }

    /// Makes the loop look now: after a commit, when an environment is ready, when an agent ended.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// One's own session; an operator's sight is not enough.
    async fn own(&self, actor: Actor<'_>, id: SessionId) -> Result<Session> {
        let session = self.find(actor, id).await?;
        if actor.owns(&session) { Ok(session) } else { Err(Error::NotFound) }
    }

    /// A portal that is not root runs everything as its own account: that is for one person,
    /// unless the configuration says that several trust each other.
    async fn check_person(&self, user: &User) -> Result<()> {
        if !self.config.single_user_mode || self.config.shared_uid {
            return Ok(());
        }
        if admission::is_single_user(&self.db, user.id).await? {
            return Ok(());
        }
        Err(Error::Scheduler(scheduler::Error::Refused(
            "this portal does not run as root, so it serves only one user: the one who started the first session. Run \
             it as root, or set accounts.shared_uid = true if all its users trust each other"
                .to_owned(),
        )))
    }

    /// Something about a session changed that its pages show.
    pub fn announce(&self, session: SessionId, owner: UserId) {
        self.changed(session, owner, false);
    }

    fn changed(&self, session: SessionId, owner: UserId, ended: bool) {
        self.send(Change { session, job: None, owner, ended, told: ended });
        self.wake();
    }

    fn send(&self, change: Change) {
        // Nobody may be listening; that is fine.
        let _ = self.changes.send(change);
    }
}
