//! Regions that annotations describe instead of painting: outlines, and COCO's run lengths. They
//! are written to a file beside the work while annotations are read, because those of a large
//! set take more memory than everything else, and drawn when their image is opened.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use super::{Error, colours::IGNORED, loose::Nested};

/// The most numbers of one region that are kept.
const MAX_NUMBERS: usize = 4_000_000;

/// What a region covers, in pixels of the original.
#[derive(Clone, Debug, PartialEq)]
pub enum Region {
    /// Corners: x and y in turn. Each list is an outline of its own.
    Outline(Vec<Vec<f32>>),
    /// The same as parts of width and height.
    Relative(Vec<Vec<f32>>),
    /// Runs of nothing and something in turn, down each column, at this width and height.
    Columns { width: u32, height: u32, runs: Vec<u32> },
    /// Runs along the lines of a rectangle at this place.
    Lines { left: u32, top: u32, width: u32, height: u32, runs: Vec<u32> },
}

/// Where a region is in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placed {
    pub class: u8,
    /// Square pixels, about: what is small is drawn over what is large.
    pub area: f32,
    from: u64,
    length: u32,
}

/// The file of regions.
#[derive(Debug)]
pub struct Spool {
    file: File,
}

/// The same while it is written. Without a folder nothing is kept but the count.
pub struct Writer {
    to: Option<BufWriter<File>>,
    at: u64,
}

impl Writer {
    pub fn begin(work: Option<&Path>) -> Result<Self, Error> {
        let to = work.map(|work| {
            let path = work.join("regions");
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
            file.map(BufWriter::new).map_err(|error| Error::writing(&path, error))
        });
        Ok(Self { to: to.transpose()?, at: 0 })
    }

    pub fn put(&mut self, class: u8, region: &Region) -> io::Result<Placed> {
        let bytes = encode(region);
        let from = self.at;
        if let Some(to) = &mut self.to {
            to.write_all(&bytes)?;
        }
        self.at += bytes.len() as u64;
        let length = u32::try_from(bytes.len()).map_err(|_too_long| io::Error::from(io::ErrorKind::FileTooLarge))?;
        Ok(Placed { class, area: area(region), from, length })
    }

    pub fn finish(self) -> io::Result<Option<Spool>> {
        let file = self.to.map(|to| to.into_inner().map_err(io::IntoInnerError::into_error)).transpose()?;
        Ok(file.map(|file| Spool { file }))
    }
}

impl Spool {
    /// The classes of an image's pixels; 0 where no region is.
    pub fn draw(&self, regions: &[Placed], width: u32, height: u32) -> io::Result<Vec<u8>> {
        let mut mask = vec![0; width as usize * height as usize];
        let mut order: Vec<&Placed> = regions.iter().collect();
        order.sort_by(|a, b| b.area.total_cmp(&a.area));
        for placed in order {
            let mut bytes = vec![0; placed.length as usize];
            self.file.read_exact_at(&mut bytes, placed.from)?;
            let region = decode(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
            paint(&mut mask, width, height, &region, placed.class);
        }
        Ok(mask)
    }
}

/// The class that regions without one have.
pub const UNKNOWN: u8 = IGNORED;

/// The rectangle around a region: left, top, width and height.
pub fn around(region: &Region) -> Option<[f64; 4]> {
    match region {
        Region::Outline(outlines) | Region::Relative(outlines) => {
            let edge = |at: usize, start: f32, pick: fn(f32, f32) -> f32| {
                outlines.iter().flat_map(|outline| outline.iter().skip(at).step_by(2)).copied().fold(start, pick)
            };
            let (left, top) = (edge(0, f32::INFINITY, f32::min), edge(1, f32::INFINITY, f32::min));
            let (right, bottom) = (edge(0, f32::NEG_INFINITY, f32::max), edge(1, f32::NEG_INFINITY, f32::max));
            (left.is_finite() && top.is_finite()).then(|| {
                [left.into(), top.into(), f64::from(right) - f64::from(left), f64::from(bottom) - f64::from(top)]
            })
        }
        Region::Columns { height, runs, .. } => {
            let (mut left, mut top, mut right, mut bottom) = (u64::MAX, u64::MAX, 0_u64, 0_u64);
            let high = u64::from((*height).max(1));
            each_run(runs, |from, to| {
                left = left.min(from / high);
                right = right.max((to - 1) / high + 1);
                if from / high == (to - 1) / high {
                    top = top.min(from % high);
                    bottom = bottom.max((to - 1) % high + 1);
                } else {
                    (top, bottom) = (0, high);
                }
            });
            rectangle(left, top, right, bottom)
        }
        Region::Lines { left, top, width, height, .. } => {
            Some([(*left).into(), (*top).into(), (*width).into(), (*height).into()])
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "pictures are smaller")]
fn rectangle(left: u64, top: u64, right: u64, bottom: u64) -> Option<[f64; 4]> {
    (left < right && top < bottom).then(|| [left as f64, top as f64, (right - left) as f64, (bottom - top) as f64])
}

/// The places of what is something, from and up to.
fn each_run(runs: &[u32], mut found: impl FnMut(u64, u64)) {
    let mut at = 0_u64;
    for (index, &run) in runs.iter().enumerate() {
        let end = at + u64::from(run);
        if index % 2 == 1 && run > 0 {
            found(at, end);
        }
        at = end;
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "it only decides an order")]
fn area(region: &Region) -> f32 {
    match region {
        Region::Columns { runs, .. } | Region::Lines { runs, .. } => {
            runs.iter().skip(1).step_by(2).map(|&run| run as f32).sum()
        }
        Region::Outline(outlines) | Region::Relative(outlines) => outlines
            .iter()
            .map(|outline| {
                let (points, _) = outline.as_chunks::<2>();
                let next = points.iter().cycle().skip(1);
                let twice: f64 = points
                    .iter()
                    .zip(next)
                    .map(|(a, b)| f64::from(a[0]) * f64::from(b[1]) - f64::from(b[0]) * f64::from(a[1]))
                    .sum();
                (twice.abs() / 2.0) as f32
            })
            .sum(),
    }
}

/// COCO's `segmentation`: outlines, or an object with `counts` and `size`.
pub fn of_coco(found: &Nested) -> Result<Option<Region>, String> {
    if let (Some(counts), Some(size)) = (found.field("counts"), found.field("size")) {
        let sides: Vec<f64> = size.items().iter().map(Nested::number).collect();
        let (Some(height), Some(width)) = (side(sides.first()), side(sides.get(1))) else {
            return Err("its mask has no `size` of height and width".to_owned());
        };
        let runs = match counts.text() {
            Some(text) => unpack(text.as_bytes()).ok_or("its mask is not valid run-length encoding")?,
            None => counts
                .items()
                .iter()
                .map(|run| side(Some(&run.number())).or((run.number() == 0.0).then_some(0)))
                .collect::<Option<Vec<u32>>>()
                .ok_or("its mask is not valid run-length encoding")?,
        };
        let total: u64 = runs.iter().map(|&run| u64::from(run)).sum();
        if total != u64::from(width) * u64::from(height) {
            return Err(format!("its mask has {total} pixels, but {width} × {height} were stated"));
        }
        return Ok(Some(Region::Columns { width, height, runs }));
    }
    let outline = |items: &[Nested]| -> Vec<f32> { items.iter().map(|one| single(one.number())).collect() };
    let outlines: Vec<Vec<f32>> = match found.items() {
        [] => return Ok(None),
        [Nested::Value(_), ..] => vec![outline(found.items())],
        lists => lists.iter().map(|list| outline(list.items())).collect(),
    };
    checked(outlines).map(|outlines| Some(Region::Outline(outlines)))
}

/// Outlines of at least three corners each, of numbers.
pub fn checked(mut outlines: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, String> {
    outlines.retain(|outline| outline.len() >= 6);
    if outlines.is_empty() {
        return Err("its outline has fewer than three corners".to_owned());
    }
    if outlines.iter().flatten().any(|number| !number.is_finite()) {
        return Err("its outline has values that are not numbers".to_owned());
    }
    if outlines.iter().map(Vec::len).sum::<usize>() > MAX_NUMBERS {
        return Err("its outline has too many corners".to_owned());
    }
    Ok(outlines)
}

#[expect(clippy::cast_possible_truncation, reason = "places in a picture")]
pub fn single(number: f64) -> f32 {
    number as f32
}

fn side(number: Option<&f64>) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "looked at here")]
    number.filter(|number| number.fract() == 0.0 && (1.0..4e9).contains(*number)).map(|number| *number as u32)
}

/// COCO's compressed counts: five bits a letter from `0` on, each number but the first three the difference to the
/// one two before (`rleFrString` of cocoapi's `maskApi.c`).
fn unpack(text: &[u8]) -> Option<Vec<u32>> {
    let mut runs: Vec<i64> = Vec::new();
    let mut letters = text.iter();
    while let Some(&first) = letters.next() {
        let (mut value, mut shift, mut letter) = (0_i64, 0_u32, first);
        loop {
            let bits = i64::from(letter.checked_sub(48).filter(|bits| *bits < 64)?);
            value |= (bits & 0x1F).checked_shl(shift)?;
            shift += 5;
            if shift > 40 {
                return None;
            }
            if bits & 0x20 == 0 {
                if bits & 0x10 != 0 {
                    value |= -1_i64 << shift;
                }
                break;
            }
            letter = *letters.next()?;
        }
        if runs.len() > 2 {
            value += runs[runs.len() - 2];
        }
        runs.push(value);
        if runs.len() > MAX_NUMBERS {
            return None;
        }
    }
    runs.into_iter().map(|run| u32::try_from(run).ok()).collect()
}

fn paint(mask: &mut [u8], width: u32, height: u32, region: &Region, class: u8) {
    match region {
        Region::Outline(outlines) => outlines.iter().for_each(|outline| fill(mask, width, height, outline, class)),
        Region::Relative(outlines) => {
            for outline in outlines {
                let scale = [single(width.into()), single(height.into())];
                let scaled: Vec<f32> = outline.iter().enumerate().map(|(at, part)| part * scale[at % 2]).collect();
                fill(mask, width, height, &scaled, class);
            }
        }
        Region::Columns { width: wide, height: high, runs } => {
            if (*wide, *high) == (width, height) {
                each_run(runs, |from, to| {
                    for at in from..to {
                        let (x, y) = (at / u64::from(height), at % u64::from(height));
                        put(mask, width, height, x, y, class);
                    }
                });
            }
        }
        Region::Lines { left, top, width: wide, height: high, runs } => {
            let (wide, most) = (u64::from(*wide).max(1), u64::from(*wide) * u64::from(*high));
            each_run(runs, |from, to| {
                for at in from..to.min(most) {
                    put(mask, width, height, u64::from(*left) + at % wide, u64::from(*top) + at / wide, class);
                }
            });
        }
    }
}

fn put(mask: &mut [u8], width: u32, height: u32, x: u64, y: u64, class: u8) {
    if x < u64::from(width) && y < u64::from(height) {
        let at = usize::try_from(y * u64::from(width) + x).ok();
        if let Some(pixel) = at.and_then(|at| mask.get_mut(at)) {
            *pixel = class;
        }
    }
}

/// Fills an outline: the pixels whose middle is inside, by the even-odd rule.
fn fill(mask: &mut [u8], width: u32, height: u32, outline: &[f32], class: u8) {
    let (points, _) = outline.as_chunks::<2>();
    let mut crossings: Vec<f64> = Vec::new();
    let lowest = points.iter().map(|point| f64::from(point[1])).fold(f64::INFINITY, f64::min).max(0.0);
    let highest = points.iter().map(|point| f64::from(point[1])).fold(0.0, f64::max).min(height.into());
    let (wide, lines) = (width as usize, whole(lowest)..whole(highest.ceil()).min(height as usize));
    for line in lines {
        #[expect(clippy::cast_precision_loss, reason = "lines of a picture")]
        let middle = line as f64 + 0.5;
        crossings.clear();
        for (a, b) in points.iter().zip(points.iter().cycle().skip(1)) {
            let [ax, ay, bx, by] = [a[0], a[1], b[0], b[1]].map(f64::from);
            if (ay <= middle) != (by <= middle) {
                crossings.push(ax + (middle - ay) / (by - ay) * (bx - ax));
            }
        }
        crossings.sort_by(f64::total_cmp);
        let (pairs, _) = crossings.as_chunks::<2>();
        for [from, to] in pairs {
            let (from, to) = (whole((from - 0.5).ceil().max(0.0)), whole((to - 0.5).ceil().clamp(0.0, width.into())));
            if from < to {
                mask[line * wide + from..line * wide + to].fill(class);
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "places in a picture, not below 0")]
fn whole(number: f64) -> usize {
    number as usize
}

fn encode(region: &Region) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut number = |number: u32| bytes.extend_from_slice(&number.to_le_bytes());
    let length = |list: usize| u32::try_from(list).unwrap_or(u32::MAX);
    match region {
        Region::Outline(outlines) | Region::Relative(outlines) => {
            number(u32::from(matches!(region, Region::Relative(_))));
            for outline in outlines {
                number(length(outline.len()));
                for value in outline {
                    number(value.to_bits());
                }
            }
        }
        Region::Columns { width, height, runs } => {
            [2, *width, *height].into_iter().chain(runs.iter().copied()).for_each(number);
        }
        Region::Lines { left, top, width, height, runs } => {
            [3, *left, *top, *width, *height].into_iter().chain(runs.iter().copied()).for_each(number);
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Region> {
    let (words, _) = bytes.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    match words.as_slice() {
        [tag @ (0 | 1), rest @ ..] => {
            let (mut outlines, mut rest) = (Vec::new(), rest);
            while let Some((&length, after)) = rest.split_first() {
                let (outline, after) = after.split_at_checked(length as usize)?;
                outlines.push(outline.iter().map(|&bits| f32::from_bits(bits)).collect());
                rest = after;
            }
            Some(if *tag == 0 { Region::Outline(outlines) } else { Region::Relative(outlines) })
        }
        [2, width, height, runs @ ..] => Some(Region::Columns { width: *width, height: *height, runs: runs.to_vec() }),
        [3, left, top, width, height, runs @ ..] => {
            Some(Region::Lines { left: *left, top: *top, width: *width, height: *height, runs: runs.to_vec() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn coco(value: &serde_json::Value) -> Result<Option<Region>, String> {
        of_coco(&serde_json::from_value(value.clone()).unwrap())
    }

    fn drawn(regions: &[(u8, Region)], width: u32, height: u32) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::begin(Some(folder.path())).unwrap();
        let placed: Vec<Placed> = regions.iter().map(|(class, region)| writer.put(*class, region).unwrap()).collect();
        writer.finish().unwrap().unwrap().draw(&placed, width, height).unwrap()
    }

    #[test]
    fn outlines_are_filled_and_small_ones_are_on_top() {
        let large = Region::Outline(vec![vec![0.0, 0.0, 4.0, 0.0, 4.0, 3.0, 0.0, 3.0]]);
        let small = Region::Relative(vec![vec![0.25, 0.0, 0.5, 0.0, 0.5, 0.34, 0.25, 0.34]]);
        assert_eq!(drawn(&[(2, small), (1, large)], 4, 3), [1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn run_lengths_of_coco_go_down_the_columns() {
        // Three wide, two high: the middle column, then the last pixel of the last.
        let plain = coco(&json!({"size": [2, 3], "counts": [2, 2, 1, 1]})).unwrap().unwrap();
        assert_eq!(drawn(&[(7, plain.clone())], 3, 2), [0, 7, 0, 0, 7, 7]);
        // The same, as pycocotools packs it: 2, 2, 1, and 1 - 2 as a difference.
        let packed = coco(&json!({"size": [2, 3], "counts": "221O"})).unwrap().unwrap();
        assert_eq!(packed, plain);
        assert_eq!(around(&plain), Some([1.0, 0.0, 2.0, 2.0]));
        for wrong in [
            json!({"size": [2, 3], "counts": [9]}),
            json!({"size": [2], "counts": "22"}),
            json!({"size": [2, 3], "counts": "\u{1}"}),
        ] {
            assert!(coco(&wrong).is_err(), "{wrong}");
        }
        assert_eq!(coco(&json!([])).unwrap(), None);
        assert!(coco(&json!([[1, 2, 3, 4]])).unwrap_err().contains("three corners"));
        assert!(coco(&json!([[1, 2, null, 4, 5, 6]])).unwrap_err().contains("not numbers"));
    }

    #[test]
    fn runs_along_lines_are_at_their_place() {
        let region = Region::Lines { left: 1, top: 0, width: 2, height: 2, runs: vec![1, 2, 1] };
        assert_eq!(drawn(&[(5, region)], 3, 2), [0, 0, 5, 0, 5, 0]);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..60), points in proptest::collection::vec(any::<f32>(), 0..20), runs in proptest::collection::vec(any::<u32>(), 0..9)) {
            let _ = unpack(&text);
            let _ = decode(&text);
            let mut mask = vec![0; 35];
            fill(&mut mask, 7, 5, &points, 1);
            let _ = around(&Region::Outline(vec![points]));
            let _ = around(&Region::Columns { width: 7, height: 5, runs });
        }

        #[test]
        fn what_is_kept_comes_back(points in proptest::collection::vec(-1e6_f32..1e6, 0..20), runs in proptest::collection::vec(any::<u32>(), 0..9)) {
            for region in [Region::Outline(vec![points.clone(), points.clone()]), Region::Relative(vec![points]), Region::Columns { width: 1, height: 2, runs: runs.clone() }, Region::Lines { left: 1, top: 2, width: 3, height: 4, runs }] {
                prop_assert_eq!(decode(&encode(&region)), Some(region));
            }
        }
    }
}
