//! A folder for each class, with its pictures anywhere below. Where the folders at the top are
//! called `train`, `val` and `test`, the classes are inside them and the split is the source's.

use std::{collections::BTreeSet, path::Path};

use super::super::{
    Error,
    catalogue::{Catalogue, Item, Note, Pictures, Split},
    store::Store,
};

pub fn read(path: &Path) -> Result<Catalogue, Error> {
    let store = Store::open(path)?;
    let mut items = super::pictures(&store)?;
    let split = is_split(&items);
    let names: Vec<Option<String>> = items.iter_mut().map(|item| class_of(item, split)).collect();
    let classes: Vec<String> = names.iter().flatten().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    for (item, name) in items.iter_mut().zip(names) {
        match name {
            // The set is sorted and holds every name.
            Some(name) => item.label = classes.binary_search(&name).ok().and_then(|at| at.try_into().ok()),
            None if item.fault.is_none() => item.fault = Some("it is in no folder of a class".to_owned()),
            None => {}
        }
    }
    let notes = empty_folders(path, &classes, split);
    Ok(Catalogue::new(Pictures::Files { store, colours: None }, items, classes, notes))
}

/// Whether the folders at the top are splits: all of them, and one to train with.
fn is_split(items: &[Item]) -> bool {
    let tops: BTreeSet<&str> = items.iter().filter_map(|item| Some(item.path.split_once('/')?.0)).collect();
    let splits: Vec<_> = tops.iter().map(|top| Split::of_folder(top)).collect();
    splits.contains(&Some(Split::Train))
        && splits.iter().all(Option::is_some)
        && items.iter().all(|item| item.path.matches('/').count() >= 2)
}

fn class_of(item: &mut Item, split: bool) -> Option<String> {
    let mut rest = item.path.as_str();
    if split {
        let (top, below) = rest.split_once('/')?;
        item.split = Split::of_folder(top);
        rest = below;
    }
    let (class, _) = rest.split_once('/')?;
    // The names of classes are lines of a file.
    (!class.contains(['\n', '\r'])).then(|| class.to_owned())
}

/// Folders that name a class and hold no picture.
fn empty_folders(path: &Path, classes: &[String], split: bool) -> Vec<Note> {
    if split {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    let mut empty: Vec<String> =
        names.filter(|name| !name.starts_with('.') && classes.binary_search(name).is_err()).collect();
    empty.sort();
    empty.into_iter().map(|name| Note::new(name, "this folder holds no picture, so that it is no class")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(paths: &[&str]) -> Vec<Item> {
        paths.iter().map(|path| Item { path: (*path).to_owned(), ..Item::default() }).collect()
    }

    #[test]
    fn splits_are_known_by_all_their_names() {
        assert!(is_split(&items(&["train/cat/1.png", "valid/cat/2.png"])));
        assert!(!is_split(&items(&["train/1.png", "bus/2.png"])));
        assert!(!is_split(&items(&["train/1.png", "test/2.png"])), "train and test may be classes themselves");
        assert!(!is_split(&items(&["val/a/1.png", "test/a/2.png"])));
    }
}
