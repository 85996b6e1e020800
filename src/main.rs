<<<<<<< HEAD
//! The `lyceum` command: which subcommand was asked for, and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("agent") => lyceum::agent::run(),
        Some("exec") => lyceum::agent::exec(arguments),
        _ => {
            eprintln!("usage: lyceum agent");
            ExitCode::from(2)
        }
=======
fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("become"), None) => lyceum::helper::trampoline::run(),
        (Some("helper"), Some(config)) => match lyceum::helper::run(&config) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(err) => {
                eprintln!("lyceum helper: {}", err.sentence());
                std::process::ExitCode::FAILURE
            }
        },
        _ => std::process::ExitCode::FAILURE,
>>>>>>> helper
    }
}
