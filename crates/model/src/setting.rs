//! How values may be written in the configuration: lists as arrays or with commas (as a
//! variable gives them), times as a number of seconds or as `90s`, `30m`, `8h`. For serde's
//! `deserialize_with`.

use serde::{Deserialize, Deserializer, de};

use super::time::parse_duration;

/// An array, or one string with commas.
pub fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
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

/// A time in seconds.
pub fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    number(deserializer, parse_duration, "must be a duration like \"90s\", \"30m\" or \"8h\"")
}

/// A number from 0 on, or text that `parse` understands.
pub fn number<'de, D: Deserializer<'de>>(
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
        Number::Number(number) => Some(number).filter(|number| *number >= 0),
        Number::Text(text) => parse(&text),
    };
    number.ok_or_else(|| de::Error::custom(what))
}
