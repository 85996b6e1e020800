//! What the workload uses, and the end of a workload that uses too much. The numbers come
//! from the cgroups where there are some (version 1 or 2, or a mixture) and from `/proc`
//! otherwise. With cgroups the kernel binds memory and this only hears of it; without, this
//! is what binds.

use std::{fs, path::PathBuf, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{notes, status::Status, tree};
use lyceum_model::size::human_size;
use lyceum_wire::protocol::{AgentLaunch, Limits, Sample};

const CHECK: Duration = Duration::from_secs(1);
/// Every so many checks the status gets a fresh sample.
const SAMPLE_INTERVAL: u32 = 2;
/// The kernel's ticks in `/proc` are hundredths of a second on every architecture we know.
const TICKS_PER_SECOND: f64 = 100.0;

/// Watches one workload.
pub(super) struct Watch {
    limits: Limits,
    sampled: bool,
    cgroups: Vec<PathBuf>,
    run_directory: PathBuf,
    /// How often the kernel had killed for memory before we began.
    kills_before: i64,
}

impl Watch {
    pub fn new(launch: &AgentLaunch) -> Self {
        let cgroups = launch.cgroups.clone();
        let kills_before = read_cgroups(&cgroups).kills.unwrap_or(0);
        let (limits, run_directory) = (launch.limits.clone(), launch.run_directory.clone());
        Self { limits, sampled: launch.sampled, cgroups, run_directory, kills_before }
    }

    /// Returns when the workload has used more than it may, with the sentence for people. What the kernel has killed
    /// does not count while it `may_be_somebody_elses`: the workload goes on then.
    pub async fn until_exceeded(&self, status: &Status, may_be_somebody_elses: impl Fn() -> bool) -> String {
        let mut clock = interval(CHECK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before: Option<(Instant, f64)> = None;
        for check in 0_u32.. {
            clock.tick().await;
            if let Some(sentence) = self.out_of_memory()
                && !may_be_somebody_elses()
            {
                return sentence;
            }
            let fresh = check.is_multiple_of(SAMPLE_INTERVAL);
            if !fresh && !self.sampled {
                continue;
            }
            let used = self.used();
            if self.sampled
                && let Some(sentence) = exceeded(&self.limits, &used)
            {
                return sentence;
            }
            if fresh {
                let now = (Instant::now(), used.cpu_seconds);
                let cpus = before.map_or(0.0, |before| busy(before, now));
                before = Some(now);
                status.program_notes(notes::read(&self.run_directory));
                status.sampled(Sample { memory_bytes: used.memory_bytes, cpus, processes: used.processes });
            }
        }
        unreachable!("a session does not last 2^32 seconds")
    }

    /// Whether the kernel has killed for lack of memory since we began.
    pub fn out_of_memory(&self) -> Option<String> {
        let kills = read_cgroups(&self.cgroups).kills?;
        (self.kills_before < kills).then(|| too_little_memory(self.limits.memory_bytes))
    }

    fn used(&self) -> Used {
        let counted = read_cgroups(&self.cgroups);
        match (counted.memory_bytes, counted.cpu_seconds, counted.processes) {
            (Some(memory_bytes), Some(cpu_seconds), Some(processes)) => Used { memory_bytes, cpu_seconds, processes },
            (memory_bytes, cpu_seconds, processes) => {
                let summed = sum_tree(self.limits.memory_bytes);
                Used {
                    memory_bytes: memory_bytes.unwrap_or(summed.memory_bytes),
                    cpu_seconds: cpu_seconds.unwrap_or(summed.cpu_seconds),
                    processes: processes.unwrap_or(summed.processes),
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Used {
    memory_bytes: i64,
    cpu_seconds: f64,
    /// Threads count, as they do for the kernel's own limit.
    processes: i64,
}

fn exceeded(limits: &Limits, used: &Used) -> Option<String> {
    if limits.memory_bytes < used.memory_bytes {
        return Some(too_little_memory(limits.memory_bytes));
    }
    (limits.processes < used.processes).then(|| {
        format!(
            "it ran {} processes and threads, but the limit is {}: start fewer at a time",
            used.processes, limits.processes
        )
    })
}

fn too_little_memory(limit: i64) -> String {
    let more = human_size(limit.saturating_mul(2));
    format!("out of memory: it requested {} and used all of it: start again with {more}", human_size(limit))
}

fn busy((then, before): (Instant, f64), (now, after): (Instant, f64)) -> f64 {
    let elapsed = (now - then).as_secs_f64();
    if elapsed <= 0.0 { 0.0 } else { ((after - before) / elapsed).max(0.0) }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counted {
    memory_bytes: Option<i64>,
    cpu_seconds: Option<f64>,
    processes: Option<i64>,
    kills: Option<i64>,
}

/// Each number from the first directory that has it. Cached pages of files that the kernel
/// would drop at once are not counted as memory.
#[expect(clippy::cast_precision_loss, reason = "a sample is for people")]
fn read_cgroups(directories: &[PathBuf]) -> Counted {
    let text = |name: &str| directories.iter().find_map(|directory| fs::read_to_string(directory.join(name)).ok());
    let number = |name: &str| text(name)?.trim().parse::<i64>().ok();
    let entry = |name: &str, key: &str| find_entry(&text(name)?, key);
    let less_cache = |total: Option<i64>, key| Some((total? - entry("memory.stat", key).unwrap_or(0)).max(0));
    Counted {
        memory_bytes: less_cache(number("memory.current"), "inactive_file")
            .or_else(|| less_cache(number("memory.usage_in_bytes"), "total_inactive_file")),
        cpu_seconds: entry("cpu.stat", "usage_usec")
            .map(|micros| micros as f64 / 1e6)
            .or_else(|| number("cpuacct.usage").map(|nanos| nanos as f64 / 1e9)),
        processes: number("pids.current"),
        kills: entry("memory.events", "oom_kill").or_else(|| entry("memory.oom_control", "oom_kill")),
    }
}

/// The number behind `key` in lines of `key number`.
fn find_entry(text: &str, key: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Sums the tree. Resident memory counts shared pages once for each process that has them,
/// so beyond the limit the costlier proportional sizes decide.
#[expect(clippy::cast_precision_loss, reason = "a sample is for people")]
fn sum_tree(limit: i64) -> Used {
    let tree = tree::descendants();
    let resident = tree.iter().filter_map(|process| memory(process.pid, "status", "VmRSS:")).sum();
    let memory_bytes = if resident <= limit {
        resident
    } else {
        let share = |pid| memory(pid, "smaps_rollup", "Pss:").or_else(|| memory(pid, "status", "VmRSS:"));
        tree.iter().filter_map(|process| share(process.pid)).sum()
    };
    Used {
        memory_bytes,
        cpu_seconds: tree.iter().map(|process| process.ticks as f64).sum::<f64>() / TICKS_PER_SECOND,
        processes: tree.iter().map(|process| process.threads).sum(),
    }
}

/// A size in bytes from a file of `/proc/PID` that has lines like `VmRSS:   1234 kB`.
fn memory(pid: i32, file: &str, key: &str) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::size::GIB;

    fn counted(files: &[(&str, &str)]) -> Counted {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        read_cgroups(&[directory.path().join("absent"), directory.path().to_owned()])
    }

    #[test]
    fn both_versions_of_cgroups() {
        let version_2 = counted(&[
            ("memory.current", "3000\n"),
            ("memory.stat", "anon 1\ninactive_file 1000\n"),
            ("cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
            ("pids.current", "7\n"),
            ("memory.events", "oom 3\noom_kill 2\noom_group_kill 0\n"),
        ]);
        let expected = Counted { memory_bytes: Some(2000), cpu_seconds: Some(2.5), processes: Some(7), kills: Some(2) };
        assert_eq!(version_2, expected);
        let version_1 = counted(&[
            ("memory.usage_in_bytes", "3000\n"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n"),
            ("cpuacct.usage", "2500000000\n"),
            ("pids.current", "7\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ]);
        assert_eq!(version_1, expected);
        assert_eq!(counted(&[]), Counted::default());
    }

    #[test]
    fn sentences_name_numbers_and_the_way_out() {
        let limits = Limits { cpus: 1, memory_bytes: 2 * GIB, processes: 10 };
        let used = |memory_bytes, processes| Used { memory_bytes, cpu_seconds: 0.0, processes };
        assert_eq!(exceeded(&limits, &used(2 * GIB, 10)), None);
        let sentence = exceeded(&limits, &used(2 * GIB + 1, 1)).expect("too much");
        assert_eq!(sentence, "out of memory: it requested 2 GiB and used all of it: start again with 4 GiB");
        assert!(exceeded(&limits, &used(0, 11)).expect("too many").contains("11"));
    }
}
