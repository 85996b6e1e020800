//! The way out: a file's bytes, or a folder as a tar stream. What breaks off in the middle
//! ends the conversation, so that nobody takes a part for the whole.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, readlinkat, statat},
};

use super::{PortalChannel, RequestError, Result, beneath, list};
use lyceum_model::files::{Kind, RawPath};
use lyceum_wire::protocol::files_agent::{Fault, FilesAnswer, MAX_CHUNK, write_chunk};

/// How deep folders are followed into an archive: each level is an open file.
const MAX_DEPTH: usize = 200;

/// What an archive calls the list of what could not be read.
const LEFT_OUT: &str = "not-included.txt";

pub fn read(talk: &mut PortalChannel, root: &OwnedFd, path: &RawPath, tag: &str, from: u64, length: u64) -> Result<()> {
    let file = open_file(root, path)?;
    if list::of_open(RawPath::default(), &file)?.tag != tag {
        return Err(Fault::Changed.into());
    }
    talk.tell(&FilesAnswer::Content).map_err(RequestError::Talk)?;
    let mut buffer = vec![0; MAX_CHUNK];
    let (mut at, end) = (from, from.saturating_add(length));
    while at < end {
        let most = usize::try_from(end - at).map_or(MAX_CHUNK, |left| left.min(MAX_CHUNK));
        let got = file.read_at(&mut buffer[..most], at).map_err(RequestError::Talk)?;
        if got == 0 {
            return Err(RequestError::Talk(io::ErrorKind::UnexpectedEof.into()));
        }
        write_chunk(&mut talk.socket, &buffer[..got]).map_err(RequestError::Talk)?;
        at += got as u64;
    }
    write_chunk(&mut talk.socket, &[]).map_err(RequestError::Talk)
}

/// A regular file, open for reading.
fn open_file(root: &OwnedFd, path: &RawPath) -> Result<File> {
    let file = beneath::open_at(root, path, OFlags::RDONLY)?;
    match list::of_open(RawPath::default(), &file)?.kind {
        Kind::File => Ok(File::from(file)),
        _ => Err(Fault::NotAFile.into()),
    }
}

pub fn archive(talk: &mut PortalChannel, root: &OwnedFd, path: &RawPath) -> Result<()> {
    let folder = beneath::open_at(root, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    talk.tell(&FilesAnswer::Content).map_err(RequestError::Talk)?;
    let name = path.split().1;
    let top = PathBuf::from(if name.0.is_empty() { Path::new("home") } else { name.as_path() });
    let mut tar = tar::Builder::new(Chunks { talk, held: Vec::with_capacity(MAX_CHUNK) });
    tar.mode(tar::HeaderMode::Complete);
    let mut left_out = Vec::new();
    pack(&mut tar, &folder, &top, 0, &mut left_out).map_err(RequestError::Talk)?;
    if !left_out.is_empty() {
        let text = format!("These files could not be read and are not in this archive:\n{}\n", left_out.join("\n"));
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, top.join(LEFT_OUT), text.as_bytes()).map_err(RequestError::Talk)?;
    }
    let mut chunks = tar.into_inner().map_err(RequestError::Talk)?;
    chunks.flush().map_err(RequestError::Talk)?;
    write_chunk(&mut chunks.talk.socket, &[]).map_err(RequestError::Talk)
}

/// Puts a folder's entries into the archive: links as links, nothing else that is special.
fn pack(
    tar: &mut tar::Builder<Chunks<'_>>,
    folder: &OwnedFd,
    path: &Path,
    depth: usize,
    left_out: &mut Vec<String>,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_size(0);
    tar.append_data(&mut header, path, io::empty())?;
    for found in Dir::read_from(folder)? {
        let found = found?;
        let name = RawPath(found.file_name().to_bytes().to_vec());
        if matches!(name.0.as_slice(), b"." | b"..") {
            continue;
        }
        let path = path.join(name.as_path());
        let packed = pack_entry(tar, folder, found.file_name(), &path, depth, left_out)?;
        if !packed && left_out.len() < 1000 {
            left_out.push(RawPath::from(path.as_path()).shown());
        }
    }
    Ok(())
}

/// False where it cannot be read; an error only where the archive cannot go on.
fn pack_entry(
    tar: &mut tar::Builder<Chunks<'_>>,
    folder: &OwnedFd,
    name: &std::ffi::CStr,
    path: &Path,
    depth: usize,
    left_out: &mut Vec<String>,
) -> io::Result<bool> {
    let Ok(facts) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(false) };
    let mut header = tar::Header::new_gnu();
    header.set_mode(facts.st_mode & 0o777);
    header.set_mtime(u64::try_from(facts.st_mtime).unwrap_or(0));
    header.set_size(0);
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::Directory => match beneath::enter(folder.as_fd(), name) {
            Ok(inner) if depth < MAX_DEPTH => pack(tar, &inner, path, depth + 1, left_out).map(|()| true),
            _ => Ok(false),
        },
        FileType::Symlink => {
            let Ok(target) = readlinkat(folder, name, Vec::new()) else { return Ok(false) };
            header.set_entry_type(tar::EntryType::Symlink);
            tar.append_link(&mut header, path, RawPath(target.into_bytes()).as_path()).map(|()| true)
        }
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(file) = openat(folder, name, flags, Mode::empty()) else { return Ok(false) };
            let file = File::from(file);
            let size = file.metadata()?.len();
            header.set_size(size);
            tar.append_data(&mut header, path, ExactReader { file, left: size }).map(|()| true)
        }
        _ => Ok(false),
    }
}

/// So many bytes of a file, or an error: what follows in the archive stands where its head says.
struct ExactReader {
    file: File,
    left: u64,
}

impl Read for ExactReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let got = self.file.read(&mut buffer[..most])?;
        if got == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= got as u64;
        Ok(got)
    }
}

/// Sends what is written in chunks.
struct Chunks<'a> {
    talk: &'a mut PortalChannel,
    held: Vec<u8>,
}

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.held.len() + bytes.len() > MAX_CHUNK {
            self.flush()?;
        }
        let taken = bytes.len().min(MAX_CHUNK);
        self.held.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.held.is_empty() {
            write_chunk(&mut self.talk.socket, &self.held)?;
            self.held.clear();
        }
        Ok(())
    }
}
