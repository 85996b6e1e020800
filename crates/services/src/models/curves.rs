//! The curves behind a metric, as the trainer computed them: ROC, precision over recall, and how far a
//! classifier's confidence can be trusted. They belong to a user's files, so their length is limited.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Models, Result, artifacts::MAX_MEASURES_LENGTH};
use lyceum_model::{Model, User};

/// The most curves of a kind, points of a curve, and bins.
const MAX_CURVES: usize = 100;
const MAX_POINTS: usize = 1000;
const MAX_BINS: usize = 100;

/// Curves of the best checkpoint on a split. Detection has only `precision_recall`, regression only `scatter`,
/// segmentation and reconstruction none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelCurves)]
#[serde(default)]
pub struct Curves {
    /// For each class against the rest: x is the false positive rate, y the true positive rate.
    pub roc: Vec<ClassCurve>,
    /// For each class: x is the recall, y the precision. For detection at an `IoU` of 0.5.
    pub precision_recall: Vec<ClassCurve>,
    pub calibration: Option<Calibration>,
    /// For each output of a regression: predicted over true values, of at most 1000 images that are evenly spaced.
    pub scatter: Vec<Scatter>,
}

/// Predicted over true values of an output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelScatter)]
#[serde(default)]
pub struct Scatter {
    /// Name of the output.
    pub output: String,
    /// True values.
    #[serde(rename = "true")]
    pub truth: Vec<f64>,
    /// Predicted values, in the order of the true ones.
    pub predicted: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelClassCurve)]
#[serde(default)]
pub struct ClassCurve {
    pub class: String,
    /// Area under the ROC curve; null for a precision-recall curve.
    pub auc: Option<f64>,
    /// Average precision; null for an ROC curve.
    pub ap: Option<f64>,
    pub x: Vec<f64>,
    pub y: Vec<f64>,
}

/// Reliability of the confidence of the predicted class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelCalibration)]
#[serde(default)]
pub struct Calibration {
    /// Expected calibration error: the mean distance between confidence and accuracy.
    pub ece: f64,
    /// Bins of confidence that contain images.
    pub bins: Vec<CalibrationBin>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelCalibrationBin)]
#[serde(default)]
pub struct CalibrationBin {
    pub from: f64,
    pub to: f64,
    /// Number of images.
    pub count: u64,
    /// Mean confidence.
    pub confidence: f64,
    pub accuracy: f64,
}

impl Models {
    /// Returns the curves of a split; `None` if the trainer wrote none.
    pub async fn curves(&self, user: &User, model: &Model, split: &str) -> Result<Option<Curves>> {
        if model.directory.is_empty() {
            return Ok(None);
        }
        self.curves_in(user, &Path::new(&model.directory).join("eval").join(split)).await
    }

    pub(super) async fn curves_in(&self, user: &User, folder: &Path) -> Result<Option<Curves>> {
        let found = self.read_in(user, folder, "curves.json", MAX_MEASURES_LENGTH).await?;
        Ok(found.and_then(|bytes| curves(&bytes)))
    }
}

/// Reads `curves.json`.
pub(super) fn curves(bytes: &[u8]) -> Option<Curves> {
    let mut found: Curves = serde_json::from_slice(bytes).ok()?;
    for list in [&mut found.roc, &mut found.precision_recall] {
        list.truncate(MAX_CURVES);
        for one in list {
            let points = one.x.len().min(one.y.len()).min(MAX_POINTS);
            one.x.truncate(points);
            one.y.truncate(points);
        }
    }
    found.scatter.truncate(MAX_CURVES);
    for one in &mut found.scatter {
        let points = one.truth.len().min(one.predicted.len()).min(MAX_POINTS);
        one.truth.truncate(points);
        one.predicted.truncate(points);
    }
    if let Some(calibration) = &mut found.calibration {
        calibration.bins.truncate(MAX_BINS);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_as_long_in_both_directions() {
        let found = curves(
            br#"{"roc": [{"class": "a", "auc": 0.75, "x": [0, 0.5, 1], "y": [0, 1]}],
                "calibration": {"ece": 0.1, "bins": [{"from": 0.5, "to": 0.6, "count": 3, "confidence": 0.55, "accuracy": 1}]}}"#,
        )
        .unwrap();
        assert_eq!((&*found.roc[0].x, &*found.roc[0].y), (&[0.0, 0.5][..], &[0.0, 1.0][..]));
        assert_eq!(found.calibration.unwrap().bins[0].count, 3);
        assert!(found.precision_recall.is_empty());
        let found = curves(br#"{"scatter": [{"output": "value", "true": [1, 2], "predicted": [1.5]}]}"#).unwrap();
        assert_eq!((&*found.scatter[0].truth, &*found.scatter[0].predicted), (&[1.0][..], &[1.5][..]));
        assert_eq!(curves(b"{"), None);
    }
}
