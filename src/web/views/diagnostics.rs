//! `/diagnostics`: the list of tests of GPUs and storage, and a test of GPUs with the verdict on each GPU, the tables of
//! copies and collectives, and the numbers beside those of earlier runs and of the other GPUs.

use std::collections::BTreeMap;

use askama::Template;

use super::{FieldError, Moment, StateBadge};
use crate::{
    diagnostics::PastRun,
    model::{
        Gpu, Timestamp,
        diagnostics::{
            Baseline, Collective, Diagnostics, Finding, GpuVerdict, Installed, Judgement, Measured, Measurement,
            PartState, RunState, Subject, Verdict, median,
        },
        time::human_duration,
    },
    web::page::{Layout, filters},
};

/// The list with the form for a new test.
#[derive(Debug, Template)]
#[template(path = "diagnostics/list.html")]
pub struct DiagnosticsPage {
    pub layout: Layout,
    pub form: DiagnosticsForm,
    pub storage: StorageForm,
    /// Ids and names of datasets that can be read.
    pub datasets: Vec<(String, String)>,
    pub errors: Vec<FieldError>,
    pub groups: Vec<String>,
    /// How many GPUs one job can have.
    pub most: i64,
    pub rows: Vec<DiagnosticsRow>,
    pub names_owners: bool,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
}

impl DiagnosticsPage {
    pub fn error(&self, field: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }
}

/// What was typed.
#[derive(Clone, Debug, Default)]
pub struct DiagnosticsForm {
    pub level: String,
    pub gpus: String,
    pub group: String,
}

/// What was typed for a test of storage.
#[derive(Clone, Debug, Default)]
pub struct StorageForm {
    pub directory: String,
    pub dataset: String,
    pub size: String,
}

/// One test.
#[derive(Clone, Debug)]
pub struct DiagnosticsRow {
    pub id: String,
    pub badge: StateBadge,
    /// That of a test of GPUs, or `storage`.
    pub level: &'static str,
    /// `8 GPUs`, or a folder or dataset
    pub subject: String,
    pub owner: String,
    pub node: String,
    pub driver: String,
    pub job: Option<String>,
    pub created: Moment,
    /// How long it took, with its time in the queue.
    pub took: Option<String>,
}

impl DiagnosticsRow {
    pub fn new(run: &Diagnostics, now: Timestamp) -> Self {
        let badge = match (run.state, &run.judgement) {
            (RunState::Running, _) => StateBadge { class: "starting", word: "Running" },
            (RunState::Stopped, _) => StateBadge { class: "cancelled", word: "Cancelled" },
            (RunState::Finished, Some(judged)) => verdict_badge(&judged.verdict),
            (RunState::Failed | RunState::Finished, _) => StateBadge { class: "failed", word: "Failed" },
        };
        let (level, subject) = match &run.subject {
            Subject::Gpus { level, gpus: 1 } => (level.as_str(), "1 GPU".to_owned()),
            Subject::Gpus { level, gpus } => (level.as_str(), format!("{gpus} GPUs")),
            Subject::Storage(storage) if storage.directory.is_empty() => ("storage", storage.dataset_name.clone()),
            Subject::Storage(storage) => ("storage", storage.directory.clone()),
        };
        Self {
            id: run.id.to_string(),
            badge,
            level,
            subject,
            owner: run.owner_name.clone(),
            node: run.node.clone(),
            driver: run.driver.clone(),
            job: run.job.map(|job| job.to_string()),
            created: Moment::ago(run.created_at, now),
            took: run.ended_at.map(|at| human_duration(at.seconds_since(run.created_at))),
        }
    }
}

/// Shape, colour and word of a verdict.
pub fn verdict_badge(verdict: &Verdict) -> StateBadge {
    let class = match verdict {
        Verdict::Pass => "succeeded",
        Verdict::Information => "free",
        Verdict::NotTested => "ended",
        Verdict::Warning => "outside",
        Verdict::Critical => "failed",
    };
    StateBadge { class, word: verdict.title() }
}

/// How far a test is.
#[derive(Clone, Debug, Default)]
pub struct RunningTest {
    pub part: String,
    pub done: u64,
    pub of: u64,
    /// Why its job waits.
    pub waits: Option<String>,
}

/// How an operator keeps new work from what failed a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The portal allocates the GPUs, and holds one back.
    Hold,
    /// The batch system lets the portal drain the node.
    Drain,
    /// It does not: a command for the batch system's operators.
    Command,
}

/// One test.
#[derive(Debug, Template)]
#[template(path = "diagnostics/show.html")]
pub struct ShowDiagnostics {
    pub layout: Layout,
    pub row: DiagnosticsRow,
    pub detail: String,
    pub running: Option<RunningTest>,
    pub judgement: Option<Judgement>,
    /// What the reader may do about a critical verdict.
    pub remedy: Option<Remedy>,
    pub has_results: bool,
    pub tables: DiagnosticsTables,
}

impl ShowDiagnostics {
    /// What a reader has to know first: all but what is fine.
    pub fn urgent(findings: &[Finding]) -> Vec<&Finding> {
        findings.iter().filter(|one| matches!(one.verdict, Verdict::Warning | Verdict::Critical)).collect()
    }

    pub fn all(findings: &[Finding]) -> Vec<&Finding> {
        findings.iter().collect()
    }

    pub fn other(findings: &[Finding]) -> Vec<&Finding> {
        findings.iter().filter(|one| !matches!(one.verdict, Verdict::Warning | Verdict::Critical)).collect()
    }

    /// `8 checks passed, 3 not tested`
    pub fn counts(gpu: &GpuVerdict) -> String {
        let count = |verdict| gpu.findings.iter().filter(|one| one.verdict == verdict).count();
        let parts = [
            (count(Verdict::Critical), "critical"),
            (count(Verdict::Warning), "with a warning"),
            (count(Verdict::Information), "with a note"),
            (count(Verdict::Pass), "passed"),
            (count(Verdict::NotTested), "not tested"),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
        parts.join(", ")
    }

    /// The reason with which an operator can keep a GPU from new work, where the portal gives GPUs out.
    pub fn hold(&self, gpu: &GpuVerdict) -> Option<String> {
        let is_wanted = self.remedy == Some(Remedy::Hold) && gpu.verdict == Verdict::Critical;
        let worst = gpu.findings.iter().find(|finding| finding.verdict == Verdict::Critical)?;
        let reason = format!("test {}: {}", self.row.id, worst.seen);
        is_wanted.then(|| reason.chars().filter(|c| !c.is_control()).take(200).collect())
    }

    /// Whether the reader is offered to drain the node in this way.
    pub fn drains(&self, remedy: Remedy) -> bool {
        let is_critical = self.judgement.as_ref().is_some_and(|judged| judged.verdict == Verdict::Critical);
        self.remedy == Some(remedy) && is_critical && !self.row.node.is_empty()
    }

    /// What drains the node, where the portal may not do it.
    pub fn drain_command(&self) -> Option<String> {
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        self.drains(Remedy::Command).then(|| {
            let node: String = self.row.node.chars().filter(|c| safe(*c)).collect();
            format!("scontrol update nodename={node} state=drain reason=\"lyceum diagnostics {}\"", self.row.id)
        })
    }
}

/// The words of a check.
pub fn check_title(check: &str) -> &str {
    match check {
        "bits" => "Repeatable results",
        "clocks" => "Clocks",
        "collectives" => "Collectives",
        "count" => "Number of GPUs",
        "dcgm" => "DCGM",
        "driver" => "Driver",
        "ecc" => "Memory errors (ECC)",
        "dataset" | "dataset_reading" => "Reading the dataset",
        "files" | "small_files" => "Small files",
        "small_files_read" => "Reading small files",
        "sequential" => "A large file",
        "storage_read" => "Reading",
        "storage_write" => "Writing",
        "host" => "Copies to and from the host",
        "jax" => "JAX",
        "links" => "Copies between GPUs",
        "matmul" => "Matrix multiplication",
        "memory" => "Memory pattern",
        "nccl_tests" => "nccl-tests",
        "nvbandwidth" => "nvbandwidth",
        "nvlink" => "NVLink",
        "pcie" => "PCIe",
        "power_limit" => "Power limit",
        "program" => "Measuring program",
        "programs" => "Other programs",
        "remapping" => "Row remapping",
        "retired_pages" => "Retired pages",
        "state" => "State",
        "temperature" => "Temperature",
        "throttling" => "Throttling",
        "xid" => "Critical errors (XID)",
        other => other,
    }
}

/// The tables below the verdicts.
#[derive(Clone, Debug, Default)]
pub struct DiagnosticsTables {
    /// Title with its unit, the columns' heads, and the rows.
    pub matrices: Vec<LinkMatrix>,
    pub collectives: Vec<CollectiveRow>,
    pub history: Vec<HistoryRow>,
}

/// Copies from each GPU to each other one.
#[derive(Clone, Debug)]
pub struct LinkMatrix {
    pub title: &'static str,
    pub rows: Vec<(String, Vec<HeatedCell>)>,
}

/// A number with its class of colour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatedCell {
    pub class: &'static str,
    pub text: String,
}

/// A row in nccl-tests' columns.
#[derive(Clone, Debug)]
pub struct CollectiveRow {
    pub name: String,
    pub size: u64,
    pub count: u64,
    pub kind: String,
    pub time: String,
    pub algbw: String,
    pub busbw: String,
    pub wrong: u64,
}

/// A number of a GPU beside its own past and its peers.
#[derive(Clone, Debug)]
pub struct HistoryRow {
    pub gpu: String,
    pub measure: &'static str,
    pub own: String,
    /// The median of earlier runs, and the difference to it.
    pub past: Option<(String, String)>,
    /// How many earlier runs there were.
    pub runs: usize,
    /// The same of the other GPUs of this model in this run.
    pub peers: Option<(String, String)>,
}

/// A measure's name and unit, and where it stands.
type Measure = (&'static str, fn(&Measurement) -> Option<f64>);

const MEASURES: [Measure; 4] = [
    ("float32, TFLOP/s", |one| one.float32_tflops),
    ("bfloat16, TFLOP/s", |one| one.bfloat16_tflops),
    ("to the GPU, GB/s", |one| one.to_device_gb_s),
    ("to the host, GB/s", |one| one.to_host_gb_s),
];

impl DiagnosticsTables {
    pub fn new(
        run: &Diagnostics,
        measured: Option<&Measured>,
        installed: Option<&Installed>,
        past: &BTreeMap<String, Vec<PastRun>>,
    ) -> Self {
        let Some(judged) = &run.judgement else { return Self::default() };
        let gpus: Vec<&Gpu> = judged.gpus.iter().map(|one| &one.gpu).collect();
        let mut tables = Self { history: history(&judged.gpus, past), ..Self::default() };
        if let Some(measured) = measured {
            if measured.links.state == PartState::Measured {
                let wrong = |from: usize, to: usize| {
                    measured.links.wrong.get(from).and_then(|row| row.get(to)).copied().flatten().unwrap_or(0) > 0
                };
                let (bandwidth, latency) = (&measured.links.bandwidth_gb_s, &measured.links.latency_us);
                tables.matrices = vec![
                    LinkMatrix { title: "Bandwidth in GB/s", rows: matrix(&gpus, bandwidth, true, wrong) },
                    LinkMatrix { title: "Latency in µs", rows: matrix(&gpus, latency, false, wrong) },
                ];
            }
            tables.collectives = collectives(&measured.collectives.rows, "");
        }
        if let Some(installed) = installed {
            for link in installed.nvbandwidth.links.iter().take(4) {
                let title = match link.test.as_str() {
                    "device_to_device_memcpy_read_ce" => "nvbandwidth, reads in GB/s",
                    "device_to_device_memcpy_write_ce" => "nvbandwidth, writes in GB/s",
                    _ => continue,
                };
                tables
                    .matrices
                    .push(LinkMatrix { title, rows: matrix(&gpus, &link.bandwidth_gb_s, true, |_, _| false) });
            }
            tables.collectives.extend(collectives(&installed.nccl_tests.rows, " of nccl-tests"));
        }
        tables
    }
}

/// The rows of a table, with the program that measured them.
fn collectives(rows: &[Collective], origin: &str) -> Vec<CollectiveRow> {
    let row = |row: &Collective| CollectiveRow {
        name: format!("{}{origin}", row.name),
        size: row.size,
        count: row.count,
        kind: row.kind.clone(),
        time: format!("{:.1}", row.time_us),
        algbw: format!("{:.2}", row.algbw_gb_s),
        busbw: format!("{:.2}", row.busbw_gb_s),
        wrong: row.wrong,
    };
    rows.iter().take(200).map(row).collect()
}

fn matrix(
    gpus: &[&Gpu],
    numbers: &[Vec<Option<f64>>],
    more_is_better: bool,
    wrong: impl Fn(usize, usize) -> bool,
) -> Vec<(String, Vec<HeatedCell>)> {
    let all: Vec<f64> = numbers.iter().flatten().flatten().copied().collect();
    let usual = median(&all);
    let cell = |from: usize, to: usize| {
        let number = numbers.get(from).and_then(|row| row.get(to)).copied().flatten();
        let Some(number) = number else { return HeatedCell { class: "self", text: "–".to_owned() } };
        let text = if number < 10.0 { format!("{number:.2}") } else { format!("{number:.0}") };
        if wrong(from, to) {
            return HeatedCell { class: "heat-wrong", text: format!("{text} wrong") };
        }
        let share = usual.map_or(1.0, |usual| if more_is_better { number / usual } else { usual / number });
        HeatedCell { class: heat(share), text }
    };
    let row = |(from, gpu): (usize, &&Gpu)| (gpu.label(), (0..gpus.len()).map(|to| cell(from, to)).collect());
    gpus.iter().enumerate().map(row).collect()
}

/// The class of a number by its share of the median.
fn heat(share: f64) -> &'static str {
    match share {
        share if share < 0.5 => "heat-0",
        share if share < 0.7 => "heat-1",
        share if share < 0.9 => "heat-2",
        share if share < 1.3 => "heat-3",
        _ => "heat-4",
    }
}

fn history(gpus: &[GpuVerdict], past: &BTreeMap<String, Vec<PastRun>>) -> Vec<HistoryRow> {
    let mut rows = Vec::new();
    for gpu in gpus {
        let Some(own) = &gpu.measurement else { continue };
        let earlier: Vec<Measurement> =
            past.get(&gpu.gpu.uuid).into_iter().flatten().map(|one| one.measurement).collect();
        let baseline = Baseline::of(&earlier);
        let peers = || gpus.iter().filter(|peer| peer.gpu.model == gpu.gpu.model && peer.gpu.uuid != gpu.gpu.uuid);
        for (measure, of) in MEASURES {
            let Some(number) = of(own) else { continue };
            let beside = |other: f64| (rate(other), difference(number, other));
            let of_peers: Vec<f64> = peers().filter_map(|peer| of(peer.measurement.as_ref()?)).collect();
            rows.push(HistoryRow {
                gpu: gpu.gpu.label(),
                measure,
                own: rate(number),
                past: of(&baseline.median).map(beside),
                runs: earlier.len(),
                peers: median(&of_peers).map(beside),
            });
        }
    }
    rows
}

fn rate(number: f64) -> String {
    if number < 10.0 { format!("{number:.2}") } else { format!("{number:.1}") }
}

/// `+3 %`, `−12 %`
fn difference(number: f64, other: f64) -> String {
    if other <= 0.0 {
        return String::new();
    }
    let percent = (number / other - 1.0) * 100.0;
    if percent.abs() < 0.5 {
        "±0 %".to_owned()
    } else {
        format!("{}{:.0} %", if percent < 0.0 { '−' } else { '+' }, percent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_share_of_the_median() {
        let gpu = |index| Gpu { index, ..Gpu::default() };
        let (one, other) = (gpu(0), gpu(1));
        let numbers = [vec![None, Some(100.0)], vec![Some(40.0), None]];
        let rows = matrix(&[&one, &other], &numbers, true, |from, to| (from, to) == (0, 1));
        let cell = |class, text: &str| HeatedCell { class, text: text.to_owned() };
        assert_eq!(rows[0].1, [cell("self", "–"), cell("heat-wrong", "100 wrong")]);
        assert_eq!(rows[1].1, [cell("heat-1", "40"), cell("self", "–")]);
        let rows = matrix(&[&one, &other], &numbers, false, |_, _| false);
        assert_eq!((rows[0].1[1].class, rows[1].1[0].class), ("heat-2", "heat-4"), "a low latency is good");
    }

    #[test]
    fn numbers_beside_others() {
        assert_eq!(difference(90.0, 100.0), "−10 %");
        assert_eq!((difference(100.2, 100.0), difference(1.0, 0.0)), ("±0 %".to_owned(), String::new()));
        assert_eq!((rate(3.217_59), rate(51.27)), ("3.22".to_owned(), "51.3".to_owned()));
    }
}
