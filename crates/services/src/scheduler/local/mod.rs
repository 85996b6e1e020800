//! The local scheduler: workloads on this machine, started through the helper (or in-process
//! by a portal that is not root). It remembers nothing that a restart would lose: what runs
//! is in the placement files and in the kernel. Whether somebody may have what they ask for
//! was decided before.

mod accounts;
pub(super) mod exit;
mod machine;
mod metering;
mod rates;
mod transport;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::io::{Interest, unix::AsyncFd};

pub use self::machine::capacity;
use self::rates::{Demanded, most_eager};
use super::{BatchQueue, ClusterInfo, Error, Exit, GpuUse, Launch, LifeCycle, ListedWorkloads, Observation, Result};
use lyceum_model::{
    Capacity, Clock, EndReason, Gpu, GpuInventory, Inventory, SessionId, health::NoScheduler, session::Placement,
};
use lyceum_node::helper::{
    self,
    cgroup::{self, Hierarchy},
    client::Launcher,
    placement,
    process::{self, Life},
};
use lyceum_wire::protocol::{
    AgentLaunch, ExitRecord, HelperAnswer, HelperRequest, LaunchRequest, Limits, PROTOCOL, files,
};
use lyceum_wire::run_directory;

use crate::gpu;

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

/// What is read of an exit record at most, and of its sentence.
const MAX_EXIT_RECORD: u64 = 16 * 1024;

/// Workloads on this machine. A copy is another handle on the same scheduler.
#[derive(Clone, Debug)]
pub struct Local {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    stock: Inventory,
    gpus: gpu::DriverThread,
    /// What each session's threads had demanded when they were last looked at.
    demanded: Mutex<HashMap<SessionId, Demanded>>,
    /// The processes of this machine, and when they were read.
    table: Mutex<Option<(Instant, Arc<process::Table>)>>,
    /// Each session's CPU time when it was last sampled.
    sampled: Mutex<HashMap<SessionId, (Instant, u64)>>,
}

/// What threads demanded in less time than this would be chance.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// How old what is known of this machine's processes may be when one looks who works: many
/// sessions are looked at one after another, and each of them would read about all.
const TABLE_AGE: Duration = Duration::from_secs(1);

impl Local {
    /// Refuses a base directory whose run directories would have too long a path.
    pub fn new(config: Config) -> Result<Self> {
        let length = config.run.as_os_str().len() + 1 + 16;
        if length > MAX_RUN_DIRECTORY {
            return Err(Error::Refused(format!(
                "paths of run directories below {} would have {length} bytes, but sockets allow at most \
                 {MAX_RUN_DIRECTORY}: choose a base directory with a path that is {} bytes shorter",
                config.run.display(),
                length - MAX_RUN_DIRECTORY
            )));
        }
        let gpus = gpu::DriverThread::open(config.nvml.as_ref());
        let uuids = config.inventory.gpus.iter().filter(|_| config.inventory.driver).map(|gpu| gpu.uuid.clone());
        gpus.follow(config.nvml.as_deref(), uuids.collect(), config.gpu_interval, config.clock.clone());
        let (demanded, table, sampled) = Default::default();
        let stock = Inventory::new(config.capacity, config.inventory.clone());
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
            gpus: None,
        };
        let agent = serde_json::to_value(agent)
            .map_err(|err| Error::Refused(format!("failed to write the app's settings: {err}")))?;
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
        process::pause(MIN_SAMPLE_INTERVAL.saturating_sub(before.0.elapsed()));
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
            Err(err) => return Observation::Unknown(format!("failed to read the boot ID: {err}")),
        };
        if boot != placement.boot_id {
            return match process::node() {
                Ok(node) if node == placement.node => Observation::Ended(Exit {
                    reason: Some(EndReason::HostRebooted),
                    exit_code: None,
                    signal: None,
                    ended_at: self.config.clock.now(),
                    detail: format!("{node} was rebooted"),
                }),
                _ => Observation::Unknown(format!("it was started on another machine, {}", placement.node)),
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
                let killed = cgroup::oom_kills(&self.groups(session)) > 0;
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
impl ClusterInfo for Local {
    fn cluster(&self) -> &'static str {
        "local"
    }

    fn stock(&self) -> &Inventory {
        &self.shared.stock
    }
}

#[async_trait]
impl LifeCycle for Local {
    fn trouble(&self) -> Option<NoScheduler> {
        (!self.shared.config.launcher.is_there()).then_some(NoScheduler::HelperEnded)
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
        Ok(blocking(move || read().map_err(doing("failed to read a placement"))).await?.map(|record| record.placement))
    }

    async fn list(&self) -> Result<ListedWorkloads> {
        let this = Arc::clone(&self.shared);
        let list = move || placement::list(&this.config.placements).map_err(doing("failed to read the placements"));
        let (sessions, unreadable) = blocking(list).await?;
        Ok(ListedWorkloads { sessions, unreadable })
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
}

impl BatchQueue for Local {}

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
        Err(_) => Err(Error::Unavailable("this machine does not respond".to_owned())),
    }
}

fn unexpected(answer: &HelperAnswer) -> Error {
    Error::Unavailable(format!("unexpected response from the helper: {answer:?}"))
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

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::Gpu;

    #[test]
    fn gpus_are_named_as_cuda_understands() {
        let gpu = |index: i64| Gpu { index, uuid: format!("GPU-{index}"), model: "m".to_owned(), slice: None };
        let value = |gpus: &[Gpu], driver| gpu_environment(gpus, driver)[1].1.clone();
        assert_eq!(value(&[gpu(0), gpu(3)], true), "GPU-0,GPU-3");
        assert_eq!(value(&[gpu(0), gpu(3)], false), "0,3");
        assert_eq!(value(&[], true), "");
    }
}
