//! Software environments that administrators added while the portal ran. Each change writes its row of the audit log in
//! its own transaction. Those of the configuration file have no row here.

use sqlx::{query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    reading, transaction,
    types::Json,
};
use lyceum_model::{Timestamp, session::SessionSpec};

/// An environment as an administrator added it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentRow {
    pub name: String,
    pub title: String,
    /// Requirements as for pip: `torch==2.9.*`.
    pub packages: Vec<String>,
    pub added_by: String,
    pub added_at: Timestamp,
}

impl Db {
    /// Returns the environments that administrators added, in the order in which they did.
    pub async fn environments(&self) -> Result<Vec<EnvironmentRow>> {
        let rows: Vec<(String, String, String, String, i64)> = reading!(self, pool =>
            query_as("SELECT name, title, packages, added_by, added_at FROM environments ORDER BY added_at, name")
            .fetch_all(pool).await)?;
        let read = |(name, title, packages, added_by, at): (String, String, String, String, i64)| {
            let packages = Json::read(&packages, "environment's packages")?;
            Ok(EnvironmentRow { name, title, packages, added_by, added_at: Timestamp(at) })
        };
        rows.into_iter().map(read).collect()
    }

    /// Adds an environment; [`super::Error::Unique`] where one has its name.
    pub async fn add_environment(&self, new: &EnvironmentRow, noted: &Entry<'_>) -> Result<()> {
        let packages = Json::write(&new.packages);
        transaction!(self, tx => {
            query("INSERT INTO environments (name, title, packages, added_by, added_at) VALUES ($1, $2, $3, $4, $5)")
                .bind(&new.name).bind(&new.title).bind(&packages).bind(&new.added_by).bind(new.added_at.0)
                .execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    /// Sets the title and the packages of an environment. Returns false where there is none of this name.
    pub async fn change_environment(
        &self,
        name: &str,
        title: &str,
        packages: &[String],
        noted: &Entry<'_>,
    ) -> Result<bool> {
        let packages = Json::write(&packages);
        Ok(transaction!(self, tx => {
            let changed = query("UPDATE environments SET title = $2, packages = $3 WHERE name = $1")
                .bind(name).bind(title).bind(&packages).execute(&mut *tx).await?;
            if changed.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }

    /// Removes an environment. Returns false where there is none, or where a session or job that is not over has asked
    /// for it.
    pub async fn remove_environment(&self, name: &str, noted: &Entry<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => {
            let specs: Vec<String> = query_scalar("SELECT spec FROM sessions WHERE state <> 'ended'")
                .fetch_all(&mut *tx).await?;
            if specs.iter().any(|spec| SessionSpec::salvaged(spec).environment.as_deref() == Some(name)) {
                return Ok(false);
            }
            let removed = query("DELETE FROM environments WHERE name = $1").bind(name).execute(&mut *tx).await?;
            if removed.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }
}
