//! Words that no page, message or log line has, because the field has better ones. The list is crude: it holds what
//! earlier versions were full of. CONTRIBUTING.md, “How we write”, says what to write instead.

use std::{fs, path::Path};

use super::{read, source::Source, sources};

/// A word and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("told", "report, notify, list, show"),
    ("tell", "report, notify, list, show"),
    ("tells", "report, notify, list, show"),
    ("mend", "fix"),
    ("whoever", "the user who …"),
    ("somebody", "a user, another user, an administrator"),
    ("handed in", "submitted"),
    ("so many", "the number"),
    ("anew", "again"),
    ("lately", "recently"),
    ("stranger", "an orphaned workload"),
    ("snapshots of weights", "checkpoints"),
    ("go on from", "fine-tune, resume"),
    ("is no", "is not a"),
];

#[test]
fn texts_are_plain_english() {
    let mut faults = Vec::new();
    let is_test = |file: &String| Path::new(file).file_stem().is_some_and(|stem| stem == "tests");
    for file in sources().into_iter().filter(|file| !is_test(file)) {
        let source = Source::read(&read(&file)).without_tests();
        for (line, text) in &source.strings {
            faults.extend(found(text).map(|(word, better)| format!("{file}:{line}: “{word}”: {better}")));
        }
    }
    for file in templates(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates")) {
        let text = fs::read_to_string(&file).unwrap();
        let shown = without(&without(&text, "{", "}"), "<", ">");
        faults.extend(found(&shown).map(|(word, better)| format!("{file}: “{word}”: {better}")));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Every template below a folder.
fn templates(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| {
        if path.is_dir() { templates(&path) } else { vec![path.to_str().expect("a name that is text").to_owned()] }
    });
    files.collect()
}

/// The words of the list in a text, without what stands between braces: names of values.
fn found(text: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let text = without(text, "{", "}").to_lowercase();
    let plain: String = text.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { ' ' }).collect();
    let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    // “There is no such job” and “it is no longer there” are plain.
    let plain = plain.replace(" there is no ", " ").replace(" is no longer ", " ").replace(" is no more ", " ");
    WORDS.iter().copied().filter(move |(word, _)| plain.contains(&format!(" {word} ")))
}

/// A text without everything from `open` to the next `close`.
fn without(text: &str, open: &str, close: &str) -> String {
    let mut pieces = text.split(open);
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        kept += piece.split_once(close).map_or("", |(_, rest)| rest);
        kept.push(' ');
    }
    kept
}

#[test]
fn the_list_finds_what_it_should() {
    let words = |text| found(text).map(|(word, _)| word).collect::<Vec<_>>();
    assert_eq!(words("Nobody told it; it is no session"), ["told", "is no"]);
    assert_eq!(words("Whoever starts it\nanew"), ["whoever", "anew"]);
    for fine in ["there is no user {told}", "it is no longer there", "a toldness", "tell_again", "renewed"] {
        assert_eq!(words(fine), Vec::<&str>::new(), "{fine}");
    }
}
