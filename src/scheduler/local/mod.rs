//! The local scheduler: workloads on this machine, started through the helper (or in-process
//! by a portal that is not root). It remembers nothing that a restart would lose: what runs
//! is in the placement files and in the kernel. Whether somebody may have what they ask for
//! was decided before.

pub(super) mod exit;
mod machine;
mod rates;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tokio::io::{Interest, unix::AsyncFd};

pub use self::machine::capacity;
use self::rates::{Demanded, busy_cpus, most_eager};
use super::{
    Account, Error, Exit, GpuUse, Launch, Listed, NodeReading, Observation, Person, PortalUser, Result, Scheduler, link,
};
use crate::{
    dial::Endpoint,
    gpu,
    helper::{
        self,
        cgroup::{self, Hierarchy},
        client::Launcher,
        identity::{self, Identity},
        placement,
        process::{self, Life},
    },
    model::{
        Capacity, Clock, EndReason, Gpu, GpuInventory, GpuWatch, SessionId, Stock, health::NoScheduler,
        session::Placement,
    },
    protocol::{
        AgentLaunch, AgentStatus, Errand, ExitRecord, Found, HelperAnswer, HelperRequest, LaunchRequest, Limits,
        PROTOCOL, Sample, files, log::Log,
    },
    run_directory,
};

/// What the local scheduler works with.
#[derive(Debug)]
pub struct Config {
    pub launcher: Arc<Launcher>,
    pub capacity: Capacity,
    pub inventory: GpuInventory,
    /// Another place for the GPU driver's library than the system's own.
    pub nvml: Option<PathBuf>,
    /// How often it is asked about each GPU.
    pub gpu_interval: Duration,
    /// As handed to the helper: `start` knows all four.
    pub run: PathBuf,
    pub placements: PathBuf,
    pub hierarchy: Hierarchy,
    pub service_uid: u32,
    /// From SIGTERM to SIGKILL.
    pub grace_seconds: u64,
    pub clock: Clock,
}

/// From SIGTERM to SIGKILL, unless somebody says otherwise.
pub const GRACE_SECONDS: u64 = 30;

/// How often the driver is asked about each GPU, unless somebody says otherwise.
pub const GPU_INTERVAL: Duration = Duration::from_secs(5);

/// The longest run directory, in bytes: Jupyter's kernels add 50, and a socket's path has 107.
pub const MAX_RUN_DIRECTORY: usize = 57;

/// Longer than the helper's own patience with each errand.
fn errand_timeout(errand: &Errand) -> Duration {
    Duration::from_secs(match errand {
        Errand::Directory { .. } | Errand::Environment { .. } => 8,
        Errand::Overlays | Errand::RemoveRunDirectory { .. } => 25,
        Errand::ResetOverlay { .. } => 130,
    })
}

/// Before the helper is asked again about a file system that has not answered.
const ERRAND_PAUSE: Duration = Duration::from_millis(50);

/// What is read of an exit record at most, and of its sentence.
const MAX_EXIT_RECORD: u64 = 16 * 1024;

/// Workloads on this machine. A copy is another handle on the same scheduler.
#[derive(Clone, Debug)]
pub struct Local {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    stock: Stock,
    gpus: gpu::Watch,
    /// What each session's threads had demanded when they were last looked at.
    demanded: Mutex<HashMap<SessionId, Demanded>>,
    /// The processes of this machine, and when they were read.
    table: Mutex<Option<(Instant, Arc<process::Table>)>>,
    /// Each session's CPU time when it was last sampled.
    sampled: Mutex<HashMap<SessionId, (Instant, u64)>>,
}

/// What threads demanded in less time than this would be chance.
const SHORTEST_LOOK: Duration = Duration::from_secs(1);

/// How old what is known of this machine's processes may be when one looks who works: many
/// sessions are looked at one after another, and each of them would read about all.
const TABLE_AGE: Duration = Duration::from_secs(1);

impl Local {
    /// Refuses a base directory whose run directories would have too long a path.
    pub fn new(config: Config) -> Result<Self> {
        let length = config.run.as_os_str().len() + 1 + 16;
        if MAX_RUN_DIRECTORY < length {
            return Err(Error::Refused(format!(
                "run directories below {} would have {length} bytes in their path, and programs need {MAX_RUN_DIRECTORY} \
                 or fewer for their sockets: choose a base directory that is {} bytes shorter",
                config.run.display(),
                length - MAX_RUN_DIRECTORY
            )));
        }
        let gpus = gpu::Watch::open(config.nvml.as_ref());
        let uuids = config.inventory.gpus.iter().filter(|_| config.inventory.driver).map(|gpu| gpu.uuid.clone());
        gpus.follow(config.nvml.as_deref(), uuids.collect(), config.gpu_interval, config.clock.clone());
        let (demanded, table, sampled) = Default::default();
        let stock = Stock::new(config.capacity, config.inventory.clone());
        Ok(Self { shared: Arc::new(Shared { config, stock, gpus, demanded, table, sampled }) })
    }

    /// Asks the launcher on a thread that may wait. The request is carried out whole even
    /// when the caller is dropped meanwhile.
    async fn helper(&self, request: HelperRequest) -> Result<HelperAnswer> {
        let this = Arc::clone(&self.shared);
        blocking(move || this.config.launcher.ask(request).map_err(Error::from)).await
    }

    async fn ask_done(&self, request: HelperRequest) -> Result<()> {
        match self.helper(request).await? {
            HelperAnswer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

impl Shared {
    fn groups(&self, session: SessionId) -> Vec<PathBuf> {
        match placement::read(&self.config.placements, session) {
            Ok(Some(record)) => record.cgroups,
            _ => self.config.hierarchy.groups(&session.short()),
        }
    }

    /// The person's rights are checked again by name; the limits are what was admitted.
    fn request(&self, launch: Launch) -> Result<HelperRequest> {
        let limits = Limits {
            cpus: launch.resources.cpus,
            memory_bytes: launch.resources.memory_bytes,
            processes: 4096.max(launch.resources.cpus.saturating_mul(512)),
        };
        let mut app = launch.app;
        app.environment.extend(gpu_environment(&launch.gpus, self.config.inventory.driver));
        let agent = AgentLaunch {
            protocol: PROTOCOL,
            session: launch.session,
            run_directory: self.config.run.join(launch.session.short()),
            portal_uid: self.config.service_uid,
            app,
            limits: limits.clone(),
            sampled: self.config.hierarchy.is_sampled(),
            cgroups: self.config.hierarchy.groups(&launch.session.short()),
            grace_seconds: self.config.grace_seconds,
            home: launch.home,
            node: None,
            inherits: Vec::new(),
            surroundings: None,
        };
        let agent = serde_json::to_value(agent).map_err(|err| Error::Refused(format!("the app's settings: {err}")))?;
        Ok(HelperRequest::Launch(LaunchRequest {
            session: launch.session,
            unix_name: launch.person.unix_name,
            limits,
            devices: self.config.inventory.access(&launch.gpus),
            agent,
        }))
    }

    /// The session's processes, told by its groups, and by descent where it has none.
    fn processes(&self, session: SessionId, placement: &Placement) -> std::io::Result<BTreeSet<i32>> {
        let groups = self.groups(session);
        if !groups.is_empty() {
            return cgroup::processes(&groups);
        }
        // Whoever comes while somebody reads waits for what they read.
        let mut table = self.table.lock();
        let known = table.as_ref().filter(|(read, _)| read.elapsed() < TABLE_AGE).map(|(_, known)| Arc::clone(known));
        let known = match known {
            Some(known) => known,
            None => Arc::clone(&table.insert((Instant::now(), Arc::new(process::Table::read()?))).1),
        };
        drop(table);
        Ok(known.of_session(session, Some(placement)))
    }

    fn eagerness(&self, session: SessionId, placement: &Placement) -> Option<f64> {
        let measure = || Some((Instant::now(), process::demands(&self.processes(session, placement).ok()?)));
        let known = self.demanded.lock().get(&session).cloned();
        let before = known.or_else(measure)?;
        process::pause(SHORTEST_LOOK.saturating_sub(before.0.elapsed()));
        let now = measure()?;
        let share = most_eager(&before, &now);
        self.demanded.lock().insert(session, now);
        share
    }

    /// A process that the driver names and nobody here can see may be anybody's: it counts.
    fn gpu_use(&self, session: SessionId, placement: &Placement, gpus: &[Gpu]) -> GpuUse {
        let Ok(processes) = self.processes(session, placement) else { return GpuUse::Unknown };
        let counts = |pid: u32| {
            let known = i32::try_from(pid).is_ok_and(|pid| processes.contains(&pid));
            known || !Path::new("/proc").join(pid.to_string()).exists()
        };
        self.gpus.busy(gpus, counts).map_or(GpuUse::Unknown, GpuUse::Percent)
    }

    fn look(&self, session: SessionId, placement: &Placement) -> Observation {
        self.config.launcher.reap();
        let boot = match process::boot_id() {
            Ok(boot) => boot,
            Err(err) => return Observation::Unknown(format!("the boot id cannot be read: {err}")),
        };
        if boot != placement.boot_id {
            return match process::node() {
                Ok(node) if node == placement.node => Observation::Ended(Exit {
                    reason: Some(EndReason::HostRebooted),
                    exit_code: None,
                    signal: None,
                    ended_at: self.config.clock.now(),
                    detail: format!("{node} was restarted"),
                }),
                _ => Observation::Unknown(format!("it was started on {}, which is another machine", placement.node)),
            };
        }
        // The allocation was held until we noticed, and no other clock is ours.
        let now = self.config.clock.now();
        match process::life(placement) {
            // Without it nothing reaches the session any more; what still runs is ended with it.
            Life::Alive(_) | Life::Dead if self.has_lost_its_directory(placement) => {
                Observation::Ended(exit::directory_gone(&placement.run_directory, now))
            }
            Life::Alive(_) => Observation::Alive,
            Life::Unknown(why) => Observation::Unknown(why),
            Life::Dead => {
                let killed = 0 < cgroup::oom_kills(&self.groups(session));
                Observation::Ended(exit::judge(killed, self.exit_record(placement), now))
            }
        }
    }

    /// Whether somebody removed its run directory: a clean end leaves it until the session has ended.
    fn has_lost_its_directory(&self, placement: &Placement) -> bool {
        let looked = self.own_run_directory(placement).map(std::fs::symlink_metadata);
        looked.is_some_and(|looked| looked.is_err_and(|err| err.kind() == std::io::ErrorKind::NotFound))
    }

    /// What the agent wrote last, if it can be made sense of: its user may have written it.
    fn exit_record(&self, placement: &Placement) -> Option<ExitRecord> {
        let directory = self.own_run_directory(placement)?;
        let text = run_directory::read(directory, files::EXIT, MAX_EXIT_RECORD).ok()??;
        serde_json::from_slice(&text).ok()
    }

    /// A placement's run directory, if it is one of ours: the row it comes from is older
    /// than this process and may be somebody's backup.
    fn own_run_directory<'a>(&self, placement: &'a Placement) -> Option<&'a Path> {
        let directory = Path::new(&placement.run_directory);
        (directory.parent() == Some(&self.config.run)).then_some(directory)
    }
}

#[async_trait]
impl Scheduler for Local {
    fn cluster(&self) -> &'static str {
        "local"
    }

    fn stock(&self) -> &Stock {
        &self.shared.stock
    }

    fn trouble(&self) -> Option<NoScheduler> {
        (!self.shared.config.launcher.is_there()).then_some(NoScheduler::HelperEnded)
    }

    async fn person(&self, user: &PortalUser) -> Result<Person> {
        if !self.shared.config.launcher.changes_user() {
            let own = blocking(|| identity::own().map_err(Error::from)).await?;
            return match &user.account {
                Account::Named(name) if *name != own.name => Err(Error::Refused(format!(
                    "this portal was not started by root: it runs everything as `{}`, not as `{name}`",
                    own.name
                ))),
                _ => Ok(own.into()),
            };
        }
        let (unix_name, spelled) = match &user.account {
            Account::Named(name) => (name.clone(), None),
            Account::Hosts { spelled, .. } => (user.name.clone(), spelled.clone()),
            Account::Made => match self.helper(HelperRequest::Account { name: user.name.clone() }).await? {
                HelperAnswer::Account { unix_name } => (unix_name, None),
                other => return Err(unexpected(&other)),
            },
        };
        let looked_up = move || match spelled {
            Some(spelled) if identity::is_known(&spelled) => Identity::look_up(&spelled),
            _ => Identity::look_up(&unix_name),
        };
        let person = blocking(move || looked_up().map(Person::from).map_err(Error::from)).await?;
        match user.account {
            Account::Hosts { uid: Some(uid), .. } if uid != person.uid => Err(Error::Refused(format!(
                "the directory says that `{}` has the uid {uid}, and this machine says {}: an administrator must make \
                 them agree",
                person.unix_name, person.uid
            ))),
            _ => Ok(person),
        }
    }

    async fn errand(&self, person: &Person, errand: Errand) -> Result<Found> {
        let end = tokio::time::Instant::now() + errand_timeout(&errand);
        loop {
            let request = HelperRequest::Errand { unix_name: person.unix_name.clone(), errand: errand.clone() };
            let is_over = end <= tokio::time::Instant::now();
            match self.helper(request).await {
                Ok(HelperAnswer::Found { found }) => return Ok(found),
                Ok(HelperAnswer::Looking) if is_over => return Ok(Found::Silent),
                Ok(HelperAnswer::Looking) => tokio::time::sleep(ERRAND_PAUSE).await,
                // Many requests of one person that come together take turns.
                Err(Error::Unavailable(_)) if !is_over && self.shared.config.launcher.is_there() => {
                    tokio::time::sleep(ERRAND_PAUSE).await;
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(error) => return Err(error),
            }
        }
    }

    fn run_directory(&self, session: SessionId) -> PathBuf {
        self.shared.config.run.join(session.short())
    }

    async fn launch(&self, launch: Launch) -> Result<Placement> {
        match self.helper(self.shared.request(launch)?).await? {
            HelperAnswer::Placed { placement } => Ok(placement),
            other => Err(unexpected(&other)),
        }
    }

    async fn find(&self, session: SessionId) -> Result<Option<Placement>> {
        let this = Arc::clone(&self.shared);
        let read = move || placement::read(&this.config.placements, session);
        Ok(blocking(move || read().map_err(doing("reading a placement"))).await?.map(|record| record.placement))
    }

    async fn list(&self) -> Result<Listed> {
        let this = Arc::clone(&self.shared);
        let list = move || placement::list(&this.config.placements).map_err(doing("reading the placements"));
        let (sessions, unreadable) = blocking(list).await?;
        Ok(Listed { sessions, unreadable })
    }

    async fn observe(&self, session: SessionId, placement: &Placement) -> Observation {
        let (this, placement) = (Arc::clone(&self.shared), placement.clone());
        blocking(move || Ok(this.look(session, &placement)))
            .await
            .unwrap_or_else(|err| Observation::Unknown(err.to_string()))
    }

    async fn wait_end(&self, _session: SessionId, placement: &Placement) {
        let Life::Alive(handle) = process::life(placement) else { return };
        // A process handle is readable from the moment its process has ended.
        if let Ok(handle) = watch(handle) {
            let _ = handle.readable().await;
        }
    }

    async fn events(&self, _session: SessionId, placement: &Placement) -> Result<BoxStream<'static, AgentStatus>> {
        link::events(&socket(placement, files::AGENT_SOCKET), placement.uid).await
    }

    async fn ask(
        &self,
        _session: SessionId,
        placement: &Placement,
        socket: &str,
        path: &str,
        authorization: Option<&str>,
    ) -> Result<Option<Vec<u8>>> {
        link::ask(&self::socket(placement, socket), placement.uid, path, authorization).await
    }

    async fn curves(
        &self,
        _session: SessionId,
        placement: &Placement,
        directory: &str,
        places: Bytes,
    ) -> Result<BoxStream<'static, Bytes>> {
        link::curves(&socket(placement, files::AGENT_SOCKET), placement.uid, directory, places).await
    }

    async fn eagerness(&self, session: SessionId, placement: &Placement) -> Option<f64> {
        let (this, placement) = (Arc::clone(&self.shared), placement.clone());
        blocking(move || Ok(this.eagerness(session, &placement))).await.ok()?
    }

    async fn gpu_use(&self, session: SessionId, placement: &Placement, gpus: &[Gpu]) -> GpuUse {
        if gpus.is_empty() || !self.shared.config.inventory.driver {
            return GpuUse::Unmeasured;
        }
        let (this, placement, gpus) = (Arc::clone(&self.shared), placement.clone(), gpus.to_vec());
        blocking(move || Ok(this.gpu_use(session, &placement, &gpus))).await.unwrap_or(GpuUse::Unknown)
    }

    fn gpu_watch(&self) -> GpuWatch {
        self.shared.gpus.latest()
    }

    fn closes_gpus(&self) -> bool {
        let Config { hierarchy, inventory, .. } = &self.shared.config;
        hierarchy.closes_devices() && !inventory.devices.is_empty()
    }

    async fn processes(&self, session: SessionId, placement: &Placement) -> Option<BTreeSet<u32>> {
        let (this, placement) = (Arc::clone(&self.shared), placement.clone());
        let found = blocking(move || this.processes(session, &placement).map_err(doing("listing processes"))).await;
        found.ok().map(|pids| pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect())
    }

    async fn unix_name(&self, uid: u32) -> Option<String> {
        blocking(move || Ok(identity::name_of(uid))).await.ok()?
    }

    async fn node(&self) -> NodeReading {
        blocking(|| Ok(machine::reading())).await.unwrap_or_default()
    }

    fn grace_seconds(&self) -> i64 {
        i64::try_from(self.shared.config.grace_seconds).unwrap_or(i64::MAX)
    }

    async fn terminate(&self, session: SessionId, _placement: &Placement) -> Result<()> {
        self.ask_done(HelperRequest::Terminate { session }).await
    }

    async fn kill(&self, session: SessionId, _placement: Option<&Placement>) -> Result<()> {
        self.ask_done(HelperRequest::Kill { session }).await
    }

    async fn clean(&self, session: SessionId) -> Result<()> {
        self.shared.sampled.lock().remove(&session);
        self.shared.demanded.lock().remove(&session);
        self.ask_done(HelperRequest::Clean { session }).await
    }

    async fn sample(&self, session: SessionId, _placement: &Placement) -> Option<Sample> {
        let this = Arc::clone(&self.shared);
        let usage = blocking(move || Ok(cgroup::usage(&this.groups(session)))).await.ok()??;
        let now = (Instant::now(), usage.cpu_nanoseconds);
        let before = self.shared.sampled.lock().insert(session, now);
        Some(Sample { memory_bytes: usage.memory_bytes, cpus: busy_cpus(before, now), processes: usage.processes })
    }

    async fn log(&self, _session: SessionId, placement: &Placement) -> Result<Option<Log>> {
        let (this, placement) = (Arc::clone(&self.shared), placement.clone());
        blocking(move || {
            let Some(directory) = this.own_run_directory(&placement) else { return Ok(None) };
            let file = run_directory::open(directory, files::LOG).map_err(doing("reading the log"))?;
            file.map(Log::new).transpose().map_err(doing("reading the log"))
        })
        .await
    }
}

/// A socket of the workload's.
fn socket(placement: &Placement, name: &str) -> Endpoint {
    Endpoint::Socket(Path::new(&placement.run_directory).join(name).into())
}

#[expect(deprecated, reason = "its successor is unsafe; an owned descriptor keeps what that one wants promised")]
fn watch(handle: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(handle, Interest::READABLE)
}

/// How a program learns which GPUs are its own. An empty list hides them all.
fn gpu_environment(gpus: &[Gpu], driver: bool) -> [(String, String); 2] {
    let names: Vec<String> =
        gpus.iter().map(|gpu| if driver { gpu.uuid.clone() } else { gpu.index.to_string() }).collect();
    // CUDA's own order differs from the one that indices count in.
    [("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()), ("CUDA_VISIBLE_DEVICES", names.join(","))]
        .map(|(name, value)| (name.to_owned(), value))
}

/// Longer than the launcher's own patience, so that its sentence is the one that is seen.
const BLOCKING_TIMEOUT: Duration = Duration::from_mins(2);

/// Runs what may block on a thread of its own. What hangs (a user's mount, a name service)
/// keeps that thread, but never the caller.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::time::timeout(BLOCKING_TIMEOUT, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(result)) => result,
        Ok(Err(err)) => Err(Error::Unavailable(format!("a task failed: {err}"))),
        Err(_) => Err(Error::Unavailable("this machine does not answer".to_owned())),
    }
}

fn unexpected(answer: &HelperAnswer) -> Error {
    Error::Unavailable(format!("the helper answered something else: {answer:?}"))
}

fn doing(what: &str) -> impl FnOnce(std::io::Error) -> Error {
    let doing = what.to_owned();
    move |source| Error::Io { doing, source }
}

impl From<helper::Error> for Error {
    fn from(err: helper::Error) -> Self {
        match err {
            helper::Error::Refused(sentence) => Self::Refused(sentence),
            helper::Error::Busy(sentence) => Self::Unavailable(sentence),
            helper::Error::Io { doing, source } => Self::Io { doing, source },
        }
    }
}

impl From<Identity> for Person {
    fn from(identity: Identity) -> Self {
        let Identity { name, uid, gid, home, shell, .. } = identity;
        Self { unix_name: name, uid, gid, home, shell }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Gpu;

    #[test]
    fn gpus_are_named_as_cuda_understands() {
        let gpu = |index: i64| Gpu { index, uuid: format!("GPU-{index}"), model: "m".to_owned(), slice: None };
        let value = |gpus: &[Gpu], driver| gpu_environment(gpus, driver)[1].1.clone();
        assert_eq!(value(&[gpu(0), gpu(3)], true), "GPU-0,GPU-3");
        assert_eq!(value(&[gpu(0), gpu(3)], false), "0,3");
        assert_eq!(value(&[], true), "");
    }
}
