//! Several files at once: moved, copied and deleted, each by itself, as the user, and never over something that nobody
//! gave up or out of the folders that the user can reach.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
};

use serde_json::{Value, json};

use super::World;

/// What was done and what was said of each.
async fn done(world: &World, deed: &str, body: Value) -> Vec<(bool, String)> {
    let (status, said) = world.ask("POST", &format!("/{deed}"), body).await;
    assert_eq!(status, 200, "{said}");
    let items = said["items"].as_array().unwrap();
    let told: Vec<(bool, String)> = items
        .iter()
        .map(|item| (item["error"].is_null(), item["error"].as_str().unwrap_or_default().to_owned()))
        .collect();
    assert_eq!(said["failed"], told.iter().filter(|(is_done, _)| !is_done).count());
    told
}

fn nothing_hidden(world: &World, folder: &str) {
    let names = fs::read_dir(world.home().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    let hidden: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(".lyceum-copy")).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
}

#[tokio::test]
async fn files_are_moved_and_copied_and_nothing_is_lost() {
    let Some(world) = World::open(&[]).await else { return };
    let home = world.home().to_owned();
    world.put("a.txt", b"new");
    world.put("b.txt", b"b");
    world.put("runs/deep/er/x.bin", &vec![7; 3_000_000]);
    let script = world.put("runs/run.sh", b"#!/bin/sh\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    symlink("/etc/passwd", home.join("runs/link")).unwrap();
    nix::unistd::mkfifo(&home.join("runs/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    world.put("there/a.txt", b"old");

    // A folder is copied with everything in it, links as links; what is no file is left out.
    let copied = done(&world, "copy", json!({ "paths": ["runs", "b.txt", "nothing"], "to": "there" })).await;
    assert_eq!(copied.iter().map(|(is_done, _)| *is_done).collect::<Vec<_>>(), [true, true, false], "{copied:?}");
    assert!(copied[2].1.contains("does not exist"), "{copied:?}");
    let copy = home.join("there/runs");
    assert_eq!(fs::read(copy.join("deep/er/x.bin")).unwrap(), vec![7; 3_000_000]);
    assert_eq!(fs::read_link(copy.join("link")).unwrap().to_str(), Some("/etc/passwd"));
    assert!(!copy.join("pipe").exists());
    let facts = fs::metadata(copy.join("run.sh")).unwrap();
    assert_eq!((facts.mode() & 0o777, facts.uid()), (0o750, world.account.uid));
    assert!(home.join("runs/deep/er/x.bin").exists() && home.join("b.txt").exists());

    // Nothing is replaced unless that is asked for, and a folder never.
    let refused = done(&world, "move", json!({ "paths": ["a.txt", "runs"], "to": "there" })).await;
    assert!(refused.iter().all(|(is_done, why)| !is_done && why.contains("already exists")), "{refused:?}");
    assert_eq!(fs::read(home.join("there/a.txt")).unwrap(), b"old");
    let replaced = done(&world, "move", json!({ "paths": ["a.txt", "runs"], "to": "there", "replace": true })).await;
    assert!(replaced[0].0 && !replaced[1].0, "{replaced:?}");
    assert_eq!(fs::read(home.join("there/a.txt")).unwrap(), b"new");
    assert!(!home.join("a.txt").exists() && home.join("runs").exists());
    world.put("b.txt", b"newer");
    let replaced = done(&world, "copy", json!({ "paths": ["b.txt"], "to": "there", "replace": true })).await;
    assert!(replaced[0].0 && fs::read(home.join("there/b.txt")).unwrap() == b"newer", "{replaced:?}");
    // Into itself, onto itself, and out of reach.
    let own = done(&world, "copy", json!({ "paths": ["there", "there/b.txt"], "to": "there", "replace": true })).await;
    assert!(own.iter().all(|(is_done, _)| !is_done), "{own:?}");
    assert_eq!(fs::read(home.join("there/b.txt")).unwrap(), b"newer");
    symlink("/etc", home.join("out")).unwrap();
    for (paths, to) in
        [(json!(["b.txt"]), "out"), (json!(["b.txt"]), "/etc"), (json!(["b.txt"]), "b.txt"), (json!(["b.txt"]), "none")]
    {
        let (status, said) = world.ask("POST", "/copy", json!({ "paths": paths, "to": to })).await;
        assert_eq!((status, &said["errors"][0]["field"]), (422, &json!("to")), "{to}: {said}");
    }
    let outside = done(&world, "copy", json!({ "paths": ["/etc/passwd", "out/passwd"], "to": "there" })).await;
    assert!(outside.iter().all(|(is_done, _)| !is_done), "{outside:?}");
    assert!(!home.join("there/passwd").exists());

    // What cannot be read leaves nothing half done.
    let secret = world.put("secret/x", b"x");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    std::os::unix::fs::chown(&secret, Some(0), Some(0)).unwrap();
    let refused = done(&world, "copy", json!({ "paths": ["secret"], "to": "there" })).await;
    assert!(!refused[0].0 && refused[0].1.contains("no access"), "{refused:?}");
    assert!(!home.join("there/secret").exists());
    nothing_hidden(&world, "there");

    // Names that are no text.
    let odd = "odd%FF%25.txt";
    world.put("plain", b"1");
    fs::rename(home.join("plain"), home.join(std::ffi::OsStr::from_bytes(b"odd\xff%.txt"))).unwrap();
    let moved = done(&world, "move", json!({ "paths": [odd], "to": "there" })).await;
    assert!(moved[0].0 && home.join("there").join(std::ffi::OsStr::from_bytes(b"odd\xff%.txt")).exists(), "{moved:?}");

    let deleted = done(&world, "delete", json!({ "paths": ["b.txt", "there"] })).await;
    assert!(deleted[0].0 && deleted[1].1.contains("is not empty"), "{deleted:?}");
    let deleted = done(&world, "delete", json!({ "paths": ["there"], "recursive": true })).await;
    assert!(deleted[0].0 && !home.join("there").exists(), "{deleted:?}");
    for body in [json!({ "paths": [] }), json!({ "paths": vec!["x"; 501] })] {
        assert_eq!(world.ask("POST", "/delete", body).await.0, 422);
    }
}

async fn page(world: &World, path: &str) -> String {
    let answer = world.person.request(&world.house, "GET", path).header("accept", "text/html").send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    crate::pages::markup::one_line(&answer.text().await.unwrap())
}

/// Every kind of file has a page; what it holds is drawn and never run.
#[tokio::test]
async fn a_file_is_shown_before_it_is_downloaded() {
    let Some(world) = World::open(&[]).await else { return };
    let picture = b"\x89PNG\r\n\x1a\n and more";
    world.put("p.png", picture);
    world.put("train.py", b"import keras\n<script>alert(1)</script>\n");
    world.put("data.csv", b"step,loss\n1,0.5\n2,\"a, b\"\n");
    world.put("deep.json", br#"{"b": 1.50, "a": [true]}"#);
    world.put("README.md", b"**bold** <script>x</script>");
    world.put("logs/metrics.jsonl", b"{\"step\": 1, \"loss\": 0.5}\n");
    world.put("core", b"\x7fELF\0\0\0");
    let notebook = json!({ "cells": [
        { "cell_type": "markdown", "source": "# Title" },
        { "cell_type": "code", "execution_count": 7, "source": "1 + 1", "outputs": [
            { "output_type": "execute_result", "data": { "text/plain": "2", "text/html": "<b onclick=x>2</b>" } },
            { "output_type": "display_data", "data": { "image/png": "aGFsbG8=" } } ] },
    ]});
    world.put("n.ipynb", &serde_json::to_vec(&notebook).unwrap());
    world.put("big.txt", &b"line\n".repeat(300_000));

    let folder = page(&world, "/files").await;
    assert!(folder.contains("/train.py\"><bdi>train.py</bdi></a>") && folder.contains("/files/item?path="), "{folder}");
    for (name, parts) in [
        ("train.py", &["<span>import keras", "&#60;script&#62;alert(1)"][..]),
        ("data.csv", &["<th scope=\"col\"><bdi>loss</bdi></th>", "<td><bdi>a, b</bdi></td>"]),
        ("deep.json", &["&#34;b&#34;: 1.50,", "</span><span>}"]),
        ("README.md", &["<strong>bold</strong> &lt;script&gt;"]),
        (
            "n.ipynb",
            &["In [7]", ">1 + 1</pre>", ">2</pre>", "src=\"data:image/png;base64,aGFsbG8=\"", "Start JupyterLab"],
        ),
        ("logs/metrics.jsonl", &["action=\"/runs\"", "Show curves"]),
        ("core", &["no preview for this kind of file"]),
        ("big.txt", &["Only the beginning is shown"]),
        ("p.png", &["<img src=\"/files/picture?path="]),
    ] {
        let text = page(&world, &format!("/files/item?path={name}")).await;
        for part in parts {
            assert!(text.contains(part), "{name}: {part}: {text}");
        }
        assert!(!text.contains("<script>") && text.contains("Download"), "{name}");
    }
    let answer = world.person.request(&world.house, "GET", "/files/picture?path=p.png").send().await.unwrap();
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!((header("content-type"), header("content-disposition")), ("image/png".to_owned(), "inline".to_owned()));
    assert!(header("content-security-policy").contains("sandbox") && header("x-content-type-options") == "nosniff");
    assert_eq!(answer.bytes().await.unwrap(), picture.as_slice());
    for name in ["train.py", "logs", "core"] {
        let answer = world.person.request(&world.house, "GET", &format!("/files/picture?path={name}")).send().await;
        assert_eq!(answer.unwrap().status(), 409, "{name}");
    }
}
