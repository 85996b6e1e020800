//! One file, read as it grows: bytes go in, in whatever pieces, and points come out. A record
//! in the making waits for its rest; one that is damaged, or too large to hold scalars, is
//! left out and counted. Whoever reads the file (`tail`) brings the bytes.

use super::{
    event::{self, Content, Plain, What},
    hparams, lines,
    log::ReadPosition,
    record::{self, Next},
};

/// Larger records are passed over: they hold images, graphs and the like. Bytes.
pub const MAX_RECORD_SIZE: u64 = 64 << 20;

/// Longer lines are passed over. Bytes.
const MAX_LINE_LENGTH: usize = 1 << 20;

/// Longer names are passed over. Bytes.
const MAX_TAG_LENGTH: usize = 64 << 10;

/// Only the first values of a record are looked at for hyper-parameters, which stand alone.
const MAX_HPARAMS: usize = 8;

/// More values of one record are passed over, so that what one record comes to is bounded.
const MAX_VALUES: usize = 250_000;

/// What a file tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item<'a> {
    Scalar {
        tag: &'a [u8],
        step: i64,
        wall_time: f64,
        value: f64,
    },
    /// A writer begins anew at this step.
    Start {
        step: i64,
    },
    /// Hyper-parameters, as an object of JSON.
    Hparams(&'a [u8]),
    /// Another file of the run, or one that was written anew.
    Begin,
    /// What was left out since this was told before.
    Skipped(Skipped),
}

/// Counts the data of a file that was skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Records whose checksum or message is wrong, scalars that are not a number, lines that are no objects.
    pub damaged: u64,
    /// Records, lines or names that are too large.
    pub oversized: u64,
    /// Values beyond what is kept of one run: more tags, names or points than there may be.
    pub surplus: u64,
    /// Nothing behind this place can be read.
    pub lost: bool,
}

impl Skipped {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub fn add(&mut self, more: Self) {
        self.damaged = self.damaged.saturating_add(more.damaged);
        self.oversized = self.oversized.saturating_add(more.oversized);
        self.surplus = self.surplus.saturating_add(more.surplus);
        self.lost |= more.lost;
    }
}

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// TensorBoard's event files.
    Events,
    /// JSON objects, one a line.
    Lines,
    /// Hyper-parameters as Lightning leaves them beside its events.
    Hparams,
    /// The history of values that Hugging Face's trainer keeps in its checkpoints.
    State,
    /// What a training can go on from. That it was written is of interest, and not what is in it.
    Checkpoint,
}

impl Format {
    /// By the file's name, as TensorBoard itself finds them. A file that is still being copied is not one.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            _ if is_temporary(name) => None,
            "hparams.yaml" => Some(Self::Hparams),
            "trainer_state.json" => Some(Self::State),
            _ if name.contains("tfevents") && !name.ends_with(".profile-empty") => Some(Self::Events),
            _ if name == "metrics.jsonl" || name.ends_with(".metrics.jsonl") => Some(Self::Lines),
            _ => is_checkpoint(name).then_some(Self::Checkpoint),
        }
    }
}

/// Endings that programs give to a file while they copy, load or write it.
const TEMPORARY: [&str; 12] = [
    "~",
    ".part",
    ".partial",
    ".filepart",
    ".tmp",
    ".temp",
    ".crdownload",
    ".download",
    ".swp",
    ".aria2",
    ".inprogress",
    ".lock",
];

/// Returns whether a file is still being copied, or was removed while open. Such files are hidden (rsync puts a dot
/// before and random letters behind the name, NFS writes `.nfs…`) or have a known ending.
fn is_temporary(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with(['.', '~']) || TEMPORARY.iter().any(|ending| name.ends_with(ending))
}

/// By the names that the writers of all frameworks give, and whatever is called a checkpoint.
fn is_checkpoint(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
    match extension {
        "ckpt" | "pt" | "pth" | "keras" | "safetensors" => true,
        "py" | "pyc" | "md" | "txt" | "log" | "yaml" | "yml" | "ipynb" | "png" => false,
        _ => ["checkpoint", "ckpt", "weights", "pytorch_model"].iter().any(|word| stem.contains(word)),
    }
}

/// Reads one file.
#[derive(Debug)]
pub struct Reader {
    format: Format,
    /// The beginning of a record that is not whole yet.
    held: Vec<u8>,
    /// So many bytes are to be passed over.
    skip: u64,
    /// What comes up to the next end of a line belongs to one that is too long.
    in_long_line: bool,
    /// A line without a step follows the one before.
    next_step: i64,
    skipped: Skipped,
    is_lost: bool,
    /// The checksum of all bytes that need not be seen again; none where it began without one.
    sum: Option<u32>,
}

impl Reader {
    pub fn new(format: Format) -> Self {
        Self::resume(format, &ReadPosition { sum: Some(0), ..ReadPosition::default() })
    }

    /// Goes on where another has stopped.
    pub fn resume(format: Format, place: &ReadPosition) -> Self {
        let ReadPosition { skip, next_step, sum, .. } = *place;
        let skipped = Skipped::default();
        Self { format, held: Vec::new(), skip, in_long_line: false, next_step, skipped, is_lost: false, sum }
    }

    /// Returns the place that another may go on from, of a file of which `read` bytes came in.
    pub fn place(&self, read: u64, identity: (u64, u64)) -> ReadPosition {
        let Self { skip, next_step, sum, .. } = *self;
        ReadPosition { read: read.saturating_sub(self.held.len() as u64), skip, next_step, identity, sum }
    }

    /// Returns the CRC-32C of all bytes that came in, where it is known.
    pub fn sum(&self) -> Option<u32> {
        self.sum.map(|sum| crc32c::crc32c_append(sum, &self.held))
    }

    fn add_to_sum(&mut self, bytes: &[u8]) {
        self.sum = self.sum.map(|sum| crc32c::crc32c_append(sum, bytes));
    }

    /// What was left out since this was asked before.
    pub fn take_skipped(&mut self) -> Skipped {
        std::mem::take(&mut self.skipped)
    }

    /// Takes the file's next bytes and tells what they say. `now` (seconds since 1970) is the
    /// time of lines that name none.
    pub fn feed(&mut self, mut bytes: &[u8], now: f64, tell: &mut impl FnMut(Item<'_>)) {
        while !bytes.is_empty() {
            if self.is_lost {
                self.add_to_sum(bytes);
                return;
            }
            if self.skip > 0 {
                let passed = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
                self.skip -= passed as u64;
                self.add_to_sum(&bytes[..passed]);
                bytes = &bytes[passed..];
            } else if self.held.is_empty() {
                let taken = self.take(bytes, now, tell);
                self.add_to_sum(&bytes[..taken]);
                self.held.extend_from_slice(&bytes[taken..]);
                return;
            } else {
                let (more, rest) = bytes.split_at(self.lacking().min(bytes.len()));
                let mut held = std::mem::take(&mut self.held);
                held.extend_from_slice(more);
                let taken = self.take(&held, now, tell);
                self.add_to_sum(&held[..taken]);
                held.drain(..taken);
                self.held = held;
                bytes = rest;
            }
        }
    }

    /// How much is to be added to what is held: of a record no more than is lacking, so that what comes behind
    /// it is read where it lies.
    fn lacking(&self) -> usize {
        match record::next(&self.held) {
            Ok(Next::Partial { needed }) if self.format == Format::Events => {
                usize::try_from(needed).unwrap_or(usize::MAX).saturating_sub(self.held.len())
            }
            _ => usize::MAX,
        }
    }

    /// Reads what is whole; how many bytes need not be seen again.
    fn take(&mut self, bytes: &[u8], now: f64, tell: &mut impl FnMut(Item<'_>)) -> usize {
        match self.format {
            Format::Events => self.records(bytes, tell),
            Format::Lines => self.lines(bytes, now, tell),
            // They are read as a whole, by `whole`.
            Format::Hparams | Format::State | Format::Checkpoint => bytes.len(),
        }
    }

    fn records(&mut self, bytes: &[u8], tell: &mut impl FnMut(Item<'_>)) -> usize {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            match record::next(rest) {
                Ok(Next::Record { data, size }) => {
                    if self.record(data, tell).is_err() {
                        self.skipped.damaged += 1;
                    }
                    taken += size;
                }
                Ok(Next::Damaged { size }) => {
                    self.skipped.damaged += 1;
                    taken += size;
                }
                Ok(Next::Partial { needed }) if needed > MAX_RECORD_SIZE => {
                    self.skipped.oversized += 1;
                    self.skip = needed - rest.len() as u64;
                    return bytes.len();
                }
                Ok(Next::Partial { .. }) => return taken,
                Err(record::InvalidLength) => {
                    self.skipped.lost = true;
                    self.is_lost = true;
                    return bytes.len();
                }
            }
        }
    }

    #[inline]
    fn record(&mut self, data: &[u8], tell: &mut impl FnMut(Item<'_>)) -> Result<(), super::wire::Malformed> {
        if let Some(Plain { wall_time, step, tag, value }) = event::plain(data)
            && tag.len() <= MAX_TAG_LENGTH
        {
            tell(Item::Scalar { tag, step, wall_time, value: value.into() });
            return Ok(());
        }
        let event = event::event(data)?;
        match event.what {
            What::Start => tell(Item::Start { step: event.step }),
            What::Summary(summary) => {
                for (number, entry) in event::values(summary).enumerate() {
                    let entry = entry?;
                    match entry.what {
                        Content::Scalar(_) if entry.tag.len() > MAX_TAG_LENGTH || number >= MAX_VALUES => {
                            self.skipped.oversized += 1;
                        }
                        Content::Scalar(value) => {
                            tell(Item::Scalar { tag: entry.tag, step: event.step, wall_time: event.wall_time, value });
                        }
                        Content::Hparams(content) if number < MAX_HPARAMS => match hparams::of_plugin(content) {
                            Some(object) => tell(Item::Hparams(&object)),
                            None => self.skipped.oversized += 1,
                        },
                        Content::Hparams(_) => self.skipped.oversized += 1,
                        Content::Unreadable => self.skipped.damaged += 1,
                        Content::Other => {}
                    }
                }
            }
            What::FileVersion | What::Other => {}
        }
        Ok(())
    }

    fn lines(&mut self, bytes: &[u8], now: f64, tell: &mut impl FnMut(Item<'_>)) -> usize {
        let mut taken = 0;
        while let Some(length) = bytes[taken..].iter().position(|byte| *byte == b'\n') {
            if !std::mem::take(&mut self.in_long_line) {
                self.line(bytes[taken..taken + length].trim_ascii(), now, tell);
            }
            taken += length + 1;
        }
        // The last line may never get its end. An object that is whole has no more to come: no part of one is one.
        let last = bytes[taken..].trim_ascii();
        if last.ends_with(b"}") && last.len() <= MAX_LINE_LENGTH && !self.in_long_line && lines::line(last).is_some() {
            self.line(last, now, tell);
            taken = bytes.len();
        }
        if bytes.len() - taken > MAX_LINE_LENGTH {
            if !std::mem::replace(&mut self.in_long_line, true) {
                self.skipped.oversized += 1;
            }
            taken = bytes.len();
        }
        taken
    }

    fn line(&mut self, bytes: &[u8], now: f64, tell: &mut impl FnMut(Item<'_>)) {
        if bytes.is_empty() {
            return;
        }
        let Some(line) = lines::line(bytes) else {
            self.skipped.damaged += 1;
            return;
        };
        self.skipped.oversized += line.oversized;
        let step = line.step.unwrap_or(self.next_step);
        self.next_step = step.saturating_add(1);
        let wall_time = line.time.unwrap_or(now);
        for (tag, value) in &line.values {
            tell(Item::Scalar { tag: tag.as_bytes(), step, wall_time, value: *value });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{record::framed, write::Writer};

    #[derive(Clone, Debug, PartialEq)]
    enum Told {
        Scalar(String, i64, f64, f64),
        Start(i64),
        Hparams,
    }

    fn told(item: Item<'_>) -> Told {
        match item {
            Item::Scalar { tag, step, wall_time, value } => {
                Told::Scalar(String::from_utf8(tag.to_owned()).unwrap(), step, wall_time, value)
            }
            Item::Start { step } => Told::Start(step),
            Item::Hparams(_) => Told::Hparams,
            Item::Begin | Item::Skipped(_) => unreachable!("a reader of one file tells neither"),
        }
    }

    fn read(format: Format, pieces: &[&[u8]]) -> (Vec<Told>, Skipped) {
        let mut reader = Reader::new(format);
        let mut items = Vec::new();
        for piece in pieces {
            reader.feed(piece, 99.0, &mut |item| items.push(told(item)));
        }
        (items, reader.take_skipped())
    }

    /// A file of three values and a start.
    fn file() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(&mut bytes, 1.0).unwrap();
        writer.scalar("loss", 1, 1.5, 0.5).unwrap();
        writer.scalar("loss", 2, 2.5, 0.25).unwrap();
        writer.start(2, 3.0).unwrap();
        writer.scalar("a tag with ünicode\n", -1, 3.5, f32::INFINITY).unwrap();
        bytes
    }

    fn expected() -> Vec<Told> {
        vec![
            Told::Scalar("loss".to_owned(), 1, 1.5, 0.5),
            Told::Scalar("loss".to_owned(), 2, 2.5, 0.25),
            Told::Start(2),
            Told::Scalar("a tag with ünicode\n".to_owned(), -1, 3.5, f64::INFINITY),
        ]
    }

    #[test]
    fn a_file_cut_anywhere_is_read_when_its_rest_comes() {
        let bytes = file();
        for cut in 0..=bytes.len() {
            let (first, rest) = bytes.split_at(cut);
            assert_eq!(read(Format::Events, &[first, rest]), (expected(), Skipped::default()), "at {cut}");
            let (before, skipped) = read(Format::Events, &[first]);
            assert!(skipped.is_none() && expected().starts_with(&before), "at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(Format::Events, &single), (expected(), Skipped::default()));
    }

    #[test]
    fn a_wrong_bit_costs_one_record_or_what_follows() {
        let bytes = file();
        for place in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[place] ^= 0x10;
            let (items, skipped) = read(Format::Events, &[&wrong]);
            assert!(!skipped.is_none() || items == expected(), "a wrong bit at {place} is noticed");
            assert!(items.iter().all(|item| expected().contains(item)), "nothing false is told at {place}");
            assert!(skipped.lost || items.len() + 1 >= expected().len(), "at {place}");
        }
    }

    #[test]
    fn what_is_too_large_is_passed_over() {
        let length = (MAX_RECORD_SIZE + 1000).to_le_bytes();
        let mut bytes =
            [&length[..], &crc32c::crc32c(&length).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()].concat();
        bytes.resize(bytes.len() + usize::try_from(MAX_RECORD_SIZE).unwrap() + 1004, 0);
        bytes.extend(file());
        let pieces: Vec<&[u8]> = bytes.chunks(1 << 20).collect();
        let (items, skipped) = read(Format::Events, &pieces);
        assert_eq!(items, expected());
        assert_eq!(skipped, Skipped { oversized: 1, ..Skipped::default() });
    }

    #[test]
    fn lines_are_read_with_their_own_time_or_ours() {
        let long = "x".repeat(3 << 20);
        let text = format!(
            "{{\"loss\": 1}}\n{long}\n\r\nno object\n{{\"step\": 7, \"loss\": 2, \"time\": 5}}\n{{\"loss\": NaN}}\n{{\"loss\": "
        );
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(1000).collect();
        let (items, skipped) = read(Format::Lines, &pieces);
        let loss = |step, time, value| Told::Scalar("loss".to_owned(), step, time, value);
        assert_eq!(items[..2], [loss(0, 99.0, 1.0), loss(7, 5.0, 2.0)]);
        assert!(matches!(&items[2..], [Told::Scalar(_, 8, _, value)] if value.is_nan()));
        assert_eq!(skipped, Skipped { damaged: 1, oversized: 1, ..Skipped::default() });
    }

    #[test]
    fn the_last_line_counts_without_its_end() {
        let text = b"{\"loss\": 1}\n{\"loss\": 2}\n{\"loss\": 3, \"val\": {\"loss\": 4}}";
        let expected = |items: &[Told]| {
            let of = |step, tag: &str, value| Told::Scalar(tag.to_owned(), step, 99.0, value);
            assert_eq!(items, [of(0, "loss", 1.0), of(1, "loss", 2.0), of(2, "loss", 3.0), of(2, "val/loss", 4.0)]);
        };
        for cut in 0..=text.len() {
            let (items, skipped) = read(Format::Lines, &[&text[..cut], &text[cut..]]);
            expected(&items);
            assert!(skipped.is_none());
            // What comes behind it, if it comes: the end of the line, and another.
            let (items, skipped) = read(Format::Lines, &[&text[..cut], &text[cut..], b"\n", b"{\"loss\": 5}\n"]);
            expected(&items[..4]);
            assert_eq!((items.len(), skipped), (5, Skipped::default()));
        }
        let (items, _) = read(Format::Lines, &[&text[..text.len() - 1]]);
        assert_eq!(items.len(), 2, "half an object is no object yet");
    }

    #[test]
    fn copies_in_the_making_are_passed_over() {
        for name in [
            ".events.out.tfevents.1.host.0.Ab3dE9",
            "events.out.tfevents.1.host.part",
            "events.out.tfevents.1.tmp",
            "events.out.tfevents.1.host.crdownload",
            "events.out.tfevents.1.host~",
            ".nfs000000000012tfevents",
            "._events.out.tfevents.1",
            "events.out.tfevents.1.host.filepart",
            ".metrics.jsonl",
            "metrics.jsonl~",
            "run.metrics.jsonl.partial",
            ".model.ckpt.x7Gh21",
            "model.pt.tmp",
            "~metrics.jsonl",
        ] {
            assert_eq!(Format::of(name), None, "{name}");
        }
        for name in
            ["events.out.tfevents.1.part-0.host", "events.out.tfevents.1732.tmp-node.12.0.v2", "a.metrics.jsonl"]
        {
            assert!(Format::of(name).is_some(), "{name}");
        }
    }

    #[test]
    fn numbers_of_all_types_are_values_and_others_are_counted() {
        let tensors: [(&[u8], f64); 4] = [
            (&[8, 4, 7 << 3 | 2, 2, 0xc8, 1], 200.0),
            (&[8, 10, 11 << 3, 1], 1.0),
            (&[8, 1], 0.0),
            (&[8, 23, 0x8a, 1, 1, 7], 7.0),
        ];
        let record = |tensor: &[u8]| {
            let field = |key: u8, bytes: &[u8]| [&[key << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
            framed(&field(5, &field(1, &[field(1, b"loss"), field(8, tensor)].concat())))
        };
        for (tensor, value) in tensors {
            let (items, skipped) = read(Format::Events, &[&record(tensor)]);
            assert_eq!(items, [Told::Scalar("loss".to_owned(), 0, 0.0, value)]);
            assert!(skipped.is_none());
        }
        let complex = [8, 8, 9 << 3 | 2, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        let (items, skipped) = read(Format::Events, &[&record(&complex)]);
        assert_eq!((items.len(), skipped), (0, Skipped { damaged: 1, ..Skipped::default() }));
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_all_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200, at in 0_usize..200, is_lines in any::<bool>(),
        ) {
            let mut all = file();
            let at = at % all.len();
            all.splice(at..at, bytes);
            let cut = cut % all.len();
            let format = if is_lines { Format::Lines } else { Format::Events };
            let mut reader = Reader::new(format);
            for piece in [&all[..cut], &all[cut..]] {
                reader.feed(piece, 0.0, &mut |_| {});
            }
            prop_assert_eq!(reader.sum(), Some(crc32c::crc32c(&all)));
            let place = reader.place(all.len() as u64, (1, 2));
            let read = usize::try_from(place.read).unwrap();
            prop_assert_eq!(place.sum, Some(crc32c::crc32c(&all[..read])));
        }

        #[test]
        fn pieces_do_not_matter(cuts in proptest::collection::vec(0_usize..400, 0..12)) {
            let bytes = file();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(Format::Events, &pieces), (expected(), Skipped::default()));
        }

        #[test]
        fn no_file_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read(Format::Events, &[&bytes]);
            read(Format::Lines, &[&bytes]);
            // A frame that fits lets strange messages through to the rest.
            let framed = framed(&bytes);
            let (_, skipped) = read(Format::Events, &[&framed]);
            prop_assert!(!skipped.lost);
        }
    }
}
