//! Everybody's limits at once, for those who hand all of them on. One person's, with what bears on
//! them, are `Standing`'s.

use std::collections::HashMap;

use super::Admission;
use lyceum_db as db;
use lyceum_model::{UserId, quota::Limits};

/// Resolves the limits of each user.
#[derive(Clone, Debug)]
pub struct UserLimits {
    own: HashMap<UserId, Limits>,
    /// Of those for whom nothing is set.
    others: Limits,
}

impl UserLimits {
    #[must_use]
    pub fn of(&self, user: UserId) -> &Limits {
        self.own.get(&user).unwrap_or(&self.others)
    }
}

impl Admission {
    pub async fn limits_of_everybody(&self) -> db::Result<UserLimits> {
        let (single_user_mode, now) = (self.db.single_user_mode().await?, self.clock.now());
        let (defaults, own) = self.db.limits_of_everybody().await?;
        let resolve = |user, rows: &[_]| self.resolve_at_most(user, None, rows, (single_user_mode, now));
        let own = own.into_iter().map(|(user, rows)| (user, resolve(Some(user), &[defaults.clone(), rows].concat())));
        Ok(UserLimits { own: own.collect(), others: resolve(None, &defaults) })
    }
}
