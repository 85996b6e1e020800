//! A throw-away program that goes beyond its limits: it starts threads until it may not,
//! keeps several cores busy, opens GPUs that are not its own, says in one line how far it
//! came, and then takes memory until it is ended. It runs inside a workload like any app.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::ExitCode,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{helper::process, model::size::MIB};

/// What the workload is given.
pub const CORES: i64 = 1;
pub const MEMORY: i64 = 128 * MIB;
pub const PROCESSES: i64 = 64;

/// How far it came, as a line of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Threads that could be started; at most twice what is allowed.
    pub threads: i64,
    /// Devices of GPUs that could be opened.
    pub opened: Vec<PathBuf>,
}

/// What it tries is none of its own: a session without GPUs.
pub fn run() -> ExitCode {
    let strain = Load { threads: start_threads(), opened: open_gpus() };
    keep_busy(4, Duration::from_millis(600));
    let line = serde_json::to_string(&strain).expect("plain data");
    let mut out = std::io::stdout();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    take_memory()
}

fn start_threads() -> i64 {
    let (release, held) = mpsc::channel::<()>();
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    let mut threads = Vec::new();
    for _ in 0..2 * PROCESSES {
        let held = std::sync::Arc::clone(&held);
        let wait = move || {
            // Ends when the channel does.
            let _ = held.lock().map(|held| held.recv());
        };
        match thread::Builder::new().stack_size(32 * 1024).spawn(wait) {
            Ok(thread) => threads.push(thread),
            Err(_) => break,
        }
    }
    let count = i64::try_from(threads.len()).unwrap_or(i64::MAX);
    drop(release);
    for thread in threads {
        let _ = thread.join();
    }
    count
}

fn keep_busy(threads: usize, time: Duration) {
    let end = Instant::now() + time;
    let spin = move || while Instant::now() < end {};
    let others: Vec<_> = (1..threads).filter_map(|_| thread::Builder::new().spawn(spin).ok()).collect();
    spin();
    for thread in others {
        let _ = thread.join();
    }
}

/// The devices of GPUs that this process may open.
fn open_gpus() -> Vec<PathBuf> {
    devices().into_iter().filter(|device| fs::File::open(device).is_ok()).collect()
}

/// `/dev/nvidia0` and so on, not the control devices that everybody shares.
pub fn devices() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia").is_some_and(|index| !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut found: Vec<PathBuf> =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(is_gpu)).map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Takes up to twice what it may have, slowly enough for somebody who only looks now and
/// then, and waits to be ended.
fn take_memory() -> ExitCode {
    let mut hoard = Vec::new();
    let step = usize::try_from(4 * MIB).expect("a few megabytes");
    for _ in 0..2 * MEMORY / (4 * MIB) {
        hoard.push(vec![1_u8; step]);
        process::pause(Duration::from_millis(5));
    }
    process::pause(Duration::from_secs(5));
    // It is kept until here.
    if hoard.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
