//! What people hold that the portal has not started: jobs from a shell, as the batch system tells of
//! them, one row for each start among the intervals, without a session. A job is told by its number
//! and the moment of its start, so that it is counted once however often it is told of.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{Db, Error, Json, Result, reading, transaction, types::parse_optional, usage};
use lyceum_model::{Gpu, GroupId, Timestamp, UserId, queue::ShellJob, session::Allocation};

/// A job of the portal's own: its number is known, which is not given again for long; or it bears the
/// mark of a session whose number nobody learnt. `$1` the number, `$2` and `$3` the time, `$4` the session.
pub(super) const IS_OWN: &str =
    "SELECT (SELECT COUNT(*) FROM intervals WHERE job_number = $1 AND session_id IS NOT NULL
         AND started_at > $2 AND started_at < $3)
     + (SELECT COUNT(*) FROM intervals WHERE session_id = $4 AND job_number IS NULL)";

/// Before a number is given again (milliseconds).
const NUMBERS_LAST: i64 = 30 * 86_400_000;

pub(super) const KNOWN: &str = "SELECT started_at, ended_at, ends_by, gpus, cpus, memory_bytes FROM intervals
     WHERE job_number = $1 AND start_number = $2 AND session_id IS NULL";

pub(super) const DELETE_OLD: &str =
    "DELETE FROM intervals WHERE job_number = $1 AND start_number = $2 AND session_id IS NULL";

pub(super) const OPEN: &str =
    "SELECT job_number, start_number, started_at, ended_at, ends_by, gpus, cpus, memory_bytes FROM intervals
     WHERE session_id IS NULL AND ended_at IS NULL";

/// The group of this name, `$1`, that a job of `$2`'s is charged to: of several the one that they are in.
pub(super) const CHARGED: &str = "SELECT id FROM groups g WHERE g.name = $1 ORDER BY (SELECT COUNT(*)
         FROM group_members m WHERE m.group_id = g.id AND m.user_id = $2) DESC, g.id LIMIT 1";

#[derive(FromRow)]
struct Row {
    started_at: i64,
    ended_at: Option<i64>,
    ends_by: Option<i64>,
    gpus: i64,
    cpus: i64,
    memory_bytes: i64,
}

impl Row {
    fn held(&self, start: i64) -> Allocation {
        Allocation {
            start,
            from: Timestamp(self.started_at),
            to: self.ended_at.map(Timestamp),
            gpus: self.gpus,
            cpus: self.cpus,
            memory_bytes: self.memory_bytes,
        }
    }
}

#[derive(FromRow)]
struct OpenRow {
    job_number: i64,
    start_number: i64,
    #[sqlx(flatten)]
    row: Row,
}

impl Db {
    /// Notes what a job holds, or held; what was noted of the same start is replaced. False where it is
    /// one of the portal's own.
    pub async fn set_shell_job(&self, owner: UserId, job: &ShellJob) -> Result<bool> {
        let (owner, number, held) = (owner.to_string(), i64::from(job.job), &job.held);
        let session = job.session.map(|session| session.to_string()).unwrap_or_default();
        let gpu = || Gpu { model: job.gpu_model.clone().unwrap_or_default(), ..Gpu::default() };
        let gpus: Vec<Gpu> = (0..held.gpus).map(|_| gpu()).collect();
        Ok(transaction!(self, tx => 'set: {
            let own: i64 = query_scalar(IS_OWN).bind(number).bind(held.from.0.saturating_sub(NUMBERS_LAST))
                .bind(held.from.0.saturating_add(NUMBERS_LAST)).bind(&session).fetch_one(&mut *tx).await?;
            if own > 0 {
                break 'set false;
            }
            let known: Option<Row> = query_as(KNOWN).bind(number).bind(held.start).fetch_optional(&mut *tx).await?;
            let is_known = |row: &Row| row.held(held.start) == *held && row.ends_by == job.ends_by.map(|at| at.0);
            if known.as_ref().is_some_and(is_known) {
                break 'set true;
            }
            if known.is_some_and(|known| known.ended_at.is_some()) {
                query(usage::RAISE_GENERATION).execute(&mut *tx).await?;
            }
            query(DELETE_OLD).bind(number).bind(held.start).execute(&mut *tx).await?;
            let group: Option<String> = match &job.group {
                Some(name) => query_scalar(CHARGED).bind(name).bind(&owner).fetch_optional(&mut *tx).await?,
                None => None,
            };
            query("INSERT INTO intervals (start_number, job_number, owner, charged_group, gpu_list, gpus, cpus, memory_bytes, started_at,
                     ends_by, ended_at, number)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, CASE WHEN $12 THEN
                     (SELECT COALESCE(MAX(number), 0) + 1 FROM intervals) END)")
                .bind(held.start).bind(number).bind(&owner).bind(group).bind(Json::write(&gpus))
                .bind(held.gpus).bind(held.cpus).bind(held.memory_bytes).bind(held.from.0)
                .bind(job.ends_by.map(|at| at.0)).bind(held.to.map(|at| at.0)).bind(held.to.is_some())
                .execute(&mut *tx).await?;
            true
        }))
    }

    /// The group of this name that somebody's jobs are charged to, where there is one.
    pub async fn group_that_pays(&self, owner: UserId, name: &str) -> Result<Option<GroupId>> {
        let id: Option<String> = reading!(self, pool => query_scalar(CHARGED).bind(name).bind(owner.to_string())
            .fetch_optional(pool).await)?;
        parse_optional(id.as_deref(), "group id")
    }

    /// Jobs that hold something as far as is known, by their numbers.
    pub async fn open_shell_jobs(&self) -> Result<Vec<(u32, Allocation)>> {
        let rows: Vec<OpenRow> = reading!(self, pool => query_as(OPEN).fetch_all(pool).await)?;
        let job = |row: OpenRow| {
            let number = u32::try_from(row.job_number).map_err(|_err| Error::Stored("job's number"))?;
            Ok((number, row.row.held(row.start_number)))
        };
        rows.into_iter().map(job).collect()
    }

    /// One that nobody tells of any more is over since this moment.
    pub async fn close_shell_job(&self, job: u32, start: i64, at: Timestamp) -> Result<()> {
        transaction!(self, tx => {
            query("UPDATE intervals SET ended_at = CASE WHEN started_at < $3 THEN $3 ELSE started_at END,
                     number = (SELECT COALESCE(MAX(number), 0) + 1 FROM intervals)
                 WHERE job_number = $1 AND start_number = $2 AND session_id IS NULL AND ended_at IS NULL")
                .bind(i64::from(job)).bind(start).bind(at.0).execute(&mut *tx).await?;
        });
        Ok(())
    }
}
