//! Columns of a curve: steps and values in as few bytes as hold them, widened once by the first
//! that needs it, and searched by step. Steps of the same width, as most programs write them, take
//! none at all. What a curve makes of them is `series`' business.

use std::ops::Range;

/// Steps in no bytes while each is as far from the one before, and in four while they fit.
#[derive(Clone, Debug)]
pub(super) enum Steps {
    Even { first: u32, width: u32, count: usize },
    Narrow(Vec<u32>),
    Wide(Vec<i64>),
}

/// Values in four bytes while that loses nothing.
#[derive(Clone, Debug)]
pub(super) enum Values {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl Default for Steps {
    fn default() -> Self {
        Self::Even { first: 0, width: 0, count: 0 }
    }
}

impl Steps {
    pub(super) fn push(&mut self, step: i64) {
        match (&mut *self, u32::try_from(step)) {
            (Self::Even { first, count: count @ 0, .. }, Ok(step)) => (*first, *count) = (step, 1),
            (Self::Even { first, width, count: count @ 1 }, Ok(step)) if *first <= step => {
                (*width, *count) = (step - *first, 2);
            }
            (Self::Even { first, width, count }, Ok(_)) if step == even(*first, *width, *count) => *count += 1,
            (Self::Even { .. }, _) => {
                *self = self.narrow();
                self.push(step);
            }
            (Self::Narrow(steps), Ok(step)) => push(steps, step),
            (Self::Narrow(_), Err(_)) => {
                self.widen();
                self.push(step);
            }
            (Self::Wide(steps), _) => push(steps, step),
        }
    }

    /// Puts a step before the one that is at `place`.
    pub(super) fn insert(&mut self, place: usize, step: i64) {
        match (&mut *self, u32::try_from(step)) {
            (Self::Even { .. }, _) => {
                *self = self.narrow();
                self.insert(place, step);
            }
            (Self::Narrow(steps), Ok(step)) => insert(steps, place, step),
            (Self::Narrow(_), Err(_)) => {
                self.widen();
                self.insert(place, step);
            }
            (Self::Wide(steps), _) => insert(steps, place, step),
        }
    }

    fn widen(&mut self) {
        if let Self::Narrow(steps) = self {
            *self = Self::Wide(steps.iter().map(|step| i64::from(*step)).collect());
        }
    }

    /// The same steps, each written down.
    fn narrow(&self) -> Self {
        let Self::Even { count, .. } = *self else { return self.clone() };
        Self::Narrow((0..count).filter_map(|index| u32::try_from(self.get(index)).ok()).collect())
    }

    pub(super) fn get(&self, index: usize) -> i64 {
        match self {
            Self::Even { first, width, .. } => even(*first, *width, index),
            Self::Narrow(steps) => steps[index].into(),
            Self::Wide(steps) => steps[index],
        }
    }

    /// The first index of a stretch in which steps never fall that has `step` or a higher one.
    pub(super) fn first_at(&self, step: i64, range: Range<usize>) -> usize {
        let start = range.start;
        start
            + match self {
                Self::Even { first, width, .. } => {
                    let below = step.saturating_sub((*first).into()).max(0).cast_unsigned();
                    // Steps that are all the same lie before the one asked for, or none does.
                    let index =
                        below.checked_div(u64::from(*width)).map_or(if below == 0 { 0 } else { u64::MAX }, |index| {
                            index + u64::from(!below.is_multiple_of(u64::from(*width)))
                        });
                    usize::try_from(index).unwrap_or(usize::MAX).clamp(start, range.end.max(start)) - start
                }
                Self::Narrow(steps) => steps[range].partition_point(|one| i64::from(*one) < step),
                Self::Wide(steps) => steps[range].partition_point(|one| *one < step),
            }
    }

    /// The same, found sooner where it is near the stretch's beginning: looked for ever twice as far.
    pub(super) fn first_near(&self, step: i64, range: Range<usize>) -> usize {
        if matches!(self, Self::Even { .. }) {
            return self.first_at(step, range);
        }
        let mut reach = 64;
        while range.start + reach < range.end && self.get(range.start + reach) < step {
            reach *= 2;
        }
        let end = range.end.min(range.start + reach + 1);
        self.first_at(step, range.start..end)
    }

    /// The first index that has a step higher than `step`.
    pub(super) fn first_behind(&self, step: i64, range: Range<usize>) -> usize {
        if step == i64::MAX { range.end } else { self.first_at(step + 1, range) }
    }
}

impl Values {
    /// What the finite ones of a stretch come to: where the least and the greatest are, how many, and their sum.
    pub(super) fn extremes(&self, range: Range<usize>) -> Option<(usize, usize, u32, f64)> {
        let start = range.start;
        match self {
            Self::Single(values) => extremes(start, &values[range]),
            Self::Double(values) => extremes(start, &values[range]),
        }
    }
}

fn extremes<T: Copy + Into<f64>>(start: usize, values: &[T]) -> Option<(usize, usize, u32, f64)> {
    let (mut least, mut greatest) = ((0, f64::INFINITY), (0, f64::NEG_INFINITY));
    let (mut finite, mut sum) = (0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let value: f64 = (*value).into();
        if !value.is_finite() {
            continue;
        }
        if value < least.1 {
            least = (index, value);
        }
        if value > greatest.1 {
            greatest = (index, value);
        }
        finite += 1;
        sum += value;
    }
    (finite > 0).then_some((start + least.0, start + greatest.0, finite, sum))
}

impl Default for Values {
    fn default() -> Self {
        Self::Single(Vec::new())
    }
}

impl Values {
    pub(super) fn push(&mut self, value: f64) {
        match (&mut *self, single(value)) {
            (Self::Single(values), Some(value)) => push(values, value),
            (Self::Single(values), None) => {
                let mut wide: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
                wide.push(value);
                *self = Self::Double(wide);
            }
            (Self::Double(values), _) => push(values, value),
        }
    }

    /// Puts a value before the one that is at `place`.
    pub(super) fn insert(&mut self, place: usize, value: f64) {
        match (&mut *self, single(value)) {
            (Self::Single(values), Some(value)) => insert(values, place, value),
            (Self::Single(values), None) => {
                *self = Self::Double(values.iter().map(|value| f64::from(*value)).collect());
                self.insert(place, value);
            }
            (Self::Double(values), _) => insert(values, place, value),
        }
    }

    pub(super) fn get(&self, index: usize) -> f64 {
        match self {
            Self::Single(values) => values[index].into(),
            Self::Double(values) => values[index],
        }
    }
}

/// The step at a place of those that have one width.
fn even(first: u32, width: u32, index: usize) -> i64 {
    i64::from(first).saturating_add(i64::from(width).saturating_mul(i64::try_from(index).unwrap_or(i64::MAX)))
}

/// The same value in 32 bits, where nothing is lost by that.
#[expect(clippy::cast_possible_truncation, clippy::float_cmp, reason = "the very same value, or none")]
pub(super) fn single(value: f64) -> Option<f32> {
    let single = value as f32;
    (value.is_nan() || f64::from(single) == value).then_some(single)
}

/// Adds to a column that grows by a quarter, not to twice its size: there are many of them,
/// and most do not grow any more.
pub(super) fn push<T>(column: &mut Vec<T>, value: T) {
    insert(column, column.len(), value);
}

/// The same before the value that is at `place`.
pub(super) fn insert<T>(column: &mut Vec<T>, place: usize, value: T) {
    if column.len() == column.capacity() {
        column.reserve_exact((column.len() / 4).max(16));
    }
    column.insert(place, value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Steps that never fall: mostly of one width, from anywhere up to the largest.
    fn steps() -> impl Strategy<Value = Vec<i64>> {
        let first = prop_oneof![8 => 0_i64..50, 1 => -5_i64..0, 1 => 4_294_967_200_i64..4_294_967_400];
        let grown = prop_oneof![Just(0_i64), 1_i64..70];
        let odd = proptest::option::of((0_usize..60, 0_i64..9));
        (first, grown, 1_usize..90, odd).prop_map(|(first, width, count, odd)| {
            let mut step = first;
            let step = (0..count).map(|index| {
                let here = step;
                step += width + odd.filter(|(at, _)| *at == index).map_or(0, |(_, more)| more);
                here
            });
            step.collect()
        })
    }

    proptest! {
        #[test]
        fn steps_and_values_are_put_between_others(
            all in proptest::collection::vec((any::<usize>(), prop_oneof![8 => -3_i64..99, 1 => any::<i64>()], any::<f64>()), 1..40),
        ) {
            let (mut steps, mut values) = (Steps::default(), Values::default());
            let (mut expected, mut numbers) = (Vec::new(), Vec::new());
            for (place, step, value) in all {
                let place = place % (expected.len() + 1);
                expected.insert(place, step);
                numbers.insert(place, value.to_bits());
                steps.insert(place, step);
                values.insert(place, value);
            }
            prop_assert_eq!((0..expected.len()).map(|index| steps.get(index)).collect::<Vec<_>>(), expected);
            let found: Vec<u64> = (0..numbers.len()).map(|index| values.get(index).to_bits()).collect();
            prop_assert!(found.iter().zip(&numbers).all(|(one, other)| one == other || f64::from_bits(*other).is_nan()));
        }

        #[test]
        fn however_steps_are_kept_they_are_found(steps in steps(), cut in 0_usize..90, moved in -3_i64..4) {
            let mut column = Steps::default();
            for step in &steps {
                column.push(*step);
            }
            prop_assert!(steps.iter().enumerate().all(|(index, step)| column.get(index) == *step));
            let cut = cut.min(steps.len());
            for asked in steps.iter().map(|step| step + moved).chain([i64::MIN, i64::MAX, 0]) {
                for range in [0..steps.len(), cut..steps.len(), 0..cut] {
                    let expected = range.start + steps[range.clone()].partition_point(|step| *step < asked);
                    prop_assert_eq!(column.first_at(asked, range.clone()), expected);
                    prop_assert_eq!(column.first_near(asked, range), expected);
                }
            }
        }
    }
}
