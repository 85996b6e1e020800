//! The catalogue of container images, end to end: a real registry that answers for nvcr.io as a mirror, a real portal
//! with real accounts, and programs that bubblewrap starts in what was pulled.

mod credentials;
mod gpus;
mod notebooks;
pub mod registry;

use std::{path::PathBuf, process::Command};

use futures_util::future::join_all;
use serde_json::{Value, json};

use self::registry::Registry;
use crate::{
    gateway::terminal::types,
    idleness::terminals::tab,
    life::{
        House, Person, eventually,
        jobs::{ended, job, log, submit},
    },
    needs,
};

/// Which image it is, as whom, and where.
const SCRIPT: &str = "#!/bin/sh\ncat /etc/os-release\necho \"$(id -u) $(id -un) $OF_IMAGE $HOME\"\n";

/// A portal for which the registry answers as nvcr.io.
async fn open(registry: &Registry, more: &str) -> Option<House> {
    if !needs::root() {
        return None;
    }
    let mut house = House::new(&[]).configured(&format!("{}{more}", registry.mirror()));
    house.start().await;
    Some(house)
}

pub async fn add(house: &House, name: &str, reference: &str, groups: Value) -> Value {
    let new = json!({ "name": name, "reference": reference, "groups": groups });
    let (status, added) = house.admin().ask(house, "POST", "/images", &new).await;
    assert_eq!(status, 201, "{added}");
    added
}

/// Pulls an image and waits for what comes of it.
pub async fn pull(house: &House, name: &str, outcome: &str) -> Value {
    let admin = house.admin();
    let (status, begun) = admin.ask(house, "POST", &format!("/images/{name}/pull"), &Value::Null).await;
    assert_eq!((status, begun["state"].as_str()), (202, Some("pulling")), "{begun}");
    settled(house, &admin, name, outcome).await
}

pub async fn settled(house: &House, person: &Person, name: &str, outcome: &str) -> Value {
    eventually(&format!("image {name} is {outcome}"), async || {
        let image = person.get(house, &format!("/images/{name}")).await;
        let is_over = !["pulling", "unpacking"].contains(&image["state"].as_str().unwrap());
        assert!(!is_over || image["state"] == outcome, "{image}");
        is_over.then_some(image)
    })
    .await
}

fn stored(house: &House) -> Vec<PathBuf> {
    let folder = house.paths().shared.join("images/images");
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn an_image_is_added_pulled_run_updated_and_removed() {
    let Some(registry) = Registry::start() else { return };
    let digest = registry.push("nvcr.io/nvidia/fake", "26.10", "NAME=first\n").await;
    let Some(mut house) = open(&registry, "").await else { return };
    let (person, admin) = (house.person(), house.admin());
    let form = person.request(&house, "GET", "/sessions/new").send().await.unwrap().text().await.unwrap();
    assert!(!form.contains("name=\"image\""), "nothing to choose: {form}");

    let added = add(&house, "fake", "nvcr.io/nvidia/fake:26.10", json!([])).await;
    assert_eq!(
        (&added["state"], &added["digest"], &added["read_only"]),
        (&json!("missing"), &json!(null), &json!(false))
    );
    let image = pull(&house, "fake", "ready").await;
    assert_eq!((image["digest"].as_str(), image["failure"].as_str()), (Some(&*digest), None), "{image}");
    assert!(image["size_bytes"].as_i64().unwrap() > 100_000 && image["bytes"].is_null(), "{image}");
    assert_eq!(image["inside"]["entrypoint"], json!(["/entry"]), "{image}");
    assert_eq!(image["inside"]["require_cuda"], "cuda>=1.0", "{image}");
    let form = person.request(&house, "GET", "/sessions/new").send().await.unwrap().text().await.unwrap();
    assert!(form.contains("name=\"image\"") && form.contains("nvcr.io/nvidia/fake:26.10"), "{form}");
    let page = person.request(&house, "GET", "/images").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("nvcr.io/nvidia/fake:26.10") && !page.contains("/images/fake/pull"), "{page}");
    let page = admin.request(&house, "GET", "/images").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("/images/fake/pull") && page.contains("/images/fake/remove"), "{page}");

    // A job: the root is the image's, the user and the home are the node's.
    let id = submit(&house, &person, json!({ "script": SCRIPT, "image": "fake" })).await;
    let done = ended(&house, &person, &id, "exited").await;
    assert_eq!(
        (&done["exit_code"], &done["image"], done["image_digest"].as_str()),
        (&json!(0), &json!("fake"), Some(&*digest))
    );
    let account = format!("ly-{}", person.name);
    let uid = nix::unistd::User::from_name(&account).unwrap().unwrap().uid;
    let said = log(&house, &person, &format!("{id}/log")).await;
    assert_eq!(said, format!("NAME=first\n{uid} {account} yes /home/{account}\n"));

    // A terminal.
    let session = person.start(&house, json!({ "app": "terminal", "image": "fake" })).await;
    person.state(&house, session, "running").await;
    let mut shell = tab(&house, &person, session).await;
    types(&mut shell, "echo \"in-$OF_IMAGE-$(id -u)-$(cat /etc/os-release)\"", &format!("in-yes-{uid}-NAME=first"))
        .await;

    // It is in use.
    let (status, refused) = admin.ask(&house, "DELETE", "/images/fake", &Value::Null).await;
    assert_eq!(status, 409, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("have not ended"), "{refused}");

    // The tag moves; what runs keeps its image, and what starts later has the new one.
    let newer = registry.push("nvcr.io/nvidia/fake", "26.10", "NAME=second\n").await;
    assert_eq!(pull(&house, "fake", "ready").await["digest"].as_str(), Some(&*newer));
    types(&mut shell, "cat /etc/os-release | sed 's/^/still-/'", "still-NAME=first").await;
    drop(shell);
    person.end(&house, session).await;
    let id = submit(&house, &person, json!({ "script": SCRIPT, "image": "fake" })).await;
    let done = ended(&house, &person, &id, "exited").await;
    assert_eq!(done["image_digest"].as_str(), Some(&*newer));
    assert!(log(&house, &person, &format!("{id}/log")).await.starts_with("NAME=second\n"));

    // After a restart the portal knows it without asking the registry.
    registry.stop();
    house.restart().await;
    let image = person.get(&house, "/images/fake").await;
    assert_eq!((&image["state"], image["digest"].as_str()), (&json!("ready"), Some(&*newer)), "{image}");
    let id = submit(&house, &person, json!({ "script": SCRIPT, "image": "fake" })).await;
    ended(&house, &person, &id, "exited").await;
    registry.go_on();

    // The command line.
    let lyceum = |words: &[&str]| {
        let token = admin.authorization().replace("Bearer ", "");
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        let output = command.args(words).env("LYCEUM_URL", &house.url).env("LYCEUM_TOKEN", token).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (listed, said) = lyceum(&["image", "list"]);
    assert!(listed && said.contains("fake") && said.contains("ready"), "{said}");
    let (shown, said) = lyceum(&["image", "show", "fake"]);
    assert!(shown && said.contains(&newer) && said.contains("cuda>=1.0"), "{said}");
    let (pulled, said) = lyceum(&["image", "pull", "fake", "--wait"]);
    assert!(pulled && said.contains("fake ready"), "{said}");
    let (removed, said) = lyceum(&["image", "remove", "fake"]);
    assert!(removed && said.contains("fake was removed"), "{said}");
    assert!(stored(&house).iter().all(|path| !path.to_string_lossy().contains(&newer[7..])), "{:?}", stored(&house));
    let asked = json!({ "script": SCRIPT, "image": "fake" });
    let (status, refused) = person.ask(&house, "POST", "/jobs", &asked).await;
    assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("unknown_image")), "{refused}");
}

#[tokio::test]
async fn twenty_that_start_together_wait_for_one_pull() {
    let Some(registry) = Registry::start() else { return };
    let digest = registry.push("nvcr.io/nvidia/fake", "1", "NAME=one\n").await;
    let Some(house) = open(&registry, "").await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    add(&house, "fake", "nvcr.io/nvidia/fake:1", json!([])).await;

    registry.stop();
    let asked = json!({ "script": SCRIPT, "image": "fake", "resources": { "cpus": 1, "memory_bytes": 128 << 20 } });
    let jobs = join_all((0..20).map(|_| submit(&house, &person, asked.clone()))).await;
    eventually("all wait for the image", async || {
        let all = join_all(jobs.iter().map(|id| job(&house, &person, id))).await;
        let waits = |job: &Value| {
            assert_eq!(job["state"], "queued", "{job}");
            job["detail"] == "Waits for image ‘fake’, which is being pulled."
        };
        all.iter().all(waits).then_some(())
    })
    .await;
    assert_eq!(person.get(&house, "/images/fake").await["state"], "pulling");
    registry.go_on();
    for id in &jobs {
        let done = ended(&house, &person, id, "exited").await;
        assert_eq!((&done["exit_code"], done["image_digest"].as_str()), (&json!(0), Some(&*digest)), "{done}");
    }
    assert_eq!(registry.reads("/v2/nvcr.io/nvidia/fake/manifests/1"), 1);
    assert_eq!(stored(&house).len(), 1);
}

#[tokio::test]
async fn a_pull_that_fails_refuses_starts_with_its_reason() {
    let Some(registry) = Registry::start() else { return };
    registry.push("nvcr.io/nvidia/fake", "1", "NAME=one\n").await;
    let Some(house) = open(&registry, "").await else { return };
    let person = house.person();
    add(&house, "fake", "nvcr.io/nvidia/fake:none", json!([])).await;

    // It is missing when it is asked for, so that it is tried.
    let asked = json!({ "script": SCRIPT, "image": "fake" });
    let id = submit(&house, &person, asked.clone()).await;
    let failed = ended(&house, &person, &id, "launch_failed").await;
    let reason = failed["detail"].as_str().unwrap();
    assert!(reason.starts_with("The image ‘fake’ could not be pulled: ") && reason.contains("404"), "{reason}");
    let image = person.get(&house, "/images/fake").await;
    assert!(image["state"] == "failed" && image["failure"].as_str().unwrap().contains("404"), "{image}");

    // Now it is known not to work.
    let (status, refused) = person.ask(&house, "POST", "/jobs", &asked).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("image")), "{refused}");
    assert!(refused["errors"][0]["message"].as_str().unwrap().contains("404"), "{refused}");
    let (status, refused) =
        person.ask(&house, "POST", "/sessions", &json!({ "app": "terminal", "image": "fake" })).await;
    assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("image_failed")), "{refused}");

    // Until an administrator pulls it again.
    registry.push("nvcr.io/nvidia/fake", "none", "NAME=now\n").await;
    pull(&house, "fake", "ready").await;
    let id = submit(&house, &person, asked).await;
    ended(&house, &person, &id, "exited").await;
    assert!(log(&house, &person, &format!("{id}/log")).await.starts_with("NAME=now\n"));
}

#[tokio::test]
async fn groups_and_the_configuration_decide_who_uses_what() {
    let Some(registry) = Registry::start() else { return };
    registry.push("nvcr.io/nvidia/fake", "1", "NAME=one\n").await;
    let listed = "[[images.list]]\nname = 'ours'\ntitle = 'Of the site'\nreference = 'nvcr.io/nvidia/fake:1'\n";
    let more = format!("[images]\nallow = ['nvcr.io/nvidia/*']\n{listed}");
    let Some(house) = open(&registry, &more).await else { return };
    let (admin, member, other) = (house.admin(), house.person(), house.person());
    let ask = async |method: &str, path: &str, body: Value| admin.ask(&house, method, path, &body).await;
    let (status, made) = ask("POST", "/groups", json!({ "name": "vision" })).await;
    assert_eq!(status, 201, "{made}");
    let (status, joined) = ask("PUT", &format!("/groups/vision/members/{}", member.name), Value::Null).await;
    assert_eq!(status, 204, "{joined}");
    add(&house, "theirs", "nvcr.io/nvidia/fake:1", json!(["vision"])).await;

    let names = async |person: &Person| {
        let list = person.get(&house, "/images").await;
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|image| image["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&member).await, names(&other).await),
        (vec!["ours".to_owned(), "theirs".to_owned()], vec!["ours".to_owned()])
    );
    let (status, _) = other.ask(&house, "GET", "/images/theirs", &Value::Null).await;
    assert_eq!(status, 404);
    let (status, refused) =
        other.ask(&house, "POST", "/sessions", &json!({ "app": "terminal", "image": "theirs" })).await;
    assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("unknown_image")), "{refused}");
    let id = submit(&house, &member, json!({ "script": SCRIPT, "image": "theirs" })).await;
    ended(&house, &member, &id, "exited").await;

    // The file's images are the file's.
    let (status, refused) = ask("DELETE", "/images/ours", Value::Null).await;
    assert_eq!(status, 409, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("configuration file"), "{refused}");
    for (new, field) in [
        (json!({ "name": "x", "reference": "busybox" }), "reference"),
        (json!({ "name": "X", "reference": "nvcr.io/nvidia/x" }), "name"),
        (json!({ "name": "x", "reference": "nvcr.io/nvidia/x", "groups": ["nobody"] }), "groups"),
    ] {
        let (status, refused) = ask("POST", "/images", new).await;
        assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!(field)), "{refused}");
    }
    let (status, _) = ask("POST", "/images", json!({ "name": "ours", "reference": "nvcr.io/nvidia/x" })).await;
    assert_eq!(status, 409);

    // What does not go together with an image is refused.
    for (asked, field) in [
        (json!({ "script": "true", "image": "ours", "environment": "default" }), "image"),
        (json!({ "script": "true", "image": "ours", "modules": ["gcc"] }), "image"),
        (json!({ "script": "true", "image": "ours", "login_shell": true }), "login_shell"),
    ] {
        let (status, refused) = other.ask(&house, "POST", "/jobs", &asked).await;
        let fields: Vec<_> = refused["errors"].as_array().unwrap().iter().map(|error| error["field"].clone()).collect();
        assert!(status == 422 && fields.contains(&json!(field)), "{refused}");
    }
}

#[tokio::test]
async fn room_is_made_by_last_use_and_never_of_what_is_needed() {
    let Some(registry) = Registry::start() else { return };
    for name in ["used", "idle"] {
        registry.push(&format!("nvcr.io/nvidia/{name}"), "1", &format!("NAME={name}\n")).await;
    }
    let Some(mut house) = open(&registry, "").await else { return };
    let (person, admin) = (house.person(), house.admin());
    for name in ["used", "idle"] {
        add(&house, name, &format!("nvcr.io/nvidia/{name}:1"), json!([])).await;
        pull(&house, name, "ready").await;
    }
    let session = person.start(&house, json!({ "app": "terminal", "image": "used" })).await;
    person.state(&house, session, "running").await;
    let storage = async || {
        let found = admin.get(&house, "/image-storage").await;
        let items = found["items"].as_array().unwrap().clone();
        let word = |item: &Value| format!("{} {}", item["used_by"].as_str().unwrap(), item["name"].as_str().unwrap());
        let mut items: Vec<String> = items.iter().map(word).collect();
        items.sort();
        items
    };
    assert_eq!(storage().await, ["catalogue idle", "layer ", "layer ", "workloads used"]);

    // An earlier version that nothing needs goes with the layers; the catalogue stays.
    registry.push("nvcr.io/nvidia/idle", "1", "NAME=newer\n").await;
    pull(&house, "idle", "ready").await;
    assert!(storage().await.iter().any(|item| item.starts_with("nothing ")), "{:?}", storage().await);
    let (status, cleaned) = admin.ask(&house, "POST", "/image-storage/clean", &json!({})).await;
    assert_eq!((status, &cleaned["items"]), (200, &json!(4)), "{cleaned}");
    assert_eq!(storage().await, ["catalogue idle", "workloads used"]);
    let (_, cleaned) = admin.ask(&house, "POST", "/image-storage/clean", &json!({ "unused_days": 1 })).await;
    assert_eq!(cleaned["items"], 0, "it was used today: {cleaned}");

    // By the page. What a workload names stays, however long it was not used.
    let page = admin.request(&house, "GET", "/images").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("Disk usage") && page.contains("Suggested images"), "{page}");
    let (status, cleaned) = admin.ask(&house, "POST", "/image-storage/clean", &json!({ "unused_days": 0 })).await;
    assert_eq!((status, &cleaned["items"]), (200, &json!(1)), "{cleaned}");
    assert_eq!(storage().await, ["workloads used"]);
    assert_eq!(person.get(&house, "/images/idle").await["state"], "missing");
    let (status, refused) = admin.ask(&house, "POST", "/image-storage/clean", &json!({ "unused_days": -1 })).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("unused_days")), "{refused}");
    let row = admin.get(&house, "/audit").await;
    assert!(row.to_string().contains("image.clean"), "{row}");

    // It is pulled again when it is needed, also after a restart.
    house.restart().await;
    let id = submit(&house, &person, json!({ "script": SCRIPT, "image": "idle" })).await;
    ended(&house, &person, &id, "exited").await;
    assert!(log(&house, &person, &format!("{id}/log")).await.starts_with("NAME=newer\n"));
    person.end(&house, session).await;

    // What the portal knows by name.
    let known = person.get(&house, "/image-suggestions").await;
    let digits = known["items"].as_array().unwrap().iter().find(|one| one["name"] == "digits").unwrap().clone();
    assert_eq!(digits["legacy"], true, "{digits}");
    let (status, added) = admin.ask(&house, "POST", "/images", &json!({ "name": "digits" })).await;
    assert_eq!((status, &added["reference"], &added["state"]), (201, &digits["reference"], &json!("missing")));
    let (status, refused) = admin.ask(&house, "POST", "/images", &json!({ "name": "none" })).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("reference")), "{refused}");
}

/// A key whose private part nobody has.
const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
                   MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEH4EL6MkYu1WZIz/ZQhOGvUSvs/Wt\n\
                   OW7lSJstodk2le6ZJiIoA+zYN0qslzxOQYLPGipnp1Mf6+KkVsOCMcm7gQ==\n\
                   -----END PUBLIC KEY-----\n";

#[tokio::test]
async fn without_the_required_signature_nothing_is_pulled() {
    let Some(registry) = Registry::start() else { return };
    registry.push("nvcr.io/nvidia/fake", "1", "NAME=one\n").await;
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("cosign.pub");
    std::fs::write(&key, KEY).unwrap();
    let settings = format!("[images]\nrequire_signature = '{}'\n", key.display());
    if !needs::root() {
        return;
    }
    let mut house = House::new(&[]).configured(&format!("{settings}{}", registry.mirror()));
    house.start().await;
    add(&house, "fake", "nvcr.io/nvidia/fake:1", json!([])).await;
    let failed = pull(&house, "fake", "failed").await;
    assert!(failed["failure"].as_str().unwrap().contains("sign"), "{failed}");
    assert_eq!(stored(&house).len(), 0);
    let new = json!({ "name": "x", "reference": "file:///srv/x.tar" });
    let (status, refused) = house.admin().ask(&house, "POST", "/images", &new).await;
    assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("not_signed")), "{refused}");
}
