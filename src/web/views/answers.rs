//! `/models/{id}/tests/{test}` of a folder: how often which class came first, and the pictures with
//! what was said of each, the surest of each class first.

use askama::Template;
use serde_json::Value;

use super::{Drawing, LegendLine, MeasuredSplit, Moment, ScoredLabel, answer::drawing, said};
use crate::web::{
    http::href::href,
    models::prediction::TestView,
    page::{Layout, filters},
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
    /// The colours of boxes or masks.
    pub legend: Vec<LegendLine>,
    /// Whether there are boxes, whose score can be chosen.
    pub has_boxes: bool,
    /// How it did on images whose class is known.
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
            }
        };
        let cards: Vec<AnswerCard> = rows.into_iter().take(PAGE_SIZE).map(card).collect();
        let mut legend: Vec<LegendLine> = Vec::new();
        if cards.iter().any(|card| card.drawing.is_some()) {
            let of_each = answers.iter().flat_map(|answer| super::answer::legend(answer, &view.classes));
            for line in of_each {
                if !legend.iter().any(|known| known.class == line.class) {
                    legend.push(LegendLine { value: String::new(), ..line });
                }
            }
            legend.sort_by_key(|line| view.classes.iter().position(|class| *class == line.class));
        }
        let evaluation = view.evaluation.as_ref().map(|found| MeasuredSplit::new(None, found, view.curves.as_ref()));
        Self {
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
