//! What a dataset is to be made of and how: the file that `lyceum dataset build` reads. Every
//! fault of a specification is told at once, each with the name of its field; whether the files
//! are there is for the readers to say.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{catalogue::Split, standard::StandardSet};

/// The largest width and height that pictures are resized to.
pub const MAX_SIDE: u32 = 4096;
/// The most pictures that are generated.
const MAX_GENERATED: u32 = 1_000_000;

/// A dataset to be built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub kind: Kind,
    pub source: Source,
    /// The directory that is made. It must not be there.
    pub output: PathBuf,
    /// The same seed and the same files give the same split.
    #[serde(default)]
    pub seed: u32,
    /// Percent of each class that go to validation, unless the source says itself.
    #[serde(default = "quarter")]
    pub validation_percent: u8,
    #[serde(default)]
    pub test_percent: u8,
    /// Classes with fewer whole pictures are left out.
    #[serde(default = "two")]
    pub min_per_class: u32,
    /// More pictures of a class than this are left out.
    #[serde(default)]
    pub max_per_class: Option<u32>,
    /// Pixels.
    #[serde(default = "side")]
    pub width: u32,
    #[serde(default = "side")]
    pub height: u32,
    /// 1 (grey) or 3 (red, green, blue).
    #[serde(default = "three")]
    pub channels: u8,
    #[serde(default)]
    pub resize: Resize,
    /// Whether the resized pictures are kept. Archives, IDX files and generated sets always keep them.
    #[serde(default = "yes")]
    pub cache: bool,
    #[serde(default)]
    pub duplicates: Duplicates,
    /// Which images are for training, validation and test.
    #[serde(default, skip_serializing_if = "Division::is_auto")]
    pub splits: Division,
    #[serde(default, skip_serializing_if = "Purpose::is_training")]
    pub purpose: Purpose,
    /// A note about who may use the pictures.
    #[serde(default)]
    pub licence: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Classification,
    Detection,
    Segmentation,
}

/// Where the pictures come from. A `path` that is read as a folder may also be a zip archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// A folder for each class; or `train`, `val` and `test` with such folders inside.
    Folder { path: PathBuf },
    /// The same in an archive.
    Zip { path: PathBuf },
    /// A text file with a picture and its label on each line.
    List {
        path: PathBuf,
        /// What its paths are relative to; else the folder of the list.
        root: Option<PathBuf>,
        /// A name for each number that stands as a label.
        classes: Option<PathBuf>,
    },
    /// The files of MNIST and its relatives, compressed or not.
    Idx {
        images: PathBuf,
        labels: PathBuf,
        test_images: Option<PathBuf>,
        test_labels: Option<PathBuf>,
        classes: Option<PathBuf>,
    },
    /// COCO's JSON: one document, a folder of them, or all below `path`. `annotations` is below `path` unless it is
    /// absolute.
    Coco {
        path: PathBuf,
        #[serde(default)]
        annotations: PathBuf,
        /// A folder below `path` that the names of its pictures are relative to.
        #[serde(default)]
        images: String,
        #[serde(default, skip_serializing_if = "Crowds::is_drop")]
        crowds: Crowds,
    },
    /// A text file of boxes beside each picture, in `labels` where the picture is in `images`.
    Yolo { path: PathBuf },
    /// The same in KITTI's columns.
    Kitti {
        path: PathBuf,
        #[serde(default = "images")]
        images: String,
        #[serde(default = "labels")]
        labels: String,
    },
    /// Pascal VOC: an XML file for each image.
    Voc { path: PathBuf },
    /// CVAT for images: one XML file. `annotations` is below `path` unless it is absolute.
    Cvat {
        path: PathBuf,
        #[serde(default)]
        annotations: PathBuf,
    },
    /// An export of Label Studio: JSON, JSON-MIN or CSV. `annotations` is below `path` unless it is absolute.
    Labelstudio {
        path: PathBuf,
        #[serde(default)]
        annotations: PathBuf,
    },
    /// A mask for each picture, of the same name.
    Masks {
        path: PathBuf,
        #[serde(default = "images")]
        images: String,
        #[serde(default = "masks")]
        masks: String,
        /// Lines of `name red green blue`; `voc`; or nothing, where the masks' values are the classes.
        colours: Option<PathBuf>,
    },
    /// A set as it was published: MNIST and its like. Its files are looked for in `directory`, then where the system's
    /// packages have them; what is missing is downloaded.
    Standard {
        set: StandardSet,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        directory: Option<PathBuf>,
        /// The address of a folder of such sets, instead of the publisher's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mirror: Option<String>,
    },
    /// Shapes, drawn for demonstrations.
    Generated { count: u32 },
}

/// What a dataset is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    #[default]
    Training,
    /// To score a model: every labelled image is in the test split, and one without annotations is left out.
    Evaluation,
}

/// How a picture gets the size of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resize {
    /// Its proportions change.
    #[default]
    Squash,
    /// Its longer side is cut at both ends.
    Crop,
    /// Its shorter side is padded with black.
    Fill,
    /// Half of each.
    HalfCrop,
}

/// Which images are for training, validation and test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "`auto`, `none`, or folders for `train`, `val` and `test`")]
pub enum Division {
    Word(DivisionWord),
    Folders(Folders),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DivisionWord {
    /// As the source states it.
    #[default]
    Auto,
    /// The source has none: no folder is one, whatever its name.
    None,
}

/// Folders, lists of images (`.txt`) or documents below the source for each split.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Folders {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub train: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub val: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<String>,
}

impl Default for Division {
    fn default() -> Self {
        Self::Word(DivisionWord::Auto)
    }
}

impl Division {
    pub fn is_auto(&self) -> bool {
        *self == Self::default()
    }

    pub fn is_none(&self) -> bool {
        *self == Self::Word(DivisionWord::None)
    }
}

impl Purpose {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_training(&self) -> bool {
        *self == Self::Training
    }
}

impl Folders {
    /// Each split with its entries.
    pub fn each(&self) -> [(Split, &[String]); 3] {
        [(Split::Train, &self.train), (Split::Val, &self.val), (Split::Test, &self.test)]
    }
}

/// What is done with annotations around a crowd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Crowds {
    /// They are not used.
    #[default]
    Drop,
    /// They are used like any other: some tools mark every mask as a crowd.
    Keep,
}

impl Crowds {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_drop(&self) -> bool {
        *self == Self::Drop
    }
}

/// What is done with the second of two files of the same content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Duplicates {
    /// Left out and listed: it could stand in training and validation at once.
    #[default]
    Drop,
    Keep,
}

impl Spec {
    /// A specification with the usual values.
    pub fn of(kind: Kind, source: Source, output: PathBuf) -> Self {
        Self {
            kind,
            source,
            output,
            seed: 0,
            validation_percent: quarter(),
            test_percent: 0,
            min_per_class: two(),
            max_per_class: None,
            width: side(),
            height: side(),
            channels: three(),
            resize: Resize::default(),
            cache: true,
            duplicates: Duplicates::default(),
            splits: Division::default(),
            purpose: Purpose::default(),
            licence: String::new(),
        }
    }

    /// Everything that is wrong with it, as `field: sentence`.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |bad: bool, text: &str| {
            if bad {
                faults.push(text.to_owned());
            }
        };
        fault(
            !self.source.makes(self.kind),
            "source: this source does not have annotations of this kind; choose another source or kind",
        );
        fault(!self.output.is_absolute() || self.output.file_name().is_none(), "output: the path must be absolute");
        fault(
            u32::from(self.validation_percent) + u32::from(self.test_percent) > 90,
            "validation_percent: validation and test together can have at most 90 percent",
        );
        fault(self.min_per_class == 0, "min_per_class: at least 1");
        fault(
            self.max_per_class.is_some_and(|most| most < self.min_per_class),
            "max_per_class: must be at least min_per_class",
        );
        fault(
            self.max_per_class.is_some() && self.kind != Kind::Classification,
            "max_per_class: only classification supports this limit",
        );
        fault(!(1..=MAX_SIDE).contains(&self.width), "width: from 1 to 4096 pixels");
        fault(!(1..=MAX_SIDE).contains(&self.height), "height: from 1 to 4096 pixels");
        fault(!matches!(self.channels, 1 | 3), "channels: 1 (greyscale) or 3 (RGB)");
        fault(self.licence.chars().count() > 2000, "licence: at most 2000 characters");
        if let Source::Generated { count } = self.source {
            fault(!(6..=MAX_GENERATED).contains(&count), "source.count: from 6 to 1000000");
            fault(self.width < 16 || self.height < 16, "width: shapes need at least 16 × 16 pixels");
        }
        if let Source::Idx { test_images, test_labels, .. } = &self.source {
            fault(
                test_images.is_some() != test_labels.is_some(),
                "source.test_images: give both test images and test labels, or neither",
            );
            fault(
                test_images.is_some() && self.test_percent > 0,
                "test_percent: the source already defines a test split",
            );
        }
        if let Source::Standard { mirror, .. } = &self.source {
            fault(self.test_percent > 0, "test_percent: the source already defines a test split");
            let is_address = |text: &String| {
                ["http://", "https://"]
                    .iter()
                    .any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
            };
            fault(
                mirror.as_ref().is_some_and(|mirror| !is_address(mirror)),
                "source.mirror: the address must begin with https:// or http://",
            );
        }
        if let Division::Folders(folders) = &self.splits {
            fault(folders.train.is_empty(), "splits.train: name at least one folder for training");
            fault(
                folders.each().iter().any(|(_, entries)| entries.iter().any(|entry| entry.trim().is_empty())),
                "splits: a folder has no name",
            );
        }
        fault(
            !self.splits.is_auto()
                && matches!(self.source, Source::Idx { .. } | Source::Standard { .. } | Source::Generated { .. }),
            "splits: this source has no folders to divide",
        );
        fault(
            self.purpose == Purpose::Evaluation && self.kind == Kind::Classification,
            "purpose: `evaluation` is for boxes and masks; images of a classification need no dataset to be scored",
        );
        fault(
            self.purpose == Purpose::Evaluation && !self.splits.is_auto(),
            "splits: with the purpose `evaluation`, all images are in the test split",
        );
        let mut source = self.source.clone();
        let short = source.paths_mut().filter(|(_, path)| !path.is_absolute());
        faults.extend(short.map(|(field, path)| format!("source.{field}: {} is not an absolute path", path.display())));
        faults
    }

    /// Whether resized pictures are kept.
    pub fn keeps_pictures(&self) -> bool {
        self.cache || self.source.is_packed()
    }

    /// The same with paths that begin at the root, of which `base` is the place they are relative to.
    #[must_use]
    pub fn based(mut self, base: &Path) -> Self {
        self.output = base.join(&self.output);
        self.source.paths_mut().for_each(|(_, path)| *path = base.join(&*path));
        self
    }
}

impl Source {
    pub fn makes(&self, kind: Kind) -> bool {
        match self {
            Self::Folder { .. } | Self::Zip { .. } | Self::List { .. } | Self::Idx { .. } | Self::Standard { .. } => {
                kind == Kind::Classification
            }
            Self::Coco { .. } | Self::Yolo { .. } | Self::Cvat { .. } => kind != Kind::Classification,
            Self::Kitti { .. } | Self::Voc { .. } => kind == Kind::Detection,
            Self::Masks { .. } => kind == Kind::Segmentation,
            Self::Labelstudio { .. } | Self::Generated { .. } => true,
        }
    }

    /// Whether its pictures cannot be read as files of their own.
    fn is_packed(&self) -> bool {
        match self {
            Self::Idx { .. } | Self::Standard { .. } | Self::Generated { .. } => true,
            Self::List { .. } => false,
            Self::Folder { path }
            | Self::Zip { path }
            | Self::Coco { path, .. }
            | Self::Yolo { path }
            | Self::Kitti { path, .. }
            | Self::Voc { path }
            | Self::Cvat { path, .. }
            | Self::Labelstudio { path, .. }
            | Self::Masks { path, .. } => path.extension().is_some_and(|e| e.eq_ignore_ascii_case("zip")),
        }
    }

    /// The word for it, as in the specification.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "folder",
            Self::Zip { .. } => "zip",
            Self::List { .. } => "list",
            Self::Idx { .. } => "idx",
            Self::Coco { .. } => "coco",
            Self::Yolo { .. } => "yolo",
            Self::Kitti { .. } => "kitti",
            Self::Voc { .. } => "voc",
            Self::Cvat { .. } => "cvat",
            Self::Labelstudio { .. } => "labelstudio",
            Self::Masks { .. } => "masks",
            Self::Standard { .. } => "standard",
            Self::Generated { .. } => "generated",
        }
    }

    /// The files and folders that it names from the top of the file system on, with their fields.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut PathBuf)> {
        let paths: Vec<(&'static str, Option<&mut PathBuf>)> = match self {
            Self::Folder { path }
            | Self::Zip { path }
            | Self::Coco { path, .. }
            | Self::Yolo { path }
            | Self::Voc { path }
            | Self::Cvat { path, .. }
            | Self::Labelstudio { path, .. }
            | Self::Kitti { path, .. } => vec![("path", Some(path))],
            Self::Masks { path, colours, .. } => {
                vec![("path", Some(path)), ("colours", colours.as_mut().filter(|name| name.as_os_str() != "voc"))]
            }
            Self::List { path, root, classes } => {
                vec![("path", Some(path)), ("root", root.as_mut()), ("classes", classes.as_mut())]
            }
            Self::Idx { images, labels, test_images, test_labels, classes } => vec![
                ("images", Some(images)),
                ("labels", Some(labels)),
                ("test_images", test_images.as_mut()),
                ("test_labels", test_labels.as_mut()),
                ("classes", classes.as_mut()),
            ],
            Self::Standard { directory, .. } => vec![("directory", directory.as_mut())],
            Self::Generated { .. } => Vec::new(),
        };
        paths.into_iter().filter_map(|(field, path)| Some((field, path?)))
    }
}

fn quarter() -> u8 {
    25
}

fn two() -> u32 {
    2
}

fn three() -> u8 {
    3
}

fn side() -> u32 {
    256
}

fn yes() -> bool {
    true
}

fn images() -> String {
    "images".to_owned()
}

fn labels() -> String {
    "labels".to_owned()
}

fn masks() -> String {
    "masks".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<Spec, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_short_one_has_the_usual_values() {
        let spec = spec(r#"{"kind":"classification","source":{"kind":"folder","path":"/p"},"output":"/o"}"#).unwrap();
        assert_eq!(spec.faults(), Vec::<String>::new());
        assert_eq!((spec.width, spec.channels, spec.validation_percent, spec.min_per_class), (256, 3, 25, 2));
        assert_eq!(spec.resize, Resize::Squash);
    }

    #[test]
    fn every_fault_is_told_with_its_field() {
        let spec = spec(
            r#"{"kind":"detection","source":{"kind":"folder","path":"p"},"output":"o","validation_percent":60,
                "test_percent":40,"width":0,"height":5000,"channels":4,"min_per_class":0}"#,
        )
        .unwrap();
        let fields: Vec<String> =
            spec.faults().iter().map(|fault| fault.split(':').next().unwrap().to_owned()).collect();
        let expected =
            ["source", "output", "validation_percent", "min_per_class", "width", "height", "channels", "source.path"];
        assert_eq!(fields, expected);
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        let wrong = spec(r#"{"kind":"classification","source":{"kind":"folder","path":"/p","pth":1},"output":"/o"}"#);
        assert!(wrong.unwrap_err().to_string().contains("pth"));
        let wrong = spec(r#"{"kind":"classification","source":{"kind":"ftp","path":"/p"},"output":"/o"}"#);
        assert!(wrong.unwrap_err().to_string().contains("ftp"));
    }

    #[test]
    fn what_cannot_be_read_as_files_is_kept() {
        let kept = |source: &str| {
            let text = format!(r#"{{"kind":"detection","source":{source},"output":"/o","cache":false}}"#);
            spec(&text).unwrap().keeps_pictures()
        };
        assert!(kept(r#"{"kind":"generated","count":10}"#));
        assert!(kept(r#"{"kind":"yolo","path":"/a.ZIP"}"#));
        assert!(!kept(r#"{"kind":"yolo","path":"/a"}"#));
    }
}
