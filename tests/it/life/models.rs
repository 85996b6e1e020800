//! A model's life on the real program, as a real user: shapes are drawn, a network learns them
//! with the trainer's own Python in a job, what it left is read, it is asked about a picture, and
//! its bundle is downloaded. The Python is `LYCEUM_TEST_PYTHON`'s, which `./test` provides.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{House, Person, eventually};
use crate::needs::{met, variable};

/// A portal whose default environment has Keras.
pub async fn house() -> Option<House> {
    house_with("").await
}

/// The same with further settings.
async fn house_with(more: &str) -> Option<House> {
    let python = variable("LYCEUM_TEST_PYTHON");
    if !crate::needs::root() || !met("a Python with Keras (LYCEUM_TEST_PYTHON)", python.is_some()) {
        return None;
    }
    let mut house = House::new(&[]);
    house.configure(&format!("[[environments.list]]\nname = 'default'\npython = '{}'\n{more}", python?));
    house.lend_compiled();
    house.start().await;
    Some(house)
}

/// The id of a dataset that is ready.
pub async fn made(house: &House, person: &Person, name: &str, spec: Value) -> String {
    let (status, made) = person.ask(house, "POST", "/datasets", &json!({ "name": name, "spec": spec })).await;
    assert_eq!(status, 201, "{made}");
    let path = format!("/datasets/{}", made["id"].as_str().unwrap());
    let ready = async || Some(person.get(house, &path).await).filter(|found| found["state"] == "ready");
    eventually("the dataset is there", ready).await["id"].as_str().unwrap().to_owned()
}

pub async fn shapes(house: &House, person: &Person) -> String {
    let spec =
        json!({ "kind": "classification", "source": { "kind": "generated", "count": 240 }, "width": 28, "height": 28 });
    made(house, person, "shapes", spec).await
}

/// Waits for the end of a training; any other end fails at once.
pub async fn trained(house: &House, person: &Person, path: &str) -> Value {
    eventually("it is trained", async || {
        let found = person.get(house, path).await;
        assert!(found["state"] == "training" || found["state"] == "trained", "{found}");
        (found["state"] == "trained").then_some(found)
    })
    .await
}

pub async fn train(house: &House, person: &Person, request: Value) -> String {
    let (status, made) = person.ask(house, "POST", "/models", &request).await;
    assert_eq!((status, &made["state"]), (201, &json!("training")), "{made}");
    format!("/models/{}", made["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_model_learns_is_measured_asked_and_taken_away() {
    let Some(house) = house().await else { return };
    let (person, other) = (house.person(), house.person());
    let dataset = shapes(&house, &person).await;

    let wrong = json!({ "name": "x", "dataset": dataset, "config": { "epochs": 0, "output": "/tmp", "network": { "name": "net" } } });
    let (status, said) = person.ask(&house, "POST", "/models", &wrong).await;
    let fields: Vec<&str> =
        said["errors"].as_array().unwrap().iter().map(|one| one["field"].as_str().unwrap()).collect();
    assert_eq!((status, fields), (422, vec!["config.output", "config.epochs", "config.network.name"]), "{said}");
    let unseen = json!({ "name": "x", "dataset": dataset });
    assert_eq!(other.ask(&house, "POST", "/models", &unseen).await.1["errors"][0]["field"], "dataset");

    let config = json!({ "network": { "name": "small-cnn" }, "epochs": 3, "batch_size": 16, "seed": 1,
        "optimizer": { "name": "adam" }, "learning_rate": { "base": 0.003, "policy": "cosine" } });
    let request = json!({ "name": "shapes by cnn", "dataset": dataset, "config": config });
    let path = train(&house, &person, request).await;
    assert_eq!(person.ask(&house, "DELETE", &path, &Value::Null).await.0, 409, "it is being trained");
    let first = async || person.get(&house, &format!("{path}/snapshots")).await["best"].as_str().map(str::to_owned);
    eventually("the first snapshot", first).await;
    let model = trained(&house, &person, &path).await;
    assert_eq!((&model["metric"], &model["config"]["epochs"]), (&json!("accuracy"), &json!(3)));

    // What is told is what a count of the predictions comes to.
    let snapshots = person.get(&house, &format!("{path}/snapshots")).await;
    let best = snapshots["snapshots"].as_array().unwrap().iter().find(|one| one["file"] == snapshots["best"]).unwrap();
    assert_eq!(best["metrics"]["accuracy"], model["best"]);
    let measured = person.get(&house, &format!("{path}/evaluation")).await;
    let all = person.get(&house, &format!("{path}/predictions?limit=500")).await;
    let items = all["items"].as_array().unwrap();
    let right = items.iter().filter(|one| one["label"] == one["predicted"]).count();
    let accuracy = measured["metrics"]["accuracy"].as_f64().unwrap();
    assert!((accuracy - share(right, items.len())).abs() < 1e-9, "{accuracy}: {right} of {}", items.len());
    assert!((accuracy - model["best"].as_f64().unwrap()).abs() < 1e-6, "the best snapshot is what was measured");
    let classes = measured["confusion"]["classes"].as_array().unwrap();
    for (label, row) in classes.iter().zip(measured["confusion"]["counts"].as_array().unwrap()) {
        for (predicted, count) in classes.iter().zip(row.as_array().unwrap()) {
            let (label, predicted) = (label.as_str().unwrap(), predicted.as_str().unwrap());
            let cell = person.get(&house, &format!("{path}/predictions?label={label}&predicted={predicted}")).await;
            assert_eq!(&cell["total"], count, "{label} as {predicted}");
        }
    }
    assert_eq!(person.ask(&house, "GET", &format!("{path}/evaluation?split=test"), &Value::Null).await.0, 409);

    // The curves are the job's.
    let job = model["job"].as_str().unwrap();
    let read = async || {
        let metrics = person.get(&house, &format!("/jobs/{job}/metrics")).await;
        metrics["complete"].as_bool().unwrap_or_default().then_some(metrics)
    };
    let metrics = eventually("all curves are read", read).await.to_string();
    assert!(metrics.contains("validation") && metrics.contains("learning_rate"), "{metrics}");

    // One of its own pictures, sent as it is.
    let row = &person.get(&house, &format!("/datasets/{dataset}/items?split=val&limit=1")).await["items"][0];
    let picture = format!("/api/v1/datasets/{dataset}/items/{}/picture?full=true", row["row"]);
    let bytes = person.request(&house, "GET", &picture).send().await.unwrap().bytes().await.unwrap();
    let sent = person
        .request(&house, "POST", &format!("/api/v1{path}/infer?name=one%20shape.png"))
        .header("content-type", "image/png");
    let sent = sent.body(bytes.clone()).send().await.unwrap();
    assert_eq!(sent.status(), 201);
    let asked: Value = sent.json().await.unwrap();
    assert!(asked["picture"].as_str().unwrap().ends_with("-one-shape.png"), "{asked}");
    let test = format!("{path}/tests/{}", asked["id"].as_str().unwrap());
    let answer = eventually("the answer", async || {
        let found = person.get(&house, &test).await;
        assert_ne!(found["state"], "failed", "{found}");
        (found["state"] == "answered").then_some(found)
    })
    .await;
    let top = answer["answer"]["top"].as_array().unwrap();
    let sum: f64 = top.iter().map(|one| one["probability"].as_f64().unwrap()).sum();
    assert!(top.len() == classes.len() && (sum - 1.0).abs() < 1e-3, "{answer}");
    let told = items.iter().find(|one| one["path"] == row["path"]).unwrap();
    assert_eq!(top[0]["class"], told["predicted"], "the same as in the evaluation");
    assert_eq!((&told["kind"], &told["scores"][0]["class"]), (&json!("classification"), &told["predicted"]));
    assert_eq!((&told["scores"][0]["score"], told["scores"].as_array().unwrap().len()), (&told["confidence"], 3));
    let curves = person.get(&house, &format!("{path}/curves")).await;
    assert!(curves["roc"][0]["auc"].as_f64().unwrap() > 0.5 && curves["calibration"]["bins"][0]["count"].is_u64());
    let inside =
        async || Some(person.get(&house, &test).await).filter(|found| found["inspection"]["layers"].is_array());
    eventually("what its layers make of it", inside).await;
    for drawing in ["seen", "grad-cam"] {
        let answer = person.request(&house, "GET", &format!("/api/v1{test}/{drawing}")).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.headers()["content-type"]), (200, &"image/png".parse().unwrap()));
        image::load_from_memory(&answer.bytes().await.unwrap()).unwrap();
    }
    for bad in ["999", "..%2f..%2fx", "x"] {
        assert_eq!(person.request(&house, "GET", &format!("/api/v1{test}/{bad}")).send().await.unwrap().status(), 404);
    }
    served(&house, (&person, &other), &model, (&bytes, &top[0])).await;
    let nothing = json!({ "path": "~/nothing.png" });
    assert_eq!(person.ask(&house, "POST", &format!("{path}/infer"), &nothing).await.0, 422);
    assert_eq!(other.ask(&house, "GET", &test, &Value::Null).await.0, 404);
    assert_eq!(other.ask(&house, "GET", &path, &Value::Null).await.0, 404);

    let bundle = person.request(&house, "GET", model["bundle"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(bundle.status(), 200);
    let bundle = bundle.bytes().await.unwrap();
    let names = "model.keras model.safetensors model.onnx labels.txt preprocessing.json README.md SHA256SUMS";
    for name in names.split(' ') {
        assert!(bundle.windows(name.len()).any(|part| part == name.as_bytes()), "{name} is in the bundle");
    }

    let (status, _) = person.ask(&house, "DELETE", &format!("{path}?files=true"), &Value::Null).await;
    assert_eq!(status, 204);
    assert!(!Path::new(model["directory"].as_str().unwrap()).exists());
}

/// A session that answers pictures: the same as the model was asked before, to its owner alone.
async fn served(house: &House, (person, other): (&Person, &Person), model: &Value, (picture, top): (&[u8], &Value)) {
    for (options, field) in [
        (json!({}), "options.log_directory"),
        (json!({ "log_directory": "~/nothing-here" }), "options.log_directory"),
        (json!({ "log_directories": { "a": model["directory"] } }), "options.log_directories"),
    ] {
        let asked = json!({ "app": "model", "options": options });
        let (status, said) = person.ask(house, "POST", "/sessions", &asked).await;
        assert_eq!((status, &said["errors"][0]["field"]), (422, &json!(field)), "{said}");
    }
    let asked = json!({ "app": "model", "options": { "log_directory": model["directory"] } });
    let id = person.start(house, asked).await;
    person.state(house, id, "running").await;
    let predict = |whom: &Person| whom.request(house, "POST", &format!("/s/{id}/predict?top=1")).body(picture.to_vec());
    let answer: Value = predict(person).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["top"][0]["class"], top["class"], "{answer}");
    let (here, there) = (&answer["top"][0]["probability"], &top["probability"]);
    assert!((here.as_f64().unwrap() - there.as_f64().unwrap()).abs() < 1e-4, "{here} {there}");
    assert_eq!(predict(other).send().await.unwrap().status(), 404);
    let about = person.visit(house, id, "/model").await;
    assert_eq!((about.0, &about.1["task"], &about.1["runtime"]), (200, &json!("classification"), &json!("onnx")));
    person.end(house, id).await;
}

/// The digits of scikit-learn as pictures in somebody's home, a folder for each.
fn digits(person: &Person) {
    const WRITE: &str = "
import pathlib, sys
from PIL import Image
from sklearn.datasets import load_digits
found = load_digits()
for number, (pixels, digit) in enumerate(zip(found.images, found.target)):
    folder = pathlib.Path(sys.argv[1]) / str(digit)
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray((pixels * 15.9375).astype('uint8')).save(folder / f'{number:04d}.png')
";
    let to = PathBuf::from(format!("/home/ly-{}/digits", person.name));
    let python = variable("LYCEUM_TEST_PYTHON").unwrap();
    let status = Command::new(python).args(["-c", WRITE]).arg(&to).status().unwrap();
    assert!(status.success());
}

fn share(part: usize, of: usize) -> f64 {
    f64::from(u32::try_from(part).unwrap()) / f64::from(u32::try_from(of).unwrap())
}

/// How often a class was taken for another.
type Counts = BTreeMap<(String, String), u64>;

/// The predictions file counted by itself: the matrix, and pictures by whether they are answered rightly.
fn recount(directory: &str) -> (Counts, Vec<(f64, bool)>) {
    let path = Path::new(directory).join("eval/val/predictions.csv");
    let mut counts = Counts::new();
    let mut sure = Vec::new();
    for record in csv::Reader::from_path(path).unwrap().records() {
        let record = record.unwrap();
        *counts.entry((record[1].to_owned(), record[2].to_owned())).or_default() += 1;
        sure.push((record[3].parse().unwrap(), record[1] == record[2]));
    }
    (counts, sure)
}

/// Eight pictures that are augmented, and the layers, of a training that is not begun.
async fn looked_at_first(house: &House, person: &Person, request: &Value) {
    let mut request = request.clone();
    request["config"]["augmentation"] = json!({ "rotate": 30, "noise": 0.2 });
    let (status, asked) = person.ask(house, "POST", "/models/previews", &request).await;
    assert_eq!((status, &asked["state"]), (201, &json!("waiting")), "{asked}");
    let path = format!("/models/previews/{}", asked["id"].as_str().unwrap());
    let found = eventually("what it would be", async || {
        let found = person.get(house, &path).await;
        assert_ne!(found["state"], "failed", "{found}");
        (found["state"] == "ready").then_some(found)
    })
    .await;
    assert_eq!(found["samples"].as_array().unwrap().len(), 8);
    assert!(found["layers"]["layers"].as_array().unwrap().iter().any(|layer| layer["type"] == "Conv2D"), "{found}");
    let mut drawn = Vec::new();
    for side in ["original-3", "augmented-3"] {
        let answer = person.request(house, "GET", &format!("/api/v1{path}/{side}")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        drawn.push(image::load_from_memory(&answer.bytes().await.unwrap()).unwrap().into_luma8());
    }
    assert_eq!(drawn[0].dimensions(), (28, 28));
    assert_ne!(drawn[0], drawn[1]);
    assert_eq!(person.get(house, "/models").await["items"], json!([]), "nothing is trained");
}

/// All zeros and a page of the web: the answers as JSON and as a table.
async fn asked_about_a_folder(house: &House, person: &Person, model: &str) {
    let folder = PathBuf::from(format!("/home/ly-{}/digits/0", person.name));
    fs::write(folder.join("page.png"), "<html></html>").unwrap();
    let count = fs::read_dir(&folder).unwrap().count();
    let ask = json!({ "path": "~/digits/0" });
    let (status, _) = person.ask(house, "POST", &format!("{model}/infer?top=0"), &ask).await;
    assert_eq!(status, 422);
    let (status, asked) = person.ask(house, "POST", &format!("{model}/infer?top=3"), &ask).await;
    assert_eq!(status, 201, "{asked}");
    let path = format!("{model}/tests/{}", asked["id"].as_str().unwrap());
    let found = eventually("all are answered", async || {
        let found = person.get(house, &path).await;
        assert_ne!(found["state"], "failed", "{found}");
        (found["state"] == "answered").then_some(found)
    })
    .await;
    let answers = found["answers"].as_array().unwrap();
    assert_eq!(answers.len(), count);
    let (broken, good): (Vec<&Value>, Vec<&Value>) = answers.iter().partition(|one| one["error"].is_string());
    assert!(broken.len() == 1 && broken[0]["path"].as_str().unwrap().ends_with("/page.png"), "{broken:?}");
    assert!(good.iter().all(|one| one["top"].as_array().unwrap().len() == 3));
    let zeros = good.iter().filter(|one| one["top"][0]["class"] == "0").count();
    assert!(zeros * 10 > good.len() * 9, "{zeros} of {}", good.len());
    let table =
        person.request(house, "GET", &format!("/api/v1{path}")).header("accept", "text/csv").send().await.unwrap();
    let table = table.text().await.unwrap();
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    assert_eq!(reader.headers().unwrap().len(), 2 + 2 * 3);
    assert_eq!(reader.records().filter(|record| &record.as_ref().unwrap()[2] == "0").count(), zeros);
}

/// All digits, each in the folder of its class: they are scored as a count of the answers says.
async fn scored_by_their_folders(house: &House, person: &Person, model: &str) {
    let (status, asked) =
        person.ask(house, "POST", &format!("{model}/infer?top=1"), &json!({ "path": "~/digits" })).await;
    assert_eq!(status, 201, "{asked}");
    let path = format!("{model}/tests/{}", asked["id"].as_str().unwrap());
    let found = eventually("all are answered", async || {
        let found = person.get(house, &path).await;
        assert_ne!(found["state"], "failed", "{found}");
        (found["state"] == "answered").then_some(found)
    })
    .await;
    let answers = found["answers"].as_array().unwrap();
    let scored: Vec<&Value> = answers.iter().filter(|one| one["top"].is_array()).collect();
    let right = scored.iter().filter(|one| one["label"] == one["top"][0]["class"]).count();
    let evaluation = &found["evaluation"];
    assert_eq!(evaluation["metrics"]["pictures"].as_f64(), Some(f64::from(u32::try_from(scored.len()).unwrap())));
    assert!((evaluation["metrics"]["accuracy"].as_f64().unwrap() - share(right, scored.len())).abs() < 1e-9);
    let counts: Vec<Vec<u64>> = serde_json::from_value(evaluation["confusion"]["counts"].clone()).unwrap();
    assert_eq!(counts.iter().flatten().sum::<u64>(), scored.len() as u64);
    let table =
        person.request(house, "GET", &format!("/api/v1{path}")).header("accept", "text/csv").send().await.unwrap();
    let table = table.text().await.unwrap();
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    assert_eq!(reader.headers().unwrap().iter().skip(2).take(2).collect::<Vec<_>>(), ["label", "correct"]);
    assert_eq!(reader.records().filter(|record| &record.as_ref().unwrap()[3] == "true").count(), right);
    let page = person.request(house, "GET", &path).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("Confusion matrix") && page.contains("Reliability diagram"), "{page}");
}

/// By a job of its owner's alone; a failure leaves the table.
async fn measured_in_fewer_bits(house: &House, (person, other): (&Person, &Person), model: &str, dataset: &str) {
    let path = format!("{model}/precisions");
    assert_eq!(person.get(house, &path).await["state"], "none");
    assert_eq!(other.ask(house, "POST", &path, &json!({})).await.0, 404);
    let nowhere = json!({ "environment": "nowhere" });
    assert_eq!(person.ask(house, "POST", &path, &nowhere).await.0, 422);
    let ended = async |state: &str| {
        let (status, asked) = person.ask(house, "POST", &path, &json!({})).await;
        assert_eq!((status, &asked["state"]), (201, &json!("waiting")), "{asked}");
        assert_eq!(person.ask(house, "POST", &path, &json!({})).await.0, 409, "one at a time");
        let read = async || Some(person.get(house, &path).await).filter(|found| found["state"] != "waiting");
        let found = eventually("the end of its measurement", read).await;
        assert_eq!(found["state"], state, "{found}");
        found
    };
    let found = ended("measured").await;
    let best = person.get(house, model).await["best"].as_f64().unwrap();
    let rows = found["measured"]["precisions"].as_array().unwrap();
    assert_eq!(
        rows.iter().map(|row| row["precision"].as_str().unwrap()).collect::<Vec<_>>(),
        ["float32", "float16", "int8"]
    );
    let accuracy = |row: &Value| row["metrics"]["accuracy"].as_f64();
    assert!((accuracy(&rows[0]).unwrap() - best).abs() < 1e-6 && rows[0]["latency_ms"].as_f64() > Some(0.0), "{found}");
    for row in &rows[1..] {
        assert!(accuracy(row).is_some_and(|found| (found - best).abs() < 0.05), "{row}");
    }

    let directory = person.get(house, &format!("/datasets/{dataset}")).await["directory"].as_str().unwrap().to_owned();
    let (about, away) = (format!("{directory}/dataset.json"), format!("{directory}/away.json"));
    fs::rename(&about, &away).unwrap();
    let failed = ended("failed").await;
    assert!(failed["detail"].as_str().unwrap().contains("not a complete dataset"), "{failed}");
    assert_eq!(failed["measured"], found["measured"]);
    fs::rename(&away, &about).unwrap();
}

/// `LeNet` reads the digits; its matrix, its mistakes and its thresholds are those of a recount; a
/// second training goes on from it and knows where it comes from.
#[tokio::test]
async fn lenet_reads_digits_and_is_gone_on_from() {
    let Some(house) = house().await else { return };
    let (person, other) = (house.person(), house.person());
    digits(&person);
    let source = json!({ "kind": "folder", "path": "~/digits" });
    let spec = json!({ "kind": "classification", "source": source, "width": 28, "height": 28, "channels": 1 });
    let dataset = made(&house, &person, "digits", spec).await;
    let config = json!({ "network": { "name": "lenet" }, "epochs": 8, "batch_size": 32, "seed": 1,
        "optimizer": { "name": "adam" }, "learning_rate": { "base": 0.002, "policy": "cosine" } });
    let request = json!({ "name": "digits by LeNet", "dataset": dataset, "config": config });
    looked_at_first(&house, &person, &request).await;
    let path = train(&house, &person, request).await;
    let model = trained(&house, &person, &path).await;
    assert!(model["best"].as_f64().unwrap() >= 0.95, "{model}");

    let (counts, sure) = recount(model["directory"].as_str().unwrap());
    let measured = person.get(&house, &format!("{path}/evaluation")).await;
    let classes: Vec<String> = serde_json::from_value(measured["confusion"]["classes"].clone()).unwrap();
    let told: Vec<Vec<u64>> = serde_json::from_value(measured["confusion"]["counts"].clone()).unwrap();
    for (label, row) in classes.iter().zip(&told) {
        for (predicted, count) in classes.iter().zip(row) {
            let counted = counts.get(&(label.clone(), predicted.clone())).copied().unwrap_or_default();
            assert_eq!(*count, counted, "{label} as {predicted}");
        }
    }
    assert_eq!(told.iter().flatten().sum::<u64>(), sure.len() as u64);
    let right = sure.iter().filter(|(_, right)| *right).count();
    let accuracy = measured["metrics"]["accuracy"].as_f64().unwrap();
    assert!((accuracy - share(right, sure.len())).abs() < 1e-9);
    let mistakes = person.get(&house, &format!("{path}/predictions?wrong=true")).await;
    assert_eq!(mistakes["total"], json!(sure.len() - right));
    let thresholds = person.get(&house, &format!("{path}/thresholds")).await;
    for index in [0, 50, 90, 99] {
        let from = share(index, 100);
        let above: Vec<_> = sure.iter().filter(|(confidence, _)| *confidence >= from).collect();
        let right = above.iter().filter(|(_, right)| *right).count();
        let told = (&thresholds["answered"][index], &thresholds["right"][index]);
        assert_eq!(told, (&json!(above.len()), &json!(right)), "from {index} %");
    }
    let layers = person.get(&house, &format!("{path}/layers")).await;
    assert!(layers["parameters"]["total"].as_u64().unwrap() > 10_000 && layers["macs"].as_u64().unwrap() > 100_000);

    asked_about_a_folder(&house, &person, &path).await;
    scored_by_their_folders(&house, &person, &path).await;
    measured_in_fewer_bits(&house, (&person, &other), &path, &dataset).await;

    // Fine-tuned by itself, it knows its parent, and the parent its child.
    let best = person.get(&house, &format!("{path}/snapshots")).await["best"].as_str().unwrap().to_owned();
    let from = format!("{}/checkpoints/{best}", model["directory"].as_str().unwrap());
    let tune =
        json!({ "network": { "pretrained": from, "freeze": true }, "epochs": 1, "learning_rate": { "base": 0.0001 } });
    let request = json!({ "name": "once more", "dataset": dataset, "config": tune });
    let child = train(&house, &person, request).await;
    let tuned = trained(&house, &person, &child).await;
    assert_eq!((&tuned["parent"], &tuned["parent_snapshot"]), (&model["id"], &json!(best)));
    assert!(tuned["best"].as_f64().unwrap() >= 0.95, "it begins where the other ended: {tuned}");
    let lineage = person.get(&house, &format!("{child}/lineage")).await;
    assert_eq!(lineage["ancestors"][0]["name"], "digits by LeNet");
    let lineage = person.get(&house, &format!("{path}/lineage")).await;
    assert_eq!((&lineage["children"][0]["id"], &lineage["children"][0]["snapshot"]), (&tuned["id"], &json!(best)));

    // Shown to all, its lineage names nobody's private models.
    assert_eq!(person.ask(&house, "PATCH", &path, &json!({ "visibility": "everybody" })).await.0, 200);
    assert_eq!(other.get(&house, &format!("{path}/lineage")).await["children"], json!([]));
}

/// Where the person's own packages over the default environment lie, once a job has run in it.
fn own_packages(person: &Person) -> PathBuf {
    let only = |folder: PathBuf, begin: &str| -> PathBuf {
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
        let found = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(begin));
        found.map(|entry| entry.path()).next().unwrap_or_else(|| panic!("{begin} in {}", folder.display()))
    };
    let overlays = PathBuf::from(format!("/home/ly-{}/.local/share/lyceum/environments", person.name));
    only(only(overlays, "default-").join("lib"), "python").join("site-packages")
}

/// The same training on one device and on two: who sees both sees what the second one brought.
#[tokio::test]
async fn trainings_on_more_devices_are_compared() {
    let Some(house) = house().await else { return };
    let (person, other) = (house.person(), house.person());
    let dataset = shapes(&house, &person).await;
    let on = async |devices: u64| {
        let config =
            json!({ "network": { "name": "lenet" }, "epochs": 2, "batch_size": 16 * devices, "devices": devices });
        let request = json!({ "name": format!("on {devices}"), "dataset": dataset, "config": config });
        let path = train(&house, &person, request).await;
        let speed = trained(&house, &person, &path).await["speed"].clone();
        assert_eq!((&speed["devices"], &speed["batch_size"]), (&json!(devices), &json!(16 * devices)), "{speed}");
        (path, speed["images_per_second"].as_f64().unwrap())
    };
    let (one, slow) = on(1).await;
    assert_eq!(person.get(&house, &format!("{one}/scaling")).await["rows"], json!([]), "nothing to compare with");
    // The cores of this machine are two devices to whoever asks JAX for that, here in packages of one's own.
    let flags = "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'\n";
    fs::write(own_packages(&person).join("devices.pth"), flags).unwrap();
    let (_, fast) = on(2).await;
    let found = person.get(&house, &format!("{one}/scaling")).await;
    assert_eq!((&found["device"], &found["batch_per_device"]), (&json!("cpu"), &json!(16)), "{found}");
    let rows = found["rows"].as_array().unwrap();
    let number = |row: usize, field: &str| rows[row][field].as_f64().unwrap();
    assert_eq!(rows.iter().map(|row| row["name"].as_str().unwrap()).collect::<Vec<_>>(), ["on 1", "on 2"]);
    assert!((number(0, "efficiency") - 1.0).abs() < 1e-9 && (number(0, "images_per_second") - slow).abs() < 1e-6);
    assert!((number(1, "efficiency") - fast / 2.0 / slow).abs() < 1e-6, "{found}");
    // Of the second one nobody else learns, though the first is shown.
    assert_eq!(person.ask(&house, "PATCH", &one, &json!({ "visibility": "everybody" })).await.0, 200);
    assert_eq!(other.get(&house, &format!("{one}/scaling")).await["rows"], json!([]));
}

/// A network of one's own: what is wrong with it is told with its line before anything is trained;
/// then it learns, is shown, and another form begins with it.
#[tokio::test]
async fn a_network_of_ones_own_learns() {
    let Some(house) = house().await else { return };
    let person = house.person();
    let dataset = shapes(&house, &person).await;
    let request = |program: &str| {
        let config = json!({ "epochs": 1, "batch_size": 16, "learning_rate": { "base": 0.003 } });
        json!({ "name": "by my own", "dataset": dataset, "config": config, "program": program })
    };
    let look = async |program: &str| {
        let (status, asked) = person.ask(&house, "POST", "/models/previews", &request(program)).await;
        assert_eq!(status, 201, "{asked}");
        let path = format!("/models/previews/{}", asked["id"].as_str().unwrap());
        let found = async || Some(person.get(&house, &path).await).filter(|found| found["state"] != "waiting");
        eventually("what it would be", found).await
    };
    let wrong = look("import keras\n\ndef network(x, classes):\n    return keras.layers.Dense(0)(x)\n").await;
    let detail = wrong["detail"].as_str().unwrap();
    assert!(wrong["state"] == "failed" && detail.contains("network.file") && detail.contains("line 4"), "{wrong}");

    let program = lyceum::models::program::example("classification").replace('\n', "\r\n");
    let good = look(&program).await;
    assert!(good["layers"]["layers"].as_array().unwrap().iter().any(|one| one["name"] == "logits"), "{good}");
    let path = train(&house, &person, request(&program)).await;
    let model = trained(&house, &person, &path).await;
    assert_eq!(model["network"], "custom");
    assert_eq!(model["program"], lyceum::models::program::example("classification"));

    let address = format!("/models/new?dataset={dataset}&like={}", model["id"].as_str().unwrap());
    let page = person.request(&house, "GET", &address).send().await.unwrap().text().await.unwrap();
    let chosen = "value=\"own\" data-tasks=\"classification regression reconstruction\" selected";
    assert!(page.contains("GlobalAveragePooling2D") && page.contains(chosen), "{page}");
    assert!(page.contains("value=\"0.003\""), "{page}");
}

/// Neither the network nor the environment of a model that is shown runs as whoever predicts with it.
#[tokio::test]
async fn a_model_of_somebody_else_runs_nothing_of_theirs() {
    let Some(house) = house_with("[[storage]]\nname = 'people'\npath = '/home'\n").await else { return };
    let (person, other) = (house.person(), house.person());
    let home = PathBuf::from(format!("/home/ly-{}", person.name));
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let (marks, bin) = (home.join("marks"), home.join("venv/bin"));
    for folder in [&marks, &bin] {
        fs::create_dir_all(folder).unwrap();
    }
    open(&marks, 0o777);
    let python = variable("LYCEUM_TEST_PYTHON").unwrap();
    let wrapper = format!("#!/bin/sh\n: > {}/python-$(id -u)\nexec {python} \"$@\"\n", marks.display());
    fs::write(bin.join("python"), wrapper).unwrap();
    open(&bin.join("python"), 0o755);

    let program = format!(
        "import keras, os\nopen('{}/network-%d' % os.getuid(), 'w').close()\n\n\
         @keras.saving.register_keras_serializable('mine')\nclass Twice(keras.layers.Layer):\n    \
         def call(self, x):\n        return 2 * x\n\n\ndef network(x, classes):\n    \
         return keras.layers.Dense(classes, name='logits')(keras.layers.Flatten()(Twice()(x)))\n",
        marks.display()
    );
    let dataset = shapes(&house, &person).await;
    let request = json!({ "name": "mine", "dataset": dataset, "config": { "epochs": 1 }, "program": program,
        "environment": home.join("venv") });
    let path = train(&house, &person, request).await;
    trained(&house, &person, &path).await;
    assert_eq!(person.ask(&house, "PATCH", &path, &json!({ "visibility": "everybody" })).await.0, 200);
    assert!(Command::new("chmod").args(["-R", "go+rX"]).arg(&home).status().unwrap().success());

    let sent = other.request(&house, "POST", &format!("/api/v1{path}/infer")).header("content-type", "image/png");
    let sent = sent.body(crate::datasets::png(28, 28, 7)).send().await.unwrap();
    assert_eq!(sent.status(), 201);
    let asked: Value = sent.json().await.unwrap();
    let test = format!("{path}/tests/{}", asked["id"].as_str().unwrap());
    let answer = eventually("an answer", async || {
        Some(other.get(&house, &test).await).filter(|found| found["state"] != "waiting")
    })
    .await;
    let detail = answer["detail"].as_str().unwrap();
    assert!(answer["state"] == "failed" && detail.contains("Twice") && detail.contains("not run as you"), "{answer}");
    let uid = fs::metadata(&home).unwrap().uid();
    let mut there: Vec<_> = fs::read_dir(&marks).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    there.sort();
    assert_eq!(there, [format!("network-{uid}"), format!("python-{uid}")].map(Into::<std::ffi::OsString>::into));
}

/// The script of docs/models.md, line by line as it stands there.
#[tokio::test]
async fn the_lines_of_the_page_do_what_they_say() {
    let Some(house) = house().await else { return };
    let person = house.person();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/models.md")).unwrap();
    let (_, rest) = page.split_once("```sh\n").unwrap();
    let (script, _) = rest.split_once("```").unwrap();
    assert_eq!(script.lines().filter(|line| line.contains("api ")).count(), 6, "six lines and a function");
    let drawer = tempfile::tempdir().unwrap();
    fs::write(drawer.path().join("picture.png"), crate::datasets::png(32, 32, 7)).unwrap();
    let token = person.authorization();
    let mut shell = tokio::process::Command::new("timeout");
    let shell = shell.args(["600", "bash", "-euo", "pipefail", "-c", script]).current_dir(drawer.path());
    let shell = shell.env("LYCEUM_URL", &house.url).env("LYCEUM_TOKEN", token.strip_prefix("Bearer ").unwrap());
    let done = shell.env("no_proxy", "*").env_remove("T").stdin(Stdio::null()).output().await.unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}{wrong}");
    assert!(said.contains("\"probability\""), "{said}");
    let listed = Command::new("tar").arg("tf").arg(drawer.path().join("bundle.tar")).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("model.keras") && listed.contains("SHA256SUMS"), "{listed}");
}
