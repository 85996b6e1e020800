//! `lyceum admin …`: users, tokens, quotas and backups from the command line, on the
//! database itself, also while the portal runs. Whoever may write the database may do this;
//! root becomes the database's owner first, so that no file of root's is left in there.

mod quota;

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;

use self::quota::QuotaVerb;
use crate::{
    auth::{passwords, tokens},
    config::Config,
    db::{Db, audit::Entry, chain::Walk, people::UserChange, users::NewUser},
    helper::identity::Identity,
    model::{Clock, Role, User, Username, time::parse_duration},
    start::Paths,
};

#[derive(Subcommand)]
pub enum Verb {
    /// Local accounts.
    #[command(subcommand)]
    User(UserVerb),
    /// API tokens.
    #[command(subcommand)]
    Token(TokenVerb),
    /// Limits: of everybody, of a group, of one person, of all together.
    #[command(subcommand)]
    Quota(QuotaVerb),
    /// The audit log.
    #[command(subcommand)]
    Audit(AuditVerb),
    /// Write a copy of the database to a file that does not exist yet.
    Backup { file: PathBuf },
    /// Put a copy in the database's place; the portal must not run.
    Restore { file: PathBuf },
    /// Bring the database to this version's schema, as `serve` does when it starts.
    Migrate,
}

#[derive(Subcommand)]
pub enum UserVerb {
    /// Make an account.
    Add {
        name: String,
        /// An administrator.
        #[arg(long)]
        admin: bool,
        /// The Unix account that their workloads run as; else one is made on first need.
        #[arg(long, value_name = "U")]
        unix_name: Option<String>,
        #[arg(long, value_name = "NAME")]
        display_name: Option<String>,
        /// Read the password from standard input; else the account cannot sign in yet.
        #[arg(long)]
        password_stdin: bool,
    },
    List {
        #[arg(long)]
        json: bool,
    },
    /// Cut all access at once.
    Disable {
        name: String,
    },
    Enable {
        name: String,
    },
    /// Give a role: user, operator or admin.
    Role {
        name: String,
        role: Role,
    },
    /// Give an account to whoever the directory (or the reverse proxy) calls so, with all that it has.
    Link {
        name: String,
    },
    /// Set a password.
    Password {
        name: String,
        #[arg(long, required = true)]
        password_stdin: bool,
    },
}

#[derive(Subcommand)]
pub enum TokenVerb {
    /// Make a token and print its secret, alone, on standard output.
    Create {
        #[arg(long, value_name = "NAME")]
        user: String,
        /// What it may do, with commas; else all that its owner may.
        #[arg(long, value_delimiter = ',')]
        scopes: Vec<String>,
        #[arg(long, default_value = "30d")]
        expires: String,
        #[arg(long, default_value = "made on the command line")]
        name: String,
    },
}

#[derive(Subcommand)]
pub enum AuditVerb {
    /// Walk the chain of hashes and name the first row that is not as it was written.
    Verify,
}

/// Runs one command.
pub fn run(verb: Verb, config: &Config, paths: &Paths) -> Result<ExitCode> {
    let owner = owner(&paths.private)?;
    // Whoever typed it, before root becomes somebody else.
    let by = actor();
    // What the caller names is opened with the caller's rights, before they are given up.
    let file = match &verb {
        Verb::Backup { file } => Some(new_file(file, owner)?),
        Verb::Restore { file } => Some(File::open(file).with_context(|| format!("reading {}", file.display()))?),
        _ => None,
    };
    become_owner(owner)?;
    let file = match (&verb, file) {
        (Verb::Restore { .. }, Some(file)) => {
            restore(file, config, paths)?;
            return Ok(ExitCode::SUCCESS);
        }
        (_, file) => file,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let db = Db::open(&config.database, &paths.private).await?;
        let done = match verb {
            Verb::User(verb) => user(&db, verb, config.auth.source(), &by).await,
            Verb::Token(verb) => token(&db, verb, &by).await,
            Verb::Quota(verb) => quota::quota(&db, verb, &by).await,
            Verb::Audit(AuditVerb::Verify) => verify_audit(&db).await,
            Verb::Backup { .. } => match file {
                Some(file) => backup(&db, file, &paths.private).await,
                None => Ok(()),
            },
            Verb::Restore { .. } | Verb::Migrate => Ok(()),
        };
        db.close().await;
        done
    })?;
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "its output is what a command is for")]
async fn user(db: &Db, verb: UserVerb, source: &str, by: &str) -> Result<()> {
    let clock = Clock::System;
    let (name, action) = match verb {
        UserVerb::Add { name, admin, unix_name, display_name, password_stdin } => {
            let parsed = Username::parse(&name)?;
            if let Some(unix_name) = &unix_name {
                Identity::look_up(unix_name).map_err(|err| anyhow::anyhow!("--unix-name: {}", err.sentence()))?;
            }
            let hash = if password_stdin { Some(passwords::hash(&read_password()?).await?) } else { None };
            let new = NewUser {
                name: &parsed,
                display_name: display_name.as_deref().unwrap_or(&name),
                unix_name: unix_name.as_deref(),
                role: if admin { Role::Admin } else { Role::User },
                password_hash: hash.as_deref(),
            };
            match db.add_user(new, clock.now()).await {
                Err(crate::db::Error::Unique) => bail!("there is a user `{name}` already"),
                added => added?,
            };
            (name, "user.add")
        }
        UserVerb::List { json } => {
            let users = db.list_users().await?;
            if json {
                println!("{}", serde_json::to_string_pretty(&users)?);
            } else {
                println!("{:<20} {:<7} {:<10} {:<9} {:<16} SEEN", "NAME", "FROM", "ROLE", "STATE", "UNIX");
                for user in users {
                    let state = user.state().as_str();
                    let seen = user.last_seen_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
                    let unix = user.unix_name.as_deref().unwrap_or("-");
                    let (name, role) = (user.name.as_str(), user.role.as_str());
                    println!("{name:<20} {:<7} {role:<10} {state:<9} {unix:<16} {seen}", user.source);
                }
            }
            return Ok(());
        }
        UserVerb::Disable { name } => {
            db.set_disabled(find(db, &name).await?.id, true).await?;
            (name, "user.disable")
        }
        UserVerb::Enable { name } => {
            db.set_disabled(find(db, &name).await?.id, false).await?;
            (name, "user.enable")
        }
        UserVerb::Role { name, role } => {
            let user = find(db, &name).await?;
            let by_directory = user.has_directorys_role() && role < user.role;
            ensure!(
                !by_directory,
                "a group of the directory makes `{name}` {}: only there can it be taken back",
                user.role.as_str()
            );
            db.change_user(user.id, &UserChange { role: Some(role), ..UserChange::default() }).await?;
            let detail = format!("{} → {}", user.given_role.as_str(), role.as_str());
            db.add_audit(clock.now(), by, "user.role", &name, &detail).await?;
            return Ok(());
        }
        UserVerb::Link { name } => {
            let user = find(db, &name).await?;
            db.link_user(&user.name, source).await?;
            (name, "user.link")
        }
        UserVerb::Password { name, .. } => {
            let user = find(db, &name).await?;
            ensure!(user.is_local(), "the password of `{name}` is kept by the directory: change it there");
            let hash = passwords::hash(&read_password()?).await?;
            let subject = user.name.as_str();
            let entry = Entry { at: clock.now(), actor: by, action: "password.change", subject, detail: "" };
            db.set_password(user.id, &hash, None, &entry).await?;
            return Ok(());
        }
    };
    db.add_audit(clock.now(), by, action, &name, "").await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the secret alone goes to standard output")]
async fn token(db: &Db, verb: TokenVerb, by: &str) -> Result<()> {
    let TokenVerb::Create { user, scopes, expires, name } = verb;
    let user = find(db, &user).await?;
    let seconds = parse_duration(&expires).context("--expires is a duration like 30d, 12h")?;
    let new = tokens::NewToken { name, scopes, expires_in_seconds: Some(seconds) };
    let (_, secret) = tokens::make(db, &user, new, Clock::System.now(), by).await?;
    println!("{secret}");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "its output is what a command is for")]
async fn verify_audit(db: &Db) -> Result<()> {
    match db.verify_audit().await? {
        Walk::Whole { rows, last, hash } => {
            println!("{rows} rows, whole up to number {last}, whose hash is {hash}");
            Ok(())
        }
        Walk::Broken { number, why } => bail!("the audit log is broken at number {number}: {why}"),
    }
}

/// SQLite writes the copy where it may; from there it goes to the caller's file.
async fn backup(db: &Db, mut file: File, private: &Path) -> Result<()> {
    ensure!(
        matches!(db, Db::Sqlite { .. }),
        "the database is PostgreSQL: back it up with pg_dump, which knows it better"
    );
    let draft = private.join(format!("backup-{}.db", std::process::id()));
    let written = db.copy_to(&draft).await;
    let copied = written.map_err(anyhow::Error::from).and_then(|()| {
        std::io::copy(&mut File::open(&draft)?, &mut file)?;
        Ok(file.sync_all()?)
    });
    let _ = std::fs::remove_file(&draft);
    copied.context("writing the backup")
}

fn restore(mut copy: File, config: &Config, paths: &Paths) -> Result<()> {
    let target = config.database.file(&paths.private)?.context("the database is PostgreSQL: restore it with psql")?;
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(paths.private.join("serve.lock"))?;
    if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("the portal is running; stop it first");
    }
    let draft = target.with_extension("restored");
    let mut head = [0; 16];
    copy.read_exact(&mut head).context("reading the copy")?;
    ensure!(head == *b"SQLite format 3\0", "this file is no copy of a Lyceum database");
    let mut restored = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    restored.write_all(&head)?;
    std::io::copy(&mut copy, &mut restored).context("copying")?;
    restored.sync_all()?;
    for suffix in ["-wal", "-shm"] {
        let mut leftover = target.as_os_str().to_owned();
        leftover.push(suffix);
        let _ = std::fs::remove_file(leftover);
    }
    std::fs::rename(&draft, &target)?;
    Ok(())
}

async fn find(db: &Db, name: &str) -> Result<User> {
    Ok(db.find_user_by_name(name).await?.with_context(|| format!("there is no user `{name}`"))?.user)
}

fn read_password() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().take(4096).read_to_string(&mut text).context("reading the password from standard input")?;
    let password = text.trim_end_matches(['\n', '\r']);
    passwords::check(password)?;
    Ok(password.to_owned())
}

/// Who did it, for the audit log.
fn actor() -> String {
    let uid = nix::unistd::getuid();
    let name = nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
    format!("unix:{name}")
}

/// Whose the private directory is.
fn owner(private: &Path) -> Result<u32> {
    let facts = std::fs::metadata(private)
        .with_context(|| format!("{} is not there: start the portal once, or say --data DIR", private.display()))?;
    Ok(facts.uid())
}

/// An empty file that the database's owner may fill.
fn new_file(path: &Path, owner: u32) -> Result<File> {
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("making {} (a backup never overwrites a file)", path.display()))?;
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::fchown(&file, Some(owner), None)?;
    }
    Ok(file)
}

/// Root becomes whoever owns the private directory.
fn become_owner(owner: u32) -> Result<()> {
    if owner == 0 || !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let user = nix::unistd::User::from_uid(owner.into())?.with_context(|| format!("uid {owner} has no name"))?;
    let identity = Identity::facts(&user.name).map_err(|err| anyhow::anyhow!(err.sentence()))?;
    identity.become_for_good().map_err(|err| anyhow::anyhow!(err.sentence()))
}
