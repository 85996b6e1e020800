//! Local accounts: names and password hashes in our own database. An unknown name costs the
//! same time as a wrong password, because a hash is checked either way.

use async_trait::async_trait;

use super::{Authenticator, Error, Result, attempts::Attempt, name::SignInName, passwords};
use lyceum_db::Db;
use lyceum_model::UserId;

/// Each check takes 19 MiB, so this many never take more than 76.
const MAX_SLOTS: usize = 4;

pub struct Local {
    db: Db,
    /// What is checked where there is no hash: made of a secret that nobody has.
    nobody: String,
}

impl Local {
    pub async fn new(db: Db) -> Result<Self> {
        Ok(Self { db, nobody: passwords::hash(&super::secrets::random()).await? })
    }
}

#[async_trait]
impl Authenticator for Local {
    async fn authenticate(&self, name: &SignInName, password: &str, _: &Attempt<'_>) -> Result<UserId> {
        if password.is_empty() || password.len() > passwords::MAX_LENGTH {
            return Err(Error::refused("the input cannot be a password"));
        }
        let account = self.db.find_user_by_name(&name.canonical).await?;
        let hash = account.as_ref().and_then(|account| account.password_hash.as_deref()).unwrap_or(&self.nobody);
        let fits = passwords::verify(password, hash).await?;
        match account {
            Some(account) if fits && !account.user.disabled && account.password_hash.is_some() => Ok(account.user.id),
            Some(account) if account.user.is_service() => Err(Error::refused("service accounts cannot sign in")),
            Some(account) if account.user.expired_at.is_some() => Err(Error::refused("the account expired")),
            Some(account) if account.user.dormant_at.is_some() => Err(Error::refused("the account is dormant")),
            Some(account) if account.user.disabled => Err(Error::refused("the account is disabled")),
            Some(_) => Err(Error::refused("the password is wrong")),
            None => Err(Error::refused("unknown account")),
        }
    }

    /// Half of the cores: however nice a thread is, it takes memory's bandwidth from the others.
    fn slots(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (cores / 2).clamp(1, MAX_SLOTS)
    }
}
