//! docs/security.md says beside each promise which test keeps it: each of those names must be
//! a test that there is, or the file of a browser's journey.

use std::{collections::BTreeSet, fs, path::Path};

fn tests_below(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, found);
            continue;
        }
        if path.extension().is_none_or(|kind| kind != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if !(line == "#[test]" || line.starts_with("#[tokio::test")) {
                continue;
            }
            let name = lines.by_ref().find_map(|line| line.split_once("fn ")?.1.split_once('('));
            found.extend(name.map(|(name, _)| name.to_owned()));
        }
    }
}

/// The words in backquotes of the table's last column.
fn named(text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

#[test]
fn each_promise_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut there = BTreeSet::new();
    for directory in ["src", "crates", "tests/it"] {
        tests_below(&root.join(directory), &mut there);
    }
    let names = named(&fs::read_to_string(root.join("docs/security.md")).unwrap());
    assert!(names.len() > 20, "the table is there: {names:?}");
    let is_there = |name: &&String| there.contains(*name) || (name.contains('/') && root.join(name).is_file());
    let missing: Vec<_> = names.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "docs/security.md names tests that are not there: {missing:?}");
}

#[test]
fn a_name_without_a_test_is_found() {
    assert_eq!(named("| a | b |\n|---|---|\n| no `x` here | `one`, `two` |\n`three`"), ["one", "two"]);
}
