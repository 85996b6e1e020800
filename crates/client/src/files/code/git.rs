//! What Git says of a folder of this machine: which files belong to it, which commit they are, and the files of another
//! commit. Git itself is asked, so that its rules are the user's own. It runs no hook and changes nothing in the
//! repository.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    api::{Error, Result},
    files::copy::skip,
    print_status, table,
};

/// A folder in a work tree of Git.
pub struct Repository(PathBuf);

/// Which code a job has.
#[derive(Debug, PartialEq, Eq)]
pub struct Version {
    /// The full id of the commit.
    pub commit: String,
    pub state: State,
}

#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// The work tree, as it is in the commit.
    Clean,
    /// The work tree differs from the commit.
    Changed,
    /// The commit, by the name that was asked for.
    Named(String),
}

/// The files of a commit in a temporary folder, which is removed with this.
pub struct Checkout {
    _place: TempDir,
    pub folder: PathBuf,
}

/// A file of a commit.
#[derive(Debug, PartialEq, Eq)]
pub struct Blob {
    pub path: PathBuf,
    pub bytes: u64,
}

/// Variables that would lead Git to another repository than the one that the folder is in.
const FOREIGN: [&str; 5] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"];

impl Repository {
    /// Returns the repository that a folder is in, or nothing if there is none or Git is not installed.
    pub fn of(folder: &Path) -> Result<Option<Self>> {
        let whole = folder.canonicalize().map_err(|error| Error::local("read", folder, error))?;
        if !whole.ancestors().any(|above| above.join(".git").exists()) {
            return Ok(None);
        }
        let found = Self(whole);
        match found.command(&["rev-parse", "--is-inside-work-tree"]).env("LC_ALL", "C").output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                print_status(format_args!("lyceum: git is not installed, so that .gitignore is not followed"));
                Ok(None)
            }
            Err(error) => Err(not_started(&error)),
            Ok(output) if output.status.success() => Ok((output.stdout.trim_ascii() == b"true").then_some(found)),
            // What is left of a repository.
            Ok(output) if String::from_utf8_lossy(&output.stderr).contains("not a git repository") => Ok(None),
            Ok(output) => Err(failed(folder, &output.stderr)),
        }
    }

    /// Returns the tracked files, and the untracked ones that Git does not ignore, also of repositories inside. Some may have
    /// been deleted.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let (mut files, mut open) = (Vec::new(), vec![PathBuf::new()]);
        while let Some(below) = open.pop() {
            let inside = Self(self.0.join(&below));
            let listed = inside.ask(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
            for path in paths(&listed).map(|path| below.join(path)) {
                let place = self.0.join(&path);
                // A folder is a repository of its own.
                if !fs::symlink_metadata(&place).is_ok_and(|facts| facts.is_dir()) {
                    files.push(path);
                } else if place.join(".git").exists() {
                    open.push(path);
                } else {
                    skip(&place.display().to_string(), "it is a submodule that is not checked out");
                }
            }
        }
        Ok(files)
    }

    /// Returns the commit of the work tree, and whether files in the folder differ from it; nothing before the first
    /// commit.
    pub fn version(&self) -> Result<Option<Version>> {
        let Some(commit) = self.commit("HEAD")? else { return Ok(None) };
        let changes = self.ask(&["status", "--porcelain", "-z", "--", "."])?;
        let state = if changes.is_empty() { State::Clean } else { State::Changed };
        Ok(Some(Version { commit, state }))
    }

    /// Returns the full id of a commit, which a tag or a branch may name.
    pub fn commit(&self, name: &str) -> Result<Option<String>> {
        if name.starts_with('-') {
            return Ok(None);
        }
        let name = format!("{name}^{{commit}}");
        let output = self.command(&["rev-parse", "--verify", "--quiet", &name]).output();
        let output = output.map_err(|error| not_started(&error))?;
        let commit = String::from_utf8_lossy(output.stdout.trim_ascii()).into_owned();
        Ok(Some(commit).filter(|commit| output.status.success() && !commit.is_empty()))
    }

    /// Returns the files and links of a commit below the folder. Its submodules are named and left out.
    pub fn blobs(&self, commit: &str) -> Result<Vec<Blob>> {
        let (blobs, submodules) = tree(&self.ask(&["ls-tree", "-r", "-l", "-z", commit])?);
        for path in submodules {
            skip(&self.0.join(path).display().to_string(), "it is a submodule; a revision does not contain its files");
        }
        Ok(blobs)
    }

    /// Writes files of a commit into a temporary folder, as a checkout would.
    pub fn check_out(&self, commit: &str, blobs: &[Blob]) -> Result<Checkout> {
        let place = tempfile::Builder::new().prefix("lyceum-code-").tempdir();
        let place = place.map_err(|error| Error::local("create", Path::new("a temporary folder"), error))?;
        let (index, names, tree) = (place.path().join("index"), place.path().join("names"), place.path().join("tree/"));
        let wrong = |error| Error::local("write", &names, error);
        let list: Vec<u8> = blobs.iter().flat_map(|blob| [blob.path.as_os_str().as_bytes(), b"\0"].concat()).collect();
        fs::write(&names, list).map_err(wrong)?;
        let mut read = self.command(&["read-tree", commit]);
        self.complete(read.env("GIT_INDEX_FILE", &index))?;
        let mut prefix = OsString::from("--prefix=");
        prefix.push(&tree);
        let mut write = self.command(&["checkout-index", "-z", "--stdin"]);
        write.arg(prefix).env("GIT_INDEX_FILE", &index).stdin(File::open(&names).map_err(wrong)?);
        self.complete(&mut write)?;
        let below = self.ask(&["rev-parse", "--show-prefix"])?;
        let folder = tree.join(OsStr::from_bytes(below.strip_suffix(b"\n").unwrap_or(&below)));
        Ok(Checkout { _place: place, folder })
    }

    fn ask(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        self.complete(&mut self.command(arguments))
    }

    fn complete(&self, command: &mut Command) -> Result<Vec<u8>> {
        let output = command.output().map_err(|error| not_started(&error))?;
        if output.status.success() { Ok(output.stdout) } else { Err(failed(&self.0, &output.stderr)) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.0).args(arguments).stdin(Stdio::null());
        for name in FOREIGN {
            command.env_remove(name);
        }
        // Looking must not write, not even the index.
        command.env("GIT_OPTIONAL_LOCKS", "0");
        command
    }
}

fn not_started(error: &io::Error) -> Error {
    Error::NotCopied(format!("git cannot be started: {error}"))
}

fn failed(folder: &Path, said: &[u8]) -> Error {
    let said = String::from_utf8_lossy(said.trim_ascii()).into_owned();
    Error::NotCopied(table::harmless(&format!("git failed in {}: {said}", folder.display())))
}

/// Reads names that end in NUL. Folders may end in a slash.
fn paths(listed: &[u8]) -> impl Iterator<Item = PathBuf> {
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| OsString::from_vec(name.strip_suffix(b"/").unwrap_or(name).to_vec()).into())
}

/// Reads what `ls-tree -l -z` lists: files and links, and the paths of submodules.
fn tree(listed: &[u8]) -> (Vec<Blob>, Vec<PathBuf>) {
    let (mut blobs, mut submodules) = (Vec::new(), Vec::new());
    for entry in listed.split(|byte| *byte == 0) {
        let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else { continue };
        let (facts, path) = (String::from_utf8_lossy(&entry[..tab]), OsStr::from_bytes(&entry[tab + 1..]));
        let words: Vec<&str> = facts.split_whitespace().collect();
        match words[..] {
            [_, "commit", ..] => submodules.push(path.into()),
            [_, "blob", _, bytes] => blobs.push(Blob { path: path.into(), bytes: bytes.parse().unwrap_or(0) }),
            _ => {}
        }
    }
    (blobs, submodules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_with_every_name() {
        let odd: Vec<PathBuf> = paths(b"a b\0line\nbreak\0\xff\0nested/\0").collect();
        let expected = [OsStr::new("a b"), OsStr::new("line\nbreak"), OsStr::from_bytes(b"\xff"), OsStr::new("nested")];
        assert_eq!(odd, expected.map(PathBuf::from));
        assert_eq!(paths(b"").count(), 0);
        let listed =
            b"100755 blob 1a     12\trun\tit.sh\x00160000 commit 2b       -\tsub\x00120000 blob 3c      4\tlink\x00";
        let (blobs, submodules) = tree(listed);
        let blob = |path: &str, bytes| Blob { path: path.into(), bytes };
        assert_eq!((blobs, submodules), (vec![blob("run\tit.sh", 12), blob("link", 4)], vec!["sub".into()]));
    }
}
