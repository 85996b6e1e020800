//! `dataset.json`: what a training, and the portal's page, has to know of a dataset. The format
//! is described in docs/datasets.md; whoever reads it refuses a version that it does not know.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::spec::{Kind, Resize, Spec};

/// The version that is written.
pub const VERSION: u32 = 2;
/// The name of the file.
pub const NAME: &str = "dataset.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub version: u32,
    pub kind: Kind,
    pub classes: Vec<String>,
    pub counts: Counts,
    /// For each split: pictures of each class; boxes for detection, pictures that show it for segmentation.
    pub per_class: BTreeMap<String, Vec<u64>>,
    pub seed: u32,
    pub validation_percent: u8,
    pub test_percent: u8,
    pub source: Origin,
    pub image: Image,
    /// Of the training split, for each channel, 0 to 255.
    pub mean: Option<Vec<f64>>,
    pub deviation: Option<Vec<f64>>,
    /// SHA-256 in hex.
    pub manifest_sha256: String,
    /// The same of boxes.csv or of all masks; nothing for classification.
    pub annotations_sha256: Option<String>,
    pub cache: Option<BTreeMap<String, Files>>,
    pub licence: String,
    /// What was asked for, so that it can be asked for again.
    pub spec: Spec,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub train: u64,
    pub val: u64,
    pub test: u64,
    pub broken: u64,
    pub duplicate: u64,
    pub left_out: u64,
    /// Lines of notes.csv.
    #[serde(default)]
    pub notes: u64,
    /// Boxes that are not used.
    #[serde(default)]
    pub broken_boxes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub kind: String,
    pub root: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub width: u32,
    pub height: u32,
    pub channels: u8,
    pub resize: Resize,
}

/// The files of a split, relative to the dataset. Pictures and masks of all splits are in the same two, at
/// the rows of the manifest that `rows` names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    pub images: String,
    pub rows: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boxes: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masks: Option<String>,
}
