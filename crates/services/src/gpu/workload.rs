//! The driver as the agent of a workload asks it: only about the devices that `CUDA_VISIBLE_DEVICES` names, with the
//! thread and the readings of the portal's own watch. It runs in the user's process, on the node of the workload.

use super::{DriverThread, driver};
use lyceum_model::{Clock, Gpu, gpus::GpuReport};
use lyceum_node::agent::GpuReader;
use lyceum_wire::protocol::GpuQuery;

/// Opens the driver and follows the devices of a workload. `None` without a driver, or if it knows none of them.
///
/// It may block for as long as the driver does.
#[must_use]
pub fn open_workload(query: &GpuQuery, visible: &str) -> Option<GpuReader> {
    let library = query.library.as_deref();
    let opened = match driver::open(library) {
        Ok(driver::OpenOutcome::Driver(nvml)) => nvml,
        Ok(driver::OpenOutcome::None(_)) | Err(_) => return None,
    };
    let gpus: Vec<Gpu> = driver::visible(&opened, visible);
    drop(opened);
    let thread = DriverThread::open(query.library.as_ref());
    let uuids: Vec<String> = gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    if uuids.is_empty() {
        return None;
    }
    let every = std::time::Duration::from_secs(query.seconds.max(1).into());
    let patience = i64::from(query.seconds.max(1)) * 3 + 5;
    thread.follow(library, uuids, every, Clock::System);
    Some(Box::new(move || GpuReport::of_watch(&gpus, &thread.latest(), Clock::System.now(), patience)))
}
