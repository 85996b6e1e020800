//! `/models/{id}/tests/{test}/layers/{layer}`: what a layer makes of an image, and its weights: filters or
//! matrices as images, and a histogram of all values. One page a layer, because a large network has
//! hundreds.

use std::fmt::Write as _;

use askama::Template;
use serde_json::Value;

use super::predictions::short;
use crate::web::{
    models::prediction::TestView,
    page::{Layout, filters},
};

/// The most weights of a layer that are shown: a model within a model has those of all its layers.
const WEIGHTS: usize = 50;
/// The most bars of a histogram.
const BARS: usize = 100;

#[derive(Debug, Template)]
#[template(path = "models/layer.html")]
pub struct LayerPage {
    pub layout: Layout,
    /// The model's id and name.
    pub model: (String, String),
    /// The page of the image.
    pub test: String,
    pub picture: String,
    pub number: usize,
    pub total: usize,
    pub name: String,
    pub kind: String,
    pub shape: String,
    pub parameters: String,
    pub parts: Vec<LayerValues>,
    pub previous: Option<String>,
    pub next: Option<String>,
}

/// Activations, or one of the weights of a layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerValues {
    pub title: &'static str,
    /// The name of weights.
    pub name: String,
    pub shape: String,
    pub image: Option<String>,
    /// How much the image shows, in words.
    pub shown: String,
    /// Whether the image has several parts, each over its own range.
    pub is_tiled: bool,
    pub histogram: Option<Histogram>,
    pub facts: Vec<(&'static str, String)>,
}

/// Counts of values by their size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The bars as a path, 300 wide and 96 high.
    pub bars: String,
    pub least: String,
    pub greatest: String,
    /// For readers who cannot see it.
    pub words: String,
}

impl LayerPage {
    /// Makes the page of a layer; nothing where the network has no such layer, or was not looked into.
    pub fn new(layout: Layout, model: (String, String), view: &TestView, number: usize) -> Option<Self> {
        let inspection = view.inspection.as_ref()?;
        let layers = inspection["layers"].as_array()?;
        let layer = layers.get(number)?;
        let test = format!("/models/{}/tests/{}", model.0, view.id);
        let api = format!("/api/v1{test}");
        let word = |name: &str| layer[name].as_str().unwrap_or_default().to_owned();
        let name = word("name");
        let image = format!("{api}/{number}");
        let mut parts = vec![values("Activations", layer, &layer["activations"], image)];
        let weights = inspection["weights"].as_array().map(Vec::as_slice).unwrap_or_default();
        let own = weights.iter().enumerate().filter(|(_, one)| one["layer"] == name.as_str()).take(WEIGHTS);
        parts.extend(own.map(|(at, one)| LayerValues {
            name: one["name"].as_str().unwrap_or_default().to_owned(),
            ..values("Weights", one, &one["values"], format!("{api}/weights-{at}"))
        }));
        let page = |at: usize| (at < layers.len()).then(|| format!("{test}/layers/{at}"));
        Some(Self {
            layout,
            picture: view.picture.rsplit('/').next().unwrap_or_default().to_owned(),
            number,
            total: layers.len(),
            kind: word("type"),
            shape: shape(layer),
            parameters: layer["parameters"].as_u64().map_or_else(|| "–".to_owned(), |count| count.to_string()),
            parts,
            previous: number.checked_sub(1).and_then(page),
            next: page(number + 1),
            name,
            model,
            test,
        })
    }

    pub fn has_weights(&self) -> bool {
        self.parts.len() > 1
    }
}

fn shape(row: &Value) -> String {
    row["shape"].as_array().into_iter().flatten().map(Value::to_string).collect::<Vec<_>>().join(" × ")
}

fn values(title: &'static str, row: &Value, about: &Value, image: String) -> LayerValues {
    let number = |name: &str| about[name].as_f64().map_or_else(|| "–".to_owned(), short);
    let share =
        |name: &str| about[name].as_f64().map_or_else(|| "–".to_owned(), |part| format!("{:.2} %", part * 100.0));
    let shown = row["shown"].as_object();
    LayerValues {
        title,
        name: String::new(),
        shape: shape(row),
        image: row["image"].is_string().then_some(image),
        shown: shown
            .map(|shown| shown.iter().filter_map(|(of, pair)| said(of, pair)).collect::<Vec<_>>().join(", "))
            .unwrap_or_default(),
        is_tiled: shown.is_some_and(|shown| !shown.contains_key("rows") && !shown.contains_key("values")),
        histogram: histogram(about),
        facts: vec![
            ("mean", number("mean")),
            ("standard deviation", number("deviation")),
            ("least", number("least")),
            ("greatest", number("greatest")),
            ("zeros", share("zeros")),
            ("not finite", share("not_finite")),
        ],
    }
}

/// How many are shown of how many.
fn said(of: &str, pair: &Value) -> Option<String> {
    let (shown, all) = (pair[0].as_u64()?, pair[1].as_u64()?);
    Some(if shown == all { format!("all {all} {of}") } else { format!("{shown} of {all} {of}") })
}

fn histogram(about: &Value) -> Option<Histogram> {
    let counts: Vec<f64> = about["counts"].as_array()?.iter().take(BARS).filter_map(Value::as_f64).collect();
    let (least, greatest) = (about["least"].as_f64()?, about["greatest"].as_f64()?);
    let most = counts.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most a hundred")]
    let width = 300.0 / counts.len() as f64;
    let mut bars = String::new();
    let mut x = 0.0;
    for count in counts {
        let height = count / most * 92.0;
        if count > 0.0 {
            // What is there is seen, however little it is.
            let _ = write!(bars, "M{x:.1} 96v-{:.1}h{:.1}V96z", height.max(0.6), width - 1.0);
        }
        x += width;
    }
    let (least, greatest) = (short(least), short(greatest));
    let words = format!("Histogram of the values from {least} to {greatest}");
    Some(Histogram { bars, least, greatest, words })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_weights() {
        let row = json!({"shape": [3, 3, 64, 128], "image": "weights/004.png", "shown": {"channels": [8, 64], "filters": [8, 8]}});
        let about = json!({"mean": 0.0123, "deviation": 0.5, "least": -1, "greatest": 2, "zeros": 0.25, "not_finite": 0,
            "counts": [0, 50, 100, 1], "edges": [-1, 0, 1, 2]});
        let found = values("Weights", &row, &about, "/api/weights-4".to_owned());
        assert_eq!((found.shape.as_str(), found.image.as_deref()), ("3 × 3 × 64 × 128", Some("/api/weights-4")));
        assert_eq!((found.shown.as_str(), found.is_tiled), ("8 of 64 channels, all 8 filters", true));
        let histogram = found.histogram.unwrap();
        assert_eq!(histogram.bars, "M75.0 96v-46.0h74.0V96zM150.0 96v-92.0h74.0V96zM225.0 96v-0.9h74.0V96z");
        assert_eq!((histogram.least.as_str(), histogram.greatest.as_str()), ("-1", "2"));
        let facts: Vec<&str> = found.facts.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(facts, ["0.0123", "0.5", "-1", "2", "25.00 %", "0.00 %"]);
        // All of it is what is not a number.
        let none = json!({"mean": null, "deviation": null, "least": null, "greatest": null, "zeros": 0, "not_finite": 1, "counts": []});
        let found = values("Weights", &json!({"shape": [9]}), &none, String::new());
        assert_eq!((&found.histogram, found.facts[0].1.as_str(), found.facts[5].1.as_str()), (&None, "–", "100.00 %"));
        assert!(found.image.is_none() && found.shown.is_empty());
    }
}
