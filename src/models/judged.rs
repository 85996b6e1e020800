//! How a model judges beyond its metrics: what it got most wrong, what it would answer if it only
//! spoke when it is sure, and the layers that it is made of. Read from what the trainer left, as
//! whoever looks, and believed no more than the rest of it.

use serde::{Deserialize, Serialize};

use super::{
    Models, Prediction, Result,
    look::{LONGEST_MEASURES, LONGEST_PREDICTIONS},
};
use crate::model::{
    Model, User,
    records::{Record, Records},
};

/// The most layers that are told.
const MOST_LAYERS: usize = 2000;
/// Steps of a threshold: every percent.
const STEPS: usize = 101;

/// What a classifier would answer if it spoke only from a confidence on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelThresholds)]
pub struct Thresholds {
    pub split: String,
    /// All pictures.
    pub pictures: u64,
    /// For each percent from 0 to 100 how many pictures are answered at this confidence or above.
    pub answered: Vec<u64>,
    /// How many of these rightly.
    pub right: Vec<u64>,
}

/// What a network is made of, and what a step of its training takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelLayers)]
#[serde(default)]
pub struct Layers {
    pub layers: Vec<Layer>,
    pub parameters: Parameters,
    /// Multiply-accumulates for one picture.
    pub macs: u64,
    /// Of a training step, as an estimate.
    pub memory: Memory,
    pub batch_size: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelLayer)]
#[serde(default)]
pub struct Layer {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// Of one picture's values; a list of such for a layer with several outputs.
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

/// In bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelMemory)]
#[serde(default)]
pub struct Memory {
    /// With gradients and what the optimiser keeps.
    pub weights: u64,
    pub activations: u64,
    pub total: u64,
}

impl Models {
    /// What the best snapshot got most wrong of a split, the worst first; empty where the task has no such list.
    pub async fn worst(&self, user: &User, model: &Model, split: &str, most: usize) -> Result<Vec<Prediction>> {
        let found = self.read(user, model, &format!("eval/{split}/worst.json"), LONGEST_MEASURES).await?;
        let mut listed = found.map(|bytes| worst(&bytes)).unwrap_or_default();
        listed.truncate(most);
        Ok(listed)
    }

    /// What it would answer from which confidence on; nothing before it is measured.
    pub async fn thresholds(&self, user: &User, model: &Model, split: &str) -> Result<Option<Thresholds>> {
        let found = self.read(user, model, &format!("eval/{split}/predictions.csv"), LONGEST_PREDICTIONS).await?;
        let Some(bytes) = found else { return Ok(None) };
        let split = split.to_owned();
        Ok(self.files.parse(bytes, move |bytes| thresholds(bytes, split)).await?)
    }

    /// What it is made of; nothing before its training has built it.
    pub async fn layers(&self, user: &User, model: &Model) -> Result<Option<Layers>> {
        let found = self.read(user, model, "model_summary.json", LONGEST_MEASURES).await?;
        Ok(found.and_then(|bytes| layers(&bytes)))
    }
}

fn worst(bytes: &[u8]) -> Vec<Prediction> {
    /// An entry of a classification; those of other tasks have no classes and are passed over.
    #[derive(Deserialize)]
    struct Entry {
        path: String,
        label: String,
        predicted: String,
        confidence: f64,
        loss: f64,
    }
    let rows: Vec<serde_json::Value> = serde_json::from_slice(bytes).unwrap_or_default();
    let entries = rows.into_iter().filter_map(|row| serde_json::from_value::<Entry>(row).ok());
    let wrong = entries.filter(|one| one.label != one.predicted);
    wrong
        .map(|Entry { path, label, predicted, confidence, loss }| Prediction {
            path,
            label,
            predicted,
            confidence,
            loss,
        })
        .collect()
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
    found.layers.truncate(MOST_LAYERS);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_judged_worst() {
        let listed = worst(
            br#"[{"path": "a", "label": "cat", "predicted": "dog", "confidence": 0.9, "loss": 3.5, "probability": 0.03},
                {"path": "b", "label": "cat", "predicted": "cat", "confidence": 0.5, "loss": 0.7},
                {"path": "c", "iou": 0.1}, 3]"#,
        );
        assert_eq!(listed.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["a"]);
        assert!(worst(b"{}").is_empty());
    }

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
