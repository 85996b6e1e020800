//! The audit log: who did what to what, from where, in order. Rows are appended in the same
//! transaction as the change that they tell of, which holds the one write lock, so that the
//! chain of hashes never forks; nothing here changes a row. `db/chain.rs` walks the chain.

use sha2::{Digest, Sha256};
use sqlx::{FromRow, query_as, query_scalar};
use tokio::task_local;

use super::{Db, Result, events, reading, transaction, tx::Tx};
use lyceum_model::Timestamp;

/// What is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub at: Timestamp,
    /// A user's name, `unix:NAME` for the command line, or the part of the portal that acts.
    pub actor: &'a str,
    pub action: &'a str,
    /// What it is done to: a user's name, or the id of a session or token.
    pub subject: &'a str,
    pub detail: &'a str,
}

/// Who does something, and when. What they did is told by the function that does it.
#[derive(Clone, Copy, Debug)]
pub struct ChangedBy<'a> {
    /// As in [`Entry`].
    pub actor: &'a str,
    pub at: Timestamp,
}

impl<'a> ChangedBy<'a> {
    /// Returns the row of the audit log for what was done.
    pub fn did(self, action: &'a str, subject: &'a str, detail: &'a str) -> Entry<'a> {
        Entry { at: self.at, actor: self.actor, action, subject, detail }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    pub number: i64,
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub detail: String,
    /// Of the request that asked for it; both are empty where none did.
    pub address: String,
    pub request_id: String,
    /// See [`Audit::digest`].
    pub hash: String,
}

/// Every action that there is.
pub const ACTIONS: &[&str] = &[
    "sign_in",
    "sign_in.failed",
    "sign_out",
    "sign_out.everywhere",
    "password.change",
    "token.make",
    "token.rotate",
    "token.revoke",
    "session.start",
    "session.ask",
    "session.extend",
    "session.stop",
    "session.admin_stop",
    "job.submit",
    "job.resume",
    "job.retry",
    "notifications.change",
    "queue.pause",
    "queue.resume",
    "queue.cancel",
    "sweep.submit",
    "sweep.pause",
    "sweep.resume",
    "sweep.stop",
    "sweep.delete",
    "job.cancel",
    "job.admin_cancel",
    "job.delete",
    "job.restore",
    "quota.change",
    "slurm.limits",
    "access.lost",
    "user.add",
    "user.display_name",
    "user.role",
    "user.disable",
    "user.enable",
    "user.expiry",
    "user.expire",
    "user.dormant",
    "user.password",
    "user.password_link",
    "user.sign_out",
    "user.link",
    "user.hand_over",
    "user.remove",
    "group.add",
    "group.rename",
    "group.remove",
    "group.member_add",
    "group.member_remove",
    "group.invite",
    "group.invitation_withdraw",
    "group.invitation_accept",
    "group.invitation_decline",
    "group.leave",
    "group.manager_add",
    "group.manager_remove",
    "group.gone",
    "group.back",
    "packages.reset",
    "run.add",
    "run.change",
    "run.remove",
    "run.restore",
    "trash.empty",
    "dataset.make",
    "dataset.hand_over",
    "dataset.remove",
    "model.train",
    "model.import",
    "model.measure",
    "model.hand_over",
    "model.remove",
    "diagnostics.start",
    "gpu.hold",
    "gpu.release",
    "node.drain",
    "node.resume",
    "image.add",
    "image.clean",
    "preset.add",
    "preset.change",
    "preset.remove",
    "environment.add",
    "environment.change",
    "environment.remove",
    "profile.add",
    "profile.change",
    "profile.remove",
    "registry_credentials.set",
    "registry_credentials.remove",
    "image.pull",
    "image.remove",
    "announcement.make",
    "announcement.change",
    "announcement.remove",
    "maintenance.on",
    "maintenance.change",
    "maintenance.off",
    "database.backup",
    "server.insecure_http",
    "webhook.add",
    "webhook.change",
    "webhook.remove",
    "audit.prune",
];

/// Which rows to list, the latest first. An empty text asks for nothing, any other for what is
/// called so, in capitals or not; where no row is, for what begins so.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub address: String,
    pub from: Option<Timestamp>,
    /// Rows of this moment are no longer meant.
    pub to: Option<Timestamp>,
    /// The last row of the page before: its moment and number.
    pub before: Option<(Timestamp, i64)>,
    pub limit: i64,
}

/// Where a request comes from, for the rows that are written while it is answered.
#[derive(Clone, Debug)]
pub struct Origin {
    pub address: String,
    pub request_id: String,
}

task_local! {
    static ORIGIN: Origin;
}

impl Origin {
    /// Answers a request: rows that are written meanwhile, by whatever service, tell its
    /// address and id.
    pub async fn scope<F: Future>(self, answer: F) -> F::Output {
        ORIGIN.scope(self, answer).await
    }
}

/// At most so many characters of a detail are kept.
const MAX_DETAIL_LENGTH: usize = 2000;

pub(super) const COLUMNS: &str = "number, at, actor, action, subject, detail, address, request_id, hash FROM audit";

pub(super) const LAST: &str = "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1";

pub(super) const APPEND: &str =
    "INSERT INTO audit (number, at, actor, action, subject, detail, address, request_id, hash)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// Appends an [`Entry`] inside a `transaction!`; there only, because its lock keeps the chain whole.
pub(super) async fn append_audit(tx: impl Into<Tx<'_>>, entry: &Entry<'_>) -> Result<()> {
    let mut tx = tx.into();
    let row = Audit::after(tx.query(LAST).first().await?, entry);
    tx.query(APPEND)
        .bind(row.number)
        .bind(row.at.0)
        .bind(&row.actor)
        .bind(&row.action)
        .bind(&row.subject)
        .bind(&row.detail)
        .bind(&row.address)
        .bind(&row.request_id)
        .bind(&row.hash)
        .execute()
        .await?;
    events::add(tx, &row).await
}

#[derive(FromRow)]
pub(super) struct Row {
    number: i64,
    at: i64,
    actor: String,
    action: String,
    subject: String,
    detail: String,
    address: String,
    request_id: String,
    hash: String,
}

impl Row {
    pub(super) fn audit(self) -> Audit {
        let Self { number, at, actor, action, subject, detail, address, request_id, hash } = self;
        Audit { number, at: Timestamp(at), actor, action, subject, detail, address, request_id, hash }
    }
}

impl Audit {
    /// The row for `entry` behind the one of this number and hash.
    pub(super) fn after(last: Option<(i64, String)>, entry: &Entry<'_>) -> Self {
        let (number, previous) = last.unwrap_or_default();
        // PostgreSQL takes no NUL, and what a row says must not depend on the database.
        let kept = |text: &str| text.replace('\0', "\u{fffd}").chars().take(MAX_DETAIL_LENGTH).collect::<String>();
        let origin = ORIGIN.try_with(Clone::clone).ok();
        let (address, request_id) = origin.map(|origin| (origin.address, origin.request_id)).unwrap_or_default();
        let mut row = Self {
            number: number + 1,
            at: entry.at,
            actor: kept(entry.actor),
            action: kept(entry.action),
            subject: kept(entry.subject),
            detail: kept(entry.detail),
            address,
            request_id,
            hash: String::new(),
        };
        row.hash = row.digest(&previous);
        row
    }

    /// What its hash must be behind a row of the hash `previous` (empty for the first one):
    /// SHA-256, in hexadecimal, of the JSON array without spaces of that hash, the number, the
    /// moment in milliseconds, actor, action, subject, detail, address and request id.
    pub fn digest(&self, previous: &str) -> String {
        let fields = (
            previous,
            self.number,
            self.at.0,
            &self.actor,
            &self.action,
            &self.subject,
            &self.detail,
            &self.address,
            &self.request_id,
        );
        hex::encode(Sha256::digest(super::Json::write(&fields)))
    }
}

/// A text that is asked for: its column, its place in the statement, and how many rows have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub column: &'static str,
    pub place: &'static str,
    /// Whether rows have it as a whole; otherwise they begin with it.
    pub is_whole: bool,
    /// At most one more than [`FEW`].
    pub rows: i64,
}

/// Number of rows that can be read and sorted without a noticeable delay.
const FEW: i64 = 2_000;

/// Sorts after every letter, in the order of bytes.
const LAST_LETTER: char = '\u{10ffff}';

/// What is asked for: column, place in the statement, text. The first tells rows apart best.
fn asked(filter: &Filter) -> [(&'static str, &'static str, &str); 4] {
    [
        ("subject", "$3", filter.subject.as_str()),
        ("actor", "$1", filter.actor.as_str()),
        ("address", "$4", filter.address.as_str()),
        ("action", "$2", filter.action.as_str()),
    ]
}

/// The order of the indexes: that of bytes, because the order of a language has no range that is a beginning.
fn bytes(db: &Db) -> &'static str {
    match db {
        Db::Sqlite { .. } => "",
        Db::Postgres { .. } => " COLLATE \"C\"",
    }
}

/// The condition that a text has another one as a whole, or begins with it.
fn is(text: &str, place: &str, is_whole: bool) -> String {
    if is_whole {
        format!("{text} = lower({place})")
    } else {
        format!("{text} >= lower({place}) AND {text} < lower({place}) || '{LAST_LETTER}'")
    }
}

/// Counts the rows that have `$1` as a whole in this column or begin with it, up to one more than [`FEW`].
pub(super) fn count(db: &Db, column: &str, is_whole: bool) -> String {
    let text = format!("lower({column}){}", bytes(db));
    let condition = is(&text, "$1", is_whole);
    // The order is that of the index: PostgreSQL might otherwise go through the table until it has found as many.
    // A text that is the same in all rows is left out of it: SQLite would sort them.
    let order = if is_whole { String::new() } else { format!("{text}, ") };
    format!(
        "SELECT COUNT(*) FROM (SELECT 1 FROM audit WHERE {condition} ORDER BY {order}at, number LIMIT {}) AS found",
        FEW + 1
    )
}

/// Builds the statement that lists: `$1` actor, `$2` action, `$3` subject, `$4` address, `$5` and `$6` the
/// moments from and to, `$7` and `$8` moment and number of the row before, `$9` how many.
///
/// One text alone is looked up by its index, since a planner without statistics might take another: the rarest, if
/// few rows have it, or else one that rows have as a whole. Where many rows begin with what is asked for, the latest
/// are gone through.
pub(super) fn list(db: &Db, filter: &Filter, wanted: &[Wanted]) -> String {
    let rarest = wanted.iter().min_by_key(|one| one.rows).filter(|one| one.rows <= FEW);
    let by = rarest.or_else(|| wanted.iter().find(|one| one.is_whole)).map(|one| one.column);
    let mut conditions: Vec<String> = wanted
        .iter()
        .map(|one| {
            let text = format!("lower({})", one.column);
            // Without its index it is an expression like any other.
            let text = if by == Some(one.column) { text } else { format!("({text} || '')") };
            is(&format!("{text}{}", bytes(db)), one.place, one.is_whole)
        })
        .collect();
    let unasked = asked(filter).into_iter().filter(|(column, ..)| wanted.iter().all(|one| one.column != *column));
    conditions.extend(unasked.map(|(_, place, _)| format!("{place} = ''")));
    let conditions = conditions.join(" AND ");
    // What begins alike is not in the order of time: it is sorted, and not looked for along the whole log.
    let plus = if rarest.is_some_and(|one| !one.is_whole) { "+" } else { "" };
    // A bare `$8` has no type of its own for PostgreSQL to go by; beside the column it has.
    format!(
        "SELECT {COLUMNS} WHERE {conditions} AND {plus}at >= $5 AND {plus}at < $6 AND ({plus}at, number) < ($7, $8)
         ORDER BY {plus}at DESC, {plus}number DESC LIMIT $9"
    )
}

impl Db {
    /// Appends a row for something that no other row of ours holds.
    pub async fn add_audit(&self, at: Timestamp, actor: &str, action: &str, subject: &str, detail: &str) -> Result<()> {
        let entry = Entry { at, actor, action, subject, detail };
        transaction!(self, tx => append_audit(&mut *tx, &entry).await?);
        Ok(())
    }

    /// The rows that were written last, newest first.
    pub async fn list_audit(&self, limit: i64) -> Result<Vec<Audit>> {
        let sql = format!("SELECT {COLUMNS} ORDER BY number DESC LIMIT $1");
        let rows: Vec<Row> =
            reading!(self, pool => query_as(sqlx::AssertSqlSafe(sql)).bind(limit).fetch_all(pool).await)?;
        Ok(rows.into_iter().map(Row::audit).collect())
    }

    pub async fn find_audit(&self, filter: &Filter) -> Result<Vec<Audit>> {
        let asked = asked(filter);
        // PostgreSQL refuses such a text, and no row holds it.
        if asked.iter().any(|(_, _, text)| text.contains('\0')) {
            return Ok(Vec::new());
        }
        let mut wanted = Vec::new();
        for (column, place, text) in asked.into_iter().filter(|(_, _, text)| !text.is_empty()) {
            let whole = self.count_audit(column, text, true).await?;
            let rows = if whole == 0 { self.count_audit(column, text, false).await? } else { whole };
            if rows == 0 {
                return Ok(Vec::new());
            }
            wanted.push(Wanted { column, place, is_whole: 0 < whole, rows });
        }
        let sql = list(self, filter, &wanted);
        let (at, number) = filter.before.unwrap_or((Timestamp(i64::MAX), i64::MAX));
        // SQLite looks for the beginning by the plain bound alone: deep in the log it would go through all that is newer.
        let to = filter.to.map_or(i64::MAX, |to| to.0).min(at.0.saturating_add(1));
        let rows: Vec<Row> = reading!(self, pool => query_as(sqlx::AssertSqlSafe(sql))
            .bind(&filter.actor).bind(&filter.action).bind(&filter.subject).bind(&filter.address)
            .bind(filter.from.map_or(i64::MIN, |at| at.0)).bind(to)
            .bind(at.0).bind(number).bind(filter.limit)
            .fetch_all(pool).await)?;
        Ok(rows.into_iter().map(Row::audit).collect())
    }

    async fn count_audit(&self, column: &str, text: &str, is_whole: bool) -> Result<i64> {
        let sql = count(self, column, is_whole);
        Ok(reading!(self, pool => query_scalar(sqlx::AssertSqlSafe(sql)).bind(text).fetch_one(pool).await)?)
    }

    /// Rows in the order of their numbers, from behind `number` on.
    pub async fn audit_after(&self, number: i64, limit: i64) -> Result<Vec<Audit>> {
        let sql = format!("SELECT {COLUMNS} WHERE number > $1 ORDER BY number LIMIT $2");
        let rows: Vec<Row> =
            reading!(self, pool => query_as(sqlx::AssertSqlSafe(sql)).bind(number).bind(limit).fetch_all(pool).await)?;
        Ok(rows.into_iter().map(Row::audit).collect())
    }
}
