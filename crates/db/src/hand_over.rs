//! What an account leaves: how much there is, and its way to another owner. Jobs go with their attempts, sweeps and runs in one
//! transaction; datasets and models one by one, because each has files that somebody has to be able to read. The hours
//! of the past stay with whoever used them: `intervals` has an owner of its own.

use serde_json::Value;
use sqlx::{AssertSqlSafe, FromRow, query_as};

use super::{
    Db, Error, Result,
    audit::{ChangedBy, append_audit},
    reading, transaction,
    tx::Tx,
};
use lyceum_model::{Dataset, Model, Timestamp, User, UserId, moves::Moves};

/// How much there is of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromRow)]
pub struct AccountContents {
    /// Interactive sessions, jobs and sweeps that have not ended.
    pub live_sessions: i64,
    pub live_jobs: i64,
    pub live_sweeps: i64,
    /// All jobs, sweeps and runs.
    pub jobs: i64,
    pub sweeps: i64,
    pub runs: i64,
    pub datasets: i64,
    pub models: i64,
    pub presets: i64,
    pub tokens: i64,
    pub sign_ins: i64,
}

impl AccountContents {
    /// How much has not ended.
    #[must_use]
    pub fn live(&self) -> i64 {
        self.live_sessions + self.live_jobs + self.live_sweeps
    }
}

/// What has a new owner now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    pub jobs: u64,
    pub sweeps: u64,
    pub runs: u64,
}

/// From whom to whom, and who does it.
#[derive(Clone, Copy, Debug)]
pub struct Between<'a> {
    pub from: &'a User,
    pub to: &'a User,
    pub moves: &'a Moves,
    pub by: ChangedBy<'a>,
}

/// A job that has ended with retries left is live: it is tried again.
const COUNTS: &str = "SELECT
    (SELECT COUNT(*) FROM sessions WHERE owner = $1 AND state <> 'ended' AND job_id IS NULL) AS live_sessions,
    (SELECT COUNT(*) FROM sessions WHERE owner = $1 AND state <> 'ended' AND job_id IS NOT NULL)
        + (SELECT COUNT(*) FROM jobs JOIN sessions ON sessions.id = jobs.session_id
           WHERE jobs.owner = $1 AND jobs.retries_left > 0 AND sessions.state = 'ended') AS live_jobs,
    (SELECT COUNT(*) FROM sweeps WHERE owner = $1 AND state <> 'ended') AS live_sweeps,
    (SELECT COUNT(*) FROM jobs WHERE owner = $1) AS jobs,
    (SELECT COUNT(*) FROM sweeps WHERE owner = $1) AS sweeps,
    (SELECT COUNT(*) FROM runs WHERE owner = $1) AS runs,
    (SELECT COUNT(*) FROM datasets WHERE owner = $1) AS datasets,
    (SELECT COUNT(*) FROM models WHERE owner = $1) AS models,
    (SELECT COUNT(*) FROM presets WHERE user_id = $1) AS presets,
    (SELECT COUNT(*) FROM tokens WHERE user_id = $1) AS tokens,
    (SELECT COUNT(*) FROM logins WHERE user_id = $1) AS sign_ins";

impl Db {
    /// Counts what an account has.
    pub async fn account_contents(&self, user: UserId) -> Result<AccountContents> {
        Ok(reading!(self, pool => query_as(COUNTS).bind(user.to_string()).fetch_one(pool).await)?)
    }

    /// Gives jobs with their attempts, sweeps and runs to another owner, all or none. `None` where something has not
    /// ended.
    pub async fn hand_over_work(&self, between: Between<'_>) -> Result<Option<HandedOver>> {
        Ok(transaction!(self, tx => hand_over_work(Tx::from(&mut *tx), between).await?))
    }

    /// Gives a dataset to another owner. False where it is not the former owner's any more; [`Error::Unique`] where
    /// another one has its directory: removing either would remove the files of both.
    pub async fn hand_over_dataset(&self, dataset: &Dataset, between: Between<'_>) -> Result<bool> {
        let (id, directory) = (dataset.id.to_string(), dataset.directory.as_str());
        Ok(transaction!(self, tx => {
            let row = Row { table: "datasets", document: "spec", id: &id, directory };
            hand_over_row(Tx::from(&mut *tx), row, ("dataset.hand_over", &dataset.name), between).await?
        }))
    }

    /// Gives a model, with the pictures that its owner asked it about, to another owner. False and an error as with a
    /// dataset.
    pub async fn hand_over_model(&self, model: &Model, between: Between<'_>) -> Result<bool> {
        let (id, directory) = (model.id.to_string(), model.directory.as_str());
        Ok(transaction!(self, tx => {
            let row = Row { table: "models", document: "config", id: &id, directory };
            let moved =
                hand_over_row(Tx::from(&mut *tx), row, ("model.hand_over", &model.name), between).await?;
            if moved {
                hand_over_tests(Tx::from(&mut *tx), &id, between).await?;
            }
            moved
        }))
    }
}

async fn hand_over_work(mut tx: Tx<'_>, between: Between<'_>) -> Result<Option<HandedOver>> {
    let (from, to) = (between.from.id.to_string(), between.to.id.to_string());
    let before: AccountContents = tx.query(COUNTS).bind(&from).one().await?;
    if before.live() > 0 {
        return Ok(None);
    }
    move_directories(tx.again(), "runs", "owner = $1", &from, between.moves).await?;
    move_logs(tx.again(), &from).await?;
    // Attempts of jobs in the trash stay with them.
    tx.query("UPDATE sessions SET owner = $2 WHERE owner = $1 AND job_id IN (SELECT id FROM jobs WHERE owner = $1)")
        .bind(&from)
        .bind(&to)
        .execute()
        .await?;
    let mut moved = HandedOver::default();
    for (table, count) in [
        ("job_tags", None),
        ("jobs", Some(&mut moved.jobs)),
        ("sweeps", Some(&mut moved.sweeps)),
        ("runs", Some(&mut moved.runs)),
    ] {
        let sql = format!("UPDATE {table} SET owner = $2 WHERE owner = $1");
        let rows = tx.query(AssertSqlSafe(sql)).bind(&from).bind(&to).execute().await?;
        if let Some(count) = count {
            *count = rows;
        }
    }
    if moved != HandedOver::default() {
        let HandedOver { jobs, sweeps, runs } = moved;
        let detail = format!("to {}: {jobs} jobs, {sweeps} sweeps, {runs} runs", between.to.name);
        append_audit(tx, &between.by.did("user.hand_over", between.from.name.as_str(), &detail)).await?;
    }
    Ok(Some(moved))
}

/// Writes where directories lie now.
async fn move_directories(mut tx: Tx<'_>, table: &str, of: &str, value: &str, moves: &Moves) -> Result<()> {
    let sql = format!("SELECT id, directory FROM {table} WHERE {of}");
    let rows: Vec<(String, String)> = tx.query(AssertSqlSafe(sql)).bind(value).all().await?;
    for (id, directory) in rows {
        let present = moves.path(&directory);
        if present != directory {
            let sql = format!("UPDATE {table} SET directory = $2 WHERE id = $1");
            tx.query(AssertSqlSafe(sql)).bind(&id).bind(&present).execute().await?;
        }
    }
    Ok(())
}

/// Log directories of jobs are below their owner's home, which is another one now: where they are stands in their runs.
async fn move_logs(mut tx: Tx<'_>, owner: &str) -> Result<()> {
    let rows: Vec<(String, String, String)> = tx
        .query(
            "SELECT sessions.id, sessions.spec, runs.directory FROM runs JOIN sessions ON sessions.id = runs.session_id
             WHERE runs.owner = $1 AND runs.job_id IS NOT NULL",
        )
        .bind(owner)
        .all()
        .await?;
    for (id, spec, directory) in rows {
        // What cannot be read of it stays as it is.
        let Ok(Value::Object(mut spec)) = serde_json::from_str(&spec) else { continue };
        if spec.get("log_directory").is_some_and(|known| known.as_str() != Some(&directory)) {
            spec.insert("log_directory".to_owned(), Value::String(directory));
            let spec = Value::Object(spec).to_string();
            tx.query("UPDATE sessions SET spec = $2 WHERE id = $1").bind(&id).bind(&spec).execute().await?;
        }
    }
    Ok(())
}

/// A row with a directory and a document that names paths.
struct Row<'a> {
    table: &'static str,
    document: &'static str,
    id: &'a str,
    directory: &'a str,
}

async fn hand_over_row(
    mut tx: Tx<'_>,
    row: Row<'_>,
    (action, name): (&str, &str),
    between: Between<'_>,
) -> Result<bool> {
    let Row { table, document, id, directory } = row;
    let (from, to) = (between.from.id.to_string(), between.to.id.to_string());
    let sql = format!("SELECT {document} FROM {table} WHERE id = $1 AND owner = $2 AND directory = $3");
    let found: Option<(String,)> = tx.query(AssertSqlSafe(sql)).bind(id).bind(&from).bind(directory).first().await?;
    let Some((text,)) = found else { return Ok(false) };
    let text = match serde_json::from_str::<Value>(&text) {
        Ok(mut value) => {
            between.moves.document(&mut value);
            value.to_string()
        }
        Err(_unreadable) => text,
    };
    let directory = between.moves.path(directory);
    let sql = format!("SELECT id FROM {table} WHERE directory = $1 AND id <> $2 LIMIT 1");
    let other: Option<(String,)> = tx.query(AssertSqlSafe(sql)).bind(&directory).bind(id).first().await?;
    if other.is_some() {
        return Err(Error::Unique);
    }
    let Timestamp(at) = between.by.at;
    let sql = format!("UPDATE {table} SET owner = $2, directory = $3, {document} = $4, changed_at = $5 WHERE id = $1");
    tx.query(AssertSqlSafe(sql)).bind(id).bind(&to).bind(&directory).bind(&text).bind(at).execute().await?;
    let detail = format!("{name} in {directory}, from {} to {}", between.from.name, between.to.name);
    append_audit(tx, &between.by.did(action, id, &detail)).await?;
    Ok(true)
}

async fn hand_over_tests(mut tx: Tx<'_>, model: &str, between: Between<'_>) -> Result<()> {
    move_directories(tx.again(), "model_tests", "model_id = $1", model, between.moves).await?;
    tx.query("UPDATE model_tests SET owner = $3 WHERE model_id = $1 AND owner = $2")
        .bind(model)
        .bind(between.from.id.to_string())
        .bind(between.to.id.to_string())
        .execute()
        .await?;
    Ok(())
}
