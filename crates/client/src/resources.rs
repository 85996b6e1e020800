//! What a session and a job ask for in the same options: their size, by a name or in numbers, and where on a Slurm cluster
//! they run. Only what was said becomes a part of the request.

use clap::Args;
use lyceum_model::{SlurmOptions, size::parse_size};
use serde_json::{Map, Value, json};

/// How much a session or a job may use, by a name or in numbers.
#[derive(Args, Debug)]
pub struct Size {
    /// A named size
    #[arg(long, conflicts_with_all = ["gpus", "gpu_model", "cpus", "memory"])]
    pub profile: Option<String>,
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..))]
    pub gpus: Option<i64>,
    /// The model of GPU, as the cluster page spells it
    #[arg(long)]
    pub gpu_model: Option<String>,
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    pub cpus: Option<i64>,
    /// Such as 4GiB; every unit is a power of 1024
    #[arg(long, value_parser = size)]
    pub memory: Option<i64>,
}

/// Where on a Slurm cluster something runs.
#[derive(Args, Debug)]
pub struct SlurmChoice {
    /// The partition, on a Slurm cluster
    #[arg(long)]
    pub partition: Option<String>,
    /// The account that Slurm charges
    #[arg(long)]
    pub account: Option<String>,
    /// The quality of service of Slurm
    #[arg(long)]
    pub qos: Option<String>,
    /// The reservation of Slurm
    #[arg(long)]
    pub reservation: Option<String>,
    /// The features that each node must have, such as 'a100&nvlink'
    #[arg(long)]
    pub constraint: Option<String>,
}

impl SlurmChoice {
    /// What was said, as the API's `slurm`.
    pub(super) fn options(&self) -> Option<Value> {
        let options = SlurmOptions {
            partition: self.partition.clone(),
            account: self.account.clone(),
            qos: self.qos.clone(),
            reservation: self.reservation.clone(),
            constraint: self.constraint.clone(),
        };
        let said: Map<String, Value> = options.chosen().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        (!said.is_empty()).then_some(Value::Object(said))
    }
}

impl Size {
    /// The numbers that were said, as the API's `resources`.
    pub(super) fn resources(&self) -> Option<Value> {
        let said: Map<String, Value> = [
            ("gpus", self.gpus.map(Value::from)),
            ("gpu_model", self.gpu_model.clone().map(Value::from)),
            ("cpus", self.cpus.map(Value::from)),
            ("memory_bytes", self.memory.map(Value::from)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect();
        (!said.is_empty()).then_some(Value::Object(said))
    }
}

pub(super) fn size(text: &str) -> Result<i64, String> {
    parse_size(text)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "not a size; use a value like 512M, 4GiB or 1.5T".to_owned())
}
