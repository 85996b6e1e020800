//! The decision about a request. Pure: it sees numbers and answers with reasons as data, all
//! of them, the most telling first: the person's own limits, those of all together, the
//! machine. How a reason is said is `sentence`'s business.

use super::{
    Class, Decision, Field, Limit, Reason, Request, Situation, Source, Total, TotalScope, Usage,
    sentence::{self, Amount, TimePurpose},
};

/// Decides about a request; all reasons are returned, the most telling first.
///
/// What never fits (more than a limit, more than the machine has, longer than allowed, more
/// hours than are left) is refused; what would fit if something ended waits; `pending` bounds
/// how much may wait.
#[must_use]
pub fn decide(request: &Request, situation: &Situation<'_>) -> Decision {
    let mut reasons = Reasons::default();
    for field in amounts(request) {
        own_limit(&field, request, situation, &mut reasons);
    }
    // Slurm takes no more than so many, and would refuse the next instead of holding it back.
    if let Some(handed_in) = situation.limits.handed_in()
        && let Limit::AtMost(limit) = handed_in.limit
    {
        let Usage { sessions, light, jobs, .. } = situation.usage;
        let amount = Amount { field: &Field::Jobs, used: sessions + light + jobs, requested: 1, limit };
        if amount.never_fits() {
            reasons.never.push(sentence::too_much(&amount, &handed_in.source));
        } else if amount.is_over() {
            reasons.later.push(sentence::in_the_way(&amount, &handed_in.source, situation.own));
        }
    }
    let field = request.class.longest();
    let longest = situation.limits.of(&field);
    if let Limit::AtMost(limit) = longest.limit
        && limit < request.duration_seconds
    {
        let amount = Amount { field: &field, used: 0, requested: request.duration_seconds, limit };
        reasons.never.push(sentence::too_much(&amount, &longest.source));
    }
    for field in [Field::GpuHours, Field::CpuHours] {
        let effective = situation.limits.of(&field);
        let own = (None, situation.usage, &effective.source);
        reasons.never.extend(hours(&field, effective.limit, request, situation, own, TimePurpose::Start));
    }
    for total in situation.totals {
        together(total, request, situation, &mut reasons);
    }
    machine(request, situation, &mut reasons);

    let Reasons { mut never, mut later } = reasons;
    if !never.is_empty() {
        never.append(&mut later);
        return Decision::Refuse(never);
    }
    if later.is_empty() { Decision::Admit } else { wait(later, situation) }
}

/// A request that has to wait for these reasons waits, unless too many of its owner's do.
#[must_use]
pub fn wait(mut later: Vec<Reason>, situation: &Situation<'_>) -> Decision {
    let effective = situation.limits.of(&Field::Pending);
    if let Limit::AtMost(limit) = effective.limit
        && !situation.already_waiting
        && limit < situation.usage.pending.saturating_add(1)
    {
        let mut reasons = vec![sentence::too_many_wait(situation.usage.pending, limit, &effective.source)];
        reasons.append(&mut later);
        return Decision::Refuse(reasons);
    }
    Decision::Wait(later)
}

#[derive(Default)]
struct Reasons {
    never: Vec<Reason>,
    later: Vec<Reason>,
}

/// The fields of which a request holds an amount while it runs.
fn amounts(request: &Request) -> Vec<Field> {
    let model = request.resources.gpu_model.clone().map(Field::GpusOf);
    let fields = [Some(Field::Gpus), model, Some(Field::Cpus), Some(Field::MemoryBytes), Some(request.class.count())];
    fields.into_iter().flatten().filter(|field| requested(field, request) > 0).collect()
}

/// How much of a field a request holds while it runs; GPUs of whatever model.
pub(super) fn requested(field: &Field, request: &Request) -> i64 {
    let asked = &request.resources;
    match field {
        Field::Gpus | Field::GpusOf(_) => asked.gpus,
        Field::Cpus => asked.cpus,
        Field::MemoryBytes => asked.memory_bytes,
        Field::Sessions | Field::Light | Field::Jobs => i64::from(*field == request.class.count()),
        _ => 0,
    }
}

fn own_limit(field: &Field, request: &Request, situation: &Situation<'_>, reasons: &mut Reasons) {
    if let Some(most) = situation.limits.most_of(field)
        && let Limit::AtMost(limit) = most.limit
    {
        let amount = Amount { field, used: 0, requested: requested(field, request), limit };
        reasons.never.extend(amount.never_fits().then(|| sentence::too_much(&amount, &most.source)));
    }
    let effective = situation.limits.of(field);
    let Limit::AtMost(limit) = effective.limit else { return };
    // A limit that is only the machine's size is judged as such, with the machine.
    if effective.is_the_machines() {
        return;
    }
    let amount = Amount { field, used: situation.usage.of(field), requested: requested(field, request), limit };
    if amount.never_fits() {
        reasons.never.push(sentence::too_much(&amount, &effective.source));
    } else if amount.is_over() && !situation.leaves_to_slurm(field) {
        reasons.later.push(sentence::in_the_way(&amount, &effective.source, situation.own));
    }
}

fn together(total: &Total, request: &Request, situation: &Situation<'_>, reasons: &mut Reasons) {
    for (field, limit) in &total.limits {
        let source = Source::of_total(&total.whose);
        let theirs = (Some(&total.whose), &total.usage, &source);
        reasons.never.extend(hours(field, *limit, request, situation, theirs, TimePurpose::Start));
        let Limit::AtMost(limit) = *limit else { continue };
        let of_other_model =
            matches!(field, Field::GpusOf(model) if request.resources.gpu_model.as_ref() != Some(model));
        let requested = requested(field, request);
        if requested == 0 || of_other_model {
            continue;
        }
        let amount = Amount { field, used: total.usage.of(field), requested, limit };
        if amount.never_fits() {
            reasons.never.push(sentence::too_much_together(&amount, &total.whose));
        } else if amount.is_over() && !situation.leaves_to_slurm(field) {
            reasons.later.push(sentence::in_the_way_together(&amount, &total.whose));
        }
    }
}

/// Hours are refused where they would run over, counted to the end of what runs: waiting does
/// not give any back. Whose limit it is, what they use, and where the limit comes from.
pub(super) fn hours(
    field: &Field,
    limit: Limit,
    request: &Request,
    situation: &Situation<'_>,
    (whose, usage, source): (Option<&TotalScope>, &Usage, &Source),
    what: TimePurpose,
) -> Option<Reason> {
    let (each, used) = match field {
        Field::GpuHours => (request.resources.gpus, usage.gpu_seconds),
        Field::CpuHours => (request.resources.cpus, usage.cpu_seconds),
        _ => return None,
    };
    let Limit::AtMost(limit) = limit else { return None };
    let seconds = situation.period_left.map_or(request.duration_seconds, |left| request.duration_seconds.min(left));
    let requested = each.saturating_mul(seconds);
    let runs_over = requested > 0 && limit.saturating_mul(3600) < used.saturating_add(requested);
    let amount = Amount { field, used, requested, limit };
    runs_over.then(|| sentence::hours_over(&amount, whose, source, situation.period, what))
}

fn machine(request: &Request, situation: &Situation<'_>, reasons: &mut Reasons) {
    let (asked, in_use, capacity) = (&request.resources, situation.in_use, &situation.capacity);
    let amounts = [
        (Field::Gpus, asked.gpus, in_use.gpus, capacity.gpus),
        // Light sessions share the cores that others leave idle, so that a terminal opens beside
        // a training on a small machine; quotas that somebody set count them all the same.
        (Field::Cpus, asked.cpus, in_use.cpus - in_use.light_cpus, capacity.cpus),
        (Field::MemoryBytes, asked.memory_bytes, in_use.memory_bytes, capacity.memory_bytes),
    ];
    for (field, requested, used, limit) in amounts {
        let amount = Amount { field: &field, used, requested, limit };
        if requested == 0 {
            continue;
        }
        if amount.never_fits() {
            reasons.never.push(sentence::machine_too_small(&amount));
        } else if amount.is_over()
            && !(request.class == Class::Light && field == Field::Cpus)
            && !situation.leaves_to_slurm(&field)
        {
            reasons.later.push(sentence::machine_full(&amount));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{LimitRow, Limits, Period, Scope, SlurmLimits, SlurmScope, SlurmSource},
        *,
    };
    use crate::{Capacity, Resources, Timestamp, size::GIB};

    const WHOLE: Capacity = Capacity { gpus: 4, cpus: 32, memory_bytes: 192 * GIB };
    const NOW: Timestamp = Timestamp(1_000_000);

    fn row(scope: Scope, field: Field, value: i64) -> LimitRow {
        LimitRow { scope, field, value, expires_at: None, note: None }
    }

    /// On a machine that nobody else uses.
    fn of_nobody_else<'a>(limits: &'a Limits, usage: &'a Usage, period: &'a Period) -> Situation<'a> {
        Situation {
            limits,
            usage,
            totals: &[],
            in_use: usage,
            capacity: WHOLE,
            period,
            period_left: None,
            own: &[],
            goes_to_slurm: false,
            already_waiting: false,
        }
    }

    fn ask(gpus: i64, cpus: i64, memory_bytes: i64) -> Request {
        Request {
            resources: Resources { gpus, gpu_model: None, cpus, memory_bytes },
            duration_seconds: 3600,
            class: Class::Session,
        }
    }

    #[test]
    fn what_slurm_holds_back_is_handed_on() {
        let at_most = |value, source| super::super::Effective { limit: Limit::AtMost(value), source };
        let lab = |value| at_most(value, Source::account("lab"));
        let most =
            vec![(Field::Cpus, at_most(8, Source::Slurm(SlurmSource::Qos("gpu".to_owned(), SlurmScope::OneJob))))];
        let each = vec![(Field::Gpus, lab(2)), (Field::Sessions, lab(1))];
        let slurms = SlurmLimits { source: Source::account("lab"), each, most, ..SlurmLimits::default() };
        let rows = [row(Scope::User, Field::Light, 1)];
        let limits = Limits::resolve(&rows, &WHOLE, true, NOW).with_slurms(&slurms, &WHOLE);
        let usage = Usage { gpus: 2, sessions: 1, light: 1, memory_bytes: 190 * GIB, ..Usage::default() };
        let period = Period::default();
        let situation = |goes_to_slurm| Situation { goes_to_slurm, ..of_nobody_else(&limits, &usage, &period) };
        let decided = |request: &Request, goes_to_slurm| decide(request, &situation(goes_to_slurm));
        let fits_later = ask(2, 8, 48 * GIB);
        assert_eq!(decided(&fits_later, true), Decision::Admit, "limits and room are Slurm's to wait for");
        assert!(matches!(decided(&fits_later, false), Decision::Wait(reasons) if reasons.len() == 3));
        for (request, source) in [(ask(3, 1, GIB), "Slurm: account lab"), (ask(1, 9, GIB), "Slurm: QOS gpu, one job")] {
            match decided(&request, true) {
                Decision::Refuse(reasons) => {
                    assert_eq!((reasons.len(), reasons[0].source.to_string()), (1, source.to_owned()));
                }
                other => panic!("{other:?}"),
            }
        }
        let full = SlurmLimits { handed_in: Some(lab(2)), ..slurms };
        let limits = Limits::resolve(&rows, &WHOLE, true, NOW).with_slurms(&full, &WHOLE);
        let situation = Situation { limits: &limits, ..situation(true) };
        let waits = decide(&ask(1, 1, GIB), &situation);
        assert!(matches!(&waits, Decision::Wait(reasons) if reasons.len() == 1 && reasons[0].limit == 2), "{waits:?}");
        // What Slurm has no word for waits here.
        let light = Request { class: Class::Light, ..ask(0, 1, GIB) };
        assert!(
            matches!(decided(&light, true), Decision::Wait(reasons) if reasons[0].code.to_string() == "quota.light.user")
        );
    }

    fn answer(request: &Request, rows: &[LimitRow], usage: &Usage) -> Decision {
        answer_with(request, rows, usage, &[])
    }

    fn answer_with(request: &Request, rows: &[LimitRow], usage: &Usage, totals: &[Total]) -> Decision {
        let limits = Limits::resolve(rows, &WHOLE, true, NOW);
        let own = [("resnet".to_owned(), 2)];
        let period = Period::default();
        decide(request, &Situation { totals, own: &own, ..of_nobody_else(&limits, usage, &period) })
    }

    fn total(whose: TotalScope, field: Field, limit: i64, usage: Usage) -> Total {
        Total { whose, limits: vec![(field, Limit::of(limit))], usage }
    }

    fn vision() -> TotalScope {
        TotalScope::Group { id: crate::GroupId::new(), name: "vision".to_owned(), is_charged: true }
    }

    #[track_caller]
    fn waits(decision: Decision) -> Vec<Reason> {
        let Decision::Wait(reasons) = decision else { panic!("waits: {decision:?}") };
        reasons
    }

    #[track_caller]
    fn refused(decision: Decision) -> Vec<Reason> {
        let Decision::Refuse(reasons) = decision else { panic!("refused: {decision:?}") };
        reasons
    }

    #[test]
    fn sentences() {
        let two = [row(Scope::Default, Field::Gpus, 2)];
        let busy = Usage { gpus: 2, sessions: 1, ..Usage::default() };
        let reasons = waits(answer(&ask(2, 1, GIB), &two, &busy));
        assert_eq!(reasons[0].hint, "Your limit is 2 GPUs and 2 are in use by ‘resnet’. Stop it to make room.");
        assert_eq!((&*reasons[0].code.to_string(), reasons[0].over_by), ("quota.gpus.user", 2));
        let reasons = refused(answer(&ask(3, 1, GIB), &two, &Usage::default()));
        assert_eq!(reasons[0].hint, "This asks for 3 GPUs; your limit is 2 GPUs (default). Ask for at most 2 GPUs.");
        let unlimited = [row(Scope::Default, Field::Cpus, -1)];
        assert_eq!(
            refused(answer(&ask(0, 64, GIB), &unlimited, &Usage::default()))[0].code.to_string(),
            "capacity.cpus"
        );
        let reasons = waits(answer(
            &ask(0, 1, 100 * GIB),
            &[row(Scope::User, Field::MemoryBytes, -1)],
            &Usage { memory_bytes: 100 * GIB, ..Usage::default() },
        ));
        assert_eq!(
            reasons[0].hint,
            "This asks for 100 GiB; 92 GiB of the machine's 192 GiB are free now. It starts when something ends."
        );
    }

    #[test]
    fn all_together_are_bound_whatever_one_may() {
        let mine = [row(Scope::User, Field::Gpus, -1)];
        let three = Usage { gpus: 3, sessions: 3, ..Usage::default() };
        let group = [total(vision(), Field::Gpus, 4, three.clone())];
        assert_eq!(answer_with(&ask(1, 1, GIB), &mine, &Usage::default(), &group), Decision::Admit);
        let reasons = waits(answer_with(&ask(2, 1, GIB), &mine, &Usage::default(), &group));
        assert_eq!(
            (&*reasons[0].code.to_string(), &*reasons[0].source.to_string()),
            ("quota.gpus.group", "group vision")
        );
        assert_eq!((reasons[0].used, reasons[0].limit, reasons[0].over_by), (3, 4, 1));
        assert_eq!(
            reasons[0].hint,
            "Group ‘vision’ may use 4 GPUs together and 3 are in use. Ask for at most 1 GPU, or wait until one of its \
             sessions ends."
        );
        let cluster = [total(TotalScope::Cluster, Field::Gpus, 1, Usage::default())];
        let reasons = refused(answer_with(&ask(2, 1, GIB), &mine, &Usage::default(), &cluster));
        assert_eq!((&*reasons[0].code.to_string(), &*reasons[0].source.to_string()), ("quota.gpus.cluster", "cluster"));
        assert_eq!(reasons[0].hint, "This asks for 2 GPUs; all users may use 1 GPU together. Ask for at most 1 GPU.");
        let none = [total(vision(), Field::Gpus, 0, Usage::default())];
        let reasons = refused(answer_with(&ask(1, 1, GIB), &mine, &Usage::default(), &none));
        assert_eq!(
            reasons[0].hint,
            "Group ‘vision’ cannot use any GPUs. Ask an administrator, or choose another group."
        );
        // What is not asked for is not judged.
        assert_eq!(answer_with(&ask(0, 1, GIB), &mine, &Usage::default(), &none), Decision::Admit);
        let sessions = [total(TotalScope::Cluster, Field::Sessions, 3, three)];
        assert_eq!(
            waits(answer_with(&ask(0, 1, GIB), &[], &Usage::default(), &sessions))[0].code.to_string(),
            "quota.sessions.cluster"
        );
        let light = Request { class: Class::Light, ..ask(0, 1, GIB) };
        assert_eq!(answer_with(&light, &[], &Usage::default(), &sessions), Decision::Admit);
    }

    #[test]
    fn a_model_has_a_limit_of_its_own() {
        let a100 = || Field::GpusOf("A100".to_owned());
        let rows = [row(Scope::Default, a100(), 1)];
        let mut wanted = ask(1, 1, GIB);
        wanted.resources.gpu_model = Some("A100".to_owned());
        let one = Usage { gpus: 1, gpus_by_model: [("A100".to_owned(), 1)].into(), ..Usage::default() };
        let reasons = waits(answer(&wanted, &rows, &one));
        assert_eq!(reasons[0].code.to_string(), "quota.gpus.user");
        assert_eq!(reasons[0].hint, "Your limit is 1 × A100 and 1 is in use by ‘resnet’. Stop it to make room.");
        wanted.resources.gpu_model = Some("H100".to_owned());
        assert_eq!(answer(&wanted, &rows, &one), Decision::Admit);
        let group = [total(vision(), a100(), 1, one)];
        assert_eq!(answer_with(&wanted, &[], &Usage::default(), &group), Decision::Admit);
        wanted.resources.gpu_model = Some("A100".to_owned());
        assert_eq!(waits(answer_with(&wanted, &[], &Usage::default(), &group))[0].code.to_string(), "quota.gpus.group");
    }

    #[test]
    fn hours_that_would_run_over_are_refused() {
        let rows = [row(Scope::Default, Field::GpuHours, 10)];
        let spent = |seconds| Usage { gpu_seconds: seconds, ..Usage::default() };
        assert_eq!(answer(&ask(2, 1, GIB), &rows, &spent(8 * 3600)), Decision::Admit, "to the second");
        let reasons = refused(answer(&ask(2, 1, GIB), &rows, &spent(8 * 3600 + 1)));
        assert_eq!(
            (&*reasons[0].code.to_string(), &*reasons[0].source.to_string()),
            ("quota.gpu_hours.user", "default")
        );
        assert_eq!((reasons[0].used, reasons[0].requested, reasons[0].limit, reasons[0].over_by), (9, 2, 10, 1));
        assert_eq!(
            reasons[0].hint,
            "This could use 2 h of GPU time; of your 10 GPU-hours for 30 days (default) 1 h 59 min are left, counting \
             running workloads to their end. Ask for less time or fewer GPUs."
        );
        assert_eq!(answer(&ask(0, 1, GIB), &rows, &spent(20 * 3600)), Decision::Admit);
        let group = [total(vision(), Field::CpuHours, 3, Usage { cpu_seconds: 3600, ..Usage::default() })];
        assert_eq!(answer_with(&ask(0, 2, GIB), &[], &Usage::default(), &group), Decision::Admit);
        let reasons = refused(answer_with(&ask(0, 3, GIB), &[], &Usage::default(), &group));
        assert_eq!(
            (&*reasons[0].code.to_string(), &*reasons[0].source.to_string()),
            ("quota.cpu_hours.group", "group vision")
        );
    }

    #[test]
    fn only_this_months_part_of_a_request_counts_this_month() {
        let limits = Limits::resolve(&[row(Scope::Default, Field::GpuHours, 1)], &WHOLE, true, NOW);
        let (usage, period) = (Usage::default(), Period::default());
        let situation = |period_left| Situation { period_left, ..of_nobody_else(&limits, &usage, &period) };
        let two_hours = Request { duration_seconds: 7200, ..ask(1, 1, GIB) };
        assert_eq!(refused(decide(&two_hours, &situation(None)))[0].code.to_string(), "quota.gpu_hours.user");
        assert_eq!(decide(&two_hours, &situation(Some(3600))), Decision::Admit);
    }

    #[test]
    fn none_refuses_and_pending_is_bounded() {
        let none = [row(Scope::User, Field::Gpus, 0)];
        assert!(matches!(answer(&ask(1, 1, GIB), &none, &Usage::default()), Decision::Refuse(_)));
        assert_eq!(answer(&ask(0, 1, GIB), &none, &Usage::default()), Decision::Admit);
        let full = Usage { sessions: 4, pending: 20, ..Usage::default() };
        let reasons = refused(answer(&ask(0, 1, GIB), &[], &full));
        assert_eq!(reasons[0].code.to_string(), "quota.pending.user");
        assert_eq!(reasons[1].code.to_string(), "quota.sessions.user");
        let mut long = ask(0, 1, GIB);
        long.duration_seconds = 9 * 3600;
        let reasons = refused(answer(&long, &[], &Usage::default()));
        assert_eq!(reasons[0].hint, "This asks for 9 h; your limit is 8 h (default). Ask for at most 8 h.");
    }

    #[test]
    fn light_sessions_share_cores_but_not_quotas() {
        let light = Request { class: Class::Light, ..ask(0, 1, GIB) };
        let full = Usage { cpus: 34, light_cpus: 2, light: 2, ..Usage::default() };
        assert_eq!(answer(&light, &[], &full), Decision::Admit);
        assert!(matches!(answer(&ask(0, 1, GIB), &[], &full), Decision::Wait(_)), "others do not");
        let one_free = Usage { cpus: 33, light_cpus: 2, ..Usage::default() };
        assert_eq!(answer(&ask(0, 1, GIB), &[], &one_free), Decision::Admit);
        let quota = [row(Scope::User, Field::Cpus, 2)];
        let two = Usage { cpus: 2, light_cpus: 2, light: 2, ..Usage::default() };
        assert!(matches!(answer(&light, &quota, &two), Decision::Wait(_)));
    }

    fn usages() -> impl Strategy<Value = Usage> {
        (0..6i64, 0..40i64, 0..200i64, 0..6i64, 0..25i64, 0..100_000i64).prop_map(
            |(gpus, cpus, memory, sessions, pending, gpu_seconds)| Usage {
                gpus,
                cpus,
                memory_bytes: memory * GIB,
                sessions,
                pending,
                gpu_seconds,
                ..Usage::default()
            },
        )
    }

    /// Of fields that a request of these tests is measured by.
    fn fields() -> impl Strategy<Value = Field> {
        prop::sample::select(vec![Field::Gpus, Field::Cpus, Field::Sessions, Field::GpuHours, Field::Pending])
    }

    fn rank(decision: &Decision) -> u8 {
        match decision {
            Decision::Refuse(_) => 0,
            Decision::Wait(_) => 1,
            Decision::Admit => 2,
        }
    }

    proptest! {
        #[test]
        fn raising_a_limit_never_makes_it_worse(
            gpus in 0..6i64, cpus in 1..40i64, usage in usages(), field in fields(), limit in 0..30i64, more in 0..30i64,
        ) {
            let own = |limit| answer(&ask(gpus, cpus, GIB), &[row(Scope::User, field.clone(), limit)], &usage);
            prop_assert!(rank(&own(limit)) <= rank(&own(limit + more)));
            prop_assert!(rank(&own(limit + more)) <= rank(&own(-1)));
            let whole = |limit| {
                let totals = [total(vision(), field.clone(), limit, usage.clone())];
                answer_with(&ask(gpus, cpus, GIB), &[], &Usage::default(), &totals)
            };
            prop_assert!(rank(&whole(limit)) <= rank(&whole(limit + more)));
            prop_assert!(rank(&whole(limit + more)) <= rank(&whole(-1)));
        }

        #[test]
        fn freeing_never_makes_it_worse(gpus in 0..6i64, cpus in 1..40i64, usage in usages(), freed in 0..6i64) {
            let less = Usage { gpus: (usage.gpus - freed).max(0), cpus: (usage.cpus - freed).max(0), ..usage.clone() };
            let (before, after) = (answer(&ask(gpus, cpus, GIB), &[], &usage), answer(&ask(gpus, cpus, GIB), &[], &less));
            prop_assert!(rank(&before) <= rank(&after));
        }

        #[test]
        fn admitted_means_within_every_limit(
            gpus in 0..6i64, cpus in 1..40i64, usage in usages(), limit in 0..6i64, whole in 0..6i64,
        ) {
            let rows = [row(Scope::User, Field::Gpus, limit), row(Scope::User, Field::GpuHours, 20)];
            let totals = [total(vision(), Field::Gpus, whole, usage.clone())];
            if answer_with(&ask(gpus, cpus, GIB), &rows, &usage, &totals) == Decision::Admit {
                prop_assert!(gpus == 0 || usage.gpus + gpus <= limit.min(whole).min(WHOLE.gpus));
                prop_assert!(gpus == 0 || usage.gpu_seconds + gpus * 3600 <= 20 * 3600);
                prop_assert!(usage.cpus + cpus <= WHOLE.cpus);
                prop_assert!(usage.sessions < 4);
            }
        }

        #[test]
        fn huge_numbers_do_not_overflow(gpus in 0..=i64::MAX, cpus in 1..=i64::MAX, memory in 1..=i64::MAX) {
            let all = i64::MAX;
            let usage = Usage { gpus: all, cpus: all, memory_bytes: all, gpu_seconds: all, cpu_seconds: all, ..Usage::default() };
            let rows = [row(Scope::User, Field::Gpus, all), row(Scope::User, Field::GpuHours, all)];
            let long = Request { duration_seconds: all, ..ask(gpus, cpus, memory) };
            let _ = answer_with(&long, &rows, &usage, &[total(vision(), Field::CpuHours, all, usage.clone())]);
        }
    }
}
