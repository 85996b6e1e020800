//! Returning freed memory to the system. glibc keeps small freed blocks for later and raises its idea of "small" to the
//! largest block that was ever freed: after one large run it would keep the memory of all others. It also keeps what is
//! freed for the threads that share a heap, and makes up to eight heaps for each core. Both can only be limited by
//! variables that are set when a process starts.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::process::CommandExt,
    process::{self, Command},
};

/// From which size on (bytes) a freed block goes back at once; `mallopt(3)`.
pub const MMAP_THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";

/// Where glibc begins (bytes).
const FIXED: &str = "131072";

/// How many heaps there are at most; `mallopt(3)`. An administrator's own number stays.
pub const HEAPS: &str = "MALLOC_ARENA_MAX";

/// Reading a queue of 60 000 jobs again and again takes 290 MiB with four heaps, 360 with sixteen.
const MAX_HEAPS: &str = "4";

/// The id of the process that has executed itself anew. Some systems remove the other variable, as glibc does in programs
/// with file capabilities: without this one the portal would execute itself for ever.
pub const EXECUTED: &str = "LYCEUM_EXECUTED";

/// Whether the threshold is fixed already, or cannot be.
#[must_use]
pub fn is_settled(threshold: Option<&str>, executed: Option<&str>, process: u32) -> bool {
    threshold.is_some() || executed == Some(process.to_string().as_str())
}

/// Executes this program anew, in this process, with [`MMAP_THRESHOLD`] at a fixed value and few heaps; returns only where
/// that fails.
pub fn limit_allocator(mut arguments: impl Iterator<Item = OsString>, heaps: Option<&str>) -> io::Error {
    let name = arguments.next().unwrap_or_else(|| "lyceum".into());
    match fs::read_link("/proc/self/exe") {
        Ok(program) => {
            let mut command = Command::new(program);
            command.arg0(name).args(arguments).env(MMAP_THRESHOLD, FIXED);
            command.env(HEAPS, heaps.unwrap_or(MAX_HEAPS));
            command.env(EXECUTED, process::id().to_string()).exec()
        }
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_executes_itself_once() {
        for (threshold, executed, settled) in [
            (None, None, false),
            (Some("131072"), None, true),
            (None, Some("7"), true),
            // Left by an earlier process.
            (None, Some("8"), false),
            (None, Some(""), false),
        ] {
            assert_eq!(is_settled(threshold, executed, 7), settled, "{threshold:?} {executed:?}");
        }
    }
}
