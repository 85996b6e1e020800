//! The one pass over all pictures: read, hash, open and resize each, on as many threads as there
//! are cores to use. Pixels go to their place in the arrays, and a journal says which are there.
//! Pixels in memory are bounded by the threads, not by the pictures.

use std::{
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};

use super::{
    Error,
    arrays::{Arrays, Frame},
    catalogue::{Catalogue, Item, Pictures},
    colours::IGNORED,
    fit::PictureResizer,
    journal::{self, Journal, Record},
    picture::{self, Gate, Pixels},
    progress::{Phase, Progress, Speed},
    spec::Spec,
    workers::share_out,
};

const JOURNAL: &str = "journal";
/// How much may have to be done again after a power failure. Often, so that little is left to be
/// written when the last picture is done.
const SAVE_INTERVAL: Duration = Duration::from_millis(500);
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

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

/// What the pass found.
pub struct Passed {
    /// What became of each item, in their order.
    pub records: Vec<Record>,
    /// The arrays, if pictures are kept.
    pub arrays: Option<Arrays>,
    /// Whether all masks are black and white: 255 is a class then.
    pub is_binary: bool,
}

/// The class of white in masks of black and white.
const WHITE: u8 = 1;

type Read = (usize, Record);

impl Pass<'_> {
    pub fn run(&self, report: &mut dyn FnMut(&Progress)) -> Result<Passed, Error> {
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
        let is_binary = self.masks_are_binary(&gate)?;
        share_out(
            (missing.len(), self.threads),
            self.stop,
            || PictureResizer::new(self.spec.resize, (self.spec.width, self.spec.height)),
            |bench, at| {
                let at = missing[at];
                self.read(at, bench, &gate, arrays.as_ref(), is_binary).map(|record| (at, record))
            },
            |receive| collect(receive, arrays.as_ref(), &mut journal, &mut records, report),
        )?;
        Ok(Passed { records: records.into_iter().flatten().collect(), arrays, is_binary })
    }

    /// Looks through the masks for a value other than 0 and 255, until there is one: 255 means “ignored” beside classes,
    /// and the class itself where there is nothing else. Of most sets the first mask tells.
    fn masks_are_binary(&self, gate: &Gate) -> Result<bool, Error> {
        let Pictures::Files { store, colours: None, .. } = &self.catalogue.pictures else { return Ok(false) };
        let masks: Vec<&str> = self
            .catalogue
            .items
            .iter()
            .filter(|item| item.fault.is_none())
            .filter_map(|item| item.mask.as_deref())
            .collect();
        let (is_other, has_white) = (AtomicBool::new(false), AtomicBool::new(false));
        share_out(
            (masks.len(), self.threads),
            self.stop,
            || (),
            |(), at| {
                if is_other.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let mask = store.read(masks[at]).and_then(|bytes| picture::decode_mask(&bytes, false, gate));
                // An image that cannot be read is reported in its turn.
                for value in mask.map(|mask| mask.data).unwrap_or_default() {
                    match value {
                        0 => {}
                        IGNORED => has_white.store(true, Ordering::Relaxed),
                        _ => {
                            is_other.store(true, Ordering::Relaxed);
                            break;
                        }
                    }
                }
                Ok(())
            },
            |receive| receive.iter().collect(),
        )?;
        Ok(has_white.into_inner() && !is_other.into_inner())
    }

    /// Reads one picture into its place. What is wrong with the picture is in the record; an error
    /// is about our own files.
    fn read(
        &self,
        at: usize,
        bench: &mut PictureResizer,
        gate: &Gate,
        arrays: Option<&Arrays>,
        is_binary: bool,
    ) -> Result<Record, Error> {
        let item = &self.catalogue.items[at];
        let mut record = Record { error: item.fault.clone().or_else(|| item.outside.clone()), ..Record::default() };
        if record.error.is_some() {
            return Ok(record);
        }
        match self.examine(item, &mut record, bench, (gate, is_binary), arrays.is_some()) {
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
        bench: &mut PictureResizer,
        (gate, is_binary): (&Gate, bool),
        keep: bool,
    ) -> Result<Option<Frame>, String> {
        let (picture, mut mask) = self.open(item, record, gate)?;
        if let Some(mask) = mask.as_mut().filter(|_| is_binary) {
            mask.data.iter_mut().filter(|value| **value == IGNORED).for_each(|value| *value = WHITE);
        }
        let (width, height) = (picture.width, picture.height);
        (record.width, record.height) = (Some(width), Some(height));
        if let Some((claimed_width, claimed_height)) = item.claimed_size.filter(|claimed| *claimed != (width, height)) {
            return Err(format!(
                "its boxes are for an image of {claimed_width} × {claimed_height} pixels, but the image is {width} × {height}"
            ));
        }
        if let Some(mask) = &mask {
            if (mask.width, mask.height) != (width, height) {
                return Err(format!(
                    "its mask is {} × {} pixels, but the image is {width} × {height}",
                    mask.width, mask.height
                ));
            }
            let mut seen = [false; 256];
            mask.data.iter().for_each(|&class| seen[usize::from(class)] = true);
            record.seen = (0..IGNORED).filter(|&class| seen[usize::from(class)]).collect();
            if record.seen.is_empty() {
                return Err("its mask does not contain any class".to_owned());
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
            Pictures::Files { store, colours, regions } => {
                let bytes = store.read(&item.path)?;
                (record.size, record.hash) = (Some(bytes.len() as u64), Some(hash(&bytes)));
                let picture = picture::decode(&bytes, channels, gate)?;
                drop(bytes);
                if let Some(regions) = regions {
                    let (width, height) = (picture.width, picture.height);
                    let drawn = regions.draw(&item.regions, width, height);
                    let data = drawn.map_err(|error| format!("its mask cannot be drawn: {error}"))?;
                    record.mask_hash = Some(hash(&data));
                    return Ok((picture, Some(Pixels { width, height, channels: 1, data })));
                }
                let Some(path) = &item.mask else { return Ok((picture, None)) };
                let bytes = store.read(path).map_err(|reason| format!("its mask: {reason}"))?;
                record.mask_hash = Some(hash(&bytes));
                let mask = picture::decode_mask(&bytes, colours.is_some(), gate)
                    .map_err(|reason| format!("its mask: {reason}"))?;
                let Some(colours) = colours else { return Ok((picture, Some(mask))) };
                let (data, unknown) = colours.classify(&mask.data);
                if unknown > 0 {
                    record.note = Some(format!("{unknown} pixels of its mask have colours that are not in the list"));
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
        match receive.recv_timeout(REPORT_INTERVAL) {
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
        if last_save.elapsed() >= SAVE_INTERVAL {
            save(&mut fresh)?;
            last_save = Instant::now();
        }
        if last_report.elapsed() >= REPORT_INTERVAL {
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
