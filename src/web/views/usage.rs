//! `/usage`: what somebody holds, used and may still use, and what has ended; and for those
//! who see others' affairs, who used how much. Places of bars are `chart`'s.

use askama::Template;

use super::{Chart, Column, FieldError, Meter, Moment};
use crate::{
    model::EndReason,
    web::page::{Layout, filters},
};

/// One's own use.
#[derive(Debug, Template)]
#[template(path = "usage/own.html")]
pub struct UsagePage {
    pub layout: Layout,
    pub tabs: Option<UsageTabs>,
    pub meters: Vec<Meter>,
    /// What of it came from a shell.
    pub elsewhere: Option<String>,
    /// Hours that are limited, by the person's own limits and by totals.
    pub budgets: Vec<Budget>,
    pub range: RangeChooser,
    pub charts: Vec<Chart>,
    /// What the charts show, as a table.
    pub spans: Vec<SpanRow>,
    /// What of it was no session or job of the portal's.
    pub from_shell: Option<String>,
    pub history: HistoryFilter,
    /// The latest first.
    pub lines: Vec<EndedLine>,
    pub csv_href: String,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
}

/// Everybody's use, or that of the groups that the reader manages.
#[derive(Debug, Template)]
#[template(path = "usage/compare.html")]
pub struct ComparePage {
    pub layout: Layout,
    pub tabs: UsageTabs,
    pub range: RangeChooser,
    pub charts: Vec<Chart>,
    pub spans: Vec<SpanRow>,
    /// What of it was no session or job of the portal's.
    pub from_shell: Option<String>,
    /// By what it is summed up: address, word, and whether that is shown.
    pub by: Vec<RangeTab>,
    pub columns: Vec<Column>,
    /// Cores are not counted by GPU model.
    pub has_cores: bool,
    pub rows: Vec<UsedRow>,
    /// How many rows there are in all.
    pub count: i64,
    pub csv_href: String,
    /// Other tables to download: what they group by, and address.
    pub reports: [(&'static str, String); 2],
    pub first_href: Option<String>,
    pub next_href: Option<String>,
}

/// The pages of usage that the reader has.
#[derive(Clone, Copy, Debug)]
pub struct UsageTabs {
    /// “Everybody”, “My groups”.
    pub others: &'static str,
    pub is_own: bool,
}

/// Which time is shown.
#[derive(Clone, Debug, Default)]
pub struct RangeChooser {
    pub action: &'static str,
    pub tabs: Vec<RangeTab>,
    /// `2030-01-31`, as typed or as shown.
    pub from: String,
    pub to: String,
    /// The time zone of these days.
    pub zone: String,
    /// What a form has to send along: name and value.
    pub kept: Vec<(&'static str, String)>,
    /// Fields: `from`, `to`.
    pub errors: Vec<FieldError>,
}

#[derive(Clone, Debug)]
pub struct RangeTab {
    pub href: String,
    pub label: String,
    pub is_current: bool,
}

/// What may be used in a period, and what is left of it.
#[derive(Clone, Debug)]
pub struct Budget {
    /// In thousandths of hours: what was used, and what those that run may still use.
    pub meter: Meter,
    /// “this month”.
    pub period: String,
    /// “yours”, “of group vision, all together”.
    pub whose: String,
}

/// A day or a week of the charts.
#[derive(Clone, Debug)]
pub struct SpanRow {
    pub label: String,
    /// GPUs and cores × milliseconds.
    pub gpus: i64,
    pub cpus: i64,
    pub sessions: i64,
}

/// What the history is narrowed to: value, word, and whether it is chosen.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    pub apps: Vec<(String, String, bool)>,
    pub reasons: Vec<(&'static str, &'static str, bool)>,
    /// Of the page without them.
    pub all_href: String,
    /// What the form has to send along.
    pub kept: Vec<(&'static str, String)>,
}

/// A session that has ended.
#[derive(Clone, Debug)]
pub struct EndedLine {
    pub id: String,
    pub name: String,
    pub app: String,
    pub class: &'static str,
    pub reason: &'static str,
    pub ended: Moment,
    /// For how long it held something (seconds); `None`: it never did.
    pub held_seconds: Option<i64>,
    pub held: String,
}

/// What one person, group or model used.
#[derive(Clone, Debug)]
pub struct UsedRow {
    pub name: String,
    pub href: Option<String>,
    pub gpus: i64,
    pub cpus: i64,
    pub sessions: i64,
    /// In hundredths of the longest one.
    pub gpu_bar: i64,
    pub cpu_bar: i64,
}

impl RangeChooser {
    fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }
}

impl HistoryFilter {
    /// Whether it leaves anything out.
    pub fn narrows(&self) -> bool {
        self.apps.iter().any(|(.., chosen)| *chosen) || self.reasons.iter().any(|(.., chosen)| *chosen)
    }
}

impl Budget {
    /// What nothing holds yet.
    fn left(&self) -> String {
        let left = self.meter.limit.unwrap_or_default() - self.meter.used - self.meter.asked;
        Meter { used: left.max(0), ..self.meter.clone() }.used_text()
    }

    fn committed(&self) -> Option<String> {
        (self.meter.asked > 0).then(|| Meter { used: self.meter.asked, ..self.meter.clone() }.used_text())
    }
}

/// Why a session ended, in a few words for a list.
#[must_use]
pub fn end_reason_word(reason: EndReason) -> &'static str {
    match reason {
        EndReason::StoppedByOwner => "Stopped by owner",
        EndReason::StoppedByAdmin => "Stopped by admin",
        EndReason::Idle => "Idle timeout",
        EndReason::TimeLimit => "Time limit reached",
        EndReason::OutOfMemory => "Out of memory",
        EndReason::Exited => "Exited",
        EndReason::Signal => "Killed by a signal",
        EndReason::NodeFailure => "Node failed",
        EndReason::HostRebooted => "Machine restarted",
        EndReason::Preempted => "Preempted",
        EndReason::LaunchFailed => "Failed to start",
        EndReason::Refused => "Rejected",
        EndReason::Lost => "Lost",
    }
}
