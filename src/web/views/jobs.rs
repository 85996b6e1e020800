//! `/jobs/new` and `/jobs/{id}`: the form, and one job with all that is known of it. The list is in `job_list`. What a
//! job's state is in words is `sentence`'s, as for sessions.

use askama::Template;

use super::{
    AdmissionPreview, EnvironmentChoice, FieldError, Fit, ImageChoice, LINE_HEIGHT, LINE_WIDTH, Meter, Moment,
    NewSessionForm, PresetForm, ProgressCell, Sentence, SizeTile, Sliders, SlurmFields, bounds, number, path,
};
use crate::{
    model::{hold::Dependency, time::human_duration},
    runs::{Extent, JobProgress, LoggedMetric},
    web::{
        markdown::Markdown,
        page::{Layout, filters},
    },
};

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
    pub presets: PresetForm,
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
    /// With commas between them.
    pub tags: String,
    /// Markdown.
    pub notes: String,
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
            (!self.notes.trim().is_empty()).then(|| "notes".to_owned()),
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
        const FIELDS: [&str; 8] =
            ["nodes", "tasks_per_node", "retries", "retry_wait_seconds", "after", "variables", "notes", "needs"];
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
            "notes" => "Notes",
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

/// A part of the page of a job; each has its own address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobTab {
    #[default]
    Overview,
    Metrics,
    Log,
    System,
    Config,
}

impl JobTab {
    pub const ALL: [Self; 5] = [Self::Overview, Self::Metrics, Self::Log, Self::System, Self::Config];

    /// Reads the word of an address; a word that is not known is the overview.
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|tab| tab.word() == text).unwrap_or_default()
    }

    /// The word of the address; empty for the overview.
    pub fn word(self) -> &'static str {
        match self {
            Self::Overview => "",
            Self::Metrics => "metrics",
            Self::Log => "log",
            Self::System => "system",
            Self::Config => "config",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Metrics => "Metrics",
            Self::Log => "Log",
            Self::System => "System",
            Self::Config => "Config",
        }
    }
}

/// What the program of a job has logged, in short.
#[derive(Clone, Debug, Default)]
pub struct LoggedOverview {
    pub progress: Option<ProgressCell>,
    /// How long it still takes, at the speed it has had.
    pub left: Option<String>,
    pub metrics: Vec<MetricTile>,
}

/// A metric with a small line.
#[derive(Clone, Debug)]
pub struct MetricTile {
    pub name: String,
    pub last: String,
    /// `0.2 to 0.9`; empty where there is no line.
    pub range: String,
    /// The path of the line; empty for one value alone.
    pub line: String,
}

impl LoggedOverview {
    /// `ran` is how long the first attempt has run (seconds); `None` when that says nothing of its speed.
    #[must_use]
    pub fn new(logged: JobProgress, is_live: bool, ran: Option<i64>) -> Self {
        let left = ran.filter(|_| is_live).and_then(|ran| seconds_left(logged.extent?, ran)).map(human_duration);
        Self {
            progress: logged.extent.map(|extent| ProgressCell::new(extent, is_live)),
            left,
            metrics: logged.metrics.into_iter().map(MetricTile::new).collect(),
        }
    }
}

impl LoggedOverview {
    /// Returns whether nothing has been logged.
    pub fn is_empty(&self) -> bool {
        self.progress.is_none() && self.metrics.is_empty()
    }

    /// Returns how much is done, from 0 to 100, where that is known and the job has not ended.
    pub fn percent(&self) -> Option<u8> {
        self.progress.as_ref()?.percent
    }
}

/// The time to the end at the mean speed so far; nothing before there is one, or when it is done.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "seconds of at most some years")]
fn seconds_left(extent: Extent, ran: i64) -> Option<i64> {
    let share = extent.share().filter(|share| 0.0 < *share && *share < 1.0)?;
    (ran > 0).then(|| (ran as f64 * (1.0 - share) / share).min(1e10).round() as i64)
}

impl MetricTile {
    fn new(metric: LoggedMetric) -> Self {
        let values = &metric.line.values;
        let (low, high) = bounds(values.iter());
        let is_line = values.iter().flatten().count() > 1;
        Self {
            name: metric.name,
            last: number(Some(metric.last)),
            range: if is_line { format!("{} to {}", shown(low), shown(high)) } else { String::new() },
            line: if is_line { path(values, low, high) } else { String::new() },
        }
    }
}

/// The means of a small line have few digits that matter.
fn shown(value: f32) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or_default();
    number(Some(rounded))
}

/// One job.
#[derive(Debug, Template)]
#[template(path = "jobs/show.html")]
#[expect(clippy::struct_excessive_bools, reason = "each is a question that the template asks")]
pub struct ShowJob {
    pub layout: Layout,
    pub tab: JobTab,
    pub logged: LoggedOverview,
    pub id: String,
    pub name: String,
    pub owner: String,
    pub class: &'static str,
    pub word: &'static str,
    pub sentence: Sentence,
    pub starred: bool,
    pub tags: Vec<String>,
    /// The portal submitted it as a step of something else.
    pub is_helper: bool,
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
    /// Those about what it runs on.
    pub system: Vec<(&'static str, String)>,
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
    /// Returns whether this part of the page draws charts.
    pub fn has_charts(&self) -> bool {
        matches!(self.tab, JobTab::Metrics | JobTab::System)
    }

    /// Returns whether this part of the page shows the log or its end.
    pub fn has_log(&self) -> bool {
        matches!(self.tab, JobTab::Overview | JobTab::Log)
    }

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

    #[test]
    fn tabs_have_addresses() {
        for tab in JobTab::ALL {
            assert_eq!(JobTab::parse(tab.word()), tab);
        }
        assert_eq!(JobTab::parse("nothing"), JobTab::Overview);
    }

    #[test]
    fn the_time_left_follows_from_the_speed_so_far() {
        let left = |done, total, ran| seconds_left(Extent { unit: "step", done, total }, ran);
        assert_eq!(left(25, Some(100), 60), Some(180));
        for (done, total, ran) in [(0, Some(100), 60), (100, Some(100), 60), (25, None, 60), (25, Some(100), 0)] {
            assert_eq!(left(done, total, ran), None);
        }
    }

    #[test]
    fn what_is_set_among_the_advanced_options_is_summed_up() {
        let plain = WorkForm { retries: "0".to_owned(), variables: "\n".to_owned(), ..WorkForm::default() };
        assert_eq!(plain.advanced(), "");
        let set = WorkForm {
            retries: "2".to_owned(),
            after: "a b".to_owned(),
            variables: "SEED=7\n".to_owned(),
            login_shell: true,
            notes: "Baseline.".to_owned(),
            slurm: Some(SlurmForm { nodes: "1".to_owned(), tasks_per_node: "4".to_owned(), ..SlurmForm::default() }),
            ..WorkForm::default()
        };
        assert_eq!(set.advanced(), "4 tasks per node, 2 retries, 2 dependencies, 1 variable, login shell, notes");
    }
}
