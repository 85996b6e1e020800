//! Which folders and lists divide a source into training, validation and test. A name alone
//! never decides: a folder called `train` is a split only where another one is there to
//! validate or test with, or where no image is outside. A specification can say it instead.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{
    Error,
    catalogue::{Item, Note, Split},
    spec::{Division, Folders},
    text,
    tree::{self, Tree},
};

/// Words that say nothing about the split beside the word that does: `train_images`, `obj_valid_data`.
const FILLERS: [&str; 24] = [
    "images",
    "image",
    "img",
    "imgs",
    "set",
    "data",
    "dataset",
    "obj",
    "split",
    "subset",
    "labels",
    "label",
    "masks",
    "mask",
    "annotations",
    "annotation",
    "annot",
    "ann",
    "seg",
    "the",
    "v",
    "frames",
    "files",
    "jpegimages",
];

/// Returns the split that a folder or list of this name means: `train`, `val2017`, `obj_Test_data`, `dev`.
pub fn of_name(name: &str) -> Option<Split> {
    let name = name.to_lowercase();
    let words: Vec<&str> =
        name.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty() && !FILLERS.contains(word)).collect();
    match words.as_slice() {
        ["test", "dev"] => Some(Split::Test),
        [first, rest @ ..] => {
            let split = of_word(first)?;
            rest.iter().all(|word| of_word(word) == Some(split)).then_some(split)
        }
        [] => None,
    }
}

fn of_word(word: &str) -> Option<Split> {
    let ends = ["set", "images", "image", "imgs", "data", "labels", "annot"];
    let bare = ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
    match bare {
        "train" | "training" | "trn" | "trainval" => Some(Split::Train),
        "val" | "valid" | "validation" | "validate" | "dev" | "devel" | "eval" | "evaluation" | "minival" => {
            Some(Split::Val)
        }
        "test" | "testing" | "tst" | "testdev" | "holdout" => Some(Split::Test),
        _ => None,
    }
}

/// Returns the split that the name of a document mentions among other words: `instances_val2017`, `my train v2`.
pub fn mentioned(name: &str) -> Option<Split> {
    let name = name.to_lowercase();
    let found: BTreeSet<Split> = name.split(|c: char| !c.is_alphabetic()).filter_map(of_word).collect();
    if found.len() == 1 { found.into_iter().next() } else { None }
}

/// The folders above a file, from the top down.
pub fn folders(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.rsplit_once('/').map_or("", |(folders, _)| folders).split('/').filter(|folder| !folder.is_empty())
}

/// Divides images as the specification says, else by lists, else by the folders that they are in.
pub fn divide(tree: &Tree, division: &Division, items: &mut [Item], notes: &mut Vec<Note>) -> Result<String, Error> {
    match division {
        Division::Folders(explicit) => by_request(tree, explicit, items).map(|()| "splits as requested".to_owned()),
        Division::Word(super::spec::DivisionWord::None) => Ok(undivided()),
        Division::Word(super::spec::DivisionWord::Auto) => {
            if let Some(layout) = by_lists(tree, items, notes)? {
                return Ok(layout);
            }
            Ok(by_folders(items, notes))
        }
    }
}

pub fn undivided() -> String {
    "no splits in the source; images are divided by percent".to_owned()
}

/// Divides images by the first folder of their path that is named like a split.
pub fn by_folders(items: &mut [Item], notes: &mut Vec<Note>) -> String {
    let found: Vec<Option<(Split, String)>> = items
        .iter()
        .map(|item| folders(&item.path).find_map(|folder| Some((of_name(folder)?, folder.to_owned()))))
        .collect();
    let names: BTreeMap<Split, BTreeSet<&str>> =
        found.iter().flatten().fold(BTreeMap::new(), |mut names, (split, folder)| {
            names.entry(*split).or_default().insert(folder);
            names
        });
    if names.is_empty() {
        return undivided();
    }
    let listed = names.values().flatten().map(|name| format!("{name}/")).collect::<Vec<_>>().join(", ");
    if names.len() < 2 && found.iter().any(Option::is_none) {
        notes.push(Note::new(
            "",
            format!("the folder {listed} is not used as a split, because no other folder is named like one"),
        ));
        return undivided();
    }
    for (item, split) in items.iter_mut().zip(&found) {
        match split {
            Some((split, _)) => item.split = Some(*split),
            None => item.outside = Some(format!("outside the splits {listed}")),
        }
    }
    format!("splits by folder: {listed}")
}

/// Divides images by folders and lists that the specification names.
fn by_request(tree: &Tree, explicit: &Folders, items: &mut [Item]) -> Result<(), Error> {
    let places: HashMap<String, usize> = items.iter().enumerate().map(|(at, item)| (item.path.clone(), at)).collect();
    let mut splits: Vec<Option<Split>> = vec![None; items.len()];
    for (split, entries) in explicit.each() {
        for entry in entries {
            let name = tree::normal(entry);
            let mut any = false;
            let mut give = |at: usize| -> Result<(), Error> {
                any = true;
                if splits[at].is_some_and(|other| other != split) {
                    let reason = format!("splits: {} is in two splits", items[at].path);
                    return Err(tree.wrong(reason));
                }
                splits[at] = Some(split);
                Ok(())
            };
            if name.to_ascii_lowercase().ends_with(".txt") && tree.has(&name) {
                let bases = [tree::parent(&name), ""];
                for (_, line) in text::lines(&tree.text(&name)?) {
                    if let Some(&at) = tree.picture(line, &bases).ok().and_then(|path| places.get(path)) {
                        give(at)?;
                    }
                }
            } else {
                for (at, item) in items.iter().enumerate() {
                    if tree::is_below(&item.path, &name) {
                        give(at)?;
                    }
                }
            }
            if !any {
                return Err(tree.wrong(format!("splits.{}: no image in {entry}", split.name())));
            }
        }
    }
    for (item, split) in items.iter_mut().zip(splits) {
        item.split = split;
        if split.is_none() {
            item.outside = Some("not in a folder of `splits`".to_owned());
        }
    }
    Ok(())
}

/// Divides images by `train.txt`, `val.txt` and the like, which name an image on each line, by path or by
/// its name without the ending. Nothing where there are no such lists.
fn by_lists(tree: &Tree, items: &mut [Item], notes: &mut Vec<Note>) -> Result<Option<String>, Error> {
    let mut lists: Vec<(Split, String)> = Vec::new();
    for path in tree.others("txt") {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_place = folder.split('/').count() <= 3 && !folder.split('/').any(|part| part == "labels");
        let stem = name.trim_end_matches(".txt").trim_end_matches(".TXT");
        if let Some(split) = of_name(stem).filter(|_| is_place) {
            lists.push((split, path.to_owned()));
        }
    }
    // VOC has lists for boxes and others for masks.
    let task = if items.iter().any(|item| item.mask.is_some()) { "Segmentation" } else { "Main" };
    if lists.iter().any(|(_, path)| folders(path).next_back() == Some(task)) {
        lists.retain(|(_, path)| {
            folders(path).next_back() == Some(task) || !folders(path).any(|one| one == "ImageSets")
        });
    }
    // VOC's `trainval` holds both of the others.
    if lists.iter().any(|(split, _)| *split == Split::Val) && lists.iter().any(|(_, path)| tree::stem(path) == "train")
    {
        lists.retain(|(_, path)| tree::stem(path) != "trainval");
    }
    let mut named = Vec::new();
    let known = Names::of(items);
    for (split, path) in lists {
        let found = listed(tree, &path, &known)?;
        named.push((split, path, found));
    }
    named.retain(|(_, _, found)| !found.is_empty());
    // One list alone divides nothing: what is not in it would be lost.
    if !named.iter().any(|(split, ..)| *split == Split::Train) && named.len() < 2 {
        return Ok(None);
    }
    let named: Vec<Part> = named;
    Ok(Some(assign(&named, items, notes)))
}

/// The images that lists may name: others of the source, such as masks, may have the same names.
pub struct Names<'a> {
    paths: HashSet<&'a str>,
    /// By the name, with and without its ending; nothing where several have it.
    names: HashMap<&'a str, Option<&'a str>>,
}

impl<'a> Names<'a> {
    pub fn of(items: &'a [Item]) -> Self {
        let mut names: HashMap<&str, Option<&str>> = HashMap::new();
        for item in items {
            let name = item.path.rsplit('/').next().unwrap_or(&item.path);
            let stem = tree::stem(&item.path);
            for key in [name, stem].into_iter().take(if name == stem { 1 } else { 2 }) {
                names.entry(key).and_modify(|found| *found = None).or_insert(Some(&item.path));
            }
        }
        Self { paths: items.iter().map(|item| item.path.as_str()).collect(), names }
    }

    fn find(&self, tree: &Tree, reference: &str, bases: &[&str]) -> Option<String> {
        let by_path = tree.picture(reference, bases).ok().filter(|path| self.paths.contains(path));
        by_path.or_else(|| self.names.get(reference).copied().flatten()).map(str::to_owned)
    }
}

/// The images that a list names.
pub fn listed(tree: &Tree, path: &str, names: &Names<'_>) -> Result<Vec<String>, Error> {
    let text = tree.peek(path)?;
    let bases = [tree::parent(path), ""];
    let found: Vec<String> = text::lines(&text)
        .filter_map(|(_, line)| {
            // `ImageSets/Main` has `name -1` for each class; and lists may carry a label or a mask behind.
            names.find(tree, line, &bases).or_else(|| names.find(tree, line.split_whitespace().next()?, &bases))
        })
        .collect();
    if !found.is_empty() {
        tree.mark(path);
    }
    Ok(found)
}

/// A split, what states it, and the images that it names.
pub type Part = (Split, String, Vec<String>);

/// Gives each image the split of the list that names it. Images of two lists are kept out of training.
pub fn assign(parts: &[Part], items: &mut [Item], notes: &mut Vec<Note>) -> String {
    let mut by_path: HashMap<&str, BTreeSet<Split>> = HashMap::new();
    for (split, _, paths) in parts {
        for path in paths {
            by_path.entry(path).or_default().insert(*split);
        }
    }
    let names: Vec<&str> = parts.iter().map(|(_, name, _)| name.as_str()).collect();
    let names = names.join(", ");
    let all_the_same = by_path.values().all(|splits| splits.len() > 1);
    if all_the_same && !by_path.is_empty() {
        notes.push(Note::new(
            "",
            format!("{names} name the same images for every split; images are divided by percent"),
        ));
        for item in items.iter_mut().filter(|item| !by_path.contains_key(item.path.as_str())) {
            item.outside = Some(format!("not in {names}"));
        }
        return undivided();
    }
    let mut twice = 0_usize;
    for item in items.iter_mut() {
        match by_path.get(item.path.as_str()) {
            Some(splits) => {
                twice += usize::from(splits.len() > 1);
                item.split = splits.last().copied();
            }
            None => item.outside = Some(format!("not in {names}")),
        }
    }
    if twice > 0 {
        notes.push(Note::new(
            "",
            format!("{twice} images are in more than one of {names}; they are not used for training"),
        ));
    }
    format!("splits by list: {names}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_splits() {
        for name in [
            "train",
            "Training",
            "train2017",
            "train_images",
            "trainset",
            "obj_train_data",
            "seg_train",
            "images_train",
            "TrainVal",
        ] {
            assert_eq!(of_name(name), Some(Split::Train), "{name}");
        }
        for name in ["val", "valid", "validation", "dev", "val2014", "obj_Validation_data", "eval", "valannot"] {
            assert_eq!(of_name(name), Some(Split::Val), "{name}");
        }
        for name in ["test", "Testing", "test_set", "test-dev2017", "tests".trim_end_matches('s')] {
            assert_eq!(of_name(name), Some(Split::Test), "{name}");
        }
        for name in ["cat", "train_test", "images", "", "2017", "trainer", "device", "steam train", "valley"] {
            assert_eq!(of_name(name), None, "{name}");
        }
        assert_eq!(mentioned("instances_val2017"), Some(Split::Val));
        assert_eq!(mentioned("my cats train v2"), Some(Split::Train));
        assert_eq!((mentioned("instances_default"), mentioned("train_and_val")), (None, None));
    }

    fn divided(paths: &[&str]) -> (Vec<Option<Split>>, usize) {
        let mut items: Vec<Item> =
            paths.iter().map(|path| Item { path: (*path).to_owned(), ..Item::default() }).collect();
        by_folders(&mut items, &mut Vec::new());
        (items.iter().map(|item| item.split).collect(), items.iter().filter(|item| item.outside.is_some()).count())
    }

    #[test]
    fn folders_divide_only_where_they_are_at_least_two() {
        let (train, val) = (Some(Split::Train), Some(Split::Val));
        assert_eq!(divided(&["images/train2017/a", "images/val2017/b"]), (vec![train, val], 0));
        assert_eq!(divided(&["train/images/a", "valid/images/b", "extra/c"]), (vec![train, val, None], 1));
        assert_eq!(divided(&["bus/a", "train/b"]), (vec![None, None], 0));
        assert_eq!(divided(&["train/a", "train/b"]), (vec![train, train], 0));
    }
}
