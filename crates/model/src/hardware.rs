//! What a workload made of the machine over its life: cores, memory, and its GPUs, in stretches of time. There are
//! never more than so many: the longer it lasts, the longer each stretch is, so that a month is kept in the room
//! of an hour. Who measures and where it is written is others' business.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Timestamp,
    gpus::{Gpu, Reading},
};

/// The first stretches are so long (seconds); then twice as long, and again.
pub const MIN_STRETCH_SECONDS: i64 = 5;

/// At most so many are kept.
pub const MAX_STRETCHES: usize = 720;

/// The stretches of one workload, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hardware {
    /// How long each is.
    pub seconds: i64,
    pub stretches: Vec<Stretch>,
    /// The GPUs that an agent reported; empty where the scheduler knows which the workload has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
}

impl Default for Hardware {
    fn default() -> Self {
        Self { seconds: MIN_STRETCH_SECONDS, stretches: Vec::new(), gpus: Vec::new() }
    }
}

/// What was measured within a stretch. Means are of all measurements, the others are the greatest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    pub at: Timestamp,
    pub measured: u32,
    /// Cores busy, and in the busiest moment.
    pub cpus: f64,
    pub most_cpus: f64,
    pub memory_bytes: i64,
    /// By UUID.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpus: BTreeMap<String, GpuStretch>,
}

/// What one GPU did within a stretch, as far as its driver says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuStretch {
    /// Percent; a mean.
    pub utilisation: Option<f64>,
    pub memory_bytes: Option<i64>,
    pub celsius: Option<i64>,
    /// A mean.
    pub milliwatts: Option<f64>,
}

impl GpuStretch {
    #[expect(clippy::cast_precision_loss, reason = "readings are small numbers")]
    pub fn of(reading: &Reading) -> Self {
        Self {
            utilisation: reading.utilisation.map(|percent| percent as f64),
            memory_bytes: reading.memory_used_bytes,
            celsius: reading.temperature_celsius,
            milliwatts: reading.power_milliwatts.map(|milliwatts| milliwatts as f64),
        }
    }

    /// `weight` is the other's share.
    fn join(&mut self, other: &Self, weight: f64) {
        let mean = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one + (other - one) * weight),
            (one, other) => one.or(other),
        };
        self.utilisation = mean(self.utilisation, other.utilisation);
        self.milliwatts = mean(self.milliwatts, other.milliwatts);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.celsius = self.celsius.max(other.celsius);
    }
}

impl Stretch {
    /// A measurement alone.
    pub fn of(at: Timestamp, cpus: f64, memory_bytes: i64, gpus: BTreeMap<String, GpuStretch>) -> Self {
        Self { at, measured: 1, cpus, most_cpus: cpus, memory_bytes, gpus }
    }

    fn join(&mut self, other: Self) {
        let all = self.measured.saturating_add(other.measured);
        let weight = f64::from(other.measured) / f64::from(all.max(1));
        self.cpus += (other.cpus - self.cpus) * weight;
        self.most_cpus = self.most_cpus.max(other.most_cpus);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        for (uuid, gpu) in other.gpus {
            self.gpus.entry(uuid).or_insert_with(|| gpu.clone()).join(&gpu, weight);
        }
        self.measured = all;
    }
}

impl Hardware {
    /// Adds a measurement, and keeps at most so many stretches. One that is no number, or from before the last one, is left out: clocks are set.
    pub fn add(&mut self, measured: Stretch, most: usize) {
        if !measured.cpus.is_finite() || self.seconds <= 0 {
            return;
        }
        let begin = self.begin(measured.at);
        match self.stretches.last_mut() {
            Some(last) if begin < last.at => {}
            Some(last) if begin == last.at => last.join(measured),
            _ => {
                self.stretches.push(Stretch { at: begin, ..measured });
                if self.stretches.len() > most {
                    self.halve();
                }
            }
        }
    }

    fn begin(&self, at: Timestamp) -> Timestamp {
        let length = self.seconds * 1000;
        Timestamp(at.0.div_euclid(length) * length)
    }

    /// Makes each stretch twice as long.
    fn halve(&mut self) {
        self.seconds = self.seconds.saturating_mul(2);
        let mut joined: Vec<Stretch> = Vec::with_capacity(MAX_STRETCHES);
        for stretch in std::mem::take(&mut self.stretches) {
            let at = self.begin(stretch.at);
            match joined.last_mut() {
                Some(last) if last.at == at => last.join(stretch),
                _ => joined.push(Stretch { at, ..stretch }),
            }
        }
        self.stretches = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(second: i64, cpus: f64, utilisation: Option<i64>) -> Stretch {
        let reading = Reading { utilisation, memory_used_bytes: Some(second), ..Reading::default() };
        let gpus = BTreeMap::from([("GPU-0".to_owned(), GpuStretch::of(&reading))]);
        Stretch::of(Timestamp(second * 1000 + 1), cpus, second, gpus)
    }

    #[test]
    fn measurements_of_one_stretch_are_a_mean_and_a_greatest() {
        let mut hardware = Hardware::default();
        for (second, cpus, utilisation) in
            [(10, 1.0, Some(0)), (12, 4.0, Some(30)), (14, 1.0, Some(90)), (15, 7.0, None)]
        {
            hardware.add(measured(second, cpus, utilisation), MAX_STRETCHES);
        }
        hardware.add(measured(3, 9.0, None), MAX_STRETCHES);
        hardware.add(measured(16, f64::NAN, None), MAX_STRETCHES);
        let [first, second] = hardware.stretches.as_slice() else { panic!("{hardware:?}") };
        assert_eq!((first.at, first.measured, first.cpus, first.most_cpus), (Timestamp(10_000), 3, 2.0, 4.0));
        assert_eq!((first.memory_bytes, first.gpus["GPU-0"].memory_bytes), (14, Some(14)));
        assert!((first.gpus["GPU-0"].utilisation.unwrap() - 40.0).abs() < 1e-9);
        assert_eq!((second.at, second.gpus["GPU-0"].utilisation), (Timestamp(15_000), None));
    }

    #[test]
    fn a_long_life_takes_no_more_room() {
        let mut hardware = Hardware::default();
        // A measurement every two seconds for four days.
        for second in 0..172_800 {
            hardware.add(
                measured(second * 2, f64::from(i32::try_from(second % 2).unwrap()) * 2.0, Some(50)),
                MAX_STRETCHES,
            );
        }
        assert!(
            hardware.stretches.len() <= MAX_STRETCHES && MAX_STRETCHES / 3 < hardware.stretches.len(),
            "{}",
            hardware.stretches.len()
        );
        assert_eq!(hardware.stretches.iter().map(|stretch| stretch.measured).sum::<u32>(), 172_800);
        assert!(
            hardware
                .stretches
                .iter()
                .all(|stretch| (stretch.cpus - 1.0).abs() < 0.01 && (stretch.most_cpus - 2.0).abs() < 0.01)
        );
        assert!(hardware.stretches.windows(2).all(|pair| pair[1].at.0 - pair[0].at.0 == hardware.seconds * 1000));
        let text = serde_json::to_string(&hardware).unwrap();
        assert_eq!(serde_json::from_str::<Hardware>(&text).unwrap(), hardware);
    }
}
