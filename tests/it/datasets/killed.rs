//! Builds that end before they are done: killed without a word at every stage, stopped in order,
//! out of room, or two at once. The next one goes on, and comes to what an undisturbed one does.

use std::{
    fs,
    io::Read,
    os::unix::{fs::symlink, process::ExitStatusExt},
    path::Path,
    process::{Child, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::{Dataset, Place};
use crate::wait::until;

/// A set that takes a while, whatever the machine.
fn spec(place: &Place, name: &str) -> Value {
    let change = json!({"output": place.path(name), "width": 192, "height": 192});
    place.spec("detection", json!({"kind": "generated", "count": 150}), change)
}

/// Starts a build on one thread and waits until `stage` is reached, or the build is done.
fn start(place: &Place, spec: &Value, stage: impl Fn() -> bool) -> Child {
    let mut command = place.command_on("1", spec);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the stage of the build", || stage() || child.try_wait().unwrap().is_some());
    child
}

fn lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |bytes| bytes.split(|byte| *byte == b'\n').count() - 1)
}

#[test]
fn killed_at_every_stage_it_goes_on_to_the_same() {
    let place = Place::new();
    let undisturbed = place.build(&spec(&place, "undisturbed"));
    let spec = spec(&place, "out");
    let (out, work) = (place.path("out"), place.path(".out.building"));
    let stages: [&dyn Fn() -> bool; 6] = [
        &|| work.exists(),
        &|| lines(&work.join("journal")) >= 1,
        &|| lines(&work.join("journal")) > 1,
        &|| lines(&work.join("journal")) > 100,
        &|| work.join("out/manifest.csv").exists(),
        &|| work.join("out/cache/val.rows.npy").exists(),
    ];
    let mut interrupted = 0;
    for stage in stages {
        let mut child = start(&place, &spec, stage);
        let whole = out.join("dataset.json").exists();
        assert_eq!(out.exists(), whole, "nothing half-made has the name");
        child.kill().unwrap();
        interrupted += u32::from(child.wait().unwrap().signal() == Some(9));
    }
    assert!(interrupted >= 2, "the builds were done before anybody could kill them");
    let built = place.build(&spec);
    same(&built, &undisturbed);
    assert!(!work.exists());
}

fn same(one: &Dataset, other: &Dataset) {
    assert_eq!(one.hash(), other.hash());
    for key in ["counts", "per_class", "mean", "deviation", "annotations_sha256", "cache"] {
        assert_eq!(one.document[key], other.document[key], "{key}");
    }
    for name in ["images.npy", "train.boxes.npy", "val.rows.npy", "test.rows.npy"] {
        assert_eq!(one.array(name), other.array(name), "{name}");
    }
}

#[test]
fn pixels_that_are_gone_are_made_again() {
    let place = Place::new();
    let undisturbed = place.build(&spec(&place, "undisturbed"));
    let spec = spec(&place, "out");
    let work = place.path(".out.building");
    let mut child = start(&place, &spec, || lines(&work.join("journal")) > 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.path("out").exists());
    fs::remove_file(work.join("out/cache/images.npy")).unwrap();
    fs::write(work.join("out/cache/none.rows.npy"), "of another time").unwrap();
    let built = place.build(&spec);
    same(&built, &undisturbed);
    assert!(!built.folder.join("cache/none.rows.npy").exists());
}

#[test]
fn stopped_in_order_it_says_that_it_can_go_on() {
    let place = Place::new();
    // Longer than anybody needs to press a key, even where nothing else runs.
    let mut long = spec(&place, "out");
    long["source"]["count"] = json!(20_000);
    long["width"] = json!(64);
    long["height"] = json!(64);
    let work = place.path(".out.building");
    // Once it reports, it listens to signals too; and it has read something that can be written down.
    let has_read = || {
        let told = fs::read(work.join("progress.json")).unwrap_or_default();
        let told: Value = serde_json::from_slice(&told).unwrap_or_default();
        told["phase"] == "reading" && told["done"].as_u64() > Some(0)
    };
    let mut child = start(&place, &long, has_read);
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("start the build again to resume it"), "{said}");
    assert!(!place.path("out").exists());
    assert!(lines(&work.join("journal")) > 1, "what was read is written down before it goes");
}

#[test]
fn a_full_disk_is_told_and_what_is_done_is_kept() {
    let place = Place::new();
    let undisturbed = place.build(&spec(&place, "undisturbed"));
    let spec = spec(&place, "out");
    let array = place.path(".out.building/out/cache/images.npy");
    fs::create_dir_all(array.parent().unwrap()).unwrap();
    symlink("/dev/full", &array).unwrap();
    let said = place.refused(&spec);
    assert!(said.contains("images.npy cannot be written") && said.contains("No space left"), "{said}");
    assert!(!place.path("out").exists());
    fs::remove_file(&array).unwrap();
    same(&place.build(&spec), &undisturbed);
}

#[test]
fn what_there_is_no_room_for_is_refused_before_it_begins() {
    let place = Place::new();
    let change = json!({"width": 4096, "height": 4096});
    let said = place.refused(&place.spec("classification", json!({"kind": "generated", "count": 1_000_000}), change));
    assert!(said.contains("needs 48000000 MiB"), "{said}");
}

#[test]
fn two_at_once_do_not_disturb_one_another() {
    let place = Place::new();
    let spec = spec(&place, "out");
    let work = place.path(".out.building");
    fs::create_dir(&work).unwrap();
    let lock = fs::File::create(work.join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    assert!(place.refused(&spec).contains("another build of"));
    drop(lock);
    place.build(&spec);
}
