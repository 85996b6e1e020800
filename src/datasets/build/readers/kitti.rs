//! KITTI's boxes: for each picture a text file of the same name in another folder; each line a
//! name, three numbers about the view, and the corners in pixels. `DontCare` is no class.

use std::{collections::BTreeSet, path::Path};

use super::super::{
    Error,
    catalogue::{Catalogue, LabelledBox, Note, Pictures},
    store::Store,
    text,
};

pub fn read(path: &Path, images: &str, labels: &str) -> Result<Catalogue, Error> {
    let store = Store::open(path)?;
    let folder = format!("{}/", images.trim_end_matches('/'));
    let mut items = super::pictures(&store)?;
    items.retain(|item| item.path.starts_with(&folder));
    let (mut notes, mut found) = (Vec::new(), Vec::new());
    for item in &mut items {
        let name = item.path.strip_prefix(&folder).unwrap_or_default();
        let label = format!("{}/{}", labels.trim_end_matches('/'), super::with_ending(name, "txt"));
        if !store.has(&label) {
            notes.push(Note::new(item.path.clone(), "it has no file of boxes and counts as empty"));
        }
        let content = if store.has(&label) { store.text(Path::new(&label)) } else { Ok(String::new()) };
        found.push(
            content.map(|content| text::lines(&content).filter_map(|(n, line)| parse(n, line)).collect::<Vec<_>>()),
        );
    }
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
    Ok(Catalogue::new(Pictures::Files { store, colours: None }, items, classes, notes))
}

fn parse(number: usize, line: &str) -> Option<(String, LabelledBox)> {
    let mut words = line.split_whitespace();
    let name = words.next().filter(|name| *name != "DontCare")?.to_owned();
    let values: Vec<f64> = words.map(|word| word.parse().unwrap_or(f64::NAN)).collect();
    let corners = values.get(3..7).and_then(|corners| <[f64; 4]>::try_from(corners).ok());
    let fault = corners.is_none().then(|| format!("line {number}: it has no four corners"));
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
