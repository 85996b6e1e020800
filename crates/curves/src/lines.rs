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
const MAX_NAME_LENGTH: usize = 16 << 10;

/// Reads a line; `None` unless it is a JSON object. Accepts bare NaN and Infinity, as programs write
/// them, and numbers that are too large or in quotes.
pub fn line(bytes: &[u8]) -> Option<Line> {
    let object = document(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))?;
    let mut line = Line::default();
    collect(&object, "", &mut line);
    Some(line)
}

/// An object of JSON, with other words for what are no numbers, and numbers beyond the largest.
pub(super) fn document(bytes: &[u8]) -> Option<Map<String, Value>> {
    let plain = serde_json::from_slice(bytes).ok();
    plain.or_else(|| serde_json::from_str(&quoted(std::str::from_utf8(bytes).ok()?)).ok())
}

fn collect(object: &Map<String, Value>, prefix: &str, line: &mut Line) {
    for (key, value) in object {
        if prefix.len() + key.len() > MAX_NAME_LENGTH {
            line.oversized += 1;
            continue;
        }
        match (key.as_str(), value) {
            ("step" | "global_step", value) if prefix.is_empty() => line.step = whole(value).or(line.step),
            ("time" | "wall_time" | "timestamp", value) if prefix.is_empty() => {
                line.time = number(value).filter(|time| time.is_finite()).or(line.time);
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

/// A step may be written as 3, 3.0 or "3".
fn whole(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "steps that are floats are whole and small")]
    value.as_i64().or_else(|| number(value).filter(|step| step.fract() == 0.0).map(|step| step as i64))
}

/// A number, alone or in quotes: so it is written where a library's own numbers are made to text.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(word) => word.trim().parse().ok(),
        _ => None,
    }
}

/// The same text with quotes around bare numbers that JSON has no place for: NaN, infinities however they are
/// written, and what is larger than any.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let taken = if first == '"' {
            string_length(rest)
        } else if is_part(first) {
            rest.find(|c| !is_part(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, behind) = rest.split_at(taken);
        if is_part(first) && word.parse().is_ok_and(|number: f64| !number.is_finite()) {
            out.extend(["\"", word, "\""]);
        } else {
            out.push_str(word);
        }
        rest = behind;
    }
    out
}

/// How long a string is that begins a text, with its quotes (bytes). What is escaped ends nothing.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn one_value_that_is_no_number_costs_none_of_the_others() {
        let cases = [
            ("nan", f64::NAN),
            ("\"nan\"", f64::NAN),
            ("\"NaN\"", f64::NAN),
            ("-nan", f64::NAN),
            ("inf", f64::INFINITY),
            ("\"inf\"", f64::INFINITY),
            ("\"-inf\"", f64::NEG_INFINITY),
            ("+Infinity", f64::INFINITY),
            ("1e999", f64::INFINITY),
            ("-1e999", f64::NEG_INFINITY),
            ("\"1e999\"", f64::INFINITY),
            ("\"0.25\"", 0.25),
            ("\" 0.25 \"", 0.25),
            ("1e-999", 0.0),
        ];
        for (text, expected) in cases {
            let read = line(format!("{{\"step\": 3, \"a\": {text}, \"note \\\" nan\": 1}}").as_bytes()).unwrap();
            assert_eq!(read.step, Some(3), "{text}");
            assert_eq!(read.values[0].0, "a");
            assert!(read.values[0].1.total_cmp(&expected).is_eq() || read.values[0].1.is_nan() && expected.is_nan());
            assert_eq!(read.values[1..], [("note \" nan".to_owned(), 1.0)], "{text}");
        }
        for text in ["\"adam\"", "\"\"", "\"tensor(0.25)\"", "null", "true", "[1e999]"] {
            assert_eq!(values(&format!("{{\"a\": {text}, \"b\": 2}}")), [("b".to_owned(), 2.0)], "{text}");
        }
        let read = line(b"{\"step\": \"12\", \"time\": \"nan\", \"loss\": 1}").unwrap();
        assert_eq!((read.step, read.time), (Some(12), None));
    }

    #[test]
    fn what_is_no_object_is_none() {
        for text in ["", "[1]", "{", "NaN", "{\"a\": none}", "{\"a\": \"nan", "{'a': 1}"] {
            assert_eq!(line(text.as_bytes()), None, "{text}");
        }
        assert_eq!(values("\u{feff}{\"a\": 1}"), [("a".to_owned(), 1.0)], "a mark of the byte order is no part of it");
    }

    /// Text as loggers write it, whole or not.
    fn text() -> impl Strategy<Value = String> {
        let part =
            prop_oneof!["[{}\\[\\],:\"\\\\ ]", "nan|NaN|-inf|Infinity|1e999|0.25|null", "\"[a-z\\\\]{0,4}\"", "\\PC"];
        proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in text(), bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = line(text.as_bytes());
            let _ = line(format!("{{\"a\": {text}}}").as_bytes());
            let _ = line(&bytes);
        }

        #[test]
        fn no_part_of_an_object_is_an_object(
            numbers in proptest::collection::vec(prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::INFINITY)], 1..5),
            word in "[a-z{}\\[\\],: ]{0,6}",
        ) {
            let parts: Vec<String> = numbers.iter().map(|number| format!("\"{word}\": {{\"x\": {number}}}")).collect();
            let text = format!("{{{}}}", parts.join(", "));
            prop_assert!(line(text.as_bytes()).is_some());
            for cut in 0..text.len() {
                prop_assert_eq!(line(&text.as_bytes()[..cut]), None, "cut at {}", cut);
            }
        }
    }
}
