//! People's own credentials for a registry, end to end: a real registry with accounts, a user with the right password,
//! one with a wrong one and one with none. What one user's credentials pulled is that user's alone, in the portal and on
//! the disk, and the password is nowhere to be found.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{SCRIPT, registry::Registry, settled};
use crate::{
    life::{
        House, Person,
        jobs::{ended, log, submit},
    },
    needs,
};

const ACCOUNTS: [&str; 2] = [
    "site:$2b$04$.kxM3kyLUnpcNutadxsY8Ou2pKfP/S429XdlH1dhmlP9c.g8wm3.y",
    "$oauthtoken:$2b$04$NyP6lFae9BwdeuW4AoGxVOscO91wo/0a0I.bFmAWyvifG263McBDG",
];
const OF_SITE: &str = "geheim-of-site";
const OF_ADA: &str = "geheim-of-ada";
/// The same in base64, as the head of a request has it.
const BASIC: &str = "JG9hdXRodG9rZW46Z2VoZWltLW9mLWFkYQ";

async fn ask(house: &House, person: &Person, method: &str, path: &str, body: Value) -> (u16, Value) {
    person.ask(house, method, path, &body).await
}

/// Adds an image and waits for what comes of its pull.
async fn try_out(house: &House, person: &Person, name: &str, reference: &str, outcome: &str) -> Value {
    let new = json!({ "name": name, "reference": reference });
    let (status, added) = ask(house, person, "POST", "/images", new).await;
    assert_eq!((status, &added["private"]), (201, &json!(true)), "{added}");
    let (status, begun) = ask(house, person, "POST", &format!("/images/{name}/pull"), Value::Null).await;
    assert_eq!(status, 202, "{begun}");
    settled(house, person, name, outcome).await
}

#[tokio::test]
async fn what_ones_credentials_pull_is_ones_own() {
    let Some(registry) = Registry::start_with_accounts(&ACCOUNTS, ("site", OF_SITE)) else { return };
    if !needs::root() {
        return;
    }
    let digest = registry.push("org/private", "1", "NAME=private\n").await;
    let host = registry.host.clone();
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("registries.toml");
    fs::write(&site, format!("['{host}']\nuser = 'site'\npassword = '{OF_SITE}'\n")).unwrap();
    fs::set_permissions(&site, fs::Permissions::from_mode(0o600)).unwrap();
    let more = format!("[images]\nallow = ['{host}/*']\nper_user = 2\ncredentials = '{}'\n", site.display());
    let mut house = House::new(&[]).configured(&more);
    house.start().await;
    let (admin, ada, bob, eve) = (house.admin(), house.person(), house.person(), house.person());
    let (reference, place) = (format!("{host}/org/private:1"), format!("/me/registry-credentials/{host}"));

    // One has the right password, one a wrong one, one has none, and none has the site's.
    let lyceum = |person: &Person, words: &[&str], input: &str| {
        let token = person.authorization().replace("Bearer ", "");
        let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
        command.args(words).env("LYCEUM_URL", &house.url).env("LYCEUM_TOKEN", token);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let words = ["image", "credentials", "set", &host, "--user", "$oauthtoken"];
    let (saved, said) = lyceum(&ada, &words, &format!("{OF_ADA}\n"));
    assert!(saved && said.contains("was saved"), "{said}");
    let (listed, said) = lyceum(&ada, &["image", "credentials", "list"], "");
    assert!(listed && said.contains(&host) && said.contains("$oauthtoken") && !said.contains("geheim"), "{said}");
    let (status, said) = ask(&house, &bob, "PUT", &place, json!({ "user": "$oauthtoken", "password": "wrong" })).await;
    assert_eq!(status, 204, "{said}");
    let image = try_out(&house, &ada, "adas", &reference, "ready").await;
    assert_eq!(image["digest"].as_str(), Some(&*digest), "{image}");
    let failed = try_out(&house, &bob, "bobs", &reference, "failed").await;
    assert!(failed["failure"].as_str().unwrap().contains("rejected the credentials"), "{failed}");
    let failed = try_out(&house, &eve, "eves", &reference, "failed").await;
    assert!(failed["failure"].as_str().unwrap().contains("requires credentials"), "{failed}");
    // Not even by the digest, which is stored.
    let at = format!("{host}/org/private@{digest}");
    let failed = try_out(&house, &eve, "eves-again", &at, "failed").await;
    assert!(failed["failure"].as_str().unwrap().contains("requires credentials"), "{failed}");

    // In the portal it is hers: others do not find it, administrators see it and cannot use it.
    let job = json!({ "script": SCRIPT, "image": "adas" });
    for other in [&bob, &admin] {
        let (status, refused) = ask(&house, other, "POST", "/jobs", job.clone()).await;
        assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("unknown_image")), "{refused}");
    }
    for (method, path) in [("GET", "/images/adas"), ("DELETE", "/images/adas"), ("POST", "/images/adas/pull")] {
        let expected = if method == "GET" { 404 } else { 403 };
        assert_eq!(ask(&house, &bob, method, path, Value::Null).await.0, expected, "{method} {path}");
    }
    assert_eq!(admin.get(&house, "/images/adas").await["private"], true);
    let id = submit(&house, &ada, job.clone()).await;
    ended(&house, &ada, &id, "exited").await;
    assert!(log(&house, &ada, &format!("{id}/log")).await.starts_with("NAME=private\n"));
    // On the disk, too.
    let root = house.paths().shared.join("images/images");
    let root = fs::read_dir(root).unwrap().next().unwrap().unwrap().path().join("root/etc/os-release");
    let look = format!("#!/bin/sh\ncat {} || echo closed\n", root.display());
    for (person, expected) in [(&ada, "NAME=private\n"), (&bob, "closed\n")] {
        let id = submit(&house, person, json!({ "script": look })).await;
        ended(&house, person, &id, "exited").await;
        let said = log(&house, person, &format!("{id}/log")).await;
        assert!(said.ends_with(expected), "{said}");
    }

    only_own_images_are_added(&house, &bob, &eve, &reference).await;
    the_password_is_nowhere(&house, &ada, &host).await;

    // It outlasts a restart, and can still be decrypted.
    house.restart().await;
    assert_eq!(ask(&house, &ada, "POST", "/images/adas/pull", Value::Null).await.0, 202);
    settled(&house, &ada, "adas", "ready").await;
    // Removed, the image stays, and cannot be updated.
    assert_eq!(ask(&house, &ada, "DELETE", &place, Value::Null).await.0, 204);
    assert_eq!(ask(&house, &ada, "DELETE", &place, Value::Null).await.0, 404);
    assert_eq!(ask(&house, &ada, "POST", "/images/adas/pull", Value::Null).await.0, 202);
    let kept = settled(&house, &ada, "adas", "ready").await;
    assert!(kept["failure"].as_str().unwrap().contains("requires credentials"), "{kept}");
    let id = submit(&house, &ada, job).await;
    ended(&house, &ada, &id, "exited").await;

    // What the site's credentials pull is everybody's, and then its files are open.
    super::add(&house, "shared", &reference, json!([])).await;
    super::pull(&house, "shared", "ready").await;
    let id = submit(&house, &bob, json!({ "script": look })).await;
    ended(&house, &bob, &id, "exited").await;
    assert!(log(&house, &bob, &format!("{id}/log")).await.ends_with("NAME=private\n"));
}

/// What users who are not administrators may add.
async fn only_own_images_are_added(house: &House, bob: &Person, eve: &Person, reference: &str) {
    for (new, field, code) in [
        (json!({ "name": "x", "reference": "file:///srv/x.tar" }), "reference", "not_allowed"),
        (json!({ "name": "x", "reference": "busybox" }), "reference", "not_allowed"),
        (json!({ "name": "x", "reference": reference, "groups": ["vision"] }), "groups", "private"),
    ] {
        let (status, refused) = ask(house, bob, "POST", "/images", new).await;
        assert_eq!(status, 422, "{refused}");
        let found =
            refused["errors"].as_array().unwrap().iter().any(|one| one["field"] == field && one["code"] == code);
        assert!(found, "{refused}");
    }
    let (status, refused) = ask(house, eve, "POST", "/images", json!({ "name": "x", "reference": reference })).await;
    assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("too_many")), "{refused}");
    assert_eq!(ask(house, eve, "DELETE", "/images/eves-again", Value::Null).await.0, 204);
}

/// It is in no answer, page, log, audit row, process and file of the portal.
async fn the_password_is_nowhere(house: &House, ada: &Person, host: &str) {
    let page = ada.request(house, "GET", "/settings").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("Registry credentials") && page.contains(host), "{page}");
    let admin = house.admin();
    let answers = [
        page,
        ada.get(house, "/me/registry-credentials").await.to_string(),
        admin.get(house, "/audit").await.to_string(),
        house.log(),
    ];
    assert!(answers[2].contains("registry_credentials.set"), "{}", answers[2]);
    let processes: Vec<String> = ["cmdline", "environ"]
        .iter()
        .map(|name| String::from_utf8_lossy(&fs::read(format!("/proc/{}/{name}", house.pid())).unwrap()).into_owned())
        .collect();
    assert!(answers.iter().chain(&processes).all(|text| !text.contains(OF_ADA) && !text.contains(BASIC)));
    let searched =
        Command::new("grep").args(["-rlE", &format!("{OF_ADA}|{BASIC}")]).arg(house.data()).output().unwrap();
    assert_eq!((searched.status.code(), &*String::from_utf8_lossy(&searched.stdout)), (Some(1), ""));
}
