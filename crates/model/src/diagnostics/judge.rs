//! The verdict on a run: a pure function of what the driver said, what was measured, and what earlier runs measured of
//! the same GPUs. A check that could not be made is “not tested”, and never a pass.

use std::collections::BTreeMap;

use super::{
    Baseline, DriverGpu, DriverReport, Finding, GpuVerdict, INSTALLED_VERSION, Installed, Judgement, Level,
    MEASURED_VERSION, Measured, Measurement, REPORT_VERSION, Verdict, installed, rates, state,
};
use crate::gpus::Gpu;

/// What is known of a run.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    pub level: Level,
    /// The GPUs that the job held, in the order of `CUDA_VISIBLE_DEVICES`. Empty where a cluster chose them: the
    /// driver's report names them then.
    pub held: &'a [Gpu],
    pub before: Option<&'a DriverReport>,
    /// Read after the load.
    pub after: Option<&'a DriverReport>,
    pub measured: Option<&'a Measured>,
    /// What the node has installed, at the level `long`.
    pub installed: Option<&'a Installed>,
    /// Why the program measured nothing, where it wrote no document.
    pub failure: &'a str,
    /// By UUID.
    pub past: &'a BTreeMap<String, Baseline>,
}

/// The checks without which a GPU of a run with load has not been tested.
const NEEDED: [&str; 4] = ["host", "matmul", "bits", "memory"];

/// Judges a run.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Judgement {
    let before = evidence.before.filter(|report| report.version == REPORT_VERSION);
    let after = evidence.after.filter(|report| report.version == REPORT_VERSION);
    let measured = evidence.measured.filter(|document| document.version == MEASURED_VERSION);
    let gpus = gpus(evidence.held, before, measured);
    let mut general = state::general(&gpus, before);
    general.extend(seen_by_jax(evidence, gpus.len(), measured));
    let installed = evidence.installed.filter(|document| document.version == INSTALLED_VERSION);
    if evidence.level.has_load() {
        general.extend(rates::general(measured, evidence.failure));
    }
    if evidence.level == Level::Long {
        general.extend(installed::general(installed, evidence.failure));
    }
    let judged: Vec<GpuVerdict> = gpus
        .iter()
        .enumerate()
        .map(|(place, gpu)| {
            let peers = before.map(|report| report.gpus.as_slice()).unwrap_or_default();
            let mut findings = state::findings(find(before, gpu), find(after, gpu), peers, before);
            let mut measurement = Measurement::default();
            let links = before.map(|report| report.links.as_slice()).unwrap_or_default();
            if evidence.level.has_load() {
                let past = evidence.past.get(&gpu.uuid).copied().unwrap_or_default();
                measurement = rates::measurement(place, measured);
                findings.extend(rates::findings(place, &gpus, measured, &measurement, &past, links, evidence.failure));
            }
            if evidence.level == Level::Long {
                findings.extend(installed::findings(place, &gpus, installed, links));
            }
            findings.sort_by_key(|finding| std::cmp::Reverse(urgency(finding)));
            GpuVerdict {
                gpu: gpu.clone(),
                verdict: of_gpu(evidence.level, &findings),
                findings,
                measurement: Some(measurement).filter(|measurement| !measurement.is_empty()),
            }
        })
        .collect();
    let worst_gpu = judged.iter().map(|gpu| gpu.verdict).max().unwrap_or(Verdict::NotTested);
    // What could not be tested of all of them counts where it counts for one.
    let worst = general.iter().map(|finding| finding.verdict).filter(|verdict| *verdict != Verdict::NotTested).max();
    Judgement { verdict: worst_gpu.max(worst.unwrap_or(Verdict::Pass)), general, gpus: judged, storage: None }
}

/// Which GPUs the run is about.
fn gpus(held: &[Gpu], report: Option<&DriverReport>, measured: Option<&Measured>) -> Vec<Gpu> {
    if !held.is_empty() {
        return held.to_vec();
    }
    if let Some(report) = report.filter(|report| !report.gpus.is_empty()) {
        return report.gpus.iter().map(|one| one.gpu.clone()).collect();
    }
    let devices = measured.map(|document| document.devices.as_slice()).unwrap_or_default();
    let gpu =
        |(index, device): (i64, &super::MeasuredDevice)| Gpu { index, model: device.model.clone(), ..Gpu::default() };
    (0..).zip(devices).map(gpu).collect()
}

fn find<'a>(report: Option<&'a DriverReport>, gpu: &Gpu) -> Option<&'a DriverGpu> {
    report?.gpus.iter().find(|one| one.gpu.uuid == gpu.uuid)
}

/// Whether JAX sees what is held.
fn seen_by_jax(evidence: &Evidence<'_>, held: usize, measured: Option<&Measured>) -> Option<Finding> {
    let measured = measured?;
    let seen = measured.devices.len();
    if !measured.fault.is_empty() {
        let environment = "Choose an environment with CUDA, such as the default environment of a machine with a driver. \
                           If its CUDA is newer than the driver, ask your administrator to update the driver.";
        return Some(Finding::new("jax", Verdict::NotTested, sentence(&measured.fault), environment));
    }
    let seen_text = if seen == 1 { "JAX sees 1 GPU".to_owned() } else { format!("JAX sees {seen} GPUs") };
    if seen < held {
        let advice = "Look at the GPU that is missing with `nvidia-smi`, and restart the machine if it is not listed.";
        return Some(Finding::new("jax", Verdict::Critical, format!("{seen_text} of the {held} held."), advice));
    }
    (evidence.level == Level::Quick || seen > 0).then(|| Finding::pass("jax", format!("{seen_text}.")))
}

/// Ends with one full stop.
pub(super) fn sentence(words: &str) -> String {
    format!("{}.", words.trim_end_matches('.'))
}

/// “Not tested” is urgent for a check that is needed, and says little of one that this GPU does not have.
fn urgency(finding: &Finding) -> (u8, bool) {
    let rank = match finding.verdict {
        Verdict::Critical => 4,
        Verdict::Warning => 3,
        Verdict::Information => 2,
        Verdict::Pass => 1,
        Verdict::NotTested => 0,
    };
    (rank, NEEDED.contains(&finding.check.as_str()))
}

fn of_gpu(level: Level, findings: &[Finding]) -> Verdict {
    let made = findings.iter().map(|finding| finding.verdict).filter(|verdict| *verdict != Verdict::NotTested);
    let worst = made.max().unwrap_or(Verdict::NotTested);
    let is_missing = |check: &&str| {
        !findings.iter().any(|finding| finding.check == **check && finding.verdict != Verdict::NotTested)
    };
    let lacks = level.has_load() && NEEDED.iter().any(is_missing);
    if lacks { worst.max(Verdict::NotTested) } else { worst }
}
