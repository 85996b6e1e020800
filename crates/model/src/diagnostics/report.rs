//! What NVIDIA's driver says of the GPUs of a job, as `lyceum diagnose` writes it on the node. A value that the driver
//! does not know for a GPU is `None`, and the check that needs it was not made.

use serde::{Deserialize, Serialize};

use super::xid::Xid;
use crate::gpus::{Gpu, Slowdown};

/// Of the JSON document.
pub const REPORT_VERSION: u32 = 1;

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriverReport {
    pub version: u32,
    pub node: String,
    /// Empty without a driver; `fault` says why.
    pub driver: String,
    /// The newest CUDA that the driver can run, such as `12.4`.
    pub cuda: String,
    pub fault: String,
    /// How many GPUs `CUDA_VISIBLE_DEVICES` names.
    pub held: usize,
    /// Those that it names and the driver knows, in its order.
    pub gpus: Vec<DriverGpu>,
    /// How they are linked: places among `gpus`, and the word of `nvidia-smi topo -m`.
    pub links: Vec<LinkClass>,
    /// Whether the kernel's log could be read.
    pub kernel_log: bool,
}

/// What lies between two GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkClass {
    pub one: usize,
    pub other: usize,
    pub word: String,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriverGpu {
    pub gpu: Gpu,
    /// Why the driver says nothing of it: it fell off the bus, it wants a reset.
    pub fault: Option<String>,
    pub facts: GpuFacts,
}

/// What the driver knows of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuFacts {
    pub pci: Option<String>,
    pub ecc_enabled: Option<bool>,
    /// Since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    pub ecc_uncorrected: Option<u64>,
    pub rows_remapped_corrected: Option<u64>,
    pub rows_remapped_uncorrected: Option<u64>,
    pub remapping_pending: Option<bool>,
    pub remapping_failed: Option<bool>,
    pub retired_pages: Option<u64>,
    pub retirement_pending: Option<bool>,
    pub pcie_generation: Option<u32>,
    pub pcie_generation_max: Option<u32>,
    pub pcie_width: Option<u32>,
    pub pcie_width_max: Option<u32>,
    pub nvlinks: Option<NvLinks>,
    pub slowed_by: Option<Vec<Slowdown>>,
    pub clock_mhz: Option<u32>,
    pub clock_max_mhz: Option<u32>,
    pub temperature_celsius: Option<u32>,
    /// From which the hardware slows down.
    pub slowdown_celsius: Option<u32>,
    pub power_milliwatts: Option<u32>,
    pub power_limit_milliwatts: Option<u32>,
    pub power_limit_default_milliwatts: Option<u32>,
    pub persistence: Option<bool>,
    /// Programs that compute on it.
    pub programs: Option<u64>,
    /// In the kernel's log since the start of the machine; `None` if it cannot be read.
    pub xids: Option<Vec<Xid>>,
}

/// The NVLinks of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvLinks {
    pub all: u32,
    pub active: u32,
    /// Replays, recoveries and CRC errors of all links; `None` if the driver does not count them.
    pub errors: Option<u64>,
}
