//! People of a directory on the whole program: their terminals run as the account that the
//! machine knows by their name, and everything that lives by their sign-in ends when the
//! directory lets them go, within the interval, or at once when an administrator does.

use std::time::Duration;

use futures_util::StreamExt;
use lyceum::{helper::identity::Identity, model::SessionId};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Slapd, password, person_dn};
use crate::{
    gateway::{
        terminal::types,
        world::{Socket, socket},
    },
    life::{House, Person, eventually},
    needs, portal,
};

/// Somebody who is in: by a cookie, a token and an open terminal.
struct In {
    person: Person,
    cookie: String,
    session: SessionId,
    terminal: Socket,
}

async fn enter(house: &House, name: &str) -> (Person, String) {
    let client = portal::client();
    let body = json!({ "username": name, "password": password(name) });
    let login = client.post(format!("{}/api/v1/login", house.url)).header("origin", &house.url).json(&body);
    let login = login.send().await.unwrap();
    assert_eq!(login.status(), 200, "{name}");
    let cookie = format!("lyceum_login={}", portal::cookie(&login, "lyceum_login").unwrap());
    let made = client.post(format!("{}/api/v1/tokens", house.url)).header("origin", &house.url);
    let made = made.header("cookie", &cookie).json(&json!({ "name": "test" })).send().await.unwrap();
    let made: Value = made.json().await.unwrap();
    (Person::new(name, made["secret"].as_str().unwrap()), cookie)
}

async fn work(house: &House, name: &str) -> In {
    let (person, cookie) = enter(house, name).await;
    let session = person.run(house, "terminal").await;
    let bearer = person.authorization();
    let address = format!("{}/s/{session}/pty", house.url);
    let mut terminal = socket(&address, &[("authorization", &bearer)]).await.unwrap();
    let uid = Identity::facts(name).unwrap().uid;
    types(&mut terminal, "echo I-am-$(id -un)-$(id -u)-$((1+1))", &format!("I-am-{name}-{uid}-2")).await;
    In { person, cookie, session, terminal }
}

/// Cut within five seconds of the moment when the portal knows.
async fn is_out(house: &House, mut gone: In, within: Duration) {
    let cut = async { while let Some(Ok(_)) = gone.terminal.next().await {} };
    timeout(within, cut).await.expect("the terminal is cut in time");
    let (status, _) = gone.person.ask(house, "GET", "/me", &Value::Null).await;
    assert_eq!(status, 401, "the token of {}", gone.person.name);
    let by_cookie = portal::client().get(format!("{}/api/v1/me", house.url)).header("cookie", &gone.cookie);
    assert_eq!(by_cookie.send().await.unwrap().status(), 401, "the login of {}", gone.person.name);
}

#[tokio::test]
async fn who_leaves_the_directory_loses_the_terminal() {
    if !needs::root() {
        return;
    }
    let slapd = Slapd::start();
    let mut house = House::new(&[]);
    house.configure(&slapd.configuration(&house.file("ca.pem"), "refresh = '2s'"));
    let names = ["gone", "locked", "disabled", "stays", "differs"].map(|name| house.unix_account(name));
    for name in &names {
        let off = u32::from(name.contains("differs"));
        slapd.add_person(name, Identity::facts(name).unwrap().uid + off).await;
    }
    slapd.add_person("ly-not-here", 23_456).await;
    house.start().await;
    let [gone, locked, disabled, stays, differs] = names;

    // Whom the machine knows by another uid, or not at all, starts nothing.
    for (name, because) in [(differs.as_str(), "make them match"), ("ly-not-here", "has no Unix account")] {
        let (person, _) = enter(&house, name).await;
        let (status, told) = person.ask(&house, "POST", "/sessions", &json!({ "app": "terminal" })).await;
        let told = match status {
            201 => person.state(&house, crate::life::person::id(&told), "ended").await,
            _ => told,
        };
        assert!(told.to_string().contains(because), "{name}: {status} {told}");
    }

    let (gone, locked) = (work(&house, &gone).await, work(&house, &locked).await);
    let (disabled, mut stays) = (work(&house, &disabled).await, work(&house, &stays).await);
    let sessions = [gone.session, locked.session, disabled.session];

    // The interval and the five seconds of a cut; much more on a busy machine.
    slapd.delete(&person_dn(&gone.person.name)).await;
    slapd.replace(&person_dn(&locked.person.name), "pwdAccountLockedTime", "000001010000Z").await;
    let within = Duration::from_secs(30);
    is_out(&house, gone, within).await;
    is_out(&house, locked, within).await;
    let (done, said) = house.run(&["admin", "user", "disable", &disabled.person.name]);
    assert!(done, "{said}");
    is_out(&house, disabled, Duration::from_secs(5)).await;

    // Nobody else has noticed, and what ran goes on.
    types(&mut stays.terminal, "echo still-$((40+2))", "still-42").await;
    for session in sessions {
        assert!(house.record(session).is_some(), "{session} runs to its time limit");
    }
    let log = house.log();
    assert!(log.contains("user lost access"), "{log}");
    let admin = house.admin();
    for session in sessions {
        admin.stop(&house, session).await;
    }
    stays.person.end(&house, stays.session).await;
    eventually("everything has ended", async || house.records().is_empty().then_some(())).await;
}

#[tokio::test]
async fn the_health_report_names_the_directory_that_is_away() {
    if !needs::root() {
        return;
    }
    let mut slapd = Slapd::start();
    let mut house = House::new(&[]);
    house.configure(&slapd.configuration(&house.file("ca.pem"), "refresh = '1s'"));
    let name = house.unix_account("stays");
    slapd.add_person(&name, Identity::facts(&name).unwrap().uid).await;
    house.start().await;
    let (person, _) = enter(&house, &name).await;
    let admin = house.admin();
    let directory = async |level: &str| {
        eventually(&format!("the directory is told as {level}"), async || {
            let report = admin.get(&house, "/health").await;
            let found = report["findings"].as_array()?.iter().find(|one| one["name"] == "directory").cloned()?;
            (found["level"] == level).then_some((report, found))
        })
        .await
    };
    directory("ok").await;
    slapd.stop();
    let (report, found) = directory("fault").await;
    let what = found["what"].as_str().unwrap();
    assert!(what.starts_with("ldap://") && what.contains("last response: "), "{found}");
    assert_eq!(report["level"], "fault");
    let others = report["findings"].as_array().unwrap().iter().filter(|one| one["name"] != "directory");
    assert!(others.into_iter().all(|one| one["level"] != "fault"), "nothing else is blamed: {report:#}");
    assert_eq!(person.ask(&house, "GET", "/me", &Value::Null).await.0, 200, "who is in stays in");
    slapd.start_again();
    directory("ok").await;
}
