//! COCO's JSON: documents of images, categories and annotations. Several are the splits of one
//! set. What each holds is streamed by `coco_document`; here its images are found, its
//! categories become classes, and its annotations boxes or masks.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use super::{
    super::{
        Error,
        catalogue::{Catalogue, Item, LabelledBox, Note, Split},
        division,
        loose::Id,
        regions::{self, Writer},
        spec::{Crowds, Division, Kind},
        tree::{self, Found, Tree},
    },
    coco_document::{Document, Marked, Place, parse},
};

/// What is read, and how.
pub struct Reading<'a> {
    pub path: &'a Path,
    pub annotations: &'a Path,
    pub images: &'a str,
    pub crowds: Crowds,
    pub division: &'a Division,
    pub kind: Kind,
    pub work: Option<&'a Path>,
}

/// A document of a source, and the split that it is.
struct Part {
    path: PathBuf,
    split: Option<Split>,
    /// Whether it was found and not named: it may turn out to be something else.
    is_guess: bool,
}

impl Reading<'_> {
    pub fn run(self) -> Result<Catalogue, Error> {
        let tree = Tree::open(self.path)?;
        let mut notes = Vec::new();
        let parts = self.parts(&tree, &mut notes)?;
        let segments = self.kind == Kind::Segmentation;
        let mut writer = segments.then(|| Writer::begin(self.work)).transpose()?;
        let failed = |error| Error::writing(&self.work.unwrap_or(self.path).join("regions"), error);
        let mut gathered = Gathered::default();
        let mut used = Vec::new();
        for part in parts {
            match tree.stream(&part.path, |reader| parse(reader, writer.as_mut()))? {
                Ok(mut document) => {
                    if let Some(error) = document.failed.take() {
                        return Err(failed(error));
                    }
                    gathered.add(&tree, &self, &part, document, &mut notes);
                    used.push(part);
                }
                Err(reason) if part.is_guess => {
                    notes.push(Note::new(part.path.to_string_lossy(), format!("not used: {reason}")));
                }
                Err(reason) => return Err(Error::Source { path: part.path, reason }),
            }
        }
        if used.is_empty() {
            return Err(tree.wrong("there is no COCO document (.json with `images` and `annotations`) in this source"));
        }
        let Gathered { mut items, names, .. } = gathered;
        let layout = if used.iter().any(|part| part.split.is_some()) {
            let word =
                |part: &Part| format!("{} is {}", part.path.display(), part.split.map_or("undivided", Split::name));
            format!("splits by document: {}", used.iter().map(word).collect::<Vec<_>>().join(", "))
        } else {
            division::divide(&tree, self.division, &mut items, &mut notes)?
        };
        let classes =
            if segments { super::with_background(names).map_err(|reason| tree.wrong(reason))? } else { names };
        let regions = writer.map(Writer::finish).transpose().map_err(failed)?.flatten();
        Ok(tree.finish(Found { items, classes, notes, layout, regions, ..Found::default() }))
    }

    /// The documents: those that `splits` names, the one that is named, or all in a folder.
    fn parts(&self, tree: &Tree, notes: &mut Vec<Note>) -> Result<Vec<Part>, Error> {
        let named = |path: PathBuf, split| Part { path, split, is_guess: false };
        if let Division::Folders(folders) = self.division {
            let is_document = |entry: &&String| entry.to_ascii_lowercase().ends_with(".json");
            let mut parts = Vec::new();
            for (split, entries) in folders.each() {
                parts.extend(entries.iter().filter(is_document).map(|entry| named(entry.into(), Some(split))));
            }
            if !parts.is_empty() {
                return Ok(parts);
            }
        }
        let (is_absolute, folder) = (self.annotations.is_absolute(), tree::normal(&self.annotations.to_string_lossy()));
        if is_absolute && !self.annotations.is_dir() {
            return Ok(vec![named(self.annotations.to_owned(), None)]);
        }
        if !is_absolute && tree.has(&folder) {
            return Ok(vec![named(folder.into(), None)]);
        }
        let below = if is_absolute { self.annotations.strip_prefix(self.path).ok() } else { Some(self.annotations) };
        let folder = below.map(|below| tree::normal(&below.to_string_lossy())).unwrap_or_default();
        let mut found: Vec<&str> = tree.others("json").filter(|path| tree::is_below(path, &folder)).collect();
        if found.is_empty() && !folder.is_empty() {
            return Err(Error::Source { path: self.annotations.to_owned(), reason: "file not found".to_owned() });
        }
        // COCO itself has documents of captions and keypoints for the same images.
        let is_boxes = |path: &&str| tree::stem(path).starts_with("instances_");
        if found.iter().any(is_boxes) {
            let (boxes, others): (Vec<&str>, Vec<&str>) = found.into_iter().partition(is_boxes);
            let reason = "not used, because documents called instances_… are";
            notes.extend(others.iter().map(|path| Note::new(*path, reason)));
            for path in others {
                tree.mark(path);
            }
            found = boxes;
        }
        let alone = found.len() == 1;
        let split = |path: &str| {
            let by_name = division::mentioned(tree::stem(path));
            let folder = || division::folders(path).rev().find_map(division::of_name);
            by_name.or_else(folder).filter(|_| !alone && self.division.is_auto())
        };
        Ok(found.iter().map(|path| Part { path: (*path).into(), split: split(path), is_guess: true }).collect())
    }
}

/// What all documents hold together.
#[derive(Default)]
struct Gathered {
    items: Vec<Item>,
    names: Vec<String>,
    index: HashMap<String, u32>,
}

impl Gathered {
    fn class(&mut self, name: &str) -> u32 {
        if let Some(&class) = self.index.get(name) {
            return class;
        }
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), next);
        next
    }

    fn add(
        &mut self,
        tree: &Tree,
        reading: &Reading<'_>,
        part: &Part,
        mut document: Document<'_>,
        notes: &mut Vec<Note>,
    ) {
        let shown = part.path.to_string_lossy().into_owned();
        let named = self.categories(&mut document, &shown, notes);
        let mut classes: Vec<(Option<u32>, String)> = vec![(None, String::new()); document.category_places.len()];
        for (id, place) in &document.category_places {
            classes[*place as usize] = (named.get(id).copied(), id.to_string());
        }
        let first = self.items.len();
        self.find_images(tree, reading, part, &document);
        let mut lost: BTreeMap<u32, usize> = BTreeMap::new();
        let image_of = |marked: &Marked| document.known.get(marked.image as usize).copied().flatten();
        self.make_room(first, reading.kind, document.marked.iter().filter_map(image_of));
        for marked in document.marked {
            let Some(image) = document.known.get(marked.image as usize).copied().flatten() else {
                *lost.entry(marked.image).or_default() += 1;
                continue;
            };
            let item = &mut self.items[first + image as usize];
            let (class, name) = &classes[marked.category as usize];
            let is_crowd = marked.is_crowd && reading.crowds == Crowds::Drop;
            let rectangle = match marked.place {
                Place::Region(mut placed) => {
                    // What is around a crowd, or of an unknown category, belongs to no class.
                    let class = class.filter(|_| !is_crowd).and_then(|class| u8::try_from(class + 1).ok());
                    placed.class = class.unwrap_or(regions::UNKNOWN);
                    item.regions.push(placed);
                    continue;
                }
                Place::NoRegion => continue,
                Place::Rectangle(numbers) => Some(numbers),
                Place::NoRectangle => None,
            };
            let fault = if class.is_none() {
                Some(format!("unknown category {name}").into())
            } else if is_crowd {
                Some("the box is around a crowd".into())
            } else if rectangle.is_none() {
                Some("the annotation has no bbox".into())
            } else {
                None
            };
            let [x, y, width, height] = rectangle.unwrap_or([f64::NAN; 4]);
            let class = class.unwrap_or_default();
            item.boxes.push(LabelledBox { class, x, y, width, height, relative: false, fault });
        }
        if !lost.is_empty() {
            let ids: HashMap<u32, &Id> = document.places.iter().map(|(id, place)| (*place, id)).collect();
            notes.extend(lost.into_iter().map(|(place, count)| {
                let id = ids.get(&place).map(ToString::to_string).unwrap_or_default();
                Note::new(
                    "",
                    match count {
                        1 => format!("a box belongs to image {id}, which is not listed"),
                        count => format!("{count} boxes belong to image {id}, which is not listed"),
                    },
                )
            }));
        }
        notes.extend(document.faults.into_iter().map(|(text, count)| {
            Note::new(shown.clone(), if count > 1 { format!("{text} ({count} times)") } else { text })
        }));
    }

    /// Gives each image room for as many annotations as it has, and no more: of a large document, what a list that
    /// grows by itself has to spare is more than all else.
    fn make_room(&mut self, first: usize, kind: Kind, images: impl Iterator<Item = u32>) {
        let items = &mut self.items[first..];
        let mut counts = vec![0; items.len()];
        images.for_each(|image| counts[image as usize] += 1);
        for (item, count) in items.iter_mut().zip(counts) {
            match kind {
                Kind::Segmentation => item.regions.reserve_exact(count),
                _ => item.boxes.reserve_exact(count),
            }
        }
    }

    fn find_images(&mut self, tree: &Tree, reading: &Reading<'_>, part: &Part, document: &Document<'_>) {
        let bases = bases(reading, &part.path, part.split);
        let bases: Vec<&str> = bases.iter().map(String::as_str).collect();
        for (name, claimed_size) in &document.images {
            let mut item = match tree.picture(name, &bases) {
                Ok(path) => tree.item(path),
                Err(_) if tree.is_ambiguous(name) => Item {
                    fault: Some("several images have this name; set `images` to their folder".to_owned()),
                    ..tree.item(name)
                },
                Err(_) => tree.item(&tree::join(reading.images, name)),
            };
            item.claimed_size = *claimed_size;
            item.split = part.split;
            self.items.push(item);
        }
    }

    /// The class of each category. Without a list of them, their identifiers are the names.
    fn categories(&mut self, document: &mut Document<'_>, shown: &str, notes: &mut Vec<Note>) -> HashMap<Id, u32> {
        if document.categories.is_empty() && !document.category_places.is_empty() {
            notes.push(Note::new(shown, "no categories are listed; their numbers are the names of the classes"));
            document.categories = document.category_places.keys().map(|id| (id.clone(), id.to_string())).collect();
        }
        document.categories.sort();
        let mut named = HashMap::new();
        let mut seen: HashMap<&str, &Id> = HashMap::new();
        for (id, name) in &document.categories {
            if let Some(other) = seen.insert(name, id) {
                let text = format!("the categories {other} and {id} are both called {name}; they are one class");
                notes.push(Note::new(shown, text));
            }
            let class = self.class(name);
            named.entry(id.clone()).or_insert(class);
        }
        named
    }
}

/// Folders that the names of a document's images may be relative to.
fn bases(reading: &Reading<'_>, document: &Path, split: Option<Split>) -> Vec<String> {
    let document = document.to_string_lossy().into_owned();
    let (here, stem) = (tree::parent(&document), tree::stem(&document));
    // `instances_val2017.json` is of the images in `val2017`.
    let own = stem.rsplit('_').next().unwrap_or(stem);
    let mut bases: Vec<String> = [reading.images, "", here].map(str::to_owned).into();
    for base in [reading.images, "", tree::parent(here)] {
        let names = [own, split.map_or(own, |split| split.name()), "images", "JPEGImages", "data"];
        bases.extend(names.iter().map(|name| tree::join(base, name).into_owned()));
        bases.extend(["images", "data"].map(|folder| tree::join(base, &format!("{folder}/{own}")).into_owned()));
    }
    bases
}
