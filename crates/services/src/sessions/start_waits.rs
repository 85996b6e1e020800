//! How long people wait for their sessions and jobs, from the request until they run, as a histogram for Prometheus. It
//! is counted where a workload is marked as running; `web` reports it beside its own numbers.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
};

const SESSION: &str = "session";
const JOB: &str = "job";

/// Waiting times in seconds, of sessions and of jobs.
pub type StartWaits = Family<WaitLabels, Histogram, fn() -> Histogram>;

/// Which kind of workload was started.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WaitLabels {
    kind: &'static str,
}

/// Returns empty histograms of both kinds: from a second to a day.
#[must_use]
pub fn start_waits() -> StartWaits {
    let histogram = || Histogram::new([1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 28_800.0, 86_400.0]);
    let waits = StartWaits::new_with_constructor(histogram as fn() -> Histogram);
    for kind in [SESSION, JOB] {
        drop(waits.get_or_create(&WaitLabels { kind }));
    }
    waits
}

/// Counts a workload that has begun to run.
pub(super) fn observe(waits: &StartWaits, is_job: bool, seconds: f64) {
    let kind = if is_job { JOB } else { SESSION };
    waits.get_or_create(&WaitLabels { kind }).observe(seconds.max(0.0));
}
