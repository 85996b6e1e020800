//! The trash: jobs and runs that were deleted, for as long as they can be restored. What is deleted moves into tables of its
//! own, with all that it is, so that no list or search has to leave it out; restoring moves it back. The files of what is
//! removed for good, which `trash` of the services removes, are named by the answers.

use sqlx::{AssertSqlSafe, FromRow, query_as, query_scalar};

use super::{
    Db, Json, Result,
    audit::{ChangedBy, append_audit},
    jobs::{ADD_DEPENDENCY, stored_tag},
    reading, transaction,
    tx::Tx,
    types::{parse, readable},
};
use lyceum_model::{JobId, RunId, SessionId, Timestamp, UserId};

const JOB: &str =
    "id, owner, name, folded_name, task, session_id, attempt, notes, tags, starred, visibility, created_at,
    retries_left, sweep_id, sweep_index, helper";
const RUN: &str =
    "id, owner, name, directory, session_id, job_id, visibility, group_id, complete, points, curves, read_at,
    grown_at, look_at, error, skipped, created_at, helper";

/// One's own, the latest first: `$1` owner, `$2` how many. The run of a job goes with the job.
pub(super) const OF_OWNER: &str = "SELECT * FROM (
         SELECT 'job' AS kind, id, name, deleted_at FROM trashed_jobs WHERE owner = $1
         UNION ALL SELECT 'run' AS kind, id, name, deleted_at FROM trashed_runs WHERE owner = $1 AND job_id IS NULL) AS trash
     ORDER BY deleted_at DESC, id DESC LIMIT $2";
pub(super) const COUNT: &str = "SELECT (SELECT COUNT(*) FROM trashed_jobs WHERE owner = $1),
     (SELECT COUNT(*) FROM trashed_runs WHERE owner = $1 AND job_id IS NULL)";
/// `$1` the moment before which they were deleted, `$2` how many.
pub(super) const OLD_JOBS: &str = "SELECT id FROM trashed_jobs WHERE deleted_at < $1 LIMIT $2";
pub(super) const OLD_RUNS: &str = "SELECT id FROM trashed_runs WHERE deleted_at < $1 LIMIT $2";
/// `$1` owner, `$2` how many.
pub(super) const JOBS_OF_OWNER: &str = "SELECT id FROM trashed_jobs WHERE owner = $1 LIMIT $2";
pub(super) const RUNS_OF_OWNER: &str = "SELECT id FROM trashed_runs WHERE owner = $1 LIMIT $2";
/// With the last attempt of a job nothing of it can be restored.
pub(super) const FORGET_JOB: &str = "DELETE FROM trashed_jobs WHERE session_id = $1";

/// What is in the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trashed {
    pub what: TrashedId,
    pub name: String,
    pub deleted_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrashedId {
    Job(JobId),
    Run(RunId),
}

/// How much is in somebody's trash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrashSize {
    pub jobs: i64,
    /// Without those of the jobs.
    pub runs: i64,
}

/// Which part of the trash is removed for good.
#[derive(Clone, Copy, Debug)]
pub enum Expired<'a> {
    /// What was deleted before that moment.
    Before(Timestamp),
    /// All that one user deleted.
    Of(UserId, ChangedBy<'a>),
}

/// What was removed for good: files are named by these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    pub jobs: usize,
    /// The attempts of the jobs.
    pub attempts: Vec<SessionId>,
    pub runs: Vec<RunId>,
}

#[derive(FromRow)]
struct Row {
    kind: String,
    id: String,
    name: String,
    deleted_at: i64,
}

#[derive(FromRow)]
struct RestoredRow {
    owner: String,
    name: String,
    tags: String,
    dependencies: String,
}

/// Moves a job and its run into the trash.
pub(super) async fn discard_job(tx: impl Into<Tx<'_>>, id: &str, at: Timestamp) -> Result<()> {
    let mut tx = tx.into();
    let needs: Vec<(String, String)> = tx
        .query("SELECT after_id, needs FROM job_dependencies WHERE job_id = $1 ORDER BY after_id")
        .bind(id)
        .all()
        .await?;
    let sql = format!(
        "INSERT INTO trashed_jobs ({JOB}, dependencies, deleted_at) SELECT {JOB}, $2, $3 FROM jobs WHERE id = $1"
    );
    tx.query(AssertSqlSafe(sql)).bind(id).bind(Json::write(&needs)).bind(at.0).execute().await?;
    let run: Option<(String,)> = tx.query("SELECT id FROM runs WHERE job_id = $1").bind(id).first().await?;
    if let Some((run,)) = run {
        discard_run(tx.again(), &run, at).await?;
    }
    tx.query("DELETE FROM job_dependencies WHERE job_id = $1").bind(id).execute().await?;
    tx.query("DELETE FROM jobs WHERE id = $1").bind(id).execute().await?;
    Ok(())
}

/// Moves a run into the trash; false where there is none.
pub(super) async fn discard_run(tx: impl Into<Tx<'_>>, id: &str, at: Timestamp) -> Result<bool> {
    let mut tx = tx.into();
    let sql = format!("INSERT INTO trashed_runs ({RUN}, deleted_at) SELECT {RUN}, $2 FROM runs WHERE id = $1");
    let moved = tx.query(AssertSqlSafe(sql)).bind(id).bind(at.0).execute().await?;
    tx.query("DELETE FROM run_digests WHERE run_id = $1").bind(id).execute().await?;
    tx.query("DELETE FROM runs WHERE id = $1").bind(id).execute().await?;
    Ok(moved > 0)
}

async fn bring_job_back(tx: impl Into<Tx<'_>>, id: &str, owner: &str, by: ChangedBy<'_>) -> Result<bool> {
    let mut tx = tx.into();
    let found: Option<RestoredRow> = tx
        .query("SELECT owner, name, tags, dependencies FROM trashed_jobs WHERE id = $1 AND owner = $2")
        .bind(id)
        .bind(owner)
        .first()
        .await?;
    let Some(job) = found else { return Ok(false) };
    let sql = format!("INSERT INTO jobs ({JOB}) SELECT {JOB} FROM trashed_jobs WHERE id = $1");
    tx.query(AssertSqlSafe(sql)).bind(id).execute().await?;
    tx.query("DELETE FROM trashed_jobs WHERE id = $1").bind(id).execute().await?;
    for tag in Json::read_or_default::<Vec<String>>(&job.tags) {
        let sql =
            "INSERT INTO job_tags (tag, owner, job_id) VALUES ($1, $2, $3) ON CONFLICT (tag, owner, job_id) DO NOTHING";
        tx.query(sql).bind(stored_tag(&tag)).bind(&job.owner).bind(id).execute().await?;
    }
    for (after, needs) in Json::read_or_default::<Vec<(String, String)>>(&job.dependencies) {
        tx.query(ADD_DEPENDENCY).bind(id).bind(after).bind(needs).execute().await?;
    }
    let run: Option<(String,)> = tx.query("SELECT id FROM trashed_runs WHERE job_id = $1").bind(id).first().await?;
    if let Some((run,)) = run {
        bring_run_back(tx.again(), &run).await?;
    }
    append_audit(tx, &by.did("job.restore", id, &job.name)).await?;
    Ok(true)
}

async fn bring_run_back(tx: impl Into<Tx<'_>>, id: &str) -> Result<()> {
    let mut tx = tx.into();
    let sql = format!("INSERT INTO runs ({RUN}) SELECT {RUN} FROM trashed_runs WHERE id = $1");
    tx.query(AssertSqlSafe(sql)).bind(id).execute().await?;
    tx.query("DELETE FROM trashed_runs WHERE id = $1").bind(id).execute().await?;
    Ok(())
}

/// Removes up to `most` jobs and as many runs for good.
async fn remove(tx: impl Into<Tx<'_>>, which: Expired<'_>, most: i64) -> Result<Emptied> {
    let mut tx = tx.into();
    let mut emptied = Emptied::default();
    let (jobs, runs): (Vec<(String,)>, Vec<(String,)>) = match which {
        Expired::Before(moment) => (
            tx.query(OLD_JOBS).bind(moment.0).bind(most).all().await?,
            tx.query(OLD_RUNS).bind(moment.0).bind(most).all().await?,
        ),
        Expired::Of(owner, _) => (
            tx.query(JOBS_OF_OWNER).bind(owner.to_string()).bind(most).all().await?,
            tx.query(RUNS_OF_OWNER).bind(owner.to_string()).bind(most).all().await?,
        ),
    };
    for (job,) in &jobs {
        let attempts: Vec<(String,)> = tx.query("SELECT id FROM sessions WHERE job_id = $1").bind(job).all().await?;
        for (attempt,) in attempts {
            emptied.attempts.push(parse(&attempt, "session id")?);
        }
        tx.query("DELETE FROM trashed_jobs WHERE id = $1").bind(job).execute().await?;
    }
    for (run,) in &runs {
        emptied.runs.push(parse(run, "run id")?);
        tx.query("DELETE FROM trashed_runs WHERE id = $1").bind(run).execute().await?;
    }
    emptied.jobs = jobs.len();
    if let Expired::Of(_, by) = which
        && !(jobs.is_empty() && runs.is_empty())
    {
        let detail = format!("{} jobs, {} runs", jobs.len(), runs.len());
        append_audit(tx, &by.did("trash.empty", by.actor, &detail)).await?;
    }
    Ok(emptied)
}

impl Db {
    /// Returns what a user deleted and can restore, the latest first.
    pub async fn trash_of(&self, owner: UserId, limit: i64) -> Result<Vec<Trashed>> {
        let rows: Vec<Row> = reading!(self, pool =>
            query_as(OF_OWNER).bind(owner.to_string()).bind(limit).fetch_all(pool).await)?;
        let trashed = |row: Row| {
            let what = match row.kind.as_str() {
                "job" => TrashedId::Job(parse(&row.id, "job id")?),
                _ => TrashedId::Run(parse(&row.id, "run id")?),
            };
            Ok(Trashed { what, name: row.name, deleted_at: Timestamp(row.deleted_at) })
        };
        Ok(readable(rows.into_iter().map(trashed)))
    }

    /// Returns how much a user deleted and can restore.
    pub async fn trash_size(&self, owner: UserId) -> Result<TrashSize> {
        let (jobs, runs): (i64, i64) =
            reading!(self, pool => query_as(COUNT).bind(owner.to_string()).fetch_one(pool).await)?;
        Ok(TrashSize { jobs, runs })
    }

    /// Brings a user's job back with its run; false where the trash has none.
    pub async fn restore_job(&self, id: JobId, owner: UserId, by: ChangedBy<'_>) -> Result<bool> {
        let (id, owner) = (id.to_string(), owner.to_string());
        Ok(transaction!(self, tx => { bring_job_back(&mut *tx, &id, &owner, by).await? }))
    }

    /// Brings a user's run back; false where the trash has none. That of a job comes back with the job alone.
    pub async fn restore_run(&self, id: RunId, owner: UserId, by: ChangedBy<'_>) -> Result<bool> {
        let (id, owner) = (id.to_string(), owner.to_string());
        Ok(transaction!(self, tx => {
            let directory: Option<String> = query_scalar(
                "SELECT directory FROM trashed_runs WHERE id = $1 AND owner = $2 AND job_id IS NULL")
                .bind(&id).bind(&owner).fetch_optional(&mut *tx).await?;
            if let Some(directory) = &directory {
                bring_run_back(&mut *tx, &id).await?;
                append_audit(&mut *tx, &by.did("run.restore", &id, directory)).await?;
            }
            directory.is_some()
        }))
    }

    /// Removes up to `most` jobs and as many runs of the trash for good; what it used stays in the history of use.
    pub async fn empty_trash(&self, which: Expired<'_>, most: i64) -> Result<Emptied> {
        Ok(transaction!(self, tx => { remove(&mut *tx, which, most).await? }))
    }
}
