//! KITTI's boxes: for each picture a text file of the same name in another folder; each line a
//! name, three numbers about the view, and the corners in pixels. `DontCare` is not a class. The
//! folders of images and labels may be inside or around those of the splits.

use std::{collections::BTreeSet, path::Path};

use super::super::{
    Error,
    catalogue::{Catalogue, LabelledBox},
    division,
    spec::{Division, Purpose},
    text,
    tree::{Found, Tree},
};

/// What the folders of images and labels are called where nothing is said.
const USUAL: [(&str, &str); 4] =
    [("images", "labels"), ("image_2", "label_2"), ("images", "annotations"), ("image", "label")];

pub fn read(
    path: &Path,
    (images, labels): (&str, &str),
    division: &Division,
    purpose: Purpose,
) -> Result<Catalogue, Error> {
    let tree = Tree::open(path)?;
    let mut items = tree.items();
    let pairs = std::iter::once((images, labels)).chain(USUAL.into_iter().filter(|_| (images, labels) == USUAL[0]));
    let label = |path: &str, (images, labels): (&str, &str)| {
        super::replaced(path, images, labels).map(|path| super::with_ending(&path, "txt")).find(|path| tree.has(path))
    };
    let Some(pair) = pairs.clone().find(|pair| items.iter().any(|item| label(&item.path, *pair).is_some())) else {
        let reason = format!("no image in a folder {images}/ has a .txt file of the same name in {labels}/");
        return Err(tree.wrong(reason));
    };
    items.retain(|item| super::replaced(&item.path, pair.0, pair.1).next().is_some());
    let mut notes = Vec::new();
    let layout = division::divide(&tree, division, &mut items, &mut notes)?;
    let (mut found, mut without) = (Vec::new(), Vec::new());
    for item in &items {
        let label = label(&item.path, pair);
        without.push(label.is_none());
        let content = label.map_or_else(|| Ok(String::new()), |label| tree.text(&label));
        found.push(
            content.map(|content| text::lines(&content).filter_map(|(n, line)| parse(n, line)).collect::<Vec<_>>()),
        );
    }
    super::yolo::leave_out_unlabelled(&mut items, &without, purpose, &mut notes);
    let names: BTreeSet<String> = found.iter().flatten().flatten().map(|(name, _)| name.clone()).collect();
    let classes: Vec<String> = names.into_iter().collect();
    for (item, boxes) in items.iter_mut().zip(found) {
        match boxes {
            Ok(boxes) => {
                let class = |name: &String| classes.binary_search(name).ok().and_then(|at| at.try_into().ok());
                item.boxes = boxes
                    .into_iter()
                    .map(|(name, found)| LabelledBox { class: class(&name).unwrap_or_default(), ..found })
                    .collect();
            }
            Err(error) => item.fault = Some(format!("its boxes cannot be read: {}", error.reason())),
        }
    }
    let layout = format!("{}/ and {}/; {layout}", pair.0.trim_matches('/'), pair.1.trim_matches('/'));
    Ok(tree.finish(Found { items, classes, notes, layout, ..Found::default() }))
}

fn parse(number: usize, line: &str) -> Option<(String, LabelledBox)> {
    let mut words = line.split_whitespace();
    let name = words.next().filter(|name| *name != "DontCare")?.to_owned();
    let values: Vec<f64> = words.map(|word| word.parse().unwrap_or(f64::NAN)).collect();
    let corners = values.get(3..7).and_then(|corners| <[f64; 4]>::try_from(corners).ok());
    let fault = corners.is_none().then(|| format!("line {number}: the four corners are missing").into());
    let [left, top, right, bottom] = corners.unwrap_or([f64::NAN; 4]);
    let found =
        LabelledBox { class: 0, x: left, y: top, width: right - left, height: bottom - top, relative: false, fault };
    Some((name, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_boxes() {
        let (name, found) =
            parse(1, "Car 0.00 0 -1.58 587.0 173.5 614.0 200.5 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59").unwrap();
        assert_eq!((name.as_str(), found.x, found.y, found.width, found.height), ("Car", 587.0, 173.5, 27.0, 27.0));
        assert_eq!(parse(1, "DontCare -1 -1 -10 0 0 1 1"), None);
        assert!(parse(3, "Car 0 0").unwrap().1.fault.unwrap().contains("line 3"));
    }
}
