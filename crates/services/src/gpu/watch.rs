//! The driver, kept open to be asked what GPUs do. One thread asks about each of them in turn,
//! again and again, and leaves the answers in memory: whoever wants one reads it there, with
//! its age, and a driver that hangs holds up that thread alone. How busy a workload's own
//! processes were is asked for as it is needed, by one caller at a time.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use nvml_wrapper::{Device, Nvml, error::NvmlError};
use parking_lot::Mutex;

use super::driver::{self, LIBRARY, OpenOutcome};
use lyceum_model::{
    Clock, Gpu, GpuWatch,
    gpus::{Driver, LastReading},
};

/// Whoever cannot ask within this time goes without an answer: somebody else's call hangs.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The driver and what it said. Dropping it ends the thread at its next turn.
#[derive(Default)]
pub struct DriverThread {
    nvml: Option<Box<Nvml>>,
    /// Up to when each GPU's samples were read (the driver's own microseconds).
    read_to: Mutex<HashMap<String, u64>>,
    latest: Arc<Mutex<GpuWatch>>,
}

impl DriverThread {
    /// Without a driver, nothing is ever measured.
    pub fn open(library: Option<&PathBuf>) -> Self {
        let absent = |why| {
            let library = library.map_or_else(|| LIBRARY.to_owned(), |path| path.display().to_string());
            (None, Driver::Absent { library, why })
        };
        let (nvml, driver) = match driver::open(library.map(PathBuf::as_path)) {
            Ok(OpenOutcome::Driver(nvml)) => {
                let version = nvml.sys_driver_version().unwrap_or_default();
                (Some(nvml), Driver::Present { version })
            }
            Ok(OpenOutcome::None(why)) => absent(why),
            Err(error) => absent(error.to_string()),
        };
        let latest = Arc::new(Mutex::new(GpuWatch { driver, ..GpuWatch::default() }));
        Self { nvml, read_to: Mutex::default(), latest }
    }

    /// From now on these GPUs (UUIDs) are looked at, each again after `every`.
    pub fn follow(&self, library: Option<&Path>, uuids: Vec<String>, every: Duration, clock: Clock) {
        if self.nvml.is_none() || uuids.is_empty() {
            return;
        }
        let latest = Arc::downgrade(&self.latest);
        let library = library.map(Path::to_owned);
        let look = move || {
            let mut xids = HashMap::new();
            // It is opened anew where all are lost: what was opened before its driver was replaced does not come back.
            while let Some(first) = latest.upgrade() {
                let nvml = match driver::open(library.as_deref()) {
                    Ok(OpenOutcome::Driver(nvml)) => Some(nvml),
                    Ok(OpenOutcome::None(_)) | Err(_) => None,
                };
                let events = nvml.as_deref().and_then(|nvml| driver::watch_errors(nvml, &uuids));
                let mut next = Some(first);
                while let Some(latest_now) = next {
                    xids.extend(events.iter().flat_map(driver::errors));
                    let all_lost = look_at_each(nvml.as_deref(), &uuids, &xids, &latest_now, &clock);
                    drop(latest_now);
                    thread::park_timeout(every);
                    next = if all_lost { None } else { latest.upgrade() };
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("gpus".to_owned()).spawn(look) {
            tracing::error!(%error, "cannot start a thread to monitor the GPUs; they count as down");
        }
    }

    /// Asks about these GPUs once, in this thread, which waits for as long as the driver does.
    pub fn read_once(&self, uuids: &[String], clock: &Clock) {
        look_at_each(self.nvml.as_deref(), uuids, &HashMap::new(), &self.latest, clock);
    }

    /// What is known of the driver and the GPUs, with the age of each answer.
    pub fn latest(&self) -> GpuWatch {
        self.latest.lock().clone()
    }

    /// How busy (percent) the busiest of these GPUs was with processes of which `counts` is
    /// true, at any sample since it was asked before; `None` where the driver does not say.
    /// A GPU whose driver does not tell processes apart (MIG, old ones) counts as a whole: a
    /// workload has its GPUs for itself.
    pub fn busy(&self, gpus: &[Gpu], counts: impl Fn(u32) -> bool) -> Option<u32> {
        let nvml = self.nvml.as_ref()?;
        let mut read_to = self.read_to.try_lock_for(TIMEOUT)?;
        let mut busiest = 0;
        for gpu in gpus {
            let device = nvml.device_by_uuid(gpu.uuid.as_str()).ok()?;
            busiest = busiest.max(percent(&device, read_to.entry(gpu.uuid.clone()).or_default(), &counts)?);
        }
        Some(busiest)
    }
}

/// Asks about each GPU once, beside the critical errors that were noted (`xids`); whether none of them could be used.
fn look_at_each(
    nvml: Option<&Nvml>,
    uuids: &[String],
    xids: &HashMap<String, i64>,
    latest: &Mutex<GpuWatch>,
    clock: &Clock,
) -> bool {
    let mut all_lost = true;
    for uuid in uuids {
        latest.lock().asking = Some((uuid.clone(), clock.now()));
        let mut answer = match nvml {
            Some(nvml) => driver::read(nvml, uuid),
            None => Err("The driver is no longer available".to_owned()),
        };
        if let Ok(reading) = &mut answer {
            reading.health.xid = xids.get(uuid).copied();
        }
        all_lost &= answer.is_err();
        let mut latest = latest.lock();
        latest.asking = None;
        latest.seen.insert(uuid.clone(), LastReading { at: clock.now(), answer });
    }
    all_lost
}

/// See [`DriverThread::busy`]; `read_to` is up to when this GPU's samples were read.
fn percent(device: &Device<'_>, read_to: &mut u64, counts: impl Fn(u32) -> bool) -> Option<u32> {
    match device.process_utilization_stats(*read_to) {
        Ok(samples) => {
            *read_to = samples.iter().map(|sample| sample.timestamp).max().unwrap_or(*read_to);
            let theirs = samples.iter().filter(|sample| counts(sample.pid));
            Some(theirs.map(|sample| sample.sm_util.max(sample.enc_util).max(sample.dec_util)).max().unwrap_or(0))
        }
        // So the driver says that no process has used it since.
        Err(NvmlError::NotFound) => Some(0),
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => {
            device.utilization_rates().ok().map(|rates| rates.gpu)
        }
        Err(_) => None,
    }
}

impl fmt::Debug for DriverThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("driver", &self.nvml.is_some()).finish_non_exhaustive()
    }
}
