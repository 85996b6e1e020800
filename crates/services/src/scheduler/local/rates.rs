//! What two looks at a workload say of the time between them: how many cores it kept busy, and how
//! much its most eager thread demanded. Pure: when to look, and at what, is the scheduler's.

use std::{collections::BTreeMap, time::Instant};

/// When, and by which thread how many nanoseconds.
pub(super) type Demanded = (Instant, BTreeMap<i32, u64>);

/// Cores busy on average between two looks; 0 at the first.
#[expect(clippy::cast_precision_loss, reason = "a share of a core is approximate by nature")]
pub(super) fn busy_cpus(before: Option<(Instant, u64)>, now: (Instant, u64)) -> f64 {
    let Some(before) = before else { return 0.0 };
    let seconds = (now.0 - before.0).as_secs_f64();
    if seconds < 0.001 { 0.0 } else { now.1.saturating_sub(before.1) as f64 / 1e9 / seconds }
}

/// The largest part of the time that one thread has demanded; of a thread that is new, all
/// that it has demanded so far.
#[expect(clippy::cast_precision_loss, reason = "a share of the time is approximate by nature")]
pub(super) fn most_eager((then, before): &Demanded, (now, after): &Demanded) -> Option<f64> {
    let seconds = (*now - *then).as_secs_f64();
    let demanded = |(thread, total): (&i32, &u64)| total.saturating_sub(before.get(thread).copied().unwrap_or(0));
    let most = after.iter().map(demanded).max()?;
    (seconds > 0.001).then(|| most as f64 / 1e9 / seconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_most_eager_thread() {
        let start = Instant::now();
        let at = |seconds, demands: &[(i32, u64)]| {
            (start + Duration::from_secs(seconds), demands.iter().copied().collect::<BTreeMap<i32, u64>>())
        };
        let second = 1_000_000_000;
        let share = |after| most_eager(&at(0, &[(1, 5 * second), (2, 0)]), &after);
        assert_eq!(share(at(10, &[(1, 6 * second), (2, 8 * second)])), Some(0.8));
        assert_eq!(share(at(10, &[(1, 6 * second), (3, 2 * second)])), Some(0.2), "one ended, one is new");
        assert_eq!(share(at(10, &[])), None, "nobody tells");
        assert_eq!(share(at(0, &[(1, 9 * second)])), None);
    }

    #[test]
    fn cores_busy() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!((busy_cpus(Some((start, 1_000_000_000)), (later(2), 4_000_000_000)) - 1.5).abs() < 1e-9);
        assert!(busy_cpus(None, (start, 5)).abs() < f64::EPSILON);
        assert!(busy_cpus(Some((start, 5)), (start, 9)).abs() < f64::EPSILON);
    }
}
