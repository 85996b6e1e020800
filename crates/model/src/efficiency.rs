//! How much of what a workload requested it used: cores, memory and GPUs, over all that was measured of it. From that
//! follows a smaller request for the next start of the same. Pure; what was measured is in `hardware`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Resources,
    hardware::{Hardware, Stretch},
    size::{GIB, MIB, human_size},
};

/// A GPU computes in a stretch if its mean utilisation is at least this (percent).
const WORKING_GPU: f64 = 5.0;

/// Shorter measurements say nothing of the next start (seconds).
const MIN_SECONDS: i64 = 300;

/// A smaller request is suggested if it is at most this part of the last one.
const WORTHWHILE: f64 = 0.75;

/// Memory beyond the peak that a suggestion leaves.
const MEMORY_MARGIN: f64 = 1.25;

/// Use of the requested resources over the life of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Efficiency {
    /// Seconds that the measurements cover.
    pub measured_seconds: i64,
    /// Mean number of busy cores.
    pub cpus_mean: f64,
    /// Maximum number of busy cores.
    pub cpus_most: f64,
    /// Maximum of the memory in use, in bytes.
    pub memory_peak_bytes: i64,
    /// Mean utilisation of all GPUs in percent. Null without measurements of GPUs, as all values of GPUs.
    pub gpu_utilisation: Option<f64>,
    /// Share of the GPU time (0 to 1) in which a GPU was less than 5 % busy.
    pub gpu_idle_share: Option<f64>,
    /// Number of GPUs that computed at any time.
    pub gpus_used: Option<i64>,
    /// Maximum of the memory in use on one GPU, in bytes.
    pub gpu_memory_peak_bytes: Option<i64>,
    /// Energy of the GPUs in watt hours.
    pub gpu_watt_hours: Option<f64>,
    /// A smaller request that would have sufficed. Null before the end, or if the request was suitable.
    #[schema(required = false)]
    pub suggestion: Option<Resources>,
}

#[derive(Default)]
struct GpuSum {
    seconds: f64,
    percent_seconds: f64,
    idle_seconds: f64,
    joules: Option<f64>,
    memory_bytes: Option<i64>,
}

impl Efficiency {
    /// Returns the use of these resources; `None` if nothing was measured. A smaller request is only suggested if
    /// `may_suggest`: for a workload that has ended, and not because memory was too small.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "means are approximate by nature")]
    pub fn new(hardware: &Hardware, requested: &Resources, may_suggest: bool) -> Option<Self> {
        let measured: f64 = hardware.stretches.iter().map(|stretch| f64::from(stretch.measured)).sum();
        if measured <= 0.0 {
            return None;
        }
        let seconds = hardware.seconds as f64;
        let mean = |value: fn(&Stretch) -> f64| {
            hardware.stretches.iter().map(|one| value(one) * f64::from(one.measured)).sum::<f64>() / measured
        };
        let mut gpus: BTreeMap<&str, GpuSum> = BTreeMap::new();
        for (uuid, gpu) in hardware.stretches.iter().flat_map(|stretch| &stretch.gpus) {
            let sum = gpus.entry(uuid).or_default();
            if let Some(percent) = gpu.utilisation {
                sum.seconds += seconds;
                sum.percent_seconds += percent * seconds;
                sum.idle_seconds += if percent < WORKING_GPU { seconds } else { 0.0 };
            }
            if let Some(milliwatts) = gpu.milliwatts {
                *sum.joules.get_or_insert(0.0) += milliwatts / 1000.0 * seconds;
            }
            sum.memory_bytes = sum.memory_bytes.max(gpu.memory_bytes);
        }
        let gpu_seconds: f64 = gpus.values().map(|sum| sum.seconds).sum();
        let share = |value: fn(&GpuSum) -> f64| {
            (gpu_seconds > 0.0).then(|| gpus.values().map(value).sum::<f64>() / gpu_seconds)
        };
        let computed = gpus.values().filter(|sum| sum.idle_seconds < sum.seconds).count();
        let mut found = Self {
            measured_seconds: i64::try_from(hardware.stretches.len())
                .unwrap_or(i64::MAX)
                .saturating_mul(hardware.seconds),
            cpus_mean: mean(|stretch| stretch.cpus),
            cpus_most: hardware.stretches.iter().map(|stretch| stretch.most_cpus).fold(0.0, f64::max),
            memory_peak_bytes: hardware.stretches.iter().map(|stretch| stretch.memory_bytes).max().unwrap_or(0),
            gpu_utilisation: share(|sum| sum.percent_seconds),
            gpu_idle_share: share(|sum| sum.idle_seconds),
            gpus_used: (gpu_seconds > 0.0).then(|| i64::try_from(computed).unwrap_or(i64::MAX)),
            gpu_memory_peak_bytes: gpus.values().filter_map(|sum| sum.memory_bytes).max(),
            gpu_watt_hours: gpus
                .values()
                .filter_map(|sum| sum.joules)
                .reduce(|one, other| one + other)
                .map(|all| all / 3600.0),
            suggestion: None,
        };
        if may_suggest && MIN_SECONDS <= found.measured_seconds {
            // A GPU that nobody measured may have worked.
            let all_measured = i64::try_from(gpus.len()).is_ok_and(|count| count == requested.gpus);
            found.suggestion = Some(found.suffices(requested, all_measured)).filter(|smaller| smaller != requested);
        }
        Some(found)
    }

    /// The request that would have sufficed; the same where less is not worth it.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "sizes of a machine are small")]
    fn suffices(&self, requested: &Resources, all_measured: bool) -> Resources {
        let smaller = |needed: i64, requested: i64| {
            if needed as f64 <= requested as f64 * WORTHWHILE { needed } else { requested }
        };
        let step = if requested.memory_bytes < 4 * GIB { 256 * MIB } else { GIB };
        let memory = (self.memory_peak_bytes as f64 * MEMORY_MARGIN / step as f64).ceil().max(1.0) as i64 * step;
        let gpus = self.gpus_used.filter(|_| all_measured).unwrap_or(requested.gpus).min(requested.gpus);
        Resources {
            gpus,
            gpu_model: requested.gpu_model.clone().filter(|_| gpus > 0),
            cpus: smaller((self.cpus_most.ceil() as i64).max(1), requested.cpus),
            memory_bytes: smaller(memory, requested.memory_bytes),
        }
    }

    /// Returns what was used of the request, in one line for people.
    #[must_use]
    pub fn summary(&self, requested: &Resources) -> String {
        let cores = if requested.cpus == 1 { "core" } else { "cores" };
        let mut parts = vec![
            format!("{:.1} of {} {cores} on average (at most {:.1})", self.cpus_mean, requested.cpus, self.cpus_most),
            format!("{} of {} memory at most", human_size(self.memory_peak_bytes), human_size(requested.memory_bytes)),
        ];
        if let (Some(percent), Some(idle)) = (self.gpu_utilisation, self.gpu_idle_share) {
            let gpus = if requested.gpus == 1 { "GPU" } else { "GPUs" };
            let (percent, idle) = (percent.round(), (idle * 100.0).round());
            parts.push(format!("{gpus} {percent} % busy on average, idle for {idle} % of the time"));
        }
        if let Some(energy) = self.gpu_watt_hours {
            parts.push(format!("{:.2} kWh by the GPUs", energy / 1000.0));
        }
        parts.join("; ")
    }

    /// Returns the suggestion as a sentence for the owner.
    #[must_use]
    pub fn advice(&self, requested: &Resources) -> Option<String> {
        let smaller = self.suggestion.as_ref()?;
        let mut parts = Vec::new();
        if smaller.gpus != requested.gpus {
            parts.push(match smaller.gpus {
                0 => format!("no GPU instead of {}", requested.gpus),
                1 => format!("1 GPU instead of {}", requested.gpus),
                count => format!("{count} GPUs instead of {}", requested.gpus),
            });
        }
        if smaller.cpus != requested.cpus {
            let cores = if smaller.cpus == 1 { "core" } else { "cores" };
            parts.push(format!("{} {cores} instead of {}", smaller.cpus, requested.cpus));
        }
        if smaller.memory_bytes != requested.memory_bytes {
            let (less, before) = (human_size(smaller.memory_bytes), human_size(requested.memory_bytes));
            parts.push(format!("{less} of memory instead of {before}"));
        }
        let wait = "A smaller request usually starts sooner.";
        let unused = if smaller.gpus == 0 && requested.gpus > 0 {
            " If it should use GPUs, choose an environment with CUDA."
        } else {
            ""
        };
        (!parts.is_empty()).then(|| format!("For the next start, {} would suffice. {wait}{unused}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Timestamp,
        gpus::Reading,
        hardware::{GpuStretch, MAX_STRETCHES},
    };

    /// Ten minutes in which GPU `a` works half of the time and GPU `b` never.
    fn measured() -> Hardware {
        let mut hardware = Hardware::default();
        for second in (0..600).step_by(5) {
            let gpu = |percent: i64| {
                GpuStretch::of(&Reading {
                    utilisation: Some(percent),
                    memory_used_bytes: Some(3 * GIB),
                    power_milliwatts: Some(100_000),
                    ..Reading::default()
                })
            };
            let busy = if second < 300 { 80 } else { 0 };
            let gpus = BTreeMap::from([("a".to_owned(), gpu(busy)), ("b".to_owned(), gpu(2))]);
            let cpus = if second == 100 { 2.5 } else { 1.0 };
            hardware.add(Stretch::of(Timestamp(second * 1000), cpus, 2 * GIB, gpus), MAX_STRETCHES);
        }
        hardware
    }

    fn request(gpus: i64, cpus: i64, memory: i64) -> Resources {
        Resources { gpus, gpu_model: None, cpus, memory_bytes: memory * GIB }
    }

    #[test]
    fn use_and_a_smaller_request() {
        let asked = request(2, 8, 32);
        let found = Efficiency::new(&measured(), &asked, true).unwrap();
        assert_eq!((found.measured_seconds, found.memory_peak_bytes), (600, 2 * GIB));
        assert!((found.cpus_most - 2.5).abs() < 1e-9 && (1.0..1.1).contains(&found.cpus_mean), "{found:?}");
        assert!((found.gpu_utilisation.unwrap() - 21.0).abs() < 1e-6, "{found:?}");
        assert!((found.gpu_idle_share.unwrap() - 0.75).abs() < 1e-6);
        assert_eq!((found.gpus_used, found.gpu_memory_peak_bytes), (Some(1), Some(3 * GIB)));
        assert!((found.gpu_watt_hours.unwrap() - 200.0 / 6.0).abs() < 1e-6, "two of 100 W for ten minutes");
        assert_eq!(found.suggestion, Some(request(1, 3, 3)));
        assert_eq!(
            found.advice(&asked).unwrap(),
            "For the next start, 1 GPU instead of 2, 3 cores instead of 8, 3 GiB of memory instead of 32 GiB would \
             suffice. A smaller request usually starts sooner."
        );
        let summary = found.summary(&asked);
        assert!(summary.starts_with("1.0 of 8 cores on average (at most 2.5); 2 GiB of 32 GiB memory"), "{summary}");
        assert!(summary.contains("GPUs 21 % busy on average, idle for 75 % of the time; 0.03 kWh"), "{summary}");
    }

    #[test]
    fn no_suggestion_where_it_would_not_help() {
        assert_eq!(Efficiency::new(&Hardware::default(), &request(0, 1, 1), true), None);
        let suggestion =
            |hardware: &Hardware, asked: &Resources, may| Efficiency::new(hardware, asked, may).unwrap().suggestion;
        let all = measured();
        assert_eq!(suggestion(&all, &request(2, 8, 32), false), None, "it runs, or memory was too small");
        assert_eq!(suggestion(&all, &request(1, 3, 3), true), None, "it fits");
        assert_eq!(suggestion(&all, &request(3, 3, 3), true), None, "one GPU was not measured");
        let mut short = measured();
        short.stretches.truncate(30);
        assert_eq!(suggestion(&short, &request(2, 8, 32), true), None, "too short");
        let mut unused = measured();
        unused.stretches.drain(..60);
        let found = Efficiency::new(&unused, &request(2, 1, 3), true).unwrap();
        assert!(found.advice(&request(2, 1, 3)).unwrap().contains("no GPU instead of 2"), "{found:?}");
        assert!(found.advice(&request(2, 1, 3)).unwrap().ends_with("choose an environment with CUDA."));
    }
}
