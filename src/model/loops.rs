//! What the portal's loops did last: when each went round, how long that took, and what went
//! wrong. A loop says so itself, at the beginning and the end of each round; the health page
//! reads it. There is nothing here but numbers and words, kept for the life of the process.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{Clock, Timestamp};

/// All loops by name; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    clock: Clock,
    known: Arc<Mutex<BTreeMap<&'static str, Rounds>>>,
}

/// One loop, up to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// From one round to the next at the latest; `None` where it waits for something to happen.
    pub every: Option<Duration>,
    /// Since when a round is under way.
    pub busy_since: Option<Timestamp>,
    /// The end of the last round.
    pub last_at: Option<Timestamp>,
    pub took: Duration,
    /// Whether the last round failed.
    pub failed: bool,
    /// When a round failed last, and how: in words for administrators, without causes from inside.
    pub last_error: Option<(Timestamp, String)>,
}

/// A round under way. One that is dropped is as if it went on for ever.
#[derive(Debug)]
#[must_use = "say how it ended"]
pub struct Round {
    loops: Loops,
    name: &'static str,
    began: Instant,
}

impl Loops {
    pub fn new(clock: Clock) -> Self {
        Self { clock, known: Arc::default() }
    }

    /// A round of the loop `name` begins; the next one does after `every`, if that is known.
    pub fn begin(&self, name: &'static str, every: Option<Duration>) -> Round {
        let now = self.clock.now();
        self.change(name, |rounds| {
            rounds.every = every;
            rounds.busy_since = Some(now);
        });
        Round { loops: self.clone(), name, began: Instant::now() }
    }

    /// Every loop that has begun a round, by name.
    pub fn list(&self) -> Vec<(&'static str, Rounds)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(name, rounds)| (*name, rounds.clone())).collect()
    }

    fn change(&self, name: &'static str, change: impl FnOnce(&mut Rounds)) {
        // A panic elsewhere leaves whole values behind.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(known.entry(name).or_default());
    }
}

impl Round {
    /// The round is over, well or not.
    pub fn end<T, E: fmt::Display>(self, outcome: &Result<T, E>) {
        let now = self.loops.clock.now();
        self.loops.change(self.name, |rounds| {
            rounds.busy_since = None;
            rounds.last_at = Some(now);
            rounds.took = self.began.elapsed();
            rounds.failed = outcome.is_err();
            if let Err(error) = outcome {
                rounds.last_error = Some((now, error.to_string()));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_remembered() {
        let clock = Clock::manual(Timestamp(1000));
        let loops = Loops::new(clock.clone());
        let of = |name: &str| loops.list().into_iter().find(|(known, _)| *known == name).unwrap().1;
        let first = loops.begin("a", Some(Duration::from_secs(5)));
        assert_eq!((of("a").busy_since, of("a").last_at), (Some(Timestamp(1000)), None));
        clock.advance(2);
        first.end(&Err::<(), _>("the disk is full"));
        assert!(of("a").failed && of("a").busy_since.is_none());
        loops.begin("b", None).end(&Ok::<_, String>(()));
        clock.advance(1);
        loops.begin("a", Some(Duration::from_secs(5))).end(&Ok::<_, String>(7));
        let rounds = of("a");
        assert_eq!((rounds.last_at, rounds.failed), (Some(Timestamp(4000)), false));
        assert_eq!(rounds.last_error, Some((Timestamp(3000), "the disk is full".to_owned())), "it is remembered");
        assert_eq!(loops.list().len(), 2);
    }
}
