//! What a change of limits would mean, told before it is made: who would hold more than they
//! may, whose hours are used up already, and which waiting requests could never start any more.
//! Nothing that runs is stopped for that, its owners only start nothing more; and nothing is
//! written here.

use std::collections::{BTreeMap, HashMap, btree_map::Entry};

use super::Admission;
use lyceum_db::{
    self as db,
    facts::{Holdings, WaitingWorkload},
    limits::{GroupFlags, LevelChange},
    limits_and_usage::Requester,
    quotas::{Level, QuotaGroup},
    usage::{self, UsageFilter, UsageGrouping, Used},
};
use lyceum_model::{
    GroupId, Timestamp, UserId,
    quota::{
        Change, ConsumedTime, Decision, Field, Kind, Limit, LimitRow, Limits, Reason, Scope, Situation, Source, Total,
        TotalScope, Usage, decide,
    },
};

/// Describes the effects of a change of limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangePreview {
    pub over: Vec<ExceededLimit>,
    /// Requests that wait and would be ended as refused.
    pub refused: Vec<ImpossibleRequest>,
}

/// Somebody, or all together, who would hold, or have used, more than a change allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceededLimit {
    /// `None` where a total would be exceeded.
    pub user: Option<String>,
    /// Where the limit comes from.
    pub source: Source,
    pub field: Field,
    pub used: i64,
    pub limit: i64,
}

/// Names a waiting request that could never start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpossibleRequest {
    pub user: String,
    /// What its owner calls it.
    pub name: String,
    /// What its owner would read.
    pub reason: Reason,
}

/// Hours of the period, what runs counted to its end, where a change is about them.
#[derive(Default)]
struct Hours {
    people: HashMap<UserId, (String, Usage)>,
    all: Usage,
}

impl Admission {
    /// What these changes would mean.
    pub async fn preview(&self, changes: &[LevelChange]) -> db::Result<ChangePreview> {
        let single_user_mode = self.db.single_user_mode().await?;
        let now = self.clock.now();
        let holdings = self.holdings().await?;
        let hours = self.hours_of(changes, &holdings, now).await?;
        let mut people: BTreeMap<UserId, (String, Usage)> =
            holdings.by_user.iter().map(|(user, name, usage)| (*user, (name.clone(), usage.clone()))).collect();
        for (user, (name, used)) in hours.people.iter().filter(|(_, (_, used))| could_be_over(changes, used)) {
            match people.entry(*user) {
                Entry::Occupied(mut known) => add_hours(&mut known.get_mut().1, used),
                Entry::Vacant(new) => drop(new.insert((name.clone(), used.clone()))),
            }
        }
        let mut told = ChangePreview::default();
        let mut limits: HashMap<UserId, (Limits, Limits)> = HashMap::new();
        for (user, (name, usage)) in &people {
            let mut concerning = Vec::new();
            for change in changes {
                concerning.extend(self.scopes_for(*user, change).await?.map(|scopes| (scopes, change)));
            }
            if concerning.is_empty() && usage.pending == 0 {
                continue;
            }
            let mut rows = self.db.limits_of(*user).await?;
            let before = self.resolve_for_default_group(*user, &rows, (single_user_mode, now));
            for (scopes, change) in &concerning {
                apply(&mut rows, scopes, &change.changes);
            }
            let after = self.resolve_for_default_group(*user, &rows, (single_user_mode, now));
            for (field, effective) in after.iter().filter(|(field, after)| after.limit < before.of(field).limit) {
                told.over.extend(exceeds(field, effective.limit, usage).map(|(used, limit)| ExceededLimit {
                    user: Some(name.clone()),
                    source: effective.source.clone(),
                    field: field.clone(),
                    used,
                    limit,
                }));
            }
            limits.insert(*user, (before, after));
        }
        told.over.sort_by(|one, other| one.user.cmp(&other.user));
        for change in changes {
            let (source, mut usage, used) = match change.level {
                Level::Cluster => (Source::Cluster, holdings.all.clone(), Some(&hours.all)),
                Level::Group(group) => match self.db.find_quota_group(&group.to_string()).await? {
                    Some(found) => {
                        let by_model = holdings.by_group.get(&group).map(|held| held.gpus_by_model.clone());
                        let usage = self.counted_in(group, &holdings, now).await?;
                        let gpus_by_model = by_model.unwrap_or_default();
                        (Source::Group(found.name), Usage { gpus_by_model, ..usage }, None)
                    }
                    None => continue,
                },
                Level::Default | Level::User(_) => continue,
            };
            if let Some(used) = used {
                add_hours(&mut usage, used);
            }
            for (field, limit) in totals(change) {
                told.over.extend(exceeds(&field, limit, &usage).map(|(used, limit)| ExceededLimit {
                    user: None,
                    source: source.clone(),
                    field: field.clone(),
                    used,
                    limit,
                }));
            }
        }
        for waiting in &holdings.waiting {
            let (Some((name, usage)), Some(limits)) = (people.get(&waiting.owner), limits.get(&waiting.owner)) else {
                continue;
            };
            let reason = self.never_again(waiting, limits, usage, changes, now).await?;
            let (user, name) = (name.clone(), waiting.name.clone());
            told.refused.extend(reason.map(|reason| ImpossibleRequest { user, name, reason }));
        }
        told.refused.sort_by(|one, other| (&one.user, &one.name).cmp(&(&other.user, &other.name)));
        Ok(told)
    }

    /// Why a request that waits could never start any more after these changes, if so.
    async fn never_again(
        &self,
        waiting: &WaitingWorkload,
        (before, after): &(Limits, Limits),
        usage: &Usage,
        changes: &[LevelChange],
        now: Timestamp,
    ) -> db::Result<Option<Reason>> {
        // Nobody holds anything: what does not fit now never will.
        let none = Usage::default();
        let mut used = Usage::default();
        add_hours(&mut used, usage);
        let mut together = Vec::new();
        for change in changes {
            let whose = match change.level {
                Level::Cluster => TotalScope::Cluster,
                Level::Group(id) if waiting.groups.contains(&id) => {
                    let found = self.db.find_quota_group(&id.to_string()).await?;
                    let (name, is_charged) = found.map(|found| (found.name, found.chargeable)).unwrap_or_default();
                    TotalScope::Group { id, name, is_charged }
                }
                _ => continue,
            };
            together.push(Total { whose, limits: totals(change), usage: none.clone() });
        }
        let window = self.period.window(now);
        let judged = |limits: &Limits, totals: &[Total]| {
            let situation = Situation {
                limits,
                usage: &used,
                totals,
                in_use: &none,
                capacity: self.stock.capacity(),
                period: &self.period,
                period_left: window.to.map(|to| to.seconds_since(now)),
                own: &[],
                goes_to_slurm: false,
                already_waiting: true,
            };
            decide(&waiting.request, &situation)
        };
        Ok(match (judged(before, &[]), judged(after, &together)) {
            (Decision::Admit | Decision::Wait(_), Decision::Refuse(reasons)) => reasons.into_iter().next(),
            _ => None,
        })
    }

    /// What counts in a group, with its hours of the period, also where it sets no total yet.
    async fn counted_in(&self, group: GroupId, holdings: &Holdings, now: Timestamp) -> db::Result<Usage> {
        // Whoever asks, totals are the same.
        let asking = Requester {
            owner: UserId::new(),
            group: Some(group),
            period: &self.period,
            holds_at_once: self.holds_at_once,
        };
        let totals = self.db.usage_with_hours(&asking, now).await?.totals;
        let is_its = |total: &Total| matches!(total.whose, TotalScope::Group { id, .. } if id == group);
        let mut usage = totals.into_iter().find(is_its).map(|total| total.usage).unwrap_or_default();
        usage.add_held(&self.external_usage.counted(Some(group), &holdings.together));
        Ok(usage)
    }

    /// What was used of the period, and what runs may still use of it, as a decision counts it; nothing
    /// where no change is about hours.
    async fn hours_of(&self, changes: &[LevelChange], holdings: &Holdings, now: Timestamp) -> db::Result<Hours> {
        let mut fields = changes.iter().flat_map(|change| &change.changes).map(|change| &change.field);
        if !fields.any(|field| matches!(field, Field::GpuHours | Field::CpuHours)) {
            return Ok(Hours::default());
        }
        let window = self.period.window(now);
        let (from, whose, sort) = (window.from, usage::UsageOwner::Everybody, usage::Sort::default());
        let asked = |by| UsageFilter { by, whose, from, to: now, now, sort, page: None };
        let people = self.db.used(&asked(UsageGrouping::User)).await?;
        let mut all = people.total;
        let spent = |row: &Used| ConsumedTime {
            gpu_milliseconds: row.gpu_milliseconds,
            cpu_milliseconds: row.cpu_milliseconds,
        };
        let person = |row: Used| Some((row.id.parse().ok()?, (row.name.to_string(), spent(&row))));
        let mut of_people: HashMap<UserId, (String, ConsumedTime)> =
            people.rows.into_iter().filter_map(person).collect();
        let called: HashMap<UserId, &String> = holdings.by_user.iter().map(|(user, name, _)| (*user, name)).collect();
        for committed in self.db.committed(window, now).await? {
            add(&mut all, committed.spent);
            let fresh = || {
                (called.get(&committed.owner).map_or_else(String::new, |name| (*name).clone()), ConsumedTime::default())
            };
            add(&mut of_people.entry(committed.owner).or_insert_with(fresh).1, committed.spent);
        }
        Ok(Hours {
            all: hours(all),
            people: of_people.into_iter().map(|(user, (name, spent))| (user, (name, hours(spent)))).collect(),
        })
    }

    /// The scopes of the rows that a change makes for somebody, if it concerns them.
    async fn scopes_for(&self, user: UserId, change: &LevelChange) -> db::Result<Option<Scopes>> {
        let only = |each| Scopes { each, raised: None };
        Ok(match change.level {
            Level::Default => Some(only(Scope::Default)),
            Level::User(changed) => (changed == user).then_some(only(Scope::User)),
            Level::Group(group) => {
                self.db.membership(user, group).await?.map(|group| scopes_of_group(group, change.marks))
            }
            Level::Cluster => None,
        })
    }
}

/// Of the rows that a change makes for each person.
struct Scopes {
    each: Scope,
    /// Of a group: what its managers give.
    raised: Option<Scope>,
}

fn scopes_of_group(group: QuotaGroup, marks: GroupFlags) -> Scopes {
    let chargeable = marks.chargeable.unwrap_or(group.chargeable);
    let raised = Some(Scope::Raised { group: group.id, name: group.name.clone(), chargeable });
    let restrictive = marks.restrictive.unwrap_or(group.restrictive);
    Scopes { each: Scope::Group { name: group.name, restrictive }, raised }
}

/// The rows as they will be.
fn apply(rows: &mut Vec<LimitRow>, Scopes { each, raised }: &Scopes, changes: &[Change]) {
    let is_raise = |row: &LimitRow| raised.as_ref().is_some_and(|raised| same_level(&row.scope, raised));
    for Change { kind, field, to } in changes {
        let scope = match (kind, raised) {
            (Kind::Each, _) => each,
            (Kind::Raised, Some(raised)) => raised,
            (Kind::Raised, None) | (Kind::Total, _) => continue,
        };
        rows.retain(|row| !(same_level(&row.scope, scope) && row.field == *field));
        if *kind == Kind::Each {
            // An administrator's word takes the place of what managers gave.
            rows.retain(|row| !(is_raise(row) && row.field == *field));
        }
        rows.extend(to.as_ref().map(|terms| LimitRow {
            scope: scope.clone(),
            field: field.clone(),
            value: terms.value,
            expires_at: terms.expires_at,
            note: None,
        }));
    }
    // A mark counts for all that the group gives.
    for scope in std::iter::once(each).chain(raised) {
        for row in rows.iter_mut().filter(|row| same_level(&row.scope, scope)) {
            row.scope = scope.clone();
        }
    }
}

/// Groups of one person that are called the same count as one here.
fn same_level(one: &Scope, other: &Scope) -> bool {
    match (one, other) {
        (Scope::Group { name, .. }, Scope::Group { name: other, .. }) => name == other,
        (Scope::Raised { group, .. }, Scope::Raised { group: other, .. }) => group == other,
        _ => one == other,
    }
}

/// What a change sets for all together.
fn totals(change: &LevelChange) -> Vec<(Field, Limit)> {
    let totals = change.changes.iter().filter(|change| change.kind == Kind::Total);
    let limit = |change: &Change| change.to.as_ref().map_or(Limit::Unlimited, |terms| Limit::of(terms.value));
    totals.map(|change| (change.field.clone(), limit(change))).collect()
}

/// Whether somebody who holds nothing has used more hours than the least that is set, so that it is
/// worth a look at what binds them.
fn could_be_over(changes: &[LevelChange], used: &Usage) -> bool {
    let each = changes.iter().flat_map(|change| &change.changes).filter(|change| change.kind == Kind::Each);
    let mut hours = each.filter(|change| matches!(change.field, Field::GpuHours | Field::CpuHours));
    hours.any(|change| {
        let least = change.to.as_ref().map_or(Limit::AtMost(0), |terms| Limit::of(terms.value));
        exceeds(&change.field, least, used).is_some()
    })
}

fn add(sum: &mut ConsumedTime, more: ConsumedTime) {
    sum.gpu_milliseconds = sum.gpu_milliseconds.saturating_add(more.gpu_milliseconds);
    sum.cpu_milliseconds = sum.cpu_milliseconds.saturating_add(more.cpu_milliseconds);
}

/// In seconds, rounded up, as they are told.
fn hours(spent: ConsumedTime) -> Usage {
    Usage {
        gpu_seconds: spent.gpu_milliseconds.saturating_add(999) / 1000,
        cpu_seconds: spent.cpu_milliseconds.saturating_add(999) / 1000,
        ..Usage::default()
    }
}

fn add_hours(usage: &mut Usage, used: &Usage) {
    usage.gpu_seconds = usage.gpu_seconds.saturating_add(used.gpu_seconds);
    usage.cpu_seconds = usage.cpu_seconds.saturating_add(used.cpu_seconds);
}

/// Used and limit, where more is used.
fn exceeds(field: &Field, limit: Limit, usage: &Usage) -> Option<(i64, i64)> {
    let Limit::AtMost(limit) = limit else { return None };
    let used = usage.of(field);
    (limit < used).then_some((used, limit))
}
