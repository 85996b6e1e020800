//! What a reader finds before any picture is opened: the list of pictures with what their source
//! says of them. The readers fill it, the pass over the pictures works it off, and the split
//! decides who learns from what.

use serde::{Deserialize, Serialize};

use super::{
    colours::Colours,
    idx::Idx,
    regions::{Placed, Spool},
    shapes::Shapes,
    store::Store,
};

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
    /// How the source was understood, in a few words.
    pub layout: String,
}

/// Where the content of an item comes from.
#[derive(Debug)]
pub enum Pictures {
    Files { store: Store, colours: Option<Colours>, regions: Option<Spool> },
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
    /// Why it is left out though nothing is wrong with it.
    pub outside: Option<String>,
    /// By which a changed file is known: bytes, and the time of its change in nanoseconds.
    pub stamp: (u64, i64),
    pub boxes: Vec<LabelledBox>,
    /// What its mask is drawn from, where it has no file of one.
    pub regions: Vec<Placed>,
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
    /// Why it is not used. Of a million boxes, each byte counts.
    pub fault: Option<Box<str>>,
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
}

impl Item {
    /// Joins another listing of the same image.
    fn take_in(&mut self, second: &mut Self, notes: &mut Vec<Note>) {
        if self.label != second.label && self.fault.is_none() {
            self.fault = Some("listed twice with different labels".to_owned());
        }
        if self.split != second.split && self.fault.is_none() {
            self.fault = Some("listed twice with different splits".to_owned());
        }
        if self.claimed_size != second.claimed_size && self.fault.is_none() {
            self.fault = Some("listed twice with different sizes".to_owned());
        }
        self.fault = self.fault.take().or_else(|| second.fault.take());
        if !second.boxes.is_empty() || !second.regions.is_empty() {
            notes.push(Note::new(self.path.clone(), "listed more than once; its annotations are merged"));
            self.boxes.append(&mut second.boxes);
            self.regions.append(&mut second.regions);
        }
    }
}

impl Note {
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

impl Catalogue {
    /// Sorts the items. What the source lists twice is one item with the boxes of both.
    pub fn new(pictures: Pictures, mut items: Vec<Item>, classes: Vec<String>, mut notes: Vec<Note>) -> Self {
        items.sort_by(|a, b| a.path.cmp(&b.path));
        items.dedup_by(|second, first| {
            let same = second.path == first.path;
            if same {
                first.take_in(second, &mut notes);
            }
            same
        });
        Self { pictures, items, classes, notes, layout: String::new() }
    }
}
