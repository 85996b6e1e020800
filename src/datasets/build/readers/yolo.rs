//! YOLO's boxes: for each picture a text file of the same name, beside it or in `labels` where
//! the picture is in `images`; each line a class and four numbers that are parts of the picture's
//! size. Outlines of more numbers become the box around them.

use std::{collections::HashMap, path::Path};

use super::super::{
    Error,
    catalogue::{Catalogue, Item, LabelledBox, Note, Pictures},
    store::Store,
    text,
};

pub fn read(path: &Path) -> Result<Catalogue, Error> {
    let store = Store::open(path)?;
    let mut items = super::pictures(&store)?;
    let mut notes = Vec::new();
    for item in &mut items {
        item.split = super::split_of(&item.path);
        let Some(label) = label_paths(&item.path).into_iter().find(|path| store.has(path)) else {
            notes.push(Note::new(item.path.clone(), "it has no file of boxes and counts as empty"));
            continue;
        };
        match store.text(Path::new(&label)) {
            Ok(content) => item.boxes = text::lines(&content).map(|(number, line)| parse(number, line)).collect(),
            Err(error) => item.fault = Some(format!("its boxes cannot be read: {}", error.reason())),
        }
    }
    let named = names(&store)?;
    let most = items.iter().flat_map(|item| &item.boxes).filter(|b| b.fault.is_none()).map(|b| b.class + 1).max();
    let classes = named.unwrap_or_else(|| (0..most.unwrap_or_default()).map(|class| class.to_string()).collect());
    for found in items.iter_mut().flat_map(|item: &mut Item| &mut item.boxes) {
        if found.class as usize >= classes.len() && found.fault.is_none() {
            found.fault = Some(format!("its class is {}, and there are {}", found.class, classes.len()));
        }
    }
    Ok(Catalogue::new(Pictures::Files { store, colours: None }, items, classes, notes))
}

/// Where the boxes of a picture may be, the most usual place first.
fn label_paths(picture: &str) -> Vec<String> {
    let beside = super::with_ending(picture, "txt");
    let mut parts: Vec<&str> = beside.split('/').collect();
    let images = parts.iter().rposition(|part| *part == "images");
    let in_labels = images.map(|at| {
        parts[at] = "labels";
        parts.join("/")
    });
    in_labels.into_iter().chain([beside]).collect()
}

fn parse(number: usize, line: &str) -> LabelledBox {
    let bad = |reason: &str| LabelledBox {
        class: 0,
        x: f64::NAN,
        y: f64::NAN,
        width: f64::NAN,
        height: f64::NAN,
        relative: true,
        fault: Some(format!("line {number}: {reason}")),
    };
    let mut words = line.split_whitespace();
    // Some programs write the class as a number with a fraction.
    let class = words.next().and_then(|word| word.trim_end_matches(".0").parse::<u16>().ok());
    let values: Option<Vec<f64>> = words.map(|word| word.parse().ok().filter(|v: &f64| v.is_finite())).collect();
    let (Some(class), Some(values)) = (class, values) else { return bad("it is no class with four numbers") };
    let (x, y, width, height) = match values.as_slice() {
        [x, y, width, height] | [x, y, width, height, _] => (x - width / 2.0, y - height / 2.0, *width, *height),
        outline if outline.len() >= 6 && outline.len().is_multiple_of(2) => {
            let edge = |at: usize, start: f64, pick: fn(f64, f64) -> f64| {
                outline.iter().skip(at).step_by(2).copied().fold(start, pick)
            };
            let (left, top) = (edge(0, f64::MAX, f64::min), edge(1, f64::MAX, f64::min));
            (left, top, edge(0, f64::MIN, f64::max) - left, edge(1, f64::MIN, f64::max) - top)
        }
        _ => return bad("it is no class with four numbers"),
    };
    LabelledBox { class: class.into(), x, y, width, height, relative: true, fault: None }
}

/// The names of the classes: a line each in `classes.txt`, or `names` in `data.yaml`.
fn names(store: &Store) -> Result<Option<Vec<String>>, Error> {
    for path in ["classes.txt", "obj.names", "labels/classes.txt"] {
        if store.has(path) {
            let content = store.text(Path::new(path))?;
            return Ok(Some(text::lines(&content).map(|(_, line)| line.to_owned()).collect()));
        }
    }
    for path in ["data.yaml", "data.yml", "dataset.yaml"] {
        if store.has(path) {
            let content = store.text(Path::new(path))?;
            let reason = "its `names` are not understood; put a classes.txt with one name a line beside it".to_owned();
            let names = yaml_names(&content).ok_or(Error::Source { path: path.into(), reason })?;
            return Ok(Some(names));
        }
    }
    Ok(None)
}

/// The three ways in which such files write them: `[a, b]`, `- a`, and `0: a`.
fn yaml_names(content: &str) -> Option<Vec<String>> {
    let mut lines = content.lines().skip_while(|line| !line.starts_with("names:"));
    let first = lines.next()?.strip_prefix("names:")?.trim();
    let bare = |word: &str| word.trim().trim_matches(['"', '\'']).to_owned();
    if let Some(list) = first.strip_prefix('[') {
        let rest: String = std::iter::once(list).chain(lines).collect::<Vec<_>>().join(" ");
        let (list, _) = rest.split_once(']')?;
        return Some(list.split(',').map(bare).filter(|name| !name.is_empty()).collect());
    }
    let block =
        lines.take_while(|line| line.starts_with([' ', '-']) || line.is_empty()).filter(|line| !line.is_empty());
    let mut numbered = HashMap::new();
    let mut plain = Vec::new();
    for line in block {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("- ") {
            plain.push(bare(name));
        } else {
            let (number, name) = line.split_once(':')?;
            numbered.insert(number.trim().parse::<usize>().ok()?, bare(name));
        }
    }
    if numbered.is_empty() {
        return (!plain.is_empty()).then_some(plain);
    }
    (0..numbered.len()).map(|at| numbered.remove(&at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_boxes_lie() {
        assert_eq!(label_paths("images/train/a.b.jpg"), ["labels/train/a.b.txt", "images/train/a.b.txt"]);
        assert_eq!(label_paths("a.jpg"), ["a.txt"]);
    }

    #[test]
    fn lines_of_boxes() {
        let found = parse(1, "2 0.5 0.5 0.2 0.4");
        assert_eq!((found.class, found.fault.as_deref()), (2, None));
        assert!((found.x - 0.4).abs() < 1e-9 && (found.y - 0.3).abs() < 1e-9);
        let outline = parse(1, "1 0.1 0.2 0.5 0.2 0.5 0.9");
        assert!((outline.width - 0.4).abs() < 1e-9 && (outline.height - 0.7).abs() < 1e-9);
        for bad in ["cat 1 2 3 4", "1 2 3", "0 nan 0 1 1", "-1 0 0 1 1", "0 0 0 1 1 1 1 1"] {
            assert!(parse(7, bad).fault.unwrap().starts_with("line 7:"), "{bad}");
        }
    }

    #[test]
    fn names_in_three_ways() {
        assert_eq!(yaml_names("nc: 2\nnames: ['cat', \"dog\"]\n").unwrap(), ["cat", "dog"]);
        assert_eq!(yaml_names("names:\n- cat\n- dog\npath: x\n").unwrap(), ["cat", "dog"]);
        assert_eq!(yaml_names("names:\n  1: dog\n  0: cat\n").unwrap(), ["cat", "dog"]);
        assert_eq!(yaml_names("names:\n  1: dog\n  5: cat\n"), None);
        assert_eq!(yaml_names("names: *other\n"), None);
    }
}
