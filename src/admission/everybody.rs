//! Everybody's limits at once, for those who hand all of them on. One person's, with what bears on
//! them, are `Standing`'s.

use std::collections::HashMap;

use super::Admission;
use crate::{
    db,
    model::{UserId, quota::Limits},
};

/// What binds each person.
#[derive(Clone, Debug)]
pub struct Everybody {
    own: HashMap<UserId, Limits>,
    /// Of those for whom nothing is set.
    others: Limits,
}

impl Everybody {
    #[must_use]
    pub fn of(&self, user: UserId) -> &Limits {
        self.own.get(&user).unwrap_or(&self.others)
    }
}

impl Admission {
    pub async fn limits_of_everybody(&self) -> db::Result<Everybody> {
        let (single, now) = (self.db.is_for_one().await?, self.clock.now());
        let (defaults, own) = self.db.limits_of_everybody().await?;
        let resolve = |user, rows: &[_]| self.resolve_at_most(user, None, rows, (single, now));
        let own = own.into_iter().map(|(user, rows)| (user, resolve(Some(user), &[defaults.clone(), rows].concat())));
        Ok(Everybody { own: own.collect(), others: resolve(None, &defaults) })
    }
}
