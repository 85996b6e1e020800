//! Whether packages can be had: the tools are asked for one small package, as a build would
//! ask, without installing anything.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::io::AsyncWriteExt;

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
        // It resolves what stands on standard input, and installs nothing.
        ("uv", uv, &["pip", "compile", "--no-cache", "--no-progress", "--no-header", "-"])
    } else {
        let Some(python) = python_with_pip(place) else { return Ok(Index::NoTool) };
        let pip = &[
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--no-deps",
            "--no-input",
            "--retries=0",
            PROBE,
        ];
        ("pip", python, pip)
    };
    // Asking must leave nothing in the builder's cache, least of all files of root.
    let mut child = base::asked(&program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .envs(place.tool_environment(Path::new("/tmp")))
        .env("HOME", "/nonexistent")
        .env("UV_HTTP_RETRIES", "0")
        // Debian's pip would rather speak of the system's packages (PEP 668), where none are touched.
        .env("PIP_BREAK_SYSTEM_PACKAGES", "1")
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // pip reads nothing, and may have ended.
        _ = input.write_all(PROBE.as_bytes()).await;
    }
    Ok(match tokio::time::timeout(TIMEOUT, child.wait_with_output()).await {
        Err(_) => Index::Silent(format!("no response within {} seconds", TIMEOUT.as_secs())),
        Ok(output) => {
            let output = output?;
            let words = String::from_utf8_lossy(&output.stderr);
            if output.status.success() { Index::Answers(name) } else { Index::Silent(redact(&reason(&words))) }
        }
    })
}

/// Returns what a tool says of its failure: uv an error and its causes, above hints; pip a last line.
fn reason(words: &str) -> String {
    let mut lines = words.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(error) = lines.clone().find_map(|line| line.strip_prefix("error: ")) else {
        return lines.next_back().unwrap_or("no message").to_owned();
    };
    // The first cause names the address, the last one what happened there.
    let causes: Vec<&str> = lines.filter_map(|line| line.strip_prefix("cause: ")).collect();
    let told = match causes.as_slice() {
        [] => vec![error],
        [only] => vec![error, only],
        [first, .., last] => vec![error, first, last],
    };
    told.join(": ")
}

/// A Python beside which pip lies: of the environment, or of the system.
fn python_with_pip(place: &EnvironmentPaths) -> Option<PathBuf> {
    let built = place.environments().join(super::DEFAULT).join("bin");
    std::iter::once(built)
        .chain(["/usr/bin".into(), "/usr/local/bin".into()])
        .find(|bin| bin.join("pip3").exists() && bin.join("python3").exists())
        .map(|bin| bin.join("python3"))
}
