//! How long what is over is kept: the ends of sessions' logs, the sessions, the audit log. A
//! loop forgets what is older. It has no input and may be stopped anywhere: whatever is left
//! is found at the next look.

use std::{io, path::PathBuf, time::Duration};

use serde::Deserialize;

use lyceum_db::{self as db, Db};
use lyceum_model::{Clock, Loops, Timestamp, loops::Round};

use crate::trash::Trash;

/// `[retention]`: days; 0 keeps for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The kept ends of the logs of ended sessions.
    pub logs_days: i64,
    /// Ended sessions, with their history and what they used; announcements that are over.
    pub sessions_days: i64,
    pub audit_days: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { logs_days: 90, sessions_days: 400, audit_days: 800 }
    }
}

impl Config {
    /// Every fault, with its key and the way out.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let all = [
            ("retention.logs_days", self.logs_days),
            ("retention.sessions_days", self.sessions_days),
            ("retention.audit_days", self.audit_days),
        ];
        let out_of_range = all.iter().filter(|(_, days)| !(0..=36_500).contains(days));
        let mut faults: Vec<String> =
            out_of_range.map(|(key, _)| format!("{key}: must be between 0 (keep forever) and 36500")).collect();
        for [(shorter, less), (longer, more)] in [[all[0], all[1]], [all[1], all[2]]] {
            if more > 0 && (less == 0 || more < less) {
                faults.push(format!("{longer}: must be at least {shorter} (0 keeps forever)"));
            }
        }
        faults
    }
}

/// How often the loop looks.
const INTERVAL: Duration = Duration::from_hours(1);
/// So many sessions are forgotten in one transaction: others wait for its lock.
const SESSIONS: i64 = 200;
/// So many rows of the audit log, and of the events.
const ROWS: i64 = 2000;
/// How long events are kept, in days. The audit log and the history of sessions tell the same for longer.
const EVENTS_DAYS: i64 = 30;

/// Forgets what is old.
#[derive(Clone, Debug)]
pub struct Retention {
    pub db: Db,
    pub clock: Clock,
    pub config: Config,
    /// Where the ends of logs are kept.
    pub logs: PathBuf,
    /// What is removed for good a day after it was deleted, whatever the configuration says.
    pub trash: Trash,
}

/// How much a look forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedCounts {
    /// Jobs and runs that were deleted.
    pub trash: usize,
    pub logs: usize,
    pub sessions: usize,
    pub announcements: usize,
    pub diagnostics: usize,
    pub audit: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Db(#[from] db::Error),
    #[error("failed to remove old logs from {}", path.display())]
    Logs { path: PathBuf, source: io::Error },
}

impl Retention {
    /// Looks at the start and every hour, for ever. What was used is known after each look.
    pub async fn run(self, loops: Loops) {
        loop {
            let round = loops.begin("retention", Some(INTERVAL));
            let swept = self.sweep(&round).await;
            round.end(&swept);
            match swept {
                Ok(forgotten) if forgotten == RemovedCounts::default() => {}
                Ok(RemovedCounts { trash, logs, sessions, announcements, diagnostics, audit }) => {
                    tracing::info!(
                        trash,
                        logs,
                        sessions,
                        announcements,
                        diagnostics,
                        audit,
                        "deleted data older than [retention]"
                    );
                }
                Err(err) => tracing::warn!(error = &err as &dyn std::error::Error, "failed to delete old data"),
            }
            if let Err(err) = self.db.catch_up_with_use().await {
                tracing::warn!(error = &err as &dyn std::error::Error, "failed to read the usage history");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// One look: everything that is too old now. A log that cannot be removed keeps nothing else.
    pub async fn sweep(&self, round: &Round) -> Result<RemovedCounts, Error> {
        let mut forgotten = RemovedCounts { trash: self.trash.expire().await?, ..RemovedCounts::default() };
        if let Some(before) = self.before(self.config.logs_days) {
            forgotten.logs = round.unless_failed("old logs", self.sweep_logs(before, round).await).unwrap_or(0);
        }
        if let Some(before) = self.before(self.config.sessions_days) {
            while let count @ 1.. = self.db.forget_sessions(before, SESSIONS).await? {
                forgotten.sessions += count;
            }
            while let count @ 1.. = self.db.forget_shell_jobs(before, SESSIONS).await? {
                forgotten.sessions += count;
            }
            // They explain what happened to sessions, and go with them.
            forgotten.diagnostics = self.db.forget_diagnostics(before).await?;
            forgotten.announcements = self.db.forget_announcements(before).await?;
        }
        if let Some(before) = self.before(self.config.audit_days) {
            while let count @ 1.. = self.db.prune_audit(before, ROWS, self.clock.now()).await? {
                forgotten.audit += count;
            }
        }
        // A queue, whose entries are counted elsewhere.
        if let Some(before) = self.before(EVENTS_DAYS) {
            while self.db.forget_events(before, ROWS).await? > 0 {}
        }
        if forgotten != RemovedCounts::default() {
            self.db.shrink().await?;
        }
        Ok(forgotten)
    }

    fn before(&self, days: i64) -> Option<Timestamp> {
        (days > 0).then(|| self.clock.now().plus_seconds(-days * 86_400))
    }

    /// A log is as old as its file, which is written when its session ends. One whose session
    /// is gone goes like the others.
    async fn sweep_logs(&self, before: Timestamp, round: &Round) -> Result<usize, Error> {
        let failed = |source| Error::Logs { path: self.logs.clone(), source };
        let mut count = 0;
        let mut files = match tokio::fs::read_dir(&self.logs).await {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(0),
            files => files.map_err(failed)?,
        };
        while let Some(file) = files.next_entry().await.map_err(failed)? {
            let removed = remove_if_older(&file, before).await;
            count += usize::from(round.unless_failed(file.path().display(), removed).unwrap_or(false));
        }
        Ok(count)
    }
}

async fn remove_if_older(file: &tokio::fs::DirEntry, before: Timestamp) -> io::Result<bool> {
    let facts = file.metadata().await?;
    let changed = facts.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let is_old = Timestamp(i64::try_from(changed.as_millis()).unwrap_or(i64::MAX)) < before;
    if facts.is_file() && is_old {
        tokio::fs::remove_file(file.path()).await?;
        return Ok(true);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_explains_is_kept_at_least_as_long() {
        let faults = |logs_days, sessions_days, audit_days| Config { logs_days, sessions_days, audit_days }.validate();
        assert_eq!(Config::default().validate(), Vec::<String>::new());
        for (logs, sessions, audit) in [(0, 0, 0), (1, 1, 1), (30, 0, 0), (30, 60, 0)] {
            assert_eq!(faults(logs, sessions, audit), Vec::<String>::new());
        }
        assert!(faults(30, 10, 90)[0].starts_with("retention.sessions_days"));
        assert!(faults(30, 90, 60)[0].starts_with("retention.audit_days"));
        assert!(faults(30, 0, 60)[0].starts_with("retention.audit_days"), "for ever is longer than any");
        assert_eq!(faults(-1, 90, 40_000).len(), 2);
    }
}
