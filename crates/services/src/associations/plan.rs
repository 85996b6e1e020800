//! What of Slurm's associations has to be changed so that they say what the portal's limits do: a
//! pure comparison of what should stand there with what does. Only kinds that are limits of the
//! portal's are compared; whatever else stands in an association is its administrator's.

use std::collections::{BTreeMap, BTreeSet};

use lyceum_model::quota::{Effective, Field, Limit};

use crate::scheduler::slurm::accounting::{Amounts, Association, CLEARED, Order};

/// What should stand in the associations of some accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TargetAssociations {
    /// By account: what its group may have together. An account that is missing is left alone.
    pub totals: BTreeMap<String, Amounts>,
    /// By Unix account: what one person may have, in whichever account. Whoever is missing is
    /// nobody of the portal's, and is left alone.
    pub each: BTreeMap<String, Amounts>,
}

impl TargetAssociations {
    fn of(&self, association: &Association) -> Option<&Amounts> {
        match &association.user {
            None => self.totals.get(&association.account),
            Some(user) => self.each.get(user),
        }
    }
}

/// An order, and what it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub order: Order,
    /// What stood there before, of the kinds that are set.
    pub before: Amounts,
    pub prior: Prior,
}

/// Whose it was that an order replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Prior {
    /// No limit stood there, or the one that we had left.
    Ours,
    /// It stood there when we looked first: an older limit of the portal's, or somebody's own.
    Unknown,
    /// Somebody wrote it since we looked last.
    Somebodys,
}

impl Prior {
    /// Of one kind: what we left there, as far as we know, and what is found.
    fn of(left: Option<&Amounts>, found: &Amounts, kind: &str) -> Self {
        match left {
            Some(left) if left.get(kind) == found.get(kind) => Self::Ours,
            Some(_) => Self::Somebodys,
            None if found.contains_key(kind) => Self::Unknown,
            None => Self::Ours,
        }
    }
}

/// So many users are named in one order.
const MAX_USERS: usize = 100;

/// The kind by which Slurm counts the same as this field; `None` where there is none.
pub(super) fn kind_of(field: &Field) -> Option<String> {
    Some(match field {
        Field::Gpus => "gres/gpu".to_owned(),
        Field::GpusOf(model) => format!("gres/gpu:{model}"),
        Field::Cpus => "cpu".to_owned(),
        Field::MemoryBytes => "mem".to_owned(),
        _ => return None,
    })
}

/// The other way round; `None` where the portal has no word for it.
pub(super) fn field_of(kind: &str) -> Option<Field> {
    Some(match kind {
        "gres/gpu" => Field::Gpus,
        "cpu" => Field::Cpus,
        "mem" => Field::MemoryBytes,
        kind => Field::GpusOf(kind.strip_prefix("gres/gpu:")?.to_owned()),
    })
}

/// As the portal counts what Slurm counts, which is memory in MiB.
pub(super) fn amount_of(field: &Field, amount: i64) -> i64 {
    if *field == Field::MemoryBytes { amount.saturating_mul(1 << 20) } else { amount }
}

/// Limits in Slurm's terms. What only the machine's size limits, Slurm knows by itself.
pub(super) fn amounts<'a>(limits: impl Iterator<Item = (&'a Field, Limit)>) -> Amounts {
    let amount = |(field, limit): (&Field, Limit)| {
        let Limit::AtMost(value) = limit else { return None };
        Some((kind_of(field)?, if *field == Field::MemoryBytes { value >> 20 } else { value }))
    };
    limits.filter_map(amount).collect()
}

/// The limit that is written for one person.
pub(super) fn written(effective: &Effective) -> Limit {
    if effective.is_the_machines() { Limit::Unlimited } else { effective.limit }
}

/// Whether a limit of this kind is the portal's.
fn is_ours(kind: &str) -> bool {
    ["cpu", "mem", "gres/gpu"].contains(&kind) || kind.starts_with("gres/gpu:")
}

/// The kinds that are wanted and that Slurm does not count.
pub(super) fn uncounted(wanted: &TargetAssociations, counted: &BTreeSet<String>) -> BTreeSet<String> {
    let all = wanted.totals.values().chain(wanted.each.values());
    all.flat_map(BTreeMap::keys).filter(|kind| !counted.contains(*kind)).cloned().collect()
}

/// The steps from what is found to what is wanted: none where they agree. `left` is what we left
/// there when we looked last, if we did.
pub(super) fn plan(
    wanted: &TargetAssociations,
    found: &BTreeMap<Association, Amounts>,
    counted: &BTreeSet<String>,
    left: Option<&BTreeMap<Association, Amounts>>,
) -> Vec<Step> {
    let kinds: Vec<&String> = counted.iter().filter(|kind| is_ours(kind)).collect();
    let mut alike: BTreeMap<(&String, bool, Amounts, Amounts, Prior), Vec<String>> = BTreeMap::new();
    for (association, has) in found {
        let Some(wants) = wanted.of(association) else { continue };
        let differing = kinds.iter().filter(|kind| has.get(**kind) != wants.get(**kind));
        let left = left.and_then(|left| left.get(association));
        let (mut set, mut before, mut prior) = (Amounts::new(), Amounts::new(), Prior::Ours);
        for kind in differing {
            set.insert((*kind).clone(), wants.get(*kind).copied().unwrap_or(CLEARED));
            before.insert((*kind).clone(), has.get(*kind).copied().unwrap_or(CLEARED));
            prior = prior.max(Prior::of(left, has, kind));
        }
        if !set.is_empty() {
            let key = (&association.account, association.user.is_some(), set, before, prior);
            alike.entry(key).or_default().extend(association.user.clone());
        }
    }
    let steps = alike.into_iter().flat_map(|((account, is_of_users, set, before, prior), users)| {
        let parts: Vec<Vec<String>> =
            if is_of_users { users.chunks(MAX_USERS).map(<[_]>::to_vec).collect() } else { vec![Vec::new()] };
        parts.into_iter().map(move |users| Step {
            order: Order { account: account.clone(), users, set: set.clone() },
            before: before.clone(),
            prior,
        })
    });
    steps.collect()
}

/// What stands in the associations once an order was carried out.
pub(super) fn apply(order: &Order, found: &mut BTreeMap<Association, Amounts>) {
    let of = |user| Association { account: order.account.clone(), user };
    let meant: Vec<Association> = if order.users.is_empty() {
        vec![of(None)]
    } else {
        order.users.iter().map(|user| of(Some(user.clone()))).collect()
    };
    for association in meant {
        let Some(has) = found.get_mut(&association) else { continue };
        for (kind, amount) in &order.set {
            if *amount == CLEARED {
                has.remove(kind);
            } else {
                has.insert(kind.clone(), *amount);
            }
        }
    }
}

/// `gres/gpu=2, cpu unlimited`
pub(super) fn format_amounts(amounts: &Amounts) -> String {
    let one = |(kind, amount): (&String, &i64)| match *amount {
        CLEARED => format!("{kind} unlimited"),
        amount => format!("{kind}={amount}"),
    };
    amounts.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use lyceum_model::quota::Source;

    use super::*;

    fn amounts_of(list: &[(&str, i64)]) -> Amounts {
        list.iter().map(|(kind, amount)| ((*kind).to_owned(), *amount)).collect()
    }

    fn association(account: &str, user: Option<&str>) -> Association {
        Association { account: account.to_owned(), user: user.map(str::to_owned) }
    }

    fn counted() -> BTreeSet<String> {
        ["cpu", "mem", "node", "gres/gpu"].map(str::to_owned).into()
    }

    #[test]
    fn fields_in_slurms_terms() {
        let model = Field::GpusOf("a100".to_owned());
        let limits = [
            (&Field::Gpus, Limit::AtMost(2)),
            (&model, Limit::AtMost(0)),
            (&Field::MemoryBytes, Limit::AtMost((5 << 20) + 7)),
            (&Field::Cpus, Limit::Unlimited),
            (&Field::Sessions, Limit::AtMost(4)),
            (&Field::GpuHours, Limit::AtMost(100)),
            (&Field::MaxJobSeconds, Limit::AtMost(60)),
        ];
        assert_eq!(amounts(limits.into_iter()), amounts_of(&[("gres/gpu", 2), ("gres/gpu:a100", 0), ("mem", 5)]));
        let machine = Effective { limit: Limit::AtMost(32), source: Source::Machine };
        assert_eq!(written(&machine), Limit::Unlimited, "a cluster that grows needs no new limits");
    }

    #[test]
    fn only_what_differs_is_changed_and_alike_at_once() {
        let wanted = TargetAssociations {
            totals: [("lab".to_owned(), amounts_of(&[("gres/gpu", 4)]))].into(),
            each: ["ada", "bob", "cyd"]
                .map(|name| (name.to_owned(), amounts_of(&[("gres/gpu", 2), ("cpu", 8)])))
                .into(),
        };
        let found: BTreeMap<_, _> = [
            (association("lab", None), amounts_of(&[("gres/gpu", 4), ("mem", 5), ("node", 3)])),
            (association("lab", Some("ada")), Amounts::new()),
            (association("lab", Some("bob")), Amounts::new()),
            (association("lab", Some("cyd")), amounts_of(&[("gres/gpu", 2), ("cpu", 8)])),
            (association("lab", Some("stranger")), amounts_of(&[("cpu", 1)])),
            (association("other", None), amounts_of(&[("cpu", 1)])),
        ]
        .into();
        let steps = plan(&wanted, &found, &counted(), None);
        let orders: Vec<&Order> = steps.iter().map(|step| &step.order).collect();
        let order = |users: &[&str], set: &[(&str, i64)]| Order {
            account: "lab".to_owned(),
            users: users.iter().map(|user| (*user).to_owned()).collect(),
            set: amounts_of(set),
        };
        let wanted_orders = [order(&[], &[("mem", CLEARED)]), order(&["ada", "bob"], &[("cpu", 8), ("gres/gpu", 2)])];
        assert_eq!(orders, wanted_orders.iter().collect::<Vec<_>>());
        assert_eq!(format_amounts(&steps[0].before), "mem=5");
        assert_eq!(format_amounts(&steps[0].order.set), "mem unlimited");
    }

    #[test]
    fn what_somebody_else_wrote_is_told_from_what_changed_here() {
        let found: BTreeMap<_, _> = [(association("lab", None), amounts_of(&[("cpu", 9)]))].into();
        let wanted = TargetAssociations {
            totals: [("lab".to_owned(), amounts_of(&[("cpu", 4)]))].into(),
            ..TargetAssociations::default()
        };
        let prior = |left: Option<i64>| {
            let left = left.map(|cpus| [(association("lab", None), amounts_of(&[("cpu", cpus)]))].into());
            plan(&wanted, &found, &counted(), left.as_ref())[0].prior
        };
        assert_eq!(prior(Some(4)), Prior::Somebodys, "it was as it should be");
        assert_eq!(prior(Some(9)), Prior::Ours, "a limit of the portal's changed");
        assert_eq!(prior(None), Prior::Unknown, "nobody knows after a start");
        let nothing = [(association("lab", None), Amounts::new())].into();
        assert_eq!(plan(&wanted, &nothing, &counted(), None)[0].prior, Prior::Ours, "there was nothing to replace");
    }

    #[test]
    fn kinds_that_slurm_does_not_count_are_told_and_left() {
        let wanted = TargetAssociations {
            each: [("ada".to_owned(), amounts_of(&[("gres/gpu:h100", 1), ("cpu", 1)]))].into(),
            ..TargetAssociations::default()
        };
        let found = [(association("lab", Some("ada")), Amounts::new())].into();
        assert_eq!(uncounted(&wanted, &counted()), ["gres/gpu:h100".to_owned()].into());
        assert_eq!(plan(&wanted, &found, &counted(), None)[0].order.set, amounts_of(&[("cpu", 1)]));
    }

    fn some_amounts() -> impl Strategy<Value = Amounts> {
        let kind = prop::sample::select(vec!["cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:a100"]);
        prop::collection::btree_map(kind.prop_map(str::to_owned), 0..4i64, 0..5)
    }

    fn associations() -> impl Strategy<Value = BTreeMap<Association, Amounts>> {
        let user = prop_oneof![Just(None), "[a-e]".prop_map(Some)];
        let key = ("[x-z]", user).prop_map(|(account, user)| Association { account, user });
        prop::collection::btree_map(key, some_amounts(), 0..12)
    }

    proptest! {
        #[test]
        fn what_was_carried_out_needs_nothing_more(
            found in associations(),
            totals in prop::collection::btree_map("[x-z]", some_amounts(), 0..3),
            each in prop::collection::btree_map("[a-e]", some_amounts(), 0..5),
        ) {
            let wanted = TargetAssociations { totals, each };
            let counted: BTreeSet<String> = counted().into_iter().chain(["billing".to_owned()]).collect();
            let steps = plan(&wanted, &found, &counted, Some(&found));
            prop_assert!(steps.iter().all(|step| step.prior == Prior::Ours));
            let mut after = found.clone();
            for step in &steps {
                apply(&step.order, &mut after);
            }
            prop_assert_eq!(plan(&wanted, &after, &counted, Some(&after)), vec![]);
            for (association, amounts) in &after {
                let before = &found[association];
                let Some(wants) = wanted.of(association) else {
                    prop_assert_eq!(amounts, before, "it is nobody's of ours");
                    continue;
                };
                for kind in ["cpu", "mem", "gres/gpu"] {
                    prop_assert_eq!(amounts.get(kind), wants.get(kind));
                }
                // What Slurm does not count, and what the portal does not limit.
                for kind in ["node", "billing", "gres/gpu:a100"] {
                    prop_assert_eq!(amounts.get(kind), before.get(kind));
                }
            }
        }
    }
}
