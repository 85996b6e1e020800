//! Who starts the workloads: the scheduler that the settings name, put together from what was
//! made ready on this machine. Nobody else names the types.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;

use crate::{
    auth::keys,
    config::{Config, SchedulerKind},
    gpu,
    helper::{cgroup::Hierarchy, client::Launcher},
    model::{Capacity, Clock, GpuInventory},
    nodes::Nodes,
    scheduler::{
        Scheduler,
        local::{self, Local},
        slurm::{self, Slurm},
    },
    start::Paths,
};

/// Who starts the workloads: this machine, or a cluster that it is the head of.
pub(super) async fn scheduler(
    config: &Config,
    machine: Machine<'_>,
    key: keys::Key,
    clock: &Clock,
) -> Result<Arc<dyn Scheduler>> {
    let Machine { launcher, hierarchy, paths, service_uid, binary, nodes } = machine;
    let settings = &config.scheduler.local;
    let inventory = match config.scheduler.kind {
        SchedulerKind::Local => {
            gpu::inventory(&gpu::Config { gpus: settings.gpus.clone(), nvml: settings.nvml.clone() })?
        }
        // This machine's own are none of the cluster's.
        SchedulerKind::Slurm => GpuInventory::default(),
    };
    let capacity = capacity(config, &inventory);
    let local = Local::new(local::Config {
        launcher: launcher.clone(),
        capacity,
        inventory,
        nvml: settings.nvml.clone(),
        gpu_interval: Duration::from_secs(config.gpus.interval.unsigned_abs()),
        run: paths.run.clone(),
        placements: paths.placements.clone(),
        hierarchy,
        service_uid,
        grace_seconds: settings.grace.map_or(local::GRACE_SECONDS, i64::cast_unsigned),
        clock: clock.clone(),
    })?;
    let Some(settings) = config.scheduler.slurm().cloned() else { return Ok(Arc::new(local)) };
    let program = if settings.program.as_os_str().is_empty() { binary } else { settings.program.clone() };
    let (key, run, clock) = (key.to_vec(), paths.run.clone(), clock.clone());
    let gpu_interval = u32::try_from(config.gpus.interval).unwrap_or(u32::MAX);
    let slurm = slurm::Config { settings, launcher, local, nodes, key, run, program, service_uid, gpu_interval, clock };
    Ok(Arc::new(Slurm::open(slurm, capacity).await))
}

/// What was made ready on this machine for whoever starts workloads.
pub(super) struct Machine<'a> {
    pub launcher: Arc<Launcher>,
    pub hierarchy: Hierarchy,
    pub paths: &'a Paths,
    pub service_uid: u32,
    /// The copy of our binary that everybody can run.
    pub binary: PathBuf,
    pub nodes: Arc<Nodes>,
}

fn capacity(config: &Config, inventory: &GpuInventory) -> Capacity {
    let gpus = i64::try_from(inventory.gpus.len()).unwrap_or(i64::MAX);
    local::capacity(config.scheduler.local.cpus, config.scheduler.local.memory, gpus)
}
