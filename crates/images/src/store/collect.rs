//! Makes room: removes what is not needed to run anything first (partial downloads, then layers, the least
//! recently used ones first), then images that are not in use by their last use, until the rest is within the
//! budget. What a caller names as in use is never removed, and a running pull keeps its layers.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{
    Image, Inner, Store,
    lock::{Hold, try_lock},
};
use crate::{
    digest::Digest,
    error::{Error, Result},
};

/// Says what may be removed.
#[derive(Debug, Clone, Default)]
pub struct Collection {
    /// The bytes that the store may occupy.
    pub budget: u64,
    /// Digests of images, or of the indexes that listed them, which are kept.
    pub in_use: HashSet<Digest>,
    /// Reports what would be removed, and removes nothing.
    pub dry_run: bool,
}

/// One thing that occupies room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A download that is not complete.
    Partial(Digest),
    /// A downloaded layer.
    Layer(Digest),
    Image(Box<Image>),
}

/// Reports what was removed.
#[derive(Debug, Clone, Default)]
pub struct Collected {
    /// What was removed, or would be, with its bytes.
    pub removed: Vec<(Item, u64)>,
    /// The bytes that the store occupies afterwards. More than the budget where everything left is in use.
    pub bytes: u64,
}

/// What is stored, with its size and its last use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub item: Item,
    pub bytes: u64,
    pub last_use: SystemTime,
}

impl Store {
    /// Lists everything that occupies room, in the order in which [`Self::collect`] removes it.
    pub fn contents(&self) -> Result<Vec<Stored>> {
        let store = &self.0;
        let mut contents = files(&store.path("partial"), Item::Partial)?;
        contents.extend(files(&store.path("blobs"), Item::Layer)?);
        for image in self.images()? {
            let (bytes, last_use) = (image.bytes, image.last_use()?);
            contents.push(Stored { item: Item::Image(Box::new(image)), bytes, last_use });
        }
        contents.sort_by_key(|stored| (matches!(stored.item, Item::Image(_)), stored.last_use));
        Ok(contents)
    }

    /// Removes what is least needed until the store is within the budget. Blocks for as long as the removal takes.
    pub fn collect(&self, collection: &Collection) -> Result<Collected> {
        let store = &self.0;
        let candidates = self.contents()?;
        let mut collected =
            Collected { bytes: candidates.iter().map(|candidate| candidate.bytes).sum(), removed: Vec::new() };
        if collected.bytes <= collection.budget {
            return Ok(collected);
        }
        // While a pull runs, its layers are needed.
        let path = store.path("locks").join("blobs");
        let blobs = try_lock(&path, Hold::Alone).map_err(|err| Error::disk("lock", path, err))?;
        for Stored { item, bytes, .. } in candidates {
            if collected.bytes <= collection.budget {
                break;
            }
            let removed = match &item {
                Item::Image(image) if collection.in_use.iter().any(|digest| image.is(*digest)) => false,
                Item::Image(image) => collection.dry_run || store.remove_unlocked(image)?,
                Item::Partial(_) | Item::Layer(_) if blobs.is_none() => false,
                Item::Partial(_) | Item::Layer(_) if collection.dry_run => true,
                Item::Partial(digest) => remove_file(store.part_path(*digest))?,
                Item::Layer(digest) => remove_file(store.blob_path(*digest))?,
            };
            if removed {
                collected.bytes -= bytes;
                collected.removed.push((item, bytes));
            }
        }
        Ok(collected)
    }
}

impl Inner {
    /// Removes an image, unless a pull of it is in progress.
    fn remove_unlocked(&self, image: &Image) -> Result<bool> {
        let key = Self::key(image.digest, &image.platform, image.form);
        let Some(_held) = self.try_lock_image(&key)? else { return Ok(false) };
        tracing::info!(name = %image.name, digest = %image.digest, bytes = image.bytes, "image removed");
        self.remove_directory(&image.directory)?;
        Ok(true)
    }
}

fn files(path: &Path, item: impl Fn(Digest) -> Item) -> Result<Vec<Stored>> {
    let failed = |err| Error::disk("list", path, err);
    let mut candidates = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let digest = entry.file_name().to_str().and_then(|name| format!("sha256:{name}").parse().ok());
        let found = match entry.metadata() {
            Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
            found => found.map_err(failed)?,
        };
        let last_use = found.modified().map_err(failed)?;
        candidates.extend(digest.map(|digest| Stored { item: item(digest), bytes: found.len(), last_use }));
    }
    Ok(candidates)
}

fn remove_file(path: PathBuf) -> Result<bool> {
    match fs::remove_file(&path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true).map_err(|err| Error::disk("remove", path, err)),
    }
}
