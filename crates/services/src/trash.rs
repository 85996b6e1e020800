//! The trash: jobs and runs that their owners deleted. For a day they can be restored, which `jobs` and `runs` do; then
//! `retention` has them removed for good, with the logs of the jobs and the points of the runs, or their owner does before.
//! Files in users' directories are never touched.

use std::{io, path::PathBuf};

use lyceum_db::{
    self as db, Db,
    audit::ChangedBy,
    trash::{Emptied, Expired, TrashSize, Trashed},
};
use lyceum_model::{Clock, User};

use crate::{runs::points_file, sessions::log_file};

/// How long what was deleted can be restored (seconds).
pub const TRASH_SECONDS: i64 = 86_400;
/// So many jobs and runs are removed in one transaction: others wait for its lock.
const BATCH: i64 = 200;
/// Pages and the API list so many.
const MAX_LISTED: i64 = 500;

/// The service.
#[derive(Clone, Debug)]
pub struct Trash {
    pub db: Db,
    pub clock: Clock,
    /// Where the ends of logs are kept.
    pub logs: PathBuf,
    /// Where the points of runs are kept.
    pub points: PathBuf,
}

impl Trash {
    /// Returns what a user can restore, the latest first, and how much that is in all.
    pub async fn list(&self, user: &User) -> Result<(Vec<Trashed>, TrashSize), db::Error> {
        let size = self.db.trash_size(user.id).await?;
        if size == TrashSize::default() {
            return Ok((Vec::new(), size));
        }
        Ok((self.db.trash_of(user.id, MAX_LISTED).await?, size))
    }

    /// Removes for good what a user deleted.
    pub async fn empty(&self, user: &User) -> Result<(), db::Error> {
        let by = ChangedBy { actor: user.name.as_str(), at: self.clock.now() };
        self.remove(Expired::Of(user.id, by)).await.map(drop)
    }

    /// Removes for good what can no longer be restored; returns how many jobs and runs.
    pub async fn expire(&self) -> Result<usize, db::Error> {
        self.remove(Expired::Before(self.clock.now().plus_seconds(-TRASH_SECONDS))).await
    }

    async fn remove(&self, which: Expired<'_>) -> Result<usize, db::Error> {
        let mut count = 0;
        loop {
            let Emptied { jobs, attempts, runs } = self.db.empty_trash(which, BATCH).await?;
            if jobs == 0 && runs.is_empty() {
                return Ok(count);
            }
            count += jobs + runs.len();
            let logs = attempts.into_iter().map(|attempt| log_file(&self.logs, attempt));
            for path in logs.chain(runs.into_iter().map(|run| points_file(&self.points, run))) {
                match tokio::fs::remove_file(&path).await {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::warn!(path = %path.display(), %error, "failed to delete a file of the trash; \
                                                                       retention or the next start removes it");
                    }
                    _ => {}
                }
            }
        }
    }
}
