//! A test of storage as a page: the verdicts, the file system, and the rates drawn beside earlier tests of the same file
//! system and the fastest training on the dataset. Whether a rate is too low is the model's to say.

use askama::Template;

use super::{DiagnosticsRow, Moment, RunningTest};
use crate::{
    diagnostics::PastStorage,
    model::{
        Timestamp,
        diagnostics::{FileSystem, Finding, Judgement, StorageMeasurement, StorageSubject, median},
        size::human_size,
    },
    web::page::{Layout, filters},
};

/// How many earlier tests the table lists.
const MAX_LISTED: usize = 20;

/// One test.
#[derive(Debug, Template)]
#[template(path = "diagnostics/storage.html")]
pub struct ShowStorage {
    pub layout: Layout,
    pub row: DiagnosticsRow,
    pub subject: StorageSubject,
    pub detail: String,
    pub running: Option<RunningTest>,
    pub tested: Option<TestedStorage>,
    pub has_results: bool,
}

impl ShowStorage {
    /// Title and unit of each rate.
    pub fn columns() -> Vec<(&'static str, &'static str)> {
        MEASURES.iter().map(|(title, unit, _)| (*title, *unit)).collect()
    }
}

/// What came of a test.
#[derive(Clone, Debug)]
pub struct TestedStorage {
    pub findings: Vec<Finding>,
    pub file_system: FileSystem,
    pub free: String,
    pub size: String,
    pub measures: Vec<StorageRate>,
    /// Earlier tests, the latest first: when, and their numbers.
    pub past: Vec<(Moment, Vec<String>)>,
}

/// One rate and what it is compared with.
#[derive(Clone, Debug)]
pub struct StorageRate {
    pub title: &'static str,
    pub unit: &'static str,
    pub bars: Vec<StorageBar>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageBar {
    pub label: String,
    pub text: String,
    /// From 0 to 100.
    pub width: String,
    pub class: &'static str,
}

type Measure = (&'static str, &'static str, fn(&StorageMeasurement) -> Option<f64>);

const MEASURES: [Measure; 6] = [
    ("Writing", "MB/s", |one| one.write_mb_s),
    ("Reading", "MB/s", |one| one.read_mb_s),
    ("Files created", "per second", |one| one.create_per_s),
    ("Files looked up", "per second", |one| one.stat_per_s),
    ("Files read", "per second", |one| one.read_files_per_s),
    ("Dataset", "images/s", |one| one.images_per_second),
];

impl TestedStorage {
    /// `None` if nothing was measured.
    pub fn new(judged: &Judgement, past: &[PastStorage], now: Timestamp) -> Option<Self> {
        let storage = judged.storage.as_ref()?;
        let size = |bytes: u64| human_size(i64::try_from(bytes).unwrap_or(i64::MAX));
        let rate = |(title, unit, of): &Measure| {
            let own = of(&storage.measurement)?;
            let earlier: Vec<f64> = past.iter().filter_map(|one| of(&one.measurement)).collect();
            let label = match earlier.len() {
                1 => "1 earlier test".to_owned(),
                count => format!("median of {count} earlier tests"),
            };
            let mut compared = vec![("this test".to_owned(), own, "split0")];
            compared.extend(median(&earlier).map(|usual| (label, usual, "split1")));
            let training = storage.training.as_ref().filter(|_| *title == "Dataset");
            compared
                .extend(training.map(|one| (format!("training of {}", one.model), one.images_per_second, "split2")));
            Some(StorageRate { title, unit, bars: bars(compared) })
        };
        let listed = |one: &PastStorage| {
            let numbers = MEASURES.iter().map(|(_, _, of)| of(&one.measurement).map_or_else(|| "–".to_owned(), number));
            (Moment::ago(one.ended_at, now), numbers.collect())
        };
        Some(Self {
            findings: judged.general.clone(),
            free: size(storage.file_system.free_bytes),
            size: size(storage.file_system.size_bytes),
            file_system: storage.file_system.clone(),
            measures: MEASURES.iter().filter_map(rate).collect(),
            past: past.iter().take(MAX_LISTED).map(listed).collect(),
        })
    }
}

fn bars(compared: Vec<(String, f64, &'static str)>) -> Vec<StorageBar> {
    let most = compared.iter().map(|(_, rate, _)| *rate).fold(f64::MIN_POSITIVE, f64::max);
    let bar = |(label, rate, class): (String, f64, &'static str)| StorageBar {
        label,
        text: number(rate),
        width: format!("{:.1}", 100.0 * (rate / most).clamp(0.0, 1.0)),
        class,
    };
    compared.into_iter().map(bar).collect()
}

fn number(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_to_one_scale() {
        let drawn = bars(vec![("a".to_owned(), 50.0, "split0"), ("b".to_owned(), 200.0, "split1")]);
        let widths: Vec<&str> = drawn.iter().map(|bar| bar.width.as_str()).collect();
        assert_eq!((widths, drawn[1].text.as_str()), (vec!["25.0", "100.0"], "200"));
        assert_eq!(bars(vec![("a".to_owned(), 0.0, "split0")])[0].width, "0.0");
    }
}
