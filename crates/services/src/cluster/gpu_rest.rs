//! Since when the GPUs rest that an agent reports, by the same minutes and the same rule as those that the portal reads
//! itself. Each workload has one of these for itself, so that no agent can say anything of the GPUs of others.

use super::{history::Minutes, idle_gpus::IdleGpus};
use lyceum_model::{Timestamp, gpus::GpuReport};

/// The minutes of one workload's GPUs.
#[derive(Debug, Default)]
pub struct GpuRest {
    minutes: Minutes,
    rest: IdleGpus,
}

impl GpuRest {
    /// Counts reports of that moment.
    pub fn note(&mut self, now: Timestamp, reports: &[GpuReport]) {
        for report in reports {
            if let Some(reading) = &report.reading {
                self.minutes.add(&report.gpu.uuid, now, reading);
            }
        }
        for point in self.minutes.take(now) {
            self.rest.note(&point);
        }
    }

    /// Since when a GPU rests, and was seen to for so many seconds from `from` on.
    pub fn since(&self, uuid: &str, from: Timestamp, seconds: i64) -> Option<Timestamp> {
        self.rest.since(uuid, from, seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::{Gpu, gpus::Reading};

    #[test]
    fn full_minutes_without_work_are_rest() {
        let report = |utilisation| GpuReport {
            gpu: Gpu { uuid: "a".to_owned(), ..Gpu::default() },
            reading: Some(Reading { utilisation: Some(utilisation), ..Reading::default() }),
            fault: None,
        };
        let mut rest = GpuRest::default();
        let mut at = |second: i64, utilisation| {
            let now = Timestamp(second * 1000);
            rest.note(now, &[report(utilisation)]);
            rest.since("a", Timestamp(0), 60)
        };
        for second in (0..60).step_by(2) {
            assert_eq!(at(second, 90), None);
        }
        for second in (60..120).step_by(2) {
            assert_eq!(at(second, 0), None, "the current minute does not count");
        }
        assert_eq!(at(120, 0), Some(Timestamp(60_000)));
        assert_eq!(rest.since("b", Timestamp(0), 60), None);
    }
}
