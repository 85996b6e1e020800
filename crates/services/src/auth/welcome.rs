//! Links by which the owners of local accounts set their password, the first one or a new one: a secret opens the account
//! once. It is stored as a hash, and links have it behind `#`, which browsers do not send: addresses of requests and logs
//! never hold it.

use super::{
    Access, Error, Principal, Result,
    people::{PersonChange, administrator, hashed, objection, within_scopes},
    secrets,
};
use lyceum_db::account_invitations::AccountInvitation;
use lyceum_model::{Timestamp, User, group::INVITATION_LIFETIME};

/// How long a link to set a new password is valid, in seconds: three days.
const PASSWORD_LINK_LIFETIME: i64 = 3 * 86_400;

/// The secret of a new invitation and what is stored of it.
pub fn invitation(now: Timestamp) -> (String, AccountInvitation) {
    let secret = secrets::random();
    let invitation =
        AccountInvitation { hash: secrets::hash(&secret), expires_at: now.plus_seconds(INVITATION_LIFETIME) };
    (secret, invitation)
}

impl Access {
    /// Creates a link by which somebody sets a new password, and returns its secret and when it expires. An earlier link
    /// becomes invalid; the current password stays valid until the link is used.
    pub async fn create_password_link(&self, actor: &Principal, target: &User) -> Result<(String, Timestamp)> {
        administrator(actor)?;
        within_scopes(actor, target, None)?;
        // The link sets the password, so it has the same conditions.
        let change = PersonChange { password: Some(String::new()), ..PersonChange::default() };
        objection(actor.id(), target, &change).map_or(Ok(()), Err)?;
        if target.is_closed() {
            let (name, state) = (&target.name, target.state().as_str());
            return Err(Error::Conflict(format!("the account `{name}` is {state}; enable it first")));
        }
        let (secret, mut link) = invitation(self.clock.now());
        link.expires_at = self.clock.now().plus_seconds(PASSWORD_LINK_LIFETIME);
        self.db.invite_account(target, &link, self.by(actor)).await?;
        Ok((secret, link.expires_at))
    }

    /// Sets the password of the account that this secret opens, ends its sign-ins, and returns the account's name.
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
