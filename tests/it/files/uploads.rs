//! Uploads: whole, in pieces, cut, after the portal was killed, and of a gigabyte.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{World, assert_no_partial_files};
use crate::life::eventually;

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

#[tokio::test]
async fn a_file_arrives_whole_or_not_at_all() {
    let Some(world) = World::open(&[]).await else { return };
    let content: Vec<u8> = (0..=255).cycle().take(700_000).collect();
    let target = world.home().join("model.bin");
    let request = json!({ "path": "model.bin", "size_bytes": content.len(), "sha256": sha256(&content) });
    let id = world.begin(request.clone()).await;
    assert_eq!(world.finish(&id).await.0, 409, "nothing is there yet");
    let (status, stands) = world.write(&id, 0, content[..300_000].to_vec()).await;
    assert_eq!((status, &stands["offset_bytes"]), (200, &json!(300_000)), "{stands}");
    assert!(!target.exists());
    let head = world.send("HEAD", &format!("/uploads/{id}")).await;
    assert_eq!(head.headers()["upload-offset"], "300000");
    let wrong = world.request("PATCH", &format!("/uploads/{id}")).header("upload-offset", "5").body("x");
    let wrong = wrong.send().await.unwrap();
    assert_eq!((wrong.status().as_u16(), wrong.headers()["upload-offset"].to_str().unwrap()), (409, "300000"));
    assert_eq!(world.request("PATCH", &format!("/uploads/{id}")).body("x").send().await.unwrap().status(), 422);
    assert_eq!(world.write(&id, 300_000, vec![0; 400_001]).await.0, 409, "more than was said");
    let offset = world.offset(&id).await;
    let (status, said) = world.write(&id, offset, content[usize::try_from(offset).unwrap()..].to_vec()).await;
    assert_eq!(status, 200, "{said}");
    // The overlong piece had begun with zeros.
    let (status, said) = world.finish(&id).await;
    let expected = if offset == 300_000 { 200 } else { 409 };
    assert_eq!(status, expected, "{said}");
    if expected == 409 {
        assert!(said["detail"].as_str().unwrap().contains("SHA-256"), "{said}");
        assert!(!target.exists());
        assert_no_partial_files(world.home());
        let id = world.begin(request).await;
        assert_eq!(world.write(&id, 0, content.clone()).await.0, 200);
        assert_eq!(world.finish(&id).await.0, 200);
    }
    assert_eq!(fs::read(&target).unwrap(), content);
    let facts = fs::metadata(&target).unwrap();
    assert_eq!((facts.uid(), facts.mode() & 0o777), (world.account.uid, 0o640));
    assert_no_partial_files(world.home());
    assert_eq!(world.finish(&id).await.0, 404);

    // Over a file that is there only when that was asked for.
    let again = json!({ "path": "model.bin", "size_bytes": 3 });
    assert_eq!(world.ask("POST", "/uploads", again).await.0, 409);
    let id = world.begin(json!({ "path": "model.bin", "size_bytes": 3, "replace": true })).await;
    world.write(&id, 0, "new").await;
    assert_eq!(fs::read(&target).unwrap(), content, "the old one until the last moment");
    assert_eq!(world.finish(&id).await.0, 200);
    assert_eq!(fs::read(&target).unwrap(), b"new");
    // A name that was taken meanwhile stays what it is.
    let id = world.begin(json!({ "path": "late.bin", "size_bytes": 0 })).await;
    world.put("late.bin", b"earlier");
    assert_eq!(world.finish(&id).await.0, 409);
    assert_eq!(fs::read(world.home().join("late.bin")).unwrap(), b"earlier");
    world.ask("DELETE", &format!("/uploads/{id}"), Value::Null).await;
    assert_no_partial_files(world.home());
    // The same key is the same upload.
    let keyed = async |size: u64| {
        let request = world.request("POST", "/uploads").header("idempotency-key", "k1");
        request
            .json(&json!({ "path": "keyed", "size_bytes": size }))
            .send()
            .await
            .unwrap()
            .json::<Value>()
            .await
            .unwrap()
    };
    let first = keyed(4).await;
    world.write(first["id"].as_str().unwrap(), 0, "ab").await;
    let second = keyed(4).await;
    assert_eq!((&first["id"], &second["offset_bytes"]), (&second["id"], &json!(2)));
    assert_ne!(keyed(5).await["id"], first["id"]);
}

/// Sends the beginning of a piece and cuts the connection.
async fn cut(world: &World, id: &str, content: &[u8], sent: usize) {
    let address = world.house.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let authorization = world.person.authorization();
    let head = format!(
        "PATCH /api/v1/files/uploads/{id} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {authorization}\r\n\
         Upload-Offset: 0\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&content[..sent]).await.unwrap();
}

#[tokio::test]
async fn an_upload_goes_on_after_a_cut_and_after_a_killed_portal() {
    let Some(mut world) = World::open(&[]).await else { return };
    let content: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
    for (name, kills) in [("cut.bin", false), ("killed.bin", true)] {
        let request = json!({ "path": name, "size_bytes": content.len(), "sha256": sha256(&content) });
        let id = world.begin(request).await;
        if kills {
            // Killed while a piece is on its way and more is to come.
            let address = world.house.url.strip_prefix("http://").unwrap().to_owned();
            let mut stream = TcpStream::connect(&address).await.unwrap();
            let head = format!(
                "PATCH /api/v1/files/uploads/{id} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {}\r\n\
                 Upload-Offset: 0\r\nContent-Length: {}\r\n\r\n",
                world.person.authorization(),
                content.len()
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&content[..3_000_000]).await.unwrap();
            eventually("some of it has arrived", async || (partial_length(&world) > 0).then_some(())).await;
            world.house.kill();
            let _ = stream.read(&mut [0; 16]).await;
            assert!(!world.home().join(name).exists(), "nothing under the target's name");
            world.house.start().await;
        } else {
            cut(&world, &id, &content, 3_000_000).await;
        }
        let offset = eventually("what came before is kept", async || {
            let offset = world.offset(&id).await;
            (offset > 0).then_some(offset)
        })
        .await;
        assert!(offset < content.len() as u64);
        // The agent of the piece that was cut may still hold its lock for a moment.
        eventually("the rest is taken", async || {
            let offset = world.offset(&id).await;
            let rest = content[usize::try_from(offset).unwrap()..].to_vec();
            (world.write(&id, offset, rest).await.0 == 200).then_some(())
        })
        .await;
        let (status, said) = world.finish(&id).await;
        assert_eq!(status, 200, "{said}");
        assert_eq!(fs::read(world.home().join(name)).unwrap(), content);
        assert_no_partial_files(world.home());
    }
}

fn partial_length(world: &World) -> u64 {
    let entries = fs::read_dir(world.home()).unwrap().flatten();
    let partial = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(".lyceum-upload-"));
    partial.map(|entry| entry.metadata().map_or(0, |facts| facts.len())).max().unwrap_or(0)
}

const GIGABYTE: u64 = 1 << 30;

/// How much more memory portal and agent may take for a gigabyte than for nothing (KiB).
const FLAT_KIB: u64 = 16 * 1024;

/// `stream_flat`: a gigabyte up and down, and how much memory that took at its peak.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_flat() {
    let Some(world) = World::open(&[("LYCEUM_FILES__TIMEOUT", "2m")]).await else { return };
    let sparse = world.put("sparse", b"");
    fs::OpenOptions::new().write(true).open(sparse).unwrap().set_len(GIGABYTE).unwrap();
    world.get("").await;
    let portal = world.house.pid();
    let before = memory(portal, "VmRSS:");
    // Its peak so far is forgotten.
    fs::write(format!("/proc/{portal}/clear_refs"), "5").unwrap();
    let download = async {
        let mut stream = world.send("GET", "/content?path=sparse").await.bytes_stream();
        let (mut bytes, mut agent) = (0, 0);
        while let Some(piece) = stream.next().await {
            bytes += piece.unwrap().len() as u64;
            if agent == 0 && GIGABYTE / 2 < bytes {
                agent = world.agents().into_iter().map(own_memory).max().unwrap_or(0);
            }
        }
        (bytes, agent)
    };
    let (bytes, agent_down) = download.await;
    assert_eq!(bytes, GIGABYTE);

    let id = world.begin(json!({ "path": "large", "size_bytes": GIGABYTE })).await;
    let piece = Bytes::from(vec![0; 1 << 20]);
    let pieces = futures_util::stream::iter((0..1024).map(move |_| Ok::<_, std::io::Error>(piece.clone())));
    let (status, said) = world.write(&id, 0, reqwest::Body::wrap_stream(pieces)).await;
    assert_eq!(status, 200, "{said}");
    let agent_up = world.agents().into_iter().map(own_memory).max().unwrap_or(0);
    assert_eq!(world.finish(&id).await.0, 200);
    assert_eq!(fs::metadata(world.home().join("large")).unwrap().len(), GIGABYTE);
    let growth = memory(portal, "VmHWM:").saturating_sub(before);
    println!("portal: {before} KiB, at most {growth} KiB more; agent: {agent_down} KiB down, {agent_up} KiB up");
    assert!(growth <= FLAT_KIB, "the portal grew by {growth} KiB");
    assert!(agent_down.max(agent_up) <= 2 * FLAT_KIB, "the agent took {agent_down} and {agent_up} KiB");
    tokio::time::timeout(Duration::from_secs(30), world.ask("DELETE", "?path=large", Value::Null)).await.unwrap();
}

/// The most that a process had, but for the pages of its program, which all share (KiB).
fn own_memory(pid: i32) -> u64 {
    memory(pid, "VmHWM:").saturating_sub(memory(pid, "RssFile:"))
}

fn memory(pid: i32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// In a folder of several people somebody else can guess the name of a partial file.
#[tokio::test]
async fn nobody_elses_file_is_taken_for_an_upload() {
    let Some(world) = World::open(&[]).await else { return };
    let ask = async || {
        let request = world.request("POST", "/uploads").header("idempotency-key", "guessed");
        let answer = request.json(&json!({ "path": "shared.bin", "size_bytes": 4 })).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, begun) = ask().await;
    assert_eq!(status, 201, "{begun}");
    let id = begun["id"].as_str().unwrap();
    let partial = fs::read_dir(world.home()).unwrap().map(|entry| entry.unwrap().path());
    let mut partial = partial;
    let partial = partial.find(|path| path.to_string_lossy().contains(".lyceum-upload-")).unwrap();
    // Whose it is counts, however open it is; and neither may it have another name, or be a link.
    let other = world.home().join("other");
    for planted in ["foreign", "linked", "link", "folder"] {
        fs::remove_file(&partial).unwrap();
        match planted {
            "foreign" => {
                fs::write(&partial, b"ev").unwrap();
                fs::set_permissions(&partial, fs::Permissions::from_mode(0o666)).unwrap();
            }
            "linked" => {
                fs::hard_link(world.put("other", b"ev"), &partial).unwrap();
            }
            "link" => std::os::unix::fs::symlink(&other, &partial).unwrap(),
            _ => {
                fs::create_dir(&partial).unwrap();
                world.give(&partial);
            }
        }
        assert_eq!(ask().await.0, 409, "{planted}");
        assert_eq!(world.ask("GET", &format!("/uploads/{id}"), Value::Null).await.0, 404, "{planted}");
        assert_eq!(world.write(id, 2, "il").await.0, 404, "{planted}");
        assert_eq!(world.finish(id).await.0, 404, "{planted}");
        assert!(!world.home().join("shared.bin").exists(), "{planted}");
        if planted == "folder" {
            fs::remove_dir(&partial).unwrap();
        }
    }
    let (status, begun) = ask().await;
    assert_eq!((status, &begun["offset_bytes"]), (201, &json!(0)), "{begun}");
    assert_eq!(world.write(id, 0, "mine").await.0, 200);
    assert_eq!(world.finish(id).await.0, 200);
}
