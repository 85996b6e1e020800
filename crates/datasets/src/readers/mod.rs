//! The ways in which people keep annotated pictures, each read into a catalogue. A reader opens
//! no picture; what it finds wrong with one stands with that one, and stops nothing.

mod coco;
mod coco_document;
mod cvat;
mod folders;
mod kitti;
mod labelstudio;
mod list;
mod masks;
pub mod numbered;
mod voc;
mod yolo;

use std::path::{Path, PathBuf};

use super::{
    Error,
    catalogue::{Catalogue, Item},
    regions::{Region, Spool, Writer},
    spec::{Division, DivisionWord, Purpose, Source, Spec},
    standard::Places,
    store, text, tree,
};

/// What the source of a specification holds. Without a directory for work, nothing is written.
pub fn catalogue(spec: &Spec, work: Option<&Path>) -> Result<Catalogue, Error> {
    let undivided = Division::Word(DivisionWord::None);
    let division = if spec.purpose == Purpose::Evaluation { &undivided } else { &spec.splits };
    let kind = spec.kind;
    match &spec.source {
        Source::Folder { path } | Source::Zip { path } => folders::read(path, division),
        Source::List { path, root, classes } => list::read(path, root.as_deref(), classes.as_deref(), division),
        Source::Idx { images, labels, test_images, test_labels, classes } => {
            let test = test_images.as_deref().zip(test_labels.as_deref());
            numbered::read((images, labels), test, classes.as_deref(), work)
        }
        Source::Standard { set, directory, mirror } => {
            let published = set.publication();
            let places = Places::new(&published, directory.as_deref(), mirror.as_deref(), work);
            let paths = places.paths().ok_or_else(|| Error::Nothing("the files of the set disappeared".to_owned()))?;
            numbered::published(&published, &paths, work)
        }
        Source::Coco { path, annotations, images, crowds } => {
            coco::Reading { path, annotations, images, crowds: *crowds, division, kind, work }.run()
        }
        Source::Yolo { path } => yolo::read(path, division, spec, work),
        Source::Kitti { path, images, labels } => kitti::read(path, (images, labels), division, spec.purpose),
        Source::Voc { path } => voc::read(path, division),
        Source::Cvat { path, annotations } => cvat::read(path, annotations, division, kind, work),
        Source::Labelstudio { path, annotations } => labelstudio::read(path, annotations, division, kind, work),
        Source::Masks { path, images, masks, colours } => {
            masks::read(path, images, masks, colours.as_deref(), division)
        }
        Source::Generated { count } => Ok(numbered::shapes(spec, *count)),
    }
}

/// The classes of a file that names one on each line.
fn class_names(path: &Path) -> Result<Vec<String>, Error> {
    let wrong = |reason: String| Error::Source { path: path.to_owned(), reason };
    let text = text::decode(&store::read_file(path).map_err(wrong)?).map_err(wrong)?;
    Ok(tree::class_lines(&text))
}

/// The documents of a source: the one that is named, or all of this ending below a folder.
fn documents(tree: &tree::Tree, named: &Path, ending: &str) -> Result<Vec<PathBuf>, Error> {
    let folder = tree::normal(&named.to_string_lossy());
    if named.is_absolute() {
        return Ok(vec![named.to_owned()]);
    }
    if tree.has(&folder) {
        return Ok(vec![folder.into()]);
    }
    let found: Vec<PathBuf> =
        tree.others(ending).filter(|path| tree::is_below(path, &folder)).map(PathBuf::from).collect();
    if found.is_empty() && !folder.is_empty() {
        return Err(Error::Source { path: named.to_owned(), reason: "file not found".to_owned() });
    }
    Ok(found)
}

/// A path with another ending.
fn with_ending(path: &str, ending: &str) -> String {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    tree::join(folder, &format!("{stem}.{ending}")).into_owned()
}

/// The folders of a path with one of them replaced, for each place where it is.
fn replaced<'a>(path: &'a str, from: &'a str, to: &'a str) -> impl Iterator<Item = String> {
    let (from, to) = (from.trim_matches('/'), to.trim_matches('/'));
    let inner = path.match_indices(&format!("/{from}/")).map(|(at, _)| at + 1).collect::<Vec<_>>();
    let first = tree::is_below(path, from) && path.len() > from.len() && !from.is_empty();
    let places = inner.into_iter().rev().chain(first.then_some(0));
    places.map(move |at| format!("{}{to}{}", &path[..at], &path[at + from.len()..]))
}

/// The names of classes behind the one of what no region covers.
fn with_background(mut names: Vec<String>) -> Result<Vec<String>, String> {
    if names.len() > 254 {
        return Err(format!("masks can show at most 254 classes, and the source names {}", names.len()));
    }
    names.insert(0, "background".to_owned());
    Ok(names)
}

/// Masks that are drawn from regions.
struct Drawing<'a> {
    writer: Writer,
    work: Option<&'a Path>,
}

impl<'a> Drawing<'a> {
    fn begin(work: Option<&'a Path>) -> Result<Self, Error> {
        Ok(Self { writer: Writer::begin(work)?, work })
    }

    /// Adds a region of a class, counted from 0 without the background.
    fn put(&mut self, item: &mut Item, class: u32, region: &Region) -> Result<(), Error> {
        let class = u8::try_from(class + 1).unwrap_or(super::regions::UNKNOWN);
        let placed = self.writer.put(class, region).map_err(|error| self.failed(error))?;
        item.regions.push(placed);
        Ok(())
    }

    fn finish(self) -> Result<Option<Spool>, Error> {
        let work = self.work;
        let failed = |error| Error::writing(&work.unwrap_or(Path::new("")).join("regions"), error);
        self.writer.finish().map_err(failed)
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::writing(&self.work.unwrap_or(Path::new("")).join("regions"), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_replaced_wherever_they_are() {
        let all = |path: &str| replaced(path, "images", "masks").collect::<Vec<_>>();
        assert_eq!(all("images/a.png"), ["masks/a.png"]);
        assert_eq!(all("train/images/b/images/a.png"), ["train/images/b/masks/a.png", "train/masks/b/images/a.png"]);
        assert!(all("my images/a.png").is_empty() && all("imagesx/a.png").is_empty());
        assert_eq!(with_ending("a.b/c", "txt"), "a.b/c.txt");
    }
}
