//! Datasets on the real program, as real users: made by a job of theirs, looked at through
//! their own files agents, cancelled, built again, shown to others and removed.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf};

use serde_json::{Value, json};

use super::{House, Person, eventually};
use crate::datasets::png;

fn home(person: &Person) -> PathBuf {
    format!("/home/ly-{}", person.name).into()
}

async fn make(house: &House, person: &Person, name: &str, spec: Value) -> String {
    let size = json!({ "cpus": 1, "memory_bytes": 1 << 30 });
    let request = json!({ "name": name, "spec": spec, "resources": size });
    let (status, body) = person.ask(house, "POST", "/datasets", &request).await;
    assert_eq!(status, 201, "{request}: {body}");
    assert_eq!(body["state"], "building");
    body["id"].as_str().unwrap().to_owned()
}

async fn state(house: &House, person: &Person, id: &str, state: &str) -> Value {
    eventually(&format!("dataset {id} is {state}"), async || {
        let found = person.get(house, &format!("/datasets/{id}")).await;
        assert!(found["state"] == "building" || found["state"] == state, "{found}");
        (found["state"] == state).then_some(found)
    })
    .await
}

async fn status(house: &House, person: &Person, method: &str, path: &str) -> (u16, Value) {
    person.ask(house, method, path, &Value::Null).await
}

#[tokio::test]
async fn a_dataset_is_made_looked_at_and_removed() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, other) = (house.person(), house.person());
    let spec =
        json!({ "kind": "detection", "source": { "kind": "generated", "count": 40 }, "width": 64, "height": 48 });
    let id = make(&house, &person, "some shapes", spec).await;
    let made = state(&house, &person, &id, "ready").await;
    assert_eq!((&made["pictures"], &made["classes"], &made["broken"]), (&json!(40), &json!(3), &json!(0)), "{made}");
    assert_eq!(made["contents"]["manifest_sha256"], made["manifest_sha256"]);
    let folder = home(&person).join("datasets/some-shapes");
    assert_eq!(made["directory"], folder.to_str().unwrap());
    let (of_folder, of_home) = (fs::metadata(&folder).unwrap(), fs::metadata(home(&person)).unwrap());
    assert_eq!(of_folder.uid(), of_home.uid(), "it is theirs");

    let items = person.get(&house, &format!("/datasets/{id}/items?split=val&limit=4")).await;
    assert_eq!((items["items"].as_array().unwrap().len(), items["next_cursor"].is_string()), (4, true), "{items}");
    assert!(items["items"][0]["boxes"][0]["width"].as_f64().unwrap() > 1.0, "{items}");
    let cursor = items["next_cursor"].as_str().unwrap();
    let rest = person.get(&house, &format!("/datasets/{id}/items?split=val&cursor={cursor}")).await;
    assert_eq!(rest["items"].as_array().unwrap().len() + 4, usize::try_from(rest["total"].as_u64().unwrap()).unwrap());
    let row = &items["items"][0]["row"];
    for (what, size) in [("picture", (64, 48)), ("picture?full=true", (64, 48))] {
        let path = format!("/api/v1/datasets/{id}/items/{row}/{what}");
        let answer = person.request(&house, "GET", &path).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.headers()["content-type"]), (200, &"image/png".parse().unwrap()));
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
        let picture = image::load_from_memory(&answer.bytes().await.unwrap()).unwrap();
        assert_eq!((picture.width(), picture.height()), size);
    }
    assert_eq!(status(&house, &person, "GET", &format!("/datasets/{id}/items/40/picture")).await.0, 404);
    assert_eq!(
        status(&house, &person, "GET", &format!("/datasets/{id}/items/{row}/mask")).await.0,
        404,
        "it has boxes"
    );

    // Others see it when they may, and what is in it only when Unix lets them.
    assert_eq!(status(&house, &other, "GET", &format!("/datasets/{id}")).await.0, 404);
    let shown = json!({ "visibility": "everybody", "notes": "for all" });
    assert_eq!(person.ask(&house, "PATCH", &format!("/datasets/{id}"), &shown).await.0, 200);
    let seen = other.get(&house, &format!("/datasets/{id}")).await;
    assert_eq!((&seen["notes"], &seen["contents"]), (&json!("for all"), &json!(null)), "{seen}");
    assert_eq!(other.get(&house, "/datasets").await["items"][0]["name"], "some shapes");
    assert_eq!(other.get(&house, "/datasets?own=true").await["items"], json!([]));
    let (refused, said) = status(&house, &other, "GET", &format!("/datasets/{id}/items")).await;
    assert!((400..500).contains(&refused), "{said}");
    assert_eq!(status(&house, &other, "DELETE", &format!("/datasets/{id}?files=true")).await.0, 404);
    // What another version has built is told from what is damaged.
    let (document, manifest) = (folder.join("dataset.json"), folder.join("manifest.csv"));
    let text = fs::read_to_string(&document).unwrap();
    fs::write(&document, text.replacen("\"version\": 2", "\"version\": 1", 1)).unwrap();
    fs::write(&manifest, fs::read(&manifest).unwrap()).unwrap();
    let (refused, said) = status(&house, &person, "GET", &format!("/datasets/{id}/items")).await;
    assert!(refused == 409 && said.to_string().contains("create it again"), "{said}");

    assert_eq!(status(&house, &person, "DELETE", &format!("/datasets/{id}?files=true")).await.0, 204);
    assert!(!folder.exists());
    assert_eq!(status(&house, &person, "GET", &format!("/datasets/{id}")).await.0, 404);
}

#[tokio::test]
async fn a_build_that_fails_says_why_and_goes_on_when_it_is_asked_again() {
    let Some(house) = House::open(&[]).await else { return };
    let person = house.person();
    let missing = json!({ "kind": "classification", "source": { "kind": "folder", "path": "~/pictures" }, "width": 0 });
    let (refused, said) = person.ask(&house, "POST", "/datasets", &json!({ "name": "", "spec": missing })).await;
    let fields: Vec<&str> =
        said["errors"].as_array().unwrap().iter().map(|one| one["field"].as_str().unwrap()).collect();
    assert_eq!((refused, fields), (422, vec!["name", "spec.width", "spec.source.path"]), "{said}");

    let pictures = home(&person).join("pictures");
    let add = |class: &str, count: u32, tone: u32| {
        fs::create_dir_all(pictures.join(class)).unwrap();
        for n in 0..count {
            fs::write(pictures.join(format!("{class}/{n}.png")), png(8, 8, tone + n)).unwrap();
        }
    };
    add("cat", 8, 0);
    let spec = json!({ "kind": "classification", "source": { "kind": "folder", "path": "~/pictures" }, "width": 8, "height": 8 });
    let id = make(&house, &person, "cats", spec).await;
    let failed = state(&house, &person, &id, "failed").await;
    assert!(failed["detail"].as_str().unwrap().contains("only the class cat has enough"), "{failed}");
    add("dog", 8, 100);
    let preview = |path: &str| json!({"spec": {"kind": "classification", "source": {"kind": "folder", "path": path}}});
    let (code, found) = person.ask(&house, "POST", "/dataset-preview", &preview("~/pictures")).await;
    assert_eq!((code, &found["splits"], &found["class_count"]), (200, &json!({"undivided": 16}), &json!(2)), "{found}");
    let (code, refused) = person.ask(&house, "POST", "/dataset-preview", &preview("~/elsewhere")).await;
    assert_eq!((code, &refused["errors"][0]["field"]), (422, &json!("spec.source.path")), "{refused}");
    // A source that a build refuses is refused with the same reason.
    fs::create_dir_all(home(&person).join("flat/train")).unwrap();
    fs::create_dir_all(home(&person).join("flat/test")).unwrap();
    for split in ["train", "test"] {
        fs::write(home(&person).join(format!("flat/{split}/0.png")), png(8, 8, 5)).unwrap();
    }
    let (code, refused) = person.ask(&house, "POST", "/dataset-preview", &preview("~/flat")).await;
    assert_eq!(code, 422, "{refused}");
    assert!(refused["errors"][0]["message"].as_str().unwrap().contains("named like splits"), "{refused}");
    let (again, body) = status(&house, &person, "POST", &format!("/datasets/{id}/build")).await;
    assert_eq!((again, &body["state"]), (202, &json!("building")), "{body}");
    let ready = state(&house, &person, &id, "ready").await;
    assert_eq!(ready["contents"]["classes"], json!(["cat", "dog"]));
    assert_eq!(status(&house, &person, "POST", &format!("/datasets/{id}/build")).await.0, 409);
    let path = "/api/v1/dataset-example?path=~/pictures&resize=half-crop&width=32&height=16";
    let example = person.request(&house, "GET", path).send().await.unwrap();
    assert_eq!(example.status(), 200);
    assert_eq!(image::load_from_memory(&example.bytes().await.unwrap()).unwrap().width(), 32);

    // One that takes long is cancelled; what it had begun goes with it.
    let long = json!({ "kind": "segmentation", "source": { "kind": "generated", "count": 20_000 }, "width": 128, "height": 128 });
    let id = make(&house, &person, "long", long).await;
    let work = home(&person).join("datasets/.long.building");
    eventually("it has begun", async || work.join("progress.json").exists().then_some(())).await;
    assert_eq!(status(&house, &person, "DELETE", &format!("/datasets/{id}")).await.0, 409);
    assert_eq!(status(&house, &person, "POST", &format!("/datasets/{id}/cancel")).await.0, 202);
    state(&house, &person, &id, "cancelled").await;
    assert!(work.exists() && !home(&person).join("datasets/long").exists());
    assert_eq!(status(&house, &person, "DELETE", &format!("/datasets/{id}?files=true")).await.0, 204);
    assert!(!work.exists());
}
