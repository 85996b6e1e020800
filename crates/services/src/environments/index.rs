//! Whether packages can be had: the tools are asked for one small package, as a build would
//! ask, without installing anything.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Config, EnvironmentPaths, base, failure::redact};

/// What was found out about the source of packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Index {
    /// Who answered: `uv`, `pip`.
    Answers(&'static str),
    /// The last words of the tool, or that it said nothing in time.
    Silent(String),
    /// `environments.wheels` is used: so many wheels are there.
    Wheels(usize),
    /// Neither uv nor pip is here yet; a build would bring pip with it.
    NoTool,
}

/// Small, old, and in every mirror that serves Jupyter.
const PROBE: &str = "six";

/// A pip from a file server takes seconds to begin.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Asks with the tool that a build would use; takes at most twenty seconds.
pub async fn reach(config: &Config, place: &EnvironmentPaths) -> io::Result<Index> {
    if let Some(wheels) = &config.wheels {
        let files = std::fs::read_dir(wheels)?.flatten();
        return Ok(Index::Wheels(files.filter(|file| file.path().extension() == Some("whl".as_ref())).count()));
    }
    let search = place.variable("PATH").unwrap_or_default();
    let (name, program, arguments): (_, _, &[&str]) = if let Some(uv) = base::on_search_path(search, "uv") {
        ("uv", uv, &["pip", "install", "--dry-run", "--no-cache", "--target", "/nonexistent", "--no-progress"])
    } else {
        let Some(python) = python_with_pip(place) else { return Ok(Index::NoTool) };
        let pip =
            &["-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--no-input", "--retries=0"];
        ("pip", python, pip)
    };
    // Asking must leave nothing in the builder's cache, least of all files of root.
    let child = base::asked(&program)
        .args(arguments)
        .arg(PROBE)
        .envs(place.tool_environment(Path::new("/tmp")))
        .env("HOME", "/nonexistent")
        // Debian's pip would rather speak of the system's packages (PEP 668), where none are touched.
        .env("PIP_BREAK_SYSTEM_PACKAGES", "1")
        .output();
    Ok(match tokio::time::timeout(TIMEOUT, child).await {
        Err(_) => Index::Silent(format!("no response within {} seconds", TIMEOUT.as_secs())),
        Ok(output) => {
            let output = output?;
            let words = String::from_utf8_lossy(&output.stderr);
            let last = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
            if output.status.success() { Index::Answers(name) } else { Index::Silent(redact(last.trim())) }
        }
    })
}

/// A Python beside which pip lies: of the environment, or of the system.
fn python_with_pip(place: &EnvironmentPaths) -> Option<PathBuf> {
    let built = place.environments().join(super::DEFAULT).join("bin");
    std::iter::once(built)
        .chain(["/usr/bin".into(), "/usr/local/bin".into()])
        .find(|bin| bin.join("pip3").exists() && bin.join("python3").exists())
        .map(|bin| bin.join("python3"))
}
