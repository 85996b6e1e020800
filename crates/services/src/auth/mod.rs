//! Who somebody is and what they may do: passwords, logins, tokens, scopes, and the memory
//! of all of them that every request is judged by. No HTTP here: `web` turns cookies and
//! headers into calls of [`Access`], and errors into answers.

pub mod access;
pub mod attempts;
pub mod first;
pub mod groups;
pub mod header;
pub mod invitations;
pub mod keys;
pub mod ldap;
pub mod local;
pub mod name;
pub mod passwords;
pub mod people;
pub mod rules;
pub mod scopes;
mod secrets;
pub mod signin;
pub mod store;
pub mod throttle;
pub mod tokens;
pub mod welcome;

use std::borrow::Cow;

use async_trait::async_trait;

pub use access::{Access, Credential, Principal};
use attempts::Attempt;
pub use header::{Claim, Header};
pub use ldap::Ldap;
pub use local::Local;
use name::SignInName;
pub use store::Logins;

use lyceum_db as db;
use lyceum_model::UserId;

/// Where people's passwords are kept: our own table, or a directory.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// Whether somebody could have this name; what nobody can have is refused without a question.
    fn accepts(&self, name: &SignInName) -> Result<()> {
        name.username().map(drop)
    }

    /// Whose name and password these are; [`Error::BadCredentials`] alike for an unknown
    /// name, a wrong password and a disabled account, after a like time. `attempt` is told whom
    /// it is about before a password is passed on to anybody who counts.
    async fn authenticate(&self, name: &SignInName, password: &str, attempt: &Attempt<'_>) -> Result<UserId>;

    /// How many may be asked at once.
    fn slots(&self) -> usize;

    /// When whoever keeps the passwords locks an account by itself.
    fn lockout(&self) -> Option<throttle::Lockout> {
        None
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The reason is for the log and the audit table; whoever asked learns none.
    #[error("the user name or the password is wrong: {because}")]
    BadCredentials { because: Cow<'static, str> },
    #[error("directory request failed")]
    Directory(#[from] ldap::Error),
    #[error("too many failed sign-ins: try again in {retry_after_seconds} s")]
    Throttled { retry_after_seconds: i64 },
    #[error("too many sign-ins at once: try again in a few seconds")]
    Busy,
    #[error("a password must have at least 10 characters")]
    PasswordTooShort,
    #[error("a password must have at most 1024 bytes")]
    PasswordTooLong,
    #[error("this is not your current password")]
    WrongCurrentPassword,
    #[error("the site's directory manages this password; change it there")]
    NotOurPassword,
    #[error("failed to hash a password")]
    Hash(#[source] argon2::password_hash::Error),
    #[error("failed to start a thread that hashes passwords")]
    Thread(#[source] std::io::Error),
    /// A field of a token to be made: its name, what is wrong in one word, the sentence.
    #[error("{message}")]
    Field { field: &'static str, code: &'static str, message: String },
    /// A token that an earlier request with the same key made is gone.
    #[error("the token that an earlier request with this Idempotency-Key created has been revoked")]
    MadeAndRevoked,
    /// Whoever acts may not do this; the sentence says who may.
    #[error("{0}")]
    NotAllowed(&'static str),
    /// It does not fit how things are; the sentence says why.
    #[error("{0}")]
    Conflict(String),
    #[error("failed to write the first password to {path}")]
    FirstPassword {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("failed to read or write a browser's session")]
    Session(#[source] tower_sessions_core::session::Error),
    #[error(transparent)]
    Db(#[from] db::Error),
}

impl Error {
    /// Nobody is signed in, for a reason that the log and the audit table keep.
    pub fn refused(because: impl Into<Cow<'static, str>>) -> Self {
        Self::BadCredentials { because: because.into() }
    }
}
