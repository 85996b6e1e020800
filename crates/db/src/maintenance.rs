//! Maintenance, as one document among the settings, and what the database says of itself for
//! the health page. Admission reads the document inside its own transaction (`admit`).

use std::time::Instant;

use sqlx::{query, query_scalar};

use super::{
    Db, Json, Result,
    audit::{ChangedBy, Entry, append_audit},
    reading,
    settings::SET_SETTING,
    transaction,
};
use lyceum_model::{Maintenance, Timestamp, health::Database};

/// The name of the setting.
const NAME: &str = "maintenance";

/// When `lyceum admin backup` made the last copy (milliseconds since 1970).
const LAST_BACKUP: &str = "last_backup";

const MAINTENANCE: &str = "SELECT value FROM settings WHERE name = 'maintenance'";

pub(super) fn read(document: Option<&str>) -> Result<Option<Maintenance>> {
    document.map(|document| Json::read(document, "maintenance")).transpose()
}

impl Db {
    /// What somebody has ordered, be it coming, active or past.
    pub async fn maintenance(&self) -> Result<Option<Maintenance>> {
        let document: Option<String> = reading!(self, pool => query_scalar(MAINTENANCE).fetch_optional(pool).await)?;
        read(document.as_deref())
    }

    /// Orders or ends maintenance if it still is as `before`; false where it is not.
    pub async fn set_maintenance(
        &self,
        before: Option<&Maintenance>,
        after: Option<&Maintenance>,
        noted: &Entry<'_>,
    ) -> Result<bool> {
        Ok(transaction!(self, tx => {
            let found: Option<String> = query_scalar(MAINTENANCE).fetch_optional(&mut *tx).await?;
            if read(found.as_deref())?.as_ref() != before {
                return Ok(false);
            }
            match after {
                Some(after) => query(SET_SETTING).bind(NAME).bind(Json::write(after)).execute(&mut *tx).await?,
                None => query("DELETE FROM settings WHERE name = $1").bind(NAME).execute(&mut *tx).await?,
            };
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }

    /// A copy was made.
    pub async fn note_backup(&self, by: ChangedBy<'_>) -> Result<()> {
        let at = by.at.0.to_string();
        transaction!(self, tx => {
            query(SET_SETTING).bind(LAST_BACKUP).bind(&at).execute(&mut *tx).await?;
            append_audit(&mut *tx, &by.did("database.backup", "portal", "")).await?;
        });
        Ok(())
    }

    /// What the database says of itself, and how long it took to answer.
    pub async fn health(&self) -> Result<Database> {
        let (kind, size) = match self {
            Self::Sqlite { .. } => {
                ("SQLite", "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
            }
            Self::Postgres { .. } => ("PostgreSQL", "SELECT pg_database_size(current_database())"),
        };
        let began = Instant::now();
        self.ping().await?;
        let latency = began.elapsed();
        let bytes: i64 = reading!(self, pool => query_scalar(size).fetch_one(pool).await)?;
        let schema: i64 = reading!(self, pool =>
            query_scalar("SELECT MAX(version) FROM _sqlx_migrations").fetch_one(pool).await)?;
        let last_backup = self.setting(LAST_BACKUP).await?.and_then(|text| text.parse().ok()).map(Timestamp);
        Ok(Database { kind, bytes, latency, schema, last_backup })
    }
}
