//! Tests of GPUs and of storage: what a run is, and the verdict that its measurements lead to. `report` is what the driver
//! says, `measured` what the Python program measured, `installed` what NVIDIA's own programs found, `judge` the rules,
//! and `storage` all of the tests of storage. Who starts a run and where its results lie is the service's business.

mod history;
mod installed;
mod judge;
mod measured;
mod rates;
mod report;
mod state;
mod storage;
#[cfg(test)]
mod tests;
mod xid;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Gpu, JobId, Timestamp, UserId,
    ids::DiagnosticsId,
    session::{UnknownWord, words},
};

pub use history::{Baseline, MIN_PAST_RUNS, Measurement, median};
pub use installed::{
    BandwidthMatrix, BandwidthRow, Dcgm, DcgmRow, DcgmStatus, INSTALLED_VERSION, Installed, MissingTest, NcclTests,
    NvBandwidth,
};
pub use judge::{Evidence, judge};
pub use measured::{
    BitsRow, Collective, HostRow, Links, MEASURED_VERSION, MatmulRow, Measured, MeasuredDevice, MemoryRow, PartState,
    Rows,
};
pub use report::{DriverGpu, DriverReport, GpuFacts, LinkClass, NvLinks, REPORT_VERSION};
pub use storage::{
    Cache, DatasetReading, FileSystem, MAX_STORAGE_SIZE, MIN_STORAGE_SIZE, ReadingRow, STORAGE_VERSION, Sequential,
    SmallFiles, StorageMeasurement, StorageReport, StorageSubject, StorageVerdict, TrainingRate, judge_storage,
};
pub use xid::{Xid, parse_kernel_log};

words!(
    /// How much a run tests.
    Level as "DiagnosticsLevel" {
        /// What the driver reports, without load. Takes seconds.
        Quick = "quick",
        /// Also transfers, collectives, matmul rates, repeatable results and memory. Takes a minute or two.
        Medium = "medium",
        /// Also what the node has installed: DCGM, nvbandwidth and nccl-tests. Takes up to an hour.
        Long = "long",
    }
);

impl Level {
    /// Whether it puts load on the GPUs.
    #[must_use]
    pub fn has_load(self) -> bool {
        self != Self::Quick
    }
}

words!(
    /// What a run tests.
    Kind as "DiagnosticsKind" {
        Gpu = "gpu",
        Storage = "storage",
    }
);

words!(
    /// State of a run.
    RunState as "DiagnosticsState" {
        /// Its job has not ended.
        Running = "running",
        /// It has a verdict.
        Finished = "finished",
        /// A user or the time limit ended the job.
        Stopped = "stopped",
        /// Nothing was measured; `detail` gives the reason.
        Failed = "failed",
    }
);

/// What came of a check, of a GPU, or of a run. The order is that of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[schema(as = DiagnosticsVerdict)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Pass,
    /// Nothing is wrong, and somebody may want to know it.
    Information,
    /// It could not be tested. This is not a pass.
    NotTested,
    /// The GPU works, but slower or less safely than it should.
    Warning,
    /// The GPU should not be used.
    Critical,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Information => "information",
            Self::NotTested => "not_tested",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// The word for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Pass => "Pass",
            Self::Information => "Information",
            Self::NotTested => "Not tested",
            Self::Warning => "Warning",
            Self::Critical => "Critical",
        }
    }
}

impl FromStr for Verdict {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let all = [Self::Pass, Self::Information, Self::NotTested, Self::Warning, Self::Critical];
        all.into_iter().find(|one| one.as_str() == text).ok_or(UnknownWord)
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DiagnosticsFinding)]
pub struct Finding {
    /// Such as `ecc`, `pcie`, `links` or `matmul`.
    pub check: String,
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do. Empty if nothing has to be done.
    pub advice: String,
}

impl Finding {
    fn new(check: &str, verdict: Verdict, seen: impl Into<String>, advice: &str) -> Self {
        Self { check: check.to_owned(), verdict, seen: seen.into(), advice: advice.to_owned() }
    }

    fn pass(check: &str, seen: impl Into<String>) -> Self {
        Self::new(check, Verdict::Pass, seen, "")
    }

    fn not_tested(check: &str, why: impl Into<String>) -> Self {
        Self::new(check, Verdict::NotTested, why, "")
    }
}

/// The verdict on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = DiagnosticsGpu)]
pub struct GpuVerdict {
    pub gpu: Gpu,
    pub verdict: Verdict,
    /// All checks, the most urgent first.
    pub findings: Vec<Finding>,
    /// What is compared with later runs; null if nothing was measured.
    pub measurement: Option<Measurement>,
}

/// The verdict on a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The most urgent verdict.
    pub verdict: Verdict,
    /// What concerns all GPUs of the run.
    pub general: Vec<Finding>,
    /// Empty if storage was tested.
    pub gpus: Vec<GpuVerdict>,
    /// Only if storage was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageVerdict>,
}

impl Judgement {
    /// Returns the ids under which later runs find this one: UUIDs of GPUs, or the id of a file system.
    pub fn tested_ids(&self) -> impl Iterator<Item = &str> {
        let gpus = self.gpus.iter().map(|gpu| gpu.gpu.uuid.as_str());
        gpus.chain(self.storage.iter().map(|storage| storage.file_system.id.as_str()))
    }
}

/// What a run tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Gpus {
        level: Level,
        /// How many GPUs were asked for.
        gpus: i64,
    },
    Storage(StorageSubject),
}

impl Subject {
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Gpus { .. } => Kind::Gpu,
            Self::Storage(_) => Kind::Storage,
        }
    }
}

/// One run of the tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostics {
    pub id: DiagnosticsId,
    pub owner: UserId,
    pub owner_name: String,
    /// It may be gone.
    pub job: Option<JobId>,
    pub subject: Subject,
    pub state: RunState,
    /// Why there is no verdict.
    pub detail: String,
    /// Where it ran; empty before its end.
    pub node: String,
    /// The version of the driver; empty if none was found.
    pub driver: String,
    pub judgement: Option<Judgement>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}
