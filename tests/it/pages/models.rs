//! Models, filled: the list, the form of a training refused, one with measures of many kinds, one
//! that failed, the pictures behind a cell, and what one said of a picture.

use std::collections::BTreeMap;

use lyceum::{
    model::{ModelId, trained::ModelState},
    models::{
        Calibration, CalibrationBin, ClassCurve, ClassMeasures, Confusion, Curves, Evaluation, Precision,
        PrecisionMeasurement, Progress, Scaled, Scaling, Scatter, Snapshot, Snapshots, TrainingProgress,
    },
    web::{page::Nav, views::*},
};

use super::gallery::{NOW, Word, layout};

pub const ID: &str = "01920000-0000-7000-8000-000000000001";

/// All pages of models by name.
pub fn pages(word: &Word) -> Vec<(&'static str, String)> {
    let draw = |page: &dyn askama::DynTemplate| page.dyn_render().unwrap();
    vec![
        ("models", draw(&list(word))),
        ("models-empty", draw(&empty(word))),
        ("model-new", draw(&new(word))),
        ("model-wrong", draw(&wrong(word))),
        ("model-own", draw(&own(word))),
        ("model", draw(&show(word))),
        ("model-regression", draw(&regression(word))),
        ("model-failed", draw(&failed(word))),
        ("model-training", draw(&training(word))),
        ("model-predictions", draw(&predictions(word))),
        ("model-detections", draw(&detections(word))),
        ("model-answer", draw(&super::model_answers::answer(word))),
        ("model-layer", draw(&super::model_answers::layer(word))),
        ("model-objects", draw(&super::model_answers::objects(word))),
        ("model-nothing", draw(&super::model_answers::nothing(word))),
        ("model-waiting", draw(&super::model_answers::waiting(word))),
        ("model-answers", draw(&super::model_answers::answers(word))),
        ("model-scored", draw(&super::model_answers::scored(word))),
        ("model-preview", draw(&preview(word))),
    ]
}

fn row(word: &Word, name: &str, state: ModelState, owner: Option<&str>) -> ModelRow {
    ModelRow {
        id: ID.to_owned(),
        name: word(name),
        kind: "classification".to_owned(),
        network: "resnet-18".to_owned(),
        owner: owner.map(word),
        state,
        job: Some(ID.to_owned()),
        best: "accuracy 0.9713".to_owned(),
        snapshots: 3,
        created: Moment::ago(NOW.plus_seconds(-3600), NOW),
    }
}

fn list(word: &Word) -> ModelsPage {
    use ModelState::{Failed, Stopped, Trained, Training};
    let rows = [("Street scenes, summer", Trained), ("fashion-mnist", Training), ("x-rays", Failed), ("try", Stopped)];
    ModelsPage {
        layout: layout(word).at(Nav::Models),
        notice: Some("The model was removed.".to_owned()),
        search: word("s"),
        rows: rows.map(|(name, state)| row(word, name, state, (state == Trained).then_some("grace"))).into(),
        frame: frame(),
        import: ImportForm {
            name: word("streets"),
            path: word("~/uploads/bundle.tar"),
            errors: vec![FieldError { field: "path".to_owned(), message: word("File not found.") }],
        },
    }
}

fn frame() -> ListFrame {
    let columns = [("network", "Network"), ("best", "Best"), ("checkpoints", "Checkpoints"), ("created", "Created")];
    super::frame("models", &["name", "network", "checkpoints", "created"], &columns)
}

fn empty(word: &Word) -> ModelsPage {
    ModelsPage {
        notice: None,
        search: String::new(),
        rows: Vec::new(),
        frame: ListFrame { next_href: None, ..frame() },
        import: ImportForm::default(),
        ..list(word)
    }
}

fn new(word: &Word) -> NewModelPage {
    NewModelPage {
        layout: layout(word).at(Nav::Models),
        dataset: (ID.to_owned(), word("Street scenes, summer")),
        kind: "classification".to_owned(),
        environments: vec![("default".to_owned(), "Keras on JAX".to_owned())],
        groups: vec![word("vision"), word("speech")],
        on_cluster: true,
        form: ModelForm::usual("key".to_owned(), word("Street scenes, summer")),
        errors: Vec::new(),
    }
}

fn wrong(word: &Word) -> NewModelPage {
    let fault = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    let errors = vec![fault("name", "Give it a name."), fault("config.learning_rate.base", "Must be greater than 0.")];
    let mut page = NewModelPage { errors, ..new(word) };
    page.form.set("network.name", "pretrained".to_owned());
    page.form.set("network.pretrained", word("/home/ada/runs/x/checkpoints/epoch-00003.keras"));
    page
}

/// A network of one's own that cannot be so.
fn own(word: &Word) -> NewModelPage {
    let fault = FieldError { field: "program".to_owned(), message: word("Define a function network(x, classes).") };
    let mut page = NewModelPage { errors: vec![fault], ..new(word) };
    page.form.set("network.name", "own".to_owned());
    page.form.program = word("import keras\n\n\ndef network(x, classes):\n    return x\n");
    page
}

pub fn evaluation(word: &Word) -> Evaluation {
    let classes: Vec<String> = ["car", "person", "bicycle", "dog"].map(word).into();
    let measures = |precision: Option<f64>| -> BTreeMap<String, Option<f64>> {
        [("precision", precision), ("recall", Some(0.75)), ("f1", Some(0.875)), ("pictures", Some(120.0))]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    };
    let class = |(class, precision): (&String, Option<f64>)| ClassMeasures {
        class: class.clone(),
        measures: measures(precision),
    };
    Evaluation {
        split: "val".to_owned(),
        metrics: [("accuracy", 0.9713), ("loss", 0.0871), ("pictures", 480.0)].map(|(n, v)| (n.to_owned(), v)).into(),
        classes: classes.iter().zip([Some(0.9), None, Some(1.0), Some(0.5)]).map(class).collect(),
        confusion: Some(Confusion {
            classes,
            counts: vec![vec![110, 8, 2, 0], vec![0, 120, 0, 0], vec![30, 30, 60, 0], vec![0, 1, 0, 119]],
        }),
    }
}

fn page(word: &Word, state: ModelState) -> ModelPage {
    let metrics = || Some([("accuracy", 0.9713), ("loss", 0.0871)].map(|(n, v)| (n.to_owned(), v)).into());
    let snapshot =
        |epoch: u64| Snapshot { file: format!("epoch-{epoch:05}.keras"), epoch, step: epoch * 40, metrics: metrics() };
    let snapshots = Snapshots {
        metric: "accuracy".to_owned(),
        best: Some("epoch-00002.keras".to_owned()),
        best_value: Some(0.9713),
        snapshots: vec![snapshot(2), snapshot(3), Snapshot { metrics: None, ..snapshot(4) }],
    };
    let id: ModelId = ID.parse().unwrap();
    ModelPage {
        layout: layout(word).at(Nav::Models),
        row: row(word, "Street scenes, summer", state, None),
        dataset: Some((ID.to_owned(), word("Street scenes"))),
        facts: vec![("Epochs", "30".to_owned()), ("Optimiser", word("adam")), ("Learning rate", word("0.001, cosine"))],
        config: word("{\n  \"epochs\": 30\n}"),
        directory: word("/home/ada/runs/street-scenes-1a2b3c4d"),
        files_href: "/files?path=%2Fhome".to_owned(),
        bundle_href: Some("/files/download?path=%2Fhome&archive=tar".to_owned()),
        detail: String::new(),
        program_notes: vec![word("2 GPUs allocated; JAX sees only CPUs: choose an environment with CUDA")],
        notes: word("Trained in July."),
        visibility: "group",
        lineage: LineageRows {
            ancestors: vec![relative(word, "Streets, winter", 7)],
            children: vec![relative(word, "Streets by night", 2), relative(word, "Only bicycles", 3)],
        },
        scaling: ScalingTable::new(&scaling(word)),
        worst: (0..).zip(["person", "car", "dog"]).map(|place| card(word, place)).collect(),
        legend: Vec::new(),
        progress: None,
        waits: Some(word("Your limit is 2 GPUs and 2 are in use.")),
        unreachable: None,
        inside: ModelInside {
            snapshots,
            splits: vec![MeasuredSplit::new(Some(id), &evaluation(word), Some(&curves(word)))],
            has_bundle: true,
            exports: vec!["epoch-00002.keras".to_owned()],
            layers: Some(layers(word)),
            precisions: Some(precisions(word)),
            program: Some(word("import keras\n\n\ndef network(x, classes):\n    return x\n")),
        },
        like_href: Some(format!("/models/new?dataset={ID}&like={ID}")),
        tests: vec![TestRow {
            href: format!("/models/{ID}/tests/{ID}"),
            picture: word("cat on a mat.png"),
            snapshot: "epoch-00002.keras".to_owned(),
            when: Moment::ago(NOW.plus_seconds(-60), NOW),
        }],
        picture: word("~/nothing.png"),
        errors: vec![FieldError { field: "path".to_owned(), message: "File not found.".to_owned() }],
    }
}

/// Measured in two of three precisions, and once more, which failed.
fn precisions(word: &Word) -> PrecisionsPart {
    let one = |precision: &str, bytes: u64, latency: f64, accuracy: f64| Precision {
        precision: word(precision),
        runtime: Some(word("ONNX Runtime 1.31.1")),
        bytes: Some(bytes),
        latency_ms: Some(latency),
        latency_95_ms: Some(latency * 1.5),
        images_per_second: Some(2400.0 / latency),
        metrics: [("accuracy".to_owned(), Some(accuracy))].into(),
        missing: None,
    };
    let missing = Some(word("this environment lacks the Python packages onnx and onnxruntime"));
    let half = Precision { precision: word("float16"), missing, ..Precision::default() };
    let measured = PrecisionMeasurement {
        snapshot: word("epoch-00002.keras"),
        split: "val".to_owned(),
        pictures: 480,
        threads: 2,
        batch_size: 32,
        metric: word("accuracy"),
        precisions: vec![one("float32", 44_800_000, 9.31, 0.9713), half, one("int8", 11_400_000, 3.04, 0.9688)],
    };
    PrecisionsPart {
        state: "failed",
        api: format!("/api/v1/models/{ID}/precisions"),
        detail: word("data.path: /home/ada/x is not a complete dataset"),
        progress: Some(Progress { done: 1, of: 3 }),
        table: Some(PrecisionTable::new(&measured)),
        environments: vec![(word("default"), word("Keras on JAX"), true)],
    }
}

fn scaling(word: &Word) -> Scaling {
    let row = |(devices, images_per_second, efficiency): (u32, f64, f64)| Scaled {
        devices,
        images_per_second,
        efficiency,
        model: ID.parse().unwrap(),
        name: word("Street scenes, summer"),
    };
    Scaling {
        device: word("NVIDIA H100 80GB HBM3"),
        batch_per_device: 64,
        precision: word("mixed_bfloat16"),
        rows: [(1, 2310.0, 1.0), (2, 4435.0, 0.96), (4, 8316.0, 0.9)].map(row).into(),
    }
}

fn show(word: &Word) -> ModelPage {
    page(word, ModelState::Trained)
}

fn failed(word: &Word) -> ModelPage {
    ModelPage {
        detail: word("learning_rate.base: the loss is not finite at step 40"),
        unreachable: Some(word("Your account has no access to this folder.")),
        inside: ModelInside::default(),
        bundle_href: None,
        dataset: None,
        lineage: LineageRows::default(),
        scaling: None,
        worst: Vec::new(),
        ..page(word, ModelState::Failed)
    }
}

/// One whose network ends in a softmax, on its way.
fn training(word: &Word) -> ModelPage {
    let warning = word("The last layer, “dense”, already applies softmax.");
    ModelPage {
        progress: Some(TrainingProgress { epoch: 3, epochs: 20, step: 101, steps: 800, seconds_left: 141.2 }),
        inside: ModelInside {
            layers: Some(LayerTable { warnings: vec![warning], ..layers(word) }),
            ..ModelInside::default()
        },
        bundle_href: None,
        worst: Vec::new(),
        ..page(word, ModelState::Training)
    }
}

fn relative(word: &Word, name: &str, epoch: u64) -> Relative {
    Relative { href: format!("/models/{ID}"), name: word(name), snapshot: format!("epoch-{epoch:05}.keras") }
}

fn layers(word: &Word) -> LayerTable {
    let line = |(name, kind, shape): (&str, &str, &str)| LayerLine {
        name: word(name),
        kind: kind.to_owned(),
        shape: shape.to_owned(),
        parameters: "1 728".to_owned(),
        macs: "1 354 752".to_owned(),
    };
    let rows = [("conv2d", "Conv2D", "28 × 28 × 64"), ("flatten", "Flatten", "50176"), ("logits", "Dense", "4")];
    LayerTable {
        rows: rows.map(line).into(),
        count: 5,
        parameters: "11 181 642".to_owned(),
        macs: "37 300 224".to_owned(),
        memory: "512 MiB".to_owned(),
        batch_size: 64,
        warnings: Vec::new(),
    }
}

pub fn picture(name: &str) -> Drawing {
    Drawing {
        picture: "/static/favicon.svg".to_owned(),
        alt: name.to_owned(),
        width: 96,
        height: 64,
        ..Drawing::default()
    }
}

pub fn object(word: &Word, (colour, score): (usize, Option<f64>)) -> DrawnObject {
    DrawnObject {
        class: word(if colour == 0 { "car" } else { "bicycle" }),
        colour,
        x: 8.0 + 36.0 * f64::from(u8::from(colour > 0)),
        y: 4.0 + 16.0 * f64::from(u8::from(colour > 0)),
        width: 30.0,
        height: 28.5,
        score,
        is_wrong: score.is_some_and(|score| score < 0.5),
    }
}

fn card(word: &Word, (n, predicted): (usize, &str)) -> PredictionCard {
    let path = word(&format!("camera {n}/000{n}.jpg"));
    PredictionCard {
        drawings: if n == 2 { Vec::new() } else { vec![picture(&path)] },
        path,
        title: word(predicted),
        value: "97 %".to_owned(),
        lines: vec![format!("true class: {}", word("bicycle"))],
        is_right: predicted == "bicycle",
        sides: SIDES,
    }
}

const SIDES: (&str, &str) = ("Ground truth", "Prediction");

/// Numbers in the place of classes, with the predicted over the true ones.
fn regression(word: &Word) -> ModelPage {
    let id: ModelId = ID.parse().unwrap();
    let truth: Vec<f64> = (0..40).map(|n| f64::from(n % 10)).collect();
    let predicted = truth.iter().zip(0..).map(|(value, n)| value + f64::from(n % 7 - 3) / 4.0).collect();
    let scatter = vec![Scatter { output: word("age"), truth, predicted }];
    let metrics =
        [("r2", 0.93), ("mae", 0.42), ("rmse", 0.61), ("within_one", 0.9), ("loss", 0.37), ("pictures", 40.0)];
    let found = Evaluation {
        split: "val".to_owned(),
        metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
        ..Evaluation::default()
    };
    let page = show(word);
    let splits = vec![MeasuredSplit::new(Some(id), &found, Some(&Curves { scatter, ..Curves::default() }))];
    let kind = "regression".to_owned();
    ModelPage { row: ModelRow { kind, ..page.row }, inside: ModelInside { splits, ..page.inside }, ..page }
}

pub fn colours(word: &Word) -> Vec<LegendLine> {
    let line = |(colour, class): (usize, &str)| LegendLine { class: word(class), colour, value: String::new() };
    [(0, "car"), (1, "bicycle")].map(line).into()
}

fn curves(word: &Word) -> Curves {
    let curve = |class: &str, area: f64, y: [f64; 4]| ClassCurve {
        class: word(class),
        auc: Some(area),
        ap: Some(area),
        x: vec![0.0, 0.1, 0.5, 1.0],
        y: y.into(),
    };
    let bin = |(at, accuracy): (u32, f64)| CalibrationBin {
        from: f64::from(at) / 10.0,
        to: f64::from(at + 1) / 10.0,
        count: 40,
        confidence: f64::from(at) / 10.0 + 0.05,
        accuracy,
    };
    Curves {
        roc: vec![curve("car", 0.98, [0.0, 0.9, 0.97, 1.0]), curve("bicycle", 0.87, [0.0, 0.5, 0.9, 1.0])],
        precision_recall: vec![curve("car", 0.97, [1.0, 1.0, 0.95, 0.6]), curve("bicycle", 0.8, [1.0, 0.8, 0.7, 0.3])],
        calibration: Some(Calibration {
            ece: 0.0431,
            bins: [(4, 0.3), (5, 0.45), (7, 0.6), (8, 0.8), (9, 0.99)].map(bin).into(),
        }),
        scatter: Vec::new(),
    }
}

fn predictions(word: &Word) -> PredictionsPage {
    PredictionsPage {
        layout: layout(word).at(Nav::Models),
        model: (ID.to_owned(), word("Street scenes, summer")),
        kind: "classification".to_owned(),
        split: "val".to_owned(),
        label: word("bicycle"),
        predicted: word("person"),
        wrong: false,
        total: 30,
        cards: (0..).zip(["person", "person", "bicycle", "person"]).map(|place| card(word, place)).collect(),
        legend: Vec::new(),
    }
}

/// Boxes beside the true ones.
pub fn detections(word: &Word) -> PredictionsPage {
    let card = |n: usize| {
        let path = word(&format!("camera {n}/000{n}.jpg"));
        let truth = Drawing { boxes: vec![object(word, (0, None)), object(word, (1, None))], ..picture(&path) };
        let found =
            Drawing { boxes: vec![object(word, (0, Some(0.93))), object(word, (1, Some(0.21)))], ..picture(&path) };
        PredictionCard {
            path,
            title: "1 missed".to_owned(),
            lines: vec!["2 true, 1 predicted".to_owned()],
            drawings: vec![truth, found],
            sides: SIDES,
            ..PredictionCard::default()
        }
    };
    PredictionsPage {
        kind: "detection".to_owned(),
        label: String::new(),
        predicted: String::new(),
        wrong: true,
        total: 3,
        cards: (0..3).map(card).collect(),
        legend: colours(word),
        ..predictions(word)
    }
}

fn preview(word: &Word) -> PreviewPage {
    let pair = |name: &str| PreviewPair {
        name: word(name),
        original: "/static/favicon.svg".to_owned(),
        augmented: "/static/favicon.svg".to_owned(),
    };
    PreviewPage {
        layout: layout(word).at(Nav::Models),
        job: ID.to_owned(),
        api: format!("/api/v1/models/previews/{ID}"),
        state: "failed",
        detail: word("network.file: there is no function network"),
        pairs: ["car", "person", "car", "dog", "bicycle", "car", "car", "dog"].map(pair).into(),
        layers: Some(layers(word)),
    }
}
