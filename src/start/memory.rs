//! Returning freed memory to the system. glibc keeps small freed blocks for later and raises its idea of "small" to the
//! largest block that was ever freed: after one large run it would keep the memory of all others. The threshold can only
//! be fixed by a variable that is set when a process starts.

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

/// The id of the process that has executed itself anew. Some systems remove the other variable, as glibc does in programs
/// with file capabilities: without this one the portal would execute itself for ever.
pub const EXECUTED: &str = "LYCEUM_EXECUTED";

/// Whether the threshold is fixed already, or cannot be.
#[must_use]
pub fn is_settled(threshold: Option<&str>, executed: Option<&str>, process: u32) -> bool {
    threshold.is_some() || executed == Some(process.to_string().as_str())
}

/// Executes this program anew, in this process, with [`MMAP_THRESHOLD`] at a fixed value; returns only where that fails.
pub fn fix_mmap_threshold(mut arguments: impl Iterator<Item = OsString>) -> io::Error {
    let name = arguments.next().unwrap_or_else(|| "lyceum".into());
    match fs::read_link("/proc/self/exe") {
        Ok(program) => {
            let mut command = Command::new(program);
            command.arg0(name).args(arguments).env(MMAP_THRESHOLD, FIXED);
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
