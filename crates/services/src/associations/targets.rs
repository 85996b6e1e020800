//! What the portal's limits come to in Slurm's terms, read from the database: for everybody by
//! their Unix account, and for each group that has an account of Slurm's. Who is in such a group
//! is told with it, because Slurm lets nobody in who has no association there.

use std::collections::BTreeMap;

use super::plan::{TargetAssociations, amounts, written};
use lyceum_db::{self as db, quotas::Level};
use lyceum_model::{
    User,
    quota::{Kind, Limit, Limits},
    user::State,
};

use crate::admission::Admission;

/// The Unix accounts of the people of groups, by the account that is charged for the group.
pub(super) type Members = BTreeMap<String, Vec<String>>;

pub(super) async fn wanted(
    admission: &Admission,
    accounts: &BTreeMap<String, String>,
) -> db::Result<(TargetAssociations, Members)> {
    let users = admission.db.list_users().await?;
    let limits = admission.limits_of_everybody().await?;
    let in_slurm = |limits: &Limits| amounts(limits.iter().map(|(field, effective)| (field, written(effective))));
    let mut wanted = TargetAssociations::default();
    // An account that was named for somebody is theirs, also where somebody else is called so.
    for (account, user) in unix_accounts(&users) {
        wanted.each.insert(account.to_owned(), in_slurm(limits.of(user.id)));
    }
    let mut members = Members::new();
    for (group, account) in accounts {
        let found = admission.db.find_quota_group(group).await?;
        let Some(found) = found.filter(|found| found.absent_since.is_none()) else { continue };
        let now = admission.clock.now();
        let set = admission.db.limits_at(Level::Group(found.id)).await?;
        let holds = set.iter().filter(|limit| limit.kind == Kind::Total);
        let holds = holds.filter(|limit| limit.terms.expires_at.is_none_or(|end| now < end));
        let totals = amounts(holds.map(|limit| (&limit.field, Limit::of(limit.terms.value))));
        wanted.totals.insert(account.clone(), totals);
        let is_in = |user: &&User| user.state() == State::Active && user.groups.contains(group);
        let people = users.iter().filter(is_in).map(|user| unix_account(user).to_owned());
        members.insert(account.clone(), people.collect());
    }
    Ok((wanted, members))
}

pub(super) fn unix_account(user: &User) -> &str {
    user.unix_name.as_deref().unwrap_or(user.name.as_str())
}

/// Whose workloads run as which account.
fn unix_accounts(users: &[User]) -> BTreeMap<&str, &User> {
    let (named, others): (Vec<&User>, Vec<&User>) = users.iter().partition(|user| user.unix_name.is_some());
    let mut accounts = BTreeMap::new();
    for user in named.into_iter().chain(others) {
        accounts.entry(unix_account(user)).or_insert(user);
    }
    accounts
}
