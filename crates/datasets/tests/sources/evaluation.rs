//! Labels that are brought to a trained model: how they are stored is recognised, every labelled image
//! is in the test split, and an image without labels is not one without objects.

use std::{fs, sync::atomic::AtomicBool};

use lyceum_datasets::{build, evaluation, recognise::recognise_labels, spec::Kind};
use serde_json::json;

use super::{Place, png};

const LINE: &str = "{c} 0.5 0.5 0.2 0.4\n";

/// A training's directory with what its model sees.
fn model(place: &Place, task: &str) -> std::path::PathBuf {
    let about = json!({"task": task, "width": 50, "height": 50, "channels": 1, "resize": "fill", "version": 1});
    let folder = place.path("model");
    fs::create_dir_all(folder.join("checkpoints")).unwrap();
    fs::write(folder.join("preprocessing.json"), about.to_string()).unwrap();
    folder.join("checkpoints/epoch-00001.keras")
}

fn built(place: &Place, task: &str) -> Result<lyceum_datasets::document::Document, String> {
    let spec = evaluation::spec(&place.src(), &model(place, task), place.path("set")).map_err(|e| e.to_string())?;
    build(&spec.expect("labels"), 2, &AtomicBool::new(false), &mut |_| ()).map_err(|error| error.to_string())
}

#[test]
fn all_labelled_images_are_in_the_test_split() {
    let place = Place::new();
    place.labelled("train/images/{}.png", "train/labels/{}.txt", 0..3, LINE);
    place.labelled("val/images/{}.png", "val/labels/{}.txt", 3..5, LINE);
    // Of the same content, with an empty file, and with none.
    place.write("val/images/same.png", fs::read(place.src().join("val/images/3.png")).unwrap());
    place.write("val/labels/same.txt", LINE.replace("{c}", "0"));
    place.write("val/images/empty.png", png(100, 50, 90)).write("val/labels/empty.txt", "");
    place.write("val/images/unlabelled.png", png(100, 50, 91));
    let document = built(&place, "detection").unwrap();
    assert_eq!((document.counts.train, document.counts.val, document.counts.test), (0, 0, 7));
    assert_eq!((document.counts.left_out, document.counts.duplicate, document.counts.notes), (1, 0, 0));
    assert_eq!((document.image.width, document.image.channels, &*document.source.kind), (50, 1, "yolo"));
    let manifest = fs::read_to_string(place.path("set/manifest.csv")).unwrap();
    let row = manifest.lines().find(|row| row.starts_with("val/images/unlabelled.png")).unwrap();
    assert!(row.ends_with(",no file of boxes"), "{row}");
}

#[test]
fn labels_are_recognised_for_the_kind_of_the_model() {
    let named = |place: &Place, kind| recognise_labels(&place.src(), kind).map(|found| found.map(|one| one.name()));
    let place = Place::new();
    place.images("images/{}.png", 0..2);
    assert_eq!(named(&place, Kind::Detection).unwrap(), None);
    // Boxes beside masks, as Pascal VOC has them.
    let voc = "<annotation><object><name>cup</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax>\
               </bndbox></object></annotation>";
    place.write("images/0.xml", voc);
    assert_eq!(named(&place, Kind::Detection).unwrap(), Some("voc"));
    let said = named(&place, Kind::Segmentation).unwrap_err().to_string();
    assert!(said.contains("its labels (voc) are boxes, and this model predicts masks"), "{said}");
    place.images("masks/{}.png", 0..1);
    assert_eq!(named(&place, Kind::Segmentation).unwrap(), Some("masks"));
    let document = json!({"images": [], "annotations": [], "categories": []}).to_string();
    place.write("instances.json", &*document);
    let found = recognise_labels(&place.src().join("instances.json"), Kind::Detection).unwrap().unwrap();
    assert_eq!(found.name(), "coco");
    place.write("other.json", "{}");
    assert!(recognise_labels(&place.src().join("other.json"), Kind::Detection).unwrap().is_none());
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let place = Place::new();
    place.labelled("{}.png", "{}.txt", 0..2, "");
    assert_eq!(
        built(&place, "detection").unwrap_err(),
        "cannot build the dataset: none of the 2 labelled images has a box"
    );
    // Boxes alone are no masks.
    place.labelled("{}.png", "{}.txt", 0..2, LINE);
    let said = built(&place, "segmentation").unwrap_err();
    assert!(said.contains("its mask is not complete: a line has a box, but no outline"), "{said}");
    let said = built(&place, "regression").unwrap_err();
    assert!(said.contains("is a model for regression; only detection and segmentation"), "{said}");
    fs::remove_file(place.path("model/preprocessing.json")).unwrap();
    let said = evaluation::spec(&place.src(), &place.path("model"), place.path("set")).unwrap_err().to_string();
    assert!(said.contains("preprocessing.json is missing beside it"), "{said}");
}
