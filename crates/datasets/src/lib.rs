//! Makes a dataset of a person's files: `lyceum dataset build`, and the same as a function. It
//! lists the source, opens every picture once on all cores, decides who learns from what, and
//! writes manifest and resized pictures. Killed at any moment it goes on where it was and comes
//! to the same; nothing has the dataset's name before all of it is there. It knows nothing of the
//! portal, and leaves limits, logs and the person it runs as to the workload that it runs in.

pub mod arrays;
mod boxes;
pub mod catalogue;
mod colours;
pub mod command;
mod data_yaml;
mod division;
pub mod document;
pub mod evaluation;
pub mod fit;
mod idx;
pub mod inspect;
mod journal;
mod json;
mod loose;
mod mean;
pub mod npy;
mod pass;
pub mod picture;
pub mod progress;
mod readers;
pub mod recognise;
mod regions;
mod shapes;
mod space;
pub mod spec;
mod split;
pub mod standard;
pub mod store;
mod text;
mod tree;
mod workers;
mod write;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use thiserror::Error;

use arrays::Arrays;
use document::Document;
use progress::{Phase, Progress, Speed};
use spec::Spec;

/// Why there is no dataset. What was read is kept for the next try, except where the
/// specification itself is wrong.
#[derive(Debug, Error)]
pub enum Error {
    #[error("invalid specification:\n{}", .0.join("\n"))]
    Spec(Vec<String>),
    #[error("{}: {reason}", .path.display())]
    Source { path: PathBuf, reason: String },
    #[error("{} cannot be read: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be written: {source}. Finished work is kept; start the build again to resume it.", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("not enough disk space: {} needs {} MiB and {} MiB are free. Nothing was written.", .path.display(), .needed >> 20, .free >> 20)]
    Space { path: PathBuf, needed: u64, free: u64 },
    #[error("{} already exists. Choose another name, or remove it first.", .0.display())]
    Exists(PathBuf),
    #[error("another build of {} is already running", .0.display())]
    Busy(PathBuf),
    #[error(
        "{file} cannot be downloaded ({reasons}). Copy the files of the set into a folder, and name it as `directory` \
             of the source; or ask an administrator to set datasets.directory or datasets.mirror."
    )]
    Unreachable { file: String, reasons: String },
    #[error("cannot build the dataset: {0}")]
    Nothing(String),
    #[error("stopped. Finished work is kept; start the build again to resume it.")]
    Stopped,
}

impl Error {
    fn reading(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    fn writing(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }

    /// The sentence without the path, for a line that names it already.
    fn reason(&self) -> String {
        match self {
            Self::Source { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }
}

/// Builds the dataset of a specification. Built already, by the same one, it is left as it is.
pub fn build(
    spec: &Spec,
    threads: usize,
    stop: &AtomicBool,
    report: &mut dyn FnMut(&Progress),
) -> Result<Document, Error> {
    let faults = spec.faults();
    if !faults.is_empty() {
        return Err(Error::Spec(faults));
    }
    if let Some(document) = built(spec)? {
        return Ok(document);
    }
    let work = Work::begin(&spec.output)?;
    standard::obtain(spec, &work.folder, stop, report)?;
    report(&Speed::new(0).progress(Phase::Listing, 0, 0, 0));
    let catalogue = readers::catalogue(spec, Some(&work.folder))?;
    let (out, catalogue) = (work.folder.join("out"), &catalogue);
    let pass = pass::Pass { spec, catalogue, work: &work.folder, out: &out, threads, stop };
    let pass::Passed { records, arrays, is_binary } = pass.run(report)?;
    let decision = split::decide(spec, catalogue, &records, is_binary).map_err(Error::Nothing)?;
    let (records, decision, arrays) = (&records, &decision, arrays.as_ref());
    clear(&out, arrays).map_err(|error| Error::writing(&out, error))?;
    let writing = write::Writing { spec, catalogue, records, decision, arrays, out: &out, threads, stop };
    let document = writing.run(report)?;
    work.finish(&out)?;
    Ok(document)
}

/// The dataset of the name, if the same specification made it.
fn built(spec: &Spec) -> Result<Option<Document>, Error> {
    if fs::symlink_metadata(&spec.output).is_err() {
        return Ok(None);
    }
    let text = fs::read(spec.output.join(document::NAME)).ok();
    let document = text.and_then(|text| serde_json::from_slice::<Document>(&text).ok());
    // What another version has built is read by nobody any more.
    let same = document.filter(|document| document.version == document::VERSION && document.spec == *spec);
    same.map(Some).ok_or_else(|| Error::Exists(spec.output.clone()))
}

/// The directory beside the dataset where it is made.
struct Work {
    folder: PathBuf,
    target: PathBuf,
    /// Held until the process ends, however it does.
    _lock: File,
}

impl Work {
    fn begin(target: &Path) -> Result<Self, Error> {
        let folder = work_folder(target);
        fs::create_dir_all(&folder).map_err(|error| Error::writing(&folder, error))?;
        let path = folder.join("lock");
        let lock = File::options().write(true).create(true).truncate(false).open(&path);
        let lock = lock.map_err(|error| Error::writing(&path, error))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Busy(target.to_owned())),
            // A file system without locks is no reason to refuse.
            _ => Ok(Self { folder, target: target.to_owned(), _lock: lock }),
        }
    }

    /// Gives the dataset its name, and clears up.
    fn finish(self, out: &Path) -> Result<(), Error> {
        let renamed = match renameat_with(CWD, out, CWD, &self.target, RenameFlags::NOREPLACE) {
            // Some file systems of the network cannot; there the look before has to do.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
                if fs::symlink_metadata(&self.target).is_ok() {
                    return Err(Error::Exists(self.target));
                }
                fs::rename(out, &self.target)
            }
            Err(rustix::io::Errno::EXIST) => return Err(Error::Exists(self.target)),
            other => other.map_err(io::Error::from),
        };
        renamed.map_err(|error| Error::writing(&self.target, error))?;
        if let Some(parent) = self.target.parent() {
            write::sync_folder(parent)?;
        }
        // The dataset is there; what is left of the work harms nobody.
        let _ = fs::remove_dir_all(&self.folder);
        Ok(())
    }
}

/// Removes what an earlier attempt has written to the directory of the dataset, but for the arrays.
fn clear(out: &Path, arrays: Option<&Arrays>) -> io::Result<()> {
    fs::create_dir_all(out)?;
    let kept = arrays.map(Arrays::paths).unwrap_or_default();
    for entry in walkdir::WalkDir::new(out).min_depth(1).contents_first(true) {
        let entry = entry?;
        if entry.file_type().is_dir() {
            // It stays if there is something in it that does.
            let _ = fs::remove_dir(entry.path());
        } else if !kept.contains(&entry.path()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// `.NAME.building` beside the dataset.
pub fn work_folder(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.building"))
}
