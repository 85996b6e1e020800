//! The folder of images, and what is done with it. `images/KEY/` has one image each, whole and never changed;
//! `blobs/` has downloaded layers, which images share; `partial/` has what is still being downloaded, and
//! `staging/` what is being unpacked. An image appears by one rename after everything was written to the disk.

mod collect;
mod commit;
mod import;
mod lock;
mod pull;
mod readers;

use std::{
    collections::HashMap,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use collect::{Collected, Collection, Item, Stored};
pub use import::Import;
pub use pull::{Pull, PullRequest};

use crate::{
    config::ImageConfig,
    contents::Contents,
    digest::Digest,
    error::{Error, Result},
    platform::Platform,
    reference::Reference,
    registry::{Registry, endpoint::Endpoint},
    settings::Settings,
    unpack::remove_all,
};
use lock::{Hold, lock, try_lock, try_lock_directory};

/// The form in which an image's root file system is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RootForm {
    /// A directory; for one machine.
    #[default]
    Directory,
    /// One squashfs file; for file systems that several machines share. Needs `mksquashfs`.
    Squashfs,
    /// A SIF file of Apptainer, which only an import makes.
    Sif,
}

impl RootForm {
    fn file_name(self) -> &'static str {
        match self {
            Self::Directory => "root",
            Self::Squashfs => "root.sqsh",
            Self::Sif => "root.sif",
        }
    }
}

/// An image that is stored, and ready to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The digest of the manifest for this platform; for an imported root file, the digest of that file.
    pub digest: Digest,
    /// The digest of the index that listed the manifest, if there was one.
    pub index: Option<Digest>,
    pub platform: Platform,
    /// The reference by which it was first pulled, or the name that an import gave.
    pub name: String,
    pub form: RootForm,
    /// What the image says about itself; unknown for an imported root file.
    pub config: Option<ImageConfig>,
    /// What was found inside; unknown for an imported SIF file.
    #[serde(default)]
    pub contents: Option<Contents>,
    /// Bytes of the layers as they were downloaded, each layer once.
    pub download_bytes: u64,
    /// Bytes that the image occupies on the disk.
    pub bytes: u64,
    /// The fingerprints of the keys whose signature was verified.
    pub signed_by: Vec<Digest>,
    #[serde(skip)]
    directory: PathBuf,
    /// Whether it is stored for named accounts alone.
    #[serde(skip)]
    is_closed: bool,
}

impl Image {
    /// Returns the path of the root directory, or of the squashfs or SIF file.
    pub fn root(&self) -> PathBuf {
        self.directory.join(self.form.file_name())
    }

    /// Returns when the image was last used; when it was stored, if it never was.
    pub fn last_use(&self) -> Result<SystemTime> {
        let path = self.directory.join(USED);
        fs::metadata(&path).and_then(|found| found.modified()).map_err(|err| Error::disk("read", path, err))
    }

    /// Returns whether the digest is that of this image or of the index that listed it.
    pub fn is(&self, digest: Digest) -> bool {
        self.digest == digest || self.index == Some(digest)
    }
}

/// The folders of a store. Images are run by other users; what is on the way to one is not their business.
const FOLDERS: [(&str, u32); 5] =
    [("images", 0o755), ("blobs", 0o700), ("partial", 0o700), ("staging", 0o700), ("locks", 0o700)];
const RECORD: &str = "image.json";
const USED: &str = "used";

/// The images of one folder. Clones share the same pulls.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    settings: Arc<Settings>,
    registry: Arc<Registry>,
    /// The pulls in progress. Two requests for the same become one.
    running: Mutex<HashMap<pull::Key, Pull>>,
}

impl Store {
    /// Opens a folder, which is made where it is missing, and removes what pulls that were killed left half unpacked.
    /// Downloaded parts are kept for the next pull. Blocks for as long as the removal takes.
    pub fn open(directory: impl Into<PathBuf>, settings: Settings) -> Result<Self> {
        let directory = directory.into();
        let settings = Arc::new(settings);
        let registry = Arc::new(Registry::new(&settings)?);
        for (name, mode) in FOLDERS {
            let path = directory.join(name);
            let made =
                fs::create_dir_all(&path).and_then(|()| fs::set_permissions(&path, Permissions::from_mode(mode)));
            made.map_err(|err| Error::disk("create", path, err))?;
        }
        let store = Self(Arc::new(Inner { directory, settings, registry, running: Mutex::default() }));
        Inner::clear(&store.0.path("staging"))?;
        if let Some(scratch) = &store.0.settings.scratch {
            fs::create_dir_all(scratch).map_err(|err| Error::disk("create", scratch, err))?;
            Inner::clear(scratch)?;
        }
        Ok(store)
    }

    /// Lists the images, in no order. An image whose record cannot be read is logged and left out.
    pub fn images(&self) -> Result<Vec<Image>> {
        let path = self.0.path("images");
        let failed = |err| Error::disk("list", &path, err);
        let mut images = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed)? {
            let directory = entry.map_err(failed)?.path();
            match read_record(&directory) {
                Ok(image) => images.push(image),
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(path = %directory.display(), %error, "image record unreadable"),
            }
        }
        Ok(images)
    }

    /// Returns the image with this digest, of the manifest or of its index, for the platform and in the form.
    pub fn find(&self, digest: Digest, platform: &Platform, form: RootForm) -> Result<Option<Image>> {
        let directory = self.0.image_directory(digest, platform, form);
        match read_record(&directory) {
            Ok(image) => return Ok(Some(image)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => return Err(Error::disk("read", directory, err)),
        }
        let fits = |image: &Image| image.is(digest) && image.form == form && platform.accepts(&image.platform);
        Ok(self.images()?.into_iter().find(fits))
    }

    /// Notes that an image is used now, for [`Self::collect`].
    pub fn touch(&self, image: &Image) -> Result<()> {
        Inner::touch(&image.directory)
    }

    /// Removes an image. Its layers stay until the next [`Self::collect`]. The caller makes sure that it is not in use.
    pub fn remove(&self, image: &Image) -> Result<()> {
        self.0.remove_directory(&image.directory)
    }

    /// Returns the host that answers for a registry, with its port: the one that credentials are for.
    pub fn host(&self, reference: &Reference) -> Result<String> {
        Ok(Endpoint::of(reference, &self.0.settings.mirrors)?.host)
    }

    /// Returns the digest that a tag names now, without a download: of the index, if the tag names one.
    pub async fn resolve(&self, request: &PullRequest) -> Result<Digest> {
        let session = self.0.registry.session(&request.reference, &request.access)?;
        let name = request.name();
        Ok(session.document(&name).await?.digest)
    }
}

impl Inner {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn blob_path(&self, digest: Digest) -> PathBuf {
        self.path("blobs").join(digest.hex())
    }

    fn part_path(&self, digest: Digest) -> PathBuf {
        self.path("partial").join(digest.hex())
    }

    fn key(digest: Digest, platform: &Platform, form: RootForm) -> String {
        let form = match form {
            RootForm::Directory => "",
            RootForm::Squashfs => "-squashfs",
            RootForm::Sif => "-sif",
        };
        format!("{}-{}{form}", digest.hex(), platform.slug())
    }

    fn image_directory(&self, digest: Digest, platform: &Platform, form: RootForm) -> PathBuf {
        self.path("images").join(Self::key(digest, platform, form))
    }

    /// Returns an image that is stored, and notes that it is used.
    fn take(self: &Arc<Self>, digest: Digest, platform: &Platform, form: RootForm) -> Result<Option<Image>> {
        let found = Store(self.clone()).find(digest, platform, form)?;
        if let Some(image) = &found {
            Self::touch(&image.directory)?;
        }
        Ok(found)
    }

    /// Waits until no other pull makes this image. Returns the lock under which to make it, and the image if it is there.
    async fn claim(
        self: &Arc<Self>,
        digest: Digest,
        platform: &Platform,
        form: RootForm,
    ) -> Result<(fs::File, Option<Image>)> {
        let path = self.path("locks").join(Self::key(digest, platform, form));
        let held = lock(&path, Hold::Alone).await.map_err(|err| Error::disk("lock", path, err))?;
        Ok((held, self.take(digest, platform, form)?))
    }

    /// Notes that a key's signature was verified, for pulls by digest that come later.
    fn add_signature(image: &mut Image, key: Digest) -> Result<()> {
        if image.signed_by.contains(&key) {
            return Ok(());
        }
        image.signed_by.push(key);
        let path = image.directory.join(RECORD);
        let failed = |err: io::Error| Error::disk("write", &path, err);
        let bytes = serde_json::to_vec_pretty(&image).map_err(|err| failed(err.into()))?;
        let next = image.directory.join("image.json.next");
        let written = fs::write(&next, bytes).and_then(|()| fs::File::open(&next)?.sync_all());
        written.and_then(|()| fs::rename(&next, &path)).map_err(failed)
    }

    fn touch(directory: &Path) -> Result<()> {
        let path = directory.join(USED);
        let touched = fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .and_then(|file| file.set_modified(SystemTime::now()));
        touched.map_err(|err| Error::disk("write", path, err))
    }

    /// Removes a directory of the store: first by its name, so that it is never seen half removed.
    fn remove_directory(&self, path: &Path) -> Result<()> {
        let trash = self.path("staging").join(uuid::Uuid::new_v4().to_string());
        match fs::rename(path, &trash) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed.map_err(|err| Error::disk("remove", path, err))?,
        }
        remove_all(&trash).map_err(|err| Error::disk("remove", trash, err))
    }

    /// Removes the directories that no living pull holds.
    fn clear(staging: &Path) -> Result<()> {
        let failed = |err| Error::disk("clear", staging, err);
        for entry in fs::read_dir(staging).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.file_name().and_then(|name| uuid::Uuid::parse_str(name.to_str()?).ok()).is_none() {
                continue; // Not of our making, in a scratch folder that others use too.
            }
            match try_lock_directory(&path) {
                Ok(None) => {}
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                Err(err) => return Err(failed(err)),
                Ok(Some(_held)) => {
                    tracing::info!(path = %path.display(), "removing what an interrupted pull left");
                    remove_all(&path).map_err(|err| Error::disk("remove", path, err))?;
                }
            }
        }
        Ok(())
    }

    /// Makes an empty directory below `staging` that [`Self::clear`] leaves alone while it is held.
    fn stage(staging: &Path) -> Result<(PathBuf, fs::File)> {
        loop {
            let path = staging.join(uuid::Uuid::new_v4().to_string());
            let failed = |err| Error::disk("create", &path, err);
            fs::create_dir(&path).map_err(failed)?;
            match try_lock_directory(&path) {
                Ok(Some(held)) => return Ok((path, held)),
                Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(failed(err)),
                // Another process cleared it before it was locked.
                _ => {}
            }
        }
    }

    fn try_lock_image(&self, key: &str) -> Result<Option<fs::File>> {
        let path = self.path("locks").join(key);
        try_lock(&path, Hold::Alone).map_err(|err| Error::disk("lock", path, err))
    }
}

/// Runs work that blocks on a thread of its own.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

fn read_record(directory: &Path) -> io::Result<Image> {
    let bytes = fs::read(directory.join(RECORD))?;
    let image: Image = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
    Ok(Image { directory: directory.to_owned(), ..image })
}
