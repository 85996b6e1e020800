//! The directory that layers are unpacked into. Every name is resolved by the kernel with this directory as
//! the root (`openat2`, `RESOLVE_IN_ROOT`), so that no link of an image leads out of it. What is made has the
//! running user as its owner, and neither set-uid nor set-gid bits.

use std::{
    ffi::{CStr, CString},
    fs::File,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, chmodat, fchmod,
        futimens, linkat, mkdirat, open, openat, openat2, readlinkat, statat, symlinkat, syncfs, unlinkat,
    },
    io::Errno,
};

use super::name::{Name, within};

/// As many links as the kernel follows.
const MAX_LINKS: u32 = 40;

pub(super) type Outcome<T = ()> = Result<T, Errno>;

/// The root of an image while it is made.
pub(super) struct Tree {
    root: OwnedFd,
    /// The directory that was used last: entries of one directory follow each other.
    recent: Option<(Vec<u8>, OwnedFd)>,
}

impl Tree {
    pub fn open(path: &Path) -> Outcome<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { root: open(path, flags, Mode::empty())?, recent: None })
    }

    /// Makes sure that a directory exists.
    pub fn directory(&mut self, name: &Name, mode: u32) -> Outcome {
        let mode = Mode::from_raw_mode((mode & 0o1777) | 0o700);
        let Some(last) = name.last() else {
            return fchmod(&self.root, mode);
        };
        let parent = self.parent(name, true)?;
        match mkdirat(&parent, &last, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) if !is_directory(parent.as_fd(), &last)? => {
                self.remove_at(parent.as_fd(), &last)?;
                mkdirat(&parent, &last, Mode::from_raw_mode(0o700))?;
            }
            Ok(()) | Err(Errno::EXIST) => {}
            Err(err) => return Err(err),
        }
        chmodat(&parent, &last, mode, AtFlags::empty())
    }

    /// Makes a new file in place of what has the name.
    pub fn file(&mut self, name: &Name) -> Outcome<File> {
        let last = name.last().ok_or(Errno::ISDIR)?;
        let parent = self.parent(name, true)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = match openat(&parent, &last, flags, mode) {
            Err(Errno::EXIST) => {
                self.remove_at(parent.as_fd(), &last)?;
                openat(&parent, &last, flags, mode)?
            }
            opened => opened?,
        };
        Ok(File::from(file))
    }

    /// Gives a file that was written its mode and time.
    pub fn finish(file: &File, mode: u32, modified: i64) -> Outcome {
        fchmod(file, Mode::from_raw_mode((mode & 0o777) | 0o400))?;
        futimens(file, &at(modified))
    }

    pub fn symlink(&mut self, name: &Name, target: &[u8]) -> Outcome {
        let last = name.last().ok_or(Errno::ISDIR)?;
        let target = CString::new(target).map_err(|_err| Errno::INVAL)?;
        let parent = self.parent(name, true)?;
        match symlinkat(&target, &parent, &last) {
            Err(Errno::EXIST) => {
                self.remove_at(parent.as_fd(), &last)?;
                symlinkat(&target, &parent, &last)
            }
            made => made,
        }
    }

    /// Gives the file `target` a second name. A link is not followed; the second name is one to the link itself.
    pub fn hard_link(&mut self, name: &Name, target: &Name) -> Outcome {
        let (last, old) = (name.last().ok_or(Errno::ISDIR)?, target.last().ok_or(Errno::ISDIR)?);
        if name == target {
            return Ok(());
        }
        let source = self.parent(target, false)?;
        let parent = self.parent(name, true)?;
        match linkat(&source, &old, &parent, &last, AtFlags::empty()) {
            Err(Errno::EXIST) => {
                self.remove_at(parent.as_fd(), &last)?;
                linkat(&source, &old, &parent, &last, AtFlags::empty())
            }
            made => made,
        }
    }

    /// Removes a name with everything below it, if it exists.
    pub fn remove(&mut self, name: &Name) -> Outcome {
        let last = name.last().ok_or(Errno::INVAL)?;
        match self.parent(name, false) {
            Ok(parent) => self.remove_at(parent.as_fd(), &last),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(err) => Err(err),
        }
    }

    /// Removes what is in a directory, except the names that `keep` returns true for and what leads to them.
    pub fn empty(&mut self, name: &Name, keep: &dyn Fn(&Name) -> bool) -> Outcome {
        self.recent = None;
        match self.resolve(name.as_bytes()) {
            Ok(directory) => empty(directory.as_fd(), name, keep),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(err) => Err(err),
        }
    }

    /// Sets the time of a directory, if it still is one.
    pub fn set_directory_time(&self, name: &[u8], modified: i64) -> Outcome {
        match self.resolve(name) {
            Ok(directory) => futimens(&directory, &at(modified)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(err) => Err(err),
        }
    }

    /// Writes everything to the disk.
    pub fn sync(&self) -> Outcome {
        syncfs(&self.root)
    }

    /// Returns the directory that holds a name; `make` makes the missing ones.
    fn parent(&mut self, name: &Name, make: bool) -> Outcome<OwnedFd> {
        let path = name.parent();
        if let Some((recent, directory)) = &self.recent
            && recent == path
        {
            return rustix::io::fcntl_dupfd_cloexec(directory, 0);
        }
        let directory = match self.resolve(path) {
            Err(Errno::NOENT) if make => {
                self.make(path, 0)?;
                self.resolve(path)?
            }
            found => found?,
        };
        self.recent = Some((path.to_owned(), rustix::io::fcntl_dupfd_cloexec(&directory, 0)?));
        Ok(directory)
    }

    /// Opens a directory below the root; links are followed as if the root were the machine's.
    fn resolve(&self, path: &[u8]) -> Outcome<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let path = if path.is_empty() { b".".as_slice() } else { path };
        loop {
            match openat2(&self.root, path, flags, Mode::empty(), how) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => return opened,
            }
        }
    }

    /// Makes a directory and those above it. A link that leads nowhere gets its target made.
    fn make(&mut self, path: &[u8], links: u32) -> Outcome {
        if links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        let mut done = Vec::new();
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let above = self.resolve(&done)?;
            let parent = done.clone();
            if !done.is_empty() {
                done.push(b'/');
            }
            done.extend_from_slice(part);
            match mkdirat(&above, part, Mode::from_raw_mode(0o755)) {
                Ok(()) => chmodat(&above, part, Mode::from_raw_mode(0o755), AtFlags::empty())?,
                Err(Errno::EXIST) => match self.resolve(&done) {
                    Ok(_) => {}
                    Err(Errno::NOENT) => {
                        let target = readlinkat(&above, part, Vec::new())?;
                        let target = within(&parent, target.to_bytes());
                        self.make(&target, links + 1)?;
                    }
                    Err(err) => return Err(err),
                },
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }

    fn remove_at(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Outcome {
        // What was removed may have been on the way to it.
        self.recent = None;
        remove(parent, name)
    }
}

fn at(seconds: i64) -> Timestamps {
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Timestamps { last_access, last_modification: Timespec { tv_sec: seconds, tv_nsec: 0 } }
}

fn is_directory(parent: BorrowedFd<'_>, name: &CStr) -> Outcome<bool> {
    let found = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(found.st_mode) == FileType::Directory)
}

/// Removes a name and what is below it. A link is removed, not followed.
fn remove(parent: BorrowedFd<'_>, name: &CStr) -> Outcome {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(err) => return Err(err),
    }
    let directory = enter(parent, name)?;
    for child in children(directory.as_fd())? {
        remove(directory.as_fd(), &child)?;
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn empty(directory: BorrowedFd<'_>, name: &Name, keep: &dyn Fn(&Name) -> bool) -> Outcome {
    for child in children(directory)? {
        let path = name.join(child.to_bytes());
        if !keep(&path) {
            remove(directory, &child)?;
        } else if is_directory(directory, &child)? {
            empty(enter(directory, &child)?.as_fd(), &path, keep)?;
        }
    }
    Ok(())
}

fn enter(parent: BorrowedFd<'_>, name: &CStr) -> Outcome<OwnedFd> {
    openat(parent, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn children(directory: BorrowedFd<'_>) -> Outcome<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// Removes a directory of the store with everything below it, without following links.
pub(crate) fn remove_all(path: &Path) -> Outcome {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let parent = open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    remove(parent.as_fd(), &CString::new(name.as_bytes()).map_err(|_err| Errno::INVAL)?)
}
