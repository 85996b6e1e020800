//! Named sizes that administrators added while the portal ran. Each change writes its row of the audit log in its own
//! transaction. Those of the configuration file have no row here.

use sqlx::query_as;

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    reading, transaction,
    tx::Tx,
    types::{Json, readable},
};
use lyceum_model::{Resources, Timestamp};

/// A named size as an administrator added it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileRow {
    pub name: String,
    pub title: String,
    pub resources: Resources,
    pub duration_seconds: i64,
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
    resources: String,
    duration_seconds: i64,
    user_groups: String,
    position: i64,
    added_by: String,
    added_at: i64,
}

const ALL: &str =
    "SELECT name, title, resources, duration_seconds, user_groups, position, added_by, added_at FROM profiles
     ORDER BY position, name";

impl Row {
    fn profile(self) -> Result<ProfileRow> {
        Ok(ProfileRow {
            name: self.name,
            title: self.title,
            resources: Json::read(&self.resources, "profile's resources")?,
            duration_seconds: self.duration_seconds,
            groups: Json::read(&self.user_groups, "profile's groups")?,
            position: self.position,
            added_by: self.added_by,
            added_at: Timestamp(self.added_at),
        })
    }
}

impl Db {
    /// Returns the named sizes that administrators added, in the order of lists.
    pub async fn profiles(&self) -> Result<Vec<ProfileRow>> {
        let rows: Vec<Row> = reading!(self, pool => query_as(ALL).fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(Row::profile)))
    }

    /// Adds a named size; [`super::Error::Unique`] where one has its name.
    pub async fn add_profile(&self, new: &ProfileRow, noted: &Entry<'_>) -> Result<()> {
        transaction!(self, tx => add(Tx::from(&mut *tx), new, noted).await?);
        Ok(())
    }

    /// Sets all of a named size but its name and who added it. Returns false where there is none of this name.
    pub async fn change_profile(&self, new: &ProfileRow, noted: &Entry<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => change(Tx::from(&mut *tx), new, noted).await?))
    }

    /// Removes a named size. Returns false where there is none of this name.
    pub async fn remove_profile(&self, name: &str, noted: &Entry<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => remove(Tx::from(&mut *tx), name, noted).await?))
    }
}

/// Reads all in the order of lists, inside a transaction.
pub(super) async fn all(mut tx: Tx<'_>) -> Result<Vec<ProfileRow>> {
    let rows: Vec<Row> = tx.query(ALL).all().await?;
    Ok(readable(rows.into_iter().map(Row::profile)))
}

/// [`Db::add_profile`] inside a transaction.
pub(super) async fn add(mut tx: Tx<'_>, new: &ProfileRow, noted: &Entry<'_>) -> Result<()> {
    let (resources, groups) = (Json::write(&new.resources), Json::write(&new.groups));
    tx.query(
        "INSERT INTO profiles (name, title, resources, duration_seconds, user_groups, position, added_by, added_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(&new.name)
    .bind(&new.title)
    .bind(&resources)
    .bind(new.duration_seconds)
    .bind(&groups)
    .bind(new.position)
    .bind(&new.added_by)
    .bind(new.added_at.0)
    .execute()
    .await?;
    append_audit(tx, noted).await
}

/// [`Db::change_profile`] inside a transaction.
pub(super) async fn change(mut tx: Tx<'_>, new: &ProfileRow, noted: &Entry<'_>) -> Result<bool> {
    let (resources, groups) = (Json::write(&new.resources), Json::write(&new.groups));
    let changed = tx.query(
        "UPDATE profiles SET title = $2, resources = $3, duration_seconds = $4, user_groups = $5, position = $6
         WHERE name = $1",
    );
    let changed = changed.bind(&new.name).bind(&new.title).bind(&resources).bind(new.duration_seconds).bind(&groups);
    if changed.bind(new.position).execute().await? == 0 {
        return Ok(false);
    }
    append_audit(tx, noted).await.map(|()| true)
}

/// [`Db::remove_profile`] inside a transaction.
pub(super) async fn remove(mut tx: Tx<'_>, name: &str, noted: &Entry<'_>) -> Result<bool> {
    if tx.query("DELETE FROM profiles WHERE name = $1").bind(name).execute().await? == 0 {
        return Ok(false);
    }
    append_audit(tx, noted).await.map(|()| true)
}
