//! Signing in and out, and changing one's password: what each of them checks, changes and
//! leaves in the audit table.

use std::{borrow::Cow, net::IpAddr, sync::Arc, time::Duration};

use tokio::sync::SemaphorePermit;
use tower_sessions_core::Session;

use super::{
    Access, Claim, Error, Principal, Result, access::ABSOLUTE_SECONDS, ldap, name::SignInName, passwords, store,
};
use lyceum_db::{audit::Entry, logins::Login};
use lyceum_model::{LoginId, Timestamp, User, UserId};

/// How long a sign-in waits for one of the authenticator's slots.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

/// A refusal takes at least so long, whatever it is for: its time does not tell whether there is
/// such a person, nor who keeps their password.
const MIN_REFUSAL_TIME: Duration = Duration::from_millis(200);

/// Who failed to sign in under a name that is nobody's. The name itself is not kept: it is a
/// password often enough, typed in the wrong field.
const UNKNOWN_NAME: &str = "(unknown name)";

impl Access {
    /// Signs somebody in from an address. The session gets a new id, which ends the login that the
    /// browser had until now.
    pub async fn log_in(&self, session: &Session, typed: &str, password: &str, from: IpAddr) -> Result<Arc<Principal>> {
        let not_before = tokio::time::Instant::now() + MIN_REFUSAL_TIME;
        let user = match self.check_password(typed, password, from).await {
            Ok(user) => user,
            Err(err) => {
                if let Some(because) = because(&err) {
                    let known = self.db.find_user_by_name(typed).await.ok().flatten();
                    let told = known.as_ref().map_or(UNKNOWN_NAME, |account| account.user.name.as_str());
                    tracing::info!(name = told, %from, %because, "sign-in failed");
                    self.audit(told, "sign_in.failed", told, &because).await;
                }
                if matches!(err, Error::BadCredentials { .. }) {
                    tokio::time::sleep_until(not_before).await;
                }
                return Err(err);
            }
        };
        let principal = self.open_login(session, user, from, "").await?;
        if principal.user.name.as_str() == super::first::ADMIN {
            super::first::forget(&self.first_password).await;
        }
        Ok(principal)
    }

    /// Signs in whom a trusted proxy has named. The name of somebody who is refused is kept:
    /// nobody has typed it here.
    pub async fn log_in_by_header(&self, session: &Session, claim: &Claim, from: IpAddr) -> Result<Arc<Principal>> {
        let header = self.header.as_ref().ok_or_else(|| Error::refused("sign-in by header is not configured"))?;
        let _slot = self.slot().await?;
        let user = match header.recognise(claim).await {
            Ok(user) => user,
            Err(err) => {
                if let Some(because) = because(&err) {
                    let name = claim.name.as_str();
                    tracing::info!(name, %from, %because, "sign-in by header rejected");
                    self.audit(name, "sign_in.failed", name, &format!("by header: {because}")).await;
                }
                return Err(err);
            }
        };
        self.open_login(session, user, from, "by header").await
    }

    /// `how` is for the audit log.
    async fn open_login(&self, session: &Session, user: UserId, from: IpAddr, how: &str) -> Result<Arc<Principal>> {
        let closed = || Error::refused("the account is disabled, expired or absent");
        let account = self.db.find_user(user).await?.ok_or_else(closed)?;
        let now = self.clock.now();
        let login = Login {
            id: LoginId::new(),
            user,
            created_at: now,
            last_seen_at: now,
            expires_at: now.plus_seconds(ABSOLUTE_SECONDS),
            address: from.to_string(),
        };
        store::begin(session, &login, account.user.name.as_str(), how).await?;
        self.by_login(login.id).await?.ok_or_else(closed)
    }

    /// Ends the login that a browser's session holds, at once.
    pub async fn log_out(&self, session: &Session) -> Result<()> {
        store::typed(session.delete()).await
    }

    /// Ends all logins of somebody, this one included.
    pub async fn log_out_everywhere(&self, principal: &Principal) -> Result<()> {
        let entry = own_entry(&principal.user, self.clock.now(), "sign_out.everywhere");
        self.db.remove_logins_of(principal.id(), &entry).await?;
        self.poll().await?;
        Ok(())
    }

    /// Changes one's own password and ends all logins but this one. Guessing the current
    /// password is slowed down like guessing at sign-in.
    pub async fn change_password(&self, principal: &Principal, current: &str, new: &str, from: IpAddr) -> Result<()> {
        if !principal.user.is_local() {
            return Err(Error::NotOurPassword);
        }
        passwords::check(new)?;
        match self.check_password(principal.user.name.as_str(), current, from).await {
            Ok(user) if user == principal.id() => {}
            Ok(_) | Err(Error::BadCredentials { .. }) => return Err(Error::WrongCurrentPassword),
            Err(err) => return Err(err),
        }
        let hash = passwords::hash(new).await?;
        let entry = own_entry(&principal.user, self.clock.now(), "password.change");
        self.db.set_password(principal.id(), &hash, principal.login(), &entry).await?;
        self.poll().await?;
        Ok(())
    }

    /// Asks the authenticator, within the throttle and its slots. What cannot be a name is
    /// nobody's question.
    async fn check_password(&self, typed: &str, password: &str, from: IpAddr) -> Result<UserId> {
        let name = match SignInName::parse(typed).and_then(|name| self.authenticator.accepts(&name).map(|()| name)) {
            Ok(name) => name,
            Err(err) => return self.attempts.refuse(from).and(Err(err)),
        };
        let attempt = self.attempts.begin(&name.canonical, from).await?;
        let _slot = self.slot().await?;
        let outcome = self.authenticator.authenticate(&name, password, &attempt).await;
        attempt.end(&outcome);
        outcome
    }

    /// One of the authenticator's slots.
    async fn slot(&self) -> Result<SemaphorePermit<'_>> {
        let slot = tokio::time::timeout(QUEUE_TIMEOUT, self.slots.acquire()).await;
        Ok(slot.map_err(|_elapsed| Error::Busy)?.expect("the semaphore is never closed"))
    }

    /// Writes an audit row that has no transaction to be part of: what it tells has happened
    /// already, or has changed nothing. So trouble is logged only.
    pub(super) async fn audit(&self, actor: &str, action: &str, subject: &str, detail: &str) {
        if let Err(err) = self.db.add_audit(self.clock.now(), actor, action, subject, detail).await {
            tracing::error!(
                error = &err as &dyn std::error::Error,
                actor,
                action,
                subject,
                "failed to write an audit entry"
            );
        }
    }
}

/// What the log and the audit log keep of a sign-in that failed for a reason outside us.
fn because(err: &Error) -> Option<Cow<'static, str>> {
    match err {
        Error::BadCredentials { because } => Some(because.clone()),
        Error::Directory(ldap::Error::Db(_)) => None,
        Error::Directory(err) if err.is_outage() => {
            Some(format!("the directory is unavailable: {}", ldap::chain(err)).into())
        }
        Error::Directory(err) => Some(ldap::chain(err).into()),
        _ => None,
    }
}

/// What somebody did to their own account.
pub(super) fn own_entry<'a>(user: &'a User, at: Timestamp, action: &'a str) -> Entry<'a> {
    let name = user.name.as_str();
    Entry { at, actor: name, action, subject: name, detail: "" }
}
