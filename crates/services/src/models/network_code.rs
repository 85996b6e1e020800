//! A built-in network as the text of a custom one: the function that builds it and all that it uses,
//! taken from the trainer's own files, so that what is shown is what is trained. A custom network
//! begins with it and can be changed in any line.

use std::collections::BTreeSet;

/// The trainer's files of networks, by the names of their modules.
const FILES: [(&str, &str); 3] = [
    ("classic", include_str!("../../../../trainer/networks/classic.py")),
    ("modern", include_str!("../../../../trainer/networks/modern.py")),
    ("dense", include_str!("../../../../trainer/networks/dense.py")),
];
/// The file of the networks' names: `"lenet": classic.lenet,` on a line.
const NAMES: &str = include_str!("../../../../trainer/networks/__init__.py");

/// Something that a file defines at its outermost level, with its comments and decorators.
#[derive(Clone, Copy)]
struct Block<'a> {
    name: &'a str,
    text: &'a str,
}

/// Returns the program of a built-in network; `None` if there is none of this name.
pub fn of(network: &str) -> Option<String> {
    let (module, function) = NAMES.lines().find_map(|line| {
        let rest = line.trim().strip_prefix(&format!("\"{network}\": "))?;
        rest.trim_end_matches(',').split_once('.')
    })?;
    let file = |module: &str| FILES.iter().find(|(name, _)| *name == module).map(|(_, text)| *text);
    let text = file(module)?;
    let all: Vec<Block<'_>> = blocks(text);
    let wanted = all.iter().find(|block| block.name == function)?;
    let (mut needed, mut waiting) = (BTreeSet::from([function]), vec![wanted.text]);
    let mut borrowed: Vec<Block<'_>> = Vec::new();
    while let Some(text) = waiting.pop() {
        for word in words(text) {
            let here = all.iter().find(|block| block.name == word && !matches!(word, "from" | "import"));
            // What a file takes from another one of the trainer's comes along.
            let elsewhere = || imported_from(&all, word).and_then(file).map(blocks);
            let found = here.copied().or_else(|| elsewhere()?.into_iter().find(|block| block.name == word));
            if let Some(block) = found.filter(|block| needed.insert(block.name)) {
                if here.is_none() {
                    borrowed.push(block);
                }
                waiting.push(block.text);
            }
        }
    }
    let used = all.iter().filter(|block| needed.contains(block.name) && block.name != function);
    let helpers: Vec<&str> = borrowed.iter().chain(used).map(|block| block.text.trim_end()).collect();
    let network_text = wanted.text.replacen(&format!("def {function}("), "def network(", 1);
    let body = [helpers, vec![network_text.trim_end()]].concat().join("\n\n\n");
    // A layer of the trainer's own keeps its name for the trainer's.
    let body = body.replace("register_keras_serializable(\"lyceum\")", "register_keras_serializable(\"network\")");
    let named = |word: &str| words(&body).any(|one| one == word);
    let of_keras: Vec<&str> = ["layers", "ops", "initializers"].into_iter().filter(|word| named(word)).collect();
    let title = format!("\"\"\"The built-in network {network}. `x` is the normalised image.\"\"\"");
    let keras = if named("keras") { "import keras\n" } else { "" };
    let parts =
        if of_keras.is_empty() { String::new() } else { format!("from keras import {}\n", of_keras.join(", ")) };
    Some(format!("{title}\n\nfrom typing import Any\n\n{keras}{parts}\n\n{body}\n"))
}

/// The module of the trainer's networks that a name is imported from.
fn imported_from<'a>(all: &[Block<'a>], word: &str) -> Option<&'a str> {
    all.iter().flat_map(|block| block.text.lines()).find_map(|line| {
        let (module, names) = line.strip_prefix("from .")?.split_once(" import ")?;
        names.split(", ").any(|name| name == word).then_some(module)
    })
}

/// The blocks of a file below its opening text. One begins at a line without indentation, and has the comments and
/// decorators before it.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let text = text.splitn(3, "\"\"\"").last().unwrap_or_default();
    let mut found = Vec::new();
    let (mut begin, mut at, mut name) = (0, 0, "");
    for line in text.split_inclusive('\n') {
        let is_outermost = line.starts_with(|first: char| first.is_alphabetic() || "_@#\"".contains(first));
        // After a name comes the next block, of which comments and decorators are the first lines.
        if is_outermost && !name.is_empty() {
            found.push(Block { name, text: &text[begin..at] });
            (begin, name) = (at, "");
        }
        let word = line.strip_prefix("def ").or_else(|| line.strip_prefix("class ")).unwrap_or(line);
        if is_outermost && !line.starts_with(['@', '#', '"']) {
            name = words(word).next().unwrap_or_default();
        }
        at += line.len();
    }
    found.push(Block { name, text: &text[begin..] });
    found
}

/// The identifiers of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{networks, tasks};

    #[test]
    fn every_network_is_a_complete_program() {
        let kinds = ["classification", "segmentation", "detection"];
        for network in kinds.iter().flat_map(|kind| tasks(kind)).flat_map(|task| networks(task)) {
            let text = of(network).unwrap_or_else(|| panic!("{network}"));
            assert_eq!(text.matches("\ndef network(x: Any, ").count(), 1, "{text}");
            assert!(!text.contains("from .") && text.len() < crate::models::program::MAX_LENGTH, "{network}: {text}");
        }
        assert_eq!(of("own"), None);
    }

    #[test]
    fn what_a_network_uses_comes_along() {
        let text = of("vit-tiny").unwrap();
        assert!(text.contains("class Positions(") && text.contains("(\"network\")") && text.contains("import keras\n"));
        assert!(!text.contains("def _head("), "{text}");
        let text = of("googlenet").unwrap();
        assert!(
            text.contains("_INCEPTIONS = (\n") && text.contains("# The four branches") && text.contains("def _conv(")
        );
        assert!(text.contains("def _at_least(") && !text.contains("def lenet("), "{text}");
        assert!(of("resnet-50").unwrap().contains("def _at_least("), "from another file");
    }
}
