//! `lyceum demo-train` as somebody types it: what it writes is read with the portal's own reader,
//! and what goes wrong on request goes wrong as it does in earnest.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use lyceum::curves::{Runs, Tail, log::Entry};
use tempfile::TempDir;

fn command(directory: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lyceum"));
    command.arg("demo-train").arg("--log-directory").arg(directory).args(["--rate", "0", "--steps-per-epoch", "10"]);
    command.args(words.split_whitespace()).env_clear();
    command
}

fn train(directory: &Path, words: &str) -> (ExitStatus, String, String) {
    let output = command(directory, words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status, text(output.stdout), text(output.stderr))
}

fn read(directory: &Path) -> Runs {
    let mut runs = Runs::default();
    let mut tail = Tail::new(directory.to_owned(), &BTreeMap::new());
    while tail.poll(0.0, &mut |entry| {
        if let Entry::Item { run, item } = entry {
            runs.take(run, item);
        }
    }) {}
    assert!(runs.values().all(|run| run.skipped.is_none()));
    runs
}

/// The visible points of a curve.
fn points(runs: &Runs, run: &str, tag: &str) -> Vec<(i64, f64)> {
    let Some(series) = runs.get(run).and_then(|run| run.curve(tag)) else { return Vec::new() };
    series.visible().into_iter().flatten().map(|index| (series.get(index).step, series.get(index).value)).collect()
}

#[test]
fn a_whole_training_is_written() {
    let place = TempDir::new().unwrap();
    let (status, told, _) = train(place.path(), "--steps 100 --extra-tags 3 --spike-at 42");
    assert!(status.success());
    assert!(told.contains("epoch 10 step 100 ") && told.ends_with("done after 100 steps\n"), "{told}");
    let runs = read(place.path());
    let loss = points(&runs, ".", "train/loss");
    assert_eq!(loss.iter().map(|(step, _)| *step).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    assert!(loss[0].1 > loss[99].1 && loss[42].1 > 100.0);
    assert_eq!(points(&runs, ".", "val/accuracy").len(), 10);
    assert_eq!(points(&runs, ".", "train/lr").len(), 100);
    assert_eq!(runs.get(".").unwrap().curves().filter(|(tag, _)| tag.starts_with("train/extra/")).count(), 3);

    let other = TempDir::new().unwrap();
    train(other.path(), "--steps 20 --layout directories");
    let runs = read(other.path());
    assert_eq!(points(&runs, "train", "loss").len(), 20);
    assert_eq!(points(&runs, "validation", "loss").len(), 2);

    let lines = TempDir::new().unwrap();
    train(lines.path(), "--steps 20 --format lines --nan-at 5");
    let runs = read(lines.path());
    let loss = points(&runs, ".", "train/loss");
    assert!(loss.len() == 20 && loss[4].1.is_finite() && loss[5].1.is_nan());
}

#[test]
fn a_bad_end_is_what_was_asked_for() {
    for (words, code, signal) in [("exit", Some(1), None), ("abort", None, Some(6)), ("kill", None, Some(9))] {
        let place = TempDir::new().unwrap();
        let (status, _, errors) = train(place.path(), &format!("--steps 100 --crash-at 25 --crash-by {words}"));
        assert_eq!((status.code(), status.signal()), (code, signal), "{words}");
        assert_eq!(errors.contains("crashed at step 25"), words == "exit", "{errors}");
        assert_eq!(points(&read(place.path()), ".", "train/loss").len(), 25, "what was written before is there");
    }
    let (status, _, errors) = train(Path::new("/proc/1/logs"), "--steps 1");
    assert!(status.code() == Some(1) && errors.contains("/proc/1/logs cannot be written"), "{errors}");
}

#[test]
fn whoever_goes_on_makes_one_curve_of_it() {
    let place = TempDir::new().unwrap();
    train(place.path(), "--steps 50 --crash-at 25");
    let (status, ..) = train(place.path(), "--steps 50 --resume");
    assert!(status.success());
    let runs = read(place.path());
    let steps: Vec<i64> = points(&runs, ".", "train/loss").iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, (0..50).collect::<Vec<_>>());
    let series = runs.get(".").unwrap().curve("train/loss").unwrap();
    assert_eq!((series.len(), series.last().unwrap().attempt), (55, 1), "steps 20 to 24 are there twice");

    let place = TempDir::new().unwrap();
    let (_, told, _) = train(place.path(), "--steps 40 --restart-at 35");
    assert!(told.contains("restarted at step 30"), "{told}");
    let runs = read(place.path());
    assert_eq!(points(&runs, ".", "train/loss").len(), 40);
    assert_eq!(runs.get(".").unwrap().curve("train/loss").unwrap().len(), 45);
}

#[test]
fn who_stalls_lives_on() {
    let place = TempDir::new().unwrap();
    let mut child = command(place.path(), "--steps 100 --stall-at 15").stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
    let stalled = told.by_ref().map_while(Result::ok).any(|line| line == "stalled at step 15");
    assert!(stalled, "it says so");
    assert_eq!(points(&read(place.path()), ".", "train/loss").len(), 15);
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}
