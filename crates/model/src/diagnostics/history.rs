//! The numbers of a run that later runs are compared with: a GPU against its own past. One run says little, so a
//! comparison needs a few of them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// With fewer past runs there is nothing to compare with.
pub const MIN_PAST_RUNS: usize = 3;

/// What a run measured of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = DiagnosticsMeasurement)]
pub struct Measurement {
    pub float32_tflops: Option<f64>,
    pub bfloat16_tflops: Option<f64>,
    pub to_device_gb_s: Option<f64>,
    pub to_host_gb_s: Option<f64>,
}

impl Measurement {
    /// Whether there is any number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The medians of past runs, where there were enough.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Baseline {
    pub runs: usize,
    pub median: Measurement,
}

impl Baseline {
    /// `None` of a number means that too few runs had it.
    #[must_use]
    pub fn of(past: &[Measurement]) -> Self {
        let of = |number: fn(&Measurement) -> Option<f64>| {
            let numbers: Vec<f64> = past.iter().filter_map(number).collect();
            if numbers.len() < MIN_PAST_RUNS { None } else { median(&numbers) }
        };
        Self {
            runs: past.len(),
            median: Measurement {
                float32_tflops: of(|one| one.float32_tflops),
                bfloat16_tflops: of(|one| one.bfloat16_tflops),
                to_device_gb_s: of(|one| one.to_device_gb_s),
                to_host_gb_s: of(|one| one.to_host_gb_s),
            },
        }
    }
}

/// Returns the number in the middle, or the mean of the two there; `None` of nothing.
#[must_use]
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.iter().copied().filter(|number| number.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied()?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_need_enough_runs() {
        let run = |rate| Measurement { float32_tflops: Some(rate), ..Measurement::default() };
        assert_eq!(Baseline::of(&[run(1.0), run(2.0)]).median, Measurement::default());
        let three = Baseline::of(&[run(9.0), run(1.0), run(2.0)]);
        assert_eq!((three.runs, three.median.float32_tflops, three.median.to_host_gb_s), (3, Some(2.0), None));
        assert_eq!((median(&[]), median(&[4.0, 1.0]), median(&[f64::NAN, 3.0])), (None, Some(2.5), Some(3.0)));
    }
}
