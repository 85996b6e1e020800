//! Which GPUs a request gets: the models that it is tried with, the very GPUs of one of them, and
//! what is said where there are none. How many anybody may have is `model::quota`'s business, and
//! which of those that are free belong together the inventory's.

use std::collections::{BTreeMap, HashSet};

use super::QuotaStatus;
use lyceum_db::admit::Verdict;
use lyceum_model::{
    Gpu, GpuInventory, Resources,
    gpus::{Obstacle, labels},
    quota::{Code, Field, Reason, Request, Source},
};

/// Which models a request is tried with: the one that it names; where somebody limits single
/// models, each that has enough of them; else whatever is free.
pub(super) fn models(inventory: &GpuInventory, request: &Request, standing: &QuotaStatus) -> Vec<Option<String>> {
    let asked = &request.resources;
    let of_a_model = |field: &Field| matches!(field, Field::GpusOf(_));
    let limited = standing.limits.iter().any(|(field, _)| of_a_model(field))
        || standing.totals.iter().flat_map(|total| &total.limits).any(|(field, _)| of_a_model(field));
    let mut models = vec![asked.gpu_model.clone()];
    if asked.gpus < 1 || asked.gpu_model.is_some() || !limited {
        return models;
    }
    let enough = inventory.models().into_iter().filter(|(_, count)| asked.gpus <= *count);
    let enough: Vec<_> = enough.map(|(model, _)| Some(model)).collect();
    if !enough.is_empty() {
        models = enough;
    }
    models
}

/// Names the GPUs of a request that the numbers admit. A model that is not there, or not
/// free, is a reason of its own.
pub(super) fn choose_gpus(
    inventory: &GpuInventory,
    taken: &HashSet<String>,
    blocked_gpus: &BTreeMap<String, Obstacle>,
    asked: &Resources,
) -> Verdict {
    let (want, model) = (asked.gpus, asked.gpu_model.as_deref());
    let away: HashSet<String> = taken.iter().chain(blocked_gpus.keys()).cloned().collect();
    let picked = usize::try_from(want).ok().and_then(|want| inventory.pick(&away, want, model));
    if let Some(gpus) = picked {
        return Verdict::Admit { gpus };
    }
    let alike = || inventory.gpus.iter().filter(|gpu| model.is_none_or(|model| gpu.model == model));
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let there = count(alike().count());
    let used = count(alike().filter(|gpu| away.contains(&gpu.uuid)).count());
    let barred_by =
        |obstacle| alike().filter(|gpu| blocked_gpus.get(&gpu.uuid) == Some(&obstacle)).cloned().collect::<Vec<Gpu>>();
    let name = model.unwrap_or("GPU");
    let hint = if there < want {
        format!("This asks for {want} × {name}; the machine has {there}.")
    } else {
        let blocked_gpus =
            barred_sentence(&barred_by(Obstacle::Outside), &barred_by(Obstacle::Down), &barred_by(Obstacle::Withheld));
        format!("Not enough of the machine's {there} × {name} are free{blocked_gpus}. This starts when something ends.")
    };
    let reasons = vec![Reason {
        code: Code::Capacity(Field::Gpus),
        source: Source::Machine,
        used,
        requested: want,
        limit: there,
        over_by: used.saturating_add(want).saturating_sub(there),
        hint,
    }];
    if there < want { Verdict::Refuse(reasons) } else { Verdict::Wait(reasons) }
}

/// What keeps free GPUs from being given out, behind a colon; empty where nothing does.
fn barred_sentence(outside: &[Gpu], down: &[Gpu], withheld: &[Gpu]) -> String {
    let outside = (!outside.is_empty())
        .then(|| format!("programs outside the portal use GPU {}", labels(outside).replace(", ", " and ")));
    let verb = if down.len() == 1 { "does" } else { "do" };
    let down = (!down.is_empty()).then(|| format!("GPU {} {verb} not respond", labels(down).replace(", ", " and ")));
    let verb = if withheld.len() == 1 { "is" } else { "are" };
    let withheld = (!withheld.is_empty())
        .then(|| format!("GPU {} {verb} held by an operator", labels(withheld).replace(", ", " and ")));
    let parts: Vec<String> = outside.into_iter().chain(down).chain(withheld).collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", and ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_db::quotas::BillingGroups;
    use lyceum_model::{
        Capacity, Timestamp,
        quota::{Class, Limit, LimitRow, Limits, Period, Scope, Total, TotalScope, Usage},
    };

    use crate::admission::{Bar, BlockedGpus, external_usage::UserExternalUsage};

    /// What binds somebody: rows of their own, and what all may use together.
    fn standing(own: &[(Field, i64)], together: &[(Field, i64)]) -> QuotaStatus {
        let row = |(field, value): &(Field, i64)| LimitRow {
            scope: Scope::User,
            field: field.clone(),
            value: *value,
            expires_at: None,
            note: None,
        };
        let rows: Vec<LimitRow> = own.iter().map(row).collect();
        let (capacity, period) = (Capacity { gpus: 6, cpus: 8, memory_bytes: 1 << 30 }, Period::default());
        let limits = together.iter().map(|(field, value)| (field.clone(), Limit::of(*value))).collect();
        QuotaStatus {
            limits: Limits::resolve(&rows, &capacity, true, Timestamp(0)),
            usage: Usage::default(),
            external_usage: UserExternalUsage::default(),
            totals: vec![Total { whose: TotalScope::Cluster, limits, usage: Usage::default() }],
            in_use: Usage::default(),
            capacity,
            window: period.window(Timestamp(0)),
            period,
            billing_groups: BillingGroups::default(),
            at: Timestamp(0),
            goes_to_slurm: false,
        }
    }

    #[test]
    fn which_models_are_tried() {
        let gpu =
            |index: i64, model: &str| Gpu { index, uuid: format!("u{index}"), model: model.to_owned(), slice: None };
        let gpus = vec![gpu(0, "A"), gpu(1, "A"), gpu(2, "B"), gpu(3, "B"), gpu(4, "B"), gpu(5, "C")];
        let inventory = GpuInventory { gpus, driver: true, ..GpuInventory::default() };
        let of_b = [(Field::GpusOf("B".to_owned()), 1)];
        let tried = |gpus, model: Option<&str>, standing: &QuotaStatus| {
            let resources = Resources { gpus, gpu_model: model.map(str::to_owned), ..Resources::default() };
            let request = Request { resources, duration_seconds: 60, class: Class::Session };
            let tried = models(&inventory, &request, standing);
            tried.into_iter().map(|model| model.unwrap_or_else(|| "any".to_owned())).collect::<Vec<_>>()
        };
        // Where nobody limits a model, what is free is taken; what is asked for by name is meant.
        assert_eq!(tried(2, None, &standing(&[], &[])), ["any"]);
        assert_eq!(tried(2, None, &standing(&[(Field::Gpus, 3)], &[(Field::Gpus, 4)])), ["any"]);
        for limited in [standing(&of_b, &[]), standing(&[], &of_b)] {
            assert_eq!(tried(1, None, &limited), ["A", "B", "C"]);
            assert_eq!(tried(2, None, &limited), ["A", "B"], "of C there is one alone");
            assert_eq!(tried(2, Some("B"), &limited), ["B"]);
            assert_eq!(tried(0, None, &limited), ["any"], "it asks for none");
            assert_eq!(tried(4, None, &limited), ["any"], "no model is enough: it is refused as what it is");
        }
    }

    #[test]
    fn a_model_that_is_not_there_is_refused_and_one_in_use_waits() {
        let gpu =
            |index: i64, model: &str| Gpu { index, uuid: format!("u{index}"), model: model.to_owned(), slice: None };
        let inventory =
            GpuInventory { gpus: vec![gpu(0, "A"), gpu(1, "A"), gpu(2, "B")], driver: true, ..GpuInventory::default() };
        let taken = HashSet::from(["u0".to_owned()]);
        let choose = |gpus, model: Option<&str>| {
            let asked = Resources { gpus, gpu_model: model.map(str::to_owned), ..Resources::default() };
            choose_gpus(&inventory, &taken, &BTreeMap::new(), &asked)
        };
        assert!(matches!(choose(1, Some("A")), Verdict::Admit { gpus } if gpus[0].index == 1));
        let Verdict::Wait(reasons) = choose(2, Some("A")) else { panic!("waits") };
        assert_eq!((reasons[0].used, reasons[0].limit, reasons[0].over_by), (1, 2, 1));
        assert!(matches!(choose(3, None), Verdict::Wait(_)));
        // Also one that happens to be called as what it is.
        for model in ["C", "GPU"] {
            let Verdict::Refuse(reasons) = choose(1, Some(model)) else { panic!("refused") };
            assert_eq!((reasons[0].used, reasons[0].limit, reasons[0].over_by), (0, 0, 1), "{model}");
        }
    }

    #[test]
    fn what_others_compute_on_is_not_given_out() {
        let gpu = |index: i64| Gpu { index, uuid: format!("u{index}"), model: "A".to_owned(), slice: None };
        let inventory = GpuInventory { gpus: (0..4).map(gpu).collect(), driver: true, ..GpuInventory::default() };
        let blocked_gpus = BlockedGpus::default();
        let bar = |obstacle| Bar { obstacle, is_held: false };
        let bars = BTreeMap::from([
            ("u0".to_owned(), Bar { is_held: true, ..bar(Obstacle::Outside) }),
            ("u1".to_owned(), bar(Obstacle::Outside)),
            ("u3".to_owned(), bar(Obstacle::Down)),
        ]);
        let held = BTreeMap::from([("u1".to_owned(), Obstacle::Withheld)]);
        let three = Resources { gpus: 3, ..Resources::default() };
        let Verdict::Wait(reasons) = choose_gpus(&inventory, &HashSet::from(["u0".to_owned()]), &held, &three) else {
            panic!("waits")
        };
        assert!(reasons[0].hint.contains("GPU 1 is held by an operator"), "{}", reasons[0].hint);
        assert!(blocked_gpus.set(bars.clone()) && !blocked_gpus.set(bars), "only other GPUs are news");
        assert_eq!(blocked_gpus.free(), 2);
        let taken = HashSet::from(["u0".to_owned()]);
        let choose = |gpus| {
            choose_gpus(&inventory, &taken, &blocked_gpus.of(&taken), &Resources { gpus, ..Resources::default() })
        };
        assert!(matches!(choose(1), Verdict::Admit { gpus } if gpus[0].index == 2));
        let Verdict::Wait(reasons) = choose(2) else { panic!("waits") };
        assert_eq!(
            reasons[0].hint,
            "Not enough of the machine's 4 × GPU are free: programs outside the portal use GPU 1, and GPU 3 does not \
             respond. This starts when something ends."
        );
        assert_eq!((reasons[0].used, reasons[0].limit), (3, 4));
    }
}
