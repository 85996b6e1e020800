//! Smoothing, on every point of a curve before anything is thinned out: an exponential moving
//! average that is weighted by the distance in steps, without the bias of its beginning, as the
//! time-weighted average of Weights & Biases. A thousandth of the curve's steps is its unit, so
//! a validation every thousand steps is not drawn towards its past as a loss at every step is.
//! What is not finite passes through and does not count; a curve that never changes stays.

use std::ops::Range;

use super::series::{Bucket, Series};

/// The smoothed value at the last point of each bucket. `weight` is from 0, which changes
/// nothing, to below 1.
pub fn at_ends(series: &Series, buckets: &[Bucket], weight: f64) -> Vec<f64> {
    // In the order in which points are visited: by step, which is not always that of writing.
    let visible = series.visible();
    let part = |index: usize| visible.iter().position(|range| range.contains(&index));
    let mut ends: Vec<_> = buckets.iter().map(|bucket| bucket.end).enumerate().map(|(at, end)| (end, at)).collect();
    ends.sort_by_cached_key(|(end, at)| (part(*end), *end, *at));
    let mut wanted = ends.into_iter().peekable();
    let mut found = vec![f64::NAN; buckets.len()];
    for (index, value) in smoothed(series, weight) {
        while let Some((_, at)) = wanted.next_if(|(end, _)| *end == index) {
            found[at] = value;
        }
    }
    found
}

/// The number of units from the first step of a curve to its last.
const UNITS: f64 = 1000.0;

/// The largest weight of the average one unit before.
const MAX_WEIGHT: f64 = 0.999;

/// Every visible point's index and smoothed value.
pub fn smoothed(series: &Series, weight: f64) -> impl Iterator<Item = (usize, f64)> {
    let visible = series.visible();
    let stays = weight <= 0.0 || is_constant(series, &visible);
    let units = units_per_step(series, &visible);
    let weight = weight.sqrt().min(MAX_WEIGHT);
    let (mut sum, mut weights, mut before) = (0.0, 0.0, None);
    visible.into_iter().flatten().map(move |index| {
        let value = series.value_at(index);
        if stays || !value.is_finite() {
            return (index, value);
        }
        let step = series.steps.get(index);
        let left = weight.powf(distance(before.replace(step).unwrap_or(step), step) * units);
        sum = sum * left + value;
        weights = weights * left + 1.0;
        (index, sum / weights)
    })
}

fn units_per_step(series: &Series, visible: &[Range<usize>]) -> f64 {
    let (Some(first), Some(last)) = (visible.first(), visible.last()) else { return 0.0 };
    let all = distance(series.steps.get(first.start), series.steps.get(last.end - 1));
    if all > 0.0 { UNITS / all } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "a share of all steps")]
fn distance(from: i64, to: i64) -> f64 {
    to.abs_diff(from) as f64
}

fn is_constant(series: &Series, visible: &[Range<usize>]) -> bool {
    let mut values = visible.iter().cloned().flatten().map(|index| series.value_at(index));
    let first = values.next();
    values.all(|value| Some(value) == first)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "nothing is rounded here")]

    use super::*;
    use crate::Point;

    fn placed(points: impl IntoIterator<Item = (i64, f64)>) -> Series {
        let mut series = Series::default();
        for (step, value) in points {
            series.push(Point { step, wall_time: 0.0, value, attempt: 0 });
        }
        series
    }

    fn series(values: &[f64]) -> Series {
        placed((0..).zip(values.iter().copied()))
    }

    fn values_of(series: &Series, weight: f64) -> Vec<f64> {
        smoothed(series, weight).map(|(_, value)| value).collect()
    }

    #[test]
    fn the_average_is_the_published_one() {
        // Each earlier value counts w^(½ · distance · 1000 ÷ range) as much.
        let points: Vec<(i64, f64)> = (0..60_i32).map(|at| (i64::from(at * at), f64::from(at % 7))).collect();
        let last = 59.0 * 59.0;
        for (weight, read) in
            [(0.5, values_of(&placed(points.clone()), 0.5)), (0.97, values_of(&placed(points.clone()), 0.97))]
        {
            for (at, (step, _)) in points.iter().enumerate() {
                let counts = |from: i64| f64::sqrt(weight).powf(distance(from, *step) * 1000.0 / last);
                let sum: f64 = points[..=at].iter().map(|(from, value)| counts(*from) * value).sum();
                let all: f64 = points[..=at].iter().map(|(from, _)| counts(*from)).sum();
                assert!((read[at] - sum / all).abs() < 1e-9, "{weight} {at}");
            }
        }
    }

    #[test]
    fn a_sparse_curve_is_not_drawn_towards_its_past() {
        let validation = placed([(0, 2.3), (200, 1.1), (400, 0.6), (600, 0.4), (800, 0.3), (1000, 0.25)]);
        for (index, value) in smoothed(&validation, 0.9) {
            assert!((value - validation.value_at(index)).abs() < 1e-3, "{value}");
        }
        // A loss at every step is: noise of ±1 is made a tenth.
        let noise = series(&(0..1001).map(|step| f64::from(step % 2) * 2.0 - 1.0).collect::<Vec<_>>());
        assert!(values_of(&noise, 0.9)[500..].iter().all(|value| value.abs() < 0.1));
        // However many points there are, the same picture: ten a unit as one.
        let dense = placed((0..10_001).map(|step| (step, f64::from(u8::from(step >= 5000)))));
        let plain = placed((0..1001).map(|step| (step, f64::from(u8::from(step >= 500)))));
        let (dense, plain) = (values_of(&dense, 0.9), values_of(&plain, 0.9));
        assert!((dense[5200] - plain[520]).abs() < 0.03, "{} {}", dense[5200], plain[520]);
    }

    #[test]
    fn what_is_not_finite_does_not_count() {
        let with = values_of(&placed([(0, 4.0), (1, f64::NAN), (2, 0.0), (1000, 8.0)]), 0.5);
        let without = values_of(&placed([(0, 4.0), (2, 0.0), (1000, 8.0)]), 0.5);
        assert!(with[1].is_nan());
        assert_eq!([with[0], with[2], with[3]], without[..]);
        assert_eq!(values_of(&placed([(5, 1.0), (5, 3.0)]), 0.5), [1.0, 2.0], "at one step");
    }

    #[test]
    fn what_never_changes_stays_and_no_weight_changes_nothing() {
        let constant = series(&[0.1; 5]);
        assert!(smoothed(&constant, 0.9).all(|(_, value)| value == constant.value_at(0)));
        let values = [1.0, -2.0, 3.5];
        assert_eq!(smoothed(&series(&values), 0.0).map(|(_, value)| value).collect::<Vec<_>>(), values);
    }

    #[test]
    fn buckets_have_the_value_at_their_ends() {
        let values: Vec<f64> = (0..1000).map(|step| f64::from(step % 7)).collect();
        let series = series(&values);
        let all: Vec<f64> = smoothed(&series, 0.6).map(|(_, value)| value).collect();
        let buckets = series.by_step(i64::MIN..=i64::MAX, 10);
        let ends = at_ends(&series, &buckets, 0.6);
        assert_eq!(ends, (1..=10).map(|tenth| all[tenth * 100 - 1]).collect::<Vec<_>>());
    }
}
