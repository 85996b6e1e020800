//! API tokens: only the hash of the secret is kept; a token ends by date or by revocation,
//! and is never worth more than its owner at the moment of use (judged elsewhere).

use sqlx::{FromRow, query, query_as};

use super::{
    Db, Json, Result,
    audit::{Entry, append_audit},
    idempotency::{self, IdempotentRequest},
    reading,
    settings::RAISE_GENERATION,
    transaction,
    types::parse,
};
use lyceum_model::{Timestamp, TokenId, UserId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub id: TokenId,
    pub user: UserId,
    pub name: String,
    /// Empty: everything that its owner may do.
    pub scopes: Vec<String>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
}

#[derive(FromRow)]
struct Row {
    id: String,
    user_id: String,
    name: String,
    scopes: String,
    created_at: i64,
    expires_at: i64,
    last_used_at: Option<i64>,
}

impl Row {
    fn token(self) -> Result<Token> {
        Ok(Token {
            id: parse(&self.id, "token id")?,
            user: parse(&self.user_id, "user id")?,
            name: self.name,
            scopes: Json::read(&self.scopes, "token's scopes")?,
            created_at: Timestamp(self.created_at),
            expires_at: Timestamp(self.expires_at),
            last_used_at: self.last_used_at.map(Timestamp),
        })
    }
}

const COLUMNS: &str = "id, user_id, name, scopes, created_at, expires_at, last_used_at";

impl Db {
    /// Adds a token and remembers the Idempotency-Key of its request and `entry`, all or
    /// nothing; [`super::Error::Unique`] when a request with that key was there before.
    pub async fn add_token(
        &self,
        token: &Token,
        secret_hash: &str,
        once: Option<IdempotentRequest<'_>>,
        entry: &Entry<'_>,
    ) -> Result<()> {
        let (id, user, scopes) = (token.id.to_string(), token.user.to_string(), Json::write(&token.scopes));
        transaction!(self, tx => {
            if let Some(once) = once {
                query(idempotency::ADD).bind(once.user.to_string()).bind(once.key).bind(once.request_hash).bind(&id)
                    .bind(token.created_at.0).execute(&mut *tx).await?;
            }
            query("INSERT INTO tokens (id, secret_hash, user_id, name, scopes, created_at, expires_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)")
                .bind(&id).bind(secret_hash).bind(&user).bind(&token.name).bind(&scopes)
                .bind(token.created_at.0).bind(token.expires_at.0)
                .execute(&mut *tx).await?;
            append_audit(&mut *tx, entry).await?;
        });
        Ok(())
    }

    pub async fn find_token(&self, secret_hash: &str) -> Result<Option<Token>> {
        let sql = format!("SELECT {COLUMNS} FROM tokens WHERE secret_hash = $1");
        reading!(self, pool => query_as::<_, Row>(sqlx::AssertSqlSafe(sql)).bind(secret_hash).fetch_optional(pool).await)?
            .map(Row::token)
            .transpose()
    }

    pub async fn find_token_by_id(&self, id: TokenId) -> Result<Option<Token>> {
        let sql = format!("SELECT {COLUMNS} FROM tokens WHERE id = $1");
        let id = id.to_string();
        reading!(self, pool => query_as::<_, Row>(sqlx::AssertSqlSafe(sql)).bind(&id).fetch_optional(pool).await)?
            .map(Row::token)
            .transpose()
    }

    /// Somebody's tokens, newest first, starting after `before` when given.
    pub async fn list_tokens(&self, user: UserId, before: Option<TokenId>, limit: i64) -> Result<Vec<Token>> {
        let sql = format!("SELECT {COLUMNS} FROM tokens WHERE user_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3");
        let (user, before) = (user.to_string(), before.map_or_else(|| "g".to_owned(), |id| id.to_string()));
        reading!(self, pool => query_as::<_, Row>(sqlx::AssertSqlSafe(sql)).bind(&user).bind(&before).bind(limit).fetch_all(pool).await)?
            .into_iter()
            .map(Row::token)
            .collect()
    }

    /// Whether there was such a token of this user.
    pub async fn remove_token(&self, user: UserId, id: TokenId, entry: &Entry<'_>) -> Result<bool> {
        let (user, id) = (user.to_string(), id.to_string());
        let removed = transaction!(self, tx => {
            let removed = query("DELETE FROM tokens WHERE id = $1 AND user_id = $2")
                .bind(&id).bind(&user).execute(&mut *tx).await?.rows_affected();
            if removed > 0 {
                query(RAISE_GENERATION).execute(&mut *tx).await?;
                append_audit(&mut *tx, entry).await?;
            }
            removed
        });
        Ok(removed > 0)
    }

    /// Replaces the secret of a user's token, which then lives as long as it was made for, and returns it; `None` where there
    /// is none. Remembers the Idempotency-Key of the request, both or neither; [`super::Error::Unique`] when a request with
    /// that key was there before.
    pub async fn rotate_token(
        &self,
        user: UserId,
        id: TokenId,
        secret_hash: &str,
        once: Option<IdempotentRequest<'_>>,
        entry: &Entry<'_>,
    ) -> Result<Option<Token>> {
        let (user, id) = (user.to_string(), id.to_string());
        let sql = format!(
            "UPDATE tokens SET secret_hash = $3, expires_at = $4 + expires_at - created_at, created_at = $4, last_used_at = NULL
             WHERE id = $1 AND user_id = $2 RETURNING {COLUMNS}"
        );
        let row: Option<Row> = transaction!(self, tx => {
            let row = query_as(sqlx::AssertSqlSafe(sql.as_str())).bind(&id).bind(&user).bind(secret_hash).bind(entry.at.0)
                .fetch_optional(&mut *tx).await?;
            if row.is_some() {
                if let Some(once) = once {
                    query(idempotency::ADD).bind(once.user.to_string()).bind(once.key).bind(once.request_hash).bind(&id)
                        .bind(entry.at.0).execute(&mut *tx).await?;
                }
                query(RAISE_GENERATION).execute(&mut *tx).await?;
                append_audit(&mut *tx, entry).await?;
            }
            row
        });
        row.map(Row::token).transpose()
    }

    /// Notes that a token was used, and its user seen.
    pub async fn touch_token(&self, id: TokenId, at: Timestamp) -> Result<()> {
        let id = id.to_string();
        transaction!(self, tx => {
            query("UPDATE tokens SET last_used_at = $2 WHERE id = $1").bind(&id).bind(at.0).execute(&mut *tx).await?;
            query("UPDATE users SET last_seen_at = $2 WHERE id = (SELECT user_id FROM tokens WHERE id = $1)")
                .bind(&id).bind(at.0).execute(&mut *tx).await?;
        });
        Ok(())
    }
}
