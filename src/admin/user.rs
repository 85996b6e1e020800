//! `lyceum admin user …`: the accounts. What a person's page refuses, as taking back what a
//! directory gives, is refused here too; that the last administrator stays is the database's rule.

use anyhow::{Result, bail, ensure};
use clap::Subcommand;

use super::{Out, find, read_password};
use crate::{
    auth::{passwords, people},
    db::{
        self, Db,
        audit::ChangedBy,
        people::UserChange,
        users::{NewUser, SignIn},
    },
    helper::identity::Identity,
    model::{Role, Username},
};

#[derive(Subcommand)]
pub enum UserVerb {
    /// Create a local account.
    Add {
        name: String,
        /// Create an administrator.
        #[arg(long)]
        admin: bool,
        /// The Unix account that their workloads run as; by default, one is created when it is needed.
        #[arg(long, value_name = "U")]
        unix_name: Option<String>,
        #[arg(long, value_name = "NAME")]
        display_name: Option<String>,
        /// Read the password from standard input; without a password the account cannot sign in yet.
        #[arg(long)]
        password_stdin: bool,
        /// Create a service account: it cannot sign in, and uses tokens.
        #[arg(long, conflicts_with = "password_stdin")]
        service: bool,
    },
    List {
        #[arg(long)]
        json: bool,
    },
    /// Disable an account and end all its access immediately.
    Disable { name: String },
    /// Enable an account. One that has expired needs a later end first.
    Enable { name: String },
    /// Set when an account expires: it is disabled then, and its sessions and jobs are stopped.
    Expire {
        name: String,
        /// A date or time in UTC (2030-01-31, 2030-01-31T12:00), a time from now (30d), now, or never.
        #[arg(long, value_name = "TIME")]
        until: String,
    },
    /// Set the role of an account: user, operator or admin.
    Role { name: String, role: Role },
    /// Link an account, with all that belongs to it, to the user of this name in the directory (or from the reverse
    /// proxy).
    Link { name: String },
    /// Set the password of a local account.
    Password {
        name: String,
        #[arg(long, required = true)]
        password_stdin: bool,
    },
}

/// `source` is where people come from whom [`UserVerb::Link`] hands an account to.
pub(super) async fn user(db: &Db, verb: UserVerb, source: &str, by: ChangedBy<'_>, out: Out<'_>) -> Result<()> {
    match verb {
        UserVerb::Add { name, admin, unix_name, display_name, password_stdin, service } => {
            // With a Unix account of its own nothing is made for it.
            let parsed = if unix_name.is_some() { Username::parse(&name)? } else { Username::for_made_account(&name)? };
            if let Some(unix_name) = &unix_name {
                Identity::look_up(unix_name).map_err(|err| anyhow::anyhow!("--unix-name: {}", err.sentence()))?;
            }
            let hash = if password_stdin { Some(passwords::hash(&read_password()?).await?) } else { None };
            let new = NewUser {
                name: &parsed,
                display_name: &people::display_name(display_name.as_deref().unwrap_or(&name))?,
                unix_name: unix_name.as_deref(),
                role: if admin { Role::Admin } else { Role::User },
                sign_in: match &hash {
                    Some(hash) => SignIn::Password(hash),
                    None if service => SignIn::Never,
                    None => SignIn::NotYet,
                },
            };
            match db.add_user(new, by).await {
                Err(db::Error::Unique) => bail!("a user `{name}` already exists"),
                added => added?,
            };
        }
        UserVerb::List { json } => list(db, json, out).await?,
        UserVerb::Disable { name } => {
            db.set_disabled(find(db, &name).await?.id, true, by).await?;
        }
        UserVerb::Enable { name } => {
            db.set_disabled(find(db, &name).await?.id, false, by).await?;
        }
        UserVerb::Expire { name, until } => {
            // The portal ends accounts at a moment to come.
            let until = if until.trim() == "now" { "1s" } else { until.as_str() };
            let (user, expires_at) = (find(db, &name).await?, super::expiry(until, by.at)?);
            if let Some(fault) = expires_at.fault(user.expires_at, by.at) {
                bail!("--until: {fault}");
            }
            db.change_user(user.id, &UserChange { expires_at, ..UserChange::default() }, by).await?;
        }
        UserVerb::Role { name, role } => {
            let user = find(db, &name).await?;
            let by_directory = user.has_directorys_role() && role < user.role;
            ensure!(
                !by_directory,
                "`{name}` is {} because of a group in the directory; change it there",
                user.role.as_str()
            );
            db.change_user(user.id, &UserChange { role: Some(role), ..UserChange::default() }, by).await?;
        }
        UserVerb::Link { name } => {
            let linked = db.link_user(&find(db, &name).await?.name, source, by).await?;
            ensure!(linked, "`{name}` is a service account, which cannot belong to a user of the directory");
        }
        UserVerb::Password { name, .. } => {
            let user = find(db, &name).await?;
            ensure!(!user.is_service(), "`{name}` is a service account and cannot sign in; create a token instead");
            ensure!(user.is_local(), "the password of `{name}` is managed by the directory; change it there");
            let hash = passwords::hash(&read_password()?).await?;
            let change = UserChange { password_hash: Some(&hash), ..UserChange::default() };
            db.change_user(user.id, &change, by).await?;
        }
    }
    Ok(())
}

async fn list(db: &Db, json: bool, out: Out<'_>) -> Result<()> {
    let users = db.list_users().await?;
    if json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&users)?)?);
    }
    writeln!(
        out,
        "{:<20} {:<7} {:<10} {:<9} {:<16} {:<20} SEEN",
        "NAME", "SOURCE", "ROLE", "STATE", "UNIX", "EXPIRES"
    )?;
    for user in users {
        let state = user.state().as_str();
        let seen = user.last_seen_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
        let expires = user.expires_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
        let unix = user.unix_name.as_deref().unwrap_or("-");
        let (name, role) = (user.name.as_str(), user.role.as_str());
        writeln!(out, "{name:<20} {:<7} {role:<10} {state:<9} {unix:<16} {expires:<20} {seen}", user.source)?;
    }
    Ok(())
}
