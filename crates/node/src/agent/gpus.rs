//! The GPUs of a workload on a node, read beside it: which devices they are says `CUDA_VISIBLE_DEVICES`, which the
//! batch system sets. This crate is root's too and is built without the driver's library, so that the program
//! passes in the reader. A driver may hang for ever, and only the thread of this file waits for it.

use std::{thread, time::Duration};

use super::status::Status;
use lyceum_model::gpus::GpuReport;
use lyceum_wire::protocol::{AgentLaunch, GpuQuery};

/// Opens a reader of the devices that a value of `CUDA_VISIBLE_DEVICES` names; `None` without a driver.
pub type OpenGpuReader = fn(&GpuQuery, &str) -> Option<GpuReader>;

/// Returns what the driver said last of each device, at once.
pub type GpuReader = Box<dyn Fn() -> Vec<GpuReport>>;

/// Names the devices of a workload.
const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// Reads the GPUs until the agent ends, if this was asked for and the workload has some.
pub(super) fn follow(launch: &AgentLaunch, open: OpenGpuReader, status: &Status) {
    let visible = launch.app.environment.get(VISIBLE_DEVICES).filter(|devices| !devices.trim().is_empty());
    let (Some(query), Some(visible)) = (launch.gpus.clone(), visible.cloned()) else { return };
    let status = status.clone();
    let every = Duration::from_secs(query.seconds.max(1).into());
    let read = move || {
        let Some(reader) = open(&query, &visible) else { return };
        loop {
            status.gpus_read(reader());
            thread::park_timeout(every);
        }
    };
    if let Err(error) = thread::Builder::new().name("gpu reports".to_owned()).spawn(read) {
        eprintln!("lyceum agent: cannot start a thread for the GPUs, which are not measured: {error}");
    }
}
