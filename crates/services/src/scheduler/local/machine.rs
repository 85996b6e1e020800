//! What this machine has: cores that we may run on, memory less a margin for the system; and
//! how busy it is.

use std::fs;

use super::super::NodeReading;
use lyceum_model::{Capacity, size::GIB, size::KIB, size::MIB};
use lyceum_node::helper::process;

/// The machine's capacity; `None` means what there is.
pub fn capacity(cpus: Option<i64>, memory_bytes: Option<i64>, gpus: i64) -> Capacity {
    Capacity {
        gpus,
        cpus: cpus.unwrap_or_else(cpus_here),
        memory_bytes: memory_bytes.unwrap_or_else(|| for_workloads(memory_here())),
    }
}

/// Cores by affinity and by the CPU limit of our own cgroup.
fn cpus_here() -> i64 {
    std::thread::available_parallelism().map_or(1, |n| i64::try_from(n.get()).unwrap_or(i64::MAX))
}

/// The machine's memory, or the limit of the container that we are in.
fn memory_here() -> i64 {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text)).unwrap_or(GIB);
    let limit = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    limit.map_or(total, |limit: i64| limit.min(total))
}

/// The machine's name, load and free memory now.
pub fn reading() -> NodeReading {
    let load = fs::read_to_string("/proc/loadavg").ok();
    let memory = fs::read_to_string("/proc/meminfo").ok();
    NodeReading {
        name: process::node().unwrap_or_else(|_nameless| "localhost".to_owned()),
        load: load.and_then(|text| text.split(' ').next()?.parse().ok()),
        memory_available_bytes: memory.and_then(|text| value(&text, "MemAvailable:")),
    }
}

fn total(meminfo: &str) -> Option<i64> {
    value(meminfo, "MemTotal:")
}

fn value(meminfo: &str, key: &str) -> Option<i64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok()?.checked_mul(KIB)
}

/// Leaves the system a sixteenth, at least 512 MiB and at most 4 GiB, and never takes more
/// than half of a small machine; whole MiB.
fn for_workloads(total: i64) -> i64 {
    let margin = (total / 16).clamp(512 * MIB, 4 * GIB).min(total / 2);
    (total - margin) / MIB * MIB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins() {
        assert_eq!(for_workloads(512 * GIB), 508 * GIB);
        assert_eq!(for_workloads(32 * GIB), 30 * GIB);
        assert_eq!(for_workloads(4 * GIB), 3584 * MIB);
        assert_eq!(for_workloads(512 * MIB), 256 * MIB);
    }

    #[test]
    fn this_machine() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       24689168 kB\n"), Some(24_689_168 * KIB));
        let all = capacity(None, None, 2);
        assert!(all.cpus >= 1 && 64 * MIB < all.memory_bytes && all.gpus == 2);
        assert_eq!(capacity(Some(3), Some(GIB), 0), Capacity { gpus: 0, cpus: 3, memory_bytes: GIB });
    }
}
