//! The code of a job: a folder of this machine that is copied into a new folder on the portal's machine, which becomes
//! the job's working directory. In a Git work tree, Git says which files belong to it. All of it is copied, or nothing is
//! submitted.

mod git;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use clap::Args;
use jiff::tz::TimeZone;
use lyceum_model::{Clock, Timestamp, files::RawPath};
use rustix::fs::FileType;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use git::{Checkout, Repository, State, Version};

use super::{
    PREFIX, Result,
    copy::{self, Progress, Retries, Step, human},
    download, local,
    upload::{self, Work},
};
use crate::{
    api::{Api, Error},
    jobs::Submit,
    print_status, table,
};

/// The code that is copied with a job.
#[derive(Args, Debug)]
pub struct CodeArguments {
    /// Copy this folder of this machine into a new folder on the portal's machine, and run there
    #[arg(long, value_name = "FOLDER", conflicts_with = "working_directory")]
    code: Option<PathBuf>,
    /// The folder on the portal's machine that the new folder is created in; by default `~/jobs`
    #[arg(long, value_name = "FOLDER", requires = "code")]
    code_to: Option<String>,
    /// Copy this commit, tag or branch of the Git repository instead of the files as they are
    #[arg(long, value_name = "REVISION", requires = "code")]
    git_revision: Option<String>,
}

/// The folder that the new folders are created in.
const DEFAULT_PARENT: &str = "~/jobs";

/// The most that is copied with a job.
const MAX_FILES: u64 = 20_000;
const MAX_BYTES: u64 = 1 << 30;

/// Of the job's name in that of the folder (characters).
const MAX_NAME_LENGTH: usize = 40;
/// How many submissions of one name in one second get a folder.
const MAX_FOLDERS: u32 = 1000;

/// What is copied.
struct Plan {
    steps: Vec<Step<Work>>,
    size: Size,
    version: Option<Version>,
    /// Keeps the files of a revision until they are copied.
    _checkout: Option<Checkout>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    files: u64,
    bytes: u64,
}

/// Which entries of a folder belong to the code.
enum Selection {
    /// All except for `.git`.
    All,
    /// These files, and the folders above them.
    Listed { files: HashSet<PathBuf>, folders: HashSet<PathBuf> },
}

/// Submits a job, or many jobs, by a request; the code is copied first if there is some.
///
/// The response to a repeated request is that to the first one, so that a lost response starts nothing twice.
pub async fn submit(api: &Api, path: &str, mut asked: Value, of: &Submit) -> Result<Value> {
    let Some(source) = &of.code.code else { return api.post(path, &asked).await };
    let plan = Plan::of(source, of.code.git_revision.as_deref())?;
    let name = match &of.name {
        Some(name) => name.clone(),
        None => local::name(source).unwrap_or_default(),
    };
    let version = plan.version.as_ref().map(sentence);
    let size = plan.size;
    let folder = plan.copy(api, of.code.parent(), &folder_name(&name, Clock::System.now(), TimeZone::system())).await?;
    let shown = version.as_ref().map(|version| format!(", {version}")).unwrap_or_default();
    print_status(format_args!("copied {} to {}{shown}", size.sentence(), table::harmless(&folder)));

    let job = if asked["job"].is_object() { &mut asked["job"] } else { &mut asked };
    job["working_directory"] = json!(folder);
    if let Some(version) = version {
        job["notes"] = json!(with_line(job["notes"].as_str(), &format!("Code: {version}")));
    }
    let key = hex::encode(Sha256::digest(format!("code {folder}")));
    match persist(async || api.post_once(path, &key, &asked).await).await {
        Ok(answer) => Ok(answer),
        Err(error) => {
            if is_rejection(&error, of.array.is_some()) {
                remove(api, &folder).await;
            } else {
                print_status(format_args!("lyceum: the copied code stays in {}", table::harmless(&folder)));
            }
            Err(error)
        }
    }
}

/// Reports what would be copied.
pub fn rehearse(asked: &CodeArguments) -> Result<()> {
    if let Some(source) = &asked.code {
        let plan = Plan::of(source, asked.git_revision.as_deref())?;
        print_status(format_args!("would copy {} into a new folder in {}", plan.size.sentence(), asked.parent()));
    }
    Ok(())
}

impl CodeArguments {
    fn parent(&self) -> &str {
        let parent = self.code_to.as_deref().unwrap_or(DEFAULT_PARENT);
        parent.strip_prefix(PREFIX).unwrap_or(parent)
    }
}

impl Plan {
    fn of(source: &Path, revision: Option<&str>) -> Result<Self> {
        if !source.is_dir() {
            return Err(Error::Usage(table::harmless(&format!("{} is not a folder", source.display()))));
        }
        let repository = Repository::of(source)?;
        let plan = match (repository, revision) {
            (Some(repository), Some(revision)) => Self::of_revision(source, &repository, revision)?,
            (Some(repository), None) => {
                let selection = Selection::listed(repository.files()?);
                Self::of_folder(source, source, &selection)?.with(repository.version()?, None)
            }
            (None, None) => Self::of_folder(source, source, &Selection::All)?,
            (None, Some(_)) => {
                let source = source.display();
                return Err(Error::Usage(format!("--git-revision needs git, and {source} in a Git repository")));
            }
        };
        if plan.size.files == 0 {
            let source = source.display();
            return Err(Error::NotCopied(format!("{source} has no files to copy; what Git ignores is not copied")));
        }
        Ok(plan)
    }

    fn of_revision(source: &Path, repository: &Repository, revision: &str) -> Result<Self> {
        let Some(commit) = repository.commit(revision)? else {
            return Err(Error::Usage(table::harmless(&format!(
                "`{revision}` is not a commit, tag or branch of the Git repository of {}",
                source.display()
            ))));
        };
        let blobs = repository.blobs(&commit)?;
        let bytes = blobs.iter().map(|blob| blob.bytes).sum();
        Size { files: blobs.len() as u64, bytes }.check(source)?;
        if blobs.is_empty() {
            return Err(Error::NotCopied(table::harmless(&format!(
                "`{revision}` has no files in {}",
                source.display()
            ))));
        }
        let checkout = repository.check_out(&commit, &blobs)?;
        let version = Version { commit, state: State::Named(revision.to_owned()) };
        Ok(Self::of_folder(&checkout.folder, source, &Selection::All)?.with(Some(version), Some(checkout)))
    }

    fn of_folder(folder: &Path, shown: &Path, selection: &Selection) -> Result<Self> {
        let (mut steps, mut size) = (Vec::new(), Size::default());
        let mut admits = |path: &Path, entry: &local::Entry| {
            let belongs = selection.has(path, entry.kind);
            if belongs && entry.kind == FileType::RegularFile {
                size = Size { files: size.files + 1, bytes: size.bytes + entry.bytes };
            }
            // What is too large is counted and not kept.
            belongs && !size.is_too_large()
        };
        upload::plan_folder(folder, shown, String::new(), &mut admits, &mut steps)?;
        size.check(shown)?;
        let (faults, mut steps): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.work.is_err());
        let count = faults.len();
        for step in faults {
            let error = step.work.err().map(|error| error.to_string()).unwrap_or_default();
            print_status(format_args!("lyceum: {}: {error}", table::harmless(&step.name)));
        }
        if count > 0 {
            let what = if count == 1 { "file or folder" } else { "files or folders" };
            return Err(Error::NotCopied(format!("nothing was submitted: {count} {what} cannot be copied")));
        }
        // The folder itself is created under its new name.
        steps.remove(0);
        Ok(Self { steps, size, version: None, _checkout: None })
    }

    fn with(self, version: Option<Version>, checkout: Option<Checkout>) -> Self {
        Self { version, _checkout: checkout, ..self }
    }

    /// Copies everything into a new folder, and returns its path.
    async fn copy(self, api: &Api, parent: &str, name: &str) -> Result<String> {
        let not_submitted =
            |what: &str, error| Error::NotSubmitted { what: table::harmless(what), error: Box::new(error) };
        let folder = new_folder(api, parent, name).await.map_err(|error| not_submitted(parent, error))?;
        let steps =
            self.steps.into_iter().map(|step| Step { work: step.work.map(|work| work.within(&folder)), ..step });
        let copied = copy::whole(steps.collect(), async |work, progress| {
            let mut retries = Retries::default();
            loop {
                match upload::copy(api, work, progress).await {
                    Err(error) => retries.wait(error, progress).await?,
                    done => return done,
                }
            }
        });
        if let Err((file, error)) = copied.await {
            remove(api, &folder).await;
            return Err(not_submitted(&file, error));
        }
        Ok(folder)
    }
}

impl Selection {
    fn listed(files: Vec<PathBuf>) -> Self {
        let folders = files.iter().flat_map(|file| file.ancestors().skip(1)).map(Path::to_owned).collect();
        Self::Listed { files: files.into_iter().collect(), folders }
    }

    /// Whether an entry belongs to the code, by its path in the folder.
    fn has(&self, path: &Path, kind: FileType) -> bool {
        match self {
            Self::All => path.file_name().is_none_or(|name| name != ".git"),
            Self::Listed { folders, .. } if kind == FileType::Directory => folders.contains(path),
            Self::Listed { files, .. } => files.contains(path),
        }
    }
}

impl Size {
    fn is_too_large(self) -> bool {
        self.files > MAX_FILES || self.bytes > MAX_BYTES
    }

    fn check(self, source: &Path) -> Result<()> {
        if !self.is_too_large() {
            return Ok(());
        }
        Err(Error::NotCopied(table::harmless(&format!(
            "nothing was submitted: {} has {}; at most {} are copied with a job. Name data in .gitignore, or copy the folder \
             once with `lyceum files cp -r` and use --working-directory",
            source.display(),
            self.sentence(),
            Self { files: MAX_FILES, bytes: MAX_BYTES }.sentence()
        ))))
    }

    fn sentence(self) -> String {
        let word = if self.files == 1 { "file" } else { "files" };
        format!("{} {word}, {}", self.files, human(self.bytes))
    }
}

/// Creates a folder that nobody else has, and returns its path.
async fn new_folder(api: &Api, parent: &str, name: &str) -> Result<String> {
    match upload::make_folder(api, parent).await {
        // A portal that is not there is reported at once, one that is overloaded gets time.
        Err(error @ Error::Problem(_)) if error.may_pass() => {
            persist(async || upload::make_folder(api, parent).await).await?;
        }
        done => done?,
    }
    let mut number = 1;
    loop {
        let path = upload::below(parent, &numbered(name, number));
        match persist(async || api.post("/files/folders", &json!({ "path": path })).await).await {
            Ok(made) => {
                let path = RawPath::decode(made["encoded_path"].as_str().unwrap_or_default());
                return String::from_utf8(path.0)
                    .map_err(|_not_text| Error::Strange("a path that is not text".to_owned()));
            }
            // Also if there is no space.
            Err(Error::Problem(problem)) if problem.status == 409 && number < MAX_FOLDERS => {
                match persist(async || download::find(api, &path).await).await {
                    Ok(_) => number += 1,
                    Err(_) => return Err(Error::Problem(problem)),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Removes what was copied for nothing.
async fn remove(api: &Api, folder: &str) {
    let path = RawPath::from(folder).encoded();
    if let Err(error) = api.delete(&format!("/files?path={path}&recursive=true")).await {
        print_status(format_args!("lyceum: {} was not removed: {error}", table::harmless(folder)));
    }
}

/// Repeats what creates nothing twice, while it fails for a reason that may pass.
async fn persist<T>(mut deed: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let mut retries = Retries::default();
    loop {
        match deed().await {
            Err(error) => retries.wait(error, &mut Progress::new(0)).await?,
            done => return done,
        }
    }
}

/// Whether nothing was created for sure. An array may be there although its first job is not.
fn is_rejection(error: &Error, is_array: bool) -> bool {
    match error {
        Error::Problem(problem) if problem.status == 409 => !is_array,
        Error::Problem(problem) => (400..500).contains(&problem.status) && !error.may_pass(),
        _ => false,
    }
}

/// Returns the name of a new folder: that of the job in characters that need no quotes, and the time.
fn folder_name(name: &str, now: Timestamp, zone: TimeZone) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String = name.chars().map(plain).take(MAX_NAME_LENGTH).collect();
    let name = name.trim_matches(['-', '.']);
    let now = jiff::Timestamp::from_millisecond(now.0).unwrap_or_default().to_zoned(zone);
    format!("{}-{}", if name.is_empty() { "job" } else { name }, now.strftime("%Y%m%d-%H%M%S"))
}

fn numbered(name: &str, number: u32) -> String {
    if number == 1 { name.to_owned() } else { format!("{name}-{number}") }
}

/// Returns a version in words, as Markdown.
fn sentence(version: &Version) -> String {
    let commit = format!("Git commit `{}`", version.commit);
    match &version.state {
        State::Clean => commit,
        State::Changed => format!("{commit} with local changes"),
        State::Named(name) if *name == version.commit || name.contains('`') => commit,
        State::Named(name) => format!("{commit} (`{name}`)"),
    }
}

/// Adds a paragraph to notes.
fn with_line(notes: Option<&str>, line: &str) -> String {
    match notes.map(str::trim_end).filter(|notes| !notes.is_empty()) {
        Some(notes) => format!("{notes}\n\n{line}"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests;
