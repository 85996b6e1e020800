//! How much fits where run directories lie, and who else needs it: on most machines that is a file
//! system in memory, which the system's own services use as well.

use std::{os::unix::fs::MetadataExt, path::Path};

use rustix::fs::{statfs, statvfs};

use lyceum_model::{Finding, finding::run_directory};

/// A file system in memory (`man 2 statfs`).
const TMPFS: u64 = 0x0102_1994;

/// What to say of the place of run directories; `None` where it is not in memory or does not tell.
pub fn judge(run: &Path) -> Option<Finding> {
    let place = run.ancestors().find(|part| part.exists())?;
    let kind = u64::try_from(statfs(place).ok()?.f_type).ok()?;
    let room = statvfs(place).ok().filter(|_| kind == TMPFS)?;
    // Below /run/user and /tmp an ordinary account fills what is its own, or everybody's anyway.
    let own = place.metadata().ok()?.dev();
    let shared = Some("/run").filter(|system| std::fs::metadata(system).is_ok_and(|found| found.dev() == own));
    let bytes = i64::try_from(room.f_blocks.saturating_mul(room.f_frsize)).unwrap_or(i64::MAX);
    Some(run_directory(&run.display().to_string(), bytes, room.f_files, shared))
}
