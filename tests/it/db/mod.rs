//! Tests of `crates/db` on SQLite and on PostgreSQL from one text: [`on_both`] hands the same
//! body a fresh database of each. The PostgreSQL is the one that `LYCEUM_TEST_POSTGRES`
//! names; without it that half is left out. Each database there sorts by
//! English rules, as a site's may, so that nothing may lean on the order of bytes.

mod accounts;
mod announcements;
mod audit;
mod audited;
pub mod copies;
mod crashes;
pub mod datasets;
pub mod diagnostics;
mod disk;
mod dormant;
mod environments;
pub mod events;
mod expiry;
mod extending;
mod gpus;
mod hand_over;
mod history;
mod holds;
mod images;
mod invitations;
mod jobs;
mod listed;
pub mod models;
mod name_parts;
pub mod notifications;
pub mod opening;
mod order;
pub mod people;
pub mod presets;
mod profiles;
mod quota_changes;
mod quota_table;
mod quotas;
mod races;
pub mod runs;
mod scans;
pub mod sessions;
mod shell_jobs;
mod site;
mod sorted;
mod storage;
pub mod sweeps;
mod together;
mod trash;
mod usage;
pub mod whole;

use std::{
    collections::HashSet,
    fs,
    panic::{AssertUnwindSafe, resume_unwind},
    path::{Path, PathBuf},
};

use futures_util::FutureExt;
use lyceum::{
    db::{
        Config, Db,
        admit::{AdmissionMode, AdmissionOutcome, Cause, NewAttempt, NewSession, Verdict},
        audit::{ChangedBy, Entry},
        extend::ExtensionOutcome,
        facts::Facts,
        limits::{Author, GroupFlags, LevelChange, Outcome},
        limits_and_usage::Requester,
        quotas::Level,
        sessions::Ending,
        users::{NewUser, SignIn},
    },
    model::{
        Clock, EndReason, Gpu, GpuInventory, JobId, Resources, Role, SessionId, Timestamp, UserId, Username,
        hold::Obstacles,
        job::{Attempt, JobProgram, Task},
        quota::{Change, Field, Kind, Period},
        session::SessionSpec,
    },
};
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection, query, query_scalar};
use tempfile::TempDir;
use url::Url;

use crate::needs::{self, variable};

/// When all tests begin.
pub const START: Timestamp = Timestamp(1_800_000_000_000);

/// For the audit log, where a test is about something else.
pub const NOTED: Entry<'static> = Entry { at: START, actor: "a", action: "test", subject: "b", detail: "c" };

/// Who makes what a test needs.
pub const BY: ChangedBy<'static> = ChangedBy { actor: "a", at: START };

/// A fresh database, and how to open it once more.
pub struct House {
    pub db: Db,
    pub config: Config,
    pub directory: TempDir,
}

impl House {
    async fn open(config: Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(&config, directory.path()).await.unwrap();
        Self { db, config, directory }
    }

    pub async fn sqlite() -> Self {
        Self::open(Config::default()).await
    }

    /// As another process opens the same database.
    pub async fn again(&self) -> Db {
        Db::open(&self.config, self.directory.path()).await.unwrap()
    }

    /// Three processes' worth.
    pub async fn three(&self) -> [Db; 3] {
        [self.db.clone(), self.again().await, self.again().await]
    }

    pub fn is_sqlite(&self) -> bool {
        matches!(self.db, Db::Sqlite { .. })
    }
}

/// Runs a test on SQLite, then on PostgreSQL.
pub async fn on_both(test: impl AsyncFn(&House)) {
    eprintln!("on SQLite");
    test(&House::sqlite().await).await;
    let server = server();
    if needs::part_met(POSTGRES, server.is_some()) {
        on_server(server.unwrap(), test).await;
    }
}

/// Runs a test on a database of its own of the PostgreSQL that the tests were given.
pub async fn on_postgres(test: impl AsyncFn(&House)) {
    let server = server();
    if needs::met(POSTGRES, server.is_some()) {
        on_server(server.unwrap(), test).await;
    }
}

async fn on_server(server: Url, test: impl AsyncFn(&House)) {
    eprintln!("on PostgreSQL");
    let name = format!("lyceum_{}", uuid::Uuid::now_v7().simple());
    command(&server, &format!("CREATE DATABASE {name} TEMPLATE {}", template(&server).await)).await;
    let mut url = server.clone();
    url.set_path(&name);
    let done = AssertUnwindSafe(async {
        let house = House::open(Config { url: url.into(), ..Config::default() }).await;
        test(&house).await;
        house.db.close().await;
    })
    .catch_unwind()
    .await;
    command(&server, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
    if let Err(panic) = done {
        resume_unwind(panic);
    }
}

/// The name of a database with these migrations, made by the first test that needs it: a copy takes a tenth of the time
/// of all migrations. Nobody is connected to it under this name, which would forbid to copy it.
async fn template(server: &Url) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let folders = [folder.join("postgres"), folder].map(|folder| fs::read_dir(folder).unwrap());
    let mut files: Vec<PathBuf> = folders.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    let all = files.iter().fold(Sha256::new(), |hash, file| hash.chain_update(fs::read(file).unwrap()));
    let name = format!("lyceum_template_{}", &hex::encode(all.finalize())[..16]);
    let mut connection = PgConnection::connect(server.as_str()).await.unwrap();
    query("SELECT pg_advisory_lock(1)").execute(&mut connection).await.unwrap();
    let is_there: bool = query_scalar("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)")
        .bind(&name)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    if !is_there {
        let part = format!("{name}_part");
        command(server, &format!("DROP DATABASE IF EXISTS {part} WITH (FORCE)")).await;
        command(server, &format!("CREATE DATABASE {part} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"))
            .await;
        let mut url = server.clone();
        url.set_path(&part);
        House::open(Config { url: url.into(), ..Config::default() }).await.db.close().await;
        command(server, &format!("ALTER DATABASE {part} RENAME TO {name}")).await;
    }
    connection.close().await.unwrap();
    name
}

/// The URL is as in `postgres://USER@HOST:PORT/DATABASE`; the user may make databases.
const POSTGRES: &str = "PostgreSQL, named by LYCEUM_TEST_POSTGRES";

/// The server that was named, if any. `./test` starts one.
fn server() -> Option<Url> {
    variable("LYCEUM_TEST_POSTGRES").map(|url| Url::parse(&url).unwrap())
}

/// One statement by a connection of its own, as the server's administrator.
pub async fn command(url: &Url, sql: &str) {
    let mut connection = PgConnection::connect(url.as_str()).await.unwrap();
    query(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// One number, read past the functions of `crates/db`.
pub async fn number(db: &Db, sql: &str) -> i64 {
    match db {
        Db::Sqlite { read, .. } => query_scalar(AssertSqlSafe(sql)).fetch_one(read).await.unwrap(),
        Db::Postgres { read, .. } => query_scalar(AssertSqlSafe(sql)).fetch_one(read).await.unwrap(),
    }
}

/// One statement, past the functions of `crates/db`. What fills a table takes as long as it takes.
pub async fn execute(db: &Db, sql: &str) {
    match db {
        Db::Sqlite { write, .. } => drop(query(AssertSqlSafe(sql)).execute(write).await.unwrap()),
        Db::Postgres { write, .. } => {
            let mut connection = write.acquire().await.unwrap();
            for sql in ["SET statement_timeout = 0", sql, "RESET statement_timeout"] {
                query(AssertSqlSafe(sql)).execute(&mut *connection).await.unwrap();
            }
        }
    }
}

pub async fn add_user(db: &Db, name: &str) -> UserId {
    let new = NewUser {
        name: &Username::parse(name).unwrap(),
        display_name: "",
        unix_name: None,
        role: Role::User,
        sign_in: SignIn::NotYet,
    };
    db.add_user(new, BY).await.unwrap()
}

/// A request of one core and so many GPUs, with the session's id as its Idempotency-Key.
pub fn new_session(owner: UserId, gpus: i64) -> NewSession {
    let id = SessionId::new();
    NewSession {
        id,
        owner,
        charged_group: None,
        app: "terminal".to_owned(),
        name: "A name".to_owned(),
        spec: SessionSpec {
            resources: Resources { gpus, ..Resources::default() },
            profile: None,
            environment: None,
            working_directory: None,
            duration_seconds: 3600,
            log_directory: None,
            log_directories: std::collections::BTreeMap::new(),
            group: None,
            modules: Vec::new(),
            image: None,
            slurm: lyceum::model::SlurmOptions::default(),
        },
        light: false,
        cluster: "local".to_owned(),
        idempotency: Some((id.to_string(), "hash".to_owned())),
        job: None,
    }
}

/// A request for a job of that name, or for the next attempt at one.
pub fn new_attempt(owner: UserId, name: &str, earlier: Option<Attempt>) -> NewSession {
    let attempt = earlier.map_or_else(
        || Attempt { job: JobId::new(), number: 1 },
        |earlier| Attempt { number: earlier.number + 1, ..earlier },
    );
    let work = JobProgram::Command(vec!["true".to_owned()]);
    let cause = match earlier {
        None => Cause::Submitted(task(work).into()),
        Some(_) => Cause::Resumed,
    };
    NewSession {
        app: "job".to_owned(),
        name: name.to_owned(),
        idempotency: None,
        job: Some(NewAttempt { attempt, cause, hold: None, place: None, model: None }),
        ..new_session(owner, 0)
    }
}

/// Writes an admitted attempt.
pub async fn begun(db: &Db, new: &NewSession) -> Attempt {
    let (clock, verdict) = (Clock::manual(START), Verdict::Admit { gpus: Vec::new() });
    let answer = db.admit(&asking(new.owner), AdmissionMode::Insert(new), &clock, |_| verdict.clone()).await.unwrap();
    assert_eq!(answer, AdmissionOutcome::Judged(verdict));
    new.job.as_ref().unwrap().attempt
}

/// Writes a request that waits for room.
pub async fn waiting(db: &Db, new: &NewSession) {
    let (clock, verdict) = (Clock::manual(START), Verdict::Wait(vec![sessions::reason("All GPUs are in use.")]));
    let answer = db.admit(&asking(new.owner), AdmissionMode::Insert(new), &clock, |_| verdict.clone()).await.unwrap();
    assert_eq!(answer, AdmissionOutcome::Judged(verdict));
}

/// Writes an attempt that waits for room.
pub async fn queued(db: &Db, new: &NewSession) -> Attempt {
    waiting(db, new).await;
    new.job.as_ref().unwrap().attempt
}

/// What stands between one that waits and its decision.
pub async fn obstacles(db: &Db, new: &NewSession) -> Obstacles {
    db.obstacles_of_waiting().await.unwrap().remove(&new.id).expect("it waits")
}

/// What a job runs that is tried once and follows nobody.
pub fn task(work: JobProgram) -> Task {
    let variables = [("A".to_owned(), "1".to_owned())].into();
    Task {
        work,
        variables,
        retries: 0,
        retry_wait_seconds: 0,
        after: Vec::new(),
        part: None,
        shape: lyceum::model::job::Shape::default(),
        start: lyceum::model::job::Start::default(),
        requeue: false,
        array: None,
        tags: Vec::new(),
        notes: String::new(),
        is_helper: false,
    }
}

/// Writes a job that has ended.
pub async fn ended_job(db: &Db, owner: UserId, name: &str) -> Attempt {
    let new = new_attempt(owner, name, None);
    let attempt = begun(db, &new).await;
    assert!(db.end_session(new.id, &exited(START)).await.unwrap());
    attempt
}

/// An end by exit code 0.
pub fn exited(at: Timestamp) -> Ending {
    Ending { reason: EndReason::Exited, exit_code: Some(0), signal: None, at, detail: String::new() }
}

/// Nobody is charged, and hours are of 30 days.
pub fn asking(owner: UserId) -> Requester<'static> {
    static PERIOD: Period = Period::Rolling { days: 30 };
    Requester { owner, group: None, period: &PERIOD, holds_at_once: true }
}

/// Limits for each person.
pub fn each<const N: usize>(limits: [(Field, Option<i64>); N]) -> [Change; N] {
    limits.map(|(field, value)| Change::new(Kind::Each, field, value))
}

/// Sets limits, whatever stands there.
pub async fn set_limits(db: &Db, level: Level, changes: &[Change], marks: GroupFlags) {
    let change = LevelChange { marks, ..LevelChange::new(level, changes.to_vec()) };
    let outcome = db.change_limits(&[change], &Author::administrator("admin", START)).await.unwrap();
    assert_eq!(outcome, Outcome::Done);
}

/// A machine of `count` GPUs.
pub fn inventory(count: i64) -> GpuInventory {
    let gpu = |index| Gpu { index, uuid: format!("GPU-{index}"), model: "A".to_owned(), slice: None };
    GpuInventory { gpus: (0..count).map(gpu).collect(), ..GpuInventory::default() }
}

/// A judge who has nothing but GPUs to mind.
pub fn judge(machine: &GpuInventory, want: i64) -> impl FnOnce(&Facts) -> Verdict + Send + use<> {
    let machine = machine.clone();
    move |facts: &Facts| match machine.pick(&facts.common.gpus_taken, usize::try_from(want).unwrap(), None) {
        Some(gpus) => Verdict::Admit { gpus },
        None => Verdict::Wait(Vec::new()),
    }
}

/// Writes an admitted session without GPUs.
pub async fn admitted(db: &Db, owner: UserId) -> SessionId {
    let new = new_session(owner, 0);
    let at = Clock::manual(START);
    let answer = db
        .admit(&asking(owner), AdmissionMode::Insert(&new), &at, |_| Verdict::Admit { gpus: Vec::new() })
        .await
        .unwrap();
    assert_eq!(answer, AdmissionOutcome::Judged(Verdict::Admit { gpus: Vec::new() }));
    new.id
}

/// Writes a running session whose limit is an hour after [`START`].
pub async fn running(db: &Db, owner: UserId) -> SessionId {
    let id = admitted(db, owner).await;
    assert!(db.begin_start(id, START).await.unwrap());
    assert!(db.mark_running(id, START, START.plus_seconds(3600)).await.unwrap());
    id
}

/// Gives a session so many seconds more, at this moment, in the name of `a`.
pub async fn extended(db: &Db, id: SessionId, seconds: i64, at: Timestamp) -> ExtensionOutcome {
    db.extend_session(id, &Period::default(), &Clock::manual(at), "a", |_, _| Ok(seconds)).await.unwrap()
}

/// The tables of a schema, without the list of migrations and what SQLite keeps its index of parts in.
pub async fn tables(db: &Db) -> HashSet<String> {
    let names: Vec<String> = match db {
        Db::Sqlite { read, .. } => {
            query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table'").fetch_all(read).await.unwrap()
        }
        Db::Postgres { read, .. } => {
            query_scalar("SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'")
                .fetch_all(read)
                .await
                .unwrap()
        }
    };
    let is_inner = |name: &String| ["_sqlx_", "sqlite_", "name_parts"].iter().any(|begin| name.starts_with(begin));
    names.into_iter().filter(|name| !is_inner(name)).collect()
}

/// The mode of a file, permissions alone.
pub fn mode(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).unwrap().permissions().mode() & 0o7777
}
