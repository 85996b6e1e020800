//! A model in 32, 16 and 8 bits on its page: a table with a bar beside each number, each as a share
//! of the largest in its column; and what the environment could not do, in words. In the same way
//! what more devices brought to trainings like its own.

use crate::{
    model::size::human_size,
    models::{Precision, PrecisionMeasurement, Progress, Scaling},
    web::models::precisions::PrecisionsView,
};

/// What is known, and what can be asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrecisionsPart {
    /// `none`, `waiting`, `measured` or `failed`.
    pub state: &'static str,
    /// Where the page asks whether there is more of it.
    pub api: String,
    pub detail: String,
    pub progress: Option<Progress>,
    pub table: Option<PrecisionTable>,
    /// Names and titles, and whether it is the one of its training; empty where the reader may not ask.
    pub environments: Vec<(String, String, bool)>,
}

impl PrecisionsPart {
    pub fn new(model: &str, found: PrecisionsView, environments: Vec<(String, String, bool)>) -> Self {
        Self {
            state: found.state,
            api: format!("/api/v1/models/{model}/precisions"),
            detail: found.detail,
            progress: found.progress,
            table: found.measured.as_ref().map(PrecisionTable::new),
            environments,
        }
    }

    /// How many precisions are measured; a page comes again when it is another number.
    pub fn done(&self) -> String {
        self.progress.map(|progress| progress.done.to_string()).unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrecisionTable {
    /// What was measured, on what.
    pub about: String,
    pub metric: String,
    pub rows: Vec<PrecisionLine>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrecisionLine {
    pub name: String,
    pub runtime: String,
    pub size: String,
    pub latency: BarAmount,
    /// What 95 of 100 pictures do not exceed.
    pub latency_95: String,
    pub rate: BarAmount,
    pub value: BarAmount,
    /// Why there is nothing of all this.
    pub missing: Option<String>,
}

/// A number in words, and its share of the largest, of a hundred.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarAmount {
    pub text: String,
    pub width: f64,
}

impl PrecisionTable {
    pub fn new(found: &PrecisionMeasurement) -> Self {
        let value = |one: &Precision| one.metrics.get(&found.metric).copied().flatten();
        let most = |of: &dyn Fn(&Precision) -> Option<f64>| found.precisions.iter().filter_map(of).fold(0.0, f64::max);
        let latency = most(&|one| one.latency_ms);
        let rate = most(&|one| one.images_per_second);
        // A share of one is drawn as such; a loss has no largest of its own.
        let best = most(&value).max(1.0);
        let line = |one: &Precision| PrecisionLine {
            name: shown_precision(&one.precision),
            runtime: one.runtime.clone().unwrap_or_default(),
            size: one.bytes.map(|bytes| human_size(i64::try_from(bytes).unwrap_or(i64::MAX))).unwrap_or_default(),
            latency: BarAmount::new(one.latency_ms, latency, |value| format!("{} ms", short(value))),
            latency_95: one.latency_95_ms.map(|value| format!("{} ms", short(value))).unwrap_or_default(),
            rate: BarAmount::new(one.images_per_second, rate, short),
            value: BarAmount::new(value(one), best, |value| format!("{value:.4}")),
            missing: one.missing.clone(),
        };
        let cores = if found.threads == 1 { "core" } else { "cores" };
        let split = if found.split == "test" { "test" } else { "validation" };
        Self {
            about: format!(
                "{} on {} images of the {split} split, on {} CPU {cores}; throughput at batch size {}",
                found.snapshot, found.pictures, found.threads, found.batch_size
            ),
            metric: found.metric.replace('_', " "),
            rows: found.precisions.iter().map(line).collect(),
        }
    }
}

impl BarAmount {
    fn new(value: Option<f64>, most: f64, text: impl Fn(f64) -> String) -> Self {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            return Self { text: "–".to_owned(), width: 0.0 };
        };
        let width = if most > 0.0 { (value / most * 1000.0).clamp(0.0, 1000.0).round() / 10.0 } else { 0.0 };
        Self { text: text(value), width }
    }
}

/// What more devices bring.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingTable {
    /// On which devices, with how many pictures each.
    pub about: String,
    pub rows: Vec<ScalingLine>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingLine {
    pub devices: u32,
    pub rate: BarAmount,
    pub efficiency: BarAmount,
    /// Whose training it was.
    pub href: String,
    pub name: String,
}

impl ScalingTable {
    /// Nothing where there is one number of devices only.
    pub fn new(found: &Scaling) -> Option<Self> {
        let most = found.rows.iter().map(|row| row.images_per_second).fold(0.0, f64::max);
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let rows = found.rows.iter().map(|row| ScalingLine {
            devices: row.devices,
            rate: BarAmount::new(Some(row.images_per_second), most, short),
            efficiency: BarAmount::new(Some(row.efficiency), 1.0, percent),
            href: format!("/models/{}", row.model),
            name: row.name.clone(),
        });
        let about = format!("{}, {} images per device, {}", found.device, found.batch_per_device, found.precision);
        (!found.rows.is_empty()).then(|| Self { about, rows: rows.collect() })
    }
}

/// Returns the usual name of a precision of the trainer.
fn shown_precision(precision: &str) -> String {
    match precision {
        "float32" => "FP32",
        "float16" => "FP16",
        "int8" => "INT8",
        other => other,
    }
    .to_owned()
}

/// Three digits that mean something.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_shares_of_the_largest() {
        let one = |name: &str, latency: f64, accuracy: f64| Precision {
            precision: name.to_owned(),
            bytes: Some(2048),
            latency_ms: Some(latency),
            images_per_second: Some(1000.0 / latency),
            metrics: [("accuracy".to_owned(), Some(accuracy))].into(),
            ..Precision::default()
        };
        let missing = Precision { missing: Some("no".to_owned()), ..Precision::default() };
        let precisions = vec![one("float32", 4.0, 0.9), one("int8", 1.0, 0.875), missing];
        let metric = "accuracy".to_owned();
        let table = PrecisionTable::new(&PrecisionMeasurement {
            threads: 1,
            metric,
            precisions,
            ..PrecisionMeasurement::default()
        });
        let widths: Vec<[f64; 3]> =
            table.rows.iter().map(|row| [row.latency.width, row.rate.width, row.value.width]).collect();
        assert_eq!(widths, [[100.0, 25.0, 90.0], [25.0, 100.0, 87.5], [0.0, 0.0, 0.0]]);
        let [whole, _, missing] = &table.rows[..] else { panic!("{table:?}") };
        assert_eq!((whole.latency.text.as_str(), whole.rate.text.as_str()), ("4.00 ms", "250"));
        assert_eq!((whole.value.text.as_str(), missing.value.text.as_str()), ("0.9000", "–"));
        assert!(table.about.contains("on 1 CPU core;"), "{}", table.about);
    }
}
