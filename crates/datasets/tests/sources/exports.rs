//! Exports of CVAT and Label Studio, as folders with the images beside them.

use serde_json::{Value, json};

use super::Place;

#[test]
fn cvat_for_images() {
    let image = |n: u32, subset: &str| {
        format!(
            "<image id=\"{n}\" name=\"{n}.png\" subset=\"{subset}\" width=\"100\" height=\"50\">\
             <box label=\"cup\" xtl=\"40.00\" ytl=\"15.00\" xbr=\"60.00\" ybr=\"35.00\" z_order=\"0\"></box>\
             <polygon label=\"plate\" points=\"50.00,0.00;100.00,0.00;100.00,50.00;50.00,50.00\"></polygon></image>"
        )
    };
    let place = Place::new();
    place.images("images/Train/{}.png", 0..6).images("images/Validation/{}.png", 6..8);
    let images: String = (0..8).map(|n| image(n, if n < 6 { "Train" } else { "Validation" })).collect();
    let labels =
        "<meta><task><labels><label><name>plate</name></label><label><name>cup</name></label></labels></task></meta>";
    place.write(
        "annotations.xml",
        format!("<?xml version=\"1.0\"?><annotations><version>1.1</version>{labels}{images}</annotations>"),
    );
    let built = place.build("detection", json!({"kind": "cvat"}), json!({})).unwrap();
    assert_eq!((built.classes(), built.counts(), built.errors().len()), (vec!["plate", "cup"], [6, 2, 0], 0));
    assert_eq!(built.boxes_of("images/Train/0.png"), ["cup 40 15 20 20", "plate 50 0 50 50"]);
    let built = place.build("segmentation", json!({"kind": "cvat"}), json!({})).unwrap();
    assert_eq!(built.classes(), ["background", "plate", "cup"]);
    let at = |x: usize, y: usize| built.masks[y * 100 + x];
    assert_eq!([at(0, 0), at(99, 0), at(45, 20), at(55, 20)], [0, 1, 2, 2], "the small box is over the large outline");
    assert_eq!(place.recognised(), "cvat");
}

fn tasks() -> Vec<Value> {
    let results = |n: u32| {
        let choice = if n.is_multiple_of(2) { "good" } else { "bad" };
        json!([
            {"type": "rectanglelabels", "original_width": 100, "original_height": 50,
             "value": {"x": 40, "y": 30, "width": 20, "height": 40, "rotation": 0, "rectanglelabels": ["cup"]}},
            {"type": "polygonlabels", "value": {"points": [[50, 0], [100, 0], [100, 100], [50, 100]], "polygonlabels": ["plate"]}},
            {"type": "choices", "value": {"choices": [choice]}}
        ])
    };
    (0..8).map(|n| json!({"id": n, "data": {"image": format!("/data/upload/3/1a2b3c4d-my%20cup{n}.png")}, "annotations": [{"result": results(n)}]})).collect()
}

#[test]
fn label_studio_for_all_three_tasks() {
    for images in ["images/1a2b3c4d-my cup{}.png", "my cup{}.png"] {
        let place = Place::new();
        place.images(images, 0..8).write("export.json", Value::from(tasks()).to_string());
        let first = images.replace("{}", "0");
        let source = || json!({"kind": "labelstudio"});
        let built = place.build("detection", source(), json!({})).unwrap();
        assert_eq!((built.classes(), built.counts(), built.errors().len()), (vec!["cup", "plate"], [6, 2, 0], 0));
        assert_eq!(built.boxes_of(&first), ["cup 40 15 20 20", "plate 50 0 50 50"]);
        let built = place.build("segmentation", source(), json!({})).unwrap();
        assert_eq!((built.classes(), built.masks[0], built.masks[99]), (vec!["background", "cup", "plate"], 0, 2));
        let built = place.build("classification", source(), json!({})).unwrap();
        assert_eq!((built.classes(), built.rows[0][1].as_str()), (vec!["bad", "good"], "good"));
        assert_eq!(place.recognised(), "labelstudio");
    }
}

#[test]
fn label_studio_as_json_min_and_csv() {
    let boxes = json!([{"x": 40, "y": 30, "width": 20, "height": 40, "rotation": 0, "rectanglelabels": ["cup"], "original_width": 100, "original_height": 50}]);
    let min: Vec<Value> = (0..8)
        .map(|n| json!({"image": format!("/data/upload/3/1a2b3c4d-{n}.png"), "id": n, "label": boxes, "annotator": 1}))
        .collect();
    let line =
        |n: u32| format!("/data/upload/3/1a2b3c4d-{n}.png,{n},\"{}\",1\n", boxes.to_string().replace('"', "\"\""));
    let csv: String = std::iter::once("image,id,label,annotator\n".to_owned()).chain((0..8).map(line)).collect();
    for (name, text) in [("min.json", Value::from(min).to_string()), ("export.csv", csv)] {
        let place = Place::new();
        place.images("{}.png", 0..8).write(name, text);
        let built = place.build("detection", json!({"kind": "labelstudio"}), json!({})).unwrap();
        assert_eq!(
            (built.classes(), built.boxes_of("0.png")),
            (vec!["cup"], vec!["cup 40 15 20 20".to_owned()]),
            "{name}"
        );
    }
}
