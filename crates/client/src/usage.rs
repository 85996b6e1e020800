//! `lyceum usage`: what was used of GPUs and cores in a time, as a table for people or as the
//! API's JSON. Who may see what is the portal's to say.

use std::io::Write;

use clap::{Args, ValueEnum};
use jiff::{ToSpan, civil::Date, tz::TimeZone};
use serde::Deserialize;
use serde_json::Value;

use super::{
    api::{Api, Error, Result},
    line,
    output::{Columns, Output},
    table,
};
use lyceum_model::Timestamp;

/// `lyceum usage …`
#[derive(Args, Debug)]
pub struct UsageArguments {
    /// The first day (UTC) or the start time; by default the beginning of the portal's period
    #[arg(long, value_name = "DAY|TIME", value_parser = beginning)]
    pub from: Option<Timestamp>,
    /// The last day (UTC) or the end time; by default now
    #[arg(long, value_name = "DAY|TIME", value_parser = end)]
    pub to: Option<Timestamp>,
    /// How to group the usage
    #[arg(long, value_enum, default_value_t)]
    pub by: Grouping,
    /// Your own usage, that of groups you manage, or that of all users; by default all that you may see
    #[arg(long, value_enum)]
    pub whose: Option<Subject>,
    #[command(flatten)]
    pub columns: Columns,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Grouping {
    #[default]
    User,
    Group,
    GpuModel,
    Day,
    Week,
    Month,
    /// What each group was charged, by user
    #[value(name = "group,user")]
    GroupUser,
    /// What each group was charged, by month
    #[value(name = "group,month")]
    GroupMonth,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Subject {
    Own,
    Managed,
    Everybody,
}

/// The part of the answer that the table needs.
#[derive(Debug, Deserialize)]
pub struct Answer {
    pub items: Vec<UsageRow>,
    /// An older portal says nothing of it.
    #[serde(default)]
    pub from_shell: FromShell,
}

/// The part of it by jobs that the portal has not started.
#[derive(Debug, Default, Deserialize)]
pub struct FromShell {
    pub jobs: i64,
    pub gpu_seconds: i64,
    pub cpu_seconds: i64,
}

#[derive(Debug, Deserialize)]
pub struct UsageRow {
    /// Only where users or months of groups are listed.
    #[serde(default)]
    pub group: Option<String>,
    pub name: String,
    pub gpu_seconds: i64,
    pub cpu_seconds: i64,
    pub sessions: i64,
}

pub(super) async fn run(api: &Api, arguments: &UsageArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let (from, to) = (arguments.from.map(|at| at.to_string()), arguments.to.map(|at| at.to_string()));
    let (by, whose) = (word(&arguments.by), arguments.whose.as_ref().map(word));
    let query = [("from", from), ("to", to), ("by", Some(by.clone())), ("whose", whose)];
    let query: Vec<(&str, &str)> = query.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
    let mut answer: Value = api.all("/usage", &query).await?;
    if arguments.output.is_tabular() {
        name_rows(&mut answer, &by);
    }
    if arguments.output.is_json() {
        return line(out, &answer.to_string());
    }
    let answer = Answer::deserialize(&answer).map_err(|error| Error::Strange(error.to_string()))?;
    Ok(write!(out, "{}", table::usage(&by, &answer))?)
}

/// Calls the column that names each row what it is: `user`, `month`.
fn name_rows(answer: &mut Value, by: &str) {
    let what = by.rsplit(',').next().unwrap_or(by);
    for item in answer["items"].as_array_mut().into_iter().flatten() {
        if let Some(name) = item.as_object_mut().and_then(|item| item.remove("name")) {
            item[what] = name;
        }
    }
}

/// A choice as the API spells it.
fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn beginning(text: &str) -> Result<Timestamp, String> {
    moment(text, 0)
}

fn end(text: &str) -> Result<Timestamp, String> {
    moment(text, 1)
}

/// A moment; a day is the midnight so many days later.
fn moment(text: &str, days: i64) -> Result<Timestamp, String> {
    let day = text.parse::<Date>().ok().filter(|_| !text.contains(['T', 't', ' ']));
    let at = match day {
        Some(day) => {
            let midnight = day.checked_add(days.days()).ok().and_then(|day| day.to_zoned(TimeZone::UTC).ok());
            midnight.map(|midnight| midnight.timestamp())
        }
        None => text.parse::<jiff::Timestamp>().ok(),
    };
    let at = at.ok_or_else(|| "not a date like 2030-01-31 or a time like 2030-01-31T08:00:00Z".to_owned())?;
    Ok(Timestamp(at.as_millisecond()))
}
