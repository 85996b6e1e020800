//! Since when GPUs have computed next to nothing, by the means of minutes. A gap in them proves
//! nothing: whoever was not looked at may have worked.

use std::collections::HashMap;

use lyceum_db::gpus::{Point, Span};
use lyceum_model::Timestamp;

/// A GPU that computes less of the time than this (percent) rests.
const RESTING: f64 = 5.0;

/// So long nobody may have looked (seconds).
const GAP: i64 = 180;

#[derive(Debug, Default)]
pub struct IdleGpus(HashMap<String, IdlePeriod>);

/// Describes a period without work.
#[derive(Clone, Copy, Debug)]
struct IdlePeriod {
    since: Timestamp,
    to: Timestamp,
}

impl IdleGpus {
    /// Takes note of a minute. Those of one GPU come in their order.
    pub fn note(&mut self, point: &Point) {
        let end = point.at.plus_seconds(Span::Minute.seconds());
        let known = self.0.get(&point.uuid).filter(|stretch| point.at.seconds_since(stretch.to) < GAP);
        let since = match known {
            _ if point.utilisation >= RESTING => end,
            Some(stretch) => stretch.since,
            None => point.at,
        };
        self.0.insert(point.uuid.clone(), IdlePeriod { since, to: end });
    }

    /// Since when a GPU rests, and was seen to for so many seconds from `from` on. The minute that
    /// goes on proves nothing: it may be full of work.
    pub fn since(&self, uuid: &str, from: Timestamp, seconds: i64) -> Option<Timestamp> {
        let stretch = self.0.get(uuid)?;
        let since = stretch.since.max(from);
        (seconds <= stretch.to.seconds_since(since)).then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_gaps_begin_anew() {
        let minute = |number: i64| Timestamp(number * 60_000);
        let mut rest = IdleGpus::default();
        let mut note = |number, utilisation| {
            rest.note(&point(minute(number), utilisation));
            rest.since("a", Timestamp(0), 0).unwrap()
        };
        assert_eq!(note(1, 0.0), minute(1));
        assert_eq!(note(2, 4.9), minute(1));
        assert_eq!(note(3, 5.0), minute(4), "it worked until then");
        assert_eq!(note(4, 0.0), minute(4));
        assert_eq!(note(6, 0.0), minute(4), "one minute was missed");
        assert_eq!(note(11, 0.0), minute(11), "nobody looked for long");
        assert_eq!(rest.since("b", Timestamp(0), 0), None);
    }

    #[test]
    fn what_works_never_rests_for_as_short_as_one_minute() {
        let minute = |number: i64| Timestamp(number * 60_000);
        let mut rest = IdleGpus::default();
        let mut note = |number, utilisation| {
            rest.note(&point(minute(number), utilisation));
            rest.since("a", minute(1).plus_seconds(30), 60)
        };
        for number in 1..5 {
            assert_eq!(note(number, 90.0), None, "minute {number}, and whatever is asked before the next is over");
        }
        assert_eq!(note(5, 0.0), Some(minute(5)), "a whole minute without work");
        assert_eq!(note(6, 0.0), Some(minute(5)), "and it stays");
        assert_eq!(note(7, 90.0), None);
        rest.note(&point(minute(20), 0.0));
        assert_eq!(rest.since("a", minute(20).plus_seconds(30), 60), None, "held for half of it only");
    }

    fn point(at: Timestamp, utilisation: f64) -> Point {
        let (uuid, memory_bytes, milliwatts) = ("a".to_owned(), 0.0, 0.0);
        Point { uuid, at, readings: 12, utilisation, memory_bytes, milliwatts, celsius: None }
    }
}
