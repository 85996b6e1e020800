//! What somebody may ask for when they submit a sweep, and the check of all of it: every task is
//! checked as a job would be, and nothing is written while one has a fault.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Error, Result, Sweeps};
use lyceum_model::{
    DatasetState, FieldError, JobId, Sweep, SweepId,
    job::{Array, Shape, Task},
    quota::{Field, Limit},
    sweep::{Domain, MAX_TASKS, Metric, Plan, Settings, SweepKind, SweepState, draw, grid, indices},
};

use crate::{
    admission::{DryRun, QuotaStatus},
    datasets,
    jobs::JobRequest,
    models::NewModel,
    sessions::Actor,
};

/// A request for an array or a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = SweepRequest)]
pub struct SweepRequest {
    /// The job of each task. In its command, `{index}`, `{repeat}` and `{NAME}` of a parameter are replaced. The
    /// parameters are also environment variables.
    pub job: JobRequest,
    /// A training in place of the job: each task trains a model. The parameters are fields of its configuration, such as
    /// `learning_rate.base` or `network.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training: Option<NewModel>,
    /// Indices of an array: `0-9`, `1,3,5-7`, `0-20:5`; `%4` after it runs at most four at once. Each task reads its
    /// index from `LYCEUM_ARRAY_INDEX`.
    pub array: Option<String>,
    /// Values by parameter name: a list, or a text such as `0.1, 0.01` or, with `trials`, `1e-4..1e-1 log`.
    #[schema(value_type = Object)]
    pub parameters: BTreeMap<String, Values>,
    /// Number of random combinations. By default, every combination is used.
    pub trials: Option<i64>,
    /// Random seed. The same seed gives the same combinations.
    pub seed: Option<i64>,
    /// Number of runs of each combination. A task reads the number of its repetition from `LYCEUM_REPEAT`.
    pub repeat: Option<i64>,
    /// Maximum number of tasks that are running or pending at the same time. Default: as many as your quota allows.
    pub parallel: Option<i64>,
    /// The metric that the tasks are compared by. Default: none, and for trainings the one that selects the best
    /// checkpoint.
    pub metric: Option<Metric>,
}

/// The values of a parameter as they are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Values {
    List(Vec<Value>),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

/// What would come of a sweep.
#[derive(Debug)]
pub struct Preview {
    pub tasks: i64,
    pub parallel: i64,
    /// What the first ones are told.
    pub first: Vec<Settings>,
    /// What all of them take if each uses its whole time, and what one's quota leaves.
    pub gpu_seconds: i64,
    pub cpu_seconds: i64,
    pub gpu_seconds_left: Option<i64>,
    pub cpu_seconds_left: Option<i64>,
    /// What would be decided about one of them.
    pub dry_run: DryRun,
}

impl Preview {
    /// Whether all of them can run to their time limit within one's hours.
    #[must_use]
    pub fn fits_hours(&self) -> bool {
        let fits = |asked: i64, left: Option<i64>| left.is_none_or(|left| asked <= left);
        fits(self.gpu_seconds, self.gpu_seconds_left) && fits(self.cpu_seconds, self.cpu_seconds_left)
    }
}

const MAX_PARAMETERS: usize = 20;
const MAX_REPEATS: i64 = 100;
const MAX_TRIALS: i64 = 1000;
const MAX_VALUE_LENGTH: usize = 1000;
const MAX_TAG_LENGTH: usize = 500;

/// Where nobody limits how many jobs run.
const DEFAULT_PARALLEL: i64 = 16;

impl SweepRequest {
    /// Tells one request from another under the same idempotency key.
    pub(super) fn hash(&self) -> String {
        let text = serde_json::to_vec(self).expect("a request has string keys");
        hex::encode(Sha256::new().chain_update(b"sweep ").chain_update(&text).finalize())
    }

    /// The tasks, and how many may run at once where the array says so.
    fn tasks(&self, seed: u64) -> Result<(SweepKind, Vec<Settings>, Option<i64>), Vec<FieldError>> {
        let mut faults = Vec::new();
        let mut fault = |field: &str, code: &str, message: &str| faults.push(FieldError::new(field, code, message));
        let domains = domains(&self.parameters, &mut fault);
        let repeat = self.repeat.unwrap_or(1);
        if !(1..=MAX_REPEATS).contains(&repeat) {
            fault("repeat", "out_of_range", "must be between 1 and 100");
        }
        let mut at_once = None;
        let planned: Option<(SweepKind, Vec<Settings>)> = if let Some(array) = &self.array {
            if !self.parameters.is_empty() || self.trials.is_some() {
                fault("array", "ambiguous", "give an array or parameters, not both");
            }
            let (list, most) = array.split_once('%').map_or((array.as_str(), None), |(list, most)| (list, Some(most)));
            at_once = most.map(|most| most.trim().parse::<i64>().ok().filter(|most| *most >= 1));
            if at_once == Some(None) {
                fault("array", "malformed", "must have a number above 0 after %: the maximum number of tasks at once");
            }
            match indices(list) {
                Ok(indices) => {
                    let of = |index| Settings { index, ..Settings::default() };
                    Some((SweepKind::Array, indices.into_iter().map(of).collect()))
                }
                Err(message) => {
                    fault("array", "malformed", message);
                    None
                }
            }
        } else {
            let all = match self.trials {
                Some(trials) if !(1..=MAX_TRIALS).contains(&trials) => {
                    fault("trials", "out_of_range", "must be between 1 and 1000");
                    None
                }
                Some(_) if domains.is_empty() => {
                    fault("parameters", "required", "are required for random trials");
                    None
                }
                Some(trials) => Some((SweepKind::Random, draw(&domains, usize::try_from(trials).unwrap_or(1), seed))),
                None if domains.is_empty() && self.repeat.is_none() => {
                    fault(
                        "parameters",
                        "required",
                        "give parameters, an array or repeat, so that there is more than one task",
                    );
                    None
                }
                None if domains.values().any(|domain| matches!(domain, Domain::Range { .. })) => {
                    fault("trials", "required", "must be given if a parameter is a range");
                    None
                }
                None => {
                    let kind = if domains.is_empty() { SweepKind::Repeat } else { SweepKind::Grid };
                    let all = grid(&domains).map(|all| (kind, all));
                    if all.is_none() {
                        fault("parameters", "too_many", "have more than 1000 combinations");
                    }
                    all
                }
            };
            let numbered = |(kind, all): (SweepKind, Vec<BTreeMap<String, String>>)| {
                let of = |(index, values)| Settings { index, repeat: 0, values };
                (kind, (0_i64..).zip(all).map(of).collect())
            };
            all.map(numbered)
        };
        let Some((kind, once)) = planned.filter(|_| faults.is_empty()) else { return Err(faults) };
        let again = |one: Settings| (0..repeat).map(move |repeat| Settings { repeat, ..one.clone() });
        let tasks: Vec<Settings> = once.into_iter().flat_map(again).take(MAX_TASKS + 1).collect();
        if tasks.len() > MAX_TASKS {
            return Err(vec![FieldError::new("repeat", "too_many", "results in more than 1000 tasks")]);
        }
        Ok((kind, tasks, at_once.flatten()))
    }

    /// The job's request as one task has it.
    fn one(&self, settings: &Settings) -> JobRequest {
        let mut job = self.job.clone();
        for word in job.command.iter_mut().flatten() {
            for (name, value) in &settings.values {
                *word = word.replace(&format!("{{{name}}}"), value);
            }
        }
        // A training has them in its configuration.
        if !settings.values.is_empty() && self.training.is_none() {
            job.variables.get_or_insert_default().extend(settings.values.clone());
        }
        job
    }
}

fn domains(parameters: &BTreeMap<String, Values>, fault: &mut dyn FnMut(&str, &str, &str)) -> BTreeMap<String, Domain> {
    if parameters.len() > MAX_PARAMETERS {
        fault("parameters", "too_many", "must be at most 20");
    }
    let mut domains = BTreeMap::new();
    for (name, values) in parameters {
        let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
        let field = format!("parameters.{shown}");
        let domain = match values {
            Values::List(list) if list.is_empty() => Err("must have at least one value"),
            Values::List(list) => Ok(Domain::OneOf(list.iter().map(Value::text).collect())),
            Values::Text(text) => text.parse(),
        };
        match domain {
            Ok(Domain::OneOf(values)) if values.iter().any(|value| value.len() > MAX_VALUE_LENGTH) => {
                fault(&field, "too_long", "must have values of at most 1000 bytes");
            }
            Ok(domain) => {
                domains.insert(name.clone(), domain);
            }
            Err(message) => fault(&field, "malformed", message),
        }
    }
    domains
}

impl Value {
    fn text(&self) -> String {
        match self {
            Self::Flag(flag) => flag.to_string(),
            Self::Whole(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// The numbers of an array as Slurm's variables tell them: the step is the last one that was written.
fn numbers(text: &str, tasks: &[Settings]) -> Option<Array> {
    let indices = || tasks.iter().map(|task| task.index);
    let list = text.split('%').next().unwrap_or_default();
    let step = list.rsplit(',').find_map(|part| part.split_once(':')?.1.trim().parse().ok()).unwrap_or(1);
    let count = i64::try_from(indices().collect::<BTreeSet<_>>().len()).unwrap_or(i64::MAX);
    Some(Array { count, min: indices().min()?, max: indices().max()?, step })
}

impl Sweeps {
    /// Everything that is to be written, and what would come of it.
    pub(super) async fn check(&self, actor: Actor<'_>, request: SweepRequest) -> Result<(Sweep, Plan, Preview)> {
        let seed = request.seed.map_or_else(rand::random, i64::cast_unsigned);
        let (kind, tasks, at_once) = request.tasks(seed).map_err(Error::Invalid)?;
        let training = request.training.as_ref().map(|new| serde_json::to_value(new).expect("a request is plain data"));
        let request = Box::pin(self.with_training(actor, request, &tasks)).await?;
        let mut faults = Vec::new();
        if request.job.after.as_ref().is_some_and(|after| !after.is_empty()) {
            faults.push(FieldError::new("after", "not_available", "is only for single jobs; omit it"));
        }
        if request.job.array.is_some() {
            faults.push(FieldError::new("job.array", "ambiguous", "must be given beside the job, not in it"));
        }
        if request.metric.as_ref().is_some_and(|metric| {
            metric.tag.is_empty() || metric.tag.len() > MAX_TAG_LENGTH || metric.tag.contains(char::is_control)
        }) {
            faults.push(FieldError::new(
                "metric.tag",
                "malformed",
                "must be the name of a curve, of at most 500 bytes",
            ));
        }
        if request.parallel.is_some_and(|parallel| parallel < 1) {
            faults.push(FieldError::new("parallel", "out_of_range", "must be at least 1"));
        }
        let scheduler = &self.sessions.scheduler;
        let node = |shape: &Shape| scheduler.largest_for(shape);
        for settings in &tasks {
            let Err(wrong) = request.one(settings).check(scheduler.has_queue().then_some(&node as _)) else { continue };
            faults.extend(wrong.into_iter().map(|fault| in_our_words(fault, settings)));
            break;
        }
        if !faults.is_empty() {
            return Err(Error::Invalid(faults));
        }
        let has_folder = request.job.log_directory.is_some();
        let prepared = self.jobs.prepare(actor, JobId::new(), request.job.clone()).await?;
        let standing = self.sessions.standing(actor.user.id).await?;
        let parallel = request.parallel.or(at_once).unwrap_or_else(|| usual_parallel(&standing));
        let count = i64::try_from(tasks.len()).unwrap_or(i64::MAX);
        let mut spec = prepared.spec;
        if !has_folder {
            spec.log_directory = None;
        }
        let each = |amount: i64| amount.saturating_mul(count).saturating_mul(spec.duration_seconds);
        let left = |field: &Field, used: i64| match standing.limits.of(field).limit {
            Limit::AtMost(hours) => Some(hours.saturating_mul(3600).saturating_sub(used).max(0)),
            Limit::Unlimited => None,
        };
        let preview = Preview {
            tasks: count,
            parallel: parallel.min(count),
            first: tasks.iter().take(5).cloned().collect(),
            gpu_seconds: each(spec.resources.gpus),
            cpu_seconds: each(spec.resources.cpus),
            gpu_seconds_left: left(&Field::GpuHours, standing.usage.gpu_seconds),
            cpu_seconds_left: left(&Field::CpuHours, standing.usage.cpu_seconds),
            dry_run: prepared.dry_run,
        };
        let array = request.array.as_deref().and_then(|text| numbers(text, &tasks));
        let sweep = Sweep {
            id: SweepId::new(),
            owner: actor.user.id,
            owner_name: actor.user.name.to_string(),
            name: prepared.name,
            kind,
            state: SweepState::Running,
            note: String::new(),
            tasks: count,
            released: 0,
            parallel: preview.parallel,
            created_at: self.sessions.clock.now(),
        };
        let task = Task { array, ..prepared.task };
        Ok((sweep, Plan { task, spec, metric: request.metric, tasks, training }, preview))
    }
}

impl Sweeps {
    /// The request around the job that trains what the first task says, once the training of every task is checked.
    async fn with_training(&self, actor: Actor<'_>, request: SweepRequest, tasks: &[Settings]) -> Result<SweepRequest> {
        let Some(new) = &request.training else { return Ok(request) };
        let fault = |field, code, message| Err(Error::Invalid(vec![FieldError::new(field, code, message)]));
        if request.job != JobRequest::default() {
            return fault("training", "ambiguous", "give a job or a training, not both");
        }
        if request.array.is_some() {
            return fault("array", "not_available", "is only for jobs; give parameters or repeat");
        }
        let dataset = match self.datasets.find(actor, new.dataset).await {
            Err(datasets::Error::NotFound) => return fault("dataset", "not_found", "Dataset not found."),
            found => found?,
        };
        if dataset.state != DatasetState::Ready {
            return Err(Error::Conflict("the dataset is not ready yet"));
        }
        let mut first = None;
        for settings in tasks {
            let trial = self.models.trial(&dataset, new, new.name.clone(), settings).map_err(Error::Invalid)?;
            first.get_or_insert(trial);
        }
        let Some(trial) = first else { return Ok(request) };
        // Models are stored in the home; without it, no task could be released.
        self.models.home(actor.user).await?;
        let metric = request.metric.clone().or_else(|| Some(trial.metric()));
        Ok(SweepRequest { job: trial.request, metric, ..request })
    }
}

fn usual_parallel(standing: &QuotaStatus) -> i64 {
    match standing.limits.of(&Field::Jobs).limit {
        Limit::AtMost(jobs) => jobs.max(1),
        Limit::Unlimited => DEFAULT_PARALLEL,
    }
}

/// A fault of a value is told of its parameter.
fn in_our_words(fault: FieldError, settings: &Settings) -> FieldError {
    let parameter = fault.field.strip_prefix("variables.").filter(|name| settings.values.contains_key(*name));
    let field = parameter.map(|name| format!("parameters.{name}"));
    FieldError { field: field.unwrap_or_else(|| fault.field.clone()), ..fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: serde_json::Value) -> SweepRequest {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_a_sweep_comes_to() {
        for (json, kind, tasks, at_once) in [
            (serde_json::json!({ "array": "0-9%3" }), SweepKind::Array, 10, Some(3)),
            (serde_json::json!({ "array": "1,5", "repeat": 2 }), SweepKind::Array, 4, None),
            (serde_json::json!({ "parameters": { "lr": [0.1, 0.01], "opt": "adam, sgd" } }), SweepKind::Grid, 4, None),
            (serde_json::json!({ "parameters": { "lr": "1e-4..1 log" }, "trials": 7 }), SweepKind::Random, 7, None),
            (serde_json::json!({ "repeat": 5 }), SweepKind::Repeat, 5, None),
        ] {
            let (of, list, most) = request(json.clone()).tasks(1).unwrap();
            assert_eq!((of, list.len(), most), (kind, tasks, at_once), "{json}");
        }
        let values = request(serde_json::json!({ "parameters": { "a": [true, 3, 0.5, "x"] } })).tasks(1).unwrap().1;
        let shown: Vec<&str> = values.iter().map(|one| one.values["a"].as_str()).collect();
        assert_eq!(shown, ["true", "3", "0.5", "x"]);
    }

    #[test]
    fn what_is_wrong_with_one() {
        let long = "x".repeat(1001);
        for (json, field) in [
            (serde_json::json!({}), "parameters"),
            (serde_json::json!({ "array": "9-1" }), "array"),
            (serde_json::json!({ "array": "0-9%0" }), "array"),
            (serde_json::json!({ "array": "0-9", "parameters": { "a": [1] } }), "array"),
            (serde_json::json!({ "parameters": { "a": [] } }), "parameters.a"),
            (serde_json::json!({ "parameters": { "a": [long] } }), "parameters.a"),
            (serde_json::json!({ "parameters": { "a": "1..2" } }), "trials"),
            (serde_json::json!({ "parameters": { "a": "1..2" }, "trials": 0 }), "trials"),
            (serde_json::json!({ "trials": 3 }), "parameters"),
            (serde_json::json!({ "repeat": 0 }), "repeat"),
            (serde_json::json!({ "array": "0-999", "repeat": 2 }), "repeat"),
        ] {
            assert_eq!(request(json.clone()).tasks(1).unwrap_err()[0].field, field, "{json}");
        }
    }
}
