//! Users: the accounts, their passwords' hashes, and what happens to access when one is
//! disabled. Names are unique; ids are for ever.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{ChangedBy, Entry, append_audit},
    people::UserChange,
    reading,
    settings::RAISE_GENERATION,
    transaction,
    types::{parse, parse_optional},
    writing,
};
use lyceum_model::{
    Role, Timestamp, User, UserId, Username,
    user::{self, canonical_name},
};

pub(super) const COLUMNS: &str =
    "id, source, name, display_name, unix_name, directory_unix_name, role, directory_role, disabled, expires_at, expired_at, dormant_at, absent_since, uid_number, password_hash,
     theme, created_at, last_seen_at";

/// The person whom an administrator gave this Unix account, or else who is called like it, by the directory or here.
pub(super) const OWNER_OF_ACCOUNT: &str = "SELECT id, name FROM users WHERE unix_name = $1
     OR (unix_name IS NULL AND (directory_unix_name = $1 OR name = $1))
     ORDER BY unix_name IS NULL, directory_unix_name IS NULL LIMIT 1";

/// No name takes more bytes, in whatever letters it is typed.
const MAX_TYPED_LENGTH: usize = 1024;

/// A user with what only the sign-in and the settings page read.
#[derive(Clone, Debug)]
pub struct Account {
    pub user: User,
    pub password_hash: Option<String>,
    /// `system`, `light` or `dark`.
    pub theme: String,
}

/// An account of this portal to be created.
#[derive(Clone, Debug)]
pub struct NewUser<'a> {
    pub name: &'a Username,
    pub display_name: &'a str,
    pub unix_name: Option<&'a str>,
    pub role: Role,
    pub sign_in: SignIn<'a>,
}

/// How the owner of a new account signs in.
#[derive(Clone, Copy, Debug)]
pub enum SignIn<'a> {
    /// With the password of this hash.
    Password(&'a str),
    /// Once a password is set.
    NotYet,
    /// Never: it is a service account, which uses tokens.
    Never,
}

impl<'a> SignIn<'a> {
    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Password(_) | Self::NotYet => user::LOCAL,
            Self::Never => user::SERVICE,
        }
    }

    pub(super) fn password_hash(self) -> Option<&'a str> {
        match self {
            Self::Password(hash) => Some(hash),
            Self::NotYet | Self::Never => None,
        }
    }
}

#[derive(FromRow)]
pub(super) struct Row {
    id: String,
    source: String,
    name: String,
    display_name: String,
    unix_name: Option<String>,
    directory_unix_name: Option<String>,
    role: String,
    directory_role: Option<String>,
    disabled: bool,
    expires_at: Option<i64>,
    expired_at: Option<i64>,
    dormant_at: Option<i64>,
    absent_since: Option<i64>,
    uid_number: Option<i64>,
    password_hash: Option<String>,
    theme: String,
    created_at: i64,
    last_seen_at: Option<i64>,
}

impl Row {
    pub(super) fn account(self) -> Result<Account> {
        let given_role: Role = parse(&self.role, "role")?;
        let directory_role = parse_optional(self.directory_role.as_deref(), "role")?.unwrap_or(Role::User);
        Ok(Account {
            user: User {
                id: parse(&self.id, "user id")?,
                name: Username::parse(&self.name).map_err(|_err| super::Error::Stored("user name"))?,
                display_name: self.display_name,
                source: self.source,
                unix_name: self.unix_name,
                directory_unix_name: self.directory_unix_name,
                role: given_role.max(directory_role),
                given_role,
                disabled: self.disabled,
                expires_at: self.expires_at.map(Timestamp),
                expired_at: self.expired_at.map(Timestamp),
                dormant_at: self.dormant_at.map(Timestamp),
                absent_since: self.absent_since.map(Timestamp),
                uid_number: self.uid_number.and_then(|uid| u32::try_from(uid).ok()),
                groups: Vec::new(),
                manages: Vec::new(),
                created_at: Timestamp(self.created_at),
                last_seen_at: self.last_seen_at.map(Timestamp),
            },
            password_hash: self.password_hash,
            theme: self.theme,
        })
    }
}

impl Db {
    /// Adds an account; [`super::Error::Unique`] when the name is taken.
    pub async fn add_user(&self, new: NewUser<'_>, by: ChangedBy<'_>) -> Result<UserId> {
        self.add_person(new, None, by).await
    }

    pub async fn find_user(&self, id: UserId) -> Result<Option<Account>> {
        let text = id.to_string();
        let sql = format!("SELECT {COLUMNS} FROM users WHERE id = $1");
        let row = reading!(self, pool => query_as::<_, Row>(sqlx::AssertSqlSafe(sql)).bind(&text).fetch_optional(pool).await)?;
        self.with_groups(row).await
    }

    /// The account of a name, however it was spelled.
    pub async fn find_user_by_name(&self, typed: &str) -> Result<Option<Account>> {
        // PostgreSQL refuses a text with NUL; nobody is called so, nor anything so long.
        if typed.contains('\0') || typed.len() > MAX_TYPED_LENGTH {
            return Ok(None);
        }
        let name = canonical_name(typed);
        let sql = format!("SELECT {COLUMNS} FROM users WHERE name = $1");
        let row = reading!(self, pool => query_as::<_, Row>(sqlx::AssertSqlSafe(sql)).bind(&name).fetch_optional(pool).await)?;
        self.with_groups(row).await
    }

    /// Whose workloads run as this Unix account, and what they are called.
    pub async fn owner_of_account(&self, unix_name: &str) -> Result<Option<(UserId, String)>> {
        let row: Option<(String, String)> = reading!(self, pool => query_as(OWNER_OF_ACCOUNT)
            .bind(unix_name).fetch_optional(pool).await)?;
        row.map(|(id, name)| Ok((parse(&id, "user id")?, name))).transpose()
    }

    async fn with_groups(&self, row: Option<Row>) -> Result<Option<Account>> {
        let Some(mut account) = row.map(Row::account).transpose()? else { return Ok(None) };
        account.user.groups = self.groups_of(account.user.id).await?;
        account.user.manages = self.managed_by(account.user.id).await?;
        Ok(Some(account))
    }

    /// Everybody, by name.
    pub async fn list_users(&self) -> Result<Vec<User>> {
        let sql = format!("SELECT {COLUMNS} FROM users");
        let mut users = reading!(self, pool => query_as::<_, Row>(sqlx::AssertSqlSafe(sql)).fetch_all(pool).await)?
            .into_iter()
            .map(|row| row.account().map(|account| account.user))
            .collect::<Result<Vec<_>>>()?;
        let mut groups = self.groups_of_everybody("group_members").await?;
        let mut managed = self.groups_of_everybody("group_managers").await?;
        for user in &mut users {
            user.groups = groups.remove(&user.id).unwrap_or_default();
            user.manages = managed.remove(&user.id).unwrap_or_default();
        }
        // Here, because PostgreSQL sorts text by the language that the database was made for.
        users.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(users)
    }

    /// Whether there is one user at most. Nobody counts ten thousand for that.
    pub async fn single_user_mode(&self) -> Result<bool> {
        let some = reading!(self, pool => query_scalar::<_, i64>("SELECT COUNT(*) FROM (SELECT 1 FROM users LIMIT 2) AS firsts")
            .fetch_one(pool).await)?;
        Ok(some <= 1)
    }

    pub async fn count_users(&self) -> Result<i64> {
        Ok(reading!(self, pool => query_scalar("SELECT COUNT(*) FROM users").fetch_one(pool).await)?)
    }

    /// Sets a new password, ends every login but `keep`, and removes the link to set one.
    pub async fn set_password(
        &self,
        id: UserId,
        hash: &str,
        keep: Option<lyceum_model::LoginId>,
        entry: &Entry<'_>,
    ) -> Result<()> {
        let (id, keep) = (id.to_string(), keep.map(|keep| keep.to_string()).unwrap_or_default());
        transaction!(self, tx => {
            query("UPDATE users SET password_hash = $2 WHERE id = $1").bind(&id).bind(hash).execute(&mut *tx).await?;
            query("DELETE FROM logins WHERE user_id = $1 AND id <> $2").bind(&id).bind(&keep).execute(&mut *tx).await?;
            query("DELETE FROM account_invitations WHERE user_id = $1").bind(&id).execute(&mut *tx).await?;
            query(RAISE_GENERATION).execute(&mut *tx).await?;
            append_audit(&mut *tx, entry).await?;
        });
        Ok(())
    }

    /// Disables or enables an account. Disabling ends its logins at once;
    /// [`super::Error::LastAdmin`] as in [`Db::change_user`].
    pub async fn set_disabled(&self, id: UserId, disabled: bool, by: ChangedBy<'_>) -> Result<bool> {
        self.change_user(id, &UserChange { disabled: Some(disabled), ..UserChange::default() }, by).await
    }

    pub async fn set_theme(&self, id: UserId, theme: &str) -> Result<()> {
        let id = id.to_string();
        writing!(self, pool => query("UPDATE users SET theme = $2 WHERE id = $1").bind(&id).bind(theme).execute(pool).await.map(drop))?;
        Ok(())
    }
}

/// Used where a user's id may be absent.
pub(super) fn user_id(text: Option<&str>) -> Result<Option<UserId>> {
    parse_optional(text, "user id")
}
