//! A bar of a quota: how much of a limit is held, and how much more is asked for. Drawn as
//! SVG, because the content policy allows no style attributes. And what is said of storage, the
//! one limit that only warns.

use crate::model::{quota::Source, size::human_size};

/// One bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meter {
    /// The quota's field, for the script of the start form: `gpus`, `cpus`, `memory_bytes` …
    pub field: &'static str,
    /// What is counted: `GPUs`, `cores`, `memory`, `sessions`.
    pub label: String,
    pub used: i64,
    /// What waiting workloads (or the form) would add; hatched behind the used part.
    pub asked: i64,
    /// `None` is unlimited: then there is no bar.
    pub limit: Option<i64>,
    pub unit: Unit,
    /// Where the limit comes from: `default`, `override until 1 Dec`.
    pub source: String,
}

/// How a meter's numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    #[default]
    Count,
    Bytes,
    /// Thousandths: 1500 is `1.5`.
    Milli,
}

impl Meter {
    pub fn used_text(&self) -> String {
        self.write(self.used)
    }

    pub fn limit_text(&self) -> Option<String> {
        self.limit.map(|limit| self.write(limit))
    }

    /// The used part, in hundredths of the bar.
    pub fn used_percent(&self) -> i64 {
        self.percent(self.used)
    }

    /// The hatched part, in hundredths of the bar; it never runs past its end.
    pub fn asked_percent(&self) -> i64 {
        self.percent(self.asked).min(100 - self.used_percent())
    }

    /// Whether so little is left that the bar changes its colour.
    pub fn is_tight(&self) -> bool {
        self.limit.is_some_and(|limit| limit > 0 && self.used_percent() >= 90)
    }

    fn percent(&self, value: i64) -> i64 {
        match self.limit {
            Some(limit) if limit > 0 => {
                let hundredths = i128::from(value.max(0)) * 100 / i128::from(limit);
                i64::try_from(hundredths.min(100)).expect("at most 100")
            }
            _ => 0,
        }
    }

    fn write(&self, value: i64) -> String {
        match self.unit {
            Unit::Count => value.to_string(),
            Unit::Bytes => human_size(value),
            Unit::Milli if value % 1000 / 100 == 0 => (value / 1000).to_string(),
            Unit::Milli => format!("{}.{}", value / 1000, value % 1000 / 100),
        }
    }
}

/// A home folder that is nearly as large as it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageNote {
    /// `warn` or `bad`, as notes are drawn.
    pub class: &'static str,
    pub sentence: String,
}

impl StorageNote {
    /// From 80 % on, and more urgently from 95 % on. Nothing is stopped for it.
    #[must_use]
    pub fn new(used: i64, limit: i64, source: &Source) -> Option<Self> {
        let percent = i128::from(used.max(0)) * 100 / i128::from(limit.max(1));
        let class = match percent {
            ..80 => return None,
            80..95 => "warn",
            _ => "bad",
        };
        let (held, allowed) = (human_size(used), human_size(limit));
        let sentence = if used <= limit {
            format!(
                "Your home folder uses {held} of your {allowed} ({source}), which is {percent} %. Delete or move files \
                 that you no longer need."
            )
        } else {
            format!(
                "Your home folder uses {held}; your limit is {allowed} ({source}). Nothing is stopped for that, but \
                 delete or move files that you no longer need."
            )
        };
        Some(Self { class, sentence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_warns_at_80_and_95_percent() {
        let gib = |count: i64| count << 30;
        for (used, class) in [(79, None), (80, Some("warn")), (94, Some("warn")), (95, Some("bad")), (101, Some("bad"))]
        {
            let note = StorageNote::new(gib(used), gib(100), &Source::Default);
            assert_eq!(note.map(|note| note.class), class, "{used}");
        }
        assert_eq!(StorageNote::new(0, 0, &Source::Default), None);
        assert_eq!(StorageNote::new(1, 0, &Source::Default).unwrap().class, "bad", "none is allowed");
        let over = StorageNote::new(gib(101), gib(100), &Source::Group("vision".to_owned())).unwrap();
        assert!(over.sentence.contains("your limit is 100 GiB (group vision)"), "{over:?}");
        assert!(StorageNote::new(i64::MAX, i64::MAX, &Source::Default).unwrap().sentence.contains("100 %"));
    }

    #[test]
    fn bars_stay_in_their_frame() {
        for (used, asked, limit, expected) in [
            (2, 1, Some(4), (50, 25)),
            (4, 2, Some(4), (100, 0)),
            (9, 1, Some(4), (100, 0)),
            (0, 9, Some(4), (0, 100)),
            (1, 1, Some(0), (0, 0)),
            (1, 1, None, (0, 0)),
            (-1, 0, Some(4), (0, 0)),
            (i64::MAX, i64::MAX, Some(1), (100, 0)),
        ] {
            let meter = Meter { used, asked, limit, ..Meter::default() };
            assert_eq!((meter.used_percent(), meter.asked_percent()), expected, "{meter:?}");
        }
        assert_eq!(Meter { used: 1530, unit: Unit::Milli, ..Meter::default() }.used_text(), "1.5");
    }
}
