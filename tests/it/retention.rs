//! What is over is forgotten by age and no sooner, on both databases; and the audit log's
//! copy in the system's log, which is complete whoever wrote the rows and however often the
//! portal or the logger was away.

use std::{
    os::unix::net::UnixDatagram,
    time::{Duration, UNIX_EPOCH},
};

use lyceum::{
    db::{chain::ChainCheck, jobs::DeleteOutcome, sessions::Ending, trash::TrashSize},
    journal::{self, Journal},
    model::{Clock, EndReason, Loops, SessionId, loops::Round},
    retention::{self, RemovedCounts, Retention},
    trash::Trash,
};
use serde_json::Value;

use crate::db::{
    BY, House, NOTED, START, add_user, ended_job, number, on_both, running, runs::run, whole::assert_whole,
};

const DAY: i64 = 86_400;

/// A session that ended so many days after [`START`], and its log.
async fn ended(house: &House, owner: lyceum::model::UserId, days: i64) -> SessionId {
    let id = running(&house.db, owner).await;
    let at = START.plus_seconds(days * DAY);
    let ending =
        Ending { reason: EndReason::Exited, exit_code: Some(0), signal: None, at, detail: "It ended".to_owned() };
    assert!(house.db.end_session(id, &ending).await.unwrap());
    let logs = house.directory.path().join("logs");
    std::fs::create_dir_all(&logs).unwrap();
    let log = std::fs::File::create(logs.join(format!("{id}.log"))).unwrap();
    log.set_modified(UNIX_EPOCH + Duration::from_millis(at.0.unsigned_abs())).unwrap();
    id
}

fn round() -> Round {
    Loops::default().begin("retention", None)
}

fn retention(house: &House, clock: &Clock, days: [i64; 3]) -> Retention {
    let [logs_days, sessions_days, audit_days] = days;
    let (db, clock, folder) = (house.db.clone(), clock.clone(), house.directory.path());
    let logs = folder.join("logs");
    let trash = Trash { db: db.clone(), clock: clock.clone(), logs: logs.clone(), points: folder.join("curves") };
    Retention { db, clock, config: retention::Config { logs_days, sessions_days, audit_days }, logs, trash }
}

#[tokio::test]
async fn what_is_over_is_forgotten_by_age() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let (old, young, live) =
            (ended(house, owner, 1).await, ended(house, owner, 50).await, running(db, owner).await);
        db.add_audit(START.plus_seconds(60 * DAY), "a", "test", "b", "").await.unwrap();
        let clock = Clock::manual(START.plus_seconds(60 * DAY));
        let there = |id: SessionId| house.directory.path().join(format!("logs/{id}.log")).exists();

        let forever = retention(house, &clock, [0, 0, 0]).sweep(&round()).await.unwrap();
        assert_eq!((forever, there(old)), (RemovedCounts::default(), true));

        let logs = retention(house, &clock, [30, 0, 0]).sweep(&round()).await.unwrap();
        assert_eq!(logs, RemovedCounts { logs: 1, ..RemovedCounts::default() });
        assert!(!there(old) && there(young) && db.find_session(old).await.unwrap().is_some());

        let sessions = retention(house, &clock, [30, 40, 0]).sweep(&round()).await.unwrap();
        assert_eq!(sessions, RemovedCounts { sessions: 1, ..RemovedCounts::default() });
        assert!(db.find_session(old).await.unwrap().is_none() && db.find_session(young).await.unwrap().is_some());
        assert!(db.find_session(live).await.unwrap().unwrap().state.is_live(), "what lives is never too old");
        for table in ["session_events", "intervals"] {
            assert_eq!(number(db, &format!("SELECT COUNT(*) FROM {table} WHERE session_id = '{old}'")).await, 0);
        }
        assert_eq!(number(db, "SELECT COUNT(*) FROM audit").await, 5, "the audit log is another thing");

        let audit = retention(house, &clock, [30, 40, 50]);
        assert_eq!(audit.sweep(&round()).await.unwrap(), RemovedCounts { audit: 4, ..RemovedCounts::default() });
        assert_eq!(audit.sweep(&round()).await.unwrap(), RemovedCounts::default(), "what is done is done");
        assert!(matches!(db.verify_audit().await.unwrap(), ChainCheck::Whole { rows: 2, last: 6, .. }));
    })
    .await;
}

#[tokio::test]
async fn what_was_deleted_goes_after_a_day() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let job = ended_job(db, owner, "train").await.job;
        let [attempt] = &db.job_attempts(job).await.unwrap()[..] else { panic!("it ran once") };
        let run = run(owner, "run");
        db.add_run(&run, None, &NOTED).await.unwrap();
        let files = [format!("logs/{}.log", attempt.id), format!("curves/{}.points", run.id)];
        let files = files.map(|name| house.directory.path().join(name));
        for file in &files {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "x").unwrap();
        }
        assert_eq!(db.delete_job(job, BY).await.unwrap(), DeleteOutcome::Done);
        assert!(db.remove_run(run.id, &NOTED).await.unwrap());
        let at = |seconds| Clock::manual(START.plus_seconds(seconds));
        let early = retention(house, &at(DAY - 1), [0, 0, 0]);
        assert_eq!(early.sweep(&round()).await.unwrap(), RemovedCounts::default());
        assert!(files.iter().all(|file| file.exists()));

        let late = retention(house, &at(DAY + 60), [0, 0, 0]);
        assert_eq!(late.sweep(&round()).await.unwrap(), RemovedCounts { trash: 2, ..RemovedCounts::default() });
        assert!(!files.iter().any(|file| file.exists()));
        assert_eq!(db.trash_size(owner).await.unwrap(), TrashSize::default());
        assert!(!db.restore_job(job, owner, BY).await.unwrap());
        assert!(db.find_session(attempt.id).await.unwrap().is_some(), "what it held is still known");
    })
    .await;
}

/// More than fits in one transaction, while others write.
#[tokio::test]
async fn much_is_forgotten_in_parts() {
    let house = House::sqlite().await;
    let owner = add_user(&house.db, "a").await;
    for _ in 0..450 {
        ended(&house, owner, 0).await;
    }
    let clock = Clock::manual(START.plus_seconds(10 * DAY));
    let retention = retention(&house, &clock, [1, 1, 0]);
    let round = round();
    let (forgotten, live) = tokio::join!(retention.sweep(&round), running(&house.db, owner));
    assert_eq!(forgotten.unwrap(), RemovedCounts { logs: 450, sessions: 450, ..RemovedCounts::default() });
    assert!(house.db.find_session(live).await.unwrap().is_some());
    assert!(matches!(house.db.verify_audit().await.unwrap(), ChainCheck::Whole { .. }));
    assert_eq!(number(&house.db, "SELECT COUNT(*) FROM sessions").await, 1);
}

/// The rows that lie at the system logger's socket, by number.
fn received(socket: &UnixDatagram) -> Vec<(i64, String)> {
    let mut buffer = vec![0; 64 * 1024];
    let mut rows = Vec::new();
    while let Ok(length) = socket.recv(&mut buffer) {
        let text = str::from_utf8(&buffer[..length]).unwrap();
        let head = format!("<85>lyceum[{}]: audit ", std::process::id());
        let row: Value = serde_json::from_str(text.strip_prefix(&head).unwrap()).unwrap();
        assert!(!text.contains('\n'), "a row is a line: {text:?}");
        rows.push((row["number"].as_i64().unwrap(), row["hash"].as_str().unwrap().to_owned()));
    }
    rows
}

#[tokio::test]
async fn each_row_goes_to_the_systems_log() {
    on_both(async |house| {
        let path = house.directory.path().join("log");
        let config = journal::Config { syslog: path.clone() };
        let add = async |count: i64| {
            for _ in 0..count {
                // As the command line does, by a connection of its own.
                house.again().await.add_audit(START, "unix:root", "x", "line\nbreak", "\u{0}").await.unwrap();
            }
        };
        let bind = || {
            let socket = UnixDatagram::bind(&path).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let numbers = |rows: Vec<(i64, String)>| rows.into_iter().map(|(number, _)| number).collect::<Vec<_>>();

        add(3).await;
        let mut journal = Journal::new(house.db.clone(), config.clone());
        assert!(matches!(journal.forward().await, Err(journal::Error::Syslog { .. })), "nobody listens yet");
        let socket = bind();
        journal.forward().await.unwrap();
        let rows = received(&socket);
        let stored = house.db.audit_after(0, 10).await.unwrap();
        assert_eq!(rows, stored.iter().map(|row| (row.number, row.hash.clone())).collect::<Vec<_>>());
        journal.forward().await.unwrap();
        assert_eq!(numbers(received(&socket)), [0; 0], "each once");

        add(2).await;
        drop(socket);
        std::fs::remove_file(&path).unwrap();
        assert!(journal.forward().await.is_err(), "the logger is away");
        let socket = bind();
        // Another portal, after a restart, goes on where this one was.
        Journal::new(house.db.clone(), config).forward().await.unwrap();
        assert_eq!(numbers(received(&socket)), [4, 5]);
        assert_whole(&house.db).await;
    })
    .await;
}
