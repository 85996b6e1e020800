//! Curves beside TensorBoard's own reader: what its code writes and what ours writes is read
//! by both, and every point is the same. Python is `LYCEUM_TEST_PYTHON`'s, which `./test`
//! provides.

use std::{collections::BTreeMap, fs::File, path::Path, process::Command};

use lyceum::curves::{Run, Runs, Series, Tail, log::Entry, write::Writer};
use tempfile::TempDir;

use crate::needs::{met, variable};

/// By run and tag: step, and the bits of wall time and value.
type Curves = BTreeMap<String, BTreeMap<String, Vec<(i64, i64, i64)>>>;

fn reference(verb: &str, root: &Path) -> Option<Vec<u8>> {
    let python = variable("LYCEUM_TEST_PYTHON");
    met("a Python with TensorBoard (LYCEUM_TEST_PYTHON)", python.is_some()).then_some(())?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/curves/reference.py");
    let output = Command::new(python?).arg(script).arg(verb).arg(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

fn ours(root: &Path) -> Curves {
    let mut tail = Tail::new(root.to_owned(), &BTreeMap::new());
    let mut runs = Runs::default();
    let mut tell = |entry: Entry<'_>| {
        if let Entry::Item { run, item } = entry {
            runs.take(run, item);
        }
    };
    while tail.poll(0.0, &mut tell) {}
    assert!(tail.unreadable.is_empty() && runs.values().all(|run| run.skipped.is_none()));
    let bits = |number: f64| number.to_bits().cast_signed();
    let points =
        |series: &Series| series.points().map(|point| (point.step, bits(point.wall_time), bits(point.value))).collect();
    let curves = |run: &Run| run.curves().map(|(tag, series)| (tag.to_owned(), points(series))).collect();
    runs.iter().map(|(name, run)| (name.to_owned(), curves(run))).collect()
}

#[test]
fn what_tensorboard_writes_is_read_as_tensorboard_reads_it() {
    let root = TempDir::new().unwrap();
    if reference("write", root.path()).is_none() {
        return;
    }
    let expected: Curves = serde_json::from_slice(&reference("read", root.path()).unwrap()).unwrap();
    assert_eq!(expected.len(), 3);
    assert!(expected.values().all(|tags| tags.len() == 9 && tags.values().all(|points| points.len() == 300)));
    assert!(ours(root.path()) == expected, "a point differs");
}

#[test]
fn what_we_write_is_read_by_tensorboard() {
    let root = TempDir::new().unwrap();
    for (run, tags) in [("a", 3), ("b", 1)] {
        let directory = root.path().join(run);
        std::fs::create_dir(&directory).unwrap();
        let file = File::create(directory.join("events.out.tfevents.1.host")).unwrap();
        let mut writer = Writer::begin(file, 1.0).unwrap();
        for step in 0_u16..500 {
            for tag in 0..tags {
                let value = f32::from(step) / 7.0;
                writer
                    .scalar(&format!("tag {tag}"), (i64::from(step) - 9) << 33, f64::from(step) / 3.0, value)
                    .unwrap();
            }
        }
    }
    let Some(read) = reference("read", root.path()) else { return };
    let expected: Curves = serde_json::from_slice(&read).unwrap();
    assert_eq!(expected.values().map(BTreeMap::len).sum::<usize>(), 4);
    assert!(ours(root.path()) == expected, "a point differs");
}

/// What the writers of others have left, see `layouts.py`.
fn layout(name: &str) -> Runs {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/curves/layouts").join(name);
    let mut tail = Tail::new(root, &BTreeMap::new());
    let mut runs = Runs::default();
    let mut tell = |entry: Entry<'_>| {
        if let Entry::Item { run, item } = entry {
            runs.take(run, item);
        }
    };
    while tail.poll(0.0, &mut tell) {}
    assert!(tail.unreadable.is_empty() && runs.values().all(|run| run.skipped.is_none()));
    runs
}

/// Directories with their tags and how many points each has.
fn shape(runs: &Runs) -> Vec<(&str, Vec<(&str, usize)>)> {
    let tags = |run: &'_ Run| run.curves().map(|(tag, series)| (tag.to_owned(), series.len())).collect::<Vec<_>>();
    let leak = |tags: Vec<(String, usize)>| tags.into_iter().map(|(tag, count)| (&*tag.leak(), count)).collect();
    runs.iter().map(|(name, run)| (name, leak(tags(run)))).collect()
}

#[test]
fn directories_of_pytorch_keras_lightning_and_hugging_face_are_read() {
    let pytorch = layout("pytorch");
    assert_eq!(
        shape(&pytorch),
        [
            (".", vec![("Loss/train", 5)]),
            ("both/down", vec![("both", 5)]),
            ("both/up", vec![("both", 5)]),
            ("trial", vec![("accuracy", 1)]),
        ]
    );
    let hparams = serde_json::json!({"lr": 0.1, "bsize": 32, "optimizer": "sgd", "nesterov": true});
    assert_eq!(serde_json::to_value(&pytorch.get("trial").unwrap().hparams).unwrap(), hparams);

    let keras = layout("keras");
    let tags = || vec![("epoch_loss", 3), ("epoch_accuracy", 3)];
    assert_eq!(shape(&keras), [("train", tags()), ("validation", tags())]);
    let loss = |run: &str| keras.get(run).unwrap().curve("epoch_loss").unwrap().get(1);
    assert_eq!((loss("train").step, loss("train").value, loss("validation").value), (1, 0.5, 1.0));

    let lightning = layout("lightning");
    let tags = || vec![("train_loss", 3), ("epoch", 3)];
    assert_eq!(shape(&lightning), [("lightning_logs/version_0", tags()), ("lightning_logs/version_1", tags())]);
    let hparams = serde_json::json!({"hidden_dim": 128, "learning_rate": 0.04, "optimizer/name": "adam"});
    assert_eq!(serde_json::to_value(&lightning.get("lightning_logs/version_1").unwrap().hparams).unwrap(), hparams);

    let events = layout("hugging_face/events");
    assert_eq!(shape(&events), [("runs/Nov14_22-13-20_host", vec![("train/loss", 2), ("eval/loss", 2)])]);
    let states = layout("hugging_face/states");
    let names: Vec<&str> = states.get(".").unwrap().curves().map(|(tag, _)| tag).collect();
    assert_eq!(states.iter().len(), 1, "the checkpoints are one curve");
    for name in ["train/loss", "train/grad_norm", "train/learning_rate", "eval/loss"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let loss = states.get(".").unwrap().curve("train/loss").unwrap();
    assert_eq!(loss.points().map(|point| (point.step, point.value)).collect::<Vec<_>>(), [(10, 0.1), (20, 0.05)]);
    assert!(states.get(".").unwrap().curve("train/grad_norm").unwrap().get(0).value.is_nan());
}
