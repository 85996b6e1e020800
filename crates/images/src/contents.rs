//! What an image has for programs of a portal: the series of its Python, and the versions of the packages that decide
//! what can start in it. It is read from the names of files when the image is stored; nothing of the image is run.
//! A SIF file is not looked into.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Component, Path, PathBuf},
    process::{Command, Stdio},
};

use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

/// Lists what was found in an image's root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The series of Python, such as `3.12`; the latest one, where there are several.
    pub python: Option<String>,
    /// The version of each package of [`PACKAGES`] that is installed.
    pub packages: BTreeMap<String, String>,
}

/// The packages that are looked for, by their normalized names.
pub const PACKAGES: [&str; 18] = [
    "cntk",
    "cntk-gpu",
    "ipykernel",
    "jax",
    "jupyterlab",
    "keras",
    "mxnet",
    "nvidia-dali-cuda120",
    "onnxruntime",
    "onnxruntime-gpu",
    "paddlepaddle-gpu",
    "tensorboard",
    "tensorflow",
    "tensorrt",
    "theano",
    "torch",
    "torchvision",
    "transformers",
];

/// Folders of packages lie at most this deep: `/opt/conda/envs/NAME/lib/python3.12/site-packages`.
const MAX_DEPTH: usize = 7;

/// What the names in a list of a squashfs file begin with.
const SQUASHED: &str = "root";

impl Contents {
    /// Reads an unpacked root. What cannot be read is left out.
    pub(crate) fn of_root(root: &Path) -> Self {
        let below = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_owned();
        let walk = WalkDir::new(root).max_depth(MAX_DEPTH + 1).into_iter();
        let entries = walk.filter_entry(|entry| is_wanted(&below(entry.path()))).flatten();
        Self::of_paths(entries.map(|entry| below(entry.path())))
    }

    /// Reads the list of files of a squashfs file; nothing where squashfs-tools is not installed, or does not understand
    /// the file.
    pub(crate) fn of_squashfs(file: &Path) -> Option<Self> {
        let mut command = Command::new("unsquashfs");
        command.args(["-ls", "-no-progress", "-max-depth", &(MAX_DEPTH + 1).to_string(), "-dest", SQUASHED]);
        let mut child = command.arg(file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let child = child.as_mut().ok()?;
        let lines = BufReader::new(child.stdout.take()?).split(b'\n').map_while(Result::ok);
        let paths = lines.filter_map(|line| {
            let path = PathBuf::from(String::from_utf8(line).ok()?);
            path.strip_prefix(SQUASHED).ok().map(Path::to_owned)
        });
        let found = Self::of_paths(paths);
        child.wait().ok()?.success().then_some(found)
    }

    /// Reads the paths of an image, which are relative.
    fn of_paths(paths: impl Iterator<Item = PathBuf>) -> Self {
        let (mut packages, mut pythons) = (BTreeMap::new(), Vec::new());
        for path in paths.filter(|path| is_wanted(path)) {
            let (own, parent) = (name(Some(&path)), name(path.parent()));
            if is_of_packages(&parent) {
                packages.extend(package(&own));
            } else if is_of_packages(&own) {
                pythons.extend(series(&parent));
            } else if parent == "bin" {
                pythons.extend(series(&own));
            }
        }
        let python = pythons.into_iter().max().map(|(major, minor)| format!("{major}.{minor}"));
        Self { python, packages }
    }

    /// Returns whether a package is installed.
    pub fn has(&self, package: &str) -> bool {
        self.packages.contains_key(package)
    }
}

fn name(path: Option<&Path>) -> Cow<'_, str> {
    path.and_then(Path::file_name).unwrap_or_default().to_string_lossy()
}

/// Leaves out what is the kernel's, and what is inside a package: no package has another folder of packages that Python
/// would find.
fn is_wanted(path: &Path) -> bool {
    let mut folders = path.components().rev().skip(2).map(Component::as_os_str);
    let is_kernels = ["proc", "sys", "dev"].iter().any(|name| path.starts_with(name));
    !is_kernels && !folders.any(|folder| is_of_packages(&folder.to_string_lossy()))
}

fn is_of_packages(name: &str) -> bool {
    name == "site-packages" || name == "dist-packages"
}

/// Reads `python3.12`.
fn series(name: &str) -> Option<(u32, u32)> {
    let (major, minor) = name.strip_prefix("python")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Reads `jupyterlab-4.2.0.dist-info` or `Theano-1.0.5-py3.6.egg-info`.
fn package(name: &str) -> Option<(String, String)> {
    let stem = name.strip_suffix(".dist-info").or_else(|| name.strip_suffix(".egg-info"))?;
    let mut parts = stem.split('-');
    let package = parts.next()?.to_ascii_lowercase().replace(['_', '.'], "-");
    let version = parts.next()?.to_owned();
    PACKAGES.contains(&&*package).then_some((package, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_pythons_are_found_by_their_files() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| std::fs::create_dir_all(root.path().join(name)).unwrap();
        assert_eq!(Contents::of_root(root.path()), Contents::default());
        folder("usr/lib/python3/dist-packages/Theano-1.0.5-py3.6.egg-info");
        folder("usr/bin");
        std::fs::write(root.path().join("usr/bin/python3.6"), "").unwrap();
        folder("opt/conda/envs/main/lib/python3.12/site-packages/jupyterlab-4.2.0.dist-info");
        folder("opt/conda/envs/main/lib/python3.12/site-packages/torch-2.4.0a0+1.nv24.9.dist-info");
        folder("opt/conda/envs/main/lib/python3.12/site-packages/requests-2.0.dist-info");
        folder("opt/conda/envs/main/lib/python3.12/site-packages/x/site-packages/jax-1.0.dist-info");
        folder("proc/lib/python3.13/site-packages/ipykernel-7.0.dist-info");
        std::os::unix::fs::symlink("/", root.path().join("loop")).unwrap();
        let found = Contents::of_root(root.path());
        assert_eq!(found.python.as_deref(), Some("3.12"));
        let packages: Vec<_> = found.packages.iter().map(|(name, version)| format!("{name} {version}")).collect();
        assert_eq!(packages, ["jupyterlab 4.2.0", "theano 1.0.5", "torch 2.4.0a0+1.nv24.9"]);
        assert!(found.has("jupyterlab") && !found.has("ipykernel"));
        // The same from a squashfs file, where its tools are installed.
        let file = root.path().with_extension("sqsh");
        let made = Command::new("mksquashfs").args([root.path(), &file]).stdout(Stdio::null()).status();
        if made.is_ok_and(|status| status.success()) {
            assert_eq!(Contents::of_squashfs(&file), Some(found));
            std::fs::write(&file, "hsqs").unwrap();
            assert_eq!(Contents::of_squashfs(&file), None);
            std::fs::remove_file(file).unwrap();
        }
    }
}
