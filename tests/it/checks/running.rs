//! What `lyceum check` makes of a portal that runs: it is found where it really listens, and
//! root, who reads everything, still tells what the portal's own user cannot read.

use std::{fs, os::unix::fs::PermissionsExt};

use super::Found;
use crate::{life::House, needs};

#[tokio::test]
async fn a_running_portal_is_asked_where_it_listens() {
    if !needs::root() {
        return;
    }
    // The settings name a port that nobody listens on: the portal is told another one.
    let mut house = House::new(&[("LYCEUM_SERVER__LISTEN", "127.0.0.1:1")]);
    house.start().await;
    let found = Found::of(&house, &[]);
    found.says("port", "ok", &format!("Lyceum responds on {}", house.url.trim_start_matches("http://")));
    found.says("public address", "ok", &format!("{}/ leads to this portal", house.url));
    found.says("apps' address", "ok", "leads to this portal");
}

#[tokio::test]
async fn a_key_that_the_portals_user_cannot_read_is_a_fault() {
    if !needs::root() {
        return;
    }
    let mut house = House::new(&[]);
    house.start().await;
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(folder.path(), 0o755);
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&certificate, pair.cert.pem()).unwrap();
    fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    mode(&certificate, 0o644);
    mode(&key, 0o600);
    let files = [
        ("LYCEUM_SERVER__TLS_CERT", certificate.to_str().unwrap().to_owned()),
        ("LYCEUM_SERVER__TLS_KEY", key.to_str().unwrap().to_owned()),
    ];
    let faults = |found: &Found| found.about("certificate").into_iter().filter(|(level, ..)| *level == "fault").count();
    let found = Found::with(&house, &files);
    found.says("certificate", "fault", &format!("cannot read server.tls_key ({}): Permission denied", key.display()));
    assert_eq!(faults(&found), 1, "the certificate itself is for everybody: {:?}", found.about("certificate"));
    mode(&key, 0o644);
    assert_eq!(faults(&Found::with(&house, &files)), 0);
}
