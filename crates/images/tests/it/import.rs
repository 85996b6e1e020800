//! Images from files: archives and layouts as `skopeo` writes them, and root files that stay what they are.

use std::{fs, path::Path, process::Command};

use lyceum_images::{Digest, Error, Import, PullRequest, RootForm, Settings, State};
use serde_json::json;

use super::{
    content::{Layer, image, listing, noise},
    real::{Registry, has, store},
};

fn skopeo(arguments: &[&str]) {
    let output = Command::new("skopeo").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn archives_and_layouts_are_what_was_pulled() {
    if !has("skopeo") {
        return;
    }
    let Some(registry) = Registry::start() else { return };
    let layer = Layer::new().directory("bin").file("bin/sh", &noise(1, 100_000)).link("bin/bash", "bin/sh");
    let built = image(&[layer.gzip(), Layer::new().file("bin/.wh.bash", b"").file("etc", b"x").gzip()]);
    let reference = registry.push("some/image", "1", &built).await;
    let (_directory, store) = store(Settings::default());
    let pulled = store.pull(PullRequest::new(reference.clone())).wait().await.unwrap();
    let expected = listing(&pulled.root());
    let files = super::real::directory();
    let path = |name: &str| files.path().join(name).display().to_string();
    let source = format!("docker://{reference}");
    let copy = |target: &str| skopeo(&["copy", "--insecure-policy", "--src-tls-verify=false", &source, target]);
    copy(&format!("docker-archive:{}:some/image:1", path("docker.tar")));
    copy(&format!("oci-archive:{}:1", path("oci.tar")));
    copy(&format!("oci:{}:1", path("layout")));
    let compressed = super::content::gzip(&fs::read(path("docker.tar")).unwrap());
    fs::write(path("docker.tar.gz"), compressed).unwrap();
    for (name, is_same) in [("oci.tar", true), ("layout", true), ("docker.tar", false), ("docker.tar.gz", false)] {
        let (_directory, store) = super::real::store(Settings::default());
        let import = store.import(Import::new(path(name), "mine"));
        let imported = import.wait().await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(listing(&imported.root()), expected, "{name}");
        assert_eq!(imported.digest == built.digest(), is_same, "{name}");
        assert_eq!((imported.name.as_str(), imported.config.as_ref()), ("mine", pulled.config.as_ref()));
        assert!(matches!(import.progress().borrow().state, State::Ready(_)));
        // The same file is the same image.
        let again = store.import(Import::new(path(name), "mine")).wait().await.unwrap();
        assert_eq!((again.digest, store.images().unwrap().len()), (imported.digest, 1));
    }
}

#[tokio::test]
async fn one_of_several_images_is_named() {
    let files = super::real::directory();
    let (one, two) = (image(&[Layer::new().file("one", b"1").gzip()]), image(&[Layer::new().file("two", b"2").gzip()]));
    two.write_layout(files.path(), "two");
    let index: serde_json::Value = serde_json::from_slice(&fs::read(files.path().join("index.json")).unwrap()).unwrap();
    one.write_layout(files.path(), "one");
    let mut both: serde_json::Value =
        serde_json::from_slice(&fs::read(files.path().join("index.json")).unwrap()).unwrap();
    both["manifests"].as_array_mut().unwrap().push(index["manifests"][0].clone());
    fs::write(files.path().join("index.json"), both.to_string()).unwrap();
    let (_directory, store) = store(Settings::default());
    let error = store.import(Import::new(files.path(), "x")).wait().await.unwrap_err();
    assert!(error.to_string().contains("one, two"), "{error}");
    let import = Import { tag: Some("two".into()), ..Import::new(files.path(), "x") };
    assert_eq!(store.import(import).wait().await.unwrap().digest, two.digest());
}

#[tokio::test]
async fn root_files_stay_what_they_are() {
    if !has("mksquashfs") {
        return;
    }
    let files = super::real::directory();
    let root = files.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("a"), b"a").unwrap();
    let squashfs = files.path().join("image.sqsh");
    let made = Command::new("mksquashfs").args([&root, &squashfs]).output().unwrap();
    assert!(made.status.success());
    let mut sif = b"#!/usr/bin/env run-singularity\n\0".to_vec();
    sif.extend_from_slice(b"SIF_MAGIC\0 01 rest of the file");
    fs::write(files.path().join("image.sif"), &sif).unwrap();
    let (_directory, store) = store(Settings::default());
    for (name, form) in [("image.sqsh", RootForm::Squashfs), ("image.sif", RootForm::Sif)] {
        let path = files.path().join(name);
        let image = store.import(Import::new(&path, name)).wait().await.unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!((image.form, image.digest, &image.config), (form, Digest::of(&content), &None));
        assert_eq!(fs::read(image.root()).unwrap(), content);
        assert_eq!(store.import(Import::new(&path, name)).wait().await.unwrap().digest, image.digest);
    }
    assert_eq!(store.images().unwrap().len(), 2);
}

#[tokio::test]
async fn other_files_and_wrong_content_are_rejected() {
    let files = super::real::directory();
    let (directory, store) = store(Settings::default());
    let fails = async |path: &Path| store.import(Import::new(path, "x")).wait().await.unwrap_err();
    let write = |name: &str, bytes: &[u8]| {
        let path = files.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let error = fails(&files.path().join("missing")).await;
    assert!(matches!(&*error, Error::Disk { .. }), "{error}");
    for bytes in [&b""[..], b"rubbish", &[0x1f, 0x8b, 7], &noise(1, 5000)] {
        let error = fails(&write("file", bytes)).await;
        assert!(matches!(&*error, Error::Archive { .. } | Error::Disk { .. }), "{error}");
    }
    let tar = Layer::new().file("other", b"x").plain();
    let error = fails(&write("file.tar", &tar)).await;
    assert!(error.to_string().contains("neither index.json nor manifest.json"), "{error}");
    // A layer that is not what the index says, and links out of the archive.
    let layout = files.path().join("layout");
    let built = image(&[Layer::new().file("a", b"a").gzip()]);
    built.write_layout(&layout, "1");
    let blob = layout.join("blobs/sha256").join(built.layers[0].hex());
    fs::write(&blob, b"changed").unwrap();
    let error = fails(&layout).await;
    assert!(matches!(&*error, Error::WrongDigest { .. }), "{error}");
    fs::remove_file(&blob).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &blob).unwrap();
    let error = fails(&layout).await;
    assert!(matches!(&*error, Error::Archive { .. }), "{error}");
    let saved = json!([{"Config": "../../etc/passwd", "RepoTags": null, "Layers": []}]).to_string();
    let tar = Layer::new().file("manifest.json", saved.as_bytes()).plain();
    let error = fails(&write("saved.tar", &tar)).await;
    assert!(matches!(&*error, Error::Archive { .. }), "{error}");
    let tar = Layer::new().file("manifest.json", saved.as_bytes()).symlink("etc/passwd", "passwd").plain();
    let error = fails(&write("loop.tar", &tar)).await;
    assert!(matches!(&*error, Error::Archive { .. }), "{error}");
    assert_eq!(store.images().unwrap(), []);
    assert_eq!(fs::read_dir(directory.path().join("store/staging")).unwrap().count(), 0);
}
