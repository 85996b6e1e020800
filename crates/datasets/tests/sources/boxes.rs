//! Boxes in COCO, YOLO, KITTI and VOC as their programs write them: the values that are right, the
//! splits that the source states, and refusals where nothing would be left to train on.

use serde_json::{Value, json};

use super::Place;

const LINE: &str = "{c} 0.5 0.5 0.2 0.4\n";
const PLACE: &str = "40 15 20 20";

fn coco(count: u32) -> Value {
    let images: Vec<Value> =
        (0..count).map(|n| json!({"id": n, "file_name": format!("{n}.png"), "width": 100, "height": 50})).collect();
    let boxes: Vec<Value> = (0..count)
        .map(|n| json!({"id": n, "image_id": n, "category_id": if n % 2 == 0 { 1 } else { 90 }, "bbox": [10, 10, 30.5, 20], "iscrowd": 0}))
        .collect();
    let categories = json!([{"id": 90, "name": "brush"}, {"id": 1, "name": "person"}]);
    json!({"images": images, "annotations": boxes, "categories": categories})
}

fn source() -> Value {
    json!({"kind": "coco", "annotations": "annotations/a.json", "images": "images"})
}

#[test]
fn one_odd_value_costs_one_item() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 10] = [
        ("string ids", |d| {
            for one in d["images"].as_array_mut().unwrap() {
                one["id"] = json!(format!("img{}", one["id"]));
            }
            for one in d["annotations"].as_array_mut().unwrap() {
                one["image_id"] = json!(format!("img{}", one["image_id"]));
            }
        }),
        ("ids as texts and floats", |d| {
            for one in d["images"].as_array_mut().unwrap() {
                one["id"] = json!(one["id"].to_string());
            }
            for one in d["annotations"].as_array_mut().unwrap() {
                one["category_id"] = json!(one["category_id"].as_f64().unwrap());
            }
        }),
        ("iscrowd false", |d| {
            for one in d["annotations"].as_array_mut().unwrap() {
                one["iscrowd"] = json!(false);
            }
        }),
        ("iscrowd null", |d| {
            for one in d["annotations"].as_array_mut().unwrap() {
                one["iscrowd"] = json!(null);
            }
        }),
        ("sizes as floats", |d| {
            for one in d["images"].as_array_mut().unwrap() {
                one["width"] = json!(100.0);
                one["height"] = json!(50.0);
            }
        }),
        ("sizes as texts", |d| {
            for one in d["images"].as_array_mut().unwrap() {
                one["width"] = json!("100");
                one["height"] = json!("50");
            }
        }),
        ("sizes that are none", |d| {
            for one in d["images"].as_array_mut().unwrap() {
                one["width"] = json!(-1);
                one["height"] = json!(null);
            }
        }),
        ("backslashes", |d| {
            for one in d["images"].as_array_mut().unwrap() {
                one["file_name"] = json!(format!("images\\{}", one["file_name"].as_str().unwrap()));
            }
        }),
        ("a folder twice", |d| {
            for one in d["images"].as_array_mut().unwrap() {
                one["file_name"] = json!(format!("./images/{}", one["file_name"].as_str().unwrap()));
            }
        }),
        ("null among them", |d| {
            d["annotations"].as_array_mut().unwrap().push(json!(null));
            d["images"].as_array_mut().unwrap().push(json!({"id": 99}));
        }),
    ];
    for (name, change) in cases {
        let place = Place::new();
        let mut document = coco(6);
        change(&mut document);
        place.images("images/{}.png", 0..6).write("annotations/a.json", document.to_string());
        let built = place.build("detection", source(), json!({})).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            (built.classes(), built.errors().len(), built.document.counts.broken_boxes),
            (vec!["person", "brush"], 0, 0),
            "{name}"
        );
        assert_eq!(built.boxes_of("images/1.png"), ["brush 10 10 30.5 20"], "{name}");
    }
}

#[test]
fn numbers_that_json_lacks_cost_their_box() {
    let place = Place::new();
    let text = coco(6).to_string().replacen("[10,10,30.5,20]", "[NaN,10,30.5,20]", 1).replacen(
        "\"iscrowd\":0",
        "\"iscrowd\":0,\"area\":-Infinity",
        6,
    );
    place.images("images/{}.png", 0..6).write("annotations/a.json", text);
    let built = place.build("detection", source(), json!({})).unwrap();
    assert_eq!((built.document.counts.broken_boxes, built.boxes.len(), built.errors().len()), (1, 6, 0));
}

#[test]
fn absolute_paths_below_the_source_are_found() {
    let place = Place::new();
    let mut document = coco(6);
    for image in document["images"].as_array_mut().unwrap() {
        image["file_name"] = json!(place.src().join("images").join(image["file_name"].as_str().unwrap()));
    }
    place.images("images/{}.png", 0..6).write("annotations/a.json", document.to_string());
    assert_eq!(place.build("detection", source(), json!({})).unwrap().errors().len(), 0);
}

#[test]
fn an_image_that_is_listed_twice_has_the_boxes_of_both() {
    let place = Place::new();
    let mut document = coco(6);
    document["images"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": 77, "file_name": "0.png", "width": 100, "height": 50}));
    document["annotations"]
        .as_array_mut()
        .unwrap()
        .push(json!({"image_id": 77, "category_id": 1, "bbox": [50, 5, 20, 20]}));
    place.images("images/{}.png", 0..6).write("annotations/a.json", document.to_string());
    let built = place.build("detection", source(), json!({})).unwrap();
    assert_eq!(built.boxes_of("images/0.png"), ["person 10 10 30.5 20", "person 50 5 20 20"]);
    assert_eq!(built.notes_with("its annotations are merged"), 1);
}

#[test]
fn a_set_without_one_usable_box_is_refused_with_the_reason() {
    let place = Place::new();
    let mut document = coco(6);
    document["annotations"].as_array_mut().unwrap().iter_mut().for_each(|one| one["iscrowd"] = json!(1));
    place.images("images/{}.png", 0..6).write("annotations/a.json", document.to_string());
    let said = place.build("detection", source(), json!({})).err().unwrap();
    assert!(said.contains("the box is around a crowd") && said.contains("`crowds`"), "{said}");
    let mut keep = source();
    keep["crowds"] = json!("keep");
    let built = place.build("detection", keep, json!({})).unwrap();
    assert_eq!((built.boxes.len(), built.document.counts.broken_boxes), (6, 0));

    document["annotations"] = json!([]);
    place.write("annotations/a.json", document.to_string());
    let said = place.build("detection", source(), json!({})).err().unwrap();
    assert!(said.contains("none of the") && said.contains("has a box"), "{said}");

    // VOC's XML taken for YOLO.
    let place = Place::new();
    place.images("JPEGImages/{}.png", 0..4).write("Annotations/0.xml", "<annotation></annotation>");
    let said = place.build("detection", json!({"kind": "yolo"}), json!({})).err().unwrap();
    assert!(said.contains("no image has a file of boxes"), "{said}");
}

#[test]
fn several_documents_are_the_splits_of_one_set() {
    // COCO's own layout.
    let place = Place::new();
    place.images("train2017/{}.png", 0..4).images("val2017/{}.png", 4..6);
    let mut train = coco(6);
    train["images"].as_array_mut().unwrap().truncate(4);
    train["annotations"].as_array_mut().unwrap().truncate(4);
    let mut val = coco(6);
    val["images"].as_array_mut().unwrap().drain(..4);
    val["annotations"].as_array_mut().unwrap().drain(..4);
    place.write("annotations/instances_train2017.json", train.to_string());
    place.write("annotations/instances_val2017.json", val.to_string());
    place.write("annotations/captions_val2017.json", val.to_string());
    let built = place.build("detection", json!({"kind": "coco"}), json!({})).unwrap();
    assert_eq!((built.counts(), built.splits("val2017"), built.errors().len()), ([4, 2, 0], vec!["val"], 0));
    assert_eq!(place.recognised(), "coco");

    // Roboflow's.
    let place = Place::new();
    place.images("train/{}.png", 0..4).images("valid/{}.png", 4..6);
    place
        .write("train/_annotations.coco.json", train.to_string())
        .write("valid/_annotations.coco.json", val.to_string());
    let built = place.build("detection", json!({"kind": "coco"}), json!({})).unwrap();
    assert_eq!((built.counts(), built.splits("valid"), built.boxes.len()), ([4, 2, 0], vec!["val"], 6));
}

#[test]
fn the_division_of_data_yaml_is_kept() {
    for (yaml, lists) in [
        ("path: .\ntrain: images/camera1\nval: images/camera2\nnames: [cup, plate]\n", false),
        ("path: ../datasets/set\ntrain: one.txt\nval: two.txt\nnames:\n  0: cup # small\n  1: plate\n", true),
        ("train: /content/set/images/camera1/\nval: [/content/set/images/camera2]\nnames: {0: cup, 1: plate}\n", false),
    ] {
        let place = Place::new();
        for (n, part) in ["camera1", "camera2"].iter().enumerate() {
            place.labelled(&format!("images/{part}/{{}}.png"), &format!("labels/{part}/{{}}.txt"), 0..8, LINE);
            if lists {
                let lines: Vec<String> = (0..8).map(|i| format!("./images/{part}/{i}.png")).collect();
                place.write(&format!("{}.txt", ["one", "two"][n]), lines.join("\n"));
            }
        }
        place.write("data.yaml", yaml);
        let built = place.build("detection", json!({"kind": "yolo"}), json!({})).unwrap();
        assert_eq!((built.classes(), built.counts()), (vec!["cup", "plate"], [8, 8, 0]), "{yaml}");
        assert_eq!(built.splits("images/camera2"), ["val"], "{yaml}");
        assert_eq!(built.boxes_of("images/camera2/1.png"), [format!("plate {PLACE}")]);
    }
}

#[test]
fn splits_of_yolo_in_every_layout() {
    type Layout = (&'static str, &'static str, &'static str, &'static str);
    let layouts: [Layout; 5] = [
        ("train/images/{}.png", "train/labels/{}.txt", "valid/images/{}.png", "valid/labels/{}.txt"),
        ("images/train2017/{}.png", "labels/train2017/{}.txt", "images/val2017/{}.png", "labels/val2017/{}.txt"),
        ("set/images/train/{}.png", "set/labels/train/{}.txt", "set/images/dev/{}.png", "set/labels/dev/{}.txt"),
        ("obj_train_data/{}.png", "obj_train_data/{}.txt", "obj_Validation_data/{}.png", "obj_Validation_data/{}.txt"),
        ("train/{}.png", "labels/train/{}.txt", "val/{}.png", "labels/val/{}.txt"),
    ];
    for (images, labels, val, val_labels) in layouts {
        let place = Place::new();
        place.labelled(images, labels, 0..8, LINE).labelled(val, val_labels, 0..4, LINE);
        let built = place.build("detection", json!({"kind": "yolo"}), json!({})).unwrap();
        assert_eq!((built.counts(), built.errors().len()), ([8, 4, 0], 0), "{images}");
        assert_eq!(place.recognised(), "yolo");
    }
    // Lists beside images that are all in one folder, as CVAT and darknet write them.
    let place = Place::new();
    place.labelled("obj_train_data/{}.png", "obj_train_data/{}.txt", 0..8, LINE);
    let list =
        |from: u32, to: u32| (from..to).map(|n| format!("data/obj_train_data/{n}.png")).collect::<Vec<_>>().join("\n");
    place.write("train.txt", list(0, 6)).write("valid.txt", list(6, 8)).write("obj.names", "#cup\nplate\n");
    place.write("obj.data", "classes = 2\ntrain = data/train.txt\n");
    let built = place.build("detection", json!({"kind": "yolo"}), json!({})).unwrap();
    assert_eq!((built.counts(), built.splits("obj_train_data/7")), ([6, 2, 0], vec!["val"]));
    assert_eq!(built.classes(), ["#cup", "plate"], "a name may begin with #");
    let built =
        place.build("detection", json!({"kind": "yolo"}), json!({"splits": "none", "validation_percent": 50})).unwrap();
    assert_eq!(built.counts(), [4, 4, 0]);
}

#[test]
fn test_images_that_nobody_labelled_are_left_out() {
    let place = Place::new();
    place.labelled("train/images/{}.png", "train/labels/{}.txt", 0..8, LINE).labelled(
        "val/images/{}.png",
        "val/labels/{}.txt",
        0..2,
        LINE,
    );
    place.images("test/images/{}.png", 0..3).images("train/images/empty{}.png", 0..1);
    let built = place.build("detection", json!({"kind": "yolo"}), json!({})).unwrap();
    assert_eq!((built.counts(), built.document.counts.left_out), ([9, 2, 0], 3));
    assert_eq!(built.notes_with("counts as empty"), 1);
}

#[test]
fn keypoints_are_no_outlines() {
    let threes = "{c} 0.5 0.5 0.2 0.4 0.45 0.4 2 0.55 0.4 2 0.5 0.5 2 0.5 0.6 2\n";
    let pairs = "{c} 0.5 0.5 0.2 0.4 0.45 0.4 0.55 0.4 0.5 0.5 0.45 0.6 0.55 0.6\n";
    for (shape, line) in [("[4, 3]", threes), ("[5, 2]", pairs), ("[4, 3]", LINE)] {
        let place = Place::new();
        place.labelled("images/{}.png", "labels/{}.txt", 0..6, line);
        place.write("data.yaml", format!("kpt_shape: {shape}\nnames:\n  0: cup\n  1: plate\n"));
        let built = place.build("detection", json!({"kind": "yolo"}), json!({})).unwrap();
        assert_eq!(built.boxes_of("images/0.png"), [format!("cup {PLACE}")], "{shape}");
        assert_eq!(built.document.counts.broken_boxes, 0);
    }
}

#[test]
fn kitti_in_splits_above_and_below() {
    let line = "Car 0.00 0 -1.58 40 15 60 35 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59\nDontCare -1 -1 -10 50 10 60 20 -1 -1 -1 -1000 -1000 -1000 -10\n";
    for (images, labels, val, val_labels) in [
        ("images/train/{}.png", "labels/train/{}.txt", "images/val/{}.png", "labels/val/{}.txt"),
        ("train/images/{}.png", "train/labels/{}.txt", "val/images/{}.png", "val/labels/{}.txt"),
        ("training/image_2/{}.png", "training/label_2/{}.txt", "testing/image_2/{}.png", "testing/label_2/{}.txt"),
    ] {
        let place = Place::new();
        place.labelled(images, labels, 0..6, line).labelled(val, val_labels, 0..4, line);
        let built = place.build("detection", json!({"kind": "kitti"}), json!({"validation_percent": 0})).unwrap();
        let [train, val, test] = built.counts();
        assert_eq!((train, val + test, built.classes()), (6, 4, vec!["Car"]), "{images}");
        assert_eq!(built.boxes_of(&images.replace("{}", "0")), [format!("Car {PLACE}")]);
        assert_eq!(place.recognised(), "kitti");
    }
    let place = Place::new();
    place.images("pictures/{}.png", 0..3);
    let said = place.build("detection", json!({"kind": "kitti"}), json!({})).err().unwrap();
    assert!(said.contains("no image in a folder images/"), "{said}");
}

#[test]
fn voc_with_its_lists() {
    let place = Place::new();
    let xml = "<annotation><filename>x</filename><size><width>100</width><height>50</height></size><object><name>cup</name>\
               <bndbox><xmin>40</xmin><ymin>15</ymin><xmax>60</xmax><ymax>35</ymax></bndbox></object></annotation>";
    place
        .labelled("VOC2012/JPEGImages/{}.png", "VOC2012/Annotations/{}.xml", 0..6, xml)
        .images("VOC2012/JPEGImages/{}.png", 6..7);
    let names = |from: u32, to: u32| (from..to).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
    place.write("VOC2012/ImageSets/Main/train.txt", names(0, 4)).write("VOC2012/ImageSets/Main/val.txt", names(4, 6));
    place.write("VOC2012/ImageSets/Main/trainval.txt", names(0, 6));
    let built = place.build("detection", json!({"kind": "voc"}), json!({})).unwrap();
    assert_eq!(
        (built.classes(), built.counts(), built.splits("VOC2012/JPEGImages/5")),
        (vec!["cup"], [4, 2, 0], vec!["val"])
    );
    assert_eq!(built.boxes_of("VOC2012/JPEGImages/0.png"), [format!("cup {PLACE}")]);
    assert_eq!(built.errors().keys().copied().collect::<Vec<_>>(), ["VOC2012/JPEGImages/6.png"]);
    assert_eq!(place.recognised(), "voc");
}
