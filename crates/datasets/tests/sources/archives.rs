//! Zip archives as other programs write them.

use std::io::{Cursor, Write};

use serde_json::json;
use zip::{ZipWriter, write::SimpleFileOptions};

use super::{Built, Place, png};

fn names() -> Vec<(String, Vec<u8>)> {
    let one = |(k, class): (u32, &str)| {
        (0..5).map(|n| (format!("{class}/{n}.png"), png(9, 9, k * 50 + n))).collect::<Vec<_>>()
    };
    (0..).zip(["cat", "dog"]).flat_map(one).collect()
}

fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        zip.start_file(name.as_str(), SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn build(bytes: &[u8]) -> Result<Built, String> {
    let place = Place::new();
    place.write("a.zip", bytes);
    place.build("classification", json!({"kind": "zip", "path": place.src().join("a.zip")}), json!({}))
}

/// Replaces a text everywhere; both are of one length.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    while let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    bytes
}

#[test]
fn separators_of_windows_and_files_beside_the_only_folder() {
    let plain = build(&archive(&names())).unwrap();
    assert_eq!((plain.classes(), plain.rows.len()), (vec!["cat", "dog"], 10));
    let windows = replaced(&replaced(&archive(&names()), b"cat/", b"cat\\"), b"dog/", b"dog\\");
    let built = build(&windows).unwrap();
    assert_eq!((built.rows, built.notes.len()), (plain.rows, 0));

    let mut files: Vec<(String, Vec<u8>)> =
        names().into_iter().map(|(name, bytes)| (format!("PetImages/{name}"), bytes)).collect();
    files.push(("readme[1].txt".to_owned(), b"about".to_vec()));
    files.push(("MSR-LA - 3467.docx".to_owned(), b"terms".to_vec()));
    let built = build(&archive(&files)).unwrap();
    assert_eq!((built.classes(), built.rows[0][0].as_str()), (vec!["cat", "dog"], "cat/0.png"));
    assert_eq!(built.notes_with("left out"), 2);
}

#[test]
fn compression_methods_are_named() {
    let bytes = archive(&names());
    for (method, name) in
        [(12_u16, "bzip2"), (14, "LZMA"), (9, "Deflate64"), (93, "Zstandard"), (95, "XZ"), (77, "another method")]
    {
        // The method of the last entry, in its own heading and in the directory.
        let mut bytes = bytes.clone();
        for (mark, at) in [(b"PK\x03\x04", 8), (b"PK\x01\x02", 10)] {
            let last = bytes.windows(4).rposition(|window| window == mark).unwrap();
            bytes[last + at..last + at + 2].copy_from_slice(&method.to_le_bytes());
        }
        let built = build(&bytes).unwrap();
        assert_eq!(
            built.errors()["dog/4.png"],
            format!("compressed with {name}, which is not supported; compress it with Deflate")
        );
        assert_eq!(built.errors().len(), 1);
    }
}

#[test]
fn annotations_in_an_archive_are_streamed_too() {
    let images: Vec<_> = (0..4).map(|n| json!({"id": n, "file_name": format!("{n}.png")})).collect();
    let boxes: Vec<_> = (0..4).map(|n| json!({"image_id": n, "category_id": 1, "bbox": [1, 2, 3, 4]})).collect();
    let document = json!({"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cup"}]});
    let mut files: Vec<(String, Vec<u8>)> = (0..4).map(|n| (format!("set/images/{n}.png"), png(9, 9, n))).collect();
    files.push(("set/annotations/a.json".to_owned(), document.to_string().into_bytes()));
    let place = Place::new();
    place.write("a.zip", archive(&files));
    let source = json!({"kind": "coco", "path": place.src().join("a.zip")});
    let built = place.build("detection", source, json!({"width": 9, "height": 9})).unwrap();
    assert_eq!(built.boxes_of("images/0.png"), ["cup 1 2 3 4"]);
}
