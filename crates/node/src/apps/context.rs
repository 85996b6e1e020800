//! What is known when an app is started: who, where, with which Python and how much of the machine.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use lyceum_model::{
    Gpu, Resources, SessionId,
    job::{Attempt, Task},
    user::Person,
};
use lyceum_wire::protocol::{Container, ImageKernel};

/// What an app is started with.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    pub session: SessionId,
    /// `/s/{id}/`, see [`base_url`].
    pub base_url: &'a str,
    pub person: &'a Person,
    /// Short enough (57 bytes) that kernels' sockets fit in it.
    pub run_directory: &'a Path,
    /// Where Python comes from, for the apps that use an environment.
    pub python: Option<&'a Python>,
    pub working_directory: &'a Path,
    /// `TensorBoard`: the folder of logs; absent means the working directory. A model's directory.
    pub log_directory: Option<&'a Path>,
    /// `TensorBoard`: or several, by the names under which it shows them.
    pub log_directories: &'a BTreeMap<String, PathBuf>,
    /// Where the portal has put `tensorboard.py`; Jupyter's files lie beside it in `jupyter`, as
    /// Jupyter looks for them, and `bashrc`. Everybody may read them.
    pub tensorboard_wrapper: &'a Path,
    /// The folder that holds the package `trainer`.
    pub trainer: &'a Path,
    pub resources: &'a Resources,
    pub gpus: &'a [Gpu],
    /// Whether a driver stands behind the GPUs; else they are named by index.
    pub gpu_driver: bool,
    /// The secret that the proxy shows to Jupyter.
    pub token: &'a str,
    /// The port of an app that listens on one.
    pub port: Option<u16>,
    /// What a job runs.
    pub batch: Option<Batch<'a>>,
    /// The image that the app runs in, with its own Python.
    pub container: Option<&'a Container>,
    /// Images that JupyterLab offers as kernels where it runs on the host itself.
    pub kernels: &'a [ImageKernel],
    /// Further variables; those that the portal sets itself win.
    pub extra: &'a BTreeMap<String, String>,
}

/// An attempt of a job.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub attempt: Attempt,
    pub task: &'a Task,
}

/// An environment's Python, and what the person's own code runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// Runs the app's own server: nothing that its user installs changes it.
    pub python: PathBuf,
    /// The programs beside it, such as `jupyter-lab`.
    pub bin: PathBuf,
    /// What kernels and terminals use, where that is not the same.
    pub own: Option<OwnPython>,
}

/// The person's packages over the environment, or an environment of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPython {
    pub folder: PathBuf,
    /// Whether its search goes on in the environment's programs.
    pub is_overlay: bool,
}

impl Python {
    /// The directories that come first in a child's `PATH`.
    pub(super) fn path(&self) -> String {
        let bin = |own: &OwnPython| own.folder.join("bin");
        match &self.own {
            Some(own) if own.is_overlay => format!("{}:{}", bin(own).display(), self.bin.display()),
            Some(own) => bin(own).display().to_string(),
            None => self.bin.display().to_string(),
        }
    }
}
