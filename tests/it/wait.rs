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

/// Between two looks. It delays no test noticeably, and leaves the machine to the others.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until `condition` has a value; the test fails with `what` when it never has.
pub async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until `attempt` succeeds; the test fails with `what` and the last error when it never does.
pub async fn succeeds<T, E: Display, A>(what: &str, mut attempt: impl FnMut() -> A) -> T
where
    A: Future<Output = Result<T, E>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < end, "waited in vain: {what}: {error}"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until `condition` holds, on this very thread.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        pause(LOOK);
    }
}
