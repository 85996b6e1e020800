//! `/sweeps` and `/sweeps/{id}`: the list, and one sweep as a grid of its tasks, a table, and the
//! best so far.

use askama::Template;

use super::{ListFrame, Moment, More, outcome, session_badge};
use crate::{
    model::{
        SessionState, Sweep, SweepState, Timestamp,
        sweep::{Goal, Metric, SweepKind},
        time::human_duration,
    },
    sweeps::TaskProgress,
    web::page::{Layout, filters},
};

/// The list of sweeps.
#[derive(Debug, Template)]
#[template(path = "sweeps/list.html")]
pub struct SweepsPage {
    pub layout: Layout,
    /// Everybody's, for operators.
    pub all: bool,
    /// A part of the name.
    pub find: String,
    pub rows: Vec<SweepRow>,
    pub frame: ListFrame,
}

impl SweepsPage {
    /// Returns whether anything narrows the list, or widens it.
    pub fn narrows(&self) -> bool {
        self.all || !self.find.is_empty()
    }
}

/// One line of the list, and the head of one sweep's page.
#[derive(Clone, Debug)]
pub struct SweepRow {
    pub id: String,
    pub name: String,
    pub owner: String,
    pub kind: &'static str,
    pub class: &'static str,
    pub word: &'static str,
    pub note: String,
    pub tasks: i64,
    pub released: i64,
    pub parallel: i64,
    pub created: Moment,
}

impl SweepRow {
    #[must_use]
    pub fn new(sweep: Sweep, now: Timestamp) -> Self {
        let (class, word) = match sweep.state {
            SweepState::Running => ("running", "Running"),
            SweepState::Paused => ("queued", "Paused"),
            SweepState::Stopping => ("stopping", "Stopping"),
            SweepState::Ended => ("ended", "Ended"),
        };
        let kind = match sweep.kind {
            SweepKind::Array => "array",
            SweepKind::Grid => "grid",
            SweepKind::Random => "random search",
            SweepKind::Repeat => "repeats",
        };
        Self {
            id: sweep.id.to_string(),
            name: sweep.name,
            owner: sweep.owner_name,
            kind,
            class,
            word,
            note: sweep.note,
            tasks: sweep.tasks,
            released: sweep.released,
            parallel: sweep.parallel,
            created: Moment::clock(sweep.created_at, now),
        }
    }
}

/// One sweep.
#[derive(Debug, Template)]
#[template(path = "sweeps/show.html")]
#[expect(clippy::struct_excessive_bools, reason = "each is a question that the template asks")]
pub struct ShowSweep {
    pub layout: Layout,
    pub sweep: SweepRow,
    pub metric: Option<Metric>,
    pub best: Option<TaskRow>,
    /// The names of the columns.
    pub parameters: Vec<String>,
    pub has_repeats: bool,
    pub rows: Vec<TaskRow>,
    pub more: More,
    /// How many of all tasks are in a state: class, word and number, in the order of a life.
    pub counts: Vec<(&'static str, &'static str, usize)>,
    pub is_own: bool,
    pub may_pause: bool,
    pub may_resume: bool,
    pub may_stop: bool,
    pub may_delete: bool,
    /// Where the curves of its tasks are compared, as soon as there are some.
    pub compare_href: Option<String>,
}

impl ShowSweep {
    fn goal(metric: &Metric) -> &'static str {
        match metric.goal {
            Goal::Minimum => "minimum",
            Goal::Maximum => "maximum",
        }
    }

    /// Counts how many tasks are in each state, in the order of a life.
    #[must_use]
    pub fn count(standings: &[TaskProgress]) -> Vec<(&'static str, &'static str, usize)> {
        let words = ["planned", "queued", "starting", "running", "stopping", "succeeded", "failed", "cancelled"];
        let count = |word: &str| standings.iter().filter(|standing| standing.word() == word).count();
        let counted = words.into_iter().map(|word| (TaskRow::class(word), word, count(word)));
        counted.filter(|(.., count)| *count > 0).collect()
    }
}

/// One task.
#[derive(Clone, Debug)]
pub struct TaskRow {
    pub index: i64,
    pub repeat: i64,
    /// In the order of the columns.
    pub values: Vec<String>,
    pub job: Option<String>,
    /// The page of the model that it trains, else of its job.
    pub href: Option<String>,
    pub word: &'static str,
    /// The class and the words of its badge.
    pub class: &'static str,
    pub said: &'static str,
    /// `exit code 1` …; empty while it lives.
    pub outcome: String,
    pub ran: Option<String>,
    pub best: Option<String>,
    pub step: Option<i64>,
}

impl TaskRow {
    #[must_use]
    pub fn new(standing: &TaskProgress, parameters: &[String], now: Timestamp) -> Self {
        let latest = standing.job.as_ref().map(|job| &job.latest);
        let began = latest.and_then(|latest| latest.ready_at.or(latest.started_at));
        let ended = latest.and_then(|latest| latest.ended_at);
        let word = standing.word();
        let (class, said) = match latest {
            None => ("ended", "Planned"),
            // It failed and is tried again.
            Some(latest) if word == "queued" && latest.state == SessionState::Ended => ("queued", "Pending"),
            Some(latest) => session_badge(latest),
        };
        let value = |name: &String| standing.settings.values.get(name).cloned().unwrap_or_default();
        Self {
            index: standing.settings.index,
            repeat: standing.settings.repeat,
            values: parameters.iter().map(value).collect(),
            job: standing.job.as_ref().map(|job| job.id.to_string()),
            href: match (&standing.model, &standing.job) {
                (Some(model), _) => Some(format!("/models/{model}")),
                (None, Some(job)) => Some(format!("/jobs/{}", job.id)),
                (None, None) => None,
            },
            word,
            class,
            said,
            outcome: latest.map(outcome).unwrap_or_default(),
            ran: began.map(|at| human_duration(ended.unwrap_or(now).seconds_since(at))),
            best: standing.best.map(|(_, value)| shown(value)),
            step: standing.best.map(|(step, _)| step),
        }
    }

    fn class(word: &str) -> &'static str {
        match word {
            "queued" => "queued",
            "starting" => "starting",
            "running" => "running",
            "stopping" => "stopping",
            "failed" => "failed",
            "succeeded" => "succeeded",
            "cancelled" => "cancelled",
            _ => "ended",
        }
    }

    /// For those who cannot see the grid's colours.
    fn title(&self) -> String {
        let values = self.values.join(", ");
        format!("{}: {}{}{values}", self.index, self.said, if values.is_empty() { "" } else { "; " })
    }
}

/// Four digits that matter.
fn shown(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e5).contains(&value.abs()) {
        return format!("{value:.3e}");
    }
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_four_digits() {
        for (value, text) in [
            (0.123_456, "0.1235"),
            (12.0, "12"),
            (0.0, "0"),
            (1.234_56e-7, "1.235e-7"),
            (99.996, "100"),
            (-3.5e6, "-3.500e6"),
        ] {
            assert_eq!(shown(value), text);
        }
    }
}
