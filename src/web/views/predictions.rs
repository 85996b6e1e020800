//! `/models/{id}/predictions`: images of a split with what the model predicted, the worst first; the
//! cards are also on the model's page. Objects and masks are drawn beside the true ones.

use askama::Template;

use super::{Drawing, DrawnObject, LegendLine, colour_of};
use crate::{
    models::{BoxPrediction, MaskPrediction, Prediction, SHOWN_SCORE},
    web::page::{Layout, filters},
};

/// The most boxes that are drawn on an image, and the score from which they are.
const BOXES: usize = 50;
const MIN_SCORE: f64 = 0.05;

#[derive(Debug, Template)]
#[template(path = "models/predictions.html")]
pub struct PredictionsPage {
    pub layout: Layout,
    pub model: (String, String),
    pub kind: String,
    pub split: String,
    pub label: String,
    pub predicted: String,
    pub wrong: bool,
    pub total: usize,
    pub cards: Vec<PredictionCard>,
    pub legend: Vec<LegendLine>,
}

impl PredictionsPage {
    /// Whether an image is shown twice, beside what the model made of it.
    pub fn has_pairs(&self) -> bool {
        super::models::has_pairs(&self.kind)
    }
}

/// An image with its prediction.
#[derive(Clone, Debug, Default)]
pub struct PredictionCard {
    pub path: String,
    /// What was predicted, and how sure or how good that is.
    pub title: String,
    pub value: String,
    pub lines: Vec<String>,
    pub is_right: bool,
    /// Nothing where the dataset cannot be seen. For boxes and masks: the truth, and the prediction.
    pub drawings: Vec<Drawing>,
    /// What the two drawings are.
    pub sides: (&'static str, &'static str),
}

/// What the two drawings of boxes and masks are.
const TRUTH_AND_PREDICTION: (&str, &str) = ("Ground truth", "Prediction");

/// A number of four digits that count.
pub(super) fn short(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 9")]
    let places = (3.0 - value.abs().max(1e-6).log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

impl PredictionCard {
    /// Makes a card; `picture` is the image with its size, and the true mask of a segmentation.
    pub fn new(one: Prediction, picture: Option<(Drawing, Option<String>)>, classes: &[String]) -> Self {
        match one {
            Prediction::Classification(one) => Self {
                title: one.predicted.clone(),
                value: format!("{:.0} %", one.confidence * 100.0),
                lines: vec![format!("true class: {}", one.label)],
                is_right: one.label == one.predicted,
                drawings: picture.map(|(drawing, _)| drawing).into_iter().collect(),
                sides: TRUTH_AND_PREDICTION,
                path: one.path,
            },
            Prediction::Detection(one) => Self::of_boxes(one, picture.map(|(drawing, _)| drawing), classes),
            Prediction::Segmentation(one) => Self::of_mask(one, picture),
            Prediction::Regression(one) => Self {
                title: format!("{} {}", one.output, short(one.predicted)),
                value: String::new(),
                lines: vec![format!("true value: {}, error: {}", short(one.truth), short(one.error))],
                is_right: true,
                drawings: picture.map(|(drawing, _)| drawing).into_iter().collect(),
                sides: TRUTH_AND_PREDICTION,
                path: one.path,
            },
            Prediction::Reconstruction(one) => {
                let drawings = picture.map(|(drawing, _)| {
                    let input = Drawing { alt: format!("{}, input", drawing.alt), ..drawing.clone() };
                    let alt = format!("{}, output", drawing.alt);
                    let output = one.image.map(|picture| Drawing { picture, alt, ..drawing });
                    [Some(input), output].into_iter().flatten().collect()
                });
                Self {
                    title: format!("PSNR {:.1} dB", one.psnr),
                    value: String::new(),
                    lines: vec![format!("mean squared error: {}", short(one.mse))],
                    is_right: true,
                    drawings: drawings.unwrap_or_default(),
                    sides: ("Input", "Output"),
                    path: one.path,
                }
            }
        }
    }

    fn of_boxes(one: BoxPrediction, picture: Option<Drawing>, classes: &[String]) -> Self {
        let shown = one.boxes.iter().filter(|found| found.score >= SHOWN_SCORE).count();
        let title = match (one.missed, one.extra) {
            (0, 0) => "no errors".to_owned(),
            (missed, 0) => format!("{missed} missed"),
            (0, extra) => format!("{extra} extra"),
            (missed, extra) => format!("{missed} missed, {extra} extra"),
        };
        let truth = one.truth.iter().map(|there| DrawnObject {
            colour: colour_of(classes, &there.class),
            class: there.class.clone(),
            x: there.x,
            y: there.y,
            width: there.width,
            height: there.height,
            score: None,
            is_wrong: !there.found,
        });
        let found = one.boxes.iter().filter(|found| found.score >= MIN_SCORE).take(BOXES);
        let found = found.map(|found| DrawnObject {
            colour: colour_of(classes, &found.class),
            class: found.class.clone(),
            x: found.x,
            y: found.y,
            width: found.width,
            height: found.height,
            score: Some(found.score),
            is_wrong: !found.hit,
        });
        let drawings = picture.map(|drawing| {
            let truth =
                Drawing { boxes: truth.collect(), alt: format!("{}, ground truth", drawing.alt), ..drawing.clone() };
            let found = Drawing { boxes: found.collect(), alt: format!("{}, prediction", drawing.alt), ..drawing };
            vec![truth, found]
        });
        Self {
            title,
            value: String::new(),
            lines: vec![format!("{} true, {shown} predicted", one.truth.len())],
            is_right: one.missed + one.extra == 0,
            drawings: drawings.unwrap_or_default(),
            sides: TRUTH_AND_PREDICTION,
            path: one.path,
        }
    }

    fn of_mask(one: MaskPrediction, picture: Option<(Drawing, Option<String>)>) -> Self {
        let drawings = picture.map(|(drawing, truth)| {
            let truth = Drawing { mask: truth, alt: format!("{}, ground truth", drawing.alt), ..drawing.clone() };
            let found = Drawing { mask: one.mask.clone(), alt: format!("{}, prediction", drawing.alt), ..drawing };
            // Without a stored mask there would be a bare image.
            if found.mask.is_some() { vec![truth, found] } else { vec![truth] }
        });
        let mut parts: Vec<_> = one.classes.iter().filter(|part| part.iou.is_some()).collect();
        parts.sort_by(|one, other| other.share.total_cmp(&one.share));
        let line = |part: &&crate::models::ClassShare| {
            format!("{}: IoU {:.2}, {:.0} % of the image", part.class, part.iou.unwrap_or_default(), part.share * 100.0)
        };
        Self {
            title: format!("IoU {:.3}", one.iou),
            value: String::new(),
            lines: parts.iter().take(3).map(line).collect(),
            is_right: one.iou >= 0.5,
            drawings: drawings.unwrap_or_default(),
            sides: TRUTH_AND_PREDICTION,
            path: one.path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        for (value, text) in
            [(0.0, "0"), (1.5, "1.5"), (41.23456, "41.23"), (123_456.7, "123457"), (-0.001_234_56, "-0.001235")]
        {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn what_a_network_made_is_beside_its_input() {
        let one = crate::models::ImagePrediction {
            path: "a.png".to_owned(),
            mse: 0.01,
            psnr: 20.0,
            image: Some("/api/v1/models/x/masks/val/3".to_owned()),
        };
        let drawing = Drawing { picture: "/seen".to_owned(), ..Drawing::default() };
        let card = PredictionCard::new(Prediction::Reconstruction(one), Some((drawing, None)), &[]);
        let [input, output] = &card.drawings[..] else { panic!() };
        assert_eq!((input.picture.as_str(), output.picture.as_str()), ("/seen", "/api/v1/models/x/masks/val/3"));
        assert_eq!((card.sides, card.title.as_str()), (("Input", "Output"), "PSNR 20.0 dB"));
    }
    use crate::models::{ScoredBox, TrueBox};

    #[test]
    fn boxes_are_drawn_beside_the_true_ones() {
        let found = |score: f64, hit: bool| ScoredBox { class: "car".to_owned(), score, hit, ..ScoredBox::default() };
        let one = BoxPrediction {
            path: "a.png".to_owned(),
            missed: 1,
            extra: 0,
            boxes: vec![found(0.9, true), found(0.1, false), found(0.01, false)],
            truth: vec![TrueBox { class: "dog".to_owned(), ..TrueBox::default() }],
        };
        let classes = ["dog".to_owned(), "car".to_owned()];
        let card = PredictionCard::new(Prediction::Detection(one), Some((Drawing::default(), None)), &classes);
        assert_eq!(
            (card.title.as_str(), card.lines[0].as_str(), card.is_right),
            ("1 missed", "1 true, 1 predicted", false)
        );
        let [truth, found] = &card.drawings[..] else { panic!() };
        assert_eq!((truth.boxes.len(), found.boxes.len()), (1, 2));
        assert_eq!((truth.boxes[0].colour, found.boxes[0].colour), (0, 1));
        assert!(truth.boxes[0].is_wrong && !found.boxes[0].is_wrong && found.boxes[1].is_below());
    }
}
