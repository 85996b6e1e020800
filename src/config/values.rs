//! How values are written: durations, sizes, counts and lists as TOML or a variable spells
//! them, and a variable's place in the table. Each refusal says what would be right.

use serde::{Deserialize, Deserializer, de};
use toml::{Table, Value};

use crate::model::{size::parse_size, time::parse_duration};

/// Sets `server__listen` in the table: words split at `__`, values read as TOML would.
pub(super) fn overlay(table: &mut Table, key: &str, value: &str) {
    let mut words = key.split("__").collect::<Vec<_>>();
    let Some(last) = words.pop() else { return };
    let mut at = table;
    for word in words {
        let entry = at.entry(word).or_insert_with(|| Value::Table(Table::new()));
        if !entry.is_table() {
            *entry = Value::Table(Table::new());
        }
        at = entry.as_table_mut().expect("it was made a table in the line above");
    }
    let value = match value {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        _ => value.parse().map_or_else(|_| Value::String(value.to_owned()), Value::Integer),
    };
    at.insert(last.to_owned(), value);
}

/// An array, or one string with commas (as a variable gives it).
pub(super) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum List {
        One(String),
        Many(Vec<String>),
    }
    Ok(match List::deserialize(deserializer)? {
        List::Many(many) => many,
        List::One(one) => one.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect(),
    })
}

/// A number, or text that `parse` understands.
fn number<'de, D: Deserializer<'de>>(
    deserializer: D,
    parse: impl Fn(&str) -> Option<i64>,
    what: &str,
) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Number(i64),
        Text(String),
    }
    let number = match Number::deserialize(deserializer)? {
        Number::Number(number) => Some(number).filter(|number| 0 <= *number),
        Number::Text(text) => parse(&text),
    };
    number.ok_or_else(|| de::Error::custom(what))
}

pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    number(deserializer, parse_duration, "is a duration like \"90s\", \"30m\", \"8h\"")
}

pub(super) fn optional_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    duration(deserializer).map(Some)
}

pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    number(deserializer, parse_size, "is a size like \"512M\", \"48GiB\"")
}

pub(super) fn auto_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let or_auto = |text: &str| if text == "auto" { Some(0) } else { parse_size(text) };
    let value = number(deserializer, or_auto, "is \"auto\" or a size like \"48GiB\"")?;
    Ok(Some(value).filter(|value| 0 < *value))
}

pub(super) fn auto_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let or_auto = |text: &str| if text == "auto" { Some(0) } else { text.parse().ok() };
    let value = number(deserializer, or_auto, "is \"auto\" or a number")?;
    Ok(Some(value).filter(|value| 0 < *value))
}
