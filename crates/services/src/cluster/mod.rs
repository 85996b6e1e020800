//! The machines: what each GPU does, who of the outside world computes on it, which ones are
//! held and rest, and what they did over time. One loop looks again and again: it takes what
//! the scheduler has in memory, tells admission which GPUs must not be given out, and writes
//! the minutes down. Whoever wants to know reads the last [`View`]; nobody waits for a driver.

mod drain;
pub(crate) mod gpu_rest;
mod history;
mod idle_gpus;
mod outsiders;
mod queue;
mod shell_jobs;
mod withheld;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use serde::Deserialize;

use lyceum_db::{self as db, Db, gpus::Span};
use lyceum_model::{
    Clock, Gpu, Loops, Session, SessionId, Timestamp, UserId,
    gpus::{Condition, Driver, GpuProcess, Obstacle, WithheldGpu},
    loops::Round,
    setting::seconds,
};

use crate::{
    admission::{Admission, Bar},
    scheduler::Scheduler,
};
pub use drain::DrainError;
use history::Minutes;
use idle_gpus::IdleGpus;
pub use outsiders::Outsider;
pub use queue::{Error, QueueFilter, VisibleQueue};
pub use withheld::WithholdError;

/// `[gpus]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How often the driver is asked about each GPU (seconds).
    #[serde(deserialize_with = "seconds")]
    pub interval: i64,
    /// GPUs on which programs outside the portal compute are not given out.
    pub avoid_busy: bool,
    /// For how long such a program may come and go before that (seconds).
    #[serde(deserialize_with = "seconds")]
    pub busy_grace: i64,
    /// After how long a GPU that is held and computes next to nothing is listed (seconds).
    #[serde(deserialize_with = "seconds")]
    pub idle_after: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { interval: 5, avoid_busy: true, busy_grace: 30, idle_after: 3600 }
    }
}

impl Config {
    /// Every fault, with its key and the way out.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let ranges = [
            ("gpus.interval: must be between 1s and 1m", (1..=60).contains(&self.interval)),
            ("gpus.busy_grace: must be between 0s and 1h", (0..=3600).contains(&self.busy_grace)),
            ("gpus.idle_after: must be between 1m and 24h", (60..=DAY).contains(&self.idle_after)),
        ];
        ranges.into_iter().filter(|(_, fine)| !fine).map(|(fault, _)| fault.to_owned()).collect()
    }

    /// An answer that is older than this is none (seconds).
    fn patience(&self) -> i64 {
        self.interval * 3 + 5
    }
}

const DAY: i64 = 86_400;
/// After how many seconds the owner of a session is shown that its GPUs are idle.
pub const BRIEFLY: i64 = 60;

/// How long minutes and hours of GPUs are kept (seconds).
pub const MINUTES_KEPT: i64 = DAY;
pub const HOURS_KEPT: i64 = 30 * DAY;

/// The GPUs at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// `None` before the first look.
    pub at: Option<Timestamp>,
    pub driver: Driver,
    /// In the order of the inventory.
    pub gpus: Vec<GpuView>,
    /// Sessions whose GPUs have been idle for `gpus.idle_after`, the longest first.
    pub idle: Vec<IdleSession>,
    /// Sessions whose GPUs have been idle for a full minute, the longest first: what their owners are shown.
    pub briefly_idle: Vec<IdleSession>,
}

/// One GPU, or a slice, at one moment.
#[derive(Clone, Debug)]
pub struct GpuView {
    pub gpu: Gpu,
    /// When the driver said so; `None` where nothing is measured.
    pub at: Option<Timestamp>,
    pub condition: Condition,
    /// Programs that compute on it and belong to nobody who holds it.
    pub outside: Vec<Outsider>,
    /// Whether a session or job holds it.
    pub is_held: bool,
    /// Why it is not given out, if it is free.
    pub obstacle: Option<Obstacle>,
    /// Who keeps it from new work, and why.
    pub withheld: Option<WithheldGpu>,
}

/// Names a session with idle GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleSession {
    pub session: SessionId,
    /// Those that rest; it may hold others that do not.
    pub gpus: Vec<Gpu>,
    /// Since when all of these have.
    pub since: Timestamp,
}

/// Reports a change that other services act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// Other GPUs can be given out than before, or people hold more or less without the portal.
    Room,
    /// The GPUs of a session that was asked about compute again.
    Answered { session: SessionId, owner: UserId },
}

/// Looks at the machines.
pub struct Cluster {
    db: Db,
    clock: Clock,
    scheduler: Arc<dyn Scheduler>,
    admission: Admission,
    config: Config,
    view: RwLock<Arc<View>>,
    memory: Mutex<Memory>,
    shell: tokio::sync::Mutex<shell_jobs::Memory>,
}

/// What one look leaves to the next.
#[derive(Default)]
struct Memory {
    /// Since when outsiders have been on a GPU.
    outside_since: HashMap<String, Timestamp>,
    minutes: Minutes,
    rest: IdleGpus,
    /// What accounts are called.
    names: HashMap<u32, Option<String>>,
    /// When old points were last forgotten.
    swept: Option<Timestamp>,
    /// The minutes from before our start were read.
    recalled: bool,
}

impl Cluster {
    #[must_use]
    pub fn new(admission: Admission, scheduler: Arc<dyn Scheduler>, config: Config) -> Arc<Self> {
        Arc::new(Self {
            db: admission.db.clone(),
            clock: admission.clock.clone(),
            scheduler,
            admission,
            config,
            view: RwLock::default(),
            memory: Mutex::default(),
            shell: tokio::sync::Mutex::default(),
        })
    }

    /// After how long a GPU that is held and computes next to nothing counts as idle (seconds).
    pub fn idle_after(&self) -> i64 {
        self.config.idle_after
    }

    /// The last look.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// Looks for ever; `tell` hears what others should act on.
    pub async fn run(self: Arc<Self>, loops: Loops, tell: impl Fn(ClusterEvent) + Send) {
        let every = Duration::from_secs(self.config.interval.unsigned_abs().max(1));
        loop {
            let round = loops.begin("gpus", Some(every));
            let looked = self.look(&tell, &round).await;
            round.end(&looked);
            if let Err(error) = looked {
                tracing::warn!(error = &error as &dyn std::error::Error, "failed to update the GPU readings");
            }
            tokio::time::sleep(every).await;
        }
    }

    /// One look.
    pub async fn look(&self, tell: &(impl Fn(ClusterEvent) + Send), round: &Round) -> db::Result<()> {
        self.look_elsewhere(tell, round).await?;
        self.recall().await?;
        let now = self.clock.now();
        let watch = self.scheduler.gpu_watch();
        let held: Vec<Session> = self.db.live_sessions().await?;
        let held: Vec<Session> = held.into_iter().filter(|session| !session.gpus.is_empty()).collect();
        let holders = holders(&held);

        let mut withheld: HashMap<String, WithheldGpu> =
            self.db.withheld_gpus().await?.into_iter().map(|one| (one.uuid.clone(), one)).collect();
        let mut gpus = Vec::new();
        for gpu in &self.scheduler.stock().inventory().gpus {
            let condition = watch.condition(&gpu.uuid, now, self.config.patience());
            let holder = holders.get(&*gpu.uuid).copied();
            let outside = match condition.reading().and_then(|reading| reading.processes.as_deref()) {
                Some(processes) if !processes.is_empty() => self.outsiders(processes, holder).await,
                _ => Vec::new(),
            };
            let at = watch.seen.get(&gpu.uuid).map(|seen| seen.at);
            let withheld = withheld.remove(&gpu.uuid);
            let obstacle = match self.obstacle(gpu, &condition, &outside, now) {
                Some(Obstacle::Down) => Some(Obstacle::Down),
                _ if withheld.is_some() => Some(Obstacle::Withheld),
                other => other,
            };
            let (gpu, is_held) = (gpu.clone(), holder.is_some());
            gpus.push(GpuView { gpu, at, condition, outside, is_held, obstacle, withheld });
        }
        let bars: BTreeMap<String, Bar> = gpus
            .iter()
            .filter_map(|view| {
                let is_held = holders.contains_key(&*view.gpu.uuid);
                Some((view.gpu.uuid.clone(), Bar { obstacle: view.obstacle?, is_held }))
            })
            .collect();
        if self.admission.blocked_gpus.set(bars) {
            tell(ClusterEvent::Room);
        }
        // A minute that is over counts before anybody is said to rest.
        let points = {
            let mut memory = self.memory.lock();
            for view in &gpus {
                if let (Some(at), Some(reading)) = (view.at, view.condition.reading()) {
                    memory.minutes.add(&view.gpu.uuid, at, reading);
                }
            }
            let points = memory.minutes.take(now);
            for point in &points {
                memory.rest.note(point);
            }
            points
        };
        let idle = self.idle(&held, &gpus, self.config.idle_after);
        let briefly_idle = self.idle(&held, &gpus, BRIEFLY);
        // What cannot be measured now has answered nothing.
        let measured = measured(&gpus);
        let is_measured = |own: &Gpu| measured.contains(&*own.uuid);
        let has_answered = |session: &&Session| {
            let rests = idle.iter().any(|idle| idle.session == session.id);
            session.asked.is_some() && !rests && watch.asking.is_none() && session.gpus.iter().all(is_measured)
        };
        let answered: Vec<&Session> = held.iter().filter(has_answered).collect();
        *self.view.write() = Arc::new(View { at: Some(now), driver: watch.driver, gpus, idle, briefly_idle });
        if !points.is_empty() {
            self.db.add_gpu_points(&points).await?;
        }
        for session in answered {
            if self.db.answer_ask(session.id).await? {
                tell(ClusterEvent::Answered { session: session.id, owner: session.owner });
            }
        }
        self.sweep(now).await
    }

    /// The minutes from before our start say since when GPUs rest.
    async fn recall(&self) -> db::Result<()> {
        if self.memory.lock().recalled {
            return Ok(());
        }
        let now = self.clock.now();
        let from = now.plus_seconds(-self.config.idle_after - 2 * Span::Minute.seconds());
        let points = self.db.gpu_points(Span::Minute, from, now).await?;
        let mut memory = self.memory.lock();
        for point in &points {
            memory.rest.note(point);
        }
        memory.recalled = true;
        Ok(())
    }

    /// Who computes on a GPU and does not belong to the session that holds it.
    async fn outsiders(&self, processes: &[GpuProcess], holder: Option<&Session>) -> Vec<Outsider> {
        let own: Option<BTreeSet<u32>> = match holder.and_then(|session| Some((session, session.placement.as_ref()?))) {
            Some((session, placement)) => self.scheduler.processes(session.id, placement).await,
            None => Some(BTreeSet::new()),
        };
        let mut outsiders = Vec::new();
        for process in outsiders::outsiders_of(processes, holder.is_some(), own.as_ref()) {
            let unix_name = match process.uid {
                Some(uid) => self.unix_name(uid).await,
                None => None,
            };
            outsiders.push(Outsider {
                pid: process.pid,
                uid: process.uid,
                unix_name,
                memory_bytes: process.memory_bytes,
            });
        }
        outsiders
    }

    async fn unix_name(&self, uid: u32) -> Option<String> {
        if let Some(known) = self.memory.lock().names.get(&uid) {
            return known.clone();
        }
        let name = self.scheduler.unix_name(uid).await;
        self.memory.lock().names.insert(uid, name.clone());
        name
    }

    fn obstacle(&self, gpu: &Gpu, condition: &Condition, outside: &[Outsider], now: Timestamp) -> Option<Obstacle> {
        if let Condition::Down(_) = condition {
            return Some(Obstacle::Down);
        }
        let is_first_look = self.view.read().at.is_none();
        let mut memory = self.memory.lock();
        if outside.is_empty() {
            memory.outside_since.remove(&gpu.uuid);
            return None;
        }
        // Who is there at our start was there before.
        let begin = if is_first_look { now.plus_seconds(-self.config.busy_grace) } else { now };
        let since = *memory.outside_since.entry(gpu.uuid.clone()).or_insert(begin);
        (self.config.avoid_busy && self.config.busy_grace <= now.seconds_since(since)).then_some(Obstacle::Outside)
    }

    fn idle(&self, held: &[Session], gpus: &[GpuView], seconds: i64) -> Vec<IdleSession> {
        let memory = self.memory.lock();
        let measured = measured(gpus);
        let rests = |session: &Session, own: &Gpu| {
            let is_up = measured.contains(&*own.uuid);
            let since = memory.rest.since(&own.uuid, session.admitted_at?, seconds)?;
            is_up.then_some(since)
        };
        let mut idle: Vec<IdleSession> = held
            .iter()
            .filter(|session| session.state.is_live() && session.is_admitted())
            .filter_map(|session| {
                let resting = session.gpus.iter().filter_map(|own| Some((own.clone(), rests(session, own)?)));
                let (gpus, since): (Vec<Gpu>, Vec<Timestamp>) = resting.unzip();
                Some(IdleSession { session: session.id, gpus, since: since.into_iter().max()? })
            })
            .collect();
        idle.sort_by_key(|idle| (idle.since, idle.session));
        idle
    }

    /// Forgets what is too old, once an hour.
    async fn sweep(&self, now: Timestamp) -> db::Result<()> {
        let is_due = self.memory.lock().swept.is_none_or(|swept| now.seconds_since(swept) >= 3600);
        if is_due {
            let (minutes, hours) = (now.plus_seconds(-MINUTES_KEPT), now.plus_seconds(-HOURS_KEPT));
            self.db.forget_gpu_points(minutes, hours).await?;
            self.memory.lock().swept = Some(now);
        }
        Ok(())
    }
}

/// Who holds which GPU, by its UUID.
#[must_use]
pub fn holders(sessions: &[Session]) -> HashMap<&str, &Session> {
    sessions.iter().flat_map(|session| session.gpus.iter().map(move |gpu| (&*gpu.uuid, session))).collect()
}

/// The UUIDs of those of which something is measured.
fn measured(gpus: &[GpuView]) -> HashSet<&str> {
    gpus.iter().filter(|view| view.condition.reading().is_some()).map(|view| &*view.gpu.uuid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_within_reason() {
        assert_eq!(Config::default().validate(), Vec::<String>::new());
        let faults = Config { interval: 0, busy_grace: -1, idle_after: 5, ..Config::default() }.validate();
        assert_eq!(faults.len(), 3, "{faults:?}");
    }
}
