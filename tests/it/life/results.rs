//! What a detector and a segmentation found, on the real program: the fields of predictions, the masks as
//! images, the curves, and pages on which boxes and masks are drawn beside the truth. A checkpoint of the
//! detector is exported, downloaded, and imported as a model that finds the same.

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
    exported_and_imported(&house, &person, &path).await;
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
    let home = std::path::PathBuf::from(format!("/home/ly-{}", person.name));
    std::fs::write(home.join("bundle.tar"), &bytes).unwrap();

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
}
