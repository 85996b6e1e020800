//! What kind of source a directory, archive, list or document is, guessed from the names of its files
//! and their first bytes. Whoever knows better says it in the specification. Of labels that a model
//! is scored on, the kind is known: that of the model.

use std::{
    collections::HashSet,
    io::Read as _,
    path::{Path, PathBuf},
};

use super::{
    Error, division,
    spec::{Crowds, Kind, Source},
    store,
    tree::{self, Tree},
};

/// Folders of masks, and those that may hold masks where they hold images.
const MASKS: [&str; 4] = ["masks", "mask", "SegmentationClass", "ann_dir"];
const MAYBE_MASKS: [&str; 6] = ["masks", "mask", "SegmentationClass", "ann_dir", "labels", "annotations"];

/// Guesses what kind of source a directory, archive or list is.
pub fn recognise(path: &Path) -> Result<(Kind, Source), Error> {
    let ends = |ending: &str| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending));
    if path.is_file() && !ends("zip") {
        return Ok((Kind::Classification, Source::List { path: path.to_owned(), root: None, classes: None }));
    }
    let tree = Tree::open(path)?;
    let labelled = annotated(&tree, path).or_else(|| masked(&tree, path, &MASKS)).or_else(|| boxed(&tree, path));
    if let Some((kind, source)) = labelled {
        return Ok((kind, source));
    }
    if tree.items().is_empty() && !tree.others("txt").chain(tree.others("csv")).any(|path| !store::is_hidden(path)) {
        return Err(tree.wrong("the source does not contain any images"));
    }
    let path = path.to_owned();
    Ok((Kind::Classification, if ends("zip") { Source::Zip { path } } else { Source::Folder { path } }))
}

/// Guesses how the boxes or masks of a directory, or of a document (`.json`, `.xml`), are stored. `None` if nothing is
/// labelled.
pub fn recognise_labels(path: &Path, kind: Kind) -> Result<Option<Source>, Error> {
    let folder = if path.is_file() { path.parent().unwrap_or(path) } else { path };
    let tree = Tree::open(folder)?;
    let found = if path.is_file() {
        document(&tree, folder, path)
    } else if kind == Kind::Segmentation {
        // What has masks may have boxes too, as Pascal VOC does.
        masked(&tree, path, &MAYBE_MASKS).or_else(|| annotated(&tree, path)).or_else(|| boxed(&tree, path))
    } else {
        annotated(&tree, path).or_else(|| boxed(&tree, path))
    };
    match found {
        Some((_, source)) if source.makes(kind) => Ok(Some(source)),
        Some((_, source)) => {
            Err(tree.wrong(format!("its labels ({}) are boxes, and this model predicts masks", source.name())))
        }
        None => Ok(None),
    }
}

/// Whether a file begins with something in which a word occurs.
fn starts(tree: &Tree, path: &Path, word: &str) -> bool {
    let mut start = Vec::new();
    let read = tree.stream(path, |from| from.take(4096).read_to_end(&mut start).is_ok());
    read.is_ok_and(|read| read) && String::from_utf8_lossy(&start).contains(word)
}

fn is_coco(tree: &Tree, path: &Path) -> bool {
    starts(tree, path, "\"images\"") || starts(tree, path, "\"annotations\"") && !starts(tree, path, "\"result\"")
}

/// A document that names images below its folder.
fn document(tree: &Tree, folder: &Path, file: &Path) -> Option<(Kind, Source)> {
    let (path, annotations) = (folder.to_owned(), file.to_owned());
    let source = if starts(tree, file, "<annotations") {
        Source::Cvat { path, annotations }
    } else if is_coco(tree, file) {
        Source::Coco { path, annotations, images: String::new(), crowds: Crowds::Drop }
    } else if starts(tree, file, "\"result\"") {
        Source::Labelstudio { path, annotations }
    } else {
        return None;
    };
    Some((Kind::Detection, source))
}

/// A directory with documents of annotations.
fn annotated(tree: &Tree, path: &Path) -> Option<(Kind, Source)> {
    let path = path.to_owned();
    let begins = |file: &str, word: &str| starts(tree, Path::new(file), word);
    let xml = tree.others("xml").find(|path| begins(path, "<annotations")).map(PathBuf::from);
    if let Some(annotations) = xml {
        return Some((Kind::Detection, Source::Cvat { path, annotations }));
    }
    if tree.others("xml").next().is_some_and(|path| begins(path, "<annotation")) {
        return Some((Kind::Detection, Source::Voc { path }));
    }
    let jsons: Vec<&str> = tree.others("json").collect();
    if jsons.iter().any(|path| is_coco(tree, Path::new(path))) {
        let (annotations, images, crowds) = (PathBuf::new(), String::new(), Crowds::Drop);
        return Some((Kind::Detection, Source::Coco { path, annotations, images, crowds }));
    }
    let annotations = jsons.iter().find(|path| begins(path, "\"result\"")).map(PathBuf::from)?;
    Some((Kind::Detection, Source::Labelstudio { path, annotations }))
}

/// A directory with a folder of masks.
fn masked(tree: &Tree, path: &Path, names: &[&str]) -> Option<(Kind, Source)> {
    let is_mask = |image: &super::catalogue::Item| division::folders(&image.path).any(|folder| names.contains(&folder));
    tree.items().iter().any(is_mask).then(|| {
        let (path, images, masks) = (path.to_owned(), "images".to_owned(), "masks".to_owned());
        (Kind::Segmentation, Source::Masks { path, images, masks, colours: None })
    })
}

/// A directory with a text file of boxes for its images.
fn boxed(tree: &Tree, path: &Path) -> Option<(Kind, Source)> {
    let (path, images) = (path.to_owned(), tree.items());
    let names: HashSet<&str> = images.iter().map(|image| tree::stem(&image.path)).collect();
    let first = tree.others("txt").find(|path| names.contains(tree::stem(path)))?;
    let content = tree.peek(first).unwrap_or_default();
    let is_kitti = content
        .lines()
        .next()
        .is_some_and(|line| line.split_whitespace().count() >= 15 && line.starts_with(char::is_alphabetic));
    if is_kitti {
        let (images, labels) = ("images".to_owned(), "labels".to_owned());
        return Some((Kind::Detection, Source::Kitti { path, images, labels }));
    }
    Some((Kind::Detection, Source::Yolo { path }))
}
