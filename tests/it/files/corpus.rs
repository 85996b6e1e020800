//! `upload_corpus` and its like: paths and names that try to get out, a link that is
//! exchanged while requests run, file systems that are full.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use super::{World, assert_no_partial_files, upload_id};

/// Paths that must never lead anywhere but below the home: percent-encoded, with the statuses
/// that they may get.
const PATHS: [(&str, &[u16]); 20] = [
    ("..", &[422]),
    ("../../etc/passwd", &[422]),
    ("~/../x", &[422]),
    ("a/../../b", &[422]),
    ("%2e%2e/%2e%2e/etc/passwd", &[422]),
    ("/etc/passwd", &[422]),
    ("//etc/passwd", &[422]),
    ("/", &[422]),
    ("/proc/self/root/etc/passwd", &[422]),
    ("~root/x", &[404]),
    ("a%00b", &[422]),
    ("%00", &[422]),
    ("out/passwd", &[409]),
    ("up/etc/passwd", &[409]),
    ("proc/self/root/etc/passwd", &[409]),
    ("a%0Ab", &[404]),
    ("%FF%FE", &[404]),
    ("..%5C..%5Cetc", &[404]),
    ("%252e%252e/x", &[404]),
    ("loop/x", &[409]),
];

#[tokio::test]
async fn upload_corpus() {
    let Some(world) = World::open(&[("LYCEUM_FILES__MAX_UPLOAD", "2M")]).await else { return };
    symlink("/etc", world.home().join("out")).unwrap();
    symlink("../..", world.home().join("up")).unwrap();
    symlink("/proc", world.home().join("proc")).unwrap();
    symlink("loop", world.home().join("loop")).unwrap();
    let long = "x".repeat(256);
    let deep = "x/".repeat(2100);
    let paths = PATHS.iter().copied().chain([(long.as_str(), [422].as_slice()), (deep.as_str(), &[422])]);
    for (path, statuses) in paths {
        for (method, route, body) in [
            ("GET", format!("?path={path}"), Value::Null),
            ("GET", format!("/info?path={path}"), Value::Null),
            ("GET", format!("/content?path={path}"), Value::Null),
            ("DELETE", format!("?path={path}&recursive=true"), Value::Null),
            ("PATCH", format!("?path={path}"), json!({ "path": "taken" })),
        ] {
            let (status, said) = world.ask(method, &route, body).await;
            assert!(statuses.contains(&status), "{method} {route:.60}: {status} {said}");
            let text = said.to_string();
            assert!(!text.contains("root:x:0"), "{text}");
        }
        // As a place to put something.
        let typed = percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned();
        let (status, said) =
            world.ask("POST", "/uploads", json!({ "path": format!("{typed}/new"), "size_bytes": 1 })).await;
        assert!((400..500).contains(&status), "{path}: {status} {said}");
        let (status, said) = world.ask("POST", "/folders", json!({ "path": format!("{typed}/new") })).await;
        assert!((400..500).contains(&status), "{path}: {status} {said}");
    }
    assert!(!Path::new("/etc/new").exists() && !world.home().join("taken").exists());

    // Names that are odd but good arrive as they are.
    for name in ["a\nb", " leading", "-rf", "…", ".dot", "a\\b", "\u{202e}gnp.exe", "<img src=x>", &"y".repeat(255)] {
        let id = world.begin(json!({ "path": format!("~/{name}"), "size_bytes": 2 })).await;
        assert_eq!(world.write(&id, 0, "hi").await.0, 200);
        assert_eq!(world.finish(&id).await.0, 200, "{name:?}");
        assert_eq!(fs::read(world.home().join(name)).unwrap(), b"hi", "{name:?}");
    }
    // A name that is no text: it can be seen, renamed and deleted.
    let odd = OsStr::from_bytes(b"\xff\xfe");
    world.give(&{
        fs::write(world.home().join(odd), "odd").unwrap();
        world.home().join(odd)
    });
    let listed = world.get("?hidden=true&limit=500").await;
    let item = listed["items"].as_array().unwrap().iter().find(|item| item["name"] == "\u{fffd}\u{fffd}").unwrap();
    let path = item["encoded_path"].as_str().unwrap();
    assert_eq!(world.send("GET", &format!("/content?path={path}")).await.text().await.unwrap(), "odd");
    assert_eq!(world.ask("PATCH", &format!("?path={path}"), json!({ "path": "even" })).await.0, 200);
    assert_eq!(world.ask("DELETE", "?path=even", Value::Null).await.0, 204);

    // Sizes, and ids that somebody made up.
    let (status, said) = world.ask("POST", "/uploads", json!({ "path": "big", "size_bytes": (2 << 20) + 1 })).await;
    assert_eq!(status, 413, "{said}");
    for size in [json!(-1), json!(1.5), json!("1"), json!(1e300)] {
        let (status, said) = world.ask("POST", "/uploads", json!({ "path": "big", "size_bytes": size })).await;
        assert_eq!(status, 422, "{said}");
    }
    for id in [
        upload_id("../..", "passwd", 1),
        upload_id("out", "passwd", 1),
        upload_id("", "..", 1),
        upload_id("", "a/b", 1),
        upload_id("", "never begun", 1),
        "x".to_owned(),
    ] {
        assert!([404, 409].contains(&world.write(&id, 0, "x").await.0), "{id}");
        assert!([404, 409].contains(&world.finish(&id).await.0), "{id}");
    }
    assert_eq!(world.write(&upload_id("", "large", 3 << 20), 0, "x").await.0, 413, "the limit holds for them too");
    // A link where a partial file should be is not written through.
    let target = world.put("target", b"as it was");
    symlink(&target, world.home().join(".lyceum-upload-0123456789abcdef0123456789abcdef")).unwrap();
    let id = upload_id("", "through", 9);
    assert_eq!(world.write(&id, 0, "overwrite").await.0, 404);
    fs::remove_file(world.home().join(".lyceum-upload-0123456789abcdef0123456789abcdef")).unwrap();
    fs::hard_link(&target, world.home().join(".lyceum-upload-0123456789abcdef0123456789abcdef")).unwrap();
    assert_eq!(world.write(&id, 9, "x").await.0, 404, "nor through a second name");
    assert_eq!(fs::read(&target).unwrap(), b"as it was");
}

/// A folder and a link that leads out change places all the time; what is outside belongs to
/// the same user, so that nothing but the resolution protects it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_exchanged_under_way_leads_nowhere() {
    let Some(world) = World::open(&[]).await else { return };
    let outside = tempfile::Builder::new().prefix("ly-").tempdir_in("/var/tmp").unwrap();
    super::open_to_all(outside.path());
    fs::write(outside.path().join("file"), "outside").unwrap();
    world.give(&outside.path().join("file"));
    world.put("swap/file", b"inside");
    let link = world.home().join("link");
    symlink(outside.path(), &link).unwrap();

    let (ended, swaps) = (AtomicBool::new(false), AtomicU32::new(0));
    let swap = world.home().join("swap");
    let rounds = async {
        let mut met = [0; 2];
        for round in 0..150 {
            let content = world.send("GET", "/content?path=swap/file").await;
            if content.status() == 200 {
                assert_eq!(content.text().await.unwrap(), "inside");
                met[0] += 1;
            } else {
                met[1] += 1;
            }
            let (status, listed) = world.ask("GET", "?path=swap", Value::Null).await;
            assert!(status != 200 || !listed["path"].as_str().unwrap().starts_with("/var/tmp"), "{listed}");
            let _ = world.ask("POST", "/folders", json!({ "path": format!("swap/folder-{round}") })).await;
            let upload = json!({ "path": format!("swap/new-{round}"), "size_bytes": 1 });
            let (status, begun) = world.ask("POST", "/uploads", upload).await;
            if status == 201 {
                let id = begun["id"].as_str().unwrap();
                let _ = world.write(id, 0, "x").await;
                let _ = world.finish(id).await;
            }
            let _ = world.ask("PATCH", "?path=swap/file", json!({ "path": "swap/renamed" })).await;
            let _ = world.ask("PATCH", "?path=swap/renamed", json!({ "path": "swap/file" })).await;
            let _ = world.ask("DELETE", &format!("?path=swap/new-{}", round - 1), Value::Null).await;
        }
        met
    };
    let met = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                renameat_with(CWD, &swap, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        let met = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(rounds));
        ended.store(true, Ordering::Relaxed);
        met
    });
    assert!(met[0] > 0 && met[1] > 0 && swaps.load(Ordering::Relaxed) > 100, "both were met: {met:?}");
    let left: Vec<PathBuf> = fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [outside.path().join("file")], "nothing was written outside");
    assert_eq!(fs::read_to_string(&left[0]).unwrap(), "outside");
}

/// A file system of its own that holds little.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Self {
        let base = tempfile::Builder::new().prefix("ly-").tempdir_in("/var/tmp").unwrap();
        let mut mount = Command::new("mount");
        assert!(
            mount.args(["-t", "tmpfs", "-o", "size=2m,mode=777", "small"]).arg(base.path()).status().unwrap().success()
        );
        Self(base)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_file_system_is_told_and_leaves_nothing() {
    if !crate::needs::root() {
        return;
    }
    let small = Small::mount();
    let folder = small.0.path();
    let config = format!("[[storage]]\nname = 'small'\npath = '{}'\n", folder.display());
    let Some(world) = World::configured(&[], &config).await else { return };
    let path = |name: &str| format!("{}/{name}", folder.display());
    let (status, said) = world.ask("POST", "/uploads", json!({ "path": path("big"), "size_bytes": 3 << 20 })).await;
    assert_eq!(status, 409, "asked first: {said}");
    assert!(said["detail"].as_str().unwrap().contains("not enough space"), "{said}");
    assert_no_partial_files(folder);

    let id = world.begin(json!({ "path": path("late"), "size_bytes": 3 << 19 })).await;
    fs::write(folder.join("meanwhile"), vec![1; 1 << 20]).unwrap();
    let (status, said) = world.write(&id, 0, vec![7; 3 << 19]).await;
    assert_eq!(status, 409, "{said}");
    assert!(said["detail"].as_str().unwrap().contains("full"), "{said}");
    assert!(!folder.join("late").exists(), "nothing under the target's name");
    // With room again it goes on where it stands.
    fs::remove_file(folder.join("meanwhile")).unwrap();
    let offset = world.offset(&id).await;
    let rest = usize::try_from((3 << 19) - offset).unwrap();
    assert_eq!(world.write(&id, offset, vec![7; rest]).await.0, 200);
    assert_eq!(world.finish(&id).await.0, 200);
    assert_eq!(fs::read(folder.join("late")).unwrap(), vec![7; 3 << 19]);
    let id = world.begin(json!({ "path": path("gone"), "size_bytes": 10 })).await;
    world.write(&id, 0, "12345").await;
    assert_eq!(world.ask("DELETE", &format!("/uploads/{id}"), Value::Null).await.0, 204);
    assert_no_partial_files(folder);
}
