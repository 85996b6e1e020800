//! Images from files: archives of `docker save`, OCI layouts (a directory, or a tar of one), and squashfs or SIF
//! files, which are stored as they are. Content is checked against the digests that the file itself names; who
//! made the file is the importer's to know, because such files carry no signature that is read here.

use std::{
    cell::Cell,
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use flate2::bufread::MultiGzDecoder;
use oci_spec::image::{Descriptor, ImageIndex};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, ResolveFlags, openat2},
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{
    Image, Inner, Pull, RootForm, Store, blocking,
    commit::Staging,
    lock::{Hold, lock},
};
use crate::{
    config::ImageConfig,
    contents::Contents,
    digest::{Digest, Hasher},
    error::{Error, Result},
    manifest::{Blob, Document, Kind, Manifest, OCI_MANIFEST},
    platform::Platform,
    progress::{Meter, State},
    settings::Limits,
    unpack::{MAX_HEADER, Name, within},
};

/// Says what to import.
#[derive(Debug, Clone)]
pub struct Import {
    /// An archive, an OCI layout, a squashfs or a SIF file.
    pub path: PathBuf,
    /// The name to store it by.
    pub name: String,
    /// Which image of the archive, by its tag; needed where it has several.
    pub tag: Option<String>,
    pub platform: Platform,
    /// Unused for a squashfs or SIF file, which stays what it is.
    pub form: RootForm,
    /// Stores it for accounts alone that are named with [`Store::grant`].
    pub is_private: bool,
}

impl Import {
    pub fn new(path: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            name: name.into(),
            tag: None,
            platform: Platform::host(),
            form: RootForm::default(),
            is_private: false,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// What an archive has, with its layers stored.
struct Archived {
    document: Document,
    manifest: Manifest,
    config: Vec<u8>,
    index: Option<Digest>,
}

impl Store {
    /// Imports an image from a file. Must be called within a Tokio runtime. An image that is stored already is returned.
    pub fn import(&self, import: Import) -> Pull {
        let (meter, progress) = Meter::new();
        let pull = Pull { progress, cancel: CancellationToken::new() };
        let (store, cancel) = (self.0.clone(), pull.cancel.clone());
        tokio::spawn(async move {
            let outcome = tokio::select! {
                outcome = store.import(import, &meter, &cancel) => outcome,
                () = cancel.cancelled() => Err(Error::Cancelled),
            };
            meter.end(State::of(outcome));
        });
        pull
    }
}

impl Inner {
    async fn import(self: &Arc<Self>, import: Import, meter: &Meter, cancel: &CancellationToken) -> Result<Image> {
        let path = self.path("locks").join("blobs");
        let _blobs = lock(&path, Hold::Shared).await.map_err(|err| Error::disk("lock", &path, err))?;
        if let Some(form) = opaque_form(&import.path)? {
            return self.import_root(import, form, meter, cancel).await;
        }
        let (archived, import) = {
            let (store, meter, cancel) = (self.clone(), meter.clone(), cancel.clone());
            let work = move || {
                let reader = Reader { store: &store, import: &import, meter: &meter, cancel: &cancel };
                let archived = reader.read()?;
                Ok((archived, import))
            };
            blocking(work).await?
        };
        let Archived { document, manifest, config, index } = archived;
        let (facts, platform, _) = ImageConfig::parse(&config)?;
        if !import.platform.is_like(&platform) {
            let wanted = import.platform.to_string();
            return Err(Error::Platform { reference: import.name, wanted, available: vec![platform.to_string()] });
        }
        let (_held, stored) = self.claim(document.digest, &import.platform, import.form).await?;
        if let Some(image) = stored {
            if !import.is_private {
                Self::open_to_all(&image)?;
            }
            return Ok(image);
        }
        let image = Image {
            digest: document.digest,
            index,
            platform: import.platform,
            download_bytes: manifest.download_bytes(&import.name, &self.settings.limits)?,
            name: import.name,
            form: import.form,
            config: Some(facts),
            bytes: 0,
            contents: None,
            signed_by: Vec::new(),
            directory: self.path("images"),
            is_closed: import.is_private,
        };
        meter.begin(State::Unpacking, Some(manifest.layers.iter().map(|layer| layer.size).sum()));
        let documents = vec![("manifest.json", document.bytes), ("config.json", config)];
        self.assemble(image, &manifest, documents, meter, cancel).await
    }

    /// Copies a root file as it is.
    async fn import_root(
        self: &Arc<Self>,
        import: Import,
        form: RootForm,
        meter: &Meter,
        cancel: &CancellationToken,
    ) -> Result<Image> {
        let (store, meter, cancel) = (self.clone(), meter.clone(), cancel.clone());
        let work = move || {
            let staging = Staging::new(&store.path("staging"))?;
            let source = File::open(&import.path).map_err(|err| Error::disk("read", &import.path, err))?;
            let size = source.metadata().map_err(|err| Error::disk("read", &import.path, err))?.len();
            let limit = store.settings.limits.unpacked_bytes;
            if size > limit {
                return Err(Error::TooLarge { what: import.path.display().to_string(), size, limit });
            }
            meter.begin(State::Pulling, Some(size));
            let path = staging.path.join(form.file_name());
            let copy = Copy { meter: &meter, cancel: &cancel, limit };
            let (digest, _) = copy.run(source, &import.path, &path)?;
            let contents = (form == RootForm::Squashfs).then(|| Contents::of_squashfs(&path)).flatten();
            Ok((staging, digest, import, size, contents))
        };
        let (staging, digest, import, size, contents) = blocking(work).await?;
        let (_held, stored) = self.claim(digest, &import.platform, form).await?;
        if let Some(image) = stored {
            if !import.is_private {
                Self::open_to_all(&image)?;
            }
            return Ok(image);
        }
        let image = Image {
            digest,
            index: None,
            platform: import.platform,
            name: import.name,
            form,
            config: None,
            download_bytes: size,
            bytes: 0,
            contents,
            signed_by: Vec::new(),
            directory: self.path("images"),
            is_closed: import.is_private,
        };
        self.clone().commit(staging, image, Vec::new()).await
    }
}

/// Returns the form of a squashfs or SIF file; nothing for an archive.
fn opaque_form(path: &Path) -> Result<Option<RootForm>> {
    let failed = |err| Error::disk("read", path, err);
    if fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(None);
    }
    let mut start = Vec::new();
    File::open(path).map_err(failed)?.take(64).read_to_end(&mut start).map_err(failed)?;
    Ok(match start.as_slice() {
        [b'h', b's', b'q', b's', ..] => Some(RootForm::Squashfs),
        start if start.get(32..41) == Some(b"SIF_MAGIC") => Some(RootForm::Sif),
        _ => None,
    })
}

/// Copies bytes while it hashes and counts them.
struct Copy<'a> {
    meter: &'a Meter,
    cancel: &'a CancellationToken,
    limit: u64,
}

impl Copy<'_> {
    /// Returns the digest and the number of bytes.
    fn run(&self, mut source: impl Read, from: &Path, to: &Path) -> Result<(Digest, u64)> {
        let writing = |err| Error::disk("write", to, err);
        let mut target = File::create(to).map_err(writing)?;
        let (mut hasher, mut size, mut buffer) = (Hasher::new(), 0, vec![0; 256 << 10]);
        loop {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let count = source.read(&mut buffer).map_err(|err| Error::disk("read", from, err))?;
            if count == 0 {
                return Ok((hasher.finish(), size));
            }
            size += count as u64;
            if size > self.limit {
                return Err(Error::TooLarge { what: from.display().to_string(), size, limit: self.limit });
            }
            hasher.update(&buffer[..count]);
            target.write_all(&buffer[..count]).map_err(writing)?;
            self.meter.add(count as u64);
        }
    }
}

/// Reads one archive, on a thread that may block.
struct Reader<'a> {
    store: &'a Inner,
    import: &'a Import,
    meter: &'a Meter,
    cancel: &'a CancellationToken,
}

impl Reader<'_> {
    fn fault(&self, reason: impl Into<String>) -> Error {
        Error::Archive { path: self.import.path.clone(), reason: reason.into() }
    }

    fn limits(&self) -> &Limits {
        &self.store.settings.limits
    }

    fn read(&self) -> Result<Archived> {
        let staging = Staging::new(&self.store.path("staging"))?;
        let archive = self.open(&staging)?;
        self.meter.begin(State::Pulling, None);
        if archive.has("index.json") {
            return self.layout(&archive);
        }
        if archive.has("manifest.json") {
            return self.saved(&archive);
        }
        Err(self.fault("it contains neither index.json nor manifest.json"))
    }

    fn open(&self, staging: &Staging) -> Result<Archive> {
        let path = &self.import.path;
        let failed = |err: io::Error| Error::disk("read", path, err);
        if fs::metadata(path).map_err(failed)?.is_dir() {
            return Archive::directory(path).map_err(|err| failed(err.into()));
        }
        let mut file = File::open(path).map_err(failed)?;
        let mut start = [0; 2];
        if file.read(&mut start).map_err(failed)? == 2 && start == [0x1f, 0x8b] {
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
            let plain = staging.path.join("archive");
            let copy = Copy { meter: self.meter, cancel: self.cancel, limit: self.limits().unpacked_bytes };
            copy.run(MultiGzDecoder::new(io::BufReader::new(file)), path, &plain)?;
            file = File::open(&plain).map_err(failed)?;
        }
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        Archive::tar(file).map_err(|err| self.fault(err.to_string()))
    }

    /// An OCI layout, which newer versions of `docker save` write too.
    fn layout(&self, archive: &Archive) -> Result<Archived> {
        let bytes = self.small(archive, "index.json")?;
        let index: ImageIndex = serde_json::from_slice(&bytes).map_err(|err| self.fault(err.to_string()))?;
        let chosen = self.choose(index.manifests())?;
        let document = self.document(archive, chosen)?;
        let (document, manifest, index) = match document.kind(&self.import.name, self.limits())? {
            Kind::Image(manifest) => (document, manifest, None),
            Kind::Index(entries) => {
                let chosen =
                    self.import.platform.choose(&entries).map_err(|available| self.wrong_platform(available))?;
                let index = Some(document.digest);
                let document = self.document(archive, chosen)?;
                match document.kind(&self.import.name, self.limits())? {
                    Kind::Image(manifest) => (document, manifest, index),
                    Kind::Index(_) => return Err(self.fault("it lists an index within an index")),
                }
            }
        };
        let config = self.small(archive, &blob_name(manifest.config.digest))?;
        self.check("the configuration", Digest::of(&config), manifest.config.digest)?;
        for layer in manifest.distinct_layers() {
            let found = self.adopt(archive, &blob_name(layer.digest))?;
            self.check(&format!("layer {}", layer.digest), found.digest, layer.digest)?;
        }
        Ok(Archived { document, manifest, config, index })
    }

    /// Returns the entry with the wanted tag, or the only one.
    fn choose<'a>(&self, entries: &'a [Descriptor]) -> Result<&'a Descriptor> {
        let tag_of = |entry: &'a Descriptor| {
            let annotations = entry.annotations().as_ref();
            annotations.and_then(|found| found.get("org.opencontainers.image.ref.name"))
        };
        let several = || {
            let tags: Vec<_> = entries.iter().filter_map(tag_of).cloned().collect();
            self.fault(format!("it has several images; name one of these tags: {}", tags.join(", ")))
        };
        match (&self.import.tag, entries) {
            (Some(tag), _) => entries.iter().find(|entry| tag_of(entry) == Some(tag)).ok_or_else(several),
            (None, [entry]) => Ok(entry),
            (None, []) => Err(self.fault("it has no image")),
            (None, _) => self.import.platform.choose(entries).map_err(|_err| several()),
        }
    }

    fn document(&self, archive: &Archive, entry: &Descriptor) -> Result<Document> {
        let expected: Digest = entry.digest().as_ref().parse()?;
        let bytes = self.small(archive, &blob_name(expected))?;
        let digest = Digest::of(&bytes);
        self.check("the manifest", digest, expected)?;
        Ok(Document { bytes, digest })
    }

    /// The output of `docker save` before it was an OCI layout, too. Its manifest is made here, of layers without
    /// compression, so that the same archive always has the same digest.
    fn saved(&self, archive: &Archive) -> Result<Archived> {
        let bytes = self.small(archive, "manifest.json")?;
        let images: Vec<Saved> = serde_json::from_slice(&bytes).map_err(|err| self.fault(err.to_string()))?;
        let tags: Vec<String> = images.iter().flat_map(|image| image.repo_tags.iter().flatten()).cloned().collect();
        let several = || self.fault(format!("it has several images; name one of these tags: {}", tags.join(", ")));
        let is_wanted =
            |image: &&Saved| image.repo_tags.iter().flatten().any(|tag| Some(tag) == self.import.tag.as_ref());
        let image = match (&self.import.tag, images.as_slice()) {
            (Some(_), _) => images.iter().find(is_wanted).ok_or_else(several)?,
            (None, [image]) => image,
            (None, []) => return Err(self.fault("it has no image")),
            (None, _) => return Err(several()),
        };
        let config = self.small(archive, &image.config)?;
        let (_, _, diff_ids) = ImageConfig::parse(&config)?;
        if diff_ids.len() != image.layers.len() || image.layers.len() > self.limits().layers {
            return Err(self.fault("the number of its layers is not that of its configuration"));
        }
        let mut layers = Vec::new();
        for (layer, diff_id) in image.layers.iter().zip(diff_ids) {
            let found = self.adopt(archive, layer)?;
            self.check(&format!("layer {layer}"), found.digest, diff_id.parse()?)?;
            layers.push(found);
        }
        let entry = |media_type: &str, blob: &Blob| serde_json::json!({"mediaType": media_type, "digest": blob.digest, "size": blob.size});
        let config_blob = Blob { digest: Digest::of(&config), size: config.len() as u64 };
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": entry("application/vnd.oci.image.config.v1+json", &config_blob),
            "layers": layers.iter().map(|layer| entry("application/vnd.oci.image.layer.v1.tar", layer)).collect::<Vec<_>>(),
        });
        let bytes = serde_json::to_vec(&manifest).map_err(|err| self.fault(err.to_string()))?;
        let document = Document { digest: Digest::of(&bytes), bytes };
        Ok(Archived { document, manifest: Manifest { config: config_blob, layers }, config, index: None })
    }

    fn small(&self, archive: &Archive, name: &str) -> Result<Vec<u8>> {
        let limit = self.limits().document_bytes;
        let (source, size) = archive.open(name).map_err(|err| self.fault(format!("{name}: {err}")))?;
        if size > limit {
            return Err(Error::TooLarge { what: name.to_owned(), size, limit });
        }
        let mut bytes = Vec::new();
        source.take(limit).read_to_end(&mut bytes).map_err(|err| self.fault(format!("{name}: {err}")))?;
        Ok(bytes)
    }

    /// Copies a layer into the store, and returns it by its digest.
    fn adopt(&self, archive: &Archive, name: &str) -> Result<Blob> {
        let (source, _) = archive.open(name).map_err(|err| self.fault(format!("{name}: {err}")))?;
        let staging = Staging::new(&self.store.path("staging"))?;
        let path = staging.path.join("layer");
        let copy = Copy { meter: self.meter, cancel: self.cancel, limit: self.limits().download_bytes };
        let (digest, size) = copy.run(source, &self.import.path, &path)?;
        let stored = self.store.blob_path(digest);
        fs::rename(&path, &stored).map_err(|err| Error::disk("store", stored, err))?;
        Ok(Blob { digest, size })
    }

    fn check(&self, what: &str, received: Digest, expected: Digest) -> Result<()> {
        let what = format!("{what} in {}", self.import.path.display());
        if received == expected { Ok(()) } else { Err(Error::WrongDigest { what, expected, received }) }
    }

    fn wrong_platform(&self, available: Vec<String>) -> Error {
        let wanted = self.import.platform.to_string();
        Error::Platform { reference: self.import.name.clone(), wanted, available }
    }
}

fn blob_name(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A directory or a tar file, from which members are read by name.
enum Archive {
    Directory(OwnedFd),
    Tar { file: File, members: HashMap<Vec<u8>, Member> },
}

enum Member {
    File { at: u64, size: u64 },
    Link(Vec<u8>),
}

/// More members than any archive of images has, and more links than lead to one.
const MAX_MEMBERS: usize = 1_000_000;
const MAX_LINKS: usize = 16;

impl Archive {
    fn directory(path: &Path) -> Result<Self, rustix::io::Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::Directory(rustix::fs::open(path, flags, Mode::empty())?))
    }

    fn tar(file: File) -> io::Result<Self> {
        let headers = Headers { file: file.try_clone()?, allowance: Rc::new(Cell::new(u64::MAX)) };
        let allowance = headers.allowance.clone();
        let mut members = HashMap::new();
        let mut archive = tar::Archive::new(headers);
        let mut entries = archive.entries_with_seek()?;
        loop {
            allowance.set(MAX_HEADER);
            let Some(entry) = entries.next() else { break };
            let entry = entry?;
            let Ok(name) = Name::parse(&entry.path_bytes()) else { continue };
            let member = match entry.header().entry_type() {
                tar::EntryType::Regular => Member::File { at: entry.raw_file_position(), size: entry.size() },
                tar::EntryType::Symlink => {
                    let target = entry.link_name_bytes().unwrap_or_default();
                    Member::Link(within(name.parent(), &target))
                }
                tar::EntryType::Link => Member::Link(within(b"", &entry.link_name_bytes().unwrap_or_default())),
                _ => continue,
            };
            members.insert(name.as_bytes().to_owned(), member);
            if members.len() > MAX_MEMBERS {
                return Err(io::Error::other("it has too many files"));
            }
        }
        Ok(Self::Tar { file, members })
    }

    fn has(&self, name: &str) -> bool {
        self.open(name).is_ok()
    }

    /// Opens a regular file of the archive, and returns its size.
    fn open(&self, name: &str) -> io::Result<(Box<dyn Read + '_>, u64)> {
        match self {
            Self::Directory(root) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
                let file = File::from(openat2(root, name, flags, Mode::empty(), how)?);
                let found = file.metadata()?;
                if !found.is_file() {
                    return Err(io::Error::other("it is not a file"));
                }
                Ok((Box::new(file), found.len()))
            }
            Self::Tar { file, members } => {
                let mut name = within(b"", name.as_bytes());
                for _ in 0..MAX_LINKS {
                    match members.get(&name) {
                        None => return Err(io::ErrorKind::NotFound.into()),
                        Some(Member::Link(target)) => name.clone_from(target),
                        Some(Member::File { at, size }) => {
                            let mut file = file;
                            file.seek(SeekFrom::Start(*at))?;
                            return Ok((Box::new(file.take(*size)), *size));
                        }
                    }
                }
                Err(io::Error::other("it is a link to a link to …"))
            }
        }
    }
}

/// Bounds the bytes of the headers of one member; its content is skipped.
struct Headers {
    file: File,
    allowance: Rc<Cell<u64>>,
}

impl Read for Headers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        let left = self.allowance.get().checked_sub(count as u64);
        self.allowance.set(left.ok_or_else(|| io::Error::other("a name in it is too long"))?);
        Ok(count)
    }
}

impl Seek for Headers {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}
