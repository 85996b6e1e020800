//! The files of a source, listed once: images that become items, and texts that say something
//! about them. It finds the image that an annotation means, whatever system wrote the path, and
//! remembers which files were used, so that every other one is listed as left out.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{HashMap, HashSet},
    io::Read,
    path::{Path, PathBuf},
};

use super::{
    Error,
    catalogue::{Catalogue, Item, Note, Pictures},
    colours::Colours,
    regions::Spool,
    store::{self, Listed, Store},
    text,
};

pub struct Tree {
    pub store: Store,
    root: PathBuf,
    files: Vec<Listed>,
    places: HashMap<String, usize>,
    /// Images by their name without folders, where only one has it.
    names: HashMap<String, Option<usize>>,
    /// The same without the ending.
    stems: HashMap<String, Option<usize>>,
    used: RefCell<HashSet<String>>,
}

impl Tree {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let store = Store::open(path)?;
        let files = store.list()?;
        let places = files.iter().enumerate().map(|(at, file)| (file.path.clone(), at)).collect();
        let (mut names, mut stems) = (HashMap::new(), HashMap::new());
        for (at, file) in files.iter().enumerate().filter(|(_, file)| store::is_picture(&file.path)) {
            let name = file.path.rsplit('/').next().unwrap_or(&file.path);
            names.entry(name.to_owned()).and_modify(|found| *found = None).or_insert(Some(at));
            stems.entry(stem(name).to_owned()).and_modify(|found| *found = None).or_insert(Some(at));
        }
        Ok(Self { store, root: path.to_owned(), files, places, names, stems, used: RefCell::default() })
    }

    /// An error about the source as a whole.
    pub fn wrong(&self, reason: impl Into<String>) -> Error {
        Error::Source { path: self.root.clone(), reason: reason.into() }
    }

    /// The images, in the order of their paths.
    pub fn items(&self) -> Vec<Item> {
        self.files.iter().filter(|file| store::is_picture(&file.path)).map(item).collect()
    }

    /// An item for one image.
    pub fn item(&self, path: &str) -> Item {
        match self.places.get(path) {
            Some(&at) => item(&self.files[at]),
            None => Item { path: path.to_owned(), fault: Some("file not found".to_owned()), ..Item::default() },
        }
    }

    pub fn file(&self, path: &str) -> Option<&Listed> {
        self.places.get(path).map(|&at| &self.files[at])
    }

    /// Files that are not images and have this ending, in lower case.
    pub fn others<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = &'a str> {
        let has = move |path: &str| path.rsplit_once('.').is_some_and(|(_, end)| end.eq_ignore_ascii_case(ending));
        self.files.iter().map(|file| file.path.as_str()).filter(move |path| has(path))
    }

    pub fn has(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    /// The content of a text, which counts as used.
    pub fn text(&self, path: &str) -> Result<String, Error> {
        self.mark(path);
        self.peek(path)
    }

    /// The content of a text that may turn out to be something else.
    pub fn peek(&self, path: &str) -> Result<String, Error> {
        self.store.text(Path::new(path))
    }

    /// Reads a document of any length from its start.
    pub fn stream<T>(&self, path: &Path, work: impl FnOnce(&mut dyn Read) -> T) -> Result<T, Error> {
        if let Some(name) = path.to_str() {
            self.mark(name);
        }
        self.store.stream(path, work).map_err(|reason| Error::Source { path: path.to_owned(), reason })
    }

    pub fn mark(&self, path: &str) {
        self.used.borrow_mut().insert(path.to_owned());
    }

    /// The image that a reference means: by its path below one of `bases`, with `\` or `/`, absolute or not,
    /// below folders that are not there; by its name alone where only one image has it.
    pub fn picture(&self, reference: &str, bases: &[&str]) -> Result<&str, String> {
        let found = self.exact(reference, bases).or_else(|| self.loose(reference, bases));
        found.map(|at| self.files[at].path.as_str()).ok_or_else(|| "file not found".to_owned())
    }

    fn exact(&self, reference: &str, bases: &[&str]) -> Option<usize> {
        bases.iter().find_map(|base| self.places.get(join(base, reference).as_ref())).copied()
    }

    fn loose(&self, reference: &str, bases: &[&str]) -> Option<usize> {
        let below = self.root.to_str().and_then(|root| reference.strip_prefix(root));
        let whole = normal(below.unwrap_or(reference));
        let mut rest = whole.as_str();
        loop {
            if let Some(at) = self.exact(rest, bases).filter(|&at| store::is_picture(&self.files[at].path)) {
                return Some(at);
            }
            match rest.split_once('/') {
                Some((_, below)) => rest = below,
                None => break,
            }
        }
        if whole.contains('/') {
            return None;
        }
        self.names.get(&whole).or_else(|| self.stems.get(&whole)).copied().flatten()
    }

    /// Whether several images have this name and no folder says which is meant.
    pub fn is_ambiguous(&self, name: &str) -> bool {
        matches!(self.names.get(name), Some(None))
    }

    /// The catalogue of what was read, with a note for every file that nothing uses.
    pub fn finish(self, found: Found) -> Catalogue {
        let Found { items, classes, mut notes, layout, colours, regions } = found;
        let mut used = self.used.into_inner();
        for item in &items {
            used.insert(item.path.clone());
            used.extend(item.mask.clone());
        }
        for file in self.files.iter().filter(|file| !used.contains(&file.path)) {
            let reason = match &file.fault {
                Some(fault) => format!("left out: {fault}"),
                None if store::is_picture(&file.path) => "left out: this image has no place in the source".to_owned(),
                None => "left out: not an image, and not used as an annotation".to_owned(),
            };
            notes.push(Note::new(file.path.clone(), reason));
        }
        let pictures = Pictures::Files { store: self.store, colours, regions };
        Catalogue { layout, ..Catalogue::new(pictures, items, classes, notes) }
    }
}

/// What a reader found.
#[derive(Default)]
pub struct Found {
    pub items: Vec<Item>,
    pub classes: Vec<String>,
    pub notes: Vec<Note>,
    pub layout: String,
    pub colours: Option<Colours>,
    pub regions: Option<Spool>,
}

fn item(file: &Listed) -> Item {
    Item { path: file.path.clone(), stamp: file.stamp, fault: file.fault.clone(), ..Item::default() }
}

/// A path with `/`, without a drive, `.` and what `..` takes back.
pub fn normal(path: &str) -> String {
    let path = path.trim().replace('\\', "/");
    let path = match path.as_bytes() {
        [drive, b':', ..] if drive.is_ascii_alphabetic() => &path[2..],
        _ => &path,
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether a file is a folder's or below it; the empty folder is the whole source.
pub fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The name without folders and ending.
pub fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

pub fn join<'a>(base: &str, path: &'a str) -> Cow<'a, str> {
    let base = base.trim_end_matches('/');
    if base.is_empty() { Cow::Borrowed(path) } else { Cow::Owned(format!("{base}/{path}")) }
}

/// The names of classes in a file that has one on each line.
pub fn class_lines(content: &str) -> Vec<String> {
    text::all_lines(content).map(|(_, line)| line.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[&str]) -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"").unwrap();
        }
        let tree = Tree::open(folder.path()).unwrap();
        (folder, tree)
    }

    #[test]
    fn an_image_is_found_whatever_system_wrote_its_path() {
        let (folder, tree) = tree(&["images/a/0.png", "images/b/0.png", "images/one.png", "we\\ird.png"]);
        let find = |reference: &str| tree.picture(reference, &["images", ""]).ok();
        let absolute = folder.path().join("images/a/0.png");
        for same in [
            "a/0.png",
            "./a/0.png",
            "images/a/0.png",
            "a\\0.png",
            "C:\\data\\images\\a\\0.png",
            "../data/images/a/0.png",
            "/elsewhere/images/a/0.png",
            absolute.to_str().unwrap(),
            "b/../a/0.png",
        ] {
            assert_eq!(find(same), Some("images/a/0.png"), "{same}");
        }
        assert_eq!(find("one"), Some("images/one.png"));
        assert_eq!(find("we\\ird.png"), Some("we\\ird.png"));
        assert_eq!((find("0.png"), find("c/0.png"), find("gone.png"), find("")), (None, None, None, None));
        assert!(tree.is_ambiguous("0.png"));
    }
}
