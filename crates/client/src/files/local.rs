//! What is read of this machine. A folder that is copied is opened once, and everything below is reached from there
//! without following a link, so that an entry that is exchanged meanwhile leads nowhere else.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};

use super::Result;
use crate::api::Error;

/// How the name of a download begins that is not complete.
pub const PARTIAL: &str = ".lyceum-download-";

/// A file that is to be sent.
#[derive(Clone)]
pub struct Source {
    /// The folder that it was found in, and its path below; without it a path that somebody typed.
    folder: Option<Arc<OwnedFd>>,
    path: PathBuf,
}

/// An entry of a folder.
pub struct Entry {
    pub name: OsString,
    pub kind: FileType,
    pub bytes: u64,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// A folder with everything in it.
pub struct Folder(Arc<OwnedFd>);

/// Not to wait for the other end of a pipe.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

impl Source {
    /// A path that somebody typed: a link is followed.
    pub fn typed(path: &Path) -> Self {
        Self { folder: None, path: path.to_owned() }
    }

    /// Opens it for reading.
    pub fn open(&self) -> io::Result<File> {
        let fd = match &self.folder {
            None => openat(CWD, &self.path, READ, Mode::empty())?,
            Some(folder) => below(folder, &self.path, OFlags::empty())?,
        };
        let file = File::from(fd);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
        }
    }
}

impl Folder {
    /// A folder that somebody typed: a link is followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(openat(CWD, path, READ | OFlags::DIRECTORY, Mode::empty())?)))
    }

    /// Lists a folder below this one, in the order of names. What disappears meanwhile is left out.
    pub fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let folder = below(&self.0, path, OFlags::DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if matches!(name.as_bytes(), b"." | b"..") || name.as_bytes().starts_with(PARTIAL.as_bytes()) {
                continue;
            }
            let Ok(facts) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let (kind, bytes) = (FileType::from_raw_mode(facts.st_mode), u64::try_from(facts.st_size).unwrap_or(0));
            entries.push(Entry { name: name.to_owned(), kind, bytes, executable: is_executable(facts.st_mode) });
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    pub fn file(&self, path: PathBuf) -> Source {
        Source { folder: Some(Arc::clone(&self.0)), path }
    }
}

/// Returns whether the owner of a file may execute it.
pub fn is_executable(mode: u32) -> bool {
    mode & 0o100 != 0
}

/// Opens what is below a folder, through folders alone.
fn below(folder: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mut names = path.iter().peekable();
    let mut at = openat(folder, ".", READ | OFlags::DIRECTORY, Mode::empty())?;
    while let Some(name) = names.next() {
        let flags = if names.peek().is_some() { OFlags::DIRECTORY } else { flags };
        at = openat(&at, name, READ | OFlags::NOFOLLOW | flags, Mode::empty())?;
    }
    Ok(at)
}

/// Returns the name of what a path leads to, also for `.` and `..`.
pub fn name(path: &Path) -> Result<String> {
    let failed = |error| Error::local("read", path, error);
    let name = match path.file_name() {
        Some(name) => name.to_owned(),
        None => path.canonicalize().map_err(failed)?.file_name().unwrap_or_default().to_owned(),
    };
    text(&name)
}

/// Returns a name as text, the only form in which the API accepts one.
pub fn text(name: &OsStr) -> Result<String> {
    let not_text = || Error::NotCopied("its name is not valid UTF-8; rename it first".to_owned());
    name.to_str().filter(|name| !name.is_empty()).map(str::to_owned).ok_or_else(not_text)
}
