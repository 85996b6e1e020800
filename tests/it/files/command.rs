//! `lyceum files` as somebody types it: up and down by the real API, whole folders, and what one file that fails means
//! for the others. What hostile answers do is tested in crates/client.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
};

use serde_json::{Value, json};

use super::{World, assert_no_partial_files};

/// How it ended, and what it said on standard output and standard error.
fn lyceum(world: &World, here: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let token = world.person.authorization().replacen("Bearer ", "", 1);
    let mut command = Command::new(&world.house.program);
    command.arg("files").args(arguments).current_dir(here);
    let output = command.env("LYCEUM_URL", &world.house.url).env("LYCEUM_TOKEN", token).output().unwrap();
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
