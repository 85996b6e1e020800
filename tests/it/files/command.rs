//! `lyceum files` as somebody types it: up and down by the real API, whole folders, and what one file that fails means
//! for the others. What hostile answers do is tested in crates/client.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

use super::{World, assert_no_partial_files};

/// How it ended, and what it said on standard output and standard error.
fn lyceum(world: &World, here: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    lyceum_at(&world.house.url, world, here, arguments)
}

fn lyceum_at(url: &str, world: &World, here: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let token = world.person.authorization().replacen("Bearer ", "", 1);
    let mut command = Command::new(&world.house.program);
    command.arg("files").args(arguments).current_dir(here);
    let output = command.env("LYCEUM_URL", url).env("LYCEUM_TOKEN", token).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn files_are_copied_from_a_shell() {
    let Some(world) = World::open(&[]).await else { return };
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    let run = |arguments: &[&str]| lyceum(&world, here, arguments);
    // Of several pieces, and not a whole number of them.
    let content: Vec<u8> = (0..2_500_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(here.join("model.pt"), &content).unwrap();
    fs::create_dir_all(here.join("in/deep/empty")).unwrap();
    fs::write(here.join("in/deep/ö +%41"), "odd").unwrap();
    fs::write(here.join("in/nothing"), "").unwrap();
    symlink("/etc/passwd", here.join("in/passwd")).unwrap();
    symlink("/etc", here.join("in/etc")).unwrap();

    // Up: to a name of its own, again over what is there, and with a folder.
    let (code, said, errors) = run(&["cp", "model.pt", "lyceum:first.pt"]);
    assert_eq!((code, said.as_str()), (Some(0), "copied 1 file, 9.5 MiB\n"), "{errors}");
    assert_eq!(fs::read(world.home().join("first.pt")).unwrap(), content);
    fs::write(here.join("model.pt"), &content[..9_000_000]).unwrap();
    assert_eq!(run(&["cp", "model.pt", "lyceum:first.pt"]).0, Some(0));
    assert_eq!(fs::read(world.home().join("first.pt")).unwrap(), content[..9_000_000]);
    let (code, _, errors) = run(&["cp", "in", "lyceum:"]);
    assert!(code == Some(65) && errors.contains("in: this is a folder; use --recursive"), "{errors}");
    let (code, said, errors) = run(&["cp", "-r", "in", "model.pt", "lyceum:", "--json"]);
    assert!(code == Some(0) && errors.contains("in/passwd: skipped, it is a link"), "{said} {errors}");
    let told: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len(), 3, "{said}");
    let home = world.home().display().to_string();
    assert!(told.contains(&json!({ "source": "in/nothing", "target": format!("{home}/in/nothing"), "size_bytes": 0 })));
    assert_eq!(fs::read(world.home().join("in/deep/ö +%41")).unwrap(), b"odd");
    assert!(world.home().join("in/deep/empty").is_dir());
    assert!(fs::symlink_metadata(world.home().join("in/passwd")).is_err(), "no link was followed");

    // One that fails stops none of the others.
    world.put("in/taken/x", b"");
    fs::create_dir(here.join("two")).unwrap();
    fs::write(here.join("two/taken"), "").unwrap();
    fs::write(here.join("two/well"), "well").unwrap();
    let (code, said, errors) = run(&["cp", "two/taken", "missing", "two/well", "lyceum:in"]);
    assert!(code == Some(1) && said == "copied 1 file, 4 B\n" && errors.contains("2 of 3 failed"), "{said} {errors}");
    assert!(errors.contains("cannot read missing") && errors.contains("two/taken: "), "{errors}");
    assert_eq!(fs::read(world.home().join("in/well")).unwrap(), b"well");
    assert_eq!(run(&["cp", "missing", "lyceum:in"]).0, Some(66));
    assert_eq!(run(&["cp", "two/well", "lyceum:nowhere/x"]).0, Some(66));

    // Down again: the same, whole and without anything left over.
    fs::set_permissions(world.put("in/secret", b"s"), fs::Permissions::from_mode(0o000)).unwrap();
    symlink("/etc/passwd", world.home().join("in/link")).unwrap();
    let (code, said, errors) = run(&["cp", "-r", "lyceum:in", "lyceum:first.pt", "."]);
    assert!(code == Some(1) && errors.contains("1 of "), "{said} {errors}");
    assert!(errors.contains("in/secret: ") && errors.contains("in/link: skipped"), "{errors}");
    assert_eq!(fs::read(here.join("first.pt")).unwrap(), content[..9_000_000]);
    assert_eq!(fs::read(here.join("in/well")).unwrap(), b"well");
    assert!(here.join("in/taken/x").is_file() && !here.join("in/secret").exists());
    assert_eq!(run(&["cp", "lyceum:~/in/deep/ö +%41", "copy"]).0, Some(0));
    assert_eq!(fs::read(here.join("copy")).unwrap(), b"odd");
    assert_eq!(run(&["cp", "lyceum:../../etc/passwd", "copy"]).0, Some(65));
    assert_eq!(run(&["cp", "lyceum:missing", "copy"]).0, Some(66));
    assert_eq!(fs::read(here.join("copy")).unwrap(), b"odd", "what was there stays");
    for folder in [world.home(), &world.home().join("in"), here] {
        assert_no_partial_files(folder);
    }
    assert!(fs::read_dir(here).unwrap().all(|entry| !entry.unwrap().file_name().as_encoded_bytes().starts_with(b".")));

    let (_, listed, errors) = run(&["ls", "lyceum:in"]);
    assert!(listed.lines().any(|line| line.starts_with("4 B ") && line.ends_with("  well")), "{listed} {errors}");
    assert!(listed.contains("  deep/\n") && listed.contains("link -> /etc/passwd\n"), "{listed}");
    assert_eq!(run(&["ls", "in/well", "--columns", "name,size_bytes"]).1, "NAME  SIZE_BYTES\nwell  4\n");
}

/// The same command resumes what was interrupted.
#[tokio::test]
async fn an_interrupted_copy_resumes() {
    let Some(world) = World::open(&[]).await else { return };
    let place = tempfile::tempdir().unwrap();
    let content = vec![b'x'; 9 << 20];
    fs::write(place.path().join("data"), &content).unwrap();
    let hash = crate::portal::sha256(&content);
    let target = format!("{}/data", world.home().display());
    let key = crate::portal::sha256(format!("{hash} {} {target}", content.len()));
    let begun = json!({ "path": target, "size_bytes": content.len(), "replace": true, "sha256": hash });
    let request = world.request("POST", "/uploads").header("idempotency-key", key).json(&begun);
    let begun: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(world.write(begun["id"].as_str().unwrap(), 0, content[..5 << 20].to_vec()).await.0, 200);
    let (code, said, errors) = lyceum(&world, place.path(), &["cp", "data", "lyceum:"]);
    assert_eq!(code, Some(0), "{said} {errors}");
    assert_eq!(fs::read(world.home().join("data")).unwrap(), content);
    assert_no_partial_files(world.home());
}

/// A download goes on where the connection broke off, and begins again when the file has changed in the meantime.
#[tokio::test]
async fn a_download_that_breaks_off_resumes() {
    let Some(world) = World::open(&[]).await else { return };
    let place = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..2_500_000_u32).flat_map(u32::to_le_bytes).collect();
    let file = world.put("model.pt", &content);
    let (line, ranges) = breaking_line(&world.house.url, 2, || {});
    let (code, said, errors) = lyceum_at(&line, &world, place.path(), &["cp", "lyceum:model.pt", "."]);
    assert_eq!((code, said.as_str()), (Some(0), "copied 1 file, 9.5 MiB\n"), "{errors}");
    assert!(fs::read(place.path().join("model.pt")).unwrap() == content, "all of it, in order");
    let ranges = ranges.lock().unwrap().clone();
    let from: Vec<u64> = ranges.iter().map(|range| range.trim_end_matches('-').parse().unwrap()).collect();
    assert!(from.len() == 2 && 2_000_000 < from[0] && from[0] < from[1], "{from:?}");

    let other: Vec<u8> = content.iter().rev().copied().collect();
    let changed = other.clone();
    let (line, ranges) = breaking_line(&world.house.url, 1, move || {
        fs::write(file.with_extension("new"), &changed).unwrap();
        fs::rename(file.with_extension("new"), &file).unwrap();
    });
    let (code, said, errors) = lyceum_at(&line, &world, place.path(), &["cp", "lyceum:model.pt", "again.pt"]);
    assert_eq!(code, Some(0), "{said} {errors}");
    assert!(fs::read(place.path().join("again.pt")).unwrap() == other, "of one version, not of both");
    assert_eq!(ranges.lock().unwrap().len(), 1);
    assert!(fs::read_dir(place.path()).unwrap().count() == 2, "nothing is left over");
}

/// A line to the portal that breaks some times, each time after 3 MB of an answer and once `at_break` has returned.
/// Returns its address, and where the ranges that were asked for on it begin.
fn breaking_line(
    portal: &str,
    breaks: usize,
    at_break: impl Fn() + Send + Sync + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let portal = portal.strip_prefix("http://").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let ranges = Arc::new(Mutex::new(Vec::new()));
    let (left, at_break, asked) = (Arc::new(AtomicUsize::new(breaks)), Arc::new(at_break), ranges.clone());
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&portal).unwrap());
            let (left, at_break, asked) = (left.clone(), at_break.clone(), asked.clone());
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                forward(&from, &to, |part| {
                    let head = String::from_utf8_lossy(part).to_lowercase();
                    let ranges = head.lines().filter_map(|line| line.strip_prefix("range: bytes="));
                    asked.lock().unwrap().extend(ranges.map(str::to_owned));
                    true
                });
            });
            thread::spawn(move || {
                let mut sent = 0;
                forward(&server, &client, |part| {
                    sent += part.len();
                    let less = |left: usize| left.checked_sub(1);
                    if sent < 3_000_000 || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
                        return true;
                    }
                    at_break();
                    false
                });
            });
        }
    });
    (address, ranges)
}

/// Copies from one end to the other as long as `goes_on` says so, then closes both.
fn forward(mut from: &TcpStream, mut to: &TcpStream, mut goes_on: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; 65536];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !goes_on(&buffer[..count]) || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ended = end.shutdown(Shutdown::Both);
    }
}
