//! The sets that everybody begins with, as they were published: MNIST, Fashion-MNIST and CIFAR-10.
//! Each names its files with their checksums, its classes and its split. Files are found on this
//! machine, or downloaded beside the work; reading them into a catalogue is for the readers.

mod download;

use std::{
    fmt, fs,
    io::{BufReader, Read},
    path::{Path, PathBuf},
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering},
};

use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    Error,
    progress::Progress,
    spec::{Source, Spec},
};

/// Where packages of the system keep such sets, in a folder of the set's name.
const SYSTEM: &str = "/usr/share/datasets";
/// The folder of downloads in the directory of the work.
const DOWNLOADS: &str = "downloads";
/// Percent of the published training images that go to validation: none of the sets has any of its own.
const VALIDATION_PERCENT: u8 = 10;

/// The name of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StandardSet {
    #[serde(rename = "mnist")]
    Mnist,
    #[serde(rename = "fashion-mnist")]
    FashionMnist,
    #[serde(rename = "cifar-10")]
    Cifar10,
}

/// What was published under a name.
#[derive(Clone, Debug)]
pub struct Publication<'a> {
    /// The folder of its files below a directory or a mirror.
    pub name: &'a str,
    pub title: &'a str,
    pub licence: &'a str,
    /// Width and height in pixels.
    pub side: u32,
    pub channels: u8,
    pub training: u64,
    pub test: u64,
    /// Each class with its images in both splits.
    pub classes: Vec<(&'a str, u64)>,
    pub layout: Layout,
    pub files: Vec<File<'a>>,
    /// Addresses of the folder of its files, tried in turn.
    pub addresses: Vec<&'a str>,
}

/// How images and labels lie in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Training images, training labels, test images, test labels.
    Idx,
    /// One archive of the binary version.
    Cifar,
}

/// A published file.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    pub name: &'a str,
    pub bytes: u64,
    /// SHA-256 of the file.
    pub sha256: &'a str,
    /// SHA-256 of what it unpacks to, by which a file that was packed again is known.
    pub unpacked: Option<&'a str>,
}

impl StandardSet {
    pub const ALL: [Self; 3] = [Self::Mnist, Self::FashionMnist, Self::Cifar10];

    /// What was published under this name.
    pub fn publication(self) -> Publication<'static> {
        match self {
            Self::Mnist => mnist(),
            Self::FashionMnist => fashion_mnist(),
            Self::Cifar10 => cifar_10(),
        }
    }
}

fn mnist() -> Publication<'static> {
    Publication {
        name: "mnist",
        title: "MNIST",
        licence: "CC BY-SA 3.0 (Yann LeCun, Corinna Cortes)",
        side: 28,
        channels: 1,
        training: 60_000,
        test: 10_000,
        classes: vec![
            ("0", 6903),
            ("1", 7877),
            ("2", 6990),
            ("3", 7141),
            ("4", 6824),
            ("5", 6313),
            ("6", 6876),
            ("7", 7293),
            ("8", 6825),
            ("9", 6958),
        ],
        layout: Layout::Idx,
        files: idx_files([
            (
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            (
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            (
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            (
                4542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ]),
        addresses: vec![
            "https://storage.googleapis.com/cvdf-datasets/mnist",
            "https://ossci-datasets.s3.amazonaws.com/mnist",
        ],
    }
}

fn fashion_mnist() -> Publication<'static> {
    Publication {
        name: "fashion-mnist",
        title: "Fashion-MNIST",
        licence: "MIT (Zalando SE)",
        side: 28,
        channels: 1,
        training: 60_000,
        test: 10_000,
        classes: vec![
            ("T-shirt/top", 7000),
            ("Trouser", 7000),
            ("Pullover", 7000),
            ("Dress", 7000),
            ("Coat", 7000),
            ("Sandal", 7000),
            ("Shirt", 7000),
            ("Sneaker", 7000),
            ("Bag", 7000),
            ("Ankle boot", 7000),
        ],
        layout: Layout::Idx,
        files: idx_files([
            (
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            (
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ),
            (
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            ),
            (
                5148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        ]),
        addresses: vec![
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ],
    }
}

fn cifar_10() -> Publication<'static> {
    Publication {
        name: "cifar-10",
        title: "CIFAR-10",
        licence: "no licence is stated; cite Alex Krizhevsky, Learning Multiple Layers of Features from Tiny \
                          Images, 2009",
        side: 32,
        channels: 3,
        training: 50_000,
        test: 10_000,
        classes: vec![
            ("airplane", 6000),
            ("automobile", 6000),
            ("bird", 6000),
            ("cat", 6000),
            ("deer", 6000),
            ("dog", 6000),
            ("frog", 6000),
            ("horse", 6000),
            ("ship", 6000),
            ("truck", 6000),
        ],
        layout: Layout::Cifar,
        files: vec![File {
            name: "cifar-10-binary.tar.gz",
            bytes: 170_052_171,
            sha256: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            unpacked: None,
        }],
        addresses: vec!["https://www.cs.toronto.edu/~kriz"],
    }
}

fn idx_files(facts: [(u64, &'static str, &'static str); 4]) -> Vec<File<'static>> {
    let names = [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ];
    let file = |(name, (bytes, sha256, unpacked))| File { name, bytes, sha256, unpacked: Some(unpacked) };
    names.into_iter().zip(facts).map(file).collect()
}

impl fmt::Display for StandardSet {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.publication().name)
    }
}

impl FromStr for StandardSet {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|set| set.publication().name == name).ok_or_else(|| {
            let names: Vec<String> = Self::ALL.iter().map(ToString::to_string).collect();
            format!("must be one of {}", names.join(", "))
        })
    }
}

impl Publication<'_> {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// How its images are, for people.
    pub fn description(&self) -> String {
        let colours = if self.channels == 1 { "greyscale" } else { "RGB" };
        format!(
            "{} {colours} images of {} × {} pixels in {} classes",
            self.training + self.test,
            self.side,
            self.side,
            self.classes.len()
        )
    }
}

/// Adds what a specification of a standard set leaves out: its own size, split, licence, and that nothing is dropped.
pub fn complete(spec: &mut Map<String, Value>) {
    let Some(source) = spec.get("source").filter(|source| source["kind"] == "standard") else { return };
    let Ok(set) = StandardSet::deserialize(&source["set"]) else { return };
    let published = set.publication();
    for (field, value) in [
        ("kind", json!("classification")),
        ("width", json!(published.side)),
        ("height", json!(published.side)),
        ("channels", json!(published.channels)),
        ("validation_percent", json!(VALIDATION_PERCENT)),
        ("duplicates", json!("keep")),
        ("licence", json!(published.licence)),
    ] {
        spec.entry(field).or_insert(value);
    }
}

/// Where the files of a set may be.
#[derive(Debug)]
pub struct Places<'a> {
    /// Folders on this machine, the first one with a file is taken.
    directories: Vec<PathBuf>,
    /// Addresses of folders, tried in turn.
    addresses: Vec<String>,
    /// The folder for downloads; none where nothing may be written.
    downloads: Option<PathBuf>,
    published: &'a Publication<'a>,
}

impl<'a> Places<'a> {
    /// A directory goes before the system's, and a mirror replaces the addresses of the publisher.
    pub fn new(
        published: &'a Publication<'a>,
        directory: Option<&Path>,
        mirror: Option<&str>,
        work: Option<&Path>,
    ) -> Self {
        let given = directory.into_iter().flat_map(|folder| [folder.join(published.name), folder.to_owned()]);
        let directories = given.chain([Path::new(SYSTEM).join(published.name)]).collect();
        let addresses = match mirror {
            Some(mirror) => vec![format!("{}/{}", mirror.trim_end_matches('/'), published.name)],
            None => published.addresses.iter().map(ToString::to_string).collect(),
        };
        Self { directories, addresses, downloads: work.map(|work| work.join(DOWNLOADS)), published }
    }

    /// The files on this machine, in the order of the publication; those that are missing are `None`.
    fn find(&self) -> impl Iterator<Item = (&File<'a>, Option<PathBuf>)> {
        self.published.files.iter().map(|file| {
            let names = [file.name, file.name.strip_suffix(".gz").filter(|_| file.unpacked.is_some()).unwrap_or("")];
            let folders = self.directories.iter().chain(&self.downloads);
            let mut paths = folders
                .flat_map(|folder| names.iter().filter(|name| !name.is_empty()).map(move |name| folder.join(name)));
            (file, paths.find(|path| path.is_file()))
        })
    }

    /// The paths of all files, if all are here.
    pub fn paths(&self) -> Option<Vec<PathBuf>> {
        self.find().map(|(_, path)| path).collect()
    }

    /// Where the files come from, in a sentence.
    pub fn sentence(&self) -> String {
        let missing: Vec<&File<'_>> = self.find().filter(|(_, path)| path.is_none()).map(|(file, _)| file).collect();
        if missing.is_empty() {
            let first = self.find().find_map(|(_, path)| path).unwrap_or_default();
            return format!("found in {}", first.parent().unwrap_or(&first).display());
        }
        let bytes: u64 = missing.iter().map(|file| file.bytes).sum();
        let first = self.addresses.first().map_or("", String::as_str);
        format!("{:.1} MB to download from {first}", download::megabytes(bytes))
    }

    /// Downloads what is missing, and compares all with the checksums.
    pub fn obtain(&self, stop: &AtomicBool, report: &mut dyn FnMut(&Progress)) -> Result<Vec<PathBuf>, Error> {
        let missing: Vec<&File<'_>> = self.find().filter(|(_, path)| path.is_none()).map(|(file, _)| file).collect();
        if !missing.is_empty() {
            let Some(folder) = &self.downloads else {
                return Err(Error::Nothing("the files of the set are not on this machine".to_owned()));
            };
            download::Download { addresses: &self.addresses, folder, stop }.run(&missing, report)?;
        }
        let mut paths = Vec::new();
        for (file, path) in self.find() {
            let path = path.ok_or_else(|| Error::Nothing(format!("{} disappeared", file.name)))?;
            // A download was compared as it arrived.
            let is_download = self.downloads.as_ref().is_some_and(|folder| path.starts_with(folder));
            if let Some(fault) = if is_download { None } else { file.fault(&path, stop)? } {
                let reason = format!("{fault}. Replace the file, or remove it to have it downloaded");
                return Err(Error::Source { path, reason });
            }
            paths.push(path);
        }
        Ok(paths)
    }
}

/// Brings the files of a specification's set here. Returns at once for other sources.
pub fn obtain(
    spec: &Spec,
    work: &Path,
    stop: &AtomicBool,
    report: &mut dyn FnMut(&Progress),
) -> Result<Vec<PathBuf>, Error> {
    let Source::Standard { set, directory, mirror } = &spec.source else { return Ok(Vec::new()) };
    Places::new(&set.publication(), directory.as_deref(), mirror.as_deref(), Some(work)).obtain(stop, report)
}

impl File<'_> {
    /// What is wrong with the content of a file; nothing if it is what was published.
    fn fault(&self, path: &Path, stop: &AtomicBool) -> Result<Option<String>, Error> {
        let failed = |error| if stop.load(Ordering::Relaxed) { Error::Stopped } else { Error::reading(path, error) };
        let open = || fs::File::open(path).map(BufReader::new).map_err(failed);
        let found = hash(open()?, stop).map_err(failed)?;
        if found == self.sha256 || Some(found.as_str()) == self.unpacked {
            return Ok(None);
        }
        if let Some(unpacked) = self.unpacked
            && hash(GzDecoder::new(open()?), stop).is_ok_and(|found| found == unpacked)
        {
            return Ok(None);
        }
        Ok(Some(format!("its SHA-256 is {found}, but that of the published file is {}", self.sha256)))
    }
}

/// SHA-256 in hexadecimal digits of all that a reader has.
fn hash(mut from: impl Read, stop: &AtomicBool) -> std::io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(hex::encode(hasher.finalize())),
            _ if stop.load(Ordering::Relaxed) => return Err(std::io::ErrorKind::Interrupted.into()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests;
