//! Accounts that expire, and accounts that nobody uses: the loop that disables them, and stops what the owners of expired
//! ones run. It can be repeated: what it could not stop is there in the next round. That a credential is worth
//! nothing from that moment on is `auth::access`' business, and does not wait for this loop.

use std::{sync::Arc, time::Duration};

use crate::{auth::Access, sessions::Sessions};
use lyceum_db::{self as db, Db, audit::Entry};
use lyceum_model::{Clock, EndReason, Loops, SessionId, SweepId, SweepState, loops::Round};

/// How often it looks for accounts that expire.
const INTERVAL: Duration = Duration::from_secs(3);

/// How often it looks for accounts that nobody uses (seconds).
const DORMANT_INTERVAL: i64 = 3600;

/// Why work ends, for its owner and for the audit log.
const REASON: &str = "The account expired";

/// The loop with what it acts on.
#[derive(Clone)]
pub struct Expiry {
    pub db: Db,
    pub clock: Clock,
    pub access: Arc<Access>,
    pub sessions: Arc<Sessions>,
    /// Accounts that nobody uses for so long are disabled (seconds); `None`: never.
    pub dormant_after: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Db(#[from] db::Error),
    #[error(transparent)]
    Access(#[from] crate::auth::Error),
    #[error(transparent)]
    Sessions(#[from] crate::sessions::Error),
}

impl Expiry {
    /// Looks at the start and every few seconds, for ever.
    pub async fn run(self, loops: Loops) {
        let mut next = self.clock.now();
        loop {
            let round = loops.begin("expiry of accounts", Some(INTERVAL));
            let mut looked = self.look(&round).await;
            let now = self.clock.now();
            if looked.is_ok() && next <= now {
                looked = self.look_for_unused(&round).await;
                next = now.plus_seconds(DORMANT_INTERVAL);
            }
            if let Err(error) = &looked {
                tracing::warn!(error = error as &dyn std::error::Error, "failed to look for accounts that expire");
            }
            round.end(&looked);
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Looks once for accounts that nobody uses. A failure with one does not stop the others.
    pub async fn look_for_unused(&self, round: &Round) -> Result<(), Error> {
        let Some(seconds) = self.dormant_after else { return Ok(()) };
        let now = self.clock.now();
        let since = now.plus_seconds(-seconds);
        let mut is_news = false;
        for user in self.db.unused_accounts(since).await? {
            let made = self.db.make_dormant(user, since, now).await;
            if round.unless_failed(format_args!("account {user}"), made) == Some(true) {
                tracing::info!(user.id = %user, "account disabled, because nobody used it");
                is_news = true;
            }
        }
        if is_news {
            self.access.poll().await?;
        }
        Ok(())
    }

    /// Looks once. A failure with one account, session or job does not stop the others.
    pub async fn look(&self, round: &Round) -> Result<(), Error> {
        let now = self.clock.now();
        let mut is_news = false;
        for user in self.db.accounts_to_expire(now).await? {
            let expired = self.db.expire_account(user, now).await;
            if round.unless_failed(format_args!("account {user}"), expired) == Some(true) {
                tracing::info!(user.id = %user, "account expired");
                is_news = true;
            }
        }
        if is_news {
            self.access.poll().await?;
        }
        let left = self.db.work_of_expired_accounts().await?;
        // Sweeps come first, so that none submits another task meanwhile.
        for (sweep, name) in left.sweeps {
            let stopped = self.stop_sweep(sweep, &name).await;
            round.unless_failed(format_args!("sweep {sweep}"), stopped);
        }
        for job in left.jobs {
            let settled = self.db.settle_job(job).await;
            round.unless_failed(format_args!("job {job}"), settled);
        }
        for session in left.sessions {
            let stopped = self.stop(session).await;
            round.unless_failed(format_args!("session {session}"), stopped);
        }
        Ok(())
    }

    async fn stop_sweep(&self, id: SweepId, name: &str) -> Result<(), Error> {
        let (at, subject) = (self.clock.now(), id.to_string());
        let noted = Entry { at, actor: "portal", action: "sweep.stop", subject: &subject, detail: name };
        let from = [SweepState::Running, SweepState::Paused];
        self.db.set_sweep_state(id, &from, (SweepState::Stopping, ""), Some(&noted)).await?;
        Ok(())
    }

    async fn stop(&self, id: SessionId) -> Result<(), Error> {
        if let Some(session) = self.db.find_session(id).await? {
            self.sessions.end_because(&session, EndReason::StoppedByAdmin, REASON).await?;
        }
        Ok(())
    }
}
