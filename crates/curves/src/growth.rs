//! What has grown of the files of runs: each is read from where it was left, in pieces, and what
//! a piece says is told. Where much is to be read of many runs, several threads read and take apart,
//! each the files of one run after another, and hand what they found to the one that tells.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    num::NonZero,
    ops::Range,
    panic::resume_unwind,
    path::PathBuf,
    sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    thread,
};

use parking_lot::Mutex;

use super::{
    log::{Entry, ReadPosition},
    reader::{Item, Reader, Skipped},
};

/// How much of a file is read at a time (bytes): behind each piece stands a place.
const PIECE: usize = 256 << 10;

/// So much of a file is read before the others have their turn (bytes).
const MAX_TURN_BYTES: u64 = 64 << 20;

/// Less than this is read by whoever asks, alone (bytes). So many threads read at most.
const MIN_PARALLEL_BYTES: u64 = 4 << 20;
const MAX_THREADS: usize = 4;

/// A file of which there is more to read.
#[derive(Debug)]
pub(super) struct Growth {
    pub path: PathBuf,
    /// Its name below the directory of the runs, and the run's.
    pub file: String,
    pub run: String,
    pub identity: (u64, u64),
    /// It was not followed before.
    pub is_new: bool,
    /// The bytes that were read before this look, that were read by now, and that there are.
    pub from: u64,
    pub read: u64,
    pub size: u64,
    pub reader: Reader,
}

/// Tells what is new in each; they come back as they are then, with whether there may be more, in no order.
pub(super) fn read(all: Vec<Growth>, now: f64, tell: &mut impl FnMut(Entry<'_>)) -> Vec<(Growth, io::Result<bool>)> {
    let much: u64 = all.iter().map(|growth| growth.size.saturating_sub(growth.read)).sum();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    if cores == 1 || much < MIN_PARALLEL_BYTES {
        alone(all, now, tell)
    } else {
        shared(all, cores.min(MAX_THREADS), now, tell)
    }
}

/// So many threads read, and this one tells.
fn shared(
    all: Vec<Growth>,
    threads: usize,
    now: f64,
    tell: &mut impl FnMut(Entry<'_>),
) -> Vec<(Growth, io::Result<bool>)> {
    // What two files of one run say must be told in their order.
    let mut runs: BTreeMap<String, Vec<Growth>> = BTreeMap::new();
    for growth in all {
        runs.entry(growth.run.clone()).or_default().push(growth);
    }
    let threads = threads.min(runs.len());
    let waiting = Mutex::new(runs.into_values());
    let (found, pieces) = sync_channel(threads);
    thread::scope(|scope| {
        let spawn = |_| {
            let (waiting, found) = (&waiting, found.clone());
            let next = || waiting.lock().next();
            thread::Builder::new().spawn_scoped(scope, move || beside(&next, now, &found)).ok()
        };
        let readers: Vec<_> = (0..threads).map_while(spawn).collect();
        drop(found);
        pass_on(&pieces, tell);
        let joined = readers.into_iter().flat_map(|reader| reader.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let mut done: Vec<_> = joined.collect();
        // Whoever may have no more threads reads alone.
        let left: Vec<Growth> = waiting.lock().by_ref().flatten().collect();
        done.extend(alone(left, now, tell));
        done
    })
}

/// Reads one after another, and tells at once.
fn alone(all: Vec<Growth>, now: f64, tell: &mut impl FnMut(Entry<'_>)) -> Vec<(Growth, io::Result<bool>)> {
    let mut buffer = vec![0; if all.is_empty() { 0 } else { PIECE }];
    let read = |mut growth: Growth| {
        let Growth { run, file, .. } = &growth;
        let (run, file) = (run.clone(), file.clone());
        let more = growth.each(&mut buffer, now, &mut |told| match told {
            ParsedItem::Item(item) => tell(Entry::Item { run: &run, item }),
            ParsedItem::Place(place) => tell(Entry::Place { file: &file, place }),
        });
        (growth, more)
    };
    all.into_iter().map(read).collect()
}

/// A thread that reads: the files of a run, of another run, until none is left.
fn beside(
    next: &impl Fn() -> Option<Vec<Growth>>,
    now: f64,
    found: &SyncSender<Piece>,
) -> Vec<(Growth, io::Result<bool>)> {
    let mut buffer = vec![0; PIECE];
    let (back, spare) = channel();
    let fresh = || Piece { back: Some(back.clone()), ..Piece::default() };
    let mut piece = fresh();
    let mut done = Vec::new();
    while let Some(files) = next() {
        for mut growth in files {
            piece.run.clone_from(&growth.run);
            piece.file.clone_from(&growth.file);
            let more = growth.each(&mut buffer, now, &mut |told| match told {
                ParsedItem::Item(item) => piece.note(item),
                ParsedItem::Place(place) => {
                    let empty = spare.try_recv().unwrap_or_else(|_none_yet| fresh());
                    let mut full = std::mem::replace(&mut piece, empty);
                    piece.run.clone_from(&full.run);
                    piece.file.clone_from(&full.file);
                    full.place = place;
                    // Nobody listens only where the one that tells has panicked.
                    let _ = found.send(full);
                }
            });
            done.push((growth, more));
        }
    }
    done
}

/// Tells what other threads have read, as it comes.
fn pass_on(pieces: &Receiver<Piece>, tell: &mut impl FnMut(Entry<'_>)) {
    for mut piece in pieces {
        let Piece { run, file, place, .. } = &piece;
        for noted in &piece.noted {
            tell(Entry::Item { run, item: noted.item(&piece.bytes) });
        }
        tell(Entry::Place { file, place: place.clone() });
        piece.noted.clear();
        piece.bytes.clear();
        // To be filled again, unless its reader is through, or it is one of the few that are large.
        if piece.bytes.capacity() <= 4 * PIECE
            && let Some(back) = piece.back.clone()
        {
            let _ = back.send(piece);
        }
    }
}

/// What a file tells, and behind each piece how far it was read.
enum ParsedItem<'a> {
    Item(Item<'a>),
    Place(ReadPosition),
}

impl Growth {
    /// Reads what is new, piece by piece; whether there may be more.
    fn each(&mut self, buffer: &mut [u8], now: f64, tell: &mut impl FnMut(ParsedItem<'_>)) -> io::Result<bool> {
        let identity = self.identity;
        if self.is_new {
            tell(ParsedItem::Item(Item::Begin));
            tell(ParsedItem::Place(self.reader.place(self.read, identity)));
        }
        if self.size <= self.read {
            return Ok(false);
        }
        let mut content = File::open(&self.path)?;
        content.seek(SeekFrom::Start(self.read))?;
        let mut turn = 0;
        while turn < MAX_TURN_BYTES {
            let count = content.read(buffer)?;
            if count == 0 {
                break;
            }
            turn += count as u64;
            self.read += count as u64;
            self.reader.feed(&buffer[..count], now, &mut |item| tell(ParsedItem::Item(item)));
            let skipped = self.reader.take_skipped();
            if !skipped.is_none() {
                tell(ParsedItem::Item(Item::Skipped(skipped)));
            }
            tell(ParsedItem::Place(self.reader.place(self.read, identity)));
        }
        Ok(turn >= MAX_TURN_BYTES)
    }
}

/// What a piece of a file says, for another thread to tell.
#[derive(Debug, Default)]
struct Piece {
    run: String,
    file: String,
    noted: Vec<Noted>,
    /// What is noted of names and of hyper-parameters.
    bytes: Vec<u8>,
    place: ReadPosition,
    /// Where it comes from and goes back to.
    back: Option<Sender<Piece>>,
}

/// An item whose bytes lie elsewhere.
#[derive(Debug)]
enum Noted {
    Scalar { tag: Range<u32>, step: i64, wall_time: f64, value: f64 },
    Start { step: i64 },
    Hparams(Range<u32>),
    Begin,
    Skipped(Box<Skipped>),
}

impl Piece {
    fn note(&mut self, item: Item<'_>) {
        let noted = match item {
            Item::Scalar { tag, step, wall_time, value } => {
                Noted::Scalar { tag: self.keep(tag), step, wall_time, value }
            }
            Item::Start { step } => Noted::Start { step },
            Item::Hparams(object) => Noted::Hparams(self.keep(object)),
            Item::Begin => Noted::Begin,
            Item::Skipped(skipped) => Noted::Skipped(Box::new(skipped)),
        };
        self.noted.push(noted);
    }

    /// A piece says less than 4 GB: the largest record and what of its file was read with it.
    fn keep(&mut self, bytes: &[u8]) -> Range<u32> {
        let end = |kept: &Vec<u8>| u32::try_from(kept.len()).unwrap_or(u32::MAX);
        let start = end(&self.bytes);
        self.bytes.extend_from_slice(bytes);
        start..end(&self.bytes)
    }
}

impl Noted {
    fn item<'a>(&self, bytes: &'a [u8]) -> Item<'a> {
        let kept = |range: &Range<u32>| &bytes[range.start as usize..range.end as usize];
        match self {
            Self::Scalar { tag, step, wall_time, value } => {
                Item::Scalar { tag: kept(tag), step: *step, wall_time: *wall_time, value: *value }
            }
            Self::Start { step } => Item::Start { step: *step },
            Self::Hparams(range) => Item::Hparams(kept(range)),
            Self::Begin => Item::Begin,
            Self::Skipped(skipped) => Item::Skipped(**skipped),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::{Runs, reader::Format, write::Writer};

    /// Runs of two files each, some of them damaged and one that is not there; all as they are to be read.
    fn grown(root: &TempDir) -> Vec<Growth> {
        let mut all = Vec::new();
        for run in 0_u32..9 {
            for part in 0_u32..2 {
                let (run, file) = (format!("run-{run}"), format!("run-{run}/events.out.tfevents.{part}"));
                let mut bytes = Vec::new();
                let mut writer = Writer::begin(&mut bytes, 0.0).unwrap();
                for step in 0..4000_u32 {
                    let step = 3000 * part + step;
                    writer.scalar("loss", step.into(), 1.0, 0.5).unwrap();
                    writer.scalar(&format!("of {run}"), step.into(), f64::from(part), f32::NAN).unwrap();
                }
                writer.start(6500, 2.0).unwrap();
                writer.scalar("loss", 6500, 1.0, 0.25).unwrap();
                if run == "run-3" {
                    let place = bytes.len() / 3 * 2;
                    bytes[place] ^= 1;
                }
                let path = root.path().join(&file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &bytes).unwrap();
                let (size, reader) = (bytes.len() as u64, Reader::new(Format::Events));
                all.push(Growth { path, file, run, identity: (1, 2), is_new: true, from: 0, read: 0, size, reader });
            }
        }
        fs::remove_file(&all[9].path).unwrap();
        all
    }

    /// What was kept, where each file stands, and whether it could be read.
    type Outcome = (Vec<String>, BTreeMap<String, ReadPosition>, Vec<(String, u64, bool)>);

    fn outcome(read: impl FnOnce(&mut dyn FnMut(Entry<'_>)) -> Vec<(Growth, io::Result<bool>)>) -> Outcome {
        let (mut runs, mut places) = (Runs::default(), BTreeMap::new());
        let done = read(&mut |entry| match entry {
            Entry::Item { run, item } => runs.take(run, item),
            Entry::Place { file, place } => {
                places.insert(file.to_owned(), place);
            }
        });
        let mut done: Vec<_> =
            done.into_iter().map(|(growth, more)| (growth.file, growth.read, more.is_ok())).collect();
        done.sort();
        let mut kept = Vec::new();
        for (name, run) in runs.iter() {
            for (tag, series) in run.curves() {
                let points: Vec<_> = series.points().collect();
                kept.push(format!("{name} {tag} {:?} {:?} {points:?}", run.skipped, series.visible()));
            }
        }
        (kept, places, done)
    }

    #[test]
    fn many_threads_tell_what_one_tells() {
        let root = TempDir::new().unwrap();
        assert!(
            grown(&root).iter().map(|growth| growth.size).sum::<u64>() > MIN_PARALLEL_BYTES,
            "there is enough to share"
        );
        let one = outcome(|mut tell| alone(grown(&root), 0.0, &mut tell));
        assert_eq!(one.2.iter().filter(|(_, _, is_read)| !is_read).count(), 1);
        assert_eq!(one.1.len(), 18);
        for threads in [1, 2, 3, 20] {
            let many = outcome(|mut tell| shared(grown(&root), threads, 0.0, &mut tell));
            assert!(one == many, "with {threads} threads");
        }
        assert!(one == outcome(|mut tell| read(grown(&root), 0.0, &mut tell)));
    }
}
