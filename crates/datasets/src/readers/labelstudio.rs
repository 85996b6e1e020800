//! Exports of Label Studio: JSON, JSON-MIN and CSV, with choices as classes, rectangles as boxes
//! and outlines as masks. Its exports as COCO, YOLO or VOC are read by those readers. Images are
//! found by the end of their address, with or without what Label Studio puts before the name.

use std::{
    collections::BTreeSet,
    io::{BufReader, Read},
    path::Path,
};

use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::super::{
    Error,
    catalogue::{Catalogue, Item, LabelledBox, Note},
    division,
    json::Sane,
    loose::Nested,
    regions::{self, Region},
    spec::{Division, Kind},
    store, text,
    tree::{Found, Tree},
};

pub fn read(
    path: &Path,
    annotations: &Path,
    division: &Division,
    kind: Kind,
    work: Option<&Path>,
) -> Result<Catalogue, Error> {
    let tree = Tree::open(path)?;
    let mut documents = super::documents(&tree, annotations, "json")?;
    if documents.is_empty() {
        documents = super::documents(&tree, annotations, "csv")?;
    }
    let (mut tasks, mut notes) = (Vec::new(), Vec::new());
    let (mut read, count) = (0, documents.len());
    for document in documents {
        let is_csv = document.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        let found = tree.stream(&document, |reader| if is_csv { of_csv(reader) } else { of_json(reader) })?;
        match found {
            Ok(found) => {
                read += 1;
                tasks.extend(found);
            }
            Err(reason) if count > 1 => {
                notes.push(Note::new(document.to_string_lossy(), format!("not used: {reason}")));
            }
            Err(reason) => return Err(Error::Source { path: document, reason }),
        }
    }
    if read == 0 {
        return Err(tree.wrong("there is no export of Label Studio (.json or .csv) in this source"));
    }
    let names: BTreeSet<&str> = tasks.iter().flat_map(|task| task.names(kind)).collect();
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let class = |name: &str| names.iter().position(|known| known == name).and_then(|at| u32::try_from(at).ok());
    let segments = kind == Kind::Segmentation;
    let mut drawing = segments.then(|| super::Drawing::begin(work)).transpose()?;
    let mut items: Vec<Item> = Vec::with_capacity(tasks.len());
    for task in &tasks {
        let mut item = find(&tree, &task.image);
        if kind == Kind::Classification {
            match task.choices.as_slice() {
                [] => item.outside = Some("it has no choice".to_owned()),
                [first, rest @ ..] if rest.iter().all(|other| other == first) => item.label = class(first),
                several => item.fault = Some(format!("it has several choices: {}", several.join(", "))),
            }
        }
        for shape in &task.shapes {
            let number = class(&shape.label).unwrap_or_default();
            match (&mut drawing, &shape.outline) {
                (Some(drawing), Ok(outline)) => {
                    drawing.put(&mut item, number, &Region::Relative(vec![outline.clone()]))?;
                }
                (Some(_), Err(reason)) => {
                    notes.push(Note::new(item.path.clone(), format!("a shape is not used: {reason}")));
                }
                (None, outline) if kind == Kind::Detection => {
                    let around =
                        outline.as_ref().ok().and_then(|o| regions::around(&Region::Relative(vec![o.clone()])));
                    let [x, y, width, height] = around.unwrap_or([f64::NAN; 4]);
                    let fault = outline.as_ref().err().map(|reason| reason.as_str().into());
                    item.boxes.push(LabelledBox { class: number, x, y, width, height, relative: true, fault });
                }
                _ => {}
            }
        }
        items.push(item);
    }
    let layout = division::divide(&tree, division, &mut items, &mut notes)?;
    let classes = if segments { super::with_background(names).map_err(|reason| tree.wrong(reason))? } else { names };
    let regions = drawing.map(super::Drawing::finish).transpose()?.flatten();
    Ok(tree.finish(Found { items, classes, notes, layout, regions, ..Found::default() }))
}

/// The image of an address: `/data/upload/1/1a2b3c4d-cat.png`, `/data/local-files/?d=pets/cat.png`, `s3://…`.
fn find(tree: &Tree, address: &str) -> Item {
    let plain = percent_decode_str(address).decode_utf8_lossy().into_owned();
    let path = plain.rsplit_once("?d=").map_or(plain.as_str(), |(_, path)| path);
    let path = path.split_once("://").map_or(path, |(_, path)| path);
    let path = if store::is_picture(path) { path } else { path.split('?').next().unwrap_or(path) };
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let bare =
        name.split_once('-').filter(|(prefix, _)| prefix.len() == 8 && prefix.chars().all(|c| c.is_ascii_hexdigit()));
    let bases = ["", "images", "data"];
    let found = tree.picture(path, &bases).or_else(|_| tree.picture(name, &bases));
    let found = found.or_else(|reason| bare.map_or(Err(reason), |(_, bare)| tree.picture(bare, &bases)));
    found.map_or_else(|_| tree.item(path), |path| tree.item(path))
}

/// An image with what was said of it.
#[derive(Debug, Default, PartialEq)]
struct Task {
    image: String,
    choices: Vec<String>,
    shapes: Vec<Shape>,
}

#[derive(Debug, PartialEq)]
struct Shape {
    label: String,
    /// Corners as parts of width and height.
    outline: Result<Vec<f32>, String>,
}

impl Task {
    fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let choices = self.choices.iter().filter(move |_| kind == Kind::Classification).map(String::as_str);
        let shapes = self.shapes.iter().filter(move |_| kind != Kind::Classification).map(|shape| shape.label.as_str());
        choices.chain(shapes)
    }

    /// Adds a rectangle, an outline or choices; other regions are reported as faults.
    fn take(&mut self, value: &Nested) {
        let texts = |name: &str| -> Vec<String> {
            let items = value.field(name).map(Nested::items).unwrap_or_default();
            items.iter().filter_map(Nested::text).collect()
        };
        self.choices.extend(texts("choices"));
        for name in ["rectanglelabels", "polygonlabels", "ellipselabels", "brushlabels", "labels"] {
            for label in texts(name) {
                self.shapes.push(Shape { label, outline: outline(value) });
            }
        }
    }
}

fn outline(value: &Nested) -> Result<Vec<f32>, String> {
    let number = |name: &str| value.field(name).map_or(f64::NAN, Nested::number) / 100.0;
    let found: Vec<f64> = if let Some(points) = value.field("points") {
        points.items().iter().flat_map(|point| point.items().iter().take(2).map(|at| at.number() / 100.0)).collect()
    } else if value.field("width").is_some() {
        let [x, y, width, height] = ["x", "y", "width", "height"].map(number);
        rotated(value, [x, y, width, height])
    } else {
        return Err("only rectangles and outlines are read".to_owned());
    };
    let outlines = regions::checked(vec![found.into_iter().map(regions::single).collect()])?;
    Ok(outlines.into_iter().flatten().collect())
}

/// The corners of a rectangle that is turned around its upper left corner. Degrees are of pixels, which need not be
/// as wide as they are high in parts of the image.
fn rotated(value: &Nested, [x, y, width, height]: [f64; 4]) -> Vec<f64> {
    let side = |name: &str| value.field(name).map(Nested::number).filter(|side| *side > 0.0).unwrap_or(1.0);
    let (wide, high) = (side("original_width"), side("original_height"));
    let degrees = value.field("rotation").map(Nested::number).filter(|degrees| degrees.is_finite()).unwrap_or_default();
    let (turn, keep) = degrees.to_radians().sin_cos();
    let corner = |across: f64, down: f64| {
        let (across, down) = (across * wide, down * high);
        [x + (across * keep - down * turn) / wide, y + (across * turn + down * keep) / high]
    };
    [corner(0.0, 0.0), corner(width, 0.0), corner(width, height), corner(0.0, height)].concat()
}

/// JSON with results, or JSON-MIN with fields.
fn of_json(reader: &mut dyn Read) -> Result<Vec<Task>, String> {
    let said = |reason: &str| format!("not an export of Label Studio: {reason}");
    let mut start = Vec::new();
    reader.take(3).read_to_end(&mut start).map_err(|error| said(&error.to_string()))?;
    let start = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&start);
    let from = BufReader::new(Sane::new(start.chain(reader)));
    let tasks: Vec<Nested> = serde_json::from_reader(from).map_err(|error| said(&text::short(&error.to_string())))?;
    let found: Vec<Task> = tasks.iter().filter_map(task).collect();
    if found.is_empty() { Err(said("no task has an image")) } else { Ok(found) }
}

fn task(found: &Nested) -> Option<Task> {
    let Nested::Object(fields) = found else { return None };
    let data = found.field("data").unwrap_or(found);
    let Nested::Object(entries) = data else { return None };
    let texts = || entries.iter().filter_map(|(name, value)| Some((name, value.text()?)));
    let named = texts().find(|(name, _)| matches!(name.as_str(), "image" | "img" | "image_url" | "url"));
    let (_, image) = named.or_else(|| texts().find(|(_, text)| store::is_picture(text)))?;
    let mut task = Task { image, ..Task::default() };
    match found.field("annotations").or_else(|| found.field("completions")) {
        Some(annotations) => {
            // The newest is the one that counts; several people may have said the same.
            let said = annotations
                .items()
                .iter()
                .rfind(|one| one.field("was_cancelled").is_none_or(|c| c.text().as_deref() != Some("true")));
            for result in said.and_then(|one| one.field("result")).map(Nested::items).unwrap_or_default() {
                if let Some(Nested::Object(value)) = result.field("value") {
                    let sizes = ["original_width", "original_height"];
                    let sizes =
                        sizes.into_iter().filter_map(|name| Some((name.to_owned(), result.field(name)?.clone())));
                    task.take(&Nested::Object(value.iter().cloned().chain(sizes).collect()));
                }
            }
        }
        None => fields.iter().for_each(|(name, value)| simple(&mut task, name, value)),
    }
    Some(task)
}

/// A field of JSON-MIN: a list of regions, or one choice or several.
fn simple(task: &mut Task, name: &str, value: &Nested) {
    if value.items().iter().any(|item| matches!(item, Nested::Object(_))) {
        value.items().iter().for_each(|item| task.take(item));
        return;
    }
    task.take(value);
    let is_choice = matches!(name, "choice" | "choices" | "label" | "class" | "sentiment");
    if is_choice {
        task.choices.extend(value.text());
    }
}

/// CSV: a column with the image, others with choices or with regions as JSON.
fn of_csv(reader: &mut dyn Read) -> Result<Vec<Task>, String> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(reader);
    let said = |reason: &str| format!("not an export of Label Studio: {}", text::short(reason));
    let headings = reader.headers().map_err(|error| said(&error.to_string()))?.clone();
    let mut tasks = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| said(&error.to_string()))?;
        let fields = headings.iter().zip(record.iter()).map(|(name, field)| {
            let value = serde_json::from_str::<Nested>(field)
                .ok()
                .filter(|value| matches!(value, Nested::List(_) | Nested::Object(_)));
            (name.trim_start_matches('\u{feff}').to_owned(), value.unwrap_or_else(|| Nested::of_text(field)))
        });
        tasks.extend(task(&Nested::Object(fields.collect())));
    }
    if tasks.is_empty() { Err(said("no line has an image")) } else { Ok(tasks) }
}

impl Nested {
    fn of_text(text: &str) -> Self {
        let value = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text);
        Self::deserialize(value).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn only(tasks: Vec<Task>) -> Task {
        <[Task; 1]>::try_from(tasks).unwrap().into_iter().next().unwrap()
    }

    #[test]
    fn the_same_in_three_exports() {
        let json = r#"[{"id": 1, "data": {"image": "/data/upload/1/1a2b3c4d-a.png"}, "annotations": [{"result": [
            {"type": "rectanglelabels", "original_width": 100, "original_height": 50, "value": {"x": 40, "y": 30, "width": 20, "height": 40, "rotation": 0, "rectanglelabels": ["cup"]}},
            {"type": "choices", "value": {"choices": ["good"]}}]}], "predictions": []}]"#;
        let min = r#"[{"image": "/data/upload/1/1a2b3c4d-a.png", "id": 1, "label": [{"x": 40, "y": 30, "width": 20, "height": 40, "rotation": 0, "rectanglelabels": ["cup"], "original_width": 100}], "choice": "good", "annotator": 1, "lead_time": NaN}]"#;
        let csv = "image,id,label,choice\n/data/upload/1/1a2b3c4d-a.png,1,\"[{\"\"x\"\": 40, \"\"y\"\": 30, \"\"width\"\": 20, \"\"height\"\": 40, \"\"rectanglelabels\"\": [\"\"cup\"\"]}]\",good\n";
        let first = only(of_json(&mut json.as_bytes()).unwrap());
        assert_eq!(
            (first.image.as_str(), first.choices.as_slice()),
            ("/data/upload/1/1a2b3c4d-a.png", &["good".to_owned()][..])
        );
        let around = regions::around(&Region::Relative(vec![first.shapes[0].outline.clone().unwrap()])).unwrap();
        assert!(around.iter().zip([0.4, 0.3, 0.2, 0.4]).all(|(a, b)| (a - b).abs() < 1e-6), "{around:?}");
        assert_eq!(only(of_json(&mut min.as_bytes()).unwrap()), first);
        assert_eq!(only(of_csv(&mut csv.as_bytes()).unwrap()), first);
    }

    #[test]
    fn outlines_and_what_is_not_read() {
        let json = r#"[{"data": {"img": "a.png"}, "annotations": [{"result": [
            {"value": {"points": [[0, 0], [50, 0], [50, 100]], "polygonlabels": ["cup"]}},
            {"value": {"format": "rle", "rle": [1, 2], "brushlabels": ["cup"]}}]}]}, {"data": {}}]"#;
        let found = only(of_json(&mut json.as_bytes()).unwrap());
        assert_eq!(found.shapes[0].outline, Ok(vec![0.0, 0.0, 0.5, 0.0, 0.5, 1.0]));
        assert_eq!(found.shapes[1].outline, Err("only rectangles and outlines are read".to_owned()));
        for wrong in ["{}", "[]", "[{\"a\": 1}]", "x"] {
            assert!(of_json(&mut wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]{}:,\"a-z0-9.\\- ]{0,100}") {
            let _ = of_json(&mut text.as_bytes());
            let _ = of_json(&mut format!("[{{\"image\": \"a.png\", \"label\": {text}}}]").as_bytes());
            let _ = of_csv(&mut text.as_bytes());
        }
    }
}
