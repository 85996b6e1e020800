//! What a reader told, as bytes: from the process that may read somebody's files to the portal,
//! and into the portal's own store. A batch is whole or not there; names are said once, and a
//! point costs some 14 bytes. Both ends keep the same memory of names and steps, which lasts
//! as long as one connection or one file.

use std::collections::HashMap;

use thiserror::Error;

use super::{
    columns::single,
    reader::{Item, Skipped},
    wire::varint,
};

/// What is kept of one directory of runs, in all. Both ends of a connection hold to it, so that
/// nobody's memory is at a writer's mercy: a name that holds a number is a mistake of a program's.
pub const MAX_RUNS: usize = 20_000;
pub const MAX_TAGS: usize = 200_000;

/// The bytes of all their names.
const MAX_NAME_BYTES: usize = 16 << 20;

/// More hyper-parameters at a time are left out (bytes).
pub const MAX_HPARAM_BYTES: usize = 64 << 10;

/// No batch is larger: what one record or piece of a file may come to, and all the names (bytes).
pub const MAX_BATCH_SIZE: usize = 48 << 20;

/// What an entry of a batch is; its first byte.
mod kind {
    pub const RUN: u8 = 1;
    pub const TAG: u8 = 2;
    pub const SINGLE: u8 = 3;
    pub const DOUBLE: u8 = 4;
    pub const BEGIN: u8 = 5;
    pub const START: u8 = 6;
    pub const HPARAMS: u8 = 7;
    pub const SKIPPED: u8 = 8;
    pub const PLACE: u8 = 9;
}

/// How far one file has been read, so that whoever goes on reads no byte twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadPosition {
    /// Bytes from the beginning that were read and told.
    pub read: u64,
    /// Bytes behind them that need not be looked at.
    pub skip: u64,
    /// The step of a line that names none.
    pub next_step: i64,
    /// Device and number of the file, by which another of the same name is known.
    pub identity: (u64, u64),
    /// The CRC-32C of the bytes that were read, by which a copy of the file is known that took its place.
    pub sum: Option<u32>,
}

/// The sum of a place goes before it as a place of this name. Readers of earlier versions take it for a file of no
/// format that they know.
const SUM: &str = ".sum";

/// An entry of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<'a> {
    Item { run: &'a str, item: Item<'a> },
    Place { file: &'a str, place: ReadPosition },
}

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("malformed batch of points")]
pub struct Malformed;

/// Makes batches.
#[derive(Debug, Default)]
pub struct Encoder {
    batch: Vec<u8>,
    runs: HashMap<Box<str>, u64>,
    tags: HashMap<Name, KnownTag>,
    /// The bytes of all names.
    names: usize,
    /// Entries that were not taken and not told yet.
    surplus: u64,
}

impl Encoder {
    /// Takes an entry, unless it would be more than is kept: then it is counted.
    pub fn entry(&mut self, entry: &Entry<'_>) -> bool {
        let is_taken = match entry {
            Entry::Item { item: Item::Hparams(object), .. } if object.len() > MAX_HPARAM_BYTES => false,
            Entry::Item { run, item } => {
                self.has_room_for(run, item) && {
                    self.item(run, item);
                    true
                }
            }
            Entry::Place { .. } => {
                self.certain(entry);
                true
            }
        };
        self.surplus += u64::from(!is_taken);
        is_taken
    }

    /// An entry that is counted instead of told.
    pub fn pass_over(&mut self) {
        self.surplus += 1;
    }

    /// What to tell of entries that were not taken since this was asked before.
    pub fn told_surplus(&mut self) -> Option<Entry<'static>> {
        let surplus = std::mem::take(&mut self.surplus);
        let skipped = Skipped { surplus, ..Skipped::default() };
        (surplus > 0).then_some(Entry::Item { run: ".", item: Item::Skipped(skipped) })
    }

    fn has_room_for(&self, run: &str, item: &Item<'_>) -> bool {
        let Some(number) = self.runs.get(run) else {
            // What was passed over must have a run to be told of.
            let tag = if let Item::Scalar { tag, .. } = item { tag.len() } else { 0 };
            return run == "." || self.runs.len() < MAX_RUNS && self.names + run.len() + tag <= MAX_NAME_BYTES;
        };
        let Item::Scalar { tag, .. } = item else { return true };
        (self.tags.len() < MAX_TAGS && self.names + tag.len() <= MAX_NAME_BYTES)
            || self.tags.contains_key(&(*number, Box::from(*tag)))
    }

    /// An entry that was taken before, by this encoder or another.
    pub fn certain(&mut self, entry: &Entry<'_>) {
        match entry {
            Entry::Item { run, item } => self.item(run, item),
            Entry::Place { file, place } => {
                if let Some(sum) = place.sum {
                    self.place(SUM, &ReadPosition { read: sum.into(), ..ReadPosition::default() });
                }
                self.place(file, place);
            }
        }
    }

    fn place(&mut self, file: &str, place: &ReadPosition) {
        self.batch.push(kind::PLACE);
        self.bytes(file.as_bytes());
        self.number(place.read);
        self.number(place.skip);
        self.signed(place.next_step);
        self.number(place.identity.0);
        self.number(place.identity.1);
    }

    fn item(&mut self, run: &str, item: &Item<'_>) {
        let run = self.run(run);
        match item {
            Item::Scalar { tag, step, wall_time, value } => self.scalar(run, tag, *step, *wall_time, *value),
            Item::Begin => self.plain(kind::BEGIN, run),
            Item::Start { step } => {
                self.plain(kind::START, run);
                self.signed(*step);
            }
            Item::Hparams(content) => {
                self.plain(kind::HPARAMS, run);
                self.bytes(content);
            }
            Item::Skipped(skipped) => {
                self.plain(kind::SKIPPED, run);
                self.number(skipped.damaged);
                self.number(skipped.oversized);
                self.number(skipped.surplus);
                self.batch.push(skipped.lost.into());
            }
        }
    }

    fn scalar(&mut self, run: u64, tag: &[u8], step: i64, wall_time: f64, value: f64) {
        let next = KnownTag { number: self.tags.len() as u64, step: 0 };
        let name = (run, Box::from(tag));
        let known = self.tags.get(&name).copied();
        if known.is_none() {
            self.names += tag.len();
            self.plain(kind::TAG, run);
            self.bytes(tag);
        }
        let KnownTag { number, step: before } = known.unwrap_or(next);
        self.tags.insert(name, KnownTag { number, step });
        let single = single(value);
        self.plain(if single.is_some() { kind::SINGLE } else { kind::DOUBLE }, number);
        self.signed(step.wrapping_sub(before));
        self.batch.extend_from_slice(&wall_time.to_le_bytes());
        match single {
            Some(single) => self.batch.extend_from_slice(&single.to_le_bytes()),
            None => self.batch.extend_from_slice(&value.to_le_bytes()),
        }
    }

    fn run(&mut self, name: &str) -> u64 {
        if let Some(number) = self.runs.get(name) {
            return *number;
        }
        let number = self.runs.len() as u64;
        self.runs.insert(name.into(), number);
        self.names += name.len();
        self.batch.push(kind::RUN);
        self.bytes(name.as_bytes());
        number
    }

    /// How much has been told since it was taken before (bytes).
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// What has been told since this was asked before.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.batch)
    }

    fn plain(&mut self, kind: u8, number: u64) {
        self.batch.push(kind);
        self.number(number);
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.batch.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.batch.push(value.to_le_bytes()[0]);
    }

    /// Small numbers of either sign are short.
    fn signed(&mut self, value: i64) {
        self.number((value << 1 ^ value >> 63).cast_unsigned());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.batch.extend_from_slice(bytes);
    }
}

/// A tag, by its run's number and its name.
type Name = (u64, Box<[u8]>);

/// What both ends remember of a tag.
#[derive(Clone, Copy, Debug)]
struct KnownTag {
    number: u64,
    step: i64,
}

/// Reads batches, in their order.
#[derive(Debug, Default)]
pub struct Decoder {
    runs: Vec<Box<str>>,
    /// The run, the name, and the latest step.
    tags: Vec<(usize, Box<[u8]>, i64)>,
    /// The bytes of all names.
    names: usize,
    /// The sum of the next place.
    sum: Option<u32>,
}

impl Decoder {
    /// Tells the entries of a batch. After a malformed one the two memories differ, and
    /// nothing more may be read.
    pub fn batch(&mut self, mut batch: &[u8], tell: &mut impl FnMut(Entry<'_>)) -> Result<(), Malformed> {
        while let Some((kind, rest)) = batch.split_first() {
            batch = rest;
            self.entry(*kind, &mut batch, tell).ok_or(Malformed)?;
        }
        Ok(())
    }

    #[inline]
    fn entry(&mut self, kind: u8, batch: &mut &[u8], tell: &mut impl FnMut(Entry<'_>)) -> Option<()> {
        match kind {
            // An encoder keeps within the bounds; whoever does not is none.
            kind::RUN => {
                let name = text(batch)?;
                self.names += name.len();
                (self.runs.len() <= MAX_RUNS && self.names <= MAX_NAME_BYTES + 1).then_some(())?;
                self.runs.push(name.into());
            }
            kind::TAG => {
                let run = usize::try_from(varint(batch)?).ok().filter(|run| *run < self.runs.len())?;
                let name = bytes(batch)?;
                self.names += name.len();
                (self.tags.len() < MAX_TAGS && self.names <= MAX_NAME_BYTES + 1).then_some(())?;
                self.tags.push((run, name.into(), 0));
            }
            kind::SINGLE | kind::DOUBLE => {
                let (run, tag, step) = self.tags.get_mut(usize::try_from(varint(batch)?).ok()?)?;
                *step = step.wrapping_add(signed(batch)?);
                let wall_time = f64::from_le_bytes(fixed(batch)?);
                let value = if kind == kind::SINGLE {
                    f32::from_le_bytes(fixed(batch)?).into()
                } else {
                    f64::from_le_bytes(fixed(batch)?)
                };
                let item = Item::Scalar { tag, step: *step, wall_time, value };
                tell(Entry::Item { run: &self.runs[*run], item });
            }
            kind::BEGIN | kind::START | kind::HPARAMS | kind::SKIPPED => {
                let run = self.runs.get(usize::try_from(varint(batch)?).ok()?)?;
                let item = match kind {
                    kind::BEGIN => Item::Begin,
                    kind::START => Item::Start { step: signed(batch)? },
                    kind::HPARAMS => Item::Hparams(bytes(batch)?),
                    _ => Item::Skipped(Skipped {
                        damaged: varint(batch)?,
                        oversized: varint(batch)?,
                        surplus: varint(batch)?,
                        lost: fixed::<1>(batch)? != [0],
                    }),
                };
                tell(Entry::Item { run, item });
            }
            kind::PLACE => {
                let file = text(batch)?;
                let place = ReadPosition {
                    read: varint(batch)?,
                    skip: varint(batch)?,
                    next_step: signed(batch)?,
                    identity: (varint(batch)?, varint(batch)?),
                    sum: self.sum.take(),
                };
                if file == SUM {
                    self.sum = Some(u32::try_from(place.read).ok()?);
                } else {
                    tell(Entry::Place { file, place });
                }
            }
            _ => return None,
        }
        Some(())
    }
}

fn bytes<'a>(batch: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(batch)?).ok()?;
    let (bytes, rest) = batch.split_at_checked(length)?;
    *batch = rest;
    Some(bytes)
}

fn text<'a>(batch: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(bytes(batch)?).ok()
}

fn fixed<const N: usize>(batch: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = batch.split_first_chunk()?;
    *batch = rest;
    Some(*bytes)
}

fn signed(batch: &mut &[u8]) -> Option<i64> {
    let number = varint(batch)?;
    Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An entry that owns what it says.
    #[derive(Clone, Debug)]
    enum Said {
        Scalar(String, Vec<u8>, i64, f64, f64),
        Begin(String),
        Start(String, i64),
        Hparams(String, Vec<u8>),
        Skipped(String, u64, u64, u64, bool),
        Place(String, u64, u64, i64, (u64, u64), Option<u32>),
    }

    impl Said {
        fn entry(&self) -> Entry<'_> {
            let (run, item) = match self {
                Self::Scalar(run, tag, step, wall_time, value) => {
                    (run, Item::Scalar { tag, step: *step, wall_time: *wall_time, value: *value })
                }
                Self::Begin(run) => (run, Item::Begin),
                Self::Start(run, step) => (run, Item::Start { step: *step }),
                Self::Hparams(run, content) => (run, Item::Hparams(content)),
                Self::Skipped(run, damaged, oversized, surplus, lost) => {
                    let (damaged, oversized, surplus, lost) = (*damaged, *oversized, *surplus, *lost);
                    (run, Item::Skipped(Skipped { damaged, oversized, surplus, lost }))
                }
                Self::Place(file, read, skip, next_step, identity, sum) => {
                    let (next_step, identity) = (*next_step, *identity);
                    let place = ReadPosition { read: *read, skip: *skip, next_step, identity, sum: *sum };
                    return Entry::Place { file, place };
                }
            };
            Entry::Item { run, item }
        }
    }

    fn said() -> impl Strategy<Value = Said> {
        let run = || "[a-c]{0,2}";
        let tag = proptest::collection::vec(0_u8..3, 0..3);
        let value = prop_oneof![any::<f64>(), any::<f32>().prop_map(f64::from)];
        prop_oneof![
            6 => (run(), tag, any::<i64>(), any::<f64>(), value).prop_map(|(run, tag, step, at, value)| Said::Scalar(run, tag, step, at, value)),
            1 => run().prop_map(Said::Begin),
            1 => (run(), any::<i64>()).prop_map(|(run, step)| Said::Start(run, step)),
            1 => (run(), proptest::collection::vec(any::<u8>(), 0..9)).prop_map(|(run, content)| Said::Hparams(run, content)),
            1 => (run(), any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(run, a, b, c, lost)| Said::Skipped(run, a, b, c, lost)),
            1 => (run(), any::<u64>(), any::<u64>(), any::<i64>(), any::<(u64, u64)>(), any::<Option<u32>>()).prop_map(|(file, read, skip, step, identity, sum)| Said::Place(file, read, skip, step, identity, sum)),
        ]
    }

    proptest! {
        #[test]
        fn what_was_told_is_heard(batches in proptest::collection::vec(proptest::collection::vec(said(), 0..20), 1..5)) {
            let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
            for batch in batches {
                for said in &batch {
                    encoder.entry(&said.entry());
                }
                let mut heard = Vec::new();
                decoder.batch(&encoder.take(), &mut |entry| heard.push(format!("{entry:?}"))).unwrap();
                let expected: Vec<String> = batch.iter().map(|said| format!("{:?}", said.entry())).collect();
                prop_assert_eq!(heard, expected);
            }
        }

        #[test]
        fn no_batch_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Decoder::default().batch(&bytes, &mut |_| {});
        }
    }

    #[test]
    fn names_are_bounded() {
        let mut encoder = Encoder::default();
        let mut taken = 0;
        let long = "x".repeat(10_000);
        for number in 0..100_000 {
            let tag = format!("{number} {long}");
            let item = Item::Scalar { tag: tag.as_bytes(), step: 0, wall_time: 0.0, value: 1.0 };
            taken += usize::from(encoder.entry(&Entry::Item { run: "a", item }));
        }
        assert!((1000..2000).contains(&taken), "{taken}");
        assert!(encoder.len() <= MAX_BATCH_SIZE);
        let known = format!("7 {long}");
        let item = Item::Scalar { tag: known.as_bytes(), step: 1, wall_time: 0.0, value: 1.0 };
        assert!(encoder.entry(&Entry::Item { run: "a", item }), "what is known goes on");
        assert!(!encoder.entry(&Entry::Item { run: "b", item }), "the same tag of another run is another");
        let surplus = Skipped { surplus: 100_001 - taken as u64, ..Skipped::default() };
        assert_eq!(encoder.told_surplus(), Some(Entry::Item { run: ".", item: Item::Skipped(surplus) }));
        assert_eq!(encoder.told_surplus(), None);
    }

    #[test]
    fn a_point_is_small() {
        let mut encoder = Encoder::default();
        for step in 0..1000 {
            let item = Item::Scalar { tag: b"train/loss", step, wall_time: 1.7e9, value: 0.25 };
            encoder.entry(&Entry::Item { run: ".", item });
        }
        assert!(encoder.take().len() < 16_000);
    }
}
