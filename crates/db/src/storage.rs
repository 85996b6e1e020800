//! What people keep in their homes, as it was measured last. Who measures it, and when, is
//! `files`' business.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{Db, Result, reading, types::parse, writing};
use lyceum_model::{Timestamp, UserId, files::FolderSize};

/// Records the measured size of a home directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeUsage {
    pub measured: FolderSize,
    pub at: Timestamp,
}

#[derive(FromRow)]
struct Row {
    bytes: i64,
    files: i64,
    unreadable: i64,
    measured_at: i64,
}

impl Db {
    /// Who was seen since `seen`, and whose home nobody has tried to measure since `tried`: those
    /// first who wait longest. Nobody, where no limit on anybody's storage is set.
    pub async fn storage_due(&self, seen: Timestamp, tried: Timestamp, limit: i64) -> Result<Vec<UserId>> {
        let ids: Vec<String> = reading!(self, pool => query_scalar(
            "SELECT users.id FROM users LEFT JOIN storage ON storage.user_id = users.id
             WHERE last_seen_at >= $1 AND NOT disabled AND COALESCE(tried_at, 0) < $2
               AND EXISTS (SELECT 1 FROM quota_limits WHERE field = 'storage_bytes')
             ORDER BY COALESCE(tried_at, 0), users.id LIMIT $3")
            .bind(seen.0).bind(tried.0).bind(limit).fetch_all(pool).await)?;
        ids.iter().map(|id| parse(id, "user id")).collect()
    }

    /// Writes down what was measured, or that it could not be: then what was known stays.
    pub async fn set_storage(&self, user: UserId, measured: Option<&FolderSize>, at: Timestamp) -> Result<()> {
        let id = user.to_string();
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let (bytes, files, unreadable) =
            measured.map_or((0, 0, 0), |one| (number(one.bytes), number(one.files), number(one.unreadable)));
        let measured_at = measured.map(|_| at.0);
        writing!(self, pool => query(
            "INSERT INTO storage (user_id, bytes, files, unreadable, measured_at, tried_at) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (user_id) DO UPDATE SET tried_at = excluded.tried_at,
                 bytes = CASE WHEN excluded.measured_at IS NULL THEN storage.bytes ELSE excluded.bytes END,
                 files = CASE WHEN excluded.measured_at IS NULL THEN storage.files ELSE excluded.files END,
                 unreadable = CASE WHEN excluded.measured_at IS NULL THEN storage.unreadable ELSE excluded.unreadable END,
                 measured_at = COALESCE(excluded.measured_at, storage.measured_at)")
            .bind(&id).bind(bytes).bind(files).bind(unreadable).bind(measured_at).bind(at.0)
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// What somebody's home held when it was measured last.
    pub async fn storage_of(&self, user: UserId) -> Result<Option<HomeUsage>> {
        let id = user.to_string();
        let row: Option<Row> = reading!(self, pool => query_as(
            "SELECT bytes, files, unreadable, measured_at FROM storage WHERE user_id = $1 AND measured_at IS NOT NULL")
            .bind(&id).fetch_optional(pool).await)?;
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        Ok(row.map(|row| HomeUsage {
            measured: FolderSize {
                bytes: number(row.bytes),
                files: number(row.files),
                unreadable: number(row.unreadable),
            },
            at: Timestamp(row.measured_at),
        }))
    }
}
