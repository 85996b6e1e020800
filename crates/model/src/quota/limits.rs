//! Which limit binds somebody, field by field, and where it comes from: their own unexpired
//! row, else the most generous of their groups within what restrictive groups allow, else
//! the default that an administrator set, else what a fresh install gives. What the manager of a
//! chargeable group gives its members only raises that, within what restrictive groups allow.

use std::collections::BTreeSet;

use super::{Effective, Field, Limit, LimitRow, Scope, Source};
use crate::{Capacity, Timestamp};

/// The effective limit of every field, complete by construction, and of the GPU models that
/// somebody limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    each: Vec<(Field, Effective)>,
    /// What one workload may have of a field at most, where somebody says so beside the limits.
    most: Vec<(Field, Effective)>,
    /// How much may be in Slurm at once, also in its queue, where Slurm says so.
    handed_in: Option<Effective>,
}

impl Limits {
    /// Resolves every field. With one account everything belongs to it; as soon as there is a
    /// second one, a person gets one GPU by default.
    #[must_use]
    pub fn resolve(rows: &[LimitRow], capacity: &Capacity, single_account: bool, now: Timestamp) -> Self {
        let live: Vec<&LimitRow> =
            rows.iter().filter(|row| row.expires_at.is_none_or(|expires_at| now < expires_at)).collect();
        let models: BTreeSet<&Field> =
            live.iter().map(|row| &row.field).filter(|field| matches!(field, Field::GpusOf(_))).collect();
        let fields = Field::ALL.into_iter().chain(models.into_iter().cloned());
        let each = fields.map(|field| (field.clone(), effective(&field, &live, capacity, single_account)));
        Self { each: each.collect(), most: Vec::new(), handed_in: None }
    }

    /// The same, with what Slurm says wherever it keeps the limits itself. What it does not limit is
    /// as much as the machine has, or as anybody likes.
    #[must_use]
    pub fn with_slurms(self, slurms: &SlurmLimits, capacity: &Capacity) -> Self {
        let unlimited = |field: &Field| match field {
            Field::Gpus => machines(capacity.gpus),
            Field::Cpus => machines(capacity.cpus),
            Field::MemoryBytes => machines(capacity.memory_bytes),
            _ => Effective { limit: Limit::Unlimited, source: slurms.source.clone() },
        };
        let said = |field: &Field| slurms.each.iter().find(|(name, _)| name == field).map(|(_, limit)| limit.clone());
        let mut each = self.each;
        each.retain(|(field, _)| !matches!(field, Field::GpusOf(_)));
        for (field, effective) in each.iter_mut().filter(|(field, _)| field.is_slurms()) {
            *effective = said(field).unwrap_or_else(|| unlimited(field));
        }
        let models = slurms.each.iter().filter(|(field, _)| matches!(field, Field::GpusOf(_)));
        each.extend(models.cloned());
        Self { each, most: slurms.most.clone(), handed_in: slurms.handed_in.clone() }
    }

    /// How many sessions and jobs may be in Slurm at once, also in its queue: it takes no more than that.
    pub fn handed_in(&self) -> Option<&Effective> {
        self.handed_in.as_ref()
    }

    /// What one workload may have of a field, where that is said beside what its owner may have.
    pub fn most_of(&self, field: &Field) -> Option<&Effective> {
        self.most.iter().find(|(name, _)| name == field).map(|(_, effective)| effective)
    }

    /// The limit of a field; that of a GPU model which nobody limited is none.
    pub fn of(&self, field: &Field) -> &Effective {
        self.each.iter().find(|(name, _)| name == field).map_or(&Effective::NONE, |(_, effective)| effective)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Field, &Effective)> {
        self.each.iter().map(|(field, effective)| (field, effective))
    }
}

/// Holds a user's Slurm limits, in the portal's fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmLimits {
    /// The account, or why there is none.
    pub source: Source,
    /// The account; empty where Slurm knows them in none that they would charge.
    pub account: String,
    /// The qualities of service that limit what they start, with what each says one person may have at once.
    pub qualities: Vec<(String, Vec<(Field, Limit)>)>,
    /// What their share of the account says they may have at once.
    pub share: Vec<(Field, Limit)>,
    /// What they may have at once, and how long something may take, wherever that stands.
    pub each: Vec<(Field, Effective)>,
    /// What one workload may have.
    pub most: Vec<(Field, Effective)>,
    /// How many jobs may be in Slurm at once, also in its queue.
    pub handed_in: Option<Effective>,
    /// What else stands there that the portal does not count alike, in Slurm's words.
    pub besides: Vec<String>,
}

fn machines(value: i64) -> Effective {
    Effective { limit: Limit::AtMost(value), source: Source::Machine }
}

fn effective(field: &Field, live: &[&LimitRow], capacity: &Capacity, single_account: bool) -> Effective {
    let rows = || live.iter().filter(|row| row.field == *field);
    if let Some(row) = rows().find(|row| row.scope == Scope::User) {
        return Effective { limit: Limit::of(row.value), source: Source::Override { until: row.expires_at } };
    }
    let groups = || {
        rows().filter_map(|row| match &row.scope {
            Scope::Group { name, restrictive } => Some((Limit::of(row.value), name, *restrictive)),
            Scope::Default | Scope::User | Scope::Raised { .. } => None,
        })
    };
    let raised = rows().filter_map(|row| match &row.scope {
        Scope::Raised { name, chargeable: true, .. } => Some((Limit::of(row.value), name, false)),
        _ => None,
    });
    let of_group = |(limit, name, _): (Limit, &String, bool)| Effective { limit, source: Source::Group(name.clone()) };
    // Of equals the first is named, so that the answer does not change by itself.
    let most_generous = groups().reduce(|best, next| if best.0 < next.0 { next } else { best }).map(of_group);
    let cap = groups().filter(|(_, _, restrictive)| *restrictive).min_by_key(|(limit, ..)| *limit).map(of_group);
    let granted = most_generous.unwrap_or_else(|| {
        let default = rows().find(|row| row.scope == Scope::Default);
        default.map_or_else(
            || shipped(field, capacity, single_account),
            |row| Effective { limit: Limit::of(row.value), source: Source::Default },
        )
    });
    let raised = raised.reduce(|best, next| if best.0 < next.0 { next } else { best }).map(of_group);
    let granted = raised.filter(|raised| granted.limit < raised.limit).unwrap_or(granted);
    cap.filter(|cap| cap.limit < granted.limit).unwrap_or(granted)
}

/// What a fresh install gives.
fn shipped(field: &Field, capacity: &Capacity, single_account: bool) -> Effective {
    let (value, source) = match field {
        Field::Gpus if single_account => (capacity.gpus, Source::Machine),
        Field::Gpus => (capacity.gpus.min(1), Source::Default),
        Field::Cpus => (capacity.cpus, Source::Machine),
        Field::MemoryBytes => (capacity.memory_bytes, Source::Machine),
        Field::Sessions | Field::Jobs => (4, Source::Default),
        Field::Pending => (20, Source::Default),
        Field::Light => (6, Source::Default),
        Field::MaxSessionSeconds | Field::ExtensionSeconds => (8 * 3600, Source::Default),
        Field::MaxJobSeconds => (48 * 3600, Source::Default),
        Field::MaxExtensions => (3, Source::Default),
        Field::IdleTimeoutSeconds => (2 * 3600, Source::Default),
        Field::GpusOf(_) | Field::GpuIdleTimeoutSeconds | Field::GpuHours | Field::CpuHours | Field::StorageBytes => {
            return Effective::NONE;
        }
    };
    Effective { limit: Limit::AtMost(value), source }
}

impl Limit {
    /// From a stored value, where -1 is unlimited.
    #[must_use]
    pub fn of(value: i64) -> Self {
        if value < 0 { Self::Unlimited } else { Self::AtMost(value) }
    }

    /// As it is stored and as the API shows it.
    #[must_use]
    pub fn value(self) -> i64 {
        match self {
            Self::Unlimited => -1,
            Self::AtMost(value) => value,
        }
    }

    /// The smaller of this and `value`.
    #[must_use]
    pub fn cap(self, value: i64) -> i64 {
        match self {
            Self::Unlimited => value,
            Self::AtMost(limit) => limit.min(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::size::GIB;

    const WHOLE: Capacity = Capacity { gpus: 4, cpus: 32, memory_bytes: 192 * GIB };
    const NOW: Timestamp = Timestamp(1_000_000);

    fn row(scope: Scope, value: i64) -> LimitRow {
        LimitRow { scope, field: Field::Gpus, value, expires_at: None, note: None }
    }

    fn group(name: &str, value: i64) -> LimitRow {
        row(Scope::Group { name: name.to_owned(), restrictive: false }, value)
    }

    fn restrictive(name: &str, value: i64) -> LimitRow {
        row(Scope::Group { name: name.to_owned(), restrictive: true }, value)
    }

    #[track_caller]
    fn check(rows: &[LimitRow], single: bool, value: i64, source: &str) {
        let limits = Limits::resolve(rows, &WHOLE, single, NOW);
        let effective = limits.of(&Field::Gpus);
        assert_eq!((effective.limit.value(), effective.source.to_string()), (value, source.to_owned()), "{rows:?}");
    }

    #[test]
    fn the_most_specific_unexpired_row_wins() {
        let expired = LimitRow { expires_at: Some(NOW), ..row(Scope::User, 4) };
        let until = LimitRow { expires_at: Some(NOW.plus_seconds(1)), ..row(Scope::User, 3) };
        let default = || row(Scope::Default, 2);
        check(&[], true, 4, "machine");
        check(&[], false, 1, "default");
        check(&[default()], true, 2, "default");
        check(&[default(), row(Scope::User, -1)], true, -1, "override");
        check(&[default(), expired], true, 2, "default");
        check(&[until], true, 3, "override until 1970-01-01T00:16:41Z");
    }

    #[test]
    fn groups_give_and_restrictive_ones_take() {
        let default = || row(Scope::Default, 2);
        check(&[default(), group("tiny", 1)], false, 1, "group tiny");
        check(&[default(), group("tiny", 1), group("vision", 8)], false, 8, "group vision");
        check(&[group("tiny", 1), group("vision", -1)], false, -1, "group vision");
        check(&[group("a", 3), group("b", 3)], false, 3, "group a");
        // A group that restricts gives its own share, and nobody more than that.
        check(&[default(), restrictive("students", 4)], false, 4, "group students");
        check(&[group("vision", 8), restrictive("students", 1)], false, 1, "group students");
        check(&[group("vision", 8), restrictive("students", 2), restrictive("guests", 0)], false, 0, "group guests");
        check(&[group("vision", -1), restrictive("students", -1)], false, -1, "group vision");
        // An override is a decision about this one person, and stands above groups.
        check(&[restrictive("students", 1), row(Scope::User, 6)], false, 6, "override");
        let expired = LimitRow { expires_at: Some(NOW), ..group("vision", 8) };
        check(&[default(), expired], false, 2, "default");
    }

    #[test]
    fn a_manager_raises_and_never_lowers() {
        let raised = |value, chargeable| {
            row(Scope::Raised { group: crate::GroupId::new(), name: "lab".to_owned(), chargeable }, value)
        };
        let default = || row(Scope::Default, 2);
        check(&[default(), raised(0, true)], false, 2, "default");
        check(&[default(), raised(4, true)], false, 4, "group lab");
        check(&[default(), raised(4, false)], false, 2, "default");
        check(&[raised(0, true)], true, 4, "machine");
        check(&[group("vision", 3), raised(2, true), raised(5, true)], false, 5, "group lab");
        check(&[group("tiny", 1), raised(1, true)], false, 1, "group tiny");
        // What an administrator decided stays: for this person, and where a group restricts.
        check(&[row(Scope::User, 1), raised(8, true)], false, 1, "override");
        check(&[restrictive("students", 1), raised(8, true)], false, 1, "group students");
        check(&[restrictive("students", 6), raised(8, true)], false, 6, "group students");
        // It does not restrict, also where the group does.
        check(&[restrictive("lab", 4), raised(0, true)], false, 4, "group lab");
    }

    #[test]
    fn models_are_limited_where_somebody_says_so() {
        let a100 = Field::GpusOf("A100".to_owned());
        let limits = Limits::resolve(&[LimitRow { field: a100.clone(), ..group("vision", 2) }], &WHOLE, true, NOW);
        assert_eq!(limits.of(&a100).limit, Limit::AtMost(2));
        assert_eq!(limits.of(&Field::GpusOf("H100".to_owned())), &Effective::NONE);
        assert_eq!(limits.of(&Field::Gpus).limit, Limit::AtMost(4), "the limit for all is another one");
        assert_eq!(limits.iter().count(), Field::ALL.len() + 1);
    }

    #[test]
    fn slurm_says_what_it_keeps_and_nothing_else() {
        let a100 = Field::GpusOf("a100".to_owned());
        let at_most = |value, source: &str| Effective { limit: Limit::AtMost(value), source: Source::read(source) };
        let slurms = SlurmLimits {
            source: Source::account("lab"),
            each: vec![(Field::Gpus, at_most(2, "Slurm: QOS gpu")), (a100.clone(), at_most(1, "Slurm: account lab"))],
            most: vec![(Field::Gpus, at_most(1, "Slurm: one job"))],
            ..SlurmLimits::default()
        };
        let rows = [row(Scope::User, 7), LimitRow { field: Field::Pending, ..row(Scope::User, 3) }];
        let limits = Limits::resolve(&rows, &WHOLE, false, NOW).with_slurms(&slurms, &WHOLE);
        let told = |field: &Field| (limits.of(field).limit.value(), limits.of(field).source.to_string());
        assert_eq!(told(&Field::Gpus), (2, "Slurm: QOS gpu".to_owned()));
        assert_eq!(told(&a100), (1, "Slurm: account lab".to_owned()));
        assert_eq!(told(&Field::Cpus), (32, "machine".to_owned()), "what Slurm does not limit");
        assert_eq!(told(&Field::Sessions), (-1, "Slurm: account lab".to_owned()));
        assert_eq!(told(&Field::Pending), (3, "override".to_owned()), "what Slurm does not keep");
        assert_eq!(limits.most_of(&Field::Gpus).map(|most| most.limit), Some(Limit::AtMost(1)));
        assert_eq!(limits.iter().count(), Field::ALL.len() + 1);
    }

    fn scopes() -> impl Strategy<Value = Scope> {
        let group = |restrictive| {
            ("[a-c]", Just(restrictive)).prop_map(|(name, restrictive)| Scope::Group { name, restrictive })
        };
        let raised = any::<bool>().prop_map(|chargeable| {
            let group = crate::GroupId::new();
            Scope::Raised { group, name: "d".to_owned(), chargeable }
        });
        prop_oneof![Just(Scope::Default), group(false), group(true), raised, Just(Scope::User)]
    }

    proptest! {
        /// Whatever managers set, nobody has less than without it.
        #[test]
        fn managers_take_nothing(rows in prop::collection::vec((scopes(), -1..6i64), 1..8)) {
            let rows: Vec<LimitRow> = rows.into_iter().map(|(scope, value)| row(scope, value)).collect();
            let without: Vec<LimitRow> =
                rows.iter().filter(|row| !matches!(row.scope, Scope::Raised { .. })).cloned().collect();
            let limit = |rows: &[LimitRow]| Limits::resolve(rows, &WHOLE, false, NOW).of(&Field::Gpus).limit;
            prop_assert!(limit(&without) <= limit(&rows), "{rows:?}");
        }

        #[test]
        fn raising_any_row_lowers_nobody(
            rows in prop::collection::vec((scopes(), -1..6i64), 1..6), which in any::<prop::sample::Index>(), more in 0..6i64,
        ) {
            let mut rows: Vec<LimitRow> = rows.into_iter().map(|(scope, value)| row(scope, value)).collect();
            let before = Limits::resolve(&rows, &WHOLE, false, NOW).of(&Field::Gpus).limit;
            let raised = which.get_mut(&mut rows);
            raised.value = if raised.value < 0 { -1 } else { raised.value + more };
            let after = Limits::resolve(&rows, &WHOLE, false, NOW).of(&Field::Gpus).limit;
            prop_assert!(before <= after, "{before:?} {after:?} {rows:?}");
        }
    }
}
