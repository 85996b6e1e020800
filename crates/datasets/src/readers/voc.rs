//! Pascal VOC: an XML file for each image with the corners of its boxes, as VOC, labelImg, CVAT
//! and Roboflow write it. The file is beside the image, in `Annotations`, or anywhere else under
//! the image's name; `ImageSets` or folders divide the set.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

use quick_xml::{Reader, events::Event};

use super::super::{
    Error,
    catalogue::{Catalogue, LabelledBox, Note},
    division,
    spec::Division,
    text,
    tree::{self, Found, Tree},
};

/// The deepest that elements are nested.
const MAX_DEPTH: usize = 64;

pub fn read(path: &Path, division: &Division) -> Result<Catalogue, Error> {
    let tree = Tree::open(path)?;
    let mut items = tree.items();
    let mut stems: HashMap<&str, Option<&str>> = HashMap::new();
    for path in tree.others("xml") {
        stems.entry(tree::stem(path)).and_modify(|found| *found = None).or_insert(Some(path));
    }
    let mut found: Vec<Vec<(String, LabelledBox)>> = Vec::with_capacity(items.len());
    let (mut without, mut notes) = (Vec::new(), Vec::new());
    for item in &mut items {
        let beside = super::with_ending(&item.path, "xml");
        let moved = ["JPEGImages", "images", "imgs", "image"].into_iter().flat_map(|folder| {
            ["Annotations", "annotations", "labels", "xmls"].into_iter().flat_map(move |to| [(folder, to)])
        });
        let moved: Vec<String> =
            moved.flat_map(|(from, to)| super::replaced(&beside, from, to).collect::<Vec<_>>()).collect();
        let place = std::iter::once(beside.clone())
            .chain(moved)
            .find(|path| tree.has(path))
            .or_else(|| stems.get(tree::stem(&item.path)).copied().flatten().map(str::to_owned));
        without.push(place.is_none());
        let boxes = match place
            .map(|place| tree.text(&place).map_err(|error| error.reason().clone()).and_then(|text| parse(&text)))
        {
            None => Vec::new(),
            Some(Ok(annotation)) => {
                item.claimed_size = annotation.size;
                annotation.boxes
            }
            Some(Err(reason)) => {
                item.fault = Some(format!("its boxes cannot be read: {reason}"));
                Vec::new()
            }
        };
        found.push(boxes);
    }
    if without.iter().all(|without| *without) {
        return Err(tree.wrong("no image has an XML file of the same name, beside it or in Annotations/"));
    }
    let layout = division::divide(&tree, division, &mut items, &mut notes)?;
    for (item, without) in items.iter_mut().zip(without) {
        if without && item.fault.is_none() && item.outside.is_none() {
            item.outside = Some("no XML file of annotations".to_owned());
            item.split = None;
        }
    }
    let names: BTreeSet<&str> =
        found.iter().flatten().map(|(name, _)| name.as_str()).filter(|name| !name.is_empty()).collect();
    let classes: Vec<String> = names.into_iter().map(str::to_owned).collect();
    for (item, boxes) in items.iter_mut().zip(found) {
        item.boxes = boxes
            .into_iter()
            .map(|(name, found)| {
                let class = classes.binary_search(&name).ok().and_then(|at| u32::try_from(at).ok());
                let fault = found.fault.clone().or_else(|| class.is_none().then(|| "the object has no name".into()));
                LabelledBox { class: class.unwrap_or_default(), fault, ..found }
            })
            .collect();
    }
    for ending in ["txt", "pbtxt"] {
        tree.others(ending)
            .filter(|path| tree::stem(path).to_lowercase().contains("label"))
            .for_each(|path| tree.mark(path));
    }
    notes.extend(
        tree.others("xml")
            .filter(|path| !items.iter().any(|item| tree::stem(&item.path) == tree::stem(path)))
            .map(|path| Note::new(path, "annotations of an image that is not there")),
    );
    Ok(tree.finish(Found { items, classes, notes, layout, ..Found::default() }))
}

#[derive(Debug, Default, PartialEq)]
struct Annotation {
    size: Option<(u32, u32)>,
    boxes: Vec<(String, LabelledBox)>,
}

fn parse(content: &str) -> Result<Annotation, String> {
    let said = |reason: String| format!("not a VOC annotation: {}", text::short(&reason));
    let mut reader = Reader::from_str(content);
    let mut path: Vec<String> = Vec::new();
    let mut found = Annotation::default();
    let (mut width, mut height) = (None, None);
    let mut object: Option<Object> = None;
    let mut value = String::new();
    loop {
        match reader.read_event().map_err(|error| said(error.to_string()))? {
            Event::Eof => break,
            Event::Start(start) => {
                path.push(start.name().as_ref().to_lowercase());
                value.clear();
                if path.len() > MAX_DEPTH {
                    return Err(said("elements are nested too deeply".to_owned()));
                }
                if path == ["annotation", "object"] {
                    object = Some(Object::default());
                }
            }
            Event::Text(text) => value.push_str(&text),
            Event::CData(text) => value.push_str(&text),
            Event::GeneralRef(name) => value.push_str(&entity(&name)),
            Event::End(_) => {
                let at: Vec<&str> = path.iter().map(String::as_str).collect();
                let text = value.trim();
                match (at.as_slice(), object.as_mut()) {
                    (["annotation", "size", "width"], _) => width = text.parse::<f64>().ok(),
                    (["annotation", "size", "height"], _) => height = text.parse::<f64>().ok(),
                    (["annotation", "object", "name"], Some(object)) => text.clone_into(&mut object.name),
                    (["annotation", "object", "bndbox", side], Some(object)) => object.side(side, text),
                    (["annotation", "object", "polygon", corner], Some(object)) => object.corner(corner, text),
                    (["annotation", "object"], _) => found.boxes.extend(object.take().map(Object::boxed)),
                    _ => {}
                }
                value.clear();
                path.pop();
            }
            _ => {}
        }
    }
    if !path.is_empty() {
        return Err(said("it ends too early".to_owned()));
    }
    if !content.to_lowercase().contains("<annotation") {
        return Err(said("it has no element annotation".to_owned()));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "looked at here")]
    let side = |length: Option<f64>| {
        length.filter(|length| length.fract() == 0.0 && (1.0..4e9).contains(length)).map(|length| length as u32)
    };
    // Many programs write 0 for a size that they do not know.
    found.size = side(width).zip(side(height));
    Ok(found)
}

/// Returns the character of a reference such as `&amp;` or `&#38;`.
pub fn entity(name: &str) -> String {
    let number = name.strip_prefix('#').and_then(|number| match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => number.parse().ok(),
    });
    match (name, number.and_then(char::from_u32)) {
        (_, Some(letter)) => letter.to_string(),
        ("amp", _) => "&".to_owned(),
        ("lt", _) => "<".to_owned(),
        ("gt", _) => ">".to_owned(),
        ("quot", _) => "\"".to_owned(),
        ("apos", _) => "'".to_owned(),
        _ => String::new(),
    }
}

/// An object while it is read.
struct Object {
    name: String,
    /// Left, top, right and bottom.
    sides: [f64; 4],
    corners: [f64; 4],
}

impl Default for Object {
    fn default() -> Self {
        Self { name: String::new(), sides: [f64::NAN; 4], corners: [f64::NAN; 4] }
    }
}

impl Object {
    fn side(&mut self, side: &str, text: &str) {
        let at = match side {
            "xmin" => 0,
            "ymin" => 1,
            "xmax" => 2,
            "ymax" => 3,
            _ => return,
        };
        self.sides[at] = text.parse().unwrap_or(f64::NAN);
    }

    /// A corner of an outline: `x1`, `y1`, and so on.
    fn corner(&mut self, corner: &str, text: &str) {
        let Some(value) = text.parse::<f64>().ok().filter(|value| value.is_finite()) else { return };
        // `f64::min` ignores NaN.
        let (low, high) = if corner.starts_with('x') { (0, 2) } else { (1, 3) };
        self.corners[low] = self.corners[low].min(value);
        self.corners[high] = self.corners[high].max(value);
    }

    fn boxed(self) -> (String, LabelledBox) {
        let [left, top, right, bottom] =
            if self.sides.iter().all(|side| side.is_nan()) { self.corners } else { self.sides };
        let boxed = LabelledBox {
            class: 0,
            x: left,
            y: top,
            width: right - left,
            height: bottom - top,
            relative: false,
            fault: None,
        };
        (self.name.replace(['\n', '\r'], " "), boxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn objects_with_their_corners() {
        let found = parse(
            "\u{feff}<?xml version=\"1.0\"?><annotation><filename>a.jpg</filename><size><width>100</width><height>50.0</height>\
             <depth>3</depth></size><object><name>salt &amp; pepper</name><pose>Left</pose><part><name>head</name>\
             <bndbox><xmin>1</xmin></bndbox></part><bndbox><xmin>40</xmin><ymin> 15.5 </ymin><xmax>60</xmax>\
             <ymax>35</ymax></bndbox></object><object><name><![CDATA[man]]></name><bndbox><ymax>4</ymax></bndbox></object>\
             <object><name>leaf</name><polygon><x1>1</x1><y1>2</y1><x2>9</x2><y2>3</y2><x3>5</x3><y3>8</y3></polygon></object></annotation>",
        )
        .unwrap();
        assert_eq!(found.size, Some((100, 50)));
        let (name, first) = &found.boxes[0];
        assert_eq!(
            (name.as_str(), first.x, first.y, first.width, first.height),
            ("salt & pepper", 40.0, 15.5, 20.0, 19.5)
        );
        assert_eq!(found.boxes[1].0, "man");
        assert!(found.boxes[1].1.x.is_nan());
        let leaf = &found.boxes[2].1;
        assert_eq!((leaf.x, leaf.y, leaf.width, leaf.height), (1.0, 2.0, 8.0, 6.0));
        assert_eq!(
            parse("<annotation><size><width>0</width><height>0</height></size></annotation>").unwrap().size,
            None
        );
        for wrong in ["", "<html></html>", "<annotation><object>", "<annotation></size></annotation>"] {
            assert!(parse(wrong).unwrap_err().starts_with("not a VOC annotation"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z<>/&;#!?\\[\\]\"= 0-9]{0,120}") {
            let _ = parse(&text);
            let _ = parse(&format!("<annotation><object>{text}</object></annotation>"));
        }
    }
}
