//! What the pages of usage draw alike: charts of a time and the same as a table, and the choice
//! of whose usage is seen.

use super::others;
use crate::{
    auth::Principal,
    db::usage::{FromShell, UsageOwner, UsedIn},
    model::{
        quota::ConsumedTime,
        time::human_hours,
        timeline::{Span, Step},
    },
    web::views::{Amount, Chart, SpanRow, UsageTabs},
};

pub(super) fn tabs(user: &Principal, is_own: bool) -> Option<UsageTabs> {
    Some(UsageTabs { others: others_word(others(user)?), is_own })
}

pub(super) fn others_word(whose: UsageOwner) -> &'static str {
    if whose == UsageOwner::Everybody { "All users" } else { "My groups" }
}

/// GPU-hours, where there are GPUs or were, and core-hours.
pub(super) fn charts(used: &[UsedIn], step: Step, has_gpus: bool) -> Vec<Chart> {
    let chart = |id, title, amount: fn(&ConsumedTime) -> i64| {
        let amounts = used.iter().map(|one| Amount {
            label: label(&one.span, step),
            short: one.span.date.strftime("%-d\u{a0}%b").to_string(),
            milliseconds: amount(&one.spent),
        });
        Chart::new(id, title, amounts.collect())
    };
    let gpus = chart("gpu-hours", "GPU-hours", |spent| spent.gpu_milliseconds);
    let cores = chart("core-hours", "core-hours", |spent| spent.cpu_milliseconds);
    if has_gpus || !gpus.is_empty() { vec![gpus, cores] } else { vec![cores] }
}

/// What of it the portal has not started, where there is any.
pub(super) fn from_shell(FromShell { jobs, spent }: FromShell) -> Option<String> {
    let (gpus, cpus) = (human_hours(spent.gpu_milliseconds), human_hours(spent.cpu_milliseconds));
    let which = match jobs {
        0 => return None,
        1 => "Includes one job".to_owned(),
        several => format!("Includes {several} jobs"),
    };
    Some(format!("{which} from a shell, with {gpus} GPU-hours and {cpus} core-hours."))
}

pub(super) fn span_rows(used: &[UsedIn], step: Step) -> Vec<SpanRow> {
    let row = |one: &UsedIn| SpanRow {
        label: label(&one.span, step),
        gpus: one.spent.gpu_milliseconds,
        cpus: one.spent.cpu_milliseconds,
        sessions: one.sessions,
    };
    used.iter().map(row).collect()
}

fn label(span: &Span, step: Step) -> String {
    let week = if step == Step::Week { "week of " } else { "" };
    format!("{week}{}", span.date.strftime("%a %-d %b %Y"))
}
