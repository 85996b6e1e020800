//! Accounts that expire: which are due, their end as one transaction, and the work that their owners left. Deciding when
//! to look is `expiry` of the services; the moment itself is set by `people`.

use sqlx::{query_as, query_scalar};

use super::{
    Db, Result,
    audit::{ChangedBy, append_audit},
    reading,
    settings::RAISE_GENERATION,
    transaction,
    tx::Tx,
    types::{parse, readable},
};
use lyceum_model::{JobId, SessionId, SweepId, Timestamp, UserId};

/// `$1` now.
pub(super) const DUE: &str =
    "SELECT id FROM users WHERE expires_at IS NOT NULL AND expires_at <= $1 AND NOT disabled ORDER BY name";

/// Attempts of jobs are sessions too.
pub(super) const SESSIONS: &str = "SELECT sessions.id FROM sessions JOIN users ON users.id = owner
     WHERE state <> 'ended' AND state <> 'stopping' AND expired_at IS NOT NULL ORDER BY sessions.id";
const SWEEPS: &str = "SELECT sweeps.id, sweeps.name FROM sweeps JOIN users ON users.id = owner
     WHERE state <> 'ended' AND state <> 'stopping' AND expired_at IS NOT NULL ORDER BY sweeps.id";
const JOBS: &str = "SELECT jobs.id FROM jobs JOIN users ON users.id = owner
     WHERE retries_left > 0 AND expired_at IS NOT NULL ORDER BY jobs.id";

/// What users whose accounts have expired still run and wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftWork {
    /// Sweeps that submit tasks, with their names.
    pub sweeps: Vec<(SweepId, String)>,
    /// Jobs that would be retried.
    pub jobs: Vec<JobId>,
    /// Sessions and attempts of jobs that nobody has stopped yet.
    pub sessions: Vec<SessionId>,
}

impl Db {
    /// Returns the accounts whose moment has come and that are not disabled yet.
    pub async fn accounts_to_expire(&self, now: Timestamp) -> Result<Vec<UserId>> {
        let due: Vec<String> = reading!(self, pool => query_scalar(DUE).bind(now.0).fetch_all(pool).await)?;
        Ok(readable(due.iter().map(|id| parse(id, "user id"))))
    }

    /// Disables an account whose moment has come, and ends its logins; its tokens are suspended. False where an
    /// administrator was faster.
    pub async fn expire_account(&self, id: UserId, now: Timestamp) -> Result<bool> {
        let id = id.to_string();
        Ok(transaction!(self, tx => expire(Tx::from(&mut *tx), &id, now).await?))
    }

    /// Returns the work of users whose accounts have expired.
    pub async fn work_of_expired_accounts(&self) -> Result<LeftWork> {
        let sweeps: Vec<(String, String)> = reading!(self, pool => query_as(SWEEPS).fetch_all(pool).await)?;
        let jobs: Vec<String> = reading!(self, pool => query_scalar(JOBS).fetch_all(pool).await)?;
        let sessions: Vec<String> = reading!(self, pool => query_scalar(SESSIONS).fetch_all(pool).await)?;
        Ok(LeftWork {
            sweeps: readable(sweeps.into_iter().map(|(id, name)| Ok((parse(&id, "sweep id")?, name)))),
            jobs: readable(jobs.iter().map(|id| parse(id, "job id"))),
            sessions: readable(sessions.iter().map(|id| parse(id, "session id"))),
        })
    }
}

/// [`Db::expire_account`] inside a transaction.
pub(super) async fn expire(mut tx: Tx<'_>, id: &str, now: Timestamp) -> Result<bool> {
    let due: Option<(String, i64)> = tx
        .query("SELECT name, expires_at FROM users WHERE id = $1 AND expires_at <= $2 AND NOT disabled")
        .bind(id)
        .bind(now.0)
        .first()
        .await?;
    let Some((name, expires_at)) = due else { return Ok(false) };
    tx.query("UPDATE users SET disabled = $2, expired_at = $3 WHERE id = $1")
        .bind(id)
        .bind(true)
        .bind(now.0)
        .execute()
        .await?;
    tx.query("DELETE FROM logins WHERE user_id = $1").bind(id).execute().await?;
    tx.query(RAISE_GENERATION).execute().await?;
    let detail = format!("the account expired at {}", Timestamp(expires_at));
    append_audit(tx, &ChangedBy { actor: "portal", at: now }.did("user.expire", &name, &detail)).await?;
    Ok(true)
}
