//! Writes the dataset around the pixels, which are there already: the manifest with a row for every
//! file of the source, what each split has of the pixels, and `dataset.json` last. All of it goes to a directory
//! that nobody is told of; whoever called renames it when it is whole.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Instant,
};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::{
    Error,
    arrays::{self, Arrays},
    boxes,
    catalogue::{Catalogue, LabelledBox, Split},
    document::{self, Counts, Document, Files, Image, Origin},
    fit::Fit,
    journal::Record,
    mean::Mean,
    npy::{self, Element},
    progress::{Phase, Progress, Speed},
    spec::{Kind, Source, Spec},
    split::{Decision, Why},
    workers::share_out,
};

/// Bytes of pixels that a thread sums up at a time.
const BLOCK: usize = 1 << 20;

/// What is written, from what.
pub struct Writing<'a> {
    pub spec: &'a Spec,
    pub catalogue: &'a Catalogue,
    pub records: &'a [Record],
    pub decision: &'a Decision,
    /// The pixels, if they are kept.
    pub arrays: Option<&'a Arrays>,
    /// The directory that is filled.
    pub out: &'a Path,
    pub threads: usize,
    pub stop: &'a AtomicBool,
}

impl Writing<'_> {
    pub fn run(&self, report: &mut dyn FnMut(&Progress)) -> Result<Document, Error> {
        let boxes: Vec<Vec<LabelledBox>> = match self.spec.kind {
            Kind::Detection => self
                .catalogue
                .items
                .iter()
                .zip(self.records)
                .map(|(item, record)| boxes::resolve(item, record))
                .collect(),
            _ => Vec::new(),
        };
        let manifest_sha256 = self.manifest()?;
        let annotations_sha256 = match self.spec.kind {
            Kind::Classification => None,
            Kind::Detection => Some(self.boxes(&boxes)?),
            Kind::Segmentation => Some(self.masks_hash()),
        };
        let notes = self.notes()?;
        let names: String = self.decision.classes.iter().flat_map(|name| [name.as_str(), "\n"]).collect();
        self.file("classes.txt", |to| to.write_all(names.as_bytes()))?;

        let mut mean = Mean::new(self.spec);
        let cache = self.arrays.map(|arrays| self.cache(arrays, &boxes, &mut mean, report)).transpose()?;
        let channels = cache.is_some().then(|| mean.channels());
        if cache.is_some() {
            let picture = mean.picture().map_err(|error| Error::writing(&self.out.join("mean.png"), error))?;
            self.file("mean.png", |to| to.write_all(&picture))?;
        }
        let counts = self.counts(notes, &boxes);
        let document = Document {
            version: document::VERSION,
            kind: self.spec.kind,
            classes: self.decision.classes.clone(),
            counts,
            per_class: self.per_class(&boxes),
            seed: self.spec.seed,
            validation_percent: self.spec.validation_percent,
            test_percent: self.spec.test_percent,
            source: Origin { kind: self.spec.source.name().to_owned(), root: root(&self.spec.source) },
            image: Image {
                width: self.spec.width,
                height: self.spec.height,
                channels: self.spec.channels,
                resize: self.spec.resize,
            },
            mean: channels.as_ref().map(|(mean, _)| mean.clone()),
            deviation: channels.map(|(_, deviation)| deviation),
            manifest_sha256,
            annotations_sha256,
            cache,
            licence: self.spec.licence.clone(),
            spec: self.spec.clone(),
        };
        self.file(document::NAME, |to| {
            serde_json::to_writer_pretty(&mut *to, &document)?;
            to.write_all(b"\n")
        })?;
        sync_folder(self.out)?;
        Ok(document)
    }

    /// Writes a file that lasts.
    fn file(&self, name: &str, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), Error> {
        let path = self.out.join(name);
        let written = File::create(&path).and_then(|file| {
            let mut to = BufWriter::new(file);
            write(&mut to)?;
            to.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
        });
        written.map_err(|error| Error::writing(&path, error))
    }

    /// Writes a table, and returns its SHA-256 in hex.
    fn table(
        &self,
        name: &str,
        rows: impl FnOnce(&mut csv::Writer<Vec<u8>>) -> Result<(), csv::Error>,
    ) -> Result<String, Error> {
        let mut table = csv::WriterBuilder::new().terminator(csv::Terminator::Any(b'\n')).from_writer(Vec::new());
        let failed =
            |error: &dyn std::fmt::Display| Error::writing(&self.out.join(name), io::Error::other(error.to_string()));
        rows(&mut table).map_err(|error| failed(&error))?;
        let bytes = table.into_inner().map_err(|error| failed(&error))?;
        self.file(name, |to| to.write_all(&bytes))?;
        Ok(hex::encode(Sha256::digest(&bytes)))
    }

    fn manifest(&self) -> Result<String, Error> {
        let text = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        self.table("manifest.csv", |table| {
            table.write_record(["path", "label", "split", "width", "height", "size", "hash", "error"])?;
            for ((item, record), row) in self.catalogue.items.iter().zip(self.records).zip(&self.decision.rows) {
                let label = item.label.and_then(|label| self.catalogue.classes.get(label as usize));
                table.write_record([
                    item.path.as_str(),
                    label.map_or("", String::as_str),
                    row.split.map_or("", Split::name),
                    &text(record.width.map(Into::into)),
                    &text(record.height.map(Into::into)),
                    &text(record.size),
                    record.hash.as_deref().unwrap_or_default(),
                    row.error.as_deref().unwrap_or_default(),
                ])?;
            }
            Ok(())
        })
    }

    fn boxes(&self, boxes: &[Vec<LabelledBox>]) -> Result<String, Error> {
        self.table("boxes.csv", |table| {
            table.write_record(["path", "class", "x", "y", "width", "height", "error"])?;
            for (item, found) in
                self.catalogue.items.iter().zip(boxes).flat_map(|(i, all)| all.iter().map(move |b| (i, b)))
            {
                let class = self.decision.classes.get(found.class as usize).map_or("", String::as_str);
                let [x, y, width, height] = [found.x, found.y, found.width, found.height].map(number);
                let error = found.fault.as_deref().unwrap_or_default();
                table.write_record([&item.path, class, &x, &y, &width, &height, error])?;
            }
            Ok(())
        })
    }

    fn masks_hash(&self) -> String {
        let mut hash = Sha256::new();
        for record in self.records {
            hash.update(record.mask_hash.as_deref().unwrap_or_default());
            hash.update(b"\n");
        }
        hex::encode(hash.finalize())
    }

    /// How many notes there are.
    fn notes(&self) -> Result<u64, Error> {
        let of_source = self.catalogue.notes.iter().map(|note| (note.path.as_str(), note.text.as_str()));
        let of_pictures = self.catalogue.items.iter().zip(self.records);
        let of_pictures = of_pictures.filter_map(|(item, record)| Some((item.path.as_str(), record.note.as_deref()?)));
        let of_decision = self.decision.notes.iter().map(|note| (note.path.as_str(), note.text.as_str()));
        let notes: Vec<_> = of_source.chain(of_decision).chain(of_pictures).collect();
        self.table("notes.csv", |table| {
            table.write_record(["path", "note"])?;
            notes.iter().try_for_each(|(path, note)| table.write_record([path, note]))
        })?;
        Ok(notes.len() as u64)
    }

    /// The rows of a split.
    fn rows(&self, split: Split) -> impl Iterator<Item = usize> {
        (0..).zip(&self.decision.rows).filter(move |(_, row)| row.split == Some(split)).map(|(at, _)| at)
    }

    fn counts(&self, notes: u64, boxes: &[Vec<LabelledBox>]) -> Counts {
        let why = |why: Why| self.decision.rows.iter().filter(|row| row.why == why).count() as u64;
        let [train, val, test] = Split::ALL.map(|split| self.rows(split).count() as u64);
        let broken_boxes = boxes.iter().flatten().filter(|found| found.fault.is_some()).count() as u64;
        Counts {
            train,
            val,
            test,
            broken: why(Why::Broken),
            duplicate: why(Why::Duplicate),
            left_out: why(Why::LeftOut),
            notes,
            broken_boxes,
        }
    }

    fn per_class(&self, boxes: &[Vec<LabelledBox>]) -> BTreeMap<String, Vec<u64>> {
        let of_split = |split: Split| {
            let mut counts = vec![0; self.decision.classes.len()];
            for at in self.rows(split) {
                let classes: Vec<u32> = match self.spec.kind {
                    Kind::Classification => self.decision.rows[at].label.into_iter().collect(),
                    Kind::Detection => boxes[at].iter().filter(|b| b.fault.is_none()).map(|b| b.class).collect(),
                    Kind::Segmentation => self.records[at].seen.iter().map(|&class| class.into()).collect(),
                };
                for class in classes {
                    if let Some(count) = counts.get_mut(class as usize) {
                        *count += 1;
                    }
                }
            }
            (split.name().to_owned(), counts)
        };
        Split::ALL.into_iter().map(of_split).collect()
    }

    /// What belongs to the arrays of pictures: which of them each split has, and what they show.
    fn cache(
        &self,
        arrays: &Arrays,
        boxes: &[Vec<LabelledBox>],
        mean: &mut Mean,
        report: &mut dyn FnMut(&Progress),
    ) -> Result<BTreeMap<String, Files>, Error> {
        let folder = self.out.join(arrays::FOLDER);
        self.sum_up(arrays, mean, report)?;
        for (at, row) in self.decision.rows.iter().enumerate() {
            if row.split.is_none() {
                arrays.forget(at);
            }
        }
        arrays.finish()?;
        let mut cache = BTreeMap::new();
        for split in Split::ALL {
            let rows: Vec<usize> = self.rows(split).collect();
            if !rows.is_empty() {
                cache.insert(split.name().to_owned(), self.split(split, &rows, arrays, boxes)?);
            }
        }
        sync_folder(&folder)?;
        Ok(cache)
    }

    /// Sums up the pictures to train with, on several threads.
    fn sum_up(&self, arrays: &Arrays, mean: &mut Mean, report: &mut dyn FnMut(&Progress)) -> Result<(), Error> {
        let rows: Vec<usize> = self.rows(Split::Train).collect();
        let blocks: Vec<&[usize]> = rows.chunks((BLOCK / mean.values()).max(1)).collect();
        let mean = Mutex::new(mean);
        let (mut speed, mut done, mut told) = (Speed::new(0), 0, Instant::now());
        share_out(
            (blocks.len(), self.threads),
            self.stop,
            Vec::new,
            |pictures, at| {
                pictures.clear();
                blocks[at].iter().try_for_each(|&row| arrays.read(row, pictures))?;
                mean.lock().add(pictures);
                Ok(blocks[at].len())
            },
            |receive| {
                for block in receive {
                    done += block?;
                    if told.elapsed().as_secs() >= 1 || done == rows.len() {
                        told = Instant::now();
                        report(&speed.progress(Phase::Writing, done, rows.len(), 0));
                    }
                }
                Ok(())
            },
        )
    }

    fn split(&self, split: Split, rows: &[usize], arrays: &Arrays, boxes: &[Vec<LabelledBox>]) -> Result<Files, Error> {
        let array = |what: &str, element, shape: &[usize], bytes: Vec<u8>| {
            let name = format!("{}/{}.{what}.npy", arrays::FOLDER, split.name());
            let path = self.out.join(&name);
            npy::save(&path, element, shape, &bytes).map(|()| name).map_err(|error| Error::writing(&path, error))
        };
        let numbers = rows.iter().flat_map(|&at| (at as u64).to_le_bytes()).collect();
        let label = |&at: &usize| self.decision.rows[at].label.unwrap_or_default().to_le_bytes();
        let labels = match self.spec.kind {
            Kind::Classification => {
                Some(array("labels", Element::I32, &[rows.len()], rows.iter().flat_map(label).collect())?)
            }
            _ => None,
        };
        let boxes = match self.spec.kind {
            Kind::Detection => {
                let found = self.resized_boxes(rows, boxes);
                let bytes = found.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
                Some(array("boxes", Element::F32, &[found.len(), 6], bytes)?)
            }
            _ => None,
        };
        Ok(Files {
            images: arrays::IMAGES.to_owned(),
            rows: array("rows", Element::I64, &[rows.len()], numbers)?,
            labels,
            boxes,
            masks: arrays.has_masks().then(|| arrays::MASKS.to_owned()),
        })
    }

    /// The boxes of a split where the resized pictures have them, each with its picture and class.
    fn resized_boxes(&self, rows: &[usize], boxes: &[Vec<LabelledBox>]) -> Vec<[f32; 6]> {
        let mut placed = Vec::new();
        for (index, &at) in rows.iter().enumerate() {
            let record = &self.records[at];
            let (Some(width), Some(height)) = (record.width, record.height) else { continue };
            let fit = Fit::new(self.spec.resize, (width, height), (self.spec.width, self.spec.height));
            for found in boxes[at].iter().filter(|found| found.fault.is_none()) {
                if let Some([x, y, width, height]) = fit.place(found) {
                    placed.push([
                        single(index),
                        single(found.class as usize),
                        short(x),
                        short(y),
                        short(width),
                        short(height),
                    ]);
                }
            }
        }
        placed
    }
}

#[expect(clippy::cast_precision_loss, reason = "the format has these numbers as floats; 16 million pictures are exact")]
fn single(number: usize) -> f32 {
    number as f32
}

#[expect(clippy::cast_possible_truncation, reason = "the format has single precision")]
fn short(number: f64) -> f32 {
    number as f32
}

/// At most three digits behind the point; nothing for what is no number.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return String::new();
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What the manifest's paths are relative to.
fn root(source: &Source) -> String {
    let path: PathBuf = match source {
        Source::List { path, root, .. } => {
            root.clone().or_else(|| path.parent().map(Path::to_owned)).unwrap_or_default()
        }
        Source::Folder { path }
        | Source::Zip { path }
        | Source::Coco { path, .. }
        | Source::Yolo { path }
        | Source::Kitti { path, .. }
        | Source::Voc { path }
        | Source::Cvat { path, .. }
        | Source::Labelstudio { path, .. }
        | Source::Masks { path, .. } => path.clone(),
        Source::Idx { images, .. } => images.clone(),
        Source::Standard { .. } | Source::Generated { .. } => PathBuf::new(),
    };
    path.to_string_lossy().into_owned()
}

/// Makes the names in a folder last.
pub fn sync_folder(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|error| Error::writing(path, error))
}
