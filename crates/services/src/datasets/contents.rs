//! A dataset's directory, read through the files agent of whoever looks. What it says was
//! written by its owner's own programs: it is bounded, and shown to those alone who may read it.

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::{
    Datasets, Error, Result,
    browse::{Index, MAX_BOXES, MAX_MANIFEST_LENGTH},
    build::{
        arrays,
        catalogue::Split,
        command, document,
        document::Document,
        npy::{Element, header},
        picture::Pixels,
        progress::Progress,
        spec::{Kind, MAX_SIDE, Resize},
        work_folder,
    },
    preview,
};
use lyceum_model::{
    Dataset, DatasetId, User,
    files::{ListingQuery, Order, RawPath, SortKey},
};
use lyceum_wire::protocol::files_agent::Fault;

use crate::files::{self, FileContent, Files};

/// The longest `dataset.json` (bytes); ten thousand classes need one of them.
const MAX_DOCUMENT_LENGTH: u64 = 8 << 20;
/// The largest picture of somebody's own that is shown as an example (bytes).
const MAX_EXAMPLE_SIZE: u64 = 32 << 20;
/// How many folders are looked through for a first picture.
const MAX_FOLDERS: usize = 20;
/// How many pictures are drawn at once.
const MAX_DRAWING: usize = 2;
/// Bytes of manifests that are kept in memory.
const SHELF: usize = 192 << 20;

/// Why a directory cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentsError {
    /// It is not what the builder writes.
    Damaged,
    /// It is what another version of the builder wrote.
    OtherVersion,
    /// The manifest is too long to be listed.
    TooLong,
    /// No pictures were kept.
    NoPictures,
}

impl fmt::Display for ContentsError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Damaged => "the files of the dataset are damaged or were replaced",
            Self::OtherVersion => "it was built by another version of Lyceum, in a format that this version cannot read; remove it with its directory and create it again",
            Self::TooLong => "it has too many images to be listed",
            Self::NoPictures => "its resized images were not stored",
        })
    }
}

/// What is in a dataset.
#[derive(Debug)]
pub struct Contents {
    pub document: Document,
    pub index: Index,
}

/// Manifests that were read lately, the latest last; each with the bytes that it takes.
#[derive(Debug, Default)]
pub struct ManifestCache(Vec<((DatasetId, String), usize, Arc<Contents>)>);

/// The datasets that are being read, each by one alone: who else asks waits for what that one finds.
#[derive(Debug, Default)]
pub struct ReadLocks(Mutex<HashMap<DatasetId, Weak<tokio::sync::Mutex<()>>>>);

impl ReadLocks {
    fn of(&self, dataset: DatasetId) -> Arc<tokio::sync::Mutex<()>> {
        let mut reading = self.0.lock();
        reading.retain(|_, one| one.strong_count() > 0);
        let found = reading.get(&dataset).and_then(Weak::upgrade).unwrap_or_default();
        reading.insert(dataset, Arc::downgrade(&found));
        found
    }
}

impl ManifestCache {
    fn find(&mut self, key: &(DatasetId, String)) -> Option<Arc<Contents>> {
        let at = self.0.iter().position(|(kept, ..)| kept == key)?;
        let found = self.0.remove(at);
        let contents = found.2.clone();
        self.0.push(found);
        Some(contents)
    }

    fn put(&mut self, key: (DatasetId, String), bytes: usize, contents: Arc<Contents>) {
        self.0.retain(|((id, _), ..)| *id != key.0);
        self.0.push((key, bytes, contents));
        while self.0.len() > 1 && self.0.iter().map(|(_, bytes, _)| bytes).sum::<usize>() > SHELF {
            self.0.remove(0);
        }
    }
}

/// A whole file of a known place; nothing where there is none.
async fn read(files: &Files, user: &User, path: &Path, limit: u64) -> Result<Option<FileContent>> {
    let path = RawPath::from(path);
    let found = match path.as_path().extension() {
        Some(end) if end == "json" => files.read_json(user, &path, limit).await,
        _ => files.read_whole(user, &path, limit).await,
    };
    match found {
        Err(files::Error::TooLong { .. } | files::Error::TooMany { .. }) => Err(Error::Wrong(ContentsError::TooLong)),
        found => Ok(found?),
    }
}

pub(super) async fn document(files: &Files, user: &User, dataset: &Dataset) -> Result<Option<Document>> {
    let path = Path::new(&dataset.directory).join(document::NAME);
    Ok(read(files, user, &path, MAX_DOCUMENT_LENGTH).await?.and_then(|bytes| parse(&bytes).ok()))
}

/// A document that can be worked with: nobody promised that ours is what lies there.
fn parse(bytes: &[u8]) -> std::result::Result<Document, ContentsError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = serde_json::from_slice(bytes).map_err(|_not_ours| ContentsError::Damaged)?;
    if version != document::VERSION {
        return Err(ContentsError::OtherVersion);
    }
    let document: Document = serde_json::from_slice(bytes).map_err(|_not_ours| ContentsError::Damaged)?;
    let sizes = (1..=MAX_SIDE).contains(&document.image.width) && (1..=MAX_SIDE).contains(&document.image.height);
    let channels = matches!(document.image.channels, 1 | 3);
    if sizes && channels { Ok(document) } else { Err(ContentsError::Damaged) }
}

impl Datasets {
    /// How far the build is; nothing where nobody can say.
    pub async fn progress(&self, user: &User, dataset: &Dataset) -> Result<Option<Progress>> {
        let path = work_folder(Path::new(&dataset.directory)).join(command::PROGRESS);
        let found = read(&self.files, user, &path, 4096).await?;
        Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Everything that is in a dataset, as this person may read it.
    pub async fn contents(&self, user: &User, dataset: &Dataset) -> Result<Arc<Contents>> {
        let path = RawPath::from(Path::new(&dataset.directory).join("manifest.csv").as_path());
        let key = (dataset.id, self.files.look(user, &path).await?.1.tag);
        if let Some(contents) = self.cache.lock().find(&key) {
            return Ok(contents);
        }
        let reading = self.reading.of(dataset.id);
        let _one_at_a_time = reading.lock().await;
        // Who was before us may have read it; and it may have been changed meanwhile.
        let key = (dataset.id, self.files.look(user, &path).await?.1.tag);
        if let Some(contents) = self.cache.lock().find(&key) {
            return Ok(contents);
        }
        let (contents, bytes) = self.read_contents(user, dataset).await?;
        let contents = Arc::new(contents);
        self.cache.lock().put(key, bytes, contents.clone());
        Ok(contents)
    }

    /// Everything that is in a dataset, and how many bytes of memory that takes.
    async fn read_contents(&self, user: &User, dataset: &Dataset) -> Result<(Contents, usize)> {
        let folder = Path::new(&dataset.directory);
        let found = read(&self.files, user, &folder.join(document::NAME), MAX_DOCUMENT_LENGTH).await?;
        let written = found.ok_or(Error::Wrong(ContentsError::Damaged))?;
        let length = written.len();
        let document = self.files.parse(written, parse).await?.map_err(Error::Wrong)?;
        let found = read(&self.files, user, &folder.join("manifest.csv"), MAX_MANIFEST_LENGTH).await?;
        let manifest = found.ok_or(Error::Wrong(ContentsError::Damaged))?;
        let index = self.files.parse(manifest, Index::read).await?;
        let mut index = index.ok_or(Error::Wrong(ContentsError::TooLong))?;
        if document.kind == Kind::Detection && document.cache.is_some() {
            let mut boxes = Vec::new();
            for split in Split::ALL {
                let path = folder.join(format!("cache/{}.boxes.npy", split.name()));
                boxes.extend(read(&self.files, user, &path, MAX_BOXES * 24).await?.map(|array| (split, array)));
            }
            let taken = tokio::task::spawn_blocking(move || {
                let arrays: Vec<_> = boxes.iter().map(|(split, array)| (*split, behind_header(array))).collect();
                index.take_boxes(&arrays);
                index
            });
            index = taken.await.map_err(|_panic| Error::Wrong(ContentsError::Damaged))?;
        }
        // A document in memory is its texts and numbers; some of them take more room there.
        let bytes = index.bytes() + 4 * length;
        Ok((Contents { document, index }, bytes))
    }

    /// A resized picture of the dataset as PNG, small unless `full`.
    pub async fn picture(&self, user: &User, dataset: &Dataset, row: u32, full: bool) -> Result<Vec<u8>> {
        let contents = self.contents(user, dataset).await?;
        let (width, height, channels) = size(&contents.document);
        let data = self.slot(user, dataset, &contents, row, arrays::IMAGES, channels).await?;
        let picture = Pixels { width, height, channels, data };
        draw(move || preview::thumbnail(picture, full)).await
    }

    /// The mask of a picture in colours, at the size of the dataset.
    pub async fn mask(&self, user: &User, dataset: &Dataset, row: u32) -> Result<Vec<u8>> {
        let contents = self.contents(user, dataset).await?;
        if contents.document.kind != Kind::Segmentation {
            return Err(Error::NotFound);
        }
        let (width, height, _) = size(&contents.document);
        let classes = self.slot(user, dataset, &contents, row, arrays::MASKS, 1).await?;
        draw(move || preview::mask(width, height, classes)).await
    }

    /// The mean picture as PNG.
    pub async fn mean(&self, user: &User, dataset: &Dataset) -> Result<Vec<u8>> {
        let path = Path::new(&dataset.directory).join("mean.png");
        let found = read(&self.files, user, &path, MAX_EXAMPLE_SIZE).await?;
        let bytes = found.ok_or(Error::Wrong(ContentsError::NoPictures))?;
        draw(move || preview::redrawn(&bytes)).await
    }

    /// The bytes of one picture in an array.
    async fn slot(
        &self,
        user: &User,
        dataset: &Dataset,
        contents: &Contents,
        row: u32,
        array: &str,
        channels: u8,
    ) -> Result<Vec<u8>> {
        let found = contents.index.row(row).ok_or(Error::NotFound)?;
        if found.split.is_none() || contents.document.cache.is_none() {
            return Err(Error::Wrong(ContentsError::NoPictures));
        }
        let (width, height, _) = size(&contents.document);
        let shape = [contents.index.count(), height as usize, width as usize, channels.into()];
        let shape = if array == arrays::MASKS { &shape[..3] } else { &shape[..] };
        let each = u64::from(width) * u64::from(height) * u64::from(channels);
        let from = header(Element::U8, shape).len() as u64 + each * u64::from(row);
        let path = Path::new(&dataset.directory).join(array);
        let (rooted, entry) = self.files.look(user, &RawPath::from(path.as_path())).await?;
        if entry.size_bytes < from + each {
            return Err(Error::Wrong(ContentsError::Damaged));
        }
        let bytes = self.files.read_part(user, &rooted, &entry, from, each).await?;
        if bytes.len() as u64 == each { Ok(bytes.into_bytes()) } else { Err(Error::Wrong(ContentsError::Damaged)) }
    }

    /// What a way to resize makes of somebody's own picture: the file, or the first in a folder.
    pub async fn example(
        &self,
        user: &User,
        path: &str,
        resize: Resize,
        to: (u32, u32),
        channels: u8,
        full: bool,
    ) -> Result<Vec<u8>> {
        let path = self.first_picture(user, RawPath::from(path)).await?.ok_or(Error::NotFound)?;
        let found = read(&self.files, user, path.as_path(), MAX_EXAMPLE_SIZE).await?;
        let bytes = found.ok_or(Error::NotFound)?;
        draw(move || preview::example(&bytes, resize, to, channels, full).ok()).await
    }

    async fn first_picture(&self, user: &User, path: RawPath) -> Result<Option<RawPath>> {
        use lyceum_model::files::Kind as What;
        let (rooted, entry) = self.files.look(user, &path).await?;
        if entry.kind != What::Folder {
            return Ok(super::build::store::is_picture(&rooted.path.shown()).then_some(rooted.path));
        }
        let mut folders = vec![rooted.path];
        for _ in 0..MAX_FOLDERS {
            let Some(folder) = folders.pop() else { break };
            let order = Order { by: SortKey::Name, descending: false };
            let wanted = ListingQuery { order, limit: 200, ..ListingQuery::default() };
            let found = self.files.list(user, &folder, wanted).await?;
            let mut below = Vec::new();
            for entry in &found.page.entries {
                let path = found.rooted.child(&entry.name);
                match entry.kind {
                    What::File if super::build::store::is_picture(&path.shown()) => return Ok(Some(path)),
                    What::Folder => below.push(path),
                    _ => {}
                }
            }
            folders.extend(below.into_iter().rev());
        }
        Ok(None)
    }

    /// Deletes the directory, and what is left of its making.
    pub(super) async fn delete_files(&self, user: &User, dataset: &Dataset) -> Result<()> {
        let folder = Path::new(&dataset.directory);
        for path in [folder.to_owned(), work_folder(folder)] {
            match self.files.delete(user, &RawPath::from(path.as_path()), true).await {
                Ok(_) | Err(files::Error::Fault { fault: Fault::NotFound, .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn size(document: &Document) -> (u32, u32, u8) {
    (document.image.width, document.image.height, document.image.channels)
}

/// Drawing takes milliseconds, which others should not wait for; a picture may be large, so few are
/// drawn at once.
async fn draw(work: impl FnOnce() -> Option<Vec<u8>> + Send + 'static) -> Result<Vec<u8>> {
    static DRAWING: Semaphore = Semaphore::const_new(MAX_DRAWING);
    let _permit = DRAWING.acquire().await.map_err(|_closed| Error::Wrong(ContentsError::Damaged))?;
    tokio::task::spawn_blocking(work).await.ok().flatten().ok_or(Error::Wrong(ContentsError::Damaged))
}

/// What stands behind the header of an array, which says its own length.
fn behind_header(array: &[u8]) -> &[u8] {
    let length = array.get(8..10).and_then(|bytes| bytes.first_chunk::<2>()).map_or(0, |two| u16::from_le_bytes(*two));
    array.get(10 + usize::from(length)..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_another_version_is_told_from_a_damaged_one() {
        assert_eq!(parse(br#"{"version": 1, "kind": "classification"}"#), Err(ContentsError::OtherVersion));
        assert_eq!(parse(format!(r#"{{"version": {}}}"#, document::VERSION).as_bytes()), Err(ContentsError::Damaged));
        assert_eq!(parse(b"{}"), Err(ContentsError::Damaged));
    }
}
