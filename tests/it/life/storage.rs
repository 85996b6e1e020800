//! Tests of storage on the real program, as real users: a job writes into their folder and reads their dataset with the
//! trainer's reader. What it leaves behind, whom it is shown to, and what it is compared with.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, chown},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{
    House, Person,
    diagnostics::finished,
    eventually,
    models::{self, shapes, train, trained},
};
use crate::pages::markup::one_line;

/// A folder in somebody's home, which is theirs.
fn folder(person: &Person, name: &str) -> PathBuf {
    let home = PathBuf::from(format!("/home/ly-{}", person.name));
    let folder = home.join(name);
    fs::create_dir(&folder).unwrap();
    let owner = fs::metadata(home).unwrap();
    chown(&folder, Some(owner.uid()), Some(owner.gid())).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn started(house: &House, person: &Person, request: Value) -> String {
    let (status, made) = person.ask(house, "POST", "/diagnostics/storage", &request).await;
    assert_eq!((status, &made["kind"], &made["state"]), (201, &json!("storage"), &json!("running")), "{made}");
    format!("/diagnostics/{}", made["id"].as_str().unwrap())
}

fn verdict<'a>(found: &'a Value, check: &str) -> &'a str {
    let findings = found["general"].as_array().unwrap();
    let one = findings.iter().find(|one| one["check"] == check).unwrap_or_else(|| panic!("{check}: {found}"));
    one["verdict"].as_str().unwrap()
}

#[tokio::test]
async fn a_folder_and_a_dataset_are_measured() {
    let Some(house) = models::house().await else { return };
    let (person, other) = (house.person(), house.person());
    let dataset = shapes(&house, &person).await;
    let measured = folder(&person, "measured");
    fs::write(measured.join("own"), "mine").unwrap();

    let refused = [
        (json!({}), "directory"),
        (json!({ "directory": "measured" }), "directory"),
        (json!({ "directory": "~", "size_bytes": 1 }), "size_bytes"),
        (json!({ "dataset": "00000000-0000-7000-8000-000000000000" }), "dataset"),
    ];
    for (request, field) in refused {
        let (status, said) = person.ask(&house, "POST", "/diagnostics/storage", &request).await;
        assert_eq!((status, &said["errors"][0]["field"]), (422, &json!(field)), "{request}: {said}");
    }
    let theirs = json!({ "dataset": dataset });
    assert_eq!(other.ask(&house, "POST", "/diagnostics/storage", &theirs).await.0, 422, "it is not shown to them");

    // A training of the same images, which the reading is compared with.
    let config = json!({ "epochs": 1, "batch_size": 16, "network": { "name": "lenet" } });
    let model = train(&house, &person, json!({ "name": "lenet-1", "dataset": dataset, "config": config })).await;
    let model = trained(&house, &person, &model).await;
    let request = json!({ "directory": "~/measured", "dataset": dataset, "size_bytes": 16 << 20 });
    let path = started(&house, &person, request).await;
    let found = finished(&house, &person, &path).await;
    let storage = &found["storage"];
    let numbers = &storage["measurement"];
    for field in ["write_mb_s", "create_per_s", "stat_per_s"] {
        assert!(numbers[field].as_f64().is_some_and(|rate| rate > 0.0), "{field}: {found}");
    }
    for check in ["storage_write", "small_files"] {
        assert_eq!(verdict(&found, check), "pass", "{found}");
    }
    // In memory, as some tests have their files, nothing can be said about reading.
    let results = &found["results"]["storage"];
    let is_kept = storage["file_system"]["type"] == "tmpfs" || results["sequential"]["cache"] == "kept";
    assert_eq!(numbers["read_mb_s"].is_null(), is_kept, "{found}");
    assert_eq!(verdict(&found, "storage_read") == "not_tested", is_kept, "{found}");
    assert!(storage["file_system"]["mount_point"].as_str().is_some_and(|point| point.starts_with('/')), "{found}");
    assert_eq!(storage["past"], json!([]));

    // The trainer's reader read all of the training split, with one worker and with two.
    let rows = results["dataset"]["rows"].as_array().unwrap_or_else(|| panic!("{found}"));
    let workers: Vec<(u64, bool)> =
        rows.iter().map(|row| (row["workers"].as_u64().unwrap(), row["images"].as_u64().unwrap() >= 128)).collect();
    assert_eq!(workers, [(1, true), (2, true)], "{found}");
    assert_eq!(storage["training"]["model"], "lenet-1");
    assert_eq!(storage["training"]["images_per_second"], model["speed"]["images_per_second"]);
    assert_eq!((&found["level"], &found["gpus"], &found["driver"]), (&Value::Null, &json!(0), &Value::Null));

    // Nothing is left, and what was there stays.
    assert_eq!(names(&measured), ["own"]);
    assert_eq!(fs::read_to_string(measured.join("own")).unwrap(), "mine");

    // A second test of the same file system has the first one beside it, for whoever asks.
    let again = started(&house, &person, json!({ "directory": measured, "size_bytes": 16 << 20 })).await;
    let second = finished(&house, &person, &again).await;
    assert_eq!(second["storage"]["file_system"]["id"], storage["file_system"]["id"]);
    assert_eq!(second["storage"]["past"][0]["id"], found["id"]);
    assert_eq!(second["storage"]["past"][0]["measurement"], *numbers);
    assert_eq!(verdict(&second, "dataset_reading"), "not_tested");
    let page = person.request(&house, "GET", &again).send().await.unwrap().text().await.unwrap();
    let shown = one_line(&page);
    for wanted in ["Storage test", "Earlier tests of this file system", "1 earlier test", "class=\"split1\""] {
        assert!(shown.contains(wanted), "{wanted}: {page}");
    }
    let listed = person.get(&house, "/diagnostics").await;
    assert!(listed["items"].as_array().unwrap().iter().all(|one| one["kind"] == "storage"), "{listed}");
    assert_eq!(other.ask(&house, "GET", &path, &Value::Null).await.0, 404);
    assert_eq!(house.admin().get(&house, &path).await["owner"], person.name.as_str());

    let output = house
        .command(&["storage", "benchmark", "--dataset", "shapes", "--wait"])
        .env("LYCEUM_URL", &house.url)
        .env("LYCEUM_TOKEN", person.authorization().trim_start_matches("Bearer "))
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("storage_write: no folder was given."), "{told}");
    assert!(told.contains("dataset, images/s"), "{told}");
}

/// A folder that is not there fails with the reason, and a test that is cancelled removes what it wrote.
#[tokio::test]
async fn a_test_of_storage_that_ends_early_leaves_nothing() {
    let Some(house) = models::house().await else { return };
    let person = house.person();
    person.get(&house, "/files/roots").await;
    let path = started(&house, &person, json!({ "directory": "~/missing" })).await;
    let failed = eventually("it failed", async || {
        let found = person.get(&house, &path).await;
        (found["state"] == "failed").then_some(found)
    })
    .await;
    let detail = failed["detail"].as_str().unwrap();
    assert!(detail.contains("/missing is not a folder that you can reach"), "{detail}");

    let measured = folder(&person, "measured");
    let path = started(&house, &person, json!({ "directory": "~/measured" })).await;
    eventually("it writes", async || (!names(&measured).is_empty()).then_some(())).await;
    assert_eq!(person.ask(&house, "POST", &format!("{path}/cancel"), &Value::Null).await.0, 202);
    eventually("it is cancelled", async || (person.get(&house, &path).await["state"] == "stopped").then_some(())).await;
    assert_eq!(names(&measured), [""; 0]);
}
