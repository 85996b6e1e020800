//! How the model's types lie in the two databases: ids, words and documents as TEXT, moments
//! as BIGINT. Text that a newer version wrote and this one does not know is an error that
//! names the type, never a guess.

use std::str::FromStr;

use serde::{Serialize, de::DeserializeOwned};

use super::{Error, Result};

/// A document in a TEXT column.
pub struct Json;

impl Json {
    pub fn write<T: Serialize>(value: &T) -> String {
        serde_json::to_string(value).expect("the model's types have string keys and no failing serializers")
    }

    pub fn read<T: DeserializeOwned>(text: &str, what: &'static str) -> Result<T> {
        serde_json::from_str(text).map_err(|_err| Error::Stored(what))
    }

    /// Reads what is shown or counted beside other things; damaged, it counts as empty, so that one row
    /// cannot keep all others from being read.
    pub fn read_or_default<T: DeserializeOwned + Default>(text: &str) -> T {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// Keeps the rows that can be read. A damaged row is logged and left out: it must not hide the others.
pub fn readable<T>(rows: impl IntoIterator<Item = Result<T>>) -> Vec<T> {
    let read =
        |row: Result<T>| row.inspect_err(|error| tracing::error!(%error, "stored row cannot be read; skipped")).ok();
    rows.into_iter().filter_map(read).collect()
}

/// Reads a word or an id.
pub fn parse<T: FromStr>(text: &str, what: &'static str) -> Result<T> {
    text.parse().map_err(|_err| Error::Stored(what))
}

/// Reads an optional word or id.
pub fn parse_optional<T: FromStr>(text: Option<&str>, what: &'static str) -> Result<Option<T>> {
    text.map(|text| parse(text, what)).transpose()
}
