//! Many jobs from one plan: an array of numbers, every combination of some values, or trials with
//! drawn ones. Everything is known when it is submitted: which tasks there are, what each is
//! told, and in what order they become jobs.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    JobId, SweepId, Timestamp, UserId,
    job::{JobProgram, Part, Task},
    session::{SessionSpec, UnknownWord, words},
};

words!(
    /// Where a sweep is in its life.
    SweepState {
        /// Its tasks become jobs as room allows.
        Running = "running",
        /// No more of them do; those that run go on.
        Paused = "paused",
        /// Nothing more is to run; what runs is being ended.
        Stopping = "stopping",
        Ended = "ended",
    }
);

words!(
    /// How the tasks came about.
    SweepKind {
        Array = "array",
        Grid = "grid",
        Random = "random",
        Repeat = "repeat",
    }
);

words!(
    /// Which values of a metric are better.
    Goal {
        Minimum = "min",
        Maximum = "max",
    }
);

/// A sweep without its plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    pub id: SweepId,
    pub owner: UserId,
    pub owner_name: String,
    pub name: String,
    pub kind: SweepKind,
    pub state: SweepState,
    /// Why it is paused, if the portal did that.
    pub note: String,
    pub tasks: i64,
    /// So many of them, the first ones, have become jobs.
    pub released: i64,
    /// At most so many run or wait at once.
    pub parallel: i64,
    pub created_at: Timestamp,
}

/// What its tasks are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub task: Task,
    pub spec: SessionSpec,
    pub metric: Option<Metric>,
    pub tasks: Vec<Settings>,
    /// The request of a training, where each task trains a model: the parameters are fields of its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<serde_json::Value>,
}

/// In what one task differs from the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Of an array as it was asked for; else 0, 1, 2 …
    pub index: i64,
    /// Which time the same values are tried: 0, 1, 2 …
    #[serde(default)]
    pub repeat: i64,
    #[serde(default)]
    pub values: BTreeMap<String, String>,
}

/// The metric that tasks of a sweep are compared by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SweepMetric)]
pub struct Metric {
    /// The tag of a curve.
    pub tag: String,
    pub goal: Goal,
    /// Early stopping: from this step on, a task is ended if its best value is worse than the median of the others at
    /// its step, or at the last step that three others have reached.
    #[serde(default)]
    pub stop_after_step: Option<i64>,
}

/// A sweep has at most so many tasks.
pub const MAX_TASKS: usize = 1000;

/// The values that a parameter can have.
#[derive(Clone, Debug, PartialEq)]
pub enum Domain {
    OneOf(Vec<String>),
    Range { from: f64, to: f64, is_logarithmic: bool, is_whole: bool },
}

impl FromStr for Domain {
    type Err = &'static str;

    /// `0.1, 0.01` or `1..64` or `1e-4..1e-1 log`. A range of whole numbers has whole numbers.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let (span, is_logarithmic) = match text.strip_suffix("log") {
            Some(span) if span.ends_with([' ', ',']) => (span.trim_end_matches([' ', ',']), true),
            _ => (text, false),
        };
        let Some((from, to)) = span.split_once("..") else {
            let values: Vec<String> = text.split(',').map(|value| value.trim().to_owned()).collect();
            return if values.iter().any(String::is_empty) {
                Err("must be values separated by commas, or a range such as 1e-4..1e-1 log")
            } else {
                Ok(Self::OneOf(values))
            };
        };
        let is_whole = [from, to].iter().all(|end| end.trim().parse::<i64>().is_ok());
        let end = |text: &str| text.trim().parse::<f64>().ok().filter(|end| end.is_finite());
        match (end(from), end(to)) {
            (Some(from), Some(to)) if to <= from => Err("must be a range whose end is greater than its start"),
            (Some(from), Some(_)) if is_logarithmic && from <= 0.0 => Err("must start above 0, because it is \
                                                                           logarithmic"),
            (Some(from), Some(to)) => Ok(Self::Range { from, to, is_logarithmic, is_whole }),
            _ => Err("must be a range of two numbers, such as 1e-4..1e-1 log"),
        }
    }
}

impl Domain {
    /// The value at `chance`, which is from 0 up to 1.
    fn at(&self, chance: f64) -> String {
        match self {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "a list is short, and the chance below 1"
            )]
            Self::OneOf(values) => values[((chance * values.len() as f64) as usize).min(values.len() - 1)].clone(),
            Self::Range { from, to, is_logarithmic, is_whole } => {
                let to = if *is_whole { to + 1.0 } else { *to };
                let value = if *is_logarithmic {
                    (from.ln() + chance * (to.ln() - from.ln())).exp()
                } else {
                    from + chance * (to - from)
                };
                if *is_whole {
                    return format!("{}", value.floor());
                }
                // Six digits are enough, and the same text on every machine.
                let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
                rounded.to_string()
            }
        }
    }
}

/// Numbers of an array: `0-9`, `1,3,5-7`, `0-20:5`.
///
/// # Errors
///
/// A sentence that says what is wrong.
pub fn indices(text: &str) -> Result<Vec<i64>, &'static str> {
    const FORM: &str = "must be a list such as 0-9, 1,3,5-7 or 0-20:5, optionally with %4 for four at once";
    let mut indices = Vec::new();
    for item in text.split(',').map(str::trim) {
        let (span, step) = item.split_once(':').unwrap_or((item, "1"));
        let (from, to) = span.split_once('-').unwrap_or((span, span));
        let number = |text: &str| text.trim().parse::<i64>().ok().filter(|number| *number >= 0);
        let (Some(from), Some(to), Some(step)) = (number(from), number(to), number(step)) else { return Err(FORM) };
        let Ok(step) = usize::try_from(step) else { return Err(FORM) };
        if to < from || step == 0 {
            return Err(FORM);
        }
        indices.extend((from..=to).step_by(step).take(MAX_TASKS + 1));
        if indices.len() > MAX_TASKS {
            return Err("must have at most 1000 tasks");
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    if indices.iter().all(|index| seen.insert(*index)) { Ok(indices) } else { Err("contains a number twice") }
}

/// Every combination, the last parameter's values changing fastest; `None` where one is a range,
/// or where there are more than [`MAX_TASKS`].
#[must_use]
pub fn grid(parameters: &BTreeMap<String, Domain>) -> Option<Vec<BTreeMap<String, String>>> {
    let mut all = vec![BTreeMap::new()];
    for (name, domain) in parameters {
        let Domain::OneOf(values) = domain else { return None };
        if all.len().saturating_mul(values.len()) > MAX_TASKS {
            return None;
        }
        let with = |before: &BTreeMap<String, String>, value: &String| {
            let mut after = before.clone();
            after.insert(name.clone(), value.clone());
            after
        };
        all = all.iter().flat_map(|before| values.iter().map(move |value| with(before, value))).collect();
    }
    Some(all)
}

/// So many drawn combinations: the same for the same seed.
#[must_use]
pub fn draw(parameters: &BTreeMap<String, Domain>, trials: usize, seed: u64) -> Vec<BTreeMap<String, String>> {
    let mut state = seed;
    let one =
        |state: &mut u64| parameters.iter().map(|(name, domain)| (name.clone(), domain.at(chance(state)))).collect();
    (0..trials.min(MAX_TASKS)).map(|_| one(&mut state)).collect()
}

/// The next number from 0 up to 1, by Steele, Lea and Flood's `SplitMix64`.
fn chance(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a double holds")]
    let chance = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
    chance
}

impl Plan {
    /// What the task at this place runs.
    #[must_use]
    pub fn task(&self, sweep: SweepId, settings: &Settings) -> Task {
        let mut task = self.task.clone();
        let words = [("index", settings.index.to_string()), ("repeat", settings.repeat.to_string())];
        let words: Vec<(String, String)> =
            words.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(settings.values.clone()).collect();
        if let JobProgram::Command(argv) = &mut task.work {
            for word in argv {
                for (name, value) in &words {
                    *word = word.replace(&format!("{{{name}}}"), value);
                }
            }
        }
        if self.training.is_none() {
            task.variables.extend(settings.values.clone());
        }
        task.part = Some(Part { sweep, index: settings.index, repeat: settings.repeat });
        task
    }

    /// What the task's job asks for: each has a folder of its own.
    #[must_use]
    pub fn spec(&self, id: JobId, name: &str, settings: &Settings) -> SessionSpec {
        let mut spec = self.spec.clone();
        spec.log_directory = Some(match &self.spec.log_directory {
            None => super::Job::usual_log_directory(id, name),
            Some(folder) if settings.repeat == 0 => format!("{folder}/{}", settings.index),
            Some(folder) => format!("{folder}/{}-{}", settings.index, settings.repeat),
        });
        spec
    }
}

/// How far a task has come in what it is compared by: steps in their order, with the best value
/// up to each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course(pub Vec<(i64, f64)>);

impl Course {
    /// From stretches of a curve: the last step of each, its least and its greatest value.
    pub fn new(goal: Goal, stretches: impl IntoIterator<Item = (i64, Option<(f64, f64)>)>) -> Self {
        let mut best: Option<f64> = None;
        let mut course = Vec::new();
        for (step, range) in stretches {
            if let Some((least, greatest)) = range {
                best = Some(match goal {
                    Goal::Minimum => best.map_or(least, |best| best.min(least)),
                    Goal::Maximum => best.map_or(greatest, |best| best.max(greatest)),
                });
            }
            course.extend(best.map(|best| (step, best)));
        }
        Self(course)
    }

    pub fn last(&self) -> Option<(i64, f64)> {
        self.0.last().copied()
    }

    /// The best value up to a step, if it has come that far.
    fn up_to(&self, step: i64) -> Option<f64> {
        let (last, _) = self.last()?;
        let known = self.0.iter().take_while(|(at, _)| *at <= step).last();
        known.filter(|_| step <= last).map(|(_, best)| *best)
    }
}

/// Others that have to have come as far before anybody is measured by them.
const MIN_COMPARED: usize = 3;

/// Whether a task is worse than half of the others were at its step, or, where it has gone further, at
/// the last one that enough others have come to: its step, its own best value, and the median that it is behind.
#[must_use]
pub fn behind(metric: &Metric, own: &Course, others: &[&Course]) -> Option<(i64, f64, f64)> {
    let (step, best) = own.last()?;
    if step < metric.stop_after_step? {
        return None;
    }
    let mut reached: Vec<i64> = others.iter().filter_map(|other| Some(other.last()?.0)).collect();
    reached.sort_by_key(|step| std::cmp::Reverse(*step));
    let common = step.min(*reached.get(MIN_COMPARED - 1)?);
    if common < metric.stop_after_step? {
        return None;
    }
    let mut theirs: Vec<f64> = others.iter().filter_map(|other| other.up_to(common)).collect();
    if theirs.len() < MIN_COMPARED {
        return None;
    }
    theirs.sort_by(f64::total_cmp);
    let middle = theirs.len() / 2;
    let median =
        if theirs.len().is_multiple_of(2) { f64::midpoint(theirs[middle - 1], theirs[middle]) } else { theirs[middle] };
    let is_worse = match metric.goal {
        Goal::Minimum => median < best,
        Goal::Maximum => best < median,
    };
    is_worse.then_some((step, best, median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_parameter_can_be() {
        let of = |text: &str| text.parse::<Domain>();
        assert_eq!(of("0.1, 0.01"), Ok(Domain::OneOf(vec!["0.1".to_owned(), "0.01".to_owned()])));
        assert_eq!(of("adam"), Ok(Domain::OneOf(vec!["adam".to_owned()])));
        let range = |from, to, is_logarithmic, is_whole| Ok(Domain::Range { from, to, is_logarithmic, is_whole });
        assert_eq!(of("1e-4..1e-1 log"), range(1e-4, 0.1, true, false));
        assert_eq!(of("1..64"), range(1.0, 64.0, false, true));
        assert_eq!(of("0.5 .. 2"), range(0.5, 2.0, false, false));
        for wrong in ["", "a,,b", "2..1", "1..1", "0..1 log", "a..b", "1..inf", "1..NaN"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert_eq!(of("catalog"), Ok(Domain::OneOf(vec!["catalog".to_owned()])));
    }

    #[test]
    fn numbers_of_an_array() {
        assert_eq!(indices("0-3"), Ok(vec![0, 1, 2, 3]));
        assert_eq!(indices("1,3, 5-7"), Ok(vec![1, 3, 5, 6, 7]));
        assert_eq!(indices("0-20:5"), Ok(vec![0, 5, 10, 15, 20]));
        assert_eq!(indices("7"), Ok(vec![7]));
        for wrong in ["", "a", "3-1", "1-", "-1", "0-9:0", "1,1", "0-1000", "0-9223372036854775807", "1-2-3"] {
            assert!(indices(wrong).is_err(), "{wrong}");
        }
        assert_eq!(indices("0-999").unwrap().len(), 1000);
    }

    fn parameters(all: &[(&str, &str)]) -> BTreeMap<String, Domain> {
        all.iter().map(|(name, text)| ((*name).to_owned(), text.parse().unwrap())).collect()
    }

    #[test]
    fn every_combination_and_drawn_ones() {
        let all = grid(&parameters(&[("lr", "0.1,0.01"), ("opt", "adam,sgd,rms")])).unwrap();
        let shown: Vec<String> = all.iter().map(|one| format!("{} {}", one["lr"], one["opt"])).collect();
        assert_eq!(shown, ["0.1 adam", "0.1 sgd", "0.1 rms", "0.01 adam", "0.01 sgd", "0.01 rms"]);
        assert_eq!(grid(&parameters(&[("lr", "0.1..1")])), None);
        let long = (0..40).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(grid(&parameters(&[("a", &long), ("b", &long)])), None);

        let space = parameters(&[("lr", "1e-4..1e-1 log"), ("n", "1..8"), ("opt", "adam,sgd")]);
        let drawn = draw(&space, 200, 7);
        assert_eq!(drawn, draw(&space, 200, 7), "a seed says it all");
        assert_ne!(drawn, draw(&space, 200, 8));
        let mut small = 0;
        for one in &drawn {
            let lr: f64 = one["lr"].parse().unwrap();
            assert!((1e-4..=1e-1).contains(&lr), "{lr}");
            small += usize::from(lr < 3.2e-3);
            assert!((1..=8).contains(&one["n"].parse::<i64>().unwrap()), "{}", one["n"]);
        }
        assert!((60..140).contains(&small), "half are below the geometric middle: {small}");
        for n in 1..=8 {
            assert!(drawn.iter().any(|one| one["n"] == n.to_string()), "{n} is drawn");
        }
    }

    #[test]
    fn who_is_behind_the_median() {
        let course = |goal, values: &[f64]| {
            Course::new(goal, (0_i64..).zip(values).map(|(at, value)| (at * 10, Some((*value, *value)))))
        };
        let low = |values: &[f64]| course(Goal::Minimum, values);
        let metric = Metric { tag: "loss".to_owned(), goal: Goal::Minimum, stop_after_step: Some(20) };
        let [a, b, c] = [low(&[5.0, 3.0, 2.0, 1.0]), low(&[5.0, 4.0, 3.0, 2.0]), low(&[6.0, 5.0, 4.0, 3.0])];
        let bad = low(&[9.0, 8.0, 7.0]);
        assert_eq!(behind(&metric, &bad, &[&a, &b, &c]), Some((20, 7.0, 3.0)));
        let long = low(&[9.0, 8.0, 7.0, 7.0, 7.0, 7.0]);
        assert_eq!(behind(&metric, &long, &[&a, &b, &c]), Some((50, 7.0, 2.0)), "the others ended before");
        let late = low(&[9.0, 8.0, 7.0, 7.0, 7.0, 1.5]);
        assert_eq!(behind(&metric, &late, &[&a, &b, &c]), None, "it has caught up");
        assert_eq!(behind(&metric, &a, &[&b, &c, &bad]), None, "the best goes on");
        assert_eq!(behind(&metric, &bad, &[&a, &b]), None, "two are too few");
        assert_eq!(behind(&metric, &low(&[9.0, 8.0]), &[&a, &b, &c]), None, "it has not come that far");
        assert_eq!(behind(&metric, &low(&[1.0, 9.0, 9.0]), &[&a, &b, &c]), None, "its best was early");
        let never = Metric { stop_after_step: None, ..metric.clone() };
        assert_eq!(behind(&never, &bad, &[&a, &b, &c]), None);
        let metric = Metric { goal: Goal::Maximum, ..metric };
        let high = |values: &[f64]| course(Goal::Maximum, values);
        let [a, b, c] = [high(&[0.1, 0.5, 0.8]), high(&[0.1, 0.4, 0.7]), high(&[0.1, 0.3, 0.6])];
        assert_eq!(behind(&metric, &high(&[0.1, 0.1, 0.1]), &[&a, &b, &c]), Some((20, 0.1, 0.7)));
        assert_eq!(Course::new(Goal::Minimum, [(0, None), (1, Some((2.0, 3.0)))]).0, [(1, 2.0)]);
    }

    #[test]
    fn what_a_task_is_told() {
        let task = Task {
            work: JobProgram::Command(
                ["train", "--lr={lr}", "{other}", "{index}-{repeat}"].map(str::to_owned).to_vec(),
            ),
            variables: [("A".to_owned(), "1".to_owned())].into(),
            retries: 0,
            retry_wait_seconds: 0,
            after: Vec::new(),
            shape: crate::job::Shape::default(),
            part: None,
            start: crate::job::Start::default(),
            requeue: false,
            array: None,
            tags: Vec::new(),
            notes: String::new(),
            is_helper: false,
        };
        let spec = super::super::session::example(super::super::SessionState::Queued).spec;
        let plan = Plan { task, spec, metric: None, tasks: Vec::new(), training: None };
        let settings = Settings { index: 3, repeat: 1, values: [("lr".to_owned(), "0.1".to_owned())].into() };
        let sweep = SweepId::new();
        let told = plan.task(sweep, &settings);
        assert_eq!(told.work, JobProgram::Command(["train", "--lr=0.1", "{other}", "3-1"].map(str::to_owned).to_vec()));
        assert_eq!((&*told.variables["lr"], &*told.variables["A"]), ("0.1", "1"));
        assert_eq!(told.part, Some(Part { sweep, index: 3, repeat: 1 }));
        let folder = |of: Option<&str>| {
            let spec = SessionSpec { log_directory: of.map(str::to_owned), ..plan.spec.clone() };
            Plan { spec, ..plan.clone() }.spec(JobId::new(), "x", &settings).log_directory.unwrap()
        };
        assert_eq!(folder(Some("runs/lr")), "runs/lr/3-1");
        assert!(folder(None).starts_with("runs/x-"));
    }
}
