//! A pull whose process is killed at each step: the next one continues, and there is never half an image. The
//! child is this test program once more.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lyceum_images::{PullRequest, Settings, Store};

use super::{
    content::{Built, Layer, image, listing, noise},
    faulty::{End, Served, beginning, silence},
    needs::variable,
    wait::eventually,
};

/// Gives the child its store and its reference.
const STORE: &str = "LYCEUM_TEST_IMAGES_STORE";
const REFERENCE: &str = "LYCEUM_TEST_IMAGES_REFERENCE";

/// Looks at a store.
type Condition<'a> = &'a dyn Fn(&Path) -> bool;

/// In a child, pulls until it is killed or the image is there.
async fn be_the_child() -> bool {
    let (Some(directory), Some(reference)) = (variable(STORE), variable(REFERENCE)) else { return false };
    let store = Store::open(directory, Settings::default()).unwrap();
    store.pull(PullRequest::new(reference.parse().unwrap())).wait().await.unwrap();
    true
}

fn start_child(test: &str, directory: &Path, reference: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(STORE, directory)
        .env(REFERENCE, reference)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn built() -> Built {
    let files =
        (0..3000).fold(Layer::new().directory("many"), |layer, at| layer.file(&format!("many/{at}"), &noise(at, 500)));
    image(&[
        Layer::new().file("first", &noise(1, 1 << 20)).gzip(),
        files.gzip(),
        Layer::new().file("last", &noise(2, 1 << 20)).gzip(),
    ])
}

/// Opens the store as a restarted portal does, pulls, and compares the image with one that nothing interrupted.
async fn assert_recovers(directory: &Path, reference: &str, expected: &std::collections::BTreeMap<String, String>) {
    let store = Store::open(directory, Settings::default()).unwrap();
    let staging: Vec<PathBuf> =
        fs::read_dir(directory.join("staging")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(staging, Vec::<PathBuf>::new(), "what was half unpacked is removed");
    for image in store.images().unwrap() {
        assert_eq!(&listing(&image.root()), expected, "an image is there whole or not at all");
    }
    let image = store.pull(PullRequest::new(reference.parse().unwrap())).wait().await.unwrap();
    assert_eq!(&listing(&image.root()), expected);
    assert_eq!(store.images().unwrap().len(), 1);
    assert_eq!(fs::read_dir(directory.join("partial")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_downloads() {
    if be_the_child().await {
        return;
    }
    let built = built();
    let (first, length) = (built.layers[0], built.blobs[&built.layers[0]].len());
    let content = built.blobs[&first].clone();
    for (step, part) in [("the manifest", "manifests"), ("the configuration", "blobs"), ("a layer", "layer")] {
        let hangs = Arc::new(AtomicBool::new(true));
        let (still, content) = (hangs.clone(), content.clone());
        let half = length / 2;
        let server = Served::new(&built)
            .start(move |asked, _| {
                let is_layer = asked.path.contains(&first.to_string());
                let here = if part == "layer" { is_layer } else { asked.path.contains(part) };
                let answer = || if is_layer { beginning(&content[..half], length, End::Hang) } else { silence() };
                (still.load(Ordering::SeqCst) && here).then(answer)
            })
            .await;
        let directory = super::real::directory();
        let reference = server.reference().to_string();
        let child = start_child("kill::while_it_downloads", directory.path(), &reference);
        let partial = directory.path().join("partial").join(first.hex());
        eventually(step, || match part {
            "layer" => fs::metadata(&partial).is_ok_and(|found| found.len() == half as u64).then_some(()),
            part => (!server.asked(part).is_empty()).then_some(()),
        })
        .await;
        kill(child);
        hangs.store(false, Ordering::SeqCst);
        let clean = super::real::directory();
        let whole = Store::open(clean.path(), Settings::default()).unwrap();
        let whole = whole.pull(PullRequest::new(server.reference())).wait().await.unwrap();
        let before = server.asked(&first.to_string()).len();
        assert_recovers(directory.path(), &reference, &listing(&whole.root())).await;
        let asked = server.asked(&first.to_string());
        let range = (part == "layer").then(|| format!("bytes={half}-"));
        assert_eq!(asked[before].range, range, "after {step}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_unpacks_and_commits() {
    if be_the_child().await {
        return;
    }
    let built = built();
    let server = Served::new(&built).start(|_, _| None).await;
    let reference = server.reference().to_string();
    let clean = super::real::directory();
    let whole = Store::open(clean.path(), Settings::default()).unwrap();
    let whole = whole.pull(PullRequest::new(server.reference())).wait().await.unwrap();
    let expected = listing(&whole.root());
    let below = |path: PathBuf| fs::read_dir(path).map_or(0, Iterator::count);
    let staged = |directory: &Path, name: &str| {
        let entries = fs::read_dir(directory.join("staging")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().join(name)).find(|path| path.exists())
    };
    let steps: [(&str, Condition<'_>); 7] = [
        ("a layer is stored", &|directory| below(directory.join("blobs")) > 0),
        ("all layers are stored", &|directory| below(directory.join("blobs")) > 2),
        ("the root exists", &|directory| staged(directory, "root").is_some()),
        ("some files exist", &|directory| staged(directory, "root/many/100").is_some()),
        ("the last file exists", &|directory| staged(directory, "root/last").is_some()),
        ("the record is written", &|directory| staged(directory, "image.json").is_some()),
        ("the image exists", &|directory| below(directory.join("images")) > 0),
    ];
    for (step, reached) in steps {
        let directory = super::real::directory();
        let child = start_child("kill::while_it_unpacks_and_commits", directory.path(), &reference);
        // A step that is over within a look is followed by the image.
        let is_over = || reached(directory.path()) || below(directory.path().join("images")) > 0;
        eventually(step, || is_over().then_some(())).await;
        kill(child);
        let stored: Vec<String> = fs::read_dir(directory.path().join("blobs"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let downloads = || stored.iter().map(|digest| server.asked(digest).len()).sum::<usize>();
        let before = downloads();
        assert_recovers(directory.path(), &reference, &expected).await;
        assert_eq!(downloads(), before, "a stored layer is not downloaded again");
    }
}
