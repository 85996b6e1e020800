//! Waiting for what another process does, where nothing tells of it: a file that appears, an
//! answer that changes, a pid that goes. Every such wait of the tests is one of these two, so
//! that none has a time limit of its own that a busy machine could break.

use std::time::{Duration, Instant};

use lyceum::helper::process::pause;

/// Far longer than anything takes; who waits in vain should hear of it before they give up.
pub const PATIENCE: Duration = Duration::from_mins(3);

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

/// Waits until `condition` holds, on this very thread.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        pause(LOOK);
    }
}
