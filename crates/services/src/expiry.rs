//! Accounts that expire: the loop that disables them when their moment has come, and stops what their owners run. It
//! takes no input and can be repeated: what it could not stop is there in the next round. That a credential is worth
//! nothing from that moment on is `auth::access`' business, and does not wait for this loop.

use std::{sync::Arc, time::Duration};

use crate::{auth::Access, sessions::Sessions};
use lyceum_db::{self as db, Db, audit::Entry};
use lyceum_model::{Clock, EndReason, Loops, SessionId, SweepId, SweepState, loops::Round};

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(3);

/// Why work ends, for its owner and for the audit log.
const REASON: &str = "The account expired";

/// The loop with what it acts on.
#[derive(Clone)]
pub struct Expiry {
    pub db: Db,
    pub clock: Clock,
    pub access: Arc<Access>,
    pub sessions: Arc<Sessions>,
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
        loop {
            let round = loops.begin("expiry of accounts", Some(INTERVAL));
            let looked = self.look(&round).await;
            if let Err(error) = &looked {
                tracing::warn!(error = error as &dyn std::error::Error, "failed to look for accounts that expire");
            }
            round.end(&looked);
            tokio::time::sleep(INTERVAL).await;
        }
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
