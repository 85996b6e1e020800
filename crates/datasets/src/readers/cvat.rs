//! “CVAT for images”: one XML file with the boxes, outlines and masks of all images, streamed.
//! What CVAT writes in the formats of others is read by their readers.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufReader, Read},
    path::Path,
};

use quick_xml::{
    Reader, XmlVersion,
    events::{BytesStart, Event},
};

use super::{
    super::{
        Error,
        catalogue::{Catalogue, Item, LabelledBox, Note, Split},
        division,
        regions::{self, Region},
        spec::{Division, Kind},
        text,
        tree::{self, Found, Tree},
    },
    voc::entity,
};

pub fn read(
    path: &Path,
    annotations: &Path,
    division: &Division,
    kind: Kind,
    work: Option<&Path>,
) -> Result<Catalogue, Error> {
    let tree = Tree::open(path)?;
    let documents = super::documents(&tree, annotations, "xml")?;
    let (mut parsed, mut notes) = (Parsed::default(), Vec::new());
    let mut read = 0;
    for document in &documents {
        match tree.stream(document, |reader| parsed.read(reader))? {
            Ok(()) => read += 1,
            Err(reason) if documents.len() > 1 => {
                notes.push(Note::new(document.to_string_lossy(), format!("not used: {reason}")));
            }
            Err(reason) => return Err(Error::Source { path: document.clone(), reason }),
        }
    }
    if read == 0 {
        return Err(tree.wrong("there is no CVAT document (annotations.xml) in this source"));
    }
    let segments = kind == Kind::Segmentation;
    let Parsed { images, labels, faults } = parsed;
    let mut drawing = segments.then(|| super::Drawing::begin(work)).transpose()?;
    let mut items: Vec<Item> = Vec::new();
    let mut states_splits = false;
    for image in images {
        let subset = image.subset.as_deref().unwrap_or_default();
        let below = format!("images/{subset}");
        let bases = [subset, below.as_str(), "", "images", "data"];
        let mut item =
            tree.picture(&image.name, &bases).map_or_else(|_| tree.item(&image.name), |path| tree.item(path));
        item.claimed_size = image.size;
        if division.is_auto() {
            item.split = division::of_name(subset);
            states_splits |= item.split.is_some_and(|split| split != Split::Train);
        }
        for shape in image.shapes {
            let class = labels.get(&shape.label).copied().unwrap_or_default();
            if let Some(drawing) = &mut drawing {
                match &shape.region {
                    Ok(region) => drawing.put(&mut item, class, region)?,
                    Err(reason) => {
                        notes.push(Note::new(item.path.clone(), format!("a shape is not used: {reason}")));
                    }
                }
            } else {
                let [x, y, width, height] = shape.place.unwrap_or([f64::NAN; 4]);
                item.boxes.push(LabelledBox {
                    class,
                    x,
                    y,
                    width,
                    height,
                    relative: false,
                    fault: shape.fault.map(Into::into),
                });
            }
        }
        items.push(item);
    }
    notes.extend(faults.into_iter().map(|(text, count)| Note::new("", format!("{text} ({count} times)"))));
    let layout = if states_splits {
        "splits by the subsets of CVAT".to_owned()
    } else {
        for item in &mut items {
            item.split = None;
        }
        division::divide(&tree, division, &mut items, &mut notes)?
    };
    let mut names: Vec<(u32, String)> = labels.into_iter().map(|(name, class)| (class, name)).collect();
    names.sort_unstable();
    let names = names.into_iter().map(|(_, name)| name).collect();
    let classes = if segments { super::with_background(names).map_err(|reason| tree.wrong(reason))? } else { names };
    let regions = drawing.map(super::Drawing::finish).transpose()?.flatten();
    Ok(tree.finish(Found { items, classes, notes, layout, regions, ..Found::default() }))
}

#[derive(Debug, Default)]
struct Parsed {
    images: Vec<Image>,
    labels: HashMap<String, u32>,
    faults: BTreeMap<String, usize>,
}

#[derive(Debug, Default)]
struct Image {
    name: String,
    subset: Option<String>,
    size: Option<(u32, u32)>,
    shapes: Vec<Shape>,
}

#[derive(Debug)]
struct Shape {
    label: String,
    /// Left, top, width and height.
    place: Option<[f64; 4]>,
    region: Result<Region, String>,
    fault: Option<String>,
}

impl Parsed {
    fn class(&mut self, name: &str) {
        let next = u32::try_from(self.labels.len()).unwrap_or(u32::MAX);
        self.labels.entry(name.to_owned()).or_insert(next);
    }

    fn read(&mut self, from: &mut dyn Read) -> Result<(), String> {
        let said = |reason: String| format!("not a CVAT document: {}", text::short(&reason));
        let mut reader = Reader::from_reader(BufReader::new(from));
        let (mut buffer, mut path, mut value) = (Vec::new(), Vec::<String>::new(), String::new());
        let mut is_cvat = false;
        loop {
            let event = reader.read_event_into(&mut buffer).map_err(|error| said(error.to_string()))?;
            match event {
                Event::Eof => break,
                Event::Start(start) | Event::Empty(start) if start.name().as_ref() == "image" => {
                    is_cvat |= path == ["annotations"];
                    self.images.push(image(&start));
                    path.push("image".to_owned());
                }
                Event::Start(start) => {
                    value.clear();
                    self.shape(&start);
                    path.push(start.name().as_ref().to_owned());
                    if path.len() > 64 {
                        return Err(said("elements are nested too deeply".to_owned()));
                    }
                }
                Event::Empty(start) => self.shape(&start),
                Event::Text(text) => value.push_str(&text),
                Event::CData(text) => value.push_str(&text),
                Event::GeneralRef(name) => value.push_str(&entity(&name)),
                Event::End(_) => {
                    let at: Vec<&str> = path.iter().rev().take(3).map(String::as_str).collect();
                    if at == ["name", "label", "labels"] {
                        self.class(&plain(&value));
                    }
                    path.pop();
                    value.clear();
                }
                _ => {}
            }
            buffer.clear();
        }
        if is_cvat { Ok(()) } else { Err(said("it has no element image in annotations".to_owned())) }
    }

    fn shape(&mut self, start: &BytesStart<'_>) {
        let name = start.name();
        let kind = name.as_ref();
        if !matches!(kind, "box" | "polygon" | "mask" | "ellipse" | "polyline" | "points" | "cuboid" | "skeleton")
            || self.images.is_empty()
        {
            return;
        }
        let found = attributes(start);
        let Some(label) = found.get("label").map(|label| plain(label)) else { return };
        if matches!(kind, "polyline" | "points" | "cuboid" | "skeleton") {
            *self.faults.entry(format!("a {kind} has no area and is not used")).or_default() += 1;
            return;
        }
        self.class(&label);
        let region = region(kind, &found);
        let place = region.as_ref().ok().and_then(regions::around);
        let fault = region.as_ref().err().cloned();
        if let Some(image) = self.images.last_mut() {
            image.shapes.push(Shape { label, place, region, fault });
        }
    }
}

fn plain(name: &str) -> String {
    name.trim().replace(['\n', '\r'], " ")
}

fn image(start: &BytesStart<'_>) -> Image {
    let found = attributes(start);
    let side = |name: &str| found.get(name).and_then(|side| side.trim().parse::<u32>().ok()).filter(|side| *side > 0);
    Image {
        name: found.get("name").cloned().unwrap_or_default(),
        subset: found.get("subset").map(|subset| tree::normal(subset)),
        size: side("width").zip(side("height")),
        shapes: Vec::new(),
    }
}

fn attributes(start: &BytesStart<'_>) -> HashMap<String, String> {
    let all = start.attributes().flatten();
    all.filter_map(|one| {
        let value = one.normalized_value(XmlVersion::Implicit1_0).ok()?.into_owned();
        Some((one.key.as_ref().to_owned(), value))
    })
    .collect()
}

/// What a shape covers.
fn region(kind: &str, found: &HashMap<String, String>) -> Result<Region, String> {
    let number = |name: &str| {
        found.get(name).and_then(|value| value.trim().parse::<f64>().ok()).filter(|value| value.is_finite())
    };
    let all = |names: [&str; 4]| -> Result<[f64; 4], String> {
        let [a, b, c, d] = names.map(|name| number(name).ok_or_else(|| format!("its {name} is not a number")));
        Ok([a?, b?, c?, d?])
    };
    let outline = match kind {
        "box" => {
            let [left, top, right, bottom] = all(["xtl", "ytl", "xbr", "ybr"])?;
            turned([left, top, right, bottom], number("rotation").unwrap_or_default())
        }
        "ellipse" => {
            let [x, y, across, down] = all(["cx", "cy", "rx", "ry"])?;
            let at = |n: u32| {
                let (sine, cosine) = (f64::from(n) * std::f64::consts::TAU / 64.0).sin_cos();
                [x + across * cosine, y + down * sine]
            };
            (0..64).flat_map(at).collect()
        }
        "polygon" => {
            let points = found.get("points").map_or("", String::as_str);
            points.split([';', ',']).map(|value| value.trim().parse().unwrap_or(f64::NAN)).collect()
        }
        _ => {
            let [left, top, width, height] = all(["left", "top", "width", "height"])?;
            let whole = |value: f64| -> Result<u32, String> {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "looked at here")]
                (0.0..1e6)
                    .contains(&value)
                    .then_some(value as u32)
                    .ok_or_else(|| "its place is not in an image".to_owned())
            };
            let runs = found.get("rle").map_or("", String::as_str);
            let runs: Option<Vec<u32>> = runs.split(',').map(|run| run.trim().parse().ok()).collect();
            return Ok(Region::Lines {
                left: whole(left)?,
                top: whole(top)?,
                width: whole(width)?,
                height: whole(height)?,
                runs: runs.ok_or("its mask is not valid run-length encoding")?,
            });
        }
    };
    regions::checked(vec![outline.into_iter().map(regions::single).collect()]).map(Region::Outline)
}

/// The corners of a rectangle that is turned around its middle, by degrees clockwise.
pub fn turned([left, top, right, bottom]: [f64; 4], degrees: f64) -> Vec<f64> {
    let (x, y) = (f64::midpoint(left, right), f64::midpoint(top, bottom));
    let corners = [[left, top], [right, top], [right, bottom], [left, bottom]];
    if degrees == 0.0 {
        return corners.concat();
    }
    let (sine, cosine) = degrees.to_radians().sin_cos();
    let turn = |[at_x, at_y]: [f64; 2]| {
        let (across, down) = (at_x - x, at_y - y);
        [x + across * cosine - down * sine, y + across * sine + down * cosine]
    };
    corners.map(turn).concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shapes_of_every_kind() {
        let text = r#"<?xml version="1.0"?><annotations><version>1.1</version><meta><task><labels>
            <label><name>cup</name><attributes/></label><label><name>salt &amp; pepper</name></label></labels></task></meta>
            <image id="0" name="a.png" subset="Validation" width="100" height="50">
              <box label="salt &amp; pepper" xtl="40" ytl="15" xbr="60.5" ybr="35" occluded="0"><attribute name="x">1</attribute></box>
              <box label="cup" xtl="10" ytl="0" xbr="30" ybr="10" rotation="90"></box>
              <polygon label="cup" points="1,2;9,3;5,8"/><points label="cup" points="1,1"/>
              <mask label="new" rle="1,2,1" left="3" top="4" width="2" height="2"/>
              <box label="cup" xtl="x" ytl="1" xbr="2" ybr="2"/></image>
            <image id="1" name="b.png"/></annotations>"#;
        let mut parsed = Parsed::default();
        parsed.read(&mut text.as_bytes()).unwrap();
        assert_eq!(
            parsed.labels,
            HashMap::from([("cup".to_owned(), 0), ("salt & pepper".to_owned(), 1), ("new".to_owned(), 2)])
        );
        let [a, b] = &parsed.images[..] else { panic!("two images") };
        assert_eq!(
            (a.size, a.subset.as_deref(), b.name.as_str(), b.shapes.len()),
            (Some((100, 50)), Some("Validation"), "b.png", 0)
        );
        let places: Vec<_> = a.shapes.iter().map(|shape| shape.place).collect();
        assert_eq!(places[0], Some([40.0, 15.0, 20.5, 20.0]));
        assert_eq!(places[1], Some([15.0, -5.0, 10.0, 20.0]), "turned around its middle");
        assert_eq!((places[2], places[3], places[4]), (Some([1.0, 2.0, 8.0, 6.0]), Some([3.0, 4.0, 2.0, 2.0]), None));
        assert_eq!(a.shapes[4].fault.as_deref(), Some("its xtl is not a number"));
        assert_eq!(parsed.faults.keys().collect::<Vec<_>>(), ["a points has no area and is not used"]);
        assert!(Parsed::default().read(&mut &b"<annotation><image/></annotation>"[..]).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z<>/&;#!?\\[\\]\"= 0-9,.-]{0,120}", rle in "[0-9,]{0,20}") {
            let _ = Parsed::default().read(&mut text.as_bytes());
            let whole = format!("<annotations><image name=\"{rle}\"><mask label=\"a\" rle=\"{rle}\" left=\"1\" top=\"0\" width=\"3\" height=\"9\"/>{text}");
            let _ = Parsed::default().read(&mut whole.as_bytes());
        }
    }
}
