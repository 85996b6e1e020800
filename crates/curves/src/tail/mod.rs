//! A directory of runs, followed while programs write into it. Files are found by name and
//! looked at by size, because home directories are often on network file systems, which do
//! not report changes; each byte is read once. A file that took the place of another and begins with the same
//! bytes, as copiers leave them, goes on where that one was. Runs in the process that has the rights
//! of the user whose files they are.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    growth::{self, Growth},
    log::{Entry, ReadPosition},
    reader::{Format, Item, Reader},
    whole_files,
};

/// Limits of a run: depth and number of its directories, number of its files, and the bytes of their names together.
const MAX_DEPTH: usize = 12;
const MAX_DIRECTORIES: usize = 20_000;
const MAX_FILES: usize = 20_000;
const MAX_NAME_BYTES: usize = 8 << 20;

/// How much of a copy is compared at a time (bytes).
const PIECE: usize = 256 << 10;

/// Directories in which rsync keeps copies in the making.
const TEMPORARY: [&str; 3] = [".~tmp~", ".rsync-partial", ".rsync-tmp"];

/// Maximum number of checkpoints, which must not take the place of curves.
const MAX_CHECKPOINTS: usize = 2000;

/// The files of runs below one directory.
#[derive(Debug)]
pub struct Tail {
    root: PathBuf,
    files: BTreeMap<PathBuf, FollowedFile>,
    /// The bytes of their names.
    names: usize,
    /// How many of the files are checkpoints.
    checkpoints: usize,
    /// Bytes that were read in all.
    pub bytes: u64,
    /// What could not be looked at, and why, as far as it was last tried.
    pub unreadable: BTreeMap<PathBuf, io::ErrorKind>,
    /// More files than are followed, or names that are no text, were found at the last look.
    pub left_out: u64,
}

#[derive(Debug)]
struct FollowedFile {
    how: How,
    read: u64,
    /// The device and the number of the file; another file of the same name is another attempt, unless it
    /// begins with what was read of this one.
    identity: (u64, u64),
}

#[derive(Debug)]
enum How {
    /// It grows at its end.
    Growing(Reader),
    /// It is rewritten as a whole: the time of the last write (nanoseconds since 1970), and the first step that
    /// has not been read.
    Whole { stamp: u64, next_step: i64 },
}

impl How {
    fn new(format: Format) -> Self {
        match format {
            Format::Events | Format::Lines => Self::Growing(Reader::new(format)),
            Format::Hparams | Format::State | Format::Checkpoint => Self::Whole { stamp: 0, next_step: i64::MIN },
        }
    }

    fn resume(format: Format, place: &ReadPosition) -> Self {
        match format {
            Format::Events | Format::Lines => Self::Growing(Reader::resume(format, place)),
            Format::Hparams | Format::State | Format::Checkpoint => {
                Self::Whole { stamp: place.skip, next_step: place.next_step }
            }
        }
    }
}

impl Tail {
    /// Goes on where others have stopped; from the beginning of what `places` do not name.
    pub fn new(root: PathBuf, places: &BTreeMap<String, ReadPosition>) -> Self {
        let files = places.iter().filter_map(|(name, place)| {
            let how = How::resume(Format::of(file_name(name))?, place);
            Some((root.join(name), FollowedFile { how, read: place.read, identity: place.identity }))
        });
        let names = places.keys().map(String::len).sum();
        let checkpoints = places.keys().filter(|name| is_checkpoint(name)).count();
        let (files, unreadable) = (files.collect(), BTreeMap::new());
        Self { files, names, checkpoints, root, bytes: 0, unreadable, left_out: 0 }
    }

    /// Finds files and reports what is new in each. Returns whether there may be more at once. `now`
    /// is in seconds since 1970. Runs are named by their directories; “.” is the root itself.
    pub fn poll(&mut self, now: f64, tell: &mut impl FnMut(Entry<'_>)) -> bool {
        self.unreadable.clear();
        self.left_out = 0;
        let found = self.find();
        // Where there are event files they say the same, and when.
        let has_events = found.iter().any(|(_, format)| *format == Format::Events);
        let mut grown = Vec::new();
        // In the order of their names, which begin with the time of their making.
        for (path, format) in found {
            if format == Format::State && has_events {
                continue;
            }
            match self.follow(&path, format, grown.len(), tell) {
                Ok(growth) => grown.extend(growth),
                Err(err) => {
                    self.unreadable.insert(path, err.kind());
                }
            }
        }
        let mut more = false;
        for (growth, unfinished) in growth::read(grown, now, tell) {
            let Growth { path, identity, read, reader, from, .. } = growth;
            self.bytes += read - from;
            match unfinished {
                Ok(unfinished) => more |= unfinished,
                Err(err) => {
                    self.unreadable.insert(path.clone(), err.kind());
                }
            }
            self.files.insert(path, FollowedFile { how: How::Growing(reader), read, identity });
        }
        more
    }

    /// Reports what is new in a file that is rewritten as a whole. Of a growing file, returns what is to be read.
    /// `taken` others are out to be read.
    fn follow(
        &mut self,
        path: &Path,
        format: Format,
        taken: usize,
        tell: &mut impl FnMut(Entry<'_>),
    ) -> io::Result<Option<Growth>> {
        let metadata = fs::metadata(path)?;
        let identity = (metadata.dev(), metadata.ino());
        let Some(file) = path.strip_prefix(&self.root).ok().and_then(Path::to_str).map(str::to_owned) else {
            self.left_out += 1;
            return Ok(None);
        };
        let known = self.files.get(path);
        if known.is_none() && (self.files.len() + taken >= MAX_FILES || self.names + file.len() > MAX_NAME_BYTES) {
            self.left_out += 1;
            return Ok(None);
        }
        let is_whole = matches!(format, Format::Hparams | Format::State | Format::Checkpoint);
        if known.is_none() && format == Format::Checkpoint {
            if self.checkpoints >= MAX_CHECKPOINTS {
                return Ok(None);
            }
            self.checkpoints += 1;
        }
        if let Some(known) = known.filter(|known| !is_whole && known.identity != identity) {
            let read = known.read;
            let is_copy = read <= metadata.len() && has_read(path, known)?;
            self.bytes += if is_copy { read } else { 0 };
            if let Some(known) = self.files.get_mut(path).filter(|_| is_copy) {
                known.identity = identity;
                if let How::Growing(reader) = &known.how {
                    tell(Entry::Place { file: &file, place: reader.place(read, identity) });
                }
            }
        }
        let known = self.files.get(path);
        let is_other = |known: &FollowedFile| known.identity != identity || metadata.len() < known.read;
        let is_new = known.is_none() || !is_whole && known.is_some_and(is_other);
        if known.is_none() {
            self.names += file.len();
        }
        if is_new {
            self.files.insert(path.to_owned(), FollowedFile { how: How::new(format), read: 0, identity });
        }
        if format == Format::Checkpoint {
            self.mark(path, &file, &metadata, tell);
            return Ok(None);
        }
        if is_whole {
            return self.look(path, &file, format, &metadata, tell).map(|()| None);
        }
        let grows = |followed: &FollowedFile| is_new || followed.read < metadata.len();
        if !self.files.get(path).is_some_and(grows) {
            return Ok(None);
        }
        // It comes back once it was read.
        let Some(FollowedFile { how: How::Growing(reader), read, identity }) = self.files.remove(path) else {
            return Ok(None);
        };
        let (run, path, size) = (run_of(&file, format).to_owned(), path.to_owned(), metadata.len());
        Ok(Some(Growth { path, file, run, identity, is_new, from: read, read, size, reader }))
    }

    /// Reports a checkpoint that was written since the last look, with its time.
    fn mark(&mut self, path: &Path, file: &str, metadata: &Metadata, tell: &mut impl FnMut(Entry<'_>)) {
        let Some(FollowedFile { how: How::Whole { stamp, .. }, read, identity }) = self.files.get_mut(path) else {
            return;
        };
        let now = (whole_files::stamp(metadata), metadata.len(), (metadata.dev(), metadata.ino()));
        if (*stamp, *read, *identity) != now {
            (*stamp, *read, *identity) = now;
            // The least of all steps: it says none.
            let next_step = whole_files::step_of(path).unwrap_or(i64::MIN);
            let place = ReadPosition { read: now.1, skip: now.0, next_step, identity: now.2, sum: None };
            tell(Entry::Place { file, place });
        }
    }

    /// Reports the content of a file that is rewritten as a whole, if it has changed.
    fn look(
        &mut self,
        path: &Path,
        file: &str,
        format: Format,
        metadata: &Metadata,
        tell: &mut impl FnMut(Entry<'_>),
    ) -> io::Result<()> {
        let run = run_of(file, format);
        // Each checkpoint of a run repeats all values from the beginning.
        let told = |(path, followed): (&PathBuf, &FollowedFile)| {
            let file = path.strip_prefix(&self.root).ok()?.to_str()?;
            let How::Whole { next_step, .. } = followed.how else { return None };
            (Format::of(file_name(file)) == Some(format) && run_of(file, format) == run).then_some(next_step)
        };
        let next_step = self.files.iter().filter_map(told).max().unwrap_or(i64::MIN);
        let Some(followed) = self.files.get_mut(path) else { return Ok(()) };
        let identity = (metadata.dev(), metadata.ino());
        let now = whole_files::stamp(metadata);
        let How::Whole { stamp, next_step: next } = &mut followed.how else { return Ok(()) };
        if (*stamp, followed.read, followed.identity) == (now, metadata.len(), identity) {
            return Ok(());
        }
        self.bytes += metadata.len().min(whole_files::MAX_FILE_SIZE);
        *next = whole_files::read(path, format, next_step, &mut |item: Item<'_>| tell(Entry::Item { run, item }))?;
        (*stamp, followed.read, followed.identity) = (now, metadata.len(), identity);
        let place = ReadPosition { read: metadata.len(), skip: now, next_step: *next, identity, sum: None };
        tell(Entry::Place { file, place });
        Ok(())
    }

    /// The files of values below the root, links followed, each directory once.
    fn find(&mut self) -> Vec<(PathBuf, Format)> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut waiting = vec![(self.root.clone(), 0)];
        while let Some((directory, depth)) = waiting.pop() {
            let entries = fs::metadata(&directory).and_then(|metadata| {
                let first = seen.insert((metadata.dev(), metadata.ino()));
                if first && seen.len() <= MAX_DIRECTORIES { fs::read_dir(&directory).map(Some) } else { Ok(None) }
            });
            let entries = match entries {
                Ok(Some(entries)) => entries,
                Ok(None) => continue,
                Err(err) => {
                    self.unreadable.insert(directory, err.kind());
                    continue;
                }
            };
            for entry in entries.flatten() {
                let path = entry.path();
                let name = entry.file_name();
                let format = Format::of(&name.to_string_lossy());
                if TEMPORARY.iter().any(|temporary| name == *temporary) {
                    continue;
                }
                let kind = entry.file_type().and_then(|kind| {
                    if kind.is_symlink() { fs::metadata(&path).map(|metadata| metadata.file_type()) } else { Ok(kind) }
                });
                match (kind, format) {
                    (Ok(kind), _) if kind.is_dir() && depth < MAX_DEPTH => waiting.push((path, depth + 1)),
                    (Ok(kind), Some(format)) if kind.is_file() => found.push((path, format)),
                    _ => {}
                }
            }
        }
        found.sort();
        found
    }
}

/// Whether a file begins with the bytes that were read of the one before it.
fn has_read(path: &Path, known: &FollowedFile) -> io::Result<bool> {
    let How::Growing(reader) = &known.how else { return Ok(false) };
    let Some(expected) = reader.sum() else { return Ok(false) };
    let mut content = File::open(path)?.take(known.read);
    let (mut sum, mut left) = (0, known.read);
    let mut buffer = vec![0; PIECE];
    loop {
        let count = content.read(&mut buffer)?;
        sum = crc32c::crc32c_append(sum, &buffer[..count]);
        left = left.saturating_sub(count as u64);
        if count == 0 {
            return Ok(left == 0 && sum == expected);
        }
    }
}

/// A run is named by its directory below the root. The states that the checkpoints of a trainer
/// hold belong to the directory above them.
fn run_of(file: &str, format: Format) -> &str {
    let directory = |path| Path::new(path).parent().and_then(Path::to_str).filter(|name| !name.is_empty());
    let parent = directory(file).unwrap_or(".");
    match format {
        Format::State if file_name(parent).starts_with("checkpoint-") => directory(parent).unwrap_or("."),
        _ => parent,
    }
}

/// Whether this file, named below the root, is one that a training can go on from.
pub fn is_checkpoint(file: &str) -> bool {
    Format::of(file_name(file)) == Some(Format::Checkpoint)
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests;
