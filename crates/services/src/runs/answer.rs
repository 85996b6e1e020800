//! What curves come to: which there are in a run, one of them cut into buckets with its least and
//! greatest, smoothed on all its points, and every point as a table. Pure functions of a store; what
//! they answer is what the API says.

use std::{collections::BTreeMap, fmt::Write, ops::Range};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    checkpoints::{Checkpoint, checkpoints},
    delta::word,
};
use lyceum_curves::{Bucket as Stretch, Point, Run, Series, Store, reader, smooth};

/// The curves of a run.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = RunMetrics)]
pub struct Metrics {
    pub runs: Vec<Tags>,
    /// Checkpoints of the training: one for each step, the latest thousand.
    pub checkpoints: Vec<Checkpoint>,
    pub complete: bool,
    /// True if there are more tags than `limit`.
    pub truncated: bool,
    /// Version of the data. It increases with each addition. The event stream can start from it.
    pub revision: u64,
}

/// The curves of one directory of a run. `.` is the run's directory itself.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunTags)]
pub struct Tags {
    pub run: String,
    pub tags: Vec<Tag>,
    #[schema(value_type = Object)]
    pub hparams: BTreeMap<String, Value>,
    pub skipped: SkippedHere,
}

/// Data in one directory of a run that was skipped.
#[derive(Debug, Serialize, ToSchema)]
pub struct SkippedHere {
    damaged: u64,
    oversized: u64,
    surplus: u64,
    lost: bool,
}

/// Summary of a curve over its visible points. Points that a later attempt replaced are not included.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunTag)]
pub struct Tag {
    pub tag: String,
    pub count: usize,
    /// The last value; null if it is not finite.
    pub last: Option<f64>,
    pub last_step: Option<i64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub(super) min_step: Option<i64>,
    pub(super) max_step: Option<i64>,
    first_step: Option<i64>,
    first_wall_time: Option<f64>,
    last_wall_time: Option<f64>,
    /// Number of values that are not finite.
    nonfinite: usize,
    pub(super) first_nonfinite_step: Option<i64>,
    attempts: usize,
}

/// Which of a run's curves are meant.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub run: Option<String>,
    pub prefix: String,
    pub search: String,
    pub limit: usize,
}

/// What there is in a store.
pub fn metrics(store: &Store, complete: bool, selection: &Selection) -> Metrics {
    let (mut left, mut truncated) = (selection.limit, false);
    let mut runs = Vec::new();
    for (name, run) in store.runs.iter() {
        if selection.run.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let wanted = |tag: &str| tag.starts_with(&selection.prefix) && tag.contains(&selection.search);
        let mut tags = Vec::new();
        for (tag, series) in run.curves().filter(|(tag, _)| wanted(tag)) {
            if left == 0 {
                truncated = true;
                break;
            }
            left -= 1;
            tags.push(in_short(tag, series));
        }
        let reader::Skipped { damaged, oversized, surplus, lost } = run.skipped;
        let skipped = SkippedHere { damaged, oversized, surplus, lost };
        runs.push(Tags { run: name.to_owned(), tags, hparams: run.hparams.clone(), skipped });
    }
    Metrics { runs, checkpoints: checkpoints(store), complete, truncated, revision: store.length() }
}

pub(super) fn in_short(tag: &str, series: &Series) -> Tag {
    let visible = series.visible();
    let all = series.by_step(i64::MIN..=i64::MAX, 1).into_iter().next();
    let range = all.and_then(|all| all.range);
    let (first, last) = (all.map(|all| all.first), all.map(|all| all.last));
    let (nonfinite, first_nonfinite) = {
        let mut points = series.nonfinite();
        let first = points.next();
        (points.count() + usize::from(first.is_some()), first)
    };
    Tag {
        tag: tag.to_owned(),
        count: visible.iter().map(Range::len).sum(),
        last: last.and_then(|last| finite(last.value)),
        last_step: last.map(|last| last.step),
        min: range.map(|range| range.min.value),
        max: range.map(|range| range.max.value),
        min_step: range.map(|range| range.min.step),
        max_step: range.map(|range| range.max.step),
        first_step: first.map(|first| first.step),
        first_wall_time: first.map(|first| first.wall_time),
        last_wall_time: last.map(|last| last.wall_time),
        nonfinite,
        first_nonfinite_step: first_nonfinite.map(|point| point.step),
        attempts: series.attempts().count(),
    }
}

/// Horizontal axis of a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    #[default]
    Step,
    /// Seconds since 1970.
    Wall,
    /// Seconds since the first point of the same directory.
    Relative,
    /// Latest value of another curve.
    Metric,
}

/// A question about one curve.
#[derive(Clone, Debug)]
pub struct Question {
    /// Without one: `.` where it has the tag, else the first that has it.
    pub run: Option<String>,
    pub tag: String,
    pub axis: Axis,
    /// The tag of the other curve, with [`Axis::Metric`]: of the same directory, else of the first that has it.
    pub by: Option<String>,
    /// Both included, in the axis's unit.
    pub from: Option<f64>,
    pub to: Option<f64>,
    /// The most buckets, but for one of what a logarithmic axis has no place for.
    pub points: usize,
    /// Buckets as a logarithmic axis shows them, of steps or relative times.
    pub log: bool,
    /// From 0 to below 1.
    pub smoothing: Option<f64>,
}

/// A curve in buckets.
#[derive(Debug, Serialize, ToSchema)]
pub struct Curve {
    pub run: String,
    pub tag: String,
    /// Number of visible points of the whole curve.
    pub count: usize,
    pub complete: bool,
    pub revision: u64,
    pub x: Axis,
    pub buckets: Vec<Bucket>,
    /// With `smoothing`: smoothed value at the end of each bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smoothed: Option<Vec<Option<f64>>>,
    /// The first thousand values in the range that are not finite.
    pub nonfinite: Vec<NotFinite>,
    pub nonfinite_count: usize,
    /// Attempts, if there is more than one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub attempts: Vec<Attempt>,
}

/// A part of a curve. Minimum, maximum and mean are of finite values.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CurveBucket)]
pub struct Bucket {
    pub count: usize,
    pub first_step: i64,
    pub last_step: i64,
    pub min: Option<f64>,
    pub min_step: Option<i64>,
    pub max: Option<f64>,
    pub max_step: Option<i64>,
    pub mean: Option<f64>,
    #[serde(flatten)]
    #[schema(inline)]
    pub places: Option<AxisPositions>,
}

/// Positions in the unit of the axis, if it is not the step.
#[expect(clippy::struct_field_names, reason = "so they are called on the wire")]
#[derive(Debug, Serialize, ToSchema)]
pub struct AxisPositions {
    first_x: f64,
    last_x: f64,
    min_x: Option<f64>,
    max_x: Option<f64>,
}

/// A value that is not finite.
#[derive(Debug, Serialize, ToSchema)]
pub struct NotFinite {
    step: i64,
    wall_time: f64,
    /// `NaN`, `Infinity` or `-Infinity`.
    value: &'static str,
}

/// The points that one attempt of the program wrote.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CurveAttempt)]
pub struct Attempt {
    #[serde(rename = "attempt")]
    number: u32,
    first_step: i64,
    last_step: i64,
    count: usize,
    first_wall_time: f64,
}

/// There is no such curve.
#[derive(Clone, Copy, Debug)]
pub struct NotThere;

const MAX_NONFINITE: usize = 1000;

/// The directory that is meant, with its name.
fn directory<'a>(store: &'a Store, run: Option<&str>, tag: &str) -> Result<(&'a str, &'a Run), NotThere> {
    let has = |run: &&Run| run.curve(tag).is_some();
    if let Some(name) = run {
        return store.runs.find(name).ok_or(NotThere);
    }
    let root = store.runs.find(".").filter(|(_, run)| has(run));
    root.or_else(|| store.runs.iter().find(|(_, run)| has(run))).ok_or(NotThere)
}

/// Answers a question about one curve.
pub fn curve(store: &Store, complete: bool, question: &Question) -> Result<Curve, NotThere> {
    let (name, run) = directory(store, question.run.as_deref(), &question.tag)?;
    let series = run.curve(&question.tag).ok_or(NotThere)?;
    let base = match question.axis {
        Axis::Relative => run.curves().filter_map(|(_, series)| first_time(series)).fold(f64::INFINITY, f64::min),
        Axis::Step | Axis::Wall | Axis::Metric => 0.0,
    };
    let over = match (question.axis, &question.by) {
        (Axis::Metric, Some(by)) => {
            let there = run.curve(by).is_some().then_some(name);
            let series = directory(store, there, by)?.1.curve(by).ok_or(NotThere)?;
            Some(AxisCurve { series, visible: series.visible() })
        }
        _ => None,
    };
    let window =
        CurveWindow { axis: question.axis, base, over, from: question.from, to: question.to, log: question.log };
    let stretches = window.cut(series, question.points.max(1));
    // Along another curve's values there is no before and after.
    let weight = question.smoothing.filter(|_| question.axis != Axis::Metric);
    let smoothed = weight.map(|weight| smooth::at_ends(series, &stretches, weight).into_iter().map(finite).collect());
    let mut nonfinite_count = 0;
    let mut nonfinite = Vec::new();
    for point in series.nonfinite().filter(|point| window.holds(point)) {
        nonfinite_count += 1;
        if let Some(value) = word(point.value).filter(|_| nonfinite.len() < MAX_NONFINITE) {
            nonfinite.push(NotFinite { step: point.step, wall_time: point.wall_time, value });
        }
    }
    let attempts: Vec<_> = series.attempts().map(|(number, points)| attempt_points(series, number, &points)).collect();
    Ok(Curve {
        run: name.to_owned(),
        tag: question.tag.clone(),
        count: series.visible().iter().map(Range::len).sum(),
        complete,
        revision: store.length(),
        x: question.axis,
        buckets: stretches.iter().map(|stretch| window.bucket(stretch)).collect(),
        smoothed,
        nonfinite,
        nonfinite_count,
        attempts: if attempts.len() > 1 { attempts } else { Vec::new() },
    })
}

fn first_time(series: &Series) -> Option<f64> {
    (!series.is_empty()).then(|| series.get(0).wall_time).filter(|time| time.is_finite())
}

fn attempt_points(series: &Series, number: u32, points: &Range<usize>) -> Attempt {
    let (first, last) = (series.get(points.start), series.get(points.end - 1));
    Attempt {
        number,
        first_step: first.step,
        last_step: last.step,
        count: points.len(),
        first_wall_time: first.wall_time,
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// The curve whose values are the axis.
struct AxisCurve<'a> {
    series: &'a Series,
    visible: Vec<Range<usize>>,
}

/// What is looked at of a curve.
struct CurveWindow<'a> {
    axis: Axis,
    base: f64,
    over: Option<AxisCurve<'a>>,
    from: Option<f64>,
    to: Option<f64>,
    log: bool,
}

impl CurveWindow<'_> {
    fn x(&self, point: &Point) -> f64 {
        match &self.over {
            Some(over) => over.series.value_by_then(&over.visible, point.step).unwrap_or(f64::NAN),
            None => point.wall_time - self.base,
        }
    }

    fn holds(&self, point: &Point) -> bool {
        match self.axis {
            Axis::Step => self.steps().contains(&point.step),
            Axis::Wall | Axis::Relative | Axis::Metric => {
                let x = self.x(point);
                // A clock that says no time has no place on these axes.
                x.is_finite() && self.from.is_none_or(|from| from <= x) && self.to.is_none_or(|to| x <= to)
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "what is beyond all steps is as good as the last of them")]
    fn steps(&self) -> std::ops::RangeInclusive<i64> {
        let from = self.from.map_or(i64::MIN, |from| from.ceil() as i64);
        let to = self.to.map_or(i64::MAX, |to| to.floor() as i64);
        from..=to
    }

    /// Buckets in the order of the axis; a bucket a point where there are few.
    fn cut(&self, series: &Series, most: usize) -> Vec<Stretch> {
        let visible = series.visible();
        if visible.iter().map(Range::len).sum::<usize>() <= most {
            let points = visible.into_iter().flatten().filter(|index| self.holds(&series.get(*index)));
            let mut alone: Vec<_> = points.map(|index| series.alone(index)).collect();
            if self.axis != Axis::Step {
                alone.sort_by(|one, other| self.x(&one.first).total_cmp(&self.x(&other.first)));
            }
            return alone;
        }
        if self.axis == Axis::Step {
            let steps = self.steps();
            return match (steps.is_empty(), self.log) {
                (true, _) => Vec::new(),
                (false, true) => series.by_magnitude(steps, most),
                (false, false) => series.by_step(steps, most),
            };
        }
        let x = |index: usize| {
            let point = series.get(index);
            Some(self.x(&point)).filter(|_| self.holds(&point))
        };
        let along = |x: &dyn Fn(usize) -> Option<f64>, most| {
            let all = visible.iter().cloned().flatten().filter_map(x);
            let bounds = all.fold(None, |bounds: Option<(f64, f64)>, x| {
                Some(bounds.map_or((x, x), |(low, high)| (low.min(x), high.max(x))))
            });
            bounds.map_or_else(Vec::new, |(low, high)| series.by(x, low..high, most))
        };
        if !self.log {
            return along(&x, most);
        }
        // What has no place on a logarithmic axis is one bucket.
        let mut found = along(&|index| x(index).filter(|x| *x <= 0.0), 1);
        found.extend(along(&|index| x(index).filter(|x| *x > 0.0).map(f64::ln), most));
        found
    }

    fn bucket(&self, stretch: &Stretch) -> Bucket {
        let range = stretch.range;
        // Another curve's values may fall while the steps grow.
        let ends = || {
            let (first, last) = (self.x(&stretch.first), self.x(&stretch.last));
            if self.axis == Axis::Metric { (first.min(last), first.max(last)) } else { (first, last) }
        };
        let places = (self.axis != Axis::Step).then(ends).map(|(first_x, last_x)| AxisPositions {
            first_x,
            last_x,
            min_x: range.map(|range| self.x(&range.min)),
            max_x: range.map(|range| self.x(&range.max)),
        });
        Bucket {
            count: stretch.count,
            first_step: stretch.first.step,
            last_step: stretch.last.step,
            min: range.map(|range| range.min.value),
            min_step: range.map(|range| range.min.step),
            max: range.map(|range| range.max.value),
            max_step: range.map(|range| range.max.step),
            mean: range.map(|range| range.mean),
            places,
        }
    }
}

/// How much there is: a number that grows with everything that is added.
pub fn revision(store: &Store) -> u64 {
    store.length()
}

/// The question answered for each of the tags and each directory that has it; `None` where that would be
/// more curves or more buckets than there is room for.
pub fn all(
    store: &Store,
    complete: bool,
    question: &Question,
    tags: &[String],
    (most_curves, most_buckets): (usize, usize),
) -> Option<Vec<Curve>> {
    let mut found = Vec::new();
    let mut buckets = 0;
    for (name, run) in store.runs.iter() {
        if question.run.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        for tag in tags.iter().filter(|tag| run.curve(tag).is_some()) {
            let question = Question { run: Some(name.to_owned()), tag: tag.clone(), ..question.clone() };
            let Ok(curve) = curve(store, complete, &question) else { continue };
            buckets += curve.buckets.len();
            found.push(curve);
            if most_curves < found.len() || most_buckets < buckets {
                return None;
            }
        }
    }
    Some(found)
}

/// Lines of a table of every point from `from` on, of all attempts in the order of writing, at most so
/// many; `None` behind the last.
pub fn csv(store: &Store, run: Option<&str>, tag: &str, from: usize, most: usize) -> Result<Option<String>, NotThere> {
    let (_, run) = directory(store, run, tag)?;
    let series = run.curve(tag).ok_or(NotThere)?;
    let end = series.len().min(from.saturating_add(most));
    if end <= from {
        return Ok(None);
    }
    let mut lines = String::with_capacity((end - from) * 48);
    for index in from..end {
        let Point { step, wall_time, value, attempt } = series.get(index);
        // Writing to a string does not fail.
        let _ = match word(value) {
            None => writeln!(lines, "{step},{wall_time},{value},{attempt}"),
            Some(word) => writeln!(lines, "{step},{wall_time},{word},{attempt}"),
        };
    }
    Ok(Some(lines))
}
