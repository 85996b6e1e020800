//! What the Python program `diagnostics` measured, as it writes it. The document is a user's file: sizes are limited by
//! whoever reads it, and numbers that make no sense only spoil that user's own run.

use serde::{Deserialize, Deserializer};

/// Of the JSON document (`diagnostics/__init__.py`).
pub const MEASURED_VERSION: u32 = 1;

/// The document. Devices are in the order of `CUDA_VISIBLE_DEVICES`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Measured {
    pub version: u32,
    pub held: usize,
    pub devices: Vec<MeasuredDevice>,
    /// Why JAX sees no device.
    pub fault: String,
    pub host: Rows<HostRow>,
    pub links: Links,
    pub collectives: Rows<Collective>,
    pub matmul: Rows<MatmulRow>,
    pub bits: Rows<BitsRow>,
    pub memory: Rows<MemoryRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MeasuredDevice {
    pub device: usize,
    pub model: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartState {
    Measured,
    /// It broke off, by an error of the GPU for example.
    Failed,
    #[default]
    #[serde(other)]
    NotTested,
}

/// A part with a row for each device, or for each collective and size.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, bound(deserialize = "T: Deserialize<'de>"))]
pub struct Rows<T> {
    pub state: PartState,
    /// Why it was not measured.
    pub reason: String,
    pub rows: Vec<T>,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { state: PartState::NotTested, reason: String::new(), rows: Vec::new() }
    }
}

/// Copies between the host's memory and a GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HostRow {
    pub device: usize,
    pub to_device_gb_s: f64,
    pub to_host_gb_s: f64,
    pub wrong: u64,
}

/// Copies from each GPU (row) to each other one (column); the diagonal is empty.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Links {
    pub state: PartState,
    pub reason: String,
    pub bandwidth_gb_s: Vec<Vec<Option<f64>>>,
    pub latency_us: Vec<Vec<Option<f64>>>,
    pub wrong: Vec<Vec<Option<u64>>>,
}

/// A row of nccl-tests' table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Collective {
    pub name: String,
    pub size: u64,
    pub count: u64,
    #[serde(rename = "type")]
    pub kind: String,
    pub time_us: f64,
    pub algbw_gb_s: f64,
    pub busbw_gb_s: f64,
    pub wrong: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MatmulRow {
    pub device: usize,
    /// `float32` or `bfloat16`.
    #[serde(rename = "type")]
    pub kind: String,
    pub tflops: f64,
}

/// Digests of the same work, done twice.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BitsRow {
    pub device: usize,
    pub digests: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MemoryRow {
    pub device: usize,
    pub bytes: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub of_bytes: u64,
    pub wrong: u64,
}

fn or_default<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
