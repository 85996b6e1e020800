//! Accounts that nobody uses: which have not been used since a moment, and their end as one transaction. Deciding when
//! to look is `expiry` of the services. Work that has not ended, or ended since then, is use of the account, and so is each
//! use of its tokens. Administrators are left alone, so that a portal never loses the last of them.

use sqlx::query_scalar;

use super::{
    Db, Result,
    audit::{ChangedBy, append_audit},
    reading,
    settings::RAISE_GENERATION,
    transaction,
    tx::Tx,
    types::{parse, readable},
};
use lyceum_model::{Timestamp, UserId};

/// What makes an account unused since `$1`.
const UNUSED: &str = "NOT disabled AND role <> 'admin' AND COALESCE(directory_role, 'user') <> 'admin'
     AND created_at <= $1 AND COALESCE(enabled_at, 0) <= $1 AND COALESCE(last_seen_at, 0) <= $1
     AND NOT EXISTS (SELECT 1 FROM sessions WHERE owner = users.id AND state <> 'ended')
     AND NOT EXISTS (SELECT 1 FROM sessions WHERE owner = users.id AND state = 'ended' AND ended_at > $1)
     AND NOT EXISTS (SELECT 1 FROM jobs WHERE owner = users.id AND retries_left > 0)
     AND NOT EXISTS (SELECT 1 FROM sweeps WHERE owner = users.id AND state <> 'ended')";

impl Db {
    /// Returns the accounts that nobody has used since a moment, by name.
    pub async fn unused_accounts(&self, since: Timestamp) -> Result<Vec<UserId>> {
        let sql = format!("SELECT id FROM users WHERE {UNUSED} ORDER BY name");
        let due: Vec<String> =
            reading!(self, pool => query_scalar(sqlx::AssertSqlSafe(sql)).bind(since.0).fetch_all(pool).await)?;
        Ok(readable(due.iter().map(|id| parse(id, "user id"))))
    }

    /// Disables an account that nobody has used since a moment, and ends its logins; its tokens are suspended. Returns
    /// false where it was used meanwhile, or an administrator was faster.
    pub async fn make_dormant(&self, id: UserId, since: Timestamp, now: Timestamp) -> Result<bool> {
        let id = id.to_string();
        Ok(transaction!(self, tx => make_dormant(Tx::from(&mut *tx), &id, since, now).await?))
    }
}

async fn make_dormant(mut tx: Tx<'_>, id: &str, since: Timestamp, now: Timestamp) -> Result<bool> {
    let sql = format!("SELECT name, last_seen_at FROM users WHERE {UNUSED} AND id = $2");
    let due: Option<(String, Option<i64>)> = tx.query(sqlx::AssertSqlSafe(sql)).bind(since.0).bind(id).first().await?;
    let Some((name, seen)) = due else { return Ok(false) };
    tx.query("UPDATE users SET disabled = $2, dormant_at = $3 WHERE id = $1")
        .bind(id)
        .bind(true)
        .bind(now.0)
        .execute()
        .await?;
    tx.query("DELETE FROM logins WHERE user_id = $1").bind(id).execute().await?;
    tx.query(RAISE_GENERATION).execute().await?;
    let detail = match seen {
        Some(seen) => format!("last used at {}", Timestamp(seen)),
        None => "never used".to_owned(),
    };
    append_audit(tx, &ChangedBy { actor: "portal", at: now }.did("user.dormant", &name, &detail)).await?;
    Ok(true)
}
