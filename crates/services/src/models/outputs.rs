//! Predictions that are values instead of classes: the numbers of a regression, and the images that a
//! reconstruction made. Read as the others are, the largest errors first.

use serde::{Deserialize, Serialize};

use super::predictions::{Prediction, PredictionQuery, Predictions, Table, Worst, chosen};

/// A number that was predicted for an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelNumberPrediction)]
pub struct NumberPrediction {
    /// Path in the dataset's manifest.
    pub path: String,
    /// Name of the output.
    pub output: String,
    /// True value.
    #[serde(rename = "true")]
    pub truth: f64,
    /// Predicted value.
    pub predicted: f64,
    /// Absolute difference between the predicted and the true value.
    pub error: f64,
}

/// The image that a network made of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelImagePrediction)]
pub struct ImagePrediction {
    /// Path in the dataset's manifest.
    pub path: String,
    /// Mean squared error of values from 0 to 1.
    pub mse: f64,
    /// Peak signal-to-noise ratio in dB.
    pub psnr: f64,
    /// Address of the output as PNG. Null if it was not stored: only the outputs of the worst 200 images are.
    #[serde(default)]
    pub image: Option<String>,
}

/// A row for each output of each image. No class is asked for, and nothing is merely wrong.
pub(super) fn regressed(bytes: &[u8], wanted: &PredictionQuery) -> Predictions {
    by_error(bytes, wanted, "error", |table| {
        Prediction::Regression(NumberPrediction {
            path: table.text("path").to_owned(),
            output: table.text("output").to_owned(),
            truth: table.number("true"),
            predicted: table.number("predicted"),
            error: table.number("error"),
        })
    })
}

pub(super) fn reconstructed(bytes: &[u8], wanted: &PredictionQuery) -> Predictions {
    by_error(bytes, wanted, "mse", |table| {
        Prediction::Reconstruction(ImagePrediction {
            path: table.text("path").to_owned(),
            mse: table.number("mse"),
            psnr: table.number("psnr"),
            image: Some(table.text("image").to_owned()).filter(|image| !image.is_empty()),
        })
    })
}

/// The rows with the largest values in a column.
fn by_error(
    bytes: &[u8],
    wanted: &PredictionQuery,
    column: &str,
    read: impl Fn(&Table<'_>) -> Prediction,
) -> Predictions {
    let mut table = Table::new(bytes);
    let (mut worst, mut row) = (Worst::new(wanted.limit), 0);
    while table.next() {
        worst.take(table.number(column), table.text("path"), row);
        row += 1;
    }
    chosen(bytes, worst, read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::predictions::worst;

    fn paths(found: &Predictions) -> (String, usize) {
        (found.items.iter().map(Prediction::path).collect::<Vec<_>>().join(" "), found.total)
    }

    #[test]
    fn numbers_and_images_are_listed_by_their_error() {
        let wanted = PredictionQuery { limit: 2, ..PredictionQuery::default() };
        let file = b"path,output,true,predicted,error\na,x,1,1.5,0.5\nb,x,1,3,2\nc,x,4,4,0\n";
        let found = regressed(file, &wanted);
        assert_eq!(paths(&found), ("b a".to_owned(), 3));
        let json = serde_json::to_value(&found.items[0]).unwrap();
        assert_eq!(json["kind"], "regression");
        assert_eq!((&json["true"], &json["predicted"], &json["output"]), (&1.0.into(), &3.0.into(), &"x".into()));
        let file = b"path,mse,psnr,image\na,0.01,20,\nb,0.1,10,masks/000.png\n";
        let found = reconstructed(file, &wanted);
        assert_eq!(paths(&found), ("b a".to_owned(), 2));
        let Prediction::Reconstruction(one) = &found.items[0] else { panic!() };
        assert_eq!(one.image.as_deref(), Some("masks/000.png"));
        let listed =
            worst(br#"[{"path": "a", "output": "x", "true": 1, "predicted": 2, "error": 1}, 3]"#, "regression");
        assert_eq!(listed.len(), 1);
    }
}
