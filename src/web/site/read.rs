//! The body of an application as a declaration. A reader of JSON stops at its first fault; here each item is read for
//! itself, and once more without the field that it was refused for, so that all faults are reported at once.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    model::FieldError,
    site::{Declared, Site},
    web::http::{error::Result, json},
};

/// What of a body could be read, and all that is wrong with the rest.
pub(super) fn declaration(body: &[u8]) -> Result<(Declared, Vec<FieldError>)> {
    let all: Map<String, Value> = json::parse(body)?;
    let mut faults = Vec::new();
    let mut declared = Declared::default();
    for (section, value) in all {
        match section.as_str() {
            "complete" => declared.complete = one(value, &section, &mut faults).unwrap_or_default(),
            "quotas" => declared.quotas = one(value, &section, &mut faults).unwrap_or_default(),
            "users" => declared.users = list(value, &section, &mut faults),
            "profiles" => declared.profiles = list(value, &section, &mut faults),
            "groups" => declared.groups = list(value, &section, &mut faults),
            "announcements" => declared.announcements = list(value, &section, &mut faults),
            _ => faults.push(FieldError::new(json::short(&section), "unknown_field", "Unknown field.")),
        }
    }
    if faults.is_empty() {
        // A field that stands twice is one by now.
        json::parse::<Site>(body)?;
    }
    Ok((declared, faults))
}

/// The items of a list, each with its place.
fn list<T: DeserializeOwned>(value: Value, section: &str, faults: &mut Vec<FieldError>) -> Vec<(String, T)> {
    let Value::Array(items) = value else {
        faults.push(FieldError::new(section, "invalid_type", "This must be a list."));
        return Vec::new();
    };
    let mut read = Vec::new();
    for (number, item) in items.into_iter().enumerate() {
        let place = format!("{section}.{number}");
        if let Some(item) = one(item, &place, faults) {
            read.push((place, item));
        }
    }
    read
}

/// One value, without the fields that are faulty.
fn one<T: DeserializeOwned>(mut value: Value, place: &str, faults: &mut Vec<FieldError>) -> Option<T> {
    if !value.is_object() && !value.is_array() {
        faults.push(FieldError::new(place, "invalid_type", "This must be an object."));
        return None;
    }
    loop {
        let error = match serde_path_to_error::deserialize(&value) {
            Ok(read) => return Some(read),
            Err(error) => error,
        };
        let mut fault = json::field_error(&error.path().to_string(), &error.inner().to_string());
        let inner = fault.field.replace('[', ".").replace(']', "");
        let inner = inner.trim_start_matches('.');
        fault.field = if inner == "body" { place.to_owned() } else { format!("{place}.{inner}") };
        let is_new = faults.iter().all(|known| known.field != fault.field);
        if is_new {
            faults.push(fault);
        }
        if !is_new || !take(&mut value, inner) {
            return None;
        }
    }
}

/// Removes a field, or an item of a list.
fn take(value: &mut Value, path: &str) -> bool {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (value, rest) {
        (Value::Object(fields), None) => fields.remove(first).is_some(),
        (Value::Object(fields), Some(rest)) => fields.get_mut(first).is_some_and(|inner| take(inner, rest)),
        // The item's place has to stay, for those behind it.
        (Value::Array(_), _) | (_, None | Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_told_at_once() {
        let body = serde_json::json!({
            "users": [
                {"name": "ada", "role": "boss", "nome": 1, "disabled": "no"},
                {"role": "user"},
                7,
                {"name": 5},
                {"name": "bob"},
            ],
            "groups": {"name": "x"},
            "profiles": [{"name": "a", "cpus": "many", "memory": 5}],
            "announcements": [{"text": "x", "level": "loud", "from": "yesterday"}],
            "complete": ["users", "everything"],
            "quotas": {"everybody": {}},
            "machines": [],
        });
        let (declared, faults) = declaration(body.to_string().as_bytes()).unwrap();
        let mut places: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        places.sort_unstable();
        let expected = [
            "announcements.0.from",
            "announcements.0.level",
            "complete.1",
            "groups",
            "machines",
            "profiles.0.cpus",
            "profiles.0.memory",
            "quotas.everybody",
            "users.0.disabled",
            "users.0.nome",
            "users.0.role",
            "users.1.name",
            "users.2",
            "users.3.name",
        ];
        assert_eq!(places, expected, "{faults:?}");
        let names: Vec<_> = declared.users.iter().map(|(place, user)| (place.as_str(), user.name.as_str())).collect();
        assert_eq!(names, [("users.0", "ada"), ("users.4", "bob")]);
        assert!(declaration(br#"{"users": [{"name": "ada", "name": "bob"}]}"#).is_err(), "a field that stands twice");
        assert!(declaration(b"[]").is_err() && declaration(b"{").is_err());
    }
}
