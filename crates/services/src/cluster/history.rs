//! Readings of a minute, summed up until it is over. Nothing here knows where they go.

use std::collections::HashMap;

use lyceum_db::gpus::{Point, Span};
use lyceum_model::{Timestamp, gpus::Reading};

/// The readings of the minutes that are not over yet.
#[derive(Debug, Default)]
pub struct Minutes(HashMap<(String, Timestamp), Sum>);

#[derive(Debug, Default)]
struct Sum {
    readings: i64,
    /// When the last one was: an answer is looked at more often than it changes.
    last: Timestamp,
    utilisation: i64,
    memory_bytes: i64,
    milliwatts: i64,
    celsius: Option<i64>,
}

impl Minutes {
    /// Counts a reading of that moment, once. A GPU whose use is not measured has no history.
    pub fn add(&mut self, uuid: &str, at: Timestamp, reading: &Reading) {
        let Some(utilisation) = reading.utilisation else { return };
        let sum = self.0.entry((uuid.to_owned(), Span::Minute.begin(at))).or_default();
        if sum.readings > 0 && at <= sum.last {
            return;
        }
        sum.readings += 1;
        sum.last = at;
        sum.utilisation += utilisation;
        sum.memory_bytes = sum.memory_bytes.saturating_add(reading.memory_used_bytes.unwrap_or(0));
        sum.milliwatts = sum.milliwatts.saturating_add(reading.power_milliwatts.unwrap_or(0));
        sum.celsius = sum.celsius.max(reading.temperature_celsius);
    }

    /// The minutes that are over, in order; they are not kept.
    #[expect(clippy::cast_precision_loss, reason = "means are approximate by nature")]
    pub fn take(&mut self, now: Timestamp) -> Vec<Point> {
        let current = Span::Minute.begin(now);
        let over = self.0.extract_if(|(_, at), _| *at < current);
        let mut points: Vec<Point> = over
            .map(|((uuid, at), sum)| {
                let mean = |total: i64| total as f64 / sum.readings as f64;
                Point {
                    uuid,
                    at,
                    readings: sum.readings,
                    utilisation: mean(sum.utilisation),
                    memory_bytes: mean(sum.memory_bytes),
                    milliwatts: mean(sum.milliwatts),
                    celsius: sum.celsius,
                }
            })
            .collect();
        points.sort_by(|one, other| (one.at, &one.uuid).cmp(&(other.at, &other.uuid)));
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_minutes_that_are_over() {
        let mut minutes = Minutes::default();
        let at = |seconds: i64| Timestamp(seconds * 1000);
        let reading = |utilisation, celsius| Reading {
            utilisation,
            memory_used_bytes: Some(100),
            temperature_celsius: celsius,
            ..Reading::default()
        };
        minutes.add("a", at(60), &reading(Some(10), Some(40)));
        minutes.add("a", at(60), &reading(Some(10), Some(40)));
        minutes.add("a", at(65), &reading(Some(90), Some(60)));
        minutes.add("a", at(119), &reading(Some(50), None));
        minutes.add("b", at(70), &reading(None, Some(30)));
        assert_eq!(minutes.take(at(119)), []);
        minutes.add("a", at(120), &reading(Some(1), None));
        let points = minutes.take(at(121));
        let [point] = points.as_slice() else { panic!("{points:?}") };
        assert_eq!((point.at, point.readings, point.celsius), (at(60), 3, Some(60)), "one answer counts once");
        assert!((point.utilisation - 50.0).abs() < 1e-9 && (point.memory_bytes - 100.0).abs() < 1e-9);
        assert_eq!(minutes.take(at(180)).len(), 1);
        assert_eq!(minutes.take(at(999)), []);
    }
}
