//! The ways in which people keep annotated pictures, each read into a catalogue. A reader opens
//! no picture; what it finds wrong with one stands with that one, and stops nothing.

mod coco;
mod folders;
mod kitti;
mod list;
mod masks;
mod numbered;
mod yolo;

use std::path::Path;

use super::{
    Error,
    catalogue::{Catalogue, Item},
    spec::{Source, Spec},
    store::{self, Store},
    text,
};

/// What the source of a specification holds.
pub fn catalogue(spec: &Spec, work: &Path) -> Result<Catalogue, Error> {
    match &spec.source {
        Source::Folder { path } | Source::Zip { path } => folders::read(path),
        Source::List { path, root, classes } => list::read(path, root.as_deref(), classes.as_deref()),
        Source::Idx { images, labels, test_images, test_labels, classes } => {
            let test = test_images.as_deref().zip(test_labels.as_deref());
            numbered::read((images, labels), test, classes.as_deref(), work)
        }
        Source::Coco { path, annotations, images } => coco::read(path, annotations, images),
        Source::Yolo { path } => yolo::read(path),
        Source::Kitti { path, images, labels } => kitti::read(path, images, labels),
        Source::Masks { path, images, masks, colours } => masks::read(path, images, masks, colours.as_deref()),
        Source::Generated { count } => Ok(numbered::shapes(spec, *count)),
    }
}

/// The pictures of a store, in its order.
fn pictures(store: &Store) -> Result<Vec<Item>, Error> {
    let files = store.list()?.into_iter().filter(|file| store::is_picture(&file.path));
    let item = |file: store::Listed| Item { path: file.path, stamp: file.stamp, fault: file.fault, ..Item::default() };
    Ok(files.map(item).collect())
}

/// The classes of a file that names one on each line.
fn class_names(path: &Path) -> Result<Vec<String>, Error> {
    let wrong = |reason: String| Error::Source { path: path.to_owned(), reason };
    let text = text::decode(&store::read_file(path).map_err(wrong)?).map_err(wrong)?;
    Ok(text::lines(&text).map(|(_, line)| line.to_owned()).collect())
}

/// A path with another ending.
fn with_ending(path: &str, ending: &str) -> String {
    let stem = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
    format!("{stem}.{ending}")
}

/// The split that the folders of a path name.
fn split_of(path: &str) -> Option<super::catalogue::Split> {
    let folders = path.rsplit_once('/').map(|(folders, _)| folders)?;
    folders.split('/').find_map(super::catalogue::Split::of_folder)
}
