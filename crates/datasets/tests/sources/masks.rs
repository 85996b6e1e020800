//! Masks as people have them: which value is which class, where the image and its mask are, and
//! regions that are drawn as masks.

use image::{DynamicImage, GrayImage, ImageFormat, Luma};
use serde_json::{Value, json};

use super::{Place, encoded};

/// A PNG of 100 by 50 pixels whose thirds have these values, in so many bits.
fn thirds(values: [u16; 3], depth: png::BitDepth, palette: &[u8]) -> Vec<u8> {
    let value = |x: usize| values[(x / 34).min(2)];
    let line: Vec<u8> = match depth {
        png::BitDepth::Sixteen => (0..100).flat_map(|x| value(x).to_be_bytes()).collect(),
        png::BitDepth::One => (0..13)
            .map(|byte| (0..8).fold(0, |bits, bit| bits << 1 | u8::from(value((byte * 8 + bit).min(99)) > 0)))
            .collect(),
        _ => (0..100).map(|x| u8::try_from(value(x)).unwrap()).collect(),
    };
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, 100, 50);
    encoder.set_depth(depth);
    if palette.is_empty() {
        encoder.set_color(png::ColorType::Grayscale);
    } else {
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_palette(palette.to_vec());
    }
    encoder.write_header().unwrap().write_image_data(&line.repeat(50)).unwrap();
    out
}

fn place(mask: &[u8], ending: &str) -> Place {
    let place = Place::new();
    place.images("images/{}.png", 0..6);
    (0..6).for_each(|n| {
        place.write(&format!("masks/{n}.{ending}"), mask);
    });
    place
}

fn source() -> Value {
    json!({"kind": "masks"})
}

#[test]
fn masks_of_every_depth_and_kind() {
    use png::BitDepth::{Eight, One, Sixteen};
    let palette: Vec<u8> = (0..=255).flat_map(|n: u8| [n, 255 - n, 7]).collect();
    let two = ["background", "foreground"];
    for (name, mask, classes, line) in [
        ("ids", thirds([0, 1, 2], Eight, &[]), vec!["0", "1", "2"], [0, 1, 2]),
        ("ids and ignored", thirds([0, 1, 255], Eight, &[]), vec!["0", "1"], [0, 1, 255]),
        ("black and white", thirds([0, 255, 255], Eight, &[]), two.to_vec(), [0, 1, 1]),
        ("one bit", thirds([0, 1, 1], One, &[]), vec!["0", "1"], [0, 1, 1]),
        ("sixteen bits", thirds([0, 1, 2], Sixteen, &[]), vec!["0", "1", "2"], [0, 1, 2]),
        ("sixteen bits black and white", thirds([0, 65535, 65535], Sixteen, &[]), two.to_vec(), [0, 1, 1]),
        ("palette", thirds([0, 1, 2], Eight, &palette), vec!["0", "1", "2"], [0, 1, 2]),
    ] {
        let built = place(&mask, "png")
            .build("segmentation", source(), json!({}))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(built.classes(), classes, "{name}");
        assert_eq!([built.masks[0], built.masks[50], built.masks[99]], line, "{name}");
    }
    let white = GrayImage::from_fn(100, 50, |x, _| Luma([if x < 48 { 0 } else { 255 }]));
    let jpeg = encoded(&DynamicImage::from(white), ImageFormat::Jpeg);
    let built = place(&jpeg, "jpg").build("segmentation", source(), json!({})).unwrap();
    assert_eq!((built.classes(), built.masks[0], built.masks[99]), (two.to_vec(), 0, 1));
    assert_eq!(built.notes_with("255 is the class foreground"), 1);
}

#[test]
fn values_that_cannot_be_classes_are_refused_with_the_reason() {
    for (mask, part) in [
        (thirds([0, 1, 300], png::BitDepth::Sixteen, &[]), "the value 300 is not a class"),
        (thirds([0, 0, 0], png::BitDepth::Eight, &[]), "show only one class (0)"),
        (thirds([3, 255, 255], png::BitDepth::Eight, &[]), "show only one class (3)"),
        (thirds([255, 255, 255], png::BitDepth::Eight, &[]), "show only one class"),
    ] {
        let said = place(&mask, "png").build("segmentation", source(), json!({})).err().unwrap();
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn masks_in_splits_above_and_below() {
    let mask = thirds([0, 1, 2], png::BitDepth::Eight, &[]);
    for (images, masks) in [
        ("{s}/images/{n}.png", "{s}/masks/{n}.png"),
        ("images/{s}/{n}.png", "masks/{s}/{n}.png"),
        ("set/img_dir/{s}/{n}.png", "set/ann_dir/{s}/{n}.png"),
        ("{s}/JPEGImages/{n}.png", "{s}/SegmentationClass/{n}.png"),
    ] {
        let place = Place::new();
        for (split, numbers) in [("train", 0..6), ("val", 6..9)] {
            place.images(&images.replace("{s}", split).replace("{n}", "{}"), numbers.clone());
            numbers.for_each(|n| {
                place.write(&masks.replace("{s}", split).replace("{n}", &n.to_string()), &mask);
            });
        }
        let built =
            place.build("segmentation", source(), json!({})).unwrap_or_else(|error| panic!("{images}: {error}"));
        assert_eq!((built.counts(), built.errors().len(), built.rows.len()), ([6, 3, 0], 0, 9), "{images}");
    }
    // VOC's lists, and the colours that CVAT puts beside its masks.
    let place = Place::new();
    let palette = [0, 0, 0, 200, 0, 0, 0, 200, 0];
    let mask = thirds([0, 1, 2], png::BitDepth::Eight, &palette);
    place.images("JPEGImages/{}.png", 0..6);
    (0..6).for_each(|n| {
        place.write(&format!("SegmentationClass/{n}.png"), &mask);
    });
    place.write("ImageSets/Segmentation/train.txt", "0\n1\n2\n3\n").write("ImageSets/Segmentation/val.txt", "4\n5\n");
    place.write(
        "labelmap.txt",
        "# label:color_rgb:parts:actions\nbackground:0,0,0::\nbig cup:0,200,0::\nplate:200,0,0::\n",
    );
    let built = place.build("segmentation", source(), json!({})).unwrap();
    assert_eq!((built.counts(), built.classes()), ([4, 2, 0], vec!["background", "big cup", "plate"]));
    assert_eq!([built.masks[0], built.masks[50], built.masks[99]], [0, 2, 1]);
}

#[test]
fn regions_of_coco_yolo_and_cvat_are_drawn() {
    // The right half, as an outline, as run lengths, and packed.
    let outline = json!([[50, 0, 100, 0, 100, 50, 50, 50]]);
    let runs = json!({"size": [50, 100], "counts": [2500, 2500]});
    for region in [outline, runs] {
        let place = Place::new();
        place.images("images/{}.png", 0..6);
        let images: Vec<Value> =
            (0..6).map(|n| json!({"id": n, "file_name": format!("{n}.png"), "width": 100, "height": 50})).collect();
        let boxes: Vec<Value> = (0..6).map(|n| json!({"image_id": n, "category_id": 5, "bbox": [50, 0, 50, 50], "iscrowd": 0, "segmentation": region})).collect();
        let document = json!({"images": images, "annotations": boxes, "categories": [{"id": 5, "name": "cup"}]});
        place.write("a.json", document.to_string());
        let built = place.build("segmentation", json!({"kind": "coco"}), json!({})).unwrap();
        assert_eq!(built.classes(), ["background", "cup"]);
        assert_eq!([built.masks[49], built.masks[50], built.masks[99]], [0, 1, 1], "{region}");
        let sum: u32 = built.masks[..5000].iter().map(|class| u32::from(*class)).sum();
        assert_eq!(sum, 2500);
    }
    let place = Place::new();
    place.labelled("images/{}.png", "labels/{}.txt", 0..6, "0 0.5 0 1 0 1 1 0.5 1\n").write("classes.txt", "cup\n");
    let built = place.build("segmentation", json!({"kind": "yolo"}), json!({})).unwrap();
    assert_eq!((built.classes(), built.masks[49], built.masks[50]), (vec!["background", "cup"], 0, 1));
}
