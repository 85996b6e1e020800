//! The environment that a login makes: the user's own shell reads its profile files, within the
//! job's limits, and what it would hand on becomes the program's. What is the portal's stays as it
//! is, and so does what the batch system has given out.

use std::{fs, io, os::unix::fs::OpenOptionsExt, time::Duration};

use tokio::time::timeout;

use super::{
    child::{Reaper, Streams},
    log::Log,
    modules::{merge, read},
    status::Status,
};
use lyceum_wire::protocol::{AgentLaunch, AppLaunch};

/// Profile files lie on file servers, and some run programs.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Where the shell leaves it: the path travels as a variable, which every shell quotes alike.
const FILE: &str = "LYCEUM_ENVIRONMENT_FILE";
const PRINT_ENVIRONMENT: &str = "env -0 > \"$LYCEUM_ENVIRONMENT_FILE\"";

/// The app in the environment of a login; the error is a sentence for the user.
pub(super) async fn enter(
    launch: &AgentLaunch,
    status: &Status,
    log: &Log,
    reaper: &Reaper,
) -> Result<AppLaunch, String> {
    status.step("reading your login shell's profile");
    let shell = launch.app.environment.get("SHELL").cloned().unwrap_or_else(|| "/bin/sh".to_owned());
    let failed =
        |why: &dyn std::fmt::Display| format!("the environment of your login shell {shell} could not be read: {why}");
    let output = launch.run_directory.join("login.env");
    let made = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&output);
    made.map_err(|error| failed(&error))?;
    let mut app = launch.app.clone();
    app.environment.insert(FILE.to_owned(), output.to_string_lossy().into_owned());
    let argv = [shell.clone(), "-c".to_owned(), PRINT_ENVIRONMENT.to_owned()];
    // A name that begins with `-` makes it a login shell.
    let name = format!("-{}", shell.rsplit('/').next().unwrap_or(&shell));
    let spawned = io::pipe().and_then(|(reader, writer)| {
        Ok((reaper.spawn(&app, &argv, Some(&name), Streams::Pipe(writer.into()))?, reader))
    });
    let (child, pipe) = spawned.map_err(|error| failed(&error))?;
    // What the profile files print is for the log's reader.
    let said = tokio::spawn(log.clone().pump(pipe.into()));
    let exit = timeout(TIMEOUT, child.exit).await;
    let exit = exit.map_err(|_late| failed(&format!("it took longer than {} seconds", TIMEOUT.as_secs())))?;
    let _ = timeout(Duration::from_secs(2), said).await;
    let found = read(&output).map_err(|error| failed(&error));
    let _ = fs::remove_file(&output);
    let mut found = found?;
    if found.is_empty() {
        let code = exit.ok().and_then(|exit| exit.code);
        return Err(failed(&code.map_or("it was ended by a signal".to_owned(), |code| {
            format!("exit code {code}; a profile file may end it or start another program")
        })));
    }
    found.remove(FILE);
    let before = &launch.app.environment;
    let mut environment = merge(before, found);
    // What was given out by the batch system is not the profile's to change.
    let given = before.iter().filter(|(name, _)| name.starts_with("SLURM_"));
    environment.extend(given.map(|(name, value)| (name.clone(), value.clone())));
    if let (Some(first), Some(path)) = (before.get("LYCEUM_PATH"), environment.get_mut("PATH")) {
        // The environment that was chosen comes before what the profile says.
        *path = format!("{first}:{path}");
    }
    environment.remove("LYCEUM_PATH");
    environment.extend(before.get("LYCEUM_PATH").map(|first| ("LYCEUM_PATH".to_owned(), first.clone())));
    Ok(AppLaunch { environment, ..launch.app.clone() })
}
