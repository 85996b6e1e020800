//! `lyceum admin …`: users, groups, tokens, quotas, announcements, maintenance and backups from
//! the command line, on the database itself, also while the portal runs. Whoever may write the
//! database may do this; root becomes the database's owner first, so that no file of root's is
//! left in there.

mod announcements;
mod group;
mod quota;
mod user;

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;

use self::{
    announcements::{AnnounceVerb, MaintenanceVerb},
    group::GroupVerb,
    quota::QuotaVerb,
    user::UserVerb,
};
use crate::{
    auth::{keys, passwords, tokens},
    config::Config,
    db::{Db, audit::ChangedBy, chain::ChainCheck},
    helper::identity::Identity,
    model::{
        Clock, Timestamp, User,
        time::{parse_day_or_moment, parse_duration},
        user::ExpiryChange,
    },
    start::{Paths, lock::Lock},
};

#[derive(Subcommand)]
pub enum Verb {
    /// Manage local accounts.
    #[command(subcommand)]
    User(UserVerb),
    /// Manage local groups, and the managers of any group.
    #[command(subcommand)]
    Group(GroupVerb),
    /// Manage API tokens.
    #[command(subcommand)]
    Token(TokenVerb),
    /// Manage limits: defaults, for groups, for users and for the whole cluster.
    #[command(subcommand)]
    Quota(QuotaVerb),
    /// Manage maintenance. No sessions start during maintenance.
    #[command(subcommand)]
    Maintenance(MaintenanceVerb),
    /// Manage announcements to all users.
    #[command(subcommand)]
    Announce(AnnounceVerb),
    /// Verify the audit log.
    #[command(subcommand)]
    Audit(AuditVerb),
    /// Back up the database to a new file.
    Backup { file: PathBuf },
    /// Restore the database from a backup. The portal must be stopped.
    Restore { file: PathBuf },
    /// Migrate the database to the schema of this version, as `serve` does at start.
    Migrate,
}

#[derive(Subcommand)]
pub enum TokenVerb {
    /// Create a token and print only its secret to standard output.
    Create {
        #[arg(long, value_name = "NAME")]
        user: String,
        /// The scopes, separated by commas; by default full access.
        #[arg(long, value_delimiter = ',')]
        scopes: Vec<String>,
        #[arg(long, default_value = "30d")]
        expires: String,
        #[arg(long, default_value = "created on the command line")]
        name: String,
    },
}

#[derive(Subcommand)]
pub enum AuditVerb {
    /// Verify the chain of hashes and report the first entry that was changed.
    Verify,
}

/// Reads the end of something as it is typed after `--until`.
fn expiry(text: &str, now: Timestamp) -> Result<ExpiryChange> {
    let text = text.trim();
    if text == "never" {
        return Ok(ExpiryChange::Never);
    }
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    let later = parse_duration(text).filter(|_| !is_bare).map(|seconds| now.plus_seconds(seconds));
    parse_day_or_moment(text).or(later).map(ExpiryChange::At).with_context(|| {
        format!(
            "--until: `{text}` is not a date or time in UTC (2030-01-31, 2030-01-31T12:00), a time from now (30d, \
             12h), or `never`"
        )
    })
}

/// Where a command writes what it has to say.
type Out<'a> = &'a mut dyn Write;

/// Runs one command, which writes to `out`. A reader that has gone is an [`std::io::Error`].
pub fn run(verb: Verb, config: &Config, paths: &Paths, out: Out<'_>) -> Result<ExitCode> {
    let owner = owner(&paths.private)?;
    // Whoever typed it, before root becomes somebody else.
    let actor = actor();
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
        let db = Db::open_known(&config.database, &paths.private, &keys::path(&paths.private)).await?;
        let by = ChangedBy { actor: &actor, at: Clock::System.now() };
        let done = match verb {
            Verb::User(verb) => user::user(&db, verb, config.auth.source(), by, out).await,
            Verb::Group(verb) => group::group(&db, verb, by, out).await,
            Verb::Token(verb) => token(&db, verb, by, out).await,
            Verb::Quota(verb) => quota::quota(&quota::rules(config, &db)?, verb, by, out).await,
            Verb::Maintenance(verb) => announcements::maintenance(&db, verb, by, out).await,
            Verb::Announce(verb) => announcements::announce(&db, verb, by, out).await,
            Verb::Audit(AuditVerb::Verify) => verify_audit(&db, out).await,
            Verb::Backup { .. } => match file {
                Some(file) => backup(&db, file, &paths.private, by).await,
                None => Ok(()),
            },
            Verb::Restore { .. } | Verb::Migrate => Ok(()),
        };
        db.close().await;
        done
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn token(db: &Db, verb: TokenVerb, by: ChangedBy<'_>, out: Out<'_>) -> Result<()> {
    let TokenVerb::Create { user, scopes, expires, name } = verb;
    let user = find(db, &user).await?;
    let seconds = parse_duration(&expires).context("--expires must be a duration like 30d or 12h")?;
    let new = tokens::NewToken { name, scopes, expires_in_seconds: Some(seconds) };
    let (_, secret) = tokens::make(db, &user, new, by).await?;
    Ok(writeln!(out, "{secret}")?)
}

async fn verify_audit(db: &Db, out: Out<'_>) -> Result<()> {
    match db.verify_audit().await? {
        ChainCheck::Whole { rows, last, hash } => {
            Ok(writeln!(out, "{rows} entries, intact up to number {last} with hash {hash}")?)
        }
        ChainCheck::Broken { number, why } => bail!("the audit log is damaged at number {number}: {why}"),
    }
}

/// SQLite writes the copy where it may; from there it goes to the caller's file.
async fn backup(db: &Db, mut file: File, private: &Path, by: ChangedBy<'_>) -> Result<()> {
    ensure!(matches!(db, Db::Sqlite { .. }), "the database is PostgreSQL: back it up with pg_dump");
    let draft = private.join(format!("backup-{}.db", std::process::id()));
    let written = db.copy_to(&draft).await;
    let copied = written.map_err(anyhow::Error::from).and_then(|()| {
        std::io::copy(&mut File::open(&draft)?, &mut file)?;
        Ok(file.sync_all()?)
    });
    let _ = std::fs::remove_file(&draft);
    copied.context("writing the backup")?;
    // The health page says how old the last copy is.
    Ok(db.note_backup(ChangedBy { at: Clock::System.now(), ..by }).await?)
}

fn restore(mut copy: File, config: &Config, paths: &Paths) -> Result<()> {
    let target = config.database.file(&paths.private)?.context("the database is PostgreSQL: restore it with psql")?;
    let _lock = Lock::take(&paths.private)?.context("the portal is running; stop it first")?;
    let draft = target.with_extension("restored");
    let mut head = [0; 16];
    copy.read_exact(&mut head).context("reading the backup")?;
    ensure!(head == *b"SQLite format 3\0", "this file is not a backup of a Lyceum database");
    let mut restored = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    restored.write_all(&head)?;
    std::io::copy(&mut copy, &mut restored).context("copying the backup")?;
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
        .with_context(|| format!("{} does not exist: start the portal once, or use --data DIR", private.display()))?;
    Ok(facts.uid())
}

/// An empty file that the database's owner may fill.
fn new_file(path: &Path, owner: u32) -> Result<File> {
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("creating {} (a backup does not overwrite an existing file)", path.display()))?;
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
