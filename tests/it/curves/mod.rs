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
    assert!(tail.unreadable.is_empty() && runs.0.values().all(|run| run.skipped.is_none()));
    let bits = |number: f64| number.to_bits().cast_signed();
    let points =
        |series: &Series| series.points().map(|point| (point.step, bits(point.wall_time), bits(point.value))).collect();
    let curves = |run: &Run| run.curves().map(|(tag, series)| (tag.to_owned(), points(series))).collect();
    runs.0.iter().map(|(name, run)| (name.clone(), curves(run))).collect()
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
