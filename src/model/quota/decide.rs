//! The decision about a request, and the sentences that explain it. Pure: it sees numbers
//! and answers with reasons as data, all of them, the most telling first.

use super::{Decision, Effective, Field, Limit, MACHINE, Reason, Request, Situation};
use crate::model::{size::human_size, time::human_duration};

/// Decides about a request; all reasons are returned, the most telling first.
///
/// What never fits (more than a limit, more than the machine has, longer than allowed) is
/// refused; what would fit if something ended waits; `pending` bounds how much may wait.
#[must_use]
pub fn decide(request: &Request, situation: &Situation<'_>) -> Decision {
    let mut never = Vec::new();
    let mut later = Vec::new();
    let (asked, usage, in_use, capacity) =
        (&request.resources, &situation.usage, &situation.in_use, &situation.capacity);
    let amounts = [
        (Field::Gpus, asked.gpus, usage.gpus, in_use.gpus, capacity.gpus),
        // Light sessions share the cores that others leave idle, so that a terminal opens beside
        // a training on a small machine; quotas that somebody set count them all the same.
        (Field::Cpus, asked.cpus, usage.cpus, in_use.cpus - in_use.light_cpus, capacity.cpus),
        (Field::MemoryBytes, asked.memory_bytes, usage.memory_bytes, in_use.memory_bytes, capacity.memory_bytes),
    ];
    for (field, requested, used, machine_used, machine) in amounts {
        if requested == 0 {
            continue;
        }
        let effective = situation.limits.of(field);
        // A limit that is only the machine's size is judged as such, below.
        if let Limit::AtMost(limit) = effective.limit
            && !effective.is_the_machines()
        {
            if limit < requested {
                never.push(too_much(field, requested, limit, &effective.source));
            } else if limit < used.saturating_add(requested) {
                later.push(in_the_way(field, used, requested, limit, effective, situation.own));
            }
        }
        if machine < requested {
            never.push(machine_too_small(field, requested, machine));
        } else if machine < machine_used.saturating_add(requested) && !(request.light && field == Field::Cpus) {
            later.push(machine_full(field, machine_used, requested, machine));
        }
    }
    let (field, used) = if request.light { (Field::Light, usage.light) } else { (Field::Sessions, usage.sessions) };
    let effective = situation.limits.of(field);
    if let Limit::AtMost(limit) = effective.limit {
        if limit < 1 {
            never.push(too_much(field, 1, limit, &effective.source));
        } else if limit < used.saturating_add(1) {
            later.push(in_the_way(field, used, 1, limit, effective, situation.own));
        }
    }
    let effective = situation.limits.of(Field::MaxSessionSeconds);
    if let Limit::AtMost(limit) = effective.limit
        && limit < request.duration_seconds
    {
        never.push(too_much(Field::MaxSessionSeconds, request.duration_seconds, limit, &effective.source));
    }
    if !never.is_empty() {
        never.append(&mut later);
        return Decision::Refuse(never);
    }
    if later.is_empty() {
        return Decision::Admit;
    }
    let effective = situation.limits.of(Field::Pending);
    if let Limit::AtMost(limit) = effective.limit
        && !situation.already_waiting
        && limit < usage.pending.saturating_add(1)
    {
        let mut reasons = vec![reason(
            "quota.pending.user",
            effective.source.clone(),
            (usage.pending, 1, limit),
            format!(
                "This would have to wait, and {} of yours wait already, as many as may. Cancel one, or ask again when one has started.",
                usage.pending
            ),
        )];
        reasons.append(&mut later);
        return Decision::Refuse(reasons);
    }
    Decision::Wait(later)
}

fn reason(code: &str, scope: String, (used, requested, limit): (i64, i64, i64), hint: String) -> Reason {
    let over_by = used.saturating_add(requested).saturating_sub(limit).max(0);
    Reason { code: code.to_owned(), scope, used, requested, limit, over_by, hint }
}

fn code(kind: &str, field: Field) -> String {
    let name = match field {
        Field::MemoryBytes => "memory",
        Field::MaxSessionSeconds => "duration",
        other => other.as_str(),
    };
    if kind == "quota" { format!("quota.{name}.user") } else { format!("{kind}.{name}") }
}

fn too_much(field: Field, requested: i64, limit: i64, source: &str) -> Reason {
    let hint = match limit {
        0 => format!("Your limit is no {} at all ({source}). Ask an administrator for some.", field.plural()),
        _ => format!(
            "This asks for {}; your limit is {} ({source}). Ask for at most {}.",
            field.amount(requested),
            field.amount(limit),
            field.amount(limit)
        ),
    };
    reason(&code("quota", field), source.to_owned(), (0, requested, limit), hint)
}

fn in_the_way(
    field: Field,
    used: i64,
    requested: i64,
    limit: i64,
    effective: &Effective,
    own: &[(String, i64)],
) -> Reason {
    let holders: Vec<&(String, i64)> = match field {
        Field::Gpus => own.iter().filter(|(_, gpus)| 0 < *gpus).collect(),
        _ => own.iter().collect(),
    };
    let by = match holders.as_slice() {
        [] => String::new(),
        [(name, _)] => format!(" by ‘{name}’"),
        [(first, _), (second, _)] => format!(" by ‘{first}’ and ‘{second}’"),
        [(first, _), ..] => format!(" by ‘{first}’ and {} more", holders.len() - 1),
    };
    let way_out = match (holders.len(), limit - used) {
        (1, left) if 0 < left && requested != 1 => format!("Stop it, or ask for at most {}.", field.amount(left)),
        (1, _) => "Stop it to make room.".to_owned(),
        (_, left) if 0 < left && requested != 1 => format!("Stop one, or ask for at most {}.", field.amount(left)),
        _ => "Stop one to make room.".to_owned(),
    };
    let hint = format!(
        "Your limit is {} and {} {} in use{by}. {way_out}",
        field.amount(limit),
        field.number(used),
        if used == 1 { "is" } else { "are" },
    );
    reason(&code("quota", field), effective.source.clone(), (used, requested, limit), hint)
}

fn machine_too_small(field: Field, requested: i64, machine: i64) -> Reason {
    let hint = match machine {
        0 => format!("This asks for {}; the machine has none.", field.amount(requested)),
        _ => format!(
            "This asks for {}; the machine has {}. Ask for at most that.",
            field.amount(requested),
            field.amount(machine)
        ),
    };
    reason(&code("capacity", field), MACHINE.to_owned(), (0, requested, machine), hint)
}

fn machine_full(field: Field, used: i64, requested: i64, machine: i64) -> Reason {
    let hint = match (machine - used).max(0) {
        0 => format!("All of the machine's {} are in use. This starts when something ends.", field.amount(machine)),
        free => format!(
            "This asks for {}; {} of the machine's {} {} free now. It starts when something ends.",
            field.amount(requested),
            field.number(free),
            field.amount(machine),
            if free == 1 { "is" } else { "are" },
        ),
    };
    reason(&code("capacity", field), MACHINE.to_owned(), (used, requested, machine), hint)
}

impl Field {
    /// The amount with its unit: `2 GPUs`, `1 core`, `48 GB`, `8 h`.
    fn amount(self, value: i64) -> String {
        match self {
            Self::MemoryBytes => human_size(value),
            Self::MaxSessionSeconds | Self::MaxJobSeconds | Self::ExtensionSeconds | Self::IdleTimeoutSeconds => {
                human_duration(value)
            }
            _ if value == 1 => format!("1 {}", self.singular()),
            _ => format!("{value} {}", self.plural()),
        }
    }

    /// The amount without its unit where a count needs none.
    fn number(self, value: i64) -> String {
        if self == Self::MemoryBytes { human_size(value) } else { value.to_string() }
    }

    fn singular(self) -> &'static str {
        match self {
            Self::Gpus => "GPU",
            Self::Cpus => "core",
            Self::Jobs => "job",
            Self::Light => "light session",
            Self::MaxExtensions => "extension",
            _ => "session",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Gpus => "GPUs",
            Self::Cpus => "cores",
            Self::MemoryBytes => "memory",
            Self::Jobs => "jobs",
            Self::Light => "light sessions",
            Self::MaxExtensions => "extensions",
            _ => "sessions",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{LimitRow, Limits, Scope, Usage},
        *,
    };
    use crate::model::{Capacity, Resources, Timestamp, size::GIB};

    const WHOLE: Capacity = Capacity { gpus: 4, cpus: 32, memory_bytes: 192 * GIB };
    const NOW: Timestamp = Timestamp(1_000_000);

    fn row(scope: Scope, field: Field, value: i64) -> LimitRow {
        LimitRow { scope, field, value, expires_at: None, note: None }
    }

    fn ask(gpus: i64, cpus: i64, memory_bytes: i64) -> Request {
        Request {
            resources: Resources { gpus, gpu_model: None, cpus, memory_bytes },
            duration_seconds: 3600,
            light: false,
        }
    }

    fn answer(request: &Request, rows: &[LimitRow], usage: Usage) -> Decision {
        let limits = Limits::resolve(rows, &WHOLE, true, NOW);
        let own = [("resnet".to_owned(), 2)];
        decide(
            request,
            &Situation { limits: &limits, usage, in_use: usage, capacity: WHOLE, own: &own, already_waiting: false },
        )
    }

    #[test]
    fn the_most_specific_unexpired_row_wins() {
        let mut expired = row(Scope::User, Field::Gpus, 4);
        expired.expires_at = Some(NOW);
        let mut until = row(Scope::User, Field::Gpus, 3);
        until.expires_at = Some(NOW.plus_seconds(1));
        for (rows, single, value, source) in [
            (vec![], true, 4, "machine"),
            (vec![], false, 1, "default"),
            (vec![row(Scope::Default, Field::Gpus, 2)], true, 2, "default"),
            (vec![row(Scope::Default, Field::Gpus, 2), row(Scope::User, Field::Gpus, -1)], true, -1, "override"),
            (vec![row(Scope::Default, Field::Gpus, 2), expired], true, 2, "default"),
            (vec![until], true, 3, "override until 1970-01-01T00:16:41Z"),
        ] {
            let limits = Limits::resolve(&rows, &WHOLE, single, NOW);
            assert_eq!((limits.of(Field::Gpus).limit.value(), limits.of(Field::Gpus).source.as_str()), (value, source));
        }
    }

    #[test]
    fn sentences() {
        let two = [row(Scope::Default, Field::Gpus, 2)];
        let busy = Usage { gpus: 2, sessions: 1, ..Usage::default() };
        let Decision::Wait(reasons) = answer(&ask(2, 1, GIB), &two, busy) else { panic!("waits") };
        assert_eq!(reasons[0].hint, "Your limit is 2 GPUs and 2 are in use by ‘resnet’. Stop it to make room.");
        assert_eq!((reasons[0].code.as_str(), reasons[0].over_by), ("quota.gpus.user", 2));
        let Decision::Refuse(reasons) = answer(&ask(3, 1, GIB), &two, Usage::default()) else { panic!("refused") };
        assert_eq!(reasons[0].hint, "This asks for 3 GPUs; your limit is 2 GPUs (default). Ask for at most 2 GPUs.");
        let Decision::Refuse(reasons) =
            answer(&ask(0, 64, GIB), &[row(Scope::Default, Field::Cpus, -1)], Usage::default())
        else {
            panic!("refused")
        };
        assert_eq!(reasons[0].code, "capacity.cpus");
        let Decision::Wait(reasons) = answer(
            &ask(0, 1, 100 * GIB),
            &[row(Scope::User, Field::MemoryBytes, -1)],
            Usage { memory_bytes: 100 * GIB, ..Usage::default() },
        ) else {
            panic!("waits")
        };
        assert_eq!(
            reasons[0].hint,
            "This asks for 100 GB; 92 GB of the machine's 192 GB are free now. It starts when something ends."
        );
    }

    #[test]
    fn none_refuses_and_pending_is_bounded() {
        let none = [row(Scope::User, Field::Gpus, 0)];
        assert!(matches!(answer(&ask(1, 1, GIB), &none, Usage::default()), Decision::Refuse(_)));
        assert_eq!(answer(&ask(0, 1, GIB), &none, Usage::default()), Decision::Admit);
        let full = Usage { sessions: 4, pending: 20, ..Usage::default() };
        let Decision::Refuse(reasons) = answer(&ask(0, 1, GIB), &[], full) else { panic!("refused") };
        assert_eq!(reasons[0].code, "quota.pending.user");
        assert_eq!(reasons[1].code, "quota.sessions.user");
        let mut long = ask(0, 1, GIB);
        long.duration_seconds = 9 * 3600;
        let Decision::Refuse(reasons) = answer(&long, &[], Usage::default()) else { panic!("refused") };
        assert_eq!(reasons[0].hint, "This asks for 9 h; your limit is 8 h (default). Ask for at most 8 h.");
    }

    #[test]
    fn light_sessions_share_cores_but_not_quotas() {
        let light = Request { light: true, ..ask(0, 1, GIB) };
        let full = Usage { cpus: 34, light_cpus: 2, light: 2, ..Usage::default() };
        assert_eq!(answer(&light, &[], full), Decision::Admit);
        assert!(matches!(answer(&ask(0, 1, GIB), &[], full), Decision::Wait(_)), "others do not");
        let one_free = Usage { cpus: 33, light_cpus: 2, ..Usage::default() };
        assert_eq!(answer(&ask(0, 1, GIB), &[], one_free), Decision::Admit);
        let quota = [row(Scope::User, Field::Cpus, 2)];
        let two = Usage { cpus: 2, light_cpus: 2, light: 2, ..Usage::default() };
        assert!(matches!(answer(&light, &quota, two), Decision::Wait(_)));
    }

    fn usages() -> impl Strategy<Value = Usage> {
        (0..6i64, 0..40i64, 0..200i64, 0..6i64, 0..25i64).prop_map(|(gpus, cpus, memory, sessions, pending)| Usage {
            gpus,
            cpus,
            memory_bytes: memory * GIB,
            sessions,
            pending,
            ..Usage::default()
        })
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
            gpus in 0..6i64, cpus in 1..40i64, usage in usages(), limit in 0..6i64, more in 0..6i64,
        ) {
            let before = answer(&ask(gpus, cpus, GIB), &[row(Scope::User, Field::Gpus, limit)], usage);
            let after = answer(&ask(gpus, cpus, GIB), &[row(Scope::User, Field::Gpus, limit + more)], usage);
            let unlimited = answer(&ask(gpus, cpus, GIB), &[row(Scope::User, Field::Gpus, -1)], usage);
            prop_assert!(rank(&before) <= rank(&after));
            prop_assert!(rank(&after) <= rank(&unlimited));
        }

        #[test]
        fn freeing_never_makes_it_worse(gpus in 0..6i64, cpus in 1..40i64, usage in usages(), freed in 0..6i64) {
            let less = Usage { gpus: (usage.gpus - freed).max(0), cpus: (usage.cpus - freed).max(0), ..usage };
            let (before, after) = (answer(&ask(gpus, cpus, GIB), &[], usage), answer(&ask(gpus, cpus, GIB), &[], less));
            prop_assert!(rank(&before) <= rank(&after));
        }

        #[test]
        fn admitted_means_within_every_limit(gpus in 0..6i64, cpus in 1..40i64, usage in usages(), limit in 0..6i64) {
            if answer(&ask(gpus, cpus, GIB), &[row(Scope::User, Field::Gpus, limit)], usage) == Decision::Admit {
                prop_assert!(gpus == 0 || usage.gpus + gpus <= limit.min(WHOLE.gpus));
                prop_assert!(usage.cpus + cpus <= WHOLE.cpus);
                prop_assert!(usage.sessions < 4);
            }
        }

        #[test]
        fn huge_numbers_do_not_overflow(gpus in 0..=i64::MAX, cpus in 1..=i64::MAX, memory in 1..=i64::MAX) {
            let usage = Usage { gpus: i64::MAX, cpus: i64::MAX, memory_bytes: i64::MAX, ..Usage::default() };
            let _ = answer(&ask(gpus, cpus, memory), &[row(Scope::User, Field::Gpus, i64::MAX)], usage);
        }
    }
}
