//! Columns of a curve: steps and values in as few bytes as hold them, widened once by the first
//! that needs it, and searched by step. What a curve makes of them is `series`' business.

use std::ops::Range;

/// Steps in four bytes while they fit.
#[derive(Clone, Debug)]
pub(super) enum Steps {
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
        Self::Narrow(Vec::new())
    }
}

impl Steps {
    pub(super) fn push(&mut self, step: i64) {
        match (&mut *self, u32::try_from(step)) {
            (Self::Narrow(steps), Ok(step)) => push(steps, step),
            (Self::Narrow(steps), Err(_)) => {
                let mut wide: Vec<i64> = steps.iter().map(|step| i64::from(*step)).collect();
                wide.push(step);
                *self = Self::Wide(wide);
            }
            (Self::Wide(steps), _) => push(steps, step),
        }
    }

    pub(super) fn get(&self, index: usize) -> i64 {
        match self {
            Self::Narrow(steps) => steps[index].into(),
            Self::Wide(steps) => steps[index],
        }
    }

    /// The first index of a stretch in which steps never fall that has `step` or a higher one.
    pub(super) fn first_at(&self, step: i64, range: Range<usize>) -> usize {
        let start = range.start;
        start
            + match self {
                Self::Narrow(steps) => steps[range].partition_point(|one| i64::from(*one) < step),
                Self::Wide(steps) => steps[range].partition_point(|one| *one < step),
            }
    }

    /// The same, found sooner where it is near the stretch's beginning: looked for ever twice as far.
    pub(super) fn first_near(&self, step: i64, range: Range<usize>) -> usize {
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

    pub(super) fn get(&self, index: usize) -> f64 {
        match self {
            Self::Single(values) => values[index].into(),
            Self::Double(values) => values[index],
        }
    }
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
    if column.len() == column.capacity() {
        column.reserve_exact((column.len() / 4).max(16));
    }
    column.push(value);
}
