//! Copying files and folders. A copy grows under a hidden name beside its target and gets its own when it is whole, so
//! that what breaks off leaves nothing behind. Links are copied as links, and other file systems are not entered.

use std::ffi::CStr;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat, renameat, statat, symlinkat,
        unlinkat,
    },
    io::{Errno, read, write},
};

use super::{
    PortalChannel, Result, beneath,
    change::{self, move_to},
    list,
};
use lyceum_model::{
    SessionId,
    files::{Entry, RawPath},
};
use lyceum_wire::protocol::files_agent::Fault;

/// How deep a folder may be: each level is an open file.
const MAX_DEPTH: usize = 200;

/// How much is copied at once (bytes).
const PIECE: usize = 1 << 20;

/// What a copy is called while it grows; nobody chooses such a name.
fn growing() -> RawPath {
    format!(".lyceum-copy-{}", SessionId::new().uuid().simple()).as_str().into()
}

pub fn copy(
    talk: &mut PortalChannel,
    from: (&OwnedFd, &RawPath),
    to: (&OwnedFd, &RawPath),
    replace: bool,
) -> Result<Entry> {
    let (source, name) = beneath::parent(from.0, from.1)?;
    let (target, new) = beneath::parent(to.0, to.1)?;
    let facts = statat(&source, name.as_path(), AtFlags::SYMLINK_NOFOLLOW)?;
    may_replace(&facts, &target, &new, replace)?;
    let growing = growing();
    let mut copy = Copy { talk, made: None };
    let copied = copy.entry(source.as_fd(), &c_name(&name)?, target.as_fd(), &c_name(&growing)?, 0);
    let named = copied.and_then(|()| {
        if replace {
            Ok(renameat(&target, growing.as_path(), &target, new.as_path())?)
        } else {
            move_to(&target, &growing, &target, &new)
        }
    });
    if let Err(error) = named {
        // What is left is hidden; that it cannot be removed is less than why it is there.
        let _ = remove(copy.talk, &target, &growing);
        return Err(error);
    }
    list::look(to.0, to.1)
}

/// Renames over a file that is there.
pub fn rename_over(from: (&OwnedFd, &RawPath), to: (&OwnedFd, &RawPath)) -> Result<Entry> {
    let (source, name) = beneath::parent(from.0, from.1)?;
    let (target, new) = beneath::parent(to.0, to.1)?;
    let facts = statat(&source, name.as_path(), AtFlags::SYMLINK_NOFOLLOW)?;
    may_replace(&facts, &target, &new, true)?;
    renameat(&source, name.as_path(), &target, new.as_path()).map_err(change::moved)?;
    list::look(to.0, to.1)
}

/// A file may take the place of a file, where that was asked for; a folder of nothing and nobody.
fn may_replace(source: &Stat, target: &OwnedFd, new: &RawPath, replace: bool) -> Result<()> {
    let is_folder = |facts: &Stat| FileType::from_raw_mode(facts.st_mode) == FileType::Directory;
    match statat(target, new.as_path(), AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        // One name of a file over itself would be its end.
        Ok(there) if (there.st_dev, there.st_ino) == (source.st_dev, source.st_ino) => Err(Fault::Exists.into()),
        Ok(there) if replace && !is_folder(&there) && !is_folder(source) => Ok(()),
        Ok(_) => Err(Fault::Exists.into()),
        Err(err) => Err(err.into()),
    }
}

fn remove(talk: &mut PortalChannel, folder: &OwnedFd, name: &RawPath) -> Result<()> {
    match unlinkat(folder, name.as_path(), AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return Ok(other?),
    }
    let name = c_name(name)?;
    change::empty(talk, folder.as_fd(), &name, 0)?;
    Ok(unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

fn c_name(name: &RawPath) -> Result<std::ffi::CString> {
    std::ffi::CString::new(name.0.clone()).map_err(|_nul| Fault::BadName.into())
}

struct Copy<'a> {
    talk: &'a mut PortalChannel,
    /// The folder that was made first: who meets it copies a folder into itself.
    made: Option<(u64, u64)>,
}

impl Copy<'_> {
    fn entry(
        &mut self,
        source: BorrowedFd<'_>,
        name: &CStr,
        target: BorrowedFd<'_>,
        new: &CStr,
        depth: usize,
    ) -> Result<()> {
        self.talk.beat()?;
        let facts = statat(source, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(facts.st_mode) {
            FileType::RegularFile => self.file(source, name, target, new),
            FileType::Symlink => Ok(symlinkat(readlinkat(source, name, Vec::new())?, target, new)?),
            FileType::Directory => self.folder(source, name, target, new, depth),
            // A socket, a pipe or a device is not copied; in a folder it is left out.
            _ if depth > 0 => Ok(()),
            _ => Err(Fault::NotAFile.into()),
        }
    }

    fn file(&mut self, source: BorrowedFd<'_>, name: &CStr, target: BorrowedFd<'_>, new: &CStr) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let from = openat(source, name, flags, Mode::empty())?;
        let facts = fstat(&from)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(Fault::Changed.into());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = openat(target, new, flags, permissions(&facts) | Mode::WUSR)?;
        let mut piece = vec![0; PIECE];
        loop {
            self.talk.beat()?;
            let length = match read(&from, &mut *piece) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(err) => return Err(err.into()),
            };
            let mut rest = &piece[..length];
            while !rest.is_empty() {
                match write(&to, rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(Errno::INTR) => {}
                    Err(err) => return Err(err.into()),
                }
            }
        }
    }

    fn folder(
        &mut self,
        source: BorrowedFd<'_>,
        name: &CStr,
        target: BorrowedFd<'_>,
        new: &CStr,
        depth: usize,
    ) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Fault::TooDeep.into());
        }
        let from = match beneath::enter(source, name) {
            Err(Errno::XDEV) => return Err(Fault::OtherFileSystem.into()),
            other => other?,
        };
        let facts = fstat(&from)?;
        if self.made == Some((facts.st_dev, facts.st_ino)) {
            return Err(Fault::BadName.into());
        }
        mkdirat(target, new, permissions(&facts) | Mode::RWXU)?;
        let to = beneath::enter(target, new)?;
        if self.made.is_none() {
            let made = fstat(&to)?;
            self.made = Some((made.st_dev, made.st_ino));
        }
        for found in Dir::read_from(&from)? {
            let found = found?;
            let name = found.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                self.entry(from.as_fd(), name, to.as_fd(), name, depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Who may do what with a copy: as with the original, less what the account's mask takes away.
fn permissions(facts: &Stat) -> Mode {
    Mode::from_raw_mode(facts.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO)
}
