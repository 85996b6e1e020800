//! Environment modules: loaded by the user's own bash before the app starts, within the
//! session's limits, as the site's initialisation file has it. What comes of it is the
//! environment that the app and every terminal get; names reach bash as arguments alone.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Read,
    os::unix::{ffi::OsStringExt, fs::OpenOptionsExt},
    path::Path,
    time::Duration,
};

use tokio::time::timeout;

use super::{
    child::{Reaper, Streams},
    log::Log,
    status::Status,
};
use lyceum_model::modules::is_name;
use lyceum_wire::protocol::{AgentLaunch, AppLaunch, Modules};

/// Modules lie on file servers, and some run programs.
const TIMEOUT: Duration = Duration::from_mins(2);

/// The largest environment that is taken over (bytes).
const MAX_ENVIRONMENT: u64 = 1024 * 1024;

/// `INIT OUTPUT NAME…`: what goes wrong is told by a status.
const LOAD: &str = r#"
init=$1 output=$2
shift 2
. "$init" || [ -n "$(type -t module)" ] || exit 41
[ -n "$(type -t module)" ] || exit 41
module load "$@" || exit 42
env -0 > "$output" || exit 43
"#;
const NO_MODULE_COMMAND: i32 = 41;
const NOT_LOADED: i32 = 42;

/// What bash sets by itself.
const BASHS_OWN: [&str; 4] = ["_", "SHLVL", "PWD", "OLDPWD"];

/// What no module may change: who and where one is, and which GPUs are one's own.
const RESERVED: [&str; 9] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "XDG_RUNTIME_DIR",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "TERM",
    "COLORTERM",
];

/// The app with its modules loaded; the error is a sentence for the user.
pub(super) async fn load(
    launch: &AgentLaunch,
    modules: &Modules,
    status: &Status,
    log: &Log,
    reaper: &Reaper,
) -> Result<AppLaunch, String> {
    // Both programs evaluate what they are told; the portal has checked it, and an older one might not have.
    if let Some(name) = modules.names.iter().find(|name| !is_name(name)) {
        return Err(format!("{name:?} is not a valid module name: choose one from the list"));
    }
    let names = modules.names.join(" ");
    status.step(&format!("loading {names}"));
    let output = launch.run_directory.join("modules.env");
    let found = run(launch, modules, &output, log, reaper).await.and_then(|()| {
        read(&output).map_err(|error| {
            format!("the modules {names} were loaded, but the resulting environment could not be read: {error}")
        })
    });
    let _ = fs::remove_file(&output);
    let environment = merge(&launch.app.environment, found?);
    Ok(AppLaunch { environment, ..launch.app.clone() })
}

async fn run(launch: &AgentLaunch, modules: &Modules, output: &Path, log: &Log, reaper: &Reaper) -> Result<(), String> {
    let names = modules.names.join(" ");
    let made = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(output);
    made.map_err(|error| format!("the modules {names} cannot be loaded: {}: {error}", output.display()))?;
    let words = ["/bin/bash", "--noprofile", "--norc", "-c", LOAD, "lyceum"].map(str::to_owned);
    let paths = [modules.init.as_path(), output].map(|path| path.to_string_lossy().into_owned());
    let argv: Vec<String> = words.into_iter().chain(paths).chain(modules.names.iter().cloned()).collect();
    let spawned = io::pipe().and_then(|(reader, writer)| {
        Ok((reaper.spawn(&launch.app, &argv, None, Streams::Pipe(writer.into()))?, reader))
    });
    let (bash, pipe) = spawned.map_err(|error| format!("the modules {names} cannot be loaded: {error}"))?;
    // What it says of modules that are not there is for the log's reader.
    let said = tokio::spawn(log.clone().pump(pipe.into()));
    let exit = timeout(TIMEOUT, bash.exit)
        .await
        .map_err(|_late| format!("the modules {names} were not loaded within {} seconds", TIMEOUT.as_secs()))?;
    // Modules may leave processes behind that keep the pipe.
    let _ = timeout(Duration::from_secs(2), said).await;
    match exit.ok().and_then(|exit| exit.code) {
        Some(0) => Ok(()),
        Some(NO_MODULE_COMMAND) => Err(format!(
            "{} does not provide modules on this node: select no modules, or ask your administrator",
            modules.init.display()
        )),
        Some(NOT_LOADED) => Err(format!("the modules {names} could not be loaded")),
        _ => Err(format!("loading the modules {names} was interrupted")),
    }
}

/// `NAME=VALUE`, each ended by a zero byte.
pub(super) fn read(path: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(MAX_ENVIRONMENT + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_ENVIRONMENT {
        return Err(io::Error::other(format!("the environment is larger than {MAX_ENVIRONMENT} bytes")));
    }
    let texts = text.split(|byte| *byte == 0).map(|line| std::ffi::OsString::from_vec(line.to_vec()).into_string());
    // What is no text cannot be handed on as one.
    let lines = texts.filter_map(Result::ok);
    Ok(lines.filter_map(|line| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))).collect())
}

pub(super) fn merge(
    before: &BTreeMap<String, String>,
    mut found: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    found.retain(|name, _| !BASHS_OWN.contains(&name.as_str()));
    let ours =
        |name: &str| RESERVED.contains(&name) || ["LYCEUM_", "JUPYTER"].iter().any(|prefix| name.starts_with(prefix));
    found.retain(|name, _| !ours(name));
    found.extend(before.iter().filter(|(name, _)| ours(name)).map(|(name, value)| (name.clone(), value.clone())));
    // Profile files set `PATH` anew; the session's `bashrc` puts this before it.
    if let Some(path) = found.get("PATH") {
        found.insert("LYCEUM_PATH".to_owned(), path.clone());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_change_what_is_theirs() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let before =
            map(&[("HOME", "/home/ada"), ("PATH", "/usr/bin"), ("CUDA_VISIBLE_DEVICES", "1"), ("JUPYTER_TOKEN", "t")]);
        let found = map(&[
            ("HOME", "/root"),
            ("PATH", "/opt/gcc/bin:/usr/bin"),
            ("CUDA_VISIBLE_DEVICES", "0,1,2"),
            ("JUPYTER_TOKEN", "mine"),
            ("LYCEUM_SESSION", "another"),
            ("GCC_HOME", "/opt/gcc"),
            ("SHLVL", "2"),
        ]);
        let expected = map(&[
            ("HOME", "/home/ada"),
            ("PATH", "/opt/gcc/bin:/usr/bin"),
            ("LYCEUM_PATH", "/opt/gcc/bin:/usr/bin"),
            ("CUDA_VISIBLE_DEVICES", "1"),
            ("JUPYTER_TOKEN", "t"),
            ("GCC_HOME", "/opt/gcc"),
        ]);
        assert_eq!(merge(&before, found), expected);
    }
}
