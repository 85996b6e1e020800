//! Digests of runs: what a table shows of each without its points. They are written as reading goes
//! on, and go with their run; what they hold is `runs`'s.

use sqlx::{AssertSqlSafe, query, query_as};

use super::{Db, Result, people::places, reading, types::parse, writing};
use lyceum_model::RunId;

impl Db {
    /// Keeps what a run comes to, if it is there.
    pub async fn keep_digest(&self, run: RunId, revision: u64, digest: &str) -> Result<()> {
        let revision = i64::try_from(revision).unwrap_or(i64::MAX);
        writing!(self, pool => query("INSERT INTO run_digests (run_id, revision, digest)
             SELECT $1, $2, $3 WHERE EXISTS (SELECT 1 FROM runs WHERE id = $1)
             ON CONFLICT (run_id) DO UPDATE SET revision = $2, digest = $3")
            .bind(run.to_string()).bind(revision).bind(digest).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// How new the digests of some runs are; what has none is left out.
    pub async fn digest_revisions(&self, runs: &[RunId]) -> Result<Vec<(RunId, u64)>> {
        let mut found = Vec::with_capacity(runs.len());
        for some in runs.chunks(BATCH_SIZE) {
            let sql = format!("SELECT run_id, revision FROM run_digests WHERE run_id IN ({})", places(some.len()));
            let rows: Vec<(String, i64)> = reading!(self, pool => {
                let question = query_as(AssertSqlSafe(sql));
                some.iter().fold(question, |question, id| question.bind(id.to_string())).fetch_all(pool).await
            })?;
            for (id, revision) in rows {
                found.push((parse(&id, "run id")?, revision.unsigned_abs()));
            }
        }
        Ok(found)
    }

    /// The digests of some runs.
    pub async fn digests(&self, runs: &[RunId]) -> Result<Vec<(RunId, u64, String)>> {
        let mut found = Vec::with_capacity(runs.len());
        for some in runs.chunks(BATCH_SIZE) {
            let sql =
                format!("SELECT run_id, revision, digest FROM run_digests WHERE run_id IN ({})", places(some.len()));
            let rows: Vec<(String, i64, String)> = reading!(self, pool => {
                let question = query_as(AssertSqlSafe(sql));
                some.iter().fold(question, |question, id| question.bind(id.to_string())).fetch_all(pool).await
            })?;
            for (id, revision, digest) in rows {
                found.push((parse(&id, "run id")?, revision.unsigned_abs(), digest));
            }
        }
        Ok(found)
    }
}

/// So many are asked for in one statement.
const BATCH_SIZE: usize = 200;
