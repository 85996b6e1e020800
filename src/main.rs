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
    }
}
