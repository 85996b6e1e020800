//! Sources as people have them, built into datasets: which image goes into which split and class,
//! where each box is, and what is listed instead. Every input is made here from bytes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod archives;
mod boxes;
mod classes;
mod evaluation;
mod exports;
mod masks;
mod pictures;

use std::{
    collections::BTreeMap,
    fs,
    io::Cursor,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use lyceum_datasets::{
    build,
    document::Document,
    inspect::{Inspection, inspect},
    recognise::recognise,
    spec::Spec,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A directory with a source in `src`.
pub struct Place(TempDir);

impl Place {
    #[expect(clippy::new_without_default, reason = "an empty directory would not say so")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn src(&self) -> PathBuf {
        self.path("src")
    }

    /// Writes a file of the source.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.src().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Writes images that differ, of 100 by 50 pixels, `{}` standing for their numbers.
    pub fn images(&self, pattern: &str, numbers: std::ops::Range<u32>) -> &Self {
        for n in numbers {
            self.write(&pattern.replace("{}", &n.to_string()), png(100, 50, seed(pattern) + n));
        }
        self
    }

    /// The same, each with a text beside it or elsewhere.
    pub fn labelled(&self, pattern: &str, label: &str, numbers: std::ops::Range<u32>, line: &str) -> &Self {
        self.images(pattern, numbers.clone());
        for n in numbers {
            let line = line.replace("{c}", &(n % 2).to_string());
            self.write(&label.replace("{}", &n.to_string()), line);
        }
        self
    }

    pub fn spec(&self, kind: &str, source: Value, change: Value) -> Spec {
        let mut spec = json!({"kind": kind, "output": self.path("out"), "width": 100, "height": 50});
        spec["source"] = source;
        if spec["source"]["path"].is_null() {
            spec["source"]["path"] = json!(self.src());
        }
        let Value::Object(change) = change else { panic!("changes are an object") };
        spec.as_object_mut().unwrap().extend(change);
        serde_json::from_value(spec).unwrap()
    }

    /// Builds, or says why not.
    pub fn build(&self, kind: &str, source: Value, change: Value) -> Result<Built, String> {
        let spec = self.spec(kind, source, change);
        let document = build(&spec, 2, &AtomicBool::new(false), &mut |_| ()).map_err(|error| error.to_string())?;
        let built = Built::read(&spec.output, document);
        fs::remove_dir_all(&spec.output).unwrap();
        Ok(built)
    }

    pub fn inspect(&self, kind: &str, source: Value, change: Value) -> Inspection {
        inspect(&self.spec(kind, source, change)).unwrap()
    }

    /// What kind of source it is guessed to be.
    pub fn recognised(&self) -> String {
        recognise(&self.src()).unwrap().1.name().to_owned()
    }
}

/// A dataset, read back from its files.
pub struct Built {
    pub document: Document,
    /// Path, label, split, error.
    pub rows: Vec<[String; 4]>,
    /// Path, class, x, y, width, height, error.
    pub boxes: Vec<Vec<String>>,
    pub notes: Vec<String>,
    pub masks: Vec<u8>,
    pub images: Vec<u8>,
}

impl Built {
    fn read(folder: &Path, document: Document) -> Self {
        let rows = table(&folder.join("manifest.csv")).into_iter();
        let rows = rows.map(|row| [&row[0], &row[1], &row[2], &row[7]].map(Clone::clone)).collect();
        let notes = table(&folder.join("notes.csv")).into_iter();
        let notes = notes.map(|row| if row[0].is_empty() { row[1].clone() } else { row.join(": ") }).collect();
        let (masks, images) = (array(&folder.join("cache/masks.npy")), array(&folder.join("cache/images.npy")));
        Self { document, rows, boxes: table(&folder.join("boxes.csv")), notes, masks, images }
    }

    pub fn classes(&self) -> Vec<&str> {
        self.document.classes.iter().map(String::as_str).collect()
    }

    /// How many images each split has: training, validation, test.
    pub fn counts(&self) -> [u64; 3] {
        let counts = self.document.counts;
        [counts.train, counts.val, counts.test]
    }

    /// The splits of the images below a folder.
    pub fn splits(&self, folder: &str) -> Vec<&str> {
        let mut found: Vec<&str> =
            self.rows.iter().filter(|row| row[0].starts_with(folder)).map(|row| row[2].as_str()).collect();
        found.dedup();
        found
    }

    pub fn errors(&self) -> BTreeMap<&str, &str> {
        self.rows.iter().filter(|row| !row[3].is_empty()).map(|row| (row[0].as_str(), row[3].as_str())).collect()
    }

    /// The boxes of an image: class and four numbers.
    pub fn boxes_of(&self, path: &str) -> Vec<String> {
        self.boxes.iter().filter(|row| row[0] == path && row[6].is_empty()).map(|row| row[1..6].join(" ")).collect()
    }

    pub fn notes_with(&self, part: &str) -> usize {
        self.notes.iter().filter(|note| note.contains(part)).count()
    }
}

fn table(path: &Path) -> Vec<Vec<String>> {
    let Ok(reader) = csv::Reader::from_path(path) else { return Vec::new() };
    reader.into_records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

fn array(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap_or_default();
    let header = bytes.get(8..10).map_or(0, |two| 10 + usize::from(u16::from_le_bytes([two[0], two[1]])));
    bytes[header..].to_vec()
}

fn seed(text: &str) -> u32 {
    text.bytes().fold(7, |sum, byte| (sum * 31 + u32::from(byte)) % 60_000)
}

/// A picture that no other number gives.
pub fn png(width: u32, height: u32, number: u32) -> Vec<u8> {
    let [low, high, ..] = number.to_le_bytes();
    let picture =
        RgbImage::from_fn(width, height, |x, y| Rgb([low, high, u8::try_from((x * 5 + y * 3) % 200).unwrap()]));
    encoded(&picture.into(), ImageFormat::Png)
}

pub fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}
