//! Since when GPUs have computed next to nothing, by the means of minutes. A gap in them proves
//! nothing: whoever was not looked at may have worked.

use std::collections::HashMap;

use crate::{
    db::gpus::{Point, Span},
    model::Timestamp,
};

/// A GPU that computes less of the time than this (percent) rests.
const RESTING: f64 = 5.0;

/// So long nobody may have looked (seconds).
const GAP: i64 = 180;

#[derive(Debug, Default)]
pub struct Rest(HashMap<String, Stretch>);

/// A time without work.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Timestamp,
    to: Timestamp,
}

impl Rest {
    /// Takes note of a minute. Those of one GPU come in their order.
    pub fn note(&mut self, point: &Point) {
        let end = point.at.plus_seconds(Span::Minute.seconds());
        let known = self.0.get(&point.uuid).filter(|stretch| point.at.seconds_since(stretch.to) < GAP);
        let since = match known {
            _ if RESTING <= point.utilisation => end,
            Some(stretch) => stretch.since,
            None => point.at,
        };
        self.0.insert(point.uuid.clone(), Stretch { since, to: end });
    }

    /// Since when a GPU rests; `None` where that is not known.
    pub fn since(&self, uuid: &str) -> Option<Timestamp> {
        self.0.get(uuid).map(|stretch| stretch.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_gaps_begin_anew() {
        let minute = |number: i64| Timestamp(number * 60_000);
        let mut rest = Rest::default();
        let mut note = |number, utilisation| {
            let uuid = "a".to_owned();
            let (memory_bytes, milliwatts) = (0.0, 0.0);
            let point =
                Point { uuid, at: minute(number), readings: 12, utilisation, memory_bytes, milliwatts, celsius: None };
            rest.note(&point);
            rest.since("a").unwrap()
        };
        assert_eq!(note(1, 0.0), minute(1));
        assert_eq!(note(2, 4.9), minute(1));
        assert_eq!(note(3, 5.0), minute(4), "it worked until then");
        assert_eq!(note(4, 0.0), minute(4));
        assert_eq!(note(6, 0.0), minute(4), "one minute was missed");
        assert_eq!(note(11, 0.0), minute(11), "nobody looked for long");
        assert_eq!(rest.since("b"), None);
    }
}
