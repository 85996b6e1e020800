//! Locks between the pulls of one process and of several: `flock` on a file or directory of the store. The
//! kernel releases a lock when its process ends, however it ends, so a lock that can be had means that what
//! it guards is not in use.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::Duration,
};

use rustix::{fs::FlockOperation, io::Errno};

const LOOK: Duration = Duration::from_millis(50);

/// How a lock is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Shared,
    Alone,
}

/// Opens a file, which is made where it is missing, and locks it. Returns nothing while another process or pull has
/// it, and when it was replaced meanwhile.
pub(super) fn try_lock(path: &Path, hold: Hold) -> io::Result<Option<File>> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    lock_opened(file, path, hold)
}

/// As [`try_lock`], for a directory that exists.
pub(super) fn try_lock_directory(path: &Path) -> io::Result<Option<File>> {
    lock_opened(File::open(path)?, path, Hold::Alone)
}

fn lock_opened(file: File, path: &Path, hold: Hold) -> io::Result<Option<File>> {
    let operation = match hold {
        Hold::Shared => FlockOperation::NonBlockingLockShared,
        Hold::Alone => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(&file, operation) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    let (ours, named) = (file.metadata()?, fs::symlink_metadata(path));
    match named {
        Ok(named) if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) => Ok(Some(file)),
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _ => Ok(None),
    }
}

/// Waits for a lock. The wait ends early when the caller is dropped.
pub(super) async fn lock(path: &Path, hold: Hold) -> io::Result<File> {
    loop {
        if let Some(file) = try_lock(path, hold)? {
            return Ok(file);
        }
        tokio::time::sleep(LOOK).await;
    }
}
