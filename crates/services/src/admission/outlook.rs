//! What would be decided about each of those who wait, from one look at all of them. Whoever keeps at
//! it has to decide again about those alone for whom that is something new.

use super::{Admission, DecisionContext, DryRun, request};
use lyceum_db as db;
use lyceum_model::{Session, quota::Reason};

/// One look.
#[derive(Debug)]
pub struct Outlook {
    seen: db::outlook::Outlook,
    /// Whether the portal is one person's.
    single_user_mode: bool,
}

impl Admission {
    pub async fn outlook(&self) -> db::Result<Outlook> {
        let single_user_mode = self.db.single_user_mode().await?;
        let seen = self.db.outlook(&self.period, self.clock.now()).await?;
        Ok(Outlook { seen, single_user_mode })
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
