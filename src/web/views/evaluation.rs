//! The evaluation of a model on a split, or on labelled images of a user: metrics, confusion matrix,
//! curves and metrics of each class. A heat map is a table whose cells are links and have one of ten
//! classes of colour, because the content policy knows no styles.

use std::collections::BTreeMap;

use super::Plots;
use crate::{
    model::ModelId,
    models::{Confusion, Curves, Evaluation},
    web::http::href::href,
};

/// Maximum number of classes of which the whole confusion matrix is drawn.
const MAX_MAP_SIZE: usize = 40;
/// Of more classes, what was confused most often.
const WORST_PAIRS: usize = 20;

/// What the best snapshot says of a split.
#[derive(Clone, Debug)]
pub struct MeasuredSplit {
    pub word: &'static str,
    pub metrics: Vec<(String, String)>,
    /// The names of the measures, and a row for each class.
    pub columns: Vec<String>,
    pub classes: Vec<(String, Vec<String>)>,
    pub map: Option<HeatMap>,
    /// What was confused most often: truth, answer, how often, where the pictures are.
    pub pairs: Vec<(String, String, u64, Option<String>)>,
    pub wrong_href: Option<String>,
    /// Whether values are predicted, of which none is simply wrong.
    pub is_of_values: bool,
    /// Where to ask what would be answered from which confidence on.
    pub thresholds: Option<String>,
    pub plots: Plots,
}

#[derive(Clone, Debug)]
pub struct HeatMap {
    pub classes: Vec<String>,
    pub rows: Vec<(String, Vec<HeatCell>)>,
}

#[derive(Clone, Debug)]
pub struct HeatCell {
    pub count: u64,
    /// From 0 to 9: which share of its row.
    pub heat: u64,
    /// The same as a share of its row, and of its column; empty where the count is 0.
    pub of_row: String,
    pub of_column: String,
    pub column_heat: u64,
    pub is_right: bool,
    pub says: String,
    pub href: Option<String>,
}

/// Measures in the order in which they are shown; others follow.
const ORDER: [&str; 23] = [
    "map50",
    "map50_95",
    "ap50",
    "ap50_95",
    "iou",
    "accuracy",
    "top5",
    "pictures",
    "pixels",
    "boxes",
    "precision",
    "recall",
    "f1",
    "roc_auc",
    "mean_ap",
    "ap",
    "ece",
    "r2",
    "mae",
    "rmse",
    "psnr",
    "mse",
    "loss",
];

fn place(name: &str) -> usize {
    ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len())
}

impl MeasuredSplit {
    /// Makes the part of a page; images that are no split's have no model whose lists could be linked.
    pub fn new(model: Option<ModelId>, found: &Evaluation, curves: Option<&Curves>) -> Self {
        // Counts are whole, shares of one are not, not even when they are all of it.
        let number = |name: &str, value: f64| {
            if matches!(name, "pictures" | "pixels" | "boxes") { format!("{value:.0}") } else { format!("{value:.4}") }
        };
        let mut columns: Vec<String> = Vec::new();
        for name in found.classes.iter().flat_map(|one| one.measures.keys()) {
            if !columns.contains(name) && columns.len() < 10 {
                columns.push(name.clone());
            }
        }
        columns.sort_by_key(|name| place(name));
        let measure = |name: &String, one: &BTreeMap<String, Option<f64>>| {
            one.get(name).copied().flatten().map_or_else(|| "–".to_owned(), |value| number(name, value))
        };
        let classes = found.classes.iter().map(|one| {
            let row = columns.iter().map(|name| measure(name, &one.measures)).collect();
            (one.class.clone(), row)
        });
        let classes = classes.collect();
        // Only a classification has a list of pictures behind its counts; pixels have none.
        let has_pictures = found.metrics.contains_key("accuracy") && !found.metrics.contains_key("iou");
        let address = |query: &[(&str, &str)]| {
            let split = ("split", found.split.as_str());
            let path = format!("/models/{}/predictions", model?);
            Some(href(&path, [split].iter().chain(query)))
        };
        let is_of_values = ["rmse", "psnr"].iter().any(|name| found.metrics.contains_key(*name));
        let names: Vec<String> = found.classes.iter().map(|one| one.class.clone()).collect();
        let (map, pairs) = match &found.confusion {
            Some(confusion) => drawn(confusion, &|label, predicted| {
                address(&[("label", label), ("predicted", predicted)]).filter(|_| has_pictures)
            }),
            None => (None, Vec::new()),
        };
        let columns = columns.iter().map(|name| shown_metric(name)).collect();
        let mut metrics: Vec<(&String, &f64)> = found.metrics.iter().collect();
        metrics.sort_by_key(|(name, _)| place(name));
        Self {
            word: match found.split.as_str() {
                "test" => "test",
                "val" => "validation",
                _ => "",
            },
            metrics: metrics.iter().map(|(name, value)| (shown_metric(name), number(name, **value))).collect(),
            wrong_href: if is_of_values { address(&[]) } else { address(&[("wrong", "true")]) },
            is_of_values,
            thresholds: model
                .filter(|_| has_pictures)
                .map(|model| format!("/api/v1/models/{model}/thresholds?split={}", found.split)),
            plots: curves.map(|curves| Plots::new(curves, &names)).unwrap_or_default(),
            columns,
            classes,
            map,
            pairs,
        }
    }
}

/// Returns the name of a metric as pages show it.
pub fn shown_metric(name: &str) -> String {
    match name {
        "pictures" => "images",
        "map50" => "mAP50",
        "map50_95" => "mAP50–95",
        "ap50" => "AP50",
        "ap50_95" => "AP50–95",
        "ap" => "AP",
        "mean_ap" => "mean AP",
        "roc_auc" => "ROC AUC",
        "ece" => "ECE",
        "iou" => "IoU",
        "f1" => "F1",
        "r2" => "R²",
        "mae" => "MAE",
        "mse" => "MSE",
        "rmse" => "RMSE",
        "psnr" => "PSNR",
        "top5" => "top-5 accuracy",
        _ => return name.replace('_', " "),
    }
    .to_owned()
}

type Pairs = Vec<(String, String, u64, Option<String>)>;

fn drawn(confusion: &Confusion, address: &dyn Fn(&str, &str) -> Option<String>) -> (Option<HeatMap>, Pairs) {
    let Confusion { classes, counts } = confusion;
    let mut pairs: Vec<(u64, usize, usize)> = Vec::new();
    for (label, row) in counts.iter().enumerate() {
        pairs.extend(
            row.iter()
                .enumerate()
                .filter(|(answer, count)| *answer != label && **count > 0)
                .map(|(a, count)| (*count, label, a)),
        );
    }
    pairs.sort_by_key(|(count, label, answer)| (std::cmp::Reverse(*count), *label, *answer));
    let pair = |&(count, label, answer): &(u64, usize, usize)| {
        (classes[label].clone(), classes[answer].clone(), count, address(&classes[label], &classes[answer]))
    };
    let pairs = pairs.iter().take(WORST_PAIRS).map(pair).collect();
    if classes.len() > MAX_MAP_SIZE {
        return (None, pairs);
    }
    let mut columns = vec![0_u64; classes.len()];
    for row in counts {
        for (sum, count) in columns.iter_mut().zip(row) {
            *sum = sum.saturating_add(*count);
        }
    }
    let heat = |count: u64, of: u64| -> u64 {
        if count == 0 { 0 } else { (u128::from(count) * 9).div_ceil(u128::from(of.max(1))).try_into().unwrap_or(9) }
    };
    let rows = classes.iter().zip(counts).enumerate().map(|(at, (label, row))| {
        let total: u64 = row.iter().fold(0, |sum, count| sum.saturating_add(*count));
        let cells = row.iter().zip(classes).enumerate().map(|(answer, (&count, predicted))| HeatCell {
            count,
            heat: heat(count, total),
            column_heat: heat(count, columns[answer]),
            of_row: share(count, total),
            of_column: share(count, columns[answer]),
            is_right: at == answer,
            says: format!("{label} predicted as {predicted}: {count} of {total}"),
            href: address(label, predicted).filter(|_| count > 0),
        });
        (label.clone(), cells.collect())
    });
    (Some(HeatMap { classes: classes.clone(), rows: rows.collect() }), pairs)
}

/// Returns a share in percent; nothing for none.
fn share(count: u64, of: u64) -> String {
    if count == 0 {
        return String::new();
    }
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let percent = count as f64 * 100.0 / of as f64;
    format!("{percent:.1} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_has_shares_of_rows_and_of_columns() {
        let classes = vec!["a".to_owned(), "b".to_owned()];
        let confusion = Confusion { classes, counts: vec![vec![3, 1], vec![0, 1]] };
        let evaluation = Evaluation { split: "val".to_owned(), confusion: Some(confusion), ..Evaluation::default() };
        let found = MeasuredSplit::new(None, &evaluation, None);
        let map = found.map.unwrap();
        let cell = &map.rows[0].1[1];
        assert_eq!((cell.count, cell.of_row.as_str(), cell.of_column.as_str()), (1, "25.0 %", "50.0 %"));
        assert_eq!((cell.heat, cell.column_heat), (3, 5));
        assert_eq!((map.rows[1].1[0].of_row.as_str(), map.rows[1].1[0].heat), ("", 0));
        assert!(found.wrong_href.is_none() && cell.href.is_none());
    }

    #[test]
    fn the_metric_that_matters_comes_first() {
        let metrics = [("loss", 0.1), ("f1", 0.5), ("map50_95", 0.6), ("map50", 0.9), ("pictures", 8.0)];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
        let found = MeasuredSplit::new(None, &Evaluation { metrics, ..Evaluation::default() }, None);
        let names: Vec<&str> = found.metrics.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["mAP50", "mAP50–95", "images", "F1", "loss"]);
    }
}
