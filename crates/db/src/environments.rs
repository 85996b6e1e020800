//! Software environments that administrators added while the portal ran. Each change writes its row of the audit log in
//! its own transaction. Those of the configuration file have no row here.

use sqlx::{query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    reading, transaction,
    types::{Json, readable},
};
use lyceum_model::{Timestamp, session::SessionSpec};

/// An environment as an administrator added it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentRow {
    pub name: String,
    pub title: String,
    /// Requirements as for pip: `torch==2.9.*`.
    pub packages: Vec<String>,
    /// Names of the groups that may use it; empty for everybody.
    pub groups: Vec<String>,
    /// Lists show smaller numbers first.
    pub position: i64,
    pub added_by: String,
    pub added_at: Timestamp,
}

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    title: String,
    packages: String,
    user_groups: String,
    position: i64,
    added_by: String,
    added_at: i64,
}

impl Db {
    /// Returns the environments that administrators added, in the order of lists.
    pub async fn environments(&self) -> Result<Vec<EnvironmentRow>> {
        let rows: Vec<Row> = reading!(self, pool => query_as(
            "SELECT name, title, packages, user_groups, position, added_by, added_at FROM environments
             ORDER BY position, added_at, name").fetch_all(pool).await)?;
        let read = |row: Row| {
            Ok(EnvironmentRow {
                name: row.name,
                title: row.title,
                packages: Json::read(&row.packages, "environment's packages")?,
                groups: Json::read(&row.user_groups, "environment's groups")?,
                position: row.position,
                added_by: row.added_by,
                added_at: Timestamp(row.added_at),
            })
        };
        Ok(readable(rows.into_iter().map(read)))
    }

    /// Adds an environment; [`super::Error::Unique`] where one has its name.
    pub async fn add_environment(&self, new: &EnvironmentRow, noted: &Entry<'_>) -> Result<()> {
        let (packages, groups) = (Json::write(&new.packages), Json::write(&new.groups));
        transaction!(self, tx => {
            query("INSERT INTO environments (name, title, packages, user_groups, position, added_by, added_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7)")
                .bind(&new.name).bind(&new.title).bind(&packages).bind(&groups).bind(new.position)
                .bind(&new.added_by).bind(new.added_at.0).execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    /// Sets all of an environment but its name and who added it. Returns false where there is none of this name.
    pub async fn change_environment(&self, new: &EnvironmentRow, noted: &Entry<'_>) -> Result<bool> {
        let (packages, groups) = (Json::write(&new.packages), Json::write(&new.groups));
        Ok(transaction!(self, tx => {
            let changed = query(
                "UPDATE environments SET title = $2, packages = $3, user_groups = $4, position = $5 WHERE name = $1")
                .bind(&new.name).bind(&new.title).bind(&packages).bind(&groups).bind(new.position)
                .execute(&mut *tx).await?;
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
