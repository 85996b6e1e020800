//! Where points stay: one file a job, to which batches are added and nothing is ever changed.
//! A batch is in it whole or not at all, so what the points came from and how far it was read
//! always agree. Opened anew, the file is read once, and what a crash left at its end is cut off.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{
    log::{Decoder, Encoder, Entry, Malformed, Place},
    record::{self, Next, framed},
    run::Runs,
};

/// How much of the file is read at a time (bytes).
const PIECE: usize = 1 << 20;

/// The runs of one job, in memory and on disk.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    /// How much of the file is whole (bytes).
    length: u64,
    encoder: Encoder,
    pub runs: Runs,
    /// How far each file has been read, by its name below the directory of logs.
    pub places: BTreeMap<String, Place>,
}

/// Why a batch was not added. Nothing of it is kept, in memory or on disk.
#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("writing {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Store {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let (encoder, runs) = (Encoder::default(), Runs::default());
        let mut store = Self { path: path.to_owned(), file, length: 0, encoder, runs, places: BTreeMap::new() };
        store.replay()?;
        if store.length < store.file.metadata()?.len() {
            tracing::warn!(path = %path.display(), whole = store.length, "the end of a file of points is cut off");
            store.file.set_len(store.length)?;
        }
        Ok(store)
    }

    /// Adds a batch that another process made, and that `decoder` reads.
    pub fn add(&mut self, decoder: &mut Decoder, batch: &[u8]) -> Result<(), Error> {
        let added = self.append(decoder, batch);
        if added.is_err() {
            // Memory may be ahead of the disk now: it is made anew from what is whole there.
            let path = &self.path;
            let reopen = || {
                self.file.set_len(self.length)?;
                Self::open(path)
            };
            *self = reopen().map_err(|source| Error::Write { path: self.path.clone(), source })?;
        }
        added
    }

    fn append(&mut self, decoder: &mut Decoder, batch: &[u8]) -> Result<(), Error> {
        let Self { encoder, runs, places, .. } = self;
        let heard = decoder.batch(batch, &mut |entry| {
            encoder.entry(&entry);
            apply(runs, places, entry);
        });
        let bytes = framed(&self.encoder.take());
        heard?;
        self.file.write_all(&bytes).map_err(|source| Error::Write { path: self.path.clone(), source })?;
        self.length += bytes.len() as u64;
        Ok(())
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
                let Self { encoder, runs, places, .. } = self;
                let heard = decoder.batch(data, &mut |entry| {
                    // The encoder's memory of names and steps comes to be the file's.
                    encoder.entry(&entry);
                    apply(runs, places, entry);
                });
                encoder.take();
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

fn apply(runs: &mut Runs, places: &mut BTreeMap<String, Place>, entry: Entry<'_>) {
    match entry {
        Entry::Item { run, item } => runs.take(run, item),
        Entry::Place { file, place } => {
            places.insert(file.to_owned(), place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::curves::{Item, Point, Run};

    fn batch(encoder: &mut Encoder, steps: std::ops::Range<i64>) -> Vec<u8> {
        for step in steps.clone() {
            for tag in [&b"loss"[..], b"accuracy"] {
                let item = Item::Scalar { tag, step, wall_time: 1.0, value: 0.5 };
                encoder.entry(&Entry::Item { run: "train", item });
            }
        }
        let place = Place { read: steps.end.unsigned_abs(), ..Place::default() };
        encoder.entry(&Entry::Place { file: "train/events", place });
        encoder.take()
    }

    fn points(store: &Store) -> Vec<Point> {
        store.runs.0.values().flat_map(Run::curves).flat_map(|(_, series)| series.points()).collect()
    }

    /// A file of three batches, each with two points of two curves; where each batch ends.
    fn filled(path: &Path) -> Vec<u64> {
        let mut store = Store::open(path).unwrap();
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let mut ends = vec![0];
        for number in 0..3 {
            store.add(&mut decoder, &batch(&mut encoder, number * 2..number * 2 + 2)).unwrap();
            ends.push(fs::metadata(path).unwrap().len());
        }
        ends
    }

    #[test]
    fn what_was_added_is_there_when_it_is_opened_anew() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("points");
        filled(&path);
        let mut store = Store::open(&path).unwrap();
        assert_eq!(points(&store).len(), 12);
        assert_eq!(store.places["train/events"].read, 6);
        // Another teller begins with names of its own.
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        store.add(&mut decoder, &batch(&mut encoder, 6..7)).unwrap();
        assert_eq!(points(&store), points(&Store::open(&path).unwrap()));
        assert_eq!(store.runs.0["train"].curve("loss").unwrap().len(), 7);
    }

    #[test]
    fn a_file_cut_anywhere_holds_whole_batches() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("points");
        let ends = filled(&path);
        let bytes = fs::read(&path).unwrap();
        for cut in 0..=bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let store = Store::open(&path).unwrap();
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
        let mut store = Store::open(&path).unwrap();
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let mut wrong = batch(&mut encoder, 6..9);
        wrong.push(0xff);
        assert!(matches!(store.add(&mut decoder, &wrong), Err(Error::Malformed(_))));
        assert_eq!(points(&store).len(), 12);
        assert_eq!(points(&Store::open(&path).unwrap()).len(), 12);
        store.add(&mut Decoder::default(), &batch(&mut Encoder::default(), 6..7)).unwrap();
        assert_eq!(points(&Store::open(&path).unwrap()).len(), 14);
    }

    #[test]
    fn a_full_disk_loses_nothing_that_was_there() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("points");
        filled(&path);
        let mut store = Store::open(&path).unwrap();
        // Nothing can be written through a file that was opened for reading.
        store.file = File::open(&path).unwrap();
        let mut encoder = Encoder::default();
        assert!(store.add(&mut Decoder::default(), &batch(&mut encoder, 6..9)).is_err());
        assert_eq!(points(&Store::open(&path).unwrap()).len(), 12);
    }
}
