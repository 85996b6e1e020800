//! One decision about the login shell, made where it would run and as whom: whatever starts a
//! shell for the person, the terminal app, JupyterLab and programs that read `SHELL`, finds the
//! same one, and one that is there.

use std::{path::Path, time::Duration};

use rustix::fs::{Access, access};
use tokio::time::timeout;

use lyceum_wire::protocol::{AppLaunch, Program, Shell};

/// Some shells lie on a file server, which may hang.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is used instead, the first that is there; POSIX promises the last.
const DEFAULT_SHELLS: [&str; 4] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh"];

/// Puts a shell that can be run where the account's cannot; answers a sentence about it then.
pub(super) async fn settle(app: &mut AppLaunch) -> Option<String> {
    let named = app.environment.get("SHELL")?.clone();
    let asked = named.clone();
    let looked = tokio::task::spawn_blocking(move || can_be_run(&asked));
    if matches!(timeout(TIMEOUT, looked).await, Ok(Ok(true))) {
        return None;
    }
    let usual = DEFAULT_SHELLS.iter().find(|usual| can_be_run(usual)).unwrap_or(&"/bin/sh");
    exchange(app, &named, usual);
    Some(format!("Your login shell {named} is missing or cannot be run, so {usual} is used instead."))
}

fn exchange(app: &mut AppLaunch, named: &str, usual: &str) {
    app.environment.insert("SHELL".to_owned(), usual.to_owned());
    let bashrc = app.environment.get("LYCEUM_BASHRC").filter(|_| usual.ends_with("/bash"));
    let arguments: Vec<String> = bashrc.map(|file| vec!["--rcfile".to_owned(), file.clone()]).unwrap_or_default();
    let of_program = if let Program::Terminal(shell) = &mut app.program { Some(shell) } else { None };
    for shell in of_program.into_iter().chain(app.beside.as_mut()).filter(|shell| shell.path == named) {
        *shell = Shell { path: usual.to_owned(), arguments: arguments.clone() };
    }
}

fn can_be_run(shell: &str) -> bool {
    let shell = Path::new(shell);
    shell.is_absolute() && shell.is_file() && access(shell, Access::EXEC_OK).is_ok()
}
