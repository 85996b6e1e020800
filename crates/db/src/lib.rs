//! The only place with SQL text. One text serves SQLite and PostgreSQL: an enum of two
//! pools, a macro that evaluates the same body on either, and `Tx` for procedures that are
//! functions. Rules live elsewhere; the functions here say what is stored, what is read, and
//! which state a change expects.

pub mod account_invitations;
pub mod admit;
pub mod announcements;
pub mod audit;
pub mod chain;
pub mod counted_groups;
pub mod datasets;
pub mod diagnostics;
pub mod digests;
pub mod directory;
pub mod dormant;
pub mod environments;
pub mod events;
pub mod expiry;
pub mod extend;
pub mod facts;
pub mod gpus;
pub mod groups;
pub mod hand_over;
pub mod hardware;
pub mod holds;
pub mod idempotency;
pub mod images;
mod insert;
pub mod intervals;
pub mod invitations;
pub mod jobs;
pub mod limits;
pub mod limits_and_usage;
mod list_columns;
pub mod location;
pub mod logins;
pub mod maintenance;
pub mod models;
pub mod notifications;
mod open;
pub mod ordering;
pub mod outlook;
pub mod people;
#[cfg(test)]
mod plans;
pub mod presets;
pub mod profiles;
pub mod quota_table;
pub mod quotas;
pub mod refusals;
pub mod registry_credentials;
pub mod retention;
pub mod runs;
mod search;
pub mod sessions;
pub mod settings;
pub mod shell_jobs;
pub mod site;
pub mod storage;
pub mod sweeps;
pub mod tokens;
pub mod trash;
mod tx;
mod types;
pub mod usage;
pub mod users;
pub mod webhooks;
pub mod withheld_gpus;

use std::{
    fmt,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sqlx::{PgPool, SqlitePool, error::DatabaseError, sqlite::SqliteError};

pub use open::{forget_changes, lost};
pub use types::Json;
use usage::UsageCache;

/// The database that this process opened. SQLite has one connection that writes and a few
/// that read, so that writers queue in order instead of meeting "database is locked".
/// PostgreSQL has some of each, so that writers who queue for the lock hold up no reader. Clones
/// share what is known of use.
#[derive(Clone, Debug)]
pub enum Db {
    Sqlite { write: SqlitePool, read: SqlitePool, known: UsageCache },
    Postgres { write: PgPool, read: PgPool, known: UsageCache },
}

/// Evaluates `$body` with `$pool` bound to a pool that reads.
macro_rules! reading {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::Db::Sqlite { read: $pool, .. } => $body,
            $crate::Db::Postgres { read: $pool, .. } => $body,
        }
    };
}

/// Evaluates `$body` with `$pool` bound to a pool that writes single statements.
macro_rules! writing {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::Db::Sqlite { write: $pool, .. } => $body,
            $crate::Db::Postgres { write: $pool, .. } => $body,
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
            $crate::Db::Sqlite { write, .. } => {
                let mut $tx = write.begin_with("BEGIN IMMEDIATE").await?;
                let value = $body;
                $tx.commit().await?;
                value
            }
            $crate::Db::Postgres { write, .. } => {
                let mut $tx = write.begin().await?;
                sqlx::query("SELECT pg_advisory_xact_lock(5461726)").execute(&mut *$tx).await?;
                let value = $body;
                $tx.commit().await?;
                value
            }
        }
    };
}

pub(crate) use {reading, transaction, writing};

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Empty: SQLite in the data directory; or `postgres://…`, or `sqlite:///PATH`.
    pub url: String,
    /// A file that holds the URL, because it may hold a password.
    pub url_file: PathBuf,
}

impl fmt::Debug for Config {
    /// Without the password that the URL may hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.url.split_once("://").map_or("", |(scheme, _)| scheme);
        f.debug_struct("Config").field("url", &format_args!("{scheme}://…")).field("url_file", &self.url_file).finish()
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "database.url is invalid: {0}. It must be empty (SQLite in the data directory), sqlite:///PATH/OF/FILE or \
         postgres://USER:PASSWORD@HOST/DATABASE"
    )]
    Url(&'static str),
    #[error(
        "the database {} would be on {kind}, where SQLite's locks do not work: use a directory on a local disk \
         (`--data`), or a PostgreSQL server (`database.url`)", path.display()
    )]
    NetworkFileSystem { path: PathBuf, kind: String },
    #[error("the database {what} cannot be opened{hint}")]
    Open {
        /// A file, or a server without user and password.
        what: String,
        /// Empty, or what to do, behind a colon.
        hint: &'static str,
        #[source]
        cause: sqlx::Error,
    },
    #[error(
        "the database {what} was used by a newer version of Lyceum: its schema is number {found}, but this version \
         supports at most {known}. Start the newer version, or restore a backup from before the upgrade"
    )]
    NewerSchema { what: String, found: i64, known: i64 },
    #[error(
        "the database {what} is {state}, but this portal has been started before: {sign} exists. The database may be \
         lost, or its disk is not mounted. Restore a backup (`lyceum admin restore FILE`; with PostgreSQL, psql), or \
         start once with `lyceum serve --start-empty` to continue without the accounts and the history"
    )]
    Lost {
        what: String,
        /// Missing or empty.
        state: &'static str,
        /// The file that a first start would not find.
        sign: String,
    },
    #[error("failed to migrate the database to this version's schema")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("this name is already in use")]
    Unique,
    #[error(
        "this is the last administrator who can sign in and does not expire; make another user an administrator first"
    )]
    LastAdmin,
    /// An account is to be enabled that has expired at this moment.
    #[error(
        "the account expired at {0}, and would be disabled again; set a later end or remove it, then enable the account"
    )]
    Expired(lyceum_model::Timestamp),
    #[error("database query failed")]
    Query(#[source] sqlx::Error),
    #[error("failed to read a stored {0}")]
    Stored(&'static str),
    #[error("back up PostgreSQL with pg_dump")]
    NotAFile,
    #[error("failed to write the backup {}", .0.display())]
    Copy(PathBuf, #[source] std::io::Error),
}

impl Error {
    /// Whether trying again later may help: the database is away, busy or full, which is
    /// no mistake of ours.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Query(cause) | Self::Open { cause, .. } => is_outage(cause),
            _ => false,
        }
    }

    /// Whether the disk that the database is on has no room left, or its owner's quota is used up.
    pub fn is_full(&self) -> bool {
        let (Self::Query(cause) | Self::Open { cause, .. }) = self else { return false };
        match cause {
            sqlx::Error::Database(cause) => match cause.code().as_deref() {
                Some(code) if is_sqlite(cause.as_ref()) => sqlite_code(code) == 13,
                code => code == Some("53100"),
            },
            sqlx::Error::Io(cause) => {
                matches!(cause.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}

fn is_outage(cause: &sqlx::Error) -> bool {
    match cause {
        sqlx::Error::Database(cause) => match cause.code().as_deref() {
            // Busy, locked, read-only, I/O error, full, cannot open.
            Some(code) if is_sqlite(cause.as_ref()) => matches!(sqlite_code(code), 5 | 6 | 8 | 10 | 13 | 14),
            // Connection, deadlock, resources, intervention, system error, read-only.
            Some(code) => ["08", "40", "53", "57", "58", "25006"].iter().any(|class| code.starts_with(class)),
            None => false,
        },
        // What a server says while it dies is cut off anywhere.
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => true,
        _ => false,
    }
}

fn is_sqlite(cause: &(dyn DatabaseError + 'static)) -> bool {
    cause.try_downcast_ref::<SqliteError>().is_some()
}

/// The primary code; extended codes say more above the low byte.
fn sqlite_code(code: &str) -> i32 {
    code.parse::<i32>().unwrap_or(0) & 0xff
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
    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        reading!(self, pool => sqlx::query("SELECT 1").execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Whether a change could be written within this time: the one write lock is free, or becomes
    /// free. Nothing is changed.
    pub async fn can_write(&self, within: std::time::Duration) -> Result<bool> {
        let trying = async {
            transaction!(self, tx => {
                sqlx::query("SELECT 1").execute(&mut *tx).await?;
            });
            Ok::<_, Error>(())
        };
        match tokio::time::timeout(within, trying).await {
            Ok(tried) => tried.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Writes a consistent copy of an SQLite database to a new file, for its owner alone.
    pub async fn copy_to(&self, file: &Path) -> Result<()> {
        let Self::Sqlite { write, .. } = self else { return Err(Error::NotAFile) };
        // The copy holds what the database holds; an empty file of the right mode is filled.
        std::fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(file)
            .map_err(|err| Error::Copy(file.to_owned(), err))?;
        let copied = sqlx::query("VACUUM INTO $1").bind(file.to_string_lossy().into_owned()).execute(write).await;
        if copied.is_err() {
            let _ = std::fs::remove_file(file);
        }
        copied?;
        let synced = std::fs::File::open(file).and_then(|copy| copy.sync_all());
        synced.map_err(|err| Error::Copy(file.to_owned(), err))
    }

    /// Waits for what is under way and closes all connections.
    pub async fn close(&self) {
        match self {
            Self::Sqlite { write, read, .. } => {
                read.close().await;
                write.close().await;
            }
            Self::Postgres { write, read, .. } => {
                read.close().await;
                write.close().await;
            }
        }
    }
}
