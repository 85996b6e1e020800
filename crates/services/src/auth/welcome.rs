//! Invitations into new local accounts: a secret opens the account once, to set its first password. It is stored as a
//! hash, and links have it behind `#`, which browsers do not send: addresses of requests and logs never hold it.

use super::{Access, Error, Result, people::hashed, secrets};
use lyceum_db::account_invitations::AccountInvitation;
use lyceum_model::{Timestamp, group::INVITATION_LIFETIME};

/// The secret of a new invitation and what is stored of it.
pub fn invitation(now: Timestamp) -> (String, AccountInvitation) {
    let secret = secrets::random();
    let invitation =
        AccountInvitation { hash: secrets::hash(&secret), expires_at: now.plus_seconds(INVITATION_LIFETIME) };
    (secret, invitation)
}

impl Access {
    /// Sets the first password of the account that this secret opens, and returns the account's name.
    pub async fn accept_account_invitation(&self, secret: &str, password: &str) -> Result<String> {
        let closed = || Error::Field {
            field: "code",
            code: "invalid_value",
            message: "this code is not valid: it was used, has expired, or is incomplete; ask an administrator for a \
                      new one"
                .to_owned(),
        };
        let hash = secrets::hash(secret.trim());
        // Before anything is hashed, which takes long.
        if self.db.invited_account(&hash, self.clock.now()).await?.is_none() {
            return Err(closed());
        }
        let password = hashed(password).await?;
        let name = self.db.accept_account_invitation(&hash, &password, self.clock.now()).await?.ok_or_else(closed)?;
        self.poll().await?;
        Ok(name)
    }

    /// Whether accounts also come from outside, by a directory or by a proxy's header.
    #[must_use]
    pub fn has_header(&self) -> bool {
        self.header.is_some()
    }
}
