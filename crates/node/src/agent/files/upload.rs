//! The way in: a partial file beside the target, hidden, that grows at its end and gets its
//! name when it is complete and on the disk. Its length is all that anybody remembers, so an
//! upload goes on after any interruption. What was left for a week is removed when the next
//! upload comes to that folder.

use std::{fs::File, io, os::unix::fs::FileExt, time::SystemTime};

use rustix::{
    fd::OwnedFd,
    fs::{
        AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, fchmod, fdatasync, flock, fstat, fstatvfs, fsync, linkat,
        openat, renameat, renameat_with, statat, unlinkat,
    },
    io::{Errno, pread},
    process::geteuid,
};
use sha2::{Digest, Sha256};

use super::{PortalChannel, RequestError, Result, beneath, list};
use lyceum_model::files::{Entry, RawPath, is_name};
use lyceum_wire::protocol::files_agent::{Fault, FilesAnswer, MAX_CHUNK, Upload, read_frame};

/// What the name of a partial file begins with.
const PARTIAL: &str = ".lyceum-upload-";

/// How much may wait for the disk (bytes): the last wait, for which the portal has only so
/// much patience, is never a long one.
const UNSAVED: usize = 32 * 1024 * 1024;

/// When a partial file counts as left behind (seconds since something was written to it).
const STALE_SECONDS: u64 = 7 * 86_400;

pub fn begin(root: &OwnedFd, upload: &Upload) -> Result<u64> {
    let (folder, partial) = open_folder(root, upload)?;
    check_target(&folder, upload)?;
    let space = fstatvfs(&folder)?;
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    if free_bytes < upload.size_bytes {
        return Err(Fault::Full { free_bytes }.into());
    }
    // Best effort: somebody else's leftovers are in nobody's way.
    let _ = remove_stale(&folder);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&folder, partial.as_path(), flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => Ok(0),
        // The same upload was begun before; or somebody else has put something of that name there.
        Err(Errno::EXIST) => match open_partial(&folder, &partial) {
            Err(RequestError::Fault(Fault::NoUpload)) => Err(Fault::Exists.into()),
            found => Ok(length(&found?)?),
        },
        Err(err) => Err(err.into()),
    }
}

pub fn offset(root: &OwnedFd, upload: &Upload) -> Result<u64> {
    let (folder, partial) = open_folder(root, upload)?;
    Ok(length(&open_partial(&folder, &partial)?)?)
}

/// Takes what the portal sends and puts it at the end; answers the new length.
pub fn write(talk: &mut PortalChannel, root: &OwnedFd, upload: &Upload, from: u64) -> Result<u64> {
    let (folder, partial) = open_folder(root, upload)?;
    let file = open_partial(&folder, &partial)?;
    lock(&file)?;
    let mut offset = length(&file)?;
    if offset != from {
        return Err(Fault::WrongOffset { offset }.into());
    }
    let file = File::from(file);
    let mut unsaved = 0;
    talk.tell(&FilesAnswer::Content).map_err(RequestError::Talk)?;
    loop {
        let chunk = read_frame(&mut talk.socket, MAX_CHUNK).map_err(RequestError::Talk)?;
        // The end without an empty frame: the portal has lost its client or its life.
        let Some(chunk) = chunk else { return Err(RequestError::Talk(io::ErrorKind::UnexpectedEof.into())) };
        if chunk.is_empty() {
            break;
        }
        let end = offset + chunk.len() as u64;
        if upload.size_bytes < end {
            return give_up(talk, Fault::TooLong);
        }
        if let Err(err) = file.write_all_at(&chunk, offset) {
            // What did fit stays, and the upload can go on from there.
            return give_up(talk, of_io(&err));
        }
        offset = end;
        unsaved += chunk.len();
        if unsaved > UNSAVED {
            fdatasync(&file)?;
            unsaved = 0;
        }
    }
    fdatasync(&file)?;
    Ok(offset)
}

/// Tells the portal at once, and then takes no more of what it may still send.
fn give_up(talk: &mut PortalChannel, fault: Fault) -> Result<u64> {
    talk.tell(&FilesAnswer::Failed { fault }).map_err(RequestError::Talk)?;
    Err(RequestError::Talk(io::ErrorKind::Other.into()))
}

/// Checks the whole, makes it last, and gives it its name.
pub fn finish(talk: &mut PortalChannel, root: &OwnedFd, upload: &Upload) -> Result<Entry> {
    let (folder, partial) = open_folder(root, upload)?;
    let partial_file = open_partial(&folder, &partial)?;
    lock(&partial_file)?;
    let offset = length(&partial_file)?;
    if offset != upload.size_bytes {
        return Err(Fault::WrongOffset { offset }.into());
    }
    if let Some(expected) = &upload.sha256
        && !hash(talk, &partial_file)?.eq_ignore_ascii_case(expected)
    {
        // It will never be right.
        unlinkat(&folder, partial.as_path(), AtFlags::empty())?;
        return Err(Fault::Checksum.into());
    }
    // That of the file whose place it takes, else what new files get.
    let mode = match check_target(&folder, upload)? {
        Some(mode) => mode,
        None => (Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH) & !umask(),
    };
    fchmod(&partial_file, if upload.executable { with_execution(mode) } else { mode })?;
    talk.beat()?;
    fsync(&partial_file)?;
    put(&folder, &partial, upload)?;
    // The name lasts when the folder does; a file system that cannot say so has its reasons.
    let _ = openat(&folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map(fsync);
    list::of_open(upload.name.clone(), &partial_file)
}

pub fn cancel(root: &OwnedFd, upload: &Upload) -> Result<()> {
    let (folder, partial) = open_folder(root, upload)?;
    match unlinkat(&folder, partial.as_path(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

/// The folder that the upload goes to, and the name of its partial file there.
fn open_folder(root: &OwnedFd, upload: &Upload) -> Result<(OwnedFd, RawPath)> {
    let proper = upload.nonce.len() == 32 && upload.nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_name(&upload.name) || !proper {
        return Err(Fault::BadName.into());
    }
    let folder = beneath::reach(root, &upload.folder.path, OFlags::DIRECTORY)?;
    Ok((folder, RawPath::from(format!("{PARTIAL}{}", upload.nonce).as_str())))
}

/// Opens what `begin` has made: in a folder of several people others can put something of that name.
fn open_partial(folder: &OwnedFd, partial: &RawPath) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, partial.as_path(), flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::ACCESS) => {
            return Err(Fault::NoUpload.into());
        }
        other => other?,
    };
    let facts = fstat(&file)?;
    let is_ours = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile
        && facts.st_nlink == 1
        && facts.st_uid == geteuid().as_raw();
    if is_ours { Ok(file) } else { Err(Fault::NoUpload.into()) }
}

fn length(file: &OwnedFd) -> rustix::io::Result<u64> {
    Ok(u64::try_from(fstat(file)?.st_size).unwrap_or(0))
}

/// Keeps two requests from writing to one upload, where the file system knows locks.
fn lock(file: &OwnedFd) -> Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Fault::InUse.into()),
        _ => Ok(()),
    }
}

/// What is in the way under the final name: nothing, or a file that may be replaced (its mode).
fn check_target(folder: &OwnedFd, upload: &Upload) -> Result<Option<Mode>> {
    match statat(folder, upload.name.as_path(), AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        Err(err) => Err(err.into()),
        Ok(facts) if upload.replace && FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile => {
            Ok(Some(Mode::from_raw_mode(facts.st_mode & 0o777)))
        }
        Ok(_) => Err(Fault::Exists.into()),
    }
}

/// Those who may read may also execute.
fn with_execution(mode: Mode) -> Mode {
    mode | Mode::from_raw_mode((mode & (Mode::RUSR | Mode::RGRP | Mode::ROTH)).as_raw_mode() >> 2)
}

fn put(folder: &OwnedFd, partial: &RawPath, upload: &Upload) -> Result<()> {
    let (partial, name) = (partial.as_path(), upload.name.as_path());
    if upload.replace {
        return Ok(renameat(folder, partial, folder, name)?);
    }
    match renameat_with(folder, partial, folder, name, rustix::fs::RenameFlags::NOREPLACE) {
        // A network file system that cannot say so knows links, which never replace either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            linkat(folder, partial, folder, name, AtFlags::empty())?;
            Ok(unlinkat(folder, partial, AtFlags::empty())?)
        }
        other => Ok(other?),
    }
}

/// Of the file that was looked at, whatever has its name by now.
fn hash(talk: &mut PortalChannel, file: &OwnedFd) -> Result<String> {
    let (mut hash, mut buffer, mut at) = (Sha256::new(), vec![0; MAX_CHUNK], 0);
    loop {
        talk.beat()?;
        let got = pread(file, &mut buffer[..], at)?;
        if got == 0 {
            return Ok(hash.finalize().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")));
        }
        hash.update(&buffer[..got]);
        at += got as u64;
    }
}

fn remove_stale(folder: &OwnedFd) -> rustix::io::Result<()> {
    let listed = openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    for found in Dir::read_from(&listed)?.take(100_000) {
        let found = found?;
        let name = found.file_name();
        if !name.to_bytes().starts_with(PARTIAL.as_bytes()) {
            continue;
        }
        let facts = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let written = u64::try_from(facts.st_mtime).unwrap_or(0);
        if FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile
            && written.saturating_add(STALE_SECONDS) < now
        {
            unlinkat(folder, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Read by setting it: there is one thread, and it is set back at once.
fn umask() -> Mode {
    let ours = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(ours);
    ours
}

fn of_io(err: &io::Error) -> Fault {
    match err.raw_os_error() {
        Some(number) => super::fault(Errno::from_raw_os_error(number)),
        None => Fault::Failed { words: err.to_string() },
    }
}
