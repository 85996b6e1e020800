//! What a reader finds before any picture is opened: the list of pictures with what their source
//! says of them. The readers fill it, the pass over the pictures works it off, and the split
//! decides who learns from what.

use serde::{Deserialize, Serialize};

use super::{colours::Colours, idx::Idx, shapes::Shapes, store::Store};

/// Everything that a source holds.
#[derive(Debug)]
pub struct Catalogue {
    pub pictures: Pictures,
    /// Sorted by path, each path once.
    pub items: Vec<Item>,
    /// Names, in the order of their indices.
    pub classes: Vec<String>,
    /// What the owner should know, none of which stops anything.
    pub notes: Vec<Note>,
}

/// Where the content of an item comes from.
#[derive(Debug)]
pub enum Pictures {
    Files { store: Store, colours: Option<Colours> },
    Idx(Idx),
    Shapes(Shapes),
}

/// A picture of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// Relative to the source, with `/`.
    pub path: String,
    /// Which of a numbered source.
    pub number: u64,
    /// The index of its class.
    pub label: Option<u32>,
    /// The split that the source gives it.
    pub split: Option<Split>,
    /// Why it cannot be used, known without opening it.
    pub fault: Option<String>,
    /// By which a changed file is known: bytes, and the time of its change in nanoseconds.
    pub stamp: (u64, i64),
    pub boxes: Vec<LabelledBox>,
    /// The path of its mask.
    pub mask: Option<String>,
    /// Width and height as the annotations have them.
    pub claimed_size: Option<(u32, u32)>,
}

/// A rectangle around something, in pixels of the original.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledBox {
    pub class: u32,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    /// Whether the numbers are parts of the picture's width and height instead.
    pub relative: bool,
    /// Why it is not used.
    pub fault: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub path: String,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    Train,
    Val,
    Test,
}

impl Split {
    pub const ALL: [Self; 3] = [Self::Train, Self::Val, Self::Test];

    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }

    /// The split that a folder of this name stands for.
    pub fn of_folder(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "train" | "training" => Some(Self::Train),
            "val" | "valid" | "validation" => Some(Self::Val),
            "test" | "testing" => Some(Self::Test),
            _ => None,
        }
    }
}

impl Note {
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

impl Catalogue {
    pub fn new(pictures: Pictures, mut items: Vec<Item>, classes: Vec<String>, notes: Vec<Note>) -> Self {
        items.sort_by(|a, b| a.path.cmp(&b.path));
        items.dedup_by(|second, first| {
            let same = second.path == first.path;
            if same && (second.label, second.split) != (first.label, first.split) && first.fault.is_none() {
                first.fault = Some("it stands twice in the list, with different labels".to_owned());
            }
            same
        });
        Self { pictures, items, classes, notes }
    }
}
