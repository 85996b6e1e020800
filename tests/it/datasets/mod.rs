//! `lyceum dataset build`, as a job runs it: every kind of source, every bad input that we know
//! of, and builds that are killed. What comes out is read back by other code than wrote it.

mod bad_input;
mod killed;
mod readers;
mod standard;

use std::{
    collections::BTreeMap,
    fs,
    io::{Cursor, Write},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A directory with pictures, and the datasets that are made of them.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// So many different pictures for each class, below `pictures`.
    pub fn classes(&self, classes: &[(&str, u32)]) {
        for (class, count) in classes {
            for n in 0..*count {
                let tone = u32::try_from(class.len()).unwrap() * 1000 + n;
                self.write(&format!("pictures/{class}/{n:03}.png"), png(24, 16, tone));
            }
        }
    }

    /// A specification of a dataset called `out`, with the usual values and `change` over them.
    pub fn spec(&self, kind: &str, source: Value, change: Value) -> Value {
        let mut spec = json!({
            "kind": kind, "output": self.path("out"), "seed": 7, "width": 16, "height": 16, "test_percent": 10,
        });
        spec["source"] = source;
        let Value::Object(change) = change else { panic!("changes are an object") };
        spec.as_object_mut().unwrap().extend(change);
        spec
    }

    pub fn folder(&self, change: Value) -> Value {
        self.spec("classification", json!({"kind": "folder", "path": self.path("pictures")}), change)
    }

    pub fn command(&self, spec: &Value) -> Command {
        self.command_on("2", spec)
    }

    pub fn command_on(&self, threads: &str, spec: &Value) -> Command {
        self.write("spec.json", spec.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(["dataset", "build", "--threads", threads]).arg(self.path("spec.json"));
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(self.0.path());
        command
    }

    /// A build that ends well.
    pub fn build(&self, spec: &Value) -> Dataset {
        let Output { status, stdout, stderr } = self.command(spec).output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let said = String::from_utf8(stdout).unwrap();
        assert!(said.lines().last().unwrap().contains("is ready: "), "{said}");
        Dataset::open(Path::new(spec["output"].as_str().unwrap()))
    }

    /// What a build says that ends badly. It leaves nothing that could be taken for a dataset.
    pub fn refused(&self, spec: &Value) -> String {
        let Output { status, stderr, .. } = self.command(spec).output().unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(!Path::new(spec["output"].as_str().unwrap()).join("dataset.json").exists());
        String::from_utf8(stderr).unwrap()
    }
}

/// A dataset, read as a training would.
pub struct Dataset {
    pub folder: PathBuf,
    pub document: Value,
    pub rows: Vec<Row>,
}

/// A row of the manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub path: String,
    pub label: String,
    pub split: String,
    pub size: (String, String),
    pub error: String,
}

impl Dataset {
    pub fn open(folder: &Path) -> Self {
        let document = serde_json::from_slice(&fs::read(folder.join("dataset.json")).unwrap()).unwrap();
        let rows = table(&folder.join("manifest.csv")).into_iter().map(|row| {
            let [path, label, split, width, height, _, _, error] = <[String; 8]>::try_from(row).unwrap();
            Row { path, label, split, size: (width, height), error }
        });
        Self { folder: folder.to_owned(), document, rows: rows.collect() }
    }

    pub fn hash(&self) -> &str {
        self.document["manifest_sha256"].as_str().unwrap()
    }

    pub fn errors(&self) -> BTreeMap<&str, &str> {
        let broken = self.rows.iter().filter(|row| !row.error.is_empty());
        broken.map(|row| (row.path.as_str(), row.error.as_str())).collect()
    }

    pub fn split(&self, name: &str) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.split == name).collect()
    }

    /// Shape and bytes of an array.
    pub fn array(&self, name: &str) -> (Vec<usize>, Vec<u8>) {
        let bytes = fs::read(self.folder.join("cache").join(name)).unwrap();
        assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
        let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let header = std::str::from_utf8(&bytes[10..end]).unwrap();
        let shape = header.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
        let shape = shape.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect();
        (shape, bytes[end..].to_vec())
    }

    /// What a split has of `images` or `masks`: shape and bytes.
    pub fn part(&self, array: &str, split: &str) -> (Vec<usize>, Vec<u8>) {
        let (mut shape, bytes) = self.array(&format!("{array}.npy"));
        let places = self.places(&format!("{split}.rows.npy"));
        let each: usize = shape[1..].iter().product();
        assert_eq!((shape[0], bytes.len()), (self.rows.len(), self.rows.len() * each));
        shape[0] = places.len();
        (shape, places.iter().flat_map(|at| &bytes[at * each..][..each]).copied().collect())
    }

    /// An array of whole numbers of four bytes.
    pub fn numbers(&self, name: &str) -> Vec<i32> {
        let (_, bytes) = self.array(name);
        bytes.chunks_exact(4).map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        let (_, bytes) = self.array(name);
        bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    pub fn places(&self, name: &str) -> Vec<usize> {
        let (_, bytes) = self.array(name);
        let number = |word: &[u8]| usize::try_from(i64::from_le_bytes(word.try_into().unwrap())).unwrap();
        bytes.chunks_exact(8).map(number).collect()
    }

    pub fn table(&self, name: &str) -> Vec<Vec<String>> {
        table(&self.folder.join(name))
    }
}

/// The rows of a CSV file behind its headings.
fn table(path: &Path) -> Vec<Vec<String>> {
    let reader = csv::Reader::from_path(path).unwrap();
    reader.into_records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

/// A picture that no other number gives.
pub fn picture(width: u32, height: u32, number: u32) -> RgbImage {
    let [low, high, ..] = number.to_le_bytes();
    RgbImage::from_fn(width, height, |x, y| {
        let tone = u8::try_from((x * 5 + y * 3) % 200).unwrap();
        Rgb([low, high, tone])
    })
}

pub fn png(width: u32, height: u32, number: u32) -> Vec<u8> {
    encoded(&picture(width, height, number).into(), ImageFormat::Png)
}

pub fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// An archive of files, each with its name as it is.
pub fn zip(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap().into_inner()
}
