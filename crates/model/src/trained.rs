//! A model as the portal knows it: which job trains it on what, where it lies, and what came of
//! the training. Its snapshots, measures and answers are its owner's files, and read as whoever
//! looks at them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    DatasetId, JobId, ModelId, ModelTestId, Timestamp, UserId,
    job::Visibility,
    session::{UnknownWord, words},
};

words!(
    /// State of a training.
    ModelState {
        /// The training job has not ended.
        Training = "training",
        /// The training completed.
        Trained = "trained",
        /// A user or the time limit ended the job. The checkpoints until then are kept.
        Stopped = "stopped",
        /// The training failed; `detail` gives the reason.
        Failed = "failed",
    }
);

#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub id: ModelId,
    pub owner: UserId,
    pub owner_name: String,
    pub name: String,
    /// Classification, detection or segmentation, in the trainer's word.
    pub kind: String,
    pub network: String,
    /// From the top of the file system on; empty before its job is known.
    pub directory: String,
    /// It may be gone.
    pub dataset: Option<DatasetId>,
    pub job: Option<JobId>,
    /// What it went on from, and the file below `checkpoints` there; it may be gone.
    pub parent: Option<(ModelId, String)>,
    pub state: ModelState,
    pub detail: String,
    /// The attempt of the job that `state` is about: 0 before any has ended.
    pub attempt: i64,
    /// What decides which snapshot is the best: `accuracy`; empty before there is one.
    pub metric: String,
    pub best: Option<f64>,
    pub snapshots: i64,
    /// How fast the training was; nothing before its end.
    pub speed: Option<Speed>,
    /// What measured it last in 32, 16 and 8 bits; it may be gone.
    pub precisions_job: Option<JobId>,
    pub visibility: Visibility,
    pub notes: String,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
}

/// What came of an attempt to train.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    pub state: ModelState,
    pub detail: String,
    pub attempt: i64,
    pub metric: String,
    pub best: Option<f64>,
    pub snapshots: i64,
    pub speed: Option<Speed>,
}

impl Trained {
    /// Returns the outcome of an attempt that left no checkpoint.
    #[must_use]
    pub const fn without_snapshots(state: ModelState, detail: String, attempt: i64) -> Self {
        Self { state, detail, attempt, metric: String::new(), best: None, snapshots: 0, speed: None }
    }
}

/// Throughput of a training and its device: the trainer's `speed.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelSpeed)]
pub struct Speed {
    /// Number of devices that shared a batch.
    pub devices: u32,
    /// `cpu`, or the name of the GPU.
    pub device: String,
    /// Batch size over all devices.
    pub batch_size: u32,
    /// Precision of the computation, for example `float32`.
    pub precision: String,
    pub images_per_second: f64,
}

/// A model that was asked about a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTest {
    pub id: ModelTestId,
    pub model: ModelId,
    /// Whose job answers, and in whose files the answer lies.
    pub owner: UserId,
    pub job: JobId,
    /// The file below `checkpoints`.
    pub snapshot: String,
    /// The picture, from the top of the file system on.
    pub picture: String,
    /// Where the answer lies, from the top of the file system on.
    pub directory: String,
    pub created_at: Timestamp,
}
