//! Opening the database and bringing it to this version's schema. What can go wrong at a
//! start is said here in a sentence each: a wrong URL, nobody at home, a disk of the wrong
//! kind, a schema from the future.

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    Connection, PgConnection, SqliteConnection,
    migrate::{MigrateError, Migrator},
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    Config, Db, Error, Result,
    location::{DatabaseLocation, existing, network_file_system},
    usage::UsageCache,
};

/// What runs on both databases, and what each spells in its own way.
static BOTH: Migrator = sqlx::migrate!("../../migrations");
static SQLITE: Migrator = sqlx::migrate!("../../migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("../../migrations/postgres");

fn migrator(own: &Migrator) -> Migrator {
    Migrator::with_migrations(BOTH.iter().chain(own.iter()).cloned().collect())
}

/// How long a statement waits for another process's lock, and a request for a connection.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

impl Db {
    /// Opens the configured database, `private/lyceum.db` by default, and runs migrations.
    pub async fn open(config: &Config, private: &Path) -> Result<Self> {
        Self::open_with(config, private, None).await
    }

    /// As [`Db::open`], where `sign` is a file that only an earlier start can have left: while it
    /// is there, a database without accounts is lost and not new ([`Error::Lost`]).
    pub async fn open_known(config: &Config, private: &Path, sign: &Path) -> Result<Self> {
        Self::open_with(config, private, Some(sign).filter(|sign| sign.exists())).await
    }

    async fn open_with(config: &Config, private: &Path, sign: Option<&Path>) -> Result<Self> {
        match config.place(private)? {
            DatabaseLocation::File(path) => open_sqlite(&path, sign).await,
            DatabaseLocation::Server(options) => open_postgres(*options, sign).await,
        }
    }
}

/// Says whether the file of a database that was in use is gone or holds nothing; `sign` as in
/// [`Db::open_known`]. A log of changes without its database is a sign by itself.
pub fn lost(path: &Path, sign: Option<&Path>) -> Result<()> {
    let state = match fs::metadata(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => "missing",
        Ok(found) if found.len() == 0 => "empty",
        _ => return Ok(()),
    };
    let changes = companion(path, "-wal");
    let left = fs::metadata(&changes).is_ok_and(|found| found.len() > 0).then_some(changes.as_path());
    match sign.or(left) {
        Some(sign) => Err(Error::Lost { what: path.display().to_string(), state, sign: sign.display().to_string() }),
        None => Ok(()),
    }
}

const AN_ACCOUNT: &str = "SELECT 1 FROM users LIMIT 1";

/// Refuses a database without accounts, which an older portal's always has. `found` is the answer to [`AN_ACCOUNT`].
fn require_accounts<T>(found: Result<Option<T>, sqlx::Error>, what: &str, sign: &Path) -> Result<()> {
    let has_accounts = match found {
        Ok(found) => found.is_some(),
        Err(err) if is_without_table(&err) => false,
        Err(err) => return Err(open_error(what, err)),
    };
    let what = what.to_owned();
    if has_accounts { Ok(()) } else { Err(Error::Lost { what, state: "empty", sign: sign.display().to_string() }) }
}

fn is_without_table(err: &sqlx::Error) -> bool {
    let sqlx::Error::Database(cause) = err else { return false };
    match cause.code().as_deref() {
        Some(code) if super::is_sqlite(cause.as_ref()) => super::sqlite_code(code) == 1,
        code => code == Some("42P01"),
    }
}

/// Removes what belonged to a database that is gone: a new one would else not begin.
pub fn forget_changes(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    for suffix in ["-wal", "-shm"] {
        match fs::remove_file(companion(path, suffix)) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
    }
    Ok(())
}

fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

async fn open_sqlite(path: &Path, sign: Option<&Path>) -> Result<Db> {
    lost(path, sign)?;
    if let Some(kind) = network_file_system(&existing(path)) {
        return Err(Error::NetworkFileSystem { path: path.to_owned(), kind });
    }
    let what = path.display().to_string();
    make_private(path).map_err(|err| Error::Open {
        what: what.clone(),
        hint: file_hint(err.kind()),
        cause: sqlx::Error::Io(err),
    })?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        // Room for a page of any list, so that whoever reads rows is waited for less often.
        .row_buffer_size(512)
        .busy_timeout(LOCK_TIMEOUT);
    let failed = |err| open_error(&what, err);
    let write = SqlitePoolOptions::new()
        .max_connections(1)
        // A file does not go away as a server does: nothing is asked before each statement.
        .test_before_acquire(false)
        .after_release(|connection, _| Box::pin(is_reusable(connection)))
        // A new file can give back what retention has freed; see `Db::shrink`.
        .connect_with(options.clone().auto_vacuum(SqliteAutoVacuum::Incremental))
        .await
        .map_err(failed)?;
    if let Some(sign) = sign {
        require_accounts(sqlx::query(AN_ACCOUNT).fetch_optional(&write).await, &what, sign)?;
    }
    migrator(&SQLITE).run(&write).await.map_err(|err| migrate_error(&what, err))?;
    let read = SqlitePoolOptions::new()
        .max_connections(4)
        .test_before_acquire(false)
        .connect_with(options.read_only(true))
        .await
        .map_err(failed)?;
    Ok(Db::Sqlite { write, read, known: UsageCache::default() })
}

/// Whether a connection is outside of transactions again. SQLite itself ends a transaction
/// that finds the disk full; sqlx then fails to end it once more, believes for ever that one
/// is under way and begins no other. Such a connection is replaced.
async fn is_reusable(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    // Answered behind everything that was asked before, a rollback too.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}

/// Makes the file when it is missing, and leaves it and its companions to their owner alone.
/// SQLite gives the companions that it makes the mode of the database.
fn make_private(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    for suffix in ["", "-wal", "-shm"] {
        let file = companion(path, suffix);
        match fs::metadata(&file) {
            Ok(meta) if meta.permissions().mode() & 0o077 != 0 => {
                fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
            }
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
    }
    Ok(())
}

async fn open_postgres(options: PgConnectOptions, sign: Option<&Path>) -> Result<Db> {
    let what = server(&options);
    // A pool would try again until its patience ends and then say no more than that. This
    // connection tells the cause; and a migration may take longer than a statement may.
    let connecting = tokio::time::timeout(LOCK_TIMEOUT, PgConnection::connect_with(&options)).await;
    let silence = |_elapsed| sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "no response"));
    let mut first =
        connecting.map_err(silence).and_then(|connected| connected).map_err(|err| open_error(&what, err))?;
    if let Some(sign) = sign {
        require_accounts(sqlx::query(AN_ACCOUNT).fetch_optional(&mut first).await, &what, sign)?;
    }
    migrator(&POSTGRES).run(&mut first).await.map_err(|err| migrate_error(&what, err))?;
    let _ = first.close().await;

    let options = options.options([("statement_timeout", "10000")]);
    let pool = |size: u32| {
        PgPoolOptions::new().max_connections(size).acquire_timeout(LOCK_TIMEOUT).connect_lazy_with(options.clone())
    };
    Ok(Db::Postgres { write: pool(4), read: pool(6), known: UsageCache::default() })
}

/// Names a server without user and password.
fn server(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    match options.get_socket() {
        Some(socket) => format!("`{database}` of PostgreSQL at {}", socket.display()),
        None => format!("`{database}` of PostgreSQL at {}:{}", options.get_host(), options.get_port()),
    }
}

fn open_error(what: &str, cause: sqlx::Error) -> Error {
    Error::Open { what: what.to_owned(), hint: hint(&cause), cause }
}

fn migrate_error(what: &str, err: MigrateError) -> Error {
    let known = BOTH.iter().chain(SQLITE.iter()).map(|migration| migration.version).max().unwrap_or_default();
    match err {
        MigrateError::VersionMissing(found) if known < found => {
            Error::NewerSchema { what: what.to_owned(), found, known }
        }
        MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _) if !hint(&cause).is_empty() => {
            open_error(what, cause)
        }
        err => Error::Migrate(err),
    }
}

const FOLDER: &str = ": its directory must exist and be writable for the portal's user";
const READ_ONLY: &str = ": the file or its disk is read-only";
const FULL: &str = ": the disk is full; free space on it";

fn file_hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::ReadOnlyFilesystem => READ_ONLY,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FULL,
        _ => FOLDER,
    }
}

/// What to do about a cause that the user can mend; empty where nobody knows.
fn hint(cause: &sqlx::Error) -> &'static str {
    let code = cause.as_database_error().and_then(sqlx::error::DatabaseError::code);
    match (cause, code.as_deref()) {
        (sqlx::Error::Database(cause), Some(code)) if super::is_sqlite(cause.as_ref()) => {
            match super::sqlite_code(code) {
                8 => READ_ONLY,
                11 => ": the file is damaged; restore a backup (`lyceum admin restore`)",
                13 => FULL,
                14 => FOLDER,
                26 => ": the file is not an SQLite database",
                _ => "",
            }
        }
        (sqlx::Error::Io(_), _) => ": no response; check that PostgreSQL is running and reachable from here",
        (sqlx::Error::Tls(_), _) => ": the TLS connection failed; check `sslmode` and `sslrootcert`",
        (_, Some("28000" | "28P01")) => ": the server rejects this user name or password",
        (_, Some("3D000")) => ": the database does not exist; create it with `createdb`",
        (_, Some("42501")) => ": this user may not create tables; make it the owner of the database",
        (_, Some("53300")) => ": the server has no free connections; raise its `max_connections`",
        (_, Some("57P03")) => ": the server is starting or shutting down",
        _ => "",
    }
}
