//! What a test needs of the machine beyond Rust: root, a program, a database, the internet.
//! A test without its need passes by hand, after a line that says so; `./test` names a file in
//! `LYCEUM_TEST_LEFT_OUT`, where each such line is kept, and counts them. Where everything can
//! be had (`LYCEUM_TEST_STRICT=1`, which `./test` sets for root) a missing need is a failure.

use std::io::Write;

/// Whether we are root; without it the calling test is left out.
#[must_use]
pub fn root() -> bool {
    met("root", nix::unistd::geteuid().is_root())
}

/// Whether the machine has what the calling test needs; without it the test is left out.
#[must_use]
pub fn met(need: &str, is_met: bool) -> bool {
    if !is_met {
        leave_out("test", need);
    }
    is_met
}

/// As [`met`], for a test that goes on without this part of it.
#[must_use]
pub fn part_met(need: &str, is_met: bool) -> bool {
    if !is_met {
        leave_out("part", need);
    }
    is_met
}

fn leave_out(what: &str, need: &str) {
    assert!(variable("LYCEUM_TEST_STRICT").is_none_or(|strict| strict != "1"), "this test needs {need}");
    let test = name();
    // Past the runner, which shows nothing of a test that passes.
    let _ =
        writeln!(std::io::stderr(), "left out: {}{test} needs {need}", if what == "part" { "a part of " } else { "" });
    if let Some(file) = variable("LYCEUM_TEST_LEFT_OUT") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        // One write, because tests run beside one another.
        file.write_all(format!("{what}\t{test}\t{need}\n").as_bytes()).unwrap();
    }
}

/// The running test: its thread has its name, unless a runner gave it a process of its own.
fn name() -> String {
    let thread = std::thread::current();
    match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default(),
    }
}

/// What the process that started the tests says to them.
#[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
