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
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    Config, Db, Error, Result,
    place::{Place, existing, network_file_system},
    usage::Known,
};

/// What runs on both databases, and what each spells in its own way.
static BOTH: Migrator = sqlx::migrate!("./migrations");
static SQLITE: Migrator = sqlx::migrate!("./migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("./migrations/postgres");

fn migrator(own: &Migrator) -> Migrator {
    Migrator::with_migrations(BOTH.iter().chain(own.iter()).cloned().collect())
}

/// How long a statement waits for another process's lock, and a request for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

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
            Place::File(path) => open_sqlite(&path, sign).await,
            Place::Server(options) => open_postgres(*options, sign).await,
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
    let left = fs::metadata(&changes).is_ok_and(|found| 0 < found.len()).then_some(changes.as_path());
    match sign.or(left) {
        Some(sign) => Err(Error::Lost { what: path.display().to_string(), state, sign: sign.display().to_string() }),
        None => Ok(()),
    }
}

/// What an older portal's database always has is an account.
macro_rules! known_accounts {
    ($connection:expr, $what:expr, $sign:expr) => {
        if let Some(sign) = $sign {
            let found = sqlx::query("SELECT 1 FROM users LIMIT 1").fetch_optional($connection).await;
            let has_accounts = match found {
                Ok(found) => found.is_some(),
                Err(err) if is_without_table(&err) => false,
                Err(err) => return Err(open_error(&$what, err)),
            };
            if !has_accounts {
                return Err(Error::Lost { what: $what, state: "empty", sign: sign.display().to_string() });
            }
        }
    };
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
    if fs::metadata(path).is_ok_and(|found| 0 < found.len()) {
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
        .busy_timeout(PATIENCE);
    let failed = |err| open_error(&what, err);
    let write = SqlitePoolOptions::new()
        .max_connections(1)
        // A file does not go away as a server does: nothing is asked before each statement.
        .test_before_acquire(false)
        .after_release(|connection, _| Box::pin(is_reusable(connection)))
        .connect_with(options.clone())
        .await
        .map_err(failed)?;
    known_accounts!(&write, what, sign);
    migrator(&SQLITE).run(&write).await.map_err(|err| migrate_error(&what, err))?;
    let read = SqlitePoolOptions::new()
        .max_connections(4)
        .test_before_acquire(false)
        .connect_with(options.read_only(true))
        .await
        .map_err(failed)?;
    Ok(Db::Sqlite { write, read, known: Known::default() })
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
    let connecting = tokio::time::timeout(PATIENCE, PgConnection::connect_with(&options)).await;
    let silence = |_elapsed| sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
    let mut first =
        connecting.map_err(silence).and_then(|connected| connected).map_err(|err| open_error(&what, err))?;
    known_accounts!(&mut first, what, sign);
    migrator(&POSTGRES).run(&mut first).await.map_err(|err| migrate_error(&what, err))?;
    let _ = first.close().await;

    let options = options.options([("statement_timeout", "10000")]);
    let pool = |size: u32| {
        PgPoolOptions::new().max_connections(size).acquire_timeout(PATIENCE).connect_lazy_with(options.clone())
    };
    Ok(Db::Postgres { write: pool(4), read: pool(6), known: Known::default() })
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

const FOLDER: &str = ": its directory must be there, and the portal's user must be able to write in it";
const READ_ONLY: &str = ": it, or the disk that it is on, is read-only";
const FULL: &str = ": the disk is full; make room on it";

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
                11 => ": the file is damaged; put a backup in its place (`lyceum admin restore`)",
                13 => FULL,
                14 => FOLDER,
                26 => ": the file is no SQLite database",
                _ => "",
            }
        }
        (sqlx::Error::Io(_), _) => ": nobody answers there; is PostgreSQL running, and reachable from here?",
        (sqlx::Error::Tls(_), _) => ": no encrypted connection comes about; see `sslmode` and `sslrootcert`",
        (_, Some("28000" | "28P01")) => ": the server refuses this user name or password",
        (_, Some("3D000")) => ": there is no database of that name; make it with `createdb`",
        (_, Some("42501")) => ": this user may not make tables in it; make it the database's owner",
        (_, Some("53300")) => ": the server has no connection left; raise its `max_connections`",
        (_, Some("57P03")) => ": the server is just starting or stopping",
        _ => "",
    }
}
