//! What the driver says of the GPUs of a job, for the tests of GPUs: `lyceum diagnose` writes it inside the job, on its
//! node and as its user. Nothing here puts load on a GPU. What it means is judged in `model::diagnostics`.

use std::{
    fs::OpenOptions,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use nvml_wrapper::{
    Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor,
    enum_wrappers::{
        device::{Clock, EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold},
        nv_link::ErrorCounter,
    },
    enums::device::SampleValue,
    structs::device::FieldId,
    sys_exports::field_id,
};

use super::driver::{self, OpenOutcome};
use lyceum_model::{
    Gpu,
    diagnostics::{DriverGpu, DriverReport, GpuFacts, LinkClass, NvLinks, REPORT_VERSION, Xid, parse_kernel_log},
    gpus::{Link, MAX_GPU_REPORTS},
};

/// The kernel's log as a file.
pub const KERNEL_LOG: &str = "/dev/kmsg";
/// More of the kernel's log is not read (bytes).
const MAX_LOG_LENGTH: usize = 8 << 20;

/// Asks the driver about the GPUs that a value of `CUDA_VISIBLE_DEVICES` names. It may block as long as the driver does.
#[must_use]
pub fn diagnose(library: Option<&Path>, visible: &str, kernel_log: &Path) -> DriverReport {
    let names: Vec<&str> = visible
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty() && !["-1", "NoDevFiles"].contains(name))
        .take(MAX_GPU_REPORTS)
        .collect();
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let empty = DriverReport { version: REPORT_VERSION, node, held: names.len(), ..DriverReport::default() };
    let nvml = match driver::open(library) {
        Ok(OpenOutcome::Driver(nvml)) => nvml,
        Ok(OpenOutcome::None(why)) => return DriverReport { fault: why, ..empty },
        Err(error) => return DriverReport { fault: error.to_string(), ..empty },
    };
    let log = read_kernel_log(kernel_log).ok();
    let xids = log.as_deref().map(|text| parse_kernel_log(&String::from_utf8_lossy(text)));
    let gpus: Vec<DriverGpu> = names.iter().filter_map(|name| one(&nvml, name, xids.as_deref())).collect();
    let cuda = nvml.sys_cuda_driver_version();
    DriverReport {
        driver: nvml.sys_driver_version().unwrap_or_else(|_unknown| "of an unknown version".to_owned()),
        cuda: cuda
            .map(|all| format!("{}.{}", cuda_driver_version_major(all), cuda_driver_version_minor(all)))
            .unwrap_or_default(),
        links: links(&nvml, &gpus),
        kernel_log: log.is_some(),
        gpus,
        ..empty
    }
}

/// `None` where the driver has never heard of it.
fn one(nvml: &Nvml, name: &str, xids: Option<&[Xid]>) -> Option<DriverGpu> {
    let is_uuid = name.starts_with("GPU-") || name.starts_with("MIG-");
    let found = if is_uuid {
        nvml.device_by_uuid(name)
    } else {
        let number: usize = name.parse().ok()?;
        // A control group that closes devices makes the driver skip them, or refuse them.
        (0..nvml.device_count().ok()?).filter_map(|index| nvml.device_by_index(index).ok()).nth(number).map(Ok)?
    };
    match found {
        Ok(device) => {
            let gpu = Gpu {
                index: device.index().map_or(0, i64::from),
                slice: None,
                uuid: if is_uuid { name.to_owned() } else { device.uuid().unwrap_or_default() },
                model: device.name().unwrap_or_default(),
            };
            // Some faults show only when it is asked for something.
            let fault = driver::read(nvml, &gpu.uuid).err();
            let facts = if fault.is_some() { GpuFacts::default() } else { facts(&device, xids) };
            Some(DriverGpu { gpu, fault, facts })
        }
        Err(nvml_wrapper::error::NvmlError::NotFound) => None,
        Err(error) => {
            let gpu = Gpu { uuid: name.to_owned(), ..Gpu::default() };
            Some(DriverGpu { gpu, fault: Some(driver::lost(&error)), facts: GpuFacts::default() })
        }
    }
}

fn facts(device: &Device<'_>, xids: Option<&[Xid]>) -> GpuFacts {
    let health = driver::health(device);
    let unsigned = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
    let errors = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok();
    let [corrected, uncorrected, pending, failed] = remapping(device);
    let pci =
        device.pci_info().ok().map(|place| format!("{:04x}:{:02x}:{:02x}", place.domain, place.bus, place.device));
    let own = |all: &[Xid]| all.iter().filter(|xid| Some(&xid.pci) == pci.as_ref()).cloned().collect();
    GpuFacts {
        ecc_enabled: device.is_ecc_enabled().ok().map(|mode| mode.currently_enabled),
        ecc_corrected: errors(MemoryError::Corrected),
        ecc_uncorrected: errors(MemoryError::Uncorrected),
        rows_remapped_corrected: corrected,
        rows_remapped_uncorrected: uncorrected,
        remapping_pending: pending.map(|count| count > 0),
        remapping_failed: failed.map(|count| count > 0),
        retired_pages: unsigned(health.retired_pages),
        retirement_pending: health.retirement_pending,
        pcie_generation: device.current_pcie_link_gen().ok(),
        pcie_generation_max: device.max_pcie_link_gen().ok(),
        pcie_width: device.current_pcie_link_width().ok(),
        pcie_width_max: device.max_pcie_link_width().ok(),
        nvlinks: nvlinks(device),
        slowed_by: device.current_throttle_reasons().ok().map(driver::slowdowns),
        clock_mhz: device.clock_info(Clock::SM).ok(),
        clock_max_mhz: device.max_clock_info(Clock::SM).ok(),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        slowdown_celsius: device.temperature_threshold(TemperatureThreshold::Slowdown).ok(),
        power_milliwatts: device.power_usage().ok(),
        power_limit_milliwatts: device.enforced_power_limit().ok(),
        power_limit_default_milliwatts: device.power_management_limit_default().ok(),
        persistence: device.is_in_persistent_mode().ok(),
        programs: device.running_compute_processes().ok().map(|all| all.len() as u64),
        xids: xids.filter(|_| pci.is_some()).map(own),
        pci,
    }
}

/// Rows of memory that were remapped after corrected and uncorrected errors, and whether one is pending or failed.
fn remapping(device: &Device<'_>) -> [Option<u64>; 4] {
    let fields = [
        field_id::NVML_FI_DEV_REMAPPED_COR,
        field_id::NVML_FI_DEV_REMAPPED_UNC,
        field_id::NVML_FI_DEV_REMAPPED_PENDING,
        field_id::NVML_FI_DEV_REMAPPED_FAILURE,
    ];
    let Ok(samples) = device.field_values_for(&fields.map(FieldId)) else { return [None; 4] };
    let number = |place: usize| match samples.get(place)?.as_ref().ok()?.value.as_ref().ok()? {
        SampleValue::U32(number) => Some(u64::from(*number)),
        SampleValue::U64(number) => Some(*number),
        SampleValue::I64(number) => u64::try_from(*number).ok(),
        SampleValue::F64(_) => None,
    };
    [number(0), number(1), number(2), number(3)]
}

fn nvlinks(device: &Device<'_>) -> Option<NvLinks> {
    let mut found = NvLinks::default();
    for number in 0..driver::MAX_LINKS {
        let link = device.link_wrapper_for(number);
        let Ok(is_active) = link.is_active() else { continue };
        found.all += 1;
        if !is_active {
            continue;
        }
        found.active += 1;
        let counters =
            [ErrorCounter::DlReplay, ErrorCounter::DlRecovery, ErrorCounter::DlCrcFlit, ErrorCounter::DlCrcData];
        for count in counters.into_iter().filter_map(|counter| link.error_counter(counter).ok()) {
            found.errors = Some(found.errors.unwrap_or(0).saturating_add(count));
        }
    }
    (found.all > 0).then_some(found)
}

/// How the GPUs of a job are linked.
fn links(nvml: &Nvml, gpus: &[DriverGpu]) -> Vec<LinkClass> {
    let Ok(all) = driver::list(nvml) else { return Vec::new() };
    let mut links = Vec::new();
    for (one, first) in gpus.iter().enumerate() {
        for (other, second) in gpus.iter().enumerate().skip(one + 1) {
            let link = all.topology.link(&first.gpu, &second.gpu);
            if link != Link::Unknown {
                links.push(LinkClass { one, other, word: link.word() });
            }
        }
    }
    links
}

/// Reads what the kernel's log has now. Its file never ends: reading stops where it would wait.
fn read_kernel_log(path: &Path) -> io::Result<Vec<u8>> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let (mut text, mut record) = (Vec::new(), vec![0; 16 << 10]);
    while text.len() < MAX_LOG_LENGTH {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(&record[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // Older lines were overwritten meanwhile; the next read goes on behind them.
            Err(error) if [io::ErrorKind::BrokenPipe, io::ErrorKind::Interrupted].contains(&error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(text)
}
