//! Who held what, when: one row for each start of an allocation, open while it is held. What a
//! scheduler says of it is noted here; sums of it are `usage`'s and `standing`'s business.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{Db, Result, reading, transaction, types::parse, usage, users::user_id};
use lyceum_model::{
    SessionId, Timestamp, UserId,
    session::{Allocation, WorkloadStarts},
};

/// Whatever the clock did meanwhile: nobody used less than nothing. The number is nobody else's
/// under the lock alone.
pub(super) const CLOSE: &str = "UPDATE intervals SET ended_at = CASE WHEN started_at < $2 THEN $2 ELSE started_at END,
         number = (SELECT COALESCE(MAX(number), 0) + 1 FROM intervals)
     WHERE session_id = $1 AND ended_at IS NULL";

pub(super) const OPEN: &str = "SELECT session_id, owner FROM intervals
     WHERE ended_at IS NULL AND session_id IS NOT NULL ORDER BY session_id";

const OF_SESSION: &str = "SELECT start_number, started_at, ended_at, gpus, cpus, memory_bytes FROM intervals
     WHERE session_id = $1 ORDER BY start_number";

#[derive(FromRow)]
struct Row {
    start_number: i64,
    started_at: i64,
    ended_at: Option<i64>,
    gpus: i64,
    cpus: i64,
    memory_bytes: i64,
}

impl From<&Row> for Allocation {
    fn from(row: &Row) -> Self {
        Self {
            start: row.start_number,
            from: Timestamp(row.started_at),
            to: row.ended_at.map(Timestamp),
            gpus: row.gpus,
            cpus: row.cpus,
            memory_bytes: row.memory_bytes,
        }
    }
}

impl Db {
    /// Notes since when, until when, and what, an admitted session really held in each of its
    /// starts, as its scheduler says; what was noted before is replaced until it has ended.
    pub async fn set_starts(&self, id: SessionId, starts: &WorkloadStarts, at: Timestamp) -> Result<()> {
        let id = id.to_string();
        transaction!(self, tx => {
            let admitted: Option<i64> = query_scalar(
                "SELECT admitted_at FROM sessions WHERE id = $1 AND admitted_at IS NOT NULL AND state <> 'ended'")
                .bind(&id).fetch_optional(&mut *tx).await?;
            let rows: Vec<Row> = query_as(OF_SESSION).bind(&id).fetch_all(&mut *tx).await?;
            let known: Vec<Allocation> = rows.iter().map(Allocation::from).collect();
            let noted = admitted.map_or_else(|| known.clone(), |admitted| starts.noted(&known, Timestamp(admitted), at));
            let count = noted.len();
            let gone: Vec<Allocation> = known.iter().filter(|one| !noted.contains(one)).copied().collect();
            let new: Vec<Allocation> = noted.into_iter().filter(|one| !known.contains(one)).collect();
            // What is over is told otherwise, or is one of several now.
            if gone.iter().any(|one| one.to.is_some()) || !new.is_empty() && count > 1 {
                query(usage::RAISE_GENERATION).execute(&mut *tx).await?;
            }
            for one in &gone {
                query("DELETE FROM intervals WHERE session_id = $1 AND start_number = $2")
                    .bind(&id).bind(one.start).execute(&mut *tx).await?;
            }
            for one in &new {
                query("INSERT INTO intervals (session_id, start_number, job_number, owner, charged_group, gpu_list,
                         gpus, cpus, memory_bytes, started_at, ended_at, number)
                     SELECT id, $2, $3, owner, charged_group, gpu_list, $4, $5, $6, $7, $8, CASE WHEN $9 THEN
                         (SELECT COALESCE(MAX(number), 0) + 1 FROM intervals) END
                     FROM sessions WHERE id = $1")
                    .bind(&id).bind(one.start).bind(starts.job.map(i64::from))
                    .bind(one.gpus).bind(one.cpus).bind(one.memory_bytes)
                    .bind(one.from.0).bind(one.to.map(|to| to.0)).bind(one.to.is_some())
                    .execute(&mut *tx).await?;
            }
            if !new.is_empty() {
                query("UPDATE intervals SET of_several = $2 WHERE session_id = $1").bind(&id).bind(count > 1)
                    .execute(&mut *tx).await?;
            }
            // It may not have been known at the beginning.
            if let Some(job) = starts.job {
                query("UPDATE intervals SET job_number = $2 WHERE session_id = $1 AND job_number IS NULL")
                    .bind(&id).bind(i64::from(job)).execute(&mut *tx).await?;
            }
        });
        Ok(())
    }

    /// The owner of an open interval, for checks that table and sessions agree.
    pub async fn open_intervals(&self) -> Result<Vec<(SessionId, Option<UserId>)>> {
        let rows: Vec<(String, Option<String>)> = reading!(self, pool => query_as(OPEN).fetch_all(pool).await)?;
        rows.into_iter().map(|(id, owner)| Ok((parse(&id, "session id")?, user_id(owner.as_deref())?))).collect()
    }
}
