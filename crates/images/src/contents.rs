//! What an image has for programs of a portal: the series of its Python, and the versions of the packages that decide
//! what can start in it. It is read from the names of files when the image is stored; nothing of the image is run.
//! An image that is imported as one file is not looked into.

use std::{collections::BTreeMap, path::Path};

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

impl Contents {
    /// Reads an unpacked root. What cannot be read is left out.
    pub(crate) fn of_root(root: &Path) -> Self {
        let mut found = Self::default();
        let is_wanted = |entry: &walkdir::DirEntry| {
            let name = entry.file_name().to_str().unwrap_or_default();
            let is_kernels = entry.depth() == 1 && matches!(name, "proc" | "sys" | "dev");
            // No package has another folder of packages inside that Python would find.
            let is_inside = entry
                .path()
                .parent()
                .and_then(Path::file_name)
                .is_some_and(|parent| is_of_packages(&parent.to_string_lossy()));
            !is_kernels && !is_inside
        };
        let mut folders = Vec::new();
        let mut pythons = Vec::new();
        for entry in WalkDir::new(root).max_depth(MAX_DEPTH).into_iter().filter_entry(is_wanted).flatten() {
            let name = entry.file_name().to_string_lossy();
            if entry.file_type().is_dir() && is_of_packages(&name) {
                folders.push(entry.path().to_owned());
            }
            let is_program = entry.path().parent().is_some_and(|folder| folder.ends_with("bin"));
            pythons.extend(series(&name).filter(|_| is_program));
        }
        pythons.extend(folders.iter().filter_map(|folder| series(folder.parent()?.file_name()?.to_str()?)));
        found.python = pythons.into_iter().max().map(|(major, minor)| format!("{major}.{minor}"));
        for folder in folders {
            found.add_packages(&folder);
        }
        found
    }

    fn add_packages(&mut self, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some((package, version)) = package(&name) {
                self.packages.insert(package, version);
            }
        }
    }

    /// Returns whether a package is installed.
    pub fn has(&self, package: &str) -> bool {
        self.packages.contains_key(package)
    }
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
    }
}
