//! Every way in which people keep annotated pictures, read into the same form.

use std::{fs, io::Write};

use image::{DynamicImage, GrayImage, ImageFormat, Luma, Rgb, RgbImage};
use serde_json::json;

use super::{Place, encoded, picture, png, zip};

#[test]
fn folders_become_a_dataset_and_the_seed_decides() {
    let place = Place::new();
    place.classes(&[("cat", 20), ("mouse", 12)]);
    place.write("pictures/cat/notes.txt", "no picture");
    place.write("pictures/cat/.hidden.png", "no picture");
    let dataset = place.build(&place.folder(json!({})));
    assert_eq!(dataset.document["classes"], json!(["cat", "mouse"]));
    assert_eq!(dataset.document["counts"]["train"], 13 + 8);
    assert_eq!(dataset.document["per_class"], json!({"train": [13, 8], "val": [5, 3], "test": [2, 1]}));
    assert_eq!(fs::read_to_string(dataset.folder.join("classes.txt")).unwrap(), "cat\nmouse\n");
    assert_eq!((dataset.rows.len(), dataset.errors().len()), (32, 0));
    assert_eq!(dataset.rows[0].size, ("24".to_owned(), "16".to_owned()));
    assert!(!place.path(".out.building").exists(), "the work is cleared up");

    // The arrays say of each picture what the manifest says.
    let (shape, pixels) = dataset.part("images", "train");
    assert_eq!((shape, pixels.len()), (vec![21, 16, 16, 3], 21 * 16 * 16 * 3));
    let (labels, places) = (dataset.numbers("train.labels.npy"), dataset.places("train.rows.npy"));
    assert!(places.is_sorted());
    for ((picture, label), at) in pixels.chunks(16 * 16 * 3).zip(labels).zip(places) {
        let row = &dataset.rows[at];
        assert_eq!(
            (row.split.as_str(), row.label.as_str()),
            ("train", ["cat", "mouse"][usize::try_from(label).unwrap()])
        );
        let number: u32 = row.path[row.path.len() - 7..row.path.len() - 4].parse().unwrap();
        let tone = u32::try_from(row.label.len()).unwrap() * 1000 + number;
        assert_eq!(picture[0], tone.to_le_bytes()[0], "{} is the picture of its row", row.path);
    }
    let mean: Vec<f64> = serde_json::from_value(dataset.document["mean"].clone()).unwrap();
    let sum: u64 = pixels.iter().step_by(3).map(|&value| u64::from(value)).sum();
    assert!((mean[0] - f64::from(u32::try_from(sum).unwrap()) / (21.0 * 256.0)).abs() < 1e-5);
    assert!(image::open(dataset.folder.join("mean.png")).is_ok());

    let named = |name: &str, seed: u32| place.folder(json!({"output": place.path(name), "seed": seed}));
    assert_eq!(place.build(&named("again", 7)).hash(), dataset.hash());
    assert_ne!(place.build(&named("other", 8)).hash(), dataset.hash());
    let said = place.command(&named("again", 9)).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("already exists"));
    assert_eq!(place.build(&named("again", 7)).hash(), dataset.hash(), "built already");
    let document = place.path("again/dataset.json");
    let text = fs::read_to_string(&document).unwrap();
    fs::write(&document, text.replacen("\"version\": 2", "\"version\": 1", 1)).unwrap();
    let said = place.command(&named("again", 7)).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("already exists"), "built by another version");
}

#[test]
fn an_archive_is_what_its_folder_is() {
    let place = Place::new();
    place.classes(&[("cat", 8), ("mouse", 8)]);
    let folder = place.build(&place.folder(json!({"cache": false})));
    assert_eq!((&folder.document["cache"], &folder.document["mean"]), (&json!(null), &json!(null)));
    let files: Vec<(String, Vec<u8>)> = folder
        .rows
        .iter()
        .map(|row| (format!("all of it/{}", row.path), fs::read(place.path("pictures").join(&row.path)).unwrap()))
        .collect();
    let mut files: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(name, content)| (name.as_str(), content.clone())).collect();
    files.push(("__MACOSX/all of it/cat/._1.png", b"Apple's".to_vec()));
    place.write("pictures.zip", zip(&files));
    let source = json!({"kind": "zip", "path": place.path("pictures.zip")});
    let spec = place.spec("classification", source, json!({"output": place.path("zipped"), "cache": false}));
    let zipped = place.build(&spec);
    assert_eq!(zipped.hash(), folder.hash());
    assert_eq!(zipped.array("images.npy").0[1..], [16, 16, 3], "archives always have a cache");
}

#[test]
fn folders_that_are_splits_stay_splits() {
    let place = Place::new();
    for (n, split) in ["train", "train", "train", "train", "valid", "test"].iter().enumerate() {
        for (k, class) in ["a", "b"].iter().enumerate() {
            let number = u32::try_from(n * 2 + k).unwrap();
            place.write(&format!("pictures/{split}/{class}/{n}.png"), png(9, 9, number));
        }
    }
    let dataset = place.build(&place.folder(json!({})));
    assert_eq!(dataset.document["per_class"], json!({"train": [4, 4], "val": [1, 1], "test": [1, 1]}));
    assert!(dataset.rows.iter().all(|row| row.path.starts_with(&row.split)));
}

#[test]
fn a_list_in_utf16_with_spaces_and_missing_files() {
    let place = Place::new();
    let names = ["a b/ä 1.png", "a b/2.png", "c.png", "d.png", "e.png", "f.png"];
    for (n, name) in names.iter().enumerate() {
        place.write(name, png(9, 9, n.try_into().unwrap()));
    }
    let list =
        "a b/ä 1.png 0\r\na b/2.png 0\r\n\r\nc.png 1\r\nd.png 1\r\ngone.png 1\r\nd.png 0\r\ne.png 1\r\nf.png 9\r\n";
    let wide: Vec<u8> = [0xFEFF].into_iter().chain(list.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    place.write("list.txt", wide);
    place.write("names.txt", "black cat\r\nwhite cat\r\n");
    let source = json!({"kind": "list", "path": place.path("list.txt"), "classes": place.path("names.txt")});
    let dataset = place.build(&place.spec("classification", source, json!({"min_per_class": 1, "test_percent": 0})));
    assert_eq!(dataset.document["classes"], json!(["black cat", "white cat"]));
    let errors = dataset.errors();
    assert_eq!(errors["gone.png"], "file not found");
    assert_eq!(errors["d.png"], "listed twice with different labels");
    assert_eq!(errors["f.png"], "line 9: 9 is not in the list of classes");
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert_eq!(dataset.rows.iter().find(|row| row.path == "a b/ä 1.png").unwrap().label, "black cat");
}

/// An IDX file of bytes.
fn idx(sizes: &[u32], content: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, u8::try_from(sizes.len()).unwrap()];
    file.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    file.extend(content);
    file
}

#[test]
fn idx_files_packed_or_not() {
    let place = Place::new();
    let pixels: Vec<u8> = (0..30 * 20).map(|at: u32| u8::try_from(at * 7 % 251).unwrap()).collect();
    let labels: Vec<u8> = (0..30).map(|n| n % 3).collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&idx(&[30, 4, 5], &pixels)).unwrap();
    place.write("images.gz", packed.finish().unwrap());
    place.write("labels", idx(&[30], &labels));
    let inverse: Vec<u8> = pixels.iter().map(|value| 255 - value).collect();
    place.write("test images", idx(&[30, 4, 5], &inverse));
    let source = |images: &str| {
        json!({"kind": "idx", "images": place.path(images), "labels": place.path("labels"),
               "test_images": place.path("test images"), "test_labels": place.path("labels")})
    };
    let change = json!({"width": 5, "height": 4, "channels": 1, "test_percent": 0});
    let dataset = place.build(&place.spec("classification", source("images.gz"), change.clone()));
    assert_eq!(dataset.document["classes"], json!(["0", "1", "2"]));
    assert_eq!((dataset.split("test").len(), dataset.split("val").len()), (30, 9));
    let (shape, kept) = dataset.part("images", "train");
    assert_eq!(shape, [21, 4, 5, 1]);
    for (picture, at) in kept.chunks(20).zip(dataset.places("train.rows.npy")) {
        let number: usize = dataset.rows[at].path["train-".len()..].parse().unwrap();
        assert_eq!(picture, &pixels[number * 20..][..20]);
    }

    place.write("cut", &idx(&[30, 4, 5], &pixels)[..200]);
    let mut other = place.spec("classification", source("cut"), change);
    other["output"] = json!(place.path("cut out"));
    let said = place.refused(&other);
    assert!(said.contains("/cut: the file ends after 9 of 30 images"), "{said}");
    other["source"]["images"] = json!(place.path("labels"));
    assert!(place.refused(&other).contains("does not contain images"));
}

#[test]
fn boxes_are_the_same_in_three_formats() {
    let place = Place::new();
    let names = ["a", "b", "c", "d"];
    for (n, name) in names.iter().enumerate() {
        place.write(&format!("images/{name}.png"), png(100, 50, n.try_into().unwrap()));
        place.write(&format!("labels/{name}.txt"), "0 0.5 0.5 0.2 0.4\n1 0.95 0.5 0.2 0.2\n0 2 2 0.1 0.1\n");
        let kitti = "car 0 0 0 40 15 60 35 0 0 0 0 0 0 0\nDontCare -1 -1 -10 1 1 2 2\n\
                     man 0 0 0 85 20 105 30 0 0 0 0 0 0 0\ncar 0 0 0 195 97.5 205 102.5 0 0 0 0 0 0 0\n";
        place.write(&format!("kitti/{name}.txt"), kitti);
    }
    place.write("classes.txt", "car\nman\n");
    let images: Vec<_> = (0..)
        .zip(names)
        .map(|(id, name)| json!({"id": id, "file_name": format!("{name}.png"), "width": 100, "height": 50}))
        .collect();
    let each = |id: i32| {
        [(7, [40.0, 15.0, 20.0, 20.0]), (9, [85.0, 20.0, 20.0, 10.0]), (7, [195.0, 97.5, 10.0, 5.0])]
            .map(|(category, bbox)| json!({"id": 1, "image_id": id, "category_id": category, "bbox": bbox, "segmentation": [[1, 2]]}))
    };
    let annotations: Vec<_> = (0..4).flat_map(each).collect();
    let categories = json!([{"id": 9, "name": "man"}, {"id": 7, "name": "car"}]);
    place.write(
        "coco.json",
        json!({"images": images, "annotations": annotations, "categories": categories}).to_string(),
    );

    let root = place.0.path();
    let sources = [
        json!({"kind": "yolo", "path": root}),
        json!({"kind": "kitti", "path": root, "labels": "kitti"}),
        json!({"kind": "coco", "path": root, "annotations": "coco.json", "images": "images"}),
    ];
    let datasets = sources.map(|source| {
        let name = place.path(&format!("out {}", source["kind"].as_str().unwrap()));
        let change = json!({"output": name, "resize": "fill", "width": 50, "height": 50, "test_percent": 0});
        place.build(&place.spec("detection", source, change))
    });
    for dataset in &datasets {
        assert_eq!(dataset.document["classes"], json!(["car", "man"]));
        assert_eq!(dataset.hash(), datasets[0].hash());
        assert_eq!(dataset.document["annotations_sha256"], datasets[0].document["annotations_sha256"]);
        let boxes = dataset.table("boxes.csv");
        assert_eq!(boxes[0], ["images/a.png", "car", "40", "15", "20", "20", ""]);
        assert_eq!(boxes[1], ["images/a.png", "man", "85", "20", "15", "10", ""], "cut to the picture");
        assert_eq!(boxes[2][6], "less than one pixel of the box is inside the image");
        assert_eq!(dataset.document["counts"]["broken_boxes"], 4);
        assert_eq!(dataset.document["per_class"]["train"], json!([3, 3]));
        // 100 by 50 becomes 50 by 25, with 12 lines above.
        let floats = dataset.floats("train.boxes.npy");
        let expected = "[0.0, 0.0, 20.0, 19.5, 10.0, 10.0, 0.0, 1.0, 42.5, 22.0, 7.5, 5.0]";
        assert_eq!(format!("{:?}", &floats[..12]), expected);
        assert_eq!(floats.len(), 3 * 2 * 6);
    }
}

#[test]
fn boxes_for_another_size_are_told() {
    let place = Place::new();
    place.classes(&[("x", 3)]);
    let image =
        |id: u32, width: u32| json!({"id": id, "file_name": format!("x/{id:03}.png"), "width": width, "height": 16});
    let document = json!({"images": [image(0, 24), image(1, 25), image(2, 24), image(5, 24)],
        "annotations": [{"image_id": 0, "category_id": 1, "bbox": [1, 1, 5, 5], "iscrowd": 1}, {"image_id": 0, "category_id": 1, "bbox": [1, 1, 5, 5]},
            {"image_id": 2, "category_id": 1, "bbox": [1, 1, 5, 5]}, {"image_id": 77, "category_id": 1, "bbox": [1, 1, 2, 2]}],
        "categories": [{"id": 1, "name": "thing"}]});
    place.write("pictures/a.json", document.to_string());
    let source = json!({"kind": "coco", "path": place.path("pictures"), "annotations": "a.json"});
    let dataset = place.build(&place.spec("detection", source, json!({})));
    let errors = dataset.errors();
    assert_eq!(errors["x/001.png"], "its boxes are for an image of 25 × 16 pixels, but the image is 24 × 16");
    assert_eq!(errors["x/005.png"], "file not found");
    assert_eq!(dataset.table("boxes.csv")[0][6], "the box is around a crowd");
    assert_eq!(dataset.table("notes.csv"), [["", "a box belongs to image 77, which is not listed"]]);
}

#[test]
fn masks_in_grey_and_in_colours() {
    let place = Place::new();
    for n in 0..4 {
        place.write(&format!("images/{n}.jpg"), encoded(&picture(20, 10, n * 60).into(), ImageFormat::Jpeg));
        let half = |x: u32| if x < 10 { 0_u8 } else { 2 };
        let grey = GrayImage::from_fn(20, 10, |x, _| Luma([half(x)]));
        place.write(&format!("masks/{n}.png"), encoded(&grey.into(), ImageFormat::Png));
        let colour = RgbImage::from_fn(20, 10, |x, y| if y == 9 { Rgb([1, 2, 3]) } else { Rgb([half(x) * 100, 0, 0]) });
        place.write(&format!("colours/{n}_mask.png"), encoded(&colour.into(), ImageFormat::Png));
    }
    place.write("images/alone.jpg", encoded(&picture(20, 10, 250).into(), ImageFormat::Jpeg));
    place.write("images/small.jpg", encoded(&picture(20, 10, 251).into(), ImageFormat::Jpeg));
    place.write("masks/small.png", encoded(&GrayImage::new(5, 5).into(), ImageFormat::Png));
    place.write("colours.txt", "ground 0 0 0\nthing 200 0 0\n");
    let change = json!({"resize": "fill", "width": 20, "height": 20, "channels": 1, "test_percent": 0});
    let source = json!({"kind": "masks", "path": place.0.path()});
    let dataset = place.build(&place.spec("segmentation", source, change.clone()));
    assert_eq!(dataset.document["classes"], json!(["0", "1", "2"]));
    let errors = dataset.errors();
    assert_eq!(errors["images/alone.jpg"], "no mask in masks/");
    assert_eq!(errors["images/small.jpg"], "its mask is 5 × 5 pixels, but the image is 20 × 10");
    let (shape, masks) = dataset.part("masks", "train");
    assert_eq!(shape, [3, 20, 20]);
    let mut line = vec![0; 10];
    line.extend([2; 10]);
    assert_eq!(
        (&masks[..20], &masks[5 * 20..6 * 20]),
        ([255; 20].as_slice(), line.as_slice()),
        "padded, and as it was"
    );

    let source =
        json!({"kind": "masks", "path": place.0.path(), "masks": "colours", "colours": place.path("colours.txt")});
    let mut spec = place.spec("segmentation", source, change);
    spec["output"] = json!(place.path("coloured"));
    let dataset = place.build(&spec);
    assert_eq!(dataset.document["classes"], json!(["ground", "thing"]));
    assert_eq!(dataset.document["per_class"]["train"], json!([3, 3]));
    let notes = dataset.table("notes.csv");
    let unknown = ["images/0.jpg", "20 pixels of its mask have colours that are not in the list"].map(str::to_owned);
    assert!(notes.contains(&unknown.to_vec()), "{notes:?}");
    let (_, masks) = dataset.part("masks", "train");
    assert_eq!(masks[14 * 20..15 * 20], [255; 20], "what is unknown is ignored");

    spec["source"]["colours"] = json!(null);
    spec["output"] = json!(place.path("unexplained"));
    let said = place.refused(&spec);
    assert!(said.contains("its mask has colours, but no list of colours was given"), "{said}");
}

#[test]
fn shapes_are_drawn_for_every_kind() {
    let place = Place::new();
    let build = |kind: &str, name: &str| {
        let change = json!({"output": place.path(name), "width": 32, "height": 32});
        place.build(&place.spec(kind, json!({"kind": "generated", "count": 30}), change))
    };
    let labels = build("classification", "labels");
    assert_eq!(labels.document["classes"], json!(["circle", "square", "triangle"]));
    assert_eq!(labels.document["counts"]["train"], 18, "each class gives 3 to validation and 1 to test");
    let boxes = build("detection", "boxes");
    assert!(boxes.document["per_class"]["train"].as_array().unwrap().iter().all(|count| count.as_u64().unwrap() > 0));
    let masks = build("segmentation", "masks");
    assert_eq!(masks.document["classes"], json!(["background", "circle", "square", "triangle"]));
    let (_, classes) = masks.part("masks", "train");
    assert!((0..4).all(|class| classes.contains(&class)) && classes.iter().all(|class| *class < 4));
    assert_eq!(build("segmentation", "again").hash(), masks.hash());
}

#[test]
fn a_photograph_is_turned_as_its_camera_says() {
    let place = Place::new();
    place.classes(&[("b", 2)]);
    // A JPEG of 24 by 16 with the note "turned to the right" (6).
    let jpeg = encoded(&DynamicImage::from(picture(24, 16, 5)), ImageFormat::Jpeg);
    let exif = b"\xFF\xE1\x00\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    place.write("pictures/a/turned.jpg", [&jpeg[..2], exif, &jpeg[2..]].concat());
    place.write("pictures/a/straight.jpg", &jpeg);
    let dataset = place.build(&place.folder(json!({"test_percent": 0})));
    let size = |path: &str| dataset.rows.iter().find(|row| row.path == path).unwrap().size.clone();
    assert_eq!(size("a/straight.jpg"), ("24".to_owned(), "16".to_owned()));
    assert_eq!(size("a/turned.jpg"), ("16".to_owned(), "24".to_owned()));
}

#[test]
fn what_a_source_is_taken_for_is_shown_before_it_is_built() {
    let place = Place::new();
    for (split, first) in [("train", 10), ("valid", 20)] {
        for n in 0..4 {
            let number = first + n;
            place.write(&format!("pictures/{split}/images/{n}.png"), png(20, 10, number));
            place.write(&format!("pictures/{split}/labels/{n}.txt"), "0 0.5 0.5 0.5 0.5\n0 7 7 0.1 0.1\n");
        }
    }
    place.write("pictures/data.yaml", "names: {0: cup}  # one\ntrain: ../train/images\nval: ../valid/images\n");
    place.write("pictures/readme.md", "about");
    let spec = place.spec("detection", json!({"kind": "yolo", "path": place.path("pictures")}), json!({}));
    place.write("spec.json", spec.to_string());
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(["dataset", "inspect"]).args(arguments).current_dir(place.path("")).env_clear();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let found: serde_json::Value = serde_json::from_str(&run(&["--json", "spec.json"])).unwrap();
    assert_eq!(found["splits"], json!({"train": 4, "val": 4}));
    assert_eq!(found["classes"], json!([{"name": "cup", "count": 16}]));
    let said = run(&["pictures"]);
    assert!(said.starts_with("detection from yolo: splits by list: train of data.yaml"), "{said}");
    assert!(!place.path("out").exists());

    let output = place.command(&spec).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let last = said.lines().last().unwrap();
    assert!(last.ends_with("1 classes; 0 broken, 0 duplicates, 0 left out, 8 boxes dropped, 1 notes"), "{last}");
}

#[test]
fn sources_that_hold_less_than_was_asked_for_are_refused() {
    let place = Place::new();
    for n in 0..4 {
        place.write(&format!("set/images/{n}.png"), png(20, 10, n));
        let black = GrayImage::new(20, 10);
        place.write(&format!("set/masks/{n}.png"), encoded(&black.into(), ImageFormat::Png));
        place.write(&format!("set/labels/{n}.txt"), "0 2 2 0.1 0.1\n");
        place.write(&format!("flat/train/{n}.png"), png(20, 10, 50 + n));
        place.write(&format!("flat/test/{n}.png"), png(20, 10, 90 + n));
    }
    let said =
        place.refused(&place.spec("segmentation", json!({"kind": "masks", "path": place.path("set")}), json!({})));
    assert!(said.contains("show only one class (0)"), "{said}");
    let said = place.refused(&place.spec("detection", json!({"kind": "yolo", "path": place.path("set")}), json!({})));
    assert!(said.contains("no box of the training images can be used"), "{said}");
    let said =
        place.refused(&place.spec("classification", json!({"kind": "folder", "path": place.path("flat")}), json!({})));
    assert!(said.contains("named like splits"), "{said}");
}
