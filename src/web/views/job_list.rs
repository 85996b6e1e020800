//! `/jobs`: the list of jobs, a line each, with what narrows it, the columns that the reader chose, and how far each job
//! is. One job is in `jobs`. What a job's state is in words is `card`'s badge, as for sessions.

use askama::Template;

use super::{ListFrame, Moment, TrashPanel, number, resources_line};
use crate::{
    model::{EndReason, Job, Session, SessionState, Timestamp, time::human_duration},
    runs::{Extent, JobProgress},
    web::page::{Layout, filters},
};

/// The list of jobs.
#[derive(Debug, Template)]
#[template(path = "jobs/list.html")]
pub struct JobsPage {
    pub layout: Layout,
    /// Who holds the reader's waiting jobs, and which of the two it is.
    pub pauses: Vec<String>,
    pub is_paused: bool,
    pub all_is_paused: bool,
    pub search: JobSearch,
    pub rows: Vec<JobRow>,
    /// What one's own jobs can be charged to.
    pub groups: Vec<String>,
    /// Where there are none: what makes one demonstration of two clicks.
    pub try_key: Option<String>,
    /// The cluster has a queue of its own, which has a page.
    pub has_queue: bool,
    /// How many jobs are sorted at most, where the order has running jobs alone.
    pub most_running: Option<i64>,
    pub frame: ListFrame,
    pub trash: TrashPanel,
}

/// What the list is narrowed to.
#[derive(Clone, Debug, Default)]
pub struct JobSearch {
    pub find: String,
    /// A state's word, `live`, or nothing.
    pub state: String,
    pub tag: String,
    /// What it is charged to.
    pub group: String,
    pub starred: bool,
    /// Helper jobs too.
    pub helpers: bool,
    /// Others' too, as far as one may see them.
    pub all: bool,
}

impl JobSearch {
    pub fn narrows(&self) -> bool {
        self.starred
            || self.helpers
            || self.all
            || [&self.find, &self.state, &self.tag, &self.group].iter().any(|text| !text.is_empty())
    }
}

impl JobsPage {
    /// Two minutes of curves, from our own program.
    pub const DEMONSTRATION: &'static str = "lyceum demo-train --steps 1200 --rate 10";

    pub const STATES: [(&'static str, &'static str); 5] = [
        ("live", "Not ended"),
        ("queued", "Pending"),
        ("running", "Running"),
        ("stopping", "Stopping"),
        ("ended", "Ended"),
    ];
}

/// One line of the list.
#[derive(Clone, Debug)]
pub struct JobRow {
    pub id: String,
    pub class: &'static str,
    pub word: &'static str,
    pub name: String,
    pub starred: bool,
    pub tags: Vec<String>,
    pub is_helper: bool,
    pub owner: String,
    pub is_own: bool,
    pub attempt: i64,
    pub resources: String,
    /// How many it asked for.
    pub gpus: i64,
    /// How far its program is; `None` where it has logged nothing that says so.
    pub progress: Option<ProgressCell>,
    /// The name and the last value of the metric that says most.
    pub metric: Option<(String, String)>,
    pub created: Moment,
    pub started: Option<Moment>,
    /// How long it ran, or has run.
    pub ran: Option<String>,
    /// `exit code 1`, `signal 9`, `over quota` …; empty while it lives.
    pub outcome: String,
}

impl JobRow {
    #[must_use]
    pub fn new(job: Job, is_own: bool, now: Timestamp) -> Self {
        let (class, word) = super::session_badge(&job.latest);
        let began = job.latest.ready_at.or(job.latest.started_at);
        Self {
            id: job.id.to_string(),
            class,
            word,
            starred: job.starred,
            is_helper: job.is_helper,
            owner: job.owner_name,
            is_own,
            attempt: job.attempt,
            resources: resources_line(&job.latest.spec.resources, &job.latest.gpus),
            gpus: job.latest.spec.resources.gpus,
            progress: None,
            metric: None,
            created: Moment::clock(job.created_at, now),
            started: began.map(|at| Moment::clock(at, now)),
            ran: began.map(|at| human_duration(job.latest.ended_at.unwrap_or(now).seconds_since(at))),
            outcome: outcome(&job.latest),
            name: job.name,
            tags: job.tags,
        }
    }

    /// Adds what its program has logged.
    #[must_use]
    pub fn with_progress(mut self, logged: Option<JobProgress>) -> Self {
        let logged = logged.unwrap_or_default();
        let is_live = self.outcome.is_empty();
        self.progress = logged.extent.map(|extent| ProgressCell::new(extent, is_live));
        self.metric = logged.metrics.into_iter().next().map(|metric| (metric.name, number(Some(metric.last))));
        self
    }
}

/// How far a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressCell {
    /// From 0 to 100; `None` without a total, and when the job has ended.
    pub percent: Option<u8>,
    /// `42 %`, `epoch 3 of 20` …
    pub words: String,
}

impl ProgressCell {
    /// Steps that are known to end are a share of all, since their number says little; epochs are few.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is from 0 to 1")]
    pub fn new(extent: Extent, is_live: bool) -> Self {
        let Extent { unit, done, total } = extent;
        let percent = extent.share().map(|share| (share * 100.0).floor() as u8);
        let words = match (unit, total, percent) {
            ("step", Some(_), Some(percent)) if is_live => format!("{percent} %"),
            (unit, Some(total), _) => format!("{unit} {done} of {total}"),
            (unit, None, _) => format!("{unit} {done}"),
        };
        Self { percent: percent.filter(|_| is_live), words }
    }
}

/// How an attempt ended, in a word or two; why it waits is a sentence of its page.
#[must_use]
pub fn outcome(attempt: &Session) -> String {
    if attempt.state != SessionState::Ended {
        return String::new();
    }
    match (attempt.end_reason, attempt.exit_code, attempt.signal) {
        (Some(EndReason::Exited), Some(code), _) => format!("exit code {code}"),
        (Some(EndReason::Signal), _, Some(signal)) => format!("signal {signal}"),
        (Some(EndReason::StoppedByOwner), ..) => "cancelled".to_owned(),
        (Some(EndReason::StoppedByAdmin), ..) => "cancelled by an administrator".to_owned(),
        (Some(reason), ..) => reason.as_str().replace('_', " "),
        (None, ..) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::session::example;

    #[test]
    fn progress_in_words() {
        let cell = |unit, done, total, is_live| {
            let ProgressCell { percent, words } = ProgressCell::new(Extent { unit, done, total }, is_live);
            (percent, words)
        };
        assert_eq!(cell("step", 504, Some(1200), true), (Some(42), "42 %".to_owned()));
        assert_eq!(cell("epoch", 3, Some(20), true), (Some(15), "epoch 3 of 20".to_owned()));
        assert_eq!(cell("step", 1199, Some(1200), false), (None, "step 1199 of 1200".to_owned()));
        assert_eq!(cell("step", 7, None, true), (None, "step 7".to_owned()));
    }

    #[test]
    fn outcomes_in_a_word() {
        let ended = |reason, exit_code, signal| Session {
            end_reason: Some(reason),
            exit_code,
            signal,
            ..example(SessionState::Ended)
        };
        for (attempt, words) in [
            (ended(EndReason::Exited, Some(3), None), "exit code 3"),
            (ended(EndReason::Signal, None, Some(9)), "signal 9"),
            (ended(EndReason::OutOfMemory, None, None), "out of memory"),
            (ended(EndReason::StoppedByOwner, None, None), "cancelled"),
            (example(SessionState::Running), ""),
        ] {
            assert_eq!(outcome(&attempt), words);
        }
    }
}
