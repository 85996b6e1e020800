//! What workloads and this machine use: by control groups, the kernel's tables of processes and the GPUs' driver.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use async_trait::async_trait;

use super::{Config, Local, blocking, doing, machine, rates::busy_cpus};
use crate::scheduler::{GpuUse, Metering, NodeReading};
use lyceum_model::{Gpu, GpuWatch, SessionId, session::Placement};
use lyceum_node::helper::cgroup;
use lyceum_wire::protocol::Sample;

#[async_trait]
impl Metering for Local {
    async fn sample(&self, session: SessionId, _placement: &Placement) -> Option<Sample> {
        let this = Arc::clone(&self.shared);
        let usage = blocking(move || Ok(cgroup::usage(&this.groups(session)))).await.ok()??;
        let now = (Instant::now(), usage.cpu_nanoseconds);
        let before = self.shared.sampled.lock().insert(session, now);
        Some(Sample { memory_bytes: usage.memory_bytes, cpus: busy_cpus(before, now), processes: usage.processes })
    }

    async fn processes(&self, session: SessionId, placement: &Placement) -> Option<BTreeSet<u32>> {
        let (this, placement) = (Arc::clone(&self.shared), placement.clone());
        let found =
            blocking(move || this.processes(session, &placement).map_err(doing("failed to list processes"))).await;
        found.ok().map(|pids| pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect())
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

    async fn node(&self) -> NodeReading {
        blocking(|| Ok(machine::reading())).await.unwrap_or_default()
    }
}
