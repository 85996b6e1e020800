//! Copying and listing against a small portal that speaks real HTTP: what of a hostile or broken answer reaches the disk,
//! and which links are followed. tests/it/files/command.rs copies by the real API.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};

use super::*;
use crate::{
    Connection,
    script_tests::{at, lyceum},
    tests::Portal,
};

fn entry(path: &str, kind: &str) -> Value {
    json!({ "name": path, "path": path, "encoded_path": path, "kind": kind, "is_link": false, "size_bytes": 2,
        "modified_at": "2030-01-31T08:00:00Z" })
}

#[tokio::test]
async fn names_of_the_portal_stay_in_the_target() {
    let portal = Portal::start(|line| {
        let items = ["..", "%2e%2e", "x/../..", "ok%00", "b", "c%2F..%2F..%2Fd"]
            .map(|name| entry(&format!("/h/r/{name}"), "file"));
        match line {
            line if line.contains("/info?path=r") => (200, entry("/h/r", "folder")),
            line if line.contains("/info?path=up") => (200, entry("/h/..", "file")),
            line if line.contains("/content?") => (200, json!("hi")),
            _ => (200, json!({ "items": items, "next_cursor": null })),
        }
    });
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("deep/target");
    fs::create_dir_all(&target).unwrap();
    let words = ["files", "cp", "-r", "lyceum:r", target.to_str().unwrap()];
    let (status, printed) = lyceum(&at(&portal), &words, "").await;
    assert_eq!(status, 1, "the others are copied nevertheless: {printed}");
    let names = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&target), ["r"]);
    assert_eq!(names(&target.join("r")), ["b", "d"]);
    assert_eq!((names(place.path()), names(&place.path().join("deep"))), (vec!["deep".into()], vec!["target".into()]));
    let (status, printed) = lyceum(&at(&portal), &["files", "cp", "lyceum:up", target.to_str().unwrap()], "").await;
    assert_eq!((status, names(&target).len()), (65, 1), "{printed}");

    // A folder that is a link here is not written through.
    fs::remove_dir_all(target.join("r")).unwrap();
    symlink(place.path(), target.join("r")).unwrap();
    assert_eq!(lyceum(&at(&portal), &words, "").await.0, 1);
    assert_eq!(names(place.path()), ["deep"]);
}

#[tokio::test]
async fn a_download_is_whole_or_not_there() {
    let portal = Portal::start(|line| match line {
        line if line.contains("/info") => (200, entry("/h/a", "file")),
        _ => (403, json!({ "title": "No", "detail": "No." })),
    });
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("a");
    fs::write(&target, "before").unwrap();
    assert_eq!(lyceum(&at(&portal), &["files", "cp", "lyceum:a", target.to_str().unwrap()], "").await.0, 77);
    assert_eq!(fs::read_to_string(&target).unwrap(), "before");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing is left over");
}

#[tokio::test]
async fn what_cannot_be_meant_is_said_before_anything_is_asked() {
    let portal = Portal::start(|_| (500, json!({})));
    for (words, why) in [
        (&["a", "b"][..], "must be on the portal's machine and begin with `lyceum:`"),
        (&["lyceum:a", "lyceum:b"], "must be on the portal's machine"),
        (&["lyceum:a", "b", "."], "must be on the portal's machine"),
        (&["lyceum:a", "lyceum:b", "/nowhere"], "/nowhere is not a folder"),
        (&["lyceum:a", "/nowhere/"], "/nowhere/ is not a folder"),
        (&["lyceum:a"], "TARGET"),
    ] {
        let (status, said) = lyceum(&at(&portal), &[&["files", "cp"], words].concat(), "").await;
        assert!(status == 2 && said.contains(why), "{words:?}: {said}");
    }
    assert!(portal.requests().is_empty());
    let gone = Connection { url: Some("http://127.0.0.1:1".into()), token: Some("t".into()), contexts: None };
    assert_eq!(lyceum(&gone, &["files", "cp", "lyceum:a", "."], "").await.0, 69);
    assert_eq!(lyceum(&gone, &["files", "cp", "/dev/null", "lyceum:a"], "").await.0, 69);
}

#[test]
fn a_folder_is_read_without_following_links() {
    let place = tempfile::tempdir().unwrap();
    let (inside, outside) = (place.path().join("in"), place.path().join("out"));
    fs::create_dir_all(inside.join("a/b")).unwrap();
    fs::create_dir_all(outside.join("b")).unwrap();
    fs::write(inside.join("a/b/file"), "in").unwrap();
    fs::write(outside.join("b/file"), "secret").unwrap();
    symlink("../out", inside.join("link")).unwrap();
    let mut steps = Vec::new();
    upload::plan(&inside, "t".to_owned(), true, &mut steps).unwrap();
    let names: Vec<String> = steps.iter().map(|step| step.name.replace(inside.to_str().unwrap(), "")).collect();
    assert_eq!(names, ["", "/a", "/a/b", "/a/b/file"]);
    let Ok(upload::Work::File { source, target, .. }) = &steps[3].work else { panic!() };
    assert_eq!(target, "t/a/b/file");
    assert!(source.open().is_ok());
    // The folder is exchanged for a link after it was listed.
    fs::rename(inside.join("a"), inside.join("old")).unwrap();
    symlink("../out", inside.join("a")).unwrap();
    assert!(source.open().is_err());
}
