//! The table of results as a page draws it: what is known of runs becomes text, small lines, and links that are the
//! page's own address with one thing changed. Which rows and columns there are has been decided.

use serde_json::Value;

use super::address::{Address, MAX_PICKED};
use crate::{
    model::Run,
    runs::{Band, Cell, Column, Group, Item, Kind, MAX_RUNS, MetricValue, Order, SmallLine, Spread, Table, TableQuery},
    web::views::{
        CellView, ColumnChoice, GroupView, Head, ResultLineView, ResultsView, RunRow, SpreadView, area, bounds, number,
        path,
    },
};

/// What stands in a table of a value that is a text (characters).
const MAX_TEXT_LENGTH: usize = 60;

pub fn view(address: &Address, table: Table, row: impl Fn(&Run) -> RunRow) -> ResultsView {
    let asked = &address.asked;
    let shown: Vec<&Column> = table.columns.iter().filter(|column| column.shown).collect();
    let last = table.items.last().map(|item| item.run.id);
    let next = Address { done: None, removed: None, ..address.clone() };
    let next = Address { asked: TableQuery { after: last, ..asked.clone() }, ..next };
    let groupable =
        |column: &&Column| column.kind == Kind::Param && (column.differs || asked.group.as_ref() == Some(&column.key));
    let metrics = shown.iter().filter(|column| column.kind == Kind::Metric);
    ResultsView {
        filter: asked.filter.clone(),
        wrong: None,
        value: match asked.which {
            MetricValue::Best => "best",
            MetricValue::Last => "last",
            MetricValue::At(_) => "at",
        },
        step: match asked.which {
            MetricValue::At(step) => step.to_string(),
            MetricValue::Best | MetricValue::Last => String::new(),
        },
        with_same: asked.with_same,
        with_helpers: address.of.with_helpers,
        groups: table
            .columns
            .iter()
            .filter(groupable)
            .map(|column| (column.key.clone(), column.label.clone()))
            .collect(),
        group: asked.group.clone().unwrap_or_default(),
        choice: table.columns.iter().map(choice).collect(),
        is_chosen: asked.columns.is_some(),
        kept: hidden_fields(address),
        says: says(&table),
        reset_href: (!asked.filter.is_empty()).then(|| address.with(|asked| asked.filter.clear()).href()),
        heads: heads(address, &shown),
        group_heads: metrics.map(|column| column.label.clone()).collect(),
        group_rows: table.groups.iter().map(|group| grouped(group, asked.group.as_deref())).collect(),
        next_href: table.more.then(|| next.href()),
        first_href: asked.after.map(|_| address.with(|_| ()).href()),
        picked: address.picked.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        rows: table.items.into_iter().map(|item| line(address, item, &shown, &row)).collect(),
    }
}

fn says(table: &Table) -> String {
    let runs = |count: usize| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    let all = if table.truncated { format!("the newest {MAX_RUNS} runs") } else { runs(table.total) };
    if table.matched == table.total { all } else { format!("{} of {all}", table.matched) }
}

fn choice(column: &Column) -> ColumnChoice {
    ColumnChoice {
        key: column.key.clone(),
        label: column.label.clone(),
        is_metric: column.kind == Kind::Metric,
        is_shown: column.shown,
    }
}

/// What the form of the tools hands on unchanged.
fn hidden_fields(address: &Address) -> Vec<(&'static str, String)> {
    let mut kept: Vec<(&'static str, String)> =
        address.asked.order.iter().map(|order| ("sort", order.word())).collect();
    kept.extend(address.asked.base.map(|base| ("base", base.to_string())));
    kept.extend(address.of.runs.iter().flatten().map(|id| ("run", id.to_string())));
    kept.extend(address.of.owner.clone().map(|owner| ("owner", owner)));
    kept
}

fn heads(address: &Address, shown: &[&Column]) -> Vec<Head> {
    let own = [("name", "Run", false)].map(|(key, label, is_number)| (key.to_owned(), label.to_owned(), is_number));
    let columns = shown.iter().map(|column| (column.key.clone(), column.label.clone(), column.numeric));
    let order = &address.asked.order;
    let head = |(key, label, is_number): (String, String, bool)| {
        let place = order.iter().position(|order| order.key == key);
        let now = place.map(|place| &order[place]);
        // Up, down, off.
        let next = match now {
            None => vec![Order { key: key.clone(), descending: false }],
            Some(Order { descending: false, .. }) => vec![Order { key: key.clone(), descending: true }],
            Some(_) => Vec::new(),
        };
        let arrow = now.map_or("", |now| if now.descending { "↓" } else { "↑" });
        let number = place.filter(|_| order.len() > 1).map(|place| (place + 1).to_string()).unwrap_or_default();
        Head {
            way: now.map(|now| if now.descending { "descending" } else { "ascending" }),
            arrow: format!("{arrow}{number}"),
            href: address.with(|asked| asked.order = next).href(),
            key,
            label,
            is_number,
        }
    };
    own.into_iter().chain(columns).map(head).collect()
}

fn line(address: &Address, item: Item, shown: &[&Column], row: &impl Fn(&Run) -> RunRow) -> ResultLineView {
    let id = item.run.id;
    let is_base = address.asked.base == Some(id);
    ResultLineView {
        run: row(&item.run),
        is_picked: address.picked.contains(&id),
        is_base,
        base_href: address.with(|asked| asked.base = (!is_base).then_some(id)).href(),
        cells: shown.iter().zip(item.cells).map(|(column, found)| cell(column, found)).collect(),
    }
}

fn cell(column: &Column, found: Cell) -> CellView {
    let Cell { value, step, delta, is_best, line } = found;
    let text = match &value {
        None => "–".to_owned(),
        Some(Value::Null) if column.kind == Kind::Metric => "not finite".to_owned(),
        Some(value) => value_text(value),
    };
    CellView {
        label: column.label.clone(),
        text,
        is_number: column.numeric,
        is_missing: value.is_none_or(|value| value.is_null()),
        step,
        delta: delta.map(|delta| {
            let sign = if delta < 0.0 { '−' } else { '+' };
            format!("{sign}{}", number(Some(delta.abs())))
        }),
        is_best,
        line: line.and_then(|SmallLine { values, .. }| {
            let (low, high) = bounds(values.iter());
            // One value is no line.
            (values.iter().flatten().count() > 1).then(|| path(&values, low, high))
        }),
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Number(given) if given.is_f64() => number(given.as_f64()),
        Value::String(text) if text.chars().count() <= MAX_TEXT_LENGTH => text.clone(),
        Value::String(text) => text.chars().take(MAX_TEXT_LENGTH - 1).chain(['…']).collect(),
        other => other.to_string(),
    }
}

fn grouped(group: &Group, key: Option<&str>) -> GroupView {
    let label = key.and_then(|key| key.strip_prefix("p:")).unwrap_or_default();
    let value = group.value.as_ref().map(value_text);
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    group.runs.iter().take(MAX_PICKED).for_each(|id| _ = query.append_pair("id", &id.to_string()));
    GroupView {
        name: value.map_or_else(|| format!("{label} not set"), |value| format!("{label} = {value}")),
        count: group.runs.len(),
        href: format!("/runs/compare?{}", query.finish()),
        spreads: group.spreads.iter().map(|spread| spread.as_ref().map(spread_view)).collect(),
    }
}

fn spread_view(spread: &Spread) -> SpreadView {
    let Band { low, mean, high, .. } = &spread.band;
    let (least, greatest) = bounds(low.iter().chain(high));
    SpreadView {
        mean: number(Some(spread.mean)),
        deviation: spread.deviation.map(|deviation| number(Some(deviation))),
        range: format!("{} to {}", number(Some(spread.min)), number(Some(spread.max))),
        count: spread.count,
        line: path(mean, least, greatest),
        band: area(low, high, least, greatest),
    }
}
