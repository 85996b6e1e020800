//! `/jobs`, `/jobs/new` and `/jobs/{id}`: the list, the form and one job with all that is known
//! of it. What a job's state is in words is `sentence`'s, as for sessions.

use askama::Template;

use super::{
    EnvironmentChoice, FieldError, Fit, Meter, Moment, NewSessionForm, Sentence, SizeTile, Sliders, Verdict,
    resources_line,
};
use crate::{
    model::{EndReason, Job, Session, SessionState, Timestamp, hold::Dependency, time::human_duration},
    web::{
        markdown::Markdown,
        page::{Layout, filters},
    },
};

/// The list of jobs.
#[derive(Debug, Template)]
#[template(path = "jobs/list.html")]
pub struct JobsPage {
    pub layout: Layout,
    pub notice: Option<String>,
    /// Why something was not done with those that were chosen.
    pub error: Option<String>,
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
    /// The address of this very page, for the way back.
    pub here: String,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
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
    /// Others' too, as far as one may see them.
    pub all: bool,
}

impl JobSearch {
    pub fn narrows(&self) -> bool {
        self.starred
            || self.all
            || [&self.find, &self.state, &self.tag, &self.group].iter().any(|text| !text.is_empty())
    }
}

impl JobsPage {
    /// Two minutes of curves, from our own program.
    pub const DEMONSTRATION: &'static str = "lyceum demo-train --steps 1200 --rate 10";

    pub const STATES: [(&'static str, &'static str); 5] = [
        ("live", "Not ended"),
        ("queued", "Waiting"),
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
    pub owner: String,
    pub is_own: bool,
    pub attempt: i64,
    pub resources: String,
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
            owner: job.owner_name,
            is_own,
            attempt: job.attempt,
            resources: resources_line(&job.latest.spec.resources, &job.latest.gpus),
            started: began.map(|at| Moment::clock(at, now)),
            ran: began.map(|at| human_duration(job.latest.ended_at.unwrap_or(now).seconds_since(at))),
            outcome: outcome(&job.latest),
            name: job.name,
            tags: job.tags,
        }
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

/// The form that submits a job.
#[derive(Debug, Template)]
#[template(path = "jobs/new.html")]
pub struct NewJob {
    pub layout: Layout,
    pub sizes: Vec<SizeTile>,
    /// Bounds of the custom size.
    pub custom: Option<Sliders>,
    pub gpu_models: Vec<String>,
    /// Groups that can be charged; one or none asks nothing.
    pub groups: Vec<String>,
    pub environments: Vec<EnvironmentChoice>,
    /// As in `NewSession`.
    pub modules: Option<Vec<(String, String, String)>>,
    pub own_environments: Vec<String>,
    /// Offered time limits (seconds).
    pub durations: Vec<i64>,
    pub meters: Vec<Meter>,
    /// What it shares with the form of sessions.
    pub form: NewSessionForm,
    pub work: WorkForm,
    pub errors: Vec<FieldError>,
    pub verdict: Option<Verdict>,
    /// The job that this one repeats: id and name.
    pub copy_of: Option<(String, String)>,
    /// The portal's own address, for “Show as curl”.
    pub base_url: String,
}

/// How a job lies over the nodes of a cluster.
#[derive(Clone, Debug, Default)]
pub struct SlurmForm {
    /// The script's own lines count.
    pub sbatch: bool,
    /// Empty: one.
    pub nodes: String,
    pub tasks_per_node: String,
}

impl SlurmForm {
    /// Scripts to begin with: their names and texts.
    pub const TEMPLATES: [(&'static str, &'static str); 5] = [
        ("A single GPU", include_str!("../../../templates/jobs/scripts/gpu.sh")),
        ("Several nodes", include_str!("../../../templates/jobs/scripts/nodes.sh")),
        ("MPI", include_str!("../../../templates/jobs/scripts/mpi.sh")),
        ("An Apptainer container", include_str!("../../../templates/jobs/scripts/apptainer.sh")),
        ("Cores alone", include_str!("../../../templates/jobs/scripts/cores.sh")),
    ];
}

/// What only jobs have.
#[derive(Clone, Debug, Default)]
pub struct WorkForm {
    pub is_script: bool,
    pub command: String,
    pub script: String,
    /// Of the script, as a shell would read them.
    pub arguments: String,
    /// In the environment that the login shell makes.
    pub login_shell: bool,
    /// `NAME=value`, a line each.
    pub variables: String,
    /// How often it is tried again when it fails; empty is never.
    pub retries: String,
    /// How long after a failure (seconds).
    pub retry_wait: String,
    /// Ids of jobs that have to end first, and how: `ok`, `any`, `failed`.
    pub after: String,
    pub needs: String,
    /// Many at once: an array, or parameters a line each.
    pub several: SeveralForm,
    /// What is asked on a cluster alone; `None` elsewhere.
    pub slurm: Option<SlurmForm>,
    /// Offered to follow: ids and names.
    pub live: Vec<(String, String)>,
}

/// In what the jobs of a sweep differ, as it was typed.
#[derive(Clone, Debug, Default)]
pub struct SeveralForm {
    pub array: String,
    /// `name = values`, a line each.
    pub parameters: String,
    pub trials: String,
    pub repeat: String,
    pub parallel: String,
    pub metric: String,
    pub goal: String,
    pub stop_after_step: String,
}

impl SeveralForm {
    /// Whether more than one job is asked for.
    pub fn is_asked(&self) -> bool {
        [&self.array, &self.parameters, &self.trials, &self.repeat].iter().any(|text| !text.is_empty())
    }
}

impl NewJob {
    const NEEDS: [(&'static str, &'static str); 3] =
        [("ok", "have succeeded"), ("any", "have ended"), ("failed", "have failed")];

    /// What is wrong with a field, for the line beside it.
    pub fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }

    fn label(field: &str) -> &str {
        match field {
            "command" => "Command",
            "script" => "Script",
            "arguments" => "Arguments",
            "nodes" => "Nodes",
            "tasks_per_node" => "Tasks on each",
            "sbatch" => "Slurm’s lines",
            "variables" => "Environment variables",
            "retries" => "Tries again",
            "retry_wait_seconds" => "Seconds between tries",
            "after" => "After",
            "array" => "Array",
            "parameters" => "Parameters",
            "trials" => "Trials",
            "repeat" => "Repeat",
            "parallel" => "At once",
            "metric" => "Metric",
            "stop_after_step" => "End those behind from step",
            other => super::NewSession::label(other),
        }
    }
}

/// One job.
#[derive(Debug, Template)]
#[template(path = "jobs/show.html")]
#[expect(clippy::struct_excessive_bools, reason = "each is a question that the template asks")]
pub struct ShowJob {
    pub layout: Layout,
    pub id: String,
    pub name: String,
    pub owner: String,
    pub class: &'static str,
    pub word: &'static str,
    pub sentence: Sentence,
    pub starred: bool,
    pub tags: Vec<String>,
    pub attempt: i64,
    /// Those before the latest, newest first.
    pub earlier: Vec<i64>,
    /// Whether it had more than one attempt.
    pub several: bool,
    pub caveats: Vec<&'static str>,
    /// Who asked whether its GPUs are still needed, and when.
    pub ask: Option<(String, Moment)>,
    pub is_own: bool,
    pub is_live: bool,
    /// Where a terminal inside it opens.
    pub terminal: Option<String>,
    pub may_cancel: bool,
    pub may_resume: bool,
    pub may_delete: bool,
    pub timeline: Vec<TimelineLine>,
    pub log: Option<String>,
    pub is_script: bool,
    pub program: String,
    /// For its owner alone.
    pub variables: Vec<(String, String)>,
    pub facts: Vec<(&'static str, String)>,
    /// The sweep that it is a task of: id and name.
    pub sweep: Option<(String, String)>,
    pub follows: Vec<Followed>,
    pub moments: Vec<(&'static str, Moment)>,
    pub notes: Markdown,
    /// What stands in the form.
    pub typed: JobForm,
    pub errors: Vec<FieldError>,
}

/// A job that another one was to follow.
#[derive(Clone, Debug)]
pub struct Followed {
    pub id: String,
    /// `None` where it was deleted.
    pub name: Option<String>,
    /// `has not ended`, `succeeded` …
    pub words: &'static str,
}

impl From<Dependency> for Followed {
    fn from(dependency: Dependency) -> Self {
        let (name, words) = match dependency.found {
            Some((name, outcome)) => (Some(name), outcome.words()),
            None => (None, "was deleted"),
        };
        Self { id: dependency.job.to_string(), name, words }
    }
}

/// The form of what people say of a job.
#[derive(Clone, Debug, Default)]
pub struct JobForm {
    pub name: String,
    pub notes: String,
    pub tags: String,
    pub visibility: String,
}

impl ShowJob {
    pub const VISIBILITIES: [(&'static str, &'static str); 3] =
        [("private", "I alone"), ("group", "people of my groups"), ("everybody", "everybody")];
}

/// One line of a job's timeline.
#[derive(Clone, Debug)]
pub struct TimelineLine {
    pub at: Moment,
    pub attempt: i64,
    pub state: &'static str,
    /// How long it stayed so; for the present state nothing.
    pub lasted: Option<String>,
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::session::example;

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
