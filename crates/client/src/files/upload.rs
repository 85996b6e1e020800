//! The way from this machine to the portal's, by the API's uploads: the file appears under its name when it has arrived
//! completely and its hash is right. An upload is known by its target and its content, so that the same command resumes
//! one that was interrupted. No link in a folder is followed.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use lyceum_model::files::RawPath;
use reqwest::Method;
use rustix::fs::FileType;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{
    Result,
    copy::{Copied, Progress, Retries, Step, note, skip},
    download, is_folder_without_recursive,
    local::{self, Entry, Folder, Source},
};
use crate::{
    api::{Api, Error},
    wait::within,
};

/// How much is sent at once (bytes), and how long that may take.
const PIECE: u64 = 8 << 20;
const PIECE_TIMEOUT: Duration = Duration::from_mins(10);

pub enum Work {
    Folder(String),
    File { source: Source, path: PathBuf, target: String, executable: bool },
}

impl Work {
    /// Returns the same with its target, which begins with `/`, below a folder.
    #[must_use]
    pub fn within(self, folder: &str) -> Self {
        match self {
            Self::Folder(target) => Self::Folder(format!("{folder}{target}")),
            Self::File { source, path, target, executable } => {
                Self::File { source, path, target: format!("{folder}{target}"), executable }
            }
        }
    }
}

/// Returns the path of the folder that copies go into, or nothing where the target is the copy's own path.
pub async fn folder(api: &Api, target: &str, may_be_new: bool) -> Result<Option<String>> {
    let not_a_folder = || Error::Usage(format!("lyceum:{target} is not a folder"));
    match download::find(api, target).await {
        Ok(entry) if entry["kind"] == "folder" => {
            let path = RawPath::decode(entry["encoded_path"].as_str().unwrap_or_default());
            String::from_utf8(path.0).map(Some).map_err(|_not_text| not_a_folder())
        }
        Ok(_) if may_be_new && !target.ends_with('/') => Ok(None),
        Err(Error::Problem(problem)) if problem.status == 404 && may_be_new && !target.ends_with('/') => Ok(None),
        Ok(_) => Err(not_a_folder()),
        Err(error) => Err(error),
    }
}

pub fn below(folder: &str, name: &str) -> String {
    format!("{}/{name}", folder.trim_end_matches('/'))
}

/// Adds a file, or a folder with everything in it, that becomes `target`.
pub fn plan(source: &Path, target: String, recursive: bool, steps: &mut Vec<Step<Work>>) -> Result<()> {
    let failed = |error| Error::local("read", source, error);
    let facts = std::fs::metadata(source).map_err(failed)?;
    let name = source.display().to_string();
    if !facts.is_dir() {
        let executable = local::is_executable(facts.permissions().mode());
        let work = Work::File { source: Source::typed(source), path: source.to_owned(), target, executable };
        steps.push(Step { name, bytes: facts.len(), work: Ok(work) });
        return Ok(());
    }
    if !recursive {
        return Err(is_folder_without_recursive());
    }
    plan_folder(source, source, target, &mut |_, _| true, steps)
}

/// Adds a folder with everything in it that `admits` accepts by its path in the folder. Messages call it `shown`.
pub fn plan_folder(
    source: &Path,
    shown: &Path,
    target: String,
    admits: &mut dyn FnMut(&Path, &Entry) -> bool,
    steps: &mut Vec<Step<Work>>,
) -> Result<()> {
    let folder = Folder::open(source).map_err(|error| Error::local("read", shown, error))?;
    let mut open = vec![(PathBuf::new(), target)];
    while let Some((path, target)) = open.pop() {
        let name = |path: &Path| shown.join(path).display().to_string();
        let here = if path.as_os_str().is_empty() { shown.display().to_string() } else { name(&path) };
        steps.push(Step { name: here.clone(), bytes: 0, work: Ok(Work::Folder(target.clone())) });
        let entries = match folder.list(&path) {
            Ok(entries) => entries,
            Err(error) => {
                note(Err(Error::local("read", &shown.join(&path), error)), &here, steps)?;
                continue;
            }
        };
        for entry in entries {
            let below_source = path.join(&entry.name);
            if !admits(&below_source, &entry) {
                continue;
            }
            let target = match local::text(&entry.name) {
                Ok(name) => below(&target, &name),
                Err(error) => {
                    note(Err(error), &name(&below_source), steps)?;
                    continue;
                }
            };
            match entry.kind {
                FileType::Directory => open.push((below_source, target)),
                FileType::RegularFile => {
                    let (path, name) = (shown.join(&below_source), name(&below_source));
                    let executable = entry.executable;
                    let work = Work::File { source: folder.file(below_source), path, target, executable };
                    steps.push(Step { name, bytes: entry.bytes, work: Ok(work) });
                }
                FileType::Symlink => skip(&name(&below_source), "it is a link"),
                _ => skip(&name(&below_source), "it is not a regular file"),
            }
        }
    }
    Ok(())
}

pub async fn copy(api: &Api, work: &Work, progress: &mut Progress) -> Result<Option<Copied>> {
    match work {
        Work::Folder(target) => make_folder(api, target).await.map(|()| None),
        Work::File { source, path, target, executable } => {
            let failed = |error| Error::local("read", path, error);
            let mut file = source.open().map_err(failed)?;
            let (bytes, sha256) = digest(&mut file).map_err(failed)?;
            let upload = Upload { path, bytes, sha256, target, executable: *executable };
            upload.send(api, &mut file, progress).await?;
            Ok(Some(Copied { target: target.clone(), bytes }))
        }
    }
}

pub async fn make_folder(api: &Api, target: &str) -> Result<()> {
    match api.post("/files/folders", &json!({ "path": target })).await {
        Err(Error::Problem(problem)) if problem.status == 409 => match download::find(api, target).await {
            Ok(found) if found["kind"] == "folder" => Ok(()),
            _ => Err(Error::Problem(problem)),
        },
        other => other.map(drop),
    }
}

/// Returns the size of a file and the SHA-256 of its content.
fn digest(file: &mut File) -> io::Result<(u64, String)> {
    let (mut hasher, mut buffer, mut bytes) = (Sha256::new(), vec![0; 1 << 20], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, hex::encode(hasher.finalize()))),
            length => {
                hasher.update(&buffer[..length]);
                bytes += length as u64;
            }
        }
    }
}

struct Upload<'a> {
    path: &'a Path,
    bytes: u64,
    sha256: String,
    target: &'a str,
    executable: bool,
}

impl Upload<'_> {
    async fn send(&self, api: &Api, file: &mut File, progress: &mut Progress) -> Result<()> {
        let begun = self.begin(api).await?;
        let upload = format!("/files/uploads/{}", begun["id"].as_str().unwrap_or_default());
        let mut offset = begun["offset_bytes"].as_u64().unwrap_or(0);
        let mut retries = Retries::default();
        while offset < self.bytes {
            progress.at(offset);
            let sent = match self.piece(api, &upload, file, offset).await {
                Ok(answer) if answer["offset_bytes"].as_u64() <= Some(offset) => {
                    return Err(Error::Strange("an upload that does not grow".to_owned()));
                }
                Ok(answer) => Ok(answer),
                Err(error) => {
                    retries.wait(error, progress).await?;
                    // It may have arrived, in whole or in part.
                    api.get(&upload, &[]).await
                }
            };
            match sent {
                Ok(answer) => {
                    let now = answer["offset_bytes"].as_u64().unwrap_or(0);
                    if now > offset {
                        retries = Retries::default();
                    }
                    offset = now;
                }
                Err(error) => retries.wait(error, progress).await?,
            }
        }
        progress.at(offset);
        // The portal reads all of it again, which takes as long as it takes.
        api.raw(Method::POST, &format!("{upload}/finish"), &[], None).await.map(drop)
    }

    async fn begin(&self, api: &Api) -> Result<Value> {
        let Self { bytes, sha256, target, .. } = self;
        let key = hex::encode(Sha256::digest(format!("{sha256} {bytes} {target}")));
        let mut asked = json!({ "path": target, "size_bytes": bytes, "replace": true, "sha256": sha256 });
        if self.executable {
            asked["executable"] = Value::Bool(true);
        }
        let headers = [("idempotency-key", key.as_str())];
        let asked = Some(asked.to_string().into());
        let deadline = Some(Instant::now() + PIECE_TIMEOUT);
        let answer = within(deadline, api.raw(Method::POST, "/files/uploads", &headers, asked)).await?;
        read(api, answer).await
    }

    async fn piece(&self, api: &Api, upload: &str, file: &mut File, offset: u64) -> Result<Value> {
        let mut piece = Vec::new();
        let length = PIECE.min(self.bytes - offset);
        let read_here = file.seek(SeekFrom::Start(offset)).and_then(|_| file.take(length).read_to_end(&mut piece));
        read_here.map_err(|error| Error::local("read", self.path, error))?;
        if (piece.len() as u64) < length {
            return Err(Error::NotCopied("it has become shorter meanwhile".to_owned()));
        }
        let offset = offset.to_string();
        let headers = [("upload-offset", offset.as_str()), ("content-type", "application/octet-stream")];
        let deadline = Some(Instant::now() + PIECE_TIMEOUT);
        let answer = within(deadline, api.raw(Method::PATCH, upload, &headers, Some(piece.into()))).await?;
        read(api, answer).await
    }
}

async fn read(api: &Api, mut answer: reqwest::Response) -> Result<Value> {
    let mut body = Vec::new();
    while let Some(part) = api.part(&mut answer).await? {
        body.extend(part);
    }
    serde_json::from_slice(&body).map_err(|error| Error::Strange(error.to_string()))
}
