//! One look at all who wait, for whoever decides about each of them: most decisions change nothing,
//! and need no transaction. Nothing is reserved here, and what is to be changed is decided again by
//! `admit`, under its lock.

use std::collections::HashMap;

use sqlx::query_as;

use super::{
    Db, Result,
    facts::{ASKER, Facts, LATELY, LIVE, Live, Party, RECENT, Scene},
    quotas::{SHARES, ShareRow},
    reading,
    standing::bounds,
    together::together,
};
use crate::model::{GroupId, SessionId, Timestamp, UserId, quota::Period};

/// What decisions about those who wait would be made from at one moment.
#[derive(Debug)]
pub struct Outlook {
    scene: Scene,
    parties: HashMap<(UserId, Option<GroupId>), Party>,
}

impl Outlook {
    /// For one that waits; `None` where it did not wait at that moment.
    pub fn facts(&self, owner: UserId, id: SessionId) -> Result<Option<Facts>> {
        if !self.scene.waits(id) {
            return Ok(None);
        }
        let party = self.parties.get(&(owner, self.scene.group_of(id)));
        party.map(|party| self.scene.facts(party, Some(id))).transpose()
    }
}

impl Db {
    /// Looks at everybody who waits, in one moment.
    pub async fn outlook(&self, period: &Period, at: Timestamp) -> Result<Outlook> {
        let window = period.window(at);
        Ok(reading!(self, pool => {
            let mut tx = pool.begin().await?;
            let live: Vec<Live> = query_as(LIVE).fetch_all(&mut *tx).await?;
            let recent = query_as(RECENT).bind(at.plus_seconds(-LATELY).0).bind("").bind(at.0).fetch_all(&mut *tx).await?;
            let shares: Vec<ShareRow> = query_as(SHARES).bind(at.0).fetch_all(&mut *tx).await?;
            // Whoever waits is among those who are told of.
            let together = together!(tx, "");
            let scene = Scene::of(at, window, live, recent, &shares, together)?;
            let mut parties = HashMap::new();
            for (owner, group) in scene.parties() {
                let (id, groups) = (owner.to_string(), scene.counts_in(owner, group));
                let bounds = bounds!(tx, &*id, group, &groups, &shares, scene.together(), window, at, (false, false));
                let asker = query_as(ASKER).bind(&id).fetch_one(&mut *tx).await?;
                parties.insert((owner, group), Party { owner, group, bounds, asker });
            }
            Outlook { scene, parties }
        }))
    }
}
