//! The learning rate over a training, drawn before it starts. The same formulas as the trainer's
//! (`trainer/policies.py`), with the same defaults; a test compares with what that says.

use serde::Serialize;
use serde_json::Value;

/// How many points a drawing has.
const POINTS: u32 = 101;

/// The learning rate at evenly spaced points of a training.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = LearningRateCurve)]
pub struct Curve {
    /// Position in the training, from 0 to 100 percent.
    pub percent: Vec<f64>,
    pub rate: Vec<f64>,
}

/// The curve of `learning_rate` of a configuration that was checked.
#[must_use]
pub fn curve(rate: &Value) -> Curve {
    let number = |name: &str, usual: f64| rate[name].as_f64().unwrap_or(usual);
    let policy = rate["policy"].as_str().unwrap_or("step");
    let (base, warm_up) = (number("base", 0.01), number("warm_up", 0.0));
    let percent: Vec<f64> = (0..POINTS).map(|at| f64::from(at) * 100.0 / f64::from(POINTS - 1)).collect();
    let rate = percent
        .iter()
        .map(|&at| {
            if at < warm_up {
                // The first update is not nothing: as over as many updates as there are points.
                base * (at + 1.0) / (warm_up + 1.0)
            } else {
                base * factor(policy, 100.0 * (at - warm_up) / (100.0 - warm_up), rate)
            }
        })
        .collect();
    Curve { percent, rate }
}

/// What `base` is multiplied by when `t` percent of the training (after the warm-up) are over.
fn factor(policy: &str, t: f64, rate: &Value) -> f64 {
    let number = |name: &str, usual: f64| rate[name].as_f64().unwrap_or(usual);
    match policy {
        "step" => number("gamma", 0.1).powf((t / number("step", 33.0)).floor()),
        "multistep" => {
            let given = rate["steps"].as_array();
            let steps: Vec<f64> =
                given.map_or_else(|| vec![50.0, 85.0], |steps| steps.iter().filter_map(Value::as_f64).collect());
            let passed = u8::try_from(steps.iter().filter(|step| **step <= t).count()).unwrap_or(u8::MAX);
            number("gamma", 0.5).powi(passed.into())
        }
        "exp" => number("gamma", 0.95).powf(t),
        "inv" => (1.0 + number("gamma", 0.1) * t).powf(-number("power", 0.5)),
        "poly" => (1.0 - t / 100.0).max(0.0).powf(number("power", 3.0)),
        "sigmoid" => 1.0 / (1.0 + (number("gamma", 0.1) * (t - number("step", 50.0))).min(700.0).exp()),
        "cosine" => {
            let end = number("end", 0.0);
            end + (1.0 - end) * 0.5 * (1.0 + (std::f64::consts::PI * t / 100.0).cos())
        }
        "one-cycle" => {
            let (start, peak, end) = (number("start", 0.04), number("peak", 30.0), number("end", 0.0001));
            let (low, high, part) =
                if t < peak { (start, 1.0, t / peak) } else { (1.0, end, (t - peak) / (100.0 - peak)) };
            low + (high - low) * 0.5 * (1.0 - (std::f64::consts::PI * part).cos())
        }
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(rate: &Value, percent: usize) -> f64 {
        curve(rate).rate[percent]
    }

    /// The values are what `python -m trainer lr` answers for 100 updates.
    #[test]
    fn the_same_as_the_trainer_says() {
        for (policy, rates) in [
            ("fixed", [1.0, 1.0, 1.0, 1.0]),
            ("step", [1.0, 1.0, 0.1, 0.001]),
            ("multistep", [1.0, 1.0, 0.5, 0.25]),
            ("exp", [1.0, 0.277_389_586, 0.076_944_977, 0.006_232_136]),
            ("inv", [1.0, 0.534_522_474, 0.408_248_305, 0.302_891_254]),
            ("poly", [1.0, 0.421_875, 0.125, 1e-6]),
            ("sigmoid", [0.993_307_173, 0.924_141_824, 0.5, 0.007_391_541]),
            ("cosine", [1.0, 0.853_553_414, 0.5, 0.000_246_72]),
            ("one-cycle", [0.04, 0.935_692_191, 0.811_763_704, 0.000_603_416]),
        ] {
            let rate = json!({"base": 1.0, "policy": policy});
            for (percent, expected) in [0, 25, 50, 99].into_iter().zip(rates) {
                let found = at(&rate, percent);
                assert!(
                    (found - expected).abs() < 1e-5 * expected.max(0.01),
                    "{policy} at {percent}: {found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn a_warm_up_rises_to_the_base() {
        let rate = json!({"base": 0.5, "policy": "fixed", "warm_up": 10});
        assert!(at(&rate, 0) > 0.0 && at(&rate, 5) > at(&rate, 4));
        assert!((at(&rate, 10) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn no_value_of_the_schema_is_drawn_as_nothing() {
        for policy in crate::models::schema::words("learning_rate.policy") {
            let drawn = curve(&json!({"policy": policy, "base": 100, "gamma": 1e-9, "warm_up": 99.9}));
            assert!(drawn.rate.len() == 101 && drawn.rate.iter().all(|rate| rate.is_finite()), "{policy}");
        }
    }
}
