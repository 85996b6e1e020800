//! Folders and lists of classes: what is a split and what is a class, and what is listed instead.

use serde_json::json;

use super::{Place, png};

const FOLDER: fn() -> serde_json::Value = || json!({"kind": "folder"});

#[test]
fn train_and_test_are_splits_whatever_else_is_there() {
    // A flat test folder, a stray picture beside and in the splits, another folder, and `dev`.
    for extra in
        [&["test/0.png", "test/1.png"][..], &["grid.png"], &["train/grid.png"], &["figures/a.png", "figures/b.png"]]
    {
        for val in ["val", "valid", "validation", "dev"] {
            let place = Place::new();
            for class in ["cat", "dog"] {
                place.images(&format!("train/{class}/{{}}.png"), 0..4).images(&format!("{val}/{class}/{{}}.png"), 0..2);
            }
            (5000..).zip(extra).for_each(|(n, path)| {
                place.write(path, png(9, 9, n));
            });
            let built = place.build("classification", FOLDER(), json!({})).unwrap();
            assert_eq!(built.classes(), ["cat", "dog"], "{extra:?} {val}");
            assert_eq!(built.counts(), [8, 4, 0], "{extra:?} {val}");
            assert_eq!(built.errors().keys().copied().collect::<Vec<_>>(), extra, "left out with a reason");
            assert_eq!(built.document.counts.left_out, extra.len() as u64);
        }
    }
}

#[test]
fn splits_below_the_classes_and_a_folder_around_everything() {
    let place = Place::new();
    for class in ["cat", "dog"] {
        place
            .images(&format!("pets/{class}/train/{{}}.png"), 0..4)
            .images(&format!("pets/{class}/test/{{}}.png"), 0..2);
    }
    place.write("readme.txt", "about");
    let built = place.build("classification", FOLDER(), json!({})).unwrap();
    assert_eq!((built.classes(), built.counts()), (vec!["cat", "dog"], [6, 2, 4]));
    assert_eq!(built.splits("pets/dog/test"), ["test"]);
    assert_eq!(built.notes_with("readme.txt: left out"), 1);
}

#[test]
fn folders_that_are_only_called_like_splits_are_refused_or_divided_as_asked() {
    let place = Place::new();
    place.images("train/{}.png", 0..4).images("test/{}.png", 0..4);
    let said = place.build("classification", FOLDER(), json!({})).err().unwrap();
    assert!(said.contains("no class folders") && said.contains("`splits`"), "{said}");
    let built = place.build("classification", FOLDER(), json!({"splits": "none"})).unwrap();
    assert_eq!((built.classes(), built.counts()), (vec!["test", "train"], [6, 2, 0]));
}

#[test]
fn the_specification_can_name_the_folders_of_each_split() {
    let place = Place::new();
    for part in ["2019", "2020"] {
        place.images(&format!("{part}/cat/{{}}.png"), 0..3).images(&format!("{part}/dog/{{}}.png"), 0..3);
    }
    place.images("raw/cat/{}.png", 0..2);
    let splits = json!({"train": ["2019"], "val": ["./2020/"]});
    let built = place.build("classification", FOLDER(), json!({"splits": splits})).unwrap();
    assert_eq!((built.classes(), built.counts()), (vec!["cat", "dog"], [6, 6, 0]));
    assert_eq!(built.errors()["raw/cat/0.png"], "not in a folder of `splits`");
    let said =
        place.build("classification", FOLDER(), json!({"splits": {"train": ["2019"], "val": ["2021"]}})).err().unwrap();
    assert!(said.contains("splits.val: no image in 2021"), "{said}");
    let said = place.build("classification", FOLDER(), json!({"splits": {"val": ["2020"]}})).err().unwrap();
    assert!(said.contains("splits.train"), "{said}");
}

#[test]
fn a_preview_says_the_same_before_anything_is_built() {
    let place = Place::new();
    place
        .images("train/cat/{}.png", 0..4)
        .images("train/dog/{}.png", 0..4)
        .images("val/cat/{}.png", 0..2)
        .images("test/{}.png", 0..3);
    let found = place.inspect("classification", FOLDER(), json!({}));
    assert_eq!(serde_json::to_value(&found.splits).unwrap(), json!({"train": 8, "val": 2}));
    assert_eq!((found.images, found.left_out, found.class_count), (13, 3, 2));
    assert!(found.layout.contains("train/"), "{}", found.layout);
    assert!(found.notes.iter().any(|note| note.contains("test/0.png: ")), "{:?}", found.notes);
    assert!(!place.path(".out.building").exists() && !place.path("out").exists());
    assert_eq!(place.recognised(), "folder");
    assert!(found.to_string().contains("8 train, 2 val"), "{found}");
}

#[test]
fn pictures_of_other_formats_and_every_other_file_are_listed() {
    let place = Place::new();
    place.images("bird/{}.png", 0..4).images("dog/{}.png", 0..4);
    let heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic";
    place.write("cat/IMG_1.HEIC", heic).write("cat/IMG_2.heif", heic).write("dog/renamed.jpg", heic);
    place
        .write("dog/a.avif", b"\0\0\0\x1cftypavif\0\0\0\0")
        .write("dog/a.jxl", b"\xFF\x0A\0\0")
        .write("dog/notes.json", b"{}");
    place.write("dog/Thumbs.db", b"x").write("@eaDir/dog/0.png", png(5, 5, 9)).write("dog/.DS_Store", b"x");
    let built = place.build("classification", FOLDER(), json!({})).unwrap();
    let errors = built.errors();
    assert_eq!(built.classes(), ["bird", "dog"]);
    for (path, format) in [
        ("cat/IMG_1.HEIC", "HEIC"),
        ("cat/IMG_2.heif", "HEIC"),
        ("dog/renamed.jpg", "HEIC"),
        ("dog/a.avif", "AVIF"),
        ("dog/a.jxl", "JPEG XL"),
    ] {
        assert!(errors[path].starts_with(&format!("unsupported format {format};")), "{path}: {}", errors[path]);
    }
    assert_eq!(errors.len(), 5, "{errors:?}");
    assert_eq!(built.notes_with("the class cat has no usable image"), 1);
    assert_eq!(built.notes_with("dog/notes.json: left out"), 1);
}

#[test]
fn lists_by_their_headings_whichever_column_is_first() {
    let place = Place::new();
    place.images("p/{}.png", 0..24);
    let rows = |line: &dyn Fn(u32) -> String| (0..24).map(|n| line(n) + "\n").collect::<String>();
    let pet = |n: u32| ["cat", "dog"][(n % 2) as usize];
    let numbers: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    for (name, text, classes) in [
        (
            "a.csv",
            format!("image_id,label\n{}", rows(&|n| format!("p/{n}.png,{}", n % 12))),
            numbers.iter().map(String::as_str).collect(),
        ),
        ("b.csv", format!("label,path\n{}", rows(&|n| format!("{},p\\{n}.png", pet(n)))), vec!["cat", "dog"]),
        ("c.csv", rows(&|n| format!("{};./p/{n}.png", pet(n))), vec!["cat", "dog"]),
        ("d.tsv", format!("id\tclass\n{}", rows(&|n| format!("p/{n}\t{}", pet(n)))), vec!["cat", "dog"]),
        ("e.txt", rows(&|n| format!("{} p/{n}.png", pet(n))), vec!["cat", "dog"]),
        ("f.csv", rows(&|n| format!("/home/me/set/p/{n}.png,{},{}", pet(n), n % 5)), vec!["cat", "dog"]),
    ] {
        place.write(name, text);
        let built =
            place.build("classification", json!({"kind": "list", "path": place.src().join(name)}), json!({})).unwrap();
        assert_eq!(
            (built.classes(), built.rows.len(), built.errors().len()),
            (classes, 24, 0),
            "{name}: {:?}",
            built.errors()
        );
    }
    place.write(
        "s.csv",
        format!(
            "file,label,set\n{}",
            rows(&|n| format!("p/{n}.png,{},{}", pet(n), if n < 8 { "valid" } else { "train" }))
        ),
    );
    let built =
        place.build("classification", json!({"kind": "list", "path": place.src().join("s.csv")}), json!({})).unwrap();
    assert_eq!(built.counts(), [16, 8, 0]);
}
