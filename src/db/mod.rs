//! The only place with SQL text. One text serves SQLite and PostgreSQL: an enum of two
//! pools and a macro that evaluates the same body on either. Rules live elsewhere; the
//! functions here say what is stored, what is read, and which state a change expects.

pub mod admit;
pub mod audit;
pub mod idempotency;
pub mod logins;
pub mod quotas;
pub mod sessions;
pub mod settings;
pub mod tokens;
mod types;
pub mod users;

use std::{os::unix::fs::OpenOptionsExt, path::Path, str::FromStr, time::Duration};

use serde::Deserialize;
use sqlx::{
    PgPool, SqlitePool,
    migrate::Migrator,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

pub use types::Json;

static MIGRATOR: Migrator = sqlx::migrate!();

/// The database that this process opened. SQLite has one connection that writes and a few
/// that read, so that writers queue in order instead of meeting "database is locked".
#[derive(Clone, Debug)]
pub enum Db {
    Sqlite { write: SqlitePool, read: SqlitePool },
    Postgres(PgPool),
}

/// Evaluates `$body` with `$pool` bound to a pool that reads.
macro_rules! reading {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite { read: $pool, .. } => $body,
            $crate::db::Db::Postgres($pool) => $body,
        }
    };
}

/// Evaluates `$body` with `$pool` bound to a pool that writes single statements.
macro_rules! writing {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite { write: $pool, .. } => $body,
            $crate::db::Db::Postgres($pool) => $body,
        }
    };
}

/// Runs `$body` with `$tx` bound to a transaction that holds the database's one write lock,
/// commits it and evaluates to the body's value; `?` inside the body rolls back.
///
/// SQLite takes its write lock at BEGIN; PostgreSQL an advisory lock that every
/// such transaction takes, so that "compute usage, decide, reserve" has no second reader.
macro_rules! transaction {
    ($db:expr, $tx:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite { write, .. } => {
                let mut $tx = write.begin_with("BEGIN IMMEDIATE").await?;
                let value = $body;
                $tx.commit().await?;
                value
            }
            $crate::db::Db::Postgres(pool) => {
                let mut $tx = pool.begin().await?;
                sqlx::query("SELECT pg_advisory_xact_lock(5461726)").execute(&mut *$tx).await?;
                let value = $body;
                $tx.commit().await?;
                value
            }
        }
    };
}

pub(crate) use {reading, transaction, writing};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Empty: SQLite in the data directory; or `postgres://…`, or `sqlite://PATH`.
    pub url: String,
    /// A file that holds the URL, because it may hold a password.
    pub url_file: std::path::PathBuf,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("opening the database {0}")]
    Open(String, #[source] sqlx::Error),
    #[error("bringing the database to this version's schema")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("something of that name exists already")]
    Unique,
    #[error("talking to the database")]
    Query(#[source] sqlx::Error),
    #[error("reading a stored {0}")]
    Stored(&'static str),
}

impl Error {
    /// Whether trying again later may help: the database is away, busy or full, which is
    /// no mistake of ours.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Query(sqlx::Error::Database(cause)) => match cause.code().as_deref() {
                // SQLite: busy, locked, read-only, I/O error, full, cannot open, with what
                // the extended codes put above the low byte.
                Some(code) if code.bytes().all(|b| b.is_ascii_digit()) && code.len() < 5 => {
                    matches!(code.parse::<i32>().unwrap_or(0) & 0xff, 5 | 6 | 8 | 10 | 13 | 14)
                }
                // PostgreSQL: connection, resources, intervention, system error, read-only.
                Some(code) => ["08", "53", "57", "58", "25006"].iter().any(|class| code.starts_with(class)),
                None => false,
            },
            Self::Open(..)
            | Self::Query(
                sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Tls(_),
            ) => true,
            _ => false,
        }
    }
}

impl From<sqlx::Error> for Error {
    fn from(err: sqlx::Error) -> Self {
        match err.as_database_error() {
            Some(cause) if cause.is_unique_violation() => Self::Unique,
            _ => Self::Query(err),
        }
    }
}

impl Db {
    /// Opens the configured database, `private/lyceum.db` by default, and runs migrations.
    pub async fn open(config: &Config, private: &Path) -> Result<Self> {
        let db = if config.url.starts_with("postgres") {
            Self::open_postgres(&config.url).await?
        } else {
            let path = config.url.strip_prefix("sqlite://").map_or_else(|| private.join("lyceum.db"), Into::into);
            Self::open_sqlite(&path).await?
        };
        writing!(&db, pool => MIGRATOR.run(pool).await)?;
        Ok(db)
    }

    async fn open_sqlite(path: &Path) -> Result<Self> {
        // SQLite gives its other files the mode of this one.
        let _ = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(10));
        let failed = |err| Error::Open(path.display().to_string(), err);
        let write = SqlitePoolOptions::new().max_connections(1).connect_with(options.clone()).await.map_err(failed)?;
        let read = SqlitePoolOptions::new()
            .max_connections(4)
            .connect_with(options.read_only(true).create_if_missing(false))
            .await
            .map_err(failed)?;
        Ok(Self::Sqlite { write, read })
    }

    async fn open_postgres(url: &str) -> Result<Self> {
        // The URL may hold a password: the error names the host alone.
        let failed = |err| Error::Open("(PostgreSQL)".to_owned(), err);
        let options = PgConnectOptions::from_str(url).map_err(failed)?.options([("statement_timeout", "10000")]);
        let pool = PgPoolOptions::new()
            .max_connections(10)
            .acquire_timeout(Duration::from_secs(10))
            .connect_with(options)
            .await
            .map_err(failed)?;
        Ok(Self::Postgres(pool))
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        reading!(self, pool => sqlx::query("SELECT 1").execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Writes a consistent copy of an SQLite database to a new file.
    pub async fn copy_to(&self, file: &Path) -> Result<()> {
        if let Self::Sqlite { write, .. } = self {
            sqlx::query("VACUUM INTO $1").bind(file.to_string_lossy().into_owned()).execute(write).await?;
        }
        Ok(())
    }

    /// Waits for what is under way and closes all connections.
    pub async fn close(&self) {
        match self {
            Self::Sqlite { write, read } => {
                read.close().await;
                write.close().await;
            }
            Self::Postgres(pool) => pool.close().await,
        }
    }
}
