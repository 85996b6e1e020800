//! The decision about more time for what runs: a request for the difference, measured by the
//! same numbers as a new one. It takes no place that it does not hold already, so only times
//! and hours bind, and, where the site wants it so, those who wait for what it holds.

use super::{
    Class, Field, Limit, Limits, Reason, Request, Situation, Source, TotalScope, WaitingRequest,
    decide::{hours, requested},
    sentence::{self, Amount, TimePurpose},
};
use crate::{Gpu, GroupId, UserId};

/// A running session that wants to go on for longer.
#[derive(Clone, Copy, Debug)]
pub struct Extension<'a> {
    pub owner: UserId,
    /// The groups in which it counts.
    pub groups: &'a [GroupId],
    /// What it holds, and the difference as its duration.
    pub request: &'a Request,
    pub gpus: &'a [Gpu],
    /// How often it was extended already.
    pub extensions: i64,
    /// Those who wait and must not wait longer for this; none where the site lets them.
    pub waiting: &'a [WaitingRequest],
}

/// How much an extension adds where nobody says how much (seconds).
const DEFAULT_EXTENSION: i64 = 8 * 3600;

/// By how much somebody can extend at once, as far as nobody says otherwise (seconds); 0 where
/// they cannot.
#[must_use]
pub fn usual_extension(limits: &Limits) -> i64 {
    let limit = |field| limits.of(&field).limit;
    limit(Field::MaxSessionSeconds).cap(limit(Field::ExtensionSeconds).cap(DEFAULT_EXTENSION))
}

/// Why it cannot go on for so long; empty where it can. What is left of the period in the
/// situation is counted from the end that it has now.
#[must_use]
pub fn extend(asked: &Extension<'_>, situation: &Situation<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let times = situation.limits.of(&Field::MaxExtensions);
    if let Limit::AtMost(limit) = times.limit
        && limit <= asked.extensions
    {
        reasons.push(sentence::extended_often(asked.extensions, limit, &times.source));
    }
    for field in [Field::ExtensionSeconds, Field::MaxSessionSeconds] {
        let effective = situation.limits.of(&field);
        if let Limit::AtMost(limit) = effective.limit
            && limit < asked.request.duration_seconds
        {
            let amount = Amount { field: &field, used: 0, requested: asked.request.duration_seconds, limit };
            reasons.push(sentence::extends_too_far(&amount, &effective.source));
        }
    }
    for field in [Field::GpuHours, Field::CpuHours] {
        let own = situation.limits.of(&field);
        let whose_own = (None, situation.usage, &own.source);
        reasons.extend(hours(&field, own.limit, asked.request, situation, whose_own, TimePurpose::Extension));
        for total in situation.totals {
            let limit = total.limits.iter().find(|(limited, _)| *limited == field).map(|(_, limit)| *limit);
            let source = Source::of_total(&total.whose);
            let theirs = (Some(&total.whose), &total.usage, &source);
            let limit = limit.unwrap_or(Limit::Unlimited);
            reasons.extend(hours(&field, limit, asked.request, situation, theirs, TimePurpose::Extension));
        }
    }
    let held_up = asked.waiting.iter().filter(|waiting| holds_up(asked, waiting, situation)).count();
    if held_up > 0 {
        reasons.push(sentence::others_wait(held_up));
    }
    reasons
}

/// Whether somebody else lacks room for something that this session holds. A notebook without
/// GPUs keeps nobody from theirs.
fn holds_up(asked: &Extension<'_>, waiting: &WaitingRequest, situation: &Situation<'_>) -> bool {
    let (held, wanted) = (&asked.request.resources, &waiting.request.resources);
    let (in_use, capacity) = (situation.in_use, &situation.capacity);
    let is_short = |used: i64, wanted: i64, there: i64| wanted > 0 && there < used.saturating_add(wanted);
    let gpus = match &wanted.gpu_model {
        Some(model) => wanted.gpus > 0 && asked.gpus.iter().any(|gpu| gpu.model == *model),
        None => held.gpus > 0 && is_short(in_use.gpus, wanted.gpus, capacity.gpus),
    };
    // Light sessions share cores that others leave idle, and lack none.
    let cores = asked.request.class != Class::Light && waiting.request.class != Class::Light;
    let cores = cores && is_short(in_use.cpus - in_use.light_cpus, wanted.cpus, capacity.cpus);
    let memory = is_short(in_use.memory_bytes, wanted.memory_bytes, capacity.memory_bytes);
    let together = situation.totals.iter().any(|total| {
        let counts_both = match &total.whose {
            TotalScope::Cluster => true,
            TotalScope::Group { id, .. } => waiting.groups.contains(id) && asked.groups.contains(id),
        };
        counts_both
            && total.limits.iter().any(|(field, limit)| {
                let Limit::AtMost(limit) = *limit else { return false };
                let (holds, wants) = match field {
                    Field::GpusOf(model) => (
                        asked.gpus.iter().any(|gpu| gpu.model == *model),
                        wanted.gpu_model.as_ref().is_none_or(|wanted| wanted == model),
                    ),
                    field => (requested(field, asked.request) > 0, true),
                };
                holds && wants && is_short(total.usage.of(field), requested(field, &waiting.request), limit)
            })
    });
    waiting.lacks_room && waiting.owner != asked.owner && (gpus || cores || memory || together)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{LimitRow, Period, Scope, Total, TotalScope, Usage},
        *,
    };
    use crate::{Capacity, Resources, Timestamp, size::GIB};

    const WHOLE: Capacity = Capacity { gpus: 4, cpus: 32, memory_bytes: 192 * GIB };
    const HOUR: i64 = 3600;

    fn row(field: Field, value: i64) -> LimitRow {
        LimitRow { scope: Scope::User, field, value, expires_at: None, note: None }
    }

    fn holds(gpus: i64, seconds: i64) -> Request {
        let resources = Resources { gpus, gpu_model: None, cpus: 8, memory_bytes: 16 * GIB };
        Request { resources, duration_seconds: seconds, class: Class::Session }
    }

    fn waiting(gpus: i64, cpus: i64) -> WaitingRequest {
        let resources = Resources { gpus, gpu_model: None, cpus, memory_bytes: GIB };
        let request = Request { resources, duration_seconds: HOUR, class: Class::Session };
        let (owner, since) = (UserId::new(), Timestamp(0));
        WaitingRequest { owner, groups: Vec::new(), request, recent_gpu_seconds: 0, since, lacks_room: true }
    }

    /// The codes of what is in the way.
    fn codes(
        request: &Request,
        rows: &[LimitRow],
        usage: &Usage,
        extensions: i64,
        waiting: &[WaitingRequest],
        totals: &[Total],
        period_left: Option<i64>,
    ) -> Vec<String> {
        let limits = Limits::resolve(rows, &WHOLE, true, Timestamp(0));
        let period = Period::default();
        let situation = Situation {
            limits: &limits,
            usage,
            totals,
            in_use: usage,
            capacity: WHOLE,
            period: &period,
            period_left,
            own: &[],
            goes_to_slurm: false,
            already_waiting: false,
        };
        let gpu = |index| Gpu { index, uuid: format!("{index}"), model: "A100".to_owned(), slice: None };
        let gpus: Vec<Gpu> = (0..request.resources.gpus).map(gpu).collect();
        let asked = Extension { owner: UserId::new(), groups: &[], request, gpus: &gpus, extensions, waiting };
        extend(&asked, &situation).into_iter().map(|reason| reason.code.to_string()).collect()
    }

    #[test]
    fn times_and_lengths_are_bounded() {
        let none = Usage::default();
        let judged =
            |request: &Request, rows: &[LimitRow], extensions| codes(request, rows, &none, extensions, &[], &[], None);
        assert_eq!(judged(&holds(1, 8 * HOUR), &[], 2), [""; 0]);
        assert_eq!(judged(&holds(1, 8 * HOUR), &[], 3), ["quota.max_extensions.user"]);
        assert_eq!(
            judged(&holds(1, 8 * HOUR + 1), &[], 3),
            ["quota.max_extensions.user", "quota.extension_seconds.user", "quota.duration.user"]
        );
        let unlimited =
            [Field::MaxExtensions, Field::ExtensionSeconds, Field::MaxSessionSeconds].map(|field| row(field, -1));
        assert_eq!(judged(&holds(1, 1_000 * HOUR), &unlimited, 99), [""; 0]);
        // The longest that one may ask for binds the difference too.
        assert_eq!(judged(&holds(1, 2 * HOUR), &[row(Field::MaxSessionSeconds, HOUR)], 0), ["quota.duration.user"]);
    }

    #[test]
    fn the_difference_is_what_counts_of_hours() {
        let rows = [row(Field::GpuHours, 20)];
        // Eight hours of two GPUs are committed; two more hours are four of the four that are left.
        let committed = Usage { gpus: 2, gpu_seconds: 16 * HOUR, ..Usage::default() };
        let judged = |seconds, left| codes(&holds(2, seconds), &rows, &committed, 0, &[], &[], left);
        assert_eq!(judged(2 * HOUR, None), [""; 0]);
        assert_eq!(judged(2 * HOUR + 1, None), ["quota.gpu_hours.user"]);
        // What falls into the next month is not this month's.
        assert_eq!(judged(8 * HOUR, Some(2 * HOUR)), [""; 0]);
        assert_eq!(judged(8 * HOUR, Some(0)), [""; 0]);
        let total = |whose| Total {
            whose,
            limits: vec![(Field::GpuHours, Limit::AtMost(17)), (Field::Gpus, Limit::AtMost(1))],
            usage: committed.clone(),
        };
        let totals = [
            total(TotalScope::Group { id: GroupId::new(), name: "vision".to_owned(), is_charged: true }),
            total(TotalScope::Cluster),
        ];
        assert_eq!(
            codes(&holds(2, HOUR), &rows, &committed, 0, &[], &totals, None),
            ["quota.gpu_hours.group", "quota.gpu_hours.cluster"],
            "what it holds already is not asked for again"
        );
    }

    #[test]
    fn only_those_count_who_lack_what_it_holds() {
        let full = Usage { gpus: 4, cpus: 20, memory_bytes: 64 * GIB, ..Usage::default() };
        let judged = |gpus, waiting: &[WaitingRequest]| codes(&holds(gpus, HOUR), &[], &full, 0, waiting, &[], None);
        assert_eq!(judged(1, &[waiting(1, 1)]), ["queue.others"]);
        assert_eq!(judged(0, &[waiting(1, 1)]), [""; 0], "it holds no GPU");
        assert_eq!(judged(0, &[waiting(1, 16)]), ["queue.others"], "but cores");
        assert_eq!(
            judged(1, &[WaitingRequest { lacks_room: false, ..waiting(1, 1) }]),
            [""; 0],
            "its own quota is in the way"
        );
        let of_model = |model: &str| {
            let mut one = waiting(1, 1);
            one.request.resources.gpu_model = Some(model.to_owned());
            one
        };
        assert_eq!(judged(1, &[of_model("A100")]), ["queue.others"]);
        assert_eq!(judged(1, &[of_model("H100")]), [""; 0]);
    }

    #[test]
    fn who_shares_a_groups_room_waits_for_it_too() {
        let (vision, used) = (GroupId::new(), Usage { gpus: 2, ..Usage::default() });
        let limits = Limits::resolve(&[], &WHOLE, true, Timestamp(0));
        let whose = TotalScope::Group { id: vision, name: "vision".to_owned(), is_charged: false };
        let totals = [Total { whose, limits: vec![(Field::Gpus, Limit::AtMost(2))], usage: used.clone() }];
        let period = Period::default();
        let situation = Situation {
            limits: &limits,
            usage: &used,
            totals: &totals,
            in_use: &used,
            capacity: WHOLE,
            period: &period,
            period_left: None,
            own: &[],
            goes_to_slurm: false,
            already_waiting: false,
        };
        let judged = |gpus, group: Option<GroupId>, waits: &WaitingRequest| {
            let (request, owner, waiting) = (holds(gpus, HOUR), UserId::new(), std::slice::from_ref(waits));
            let asked =
                Extension { owner, groups: group.as_slice(), request: &request, gpus: &[], extensions: 0, waiting };
            extend(&asked, &situation).len()
        };
        let of_vision = WaitingRequest { groups: vec![vision], ..waiting(1, 1) };
        assert_eq!(judged(1, Some(vision), &of_vision), 1);
        assert_eq!(judged(0, Some(vision), &of_vision), 0, "it holds nothing of it");
        assert_eq!(judged(1, Some(vision), &waiting(1, 1)), 0, "the machine has room for those of other groups");
        assert_eq!(judged(1, None, &of_vision), 0);
    }

    #[test]
    fn one_does_not_hold_up_oneself() {
        let full = Usage { gpus: 4, ..Usage::default() };
        let limits = Limits::resolve(&[], &WHOLE, true, Timestamp(0));
        let (period, mine) = (Period::default(), waiting(1, 1));
        let situation = Situation {
            limits: &limits,
            usage: &full,
            totals: &[],
            in_use: &full,
            capacity: WHOLE,
            period: &period,
            period_left: None,
            own: &[],
            goes_to_slurm: false,
            already_waiting: false,
        };
        let request = holds(1, HOUR);
        let asked = |owner| Extension {
            owner,
            groups: &[],
            request: &request,
            gpus: &[],
            extensions: 0,
            waiting: std::slice::from_ref(&mine),
        };
        assert_eq!(extend(&asked(mine.owner), &situation), []);
        let others = extend(&asked(UserId::new()), &situation);
        assert_eq!(
            others[0].hint,
            "A request of another user waits for the resources of this session. The session runs to its end, and can \
             be extended when no request waits for them."
        );
    }

    proptest! {
        /// Granted extensions, one after the other, never lead beyond the hours of anybody.
        #[test]
        fn hours_are_never_run_over(
            gpus in 1..5i64, cap in 0..60i64, whole in 0..60i64, used in 0..30 * HOUR, asked in prop::collection::vec(1..9 * HOUR, 1..12),
        ) {
            let rows = [row(Field::GpuHours, cap), row(Field::MaxExtensions, -1)];
            let mut usage = Usage { gpu_seconds: used, ..Usage::default() };
            for seconds in asked {
                let total = Total { whose: TotalScope::Cluster, limits: vec![(Field::GpuHours, Limit::of(whole))], usage: usage.clone() };
                if codes(&holds(gpus, seconds), &rows, &usage, 0, &[], &[total], None).is_empty() {
                    usage.gpu_seconds += gpus * seconds;
                    prop_assert!(usage.gpu_seconds <= cap.min(whole) * HOUR && seconds <= 8 * HOUR);
                }
            }
        }

        /// A higher limit, or less time, is never worse.
        #[test]
        fn less_is_never_refused_where_more_is_granted(seconds in 1..9 * HOUR, less in 0..9 * HOUR, cap in 0..40i64, more in 0..40i64, times in 0..5i64) {
            let usage = Usage { gpu_seconds: 10 * HOUR, ..Usage::default() };
            let judged = |seconds, cap| codes(&holds(2, seconds), &[row(Field::GpuHours, cap)], &usage, times, &[], &[], None);
            let before = judged(seconds, cap);
            let after = judged((seconds - less).max(1), cap + more);
            prop_assert!(after.iter().all(|code| before.contains(code)), "{:?} {:?}", before, after);
        }
    }
}
