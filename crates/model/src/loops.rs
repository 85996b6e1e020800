//! What the portal's loops did last: when each went round, how long that took, and what went
//! wrong, with the whole round or with single items that it went on past. A loop says so itself;
//! the health page reads it. There is nothing here but numbers and words, kept for the life of
//! the process.

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
    /// The items that failed in the last round, with the error of each. The round went on without them.
    pub skipped: BTreeMap<String, String>,
}

/// A round under way. One that is dropped is as if it went on for ever.
#[derive(Debug)]
#[must_use = "say how it ended"]
pub struct Round {
    loops: Loops,
    name: &'static str,
    began: Instant,
    skipped: Mutex<BTreeMap<String, String>>,
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
        Round { loops: self.clone(), name, began: Instant::now(), skipped: Mutex::default() }
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
    /// Notes that one item (“session 1f2e…”) failed and that the round goes on with the others.
    /// An error that lasts is logged once.
    pub fn skip(&self, item: impl fmt::Display, error: &dyn std::error::Error) {
        let (item, error) = (item.to_string(), sentence(error));
        let is_known = {
            let known = self.loops.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(self.name).is_some_and(|rounds| rounds.skipped.get(&item) == Some(&error))
        };
        if !is_known {
            tracing::warn!(round = self.name, item, error, "loop item failed; continuing with the others");
        }
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).insert(item, error);
    }

    /// Notes the item if it failed; else passes on what came of it.
    pub fn unless_failed<T, E: std::error::Error>(&self, item: impl fmt::Display, outcome: Result<T, E>) -> Option<T> {
        outcome.inspect_err(|error| self.skip(item, error)).ok()
    }

    /// The round is over, well or not.
    pub fn end<T, E: fmt::Display>(self, outcome: &Result<T, E>) {
        let now = self.loops.clock.now();
        let skipped = self.skipped.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.loops.change(self.name, |rounds| {
            rounds.skipped = skipped;
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

/// An error with its causes, in one line.
fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_names_the_items_that_it_skipped() {
        let loops = Loops::default();
        let skipped = || loops.list()[0].1.skipped.clone();
        let round = loops.begin("a", None);
        let failed = Err::<(), _>(std::io::Error::other("no disk"));
        assert_eq!(round.unless_failed("one", failed), None);
        assert_eq!(round.unless_failed("two", Ok::<_, std::io::Error>(7)), Some(7));
        round.end(&Ok::<_, String>(()));
        assert_eq!(skipped(), BTreeMap::from([("one".to_owned(), "no disk".to_owned())]));
        assert!(!loops.list()[0].1.failed, "the others went well");
        loops.begin("a", None).end(&Ok::<_, String>(()));
        assert!(skipped().is_empty(), "it is of the last round alone");
    }

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
