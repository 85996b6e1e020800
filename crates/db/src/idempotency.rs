//! Idempotency keys: the second POST with the same key finds what the first one made.
//! The row is written in the transaction that creates the thing, see `sessions`.

use sqlx::{query, query_as};

use super::{Db, Result, reading, writing};
use lyceum_model::{Timestamp, UserId};

/// Names what an earlier request with the same key created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierResult {
    /// A hash of the body: the same key with another body is a mistake.
    pub request_hash: String,
    pub created_id: String,
}

/// Identifies a request by its owner and idempotency key.
#[derive(Clone, Copy, Debug)]
pub struct IdempotentRequest<'a> {
    pub user: UserId,
    pub key: &'a str,
    pub request_hash: &'a str,
}

/// `$1` user, `$2` key, `$3` hash of the request, `$4` what it made, `$5` time.
pub(super) const ADD: &str =
    "INSERT INTO idempotency (user_id, key, request_hash, created_id, created_at) VALUES ($1, $2, $3, $4, $5)";

impl Db {
    pub async fn find_idempotent(&self, user: UserId, key: &str) -> Result<Option<EarlierResult>> {
        let user = user.to_string();
        let row: Option<(String, String)> = reading!(self, pool =>
            query_as("SELECT request_hash, created_id FROM idempotency WHERE user_id = $1 AND key = $2")
            .bind(&user).bind(key).fetch_optional(pool).await)?;
        Ok(row.map(|(request_hash, created_id)| EarlierResult { request_hash, created_id }))
    }

    /// Remembers a key; [`super::Error::Unique`] when another request was faster.
    pub async fn add_idempotent(&self, user: UserId, key: &str, earlier: &EarlierResult, at: Timestamp) -> Result<()> {
        let user = user.to_string();
        writing!(self, pool => query("INSERT INTO idempotency (user_id, key, request_hash, created_id, created_at)
             VALUES ($1, $2, $3, $4, $5)")
            .bind(&user).bind(key).bind(&earlier.request_hash).bind(&earlier.created_id).bind(at.0)
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    pub async fn purge_idempotent(&self, before: Timestamp) -> Result<()> {
        writing!(self, pool => query("DELETE FROM idempotency WHERE created_at < $1").bind(before.0).execute(pool).await.map(drop))?;
        Ok(())
    }
}
