//! The columns that a table of results may have, from what its runs were given and came to: which hyper-parameters
//! differ, which metrics most runs have. How a column is found by what somebody typed stands here too.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    expression::{self, Fault, Name},
    kind::{self, BetterDirection},
    table::RunLine,
};

/// Where nobody says which, so many of each kind are shown.
const MAX_PARAMS_SHOWN: usize = 8;
const MAX_METRICS_SHOWN: usize = 5;

/// A hyperparameter or metric of the runs in a table.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ResultsColumn)]
pub struct Column {
    /// `p:` and a hyperparameter, or `m:` and a metric.
    pub key: String,
    pub label: String,
    pub kind: Kind,
    /// For a metric whose name says so: whether lower or higher values are better.
    pub better: Option<BetterDirection>,
    /// Whether all values are numbers.
    pub numeric: bool,
    /// Whether the runs have different values.
    pub differs: bool,
    /// Number of runs that have a value.
    pub filled: usize,
    /// Whether the rows contain this column.
    pub shown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ResultsColumnKind)]
pub enum Kind {
    Param,
    Metric,
}

/// Every column there is: hyper-parameters by name, then metrics, those first that most runs have and
/// that tell most. `chosen` says which are shown, by their keys or names; without it what differs is.
pub fn columns(lines: &[RunLine], chosen: Option<&[String]>, with_same: bool) -> Vec<Column> {
    let mut params: BTreeMap<&str, (usize, &Value, bool, bool)> = BTreeMap::new();
    let mut metrics: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines {
        for (name, value) in line.params() {
            let entry = params.entry(name).or_insert((0, value, false, true));
            entry.0 += 1;
            entry.2 |= entry.1 != value;
            entry.3 &= value.is_number() || value.is_null();
        }
        for name in line.digest.metrics.keys() {
            *metrics.entry(name).or_default() += 1;
        }
    }
    let mut all: Vec<Column> = Vec::with_capacity(params.len() + metrics.len());
    for (name, (filled, _, differs, numeric)) in params {
        let differs = differs || filled < lines.len();
        let key = format!("p:{name}");
        let (label, kind) = (name.to_owned(), Kind::Param);
        all.push(Column { key, label, kind, better: None, numeric, differs, filled, shown: false });
    }
    let mut metrics: Vec<_> = metrics.into_iter().collect();
    metrics.sort_by_key(|(name, filled)| (usize::MAX - filled, kind::weight(name)));
    for (name, filled) in metrics {
        let (key, label, better) = (format!("m:{name}"), name.to_owned(), kind::better(name));
        all.push(Column { key, label, kind: Kind::Metric, better, numeric: true, differs: true, filled, shown: false });
    }
    show(&mut all, chosen, with_same);
    all
}

fn show(all: &mut [Column], chosen: Option<&[String]>, with_same: bool) {
    if let Some(chosen) = chosen {
        for column in all {
            column.shown = chosen.contains(&column.key) || chosen.contains(&column.label);
        }
        return;
    }
    let (mut params, mut metrics) = (0, 0);
    // What hardly any run has would be a column of dashes.
    let most = all.iter().filter(|column| column.kind == Kind::Metric).map(|column| column.filled).max().unwrap_or(0);
    for column in all {
        let (count, room) = match column.kind {
            Kind::Param => (&mut params, MAX_PARAMS_SHOWN),
            Kind::Metric => (&mut metrics, MAX_METRICS_SHOWN),
        };
        let is_meant = match column.kind {
            Kind::Param => column.differs || with_same,
            Kind::Metric => most <= column.filled.saturating_mul(4),
        };
        column.shown = is_meant && *count < room;
        *count += usize::from(column.shown);
    }
}

/// What a row is picked or ordered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnRef {
    Name,
    Owner,
    Directory,
    Points,
    Created,
    /// Everything has been read, and nobody writes any more.
    Complete,
    Param(String),
    Metric(String, Pick),
}

/// Which value of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// As the table shows it.
    Shown,
    Last,
    Best,
    Min,
    Max,
}

const OWN: [(&str, ColumnRef); 6] = [
    ("name", ColumnRef::Name),
    ("owner", ColumnRef::Owner),
    ("directory", ColumnRef::Directory),
    ("points", ColumnRef::Points),
    ("created", ColumnRef::Created),
    ("complete", ColumnRef::Complete),
];

impl ColumnRef {
    /// The place of a key, as the order has them.
    pub fn of_key(key: &str, columns: &[Column]) -> Option<Self> {
        let found = columns.iter().find(|column| column.key == key).map(of_column);
        found.or_else(|| OWN.iter().find(|(name, _)| *name == key).map(|(_, place)| place.clone()))
    }

    /// The place that somebody meant in a filter: in whatever case, and by its last part where that is clear.
    pub fn of_name(name: &Name, columns: &[Column]) -> Result<Self, Fault> {
        use expression::Statistic;
        let wanted = name.text.to_lowercase();
        let pick = match name.which {
            None => {
                if let Some((_, place)) = OWN.iter().find(|(own, _)| *own == wanted) {
                    return Ok(place.clone());
                }
                Pick::Shown
            }
            Some(Statistic::Param | Statistic::Metric) => Pick::Shown,
            Some(Statistic::Last) => Pick::Last,
            Some(Statistic::Best) => Pick::Best,
            Some(Statistic::Min) => Pick::Min,
            Some(Statistic::Max) => Pick::Max,
        };
        let is_meant = |column: &&Column| match name.which {
            None => true,
            Some(Statistic::Param) => column.kind == Kind::Param,
            Some(_) => column.kind == Kind::Metric,
        };
        let meant: Vec<&Column> = columns.iter().filter(is_meant).collect();
        let is_end = |column: &&&Column| {
            let label = column.label.to_lowercase();
            label.strip_suffix(&wanted).is_some_and(|front| front.ends_with(['/', '.', ' ', '_']))
        };
        let exact = meant.iter().find(|column| column.label == name.text);
        let found = exact.or_else(|| meant.iter().find(|column| column.label.to_lowercase() == wanted)).copied();
        let ends: Vec<&Column> = meant.iter().filter(is_end).copied().collect();
        match (found, ends.as_slice()) {
            (Some(column), _) | (None, &[column]) => Ok(match of_column(column) {
                Self::Metric(metric, _) => Self::Metric(metric, pick),
                place => place,
            }),
            (None, []) => {
                Err(Fault { at: name.at, message: format!("Unknown column “{}”.", shortened(&name.text)) })
            }
            (None, [one, other, ..]) => {
                let (one, other) = (shortened(&one.label), shortened(&other.label));
                let message = format!(
                    "“{}” is ambiguous: it may be “{one}” or “{other}”. Give the full name.",
                    shortened(&name.text)
                );
                Err(Fault { at: name.at, message })
            }
        }
    }
}

fn of_column(column: &Column) -> ColumnRef {
    match column.kind {
        Kind::Param => ColumnRef::Param(column.label.clone()),
        Kind::Metric => ColumnRef::Metric(column.label.clone(), Pick::Shown),
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 60 { text.to_owned() } else { text.chars().take(59).chain(['…']).collect() }
}
