//! How much people keep in their home folders. Where a limit on storage is set anywhere, a loop
//! has the homes of those who were here lately measured, one after the other and seldom, by files
//! agents that run as their user. What a limit means is `model::quota`'s; nothing is ever kept
//! from writing: a file server's own quotas do that.

use std::{sync::Arc, time::Duration};

use super::{Error, Files, Result, unexpected};
use lyceum_model::{
    Clock, Loops, User,
    files::{FolderSize, RawPath},
};
use lyceum_wire::protocol::files_agent::{FilesAnswer, FilesRequest};

/// How often the loop looks who is due.
const INTERVAL: Duration = Duration::from_mins(5);

/// A home is measured again after so long (seconds).
const MEASURE_INTERVAL: i64 = 6 * 3600;

/// Those who were not here for so long (seconds) are left in peace.
const ACTIVE_SECONDS: i64 = 7 * 86_400;

/// So many are measured in one round.
const MAX_PER_ROUND: i64 = 50;

impl Files {
    /// Measures whoever is due, for ever.
    pub async fn watch_storage(self: Arc<Self>, clock: Clock, loops: Loops) {
        loop {
            let round = loops.begin("storage", Some(INTERVAL));
            let outcome = self.measure_due(&clock).await;
            round.end(&outcome);
            if let Err(err) = outcome {
                tracing::warn!(error = &err as &dyn std::error::Error, "failed to measure home directories");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// One round. A home that cannot be measured keeps nobody else's from it.
    pub async fn measure_due(&self, clock: &Clock) -> Result<()> {
        let now = clock.now();
        let due = self
            .db
            .storage_due(now.plus_seconds(-ACTIVE_SECONDS), now.plus_seconds(-MEASURE_INTERVAL), MAX_PER_ROUND)
            .await?;
        for id in due {
            let Some(account) = self.db.find_user(id).await? else { continue };
            let measured = match self.measure(&account.user).await {
                Ok(measured) => Some(measured),
                Err(Error::Db(err)) => return Err(err.into()),
                Err(err) => {
                    tracing::warn!(user.name = %account.user.name, error = &err as &dyn std::error::Error,
                        "failed to measure a home directory");
                    None
                }
            };
            self.db.set_storage(id, measured.as_ref(), clock.now()).await?;
        }
        Ok(())
    }

    /// How much somebody's home holds.
    async fn measure(&self, user: &User) -> Result<FolderSize> {
        let pool = self.pool(user).await?;
        let home = pool.roots.first().ok_or_else(|| Error::Agent("no home directory".to_owned()))?;
        let rooted = pool.rooted(&RawPath::from(home.path.as_path()))?;
        let request = FilesRequest::Measure { place: rooted.place.clone() };
        match self.once(&pool, &rooted, &request).await? {
            FilesAnswer::Measured { measured } => Ok(measured),
            other => Err(unexpected(&other)),
        }
    }
}
