//! The Python that the default environment stands on: found, asked for its version, and
//! refused with the command that helps when it is too old, lacks `venv`, or lies where
//! other users cannot reach it.

use std::{
    ffi::OsString,
    fmt,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::{
    BasePython,
    failure::{Cause, Failure, System},
};

/// The oldest Python that the requirements can be installed on.
const OLDEST: (u32, u32) = (3, 10);

/// Where Pythons are looked for, before the search path. The plain name comes first: it is
/// the one that the distribution keeps patched.
const PLACES: [&str; 12] = [
    "/usr/bin/python3",
    "/usr/bin/python3.13",
    "/usr/bin/python3.12",
    "/usr/bin/python3.11",
    "/usr/bin/python3.10",
    "/usr/local/bin/python3",
    "/usr/local/bin/python3.13",
    "/usr/local/bin/python3.12",
    "/usr/local/bin/python3.11",
    "/usr/local/bin/python3.10",
    "/opt/python/bin/python3",
    "/opt/homebrew/bin/python3",
];

/// Asked of every candidate; the answer is one line of JSON.
const PROBE: &str = "
import json, os, sys
try:
    import ensurepip, venv
    has_venv = True
except ImportError:
    has_venv = False
print(json.dumps({
    'version': list(sys.version_info[:3]),
    'executable': os.path.realpath(sys.executable),
    'library': os.path.dirname(os.path.realpath(os.__file__)),
    'has_venv': has_venv,
}))
";

/// A Python to build on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// As it was found: `/usr/bin/python3`.
    pub path: PathBuf,
    pub version: (u32, u32, u32),
    /// Whether `python -m venv` works without help.
    pub has_venv: bool,
}

impl Base {
    pub fn version_text(&self) -> String {
        let (major, minor, patch) = self.version;
        format!("{major}.{minor}.{patch}")
    }
}

#[derive(Deserialize)]
struct Answer {
    version: (u32, u32, u32),
    executable: PathBuf,
    library: PathBuf,
    has_venv: bool,
}

/// What is asked of a base.
#[derive(Clone, Copy, Debug)]
pub struct BaseRequirements<'a> {
    pub python: &'a BasePython,
    /// Several Unix users will run it.
    pub everybody: bool,
    /// False where something else than `python -m venv` makes the environment.
    pub needs_venv: bool,
    /// The search path to look on last.
    pub search: &'a str,
}

/// Finds the Python to build on, or says why none will do.
pub async fn find(wanted: BaseRequirements<'_>) -> Result<Base, Failure> {
    let candidates = match wanted.python {
        BasePython::Path(path) => vec![path.clone()],
        BasePython::Auto => {
            let searched = std::iter::once("python3").chain(["python3.13", "python3.12", "python3.11", "python3.10"]);
            let on_path = searched.filter_map(|name| on_search_path(wanted.search, name));
            PLACES.iter().map(PathBuf::from).filter(|path| path.exists()).chain(on_path).collect()
        }
    };
    // The first refusal is told: it is about the Python that people mean by “Python”.
    let mut refusal = None;
    for candidate in &candidates {
        match judge(candidate, wanted).await {
            Ok(base) => return Ok(base),
            Err(failure) => _ = refusal.get_or_insert(failure),
        }
    }
    Err(refusal.unwrap_or_else(|| Failure {
        cause: Cause::Python,
        what: "Python was not found on this machine; notebooks require Python 3.10 or later".to_owned(),
        command: System::of_this_machine().install_python(),
    }))
}

/// Whether this Python will do.
async fn judge(path: &Path, wanted: BaseRequirements<'_>) -> Result<Base, Failure> {
    let refused = |what: String, command: String| Err(Failure { cause: Cause::Python, what, command });
    let system = System::of_this_machine();
    let shown = path.display();
    let answer = match ask(path).await {
        Ok(answer) => answer,
        Err(why) => return refused(format!("{shown} does not run: {why}"), system.install_python()),
    };
    let (major, minor, _) = answer.version;
    if (major, minor) < OLDEST {
        let (oldest_major, oldest_minor) = OLDEST;
        return refused(
            format!("{shown} is Python {major}.{minor}; notebooks require {oldest_major}.{oldest_minor} or later"),
            system.install_python(),
        );
    }
    if wanted.everybody {
        for place in [path, &answer.executable, &answer.library] {
            if let Some(closed) = closed_to_others(place) {
                return refused(
                    format!("{shown} cannot be run by other users: they cannot access {}", closed.display()),
                    system.install_python(),
                );
            }
        }
    }
    if wanted.needs_venv && !answer.has_venv {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        return refused(
            format!("{shown} lacks the modules `venv` and `ensurepip`, which are required to create environments"),
            system.install_venv(&name, minor),
        );
    }
    Ok(Base { path: path.to_owned(), version: answer.version, has_venv: answer.has_venv })
}

async fn ask(path: &Path) -> Result<Answer, String> {
    let output = run_briefly(path, ["-I".into(), "-c".into(), PROBE.into()]).await?;
    serde_json::from_str(output.lines().last().unwrap_or_default())
        .map_err(|error| format!("it returned an unexpected result: {error}"))
}

/// What the Python of an environment says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Facts {
    /// `3.11.2`
    pub version: String,
    /// The interpreter that it stands on; itself where it is no virtual environment.
    pub base: PathBuf,
    /// Where its packages lie, in the order of the search.
    pub libraries: Vec<PathBuf>,
    pub frameworks: Vec<Framework>,
}

/// A deep-learning framework of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Framework {
    /// `JAX`, `PyTorch` or `TensorFlow`.
    pub name: String,
    /// Whether its build can compute on GPUs.
    pub uses_gpus: bool,
}

impl fmt::Display for Framework {
    /// `JAX`, or `JAX (CPU only)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = if self.uses_gpus { "" } else { " (CPU only)" };
        write!(f, "{}{cpu}", self.name)
    }
}

/// Asked of an environment's Python; the answer is one line of JSON. Without the person's
/// own packages, what is left of the path besides the standard library are the libraries. Which
/// frameworks compute on GPUs is read off the installed packages: to import one takes seconds.
const FACTS: &str = "
import json, os, re, sys, sysconfig
standard = {os.path.realpath(sysconfig.get_path(name)) for name in ('stdlib', 'platstdlib')}
here = [place for place in sys.path if os.path.isdir(place) and os.path.realpath(place) not in standard]
found = {}
for place in reversed(here):
    for entry in os.listdir(place):
        if entry.endswith(('.dist-info', '.egg-info')):
            found[entry.split('-')[0].lower()] = place
frameworks = {}
if 'jax' in found:
    frameworks['JAX'] = any(re.fullmatch(r'jax_(cuda|rocm).*plugin', name) for name in found)
if 'torch' in found:
    try:
        with open(os.path.join(found['torch'], 'torch', 'version.py')) as file:
            version = file.read()
        frameworks['PyTorch'] = re.search(r'(?m)^(cuda|hip)\\b.*= *.[0-9]', version) is not None
    except OSError:
        pass
if 'tensorflow_cpu' in found or 'tensorflow' in found:
    frameworks['TensorFlow'] = 'tensorflow' in found
print(json.dumps({
    'version': '.'.join(map(str, sys.version_info[:3])),
    'base': getattr(sys, '_base_executable', None) or sys.executable,
    'libraries': [place for place in here if not place.endswith('lib-dynload')],
    'frameworks': [{'name': name, 'uses_gpus': uses} for name, uses in frameworks.items()],
}))
";

/// Asks an environment's Python.
pub async fn facts(python: &Path) -> Result<Facts, String> {
    let output = run_briefly(python, ["-I".into(), "-c".into(), FACTS.into()]).await?;
    serde_json::from_str(output.lines().last().unwrap_or_default())
        .map_err(|error| format!("it returned an unexpected result: {error}"))
}

/// A program that is asked something. Root asks as `nobody`: what it asks may lie in a
/// directory that somebody else writes.
pub fn asked(program: &Path) -> Command {
    let mut command = Command::new(program);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.env_clear().current_dir("/").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Owns nothing, on every Linux.
const NOBODY: u32 = 65_534;

/// Runs a program with nothing around it; its standard output, or why there is none.
pub async fn run_briefly<const N: usize>(program: &Path, arguments: [OsString; N]) -> Result<String, String> {
    let child =
        asked(program).args(arguments).env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8").output();
    // The path may be on a file system that hangs.
    let output = tokio::time::timeout(Duration::from_secs(20), child)
        .await
        .map_err(|_late| "no response within 20 seconds".to_owned())?
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
        Err(format!("{last} ({})", output.status))
    }
}

/// The first part of a path that other users may not pass or read, links followed.
///
/// Only the permission bits are looked at: where an access list opens more, `chmod` is asked
/// for needlessly, which harms nobody.
pub fn closed_to_others(path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    let closed = |part: &&Path| part.metadata().is_ok_and(|meta| meta.mode() & 0o001 == 0);
    let mut parts: Vec<&Path> = real.ancestors().collect();
    parts.extend(path.ancestors().skip(1));
    parts.into_iter().rfind(closed).map(Path::to_owned)
}

/// A program on a search path that we may execute.
pub fn on_search_path(search: &str, name: &str) -> Option<PathBuf> {
    search
        .split(':')
        .filter(|folder| folder.starts_with('/'))
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn wanted(python: &BasePython) -> BaseRequirements<'_> {
        BaseRequirements { python, everybody: false, needs_venv: false, search: "/usr/bin:/bin" }
    }

    #[tokio::test]
    async fn finds_the_systems_python() {
        let base = find(wanted(&BasePython::Auto)).await.unwrap();
        assert!((3, 10, 0) <= base.version, "{base:?}");
    }

    #[tokio::test]
    async fn refuses_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            BasePython::Path(path)
        };
        let answer = |version: &str, has_venv: bool| {
            format!(
                "#!/bin/sh\necho '{{\"version\": {version}, \"executable\": \"/bin/sh\", \"library\": \"/usr\", \
                 \"has_venv\": {has_venv}}}'\n"
            )
        };
        let refuse = async |python: &BasePython| {
            find(BaseRequirements { needs_venv: true, ..wanted(python) }).await.unwrap_err()
        };

        let old = refuse(&script("old", &answer("[3, 8, 1]", true))).await;
        assert!(old.what.contains("is Python 3.8; notebooks require 3.10 or later"), "{old:?}");
        let broken = refuse(&script("broken", "#!/bin/sh\necho no luck >&2; exit 3\n")).await;
        assert!(broken.what.contains("does not run: no luck (exit status: 3)"), "{broken:?}");
        let absent = refuse(&BasePython::Path("/nonexistent/python3".into())).await;
        assert!(absent.what.starts_with("/nonexistent/python3 does not run: "), "{absent:?}");
        let bare = script("python3", &answer("[3, 11, 2]", false));
        assert!(refuse(&bare).await.what.contains("lacks the modules `venv`"));
        assert!(find(wanted(&bare)).await.is_ok());
    }

    #[test]
    fn closed_folders_are_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let inner = folder.path().join("inner");
        let file = inner.join("file");
        fs::create_dir(&inner).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(closed_to_others(&file), None);
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(closed_to_others(&file), Some(inner.clone()));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(closed_to_others(&link), Some(inner));
        assert_eq!(closed_to_others(Path::new("/usr/bin/env")), None);
    }
}
