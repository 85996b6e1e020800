//! What a model loses and gains in fewer bits: a short job of its owner measures the best snapshot
//! in float32, float16 and int8 on pictures that it was not trained on, and leaves what it found
//! in the model's directory, where whoever may look reads it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Error, Models, Progress, Result,
    artifacts::{MAX_INDEX_LENGTH, last_words},
    prediction::{TIMEOUT, last_progress},
};
use lyceum_db::audit::Entry;
use lyceum_model::{Job, Model, Resources, User};

use crate::{
    jobs::{self, JobRequest},
    sessions::Actor,
};

/// What is shown of a file that may be anything.
const MAX_ROWS: usize = 8;

/// Options of a measurement.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NewModelPrecisions)]
pub struct NewPrecisions {
    /// The environment of the measurement. Default: the environment of the training. For float16 and int8 it must
    /// contain ONNX (docs/trainer.md).
    pub environment: Option<String>,
}

/// Result of a measurement: `precisions.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = MeasuredPrecisions)]
#[serde(default)]
pub struct PrecisionMeasurement {
    pub snapshot: String,
    pub split: String,
    pub pictures: u64,
    /// Number of CPU cores used.
    pub threads: u64,
    /// Batch size of the throughput measurement. The latency is measured with one image.
    pub batch_size: u64,
    /// Name of the metric that selects the best checkpoint.
    pub metric: String,
    pub precisions: Vec<Precision>,
}

/// A model in one precision. If `missing` is set, all values but `precision` are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelPrecision)]
#[serde(default)]
pub struct Precision {
    /// `float32`, `float16` or `int8`.
    pub precision: String,
    /// `ONNX Runtime`, or Keras if the environment does not contain ONNX.
    pub runtime: Option<String>,
    /// Size of the file in bytes.
    pub bytes: Option<u64>,
    /// Median latency for one image. `latency_95_ms` is the 95th percentile.
    pub latency_ms: Option<f64>,
    pub latency_95_ms: Option<f64>,
    pub images_per_second: Option<f64>,
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Reason why this precision was not measured.
    pub missing: Option<String>,
}

/// Where the measurement of a model stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Precisions {
    /// The one that was asked for last, where it has not ended.
    pub is_live: bool,
    /// How many precisions of how many are measured.
    pub progress: Option<Progress>,
    /// Why the last one failed.
    pub detail: String,
    /// By the last one that came to its end.
    pub measured: Option<PrecisionMeasurement>,
}

const SCRIPT: &str = "#!/bin/sh
# Measures a model in 32, 16 and 8 bits (docs/models.md).
cd \"$DIRECTORY\" || exit 4
exec python -m trainer precisions config.json \"checkpoints/$SNAPSHOT\" --output . > /dev/null
";

impl Models {
    /// Has a job measure one's own model; what it finds lies in the model's directory.
    pub async fn measure_precisions(&self, actor: Actor<'_>, model: &Model, new: NewPrecisions) -> Result<Job> {
        let user = actor.user;
        let Some(best) = self.snapshots(user, model).await?.unwrap_or_default().best else {
            return Err(Error::Conflict("the model does not have a checkpoint yet"));
        };
        if self.precisions_job(actor, model).await?.is_some_and(|job| job.latest.state.is_live()) {
            return Err(Error::Conflict("a measurement of this model is already running"));
        }
        let environment = match new.environment.filter(|name| !name.is_empty()) {
            Some(name) => name,
            None => self.environment(user, model).await?,
        };
        let mut variables = self.variables();
        variables.insert("DIRECTORY".to_owned(), model.directory.clone());
        variables.insert("SNAPSHOT".to_owned(), best);
        let request = JobRequest {
            name: Some(format!("measure {}", model.name).chars().take(64).collect()),
            script: Some(SCRIPT.to_owned()),
            variables: Some(variables),
            environment: Some(environment),
            resources: Some(Resources { cpus: 2, memory_bytes: 4 << 30, ..Resources::default() }),
            time_limit_seconds: Some(TIMEOUT),
            is_helper: true,
            ..JobRequest::default()
        };
        let job = self.jobs.submit(actor, request, None).await?;
        let (subject, name) = (model.id.to_string(), user.name.as_str());
        let noted = Entry {
            at: self.clock.now(),
            actor: name,
            action: "model.measure",
            subject: &subject,
            detail: &model.name,
        };
        self.db.set_model_precisions(model.id, job.id, &noted).await?;
        Ok(job)
    }

    /// What is known of it by now, as far as this person may read its files.
    pub async fn precisions(&self, actor: Actor<'_>, model: &Model) -> Result<Precisions> {
        let measured = self.measured(actor.user, model).await?;
        // Whose job it is follows it; others see what was measured.
        let Some(job) = self.precisions_job(actor, model).await? else {
            return Ok(Precisions { measured, ..Precisions::default() });
        };
        let is_live = job.latest.state.is_live();
        let mut found = Precisions { is_live, measured, ..Precisions::default() };
        if is_live || job.latest.exit_code != Some(0) {
            let log = self.jobs.log_tail(&job, None, 16 * 1024).await?;
            if is_live {
                found.progress = last_progress(&log);
            } else {
                let said = last_words(&log).or(job.latest.detail);
                found.detail = said.unwrap_or_else(|| "See the log of the job.".to_owned());
            }
        }
        Ok(found)
    }

    async fn precisions_job(&self, actor: Actor<'_>, model: &Model) -> Result<Option<Job>> {
        let Some(id) = model.precisions_job else { return Ok(None) };
        match self.jobs.own(actor, id).await {
            Ok(job) => Ok(Some(job)),
            Err(jobs::Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn measured(&self, user: &User, model: &Model) -> Result<Option<PrecisionMeasurement>> {
        let found = self.read(user, model, "precisions.json", MAX_INDEX_LENGTH).await?;
        Ok(found.and_then(|bytes| measured(&bytes)))
    }
}

fn measured(bytes: &[u8]) -> Option<PrecisionMeasurement> {
    let mut found: PrecisionMeasurement = serde_json::from_slice(bytes).ok()?;
    found.precisions.truncate(MAX_ROWS);
    (!found.precisions.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_trainer_measured() {
        let text =
            br#"{"snapshot": "epoch-00001.keras", "split": "val", "pictures": 40, "threads": 2, "batch_size": 32,
            "metric": "accuracy", "new": 1, "precisions": [
                {"precision": "float32", "runtime": "Keras on jax", "bytes": 9, "latency_ms": 0.5, "latency_95_ms": 1,
                 "images_per_second": 900.5, "metrics": {"accuracy": 0.75, "loss": null}},
                {"precision": "int8", "missing": "this environment lacks the Python package onnx"}]}"#;
        let found = measured(text).unwrap();
        assert_eq!((found.pictures, found.threads, found.metric.as_str()), (40, 2, "accuracy"));
        let [whole, small] = &found.precisions[..] else { panic!("{found:?}") };
        assert_eq!(
            (whole.metrics["accuracy"], whole.metrics["loss"], whole.latency_95_ms),
            (Some(0.75), None, Some(1.0))
        );
        assert!(small.latency_ms.is_none() && small.missing.as_deref().unwrap().ends_with("onnx"));
        for bad in [&b"{}"[..], b"[", br#"{"precisions": 3}"#] {
            assert_eq!(measured(bad), None);
        }
        let many = serde_json::json!({ "precisions": vec![serde_json::json!({}); 999] }).to_string();
        assert_eq!(measured(many.as_bytes()).unwrap().precisions.len(), MAX_ROWS);
    }
}
