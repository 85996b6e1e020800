//! Content on its way while its owner's access ends: it stops within seconds, and what of an
//! upload had come goes on later.

use std::{
    fs::{self, File},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::World;
use crate::life::eventually;

const WITHIN: Duration = Duration::from_secs(5);

/// Asks for something; the connection.
async fn ask(world: &World, method: &str, path: &str, more: &str) -> TcpStream {
    let address = world.house.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let authorization = world.person.authorization();
    let head = format!(
        "{method} /api/v1/files{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {authorization}\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// How many bytes still come.
async fn rest(stream: &mut TcpStream) -> u64 {
    let (mut piece, mut sum) = (vec![0; 1 << 20], 0);
    while let Ok(1..) = stream.read(&mut piece).await.inspect(|read| sum += *read as u64) {}
    sum
}

#[tokio::test]
async fn content_on_its_way_stops_with_its_owners_access() {
    let Some(world) = World::open(&[]).await else { return };
    let admin = world.house.admin();
    let size = 4_u64 << 30;
    let sparse = world.put("folder/large.bin", b"");
    File::options().write(true).open(&sparse).unwrap().set_len(size).unwrap();
    let id = world.begin(json!({ "path": "slow.bin", "size_bytes": 1_000_000 })).await;

    // One reads a little, one reads nothing at all, one sends a little.
    let mut download = ask(&world, "GET", "/content?path=folder/large.bin", "").await;
    let mut archive = ask(&world, "GET", "/content?path=folder&archive=tar", "").await;
    for stream in [&mut download, &mut archive] {
        stream.read_exact(&mut [0; 1000]).await.unwrap();
    }
    let more = "Upload-Offset: 0\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000000\r\n";
    let mut upload = ask(&world, "PATCH", &format!("/uploads/{id}"), more).await;
    upload.write_all(&vec![7; 300_000]).await.unwrap();
    let partial = || {
        let names = fs::read_dir(world.home()).unwrap().map(|entry| entry.unwrap());
        names
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(".lyceum-upload-"))
            .map(|entry| entry.metadata().unwrap().len())
            .sum::<u64>()
    };
    eventually("a piece has arrived", async || (partial() == 300_000).then_some(())).await;
    assert!(!world.agents().is_empty());

    let disable = async |disabled: bool| {
        let path = format!("/users/{}", world.person.name);
        let (status, body) = admin.ask(&world.house, "PATCH", &path, &json!({ "disabled": disabled })).await;
        assert_eq!(status, 200, "{body}");
    };
    let began = Instant::now();
    disable(true).await;
    for (what, stream) in [("download", &mut download), ("archive", &mut archive), ("upload", &mut upload)] {
        let left = WITHIN.saturating_sub(began.elapsed());
        let came = timeout(left, rest(stream)).await.unwrap_or_else(|_| panic!("the {what} goes on"));
        assert!(came < size / 4, "{came} bytes of the {what} came all the same");
    }
    eventually("the agents have gone", async || world.agents().is_empty().then_some(())).await;
    assert_eq!(partial(), 300_000, "nothing is written after the end, and nothing is lost");

    disable(false).await;
    let offset = world.offset(&id).await;
    assert_eq!(offset, 300_000);
    let (status, said) = world.write(&id, offset, vec![7; 700_000]).await;
    assert_eq!((status, &said["offset_bytes"]), (200, &Value::from(1_000_000)), "{said}");
    assert_eq!(world.finish(&id).await.0, 200);
}
