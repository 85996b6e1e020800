//! A built dataset, looked at: its manifest as a list that is filtered, searched and sorted, and
//! pictures of how it is distributed. The files come from the agent of whoever looks, so that
//! nothing in them is believed: sizes are bounded, and what does not fit together is left out.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::build::{catalogue::Split, document::Document};
use lyceum_model::records::{Record, Records};

/// The longest manifest that is looked at (bytes).
pub const MAX_MANIFEST_LENGTH: u64 = 64 << 20;
/// The most rows of one.
pub const MAX_ROWS: usize = 400_000;
/// A record has so many fields.
const FIELDS: usize = 8;
/// The most boxes of a split that are drawn.
pub const MAX_BOXES: u64 = 1_000_000;

/// A manifest in memory.
#[derive(Debug, Default)]
pub struct Index {
    rows: Vec<ManifestRow>,
    /// Which picture the box at the same place of `boxes` is on, in order: its split and place.
    pictures: Vec<(Split, u32)>,
    boxes: Vec<PlacedBox>,
}

/// A box in pixels of the resized picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacedBox {
    pub class: u32,
    pub x: f32,
    pub y: f32,
    pub width: f32,
    pub height: f32,
}

/// A file of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestRow {
    pub path: Box<str>,
    pub label: Box<str>,
    pub split: Option<Split>,
    /// Which picture of its split it is.
    pub place: u32,
    pub width: u32,
    pub height: u32,
    /// Bytes.
    pub size: u64,
    pub error: Box<str>,
}

/// Sorts a list of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SortKey {
    #[default]
    Path,
    /// Size of the file in bytes.
    Size,
    /// Width × height of the original.
    Pixels,
}

/// Which rows, in which order.
#[derive(Clone, Debug, Default)]
pub struct ItemQuery {
    pub label: Option<String>,
    pub split: Option<Split>,
    /// Only what is in no split.
    pub broken: bool,
    /// Only what is in one.
    pub used: bool,
    /// A part of the path, in any case.
    pub find: String,
    pub by: SortKey,
    pub descending: bool,
    /// The last row of the part before: its value, and its number.
    pub after: Option<(u64, u32)>,
    pub limit: usize,
}

/// A part of the list.
#[derive(Debug, PartialEq, Eq)]
pub struct ItemSlice {
    /// Numbers of rows.
    pub rows: Vec<u32>,
    pub total: usize,
    pub next: Option<(u64, u32)>,
}

impl Index {
    /// Reads a manifest; a row that is none of ours ends it. `None` where it has too many.
    pub fn read(manifest: &[u8]) -> Option<Self> {
        let mut rows = Vec::new();
        let mut places = HashMap::new();
        let (mut records, mut record) = (Records::new(manifest, FIELDS), Record::default());
        // The first names the columns.
        records.next(&mut record);
        let width = record.width();
        while records.next(&mut record) && record.width() == width {
            if rows.len() >= MAX_ROWS {
                return None;
            }
            let text = |at: usize| record.get(at);
            let split = Split::ALL.into_iter().find(|split| split.name() == text(2));
            let place = split.map_or(0, |split| {
                let next = places.entry(split).or_insert(0_u32);
                *next += 1;
                *next - 1
            });
            rows.push(ManifestRow {
                path: text(0).into(),
                label: text(1).into(),
                split,
                place,
                width: text(3).parse().unwrap_or_default(),
                height: text(4).parse().unwrap_or_default(),
                size: text(5).parse().unwrap_or_default(),
                error: text(7).into(),
            });
        }
        rows.shrink_to_fit();
        Some(Self { rows, ..Self::default() })
    }

    /// Takes in the boxes of all splits: an array of six numbers each.
    pub fn take_boxes(&mut self, arrays: &[(Split, &[u8])]) {
        let mut found: Vec<((Split, u32), PlacedBox)> = Vec::new();
        for (split, array) in arrays {
            let (numbers, _) = array.as_chunks::<4>();
            let (boxes, _) = numbers.as_chunks::<6>();
            for one in boxes {
                let [picture, class, x, y, width, height] = one.map(f32::from_le_bytes);
                if let (Some(picture), Some(class)) = (whole(picture), whole(class)) {
                    found.push(((*split, picture), PlacedBox { class, x, y, width, height }));
                }
            }
        }
        // In order, and of one picture in the order of the file.
        found.sort_by_key(|(picture, _)| *picture);
        (self.pictures, self.boxes) = found.into_iter().unzip();
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        /// What the allocator keeps beside each text, about.
        const BESIDE: usize = 16;
        let text = |text: &str| if text.is_empty() { 0 } else { text.len() + BESIDE };
        let texts: usize = self.rows.iter().map(|row| text(&row.path) + text(&row.label) + text(&row.error)).sum();
        self.rows.capacity() * size_of::<ManifestRow>()
            + texts
            + self.pictures.capacity() * size_of::<(Split, u32)>()
            + self.boxes.capacity() * size_of::<PlacedBox>()
    }

    /// How many rows there are.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    pub fn row(&self, number: u32) -> Option<&ManifestRow> {
        self.rows.get(number as usize)
    }

    /// The numbers of the rows that are in a split and have one of these paths.
    pub fn rows_of(&self, paths: &HashSet<&str>) -> HashMap<String, u32> {
        let rows = (0..).zip(&self.rows).filter(|(_, row)| row.split.is_some() && paths.contains(&*row.path));
        rows.map(|(number, row)| (row.path.to_string(), number)).collect()
    }

    pub fn boxes(&self, row: &ManifestRow) -> &[PlacedBox] {
        let Some(split) = row.split else { return &[] };
        let key = (split, row.place);
        let from = self.pictures.partition_point(|picture| *picture < key);
        let to = self.pictures.partition_point(|picture| *picture <= key);
        &self.boxes[from..to]
    }

    pub fn list(&self, wanted: &ItemQuery) -> ItemSlice {
        let find = wanted.find.to_lowercase();
        let fits = |row: &ManifestRow| {
            wanted.label.as_deref().is_none_or(|label| *row.label == *label)
                && wanted.split.is_none_or(|split| row.split == Some(split))
                && (!wanted.broken || row.split.is_none())
                && (!wanted.used || row.split.is_some())
                && (find.is_empty() || row.path.to_lowercase().contains(&find))
        };
        let value = |row: &ManifestRow| match wanted.by {
            SortKey::Path => 0,
            SortKey::Size => row.size,
            SortKey::Pixels => u64::from(row.width) * u64::from(row.height),
        };
        let mut keys: Vec<(u64, u32)> =
            (0..).zip(&self.rows).filter(|(_, row)| fits(row)).map(|(number, row)| (value(row), number)).collect();
        keys.sort_unstable();
        if wanted.descending {
            keys.reverse();
        }
        let start = wanted.after.map_or(0, |after| {
            keys.partition_point(|key| if wanted.descending { *key >= after } else { *key <= after })
        });
        let part = &keys[start..keys.len().min(start + wanted.limit)];
        let next = part.last().filter(|_| start + part.len() < keys.len()).copied();
        ItemSlice { rows: part.iter().map(|(_, number)| *number).collect(), total: keys.len(), next }
    }

    /// How long the longer sides of the originals are: for each power of two, how many.
    pub fn sides(&self) -> Vec<(u32, usize)> {
        let mut counts: Vec<(u32, usize)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.width > 0) {
            let side = row.width.max(row.height).checked_next_power_of_two().unwrap_or(u32::MAX);
            match counts.binary_search_by_key(&side, |(side, _)| *side) {
                Ok(at) => counts[at].1 += 1,
                Err(at) => counts.insert(at, (side, 1)),
            }
        }
        counts
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was looked at")]
fn whole(number: f32) -> Option<u32> {
    (0.0..16_777_216.0).contains(&number).then_some(number as u32)
}

/// How many pictures each class has in training, validation and test, most frequent first.
pub fn histogram(document: &Document) -> Vec<(String, [u64; 3])> {
    let count = |split: Split, class: usize| {
        document.per_class.get(split.name()).and_then(|counts| counts.get(class)).copied().unwrap_or_default()
    };
    let mut bars: Vec<(String, [u64; 3])> = document
        .classes
        .iter()
        .enumerate()
        .map(|(class, name)| (name.clone(), Split::ALL.map(|split| count(split, class))))
        .collect();
    bars.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().sum::<u64>()));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "path,label,split,width,height,size,hash,error\n\
        a/1.png,a,train,10,10,300,h,\n\
        a/2.png,a,val,20,10,100,h,\n\
        b/1.png,b,train,40,30,200,h,\n\
        b/2.png,b,,,,50,h,the file is empty\n\
        b/3.png,b,train,9,9,200,h,\n";

    fn paths(index: &Index, wanted: &ItemQuery) -> Vec<String> {
        let part = index.list(&ItemQuery { limit: 100, ..wanted.clone() });
        part.rows.iter().map(|number| index.row(*number).unwrap().path.to_string()).collect()
    }

    #[test]
    fn rows_are_chosen_and_sorted() {
        let index = Index::read(MANIFEST.as_bytes()).unwrap();
        let wanted = ItemQuery::default();
        assert_eq!(
            paths(&index, &ItemQuery { find: "B/".to_owned(), ..wanted.clone() }),
            ["b/1.png", "b/2.png", "b/3.png"]
        );
        assert_eq!(paths(&index, &ItemQuery { split: Some(Split::Val), ..wanted.clone() }), ["a/2.png"]);
        assert_eq!(paths(&index, &ItemQuery { broken: true, ..wanted.clone() }), ["b/2.png"]);
        assert_eq!(
            paths(&index, &ItemQuery { label: Some("a".to_owned()), descending: true, ..wanted.clone() }),
            ["a/2.png", "a/1.png"]
        );
        let by_size = ItemQuery { by: SortKey::Size, used: true, ..wanted };
        assert_eq!(paths(&index, &by_size), ["a/2.png", "b/1.png", "b/3.png", "a/1.png"]);
        assert_eq!([0, 2, 4].map(|row| index.row(row).unwrap().place), [0, 1, 2]);
        assert_eq!(index.rows_of(&["a/2.png", "b/2.png", "c"].into()), [("a/2.png".to_owned(), 1)].into());
        assert_eq!(index.sides(), [(16, 2), (32, 1), (64, 1)]);
    }

    #[test]
    fn parts_follow_one_another_in_both_directions() {
        let index = Index::read(MANIFEST.as_bytes()).unwrap();
        for (by, descending) in
            [(SortKey::Path, false), (SortKey::Size, false), (SortKey::Size, true), (SortKey::Pixels, true)]
        {
            let whole = ItemQuery { by, descending, limit: 100, ..ItemQuery::default() };
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let part = index.list(&ItemQuery { limit: 2, after, ..whole.clone() });
                assert_eq!(part.total, 5);
                found.extend(part.rows);
                after = part.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, index.list(&whole).rows, "{by:?}");
        }
    }

    #[test]
    fn boxes_belong_to_the_pictures_of_their_split() {
        let mut index = Index::read(MANIFEST.as_bytes()).unwrap();
        let array: Vec<u8> = [1.0_f32, 0.0, 2.0, 3.0, 4.0, 5.0, f32::NAN, 0.0, 0.0, 0.0, 1.0, 1.0]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        index.take_boxes(&[(Split::Val, &[][..]), (Split::Train, &array[..])]);
        let placed = PlacedBox { class: 0, x: 2.0, y: 3.0, width: 4.0, height: 5.0 };
        assert_eq!(index.boxes(index.row(2).unwrap()), [placed]);
        assert!(index.boxes(index.row(1).unwrap()).is_empty() && index.boxes(index.row(3).unwrap()).is_empty());
    }

    #[test]
    fn what_is_no_manifest_is_empty() {
        for bytes in [&b""[..], b"\xFF\xFE", b"path\n\"", b"a,b\n1,2,3,4,5,6,7,8,9\n"] {
            assert!(Index::read(bytes).unwrap().rows.len() < 2);
        }
    }

    #[test]
    fn rows_are_counted_as_what_they_take_and_are_not_too_many() {
        let table = |rows: usize| format!("path\n{}", "a\n".repeat(rows));
        let index = Index::read(table(MAX_ROWS).as_bytes()).unwrap();
        assert_eq!(index.count(), MAX_ROWS);
        assert!(MAX_ROWS * (size_of::<ManifestRow>() + 16) < index.bytes(), "{} bytes", index.bytes());
        assert!(Index::read(table(MAX_ROWS + 1).as_bytes()).is_none());
    }
}
