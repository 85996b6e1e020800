//! NVIDIA's driver library (NVML), asked: which GPUs and slices there are, how they are
//! linked, and what one of them does now. Each function may block for as long as the driver
//! likes; the callers know what to do about that.

use std::{
    collections::HashMap,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use nvml_wrapper::{
    Device, EventSet, Nvml,
    bitmasks::{device::ThrottleReasons, event::EventTypes},
    enum_wrappers::device::{EccCounter, MemoryError, RetirementCause, TemperatureSensor, TopologyLevel},
    enums::{device::UsedGpuMemory, event::XidError},
    error::NvmlError,
    struct_wrappers::device::PciInfo,
};

use super::Error;
use lyceum_model::{
    DeviceNumber, Gpu, GpuDevice, GpuInventory, NVIDIA,
    gpus::{GpuProcess, Health, Link, MAX_GPU_REPORTS, Reading, Slowdown},
};

/// What the system's linker is asked for where nobody names another.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// More links than any GPU has: NVML's own bound (`NVML_NVLINK_MAX_LINKS`).
pub const MAX_LINKS: u32 = 18;

/// How many critical errors are read in one look.
const MAX_ERRORS_PER_LOOK: usize = 32;

/// How long a driver may take at the start: without persistence mode it wakes each GPU first.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// What opening the library came to.
pub enum OpenOutcome {
    Driver(Box<Nvml>),
    /// There is no driver here; why.
    None(String),
}

/// What the driver shows, in its order; `None` where no driver is.
pub fn inventory(library: Option<PathBuf>) -> Result<Option<GpuInventory>, Error> {
    let (tell, told) = mpsc::channel();
    let ask = move || {
        let found = open(library.as_deref()).and_then(|opened| match opened {
            OpenOutcome::Driver(nvml) => list(&nvml).map(Some).map_err(|error| Error::Driver(error.to_string())),
            OpenOutcome::None(_) => Ok(None),
        });
        // Nobody waits any more where it took too long.
        let _ = tell.send(found);
    };
    let started = thread::Builder::new().name("gpu inventory".to_owned()).spawn(ask);
    started.map_err(|error| Error::Driver(format!("cannot start a thread: {error}")))?;
    told.recv_timeout(START_TIMEOUT).unwrap_or_else(|_silence| Err(Error::Driver("it does not respond".to_owned())))
}

pub fn open(library: Option<&Path>) -> Result<OpenOutcome, Error> {
    let mut builder = Nvml::builder();
    if let Some(library) = library {
        builder.lib_path(library.as_os_str());
    }
    match builder.init() {
        Ok(nvml) => Ok(OpenOutcome::Driver(Box::new(nvml))),
        // The library without its kernel module is what a container image or a machine whose
        // card was taken out looks like.
        Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound) => {
            Ok(OpenOutcome::None("the library is not installed".to_owned()))
        }
        Err(NvmlError::DriverNotLoaded) => {
            Ok(OpenOutcome::None("the library is installed, but the kernel module `nvidia` is not loaded".to_owned()))
        }
        Err(error) => Err(Error::Driver(error.to_string())),
    }
}

pub fn list(nvml: &Nvml) -> Result<GpuInventory, NvmlError> {
    // 13000 is 13.0, 12040 is 12.4.
    let cuda = nvml.sys_cuda_driver_version().ok().and_then(|number| u32::try_from(number).ok());
    let cuda = cuda.map(|number| (number / 1000, number % 1000 / 10));
    let mut all = GpuInventory { driver: true, cuda, ..GpuInventory::default() };
    let mut devices = Vec::new();
    for index in 0..nvml.device_count()? {
        let device = nvml.device_by_index(index)?;
        // Not every driver tells (one below Windows has no device files).
        let file = device.minor_number().ok().map(|minor| DeviceNumber { major: NVIDIA, minor });
        let found = match slices(&device) {
            Some(slices) => slices,
            None => vec![(None, device.uuid()?, device.name()?)],
        };
        for (slice, uuid, model) in &found {
            all.devices.extend(file.map(|number| GpuDevice { uuid: uuid.clone(), number }));
            all.gpus.push(Gpu { index: index.into(), slice: *slice, uuid: uuid.clone(), model: model.clone() });
        }
        devices.push((device, found.into_iter().map(|(_, uuid, _)| uuid).collect::<Vec<_>>()));
    }
    link(&mut all, &devices);
    Ok(all)
}

/// Returns the devices that a value of `CUDA_VISIBLE_DEVICES` names, in its order: by UUID, or by number among the
/// devices that this process may use. As for CUDA, what comes after the first that does not exist is ignored.
pub fn visible(nvml: &Nvml, names: &str) -> Vec<Gpu> {
    let count = nvml.device_count().unwrap_or(0);
    // A control group that closes devices makes the driver skip them, or refuse them.
    let usable: Vec<Device<'_>> = (0..count).filter_map(|index| nvml.device_by_index(index).ok()).collect();
    let find = |name: &str| {
        if name.starts_with("GPU-") || name.starts_with("MIG-") {
            let device = nvml.device_by_uuid(name).ok()?;
            let index = device.index().map_or(0, i64::from);
            return Some(Gpu { index, slice: None, uuid: name.to_owned(), model: device.name().ok()? });
        }
        let number: usize = name.parse().ok()?;
        let device = usable.get(number)?;
        let index = device.index().map_or(0, i64::from);
        Some(Gpu { index, slice: None, uuid: device.uuid().ok()?, model: device.name().ok()? })
    };
    let mut found: Vec<Gpu> = Vec::new();
    for gpu in names.split(',').map(|name| find(name.trim())).take(MAX_GPU_REPORTS) {
        let Some(gpu) = gpu else { break };
        if !found.iter().any(|known| known.uuid == gpu.uuid) {
            found.push(gpu);
        }
    }
    found
}

/// The slices that a GPU is cut into (MIG): number, UUID and model; `None` for a whole one.
fn slices(device: &Device<'_>) -> Option<Vec<(Option<i64>, String, String)>> {
    device.mig_mode().ok().filter(|mode| mode.current == 1)?;
    let most = device.mig_device_count().unwrap_or(0);
    let slice = |number: u32| {
        let slice = device.mig_device_by_index(number).ok()?;
        Some((Some(number.into()), slice.uuid().ok()?, slice.name().ok()?))
    };
    Some((0..most).filter_map(slice).collect())
}

/// Reads how the GPUs are linked; slices of one share its board.
fn link(all: &mut GpuInventory, devices: &[(Device<'_>, Vec<String>)]) {
    let places: Vec<Option<PciAddress>> =
        devices.iter().map(|(device, _)| device.pci_info().ok().as_ref().map(PciAddress::of)).collect();
    let links: Vec<Links> = devices.iter().map(|(device, _)| Links::of(device, &places)).collect();
    for (one, (device, uuids)) in devices.iter().enumerate() {
        for (at, uuid) in uuids.iter().enumerate() {
            for sibling in &uuids[at + 1..] {
                all.topology.set(uuid, sibling, Link::Board);
            }
        }
        for (other, (other_device, others)) in devices.iter().enumerate().skip(one + 1) {
            let direct = links[one].to_gpus.get(&other).copied().unwrap_or(0);
            let link = match direct.max(links[one].to_switches.min(links[other].to_switches)) {
                0 => over_pcie(device, other_device),
                count => Link::NvLink(count),
            };
            for (uuid, other) in uuids.iter().flat_map(|uuid| others.iter().map(move |other| (uuid, other))) {
                all.topology.set(uuid, other, link);
            }
        }
    }
}

fn over_pcie(one: &Device<'_>, other: &Device<'_>) -> Link {
    let Ok(other) = one.nvml().device_by_index(other.index().unwrap_or(u32::MAX)) else { return Link::Unknown };
    match one.topology_common_ancestor(other) {
        Ok(TopologyLevel::Internal) => Link::Board,
        Ok(TopologyLevel::Single) => Link::Switch,
        Ok(TopologyLevel::Multiple) => Link::Bridges,
        Ok(TopologyLevel::HostBridge) => Link::HostBridge,
        Ok(TopologyLevel::Node) => Link::Node,
        Ok(TopologyLevel::System) => Link::System,
        Err(_) => Link::Unknown,
    }
}

/// Where something is on the PCI bus.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PciAddress {
    domain: u32,
    bus: u32,
    device: u32,
}

impl PciAddress {
    fn of(info: &PciInfo) -> Self {
        let &PciInfo { domain, bus, device, .. } = info;
        Self { domain, bus, device }
    }
}

/// How many NVLinks lead from a GPU where.
#[derive(Default)]
struct Links {
    /// By the other's place among the GPUs.
    to_gpus: HashMap<usize, u32>,
    /// To switches, which lead to every GPU that has links to them.
    to_switches: u32,
}

impl Links {
    fn of(device: &Device<'_>, places: &[Option<PciAddress>]) -> Self {
        let mut links = Self::default();
        for number in 0..MAX_LINKS {
            let link = device.link_wrapper_for(number);
            if !link.is_active().unwrap_or(false) {
                continue;
            }
            let Ok(end) = link.remote_pci_info().as_ref().map(PciAddress::of) else { continue };
            match places.iter().position(|place| *place == Some(end)) {
                Some(gpu) => *links.to_gpus.entry(gpu).or_default() += 1,
                None => links.to_switches += 1,
            }
        }
        links
    }
}

/// What a GPU does now. What it does not know stays empty; the error says, as the driver
/// spells it, why it cannot be used.
pub fn read(nvml: &Nvml, uuid: &str) -> Result<Reading, String> {
    let device = nvml.device_by_uuid(uuid).map_err(|error| lost(&error))?;
    let memory = known(device.memory_info())?;
    let utilisation = known(device.utilization_rates())?;
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    Ok(Reading {
        utilisation: utilisation.map(|rates| i64::from(rates.gpu.min(100))),
        memory_used_bytes: memory.as_ref().map(|memory| signed(memory.used)),
        memory_total_bytes: memory.as_ref().map(|memory| signed(memory.total)),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok().map(i64::from),
        power_milliwatts: device.power_usage().ok().map(i64::from),
        power_limit_milliwatts: device.enforced_power_limit().ok().map(i64::from),
        energy_millijoules: device.total_energy_consumption().ok().map(signed),
        processes: device.running_compute_processes().ok().map(|all| all.iter().map(process).collect()),
        health: health(&device),
    })
}

/// Asks the driver to note critical errors (XID) of these GPUs; `None` where it cannot.
pub fn watch_errors<'a>(nvml: &'a Nvml, uuids: &[String]) -> Option<EventSet<'a>> {
    let mut events = nvml.create_event_set().ok()?;
    for uuid in uuids {
        let Ok(device) = nvml.device_by_uuid(uuid.as_str()) else { continue };
        // A slice, or an old GPU, has none. The set is gone then, and with it what was noted of the others.
        if device.supported_event_types().is_ok_and(|types| types.contains(EventTypes::CRITICAL_XID_ERROR)) {
            events = device.register_events(EventTypes::CRITICAL_XID_ERROR, events).ok()?;
        }
    }
    Some(events)
}

/// Returns the critical errors since the last call, by UUID, without waiting.
pub fn errors(events: &EventSet<'_>) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    // The driver keeps more than anybody reads where a GPU fails again and again.
    while found.len() < MAX_ERRORS_PER_LOOK {
        let Ok(event) = events.wait(0) else { break };
        let code = match event.event_data {
            Some(XidError::Value(code)) => i64::try_from(code).unwrap_or(i64::MAX),
            Some(XidError::Unknown) => 999,
            None => continue,
        };
        if let Ok(uuid) = event.device.uuid() {
            found.push((uuid, code));
        }
    }
    found
}

fn process(process: &nvml_wrapper::struct_wrappers::device::ProcessInfo) -> GpuProcess {
    GpuProcess {
        pid: process.pid,
        uid: std::fs::metadata(format!("/proc/{}", process.pid)).ok().map(|facts| facts.uid()),
        memory_bytes: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => i64::try_from(bytes).ok(),
            UsedGpuMemory::Unavailable => None,
        },
    }
}

pub fn health(device: &Device<'_>) -> Health {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let errors = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok().map(signed);
    let retired = |cause| device.retired_pages(cause).ok().map(|pages| signed(pages.len() as u64));
    let causes = [RetirementCause::MultipleSingleBitEccErrors, RetirementCause::DoubleBitEccError];
    Health {
        ecc_corrected: errors(MemoryError::Corrected),
        ecc_uncorrected: errors(MemoryError::Uncorrected),
        retired_pages: causes.into_iter().filter_map(retired).reduce(i64::saturating_add),
        retirement_pending: device.are_pages_pending_retired().ok(),
        // Events, which the thread that follows the GPU collects.
        xid: None,
        slowed_by: device.current_throttle_reasons().map(slowdowns).unwrap_or_default(),
    }
}

pub fn slowdowns(reasons: ThrottleReasons) -> Vec<Slowdown> {
    let heat = ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN;
    let named = heat | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN;
    [
        (reasons.intersects(heat), Slowdown::Heat),
        (reasons.intersects(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN), Slowdown::PowerBrake),
        // The hardware says so beside its own reasons, and alone where it has no word for them.
        (reasons.contains(ThrottleReasons::HW_SLOWDOWN) && !reasons.intersects(named), Slowdown::Hardware),
        (reasons.contains(ThrottleReasons::SW_POWER_CAP), Slowdown::PowerCap),
    ]
    .into_iter()
    .filter_map(|(so, reason)| so.then_some(reason))
    .collect()
}

/// A value that this kind of GPU may not have, or not now; an error only where the GPU is gone.
fn known<T>(value: Result<T, NvmlError>) -> Result<Option<T>, String> {
    match value {
        Ok(value) => Ok(Some(value)),
        Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(lost(&error)),
        Err(_) => Ok(None),
    }
}

pub fn lost(error: &NvmlError) -> String {
    match error {
        NvmlError::GpuLost => "The GPU has fallen off the bus. A restart of the machine usually fixes this".to_owned(),
        NvmlError::ResetRequired => "The GPU requires a reset: `nvidia-smi --gpu-reset`".to_owned(),
        NvmlError::NotFound => "The driver no longer lists this GPU".to_owned(),
        other => format!("The driver reports: {other}"),
    }
}
