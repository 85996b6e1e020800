//! The second kind of input: a file of JSON objects, one a line, as any program can write
//! without a library. Every number in an object is a value of the curve of its name; `step`
//! and `time` say where it belongs. Objects within objects are joined by “/”.

use serde_json::{Map, Value};

/// What one line says: values by name, at one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    pub step: Option<i64>,
    /// Seconds since 1970.
    pub time: Option<f64>,
    pub values: Vec<(String, f64)>,
    /// Values whose names are too long.
    pub oversized: u64,
}

/// The names of objects within objects are joined: so long they may get (bytes).
const LONGEST_NAME: usize = 16 << 10;

/// Reads a line; `None` where it is no object. NaN and Infinity may stand as Python writes
/// them, bare, though JSON has no such words.
pub fn line(bytes: &[u8]) -> Option<Line> {
    let object = document(bytes)?;
    let mut line = Line::default();
    collect(&object, "", &mut line);
    Some(line)
}

/// An object of JSON with Python's words for what are no numbers.
pub(super) fn document(bytes: &[u8]) -> Option<Map<String, Value>> {
    let plain = serde_json::from_slice(bytes).ok();
    plain.or_else(|| serde_json::from_str(&quoted(std::str::from_utf8(bytes).ok()?)).ok())
}

fn collect(object: &Map<String, Value>, prefix: &str, line: &mut Line) {
    for (key, value) in object {
        if LONGEST_NAME < prefix.len() + key.len() {
            line.oversized += 1;
            continue;
        }
        match (key.as_str(), value) {
            ("step" | "global_step", value) if prefix.is_empty() => line.step = whole(value).or(line.step),
            ("time" | "wall_time" | "timestamp", value) if prefix.is_empty() => {
                line.time = value.as_f64().or(line.time);
            }
            (_, Value::Object(inner)) => collect(inner, &format!("{prefix}{key}/"), line),
            (_, value) => {
                if let Some(number) = number(value) {
                    line.values.push((format!("{prefix}{key}"), number));
                }
            }
        }
    }
}

/// A step may be written as 3 or 3.0.
fn whole(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "steps that are floats are whole and small")]
    value.as_i64().or_else(|| value.as_f64().filter(|step| step.fract() == 0.0).map(|step| step as i64))
}

pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(word) => match word.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// The same text with quotes around bare words for numbers that are none.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let mut in_string = false;
    while let Some(first) = rest.chars().next() {
        let word = ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| !in_string && rest.starts_with(word));
        let taken = if let Some(word) = word {
            out.extend(["\"", word, "\""]);
            word.len()
        } else if in_string && first == '\\' {
            // What is escaped ends nothing.
            let taken = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            out.push_str(&rest[..taken]);
            taken
        } else {
            in_string ^= first == '"';
            out.push(first);
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, f64)> {
        line(text.as_bytes()).unwrap().values
    }

    #[test]
    fn a_line_has_values_at_a_step() {
        let read =
            line(br#"{"step": 7, "time": 12.5, "loss": 0.25, "val": {"accuracy": 1}, "note": "x", "done": true}"#);
        let expected = vec![("loss".to_owned(), 0.25), ("val/accuracy".to_owned(), 1.0)];
        assert_eq!(read, Some(Line { step: Some(7), time: Some(12.5), values: expected, oversized: 0 }));
    }

    #[test]
    fn what_python_writes_of_no_number_is_read() {
        let read = values(r#"{"a": NaN, "b": -Infinity, "c": "Infinity", "d NaN \" NaN": 1}"#);
        assert!(read[0].1.is_nan());
        assert_eq!(
            read[1..],
            [("b".to_owned(), f64::NEG_INFINITY), ("c".to_owned(), f64::INFINITY), ("d NaN \" NaN".to_owned(), 1.0)]
        );
    }

    #[test]
    fn what_is_no_object_is_none() {
        for text in ["", "[1]", "{", "NaN", "{\"a\": nan}", "\u{feff}{}"] {
            assert_eq!(line(text.as_bytes()), None, "{text}");
        }
    }
}
