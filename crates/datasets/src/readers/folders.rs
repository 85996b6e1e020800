//! A folder for each class, with its images anywhere below. Which folders are classes and which
//! divide the source follows from how they are built: splits hold the classes, or classes hold
//! the splits. Where neither can be, the source is refused instead of guessed at.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::super::{
    Error,
    catalogue::{Catalogue, Item, Note, Split},
    division,
    spec::Division,
    tree::{self, Found, Tree},
};

pub fn read(path: &Path, division: &Division) -> Result<Catalogue, Error> {
    let tree = Tree::open(path)?;
    let mut items = tree.items();
    let mut notes = Vec::new();
    let (names, layout) = match division {
        Division::Folders(folders) => {
            let layout = division::divide(&tree, division, &mut items, &mut notes)?;
            let entries: Vec<String> = folders
                .each()
                .iter()
                .flat_map(|(_, entries)| entries.iter())
                .map(|entry| tree::normal(entry))
                .collect();
            (items.iter().map(|item| class_below(&item.path, &entries)).collect(), layout)
        }
        Division::Word(_) => {
            arrange(&mut items, division.is_none(), &mut notes).map_err(|reason| tree.wrong(reason))?
        }
    };
    let names: Vec<Option<String>> = names;
    let classes: Vec<String> = names.iter().flatten().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    for (item, name) in items.iter_mut().zip(names) {
        match name {
            // The set is sorted and holds every name.
            Some(name) => item.label = classes.binary_search(&name).ok().and_then(|at| at.try_into().ok()),
            None if item.fault.is_none() && item.outside.is_none() => {
                item.fault = Some("not in the folder of a class".to_owned());
            }
            None => {}
        }
    }
    if items.iter().all(|item| item.split.is_none()) {
        notes.extend(empty_folders(path, &items));
    }
    Ok(tree.finish(Found { items, classes, notes, layout, ..Found::default() }))
}

/// The folder below one of `entries` that an image is in; with several, the folder above that is the class.
fn class_below(path: &str, entries: &[String]) -> Option<String> {
    let entry = entries.iter().filter(|entry| tree::is_below(path, entry)).max_by_key(|entry| entry.len())?;
    let rest = path[entry.len()..].trim_start_matches('/');
    let class = match rest.split_once('/') {
        Some((class, _)) => class,
        None => entry.split_once('/')?.0,
    };
    is_name(class).then(|| class.to_owned())
}

/// The names of classes are lines of a file.
fn is_name(class: &str) -> bool {
    !class.contains(['\n', '\r'])
}

type Classes = Vec<Option<String>>;

/// Decides what each folder is: the class of each item, and the layout in words.
fn arrange(items: &mut [Item], undivided: bool, notes: &mut Vec<Note>) -> Result<(Classes, String), String> {
    let paths: Vec<Vec<String>> =
        items.iter().map(|item| division::folders(&item.path).map(str::to_owned).collect()).collect();
    let folders: Vec<Vec<&str>> = paths.iter().map(|path| path.iter().map(String::as_str).collect()).collect();
    let base = wrapper(&folders);
    let depth = base.len();
    let below = |path: &Vec<&str>| -> Option<Vec<String>> {
        path.strip_prefix(base.as_slice()).map(|rest| rest.iter().map(|part| (*part).to_owned()).collect())
    };
    let inside: Vec<Option<Vec<String>>> = folders.iter().map(below).collect();
    if depth > 0 {
        notes.push(Note::new(base.join("/"), "everything is in this folder; the folders in it are used"));
    }
    let kinds = if undivided { None } else { kind(&inside)? };
    let mut classes = Vec::with_capacity(items.len());
    for (item, rest) in items.iter_mut().zip(&inside) {
        let rest: &[String] = rest.as_deref().unwrap_or_default();
        classes.push(
            match &kinds {
                None => rest.first().cloned(),
                Some(Kind::SplitsAbove { skipped, listed }) => match rest {
                    [top, rest @ ..] if division::of_name(top).is_some() => {
                        item.split = division::of_name(top);
                        let skip = skipped.get(top).copied().unwrap_or_default().min(rest.len());
                        let class = rest[skip..].first().cloned();
                        if class.is_none() {
                            item.outside = Some(format!("in the split {top}/, but not in the folder of a class"));
                            item.split = None;
                        }
                        class
                    }
                    _ => {
                        item.outside = Some(format!("outside the splits {listed}"));
                        None
                    }
                },
                Some(Kind::SplitsBelow { listed }) => match rest {
                    [class, split, ..] if division::of_name(split).is_some() => {
                        item.split = division::of_name(split);
                        Some(class.clone())
                    }
                    [..] => {
                        item.outside = Some(format!("outside the splits {listed} of its class"));
                        None
                    }
                },
            }
            .filter(|class| is_name(class)),
        );
    }
    let layout = match &kinds {
        None => "one folder for each class; no splits in the source".to_owned(),
        Some(Kind::SplitsAbove { listed, .. }) => format!("splits {listed} with class folders in them"),
        Some(Kind::SplitsBelow { listed }) => format!("class folders with splits {listed} in them"),
    };
    Ok((classes, layout))
}

enum Kind {
    SplitsAbove {
        /// Folders between a split and its classes.
        skipped: BTreeMap<String, usize>,
        listed: String,
    },
    SplitsBelow {
        listed: String,
    },
}

/// The folder around everything, as long as it is the only one with images and has folders with images in it.
fn wrapper<'a>(folders: &[Vec<&'a str>]) -> Vec<&'a str> {
    let mut base: Vec<&str> = Vec::new();
    loop {
        let inside = || folders.iter().filter_map(|path| path.strip_prefix(base.as_slice()));
        let tops: BTreeSet<&str> = inside().filter_map(|rest| rest.first().copied()).collect();
        let has_folders = inside().any(|rest| rest.len() > 1);
        match (tops.first(), tops.len()) {
            (Some(top), 1) if has_folders => base.push(top),
            _ => return base,
        }
    }
}

/// Whether the folders are splits with classes in them, classes with splits in them, or classes.
fn kind(inside: &[Option<Vec<String>>]) -> Result<Option<Kind>, String> {
    let paths: Vec<&[String]> = inside.iter().flatten().map(Vec::as_slice).filter(|path| !path.is_empty()).collect();
    let mut tops: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for path in &paths {
        let below = tops.entry(&path[0]).or_default();
        below.extend(path.get(1).map(String::as_str));
    }
    let listed = |names: &BTreeSet<&str>| names.iter().map(|name| format!("{name}/")).collect::<Vec<_>>().join(", ");
    let splits: BTreeSet<&str> = tops.keys().copied().filter(|top| division::of_name(top).is_some()).collect();
    let kinds: BTreeSet<Split> = splits.iter().filter_map(|top| division::of_name(top)).collect();
    let others: Vec<&str> = tops.keys().copied().filter(|top| !splits.contains(top)).collect();
    let trains: Vec<&str> = splits.iter().copied().filter(|top| division::of_name(top) == Some(Split::Train)).collect();
    let has_classes = trains.iter().any(|top| !tops[top].is_empty());
    if !trains.is_empty() && has_classes {
        let is_alone = others.iter().all(|top| tops[top].is_empty())
            && trains.iter().all(|top| tops[top].len() > 1)
            && !paths.iter().any(|path| path.len() == 1 && trains.contains(&path[0].as_str()));
        if kinds.len() > 1 || others.is_empty() || is_alone {
            let skipped = splits.iter().map(|top| ((*top).to_owned(), between(&paths, top))).collect();
            return Ok(Some(Kind::SplitsAbove { skipped, listed: listed(&splits) }));
        }
    }
    if kinds.len() > 1 && !has_classes {
        let reason = format!(
            "the folders {} are named like splits, but there are no class folders in them. Add a folder for each \
             class, or set `splits` to `none` if these folders are the classes",
            listed(&splits)
        );
        return Err(reason);
    }
    let second: BTreeSet<&str> = tops.values().flatten().copied().collect();
    let kinds: BTreeSet<Split> = second.iter().filter_map(|name| division::of_name(name)).collect();
    if kinds.len() > 1 && kinds.contains(&Split::Train) && second.iter().all(|name| division::of_name(name).is_some()) {
        return Ok(Some(Kind::SplitsBelow { listed: listed(&second) }));
    }
    Ok(None)
}

/// How many folders are between a split and its classes: `seg_train/seg_train/…`, `train/images/…`.
fn between(paths: &[&[String]], top: &str) -> usize {
    let mut skip = 0;
    loop {
        let at = |depth: usize| paths.iter().filter(move |path| path[0] == top).filter_map(move |path| path.get(depth));
        let names: BTreeSet<&String> = at(1 + skip).collect();
        let [only] = names.into_iter().collect::<Vec<_>>()[..] else { return skip };
        let is_filler =
            division::of_name(only).is_some() || matches!(only.as_str(), "images" | "image" | "imgs" | "data");
        if !is_filler || at(2 + skip).next().is_none() {
            return skip;
        }
        skip += 1;
    }
}

/// Folders that could name a class and hold no image.
fn empty_folders(path: &Path, items: &[Item]) -> Vec<Note> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let used: BTreeSet<&str> = items.iter().filter_map(|item| division::folders(&item.path).next()).collect();
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    let mut empty: Vec<String> =
        names.filter(|name| !super::super::store::is_hidden(name) && !used.contains(name.as_str())).collect();
    empty.sort();
    empty
        .into_iter()
        .map(|name| Note::new(name, "this folder does not contain images and is not used as a class"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Class and split of each path, `-` where there is none.
    fn arranged(paths: &[&str]) -> Result<Vec<String>, String> {
        let mut items: Vec<Item> =
            paths.iter().map(|path| Item { path: (*path).to_owned(), ..Item::default() }).collect();
        let (classes, _) = arrange(&mut items, false, &mut Vec::new())?;
        let shown = |(item, class): (&Item, &Option<String>)| {
            format!("{} {}", class.as_deref().unwrap_or("-"), item.split.map_or("-", Split::name))
        };
        Ok(items.iter().zip(&classes).map(shown).collect())
    }

    #[test]
    fn splits_hold_the_classes() {
        assert_eq!(arranged(&["train/cat/1", "valid/cat/2"]).unwrap(), ["cat train", "cat val"]);
        // A flat test folder, a stray picture beside or in them, another folder, and `dev`.
        let paths =
            ["train/cat/1", "train/dog/1", "dev/cat/1", "test/1", "train/grid", "grid", "figures/plot", "raw/cat/1"];
        assert_eq!(arranged(&paths).unwrap(), ["cat train", "dog train", "cat val", "- -", "- -", "- -", "- -", "- -"]);
        assert_eq!(arranged(&["train/cat/1", "train/dog/1"]).unwrap(), ["cat -", "dog -"]);
        assert_eq!(
            arranged(&["train/cat/1", "train/dog/1", "figures/plot"]).unwrap(),
            ["cat train", "dog train", "- -"]
        );
        assert_eq!(arranged(&["d/images/train/a/1", "d/images/val/b/1", "d/x"]).unwrap(), ["a train", "b val", "- -"]);
        let intel = [
            "seg_train/seg_train/sea/1",
            "seg_train/seg_train/ice/1",
            "seg_test/seg_test/sea/1",
            "seg_pred/seg_pred/1",
        ];
        assert_eq!(arranged(&intel).unwrap(), ["sea train", "ice train", "sea test", "- -"]);
        assert_eq!(
            arranged(&["train/images/a/1", "train/images/b/1", "test/images/a/1"]).unwrap(),
            ["a train", "b train", "a test"]
        );
    }

    #[test]
    fn classes_hold_the_splits() {
        let paths = ["cat/train/1", "cat/val/1", "dog/train/1", "dog/test/x/1", "dog/1"];
        assert_eq!(arranged(&paths).unwrap(), ["cat train", "cat val", "dog train", "dog test", "- -"]);
        assert_eq!(arranged(&["cat/train/1", "cat/sitting/1", "dog/test/1"]).unwrap(), ["cat -", "cat -", "dog -"]);
    }

    #[test]
    fn a_class_may_be_called_like_a_split() {
        assert_eq!(arranged(&["car/day/1", "bus/day/1", "train/day/1"]).unwrap(), ["car -", "bus -", "train -"]);
        assert_eq!(arranged(&["train/1", "bus/2"]).unwrap(), ["train -", "bus -"]);
        for flat in [&["train/1", "test/2"][..], &["train/1", "val/2", "test/3"], &["train/1", "test/2", "bus/3"]] {
            assert!(arranged(flat).unwrap_err().contains("no class folders"), "{flat:?}");
        }
    }

    #[test]
    fn a_folder_around_everything_is_no_class() {
        assert_eq!(arranged(&["Pets/cat/1", "Pets/dog/1", "sample"]).unwrap(), ["cat -", "dog -", "- -"]);
        assert_eq!(arranged(&["cat/1", "cat/2"]).unwrap(), ["cat -", "cat -"]);
    }

    #[test]
    fn classes_of_named_folders() {
        let entries = ["a/train".to_owned(), "b".to_owned()];
        let class = |path: &str| class_below(path, &entries).unwrap_or_default();
        assert_eq!(
            [class("a/train/cat/1"), class("a/train/1"), class("b/dog/x/1"), class("b/1")],
            ["cat", "a", "dog", ""]
        );
    }
}
