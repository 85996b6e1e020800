//! `/models`: the list, the form of a training, and one model with its measures. A heat map is a
//! table whose cells are links and have one of ten classes of colour, because the content policy knows no styles.

use std::collections::BTreeMap;

use askama::Template;
use serde_json::Value;

use super::{FieldError, LayerTable, LineageRows, Moment, PrecisionsPart, ScalingTable};
use crate::{
    model::{Model, ModelId, UserId, trained::ModelState},
    models::{self, Confusion, Evaluation, Snapshots, schema},
    web::{
        href::href,
        models::form::{FIELDS, GOES_ON, OWN_NETWORK, of_policy},
        page::{Layout, filters},
    },
};

/// Up to so many classes the whole confusion is drawn.
const LARGEST_MAP: usize = 40;
/// Of more classes, what was confused most often.
const WORST_PAIRS: usize = 20;

/// `/models`
#[derive(Debug, Template)]
#[template(path = "models/list.html")]
pub struct ModelsPage {
    pub layout: Layout,
    pub notice: Option<String>,
    pub search: String,
    pub rows: Vec<ModelRow>,
    pub first_href: Option<String>,
    pub next_href: Option<String>,
}

/// One line of the list.
#[derive(Clone, Debug)]
pub struct ModelRow {
    pub id: String,
    pub name: String,
    pub kind: String,
    pub network: String,
    /// Nothing where it is the reader's own.
    pub owner: Option<String>,
    pub state: ModelState,
    pub job: Option<String>,
    /// `accuracy 0.987`; empty before there is one.
    pub best: String,
    pub snapshots: i64,
    pub created: Moment,
}

impl ModelRow {
    pub fn new(one: &Model, created: Moment, reader: UserId) -> Self {
        Self {
            id: one.id.to_string(),
            name: one.name.clone(),
            kind: one.kind.clone(),
            network: one.network.clone(),
            owner: (one.owner != reader).then(|| one.owner_name.clone()),
            state: one.state,
            job: one.job.map(|job| job.to_string()),
            best: one.best.map(|best| format!("{} {best:.4}", one.metric)).unwrap_or_default(),
            snapshots: one.snapshots,
            created,
        }
    }

    pub fn is_own(&self) -> bool {
        self.owner.is_none()
    }

    pub fn is_training(&self) -> bool {
        self.state == ModelState::Training
    }

    /// The class of its badge in the stylesheet.
    pub fn class(&self) -> &'static str {
        match self.state {
            ModelState::Training => "starting",
            ModelState::Trained => "running",
            ModelState::Failed => "failed",
            ModelState::Stopped => "ended",
        }
    }
}

/// `/models/new`. Posts to `/models`.
#[derive(Debug, Template)]
#[template(path = "models/new.html")]
pub struct NewModelPage {
    pub layout: Layout,
    /// Its id and name.
    pub dataset: (String, String),
    pub kind: String,
    /// Names and titles.
    pub environments: Vec<(String, String)>,
    pub groups: Vec<String>,
    /// Several machines may train together.
    pub on_cluster: bool,
    pub form: ModelForm,
    pub errors: Vec<FieldError>,
}

impl NewModelPage {
    /// The fault of a field, whatever the API calls it.
    pub fn error(&self, name: &str) -> Option<&str> {
        let here = |field: &str| {
            field.strip_prefix("config.").unwrap_or(field) == name || field == format!("resources.{name}")
        };
        self.errors.iter().find(|error| here(&error.field)).map(|error| error.message.as_str())
    }

    pub fn is(&self, field: &str, value: &str) -> bool {
        self.form.value(field) == value
    }

    /// Those by name, a program of one's own, and a model to go on from.
    pub fn networks(&self) -> Vec<(&'static str, &'static str)> {
        let others = [(OWN_NETWORK, "my own, in Python"), (GOES_ON, "a trained model, to go on from")];
        models::networks(&self.kind).into_iter().map(|name| (name, name)).chain(others).collect()
    }

    /// What stands in the program's place: what was typed, or one to begin with.
    pub fn program(&self) -> &str {
        let typed = self.form.program.as_str();
        if typed.is_empty() { models::program::example(&self.kind) } else { typed }
    }

    /// What a field may be.
    pub fn words(field: &str) -> Vec<&'static str> {
        schema::words(field)
    }

    /// Which policies a field of the learning rate belongs to.
    pub fn policies(field: &str) -> &'static str {
        of_policy(field)
    }

    /// The fields of policies, with what they are called and what they are if nothing is said.
    pub fn policy_fields() -> [(&'static str, &'static str, &'static str); 8] {
        [
            ("learning_rate.gamma", "Gamma", "the factor; empty: what the policy usually has"),
            ("learning_rate.step", "Step", "percent of the training"),
            ("learning_rate.steps", "Steps", "percents, with commas between them"),
            ("learning_rate.power", "Power", "empty: what the policy usually has"),
            ("learning_rate.start", "Start", "share of the base rate"),
            ("learning_rate.peak", "Peak at", "percent of the training"),
            ("learning_rate.end", "End", "share of the base rate"),
            ("learning_rate.warm_up", "Warm-up", "percent of the training"),
        ]
    }

    /// What may be done to the pictures at random.
    pub fn augmentations() -> [(&'static str, &'static str, &'static str); 6] {
        [
            ("augmentation.shift", "Shift", "up to this share of the size"),
            ("augmentation.rotate", "Turn", "up to so many degrees"),
            ("augmentation.zoom", "Zoom", "up to this share"),
            ("augmentation.brightness", "Brightness", "up to this share of the range"),
            ("augmentation.contrast", "Contrast", "by up to this share"),
            ("augmentation.noise", "Noise", "deviation, a share of the range"),
        ]
    }

    /// Whether pictures may be turned: a turned box is no box.
    pub fn turns(&self, field: &str) -> bool {
        field != "augmentation.rotate" || self.kind != "detection"
    }
}

/// What was typed.
#[derive(Clone, Debug, Default)]
pub struct ModelForm {
    pub idempotency_key: String,
    pub name: String,
    /// In the order of [`FIELDS`].
    pub values: Vec<String>,
    /// A network of one's own, in Python.
    pub program: String,
    pub environment: String,
    pub group: String,
    pub cpus: String,
    pub memory: String,
    pub gpus: String,
    /// Empty: one.
    pub nodes: String,
    /// Empty: what is usual.
    pub hours: String,
}

impl ModelForm {
    /// What the trainer does where nothing is said, but for what is usual for a first try.
    pub fn usual(idempotency_key: String, name: String) -> Self {
        let text = str::to_owned;
        let mut form = Self {
            idempotency_key,
            name,
            values: vec![String::new(); FIELDS.len()],
            program: String::new(),
            environment: text("default"),
            group: String::new(),
            cpus: text("2"),
            memory: text("4"),
            gpus: text("0"),
            nodes: String::new(),
            hours: String::new(),
        };
        for field in FIELDS {
            let usual = match schema::rule(field).map(|rule| &rule["default"]) {
                Some(Value::String(word)) => word.clone(),
                Some(Value::Number(number)) if number.as_f64() != Some(0.0) => number.to_string(),
                _ => String::new(),
            };
            form.set(field, usual);
        }
        for (field, value) in [
            ("optimizer.name", "adam"),
            ("learning_rate.base", "0.001"),
            ("learning_rate.policy", "cosine"),
            ("learning_rate.warm_up", "5"),
            ("epochs", "20"),
        ] {
            form.set(field, text(value));
        }
        form
    }

    pub fn read(get: impl Fn(&str) -> String) -> Self {
        Self {
            idempotency_key: get("idempotency_key"),
            name: get("name"),
            values: FIELDS.iter().map(|field| get(field)).collect(),
            program: get("program"),
            environment: get("environment"),
            group: get("group"),
            cpus: get("cpus"),
            memory: get("memory"),
            gpus: get("gpus"),
            nodes: get("nodes"),
            hours: get("hours"),
        }
    }

    /// What stands in a field of the configuration.
    pub fn value(&self, field: &str) -> &str {
        let at = FIELDS.iter().position(|known| *known == field);
        at.and_then(|at| self.values.get(at)).map_or("", String::as_str)
    }

    pub fn set(&mut self, field: &str, value: String) {
        if let Some(place) = FIELDS.iter().position(|known| *known == field).and_then(|at| self.values.get_mut(at)) {
            *place = value;
        }
    }
}

/// `/models/{id}`
#[derive(Debug, Template)]
#[template(path = "models/show.html")]
pub struct ModelPage {
    pub layout: Layout,
    pub row: ModelRow,
    /// Id and name; nothing where it is gone or not shown.
    pub dataset: Option<(String, String)>,
    pub facts: Vec<(&'static str, String)>,
    /// The configuration as JSON.
    pub config: String,
    /// Where the form of another training begins with all that this one was.
    pub like_href: Option<String>,
    pub directory: String,
    pub files_href: String,
    pub bundle_href: Option<String>,
    pub detail: String,
    pub notes: String,
    pub visibility: &'static str,
    pub lineage: LineageRows,
    pub scaling: Option<ScalingTable>,
    /// What it got most wrong of validation.
    pub worst: Vec<PredictionCard>,
    /// Why its directory cannot be shown.
    pub unreachable: Option<String>,
    pub inside: ModelInside,
    pub tests: Vec<TestRow>,
    /// What was typed for a picture, and what is wrong with it.
    pub picture: String,
    pub errors: Vec<FieldError>,
}

impl ModelPage {
    pub fn is_visibility(&self, value: &str) -> bool {
        self.visibility == value
    }

    pub fn is_best(&self, file: &str) -> bool {
        self.inside.snapshots.best.as_deref() == Some(file)
    }

    pub fn error(&self, name: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == name).map(|error| error.message.as_str())
    }

    /// Every metric that a snapshot has.
    pub fn metrics(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in
            self.inside.snapshots.snapshots.iter().flat_map(|one| &one.metrics).flat_map(|metrics| metrics.keys())
        {
            if !names.contains(&name.as_str()) && names.len() < 8 {
                names.push(name);
            }
        }
        names
    }

    /// Where a session begins that answers pictures; nothing before there is a snapshot.
    pub fn serve_href(&self) -> Option<String> {
        let place = self.directory.as_str();
        self.inside.snapshots.best.as_ref()?;
        Some(href("/sessions/new", [("app", "model"), ("log_directory", place)]))
    }

    /// Where a training goes on from a snapshot.
    pub fn tune_href(&self, file: &str) -> Option<String> {
        let (dataset, _) = self.dataset.as_ref()?;
        let path = format!("{}/checkpoints/{file}", self.directory);
        Some(href("/models/new", [("dataset", dataset.as_str()), ("pretrained", &path)]))
    }
}

/// What a training has left.
#[derive(Clone, Debug, Default)]
pub struct ModelInside {
    pub snapshots: Snapshots,
    pub splits: Vec<MeasuredSplit>,
    pub has_bundle: bool,
    pub layers: Option<LayerTable>,
    /// Nothing before there is a snapshot.
    pub precisions: Option<PrecisionsPart>,
    /// Of a network of its owner's own.
    pub program: Option<String>,
}

/// What the best snapshot says of a split.
#[derive(Clone, Debug)]
pub struct MeasuredSplit {
    pub word: &'static str,
    pub metrics: Vec<(String, String)>,
    /// The names of the measures, and a row for each class.
    pub columns: Vec<String>,
    pub classes: Vec<(String, Vec<String>)>,
    pub map: Option<HeatMap>,
    /// What was confused most often: truth, answer, how often, where the pictures are.
    pub pairs: Vec<(String, String, u64, Option<String>)>,
    pub wrong_href: Option<String>,
    /// Where to ask what would be answered from which confidence on.
    pub thresholds: Option<String>,
}

#[derive(Clone, Debug)]
pub struct HeatMap {
    pub classes: Vec<String>,
    pub rows: Vec<(String, Vec<HeatCell>)>,
}

#[derive(Clone, Debug)]
pub struct HeatCell {
    pub count: u64,
    /// From 0 to 9: which share of its row.
    pub heat: u64,
    pub is_right: bool,
    pub says: String,
    pub href: Option<String>,
}

impl MeasuredSplit {
    pub fn new(model: ModelId, found: &Evaluation) -> Self {
        // Counts are whole, shares of one are not, not even when they are all of it.
        let number = |name: &str, value: f64| {
            if matches!(name, "pictures" | "pixels" | "boxes") { format!("{value:.0}") } else { format!("{value:.4}") }
        };
        let mut columns: Vec<String> = Vec::new();
        for name in found.classes.iter().flat_map(|one| one.measures.keys()) {
            if !columns.contains(name) && columns.len() < 8 {
                columns.push(name.clone());
            }
        }
        let place = |name: &String| ["pictures", "precision", "recall", "f1"].iter().position(|known| known == name);
        columns.sort_by_key(|name| place(name).unwrap_or(usize::MAX));
        let measure = |name: &String, one: &BTreeMap<String, Option<f64>>| {
            one.get(name).copied().flatten().map_or_else(|| "–".to_owned(), |value| number(name, value))
        };
        let classes = found.classes.iter().map(|one| {
            let row = columns.iter().map(|name| measure(name, &one.measures)).collect();
            (one.class.clone(), row)
        });
        let classes = classes.collect();
        // Only a classification has a list of pictures behind its counts; pixels have none.
        let has_pictures = found.metrics.contains_key("accuracy") && !found.metrics.contains_key("iou");
        let address = |query: &[(&str, &str)]| {
            let split = ("split", found.split.as_str());
            let path = format!("/models/{model}/predictions");
            has_pictures.then(|| href(&path, [split].iter().chain(query)))
        };
        let (map, pairs) = match &found.confusion {
            Some(confusion) => {
                drawn(confusion, &|label, predicted| address(&[("label", label), ("predicted", predicted)]))
            }
            None => (None, Vec::new()),
        };
        Self {
            word: if found.split == "test" { "test" } else { "validation" },
            metrics: found.metrics.iter().map(|(name, value)| (name.replace('_', " "), number(name, *value))).collect(),
            wrong_href: address(&[("wrong", "true")]),
            thresholds: has_pictures.then(|| format!("/api/v1/models/{model}/thresholds?split={}", found.split)),
            columns,
            classes,
            map,
            pairs,
        }
    }
}

type Pairs = Vec<(String, String, u64, Option<String>)>;

fn drawn(confusion: &Confusion, address: &dyn Fn(&str, &str) -> Option<String>) -> (Option<HeatMap>, Pairs) {
    let Confusion { classes, counts } = confusion;
    let mut pairs: Vec<(u64, usize, usize)> = Vec::new();
    for (label, row) in counts.iter().enumerate() {
        pairs.extend(
            row.iter()
                .enumerate()
                .filter(|(answer, count)| *answer != label && **count > 0)
                .map(|(a, count)| (*count, label, a)),
        );
    }
    pairs.sort_by_key(|(count, label, answer)| (std::cmp::Reverse(*count), *label, *answer));
    let pair = |&(count, label, answer): &(u64, usize, usize)| {
        (classes[label].clone(), classes[answer].clone(), count, address(&classes[label], &classes[answer]))
    };
    let pairs = pairs.iter().take(WORST_PAIRS).map(pair).collect();
    if classes.len() > LARGEST_MAP {
        return (None, pairs);
    }
    let rows = classes.iter().zip(counts).enumerate().map(|(at, (label, row))| {
        let total: u64 = row.iter().fold(0, |sum, count| sum.saturating_add(*count));
        let cells = row.iter().zip(classes).enumerate().map(|(answer, (&count, predicted))| HeatCell {
            count,
            heat: if count == 0 {
                0
            } else {
                (u128::from(count) * 9).div_ceil(u128::from(total.max(1))).try_into().unwrap_or(9)
            },
            is_right: at == answer,
            says: format!("{label} taken for {predicted}: {count} of {total}"),
            href: address(label, predicted).filter(|_| count > 0),
        });
        (label.clone(), cells.collect())
    });
    (Some(HeatMap { classes: classes.clone(), rows: rows.collect() }), pairs)
}

/// What of a configuration is told first.
pub fn facts_of(config: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let usual = |field: &str| {
        let said = field.split('.').try_fold(config, |value, name| value.get(name));
        text(said.or_else(|| schema::rule(field).map(|rule| &rule["default"])).unwrap_or(&Value::Null))
    };
    let rate = format!("{}, {}", usual("learning_rate.base"), usual("learning_rate.policy"));
    vec![
        ("Epochs", usual("epochs")),
        ("Batch", usual("batch_size")),
        ("Optimiser", usual("optimizer.name")),
        ("Learning rate", rate),
        ("Seed", usual("seed")),
    ]
}

/// A picture that the reader asked about.
#[derive(Clone, Debug)]
pub struct TestRow {
    pub href: String,
    pub picture: String,
    pub snapshot: String,
    pub when: Moment,
}

/// `/models/{id}/predictions`
#[derive(Debug, Template)]
#[template(path = "models/predictions.html")]
pub struct PredictionsPage {
    pub layout: Layout,
    pub model: (String, String),
    pub split: String,
    pub label: String,
    pub predicted: String,
    pub wrong: bool,
    pub total: usize,
    pub cards: Vec<PredictionCard>,
}

#[derive(Clone, Debug)]
pub struct PredictionCard {
    pub path: String,
    pub label: String,
    pub predicted: String,
    pub confidence: String,
    pub is_right: bool,
    /// Where the picture is, small.
    pub thumb: Option<String>,
}
