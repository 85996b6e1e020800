//! The table of pictures that the trainer is tested with too (`trainer/tests/test_pixels.py`):
//! what a dataset is built of is what a model sees later.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::json;

use super::Place;

#[derive(Deserialize)]
struct Case {
    file: String,
    resize: String,
    width: usize,
    height: usize,
    channels: usize,
    /// Column, line and value.
    pixels: Vec<(usize, usize, Vec<u8>)>,
    why: String,
}

#[test]
fn pictures_are_what_the_trainer_sees() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../trainer/tests/pictures");
    let cases: Vec<Case> = serde_json::from_slice(&fs::read(folder.join("table.json")).unwrap()).unwrap();
    assert!(cases.len() > 10);
    for case in cases {
        let place = Place::new();
        // Twice in each of two classes: a dataset needs as many.
        for copy in ["a/0", "a/1", "b/0", "b/1"] {
            place.write(&format!("{copy}-{}", case.file), fs::read(folder.join(&case.file)).unwrap());
        }
        let change = json!({"resize": case.resize, "width": case.width, "height": case.height, "channels": case.channels, "duplicates": "keep"});
        let built = place.build("classification", json!({"kind": "folder"}), change).unwrap();
        for (x, y, expected) in &case.pixels {
            let at = (y * case.width + x) * case.channels;
            let found = &built.images[at..at + case.channels];
            let near = found.iter().zip(expected).all(|(a, b)| a.abs_diff(*b) <= 1);
            assert!(near, "{} {}: {found:?} at {x}, {y}, not {expected:?} ({})", case.file, case.resize, case.why);
        }
    }
}
