//! How the portal's memory goes back to the system. glibc keeps freed blocks for later unless they are large, and learns what
//! is large from the largest that was freed: after one large run it would keep the memory of all others. A process is told
//! otherwise by its environment alone, when it begins.

use std::{ffi::OsString, fs, io, os::unix::process::CommandExt, process::Command};

/// From which size on (bytes) a freed block goes back at once; `mallopt(3)`.
pub const MMAP_THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";

/// Where glibc begins (bytes).
const FIXED: &str = "131072";

/// Executes this program anew, in this process, with [`MMAP_THRESHOLD`] at a fixed value; returns only where that fails.
pub fn fix_mmap_threshold(mut arguments: impl Iterator<Item = OsString>) -> io::Error {
    let name = arguments.next().unwrap_or_else(|| "lyceum".into());
    match fs::read_link("/proc/self/exe") {
        Ok(program) => Command::new(program).arg0(name).args(arguments).env(MMAP_THRESHOLD, FIXED).exec(),
        Err(error) => error,
    }
}
