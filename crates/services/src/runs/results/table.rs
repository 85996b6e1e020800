//! The table of results, made of digests: which rows the filter leaves, in which order they stand, what each comes
//! to beside a baseline, and what groups of them come to. Nothing here waits for anybody; what is not in the
//! digests, a metric at a step, is looked up between [`plan`] and [`Plan::table`].

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use super::{
    columns::{ColumnRef, Pick, columns},
    digest::{self, Digest, Metric},
    expression::{self, Expression, Name, parse},
    groups::spread,
    kind::{BetterDirection, better},
};
use lyceum_model::{FieldError, Run, RunId};

pub use super::{
    columns::{Column, Kind},
    groups::{Band, Group, Spread},
};

/// How a table is asked for.
#[derive(Clone, Debug)]
pub struct TableQuery {
    /// In the language of [`expression`].
    pub filter: String,
    pub which: MetricValue,
    /// At most two are looked at.
    pub order: Vec<Order>,
    /// The keys or names of the columns to show; without them: what differs.
    pub columns: Option<Vec<String>>,
    /// Also hyper-parameters that are the same in all runs.
    pub with_same: bool,
    /// The hyper-parameter whose values make groups.
    pub group: Option<String>,
    /// The run that the others are compared with.
    pub base: Option<RunId>,
    pub limit: usize,
    /// Rows behind this one.
    pub after: Option<RunId>,
}

/// Which value of each metric is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricValue {
    /// The least of a loss, the greatest of an accuracy, the last of anything else.
    #[default]
    Best,
    Last,
    /// At the last step that is not behind this one.
    At(i64),
}

/// One column of the order: its key (`name`, `created`, `p:lr`, `m:val/loss`), and whether the greatest stands first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub key: String,
    pub descending: bool,
}

impl Order {
    /// Writes it as it stands in an address: the column, with `-` before it for the other direction.
    pub fn word(&self) -> String {
        format!("{}{}", if self.descending { "-" } else { "" }, self.key)
    }
}

/// A run with what is known of it.
pub struct RunLine {
    pub run: Run,
    pub digest: Arc<Digest>,
    /// The values of sweep parameters that it was started with.
    pub given: Arc<BTreeMap<String, Value>>,
    pub at: StepValues,
}

impl RunLine {
    /// A hyperparameter as the program logged it, or else as its sweep gave it.
    fn param(&self, name: &str) -> Option<&Value> {
        self.digest.params.get(name).or_else(|| self.given.get(name))
    }

    /// All hyperparameters.
    pub fn params(&self) -> impl Iterator<Item = (&String, &Value)> {
        let is_new = |(name, _): &(&String, &Value)| !self.digest.params.contains_key(*name);
        self.digest.params.iter().chain(self.given.iter().filter(is_new))
    }
}

/// Values at a step, where they have been looked up.
#[derive(Default)]
pub struct StepValues(pub Option<HashMap<String, (f64, i64)>>);

/// Metrics whose values at a step are wanted.
pub struct StepQuery(pub BTreeSet<String>);

#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// All there are; rows have those that are shown.
    pub columns: Vec<Column>,
    pub items: Vec<Item>,
    pub groups: Vec<Group>,
    /// How many runs it is made of, and how many the filter leaves.
    pub total: usize,
    pub matched: usize,
    /// There are more runs than a table is made of.
    pub truncated: bool,
    /// There are more rows behind the last one.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub run: Run,
    /// One for each column that is shown.
    pub cells: Vec<Cell>,
}

/// What a run has in a column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// `None`: it has nothing there. Null: a metric that is not finite.
    pub value: Option<Value>,
    /// Of a metric.
    pub step: Option<i64>,
    /// How far it is from the baseline's.
    pub delta: Option<f64>,
    /// The best of all rows.
    pub is_best: bool,
    pub line: Option<digest::CurveOutline>,
}

/// A question that was understood.
pub struct Plan<'a> {
    asked: &'a TableQuery,
    columns: Vec<Column>,
    filter: Expression<ColumnRef>,
    order: Vec<(ColumnRef, bool)>,
    /// The name of the hyper-parameter that makes groups.
    group: Option<String>,
}

/// Reads what is asked, against the columns that there are.
pub fn plan<'a>(lines: &[RunLine], asked: &'a TableQuery) -> Result<Plan<'a>, FieldError> {
    let columns = columns(lines, asked.columns.as_deref(), asked.with_same);
    let fault = |fault: expression::Fault| FieldError::new("where", "invalid_expression", fault.to_string());
    let read = parse(&asked.filter).map_err(fault)?;
    // Without a run there is no column, and whatever is asked for is not there.
    let filter = if lines.is_empty() {
        Expression::Everything
    } else {
        read.bind(&mut |name| ColumnRef::of_name(name, &columns)).map_err(fault)?
    };
    let mut order = Vec::new();
    for one in asked.order.iter().take(2).filter(|_| !lines.is_empty()) {
        let place = meant("sort", &one.key, &columns)?;
        order.push((place, one.descending));
    }
    let group = match asked.group.as_deref().filter(|_| !lines.is_empty()) {
        None => None,
        Some(key) => {
            let ColumnRef::Param(name) = meant("group", key, &columns)? else {
                let message = "Runs can be grouped by hyperparameters only.";
                return Err(FieldError::new("group", "unknown_column", message));
            };
            Some(name)
        }
    };
    Ok(Plan { asked, columns, filter, order, group })
}

/// The column that a key or a name says; a name as in filters.
fn meant(field: &str, word: &str, columns: &[Column]) -> Result<ColumnRef, FieldError> {
    let name = || Name { which: None, text: word.to_owned(), at: 0 };
    let found = ColumnRef::of_key(word, columns).map_or_else(|| ColumnRef::of_name(&name(), columns), Ok);
    found.map_err(|fault| FieldError::new(field, "unknown_column", fault.message))
}

impl Plan<'_> {
    /// The rows that may be in the table, as far as is known.
    pub fn open(&self, lines: &[RunLine]) -> Vec<usize> {
        let is_open =
            |line: &RunLine| self.filter.picks(&line.run.name, &|place| self.cell(line, place)) != Some(false);
        lines.iter().enumerate().filter(|(_, line)| is_open(line)).map(|(at, _)| at).collect()
    }

    /// The metrics that rows are shown, ordered or picked by as the table shows them.
    pub fn wanted(&self) -> StepQuery {
        let mut wanted: BTreeSet<String> = self.metrics().map(|column| column.label.clone()).collect();
        let mut take = |place: &ColumnRef| {
            if let ColumnRef::Metric(name, Pick::Shown) = place {
                wanted.insert(name.clone());
            }
        };
        self.order.iter().for_each(|(place, _)| take(place));
        let found = self.filter.bind(&mut |place: &ColumnRef| {
            take(place);
            Ok::<_, ()>(())
        });
        drop(found);
        StepQuery(wanted)
    }

    fn shown(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.shown)
    }

    fn metrics(&self) -> impl Iterator<Item = &Column> {
        self.shown().filter(|column| column.kind == Kind::Metric)
    }

    pub fn table(self, lines: Vec<RunLine>, truncated: bool) -> Table {
        let total = lines.len();
        let mut rows: Vec<RunLine> = Vec::new();
        let mut base = None;
        for line in lines {
            let is_picked = self.filter.picks(&line.run.name, &|place| self.cell(&line, place)) == Some(true);
            if self.asked.base == Some(line.run.id) {
                // It is compared with even where the filter leaves it out.
                base = Some(self.shown().map(|column| self.shown_cell(&line, column)).collect::<Vec<_>>());
            }
            if is_picked {
                rows.push(line);
            }
        }
        self.sort(&mut rows);
        let bests: Vec<Option<f64>> = self.shown().map(|column| self.best_of(&rows, column)).collect();
        let groups = self.group.as_deref().map(|name| self.groups(&rows, name)).unwrap_or_default();
        let matched = rows.len();
        let first = self
            .asked
            .after
            .map_or(0, |after| rows.iter().position(|line| line.run.id == after).map_or(matched, |place| place + 1));
        let more = first + self.asked.limit < matched;
        let page = rows.into_iter().skip(first).take(self.asked.limit);
        let items = page.map(|line| self.item(line, base.as_deref(), &bests)).collect();
        Table { items, groups, total, matched, truncated, more, columns: self.columns }
    }

    fn item(&self, line: RunLine, base: Option<&[Cell]>, bests: &[Option<f64>]) -> Item {
        let is_base = self.asked.base == Some(line.run.id);
        let cell = |(at, column): (usize, &Column)| {
            let mut cell = self.shown_cell(&line, column);
            if column.kind == Kind::Metric {
                let value = cell.value.as_ref().and_then(Value::as_f64);
                let other = base.filter(|_| !is_base).and_then(|base| base[at].value.as_ref()?.as_f64());
                cell.delta = value.zip(other).map(|(value, other)| value - other);
                cell.is_best = value.is_some() && value == bests[at];
            }
            cell
        };
        let cells = self.shown().enumerate().map(cell).collect();
        Item { run: line.run, cells }
    }

    fn shown_cell(&self, line: &RunLine, column: &Column) -> Cell {
        match column.kind {
            Kind::Param => Cell { value: line.param(&column.label).cloned(), ..Cell::default() },
            Kind::Metric => line.digest.metrics.get(&column.label).map_or_else(Cell::default, |metric| {
                let found = self.value(line, &column.label, metric, Pick::Shown).and_then(|known| known.0);
                let is_looked_up = matches!(self.asked.which, MetricValue::At(_));
                Cell {
                    // Before its first step a curve has nothing; otherwise what is not there was not finite.
                    value: match found {
                        Some((value, _)) => Some(value.into()),
                        None => (!is_looked_up).then_some(Value::Null),
                    },
                    step: found.map(|(_, step)| step),
                    line: Some(metric.line.clone()),
                    ..Cell::default()
                }
            }),
        }
    }

    /// The value and its step; `None`: it was not looked up.
    fn value(&self, line: &RunLine, name: &str, metric: &Metric, pick: Pick) -> Option<KnownValue> {
        let best = || match better(name) {
            Some(BetterDirection::Less) => metric.min,
            Some(BetterDirection::More) => metric.max,
            None => metric.last,
        };
        Some(KnownValue(match (pick, self.asked.which) {
            (Pick::Shown, MetricValue::At(_)) => line.at.0.as_ref()?.get(name).copied(),
            (Pick::Last, _) | (Pick::Shown, MetricValue::Last) => metric.last,
            (Pick::Best, _) | (Pick::Shown, MetricValue::Best) => best(),
            (Pick::Min, _) => metric.min,
            (Pick::Max, _) => metric.max,
        }))
    }

    /// What a row is picked or ordered by.
    fn cell(&self, line: &RunLine, place: &ColumnRef) -> expression::Cell {
        use expression::Cell;
        #[expect(clippy::cast_precision_loss, reason = "compared with what a user typed")]
        let number = |number: i64| Cell::Number(number as f64);
        let text = |text: &str| Cell::Text(text.to_owned());
        match place {
            ColumnRef::Name => text(&line.run.name),
            ColumnRef::Owner => text(&line.run.owner_name),
            ColumnRef::Directory => text(&line.run.directory),
            ColumnRef::Points => number(line.run.reading.points.cast_signed()),
            ColumnRef::Created => number(line.run.created_at.0 / 1000),
            ColumnRef::Complete => text(if line.run.reading.complete { "yes" } else { "no" }),
            ColumnRef::Param(name) => match line.param(name) {
                None | Some(Value::Null) => Cell::Nothing,
                Some(Value::Number(number)) => number.as_f64().map_or(Cell::Nothing, Cell::Number),
                Some(Value::String(words)) => text(words),
                Some(other) => Cell::Text(other.to_string()),
            },
            ColumnRef::Metric(name, pick) => match line.digest.metrics.get(name) {
                None => Cell::Nothing,
                Some(metric) => match self.value(line, name, metric, *pick) {
                    None => Cell::Unknown,
                    Some(KnownValue(value)) => value.map_or(Cell::Nothing, |(value, _)| Cell::Number(value)),
                },
            },
        }
    }

    /// What is missing stands last, whichever way; what is alike stays in its order, the newest first.
    fn sort(&self, rows: &mut [RunLine]) {
        if self.order.is_empty() {
            return;
        }
        rows.sort_by_cached_key(|line| {
            Ordered(self.order.iter().map(|(place, descending)| (self.cell(line, place), *descending)).collect())
        });
    }

    fn best_of(&self, rows: &[RunLine], column: &Column) -> Option<f64> {
        let better = column.better?;
        let values: Vec<f64> = rows.iter().filter_map(|line| self.shown_cell(line, column).value?.as_f64()).collect();
        let best = values.iter().copied().reduce(|one, other| match better {
            BetterDirection::Less => one.min(other),
            BetterDirection::More => one.max(other),
        });
        best.filter(|_| values.len() > 1)
    }

    fn groups(&self, rows: &[RunLine], name: &str) -> Vec<Group> {
        let mut places: HashMap<Option<String>, usize> = HashMap::new();
        let mut members: Vec<(Option<Value>, Vec<&RunLine>)> = Vec::new();
        for line in rows {
            let value = line.param(name).filter(|value| !value.is_null());
            let place = *places.entry(value.map(Value::to_string)).or_insert_with(|| {
                members.push((value.cloned(), Vec::new()));
                members.len() - 1
            });
            members[place].1.push(line);
        }
        // Rows stand in their order, and groups in that of their first row, unless nobody said one.
        if self.order.is_empty() {
            let key = |value: &Option<Value>| Ordered(vec![(plain(value.as_ref()), false)]);
            members.sort_by_cached_key(|(value, _)| key(value));
        }
        let group = |(value, lines): (Option<Value>, Vec<&RunLine>)| Group {
            value,
            runs: lines.iter().map(|line| line.run.id).collect(),
            spreads: self.metrics().map(|column| self.spread(&lines, column)).collect(),
        };
        members.into_iter().map(group).collect()
    }

    fn spread(&self, lines: &[&RunLine], column: &Column) -> Option<Spread> {
        let metrics = lines.iter().filter_map(|line| Some((*line, line.digest.metrics.get(&column.label)?)));
        let (mut values, mut curves) = (Vec::new(), Vec::new());
        for (line, metric) in metrics {
            if let Some(KnownValue(Some((value, _)))) = self.value(line, &column.label, metric, Pick::Shown) {
                values.push(value);
                curves.push(&metric.line);
            }
        }
        spread(&values, &curves)
    }
}

fn plain(value: Option<&Value>) -> expression::Cell {
    use expression::Cell;
    match value {
        None => Cell::Nothing,
        Some(Value::Number(number)) => number.as_f64().map_or(Cell::Nothing, Cell::Number),
        Some(Value::String(text)) => Cell::Text(text.clone()),
        Some(other) => Cell::Text(other.to_string()),
    }
}

/// A value that was looked up, with its step; `None` where there is none, or it is not finite.
struct KnownValue(Option<(f64, i64)>);

/// Cells to order by, each with whether the greatest stands first.
#[derive(PartialEq)]
struct Ordered(Vec<(expression::Cell, bool)>);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        use expression::Cell::{Nothing, Number, Text, Unknown};
        let one = |((a, descending), (b, _)): (&(expression::Cell, bool), &(expression::Cell, bool))| {
            let order = match (a, b) {
                (Nothing | Unknown, Nothing | Unknown) => Ordering::Equal,
                (Nothing | Unknown, _) => return Ordering::Greater,
                (_, Nothing | Unknown) => return Ordering::Less,
                (Number(a), Number(b)) => a.total_cmp(b),
                (Text(a), Text(b)) => a.to_lowercase().cmp(&b.to_lowercase()),
                (Number(_), Text(_)) => Ordering::Less,
                (Text(_), Number(_)) => Ordering::Greater,
            };
            if *descending { order.reverse() } else { order }
        };
        self.0.iter().zip(&other.0).map(one).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}
