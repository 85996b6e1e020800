//! How much people keep in their home folders. Where a limit on storage is set anywhere, a loop
//! has the homes of those who were here lately measured, one after the other and seldom, by files
//! agents that run as their user. What a limit means is `model::quota`'s; nothing is ever kept
//! from writing: a file server's own quotas do that.

use std::{sync::Arc, time::Duration};

use super::{Error, Files, Result, unexpected};
use crate::{
    model::{
        Clock, Loops, User,
        files::{Measured, RawPath},
    },
    protocol::files_agent::{FilesAnswer, FilesRequest},
};

/// How often the loop looks who is due.
const PERIOD: Duration = Duration::from_mins(5);

/// A home is measured again after so long (seconds).
const AGAIN: i64 = 6 * 3600;

/// Those who were not here for so long (seconds) are left in peace.
const LATELY: i64 = 7 * 86_400;

/// So many are measured in one round.
const MOST: i64 = 50;

impl Files {
    /// Measures whoever is due, for ever.
    pub async fn watch_storage(self: Arc<Self>, clock: Clock, loops: Loops) {
        loop {
            let round = loops.begin("storage", Some(PERIOD));
            let outcome = self.measure_due(&clock).await;
            round.end(&outcome);
            if let Err(err) = outcome {
                tracing::warn!(error = &err as &dyn std::error::Error, "measuring home folders");
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// One round. A home that cannot be measured keeps nobody else's from it.
    pub async fn measure_due(&self, clock: &Clock) -> Result<()> {
        let now = clock.now();
        let due = self.db.storage_due(now.plus_seconds(-LATELY), now.plus_seconds(-AGAIN), MOST).await?;
        for id in due {
            let Some(account) = self.db.find_user(id).await? else { continue };
            let measured = match self.measure(&account.user).await {
                Ok(measured) => Some(measured),
                Err(Error::Db(err)) => return Err(err.into()),
                Err(err) => {
                    tracing::warn!(user.name = %account.user.name, error = &err as &dyn std::error::Error,
                        "a home folder is not measured");
                    None
                }
            };
            self.db.set_storage(id, measured.as_ref(), clock.now()).await?;
        }
        Ok(())
    }

    /// How much somebody's home holds.
    async fn measure(&self, user: &User) -> Result<Measured> {
        let desk = self.desk(user).await?;
        let home = desk.roots.first().ok_or_else(|| Error::Agent("there is no home".to_owned()))?;
        let spot = desk.spot(&RawPath::from(home.path.as_path()))?;
        let request = FilesRequest::Measure { place: spot.place.clone() };
        match self.once(&desk, &spot, &request).await? {
            FilesAnswer::Measured { measured } => Ok(measured),
            other => Err(unexpected(&other)),
        }
    }
}
