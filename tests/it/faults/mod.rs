//! Faults on the real program: processes killed, machines rebooted, clocks set, disks full,
//! databases away. After each nothing is lost and nothing doubled, and while it lasts people
//! are told. What everybody here needs is in this file: crowds of people, both databases, and
//! the question whether all witnesses of a house tell the same story.

mod clock;
mod crowd;
mod database;
mod down;
mod flood;
mod processes;
mod storm;
mod upgrade;

use std::{collections::BTreeSet, fmt::Debug, fs, path::PathBuf, time::Duration};

use lyceum::{
    auth::tokens::{self, NewToken},
    db::{
        Db,
        audit::ChangedBy,
        limits::{Author, LevelChange, Outcome},
        quotas::Level,
        users::{NewUser, SignIn},
    },
    helper::{cgroup::Hierarchy, process},
    model::{
        Clock, Role, SessionId, Username,
        quota::{Change, Field, Kind},
    },
};
use reqwest::RequestBuilder;
use serde_json::Value;

use crate::{
    life::{
        House, Person,
        person::{self, answer},
    },
    wait::succeeds,
};

/// Runs a test on a house with SQLite, then on one with PostgreSQL. None of them serves yet.
async fn on_both(variables: &[(&str, &str)], test: impl AsyncFn(House)) {
    eprintln!("on SQLite");
    test(House::new(variables)).await;
    crate::db::on_postgres(async |database| {
        let mut house = House::new(variables);
        house.set("LYCEUM_DATABASE__URL", &database.config.url);
        test(house).await;
    })
    .await;
}

/// So many people who share one Unix account, written straight into the database.
async fn crowd(house: &House, count: usize) -> Vec<Person> {
    let account = house.unix_account("crowd");
    let (db, by) = (house.db().await, ChangedBy { actor: "test", at: Clock::System.now() });
    let mut people = Vec::new();
    for number in 0..count {
        let name = format!("c{number}");
        let user = NewUser {
            name: &Username::parse(&name).unwrap(),
            display_name: "",
            unix_name: Some(&account),
            role: Role::User,
            sign_in: SignIn::NotYet,
        };
        let user = db.add_user(user, by).await.unwrap();
        let token = NewToken { name: "test".to_owned(), scopes: Vec::new(), expires_in_seconds: None };
        let user = db.find_user(user).await.unwrap().unwrap().user;
        let (_, secret) = tokens::make(&db, &user, token, by).await.unwrap();
        people.push(Person::new(&name, &secret));
    }
    db.close().await;
    people
}

/// Everybody's limits; what is not named is without one.
async fn allow_everybody(house: &House, limits: &[(Field, i64)]) {
    let db = house.db().await;
    let open = [Field::Sessions, Field::Light, Field::Pending].map(|field| (field, -1));
    let change = |(field, value)| Change::new(Kind::Each, field, Some(value));
    let changes = open.into_iter().chain(limits.iter().cloned()).map(change).collect();
    let author = Author::administrator("test", Clock::System.now());
    let outcome = db.change_limits(&[LevelChange::new(Level::Default, changes)], &author).await.unwrap();
    assert_eq!(outcome, Outcome::Done);
    db.close().await;
}

/// A port of the loopback that is free now and that no outgoing connection is given.
fn fixed_port() -> u16 {
    loop {
        let port = rand::random_range(16_400..32_000);
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Asks again and again until somebody answers who is not out of order.
async fn insist(request: impl Fn() -> RequestBuilder) -> (u16, Value) {
    succeeds("somebody answers", || ask(request())).await
}

/// What somebody answers who is not out of order.
async fn ask(request: RequestBuilder) -> Result<(u16, Value), String> {
    let response = request.timeout(Duration::from_mins(1)).send().await.map_err(|err| format!("{err:?}"))?;
    if response.status() == 503 {
        return Err(answer(response).await.1.to_string());
    }
    let status = response.status().as_u16();
    // A portal that is killed may break off in the middle of a body.
    let text = response.text().await.map_err(|err| err.to_string())?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

/// Asks for one session until it is answered: its id, or `None` where a limit refuses it.
async fn start_once(person: &Person, url: &str, key: &str, request: &Value) -> Option<SessionId> {
    let ask = || person.request_at(url, "POST", "/api/v1/sessions").header("idempotency-key", key).json(request);
    match insist(ask).await {
        (201, session) => Some(person::id(&session)),
        (409, refused) if refused["reasons"].is_array() => None,
        other => panic!("{other:?}"),
    }
}

/// Stops a session; it is fine where it has ended already.
async fn stop_once(person: &Person, url: &str, id: SessionId) {
    let (status, body) = insist(|| person.request_at(url, "DELETE", &format!("/api/v1/sessions/{id}"))).await;
    assert_eq!(status, 202, "{body}");
}

/// Waits until database, placements, run directories, control groups and processes of a
/// house say the same.
async fn all_agree(house: &House, db: &Db) {
    succeeds("all agree", || agreement(house, db)).await;
}

async fn agreement(house: &House, db: &Db) -> Result<(), String> {
    let live = db.live_sessions().await.unwrap();
    let on_their_way = live.iter().filter(|session| session.is_admitted() && session.placement.is_none());
    let on_their_way: Vec<_> = on_their_way.map(|session| (session.id, session.state)).collect();
    same("sessions that are being launched", &on_their_way, &Vec::new())?;

    let launched = live.iter().filter_map(|session| Some((session.id, session.placement.clone()?)));
    let launched: Vec<_> = launched.collect();
    let records = house.records();
    let ids: BTreeSet<SessionId> = launched.iter().map(|(id, _)| *id).collect();
    same("placement files", &records.iter().map(|record| record.session).collect(), &ids)?;
    for (id, placement) in &launched {
        let record = records.iter().find(|record| record.session == *id).map(|record| &record.placement);
        same("where it is", &record, &Some(placement))?;
    }
    let shorts: BTreeSet<String> = ids.iter().map(|id| id.short()).collect();
    let paths = house.paths();
    same("run directories", &names(&paths.run), &shorts)?;
    for group in Hierarchy::detect(&paths.instance).groups("any") {
        let parent = group.parent().unwrap();
        let groups = names(parent).into_iter().filter(|name| parent.join(name).is_dir()).collect();
        same(&format!("control groups in {}", parent.display()), &groups, &shorts)?;
    }
    let mut agents: Vec<i32> = launched.iter().map(|(_, placement)| placement.pid).collect();
    agents.sort_unstable();
    same("agents", &self::agents(house), &agents)?;
    let open: BTreeSet<SessionId> = db.open_intervals().await.unwrap().into_iter().map(|(id, _)| id).collect();
    same("open intervals", &open, &ids)
}

fn same<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, and the database says {expected:?}")) }
}

fn names(directory: impl Into<PathBuf>) -> BTreeSet<String> {
    let entries = fs::read_dir(directory.into()).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Every agent that this house's program has become, by number.
fn agents(house: &House) -> Vec<i32> {
    let bin = house.paths().bin.into_os_string().into_encoded_bytes();
    let pids = names("/proc").into_iter().filter_map(|name| name.parse::<i32>().ok());
    let mut agents: Vec<i32> = pids
        .filter(|pid| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.starts_with(&bin)
                && command.ends_with(b"/lyceum\0agent\0")
                && process::stat(*pid).unwrap().is_some_and(|stat| !stat.is_zombie())
        })
        .collect();
    agents.sort_unstable();
    agents
}
