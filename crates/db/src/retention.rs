//! What is forgotten by age of the workloads that have ended: their rows, their history, what
//! they held, jobs with their last attempt, and what was refused before. How long each is kept is
//! `retention`'s business.

use sqlx::{query, query_as, query_scalar};

use super::{Db, Result, refusals, shell_jobs, transaction, trash, usage};
use lyceum_model::Timestamp;

pub(super) const OLD: &str = "SELECT id FROM sessions WHERE state = 'ended' AND ended_at < $1 LIMIT $2";

/// Jobs from a shell, which are nobody's session: that they are is said so that the index of ends serves.
pub(super) const OLD_FROM_SHELL: &str = "SELECT job_number, start_number FROM intervals
     WHERE ended_at < $1 AND COALESCE(session_id, '') = '' LIMIT $2";

/// Pages of 4 KiB that stay free for what is written next.
const MIN_FREE_PAGES: i64 = 1024;
const RETURN_PAGES: &str = "PRAGMA incremental_vacuum(1000)";

impl Db {
    /// Forgets up to `most` sessions that ended before `before`; returns how many.
    pub async fn forget_sessions(&self, before: Timestamp, most: i64) -> Result<usize> {
        Ok(transaction!(self, tx => {
            let old: Vec<String> = query_scalar(OLD).bind(before.0).bind(most).fetch_all(&mut *tx).await?;
            query(refusals::DELETE_OLD).bind(before.0).execute(&mut *tx).await?;
            if !old.is_empty() {
                query(usage::RAISE_GENERATION).execute(&mut *tx).await?;
            }
            for id in &old {
                query("DELETE FROM session_events WHERE session_id = $1").bind(id).execute(&mut *tx).await?;
                query("DELETE FROM session_hardware WHERE session_id = $1").bind(id).execute(&mut *tx).await?;
                query("DELETE FROM intervals WHERE session_id = $1").bind(id).execute(&mut *tx).await?;
                query("DELETE FROM counted_sessions WHERE session_id = $1").bind(id).execute(&mut *tx).await?;
                query("DELETE FROM job_dependencies WHERE job_id IN (SELECT id FROM jobs WHERE session_id = $1)")
                    .bind(id).execute(&mut *tx).await?;
                query("DELETE FROM jobs WHERE session_id = $1").bind(id).execute(&mut *tx).await?;
                query(trash::FORGET_JOB).bind(id).execute(&mut *tx).await?;
                query("DELETE FROM sessions WHERE id = $1").bind(id).execute(&mut *tx).await?;
            }
            query("DELETE FROM sweeps WHERE state = 'ended' AND created_at < $1
                 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.sweep_id = sweeps.id)")
                .bind(before.0).execute(&mut *tx).await?;
            old.len()
        }))
    }

    /// Returns free pages of the file to the file system while they are more than a quarter of it, some MB at a time,
    /// so that other writers wait for a moment only. PostgreSQL does this by itself.
    pub async fn shrink(&self) -> Result<()> {
        let Db::Sqlite { write, .. } = self else { return Ok(()) };
        loop {
            let (free, all): (i64, i64) =
                query_as("SELECT freelist_count, page_count FROM pragma_freelist_count, pragma_page_count")
                    .fetch_one(write)
                    .await?;
            if free < MIN_FREE_PAGES || free < all / 4 {
                return Ok(());
            }
            query(RETURN_PAGES).fetch_all(write).await?;
            let left: i64 = query_scalar("SELECT freelist_count FROM pragma_freelist_count").fetch_one(write).await?;
            // A file that an earlier version made cannot give pages back.
            if left == free {
                return Ok(());
            }
        }
    }

    /// Forgets up to `most` jobs from a shell that were over before `before`; returns how many.
    pub async fn forget_shell_jobs(&self, before: Timestamp, most: i64) -> Result<usize> {
        Ok(transaction!(self, tx => {
            let old: Vec<(i64, i64)> =
                query_as(OLD_FROM_SHELL).bind(before.0).bind(most).fetch_all(&mut *tx).await?;
            if !old.is_empty() {
                query(usage::RAISE_GENERATION).execute(&mut *tx).await?;
            }
            for (job, start) in &old {
                query(shell_jobs::DELETE_OLD).bind(job).bind(start).execute(&mut *tx).await?;
            }
            old.len()
        }))
    }
}
