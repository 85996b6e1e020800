//! Makes one directory of an image's layers, in their order: files, directories, links, and what later
//! layers remove of earlier ones (`.wh.NAME`, `.wh..wh..opq`). Devices, pipes, owners, extended attributes and
//! set-uid bits are left out. Bytes and entries are counted before they are written, so that a layer of
//! terabytes ends at the limit.

mod decode;
mod name;
mod tree;

use std::{
    cell::Cell,
    collections::{HashMap, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    rc::Rc,
    thread,
};

use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{Error, Result},
    manifest::Blob,
    progress::Meter,
    settings::Limits,
};
use decode::{Chunks, Decoding, Fault};
pub(crate) use name::{Name, within};
use tree::Tree;
pub(crate) use tree::remove_all;

/// Layers that are decompressed at once, the one that is unpacked included.
const AHEAD: usize = 2;
/// Bytes of headers that describe one entry: long names and attributes.
pub(crate) const MAX_HEADER: u64 = 1 << 20;
/// The last second of the year 9999.
const LATEST: i64 = 253_402_300_799;
const UNPACKED: &str = "the unpacked image";
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// A layer and where its blob is stored.
pub(crate) struct Layer {
    pub blob: Blob,
    pub path: PathBuf,
}

/// Unpacks layers into the empty directory `root`, and writes everything to the disk.
pub(crate) fn unpack(
    layers: &[Layer],
    root: &Path,
    limits: &Limits,
    meter: &Meter,
    cancel: &CancellationToken,
) -> Result<()> {
    let failed = |operation| move |err: Errno| Error::disk(operation, root, err);
    let mut unpacking = Unpacking {
        tree: Tree::open(root).map_err(failed("open"))?,
        root,
        times: HashMap::new(),
        left: Rc::new(Cell::new(limits.unpacked_bytes)),
        entries: 0,
        buffer: vec![0; 64 << 10],
        limits,
        cancel,
    };
    thread::scope(|scope| {
        let mut ahead = VecDeque::new();
        let mut rest = layers.iter();
        for layer in layers {
            while ahead.len() < AHEAD
                && let Some(next) = rest.next()
            {
                ahead.push_back(Decoding::start(scope, &next.path, next.blob, meter, cancel));
            }
            let Some(decoding) = ahead.pop_front() else { break };
            let (chunks, thread) = decoding.split();
            let outcome = unpacking.layer(layer.blob, chunks);
            let decoded = thread.join().unwrap_or(Err(Fault::Error(Error::Interrupted)));
            // A broken or damaged blob is the cause of what the archive's reader then reports.
            match (decoded, outcome) {
                (Err(Fault::Error(error)), _) | (Ok(()), Err(error)) => return Err(error),
                (Err(Fault::Broken(reason)), _) => {
                    return Err(Error::Layer { digest: layer.blob.digest, entry: "/".to_owned(), reason });
                }
                (Ok(()), Ok(())) => {}
            }
        }
        Ok(())
    })?;
    for (name, modified) in &unpacking.times {
        unpacking.tree.set_directory_time(name, *modified).map_err(failed("set the time of a directory in"))?;
    }
    unpacking.tree.sync().map_err(failed("write"))
}

struct Unpacking<'a> {
    tree: Tree,
    root: &'a Path,
    /// The times of directories, which change while files are made in them.
    times: HashMap<Vec<u8>, i64>,
    /// Bytes of all layers that are still allowed.
    left: Rc<Cell<u64>>,
    entries: u64,
    buffer: Vec<u8>,
    limits: &'a Limits,
    cancel: &'a CancellationToken,
}

/// What happened to one entry.
enum Trouble {
    Unsafe(String),
    Disk(Errno),
    Error(Error),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::Disk(errno)
    }
}

impl From<&str> for Trouble {
    fn from(reason: &str) -> Self {
        Self::Unsafe(reason.to_owned())
    }
}

impl Unpacking<'_> {
    fn layer(&mut self, blob: Blob, chunks: Chunks) -> Result<()> {
        let at = |entry: &str, reason: String| Error::Layer { digest: blob.digest, entry: entry.to_owned(), reason };
        let limit = self.limits.unpacked_bytes;
        let unreadable = |err: io::Error| surplus(&err, limit).unwrap_or_else(|| at("/", err.to_string()));
        let allowance = Rc::new(Cell::new(u64::MAX));
        let mut archive =
            Archive::new(Bounded { source: chunks, allowance: allowance.clone(), left: self.left.clone() });
        let mut added = Added::new();
        let mut entries = archive.entries().map_err(unreadable)?;
        loop {
            allowance.set(MAX_HEADER);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(unreadable)?;
            allowance.set(u64::MAX);
            self.count()?;
            let shown: String = String::from_utf8_lossy(&entry.path_bytes()).chars().take(300).collect();
            self.entry(&mut entry, &mut added).map_err(|trouble| match trouble {
                Trouble::Error(error) => error,
                Trouble::Unsafe(reason) => at(&shown, reason),
                Trouble::Disk(errno) if is_of_the_disk(errno) => Error::disk("unpack into", self.root, errno),
                Trouble::Disk(errno) => at(&shown, plain(errno)),
            })?;
            // Content that was not used is skipped here, because it is longer than a header may be.
            io::copy(&mut entry, &mut io::sink()).map_err(unreadable)?;
        }
        allowance.set(u64::MAX);
        io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop).map_err(unreadable)
    }

    fn count(&mut self) -> Result<()> {
        if self.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        self.entries += 1;
        if self.entries > self.limits.entries {
            let what = "the number of files of the image".to_owned();
            return Err(Error::TooLarge { what, size: self.entries, limit: self.limits.entries });
        }
        Ok(())
    }

    fn entry(&mut self, entry: &mut Entry<'_, Bounded>, added: &mut Added) -> Result<(), Trouble> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        if is_pax_sparse(entry) {
            return Err("sparse files in PAX format are not supported".into());
        }
        let name = Name::parse(&entry.path_bytes())?;
        if let Some(last) = name.last_bytes()
            && let Some(hidden) = last.strip_prefix(WHITEOUT)
        {
            return self.whiteout(&name, last, hidden, added);
        }
        let mode = entry.header().mode().map_err(|_err| "its mode is invalid")?;
        let modified = entry.header().mtime().ok().and_then(|time| i64::try_from(time).ok()).unwrap_or(0).min(LATEST);
        match kind {
            EntryType::Directory => {
                self.tree.directory(&name, mode)?;
                self.times.insert(name.as_bytes().to_owned(), modified);
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.content(entry, &name, mode, modified)?;
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().ok_or("it is a link to nothing")?;
                self.tree.symlink(&name, &target)?;
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().ok_or("it is a link to nothing")?;
                let target =
                    Name::parse(&target).map_err(|reason| Trouble::Unsafe(format!("it is a hard link; {reason}")))?;
                self.tree.hard_link(&name, &target).map_err(|errno| match errno {
                    Errno::NOENT | Errno::NOTDIR => {
                        Trouble::Unsafe("it is a hard link to a file that does not exist".to_owned())
                    }
                    errno => Trouble::Disk(errno),
                })?;
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => self.tree.remove(&name)?,
            _ => return Err("its type is unknown".into()),
        }
        added.insert(&name);
        Ok(())
    }

    fn content(
        &mut self,
        entry: &mut Entry<'_, Bounded>,
        name: &Name,
        mode: u32,
        modified: i64,
    ) -> Result<(), Trouble> {
        let limit = self.limits.unpacked_bytes;
        if entry.size() > self.left.get() {
            let size = (limit - self.left.get()).saturating_add(entry.size());
            return Err(Trouble::Error(Error::TooLarge { what: UNPACKED.to_owned(), size, limit }));
        }
        let mut file = self.tree.file(name)?;
        let mut left = entry.size();
        while left > 0 {
            let count = match entry.read(&mut self.buffer) {
                Ok(0) => return Err("it is shorter than its header promises".into()),
                Ok(count) => count,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
                Err(err) => {
                    return Err(surplus(&err, limit).map_or_else(|| Trouble::Unsafe(err.to_string()), Trouble::Error));
                }
            };
            file.write_all(&self.buffer[..count])
                .map_err(|err| Trouble::Error(Error::disk("unpack into", self.root, err)))?;
            left = left.saturating_sub(count as u64);
        }
        if entry.header().entry_type() == EntryType::GNUSparse {
            // Holes are written as zeros, and are not bytes of the archive.
            self.left.set(self.left.get().saturating_sub(entry.size()));
        }
        Ok(Tree::finish(&file, mode, modified)?)
    }

    /// Removes what an earlier layer made. What this layer itself made stays.
    fn whiteout(&mut self, name: &Name, last: &[u8], hidden: &[u8], added: &Added) -> Result<(), Trouble> {
        let parent = name.parent_name();
        if last == OPAQUE {
            return Ok(self.tree.empty(&parent, &|name| added.contains(name))?);
        }
        if hidden.starts_with(WHITEOUT) {
            return Ok(()); // Marks of AUFS, such as `.wh..wh.plnk`.
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err("it removes no file".into());
        }
        let hidden = parent.join(hidden);
        if added.contains(&hidden) { Ok(()) } else { Ok(self.tree.remove(&hidden)?) }
    }
}

fn is_pax_sparse(entry: &mut Entry<'_, Bounded>) -> bool {
    let Ok(Some(extensions)) = entry.pax_extensions() else { return false };
    extensions.flatten().any(|extension| extension.key_bytes().starts_with(b"GNU.sparse."))
}

/// Returns the failure that the limit on bytes caused, if it did.
fn surplus(err: &io::Error, limit: u64) -> Option<Error> {
    err.get_ref().filter(|inner| inner.is::<Surplus>())?;
    Some(Error::TooLarge { what: UNPACKED.to_owned(), size: limit.saturating_add(1), limit })
}

/// Returns whether the cause is the machine, and not the entry.
fn is_of_the_disk(errno: Errno) -> bool {
    use Errno as E;
    [E::NOSPC, E::DQUOT, E::IO, E::ROFS, E::MFILE, E::NFILE, E::ACCESS, E::NOMEM].contains(&errno)
}

fn plain(errno: Errno) -> String {
    match errno {
        Errno::NOTDIR | Errno::NOENT => "a part of its path is not a directory".to_owned(),
        Errno::LOOP => "its path leads through too many links".to_owned(),
        Errno::NAMETOOLONG => "its path is too long".to_owned(),
        Errno::ISDIR | Errno::INVAL => "it would replace the root directory".to_owned(),
        errno => io::Error::from(errno).to_string(),
    }
}

/// The names that one layer made, and the directories that lead to them.
struct Added {
    hashes: HashSet<u64>,
    state: RandomState,
}

impl Added {
    fn new() -> Self {
        Self { hashes: HashSet::new(), state: RandomState::new() }
    }

    fn insert(&mut self, name: &Name) {
        let mut bytes = name.as_bytes();
        while !bytes.is_empty() && self.hashes.insert(self.state.hash_one(bytes)) {
            let end = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            bytes = &bytes[..end];
        }
    }

    fn contains(&self, name: &Name) -> bool {
        self.hashes.contains(&self.state.hash_one(name.as_bytes()))
    }
}

/// Bounds the bytes of all layers, and those of one entry's headers.
struct Bounded {
    source: Chunks,
    allowance: Rc<Cell<u64>>,
    left: Rc<Cell<u64>>,
}

#[derive(Debug, thiserror::Error)]
#[error("the unpacked image is larger than the limit")]
struct Surplus;

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (allowed, left) = (self.allowance.get(), self.left.get());
        if allowed == 0 {
            return Err(io::Error::other("its name or its attributes are too long"));
        }
        let most = usize::try_from(allowed).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.source.read(&mut buffer[..most])?;
        if count as u64 > left {
            return Err(io::Error::other(Surplus));
        }
        self.left.set(left - count as u64);
        self.allowance.set(allowed.saturating_sub(count as u64));
        Ok(count)
    }
}
