//! Files of runs as programs and copiers leave them: growing, replaced, cut, copied, gone. Each test
//! looks at a directory as the agent does, and at what is kept of it.

use std::{fmt::Write, fs::OpenOptions, os::unix::fs::symlink};

use tempfile::TempDir;

use super::*;
use crate::{
    log::{Decoder, Encoder},
    run::Runs,
    store::Store,
    write::Writer,
};

/// A tail, and what it has reported.
struct Watch {
    tail: Tail,
    runs: Runs,
    places: BTreeMap<String, ReadPosition>,
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

    // Truncated and rewritten: the same name, another attempt.
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

/// Six copies of a growing file, each put in the place of the one before, as rsync does without `--inplace`.
fn synced(name: &str, whole: &[u8], most_points: u64) -> Store {
    let (root, kept) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut store = Store::open(&kept.path().join("points"), most_points).unwrap();
    let mut look = || {
        // Another process each time, which knows what the portal says.
        let mut places = BTreeMap::new();
        let told = Decoder::default().batch(&store.places(), &mut |entry| {
            if let Entry::Place { file, place } = entry {
                places.insert(file.to_owned(), place);
            }
        });
        told.unwrap();
        let mut encoder = Encoder::default();
        while Tail::new(root.path().to_owned(), &places).poll(0.0, &mut |entry| {
            encoder.entry(&entry);
        }) {}
        store.add(&mut Decoder::default(), &encoder.take(), &mut |_| {}).unwrap();
    };
    for sync in 1..=6 {
        let part = &whole[..whole.len() * sync / 6];
        let temporary = root.path().join(format!(".{name}.Ab3dE{sync}"));
        for written in [part.len() / 2, part.len()] {
            fs::write(&temporary, &part[..written]).unwrap();
            look();
        }
        fs::rename(&temporary, root.path().join(name)).unwrap();
        look();
        look();
    }
    store
}

#[test]
fn a_copy_that_replaces_another_goes_on() {
    let mut events = Vec::new();
    let mut writer = Writer::begin(&mut events, 0.0).unwrap();
    let mut lines = String::new();
    for step in 0_u16..590 {
        writer.scalar("loss", step.into(), 0.0, step.into()).unwrap();
        writeln!(lines, "{{\"loss\": {step}}}").unwrap();
    }
    for (name, whole) in [("events.out.tfevents.1.host", &events[..]), ("metrics.jsonl", lines.as_bytes())] {
        // The newest are kept where there is room for all, once.
        let store = synced(name, whole, 600);
        let series = store.runs.get(".").unwrap().curve("loss").unwrap();
        let expected: Vec<(i64, f64)> = (0_u16..590).map(|step| (step.into(), step.into())).collect();
        let points: Vec<(i64, f64)> = series.points().map(|point| (point.step, point.value)).collect();
        assert!(points == expected, "{name}: {} points", points.len());
        assert_eq!((series.attempts().count(), store.points()), (1, 590), "{name}");
        assert!(store.runs.values().all(|run| run.skipped.is_none()));
        assert_eq!(store.places.keys().collect::<Vec<_>>(), [name], "no copy in the making is followed");
    }
}

#[test]
fn a_file_that_begins_otherwise_is_another_attempt() {
    let root = TempDir::new().unwrap();
    let file = root.path().join("metrics.jsonl");
    let mut watch = Watch::new(&root);
    let mut put = |text: &str, expected: &[(i64, f64)]| {
        fs::write(root.path().join("metrics.new"), text).unwrap();
        fs::rename(root.path().join("metrics.new"), &file).unwrap();
        watch.poll();
        assert_eq!(watch.values(".", "a"), expected, "{text}");
        watch.runs.get(".").unwrap().curve("a").unwrap().attempts().count()
    };
    assert_eq!(put("{\"a\": 1}\n{\"a\": 2}\n", &[(0, 1.0), (1, 2.0)]), 1);
    assert_eq!(put("{\"a\": 1}\n{\"a\": 2}\n{\"a\": 3", &[(0, 1.0), (1, 2.0)]), 1);
    assert_eq!(put("{\"a\": 1}\n{\"a\": 2}\n{\"a\": 3}\n", &[(0, 1.0), (1, 2.0), (2, 3.0)]), 1);
    assert_eq!(put("{\"a\": 1}\n{\"a\": 9}\n{\"a\": 3}\n{\"a\": 4}\n", &[(0, 1.0), (1, 9.0), (2, 3.0), (3, 4.0)]), 2);
    assert_eq!(put("{\"a\": 1}\n", &[(0, 1.0)]), 3, "and so is a shorter one");
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
    // A later reader gets nothing twice, and a rewritten file once.
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
fn the_step_is_the_one_that_a_checkpoint_in_json_says() {
    let root = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
    write("checkpoint.json", "{\"step\": 300, \"weights\": [1, 2]}\n");
    write("weights.json", "{\"layers\": []}");
    write("large.checkpoint.json", &format!("{{\"step\": 7, \"weights\": \"{}\"}}", "x".repeat(70 << 10)));
    write("model.pt", "{\"step\": 8}");
    let mut watch = Watch::new(&root);
    watch.poll();
    let steps: Vec<(&str, i64)> = watch.places.iter().map(|(file, place)| (file.as_str(), place.next_step)).collect();
    let none = i64::MIN;
    let expected =
        [("checkpoint.json", 300), ("large.checkpoint.json", none), ("model.pt", none), ("weights.json", none)];
    assert_eq!(steps, expected);
}

#[test]
fn many_checkpoints_take_no_place_of_a_curve() {
    let root = TempDir::new().unwrap();
    for number in 0..MAX_CHECKPOINTS + 5 {
        File::create(root.path().join(format!("a{number}.pt"))).unwrap();
    }
    let mut writer = create(&root.path().join("events.out.tfevents.1.host"));
    writer.scalar("loss", 0, 0.0, 1.0).unwrap();
    let mut watch = Watch::new(&root);
    watch.poll();
    assert_eq!(watch.places.keys().filter(|name| is_checkpoint(name)).count(), MAX_CHECKPOINTS);
    assert_eq!((watch.values(".", "loss").len(), watch.tail.left_out), (1, 0));
}
