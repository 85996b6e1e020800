//! What people and strangers bring that is no picture, or more than one: each is listed with its
//! reason while the others go on, or the source is refused with the file that is wrong.

use std::fs;

use base64::{Engine, engine::general_purpose::STANDARD};
use image::{DynamicImage, ImageBuffer, ImageFormat, Luma};
use serde_json::{Value, json};

use super::{Dataset, Place, encoded, picture, png, zip};

/// Eight by eight pixels of red, as a printer wants it.
const CMYK: &str = "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwANCQoLCggNCwoLDg4NDxMgFRMSEhMnHB4XIC4pMTAuKS0sMzpKPjM2RjcsLUBXQUZMTlJT\
    UjI+WmFaUGBKUVJP/8AAFAgACAAIBEMRAE0RAFkRAEsRAP/EABQAAQAAAAAAAAAAAAAAAAAAAAf/xAAUEAEAAAAAAAAAAAAAAAAA\
    AAAA/9oADgRDAE0AWQBLAAA/AE4YDAnP/9k=";

#[test]
fn broken_pictures_are_listed_and_stop_nothing() {
    let place = Place::new();
    place.classes(&[("cat", 6), ("mouse", 6)]);
    let jpeg = encoded(&picture(64, 64, 3).into(), ImageFormat::Jpeg);
    place.write("pictures/cat/cut.jpg", &jpeg[..jpeg.len() / 2]);
    place.write("pictures/cat/empty.png", b"");
    place.write("pictures/cat/page.jpg", b"<!DOCTYPE html><html>404</html>");
    place.write("pictures/cat/text.png", b"hello");
    place.write("pictures/cat/scan.tiff", b"II*\0\x08\0\0\0\0\0");
    place.write("pictures/cat/twice.png", fs::read(place.path("pictures/cat/000.png")).unwrap());
    place.write("pictures/mouse/wrong.png", fs::read(place.path("pictures/cat/001.png")).unwrap());
    place.write("pictures/nowhere.png", png(5, 5, 77));
    let mut bomb = png(5, 5, 1);
    bomb[16..24].copy_from_slice(&[0, 0, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF]);
    let mut check = flate2::Crc::new();
    check.update(&bomb[12..29]);
    bomb[29..33].copy_from_slice(&check.sum().to_be_bytes());
    place.write("pictures/mouse/bomb.png", bomb);
    let deep = DynamicImage::ImageLuma16(ImageBuffer::from_pixel(9, 9, Luma([0x4000])));
    place.write("pictures/mouse/deep.png", encoded(&deep, ImageFormat::Png));
    place.write("pictures/mouse/printed.jpg", STANDARD.decode(CMYK).unwrap());
    fs::create_dir(place.path("pictures/nobody")).unwrap();
    std::os::unix::fs::symlink("..", place.path("pictures/mouse/round")).unwrap();
    nix::unistd::mkfifo(&place.path("pictures/mouse/pipe.png"), nix::sys::stat::Mode::S_IRWXU).unwrap();

    let dataset = place.build(&place.folder(json!({"test_percent": 0})));
    let errors = dataset.errors();
    let expected = [
        ("cat/cut.jpg", "the JPEG is truncated"),
        ("cat/empty.png", "the file is empty"),
        ("cat/page.jpg", "not an image: the file is a web page or XML"),
        ("cat/text.png", "not an image"),
        ("cat/scan.tiff", "unsupported format Tiff; supported are JPEG, PNG, BMP, GIF, WebP and PNM"),
        ("cat/twice.png", "duplicate of cat/000.png"),
        ("mouse/wrong.png", "duplicate of cat/001.png, which is labelled cat"),
        ("mouse/bomb.png", "65535 × 65535 pixels need more than 256 MiB of memory"),
        ("mouse/pipe.png", "not a regular file"),
        ("nowhere.png", "not in the folder of a class"),
    ];
    for (path, reason) in expected {
        assert_eq!(errors.get(path), Some(&reason), "{path}");
    }
    assert_eq!(errors.len(), expected.len(), "{errors:?}");
    let counts = &dataset.document["counts"];
    assert_eq!((&counts["broken"], &counts["duplicate"]), (&json!(8), &json!(2)));
    assert_eq!(
        dataset.table("notes.csv"),
        [
            ["nobody", "this folder does not contain images and is not used as a class"],
            ["mouse/round", "left out: the link leads back to a folder above it"]
        ]
    );

    // What is deep or printed is used, with the colours that it has.
    let (_, pixels) = dataset.array("images.npy");
    let find = |name: &str| {
        let at = dataset.rows.iter().position(|row| row.path == name).unwrap();
        <[u8; 3]>::try_from(&pixels[at * 16 * 16 * 3..][..3]).unwrap()
    };
    assert_eq!(find("mouse/deep.png"), [64; 3]);
    let red = find("mouse/printed.jpg");
    assert!(red[0] > 200 && red[1] < 60 && red[2] < 60, "{red:?}");
}

#[test]
fn archives_that_lead_out_or_lie() {
    let place = Place::new();
    let mut files: Vec<(String, Vec<u8>)> = (0..6)
        .flat_map(|n| [("a", n), ("b", n + 50)])
        .map(|(class, n)| (format!("{class}/{n}.png"), png(9, 9, n)))
        .collect();
    for (n, name) in ["../a/slip.png", "a/../../slip.png", "/a/slip.png", "a\\..\\..\\slop.png"].iter().enumerate() {
        files.push(((*name).to_owned(), png(9, 9, 100 + u32::try_from(n).unwrap())));
    }
    files.push(("b/lie.png".to_owned(), png(9, 9, 200)));
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(name, content)| (name.as_str(), content.clone())).collect();
    let mut archive = zip(&files);
    // The last entry of the directory says that its file unpacks to ten bytes.
    let last = archive.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    archive[last + 24..last + 28].copy_from_slice(&10_u32.to_le_bytes());
    place.write("in/a.zip", &archive);
    let source = json!({"kind": "zip", "path": place.path("in/a.zip")});
    let dataset = place.build(&place.spec("classification", source.clone(), json!({"test_percent": 0})));
    let errors = dataset.errors();
    assert_eq!(errors.len(), 5, "{errors:?}");
    for (path, error) in &errors {
        let expected =
            if *path == "b/lie.png" { "damaged in the archive: " } else { "the name points outside the archive" };
        assert!(error.starts_with(expected), "{path}: {error}");
    }
    let mut names: Vec<_> = fs::read_dir(place.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["in", "out", "spec.json"], "nothing was written anywhere else");

    // All entries together promise hundreds of gigabytes.
    let places: Vec<usize> =
        archive.windows(4).enumerate().filter(|(_, w)| w == b"PK\x01\x02").map(|(at, _)| at).collect();
    for at in places {
        archive[at + 24..at + 28].copy_from_slice(&0xF000_0000_u32.to_le_bytes());
    }
    place.write("in/bomb.zip", &archive);
    let mut spec = place.spec("classification", source, json!({"output": place.path("bombed")}));
    spec["source"]["path"] = json!(place.path("in/bomb.zip"));
    let said = place.refused(&spec);
    assert!(said.contains("in/bomb.zip: ") && said.contains("rejected as a zip bomb"), "{said}");
    place.write("in/bomb.zip", b"PK, but not for long");
    assert!(place.refused(&spec).contains("not a complete zip archive"));
}

#[test]
fn one_class_no_class_and_no_folder() {
    let place = Place::new();
    place.classes(&[("cat", 6), ("mouse", 1)]);
    let said = place.refused(&place.folder(json!({})));
    assert!(said.contains("only the class cat has enough usable images"), "{said}");
    let said = place.refused(&place.folder(json!({"min_per_class": 9})));
    assert!(said.contains("no class has 9 usable images"), "{said}");
    let source = json!({"kind": "folder", "path": place.path("elsewhere")});
    let said = place.refused(&place.spec("classification", source, json!({})));
    assert!(said.contains("elsewhere cannot be read: No such file"), "{said}");
    fs::create_dir(place.path("elsewhere")).unwrap();
    let source = json!({"kind": "folder", "path": place.path("elsewhere")});
    assert!(
        place
            .refused(&place.spec("classification", source, json!({})))
            .contains("the source does not contain any images")
    );
    let said = place.refused(&place.folder(json!({"width": 0, "colour": 3})));
    assert!(said.contains("unknown field `colour`"), "{said}");
    assert!(
        place
            .refused(&place.folder(json!({"width": 0, "channels": 2})))
            .contains("width: from 1 to 4096 pixels\nchannels: ")
    );
}

#[test]
fn ten_thousand_classes() {
    let place = Place::new();
    for class in 0..10_000 {
        for n in 0..2 {
            place.write(&format!("pictures/{class:05}/{n}.png"), png(2, 2, class * 2 + n));
        }
    }
    let change = json!({"width": 2, "height": 2, "test_percent": 0});
    let dataset = place.build(&place.folder(change));
    assert_eq!(dataset.document["classes"].as_array().unwrap().len(), 10_000);
    assert_eq!((dataset.split("train").len(), dataset.split("val").len()), (10_000, 10_000));
    let labels = dataset.numbers("val.labels.npy");
    assert!((0..10_000).eq(labels), "each class is there once, in order");
}

#[test]
fn what_is_in_no_split_takes_no_room() {
    use std::os::unix::fs::MetadataExt;

    let place = Place::new();
    place.classes(&[("cat", 60), ("mouse", 60)]);
    let spec = |name: &str, most: Value| {
        place.folder(json!({"output": place.path(name), "width": 128, "height": 128, "max_per_class": most}))
    };
    let (all, some) = (place.build(&spec("all", json!(null))), place.build(&spec("some", json!(6))));
    assert_eq!(some.document["counts"]["left_out"], 2 * 54);
    let room = |dataset: &Dataset| fs::metadata(dataset.folder.join("cache/images.npy")).unwrap();
    assert_eq!(room(&all).len(), room(&some).len(), "each row has its place");
    assert!(room(&some).blocks() * 4 < room(&all).blocks(), "{} of {}", room(&some).blocks(), room(&all).blocks());
    let (_, kept) = some.part("images", "train");
    assert!(kept.chunks(128 * 128 * 3).all(|picture| picture.iter().any(|value| *value > 0)));
}
