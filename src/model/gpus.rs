//! The GPUs of a machine, and which of the free ones a workload gets: a pure choice that
//! keeps neighbours together. Where they come from is `gpu`'s business, who holds them `db`'s.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

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
    /// The device file of every GPU that the driver shows, given out by us or not; empty
    /// where there is no driver, or where it does not tell.
    pub devices: Vec<GpuDevice>,
}

/// Which character device is a GPU's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
        let (open, closed): (Vec<_>, Vec<_>) = self.devices.iter().partition(is_own);
        if closed.is_empty() {
            return DeviceAccess::default();
        }
        let numbers = |devices: Vec<&GpuDevice>| devices.into_iter().map(|device| device.number).collect::<Vec<_>>();
        let (mut open, closed) = (numbers(open), numbers(closed));
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

    /// Chooses `want` of the GPUs that are not in `taken` (UUIDs), or `None` where too few of
    /// that model are left.
    ///
    /// GPUs of one model go together where that is possible. Neighbours 0–1, 2–3 … usually share
    /// the fast link, so a pair is given whole, and a single GPU comes from a broken pair first;
    /// else the lowest indices win.
    pub fn pick(&self, taken: &HashSet<String>, want: usize, model: Option<&str>) -> Option<Vec<Gpu>> {
        let mut free: Vec<&Gpu> = self
            .gpus
            .iter()
            .filter(|gpu| !taken.contains(&gpu.uuid) && model.is_none_or(|model| model == gpu.model))
            .collect();
        free.sort_by_key(|gpu| gpu.index);
        let mut models: Vec<&str> = Vec::new();
        for gpu in &free {
            if !models.contains(&gpu.model.as_str()) {
                models.push(&gpu.model);
            }
        }
        let alike = |model: &str| free.iter().copied().filter(|gpu| gpu.model == model).collect::<Vec<_>>();
        let picked =
            models.into_iter().find_map(|model| pick_from(&alike(model), want)).or_else(|| pick_from(&free, want));
        picked.map(|gpus| gpus.into_iter().cloned().collect())
    }
}

/// Chooses from free GPUs, sorted by index.
fn pick_from<'a>(free: &[&'a Gpu], want: usize) -> Option<Vec<&'a Gpu>> {
    if free.len() < want {
        return None;
    }
    let is_free = |index: i64| free.iter().any(|gpu| gpu.index == index);
    if want <= 1 {
        let single = free.iter().find(|gpu| !is_free(gpu.index ^ 1)).or(free.first());
        return Some(single.copied().into_iter().take(want).collect());
    }
    let mut runs = free.windows(want).filter(|run| run.windows(2).all(|two| two[0].index + 1 == two[1].index));
    let aligned = runs.clone().find(|run| run[0].index % 2 == 0);
    if let Some(run) = aligned.or_else(|| runs.next()) {
        return Some(run.to_vec());
    }
    // No row of neighbours is left: whole pairs first, then whatever is lowest.
    let (mut paired, single): (Vec<&Gpu>, Vec<&Gpu>) = free.iter().copied().partition(|gpu| is_free(gpu.index ^ 1));
    paired.extend(single);
    paired.truncate(want);
    paired.sort_by_key(|gpu| gpu.index);
    Some(paired)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(models: &[&str]) -> GpuInventory {
        let gpus = models
            .iter()
            .zip(0..)
            .map(|(model, index)| Gpu { index, uuid: format!("u{index}"), model: (*model).to_owned() })
            .collect();
        GpuInventory { gpus, driver: true, devices: Vec::new() }
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

    #[track_caller]
    fn check(models: &[&str], taken: &[i64], want: usize, model: Option<&str>, expected: Option<&[i64]>) {
        let taken: HashSet<String> = taken.iter().map(|index| format!("u{index}")).collect();
        let picked = machine(models).pick(&taken, want, model);
        let indices = picked.map(|gpus| gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>());
        assert_eq!(indices.as_deref(), expected, "{models:?} without {taken:?}: {want} of {model:?}");
    }

    #[test]
    fn picks() {
        let eight = ["A"; 8];
        check(&eight, &[], 0, None, Some(&[]));
        check(&[], &[], 0, None, Some(&[]));
        check(&[], &[], 1, None, None);
        check(&eight, &[], 1, None, Some(&[0]));
        check(&eight, &[], 8, None, Some(&[0, 1, 2, 3, 4, 5, 6, 7]));
        check(&eight, &[], 9, None, None);
        check(&eight, &[3], 1, None, Some(&[2])); // the other half of a broken pair
        check(&eight, &[0], 2, None, Some(&[2, 3])); // a pair, although 1 is lower
        check(&eight, &[0, 2], 2, None, Some(&[4, 5]));
        check(&eight, &[0, 3, 4, 7], 2, None, Some(&[1, 2])); // neighbours at least
        check(&eight, &[1, 3, 5], 3, None, Some(&[0, 6, 7])); // a pair and one more
        check(&eight, &[0], 4, None, Some(&[2, 3, 4, 5]));
        check(&eight, &[0, 1, 2, 3, 4, 5, 6], 2, None, None);
        check(&["A", "B", "A", "B"], &[], 2, None, Some(&[0, 2])); // alike goes before adjacent
        check(&["A", "B", "B", "A"], &[0], 2, None, Some(&[1, 2]));
        check(&["A", "B"], &[], 2, None, Some(&[0, 1])); // mixed, where nothing else is left
        check(&["A", "A", "B", "B"], &[], 1, Some("B"), Some(&[2]));
        check(&["A", "A", "B", "B"], &[2], 2, Some("B"), None);
        check(&["A"], &[], 1, Some("C"), None);
    }
}
