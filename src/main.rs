//! The `lyceum` command: which subcommand was asked for, and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("agent") => lyceum::agent::run(),
        Some("exec") => lyceum::agent::exec(arguments),
        Some("become") => lyceum::helper::trampoline::run(),
        Some("helper") => helper(&arguments.next().unwrap_or_default().to_string_lossy()),
        _ => {
            eprintln!("usage: lyceum (agent | helper CONFIG)");
            ExitCode::from(2)
        }
    }
}

fn helper(config: &str) -> ExitCode {
    match lyceum::helper::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lyceum helper: {}", error.sentence());
            ExitCode::FAILURE
        }
    }
}
