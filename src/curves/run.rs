//! One run: its curves by tag, and what was left out while they were read. Writers name the
//! same tags in the same order again and again, so the next one is guessed before it is
//! looked up.

use std::collections::{BTreeMap, HashMap};

use super::{
    reader::{Item, Skipped},
    series::{Point, Series},
};

/// More tags of one run are not kept: a name that holds a number is a mistake of the program's.
pub const MOST_TAGS: usize = 200_000;

/// What is written of hyper-parameters comes once or twice a run.
const MOST_HPARAMS: usize = 64;

/// Runs by their names.
#[derive(Debug, Default)]
pub struct Runs(pub BTreeMap<String, Run>);

impl Runs {
    #[inline]
    pub fn take(&mut self, name: &str, item: Item<'_>) {
        match self.0.get_mut(name) {
            Some(run) => run.take(item),
            None => self.0.entry(name.to_owned()).or_default().take(item),
        }
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
    /// Values of tags beyond [`MOST_TAGS`].
    pub surplus: u64,
    /// What plug-ins wrote of hyper-parameters, in order.
    pub hparams: Vec<Vec<u8>>,
}

impl Run {
    pub fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Scalar { tag, step, wall_time, value } => {
                let point = Point { step, wall_time, value, attempt: self.attempt };
                match self.place(tag) {
                    Some(place) => self.tags[place].1.push(point),
                    None => self.surplus += 1,
                }
                self.has_points = true;
            }
            Item::Begin => self.begin_attempt(),
            Item::Start { step } => {
                self.begin_attempt();
                for (_, series) in &mut self.tags {
                    series.restart(self.attempt, step);
                }
            }
            Item::Hparams(content) if self.hparams.len() < MOST_HPARAMS => self.hparams.push(content.to_owned()),
            Item::Hparams(_) => {}
            Item::Skipped(skipped) => self.skipped.add(skipped),
        }
    }

    /// Everything from now on belongs to another attempt, unless this one is empty.
    fn begin_attempt(&mut self) {
        self.attempt += u32::from(std::mem::take(&mut self.has_points));
    }

    #[inline]
    fn place(&mut self, tag: &[u8]) -> Option<usize> {
        let guess = if self.latest + 1 < self.tags.len() { self.latest + 1 } else { 0 };
        for place in [guess, self.latest] {
            if self.tags.get(place).is_some_and(|(name, _)| name.as_bytes() == tag) {
                self.latest = place;
                return Some(place);
            }
        }
        let place = match self.places.get(tag) {
            Some(place) => *place,
            None if self.tags.len() >= MOST_TAGS => return None,
            None => {
                self.places.insert(tag.into(), self.tags.len());
                self.tags.push((String::from_utf8_lossy(tag).into(), Series::default()));
                self.tags.len() - 1
            }
        };
        self.latest = place;
        Some(place)
    }

    /// The curves, in the order in which their tags were first seen.
    pub fn curves(&self) -> impl Iterator<Item = (&str, &Series)> {
        self.tags.iter().map(|(tag, series)| (&**tag, series))
    }

    pub fn curve(&self, tag: &str) -> Option<&Series> {
        self.places.get(tag.as_bytes()).map(|place| &self.tags[*place].1)
    }
}
