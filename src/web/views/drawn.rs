//! An image with a model's result drawn over it: boxes with class and score, or a mask with the colours
//! of its classes. Used by predictions, worst samples and inference results; SVG only, because the
//! content policy knows no styles.

use crate::models::{Prediction, SHOWN_SCORE};

/// How many colours there are for classes; they repeat.
pub const COLOURS: usize = 10;

/// An image and what is drawn over it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawing {
    pub picture: String,
    /// Text for readers who cannot see the image.
    pub alt: String,
    /// Size in pixels that the boxes refer to.
    pub width: u32,
    pub height: u32,
    /// Address of the mask.
    pub mask: Option<String>,
    pub boxes: Vec<DrawnObject>,
}

/// A box in a drawing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrawnObject {
    pub class: String,
    pub colour: usize,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    /// None for a true box.
    pub score: Option<f64>,
    /// Whether it has no counterpart: a missed true box, or a prediction that matches none.
    pub is_wrong: bool,
}

/// A class with its colour, and its share or number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegendLine {
    pub class: String,
    pub colour: usize,
    pub value: String,
}

impl Drawing {
    /// Returns the size of its text for an image that is shown at this height.
    pub fn font(&self, shown: f64) -> f64 {
        (f64::from(self.height.max(1)) * 11.0 / shown * 100.0).round() / 100.0
    }
}

impl DrawnObject {
    pub fn words(&self) -> String {
        match self.score {
            Some(score) => format!("{} {score:.2}", self.class),
            None => self.class.clone(),
        }
    }

    /// Whether it is hidden until the score slider is lowered.
    pub fn is_below(&self) -> bool {
        self.score.is_some_and(|score| score < SHOWN_SCORE)
    }

    /// Returns where its words begin: above the box, or inside where there is no room.
    pub fn text_y(&self, font: &f64) -> f64 {
        let above = self.y - 0.25 * font;
        if above < *font { self.y + font } else { above }
    }
}

/// Returns the colour of a class by its place in the list of classes.
pub fn colour_of(classes: &[String], class: &str) -> usize {
    classes.iter().position(|name| name == class).unwrap_or_default() % COLOURS
}

/// Returns the classes of the predictions with their colours; empty where no class is drawn.
pub fn legend_of(predictions: &[Prediction], classes: &[String]) -> Vec<LegendLine> {
    let mut named: Vec<&str> = Vec::new();
    for one in predictions {
        let classes: Vec<&str> = match one {
            Prediction::Classification(_) | Prediction::Regression(_) | Prediction::Reconstruction(_) => Vec::new(),
            Prediction::Detection(one) => {
                let found = one.boxes.iter().map(|found| found.class.as_str());
                found.chain(one.truth.iter().map(|there| there.class.as_str())).collect()
            }
            Prediction::Segmentation(one) => one.classes.iter().map(|share| share.class.as_str()).collect(),
        };
        for class in classes {
            if !named.contains(&class) {
                named.push(class);
            }
        }
    }
    let mut lines: Vec<LegendLine> =
        named.into_iter().map(|class| legend_line(classes, class, String::new())).collect();
    lines.sort_by_key(|line| classes.iter().position(|class| *class == line.class));
    lines
}

/// Returns a line of a legend.
pub fn legend_line(classes: &[String], class: &str, value: String) -> LegendLine {
    LegendLine { class: class.to_owned(), colour: colour_of(classes, class), value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_places_of_boxes() {
        let one = DrawnObject { class: "car".to_owned(), y: 40.0, score: Some(0.256), ..DrawnObject::default() };
        assert_eq!((one.words().as_str(), one.is_below()), ("car 0.26", true));
        assert!((one.text_y(&8.0) - 38.0).abs() < 1e-9);
        let truth = DrawnObject { y: 2.0, score: None, ..one };
        assert_eq!((truth.words().as_str(), truth.is_below()), ("car", false));
        assert!((truth.text_y(&8.0) - 10.0).abs() < 1e-9, "inside the box, because it begins at the edge");
        assert!((Drawing { height: 64, ..Drawing::default() }.font(128.0) - 5.5).abs() < 1e-9);
    }

    #[test]
    fn colours_repeat() {
        let classes: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        assert_eq!((colour_of(&classes, "11"), colour_of(&classes, "x")), (1, 0));
    }
}
