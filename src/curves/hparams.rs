//! Hyper-parameters as objects of JSON, from where writers put them: the plug-in's records in
//! event files (`HParamsPluginData` of TensorBoard's `plugin_data.proto`), and `hparams.yaml` beside
//! them, as Lightning writes it. What is no number, word or truth is shown as its text.

use serde_json::{Map, Number, Value};

use super::wire::{Fields, Malformed, Value as Field};

/// What a record of the plug-in says; empty where it holds no hyper-parameters, `None` where it is
/// too large or not well-formed.
pub(super) fn of_plugin(content: &[u8]) -> Option<Vec<u8>> {
    let mut found = Map::new();
    plugin(content, &mut found).ok()?;
    written(&found)
}

/// What the text of a `hparams.yaml` says.
pub(super) fn of_yaml(text: &str) -> Option<Vec<u8>> {
    written(&yaml(text))
}

fn written(found: &Map<String, Value>) -> Option<Vec<u8>> {
    serde_json::to_vec(found).ok().filter(|object| object.len() <= super::log::MOST_HPARAMS)
}

fn plugin(content: &[u8], found: &mut Map<String, Value>) -> Result<(), Malformed> {
    for field in Fields(content) {
        // `session_start_info`
        let (3, Field::Bytes(session)) = field? else { continue };
        for field in Fields(session) {
            // `hparams`, an entry of a map.
            let (1, Field::Bytes(entry)) = field? else { continue };
            let (mut name, mut value) = (String::new(), Value::Null);
            for field in Fields(entry) {
                match field? {
                    (1, Field::Bytes(bytes)) => name = String::from_utf8_lossy(bytes).into_owned(),
                    (2, Field::Bytes(bytes)) => value = well_known(bytes)?,
                    _ => {}
                }
            }
            found.insert(name, value);
        }
    }
    Ok(())
}

/// A `google.protobuf.Value`; lists and structures are not looked into.
fn well_known(bytes: &[u8]) -> Result<Value, Malformed> {
    let mut value = Value::Null;
    for field in Fields(bytes) {
        value = match field? {
            (2, Field::Fixed64(bytes)) => number(f64::from_le_bytes(bytes)),
            (3, Field::Bytes(text)) => Value::String(String::from_utf8_lossy(text).into_owned()),
            (4, Field::Varint(truth)) => Value::Bool(truth != 0),
            _ => continue,
        };
    }
    Ok(value)
}

/// Whole numbers as such; what is no number for JSON as its name.
fn number(value: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "whole and small, as looked at here")]
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return Value::Number((value as i64).into());
    }
    Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number)
}

/// Keys with their values on the same line, and those of deeper lines joined by “/”: as far as
/// `yaml.dump` of a flat or nested mapping goes. Lists, long texts and objects of Python are
/// shown as what stands on their first line.
fn yaml(text: &str) -> Map<String, Value> {
    let mut found = Map::new();
    let mut above: Vec<(usize, String)> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start_matches(' ');
        let indent = line.len() - content.len();
        if content.is_empty() || content.starts_with(['#', '-', '%', '{', '[', '?']) {
            continue;
        }
        let Some((name, value)) = entry(content) else { continue };
        above.retain(|(depth, _)| *depth < indent);
        let prefix: String = above.iter().flat_map(|(_, name)| [name.as_str(), "/"]).collect();
        if value.is_empty() {
            above.push((indent, name));
        } else {
            found.insert(format!("{prefix}{name}"), plain(value));
        }
    }
    found
}

/// `name: value`, the name perhaps in quotes.
fn entry(content: &str) -> Option<(String, &str)> {
    let quote = content.chars().next().filter(|first| ['\'', '"'].contains(first));
    let (name, rest) = match quote {
        Some(quote) => content[1..].split_once(quote)?,
        None => content.split_at(content.find(": ").or_else(|| content.find(':'))?),
    };
    let value = rest.strip_prefix(':')?;
    (value.is_empty() || value.starts_with([' ', '\t'])).then(|| (name.to_owned(), value.trim()))
}

fn plain(value: &str) -> Value {
    for quote in ['\'', '"'] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Value::String(inner.to_owned());
        }
    }
    match value {
        "null" | "~" => Value::Null,
        "true" | "True" | "yes" => Value::Bool(true),
        "false" | "False" | "no" => Value::Bool(false),
        _ => match value.parse::<f64>() {
            Ok(parsed) if parsed.is_finite() => number(parsed),
            _ => Value::String(value.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_as_lightning_writes_it_is_read() {
        let text = "# by hand\nlr: 0.001\nbatch_size: 64\nname: 'a: b'\nuse_amp: true\nnone: null\n\
            optimizer:\n  kind: adam\n  betas:\n  - 0.9\n  - 0.999\n  eps: 1.0e-08\nlast: 1e-3\n\
            path: !!python/object:pathlib.PosixPath\n";
        let expected = json!({"lr": 0.001, "batch_size": 64, "name": "a: b", "use_amp": true, "none": null,
            "optimizer/kind": "adam", "optimizer/eps": 1e-8, "last": 0.001,
            "path": "!!python/object:pathlib.PosixPath"});
        assert_eq!(Value::Object(yaml(text)), expected);
    }

    #[test]
    fn numbers_that_json_lacks_are_shown() {
        assert_eq!(number(f64::NAN), json!("NaN"));
        assert_eq!((number(3.0), number(0.5), number(1e300)), (json!(3), json!(0.5), json!(1e300)));
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,80}") {
            let _ = of_plugin(&bytes);
            let _ = of_yaml(&text);
            let _ = of_yaml(&text.replace(' ', ": "));
        }
    }
}
