//! Looking, making, renaming, deleting, downloading.

use std::{fs, os::unix::fs::MetadataExt};

use serde_json::{Value, json};

use super::World;

#[tokio::test]
async fn a_folder_is_listed_made_renamed_and_deleted() {
    let Some(world) = World::open(&[]).await else { return };
    world.put("b.txt", b"bb");
    world.put("A.txt", b"a");
    world.put("data/one", b"1");
    world.put(".hidden", b"");
    std::os::unix::fs::symlink("data", world.home().join("link")).unwrap();
    std::os::unix::fs::symlink("/etc", world.home().join("out")).unwrap();
    std::os::unix::fs::symlink("nowhere", world.home().join("dangling")).unwrap();

    assert_eq!(world.names("").await, ["data", "link", "A.txt", "b.txt", "dangling", "out"]);
    assert_eq!(world.names("?folders=true").await, ["data", "link"]);
    assert_eq!(world.names("?sort=size&descending=true&find=.TXT").await, ["b.txt", "A.txt"]);
    assert!(world.names("?hidden=true").await.contains(&".hidden".to_owned()));
    let listed = world.get("?path=~").await;
    assert_eq!((&listed["path"], &listed["writable"]), (&json!(world.home()), &json!(true)));
    let out = listed["items"].as_array().unwrap().iter().find(|item| item["name"] == "out").unwrap();
    assert_eq!((&out["kind"], &out["target"]), (&json!("link"), &json!("/etc")));
    assert_eq!(world.names("?path=link").await, ["one"], "a link that stays inside is followed");

    let (status, made) = world.ask("POST", "/folders", json!({ "path": "~/data/new folder" })).await;
    assert_eq!((status, &made["kind"]), (201, &json!("folder")), "{made}");
    let facts = fs::metadata(world.home().join("data/new folder")).unwrap();
    assert_eq!((facts.uid(), facts.mode() & 0o777), (world.account.uid, 0o750), "the user's own");
    let (status, said) = world.ask("POST", "/folders", json!({ "path": "data/new folder" })).await;
    assert_eq!(status, 409, "{said}");
    assert_eq!(world.ask("POST", "/folders", json!({ "path": "none/x" })).await.0, 404);

    let (status, moved) = world.ask("PATCH", "?path=b.txt", json!({ "path": "data/c.txt" })).await;
    assert_eq!((status, &moved["name"]), (200, &json!("c.txt")), "{moved}");
    assert_eq!(fs::read(world.home().join("data/c.txt")).unwrap(), b"bb");
    let (status, said) = world.ask("PATCH", "?path=A.txt", json!({ "path": "data/c.txt" })).await;
    assert_eq!(status, 409, "nothing is replaced: {said}");
    assert!(said["detail"].as_str().unwrap().contains("data/c.txt"), "{said}");
    assert_eq!(world.ask("PATCH", "?path=data", json!({ "path": "data/inside" })).await.0, 422, "into itself");

    let (status, said) = world.ask("DELETE", "?path=data", Value::Null).await;
    assert_eq!(status, 409, "{said}");
    assert_eq!(world.get("/info?path=data").await["holds"], 3);
    assert_eq!(world.ask("DELETE", "?path=link", Value::Null).await.0, 204);
    assert!(world.home().join("data").exists(), "the link alone goes");
    std::os::unix::fs::symlink("/etc", world.home().join("data/new folder/etc")).unwrap();
    assert_eq!(world.ask("DELETE", "?path=data&recursive=true", Value::Null).await.0, 204);
    assert!(!world.home().join("data").exists() && fs::metadata("/etc/passwd").is_ok());
    assert_eq!(world.ask("DELETE", "?path=data", Value::Null).await.0, 404);
    assert_eq!(world.ask("DELETE", "?path=~&recursive=true", Value::Null).await.0, 422, "the home itself stays");
    assert_eq!(world.ask("GET", "?path=A.txt", Value::Null).await.0, 409, "no folder");
}

#[tokio::test]
async fn ten_thousand_entries_come_in_pages() {
    let Some(world) = World::open(&[]).await else { return };
    let folder = world.put("many/0", b"").parent().unwrap().to_owned();
    for number in 1..10_000 {
        fs::write(folder.join(number.to_string()), "").unwrap();
    }
    for order in ["", "&sort=modified", "&descending=true"] {
        let (mut seen, mut cursor) = (std::collections::BTreeSet::new(), String::new());
        loop {
            let page = world.get(&format!("?path=many&limit=500{order}{cursor}")).await;
            assert_eq!(page["total"], 10_000);
            for item in page["items"].as_array().unwrap() {
                assert!(seen.insert(item["name"].as_str().unwrap().to_owned()), "{item} came twice");
            }
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(seen.len(), 10_000, "{order}");
    }
    let page = world.person.request(&world.house, "GET", "/files?path=many").header("accept", "text/html");
    let answer = page.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.text().await.unwrap().contains("10000 entries"));
    for bad in ["?limit=0", "?limit=501", "?cursor=x", "?nothing=1", "?sort=color", "?path=a&path=b"] {
        assert_eq!(world.ask("GET", bad, Value::Null).await.0, 422, "{bad}");
    }
}

#[tokio::test]
async fn a_download_is_whole_or_in_part() {
    let Some(world) = World::open(&[]).await else { return };
    let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let name = "<b>ö\" %41.html";
    world.put(name, &content);
    let path = "/content?path=%3Cb%3E%C3%B6%22%20%2541.html";
    let whole = world.send("GET", path).await;
    let headers = whole.headers().clone();
    assert_eq!(whole.status(), 200);
    assert_eq!(whole.bytes().await.unwrap(), content);
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/octet-stream");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert!(header("content-security-policy").contains("sandbox"));
    assert!(
        header("content-disposition").starts_with("attachment; filename=\"_b_"),
        "{}",
        header("content-disposition")
    );
    let part = async |range: &str, more: (&str, &str)| {
        let answer = world.request("GET", path).header("range", range).header(more.0, more.1).send().await.unwrap();
        (answer.status().as_u16(), answer.headers().get("content-range").cloned(), answer.bytes().await.unwrap())
    };
    let none = ("x-nothing", "");
    let (status, range, bytes) = part("bytes=10-19", none).await;
    assert_eq!((status, range.unwrap().to_str().unwrap()), (206, "bytes 10-19/4000000"));
    assert_eq!(bytes, content[10..20]);
    assert_eq!(part("bytes=-5", none).await.2, content[content.len() - 5..]);
    assert_eq!(part("bytes=4000000-", none).await.0, 416);
    assert_eq!(part("bytes=10-19", ("if-range", &header("etag"))).await.0, 206);
    assert_eq!(part("bytes=10-19", ("if-range", "\"other\"")).await.0, 200);
    let known = world.request("GET", path).header("if-none-match", header("etag")).send().await.unwrap();
    assert_eq!(known.status(), 304);
    let head = world.send("HEAD", path).await;
    assert_eq!((head.status().as_u16(), head.headers()["content-length"].to_str().unwrap()), (200, "4000000"));

    world.put("folder/inner/file", b"in a folder");
    std::os::unix::fs::symlink("/etc/passwd", world.home().join("folder/link")).unwrap();
    assert_eq!(world.send("GET", "/content?path=folder").await.status(), 409);
    let tar = world.send("GET", "/content?path=folder&archive=tar").await;
    assert_eq!(tar.headers()["content-type"], "application/x-tar");
    let tar = tar.bytes().await.unwrap();
    let mut archive = tar::Archive::new(tar.as_ref());
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
        found.push((entry.path().unwrap().to_string_lossy().into_owned(), entry.header().entry_type(), text));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let told: Vec<_> =
        found.iter().map(|(path, kind, text)| (path.as_str(), kind.is_symlink(), text.as_str())).collect();
    assert_eq!(
        told,
        [
            ("folder", false, ""),
            ("folder/inner", false, ""),
            ("folder/inner/file", false, "in a folder"),
            ("folder/link", true, "")
        ]
    );
}

/// Agents go when nobody asks them any more, and with the portal.
#[tokio::test]
async fn agents_end_with_their_use() {
    let Some(mut world) = World::open(&[]).await else { return };
    world.get("").await;
    let agents = world.agents();
    assert_eq!(agents.len(), 1, "one is kept for the next question");
    world.get("?hidden=true").await;
    assert_eq!(world.agents(), agents, "and used again");
    world.house.kill();
    crate::life::eventually("the agent ends with the portal", async || world.agents().is_empty().then_some(())).await;
    world.house.start().await;
    world.get("").await;
    crate::life::eventually("an idle agent is let go", async || world.agents().is_empty().then_some(())).await;
}

#[tokio::test]
async fn files_are_their_owners_alone() {
    let base = tempfile::Builder::new().prefix("ly-").tempdir_in("/var/tmp").unwrap();
    super::open_to_all(base.path());
    let config = format!("[[storage]]\nname = 'shared'\npath = '{}'\n", base.path().display());
    let Some(world) = World::configured(&[], &config).await else { return };
    let private = world.put("private.txt", b"mine");
    fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let shared = base.path().join("box");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("x"), "x").unwrap();
    world.give(&shared);
    fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let (other, _) = world.neighbour().await;
    let ask = async |path: &str| {
        let answer = other.request(&world.house, "GET", &format!("/api/v1/files{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, said) = ask(&format!("/content?path={}", private.display())).await;
    assert_eq!(status, 422, "another's home is out of reach: {said}");
    assert_eq!(ask(&format!("?path={}", base.path().display())).await.0, 200);
    let (status, said) = ask(&format!("?path={}", shared.display())).await;
    assert_eq!(status, 403, "{said}");
    assert!(said.contains("no access to"), "{said}");
    // A link from one's own home does not lead there either.
    let roots: Value = serde_json::from_str(&ask("/roots").await.1).unwrap();
    assert_eq!(roots["items"].as_array().unwrap().len(), 2);
    let home = roots["items"][0]["path"].as_str().unwrap().to_owned();
    std::os::unix::fs::symlink(&private, format!("{home}/peek")).unwrap();
    assert_eq!(ask("/content?path=peek").await.0, 409);
    assert_eq!(world.names(&format!("?path={}", shared.display())).await, ["x"]);
}
