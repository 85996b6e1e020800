//! Opening: what the file is like afterwards, and the sentence for each thing that can be
//! wrong. A server that goes away later is an outage that ends with its return.

use std::{error::Error as _, fs, net::SocketAddr, time::Duration};

use lyceum::{
    db::{Config, Db, Error, admit::AdmissionMode},
    model::Clock,
};
use sqlx::query_scalar;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use url::Url;

use super::{House, add_user, asking, command, execute, inventory, judge, mode, new_session, on_both, on_postgres};

async fn refused(url: &str) -> Error {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { url: url.to_owned(), ..Config::default() };
    let err = Db::open(&config, directory.path()).await.unwrap_err();
    assert!(!everything_said(&err).contains("hunter2"), "{err:?}");
    assert!(!format!("{config:?}").contains("hunter2"));
    err
}

/// The error, its causes and what a log shows.
fn everything_said(err: &Error) -> String {
    let mut said = format!("{err} {err:?}");
    let mut cause = err.source();
    while let Some(err) = cause {
        said = format!("{said}: {err}");
        cause = err.source();
    }
    said
}

#[tokio::test]
async fn sqlite_is_durable_strict_and_private() {
    let house = House::sqlite().await;
    add_user(&house.db, "a").await;
    let Db::Sqlite { write, read, .. } = &house.db else { panic!("not SQLite") };
    for pool in [write, read] {
        let journal: String = query_scalar("PRAGMA journal_mode").fetch_one(pool).await.unwrap();
        let synchronous: i64 = query_scalar("PRAGMA synchronous").fetch_one(pool).await.unwrap();
        let foreign_keys: i64 = query_scalar("PRAGMA foreign_keys").fetch_one(pool).await.unwrap();
        assert_eq!((journal.as_str(), synchronous, foreign_keys), ("wal", 2, 1), "2 is FULL");
    }
    assert!(sqlx::query("DELETE FROM users").execute(read).await.is_err(), "this pool reads");
    for name in ["lyceum.db", "lyceum.db-wal", "lyceum.db-shm"] {
        assert_eq!(mode(&house.directory.path().join(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_file_open_to_others_is_closed() {
    use std::os::unix::fs::PermissionsExt;
    let house = House::sqlite().await;
    let files = ["lyceum.db", "lyceum.db-wal", "lyceum.db-shm"].map(|name| house.directory.path().join(name));
    for file in &files {
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    house.again().await;
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn wrong_urls_and_places() {
    for url in ["sqlite://", "sqlite://lyceum.db", "mysql://me:hunter2@host/x", "postgres://me:hunter2@host:x/x", "x"] {
        let err = refused(url).await;
        assert!(matches!(err, Error::Url(_)), "{url}: {err:?}");
        assert!(err.to_string().contains("sqlite:///PATH/OF/FILE or postgres://USER:PASSWORD@HOST/DATABASE"), "{err}");
    }

    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("sqlite://{}", directory.path().join(name).display());
    fs::create_dir(directory.path().join("folder")).unwrap();
    fs::write(directory.path().join("text"), "This is no database, and long enough to be looked at.\n".repeat(100))
        .unwrap();
    for (name, says) in [
        ("missing/lyceum.db", "its directory must exist"),
        ("folder", "its directory must exist"),
        ("text/lyceum.db", "its directory must exist"),
        ("text", "the file is not an SQLite database"),
    ] {
        let err = refused(&at(name)).await;
        assert!(err.to_string().contains(says) && err.to_string().contains(name), "{name}: {}", everything_said(&err));
    }
    assert!(!directory.path().join("missing").exists(), "nothing was made");
}

/// A port of the loopback where nobody listens.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn a_server_that_is_away_at_the_start() {
    let address = nobody().await;
    let err = refused(&format!("postgres://me:hunter2@{address}/portal")).await;
    let says = format!("the database `portal` of PostgreSQL at {address} cannot be opened: no response");
    assert!(err.to_string().starts_with(&says), "{err}");
    assert!(err.is_outage());

    let err = refused("postgres:///portal?host=/nowhere/at/all&user=me&password=hunter2").await;
    assert!(err.to_string().contains("PostgreSQL at /nowhere/at/all cannot be opened: no response"), "{err}");
}

#[tokio::test]
async fn a_server_that_refuses() {
    on_postgres(async |house| {
        let mut url = Url::parse(&house.config.url).unwrap();
        url.set_password(Some("hunter2")).unwrap();
        url.set_path("no_such_database");
        let err = refused(url.as_str()).await;
        assert!(err.to_string().contains("the database does not exist"), "{}", everything_said(&err));
        assert!(!err.is_outage());

        // Since PostgreSQL 15 only a database's owner makes tables in it.
        let role = format!("lyceum_{}", uuid::Uuid::now_v7().simple());
        let server = Url::parse(&house.config.url).unwrap();
        let mut empty = server.clone();
        empty.set_path(&role);
        command(&server, &format!("CREATE DATABASE {role} TEMPLATE template0")).await;
        command(&server, &format!("CREATE ROLE {role} LOGIN PASSWORD 'hunter2'")).await;
        empty.set_username(&role).unwrap();
        empty.set_password(Some("hunter2")).unwrap();
        let err = refused(empty.as_str()).await;
        command(&server, &format!("DROP DATABASE {role} WITH (FORCE)")).await;
        command(&server, &format!("DROP ROLE {role}")).await;
        assert!(err.to_string().contains("this user may not create tables"), "{}", everything_said(&err));
    })
    .await;
}

/// What only an earlier start can have left lies beside it.
#[tokio::test]
async fn a_database_without_accounts_beside_the_keys_of_an_earlier_start_is_lost() {
    on_both(async |house| {
        let (directory, sign) = (house.directory.path(), house.directory.path().join("portal-key"));
        let open = async || Db::open_known(&house.config, directory, &sign).await;
        assert!(open().await.is_ok(), "without the keys it is new");
        fs::write(&sign, "a key").unwrap();
        let err = open().await.unwrap_err();
        assert!(matches!(err, Error::Lost { state: "empty", .. }), "{err:?}");
        add_user(&house.db, "ada").await;
        let known = open().await.unwrap();
        assert!(known.can_write(Duration::from_mins(1)).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    on_both(async |house| {
        execute(
            &house.db,
            "INSERT INTO _sqlx_migrations SELECT 9999, description, installed_on, success, checksum, execution_time
             FROM _sqlx_migrations WHERE version = 1",
        )
        .await;
        let err = Db::open(&house.config, house.directory.path()).await.unwrap_err();
        assert!(matches!(err, Error::NewerSchema { found: 9999, .. }), "{err:?}");
        let said = err.to_string();
        assert!(
            said.contains(
                "was used by a newer version of Lyceum: its schema is number 9999, but this version supports"
            ),
            "{said}"
        );
        assert!(said.contains("Start the newer version") && !err.is_outage(), "{said}");
        house.db.ping().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_and_comes_back() {
    on_postgres(async |house| {
        let server = Url::parse(&house.config.url).unwrap();
        let target = (server.host_str().unwrap().to_owned(), server.port().unwrap());
        let address = nobody().await;
        let gate = gate(address, target.clone()).await;
        let mut url = server.clone();
        url.set_ip_host(address.ip()).unwrap();
        url.set_port(Some(address.port())).unwrap();
        let config = Config { url: url.into(), ..Config::default() };
        let db = Db::open(&config, house.directory.path()).await.unwrap();
        let owner = add_user(&db, "a").await;

        gate.abort();
        assert!(gate.await.unwrap_err().is_cancelled());
        let new = new_session(owner, 0);
        let clock = Clock::System;
        let asked = asking(owner);
        let (read, written, admitted) = tokio::join!(
            db.find_user(owner),
            db.set_theme(owner, "dark"),
            db.admit(&asked, AdmissionMode::Insert(&new), &clock, judge(&inventory(0), 0))
        );
        for err in [read.unwrap_err(), written.unwrap_err(), admitted.unwrap_err()] {
            assert!(err.is_outage(), "{}", everything_said(&err));
        }

        let _gate = self::gate(address, target).await;
        db.ping().await.unwrap();
        db.admit(&asking(owner), AdmissionMode::Insert(&new), &clock, judge(&inventory(0), 0)).await.unwrap();
        assert!(db.find_session(new.id).await.unwrap().is_some());
        db.close().await;
    })
    .await;
}

/// Carries connections to a server until it is aborted, which cuts them all.
pub async fn gate(address: SocketAddr, target: (String, u16)) -> JoinHandle<()> {
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        let mut carried = JoinSet::new();
        loop {
            let (mut here, _) = listener.accept().await.unwrap();
            let target = target.clone();
            carried.spawn(async move {
                let mut there = TcpStream::connect(target).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut here, &mut there).await);
            });
        }
    })
}
