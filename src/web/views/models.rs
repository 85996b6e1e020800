//! `/models`: the list, the form of a training, and one model. Its evaluation is in `evaluation`, its
//! predictions are in `predictions`.

use askama::Template;
use serde_json::Value;

use super::{
    FieldError, LayerTable, LegendLine, LineageRows, ListFrame, MeasuredSplit, Moment, PrecisionsPart, PredictionCard,
    ScalingTable, SeveralForm,
};
use crate::{
    model::{Model, UserId, trained::ModelState},
    models::{self, Snapshots, TrainingProgress, schema},
    web::{
        http::href::href,
        models::form::{FIELDS, GOES_ON, OWN_NETWORK, of_policy},
        page::{Layout, filters},
    },
};

/// `/models`
#[derive(Debug, Template)]
#[template(path = "models/list.html")]
pub struct ModelsPage {
    pub layout: Layout,
    pub notice: Option<String>,
    pub search: String,
    pub rows: Vec<ModelRow>,
    pub frame: ListFrame,
    pub import: ImportForm,
}

impl ModelsPage {
    /// Returns whether some of them are the reader's own.
    pub fn has_own(&self) -> bool {
        self.rows.iter().any(ModelRow::is_own)
    }
}

/// What was typed to import a bundle, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct ImportForm {
    pub name: String,
    pub path: String,
    pub errors: Vec<FieldError>,
}

impl ImportForm {
    pub fn error(&self, name: &str) -> Option<&str> {
        self.errors.iter().find(|error| error.field == name).map(|error| error.message.as_str())
    }
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
            ModelState::Trained => "succeeded",
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
    /// Returns the id of the input of a field, which is the text of the link to it.
    fn place(field: &str) -> (&str, &str) {
        let field = field.strip_prefix("config.").or_else(|| field.strip_prefix("resources.")).unwrap_or(field);
        let id = if field == "memory_bytes" { "memory" } else { field };
        (id, id)
    }

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

    /// What can be learnt from the dataset, and how it is called.
    pub fn tasks(&self) -> Vec<(&'static str, &'static str)> {
        let title =
            |task: &&'static str| if *task == "reconstruction" { "reconstruction (autoencoder)" } else { *task };
        models::tasks(&self.kind).iter().map(|task| (*task, title(task))).collect()
    }

    /// Those by name, a program of one's own, and a model to go on from.
    pub fn networks(&self) -> Vec<(&'static str, &'static str)> {
        let others = [(OWN_NETWORK, "Custom network (Python)"), (GOES_ON, "Fine-tune a trained model")];
        let mut named: Vec<&str> = Vec::new();
        for name in models::tasks(&self.kind).iter().flat_map(|task| models::networks(task)) {
            if !named.contains(&name) {
                named.push(name);
            }
        }
        named.into_iter().map(|name| (name, name)).chain(others).collect()
    }

    /// Which tasks a network is for.
    pub fn tasks_of(&self, network: &str) -> String {
        let fits = |task: &&&str| matches!(network, OWN_NETWORK | GOES_ON) || models::networks(task).contains(&network);
        models::tasks(&self.kind).iter().filter(fits).copied().collect::<Vec<_>>().join(" ")
    }

    /// What stands in the program's place: what was typed, or one to begin with.
    pub fn program(&self) -> &str {
        let typed = self.form.program.as_str();
        if typed.is_empty() { models::program::example(self.form.value("task")) } else { typed }
    }

    /// A program to begin with, for each task.
    pub fn examples(&self) -> Vec<(&'static str, &'static str)> {
        models::tasks(&self.kind).iter().map(|task| (*task, models::program::example(task))).collect()
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
            ("learning_rate.gamma", "Gamma", "decay factor; empty: the schedule's default"),
            ("learning_rate.step", "Step", "percent of the training"),
            ("learning_rate.steps", "Steps", "percentages, separated by commas"),
            ("learning_rate.power", "Power", "empty: the schedule's default"),
            ("learning_rate.start", "Initial rate", "fraction of the base rate"),
            ("learning_rate.peak", "Peak position", "percent of the training"),
            ("learning_rate.end", "Final rate", "fraction of the base rate"),
            ("learning_rate.warm_up", "Warm-up", "percent of the training"),
        ]
    }

    /// What may be done to the pictures at random.
    pub fn augmentations() -> [(&'static str, &'static str, &'static str); 6] {
        [
            ("augmentation.shift", "Translation", "up to this fraction of the size"),
            ("augmentation.rotate", "Rotation", "up to this many degrees"),
            ("augmentation.zoom", "Zoom", "up to this fraction"),
            ("augmentation.brightness", "Brightness", "up to this fraction of the value range"),
            ("augmentation.contrast", "Contrast", "by up to this fraction"),
            ("augmentation.noise", "Noise", "standard deviation, as a fraction of the value range"),
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
    /// Several trainings that differ in some fields.
    pub several: SeveralForm,
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
            several: SeveralForm::default(),
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
            several: SeveralForm {
                parameters: get("parameters").trim().to_owned(),
                trials: get("trials").trim().to_owned(),
                repeat: get("repeat").trim().to_owned(),
                parallel: get("parallel").trim().to_owned(),
                ..SeveralForm::default()
            },
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
    /// What its training writes for its owner while it runs.
    pub program_notes: Vec<String>,
    pub notes: String,
    pub visibility: &'static str,
    pub lineage: LineageRows,
    pub scaling: Option<ScalingTable>,
    /// What it got most wrong of validation, and the colours in it.
    pub worst: Vec<PredictionCard>,
    pub legend: Vec<LegendLine>,
    /// While it is trained by the reader.
    pub progress: Option<TrainingProgress>,
    /// Why its job has not started.
    pub waits: Option<String>,
    /// Why its directory cannot be shown.
    pub unreachable: Option<String>,
    pub inside: ModelInside,
    pub tests: Vec<TestRow>,
    /// What was typed for a picture, and what is wrong with it.
    pub picture: String,
    pub errors: Vec<FieldError>,
}

impl ModelPage {
    /// The sections that the page has, as anchors and titles.
    pub fn sections(&self) -> Vec<(String, String)> {
        let inside = &self.inside;
        let has_snapshots = !inside.snapshots.snapshots.is_empty();
        let mut listed = vec![("overview".to_owned(), "Overview".to_owned())];
        let mut add = |is_there: bool, anchor: &str, title: &str| {
            if is_there {
                listed.push((anchor.to_owned(), title.to_owned()));
            }
        };
        add(self.row.job.is_some(), "curves", "Curves");
        add(self.scaling.is_some(), "scaling", "Scaling");
        for (number, split) in (1..).zip(&inside.splits) {
            let title =
                if inside.splits.len() > 1 { format!("Evaluation ({})", split.word) } else { "Evaluation".to_owned() };
            add(true, &format!("evaluation-{number}"), &title);
        }
        add(has_snapshots, "checkpoints", "Checkpoints");
        add(has_snapshots, "try", "Inference");
        add(inside.precisions.is_some(), "precisions", "Quantization");
        add(inside.layers.is_some(), "layers", "Layers");
        add(true, "configuration", "Configuration");
        listed
    }

    /// How the worst images are sorted.
    pub fn order_of_worst(&self) -> &'static str {
        match self.row.kind.as_str() {
            "classification" => "highest loss first",
            "detection" => "most missed and extra boxes first",
            "segmentation" => "lowest IoU first",
            _ => "largest error first",
        }
    }

    /// Whether an image is shown twice, beside what the model made of it.
    pub fn has_pairs(&self) -> bool {
        has_pairs(&self.row.kind)
    }

    /// How far the training is, in words.
    pub fn progress_words(&self) -> String {
        let Some(progress) = self.progress else {
            return self.waits.clone().unwrap_or_else(|| "Waiting for the first step of the training…".to_owned());
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of seconds")]
        let left = progress.seconds_left.clamp(0.0, 1e9).round() as u64;
        let left = if left >= 3600 {
            format!("{} h {} min", left / 3600, left % 3600 / 60)
        } else if left >= 60 {
            format!("{} min {} s", left / 60, left % 60)
        } else {
            format!("{left} s")
        };
        format!(
            "Epoch {} of {}, step {} of {}, about {left} left",
            progress.epoch, progress.epochs, progress.step, progress.steps
        )
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

    /// Where the export of a checkpoint is downloaded, if there is one.
    pub fn export_href(&self, file: &str) -> Option<String> {
        let snapshot = self.inside.exports.iter().find(|one| *one == file)?;
        Some(href(&format!("/api/v1/models/{}/bundle", self.row.id), [("snapshot", snapshot.as_str())]))
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
    /// Checkpoints that were exported.
    pub exports: Vec<String>,
    pub layers: Option<LayerTable>,
    /// Nothing before there is a snapshot.
    pub precisions: Option<PrecisionsPart>,
    /// Of a network of its owner's own.
    pub program: Option<String>,
}

/// Whether predictions of this task are drawn beside the image.
pub(super) fn has_pairs(task: &str) -> bool {
    !matches!(task, "classification" | "regression")
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
        ("Batch size", usual("batch_size")),
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
