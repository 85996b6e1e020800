//! The table of results over REST: many runs with what they were given and what they came to. How it is asked for
//! stands in `address`, what it comes to is `runs`'s.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{RawQuery, State},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::address::{Address, ResultsParameters};
use crate::{
    model::{RunId, Timestamp, User},
    runs::{Cell, Column, Group, Item, Kind, SmallLine, Spread, Table},
    web::{
        Portal,
        http::{
            error::{Problem, Result},
            extract::CurrentUser,
            json::Long,
        },
    },
};

/// Runs with their hyperparameters and metrics.
#[derive(Debug, Serialize, ToSchema)]
pub struct Results {
    /// All columns. The rows contain those that are `shown`.
    columns: Vec<Column>,
    items: Vec<ResultRow>,
    /// With `group`: statistics for each value, over all matching rows and not only this page.
    groups: Vec<ResultGroup>,
    /// Number of runs in the table. `matched` is the number of runs that match the filter.
    total: usize,
    matched: usize,
    /// True if there are more runs than the newest thousand, which are in the table.
    truncated: bool,
    #[schema(format = "uuid")]
    next_cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ResultRow {
    #[schema(value_type = String, format = "uuid")]
    id: RunId,
    name: String,
    owner: String,
    is_owner: bool,
    directory: String,
    complete: bool,
    points: u64,
    #[schema(value_type = Option<String>, format = "date-time")]
    grown_at: Option<Timestamp>,
    #[schema(value_type = String, format = "date-time")]
    created_at: Timestamp,
    /// Values by column key. Missing values are left out.
    cells: BTreeMap<String, ResultCell>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ResultCell {
    /// A number, string or boolean. Null for a metric that is not finite.
    #[schema(value_type = Object)]
    value: Value,
    /// Step of a metric's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<i64>,
    /// With `base`: difference to the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<f64>,
    /// True for the best value of all matching rows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    best: bool,
    /// Course of a metric in at most 24 means.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<ResultLine>,
}

/// A curve in a few values, from its first to its last step.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResultLine {
    from: i64,
    to: i64,
    values: Vec<Option<f32>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ResultGroup {
    /// Value of the hyperparameter; null for runs that do not have it.
    #[schema(value_type = Object)]
    value: Value,
    count: usize,
    #[schema(value_type = Vec<String>)]
    runs: Vec<RunId>,
    /// Statistics by the keys of the shown metrics.
    metrics: BTreeMap<String, Spread>,
}

/// Returns the results table with one row for each run: hyperparameters and metrics.
///
/// Rows can be filtered, sorted, grouped, and compared with a baseline. The table contains the newest thousand runs
/// that are visible to you.
#[utoipa::path(get, path = "/results", tag = "runs", params(ResultsParameters),
    responses((status = 200, body = Results), (status = 404, description = "A run was not found, or is not visible to you", body = Problem),
        (status = 422, description = "Invalid parameter. A syntax error in the filter is reported with its position.", body = Problem)))]
pub async fn list(user: CurrentUser, State(portal): State<Arc<Portal>>, RawQuery(query): RawQuery) -> Result<Response> {
    let address = Address::read(&query.unwrap_or_default(), false)?;
    let table = portal.runs.results(&user.user, &address.of, &address.asked).await?;
    Ok(Long(Results::new(table, &user.user)).into_response())
}

impl Results {
    fn new(table: Table, reader: &User) -> Self {
        let next_cursor = table.items.last().filter(|_| table.more).map(|item| item.run.id.to_string());
        let shown: Vec<&Column> = table.columns.iter().filter(|column| column.shown).collect();
        let items = table.items.into_iter().map(|item| row(item, &shown, reader)).collect();
        let groups = table.groups.into_iter().map(|group| result_group(group, &shown)).collect();
        let Table { columns, total, matched, truncated, .. } = table;
        Self { columns, items, groups, total, matched, truncated, next_cursor }
    }
}

fn row(item: Item, shown: &[&Column], reader: &User) -> ResultRow {
    let Item { run, cells } = item;
    let cells = shown.iter().zip(cells).filter_map(|(column, cell)| Some((column.key.clone(), result_cell(cell)?)));
    ResultRow {
        id: run.id,
        cells: cells.collect(),
        is_owner: run.owner == reader.id,
        name: run.name,
        owner: run.owner_name,
        directory: run.directory,
        complete: run.reading.complete,
        points: run.reading.points,
        grown_at: run.reading.grown_at,
        created_at: run.created_at,
    }
}

fn result_cell(cell: Cell) -> Option<ResultCell> {
    let Cell { value, step, delta, is_best, line } = cell;
    let line = line.map(|SmallLine { from, to, values }| ResultLine { from, to, values });
    value.map(|value| ResultCell { value, step, delta, best: is_best, line })
}

fn result_group(group: Group, shown: &[&Column]) -> ResultGroup {
    let metrics = shown.iter().filter(|column| column.kind == Kind::Metric).zip(group.spreads);
    ResultGroup {
        value: group.value.unwrap_or(Value::Null),
        count: group.runs.len(),
        runs: group.runs,
        metrics: metrics.filter_map(|(column, spread)| Some((column.key.clone(), spread?))).collect(),
    }
}
