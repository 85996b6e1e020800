//! The one pass over all pictures: read, hash, open and resize each, on as many threads as there
//! are cores to use. Pixels go to their place in the arrays, and a journal says which are there.
//! Pixels in memory are bounded by the threads, not by the pictures.

use std::{
    path::Path,
    sync::{atomic::AtomicBool, mpsc},
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};

use super::{
    Error,
    arrays::{Arrays, Frame},
    catalogue::{Catalogue, Item, Pictures},
    colours::IGNORED,
    fit::Workbench,
    journal::{self, Journal, Record},
    picture::{self, Gate, Pixels},
    progress::{Phase, Progress, Speed},
    spec::Spec,
    workers::share_out,
};

const JOURNAL: &str = "journal";
/// How much may have to be done again after a power failure. Often, so that little is left to be
/// written when the last picture is done.
const SAVE_EVERY: Duration = Duration::from_millis(500);
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// A pass over a catalogue.
pub struct Pass<'a> {
    pub spec: &'a Spec,
    pub catalogue: &'a Catalogue,
    /// The directory of the work.
    pub work: &'a Path,
    /// The directory that becomes the dataset, for the arrays.
    pub out: &'a Path,
    pub threads: usize,
    pub stop: &'a AtomicBool,
}

type Read = (usize, Record);

impl Pass<'_> {
    /// What became of each item, in their order, and the arrays if pictures are kept.
    pub fn run(&self, report: &mut dyn FnMut(&Progress)) -> Result<(Vec<Record>, Option<Arrays>), Error> {
        let count = self.catalogue.items.len();
        let path = self.work.join(JOURNAL);
        let keep = self.spec.keeps_pictures();
        if keep && !Arrays::are_there(self.out, self.spec) {
            Journal::forget(&path)?;
        }
        let fingerprint = journal::fingerprint(self.spec, self.catalogue);
        let (mut journal, mut records) = Journal::open(&path, &fingerprint, count)?;
        let begun = records.iter().any(Option::is_some);
        let arrays = keep.then(|| Arrays::open(self.out, self.spec, count, begun)).transpose()?;
        let missing: Vec<usize> = (0..count).filter(|&at| records[at].is_none()).collect();

        let gate = Gate::default();
        share_out(
            (missing.len(), self.threads),
            self.stop,
            || Workbench::new(self.spec.resize, (self.spec.width, self.spec.height)),
            |bench, at| {
                let at = missing[at];
                self.read(at, bench, &gate, arrays.as_ref()).map(|record| (at, record))
            },
            |receive| collect(receive, arrays.as_ref(), &mut journal, &mut records, report),
        )?;
        Ok((records.into_iter().flatten().collect(), arrays))
    }

    /// Reads one picture into its place. What is wrong with the picture is in the record; an error
    /// is about our own files.
    fn read(&self, at: usize, bench: &mut Workbench, gate: &Gate, arrays: Option<&Arrays>) -> Result<Record, Error> {
        let item = &self.catalogue.items[at];
        let mut record = Record { error: item.fault.clone(), ..Record::default() };
        if record.error.is_some() {
            return Ok(record);
        }
        match self.examine(item, &mut record, bench, gate, arrays.is_some()) {
            Err(reason) => record.error = Some(reason),
            Ok(None) => {}
            Ok(Some(frame)) => arrays.map_or(Ok(()), |arrays| arrays.write(at, &frame))?,
        }
        Ok(record)
    }

    fn examine(
        &self,
        item: &Item,
        record: &mut Record,
        bench: &mut Workbench,
        gate: &Gate,
        keep: bool,
    ) -> Result<Option<Frame>, String> {
        let (picture, mask) = self.open(item, record, gate)?;
        let (width, height) = (picture.width, picture.height);
        (record.width, record.height) = (Some(width), Some(height));
        if let Some((claimed_width, claimed_height)) = item.claimed_size.filter(|claimed| *claimed != (width, height)) {
            return Err(format!(
                "its boxes are for {claimed_width} × {claimed_height} pixels, and it is {width} × {height}"
            ));
        }
        if let Some(mask) = &mask {
            if (mask.width, mask.height) != (width, height) {
                return Err(format!(
                    "its mask is {} × {} pixels, and it is {width} × {height}",
                    mask.width, mask.height
                ));
            }
            let mut seen = [false; 256];
            mask.data.iter().for_each(|&class| seen[usize::from(class)] = true);
            record.seen = (0..IGNORED).filter(|&class| seen[usize::from(class)]).collect();
            if record.seen.is_empty() {
                return Err("no pixel of its mask belongs to a class".to_owned());
            }
        }
        if !keep {
            return Ok(None);
        }
        let pixels = bench.picture(picture)?;
        let mask = mask.map(|mask| bench.mask(mask)).transpose()?;
        Ok(Some(Frame { pixels, mask }))
    }

    /// The picture in the channels that are wanted, and the classes of its mask.
    fn open(&self, item: &Item, record: &mut Record, gate: &Gate) -> Result<(Pixels, Option<Pixels>), String> {
        let channels = self.spec.channels;
        match &self.catalogue.pictures {
            Pictures::Idx(idx) => {
                let picture = idx.read(item.number)?;
                (record.size, record.hash) = (Some(picture.data.len() as u64), Some(hash(&picture.data)));
                Ok((picture.with_channels(channels), None))
            }
            Pictures::Shapes(shapes) => {
                let (picture, mask) = shapes.draw(item.number);
                (record.size, record.hash) = (Some(picture.data.len() as u64), Some(hash(&picture.data)));
                let mask = item.mask.as_ref().map(|_| {
                    record.mask_hash = Some(hash(&mask));
                    Pixels { width: picture.width, height: picture.height, channels: 1, data: mask }
                });
                Ok((picture.with_channels(channels), mask))
            }
            Pictures::Files { store, colours } => {
                let bytes = store.read(&item.path)?;
                (record.size, record.hash) = (Some(bytes.len() as u64), Some(hash(&bytes)));
                let picture = picture::decode(&bytes, channels, gate)?;
                drop(bytes);
                let Some(path) = &item.mask else { return Ok((picture, None)) };
                let bytes = store.read(path).map_err(|reason| format!("its mask: {reason}"))?;
                record.mask_hash = Some(hash(&bytes));
                let mask = picture::decode_mask(&bytes, colours.is_some(), gate)
                    .map_err(|reason| format!("its mask: {reason}"))?;
                let Some(colours) = colours else { return Ok((picture, Some(mask))) };
                let (data, unknown) = colours.classify(&mask.data);
                if unknown > 0 {
                    record.note =
                        Some(format!("{unknown} pixels of its mask have colours that the list does not name"));
                }
                Ok((picture, Some(Pixels { channels: 1, data, ..mask })))
            }
        }
    }
}

/// Hears of what was read, and writes it down.
fn collect(
    receive: &mpsc::Receiver<Result<Read, Error>>,
    arrays: Option<&Arrays>,
    journal: &mut Journal,
    records: &mut [Option<Record>],
    report: &mut dyn FnMut(&Progress),
) -> Result<(), Error> {
    let total = records.len();
    let mut done = records.iter().flatten().count();
    let mut broken = records.iter().flatten().filter(|record| record.error.is_some()).count();
    let mut speed = Speed::new(done);
    let mut fresh: Vec<Read> = Vec::new();
    let (mut last_save, mut last_report) = (Instant::now(), Instant::now());
    let mut save = |fresh: &mut Vec<Read>| -> Result<(), Error> {
        // A line of the journal promises pixels that are there after a power failure too.
        arrays.map_or(Ok(()), Arrays::sync)?;
        journal.append(fresh)?;
        fresh.clear();
        Ok(())
    };
    loop {
        match receive.recv_timeout(REPORT_EVERY) {
            Ok(Ok((at, record))) => {
                done += 1;
                broken += usize::from(record.error.is_some());
                records[at] = Some(record.clone());
                fresh.push((at, record));
            }
            Ok(Err(error)) => {
                // What is done stays done, unless this disk is what failed.
                let _ = save(&mut fresh);
                return Err(error);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
        if last_save.elapsed() >= SAVE_EVERY {
            save(&mut fresh)?;
            last_save = Instant::now();
        }
        if last_report.elapsed() >= REPORT_EVERY {
            report(&speed.progress(Phase::Reading, done, total, broken));
            last_report = Instant::now();
        }
    }
    save(&mut fresh)?;
    report(&speed.progress(Phase::Reading, done, total, broken));
    Ok(())
}

fn hash(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
