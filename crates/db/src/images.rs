//! Container images that administrators added, and the digests with which images run. Each change writes its row of
//! the audit log in its own transaction. Images of the configuration file have a digest here and no row of their own.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    reading, transaction,
    types::{Json, parse},
    writing,
};
use lyceum_model::{SessionId, Timestamp, UserId, session::SessionSpec};

/// An image as an administrator added it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRow {
    pub name: String,
    pub title: String,
    pub reference: String,
    /// Names of the groups that may use it; empty for everybody.
    pub groups: Vec<String>,
    /// The only user who may use it.
    pub owner: Option<UserId>,
    pub added_by: String,
    pub added_at: Timestamp,
}

/// What the reference of an image named when it was pulled last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDigest {
    pub name: String,
    pub reference: String,
    pub digest: String,
    pub pulled_at: Timestamp,
}

#[derive(FromRow)]
struct Row {
    name: String,
    title: String,
    reference: String,
    user_groups: String,
    owner: Option<String>,
    added_by: String,
    added_at: i64,
}

impl Db {
    /// Returns the images that administrators added, by name.
    pub async fn images(&self) -> Result<Vec<ImageRow>> {
        let rows: Vec<Row> = reading!(self, pool =>
            query_as("SELECT name, title, reference, user_groups, owner, added_by, added_at FROM images ORDER BY name")
            .fetch_all(pool).await)?;
        let read = |row: Row| {
            Ok(ImageRow {
                groups: Json::read(&row.user_groups, "image's groups")?,
                owner: row.owner.as_deref().map(|id| parse(id, "user id")).transpose()?,
                name: row.name,
                title: row.title,
                reference: row.reference,
                added_by: row.added_by,
                added_at: Timestamp(row.added_at),
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// Adds an image; [`super::Error::Unique`] where one has its name.
    pub async fn add_image(&self, new: &ImageRow, noted: &Entry<'_>) -> Result<()> {
        let groups = Json::write(&new.groups);
        transaction!(self, tx => {
            query("INSERT INTO images (name, title, reference, user_groups, owner, added_by, added_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)")
                .bind(&new.name).bind(&new.title).bind(&new.reference).bind(&groups)
                .bind(new.owner.map(|id| id.to_string())).bind(&new.added_by).bind(new.added_at.0).execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    /// Removes an image and its digest. Returns false where there is none, or where a session or job that is not over
    /// has asked for it.
    pub async fn remove_image(&self, name: &str, noted: &Entry<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => {
            let specs: Vec<String> = query_scalar("SELECT spec FROM sessions WHERE state <> 'ended'")
                .fetch_all(&mut *tx).await?;
            if specs.iter().any(|spec| image_of(spec).as_deref() == Some(name)) {
                return Ok(false);
            }
            let removed = query("DELETE FROM images WHERE name = $1").bind(name).execute(&mut *tx).await?;
            if removed.rows_affected() == 0 {
                return Ok(false);
            }
            query("DELETE FROM image_digests WHERE name = $1").bind(name).execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }

    /// Returns the digests that images were pulled with last.
    pub async fn image_digests(&self) -> Result<Vec<ImageDigest>> {
        let rows: Vec<(String, String, String, i64)> = reading!(self, pool =>
            query_as("SELECT name, reference, digest, pulled_at FROM image_digests ORDER BY name")
            .fetch_all(pool).await)?;
        let read = |(name, reference, digest, at)| ImageDigest { name, reference, digest, pulled_at: Timestamp(at) };
        Ok(rows.into_iter().map(read).collect())
    }

    /// From now on workloads in this image run with this digest.
    pub async fn set_image_digest(&self, new: &ImageDigest) -> Result<()> {
        writing!(self, pool => query("INSERT INTO image_digests (name, reference, digest, pulled_at)
             VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO UPDATE SET reference = excluded.reference,
             digest = excluded.digest, pulled_at = excluded.pulled_at")
            .bind(&new.name).bind(&new.reference).bind(&new.digest).bind(new.pulled_at.0)
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Notes the digest that a session is started with.
    pub async fn set_session_image(&self, id: SessionId, digest: &str) -> Result<()> {
        writing!(self, pool => query("UPDATE sessions SET image_digest = $2 WHERE id = $1 AND state <> 'ended'")
            .bind(id.to_string()).bind(digest).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Returns the digests with which sessions and jobs run now.
    pub async fn image_digests_in_use(&self) -> Result<Vec<String>> {
        let rows: Vec<String> = reading!(self, pool => query_scalar(
            "SELECT DISTINCT image_digest FROM sessions WHERE state <> 'ended' AND image_digest IS NOT NULL")
            .fetch_all(pool).await)?;
        Ok(rows)
    }

    /// Returns whether a session or job that is not over has asked for this image.
    pub async fn is_image_in_use(&self, name: &str) -> Result<bool> {
        let specs: Vec<String> = reading!(self, pool =>
            query_scalar("SELECT spec FROM sessions WHERE state <> 'ended'").fetch_all(pool).await)?;
        Ok(specs.iter().any(|spec| image_of(spec).as_deref() == Some(name)))
    }
}

/// Returns the name of the image in a stored specification.
fn image_of(spec: &str) -> Option<String> {
    SessionSpec::salvaged(spec).image
}
