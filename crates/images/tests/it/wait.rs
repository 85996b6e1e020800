//! Waiting for a condition that another process or server brings about.

use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_mins(3);
const LOOK: Duration = Duration::from_millis(1);

/// Waits until `condition` has a value; the test fails with `what` when it never has.
pub async fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(LOOK).await;
    }
}
