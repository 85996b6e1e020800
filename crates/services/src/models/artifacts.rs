//! What a training leaves, read as whoever looks: its snapshots, what the best of them says of
//! pictures that it was not trained on, and the answers to pictures that it was asked about. The
//! files are somebody's, so that nothing in them is believed: sizes are bounded, names are plain,
//! and what is not as the trainer writes it is passed over.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Models, Result};
use lyceum_model::{
    Model, User,
    files::RawPath,
    records::{Record, Records},
};

use crate::files::FileContent;

/// The longest files that are looked at (bytes).
pub(super) const MAX_INDEX_LENGTH: u64 = 4 << 20;
pub(super) const MAX_MEASURES_LENGTH: u64 = 8 << 20;
pub(super) const MAX_PREDICTIONS_LENGTH: u64 = 64 << 20;
/// The longest reason of a failure (characters).
const MAX_REASON_LENGTH: usize = 4000;
/// The most classes whose confusion is a table.
const MAX_CLASSES: usize = 1000;
/// The splits that are measured, in the trainer's words.
pub const SPLITS: [&str; 2] = ["val", "test"];

/// The checkpoints of a training: `checkpoints/index.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelSnapshots)]
#[serde(default)]
pub struct Snapshots {
    /// The metric that selects the best checkpoint: `accuracy`, `iou`, `map50`, `map50_95` or `loss`.
    pub metric: String,
    /// File of the best checkpoint. The bundle is exported from it.
    pub best: Option<String>,
    pub best_value: Option<f64>,
    pub snapshots: Vec<Snapshot>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ModelSnapshot)]
#[serde(default)]
pub struct Snapshot {
    /// File below `checkpoints` in the model's directory.
    pub file: String,
    /// Number of completed epochs.
    pub epoch: u64,
    pub step: u64,
    /// Metrics on the validation split; null for a checkpoint within an epoch.
    pub metrics: Option<BTreeMap<String, f64>>,
}

/// Evaluation of the best checkpoint on a split: `eval/SPLIT/`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelEvaluation)]
pub struct Evaluation {
    pub split: String,
    pub metrics: BTreeMap<String, f64>,
    pub classes: Vec<ClassMeasures>,
    /// Confusion matrix: images of a classification, pixels of a segmentation, boxes of a detection with `background`
    /// as the last class. Null if it does not exist or is too large.
    pub confusion: Option<Confusion>,
}

/// Metrics of a class, depending on the task: precision, recall, F1, `IoU`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelClassMeasures)]
pub struct ClassMeasures {
    pub class: String,
    /// A value is null if it is undefined: the class does not occur, or was never predicted.
    pub measures: BTreeMap<String, Option<f64>>,
}

/// A confusion matrix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelConfusion)]
pub struct Confusion {
    pub classes: Vec<String>,
    /// Number of images, pixels or boxes: a row for each true class, a column for each predicted class.
    pub counts: Vec<Vec<u64>>,
}

/// What a model says of a picture, as the trainer wrote it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub prediction: Option<Value>,
    pub inspection: Option<Value>,
}

impl Models {
    /// Its snapshots; nothing before there is one.
    pub async fn snapshots(&self, user: &User, model: &Model) -> Result<Option<Snapshots>> {
        let found = self.read(user, model, "checkpoints/index.json", MAX_INDEX_LENGTH).await?;
        Ok(found.and_then(|bytes| snapshots(&bytes)))
    }

    /// What the best snapshot says of pictures that it was not trained on; nothing before the end.
    pub async fn evaluation(&self, user: &User, model: &Model, split: &str) -> Result<Option<Evaluation>> {
        if model.directory.is_empty() {
            return Ok(None);
        }
        self.evaluation_in(user, &Path::new(&model.directory).join("eval").join(split), split).await
    }

    pub(super) async fn evaluation_in(&self, user: &User, folder: &Path, split: &str) -> Result<Option<Evaluation>> {
        let measures = self.read_in(user, folder, "metrics.json", MAX_MEASURES_LENGTH).await?;
        let Some((metrics, classes)) = measures.and_then(|bytes| measured(&bytes)) else { return Ok(None) };
        let confusion = self.read_in(user, folder, "confusion.csv", MAX_MEASURES_LENGTH).await?;
        let confusion = match confusion {
            Some(bytes) => self.files.parse(bytes, confused).await?,
            None => None,
        };
        Ok(Some(Evaluation { split: split.to_owned(), metrics, classes, confusion }))
    }

    /// Whether the bundle is there: the last file that is written to it.
    pub async fn has_bundle(&self, user: &User, model: &Model) -> Result<bool> {
        Ok(self.read(user, model, "bundle/SHA256SUMS", MAX_INDEX_LENGTH).await?.is_some())
    }

    pub(super) async fn read(&self, user: &User, model: &Model, name: &str, limit: u64) -> Result<Option<FileContent>> {
        if model.directory.is_empty() {
            return Ok(None);
        }
        self.read_in(user, Path::new(&model.directory), name, limit).await
    }

    pub(super) async fn read_in(
        &self,
        user: &User,
        folder: &Path,
        name: &str,
        limit: u64,
    ) -> Result<Option<FileContent>> {
        let path = RawPath::from(folder.join(name).as_path());
        Ok(match Path::new(name).extension() {
            Some(end) if end == "json" => self.files.read_json(user, &path, limit).await?,
            _ => self.files.read_whole(user, &path, limit).await?,
        })
    }

    pub(super) async fn delete_files(&self, user: &User, model: &Model) -> Result<()> {
        use lyceum_wire::protocol::files_agent::Fault;

        use crate::files::Error;
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
    let (mut records, mut record) = (Records::new(bytes, MAX_CLASSES + 1), Record::default());
    if !records.next(&mut record) || !(2..=MAX_CLASSES + 1).contains(&record.width()) {
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

/// Returns the last error of the trainer: `trainer: FIELD: MESSAGE`, with the indented lines that follow.
pub(super) fn last_words(log: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().map(|line| line.trim_end_matches('\r')).collect();
    let at = lines.iter().rposition(|line| line.trim_start().starts_with("trainer: "))?;
    let first = lines[at].trim_start().trim_start_matches("trainer: ");
    let rest = lines[at + 1..].iter().map_while(|line| line.strip_prefix("  "));
    let whole = std::iter::once(first).chain(rest).collect::<Vec<_>>().join("\n");
    Some(whole.chars().filter(|letter| !letter.is_control() || *letter == '\n').take(MAX_REASON_LENGTH).collect())
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
    fn the_last_words_of_a_trainer() {
        let log = b"{}\ntrainer: epochs: must be at least 1\nTraceback\n";
        assert_eq!(last_words(log).unwrap(), "epochs: must be at least 1");
        assert_eq!(last_words(b"Killed\n"), None);
        let log = b"trainer: network.file: line 3: ValueError: bad\n  Arguments received:\n    x=1\n{}\n";
        assert_eq!(last_words(log).unwrap(), "network.file: line 3: ValueError: bad\nArguments received:\n  x=1");
    }
}
