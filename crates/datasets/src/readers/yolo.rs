//! YOLO's boxes: for each image a text file of the same name, beside it or in `labels` where the
//! image is in `images`; each line a class and four numbers that are parts of the image's size.
//! More numbers are an outline or keypoints. `data.yaml`, darknet's `.data` or lists name the
//! classes and the splits.

use std::{collections::BTreeSet, path::Path};

use super::super::{
    Error,
    catalogue::{Catalogue, Item, LabelledBox, Note, Split},
    data_yaml::DataYaml,
    division,
    regions::{self, Region},
    spec::{Division, Kind, Purpose, Spec},
    text,
    tree::{self, Found, Tree},
};

pub fn read(path: &Path, division: &Division, spec: &Spec, work: Option<&Path>) -> Result<Catalogue, Error> {
    let tree = Tree::open(path)?;
    let mut items = tree.items();
    let mut notes = Vec::new();
    let yaml = find_yaml(&tree, &mut notes)?;
    let layout = divide(&tree, division, yaml.as_ref(), &mut items, &mut notes)?;
    let keypoints = yaml.as_ref().and_then(|(_, yaml)| yaml.keypoints());
    let mut lines: Vec<Vec<Line>> = Vec::with_capacity(items.len());
    let mut without = Vec::new();
    for item in &mut items {
        let label = label_paths(&item.path).into_iter().find(|path| tree.has(path));
        without.push(label.is_none());
        let Some(label) = label else {
            lines.push(Vec::new());
            continue;
        };
        match tree.text(&label) {
            Ok(content) => {
                lines.push(text::lines(&content).map(|(number, line)| parse(number, line, keypoints)).collect());
            }
            Err(error) => {
                item.fault = Some(format!("its boxes cannot be read: {}", error.reason()));
                lines.push(Vec::new());
            }
        }
    }
    if !items.is_empty() && without.iter().all(|without| *without) {
        return Err(tree.wrong("no image has a file of boxes: expected a .txt file of the same name beside each image, or in `labels` where the image is in `images`"));
    }
    leave_out_unlabelled(&mut items, &without, spec.purpose, &mut notes);
    let named = names(&tree, yaml.as_ref(), &mut notes)?;
    let most = lines.iter().flatten().filter(|line| line.fault.is_none()).map(|line| line.class + 1).max();
    let classes = named.unwrap_or_else(|| (0..most.unwrap_or_default()).map(|class| class.to_string()).collect());
    for line in lines.iter_mut().flatten() {
        if line.class as usize >= classes.len() && line.fault.is_none() {
            line.fault = Some(format!("its class is {}, but there are only {}", line.class, classes.len()));
        }
    }
    if spec.kind == Kind::Segmentation {
        return masks(tree, items, lines, (classes, spec.purpose), notes, layout, work);
    }
    for (item, lines) in items.iter_mut().zip(lines) {
        item.boxes = lines.into_iter().map(Line::boxed).collect();
    }
    Ok(tree.finish(Found { items, classes, notes, layout, ..Found::default() }))
}

/// Outlines as masks; boxes alone have none.
fn masks(
    tree: Tree,
    mut items: Vec<Item>,
    lines: Vec<Vec<Line>>,
    (names, purpose): (Vec<String>, Purpose),
    mut notes: Vec<Note>,
    layout: String,
    work: Option<&Path>,
) -> Result<Catalogue, Error> {
    let classes = super::with_background(names).map_err(|reason| tree.wrong(reason))?;
    let mut drawing = super::Drawing::begin(work)?;
    for (item, lines) in items.iter_mut().zip(lines) {
        let mut dropped = BTreeSet::new();
        for line in lines {
            match (line.fault, line.outline) {
                (Some(fault), _) => drop(dropped.insert(fault)),
                (None, None) => drop(dropped.insert("a line has a box, but no outline".to_owned())),
                (None, Some(outline)) => drawing.put(item, line.class, &Region::Relative(vec![outline]))?,
            }
        }
        if let Some(reason) = dropped.first().filter(|_| purpose == Purpose::Evaluation && item.outside.is_none()) {
            item.outside = Some(format!("its mask is not complete: {reason}"));
        }
        notes.extend(dropped.into_iter().map(|reason| Note::new(item.path.clone(), reason)));
    }
    let regions = drawing.finish()?;
    Ok(tree.finish(Found { items, classes, notes, layout, regions, ..Found::default() }))
}

/// For a training, an image without a file of boxes has no objects; if a whole split has no such files, it is not
/// labelled. A score would count what a model finds in such an image as mistakes, so that it is left out.
pub fn leave_out_unlabelled(items: &mut [Item], without: &[bool], purpose: Purpose, notes: &mut Vec<Note>) {
    if purpose == Purpose::Evaluation {
        for (item, _) in items.iter_mut().zip(without).filter(|(item, without)| **without && item.outside.is_none()) {
            item.outside = Some("no file of boxes".to_owned());
        }
        return;
    }
    for split in [None, Some(Split::Train), Some(Split::Val), Some(Split::Test)] {
        let members: Vec<usize> =
            (0..items.len()).filter(|&at| items[at].split == split && items[at].outside.is_none()).collect();
        let unlabelled = split.is_some() && !members.is_empty() && members.iter().all(|&at| without[at]);
        for at in members.into_iter().filter(|&at| without[at]) {
            if unlabelled {
                items[at].outside = Some("no image of its split has a file of annotations".to_owned());
                items[at].split = None;
            } else {
                notes.push(Note::new(items[at].path.clone(), "no file of boxes; the image counts as empty"));
            }
        }
    }
}

/// Where the boxes of a picture may be, the most usual place first.
fn label_paths(picture: &str) -> Vec<String> {
    let beside = super::with_ending(picture, "txt");
    let parts: Vec<&str> = beside.split('/').collect();
    let folders = 0..parts.len().saturating_sub(1);
    let replaced =
        folders.rev().filter(|&at| matches!(parts[at], "images" | "Images" | "image" | "imgs" | "JPEGImages"));
    let in_labels = replaced.flat_map(|at| {
        ["labels", "Labels", "label", "annotations"].map(|name| {
            let mut parts = parts.clone();
            parts[at] = name;
            parts.join("/")
        })
    });
    // `train/a.jpg` with `labels/train/a.txt`, and images beside a folder of labels.
    let above = std::iter::once(format!("labels/{beside}"));
    let sibling = parts.split_last().map(|(name, folders)| [folders, &["labels", name]].concat().join("/"));
    in_labels.chain([beside.clone()]).chain(above).chain(sibling).collect()
}

/// A line of a file of boxes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Line {
    class: u32,
    /// Left, top, width and height.
    place: [f64; 4],
    outline: Option<Vec<f32>>,
    fault: Option<String>,
}

impl Line {
    fn boxed(self) -> LabelledBox {
        let [x, y, width, height] = self.place;
        LabelledBox { class: self.class, x, y, width, height, relative: true, fault: self.fault.map(Into::into) }
    }
}

fn parse(number: usize, line: &str, keypoints: Option<(usize, usize)>) -> Line {
    let bad = |reason: &str| Line {
        place: [f64::NAN; 4],
        fault: Some(format!("line {number}: {reason}")),
        ..Line::default()
    };
    let mut words = line.split_whitespace();
    // Some programs write the class as a number with a fraction.
    let class = words.next().and_then(|word| word.strip_suffix(".0").unwrap_or(word).parse::<u16>().ok());
    let values: Option<Vec<f64>> = words.map(|word| word.parse().ok().filter(|v: &f64| v.is_finite())).collect();
    let (Some(class), Some(values)) = (class, values) else { return bad("not a class with four numbers") };
    let middle = |values: &[f64]| {
        let [x, y, width, height] = [values[0], values[1], values[2], values[3]];
        Line { class: class.into(), place: [x - width / 2.0, y - height / 2.0, width, height], ..Line::default() }
    };
    match values.len() {
        4 | 5 => middle(&values),
        count if keypoints.is_some_and(|(points, each)| (4 + points * each..=5 + points * each).contains(&count)) => {
            middle(&values)
        }
        _ if are_keypoints(&values) => middle(&values),
        count if keypoints.is_some() => bad(&format!("{count} numbers do not fit `kpt_shape`")),
        count if count >= 6 && count.is_multiple_of(2) => {
            if values.iter().any(|value| !(-0.5..=1.5).contains(value)) {
                return bad("the outline has numbers that are not parts of the image's width and height");
            }
            let outline: Vec<f32> = values.iter().map(|value| regions::single(*value)).collect();
            let edge = |at: usize, start: f64, pick: fn(f64, f64) -> f64| {
                values.iter().skip(at).step_by(2).copied().fold(start, pick)
            };
            let (left, top) = (edge(0, f64::MAX, f64::min), edge(1, f64::MAX, f64::min));
            let place = [left, top, edge(0, f64::MIN, f64::max) - left, edge(1, f64::MIN, f64::max) - top];
            Line { class: class.into(), place, outline: Some(outline), fault: None }
        }
        _ => bad("not a class with four numbers"),
    }
}

/// Whether numbers behind a box come in threes whose last says how visible the point is. Of an outline, where the
/// same could be by chance, none is 2.
fn are_keypoints(values: &[f64]) -> bool {
    let Some((_, rest)) = values.split_at_checked(4) else { return false };
    let (points, left) = rest.as_chunks::<3>();
    let visible = points.iter().all(|point| [0.0, 1.0, 2.0].contains(&point[2]));
    let is_odd = !values.len().is_multiple_of(2);
    !points.is_empty() && left.is_empty() && visible && (is_odd || points.iter().any(|point| point[2] > 1.5))
}

/// The document that names the classes: `data.yaml`, or the only one with such a field.
fn find_yaml(tree: &Tree, notes: &mut Vec<Note>) -> Result<Option<(String, DataYaml)>, Error> {
    let mut paths: Vec<&str> =
        tree.others("yaml").chain(tree.others("yml")).filter(|path| path.matches('/').count() <= 3).collect();
    let usual = |path: &str| usize::from(!matches!(tree::stem(path), "data" | "dataset"));
    paths.sort_by_key(|path| (usual(path), path.matches('/').count(), path.len()));
    let mut found: Option<(String, DataYaml)> = None;
    for path in paths {
        let content = tree.peek(path)?;
        match DataYaml::parse(&content) {
            Ok(yaml) if yaml.names.0.is_some() => match &found {
                None => {
                    tree.mark(path);
                    found = Some((path.to_owned(), yaml));
                }
                Some((first, _)) => notes.push(Note::new(path, format!("not used, because {first} names the classes"))),
            },
            Ok(_) => {}
            Err(reason) if usual(path) == 0 && found.is_none() => {
                return Err(Error::Source { path: path.into(), reason });
            }
            Err(reason) => notes.push(Note::new(path, reason)),
        }
    }
    Ok(found)
}

/// Divides images as the specification or `data.yaml` says, else by lists or folders.
fn divide(
    tree: &Tree,
    division: &Division,
    yaml: Option<&(String, DataYaml)>,
    items: &mut [Item],
    notes: &mut Vec<Note>,
) -> Result<String, Error> {
    if let (true, Some((path, yaml))) = (division.is_auto(), yaml) {
        let mut parts: Vec<division::Part> = Vec::new();
        for (split, entries) in [(Split::Train, &yaml.train), (Split::Val, &yaml.val), (Split::Test, &yaml.test)] {
            let mut found = Vec::new();
            for entry in &entries.0 {
                let named = images_of(tree, items, path, yaml, entry)?;
                if named.is_empty() {
                    notes.push(Note::new(path.clone(), format!("{}: no image in {entry}", split.name())));
                }
                found.extend(named);
            }
            if !found.is_empty() {
                parts.push((split, format!("{} of {path}", split.name()), found));
            }
        }
        if parts.iter().any(|(split, ..)| *split == Split::Train) {
            return Ok(division::assign(&parts, items, notes));
        }
    }
    division::divide(tree, division, items, notes)
}

/// The images that an entry of `data.yaml` means: a folder, or a list. Folders of another machine in front of it
/// are passed over.
fn images_of(tree: &Tree, items: &[Item], path: &str, yaml: &DataYaml, entry: &str) -> Result<Vec<String>, Error> {
    let here = tree::parent(path);
    let root = yaml.path.0.first().map(|root| tree::normal(root)).unwrap_or_default();
    let entry = tree::normal(entry);
    let mut names = vec![tree::normal(&format!("{here}/{root}/{entry}")), tree::normal(&format!("{root}/{entry}"))];
    let mut rest = entry.as_str();
    loop {
        names.push(tree::join(here, rest).into_owned());
        names.push(rest.to_owned());
        match rest.split_once('/') {
            Some((_, below)) => rest = below,
            None => break,
        }
    }
    for name in names {
        if name.to_ascii_lowercase().ends_with(".txt") {
            if tree.has(&name) {
                return division::listed(tree, &name, &division::Names::of(items));
            }
            continue;
        }
        let found: Vec<String> =
            items.iter().filter(|item| tree::is_below(&item.path, &name)).map(|item| item.path.clone()).collect();
        // `.` means everything, but a name that was used up by passing over folders does not.
        if !found.is_empty() && (!name.is_empty() || entry.is_empty()) {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The names of the classes: a line each in `classes.txt`, or `names` in `data.yaml`.
fn names(tree: &Tree, yaml: Option<&(String, DataYaml)>, notes: &mut Vec<Note>) -> Result<Option<Vec<String>>, Error> {
    let known = ["classes.txt", "obj.names", "_darknet.labels", "labels.txt", "predefined_classes.txt"];
    let mut files: Vec<&str> = ["txt", "names", "labels"]
        .iter()
        .flat_map(|ending| tree.others(ending))
        .filter(|path| path.matches('/').count() <= 3 && known.contains(&path.rsplit('/').next().unwrap_or(path)))
        .collect();
    files.sort_by_key(|path| (path.matches('/').count(), path.len()));
    let listed = files.first().map(|path| tree.text(path)).transpose()?.map(|content| tree::class_lines(&content));
    for path in &files {
        tree.mark(path);
    }
    let written = yaml.and_then(|(path, yaml)| Some((path, yaml, yaml.names.0.clone()?)));
    if let Some((path, yaml, names)) = &written {
        if let Some(count) = yaml.nc.0.first().filter(|count| count.parse() != Ok(names.len())) {
            notes.push(Note::new(path.as_str(), format!("`nc` is {count}, but `names` has {} names", names.len())));
        }
        if listed.as_ref().is_some_and(|listed| listed != names) {
            let file = files.first().copied().unwrap_or_default();
            notes.push(Note::new(path.as_str(), format!("`names` is not used, because {file} names other classes")));
        }
    }
    Ok(listed.filter(|names| !names.is_empty()).or(written.map(|(_, _, names)| names)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(line: &str) -> Line {
        parse(1, line, None)
    }

    fn near(found: &Line, place: [f64; 4]) -> bool {
        found.fault.is_none() && found.place.iter().zip(place).all(|(a, b)| (a - b).abs() < 1e-6)
    }

    #[test]
    fn where_boxes_lie() {
        let paths = label_paths("images/train/a.b.jpg");
        assert_eq!(paths[0], "labels/train/a.b.txt");
        assert!(paths.contains(&"images/train/a.b.txt".to_owned()));
        assert!(label_paths("train/a.jpg").contains(&"labels/train/a.txt".to_owned()));
        assert!(label_paths("a.jpg").contains(&"a.txt".to_owned()));
    }

    #[test]
    fn lines_of_boxes() {
        assert!(near(&line("2 0.5 0.5 0.2 0.4"), [0.4, 0.3, 0.2, 0.4]));
        assert!(near(&line("2.0 0.5 0.5 0.2 0.4 0.93"), [0.4, 0.3, 0.2, 0.4]));
        assert_eq!((line("10 0.5 0.5 0.2 0.4").class, line("10.0 0.5 0.5 0.2 0.4").class), (10, 10));
        assert!(near(&line("1 0.1 0.2 0.5 0.2 0.5 0.9"), [0.1, 0.2, 0.4, 0.7]));
        for bad in ["cat 1 2 3 4", "1 2 3", "0 nan 0 1 1", "-1 0 0 1 1", "0 0 0 1 1 1 1 0.3", "0 10 10 90 10 90 90"] {
            assert!(parse(7, bad, None).fault.unwrap().starts_with("line 7:"), "{bad}");
        }
    }

    #[test]
    fn keypoints_are_behind_the_box() {
        let place = [0.4, 0.3, 0.2, 0.4];
        let threes = "0 0.5 0.5 0.2 0.4 0.45 0.4 2 0.55 0.4 2 0.5 0.5 2 0.5 0.6 1";
        assert!(near(&parse(1, threes, Some((4, 3))), place));
        assert!(near(&line(threes), place), "their visibility shows what they are");
        let pairs = "0 0.5 0.5 0.2 0.4 0.45 0.4 0.55 0.4 0.5 0.5 0.45 0.6 0.55 0.6";
        assert!(near(&parse(1, pairs, Some((5, 2))), place));
        let seventeen = format!("0 0.5 0.5 0.2 0.4 {}", "0.5 0.5 1 ".repeat(17));
        assert!(near(&parse(1, &seventeen, Some((17, 3))), place) && near(&line(&seventeen), place));
        assert!(near(&parse(1, "0 0.5 0.5 0.2 0.4", Some((17, 3))), place));
        assert!(parse(1, pairs, Some((17, 3))).fault.unwrap().contains("kpt_shape"));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(text in "[0-9a-z .\\-]{0,80}", points in 0_usize..20, each in 2_usize..4) {
            let _ = line(&text);
            let _ = parse(3, &text, Some((points, each)));
        }
    }
}
