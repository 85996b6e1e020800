//! What people's files may do to the portal: whatever they hold, and however many ask at once, its
//! memory stays bounded, and who asks gets an answer in words.

use std::{fs, path::Path};

use lyceum::{
    db::audit::Entry,
    model::{JobId, Timestamp},
};
use serde_json::{Value, json};

use super::{House, Person, eventually};

/// What the portal may take more than before (KiB), whatever is asked of it.
const MOST: u64 = 600 * 1024;

/// Asks for everything at once, and says what was answered.
async fn at_once(house: &House, person: &Person, paths: &[String]) -> Vec<(u16, Value)> {
    let asked = paths.iter().map(|path| person.ask(house, "GET", path, &Value::Null));
    futures_util::future::join_all(asked).await
}

#[tokio::test]
async fn no_file_takes_the_portals_memory() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let size = json!({ "cpus": 1, "memory_bytes": 1 << 30 });
    let spec =
        json!({ "kind": "classification", "source": { "kind": "generated", "count": 9 }, "width": 16, "height": 16 });
    let request = json!({ "name": "shapes", "spec": spec, "resources": size });
    let (status, made) = person.ask(&house, "POST", "/datasets", &request).await;
    assert_eq!(status, 201, "{made}");
    let dataset = made["id"].as_str().unwrap();
    eventually("the dataset is there", async || {
        (person.get(&house, &format!("/datasets/{dataset}")).await["state"] == "ready").then_some(())
    })
    .await;
    let items = format!("/datasets/{dataset}/items");
    assert_eq!(person.get(&house, &items).await["total"], 9);
    let folder = format!("/home/ly-{}/datasets/shapes", person.name);
    let manifest = Path::new(&folder).join("manifest.csv");

    // A model of theirs that no job has trained.
    let db = house.db().await;
    let owner = db.find_user_by_name(&person.name).await.unwrap().unwrap().user;
    let trained = Path::new(&folder).join("model");
    for folder in ["eval/val", "checkpoints"] {
        fs::create_dir_all(trained.join(folder)).unwrap();
    }
    let directory = trained.to_str().unwrap().to_owned();
    let model = crate::db::models::model(owner.id, &person.name, "hostile");
    let noted = Entry { at: Timestamp(0), actor: "test", action: "test", subject: "test", detail: "" };
    db.add_model(&model, "{}", None, &noted).await.unwrap();
    db.set_model_job(model.id, JobId::new(), &directory, Timestamp(0)).await.unwrap();
    let of_model = |what: &str| format!("/models/{}/{what}", model.id);

    let before = house.memory("VmRSS:");
    // Rows of two bytes; fields without an end; a row as wide as the file; as many rows as may be.
    let rows =
        (0..400_000).fold(String::from("path,label\n"), |rows, row| rows + &format!("{row}/{}\n", "x".repeat(90)));
    for (content, sentence) in [
        (format!("path\n{}", "a\n".repeat(16 << 20)), Some("too many images")),
        ("\",".repeat(16 << 20), None),
        (",".repeat(32 << 20), None),
        ("\"\n\",".repeat(8 << 20), None),
        (rows.replace("path,label", "path"), None),
        (format!("{rows}x\n").replace("path,label", "path"), Some("too many images")),
    ] {
        fs::write(&manifest, content).unwrap();
        for (status, body) in at_once(&house, &person, &vec![items.clone(); 4]).await {
            let detail = body["detail"].as_str().unwrap_or_default().to_owned();
            match sentence {
                Some(sentence) => assert!(status == 409 && detail.contains(sentence), "{status} {body}"),
                None => assert!(matches!(status, 200 | 409 | 503), "{status} {body}"),
            }
        }
    }
    let write = |name: &str, content: String| fs::write(trained.join(name), content).unwrap();
    write(
        "eval/val/predictions.csv",
        format!("path,label,predicted,confidence,loss\n{}", "a,b,c,1,1\n".repeat(3 << 20)),
    );
    write("eval/val/confusion.csv", ",".repeat(8 << 20));
    write("eval/val/metrics.json", "{}".to_owned());
    let asked = ["predictions?split=val&limit=500", "thresholds?split=val", "evaluation?split=val"].map(of_model);
    let asked = [asked.clone(), asked].concat();
    for (path, (status, body)) in asked.iter().zip(at_once(&house, &person, &asked).await) {
        // Metrics that say nothing are as good as none.
        let is_unmeasured = path.contains("evaluation") && status == 409;
        assert!(status == 200 || is_unmeasured, "{path}: {status} {body}");
    }
    // Documents of millions of values, deep ones, and ones that are neither.
    for document in [
        format!("[{}0]", "[0],".repeat(1 << 20)),
        format!("{{\"snapshots\":[{}{{}}],\"layers\":[],\"classes\":[]}}", "{},".repeat(1 << 20)),
        "[".repeat(4 << 20),
        "{\"a\":".repeat(700_000),
        format!("\"{}\"", "x".repeat(4_000_000)),
    ] {
        for name in
            ["checkpoints/index.json", "eval/val/metrics.json", "model_summary.json", "speed.json", "precisions.json"]
        {
            write(name, document.clone());
        }
        fs::write(Path::new(&folder).join("dataset.json"), &document).unwrap();
        let asked = ["snapshots", "evaluation?split=val", "layers", "scaling", "precisions"].map(of_model);
        let asked = [asked.to_vec(), asked.to_vec(), vec![items.clone(); 2]].concat();
        for (status, body) in at_once(&house, &person, &asked).await {
            assert!(matches!(status, 200 | 404 | 409 | 429 | 503), "{status} {body}");
        }
    }
    let growth = house.memory("VmHWM:").saturating_sub(before);
    assert!(growth < MOST, "the portal took {growth} KiB more");
    assert_eq!(person.ask(&house, "GET", "/me", &Value::Null).await.0, 200);
}
