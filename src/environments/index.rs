//! Whether packages can be had: the tools are asked for one small package, as a build would
//! ask, without installing anything.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use tokio::process::Command;

use super::{Config, Place, base, failure::redact};

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

const PATIENCE: Duration = Duration::from_secs(5);

/// Asks with the tool that a build would use; takes at most five seconds.
pub async fn reach(config: &Config, place: &Place) -> io::Result<Index> {
    if let Some(wheels) = &config.wheels {
        let files = std::fs::read_dir(wheels)?.flatten();
        return Ok(Index::Wheels(files.filter(|file| file.path().extension() == Some("whl".as_ref())).count()));
    }
    let search = place.variable("PATH").unwrap_or_default();
    let (name, arguments): (_, Vec<OsString>) = if let Some(uv) = base::on_search_path(search, "uv") {
        (
            "uv",
            command(&uv, &["pip", "install", "--dry-run", "--no-cache", "--target", "/nonexistent", "--no-progress"]),
        )
    } else {
        let Some(python) = python_with_pip(place) else { return Ok(Index::NoTool) };
        let pip = ["-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--no-input", "--retries=0"];
        ("pip", command(&python, &pip))
    };
    let child = Command::new(&arguments[0])
        .args(&arguments[1..])
        .arg(PROBE)
        .env_clear()
        .envs(place.tool_environment(OsStr::new("/tmp").as_ref()))
        .current_dir("/")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    Ok(match tokio::time::timeout(PATIENCE, child).await {
        Err(_) => Index::Silent(format!("no answer within {} seconds", PATIENCE.as_secs())),
        Ok(output) => {
            let output = output?;
            let words = String::from_utf8_lossy(&output.stderr);
            let last = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
            if output.status.success() { Index::Answers(name) } else { Index::Silent(redact(last.trim())) }
        }
    })
}

/// A Python beside which pip lies: of the environment, of the builder, of the system.
fn python_with_pip(place: &Place) -> Option<PathBuf> {
    let built = place.environments().join(super::DEFAULT).join("bin");
    let kept = std::fs::read_dir(&place.cache).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    std::iter::once(built)
        .chain(kept)
        .chain(["/usr/bin".into(), "/usr/local/bin".into()])
        .find(|bin| bin.join("pip3").exists() && bin.join("python3").exists())
        .map(|bin| bin.join("python3"))
}

fn command(program: &std::path::Path, arguments: &[&str]) -> Vec<OsString> {
    std::iter::once(program.into()).chain(arguments.iter().map(OsString::from)).collect()
}
