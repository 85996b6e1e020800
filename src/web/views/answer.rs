//! `/models/{id}/tests/{test}`: what a model says of one picture, where in it the answer comes from,
//! and what its layers make of it. Bars are widths in SVG.

use askama::Template;
use serde_json::Value;

use super::Moment;
use crate::web::{
    models::ask::TestView,
    page::{Layout, filters},
};

/// The most layers that are drawn.
const LAYERS: usize = 60;

#[derive(Debug, Template)]
#[template(path = "models/answer.html")]
pub struct AnswerPage {
    pub layout: Layout,
    /// The model's id and name.
    pub model: (String, String),
    /// The address of what the page follows.
    pub api: String,
    pub job: String,
    pub picture: String,
    pub snapshot: String,
    pub when: Moment,
    /// `waiting`, `answered`, `failed`.
    pub state: &'static str,
    /// Whether the drawings are still to come.
    pub is_live: bool,
    /// How many pictures of how many are answered.
    pub progress: Option<(u64, u64)>,
    pub detail: String,
    pub answers: Vec<Said>,
    /// What the answer comes from: the class, and the address of the drawing.
    pub grad_cam: Option<(String, String)>,
    pub seen: Option<String>,
    pub layers: Vec<LayerRow>,
}

/// A class or an object with how sure it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    pub class: String,
    pub value: String,
    /// Of a hundred.
    pub width: f64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRow {
    pub name: String,
    pub kind: String,
    pub shape: String,
    /// Mean and deviation of its activations.
    pub values: String,
    pub drawing: Option<String>,
}

impl AnswerPage {
    pub fn new(layout: Layout, model: (String, String), view: TestView, when: Moment) -> Self {
        let api = format!("/api/v1/models/{}/tests/{}", model.0, view.id);
        let inspection = view.inspection.unwrap_or_default();
        let answer = view.answer.as_ref();
        let answers = answer.map(said).unwrap_or_default();
        let is_live = view.is_live;
        let error = answer.and_then(|answer| answer["error"].as_str()).map(str::to_owned);
        let cam = inspection["grad_cam"]["image"].is_string();
        Self {
            layout,
            job: view.job.to_string(),
            picture: view.picture.rsplit('/').next().unwrap_or_default().to_owned(),
            snapshot: view.snapshot,
            when,
            state: match answer {
                Some(_) if error.is_none() => "answered",
                None if is_live => "waiting",
                _ => "failed",
            },
            is_live,
            progress: view.progress.map(|progress| (progress.done, progress.of)),
            detail: error.or(view.detail).unwrap_or_default(),
            answers,
            grad_cam: cam
                .then(|| (inspection["class"].as_str().unwrap_or_default().to_owned(), format!("{api}/grad-cam"))),
            seen: inspection.is_object().then(|| format!("{api}/seen")),
            layers: layers(&inspection, &api),
            model,
            api,
        }
    }
}

/// The trainer's answer to one picture, of whichever task.
pub fn said(answer: &Value) -> Vec<Said> {
    let share = |class: &str, value: f64| Said {
        class: class.to_owned(),
        value: format!("{:.1} %", value * 100.0),
        width: (value * 100.0).clamp(0.0, 100.0),
    };
    let listed = |list: &str, value: &str| -> Vec<Said> {
        let rows = answer[list].as_array().into_iter().flatten().take(100);
        rows.filter_map(|row| Some(share(row["class"].as_str()?, row[value].as_f64()?))).collect()
    };
    if let Some(shares) = answer["share"].as_object() {
        return shares.iter().filter_map(|(class, value)| Some(share(class, value.as_f64()?))).collect();
    }
    if answer["boxes"].is_array() { listed("boxes", "confidence") } else { listed("top", "probability") }
}

fn layers(inspection: &Value, api: &str) -> Vec<LayerRow> {
    let rows = inspection["layers"].as_array().into_iter().flatten();
    let layer = |(number, row): (usize, &Value)| {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let sides = row["shape"].as_array().into_iter().flatten().map(Value::to_string).collect::<Vec<_>>();
        let about = &row["activations"];
        let values = match (about["mean"].as_f64(), about["deviation"].as_f64()) {
            (Some(mean), Some(deviation)) => format!("{mean:.3} ± {deviation:.3}"),
            _ => String::new(),
        };
        let drawing = row["image"].is_string().then(|| format!("{api}/{number}"));
        LayerRow { name: text("name"), kind: text("type"), shape: sides.join(" × "), values, drawing }
    };
    rows.enumerate().take(LAYERS).map(layer).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_of_each_task() {
        let top = said(&json!({"top": [{"class": "cat", "probability": 0.875}, {"class": 3}]}));
        assert_eq!(top, [Said { class: "cat".to_owned(), value: "87.5 %".to_owned(), width: 87.5 }]);
        let all = said(&json!({"boxes": [{"class": "car", "confidence": 2}]}))[0].width;
        assert!((all - 100.0).abs() < 1e-9, "{all}");
        assert_eq!(said(&json!({"share": {"sky": 0.5}}))[0].class, "sky");
        assert!(said(&json!({"error": "it is no picture"})).is_empty());
    }

    #[test]
    fn layers_with_and_without_drawings() {
        let inspection = json!({"layers": [{"name": "conv", "type": "Conv2D", "shape": [8, 8, 4], "image": "activations/000.png",
            "activations": {"mean": 0.5, "deviation": 0.25}}, {"name": "dense", "shape": [10]}]});
        let drawn = layers(&inspection, "/x");
        assert_eq!((drawn[0].shape.as_str(), drawn[0].drawing.as_deref()), ("8 × 8 × 4", Some("/x/0")));
        assert_eq!((drawn[1].values.as_str(), &drawn[1].drawing), ("", &None));
    }
}
