//! What the tests that a node has installed found: NVIDIA's DCGM and nvbandwidth, and nccl-tests. The Python program
//! `diagnostics.installed` runs them and brings their results into this form. A program that is missing or failed tested
//! nothing, and a test that it skipped did not pass. Rates are compared as those of our own tests are.

use serde::Deserialize;

use super::{
    Collective, Finding, LinkClass, PartState, Verdict,
    judge::sentence,
    median,
    rates::{MIN_BANDWIDTH_SHARE, best, slow_link, too_low},
};
use crate::gpus::Gpu;

/// Of the JSON document.
pub const INSTALLED_VERSION: u32 = 1;
/// More tests are not named in a sentence.
const MAX_NAMED: usize = 24;

/// The document. A device is a place in the order of `CUDA_VISIBLE_DEVICES`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Installed {
    pub version: u32,
    pub dcgm: Dcgm,
    pub nvbandwidth: NvBandwidth,
    pub nccl_tests: NcclTests,
}

/// `dcgmi diag`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Dcgm {
    pub state: PartState,
    /// Why it tested nothing.
    pub reason: String,
    pub version: String,
    /// The level that it ran, `1` to `3`.
    pub level: String,
    pub rows: Vec<DcgmRow>,
}

/// A test of DCGM's on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DcgmRow {
    /// `None` if it concerns no single GPU, or one that is not of this job.
    pub device: Option<usize>,
    /// DCGM's own number of the GPU.
    pub id: Option<String>,
    pub test: String,
    pub status: DcgmStatus,
    /// DCGM's word for each of its errors, such as `isolate` or `config`.
    pub severities: Vec<String>,
    pub messages: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DcgmStatus {
    Pass,
    Warn,
    Fail,
    Skip,
    #[default]
    #[serde(other)]
    Unknown,
}

/// `nvbandwidth`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NvBandwidth {
    pub state: PartState,
    pub reason: String,
    pub rows: Vec<BandwidthRow>,
    pub links: Vec<BandwidthMatrix>,
    pub missing: Vec<MissingTest>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BandwidthRow {
    pub device: usize,
    pub to_device_gb_s: Option<f64>,
    pub to_host_gb_s: Option<f64>,
}

/// Copies from each GPU (row) to each other one (column).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BandwidthMatrix {
    pub test: String,
    pub bandwidth_gb_s: Vec<Vec<Option<f64>>>,
}

/// A test without a result.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MissingTest {
    pub test: String,
    pub state: PartState,
    pub reason: String,
}

/// `all_reduce_perf`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NcclTests {
    pub state: PartState,
    pub reason: String,
    pub rows: Vec<Collective>,
    pub wrong: u64,
}

/// What concerns all GPUs, and which programs tested nothing.
pub(super) fn general(installed: Option<&Installed>, failure: &str) -> Vec<Finding> {
    let Some(installed) = installed else {
        let why = if failure.is_empty() { "There is no result of the installed programs" } else { failure };
        return ["dcgm", "nvbandwidth", "nccl_tests"].map(|name| Finding::not_tested(name, sentence(why))).into();
    };
    let mut findings = Vec::new();
    let dcgm = &installed.dcgm;
    if dcgm.state == PartState::Measured {
        findings.extend(of_dcgm(dcgm, |row| row.device.is_none() && row.id.is_none()));
        let mut others: Vec<&str> =
            dcgm.rows.iter().filter(|row| row.device.is_none()).filter_map(|row| row.id.as_deref()).collect();
        others.dedup();
        if !others.is_empty() {
            let seen = format!("DCGM's GPUs {} cannot be matched with the GPUs of this job.", list(&others));
            findings.push(Finding::not_tested("dcgm", seen));
        }
    } else {
        findings.push(Finding::not_tested("dcgm", sentence(&dcgm.reason)));
    }
    let copies = &installed.nvbandwidth;
    if copies.state != PartState::Measured {
        findings.push(Finding::not_tested("nvbandwidth", sentence(&copies.reason)));
    }
    for one in &copies.missing {
        let seen = format!("{}: {}", one.test, sentence(&one.reason));
        findings.push(if one.state == PartState::Failed {
            Finding::new(
                "nvbandwidth",
                Verdict::Warning,
                seen,
                "See its output in the folder of the job, and test again.",
            )
        } else {
            Finding::not_tested("nvbandwidth", seen)
        });
    }
    findings.push(nccl(&installed.nccl_tests));
    findings
}

/// The checks of one GPU, by its place among those that are held.
pub(super) fn findings(
    place: usize,
    gpus: &[Gpu],
    installed: Option<&Installed>,
    classes: &[LinkClass],
) -> Vec<Finding> {
    let Some(installed) = installed else { return Vec::new() };
    let mut findings = Vec::new();
    if installed.dcgm.state == PartState::Measured {
        let own = of_dcgm(&installed.dcgm, |row| row.device == Some(place));
        if own.is_empty() {
            findings.push(Finding::not_tested("dcgm", "DCGM reports no result of this GPU."));
        }
        findings.extend(own);
    }
    if installed.nvbandwidth.state == PartState::Measured {
        findings.push(copies(place, gpus, &installed.nvbandwidth, classes));
    }
    findings
}

/// What DCGM found in some of its rows: at most one finding for each verdict.
fn of_dcgm(dcgm: &Dcgm, is_wanted: impl Fn(&DcgmRow) -> bool) -> Vec<Finding> {
    let rows: Vec<&DcgmRow> = dcgm.rows.iter().filter(|row| is_wanted(row)).collect();
    let of = |verdict| rows.iter().copied().filter(move |row| row.verdict() == verdict);
    let told = |row: &DcgmRow| {
        let word = match row.status {
            DcgmStatus::Pass => "passed",
            DcgmStatus::Warn => "has a warning",
            DcgmStatus::Fail => "failed",
            DcgmStatus::Skip => "was skipped",
            DcgmStatus::Unknown => "has a status that is not known",
        };
        let end = if row.messages.is_empty() { String::new() } else { format!(": {}", row.messages.join(" ")) };
        sentence(&format!("{} {word}{end}", row.test))
    };
    let advices = [
        (Verdict::Critical, "Stop using this GPU. Reset it and test again; if it fails again, have it replaced."),
        (Verdict::Warning, "Follow the message of DCGM, and test again."),
        (Verdict::NotTested, ""),
    ];
    let mut findings = Vec::new();
    for (verdict, advice) in advices {
        let sentences: Vec<String> = of(verdict).take(MAX_NAMED).map(told).collect();
        if !sentences.is_empty() {
            findings.push(Finding::new("dcgm", verdict, sentences.join(" "), advice));
        }
    }
    let passed: Vec<&str> = of(Verdict::Pass).map(|row| row.test.as_str()).collect();
    if !passed.is_empty() {
        let version = if dcgm.version.is_empty() { String::new() } else { format!(" {}", dcgm.version) };
        let seen = format!("Passed at level {} of DCGM{version}: {}.", dcgm.level, list(&passed));
        findings.push(Finding::pass("dcgm", seen));
    }
    findings
}

impl DcgmRow {
    /// A failure that DCGM itself rates as configuration or as worth watching does not make a GPU unusable.
    fn verdict(&self) -> Verdict {
        let is_mild = |severity: &String| matches!(severity.as_str(), "monitor" | "config");
        match self.status {
            DcgmStatus::Pass => Verdict::Pass,
            DcgmStatus::Fail if !self.severities.is_empty() && self.severities.iter().all(is_mild) => Verdict::Warning,
            DcgmStatus::Fail => Verdict::Critical,
            DcgmStatus::Warn => Verdict::Warning,
            DcgmStatus::Skip | DcgmStatus::Unknown => Verdict::NotTested,
        }
    }
}

fn copies(place: usize, gpus: &[Gpu], part: &NvBandwidth, classes: &[LinkClass]) -> Finding {
    let none = BandwidthRow::default();
    let own = part.rows.iter().find(|row| row.device == place).unwrap_or(&none);
    let alike = |row: &&BandwidthRow| {
        row.device != place && gpus.get(row.device).is_some_and(|peer| peer.model == gpus[place].model)
    };
    let peers = || part.rows.iter().filter(alike);
    let low = [
        ("To the GPU", own.to_device_gb_s, best(peers().map(|peer| peer.to_device_gb_s))),
        ("To the host", own.to_host_gb_s, best(peers().map(|peer| peer.to_host_gb_s))),
    ]
    .into_iter()
    .find_map(|(name, own, peer)| too_low(name, "GB/s", own?, peer, None, MIN_BANDWIDTH_SHARE))
    .or_else(|| part.links.iter().find_map(|link| slow_link(place, gpus, &link.bandwidth_gb_s, classes)));
    if let Some(low) = low {
        let advice = "Compare the PCIe lanes and the NVLinks with those of the other GPUs, and test again without \
                      other load.";
        return Finding::new("nvbandwidth", Verdict::Warning, low, advice);
    }
    let between: Vec<f64> = part
        .links
        .iter()
        .flat_map(|link| (0..gpus.len()).flat_map(|other| [(place, other), (other, place)]).map(move |at| (link, at)))
        .filter_map(|(link, (from, to))| link.bandwidth_gb_s.get(from)?.get(to).copied().flatten())
        .collect();
    let rates = [
        (own.to_device_gb_s, "to the GPU"),
        (own.to_host_gb_s, "to the host"),
        (median(&between), "to and from the other GPUs"),
    ];
    let rates: Vec<String> =
        rates.iter().filter_map(|(rate, where_to)| Some(format!("{:.1} GB/s {where_to}", (*rate)?))).collect();
    if rates.is_empty() {
        return Finding::not_tested("nvbandwidth", "nvbandwidth reports no rate of this GPU.");
    }
    Finding::pass("nvbandwidth", sentence(&rates.join(", ")))
}

fn nccl(part: &NcclTests) -> Finding {
    if part.state != PartState::Measured {
        return Finding::not_tested("nccl_tests", sentence(&part.reason));
    }
    if part.wrong > 0 {
        let seen = format!("all_reduce_perf counts {} wrong values.", part.wrong);
        let advice = "Do not train on several of these GPUs. Test again with fewer of them to find the one at fault.";
        return Finding::new("nccl_tests", Verdict::Critical, seen, advice);
    }
    match part.rows.last() {
        Some(row) => {
            let seen =
                format!("{:.1} GB/s of bus bandwidth at {} bytes, without a wrong value.", row.busbw_gb_s, row.size);
            Finding::pass("nccl_tests", seen)
        }
        None => Finding::not_tested("nccl_tests", "all_reduce_perf has no row."),
    }
}

fn list(names: &[&str]) -> String {
    let listed = names.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}
