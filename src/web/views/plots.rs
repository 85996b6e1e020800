//! ROC, precision-recall and calibration curves as SVG paths: axes with titles, a line for each class,
//! and a legend with the area of each. Classes beyond a few are left to the API.

use std::fmt::Write as _;

use crate::models::{Calibration, ClassCurve, Curves, Scatter};

/// How many classes one plot shows: those with the smallest areas.
const LINES: usize = 10;
/// The side of the plot's area.
const SIDE: f64 = 200.0;

/// Curves over the unit square.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    pub title: &'static str,
    pub x: &'static str,
    pub y: &'static str,
    /// What the number of each class is.
    pub measure: &'static str,
    pub lines: Vec<PlotLine>,
    /// Number of all classes that have a curve.
    pub total: usize,
    /// Whether a diagonal shows what chance would give.
    pub has_diagonal: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlotLine {
    pub class: String,
    pub colour: usize,
    pub value: String,
    pub path: String,
}

/// Accuracy by confidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Reliability {
    pub ece: String,
    pub bars: Vec<ReliabilityBar>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReliabilityBar {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    pub says: String,
}

/// The plots of a split.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plots {
    pub plots: Vec<Plot>,
    pub reliability: Option<Reliability>,
    pub scatters: Vec<ScatterPlot>,
}

/// Predicted over true values of one output.
#[derive(Clone, Debug, PartialEq)]
pub struct ScatterPlot {
    pub output: String,
    /// A dot for each image, as one path.
    pub path: String,
    pub count: usize,
    /// The values at the five lines of the grid, from the least.
    pub ticks: [String; 5],
}

impl Plots {
    pub fn new(found: &Curves, classes: &[String]) -> Self {
        let roc = Plot {
            title: "ROC curve",
            x: "False positive rate",
            y: "True positive rate",
            measure: "AUC",
            lines: lines(&found.roc, classes, |one| one.auc),
            total: found.roc.len(),
            has_diagonal: true,
        };
        let recall = Plot {
            title: "Precision-recall curve",
            x: "Recall",
            y: "Precision",
            measure: "AP",
            lines: lines(&found.precision_recall, classes, |one| one.ap),
            total: found.precision_recall.len(),
            has_diagonal: false,
        };
        Self {
            plots: [roc, recall].into_iter().filter(|plot| !plot.lines.is_empty()).collect(),
            reliability: found.calibration.as_ref().map(reliability).filter(|found| !found.bars.is_empty()),
            scatters: found.scatter.iter().take(LINES).filter_map(scatter).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.plots.is_empty() && self.reliability.is_none() && self.scatters.is_empty()
    }
}

fn lines(curves: &[ClassCurve], classes: &[String], area: impl Fn(&ClassCurve) -> Option<f64>) -> Vec<PlotLine> {
    let mut chosen: Vec<&ClassCurve> = curves.iter().filter(|one| !one.x.is_empty()).collect();
    if LINES < chosen.len() {
        chosen.sort_by(|one, other| area(one).unwrap_or_default().total_cmp(&area(other).unwrap_or_default()));
        chosen.truncate(LINES);
    }
    let is_all = chosen.len() == curves.len();
    let line = |(at, one): (usize, &ClassCurve)| PlotLine {
        class: one.class.clone(),
        // The colour that the class has elsewhere, unless two of those that are shown would share it.
        colour: if is_all { super::colour_of(classes, &one.class) } else { at },
        value: area(one).map_or_else(|| "–".to_owned(), |area| format!("{area:.3}")),
        path: path(&one.x, &one.y),
    };
    chosen.into_iter().enumerate().map(line).collect()
}

fn path(x: &[f64], y: &[f64]) -> String {
    let mut drawn = String::new();
    for (at, (x, y)) in x.iter().zip(y).enumerate() {
        let place = |value: f64| value.clamp(0.0, 1.0) * SIDE;
        let _ = write!(drawn, "{}{:.1} {:.1}", if at == 0 { 'M' } else { 'L' }, place(*x), SIDE - place(*y));
    }
    drawn
}

/// Both axes have the same range, so that the diagonal is where predictions are right.
fn scatter(found: &Scatter) -> Option<ScatterPlot> {
    let points = found.truth.iter().zip(&found.predicted).filter(|(x, y)| x.is_finite() && y.is_finite());
    let points: Vec<(f64, f64)> = points.map(|(x, y)| (*x, *y)).collect();
    let all = || points.iter().flat_map(|(x, y)| [*x, *y]);
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    if points.is_empty() {
        return None;
    }
    let (least, most) = if most > least { (least, most) } else { (least - 0.5, most + 0.5) };
    let place = |value: f64| (value - least) / (most - least) * SIDE;
    let mut path = String::new();
    for (x, y) in &points {
        // A line of no length with round ends is a dot.
        let _ = write!(path, "M{:.1} {:.1}h0", place(*x), SIDE - place(*y));
    }
    let tick = |at: f64| super::predictions::short(least + (most - least) * at);
    let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(tick);
    Some(ScatterPlot { output: found.output.clone(), path, count: points.len(), ticks })
}

fn reliability(found: &Calibration) -> Reliability {
    let bar = |bin: &crate::models::CalibrationBin| {
        let place = |value: f64| value.clamp(0.0, 1.0) * SIDE;
        ReliabilityBar {
            x: place(bin.from) + 1.0,
            y: SIDE - place(bin.accuracy),
            width: (place(bin.to) - place(bin.from) - 2.0).max(0.0),
            height: place(bin.accuracy),
            says: format!(
                "confidence {:.0} to {:.0} %: {} images, accuracy {:.1} %, mean confidence {:.1} %",
                bin.from * 100.0,
                bin.to * 100.0,
                bin.count,
                bin.accuracy * 100.0,
                bin.confidence * 100.0
            ),
        }
    };
    Reliability { ece: format!("{:.4}", found.ece), bars: found.bins.iter().map(bar).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(class: usize, auc: f64) -> ClassCurve {
        ClassCurve { class: class.to_string(), auc: Some(auc), ap: None, x: vec![0.0, 1.0], y: vec![0.0, 2.0] }
    }

    #[test]
    fn a_scatter_has_the_same_range_in_both_directions() {
        let found =
            Scatter { output: "age".to_owned(), truth: vec![0.0, 10.0, f64::NAN], predicted: vec![5.0, 20.0, 1.0] };
        let plot = scatter(&found).unwrap();
        assert_eq!((plot.path.as_str(), plot.count), ("M0.0 150.0h0M100.0 0.0h0", 2));
        assert_eq!(plot.ticks, ["0", "5", "10", "15", "20"]);
        assert!(
            scatter(&Scatter { truth: vec![3.0], predicted: vec![3.0], ..found })
                .unwrap()
                .path
                .starts_with("M100.0 100.0")
        );
        assert_eq!(scatter(&Scatter::default()), None);
    }

    #[test]
    fn the_worst_of_many_classes_are_drawn() {
        let many: Vec<ClassCurve> = (0..12u32).map(|at| curve(at as usize, 1.0 - f64::from(at) / 100.0)).collect();
        let found = Plots::new(&Curves { roc: many, ..Curves::default() }, &[]);
        let plot = &found.plots[0];
        assert_eq!((found.plots.len(), plot.lines.len(), plot.total), (1, 10, 12));
        assert_eq!((plot.lines[0].class.as_str(), plot.lines[0].value.as_str()), ("11", "0.890"));
        assert_eq!(plot.lines[0].path, "M0.0 200.0L200.0 0.0");
    }

    #[test]
    fn bars_stand_where_their_confidence_is() {
        let bins =
            vec![crate::models::CalibrationBin { from: 0.5, to: 0.6, count: 4, confidence: 0.55, accuracy: 0.75 }];
        let found = reliability(&Calibration { ece: 0.2, bins });
        assert_eq!((found.ece.as_str(), found.bars[0].x, found.bars[0].y), ("0.2000", 101.0, 50.0));
        assert!(found.bars[0].says.contains("4 images, accuracy 75.0 %"));
    }
}
