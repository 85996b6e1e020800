//! A directory of runs, followed while programs write into it. Files are found by name and
//! looked at by size, because homes lie on network file systems, where nobody is told of
//! changes; each byte is read once. Runs in the process that has the rights of the user whose
//! files they are.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    growth::{self, Growth},
    log::{Entry, Place},
    reader::{Format, Item, Reader},
    whole,
};

/// Directories deeper than this are not looked into, nor more of them; and so many files are
/// followed, whose names together have at most so many bytes.
const DEEPEST: usize = 12;
const MOST_DIRECTORIES: usize = 20_000;
const MOST_FILES: usize = 20_000;
const MOST_NAMES: usize = 8 << 20;

/// So many checkpoints are noticed: they must not take the place of curves.
const MOST_CHECKPOINTS: usize = 2000;

/// The files of runs below one directory.
#[derive(Debug)]
pub struct Tail {
    root: PathBuf,
    files: BTreeMap<PathBuf, Followed>,
    /// The bytes of their names.
    names: usize,
    /// How many of the files are checkpoints.
    checkpoints: usize,
    /// Bytes that were read in all.
    pub bytes: u64,
    /// What could not be looked at, and why, as far as it was last tried.
    pub unreadable: BTreeMap<PathBuf, io::ErrorKind>,
    /// More files than are followed, or names that are no text, were found at the last look.
    pub left_out: u64,
}

#[derive(Debug)]
struct Followed {
    how: How,
    read: u64,
    /// The device and the number of the file; another file of the same name is another attempt.
    identity: (u64, u64),
}

#[derive(Debug)]
enum How {
    /// It grows at its end.
    Growing(Reader),
    /// It is written anew as a whole. When that was (nanoseconds since 1970), and the step of the
    /// next value that is news.
    Whole { stamp: u64, next_step: i64 },
}

impl How {
    fn new(format: Format) -> Self {
        match format {
            Format::Events | Format::Lines => Self::Growing(Reader::new(format)),
            Format::Hparams | Format::State | Format::Checkpoint => Self::Whole { stamp: 0, next_step: i64::MIN },
        }
    }

    fn resume(format: Format, place: &Place) -> Self {
        match format {
            Format::Events | Format::Lines => Self::Growing(Reader::resume(format, place.skip, place.next_step)),
            Format::Hparams | Format::State | Format::Checkpoint => {
                Self::Whole { stamp: place.skip, next_step: place.next_step }
            }
        }
    }
}

impl Tail {
    /// Goes on where others have stopped; from the beginning of what `places` do not name.
    pub fn new(root: PathBuf, places: &BTreeMap<String, Place>) -> Self {
        let files = places.iter().filter_map(|(name, place)| {
            let how = How::resume(Format::of(file_name(name))?, place);
            Some((root.join(name), Followed { how, read: place.read, identity: place.identity }))
        });
        let names = places.keys().map(String::len).sum();
        let checkpoints = places.keys().filter(|name| is_checkpoint(name)).count();
        let (files, unreadable) = (files.collect(), BTreeMap::new());
        Self { files, names, checkpoints, root, bytes: 0, unreadable, left_out: 0 }
    }

    /// Looks for files, and tells what is new in each; whether there may be more at once. `now`
    /// is in seconds since 1970. Runs are named by their directories; “.” is the root itself.
    pub fn poll(&mut self, now: f64, tell: &mut impl FnMut(Entry<'_>)) -> bool {
        self.unreadable.clear();
        self.left_out = 0;
        let found = self.find();
        // Where there are event files they say the same, and when.
        let has_events = found.iter().any(|(_, format)| *format == Format::Events);
        let mut grown = Vec::new();
        // In the order of their names, which begin with the time of their making.
        for (path, format) in found {
            if format == Format::State && has_events {
                continue;
            }
            match self.follow(&path, format, grown.len(), tell) {
                Ok(growth) => grown.extend(growth),
                Err(err) => {
                    self.unreadable.insert(path, err.kind());
                }
            }
        }
        let mut more = false;
        for (growth, unfinished) in growth::read(grown, now, tell) {
            let Growth { path, identity, read, reader, from, .. } = growth;
            self.bytes += read - from;
            match unfinished {
                Ok(unfinished) => more |= unfinished,
                Err(err) => {
                    self.unreadable.insert(path.clone(), err.kind());
                }
            }
            self.files.insert(path, Followed { how: How::Growing(reader), read, identity });
        }
        more
    }

    /// Tells what is new in a file that is written as a whole. Of one that grows, what is to be read of it.
    /// `taken` others are out to be read.
    fn follow(
        &mut self,
        path: &Path,
        format: Format,
        taken: usize,
        tell: &mut impl FnMut(Entry<'_>),
    ) -> io::Result<Option<Growth>> {
        let metadata = fs::metadata(path)?;
        let identity = (metadata.dev(), metadata.ino());
        let Some(file) = path.strip_prefix(&self.root).ok().and_then(Path::to_str).map(str::to_owned) else {
            self.left_out += 1;
            return Ok(None);
        };
        let known = self.files.get(path);
        if known.is_none() && (MOST_FILES <= self.files.len() + taken || MOST_NAMES < self.names + file.len()) {
            self.left_out += 1;
            return Ok(None);
        }
        let is_whole = matches!(format, Format::Hparams | Format::State | Format::Checkpoint);
        if known.is_none() && format == Format::Checkpoint {
            if MOST_CHECKPOINTS <= self.checkpoints {
                return Ok(None);
            }
            self.checkpoints += 1;
        }
        let is_other = |known: &Followed| known.identity != identity || metadata.len() < known.read;
        let is_new = known.is_none() || !is_whole && known.is_some_and(is_other);
        if known.is_none() {
            self.names += file.len();
        }
        if is_new {
            self.files.insert(path.to_owned(), Followed { how: How::new(format), read: 0, identity });
        }
        if format == Format::Checkpoint {
            self.mark(path, &file, &metadata, tell);
            return Ok(None);
        }
        if is_whole {
            return self.look(path, &file, format, &metadata, tell).map(|()| None);
        }
        let grows = |followed: &Followed| is_new || followed.read < metadata.len();
        if !self.files.get(path).is_some_and(grows) {
            return Ok(None);
        }
        // It comes back once it was read.
        let Some(Followed { how: How::Growing(reader), read, identity }) = self.files.remove(path) else {
            return Ok(None);
        };
        let (run, path, size) = (run_of(&file, format).to_owned(), path.to_owned(), metadata.len());
        Ok(Some(Growth { path, file, run, identity, is_new, from: read, read, size, reader }))
    }

    /// A checkpoint: tells that it was written, and when, if that is news.
    fn mark(&mut self, path: &Path, file: &str, metadata: &Metadata, tell: &mut impl FnMut(Entry<'_>)) {
        let Some(Followed { how: How::Whole { stamp, .. }, read, identity }) = self.files.get_mut(path) else { return };
        let now = (whole::stamp(metadata), metadata.len(), (metadata.dev(), metadata.ino()));
        if (*stamp, *read, *identity) != now {
            (*stamp, *read, *identity) = now;
            let place = Place { read: now.1, skip: now.0, next_step: i64::MIN, identity: now.2 };
            tell(Entry::Place { file, place });
        }
    }

    /// A file that is written anew as a whole: tells what it says if it has changed.
    fn look(
        &mut self,
        path: &Path,
        file: &str,
        format: Format,
        metadata: &Metadata,
        tell: &mut impl FnMut(Entry<'_>),
    ) -> io::Result<()> {
        let run = run_of(file, format);
        // The checkpoints of a run each tell all from the beginning.
        let told = |(path, followed): (&PathBuf, &Followed)| {
            let file = path.strip_prefix(&self.root).ok()?.to_str()?;
            let How::Whole { next_step, .. } = followed.how else { return None };
            (Format::of(file_name(file)) == Some(format) && run_of(file, format) == run).then_some(next_step)
        };
        let next_step = self.files.iter().filter_map(told).max().unwrap_or(i64::MIN);
        let Some(followed) = self.files.get_mut(path) else { return Ok(()) };
        let identity = (metadata.dev(), metadata.ino());
        let now = whole::stamp(metadata);
        let How::Whole { stamp, next_step: next } = &mut followed.how else { return Ok(()) };
        if (*stamp, followed.read, followed.identity) == (now, metadata.len(), identity) {
            return Ok(());
        }
        self.bytes += metadata.len().min(whole::LARGEST);
        *next = whole::read(path, format, next_step, &mut |item: Item<'_>| tell(Entry::Item { run, item }))?;
        (*stamp, followed.read, followed.identity) = (now, metadata.len(), identity);
        let place = Place { read: metadata.len(), skip: now, next_step: *next, identity };
        tell(Entry::Place { file, place });
        Ok(())
    }

    /// The files of values below the root, links followed, each directory once.
    fn find(&mut self) -> Vec<(PathBuf, Format)> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut waiting = vec![(self.root.clone(), 0)];
        while let Some((directory, depth)) = waiting.pop() {
            let entries = fs::metadata(&directory).and_then(|metadata| {
                let first = seen.insert((metadata.dev(), metadata.ino()));
                if first && seen.len() <= MOST_DIRECTORIES { fs::read_dir(&directory).map(Some) } else { Ok(None) }
            });
            let entries = match entries {
                Ok(Some(entries)) => entries,
                Ok(None) => continue,
                Err(err) => {
                    self.unreadable.insert(directory, err.kind());
                    continue;
                }
            };
            for entry in entries.flatten() {
                let path = entry.path();
                let format = Format::of(&entry.file_name().to_string_lossy());
                let kind = entry.file_type().and_then(|kind| {
                    if kind.is_symlink() { fs::metadata(&path).map(|metadata| metadata.file_type()) } else { Ok(kind) }
                });
                match (kind, format) {
                    (Ok(kind), _) if kind.is_dir() && depth < DEEPEST => waiting.push((path, depth + 1)),
                    (Ok(kind), Some(format)) if kind.is_file() => found.push((path, format)),
                    _ => {}
                }
            }
        }
        found.sort();
        found
    }
}

/// A run is named by its directory below the root. The states that the checkpoints of a trainer
/// hold belong to the directory above them.
fn run_of(file: &str, format: Format) -> &str {
    let directory = |path| Path::new(path).parent().and_then(Path::to_str).filter(|name| !name.is_empty());
    let parent = directory(file).unwrap_or(".");
    match format {
        Format::State if file_name(parent).starts_with("checkpoint-") => directory(parent).unwrap_or("."),
        _ => parent,
    }
}

/// Whether this file, named below the root, is one that a training can go on from.
pub fn is_checkpoint(file: &str) -> bool {
    Format::of(file_name(file)) == Some(Format::Checkpoint)
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, OpenOptions},
        os::unix::fs::symlink,
    };

    use tempfile::TempDir;

    use super::*;
    use crate::curves::{run::Runs, write::Writer};

    /// A tail, and what it has told.
    struct Watch {
        tail: Tail,
        runs: Runs,
        places: BTreeMap<String, Place>,
    }

    impl Watch {
        fn new(root: &TempDir) -> Self {
            let tail = Tail::new(root.path().to_owned(), &BTreeMap::new());
            Self { tail, runs: Runs::default(), places: BTreeMap::new() }
        }

        fn poll(&mut self) -> bool {
            self.tail.poll(0.0, &mut |entry| match entry {
                Entry::Item { run, item } => self.runs.take(run, item),
                Entry::Place { file, place } => {
                    self.places.insert(file.to_owned(), place);
                }
            })
        }

        fn values(&self, run: &str, tag: &str) -> Vec<(i64, f64)> {
            let Some(series) = self.runs.get(run).and_then(|run| run.curve(tag)) else { return Vec::new() };
            let points = series.visible().into_iter().flatten().map(|index| series.get(index));
            points.map(|point| (point.step, point.value)).collect()
        }
    }

    fn create(path: &Path) -> Writer<File> {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        Writer::begin(File::create(path).unwrap(), 0.0).unwrap()
    }

    #[test]
    fn files_are_followed_and_each_byte_is_read_once() {
        let root = TempDir::new().unwrap();
        let mut watch = Watch::new(&root);
        assert!(!watch.poll());
        assert!(watch.runs.is_empty());
        let train = root.path().join("train/events.out.tfevents.1.host");
        let mut writer = create(&train);
        let mut whole = create(&root.path().join("events.out.tfevents.1.host"));
        whole.scalar("loss", 0, 0.0, 9.0).unwrap();
        for step in 0_u8..50 {
            writer.scalar("loss", step.into(), 0.0, step.into()).unwrap();
            watch.poll();
            assert_eq!(watch.values("train", "loss").len(), usize::from(step) + 1);
        }
        assert_eq!(watch.values(".", "loss"), [(0, 9.0)]);
        let size = fs::metadata(&train).unwrap().len()
            + fs::metadata(root.path().join("events.out.tfevents.1.host")).unwrap().len();
        assert_eq!(watch.tail.bytes, size);
        watch.poll();
        assert_eq!(watch.tail.bytes, size);
    }

    #[test]
    fn a_second_file_goes_on_with_the_same_curve() {
        let root = TempDir::new().unwrap();
        let mut first = create(&root.path().join("events.out.tfevents.1.host"));
        let mut watch = Watch::new(&root);
        for step in 0..6 {
            first.scalar("loss", step, 0.0, 1.0).unwrap();
        }
        first.scalar("other", 5, 0.0, 1.0).unwrap();
        watch.poll();
        let mut second = create(&root.path().join("events.out.tfevents.2.host"));
        second.start(3, 0.0).unwrap();
        watch.poll();
        assert_eq!(watch.values(".", "loss").len(), 3);
        assert!(watch.values(".", "other").is_empty(), "what began anew holds for all curves of the run");
        second.scalar("loss", 3, 0.0, 2.0).unwrap();
        watch.poll();
        assert_eq!(watch.values(".", "loss"), [(0, 1.0), (1, 1.0), (2, 1.0), (3, 2.0)]);
        let series = watch.runs.get(".").unwrap().curve("loss").unwrap();
        assert_eq!((series.len(), series.last().unwrap().attempt), (7, 1));
    }

    #[test]
    fn whoever_goes_on_reads_no_byte_twice() {
        let root = TempDir::new().unwrap();
        let file = root.path().join("a/events.out.tfevents.1.host");
        let lines = root.path().join("a/metrics.jsonl");
        let mut whole = Vec::new();
        let mut writer = Writer::begin(&mut whole, 0.0).unwrap();
        for step in 0..5 {
            writer.scalar("loss", step, 0.0, 1.0).unwrap();
        }
        fs::create_dir(root.path().join("a")).unwrap();
        let text = b"{\"line\": 1}\n{\"line\": 2}\n{\"line\": 3}\n";
        let mut watch = Watch::new(&root);
        for cut in 0..whole.len() {
            fs::write(&file, &whole[..=cut]).unwrap();
            fs::write(&lines, &text[..text.len().min(cut)]).unwrap();
            // Another process each time, which knows the places alone.
            watch.tail = Tail::new(root.path().to_owned(), &watch.places);
            watch.poll();
            assert!(watch.tail.bytes <= 80, "the record in the making and the line in the making alone are read again");
        }
        assert_eq!(watch.values("a", "loss"), [0, 1, 2, 3, 4].map(|step| (step, 1.0)));
        assert_eq!(watch.values("a", "line"), [(0, 1.0), (1, 2.0), (2, 3.0)]);
        assert_eq!(watch.runs.get("a").unwrap().curve("loss").unwrap().len(), 5);
    }

    #[test]
    fn loops_cuts_and_what_goes_away_do_no_harm() {
        let root = TempDir::new().unwrap();
        let file = root.path().join("a/events.out.tfevents.1.host");
        let mut writer = create(&file);
        writer.scalar("loss", 1, 0.0, 1.0).unwrap();
        symlink(root.path(), root.path().join("a/loop")).unwrap();
        symlink("nowhere", root.path().join("events.out.tfevents.gone")).unwrap();
        fs::write(root.path().join("a/metrics.jsonl"), "{\"loss\": 3, \"step\": 9}\n").unwrap();
        let mut watch = Watch::new(&root);
        watch.poll();
        assert_eq!(watch.values("a", "loss"), [(1, 1.0), (9, 3.0)]);
        assert_eq!(watch.runs.iter().len(), 1);

        // Cut and written anew: the same name, another attempt.
        OpenOptions::new().write(true).truncate(true).open(&file).unwrap();
        watch.poll();
        let mut writer = create(&file);
        writer.scalar("loss", 0, 0.0, 7.0).unwrap();
        watch.poll();
        assert_eq!(watch.values("a", "loss"), [(0, 7.0)]);
        fs::remove_dir_all(root.path().join("a")).unwrap();
        assert!(!watch.poll());
        assert_eq!(watch.runs.get("a").unwrap().curve("loss").unwrap().len(), 3, "what was read is kept");
        fs::remove_dir_all(root.path()).unwrap();
        watch.poll();
        assert_eq!(watch.tail.unreadable.len(), 1, "and the missing root is told");
    }

    #[test]
    fn what_is_written_beside_the_curves_is_read_once() {
        let root = TempDir::new().unwrap();
        let mut watch = Watch::new(&root);
        let state = |steps: std::ops::Range<i64>| {
            let entries: Vec<String> = steps
                .map(|step| format!("{{\"loss\": {step}.5, \"eval_loss\": NaN, \"epoch\": 1.0, \"step\": {step}}}"))
                .collect();
            format!("{{\"best_metric\": null, \"log_history\": [{}]}}", entries.join(", "))
        };
        for (checkpoint, steps) in [("checkpoint-3", 1..4), ("checkpoint-5", 1..6)] {
            fs::create_dir(root.path().join(checkpoint)).unwrap();
            fs::write(root.path().join(checkpoint).join("trainer_state.json"), state(steps)).unwrap();
            watch.poll();
            // Another process goes on.
            watch.tail = Tail::new(root.path().to_owned(), &watch.places);
            watch.poll();
        }
        assert_eq!(watch.values(".", "train/loss"), [(1, 1.5), (2, 2.5), (3, 3.5), (4, 4.5), (5, 5.5)]);
        assert_eq!(watch.runs.get(".").unwrap().curve("train/loss").unwrap().len(), 5);
        assert!(watch.values(".", "eval/loss")[0].1.is_nan());

        fs::write(root.path().join("hparams.yaml"), "lr: 0.5\n").unwrap();
        watch.poll();
        assert_eq!(watch.runs.get(".").unwrap().hparams["lr"], 0.5);
        let read = watch.tail.bytes;
        watch.poll();
        assert_eq!(watch.tail.bytes, read);
        fs::write(root.path().join("hparams.yaml"), "lr: 0.25\nmore: 1\n").unwrap();
        watch.poll();
        assert_eq!(watch.runs.get(".").unwrap().hparams["lr"], 0.25);
        // With event files the states say nothing new.
        create(&root.path().join("runs/now/events.out.tfevents.1.host")).scalar("train/loss", 6, 0.0, 6.0).unwrap();
        fs::write(root.path().join("trainer_state.json"), state(1..9)).unwrap();
        watch.poll();
        assert_eq!(watch.values(".", "train/loss").len(), 5);
        assert_eq!(watch.values("runs/now", "train/loss").len(), 1);
    }

    #[test]
    fn checkpoints_are_noticed_and_not_read() {
        let root = TempDir::new().unwrap();
        let mut writer = create(&root.path().join("events.out.tfevents.1.host"));
        writer.scalar("loss", 0, 0.0, 1.0).unwrap();
        fs::create_dir_all(root.path().join("checkpoints")).unwrap();
        let write = |name: &str| fs::write(root.path().join(name), "weights").unwrap();
        for name in ["checkpoints/epoch=0-step=9.ckpt", "model.keras", "best.weights.h5", "checkpoint.json"] {
            write(name);
        }
        for name in ["checkpoint.part", "notes.txt", "train.py", "data.h5", "checkpoints.md"] {
            write(name);
        }
        let mut watch = Watch::new(&root);
        watch.poll();
        let noticed: Vec<&str> = watch.places.keys().map(String::as_str).filter(|name| is_checkpoint(name)).collect();
        let expected = ["best.weights.h5", "checkpoint.json", "checkpoints/epoch=0-step=9.ckpt", "model.keras"];
        assert_eq!(noticed, expected);
        assert_eq!(watch.runs.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["."], "no curve is made of them");
        let size = fs::metadata(root.path().join("events.out.tfevents.1.host")).unwrap().len();
        assert_eq!(watch.tail.bytes, size);
        // Whoever goes on from there is told nothing twice, and of one that was written anew once.
        let mut tail = Tail::new(root.path().to_owned(), &watch.places);
        let told = |tail: &mut Tail| {
            let mut told = Vec::new();
            tail.poll(0.0, &mut |entry| {
                told.extend(matches!(entry, Entry::Place { file: "model.keras", .. }).then_some(()));
            });
            told.len()
        };
        assert_eq!(told(&mut tail), 0);
        write("model.part");
        fs::rename(root.path().join("model.part"), root.path().join("model.keras")).unwrap();
        assert_eq!((told(&mut tail), told(&mut tail)), (1, 0));
    }

    #[test]
    fn many_checkpoints_take_no_place_of_a_curve() {
        let root = TempDir::new().unwrap();
        for number in 0..MOST_CHECKPOINTS + 5 {
            File::create(root.path().join(format!("a{number}.pt"))).unwrap();
        }
        let mut writer = create(&root.path().join("events.out.tfevents.1.host"));
        writer.scalar("loss", 0, 0.0, 1.0).unwrap();
        let mut watch = Watch::new(&root);
        watch.poll();
        assert_eq!(watch.places.keys().filter(|name| is_checkpoint(name)).count(), MOST_CHECKPOINTS);
        assert_eq!((watch.values(".", "loss").len(), watch.tail.left_out), (1, 0));
    }
}
