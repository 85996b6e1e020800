//! Runs of the tests of GPUs and storage: whose, by which job, and what came of them. Callers decide
//! which user may see which.

use sqlx::{AssertSqlSafe, FromRow, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    reading, transaction,
    types::{Json, parse, parse_optional, readable},
    writing,
};
use lyceum_model::{
    DiagnosticsId, JobId, Timestamp, UserId,
    diagnostics::{Diagnostics, Judgement, RunState, Subject},
};

/// Which runs to list. Newest first; `before` is the last id of the page before.
#[derive(Clone, Copy, Debug)]
pub struct DiagnosticsFilter<'a> {
    /// Those of this person only.
    pub owner: Option<UserId>,
    /// Those that tested this only: the UUID of a GPU, or the id of a file system.
    pub tested: Option<&'a str>,
    pub before: Option<DiagnosticsId>,
    pub limit: i64,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub state: RunState,
    pub detail: String,
    pub node: String,
    pub driver: String,
    pub judgement: Option<Judgement>,
    /// JSON.
    pub results: Option<String>,
}

#[derive(FromRow)]
struct Row {
    id: String,
    owner: String,
    owner_name: String,
    job_id: Option<String>,
    level: String,
    gpus: i64,
    storage: Option<String>,
    state: String,
    detail: String,
    node: String,
    driver: String,
    judgement: Option<String>,
    created_at: i64,
    ended_at: Option<i64>,
}

fn run(row: Row) -> Result<Diagnostics> {
    let subject = match &row.storage {
        Some(text) => Subject::Storage(Json::read(text, "diagnostics' storage")?),
        None => Subject::Gpus { level: parse(&row.level, "diagnostics' level")?, gpus: row.gpus },
    };
    Ok(Diagnostics {
        id: parse(&row.id, "diagnostics id")?,
        owner: parse(&row.owner, "diagnostics' owner")?,
        owner_name: row.owner_name,
        job: parse_optional(row.job_id.as_deref(), "diagnostics' job")?,
        subject,
        state: parse(&row.state, "diagnostics' state")?,
        detail: row.detail,
        node: row.node,
        driver: row.driver,
        judgement: row.judgement.map(|text| Json::read(&text, "diagnostics' judgement")).transpose()?,
        created_at: Timestamp(row.created_at),
        ended_at: row.ended_at.map(Timestamp),
    })
}

const SELECT: &str =
    "SELECT d.id, d.owner, u.name AS owner_name, d.job_id, d.level, d.gpus, d.storage, d.state, d.detail, d.node,
     d.driver, d.judgement, d.created_at, d.ended_at FROM diagnostics d JOIN users u ON u.id = d.owner";

impl Db {
    /// Writes a new run, which has no job yet.
    pub async fn add_diagnostics(&self, new: &Diagnostics, noted: &Entry<'_>) -> Result<()> {
        let (level, gpus, storage) = match &new.subject {
            Subject::Gpus { level, gpus } => (level.as_str(), *gpus, None),
            Subject::Storage(storage) => ("", 0, Some(Json::write(storage))),
        };
        transaction!(self, tx => {
            query("INSERT INTO diagnostics (id, owner, level, gpus, storage, directory, state, detail, node, driver,
                     uuids, created_at) VALUES ($1, $2, $3, $4, $5, '', $6, '', '', '', '', $7)")
                .bind(new.id.to_string()).bind(new.owner.to_string()).bind(level).bind(gpus).bind(&storage)
                .bind(new.state.as_str()).bind(new.created_at.0).execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    /// Names the job that measures, and where it writes.
    pub async fn set_diagnostics_job(&self, id: DiagnosticsId, job: JobId, directory: &str) -> Result<()> {
        writing!(self, pool => query("UPDATE diagnostics SET job_id = $2, directory = $3 WHERE id = $1")
            .bind(id.to_string()).bind(job.to_string()).bind(directory).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Writes down what came of a run that has no outcome yet. False where it has one.
    pub async fn settle_diagnostics(&self, id: DiagnosticsId, outcome: &Outcome, at: Timestamp) -> Result<bool> {
        let judged = outcome.judgement.as_ref();
        let uuids: Vec<&str> = judged.iter().flat_map(|judged| judged.tested_ids()).collect();
        let changed = writing!(self, pool => query("UPDATE diagnostics SET state = $2, detail = $3, node = $4,
                 driver = $5, verdict = $6, uuids = $7, judgement = $8, results = $9, ended_at = $10
                 WHERE id = $1 AND state = 'running'")
            .bind(id.to_string()).bind(outcome.state.as_str()).bind(&outcome.detail).bind(&outcome.node)
            .bind(&outcome.driver).bind(judged.map(|judged| judged.verdict.as_str())).bind(format!(",{},", uuids.join(",")))
            .bind(judged.map(Json::write)).bind(&outcome.results).bind(at.0)
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed == 1)
    }

    pub async fn find_diagnostics(&self, id: DiagnosticsId) -> Result<Option<Diagnostics>> {
        let sql = format!("{SELECT} WHERE d.id = $1");
        let row: Option<Row> = reading!(self, pool =>
            query_as(AssertSqlSafe(sql)).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(run).transpose()
    }

    /// Returns the folder that a run's job writes into; empty before the job is known.
    pub async fn diagnostics_directory(&self, id: DiagnosticsId) -> Result<Option<String>> {
        Ok(reading!(self, pool => query_scalar("SELECT directory FROM diagnostics WHERE id = $1")
            .bind(id.to_string()).fetch_optional(pool).await)?)
    }

    /// Returns what a run measured, as JSON.
    pub async fn diagnostics_results(&self, id: DiagnosticsId) -> Result<Option<String>> {
        let found: Option<Option<String>> = reading!(self, pool =>
            query_scalar("SELECT results FROM diagnostics WHERE id = $1").bind(id.to_string()).fetch_optional(pool).await)?;
        Ok(found.flatten())
    }

    pub async fn list_diagnostics(&self, filter: DiagnosticsFilter<'_>) -> Result<Vec<Diagnostics>> {
        let sql = format!(
            "{SELECT} WHERE ($1 = '' OR d.owner = $1) AND ($2 = '' OR d.uuids LIKE $2) AND d.id < $3
             ORDER BY d.id DESC LIMIT $4"
        );
        // UUIDs have no character that LIKE knows.
        let is_plain = |uuid: &&str| uuid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let tested = match filter.tested {
            Some(uuid) if is_plain(&uuid) => format!("%,{uuid},%"),
            Some(_) => return Ok(Vec::new()),
            None => String::new(),
        };
        // "g" sorts after every hexadecimal digit, so after every id.
        let before = filter.before.map_or_else(|| "g".to_owned(), |id| id.to_string());
        let owner = filter.owner.map(|id| id.to_string()).unwrap_or_default();
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(owner).bind(tested).bind(before).bind(filter.limit).fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(run)))
    }

    /// Forgets runs that ended before `before`; returns how many.
    pub async fn forget_diagnostics(&self, before: Timestamp) -> Result<usize> {
        let removed = writing!(self, pool => query("DELETE FROM diagnostics WHERE ended_at < $1").bind(before.0)
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }
}
