//! Smoothing, on every point of a curve before anything is thinned out: an exponential moving
//! average without the bias of its beginning, as TensorBoard draws it (`classicSmoothing`).
//! What is not finite passes through and does not count; a curve that never changes stays.

use std::ops::Range;

use super::series::{Bucket, Series};

/// The smoothed value at the last point of each bucket. `weight` is from 0, which changes
/// nothing, to below 1.
pub fn at_ends(series: &Series, buckets: &[Bucket], weight: f64) -> Vec<f64> {
    let mut ends: Vec<(usize, usize)> =
        buckets.iter().map(|bucket| bucket.end).enumerate().map(|(at, end)| (end, at)).collect();
    ends.sort_unstable();
    let mut wanted = ends.into_iter().peekable();
    let mut found = vec![f64::NAN; buckets.len()];
    for (index, value) in smoothed(series, weight) {
        while let Some((_, at)) = wanted.next_if(|(end, _)| *end == index) {
            found[at] = value;
        }
    }
    found
}

/// Every visible point's index and smoothed value.
pub fn smoothed(series: &Series, weight: f64) -> impl Iterator<Item = (usize, f64)> {
    let visible = series.visible();
    let is_constant = is_constant(series, &visible);
    let (mut average, mut share) = (0.0, 1.0);
    visible.into_iter().flatten().map(move |index| {
        let value = series.value_at(index);
        if is_constant || !value.is_finite() {
            return (index, value);
        }
        average = average * weight + (1.0 - weight) * value;
        // What the beginning, which is 0, still has of the average.
        share *= weight;
        (index, average / (1.0 - share))
    })
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
    use crate::curves::Point;

    fn series(values: &[f64]) -> Series {
        let mut series = Series::default();
        for (step, value) in (0..).zip(values) {
            series.push(Point { step, wall_time: 0.0, value: *value, attempt: 0 });
        }
        series
    }

    #[test]
    fn the_average_is_the_published_one() {
        // last = w·last + (1−w)·x, n += 1, y = last ÷ (1 − wⁿ), by hand for w = 0.5.
        let read: Vec<f64> = smoothed(&series(&[4.0, f64::NAN, 0.0, 8.0]), 0.5).map(|(_, value)| value).collect();
        assert_eq!(read[0], 4.0);
        assert!(read[1].is_nan());
        assert!((read[2] - 1.0 / 0.75).abs() < 1e-12);
        assert!((read[3] - 4.5 / 0.875).abs() < 1e-12);
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
