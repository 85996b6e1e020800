//! What a run comes to in a table: its hyper-parameters, and of each metric the last value, the least and
//! the greatest with their steps, and a few values to draw a line of. A digest is made of a run's points while they
//! are read, and kept in the database, so that a table of many runs reads nobody's points.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{super::answer::in_short, kind};
use lyceum_curves::{Series, Store};

/// So many metrics and hyper-parameters of one run are told in a table, and so many tags are looked at.
const MAX_METRICS: usize = 100;
const MAX_PARAMS: usize = 200;
const MAX_SCANNED: usize = 5000;

/// Longer names are left out, longer values cut (characters).
pub(super) const MAX_NAME_LENGTH: usize = 200;
const MAX_VALUE_LENGTH: usize = 200;

/// Values of a small line.
pub const LINE: usize = 24;

/// What a run comes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    pub params: BTreeMap<String, Value>,
    pub metrics: BTreeMap<String, Metric>,
}

/// What one of its curves comes to. Values that are not finite are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The directory and the tag.
    pub run: String,
    pub tag: String,
    pub last: Option<(f64, i64)>,
    pub min: Option<(f64, i64)>,
    pub max: Option<(f64, i64)>,
    pub line: CurveOutline,
    /// The first step whose value is not finite.
    #[serde(default)]
    pub nonfinite: Option<i64>,
}

/// A few values of a curve, at even distances from its first step to its last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurveOutline {
    pub from: i64,
    pub to: i64,
    pub values: Vec<Option<f32>>,
}

impl Digest {
    /// Whether there was room for all metrics.
    pub(super) fn has_all(&self) -> bool {
        self.metrics.len() < MAX_METRICS
    }
}

/// The digest of what has been read.
pub fn digest(store: &Store) -> Digest {
    let mut params = BTreeMap::new();
    let mut tags: Vec<(&str, &str, &Series)> = Vec::new();
    let mut times: HashMap<&str, usize> = HashMap::new();
    for (run, curves) in store.runs.iter() {
        for (name, value) in &curves.hparams {
            if params.len() < MAX_PARAMS && name.chars().count() <= MAX_NAME_LENGTH {
                params.insert(name.clone(), plain(value));
            }
        }
        for (tag, series) in curves.curves().take(MAX_SCANNED.saturating_sub(tags.len())) {
            // Lightning's placeholder says nothing.
            if tag.chars().count() <= MAX_NAME_LENGTH && !(tag == "hp_metric" && series.len() <= 1) {
                tags.push((run, tag, series));
                *times.entry(tag).or_default() += 1;
            }
        }
    }
    // A tag that several directories have is told with its directory.
    let name = |run: &str, tag: &str| if times[tag] == 1 { tag.to_owned() } else { format!("{run}: {tag}") };
    let mut named: Vec<_> = tags.iter().map(|(run, tag, series)| (name(run, tag), *run, *tag, *series)).collect();
    named.sort_by_key(|(name, ..)| kind::weight(name));
    named.truncate(MAX_METRICS);
    let metrics = named.into_iter().map(|(name, run, tag, series)| (name, metric(run, tag, series))).collect();
    Digest { params, metrics }
}

fn metric(run: &str, tag: &str, series: &Series) -> Metric {
    let short = in_short(tag, series);
    Metric {
        run: run.to_owned(),
        tag: tag.to_owned(),
        last: short.last.zip(short.last_step),
        min: short.min.zip(short.min_step),
        max: short.max.zip(short.max_step),
        line: line(series),
        nonfinite: short.first_nonfinite_step,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a line a few pixels high needs no more")]
fn line(series: &Series) -> CurveOutline {
    let parts = series.by_step(i64::MIN..=i64::MAX, LINE);
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return CurveOutline::default() };
    CurveOutline {
        from: first.first.step,
        to: last.last.step,
        values: parts.iter().map(|part| part.range.map(|range| range.mean as f32)).collect(),
    }
}

/// A hyper-parameter as a table shows it: a number, a word, yes or no; anything else as text.
fn plain(value: &Value) -> Value {
    let cut = |text: &str| Value::String(text.chars().take(MAX_VALUE_LENGTH).collect());
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => cut(text),
        Value::Array(_) | Value::Object(_) => cut(&value.to_string()),
    }
}

/// The value of a curve at the last step that is not behind `step`.
pub fn value_at(store: &Store, metric: &Metric, step: i64) -> Option<(f64, i64)> {
    let series = store.runs.get(&metric.run)?.curve(&metric.tag)?;
    let last = series.by_step(i64::MIN..=step, 1).pop()?.last;
    last.value.is_finite().then_some((last.value, last.step))
}
