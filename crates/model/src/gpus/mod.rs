//! The GPUs of a machine: what tells them apart, which device files are theirs, how they are
//! linked. `choose` picks among the free ones, `reading` holds what a driver says of one.
//! Where they come from is `gpu`'s business, who holds them `db`'s.

mod choose;
mod reading;
mod report;
mod topology;

use serde::{Deserialize, Serialize};

pub use reading::{Condition, Driver, GpuProcess, GpuWatch, Health, LastReading, Obstacle, Reading, Slowdown};
pub use report::{GpuReport, MAX_GPU_REPORTS};
pub use topology::{Link, Topology};

use super::Timestamp;

/// A GPU of a machine, or a slice of one (MIG). UUID and index come from the driver. Without a driver, GPUs are
/// allocated by count and have synthetic UUIDs (`counted-0`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Gpu {
    /// Number of the GPU in the driver; for a slice, the number of its GPU.
    pub index: i64,
    /// Number of the slice of its GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<i64>,
    pub uuid: String,
    pub model: String,
}

impl Gpu {
    /// What people call it: `0`, or `0:3` for a slice.
    #[must_use]
    pub fn label(&self) -> String {
        match self.slice {
            None => self.index.to_string(),
            Some(slice) => format!("{}:{slice}", self.index),
        }
    }
}

/// A GPU that an operator keeps from new work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldGpu {
    pub uuid: String,
    pub reason: String,
    /// Name of the operator.
    pub by: String,
    pub at: Timestamp,
}

/// Several GPUs in words: `0, 1`.
#[must_use]
pub fn labels(gpus: &[Gpu]) -> String {
    gpus.iter().map(Gpu::label).collect::<Vec<_>>().join(", ")
}

/// The GPUs of this machine, and whether a driver stands behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuInventory {
    pub gpus: Vec<Gpu>,
    /// False where GPUs are only counted; `CUDA_VISIBLE_DEVICES` then names indices.
    pub driver: bool,
    /// The version of CUDA that the driver supports: major, minor.
    pub cuda: Option<(u32, u32)>,
    /// The device file of every GPU that the driver shows, given out by us or not; empty
    /// where there is no driver, or where it does not tell. Slices share that of their GPU.
    pub devices: Vec<GpuDevice>,
    /// How they are linked, as far as the driver tells.
    pub topology: Topology,
}

/// Which character device is a GPU's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuDevice {
    pub uuid: String,
    pub number: DeviceNumber,
}

/// What the kernel knows a device by; its file may lie anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

/// The devices of a driver that a workload may use, and those that it may not. Devices of
/// other drivers are not spoken of and stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceAccess {
    pub open: Vec<DeviceNumber>,
    pub closed: Vec<DeviceNumber>,
}

/// The major number of NVIDIA's character devices, fixed for all of Linux
/// (the kernel's `admin-guide/devices.txt`); `/dev/nvidiaN` has the minor number N.
pub const NVIDIA: u32 = 195;

impl GpuInventory {
    /// The device files of `own` are open to a workload, and those of all other GPUs closed.
    /// The driver's control devices (255, and 254 for the display) belong to all.
    #[must_use]
    pub fn access(&self, own: &[Gpu]) -> DeviceAccess {
        let is_own = |device: &&GpuDevice| own.iter().any(|gpu| gpu.uuid == device.uuid);
        let (open, others): (Vec<_>, Vec<_>) = self.devices.iter().partition(is_own);
        let mut open = numbers(&open);
        let mut closed = numbers(&others);
        // Of a GPU in slices the one file is several workloads'.
        closed.retain(|number| !open.contains(number));
        if closed.is_empty() {
            return DeviceAccess::default();
        }
        open.extend([255, 254].map(|minor| DeviceNumber { major: NVIDIA, minor }));
        DeviceAccess { open, closed }
    }

    /// The models and how many there are of each, in the order of their first GPU.
    pub fn models(&self) -> Vec<(String, i64)> {
        let mut models: Vec<(String, i64)> = Vec::new();
        for gpu in &self.gpus {
            match models.iter_mut().find(|(model, _)| *model == gpu.model) {
                Some((_, count)) => *count += 1,
                None => models.push((gpu.model.clone(), 1)),
            }
        }
        models
    }
}

/// Each number once, in order.
fn numbers(devices: &[&GpuDevice]) -> Vec<DeviceNumber> {
    let mut numbers = Vec::new();
    for device in devices {
        if !numbers.contains(&device.number) {
            numbers.push(device.number);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(models: &[&str]) -> GpuInventory {
        let gpus = models
            .iter()
            .zip(0..)
            .map(|(model, index)| Gpu {
                index,
                uuid: format!("u{index}"),
                model: (*model).to_owned(),
                ..Gpu::default()
            })
            .collect();
        GpuInventory { gpus, driver: true, ..GpuInventory::default() }
    }

    #[test]
    fn only_ones_own_devices_are_open() {
        let mut four = machine(&["A"; 4]);
        assert_eq!(four.access(&four.gpus), DeviceAccess::default(), "nothing is known of them");
        let number = |minor| DeviceNumber { major: NVIDIA, minor };
        // The driver's order and the minor numbers are not the same on every machine.
        four.devices = (0..4).map(|n| GpuDevice { uuid: format!("u{n}"), number: number(3 - n) }).collect();
        let access = four.access(&four.gpus[..2]);
        assert_eq!(access.open, [3, 2, 255, 254].map(number));
        assert_eq!(access.closed, [1, 0].map(number));
        assert_eq!(four.access(&[]).closed.len(), 4);
        assert_eq!(four.access(&four.gpus), DeviceAccess::default(), "nobody else's is left to close");
    }

    #[test]
    fn slices_share_the_file_of_their_gpu() {
        let number = |minor| DeviceNumber { major: NVIDIA, minor };
        let mut machine = machine(&["A", "A slice", "A slice"]);
        let device = |uuid: &str, minor| GpuDevice { uuid: uuid.to_owned(), number: number(minor) };
        machine.devices = vec![device("u0", 0), device("u1", 1), device("u2", 1)];
        let access = machine.access(&machine.gpus[1..2]);
        assert_eq!((access.open, access.closed), ([1, 255, 254].map(number).to_vec(), vec![number(0)]));
        assert_eq!(machine.access(&machine.gpus[..1]).closed, [number(1)]);
        let slice = Gpu { index: 3, slice: Some(1), ..Gpu::default() };
        assert_eq!(labels(&[machine.gpus[0].clone(), slice]), "0, 3:1");
    }
}
