//! A container image that a workload's program runs in: a part of the launch specification. The
//! portal fills it from its catalogue of images, and the agent puts the runner in front of the
//! program's arguments. Everything else of a workload stays on the host: the agent, its sockets,
//! the limits, and the log.

use std::{collections::BTreeMap, path::PathBuf};

use lyceum_model::Gpu;
use serde::{Deserialize, Serialize};

/// Describes an image that is ready on the node, and how a program is started in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Name in the catalogue, for people and for folders: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Digest of the manifest: `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// An unpacked folder, or a file that ends in `.sqsh`, `.squashfs` or (for Apptainer) `.sif`.
    pub root: PathBuf,
    /// `Env` of the image.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// `Entrypoint` of the image.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// `Cmd` of the image, which runs where the workload names no command.
    #[serde(default)]
    pub cmd: Vec<String>,
    /// `WorkingDir` of the image. It is the working directory of `cmd` and the base of a relative
    /// entrypoint; a command of the user's runs in the session's working directory.
    #[serde(default)]
    pub working_dir: Option<PathBuf>,
    /// Starts programs through `entrypoint`.
    #[serde(default)]
    pub use_entrypoint: bool,
    #[serde(default)]
    pub runner: Runner,
    #[serde(default)]
    pub writable: Writable,
    /// Folders of the host that the program reaches at their own paths, with the user's rights:
    /// the roots of the user's files. The home and the run directory are always among them.
    #[serde(default)]
    pub mounts: Vec<PathBuf>,
    /// The GPUs that are opened inside. In a Slurm job the agent adds those of `SLURM_JOB_GPUS`.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
}

/// Names the program that makes an image's root the root of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// bubblewrap.
    #[default]
    Bwrap,
    Apptainer,
}

/// Says what becomes of files that a program writes outside the mounted folders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writable {
    /// The image is read-only. `/tmp`, `/var/tmp` and `/run` are writable until the workload ends.
    #[default]
    Discard,
    /// The whole image is writable. Changes are kept in this folder, which belongs to the user.
    Keep(PathBuf),
}

/// Offers an image as a kernel in a JupyterLab that itself runs on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageKernel {
    /// What the launcher of JupyterLab shows.
    pub title: String,
    pub container: Container,
}

impl Container {
    /// Returns the first eight hexadecimal digits of the digest.
    #[must_use]
    pub fn short_digest(&self) -> &str {
        let digits = self.digest.rsplit(':').next().unwrap_or_default();
        digits.get(..8).unwrap_or(digits)
    }

    /// Returns `NAME-DIGEST8`, the folder name of an image.
    #[must_use]
    pub fn folder_name(&self) -> String {
        format!("{}-{}", self.name, self.short_digest())
    }

    /// Returns the name of the kernel that a `JupyterLab` on the host offers for this image.
    #[must_use]
    pub fn kernel_name(&self) -> String {
        format!("image-{}", self.folder_name().to_ascii_lowercase())
    }

    /// Returns why this value cannot be used, as a sentence, or `None` where it can.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let is_plain = |text: &str| {
            !text.is_empty()
                && !text.starts_with('.')
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        };
        let has_digest = self.short_digest().len() == 8 && self.short_digest().bytes().all(|b| b.is_ascii_hexdigit());
        let is_clean = |text: &String| !text.contains('\0');
        if !is_plain(&self.name) || !has_digest {
            return Some(format!("the image ‘{}’ has an invalid name or digest: pull it again", self.name));
        }
        if !self.root.is_absolute() || self.mounts.iter().any(|mount| !mount.is_absolute()) {
            return Some(format!("the image ‘{}’ has a path that is not absolute: pull it again", self.name));
        }
        let texts = self.env.iter().flat_map(|(name, value)| [name, value]).chain(&self.entrypoint).chain(&self.cmd);
        let has_names = self.env.keys().all(|name| !name.is_empty() && !name.contains('='));
        if !has_names || !texts.into_iter().all(is_clean) {
            return Some(format!("the image ‘{}’ has an invalid environment or command: pull it again", self.name));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minimal() -> Container {
        let digest = "0123456789abcdef".repeat(4);
        serde_json::from_value(serde_json::json!({
            "name": "pytorch-26.10", "digest": format!("sha256:{digest}"), "root": "/images/x/root",
        }))
        .unwrap()
    }

    #[test]
    fn absent_fields_have_safe_defaults() {
        let container = minimal();
        assert_eq!((container.runner, &container.writable), (Runner::Bwrap, &Writable::Discard));
        assert!(!container.use_entrypoint && container.gpus.is_empty() && container.mounts.is_empty());
        assert_eq!(container.folder_name(), "pytorch-26.10-01234567");
        assert_eq!(container.kernel_name(), "image-pytorch-26.10-01234567");
        assert_eq!(container.fault(), None);
    }

    #[test]
    fn older_launches_run_on_the_host() {
        let older = serde_json::json!({
            "program": { "exec": { "argv": ["true"] } }, "environment": {}, "working_directory": "/", "ready": null,
        });
        let launch: crate::protocol::AppLaunch = serde_json::from_value(older).unwrap();
        assert!(launch.container.is_none() && launch.kernels.is_empty());
        let kept = Container { writable: Writable::Keep("/home/ada/x".into()), ..minimal() };
        assert_eq!(serde_json::from_value::<Container>(serde_json::to_value(&kept).unwrap()).unwrap(), kept);
    }

    #[test]
    fn values_that_become_paths_are_checked() {
        let fine = minimal();
        let env = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        for (broken, word) in [
            (Container { name: "../x".to_owned(), ..fine.clone() }, "name"),
            (Container { name: String::new(), ..fine.clone() }, "name"),
            (Container { digest: "sha256:1234".to_owned(), ..fine.clone() }, "digest"),
            (Container { digest: "sha256:../../../x".to_owned(), ..fine.clone() }, "digest"),
            (Container { root: "images/x".into(), ..fine.clone() }, "absolute"),
            (Container { mounts: vec!["data".into()], ..fine.clone() }, "absolute"),
            (Container { env: env("A=B", "c"), ..fine.clone() }, "environment"),
            (Container { env: env("A", "b\0c"), ..fine.clone() }, "environment"),
            (Container { cmd: vec!["a\0".to_owned()], ..fine.clone() }, "command"),
        ] {
            assert!(broken.fault().is_some_and(|sentence| sentence.contains(word)), "{broken:?}");
        }
    }
}
