//! The way from the portal's machine to this one. A file is received into a temporary file beside its target and gets
//! its name when it is complete, so that there is all of it or what was there before. A download that breaks off resumes
//! where it stopped, if the file is still the same. Names of the portal never lead out of the target folder.

use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use lyceum_model::files::RawPath;
use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Result,
    copy::{Copied, Progress, Retries, Step, note, skip},
    is_folder_without_recursive, name_of,
};
use crate::{
    api::{Api, Error},
    table,
    wait::within,
};

/// How long the portal may say nothing.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(2);

/// The status of an answer that has the rest of a file.
const PARTIAL: u16 = 206;

pub enum Work {
    Folder(PathBuf),
    File { path: String, target: PathBuf },
}

/// Returns the entry at a path that somebody typed. A link is followed.
pub async fn find(api: &Api, path: &str) -> Result<Value> {
    api.get(&format!("/files/info?path={}", RawPath::from(path).encoded()), &[]).await
}

/// Adds an entry that becomes `target`: a file, or a folder with everything in it.
pub async fn plan(
    api: &Api,
    entry: &Value,
    target: PathBuf,
    recursive: bool,
    steps: &mut Vec<Step<Work>>,
) -> Result<()> {
    let path = entry["encoded_path"].as_str().unwrap_or_default().to_owned();
    let name = shown(entry);
    match entry["kind"].as_str() {
        Some("file") => {
            let bytes = entry["size_bytes"].as_u64().unwrap_or(0);
            steps.push(Step { name, bytes, work: Ok(Work::File { path, target }) });
            Ok(())
        }
        Some("folder") if !recursive => Err(is_folder_without_recursive()),
        Some("folder") => {
            steps.push(Step { name, bytes: 0, work: Ok(Work::Folder(target.clone())) });
            plan_below(api, entry, &target, steps).await
        }
        _ => Err(Error::NotCopied("it is a link that cannot be followed, or not a regular file".to_owned())),
    }
}

/// Adds everything in a folder, which is copied into `target`.
pub async fn plan_below(api: &Api, folder: &Value, target: &Path, steps: &mut Vec<Step<Work>>) -> Result<()> {
    for (entry, below) in walk(api, folder, steps).await? {
        add(&entry, target.join(below), steps);
    }
    Ok(())
}

fn add(entry: &Value, target: PathBuf, steps: &mut Vec<Step<Work>>) {
    let (bytes, work) = if entry["kind"] == "folder" {
        (0, Work::Folder(target))
    } else {
        let path = entry["encoded_path"].as_str().unwrap_or_default().to_owned();
        (entry["size_bytes"].as_u64().unwrap_or(0), Work::File { path, target })
    };
    steps.push(Step { name: shown(entry), bytes, work: Ok(work) });
}

fn shown(entry: &Value) -> String {
    entry["path"].as_str().unwrap_or_default().to_owned()
}

/// Returns the folders and files below a folder with their paths below it, each folder before its entries. Links are
/// left out: they may lead anywhere, and in circles. What cannot be listed becomes a step that fails.
pub async fn walk<W>(api: &Api, folder: &Value, steps: &mut Vec<Step<W>>) -> Result<Vec<(Value, PathBuf)>> {
    let mut found = Vec::new();
    let mut open = vec![(folder.clone(), PathBuf::new())];
    while let Some((folder, below)) = open.pop() {
        let path = folder["encoded_path"].as_str().unwrap_or_default();
        let listed = api.all(&format!("/files?path={path}"), &[("hidden", "true")]).await;
        let name = shown(&folder);
        if !below.as_os_str().is_empty() {
            found.push((folder, below.clone()));
        }
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => {
                note(Err(error), &name, steps)?;
                continue;
            }
        };
        if listed["truncated"] == true {
            let why = Error::NotCopied("it has too many entries, and not all of them are listed".to_owned());
            note(Err(why), &name, steps)?;
        }
        for entry in listed["items"].as_array().into_iter().flatten() {
            let name: OsString = match name_of(entry) {
                Ok(name) => name,
                Err(error) => {
                    note(Err(error), &shown(entry), steps)?;
                    continue;
                }
            };
            let is_partial = name.to_string_lossy().starts_with(".lyceum-upload-");
            match entry["kind"].as_str() {
                _ if is_partial => {}
                _ if entry["is_link"] == true => skip(&shown(entry), "it is a link"),
                Some("folder") => open.push((entry.clone(), below.join(name))),
                Some("file") => found.push((entry.clone(), below.join(name))),
                _ => skip(&shown(entry), "it is not a regular file"),
            }
        }
    }
    Ok(found)
}

pub async fn copy(api: &Api, work: &Work, progress: &mut Progress) -> Result<Option<Copied>> {
    match work {
        Work::Folder(target) => make_folder(target).map(|()| None),
        Work::File { path, target } => {
            let bytes = receive(api, path, target, progress).await?;
            Ok(Some(Copied { target: target.display().to_string(), bytes }))
        }
    }
}

/// A link is not a folder here: what is below would be written to another place.
fn make_folder(target: &Path) -> Result<()> {
    match fs::create_dir(target) {
        Err(_) if fs::symlink_metadata(target).is_ok_and(|found| found.is_dir()) => Ok(()),
        other => other.map_err(|error| Error::local("create", target, error)),
    }
}

async fn receive(api: &Api, path: &str, target: &Path, progress: &mut Progress) -> Result<u64> {
    let failed = |error| Error::local("write", target, error);
    if target.is_dir() {
        return Err(Error::NotCopied(table::harmless(&format!("{} is a folder", target.display()))));
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut partial = tempfile::Builder::new();
    let partial = partial.prefix(super::local::PARTIAL).permissions(Permissions::from_mode(0o666));
    let mut partial = partial.tempfile_in(folder).map_err(failed)?;
    let mut part = Part { received: 0, tag: None };
    let mut retries = Retries::default();
    loop {
        let before = part.received;
        match part.go_on(api, path, partial.as_file_mut(), target, progress).await {
            Ok(()) => break,
            Err(error) => {
                if part.received > before {
                    retries = Retries::default();
                }
                retries.wait(error, progress).await?;
            }
        }
    }
    partial.as_file().sync_all().map_err(failed)?;
    partial.persist(target).map_err(|error| failed(error.error))?;
    Ok(part.received)
}

/// How much of a file has arrived, and of which version of it.
struct Part {
    received: u64,
    tag: Option<String>,
}

impl Part {
    async fn go_on(
        &mut self,
        api: &Api,
        path: &str,
        file: &mut File,
        target: &Path,
        progress: &mut Progress,
    ) -> Result<()> {
        let failed = |error| Error::local("write", target, error);
        let range = format!("bytes={}-", self.received);
        let headers = match &self.tag {
            Some(tag) if self.received > 0 => vec![("range", range.as_str()), ("if-range", tag)],
            _ => Vec::new(),
        };
        let deadline = || Some(Instant::now() + SILENCE_TIMEOUT);
        let path = format!("/files/content?path={path}");
        let mut answer = within(deadline(), api.raw(Method::GET, &path, &headers, None)).await?;
        if answer.status() != PARTIAL {
            // All of it comes: for the first time, or because it has changed.
            file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(failed)?;
            self.received = 0;
        }
        self.tag = answer.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        while let Some(bytes) = within(deadline(), api.part(&mut answer)).await? {
            file.write_all(&bytes).map_err(failed)?;
            self.received += bytes.len() as u64;
            progress.at(self.received);
        }
        Ok(())
    }
}
