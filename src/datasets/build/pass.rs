//! The one pass over all pictures: read, hash, open and resize each, on as many threads as there
//! are cores to use. Pixels go to a slot of their own in one file, and a journal says which
//! slots are filled. Memory is bounded by the threads, not by the pictures.

use std::{
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};

use super::{
    Error,
    catalogue::{Catalogue, Item, Pictures},
    colours::IGNORED,
    fit::Workbench,
    journal::{self, Journal, Record},
    picture::{self, Gate, Pixels},
    progress::{Phase, Progress, Speed},
    space,
    spec::{Kind, Spec},
};

/// The file of all resized pictures in the directory of the work.
pub const PIXELS: &str = "pixels";
const JOURNAL: &str = "journal";
/// How much may have to be done again after a power failure.
const SAVE_EVERY: Duration = Duration::from_secs(2);
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// A pass over a catalogue.
pub struct Pass<'a> {
    pub spec: &'a Spec,
    pub catalogue: &'a Catalogue,
    /// The directory of the work.
    pub work: &'a Path,
    pub threads: usize,
    pub stop: &'a AtomicBool,
}

/// A resized picture, and its mask.
struct Frame {
    pixels: Vec<u8>,
    mask: Option<Vec<u8>>,
}

type Read = (usize, Record);

/// Bytes of the slot of each picture: its pixels, and the classes of its mask.
pub fn slot(spec: &Spec) -> (usize, usize) {
    let area = spec.width as usize * spec.height as usize;
    (area * usize::from(spec.channels), if spec.kind == Kind::Segmentation { area } else { 0 })
}

impl Pass<'_> {
    /// What became of each item, in their order.
    pub fn run(&self, report: &mut dyn FnMut(&Progress)) -> Result<Vec<Record>, Error> {
        let pixels = self.pixels()?;
        let count = self.catalogue.items.len();
        let fingerprint = journal::fingerprint(self.spec, self.catalogue);
        let (mut journal, mut records) = Journal::open(&self.work.join(JOURNAL), &fingerprint, count)?;
        let missing: Vec<usize> = (0..count).filter(|&at| records[at].is_none()).collect();

        let (next, gate) = (AtomicUsize::new(0), Gate::default());
        let halt = AtomicBool::new(false);
        let mut saved = 0;
        let result = thread::scope(|scope| {
            let (send, receive) = mpsc::sync_channel::<Result<Read, Error>>(64);
            for _ in 0..self.threads.clamp(1, 512) {
                let (send, pixels, next, gate, halt, missing) =
                    (send.clone(), pixels.as_ref(), &next, &gate, &halt, &missing);
                scope.spawn(move || {
                    let mut bench = Workbench::new(self.spec.resize, (self.spec.width, self.spec.height));
                    while !halt.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed) {
                        let Some(&at) = missing.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                        let read = self.read(at, &mut bench, gate, pixels);
                        let failed = read.is_err();
                        // Nobody listens any more once another thread has failed.
                        if send.send(read.map(|record| (at, record))).is_err() || failed {
                            return;
                        }
                    }
                });
            }
            drop(send);
            let collected = self.collect(&receive, pixels.as_ref(), &mut journal, &mut records, &mut saved, report);
            if collected.is_err() {
                halt.store(true, Ordering::Relaxed);
            }
            // Whoever waits to be heard must not wait for ever.
            drop(receive);
            collected
        });
        result?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        Ok(records.into_iter().flatten().collect())
    }

    /// The file of the pixels, if they are kept and there is room for them twice: here, and in
    /// the order of the splits.
    fn pixels(&self) -> Result<Option<File>, Error> {
        if !self.spec.keeps_pictures() {
            return Ok(None);
        }
        let path = self.work.join(PIXELS);
        let fail = |error| Error::writing(&path, error);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
        let (pixels, mask) = slot(self.spec);
        let needed = (pixels + mask) as u64 * self.catalogue.items.len() as u64 * 2;
        let there = file.metadata().map_err(fail)?.blocks() * 512;
        space::check(&path, needed.saturating_sub(there))?;
        Ok(Some(file))
    }

    fn collect(
        &self,
        receive: &mpsc::Receiver<Result<Read, Error>>,
        pixels: Option<&File>,
        journal: &mut Journal,
        records: &mut [Option<Record>],
        saved: &mut usize,
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
            if let Some(file) = pixels {
                file.sync_data().map_err(|error| Error::writing(&self.work.join(PIXELS), error))?;
            }
            journal.append(fresh)?;
            *saved += fresh.len();
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

    /// Reads one picture into its slot. What is wrong with the picture is in the record; an error
    /// is about our own files.
    fn read(&self, at: usize, bench: &mut Workbench, gate: &Gate, pixels: Option<&File>) -> Result<Record, Error> {
        let item = &self.catalogue.items[at];
        let mut record = Record { error: item.fault.clone(), ..Record::default() };
        if record.error.is_some() {
            return Ok(record);
        }
        match self.examine(item, &mut record, bench, gate, pixels.is_some()) {
            Err(reason) => record.error = Some(reason),
            Ok(None) => {}
            Ok(Some(frame)) => {
                let (picture, mask) = slot(self.spec);
                let place = at as u64 * (picture + mask) as u64;
                if let Some(file) = pixels {
                    let mask = frame.mask.as_deref().unwrap_or_default();
                    let write = file
                        .write_all_at(&frame.pixels, place)
                        .and_then(|()| file.write_all_at(mask, place + picture as u64));
                    write.map_err(|error| Error::writing(&self.work.join(PIXELS), error))?;
                }
            }
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

fn hash(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
