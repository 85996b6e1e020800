//! Whether there is room for what will be written, asked before the first byte is.

use std::path::Path;

use super::Error;

/// Bytes that are left free for others.
const RESERVED_BYTES: u64 = 64 << 20;

/// Fails if the file system of a path has no room for so many bytes more.
pub fn check(path: &Path, needed: u64) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(path);
    // A file system that does not tell is tried.
    let Ok(system) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if needed.saturating_add(RESERVED_BYTES) > free {
        return Err(Error::Space { path: folder.to_owned(), needed, free });
    }
    Ok(())
}
