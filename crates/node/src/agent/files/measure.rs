//! How much a folder holds: the blocks of everything below it on the same file system, each file
//! once however many names it has. What cannot be looked into is counted, not guessed.

use std::collections::HashSet;

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, Dir, FileType, OFlags, Stat, statat},
};

use super::{PortalChannel, Result, beneath};
use lyceum_model::files::{FolderSize, RawPath};
use lyceum_wire::protocol::files_agent::FilesAnswer;

/// Folders in folders; what lies deeper is not looked into.
const MAX_DEPTH: usize = 200;

/// So many files with several names are remembered; of more, each name counts.
const MAX_REMEMBERED: usize = 200_000;

/// What `st_blocks` counts (bytes), whatever the file system's own blocks are.
const BLOCK: u64 = 512;

pub fn measure(talk: &mut PortalChannel, root: &OwnedFd, path: &RawPath) -> Result<FilesAnswer> {
    let folder = beneath::open_at(root, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut sum = Sum::default();
    sum.add(&rustix::fs::fstat(&folder)?);
    sum.folder(talk, &folder, 0)?;
    Ok(FilesAnswer::Measured { measured: sum.measured })
}

#[derive(Default)]
struct Sum {
    measured: FolderSize,
    /// Device and number of the files that have several names.
    seen: HashSet<(u64, u64)>,
}

impl Sum {
    fn folder(&mut self, talk: &mut PortalChannel, folder: &OwnedFd, depth: usize) -> Result<()> {
        for found in Dir::read_from(folder)? {
            talk.beat()?;
            let found = found?;
            let name = found.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            // It may be gone by now.
            let Ok(facts) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(facts.st_mode) != FileType::Directory {
                self.add(&facts);
                continue;
            }
            match beneath::enter(folder.as_fd(), name) {
                Ok(inner) if depth < MAX_DEPTH => {
                    self.add(&facts);
                    self.folder(talk, &inner, depth + 1)?;
                }
                // Another file system has an account of its own.
                Err(rustix::io::Errno::XDEV) => {}
                _ => self.measured.unreadable += 1,
            }
        }
        Ok(())
    }

    fn add(&mut self, facts: &Stat) {
        let is_folder = FileType::from_raw_mode(facts.st_mode) == FileType::Directory;
        if !is_folder && facts.st_nlink > 1 {
            let is_new = self.seen.insert((facts.st_dev, facts.st_ino));
            if self.seen.len() > MAX_REMEMBERED {
                self.seen.remove(&(facts.st_dev, facts.st_ino));
            }
            if !is_new {
                return;
            }
        }
        self.measured.bytes += u64::try_from(facts.st_blocks).unwrap_or(0) * BLOCK;
        self.measured.files += u64::from(!is_folder);
    }
}
