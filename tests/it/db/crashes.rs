//! Whatever dies in the middle leaves nothing half written: a request that is dropped at any
//! point, a connection that the server ends, a process that is killed.

use std::{
    future::poll_fn,
    io::{BufRead, BufReader, Write},
    path::Path,
    pin::pin,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    task::Poll,
};

use lyceum::{
    db::{
        Config, Db, Error,
        admit::{AdmissionMode, NewSession},
        sessions::Ending,
    },
    model::{Clock, EndReason, SessionId},
};
use tokio::task::JoinSet;
use url::Url;

use super::{
    START, add_user, asking, command, inventory, judge, new_session, on_both, on_postgres, whole::assert_whole,
};
use crate::needs::variable;

async fn admit(db: &Db, new: &NewSession) -> Result<(), Error> {
    db.admit(&asking(new.owner), AdmissionMode::Insert(new), &Clock::System, judge(&inventory(1), 0)).await.map(drop)
}

async fn end(db: &Db, id: SessionId) -> Result<bool, Error> {
    let at = Clock::System.now();
    let ending = Ending { reason: EndReason::Exited, exit_code: Some(0), signal: None, at, detail: "Over".to_owned() };
    db.end_session(id, &ending).await
}

/// The future's value, or `None` when it was dropped after so many looks at it.
async fn within<T>(looks: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = looks;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// A browser that closes its connection drops the request wherever it just waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_every_point() {
    let test = on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let (mut looks, mut done) = (0, 0);
        // The number of looks varies a little with the time that things take.
        while done < 5 {
            let new = new_session(owner, 0);
            done += usize::from(Box::pin(within(looks, admit(db, &new))).await.is_some());
            if within(looks, end(db, new.id)).await.is_none() {
                drop(within(looks, db.begin_start(new.id, START)).await);
            }
            assert_whole(db).await;
            looks += 1;
            assert!(looks < 500, "it never comes to its end");
        }
        assert!(looks > 5, "there is more than one point: {looks}");
        // The lock is free, the connection usable.
        let new = new_session(owner, 0);
        admit(db, &new).await.unwrap();
        assert!(end(db, new.id).await.unwrap());
    });
    Box::pin(test).await;
}

/// The server ends all connections again and again, as at a restart or by an administrator.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_ended_by_the_server() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    on_postgres(async |house| {
        let owner = add_user(&house.db, "a").await;
        let url = Url::parse(&house.config.url).unwrap();
        let mut server = url.clone();
        server.set_path("/template1");
        let kill = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'",
            url.path().trim_start_matches('/')
        );
        let mut workers = JoinSet::new();
        for _ in 0..8 {
            let (db, server, kill) = (house.db.clone(), server.clone(), kill.clone());
            workers.spawn(async move {
                let mut failures = 0;
                for _ in 0..40 {
                    let new = new_session(owner, 0);
                    let outcome = match admit(&db, &new).await {
                        Ok(()) => end(&db, new.id).await.map(drop),
                        err => err,
                    };
                    if let Err(err) = outcome {
                        assert!(err.is_outage(), "{err:?}");
                        failures += 1;
                    }
                    if DONE.fetch_add(1, Ordering::Relaxed).is_multiple_of(10) {
                        command(&server, &kill).await;
                    }
                }
                failures
            });
        }
        let failures: u32 = workers.join_all().await.into_iter().sum();
        assert!(failures > 0, "nobody was hit");
        house.db.ping().await.unwrap();
        assert_whole(&house.db).await;
    })
    .await;
}

/// Names the directory in which [`writer`] goes on until it is killed.
const FOR_EVER: &str = "LYCEUM_TEST_WRITES_FOR_EVER";

/// Writes some sessions; in the process that [`a_killed_process`] starts it writes until that
/// is killed, and names each session when it is safe.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writer() {
    match variable(FOR_EVER) {
        Some(directory) => Box::pin(write_sessions(Path::new(&directory), usize::MAX, tell)).await,
        None => Box::pin(write_sessions(tempfile::tempdir().unwrap().path(), 5, drop)).await,
    }
}

/// One write a line: whole lines arrive, whoever else writes.
fn tell(id: SessionId) {
    std::io::stdout().write_all(format!("\nwritten {id}\n").as_bytes()).unwrap();
}

async fn write_sessions(directory: &Path, most: usize, tell: fn(SessionId)) {
    let db = Db::open(&Config::default(), directory).await.unwrap();
    let owner = match db.find_user_by_name("a").await.unwrap() {
        Some(account) => account.user.id,
        None => add_user(&db, "a").await,
    };
    let write = async || {
        for _ in 0..most {
            let new = new_session(owner, 0);
            admit(&db, &new).await.unwrap();
            tell(new.id);
            assert!(end(&db, new.id).await.unwrap());
        }
    };
    tokio::join!(write(), write(), write());
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_killed_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for round in 1..=6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "db::crashes::writer", "--nocapture"])
            .env(FOR_EVER, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut ids =
            lines.by_ref().filter_map(|line| Some(line.strip_prefix("written ")?.parse::<SessionId>().unwrap()));
        // Another number each time, so that it dies at another moment.
        written.extend(ids.by_ref().take(7 * round));
        child.kill().unwrap();
        written.extend(ids);
        child.wait().unwrap();

        let db = Db::open(&Config::default(), directory.path()).await.unwrap();
        assert_whole(&db).await;
        for &id in &written {
            assert!(db.find_session(id).await.unwrap().is_some(), "{id} was written and is gone");
        }
        db.close().await;
    }
    assert!(7 * (1 + 2 + 3 + 4 + 5 + 6) <= written.len());
}
