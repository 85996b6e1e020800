//! Waiting for what another process does, where nothing tells of it: a file that appears, an
//! answer that changes, a pid that goes. Every such wait of the tests is one of these, so
//! that none has a time limit of its own that a busy machine could break.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use lyceum::helper::process::pause;

/// Far longer than anything takes, also five trainings at once beside a browser on two cores; who waits in vain should
/// hear of it before they give up.
pub const PATIENCE: Duration = Duration::from_mins(8);

/// The shortest and the longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// The pause until the next look: a small part of what the wait has taken. It delays no test noticeably, and looks, each
/// of which is a request or a process, leave the machine to what is waited for.
fn until_next_look(begun: Instant) -> Duration {
    (begun.elapsed() / 16).clamp(PAUSES.0, PAUSES.1)
}

/// Waits until `condition` has a value; the test fails with `what` when it never has.
pub async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(until_next_look(begun)).await;
    }
}

/// Waits until `attempt` succeeds; the test fails with `what` and the last error when it never does.
pub async fn succeeds<T, E: Display, A>(what: &str, mut attempt: impl FnMut() -> A) -> T
where
    A: Future<Output = Result<T, E>>,
{
    let begun = Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}: {error}"),
        }
        tokio::time::sleep(until_next_look(begun)).await;
    }
}

/// Waits until `condition` holds, on this very thread.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        pause(until_next_look(begun));
    }
}
