//! What would be decided about each of those who wait, from one look at all of them. Whoever keeps at
//! it has to decide again about those alone for whom that is something new, and about nobody where two looks are alike.

use super::{Admission, DecisionContext, DryRun, request, slurm_limits::SharedSlurmLimits};
use lyceum_db as db;
use lyceum_model::{Session, quota::Reason};

/// One look.
#[derive(Debug)]
pub struct Outlook {
    seen: db::outlook::Outlook,
    /// Whether the portal is one person's.
    single_user_mode: bool,
    /// The same for two looks that found the same: what is stored, and what the machines and Slurm offer.
    pub digest: u64,
}

impl Admission {
    pub async fn outlook(&self) -> db::Result<Outlook> {
        let single_user_mode = self.db.single_user_mode().await?;
        let seen = self.db.outlook(&self.period, self.clock.now()).await?;
        // As text, in which no part can be forgotten. A list that is exchanged for an equal one may read differently,
        // which costs one more pass.
        let offered = format!(
            "{:?} {:?} {:?} {:?} {:?}",
            self.stock.capacity(),
            self.stock.inventory(),
            self.blocked_gpus.0.read(),
            self.external_usage.all(),
            self.slurm_limits.as_ref().map(SharedSlurmLimits::text),
        );
        let digest = db::outlook::digest((seen.digest, single_user_mode, offered));
        Ok(Outlook { seen, single_user_mode, digest })
    }

    /// What [`Admission::reconsider`] would decide, if nothing has happened since the look; `None` where
    /// the session did not wait then.
    pub fn foresee(&self, outlook: &Outlook, session: &Session, hold: Option<Reason>) -> db::Result<Option<DryRun>> {
        let Some(facts) = outlook.seen.facts(session.owner, session.id)? else { return Ok(None) };
        let asked = request(&session.spec, session.class());
        let context = DecisionContext {
            single_user_mode: outlook.single_user_mode,
            already_waiting: true,
            hands_on: self.slurm_limits.is_some(),
        };
        Ok(Some(self.decide_with_maintenance(&asked, &facts, context, hold)))
    }
}
