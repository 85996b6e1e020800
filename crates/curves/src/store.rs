//! Where points stay: one file a job, to which batches are added and nothing is ever changed.
//! A batch is in it whole or not at all, so what the points came from and how far it was read
//! always agree. Opened anew, the file is read once, and what a crash left at its end is cut off.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{
    log::{Decoder, Encoder, Entry, Malformed, ReadPosition},
    reader::Item,
    record::{self, Next, framed},
    run::Runs,
    tail::is_checkpoint,
};

/// How much of the file is read at a time (bytes).
const PIECE: usize = 1 << 20;

/// So many files are followed below one directory, and their names together have so many bytes.
const MAX_FILES: usize = 30_000;
const MAX_NAME_BYTES: usize = 16 << 20;

/// Of checkpoints so many moments are kept. One that is written for longer than a look at it takes is the same
/// (nanoseconds).
const MAX_CHECKPOINTS: usize = 10_000;
const SAME_WRITING: u64 = 10_000_000_000;

/// What a store takes in memory: a point, and each curve besides (bytes, roughly).
const POINT: u64 = 24;
const CURVE: u64 = 700;

/// The runs of one directory, in memory and on disk.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    /// How much of the file is whole (bytes).
    length: u64,
    encoder: Encoder,
    pub runs: Runs,
    /// How far each file has been read, by its name below the directory of logs.
    pub places: BTreeMap<String, ReadPosition>,
    /// When which checkpoint was written, in the order of the telling.
    pub checkpoints: Vec<Checkpoint>,
    /// The bytes of their names.
    names: usize,
    points: u64,
    /// More points are counted and not kept.
    most_points: u64,
}

/// Something that a training can go on from was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Its name below the directory of logs.
    pub file: String,
    /// Seconds since 1970, by the clock of the file system.
    pub wall_time: f64,
    /// The step that the file itself says.
    pub step: Option<i64>,
}

/// Why a batch was not added. Nothing of it is kept, in memory or on disk.
#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Whoever reads the files keeps to less.
    #[error("too many files")]
    TooManyFiles,
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Store {
    /// Opens the file, or makes it. Of its points at most so many are kept.
    pub fn open(path: &Path, most_points: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let mut store = Self {
            path: path.to_owned(),
            file,
            length: 0,
            encoder: Encoder::default(),
            runs: Runs::default(),
            places: BTreeMap::new(),
            checkpoints: Vec::new(),
            names: 0,
            points: 0,
            most_points,
        };
        store.replay()?;
        if store.length < store.file.metadata()?.len() {
            tracing::warn!(path = %store.path.display(), whole = store.length, "truncated the damaged end of a file of points");
            store.file.set_len(store.length)?;
        }
        Ok(store)
    }

    /// How much of the file is whole (bytes): it grows with each batch, and tells which are there.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// All points, of all attempts.
    pub fn points(&self) -> u64 {
        self.points
    }

    pub fn curves(&self) -> usize {
        self.runs.values().map(|run| run.curves().len()).sum()
    }

    /// What it takes in memory (bytes, roughly).
    pub fn memory(&self) -> u64 {
        self.points * POINT + self.curves() as u64 * CURVE + self.names as u64
    }

    /// How far each file has been read, as a batch for whoever goes on reading.
    pub fn places(&self) -> Vec<u8> {
        let mut encoder = Encoder::default();
        for (file, place) in &self.places {
            encoder.certain(&Entry::Place { file, place: place.clone() });
        }
        encoder.take()
    }

    /// Adds a batch that another process made, and that `decoder` reads.
    /// `tell` hears of each entry that is kept.
    pub fn add(&mut self, decoder: &mut Decoder, batch: &[u8], tell: &mut impl FnMut(&Entry<'_>)) -> Result<(), Error> {
        let added = self.append(decoder, batch, tell);
        if added.is_err() {
            // Memory may be ahead of the disk now: it is made anew from what is whole there.
            let path = &self.path;
            let reopen = || {
                self.file.set_len(self.length)?;
                Self::open(path, self.most_points)
            };
            *self = reopen().map_err(|source| Error::Write { path: self.path.clone(), source })?;
        }
        added
    }

    fn append(&mut self, decoder: &mut Decoder, batch: &[u8], tell: &mut impl FnMut(&Entry<'_>)) -> Result<(), Error> {
        let heard = decoder.batch(batch, &mut |entry| self.take(entry, tell));
        if let Some(surplus) = self.encoder.told_surplus() {
            self.take(surplus, tell);
        }
        let bytes = framed(&self.encoder.take());
        heard?;
        if self.places.len() > MAX_FILES || self.names > MAX_NAME_BYTES {
            return Err(Error::TooManyFiles);
        }
        self.file.write_all(&bytes).map_err(|source| Error::Write { path: self.path.clone(), source })?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Keeps an entry, or counts it where there are too many.
    fn take(&mut self, entry: Entry<'_>, tell: &mut impl FnMut(&Entry<'_>)) {
        let is_point = matches!(entry, Entry::Item { item: Item::Scalar { .. }, .. });
        if is_point && self.most_points <= self.points {
            self.encoder.pass_over();
        } else if self.encoder.entry(&entry) {
            tell(&entry);
            self.apply(entry);
        }
    }

    fn apply(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::Item { run, item } => {
                self.points += u64::from(matches!(item, Item::Scalar { .. }));
                self.runs.take(run, item);
            }
            Entry::Place { file, place } => {
                if is_checkpoint(file) {
                    self.mark(file, &place);
                }
                if let Some(known) = self.places.get_mut(file) {
                    *known = place;
                } else {
                    self.names += file.len();
                    self.places.insert(file.to_owned(), place);
                }
            }
        }
    }

    /// Keeps when a checkpoint was written.
    fn mark(&mut self, file: &str, place: &ReadPosition) {
        let is_same = |known: &ReadPosition| {
            known.identity == place.identity && place.skip.saturating_sub(known.skip) < SAME_WRITING
        };
        if !self.places.get(file).is_some_and(is_same) && self.checkpoints.len() < MAX_CHECKPOINTS {
            #[expect(clippy::cast_precision_loss, reason = "a moment, to the microsecond")]
            let wall_time = place.skip as f64 / 1e9;
            let step = (place.next_step != i64::MIN).then_some(place.next_step);
            self.checkpoints.push(Checkpoint { file: file.to_owned(), wall_time, step });
        }
    }

    /// Reads what is there, as far as it is whole.
    fn replay(&mut self) -> io::Result<()> {
        let mut decoder = Decoder::default();
        let mut held = Vec::new();
        loop {
            let before = held.len();
            held.resize(before + PIECE, 0);
            let count = self.file.read(&mut held[before..])?;
            held.truncate(before + count);
            let mut taken = 0;
            let rest = loop {
                let next = record::next(&held[taken..]);
                let Ok(Next::Record { data, size }) = next else { break next };
                let heard = decoder.batch(data, &mut |entry| {
                    // The encoder's memory of names and steps comes to be the file's.
                    self.encoder.certain(&entry);
                    self.apply(entry);
                });
                self.encoder.take();
                if let Err(err) = heard {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, err));
                }
                taken += size;
                self.length += size as u64;
            };
            if count == 0 || !matches!(rest, Ok(Next::Partial { .. })) {
                return Ok(());
            }
            held.drain(..taken);
        }
    }
}

/// Reads a file of points again from its beginning: tells the entries of the batches behind
/// `since`, with the place where each batch ends, up to the end of the file or of `until`. False
/// where `since` is no place between two batches.
pub fn reread(path: &Path, since: u64, until: u64, tell: &mut impl FnMut(u64, Entry<'_>)) -> io::Result<bool> {
    let mut file = File::open(path)?.take(until);
    let mut decoder = Decoder::default();
    let (mut held, mut at) = (Vec::new(), 0);
    let mut is_known = since == 0;
    loop {
        let before = held.len();
        held.resize(before + PIECE, 0);
        let count = file.read(&mut held[before..])?;
        held.truncate(before + count);
        let mut taken = 0;
        while let Ok(Next::Record { data, size }) = record::next(&held[taken..]) {
            let end = at + size as u64;
            let heard = decoder.batch(data, &mut |entry| {
                if since <= at {
                    tell(end, entry);
                }
            });
            heard.map_err(|err| io::Error::new(io::ErrorKind::InvalidData, err))?;
            at = end;
            is_known |= at == since;
            taken += size;
        }
        held.drain(..taken);
        if count == 0 {
            return Ok(is_known);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::{Point, Run, reader::Skipped};

    fn batch(encoder: &mut Encoder, steps: std::ops::Range<i64>) -> Vec<u8> {
        for step in steps.clone() {
            for tag in [&b"loss"[..], b"accuracy"] {
                let item = Item::Scalar { tag, step, wall_time: 1.0, value: 0.5 };
                encoder.entry(&Entry::Item { run: "train", item });
            }
        }
        let place = ReadPosition { read: steps.end.unsigned_abs(), ..ReadPosition::default() };
        encoder.entry(&Entry::Place { file: "train/events", place });
        encoder.take()
    }

    fn points(store: &Store) -> Vec<Point> {
        store.runs.values().flat_map(Run::curves).flat_map(|(_, series)| series.points()).collect()
    }

    /// A file of three batches, each with two points of two curves; where each batch ends.
    fn filled(path: &Path) -> Vec<u64> {
        let mut store = Store::open(path, u64::MAX).unwrap();
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let mut ends = vec![0];
        for number in 0..3 {
            store.add(&mut decoder, &batch(&mut encoder, number * 2..number * 2 + 2), &mut |_| {}).unwrap();
            ends.push(fs::metadata(path).unwrap().len());
        }
        ends
    }

    #[test]
    fn what_was_added_is_there_when_it_is_opened_anew() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("points");
        filled(&path);
        let mut store = Store::open(&path, u64::MAX).unwrap();
        assert_eq!(points(&store).len(), 12);
        assert_eq!(store.places["train/events"].read, 6);
        // Another teller begins with names of its own.
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        store.add(&mut decoder, &batch(&mut encoder, 6..7), &mut |_| {}).unwrap();
        assert_eq!(points(&store), points(&Store::open(&path, u64::MAX).unwrap()));
        assert_eq!(store.runs.get("train").unwrap().curve("loss").unwrap().len(), 7);
    }

    #[test]
    fn a_file_cut_anywhere_holds_whole_batches() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("points");
        let ends = filled(&path);
        let bytes = fs::read(&path).unwrap();
        for cut in 0..=bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let store = Store::open(&path, u64::MAX).unwrap();
            let whole = ends.iter().rposition(|end| *end <= cut as u64).unwrap();
            assert_eq!(points(&store).len(), 4 * whole, "cut at {cut}");
            assert_eq!(store.places.get("train/events").map_or(0, |place| place.read), 2 * whole as u64);
            assert_eq!(fs::metadata(&path).unwrap().len(), ends[whole]);
        }
    }

    #[test]
    fn nothing_of_a_malformed_batch_is_kept() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("points");
        filled(&path);
        let mut store = Store::open(&path, u64::MAX).unwrap();
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let mut wrong = batch(&mut encoder, 6..9);
        wrong.push(0xff);
        assert!(matches!(store.add(&mut decoder, &wrong, &mut |_| {}), Err(Error::Malformed(_))));
        assert_eq!(points(&store).len(), 12);
        assert_eq!(points(&Store::open(&path, u64::MAX).unwrap()).len(), 12);
        store.add(&mut Decoder::default(), &batch(&mut Encoder::default(), 6..7), &mut |_| {}).unwrap();
        assert_eq!(points(&Store::open(&path, u64::MAX).unwrap()).len(), 14);
    }

    #[test]
    fn a_file_is_read_again_from_any_batch_on() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("points");
        let ends = filled(&path);
        for (batches, since) in ends.iter().enumerate() {
            let (mut steps, mut last) = (Vec::new(), 0);
            let known = reread(&path, *since, u64::MAX, &mut |end, entry| {
                last = end;
                if let Entry::Item { item: Item::Scalar { tag: b"loss", step, .. }, .. } = entry {
                    steps.push(step);
                }
            });
            assert!(known.unwrap());
            assert_eq!(steps, (2 * i64::try_from(batches).unwrap()..6).collect::<Vec<_>>());
            assert!(last == ends[3] || steps.is_empty());
        }
        assert!(!reread(&path, 7, u64::MAX, &mut |_, _| {}).unwrap());
        let mut seen = 0;
        assert!(reread(&path, 0, ends[1], &mut |end, _| seen = end).unwrap());
        assert_eq!(seen, ends[1]);
    }

    #[test]
    fn more_points_than_are_kept_are_counted() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("points");
        let mut store = Store::open(&path, 7).unwrap();
        store.add(&mut Decoder::default(), &batch(&mut Encoder::default(), 0..5), &mut |_| {}).unwrap();
        for store in [store, Store::open(&path, 7).unwrap()] {
            assert_eq!((points(&store).len(), store.points()), (7, 7));
            assert_eq!(store.runs.get(".").unwrap().skipped, Skipped { surplus: 3, ..Skipped::default() });
            assert_eq!(store.places["train/events"].read, 5, "and are not read again");
        }
    }

    #[test]
    fn a_full_disk_loses_nothing_that_was_there() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("points");
        filled(&path);
        let mut store = Store::open(&path, u64::MAX).unwrap();
        // Nothing can be written through a file that was opened for reading.
        store.file = File::open(&path).unwrap();
        let mut encoder = Encoder::default();
        assert!(store.add(&mut Decoder::default(), &batch(&mut encoder, 6..9), &mut |_| {}).is_err());
        assert_eq!(points(&Store::open(&path, u64::MAX).unwrap()).len(), 12);
    }
}
