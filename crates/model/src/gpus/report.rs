//! What an agent reports of the GPUs of its workload. It comes from a process of the user's, which may write
//! anything: sizes are limited before anything is shown or stored, and no decision about others depends on it.

use serde::{Deserialize, Serialize};

use super::{Gpu, GpuWatch, Reading, reading::Condition};
use crate::Timestamp;

/// How many GPUs one agent can report: more than any node has, in slices or not.
pub const MAX_GPU_REPORTS: usize = 64;

/// How many processes of one GPU are kept.
const MAX_PROCESSES: usize = 64;

/// The longest text of a report (characters).
const MAX_TEXT: usize = 200;

/// Reports one GPU of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuReport {
    pub gpu: Gpu,
    /// The last answer of the driver.
    #[serde(default)]
    pub reading: Option<Reading>,
    /// Why the GPU cannot be used.
    #[serde(default)]
    pub fault: Option<String>,
}

impl GpuReport {
    /// Returns the reports of these GPUs from the driver's last answers.
    #[must_use]
    pub fn of_watch(gpus: &[Gpu], watch: &GpuWatch, now: Timestamp, patience: i64) -> Vec<Self> {
        let one = |gpu: &Gpu| {
            let gpu = gpu.clone();
            match watch.condition(&gpu.uuid, now, patience) {
                Condition::Unmeasured => None,
                Condition::Up(reading) => Some(Self { gpu, reading: Some(reading), fault: None }),
                Condition::Down(why) => Some(Self { gpu, reading: None, fault: Some(why) }),
            }
        };
        gpus.iter().filter_map(one).collect()
    }

    /// Returns the same reports with limited sizes and possible numbers.
    #[must_use]
    pub fn limited(mut reports: Vec<Self>) -> Vec<Self> {
        reports.truncate(MAX_GPU_REPORTS);
        for report in &mut reports {
            shorten(&mut report.gpu.uuid);
            shorten(&mut report.gpu.model);
            if let Some(fault) = &mut report.fault {
                shorten(fault);
            }
            if let Some(reading) = &mut report.reading {
                limit(reading);
            }
        }
        reports
    }
}

fn shorten(text: &mut String) {
    if text.chars().any(char::is_control) || text.chars().nth(MAX_TEXT).is_some() {
        *text = text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
    }
}

fn limit(reading: &mut Reading) {
    reading.utilisation = reading.utilisation.map(|percent| percent.clamp(0, 100));
    for value in [
        &mut reading.memory_used_bytes,
        &mut reading.memory_total_bytes,
        &mut reading.power_milliwatts,
        &mut reading.power_limit_milliwatts,
        &mut reading.energy_millijoules,
    ] {
        *value = value.filter(|value| *value >= 0);
    }
    reading.temperature_celsius = reading.temperature_celsius.map(|celsius| celsius.clamp(-100, 1000));
    if let Some(processes) = &mut reading.processes {
        processes.truncate(MAX_PROCESSES);
    }
    reading.health.slowed_by.truncate(MAX_PROCESSES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::{Driver, GpuProcess, LastReading};

    #[test]
    fn reports_follow_the_driver() {
        let gpu = |number: i64| Gpu { index: number, uuid: format!("u{number}"), ..Gpu::default() };
        let now = Timestamp(1_000_000);
        let mut watch = GpuWatch { driver: Driver::Present { version: "1".to_owned() }, ..GpuWatch::default() };
        let reading = Reading { utilisation: Some(7), ..Reading::default() };
        watch.seen.insert("u0".to_owned(), LastReading { at: now, answer: Ok(reading.clone()) });
        watch.seen.insert("u1".to_owned(), LastReading { at: now, answer: Err("lost".to_owned()) });
        let reports = GpuReport::of_watch(&[gpu(0), gpu(1), gpu(2)], &watch, now, 20);
        let up = GpuReport { gpu: gpu(0), reading: Some(reading), fault: None };
        let down = GpuReport { gpu: gpu(1), reading: None, fault: Some("lost".to_owned()) };
        assert_eq!(reports, [up, down], "the third was not asked yet");
        let text = serde_json::to_string(&reports).unwrap();
        assert_eq!(serde_json::from_str::<Vec<GpuReport>>(&text).unwrap(), reports);
    }

    #[test]
    fn what_a_user_writes_is_limited() {
        let process = GpuProcess { pid: 1, uid: None, memory_bytes: None };
        let report = GpuReport {
            gpu: Gpu { uuid: "u\n".repeat(500), ..Gpu::default() },
            reading: Some(Reading {
                utilisation: Some(i64::MAX),
                memory_used_bytes: Some(-1),
                processes: Some(vec![process; 1000]),
                ..Reading::default()
            }),
            fault: Some("é".repeat(1000)),
        };
        let limited = GpuReport::limited(vec![report; 500]);
        assert_eq!(limited.len(), MAX_GPU_REPORTS);
        let reading = limited[0].reading.as_ref().unwrap();
        assert_eq!((reading.utilisation, reading.memory_used_bytes), (Some(100), None));
        assert_eq!(reading.processes.as_ref().unwrap().len(), MAX_PROCESSES);
        assert_eq!(limited[0].gpu.uuid, "u".repeat(MAX_TEXT));
        assert_eq!(limited[0].fault.as_ref().unwrap().chars().count(), MAX_TEXT);
    }
}
