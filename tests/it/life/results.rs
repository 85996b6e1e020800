//! What a detector and a segmentation found, on the real program: the fields of predictions, the masks as
//! images, the curves, and pages on which boxes and masks are drawn beside the truth. A checkpoint of the
//! detector is exported, downloaded, and imported as a model that finds the same. Both are scored on
//! labels that somebody brings: the same images again, as files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{
    House, Person, eventually,
    models::{house, made, train, trained},
};
use crate::pages::markup::one_line;

/// A dataset of generated shapes and a model that has learnt a little of them.
async fn learnt(house: &House, person: &Person, kind: &str) -> (String, String) {
    let spec = json!({ "kind": kind, "source": { "kind": "generated", "count": 160 }, "width": 48, "height": 48 });
    let dataset = made(house, person, kind, spec).await;
    let config = json!({ "epochs": 3, "batch_size": 16, "seed": 1, "network": { "width": 0.5 },
        "optimizer": { "name": "adam" }, "learning_rate": { "base": 0.004, "policy": "one-cycle" },
        "checkpoints": { "every_epochs": 2, "keep_last": 3 } });
    let request = json!({ "name": kind, "dataset": dataset, "config": config });
    let path = train(house, person, request).await;
    trained(house, person, &path).await;
    (dataset, path)
}

async fn page(house: &House, person: &Person, path: &str) -> String {
    let answer = person.request(house, "GET", path).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer.text().await.unwrap()
}

/// A PNG that the API returns.
async fn png(house: &House, person: &Person, address: &str) -> image::RgbaImage {
    let answer = person.request(house, "GET", address).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["content-type"]), (200, &"image/png".parse().unwrap()));
    image::load_from_memory(&answer.bytes().await.unwrap()).unwrap().into_rgba8()
}

/// The answer to the first picture of validation.
async fn asked(house: &House, person: &Person, (dataset, path): (&str, &str)) -> (String, Value) {
    let row = &person.get(house, &format!("/datasets/{dataset}/items?split=val&limit=1")).await["items"][0];
    let picture = format!("/api/v1/datasets/{dataset}/items/{}/picture?full=true", row["row"]);
    let bytes = person.request(house, "GET", &picture).send().await.unwrap().bytes().await.unwrap();
    let sent = person.request(house, "POST", &format!("/api/v1{path}/infer")).header("content-type", "image/png");
    let sent: Value = sent.body(bytes).send().await.unwrap().json().await.unwrap();
    let test = format!("{path}/tests/{}", sent["id"].as_str().unwrap());
    let answer = eventually("the answer", async || {
        let found = person.get(house, &test).await;
        assert_ne!(found["state"], "failed", "{found}");
        (found["state"] == "answered").then_some(found)
    })
    .await;
    (test, answer)
}

#[tokio::test]
async fn boxes_are_listed_and_drawn_beside_the_true_ones() {
    let Some(house) = house().await else { return };
    let person = house.person();
    let (dataset, path) = learnt(&house, &person, "detection").await;
    let found = person.get(&house, &format!("{path}/predictions?limit=500")).await;
    let items = found["items"].as_array().unwrap();
    let evaluation = person.get(&house, &format!("{path}/evaluation")).await;
    assert_eq!((found["total"].as_u64(), items.len()), (Some(40), 40), "also images in which nothing was found");
    let metrics = &evaluation["metrics"];
    assert!(metrics["map50"].as_f64().unwrap() >= metrics["map50_95"].as_f64().unwrap(), "{evaluation}");
    let true_boxes: usize = items.iter().map(|one| one["truth"].as_array().unwrap().len()).sum();
    let counted: f64 =
        evaluation["classes"].as_array().unwrap().iter().map(|one| one["measures"]["boxes"].as_f64().unwrap()).sum();
    assert!((counted - f64::from(u32::try_from(true_boxes).unwrap())).abs() < 1e-9, "{evaluation}");
    let names = ["circle", "square", "triangle"];
    for one in items {
        assert_eq!(one["kind"], "detection");
        for found in one["boxes"].as_array().unwrap().iter().chain(one["truth"].as_array().unwrap()) {
            assert!(names.contains(&found["class"].as_str().unwrap()), "{found}");
            assert!(found["x"].as_f64().unwrap() >= 0.0 && found["width"].as_f64().unwrap() > 0.0, "{found}");
        }
        assert!(
            one["boxes"]
                .as_array()
                .unwrap()
                .iter()
                .all(|found| (0.0..=1.0).contains(&found["score"].as_f64().unwrap()))
        );
    }
    // The truth is the dataset's.
    let row = &person.get(&house, &format!("/datasets/{dataset}/items?split=val&limit=1")).await["items"][0];
    let same = items.iter().find(|one| one["path"] == row["path"]).unwrap();
    assert_eq!(same["truth"].as_array().unwrap().len(), row["boxes"].as_array().unwrap().len());
    let errors = person.get(&house, &format!("{path}/predictions?wrong=true")).await;
    let wrong = items.iter().filter(|one| one["missed"].as_u64().unwrap() + one["extra"].as_u64().unwrap() > 0).count();
    assert_eq!(errors["total"], json!(wrong));
    let curves = person.get(&house, &format!("{path}/curves")).await;
    assert!(curves["precision_recall"][0]["x"].as_array().unwrap().len() == 101 && curves["roc"] == json!([]));
    let drawn = one_line(&page(&house, &person, &format!("{path}/predictions")).await);
    assert!(drawn.contains("<rect class=\"box colour") && drawn.contains("Ground truth"), "{drawn}");

    let (test, answer) = asked(&house, &person, (&dataset, &path)).await;
    assert_eq!((&answer["input"]["width"], &answer["classes"]), (&json!(48), &json!(names)));
    let all = person.get(&house, &format!("{test}?min_score=0.05")).await;
    let count = |answer: &Value| answer["answer"]["boxes"].as_array().unwrap().len();
    assert!(count(&all) >= count(&answer), "{all}");
    assert_eq!(person.ask(&house, "GET", &format!("{test}?min_score=2"), &Value::Null).await.0, 422);
    let drawn = one_line(&page(&house, &person, &test).await);
    assert!(drawn.contains("id=\"answer-result\"") && drawn.contains("dataset-example?path="), "{drawn}");
    assert_eq!(drawn.matches("<g class=\"object").count(), count(&all), "each box is drawn");
    looked_into(&house, &person, &test).await;
    scored_on_boxes(&house, &person, (&dataset, &path), items).await;
    exported_and_imported(&house, &person, &path).await;
}

/// Each layer has a page with what it makes of the image, and with its weights.
async fn looked_into(house: &House, person: &Person, test: &str) {
    let inside = async || Some(person.get(house, test).await).filter(|found| found["inspection"]["layers"].is_array());
    let inspection = eventually("what its layers make of it", inside).await["inspection"].take();
    let (layers, weights) = (inspection["layers"].as_array().unwrap(), inspection["weights"].as_array().unwrap());
    let filters = weights.iter().position(|one| one["shown"]["channels"] == json!([3, 3])).unwrap();
    let colours = png(house, person, &format!("/api/v1{test}/weights-{filters}")).await;
    assert!(colours.pixels().any(|pixel| pixel[0] != pixel[1]), "the first filters are in colour");
    let at = layers.iter().position(|one| one["name"] == weights[filters]["layer"]).unwrap();
    let drawn = one_line(&page(house, person, &format!("{test}/layers/{at}")).await);
    for part in [format!("{test}/weights-{filters}"), format!("{test}/{at}\""), "standard deviation".to_owned()] {
        assert!(drawn.contains(&part), "{part}: {drawn}");
    }
    let own = weights.iter().filter(|one| one["layer"] == layers[at]["name"]).count();
    assert_eq!(drawn.matches("class=\"histogram\"").count(), 1 + own);
    assert!(drawn.contains(&format!("{test}/layers/{}", at + 1)) && drawn.len() < 100_000);
    let listed = page(house, person, test).await;
    assert!(listed.contains(&format!("{test}/layers/{}", layers.len() - 1)) && listed.len() < 100_000);
    for bad in [format!("{test}/layers/{}", layers.len()), format!("{test}/layers/x")] {
        assert_eq!(person.request(house, "GET", &bad).send().await.unwrap().status(), 404);
    }
    let none = format!("/api/v1{test}/weights-999");
    assert_eq!(person.request(house, "GET", &none).send().await.unwrap().status(), 404);
}

/// Asks about a folder or a document, and waits for the answer.
async fn asked_about(house: &House, person: &Person, path: &str, place: &str) -> (String, Value) {
    let (status, asked) = person.ask(house, "POST", &format!("{path}/infer"), &json!({ "path": place })).await;
    assert_eq!(status, 201, "{asked}");
    let test = format!("{path}/tests/{}", asked["id"].as_str().unwrap());
    let answer = eventually("all are answered", async || {
        let found = person.get(house, &test).await;
        assert_ne!(found["state"], "failed", "{found}");
        (found["state"] == "answered").then_some(found)
    })
    .await;
    (test, answer)
}

/// The validation images of a dataset as files in a folder of the person's, by their paths in the manifest.
async fn laid_out(house: &House, person: &Person, dataset: &str, folder: &Path) -> BTreeMap<String, PathBuf> {
    fs::create_dir_all(folder.join("images")).unwrap();
    let rows = person.get(house, &format!("/datasets/{dataset}/items?split=val&limit=100")).await;
    let mut files = BTreeMap::new();
    for (number, row) in rows["items"].as_array().unwrap().iter().enumerate() {
        let picture = format!("/api/v1/datasets/{dataset}/items/{}/picture?full=true", row["row"]);
        let bytes = person.request(house, "GET", &picture).send().await.unwrap().bytes().await.unwrap();
        let file = folder.join(format!("images/{number:02}.png"));
        fs::write(&file, bytes).unwrap();
        files.insert(row["path"].as_str().unwrap().to_owned(), file);
    }
    files
}

/// The validation images with their boxes as YOLO has them, and as COCO: scored as the validation was.
async fn scored_on_boxes(house: &House, person: &Person, (dataset, path): (&str, &str), items: &[Value]) {
    let folder = PathBuf::from(format!("/home/ly-{}/street", person.name));
    let files = laid_out(house, person, dataset, &folder).await;
    fs::create_dir_all(folder.join("labels")).unwrap();
    // Other numbers than the model has, and a class that it does not have.
    let names = ["triangle", "star", "circle", "square"];
    fs::write(folder.join("classes.txt"), names.join("\n")).unwrap();
    let (mut images, mut annotations) = (Vec::new(), Vec::new());
    for one in items {
        let file = &files[one["path"].as_str().unwrap()];
        let mut lines = Vec::new();
        images.push(json!({ "id": images.len(), "file_name": file.file_name().unwrap().to_string_lossy() }));
        for found in one["truth"].as_array().unwrap() {
            let class = names.iter().position(|name| found["class"] == *name).unwrap();
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|side| found[side].as_f64().unwrap());
            let parts = [x + width / 2.0, y + height / 2.0, width, height].map(|side| (side / 48.0).to_string());
            lines.push(format!("{class} {}\n", parts.join(" ")));
            annotations.push(json!({ "id": annotations.len(), "image_id": images.len() - 1, "category_id": class,
                "bbox": [x, y, width, height], "area": width * height, "iscrowd": 0 }));
        }
        let label = folder.join("labels").join(file.with_extension("txt").file_name().unwrap());
        fs::write(label, lines.concat()).unwrap();
    }
    let (test, answer) = asked_about(house, person, path, "~/street").await;
    let there = person.get(house, &format!("{path}/evaluation")).await;
    for measure in ["map50", "map50_95", "f1", "boxes", "predicted", "pictures"] {
        let [here, there] =
            [&answer["evaluation"], &there].map(|found| found["metrics"][measure].as_f64().unwrap_or(40.0));
        assert!((here - there).abs() < 1e-3, "{measure}: {here} and {there}");
    }
    assert_eq!((&answer["labels"]["source"], &answer["labels"]["scored"]), (&json!("yolo"), &json!(40)));
    let count = |list: &str, of: &Value| {
        of["answers"].as_array().unwrap().iter().map(|one| one[list].as_array().unwrap().len()).sum::<usize>()
    };
    assert_eq!(count("truth", &answer), annotations.len());
    let drawn = one_line(&page(house, person, &test).await);
    assert!(drawn.contains("Evaluation") && drawn.contains("Ground truth") && drawn.contains("Precision"), "{drawn}");
    let table =
        person.request(house, "GET", &format!("/api/v1{test}")).header("accept", "text/csv").send().await.unwrap();
    let table = table.text().await.unwrap();
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    assert_eq!(reader.records().filter(|record| &record.as_ref().unwrap()[8] == "true").count(), annotations.len());

    // A document stands for the images that it lists. One of them has a box of a class that is unknown.
    annotations
        .push(json!({ "id": 9999, "image_id": 0, "category_id": 1, "bbox": [1, 1, 9, 9], "area": 81, "iscrowd": 0 }));
    let categories: Vec<Value> = (0..).zip(names).map(|(id, name)| json!({ "id": id, "name": name })).collect();
    let document = json!({ "images": images[..39], "annotations": annotations, "categories": categories });
    fs::write(folder.join("instances.json"), document.to_string()).unwrap();
    let (_, listed) = asked_about(house, person, path, "~/street/instances.json").await;
    assert_eq!((&listed["labels"]["source"], &listed["labels"]["scored"]), (&json!("coco"), &json!(39)), "{listed}");
    assert_eq!(listed["labels"]["unknown"], json!([{ "class": "star", "count": 1 }]));

    // Without a file of boxes an image is not scored; with an empty one it has no objects.
    fs::remove_file(folder.join("instances.json")).unwrap();
    fs::remove_file(folder.join("labels/00.txt")).unwrap();
    fs::write(folder.join("labels/01.txt"), "").unwrap();
    let (test, fewer) = asked_about(house, person, path, "~/street").await;
    assert_eq!((&fewer["labels"]["scored"], &fewer["labels"]["unscored"]), (&json!(39), &json!(1)));
    assert_eq!(
        (&fewer["answers"][0]["unscored"], &fewer["answers"][1]["truth"]),
        (&json!("no file of boxes"), &json!([]))
    );
    assert!(one_line(&page(house, person, &test).await).contains("Images that are not scored"));
    let leftover = |name: &str| {
        fs::read_dir(format!("/home/ly-{}/runs", person.name))
            .unwrap()
            .any(|run| run.unwrap().path().join(name).exists())
    };
    assert!(!leftover("labels") && leftover("labels.txt"), "the evaluation set is removed");
    // Labels that say nothing are no reason not to predict.
    fs::write(folder.join("classes.txt"), "cat\ndog\ncow\nhen").unwrap();
    let (test, strange) = asked_about(house, person, path, "~/street").await;
    assert!(strange["labels"]["reason"].as_str().unwrap().contains("is a class of the model"), "{}", strange["labels"]);
    assert!(strange["evaluation"].is_null() && strange["answers"].as_array().unwrap().len() == 40);
    assert!(one_line(&page(house, person, &test).await).contains("The labels cannot be used"));
}

/// The validation images with their masks in a folder beside them: scored as the validation was.
async fn scored_on_masks(house: &House, person: &Person, (dataset, path): (&str, &str), directory: &str) {
    let folder = PathBuf::from(format!("/home/ly-{}/street", person.name));
    let files = laid_out(house, person, dataset, &folder).await;
    fs::create_dir_all(folder.join("masks")).unwrap();
    let masks = fs::read(Path::new(directory).join("cache/masks.npy")).unwrap();
    let masks = &masks[masks.len() % (48 * 48)..];
    let mut manifest = csv::Reader::from_path(Path::new(directory).join("manifest.csv")).unwrap();
    for (row, record) in manifest.records().enumerate() {
        let Some(file) = files.get(&record.unwrap()[0]) else { continue };
        let mask = masks[row * 48 * 48..(row + 1) * 48 * 48].to_vec();
        let mask = image::GrayImage::from_raw(48, 48, mask).unwrap();
        mask.save(folder.join("masks").join(file.file_name().unwrap())).unwrap();
    }
    fs::remove_file(folder.join("masks/00.png")).unwrap();
    let (test, answer) = asked_about(house, person, path, "~/street").await;
    let labels = &answer["labels"];
    assert_eq!((&labels["source"], &labels["scored"], &labels["unscored"]), (&json!("masks"), &json!(39), &json!(1)));
    let answers = answer["answers"].as_array().unwrap();
    assert_eq!((answers.len(), &answers[0]["unscored"]), (40, &json!("no mask in masks/")));
    let there = person.get(house, &format!("{path}/predictions?limit=500")).await;
    let iou = |one: &Value| one["iou"].as_f64().unwrap();
    let by_path: BTreeMap<&Path, f64> = there["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (files[one["path"].as_str().unwrap()].as_path(), iou(one)))
        .collect();
    for one in &answers[1..] {
        let there = by_path[Path::new(one["path"].as_str().unwrap())];
        assert!((iou(one) - there).abs() < 1e-4, "{one} and {there}");
    }
    let evaluation = &answer["evaluation"];
    assert!(
        evaluation["metrics"]["iou"].as_f64().unwrap() > 0.1 && evaluation["classes"][0]["measures"]["iou"].is_f64(),
        "{evaluation}"
    );
    assert_eq!(png(house, person, &format!("/api/v1{test}/truth-1")).await.dimensions(), (48, 48));
    let drawn = one_line(&page(house, person, &test).await);
    assert!(drawn.contains(&format!("{test}/truth-1")) && drawn.contains("Ground truth"), "{drawn}");
}

/// Any checkpoint becomes a bundle, and a bundle a model.
async fn exported_and_imported(house: &House, person: &Person, path: &str) {
    let snapshots = person.get(house, &format!("{path}/snapshots")).await;
    let listed = snapshots["snapshots"].as_array().unwrap();
    let file = listed.iter().map(|one| &one["file"]).find(|file| **file != snapshots["best"]);
    let file = file.unwrap_or(&snapshots["best"]).as_str().unwrap();
    let exports = format!("{path}/exports");
    assert_eq!(person.get(house, &exports).await["items"], json!([]));
    let nothing = json!({ "snapshot": "epoch-00099.keras" });
    assert_eq!(person.ask(house, "POST", &exports, &nothing).await.0, 422);
    let (status, asked) = person.ask(house, "POST", &exports, &json!({ "snapshot": file })).await;
    assert_eq!(status, 201, "{asked}");
    let bundle = eventually("the export", async || {
        person.get(house, &exports).await["items"][0]["bundle"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(bundle, asked["bundle"].as_str().unwrap());
    let bytes = person.request(house, "GET", &bundle).send().await.unwrap().bytes().await.unwrap();
    let home = PathBuf::from(format!("/home/ly-{}", person.name));
    fs::write(home.join("bundle.tar"), &bytes).unwrap();

    let wrong = json!({ "name": "again", "path": "~/nothing.tar" });
    assert_eq!(person.ask(house, "POST", "/models/imports", &wrong).await.1["errors"][0]["field"], "path");
    let new = json!({ "name": "again", "path": "~/bundle.tar" });
    let (status, made) = person.ask(house, "POST", "/models/imports", &new).await;
    assert_eq!((status, &made["kind"], &made["network"]), (201, &json!("detection"), &json!("imported")), "{made}");
    let again = format!("/models/{}", made["id"].as_str().unwrap());
    let model = trained(house, person, &again).await;
    assert_eq!((&model["dataset"], &model["snapshots"]), (&Value::Null, &json!(1)));
    let asks = async |path: &str| {
        let picture = json!({ "path": home.join("uploads") });
        let (status, asked) = person.ask(house, "POST", &format!("{path}/infer"), &picture).await;
        assert_eq!(status, 201, "{asked}");
        let test = format!("{path}/tests/{}", asked["id"].as_str().unwrap());
        eventually("the answer", async || {
            let found = person.get(house, &test).await;
            assert_ne!(found["state"], "failed", "{found}");
            (found["state"] == "answered").then_some(found["answer"]["boxes"].clone())
        })
        .await
    };
    assert!(asks(&again).await.is_array());
    let page = one_line(&page(house, person, &again).await);
    assert!(page.contains("Imported from") && page.contains("Download bundle"), "{page}");
}

#[tokio::test]
async fn masks_are_listed_and_drawn_beside_the_true_ones() {
    let Some(house) = house().await else { return };
    let (person, other) = (house.person(), house.person());
    let (dataset, path) = learnt(&house, &person, "segmentation").await;
    let found = person.get(&house, &format!("{path}/predictions?limit=500")).await;
    let items = found["items"].as_array().unwrap();
    assert_eq!((found["total"].as_u64(), items.len()), (Some(40), 40));
    for one in items {
        let sum: f64 = one["classes"].as_array().unwrap().iter().map(|part| part["share"].as_f64().unwrap()).sum();
        assert!(one["kind"] == "segmentation" && (sum - 1.0).abs() < 1e-3, "{one}");
    }
    let ious: Vec<f64> = items.iter().map(|one| one["iou"].as_f64().unwrap()).collect();
    assert!(ious.is_sorted(), "the worst first: {ious:?}");
    let address = items[0]["mask"].as_str().unwrap();
    assert_eq!(png(&house, &person, address).await.dimensions(), (48, 48));
    assert_eq!(other.request(&house, "GET", address).send().await.unwrap().status(), 404);
    let drawn = page(&house, &person, &format!("{path}/predictions")).await;
    assert!(drawn.contains(address) && drawn.contains("/mask?v=") && drawn.contains("class=\"legend\""), "{drawn}");

    let (test, answer) = asked(&house, &person, (&dataset, &path)).await;
    assert!(answer["answer"]["share"]["background"].as_f64().unwrap() > 0.0, "{answer}");
    assert_eq!(png(&house, &person, &format!("/api/v1{test}/mask-0")).await.dimensions(), (48, 48));
    let drawn = one_line(&page(&house, &person, &test).await);
    assert!(drawn.contains(&format!("{test}/mask-0")) && drawn.contains("class=\"legend\""), "{drawn}");
    let directory = person.get(&house, &format!("/datasets/{dataset}")).await["directory"].as_str().unwrap().to_owned();
    scored_on_masks(&house, &person, (&dataset, &path), &directory).await;
}
