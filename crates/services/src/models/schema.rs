//! The trainer's own schema of a configuration, read as far as it goes: what a field may hold
//! stands in `trainer/config.schema.json` and nowhere else, so that form, API and program agree.
//! It knows the words that this file uses, and a test fails should there ever be another.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use lyceum_model::FieldError;

/// What a configuration may hold.
pub static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../trainer/config.schema.json")).expect("the trainer's schema is JSON")
});

/// What is wrong with a configuration; fields are named below `at`.
pub fn faults(config: &Value, at: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    check(config, &SCHEMA, at, &mut faults);
    faults
}

/// The rule of a field: `learning_rate.base`.
#[must_use]
pub fn rule(field: &str) -> Option<&'static Value> {
    field.split('.').try_fold(&*SCHEMA, |rule, name| rule.get("properties")?.get(name))
}

/// Reads a value from text by the type of its field. What does not fit stays text, which validation then rejects.
#[must_use]
pub fn read(field: &str, text: &str) -> Value {
    let number = |text: &str| match text.trim().parse::<i64>() {
        Ok(whole) => json!(whole),
        Err(_) => text.trim().parse::<f64>().map_or_else(|_| json!(text), |number| json!(number)),
    };
    match rule(field).map_or("", |rule| rule["type"].as_str().unwrap_or_default()) {
        "string" => json!(text),
        "boolean" => match text {
            "yes" | "true" => json!(true),
            "no" | "false" => json!(false),
            _ => json!(text),
        },
        "array" => text.split([',', ' ']).filter(|part| !part.is_empty()).map(number).collect(),
        // A number, or a word such as `all`.
        _ => number(text),
    }
}

/// Sets a field by its path, such as `learning_rate.base`. Missing objects on the path are added.
pub fn put(fields: &mut Map<String, Value>, path: &str, value: Value) {
    let Some((outer, inner)) = path.split_once('.') else {
        fields.insert(path.to_owned(), value);
        return;
    };
    let place = fields.entry(outer).or_insert_with(|| json!({}));
    if !place.is_object() {
        *place = json!({});
    }
    if let Some(fields) = place.as_object_mut() {
        put(fields, inner, value);
    }
}

/// The words that a field may be.
#[must_use]
pub fn words(field: &str) -> Vec<&'static str> {
    let words = rule(field).and_then(|rule| rule["enum"].as_array());
    words.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn check(value: &Value, rule: &Value, at: &str, faults: &mut Vec<FieldError>) {
    let mut fault = |code: &str, message: String| faults.push(FieldError::new(at, code, &message));
    if let Some(either) = rule["oneOf"].as_array() {
        let fits = |rule: &&Value| {
            let mut inner = Vec::new();
            check(value, rule, at, &mut inner);
            inner.is_empty()
        };
        if !either.iter().any(|rule| fits(&rule)) {
            fault("invalid_value", "Must be a number from 1 to 1024, or \u{201c}all\u{201d}.".to_owned());
        }
        return;
    }
    let kind = rule["type"].as_str().unwrap_or_default();
    let expected = match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => false,
    };
    if !expected {
        let article = match kind {
            "object" => "Must be an object.",
            "array" => "Must be a list.",
            "boolean" => "Must be true or false.",
            "integer" => "Must be a whole number.",
            "number" => "Must be a number.",
            _ => "Must be a text.",
        };
        return fault("invalid_type", article.to_owned());
    }
    if let Some(allowed) = rule["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        let names: Vec<String> =
            allowed.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
        return fault("invalid_value", format!("Must be one of {}.", names.join(", ")));
    }
    if let Some(number) = value.as_f64() {
        let bound = |name: &str| rule[name].as_f64();
        if let Some(least) = bound("minimum").filter(|least| number < *least) {
            fault("out_of_range", format!("Must be at least {least}."));
        } else if let Some(least) = bound("exclusiveMinimum").filter(|least| number <= *least) {
            fault("out_of_range", format!("Must be greater than {least}."));
        } else if let Some(most) = bound("maximum").filter(|most| number > *most) {
            fault("out_of_range", format!("Must be at most {most}."));
        } else if let Some(most) = bound("exclusiveMaximum").filter(|most| number >= *most) {
            fault("out_of_range", format!("Must be less than {most}."));
        }
    }
    let length = |name: &str| rule[name].as_u64();
    let too_short = |count: usize, name: &str| length(name).is_some_and(|least| (count as u64) < least);
    let too_long = |count: usize, name: &str| length(name).is_some_and(|most| most < count as u64);
    match value {
        Value::String(text) if too_short(text.chars().count(), "minLength") => {
            fault("empty", "Must not be empty.".to_owned());
        }
        Value::String(text) if too_long(text.chars().count(), "maxLength") => {
            fault("too_long", format!("Longer than {} characters.", rule["maxLength"]));
        }
        Value::Array(list) => {
            if too_short(list.len(), "minItems") {
                fault("too_few", format!("At least {} entries are required.", rule["minItems"]));
            }
            for (number, one) in list.iter().enumerate() {
                check(one, &rule["items"], &format!("{at}.{number}"), faults);
            }
        }
        Value::Object(fields) => check_fields(fields, rule, at, faults),
        _ => {}
    }
}

fn check_fields(fields: &Map<String, Value>, rule: &Value, at: &str, faults: &mut Vec<FieldError>) {
    let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    for (name, value) in fields {
        if let Some(rule) = rule["properties"].get(name) {
            check(value, rule, &below(name), faults);
        } else {
            let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
            faults.push(FieldError::new(below(&shown), "unknown_field", "Unknown field."));
        }
    }
    for name in rule["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            faults.push(FieldError::new(below(name), "required", "Required."));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(config: &Value) -> Vec<(String, String)> {
        faults(config, "config").into_iter().map(|fault| (fault.field, fault.code)).collect()
    }

    #[test]
    fn what_fits_and_what_does_not() {
        let good = json!({"output": ".", "data": {"kind": "dataset", "path": "/x"}, "devices": "all", "epochs": 3,
            "learning_rate": {"base": 0.1, "policy": "multistep", "steps": [30, 60.5]}, "augmentation": {"flip_horizontal": true}});
        assert_eq!(fields(&good), []);
        for (patch, field, code) in [
            (json!({"epochs": 0}), "epochs", "out_of_range"),
            (json!({"epochs": 1.5}), "epochs", "invalid_type"),
            (json!({"epoch": 1}), "epoch", "unknown_field"),
            (json!({"devices": 0}), "devices", "invalid_value"),
            (json!({"optimizer": {"name": "sgdd"}}), "optimizer.name", "invalid_value"),
            (json!({"optimizer": {"momentum": 1}}), "optimizer.momentum", "out_of_range"),
            (json!({"learning_rate": {"base": 0}}), "learning_rate.base", "out_of_range"),
            (json!({"learning_rate": {"steps": []}}), "learning_rate.steps", "too_few"),
            (json!({"learning_rate": {"steps": [101]}}), "learning_rate.steps.0", "out_of_range"),
            (json!({"output": ""}), "output", "empty"),
            (json!({"name": "x".repeat(201)}), "name", "too_long"),
            (json!({"data": {"path": "/x"}}), "data.kind", "required"),
        ] {
            let mut config = good.clone();
            for (name, value) in patch.as_object().unwrap() {
                config[name] = value.clone();
            }
            assert_eq!(fields(&config), [(format!("config.{field}"), code.to_owned())], "{patch}");
        }
        assert_eq!(fields(&json!([]))[0].1, "invalid_type");
    }

    #[test]
    fn words_of_fields() {
        assert!(words("optimizer.name").contains(&"adam") && words("learning_rate.policy").contains(&"one-cycle"));
        assert_eq!(rule("epochs").unwrap()["default"], 30);
        assert!(rule("nothing.at.all").is_none());
    }

    /// Else a rule of the schema would be passed over in silence.
    #[test]
    fn no_word_of_the_schema_is_unknown() {
        const KNOWN: [&str; 19] = [
            "$schema",
            "title",
            "description",
            "type",
            "additionalProperties",
            "required",
            "properties",
            "enum",
            "default",
            "minimum",
            "exclusiveMinimum",
            "maximum",
            "exclusiveMaximum",
            "minLength",
            "maxLength",
            "items",
            "minItems",
            "oneOf",
            "examples",
        ];
        fn walk(rule: &Value) {
            for (word, value) in rule.as_object().unwrap() {
                assert!(KNOWN.contains(&word.as_str()), "{word}");
                match word.as_str() {
                    "properties" => value.as_object().unwrap().values().for_each(walk),
                    "items" => walk(value),
                    "oneOf" => value.as_array().unwrap().iter().for_each(walk),
                    "additionalProperties" => assert_eq!(value, false),
                    _ => {}
                }
            }
        }
        walk(&SCHEMA);
    }
}
