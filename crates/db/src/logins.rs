//! Logins: one row per browser session. Only the hash of the session's id, which is the cookie, is
//! kept; a login has an idle and an absolute end, and its removal raises the access generation.

use serde::{Deserialize, Serialize};
use sqlx::{FromRow, query, query_as};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    reading,
    settings::RAISE_GENERATION,
    transaction,
    types::parse,
    writing,
};
use lyceum_model::{LoginId, Timestamp, UserId};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    pub id: LoginId,
    pub user: UserId,
    pub created_at: Timestamp,
    pub last_seen_at: Timestamp,
    /// The absolute end.
    pub expires_at: Timestamp,
    pub address: String,
}

#[derive(FromRow)]
struct Row {
    id: String,
    user_id: String,
    created_at: i64,
    last_seen_at: i64,
    expires_at: i64,
    address: String,
}

impl Row {
    fn login(self) -> Result<Login> {
        Ok(Login {
            id: parse(&self.id, "login id")?,
            user: parse(&self.user_id, "user id")?,
            created_at: Timestamp(self.created_at),
            last_seen_at: Timestamp(self.last_seen_at),
            expires_at: Timestamp(self.expires_at),
            address: self.address,
        })
    }
}

const COLUMNS: &str = "id, user_id, created_at, last_seen_at, expires_at, address";

impl Db {
    /// Writes a fresh login, and notes that its user was here and `entry`: all of it or nothing. A
    /// session id that is taken is [`super::Error::Unique`].
    pub async fn add_login(&self, login: &Login, session_hash: &str, entry: &Entry<'_>) -> Result<()> {
        let (id, user) = (login.id.to_string(), login.user.to_string());
        transaction!(self, tx => {
            query("INSERT INTO logins (id, session_hash, user_id, created_at, last_seen_at, expires_at, address)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)")
                .bind(&id).bind(session_hash).bind(&user).bind(login.created_at.0).bind(login.last_seen_at.0)
                .bind(login.expires_at.0).bind(&login.address)
                .execute(&mut *tx).await?;
            query("UPDATE users SET last_seen_at = $2 WHERE id = $1")
                .bind(&user).bind(login.created_at.0).execute(&mut *tx).await?;
            append_audit(&mut *tx, entry).await?;
        });
        Ok(())
    }

    /// The login of this session, whether or not it has expired.
    pub async fn find_login(&self, session_hash: &str) -> Result<Option<Login>> {
        let sql = format!("SELECT {COLUMNS} FROM logins WHERE session_hash = $1");
        reading!(self, pool => query_as::<_, Row>(sqlx::AssertSqlSafe(sql)).bind(session_hash).fetch_optional(pool).await)?
            .map(Row::login)
            .transpose()
    }

    pub async fn find_login_by_id(&self, id: LoginId) -> Result<Option<Login>> {
        let sql = format!("SELECT {COLUMNS} FROM logins WHERE id = $1");
        let id = id.to_string();
        reading!(self, pool => query_as::<_, Row>(sqlx::AssertSqlSafe(sql)).bind(&id).fetch_optional(pool).await)?
            .map(Row::login)
            .transpose()
    }

    pub async fn list_logins(&self, user: UserId) -> Result<Vec<Login>> {
        let sql = format!("SELECT {COLUMNS} FROM logins WHERE user_id = $1 ORDER BY id DESC");
        let user = user.to_string();
        reading!(self, pool => query_as::<_, Row>(sqlx::AssertSqlSafe(sql)).bind(&user).fetch_all(pool).await)?
            .into_iter()
            .map(Row::login)
            .collect()
    }

    /// Notes that a login was used, and its user seen.
    pub async fn touch_login(&self, id: LoginId, at: Timestamp) -> Result<()> {
        let id = id.to_string();
        transaction!(self, tx => {
            query("UPDATE logins SET last_seen_at = $2 WHERE id = $1").bind(&id).bind(at.0).execute(&mut *tx).await?;
            query("UPDATE users SET last_seen_at = $2 WHERE id = (SELECT user_id FROM logins WHERE id = $1)")
                .bind(&id).bind(at.0).execute(&mut *tx).await?;
        });
        Ok(())
    }

    /// Ends one login; where it has ended already, nothing is written.
    pub async fn remove_login(&self, id: LoginId, entry: &Entry<'_>) -> Result<()> {
        let id = id.to_string();
        transaction!(self, tx => {
            let removed = query("DELETE FROM logins WHERE id = $1").bind(&id).execute(&mut *tx).await?.rows_affected();
            if removed > 0 {
                query(RAISE_GENERATION).execute(&mut *tx).await?;
                append_audit(&mut *tx, entry).await?;
            }
        });
        Ok(())
    }

    /// “Sign out everywhere”.
    pub async fn remove_logins_of(&self, user: UserId, entry: &Entry<'_>) -> Result<()> {
        let user = user.to_string();
        transaction!(self, tx => {
            query("DELETE FROM logins WHERE user_id = $1").bind(&user).execute(&mut *tx).await?;
            query(RAISE_GENERATION).execute(&mut *tx).await?;
            append_audit(&mut *tx, entry).await?;
        });
        Ok(())
    }

    /// Forgets logins that ended before `now` or were not seen since `idle_before`.
    pub async fn purge_logins(&self, now: Timestamp, idle_before: Timestamp) -> Result<u64> {
        Ok(writing!(self, pool => query("DELETE FROM logins WHERE expires_at <= $1 OR last_seen_at <= $2")
            .bind(now.0).bind(idle_before.0).execute(pool).await.map(|done| done.rows_affected()))?)
    }
}
