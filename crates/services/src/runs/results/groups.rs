//! Runs that share a value, as one: what each metric comes to in the mean, between which bounds, and a
//! small line with a band. Lines of runs with different steps are read at the same places, between their own values.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::digest::{CurveOutline, LINE};
use lyceum_model::RunId;

/// Runs with one value of a hyper-parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// `None`: the runs that do not have it.
    pub value: Option<Value>,
    pub runs: Vec<RunId>,
    /// Of each metric that is shown, in the order of the columns; `None` where no run has it.
    pub spreads: Vec<Option<Spread>>,
}

/// Statistics of some values.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ResultsSpread)]
pub struct Spread {
    pub count: usize,
    pub mean: f64,
    pub min: f64,
    pub max: f64,
    /// Standard deviation of the sample; null for a single value.
    pub deviation: Option<f64>,
    pub band: Band,
}

/// Several curves together: minimum, mean and maximum at each position.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = ResultsBand)]
pub struct Band {
    pub from: i64,
    pub to: i64,
    pub low: Vec<Option<f32>>,
    pub mean: Vec<Option<f32>>,
    pub high: Vec<Option<f32>>,
}

/// What values come to; `None` where there is none.
#[expect(clippy::cast_precision_loss, reason = "there are at most a thousand")]
pub fn spread(values: &[f64], lines: &[&CurveOutline]) -> Option<Spread> {
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (count > 0).then(|| Spread {
        count,
        mean,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        deviation: (count > 1).then(|| (squares / (count - 1) as f64).sqrt()),
        band: band(lines),
    })
}

#[expect(clippy::cast_precision_loss, reason = "a line a few pixels high needs no more")]
fn band(lines: &[&CurveOutline]) -> Band {
    let lines: Vec<&&CurveOutline> = lines.iter().filter(|line| !line.values.is_empty()).collect();
    let (Some(from), Some(to)) = (lines.iter().map(|line| line.from).min(), lines.iter().map(|line| line.to).max())
    else {
        return Band::default();
    };
    let mut band = Band { from, to, ..Band::default() };
    for place in 0..LINE {
        let step = from as f64 + (to as f64 - from as f64) * place as f64 / (LINE - 1) as f64;
        let values: Vec<f32> = lines.iter().filter_map(|line| at(line, step)).collect();
        let fold = |f: fn(f32, f32) -> f32| values.iter().copied().reduce(f);
        band.low.push(fold(f32::min));
        band.high.push(fold(f32::max));
        band.mean.push((!values.is_empty()).then(|| values.iter().sum::<f32>() / values.len() as f32));
    }
    band
}

/// A line at a step, between its values; `None` outside of it, or where it is not finite.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place among a few values"
)]
fn at(line: &CurveOutline, step: f64) -> Option<f32> {
    let last = line.values.len().checked_sub(1)?;
    let width = line.to as f64 - line.from as f64;
    let place = if width > 0.0 { (step - line.from as f64) / width * last as f64 } else { 0.0 };
    if step < line.from as f64 || (line.to as f64) < step {
        return None;
    }
    let before = (place.floor().max(0.0) as usize).min(last);
    let (one, other) = (line.values[before]?, line.values[(before + 1).min(last)]?);
    Some(one + (other - one) * (place - before as f64) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(from: i64, to: i64, values: &[f32]) -> CurveOutline {
        CurveOutline { from, to, values: values.iter().map(|value| Some(*value)).collect() }
    }

    #[test]
    fn values_come_to_mean_bounds_and_deviation() {
        let found = spread(&[1.0, 2.0, 6.0], &[]).unwrap();
        assert_eq!((found.count, found.mean, found.min, found.max), (3, 3.0, 1.0, 6.0));
        assert!((found.deviation.unwrap() - 7_f64.sqrt()).abs() < 1e-12);
        assert_eq!(spread(&[4.0], &[]).unwrap().deviation, None);
        assert_eq!(spread(&[], &[]), None);
    }

    #[test]
    fn lines_of_different_steps_are_read_at_the_same_places() {
        let (one, other) = (line(0, 230, &[0.0, 23.0]), line(0, 115, &[10.0, 10.0, 10.0]));
        let band = band(&[&one, &other]);
        assert_eq!((band.from, band.to, band.mean.len()), (0, 230, LINE));
        // At step 10 the first is at 1, the other at 10.
        assert_eq!((band.low[1], band.high[1], band.mean[1]), (Some(1.0), Some(10.0), Some(5.5)));
        // Behind its end there is nothing of the other.
        assert_eq!((band.low[20], band.high[20]), (Some(20.0), Some(20.0)));
        assert_eq!(super::band(&[&CurveOutline::default()]), Band::default());
    }

    #[test]
    fn a_line_of_one_point_is_there_at_its_step_alone() {
        let one = line(5, 5, &[2.0]);
        assert_eq!((at(&one, 5.0), at(&one, 6.0), at(&one, 4.0)), (Some(2.0), None, None));
    }
}
