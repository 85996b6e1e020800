//! Every secret that there is passes through the real portal once, well and badly used, and is
//! then looked for where none may be: in the log at its most talkative, in the database, in
//! the arguments and environments of processes. Left out where we are not root.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::{
    gateway::world::Browser,
    life::{House, processes},
    portal,
};

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&path, found),
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
}

fn contains(bytes: &[u8], secret: &str) -> bool {
    bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
}

#[tokio::test]
async fn no_secrets_in_logs() {
    let Some(house) = House::open(&[("LYCEUM_LOG", "debug,lyceum=trace")]).await else { return };
    let client = portal::client();
    let person = house.person();
    let password = "correct-horse-battery".to_owned();
    let mut command = house.command(&["admin", "user", "password", &person.name, "--password-stdin"]);
    let mut setting = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    setting.stdin.take().unwrap().write_all(format!("{password}\n").as_bytes()).unwrap();
    assert!(setting.wait().unwrap().success());
    let first = fs::read_to_string(house.data().join("private/first-password")).unwrap().trim().to_owned();

    // Signing in: wrongly, with the password where the name belongs, with broken bodies, well.
    let sign_in = async |body: String| {
        let request = client.post(format!("{}/api/v1/login", house.url)).header("origin", &house.url);
        request.header("content-type", "application/json").body(body).send().await.unwrap()
    };
    let wrong = "wrong-horse-battery".to_owned();
    for body in [
        json!({ "username": person.name, "password": wrong }).to_string(),
        json!({ "username": password, "password": "x" }).to_string(),
        json!({ "username": person.name, "password": [password] }).to_string(),
        json!({ "username": person.name, "password": password, password.as_str(): 1 }).to_string(),
        format!(r#"{{"username": "x", "password": "{password}""#),
        json!({ "username": "admin", "password": first }).to_string(),
    ] {
        let _ = sign_in(body).await;
    }
    let answer = sign_in(json!({ "username": person.name, "password": password }).to_string()).await;
    assert_eq!(answer.status(), 200);
    let mut browser = Browser::default();
    browser.keep(&house.url, &answer);
    let login = browser.cookie("lyceum_login").unwrap();
    let csrf = answer.json::<Value>().await.unwrap()["csrf_token"].as_str().unwrap().to_owned();
    let made =
        client.post(format!("{}/api/v1/tokens", house.url)).header("origin", &house.url).header("cookie", &login);
    let token = made.json(&json!({ "name": "x" })).send().await.unwrap().json::<Value>().await.unwrap();
    let token = token["secret"].as_str().unwrap().to_owned();

    // Into an app, by ticket and by token, and with the token where it does not belong.
    let id = person.run(&house, "web").await;
    let shown = browser.visit(&format!("{}/s/{id}/facts", house.url)).await;
    assert_eq!(shown.status, 200, "{:#?}", shown.hops);
    let ticket = shown.hops.iter().find_map(|hop| Some(hop.split_once("ticket=")?.1.split('&').next()?.to_owned()));
    let mut secrets = vec![
        ("the password", password.clone()),
        ("a wrong password", wrong),
        ("the first password", first),
        ("the login cookie", login.split_once('=').unwrap().1.to_owned()),
        ("the proof of origin", csrf.clone()),
        ("the token", token.clone()),
    ];
    secrets.extend(ticket.map(|ticket| ("a ticket", ticket)));
    for (what, name) in [("the app's cookie", "lyceum_app_"), ("the hand", "lyceum_hand")] {
        secrets.push((what, browser.cookie(name).unwrap().split_once('=').unwrap().1.to_owned()));
    }
    for request in [
        client.get(format!("{}/s/{id}/x?token={token}", house.url)).bearer_auth(&token),
        client.get(format!("{}/api/v1/me?token={token}", house.url)),
        client.get(format!("{}/login?next=/x?token={token}", house.url)),
        client.get(format!("{}/{token}", house.url)),
        client.get(format!("{}/api/v1/sessions/{token}", house.url)).bearer_auth(&token),
        client.get(format!("{}/api/v1/me", house.url)).header("authorization", format!("Bearer {token} {token}")),
        client.get(format!("{}/api/v1/me", house.url)).header("authorization", format!("Basic {token}")),
        client.get(format!("{}/api/v1/me", house.url)).header("cookie", format!("{login}; {login}")),
        client
            .post(format!("{}/logout", house.url))
            .header("cookie", &login)
            .header("content-type", portal::FORM)
            .body(portal::form(&[("csrf_token", &csrf)])),
    ] {
        assert!(request.send().await.unwrap().status().as_u16() < 500);
    }

    let log = house.log();
    assert!(log.contains("/api/v1/login"), "the log tells of these requests");
    let record = house.record(id).unwrap();
    let mut places = vec![("the log".to_owned(), log.into_bytes())];
    let mut found = Vec::new();
    files(&house.data(), &mut found);
    files(Path::new(&record.placement.run_directory), &mut found);
    // The first password's file is where it belongs, and the program's copy is the program.
    let is_known = |file: &Path| file.ends_with("first-password") || file.starts_with(house.data().join("shared/bin"));
    for file in found.iter().filter(|file| !is_known(file)) {
        places.push((file.display().to_string(), fs::read(file).unwrap_or_default()));
    }
    let helper = house.helper_pid();
    for pid in
        processes(&record).into_iter().chain([helper, lyceum::helper::process::stat(helper).unwrap().unwrap().parent])
    {
        for what in ["cmdline", "environ"] {
            let file = format!("/proc/{pid}/{what}");
            places.push((file.clone(), fs::read(&file).unwrap_or_default()));
        }
    }
    let mut faults = Vec::new();
    for (place, bytes) in &places {
        for (what, secret) in secrets.iter().filter(|(_, secret)| contains(bytes, secret)) {
            let text = String::from_utf8_lossy(bytes);
            let line = text.lines().find(|line| line.contains(secret)).unwrap_or_default();
            faults.push(format!("{what} in {place}: {line:.500}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    person.end(&house, id).await;
    house.nothing_left(&record).await;
}
