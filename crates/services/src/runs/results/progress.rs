//! How far jobs are, by what their programs log: the step or epoch that was logged last beside the total that the
//! hyper-parameters name, and the last value of the metric that says most. A list of jobs shows it from the digests, without
//! reading anybody's points. The page of one run has the same rules (`static/curves/progress.js`).

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::{
    super::{Result, Runs},
    digest::{CurveOutline, Digest, Metric},
    kind,
};
use lyceum_model::JobId;

/// Names of hyper-parameters that are a total, whatever stands before their last dot or slash.
const STEPS: [&str; 9] = [
    "total_steps",
    "max_steps",
    "num_steps",
    "num_train_steps",
    "train_steps",
    "steps",
    "max_iters",
    "num_iterations",
    "iterations",
];
const EPOCHS: [&str; 6] = ["epochs", "num_epochs", "max_epochs", "num_train_epochs", "total_epochs", "n_epochs"];

/// What the program of a job has logged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobProgress {
    pub extent: Option<Extent>,
    /// The metrics that say most, the best first.
    pub metrics: Vec<LoggedMetric>,
}

/// A metric in short.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedMetric {
    pub name: String,
    pub last: f64,
    pub line: CurveOutline,
}

/// So many metrics of a job are shown in short.
const MAX_METRICS: usize = 4;

/// How far a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// `step` or `epoch`.
    pub unit: &'static str,
    pub done: i64,
    /// `None` where no hyper-parameter names it.
    pub total: Option<i64>,
}

impl Runs {
    /// Returns how far some jobs are; those that have logged nothing are left out.
    pub async fn progress_of_jobs(&self, jobs: &[JobId]) -> Result<HashMap<JobId, JobProgress>> {
        let runs = self.db.runs_of_jobs(jobs).await?;
        let ids: Vec<_> = runs.iter().map(|(_, run)| *run).collect();
        let digests = self.digests(&ids).await?;
        let known = |(job, run)| digests.get(&run).map(|digest| (job, progress(digest)));
        Ok(runs.into_iter().filter_map(known).collect())
    }
}

fn progress(digest: &Digest) -> JobProgress {
    // The name of the last part says what is counted or set; neither is what a training is for.
    let is_telling = |name: &str| !["epoch", "step", "lr", "learning_rate"].contains(&last_part(name).as_str());
    let short = |(name, metric): (&String, &Metric)| {
        let (last, _) = metric.last.filter(|_| is_telling(name))?;
        Some(LoggedMetric { name: name.clone(), last, line: metric.line.clone() })
    };
    let mut metrics: Vec<_> = digest.metrics.iter().filter_map(short).collect();
    metrics.sort_by_key(|metric| (kind::weight(&metric.name), metric.name.len()));
    metrics.truncate(MAX_METRICS);
    JobProgress { extent: extent(digest), metrics }
}

/// Steps count from 0, and so do the epochs of Keras; a curve named `epoch` says how many steps an epoch has.
fn extent(digest: &Digest) -> Option<Extent> {
    let is_of_epochs = |metric: &&Metric| last_part(&metric.tag).starts_with("epoch_");
    let last_step = |of_epochs: bool| {
        let metrics = digest.metrics.values().filter(|metric| is_of_epochs(metric) == of_epochs);
        metrics.filter_map(|metric| Some(metric.last?.1)).max()
    };
    let epochs_alone =
        |total| last_step(true).map(|last| Extent { unit: "epoch", done: last.saturating_add(1), total });
    let last = last_step(false);
    let by_step = |total| last.map(|done| Extent { unit: "step", done, total });
    if let Some(steps) = first(&digest.params, &STEPS).filter(|_| last.is_some()) {
        return by_step(Some(steps));
    }
    let Some(epochs) = first(&digest.params, &EPOCHS) else {
        return by_step(None).or_else(|| epochs_alone(None));
    };
    let epoch_curves = digest.metrics.values().filter(|metric| last_part(&metric.tag) == "epoch");
    let counted = epoch_curves.filter_map(|metric| metric.last).find(|(epoch, step)| *epoch > 0.0 && *step > 0);
    if let Some((epoch, step)) = counted {
        return by_step(whole(as_float(step) / epoch * as_float(epochs)));
    }
    epochs_alone(Some(epochs)).or_else(|| by_step(None))
}

/// The first of the hyper-parameters with one of these names that is a total.
fn first(params: &BTreeMap<String, Value>, names: &[&str]) -> Option<i64> {
    let total = |(name, value): (&String, &Value)| {
        let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
        names.contains(&last_part(name).as_str()).then(|| whole(number)).flatten()
    };
    params.iter().find_map(total)
}

fn last_part(name: &str) -> String {
    name.rsplit(['.', '/']).next().unwrap_or_default().trim().to_lowercase()
}

/// A number of steps; nothing else is a total.
#[expect(clippy::cast_possible_truncation, reason = "it is within the bounds")]
fn whole(number: f64) -> Option<i64> {
    (0.5..9e15).contains(&number).then(|| number.round() as i64)
}

#[expect(clippy::cast_precision_loss, reason = "no program counts so far")]
fn as_float(number: i64) -> f64 {
    number as f64
}

impl Extent {
    /// Returns the share that is done, from 0 to 1; `None` without a total.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let total = self.total.filter(|total| *total > 0)?;
        Some((as_float(self.done) / as_float(total)).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn digest(params: &Value, metrics: &[(&str, f64, i64)]) -> Digest {
        let metric = |(tag, value, step): &(&str, f64, i64)| {
            let metric = Metric { tag: (*tag).to_owned(), last: Some((*value, *step)), ..Metric::default() };
            ((*tag).to_owned(), metric)
        };
        Digest {
            params: params.as_object().unwrap().clone().into_iter().collect(),
            metrics: metrics.iter().map(metric).collect(),
        }
    }

    #[test]
    fn the_total_is_what_the_program_says() {
        for (params, metrics, unit, done, total) in [
            (json!({"train.max_steps": 1200}), &[("loss", 0.5, 420)][..], "step", 420, Some(1200)),
            (json!({"steps": "80"}), &[("loss", 0.5, 4)], "step", 4, Some(80)),
            (json!({"lr": 0.1}), &[("loss", 0.5, 420)], "step", 420, None),
            (json!({"epochs": 20}), &[("epoch_loss", 0.5, 2)], "epoch", 3, Some(20)),
            (json!({}), &[("train/epoch_loss", 0.5, 2)], "epoch", 3, None),
            (json!({"epochs": 4}), &[("loss", 0.5, 90), ("epoch", 1.5, 90)], "step", 90, Some(240)),
            (json!({"epochs": 4}), &[("loss", 0.5, 90)], "step", 90, None),
            (json!({"epochs": -4, "steps": true}), &[("loss", 0.5, 90)], "step", 90, None),
        ] {
            let found = extent(&digest(&params, metrics));
            assert_eq!(found, Some(Extent { unit, done, total }), "{params} {metrics:?}");
        }
        assert_eq!(extent(&digest(&json!({"epochs": 4}), &[])), None);
    }

    #[test]
    fn a_share_is_never_more_than_all() {
        let share = |done, total| Extent { unit: "step", done, total }.share();
        assert_eq!(share(3, Some(4)), Some(0.75));
        assert_eq!(share(9, Some(4)), Some(1.0));
        assert_eq!((share(3, None), share(3, Some(0))), (None, None));
    }

    #[test]
    fn what_can_be_judged_is_shown() {
        let names = |metrics: &[(&str, f64, i64)]| {
            let found = progress(&digest(&json!({}), metrics)).metrics;
            found.into_iter().map(|metric| metric.name).collect::<Vec<_>>()
        };
        let all = [("loss", 0.5, 9), ("val/accuracy", 0.9, 8), ("epoch", 3.0, 9), ("lr", 0.1, 9)];
        assert_eq!(names(&all), ["val/accuracy", "loss"]);
        assert_eq!(names(&[("speed", 2.0, 9), ("step", 9.0, 9)]), ["speed"]);
        assert_eq!(names(&all[2..]), Vec::<String>::new());
        assert_eq!(names(&["a", "b", "c", "d", "e"].map(|name| (name, 1.0, 1))).len(), MAX_METRICS);
    }
}
