//! From layers to a stored image: unpacked in a staging directory, made a squashfs file where that is wanted,
//! written to the disk, and renamed. A failure at any step removes the staging directory.

use std::{
    collections::HashSet,
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use tokio_util::sync::CancellationToken;

use super::{
    Image, Inner, RECORD, RootForm, USED, blocking, read_record,
    readers::{CLOSED, OPEN},
};
use crate::{
    contents::Contents,
    error::{Error, Result},
    manifest::Manifest,
    progress::Meter,
    unpack::{Layer, remove_all, unpack},
};

/// A directory that is removed unless it was renamed.
pub(super) struct Staging {
    pub path: PathBuf,
    _held: File,
}

impl Staging {
    pub fn new(parent: &Path) -> Result<Self> {
        let (path, held) = Inner::stage(parent)?;
        Ok(Self { path, _held: held })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        match remove_all(&self.path) {
            Ok(()) => {}
            Err(error) => tracing::warn!(path = %self.path.display(), %error, "staging directory not removed"),
        }
    }
}

impl Inner {
    /// Unpacks the layers, which are stored, and makes the image of them.
    pub(super) async fn assemble(
        self: &Arc<Self>,
        mut image: Image,
        manifest: &Manifest,
        documents: Vec<(&'static str, Vec<u8>)>,
        meter: &Meter,
        cancel: &CancellationToken,
    ) -> Result<Image> {
        let staging = Staging::new(&self.path("staging"))?;
        let scratch = match &self.settings.scratch {
            Some(scratch) if image.form == RootForm::Squashfs => Some(Staging::new(scratch)?),
            _ => None,
        };
        let root = scratch.as_ref().map_or(&staging.path, |scratch| &scratch.path).join("root");
        let layers: Vec<Layer> =
            manifest.layers.iter().map(|blob| Layer { blob: *blob, path: self.blob_path(blob.digest) }).collect();
        let work = {
            let (root, store, meter, cancel) = (root.clone(), self.clone(), meter.clone(), cancel.clone());
            // The thread has the directories, so that they are removed after it, and not under its feet.
            move || {
                make_directory(&root)?;
                unpack(&layers, &root, &store.settings.limits, &meter, &cancel)?;
                let contents = Contents::of_root(&root);
                Ok((staging, scratch, contents))
            }
        };
        let (staging, scratch, contents) = blocking(work).await?;
        image.contents = Some(contents);
        if image.form == RootForm::Squashfs {
            squash(&root, &staging.path.join(image.form.file_name())).await?;
            let work = move || {
                remove_all(&root).map_err(|err| Error::disk("remove", &root, err))?;
                drop(scratch);
                Ok(staging)
            };
            let staging = blocking(work).await?;
            return self.clone().commit(staging, image, documents).await;
        }
        self.clone().commit(staging, image, documents).await
    }

    /// Makes the image of a staging directory that has its root.
    pub(super) async fn commit(
        self: Arc<Self>,
        staging: Staging,
        image: Image,
        documents: Vec<(&'static str, Vec<u8>)>,
    ) -> Result<Image> {
        let work = move || self.commit_now(&staging, image, &documents);
        blocking(work).await
    }

    fn commit_now(&self, staging: &Staging, mut image: Image, documents: &[(&'static str, Vec<u8>)]) -> Result<Image> {
        let failed = |err: io::Error| Error::disk("write", &staging.path, err);
        image.bytes = occupied(&staging.path)?;
        let record = serde_json::to_vec_pretty(&image).map_err(|err| failed(err.into()))?;
        for (name, bytes) in documents {
            write(&staging.path.join(name), bytes).map_err(failed)?;
        }
        write(&staging.path.join(USED), b"").map_err(failed)?;
        write(&staging.path.join(RECORD), &record).map_err(failed)?;
        let mode = if image.is_closed { CLOSED } else { OPEN };
        fs::set_permissions(&staging.path, Permissions::from_mode(mode)).map_err(failed)?;
        sync(&staging.path.join(image.form.file_name())).map_err(failed)?;
        sync(&staging.path).map_err(failed)?;
        let directory = self.image_directory(image.digest, &image.platform, image.form);
        match fs::rename(&staging.path, &directory) {
            // Another process was first: its image is the same.
            Err(err) if matches!(err.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {}
            renamed => renamed.map_err(failed)?,
        }
        sync(&self.path("images")).map_err(failed)?;
        read_record(&directory).map_err(|err| Error::disk("read", directory, err))
    }
}

fn make_directory(path: &Path) -> Result<()> {
    let made = fs::create_dir(path).and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)));
    made.map_err(|err| Error::disk("create", path, err))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Returns the bytes that a directory occupies; a file with several names counts once.
fn occupied(path: &Path) -> Result<u64> {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for entry in walkdir::WalkDir::new(path) {
        let found =
            entry.and_then(|entry| entry.metadata()).map_err(|err| Error::disk("list", path, io::Error::from(err)))?;
        if found.nlink() == 1 || found.is_dir() || seen.insert(found.ino()) {
            bytes += found.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// Makes a squashfs file of a directory, with root as the owner of everything.
async fn squash(root: &Path, file: &Path) -> Result<()> {
    let output = tokio::process::Command::new("mksquashfs")
        .args([root, file])
        .args(["-noappend", "-all-root", "-no-progress", "-comp", "zstd"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|err| match err.kind() {
            io::ErrorKind::NotFound => Error::NoSquashfsTools,
            _ => Error::Squashfs { reason: err.to_string() },
        })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("No space left on device") {
        return Err(Error::DiskFull { path: file.to_owned() });
    }
    let reason = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it gave no reason").trim().to_owned();
    Err(Error::Squashfs { reason })
}
