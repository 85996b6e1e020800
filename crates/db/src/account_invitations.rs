//! Links by which the owners of local accounts set their password: the first one, or a new one. An account has one link
//! at most, until it is used, it expires, or the password is changed otherwise. Its secret is stored as a hash.

use sqlx::{query, query_as};

use super::{
    Db, Result,
    audit::{ChangedBy, Entry, append_audit},
    reading,
    settings::RAISE_GENERATION,
    transaction,
    tx::Tx,
};
use lyceum_model::{Timestamp, User, UserId};

/// A link, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountInvitation {
    /// Of its secret.
    pub hash: String,
    pub expires_at: Timestamp,
}

/// The account that the link with the hash `$1` opens at `$2`.
const OPEN: &str = "SELECT users.id, users.name FROM account_invitations JOIN users ON users.id = user_id
     WHERE hash = $1 AND account_invitations.expires_at > $2 AND source = 'local' AND NOT disabled
     AND (users.expires_at IS NULL OR users.expires_at > $2)";

/// Invites the owner of an account inside a transaction; an earlier link is no longer valid.
pub(super) async fn add(mut tx: Tx<'_>, user: UserId, invitation: &AccountInvitation) -> Result<()> {
    tx.query(
        "INSERT INTO account_invitations (user_id, hash, expires_at) VALUES ($1, $2, $3)
             ON CONFLICT (user_id) DO UPDATE SET hash = excluded.hash, expires_at = excluded.expires_at",
    )
    .bind(user.to_string())
    .bind(&invitation.hash)
    .bind(invitation.expires_at.0)
    .execute()
    .await
    .map(drop)
}

impl Db {
    /// Returns the name of the account that a link opens, if it does.
    pub async fn invited_account(&self, hash: &str, at: Timestamp) -> Result<Option<String>> {
        let row: Option<(String, String)> =
            reading!(self, pool => query_as(OPEN).bind(hash).bind(at.0).fetch_optional(pool).await)?;
        Ok(row.map(|(_, name)| name))
    }

    /// Stores a link to the account of this user; an earlier one is no longer valid.
    pub async fn invite_account(&self, user: &User, link: &AccountInvitation, by: ChangedBy<'_>) -> Result<()> {
        transaction!(self, tx => {
            add(Tx::from(&mut *tx), user.id, link).await?;
            let detail = format!("until {}", link.expires_at);
            append_audit(&mut *tx, &by.did("user.password_link", user.name.as_str(), &detail)).await?;
        });
        Ok(())
    }

    /// Sets the password of the account that a link opens, ends its sign-ins, and uses the link up. Returns the account's
    /// name, or nothing where the link opens none.
    pub async fn accept_account_invitation(
        &self,
        hash: &str,
        password_hash: &str,
        at: Timestamp,
    ) -> Result<Option<String>> {
        Ok(transaction!(self, tx => {
            let row: Option<(String, String)> =
                query_as(OPEN).bind(hash).bind(at.0).fetch_optional(&mut *tx).await?;
            let Some((id, name)) = row else { return Ok(None) };
            query("UPDATE users SET password_hash = $2 WHERE id = $1").bind(&id).bind(password_hash)
                .execute(&mut *tx).await?;
            query("DELETE FROM account_invitations WHERE user_id = $1").bind(&id).execute(&mut *tx).await?;
            query("DELETE FROM logins WHERE user_id = $1").bind(&id).execute(&mut *tx).await?;
            query(RAISE_GENERATION).execute(&mut *tx).await?;
            let (actor, detail) = (name.as_str(), "by a link");
            append_audit(&mut *tx, &Entry { at, actor, action: "password.change", subject: actor, detail }).await?;
            Some(name)
        }))
    }
}
