//! How values are written: durations, sizes, counts and lists as TOML or a variable spells
//! them, and a variable's place in the table. Each refusal says what would be right.

use serde::Deserializer;
use toml::{Table, Value};

pub(super) use crate::model::setting::{list, seconds as duration};
use crate::model::{setting::number, size::parse_size};

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

pub(super) fn optional_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    duration(deserializer).map(Some)
}

pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    number(deserializer, parse_size, "must be a size like \"512M\" or \"48GiB\"")
}

pub(super) fn auto_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let or_auto = |text: &str| if text == "auto" { Some(0) } else { parse_size(text) };
    let value = number(deserializer, or_auto, "must be \"auto\" or a size like \"48GiB\"")?;
    Ok(Some(value).filter(|value| *value > 0))
}

pub(super) fn auto_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let or_auto = |text: &str| if text == "auto" { Some(0) } else { text.parse().ok() };
    let value = number(deserializer, or_auto, "must be \"auto\" or a number")?;
    Ok(Some(value).filter(|value| *value > 0))
}
