//! What a training that trains nothing measures: a loss that falls and levels out, an accuracy that
//! rises, a validation that is a little worse and worse again towards the end. Pure functions of
//! the step and a seed, so that the same command writes the same values.

use std::f64::consts::PI;

use super::Schedule;

/// What the curves depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// 0: without an end.
    pub steps: u64,
    pub learning_rate: f64,
    pub schedule: Schedule,
    pub seed: u64,
    pub nan_at: Option<u64>,
    pub spike_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measures {
    pub loss: f64,
    pub accuracy: f64,
    pub learning_rate: f64,
}

/// Without an end the curves are those of so many steps, and flat behind.
const DEFAULT_STEPS: u64 = 1000;

impl Plan {
    /// Of one step of the training.
    pub fn at(&self, step: u64) -> Measures {
        let done = self.done(step);
        let learning_rate = self.learning_rate_at(done);
        let mut loss = self.ideal(done) * (1.0 + 0.15 * self.noise(step, 1));
        if self.spike_at == Some(step) {
            loss *= 1000.0;
        }
        let accuracy = (self.correct(done) + 0.02 * self.noise(step, 2)).clamp(0.0, 1.0);
        self.diverged(step, Measures { loss, accuracy, learning_rate })
    }

    /// Of the validation after so many steps.
    pub fn validated(&self, step: u64) -> Measures {
        let done = self.done(step);
        // What is learned by heart helps nobody.
        let overfitted = 0.4 * (done - 0.6).max(0.0);
        let loss = (self.ideal(done) * 1.1 + overfitted) * (1.0 + 0.03 * self.noise(step, 3));
        let accuracy = (self.correct(done) - 0.03 - 0.1 * overfitted + 0.005 * self.noise(step, 4)).clamp(0.0, 1.0);
        self.diverged(step, Measures { loss, accuracy, learning_rate: self.learning_rate_at(done) })
    }

    fn diverged(&self, step: u64, measures: Measures) -> Measures {
        if self.nan_at.is_some_and(|from| from <= step) { Measures { loss: f64::NAN, ..measures } } else { measures }
    }

    /// How much of the training is behind us, from 0 to 1.
    fn done(&self, step: u64) -> f64 {
        let steps = if self.steps == 0 { DEFAULT_STEPS } else { self.steps };
        #[expect(clippy::cast_precision_loss, reason = "steps are fewer than 2⁵³")]
        let done = step as f64 / steps as f64;
        done.min(1.0)
    }

    fn ideal(&self, done: f64) -> f64 {
        // The best learning rate is 0.1; others learn more slowly.
        let pace = (-(self.learning_rate.max(1e-9) / 0.1).log10().powi(2)).exp();
        2.3 * (-6.0 * pace * done).exp() + 0.08
    }

    fn correct(&self, done: f64) -> f64 {
        (1.0 - 0.9 * (self.ideal(done) - 0.08) / 2.3) * 0.98
    }

    fn learning_rate_at(&self, done: f64) -> f64 {
        self.learning_rate
            * match self.schedule {
                Schedule::Constant => 1.0,
                Schedule::Cosine => 0.5 * (1.0 + (PI * done).cos()),
                Schedule::Step if done < 1.0 / 3.0 => 1.0,
                Schedule::Step if done < 2.0 / 3.0 => 0.1,
                Schedule::Step => 0.01,
            }
    }

    /// From -1 to 1, larger with a learning rate that is too high.
    fn noise(&self, step: u64, kind: u64) -> f64 {
        let restless = 1.0 + (self.learning_rate - 0.5).clamp(0.0, 4.0);
        let bits = mixed(mixed(self.seed ^ kind << 32) ^ step) >> 40;
        let unit = f64::from(u32::try_from(bits).unwrap_or_default()) / f64::from(1_u32 << 24);
        restless * (2.0 * unit - 1.0)
    }
}

/// The finishing step of the generator `SplitMix64`.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { steps: 1000, learning_rate: 0.1, schedule: Schedule::Step, seed: 1, nan_at: None, spike_at: None }
    }

    #[test]
    fn a_training_learns() {
        let plan = plan();
        assert!(plan.at(0).loss > 1.5 && plan.at(0).accuracy < 0.2);
        assert!(plan.at(999).loss < 0.2 && plan.at(999).accuracy > 0.9);
        assert!((0..1000).all(|step| (0.0..=1.0).contains(&plan.at(step).accuracy) && plan.at(step).loss > 0.0));
        assert!(plan.validated(1000).loss > plan.validated(600).loss, "it overfits");
        let rates: Vec<f64> = [0, 400, 900].map(|step| plan.at(step).learning_rate).to_vec();
        assert!(rates.iter().zip([0.1, 0.01, 0.001]).all(|(rate, expected)| (rate - expected).abs() < 1e-12));
        let other = Plan { seed: 2, ..plan };
        assert_eq!(plan.at(7), plan.at(7));
        assert!((plan.at(7).loss - other.at(7).loss).abs() > 0.0);
    }

    #[test]
    fn a_training_goes_wrong_on_request() {
        let wrong = Plan { nan_at: Some(5), spike_at: Some(3), ..plan() };
        assert!(wrong.at(4).loss.is_finite() && wrong.at(5).loss.is_nan() && wrong.validated(9).loss.is_nan());
        assert!(wrong.at(3).loss > 500.0 * wrong.at(4).loss);
        assert!(wrong.at(6).accuracy.is_finite());
        let endless = Plan { steps: 0, ..plan() };
        assert!(endless.at(1_000_000).loss < 0.2);
    }
}
