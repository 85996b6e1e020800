//! What a change of limits would mean, told before it is made: who would hold more than they
//! may. Nothing is stopped for that, they only start nothing more; and nothing is written here.

use super::Admission;
use crate::{
    db::{
        self,
        limits::{LevelChange, Marks},
        quotas::{Level, QuotaGroup},
    },
    model::{
        UserId,
        quota::{Change, Field, Kind, Limit, LimitRow, Limits, Scope, Unit, Usage},
    },
};

/// Somebody, or all together, who would hold more than a change allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// `None` where a total would be exceeded.
    pub user: Option<String>,
    /// Where the limit comes from.
    pub scope: String,
    pub field: Field,
    pub used: i64,
    pub limit: i64,
}

impl Admission {
    /// Who would hold more than they may after these changes.
    pub async fn preview(&self, changes: &[LevelChange]) -> db::Result<Vec<Over>> {
        let single = self.db.count_users().await? <= 1;
        let now = self.clock.now();
        let holdings = self.db.holdings().await?;
        let mut over = Vec::new();
        for (user, name, usage) in &holdings.by_user {
            let mut concerning = Vec::new();
            for change in changes {
                concerning.extend(self.scope_for(*user, change).await?.map(|scope| (scope, change)));
            }
            if concerning.is_empty() {
                continue;
            }
            let mut rows = self.db.limits_of(*user).await?;
            let before = Limits::resolve(&rows, &self.capacity, single, now);
            for (scope, change) in &concerning {
                apply(&mut rows, scope, &change.changes);
            }
            let after = Limits::resolve(&rows, &self.capacity, single, now);
            for (field, effective) in after.iter().filter(|(field, after)| after.limit < before.of(field).limit) {
                over.extend(exceeds(field, effective.limit, usage).map(|(used, limit)| Over {
                    user: Some(name.clone()),
                    scope: effective.source.to_string(),
                    field: field.clone(),
                    used,
                    limit,
                }));
            }
        }
        for change in changes {
            let (scope, usage) = match change.level {
                Level::Cluster => ("cluster".to_owned(), holdings.all.clone()),
                Level::Group(group) => match self.db.find_quota_group(&group.to_string()).await? {
                    Some(found) => {
                        let usage = holdings.by_group.get(&group).cloned().unwrap_or_default();
                        (format!("group {}", found.name), usage)
                    }
                    None => continue,
                },
                Level::Default | Level::User(_) => continue,
            };
            for Change { field, to, .. } in change.changes.iter().filter(|change| change.kind == Kind::Total) {
                let limit = to.as_ref().map_or(Limit::Unlimited, |terms| Limit::of(terms.value));
                over.extend(exceeds(field, limit, &usage).map(|(used, limit)| Over {
                    user: None,
                    scope: scope.clone(),
                    field: field.clone(),
                    used,
                    limit,
                }));
            }
        }
        Ok(over)
    }

    /// The scope of the rows that a change makes for somebody, if it concerns them.
    async fn scope_for(&self, user: UserId, change: &LevelChange) -> db::Result<Option<Scope>> {
        Ok(match change.level {
            Level::Default => Some(Scope::Default),
            Level::User(changed) => (changed == user).then_some(Scope::User),
            Level::Group(group) => {
                self.db.membership(user, group).await?.map(|group| scope_of_group(group, change.marks))
            }
            Level::Cluster => None,
        })
    }
}

fn scope_of_group(group: QuotaGroup, marks: Marks) -> Scope {
    Scope::Group { name: group.name, restrictive: marks.restrictive.unwrap_or(group.restrictive) }
}

/// The rows as they will be.
fn apply(rows: &mut Vec<LimitRow>, scope: &Scope, changes: &[Change]) {
    for Change { field, to, .. } in changes.iter().filter(|change| change.kind == Kind::Each) {
        rows.retain(|row| !(same_level(&row.scope, scope) && row.field == *field));
        rows.extend(to.as_ref().map(|terms| LimitRow {
            scope: scope.clone(),
            field: field.clone(),
            value: terms.value,
            expires_at: terms.expires_at,
            note: None,
        }));
    }
    // A mark counts for all that the group gives.
    for row in rows.iter_mut().filter(|row| same_level(&row.scope, scope)) {
        row.scope = scope.clone();
    }
}

/// Groups of one person that are called the same count as one here.
fn same_level(one: &Scope, other: &Scope) -> bool {
    match (one, other) {
        (Scope::Group { name, .. }, Scope::Group { name: other, .. }) => name == other,
        _ => one == other,
    }
}

/// Used and limit, where more is used. Hours are not looked at: what they run over is refused
/// later, and nobody holds them.
fn exceeds(field: &Field, limit: Limit, usage: &Usage) -> Option<(i64, i64)> {
    let Limit::AtMost(limit) = limit else { return None };
    let used = usage.of(field);
    (limit < used && field.unit() != Unit::Hours).then_some((used, limit))
}
