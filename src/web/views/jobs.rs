//! `/jobs`, `/jobs/new` and `/jobs/{id}`: the list, the form and one job with all that is known
//! of it. What a job's state is in words is `sentence`'s, as for sessions.

use askama::Template;

use super::{
    AdmissionPreview, EnvironmentChoice, FieldError, Fit, ImageChoice, Meter, Moment, NewSessionForm, Sentence,
    SizeTile, Sliders, SlurmFields, resources_line,
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
    /// Container images; none asks nothing.
    pub images: Vec<ImageChoice>,
    /// As in `NewSession`.
    pub modules: Option<Vec<(String, String, String)>>,
    pub own_environments: Vec<String>,
    /// Offered time limits (seconds).
    pub durations: Vec<i64>,
    pub meters: Vec<Meter>,
    pub slurm_fields: SlurmFields,
    /// What it shares with the form of sessions.
    pub form: NewSessionForm,
    pub work: WorkForm,
    pub errors: Vec<FieldError>,
    pub verdict: Option<AdmissionPreview>,
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
        ("CPU cores only", include_str!("../../../templates/jobs/scripts/cores.sh")),
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

impl WorkForm {
    /// Sums up what is set among the options that few jobs need; empty: nothing is.
    pub fn advanced(&self) -> String {
        let number = |text: &str, least: i64| text.trim().parse::<i64>().ok().filter(|number| least < *number);
        let counted = |count: Option<i64>, one: &str, many: &str| {
            count.map(|count| format!("{count} {}", if count == 1 { one } else { many }))
        };
        let of = |texts: std::str::SplitWhitespace<'_>| i64::try_from(texts.count()).ok().filter(|count| 0 < *count);
        let variables = self.variables.lines().filter(|line| !line.trim().is_empty()).count();
        let (nodes, tasks) =
            self.slurm.as_ref().map_or(("", ""), |slurm| (slurm.nodes.as_str(), slurm.tasks_per_node.as_str()));
        let set = [
            counted(number(nodes, 1), "node", "nodes"),
            counted(number(tasks, 1), "task per node", "tasks per node"),
            counted(number(&self.retries, 0), "retry", "retries"),
            counted(of(self.after.split_whitespace()), "dependency", "dependencies"),
            counted(i64::try_from(variables).ok().filter(|count| 0 < *count), "variable", "variables"),
            self.login_shell.then(|| "login shell".to_owned()),
        ];
        set.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
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
    /// Jobs have no light size.
    pub fn own_size(&self) -> Option<String> {
        None
    }

    const NEEDS: [(&'static str, &'static str); 3] = [
        ("ok", "succeeded (afterok)"),
        ("any", "ended in any way (afterany)"),
        ("failed", "did not succeed (afternotok)"),
    ];

    /// What is wrong with a field, for the line beside it.
    pub fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }

    /// Returns whether the fields of Slurm are unfolded: something is chosen there, or wrong.
    pub fn shows_slurm(&self) -> bool {
        !self.form.slurm.is_empty() || self.slurm_fields.0.iter().any(|field| self.error(field.name).is_some())
    }

    /// Returns whether the advanced options are unfolded: some are set, or one is wrong.
    pub fn shows_advanced(&self) -> bool {
        const FIELDS: [&str; 7] =
            ["nodes", "tasks_per_node", "retries", "retry_wait_seconds", "after", "variables", "needs"];
        !self.work.advanced().is_empty() || FIELDS.iter().any(|field| self.error(field).is_some())
    }

    /// Returns the id and the label of a field, for the link in the summary of what is wrong.
    fn place(field: &str) -> (&str, &str) {
        let label = match field {
            "command" => "Command",
            "script" => "Script",
            "arguments" => "Arguments",
            "nodes" => "Nodes",
            "tasks_per_node" => "Tasks per node",
            "sbatch" => "Slurm script",
            "variables" => "Environment variables",
            "retries" => "Retries",
            "retry_wait_seconds" => "Retry delay (seconds)",
            "after" => "Depends on",
            "array" => "Array",
            "parameters" => "Parameters",
            "trials" => "Trials",
            "repeat" => "Repeat",
            "parallel" => "Parallel tasks",
            "metric" => "Metric",
            "stop_after_step" => "Early stopping after step",
            other => super::NewSession::place(other).1,
        };
        (field, label)
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
    /// Its GPUs rest: for how long, and what that has cost.
    pub idle_gpus: Option<String>,
    /// What its program writes for its owner while it runs.
    pub program_notes: Vec<String>,
    /// A smaller request that would have sufficed, as a sentence; after the end.
    pub advice: Option<String>,
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
    pub follows: Vec<FollowedJob>,
    pub moments: Vec<(&'static str, Moment)>,
    pub notes: Markdown,
    /// What stands in the form.
    pub typed: JobForm,
    pub errors: Vec<FieldError>,
}

/// A job that another one was to follow.
#[derive(Clone, Debug)]
pub struct FollowedJob {
    pub id: String,
    /// `None` where it was deleted.
    pub name: Option<String>,
    /// `has not ended`, `succeeded` …
    pub words: &'static str,
}

impl From<Dependency> for FollowedJob {
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
    /// Returns whether it ended by a failure: then its log comes first, and how to go on.
    pub fn has_failed(&self) -> bool {
        matches!(self.class, "failed" | "out-of-memory" | "timed-out")
    }

    pub const VISIBILITIES: [(&'static str, &'static str); 3] =
        [("private", "Only me"), ("group", "My groups"), ("everybody", "Everyone")];
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
    fn what_is_set_among_the_advanced_options_is_summed_up() {
        let plain = WorkForm { retries: "0".to_owned(), variables: "\n".to_owned(), ..WorkForm::default() };
        assert_eq!(plain.advanced(), "");
        let set = WorkForm {
            retries: "2".to_owned(),
            after: "a b".to_owned(),
            variables: "SEED=7\n".to_owned(),
            login_shell: true,
            slurm: Some(SlurmForm { nodes: "1".to_owned(), tasks_per_node: "4".to_owned(), ..SlurmForm::default() }),
            ..WorkForm::default()
        };
        assert_eq!(set.advanced(), "4 tasks per node, 2 retries, 2 dependencies, 1 variable, login shell");
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
