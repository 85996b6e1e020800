//! `/models/{id}/tests/{test}`: what a model says of one picture, where in it the answer comes from,
//! and what its layers make of it. Bars are widths in SVG.

use askama::Template;
use serde_json::Value;

use super::{Drawing, DrawnObject, LegendLine, Moment, colour_of, legend_line};
use crate::{
    models::SHOWN_SCORE,
    web::{
        http::href::href,
        models::prediction::{InputView, TestView, score_of},
        page::{Layout, filters},
    },
};

/// The most layers that are listed; each has a page, from which the next is reached.
const LAYERS: usize = 200;

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
    /// Whether there is an answer, be it that nothing was found.
    pub is_answered: bool,
    pub answers: Vec<ScoredLabel>,
    /// The image with boxes or a mask; nothing for classification.
    pub drawing: Option<Drawing>,
    pub legend: Vec<LegendLine>,
    /// What the answer comes from: the class, and the address of the drawing.
    pub grad_cam: Option<(String, String)>,
    pub seen: Option<String>,
    pub layers: Vec<LayerRow>,
    /// How many there are.
    pub layer_count: usize,
}

/// Pairs a class or an object with its confidence.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredLabel {
    pub class: String,
    pub value: String,
    /// Of a hundred.
    pub width: f64,
    /// Of a box: its score, by which it is shown.
    pub score: Option<f64>,
}

impl ScoredLabel {
    /// Whether it is hidden until the score slider is lowered.
    pub fn is_below(&self) -> bool {
        self.score.is_some_and(|score| score < SHOWN_SCORE)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRow {
    pub name: String,
    pub kind: String,
    pub shape: String,
    /// Mean and deviation of its activations.
    pub values: String,
    /// Its page.
    pub href: String,
}

impl AnswerPage {
    pub fn new(layout: Layout, model: (String, String), view: TestView, when: Moment) -> Self {
        let api = format!("/api/v1/models/{}/tests/{}", model.0, view.id);
        let inspection = view.inspection.unwrap_or_default();
        let answer = view.answer.as_ref();
        let answers = answer.map(said).unwrap_or_default();
        let is_live = view.is_live;
        let error = answer.and_then(|answer| answer["error"].as_str()).map(str::to_owned);
        let is_answered = answer.is_some() && error.is_none();
        let cam = inspection["grad_cam"]["image"].is_string();
        let drawing = answer
            .filter(|_| error.is_none())
            .and_then(|answer| drawing(answer, &view.picture, view.input.as_ref()?, &view.classes, &api, true));
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
            is_answered,
            legend: answer.map(|answer| legend(answer, &view.classes)).unwrap_or_default(),
            drawing,
            answers,
            grad_cam: cam
                .then(|| (inspection["class"].as_str().unwrap_or_default().to_owned(), format!("{api}/grad-cam"))),
            seen: inspection.is_object().then(|| format!("{api}/seen")),
            layer_count: inspection["layers"].as_array().map_or(0, Vec::len),
            layers: layers(&inspection, &format!("/models/{}/tests/{}", model.0, view.id)),
            model,
            api,
        }
    }
}

impl AnswerPage {
    /// Whether the answers are listed; the shares of a mask are in its legend.
    pub fn has_list(&self) -> bool {
        self.drawing.as_ref().is_none_or(|drawing| drawing.mask.is_none())
    }

    /// Whether the answer is an image, of which nothing can be listed.
    pub fn is_image(&self) -> bool {
        self.drawing.as_ref().is_some_and(|drawing| drawing.picture.starts_with(&format!("{}/output-", self.api)))
    }

    /// Whether some answer is shown before the slider is moved.
    pub fn has_shown(&self) -> bool {
        self.answers.iter().any(|one| !one.is_below())
    }
}

/// The image of an answer with its boxes or its mask, as the model sees it; nothing for a classification.
pub fn drawing(
    answer: &Value,
    path: &str,
    input: &InputView,
    classes: &[String],
    api: &str,
    is_large: bool,
) -> Option<Drawing> {
    if let Some(number) = output_of(answer) {
        return Some(Drawing {
            picture: format!("{api}/output-{number}"),
            alt: format!("{}, output", path.rsplit('/').next().unwrap_or_default()),
            width: input.width,
            height: input.height,
            ..Drawing::default()
        });
    }
    let boxes = answer["boxes"].as_array();
    let mask = answer["mask"].as_str().and_then(|file| file.strip_prefix("mask-")?.strip_suffix(".png"));
    let mask = mask.and_then(|number| number.parse::<u32>().ok());
    if boxes.is_none() && mask.is_none() {
        return None;
    }
    let side = |side: u32| side.clamp(1, 1024).to_string();
    let picture = href(
        "/api/v1/dataset-example",
        [
            ("path", path),
            ("resize", &input.resize),
            ("width", &side(input.width)),
            ("height", &side(input.height)),
            ("channels", &input.channels.to_string()),
            ("full", if is_large { "true" } else { "" }),
        ],
    );
    let object = |one: &Value| {
        let number = |name: &str| one[name].as_f64().unwrap_or_default();
        let class = one["class"].as_str().unwrap_or_default();
        DrawnObject {
            class: class.to_owned(),
            colour: colour_of(classes, class),
            x: number("x"),
            y: number("y"),
            width: number("width"),
            height: number("height"),
            score: Some(score_of(one)),
            is_wrong: false,
        }
    };
    Some(Drawing {
        picture,
        alt: path.rsplit('/').next().unwrap_or_default().to_owned(),
        width: input.width,
        height: input.height,
        mask: mask.map(|number| format!("{api}/mask-{number}")),
        boxes: boxes.into_iter().flatten().take(100).map(object).collect(),
    })
}

/// The number of the image that a reconstruction made.
fn output_of(answer: &Value) -> Option<u32> {
    answer["image"].as_str()?.strip_prefix("output-")?.strip_suffix(".png")?.parse().ok()
}

/// The colours in a drawing, with the number of objects or the share of the image.
pub fn legend(answer: &Value, classes: &[String]) -> Vec<LegendLine> {
    if let Some(shares) = answer["share"].as_object() {
        let mut shares: Vec<(&String, f64)> =
            shares.iter().filter_map(|(class, value)| Some((class, value.as_f64()?))).collect();
        shares.retain(|(_, share)| *share > 0.0);
        shares.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        return shares.into_iter().map(|(class, share)| legend_line(classes, class, percent(share))).collect();
    }
    let boxes = answer["boxes"].as_array().into_iter().flatten();
    let mut named: Vec<&str> = boxes.filter_map(|one| one["class"].as_str()).collect();
    named.sort_by_key(|class| classes.iter().position(|name| name == class));
    named.dedup();
    named.into_iter().map(|class| legend_line(classes, class, String::new())).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The trainer's answer to one picture, of whichever task.
pub fn said(answer: &Value) -> Vec<ScoredLabel> {
    let share = |class: &str, value: f64| ScoredLabel {
        class: class.to_owned(),
        value: percent(value),
        width: (value * 100.0).clamp(0.0, 100.0),
        score: None,
    };
    let rows = |list: &str| answer[list].as_array().into_iter().flatten().take(100);
    if let Some(shares) = answer["share"].as_object() {
        return shares.iter().filter_map(|(class, value)| Some(share(class, value.as_f64()?))).collect();
    }
    if answer["boxes"].is_array() {
        let object = |row: &Value| {
            let score = score_of(row);
            Some(ScoredLabel { score: Some(score), ..share(row["class"].as_str()?, score) })
        };
        return rows("boxes").filter_map(object).collect();
    }
    if answer["values"].is_array() {
        let number = |row: &Value| {
            let value = format!("{:.4}", row["value"].as_f64()?);
            Some(ScoredLabel { value, ..share(row["output"].as_str()?, 0.0) })
        };
        return rows("values").filter_map(number).collect();
    }
    rows("top").filter_map(|row| Some(share(row["class"].as_str()?, row["probability"].as_f64()?))).collect()
}

fn layers(inspection: &Value, page: &str) -> Vec<LayerRow> {
    let rows = inspection["layers"].as_array().into_iter().flatten();
    let layer = |(number, row): (usize, &Value)| {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let sides = row["shape"].as_array().into_iter().flatten().map(Value::to_string).collect::<Vec<_>>();
        let about = &row["activations"];
        let values = match (about["mean"].as_f64(), about["deviation"].as_f64()) {
            (Some(mean), Some(deviation)) => format!("{mean:.3} ± {deviation:.3}"),
            _ => String::new(),
        };
        let href = format!("{page}/layers/{number}");
        LayerRow { name: text("name"), kind: text("type"), shape: sides.join(" × "), values, href }
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
        assert_eq!(
            top,
            [ScoredLabel { class: "cat".to_owned(), value: "87.5 %".to_owned(), width: 87.5, score: None }]
        );
        let all = said(&json!({"boxes": [{"class": "car", "confidence": 2}]}))[0].width;
        assert!((all - 100.0).abs() < 1e-9, "{all}");
        let low = &said(&json!({"boxes": [{"class": "car", "score": 0.2}]}))[0];
        assert!(low.is_below() && low.value == "20.0 %");
        assert_eq!(said(&json!({"share": {"sky": 0.5}}))[0].class, "sky");
        assert!(said(&json!({"error": "not an image"})).is_empty());
        let number = &said(&json!({"values": [{"output": "age", "value": 41.5}]}))[0];
        assert_eq!((number.class.as_str(), number.value.as_str()), ("age", "41.5000"));
        let input = InputView { width: 28, height: 28, channels: 1, resize: "squash".to_owned() };
        let image = json!({"image": "output-00007.png"});
        let drawn = drawing(&image, "/home/ada/a.png", &input, &[], "/api/v1/x", true).unwrap();
        assert_eq!(drawn.picture, "/api/v1/x/output-7");
    }

    #[test]
    fn boxes_and_masks_are_drawn_over_the_image() {
        let input = InputView { width: 64, height: 48, channels: 3, resize: "fill".to_owned() };
        let classes = ["dog".to_owned(), "car".to_owned()];
        let draw = |answer: Value| drawing(&answer, "/home/ada/a b.png", &input, &classes, "/api", true);
        let found =
            draw(json!({"boxes": [{"class": "car", "score": 0.9, "x": 1, "y": 2, "width": 3, "height": 4}]})).unwrap();
        assert_eq!((found.width, found.height, found.alt.as_str()), (64, 48, "a b.png"));
        assert!(found.picture.contains("resize=fill&width=64&height=48&channels=3&full=true"), "{}", found.picture);
        assert_eq!((found.boxes[0].colour, found.boxes[0].words().as_str()), (1, "car 0.90"));
        let nothing = draw(json!({"boxes": []})).unwrap();
        assert!(nothing.boxes.is_empty(), "the image is shown though nothing was found");
        let mask = draw(json!({"mask": "mask-00012.png", "share": {"dog": 0.25, "car": 0.75}})).unwrap();
        assert_eq!(mask.mask.as_deref(), Some("/api/mask-12"));
        assert_eq!(draw(json!({"top": []})), None);
        let lines = legend(&json!({"share": {"dog": 0.25, "car": 0.75, "cow": 0}}), &classes);
        assert_eq!(
            lines.iter().map(|line| (line.class.as_str(), line.colour)).collect::<Vec<_>>(),
            [("car", 1), ("dog", 0)]
        );
    }

    #[test]
    fn layers_have_a_page_each() {
        let inspection = json!({"layers": [{"name": "conv", "type": "Conv2D", "shape": [8, 8, 4], "image": "activations/000.png",
            "activations": {"mean": 0.5, "deviation": 0.25}}, {"name": "dense", "shape": [10]}]});
        let drawn = layers(&inspection, "/x");
        assert_eq!((drawn[0].shape.as_str(), drawn[0].href.as_str()), ("8 × 8 × 4", "/x/layers/0"));
        assert_eq!((drawn[0].values.as_str(), drawn[1].values.as_str()), ("0.500 ± 0.250", ""));
    }
}
