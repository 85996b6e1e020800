//! What the best checkpoint predicted for each image of a split, as the trainer wrote it: a class with
//! its scores, boxes beside the true ones, or the share and overlap of each class with a mask. The
//! files belong to a user, so rows that are not as the trainer writes them are passed over.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{
    Models, Result,
    artifacts::{MAX_MEASURES_LENGTH, MAX_PREDICTIONS_LENGTH},
    outputs::{ImagePrediction, NumberPrediction, reconstructed, regressed},
};
use lyceum_model::{
    Model, User,
    records::{Record, Records},
};

use crate::files::FileContent;

/// The most columns of a table that are read: one for each class, or two.
const MAX_COLUMNS: usize = 2 * 1000 + 8;
/// The most scores of an image that are listed.
const MAX_SCORES: usize = 100;
/// The score from which a box counts as a prediction, as the trainer counts errors.
pub const SHOWN_SCORE: f64 = 0.3;
/// The longest list of images or true boxes, and the largest mask (bytes).
const MAX_TRUTH_LENGTH: u64 = 16 << 20;
const MAX_MASK_LENGTH: u64 = 16 << 20;

/// The prediction for an image. Which fields there are depends on `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelPrediction)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Prediction {
    Classification(ClassPrediction),
    Detection(BoxPrediction),
    Segmentation(MaskPrediction),
    Regression(NumberPrediction),
    Reconstruction(ImagePrediction),
}

/// The class of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelClassPrediction)]
pub struct ClassPrediction {
    /// Path in the dataset's manifest.
    pub path: String,
    /// The true class.
    pub label: String,
    pub predicted: String,
    /// Score of the predicted class.
    pub confidence: f64,
    pub loss: f64,
    /// Scores of the classes, the highest first; at most 100.
    #[serde(default)]
    pub scores: Vec<ClassScore>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelClassScore)]
pub struct ClassScore {
    pub class: String,
    pub score: f64,
}

/// The objects in an image. Places are in pixels of the resized image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelBoxPrediction)]
pub struct BoxPrediction {
    /// Path in the dataset's manifest.
    pub path: String,
    /// Number of true boxes without a predicted box of their class with a score of at least 0.3 and an `IoU` of at least 0.5.
    #[serde(default)]
    pub missed: u64,
    /// Number of predicted boxes with a score of at least 0.3 that match no true box.
    #[serde(default)]
    pub extra: u64,
    /// Predicted boxes, the highest score first.
    #[serde(default)]
    pub boxes: Vec<ScoredBox>,
    /// The true boxes.
    #[serde(default)]
    pub truth: Vec<TrueBox>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelScoredBox)]
#[serde(default)]
pub struct ScoredBox {
    pub class: String,
    pub score: f64,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    /// Whether it matches a true box of its class with an `IoU` of at least 0.5.
    pub hit: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelTrueBox)]
#[serde(default)]
pub struct TrueBox {
    pub class: String,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    /// Whether a box with a score of at least 0.3 matches it.
    pub found: bool,
}

/// The class of each pixel of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelMaskPrediction)]
pub struct MaskPrediction {
    /// Path in the dataset's manifest.
    pub path: String,
    /// Mean of the `IoU` of the classes.
    pub iou: f64,
    /// Share of the pixels whose class is right.
    #[serde(default)]
    pub accuracy: f64,
    /// Address of the predicted mask as PNG in the colours of the classes. Null if it was not stored: only the masks
    /// of the worst 200 images are.
    #[serde(default)]
    pub mask: Option<String>,
    #[serde(default)]
    pub classes: Vec<ClassShare>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelClassShare)]
#[serde(default)]
pub struct ClassShare {
    pub class: String,
    /// Share of the image that was predicted as this class.
    pub share: f64,
    /// Null if the class neither occurs nor was predicted.
    pub iou: Option<f64>,
}

impl Prediction {
    /// Returns the path in the dataset's manifest.
    pub fn path(&self) -> &str {
        match self {
            Self::Classification(one) => &one.path,
            Self::Detection(one) => &one.path,
            Self::Segmentation(one) => &one.path,
            Self::Regression(one) => &one.path,
            Self::Reconstruction(one) => &one.path,
        }
    }
}

/// A list of predictions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelPredictions)]
pub struct Predictions {
    /// Predictions, the worst first: by loss, by the number of missed and extra boxes, by `IoU`, or by error.
    pub items: Vec<Prediction>,
    /// Number of predictions that match the filter.
    pub total: usize,
}

/// Which predictions.
#[derive(Clone, Debug, Default)]
pub struct PredictionQuery {
    pub label: Option<String>,
    pub predicted: Option<String>,
    /// Only those that are wrong.
    pub wrong: bool,
    pub limit: usize,
}

impl Models {
    /// Returns the predictions for a split, the worst first; `None` before the end of the training.
    pub async fn predictions(
        &self,
        user: &User,
        model: &Model,
        split: &str,
        wanted: PredictionQuery,
    ) -> Result<Option<Predictions>> {
        let read = async |name: &str, limit: u64| self.read(user, model, &format!("eval/{split}/{name}"), limit).await;
        let mut boxes = [Vec::new(), Vec::new()];
        if model.kind == "detection" {
            // Read before the large file: what is held while another is awaited could keep both waiting.
            for (place, name) in boxes.iter_mut().zip(["images.csv", "truth.csv"]) {
                *place = read(name, MAX_TRUTH_LENGTH).await?.map(FileContent::into_bytes).unwrap_or_default();
            }
        }
        let Some(bytes) = read("predictions.csv", MAX_PREDICTIONS_LENGTH).await? else { return Ok(None) };
        let task = model.kind.clone();
        let parse = move |bytes: &[u8]| match task.as_str() {
            "detection" => detected(bytes, &boxes[0], &boxes[1], &wanted),
            "segmentation" => segmented(bytes, &wanted),
            "regression" => regressed(bytes, &wanted),
            "reconstruction" => reconstructed(bytes, &wanted),
            _ => classified(bytes, &wanted),
        };
        let found = self.files.parse(bytes, parse).await?;
        Ok(Some(found))
    }

    /// Returns what the best checkpoint got most wrong of a split, the worst first.
    pub async fn worst(&self, user: &User, model: &Model, split: &str, most: usize) -> Result<Vec<Prediction>> {
        let found = self.read(user, model, &format!("eval/{split}/worst.json"), MAX_MEASURES_LENGTH).await?;
        let mut listed = found.map(|bytes| worst(&bytes, &model.kind)).unwrap_or_default();
        listed.truncate(most);
        Ok(listed)
    }

    /// Returns a stored mask of a split: a PNG whose values are the classes; or the stored output of a reconstruction.
    pub async fn mask(&self, user: &User, model: &Model, split: &str, number: u16) -> Result<Option<Vec<u8>>> {
        let found = self.read(user, model, &format!("eval/{split}/masks/{number:03}.png"), MAX_MASK_LENGTH).await?;
        Ok(found.map(FileContent::into_bytes))
    }
}

/// Returns the mistakes of a `worst.json`; what is right is left out.
pub(super) fn worst(bytes: &[u8], task: &str) -> Vec<Prediction> {
    let rows: Vec<serde_json::Value> = serde_json::from_slice(bytes).unwrap_or_default();
    let read = |row: serde_json::Value| match task {
        "detection" => serde_json::from_value(row)
            .ok()
            .filter(|one: &BoxPrediction| one.missed + one.extra > 0)
            .map(Prediction::Detection),
        "segmentation" => serde_json::from_value(row).ok().map(Prediction::Segmentation),
        "regression" => serde_json::from_value(row).ok().map(Prediction::Regression),
        "reconstruction" => serde_json::from_value(row).ok().map(Prediction::Reconstruction),
        _ => serde_json::from_value(row)
            .ok()
            .filter(|one: &ClassPrediction| one.label != one.predicted)
            .map(Prediction::Classification),
    };
    rows.into_iter().filter_map(read).collect()
}

/// A table whose first record names its columns.
pub(super) struct Table<'a> {
    columns: Vec<String>,
    records: Records<'a>,
    record: Record,
}

impl<'a> Table<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let (mut records, mut record) = (Records::new(bytes, MAX_COLUMNS), Record::default());
        records.next(&mut record);
        Self { columns: record.fields().map(str::to_owned).collect(), records, record }
    }

    pub(super) fn next(&mut self) -> bool {
        self.records.next(&mut self.record)
    }

    pub(super) fn text(&self, column: &str) -> &str {
        self.columns.iter().position(|name| name == column).map_or("", |at| self.record.get(at))
    }

    pub(super) fn number(&self, column: &str) -> f64 {
        number(self.text(column))
    }

    /// The finite values of the columns whose names begin like this, by the rest of their names.
    fn group(&self, prefix: &str) -> Vec<(&str, f64)> {
        let named = self.columns.iter().zip(self.record.fields());
        named.filter_map(|(name, text)| Some((name.strip_prefix(prefix)?, finite(text)?))).collect()
    }
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

fn number(text: &str) -> f64 {
    finite(text).unwrap_or_default()
}

/// Keeps the numbers of the worst rows while a table is read, the worst first at the end.
pub(super) struct Worst {
    /// How bad, its path, and the number of the row.
    kept: Vec<(f64, String, usize)>,
    limit: usize,
    total: usize,
}

impl Worst {
    pub(super) fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), limit, total: 0 }
    }

    pub(super) fn take(&mut self, badness: f64, path: &str, row: usize) {
        self.total += 1;
        self.kept.push((badness, path.to_owned(), row));
        if 2 * self.limit <= self.kept.len() {
            self.sort();
        }
    }

    fn sort(&mut self) {
        self.kept.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        self.kept.truncate(self.limit);
    }

    /// The rank of each kept row.
    fn ranks(&mut self) -> HashMap<usize, usize> {
        self.sort();
        self.kept.iter().enumerate().map(|(rank, (.., row))| (*row, rank)).collect()
    }
}

/// Reads the rows that were chosen, in the order of their ranks.
pub(super) fn chosen(bytes: &[u8], mut worst: Worst, read: impl Fn(&Table<'_>) -> Prediction) -> Predictions {
    let ranks = worst.ranks();
    let (mut table, mut row) = (Table::new(bytes), 0);
    let mut found: Vec<Option<Prediction>> = vec![None; ranks.len()];
    while table.next() {
        if let Some(place) = ranks.get(&row).and_then(|rank| found.get_mut(*rank)) {
            *place = Some(read(&table));
        }
        row += 1;
    }
    Predictions { items: found.into_iter().flatten().collect(), total: worst.total }
}

fn classified(bytes: &[u8], wanted: &PredictionQuery) -> Predictions {
    let (mut records, mut record) = (Records::new(bytes, 5), Record::default());
    let (mut worst, mut row) = (Worst::new(wanted.limit), 0);
    records.next(&mut record);
    while records.next(&mut record) {
        let (label, predicted) = (record.get(1), record.get(2));
        if wanted.label.as_deref().is_none_or(|wanted| wanted == label)
            && wanted.predicted.as_deref().is_none_or(|wanted| wanted == predicted)
            && !(wanted.wrong && label == predicted)
        {
            worst.take(number(record.get(4)), record.get(0), row);
        }
        row += 1;
    }
    chosen(bytes, worst, |table| {
        let scores = table.group("p_").into_iter();
        let mut scores: Vec<ClassScore> =
            scores.map(|(class, score)| ClassScore { class: class.to_owned(), score }).collect();
        scores.sort_by(|one, other| other.score.total_cmp(&one.score));
        scores.truncate(MAX_SCORES);
        Prediction::Classification(ClassPrediction {
            path: table.text("path").to_owned(),
            label: table.text("label").to_owned(),
            predicted: table.text("predicted").to_owned(),
            confidence: table.number("confidence"),
            loss: table.number("loss"),
            scores,
        })
    })
}

/// `wrong` are images whose mean `IoU` is below one half.
fn segmented(bytes: &[u8], wanted: &PredictionQuery) -> Predictions {
    let mut table = Table::new(bytes);
    let (mut worst, mut row) = (Worst::new(wanted.limit), 0);
    while table.next() {
        let iou = table.number("iou");
        let has = |class: &Option<String>, prefix: &str| {
            class
                .as_deref()
                .is_none_or(|class| finite(table.text(&format!("{prefix}{class}"))).is_some_and(|v| v > 0.0))
        };
        // A class is in the image where it has an overlap to speak of, even of nothing.
        let is_there =
            wanted.label.as_deref().is_none_or(|class| finite(table.text(&format!("iou_{class}"))).is_some());
        if is_there && has(&wanted.predicted, "share_") && !(wanted.wrong && iou >= 0.5) {
            worst.take(-iou, table.text("path"), row);
        }
        row += 1;
    }
    chosen(bytes, worst, |table| {
        let overlaps: HashMap<&str, f64> = table.group("iou_").into_iter().collect();
        let share = |(class, share): (&str, f64)| ClassShare {
            class: class.to_owned(),
            share,
            iou: overlaps.get(class).copied(),
        };
        Prediction::Segmentation(MaskPrediction {
            path: table.text("path").to_owned(),
            iou: table.number("iou"),
            accuracy: table.number("accuracy"),
            mask: Some(table.text("mask").to_owned()).filter(|mask| !mask.is_empty()),
            classes: table.group("share_").into_iter().map(share).collect(),
        })
    })
}

fn detected(bytes: &[u8], images: &[u8], truth: &[u8], wanted: &PredictionQuery) -> Predictions {
    let fits = |table: &mut Table<'_>, class: Option<&str>, least: f64| -> Option<HashSet<String>> {
        let class = class?;
        let mut paths = HashSet::new();
        while table.next() {
            if table.text("class") == class && table.number("confidence") >= least {
                paths.insert(table.text("path").to_owned());
            }
        }
        Some(paths)
    };
    let predicted = fits(&mut Table::new(bytes), wanted.predicted.as_deref(), SHOWN_SCORE);
    // True boxes have no confidence.
    let label = fits(&mut Table::new(truth), wanted.label.as_deref(), 0.0);
    let mut worst = Worst::new(wanted.limit);
    let mut counts: HashMap<String, (u64, u64)> = HashMap::new();
    for (path, missed, extra) in pictures(bytes, images) {
        let is_in = |paths: &Option<HashSet<String>>| paths.as_ref().is_none_or(|paths| paths.contains(&path));
        if is_in(&predicted) && is_in(&label) && !(wanted.wrong && missed + extra == 0) {
            #[expect(clippy::cast_precision_loss, reason = "an image has a few boxes")]
            worst.take((missed + extra) as f64, &path, 0);
            counts.insert(path, (missed, extra));
        }
    }
    worst.sort();
    let ranks: HashMap<&str, usize> = worst.kept.iter().enumerate().map(|(at, (_, path, _))| (&**path, at)).collect();
    let empty = |(_, path, _): &(f64, String, usize)| {
        let (missed, extra) = counts.get(path).copied().unwrap_or_default();
        BoxPrediction { path: path.clone(), missed, extra, ..BoxPrediction::default() }
    };
    let mut items: Vec<BoxPrediction> = worst.kept.iter().map(empty).collect();
    let mut table = Table::new(bytes);
    while table.next() {
        if let Some(item) = ranks.get(table.text("path")).and_then(|rank| items.get_mut(*rank)) {
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|side| table.number(side));
            let (class, score) = (table.text("class").to_owned(), table.number("confidence"));
            item.boxes.push(ScoredBox { class, score, x, y, width, height, hit: table.text("hit") == "1" });
        }
    }
    let mut table = Table::new(truth);
    while table.next() {
        if let Some(item) = ranks.get(table.text("path")).and_then(|rank| items.get_mut(*rank)) {
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|side| table.number(side));
            let class = table.text("class").to_owned();
            item.truth.push(TrueBox { class, x, y, width, height, found: table.text("found") == "1" });
        }
    }
    Predictions { items: items.into_iter().map(Prediction::Detection).collect(), total: worst.total }
}

/// Returns every image with its missed and extra boxes. Models that were trained before `images.csv` was
/// written have only the images in which something was found.
fn pictures(bytes: &[u8], images: &[u8]) -> Vec<(String, u64, u64)> {
    let mut table = Table::new(images);
    let mut listed = Vec::new();
    while table.next() {
        let count = |column: &str| table.text(column).parse().unwrap_or_default();
        listed.push((table.text("path").to_owned(), count("missed"), count("extra")));
    }
    if !listed.is_empty() {
        return listed;
    }
    let mut table = Table::new(bytes);
    let mut at: HashMap<String, usize> = HashMap::new();
    while table.next() {
        let path = table.text("path");
        let place = *at.entry(path.to_owned()).or_insert(listed.len());
        if place == listed.len() {
            listed.push((path.to_owned(), 0, 0));
        }
        if table.text("hit") != "1" && table.number("confidence") >= SHOWN_SCORE {
            listed[place].2 += 1;
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(found: &Predictions) -> (String, usize) {
        (found.items.iter().map(Prediction::path).collect::<Vec<_>>().join(" "), found.total)
    }

    #[test]
    fn the_worst_classes_come_first_with_their_scores() {
        let file = b"path,label,predicted,confidence,loss,p_a,p_b\n1,a,a,0.9,0.1,0.9,0.1\n2,a,b,0.6,0.9,0.4,0.6\n\
            3,b,a,0.8,nan,1,0\n4,a,b,0.7,1.2,0.3,0.7\n";
        let of = |wanted: PredictionQuery| classified(file, &PredictionQuery { limit: 2, ..wanted });
        assert_eq!(paths(&of(PredictionQuery::default())), ("4 2".to_owned(), 4));
        let one = of(PredictionQuery {
            label: Some("a".to_owned()),
            predicted: Some("a".to_owned()),
            ..PredictionQuery::default()
        });
        assert_eq!(paths(&one), ("1".to_owned(), 1));
        assert_eq!(
            paths(&of(PredictionQuery { wrong: true, label: Some("b".to_owned()), ..PredictionQuery::default() })),
            ("3".to_owned(), 1)
        );
        let json = serde_json::to_value(&of(PredictionQuery::default()).items[0]).unwrap();
        assert_eq!(
            (&json["kind"], &json["label"], &json["loss"]),
            (&"classification".into(), &"a".into(), &1.2.into())
        );
        assert_eq!(json["scores"][0], serde_json::json!({ "class": "b", "score": 0.7 }));
    }

    const BOXES: &[u8] =
        b"path,class,x,y,width,height,confidence,hit\nb,car,1,2,3,4,0.9,1\nb,dog,5,6,7,8,0.2,0\nc,car,0,0,9,9,0.6,0\n";

    #[test]
    fn boxes_are_listed_by_image_beside_the_true_ones() {
        let truth = b"path,class,x,y,width,height,found\na,dog,1,1,2,2,0\nb,car,1,2,3,4,1\n";
        let images = b"path,missed,extra\na,1,0\nb,0,0\nc,0,1\nd,0,0\n";
        let of = |wanted: PredictionQuery| detected(BOXES, images, truth, &PredictionQuery { limit: 10, ..wanted });
        let all = of(PredictionQuery::default());
        assert_eq!(paths(&all), ("a c b d".to_owned(), 4), "an image without boxes is there too");
        let Prediction::Detection(both) = &all.items[2] else { panic!() };
        assert_eq!((both.boxes.len(), both.truth.len(), both.boxes[0].hit), (2, 1, true));
        assert_eq!((both.boxes[0].class.as_str(), both.boxes[0].x, both.boxes[0].height), ("car", 1.0, 4.0));
        assert!((both.boxes[1].score - 0.2).abs() < 1e-12 && both.truth[0].found);
        assert_eq!(paths(&of(PredictionQuery { wrong: true, ..PredictionQuery::default() })), ("a c".to_owned(), 2));
        assert_eq!(
            paths(&of(PredictionQuery { label: Some("dog".to_owned()), ..PredictionQuery::default() })),
            ("a".to_owned(), 1)
        );
    }

    #[test]
    fn boxes_of_older_models_are_listed_too() {
        let all = detected(BOXES, b"", b"", &PredictionQuery { limit: 10, ..PredictionQuery::default() });
        assert_eq!(paths(&all), ("c b".to_owned(), 2));
        let cars = detected(
            BOXES,
            b"",
            b"",
            &PredictionQuery { limit: 10, predicted: Some("dog".to_owned()), ..PredictionQuery::default() },
        );
        assert_eq!(cars.total, 0, "a score below what is shown is not a prediction");
    }

    #[test]
    fn masks_are_listed_with_shares_and_overlaps() {
        let file = b"path,iou,accuracy,mask,share_sky,share_car,iou_sky,iou_car\n1,0.9,0.95,,1,0,0.9,\n2,0.4,0.5,masks/000.png,0.7,0.3,0.6,0.2\n";
        let of = |wanted: PredictionQuery| segmented(file, &PredictionQuery { limit: 10, ..wanted });
        assert_eq!(paths(&of(PredictionQuery::default())), ("2 1".to_owned(), 2));
        assert_eq!(
            paths(&of(PredictionQuery { predicted: Some("car".to_owned()), ..PredictionQuery::default() })),
            ("2".to_owned(), 1)
        );
        assert_eq!(paths(&of(PredictionQuery { wrong: true, ..PredictionQuery::default() })), ("2".to_owned(), 1));
        let Prediction::Segmentation(one) = &of(PredictionQuery::default()).items[1] else { panic!() };
        assert_eq!((one.mask.as_deref(), one.classes[1].iou, one.classes[0].iou), (None, None, Some(0.9)));
        let old =
            segmented(b"path,iou,accuracy\n1,0.5,0.75\n", &PredictionQuery { limit: 1, ..PredictionQuery::default() });
        assert_eq!(old.total, 1);
    }

    #[test]
    fn only_mistakes_are_worst() {
        let listed = worst(
            br#"[{"path": "a", "label": "cat", "predicted": "dog", "confidence": 0.9, "loss": 3.5, "probability": 0.03},
                {"path": "b", "label": "cat", "predicted": "cat", "confidence": 0.5, "loss": 0.7},
                {"path": "c", "iou": 0.1}, 3]"#,
            "classification",
        );
        assert_eq!(listed.iter().map(Prediction::path).collect::<Vec<_>>(), ["a"]);
        let boxes = br#"[{"path": "a", "missed": 1, "extra": 0, "boxes": [{"class": "x", "score": 0.5}], "truth": []},
            {"path": "b", "missed": 0, "extra": 0}]"#;
        assert_eq!(worst(boxes, "detection").len(), 1);
        assert_eq!(worst(br#"[{"path": "a", "iou": 0.1, "mask": "masks/000.png"}]"#, "segmentation").len(), 1);
        assert!(worst(b"{}", "segmentation").is_empty());
    }
}
