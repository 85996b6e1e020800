//! What a workload asks for and what a machine has: GPUs, cores, memory.
//! Numbers are signed 64-bit, never negative once parsed, and added with checks only.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::size::GIB;

/// What one workload holds while it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    #[serde(default)]
    pub gpus: i64,
    /// The model of GPU that was asked for, as the inventory spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    #[serde(default = "one")]
    pub cpus: i64,
    #[serde(default = "gibibyte")]
    pub memory_bytes: i64,
}

const fn one() -> i64 {
    1
}

const fn gibibyte() -> i64 {
    GIB
}

impl Default for Resources {
    /// What a request that says nothing gets: one core, one GiB, no GPU.
    fn default() -> Self {
        Self { gpus: 0, gpu_model: None, cpus: one(), memory_bytes: gibibyte() }
    }
}

impl Resources {
    /// Whether this is small enough to count as `light` (a TensorBoard, a terminal) and not
    /// against the number of sessions: no GPU, at most one core, at most 2 GiB.
    #[must_use]
    pub fn is_light(&self) -> bool {
        self.gpus == 0 && self.cpus <= 1 && self.memory_bytes <= 2 * GIB
    }
}

/// One GPU of a machine. UUID and index come from the driver where there is one; counted
/// GPUs of a machine without a driver have made-up UUIDs (`counted-0`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Gpu {
    pub index: i64,
    pub uuid: String,
    pub model: String,
}

/// The GPUs of this machine, and whether a driver stands behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuInventory {
    pub gpus: Vec<Gpu>,
    /// False where GPUs are only counted; `CUDA_VISIBLE_DEVICES` then names indices.
    pub driver: bool,
}

impl GpuInventory {
    /// Chooses `want` GPUs (of `model` when named) that nobody holds, lowest indices first but
    /// neighbours together where it can; `None` when there are not enough.
    #[must_use]
    pub fn pick(&self, taken: &HashSet<String>, want: i64, model: Option<&str>) -> Option<Vec<Gpu>> {
        let want = usize::try_from(want).ok()?;
        let free: Vec<&Gpu> = self
            .gpus
            .iter()
            .filter(|gpu| !taken.contains(&gpu.uuid) && model.is_none_or(|model| model == gpu.model))
            .collect();
        if want == 0 {
            return Some(Vec::new());
        }
        let span = |window: &[&Gpu]| window[window.len() - 1].index - window[0].index;
        let window = free.windows(want).min_by_key(|window| span(window))?;
        Some(window.iter().map(|gpu| (*gpu).clone()).collect())
    }
}

/// What a machine has to give in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Capacity {
    pub gpus: i64,
    pub cpus: i64,
    pub memory_bytes: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_picked_together() {
        let gpu = |index: i64| Gpu { index, uuid: format!("u{index}"), model: "A".to_owned() };
        let inventory = GpuInventory { gpus: (0..4).map(gpu).collect(), driver: false };
        let pick = |taken: &[&str], want| {
            let taken = taken.iter().map(|&uuid| uuid.to_owned()).collect();
            inventory.pick(&taken, want, None).map(|gpus| gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>())
        };
        assert_eq!(pick(&[], 1), Some(vec![0]));
        assert_eq!(pick(&["u1"], 2), Some(vec![2, 3]));
        assert_eq!(pick(&["u0", "u2"], 2), Some(vec![1, 3]));
        assert_eq!(pick(&["u0"], 4), None);
        assert_eq!(pick(&[], 0), Some(vec![]));
        assert_eq!(inventory.pick(&HashSet::new(), 1, Some("B")), None);
    }
}
