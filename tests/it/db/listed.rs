//! The list of the database's functions: each must be called inside a body that runs on both
//! databases, so that a new query without a test fails here by its name.

use std::{fs, path::Path};

use crate::architecture::source::Source;

#[test]
fn every_function_runs_on_both_databases() {
    let functions: Vec<(String, String)> = read("crates/db/src")
        .into_iter()
        .flat_map(|(file, code)| public_functions(&code).into_iter().map(move |name| (file.clone(), name)))
        .collect();
    assert!(functions.len() > 40, "these are all that were found: {functions:?}");
    let tested: String = read("tests/it/db").into_iter().flat_map(|(_, code)| bodies(&code)).collect();
    let missing: Vec<_> = functions.iter().filter(|(_, name)| !calls(&tested, name)).collect();
    assert!(missing.is_empty(), "no `on_both` of tests/it/db calls these: {missing:#?}");
}

/// The code of each file of a folder, without comments, strings and unit tests.
fn read(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
        .map(|file| {
            (file.display().to_string(), Source::read(&fs::read_to_string(&file).unwrap()).without_tests().code)
        })
        .collect()
}

/// The names behind `pub async fn` in blocks `impl Db`.
fn public_functions(code: &str) -> Vec<String> {
    let blocks = code.match_indices("impl Db {").map(|(at, _)| enclosed(&code[at..], '{', '}'));
    blocks
        .flat_map(|block| block.split("pub async fn ").skip(1).collect::<Vec<_>>())
        .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
        .collect()
}

/// What stands between the parentheses of each `on_both(…)`.
fn bodies(code: &str) -> Vec<String> {
    code.match_indices("on_both(").map(|(at, _)| enclosed(&code[at..], '(', ')').to_owned()).collect()
}

fn calls(code: &str, name: &str) -> bool {
    code.contains(&format!(".{name}(")) || code.contains(&format!("Db::{name}("))
}

/// The text from the first `open` to the `close` that belongs to it.
fn enclosed(text: &str, open: char, close: char) -> &str {
    let start = text.find(open).unwrap_or(text.len());
    let mut depth = 0;
    for (at, c) in text[start..].char_indices() {
        depth += i32::from(c == open) - i32::from(c == close);
        if depth == 0 {
            return &text[start..start + at];
        }
    }
    &text[start..]
}

#[test]
fn the_list_sees_what_it_should() {
    let code = "impl Db {\n pub async fn a(&self) { b() }\n async fn c() {}\n pub async fn d<T>() {} }\n fn e() {}";
    assert_eq!(public_functions(code), ["a", "d"]);
    let tested = bodies("x.d(); on_both(async |house| { house.db.a(f(1)).await; }).await; y.c();").concat();
    assert!(calls(&tested, "a") && !calls(&tested, "c") && !calls(&tested, "d"));
}
