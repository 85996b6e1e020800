//! One run: its curves by tag, and what was left out while they were read. Writers name the
//! same tags in the same order again and again, so the next one is guessed before it is
//! looked up. How many names and points there may be is bounded by `log`, for all runs together.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::{
    reader::{Item, Skipped},
    series::{Point, Series},
};

/// What is written of hyper-parameters comes once or twice a run; so many names are kept.
const MAX_HPARAMS: usize = 1000;

/// Runs by their names.
#[derive(Debug, Default)]
pub struct Runs {
    all: Vec<Run>,
    /// Where each stands, in the order of the names.
    places: BTreeMap<Box<str>, usize>,
    /// Whose item was told last: mostly the next one's too.
    latest: (Box<str>, usize),
}

impl Runs {
    #[inline]
    pub fn take(&mut self, name: &str, item: Item<'_>) {
        if *self.latest.0 != *name || self.all.is_empty() {
            self.turn_to(name);
        }
        self.all[self.latest.1].take(item);
    }

    fn turn_to(&mut self, name: &str) {
        let place = self.places.get(name).copied().unwrap_or_else(|| {
            self.places.insert(name.into(), self.all.len());
            self.all.push(Run::default());
            self.all.len() - 1
        });
        self.latest = (name.into(), place);
    }

    /// All of them with their names, in the order of these.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Run)> {
        self.places.iter().map(|(name, place)| (&**name, &self.all[*place]))
    }

    /// All of them, in the order of their names.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Run> {
        self.iter().map(|(_, run)| run)
    }

    /// The curve of this name: its tag, or the directory and the tag (`events/validation: loss`), as pages tell curves
    /// of one tag apart.
    pub fn curve(&self, name: &str) -> Option<&Series> {
        let of_directory =
            || name.match_indices(": ").find_map(|(at, gap)| self.get(&name[..at])?.curve(&name[at + gap.len()..]));
        self.values().find_map(|run| run.curve(name)).or_else(of_directory)
    }

    pub fn get(&self, name: &str) -> Option<&Run> {
        self.find(name).map(|(_, run)| run)
    }

    pub fn find(&self, name: &str) -> Option<(&str, &Run)> {
        self.places.get_key_value(name).map(|(name, place)| (&**name, &self.all[*place]))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// The curves of one run.
#[derive(Debug, Default)]
pub struct Run {
    tags: Vec<(Box<str>, Series)>,
    places: HashMap<Box<[u8]>, usize>,
    /// Where the tag stands that was told last.
    latest: usize,
    /// Which attempt is being read.
    attempt: u32,
    /// It has points.
    has_points: bool,
    pub skipped: Skipped,
    /// The latest value of each hyper-parameter.
    pub hparams: BTreeMap<String, Value>,
}

impl Run {
    pub fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Scalar { tag, step, wall_time, value } => {
                let point = Point { step, wall_time, value, attempt: self.attempt };
                let place = self.place(tag);
                self.tags[place].1.push(point);
                self.has_points = true;
            }
            Item::Begin => self.begin_attempt(),
            Item::Start { step } => {
                self.begin_attempt();
                for (_, series) in &mut self.tags {
                    series.restart(self.attempt, step);
                }
            }
            Item::Hparams(object) => self.take_hparams(object),
            Item::Skipped(skipped) => self.skipped.add(skipped),
        }
    }

    fn take_hparams(&mut self, object: &[u8]) {
        let Ok(object) = serde_json::from_slice::<Map<String, Value>>(object) else { return };
        for (name, value) in object {
            if self.hparams.len() < MAX_HPARAMS || self.hparams.contains_key(&name) {
                self.hparams.insert(name, value);
            }
        }
    }

    /// Everything from now on belongs to another attempt, unless this one is empty.
    fn begin_attempt(&mut self) {
        self.attempt += u32::from(std::mem::take(&mut self.has_points));
    }

    #[inline]
    fn place(&mut self, tag: &[u8]) -> usize {
        let guess = if self.latest + 1 < self.tags.len() { self.latest + 1 } else { 0 };
        for place in [guess, self.latest] {
            if self.tags.get(place).is_some_and(|(name, _)| name.as_bytes() == tag) {
                self.latest = place;
                return place;
            }
        }
        let place = if let Some(place) = self.places.get(tag) {
            *place
        } else {
            self.places.insert(tag.into(), self.tags.len());
            self.tags.push((String::from_utf8_lossy(tag).into(), Series::default()));
            self.tags.len() - 1
        };
        self.latest = place;
        place
    }

    /// The curves, in the order in which their tags were first seen.
    pub fn curves(&self) -> impl ExactSizeIterator<Item = (&str, &Series)> {
        self.tags.iter().map(|(tag, series)| (&**tag, series))
    }

    pub fn curve(&self, tag: &str) -> Option<&Series> {
        self.places.get(tag.as_bytes()).map(|place| &self.tags[*place].1)
    }
}
