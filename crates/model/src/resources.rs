//! What a workload asks for and what a machine has: cores, memory, numbers of GPUs.
//! Numbers are signed 64-bit, never negative once parsed, and added with checks only.

use serde::{Deserialize, Serialize};

use super::size::GIB;

/// The resources of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    #[serde(default)]
    pub gpus: i64,
    /// The requested GPU model, as the inventory spells it.
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

/// Total resources of a machine or cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Capacity {
    pub gpus: i64,
    pub cpus: i64,
    pub memory_bytes: i64,
}
