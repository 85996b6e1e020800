//! Runs a workload's program in the root of a container image. A container is a way to start a
//! program and not a scheduler: the agent stays on the host and puts a runner in front of the
//! arguments. All files here but `plan` are pure; starting processes is left to the agent.

pub mod accounts;
pub mod apptainer;
pub mod bwrap;
pub mod cdi;
pub mod environment;
pub mod kernel;
pub mod plan;
pub mod root;

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Where programs of the host are looked for.
const FOLDERS: [&str; 6] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns the path of a program of the host.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    paths.into_iter().find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok())
}

/// Returns whether a root is a file that has to be mounted.
#[must_use]
pub fn is_squashed(root: &Path) -> bool {
    root.extension().is_some_and(|ending| ending == "sqsh" || ending == "squashfs" || ending == "sif")
}
