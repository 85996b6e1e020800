//! A dataset as the portal knows it: whose it is, where it lies, and whether it is there. What
//! is in it is its owner's, and read as whoever looks at it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    DatasetId, JobId, Timestamp, UserId,
    job::Visibility,
    session::{UnknownWord, words},
};

words!(
    /// State of a dataset.
    DatasetState {
        /// The build job is queued or running.
        Building = "building",
        Ready = "ready",
        /// The build failed; `detail` gives the reason.
        Failed = "failed",
        /// The build job was cancelled. Finished work is kept.
        Cancelled = "cancelled",
    }
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    pub id: DatasetId,
    pub owner: UserId,
    pub owner_name: String,
    pub name: String,
    /// Classification, detection or segmentation, in the builder's word.
    pub kind: String,
    /// What it is made of, in the builder's word.
    pub source: String,
    /// From the top of the file system on.
    pub directory: String,
    pub state: DatasetState,
    pub detail: String,
    pub job: Option<JobId>,
    pub visibility: Visibility,
    pub notes: String,
    /// SHA-256 in hex; empty before it is there.
    pub manifest_sha256: String,
    pub pictures: i64,
    pub broken: i64,
    pub classes: i64,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
}

/// What came of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ready { manifest_sha256: String, pictures: i64, broken: i64, classes: i64 },
    Failed(String),
    Cancelled,
}
