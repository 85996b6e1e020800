//! Layers that no honest tool writes, and large ones that honest tools do: nothing leaves the root, and
//! everything has an end.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use lyceum_images::{Error, Image, Import, Limits, Settings, Store};
use tar::{EntryType, Header};

use super::{
    content::{Layer, gzip, image, listing},
    real::{Registry, store},
};

/// Imports an image of these layers from an OCI layout.
async fn import(store: &Store, layers: &[Vec<u8>]) -> Result<Image, Arc<Error>> {
    let layout = super::real::directory();
    image(layers).write_layout(layout.path(), "1");
    let image = store.import(Import::new(layout.path(), "test")).wait().await?;
    Ok((*image).clone())
}

fn assert_empty(directory: &Path) {
    for folder in ["staging", "images"] {
        let names: Vec<_> = fs::read_dir(directory.join("store").join(folder)).unwrap().collect();
        assert!(names.is_empty(), "{folder} has {names:?}");
    }
}

#[tokio::test]
async fn unsafe_names_are_rejected() {
    let regular = EntryType::Regular;
    let layers = [
        Layer::new().entry(regular, b"../outside", b"", 0o644, b"x"),
        Layer::new().entry(regular, b"a/../../outside", b"", 0o644, b"x"),
        Layer::new().entry(regular, b"/outside", b"", 0o644, b"x"),
        Layer::new().entry(EntryType::Link, b"a", b"../outside", 0o644, b""),
        Layer::new().entry(EntryType::Link, b"a", b"/etc/passwd", 0o644, b""),
        Layer::new().entry(EntryType::Link, b"a", b"missing", 0o644, b""),
        Layer::new().entry(regular, b"a/.wh...", b"", 0o644, b""),
        Layer::new().entry(regular, b"a/.wh..", b"", 0o644, b""),
        Layer::new().entry(regular, b".wh.", b"", 0o644, b""),
        Layer::new().entry(EntryType::Symlink, b".", b"/", 0o777, b""),
        Layer::new().entry(regular, b".", b"", 0o777, b"x"),
        Layer::new().file("a", b"x").file("a/b", b"x"),
        Layer::new().symlink("a", "b").symlink("b", "a").file("a/x", b"x"),
    ];
    for layer in layers {
        let (directory, store) = store(Settings::default());
        let error = import(&store, &[layer.gzip()]).await.unwrap_err();
        assert!(matches!(&*error, Error::Layer { .. }), "{error:?}");
        assert!(!directory.path().join("outside").exists());
        assert_empty(directory.path());
    }
}

#[tokio::test]
async fn links_do_not_lead_out_of_the_root() {
    let outside = super::real::directory();
    fs::write(outside.path().join("victim"), b"untouched").unwrap();
    let target = outside.path().to_str().unwrap();
    let up = format!("../../../../../../../../../../..{target}");
    let (_directory, store) = store(Settings::default());
    let first = Layer::new()
        .symlink("absolute", target)
        .symlink("relative", &up)
        .symlink("magic", "/proc/self/root")
        .symlink("file", &format!("{target}/victim"))
        .file("absolute/new", b"x")
        .file("relative/victim", b"changed")
        .file("file", b"replaces the link");
    // Whiteouts over links, and through them.
    let second = Layer::new()
        .file("absolute/.wh.new", b"")
        .file("relative/.wh..wh..opq", b"")
        .file("magic/.wh.tmp", b"")
        .file(".wh.relative", b"");
    let image = import(&store, &[first.gzip(), second.gzip()]).await.unwrap();
    assert_eq!(fs::read(outside.path().join("victim")).unwrap(), b"untouched");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(fs::read(image.root().join("file")).unwrap(), b"replaces the link");
    let inside = image.root().join(target.trim_start_matches('/'));
    assert_eq!(fs::read_dir(inside).unwrap().count(), 0, "what the link led to within the root was emptied");
    assert!(image.root().join("relative").symlink_metadata().is_err());
    assert_eq!(fs::read_link(image.root().join("absolute")).unwrap(), outside.path());
}

#[tokio::test]
async fn devices_and_privileges_are_left_out() {
    let (_directory, store) = store(Settings::default());
    let layer = Layer::new()
        .entry(EntryType::Char, b"dev/null", b"", 0o666, b"")
        .entry(EntryType::Block, b"dev/sda", b"", 0o666, b"")
        .entry(EntryType::Fifo, b"pipe", b"", 0o666, b"")
        .entry(EntryType::Regular, b"su", b"", 0o6755, b"x")
        .entry(EntryType::Regular, b"secret", b"", 0o000, b"x")
        .entry(EntryType::Directory, b"tmp", b"", 0o7777, b"")
        .entry(EntryType::Directory, b"closed", b"", 0o000, b"")
        .file("closed/a", b"x");
    let image = import(&store, &[layer.gzip()]).await.unwrap();
    let mode = |name: &str| fs::symlink_metadata(image.root().join(name)).unwrap().permissions().mode() & 0o7777;
    assert!(image.root().join("dev").read_dir().is_err() || image.root().join("dev").read_dir().unwrap().count() == 0);
    assert!(!image.root().join("pipe").exists());
    assert_eq!((mode("su"), mode("secret"), mode("tmp"), mode("closed")), (0o755, 0o400, 0o1777, 0o700));
    // They can be removed again.
    store.remove(&image).unwrap();
    assert_eq!(store.images().unwrap(), []);
}

#[tokio::test]
async fn whiteouts_and_replacements_follow_the_layers() {
    let (_directory, store) = store(Settings::default());
    let first = Layer::new()
        .directory("becomes-file")
        .file("becomes-file/x", b"x")
        .file("becomes-directory", b"x")
        .directory("opaque")
        .directory("opaque/deep")
        .file("opaque/deep/old", b"x")
        .file("removed", b"x")
        .file("both", b"old")
        .file(".wh.not-there", b"");
    let second = Layer::new()
        .file("becomes-file", b"file")
        .file("becomes-directory/y", b"y")
        .file("opaque/deep/new", b"new")
        .file("opaque/.wh..wh..opq", b"")
        .file(".wh.removed", b"")
        .file("both", b"new")
        .file(".wh.both", b"")
        .file(".wh..wh.plnk", b"")
        .file("missing/.wh.x", b"");
    let error = import(&store, &[first.gzip(), second.gzip()]).await.unwrap_err();
    assert!(matches!(&*error, Error::Layer { entry, .. } if entry == "becomes-directory/y"), "{error}");
    let first = Layer::new()
        .directory("becomes-file")
        .file("becomes-file/x", b"x")
        .file("becomes-directory", b"x")
        .directory("opaque")
        .directory("opaque/deep")
        .file("opaque/deep/old", b"x")
        .file("removed", b"x")
        .file("both", b"old");
    let second = Layer::new()
        .file("becomes-file", b"file")
        .directory("becomes-directory")
        .file("becomes-directory/y", b"y")
        .file("opaque/deep/new", b"new")
        .file("opaque/.wh..wh..opq", b"")
        .file(".wh.removed", b"")
        .file("both", b"new")
        .file(".wh.both", b"");
    let image = import(&store, &[first.gzip(), second.gzip()]).await.unwrap();
    let names: Vec<String> = listing(&image.root()).into_keys().collect();
    let expected = [
        "becomes-directory",
        "becomes-directory/y",
        "becomes-file",
        "both",
        "opaque",
        "opaque/deep",
        "opaque/deep/new",
    ];
    assert_eq!(names, expected);
    assert_eq!(fs::read(image.root().join("both")).unwrap(), b"new");
}

fn header(kind: EntryType, name: &str, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_path(name).unwrap();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    header
}

/// Gzip of `length` zeros after some bytes, made without having them.
fn zeros_behind(start: &[u8], length: u64) -> Vec<u8> {
    use std::io::{Read, Write};
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(start).unwrap();
    std::io::copy(&mut std::io::repeat(0).take(length), &mut encoder).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn bombs_end_at_the_limit() {
    let limits = Limits { unpacked_bytes: 64 << 20, entries: 1000, ..Limits::default() };
    let (directory, store) = store(Settings { limits, ..Settings::default() });
    // A terabyte that the header promises.
    let huge = header(EntryType::Regular, "huge", 1 << 40).as_bytes().to_vec();
    let error = import(&store, &[gzip(&huge)]).await.unwrap_err();
    assert!(matches!(&*error, Error::TooLarge { size, .. } if *size >= 1 << 40), "{error}");
    // A sparse file with one block of content.
    let mut sparse = header(EntryType::GNUSparse, "sparse", 512);
    {
        let gnu = sparse.as_gnu_mut().unwrap();
        gnu.realsize.copy_from_slice(b"77777777777\0"); // 8 GiB
        gnu.sparse[0].offset.copy_from_slice(b"00000000000\0");
        gnu.sparse[0].numbytes.copy_from_slice(b"00000001000\0");
        gnu.sparse[1].offset.copy_from_slice(b"77777777777\0");
        gnu.sparse[1].numbytes.copy_from_slice(b"00000000000\0");
    }
    sparse.set_cksum();
    let error =
        import(&store, &[gzip(&[sparse.as_bytes(), &[1; 512][..], &[0; 1024][..]].concat())]).await.unwrap_err();
    assert!(matches!(&*error, Error::TooLarge { .. }), "{error}");
    // 300 MB of zeros in 300 kB, as a file, behind the end of the archive, and as a name.
    let file = header(EntryType::Regular, "zeros", 60 << 20).as_bytes().to_vec();
    let twice =
        [file.clone(), vec![0; 60 << 20], header(EntryType::Regular, "more", 60 << 20).as_bytes().to_vec()].concat();
    let error = import(&store, &[zeros_behind(&twice, 60 << 20)]).await.unwrap_err();
    assert!(matches!(&*error, Error::TooLarge { .. }), "{error}");
    let error = import(&store, &[zeros_behind(&[0; 1024], 300 << 20)]).await.unwrap_err();
    assert!(matches!(&*error, Error::TooLarge { .. }), "{error}");
    let name = header(EntryType::GNULongName, "././@LongLink", 40 << 20).as_bytes().to_vec();
    let error = import(&store, &[zeros_behind(&name, 50 << 20)]).await.unwrap_err();
    assert!(error.to_string().contains("name"), "{error}");
    // Too many entries.
    let many = (0..1001).fold(Layer::new(), |layer, at| layer.file(&format!("f{at}"), b""));
    let error = import(&store, &[many.gzip()]).await.unwrap_err();
    assert!(matches!(&*error, Error::TooLarge { size: 1001, .. }), "{error}");
    // The sparse format that is not read.
    let pax = Layer::new().with(|builder| {
        builder
            .append_pax_extensions([("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.realsize", b"1099511627776")])
            .unwrap();
        builder.append(&header(EntryType::Regular, "sparse", 3), &b"abc"[..]).unwrap();
    });
    let error = import(&store, &[pax.gzip()]).await.unwrap_err();
    assert!(matches!(&*error, Error::Layer { .. }) && error.to_string().contains("PAX"), "{error}");
    assert_empty(directory.path());
}

#[tokio::test]
async fn broken_archives_are_reported() {
    let whole = Layer::new().file("a", &super::content::noise(1, 100_000)).gzip();
    for layer in
        [whole[..whole.len() / 2].to_vec(), gzip(&[7; 5000]), gzip(&header(EntryType::Regular, "a", 9).as_bytes()[..])]
    {
        let (directory, store) = store(Settings::default());
        let error = import(&store, &[layer]).await.unwrap_err();
        assert!(matches!(&*error, Error::Layer { .. }), "{error:?}");
        assert_empty(directory.path());
    }
}

#[tokio::test]
async fn long_names_and_sparse_files_are_unpacked() {
    let (_directory, store) = store(Settings::default());
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(200));
    let mut sparse = header(EntryType::GNUSparse, "sparse", 512);
    {
        let gnu = sparse.as_gnu_mut().unwrap();
        gnu.realsize.copy_from_slice(b"00000010000\0"); // 4096
        gnu.sparse[0].offset.copy_from_slice(b"00000004000\0"); // 2048
        gnu.sparse[0].numbytes.copy_from_slice(b"00000001000\0");
        gnu.sparse[1].offset.copy_from_slice(b"00000010000\0");
        gnu.sparse[1].numbytes.copy_from_slice(b"00000000000\0");
    }
    sparse.set_cksum();
    let layer = Layer::new().with(|builder| {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_mtime(5);
        header.set_size(1);
        builder.append_data(&mut header, &long, &b"x"[..]).unwrap();
        builder.append(&sparse, &[1; 512][..]).unwrap();
    });
    let image = import(&store, &[layer.gzip()]).await.unwrap();
    assert_eq!(fs::read(image.root().join(&long)).unwrap(), b"x");
    let expected = [vec![0; 2048], vec![1; 512], vec![0; 1536]].concat();
    assert_eq!(fs::read(image.root().join("sparse")).unwrap(), expected);
}

/// 200 layers with 100 000 files.
#[tokio::test(flavor = "multi_thread")]
async fn many_layers_and_files_are_unpacked() {
    let Some(registry) = Registry::start() else { return };
    let layers: Vec<Vec<u8>> = (0..200)
        .map(|at| {
            let layer = Layer::new().directory(&format!("l{at}"));
            (0..500).fold(layer, |layer, file| layer.file(&format!("l{at}/f{file}"), b"x")).gzip()
        })
        .collect();
    let (_directory, store) = store(Settings::default());
    let reference = registry.push("some/image", "1", &image(&layers)).await;
    let image = store.pull(lyceum_images::PullRequest::new(reference)).wait().await.unwrap();
    assert_eq!(walkdir::WalkDir::new(image.root()).into_iter().count(), 1 + 200 + 100_000);
    store.remove(&image).unwrap();
    assert_eq!(store.images().unwrap(), []);
}
