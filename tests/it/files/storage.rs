//! What a home holds, measured as its user.

use std::{fs, os::unix::fs::MetadataExt};

use super::World;
use crate::wait::eventually;

#[tokio::test]
async fn a_home_is_measured_where_storage_is_limited() {
    let Some(mut world) = World::open(&[]).await else { return };
    let large = world.put("data/large.bin", &vec![7; 3 << 20]);
    fs::hard_link(&large, world.home().join("data/again.bin")).unwrap();
    let sparse = world.put("data/sparse.bin", b"x");
    fs::File::options().write(true).open(&sparse).unwrap().set_len(1 << 40).unwrap();
    std::os::unix::fs::symlink("/usr", world.home().join("system")).unwrap();
    let closed = world.put("closed/inside.bin", &vec![7; 1 << 20]).parent().unwrap().to_owned();
    std::os::unix::fs::chown(&closed, Some(0), Some(0)).unwrap();
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();

    let (done, said) = world.house.run(&["admin", "quota", "set", "default", "storage_bytes=4MiB"]);
    assert!(done, "{said}");
    // The loop looks when the portal begins.
    world.house.restart().await;
    let bytes = eventually("the home is measured", async || {
        let (status, me) = world.person.ask(&world.house, "GET", "/me", &serde_json::Value::Null).await;
        assert_eq!(status, 200, "{me}");
        me["usage"]["storage_bytes"].as_u64().filter(|bytes| *bytes > 0)
    })
    .await;
    let blocks = fs::metadata(&large).unwrap().blocks() * 512;
    assert!((blocks..blocks + (1 << 20)).contains(&bytes), "each file once, as it lies on the disk: {bytes}");
}
