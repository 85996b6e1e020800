//! What came to a run between two of its revisions, as whoever draws its curves needs it: the new
//! points of each curve, or that too much has changed to be told one by one.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeSeq};

use lyceum_curves::{Item, Store, log::Entry, tail::is_checkpoint};

/// More points are not told one by one.
const MAX_POINTS: usize = 20_000;

/// A part of a run's growth.
#[derive(Clone, Debug)]
pub struct Delta {
    /// The run's revision before and after it.
    pub since: u64,
    pub revision: u64,
    pub what: DeltaKind,
    /// Something was written that the training can go on from.
    pub has_checkpoints: bool,
}

#[derive(Clone, Debug)]
pub enum DeltaKind {
    /// None, where only places or words of what was passed over came.
    Points(Vec<CurveGrowth>),
    /// Ask the curves anew.
    Reset,
}

/// The new points of one curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurveGrowth {
    pub run: String,
    pub tag: String,
    pub points: Vec<New>,
}

/// `[step, wall_time, value]`, or `[step, wall_time, null, "NaN"]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct New {
    pub step: i64,
    pub wall_time: f64,
    pub value: f64,
}

impl Serialize for New {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let word = word(self.value);
        let mut list = serializer.serialize_seq(Some(3 + usize::from(word.is_some())))?;
        list.serialize_element(&self.step)?;
        list.serialize_element(&self.wall_time)?;
        // Of what is no number JSON makes null.
        list.serialize_element(&self.value)?;
        if let Some(word) = word {
            list.serialize_element(word)?;
        }
        list.end()
    }
}

/// What a value that is not finite is called.
pub(super) fn word(value: f64) -> Option<&'static str> {
    match value {
        value if value.is_nan() => Some("NaN"),
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ => None,
    }
}

/// A delta in the making: fields of the finished one, and what has come so far.
#[derive(Debug)]
pub(super) struct DeltaBuilder {
    since: u64,
    count: usize,
    is_reset: bool,
    has_checkpoints: bool,
    curves: BTreeMap<(String, Vec<u8>), Vec<New>>,
}

impl DeltaBuilder {
    pub fn new(since: u64) -> Self {
        Self { since, count: 0, is_reset: false, has_checkpoints: false, curves: BTreeMap::new() }
    }

    pub fn take(&mut self, entry: &Entry<'_>) {
        let (run, item) = match entry {
            Entry::Item { run, item } => (run, item),
            Entry::Place { file, .. } => {
                self.has_checkpoints |= is_checkpoint(file);
                return;
            }
        };
        match item {
            Item::Scalar { tag, step, wall_time, value } if !self.is_reset => {
                self.count += 1;
                let points = self.curves.entry(((*run).to_owned(), (*tag).to_owned())).or_default();
                // What was visible before is past: a writer went back.
                let goes_back = points.last().is_some_and(|last: &New| *step < last.step);
                points.push(New { step: *step, wall_time: *wall_time, value: *value });
                if goes_back || self.count > MAX_POINTS {
                    self.reset();
                }
            }
            Item::Start { .. } => self.reset(),
            Item::Scalar { .. } | Item::Begin | Item::Hparams(_) | Item::Skipped(_) => {}
        }
    }

    pub fn reset(&mut self) {
        self.is_reset = true;
        self.curves.clear();
    }

    /// `store` tells whether a curve went back with its first new point.
    pub fn finish(mut self, revision: u64, store: Option<&Store>) -> Delta {
        let goes_back = |run: &str, tag: &[u8], new: usize| {
            let series = store?.runs.get(run)?.curve(std::str::from_utf8(tag).ok()?)?;
            let first = series.len().checked_sub(new).filter(|first| *first > 0)?;
            (series.get(first).step < series.get(first - 1).step).then_some(())
        };
        if self.curves.iter().any(|((run, tag), points)| goes_back(run, tag, points.len()).is_some()) {
            self.reset();
        }
        let what = if self.is_reset {
            DeltaKind::Reset
        } else {
            let grown = self.curves.into_iter().map(|((run, tag), points)| {
                let tag = String::from_utf8_lossy(&tag).into_owned();
                CurveGrowth { run, tag, points }
            });
            DeltaKind::Points(grown.collect())
        };
        Delta { since: self.since, revision, what, has_checkpoints: self.has_checkpoints }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(step: i64, value: f64) -> Entry<'static> {
        Entry::Item { run: ".", item: Item::Scalar { tag: b"loss", step, wall_time: 1.5, value } }
    }

    fn gathered(entries: &[Entry<'_>]) -> DeltaKind {
        let mut delta = DeltaBuilder::new(0);
        for entry in entries {
            delta.take(entry);
        }
        delta.finish(9, None).what
    }

    #[test]
    fn points_are_told_in_short() {
        let DeltaKind::Points(grown) = gathered(&[scalar(1, 0.5), scalar(2, f64::NAN), scalar(3, f64::NEG_INFINITY)])
        else {
            panic!("these are points")
        };
        let json = serde_json::to_string(&grown).unwrap();
        let points = r#"[[1,1.5,0.5],[2,1.5,null,"NaN"],[3,1.5,null,"-Infinity"]]"#;
        assert_eq!(json, format!(r#"[{{"run":".","tag":"loss","points":{points}}}]"#));
    }

    #[test]
    fn who_goes_back_or_says_too_much_is_asked_anew() {
        let start = Entry::Item { run: ".", item: Item::Start { step: 1 } };
        assert!(matches!(gathered(&[scalar(2, 0.0), scalar(1, 0.0), scalar(2, 0.0)]), DeltaKind::Reset));
        assert!(matches!(gathered(&[start, scalar(2, 0.0)]), DeltaKind::Reset));
        let many: Vec<_> = (0..=MAX_POINTS).map(|step| scalar(i64::try_from(step).unwrap(), 0.0)).collect();
        assert!(matches!(gathered(&many), DeltaKind::Reset));
        assert!(matches!(gathered(&many[1..]), DeltaKind::Points(_)));
    }
}
