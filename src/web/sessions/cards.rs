//! What several pages draw: a session's card for whoever reads it, and somebody's quota bars.
//! They gather what the pure views need from the services; the views do the rest.

use axum::http::HeaderMap;

use super::super::{
    Portal,
    views::{Card, CardContext, Meter, SentenceContext, StorageNote, Unit, gpus_are_counted},
};
use crate::{
    admission::QuotaStatus,
    auth::Principal,
    model::{
        Role, Session,
        quota::{Field, Limit, Limits, usual_extension},
        size::human_size,
    },
};

/// A session's card for this reader.
pub(in crate::web) fn card(
    portal: &Portal,
    principal: &Principal,
    headers: &HeaderMap,
    session: &Session,
    limits: &Limits,
) -> Card {
    Card::new(session, &context(portal, principal, headers, session, limits))
}

/// What is to be known besides the session, to draw something of it.
pub(in crate::web) fn context(
    portal: &Portal,
    principal: &Principal,
    headers: &HeaderMap,
    session: &Session,
    limits: &Limits,
) -> CardContext {
    let live = portal.sessions.live(session.id);
    let capacity = portal.sessions.admission.stock.capacity();
    let extendable = match limits.of(&Field::MaxExtensions).limit {
        _ if portal.sessions.scheduler.time_is_fixed().is_some() => false,
        Limit::Unlimited => true,
        Limit::AtMost(times) => session.extensions < times,
    };
    let extension = usual_extension(limits);
    let is_own = session.owner == principal.id();
    let may_extend = extendable && (is_own || principal.is_admin());
    let drained_at = portal.sessions.drained_at(session);
    let no_extension = live.told.no_extension.first().map(|reason| reason.hint.clone());
    CardContext {
        around: SentenceContext {
            now: portal.clock.now(),
            idle: portal.sessions.idle_deadline(session),
            step: live.status.map(|status| status.step),
            most_memory_bytes: Some(limits.of(&Field::MemoryBytes).limit.cap(capacity.memory_bytes)),
            is_own,
            no_extension: no_extension.clone(),
            drained_at,
            estimated_start: live.estimated_start,
        },
        app_title: portal.sessions.apps.find(&session.app).map_or_else(|| session.app.clone(), |app| app.title.clone()),
        open_url: portal.open_url(headers, session.id),
        extend_seconds: (may_extend && extension > 0 && no_extension.is_none() && drained_at.is_none())
            .then_some(extension),
        sample: live.sample,
        idle_gpus: unused_gpus(portal, session),
        visible_on_node: portal.sessions.port(session).is_some(),
        gpus_are_counted: gpus_are_counted(session, &portal.sessions.scheduler.stock().inventory()),
        csrf_token: principal.csrf_token().to_owned(),
    }
}

/// Returns what the owner of a session should know of its GPUs: that nothing there can use them, or that nothing does.
pub(in crate::web) fn unused_gpus(portal: &Portal, session: &Session) -> Option<String> {
    portal.sessions.unusable_gpus(session).or_else(|| super::hardware::idle_sentence(portal, session))
}

/// Somebody's quota bars.
pub(in crate::web) fn meters(standing: &QuotaStatus) -> Vec<Meter> {
    let usage = &standing.usage;
    let rows = [
        (Field::Gpus, "gpus", "GPUs", usage.gpus, Unit::Count, standing.capacity.gpus),
        (Field::Cpus, "cpus", "cores", cores_held(standing), Unit::Count, standing.capacity.cpus),
        (Field::MemoryBytes, "memory_bytes", "memory", usage.memory_bytes, Unit::Bytes, standing.capacity.memory_bytes),
        (Field::Sessions, "sessions", "sessions", usage.sessions, Unit::Count, i64::MAX),
        (Field::Light, "light", "light sessions", usage.light, Unit::Count, i64::MAX),
        (Field::Jobs, "jobs", "jobs", usage.jobs, Unit::Count, i64::MAX),
        (Field::StorageBytes, "storage_bytes", "storage", usage.storage_bytes, Unit::Bytes, i64::MAX),
    ];
    let meter = |(field, name, label, used, unit, machine): (Field, &'static str, &str, i64, Unit, i64)| {
        let effective = standing.limits.of(&field);
        // A limit beyond the machine is the machine's.
        let limit = match effective.limit {
            Limit::Unlimited if machine == i64::MAX => None,
            limit => Some(limit.cap(machine)),
        };
        let label = if field == Field::Gpus && limit == Some(1) { "GPU" } else { label };
        Meter {
            field: name,
            label: label.to_owned(),
            used,
            asked: 0,
            limit,
            unit,
            source: effective.source.to_string(),
        }
    };
    // What a machine has none of, or a person has none of beside the usual, is not worth a bar.
    let tells = |field: &Field| match field {
        Field::Gpus => standing.capacity.gpus > 0,
        Field::Light => usage.light > 0,
        Field::Jobs => usage.jobs > 0,
        Field::StorageBytes => usage.storage_bytes > 0 && standing.limits.of(field).limit != Limit::Unlimited,
        _ => true,
    };
    rows.into_iter().filter(|row| tells(&row.0)).map(meter).collect()
}

/// What the bars count that is no session or job of the portal's.
pub(in crate::web) fn elsewhere_note(standing: &QuotaStatus) -> Option<String> {
    let held = &standing.external_usage;
    let usage = &held.usage;
    let jobs = match held.jobs.len() {
        0 => return None,
        1 => "one job".to_owned(),
        several => format!("{several} jobs"),
    };
    let several = |count: i64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let gpus = if usage.gpus == 0 { String::new() } else { format!("{}, ", several(usage.gpus, "GPU")) };
    let (cores, memory) = (several(usage.cpus, "core"), human_size(usage.memory_bytes));
    Some(format!("Includes {jobs} submitted in a shell: {gpus}{cores} and {memory}."))
}

/// What to say of somebody's storage, once there is little left of it.
pub(in crate::web) fn storage_note(standing: &QuotaStatus) -> Option<StorageNote> {
    let effective = standing.limits.of(&Field::StorageBytes);
    let Limit::AtMost(limit) = effective.limit else { return None };
    StorageNote::new(standing.usage.storage_bytes, limit, &effective.source)
}

/// The cores that count against somebody's limit. Where that is only the machine's size, light
/// sessions count nothing: they share the cores that others leave idle.
pub(in crate::web) fn cores_held(standing: &QuotaStatus) -> i64 {
    let lent = if standing.limits.of(&Field::Cpus).is_the_machines() { standing.usage.light_cpus } else { 0 };
    standing.usage.cpus - lent
}

/// Whether this reader sees other people's things.
pub(in crate::web) fn is_operator(principal: &Principal) -> bool {
    Role::Operator <= principal.user.role
}
