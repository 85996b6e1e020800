//! A directory of runs, followed while programs write into it. Files are found by name and
//! looked at by size, because homes lie on network file systems, where nobody is told of
//! changes; each byte is read once. Runs in the process that has the rights of the user whose
//! files they are.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    log::{Entry, Place},
    reader::{Format, Item, Reader},
};

/// Directories deeper than this are not looked into, nor more of them.
const DEEPEST: usize = 12;
const MOST_DIRECTORIES: usize = 20_000;

/// How much of a file is read at a time (bytes).
const PIECE: usize = 256 << 10;

/// So much of a file is read before the others have their turn (bytes).
const TURN: u64 = 64 << 20;

/// The files of runs below one directory.
#[derive(Debug)]
pub struct Tail {
    root: PathBuf,
    files: BTreeMap<PathBuf, Followed>,
    /// Bytes that were read in all.
    pub bytes: u64,
    /// What could not be looked at, and why, as far as it was last tried.
    pub unreadable: BTreeMap<PathBuf, io::ErrorKind>,
}

#[derive(Debug)]
struct Followed {
    reader: Reader,
    read: u64,
    /// The device and the number of the file; another file of the same name is another attempt.
    identity: (u64, u64),
}

impl Tail {
    /// Goes on where others have stopped; from the beginning of what `places` do not name.
    pub fn new(root: PathBuf, places: &BTreeMap<String, Place>) -> Self {
        let files = places.iter().filter_map(|(name, place)| {
            let reader = Reader::resume(Format::of(name)?, place.skip, place.next_step);
            Some((root.join(name), Followed { reader, read: place.read, identity: place.identity }))
        });
        Self { files: files.collect(), root, bytes: 0, unreadable: BTreeMap::new() }
    }

    /// Looks for files, and tells what is new in each; whether there may be more at once. `now`
    /// is in seconds since 1970. Runs are named by their directories; “.” is the root itself.
    pub fn poll(&mut self, now: f64, tell: &mut impl FnMut(Entry<'_>)) -> bool {
        self.unreadable.clear();
        let mut more = false;
        // In the order of their names, which begin with the time of their making.
        for (path, format) in self.find() {
            match self.follow(&path, format, now, tell) {
                Ok(unfinished) => more |= unfinished,
                Err(err) => {
                    self.unreadable.insert(path, err.kind());
                }
            }
        }
        more
    }

    fn follow(&mut self, path: &Path, format: Format, now: f64, tell: &mut impl FnMut(Entry<'_>)) -> io::Result<bool> {
        let metadata = fs::metadata(path)?;
        let identity = (metadata.dev(), metadata.ino());
        let run = self.name_of(path);
        let run = run.as_str();
        let known = self.files.get(path);
        if known.is_none_or(|known| known.identity != identity || metadata.len() < known.read) {
            self.files.insert(path.to_owned(), Followed { reader: Reader::new(format), read: 0, identity });
            tell(Entry::Item { run, item: Item::Begin });
        }
        let Some(followed) = self.files.get_mut(path).filter(|followed| followed.read < metadata.len()) else {
            return Ok(false);
        };
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(followed.read))?;
        let mut piece = vec![0; PIECE];
        let mut read = 0;
        while read < TURN {
            let count = file.read(&mut piece)?;
            if count == 0 {
                break;
            }
            read += count as u64;
            followed.reader.feed(&piece[..count], now, &mut |item: Item<'_>| tell(Entry::Item { run, item }));
        }
        followed.read += read;
        self.bytes += read;
        let skipped = followed.reader.take_skipped();
        if !skipped.is_none() {
            tell(Entry::Item { run, item: Item::Skipped(skipped) });
        }
        let reader = &followed.reader;
        let place = Place {
            read: followed.read - reader.held() as u64,
            skip: reader.skip(),
            next_step: reader.next_step(),
            identity,
        };
        if let Some(file) = path.strip_prefix(&self.root).ok().and_then(Path::to_str) {
            tell(Entry::Place { file, place });
        }
        Ok(read >= TURN)
    }

    /// A run is named by its directory below the root.
    fn name_of(&self, path: &Path) -> String {
        let below = path.parent().and_then(|parent| parent.strip_prefix(&self.root).ok()).unwrap_or(Path::new(""));
        if below.as_os_str().is_empty() { ".".to_owned() } else { below.to_string_lossy().into_owned() }
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

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, os::unix::fs::symlink};

    use tempfile::TempDir;

    use super::*;
    use crate::curves::{
        run::{MOST_TAGS, Run, Runs},
        write::Writer,
    };

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
            let Some(series) = self.runs.0.get(run).and_then(|run| run.curve(tag)) else { return Vec::new() };
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
        assert!(watch.runs.0.is_empty());
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
        let series = watch.runs.0["."].curve("loss").unwrap();
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
        assert_eq!(watch.runs.0["a"].curve("loss").unwrap().len(), 5);
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
        assert_eq!(watch.runs.0.len(), 1);

        // Cut and written anew: the same name, another attempt.
        OpenOptions::new().write(true).truncate(true).open(&file).unwrap();
        watch.poll();
        let mut writer = create(&file);
        writer.scalar("loss", 0, 0.0, 7.0).unwrap();
        watch.poll();
        assert_eq!(watch.values("a", "loss"), [(0, 7.0)]);
        fs::remove_dir_all(root.path().join("a")).unwrap();
        assert!(!watch.poll());
        assert_eq!(watch.runs.0["a"].curve("loss").unwrap().len(), 3, "what was read is kept");
        fs::remove_dir_all(root.path()).unwrap();
        watch.poll();
        assert_eq!(watch.tail.unreadable.len(), 1, "and the missing root is told");
    }

    #[test]
    fn many_names_are_bounded() {
        let mut run = Run::default();
        for number in 0..MOST_TAGS + 5 {
            let tag = format!("tag {number}");
            run.take(Item::Scalar { tag: tag.as_bytes(), step: 0, wall_time: 0.0, value: 1.0 });
        }
        assert_eq!(run.surplus, 5);
        assert_eq!(run.curves().count(), MOST_TAGS);
    }
}
