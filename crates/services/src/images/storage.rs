//! What takes room in the store of images, and how administrators make room: layers and earlier versions that nothing
//! needs, and the content of images that no workload has used for some time. Those stay in the catalogue and are
//! pulled again when they are needed. What a session or job names that has not ended is never removed.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use lyceum_images::{Collection, Digest, Image, Item};
use lyceum_model::{Timestamp, size::human_size};

use super::{Entry, Images, Result, Work, blocking};

/// What the store of images contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    /// Bytes of everything.
    pub bytes: u64,
    /// Bytes above which layers and earlier versions are removed after a pull.
    pub budget: u64,
    /// The largest first.
    pub items: Vec<StoredItem>,
}

/// One thing that occupies room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    /// The image's names in the catalogue, or the name that it was stored by; empty for a layer.
    pub name: String,
    pub digest: String,
    pub bytes: u64,
    pub used_at: Timestamp,
    pub used_by: Use,
}

/// What needs a stored item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Sessions or jobs that have not ended.
    Workloads,
    /// The catalogue: programs that start from now on.
    Catalogue,
    /// Nothing: an earlier version of an image, or one that was removed from the catalogue.
    Nothing,
    /// A downloaded layer, from which another image may be made.
    Layer,
    /// A download that is not complete.
    Partial,
}

impl Use {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workloads => "workloads",
            Self::Catalogue => "catalogue",
            Self::Nothing => "nothing",
            Self::Layer => "layer",
            Self::Partial => "partial",
        }
    }
}

/// What a cleaning removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaning {
    /// Bytes that became free.
    pub bytes: u64,
    pub items: usize,
}

impl Images {
    /// Lists what takes room in the store.
    pub async fn storage(&self) -> Result<Storage> {
        let store = self.0.store.clone();
        let contents = blocking(move || store.contents()).await?;
        let of_workloads = self.digests_of_workloads().await?;
        let entries = self.list();
        let describe = |item: &Item| match item {
            Item::Image(image) => {
                let names: Vec<&str> = entries.iter().filter(|one| has(one, image)).map(|one| &*one.name).collect();
                let is_live = of_workloads.iter().any(|digest| image.is(*digest));
                let used_by = match (is_live, names.is_empty()) {
                    (true, _) => Use::Workloads,
                    (false, false) => Use::Catalogue,
                    (false, true) => Use::Nothing,
                };
                let name = if names.is_empty() { image.name.clone() } else { names.join(", ") };
                (name, image.digest, used_by)
            }
            Item::Layer(digest) => (String::new(), *digest, Use::Layer),
            Item::Partial(digest) => (String::new(), *digest, Use::Partial),
        };
        let mut items: Vec<StoredItem> = contents
            .into_iter()
            .map(|stored| {
                let (name, digest, used_by) = describe(&stored.item);
                let used_at = timestamp(stored.last_use);
                StoredItem { name, digest: digest.to_string(), bytes: stored.bytes, used_at, used_by }
            })
            .collect();
        items.sort_by_key(|item| std::cmp::Reverse(item.bytes));
        let bytes = items.iter().map(|item| item.bytes).sum();
        Ok(Storage { bytes, budget: self.0.config.budget.unsigned_abs(), items })
    }

    /// Removes layers, incomplete downloads and images that neither the catalogue nor a workload needs. With a time,
    /// also the content of images of the catalogue that were not used for so long.
    pub async fn clean(&self, by: &str, unused: Option<Duration>) -> Result<Cleaning> {
        let before = self.storage().await?;
        if let Some(unused) = unused {
            let now = SystemTime::now();
            for entry in self.list() {
                let Some(image) = entry.stored.clone().filter(|_| entry.work == Work::None) else { continue };
                let age = now.duration_since(image.last_use()?).unwrap_or_default();
                if age >= unused {
                    self.remove_content(&entry, &image).await?;
                }
            }
        }
        let in_use = self.digests_in_use().await?;
        let store = self.0.store.clone();
        blocking(move || store.collect(&Collection { budget: 0, in_use, dry_run: false })).await?;
        let after = self.storage().await?;
        let removed = Cleaning {
            bytes: before.bytes.saturating_sub(after.bytes),
            items: before.items.len().saturating_sub(after.items.len()),
        };
        let freed = human_size(i64::try_from(removed.bytes).unwrap_or(i64::MAX));
        let detail = format!("{} items, {freed}", removed.items);
        self.0.db.add_audit(self.0.clock.now(), by, "image.clean", "", &detail).await?;
        Ok(removed)
    }

    /// Notes that a workload starts in an image, for [`Self::clean`].
    pub fn note_use(&self, image: &Arc<Image>) {
        let (store, image) = (self.0.store.clone(), image.clone());
        // The store may be on a file server that hangs.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = store.touch(&image) {
                tracing::warn!(image = image.name, error = &error as &dyn std::error::Error, "image use not noted");
            }
        });
    }

    /// Removes what is stored of an image that stays in the catalogue, unless a workload needs it.
    async fn remove_content(&self, entry: &Entry, image: &Arc<Image>) -> Result<()> {
        let _removal = self.0.removal.lock().await;
        // What needs it from now on waits for a pull, which waits for this removal.
        let mut is_hidden = false;
        self.change(entry.serial, |now| {
            is_hidden = now.work == Work::None && now.stored.as_ref() == Some(image);
            if is_hidden {
                now.stored = None;
            }
        });
        if !is_hidden {
            return Ok(());
        }
        let is_needed = async {
            let named = self.0.db.is_image_in_use(&entry.name).await?;
            Ok::<bool, super::Error>(named || self.digests_in_use().await?.iter().any(|digest| image.is(*digest)))
        };
        match is_needed.await {
            Ok(false) => {}
            kept => {
                self.change(entry.serial, |now| now.stored = Some(image.clone()));
                return kept.map(drop);
            }
        }
        tracing::info!(image = entry.name, digest = %image.digest, bytes = image.bytes, "unused image removed");
        let (store, image) = (self.0.store.clone(), image.clone());
        Ok(blocking(move || store.remove(&image)).await?)
    }

    /// Returns the digests that sessions and jobs run with now.
    pub(super) async fn digests_of_workloads(&self) -> Result<HashSet<Digest>> {
        let digests = self.0.db.image_digests_in_use().await?;
        Ok(digests.iter().map(|digest| digest.parse()).collect::<Result<_, lyceum_images::Error>>()?)
    }
}

fn has(entry: &Entry, image: &Image) -> bool {
    entry.stored.as_ref().is_some_and(|stored| stored.digest == image.digest && stored.form == image.form)
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
