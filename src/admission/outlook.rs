//! What would be decided about each of those who wait, from one look at all of them. Whoever keeps at
//! it has to decide again about those alone for whom that is something new.

use super::{Admission, Manner, Rehearsal, request};
use crate::{
    db,
    model::{Session, quota::Reason},
};

/// One look.
#[derive(Debug)]
pub struct Outlook {
    seen: db::outlook::Outlook,
    /// Whether the portal is one person's.
    single: bool,
}

impl Admission {
    pub async fn outlook(&self) -> db::Result<Outlook> {
        let single = self.db.is_for_one().await?;
        let seen = self.db.outlook(&self.period, self.clock.now()).await?;
        Ok(Outlook { seen, single })
    }

    /// What [`Admission::reconsider`] would decide, if nothing has happened since the look; `None` where
    /// the session did not wait then.
    pub fn foresee(&self, outlook: &Outlook, session: &Session, hold: Option<Reason>) -> db::Result<Option<Rehearsal>> {
        let Some(facts) = outlook.seen.facts(session.owner, session.id)? else { return Ok(None) };
        let asked = request(&session.spec, session.class());
        let manner = Manner { single: outlook.single, already_waiting: true, hands_on: self.kept.is_some() };
        Ok(Some(self.judge_whole(&asked, &facts, manner, hold)))
    }
}
