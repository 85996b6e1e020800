//! The profiles of a machine that nobody configured: each GPU brings 8 cores and 48 GiB for
//! 8 hours, or less where the machine has less; a machine without GPUs gets parts of itself.

use super::{Origin, Profile};
use lyceum_model::{Capacity, Resources, size::GIB};

const CORES_OF_A_GPU: i64 = 8;
const MEMORY_OF_A_GPU: i64 = 48 * GIB;
const HOURS: i64 = 8;

/// Returns the profiles of a machine of this size.
pub(super) fn profiles(capacity: &Capacity) -> Vec<Profile> {
    let profile = |name: &str, title: &str, gpus, cpus: i64, memory: i64| Profile {
        name: name.to_owned(),
        title: title.to_owned(),
        resources: Resources { gpus, gpu_model: None, cpus: cpus.max(1), memory_bytes: whole_gigabytes(memory) },
        duration_seconds: HOURS * 3600,
        groups: Vec::new(),
        position: 0,
        origin: Origin::Shipped,
    };
    let cpus = capacity.cpus;
    // Even whole machines leave some memory for a terminal and a TensorBoard beside them.
    let all = capacity.memory_bytes;
    let memory = if 8 * GIB <= all { all - 2 * GIB } else { all };
    if capacity.gpus == 0 {
        let mut profiles = vec![
            profile("small", "Small", 0, cpus / 4, all / 8),
            profile("medium", "Medium", 0, cpus / 2, all / 3),
            profile("whole", "Whole machine", 0, cpus, memory),
        ];
        profiles.dedup_by(|later, earlier| later.resources == earlier.resources);
        return profiles;
    }
    let cores = CORES_OF_A_GPU.min(cpus / capacity.gpus);
    let share = MEMORY_OF_A_GPU.min(memory / capacity.gpus);
    let counts = std::iter::successors(Some(1), |gpus| Some(gpus * 2)).take_while(|gpus| *gpus < capacity.gpus);
    let with_gpus = counts.chain([capacity.gpus]).map(|gpus| {
        let title = if gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") };
        profile(&format!("{gpus}-gpu"), &title, gpus, cores * gpus, share * gpus)
    });
    std::iter::once(profile("cpu", "CPU only", 0, cores.min(2), share.min(8 * GIB))).chain(with_gpus).collect()
}

/// Rounded down to whole GiB, which is what people compare; at least one.
fn whole_gigabytes(bytes: i64) -> i64 {
    (bytes / GIB).max(1) * GIB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_to_the_machine() {
        let names = |gpus, cpus, gib: i64| {
            profiles(&Capacity { gpus, cpus, memory_bytes: gib * GIB })
                .into_iter()
                .map(|p| {
                    format!("{} {} {} {}", p.name, p.resources.gpus, p.resources.cpus, p.resources.memory_bytes / GIB)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(names(4, 40, 384), ["cpu 0 2 8", "1-gpu 1 8 48", "2-gpu 2 16 96", "4-gpu 4 32 192"]);
        assert_eq!(names(1, 4, 16), ["cpu 0 2 8", "1-gpu 1 4 14"]);
        assert_eq!(names(0, 8, 24), ["small 0 2 3", "medium 0 4 8", "whole 0 8 22"]);
        assert_eq!(names(0, 1, 1), ["small 0 1 1"]);
    }
}
