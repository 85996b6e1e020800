//! Making folders, renaming, deleting. Each names its thing by the folder that holds it and
//! one name, so that the last part of a path is never followed; nothing is overwritten here.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, Dir, FileType, Mode, RenameFlags, mkdirat, renameat, renameat_with, statat, unlinkat},
    io::Errno,
};

use super::{PortalChannel, Result, beneath, list};
use lyceum_model::files::{Entry, RawPath};
use lyceum_wire::protocol::files_agent::Fault;

/// How deep a folder may be that is deleted with everything in it: each level is an open file.
const MAX_DEPTH: usize = 200;

pub fn make_folder(root: &OwnedFd, path: &RawPath) -> Result<Entry> {
    let (parent, name) = beneath::parent(root, path)?;
    mkdirat(&parent, name.as_path(), Mode::RWXU | Mode::RWXG | Mode::RWXO)?;
    list::look(root, path)
}

pub fn rename(from: (&OwnedFd, &RawPath), to: (&OwnedFd, &RawPath)) -> Result<Entry> {
    let (source, name) = beneath::parent(from.0, from.1)?;
    let (target, new) = beneath::parent(to.0, to.1)?;
    move_to(&source, &name, &target, &new)?;
    list::look(to.0, to.1)
}

/// Renames, unless the new name is taken.
pub fn move_to(source: &OwnedFd, name: &RawPath, target: &OwnedFd, new: &RawPath) -> Result<()> {
    let (name, new) = (name.as_path(), new.as_path());
    match renameat_with(source, name, target, new, RenameFlags::NOREPLACE) {
        // A network file system may not know how not to replace.
        Err(Errno::INVAL | Errno::NOSYS) => match statat(target, new, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Fault::Exists.into()),
            Err(Errno::NOENT) => renameat(source, name, target, new).map_err(moved),
            Err(err) => Err(err.into()),
        },
        other => other.map_err(moved),
    }
}

pub fn moved(err: Errno) -> super::RequestError {
    match err {
        Errno::XDEV => Fault::OtherFileSystem.into(),
        // A folder into itself.
        Errno::INVAL => Fault::BadName.into(),
        other => other.into(),
    }
}

pub fn delete(talk: &mut PortalChannel, root: &OwnedFd, path: &RawPath, all: bool) -> Result<()> {
    let (parent, name) = beneath::parent(root, path)?;
    let facts = statat(&parent, name.as_path(), AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::Directory {
        return Ok(unlinkat(&parent, name.as_path(), AtFlags::empty())?);
    }
    match unlinkat(&parent, name.as_path(), AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) if all => {}
        Err(Errno::EXIST) => return Err(Fault::NotEmpty.into()),
        other => return Ok(other?),
    }
    let name = std::ffi::CString::new(name.0).map_err(|_nul| Fault::BadName)?;
    empty(talk, parent.as_fd(), &name, 0)?;
    Ok(unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
}

/// Deletes everything in a folder, without following links or entering other file systems.
pub fn empty(talk: &mut PortalChannel, parent: BorrowedFd<'_>, name: &std::ffi::CStr, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Fault::TooDeep.into());
    }
    let folder = match beneath::enter(parent, name) {
        Err(Errno::XDEV) => return Err(Fault::OtherFileSystem.into()),
        other => other?,
    };
    // Reading goes on where it was while names vanish; a second look finds what it missed.
    loop {
        let mut found_some = false;
        for found in Dir::read_from(&folder)? {
            let found = found?;
            let name = found.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            found_some = true;
            talk.beat()?;
            match unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => {
                    empty(talk, folder.as_fd(), name, depth + 1)?;
                    unlinkat(&folder, name, AtFlags::REMOVEDIR)?;
                }
                Err(err) => return Err(err.into()),
            }
        }
        if !found_some {
            return Ok(());
        }
    }
}
