//! How a model judges beyond its metrics: what it would answer if it only spoke when it is sure, and the
//! layers that it is made of. Read from what the trainer left, as
//! whoever looks, and believed no more than the rest of it.

use serde::{Deserialize, Serialize};

use super::{
    Models, Result,
    artifacts::{MAX_MEASURES_LENGTH, MAX_PREDICTIONS_LENGTH},
};
use lyceum_model::{
    Model, User,
    records::{Record, Records},
};

/// The most layers that are told.
const MAX_LAYERS: usize = 2000;
const MAX_WARNINGS: usize = 20;
/// Steps of a threshold: every percent.
const STEPS: usize = 101;

/// Predictions of a classifier at each confidence threshold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelThresholds)]
pub struct Thresholds {
    pub split: String,
    /// Number of images in the split.
    pub pictures: u64,
    /// For each threshold from 0 to 100 percent: the number of images with at least this confidence.
    pub answered: Vec<u64>,
    /// For each threshold: how many of these predictions are correct.
    pub right: Vec<u64>,
}

/// The layers of a network, and the memory of a training step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelLayers)]
#[serde(default)]
pub struct Layers {
    pub layers: Vec<Layer>,
    pub parameters: Parameters,
    /// Multiply-accumulate operations for one image.
    pub macs: u64,
    /// Estimated memory of a training step.
    pub memory: Memory,
    pub batch_size: u64,
    /// Probable mistakes in the network, such as a softmax at its end.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelLayer)]
#[serde(default)]
pub struct Layer {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// Output shape for one image. A list of shapes for a layer with several outputs.
    #[schema(value_type = Vec<u64>)]
    pub shape: serde_json::Value,
    pub parameters: u64,
    pub macs: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelParameterCounts)]
#[serde(default)]
pub struct Parameters {
    pub trainable: u64,
    pub fixed: u64,
    pub total: u64,
}

/// Memory in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelMemory)]
#[serde(default)]
pub struct Memory {
    /// Weights, gradients and the state of the optimiser.
    pub weights: u64,
    pub activations: u64,
    pub total: u64,
}

impl Models {
    /// What it would answer from which confidence on; nothing before it is measured.
    pub async fn thresholds(&self, user: &User, model: &Model, split: &str) -> Result<Option<Thresholds>> {
        let found = self.read(user, model, &format!("eval/{split}/predictions.csv"), MAX_PREDICTIONS_LENGTH).await?;
        let Some(bytes) = found else { return Ok(None) };
        let split = split.to_owned();
        Ok(self.files.parse(bytes, move |bytes| thresholds(bytes, split)).await?)
    }

    /// What it is made of; nothing before its training has built it.
    pub async fn layers(&self, user: &User, model: &Model) -> Result<Option<Layers>> {
        let found = self.read(user, model, "model_summary.json", MAX_MEASURES_LENGTH).await?;
        Ok(found.and_then(|bytes| layers(&bytes)))
    }
}

/// Nothing where the file is not that of a classification.
fn thresholds(bytes: &[u8], split: String) -> Option<Thresholds> {
    let (mut records, mut record) = (Records::new(bytes, 4), Record::default());
    if !records.next(&mut record) || record.fields().ne(["path", "label", "predicted", "confidence"]) {
        return None;
    }
    // How many have their confidence in each percent; summed from the top afterwards.
    let (mut answered, mut right) = (vec![0_u64; STEPS], vec![0_u64; STEPS]);
    let mut pictures = 0;
    while records.next(&mut record) {
        let confidence: f64 = record.get(3).parse().unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 100")]
        let percent = (confidence * 100.0 + 1e-9).clamp(0.0, 100.0) as usize;
        pictures += 1;
        answered[percent] += 1;
        right[percent] += u64::from(record.get(1) == record.get(2));
    }
    for at in (0..STEPS - 1).rev() {
        answered[at] += answered[at + 1];
        right[at] += right[at + 1];
    }
    Some(Thresholds { split, pictures, answered, right })
}

pub(super) fn layers(bytes: &[u8]) -> Option<Layers> {
    let mut found: Layers = serde_json::from_slice(bytes).ok()?;
    found.layers.truncate(MAX_LAYERS);
    found.warnings.truncate(MAX_WARNINGS);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_are_answered_the_surer_it_must_be() {
        let file = b"path,label,predicted,confidence,loss\n1,a,a,1,0\n2,a,b,0.29,1\n3,b,b,0.57,1\n4,b,a,nan,1\n";
        let found = thresholds(file, "val".to_owned()).unwrap();
        assert_eq!((found.pictures, found.answered.len(), found.right.len()), (4, 101, 101));
        assert_eq!([0, 1, 29, 30, 57, 58, 100].map(|at| found.answered[at]), [4, 3, 3, 2, 2, 1, 1]);
        assert_eq!([0, 29, 57, 58, 100].map(|at| found.right[at]), [2, 2, 2, 1, 1]);
        assert_eq!(thresholds(b"path,iou\n1,0.5\n", "val".to_owned()), None);
    }

    #[test]
    fn layers_as_the_trainer_describes_them() {
        let text = br#"{"layers": [{"name": "conv", "type": "Conv2D", "shape": [8, 8, 4], "parameters": 40, "macs": 2304,
            "values": 256}, {"name": "both", "type": "X", "shape": [[1], [2]]}], "parameters": {"trainable": 40, "fixed": 0,
            "total": 40}, "macs": 2304, "memory": {"weights": 480, "activations": 9, "total": 489}, "batch_size": 64}"#;
        let found = layers(text).unwrap();
        assert_eq!((found.layers.len(), found.macs, found.parameters.total, found.memory.total), (2, 2304, 40, 489));
        assert_eq!(found.layers[0].kind, "Conv2D");
        assert!(layers(b"[]").is_none_or(|found| found.layers.is_empty()) && layers(b"{").is_none());
    }
}
