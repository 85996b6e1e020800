//! `/models/{id}/tests/{test}` of a folder: how often which class came first, and the pictures with
//! what was said of each, the surest of each class first.

use askama::Template;
use serde_json::Value;

use super::{Drawing, LegendLine, MeasuredSplit, Moment, PredictionCard, ScoredLabel, answer::drawing, said};
use crate::{
    models::{LabelSummary, Prediction},
    web::{
        http::href::href,
        models::prediction::TestView,
        page::{Layout, filters},
    },
};

/// How many pictures one page shows.
const PAGE_SIZE: usize = 100;

#[derive(Debug, Template)]
#[template(path = "models/answers.html")]
pub struct AnswersPage {
    pub layout: Layout,
    /// The model's id and name.
    pub model: (String, String),
    /// The page's own address.
    pub href: String,
    pub job: String,
    pub folder: String,
    pub snapshot: String,
    pub when: Moment,
    /// All pictures, and those that could not be read.
    pub total: usize,
    pub broken: usize,
    /// How often which class came first.
    pub classes: Vec<ClassLink>,
    /// The chosen class; empty for all.
    pub class: String,
    /// How many there are of those that are chosen.
    pub chosen: usize,
    pub cards: Vec<AnswerCard>,
    /// Images whose boxes or masks are known, the worst first, the truth beside the prediction.
    pub scored: Vec<PredictionCard>,
    /// What was found of labels, in sentences.
    pub labels: Vec<String>,
    /// Why labels cannot be used.
    pub refused: String,
    /// The colours of boxes or masks.
    pub legend: Vec<LegendLine>,
    /// Whether there are boxes, whose score can be chosen.
    pub has_boxes: bool,
    /// How it did on images whose class, boxes or masks are known.
    pub evaluation: Option<MeasuredSplit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassLink {
    pub class: String,
    pub count: usize,
    pub href: String,
    pub is_chosen: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AnswerCard {
    /// Below the folder.
    pub name: String,
    pub thumb: String,
    pub drawing: Option<Drawing>,
    /// The known class, and whether it is the answer.
    pub label: Option<(String, bool)>,
    pub said: Vec<ScoredLabel>,
    /// Why nothing is said.
    pub error: String,
    /// Why it is not scored.
    pub unscored: String,
}

impl AnswerCard {
    /// Whether the answer is an image, of which nothing is said.
    pub fn is_image(&self) -> bool {
        self.drawing.as_ref().is_some_and(|drawing| drawing.picture.contains("/output-"))
    }
}

impl AnswersPage {
    pub fn new(
        layout: Layout,
        model: (String, String),
        folder: &str,
        view: TestView,
        class: &str,
        when: Moment,
    ) -> Self {
        let href = format!("/models/{}/tests/{}", model.0, view.id);
        let answers = view.answers.clone().unwrap_or_default();
        let api = format!("/api/v1{href}");
        let shown = |answer| said(answer).into_iter().filter(|one| !one.is_below()).collect();
        let mut rows: Vec<(Vec<ScoredLabel>, &Value)> = answers.iter().map(|answer| (shown(answer), answer)).collect();
        let broken = answers.iter().filter(|answer| answer["error"].is_string()).count();
        let classes = classes(&rows, class, &href);
        let total = rows.len();
        rows.retain(|(said, _)| class.is_empty() || said.first().is_some_and(|first| first.class == class));
        // Those of which nothing is said come last.
        rows.sort_by(|(one, _), (other, _)| match (one.first(), other.first()) {
            (Some(one), Some(other)) => one.class.cmp(&other.class).then(other.width.total_cmp(&one.width)),
            (one, other) => other.is_some().cmp(&one.is_some()),
        });
        let chosen = rows.len();
        let (scored, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, answer)| is_compared(answer));
        let scored = scored_cards(scored.into_iter().map(|(_, answer)| answer), &view, &api, folder);
        let card = |(said, answer): (Vec<ScoredLabel>, &Value)| {
            let path = answer["path"].as_str().unwrap_or_default();
            let draw = |input| drawing(answer, path, input, &view.classes, &api, false);
            let label = answer["label"].as_str();
            let first = said.first().map(|first| first.class.as_str());
            AnswerCard {
                drawing: view.input.as_ref().filter(|_| !answer["error"].is_string()).and_then(draw),
                label: label.map(|label| (label.to_owned(), first == Some(label))),
                name: path.strip_prefix(folder).map_or(path, |name| name.trim_start_matches('/')).to_owned(),
                thumb: thumb(path),
                said: said.into_iter().take(3).collect(),
                error: answer["error"].as_str().unwrap_or_default().to_owned(),
                unscored: answer["unscored"].as_str().unwrap_or_default().to_owned(),
            }
        };
        let cards: Vec<AnswerCard> = rows.into_iter().take(PAGE_SIZE - scored.len()).map(card).collect();
        let mut legend: Vec<LegendLine> = Vec::new();
        if !scored.is_empty() || cards.iter().any(|card| card.drawing.is_some()) {
            let of_each = answers.iter().flat_map(|answer| super::answer::legend(answer, &view.classes));
            for line in of_each {
                if !legend.iter().any(|known| known.class == line.class) {
                    legend.push(LegendLine { value: String::new(), ..line });
                }
            }
            legend.sort_by_key(|line| view.classes.iter().position(|class| *class == line.class));
        }
        let evaluation = view.evaluation.as_ref().map(|found| MeasuredSplit::new(None, found, view.curves.as_ref()));
        let labels = view.labels.unwrap_or_default();
        Self {
            scored,
            labels: sentences(&labels, answers.iter().any(|answer| answer["boxes"].is_array())),
            refused: labels.reason,
            evaluation,
            legend,
            has_boxes: answers.iter().any(|answer| answer["boxes"].is_array()),
            layout,
            model,
            job: view.job.to_string(),
            folder: folder.to_owned(),
            snapshot: view.snapshot,
            when,
            total,
            broken,
            classes,
            class: class.to_owned(),
            chosen,
            cards,
            href,
        }
    }
}

impl AnswersPage {
    /// How many images are shown.
    pub fn shown(&self) -> usize {
        self.scored.len() + self.cards.len()
    }
}

/// Whether an answer has the truth beside it: boxes or a mask.
fn is_compared(answer: &Value) -> bool {
    answer["truth"].is_array() || answer["iou"].is_number()
}

/// Answers beside the truth, the worst first.
fn scored_cards<'a>(
    answers: impl Iterator<Item = &'a Value>,
    view: &TestView,
    api: &str,
    folder: &str,
) -> Vec<PredictionCard> {
    let errors = |answer: &Value| {
        let count = |name: &str| answer[name].as_f64().unwrap_or_default();
        if answer["iou"].is_number() { -count("iou") } else { count("missed") + count("extra") }
    };
    let mut answers: Vec<&Value> = answers.collect();
    answers.sort_by(|one, other| errors(other).total_cmp(&errors(one)));
    let card = |answer: &Value| {
        let path = answer["path"].as_str().unwrap_or_default();
        let mut shown = answer.clone();
        shown["path"] = Value::from(path.strip_prefix(folder).map_or(path, |name| name.trim_start_matches('/')));
        let drawn = drawing(answer, path, view.input.as_ref()?, &view.classes, api, false)?;
        let truth = answer["truth"].as_str().and_then(|file| file.strip_prefix("truth-")?.strip_suffix(".png"));
        let truth = truth.and_then(|number| number.parse::<u32>().ok()).map(|number| format!("{api}/truth-{number}"));
        let one = if answer["iou"].is_number() {
            shown["mask"] = drawn.mask.clone().into();
            Prediction::Segmentation(serde_json::from_value(shown).ok()?)
        } else {
            Prediction::Detection(serde_json::from_value(shown).ok()?)
        };
        let picture = Drawing { mask: None, boxes: Vec::new(), ..drawn };
        Some(PredictionCard::new(one, Some((picture, truth)), &view.classes))
    };
    answers.into_iter().take(PAGE_SIZE).filter_map(card).collect()
}

/// What was found of labels.
fn sentences(labels: &LabelSummary, has_boxes: bool) -> Vec<String> {
    if labels.source.is_empty() {
        return Vec::new();
    }
    let images = |count: u64| if count == 1 { "1 image".to_owned() } else { format!("{count} images") };
    let mut said = vec![format!("{} scored on labels of the kind {}.", images(labels.scored), labels.source)];
    if labels.unscored > 0 {
        said.push(format!("{} not scored: no labels, or labels that cannot be used.", images(labels.unscored)));
    }
    if labels.dropped_boxes > 0 {
        said.push(format!("{} boxes of the labels cannot be used.", labels.dropped_boxes));
    }
    if !labels.unknown.is_empty() {
        let word = if has_boxes { "boxes" } else { "pixels" };
        let each: Vec<String> =
            labels.unknown.iter().take(10).map(|one| format!("{} ({} {word})", one.class, one.count)).collect();
        let more = if labels.unknown.len() > 10 { ", …" } else { "" };
        said.push(format!("Not scored, because the model does not have the class: {}{more}.", each.join(", ")));
    }
    said
}

/// The most frequent first.
fn classes(rows: &[(Vec<ScoredLabel>, &Value)], chosen: &str, list: &str) -> Vec<ClassLink> {
    let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for first in rows.iter().filter_map(|(said, _)| said.first()) {
        *counts.entry(&first.class).or_default() += 1;
    }
    let link = |(class, count): (&str, usize)| {
        let href = href(list, [("class", class)]);
        ClassLink { class: class.to_owned(), count, href, is_chosen: class == chosen }
    };
    let mut links: Vec<ClassLink> = counts.into_iter().map(link).collect();
    links.sort_by_key(|link| std::cmp::Reverse(link.count));
    links
}

/// A picture of the reader's, drawn small by the portal.
fn thumb(path: &str) -> String {
    href("/api/v1/dataset-example", [("path", path), ("resize", "fill"), ("width", "160"), ("height", "128")])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn truth_is_beside_the_prediction_the_worst_first() {
        let mut view = TestView::from(crate::model::ModelTest {
            id: crate::model::ModelTestId::new(),
            model: crate::model::ModelId::new(),
            owner: crate::model::UserId::new(),
            job: crate::model::JobId::new(),
            snapshot: String::new(),
            picture: "/data".to_owned(),
            directory: String::new(),
            created_at: crate::model::Timestamp(0),
        });
        view.classes = vec!["car".to_owned(), "dog".to_owned()];
        view.input = serde_json::from_value(json!({"width": 64, "height": 64, "channels": 3, "resize": "fill"})).ok();
        let there = json!({"class": "dog", "x": 1.0, "y": 2.0, "width": 3.0, "height": 4.0, "found": false});
        let found =
            json!({"class": "car", "x": 1.0, "y": 2.0, "width": 3.0, "height": 4.0, "score": 0.5, "hit": false});
        let right = json!({"path": "/data/a.png", "boxes": [], "truth": [], "missed": 0, "extra": 0});
        let wrong = json!({"path": "/data/b/b.png", "boxes": [found], "truth": [there], "missed": 1, "extra": 1});
        let cards = scored_cards([&right, &wrong].into_iter(), &view, "/api", "/data");
        assert_eq!((cards[0].path.as_str(), cards[0].title.as_str()), ("b/b.png", "1 missed, 1 extra"));
        assert_eq!(cards[0].drawings.iter().map(|one| one.boxes[0].colour).collect::<Vec<_>>(), [1, 0]);
        let mask = json!({"path": "/data/c.png", "mask": "mask-00007.png", "truth": "truth-00007.png", "iou": 0.25,
            "accuracy": 0.5, "share": {"car": 1.0}});
        let [card] = &scored_cards([&mask].into_iter(), &view, "/api", "/data")[..] else { panic!() };
        let masks: Vec<_> = card.drawings.iter().map(|one| one.mask.as_deref()).collect();
        assert_eq!((card.title.as_str(), masks), ("IoU 0.250", vec![Some("/api/truth-7"), Some("/api/mask-7")]));
        assert!(is_compared(&mask) && is_compared(&wrong) && !is_compared(&json!({"boxes": []})));
    }

    #[test]
    fn labels_are_summed_up() {
        let labels: LabelSummary = serde_json::from_value(json!({"source": "yolo", "scored": 4, "unscored": 1,
            "dropped_boxes": 2, "unknown": [{"class": "star", "count": 3}]}))
        .unwrap();
        let said = sentences(&labels, true);
        assert_eq!(said[0], "4 images scored on labels of the kind yolo.");
        assert_eq!(said[3], "Not scored, because the model does not have the class: star (3 boxes).");
        assert_eq!((said.len(), sentences(&LabelSummary::default(), true).len()), (4, 0));
    }

    #[test]
    fn classes_by_how_often_they_come_first() {
        let answer = |class: &str| json!({"top": [{"class": class, "probability": 0.5}]});
        let answers = [answer("a&b"), answer("cat"), answer("cat"), json!({"error": "is empty"})];
        let rows: Vec<_> = answers.iter().map(|answer| (said(answer), answer)).collect();
        let links = classes(&rows, "cat", "/x");
        assert_eq!(links.iter().map(|link| (&*link.class, link.count)).collect::<Vec<_>>(), [("cat", 2), ("a&b", 1)]);
        assert!(links[0].is_chosen && links[1].href == "/x?class=a%26b");
        assert!(thumb("/home/ada/a b.png").contains("path=%2Fhome%2Fada%2Fa+b.png"));
    }
}
