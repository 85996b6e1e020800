//! Waiting for a condition that another process or server brings about.

use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_mins(3);
/// The shortest and the longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Waits until `condition` has a value; the test fails with `what` when it never has.
pub async fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep((begun.elapsed() / 16).clamp(PAUSES.0, PAUSES.1)).await;
    }
}
