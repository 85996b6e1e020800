//! What a training leaves, read as whoever looks: its snapshots, what the best of them says of
//! pictures that it was not trained on, and the answers to pictures that it was asked about. The
//! files are somebody's, so that nothing in them is believed: sizes are bounded, names are plain,
//! and what is not as the trainer writes it is passed over.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Models, Result};
use crate::{
    files::Whole,
    model::{
        Model, User,
        files::RawPath,
        records::{Record, Records},
        trained::{ModelState, Trained},
    },
};

/// The longest files that are looked at (bytes).
pub(super) const LONGEST_INDEX: u64 = 4 << 20;
pub(super) const LONGEST_MEASURES: u64 = 8 << 20;
pub(super) const LONGEST_PREDICTIONS: u64 = 64 << 20;
/// The most classes whose confusion is a table.
const MOST_CLASSES: usize = 1000;
/// The splits that are measured, in the trainer's words.
pub const SPLITS: [&str; 2] = ["val", "test"];

/// The snapshots of a training: `checkpoints/index.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelSnapshots)]
#[serde(default)]
pub struct Snapshots {
    /// What decides which is the best: `accuracy`, `iou`, `map50` or `loss`.
    pub metric: String,
    /// The file of the best one; the bundle is made of it.
    pub best: Option<String>,
    pub best_value: Option<f64>,
    pub snapshots: Vec<Snapshot>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelSnapshot)]
#[serde(default)]
pub struct Snapshot {
    /// Below `checkpoints` in the model's directory.
    pub file: String,
    /// How many epochs were over.
    pub epoch: u64,
    pub step: u64,
    /// On validation; null for one that was made in the middle of an epoch.
    pub metrics: Option<BTreeMap<String, f64>>,
}

/// What the best snapshot says of a split: `eval/SPLIT/`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelEvaluation)]
pub struct Evaluation {
    pub split: String,
    pub metrics: BTreeMap<String, f64>,
    pub classes: Vec<ClassMeasures>,
    /// Classification, and segmentation in pixels; null where there is none or it is too large.
    pub confusion: Option<Confusion>,
}

/// The measures of a class: precision, recall, F1, `IoU`, whatever the task has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelClassMeasures)]
pub struct ClassMeasures {
    pub class: String,
    /// Null where it cannot be said: nothing of it there, or never answered.
    pub measures: BTreeMap<String, Option<f64>>,
}

/// How often a class was taken for another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelConfusion)]
pub struct Confusion {
    pub classes: Vec<String>,
    /// A row for each class as it is, a column for each answer.
    pub counts: Vec<Vec<u64>>,
}

/// A picture with what it is and what was answered.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelPrediction)]
pub struct Prediction {
    /// As the dataset's manifest calls it.
    pub path: String,
    pub label: String,
    pub predicted: String,
    pub confidence: f64,
    pub loss: f64,
}

/// A part of the predictions.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelPredictions)]
pub struct Predictions {
    /// What was judged worst first.
    pub items: Vec<Prediction>,
    /// How many there are of these.
    pub total: usize,
}

/// Which predictions.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub label: Option<String>,
    pub predicted: Option<String>,
    /// Only those that are wrong.
    pub wrong: bool,
    pub limit: usize,
}

/// What a model says of a picture, as the trainer wrote it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub prediction: Option<Value>,
    pub inspection: Option<Value>,
}

impl Trained {
    pub(super) fn without_snapshots(state: ModelState, detail: String, attempt: i64) -> Self {
        Self { state, detail, attempt, metric: String::new(), best: None, snapshots: 0, speed: None }
    }
}

impl Models {
    /// Its snapshots; nothing before there is one.
    pub async fn snapshots(&self, user: &User, model: &Model) -> Result<Option<Snapshots>> {
        let found = self.read(user, model, "checkpoints/index.json", LONGEST_INDEX).await?;
        Ok(found.and_then(|bytes| snapshots(&bytes)))
    }

    /// What the best snapshot says of pictures that it was not trained on; nothing before the end.
    pub async fn evaluation(&self, user: &User, model: &Model, split: &str) -> Result<Option<Evaluation>> {
        let measures = self.read(user, model, &format!("eval/{split}/metrics.json"), LONGEST_MEASURES).await?;
        let Some((metrics, classes)) = measures.and_then(|bytes| measured(&bytes)) else { return Ok(None) };
        let confusion = self.read(user, model, &format!("eval/{split}/confusion.csv"), LONGEST_MEASURES).await?;
        let confusion = match confusion {
            Some(bytes) => self.files.parse(bytes, confused).await?,
            None => None,
        };
        Ok(Some(Evaluation { split: split.to_owned(), metrics, classes, confusion }))
    }

    /// Pictures with what was answered, the worst first.
    pub async fn predictions(
        &self,
        user: &User,
        model: &Model,
        split: &str,
        wanted: Wanted,
    ) -> Result<Option<Predictions>> {
        let found = self.read(user, model, &format!("eval/{split}/predictions.csv"), LONGEST_PREDICTIONS).await?;
        let Some(bytes) = found else { return Ok(None) };
        Ok(Some(self.files.parse(bytes, move |bytes| predictions(bytes, &wanted)).await?))
    }

    /// Whether the bundle is there: the last file that is written to it.
    pub async fn has_bundle(&self, user: &User, model: &Model) -> Result<bool> {
        Ok(self.read(user, model, "bundle/SHA256SUMS", LONGEST_INDEX).await?.is_some())
    }

    pub(super) async fn read(&self, user: &User, model: &Model, name: &str, limit: u64) -> Result<Option<Whole>> {
        if model.directory.is_empty() {
            return Ok(None);
        }
        let path = RawPath::from(Path::new(&model.directory).join(name).as_path());
        Ok(match Path::new(name).extension() {
            Some(end) if end == "json" => self.files.read_json(user, &path, limit).await?,
            _ => self.files.read_whole(user, &path, limit).await?,
        })
    }

    pub(super) async fn delete_files(&self, user: &User, model: &Model) -> Result<()> {
        use crate::{files::Error, protocol::files_agent::Fault};
        match self.files.delete(user, &RawPath::from(model.directory.as_str()), true).await {
            Ok(_) | Err(Error::Fault { fault: Fault::NotFound, .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn snapshots(bytes: &[u8]) -> Option<Snapshots> {
    let mut found: Snapshots = serde_json::from_slice(bytes).ok()?;
    let plain = |name: &str| {
        name.strip_suffix(".keras").is_some()
            && name.len() < 200
            && !name.starts_with('.')
            && !name.contains(['/', '\0'])
    };
    found.snapshots.retain(|one| plain(&one.file));
    found.best = found.best.filter(|best| plain(best));
    found.metric.truncate(found.metric.floor_char_boundary(64));
    Some(found)
}

type Measures = (BTreeMap<String, f64>, Vec<ClassMeasures>);

/// Numbers that stand for themselves, and those of each class.
fn measured(bytes: &[u8]) -> Option<Measures> {
    let Value::Object(fields) = serde_json::from_slice(bytes).ok()? else { return None };
    let metrics = fields.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
    let of_class = |one: &Value| {
        let fields = one.as_object()?;
        let class = fields.get("class")?.as_str()?.to_owned();
        let numbers = fields.iter().filter(|(_, value)| value.is_number() || value.is_null());
        Some(ClassMeasures { class, measures: numbers.map(|(name, value)| (name.clone(), value.as_f64())).collect() })
    };
    let classes = fields.get("classes").and_then(Value::as_array);
    Some((metrics, classes.into_iter().flatten().filter_map(of_class).collect()))
}

fn confused(bytes: &[u8]) -> Option<Confusion> {
    let (mut records, mut record) = (Records::new(bytes, MOST_CLASSES + 1), Record::default());
    if !records.next(&mut record) || !(2..=MOST_CLASSES + 1).contains(&record.width()) {
        return None;
    }
    let classes: Vec<String> = record.fields().skip(1).map(str::to_owned).collect();
    let mut counts = Vec::new();
    while counts.len() <= classes.len() && records.next(&mut record) {
        if record.width() != classes.len() + 1 {
            return None;
        }
        counts.push(record.fields().skip(1).map(|cell| cell.parse().unwrap_or_default()).collect());
    }
    (counts.len() == classes.len()).then_some(Confusion { classes, counts })
}

/// Of all rows only so many are held as are wanted.
fn predictions(bytes: &[u8], wanted: &Wanted) -> Predictions {
    let mut found: Vec<Prediction> = Vec::new();
    let keep = |found: &mut Vec<Prediction>| {
        found.sort_by(|one, other| other.loss.total_cmp(&one.loss).then_with(|| one.path.cmp(&other.path)));
        found.truncate(wanted.limit);
    };
    let (mut records, mut record) = (Records::new(bytes, 5), Record::default());
    let mut total = 0;
    // The first names the columns.
    records.next(&mut record);
    while records.next(&mut record) {
        let text = |at: usize| record.get(at);
        let number = |at: usize| text(at).parse::<f64>().ok().filter(|number| number.is_finite()).unwrap_or_default();
        let fits = wanted.label.as_deref().is_none_or(|label| label == text(1))
            && wanted.predicted.as_deref().is_none_or(|predicted| predicted == text(2))
            && !(wanted.wrong && text(1) == text(2));
        if fits {
            total += 1;
            found.push(Prediction {
                path: text(0).to_owned(),
                label: text(1).to_owned(),
                predicted: text(2).to_owned(),
                confidence: number(3),
                loss: number(4),
            });
            if 2 * wanted.limit <= found.len() {
                keep(&mut found);
            }
        }
    }
    keep(&mut found);
    Predictions { items: found, total }
}

/// What the trainer said last of what went wrong: `trainer: FIELD: MESSAGE`.
pub(super) fn last_words(log: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(log);
    let line = text.lines().rev().find_map(|line| line.trim().strip_prefix("trainer: "))?;
    let short: String = line.chars().filter(|letter| !letter.is_control()).take(500).collect();
    Some(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_names_plain_files_only() {
        let index = br#"{"metric": "accuracy", "best": "../x", "best_value": 0.5, "waited": 3, "identity": {},
            "snapshots": [{"file": "epoch-00001.keras", "epoch": 1, "step": 9, "metrics": {"loss": 1.5}, "sums": {}},
                {"file": "/etc/passwd"}, {"file": ".hidden"}, {"file": "old.h5"}, {"epoch": 2}, {"file": "step-1.keras", "metrics": null}]}"#;
        let found = snapshots(index).unwrap();
        let files: Vec<&str> = found.snapshots.iter().map(|one| one.file.as_str()).collect();
        assert_eq!((files, found.best, found.best_value), (vec!["epoch-00001.keras", "step-1.keras"], None, Some(0.5)));
        assert_eq!(snapshots(b"[1]"), None);
    }

    #[test]
    fn measures_of_any_task() {
        let text = br#"{"pictures": 4, "accuracy": 0.75, "note": "x",
            "classes": [{"class": "cat", "precision": null, "f1": 0.5, "x": "y"}, {"f1": 1}, 3]}"#;
        let (metrics, classes) = measured(text).unwrap();
        assert_eq!(metrics, [("accuracy".to_owned(), 0.75), ("pictures".to_owned(), 4.0)].into());
        assert_eq!(classes.len(), 1);
        assert_eq!(classes[0].measures, [("f1".to_owned(), Some(0.5)), ("precision".to_owned(), None)].into());
        assert!(measured(b"{").is_none());
    }

    #[test]
    fn a_confusion_is_square_or_nothing() {
        let found = confused(b"label,cat,dog\ncat,3,1\ndog,0,4\n").unwrap();
        assert_eq!(
            (found.classes, found.counts),
            (vec!["cat".to_owned(), "dog".to_owned()], vec![vec![3, 1], vec![0, 4]])
        );
        for bad in [&b"label,cat,dog\ncat,3,1\n"[..], b"label,cat,dog\ncat,3\ndog,1\n", b"", b"label\n"] {
            assert_eq!(confused(bad), None);
        }
    }

    #[test]
    fn predictions_are_chosen_and_the_worst_come_first() {
        let file = b"path,label,predicted,confidence,loss,p_a,p_b\n1,a,a,0.9,0.1,0.9,0.1\n2,a,b,0.6,0.9,0.4,0.6\n\
            3,b,a,0.8,nan,1,0\n4,a,b,0.7,1.2,0.3,0.7\n";
        let paths = |wanted: Wanted| {
            let found = predictions(file, &Wanted { limit: 2, ..wanted });
            (found.items.into_iter().map(|one| one.path).collect::<Vec<_>>().join(" "), found.total)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(paths(Wanted::default()), ("4 2".to_owned(), 4));
        assert_eq!(paths(Wanted { label: some("a"), predicted: some("a"), ..Wanted::default() }), ("1".to_owned(), 1));
        assert_eq!(paths(Wanted { wrong: true, label: some("b"), ..Wanted::default() }), ("3".to_owned(), 1));
    }

    #[test]
    fn the_last_words_of_a_trainer() {
        let log = b"{}\ntrainer: epochs: must be at least 1\nTraceback\n";
        assert_eq!(last_words(log).unwrap(), "epochs: must be at least 1");
        assert_eq!(last_words(b"Killed\n"), None);
    }
}
